/* targets_screen.c - weir targets --watch on a full screen: those that need someone first.
 *
 * A look has two parts. First the states of all targets are read, up to SCANNED_MAX; that gives the
 * numbers in the header and tells which targets come first. Then the rows of the first ROWS_MAX are
 * read, with the age of what waits for them. The header says how many are beyond either limit.
 *
 * Must stay true: a filter is applied in the first part, so it finds every target that was scanned,
 * not only those that have a row.
 */
#include "base/clock.h"
#include "cli/watch.h"
#include "cli/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SCANNED_MAX = 100000,
    ROWS_MAX = 2000,
    ROWS_CHUNK = 200,
};

/* A target that fits the filter. */
typedef struct ranked {
    cli_target_state state;
    weir_str name; /* in the arena */
} ranked;

typedef struct listing {
    cli *c;
    weir_store *store;
    const store_target_filter *filter;
    char *shown_store; /* owned: the URL as it may be shown */
    /* of one look */
    const fullscreen *screen;
    watch_view *v;
    weir_arena arena;
    weir_buffer order; /* of ranked */
    size_t order_count;
    weir_buffer reactions;
    int64_t scanned;
    int64_t states[CLI_TARGET_STATES_COUNT];
    size_t in_page;
    bool more;      /* than SCANNED_MAX */
    bool given_up;  /* somebody typed */
    bool no_memory; /* as it says */
} listing;

static bool target_fits(const watch_view *v, const store_target *t, cli_target_state state)
{
    return weir__view_fits(v, t->name) || weir__view_fits(v, t->lane) ||
           weir__view_fits(v, weir__str(weir__cli_state_text(state))) ||
           weir__view_fits(v, t->holder) || weir__view_fits(v, weir__report_gist(t->error));
}

/* A `wants` of cli_target_sink. */
static bool rank_target(void *ctx, const store_target *t, bool *wanted)
{
    listing *l = ctx;
    const cli_target_state state = weir__cli_target_state(t);

    *wanted = false;
    if (l->scanned == SCANNED_MAX) {
        l->more = true;
        return false;
    }
    l->scanned++;
    l->states[state]++;
    if (target_fits(l->v, t, state)) {
        const ranked r = { .state = state,
                           .name = { .ptr = weir__arena_copy(&l->arena, t->name.ptr, t->name.len),
                                     .len = t->name.len } };
        l->no_memory = r.name.ptr == NULL || !weir__buffer_add(&l->order, &r, sizeof r);
        l->order_count++;
    }
    if (++l->in_page == ROWS_CHUNK) {
        l->in_page = 0;
        l->given_up = weir__fullscreen_asked(l->screen);
    }
    return !l->no_memory && !l->given_up;
}

static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    return x->state != y->state ? (x->state < y->state ? -1 : 1)
                                : weir__str_compare(x->name, y->name);
}

static bool add_target(void *ctx, const store_target *t, int64_t waited_us)
{
    listing *l = ctx;
    report_field fields[CLI_TARGET_FIELDS_COUNT];

    l->no_memory = !weir__cli_target_fields(t, waited_us, &l->reactions, fields) ||
                   !weir__view_add(l->v, 0, t->name, fields, CLI_TARGET_FIELDS_COUNT);
    return !l->no_memory;
}

/* Rows of one state at a time: the store gives those in the order of their names. */
static weir_status add_rows(listing *l, weir_error *err)
{
    ranked *order = (ranked *)(void *)l->order.ptr;
    const cli_target_sink sink = { .row = add_target, .ctx = l };
    const size_t end = l->order_count < ROWS_MAX ? l->order_count : ROWS_MAX;
    weir_status status = WEIR_OK;

    if (l->order_count > 0) {
        qsort(order, l->order_count, sizeof *order, compare_ranked);
    }
    for (size_t at = 0; status == WEIR_OK && at < end && !l->no_memory && !l->given_up;) {
        weir_str names[ROWS_CHUNK];
        const cli_target_state state = order[at].state;
        size_t count = 0;
        while (at < end && count < ROWS_CHUNK && order[at].state == state) {
            names[count++] = order[at++].name;
        }
        const store_target_filter filter = { .names = names, .names_count = count };
        status = weir__cli_targets_each(l->store, &filter, INT64_MAX, &sink, err);
        l->given_up = weir__fullscreen_asked(l->screen);
    }
    return status;
}

