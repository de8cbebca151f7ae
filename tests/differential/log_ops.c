/* log_ops.c - random appends, closings and reads. */
#include "world.h"

/* ---- appending ---------------------------------------------------------------------------- */

static void streams_choose(world *w, some_append *a, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int index = (int)chance(w, STREAMS);
        for (size_t j = 0; j < i; j++) {
            if (a->stream_index[j] == index) { /* streams are distinct */
                index = (index + 1) % STREAMS;
                j = (size_t)-1;
            }
        }
        store_append_stream *s = &a->streams[i];
        a->stream_index[i] = index;
        s->name = weir__str(stream_name(index));
        s->expect = (int32_t)(one_in(w, 2) ? (uint64_t)WEIR_EXPECT_ANY : chance(w, 4));
        s->first = s->last = s->id = -9;
        if (s->expect == WEIR_EXPECT_EXACT) {
            s->version = w->versions[index] + (one_in(w, 4) ? (int64_t)chance(w, 3) - 1 : 0);
            s->version = s->version < 0 ? 0 : s->version;
        }
        static const char *const words[] = { "any", "none", "exists", "exact" };
        what(w, " %s(%s %lld)", stream_name(index), words[s->expect], (long long)s->version);
    }
    a->append.streams_count = count;
}

static void fingerprint_set(some_append *a)
{
    weir_sha256 h;
    weir__sha256_init(&h);
    for (size_t i = 0; i < a->append.streams_count; i++) {
        const int64_t part[] = { a->stream_index[i], a->streams[i].expect, a->streams[i].version };
        weir__sha256_add(&h, part, sizeof part);
    }
    for (size_t i = 0; i < a->append.events_count; i++) {
        weir__sha256_add(&h, &a->events[i].stream_index, sizeof a->events[i].stream_index);
        weir__sha256_add(&h, a->events[i].name.ptr, a->events[i].name.len);
        weir__sha256_add(&h, a->events[i].data.ptr, a->events[i].data.len);
    }
    for (size_t i = 0; i < a->append.key_changes_count; i++) {
        weir__sha256_add(&h, &a->changes[i].stream_index, sizeof a->changes[i].stream_index);
        weir__sha256_add(&h, &a->changes[i].change, sizeof a->changes[i].change);
        weir__sha256_add(&h, a->changes[i].key.ptr, a->changes[i].key.len);
    }
    weir__sha256_end(&h, a->append.fingerprint);
}

void some_append_make(world *w, some_append *a, bool effect)
{
    *a = (some_append){ 0 };
    if (!effect && one_in(w, 25)) { /* closing */
        streams_choose(w, a, 1);
        a->events[0] = (store_new_event){ .name = weir__str("$closed"),
                                          .data = weir__str("{}"),
                                          .meta = weir__str("{\"correlation\":\"c-0\"}") };
        a->append.events_count = 1;
        a->append.flags = STORE_APPEND_CLOSE | (one_in(w, 4) ? STORE_APPEND_FORCE : 0u) |
                          (one_in(w, 4) ? STORE_APPEND_DRY_RUN : 0u);
        what(w, " close %x", a->append.flags);
        return;
    }
    streams_choose(w, a, 1 + (one_in(w, 3) ? chance(w, 3) : 0));
    const size_t events = one_in(w, 12) ? 0 : 1 + chance(w, 4);
    for (size_t i = 0; i < events; i++) {
        a->events[i] = (store_new_event){
            .stream_index = (uint32_t)chance(w, a->append.streams_count),
            .name = weir__str(event_name(w)),
            .data = weir__str(text(w, "{\"n\":%u}", (unsigned)chance(w, 4))),
            .meta = weir__str(text(w, "{\"correlation\":\"c-%u\"}", (unsigned)chance(w, 3))),
        };
        what(w, " %s>%s", a->events[i].name.ptr,
             stream_name(a->stream_index[a->events[i].stream_index]));
    }
    a->append.events_count = events;
    while (one_in(w, 5) && a->append.key_changes_count < 2) {
        store_key_change *c = &a->changes[a->append.key_changes_count++];
        /* Only streams that exist or are being written have something to own a key with. */
        c->stream_index = events > 0 ? a->events[0].stream_index : 0;
        if (events == 0 && w->versions[a->stream_index[0]] < w->first_version) {
            a->append.key_changes_count--;
            break;
        }
        c->change = one_in(w, 3) ? WEIR_KEY_RELEASE : WEIR_KEY_RESERVE;
        c->key = weir__str(text(w, "u%u", (unsigned)chance(w, 5)));
        what(w, " %s %s", c->change == WEIR_KEY_RESERVE ? "reserve" : "release", c->key.ptr);
    }
    if (one_in(w, 4)) {
        a->append.key = weir__str(text(w, "k%u", (unsigned)chance(w, 8)));
        what(w, " key %s", a->append.key.ptr);
        fingerprint_set(a);
    }
    if (!effect && one_in(w, 20)) {
        a->append.flags |= STORE_APPEND_DRY_RUN;
        what(w, " dry");
    }
}

