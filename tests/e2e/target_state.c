/* target_state.c - brings targets into a state, for tests of commands that show and change them.
 *
 *   target_state declare REACTION stream|category|name|constant|work SOURCE [NAME...]
 *   target_state route REACTION LANE PREFIX    every event that is not routed yet
 *   target_state misroute REACTION ERROR       the next event: it is parked, without a target
 *   target_state hold TARGET HOLDER SECONDS    leases it; prints the fence
 *   target_state extend TARGET SECONDS         renews its lease, whoever has it
 *   target_state lose TARGET TIMES             leases it so often and lets each lease end
 *   target_state finish TARGET                 handles all that waits
 *   target_state block TARGET ERROR            fails at its next event
 *   target_state defer TARGET SECONDS [ERROR]
 *   target_state park TARGET ERROR
 *   target_state router REACTION HOLDER SECONDS
 *   target_state worker HOLDER LANE SECONDS [REACTION...]
 *
 * The store is $WEIR_STORE. Each is what a worker does, through the port, in a process of its own;
 * a worker is on host "h" and has the greatest pid there is, so that no other is wider.
 */
#include "api/api.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SECOND_US = 1000000,
    LONG_US = 60 * SECOND_US,
    LOST_MAX = 3,
    WORKER_REACTIONS_MAX = 8,
    WORKER_PID = 4194304,
};

static weir_store *store;
static weir_error failed;

static void check(weir_status status, const char *what)
{
    if (status != WEIR_OK) {
        (void)fprintf(stderr, "target_state: %s: %s\n", what, failed.message);
        exit(1);
    }
}

static void give_up(const char *what)
{
    (void)fprintf(stderr, "target_state: %s\n", what);
    exit(1);
}

static int64_t seconds(const char *text)
{
    int64_t n = 0;

    if (!weir__str_to_i64(weir__str(text), &n)) {
        give_up("seconds are a number");
    }
    return n * SECOND_US;
}

/* ---- reactions ------------------------------------------------------------------------------ */

static store_reaction_list reactions;

static const store_reaction *reaction(const char *name)
{
    check(store->work->reactions(store, &reactions, &failed), "reactions");
    for (size_t i = 0; i < reactions.reactions_count; i++) {
        if (weir__str_equal(reactions.reactions[i].name, weir__str(name))) {
            return &reactions.reactions[i];
        }
    }
    give_up("no such reaction");
    return NULL;
}

static void declare(int argc, char **argv)
{
    static const char *const rules[] = { "constant", "stream", "category", "name", "work" };
    weir_str names[16];
    weir_arena arena = { 0 };
    store_reaction out;
    store_reaction_declaration d = { .name = weir__str(argv[0]),
                                     .source = weir__str(argv[2]),
                                     .names = names,
                                     .all_names = argc == 3 };

    for (int i = 0; i < 5; i++) {
        d.rule = strcmp(argv[1], rules[i]) == 0 ? (store_rule)i : d.rule;
    }
    for (int i = 3; i < argc && i < 16; i++) {
        names[d.names_count++] = weir__str(argv[i]);
    }
    check(store->work->declare(store, &d, &arena, &out, &failed), "declare");
    weir__arena_free(&arena);
}

/* What the rule makes of an event. */
static weir_str value_of(store_rule rule, const weir_event *e)
{
    return rule == STORE_RULE_STREAM     ? e->stream
           : rule == STORE_RULE_CATEGORY ? weir__category(e->stream)
           : rule == STORE_RULE_NAME     ? e->name
                                         : (weir_str){ 0 };
}

static void route_to(const store_reaction *r, int64_t from, const weir_event *e, const char *lane,
                     const char *prefix)
{
    char target[600];
    const weir_str value = value_of(r->rule, e);
    (void)snprintf(target, sizeof target, "%s%.*s", prefix, (int)value.len,
                   value.len == 0 ? "" : value.ptr);
    const store_route_step step = {
        .reaction = r->id, .number = r->current, .from = from, .to = e->id
    };
    const store_mark mark = { .target = weir__str(target),
                              .lane = weir__str(lane),
                              .source = e->stream,
                              .value = value,
                              .first = e->id,
                              .last = e->id };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };

    check(store->work->route(store, &route, NULL, &failed), "route");
}

static void route(const char *name, const char *lane, const char *prefix)
{
    const store_reaction *r = reaction(name);
    store_chunk chunk = { 0 };
    const store_log_query q = { .after = r->routed, .to = INT64_MAX, .limit = 1000 };
    int64_t from = r->routed;

    check(store->log->read_log(store, &q, &chunk, &failed), "read");
    for (size_t i = 0; i < chunk.events_count; i++) {
        route_to(r, from, &chunk.events[i], lane, prefix);
        from = chunk.events[i].id;
    }
    weir__chunk_free(&chunk);
}

