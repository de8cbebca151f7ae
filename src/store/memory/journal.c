/* journal.c - transactions: every change notes how it is undone before it is made.
 *
 * A verb changes the store as it goes and answers with a status; weir__tx_end then either forgets
 * the notes or follows them backwards. Following them never allocates: nodes go back into sets,
 * items back into tables that have kept their room, saved bytes back where they were. So an
 * allocation that fails anywhere, or a refusal found late, leaves the store as it was.
 *
 * INVARIANTS
 *   (1) Between transactions the journal is empty and every target is placed where its state says.
 *   (2) A target that was taken out of its sets (weir__tx_edit) has its TARGET_EDITED entry before
 *       all saves of its state, so that undoing puts it back when its state is the old one again.
 *       Between TARGET_PLACED and a second TARGET_EDITED it is in its sets, as its state says then.
 *   (3) What is not undone has no meaning of its own: room that was made, words and lanes that were
 *       interned, expired keys that were removed.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

enum {
    JOURNAL_ENTRIES_MIN = 64,
    JOURNAL_ENTRIES_KEPT_MAX = 16384,
    JOURNAL_BYTES_KEPT_MAX = 1024 * 1024,
};

typedef enum journal_kind {
    SAVED,              /* a: where the bytes came from              */
    ALLOCATED,          /* a: to free when undone                    */
    FREED,              /* a: to free when committed                 */
    SET_ADDED,          /* a: set, b: node                           */
    SET_REMOVED,        /* a: set, b: node                           */
    TABLE_ADDED,        /* a: table, b: item                         */
    TABLE_REMOVED,      /* a: table, b: item                         */
    NAME_ADDED,         /* a: index of names, b: item                */
    EVENT_ADDED,        /* a: event                                  */
    STREAM_ADDED,       /* a: stream                                 */
    TARGET_ADDED,       /* a: target                                 */
    TARGET_EDITED,      /* a: target                                 */
    TARGET_PLACED,      /* a: target                                 */
    SUBSCRIPTION_ADDED, /* a: subscription                           */
    DEFINITION_ADDED,   /* a: reaction                               */
    REACTION_ADDED,     /* a: reaction                               */
} journal_kind;

static bool room(journal *j)
{
    if (j->count < j->capacity) {
        return true;
    }
    const size_t capacity = j->capacity == 0 ? JOURNAL_ENTRIES_MIN : j->capacity * 2;
    size_t bytes;
    if (__builtin_mul_overflow(capacity, sizeof(journal_entry), &bytes)) {
        return false;
    }
    journal_entry *entries = weir__realloc(j->entries, bytes);
    if (entries == NULL) {
        return false;
    }
    j->entries = entries;
    j->capacity = capacity;
    return true;
}

static bool note(memory_core *c, journal_kind kind, void *a, void *b)
{
    journal *j = &c->journal;
    if (!room(j)) {
        return false;
    }
    j->entries[j->count++] = (journal_entry){ .kind = (uint32_t)kind, .a = a, .b = b };
    return true;
}

bool weir__tx_save(memory_core *c, void *ptr, size_t bytes)
{
    journal *j = &c->journal;
    const size_t offset = j->saved.len;
    if (!room(j) || !weir__buffer_add(&j->saved, ptr, bytes)) {
        return false;
    }
    j->entries[j->count++] =
        (journal_entry){ .kind = SAVED, .bytes = bytes, .offset = offset, .a = ptr };
    return true;
}

void *weir__tx_alloc(memory_core *c, size_t bytes)
{
    if (!room(&c->journal)) {
        return NULL;
    }
    void *ptr = weir__calloc(1, bytes);
    if (ptr != NULL) {
        const bool noted = note(c, ALLOCATED, ptr, NULL);
        WEIR_ASSERT(noted);
    }
    return ptr;
}

bool weir__tx_free(memory_core *c, void *ptr)
{
    return ptr == NULL || note(c, FREED, ptr, NULL);
}

bool weir__tx_set_add(memory_core *c, ordered_set *set, ordered_node *node)
{
    if (!note(c, SET_ADDED, set, node)) {
        return false;
    }
    weir__ordered_add(set, node);
    return true;
}

bool weir__tx_set_remove(memory_core *c, ordered_set *set, ordered_node *node)
{
    if (!note(c, SET_REMOVED, set, node)) {
        return false;
    }
    weir__ordered_remove(set, node);
    return true;
}

