/* safe.c - the rule of positions (safe.sql says what it is), and what is known of the log.
 *
 * INVARIANTS
 *   (1) `safe` only becomes `top` after every transaction that held the store's lock when it was
 *       looked at, after `top` was seen, has ended. Readers read up to `safe` in a later statement:
 *       a read that began before that look proves nothing. Where positions follow each other
 *       without a gap nobody has to be looked at, so up to there the same statement can read
 *       (`news`).
 *   (2) A prepared transaction has another name after a crash of the server, which need not be
 *       noticed. So when a holder is gone, prepared ones that were not there before are waited for
 *       as well: one of them may be it.
 *   (3) All that is remembered (safe, the gap, its holders) is of one server. Every answer says
 *       which server gave it; another one is first asked whether its log is the same as far as it
 *       was seen, and then everything but `safe` starts again.
 *   (4) On a standby the rule is not run: it has no locks to look at. `safe` is the hint there, and
 *       what follows it without a gap.
 *
 * THREADS  One thread at a time runs the rule (`running`) and owns what is not guarded by `mu`.
 * Others wait for it, and take the answer if it began after they asked: then it has seen what they
 * committed. `mu` is never held while anything is sent.
 */
#include "store/postgres/safe.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/str.h"
#include "store/postgres/safe_sql.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    SLICE_EVENTS = 10000,         /* as in safe_read */
    SLICES_MAX = 64,              /* in one call; the next goes on */
    SERVER_CHANGES_MAX = 8,       /* in one call */
    HOLDER_BYTES = 32,            /* "-1/4294967295", "200/4294967295" */
    WINDOW_EVENTS = 10000,        /* how many are counted again when the server changes */
    HINT_EVENTS = 1000,           /* the hint is written when it is so far behind, */
    HINT_US = 200 * 1000,         /* or that old; */
    HINT_PAUSE_US = 10 * 1000000, /* and after a failure not before this has passed */
};

/* The columns that safe_read, safe_reread and safe_verify end with. */
typedef struct anchor {
    int64_t id; /* 0: none yet */
    int64_t version, created_us, stream;
} anchor;

/* Events counted in (from, ...]. */
typedef struct window {
    int64_t from, count;
} window;

/* In the order of who owns what, not of sizes: there is one per store. */
struct pg_safe {     /* NOLINT(clang-analyzer-optin.performance.Padding) */
    pg_store *store; /* borrowed */

    weir_mutex mu;
    weir_cond ended;
    /* guarded by mu */
    bool running;
    uint64_t begun, done; /* number of the last run that began, and of the last that succeeded */
    pg_known known;

    _Atomic bool suspect; /* what is known may be of another server */

    /* owned by the thread that runs the rule */
    pg_safe_step_fn step_cb; /* tests */
    void *step_ctx;
    bool verified;
    bool met;       /* there was a server before */
    int64_t server; /* as in pg_known */
    int32_t number; /* weir.store.number there */
    int64_t system; /* identifier of its cluster */
    char epoch[64]; /* weir.store.epoch there */
    /* Names of the log, to compare and for people to read: as of when something that was seen was
     * found to be missing, and as it is now. */
    char log_epoch[64], log[64];
    int64_t safe, head, now_us;
    bool behind;
    anchor last;        /* the event at `safe` */
    window before, now; /* events in (before.from, safe] */
    bool has_gap;
    bool looked; /* step (b) was made for this gap */
    int64_t top;
    char (*holders)[HOLDER_BYTES]; /* owned: who could own the gap */
    size_t holders_count, holders_capacity;
    pg_news *news;         /* borrowed from who runs the rule; NULL: not wanted */
    int64_t news_to;       /* they are all up to here */
    int64_t hint, hint_us; /* how far the hint is, and when it may be written again */
};

static weir_status safe_ask(pg_safe *p, const char *sql, pg_params *params, PGresult **result,
                            weir_error *err)
{
    if (p->step_cb != NULL) {
        p->step_cb(p->step_ctx, sql);
    }
    return weir__pg_call(p->store, &(pg_call){ .sql = sql, .params = params, .repeat = PG_REPEAT },
                         result, err);
}

/* Whether an answer is from the server, and the store, that everything remembered is from. */
static bool is_same_place(pg_safe *p, const PGresult *result)
{
    return pq.PQntuples(result) > 0 && !weir__pg_null(result, 0, 1) &&
           weir__pg_i64(result, 0, 0) == p->server && weir__pg_i32(result, 0, 1) == p->number;
}

