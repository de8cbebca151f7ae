/* router.c - routing: from the log to marks, in turns, under routers' leases.
 *
 * INVARIANTS
 *   (1) A chunk is routed only for reactions that were held and current when it was read, and whose
 *       position is inside it: its filter has left out what others want, and so, when none of
 *       them look at it, are data and meta, or everything but positions and names.
 *   (2) Whatever reads the reactions again drops the chunk: positions are the store's.
 *   (3) Asked while it works, the router reads to the end once more.
 *
 * THREADS  Everything but `asked` and `hinted` belongs to the task. `known` of the registry's
 * reactions is the router's too.
 */
#include "engine/router.h"

#include "base/error.h"
#include "base/str.h"
#include "engine/lane.h"
#include "engine/marks.h"

#include <stdlib.h>

enum {
    ROUTE_MARKS_SOFT = 4096, /* a route ends with the event that reaches so many marks and parks */
    FILTER_NAMES_MAX = 1000, /* more names than that are not looked for one by one */
};
#define ROUTER_TAKE_US     INT64_C(250000)   /* between two tries to get what others hold */
#define ROUTER_ACTIVE_US   INT64_C(10000000) /* leases are renewed so long after routing */
#define ROUTER_LOOK_US     INT64_C(1000000)
#define ROUTER_LOOK_US_MAX INT64_C(5000000)
#define ROUTER_HELD_US     INT64_C(5000)
#define ROUTER_HELD_US_MAX INT64_C(100000)
/* Pause between two reads that found nothing: everything that is settled anywhere wakes us, and
 * most of it appends nothing. */
#define ROUTER_VAIN_US      INT64_C(250)
#define ROUTER_VAIN_US_MAX  INT64_C(4000)
#define ROUTER_VAIN_PAST_US INT64_C(100000)
#define ROUTER_LONG_AGO     (INT64_MIN / 4)

/* What the router knows of a reaction beside `known`. */
typedef struct router_reaction {
    int64_t fence;  /* of the lease that we hold, live or not; 0: none */
    int64_t routed; /* as it was when the reactions were read last */
    int64_t beyond; /* `routed`, if that was found to be beyond the end of the log; 0: it was not */
    bool told;      /* that its definition is old */
} router_reaction;

/* A mark that the store refused, because its target is in another lane: its events are parked. */
typedef struct lane_clash {
    struct lane_clash *next;
    int64_t reaction;
    weir_str target, lane, error;
} lane_clash;

static int64_t position_least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static reaction *reaction_at(const router *r, size_t i)
{
    return &r->worker->registry->reactions[i];
}

static size_t reactions_count(const router *r)
{
    return r->worker->registry->reactions_count;
}

static bool is_held(const router *r, size_t i)
{
    return r->reactions[i].fence != 0 && r->reactions[i].beyond == 0 &&
           weir__reaction_current(reaction_at(r, i));
}

static int64_t router_failed(router *r, const weir_error *err)
{
    r->retry_us = weir__worker_store_failed(r->worker, &r->task, &r->attempt, err);
    return r->retry_us;
}

static void drop_chunk(router *r)
{
    r->has_chunk = false;
    r->clash = NULL;
    weir__arena_reset(&r->clash_arena);
}

/* Tells how far everything of ours is routed at least. */
static void publish_routed(router *r)
{
    int64_t ours = INT64_MAX;

    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        if (weir__reaction_current(q)) {
            ours = position_least(ours, q->known.routed);
        }
    }
    atomic_store_explicit(&r->worker->routed_ours, ours, memory_order_relaxed);
}

/* ---- leases ------------------------------------------------------------------------------- */

typedef enum lease_choice { LEASES_CURRENT, LEASES_HELD, LEASES_OLD } lease_choice;

