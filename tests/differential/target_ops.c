/* target_ops.c - random leases, and what workers do with them: fresh ones and stale ones. */
#include "world.h"

#include <stdio.h>

/* ---- leasing ------------------------------------------------------------------------------ */

static void lease_say(world *w, int store, const store_leased *l)
{
    say(w, store, "  leased %.*s fence %lld until %lld watermark %lld priority %lld lost %lld\n",
        (int)l->name.len, l->name.ptr, (long long)l->fence, (long long)l->until_us,
        (long long)l->watermark, (long long)l->priority, (long long)l->lost);
    for (int i = 0; i < REACTIONS; i++) { /* by name: ids may differ */
        for (size_t j = 0; j < l->subscriptions_count; j++) {
            const store_leased_subscription *s = &l->subscriptions[j];
            if (reaction_of(w, store, s->reaction) == i) {
                say(w, store, "    %s at %lld mark %lld retries %lld source %.*s value %.*s\n",
                    reaction_name(i), (long long)s->at, (long long)s->mark, (long long)s->retries,
                    (int)s->source.len, s->source.len == 0 ? "" : s->source.ptr, (int)s->value.len,
                    s->value.len == 0 ? "" : s->value.ptr);
            }
        }
    }
    for (size_t j = 0; j < l->sent_back_count; j++) {
        const store_sent_back *s = &l->sent_back[j];
        const int reaction = reaction_of(w, store, s->reaction);
        say(w, store, "    sent back %s event %lld attempts %lld\n",
            reaction < 0 ? "?" : reaction_name(reaction), (long long)s->event,
            (long long)s->attempts);
    }
}

static void note_take(world *w, int store, size_t slot, const store_leased *l)
{
    note *n = &w->notes[slot % NOTES_MAX];
    if (store == 0) {
        *n = (note){ 0 };
        snprintf(n->target, sizeof n->target, "%.*s", (int)l->name.len, l->name.ptr);
        for (size_t i = 0; i < l->subscriptions_count && i < NOTE_SUBSCRIPTIONS_MAX; i++) {
            n->subscriptions[i].reaction = reaction_of(w, 0, l->subscriptions[i].reaction);
            n->subscriptions[i].at = l->subscriptions[i].at;
            n->subscriptions[i].mark = l->subscriptions[i].mark;
            n->subscriptions_count++;
        }
        n->sent_back_count =
            l->sent_back_count < NOTE_SENT_BACK_MAX ? l->sent_back_count : NOTE_SENT_BACK_MAX;
    }
    n->id[store] = l->target;
    n->fence[store] = l->fence;
    for (size_t i = 0; i < n->sent_back_count && i < l->sent_back_count; i++) {
        n->sent_back[i][store] = l->sent_back[i].parked;
    }
}

/* A lease that is asked of every store. */
typedef struct lease_plan {
    store_lease_request request;
    bool knows[REACTIONS];
    store_known_reaction known[REACTIONS]; /* of the store that is asked */
    size_t first;                          /* note of its first target   */
} lease_plan;

static void lease_plan_make(world *w, lease_plan *p)
{
    static const char *const lanes[LANES] = { "fast", "mail", "slow" };
    store_lease_request r = { .lane = weir__str(lanes[chance(w, LANES)]),
                              .holder = weir__str(one_in(w, 2) ? "worker-1" : "worker-2"),
                              .lease_us = 1000000 + (int64_t)chance(w, 20000000),
                              .limit = one_in(w, 20) ? 0 : 1 + chance(w, 6),
                              .all_reactions = one_in(w, 2),
                              .lost_max = one_in(w, 3) ? (int64_t)chance(w, 4) : 0 };
    r.leading = r.limit > 0 ? chance(w, r.limit) : 0;
    r.reserve = r.limit > 0 ? chance(w, r.limit - r.leading) : 0;
    what(w, "lease %s limit %zu leading %zu reserve %zu lost_max %lld knows", r.lane.ptr, r.limit,
         r.leading, r.reserve, (long long)r.lost_max);
    for (int i = 0; i < REACTIONS; i++) {
        p->knows[i] = !one_in(w, 4) && w->reactions[i].known && !r.all_reactions;
        if (p->knows[i]) {
            what(w, " %s", reaction_name(i));
        }
    }
    p->request = r;
    p->first = w->notes_count;
}