static anchor anchor_read(const PGresult *result, int column, int64_t id)
{
    if (weir__pg_null(result, 0, column)) {
        return (anchor){ .id = 0 };
    }
    return (anchor){ .id = id,
                     .version = weir__pg_i64(result, 0, column),
                     .created_us = weir__pg_time_us(result, 0, column + 1),
                     .stream = weir__pg_i64(result, 0, column + 2) };
}

static bool anchors_equal(const anchor *a, const anchor *b)
{
    return a->id == b->id && a->version == b->version && a->created_us == b->created_us &&
           a->stream == b->stream;
}

static void gap_forget(pg_safe *p)
{
    p->has_gap = false;
    p->looked = false;
    p->holders_count = 0;
}

/* `count` events were found between `safe` and `to`; -1: not known how many. */
static void safe_set(pg_safe *p, int64_t to, int64_t count, anchor at)
{
    if (count < 0) {
        p->before = p->now = (window){ .from = to };
    } else {
        p->now.count += count;
        if (p->now.count > WINDOW_EVENTS) {
            p->before = p->now;
            p->now = (window){ .from = to };
        }
    }
    p->safe = to;
    p->last = at;
    if (p->has_gap && p->safe >= p->top) {
        gap_forget(p);
    }
}

/* ---- another server ------------------------------------------------------------------------- */

/* Names the log that was found: CLUSTER/TIMELINE/STORE. If nothing else tells it from the last
 * one (a copy of the files was put back), @START is added: when the server started. CLUSTER is the
 * system identifier, as pg_controldata shows it; STORE is made of the store's UUID and its table of
 * events. A log that goes on (`other` is false) keeps its epoch, through restarts and failovers
 * that lose nothing, and its name through restarts. A standby cannot say which timeline it is
 * on. */
static void log_name(pg_safe *p, const PGresult *result, bool other)
{
    char name[sizeof p->log], text[128];
    uint8_t digest[WEIR_SHA256_BYTES];
    weir_sha256 hash;
    const int64_t timeline = weir__pg_i64(result, 0, 8), table = weir__pg_i64(result, 0, 9);
    const int64_t started_us = (p->server < 0 ? -p->server : p->server) - table;
    const int len = snprintf(text, sizeof text, "%s %lld", p->epoch, (long long)table);
    weir__sha256_init(&hash);
    weir__sha256_add(&hash, text, (size_t)len);
    weir__sha256_end(&hash, digest);
    (void)snprintf(name, sizeof name, "%llu/%lld/%02x%02x%02x%02x", (unsigned long long)p->system,
                   (long long)timeline, digest[0], digest[1], digest[2], digest[3]);
    const bool same = strncmp(name, p->log, strlen(name)) == 0;
    if (!other && (same || p->server < 0)) {
        return;
    }
    if (same || (other && strncmp(name, p->log_epoch, strlen(name)) == 0)) {
        (void)snprintf(name + strlen(name), sizeof name - strlen(name), "@%lld",
                       (long long)(started_us / 1000));
    }
    (void)snprintf(p->log, sizeof p->log, "%s", name);
    if (other) {
        (void)snprintf(p->log_epoch, sizeof p->log_epoch, "%s", name);
    }
}

/* Nothing that was known of the log counts any more. */
static void start_again(pg_safe *p)
{
    p->safe = p->hint = 0;
    p->last = (anchor){ .id = 0 };
    p->before = p->now = (window){ .from = 0 };
    p->behind = false;
}

/* Takes note of the server that answered: is its log the one that was seen, as far as it was? */
static void server_judge(pg_safe *p, const PGresult *result)
{
    const weir_str epoch = weir__pg_text(result, 0, 2);
    const int64_t system = weir__pg_i64_or(result, 0, 3, 0);
    const int64_t count = weir__pg_i64(result, 0, 4);
    const anchor there = anchor_read(result, 5, p->last.id);
    const bool same_store = weir__str_equal(epoch, weir__str(p->epoch)) && system == p->system;

    p->server = weir__pg_i64(result, 0, 0);
    p->number = weir__pg_i32(result, 0, 1);
    gap_forget(p);
    bool other = !p->met || !same_store;
    if (other) {
        (void)snprintf(p->epoch, sizeof p->epoch, "%.*s", (int)epoch.len, epoch.ptr);
        p->system = system;
    } else if (p->last.id != 0) {
        /* A standby may just not have got there; what it has instead cannot change any more. */
        const bool missing = there.id == 0 || count < p->before.count + p->now.count;
        p->behind = p->server < 0 && missing;
        other = !p->behind && (missing || !anchors_equal(&there, &p->last) ||
                               count != p->before.count + p->now.count);
    }
    log_name(p, result, other);
    if (other) {
        start_again(p);
    }
    p->met = true;
    p->verified = !p->behind; /* ask again, next time */
}

