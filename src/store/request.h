/* request.h - from what a caller asks for to what a store is given: checked, compact, complete.
 *
 * Names, JSON texts and limits are checked here, once for all stores (C01, C02, C05). A prepared
 * append owns everything it points to except names and texts it could borrow from the request,
 * which must outlive it.
 */
#ifndef WEIR_STORE_REQUEST_H
#define WEIR_STORE_REQUEST_H

#include "base/clock.h"
#include "store/store.h"

typedef struct prepared_append {
    store_append append; /* borrows from the arena, the buffer and the request */
    weir_arena arena;
    weir_buffer json;
} prepared_append;

/* What a name is called in messages: "stream name", "event name", "key", "lane", ... EINVAL with
 * the offending name in the message: 1 to 512 bytes, UTF-8, no control characters, not starting
 * with '$' (unless own). */
weir_status weir__name_check(const char *what, weir_str name, bool own, weir_error *err);

/* Where a reaction may begin that is new to a store whose log ends at `end`; else EINVAL. */
weir_status weir__start_check(int64_t position, int64_t end, weir_error *err);

/* payload_bytes: the largest data or meta. clock: for the fresh correlation. weir__prepared_free
 * ends it, also after a failure. */
weir_status weir__append_prepare(prepared_append *out, const weir_append_request *request,
                                 int64_t payload_bytes, const weir_clock *clock, weir_error *err);
/* The append that closes a stream. */
weir_status weir__close_prepare(prepared_append *out, weir_str stream,
                                const weir_close_options *options, int64_t payload_bytes,
                                const weir_clock *clock, weir_error *err);
void weir__prepared_free(prepared_append *p); /* zeroed is fine */

#endif
