/* chunk.h - the containers that adapters fill, and what may go into them. */
#ifndef WEIR_STORE_CHUNK_H
#define WEIR_STORE_CHUNK_H

#include "store/store.h"

/* Empty again, with the memory that they have. */
void weir__chunk_clear(store_chunk *chunk);
void weir__leases_clear(store_lease_list *list);
/* How many a chunk may have of `limit` that were asked for. */
static inline size_t weir__chunk_limit(int64_t limit, size_t most)
{
    return (uint64_t)limit < most ? (size_t)limit : most;
}
/* Copies an event into chunk->events, where there is room for it; of a bare one neither data nor
 * meta. false: out of memory. */
bool weir__chunk_add(store_chunk *chunk, const weir_event *event, bool bare);
/* Whether a query wants a stream. */
bool weir__stream_wanted(const store_streams_query *q, weir_str name, bool closed);

#endif