static bool is_chosen(const router *r, size_t i, lease_choice choice)
{
    const bool current = weir__reaction_current(reaction_at(r, i));

    switch (choice) {
    case LEASES_CURRENT:
        return current;
    case LEASES_HELD:
        return r->reactions[i].fence != 0;
    case LEASES_OLD:
        return r->reactions[i].fence != 0 && !current;
    }
    return false;
}

static bool any_chosen(const router *r, lease_choice choice)
{
    for (size_t i = 0; i < reactions_count(r); i++) {
        if (is_chosen(r, i, choice)) {
            return true;
        }
    }
    return false;
}

/* Takes, renews or (lease_us 0) gives back. *taken: one that we did not have. */
static weir_status lease_call(router *r, lease_choice choice, int64_t lease_us, bool *taken,
                              weir_error *err)
{
    weir_store *store = r->worker->store;
    const weir_str holder = weir__worker_name(r->worker);
    size_t count = 0;

    weir__arena_reset(&r->arena);
    store_router_lease *items =
        weir__arena_alloc(&r->arena, (reactions_count(r) + 1) * sizeof *items);
    size_t *indexes = weir__arena_alloc(&r->arena, (reactions_count(r) + 1) * sizeof *indexes);
    if (items == NULL || indexes == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < reactions_count(r); i++) {
        if (is_chosen(r, i, choice)) {
            indexes[count] = i;
            items[count++] = (store_router_lease){ .reaction = reaction_at(r, i)->known.id,
                                                   .fence = r->reactions[i].fence };
        }
    }
    const weir_status status =
        store->work->router_lease(store, holder, lease_us, items, count, err);
    for (size_t i = 0; status == WEIR_OK && i < count; i++) {
        router_reaction *mine = &r->reactions[indexes[i]];
        *taken = *taken || (items[i].fence != 0 && items[i].fence != mine->fence);
        mine->fence = items[i].fence;
    }
    return status;
}

static int64_t leases_take(router *r, int64_t now_us)
{
    weir_error err = { .size = sizeof err };
    bool taken = false;
    const weir_status status =
        lease_call(r, LEASES_CURRENT, r->worker->options.router_lease_us, &taken, &err);

    if (status != WEIR_OK) {
        return router_failed(r, &err);
    }
    r->attempt = 0;
    r->leased_us = now_us;
    r->tried = true;
    if (taken) {
        /* Its last holder has moved its position, and may have left something. */
        r->look = true;
        r->searching = true;
    }
    return TASK_NOW;
}

/* After this others can take over at once, so they are woken. */
static weir_status hand_back(router *r, lease_choice choice, weir_error *err)
{
    weir_store *store = r->worker->store;
    bool taken = false;
    const weir_status status = lease_call(r, choice, 0, &taken, err);

    if (status == WEIR_OK && store->log->wake != NULL) {
        store->log->wake(store);
    }
    return status;
}

static int64_t give_back(router *r, lease_choice choice)
{
    weir_error err = { .size = sizeof err };

    if (hand_back(r, choice, &err) != WEIR_OK) {
        return router_failed(r, &err);
    }
    r->attempt = 0;
    return TASK_NOW;
}

/* Whether some reaction of ours is routed by another, as far as we know. */
static bool any_missing(const router *r)
{
    for (size_t i = 0; i < reactions_count(r); i++) {
        if (r->reactions[i].fence == 0 && weir__reaction_current(reaction_at(r, i))) {
            return true;
        }
    }
    return false;
}

static bool any_held(const router *r)
{
    for (size_t i = 0; i < reactions_count(r); i++) {
        if (is_held(r, i)) {
            return true;
        }
    }
    return false;
}

/* When leases are to be taken or renewed; INT64_MAX: not as things are. */
static int64_t lease_due_us(const router *r)
{
    const int64_t lease_us = r->worker->options.router_lease_us;
    int64_t due_us = INT64_MAX;

    if (any_held(r)) {
        if (r->searching) {
            due_us = r->leased_us + lease_us / 3;
        } else if (r->leased_us - r->active_us < ROUTER_ACTIVE_US) {
            due_us = r->leased_us + lease_us / 2;
        }
    }
    if (!r->tried && any_missing(r) && r->leased_us + ROUTER_TAKE_US < due_us) {
        due_us = r->leased_us + ROUTER_TAKE_US;
    }
    return due_us;
}

