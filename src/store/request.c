/* request.c - see request.h.
 *
 * INVARIANTS of what weir__append_prepare accepts
 *   (1) Streams are distinct: the expectations in the order given, then the streams of the
 *       remaining events in the order of their first event.
 *   (2) Every data and meta is valid JSON on one line; meta is an object with a correlation.
 *   (3) With an idempotency key there is a fingerprint of everything but meta.
 */
#include "store/request.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/str.h"
#include "base/struct.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    NAME_SHOWN_BYTES_MAX = 80,
    LINEAR_STREAMS_MAX = 8, /* up to here comparing is cheaper than hashing */
    ADDED_META_BYTES_MAX = 64 + 6 * STORE_NAME_BYTES_MAX,
};

/* ---- names -------------------------------------------------------------------------------- */

static int name_shown(weir_str name)
{
    return (int)(name.len < NAME_SHOWN_BYTES_MAX ? name.len : NAME_SHOWN_BYTES_MAX);
}

weir_status weir__name_check(const char *what, weir_str name, bool own, weir_error *err)
{
    if (name.ptr == NULL && name.len > 0) {
        return weir__fail(err, WEIR_EINVAL, "%s is NULL and has %zu bytes", what, name.len);
    }
    if (name.len == 0 || name.len > STORE_NAME_BYTES_MAX) {
        return weir__fail(err, WEIR_EINVAL, "%s \"%.*s%s\" has %zu bytes, allowed 1 to %d", what,
                          name_shown(name), name.ptr == NULL ? "" : name.ptr,
                          name.len > NAME_SHOWN_BYTES_MAX ? "..." : "", name.len,
                          STORE_NAME_BYTES_MAX);
    }
    const size_t valid = weir__utf8_valid_prefix(name.ptr, name.len);
    if (valid != name.len) {
        return weir__fail(err, WEIR_EINVAL, "%s \"%.*s\" is not valid UTF-8 at byte %zu", what,
                          name_shown(name), name.ptr, valid);
    }
    for (size_t i = 0; i < name.len; i++) {
        const unsigned char ch = (unsigned char)name.ptr[i];
        const bool c1 = ch == 0xc2 && i + 1 < name.len && (unsigned char)name.ptr[i + 1] < 0xa0;
        if (ch < 0x20 || ch == 0x7f || c1) {
            return weir__fail(err, WEIR_EINVAL, "%s \"%.*s\" has a control character at byte %zu",
                              what, name_shown(name), name.ptr, i);
        }
    }
    if (!own && name.ptr[0] == '$') {
        return weir__fail(err, WEIR_EINVAL,
                          "%s \"%.*s\" starts with '$': such names are Weir's own", what,
                          name_shown(name), name.ptr);
    }
    return WEIR_OK;
}

/* ---- streams of an append ------------------------------------------------------------------ */

/* Finds a stream's index by name: by comparing while there are few, by hash after that. */
typedef struct stream_index {
    store_append_stream *streams;
    size_t count, capacity;
    uint32_t *slots; /* in the arena; index + 1, 0: free; NULL while there are few streams */
    size_t slots_count;
} stream_index;

static size_t slot_of(const stream_index *x, weir_str name)
{
    size_t slot = (size_t)weir__str_hash(name) & (x->slots_count - 1);
    while (x->slots[slot] != 0 && !weir__str_equal(x->streams[x->slots[slot] - 1].name, name)) {
        slot = (slot + 1) & (x->slots_count - 1);
    }
    return slot;
}

static bool stream_find(const stream_index *x, weir_str name, uint32_t *out)
{
    if (x->slots != NULL) {
        const size_t slot = slot_of(x, name);
        *out = x->slots[slot] - 1;
        return x->slots[slot] != 0;
    }
    for (size_t i = 0; i < x->count; i++) {
        if (weir__str_equal(x->streams[i].name, name)) {
            *out = (uint32_t)i;
            return true;
        }
    }
    return false;
}

