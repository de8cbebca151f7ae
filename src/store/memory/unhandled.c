/* unhandled.c - which reactions still have something to do with a stream: what closing asks. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

static bool value_reached(const void *key, const ordered_node *node)
{
    const weir_str *value = key;
    const memory_subscription *s = ORDERED_ITEM_CONST(node, memory_subscription, by_value);
    return weir__str_compare(s->state.value, *value) >= 0;
}

/* The least `at` of a reaction's subscriptions for a value (NULL: for any); INT64_MAX: there are
 * none. */
static int64_t least_at(memory_reaction *r, const weir_str *value)
{
    int64_t least = INT64_MAX;
    ordered_node *n = value == NULL ? weir__ordered_first(&r->by_value)
                                    : weir__ordered_seek(&r->by_value, value_reached, value);

    for (; n != NULL; n = weir__ordered_next(&r->by_value, n)) {
        const memory_subscription *s = ORDERED_ITEM(n, memory_subscription, by_value);
        if (value != NULL && !weir__str_equal(s->state.value, *value)) {
            break;
        }
        least = s->state.at < least ? s->state.at : least;
    }
    return least;
}

static bool work_reached(const void *key, const ordered_node *node)
{
    const int64_t *event = key;
    return ORDERED_ITEM_CONST(node, memory_work, by_reaction)->event >= *event;
}

static bool has_work_row(memory_reaction *r, int64_t event)
{
    const ordered_node *n = weir__ordered_seek(&r->work, work_reached, &event);
    return n != NULL && ORDERED_ITEM_CONST(n, memory_work, by_reaction)->event == event;
}

/* Whether an event that is routed and that the reaction listens to has not been handled. */
static bool event_unhandled(memory_reaction *r, const memory_event *e, int64_t least)
{
    switch (weir__memory_current(r)->rule) {
    case STORE_RULE_CONSTANT:
    case STORE_RULE_STREAM:
    case STORE_RULE_CATEGORY:
        return e->id > least;
    case STORE_RULE_NAME:
        return e->id > least_at(r, &e->name->item.key);
    case STORE_RULE_WORK:
        return has_work_row(r, e->id);
    }
    return false;
}

/* Where one subscription is for all events of the stream, its `at`; INT64_MAX: there is none. */
static int64_t stream_at(memory_reaction *r, const memory_stream *s)
{
    switch (weir__memory_current(r)->rule) {
    case STORE_RULE_CONSTANT:
        return least_at(r, NULL);
    case STORE_RULE_STREAM:
        return least_at(r, &s->item.key);
    case STORE_RULE_CATEGORY:
        return least_at(r, &s->category->item.key);
    case STORE_RULE_NAME:
    case STORE_RULE_WORK:
        break;
    }
    return INT64_MAX;
}

static bool reaction_holds(memory_reaction *r, const memory_stream *s)
{
    const memory_definition *d = weir__memory_current(r);
    if (r->state.retired || !weir__pattern_matches(d->pattern, s->item.key)) {
        return false;
    }
    const int64_t at = stream_at(r, s);
    const size_t first = weir__memory_list_after(&s->events, r->state.since);
    /* Newest first: what is unhandled is most likely the end of the stream. */
    for (size_t i = s->events.count; i > first; i--) {
        const memory_event *e = s->events.items[i - 1];
        if (weir__memory_listens(d, e) && (e->id > r->state.routed || event_unhandled(r, e, at))) {
            return true;
        }
    }
    return false;
}

enum { NAMES_BYTES_MAX = 700 }; /* the longest name, and the sign that there are more */

/* A list of names that is shown to people, as far as there is room. */
typedef struct name_list {
    char text[NAMES_BYTES_MAX];
    size_t used, count;
    bool cut;
} name_list;

static void list_put(name_list *list, weir_str text)
{
    memcpy(list->text + list->used, text.ptr, text.len);
    list->used += text.len;
}

static void list_add(name_list *list, weir_str name)
{
    const weir_str comma = weir__str(", ");
    const weir_str more = weir__str("...");
    const bool fits =
        list->used + name.len + 2 * comma.len + more.len <= NAMES_BYTES_MAX && !list->cut;

    if (fits || !list->cut) {
        if (list->count > 0) {
            list_put(list, comma);
        }
        list_put(list, fits ? name : more);
        list->cut = !fits;
    }
    list->count++;
}

weir_status weir__memory_unhandled(const memory_core *c, const memory_stream *s, weir_error *err)
{
    name_list list = { .used = 0 };

    for (size_t i = 0; i < c->reactions_count; i++) {
        if (reaction_holds(c->reactions[i], s)) {
            list_add(&list, weir__memory_reaction_name(c->reactions[i]));
        }
    }
    if (list.count == 0) {
        return WEIR_OK;
    }
    weir__fail(err, WEIR_EHELD, "stream \"%.*s\" has events that were not handled by: %.*s",
               (int)s->item.key.len, s->item.key.ptr, (int)list.used, list.text);
    weir__error_stream(err, s->item.key);
    return WEIR_EHELD;
}