/* ---- looking ------------------------------------------------------------------------------ */

static void tell_old(router *r, size_t i)
{
    const reaction *q = reaction_at(r, i);
    const log_field fields[] = {
        weir__log_text_field("reaction", q->name),
        weir__log_number_field("definition", q->known.number),
        weir__log_number_field("current", q->known.current),
    };

    weir__worker_log(r->worker, LOG_WARNING,
                     q->known.retired ? "reaction_retired" : "definition_old", fields,
                     sizeof fields / sizeof fields[0]);
}

static int64_t reactions_look(router *r, int64_t now_us)
{
    registry *reg = r->worker->registry;
    weir_error err = { .size = sizeof err };
    const weir_status status = weir__registry_refresh(reg, r->worker->store, &err);

    if (atomic_load(&r->rewound)) {
        weir__registry_unserve(reg); /* what was read may be of the log before */
        return TASK_NOW;
    }
    if (status != WEIR_OK) {
        return router_failed(r, &err);
    }
    r->attempt = 0;
    drop_chunk(r);
    r->look = false;
    r->look_wanted = false;
    r->looked_us = now_us;
    r->look_at_us = INT64_MAX;
    r->look_wait_us = position_least(r->look_wait_us * 2, ROUTER_LOOK_US_MAX);
    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        router_reaction *mine = &r->reactions[i];
        if (weir__reaction_current(q)) {
            mine->told = false;
            mine->beyond = mine->beyond == q->known.routed ? mine->beyond : 0;
            /* What was thought to be at the end may not be. */
            r->searching = r->searching || q->known.routed != mine->routed;
            mine->routed = q->known.routed;
            if (r->seen_end >= 0 && q->known.routed > r->seen_end) {
                r->seen_end = -1; /* the log has grown, or the position is beyond it: read on */
            }
        } else if (!mine->told) {
            mine->told = true;
            tell_old(r, i);
        }
    }
    publish_routed(r);
    return TASK_NOW;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Fills names with those of the reactions that will be given the chunk. Too many, or all:
 * everything is read. */
static bool filter_names(router *r, int64_t from, store_filter *filter)
{
    size_t count = 0;
    bool all = false;

    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        if (is_held(r, i) && q->known.routed >= from) {
            all = all || q->all_names;
            count += q->names_count;
        }
    }
    if (all || count > FILTER_NAMES_MAX) {
        return true;
    }
    weir_str *names = weir__arena_alloc(&r->arena, (count + 1) * sizeof *names);
    if (names == NULL) {
        return false;
    }
    count = 0;
    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        if (is_held(r, i) && q->known.routed >= from && q->names_count > 0) {
            memcpy(&names[count], q->names, q->names_count * sizeof *names);
            count += q->names_count;
        }
    }
    filter->names = names;
    filter->names_count = weir__names_sort(names, count);
    filter->has_names = true;
    return true;
}

/* Whether names are all that those who will be given the chunk look at. */
static bool bare_is_enough(const router *r, int64_t from)
{
    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        if (is_held(r, i) && q->known.routed >= from && weir__reaction_reads_payload(q)) {
            return false;
        }
    }
    return true;
}

/* Whether they look at less than that: where an event is, and its name. */
static bool names_are_enough(const router *r, int64_t from)
{
    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        if (is_held(r, i) && q->known.routed >= from && weir__reaction_reads_stream(q)) {
            return false;
        }
    }
    return true;
}

/* The one source of all that will be given the chunk; NULL: they differ. */
static const store_pattern *common_source(const router *r, int64_t from)
{
    const store_pattern *source = NULL;

    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        if (!is_held(r, i) || q->known.routed < from) {
            continue;
        }
        if (q->source == NULL || q->source->kind == PATTERN_ALL ||
            (source != NULL && !weir__str_equal(source->text, q->source->text))) {
            return NULL;
        }
        source = q->source;
    }
    return source;
}