static void stream_add(stream_index *x, weir_str name, int32_t expect, int64_t version)
{
    WEIR_ASSERT(x->count < x->capacity);
    if (x->slots != NULL) {
        x->slots[slot_of(x, name)] = (uint32_t)x->count + 1;
    }
    x->streams[x->count] = (store_append_stream){
        .name = name, .expect = expect, .version = version, .first = -1, .last = -1
    };
    x->count++;
}

static weir_status streams_init(stream_index *x, size_t capacity, weir_arena *arena,
                                weir_error *err)
{
    *x = (stream_index){ .capacity = capacity };
    x->streams = weir__arena_alloc(arena, (capacity + 1) * sizeof *x->streams);
    if (x->streams == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
    }
    if (capacity <= LINEAR_STREAMS_MAX) {
        return WEIR_OK;
    }
    x->slots_count = 16;
    while (x->slots_count < 2 * capacity) {
        x->slots_count *= 2;
    }
    x->slots = weir__arena_alloc(arena, x->slots_count * sizeof *x->slots);
    if (x->slots == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
    }
    memset(x->slots, 0, x->slots_count * sizeof *x->slots);
    return WEIR_OK;
}

/* ---- expectations -------------------------------------------------------------------------- */

weir_status weir__start_check(int64_t position, int64_t end, weir_error *err)
{
    if (position >= 0 && position <= end) {
        return WEIR_OK;
    }
    return weir__fail(err, WEIR_EINVAL,
                      "it cannot begin at %" PRId64 ", the log ends at %" PRId64
                      ": write from: start, from: now or a position up to %" PRId64,
                      position, end, end);
}

static weir_status expectation_check(const weir_expectation *e, weir_error *err)
{
    const weir_status status = weir__name_check("stream name", e->stream, false, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (e->expect < WEIR_EXPECT_ANY || e->expect > WEIR_EXPECT_EXACT) {
        return weir__fail(
            err, WEIR_EINVAL,
            "expectation %d on stream \"%.*s\" is none of any, none, exists and exact", e->expect,
            name_shown(e->stream), e->stream.ptr);
    }
    if (e->expect == WEIR_EXPECT_EXACT ? e->version < 0 : e->version != 0) {
        return weir__fail(err, WEIR_EINVAL,
                          "expected version %" PRId64 " on stream \"%.*s\" does not go with its "
                          "expectation (0 or more with exact, 0 with the others)",
                          e->version, name_shown(e->stream), e->stream.ptr);
    }
    return WEIR_OK;
}

static weir_status expectations_add(stream_index *x, const weir_append_request *r, weir_error *err)
{
    for (size_t i = 0; i < r->expectations_count; i++) {
        weir_expectation e;
        uint32_t found = 0;
        weir_status status =
            weir__struct_copy(&e, sizeof e, r->expectations[i], "weir_expectation", err);
        if (status == WEIR_OK) {
            status = expectation_check(&e, err);
        }
        if (status != WEIR_OK) {
            return status;
        }
        if (stream_find(x, e.stream, &found)) {
            return weir__fail(err, WEIR_EINVAL, "stream \"%.*s\" has two expectations",
                              name_shown(e.stream), e.stream.ptr);
        }
        stream_add(x, e.stream, e.expect, e.version);
    }
    return WEIR_OK;
}

/* ---- data and meta ------------------------------------------------------------------------- */

static weir_status payload_add(weir_buffer *json, const char *what, weir_str text,
                               int64_t bytes_max, weir_str *out, weir_json_type *type,
                               weir_error *err)
{
    const size_t start = json->len;
    if (text.len == 0) {
        text = weir__str("{}");
    }
    const weir_status status = weir__json_compact(text, json, type, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "%s", what);
    }
    *out = (weir_str){ .ptr = json->ptr + start, .len = json->len - start };
    if (out->len > (size_t)bytes_max) {
        return weir__fail(err, WEIR_EINVAL, "%s has %zu bytes, allowed %" PRId64, what, out->len,
                          bytes_max);
    }
    return WEIR_OK;
}

