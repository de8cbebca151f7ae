/* work.h - what the files of `weir work` share. */
#ifndef WEIR_CLI_WORK_H
#define WEIR_CLI_WORK_H

#include "cli/cli.h"
#include "cli/config_reactions.h"
#include "engine/log.h"
#include "store/store.h"

/* work_live.c. The line under the log. Zeroed: there is none. */
typedef enum work_live_state { WORK_LIVE_OFF, WORK_LIVE_SHOWN, WORK_LIVE_ENDED } work_live_state;

typedef struct work_live {
    weir_store *store; /* borrowed */
    pthread_t thread;
    /* Whose counts are shown. Atomic: another one takes over when the file is read again. */
    _Atomic(weir_engine *) engine;
    weir_mutex mu;
    weir_cond ended;
    /* atomic: OFF is looked at without the lock, and is never entered or left while others write.
     * Changed under mu. */
    _Atomic work_live_state state;
    weir_buffer line; /* guarded by mu: what is shown, as long as it is */
} work_live;

struct work_log;
/* Before anybody writes to the log. Shows nothing unless stderr is a terminal for it. store:
 * borrowed until the end. */
void weir__work_live_begin(work_live *l, const struct work_log *log, weir_store *store);
/* Wipes it. The log can still be written to. */
void weir__work_live_end(work_live *l);
/* A line of the log; with its newline. Any thread. */
void weir__work_live_write(work_live *l, weir_str text);

/* work_log.c. Lines on stderr, key=value or JSON, from any thread. Immutable once it is set up,
 * except for `damaged` and `live`. */
typedef struct work_log {
    bool json;
    bool verbose;         /* debug as well: every lease and every settle */
    work_live live;       /* the line below; has its own lock */
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

/* work_others.c. What is waited for that only other workers can do. Zeroed: nothing yet. */
typedef struct work_others {
    int64_t without_worker; /* out: targets with work for reactions that no running worker has */
    int64_t alone_since_us; /* monotonic: since when nothing else is left */
    int64_t next_us;        /* monotonic: when to look next */
    weir_buffer said;       /* owned: the reactions that were named last */
    bool nobody_said;
} work_others;

/* While an engine is not idle. Looks now and then, and logs what is waited for. true: all that is
 * left is for reactions that no running worker has, and has been for long. lanes: of --lanes; none:
 * all of the store. */
bool weir__work_others(work_others *o, work_log *log, weir_store *store, weir_engine *engine,
                       const weir_str *lanes, size_t lanes_count);

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