void some_append_copy(const some_append *from, some_append *to)
{
    *to = *from;
    to->append.streams = to->streams;
    to->append.events = to->events;
    to->append.key_changes = to->changes;
    to->append.err = &to->err;
    to->append.status = WEIR_EMISUSE;
}

void some_append_say(world *w, int store, const some_append *a)
{
    say_status(w, store, a->append.status, &a->err);
    if (a->append.status != WEIR_OK) {
        return;
    }
    say(w, store, "  replayed %d", a->append.replayed);
    for (size_t i = 0; i < a->append.streams_count; i++) {
        say(w, store, " [%lld..%lld id %lld]", (long long)a->streams[i].first,
            (long long)a->streams[i].last, (long long)a->streams[i].id);
    }
    say(w, store, "\n");
}

void some_appends_learn(world *w, int store, some_append *appends, size_t count)
{
    int64_t versions[STREAMS]; /* as this call goes on */
    memcpy(versions, w->versions, sizeof versions);
    for (size_t n = 0; n < count; n++) {
        const some_append *a = &appends[n];
        const bool closing = (a->append.flags & STORE_APPEND_CLOSE) != 0;
        if (a->append.status != WEIR_OK || a->append.replayed ||
            (closing && a->streams[0].first < 0)) {
            continue;
        }
        for (size_t i = 0; i < a->append.streams_count; i++) {
            const store_append_stream *s = &a->streams[i];
            int64_t events = 0;
            for (size_t e = 0; e < a->append.events_count; e++) {
                events += a->events[e].stream_index == i;
            }
            int64_t *version = &versions[a->stream_index[i]];
            if (events > 0 ? s->first != *version + 1 || s->last != *version + events
                           : s->first != -1 || s->id != 0) {
                wrong(w,
                      "store %d: stream %s is at %lld, and %lld events got versions %lld to %lld",
                      store, stream_name(a->stream_index[i]), (long long)*version,
                      (long long)events, (long long)s->first, (long long)s->last);
            }
            if ((a->append.flags & STORE_APPEND_DRY_RUN) == 0) {
                *version += events;
                w->must_wake = w->must_wake || events > 0;
                if (events > 0 && s->id > w->head) {
                    w->head = s->id;
                }
            }
        }
    }
    if (store == w->stores_count - 1) {
        memcpy(w->versions, versions, sizeof versions);
    }
}

