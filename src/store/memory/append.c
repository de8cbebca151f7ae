/* append.c - judging appends and writing them; idempotency keys and reserved keys.
 *
 * Each append of a call is judged after the ones before it were written, and what it did before it
 * was refused is undone to its own savepoint, so refusals and dry runs leave nothing behind.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

enum { STREAMS_ON_STACK = 16 };

/* ---- idempotency keys --------------------------------------------------------------------- */

static void key_unlink(memory_core *c, memory_key *k)
{
    *(k->older == NULL ? &c->key_oldest : &k->older->newer) = k->newer;
    *(k->newer == NULL ? &c->key_newest : &k->newer->older) = k->older;
}

/* Before anything of a transaction: what has expired is unknown already, so this is never undone.
 * Keys live equally long, so the oldest expires first. */
void weir__memory_keys_expire(memory_handle *h)
{
    memory_core *c = h->core;
    c->key_now_us = weir__age_clock_now(&c->key_clock, h->clock);
    for (int i = 0; i < KEYS_EXPIRED_MAX; i++) {
        memory_key *k = c->key_oldest;
        if (k == NULL || k->expires_us > c->key_now_us) {
            return;
        }
        key_unlink(c, k);
        weir__table_remove(&c->keys, &k->item);
        weir__free(k);
    }
}

/* Removes a key inside the transaction. */
static bool key_remove(memory_core *c, memory_key *k)
{
    memory_key **before = k->older == NULL ? &c->key_oldest : &k->older->newer;
    memory_key **after = k->newer == NULL ? &c->key_newest : &k->newer->older;
    if (!weir__tx_save(c, before, sizeof *before) || !weir__tx_save(c, after, sizeof *after) ||
        !weir__tx_table_remove(c, &c->keys, &k->item) || !weir__tx_free(c, k)) {
        return false;
    }
    key_unlink(c, k);
    return true;
}

/* Remembers what this append was answered. */
static bool key_add(memory_core *c, const store_append *a)
{
    const size_t results_bytes = a->streams_count * sizeof(memory_key_result);
    memory_key *k = weir__tx_alloc(c, sizeof *k + results_bytes + a->key.len);
    if (k == NULL) {
        return false;
    }
    char *text = (char *)&k->results[a->streams_count];
    memcpy(text, a->key.ptr, a->key.len);
    k->item.key = (weir_str){ .ptr = text, .len = a->key.len };
    k->item.hash = weir__str_hash(a->key);
    k->expires_us = weir__memory_later(c->key_now_us, c->key_ttl_us);
    memcpy(k->fingerprint, a->fingerprint, sizeof k->fingerprint);
    k->results_count = a->streams_count;
    for (size_t i = 0; i < a->streams_count; i++) {
        const store_append_stream *s = &a->streams[i];
        k->results[i] = (memory_key_result){
            .first = s->first, .last = s->last, .id = s->id, .created_us = s->created_us
        };
    }
    memory_key **before = c->key_newest == NULL ? &c->key_oldest : &c->key_newest->newer;
    if (!weir__tx_save(c, before, sizeof *before) ||
        !weir__tx_save(c, &c->key_newest, sizeof c->key_newest) ||
        !weir__tx_table_add(c, &c->keys, &k->item)) {
        return false;
    }
    k->older = c->key_newest;
    *before = k;
    c->key_newest = k;
    return true;
}

/* *replayed: the key was known and the results are those of the first time. */
static weir_status judge_key(memory_core *c, store_append *a, bool *replayed, weir_error *err)
{
    memory_key *k =
        (memory_key *)(void *)weir__table_find(&c->keys, weir__str_hash(a->key), a->key);
    if (k == NULL) {
        return WEIR_OK;
    }
    if (k->expires_us <= c->key_now_us) {
        return key_remove(c, k) ? WEIR_OK : weir__memory_full(err);
    }
    if (k->results_count != a->streams_count ||
        memcmp(k->fingerprint, a->fingerprint, sizeof k->fingerprint) != 0) {
        return weir__fail(err, WEIR_EKEYREUSED,
                          "idempotency key \"%.*s\" was used with other content", (int)a->key.len,
                          a->key.ptr);
    }
    for (size_t i = 0; i < k->results_count; i++) {
        a->streams[i].first = k->results[i].first;
        a->streams[i].last = k->results[i].last;
        a->streams[i].id = k->results[i].id;
        a->streams[i].created_us = k->results[i].created_us;
    }
    *replayed = true;
    return WEIR_OK;
}

