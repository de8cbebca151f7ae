/* doctor_work.c - work that needs somebody: blocked targets, parked events, and forgotten work,
 * worst first.
 *
 * Three ways to be forgotten: the reaction was retired, no worker that runs knows the reaction in
 * its current definition, or no worker serves the lane. All targets are looked at, a page at a
 * time; of each reaction a few are named and the rest is counted.
 *
 * What nobody routes gets no work, so a reaction that was taken out of every weir.yaml is told of
 * although no target of it is behind: its targets are all that is left of it.
 */
#include "cli/operate.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    PARKED_PAGE = 500,
    NAMED_MAX = 3,        /* targets that a finding names           */
    NAMED_BYTES_MAX = 96, /* of a name; what is longer is cut short */
    FINDING_BYTES_MAX = 1400,
};

/* Some targets of one reaction, a few of them by name. */
typedef struct named {
    int64_t targets;
    char names[NAMED_MAX][NAMED_BYTES_MAX + 4];
} named;

typedef struct doctor_targets {
    named all, waiting; /* waiting: those with unhandled events of it */
} doctor_targets;

typedef struct doctor_work {
    store_reaction_list reactions;
    store_lane_list lanes;
    cli_workers workers;
    store_positions positions;
    doctor_targets *targets; /* owned: per reaction of the list */
    named blocked;
    named beyond; /* targets with a position beyond the log, also blocked because of that */
    store_survey_fn fn;
    void *ctx;
} doctor_work;

static void note_target(named *n, weir_str name)
{
    if (n->targets < NAMED_MAX) {
        const bool cut = name.len > NAMED_BYTES_MAX;
        const size_t len = cut ? weir__utf8_valid_prefix(name.ptr, NAMED_BYTES_MAX) : name.len;
        (void)snprintf(n->names[n->targets], sizeof n->names[0], "%.*s%s", (int)len, name.ptr,
                       cut ? "..." : "");
    }
    n->targets++;
}

/* A `wants` of cli_target_sink: nothing is to be shown. */
static bool look_at_target(void *ctx, const store_target *t, bool *wanted)
{
    doctor_work *d = ctx;

    if (weir__target_is_passed(t) || weir__cli_is_beyond(t, d->positions.head, NULL, NULL)) {
        note_target(&d->beyond, t->name);
    } else if (t->blocked) {
        note_target(&d->blocked, t->name);
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        for (size_t k = 0; k < d->reactions.reactions_count; k++) {
            if (d->reactions.reactions[k].id != s->reaction) {
                continue;
            }
            note_target(&d->targets[k].all, t->name);
            if (s->at < s->mark) {
                note_target(&d->targets[k].waiting, t->name);
            }
        }
    }
    *wanted = false;
    return true;
}

/* "3 targets have work for it: a, b, c" */
static void write_named(const named *w, const char *one, const char *several, char *out,
                        size_t bytes)
{
    size_t len;
    const int n =
        snprintf(out, bytes, "%" PRId64 " %s", w->targets, w->targets == 1 ? one : several);

    len = n < 0 ? 0 : (size_t)n;
    for (int64_t i = 0; i < w->targets && i < NAMED_MAX && len < bytes; i++) {
        const int more = snprintf(out + len, bytes - len, "%s %s", i == 0 ? ":" : ",", w->names[i]);
        len += more < 0 ? 0 : (size_t)more;
    }
    if (w->targets > NAMED_MAX && len < bytes) {
        (void)snprintf(out + len, bytes - len, " and %" PRId64 " more", w->targets - NAMED_MAX);
    }
}

