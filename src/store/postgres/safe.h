/* safe.h - how far the log is final, for the files that read it. */
#ifndef WEIR_STORE_POSTGRES_SAFE_H
#define WEIR_STORE_POSTGRES_SAFE_H

#include "store/postgres/postgres_private.h"

/* What is known of the log, and of which server. */
typedef struct pg_known {
    int64_t head, safe, now_us;
    bool held;      /* there is something beyond safe, or may be */
    bool behind;    /* a standby that has not got as far as was read already: it cannot be read */
    int64_t server; /* when it was started; negative: a standby */
    int64_t place;  /* of the store, on this server: as read.sql says it; 0: nothing is known yet */
    char epoch[sizeof((store_positions){ 0 }.epoch)], log[sizeof((store_positions){ 0 }.log)];
} pg_known;

/* The events that follow a position, without data and meta, read in the statement that found out
 * how far the log is final. */
typedef struct pg_news {
    int64_t after;    /* the position                                                          */
    PGresult *result; /* owned; rows of safe_read, in the columns below; NULL: none were given */
} pg_news;
enum {
    PG_NEWS_MAX = 200, /* as in safe_read */
    PG_NEWS_ID = 11,
    PG_NEWS_VERSION,
    PG_NEWS_CREATED,
    PG_NEWS_STREAM,
    PG_NEWS_NAME,
};

/* Advances `safe` as far as that is possible now, with what has committed before this call. Waits
 * for nobody's transaction. Threads that ask at the same time share the work. news: NULL, or what
 * to bring along: all that is up to out->safe, or nothing. */
weir_status weir__pg_safe_advance(pg_store *s, pg_known *out, pg_news *news, weir_error *err);
/* What was known last; all 0 before the first advance. Asks nobody. */
void weir__pg_safe_known(pg_store *s, pg_known *out);
/* A statement that relied on what was known ran on another server. */
void weir__pg_safe_suspect(pg_store *s);

/* Tests only: fn is called before every statement of the rule, with its text, by the thread that
 * runs it. NULL: nobody. Not while a verb runs. */
typedef void (*pg_safe_step_fn)(void *ctx, const char *sql);
void weir__pg_safe_watch(weir_store *s, pg_safe_step_fn fn, void *ctx);

#endif