/* Where to read next: positions of what is held and not at the end take turns. false: nowhere. */
static bool next_position(const router *r, int64_t *from)
{
    int64_t first = INT64_MAX, after = INT64_MAX;

    for (size_t i = 0; i < reactions_count(r); i++) {
        const int64_t routed = reaction_at(r, i)->known.routed;
        if (!is_held(r, i) || (r->seen_end >= 0 && routed >= r->seen_end)) {
            continue;
        }
        first = position_least(first, routed);
        after = routed > r->turn_after ? position_least(after, routed) : after;
    }
    *from = after != INT64_MAX ? after : first;
    return *from != INT64_MAX;
}

/* An older Weir could route what it had read from a log that was cut off. Events that come to lie
 * up to there would be passed over, so nothing is routed for such a reaction, not even when the log
 * has grown past it: until its position is another one (weir doctor says how). The end of the log
 * was read after the reactions were, so nobody has just routed further. */
static void refuse_beyond(router *r)
{
    for (size_t i = 0; i < reactions_count(r); i++) {
        const reaction *q = reaction_at(r, i);
        const log_field fields[] = { weir__log_text_field("reaction", q->name),
                                     weir__log_number_field("routed", q->known.routed),
                                     weir__log_number_field("head", r->chunk.head) };
        if (weir__reaction_current(q) && r->reactions[i].beyond == 0 &&
            q->known.routed > r->chunk.head) {
            r->reactions[i].beyond = q->known.routed;
            weir__worker_log(r->worker, LOG_ERROR, "routed_beyond_log", fields, 3);
        }
    }
}

static void chunk_arrived(router *r, int64_t from, int64_t asked, int64_t now_us)
{
    r->attempt = 0;
    r->turn_after = r->chunk.scanned_to > from ? r->chunk.scanned_to : from;
    if (weir__worker_log_is(r->worker, asked, r->chunk.epoch, r->chunk.log)) {
        return;
    }
    if (!r->chunk.more) {
        r->seen_end = r->chunk.scanned_to > r->seen_end ? r->chunk.scanned_to : r->seen_end;
        if (!r->chunk.held) {
            r->held_at_us = INT64_MAX;
            r->held_wait_us = ROUTER_HELD_US;
            refuse_beyond(r);
        } else {
            r->held_at_us = now_us + r->held_wait_us;
            r->held_wait_us = position_least(r->held_wait_us * 2, ROUTER_HELD_US_MAX);
        }
    }
    r->has_chunk = r->chunk.scanned_to > from;
    r->chunk_from = from;
    r->chunk_next = 0;
}

static int64_t read_chunk(router *r, int64_t from, int64_t now_us)
{
    weir_store *store = r->worker->store;
    weir_error err = { .size = sizeof err };
    store_filter filter = { .since_us = INT64_MIN, .until_us = INT64_MAX };
    const bool bare = bare_is_enough(r, from);
    const store_log_query query = { .after = from,
                                    .to = INT64_MAX,
                                    .limit = bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX,
                                    .bare = bare,
                                    .ids_and_names = bare && names_are_enough(r, from),
                                    .filter = &filter };

    drop_chunk(r);
    weir__arena_reset(&r->arena);
    if (!filter_names(r, from, &filter)) {
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return router_failed(r, &err);
    }
    filter.stream = common_source(r, from);
    const int64_t asked = weir__worker_log_ask(r->worker);
    const weir_status status = store->log->read_log(store, &query, &r->chunk, &err);
    if (status != WEIR_OK) {
        return router_failed(r, &err);
    }
    chunk_arrived(r, from, asked, now_us);
    return TASK_NOW;
}

/* ---- routing ------------------------------------------------------------------------------ */

