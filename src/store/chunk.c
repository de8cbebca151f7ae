/* chunk.c - the containers that reads fill, and what may go into them. */
#include "store/chunk.h"

#include "base/str.h"

void weir__chunk_free(store_chunk *chunk)
{
    weir__arena_free(&chunk->arena);
    *chunk = (store_chunk){ 0 };
}

void weir__chunk_clear(store_chunk *chunk)
{
    weir__arena_reset(&chunk->arena);
    chunk->events = NULL;
    chunk->events_count = 0;
    chunk->scanned_to = 0;
    chunk->more = false;
    chunk->held = false;
}

static bool text_add(weir_arena *arena, weir_str text, weir_str *out)
{
    out->ptr = weir__arena_copy(arena, text.len == 0 ? "" : text.ptr, text.len);
    out->len = text.len;
    return out->ptr != NULL;
}

bool weir__chunk_add(store_chunk *chunk, const weir_event *event, bool bare)
{
    weir_event *slot = &chunk->events[chunk->events_count];
    *slot = *event;
    /* Events of one stream often stand together, and so do those of one name: one copy serves
     * them all. */
    const weir_event *before = chunk->events_count == 0 ? NULL : slot - 1;
    if (before != NULL && weir__str_equal(before->stream, event->stream)) {
        slot->stream = before->stream;
    } else if (!text_add(&chunk->arena, event->stream, &slot->stream)) {
        return false;
    }
    if (before != NULL && weir__str_equal(before->name, event->name)) {
        slot->name = before->name;
    } else if (!text_add(&chunk->arena, event->name, &slot->name)) {
        return false;
    }
    if (bare) {
        slot->meta = slot->data = weir__str("");
    } else if (!text_add(&chunk->arena, event->meta, &slot->meta) ||
               !text_add(&chunk->arena, event->data, &slot->data)) {
        return false;
    }
    chunk->events_count++;
    return true;
}

void weir__leases_clear(store_lease_list *list)
{
    weir__arena_reset(&list->arena);
    list->leases = NULL;
    list->leases_count = 0;
}

bool weir__stream_wanted(const store_streams_query *q, weir_str name, bool closed)
{
    if ((q->closed == 1 && !closed) || (q->closed == 2 && closed)) {
        return false;
    }
    if (q->category.len > 0 && !weir__str_equal(weir__category(name), q->category)) {
        return false;
    }
    return q->pattern == NULL || weir__pattern_matches(q->pattern, name);
}

weir_status weir__holders_none(weir_store *s, store_holder_list *list, weir_error *err)
{
    (void)s;
    (void)err;
    weir__arena_reset(&list->arena);
    list->holders = NULL;
    list->holders_count = 0;
    return WEIR_OK;
}
