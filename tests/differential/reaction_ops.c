/* reaction_ops.c - random declarations, routing, marks. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what the stores know ----------------------------------------------------------------- */

static void reaction_learn(world *w, int store, const store_reaction *r)
{
    for (int i = 0; i < REACTIONS; i++) {
        if (!weir__str_equal(r->name, weir__str(reaction_name(i)))) {
            continue;
        }
        reaction_note *n = &w->reactions[i];
        n->known = true;
        n->id[store] = r->id;
        n->retired = r->retired;
        n->current = r->current;
        n->routed = r->routed;
        n->rule = r->rule;
        n->all_names = r->all_names;
        snprintf(n->source, sizeof n->source, "%.*s", (int)r->source.len, r->source.ptr);
        memset(n->names, 0, sizeof n->names);
        for (size_t j = 0; j < r->names_count && j < sizeof n->names; j++) {
            n->names[j] = r->names[j].ptr[0];
        }
    }
}

static void reaction_say(world *w, int store, const store_reaction *r)
{
    say(w, store,
        "  reaction %.*s number %lld current %lld since %lld routed %lld reread %lld retired %d "
        "rule "
        "%d source %.*s text %.*s all %d router \"%.*s\" until %lld fence %lld names",
        (int)r->name.len, r->name.ptr, (long long)r->number, (long long)r->current,
        (long long)r->since, (long long)r->routed, (long long)r->reread_to, r->retired,
        (int)r->rule, (int)r->source.len, r->source.ptr, (int)r->rule_text.len,
        r->rule_text.len == 0 ? "" : r->rule_text.ptr, r->all_names, (int)r->router.len,
        r->router.len == 0 ? "" : r->router.ptr, (long long)r->router_until_us,
        (long long)r->router_fence);
    for (size_t i = 0; i < r->names_count; i++) {
        say(w, store, " %.*s", (int)r->names[i].len, r->names[i].ptr);
    }
    say(w, store, "\n");
}

static int by_name(const void *a, const void *b)
{
    return weir__str_compare(((const store_reaction *)a)->name, ((const store_reaction *)b)->name);
}

void reactions_look(world *w)
{
    for (int store = 0; store < w->stores_count; store++) {
        store_reaction_list list = { 0 };
        weir_error err;
        const weir_status status = w->stores[store]->work->reactions(w->stores[store], &list, &err);
        say_status(w, store, status, &err);
        if (list.reactions_count > 0) {
            qsort(list.reactions, list.reactions_count, sizeof *list.reactions, by_name);
        }
        for (size_t i = 0; i < list.reactions_count; i++) {
            reaction_say(w, store, &list.reactions[i]);
            reaction_learn(w, store, &list.reactions[i]);
        }
        weir__arena_free(&list.arena);
    }
}

static void op_reactions(world *w)
{
    what(w, "reactions");
    reactions_look(w);
}

/* ---- declaring ---------------------------------------------------------------------------- */

void op_declare(world *w)
{
    static const char *const letters[] = { "A", "B", "C", "D", "E" };
    static const char *const sources[] = { "*", "a-*", "/[02]$/", "b-1", "c*" };
    const int index = (int)chance(w, REACTIONS);
    /* A reaction has few definitions, so that they come back. Its rule stays: what a target's
     * position means under another rule is for the one who changes it to say. */
    const uint64_t variant = chance(w, 3);
    weir_str names[3];
    store_reaction_declaration d = { .name = weir__str(reaction_name(index)),
                                     .names = names,
                                     .source = weir__str(sources[(uint64_t)index * variant % 5]),
                                     .rule = (store_rule)((w->seed + (uint64_t)index) % 5),
                                     .rule_text = weir__str("text"),
                                     .start = one_in(w, 2) ? (int32_t)chance(w, 3)
                                                           : STORE_START_BEGINNING,
                                     .redeclare = one_in(w, 5) };
    d.start_position =
        d.start == STORE_START_POSITION
            ? w->position_base + (int64_t)chance(w, 1 + (uint64_t)(w->head - w->position_base))
            : 0;
    if (index == 0) {
        d.all_names = true;
    } else {
        for (size_t i = 0; i <= variant; i++) {
            names[d.names_count++] = weir__str(letters[((uint64_t)index + i) % 5]);
        }
    }
    what(w, "declare %s variant %u rule %d start %d %lld redeclare %d", reaction_name(index),
         (unsigned)variant, (int)d.rule, d.start, (long long)d.start_position, d.redeclare);
    for (int store = 0; store < w->stores_count; store++) {
        store_reaction out = { 0 };
        weir_error err;
        const weir_status status =
            w->stores[store]->work->declare(w->stores[store], &d, &w->arena, &out, &err);
        say_status(w, store, status, &err);
        if (status == WEIR_OK) {
            say(w, store, "  number %lld current %lld since %lld routed %lld retired %d\n",
                (long long)out.number, (long long)out.current, (long long)out.since,
                (long long)out.routed, out.retired);
        }
    }
    reactions_look(w);
}