bool weir__tx_table_add(memory_core *c, table *t, table_item *item)
{
    if (!weir__table_reserve(t) || !note(c, TABLE_ADDED, t, item)) {
        return false;
    }
    weir__table_add(t, item);
    return true;
}

bool weir__tx_name_add(memory_core *c, name_index *index, table_item *item)
{
    if (!room(&c->journal) || !weir__name_index_add(index, item)) {
        return false;
    }
    const bool noted = note(c, NAME_ADDED, index, item);
    WEIR_ASSERT(noted);
    return true;
}

bool weir__tx_table_remove(memory_core *c, table *t, table_item *item)
{
    if (!note(c, TABLE_REMOVED, t, item)) {
        return false;
    }
    weir__table_remove(t, item);
    return true;
}

bool weir__tx_set_text(memory_core *c, weir_str *field, weir_str text)
{
    if (weir__str_equal(*field, text)) {
        return true;
    }
    char *copy = NULL;
    if (text.len > 0) {
        copy = weir__tx_alloc(c, text.len);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, text.ptr, text.len);
    }
    /* The old text was made here too, so it may be freed although the field is const. */
    char *old;
    memcpy(&old, &field->ptr, sizeof old);
    if (!weir__tx_save(c, field, sizeof *field) || !weir__tx_free(c, old)) {
        return false;
    }
    *field = (weir_str){ .ptr = copy, .len = text.len };
    return true;
}

bool weir__tx_add_event(memory_core *c, memory_event *event)
{
    if (!note(c, EVENT_ADDED, event, NULL)) {
        return false;
    }
    event_list *stream = &event->stream->events;
    event_list *name = &event->name->events;
    event_list *category = &event->stream->category->events;
    stream->items[stream->count++] = event;
    name->items[name->count++] = event;
    category->items[category->count++] = event;
    c->log[c->log_count / LOG_BLOCK_EVENTS][c->log_count % LOG_BLOCK_EVENTS] = event;
    c->log_count++;
    return true;
}

bool weir__tx_add_stream(memory_core *c, memory_stream *stream)
{
    return note(c, STREAM_ADDED, stream, NULL);
}

bool weir__tx_add_target(memory_core *c, memory_target *target)
{
    if (!note(c, TARGET_ADDED, target, NULL)) {
        return false;
    }
    c->targets[c->targets_count++] = target;
    target->edited_serial = c->journal.serial;
    return true;
}

bool weir__tx_add_subscription(memory_core *c, memory_subscription *subscription)
{
    memory_target *t = subscription->target;
    WEIR_ASSERT(t->edited_serial == c->journal.serial);
    if (!note(c, SUBSCRIPTION_ADDED, subscription, NULL)) {
        return false;
    }
    size_t i = t->subscriptions_count++;
    for (; i > 0 && t->subscriptions[i - 1]->reaction->id > subscription->reaction->id; i--) {
        t->subscriptions[i] = t->subscriptions[i - 1];
    }
    t->subscriptions[i] = subscription;
    return true;
}

bool weir__tx_add_definition(memory_core *c, memory_reaction *reaction, memory_definition *d)
{
    if (!note(c, DEFINITION_ADDED, reaction, NULL)) {
        return false;
    }
    reaction->definitions[reaction->definitions_count++] = d;
    return true;
}

bool weir__tx_add_reaction(memory_core *c, memory_reaction *reaction)
{
    if (!note(c, REACTION_ADDED, reaction, NULL)) {
        return false;
    }
    c->reactions[c->reactions_count++] = reaction;
    return true;
}

bool weir__tx_edit(memory_core *c, memory_target *target)
{
    if (target->edited_serial == c->journal.serial) {
        return true;
    }
    if (!note(c, TARGET_EDITED, target, NULL)) {
        return false;
    }
    weir__memory_unplace(target);
    target->edited_serial = c->journal.serial;
    if (!weir__tx_save(c, &target->state, sizeof target->state)) {
        return false;
    }
    for (size_t i = 0; i < target->subscriptions_count; i++) {
        memory_subscription *s = target->subscriptions[i];
        if (!weir__tx_save(c, &s->state, sizeof s->state)) {
            return false;
        }
    }
    return true;
}

static void place_again(memory_target *target)
{
    weir__memory_derive(target);
    weir__memory_place(target);
    target->edited_serial = 0;
}

