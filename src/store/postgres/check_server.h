/* check_server.h - the parts of `weir doctor` that are PostgreSQL's own.
 *
 * check_schema.c: are tables, indexes, functions and triggers as this version makes them?
 * check_server.c: settings, those who hold the server up, how it is reached.
 */
#ifndef WEIR_STORE_POSTGRES_CHECK_SERVER_H
#define WEIR_STORE_POSTGRES_CHECK_SERVER_H

#include "base/thread.h"
#include "store/postgres/postgres_private.h"

/* A transaction that is open for longer is told. 5 min; tests have less time. */
extern _Atomic int64_t weir__pg_old_transaction_us;
/* What has no time of its own (replication slots, standbys) is told when it is so many transactions
 * behind. 1,000,000. */
extern _Atomic int64_t weir__pg_old_transactions;
/* The same for a transaction that keeps the row of weir.safe: 5 s. */
extern _Atomic int64_t weir__pg_safe_kept_us;

/* Faults of the schema (act), and what could not be looked at or was added by others. */
weir_status weir__pg_check_schema(pg_store *s, store_survey_fn fn, void *ctx, weir_error *err);

#endif