static const store_lease_request *lease_plan_of(world *w, int store, lease_plan *p)
{
    p->request.known = p->known;
    p->request.known_count = 0;
    for (int i = 0; i < REACTIONS; i++) {
        if (p->knows[i]) {
            p->known[p->request.known_count++] =
                (store_known_reaction){ .reaction = w->reactions[i].id[store],
                                        .number = w->reactions[i].current -
                                                  (i == 1 && w->seed % 3 == 0) };
        }
    }
    return &p->request;
}

static void leases_take(world *w, int store, const lease_plan *p, const store_lease_list *list)
{
    for (size_t i = 0; i < list->leases_count; i++) {
        lease_say(w, store, &list->leases[i]);
        note_take(w, store, p->first + i, &list->leases[i]);
    }
    if (store == w->stores_count - 1) {
        w->notes_count = p->first + list->leases_count;
    }
}

static void op_lease(world *w)
{
    static lease_plan p;
    lease_plan_make(w, &p);
    for (int store = 0; store < w->stores_count; store++) {
        store_lease_list list = { 0 };
        weir_error err;
        weir_store *s = w->stores[store];
        const weir_status status =
            s->work->turn(s, NULL, 0, lease_plan_of(w, store, &p), &list, &err);
        say_status(w, store, status, &err);
        leases_take(w, store, &p, &list);
        weir__arena_free(&list.arena);
    }
}

/* A lease to work with: usually one of the last. NULL: none was given yet. */
static note *some_note(world *w)
{
    if (w->notes_count == 0) {
        return NULL;
    }
    const size_t kept = w->notes_count < NOTES_MAX ? w->notes_count : NOTES_MAX;
    const size_t back = one_in(w, 8) ? chance(w, kept) : chance(w, kept < 3 ? kept : 3);
    note *n = &w->notes[(w->notes_count - 1 - back) % NOTES_MAX];
    what(w, " %s fence %lld", n->target, (long long)n->fence[0]);
    return n;
}

/* The worker is done with a lease; now and then it does not know, and comes again with a stale
 * one. */
static void note_drop(world *w, const note *n)
{
    const size_t kept = w->notes_count < NOTES_MAX ? w->notes_count : NOTES_MAX;
    const size_t last = (w->notes_count - 1) % NOTES_MAX;
    if (one_in(w, 5)) {
        return;
    }
    for (size_t back = 0; back < kept; back++) {
        const size_t slot = (w->notes_count - 1 - back) % NOTES_MAX;
        if (&w->notes[slot] == n) {
            w->notes[slot] = w->notes[last];
            w->notes_count--;
            return;
        }
    }
}

/* The position of an event that there is, just above `at` if possible. */
static int64_t event_near(const world *w, int64_t at)
{
    const int64_t next = at + 1 > w->head ? w->head : at + 1;
    return next <= w->position_base ? w->position_base + 1 : next;
}

static int64_t fence_of(const note *n, int store, bool wrong_fence)
{
    return n->fence[store] + wrong_fence;
}

/* ---- fetching ----------------------------------------------------------------------------- */