static void op_retire(world *w)
{
    const int index = (int)chance(w, REACTIONS);
    what(w, "retire %s", reaction_name(index));
    for (int store = 0; store < w->stores_count; store++) {
        weir_error err;
        say_status(
            w, store,
            w->stores[store]->work->retire(w->stores[store], weir__str(reaction_name(index)), &err),
            &err);
    }
    reactions_look(w);
}

static void op_router_lease(world *w)
{
    const int index = (int)chance(w, REACTIONS);
    const bool held = !one_in(w, 3);
    const bool stale = one_in(w, 8);
    const int64_t lease_us = one_in(w, 5) ? 0 : 1000000 + (int64_t)chance(w, 10000000);
    const char *holder = one_in(w, 2) ? "router-1" : "router-2";
    reaction_note *n = &w->reactions[index];
    if (!n->known) {
        what(w, "router_lease of nobody");
        return;
    }
    what(w, "router_lease %s held %d stale %d for %lld by %s", reaction_name(index), held, stale,
         (long long)lease_us, holder);
    for (int store = 0; store < w->stores_count; store++) {
        store_router_lease item = { .reaction = n->id[store],
                                    .fence = held ? n->router_fence[store] - stale : 0 };
        weir_error err;
        const weir_status status = w->stores[store]->work->router_lease(
            w->stores[store], weir__str(holder), lease_us, &item, 1, &err);
        say_status(w, store, status, &err);
        say(w, store, "  fence %lld until %lld\n", (long long)item.fence,
            item.fence == 0 ? 0LL : (long long)item.until_us);
        if (item.fence != 0) {
            n->router_fence[store] = item.fence;
        }
    }
}

/* ---- routing ------------------------------------------------------------------------------ */

enum { MARKS_MAX = 256, PARKS_MAX = 16, STEPS_MAX = 2 };

typedef struct route_plan {
    store_route_step steps[STEPS_MAX];
    int reactions[STEPS_MAX];
    size_t steps_count;
    store_mark marks[MARKS_MAX];
    size_t marks_count;
    store_route_park parks[PARKS_MAX];
    size_t parks_count;
} route_plan;

static bool listens(const reaction_note *n, const store_pattern *source, const weir_event *e)
{
    if (!weir__pattern_matches(source, e->stream)) {
        return false;
    }
    return n->all_names ? e->name.ptr[0] != '$'
                        : e->name.len == 1 && memchr(n->names, e->name.ptr[0], 4) != NULL;
}

static const char *resolve(world *w, const reaction_note *n, int reaction, const weir_event *e,
                           weir_str *value)
{
    const weir_str category = weir__category(e->stream);
    *value = (weir_str){ 0 };
    switch (n->rule) {
    case STORE_RULE_CONSTANT:
        return text(w, "all-%s", reaction_name(reaction));
    case STORE_RULE_STREAM:
        *value = weir__str(text(w, "%.*s", (int)e->stream.len, e->stream.ptr));
        return value->ptr; /* shared by all reactions of this rule */
    case STORE_RULE_CATEGORY:
        *value = weir__str(text(w, "%.*s", (int)category.len, category.ptr));
        return text(w, "cat-%s", value->ptr);
    case STORE_RULE_NAME:
        *value = weir__str(text(w, "%.*s", (int)e->name.len, e->name.ptr));
        return text(w, "name-%s", value->ptr);
    case STORE_RULE_WORK:
        break;
    }
    return text(w, "w-%d", (int)(e->id % 3));
}