bool weir__tx_place(memory_core *c)
{
    const journal *j = &c->journal;
    const size_t count = j->count;
    for (size_t i = 0; i < count; i++) {
        memory_target *target = j->entries[i].a;
        if (j->entries[i].kind != TARGET_EDITED || target->edited_serial != j->serial) {
            continue;
        }
        if (!note(c, TARGET_PLACED, target, NULL)) {
            return false;
        }
        place_again(target);
    }
    return true;
}

static void undo_event(memory_core *c, memory_event *event)
{
    c->log_count--;
    event->stream->events.count--;
    event->name->events.count--;
    event->stream->category->events.count--;
    weir__free(event);
}

static void undo_subscription(memory_subscription *s)
{
    memory_target *t = s->target;
    size_t i = 0;
    while (t->subscriptions[i] != s) {
        i++;
    }
    t->subscriptions_count--;
    for (; i < t->subscriptions_count; i++) {
        t->subscriptions[i] = t->subscriptions[i + 1];
    }
}

static void undo(memory_core *c, const journal_entry *e)
{
    memory_reaction *reaction;
    memory_target *target;

    switch ((journal_kind)e->kind) {
    case SAVED:
        memcpy(e->a, c->journal.saved.ptr + e->offset, e->bytes);
        break;
    case ALLOCATED:
        weir__free(e->a);
        break;
    case FREED:
        break;
    case SET_ADDED:
        weir__ordered_remove(e->a, e->b);
        break;
    case SET_REMOVED:
        weir__ordered_add(e->a, e->b);
        break;
    case TABLE_ADDED:
        weir__table_remove(e->a, e->b);
        break;
    case TABLE_REMOVED:
        weir__table_add(e->a, e->b);
        break;
    case NAME_ADDED:
        weir__name_index_remove(e->a, e->b);
        break;
    case EVENT_ADDED:
        undo_event(c, e->a);
        break;
    case STREAM_ADDED:
        weir__free(((memory_stream *)e->a)->events.items);
        break;
    case TARGET_ADDED:
        target = e->a;
        weir__free(target->subscriptions);
        target->subscriptions = NULL;
        c->targets_count--;
        break;
    case TARGET_EDITED:
        weir__memory_place(e->a);
        break;
    case TARGET_PLACED:
        weir__memory_unplace(e->a);
        break;
    case SUBSCRIPTION_ADDED:
        undo_subscription(e->a);
        break;
    case DEFINITION_ADDED:
        reaction = e->a;
        weir__memory_definition_free(reaction->definitions[--reaction->definitions_count]);
        break;
    case REACTION_ADDED:
        reaction = e->a;
        weir__free(reaction->definitions);
        reaction->definitions = NULL;
        c->reactions_count--;
        break;
    }
}

size_t weir__tx_savepoint(const memory_core *c)
{
    return c->journal.count;
}

void weir__tx_undo_to(memory_core *c, size_t savepoint)
{
    journal *j = &c->journal;
    while (j->count > savepoint) {
        undo(c, &j->entries[--j->count]);
    }
}

static bool still_edited(const memory_core *c, const journal_entry *e)
{
    return (e->kind == TARGET_EDITED || e->kind == TARGET_ADDED) &&
           ((const memory_target *)e->a)->edited_serial == c->journal.serial;
}

static void commit(memory_core *c)
{
    journal *j = &c->journal;
    for (size_t i = 0; i < j->count; i++) {
        const journal_entry *e = &j->entries[i];
        if (e->kind == FREED) {
            weir__free(e->a);
        } else if (still_edited(c, e)) {
            place_again(e->a);
        }
    }
    j->count = 0;
}

weir_status weir__tx_end(memory_handle *h, weir_status status, bool wake)
{
    memory_core *c = h->core;
    journal *j = &c->journal;

    if (status == WEIR_OK) {
        commit(c);
        h->transactions++;
    } else {
        weir__tx_undo_to(c, 0);
    }
    j->serial++;
    weir__buffer_clear(&j->saved);
    if (j->capacity > JOURNAL_ENTRIES_KEPT_MAX || j->saved.capacity > JOURNAL_BYTES_KEPT_MAX) {
        const uint64_t serial = j->serial;
        weir__journal_free(j);
        j->serial = serial;
    }
    if (status == WEIR_OK && wake) {
        weir__memory_wake(c);
    }
    return status;
}

void weir__journal_free(journal *j)
{
    weir__free(j->entries);
    weir__buffer_free(&j->saved);
    *j = (journal){ 0 };
}
