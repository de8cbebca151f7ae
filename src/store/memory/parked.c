/* parked.c - events that were set aside: dead letters of a subscription, or of a reaction whose
 * router could not find their target.
 *
 * INVARIANTS
 *   (1) One row per (event, reaction, target): parking again renews the row and keeps its id.
 *   (2) A row is in its target's `sent_back` exactly while it is sent back, and its subscription
 *       counts it there. Its target is being edited whenever that changes.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

/* What orders parked events by event; target 0: parked while routing. */
typedef struct parked_key {
    int64_t event, reaction, target;
} parked_key;

static int compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static parked_key key_of(const memory_parked *p)
{
    return (parked_key){
        .event = p->event,
        .reaction = p->reaction->id,
        .target = p->subscription == NULL ? 0 : p->subscription->target->id,
    };
}

static int compare_keys(const parked_key *a, const parked_key *b)
{
    const int event = compare_i64(a->event, b->event);
    const int reaction = compare_i64(a->reaction, b->reaction);
    if (event != 0 || reaction != 0) {
        return event != 0 ? event : reaction;
    }
    return compare_i64(a->target, b->target);
}

static int compare_by_id(const ordered_node *a, const ordered_node *b)
{
    return compare_i64(ORDERED_ITEM_CONST(a, memory_parked, by_id)->id,
                       ORDERED_ITEM_CONST(b, memory_parked, by_id)->id);
}

static int compare_by_event(const ordered_node *a, const ordered_node *b)
{
    const parked_key left = key_of(ORDERED_ITEM_CONST(a, memory_parked, by_event));
    const parked_key right = key_of(ORDERED_ITEM_CONST(b, memory_parked, by_event));
    return compare_keys(&left, &right);
}

int weir__memory_sent_back_compare(const ordered_node *a, const ordered_node *b)
{
    const parked_key left = key_of(ORDERED_ITEM_CONST(a, memory_parked, by_sent_back));
    const parked_key right = key_of(ORDERED_ITEM_CONST(b, memory_parked, by_sent_back));
    return compare_keys(&left, &right);
}

void weir__memory_parked_init(memory_core *c)
{
    weir__ordered_init(&c->parked, compare_by_id);
    weir__ordered_init(&c->parked_by_event, compare_by_event);
}

static memory_parked *sent_back_item(ordered_node *n)
{
    return n == NULL ? NULL : ORDERED_ITEM(n, memory_parked, by_sent_back);
}

memory_parked *weir__memory_sent_back_first(memory_target *t)
{
    return sent_back_item(weir__ordered_first(&t->sent_back));
}

memory_parked *weir__memory_sent_back_next(memory_target *t, const memory_parked *p)
{
    return sent_back_item(weir__ordered_next(&t->sent_back, &p->by_sent_back));
}

static bool key_reached(const void *key, const ordered_node *node)
{
    const parked_key at = key_of(ORDERED_ITEM_CONST(node, memory_parked, by_event));
    return compare_keys(&at, key) >= 0;
}

memory_parked *weir__memory_parked_find(memory_core *c, const memory_reaction *r,
                                        const memory_subscription *s, int64_t event)
{
    const parked_key key = { .event = event,
                             .reaction = r->id,
                             .target = s == NULL ? 0 : s->target->id };
    ordered_node *n = weir__ordered_seek(&c->parked_by_event, key_reached, &key);
    memory_parked *p = n == NULL ? NULL : ORDERED_ITEM(n, memory_parked, by_event);
    if (p == NULL) {
        return NULL;
    }
    const parked_key found = key_of(p);
    return compare_keys(&found, &key) == 0 ? p : NULL;
}

static bool id_reached(const void *key, const ordered_node *node)
{
    const int64_t *id = key;
    return ORDERED_ITEM_CONST(node, memory_parked, by_id)->id >= *id;
}

memory_parked *weir__memory_parked_get(memory_core *c, int64_t id)
{
    ordered_node *n = weir__ordered_seek(&c->parked, id_reached, &id);
    memory_parked *p = n == NULL ? NULL : ORDERED_ITEM(n, memory_parked, by_id);
    return p != NULL && p->id == id ? p : NULL;
}

/* It no longer waits to be handled again. */
static bool take_back(memory_core *c, memory_parked *p)
{
    memory_subscription *s = p->subscription;
    if (!p->state.sent_back) {
        return true;
    }
    WEIR_ASSERT(s != NULL); /* what was parked while routing cannot be sent back */
    if (!weir__tx_save(c, &p->state, sizeof p->state) ||
        !weir__tx_set_remove(c, &s->target->sent_back, &p->by_sent_back)) {
        return false;
    }
    p->state.sent_back = false;
    s->state.sent_back--;
    return true;
}

/* NULL: out of memory. */
static memory_parked *parked_add(memory_core *c, memory_reaction *r, memory_subscription *s,
                                 int64_t event)
{
    memory_parked *p = weir__tx_alloc(c, sizeof *p);
    if (p == NULL || !weir__tx_save(c, &c->parked_last, sizeof c->parked_last)) {
        return NULL;
    }
    p->id = ++c->parked_last;
    p->event = event;
    p->reaction = r;
    p->subscription = s;
    return weir__tx_set_add(c, &c->parked, &p->by_id) &&
                   weir__tx_set_add(c, &c->parked_by_event, &p->by_event)
               ? p
               : NULL;
}