static void tell_unknown(doctor_work *d, const store_reaction *r, const doctor_targets *t)
{
    /* Where nobody works at all that is said once, per lane. */
    const bool somebody = weir__cli_workers_count(&d->workers, NULL, NULL) > 0;
    const bool waits = t->waiting.targets > 0;
    char text[FINDING_BYTES_MAX], which[FINDING_BYTES_MAX / 2];

    if (waits) {
        write_named(&t->waiting, "target has work for it", "targets have work for it", which,
                    sizeof which);
    } else {
        write_named(&t->all, "target is left", "targets are left", which, sizeof which);
    }
    (void)snprintf(text, sizeof text, "no running worker handles reaction \"%.*s\"; %s",
                   (int)r->name.len, r->name.ptr, which);
    if (waits || somebody || r->routed < d->positions.safe) {
        d->fn(d->ctx, waits && somebody, "unknown-reaction", text,
              "Start weir work with a weir.yaml that has this reaction in its current form, or "
              "retire it with weir reactions retire.");
    }
}

static void judge_reaction(doctor_work *d, const store_reaction *r, const doctor_targets *t)
{
    char text[FINDING_BYTES_MAX], which[FINDING_BYTES_MAX / 2];

    if (r->retired && t->waiting.targets > 0) {
        write_named(&t->waiting, "target has work for it", "targets have work for it", which,
                    sizeof which);
        (void)snprintf(text, sizeof text, "reaction \"%.*s\" is retired; %s", (int)r->name.len,
                       r->name.ptr, which);
        d->fn(d->ctx, false, "retired-reaction", text,
              "Nobody handles this work. To bring it back, declare the reaction again.");
    } else if (!r->retired && weir__cli_workers_count(&d->workers, NULL, r) == 0) {
        tell_unknown(d, r, t);
    }
}

static void judge_lane(doctor_work *d, const store_lane *l)
{
    /* With no worker at all, it may be that none is meant to run now. */
    const bool somebody = weir__cli_workers_count(&d->workers, NULL, NULL) > 0;
    char text[FINDING_BYTES_MAX], advice[FINDING_BYTES_MAX];

    if (l->ready == 0 || l->paused || weir__cli_workers_count(&d->workers, &l->lane, NULL) > 0) {
        return;
    }
    (void)snprintf(text, sizeof text, "%" PRId64 " target%s ready in lane \"%.*s\", %s", l->ready,
                   l->ready == 1 ? " is" : "s are", (int)l->lane.len, l->lane.ptr,
                   somebody ? "which no running worker serves" : "and no worker is running");
    (void)snprintf(
        advice, sizeof advice,
        "Start a worker: weir work --lanes %.*s. Or pause the lane: weir pause --lane %.*s",
        (int)l->lane.len, l->lane.ptr, (int)l->lane.len, l->lane.ptr);
    d->fn(d->ctx, somebody, "lane-without-worker", text, advice);
}

static void tell_blocked(const doctor_work *d)
{
    char text[FINDING_BYTES_MAX];

    if (d->blocked.targets > 0) {
        write_named(&d->blocked, "target is blocked", "targets are blocked", text, sizeof text);
        d->fn(d->ctx, true, "blocked", text,
              "weir why TARGET shows the error. weir unblock TARGET tries again; weir skip TARGET "
              "parks "
              "the event and continues with the next one.");
    }
}

/* Of each reaction, how many events are parked and were not sent back. */
static weir_status tell_parked(const doctor_work *d, weir_store *store, weir_error *err)
{
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < d->reactions.reactions_count; i++) {
        const store_reaction *r = &d->reactions.reactions[i];
        store_parked_query q = { .limit = PARKED_PAGE, .reaction = r->name };
        store_parked_chunk chunk = { .more = true };
        char text[FINDING_BYTES_MAX], advice[FINDING_BYTES_MAX];
        int64_t count = 0;
        while (status == WEIR_OK && chunk.more) {
            status = store->work->parked(store, &q, &chunk, err);
            for (size_t k = 0; status == WEIR_OK && k < chunk.parked_count; k++) {
                q.after = chunk.parked[k].id;
                count += chunk.parked[k].sent_back ? 0 : 1;
            }
        }
        weir__arena_free(&chunk.arena);
        if (status == WEIR_OK && count > 0) {
            (void)snprintf(text, sizeof text, "%" PRId64 " event%s of reaction \"%.*s\" %s parked",
                           count, count == 1 ? "" : "s", (int)r->name.len, r->name.ptr,
                           count == 1 ? "is" : "are");
            (void)snprintf(
                advice, sizeof advice,
                "See them with weir parked ls --reaction %.*s. weir parked retry handles "
                "them again, weir parked drop gives them up.",
                (int)r->name.len, r->name.ptr);
            d->fn(d->ctx, true, "parked", text, advice);
        }
    }
    return status;
}

