/* weir.h - the public interface of libweir: an event store, and an engine that reacts to events.
 *
 * A store keeps streams of events. An event is an immutable fact with a global position (`id`,
 * from 1, growing, may have gaps) and a place in its stream (`version`, 0, 1, 2, ... without
 * gaps). Writers append under an expectation about the stream; when it does not hold they get a
 * conflict that carries the expected and the actual version, and nothing is written.
 *
 *     weir *w = NULL;
 *     weir_error err;
 *     const weir_options o = { WEIR_OPTIONS_INIT, .store_url = "sqlite:orders.db" };
 *     if (weir_open(&o, &w, &err) != WEIR_OK) { fprintf(stderr, "%s\n", err.message); return 1; }
 *     ...
 *     weir_close(w);
 *
 * RULES THAT HOLD FOR EVERY FUNCTION
 *   Codes      Functions that can fail return WEIR_OK (0) or a negative weir_status. Outputs are
 *              written only on success. `err` may be NULL; when it is not, it is filled on failure
 *              and left alone on success. Any function may return WEIR_EINVAL (an argument is out
 *              of range), WEIR_ENOMEM, WEIR_EIO (the store failed) and WEIR_EMISUSE (a handle used
 *              in a forked child, or after its end); a declaration lists only what else it can
 *              return.
 *   Threads    One `weir`, `weir_engine` or `weir_tables` handle serves any number of threads. A
 *              `weir_reader`, a `weir_delivery` and `weir_rows` belong to one thread at a time.
 *              What touches the store blocks for as long as the store takes.
 *   Ending     weir_close, weir_engine_stop, weir_engine_free and weir_tables_close may be called
 *              by any thread while others are inside a call: new calls are refused, waits are
 *              ended, what runs is waited for, nothing aborts. A `weir`, `weir_engine` or
 *              `weir_tables` that has ended is always refused with WEIR_EMISUSE (ending it again
 *              does nothing): these three are numbers, not addresses, and are never reused. A
 *              reader, delivery or result that has ended is an address that is no longer valid.
 *              Readers, engines and deliveries may end after the handle they come from, in any
 *              order: what they need lives as long as they do.
 *   Ownership  Inputs are borrowed until the call returns. What a function hands out through a
 *              `**out` parameter is owned by the caller and ends with the function named there.
 *              Events given to a callback or by a reader are borrowed, as each comment says.
 *   Sizes      Every struct starts with `size`, set by its *_INIT macro. A struct from an older
 *              header is zero-extended; one from a newer header is accepted if the part this
 *              library does not know is all zero. Structs are passed as pointers, and arrays of
 *              structs as arrays of pointers.
 *   Unset      Zero says "not set" in every field, and the comment names the default that holds
 *              then. NULL and an empty text are the same. A number for which 0 is also a value
 *              has a bit in `fields` (WEIR_HAS_*) that says it is set. WEIR_NONE (-1) says
 *              "none" or "no limit" where that is not the default. There are no other special
 *              values. Fields marked WEIR_0 may be left out of an initialiser.
 *   Text       Strings are UTF-8 in weir_str: pointer and length, not NUL-terminated.
 *              WEIR_STR("text") makes one of a literal.
 *   Fork       A handle must not be used in a forked child; open a new one there. That is
 *              WEIR_EMISUSE if a thread of the parent was using a store while it forked.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_VERSION_MAJOR  0
#define WEIR_VERSION_MINOR  1
#define WEIR_VERSION_PATCH  0
#define WEIR_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch */

#if defined(__GNUC__)
#define WEIR_API       __attribute__((visibility("default")))
#define WEIR_MUSTCHECK __attribute__((warn_unused_result))
#else
#define WEIR_API
#define WEIR_MUSTCHECK
#endif

/* Marks a field that may be left out of an initialiser: it is then zero, which means "not set".
 * C needs nothing for that. In C++ it keeps compilers from warning about fields left out. */
#ifdef __cplusplus
#define WEIR_0 = {}
#else
#define WEIR_0
#endif

/* A weir_str of a string literal: WEIR_STR("order-1"). For arguments, assignments and variables
 * inside functions; ISO C wants { "order-1", 7 } for static ones. */
#ifdef __cplusplus
#define WEIR_STR(literal) (weir_str{ "" literal, sizeof(literal) - 1 })
#else
#define WEIR_STR(literal) ((weir_str){ "" literal, sizeof(literal) - 1 })
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ------------------------------------------------------------------------------- */

typedef struct weir weir;               /* a store that is open; weir_close(NULL) is a no-op */
typedef struct weir_reader weir_reader; /* a place in a stream or in the log */

/* A borrowed run of bytes. Not NUL-terminated; `len` may be 0 with `ptr` NULL. */
typedef struct weir_str {
    const char *ptr;
    size_t len;
} weir_str;

/* "None" or "no limit", in fields and parameters whose comment says so. */
enum { WEIR_NONE = -1 };

/* Values are part of the ABI: append, never renumber. Passed as int32_t. */
typedef enum weir_status {
    WEIR_OK = 0,
    WEIR_ENOMEM = -1,
    WEIR_EINVAL = -2,        /* an argument is out of range or malformed              */
    WEIR_ECONFLICT = -3,     /* the expectation did not hold; see expected and actual */
    WEIR_EBUSY = -4,         /* a limit was reached; retry later                      */
    WEIR_EIO = -5,           /* the store failed; see store_code                      */
    WEIR_ENOTFOUND = -6,     /* no such stream, store or target                       */
    WEIR_ECLOSED = -7,       /* the stream is closed                                  */
    WEIR_EKEYREUSED = -8,    /* same idempotency key, other content                   */
    WEIR_EINFLIGHT = -9,     /* same idempotency key, first one not finished          */
    WEIR_ETAKEN = -10,       /* a reserved key belongs to another stream              */
    WEIR_ELOST = -11,        /* a stale fence: the lease, row or lock is another's    */
    WEIR_EHELD = -12,        /* someone else holds it                                 */
    WEIR_ECORRUPT = -13,     /* what the store holds cannot be right                  */
    WEIR_ENEWER = -14,       /* the store's schema is newer than this library         */
    WEIR_EUNAVAILABLE = -15, /* the database is away; nothing was sent                */
    WEIR_EUNKNOWN = -16,     /* sent, outcome not known, not repeated                 */
    WEIR_EREWOUND = -17,     /* the log is not the one this position came from        */
    WEIR_EMISUSE = -18,      /* a call that is not allowed here (see the message)     */
    WEIR_EINTERRUPTED = -19  /* the wait was ended by weir_interrupt, or by closing   */
} weir_status;

/* Filled on failure when the caller passes one. Lives on the caller's stack: reporting an error
 * never allocates. `message` is one line: lower case, no full stop, outermost first. Strings are
 * NUL-terminated. 2,048 bytes for ever; new members come out of `reserved`. */
typedef struct weir_error {
    uint32_t size;            /* set by the library */
    int32_t code;             /* the weir_status that was returned */
    int64_t expected, actual; /* WEIR_ECONFLICT. expected: the version, or one of
                                 WEIR_VERSION_NONE and WEIR_VERSION_EXISTS. actual: the
                                 version of the stream, WEIR_VERSION_NONE: no such stream */
    char stream[520];         /* the stream concerned; may be "" */
    char message[512];
    char detail[512];   /* full sentences: what to do about it. Never "" */
    char store_code[8]; /* SQLSTATE, SQLite extended code, or errno; may be "" */
    char reserved[472];
} weir_error;

/* What a writer believes about a stream. */
enum {
    WEIR_EXPECT_ANY = 0,    /* nothing: never a conflict        */
    WEIR_EXPECT_NONE = 1,   /* there is no such stream          */
    WEIR_EXPECT_EXISTS = 2, /* there is one, at any version     */
    WEIR_EXPECT_EXACT = 3   /* its last event has that version  */
};
enum {
    WEIR_VERSION_NONE = -1,  /* "no such stream", where a version is reported */
    WEIR_VERSION_EXISTS = -2 /* weir_error.expected after WEIR_EXPECT_EXISTS   */
};

/* An event as it is stored. Times are microseconds since 1970, UTC, of the store's clock. */
typedef struct weir_event {
    uint32_t size;
    uint32_t flags;     /* 0 */
    int64_t id;         /* position in the log */
    int64_t version;    /* place in its stream */
    int64_t created_us; /* when it was appended */
    weir_str stream;
    weir_str name;
    weir_str data; /* JSON on one line */
    weir_str meta; /* a JSON object, one line */
} weir_event;

