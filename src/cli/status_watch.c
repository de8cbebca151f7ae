/* status_watch.c - weir status --watch: where the store stands, kept up to date.
 *
 * Elsewhere than on a full screen the whole status is printed again whenever it has changed. What
 * time alone changes is no change: the store's clock, ages, and the size on disk, which grows with
 * every beat of a worker.
 */
#include "cli/status.h"
#include "cli/watch.h"
#include "cli/why.h"

#include <assert.h>
#include <stdio.h>

static_assert((int)STATUS_TABLES_COUNT <= (int)VIEW_TABLES_MAX, "a view has a place for each");

typedef struct watching {
    cli *c;
    weir_store *store;
    watch_view *v;
    /* line by line */
    uint64_t printed; /* a number for what was printed last */
    bool first;
} watching;

/* ---- on a full screen ----------------------------------------------------------------------- */

/* A status_row_fn. The first cell names the row. */
static bool add_row(void *ctx, status_table table, const report_field *fields, size_t count)
{
    const watching *w = ctx;

    return weir__view_add(w->v, table, fields[0].text, fields, count);
}

/* "3 lanes, 2 workers, 1 blocked, 0 parked  sqlite:weir.db" */
static bool header_fill(const status_facts *f, weir_buffer *out)
{
    char text[160], blocked[REPORT_WORD_BYTES], parked[REPORT_WORD_BYTES],
        targets[REPORT_WORD_BYTES];
    int64_t ready = 0, leased = 0, deferred = 0;

    for (size_t i = 0; i < f->lanes.lanes_count; i++) {
        ready += f->lanes.lanes[i].ready;
        leased += f->lanes.lanes[i].leased;
        deferred += f->lanes.lanes[i].deferred;
    }
    weir__report_count(f->stats.targets, targets);
    weir__report_count(f->stats.blocked, blocked);
    weir__report_count(f->stats.parked, parked);
    (void)snprintf(text, sizeof text, "%s target%s: %s blocked", targets,
                   f->stats.targets == 1 ? "" : "s", blocked);
    bool ok = weir__buffer_add_text(out, text);
    const struct {
        int64_t count;
        const char *state;
    } others[] = { { deferred, "deferred" }, { leased, "leased" }, { ready, "ready" } };
    for (size_t i = 0; ok && i < sizeof others / sizeof others[0]; i++) {
        char number[REPORT_WORD_BYTES];
        weir__report_count(others[i].count, number);
        ok = weir__buffer_add_text(out, ", ") && weir__buffer_add_text(out, number) &&
             weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, others[i].state);
    }
    return ok && weir__buffer_add_text(out, "; ") && weir__buffer_add_text(out, parked) &&
           weir__buffer_add_text(out, " parked  ") && weir__report_shown(out, weir__str(f->store));
}

static weir_status status_look(void *ctx, const fullscreen *screen, watch_view *v,
                               weir_buffer *header, bool *complete, weir_error *err)
{
    watching *w = ctx;
    status_facts facts = { 0 };
    weir_status status = weir__status_collect(w->c, w->store, &facts, err);

    (void)screen; /* it is a few statements: there is nothing to give up */
    (void)v;
    *complete = true;
    if (status == WEIR_OK &&
        !(weir__status_each(&facts, add_row, w) && header_fill(&facts, header))) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__status_free(&facts);
    return status;
}

/* Whatever the row is: what is stuck is what one wants to know. */
static weir_status status_explain(void *ctx, weir_str key, weir_buffer *title, weir_buffer *text,
                                  weir_error *err)
{
    watching *w = ctx;
    cli kept;
    weir_error other;

    (void)key;
    if (!weir__buffer_add_text(title, "weir why")) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__watch_kept_begin(&kept, w->c);
    const weir_status status = weir__cli_why_all(&kept, w->store, err);
    const weir_status ended = weir__watch_kept_end(&kept, text, status == WEIR_OK ? err : &other);
    return status == WEIR_OK ? ended : status;
}

/* ---- line by line --------------------------------------------------------------------------- */

/* A status_row_fn; ctx: a report_json. Without what time alone changes. */
static bool add_to_number(void *ctx, status_table table, const report_field *fields, size_t count)
{
    report_json *j = ctx;
    const bool left_out = table == STATUS_FACTS && (strcmp(fields[0].text.ptr, "time") == 0 ||
                                                    strcmp(fields[0].text.ptr, "size") == 0);

    for (size_t i = 0; !left_out && i < count; i++) {
        if (fields[i].type != REPORT_TIME) {
            weir__report_json_field(j, &fields[i]);
        }
    }
    return !j->failed;
}

static weir_status print_changed(void *ctx, weir_error *err)
{
    watching *w = ctx;
    status_facts facts = { 0 };
    weir_buffer text = { 0 };
    report_json j = { .buffer = &text };
    weir_status status = weir__status_collect(w->c, w->store, &facts, err);
    bool ok = status != WEIR_OK || weir__status_each(&facts, add_to_number, &j);

    for (size_t i = 0; status == WEIR_OK && i < facts.reactions.reactions_count; i++) {
        weir__report_json_i64(&j, "routed", facts.reactions.reactions[i].routed);
        weir__report_json_str(&j, "router", facts.reactions.reactions[i].router);
    }
    const uint64_t number = weir__str_hash((weir_str){ text.ptr, text.len });
    if (status == WEIR_OK && ok && !j.failed && (w->first || number != w->printed)) {
        weir__cli_screen(w->c); /* time has gone on */
        ok = w->first || w->c->out.json || weir__cli_print(&w->c->out, "\n");
        ok = ok && weir__status_print(w->c, &facts);
        w->printed = number;
        w->first = false;
    }
    if (status == WEIR_OK && !w->c->out.closed && !w->c->out.failed && (!ok || j.failed)) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__buffer_free(&text);
    weir__status_free(&facts);
    return status;
}

weir_status weir__status_watch(cli *c, weir_store *store, weir_error *err)
{
    watch_view v = { .order = "the first one",
                     .tables_count = STATUS_TABLES_COUNT,
                     .orders = { [STATUS_FACTS] = { .fixed = true } } };
    watching w = { .c = c, .store = store, .v = &v, .first = true };
    const watch_source source = { .ctx = &w, .look = status_look, .explain = status_explain };

    if (c->out.json || !weir__fullscreen_possible(c)) {
        return weir__watch_lines(c, store, print_changed, &w, err);
    }
    const weir_status status = weir__watch_screen(c, store, &v, &source, err);
    weir__view_free(&v);
    return status;
}
