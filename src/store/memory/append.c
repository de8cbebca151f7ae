/* append.c - judging appends and writing them; idempotency keys and reserved keys.
 *
 * Each append of a call is judged after the ones before it were written, and what it did before it
 * was refused is undone, so refusals and dry runs leave nothing behind.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/judge.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

/* ---- idempotency keys --------------------------------------------------------------------- */

void weir__memory_keys_expire(memory_core *c)
{
    int64_t next_us = INT64_MAX;
    int removed = 0;

    if (c->key_now_us < c->counters.key_expires_us) {
        return;
    }
    for (size_t i = c->keys.count; i > 0; i--) {
        const memory_key *k = c->keys.rows[i - 1];
        if (k->expires_us <= c->key_now_us && removed < KEYS_EXPIRED_MAX) {
            weir__memory_remove(c, &c->keys, k);
            removed++;
        } else if (k->expires_us < next_us) {
            next_us = k->expires_us;
        }
    }
    c->counters.key_expires_us = next_us;
}

/* Remembers what this append was answered, and forgets what an expired key was. */
static void key_add(memory_core *c, const store_append *a)
{
    memory_key_result *results = weir__calloc(a->streams_count + 1, sizeof *results);
    if (results == NULL) {
        c->full = true;
        return;
    }
    for (size_t i = 0; i < a->streams_count; i++) {
        const store_append_stream *s = &a->streams[i];
        results[i] = (memory_key_result){
            .first = s->first, .last = s->last, .id = s->id, .created_us = s->created_us
        };
    }
    memory_key k = {
        .key = a->key,
        .results = { .ptr = (const char *)results, .len = a->streams_count * sizeof *results },
        .expires_us = weir__time_later(c->key_now_us, c->key_ttl_us),
    };
    memcpy(k.fingerprint, a->fingerprint, sizeof k.fingerprint);
    weir__memory_put(c, &c->keys, &k);
    weir__free(results);
    if (k.expires_us < c->counters.key_expires_us) {
        c->counters.key_expires_us = k.expires_us;
    }
}

/* a->replayed: the key was known and the results are those of the first time. */
static weir_status key_judge(const memory_core *c, store_append *a, weir_error *err)
{
    const memory_key *k = weir__rows_find(&c->keys, &(memory_key){ .key = a->key });
    if (k == NULL || k->expires_us <= c->key_now_us) {
        return WEIR_OK;
    }
    const weir_status status =
        weir__key_judge(a, (weir_str){ (const char *)k->fingerprint, sizeof k->fingerprint }, err);
    if (status != WEIR_OK) {
        return status;
    }
    WEIR_ASSERT(k->results.len == a->streams_count * sizeof(memory_key_result));
    for (size_t i = 0; i < a->streams_count; i++) {
        memory_key_result result;
        memcpy(&result, k->results.ptr + i * sizeof result, sizeof result);
        a->streams[i].first = result.first;
        a->streams[i].last = result.last;
        a->streams[i].id = result.id;
        a->streams[i].created_us = result.created_us;
    }
    a->replayed = true;
    return WEIR_OK;
}

/* ---- streams ------------------------------------------------------------------------------ */

/* Judges every stream; results start as those of a stream without events. */
static weir_status streams_judge(const memory_core *c, store_append *a, bool *done, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < a->streams_count && status == WEIR_OK && !*done; i++) {
        store_append_stream *want = &a->streams[i];
        const weir_event *last = weir__memory_stream_last(c, want->name);

        want->first = -1;
        want->last = last == NULL ? WEIR_VERSION_NONE : last->version;
        want->id = 0;
        want->created_us = 0;
        status = weir__stream_judge(a, i, want->last, last != NULL && weir__memory_is_closed(last),
                                    done, err);
        if (status == WEIR_OK && !*done && weir__close_asks(a, i)) {
            status = weir__memory_unhandled(c, want->name, err);
        }
    }
    return status;
}

/* ---- reserved keys ------------------------------------------------------------------------ */

static weir_status key_change(memory_core *c, const store_append *a, const store_key_change *change,
                              weir_error *err)
{
    const memory_reserved *r =
        weir__rows_find(&c->reserved, &(memory_reserved){ .key = change->key });
    const weir_str owner = r != NULL ? r->owner : weir__str("");
    memory_reserved after = { .key = change->key };
    const weir_status status = weir__key_change_judge(a, change, owner, &after.owner, err);
    if (status == WEIR_OK && r == NULL && after.owner.len > 0) {
        weir__memory_put(c, &c->reserved, &after);
    } else if (status == WEIR_OK && r != NULL && after.owner.len == 0) {
        weir__memory_remove(c, &c->reserved, r);
    }
    return status;
}

/* ---- one append --------------------------------------------------------------------------- */

static void events_write(memory_core *c, const store_append *a)
{
    for (size_t i = 0; i < a->events_count; i++) {
        const store_new_event *event = &a->events[i];
        store_append_stream *result = &a->streams[event->stream_index];
        const weir_event *e = weir__memory_event_add(c, result->name, event);
        if (e == NULL) {
            return;
        }
        result->first = result->id == 0 ? e->version : result->first;
        result->last = e->version;
        result->id = e->id;
        result->created_us = e->created_us;
    }
}

static weir_status append_judge(memory_core *c, store_append *a, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool done = false;

    a->replayed = false;
    if (a->key.len > 0) {
        status = key_judge(c, a, err);
        if (status != WEIR_OK || a->replayed) {
            return status;
        }
    }
    status = streams_judge(c, a, &done, err);
    if (status != WEIR_OK || done) {
        return status;
    }
    for (size_t i = 0; i < a->key_changes_count && status == WEIR_OK; i++) {
        status = key_change(c, a, &a->key_changes[i], err);
    }
    if (status == WEIR_OK) {
        events_write(c, a);
    }
    if (status == WEIR_OK && a->key.len > 0) {
        key_add(c, a);
    }
    return status;
}

void weir__memory_append_one(memory_core *c, store_append *append, bool *wrote)
{
    const size_t changes = c->changes.count;
    const size_t events = c->events.count;

    append->status = append_judge(c, append, append->err);
    if (append->status != WEIR_OK || (append->flags & STORE_APPEND_DRY_RUN) != 0) {
        weir__changes_undo(&c->changes, changes);
    }
    *wrote = *wrote || c->events.count > events;
}

weir_status weir__memory_append(weir_store *base, store_append *const *appends, size_t count,
                                weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    bool wrote = false, refused = false;

    weir__memory_keys_expire(c);
    for (size_t i = 0; i < count; i++) {
        store_append *a = appends[i];
        if (refused && (a->flags & STORE_APPEND_CHAIN) != 0) {
            weir__append_not_tried(a);
        } else {
            weir__memory_append_one(c, a, &wrote);
        }
        refused = a->status != WEIR_OK;
    }
    return weir__memory_end(base, WEIR_OK, wrote, err);
}
