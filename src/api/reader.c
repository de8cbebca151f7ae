/* reader.c - reading a stream or the log, chunk by chunk: the pull form, and the callbacks on top.
 *
 * INVARIANTS
 *   (1) Between two calls a reader holds one chunk in memory and nothing in the store: no
 *       transaction, no lock, no connection.
 *   (2) `position` is the last position (log) or the next version (stream) from which reading goes
 *       on; every event before it was given or did not fit.
 *   (3) A following reader opens its watch before it first looks, so that what is appended between
 *       looking and waiting wakes it.
 *   (4) No event of another log than the one the reader began with is given: every chunk says which
 *       log it is from, because one that was rewound may already have new events.
 */
#include "api/api.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "base/struct.h"
#include "store/request.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

enum {
    FALLBACK_POLL_MS = 1000, /* a wake-up is a hint: without one, look again after this time */
    FALLBACK_JITTER_MS = 250,
    /* While a transaction of someone else holds back events that are there: its rollback wakes
     * nobody. Doubling from the first to the last. */
    HELD_POLL_MS_FIRST = 10,
    HELD_POLL_MS_LAST = 200,
};

struct weir_reader {
    /* immutable after opening */
    const weir *w;   /* the handle's ticket; it may end before the reader */
    weir_core *core; /* held */
    bool of_log, backward, follow;
    weir_arena memory;      /* copies of the options */
    store_pattern *pattern; /* owned; may be NULL */
    store_filter filter;
    weir_str stream;
    int64_t to, until_us;
    char epoch[sizeof((store_positions){ 0 }.epoch)];

    /* owned by the thread that uses the reader */
    store_watch *watch; /* owned; NULL: does not follow */
    store_chunk chunk;
    size_t chunk_index;
    int64_t position;
    int64_t left;         /* events that may still be given */
    bool ended;           /* everything there was at the last look has been given */
    int32_t held_poll_ms; /* how long to wait while events are held back; 0: they are not */
};

/* ---- opening ------------------------------------------------------------------------------ */

/* Inside a call. */
static weir_status reader_new(weir_reader **out, const weir *w, weir_core *core, weir_error *err)
{
    weir_reader *r = weir__calloc(1, sizeof *r);
    if (r == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a reader");
    }
    weir__core_hold(core);
    r->w = w;
    r->core = core;
    r->left = INT64_MAX;
    *out = r;
    return WEIR_OK;
}

static weir_status copy_text(weir_reader *r, weir_str in, weir_str *out, weir_error *err)
{
    if (in.len == 0) {
        return WEIR_OK;
    }
    out->ptr = weir__arena_copy(&r->memory, in.ptr, in.len);
    out->len = in.len;
    return out->ptr != NULL ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate a reader");
}

static weir_status limit_set(weir_reader *r, bool has_limit, int64_t limit, weir_error *err)
{
    if (!has_limit) {
        return WEIR_OK;
    }
    if (limit < 0) {
        return weir__fail(err, WEIR_EINVAL, "limit is %" PRId64 ", allowed 0 or more", limit);
    }
    r->left = limit;
    return WEIR_OK;
}

static weir_status unknown_bits(uint32_t flags, uint32_t known_flags, uint32_t fields,
                                uint32_t known_fields, weir_error *err)
{
    if ((flags & ~known_flags) != 0 || (fields & ~known_fields) != 0) {
        return weir__fail(err, WEIR_EINVAL, "options have unknown flags %u or fields %u",
                          flags & ~known_flags, fields & ~known_fields);
    }
    return WEIR_OK;
}

static weir_status stream_bounds(weir_reader *r, const weir_read_options *o, weir_error *err)
{
    const bool has_from = (o->fields & WEIR_HAS_FROM) != 0;
    const bool has_to = (o->fields & WEIR_HAS_TO) != 0;
    if ((has_from && o->from < 0) || (has_to && o->to < 0)) {
        return weir__fail(err, WEIR_EINVAL,
                          "versions %" PRId64 " to %" PRId64 " are not both 0 or more",
                          has_from ? o->from : 0, has_to ? o->to : 0);
    }
    r->position = has_from ? o->from : r->backward ? INT64_MAX : 0;
    r->to = has_to ? o->to : r->backward ? 0 : INT64_MAX;
    r->until_us = (o->fields & WEIR_HAS_UNTIL) != 0 ? o->until_us : INT64_MAX;
    return WEIR_OK;
}

