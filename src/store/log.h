/* log.h - the part of the port that has to do with events: appending, reading, positions,
 * snapshots, wake-ups. Promises: store.h. */
#ifndef WEIR_STORE_LOG_H
#define WEIR_STORE_LOG_H

#include "base/memory.h"
#include "base/sha256.h"
#include "store/filter.h"
#include "weir.h"

#include <stdbool.h>

typedef struct weir_store weir_store;

typedef struct store_watch store_watch;

/* Limits that every store keeps. */
enum {
    STORE_NAME_BYTES_MAX = 512,
    STORE_APPEND_EVENTS_MAX = 100000,
    STORE_APPEND_STREAMS_MAX = 1000, /* all of them may have to be locked at once */
    STORE_APPEND_BYTES_MAX = 64 * 1024 * 1024,
    STORE_APPEND_KEYS_MAX = 1000, /* changes of reserved keys in one append: each needs a lock */
    STORE_PAYLOAD_BYTES_DEFAULT = 1024 * 1024,
    STORE_CHUNK_EVENTS_MAX = 1000,        /* events looked at in one read transaction          */
    STORE_CHUNK_BYTES_SOFT = 1024 * 1024, /* a chunk ends with the event that reaches this     */
    STORE_CHUNK_BARE_MAX = 8000,          /* the same of events without data and meta          */
    STORE_CHUNK_NAMES_MAX = 1000,         /* streams or targets looked at for one chunk        */
};

/* ---- appending ---------------------------------------------------------------------------- */

typedef struct store_new_event {
    uint32_t stream_index;     /* into store_append.streams */
    weir_str name, data, meta; /* data and meta are valid JSON on one line */
} store_new_event;

typedef struct store_append_stream {
    weir_str name;
    int32_t expect; /* WEIR_EXPECT_*                   */
    int64_t version;
    /* results, as in weir_appended */
    int64_t first, last, id, created_us;
} store_append_stream;

typedef struct store_key_change {
    weir_str key;
    uint32_t stream_index;
    int32_t change; /* WEIR_KEY_* */
} store_key_change;

enum {
    STORE_APPEND_CLOSE = 1, /* streams[0] is being closed: its one event is $closed               */
    STORE_APPEND_FORCE = 2, /* with CLOSE: although reactions have unhandled events of it         */
    STORE_APPEND_DRY_RUN = 4, /* judge and roll back */
    /* Not tried (WEIR_EMISUSE, "not tried") when the append before it in the same call was refused
     * or not tried. */
    STORE_APPEND_CHAIN = 8,
    /* In a batch: when somebody outside of it holds a stream or a key of this append, answer
     * WEIR_EBUSY with `alone` set instead of waiting. */
    STORE_APPEND_NOWAIT = 16,
};

/* One caller's append: valid, compact, complete. Streams are distinct, in the order in which they
 * are judged. Events are in the order in which they get positions. */
typedef struct store_append {
    uint32_t flags;
    store_append_stream *streams;
    size_t streams_count;
    const store_new_event *events;
    size_t events_count;
    const store_key_change *key_changes;
    size_t key_changes_count;
    weir_str key;                           /* idempotency key; empty: none                    */
    uint8_t fingerprint[WEIR_SHA256_BYTES]; /* of everything but meta; set when there is a key */
    int64_t deadline_us; /* machine's monotonic clock: a store that has to wait for its turn gives
                            up then (and tries once, if that is past); 0: after its own busy time */
    /* results */
    weir_status status; /* of this caller alone                            */
    bool replayed;
    bool alone;      /* with NOWAIT and WEIR_EBUSY: run it by itself, without NOWAIT            */
    weir_error *err; /* borrowed from the caller; may be NULL           */
} store_append;

/* ---- reading ------------------------------------------------------------------------------ */

/* A chunk of events. Everything lives in `arena`, which the reading verb resets; so one chunk at a
 * time is in memory. A zeroed struct is ready to use; weir__chunk_free ends it. */