/* Called in order, on the calling thread. `event` and all it points to is borrowed until the
 * callback returns. No transaction is open meanwhile, so it may take its time and may call any
 * function of this header. Return 0 to go on, anything else to stop: the function that runs it
 * then returns WEIR_OK. */
typedef int (*weir_event_fn)(void *ctx, const weir_event *event);

/* ---- opening ------------------------------------------------------------------------------ */

enum {
    WEIR_OPEN_EXISTING = 1, /* do not create: a store that is not there is WEIR_ENOTFOUND   */
    WEIR_OPEN_READONLY = 2, /* implies EXISTING; every write is WEIR_EMISUSE                */
    WEIR_OPEN_ADOPT = 4     /* add the store's tables to an SQLite database of someone else's */
};

typedef struct weir_options {
    uint32_t size;
    uint32_t flags WEIR_0;          /* WEIR_OPEN_* */
    const char *store_url WEIR_0;   /* which store, see below; NULL: "sqlite:weir.db" */
    const char *application WEIR_0; /* shown to others: who holds this? NULL: "weir" */
} weir_options;
#define WEIR_OPTIONS_INIT .size = sizeof(weir_options)

/* STORE URLS. Parameters follow as ?NAME=VALUE&NAME=VALUE; unknown ones are refused. Durations have
 * a unit: 500ms, 10s, 5m, 24h. %XX is decoded.
 *
 *   postgres://USER@HOST:PORT/DATABASE   PostgreSQL 15 or later, for processes on many machines.
 *                    What is left out comes from the environment, as for psql; libpq is loaded
 *                    when the first such store is opened. docs/postgres.md says more.
 *   sqlite:PATH      A file, for processes on one machine.
 *   memory:          This handle alone, until it is closed. memory:NAME is shared by all handles
 *                    of the process with that name, and ends with the last of them.
 *
 * All stores:
 *   payload=1MiB     largest data or meta of an event, up to 32MiB
 *   keys=24h         how long idempotency keys are remembered
 * PostgreSQL and SQLite:
 *   busy=10s         how long a call waits for its turn, for a connection, or for the server to
 *                    come back; what was not sent by then has not happened
 * PostgreSQL:
 *   schema=weir      the schema in which the store lives
 *   pool=8           most connections of one handle; one more listens for wake-ups
 *   timeout=8s       a statement without an answer for this long: the connection is lost
 *   prepare=auto     whether statements are prepared: on, off; auto: unless a pooler is in between
 *   direct=HOST:PORT the server itself, for listening, when the URL leads to a pooler
 *   Everything else is passed to libpq: sslmode, target_session_attrs, connect_timeout, host, ...
 * SQLite:
 *   sync=normal      faster; the last commits may be lost if the power fails
 *   checkpoint=PAGES how large the log file may grow before it is merged into the database
 *   insecure=1       accept files that belong to another user, or that every user may write to or
 *                    rename
 */

/* Opens a store, creating it when it is not there (unless told otherwise by a flag). *out: owned by
 * the caller, ended by weir_close.
 * ENOTFOUND; ENEWER: written by a newer version; ECORRUPT; EBUSY: others kept it locked; EMISUSE:
 * a file that another user could have prepared (see insecure=1), a dangling symbolic link, or a
 * database file with more than one name; EHELD: a database file that was renamed while somebody has
 * it open. */
WEIR_API WEIR_MUSTCHECK int32_t weir_open(const weir_options *options, weir **out, weir_error *err);

/* Ends a handle: refuses new calls (EMISUSE), ends the waits under way (EINTERRUPTED), and waits
 * for the calls that run, each for as long as its store takes. From inside a callback of this
 * library it does not wait: the last call that returns ends it. Readers and engines that are still
 * there refuse whatever needs the handle and keep the store open until they are ended. NULL, and a
 * handle that was closed, are no-ops. Any thread. */
WEIR_API void weir_close(weir *w);

/* Ends the waits under way on a handle, each once, with WEIR_EINTERRUPTED: weir_reader_next of a
 * reader that follows, and weir_next and weir_engine_wait_idle of its engines. Nothing is lost by
 * it: call again to go on waiting. Appends and whatever else is at work are left alone. A wait that
 * begins later is not ended. To be sure, set a flag that the waiting thread looks at before each
 * call, and call this again until that thread has seen it. Does not block, never fails. Any thread,
 * but not a signal handler; NULL is a no-op. */
WEIR_API void weir_interrupt(weir *w);

/* ---- appending ---------------------------------------------------------------------------- */

typedef struct weir_new_event {
    uint32_t size;
    uint32_t flags WEIR_0; /* 0 */
    weir_str stream WEIR_0;
    weir_str name WEIR_0;
    weir_str data WEIR_0; /* any JSON; "{}" when left out */
    weir_str meta WEIR_0; /* a JSON object, or empty; `correlation` and `causation` are added */
} weir_new_event;
#define WEIR_NEW_EVENT_INIT .size = sizeof(weir_new_event)

typedef struct weir_expectation {
    uint32_t size;
    int32_t expect WEIR_0;  /* WEIR_EXPECT_* */
    int64_t version WEIR_0; /* for WEIR_EXPECT_EXACT, else 0 */
    weir_str stream WEIR_0;
} weir_expectation;
#define WEIR_EXPECTATION_INIT .size = sizeof(weir_expectation)

enum {
    WEIR_KEY_RESERVE = 1, /* the key belongs to the stream from now on; nobody else can have it */
    WEIR_KEY_RELEASE = 2  /* the stream gives it up; a free key stays free                      */
};

/* A unique business key, such as "email:someone@example.org", reserved for a stream or given up by
 * it. Changes are judged in the order given: to move a key, release it from one stream and reserve
 * it for the other in the same append. */
typedef struct weir_key_change {
    uint32_t size;
    int32_t change WEIR_0; /* WEIR_KEY_* */
    weir_str key WEIR_0;
    weir_str stream WEIR_0; /* must have an event or an expectation in the same append */
} weir_key_change;
#define WEIR_KEY_CHANGE_INIT .size = sizeof(weir_key_change)

typedef struct weir_append_request {
    uint32_t size;
    uint32_t flags WEIR_0; /* 0 */
    const weir_new_event *const *events WEIR_0;
    size_t events_count
        WEIR_0; /* at most 100,000, and 64 MiB of names, data and meta; with those of
                                   the expectations at most 1,000 streams */
    const weir_expectation *const *expectations WEIR_0;
    size_t expectations_count WEIR_0; /* one per stream at most; streams without one: any */
    const weir_key_change *const *key_changes WEIR_0;
    size_t key_changes_count WEIR_0; /* at most 1,000 */
    weir_str key WEIR_0;             /* idempotency key of the whole append; left out: none */
    weir_str correlation WEIR_0;     /* for events whose meta has none; left out: a fresh one */
    int64_t causation WEIR_0; /* id of the causing event, for events whose meta has none; 0: none */
} weir_append_request;
#define WEIR_APPEND_REQUEST_INIT .size = sizeof(weir_append_request)

/* What became of one stream of an append. `first` to `last` are the versions of the new events;
 * a stream that was named without events has first = WEIR_VERSION_NONE and last = its version. */
typedef struct weir_appended {
    uint32_t size;
    uint32_t flags WEIR_0; /* 0 */
    weir_str stream WEIR_0;
    int64_t first WEIR_0;
    int64_t last WEIR_0;
    int64_t id WEIR_0;         /* position of the stream's last new event; 0: it got none */
    int64_t created_us WEIR_0; /* of its new events, as weir_event has it; 0: it got none */
} weir_appended;
#define WEIR_APPENDED_INIT .size = sizeof(weir_appended)

typedef struct weir_append_result {
    uint32_t size;
    uint32_t replayed; /* 1: the idempotency key was known; this is the first append's result,
                          with its time                                                   */
    size_t streams_count;
    const weir_appended *const *streams; /* expectations in the order given, then the others */
} weir_append_result;