static void plan_event(world *w, route_plan *p, uint32_t step, const weir_event *e)
{
    const int reaction = p->reactions[step];
    const reaction_note *n = &w->reactions[reaction];
    weir_str value;
    if (one_in(w, 40) && p->parks_count < PARKS_MAX) {
        p->parks[p->parks_count++] = (store_route_park){ .reaction_index = step,
                                                         .event = e->id,
                                                         .error = weir__str("ours: no target") };
        return;
    }
    const char *target = resolve(w, n, reaction, e, &value);
    for (size_t i = 0; i < p->marks_count && n->rule != STORE_RULE_WORK; i++) {
        if (p->marks[i].reaction_index == step &&
            weir__str_equal(p->marks[i].target, weir__str(target))) {
            p->marks[i].last = e->id;
            return;
        }
    }
    if (p->marks_count < MARKS_MAX) {
        p->marks[p->marks_count++] = (store_mark){
            .reaction_index = step,
            .target = weir__str(target),
            .lane = weir__str(lane_of(w, target)),
            .priority = one_in(w, 4) ? (int64_t)chance(w, 5) - 2 : 0,
            .source = weir__str(text(w, "%.*s", (int)e->stream.len, e->stream.ptr)),
            .value = value,
            .first = e->id,
            .last = e->id,
        };
    }
}

/* Reads what a reaction has not routed yet and finds the targets; from the first store, whose log
 * is that of all. */
static void plan_step(world *w, route_plan *p, int reaction)
{
    const reaction_note *n = &w->reactions[reaction];
    const uint32_t index = (uint32_t)p->steps_count;
    int64_t to = n->routed + (int64_t)chance(w, one_in(w, 3) ? 8 : 60);
    to = to > w->head ? w->head : to;
    to = to < n->routed || w->head == w->position_base ? n->routed : to; /* no event yet */
    p->reactions[index] = reaction;
    p->steps[index] = (store_route_step){ .number = n->current - one_in(w, 30),
                                          .from = n->routed - one_in(w, 30),
                                          .to = to };
    p->steps_count++;
    what(w, " %s %lld..%lld", reaction_name(reaction), (long long)n->routed, (long long)to);
    store_pattern *source = NULL;
    weir_error err;
    store_chunk chunk = { 0 };
    if (weir__pattern_open(&source, weir__str(n->source), &err) != WEIR_OK) {
        wrong(w, "source %s: %s", n->source, err.message);
        return;
    }
    const store_log_query q = { .after = n->routed, .to = to, .limit = STORE_CHUNK_EVENTS_MAX };
    if (to > n->routed && w->stores[0]->log->read_log(w->stores[0], &q, &chunk, &err) == WEIR_OK) {
        for (size_t i = 0; i < chunk.events_count; i++) {
            if (listens(n, source, &chunk.events[i])) {
                plan_event(w, p, index, &chunk.events[i]);
            }
        }
    }
    weir__chunk_free(&chunk);
    weir__pattern_close(source);
}

/* Marks need not come in the order of the log, nor once. */
static void disturb(world *w, route_plan *p)
{
    if (p->marks_count == 0 || !one_in(w, 4)) {
        return;
    }
    for (int64_t i = (int64_t)chance(w, 4); i >= 0; i--) {
        const size_t from = (size_t)chance(w, (uint64_t)p->marks_count);
        const size_t to = (size_t)chance(w, (uint64_t)p->marks_count);
        const store_mark moved = p->marks[from];
        if (!one_in(w, 3)) {
            p->marks[from] = p->marks[to];
            p->marks[to] = moved;
        } else if (p->marks_count < MARKS_MAX) {
            p->marks[p->marks_count++] = moved;
        }
    }
}