static weir_status server_verify(pg_safe *p, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&params, p->before.from);
    weir__pg_add_i64(&params, p->last.id);
    weir_status status = safe_ask(p, sql_safe_verify, &params, &result, err);
    if (status == WEIR_OK && pq.PQntuples(result) != 1) {
        status = weir__fail(err, WEIR_ECORRUPT, "table \"%s\".store has no row: run weir doctor",
                            p->store->schema_name);
    } else if (status == WEIR_OK) {
        server_judge(p, result);
    }
    pq.PQclear(result);
    weir__pg_params_free(&params);
    return status;
}

/* ---- the rule ------------------------------------------------------------------------------- */

static void news_drop(pg_news *news)
{
    if (news != NULL) {
        pq.PQclear(news->result);
        news->result = NULL;
    }
}

/* Keeps what was read by the way. *result: moved if so. */
static void news_keep(pg_safe *p, PGresult **result, int64_t run)
{
    if (p->news != NULL && run > p->news->after && run - p->news->after <= PG_NEWS_MAX) {
        p->news->result = *result;
        p->news_to = run;
        *result = NULL;
    }
}

/* Step (a). *end: nothing is left to be done in this call. */
static weir_status step_read(pg_safe *p, bool *end, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    news_drop(p->news);
    weir__pg_add_i64(&params, p->safe);
    if (p->news == NULL) {
        weir__pg_add_null(&params, PG_OID_INT8);
    } else {
        weir__pg_add_i64(&params, p->news->after);
    }
    const weir_status status = safe_ask(p, sql_safe_read, &params, &result, err);
    if (status == WEIR_OK && !is_same_place(p, result)) {
        p->verified = false;
    } else if (status == WEIR_OK) {
        const int64_t from = weir__pg_i64(result, 0, 4);
        const int64_t run = weir__pg_i64(result, 0, 5);
        const int64_t top = weir__pg_i64(result, 0, 6);
        const int64_t count = weir__pg_i64(result, 0, 7);
        const anchor at = anchor_read(result, 8, run);
        p->now_us = weir__pg_i64(result, 0, 2);
        p->head = weir__pg_i64(result, 0, 3);
        if (from > p->safe) { /* somebody else's hint; how many events that is was not counted */
            p->hint = from;
            safe_set(p, run, -1, at);
        } else if (run > p->safe) {
            safe_set(p, run, run - from, at);
        }
        if (top > p->safe && !p->has_gap) {
            p->has_gap = true;
            p->top = top;
        } else if (top == p->safe) {
            *end = count < SLICE_EVENTS;
        }
        news_keep(p, &result, run);
    }
    pq.PQclear(result);
    weir__pg_params_free(&params);
    return status;
}

static bool holder_add(pg_safe *p, weir_str name)
{
    if (p->holders_count == p->holders_capacity) {
        const size_t capacity = p->holders_capacity == 0 ? 16 : p->holders_capacity * 2;
        void *holders = weir__realloc(p->holders, capacity * sizeof *p->holders);
        if (holders == NULL) {
            return false;
        }
        p->holders = holders;
        p->holders_capacity = capacity;
    }
    (void)snprintf(p->holders[p->holders_count++], HOLDER_BYTES, "%.*s", (int)name.len, name.ptr);
    return true;
}

static bool is_among(const PGresult *result, const char *holder)
{
    for (int i = 0; i < pq.PQntuples(result); i++) {
        if (!weir__pg_null(result, i, 2) &&
            weir__str_equal(weir__pg_text(result, i, 2), weir__str(holder))) {
            return true;
        }
    }
    return false;
}

/* Adds the holders that are there now: all of them, or the prepared ones only. */
static bool holders_add(pg_safe *p, const PGresult *result, bool all)
{
    bool ok = true;
    for (int i = 0; ok && i < pq.PQntuples(result); i++) {
        if (weir__pg_null(result, i, 2)) {
            continue;
        }
        const weir_str name = weir__pg_text(result, i, 2);
        bool known = false;
        for (size_t j = 0; j < p->holders_count && !known; j++) {
            known = weir__str_equal(name, weir__str(p->holders[j]));
        }
        if (!known && (all || weir__pg_bool(result, i, 3))) {
            ok = holder_add(p, name);
        }
    }
    return ok;
}

/* Keeps those that are still there. One that is gone may be prepared, and go on under another
 * name. */
