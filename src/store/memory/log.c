/* log.c - the log, its streams, and the words that index it: names and categories.
 *
 * Positions have no gaps here: position_base + 1, + 2, ... so an event is found by arithmetic. The
 * log is an array of blocks, so that growing it never moves what is there. Every event is one
 * allocation and is listed four times: in the log, its stream, its name and its category.
 *
 * INVARIANTS
 *   (1) Every list of events is ascending by position; `created_us` never goes back along it.
 *   (2) An event's version is version_base plus its index in its stream.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

enum { LIST_MIN = 2, BLOCKS_MIN = 16 };

weir_status weir__memory_full(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

bool weir__memory_room(void *items, size_t count, size_t *capacity, size_t minimum)
{
    void *array;
    size_t bytes;

    if (count < *capacity) {
        return true;
    }
    const size_t grown = *capacity == 0 ? minimum : *capacity * 2;
    if (__builtin_mul_overflow(grown, sizeof(void *), &bytes)) {
        return false;
    }
    /* `items` is the address of a pointer of whatever type: it is read and written as bytes. */
    memcpy(&array, items, sizeof array);
    array = weir__realloc(array, bytes);
    if (array == NULL) {
        return false;
    }
    memcpy(items, &array, sizeof array);
    *capacity = grown;
    return true;
}

static bool list_room(event_list *list)
{
    return weir__memory_room(&list->items, list->count, &list->capacity, LIST_MIN);
}

int64_t weir__memory_head(const memory_core *c)
{
    return c->log_count == 0 ? 0 : c->position_base + (int64_t)c->log_count;
}

memory_event *weir__memory_event_at(const memory_core *c, int64_t id)
{
    const size_t index = (size_t)(id - c->position_base - 1);
    WEIR_ASSERT(index < c->log_count);
    return c->log[index / LOG_BLOCK_EVENTS][index % LOG_BLOCK_EVENTS];
}

memory_stream *weir__memory_stream_find(const memory_core *c, weir_str name)
{
    return (memory_stream *)(void *)weir__table_find(&c->streams, weir__str_hash(name), name);
}

memory_word *weir__memory_word_find(const table *words, weir_str name)
{
    return (memory_word *)(void *)weir__table_find(words, weir__str_hash(name), name);
}

int64_t weir__memory_stream_version(const memory_core *c, const memory_stream *s)
{
    return c->version_base + (int64_t)s->events.count - 1;
}

weir_str weir__memory_data(const memory_event *e)
{
    return (weir_str){ .ptr = e->bytes, .len = e->data_bytes };
}

weir_str weir__memory_meta(const memory_event *e)
{
    return (weir_str){ .ptr = e->bytes + e->data_bytes, .len = e->meta_bytes };
}

/* Interns a word. NULL: out of memory. */
static memory_word *word_ensure(table *words, weir_str name)
{
    memory_word *word = weir__memory_word_find(words, name);
    if (word != NULL) {
        return word;
    }
    if (!weir__table_reserve(words)) {
        return NULL;
    }
    word = weir__calloc(1, sizeof *word + name.len);
    if (word == NULL) {
        return NULL;
    }
    memcpy(word->bytes, name.ptr, name.len);
    word->item.key = (weir_str){ .ptr = word->bytes, .len = name.len };
    word->item.hash = weir__str_hash(name);
    weir__table_add(words, &word->item);
    return word;
}

/* A stream without events, inside a transaction that gives it one. NULL: out of memory. */
static memory_stream *stream_add(memory_core *c, weir_str name)
{
    memory_word *category = word_ensure(&c->categories, weir__category(name));
    memory_stream *s = category == NULL ? NULL : weir__tx_alloc(c, sizeof *s + name.len);
    if (s == NULL) {
        return NULL;
    }
    memcpy(s->bytes, name.ptr, name.len);
    s->item.key = (weir_str){ .ptr = s->bytes, .len = name.len };
    s->item.hash = weir__str_hash(name);
    s->category = category;
    return weir__tx_add_stream(c, s) && weir__tx_table_add(c, &c->streams, &s->item) &&
                   weir__tx_name_add(c, &c->streams_by_name, &s->item)
               ? s
               : NULL;
}

/* Room for one more event in the log. */
static bool log_room(memory_core *c)
{
    const size_t blocks = c->log_count / LOG_BLOCK_EVENTS + 1;
    if (blocks <= c->log_blocks) {
        return true;
    }
    if (!weir__memory_room(&c->log, c->log_blocks, &c->log_blocks_capacity, BLOCKS_MIN)) {
        return false;
    }
    memory_event **block = weir__malloc(LOG_BLOCK_EVENTS * sizeof(memory_event *));
    if (block == NULL) {
        return false;
    }
    c->log[c->log_blocks++] = block;
    return true;
}