/* One call of route, while it is made. */
typedef struct routing {
    router *router;
    store_route_step *steps;
    reaction **reactions; /* by the index of their step */
    size_t *fixed;        /* the same: the one mark of a reaction that is fixed, + 1; 0: none yet */
    size_t steps_count;
    mark_list marks;
    size_t next; /* the first event that is not in it */
    int64_t to;
} routing;

static const lane_clash *find_clash(const router *r, const reaction *q, const reaction_route *route)
{
    for (const lane_clash *c = r->clash; c != NULL; c = c->next) {
        if (c->reaction == q->known.id && weir__str_equal(c->target, route->target) &&
            weir__str_equal(c->lane, route->lane)) {
            return c;
        }
    }
    return NULL;
}

/* Parks an event; while re-reading, what is read again was parked then. */
static bool park_event(routing *g, uint32_t step, int64_t event, weir_str error)
{
    return event <= g->reactions[step]->known.reread_to ||
           weir__marks_park(&g->marks, step, event, error);
}

static weir_status add_event(routing *g, uint32_t step, const weir_event *event, weir_error *err)
{
    const reaction *q = g->reactions[step];
    reaction_route route = { 0 };
    weir_error why;

    if (g->fixed[step] != 0) {
        g->marks.marks[g->fixed[step] - 1].last = event->id;
        return WEIR_OK;
    }
    why.size = sizeof why;
    const weir_status status = weir__reaction_resolve(q, event, &g->router->arena, &route, &why);
    bool ok = true;

    if (status == WEIR_EINVAL) {
        ok = park_event(g, step, event->id, weir__str(why.message));
    } else if (status != WEIR_OK) {
        *err = why;
        return status;
    } else if (route.target.len > 0) {
        const lane_clash *clash = find_clash(g->router, q, &route);
        ok = clash != NULL ? park_event(g, step, event->id, clash->error)
                           : weir__marks_add(&g->marks, step, q->rule, &route, event->id);
        if (ok && clash == NULL && weir__reaction_is_fixed(q)) {
            g->fixed[step] = g->marks.marks_count;
        }
    }
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "out of memory");
}

/* The reactions that are given the chunk: held, current, and not behind its beginning. */
static weir_status add_steps(routing *g, weir_error *err)
{
    router *r = g->router;
    const size_t count = reactions_count(r) + 1;

    g->steps = weir__arena_alloc(&r->arena, count * sizeof *g->steps);
    g->reactions = weir__arena_alloc(&r->arena, count * sizeof *g->reactions);
    g->fixed = weir__arena_alloc(&r->arena, count * sizeof *g->fixed);
    if (g->steps == NULL || g->reactions == NULL || g->fixed == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < reactions_count(r); i++) {
        reaction *q = reaction_at(r, i);
        const int64_t routed = q->known.routed;
        if (is_held(r, i) && routed >= r->chunk_from && routed < r->chunk.scanned_to) {
            g->reactions[g->steps_count] = q;
            g->fixed[g->steps_count] = 0;
            g->steps[g->steps_count++] = (store_route_step){ .reaction = q->known.id,
                                                             .number = weir__reaction_number(q),
                                                             .from = routed };
        }
    }
    return WEIR_OK;
}

