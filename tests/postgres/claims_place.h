/* claims_place.h - a table of jobs in a schema of its own, for tests of claims. */
#ifndef WEIR_TESTS_POSTGRES_CLAIMS_PLACE_H
#define WEIR_TESTS_POSTGRES_CLAIMS_PLACE_H

#include "pg_support.h"

#include "claim/claim.h"
#include "table/table_private.h"

#include <stdio.h>

#define SECOND INT64_C(1000000)

/* As parts of initialisers; STR is a value as well. */
#define STR(t) ((weir_str){ .ptr = (t), .len = sizeof(t) - 1 })
#define TEXT(t)                                                                                    \
    {                                                                                              \
        .kind = TABLE_TEXT, .text = {.ptr = (t), .len = sizeof(t) - 1 }                            \
    }
#define NUMBER(n)                                                                                  \
    {                                                                                              \
        .kind = TABLE_INTEGER, .number = (n)                                                       \
    }

typedef struct place {
    pg_test *t;
    table_db *db;
    table_session *s;
    table_result r;
    weir_error err;
    claim_path path;
} place;

static inline void run(place *p, const char *sql)
{
    if (weir__table_run(p->s, &(table_statement){ .sql = sql }, &p->r, &p->err) != WEIR_OK) {
        fail_msg("%s: %s", sql, p->err.message);
    }
}

static inline place place_open(pg_test *t, claim_path path)
{
    place p = { .t = t, .path = path };
    char sql[128];
    if (weir__table_open(&p.db, &(table_options){ .url = test_server() }, &p.err) != WEIR_OK ||
        weir__table_session_open(p.db, &p.s, &p.err) != WEIR_OK) {
        fail_msg("no session: %s", p.err.message);
    }
    test_exec(t->conn, "SET client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS %s",
              t->schema);
    test_exec(t->conn, "SET search_path = %s", t->schema);
    snprintf(sql, sizeof sql, "SET search_path = %s", t->schema);
    run(&p, sql);
    return p;
}

static inline void place_close(place *p)
{
    weir__table_session_close(p->s);
    weir__table_close(p->db);
    weir__table_result_free(&p->r);
}

#define JOBS                                                                                       \
    "CREATE TABLE jobs (id bigint PRIMARY KEY, status text NOT NULL DEFAULT 'pending',"            \
    " priority integer NOT NULL DEFAULT 0, tenant text, claimed_by text, claimed_at timestamptz,"  \
    " locked_until timestamptz, fence bigint, attempts integer);"                                  \
    "INSERT INTO jobs (id, priority) SELECT i, mod(i, 3) FROM generate_series(1, 10) AS i"

static const claim_set claimed[] = { { .column = { .ptr = "status", .len = 6 },
                                       .value = TEXT("claimed") } };

static inline claim_request pending(const place *p, int64_t limit)
{
    return (claim_request){ .table = STR("jobs"),
                            .where = STR("status = 'pending'"),
                            .limit = limit,
                            .writes.set = claimed,
                            .writes.set_count = 1,
                            .path = p->path };
}

#endif