static void misroute(const char *name, const char *error)
{
    const store_reaction *r = reaction(name);
    store_chunk chunk = { 0 };
    const store_log_query q = { .after = r->routed, .to = INT64_MAX, .limit = 1 };

    check(store->log->read_log(store, &q, &chunk, &failed), "read");
    if (chunk.events_count == 0) {
        give_up("nothing to route");
    }
    const int64_t event = chunk.events[0].id;
    const store_route_step step = {
        .reaction = r->id, .number = r->current, .from = r->routed, .to = event
    };
    const store_route_park park = { .event = event, .error = weir__str(error) };
    const store_route with_park = {
        .steps = &step, .steps_count = 1, .parks = &park, .parks_count = 1
    };
    check(store->work->route(store, &with_park, NULL, &failed), "route");
    weir__chunk_free(&chunk);
}

static void router(const char *name, const char *holder, const char *length)
{
    store_router_lease lease = { .reaction = reaction(name)->id };

    check(store->work->router_lease(store, weir__str(holder), seconds(length), &lease, 1, &failed),
          "router_lease");
}

static void worker(int argc, char **argv)
{
    store_known_reaction known[WORKER_REACTIONS_MAX];
    const weir_str lane = weir__str(argv[1]);
    store_worker w = { .name = weir__str(argv[0]),
                       .host = weir__str("h"),
                       .pid = WORKER_PID,
                       .lanes = &lane,
                       .lanes_count = 1,
                       .known = known };

    for (int i = 3; i < argc && w.known_count < WORKER_REACTIONS_MAX; i++) {
        const store_reaction *r = reaction(argv[i]);
        known[w.known_count++] = (store_known_reaction){ .reaction = r->id, .number = r->current };
    }
    check(store->about->worker_beat(store, &w, seconds(argv[2]), &failed), "worker_beat");
}

/* ---- targets -------------------------------------------------------------------------------- */

static store_lease_list leases;

/* The lane of a target; it must be there. */
static weir_str lane_of(const char *target, weir_arena *arena)
{
    store_targets_chunk chunk = { 0 };
    const weir_str name = weir__str(target);
    const store_targets_query q = { .filter = { .names = &name, .names_count = 1 }, .limit = 1 };

    check(store->work->targets(store, &q, &chunk, &failed), "targets");
    if (chunk.targets_count == 0) {
        give_up("no such target");
    }
    const weir_str lane = chunk.targets[0].lane;
    const weir_str copy = { .ptr = weir__arena_copy(arena, lane.ptr, lane.len), .len = lane.len };
    weir__arena_free(&chunk.arena);
    return copy;
}

/* Leases this target; others of its lane that came with it are given back. NULL: not to be had. */
static const store_leased *lease(const char *target, const char *holder, int64_t lease_us)
{
    weir_arena arena = { 0 };
    const store_leased *found = NULL;
    const store_lease_request r = { .lane = lane_of(target, &arena),
                                    .holder = weir__str(holder),
                                    .lease_us = lease_us,
                                    .limit = STORE_LEASE_TARGETS_MAX,
                                    .all_reactions = true,
                                    .lost_max = LOST_MAX };

    check(store->work->turn(store, NULL, 0, &r, &leases, &failed), "lease");
    for (size_t i = 0; i < leases.leases_count; i++) {
        const store_leased *l = &leases.leases[i];
        store_fenced item = { .target = l->target, .fence = l->fence };
        if (weir__str_equal(l->name, weir__str(target))) {
            found = l;
        } else {
            check(store->work->extend(store, 0, &item, 1, &failed), "release");
        }
    }
    weir__arena_free(&arena);
    return found;
}

static const store_leased *must_lease(const char *target)
{
    const store_leased *l = lease(target, "target_state", LONG_US);

    if (l == NULL || (l->subscriptions_count == 0 && l->sent_back_count == 0)) {
        give_up("the target cannot be leased");
    }
    return l;
}

/* Leases with lease_us until the target is no longer to be had: each one ends by itself. */
static void lose(const char *target, int64_t times)
{
    for (int64_t i = 0; i < times;) {
        /* Not to be had: the lease before has not ended yet, or it is blocked now. */
        i += lease(target, "lost", 1) != NULL || i == times - 1 ? 1 : 0;
        weir__clock_pause(20000);
    }
}

static int64_t next_event(const store_leased *l, int64_t *reaction_id)
{
    store_fetch_list list = { 0 };
    const store_leased_subscription *s = &l->subscriptions[0];
    const store_fetch_item item = {
        .target = l->target, .reaction = s->reaction, .after = s->at, .up_to = s->mark, .limit = 1
    };

    check(store->work->fetch(store, &item, 1, &list, &failed), "fetch");
    const int64_t event = list.events_count == 0 ? 0 : list.events[0].event->id;
    *reaction_id = s->reaction;
    weir__arena_free(&list.arena);
    return event;
}

