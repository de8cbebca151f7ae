/* doctor_work.c - work that waits for nobody.
 *
 * Three ways to be forgotten: the reaction was retired, no worker that runs knows the reaction in
 * its current definition, or no worker serves the lane. All targets are looked at, a page at a
 * time; of each reaction a few are named and the rest is counted.
 */
#include "cli/operate.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    NAMED_MAX = 3,        /* targets that a finding names           */
    NAMED_BYTES_MAX = 96, /* of a name; what is longer is cut short */
    FINDING_BYTES_MAX = 1400,
};

/* Targets with unhandled events of one reaction. */
typedef struct waiting {
    int64_t targets;
    char names[NAMED_MAX][NAMED_BYTES_MAX + 4];
} waiting;

typedef struct doctor_work {
    store_reaction_list reactions;
    store_lane_list lanes;
    cli_workers workers;
    waiting *waiting; /* owned: per reaction of the list */
    store_survey_fn fn;
    void *ctx;
} doctor_work;

static void note_target(waiting *w, weir_str name)
{
    if (w->targets < NAMED_MAX) {
        const bool cut = name.len > NAMED_BYTES_MAX;
        const size_t len = cut ? weir__utf8_valid_prefix(name.ptr, NAMED_BYTES_MAX) : name.len;
        (void)snprintf(w->names[w->targets], sizeof w->names[0], "%.*s%s", (int)len, name.ptr,
                       cut ? "..." : "");
    }
    w->targets++;
}

/* A `wants` of cli_target_sink: nothing is to be shown. */
static bool look_at_target(void *ctx, const store_target *t, bool *wanted)
{
    doctor_work *d = ctx;

    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        for (size_t k = 0; s->at < s->mark && k < d->reactions.reactions_count; k++) {
            if (d->reactions.reactions[k].id == s->reaction) {
                note_target(&d->waiting[k], t->name);
            }
        }
    }
    *wanted = false;
    return true;
}

/* "3 targets wait for it: a, b, c" */
static void write_waiting(const waiting *w, char *out, size_t bytes)
{
    size_t len;
    const int n = snprintf(out, bytes, "%" PRId64 " target%s work of it:", w->targets,
                           w->targets == 1 ? " has" : "s have");

    len = n < 0 ? 0 : (size_t)n;
    for (int64_t i = 0; i < w->targets && i < NAMED_MAX && len < bytes; i++) {
        const int more = snprintf(out + len, bytes - len, "%s %s", i == 0 ? "" : ",", w->names[i]);
        len += more < 0 ? 0 : (size_t)more;
    }
    if (w->targets > NAMED_MAX && len < bytes) {
        (void)snprintf(out + len, bytes - len, " and %" PRId64 " more", w->targets - NAMED_MAX);
    }
}

static void judge_reaction(doctor_work *d, const store_reaction *r, const waiting *w)
{
    char text[FINDING_BYTES_MAX], which[FINDING_BYTES_MAX / 2];

    if (w->targets == 0) {
        return;
    }
    write_waiting(w, which, sizeof which);
    if (r->retired) {
        (void)snprintf(text, sizeof text, "reaction \"%.*s\" is retired; %s", (int)r->name.len,
                       r->name.ptr, which);
        d->fn(d->ctx, false, "retired-reaction", text,
              "It is left as it is. Declaring the reaction again brings the work back.");
    } else if (weir__cli_workers_count(&d->workers, NULL, r) == 0) {
        (void)snprintf(text, sizeof text, "no running worker knows reaction \"%.*s\"; %s",
                       (int)r->name.len, r->name.ptr, which);
        /* Where nobody works at all that is said once, per lane. */
        d->fn(d->ctx, weir__cli_workers_count(&d->workers, NULL, NULL) > 0, "unknown-reaction",
              text,
              "Run a worker that declares it as it is now, or end it with weir reactions retire.");
    }
}

static void judge_lane(doctor_work *d, const store_lane *l)
{
    char text[FINDING_BYTES_MAX];

    if (l->ready == 0 || l->paused || weir__cli_workers_count(&d->workers, &l->lane, NULL) > 0) {
        return;
    }
    (void)snprintf(text, sizeof text,
                   "%" PRId64 " target%s ready in lane \"%.*s\", which no running worker serves",
                   l->ready, l->ready == 1 ? " is" : "s are", (int)l->lane.len, l->lane.ptr);
    /* With no worker at all, it may be that none is meant to run now. */
    d->fn(d->ctx, weir__cli_workers_count(&d->workers, NULL, NULL) > 0, "lane-without-worker", text,
          "Run a worker with this lane, or pause the lane with weir pause --lane.");
}

weir_status weir__cli_doctor_work(weir_store *store, store_survey_fn fn, void *ctx, weir_error *err)
{
    doctor_work d = { .fn = fn, .ctx = ctx };
    const cli_target_sink sink = { .wants = look_at_target, .ctx = &d };
    const store_target_filter all = { 0 };
    weir_status status = store->ops->reactions(store, &d.reactions, err);

    if (status == WEIR_OK) {
        status = store->ops->lanes(store, &d.lanes, err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_workers_read(store, &d.workers, err);
    }
    if (status == WEIR_OK) {
        d.waiting = weir__calloc(d.reactions.reactions_count + 1, sizeof *d.waiting);
        status = d.waiting == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory")
                                   : weir__cli_targets_each(store, &all, INT64_MAX, &sink, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < d.reactions.reactions_count; i++) {
        judge_reaction(&d, &d.reactions.reactions[i], &d.waiting[i]);
    }
    for (size_t i = 0; status == WEIR_OK && i < d.lanes.lanes_count; i++) {
        judge_lane(&d, &d.lanes.lanes[i]);
    }
    weir__free(d.waiting);
    weir__cli_workers_free(&d.workers);
    weir__arena_free(&d.lanes.arena);
    weir__arena_free(&d.reactions.arena);
    return status;
}