typedef struct store_chunk {
    weir_arena arena;
    weir_event *events; /* in the arena */
    size_t events_count;
    int64_t scanned_to; /* log: everything up to here (backwards: down to here) was looked at   */
    bool more;          /* false: there was nothing further at the time of reading              */
    bool held;          /* log, forwards, more is false: there are events beyond `safe`, so look
                           again soon: nobody may wake us when their turn comes                  */
    char epoch[64];     /* log: as in store_positions, of the log that was read                 */
    char log[64];       /* log: the same                                                        */
    int64_t place;      /* log: where it was read, for route; 0: that makes no difference       */
    int64_t head;       /* log: its end, as far as this read knows; before `after`: rewound     */
} store_chunk;

typedef struct store_stream_query {
    weir_str stream;
    int64_t from, to; /* inclusive versions; from <= to forwards, from >= to backwards          */
    bool backward;
    int64_t limit;    /* at most so many in this chunk; >= 1                                     */
    int64_t until_us; /* INT64_MAX: no bound                                                     */
} store_stream_query;

typedef struct store_log_query {
    int64_t after; /* exclusive, in the direction of reading                                   */
    int64_t to;    /* inclusive; INT64_MAX (forwards) or 0 (backwards): no bound               */
    int64_t limit; /* >= 1                                                                     */
    bool backward;
    bool bare;          /* without data and meta, which are given as empty: cheaper, and many more
                           at once: up to STORE_CHUNK_BARE_MAX                                 */
    bool ids_and_names; /* of bare events nothing else is wanted: stream, version and time may be
                           left out (empty, 0) where that is cheaper                           */
    const store_filter *filter; /* borrowed; NULL: everything                                    */
} store_log_query;

typedef struct store_stream_info {
    weir_str stream; /* in the arena given */
    int64_t version, id, created_us, updated_us;
    bool closed;
} store_stream_info;

typedef struct store_streams_query {
    weir_str after;               /* bytewise, exclusive */
    int64_t limit;                /* >= 1 */
    const store_pattern *pattern; /* NULL: all */
    weir_str category;            /* empty: all */
    int32_t closed;               /* 0 all, 1 closed, 2 open */
} store_streams_query;

/* *more: false when the names were exhausted. Each chunk looks at a bounded number of names, so it
 * may be empty although there are more: go on after `scanned_to`. */
typedef struct store_streams_chunk {
    weir_arena arena;
    store_stream_info *streams;
    size_t streams_count;
    weir_str scanned_to;
    bool more;
} store_streams_chunk;

typedef struct store_positions {
    int64_t head, safe;
    int64_t now_us;
    char epoch[64]; /* what identifies the log, for people to read as well: changes when something
                       that this handle has read is not there any more                           */
    char log[64];   /* the same of the log on which leases are taken: also changes when another
                       server goes on with it, which may have lost what this handle has not read */
} store_positions;

typedef struct store_snapshot {
    weir_str stream;
    weir_str revision; /* of the aggregate's code */
    int64_t version;   /* the last event that is folded in */
    weir_str data;     /* any bytes */
} store_snapshot;

/* ---- the verbs ---------------------------------------------------------------------------- */

