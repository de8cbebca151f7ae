/* status.c - weir status: where the store stands, in one look. */
#include "cli/status.h"
#include "api/api.h"
#include "engine/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const cli_option options[] = {
    { "metrics", NULL, CLI_FLAG,
      "print numbers for Prometheus instead, with what each worker has counted" },
    { "watch", NULL, CLI_FLAG, "keep showing changes until interrupted" },
};

weir_status weir__status_collect(const cli *c, weir_store *store, status_facts *f, weir_error *err)
{
    char *url = NULL;
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        status = weir__cli_url_shown(url, &f->store, err);
    }
    if (status == WEIR_OK) {
        status = store->log->positions(store, &f->positions, err);
    }
    if (status == WEIR_OK && f->positions.safe < f->positions.head) {
        status = store->about->holders(store, &f->holders, err);
    }
    if (status == WEIR_OK) {
        status = store->about->stats(store, &f->stats, err);
    }
    if (status == WEIR_OK) {
        status = store->work->lanes(store, &f->lanes, err);
    }
    if (status == WEIR_OK) {
        status = store->work->reactions(store, &f->reactions, err);
    }
    if (status == WEIR_OK) {
        f->workers.count_holds = true;
        status = store->about->workers(store, &f->workers, err);
    }
    weir__free(url);
    return status;
}

void weir__status_free(status_facts *f)
{
    weir__arena_free(&f->lanes.arena);
    weir__arena_free(&f->reactions.arena);
    weir__arena_free(&f->holders.arena);
    weir__arena_free(&f->workers.arena);
    weir__free(f->store);
    *f = (status_facts){ 0 };
}

