/* targets.h - what the files of the operator's side of the PostgreSQL adapter share. */
#ifndef WEIR_STORE_POSTGRES_TARGETS_H
#define WEIR_STORE_POSTGRES_TARGETS_H

#include "store/postgres/postgres_private.h"

/* ---- targets.c ----------------------------------------------------------------------------- */

/* One step of a walk over the targets that a filter accepts, in the order of their names. */
typedef struct pg_walk {
    const store_target_filter *filter; /* borrowed */
    weir_str after;                    /* borrowed: only names above it */
    size_t limit;                      /* accepted targets at most */
    size_t looked_max;                 /* names looked at at most */
    /* results */
    int64_t *ids; /* of the accepted targets by name, in the arena given */
    size_t ids_count;
    weir_str scanned_to; /* the last name looked at, in the arena given */
    bool more;           /* whether there are names above it */
} pg_walk;

weir_status weir__pg_walk(pg_store *s, pg_walk *walk, weir_arena *arena, weir_error *err);

#endif