static bool holders_keep(pg_safe *p, const PGresult *result)
{
    size_t kept = 0;
    WEIR_ASSERT(p->holders != NULL || p->holders_count == 0);
    for (size_t i = 0; p->holders != NULL && i < p->holders_count; i++) {
        if (is_among(result, p->holders[i])) {
            if (kept < i) {
                memcpy(p->holders[kept], p->holders[i], HOLDER_BYTES);
            }
            kept++;
        }
    }
    const bool gone = kept < p->holders_count;
    p->holders_count = kept;
    return !gone || holders_add(p, result, false);
}

/* Steps (b) and (c). */
static weir_status step_look(pg_safe *p, weir_error *err)
{
    PGresult *result = NULL;
    weir_status status = safe_ask(p, sql_safe_look, NULL, &result, err);
    if (status == WEIR_OK && !is_same_place(p, result)) {
        p->verified = false;
    } else if (status == WEIR_OK &&
               !(p->looked ? holders_keep(p, result) : holders_add(p, result, true))) {
        gap_forget(p);
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a list of holders");
    }
    p->looked = status == WEIR_OK;
    pq.PQclear(result);
    return status;
}

/* Step (d). */
static weir_status step_reread(pg_safe *p, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&params, p->safe);
    weir__pg_add_i64(&params, p->top);
    const weir_status status = safe_ask(p, sql_safe_reread, &params, &result, err);
    if (status == WEIR_OK && !is_same_place(p, result)) {
        p->verified = false;
    } else if (status == WEIR_OK) {
        safe_set(p, p->top, weir__pg_i64(result, 0, 2), anchor_read(result, 3, p->top));
    }
    pq.PQclear(result);
    weir__pg_params_free(&params);
    return status;
}

/* One round: reads, and looks after what stands in the way. */
static weir_status round_run(pg_safe *p, bool *end, weir_error *err)
{
    weir_status status = step_read(p, end, err);
    if (status != WEIR_OK || !p->verified || !p->has_gap) {
        return status;
    }
    status = step_look(p, err);
    if (status != WEIR_OK || !p->verified) {
        return status;
    }
    if (p->holders_count > 0) {
        *end = true;
        return WEIR_OK;
    }
    return step_reread(p, err);
}

static weir_status rule_run(pg_safe *p, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool end = false;
    int changes = 0;
    for (int i = 0; status == WEIR_OK && !end && i < SLICES_MAX; i++) {
        if (atomic_exchange(&p->suspect, false)) {
            p->verified = false;
        }
        if (!p->verified) {
            if (changes++ == SERVER_CHANGES_MAX) {
                return weir__fail(err, WEIR_EUNAVAILABLE,
                                  "connections lead to different PostgreSQL servers by turns");
            }
            status = server_verify(p, err);
            if (status != WEIR_OK || p->behind) {
                break;
            }
        }
        status = round_run(p, &end, err);
    }
    if (status != WEIR_OK) {
        gap_forget(p);
    }
    return status;
}

/* Tells others how far it is, now and then. Nothing depends on it. Those who only read do so as
 * well: where nobody else follows the log, each of them would begin at the oldest gap, and see
 * nothing beyond it while somebody appends. */
static void hint_write(pg_safe *p)
{
    const int64_t now = pg_mono_us();
    if (p->server < 0 || p->safe <= p->hint || now < p->hint_us ||
        (p->safe - p->hint < HINT_EVENTS && now < p->hint_us + HINT_US)) {
        return;
    }
    weir_error err;
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&params, p->safe);
    const weir_status status = weir__pg_call(
        p->store, &(pg_call){ .sql = sql_safe_hint, .params = &params }, &result, &err);
    if (status == WEIR_OK) {
        /* The database proves for itself how far it is; what it cannot yet, it is asked later. */
        p->hint = weir__pg_i64_or(result, 0, 0, p->safe);
        p->hint_us = p->hint < p->safe ? now + HINT_US : now;
    } else {
        p->hint_us = now + HINT_PAUSE_US;
    }
    pq.PQclear(result);
    weir__pg_params_free(&params);
}

