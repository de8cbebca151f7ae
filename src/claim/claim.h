/* claim.h - taking up to N rows of a user's table that nobody else holds, and giving them back.
 *
 * What must stay true
 *   (1) No two callers are given the same row, and nobody more rows than asked for, under any plan.
 *   (2) Rows come back in the order asked for, as they are after the claim. A short batch means
 *       that nothing more was free at that moment. An error claims nothing; a limit of 0 or less
 *       touches nothing.
 *   (3) A claim is durable when it returns. Inside a transaction it is EMISUSE unless it is to be
 *       held there, and then it dies with it.
 *   (4) A claim with a lease is free again the instant the lease ends, by the database's clock, and
 *       what its holder writes afterwards is refused.
 *   (5) Names are identifiers, values are parameters. SQL is only what is documented as SQL here:
 *       where, expired_where and set_sql.
 *
 * A row is ready when `where` holds and its lease column, if there is a lease, is NULL or past. It
 * is an expired claim when the columns of `set` have the values that the claim gives them and its
 * lease column is past; without `set`, `where` stands for them. Expired claims are taken before
 * ready rows; the rows that were taken are then given in the order asked for. A row is held, for
 * `max_per`, when it has the values of `set` and its lease, if there is one, has not ended.
 *
 * Times in a lease column, or in the column of the claim's time, by the column's type:
 *   PostgreSQL  timestamp with time zone; timestamp (UTC); bigint (microseconds since 1970); text
 *   SQLite      INTEGER affinity: microseconds since 1970 (to the millisecond, as its clock is)
 *   text        RFC 3339, UTC, microseconds, always 27 bytes: 2026-11-15T10:00:00.123456Z, so that
 *               texts compare as times do
 *
 * THREADS  A session is used by one thread at a time; nothing else is shared.
 */
#ifndef WEIR_CLAIM_CLAIM_H
#define WEIR_CLAIM_CLAIM_H

#include "table/table.h"

enum {
    CLAIM_LIMIT_MAX = 10000, /* rows of one claim */
    CLAIM_EXCLUDE_MAX = 10000,
    CLAIM_COLUMNS_MAX = 100,  /* of order, set, set_sql: each */
    CLAIM_VALUES_MAX = 30000, /* parameters of one statement; SQLite allows 32,766 */
};

typedef struct claim_param {
    weir_str name; /* without the colon */
    table_value value;
} claim_param;

typedef struct claim_order {
    weir_str column;
    bool descending;
} claim_order;

/* value: of the column's type, in the database's own notation (TABLE_TEXT is right for all). */
typedef struct claim_set {
    weir_str column;
    table_value value;
} claim_set;

/* sql: an expression over the row as it was; :name is a parameter. */
typedef struct claim_set_sql {
    weir_str column;
    weir_str sql;
} claim_set_sql;

/* What is written to a row. */
typedef struct claim_writes {
    const claim_set *set;
    size_t set_count;
    const claim_set_sql *set_sql;
    size_t set_sql_count;
    const claim_param *params; /* for :name in set_sql, and in a claim's own SQL; unused: EINVAL */
    size_t params_count;
} claim_writes;

typedef enum claim_mode {
    CLAIM_SKIP = 0, /* what others hold is left out */
    CLAIM_WAIT,     /* for them, wait_us in all */
    CLAIM_NOWAIT,   /* EHELD at once */
} claim_mode;

typedef enum claim_path {
    CLAIM_PATH_DEFAULT = 0, /* the best that the database can */
    CLAIM_PATH_FAST,        /* EINVAL where there is none */
    CLAIM_PATH_PORTABLE,    /* select, then guarded updates; runs anywhere */
} claim_path;

/* The name of a column that is "" with ptr not NULL: do not stamp. */
#define CLAIM_NO_COLUMN ((weir_str){ .ptr = "", .len = 0 })

static inline bool weir__claim_no_column(weir_str name)
{
    return name.len == 0 && name.ptr != NULL;
}

/* A claim: the command line, weir.yaml and weir.h fill it in, and the statements are made of it.
 * Everything is borrowed. Zero is the default of every field; an empty name of a column stands for
 * its default name. */
typedef struct claim_request {
    weir_str table;         /* as for weir__table_describe */
    weir_str where;         /* SQL; empty: every row. :name is a parameter */
    weir_str expired_where; /* SQL: what expired claims must fulfil too; empty: nothing more */
    claim_writes writes;
    const claim_order *order; /* the primary key is always the last tie-break */
    size_t order_count;
    int64_t limit;
    weir_str by;              /* the holder; empty: nobody is stamped */
    weir_str by_column;       /* claimed_by */
    weir_str at_column;       /* claimed_at */
    int64_t lease_us;         /* 0: no lease */
    weir_str lease_column;    /* locked_until */
    weir_str fence_column;    /* empty: none; is one larger after every claim */
    weir_str attempts_column; /* empty: none; counted at the claim */
    weir_str max_per_column;  /* empty: no cap; needs set or a lease; not with hold */
    int64_t max_per;          /* never more than so many held rows for each value; NULL is one */
    claim_mode mode;
    int64_t wait_us; /* CLAIM_WAIT; -1: as long as it takes */
    claim_path path;
    bool hold; /* lock the rows in the session's open transaction, and write nothing at all */
    const table_value *exclude; /* rows that are not wanted: their keys, value after value */
    size_t exclude_count;       /* of rows */
} claim_request;