/* Targets with a position of a log that lost its end: events up to there would not be delivered. */
static void tell_beyond(const doctor_work *d)
{
    char text[FINDING_BYTES_MAX], which[FINDING_BYTES_MAX / 2];

    if (d->beyond.targets > 0) {
        write_named(&d->beyond, "target is beyond the end of the log",
                    "targets are beyond the end of the log", which, sizeof which);
        (void)snprintf(text, sizeof text,
                       "%s; the log ends at %" PRId64 " now, and events would be passed over",
                       which, d->positions.head);
        d->fn(d->ctx, true, "beyond-log", text,
              "Part of the log was lost (a failover, a restore). weir why TARGET says where it is. "
              "Set it back with weir reset TARGET --to POSITION, to the last event before that "
              "part; what follows is delivered again.");
    }
}

/* The same of routing: events up to there are not routed. */
static void tell_routed_beyond(const doctor_work *d, const store_reaction *r)
{
    char text[FINDING_BYTES_MAX];

    if (weir__cli_is_routed_beyond(r, &d->positions)) {
        (void)snprintf(text, sizeof text,
                       "reaction \"%.*s\" is routed up to %" PRId64 ", beyond the end of the log "
                       "(%" PRId64 "), so new events would be passed over",
                       (int)r->name.len, r->name.ptr, r->routed, d->positions.head);
        d->fn(
            d->ctx, true, "routed-beyond-log", text,
            "Part of the log was lost (a failover, a restore). Stop the workers; as the owner, in "
            "the schema of the store: UPDATE reactions SET routed = POSITION WHERE name = NAME, "
            "the last event before that part (not below its since).");
    }
}

weir_status weir__cli_doctor_work(weir_store *store, store_survey_fn fn, void *ctx, weir_error *err)
{
    doctor_work d = { .fn = fn, .ctx = ctx };
    const cli_target_sink sink = { .wants = look_at_target, .ctx = &d, .head = &d.positions.head };
    const store_target_filter all = { 0 };
    weir_status status = store->work->reactions(store, &d.reactions, err);

    if (status == WEIR_OK) {
        status = store->work->lanes(store, &d.lanes, err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_workers_read(store, &d.workers, err);
    }
    if (status == WEIR_OK) {
        status = store->log->positions(store, &d.positions, err);
    }
    if (status == WEIR_OK) {
        d.targets = weir__calloc(d.reactions.reactions_count + 1, sizeof *d.targets);
        status = d.targets == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory")
                                   : weir__cli_targets_each(store, &all, INT64_MAX, &sink, err);
    }
    if (status == WEIR_OK) {
        tell_blocked(&d);
        tell_beyond(&d);
        status = tell_parked(&d, store, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < d.lanes.lanes_count; i++) {
        judge_lane(&d, &d.lanes.lanes[i]);
    }
    for (size_t i = 0; status == WEIR_OK && i < d.reactions.reactions_count; i++) {
        judge_reaction(&d, &d.reactions.reactions[i], &d.targets[i]);
        tell_routed_beyond(&d, &d.reactions.reactions[i]);
    }
    weir__free(d.targets);
    weir__cli_workers_free(&d.workers);
    weir__arena_free(&d.lanes.arena);
    weir__arena_free(&d.reactions.arena);
    return status;
}