typedef struct store_log_ops {
    uint32_t group_commit; /* how many transactions of collected callers may run at once; 0: do not
                              collect, it does not pay */
    uint32_t batch_names_max; /* how many different streams and keys the callers of one of them may
                                 name together; 0: any number. One caller alone may have more */

    /* APPEND. Judges `count` appends in order, each seeing those before it, in one transaction;
     * those that name more than batch_names_max streams and keys in several, one after the other.
     * Post: WEIR_OK: committed; every append has its own status and, when that is not WEIR_OK, its
     * err filled and nothing of it written. Otherwise nothing was written for anybody and the
     * appends' own fields are undefined: WEIR_EBUSY (no turn within busy_us), WEIR_EIO, ...
     * Order of judging one append: key: known, same fingerprint -> replayed, results as the first
     * time; other fingerprint -> EKEYREUSED; being used -> EINFLIGHT; an expired key is unknown.
     * Then each stream: closed -> ECLOSED, expectation -> ECONFLICT. Then each key change in order:
     * RESERVE of another stream's key, or RELEASE of one -> ETAKEN with err->stream = the owner;
     * RESERVE of one's own and RELEASE of a free one change nothing. All events of an append have
     * the same `created`. CLOSE: a closed stream is WEIR_OK with nothing written and first = -1; no
     * such stream is ENOTFOUND; unhandled events of it -> EHELD naming the reactions, unless FORCE:
     * an event is unhandled when a reaction that is not retired listens to it (names, source) and
     * it is above `routed`, or above `at` of the subscription it belongs to, or has a work row.
     * Events at or below `since` are not. Then $closed is appended and the stream is closed, for
     * ever. DRY_RUN: judged, results as if, nothing written.
     * Expired idempotency keys are removed by appends that have a key, a bounded number (64) per
     * transaction. */
    weir_status (*append)(weir_store *s, store_append *const *appends, size_t count,
                          weir_error *err);

    /* APPEND_IN. One append inside a transaction of the caller's own, on the caller's connection
     * (`native`, as in store_sql_fn): judged and written there, visible and durable with its
     * commit. A refusal leaves the transaction as it was. Nobody is woken: `wake` after the commit.
     * NULL where a store cannot do it. */
    weir_status (*append_in)(weir_store *s, void *native, store_append *append, weir_error *err);
    /* Wakes every watch of every process, as after a commit. Never blocks for long, never fails.
     * NULL where append_in is. */
    void (*wake)(weir_store *s);

    /* READS. One short transaction each; `chunk` is reset and filled; events come with all fields,
     * unless they are asked for without.
     * read_stream: ENOTFOUND: no such stream. more = false when the bounds are exhausted.
     * read_log: looks at no more than STORE_CHUNK_EVENTS_MAX events (bare: STORE_CHUNK_BARE_MAX);
     * forwards it stays at or below `safe`. It may give no event and yet have `more`: go on from
     * scanned_to. At the end scanned_to is at least every position that was looked at, and `safe`
     * (bounded by `to`) when more is false. */
    weir_status (*read_stream)(weir_store *s, const store_stream_query *q, store_chunk *chunk,
                               weir_error *err);
    weir_status (*read_log)(weir_store *s, const store_log_query *q, store_chunk *chunk,
                            weir_error *err);
    /* ENOTFOUND. The name is copied into the arena. */
    weir_status (*stream_info)(weir_store *s, weir_str stream, weir_arena *arena,
                               store_stream_info *out, weir_error *err);
    weir_status (*streams)(weir_store *s, const store_streams_query *q, store_streams_chunk *chunk,
                           weir_error *err);
    weir_status (*positions)(weir_store *s, store_positions *out, weir_error *err);

    /* SNAPSHOTS, one per stream. put: of a version that the stream has; kept when that is not lower
     * than the one kept, or the revision differs. get: ENOTFOUND unless there is one of that
     * revision with version <= at_most; texts in the arena. drop: of all streams of the category
     * whose snapshot has another revision than given; *dropped may be NULL. */
    weir_status (*snapshot_put)(weir_store *s, const store_snapshot *snapshot, weir_error *err);
    weir_status (*snapshot_get)(weir_store *s, weir_str stream, weir_str revision, int64_t at_most,
                                weir_arena *arena, store_snapshot *out, weir_error *err);
    weir_status (*snapshot_drop)(weir_store *s, weir_str category, weir_str keep_revision,
                                 int64_t *dropped, weir_error *err);

    /* WAKE-UPS. A watch counts what happened since it was last waited for: a wake-up between two
     * waits is not lost. wait: *woken false: timeout_ms passed (-1: no limit, 0: just look). A
     * watch belongs to one thread at a time; fd is readable when wait would not block. */
    weir_status (*watch_open)(weir_store *s, store_watch **out, weir_error *err);
    weir_status (*watch_wait)(store_watch *watch, int32_t timeout_ms, bool *woken, weir_error *err);
    int (*watch_fd)(store_watch *watch);
    void (*watch_close)(store_watch *watch); /* NULL is a no-op */
} store_log_ops;

/* chunk.c: ending what reads filled; NULL-safe on zeroed structs. */
void weir__chunk_free(store_chunk *chunk);

#endif
