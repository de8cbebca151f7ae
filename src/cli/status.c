/* status.c - weir status: where the store stands, in one look. */
#include "cli/status.h"
#include "api/api.h"
#include "engine/metrics.h"

#include <inttypes.h>

static const cli_option options[] = {
    { "metrics", NULL, CLI_FLAG, "print it, and what workers count, for Prometheus" },
};

static weir_status collect(const cli *c, weir *w, status_facts *f, weir_error *err)
{
    weir_store *store = weir__store(w);
    char *url = NULL;
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        status = weir__cli_url_shown(url, &f->store, err);
    }
    if (status == WEIR_OK) {
        status = store->ops->positions(store, &f->positions, err);
    }
    if (status == WEIR_OK && f->positions.safe < f->positions.head) {
        status = store->ops->holders(store, &f->holders, err);
    }
    if (status == WEIR_OK) {
        status = store->ops->stats(store, &f->stats, err);
    }
    if (status == WEIR_OK) {
        status = store->ops->lanes(store, &f->lanes, err);
    }
    if (status == WEIR_OK) {
        status = store->ops->reactions(store, &f->reactions, err);
    }
    if (status == WEIR_OK) {
        f->workers.count_holds = true;
        status = store->ops->workers(store, &f->workers, err);
    }
    weir__free(url);
    return status;
}

