/* store.c - the PostgreSQL adapter as a store: opening, closing, its vtable. */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/store_sql.h"
#include "store/secrets.h"
#include "store/watches.h"

#include <stdio.h>

enum { SCHEMA_NAME_BYTES_MAX = 63 };

extern const weir_store_ops weir__postgres_ops;

static void store_close(weir_store *base)
{
    pg_store *s = pg_of(base);
    weir__pg_wake_close(s->wake); /* first: it uses the pool and the safe position */
    weir__pg_safe_close(s->safe);
    weir__pg_pool_close(s->pool);
    for (size_t i = 0; i < s->sql_count; i++) {
        weir__free(s->sql[i].to);
    }
    weir__mutex_destroy(&s->sql_mu);
    weir__arena_free(&s->texts);
    weir__free(s);
}

/* The name goes between double quotes, and inside string literals of our SQL. */
static weir_status schema_set(pg_store *s, weir_str name, weir_error *err)
{
    const weir_str chosen = name.len == 0 ? weir__str("weir") : name;
    bool fits = chosen.len <= SCHEMA_NAME_BYTES_MAX &&
                !weir__str_starts_with(chosen, weir__str("pg_")) &&
                weir__utf8_valid_prefix(chosen.ptr, chosen.len) == chosen.len;
    bool plain = true;
    for (size_t i = 0; i < chosen.len && fits; i++) {
        const char ch = chosen.ptr[i];
        fits = (unsigned char)ch >= ' ' && strchr("\"'\\$\x7f", ch) == NULL;
        plain =
            plain && ((ch >= 'a' && ch <= 'z') || ch == '_' || (i > 0 && ch >= '0' && ch <= '9'));
    }
    if (!fits) {
        return weir__fail(err, WEIR_EINVAL,
                          "schema \"%.*s\" is not a name of 1 to 63 bytes without quotes, "
                          "backslashes, dollars and control characters, not starting with pg_",
                          (int)chosen.len, chosen.ptr);
    }
    char *quoted = weir__arena_alloc(&s->texts, chosen.len + 3);
    s->schema_name = weir__arena_copy(&s->texts, chosen.ptr, chosen.len);
    if (quoted == NULL || s->schema_name == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    quoted[0] = '"';
    memcpy(quoted + 1, chosen.ptr, chosen.len);
    memcpy(quoted + 1 + chosen.len, "\"", 2);
    s->schema = quoted;
    s->default_schema = weir__str_equal(chosen, weir__str("weir"));
    if (plain && s->default_schema) {
        s->schema = "weir";
    }
    return WEIR_OK;
}

static weir_status options_copy(pg_store *s, const store_options *options, weir_error *err)
{
    s->options = *options;
    s->options.path.ptr = weir__arena_copy(&s->texts, options->path.ptr, options->path.len);
    s->options.direct.ptr = weir__arena_copy(&s->texts, options->direct.ptr, options->direct.len);
    s->options.application =
        weir__arena_copy(&s->texts, options->application, strlen(options->application));
    s->answer_us = options->answer_us == 0 ? PG_ANSWER_US_DEFAULT : options->answer_us;
    s->clock = options->clock == weir__clock_machine() ? NULL : options->clock;
    if (s->options.path.ptr == NULL || s->options.direct.ptr == NULL ||
        s->options.application == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    return schema_set(s, options->schema, err);
}

/* Does libpq understand the URL? Its words about one that it does not may hold a part of it. */
static weir_status url_check(weir_str url, weir_error *err)
{
    char *why = NULL;
    weir_status status = weir__url_check_password(url, err);
    if (status != WEIR_OK) {
        return status;
    }
    PQconninfoOption *parsed = pq.PQconninfoParse(url.ptr, &why);
    if (parsed == NULL) {
        char text[256];
        (void)snprintf(text, sizeof text, "%s", why == NULL ? "out of memory" : why);
        text[strcspn(text, "\n")] = '\0';
        status = weir__fail(err, WEIR_EINVAL, "store URL is not understood: %s", text);
        weir__url_scrub(url, err);
    }
    pq.PQconninfoFree(parsed);
    pq.PQfreemem(why);
    return status;
}

/* A store with its pool, not connected. */
static weir_status store_new(pg_store **out, const store_options *options, weir_error *err)
{
    weir_status status = weir__libpq_load(err);
    if (status != WEIR_OK) {
        return status;
    }
    pg_store *s = weir__calloc(1, sizeof *s);
    if (s == NULL || !weir__mutex_init(&s->sql_mu)) {
        weir__free(s);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    s->base.ops = &weir__postgres_ops;
    if ((options->open_flags & WEIR_OPEN_READONLY) != 0) {
        s->reading = weir__pg_read_only(&weir__postgres_ops);
        s->base.ops = &s->reading;
    }
    status = options_copy(s, options, err);
    if (status == WEIR_OK) {
        status = url_check(s->options.path, err);
    }
    if (status == WEIR_OK) {
        status = weir__pg_pool_open(&s->pool, s, err);
    }
    if (status != WEIR_OK) {
        store_close(&s->base);
        return status;
    }
    *out = s;
    return WEIR_OK;
}

weir_status weir__pg_bare_open(pg_store **out, const store_options *options, weir_error *err)
{
    store_options bare = *options;
    bare.open_flags = 0; /* what they say is about stores */
    /* Whose statement it is knows how long it takes; a connection that is dead is noticed by
     * TCP. */
    bare.answer_us = options->answer_us == 0 ? PG_ANSWER_US_LONG : options->answer_us;
    const weir_status status = store_new(out, &bare, err);
    if (status == WEIR_OK) {
        (*out)->bare = true;
    }
    return status;
}

/* What opening does on its connection. */
typedef struct opening {
    const pg_schema *schema;
    weir_str role;
    const char *kind;
    bool plan;
    weir_buffer *sql;
    size_t sql_len; /* what the caller had in it */
} opening;
typedef weir_status (*opening_fn)(pg_store *s, pg_conn *conn, opening *o, weir_error *err);

/* A server that is away or just starting is waited for, as by every call, and so is whoever keeps a
 * store from being upgraded. What a connection that was cut left undone is begun again: it looks
 * before it changes anything. */
static weir_status opening_run(pg_store *s, opening_fn fn, opening *o, weir_error *err)
{
    const int64_t deadline_us = pg_mono_us() + s->options.busy_us;
    for (int attempt = 0;; attempt++) {
        pg_conn *conn = NULL;
        weir_status status = weir__pg_take(s, deadline_us, &conn, err);
        if (status != WEIR_OK) {
            return status;
        }
        status = fn(s, conn, o, err);
        weir__pg_give(conn);
        const int64_t pause_us = weir__pg_pause_us(attempt, deadline_us);
        const bool passes = status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN ||
                            (status == WEIR_EBUSY && err != NULL &&
                             strcmp(err->store_code, "55P03") == 0);
        if (!passes || pause_us == 0) {
            return status;
        }
        weir__clock_pause(pause_us);
    }
}

static weir_status opening_open(pg_store *s, pg_conn *conn, opening *o, weir_error *err)
{
    return weir__pg_schema_open(s, o->schema, conn, err);
}

static weir_status opening_plan(pg_store *s, pg_conn *conn, opening *o, weir_error *err)
{
    return weir__pg_schema_plan(s, o->schema, conn, o->sql, err);
}

static weir_status opening_grant(pg_store *s, pg_conn *conn, opening *o, weir_error *err)
{
    o->sql->len = o->sql_len; /* not twice, when it is begun again */
    return weir__pg_schema_grant(s, conn, o->role, o->kind, o->plan, o->sql, err);
}

weir_status weir__postgres_open_schema(weir_store **out, const store_options *options,
                                       const pg_schema *schema, weir_error *err)
{
    pg_store *s = NULL;
    opening o = { .schema = schema };
    weir_status status = store_new(&s, options, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = opening_run(s, opening_open, &o, err);
    if (status == WEIR_OK) {
        status = weir__pg_safe_open(&s->safe, s, err);
    }
    if (status == WEIR_OK) {
        status = weir__pg_wake_open(&s->wake, s, err);
    }
    if (status != WEIR_OK) {
        store_close(&s->base);
        return status;
    }
    *out = &s->base;
    return WEIR_OK;
}

weir_status weir__postgres_open(weir_store **out, const store_options *options, weir_error *err)
{
    return weir__postgres_open_schema(out, options, &weir__pg_schema_current, err);
}

static weir_status opening_alone(const store_options *options, opening_fn fn, opening *o,
                                 weir_error *err)
{
    pg_store *s = NULL;
    weir_status status = store_new(&s, options, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = opening_run(s, fn, o, err);
    store_close(&s->base);
    return status;
}

weir_status weir__postgres_plan(const store_options *options, weir_buffer *sql, weir_error *err)
{
    opening o = { .schema = &weir__pg_schema_current, .sql = sql };
    return opening_alone(options, opening_plan, &o, err);
}

weir_status weir__postgres_grant(const store_options *options, weir_str role, const char *kind,
                                 bool plan, weir_buffer *sql, weir_error *err)
{
    opening o = { .role = role, .kind = kind, .plan = plan, .sql = sql, .sql_len = sql->len };
    return opening_alone(options, opening_grant, &o, err);
}

static weir_status store_now(weir_store *base, int64_t *now_us, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_store_now, .repeat = PG_REPEAT }, &result, err);
    if (status == WEIR_OK) {
        *now_us = weir__pg_i64(result, 0, 0);
    }
    pq.PQclear(result);
    return status;
}

static weir_status seed(pg_store *s, const char *sql, int64_t base, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&p, base);
    const weir_status status =
        weir__pg_call(s, &(pg_call){ .sql = sql, .params = &p }, &result, err);
    const bool done = status == WEIR_OK && pq.PQntuples(result) == 1;
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status != WEIR_OK ? status
           : done            ? WEIR_OK
                             : weir__fail(err, WEIR_EMISUSE,
                                          "only an empty store can be given another beginning");
}

static weir_status store_test_seed(weir_store *base, int64_t position_base, int64_t version_base,
                                   weir_error *err)
{
    const weir_status status = seed(pg_of(base), sql_store_seed_versions, version_base, err);
    return status == WEIR_OK ? seed(pg_of(base), sql_store_seed_positions, position_base, err)
                             : status;
}

static void store_wake(weir_store *base)
{
    weir__pg_wake(pg_of(base));
}

const weir_store_ops weir__postgres_ops = {
    .version = STORE_OPS_VERSION,
    .scheme = "postgres",
    .group_commit = 2,
    .close = store_close,
    .now = store_now,
    .append = weir__pg_append,
    .read_stream = weir__pg_read_stream,
    .read_log = weir__pg_read_log,
    .stream_info = weir__pg_stream_info,
    .streams = weir__pg_streams,
    .key_owner = weir__pg_key_owner,
    .positions = weir__pg_positions,
    .declare = weir__pg_declare,
    .reactions = weir__pg_reactions,
    .retire = weir__pg_retire,
    .router_lease = weir__pg_router_lease,
    .route = weir__pg_route,
    .subscribe = weir__pg_subscribe,
    .lease = weir__pg_lease,
    .fetch = weir__pg_fetch,
    .settle = weir__pg_settle,
    .extend = weir__pg_extend,
    .release = weir__pg_release,
    .block = weir__pg_block,
    .defer = weir__pg_defer,
    .operate = weir__pg_operate,
    .lane_pause = weir__pg_lane_pause,
    .targets = weir__pg_targets,
    .lanes = weir__pg_lanes,
    .parked = weir__pg_parked,
    .parked_retry = weir__pg_parked_retry,
    .parked_drop = weir__pg_parked_drop,
    .poll = weir__pg_poll,
    .snapshot_put = weir__pg_snapshot_put,
    .snapshot_get = weir__pg_snapshot_get,
    .snapshot_drop = weir__pg_snapshot_drop,
    .watch_open = weir__pg_watch_open,
    .watch_wait = weir__watch_wait,
    .watch_fd = weir__watch_fd,
    .watch_close = weir__watch_remove,
    .stats = weir__pg_stats,
    .check = weir__pg_check,
    .test_seed = store_test_seed,
    .holders = weir__pg_holders,
    .append_in = weir__pg_append_in,
    .wake = store_wake,
    .survey = weir__pg_survey,
    .worker_beat = weir__pg_worker_beat,
    .workers = weir__pg_workers,
    .turn = weir__pg_turn,
    .lock_take = weir__pg_lock_take,
    .lock_extend = weir__pg_lock_extend,
    .lock_release = weir__pg_lock_release,
    .locks = weir__pg_locks,
    .once_begin = weir__pg_once_begin,
    .once_extend = weir__pg_once_extend,
    .once_finish = weir__pg_once_finish,
    .once_forget = weir__pg_once_forget,
    .once_runs = weir__pg_once_runs,
};