static void op_fetch(world *w)
{
    enum { ITEMS_MAX = 3 };
    note *from[ITEMS_MAX];
    store_fetch_item items[ITEMS_MAX];
    int reactions[ITEMS_MAX];
    size_t count = 0;
    const size_t wanted = 1 + chance(w, ITEMS_MAX);
    what(w, "fetch");
    for (size_t i = 0; i < wanted; i++) {
        note *n = some_note(w);
        if (n == NULL || n->subscriptions_count == 0) {
            continue;
        }
        const size_t s = chance(w, n->subscriptions_count);
        from[count] = n;
        reactions[count] = one_in(w, 40) ? (int)chance(w, REACTIONS) : n->subscriptions[s].reaction;
        items[count] =
            (store_fetch_item){ .after = n->subscriptions[s].at,
                                .up_to = one_in(w, 10) ? INT64_MAX : n->subscriptions[s].mark,
                                .limit = 1 + (int64_t)chance(w, 10) };
        what(w, " %s after %lld up to %lld limit %lld;", reaction_name(reactions[count]),
             (long long)items[count].after, (long long)items[count].up_to,
             (long long)items[count].limit);
        count++;
    }
    for (int store = 0; store < w->stores_count && count > 0; store++) {
        store_fetch_list list = { 0 };
        weir_error err;
        for (size_t i = 0; i < count; i++) {
            items[i].target = from[i]->id[store];
            items[i].reaction = w->reactions[reactions[i]].id[store];
        }
        const weir_status status =
            w->stores[store]->work->fetch(w->stores[store], items, count, &list, &err);
        say_status(w, store, status, &err);
        for (size_t i = 0; i < list.events_count; i++) {
            say(w, store, "  item %u", list.events[i].item_index);
            say_event(w, store, list.events[i].event);
        }
        for (size_t i = 0; i < count && status == WEIR_OK; i++) {
            say(w, store, "  item %zu exhausted %d\n", i, list.exhausted[i]);
        }
        for (size_t i = 0; status == WEIR_OK && i < count; i++) {
            say(w, store, "  item %zu %s", i, list.exhausted[i] ? "exhausted" : "may have more");
        }
        weir__arena_free(&list.arena);
    }
}

/* ---- settling ----------------------------------------------------------------------------- */

typedef struct own_sql {
    int calls;
    bool fails;
} own_sql;

static weir_status run_own_sql(void *ctx, void *native, weir_error *err)
{
    own_sql *own = ctx;
    (void)native;
    own->calls++;
    return own->fails ? weir__fail(err, WEIR_EHELD, "ours: not now") : WEIR_OK;
}

enum { EFFECTS_MAX = 2, ADVANCES_MAX = NOTE_SUBSCRIPTIONS_MAX };

typedef struct settle_plan {
    note *n;
    bool wrong_fence, sql, sql_fails;
    store_end end;
    some_append effects[EFFECTS_MAX];
    size_t effects_count;
    int advance_reactions[ADVANCES_MAX];
    int64_t advance_to[ADVANCES_MAX];
    size_t advances_count;
    int park_reaction; /* -1: none */
    int64_t park_event;
    bool done;           /* the sent-back events were handled */
    int failed_reaction; /* -1: none */
    int64_t failed_event;
    int64_t lease_us, until_us;
} settle_plan;

static void plan_advances(world *w, settle_plan *p)
{
    for (size_t i = 0; i < p->n->subscriptions_count; i++) {
        const int64_t at = p->n->subscriptions[i].at;
        const int64_t mark = p->n->subscriptions[i].mark;
        if (one_in(w, 4) || p->n->subscriptions[i].reaction < 0) {
            continue;
        }
        int64_t to = mark;
        if (one_in(w, 3) && mark > at) {
            to = at + (int64_t)chance(w, (uint64_t)(mark - at) + 1);
        }
        p->advance_reactions[p->advances_count] = p->n->subscriptions[i].reaction;
        p->advance_to[p->advances_count] = to;
        what(w, " %s to %lld", reaction_name(p->n->subscriptions[i].reaction), (long long)to);
        p->advances_count++;
    }
}