static void fail(const char *target, store_end end, int64_t defer_us, const char *error)
{
    const store_leased *l = must_lease(target);
    store_settle settle = { .target = l->target, .fence = l->fence, .end = end };

    if (error[0] != '\0') {
        settle.failure.event = next_event(l, &settle.failure.reaction);
        settle.failure.error = weir__str(error);
    }
    check(store->about->now(store, &settle.until_us, &failed), "now");
    settle.until_us += defer_us;
    check(store->work->settle(store, &settle, &failed), "settle");
}

static void park(const char *target, const char *error)
{
    const store_leased *l = must_lease(target);
    store_park parked = { .attempts = 1, .error = weir__str(error) };
    parked.event = next_event(l, &parked.reaction);
    const store_advance advance = { .reaction = parked.reaction, .to = parked.event };
    store_settle settle = { .target = l->target,
                            .fence = l->fence,
                            .advances = &advance,
                            .advances_count = 1,
                            .parks = &parked,
                            .parks_count = 1 };

    check(store->work->settle(store, &settle, &failed), "settle");
}

/* Everything that waits is handled, what was sent back included. */
static void finish(const char *target)
{
    const store_leased *l = must_lease(target);
    store_advance advances[16];
    int64_t sent_back[16];
    store_settle settle = {
        .target = l->target, .fence = l->fence, .advances = advances, .parked_done = sent_back
    };

    for (size_t i = 0; i < l->subscriptions_count && i < 16; i++) {
        advances[settle.advances_count++] =
            (store_advance){ .reaction = l->subscriptions[i].reaction,
                             .to = l->subscriptions[i].mark };
    }
    for (size_t i = 0; i < l->sent_back_count && i < 16; i++) {
        sent_back[settle.parked_done_count++] = l->sent_back[i].parked;
    }
    check(store->work->settle(store, &settle, &failed), "settle");
}

static void hold(const char *target, const char *holder, const char *length)
{
    const store_leased *l = lease(target, holder, seconds(length));

    if (l == NULL) {
        give_up("the target cannot be leased");
    }
    (void)printf("%" PRId64 "\n", l->fence);
}

static void extend(const char *target, const char *length)
{
    store_targets_chunk chunk = { 0 };
    const weir_str name = weir__str(target);
    const store_targets_query q = { .filter = { .names = &name, .names_count = 1 }, .limit = 1 };

    check(store->work->targets(store, &q, &chunk, &failed), "targets");
    if (chunk.targets_count == 0) {
        give_up("no such target");
    }
    store_fenced item = { .target = chunk.targets[0].id, .fence = chunk.targets[0].fence };
    check(store->work->extend(store, seconds(length), &item, 1, &failed), "extend");
    if (item.status != WEIR_OK) {
        give_up("nobody holds the target");
    }
    weir__arena_free(&chunk.arena);
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* argc: of the verb's own arguments. false: no such verb, or not so. */
static bool run(const char *verb, int argc, char **argv)
{
    if (strcmp(verb, "declare") == 0 && argc >= 3) {
        declare(argc, argv);
    } else if (strcmp(verb, "route") == 0 && argc == 3) {
        route(argv[0], argv[1], argv[2]);
    } else if (strcmp(verb, "misroute") == 0 && argc == 2) {
        misroute(argv[0], argv[1]);
    } else if (strcmp(verb, "hold") == 0 && argc == 3) {
        hold(argv[0], argv[1], argv[2]);
    } else if (strcmp(verb, "extend") == 0 && argc == 2) {
        extend(argv[0], argv[1]);
    } else if (strcmp(verb, "lose") == 0 && argc == 2) {
        lose(argv[0], seconds(argv[1]) / SECOND_US);
    } else if (strcmp(verb, "finish") == 0 && argc == 1) {
        finish(argv[0]);
    } else if (strcmp(verb, "block") == 0 && argc == 2) {
        fail(argv[0], STORE_END_BLOCK, 0, argv[1]);
    } else if (strcmp(verb, "defer") == 0 && (argc == 2 || argc == 3)) {
        fail(argv[0], STORE_END_DEFER, seconds(argv[1]), argc == 3 ? argv[2] : "");
    } else if (strcmp(verb, "park") == 0 && argc == 2) {
        park(argv[0], argv[1]);
    } else if (strcmp(verb, "router") == 0 && argc == 3) {
        router(argv[0], argv[1], argv[2]);
    } else if (strcmp(verb, "worker") == 0 && argc >= 3) {
        worker(argc, argv);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    weir *w = NULL;
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = getenv("WEIR_STORE"),
                                   .application = "target_state" };

    if (argc < 2 || options.store_url == NULL) {
        give_up("WEIR_STORE=URL target_state VERB ARGUMENT...");
    }
    check((weir_status)weir_open(&options, &w, &failed), "open");
    store = weir__store(w);
    if (!run(argv[1], argc - 2, argv + 2)) {
        give_up("no such verb, or other arguments than it takes");
    }
    weir__arena_free(&reactions.arena);
    weir__arena_free(&leases.arena);
    weir_close(w);
    return 0;
}
