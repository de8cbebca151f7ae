/* about.h - what a store says about itself and about what surrounds it; part of the port. */
#ifndef WEIR_STORE_ABOUT_H
#define WEIR_STORE_ABOUT_H

#include <stdbool.h>
#include <stdint.h>

/* What a store says about itself: for status and doctor. */
typedef struct store_stats {
    int64_t schema; /* version of the schema */
    int64_t streams, targets, blocked, parked;
    int64_t file_bytes, wal_bytes; /* SQLite: of its files; PostgreSQL: of the tables, and 0 */
    int64_t transactions;          /* write transactions committed through this handle */
    char durability[32];           /* "full", "normal", "none" */
    char library[64];              /* "SQLite 3.40.1", "memory" */
    /* PostgreSQL; else "" and false */
    char database[64], place[64], user[64]; /* place: the schema's name */
    bool standby;                           /* the server only reads */
    bool pooled;                            /* there is a pooler in between */
} store_stats;

/* One finding of a check: `rule` a short word, `text` a sentence, `advice` what to do. */
typedef void (*store_finding_fn)(void *ctx, const char *rule, const char *text, const char *advice);

/* The same for what surrounds a store. act: something should be done about it; otherwise it is good
 * to know. */
typedef void (*store_survey_fn)(void *ctx, bool act, const char *rule, const char *text,
                                const char *advice);

#endif