weir_status weir__pg_safe_advance(pg_store *s, pg_known *out, pg_news *news, weir_error *err)
{
    pg_safe *p = s->safe;
    weir__lock(&p->mu);
    const uint64_t needed = p->begun + 1; /* one that runs now may have begun too early */
    while (p->running && p->done < needed) {
        weir__cond_wait(&p->ended, &p->mu);
    }
    if (p->done >= needed) {
        *out = p->known;
        weir__unlock(&p->mu);
        return WEIR_OK;
    }
    const uint64_t run = ++p->begun;
    p->running = true;
    weir__unlock(&p->mu);

    p->news = news;
    const weir_status status = rule_run(p, err);
    p->news = NULL;
    if (status != WEIR_OK || p->behind || p->news_to != p->safe) {
        news_drop(news);
    }
    pg_known known = { 0 };
    if (status == WEIR_OK) {
        known = (pg_known){ .head = p->head > p->safe ? p->head : p->safe,
                            .safe = p->safe,
                            .now_us = p->now_us,
                            .held = p->has_gap || p->behind || p->head > p->safe,
                            .behind = p->behind,
                            .server = p->server,
                            .place = p->server + p->number };
        (void)snprintf(known.epoch, sizeof known.epoch, "%s", p->log_epoch);
        (void)snprintf(known.log, sizeof known.log, "%s", p->log);
        hint_write(p);
        *out = known;
    }
    weir__lock(&p->mu);
    p->running = false;
    if (status == WEIR_OK) {
        p->done = run;
        p->known = known;
    }
    weir__cond_broadcast(&p->ended);
    weir__unlock(&p->mu);
    return status;
}

void weir__pg_safe_known(pg_store *s, pg_known *out)
{
    weir__lock(&s->safe->mu);
    *out = s->safe->known;
    weir__unlock(&s->safe->mu);
}

void weir__pg_safe_suspect(pg_store *s)
{
    atomic_store(&s->safe->suspect, true);
}

void weir__pg_safe_watch(weir_store *s, pg_safe_step_fn fn, void *ctx)
{
    pg_safe *p = pg_of(s)->safe;
    p->step_cb = fn;
    p->step_ctx = ctx;
}

/* ---- opening and closing -------------------------------------------------------------------- */

weir_status weir__pg_safe_open(pg_safe **out, pg_store *s, weir_error *err)
{
    pg_safe *p = weir__calloc(1, sizeof *p);
    if (p == NULL || !weir__mutex_init(&p->mu)) {
        weir__free(p);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    if (!weir__cond_init(&p->ended)) {
        weir__mutex_destroy(&p->mu);
        weir__free(p);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store");
    }
    p->store = s;
    *out = p;
    return WEIR_OK;
}

void weir__pg_safe_close(pg_safe *safe)
{
    if (safe == NULL) {
        return;
    }
    weir__cond_destroy(&safe->ended);
    weir__mutex_destroy(&safe->mu);
    weir__free(safe->holders);
    weir__free(safe);
}

void weir__pg_safe_connected(pg_safe *safe, const pg_server *server)
{
    if (safe == NULL) {
        return; /* the first connection of a store that is being opened */
    }
    const int64_t id = server->standby ? -server->started_us : server->started_us;
    weir__lock(&safe->mu);
    const bool other = safe->known.server != id;
    weir__unlock(&safe->mu);
    if (other) {
        atomic_store(&safe->suspect, true);
    }
}

/* ---- verbs ---------------------------------------------------------------------------------- */

weir_status weir__pg_positions(weir_store *base, store_positions *out, weir_error *err)
{
    pg_known known;
    const weir_status status = weir__pg_safe_advance(pg_of(base), &known, NULL, err);
    if (status == WEIR_OK) {
        *out = (store_positions){ .head = known.head, .safe = known.safe, .now_us = known.now_us };
        memcpy(out->epoch, known.epoch, sizeof out->epoch);
        memcpy(out->log, known.log, sizeof out->log);
    }
    return status;
}

weir_status weir__pg_holders(weir_store *base, store_holder_list *list, weir_error *err)
{
    PGresult *result = NULL;
    weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_safe_holders, .repeat = PG_REPEAT }, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int count = pq.PQntuples(result);
    weir__arena_reset(&list->arena);
    list->holders_count = 0;
    list->holders = weir__arena_alloc(&list->arena, (size_t)count * sizeof *list->holders + 1);
    bool ok = list->holders != NULL;
    for (int i = 0; ok && i < count; i++) {
        store_holder *h = &list->holders[i];
        *h = (store_holder){ .pid = weir__pg_i64(result, i, 0),
                             .since_us = weir__pg_i64_or(result, i, 6, 0) };
        ok = weir__pg_text_copy(&list->arena, result, i, 1, &h->transaction) &&
             weir__pg_text_copy(&list->arena, result, i, 2, &h->application) &&
             weir__pg_text_copy(&list->arena, result, i, 3, &h->user) &&
             weir__pg_text_copy(&list->arena, result, i, 4, &h->state) &&
             weir__pg_text_copy(&list->arena, result, i, 5, &h->query);
    }
    if (ok) {
        list->holders_count = (size_t)count;
    } else {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a list of holders");
    }
    pq.PQclear(result);
    return status;
}
