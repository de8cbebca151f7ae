/* pg_private.h - what connection.c and prepared.c share: sending, and collecting what comes back. */
#ifndef WEIR_PG_PG_PRIVATE_H
#define WEIR_PG_PG_PRIVATE_H

#include "pg/pg.h"

/* The values of a statement, as libpq wants them. */
typedef struct pg_values {
    const char *ptrs[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
} pg_values;
void weir__pg_values(const pg_params *params, pg_values *out); /* NULL: none */

/* Before a statement is sent: whether it can be. params may be NULL. */
weir_status weir__pg_send_begin(pg_conn *conn, const pg_params *params, weir_error *err);
/* All results of what was sent; the first that failed counts, or else the last with rows. sent: what
 * libpq said; 1: it was. */
weir_status weir__pg_collect(pg_conn *conn, int sent, int64_t deadline_us, PGresult **out,
                             weir_error *err);
/* A statement of binary parameters and results, as it is. */
weir_status weir__pg_send_once(pg_conn *conn, const char *text, const pg_params *params,
                               int64_t deadline_us, PGresult **out, weir_error *err);
/* A time from now; INT64_MAX stays what it is. */
int64_t weir__pg_deadline_us(int64_t answer_us);

/* prepared.c. Forgets all statements: the session is gone, or what was prepared in it. */
void weir__pg_prepared_forget(pg_conn *conn);

#endif