/* "12 targets: 1 blocked, 11 idle  sqlite:weir.db" */
static bool header_fill(const listing *l, weir_buffer *out)
{
    char text[128], number[REPORT_WORD_BYTES];
    const char *before = ": ";
    bool ok = true;

    weir__report_count(l->scanned, number);
    (void)snprintf(text, sizeof text, "%s%s target%s", l->more ? "more than " : "", number,
                   l->scanned == 1 ? "" : "s");
    ok = weir__buffer_add_text(out, text);
    for (int state = 0; ok && state < CLI_TARGET_STATES_COUNT; state++) {
        if (l->states[state] > 0) {
            weir__report_count(l->states[state], number);
            (void)snprintf(text, sizeof text, "%s%s %s", before, number,
                           weir__cli_state_text((cli_target_state)state));
            ok = weir__buffer_add_text(out, text);
            before = ", ";
        }
    }
    if (ok && l->order_count > ROWS_MAX) {
        weir__report_count((int64_t)l->order_count - ROWS_MAX, number);
        ok = weir__buffer_add_text(out, " (") && weir__buffer_add_text(out, number) &&
             weir__buffer_add_text(out, " not shown)");
    }
    return ok && weir__buffer_add_text(out, "  ") &&
           weir__report_shown(out, weir__str(l->shown_store));
}

static weir_status targets_look(void *ctx, const fullscreen *screen, watch_view *v,
                                weir_buffer *header, bool *complete, weir_error *err)
{
    listing *l = ctx;
    const cli_target_sink sink = { .wants = rank_target, .ctx = l };

    l->screen = screen;
    l->v = v;
    l->scanned = 0;
    l->order_count = 0;
    l->in_page = 0;
    l->more = false;
    l->given_up = false;
    memset(l->states, 0, sizeof l->states);
    weir__buffer_clear(&l->order);
    weir__arena_reset(&l->arena);
    weir_status status = weir__cli_targets_each(l->store, l->filter, INT64_MAX, &sink, err);
    if (status == WEIR_OK && !l->given_up && !l->no_memory) {
        status = add_rows(l, err);
    }
    if (status == WEIR_OK && (l->no_memory || !header_fill(l, header))) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    *complete = !l->given_up;
    return status;
}

static weir_status targets_explain(void *ctx, weir_str key, weir_buffer *title, weir_buffer *text,
                                   weir_error *err)
{
    listing *l = ctx;
    cli kept;

    if (!weir__buffer_add_text(title, "weir why ") || !weir__report_shown(title, key)) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__watch_kept_begin(&kept, l->c);
    weir_status status = weir__cli_why_target(&kept, l->store, key, false, err);
    weir_error other;
    const weir_status ended = weir__watch_kept_end(&kept, text, status == WEIR_OK ? err : &other);
    return status == WEIR_OK ? ended : status;
}

weir_status weir__cli_targets_screen(cli *c, weir_store *store, const store_target_filter *filter,
                                     weir_error *err)
{
    listing l = { .c = c, .store = store, .filter = filter };
    watch_view v = { .order = "who needs someone", .tables_count = 1 };
    const watch_source source = { .ctx = &l, .look = targets_look, .explain = targets_explain };
    char *url = NULL;
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        status = weir__cli_url_shown(url, &l.shown_store, err);
    }
    if (status == WEIR_OK) {
        status = weir__watch_screen(c, store, &v, &source, err);
    }
    weir__view_free(&v);
    weir__arena_free(&l.arena);
    weir__buffer_free(&l.order);
    weir__buffer_free(&l.reactions);
    weir__free(l.shown_store);
    weir__free(url);
    return status;
}