static bool settle_plan_make(world *w, settle_plan *p)
{
    *p = (settle_plan){ .park_reaction = -1, .failed_reaction = -1 };
    what(w, "settle");
    p->n = some_note(w);
    if (p->n == NULL) {
        return false;
    }
    p->wrong_fence = one_in(w, 15);
    p->sql = one_in(w, 4);
    p->sql_fails = p->sql && one_in(w, 4);
    p->end = (store_end)(one_in(w, 2) ? 0 : chance(w, 4));
    p->done = one_in(w, 2);
    p->lease_us = 1000000 + (int64_t)chance(w, 10000000);
    p->until_us = w->wall_us + (int64_t)chance(w, 20000000);
    plan_advances(w, p);
    while (one_in(w, 3) && p->effects_count < EFFECTS_MAX) {
        what(w, " effect");
        some_append_make(w, &p->effects[p->effects_count++], true);
    }
    if (p->n->subscriptions_count > 0) {
        const size_t s = chance(w, p->n->subscriptions_count);
        const int64_t next = event_near(w, p->n->subscriptions[s].at + (int64_t)chance(w, 3));
        if (one_in(w, 8)) {
            p->park_reaction = p->n->subscriptions[s].reaction;
            p->park_event = next;
            what(w, " park %lld", (long long)next);
        }
        if (one_in(w, 4) || p->end == STORE_END_BLOCK) {
            p->failed_reaction = p->n->subscriptions[s].reaction;
            p->failed_event = next;
            what(w, " failed %s at %lld", reaction_name(p->failed_reaction), (long long)next);
        }
    }
    what(w, " end %d wrong %d sql %d fails %d done %d", (int)p->end, p->wrong_fence, p->sql,
         p->sql_fails, p->done);
    return true;
}

/* Whether the lease has ended with it. */
static bool settle_run(world *w, int store, settle_plan *p)
{
    store_advance advances[ADVANCES_MAX];
    some_append effects[EFFECTS_MAX];
    store_append *appends[EFFECTS_MAX];
    int64_t done[NOTE_SENT_BACK_MAX];
    own_sql own = { .fails = p->sql_fails };
    weir_error err;
    for (size_t i = 0; i < p->advances_count; i++) {
        advances[i] = (store_advance){ .reaction = w->reactions[p->advance_reactions[i]].id[store],
                                       .to = p->advance_to[i] };
    }
    for (size_t i = 0; i < p->effects_count; i++) {
        some_append_copy(&p->effects[i], &effects[i]);
        appends[i] = &effects[i].append;
    }
    for (size_t i = 0; i < p->n->sent_back_count; i++) {
        done[i] = p->n->sent_back[i][store];
    }
    const store_park park = {
        .reaction = p->park_reaction < 0 ? 0 : w->reactions[p->park_reaction].id[store],
        .event = p->park_event,
        .attempts = 2,
        .error = weir__str("ours: poison"),
    };
    store_settle settle = {
        .target = p->n->id[store],
        .fence = fence_of(p->n, store, p->wrong_fence),
        .sql = p->sql ? run_own_sql : NULL,
        .sql_ctx = &own,
        .appends = appends,
        .appends_count = p->effects_count,
        .advances = advances,
        .advances_count = p->advances_count,
        .parks = &park,
        .parks_count = p->park_reaction < 0 ? 0 : 1,
        .parked_done = done,
        .parked_done_count = p->done ? p->n->sent_back_count : 0,
        .failure = { .reaction =
                         p->failed_reaction < 0 ? 0 : w->reactions[p->failed_reaction].id[store],
                     .event = p->failed_event,
                     .error = weir__str("ours: failed") },
        .end = p->end,
        .lease_us = p->lease_us,
        .until_us = p->until_us,
    };
    const weir_status status = w->stores[store]->work->settle(w->stores[store], &settle, &err);
    say_status(w, store, status, &err);
    say(w, store, "  sql %d\n", own.calls);
    if (status != WEIR_OK) {
        return status == WEIR_ELOST;
    }
    say(w, store, "  behind %d until %lld\n", settle.behind,
        p->end == STORE_END_KEEP ? (long long)settle.lease_until_us : 0LL);
    for (size_t i = 0; i < p->effects_count; i++) {
        some_append_say(w, store, &effects[i]);
    }
    some_appends_learn(w, store, effects, p->effects_count);
    w->must_wake = w->must_wake || weir__settle_gives_work(&settle, settle.behind);
    return p->end != STORE_END_KEEP;
}

