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

#include "claim/runner.h"
#include "cli/config_yaml.h"

enum {
    CONFIG_TABLES_MAX = 1000,
};
#define TABLE_DURATION_US_MIN INT64_C(1000)
#define TABLE_DURATION_US_MAX INT64_C(31536000000000) /* a year */

/* A table, how its rows are claimed, and what becomes of them. */
typedef struct table_spec {
    weir_str name; /* of the entry; empty: it has none */
    claim_request claim;
    claim_writes done, failed, released;
    int64_t parallel;
    int64_t deadline_us; /* 0: none */
} table_spec;

/* What is left out. table: borrowed. */
static inline table_spec weir__table_spec(weir_str table)
{
    return (table_spec){ .claim = { .table = table, .limit = 1 }, .parallel = 1 };
}

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
bool weir__config_path(weir_str text, claim_path *path);

#endif