/* What is added to the meta of events that lack it; built once per append. */
typedef struct added_meta {
    char correlation[ADDED_META_BYTES_MAX]; /* "correlation":"..." */
    size_t correlation_len;
    char causation[48]; /* "causation":7, or empty */
} added_meta;

static weir_status added_meta_init(added_meta *m, weir_str correlation, int64_t causation,
                                   const weir_clock *clock, weir_error *err)
{
    char fresh[WEIR_UUID_TEXT_BYTES];
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    if (causation < 0) {
        return weir__fail(err, WEIR_EINVAL, "causation %" PRId64 " is not the id of an event",
                          causation);
    }
    if (correlation.len == 0) {
        weir__uuid7(weir__clock_wall(clock), fresh);
        correlation = weir__str(fresh);
    } else if ((status = weir__name_check("correlation", correlation, true, err)) != WEIR_OK) {
        return status;
    }
    m->causation[0] = '\0';
    if (causation > 0) {
        (void)snprintf(m->causation, sizeof m->causation, "\"causation\":%" PRId64, causation);
    }
    if (!weir__buffer_add_text(&text, "\"correlation\":") ||
        !weir__json_write_string(&text, correlation)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
        goto out;
    }
    WEIR_ASSERT(text.len <= sizeof m->correlation);
    memcpy(m->correlation, text.ptr, text.len);
    m->correlation_len = text.len;
out:
    weir__buffer_free(&text);
    return status;
}

static bool is_positive_integer(weir_str value)
{
    int64_t number = 0;
    return weir__str_to_i64(value, &number) && number > 0;
}

static bool member_add(weir_buffer *json, weir_str *object, const char *text, size_t len)
{
    /* Replaces the closing brace: what Weir adds comes last. */
    json->len--;
    const bool added = (object->len == 2 || weir__buffer_add(json, ",", 1)) &&
                       weir__buffer_add(json, text, len) && weir__buffer_add(json, "}", 1);
    object->len = (size_t)(json->ptr + json->len - object->ptr);
    return added;
}

