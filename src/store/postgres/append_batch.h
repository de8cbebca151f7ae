/* append_batch.h - what weir.append_batch wants to know of appends, and how its answer is read
 * (append_functions.sql).
 */
#ifndef WEIR_STORE_POSTGRES_APPEND_BATCH_H
#define WEIR_STORE_POSTGRES_APPEND_BATCH_H

#include "store/postgres/postgres_private.h"

/* A head is a stream of the batch, named by one append or by several. Zeroed is fine. */
typedef struct pg_heads {
    int32_t *memory; /* owned: all of the following; heads and streams number from 0 */
    size_t count, streams_count, events_count;
    int32_t *stream_heads;   /* of each stream of each append: its head     */
    int32_t *stream_appends; /* and its append                              */
    int32_t *head_streams;   /* of each head: the first stream that names it */
} pg_heads;

/* false: these appends are not for append_batch, or there is no memory. Nothing to free then. */
bool weir__pg_heads_find(pg_heads *h, store_append *const *appends, size_t count);
void weir__pg_heads_free(pg_heads *h);
/* all_or_none: one that is refused refuses all. */
void weir__pg_heads_params(const pg_heads *h, store_append *const *appends, bool all_or_none,
                           pg_params *p);
/* *written: false: one was refused, so nothing was done and the appends are as they were. */
weir_status weir__pg_heads_results(const pg_heads *h, const PGresult *result,
                                   store_append *const *appends, size_t count, bool *written,
                                   weir_error *err);

/* How many of the first appends, at least one, name no more than PG_APPEND_NAMES_MAX different
 * streams and keys. */
size_t weir__pg_group(store_append *const *appends, size_t count);

#endif