static void op_append(world *w)
{
    enum { BATCH_MAX = 3 };
    some_append made[BATCH_MAX];
    const size_t count = one_in(w, 4) ? 1 + chance(w, BATCH_MAX) : 1;
    /* As the committer asks, or as one who waits; nobody else is there to be waited for. Not drawn,
     * so that a seed stays what it was. */
    const uint32_t flags = (w->rng >> 33 & 1) != 0 ? STORE_APPEND_NOWAIT : 0u;
    for (size_t i = 0; i < count; i++) {
        what(w, i == 0 ? "append" : " |");
        some_append_make(w, &made[i], false);
        if (i > 0 && one_in(w, 3)) {
            made[i].append.flags |= STORE_APPEND_CHAIN;
            what(w, " chain");
        }
    }
    for (int store = 0; store < w->stores_count; store++) {
        some_append run[BATCH_MAX];
        store_append *appends[BATCH_MAX];
        weir_error err;
        for (size_t i = 0; i < count; i++) {
            some_append_copy(&made[i], &run[i]);
            run[i].append.flags |= flags;
            appends[i] = &run[i].append;
        }
        weir_store *s = w->stores[store];
        const weir_status status = s->log->append(s, appends, count, &err);
        say_status(w, store, status, &err);
        for (size_t i = 0; i < count && status == WEIR_OK; i++) {
            some_append_say(w, store, &run[i]);
        }
        if (status == WEIR_OK) {
            some_appends_learn(w, store, run, count);
        }
    }
}

/* ---- reading ------------------------------------------------------------------------------ */

static void op_read_stream(world *w)
{
    const int index = (int)chance(w, STREAMS);
    const int64_t first = w->first_version;
    store_stream_query q = { .stream = weir__str(stream_name(index)),
                             .backward = one_in(w, 2),
                             .limit = 1 + (int64_t)chance(w, 12),
                             .until_us = one_in(w, 4) ? w->wall_us - (int64_t)chance(w, 60000000)
                                                      : INT64_MAX };
    const int64_t low = first + (int64_t)chance(w, 6);
    const int64_t high = one_in(w, 3) ? INT64_MAX : low + (int64_t)chance(w, 20);
    q.from = q.backward ? high : low;
    q.to = q.backward ? low : high;
    what(w, "read_stream %s from %lld to %lld limit %lld until %lld", stream_name(index),
         (long long)q.from, (long long)q.to, (long long)q.limit, (long long)q.until_us);
    for (int store = 0; store < w->stores_count; store++) {
        store_chunk chunk = { 0 };
        weir_error err;
        const weir_status status =
            w->stores[store]->log->read_stream(w->stores[store], &q, &chunk, &err);
        say_status(w, store, status, &err);
        for (size_t i = 0; i < chunk.events_count; i++) {
            say_event(w, store, &chunk.events[i]);
        }
        /* Whether there is more is exact unless a limit ended the chunk. */
        if (status == WEIR_OK && (int64_t)chunk.events_count < q.limit) {
            say(w, store, "  more %d\n", chunk.more);
        }
        weir__chunk_free(&chunk);
    }
}

/* Reads to the end of the query, chunk after chunk. */
static void read_log_whole(world *w, int store, store_log_query q)
{
    store_chunk chunk = { 0 };
    weir_error err;
    bool more = true;
    while (more) {
        const weir_status status =
            w->stores[store]->log->read_log(w->stores[store], &q, &chunk, &err);
        if (status != WEIR_OK) {
            say_status(w, store, status, &err);
            break;
        }
        for (size_t i = 0; i < chunk.events_count; i++) {
            say_event(w, store, &chunk.events[i]);
        }
        q.after = chunk.scanned_to;
        q.limit -= (int64_t)chunk.events_count;
        more = chunk.more && q.limit > 0;
        if (!chunk.more && !q.backward && q.limit > 0) {
            say(w, store, "  scanned to %lld\n", (long long)chunk.scanned_to);
        }
    }
    weir__chunk_free(&chunk);
}

