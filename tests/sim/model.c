/* model.c - see sim.h: what has to be true.
 *
 * The model is made from the log: which events each reaction has to handle for each target (a
 * line), and what was done, as the handlers' own events tell. After every step the store's
 * answers are compared with it, and with what they were before the step:
 *
 *   - fences and every subscription's `at` only grow, but for a reset, which moves `at` to where it
 *     says, and after which what is above it is done once more;
 *   - of a line, an event at or below `at` has one effect or is parked, exactly one of them; an
 *     event above it has neither. So nothing is skipped, nothing is done twice, and progress and
 *     effects are one;
 *   - effects of a line come in the order of the events, but for those that were parked;
 *   - an effect carries the fence that its target has: no settle under a stale fence succeeded;
 *   - LOOK has no effects to find. Its handler tells which events it has seen, and under which
 *     fence, and a settle that moves `at` over an event, or ends one that was sent back, counts as
 *     its effect if it was seen under the fence that the target has; else it was skipped. Under one
 *     fence events are seen in order and once, and not when they were settled already. That one
 *     was seen and not settled is fine;
 *   - a subscription has at < mark exactly when its line has an event above `at` that was routed,
 *     and its target is `behind` exactly when one of them has, or was sent something back;
 *   - an event is given to a handler under a lease that has not ended; a projection is not told
 *     its fence, and not looked at here;
 *   - who takes a step changes what such a step may change: leasing settles what its slots have
 *     finished and takes what nobody holds; slots and renewals change what they hold, with the
 *     fence they hold it with; polling nothing.
 *
 * COPY gains an event name when its newer definition is declared. What had been routed by then may
 * be handled or not: such events are not `required`.
 */
#include "sim.h"

#include "base/memory.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- lines -------------------------------------------------------------------------------- */

static int target_index(weir_str name)
{
    char text[64];
    int number = 0;

    (void)snprintf(text, sizeof text, "%.*s", (int)name.len, name.ptr);
    if (sscanf(text, "t-order-%d", &number) == 1) {
        return number;
    }
    if (sscanf(text, "w-%d", &number) == 1) {
        return SIM_STREAMS + number;
    }
    if (sscanf(text, "l-order-%d", &number) == 1) {
        return SIM_LOOKED + number;
    }
    return strcmp(text, "all") == 0 ? SIM_TARGETS - 1 : -1;
}

