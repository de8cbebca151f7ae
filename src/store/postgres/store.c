/* store.c - the PostgreSQL adapter as a store: opening, closing, its verbs. */
#include "base/error.h"
#include "base/str.h"
#include "store/pg_url.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/store_sql.h"
#include "store/seed.h"
#include "store/watches.h"

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

static weir_status positions_seed(pg_store *s, const char *sql, int64_t base, weir_error *err)
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

weir_status weir__postgres_seed(weir_store *base, int64_t position_base, int64_t version_base,
                                weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_conn *conn = NULL;
    weir_buffer sql = { 0 };
    weir_status status = positions_seed(s, sql_store_seed_positions, position_base, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!weir__pg_sql_add(s, &sql, sql_store_seed_versions) ||
        !weir__buffer_add_text(&sql, "'SELECT ") || !weir__buffer_add_i64(&sql, version_base) ||
        !weir__buffer_add_text(&sql, "::bigint'") || !weir__buffer_add(&sql, "", 1)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    } else if ((status = weir__pg_take(s, 0, &conn, err)) == WEIR_OK) {
        status = weir__pg_run_script(conn, sql.ptr, s->answer_us, err);
        weir__pg_give(conn);
    }
    weir__buffer_free(&sql);
    return status;
}

static void store_wake(weir_store *base)
{
    weir__pg_wake(pg_of(base));
}

static const store_log_ops postgres_log_ops = {
    .group_commit = 2,
    .batch_names_max = PG_APPEND_NAMES_MAX,
    .append = weir__pg_append,
    .read_stream = weir__pg_read_stream,
    .read_log = weir__pg_read_log,
    .stream_info = weir__pg_stream_info,
    .streams = weir__pg_streams,
    .positions = weir__pg_positions,
    .snapshot_put = weir__pg_snapshot_put,
    .snapshot_get = weir__pg_snapshot_get,
    .snapshot_drop = weir__pg_snapshot_drop,
    .watch_open = weir__pg_watch_open,
    .watch_wait = weir__watch_wait,
    .watch_fd = weir__watch_fd,
    .watch_close = weir__watch_remove,
    .append_in = weir__pg_append_in,
    .wake = store_wake,
};

static const store_work_ops postgres_work_ops = {
    .declare = weir__pg_declare,
    .reactions = weir__pg_reactions,
    .retire = weir__pg_retire,
    .router_lease = weir__pg_router_lease,
    .route = weir__pg_route,
    .fetch = weir__pg_fetch,
    .settle = weir__pg_settle,
    .extend = weir__pg_extend,
    .operate = weir__pg_operate,
    .lane_pause = weir__pg_lane_pause,
    .targets = weir__pg_targets,
    .lanes = weir__pg_lanes,
    .parked = weir__pg_parked,
    .parked_change = weir__pg_parked_change,
    .poll = weir__pg_poll,
    .turn = weir__pg_turn,
};

static const store_locks_ops postgres_locks_ops = {
    .take = weir__pg_lock_take,
    .extend = weir__pg_lock_extend,
    .release = weir__pg_lock_release,
    .list = weir__pg_locks,
    .finish = weir__pg_once_finish,
    .forget = weir__pg_once_forget,
    .runs = weir__pg_once_runs,
};

static const store_about_ops postgres_about_ops = {
    .scheme = "postgres",
    .close = store_close,
    .now = store_now,
    .stats = weir__pg_stats,
    .check = weir__pg_check,
    .holders = weir__pg_holders,
    .survey = weir__pg_survey,
    .worker_beat = weir__pg_worker_beat,
    .workers = weir__pg_workers,
};

static void verbs_set(pg_store *s)
{
    s->base.log = &postgres_log_ops;
    s->base.work = &postgres_work_ops;
    s->base.locks = &postgres_locks_ops;
    s->base.about = &postgres_about_ops;
    if ((s->options.open_flags & WEIR_OPEN_READONLY) != 0) {
        weir__store_read_only(&s->base, &s->reading);
    }
}

static weir_status schema_set(pg_store *s, weir_error *err)
{
    const weir_str name = weir__pg_url_schema(&s->options);
    s->schema_name = weir__arena_copy(&s->texts, name.ptr, name.len);
    s->default_schema = weir__str_equal(name, weir__str("weir"));
    s->schema = s->default_schema ? "weir" : weir__pg_url_schema_quoted(&s->options, &s->texts);
    return s->schema_name == NULL || s->schema == NULL
               ? weir__fail(err, WEIR_ENOMEM, "could not allocate a store")
               : WEIR_OK;
}

static weir_status options_copy(pg_store *s, const store_options *options, weir_error *err)
{
    s->options = *options;
    s->options.path.ptr = weir__arena_copy(&s->texts, options->path.ptr, options->path.len);
    s->options.direct.ptr = weir__arena_copy(&s->texts, options->direct.ptr, options->direct.len);
    s->options.application =
        weir__arena_copy(&s->texts, options->application, strlen(options->application));
    s->clock = options->clock == weir__clock_machine() ? NULL : options->clock;
    if (s->options.path.ptr == NULL || s->options.direct.ptr == NULL ||
        s->options.application == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    const weir_status status =
        weir__pg_url_database(&s->database, &s->options, &weir__pg_store_manner, s, err);
    s->answer_us = s->database.answer_us;
    return status == WEIR_OK ? schema_set(s, err) : status;
}

/* A store with its pool, not connected. */
static weir_status store_new(pg_store **out, const store_options *options, weir_error *err)
{
    pg_store *s = weir__calloc(1, sizeof *s);
    if (s == NULL || !weir__mutex_init(&s->sql_mu)) {
        weir__free(s);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    weir_status status = options_copy(s, options, err);
    verbs_set(s);
    if (status == WEIR_OK) {
        status = weir__pg_pool_open(&s->pool, &s->database, s->options.pool, err);
    }
    if (status != WEIR_OK) {
        store_close(&s->base);
        return status;
    }
    *out = s;
    return WEIR_OK;
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
        const bool passes =
            status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN ||
            (status == WEIR_EBUSY && err != NULL && strcmp(err->store_code, "55P03") == 0);
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