static void op_read_log(world *w)
{
    static const char *const pool[] = { "$closed", "A", "B", "C", "D", "E" };
    weir_str names[6];
    store_filter f = { .since_us = INT64_MIN, .until_us = INT64_MAX };
    what(w, "read_log");
    f.has_names = one_in(w, 3);
    f.names = names;
    for (size_t i = 0; i < 6 && f.has_names; i++) {
        if (one_in(w, 3)) {
            names[f.names_count++] = weir__str(pool[i]);
            what(w, " %s", pool[i]);
        }
    }
    store_pattern *pattern = some_pattern(w);
    f.stream = pattern;
    if (one_in(w, 4)) {
        f.category = weir__str(one_in(w, 2) ? "a" : "c");
    }
    if (one_in(w, 4)) {
        f.correlation = weir__str(text(w, "c-%u", (unsigned)chance(w, 4)));
    }
    if (one_in(w, 4)) {
        f.since_us = w->wall_us - (int64_t)chance(w, 600000000);
    }
    if (one_in(w, 4)) {
        f.until_us = w->wall_us - (int64_t)chance(w, 600000000);
    }
    store_log_query q = { .backward = one_in(w, 3), .filter = one_in(w, 5) ? NULL : &f };
    q.limit = one_in(w, 2) ? INT64_MAX : 1 + (int64_t)chance(w, 20);
    const int64_t low = one_in(w, 2) ? 0 : w->position_base + (int64_t)chance(w, 300);
    const int64_t high = one_in(w, 2) ? INT64_MAX : w->position_base + (int64_t)chance(w, 600);
    q.after = q.backward ? high : low;
    q.to = q.backward ? low : high;
    what(w, " after %lld to %lld backward %d limit %lld", (long long)q.after, (long long)q.to,
         q.backward, (long long)q.limit);
    for (int store = 0; store < w->stores_count; store++) {
        read_log_whole(w, store, q);
    }
    weir__pattern_close(pattern);
}

static void op_stream_info(world *w)
{
    const int index = (int)chance(w, STREAMS);
    what(w, "stream_info %s", stream_name(index));
    for (int store = 0; store < w->stores_count; store++) {
        store_stream_info info = { 0 };
        weir_error err;
        const weir_status status = w->stores[store]->log->stream_info(
            w->stores[store], weir__str(stream_name(index)), &w->arena, &info, &err);
        say_status(w, store, status, &err);
        if (status == WEIR_OK) {
            say(w, store, "  %.*s version %lld id %lld created %lld updated %lld closed %d\n",
                (int)info.stream.len, info.stream.ptr, (long long)info.version, (long long)info.id,
                (long long)info.created_us, (long long)info.updated_us, info.closed);
        }
        const int64_t model = w->versions[index] < w->first_version ? -1 : w->versions[index];
        if ((status == WEIR_OK ? info.version : -1) != model) {
            wrong(w, "store %d: stream %s is at %lld, should be %lld", store, stream_name(index),
                  (long long)info.version, (long long)model);
        }
    }
}

static void op_streams(world *w)
{
    what(w, "streams");
    store_pattern *pattern = some_pattern(w);
    const store_streams_query query = { .after = weir__str(one_in(w, 3) ? "b-0" : ""),
                                        .limit = 1 + (int64_t)chance(w, 6),
                                        .pattern = pattern,
                                        .category = weir__str(one_in(w, 4) ? "a" : ""),
                                        .closed = (int32_t)chance(w, 3) };
    for (int store = 0; store < w->stores_count; store++) {
        store_streams_chunk chunk = { 0 };
        store_streams_query q = query;
        weir_error err;
        bool more = true;
        while (more) {
            const weir_status status =
                w->stores[store]->log->streams(w->stores[store], &q, &chunk, &err);
            if (status != WEIR_OK) {
                say_status(w, store, status, &err);
                break;
            }
            for (size_t i = 0; i < chunk.streams_count; i++) {
                const store_stream_info *s = &chunk.streams[i];
                say(w, store, "  %.*s version %lld id %lld closed %d\n", (int)s->stream.len,
                    s->stream.ptr, (long long)s->version, (long long)s->id, s->closed);
            }
            more = chunk.more;
            q.after = weir__str(text(w, "%.*s", (int)chunk.scanned_to.len,
                                     chunk.scanned_to.len == 0 ? "" : chunk.scanned_to.ptr));
        }
        weir__arena_free(&chunk.arena);
    }
    weir__pattern_close(pattern);
}

