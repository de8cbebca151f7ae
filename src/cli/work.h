/* work.h - what the files of `weir work` share. */
#ifndef WEIR_CLI_WORK_H
#define WEIR_CLI_WORK_H

#include "cli/cli.h"
#include "cli/config_reactions.h"
#include "engine/log.h"
#include "store/store.h"

/* work_log.c. Lines on stderr, key=value or JSON, from any thread. Immutable once it is set up,
 * except for `damaged`. */
typedef struct work_log {
    bool json;
    bool verbose;         /* debug as well: every lease and every settle */
    _Atomic bool damaged; /* an engine has said that the store is; SIGTERM was sent to ourselves */
} work_log;

/* A weir_log_fn; ctx: a work_log. */
void weir__work_log(void *ctx, int32_t level, weir_str event, weir_str json);
/* A line of our own. */
void weir__work_say(work_log *log, int32_t level, const char *event, const log_field *fields,
                    size_t count);

/* work_left.c. Counts what needs somebody now and did not when the run began. */
typedef struct work_left {
    int64_t since_us; /* in: the store's clock when it began */
    int64_t blocked;  /* targets */
    int64_t parked;   /* events  */
} work_left;

weir_status weir__work_left(weir_store *store, work_left *left, weir_error *err);

/* work_config.c. */

/* What runs: the file, or the one reaction of the flags. CLI_DONE, or the exit status of what has
 * been reported. *path: of the file; NULL: flags. */
int weir__work_config(cli *c, cli_config *out, const char **path);
/* Reads the file again, with what flags change about it. EINVAL: out->problems. */
weir_status weir__work_config_file(const cli *c, const char *path, cli_config *out,
                                   weir_error *err);
/* Reports all problems, or err when there are none. The exit status. */
int weir__work_problems(const cli *c, const cli_config *config, const weir_error *err);

#endif