static void json_routers(cli_json *j, const status_facts *f)
{
    weir__cli_json_open(j, "routers", '[');
    for (size_t i = 0; i < f->reactions.reactions_count; i++) {
        const store_reaction *r = &f->reactions.reactions[i];
        if (r->retired) {
            continue;
        }
        const bool live = r->router.len > 0 && r->router_until_us > f->positions.now_us;
        weir__cli_json_open(j, NULL, '{');
        weir__cli_json_str(j, "reaction", r->name);
        weir__cli_json_i64(j, "routed", r->routed);
        weir__cli_json_i64(j, "lag",
                           f->positions.safe > r->routed ? f->positions.safe - r->routed : 0);
        if (live) {
            weir__cli_json_str(j, "leased_by", r->router);
            weir__cli_json_time(j, "leased_until", r->router_until_us);
        } else {
            weir__cli_json_null(j, "leased_by");
            weir__cli_json_null(j, "leased_until");
        }
        weir__cli_json_i64(j, "fence", r->router_fence);
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

static void json_lanes(cli_json *j, const status_facts *f)
{
    weir__cli_json_open(j, "lanes", '[');
    for (size_t i = 0; i < f->lanes.lanes_count; i++) {
        const store_lane *l = &f->lanes.lanes[i];
        weir__cli_json_open(j, NULL, '{');
        weir__cli_json_str(j, "lane", l->lane);
        weir__cli_json_i64(j, "targets", l->targets);
        weir__cli_json_i64(j, "ready", l->ready);
        weir__cli_json_i64(j, "leased", l->leased);
        weir__cli_json_i64(j, "blocked", l->blocked);
        weir__cli_json_i64(j, "deferred", l->deferred);
        weir__cli_json_bool(j, "paused", l->paused);
        if (l->paused) {
            weir__cli_json_str(j, "paused_by", l->paused_by);
        } else {
            weir__cli_json_null(j, "paused_by");
        }
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

/* Calls of a worker that failed because the store was away or busy, as it said last. */
static int64_t store_errors(const store_worker *w)
{
    metrics counted = { 0 };

    return weir__metrics_load(&counted, w->metrics)
               ? (int64_t)weir__metric_get(&counted, METRIC_STORE_ERRORS)
               : 0;
}

static void json_workers(cli_json *j, const status_facts *f)
{
    weir__cli_json_open(j, "workers", '[');
    for (size_t i = 0; i < f->workers.workers_count; i++) {
        const store_worker *w = &f->workers.workers[i];
        weir__cli_json_open(j, NULL, '{');
        weir__cli_json_str(j, "worker", w->name);
        weir__cli_json_str(j, "host", w->host);
        weir__cli_json_i64(j, "pid", w->pid);
        weir__cli_json_open(j, "lanes", '[');
        for (size_t n = 0; n < w->lanes_count; n++) {
            weir__cli_json_str(j, NULL, w->lanes[n]);
        }
        weir__cli_json_close(j, ']');
        weir__cli_json_time(j, "since", w->since_us);
        weir__cli_json_time(j, "until", w->until_us);
        weir__cli_json_i64(j, "holds", w->holds);
        weir__cli_json_bool(j, "draining", w->draining);
        weir__cli_json_i64(j, "store_errors", store_errors(w));
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

static void json_holders(cli_json *j, const status_facts *f)
{
    weir__cli_json_open(j, "held_back_by", '[');
    for (size_t i = 0; i < f->holders.holders_count; i++) {
        const store_holder *h = &f->holders.holders[i];
        weir__cli_json_open(j, NULL, '{');
        if (h->pid != 0) {
            weir__cli_json_i64(j, "pid", h->pid);
        } else {
            weir__cli_json_null(j, "pid");
        }
        weir__cli_json_str(j, "transaction", h->transaction);
        weir__cli_json_bool(j, "prepared", h->pid == 0);
        weir__cli_json_str(j, "application", h->application);
        weir__cli_json_str(j, "user", h->user);
        weir__cli_json_str(j, "state", h->state);
        if (h->since_us != 0) {
            weir__cli_json_time(j, "since", h->since_us);
        } else {
            weir__cli_json_null(j, "since");
        }
        weir__cli_json_str(j, "query", h->query);
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

/* Where a PostgreSQL store is; not there for the others. */
static void json_server(cli_json *j, const store_stats *s)
{
    if (s->database[0] == '\0') {
        return;
    }
    weir__cli_json_open(j, "server", '{');
    weir__cli_json_str(j, "database", weir__str(s->database));
    weir__cli_json_str(j, "schema", weir__str(s->place));
    weir__cli_json_str(j, "user", weir__str(s->user));
    weir__cli_json_bool(j, "standby", s->standby);
    weir__cli_json_bool(j, "pooled", s->pooled);
    weir__cli_json_close(j, '}');
}

static bool print_json(cli *c, const status_facts *f)
{
    cli_json j = { .buffer = &(weir_buffer){ 0 } };

    weir__cli_json_open(&j, NULL, '{');
    weir__cli_json_str(&j, "store", weir__str(f->store));
    weir__cli_json_i64(&j, "schema", f->stats.schema);
    weir__cli_json_str(&j, "library", weir__str(f->stats.library));
    weir__cli_json_str(&j, "durability", weir__str(f->stats.durability));
    weir__cli_json_i64(&j, "file_bytes", f->stats.file_bytes);
    weir__cli_json_i64(&j, "wal_bytes", f->stats.wal_bytes);
    json_server(&j, &f->stats);
    weir__cli_json_time(&j, "now", f->positions.now_us);
    weir__cli_json_i64(&j, "head", f->positions.head);
    weir__cli_json_i64(&j, "safe", f->positions.safe);
    json_holders(&j, f);
    json_routers(&j, f);
    json_lanes(&j, f);
    json_workers(&j, f);
    weir__cli_json_i64(&j, "streams", f->stats.streams);
    weir__cli_json_i64(&j, "targets", f->stats.targets);
    weir__cli_json_i64(&j, "blocked", f->stats.blocked);
    weir__cli_json_i64(&j, "parked", f->stats.parked);
    weir__cli_json_close(&j, '}');
    const bool ok = !j.failed && weir__buffer_add(j.buffer, "\n", 1) &&
                    weir__cli_put(&c->out, (weir_str){ j.buffer->ptr, j.buffer->len });
    weir__buffer_free(j.buffer);
    return ok;
}

/* Whom to ask why events are held back: a table of its own. */
static void print_holders(cli_output *o, const status_facts *f)
{
    cli_table table = { 0 };
    weir_buffer text = { 0 };
    if (f->holders.holders_count == 0) {
        return;
    }
    for (size_t i = 0; i < f->holders.holders_count; i++) {
        const store_holder *h = &f->holders.holders[i];
        const cli_field fields[] = {
            { .name = "held_back_by", .type = CLI_STR, .text = h->transaction },
            { .name = "pid", .type = h->pid != 0 ? CLI_I64 : CLI_NULL, .number = h->pid },
            { .name = "since", .type = CLI_STAMP, .number = h->since_us },
            { .name = "application", .type = CLI_STR, .text = h->application },
            { .name = "user", .type = CLI_STR, .text = h->user },
            { .name = "state", .type = CLI_STR, .text = h->state },
        };
        (void)weir__cli_table_row(&table, fields, sizeof fields / sizeof fields[0]);
    }
    if (weir__cli_table_flush(&table, &text)) {
        (void)weir__cli_print(o, "\n");
        (void)weir__cli_put(o, (weir_str){ text.ptr, text.len });
    }
    weir__buffer_free(&text);
    weir__cli_table_free(&table);
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

/* Who works, in a table of its own; one that has ended says when. */
static void print_workers(cli_output *o, const status_facts *f)
{
    cli_table table = { 0 };
    weir_buffer text = { 0 }, lanes = { 0 };
    for (size_t i = 0; i < f->workers.workers_count; i++) {
        const store_worker *w = &f->workers.workers[i];
        const bool ended = w->until_us <= f->positions.now_us;
        const cli_field fields[] = {
            { .name = "worker", .type = CLI_STR, .text = w->name },
            { .name = "host", .type = CLI_STR, .text = w->host },
            { .name = "pid", .type = CLI_I64, .number = w->pid },
            { .name = "lanes", .type = CLI_STR, .text = lanes_text(w, &lanes) },
            { .name = "since", .type = CLI_STAMP, .number = w->since_us },
            { .name = "ended", .type = ended ? CLI_STAMP : CLI_NULL, .number = w->until_us },
            { .name = "holds", .type = CLI_I64, .number = w->holds },
            { .name = "draining", .type = CLI_BOOL, .number = w->draining },
            { .name = "store_errors", .type = CLI_I64, .number = store_errors(w) },
        };
        (void)weir__cli_table_row(&table, fields, sizeof fields / sizeof fields[0]);
    }
    weir__buffer_free(&lanes);
    if (f->workers.workers_count > 0 && weir__cli_table_flush(&table, &text)) {
        (void)weir__cli_print(o, "\n");
        (void)weir__cli_put(o, (weir_str){ text.ptr, text.len });
    }
    weir__buffer_free(&text);
    weir__cli_table_free(&table);
}

static void print_text(cli *c, const status_facts *f)
{
    cli_output *o = &c->out;
    char now[WEIR_TIME_TEXT_BYTES];

    weir__time_to_text(f->positions.now_us, now);
    (void)weir__cli_print(o, "store       %s\n", f->store);
    (void)weir__cli_print(o, "schema      %" PRId64 "\n", f->stats.schema);
    (void)weir__cli_print(o, "library     %s\n", f->stats.library);
    (void)weir__cli_print(o, "durability  %s\n", f->stats.durability);
    if (f->stats.database[0] != '\0') {
        (void)weir__cli_print(o, "server      %s, database %s, schema %s, user %s%s\n",
                              f->stats.standby ? "standby" : "primary", f->stats.database,
                              f->stats.place, f->stats.user,
                              f->stats.pooled ? ", through a pooler" : "");
        (void)weir__cli_print(o, "size        %" PRId64 " bytes\n", f->stats.file_bytes);
    } else {
        (void)weir__cli_print(o,
                              "size        %" PRId64 " bytes, write-ahead log %" PRId64 " bytes\n",
                              f->stats.file_bytes, f->stats.wal_bytes);
    }
    (void)weir__cli_print(o, "time        %s\n", now);
    (void)weir__cli_print(o, "head        %" PRId64 "\n", f->positions.head);
    (void)weir__cli_print(o, "safe        %" PRId64 "\n", f->positions.safe);
    (void)weir__cli_print(o, "streams     %" PRId64 "\n", f->stats.streams);
    (void)weir__cli_print(o, "targets     %" PRId64 ", %" PRId64 " blocked\n", f->stats.targets,
                          f->stats.blocked);
    (void)weir__cli_print(o, "parked      %" PRId64 "\n", f->stats.parked);
    (void)weir__cli_print(o, "reactions   %zu\n", f->reactions.reactions_count);
    print_holders(o, f);
    print_workers(o, f);
    if (f->lanes.lanes_count > 0) {
        (void)weir__cli_print(o, "\n");
    }
    for (size_t i = 0; i < f->lanes.lanes_count; i++) {
        const store_lane *l = &f->lanes.lanes[i];
        const cli_field fields[] = {
            { .name = "lane", .type = CLI_STR, .text = l->lane },
            { .name = "targets", .type = CLI_I64, .number = l->targets },
            { .name = "ready", .type = CLI_I64, .number = l->ready },
            { .name = "leased", .type = CLI_I64, .number = l->leased },
            { .name = "blocked", .type = CLI_I64, .number = l->blocked },
            { .name = "deferred", .type = CLI_I64, .number = l->deferred },
            { .name = "paused", .type = CLI_BOOL, .number = l->paused },
        };
        (void)weir__cli_row(o, fields, sizeof fields / sizeof fields[0]);
    }
}

static bool print_metrics(cli *c, const status_facts *f)
{
    weir_buffer text = { 0 };
    const bool ok = weir__cli_status_metrics(f, &text) &&
                    weir__cli_put(&c->out, (weir_str){ text.ptr, text.len });

    weir__buffer_free(&text);
    return ok;
}

/* false: no memory, or nobody listens. */
static bool print(cli *c, const status_facts *f)
{
    if (weir__cli_has(c, "metrics")) {
        return print_metrics(c, f);
    }
    if (c->out.json) {
        return print_json(c, f);
    }
    print_text(c, f);
    return true;
}

static int run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    status_facts facts = { 0 };
    if (weir__cli_has(c, "metrics") && (c->json || c->text)) {
        return weir__cli_usage(c, "--metrics has a format of its own; leave --json and --text out");
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);

    if (status == WEIR_OK) {
        status = collect(c, w, &facts, &err);
    }
    if (status == WEIR_OK && !print(c, &facts) && !c->out.closed && !c->out.failed) {
        status = weir__fail(&err, WEIR_ENOMEM, "out of memory");
    }
    weir__arena_free(&facts.lanes.arena);
    weir__arena_free(&facts.reactions.arena);
    weir__arena_free(&facts.holders.arena);
    weir__arena_free(&facts.workers.arena);
    weir__free(facts.store);
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_status_command = {
    .name = "status",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[options]",
    .summary = "where the store stands: positions, lanes, size",
    .about =
        "Prints the highest position (head), the highest one at and below which nothing can still\n"
        "appear (safe), which transactions keep the second below the first, what is blocked and\n"
        "parked, the lanes, who routes, who works, and facts about the store itself: schema,\n"
        "library, durability, bytes on disk.\n"
        "--metrics prints numbers for Prometheus instead, in its text format: these, and what "
        "each\n"
        "worker has counted, as of its last beat (at most 10 s ago).",
    .example = "weir status\n"
               "weir status --json\n"
               "weir status --metrics\n"
               "weir status --store postgres:///orders",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