/* The rows of the table, all columns in the table's order, into *result (zero, or of a call
 * before). EINVAL: the request; the message names the flag of the command line (--set: no column
 * "x" in ...). ENOTFOUND: no such table. EHELD: with CLAIM_NOWAIT, or the wait was over; SQLite:
 * also when the database stays locked for longer than its busy timeout (EBUSY). EUNKNOWN: passed
 * on, not repeated. EMISUSE: a transaction is open and hold was not asked for, or the other way
 * round. */
weir_status weir__claim_rows(table_session *s, const claim_request *request, table_result *result,
                             weir_error *err);

/* What would be claimed now, in order, as it is before the claim. Locks and writes nothing; rows
 * that others have locked at the moment are shown too. */
weir_status weir__claim_preview(table_session *s, const claim_request *request,
                                table_result *result, weir_error *err);

/* The statements of a claim, with values as literals, each ended by ";\n". Runs nothing. The
 * request is checked against the table first. SQLite: the UPDATE chooses its rows once more; when
 * it is run, it is given the keys of those found. */
weir_status weir__claim_sql(const claim_request *request, const table_info *table,
                            table_dialect dialect, weir_buffer *out, weir_error *err);

typedef struct claim_finding {
    const char *rule; /* "sequential-scan", "sort", "filter"; static */
    weir_str text;    /* one sentence */
} claim_finding;

enum { CLAIM_FINDINGS_MAX = 8 };

/* Everything lives in the arena. Zero at first. */
typedef struct claim_plan {
    weir_arena arena;
    weir_str text; /* the database's own plan of the claim, lines ended by \n */
    claim_finding findings[CLAIM_FINDINGS_MAX];
    size_t findings_count;
    weir_str indexes; /* the CREATE INDEX statements to run; empty when there is no finding */
} claim_plan;

/* Claims nothing. Findings are about what indexes the table has, not about how few its rows are. */
weir_status weir__claim_explain(table_session *s, const claim_request *request, claim_plan *plan,
                                weir_error *err);
void weir__claim_plan_free(claim_plan *plan);

/* Which path a request takes in a dialect. EINVAL: it asks for one that is not there. */
weir_status weir__claim_path_choose(const claim_request *request, table_dialect dialect,
                                    claim_path *out, weir_error *err);

/* The column that a flag such as --by-column stands for: of the name given, or of the default name.
 * NULL: the table has none, or none is wanted. */
const table_column *weir__claim_column_of(const table_info *table, const char *flag, weir_str name);

/* ---- finishing ------------------------------------------------------------------------------ */

typedef enum finish_kind {
    FINISH_DONE = 0, /* writes `set`, ends the lease, leaves the holder's name */
    FINISH_FAIL,     /* the same; only the message differs */
    FINISH_RELEASE, /* writes `set`, takes the holder's name and time out, and ends the lease now: a
                        claim that has ended is free, whatever else it has */
    FINISH_EXTEND,  /* the lease ends lease_us from now */
} finish_kind;

/* Guarded by whatever is given: at least one of by and fence; or held, where there is no lease and
 * so nobody who could have claimed it meanwhile. */
typedef struct finish_request {
    weir_str table;
    const table_value *key; /* in the primary key's order */
    size_t key_count;
    finish_kind kind;
    weir_str by;        /* empty: not asked */
    weir_str by_column; /* claimed_by */
    weir_str at_column; /* claimed_at; RELEASE takes it out when the table has it */
    weir_str at; /* of one row: the time of its claim, as it was answered; empty: not asked */
    bool has_fence;
    int64_t fence;
    weir_str fence_column;
    /* Empty: locked_until when the table has such a column, else none; CLAIM_NO_COLUMN: none. A
     * lease that has ended is no longer yours; where the column is NULL there is none, which is
     * fine but for EXTEND. */
    weir_str lease_column;
    int64_t lease_us;      /* EXTEND */
    const claim_set *held; /* what the row must still have: the `set` of its claim; may be empty */
    size_t held_count;
    claim_writes writes;
    int64_t wait_us; /* for somebody's lock of the row, then EHELD; 0: as long as it takes. SQLite:
                        as its URL says */
} finish_request;

/* What finishes any row of a claim: guarded by all that the claim says, with its lease, and without
 * a key, a kind and writes. */
finish_request weir__claim_finish_of(const claim_request *claim);

/* When a row was claimed, from its cells as they were claimed: for finish_request.at. It tells
 * apart two claims with the same fence, which happens when a failover loses one of them. Empty: it
 * was not written, or to a column that others may write. */
weir_str weir__claim_time(const claim_request *request, const table_info *table,
                          const table_cell *cells);

/* result: the row afterwards; may be NULL. May run inside a transaction.
 * ELOST: it is no longer yours, and whose it is; nothing was written. ENOTFOUND: no such row. */
weir_status weir__claim_finish(table_session *s, const finish_request *request,
                               table_result *result, weir_error *err);

/* Many rows that end in the same way. */
typedef struct finish_batch {
    const table_value *keys; /* one after the other; a row that is there twice is finished once */
    const int64_t *fences;   /* with has_fence: of each row; else NULL */
    size_t count;            /* of rows, up to CLAIM_LIMIT_MAX */
} finish_batch;

/* The same for many rows, in one statement or one transaction: key and fence of the request are not
 * looked at. finished: room for one for each row; whether it was still yours, and is written. What
 * was lost is no error and keeps no other row from being finished; weir__claim_finish of that row
 * says why. An error has written nothing. May run inside a transaction. */
weir_status weir__claim_finish_batch(table_session *s, const finish_request *request,
                                     const finish_batch *batch, bool *finished, weir_error *err);

#endif
