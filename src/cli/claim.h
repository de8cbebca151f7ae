/* claim.h - what the files of `weir claim` share. */
#ifndef WEIR_CLI_CLAIM_H
#define WEIR_CLI_CLAIM_H

#include "cli/claim_options.h"
#include "engine/child/child.h"

#define CLAIM_BUDGET_US INT64_C(30000000) /* for children that run, after SIGTERM */

/* One run of `weir claim`. */
typedef struct claim_run {
    cli *c;
    claim_options options;
    claim_place place;
    claim_request request; /* options.spec.claim with its mode and its holder */
    const char *command;   /* --run; NULL: rows are printed */
    child_keeper *keeper;  /* owned; opened before anything else when there is a command */
    int signal_fd;         /* readable: SIGTERM or SIGINT; -1: none */
    int64_t budget_us;
    char holder[128];   /* made up, when there is no --by */
    weir_mutex mu;      /* stdout of children */
    atomic_bool unread; /* nobody reads stdout any more: a stop */
    /* weir lock --table: one row, whose command's exit status is passed on, and needs no words. */
    bool passes_on;
    int exit_status; /* of that command; -1: none */
    bool lost;       /* the connection that held its row was lost */
} claim_run;

/* claim_show.c. --dry-run, --sql, --explain: what would happen. Exit statuses. */
int weir__cli_claim_preview(claim_run *k);
int weir__cli_claim_sql(claim_run *k);
int weir__cli_claim_explain(claim_run *k);

/* claim_run.c. --run: a command for each row. */
int weir__cli_claim_children(claim_run *k);
/* What a child prints goes to stdout and stderr as it is, line by line. ctx: a claim_run. */
void weir__cli_claim_stdout(void *ctx, weir_str line);
void weir__cli_claim_stderr(void *ctx, weir_str line);
/* A row that is not done, on stderr. */
void weir__cli_claim_tell(const claim_run *k, const table_result *rows, size_t row,
                          const char *outcome, weir_str why);

/* claim_hold.c. --hold --run: the same inside a transaction for each row. */
int weir__cli_claim_held(claim_run *k);

#endif
