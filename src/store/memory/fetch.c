/* fetch.c - the events of a subscription, found by the list that fits its rule. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <string.h>

/* The first event of a list above a position that the reaction listens to. */
static memory_event *next_in_list(const event_list *list, const memory_definition *d, int64_t after,
                                  int64_t up_to)
{
    for (size_t i = weir__memory_list_after(list, after); i < list->count; i++) {
        memory_event *e = list->items[i];
        if (e->id > up_to) {
            return NULL;
        }
        if (weir__memory_listens(d, e)) {
            return e;
        }
    }
    return NULL;
}

static memory_event *next_in_word(const table *words, weir_str word, const memory_definition *d,
                                  int64_t after, int64_t up_to)
{
    const memory_word *w = weir__memory_word_find(words, word);
    return w == NULL ? NULL : next_in_list(&w->events, d, after, up_to);
}

static memory_event *next_in_stream(const memory_core *c, weir_str name, const memory_definition *d,
                                    int64_t after, int64_t up_to)
{
    const memory_stream *s = weir__memory_stream_find(c, name);
    return s == NULL ? NULL : next_in_list(&s->events, d, after, up_to);
}

static memory_event *next_in_log(const memory_core *c, const memory_definition *d, int64_t after,
                                 int64_t up_to)
{
    const int64_t head = weir__memory_head(c);
    int64_t id = after < c->position_base ? c->position_base + 1 : after + 1;
    for (; id <= up_to && id <= head; id++) {
        memory_event *e = weir__memory_event_at(c, id);
        if (weir__memory_listens(d, e)) {
            return e;
        }
    }
    return NULL;
}

/* Everything a reaction listens to: by its stream, by its category, by its names, or by the log. */
static memory_event *next_of_constant(const memory_core *c, const memory_definition *d,
                                      int64_t after, int64_t up_to)
{
    if (d->pattern->kind == PATTERN_EXACT) {
        return next_in_stream(c, d->pattern->name, d, after, up_to);
    }
    /* A prefix that goes beyond the first '-' lies inside one category. */
    const weir_str category = weir__category(d->pattern->name);
    if (d->pattern->kind == PATTERN_PREFIX && category.len < d->pattern->name.len) {
        return next_in_word(&c->categories, category, d, after, up_to);
    }
    if (d->all_names) {
        return next_in_log(c, d, after, up_to);
    }
    memory_event *first = NULL;
    for (size_t i = 0; i < d->names_count; i++) {
        memory_event *e =
            next_in_word(&c->names, d->names[i], d, after, first == NULL ? up_to : first->id);
        first = e == NULL ? first : e;
    }
    return first;
}

static bool event_reached(const void *key, const ordered_node *node)
{
    const int64_t *after = key;
    return ORDERED_ITEM_CONST(node, memory_work, by_event)->event > *after;
}

static memory_event *next_of_work(const memory_core *c, memory_subscription *s,
                                  const memory_definition *d, int64_t after, int64_t up_to)
{
    ordered_node *n = weir__ordered_seek(&s->work, event_reached, &after);
    for (; n != NULL; n = weir__ordered_next(&s->work, n)) {
        const int64_t id = ORDERED_ITEM(n, memory_work, by_event)->event;
        if (id > up_to || id > weir__memory_head(c) || id <= c->position_base) {
            return NULL;
        }
        memory_event *e = weir__memory_event_at(c, id);
        if (weir__memory_listens(d, e)) {
            return e;
        }
    }
    return NULL;
}

memory_event *weir__memory_next_event(const memory_core *c, memory_subscription *s, int64_t after,
                                      int64_t up_to)
{
    const memory_definition *d = weir__memory_current(s->reaction);
    switch (d->rule) {
    case STORE_RULE_CONSTANT:
        return next_of_constant(c, d, after, up_to);
    case STORE_RULE_STREAM:
        return next_in_stream(c, s->state.value, d, after, up_to);
    case STORE_RULE_CATEGORY:
        return next_in_word(&c->categories, s->state.value, d, after, up_to);
    case STORE_RULE_NAME:
        return next_in_word(&c->names, s->state.value, d, after, up_to);
    case STORE_RULE_WORK:
        return next_of_work(c, s, d, after, up_to);
    }
    return NULL;
}

/* A list on its way. It is full when either of its limits is reached. */
typedef struct filling {
    store_fetch_list *list;
    bool *exhausted; /* in the list's arena */
    size_t bytes;
} filling;

static bool is_full(const filling *f)
{
    return f->list->events_count >= STORE_FETCH_EVENTS_MAX ||
           f->bytes >= weir__fetch_bytes_soft(f->list);
}

static weir_status fetch_item(const memory_core *c, const store_fetch_item *item,
                              uint32_t item_index, filling *f, weir_error *err)
{
    store_fetch_list *list = f->list;
    const memory_target *t = weir__memory_target(c, item->target);
    memory_subscription *s =
        t == NULL ? NULL : weir__memory_subscription(t, weir__memory_reaction(c, item->reaction));
    if (s == NULL) {
        return weir__fail(err, WEIR_ENOTFOUND, "target %lld has no subscription of reaction %lld",
                          (long long)item->target, (long long)item->reaction);
    }
    int64_t after = item->after;
    const weir_event *same = NULL;
    for (int64_t n = 0; n < item->limit && !is_full(f); n++) {
        const memory_event *e = weir__memory_next_event(c, s, after, item->up_to);
        if (e == NULL) {
            f->exhausted[item_index] = true;
            break;
        }
        weir_event *copy = weir__arena_alloc(&list->arena, sizeof *copy);
        if (copy == NULL || !weir__memory_event_copy(&list->arena, e, same, false, copy)) {
            return weir__memory_full(err);
        }
        list->events[list->events_count++] =
            (store_fetched){ .event = copy, .item_index = item_index };
        same = copy;
        after = e->id;
        f->bytes += copy->data.len + copy->meta.len;
    }
    return WEIR_OK;
}

/* No more than this can come. */
static size_t room_for(const store_fetch_item *items, size_t count)
{
    size_t room = 0;
    for (size_t i = 0; i < count && room < STORE_FETCH_EVENTS_MAX; i++) {
        const size_t left = STORE_FETCH_EVENTS_MAX - room;
        room += (uint64_t)items[i].limit < left ? (size_t)items[i].limit : left;
    }
    return room;
}

weir_status weir__memory_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = WEIR_OK;
    filling f = { .list = list };

    weir__arena_reset(&list->arena);
    list->events_count = 0;
    const size_t room = room_for(items, count);
    list->events = weir__arena_alloc(&list->arena, (room + 1) * sizeof *list->events);
    f.exhausted = weir__arena_alloc(&list->arena, (count + 1) * sizeof *f.exhausted);
    if (list->events == NULL || f.exhausted == NULL) {
        return weir__memory_full(err);
    }
    memset(f.exhausted, 0, (count + 1) * sizeof *f.exhausted);
    list->exhausted = f.exhausted;
    weir__lock(&h->core->mu);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = fetch_item(h->core, &items[i], (uint32_t)i, &f, err);
    }
    weir__unlock(&h->core->mu);
    if (status != WEIR_OK) {
        list->events_count = 0;
    }
    return status;
}
