/* pg_private.h - what connection.c and prepared.c share: sending, collecting what comes back. */
#ifndef WEIR_PG_PG_PRIVATE_H
#define WEIR_PG_PG_PRIVATE_H

#include "pg/pg.h"

typedef enum pg_format { PG_TEXT = 0, PG_BINARY = 1 } pg_format;

/* The addresses of binary parameters. */
typedef struct pg_values {
    const char *ptrs[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
} pg_values;
/* What a statement of these parameters sends; p NULL: none. `values` lives as long as that. */
pg_plain weir__pg_plain_of(const pg_params *p, pg_values *values);

/* What is sent for a constant; NULL: no memory, said in err. */
const char *weir__pg_text_of(pg_conn *conn, const char *sql, weir_error *err);
/* Before anything is sent: whether it can be. params may be NULL. */
weir_status weir__pg_send_begin(pg_conn *conn, const pg_params *params, weir_error *err);
/* One statement on its way. */
typedef struct pg_sending {
    const char *text;
    pg_plain plain;
    pg_format format;    /* of the result */
    int64_t deadline_us; /* of the answer */
} pg_sending;
/* As it is, without a name. */
weir_status weir__pg_send(pg_conn *conn, const pg_sending *s, PGresult **result, weir_error *err);
/* All results of what was sent; the first that failed counts, or else the last with rows. sent:
 * what libpq has said to it. */
weir_status weir__pg_collect(pg_conn *conn, int sent, int64_t deadline_us, PGresult **out,
                             weir_error *err);
/* So long from now; INT64_MAX: never. */
int64_t weir__pg_deadline_us(int64_t answer_us);

/* prepared.c. The session is gone, or what was prepared in it. */
void weir__pg_prepared_forget(pg_conn *conn);

#endif
