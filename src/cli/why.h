/* why.h - what is known of one target, for weir why: why_facts.c collects it, why_answer.c judges
 * it, why.c shows it, and why_all.c does so for all that are stuck. */
#ifndef WEIR_CLI_WHY_H
#define WEIR_CLI_WHY_H

#include "cli/operate.h"

/* An event that is for the target, and that nobody has told it of. */
typedef struct why_event {
    int64_t event; /* 0: none was found */
    bool certain;  /* false: only whoever routes can tell whether it is for this target */
    const store_subscription *subscription;
    const store_reaction *reaction;
} why_event;

typedef struct why_facts {
    /* of the store */
    store_reaction_list reactions;
    store_lane_list lanes;
    store_positions positions;
    int64_t head;              /* the end of the log, looked at after the target */
    store_holder_list holders; /* of what keeps `safe` below `head` */
    cli_workers workers;
    /* of the target */
    store_targets_chunk chunk;
    const store_target *target; /* in the chunk */
    const store_lane *lane;     /* in the list; NULL: not there */
    store_chunk failed;
    const weir_event *event; /* that failed, in `failed`; NULL: none, or it cannot be read */
    int64_t waiting;         /* events that wait for it, counted per reaction */
    bool waiting_more;       /* there are more than were counted */
    bool failed_waits;       /* the event that failed is one of them */
    int64_t parked, sent_back;
    why_event unrouted; /* at or below safe, above what its reaction has routed */
    why_event held;     /* above safe */
} why_facts;

/* Reads what is said of the store. weir__cli_why_facts_free ends it, also after a failure. */
weir_status weir__cli_why_look(weir_store *store, why_facts *f, weir_error *err);
/* Then what is said of a target, of one after the other. WEIR_ENOTFOUND: no such target. */
weir_status weir__cli_why_collect(weir_store *store, weir_str target, why_facts *f,
                                  weir_error *err);
void weir__cli_why_facts_free(why_facts *f);
/* NULL: the store does not list it. */
const store_reaction *weir__cli_why_reaction(const why_facts *f, int64_t id);
/* How many attempts the reaction that failed grants to an event; 0: no limit, or not known. */
int64_t weir__cli_why_attempts(const why_facts *f);

/* ---- why_answer.c --------------------------------------------------------------------------- */

enum { WHY_NEXT_MAX = 5 };

typedef struct why {
    const why_facts *f;          /* borrowed                                  */
    const report_screen *screen; /* borrowed: how times are told              */
    const char *store;           /* borrowed: --store of this run; NULL: none */
    /* the answer */
    const char *reason;
    weir_buffer answer;
    struct {
        weir_buffer command; /* as it is typed; without `what`: a sentence, nothing to type */
        const char *what;    /* what that does; NULL: see `command` */
    } next[WHY_NEXT_MAX];
    size_t next_count;
    bool failed; /* no memory */
} why;

/* weir__cli_why_free ends it. */
void weir__cli_why_judge(why *w);
/* One more command: "weir VERB WORD", with --store if this run has it. word: as it is, it is quoted
 * for the shell; may be empty. */
void weir__cli_why_next(why *w, const char *what, const char *verb, weir_str word);
void weir__cli_why_free(why *w);

/* why.c. The commands to type next, a line each, or as an array of JSON. false: out of memory. */
bool weir__cli_why_add_next(weir_buffer *out, const report_screen *screen, const why *w);
bool weir__cli_why_json_next(weir_buffer *out, const why *w);

/* The answer for one target, printed in the form of the run. */
weir_status weir__cli_why_target(cli *c, weir_store *store, weir_str target, bool verbose,
                                 weir_error *err);

/* why_all.c. Everything that is stuck. */
weir_status weir__cli_why_all(cli *c, weir_store *store, weir_error *err);

#endif
