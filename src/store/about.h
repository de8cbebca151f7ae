/* about.h - the part of the port in which a store tells about itself, about what surrounds it and
 * about who works on it. Promises: store.h. */
#ifndef WEIR_STORE_ABOUT_H
#define WEIR_STORE_ABOUT_H

#include "store/work.h"

typedef struct weir_store weir_store;

enum {
    STORE_WORKERS_FORGOTTEN_MAX = 64, /* ended workers forgotten per beat */
    STORE_METRICS_BYTES_MAX = 16384,  /* what a worker has counted        */
};

/* How often a worker says that it lives, and for how many beats it is believed. */
#define STORE_WORKER_BEAT_US ((int64_t)5 * 1000 * 1000)
enum { STORE_WORKER_BEATS = 3 };

/* How long a worker that has ended is still listed. */
#define STORE_WORKER_KEPT_US ((int64_t)3600 * 1000 * 1000)

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

/* A transaction that keeps `safe` below `head`: it has begun to append and has not ended. */
typedef struct store_holder {
    int64_t pid;          /* of the server's process; 0: a prepared transaction                */
    weir_str transaction; /* prepared: its name (gid); else the virtual transaction            */
    weir_str application, user, state, query; /* as far as the server tells; may be empty       */
    int64_t since_us; /* when the transaction began; 0: not known                          */
} store_holder;

typedef struct store_holder_list {
    weir_arena arena;
    store_holder *holders; /* oldest first */
    size_t holders_count;
} store_holder_list;

/* A process that works, or has worked a short while ago. Who is in the list is a hint, for people
 * and for those who share out work: leases and fences decide, never this. */
typedef struct store_worker {
    int64_t id;    /* out: the store's number for it */
    weir_str name; /* as its leases' holder; no two starts of a process have the same, and it is at
                      most STORE_NAME_BYTES_MAX long */
    weir_str host;
    int64_t pid;
    const weir_str *lanes; /* in the order they were given */
    size_t lanes_count;
    const store_known_reaction *known; /* what it can handle, in the order they were given */
    size_t known_count;
    int64_t since_us; /* out: when it was first heard of */
    int64_t until_us; /* out: it has ended when that has passed and nothing was heard */
    bool draining;    /* finishes what it has and takes nothing new */
    weir_str metrics; /* what it has counted, one line of JSON, at most STORE_METRICS_BYTES_MAX; the
                         store does not look into it; empty: says nothing */
    int64_t holds;    /* out, when it is counted: targets with a live lease of that holder */
} store_worker;

typedef struct store_worker_list {
    weir_arena arena;
    bool count_holds;      /* in: costs a scan of the targets */
    store_worker *workers; /* by name */
    size_t workers_count;
} store_worker_list;

/* ---- the verbs ---------------------------------------------------------------------------- */

typedef struct store_about_ops {
    const char *scheme;

    /* Never fails on a store that is half open; NULL is not passed. */
    void (*close)(weir_store *s);

    /* The store's time, in microseconds. */
    weir_status (*now)(weir_store *s, int64_t *now_us, weir_error *err);

    /* ABOUT ITSELF. check: every invariant of this page that can be checked by reading, and of the
     * schema. */
    weir_status (*stats)(weir_store *s, store_stats *out, weir_error *err);
    weir_status (*check)(weir_store *s, store_finding_fn fn, void *ctx, weir_error *err);

    /* HOLDERS. What keeps `safe` below `head` at this moment (C17). Stores in which the two are
     * always equal give an empty list. */
    weir_status (*holders)(weir_store *s, store_holder_list *list, weir_error *err);
    /* SURVEY. What surrounds the store and can harm it, though the store itself is sound: settings
     * of a server, who holds it up, how it is reached. Reads only. NULL where there is nothing
     * around. */
    weir_status (*survey)(weir_store *s, store_survey_fn fn, void *ctx, weir_error *err);

    /* WORKERS. beat: makes the worker known, or renews it: until = now + lease_us; everything else
     * becomes what is said, but `since`. lease_us -1: it has ended just now, and stays listed with
     * what it says. lease_us 0: it has gone, its row is removed; one that is not known is fine.
     * Forgets workers that have ended STORE_WORKER_KEPT_US ago, at most
     * STORE_WORKERS_FORGOTTEN_MAX of them. Nobody is woken. */
    weir_status (*worker_beat)(weir_store *s, const store_worker *worker, int64_t lease_us,
                               weir_error *err);
    /* All that have not ended, or ended less than STORE_WORKER_KEPT_US ago. */
    weir_status (*workers)(weir_store *s, store_worker_list *list, weir_error *err);
} store_about_ops;

/* `holders` of stores with one writer at a time: what is committed is complete. */
weir_status weir__holders_none(weir_store *s, store_holder_list *list, weir_error *err);

#endif