/* Appends events to one or more streams: all of them, or nothing. When it returns WEIR_OK the
 * events are durable, and *out says which versions, positions and time they got, so that nothing
 * has to be read back. Concurrent callers share transactions. Refusals are judged in this order:
 *   EINVAL      a name, JSON text or limit
 *   EBUSY       1,024 callers wait already, or no turn in time
 *   EKEYREUSED  the idempotency key was used with other content
 *   EINFLIGHT   the idempotency key is being used at this moment
 *   ECLOSED, ECONFLICT  stream by stream, expectations as given, then the others
 *   ETAKEN      a key belongs to another stream: err->stream names it
 * EUNKNOWN: the disk failed in the middle of the commit, or the connection was lost before the
 * answer came: it may or may not have happened. The library itself repeats an append that has an
 * idempotency key, once. After that, or without a key, find out by reading, or repeat with the same
 * key. `out` may be NULL; else *out is owned by the caller, ended by weir_append_result_free. */
WEIR_API WEIR_MUSTCHECK int32_t weir_append(weir *w, const weir_append_request *request,
                                            const weir_append_result **out, weir_error *err);

/* The same for one event of one stream, in one line:
 *     weir_append_one(w, WEIR_STR("order-1"), WEIR_EXPECT_NONE, 0, WEIR_STR("OrderPlaced"),
 *                     WEIR_STR("{\"total\":40}"), &appended, &err)
 * expect: WEIR_EXPECT_*; version: for WEIR_EXPECT_EXACT, else 0. data: "{}" when it is empty. For
 * meta, keys and several events use weir_append, which has the same codes. `out` may be NULL; else
 * it is the caller's own struct with its `size` set (WEIR_APPENDED_INIT), filled on success;
 * out->stream points to what was passed as `stream`. Blocks; any thread. */
WEIR_API WEIR_MUSTCHECK int32_t weir_append_one(weir *w, weir_str stream, int32_t expect,
                                                int64_t version, weir_str name, weir_str data,
                                                weir_appended *out, weir_error *err);

/* As weir_append, inside a transaction of the caller's own, on the caller's own connection
 * (PostgreSQL: `connection` is a PGconn *, borrowed, used by this thread alone meanwhile): the
 * events are there, and durable, when that transaction commits, together with whatever else it did.
 * Call weir_wake then. Blocks while somebody else holds one of the streams or keys, and holds them
 * until the transaction ends: others who append to them wait, and readers do not pass its
 * positions, so keep it short. Refusals are those of weir_append and leave the transaction as it
 * was; after EIO or EBUSY it has failed and has to be rolled back. EMISUSE: the store is not
 * PostgreSQL, no transaction is open, or it is not READ COMMITTED. Any thread. */
WEIR_API WEIR_MUSTCHECK int32_t weir_append_in(weir *w, void *connection,
                                               const weir_append_request *request,
                                               const weir_append_result **out, weir_error *err);

/* Tells everyone who waits for events that there may be some: after the commit of a transaction
 * with weir_append_in. Without it they find out by themselves, later. Does not block, never
 * fails. Any thread; NULL is a no-op. */
WEIR_API void weir_wake(weir *w);

/* Frees a result. NULL is a no-op. Does not touch the store. */
WEIR_API void weir_append_result_free(const weir_append_result *result);

/* ---- reading ------------------------------------------------------------------------------ */

/* Bits of `fields`: which bounds are set. 0 is a value for each of them: a limit that is set to 0
 * gives nothing. */
enum {
    WEIR_HAS_FROM = 1,
    WEIR_HAS_TO = 2,
    WEIR_HAS_LIMIT = 4,
    WEIR_HAS_SINCE = 8,
    WEIR_HAS_UNTIL = 16,
    WEIR_HAS_NAMES = 32,
    WEIR_HAS_AFTER = 64
};
enum {
    WEIR_READ_BACKWARD = 1, /* newest first                                      */
    WEIR_READ_FOLLOW = 2    /* weir_log_open only: after the last event, wait     */
};

typedef struct weir_read_options {
    uint32_t size;
    uint32_t flags WEIR_0;  /* WEIR_READ_BACKWARD */
    uint32_t fields WEIR_0; /* WEIR_HAS_FROM, _TO, _LIMIT, _UNTIL */
    uint32_t reserved WEIR_0;
    weir_str stream WEIR_0;
    int64_t from WEIR_0; /* versions, both inclusive; from is where reading begins */
    int64_t to WEIR_0;
    int64_t limit WEIR_0;
    int64_t until_us WEIR_0; /* only events created at or before this time */
} weir_read_options;
#define WEIR_READ_OPTIONS_INIT .size = sizeof(weir_read_options)

typedef struct weir_log_options {
    uint32_t size;
    uint32_t flags WEIR_0;  /* WEIR_READ_* */
    uint32_t fields WEIR_0; /* WEIR_HAS_AFTER, _TO, _LIMIT, _SINCE, _UNTIL, _NAMES */
    uint32_t reserved WEIR_0;
    int64_t after WEIR_0; /* exclusive position; backwards: only events below it */
    int64_t to WEIR_0;    /* inclusive position, where reading ends */
    int64_t limit WEIR_0;
    int64_t since_us WEIR_0; /* created between these times, both inclusive */
    int64_t until_us WEIR_0;
    const weir_str *names WEIR_0; /* with WEIR_HAS_NAMES; an empty list matches nothing */
    size_t names_count WEIR_0;
    weir_str stream WEIR_0;      /* pattern: "order-1", "order-*" or "/regular expression/" */
    weir_str category WEIR_0;    /* the part of a stream's name before its first '-' */
    weir_str correlation WEIR_0; /* exactly this meta.correlation */
} weir_log_options;
#define WEIR_LOG_OPTIONS_INIT .size = sizeof(weir_log_options)

/* Gives the events of one stream to `fn`. ENOTFOUND: no such stream (fn was not called). */
WEIR_API WEIR_MUSTCHECK int32_t weir_read(weir *w, const weir_read_options *options,
                                          weir_event_fn fn, void *ctx, weir_error *err);

/* Gives the events of the log to `fn`, by position, up to the last one that is safe: nothing can
 * still appear at or below a position once it was given. `options` may be NULL: all events.
 * EREWOUND: `after` is beyond the log. WEIR_READ_FOLLOW is WEIR_EINVAL here: use a reader. */
WEIR_API WEIR_MUSTCHECK int32_t weir_log(weir *w, const weir_log_options *options, weir_event_fn fn,
                                         void *ctx, weir_error *err);

/* The same without a callback. The options are copied. *out: owned, ended by weir_reader_close,
 * before weir_close or after it. Codes as weir_read and weir_log. */