void weir__memory_keys_free(memory_core *c)
{
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(&c->keys, &cursor)) != NULL;) {
        weir__free(item);
    }
    weir__table_free(&c->keys);
    cursor = 0;
    for (table_item *item; (item = weir__table_next(&c->reserved, &cursor)) != NULL;) {
        weir__free(item);
    }
    weir__table_free(&c->reserved);
}

/* ---- streams ------------------------------------------------------------------------------ */

static weir_status judge_expectation(const memory_core *c, const store_append_stream *want,
                                     const memory_stream *s, weir_error *err)
{
    const int64_t actual = s == NULL ? WEIR_VERSION_NONE : weir__memory_stream_version(c, s);
    switch (want->expect) {
    case WEIR_EXPECT_NONE:
        return s == NULL ? WEIR_OK
                         : weir__fail_conflict(err, want->name, WEIR_VERSION_NONE, actual);
    case WEIR_EXPECT_EXISTS:
        return s != NULL ? WEIR_OK
                         : weir__fail_conflict(err, want->name, WEIR_VERSION_EXISTS, actual);
    case WEIR_EXPECT_EXACT:
        return s != NULL && actual == want->version
                   ? WEIR_OK
                   : weir__fail_conflict(err, want->name, want->version, actual);
    default:
        return WEIR_OK;
    }
}

/* *done: the stream is closed already and that is all there is to do. */
static weir_status judge_close(const memory_core *c, const store_append *a, const memory_stream *s,
                               bool *done, weir_error *err)
{
    const store_append_stream *want = &a->streams[0];
    if (s == NULL) {
        weir__fail(err, WEIR_ENOTFOUND, "no stream \"%.*s\"", (int)want->name.len, want->name.ptr);
        weir__error_stream(err, want->name);
        return WEIR_ENOTFOUND;
    }
    if (s->closed) {
        *done = true;
        return WEIR_OK;
    }
    const weir_status status = judge_expectation(c, want, s, err);
    if (status != WEIR_OK || (a->flags & STORE_APPEND_FORCE) != 0) {
        return status;
    }
    return weir__memory_unhandled(c, s, err);
}

/* Finds every stream and judges it; results start as those of a stream without events. */
static weir_status judge_streams(memory_core *c, store_append *a, memory_stream **streams,
                                 bool *done, weir_error *err)
{
    for (size_t i = 0; i < a->streams_count; i++) {
        store_append_stream *want = &a->streams[i];
        memory_stream *s = weir__memory_stream_find(c, want->name);
        weir_status status;

        streams[i] = s;
        want->first = -1;
        want->last = s == NULL ? WEIR_VERSION_NONE : weir__memory_stream_version(c, s);
        want->id = 0;
        want->created_us = 0;
        if ((a->flags & STORE_APPEND_CLOSE) != 0 && i == 0) {
            status = judge_close(c, a, s, done, err);
        } else if (s != NULL && s->closed) {
            status = weir__fail(err, WEIR_ECLOSED, "stream \"%.*s\" is closed", (int)want->name.len,
                                want->name.ptr);
            weir__error_stream(err, want->name);
        } else {
            status = judge_expectation(c, want, s, err);
        }
        if (status != WEIR_OK || *done) {
            return status;
        }
    }
    return WEIR_OK;
}

/* ---- reserved keys ------------------------------------------------------------------------ */

static bool reserve(memory_core *c, weir_str key, weir_str owner)
{
    memory_reserved *r = weir__tx_alloc(c, sizeof *r + key.len + owner.len);
    if (r == NULL) {
        return false;
    }
    memcpy(r->bytes, key.ptr, key.len);
    memcpy(r->bytes + key.len, owner.ptr, owner.len);
    r->item.key = (weir_str){ .ptr = r->bytes, .len = key.len };
    r->item.hash = weir__str_hash(key);
    r->owner = (weir_str){ .ptr = r->bytes + key.len, .len = owner.len };
    return weir__tx_table_add(c, &c->reserved, &r->item);
}

/* In the order given, each seeing the ones before it, so that a key can move in one append. */
static weir_status change_keys(memory_core *c, const store_append *a, weir_error *err)
{
    for (size_t i = 0; i < a->key_changes_count; i++) {
        const store_key_change *change = &a->key_changes[i];
        const weir_str stream = a->streams[change->stream_index].name;
        table_item *item = weir__table_find(&c->reserved, weir__str_hash(change->key), change->key);
        const memory_reserved *r = (const memory_reserved *)(const void *)item;
        bool ok = true;

        if (r != NULL && !weir__str_equal(r->owner, stream)) {
            weir__fail(err, WEIR_ETAKEN, "key \"%.*s\" belongs to stream \"%.*s\"",
                       (int)change->key.len, change->key.ptr, (int)r->owner.len, r->owner.ptr);
            weir__error_stream(err, r->owner);
            return WEIR_ETAKEN;
        }
        if (change->change == WEIR_KEY_RESERVE && r == NULL) {
            ok = reserve(c, change->key, stream);
        } else if (change->change == WEIR_KEY_RELEASE && r != NULL) {
            ok = weir__tx_table_remove(c, &c->reserved, item) && weir__tx_free(c, item);
        }
        if (!ok) {
            return weir__memory_full(err);
        }
    }
    return WEIR_OK;
}

