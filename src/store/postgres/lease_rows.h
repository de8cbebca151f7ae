/* lease_rows.h - what weir.lease takes and answers, for the verbs that lease (lease.c, turn.c). */
#ifndef WEIR_STORE_POSTGRES_LEASE_ROWS_H
#define WEIR_STORE_POSTGRES_LEASE_ROWS_H

#include "store/postgres/postgres_private.h"

/* The columns of sql_lease and sql_turn. */
enum {
    LEASE_TARGET,
    LEASE_NAME,
    LEASE_FENCE,
    LEASE_TOKEN,
    LEASE_UNTIL,
    LEASE_WATERMARK,
    LEASE_PRIORITY,
    LEASE_LOST,
    LEASE_KIND,
    LEASE_REACTION,
    LEASE_FIRST,
    LEASE_SECOND,
    LEASE_THIRD,
    LEASE_SOURCE,
    LEASE_VALUE,
};
enum { LEASE_KIND_SETTLED = 0, LEASE_KIND_SUBSCRIPTION = 1, LEASE_KIND_SENT_BACK = 2 };

/* Adds the ten arguments of weir.lease. */
void weir__pg_lease_params(pg_params *p, const store_lease_request *r);
/* The rows from `first` on as a list, in its arena. */
weir_status weir__pg_lease_rows(const PGresult *result, int first, store_lease_list *list,
                                weir_error *err);

#endif