static void op_settle(world *w)
{
    static settle_plan p;
    if (!settle_plan_make(w, &p)) {
        return;
    }
    bool ended = false;
    for (int store = 0; store < w->stores_count; store++) {
        ended = settle_run(w, store, &p);
    }
    if (ended) {
        note_drop(w, p.n);
    }
}

/* ---- turns -------------------------------------------------------------------------------- */

enum { TURN_MAX = 4 };

/* Settles as in settle_plan, but plain; `note` is a copy: the leases of a turn take places. */
typedef struct turn_plan {
    settle_plan settles[TURN_MAX];
    note notes[TURN_MAX];
    size_t count;
    bool leases;
    lease_plan lease;
} turn_plan;

static void turn_plan_make(world *w, turn_plan *p)
{
    const size_t wanted = chance(w, TURN_MAX + 1);
    p->count = 0;
    what(w, "turn");
    for (size_t i = 0; i < wanted; i++) {
        const note *n = some_note(w);
        bool again = false;
        for (size_t j = 0; j < p->count; j++) {
            again = again || (n != NULL && strcmp(p->notes[j].target, n->target) == 0);
        }
        if (n == NULL || again) {
            continue;
        }
        settle_plan *s = &p->settles[p->count];
        p->notes[p->count] = *n;
        *s = (settle_plan){ .n = &p->notes[p->count], .wrong_fence = one_in(w, 15) };
        plan_advances(w, s);
        what(w, " wrong %d;", s->wrong_fence);
        p->count++;
    }
    p->leases = !one_in(w, 6);
    lease_plan_make(w, &p->lease);
}

/* Whether a target that was settled has work and is nobody's. */
static bool turn_leaves_work(const store_settle *settles, size_t count,
                             const store_lease_list *list)
{
    for (size_t i = 0; i < count; i++) {
        bool leased = settles[i].status != WEIR_OK || !settles[i].behind;
        for (size_t j = 0; j < list->leases_count; j++) {
            leased = leased || list->leases[j].target == settles[i].target;
        }
        if (!leased) {
            return true;
        }
    }
    return false;
}

static void turn_run(world *w, int store, turn_plan *p)
{
    store_advance advances[TURN_MAX][ADVANCES_MAX];
    store_settle settles[TURN_MAX], *pointers[TURN_MAX];
    store_lease_list list = { 0 };
    weir_error err;
    weir_store *s = w->stores[store];
    for (size_t i = 0; i < p->count; i++) {
        const settle_plan *plan = &p->settles[i];
        for (size_t j = 0; j < plan->advances_count; j++) {
            advances[i][j] = (store_advance){
                .reaction = w->reactions[plan->advance_reactions[j]].id[store],
                .to = plan->advance_to[j],
            };
        }
        settles[i] = (store_settle){ .target = plan->n->id[store],
                                     .fence = fence_of(plan->n, store, plan->wrong_fence),
                                     .advances = advances[i],
                                     .advances_count = plan->advances_count,
                                     .status = WEIR_EMISUSE };
        pointers[i] = &settles[i];
    }
    const store_lease_request *lease = p->leases ? lease_plan_of(w, store, &p->lease) : NULL;
    const weir_status status = s->work->turn(s, pointers, p->count, lease, &list, &err);
    say_status(w, store, status, &err);
    for (size_t i = 0; i < p->count; i++) {
        say(w, store, "  %s behind %d\n", weir_status_text(settles[i].status),
            settles[i].status == WEIR_OK && settles[i].behind);
    }
    leases_take(w, store, &p->lease, &list);
    w->must_wake = w->must_wake || turn_leaves_work(settles, p->count, &list);
    weir__arena_free(&list.arena);
}

static void op_turn(world *w)
{
    static turn_plan p;
    turn_plan_make(w, &p);
    for (int store = 0; store < w->stores_count; store++) {
        turn_run(w, store, &p);
    }
}

/* ---- extending and giving back ------------------------------------------------------------ */