static void op_route(world *w)
{
    static route_plan p;
    p = (route_plan){ 0 };
    int first = (int)chance(w, REACTIONS);
    for (int i = 0; i < REACTIONS && (!w->reactions[first].known || w->reactions[first].retired ||
                                      w->reactions[first].routed == w->head);
         i++) {
        first = (first + 1) % REACTIONS;
    }
    const int second = (first + 1 + (int)chance(w, REACTIONS - 1)) % REACTIONS;
    what(w, "route");
    if (w->reactions[first].known) {
        plan_step(w, &p, first);
    }
    if (one_in(w, 4) && w->reactions[second].known) {
        plan_step(w, &p, second);
    }
    if (p.steps_count == 0) {
        return;
    }
    disturb(w, &p);
    for (int store = 0; store < w->stores_count; store++) {
        size_t bad_mark = 999;
        size_t beyond_count = 0;
        bool beyond[MARKS_MAX] = { false };
        weir_error err;
        for (size_t i = 0; i < p.steps_count; i++) {
            p.steps[i].reaction = w->reactions[p.reactions[i]].id[store];
        }
        const store_route route = { .steps = p.steps,
                                    .steps_count = p.steps_count,
                                    .marks = p.marks,
                                    .marks_count = p.marks_count,
                                    .parks = p.parks,
                                    .parks_count = p.parks_count,
                                    .beyond = beyond };
        const weir_status status =
            w->stores[store]->work->route(w->stores[store], &route, &bad_mark, &err);
        for (size_t i = 0; i < p.marks_count && status == WEIR_OK; i++) {
            beyond_count += beyond[i];
        }
        /* A conflict here is about a reaction, not about a version of a stream. Which mark of
         * several for a target has blocked it is said by its event. */
        say(w, store, "%s bad mark %zu beyond %zu\n", weir_status_text(status), bad_mark,
            beyond_count);
        w->must_wake = w->must_wake || (status == WEIR_OK && p.marks_count > 0);
    }
    reactions_look(w);
}

/* One mark that no router would find, without moving `routed`. */
static void op_mark(world *w)
{
    const int index = (int)chance(w, REACTIONS);
    const reaction_note *n = &w->reactions[index];
    const char *target = one_in(w, 3) ? text(w, "own-%u", (unsigned)chance(w, 3))
                                      : stream_name((int)chance(w, STREAMS));
    int64_t event = w->position_base + 1 + (int64_t)chance(w, 50);
    event = event > w->head ? w->head : event;
    if (event % 8 != 0 && event > n->routed) {
        event = n->routed; /* mostly not beyond what was routed: that blocks */
    }
    store_mark mark = { .target = weir__str(target),
                        .lane = weir__str(lane_of(w, target)),
                        .priority = (int64_t)chance(w, 5) - 2,
                        .source = weir__str(target),
                        .value = weir__str(n->rule == STORE_RULE_CATEGORY ? "a"
                                           : n->rule == STORE_RULE_NAME
                                               ? "A"
                                               : stream_name((int)chance(w, STREAMS))),
                        .first = event,
                        .last = event };
    what(w, "mark %s of %s in %s at %lld", target, reaction_name(index), mark.lane.ptr,
         (long long)event);
    if (event <= w->position_base) {
        return; /* there is none yet */
    }
    for (int store = 0; store < w->stores_count; store++) {
        weir_error err;
        const store_route_step step = { .reaction = n->known ? n->id[store] : 4711,
                                        .number = n->current,
                                        .from = n->routed,
                                        .to = n->routed };
        const store_route route = {
            .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
        };
        const weir_status status =
            w->stores[store]->work->route(w->stores[store], &route, NULL, &err);
        say(w, store, "%s\n", weir_status_text(status));
        w->must_wake = w->must_wake || status == WEIR_OK;
    }
}

const operation reaction_operations[] = {
    { "declare", 14, op_declare },
    { "retire", 2, op_retire },
    { "reactions", 3, op_reactions },
    { "router_lease", 8, op_router_lease },
    { "route", 80, op_route },
    { "mark", 5, op_mark },
    { NULL, 0, NULL },
};