WEIR_API WEIR_MUSTCHECK int32_t weir_read_open(weir *w, const weir_read_options *options,
                                               weir_reader **out, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_log_open(weir *w, const weir_log_options *options,
                                              weir_reader **out, weir_error *err);

/* Gives the next event in *event, or NULL: there is none. With WEIR_READ_FOLLOW: none came within
 * timeout_ms; WEIR_NONE waits without end, 0 does not wait. The event is borrowed until the next
 * call with this reader. EREWOUND: the log was rewound below what this reader has given.
 * EINTERRUPTED: see weir_interrupt. EMISUSE: the handle was closed. */
WEIR_API WEIR_MUSTCHECK int32_t weir_reader_next(weir_reader *reader, int32_t timeout_ms,
                                                 const weir_event **event, weir_error *err);

/* A file descriptor that becomes readable when there may be more for a following reader; poll it,
 * then call weir_reader_next with timeout 0 until it gives NULL. Borrowed: do not read or close it.
 * A missed wake-up is possible where a process died: poll with a timeout of a second. -1: the
 * reader does not follow. */
WEIR_API int32_t weir_reader_fd(const weir_reader *reader);

/* NULL is a no-op. */
WEIR_API void weir_reader_close(weir_reader *reader);

/* ---- streams ------------------------------------------------------------------------------ */

typedef struct weir_stream {
    uint32_t size;
    uint32_t closed; /* 1: the stream is closed */
    int64_t version; /* of its last event */
    int64_t count;   /* how many events it has */
    int64_t id;      /* position of its last event */
    int64_t created_us, updated_us;
    weir_str stream;
} weir_stream;

/* What is known about one stream. *out: owned, ended by weir_stream_free. ENOTFOUND. */
WEIR_API WEIR_MUSTCHECK int32_t weir_stream_info(weir *w, weir_str stream, const weir_stream **out,
                                                 weir_error *err);
WEIR_API void weir_stream_free(const weir_stream *info);

enum {
    WEIR_STREAMS_ALL = 0,
    WEIR_STREAMS_CLOSED = 1, /* only those that are closed     */
    WEIR_STREAMS_OPEN = 2    /* only those that are not closed */
};

typedef struct weir_streams_options {
    uint32_t size;
    uint32_t flags WEIR_0;  /* 0 */
    uint32_t fields WEIR_0; /* WEIR_HAS_LIMIT */
    int32_t closed WEIR_0;  /* WEIR_STREAMS_* */
    weir_str stream WEIR_0; /* pattern, as in weir_log_options */
    weir_str category WEIR_0;
    weir_str after WEIR_0; /* only names that sort after this one, bytewise */
    int64_t limit WEIR_0;
} weir_streams_options;
#define WEIR_STREAMS_OPTIONS_INIT .size = sizeof(weir_streams_options)

typedef int (*weir_stream_fn)(void *ctx, const weir_stream *info);

/* Gives every stream that fits to `fn`, in bytewise order of their names; what is borrowed and when
 * it stops as for weir_event_fn. `options` may be NULL: all streams. */
WEIR_API WEIR_MUSTCHECK int32_t weir_streams(weir *w, const weir_streams_options *options,
                                             weir_stream_fn fn, void *ctx, weir_error *err);

enum {
    WEIR_CLOSE_FORCE = 1,  /* although reactions have not handled all of it */
    WEIR_CLOSE_DRY_RUN = 2 /* judge, change nothing                         */
};

typedef struct weir_close_options {
    uint32_t size;
    uint32_t flags WEIR_0; /* WEIR_CLOSE_* */
    int32_t expect WEIR_0; /* WEIR_EXPECT_* */
    uint32_t reserved WEIR_0;
    int64_t version WEIR_0;
    weir_str data WEIR_0; /* of the event $closed; "{}" when left out */
} weir_close_options;
#define WEIR_CLOSE_OPTIONS_INIT .size = sizeof(weir_close_options)

/* Ends a stream: appends `$closed` under the expectation and refuses every later append. A stream
 * that is closed stays as it is, and that is WEIR_OK. `options` may be NULL. ENOTFOUND: no such
 * stream; ECONFLICT; EHELD: reactions have not handled all of it, the message names them. */
WEIR_API WEIR_MUSTCHECK int32_t weir_stream_close(weir *w, weir_str stream,
                                                  const weir_close_options *options,
                                                  weir_error *err);

/* ---- backups ------------------------------------------------------------------------------ */

enum {
    WEIR_BACKUP_REPLACE = 1 /* a regular file of that name is replaced */
};

/* How much of a backup is done, in pages. On the thread of the call. */
typedef void (*weir_progress_fn)(void *ctx, int64_t done, int64_t total);

/* SQLite: writes a complete copy of the store, as it is at one moment, to the file `path`, which is
 * then a store like any other. Others go on reading and writing. The file appears once the copy is
 * complete, checked and on the disk, or not at all. Blocks until then; any thread. EINVAL: `path`
 * exists (see WEIR_BACKUP_REPLACE), is the name of a file of this or another store, or has the log
 * of another file beside it (`path`-wal); EHELD: somebody has the store open that is there;
 * ECORRUPT: the store is damaged, no copy was made; EMISUSE: this is not an SQLite store. `weir
 * restore` replaces a store with a backup. */
WEIR_API WEIR_MUSTCHECK int32_t weir_backup(weir *w, const char *path, uint32_t flags,
                                            weir_error *err);
/* The same, telling `fn` now and then how far it is. fn may be NULL. */
WEIR_API WEIR_MUSTCHECK int32_t weir_backup_watched(weir *w, const char *path, uint32_t flags,
                                                    weir_progress_fn fn, void *ctx,
                                                    weir_error *err);

/* ---- reactions ---------------------------------------------------------------------------- */

typedef struct weir_engine weir_engine;     /* the workers of this process */
typedef struct weir_delivery weir_delivery; /* one event, given to a handler */

/* What a handler says. Anything else is WEIR_RETRY. */
enum {
    WEIR_DONE = 0,      /* what was staged is settled together with the progress              */
    WEIR_RETRY = 1,     /* failed: costs a retry; see weir_delivery_fail                      */
    WEIR_PERMANENT = 2, /* failed, and will again: no retries, the reaction's policy decides  */
    WEIR_DEFER = 3      /* not now: see weir_delivery_defer; costs nothing                    */
};

/* Runs with no transaction open, under the target's lease, on one of the lane's threads. It may be
 * run again for the same event: what it stages happens once, whatever else it does is its own
 * business (weir_delivery_key and weir_delivery_fence help). */
typedef int32_t (*weir_handle_fn)(void *ctx, weir_delivery *delivery);

/* Runs inside the settling transaction, with a batch of events of one target, in order. `native`:
 * sqlite3 * or PGconn *, borrowed, NULL for memory; it must not begin, end or save anything. What
 * it writes there and the progress are committed together, or neither. Not WEIR_OK: undone, and
 * counts as one failure of the first event; err->message says why. At most 5 s unless the reaction
 * says less. */
typedef int32_t (*weir_project_fn)(void *ctx, void *native, const weir_event *const *events,
                                   size_t events_count, weir_error *err);

/* Where an event goes, for rules that no template can say. Texts must live until the next call on
 * the same thread. Leave target empty to ignore the event. Must give the same answer for the same
 * event; when it is changed, raise resolver_revision. Not WEIR_OK: the event is parked for this
 * reaction, with err->message. */
typedef struct weir_route {
    uint32_t size;
    uint32_t flags; /* 0 */
    weir_str target;
    weir_str source; /* shown to operators; empty: the event's stream */
    weir_str lane;   /* empty: the reaction's */
    int64_t priority;
} weir_route;
typedef int32_t (*weir_resolve_fn)(void *ctx, const weir_event *event, weir_route *out,
                                   weir_error *err);

/* Exponential and linear have full jitter: each wait is a random part of what is said here. */
enum {
    WEIR_BACKOFF_EXPONENTIAL = 0, /* base, 2 base, 4 base, ... up to the cap */
    WEIR_BACKOFF_FIXED = 1,       /* always exactly the base                 */
    WEIR_BACKOFF_LINEAR = 2       /* base, 2 base, 3 base, ... up to the cap */
};
enum {
    WEIR_POISON_BLOCK = 0, /* the target stops until an operator looks         */
    WEIR_POISON_PARK = 1,  /* the event is parked, the target goes on */
    WEIR_POISON_RETRY = 2  /* for ever, at the capped backoff                  */
};
enum {
    WEIR_FROM_DEFAULT = 0, /* from the start, if the log has no event for it yet; else EINVAL */
    WEIR_FROM_START = 1,
    WEIR_FROM_NOW = 2,
    WEIR_FROM_POSITION = 3 /* from_position: the last position that is not handled */
};

/* Exactly one of handle, project, run, exec; or none of them: the events are given by weir_next. */
typedef struct weir_reaction {
    uint32_t size;
    uint32_t flags WEIR_0; /* 0 */
    weir_str name WEIR_0;  /* unique in the store, for ever */
    const weir_str *on WEIR_0;
    size_t on_count WEIR_0; /* event names; 0: every event but those of Weir itself ($...) */
    weir_str source WEIR_0; /* streams to listen to: a name, a prefix with *, a /regex/ */
    weir_str to WEIR_0; /* target: text with {stream}, {category}, {name}, {data.a.b}; or resolve */
    weir_resolve_fn resolve WEIR_0;
    int64_t resolver_revision WEIR_0;
    weir_str lane WEIR_0;          /* empty: "default" */
    weir_str priority_text WEIR_0; /* a template; what gives no integer is 0; empty: priority */
    int64_t priority WEIR_0;
    int32_t retries WEIR_0;         /* after the first attempt; 0: 3; WEIR_NONE: none */
    int32_t backoff WEIR_0;         /* WEIR_BACKOFF_* */
    int64_t backoff_base_us WEIR_0; /* 0: 200 ms */
    int64_t backoff_cap_us WEIR_0;  /* 0: 30 s */
    int32_t poison WEIR_0;          /* WEIR_POISON_* */
    int32_t from WEIR_0;            /* WEIR_FROM_*; counts when it is first declared */
    int64_t from_position WEIR_0;
    int64_t deadline_us WEIR_0; /* 0: 5 min; project: 5 s */
    weir_handle_fn handle WEIR_0;
    weir_project_fn project WEIR_0;
    const char *run WEIR_0; /* commands for /bin/sh -c */
    const char *exec WEIR_0;
    void *ctx WEIR_0; /* for the functions; borrowed until weir_engine_free */
} weir_reaction;
#define WEIR_REACTION_INIT .size = sizeof(weir_reaction)

typedef struct weir_lane {
    uint32_t size;
    uint32_t flags WEIR_0; /* 0 */
    weir_str name WEIR_0;
    int32_t threads WEIR_0;      /* 0: 4 */
    int32_t target_limit WEIR_0; /* 0: 10 */
    int32_t event_limit WEIR_0;  /* 0: 10 */
    int64_t lease_us WEIR_0;     /* 0: 5 s */
    int64_t cycle_us WEIR_0;     /* 0: 1 s */
} weir_lane;
#define WEIR_LANE_INIT .size = sizeof(weir_lane)

/* One line of what the engine does: a short word and its fields as JSON. Any thread; must not call
 * the engine. level: 0 debug, 1 info, 2 warning, 3 error. */
typedef void (*weir_log_fn)(void *ctx, int32_t level, weir_str event, weir_str json);

enum {
    WEIR_ENGINE_REDECLARE = 1 /* make these definitions current, even if there are later ones */
};

typedef struct weir_engine_options {
    uint32_t size;
    uint32_t flags WEIR_0; /* WEIR_ENGINE_* */
    const weir_str *lanes WEIR_0;
    size_t lanes_count WEIR_0; /* run these lanes only; 0: all of the declared reactions */
    int64_t lost_max WEIR_0;   /* leases lost in a row until a target is blocked; 0: 10 */
    weir_log_fn log WEIR_0;    /* NULL: silent */
    void *log_ctx WEIR_0;
    /* What the events that are being handled, or wait for it, may take, all lanes together: 1 MiB
     * to 1 TiB; 0: 256 MiB. Slots for which there is no room stay free. A lane that has nothing
     * else may always take one batch, so one event larger than this goes through by itself. What
     * handlers allocate and stage is not counted. */
    int64_t memory_limit_bytes WEIR_0;
} weir_engine_options;
#define WEIR_ENGINE_OPTIONS_INIT .size = sizeof(weir_engine_options)

/* SQL of a handler's own in the settling transaction: as weir_project_fn. */
typedef int32_t (*weir_sql_fn)(void *ctx, void *native, weir_error *err);

/* An engine that does nothing yet. It keeps the store of `w` open until weir_engine_free. Close `w`
 * after the engine was stopped, or its handlers find it closed. */
WEIR_API WEIR_MUSTCHECK int32_t weir_engine_open(weir *w, const weir_engine_options *options,
                                                 weir_engine **out, weir_error *err);
/* Before the start. Everything is copied but ctx. What is wrong is told by weir_engine_start, all
 * at once. EMISUSE: it runs already. */
WEIR_API WEIR_MUSTCHECK int32_t weir_engine_lane(weir_engine *e, const weir_lane *lane,
                                                 weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_engine_reaction(weir_engine *e, const weir_reaction *reaction,
                                                     weir_error *err);
/* Checks and declares the reactions, and starts the threads. EINVAL: err->detail lists all that is
 * wrong, as far as there is room, separated by "; ". */
WEIR_API WEIR_MUSTCHECK int32_t weir_engine_start(weir_engine *e, weir_error *err);
/* Stops leasing, hands back what was not started, waits for what runs, at most budget_ms, then
 * interrupts programs and lets their targets go. Nothing is charged for it. Any thread, also while
 * others are inside a call on the engine: one that waits (weir_next, weir_engine_wait_idle) returns
 * ENOTFOUND at once; from then on those two are EMISUSE. weir_settle goes on until the budget is
 * spent. WEIR_EBUSY: a handler, or a weir_settle, was still running at the end of the budget (its
 * target is free when its lease ends). EMISUSE: it does not run, or is being stopped. */
WEIR_API WEIR_MUSTCHECK int32_t weir_engine_stop(weir_engine *e, int32_t budget_ms,
                                                 weir_error *err);
/* Blocks until nothing is ready, leased or waiting for a backoff, at most timeout_ms (WEIR_NONE: no
 * limit). EBUSY: time is up. ENOTFOUND: the engine was stopped meanwhile. EINTERRUPTED: see
 * weir_interrupt. ECORRUPT: the store is damaged or was taken away, the engine does no more work.
 * EMISUSE: it does not run. */
WEIR_API WEIR_MUSTCHECK int32_t weir_engine_wait_idle(weir_engine *e, int32_t timeout_ms,
                                                      weir_error *err);
/* Ends an engine, and stops it without a budget when it runs. Refuses new calls, ends waits as
 * weir_engine_stop does, waits for calls and handlers that still run: so not from a handler. NULL,
 * and an engine that was freed, are no-ops. */
WEIR_API void weir_engine_free(weir_engine *e);

/* What a handler can know. Borrowed until the delivery ends. */
WEIR_API const weir_event *weir_delivery_event(const weir_delivery *d);
WEIR_API weir_str weir_delivery_reaction(const weir_delivery *d);
WEIR_API weir_str weir_delivery_target(const weir_delivery *d);
WEIR_API int64_t weir_delivery_attempt(const weir_delivery *d); /* 1 is the first */
WEIR_API int64_t weir_delivery_fence(const weir_delivery *d);
WEIR_API int64_t weir_delivery_deadline_us(const weir_delivery *d); /* of the store's clock */
WEIR_API weir_str weir_delivery_key(const weir_delivery *d); /* the same on every redelivery */
/* The lease is another's, or could not be renewed and is about to end, or the engine ends: what is
 * done now may be done twice. A handler that is a function cannot be ended from outside: one that
 * takes long asks this now and then, and before whatever must not happen twice. */
WEIR_API int32_t weir_delivery_interrupted(const weir_delivery *d);

/* Why it failed: kept with the target, at most 1,000 bytes. */
WEIR_API void weir_delivery_fail(weir_delivery *d, const char *why);
/* For WEIR_DEFER: not before this time of the store's clock. */
WEIR_API void weir_delivery_defer(weir_delivery *d, int64_t until_us);

/* Effects: copied now, checked now (EINVAL), written when the delivery settles, all of them or
 * none, once, however often the handler is run. Correlation and causation come from the event. */
WEIR_API WEIR_MUSTCHECK int32_t weir_stage_append(weir_delivery *d,
                                                  const weir_append_request *request,
                                                  weir_error *err);
/* SQL of the handler's own in the settling transaction, after its appends were judged or before:
 * nothing is promised about the order. As weir_project_fn. */
WEIR_API WEIR_MUSTCHECK int32_t weir_stage_sql(weir_delivery *d, weir_sql_fn fn, void *ctx,
                                               weir_error *err);

/* PULL. The next delivery of a reaction that has no handler, on any thread; WEIR_ENOTFOUND: none
 * within timeout_ms (0: look only; WEIR_NONE: no limit), or the engine was stopped meanwhile.
 * EINTERRUPTED: see weir_interrupt. ECORRUPT: see weir_engine_wait_idle, nothing more will come.
 * EMISUSE: the engine is not running. Owned until weir_settle. */
WEIR_API WEIR_MUSTCHECK int32_t weir_next(weir_engine *e, int32_t timeout_ms, weir_delivery **out,
                                          weir_error *err);
/* Readable when weir_next would give something, or the engine was stopped. -1: it was freed. */
WEIR_API int32_t weir_engine_fd(const weir_engine *e);
/* Ends it, as a handler's return value does: WEIR_DONE, ... ELOST: the lease was another's, or the
 * engine was stopped meanwhile; nothing happened. ECONFLICT, ETAKEN: an append was refused; it is
 * delivered again, or has failed. EBUSY, EUNAVAILABLE, EIO and ENOMEM do not end it: call again.
 * EUNKNOWN: nobody can say; ended. EMISUSE: not a delivery of weir_next, or another thread is
 * settling it, or is freeing the engine at this moment: it is not ended. After the engine was
 * stopped or freed a delivery is still settled, with ELOST, and can be asked until then. */
WEIR_API WEIR_MUSTCHECK int32_t weir_settle(weir_engine *e, weir_delivery *d, int32_t outcome,
                                            weir_error *err);

/* ---- operating ---------------------------------------------------------------------------- */

/* What operators do with `weir targets`, `unblock`, `skip`, `reset`, `prioritize`, `pause`,
 * `resume` and `parked`. All of these block for as long as the store takes, and any thread may
 * call them. Lists are pulled, a row at a time: they hold no transaction, so what changes meanwhile
 * may or may not be seen. A list belongs to one thread at a time, keeps the store open until it is
 * closed, and may be closed after weir_close. */

typedef struct weir_target_list weir_target_list;
typedef struct weir_lane_list weir_lane_list;
typedef struct weir_parked_list weir_parked_list;

/* The first that holds, in this order. */
enum {
    WEIR_TARGET_LEASED = 1,   /* a worker has it                                 */
    WEIR_TARGET_BLOCKED = 2,  /* it failed for good, or lost too many leases     */
    WEIR_TARGET_PAUSED = 3,   /* it or its lane, by an operator                  */
    WEIR_TARGET_DEFERRED = 4, /* it waits until due_us                           */
    WEIR_TARGET_READY = 5,    /* it has work                                     */
    WEIR_TARGET_IDLE = 6      /* it has none                                     */
};
enum {
    WEIR_TARGET_BEHIND = 1,      /* it has work, whatever its state             */
    WEIR_TARGET_PRIORITIZED = 2, /* its priority is an operator's               */
    WEIR_TARGET_PAUSED_SELF = 4  /* it is paused itself, not only its lane      */
};

/* A target, as it is listed. */
typedef struct weir_target {
    uint32_t size;
    uint32_t flags; /* WEIR_TARGET_BEHIND, _PRIORITIZED, _PAUSED_SELF */
    int32_t state;  /* WEIR_TARGET_LEASED to _IDLE */
    uint32_t reserved;
    weir_str name;
    weir_str lane;
    int64_t priority;
    int64_t lag;             /* upper bound: positions of the log that wait for it; 0: none */
    int64_t watermark;       /* everything up to this position was handled */
    int64_t fence;           /* of its last lease */
    int64_t lost;            /* leases that ended unreleased, in a row */
    weir_str holder;         /* who has it; empty: nobody */
    int64_t leased_until_us; /* 0: nobody has it */
    int64_t due_us;          /* not leased before; 0: not deferred */
    int64_t blocked_us;      /* since when it is blocked; 0: it is not */
    weir_str error;          /* of the last failure, or why it is blocked; may be empty */
    int64_t event;           /* id of the event that failed; 0: none */
    weir_str reaction;       /* that failed; may be empty */
    int64_t attempts;        /* of that reaction at that event */
    weir_str paused_by;      /* may be empty */
} weir_target;

enum {
    WEIR_TARGETS_ALL = 1,     /* every target. A verb refuses a filter that says nothing else  */
    WEIR_TARGETS_BLOCKED = 2, /* only targets that are blocked                                 */
    WEIR_TARGETS_DRY_RUN = 4, /* verbs: count what would change, change nothing                */
    WEIR_TARGETS_CLEAR = 8    /* weir_targets_prioritize: back to what the reactions declare   */
};
enum {
    WEIR_RESET_START = 0,    /* everything since the reaction began is handled again          */
    WEIR_RESET_POSITION = 1, /* reset_position is the last position that stays handled        */
    WEIR_RESET_TIME = 2      /* events created at or after reset_time_us are handled again    */
};

/* Which targets, and what a verb needs to know beyond that. Either names, or any of the others,
 * which must all fit. */
typedef struct weir_targets_options {
    uint32_t size;
    uint32_t flags WEIR_0; /* WEIR_TARGETS_* */
    const weir_str *names WEIR_0;
    size_t names_count WEIR_0;
    weir_str match WEIR_0;  /* pattern of the name: "mail-1", "mail-*", "/^mail-/"; empty: any */
    weir_str source WEIR_0; /* pattern of the source of one of its subscriptions; empty: any */
    weir_str lane WEIR_0;   /* empty: any */
    weir_str by WEIR_0; /* weir_targets_pause: who, kept with it; empty: weir_options.application */
    int32_t reset_to WEIR_0; /* weir_targets_reset: WEIR_RESET_* */
    uint32_t reserved WEIR_0;
    int64_t reset_position WEIR_0;
    int64_t reset_time_us WEIR_0;
    int64_t priority WEIR_0; /* weir_targets_prioritize: higher goes first */
} weir_targets_options;
#define WEIR_TARGETS_OPTIONS_INIT .size = sizeof(weir_targets_options)

/* Lists targets by name. options: copied; NULL: all of them. EINVAL: a flag that is for verbs.
 * *out: owned, ended by weir_targets_close. */
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_open(weir *w, const weir_targets_options *options,
                                                  weir_target_list **out, weir_error *err);
/* *out: the next target, borrowed until the next call with this list; NULL: there are no more. */
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_next(weir_target_list *list, const weir_target **out,
                                                  weir_error *err);
/* NULL is a no-op. */
WEIR_API void weir_targets_close(weir_target_list *list);

/* Verbs on all targets that fit. *changed: how many did, or would with WEIR_TARGETS_DRY_RUN; may be
 * NULL. Many targets are changed in several transactions. EINVAL: options are NULL, or say neither
 * which targets nor WEIR_TARGETS_ALL. ENOTFOUND: a name is no target; nothing was changed.
 *   unblock     ends a block or a backoff and forgets failures; it goes on where it stopped
 *   skip        parks the event that is in the way and goes on after it
 *   reset       goes back, so that events are handled again, and takes away a lease
 *   prioritize  sets the priority, instead of what the reactions declare
 *   pause       it is not leased any more; what runs is finished
 *   resume      ends a pause                                                                */
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_unblock(weir *w, const weir_targets_options *options,
                                                     int64_t *changed, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_skip(weir *w, const weir_targets_options *options,
                                                  int64_t *changed, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_reset(weir *w, const weir_targets_options *options,
                                                   int64_t *changed, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_prioritize(weir *w,
                                                        const weir_targets_options *options,
                                                        int64_t *changed, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_pause(weir *w, const weir_targets_options *options,
                                                   int64_t *changed, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_targets_resume(weir *w, const weir_targets_options *options,
                                                    int64_t *changed, weir_error *err);

/* A lane, as it is listed: every lane that has a target or was paused. */
typedef struct weir_lane_state {
    uint32_t size;
    uint32_t paused; /* 1: it is */
    weir_str name;
    weir_str paused_by;
    int64_t targets, ready, leased, blocked, deferred; /* how many */
    int64_t lag;       /* upper bound: positions that wait for one of its targets */
    int64_t oldest_us; /* what waits was created at this time or later; 0: nothing waits */
} weir_lane_state;

/* Lists lanes by name; it counts all targets. *out: owned, ended by weir_lanes_close. */
WEIR_API WEIR_MUSTCHECK int32_t weir_lanes_open(weir *w, weir_lane_list **out, weir_error *err);
/* As weir_targets_next. */
WEIR_API WEIR_MUSTCHECK int32_t weir_lanes_next(weir_lane_list *list, const weir_lane_state **out,
                                                weir_error *err);
WEIR_API void weir_lanes_close(weir_lane_list *list); /* NULL is a no-op */
/* Nothing of a paused lane is leased; what runs is finished. The lane needs no target yet. by: who;
 * empty: weir_options.application. *changed: 1, or 0: it was so already; may be NULL. */
WEIR_API WEIR_MUSTCHECK int32_t weir_lane_pause(weir *w, weir_str lane, weir_str by,
                                                int64_t *changed, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_lane_resume(weir *w, weir_str lane, int64_t *changed,
                                                 weir_error *err);

/* An event that was set aside for a reaction. */
typedef struct weir_parked {
    uint32_t size;
    uint32_t sent_back; /* 1: it was retried and is not handled yet */
    int64_t id;         /* of the parked event; verbs take it */
    int64_t event;      /* its position in the log */
    int64_t attempts;
    int64_t parked_us;
    weir_str reaction;
    weir_str target; /* empty: it was parked while it was routed */
    weir_str error;
} weir_parked;

typedef struct weir_parked_options {
    uint32_t size;
    uint32_t flags WEIR_0;    /* 0 */
    weir_str target WEIR_0;   /* only of this target; empty: any */
    weir_str reaction WEIR_0; /* only of this reaction; empty: any */
} weir_parked_options;
#define WEIR_PARKED_OPTIONS_INIT .size = sizeof(weir_parked_options)

/* Lists parked events by id. options: copied; NULL: all of them. *out: owned, ended by
 * weir_parked_close. */
WEIR_API WEIR_MUSTCHECK int32_t weir_parked_open(weir *w, const weir_parked_options *options,
                                                 weir_parked_list **out, weir_error *err);
/* As weir_targets_next. */
WEIR_API WEIR_MUSTCHECK int32_t weir_parked_next(weir_parked_list *list, const weir_parked **out,
                                                 weir_error *err);
WEIR_API void weir_parked_close(weir_parked_list *list); /* NULL is a no-op */
/* Sends a parked event back to its reaction; a second time changes nothing. id: weir_parked.id.
 * ENOTFOUND. EMISUSE: it has no target, because it was parked while it was routed. */
WEIR_API WEIR_MUSTCHECK int32_t weir_parked_retry(weir *w, int64_t id, weir_error *err);
/* Forgets that it was parked: it is never handled. The event itself stays in the log. ENOTFOUND. */
WEIR_API WEIR_MUSTCHECK int32_t weir_parked_drop(weir *w, int64_t id, weir_error *err);

/* ---- locks and once ----------------------------------------------------------------------- */

/* LOCKS. One holder of a name at a time, until its lease ends: extend it before that, in a thread
 * of your own. The fence grows with every holder of a name: pass it to whatever is protected, so
 * that it can refuse a holder that is late. Names are those of `weir lock`, which decides by the
 * connection (PostgreSQL) or by a locked file (SQLite) instead of a lease: `weir lock` is
 * refused, or waits, while a lease of this kind runs, except on SQLite, but weir_lock_take does not
 * see a `weir lock` that runs, except behind a pooler. So guard one name in one way. */
typedef struct weir_lock {
    uint32_t size;
    uint32_t flags; /* 0 */
    weir_str name;
    weir_str holder; /* who and where, for people to read */
    int64_t fence;
    int64_t token; /* tells this lease from one that was lost in a failover; 0 in a list */
    int64_t since_us;
    int64_t until_us; /* when its lease ends; 0: it is held by other means (see `weir lock`) */
} weir_lock;

typedef struct weir_lock_options {
    uint32_t size;
    uint32_t flags WEIR_0;   /* 0 */
    weir_str holder WEIR_0;  /* shown to others; empty: application, host and process */
    int64_t lease_us WEIR_0; /* 100 ms to a day; 0: 30 s */
} weir_lock_options;
#define WEIR_LOCK_OPTIONS_INIT .size = sizeof(weir_lock_options)

/* Takes a lock that nobody has, or whose lease has ended. Does not wait for it. options may be
 * NULL. *out: owned, ended by weir_lock_free. EHELD: somebody has it, err->message says who. */
WEIR_API WEIR_MUSTCHECK int32_t weir_lock_take(weir *w, weir_str name,
                                               const weir_lock_options *options,
                                               const weir_lock **out, weir_error *err);
/* The lease ends lease_us from now (0: 30 s). ELOST: it is another's by now, or was given back.
 * A holder that is late still has the lock if nobody else has taken it. */
WEIR_API WEIR_MUSTCHECK int32_t weir_lock_extend(weir *w, const weir_lock *lock, int64_t lease_us,
                                                 weir_error *err);
/* Gives it back; the lock is still to be freed. ELOST, as above. */
WEIR_API WEIR_MUSTCHECK int32_t weir_lock_release(weir *w, const weir_lock *lock, weir_error *err);
/* Frees what weir_lock_take gave, and does not give back the lock. NULL is a no-op. */
WEIR_API void weir_lock_free(const weir_lock *lock);

typedef struct weir_lock_list weir_lock_list;

/* Lists locks by name, as weir_targets_open: those that are held, here or by `weir lock`, as far as
 * the store knows of them. *out: owned, ended by weir_locks_close. */
WEIR_API WEIR_MUSTCHECK int32_t weir_locks_open(weir *w, weir_lock_list **out, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_locks_next(weir_lock_list *list, const weir_lock **out,
                                                weir_error *err);
WEIR_API void weir_locks_close(weir_lock_list *list); /* NULL is a no-op */

/* ONCE. Something is done once, ever, for a key; whoever comes later is told the outcome. Keys are
 * those of `weir once`, and the two exclude each other. Names of locks are others. */
enum {
    WEIR_ONCE_RUNNING = 1, /* it is the caller's: do it, then weir_once_finish          */
    WEIR_ONCE_DONE = 2,    /* it was done before: exit_status, ended_us and output      */
    WEIR_ONCE_FAILED = 3,  /* in a list: it ended in another way, and may be begun again */
    WEIR_ONCE_DIED = 4     /* in a list: its lease has ended, and it may be begun again  */
};

typedef struct weir_once {
    uint32_t size;
    int32_t state; /* WEIR_ONCE_* */
    weir_str key;
    weir_str holder;
    int64_t fence, token;
    int64_t since_us;
    int64_t until_us;    /* when the lease of a run ends */
    int64_t exit_status; /* of a run that has ended; 0: done */
    int64_t ended_us;    /* of a run that has ended */
    weir_str output;     /* of a run that is done: any bytes */
} weir_once;

/* Begins a run that nobody has begun, or that failed, or whose lease has ended. options as of
 * weir_lock_take. WEIR_OK: (*out)->state says whether to do it. EINFLIGHT: somebody else is doing
 * it, err->message says who; ask again later. *out: owned, ended by weir_once_free. */
WEIR_API WEIR_MUSTCHECK int32_t weir_once_begin(weir *w, weir_str key,
                                                const weir_lock_options *options,
                                                const weir_once **out, weir_error *err);
/* As weir_lock_extend. */
WEIR_API WEIR_MUSTCHECK int32_t weir_once_extend(weir *w, const weir_once *once, int64_t lease_us,
                                                 weir_error *err);
/* Ends it. exit_status 0: done, for ever, with this output (any bytes, at most 1 MiB). Anything
 * else: failed, and may be begun again. A second time with the same run changes nothing. ELOST:
 * somebody else has begun it meanwhile. */
WEIR_API WEIR_MUSTCHECK int32_t weir_once_finish(weir *w, const weir_once *once,
                                                 int64_t exit_status, weir_str output,
                                                 weir_error *err);
/* Forgets a run, so that it can be done again. ENOTFOUND. EINFLIGHT: it is running. */
WEIR_API WEIR_MUSTCHECK int32_t weir_once_forget(weir *w, weir_str key, weir_error *err);
/* NULL is a no-op; a run that was begun stays begun. */
WEIR_API void weir_once_free(const weir_once *once);

typedef struct weir_once_list weir_once_list;

/* Lists keys with their latest runs: those that are running first, then the newest, at most 10,000;
 * without output and token. Rows are given as by weir_targets_open. *out: owned, ended by
 * weir_onces_close. */
WEIR_API WEIR_MUSTCHECK int32_t weir_onces_open(weir *w, weir_once_list **out, weir_error *err);
WEIR_API WEIR_MUSTCHECK int32_t weir_onces_next(weir_once_list *list, const weir_once **out,
                                                weir_error *err);
WEIR_API void weir_onces_close(weir_once_list *list); /* NULL is a no-op */

/* ---- tables of your own ------------------------------------------------------------------- */

/* Rows of a table that Weir did not make, on PostgreSQL or SQLite: up to so many that nobody else
 * holds are taken in one step, worked on, and finished. Nothing is installed in the database. */
typedef struct weir_tables weir_tables; /* a database with tables */
typedef struct weir_rows weir_rows;     /* rows that were claimed, in order */

typedef struct weir_tables_options {
    uint32_t size;
    uint32_t flags WEIR_0;          /* 0 */
    const char *url WEIR_0;         /* postgres://... or sqlite:PATH, a file that exists; with
                                ?insecure=1 it may be another user's (see weir_options)       */
    const char *application WEIR_0; /* shown to others; NULL: "weir" */
} weir_tables_options;
#define WEIR_TABLES_OPTIONS_INIT .size = sizeof(weir_tables_options)

/* Connects when it is first needed; each call that runs at the same time has a connection of its
 * own. Any number of threads. *out: owned, ended by weir_tables_close. */
WEIR_API WEIR_MUSTCHECK int32_t weir_tables_open(const weir_tables_options *options,
                                                 weir_tables **out, weir_error *err);

enum {
    WEIR_NATIVE_POSTGRES = 1, /* PGconn *  */
    WEIR_NATIVE_SQLITE = 2    /* sqlite3 * */
};

/* The same over a connection of the caller's own, in whose transaction rows can be held
 * (WEIR_CLAIM_HOLD). connection: borrowed until weir_tables_close, and used by one thread at a time
 * meanwhile. */
WEIR_API WEIR_MUSTCHECK int32_t weir_tables_adopt(int32_t native, void *connection,
                                                  weir_tables **out, weir_error *err);
/* Refuses new calls (EMISUSE), ends those that wait for rows or locks of others (EINTERRUPTED:
 * nothing was claimed or written), and waits for those that run; on PostgreSQL a statement that is
 * not answered within 5 s is cancelled as well. A call that is connecting ends within busy= and
 * connect_timeout. On an adopted SQLite connection the caller's busy handler decides how long is
 * waited. Any thread. NULL, and a handle that was closed, are no-ops. */
WEIR_API void weir_tables_close(weir_tables *t);

enum {
    WEIR_VALUE_NULL = 0,
    WEIR_VALUE_TEXT = 1,    /* in the database's own notation of the column's type */
    WEIR_VALUE_INTEGER = 2, /* `number` */
    WEIR_VALUE_BYTES = 3,
    WEIR_VALUE_SQL = 4 /* an expression over the row as it was: taken as SQL; for what is written */
};

/* A column and what it gets, or a parameter (:name in SQL) and what it stands for. */
typedef struct weir_value {
    uint32_t size;
    int32_t kind WEIR_0; /* WEIR_VALUE_* */
    weir_str name WEIR_0;
    weir_str text WEIR_0; /* TEXT, BYTES, SQL */
    int64_t number WEIR_0;
} weir_value;
#define WEIR_VALUE_INIT .size = sizeof(weir_value)

enum { WEIR_ORDER_DESCENDING = 1 };

typedef struct weir_order {
    uint32_t size;
    uint32_t flags WEIR_0; /* WEIR_ORDER_* */
    weir_str column WEIR_0;
} weir_order;
#define WEIR_ORDER_INIT .size = sizeof(weir_order)

enum {
    WEIR_CLAIM_WAIT = 1,     /* for rows that others have locked, wait_us; else they are skipped */
    WEIR_CLAIM_NOWAIT = 2,   /* EHELD at once when a row is locked                               */
    WEIR_CLAIM_HOLD = 4,     /* adopted connections: lock rows in its transaction, write nothing */
    WEIR_CLAIM_PORTABLE = 8, /* by statements that any database understands                      */
    WEIR_CLAIM_NO_BY = 16,   /* do not write who claims, whatever by_column is                   */
    WEIR_CLAIM_NO_AT = 32    /* do not write when it was claimed, whatever at_column is          */
};

typedef struct weir_claim {
    uint32_t size;
    uint32_t flags WEIR_0; /* WEIR_CLAIM_* */
    weir_str table WEIR_0; /* NAME or SCHEMA.NAME, as the database has it; it has a primary key */
    weir_str where WEIR_0; /* which rows are ready: taken as SQL; :name is a parameter */
    const weir_value *const *params WEIR_0;
    size_t params_count WEIR_0;
    const weir_order *const *order WEIR_0; /* the primary key is always the last of them */
    size_t order_count WEIR_0;
    int64_t limit WEIR_0; /* most rows; 0: 1 */
    const weir_value *const *set WEIR_0;
    size_t set_count WEIR_0;         /* what a claim writes; params may be used in SQL */
    weir_str by WEIR_0;              /* who claims: written with the time; left out: nobody */
    weir_str by_column WEIR_0;       /* empty: "claimed_by" */
    weir_str at_column WEIR_0;       /* empty: "claimed_at" */
    int64_t lease_us WEIR_0;         /* the claim ends after so long; 0: no lease */
    weir_str lease_column WEIR_0;    /* empty: "locked_until" */
    weir_str fence_column WEIR_0;    /* an integer that grows with every claim; left out: none */
    weir_str attempts_column WEIR_0; /* an integer that counts claims; left out: none */
    weir_str max_per_column WEIR_0;  /* at most max_per held rows per value of this column */
    int64_t max_per WEIR_0;
    int64_t wait_us WEIR_0; /* for WEIR_CLAIM_WAIT; 0: not at all; WEIR_NONE: as long as it takes */
} weir_claim;
#define WEIR_CLAIM_INIT .size = sizeof(weir_claim)

/* Claims. No two callers are ever given the same row, and nobody more than asked for; what was
 * given is durable. Fewer rows, or none, mean that nothing more was free. *out: owned, ended by
 * weir_rows_free. EINVAL: a name, or SQL that the database does not take; ENOTFOUND: no such table
 * or file; EHELD; EBUSY, EUNAVAILABLE: nothing was claimed; EINTERRUPTED: nothing was claimed, the
 * handle was closed meanwhile; EUNKNOWN: the answer was lost; EMISUSE: a transaction is open on an
 * adopted connection and WEIR_CLAIM_HOLD is not set, or the other way round. */
WEIR_API WEIR_MUSTCHECK int32_t weir_claim_rows(weir_tables *t, const weir_claim *claim,
                                                weir_rows **out, weir_error *err);
WEIR_API size_t weir_rows_count(const weir_rows *rows);
/* A row as it is after the claim, as one flat JSON object. Borrowed until weir_rows_free; empty:
 * there is no such row. */
WEIR_API weir_str weir_rows_json(const weir_rows *rows, size_t row);
/* NULL is a no-op. */
WEIR_API void weir_rows_free(weir_rows *rows);

enum {
    WEIR_FINISH_DONE = 0,    /* writes `set` and ends the lease                                */
    WEIR_FINISH_FAIL = 1,    /* the same                                                       */
    WEIR_FINISH_RELEASE = 2, /* writes `set`, takes the holder out; others can claim it at once */
    WEIR_FINISH_EXTEND = 3   /* the lease ends lease_us from now                               */
};

typedef struct weir_finish {
    uint32_t size;
    int32_t kind WEIR_0; /* WEIR_FINISH_* */
    const weir_value *const *set WEIR_0;
    size_t set_count WEIR_0;
    const weir_value *const *params WEIR_0; /* for WEIR_VALUE_SQL in set */
    size_t params_count WEIR_0;
    int64_t lease_us WEIR_0; /* WEIR_FINISH_EXTEND; 0: that of the claim */
} weir_finish;
#define WEIR_FINISH_INIT .size = sizeof(weir_finish)

/* Finishes one of the claimed rows, or extends its claim. Guarded by the holder, the fence, the
 * lease, the time of the claim (in claimed_at, unless at_column was given) and the values of the
 * claim. ELOST: the row is another's by now, and nothing was written. ENOTFOUND: it is no longer
 * there. Other codes as weir_claim_rows. Any thread; needs by, fence_column, or set without a
 * lease, in the claim. */
WEIR_API WEIR_MUSTCHECK int32_t weir_rows_finish(weir_tables *t, const weir_rows *rows, size_t row,
                                                 const weir_finish *finish, weir_error *err);

/* ---- positions, versions, texts ----------------------------------------------------------- */

/* *head: the highest position; *safe: the highest at and below which nothing can still appear. Both
 * 0 when the store is empty. Either may be NULL. */
WEIR_API WEIR_MUSTCHECK int32_t weir_positions(weir *w, int64_t *head, int64_t *safe,
                                               weir_error *err);

/* The code as a word: "conflict" for WEIR_ECONFLICT, "ok" for 0, "unknown-status" for others.
 * Static text; never fails. */
WEIR_API const char *weir_status_text(int32_t status);

/* Of the library that is running; compare with WEIR_VERSION_NUMBER of the header. Never fail. */
WEIR_API int32_t weir_version_number(void);
WEIR_API const char *weir_version_text(void);

#ifdef __cplusplus
}
#endif

#endif