static weir_status meta_add(weir_buffer *json, weir_str text, const added_meta *added,
                            int64_t bytes_max, weir_str *out, weir_error *err)
{
    weir_json_type type = WEIR_JSON_OBJECT;
    weir_str value;
    const weir_status status = payload_add(json, "meta", text, bytes_max, out, &type, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (type != WEIR_JSON_OBJECT) {
        return weir__fail(err, WEIR_EINVAL, "meta is not a JSON object");
    }
    const bool has_correlation = out->len > 2 && weir__json_get(*out, "correlation", &value);
    if (has_correlation && (weir__json_type(value) != WEIR_JSON_STRING || value.len == 2)) {
        return weir__fail(err, WEIR_EINVAL, "meta.correlation is not a text");
    }
    const bool has_causation = out->len > 2 && weir__json_get(*out, "causation", &value);
    if (has_causation && !is_positive_integer(value)) {
        return weir__fail(err, WEIR_EINVAL, "meta.causation is not the id of an event");
    }
    bool complete = true;
    if (!has_correlation) {
        complete = member_add(json, out, added->correlation, added->correlation_len);
    }
    if (complete && !has_causation && added->causation[0] != '\0') {
        complete = member_add(json, out, added->causation, strlen(added->causation));
    }
    return complete ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
}

/* ---- events -------------------------------------------------------------------------------- */

typedef struct event_builder {
    stream_index *streams;
    const added_meta *added;
    weir_buffer *json; /* has room for everything, so that slices into it stay valid */
    int64_t payload_bytes;
    size_t bytes; /* of names, data and meta so far */
} event_builder;

static weir_status event_add(event_builder *b, const weir_new_event *in, store_new_event *out,
                             const store_new_event *previous, weir_error *err)
{
    weir_status status = WEIR_OK;
    if (previous == NULL ||
        !weir__str_equal(b->streams->streams[previous->stream_index].name, in->stream)) {
        status = weir__name_check("stream name", in->stream, false, err);
        if (status == WEIR_OK && !stream_find(b->streams, in->stream, &out->stream_index)) {
            out->stream_index = (uint32_t)b->streams->count;
            stream_add(b->streams, in->stream, WEIR_EXPECT_ANY, 0);
        }
    } else {
        out->stream_index = previous->stream_index;
    }
    if (status == WEIR_OK) {
        status = weir__name_check("event name", in->name, false, err);
    }
    if (status == WEIR_OK) {
        status = payload_add(b->json, "data", in->data, b->payload_bytes, &out->data, NULL, err);
    }
    if (status == WEIR_OK) {
        status = meta_add(b->json, in->meta, b->added, b->payload_bytes, &out->meta, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    out->name = in->name;
    b->bytes += in->stream.len + in->name.len + out->data.len + out->meta.len;
    if (b->bytes > STORE_APPEND_BYTES_MAX) {
        return weir__fail(err, WEIR_EINVAL, "append has over %d bytes, allowed %d",
                          STORE_APPEND_BYTES_MAX, STORE_APPEND_BYTES_MAX);
    }
    return WEIR_OK;
}

/* Room for every payload at once: events keep slices of the buffer, which must not move. */
static weir_status payload_reserve(weir_buffer *json, const weir_append_request *r, weir_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->events_count; i++) {
        weir_new_event e;
        const weir_status status =
            weir__struct_copy(&e, sizeof e, r->events[i], "weir_new_event", err);
        if (status != WEIR_OK) {
            return status;
        }
        if (__builtin_add_overflow(bytes, e.data.len, &bytes) ||
            __builtin_add_overflow(bytes, e.meta.len, &bytes) ||
            __builtin_add_overflow(bytes, (size_t)128, &bytes)) {
            return weir__fail(err, WEIR_EINVAL, "append is too large");
        }
    }
    /* A given correlation can be longer than a fresh one. */
    if (__builtin_add_overflow(bytes, r->events_count * (6 * r->correlation.len), &bytes) ||
        !weir__buffer_reserve(json, bytes)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an append of %zu events",
                          r->events_count);
    }
    return WEIR_OK;
}

static weir_status events_add(prepared_append *p, event_builder *b, const weir_append_request *r,
                              weir_error *err)
{
    store_new_event *events = weir__arena_alloc(&p->arena, (r->events_count + 1) * sizeof *events);
    if (events == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
    }
    weir_status status = payload_reserve(&p->json, r, err);
    const char *const base = p->json.ptr;
    for (size_t i = 0; i < r->events_count && status == WEIR_OK; i++) {
        weir_new_event in;
        status = weir__struct_copy(&in, sizeof in, r->events[i], "weir_new_event", err);
        if (status == WEIR_OK) {
            status = event_add(b, &in, &events[i], i == 0 ? NULL : &events[i - 1], err);
        }
        if (status != WEIR_OK && r->events_count > 1) {
            status = weir__wrap(err, status, "event %zu of %zu", i + 1, r->events_count);
        }
    }
    WEIR_ASSERT(p->json.ptr == base);
    p->append.events = events;
    p->append.events_count = r->events_count;
    return status;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static weir_status key_changes_add(prepared_append *p, const stream_index *x,
                                   const weir_append_request *r, weir_error *err)
{
    store_key_change *changes =
        weir__arena_alloc(&p->arena, (r->key_changes_count + 1) * sizeof *changes);
    if (changes == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
    }
    for (size_t i = 0; i < r->key_changes_count; i++) {
        weir_key_change in;
        weir_status status =
            weir__struct_copy(&in, sizeof in, r->key_changes[i], "weir_key_change", err);
        if (status == WEIR_OK) {
            status = weir__name_check("key", in.key, false, err);
        }
        if (status != WEIR_OK) {
            return status;
        }
        if (in.change != WEIR_KEY_RESERVE && in.change != WEIR_KEY_RELEASE) {
            return weir__fail(err, WEIR_EINVAL,
                              "change %d of key \"%.*s\" is neither reserve nor "
                              "release",
                              in.change, name_shown(in.key), in.key.ptr);
        }
        changes[i] = (store_key_change){ .key = in.key, .change = in.change };
        if (!stream_find(x, in.stream, &changes[i].stream_index)) {
            return weir__fail(
                err, WEIR_EINVAL,
                "key \"%.*s\" is for stream \"%.*s\", which has neither an event nor an "
                "expectation in this append",
                name_shown(in.key), in.key.ptr, name_shown(in.stream),
                in.stream.ptr == NULL ? "" : in.stream.ptr);
        }
    }
    p->append.key_changes = changes;
    p->append.key_changes_count = r->key_changes_count;
    return WEIR_OK;
}

static void hash_i64(weir_sha256 *h, int64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    }
    weir__sha256_add(h, bytes, sizeof bytes);
}

static void hash_str(weir_sha256 *h, weir_str s)
{
    hash_i64(h, (int64_t)s.len);
    weir__sha256_add(h, s.ptr, s.len);
}

/* Stored with the key and compared for ever: the order and width of what is hashed must not change.
 */
static void append_fingerprint(store_append *a)
{
    weir_sha256 h;
    weir__sha256_init(&h);
    hash_i64(&h, (int64_t)a->streams_count);
    for (size_t i = 0; i < a->streams_count; i++) {
        hash_str(&h, a->streams[i].name);
        hash_i64(&h, a->streams[i].expect);
        hash_i64(&h, a->streams[i].version);
    }
    hash_i64(&h, (int64_t)a->events_count);
    for (size_t i = 0; i < a->events_count; i++) {
        hash_i64(&h, a->events[i].stream_index);
        hash_str(&h, a->events[i].name);
        hash_str(&h, a->events[i].data);
    }
    hash_i64(&h, (int64_t)a->key_changes_count);
    for (size_t i = 0; i < a->key_changes_count; i++) {
        hash_i64(&h, a->key_changes[i].stream_index);
        hash_i64(&h, a->key_changes[i].change);
        hash_str(&h, a->key_changes[i].key);
    }
    weir__sha256_end(&h, a->fingerprint);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static weir_status request_check(const weir_append_request *r, weir_error *err)
{
    if (r->events_count > STORE_APPEND_EVENTS_MAX ||
        r->expectations_count > STORE_APPEND_EVENTS_MAX ||
        r->key_changes_count > STORE_APPEND_KEYS_MAX) {
        return weir__fail(
            err, WEIR_EINVAL,
            "append has %zu events, %zu expectations and %zu key changes, allowed %d, "
            "%d and %d",
            r->events_count, r->expectations_count, r->key_changes_count, STORE_APPEND_EVENTS_MAX,
            STORE_APPEND_EVENTS_MAX, STORE_APPEND_KEYS_MAX);
    }
    if (r->events_count == 0 && r->expectations_count == 0) {
        return weir__fail(err, WEIR_EINVAL, "append has neither an event nor an expectation");
    }
    if ((r->events_count > 0 && r->events == NULL) ||
        (r->expectations_count > 0 && r->expectations == NULL) ||
        (r->key_changes_count > 0 && r->key_changes == NULL)) {
        return weir__fail(err, WEIR_EINVAL, "append has a count without its array");
    }
    if (r->flags != 0) {
        return weir__fail(err, WEIR_EINVAL, "append has unknown flags %u", r->flags);
    }
    return r->key.len == 0 ? WEIR_OK : weir__name_check("idempotency key", r->key, false, err);
}

weir_status weir__append_prepare(prepared_append *out, const weir_append_request *request,
                                 int64_t payload_bytes, const weir_clock *clock, weir_error *err)
{
    weir_append_request r;
    stream_index streams;
    added_meta added;
    *out = (prepared_append){ 0 };
    weir_status status = weir__struct_copy(&r, sizeof r, request, "weir_append_request", err);
    if (status == WEIR_OK) {
        status = request_check(&r, err);
    }
    if (status == WEIR_OK) {
        status = streams_init(&streams, r.expectations_count + r.events_count, &out->arena, err);
    }
    if (status == WEIR_OK) {
        status = expectations_add(&streams, &r, err);
    }
    if (status == WEIR_OK) {
        status = added_meta_init(&added, r.correlation, r.causation, clock, err);
    }
    if (status == WEIR_OK) {
        event_builder b = {
            .streams = &streams, .added = &added, .json = &out->json, .payload_bytes = payload_bytes
        };
        status = events_add(out, &b, &r, err);
    }
    if (status == WEIR_OK) {
        status = key_changes_add(out, &streams, &r, err);
    }
    if (status == WEIR_OK && streams.count > STORE_APPEND_STREAMS_MAX) {
        status = weir__fail(err, WEIR_EINVAL, "append names %zu streams, allowed 1 to %d",
                            streams.count, STORE_APPEND_STREAMS_MAX);
    }
    if (status != WEIR_OK) {
        return status;
    }
    out->append.streams = streams.streams;
    out->append.streams_count = streams.count;
    out->append.key = r.key;
    out->append.err = err;
    if (r.key.len > 0) {
        append_fingerprint(&out->append);
    }
    return WEIR_OK;
}

weir_status weir__close_prepare(prepared_append *out, weir_str stream,
                                const weir_close_options *options, int64_t payload_bytes,
                                const weir_clock *clock, weir_error *err)
{
    weir_close_options o = { WEIR_CLOSE_OPTIONS_INIT };
    added_meta added;
    *out = (prepared_append){ 0 };
    weir_status status = WEIR_OK;
    if (options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_close_options", err);
    }
    if (status == WEIR_OK && (o.flags & ~(uint32_t)(WEIR_CLOSE_FORCE | WEIR_CLOSE_DRY_RUN)) != 0) {
        status = weir__fail(err, WEIR_EINVAL, "close has unknown flags %u", o.flags);
    }
    const weir_expectation e = { WEIR_EXPECTATION_INIT, .expect = o.expect, .version = o.version,
                                 .stream = stream };
    if (status == WEIR_OK) {
        status = expectation_check(&e, err);
    }
    if (status == WEIR_OK) {
        status = added_meta_init(&added, (weir_str){ 0 }, 0, clock, err);
    }
    store_append_stream *s = weir__arena_alloc(&out->arena, sizeof *s);
    store_new_event *event = weir__arena_alloc(&out->arena, sizeof *event);
    if (status == WEIR_OK &&
        (s == NULL || event == NULL || !weir__buffer_reserve(&out->json, o.data.len + 256))) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate an append");
    }
    if (status != WEIR_OK) {
        return status;
    }
    *s = (store_append_stream){
        .name = stream, .expect = o.expect, .version = o.version, .first = -1, .last = -1
    };
    *event = (store_new_event){ .name = weir__str("$closed") };
    status = payload_add(&out->json, "data", o.data, payload_bytes, &event->data, NULL, err);
    if (status == WEIR_OK) {
        status = meta_add(&out->json, (weir_str){ 0 }, &added, payload_bytes, &event->meta, err);
    }
    out->append = (store_append){
        .flags = STORE_APPEND_CLOSE |
                 ((o.flags & WEIR_CLOSE_FORCE) != 0 ? (uint32_t)STORE_APPEND_FORCE : 0u) |
                 ((o.flags & WEIR_CLOSE_DRY_RUN) != 0 ? (uint32_t)STORE_APPEND_DRY_RUN : 0u),
        .streams = s,
        .streams_count = 1,
        .events = event,
        .events_count = 1,
        .err = err,
    };
    return status;
}

void weir__prepared_free(prepared_append *p)
{
    weir__arena_free(&p->arena);
    weir__buffer_free(&p->json);
    *p = (prepared_append){ 0 };
}
