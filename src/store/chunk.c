/* chunk.c - the containers that reads fill, and what may go into them. */
#include "store/store.h"

#include "base/str.h"

void weir__chunk_free(store_chunk *chunk)
{
    weir__arena_free(&chunk->arena);
    *chunk = (store_chunk){ 0 };
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
