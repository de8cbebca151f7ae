/* config_tables.h - what a weir.yaml says about tables whose rows are claimed, see weir.yaml(5).
 *
 *     tables:
 *       pending_transactions: { ready: "status = 'pending'", claimed: { status: claimed },
 *                               done: { status: done }, failed: { status: failed }, lease: 5m }
 *
 * What is there is checked where it stands; whether the database has such a table and such columns
 * is for the claim to say.
 */
#ifndef WEIR_CLI_CONFIG_TABLES_H
#define WEIR_CLI_CONFIG_TABLES_H

#include "claim/claim.h"
#include "cli/config_yaml.h"

enum {
    CONFIG_TABLES_MAX = 1000,
    TABLE_PARALLEL_MAX = 256, /* children of one claim at once */
};
#define TABLE_DURATION_US_MIN INT64_C(1000)
#define TABLE_DURATION_US_MAX INT64_C(31536000000000) /* a year */

/* What is written to a row: values, and expressions. */
typedef struct table_writes {
    claim_set *set;
    size_t set_count;
    claim_set_sql *sql;
    size_t sql_count;
} table_writes;

/* A table and how its rows are claimed. Zero is the default of every field. */
typedef struct table_spec {
    weir_str name;  /* of the entry; empty: it has none */
    weir_str table; /* as the database has it           */
    weir_str ready; /* SQL */
    claim_order *order;
    size_t order_count;
    int64_t limit;
    table_writes claimed, done, failed, released;
    weir_str by, by_column, at_column;
    int64_t lease_us;
    weir_str lease_column, fence_column, attempts_column;
    weir_str max_per_column;
    int64_t max_per;
    int32_t path; /* claim_path */
    int64_t parallel, deadline_us;
} table_spec;

/* Everything lives in the arena. Zeroed is empty. */
typedef struct config_tables {
    weir_arena arena;
    table_spec *items;
    size_t count;
    weir_buffer problems; /* one line each */
    size_t problems_count;
} config_tables;

/* Takes the value of `tables:` into a config_tables, whose arena is the file's. */
void weir__config_take_tables(config_file *f, const config_key *key, yaml_node_t *value,
                              void *into);

/* Reads the tables of a file; a file that is not there has none. EINVAL: `problems` has all of
 * them, err the first. *out: ended by weir__config_tables_free, also after a failure. */
weir_status weir__config_tables_read(config_tables *out, const char *path, weir_error *err);
void weir__config_tables_free(config_tables *t);
/* NULL: there is none of that name. */
const table_spec *weir__config_table(const config_tables *t, weir_str name);

/* A path of --path; false: none of them. */
bool weir__config_path(weir_str text, int32_t *path);

#endif