static void fenced(world *w, bool extend)
{
    enum { ITEMS_MAX = 3 };
    note *notes[ITEMS_MAX];
    bool wrong_fence[ITEMS_MAX];
    size_t count = 0;
    const size_t wanted = 1 + chance(w, ITEMS_MAX);
    what(w, extend ? "extend" : "release");
    for (size_t i = 0; i < wanted; i++) {
        notes[count] = some_note(w);
        bool again = false; /* one item per target: what a second one sees is nobody's business */
        for (size_t j = 0; j < count; j++) {
            again = again ||
                    (notes[count] != NULL && strcmp(notes[j]->target, notes[count]->target) == 0);
        }
        if (notes[count] != NULL && !again) {
            wrong_fence[count] = one_in(w, 15);
            count++;
        }
    }
    const int64_t lease_us = 1000000 + (int64_t)chance(w, 10000000);
    for (int store = 0; store < w->stores_count && count > 0; store++) {
        store_fenced items[ITEMS_MAX];
        weir_error err;
        weir_store *s = w->stores[store];
        for (size_t i = 0; i < count; i++) {
            items[i] = (store_fenced){ .target = notes[i]->id[store],
                                       .fence = fence_of(notes[i], store, wrong_fence[i]),
                                       .status = WEIR_EMISUSE };
        }
        const weir_status status = s->work->extend(s, extend ? lease_us : 0, items, count, &err);
        say_status(w, store, status, &err);
        for (size_t i = 0; i < count; i++) {
            say(w, store, "  %s until %lld\n", weir_status_text(items[i].status),
                extend && items[i].status == WEIR_OK ? (long long)items[i].until_us : 0LL);
            w->must_wake = w->must_wake || (!extend && items[i].status == WEIR_OK);
        }
    }
}

static void op_extend(world *w)
{
    fenced(w, true);
}

static void op_release(world *w)
{
    fenced(w, false);
}

static void op_block(world *w)
{
    what(w, "block");
    note *n = some_note(w);
    if (n == NULL) {
        return;
    }
    const bool wrong_fence = one_in(w, 10);
    const int reaction =
        n->subscriptions_count > 0 && one_in(w, 2) ? n->subscriptions[0].reaction : -1;
    for (int store = 0; store < w->stores_count; store++) {
        weir_error err;
        const store_failure why = {
            .reaction = reaction < 0 ? 0 : w->reactions[reaction].id[store],
            .event = reaction < 0 ? 0 : event_near(w, n->subscriptions[0].at),
            .error = weir__str("ours: blocked"),
        };
        store_settle settle = { .target = n->id[store],
                                .fence = fence_of(n, store, wrong_fence),
                                .failure = why,
                                .end = STORE_END_BLOCK };
        const weir_status status = w->stores[store]->work->settle(w->stores[store], &settle, &err);
        say_status(w, store, status, &err);
        w->must_wake = w->must_wake || status == WEIR_OK;
    }
}

static void op_defer(world *w)
{
    what(w, "defer");
    note *n = some_note(w);
    if (n == NULL) {
        return;
    }
    const bool wrong_fence = one_in(w, 10);
    const bool nobody = one_in(w, 20);
    const int64_t until_us = w->wall_us + (int64_t)chance(w, 20000000) - 2000000;
    what(w, " until %lld nobody %d", (long long)until_us, nobody);
    for (int store = 0; store < w->stores_count; store++) {
        weir_error err;
        store_settle settle = { .target = nobody ? 987654 : n->id[store],
                                .fence = fence_of(n, store, wrong_fence),
                                .end = STORE_END_DEFER,
                                .until_us = until_us };
        const weir_status status = w->stores[store]->work->settle(w->stores[store], &settle, &err);
        say_status(w, store, status, &err);
        w->must_wake = w->must_wake || status == WEIR_OK;
    }
}

const operation target_operations[] = {
    { "lease", 70, op_lease },   { "fetch", 30, op_fetch },     { "settle", 80, op_settle },
    { "extend", 10, op_extend }, { "release", 12, op_release }, { "block", 5, op_block },
    { "defer", 8, op_defer },    { "turn", 60, op_turn },       { NULL, 0, NULL },
};