weir_status weir__memory_event_add(memory_core *c, memory_stream **stream, weir_str stream_name,
                                   const store_new_event *event, int64_t now_us, weir_error *err)
{
    memory_word *name = word_ensure(&c->names, event->name);
    if (name == NULL || !log_room(c)) {
        return weir__memory_full(err);
    }
    if (*stream == NULL) {
        *stream = stream_add(c, stream_name);
    }
    memory_stream *s = *stream;
    if (s == NULL || !list_room(&s->events) || !list_room(&name->events) ||
        !list_room(&s->category->events)) {
        return weir__memory_full(err);
    }
    memory_event *e = weir__malloc(sizeof *e + event->data.len + event->meta.len);
    if (e == NULL) {
        return weir__memory_full(err);
    }
    *e = (memory_event){
        .stream = s,
        .name = name,
        .id = c->position_base + (int64_t)c->log_count + 1,
        .version = weir__memory_stream_version(c, s) + 1,
        .created_us = now_us,
        .data_bytes = (uint32_t)event->data.len,
        .meta_bytes = (uint32_t)event->meta.len,
    };
    if (event->data.len > 0) {
        memcpy(e->bytes, event->data.ptr, event->data.len);
    }
    if (event->meta.len > 0) {
        memcpy(e->bytes + event->data.len, event->meta.ptr, event->meta.len);
    }
    if (!weir__tx_add_event(c, e)) {
        weir__free(e);
        return weir__memory_full(err);
    }
    return WEIR_OK;
}

size_t weir__memory_list_after(const event_list *list, int64_t id)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (list->items[middle]->id <= id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int64_t weir__memory_position_before(const memory_core *c, int64_t time_us)
{
    int64_t low = 0;
    int64_t high = (int64_t)c->log_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (weir__memory_event_at(c, c->position_base + middle + 1)->created_us < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? 0 : c->position_base + low;
}

bool weir__memory_text_copy(weir_arena *arena, weir_str text, weir_str *out)
{
    const char *copy = weir__arena_copy(arena, text.ptr, text.len);
    if (copy == NULL) {
        return false;
    }
    *out = (weir_str){ .ptr = copy, .len = text.len };
    return true;
}

bool weir__memory_event_copy(weir_arena *arena, const memory_event *e, const weir_event *same,
                             bool bare, weir_event *out)
{
    weir_str stream = e->stream->item.key;
    weir_str name = e->name->item.key;
    const size_t data_bytes = bare ? 0 : e->data_bytes;
    const size_t meta_bytes = bare ? 0 : e->meta_bytes;

    /* Neighbours are often of one stream or name: their texts are then shared. */
    if (same != NULL && weir__str_equal(same->stream, stream)) {
        stream = same->stream;
    } else if (!weir__memory_text_copy(arena, stream, &stream)) {
        return false;
    }
    if (same != NULL && weir__str_equal(same->name, name)) {
        name = same->name;
    } else if (!weir__memory_text_copy(arena, name, &name)) {
        return false;
    }
    const char *copy = bare ? "" : weir__arena_copy(arena, e->bytes, data_bytes + meta_bytes);
    if (copy == NULL) {
        return false;
    }
    *out = (weir_event){
        .size = sizeof *out,
        .id = e->id,
        .version = e->version,
        .created_us = e->created_us,
        .stream = stream,
        .name = name,
        .data = { .ptr = copy, .len = data_bytes },
        .meta = { .ptr = copy + data_bytes, .len = meta_bytes },
    };
    return true;
}

static void words_free(table *words)
{
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(words, &cursor)) != NULL;) {
        memory_word *word = (memory_word *)(void *)item;
        weir__free(word->events.items);
        weir__free(word);
    }
    weir__table_free(words);
}

/* In the order in which it was made, which is kinder to the heap and the caches than the order of a
 * table: a stream goes with its first event, and its other events do not look at it any more. */
void weir__memory_log_free(memory_core *c)
{
    for (size_t i = 0; i < c->log_count; i++) {
        memory_event *e = c->log[i / LOG_BLOCK_EVENTS][i % LOG_BLOCK_EVENTS];
        if (e->version == c->version_base) {
            weir__free(e->stream->events.items);
            weir__free(e->stream);
        }
        weir__free(e);
    }
    weir__table_free(&c->streams);
    weir__name_index_free(&c->streams_by_name);
    for (size_t i = 0; i < c->log_blocks; i++) {
        weir__free(c->log[i]);
    }
    weir__free(c->log);
    words_free(&c->names);
    words_free(&c->categories);
}
