/* support.h - what the programs of this directory share: directories, files, random numbers, and
 * short ways to say "append this" and "the store must be sound". Anything that goes wrong here ends
 * the program with a message: a test that cannot be set up has failed.
 */
#ifndef WEIR_TESTS_STRESS_SUPPORT_H
#define WEIR_TESTS_STRESS_SUPPORT_H

#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* xorshift64*: small, seeded, the same everywhere. */
typedef struct rng {
    uint64_t state; /* never 0 */
} rng;

uint64_t rng_next(rng *r);
uint32_t rng_below(rng *r, uint32_t bound); /* 0 <= x < bound; bound >= 1 */
rng rng_seeded(uint64_t seed);

void must(bool condition, const char *what);
void *must_realloc(void *ptr, size_t bytes);
__attribute__((format(printf, 1, 2))) char *text_format(const char *format, ...); /* owned */

/* A fresh directory below $TMPDIR; ended by directory_remove, with what is in it. */
char *directory_make(const char *what);
/* The same in memory where there is such a place: for files that need not survive anything. */
char *directory_make_volatile(const char *what);
void directory_remove(char *path);
void directory_empty(const char *path); /* removes the files in it */
void file_write_all(const char *path, const void *bytes, size_t len);
int64_t file_bytes(const char *path); /* -1: not there */

int64_t mono_us(void);

/* The handle, or the end of the program. */
weir *store_open(const char *url, uint32_t flags);
/* The same for a store that is there, of a server that may be away at the moment. */
weir *store_await(const char *url, int seconds);
weir_str text(const char *s);
/* One event to one stream; version is used with WEIR_EXPECT_EXACT. *id and *at may be NULL. */
int32_t append_one(weir *w, const char *stream, int32_t expect, int64_t version, const char *data,
                   int64_t *at, int64_t *id, weir_error *err);

/* What PRAGMA integrity_check says about the file, through a connection of its own that checkpoints
 * nothing; owned. "ok" when all is well. */
char *integrity_check(const char *path);

#endif
