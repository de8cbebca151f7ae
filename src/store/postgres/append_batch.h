/* append_batch.h - the heads of a batch of appends: what weir.append_batch wants beside the
 * arguments of weir.append, and how its answer is read (append_functions.sql).
 */
#ifndef WEIR_STORE_POSTGRES_APPEND_BATCH_H
#define WEIR_STORE_POSTGRES_APPEND_BATCH_H

#include "store/postgres/postgres_private.h"

/* A head is a stream of the batch, named by one append or by several. Zeroed is fine. */
typedef struct pg_heads {
    int32_t *memory; /* owned: all of the following, which number from 1 */
    size_t count, streams_count, events_count;
    int32_t *stream_heads;  /* the head of each stream of each append             */
    int32_t *stream_events; /* how many events the append has for it              */
    int32_t *streams;       /* of each head: the first stream that names it       */
    int32_t *counts;        /* of each head: how many events it gets              */
    int32_t *ends;          /* of each head: its last event                       */
    int32_t *event_heads;   /* the head of each event                             */
    int32_t *event_offsets; /* which of the new events of its head each event is  */
} pg_heads;

/* For appends that can be judged set-based. false: weir.append has to judge them; nothing to free.
 */
bool weir__pg_heads_find(pg_heads *h, store_append *const *appends, size_t count);
void weir__pg_heads_free(pg_heads *h);
/* Adds the arguments 18 to 21. */
void weir__pg_heads_params(const pg_heads *h, pg_params *p);
/* Whether all were written: then the answer is in heads and not in rows. */
bool weir__pg_heads_written(const PGresult *result);
weir_status weir__pg_heads_results(const pg_heads *h, const PGresult *result,
                                   store_append *const *appends, size_t count, weir_error *err);

#endif
