/* claim_options.h - what `weir claim` and its kin were asked for: flags over what weir.yaml says.
 *
 * A flag takes the place of what the file says about the same thing, and --table that of the whole
 * entry: then the file does not count, but for its store.
 */
#ifndef WEIR_CLI_CLAIM_OPTIONS_H
#define WEIR_CLI_CLAIM_OPTIONS_H

#include "cli/cli.h"
#include "cli/config_tables.h"

/* Zeroed is empty; ended by weir__cli_claim_free. */
typedef struct claim_options {
    weir_arena arena;
    config_tables file;
    table_spec spec; /* by the end, everything that is claimed and written */
    claim_param *params;
    size_t params_count;
} claim_options;

/* name: of the table, by --table or by an argument; from_file: weir.yaml is looked into for it.
 * Reads every flag of the command that says something about a table. CLI_DONE, or the exit status
 * of what has been reported. */
int weir__cli_claim_read(cli *c, claim_options *o, const char *name, bool from_file);
void weir__cli_claim_free(claim_options *o);

/* Gives the parameters to the SQL that uses them, of the claim or of what is written afterwards;
 * what is used nowhere is left to the claim, which says so. CLI_DONE, or the exit status of what
 * has been reported. */
int weir__cli_claim_params(const cli *c, claim_options *o, table_dialect dialect);

/* ---- a database and a table of it ------------------------------------------------------------ */

typedef struct claim_place {
    table_db *db;
    table_session *session;
    weir_arena arena;
    table_info table;
} claim_place;

/* Connects, and looks at the table. CLI_DONE, or the exit status of what has been reported: a table
 * or a database that is not there is an error, and not "nothing to claim". */
int weir__cli_place_open(cli *c, weir_str table, claim_place *p);
void weir__cli_place_close(claim_place *p);
/* Reports; ENOTFOUND is CLI_ERROR here. */
int weir__cli_claim_fail(const cli *c, const weir_error *err);

/* ---- output ---------------------------------------------------------------------------------- */

/* One row: a flat JSON object, or a line of a table. false: nobody wants more. */
bool weir__cli_table_print(cli_output *o, const table_result *r, size_t row);
/* The key of a row as {"id":42}. false: out of memory. */
bool weir__cli_key_json(const table_info *t, const table_result *r, size_t row, weir_buffer *out);

#endif