/* A stream that is not there is an error even where its bounds would leave nothing to read. */
static weir_status stream_exists(weir_reader *r, weir_error *err)
{
    store_stream_info info;
    return r->core->store->log->stream_info(r->core->store, r->stream, &r->memory, &info, err);
}

static weir_status read_open(weir_reader **out, const weir *w, weir_core *core,
                             const weir_read_options *options, weir_error *err)
{
    weir_read_options o;
    weir_reader *r = NULL;
    const uint32_t fields = WEIR_HAS_FROM | WEIR_HAS_TO | WEIR_HAS_LIMIT | WEIR_HAS_UNTIL;
    weir_status status = weir__struct_copy(&o, sizeof o, options, "weir_read_options", err);
    if (status == WEIR_OK) {
        status = unknown_bits(o.flags, WEIR_READ_BACKWARD, o.fields, fields, err);
    }
    if (status == WEIR_OK) {
        status = weir__name_check("stream name", o.stream, true, err);
    }
    if (status == WEIR_OK) {
        status = reader_new(&r, w, core, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    r->backward = (o.flags & WEIR_READ_BACKWARD) != 0;
    if ((status = copy_text(r, o.stream, &r->stream, err)) == WEIR_OK &&
        (status = limit_set(r, (o.fields & WEIR_HAS_LIMIT) != 0, o.limit, err)) == WEIR_OK &&
        (status = stream_bounds(r, &o, err)) == WEIR_OK &&
        (status = stream_exists(r, err)) == WEIR_OK) {
        *out = r;
        return WEIR_OK;
    }
    weir_reader_close(r);
    return status;
}

int32_t weir_read_open(weir *w, const weir_read_options *options, weir_reader **out,
                       weir_error *err)
{
    weir_core *core = NULL;
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the reader: out is NULL");
    }
    weir_status status = weir__enter(w, &core, err);
    if (status == WEIR_OK) {
        status = read_open(out, w, core, options, err);
        weir__leave(w);
    }
    return status;
}

static int name_order(const void *a, const void *b)
{
    return weir__str_compare(*(const weir_str *)a, *(const weir_str *)b);
}

/* Filters keep their names in bytewise order and distinct. */
static weir_status names_set(weir_reader *r, const weir_log_options *o, weir_error *err)
{
    r->filter.has_names = (o->fields & WEIR_HAS_NAMES) != 0;
    if (!r->filter.has_names || o->names_count == 0) {
        return WEIR_OK;
    }
    weir_str *names = NULL;
    size_t bytes = 0;
    if (!__builtin_mul_overflow(o->names_count, sizeof *names, &bytes)) {
        names = weir__arena_alloc(&r->memory, bytes);
    }
    if (names == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a reader");
    }
    for (size_t i = 0; i < o->names_count; i++) {
        weir_status status = weir__name_check("event name", o->names[i], true, err);
        if (status == WEIR_OK) {
            status = copy_text(r, o->names[i], &names[i], err);
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    qsort(names, o->names_count, sizeof *names, name_order);
    size_t count = 1;
    for (size_t i = 1; i < o->names_count; i++) {
        if (!weir__str_equal(names[i], names[count - 1])) {
            names[count++] = names[i];
        }
    }
    r->filter.names = names;
    r->filter.names_count = count;
    return WEIR_OK;
}

static weir_status filter_set(weir_reader *r, const weir_log_options *o, weir_error *err)
{
    r->filter.since_us = (o->fields & WEIR_HAS_SINCE) != 0 ? o->since_us : INT64_MIN;
    r->filter.until_us = (o->fields & WEIR_HAS_UNTIL) != 0 ? o->until_us : INT64_MAX;
    weir_status status = names_set(r, o, err);
    if (status == WEIR_OK) {
        status = copy_text(r, o->category, &r->filter.category, err);
    }
    if (status == WEIR_OK) {
        status = copy_text(r, o->correlation, &r->filter.correlation, err);
    }
    if (status == WEIR_OK && o->stream.len > 0) {
        status = weir__pattern_open(&r->pattern, o->stream, err);
        r->filter.stream = r->pattern;
    }
    return status;
}

/* Where the log stands, and whether `after` can have come from it. */
static weir_status log_begin(weir_reader *r, const weir_log_options *o, weir_error *err)
{
    store_positions at;
    const bool has_after = (o->fields & WEIR_HAS_AFTER) != 0;
    const bool has_to = (o->fields & WEIR_HAS_TO) != 0;
    weir_status status = r->core->store->log->positions(r->core->store, &at, err);
    if (status != WEIR_OK) {
        return status;
    }
    if ((has_after && o->after < 0) || (has_to && o->to < 0)) {
        return weir__fail(err, WEIR_EINVAL,
                          "positions after %" PRId64 " to %" PRId64 " are not both 0 or more",
                          has_after ? o->after : 0, has_to ? o->to : 0);
    }
    if (has_after && !r->backward && o->after > at.head) {
        return weir__fail(err, WEIR_EREWOUND,
                          "position %" PRId64 " is beyond the end of the log, which is at %" PRId64,
                          o->after, at.head);
    }
    memcpy(r->epoch, at.epoch, sizeof r->epoch);
    r->position = has_after ? o->after : r->backward ? INT64_MAX : 0;
    r->to = has_to ? o->to : r->backward ? 0 : INT64_MAX;
    return WEIR_OK;
}

static weir_status log_open(weir_reader **out, const weir *w, weir_core *core,
                            const weir_log_options *options, weir_error *err)
{
    weir_log_options o = { WEIR_LOG_OPTIONS_INIT };
    weir_reader *r = NULL;
    const uint32_t fields = WEIR_HAS_AFTER | WEIR_HAS_TO | WEIR_HAS_LIMIT | WEIR_HAS_SINCE |
                            WEIR_HAS_UNTIL | WEIR_HAS_NAMES;
    weir_status status = WEIR_OK;
    if (options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_log_options", err);
    }
    if (status == WEIR_OK) {
        status =
            unknown_bits(o.flags, WEIR_READ_BACKWARD | WEIR_READ_FOLLOW, o.fields, fields, err);
    }
    if (status == WEIR_OK && o.flags == (WEIR_READ_BACKWARD | WEIR_READ_FOLLOW)) {
        status = weir__fail(err, WEIR_EINVAL, "reading backward cannot follow the log");
    }
    if (status == WEIR_OK) {
        status = reader_new(&r, w, core, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    r->of_log = true;
    r->backward = (o.flags & WEIR_READ_BACKWARD) != 0;
    r->follow = (o.flags & WEIR_READ_FOLLOW) != 0;
    if (r->follow) {
        status = core->store->log->watch_open(core->store, &r->watch, err);
    }
    if (status == WEIR_OK &&
        (status = limit_set(r, (o.fields & WEIR_HAS_LIMIT) != 0, o.limit, err)) == WEIR_OK &&
        (status = filter_set(r, &o, err)) == WEIR_OK &&
        (status = log_begin(r, &o, err)) == WEIR_OK) {
        *out = r;
        return WEIR_OK;
    }
    weir_reader_close(r);
    return status;
}

int32_t weir_log_open(weir *w, const weir_log_options *options, weir_reader **out, weir_error *err)
{
    weir_core *core = NULL;
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the reader: out is NULL");
    }
    weir_status status = weir__enter(w, &core, err);
    if (status == WEIR_OK) {
        status = log_open(out, w, core, options, err);
        weir__leave(w);
    }
    return status;
}

void weir_reader_close(weir_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->watch != NULL) {
        reader->core->store->log->watch_close(reader->watch);
    }
    weir__chunk_free(&reader->chunk);
    weir__pattern_close(reader->pattern);
    weir__arena_free(&reader->memory);
    weir__core_drop(reader->core);
    weir__free(reader);
}

/* ---- chunks ------------------------------------------------------------------------------- */

static int64_t chunk_limit(const weir_reader *r)
{
    return r->left < STORE_CHUNK_EVENTS_MAX ? r->left : STORE_CHUNK_EVENTS_MAX;
}

static weir_status stream_chunk(weir_reader *r, weir_error *err)
{
    const store_stream_query q = { .stream = r->stream,
                                   .from = r->position,
                                   .to = r->to,
                                   .backward = r->backward,
                                   .limit = chunk_limit(r),
                                   .until_us = r->until_us };
    if (r->backward ? q.from < q.to : q.from > q.to) {
        r->chunk.events_count = 0;
        r->ended = true;
        return WEIR_OK;
    }
    const weir_status status = r->core->store->log->read_stream(r->core->store, &q, &r->chunk, err);
    if (status != WEIR_OK) {
        return status;
    }
    r->ended = !r->chunk.more;
    if (r->chunk.events_count > 0) {
        const int64_t last = r->chunk.events[r->chunk.events_count - 1].version;
        r->position = r->backward ? last - 1 : last + 1;
    }
    return WEIR_OK;
}

static weir_status reader_rewound(const weir_reader *r, int64_t end, weir_error *err)
{
    return weir__fail(err, WEIR_EREWOUND,
                      "log was rewound: this reader is at %" PRId64
                      " of a log that is not there any more; the one that is there now ends at "
                      "%" PRId64,
                      r->position, end);
}

static weir_status log_chunk(weir_reader *r, weir_error *err)
{
    const store_log_query q = { .after = r->position,
                                .to = r->to,
                                .backward = r->backward,
                                .limit = chunk_limit(r),
                                .filter = &r->filter };
    if (r->backward ? q.after <= q.to : q.after >= q.to) {
        r->chunk.events_count = 0;
        r->ended = true;
        return WEIR_OK;
    }
    const weir_status status = r->core->store->log->read_log(r->core->store, &q, &r->chunk, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (memcmp(r->epoch, r->chunk.epoch, sizeof r->epoch) != 0) {
        return reader_rewound(r, r->chunk.scanned_to, err);
    }
    r->ended = !r->chunk.more;
    r->position = r->chunk.scanned_to;
    if (!r->chunk.held || r->chunk.events_count > 0) {
        r->held_poll_ms = 0;
    }
    if (r->chunk.held) {
        r->held_poll_ms = r->held_poll_ms == 0                      ? HELD_POLL_MS_FIRST
                          : r->held_poll_ms * 2 < HELD_POLL_MS_LAST ? r->held_poll_ms * 2
                                                                    : HELD_POLL_MS_LAST;
    }
    return WEIR_OK;
}

/* Fills the chunk with at least one event, unless the end is reached. */
static weir_status next_chunk(weir_reader *r, weir_error *err)
{
    weir_status status = WEIR_OK;
    r->chunk_index = 0;
    do {
        r->chunk.events_count = 0;
        status = r->of_log ? log_chunk(r, err) : stream_chunk(r, err);
    } while (status == WEIR_OK && r->chunk.events_count == 0 && !r->ended);
    if (status != WEIR_OK) {
        /* A chunk that failed half-way has events in it, and `position` is still before them: given
         * now, they would be given again by whoever goes on after the failure. */
        r->chunk.events_count = 0;
    }
    return status;
}

/* ---- following ---------------------------------------------------------------------------- */

/* Until the watch was woken, wait_ms have passed, or the wait is over. */
static weir_status watch_wait(weir_reader *r, int32_t wait_ms, weir_error *err)
{
    struct pollfd fds[] = {
        { .fd = r->core->store->log->watch_fd(r->watch), .events = POLLIN },
        { .fd = weir__waits_fd(&r->core->waits), .events = POLLIN },
    };
    bool woken = false;
    (void)poll(fds, 2, wait_ms); /* a signal that ends it early costs a look */
    return r->core->store->log->watch_wait(r->watch, 0, &woken, err);
}

/* Waits for the next event until `deadline` (microseconds, monotonic; INT64_MAX: without end). */
static weir_status follow_until(weir_reader *r, int64_t deadline_us, weir_error *err)
{
    const weir_clock *clock = weir__clock_machine();
    weir_status status = WEIR_OK;
    wait_mark mark;
    weir__waits_begin(&r->core->waits, &mark);
    while (status == WEIR_OK && r->chunk.events_count == 0 && r->position < r->to) {
        const int64_t left_ms = deadline_us == INT64_MAX
                                    ? INT32_MAX
                                    : (deadline_us - weir__clock_mono(clock) + 999) / 1000;
        /* Not all readers of a store at the same time. */
        const int32_t poll_ms =
            r->held_poll_ms > 0
                ? r->held_poll_ms
                : FALLBACK_POLL_MS + (int32_t)(weir__random_u64() % FALLBACK_JITTER_MS);
        const int32_t wait_ms = left_ms <= 0 ? 0 : left_ms < poll_ms ? (int32_t)left_ms : poll_ms;
        status = watch_wait(r, wait_ms, err);
        if (status == WEIR_OK) {
            status = next_chunk(r, err);
        }
        /* A log that ends before what was given is another one, whatever its epoch says. */
        if (status == WEIR_OK && r->chunk.events_count == 0 && r->position > r->chunk.head) {
            status = reader_rewound(r, r->chunk.head, err);
        }
        if (left_ms <= 0) {
            break;
        }
        /* What came at the same moment is given first. */
        if (status == WEIR_OK && r->chunk.events_count == 0 &&
            !weir__waits_goes_on(&r->core->waits, &mark)) {
            status = weir__waits_failed(err);
        }
    }
    weir__waits_end(&r->core->waits, &mark);
    return status;
}

/* Fills the chunk that was given away, if there is more. Inside a call. */
static weir_status reader_refill(weir_reader *r, int32_t timeout_ms, weir_error *err)
{
    weir_status status = WEIR_OK;
    r->chunk_index = 0;
    r->chunk.events_count = 0;
    if (!r->ended) {
        status = next_chunk(r, err);
    }
    if (status == WEIR_OK && r->chunk.events_count == 0 && r->follow) {
        const int64_t deadline_us =
            timeout_ms < 0 ? INT64_MAX
                           : weir__clock_mono(weir__clock_machine()) + (int64_t)timeout_ms * 1000;
        status = follow_until(r, deadline_us, err);
    }
    return status;
}

int32_t weir_reader_next(weir_reader *reader, int32_t timeout_ms, const weir_event **event,
                         weir_error *err)
{
    weir_core *core = NULL;
    if (reader == NULL || event == NULL) {
        return weir__fail(err, WEIR_EINVAL, "reader or event is NULL");
    }
    /* What is in memory is given without entering the handle. */
    weir_status status = weir__core_check(reader->core, err);
    if (status == WEIR_OK && reader->left > 0 &&
        reader->chunk_index >= reader->chunk.events_count) {
        status = weir__enter(reader->w, &core, err);
        if (status == WEIR_OK) {
            status = reader_refill(reader, timeout_ms, err);
            weir__leave(reader->w);
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    *event = NULL;
    if (reader->left > 0 && reader->chunk_index < reader->chunk.events_count) {
        *event = &reader->chunk.events[reader->chunk_index++];
        reader->left--;
    }
    return WEIR_OK;
}

int32_t weir_reader_fd(const weir_reader *reader)
{
    return reader == NULL || reader->watch == NULL
               ? -1
               : reader->core->store->log->watch_fd(reader->watch);
}

/* ---- callbacks ---------------------------------------------------------------------------- */

/* Gives everything to fn; closes the reader. */
static weir_status reader_drain(weir_reader *r, weir_event_fn fn, void *ctx, weir_error *err)
{
    const weir_event *event = NULL;
    weir_status status = WEIR_OK;
    while ((status = weir_reader_next(r, 0, &event, err)) == WEIR_OK && event != NULL) {
        if (fn(ctx, event) != 0) {
            break;
        }
    }
    weir_reader_close(r);
    return status;
}

int32_t weir_read(weir *w, const weir_read_options *options, weir_event_fn fn, void *ctx,
                  weir_error *err)
{
    weir_reader *r = NULL;
    weir_core *core = NULL;
    if (fn == NULL) {
        return weir__fail(err, WEIR_EINVAL,
                          "fn is NULL: there is no function to give the events to");
    }
    weir_status status = weir__enter(w, &core, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = read_open(&r, w, core, options, err);
    if (status == WEIR_OK) {
        status = reader_drain(r, fn, ctx, err);
    }
    weir__leave(w);
    return status;
}

int32_t weir_log(weir *w, const weir_log_options *options, weir_event_fn fn, void *ctx,
                 weir_error *err)
{
    weir_reader *r = NULL;
    weir_core *core = NULL;
    if (fn == NULL) {
        return weir__fail(err, WEIR_EINVAL,
                          "fn is NULL: there is no function to give the events to");
    }
    weir_status status = weir__enter(w, &core, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = log_open(&r, w, core, options, err);
    if (status == WEIR_OK && r->follow) {
        weir_reader_close(r);
        status = weir__fail(err, WEIR_EINVAL, "weir_log cannot follow; open a reader instead");
    }
    if (status == WEIR_OK) {
        status = reader_drain(r, fn, ctx, err);
    }
    weir__leave(w);
    return status;
}
