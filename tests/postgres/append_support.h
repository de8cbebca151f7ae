/* append_support.h - short ways to build appends by hand, and to run many of them in one call.
 *
 * THREADS  Any: nothing here asserts a test's condition.
 */
#ifndef WEIR_TESTS_POSTGRES_APPEND_SUPPORT_H
#define WEIR_TESTS_POSTGRES_APPEND_SUPPORT_H

#include "pg_support.h"

enum { MADE_STREAMS_MAX = 3, RUN_MAX = 512 };

/* One append, built by hand. */
typedef struct made {
    store_append append;
    store_append_stream streams[MADE_STREAMS_MAX];
    store_new_event events[MADE_STREAMS_MAX];
    store_key_change change;
    weir_error err;
} made;

/* One event to one stream. Texts are borrowed. */
void make(made *m, const char *stream, int32_t expect, int64_t version, const char *name);
/* One event more, to a stream that it does not have yet. */
void make_add(made *m, const char *stream, const char *name);
/* An idempotency key; every byte of the fingerprint is `content`. */
void make_key(made *m, const char *key, uint8_t content);

/* All of them, at most RUN_MAX, in one call, with these flags added. */
weir_status run(weir_store *s, made *all, size_t count, uint32_t flags, weir_error *err);

/* One event named A through the public functions; in: the transaction it is to be part of, or NULL;
 * key: "" for none. */
weir_status append_by(weir *w, PGconn *in, const char *stream, const char *key,
                      const weir_append_result **out, weir_error *err);

#endif
