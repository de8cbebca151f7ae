/* work_others.c - what a run of weir work --until-idle waits for when it has nothing to do itself:
 * targets with work for reactions that it does not have.
 *
 * A running worker that has the reaction will do that work, and is waited for. If none has it, the
 * run would wait for ever: it ends, after as long as a silent worker is believed to live, so that
 * one that is just being started or restarted is noticed. What it waits for is logged, and again
 * when it waits for something else.
 *
 * Who has which reactions is what the workers say of themselves (store.h, WORKERS). It is a hint:
 * it decides how long to wait, and nothing else.
 */
#include "api/api.h"
#include "base/clock.h"
#include "cli/operate.h"
#include "cli/work.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    NAMED_MAX = 3,
    LOOK_EVERY_US = 1000000,
    LOOK_REST_FACTOR = 10, /* looking takes a tenth of the time at most */
};

typedef struct others_look {
    store_reaction_list reactions;
    cli_workers workers;
    const store_worker *self; /* in the list */
    const weir_str *lanes;
    size_t lanes_count;
    bool *named; /* owned: per reaction, whether it is waited for and not ours */
    int64_t targets, without_worker;
    bool goes_on; /* there is work that somebody does, or will do */
} others_look;

static bool is_looked_at(const others_look *l, const store_target *t)
{
    for (size_t i = 0; i < l->lanes_count; i++) {
        if (weir__str_equal(l->lanes[i], t->lane)) {
            return true;
        }
    }
    return l->lanes_count == 0;
}

/* Whether a target with work has it for a reaction that we do not have (*theirs), that we have
 * (*ours), and that any running worker has (*handled). */
static void judge_target(others_look *l, const store_target *t, bool *theirs, bool *ours,
                         bool *handled)
{
    bool lags = false; /* else an event that was sent back waits, and any reaction may have it */

    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        lags = lags || (!s->retired && s->at < s->mark);
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        for (size_t k = 0; k < l->reactions.reactions_count; k++) {
            const store_reaction *r = &l->reactions.reactions[k];
            if (r->id != s->reaction || s->retired || (lags && s->at >= s->mark)) {
                continue;
            }
            const bool known = weir__cli_worker_knows(l->self, r);
            l->named[k] = l->named[k] || !known;
            *theirs = *theirs || !known;
            *ours = *ours || (known && lags);
            *handled = *handled || weir__cli_workers_count(&l->workers, &t->lane, r) > 0;
        }
    }
}

/* A `wants` of cli_target_sink: nothing is to be shown. */
static bool look_at_target(void *ctx, const store_target *t, bool *wanted)
{
    others_look *l = ctx;
    const store_target_state state = t->state;
    bool theirs = false, ours = false, handled = false;

    *wanted = false;
    if (!t->behind || !is_looked_at(l, t) ||
        (state != STORE_TARGET_LEASED && state != STORE_TARGET_READY &&
         state != STORE_TARGET_DEFERRED)) {
        return true;
    }
    judge_target(l, t, &theirs, &ours, &handled);
    handled = handled || ours || state == STORE_TARGET_LEASED;
    l->goes_on = l->goes_on || handled;
    l->targets += theirs ? 1 : 0;
    l->without_worker += handled ? 0 : 1;
    return true;
}

static bool find_self(others_look *l, weir_str name)
{
    for (size_t i = 0; i < l->workers.list.workers_count; i++) {
        const store_worker *w = &l->workers.list.workers[i];
        l->self = weir__str_equal(w->name, name) ? w : l->self;
    }
    return l->self != NULL;
}