/* Whose a key is, as somebody who wants it is told. */
static void op_key_owner(world *w)
{
    const char *key = text(w, "u%u", (unsigned)chance(w, 6));
    what(w, "key_owner %s", key);
    for (int store = 0; store < w->stores_count; store++) {
        store_append_stream nobody = { .name = weir__str("nobody") };
        const store_new_event event = { .name = weir__str("Asked"),
                                        .data = weir__str("{}"),
                                        .meta = weir__str("{}") };
        const store_key_change change = { .key = weir__str(key), .change = WEIR_KEY_RESERVE };
        weir_error err = { 0 };
        store_append ask = { .flags = STORE_APPEND_DRY_RUN,
                             .streams = &nobody,
                             .streams_count = 1,
                             .events = &event,
                             .events_count = 1,
                             .key_changes = &change,
                             .key_changes_count = 1,
                             .err = &err };
        store_append *const list[] = { &ask };
        const weir_status status = w->stores[store]->log->append(w->stores[store], list, 1, &err);
        say_status(w, store, status == WEIR_OK ? ask.status : status, &err);
    }
}

static void op_positions(world *w)
{
    what(w, "positions");
    for (int store = 0; store < w->stores_count; store++) {
        store_positions p = { 0 };
        store_holder_list holders = { 0 };
        int64_t now_us = 0;
        weir_error err;
        weir_store *s = w->stores[store];
        say_status(w, store, s->log->positions(s, &p, &err), &err);
        say_status(w, store, s->about->now(s, &now_us, &err), &err);
        say_status(w, store, s->about->holders(s, &holders, &err), &err);
        say(w, store, "  holders %zu\n", holders.holders_count);
        weir__arena_free(&holders.arena);
        say(w, store, "  head %lld safe %lld now %lld\n", (long long)p.head, (long long)p.safe,
            (long long)now_us);
        if (p.now_us > now_us) {
            wrong(w, "store %d: time went back", store);
        }
    }
}

void compare_logs(world *w)
{
    const store_log_query q = { .to = INT64_MAX, .limit = INT64_MAX };
    what(w, "the whole log");
    for (int store = 0; store < w->stores_count; store++) {
        read_log_whole(w, store, q);
    }
    /* The model's own reading of the log. */
    weir_store *s = w->stores[w->stores_count - 1];
    store_chunk chunk = { 0 };
    store_log_query next = q;
    int64_t versions[STREAMS];
    int64_t last = 0;
    weir_error err;
    for (int i = 0; i < STREAMS; i++) {
        versions[i] = w->first_version - 1;
    }
    do {
        if (s->log->read_log(s, &next, &chunk, &err) != WEIR_OK) {
            wrong(w, "the log cannot be read: %s", err.message);
            break;
        }
        for (size_t i = 0; i < chunk.events_count; i++) {
            const weir_event *e = &chunk.events[i];
            const int stream = stream_of(e->stream);
            if (stream < 0 || e->version != versions[stream] + 1 || e->id <= last) {
                wrong(w, "event %lld is version %lld of %.*s", (long long)e->id,
                      (long long)e->version, (int)e->stream.len, e->stream.ptr);
                break;
            }
            versions[stream]++;
            last = e->id;
        }
        next.after = chunk.scanned_to;
    } while (chunk.more && w->wrong[0] == '\0');
    weir__chunk_free(&chunk);
    for (int i = 0; i < STREAMS && w->wrong[0] == '\0'; i++) {
        if (versions[i] != w->versions[i]) {
            wrong(w, "stream %s ends at %lld, acknowledged was %lld", stream_name(i),
                  (long long)versions[i], (long long)w->versions[i]);
        }
    }
}

const operation log_operations[] = {
    { "append", 90, op_append },      { "read_stream", 12, op_read_stream },
    { "read_log", 16, op_read_log },  { "stream_info", 6, op_stream_info },
    { "streams", 5, op_streams },     { "key_owner", 5, op_key_owner },
    { "positions", 6, op_positions }, { NULL, 0, NULL },
};