weir_status weir__memory_park(memory_core *c, memory_reaction *r, memory_subscription *s,
                              const store_park *park, int64_t now_us, weir_error *err)
{
    memory_parked *p = weir__memory_parked_find(c, r, s, park->event);
    if (p == NULL) {
        p = parked_add(c, r, s, park->event);
        if (p == NULL) {
            return weir__memory_full(err);
        }
    }
    if (!take_back(c, p) || !weir__tx_save(c, &p->state, sizeof p->state) ||
        !weir__tx_set_text(c, &p->state.error, weir__memory_error_text(park->error))) {
        return weir__memory_full(err);
    }
    p->state.attempts = park->attempts;
    p->state.parked_us = now_us;
    return WEIR_OK;
}

bool weir__memory_parked_remove(memory_core *c, memory_parked *p)
{
    char *error;
    memcpy(&error, &p->state.error.ptr, sizeof error);
    return take_back(c, p) && weir__tx_set_remove(c, &c->parked, &p->by_id) &&
           weir__tx_set_remove(c, &c->parked_by_event, &p->by_event) && weir__tx_free(c, error) &&
           weir__tx_free(c, p);
}

/* ---- the verbs ---------------------------------------------------------------------------- */

static weir_status not_found(int64_t id, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "no parked event with id %lld", (long long)id);
}

static weir_status retry_locked(memory_core *c, int64_t id, weir_error *err)
{
    memory_parked *p = weir__memory_parked_get(c, id);
    if (p == NULL) {
        return not_found(id, err);
    }
    memory_subscription *s = p->subscription;
    if (s == NULL) {
        return weir__fail(err, WEIR_EMISUSE,
                          "parked event %lld has no target: it was parked while routing",
                          (long long)id);
    }
    if (p->state.sent_back) {
        return WEIR_OK;
    }
    if (!weir__tx_edit(c, s->target) || !weir__tx_save(c, &p->state, sizeof p->state) ||
        !weir__tx_set_add(c, &s->target->sent_back, &p->by_sent_back)) {
        return weir__memory_full(err);
    }
    p->state.sent_back = true;
    s->state.sent_back++;
    return WEIR_OK;
}

weir_status weir__memory_parked_retry(weir_store *base, int64_t parked, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = retry_locked(h->core, parked, err);
    status = weir__tx_end(h, status, true);
    weir__unlock(&h->core->mu);
    return status;
}

static weir_status drop_locked(memory_core *c, int64_t id, weir_error *err)
{
    memory_parked *p = weir__memory_parked_get(c, id);
    if (p == NULL) {
        return not_found(id, err);
    }
    if ((p->subscription != NULL && !weir__tx_edit(c, p->subscription->target)) ||
        !weir__memory_parked_remove(c, p)) {
        return weir__memory_full(err);
    }
    return WEIR_OK;
}

weir_status weir__memory_parked_drop(weir_store *base, int64_t parked, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = drop_locked(h->core, parked, err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

static weir_str target_name(const memory_parked *p)
{
    const weir_str none = { 0 };
    return p->subscription == NULL ? none : p->subscription->target->item.key;
}

static bool parked_fill(const memory_parked *p, weir_arena *arena, store_parked *out)
{
    *out = (store_parked){
        .id = p->id,
        .reaction = p->reaction->id,
        .event = p->event,
        .attempts = p->state.attempts,
        .parked_us = p->state.parked_us,
        .sent_back = p->state.sent_back,
    };
    return weir__memory_text_copy(arena, weir__memory_reaction_name(p->reaction),
                                  &out->reaction_name) &&
           weir__memory_text_copy(arena, target_name(p), &out->target) &&
           weir__memory_text_copy(arena, p->state.error, &out->error);
}

static bool parked_wanted(const store_parked_query *q, const memory_parked *p)
{
    return (q->target.len == 0 || weir__str_equal(q->target, target_name(p))) &&
           (q->reaction.len == 0 ||
            weir__str_equal(q->reaction, weir__memory_reaction_name(p->reaction)));
}

static weir_status parked_locked(memory_core *c, const store_parked_query *q,
                                 store_parked_chunk *chunk, weir_error *err)
{
    const size_t max =
        q->limit < STORE_CHUNK_EVENTS_MAX ? (size_t)q->limit : STORE_CHUNK_EVENTS_MAX;
    const int64_t from = q->after == INT64_MAX ? INT64_MAX : q->after + 1;

    weir__arena_reset(&chunk->arena);
    chunk->parked_count = 0;
    chunk->more = false;
    chunk->parked = weir__arena_alloc(&chunk->arena, max * sizeof *chunk->parked);
    if (chunk->parked == NULL) {
        return weir__memory_full(err);
    }
    for (ordered_node *n = weir__ordered_seek(&c->parked, id_reached, &from); n != NULL;
         n = weir__ordered_next(&c->parked, n)) {
        const memory_parked *p = ORDERED_ITEM(n, memory_parked, by_id);
        if (!parked_wanted(q, p)) {
            continue;
        }
        if (chunk->parked_count == max) {
            chunk->more = true;
            break;
        }
        if (!parked_fill(p, &chunk->arena, &chunk->parked[chunk->parked_count++])) {
            return weir__memory_full(err);
        }
    }
    return WEIR_OK;
}

weir_status weir__memory_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = parked_locked(h->core, q, chunk, err);
    weir__unlock(&h->core->mu);
    return status;
}