/* Resolves events until there are enough marks, and closes the steps behind them. */
static weir_status chunk_resolve(routing *g, weir_error *err)
{
    const store_chunk *chunk = &g->router->chunk;
    weir_status status = add_steps(g, err);

    for (g->next = g->router->chunk_next; status == WEIR_OK && g->next < chunk->events_count;
         g->next++) {
        const weir_event *event = &chunk->events[g->next];
        if (g->marks.marks_count + g->marks.parks_count >= ROUTE_MARKS_SOFT) {
            break;
        }
        for (size_t i = 0; i < g->steps_count && status == WEIR_OK; i++) {
            if (event->id > g->steps[i].from &&
                weir__reaction_listens(g->reactions[i], event->name, event->stream)) {
                status = add_event(g, (uint32_t)i, event, err);
            }
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    g->to = g->next < chunk->events_count ? chunk->events[g->next - 1].id : chunk->scanned_to;
    for (size_t i = 0; i < g->steps_count; i++) {
        g->steps[i].to = g->to > g->steps[i].from ? g->to : g->steps[i].from;
    }
    return WEIR_OK;
}

static void tell_parks(const routing *g)
{
    for (size_t i = 0; i < g->marks.parks_count; i++) {
        const store_route_park *park = &g->marks.parks[i];
        const log_field fields[] = {
            weir__log_text_field("reaction", g->reactions[park->reaction_index]->name),
            weir__log_number_field("event", park->event),
            weir__log_text_field("error", park->error),
        };
        weir__worker_log(g->router->worker, LOG_WARNING, "route_parked", fields,
                         sizeof fields / sizeof fields[0]);
    }
}

/* Targets whose position is of a log that lost its end: the store has blocked them. */
static void tell_beyond(const routing *g, const bool *beyond)
{
    for (size_t i = 0; i < g->marks.marks_count; i++) {
        const store_mark *mark = &g->marks.marks[i];
        const log_field fields[] = {
            weir__log_text_field("target", mark->target),
            weir__log_text_field("reaction", g->reactions[mark->reaction_index]->name),
            weir__log_number_field("event", mark->first),
        };
        if (beyond[i]) {
            weir__metric_add(&g->router->worker->metrics, METRIC_BLOCKED, 1);
            weir__worker_log(g->router->worker, LOG_ERROR, "target_beyond_log", fields,
                             sizeof fields / sizeof fields[0]);
        }
    }
}

static bool has_mark_in(const routing *g, weir_str lane_name)
{
    for (size_t i = 0; i < g->marks.marks_count; i++) {
        if (weir__str_equal(g->marks.marks[i].lane, lane_name)) {
            return true;
        }
    }
    return false;
}

static void wake_marked_lanes(const routing *g)
{
    worker *w = g->router->worker;
    for (size_t i = 0; i < w->lanes_count; i++) {
        if (has_mark_in(g, w->lanes[i].config.name)) {
            weir__lane_ask(&w->lanes[i]);
        }
    }
}

/* A wake-up does not say why. Mostly it is because of the log, and what we find there wakes the
 * lanes that have to do with it. The others are told that it may have been about them. When they
 * asked at once, before anything was routed, they found nothing to lease in four of five cases. */
static void pass_on_hint(router *r)
{
    worker *w = r->worker;
    if (!atomic_exchange(&r->hinted, false)) {
        return;
    }
    for (size_t i = 0; i < w->lanes_count; i++) {
        weir__lane_hint(&w->lanes[i]);
    }
}

static void chunk_routed(const routing *g, int64_t now_us)
{
    router *r = g->router;
    metrics *m = &r->worker->metrics;

    for (size_t i = 0; i < g->steps_count; i++) {
        reaction *q = g->reactions[i];
        q->known.routed = g->steps[i].to;
        if (q->known.reread_to <= q->known.routed) {
            q->known.reread_to = 0;
        }
    }
    weir__metric_add(m, METRIC_ROUTED, g->next - r->chunk_next);
    weir__metric_add(m, METRIC_MARKS, g->marks.marks_count);
    weir__metric_add(m, METRIC_ROUTE_PARKED, g->marks.parks_count);
    tell_parks(g);
    r->attempt = 0;
    r->active_us = now_us;
    r->progress = true;
    r->look_wait_us = ROUTER_LOOK_US;
    r->chunk_next = g->next;
    if (g->to >= r->chunk.scanned_to) {
        drop_chunk(r);
    }
    publish_routed(r);
    wake_marked_lanes(g);
    pass_on_hint(r);
}

/* Remembers a mark that was refused. false: out of memory. */
static bool add_clash(const routing *g, size_t bad, const weir_error *why)
{
    router *r = g->router;
    const store_mark *mark = &g->marks.marks[bad];
    weir_arena *arena = &r->clash_arena;
    lane_clash *c = weir__arena_alloc(arena, sizeof *c);
    const char *target = weir__arena_copy(arena, mark->target.ptr, mark->target.len);
    const char *lane_name = weir__arena_copy(arena, mark->lane.ptr, mark->lane.len);
    const size_t error_len = strlen(why->message);
    const char *error = weir__arena_copy(arena, why->message, error_len);

    if (c == NULL || target == NULL || lane_name == NULL || error == NULL) {
        return false;
    }
    *c = (lane_clash){ .next = r->clash,
                       .reaction = g->steps[mark->reaction_index].reaction,
                       .target = { target, mark->target.len },
                       .lane = { lane_name, mark->lane.len },
                       .error = { error, error_len } };
    r->clash = c;
    return true;
}

static int64_t route_chunk(router *r, int64_t now_us)
{
    weir_store *store = r->worker->store;
    weir_error err = { .size = sizeof err };
    routing g = { .router = r, .marks = { .arena = &r->arena } };
    size_t bad = SIZE_MAX;

    weir__arena_reset(&r->arena);
    weir_status status = chunk_resolve(&g, &err);
    if (status == WEIR_OK && g.steps_count == 0) {
        drop_chunk(r);
        return TASK_NOW;
    }
    bool *beyond = weir__arena_alloc(&r->arena, (g.marks.marks_count + 1) * sizeof *beyond);
    if (status == WEIR_OK && beyond == NULL) {
        status = weir__fail(&err, WEIR_ENOMEM, "out of memory");
    }
    if (status != WEIR_OK) {
        return router_failed(r, &err);
    }
    memset(beyond, 0, g.marks.marks_count * sizeof *beyond);
    const store_route call = {
        .steps = g.steps,
        .steps_count = g.steps_count,
        .marks = g.marks.marks,
        .marks_count = g.marks.marks_count,
        .parks = g.marks.parks,
        .parks_count = g.marks.parks_count,
        .place = r->chunk.place,
        .beyond = beyond,
    };
    status = store->work->route(store, &call, &bad, &err);
    if (status == WEIR_OK) {
        tell_beyond(&g, beyond);
        chunk_routed(&g, now_us);
    } else if (status == WEIR_ECONFLICT) {
        drop_chunk(r);
        r->look = true;
        r->leased_us = ROUTER_LONG_AGO;       /* somebody else may hold them by now: ask */
        weir__poller_ask(&r->worker->poller); /* and it may be another log */
    } else if (status != WEIR_EINVAL || bad >= g.marks.marks_count || !add_clash(&g, bad, &err)) {
        return router_failed(r, &err);
    }
    return TASK_NOW;
}

/* ---- the task ----------------------------------------------------------------------------- */

/* The end of the log was found. Looking at the reactions now and then shows what nobody tells: a
 * position that an operator moved back, a definition that has become old. */
static void search_ended(router *r, int64_t now_us)
{
    r->searching = false;
    if (r->progress || now_us - r->read_at_us > ROUTER_VAIN_PAST_US) {
        r->vain_us = 0;
    }
    if (!r->progress) {
        /* The first is free: our own routing wakes us too. */
        r->read_at_us = now_us + r->vain_us;
        r->vain_us =
            position_least(r->vain_us == 0 ? ROUTER_VAIN_US : r->vain_us * 2, ROUTER_VAIN_US_MAX);
    }
    r->look_wanted = r->look_wanted && !r->progress;
    if (r->look_wanted && r->look_at_us == INT64_MAX) {
        const int64_t at_us = r->looked_us + r->look_wait_us;
        r->look_at_us = at_us > now_us ? at_us : now_us;
    }
}

static int64_t sleep_until(const router *r)
{
    return position_least(lease_due_us(r),
                          position_least(r->look_at_us, r->held_at_us)); /* INT64_MAX: TASK_WAIT */
}

static int64_t step_once(router *r, int64_t now_us)
{
    int64_t from;

    if (weir__worker_draining(r->worker)) {
        drop_chunk(r);
        return any_chosen(r, LEASES_HELD) ? give_back(r, LEASES_HELD) : TASK_WAIT;
    }
    if (r->look || now_us >= r->look_at_us) {
        return reactions_look(r, now_us);
    }
    if (any_chosen(r, LEASES_OLD)) {
        return give_back(r, LEASES_OLD);
    }
    if (r->has_chunk) {
        return route_chunk(r, now_us);
    }
    if (now_us >= lease_due_us(r)) {
        return leases_take(r, now_us);
    }
    if (r->searching && next_position(r, &from)) {
        if (now_us >= r->read_at_us || r->progress) {
            return read_chunk(r, from, now_us);
        }
        pass_on_hint(r);
        return r->read_at_us;
    }
    pass_on_hint(r);
    if (r->searching) {
        search_ended(r, now_us);
    }
    return sleep_until(r);
}

static int64_t router_step(task *t)
{
    router *r = (router *)(void *)t; /* the task is its first member */
    const int64_t now_us = weir__task_now(t);
    const bool asked = atomic_exchange_explicit(&r->asked, false, memory_order_relaxed);

    if (atomic_exchange(&r->rewound, false)) {
        drop_chunk(r);
        r->look = true;
    }
    /* Before the time that was answered: woken by somebody who did not say why. */
    if (asked || now_us < r->until_us || now_us >= r->held_at_us) {
        r->progress = r->progress && r->searching;
        r->look_wanted = true;
        r->tried = false;
        r->searching = true;
        r->seen_end = -1;
        r->held_at_us = INT64_MAX;
    }
    if (now_us < r->retry_us) {
        pass_on_hint(r);
    }
    r->until_us = now_us < r->retry_us ? r->retry_us : step_once(r, now_us);
    return r->until_us;
}

void weir__router_hint(router *r)
{
    atomic_store(&r->hinted, true);
    weir__router_ask(r);
}

void weir__router_ask(router *r)
{
    atomic_store_explicit(&r->asked, true, memory_order_relaxed);
    weir__task_wake(&r->task);
}

weir_status weir__router_init(router *r, worker *w, weir_error *err)
{
    *r = (router){
        .task = { .step = router_step, .name = "router", .scheduler = w->scheduler },
        .worker = w,
        .seen_end = -1,
        .turn_after = -1,
        .leased_us = ROUTER_LONG_AGO,
        .active_us = ROUTER_LONG_AGO,
        .looked_us = ROUTER_LONG_AGO,
        .read_at_us = ROUTER_LONG_AGO,
        .look_at_us = INT64_MAX,
        .look_wait_us = ROUTER_LOOK_US,
        .held_at_us = INT64_MAX,
        .held_wait_us = ROUTER_HELD_US,
        .until_us = INT64_MAX,
    };
    r->reactions = weir__calloc(w->registry->reactions_count + 1, sizeof *r->reactions);
    if (r->reactions == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < reactions_count(r); i++) {
        r->reactions[i].routed = reaction_at(r, i)->known.routed;
        r->look = r->look || !weir__reaction_current(reaction_at(r, i));
    }
    publish_routed(r);
    return WEIR_OK;
}

void weir__router_free(router *r)
{
    weir__chunk_free(&r->chunk);
    weir__arena_free(&r->arena);
    weir__arena_free(&r->clash_arena);
    weir__free(r->reactions);
    r->reactions = NULL;
}

void weir__router_release(router *r)
{
    weir_error err = { .size = sizeof err };

    /* There may be no scheduler any more. If it fails, they end by themselves. */
    if (r->reactions != NULL && any_chosen(r, LEASES_HELD)) {
        (void)hand_back(r, LEASES_HELD, &err);
    }
}
