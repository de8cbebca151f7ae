/* chunk.c - ending the containers that reads fill. */
#include "store/store.h"

void weir__chunk_free(store_chunk *chunk)
{
    weir__arena_free(&chunk->arena);
    *chunk = (store_chunk){ 0 };
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
