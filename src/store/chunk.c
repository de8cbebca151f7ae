/* chunk.c - ending the containers that reads fill. */
#include "store/store.h"

void weir__chunk_free(store_chunk *chunk)
{
    weir__arena_free(&chunk->arena);
    *chunk = (store_chunk){ 0 };
}