static sim_event *find_event(sim_line *line, int64_t id)
{
    size_t low = 0, high = line->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (line->events[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < line->count && line->events[low].id == id ? &line->events[low] : NULL;
}

static void add_event(sim *s, sim_reaction r, int target, int64_t id, bool required)
{
    sim_line *line = &s->lines[r][target];

    if (line->count == line->capacity) {
        line->capacity = line->capacity == 0 ? 32 : 2 * line->capacity;
        line->events = weir__realloc(line->events, line->capacity * sizeof *line->events);
        if (line->events == NULL) {
            abort();
        }
    }
    line->events[line->count++] = (sim_event){ .id = id, .required = required };
    s->last_source = id;
}

/* What has to be true of one event of a line. */
static void check_event(sim *s, int r, int t, const sim_event *e)
{
    const sim_line *line = &s->lines[r][t];
    const int done = e->effects + e->parked;
    const bool covered = e->id <= line->at && line->subscribed;

    if (done > 1) {
        sim_fail(s, "event %lld of %s, target %d, has %d effects and is parked %d times",
                 (long long)e->id, sim_reaction_names[r], t, e->effects, e->parked);
    } else if (!covered && done > 0) {
        sim_fail(s, "event %lld of %s, target %d, is done but at is %lld", (long long)e->id,
                 sim_reaction_names[r], t, (long long)line->at);
    } else if (covered && done == 0 && e->required) {
        sim_fail(s, "event %lld of %s, target %d, was skipped: at is %lld", (long long)e->id,
                 sim_reaction_names[r], t, (long long)line->at);
    }
}

/* ---- the log ------------------------------------------------------------------------------ */

static void see_source(sim *s, const weir_event *e)
{
    const bool order = e->stream.len > 6 && memcmp(e->stream.ptr, "order-", 6) == 0;
    const bool placed = weir__str_equal(e->name, weir__str("Placed"));
    const bool changed = weir__str_equal(e->name, weir__str("Changed"));
    char text[64];
    int number = 0;

    if (order && (placed || changed)) {
        (void)snprintf(text, sizeof text, "%.*s", (int)e->stream.len, e->stream.ptr);
        (void)sscanf(text, "order-%d", &number);
        add_event(s, AUDIT, number, e->id, true);
        add_event(s, COPY, number, e->id, placed || e->id > s->newer_from);
        if (placed) {
            add_event(s, SUM, number, e->id, true);
            add_event(s, LOOK, SIM_LOOKED + number, e->id, true);
            add_event(s, TALLY, SIM_TARGETS - 1, e->id, true);
        }
    } else if (weir__str_equal(e->name, weir__str("Paid"))) {
        (void)snprintf(text, sizeof text, "%.*s", (int)e->data.len, e->data.ptr);
        if (sscanf(text, "{\"k\":\"%d\"}", &number) != 1) {
            number = SIM_NOWHERE - SIM_STREAMS;
        }
        add_event(s, BILL, SIM_STREAMS + number, e->id, true);
        add_event(s, MAIL, SIM_STREAMS + number, e->id, true);
        add_event(s, TAKE, SIM_STREAMS + number, e->id, true);
    }
}

/* Reaction r has done an event of target t. */
static void see_done(sim *s, int r, int t, long long id, long long fence)
{
    sim_line *line = &s->lines[r][t];
    sim_event *done = find_event(line, id);
    if (done == NULL) {
        sim_fail(s, "%s handled event %lld, which is not for it", sim_reaction_names[r], id);
        return;
    }
    s->effects++;
    done->effects++;
    if (fence != s->rows[t].fence) {
        sim_fail(s, "an effect with fence %lld, but target %d has %lld", fence, t,
                 (long long)s->rows[t].fence);
    }
    if (id < line->last && !done->was_parked) {
        sim_fail(s, "%s handled event %lld of target %d after %lld", sim_reaction_names[r], id, t,
                 (long long)line->last);
    }
    line->last = id > line->last ? id : line->last;
}

static void see_effect(sim *s, const weir_event *e)
{
    char text[200], to[64] = "";
    long long id = 0, fence = 0;
    int r = 0;

    (void)snprintf(text, sizeof text, "%.*s", (int)e->data.len, e->data.ptr);
    if (sscanf(text, "{\"event\":%lld,\"reaction\":%d,\"fence\":%lld,\"to\":\"%63[^\"]", &id, &r,
               &fence, to) != 4) {
        sim_fail(s, "an effect that nobody knows: %s", text);
        return;
    }
    see_done(s, r, target_index(weir__str(to)), id, fence);
}

/* What projections have written: which target it was for follows from the event. */
static void see_projected(sim *s)
{
    for (size_t i = 0; i < s->projected_count && !s->failed; i++) {
        const sim_projected *row = &s->projected[i];
        int t = 0;
        while (t < SIM_STREAMS - 1 && find_event(&s->lines[SUM][t], row->event) == NULL) {
            t++;
        }
        see_done(s, SUM, t, row->event, row->fence);
        s->projections++;
    }
    s->projected_count = 0;
}

void sim_saw(sim *s, weir_str target, int64_t event, int64_t fence)
{
    const int t = target_index(target);
    sim_line *line = t < 0 ? NULL : &s->lines[LOOK][t];
    sim_event *e = line == NULL ? NULL : find_event(line, event);

    if (e == NULL) {
        sim_fail(s, "look handled event %lld, which is not for it", (long long)event);
        return;
    }
    if (fence < line->seen_fence) {
        return; /* who has lost it and does not know: what it has seen is never settled */
    }
    if (fence == s->rows[t].fence && e->effects > 0) {
        sim_fail(s, "look handled event %lld of target %d again", (long long)event, t);
    }
    if (fence > line->seen_fence) {
        line->seen_fence = fence;
        line->seen_last = 0;
    }
    if (e->parked == 0 && event <= line->seen_last) {
        sim_fail(s, "look handled event %lld of target %d after %lld", (long long)event, t,
                 (long long)line->seen_last);
    }
    line->seen_last = e->parked == 0 ? event : line->seen_last;
    e->seen_fence = fence;
}

/* A settle was about this event of LOOK's. */
static void see_looked(sim *s, int t, sim_event *e, sim_actor actor)
{
    if (e->seen_fence == s->rows[t].fence) {
        e->effects++;
        s->looks += actor == ACTOR_LEASING;
    }
}

/* Reads on in the log. Those that are effects are checked when `at` is known. */
static size_t read_log(sim *s)
{
    const store_log_query q = { .after = s->log_seen, .to = INT64_MAX, .limit = 1000 };

    if (s->store->log->read_log(s->store, &q, &s->chunk, NULL) != WEIR_OK) {
        sim_fail(s, "could not read the log");
        return 0;
    }
    s->log_seen = s->chunk.scanned_to > s->log_seen ? s->chunk.scanned_to : s->log_seen;
    return s->chunk.events_count;
}

static void see_log(sim *s)
{
    const size_t count = read_log(s);

    for (size_t i = 0; i < count && !s->failed; i++) {
        const weir_event *e = &s->chunk.events[i];
        if (weir__str_equal(e->name, weir__str("Done"))) {
            see_effect(s, e);
        } else {
            see_source(s, e);
        }
    }
    see_projected(s);
}

/* ---- reactions and parked events ------------------------------------------------------------ */

static int reaction_of_name(weir_str name)
{
    for (int i = 0; i < SIM_REACTIONS; i++) {
        if (weir__str_equal(name, weir__str(sim_reaction_names[i]))) {
            return i;
        }
    }
    return -1;
}

static void see_reactions(sim *s, sim_actor actor)
{
    if (s->store->work->reactions(s->store, &s->reactions, NULL) != WEIR_OK) {
        sim_fail(s, "could not read the reactions");
        return;
    }
    for (size_t i = 0; i < s->reactions.reactions_count; i++) {
        const store_reaction *q = &s->reactions.reactions[i];
        const int r = reaction_of_name(q->name);
        if (q->routed < s->routed[r] && actor != ACTOR_RESET) {
            sim_fail(s, "%s was routed up to %lld, and now up to %lld", sim_reaction_names[r],
                     (long long)s->routed[r], (long long)q->routed);
        }
        s->routed[r] = q->routed;
        if (q->routed >= s->routed_high[r]) {
            s->routed_high[r] = q->routed;
            for (int t = 0; t < SIM_TARGETS; t++) {
                s->lines[r][t].was_reset = false;
            }
        }
        s->reaction_ids[r] = q->id;
    }
}

/* What is not parked any more, and was not covered by a settle, was sent back and is done. */
static void see_parked_done(sim *s)
{
    for (int t = SIM_LOOKED; t < SIM_LOOKED + SIM_STREAMS; t++) {
        sim_line *line = &s->lines[LOOK][t];
        for (size_t i = 0; i < line->covered; i++) {
            sim_event *e = &line->events[i];
            if (e->was_parked && e->parked == 0 && e->effects == 0) {
                see_looked(s, t, e, ACTOR_SLOT);
            }
        }
    }
}

static void see_parked(sim *s)
{
    const store_parked_query q = { .limit = 10000 };

    if (s->store->work->parked(s->store, &q, &s->parked, NULL) != WEIR_OK) {
        sim_fail(s, "could not read what is parked");
        return;
    }
    if (s->parked.parked_count == 0 && s->parked_count == 0) {
        return;
    }
    s->parked_count = s->parked.parked_count;
    for (int r = 0; r < SIM_REACTIONS; r++) {
        for (int t = 0; t <= SIM_NOWHERE; t++) {
            sim_line *line = &s->lines[r][t];
            line->sent_back = 0;
            for (size_t i = 0; i < line->count; i++) {
                line->events[i].parked = 0;
            }
        }
    }
    for (size_t i = 0; i < s->parked.parked_count; i++) {
        const store_parked *one = &s->parked.parked[i];
        const int t = one->target.len == 0 ? SIM_NOWHERE : target_index(one->target);
        sim_line *line = t < 0 ? NULL : &s->lines[reaction_of_name(one->reaction_name)][t];
        sim_event *e = line == NULL ? NULL : find_event(line, one->event);
        if (e == NULL) {
            sim_fail(s, "event %lld is parked for %.*s, which it is not for", (long long)one->event,
                     (int)one->reaction_name.len, one->reaction_name.ptr);
            return;
        }
        e->parked++;
        e->was_parked = true;
        line->sent_back += one->sent_back;
    }
    see_parked_done(s);
}

/* ---- targets ------------------------------------------------------------------------------ */

/* The index of a target; its name is looked at once. -1: nobody asked for it. */
static int index_of(sim *s, const store_target *target)
{
    for (int t = 0; t < SIM_TARGETS; t++) {
        if (s->rows[t].id == target->id) {
            return t;
        }
    }
    return target_index(target->name);
}

static int reaction_of_id(const sim *s, int64_t id)
{
    int r = 0;

    while (r < SIM_REACTIONS - 1 && s->reaction_ids[r] != id) {
        r++;
    }
    return r;
}

static sim_row row_of(const store_target *t)
{
    sim_row row = { .id = t->id,
                    .fence = t->fence,
                    .until_us = t->leased_until_us,
                    .due_us = t->due_us,
                    .lost = t->lost,
                    .priority = t->priority,
                    .behind = t->behind,
                    .blocked = t->blocked,
                    .paused = t->paused };
    const size_t len = t->holder.len < sizeof row.holder ? t->holder.len : sizeof row.holder - 1;
    if (len > 0) {
        memcpy(row.holder, t->holder.ptr, len);
    }
    return row;
}

/* A lease that has expired since is no longer shown, nor is a time that has come. */
static sim_row as_of_now(sim *s, const sim_row *before)
{
    sim_row row = *before;

    if (row.until_us != 0 && row.until_us <= sim_store_now(s)) {
        row.until_us = 0;
        row.holder[0] = '\0';
    }
    if (row.due_us <= sim_store_now(s)) {
        row.due_us = 0;
    }
    return row;
}

static bool same_lease(const sim_row *a, const sim_row *b)
{
    return a->fence == b->fence && a->until_us == b->until_us && strcmp(a->holder, b->holder) == 0;
}

static bool same_state(const sim_row *a, const sim_row *b)
{
    return a->due_us == b->due_us && a->lost == b->lost && a->blocked == b->blocked &&
           a->paused == b->paused;
}

static bool believed(const sim_row *row, const sim_belief *beliefs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (beliefs[i].target == row->id && beliefs[i].fence == row->fence) {
            return true;
        }
    }
    return false;
}

/* settled: a slot of the lane had finished it under that fence, so it was free before it was
 * leased, or has become so now. */
static void check_leased(sim *s, int t, const sim_row *before, const sim_row *now,
                         const sim_process *p, bool settled)
{
    if (now->blocked && !before->blocked && before->lost + 1 >= SIM_LOST_MAX) {
        return; /* lost too often: blocked instead */
    }
    if (settled && now->fence == before->fence && now->until_us == 0 && !now->blocked) {
        return;
    }
    if (before->until_us != 0 && !settled) {
        sim_fail(s, "target %d was leased while %s held it", t, before->holder);
    } else if (now->fence != before->fence + 1) {
        sim_fail(s, "target %d was leased with fence %lld after %lld", t, (long long)now->fence,
                 (long long)before->fence);
    } else if (!weir__str_equal(weir__str(now->holder), weir__worker_name(p->worker))) {
        sim_fail(s, "target %d was leased for %s", t, now->holder);
    } else if (before->blocked || before->paused || !before->behind ||
               before->due_us > sim_store_now(s)) {
        sim_fail(s, "target %d was leased, but is blocked, paused, deferred or has no work", t);
    }
}

/* Whether who took the step may have changed the row as it did. */
static void check_row(sim *s, int t, const sim_row *now, sim_actor actor, const sim_process *p,
                      const sim_belief *beliefs, size_t count)
{
    const sim_row before = as_of_now(s, &s->rows[t]);
    const bool lease_same = same_lease(&before, now), state_same = same_state(&before, now);

    if (now->fence < before.fence) {
        sim_fail(s, "the fence of target %d fell from %lld to %lld", t, (long long)before.fence,
                 (long long)now->fence);
    }
    if (lease_same && state_same) {
        return;
    }
    switch (actor) {
    case ACTOR_LEASING:
        check_leased(s, t, &before, now, p, believed(&before, beliefs, count));
        break;
    case ACTOR_SLOT:
    case ACTOR_RENEWING:
    case ACTOR_CLOSE:
        if (now->fence != before.fence || !believed(now, beliefs, count)) {
            sim_fail(s, "p%d changed target %d, which it does not hold: fence %lld", p->number, t,
                     (long long)now->fence);
        } else if (actor == ACTOR_RENEWING && !state_same) {
            sim_fail(s, "a renewal changed target %d", t);
        }
        break;
    case ACTOR_SKIP:
    case ACTOR_RESET:
        break;
    case ACTOR_OPERATOR:
        if (!lease_same) {
            sim_fail(s, "the operator changed the lease of target %d", t);
        }
        break;
    case ACTOR_ROUTER:
    case ACTOR_POLLER:
    case ACTOR_START:
    case ACTOR_APPEND:
        sim_fail(s, "target %d was changed by somebody who does not lease", t);
        break;
    }
}

/* Of the events that became covered, and whether there is work. */
static void check_line(sim *s, int r, int t)
{
    sim_line *line = &s->lines[r][t];
    const int64_t routed = line->was_reset ? s->routed[r] : s->routed_high[r];
    int64_t last = 0; /* the last that was routed and has to be handled */

    for (; line->covered < line->count && line->events[line->covered].id <= line->at;
         line->covered++) {
        check_event(s, r, t, &line->events[line->covered]);
    }
    for (size_t i = line->count; i > 0 && last == 0; i--) {
        const sim_event *e = &line->events[i - 1];
        last = e->required && e->id <= routed ? e->id : 0;
    }
    const bool work = last > line->at || (last > 0 && !line->subscribed);
    if (work != (line->at < line->mark)) {
        sim_fail(s, "%s on target %d: at %lld, mark %lld, but the last event routed is %lld",
                 sim_reaction_names[r], t, (long long)line->at, (long long)line->mark,
                 (long long)last);
    }
}

/* settled: the step may have settled it. */
static void see_subscriptions(sim *s, int t, const store_target *target, sim_actor actor,
                              bool settled)
{
    for (size_t i = 0; i < target->subscriptions_count; i++) {
        const store_subscription *sub = &target->subscriptions[i];
        const int r = reaction_of_id(s, sub->reaction);
        sim_line *line = &s->lines[r][t];
        if (line->subscribed && sub->at < line->at) {
            sim_fail(s, "at of %s on target %d went back from %lld to %lld", sim_reaction_names[r],
                     t, (long long)line->at, (long long)sub->at);
        }
        if (line->subscribed && sub->at != line->at && !settled && actor != ACTOR_SLOT &&
            actor != ACTOR_SKIP && actor != ACTOR_ROUTER) {
            sim_fail(s, "at of %s on target %d was moved by a step that settles nothing",
                     sim_reaction_names[r], t);
        }
        for (size_t j = line->covered;
             r == LOOK && settled && j < line->count && line->events[j].id <= sub->at; j++) {
            see_looked(s, t, &line->events[j], actor);
        }
        line->subscribed = true;
        line->at = sub->at;
        line->mark = sub->mark;
        line->retries = sub->retries;
    }
}

static void see_targets(sim *s, sim_actor actor, const sim_process *p, const sim_belief *beliefs,
                        size_t count)
{
    const store_targets_query q = { .limit = SIM_TARGETS + 1 };

    if (s->store->work->targets(s->store, &q, &s->targets, NULL) != WEIR_OK) {
        sim_fail(s, "could not read the targets");
        return;
    }
    for (size_t i = 0; i < s->targets.targets_count && !s->failed; i++) {
        const store_target *target = &s->targets.targets[i];
        const int t = index_of(s, target);
        const sim_row now = row_of(target);
        if (t < 0) {
            sim_fail(s, "a target that nobody asked for: %.*s", (int)target->name.len,
                     target->name.ptr);
            return;
        }
        if (s->rows[t].id != 0) {
            check_row(s, t, &now, actor, p, beliefs, count);
        }
        see_subscriptions(s, t, target, actor,
                          (actor == ACTOR_LEASING || actor == ACTOR_SLOT) &&
                              believed(&s->rows[t], beliefs, count));
        s->rows[t] = now;
        if (now.until_us != 0) {
            s->ends[t][now.fence % SIM_ENDS] =
                (sim_end){ .fence = now.fence, .until_us = now.until_us };
        }
    }
}

void sim_begins(sim *s, weir_str target, int64_t fence)
{
    const int t = target_index(target);
    const sim_end *end = t < 0 ? NULL : &s->ends[t][fence % SIM_ENDS];

    if (end != NULL && end->fence == fence && end->until_us <= sim_store_now(s)) {
        sim_fail(s,
                 "an event of target %d was begun under fence %lld, whose lease ended %lld us ago",
                 t, (long long)fence, (long long)(sim_store_now(s) - end->until_us));
    }
}

static void check_lines(sim *s)
{
    for (int t = 0; t < SIM_TARGETS && !s->failed; t++) {
        bool work = false;
        for (int r = 0; r < SIM_REACTIONS; r++) {
            sim_line *line = &s->lines[r][t];
            if (line->count > 0) {
                check_line(s, r, t);
            }
            work = work || line->at < line->mark || line->sent_back > 0;
        }
        if (work != s->rows[t].behind) {
            sim_fail(s, "target %d is %sbehind, but has %s work", t,
                     s->rows[t].behind ? "" : "not ", work ? "" : "no");
        }
    }
}

/* Events whose target cannot be found are parked when they are routed, once. */
static void check_nowhere(sim *s)
{
    for (int r = 0; r < SIM_REACTIONS; r++) {
        const sim_line *line = &s->lines[r][SIM_NOWHERE];
        for (size_t i = 0; i < line->count; i++) {
            const sim_event *e = &line->events[i];
            if (e->effects > 0 || e->parked != (e->id <= s->routed_high[r])) {
                sim_fail(s, "event %lld of %s has no target, and is parked %d times",
                         (long long)e->id, sim_reaction_names[r], e->parked);
            }
        }
    }
}

/* Effects and parked events of this step, against `at`. */
static void check_done(sim *s)
{
    for (int r = 0; r < SIM_REACTIONS; r++) {
        for (int t = 0; t < SIM_TARGETS && !s->failed; t++) {
            const sim_line *line = &s->lines[r][t];
            const int64_t at = line->subscribed ? line->at : -1;
            for (size_t i = 0; i < line->count && !s->failed; i++) {
                const sim_event *e = &line->events[i];
                if (e->effects + e->parked != (e->id <= at)) { /* most are as they should be */
                    check_event(s, r, t, e);
                }
            }
        }
    }
}

/* No two slots of anybody have the same lease, and nobody has one that was not given yet. */
static void check_beliefs(sim *s)
{
    sim_belief seen[SIM_PROCESSES * SIM_TASKS_MAX];
    size_t count = 0;

    for (int i = 0; i < SIM_PROCESSES; i++) {
        const sim_process *p = &s->processes[i];
        for (size_t j = 0; p->up && j < p->tasks_count; j++) {
            const slot *own = p->tasks[j].slot;
            if (own == NULL || own->state == SLOT_IDLE) {
                continue;
            }
            for (size_t k = 0; k < count; k++) {
                if (seen[k].target == own->target && seen[k].fence == own->fence) {
                    sim_fail(s, "two slots hold target %lld with fence %lld",
                             (long long)own->target, (long long)own->fence);
                }
            }
            seen[count++] = (sim_belief){ .target = own->target, .fence = own->fence };
        }
    }
}

void sim_look(sim *s, sim_actor actor, const sim_process *p, const sim_belief *beliefs,
              size_t count)
{
    const bool world = actor >= ACTOR_START;

    if (s->failed) {
        return;
    }
    if (actor == ACTOR_SLOT || world) {
        see_log(s);
    }
    if (actor == ACTOR_ROUTER || actor == ACTOR_START || actor == ACTOR_RESET) {
        see_reactions(s, actor);
    }
    if (actor == ACTOR_SLOT || actor == ACTOR_ROUTER || actor == ACTOR_SKIP ||
        actor == ACTOR_OPERATOR) {
        see_parked(s);
    }
    see_targets(s, actor, p, beliefs, count);
    check_lines(s);
    if (actor == ACTOR_SLOT || (actor == ACTOR_LEASING && count > 0) || actor == ACTOR_SKIP) {
        check_done(s);
    }
    if (actor == ACTOR_ROUTER) {
        check_nowhere(s);
    }
    if (actor == ACTOR_LEASING) {
        check_beliefs(s);
    }
}

int64_t sim_reset_least(const sim *s, int target)
{
    int64_t least = 0;

    for (int r = 0; r < SIM_REACTIONS; r++) {
        const sim_line *line = &s->lines[r][target];
        for (size_t i = 0; i < line->count; i++) {
            const sim_event *e = &line->events[i];
            least = e->parked > 0 && e->id > least ? e->id : least;
        }
    }
    return least;
}

void sim_will_reset(sim *s, int target, int64_t position)
{
    for (int r = 0; r < SIM_REACTIONS; r++) {
        sim_line *line = &s->lines[r][target];
        if (!line->subscribed || line->at <= position) {
            continue;
        }
        line->at = position;
        line->last = line->last < position ? line->last : position;
        line->was_reset =
            r == BILL || r == MAIL || r == TAKE; /* only the router can find their events */
        line->covered = 0;
        for (size_t i = 0; i < line->count; i++) {
            if (line->events[i].id > position) {
                line->events[i].effects = 0;
                line->events[i].seen_fence = 0;
            }
        }
    }
}

void sim_newer_from(sim *s, int64_t routed)
{
    s->newer_from = routed;
    for (int t = 0; t < SIM_TARGETS; t++) {
        sim_line *line = &s->lines[COPY][t];
        for (size_t i = 0; i < line->count; i++) {
            line->events[i].required = line->events[i].required || line->events[i].id > routed;
        }
    }
}

/* ---- the end ------------------------------------------------------------------------------ */

bool sim_blocked(const sim *s)
{
    for (int t = 0; t < SIM_TARGETS; t++) {
        if (s->rows[t].blocked) {
            return true;
        }
    }
    return false;
}

bool sim_done(sim *s)
{
    for (int r = 0; r < SIM_REACTIONS; r++) {
        if (s->routed[r] < s->last_source) {
            return false;
        }
    }
    for (int t = 0; t < SIM_TARGETS; t++) {
        if (s->rows[t].behind) {
            return false;
        }
    }
    return true;
}

void sim_check_end(sim *s)
{
    for (int r = 0; r < SIM_REACTIONS && !s->failed; r++) {
        for (int t = 0; t < SIM_TARGETS; t++) {
            const sim_line *line = &s->lines[r][t];
            for (size_t i = 0; i < line->count && !s->failed; i++) {
                const sim_event *e = &line->events[i];
                if (e->required && e->effects + e->parked != 1) {
                    sim_fail(s, "event %lld of %s, target %d, was never handled", (long long)e->id,
                             sim_reaction_names[r], t);
                }
            }
        }
    }
}

void sim_model_free(sim *s)
{
    for (int r = 0; r < SIM_REACTIONS; r++) {
        for (int t = 0; t <= SIM_NOWHERE; t++) {
            weir__free(s->lines[r][t].events);
        }
    }
    weir__arena_free(&s->targets.arena);
    weir__arena_free(&s->reactions.arena);
    weir__arena_free(&s->parked.arena);
    weir__chunk_free(&s->chunk);
}