/* false: it could not be asked, or does not know us: the engine says so. */
static bool look_around(others_look *l, weir_store *store, weir_str self)
{
    const cli_target_sink sink = { .wants = look_at_target, .ctx = l };
    const store_target_filter all = { 0 };
    weir_error err;

    if (store->work->reactions(store, &l->reactions, &err) != WEIR_OK ||
        weir__cli_workers_read(store, &l->workers, &err) != WEIR_OK || !find_self(l, self)) {
        return false;
    }
    l->named = weir__calloc(l->reactions.reactions_count + 1, sizeof *l->named);
    return l->named != NULL &&
           weir__cli_targets_each(store, &all, INT64_MAX, &sink, &err) == WEIR_OK;
}

/* "mail, bill, ship and 2 more" */
static bool names_add(weir_buffer *out, const others_look *l)
{
    char more[32];
    int64_t count = 0;
    bool ok = true;

    for (size_t i = 0; ok && i < l->reactions.reactions_count; i++) {
        const weir_str name = l->reactions.reactions[i].name;
        if (l->named[i] && count++ < NAMED_MAX) {
            ok = weir__buffer_add_text(out, count > 1 ? ", " : "") &&
                 weir__buffer_add(out, name.ptr, name.len);
        }
    }
    (void)snprintf(more, sizeof more, " and %" PRId64 " more", count - NAMED_MAX);
    return ok && (count <= NAMED_MAX || weir__buffer_add_text(out, more));
}

/* Unless it was the last thing that was said. The numbers alone change all the time. */
static void say_waiting(work_others *o, work_log *log, const others_look *l)
{
    weir_buffer names = { 0 };
    const bool nobody = l->without_worker > 0;

    if (names_add(&names, l) &&
        (nobody != o->nobody_said || !weir__str_equal((weir_str){ names.ptr, names.len },
                                                      (weir_str){ o->said.ptr, o->said.len }))) {
        const log_field fields[] = {
            weir__log_number_field("targets", l->targets),
            weir__log_text_field("reactions", (weir_str){ names.ptr, names.len }),
            weir__log_number_field("without_worker", l->without_worker),
            weir__log_text_field("next", weir__str("weir why")),
        };
        const weir_buffer before = o->said;
        o->said = names;
        o->nobody_said = nobody;
        names = before;
        weir__work_say(log, nobody ? LOG_WARNING : LOG_INFO, "waiting", fields,
                       sizeof fields / sizeof fields[0]);
    }
    weir__buffer_free(&names);
}

/* Nothing was found that goes on, now: whether that has been so, of as many targets, for long. */
static bool waited_enough(work_others *o, const others_look *l, int64_t now_us)
{
    if (l->goes_on || l->without_worker == 0 || l->without_worker != o->without_worker) {
        o->alone_since_us = now_us;
    }
    o->without_worker = l->without_worker;
    return !l->goes_on && l->without_worker > 0 &&
           now_us - o->alone_since_us >= STORE_WORKER_BEATS * STORE_WORKER_BEAT_US;
}

bool weir__work_others(work_others *o, work_log *log, weir_store *store, weir_engine *engine,
                       const weir_str *lanes, size_t lanes_count)
{
    const weir_clock *clock = weir__clock_machine();
    const int64_t begun_us = weir__clock_mono(clock);
    others_look l = { .lanes = lanes, .lanes_count = lanes_count };
    char self[STORE_NAME_BYTES_MAX + 1];
    bool ends = false;

    if (begun_us < o->next_us) {
        return false;
    }
    if (weir__engine_rests(engine, self, sizeof self) && look_around(&l, store, weir__str(self))) {
        if (l.targets > 0) {
            say_waiting(o, log, &l);
        }
        ends = waited_enough(o, &l, begun_us);
    } else {
        o->without_worker = 0;
    }
    const int64_t now_us = weir__clock_mono(clock);
    const int64_t rest_us = (now_us - begun_us) * LOOK_REST_FACTOR;
    o->next_us = now_us + (rest_us < LOOK_EVERY_US ? LOOK_EVERY_US : rest_us);
    weir__free(l.named);
    weir__cli_workers_free(&l.workers);
    weir__arena_free(&l.reactions.arena);
    return ends;
}