/* ---- one append --------------------------------------------------------------------------- */

static weir_status write_events(memory_core *c, store_append *a, memory_stream **streams,
                                int64_t now_us, weir_error *err)
{
    for (size_t i = 0; i < a->events_count; i++) {
        const store_new_event *event = &a->events[i];
        store_append_stream *result = &a->streams[event->stream_index];
        memory_stream **stream = &streams[event->stream_index];
        const weir_status status =
            weir__memory_event_add(c, stream, result->name, event, now_us, err);
        if (status != WEIR_OK) {
            return status;
        }
        result->last = weir__memory_stream_version(c, *stream);
        if (result->id == 0) {
            result->first = result->last;
        }
        result->id = weir__memory_head(c);
        result->created_us = now_us;
    }
    return WEIR_OK;
}

/* *written: there is something to keep. */
static weir_status judge(memory_core *c, store_append *a, memory_stream **streams, int64_t now_us,
                         bool *written, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool done = false;

    a->replayed = false;
    if (a->key.len > 0) {
        status = judge_key(c, a, &a->replayed, err);
        if (status != WEIR_OK || a->replayed) {
            return status;
        }
    }
    status = judge_streams(c, a, streams, &done, err);
    if (status != WEIR_OK || done) {
        return status;
    }
    status = change_keys(c, a, err);
    if (status == WEIR_OK) {
        status = write_events(c, a, streams, now_us, err);
    }
    if (status == WEIR_OK && (a->flags & STORE_APPEND_CLOSE) != 0) {
        WEIR_ASSERT(a->streams_count > 0);
        if (!weir__tx_save(c, &streams[0]->closed, sizeof streams[0]->closed)) {
            return weir__memory_full(err);
        }
        streams[0]->closed = true;
    }
    if (status == WEIR_OK && a->key.len > 0 && !key_add(c, a)) {
        status = weir__memory_full(err);
    }
    *written = status == WEIR_OK;
    return status;
}

weir_status weir__memory_append_one(memory_core *c, store_append *append, int64_t now_us,
                                    bool *wrote)
{
    memory_stream *small[STREAMS_ON_STACK];
    memory_stream **streams = small;
    const size_t savepoint = weir__tx_savepoint(c);
    bool written = false;

    if (append->streams_count > STREAMS_ON_STACK) {
        streams = weir__calloc(append->streams_count, sizeof(memory_stream *));
        if (streams == NULL) {
            append->status = weir__memory_full(append->err);
            return append->status;
        }
    }
    append->status = judge(c, append, streams, now_us, &written, append->err);
    if (append->status != WEIR_OK || (append->flags & STORE_APPEND_DRY_RUN) != 0) {
        weir__tx_undo_to(c, savepoint);
    } else if (written && append->events_count > 0) {
        *wrote = true;
    }
    if (streams != small) {
        weir__free(streams);
    }
    return append->status == WEIR_ENOMEM ? WEIR_ENOMEM : WEIR_OK;
}

static weir_status append_locked(memory_handle *h, store_append *const *appends, size_t count,
                                 bool *wrote, weir_error *err) WEIR_REQUIRES(h->core->mu)
{
    memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    bool refused = false;

    weir__memory_keys_expire(h);
    for (size_t i = 0; i < count; i++) {
        store_append *a = appends[i];
        if (refused && (a->flags & STORE_APPEND_CHAIN) != 0) {
            a->status = weir__fail(a->err, WEIR_EMISUSE, "not tried: the append before it failed");
            continue;
        }
        if (weir__memory_append_one(c, a, now_us, wrote) != WEIR_OK) {
            return weir__memory_full(err);
        }
        refused = a->status != WEIR_OK;
    }
    return WEIR_OK;
}

weir_status weir__memory_append(weir_store *base, store_append *const *appends, size_t count,
                                weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);
    bool wrote = false;

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = append_locked(h, appends, count, &wrote, err);
    status = weir__tx_end(h, status, wrote);
    weir__unlock(&h->core->mu);
    return status;
}
