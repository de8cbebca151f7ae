/* why.h - what is known of one target, for weir why: why_facts.c collects it, why.c judges it. */
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
    store_targets_chunk chunk;
    const store_target *target; /* in the chunk */
    store_reaction_list reactions;
    store_lane_list lanes;
    const store_lane *lane; /* in the list; NULL: not there */
    store_positions positions;
    store_holder_list holders; /* of what keeps `safe` below `head` */
    cli_workers workers;
    int64_t waiting;   /* events that wait for it, counted per reaction */
    bool waiting_more; /* there are more than were counted */
    bool failed_waits; /* the event that failed is one of them */
    int64_t parked, sent_back;
    why_event unrouted; /* at or below safe, above what its reaction has routed */
    why_event held;     /* above safe */
} why_facts;

/* WEIR_ENOTFOUND: no such target. weir__cli_why_free ends it, also after a failure. */
weir_status weir__cli_why_collect(weir_store *store, weir_str target, why_facts *f,
                                  weir_error *err);
void weir__cli_why_free(why_facts *f);
/* NULL: the store does not list it. */
const store_reaction *weir__cli_why_reaction(const why_facts *f, int64_t id);
/* How many attempts the reaction that failed grants to an event; 0: no limit, or not known. */
int64_t weir__cli_why_attempts(const why_facts *f);

#endif
