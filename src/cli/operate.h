/* operate.h - what the commands share that look at targets and change them.
 *
 * Which targets are meant is decided in one place (target_filter.c): names, or a filter, never
 * nothing. How a target is shown is decided in another (target_rows.c), so that `targets` and
 * `targets --watch` print the same row.
 */
#ifndef WEIR_CLI_OPERATE_H
#define WEIR_CLI_OPERATE_H

#include "api/api.h"
#include "cli/cli.h"
#include "store/beyond.h"

/* ---- target_filter.c ------------------------------------------------------------------------ */

typedef struct cli_target_filter {
    store_target_filter filter;    /* borrows from the rest and from the arguments */
    store_pattern *match, *source; /* owned */
    weir_str *names;               /* owned; in bytewise order, distinct           */
} cli_target_filter;

/* Whether --match, --source, --lane or --blocked was given. --all is none of them. */
bool weir__cli_has_filter(const cli *c);
/* From the options alone. weir__cli_filter_free ends it, also after a failure. */
weir_status weir__cli_filter_options(const cli *c, cli_target_filter *f, weir_error *err);
/* From the words from `first` on, or the options, or --all. CLI_DONE, or the exit status of a
 * failure that has been reported: neither, or more than one of them, is wrong usage. */
int weir__cli_filter_take(const cli *c, size_t first, cli_target_filter *f);
void weir__cli_filter_free(cli_target_filter *f); /* zeroed is fine */
/* WEIR_ENOTFOUND when no target fits. Names are not looked at: who changes them does. */
weir_status weir__cli_filter_check(weir_store *store, const cli_target_filter *f, weir_error *err);

/* ---- target_rows.c -------------------------------------------------------------------------- */

enum { CLI_TARGET_FIELDS_COUNT = 21 };

/* In the order of who needs someone. It is the store's state, but for a target that was deferred
 * because a handler failed: that is retrying. */
typedef enum cli_target_state {
    CLI_TARGET_BLOCKED,
    CLI_TARGET_RETRYING,
    CLI_TARGET_PAUSED,
    CLI_TARGET_DEFERRED,
    CLI_TARGET_LEASED,
    CLI_TARGET_READY,
    CLI_TARGET_IDLE,
    CLI_TARGET_STATES_COUNT,
} cli_target_state;

/* Who gets the targets of a walk. Both answer false: no more of them. */
typedef struct cli_target_sink {
    /* Whether it is to be shown; only then is looked how long it waits. NULL: all. */
    bool (*wants)(void *ctx, const store_target *t, bool *wanted);
    /* waited_us: the age of the oldest event that waits for it; 0: none does. */
    bool (*row)(void *ctx, const store_target *t, int64_t waited_us);
    void *ctx;
    int64_t *head; /* out, before wants: the end of the log, looked at after the targets; or NULL */
} cli_target_sink;

const char *weir__cli_state_text(cli_target_state state);
cli_target_state weir__cli_target_state(const store_target *t);
/* Whether it is at a position that was not routed, or is not in the log: of a log that lost its
 * end. head: as it was after the target was read. *position, *end (may be NULL): where it is, and
 * what there is at most. */
bool weir__cli_is_beyond(const store_target *t, int64_t head, int64_t *position, int64_t *end);
/* The same of routing: new events of that reaction would be passed over. */
bool weir__cli_is_routed_beyond(const store_reaction *r, const store_positions *at);
/* Says so, on stderr, of each of them. */
void weir__cli_note_routed_beyond(const cli *c, const store_reaction_list *reactions,
                                  const store_positions *at);
/* Text, or null when it is empty. */
weir_str weir__cli_or_null(weir_str text);
/* In the order of their names, a page at a time; nothing is held between pages. At most `limit`. */
weir_status weir__cli_targets_each(weir_store *store, const store_target_filter *filter,
                                   int64_t limit, const cli_target_sink *sink, weir_error *err);
/* Borrows from `t` and `reactions`, which is overwritten. false: out of memory. */
bool weir__cli_target_fields(const store_target *t, int64_t waited_us, weir_buffer *reactions,
                             report_field fields[CLI_TARGET_FIELDS_COUNT]);

/* targets_watch.c. Prints what is there and then what changes, until a signal comes or nobody
 * reads any more. */
weir_status weir__cli_targets_watch(cli *c, weir_store *store, const store_target_filter *filter,
                                    weir_error *err);

/* ---- ask.c ---------------------------------------------------------------------------------- */

/* For verbs that destroy or rewind. CLI_DONE: --yes or --dry-run was given, or somebody sits at a
 * terminal and can be asked. Otherwise CLI_USAGE, reported. */
int weir__cli_may_ask(const cli *c);
/* Asks, unless --yes was given. `question` without the question mark. */
bool weir__cli_ask(const cli *c, const char *question);
/* Says that nothing was changed: the exit status of a question that was answered with no. */
int weir__cli_declined(const cli *c);
/* What a verb does, for a sentence: "unblock" or "unblocked", then the name or "3 targets". */
typedef struct cli_deed {
    const char *would, *did; /* what comes before the object          */
    const char *object;      /* "target": more of them have an s      */
    weir_str name;           /* of the only one; empty: they are counted */
} cli_deed;

/* {"changed":N}, or {"would_change":N} with --dry-run; for people a sentence. */
void weir__cli_changed(cli *c, int64_t count, const cli_deed *deed);
/* Who does this, for others to read: USER@HOST. */
const char *weir__cli_operator(char *buffer, size_t bytes);

/* ---- workers.c ------------------------------------------------------------------------------ */

/* Who works at the moment, as far as the store was told. */
typedef struct cli_workers {
    store_worker_list list;
    int64_t now_us;
} cli_workers;

weir_status weir__cli_workers_read(weir_store *store, cli_workers *w, weir_error *err);
void weir__cli_workers_free(cli_workers *w);
/* It has not ended and takes new work. */
bool weir__cli_worker_works(const cli_workers *w, const store_worker *worker);
bool weir__cli_worker_serves(const store_worker *worker, weir_str lane);
bool weir__cli_worker_knows(const store_worker *worker, const store_reaction *reaction);
/* How many work; in the lane unless it is NULL, and know the reaction, unless it is NULL. */
size_t weir__cli_workers_count(const cli_workers *w, const weir_str *lane,
                               const store_reaction *reaction);
/* The one that holds leases under this name, or NULL. */
const store_worker *weir__cli_worker_named(const cli_workers *w, weir_str holder);

/* doctor_work.c. Targets that are blocked, events that were parked, and work that waits for nobody:
 * of retired reactions, of reactions that no worker handles, in lanes that no worker serves. */
weir_status weir__cli_doctor_work(weir_store *store, store_survey_fn fn, void *ctx,
                                  weir_error *err);

#endif