static void json_routers(report_json *j, const status_facts *f)
{
    weir__report_json_open(j, "routers", '[');
    for (size_t i = 0; i < f->reactions.reactions_count; i++) {
        const store_reaction *r = &f->reactions.reactions[i];
        if (r->retired) {
            continue;
        }
        const bool live = r->router.len > 0 && r->router_until_us > f->positions.now_us;
        weir__report_json_open(j, NULL, '{');
        weir__report_json_str(j, "reaction", r->name);
        weir__report_json_i64(j, "routed", r->routed);
        weir__report_json_i64(j, "lag",
                              f->positions.safe > r->routed ? f->positions.safe - r->routed : 0);
        if (live) {
            weir__report_json_str(j, "leased_by", r->router);
            weir__report_json_time(j, "leased_until", r->router_until_us);
        } else {
            weir__report_json_null(j, "leased_by");
            weir__report_json_null(j, "leased_until");
        }
        weir__report_json_i64(j, "fence", r->router_fence);
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

static void json_lanes(report_json *j, const status_facts *f)
{
    weir__report_json_open(j, "lanes", '[');
    for (size_t i = 0; i < f->lanes.lanes_count; i++) {
        const store_lane *l = &f->lanes.lanes[i];
        weir__report_json_open(j, NULL, '{');
        weir__report_json_str(j, "lane", l->lane);
        weir__report_json_i64(j, "targets", l->targets);
        weir__report_json_i64(j, "ready", l->ready);
        weir__report_json_i64(j, "leased", l->leased);
        weir__report_json_i64(j, "blocked", l->blocked);
        weir__report_json_i64(j, "retrying", l->retrying);
        weir__report_json_i64(j, "deferred", l->deferred);
        weir__report_json_bool(j, "paused", l->paused);
        if (l->paused) {
            weir__report_json_str(j, "paused_by", l->paused_by);
        } else {
            weir__report_json_null(j, "paused_by");
        }
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

/* Calls of a worker that failed because the store was away or busy, as it said last. */
static int64_t store_errors(const store_worker *w)
{
    metrics counted = { 0 };

    return weir__metrics_load(&counted, w->metrics)
               ? (int64_t)weir__metric_get(&counted, METRIC_STORE_ERRORS)
               : 0;
}

/* One that ends says so; one that was killed is late, and after three beats gone. */
typedef struct worker_state {
    const char *word;
    int64_t
        beat_us; /* when it was last heard of, if that is longer ago than a beat; 0: it is not */
    int64_t ended_us;
} worker_state;

static worker_state state_of(const status_facts *f, const store_worker *w)
{
    const int64_t now_us = f->positions.now_us;
    const int64_t beat_us = w->until_us - STORE_WORKER_BEATS * STORE_WORKER_BEAT_US;
    const bool ended = w->until_us <= now_us;

    if (ended && w->draining) {
        return (worker_state){ .word = "ended", .ended_us = w->until_us };
    }
    if (ended) {
        return (worker_state){ .word = "gone", .beat_us = beat_us };
    }
    if (now_us - beat_us > STORE_WORKER_BEAT_US) {
        return (worker_state){ .word = "late", .beat_us = beat_us };
    }
    return (worker_state){ .word = w->draining ? "draining" : "running" };
}

static void json_workers(report_json *j, const status_facts *f)
{
    weir__report_json_open(j, "workers", '[');
    for (size_t i = 0; i < f->workers.workers_count; i++) {
        const store_worker *w = &f->workers.workers[i];
        weir__report_json_open(j, NULL, '{');
        weir__report_json_str(j, "worker", w->name);
        weir__report_json_str(j, "host", w->host);
        weir__report_json_i64(j, "pid", w->pid);
        weir__report_json_open(j, "lanes", '[');
        for (size_t n = 0; n < w->lanes_count; n++) {
            weir__report_json_str(j, NULL, w->lanes[n]);
        }
        weir__report_json_close(j, ']');
        weir__report_json_time(j, "since", w->since_us);
        weir__report_json_time(j, "until", w->until_us);
        weir__report_json_i64(j, "holds", w->holds);
        weir__report_json_bool(j, "draining", w->draining);
        weir__report_json_i64(j, "store_errors", store_errors(w));
        weir__report_json_str(j, "state", weir__str(state_of(f, w).word));
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

static void json_holders(report_json *j, const status_facts *f)
{
    weir__report_json_open(j, "held_back_by", '[');
    for (size_t i = 0; i < f->holders.holders_count; i++) {
        const store_holder *h = &f->holders.holders[i];
        weir__report_json_open(j, NULL, '{');
        if (h->pid != 0) {
            weir__report_json_i64(j, "pid", h->pid);
        } else {
            weir__report_json_null(j, "pid");
        }
        weir__report_json_str(j, "transaction", h->transaction);
        weir__report_json_bool(j, "prepared", h->pid == 0);
        weir__report_json_str(j, "application", h->application);
        weir__report_json_str(j, "user", h->user);
        weir__report_json_str(j, "state", h->state);
        if (h->since_us != 0) {
            weir__report_json_time(j, "since", h->since_us);
        } else {
            weir__report_json_null(j, "since");
        }
        weir__report_json_str(j, "query", h->query);
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

/* Where a PostgreSQL store is; not there for the others. */
static void json_server(report_json *j, const store_stats *s)
{
    if (s->database[0] == '\0') {
        return;
    }
    weir__report_json_open(j, "server", '{');
    weir__report_json_str(j, "database", weir__str(s->database));
    weir__report_json_str(j, "schema", weir__str(s->place));
    weir__report_json_str(j, "user", weir__str(s->user));
    weir__report_json_bool(j, "standby", s->standby);
    weir__report_json_bool(j, "pooled", s->pooled);
    weir__report_json_close(j, '}');
}

static bool print_json(cli *c, const status_facts *f)
{
    report_json j = { .buffer = &(weir_buffer){ 0 } };

    weir__report_json_open(&j, NULL, '{');
    weir__report_json_str(&j, "store", weir__str(f->store));
    weir__report_json_i64(&j, "schema", f->stats.schema);
    weir__report_json_str(&j, "library", weir__str(f->stats.library));
    weir__report_json_str(&j, "durability", weir__str(f->stats.durability));
    weir__report_json_i64(&j, "file_bytes", f->stats.file_bytes);
    weir__report_json_i64(&j, "wal_bytes", f->stats.wal_bytes);
    json_server(&j, &f->stats);
    weir__report_json_time(&j, "now", f->positions.now_us);
    weir__report_json_i64(&j, "head", f->positions.head);
    weir__report_json_i64(&j, "safe", f->positions.safe);
    json_holders(&j, f);
    json_routers(&j, f);
    json_lanes(&j, f);
    json_workers(&j, f);
    weir__report_json_i64(&j, "streams", f->stats.streams);
    weir__report_json_i64(&j, "targets", f->stats.targets);
    weir__report_json_i64(&j, "blocked", f->stats.blocked);
    weir__report_json_i64(&j, "parked", f->stats.parked);
    weir__report_json_close(&j, '}');
    const bool ok = !j.failed && weir__buffer_add(j.buffer, "\n", 1) &&
                    weir__cli_put(&c->out, (weir_str){ j.buffer->ptr, j.buffer->len });
    weir__buffer_free(j.buffer);
    return ok;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Whom to ask why events are held back. */
static bool each_holder(const status_facts *f, status_row_fn fn, void *ctx)
{
    bool ok = true;

    for (size_t i = 0; ok && i < f->holders.holders_count; i++) {
        const store_holder *h = &f->holders.holders[i];
        const report_field fields[] = {
            { .name = "held_back_by", .type = REPORT_STR, .text = h->transaction },
            { .name = "pid", .type = h->pid != 0 ? REPORT_I64 : REPORT_NULL, .number = h->pid },
            { .name = "since", .type = REPORT_TIME, .number = h->since_us },
            { .name = "application", .type = REPORT_STR, .text = h->application, .rank = 1 },
            { .name = "user", .type = REPORT_STR, .text = h->user, .rank = 2 },
            { .name = "state", .type = REPORT_STR, .text = h->state, .rank = 3 },
        };
        ok = fn(ctx, STATUS_HOLDERS, fields, sizeof fields / sizeof fields[0]);
    }
    return ok;
}

/* "mail,slow" */
static weir_str lanes_text(const store_worker *w, weir_buffer *out)
{
    out->len = 0;
    for (size_t i = 0; i < w->lanes_count; i++) {
        (void)(weir__buffer_add(out, ",", i > 0 ? 1 : 0) &&
               weir__buffer_add(out, w->lanes[i].ptr, w->lanes[i].len));
    }
    return (weir_str){ out->ptr, out->len };
}

/* Who works, and who did a moment ago. */
static bool each_worker(const status_facts *f, status_row_fn fn, void *ctx)
{
    weir_buffer lanes = { 0 };
    bool ok = true;

    for (size_t i = 0; ok && i < f->workers.workers_count; i++) {
        const store_worker *w = &f->workers.workers[i];
        const worker_state state = state_of(f, w);
        const report_field fields[] = {
            { .name = "worker", .type = REPORT_STR, .text = w->name },
            { .name = "state", .type = REPORT_STATE, .text = weir__str(state.word) },
            { .name = "host", .type = REPORT_STR, .text = w->host, .rank = 4 },
            { .name = "pid", .type = REPORT_I64, .number = w->pid, .rank = 5 },
            { .name = "lanes", .type = REPORT_STR, .text = lanes_text(w, &lanes), .rank = 2 },
            { .name = "since", .type = REPORT_TIME, .number = w->since_us, .rank = 3 },
            { .name = "last_beat", .type = REPORT_TIME, .number = state.beat_us, .rank = 1 },
            { .name = "ended", .type = REPORT_TIME, .number = state.ended_us, .rank = 6 },
            { .name = "holds", .type = REPORT_COUNT, .number = w->holds, .rank = 1 },
            { .name = "store_errors", .type = REPORT_COUNT, .number = store_errors(w), .rank = 7 },
        };
        ok = fn(ctx, STATUS_WORKERS, fields, sizeof fields / sizeof fields[0]);
    }
    weir__buffer_free(&lanes);
    return ok;
}

static bool each_lane(const status_facts *f, status_row_fn fn, void *ctx)
{
    bool ok = true;

    for (size_t i = 0; ok && i < f->lanes.lanes_count; i++) {
        const store_lane *l = &f->lanes.lanes[i];
        const report_field fields[] = {
            { .name = "lane", .type = REPORT_STR, .text = l->lane },
            { .name = "targets", .type = REPORT_COUNT, .number = l->targets },
            { .name = "blocked", .type = REPORT_COUNT, .number = l->blocked },
            { .name = "retrying", .type = REPORT_COUNT, .number = l->retrying, .rank = 3 },
            { .name = "deferred", .type = REPORT_COUNT, .number = l->deferred, .rank = 5 },
            { .name = "leased", .type = REPORT_COUNT, .number = l->leased, .rank = 2 },
            { .name = "ready", .type = REPORT_COUNT, .number = l->ready, .rank = 1 },
            { .name = "paused", .type = REPORT_BOOL, .number = l->paused, .rank = 4 },
        };
        ok = fn(ctx, STATUS_LANES, fields, sizeof fields / sizeof fields[0]);
    }
    return ok;
}

/* A fact: its name, and what it is, as printf does. */
static bool give_fact(status_row_fn fn, void *ctx, const char *name, const char *format, ...)
    WEIR_PRINTF(4, 5);
static bool give_fact(status_row_fn fn, void *ctx, const char *name, const char *format, ...)
{
    char value[4096];
    va_list args;

    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 overlooks the line before. */
    (void)vsnprintf(value, sizeof value, format, args);
    va_end(args);
    const report_field fields[] = {
        { .name = "fact", .type = REPORT_STR, .text = weir__str(name) },
        { .name = "value", .type = REPORT_STR, .text = weir__str(value) },
    };
    return fn(ctx, STATUS_FACTS, fields, sizeof fields / sizeof fields[0]);
}

static bool each_server(const store_stats *s, status_row_fn fn, void *ctx)
{
    char size[REPORT_WORD_BYTES], wal[REPORT_WORD_BYTES];

    weir__report_bytes(s->file_bytes, size);
    weir__report_bytes(s->wal_bytes, wal);
    if (s->database[0] != '\0') {
        return give_fact(fn, ctx, "server", "%s, database %s, schema %s, user %s%s",
                         s->standby ? "standby" : "primary", s->database, s->place, s->user,
                         s->pooled ? ", through a pooler" : "") &&
               give_fact(fn, ctx, "size", "%s", size);
    }
    return give_fact(fn, ctx, "size", "%s, write-ahead log %s", size, wal);
}

static bool each_fact(const status_facts *f, status_row_fn fn, void *ctx)
{
    char now[WEIR_TIME_TEXT_BYTES], streams[REPORT_WORD_BYTES], targets[REPORT_WORD_BYTES],
        blocked[REPORT_WORD_BYTES], parked[REPORT_WORD_BYTES];

    weir__time_to_text(f->positions.now_us, now); /* what the store's clock says */
    weir__report_count(f->stats.streams, streams);
    weir__report_count(f->stats.targets, targets);
    weir__report_count(f->stats.blocked, blocked);
    weir__report_count(f->stats.parked, parked);
    return give_fact(fn, ctx, "store", "%s", f->store) &&
           give_fact(fn, ctx, "schema", "%" PRId64, f->stats.schema) &&
           give_fact(fn, ctx, "library", "%s", f->stats.library) &&
           give_fact(fn, ctx, "durability", "%s", f->stats.durability) &&
           each_server(&f->stats, fn, ctx) && give_fact(fn, ctx, "time", "%s", now) &&
           give_fact(fn, ctx, "head", "%" PRId64, f->positions.head) &&
           give_fact(fn, ctx, "safe", "%" PRId64, f->positions.safe) &&
           give_fact(fn, ctx, "streams", "%s", streams) &&
           give_fact(fn, ctx, "targets", "%s, %s blocked", targets, blocked) &&
           give_fact(fn, ctx, "parked", "%s", parked) &&
           give_fact(fn, ctx, "reactions", "%zu", f->reactions.reactions_count);
}

bool weir__status_each(const status_facts *f, status_row_fn fn, void *ctx)
{
    return each_fact(f, fn, ctx) && each_holder(f, fn, ctx) && each_worker(f, fn, ctx) &&
           each_lane(f, fn, ctx);
}

/* ---- printing ------------------------------------------------------------------------------- */

typedef struct printing {
    cli_output *o;
    report_table tables[STATUS_TABLES_COUNT];
} printing;

/* A status_row_fn. Facts are printed at once, one to a line; the others are tables. */
static bool print_row(void *ctx, status_table table, const report_field *fields, size_t count)
{
    printing *p = ctx;

    if (table != STATUS_FACTS) {
        return weir__report_table_row(&p->tables[table], fields, count);
    }
    weir_buffer value = { 0 };
    const bool ok = weir__report_shown(&value, fields[1].text);
    (void)weir__cli_print(p->o, "%-12s", fields[0].text.ptr);
    (void)weir__cli_put(p->o, (weir_str){ value.ptr, value.len });
    (void)weir__cli_print(p->o, "\n");
    weir__buffer_free(&value);
    return ok;
}

/* Each table below what is there, under an empty line. */
static bool print_text(cli *c, const status_facts *f)
{
    printing p = { .o = &c->out };
    bool ok = true;

    for (size_t i = 0; i < STATUS_TABLES_COUNT; i++) {
        p.tables[i].screen = &c->out.screen;
    }
    ok = weir__status_each(f, print_row, &p);
    for (size_t i = 0; i < STATUS_TABLES_COUNT; i++) {
        weir_buffer text = { 0 };
        if (ok && p.tables[i].rows_count > 0) {
            ok = weir__report_table_flush(&p.tables[i], &text);
            (void)(ok && weir__cli_print(&c->out, "\n") &&
                   weir__cli_put(&c->out, (weir_str){ text.ptr, text.len }));
        }
        weir__buffer_free(&text);
        weir__report_table_free(&p.tables[i]);
    }
    return ok;
}

static bool print_metrics(cli *c, const status_facts *f)
{
    weir_buffer text = { 0 };
    const bool ok = weir__cli_status_metrics(f, &text) &&
                    weir__cli_put(&c->out, (weir_str){ text.ptr, text.len });

    weir__buffer_free(&text);
    return ok;
}

bool weir__status_print(cli *c, const status_facts *f)
{
    return c->out.json ? print_json(c, f) : print_text(c, f);
}

static weir_status print_once(cli *c, weir_store *store, weir_error *err)
{
    status_facts facts = { 0 };
    weir_status status = weir__status_collect(c, store, &facts, err);

    if (status == WEIR_OK) {
        const bool ok =
            weir__cli_has(c, "metrics") ? print_metrics(c, &facts) : weir__status_print(c, &facts);
        if (!ok && !c->out.closed && !c->out.failed) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
    }
    weir__status_free(&facts);
    return status;
}

static int status_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    const bool counted = weir__cli_has(c, "metrics"), watch = weir__cli_has(c, "watch");

    if (counted && (c->json || c->text)) {
        return weir__cli_usage(c, "--metrics has a format of its own; leave --json and --text out");
    }
    if (counted && watch) {
        return weir__cli_usage(c, "--metrics and --watch exclude each other");
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    if (status == WEIR_OK) {
        status = watch ? weir__status_watch(c, weir__store(w), &err)
                       : print_once(c, weir__store(w), &err);
    }
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_status_command = {
    .name = "status",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[options]",
    .summary = "where the store stands: positions, lanes, size",
    .about =
        "Prints the highest position (head); the position up to which the log is final (safe),\n"
        "and which transactions hold it back; what is blocked and parked; lanes, routers and\n"
        "workers; and facts about the store: schema, library, durability, size on disk.\n"
        "--metrics prints numbers in the text format of Prometheus instead: the same facts, and\n"
        "what each worker has counted up to its last beat (at most 5 s ago).\n"
        "--watch shows a full screen that is kept up to date; ? lists its keys. In a pipe it\n"
        "prints everything again whenever something has changed. It exits with 0 when it is\n"
        "interrupted.",
    .example = "weir status\n"
               "weir status --watch\n"
               "weir status --json\n"
               "weir status --metrics\n"
               "weir status --store postgres:///orders",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = status_run,
};
