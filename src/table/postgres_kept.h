/* postgres_kept.h - statements that a session runs again and again, prepared the second time.
 *
 * What must stay true
 *   (1) Preparing changes how fast a statement is, never what it does: one that cannot be run under
 *       its name any more (somebody has dropped it, or its table has changed) runs as it is.
 *   (2) Only outside of transactions: there, that would cost the transaction.
 *
 * A prepared statement gets a plan that knows no values after five times. It is for statements in
 * which the plan should not depend on them (table_statement.again).
 *
 * THREADS  One at a time, like the connection.
 */
#ifndef WEIR_TABLE_POSTGRES_KEPT_H
#define WEIR_TABLE_POSTGRES_KEPT_H

#include "pg/pg.h"

enum {
    KEPT_STATEMENTS_MAX = 16,
    KEPT_TEXT_BYTES_MAX = 64 * 1024,
};

typedef struct kept_text {
    char *sql;       /* owned; NULL: none */
    unsigned number; /* part of its name; 0: seen once, not prepared */
} kept_text;

/* Zero at first. */
typedef struct postgres_kept {
    kept_text texts[KEPT_STATEMENTS_MAX];
    size_t next;     /* which one gives way */
    unsigned number; /* the last that was given */
} postgres_kept;

/* As weir__pg_run_plain. Pre: no transaction is open. */
weir_status weir__table_kept_run(postgres_kept *k, pg_conn *conn, const char *sql,
                                 const pg_plain *plain, int64_t answer_us, PGresult **out,
                                 weir_error *err);
/* The connection is gone, or goes now. */
void weir__table_kept_free(postgres_kept *k);

#endif
