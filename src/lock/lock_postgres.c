/* lock_postgres.c - named locks on PostgreSQL: an advisory lock of a session of our own, or, where
 * a pooler would hand that session to somebody else, a lease in the store.
 *
 * Both kinds may want the same name at the same time. Each therefore has its own lock first and
 * looks at the other's afterwards, in a statement of its own:
 *
 *   session   advisory lock, then a note in the store, which a live lease refuses
 *   lease     row of the store, then the advisory lock for a moment, which a session refuses
 *
 * The second of the two sees the first, so they never both hold it; both may see each other and
 * step back, after which the lease tries again. A session looks for the store only when it has the
 * lock: one that was made while it waited counts.
 *
 * INVARIANTS
 *   (1) A session is never used after it was lost, and never replaced: the lock went with it.
 *   (2) A lease outlasts its program: it runs for check_us + grace_us + LOCK_MARGIN_US from a
 *       moment after the one that known_us is about.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "lock/lock_private.h"
#include "lock/postgres_sql.h"
#include "store/pg_url.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    APPLICATION_BYTES = 64, /* the server cuts there */
    NUMBER_BYTES = 24,
    LOOKS_MAX = 5,              /* for a holder that is gone when it is looked for */
    STEPS_BACK_MAX = 5,         /* of a lease that met a session                   */
    STEP_BACK_US = 50 * 1000,   /* at most, each time                              */
    RETRY_US_FIRST = 50 * 1000, /* the first pause between looks at a lease        */
    RETRY_US_MAX = 1000 * 1000,
};

typedef struct postgres_lock {
    named_lock base;
    store_url url;         /* owned */
    weir_str name, holder; /* in url.memory */
    int64_t key;
    pg_database database; /* its texts are in url */
    const char *schema;   /* where a store would be, as an identifier; in url.memory */
    pg_conn conn;
    weir_store *store; /* owned; LOCK_LEASE */
    char *check_sql;   /* owned; LOCK_SESSION */
    bool asking;       /* the check was sent at asked_us and not answered */
    bool lost;         /* the session may still be there, and keeps others away until the program is
                          gone */
    int64_t asked_us;
} postgres_lock;

static postgres_lock *lock_postgres_of(named_lock *base)
{
    return (postgres_lock *)(void *)base;
}

static const postgres_lock *of_const(const named_lock *base)
{
    return (const postgres_lock *)(const void *)base;
}

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a lock");
}

/* ---- statements ---------------------------------------------------------------------------- */

typedef struct sql_words {
    int64_t key;
    int pid;
    int64_t wait_ms; /* 0: no limit */
    int64_t idle_s;
    const char *schema; /* as a literal */
    const char *all;    /* true or false */
} sql_words;

/* `sql` with its :words written in. false: out of memory. */
static bool sql_add(weir_buffer *out, const char *sql, const sql_words *w)
{
    char pid[NUMBER_BYTES], key[NUMBER_BYTES], high[NUMBER_BYTES], low[NUMBER_BYTES],
        wait[NUMBER_BYTES], idle[NUMBER_BYTES];
    const uint64_t bits = (uint64_t)w->key;
    (void)snprintf(key, sizeof key, "(%" PRId64 ")", w->key);
    (void)snprintf(high, sizeof high, "'%" PRIu64 "'", bits >> 32);
    (void)snprintf(low, sizeof low, "'%" PRIu64 "'", bits & UINT32_MAX);
    (void)snprintf(pid, sizeof pid, "%d", w->pid);
    (void)snprintf(wait, sizeof wait, "%" PRId64, w->wait_ms);
    (void)snprintf(idle, sizeof idle, "%" PRId64, w->idle_s);
    const struct {
        const char *word, *text;
    } words[] = {
        { ":pid", pid },   { ":key", key },   { ":high", high },        { ":low", low },
        { ":wait", wait }, { ":idle", idle }, { ":schema", w->schema }, { ":all", w->all }
    };
    bool ok = true;
    while (*sql != '\0' && ok) {
        const char *colon = strchr(sql, ':');
        const size_t plain = colon == NULL ? strlen(sql) : (size_t)(colon - sql);
        ok = weir__buffer_add(out, sql, plain);
        sql += plain;
        size_t i = 0;
        const size_t count = sizeof words / sizeof words[0];
        while (colon != NULL && i < count &&
               strncmp(sql, words[i].word, strlen(words[i].word)) != 0) {
            i++;
        }
        if (colon != NULL && i < count) {
            ok = ok && weir__buffer_add_text(out, words[i].text);
            sql += strlen(words[i].word);
        } else if (colon != NULL) { /* a cast */
            const size_t casts = strspn(sql, ":");
            ok = ok && weir__buffer_add(out, sql, casts);
            sql += casts;
        }
    }
    return ok;
}

static bool comment_add(weir_buffer *out, const postgres_lock *l, int64_t since_us)
{
    const lock_tag tag = { .since_us = since_us, .by = l->holder, .name = l->name };
    return weir__buffer_add_text(out, "/* weir lock ") && weir__lock_tag_add(out, &tag) &&
           weir__buffer_add_text(out, "*/ ");
}

static bool text_is(const PGresult *result, int row, int column, const char *text)
{
    return strcmp(pq.PQgetvalue(result, row, column), text) == 0;
}

static int64_t number_of(const PGresult *result, int row, int column)
{
    int64_t number = 0;
    (void)weir__str_to_i64(weir__str(pq.PQgetvalue(result, row, column)), &number);
    return number;
}

/* What reads only is known not to have happened. */
static weir_status server_ask(pg_conn *conn, const char *sql, const sql_words *w, PGresult **result,
                              weir_error *err)
{
    weir_buffer text = { 0 };
    weir_status status =
        sql_add(&text, sql, w) && weir__buffer_add(&text, "", 1)
            ? weir__pg_run_script_rows(conn, text.ptr, PG_ANSWER_US_DEFAULT, result, err)
            : no_memory(err);
    weir__buffer_free(&text);
    return status == WEIR_EUNKNOWN ? weir__pg_lost_nothing("looking for locks", err) : status;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* What has to be known of a server is asked together with the lock. */
static const pg_manner lock_manner = {
    .refusal = weir__pg_foreign_status,
    .cancels = true,
    .answer_us = PG_ANSWER_US_LONG,
};

/* url, db: outlive the connection. */
static weir_status session_connect(const store_url *url, pg_database *db, pg_conn *conn,
                                   const char *application, weir_error *err)
{
    pg_place at = { .host = "" };
    const char *extra[] = { "application_name", application, NULL, NULL, NULL, NULL, NULL };
    const weir_str direct = url->options.direct;
    if (direct.len > 0) {
        weir__pg_place_direct(direct, &at);
        size_t count = 2;
        extra[count++] = "host";
        extra[count++] = at.host;
        if (at.port[0] != '\0') {
            extra[count++] = "port";
            extra[count++] = at.port;
        }
    }
    weir_status status = weir__pg_url_database(db, &url->options, &lock_manner, NULL, err);
    if (status == WEIR_OK) {
        status = weir__pg_connect_first(db, conn, extra, err);
    }
    if (status == WEIR_OK && conn->server.version < PG_VERSION_LEAST) {
        weir__pg_disconnect(conn);
        return weir__fail(err, WEIR_EMISUSE, "PostgreSQL is version %d, needed is %d or later",
                          conn->server.version / 10000, PG_VERSION_LEAST / 10000);
    }
    return status;
}

/* ---- who has it ---------------------------------------------------------------------------- */

/* The columns of sql_lock_sessions. */
enum { S_KEY, S_GRANTED, S_PID, S_APPLICATION, S_QUERY, S_USER, S_SINCE };

/* Texts are in the arena. */
static bool session_read(const PGresult *result, int row, weir_arena *arena, lock_tag *tag)
{
    char text[256];
    if (!weir__lock_tag_read(weir__str(pq.PQgetvalue(result, row, S_QUERY)), arena, tag)) {
        return false;
    }
    if (tag->since_us == 0) {
        tag->since_us = number_of(result, row, S_SINCE);
    }
    if (tag->by.len == 0) {
        const char *user = pq.PQgetvalue(result, row, S_USER);
        (void)snprintf(text, sizeof text, "%s%sserver process %s (\"%s\")", user,
                       user[0] == '\0' ? "" : ", ", pq.PQgetvalue(result, row, S_PID),
                       pq.PQgetvalue(result, row, S_APPLICATION));
        tag->by =
            (weir_str){ .ptr = weir__arena_copy(arena, text, strlen(text)), .len = strlen(text) };
    }
    return tag->by.ptr != NULL;
}

/* EHELD with who it is. WEIR_OK: nobody has it any more. */
static weir_status say_holder(postgres_lock *l, weir_error *err)
{
    const sql_words words = { .key = l->key, .schema = "''", .all = "false" };
    PGresult *result = NULL;
    weir_arena arena = { 0 };
    lock_tag tag = { 0 };
    weir_status status = server_ask(&l->conn, sql_lock_sessions, &words, &result, err);
    if (status == WEIR_OK && pq.PQntuples(result) > 0 && text_is(result, 0, S_GRANTED, "t")) {
        status = session_read(result, 0, &arena, &tag)
                     ? weir__lock_fail_held(l->name, tag.by, tag.since_us, err)
                     : no_memory(err);
    }
    pq.PQclear(result);
    weir__arena_free(&arena);
    return status;
}

/* ---- a session ----------------------------------------------------------------------------- */

static int session_hold_fd(const named_lock *base)
{
    const postgres_lock *l = of_const(base);
    return l->conn.raw == NULL ? -1 : pq.PQsocket(l->conn.raw);
}

static weir_status connection_lost(postgres_lock *l, const char *why, weir_error *err)
{
    l->lost = true;
    return weir__lock_fail_lost(why, err);
}

/* The answer to the check, as far as it has come. */
static weir_status answer_take(postgres_lock *l, weir_error *err)
{
    bool held = false, refused = false;
    if (pq.PQflush(l->conn.raw) < 0 || pq.PQconsumeInput(l->conn.raw) != 1) {
        return connection_lost(l, "the connection to PostgreSQL broke", err);
    }
    while (pq.PQisBusy(l->conn.raw) == 0) {
        PGresult *result = pq.PQgetResult(l->conn.raw);
        if (result == NULL) {
            l->asking = false;
            break;
        }
        refused = refused || pq.PQresultStatus(result) != PGRES_TUPLES_OK;
        held = !refused && text_is(result, 0, 0, "t");
        pq.PQclear(result);
    }
    if (pq.PQstatus(l->conn.raw) != CONNECTION_OK || l->conn.ended) {
        return connection_lost(l, "PostgreSQL ended the session that had the lock", err);
    }
    if (l->asking) {
        return WEIR_OK;
    }
    if (!held && !refused) {
        return connection_lost(l, "the session that had the lock is another one now", err);
    }
    /* Refused: cancelled by somebody, say. That proves nothing, either way. */
    if (held && l->asked_us > l->base.known_us) {
        l->base.known_us = l->asked_us;
    }
    l->base.due_us = l->asked_us + l->base.check_us / LOCK_CHECKS;
    return WEIR_OK;
}

static weir_status session_watch(named_lock *base, int64_t now_us, weir_error *err)
{
    postgres_lock *l = lock_postgres_of(base);
    weir_status status = WEIR_OK;
    if (l->lost) {
        return weir__lock_fail_lost("the lock was lost before", err);
    }
    if (l->asking) {
        status = answer_take(l, err);
    } else if (!weir__pg_still_there(&l->conn)) {
        status = connection_lost(l, "PostgreSQL ended the session that had the lock", err);
    }
    if (status == WEIR_OK && !l->asking && now_us >= base->due_us) {
        l->asking = pq.PQsendQuery(l->conn.raw, l->check_sql) == 1;
        l->asked_us = now_us;
        if (!l->asking || pq.PQflush(l->conn.raw) < 0) {
            status = connection_lost(l, "the connection to PostgreSQL broke", err);
        }
    }
    if (status == WEIR_OK && now_us - base->known_us >= base->check_us) {
        status = connection_lost(l, "PostgreSQL has not answered for too long", err);
    }
    if (status == WEIR_OK && l->asking) {
        base->due_us = base->known_us + base->check_us; /* or when the answer comes */
    }
    return status;
}

static void lock_free(postgres_lock *l)
{
    weir__pg_disconnect(&l->conn);
    if (l->store != NULL) {
        l->store->about->close(l->store);
    }
    weir__free(l->check_sql);
    weir__url_free(&l->url);
    weir__free(l);
}

/* So that something else can be asked. */
static void answer_await(postgres_lock *l)
{
    const int64_t until_us = weir__clock_boot() + RETRY_US_MAX;
    while (l->asking && !l->lost && weir__clock_boot() < until_us) {
        struct pollfd fd = { .fd = pq.PQsocket(l->conn.raw), .events = POLLIN };
        (void)poll(&fd, 1, RETRY_US_MAX / 1000);
        (void)answer_take(l, NULL);
    }
}

static void session_release(named_lock *base)
{
    postgres_lock *l = lock_postgres_of(base);
    PGresult *result = NULL;
    answer_await(l);
    /* The note goes first: while the lock is ours nobody else has written one. */
    if (base->fence != 0 && !l->lost && !l->asking) {
        (void)weir__postgres_lock_release(&l->conn, l->schema, l->name, base->fence, base->token,
                                          NULL);
    }
    if (!l->lost && !l->asking &&
        weir__pg_run_text(&l->conn, sql_lock_end, NULL, RETRY_US_MAX, &result, NULL) == WEIR_OK) {
        pq.PQclear(result);
    }
    lock_free(l);
}

static const lock_ops session_ops = { .hold_fd = session_hold_fd,
                                      .poll_fd = session_hold_fd,
                                      .watch = session_watch,
                                      .release = session_release };

/* The statements that take the lock, in one round trip. */
static bool acquire_sql(const postgres_lock *l, const lock_request *q, weir_buffer *sql)
{
    char *schema = pq.PQescapeLiteral(l->conn.raw, l->schema, strlen(l->schema));
    const int64_t wait_ms = q->wait_us > 0 ? q->wait_us / 1000 + 1 : 0;
    const sql_words words = {
        .key = l->key,
        .pid = pq.PQbackendPID(l->conn.raw),
        .wait_ms = wait_ms > INT32_MAX ? INT32_MAX : wait_ms,
        .idle_s = (l->base.check_us + l->base.grace_us) / 1000000 + 1,
        .schema = schema,
        .all = "false",
    };
    const bool ok = schema != NULL && comment_add(sql, l, 0) &&
                    sql_add(sql, sql_lock_begin, &words) && sql_add(sql, sql_lock_setup, &words) &&
                    sql_add(sql, q->wait_us == 0 ? sql_lock_try : sql_lock_wait, &words) &&
                    sql_add(sql, sql_lock_acquired, &words) &&
                    sql_add(sql, sql_lock_commit, &words) && weir__buffer_add(sql, "", 1);
    pq.PQfreemem(schema);
    return ok;
}

/* What a connection found out about itself, beside the lock. */
static weir_status answer_judge(postgres_lock *l, const PGresult *result, weir_error *err)
{
    l->conn.server.pooled = !text_is(result, 0, 3, "t");
    l->conn.server.standby = text_is(result, 0, 4, "t");
    if (l->conn.server.standby) {
        (void)weir__fail(err, WEIR_EMISUSE, "this server is a standby: its locks are its own");
        weir__error_detail(err, "Name the primary, or all hosts with "
                                "target_session_attrs=read-write.");
        return WEIR_EMISUSE;
    }
    return l->conn.server.pooled || text_is(result, 0, 0, "true")
               ? WEIR_OK
               : weir__fail(err, WEIR_EHELD, "somebody else holds it");
}

/* EHELD: it was not to be had; the message may say nothing yet. WEIR_OK with server.pooled: nothing
 * was taken. */
static weir_status session_try(postgres_lock *l, const lock_request *q, bool *initialised,
                               int64_t *since_us, weir_error *err)
{
    weir_buffer sql = { 0 };
    PGresult *result = NULL;
    const int64_t wait_us = q->wait_us < 0 ? INT64_MAX : q->wait_us + PG_ANSWER_US_DEFAULT;
    weir_status status = acquire_sql(l, q, &sql)
                             ? weir__pg_run_script_rows(&l->conn, sql.ptr, wait_us, &result, err)
                             : no_memory(err);
    weir__buffer_free(&sql);
    if (status == WEIR_OK) {
        status = answer_judge(l, result, err);
        *initialised = text_is(result, 0, 1, "t");
        *since_us = number_of(result, 0, 2);
    } else if (status == WEIR_EUNKNOWN) {
        /* The session is gone, and whatever it had. */
        status = weir__wrap(err, WEIR_EUNAVAILABLE, "could not take the lock");
    }
    if (status == WEIR_EHELD && pq.PQtransactionStatus(l->conn.raw) != PQTRANS_IDLE) {
        /* The wait was over: what was begun is still open. */
        (void)weir__pg_run_script(&l->conn, "ROLLBACK", PG_ANSWER_US_DEFAULT, NULL);
    }
    pq.PQclear(result);
    return status;
}

static bool check_prepare(postgres_lock *l, int64_t since_us)
{
    const sql_words words = { .key = l->key, .schema = "''", .all = "false" };
    weir_buffer sql = { 0 };
    if (!comment_add(&sql, l, since_us) || !sql_add(&sql, sql_lock_check, &words) ||
        !weir__buffer_add(&sql, "", 1)) {
        weir__buffer_free(&sql);
        return false;
    }
    l->check_sql = sql.ptr; /* moved */
    return true;
}

/* How long to pause before the next look at a lease of somebody else's; -1: time is up. */
static int64_t retry_pause(const lock_request *q, int64_t start_us, int64_t *pause_us)
{
    const int64_t waited_us = weir__clock_boot() - start_us;
    const int64_t left_us = q->wait_us < 0 ? INT64_MAX : q->wait_us - waited_us;
    if (left_us <= 0) {
        return -1;
    }
    const int64_t next_us = *pause_us / 2 + (int64_t)(weir__random_u64() % (uint64_t)*pause_us);
    *pause_us = weir__lock_least(2 * *pause_us, RETRY_US_MAX);
    return weir__lock_least(left_us, next_us);
}

/* In an initialised store each acquisition has a fence, and a lease of somebody behind a pooler
 * counts: it is waited for with the advisory lock in hand, which keeps new leases away. */
static weir_status session_fence(postgres_lock *l, const lock_request *q, int64_t start_us,
                                 weir_error *err)
{
    weir_arena arena = { 0 };
    store_lock taken = { 0 };
    int64_t pause_us = RETRY_US_FIRST, next_us = 0;
    weir_status status;
    do {
        weir__clock_pause(next_us);
        weir__arena_reset(&arena);
        status =
            weir__postgres_lock_take(&l->conn, l->schema, l->name, l->holder, &arena, &taken, err);
        next_us = status == WEIR_EHELD ? retry_pause(q, start_us, &pause_us) : -1;
    } while (next_us >= 0);
    if (status == WEIR_OK) {
        l->base.fence = taken.fence;
        l->base.token = taken.token;
    } else if (strcmp(l->conn.sqlstate, "42501") == 0) {
        weir__error_detail(err, "The role lacks a right in the store: see weir init --grant.");
    }
    weir__arena_free(&arena);
    return status == WEIR_EUNKNOWN ? weir__wrap(err, WEIR_EUNAVAILABLE, "could not take a fence")
                                   : status;
}

static weir_status session_acquire(postgres_lock *l, const lock_request *q, weir_error *err)
{
    bool initialised = false;
    const int64_t start_us = weir__clock_boot();
    int64_t since_us = 0, now_us = 0;
    weir_status status = WEIR_EHELD;
    for (int look = 0; look < LOOKS_MAX && status == WEIR_EHELD; look++) {
        now_us = weir__clock_boot();
        status = session_try(l, q, &initialised, &since_us, err);
        if (status == WEIR_EHELD && l->conn.raw != NULL) {
            status = say_holder(l, err);
            if (status == WEIR_EHELD) {
                return status;
            }
            status = status == WEIR_OK ? WEIR_EHELD : status;
        }
    }
    if (status == WEIR_EHELD) {
        return weir__lock_fail_held(l->name, weir__str("several, one after the other"), 0, err);
    }
    if (status == WEIR_OK && l->conn.server.pooled) {
        return WEIR_OK; /* it has to be a lease */
    }
    if (status == WEIR_OK && initialised) {
        status = session_fence(l, q, start_us, err);
    }
    if (status == WEIR_OK && !check_prepare(l, since_us)) {
        status = no_memory(err);
    }
    if (status == WEIR_OK) {
        l->base.ops = &session_ops;
        l->base.kind = LOCK_SESSION;
        /* An answer is never older than its question, but one that was waited for is. */
        const bool waited = q->wait_us != 0;
        l->base.known_us = waited ? weir__clock_boot() : now_us;
        /* The next statement says since when, for others: at once when the last one does not. */
        l->base.due_us =
            waited || initialised ? l->base.known_us : now_us + l->base.check_us / LOCK_CHECKS;
    }
    return status;
}

/* ---- a lease ------------------------------------------------------------------------------- */

static int lease_fd(const named_lock *base)
{
    (void)base;
    return -1;
}

static int64_t lease_us(const postgres_lock *l)
{
    return l->base.check_us + l->base.grace_us + LOCK_MARGIN_US;
}

static weir_status lease_watch(named_lock *base, int64_t now_us, weir_error *err)
{
    postgres_lock *l = lock_postgres_of(base);
    weir_status status = WEIR_OK;
    if (now_us >= base->due_us) {
        status = l->store->locks->extend(l->store, STORE_LOCK, l->name, base->fence, base->token,
                                         lease_us(l), err);
        if (status == WEIR_OK) {
            base->known_us = now_us;
        }
        if (status != WEIR_ELOST) { /* the server may come back before the lease has ended */
            status = WEIR_OK;
        }
        base->due_us = now_us + base->check_us / LOCK_CHECKS;
    }
    if (status == WEIR_OK && weir__clock_boot() - base->known_us >= base->check_us) {
        status = weir__wrap(err, WEIR_ELOST, "the lease could not be renewed");
    }
    return status;
}

static void lease_release(named_lock *base)
{
    postgres_lock *l = lock_postgres_of(base);
    (void)l->store->locks->release(l->store, l->name, base->fence, base->token, NULL);
    lock_free(l);
}

static const lock_ops lease_ops = {
    .hold_fd = lease_fd, .poll_fd = lease_fd, .watch = lease_watch, .release = lease_release
};

/* No session has the name at this moment. */
static weir_status no_session(postgres_lock *l, bool *none, weir_error *err)
{
    const sql_words words = { .key = l->key, .schema = "''", .all = "false" };
    PGresult *result = NULL;
    const weir_status status = server_ask(&l->conn, sql_lock_free, &words, &result, err);
    *none = status == WEIR_OK && text_is(result, 0, 0, "t");
    pq.PQclear(result);
    return status;
}

/* One attempt. EHELD. */
static weir_status lease_try(postgres_lock *l, bool *stepped_back, weir_error *err)
{
    weir_arena arena = { 0 };
    store_lock taken = { 0 };
    bool none = false;
    *stepped_back = false;
    weir_status status = no_session(l, &none, err); /* or its note would be written over */
    if (status == WEIR_OK && !none) {
        status = say_holder(l, err);
        return status == WEIR_OK ? weir__lock_fail_held(l->name, weir__str("a session"), 0, err)
                                 : status;
    }
    const int64_t now_us = weir__clock_boot();
    if (status == WEIR_OK) {
        status = l->store->locks->take(
            l->store, &(store_lock_request){ STORE_LOCK, l->name, l->holder, lease_us(l) }, &arena,
            &taken, err);
    }
    weir__arena_free(&arena);
    if (status != WEIR_OK) {
        return status;
    }
    status = no_session(l, &none, err);
    if (status != WEIR_OK || !none) {
        (void)l->store->locks->release(l->store, l->name, taken.fence, taken.token, NULL);
        *stepped_back = status == WEIR_OK;
        return status != WEIR_OK ? status
                                 : weir__lock_fail_held(
                                       l->name, weir__str("a session that came just now"), 0, err);
    }
    l->base.fence = taken.fence;
    l->base.token = taken.token;
    l->base.known_us = now_us;
    l->base.due_us = now_us + l->base.check_us / LOCK_CHECKS;
    return WEIR_OK;
}

static weir_status lease_wait(postgres_lock *l, const lock_request *q, weir_error *err)
{
    const int64_t start_us = weir__clock_boot();
    int64_t pause_us = RETRY_US_FIRST;
    int steps_back = 0;
    for (;;) {
        bool stepped_back = false;
        const weir_status status = lease_try(l, &stepped_back, err);
        if (status != WEIR_EHELD) {
            return status;
        }
        if (stepped_back && steps_back++ < STEPS_BACK_MAX) {
            weir__clock_pause((int64_t)(weir__random_u64() % STEP_BACK_US));
            continue;
        }
        const int64_t next_us = retry_pause(q, start_us, &pause_us);
        if (next_us < 0) {
            return status;
        }
        weir__clock_pause(next_us);
    }
}

static weir_status lease_acquire(postgres_lock *l, const lock_request *q, weir_error *err)
{
    char note[128];
    store_url url = l->url; /* borrows */
    /* An attempt that fails within the time between two checks is repeated at the next. */
    url.options.busy_us = weir__lock_least(url.options.busy_us, l->base.check_us / LOCK_CHECKS);
    url.options.answer_us =
        weir__lock_least(url.options.answer_us == 0 ? PG_ANSWER_US_DEFAULT : url.options.answer_us,
                         l->base.check_us / LOCK_CHECKS);
    weir_status status = weir__lock_store(&url, WEIR_OPEN_EXISTING, &l->store, err);
    if (status == WEIR_OK && l->store == NULL) {
        (void)weir__fail(err, WEIR_ENOTFOUND,
                         "there is a pooler in between, and no store for a lease: run weir init");
        weir__error_detail(err, "A session's lock does not hold behind a pooler. Or name the "
                                "server itself: ?direct=HOST:PORT.");
        return WEIR_ENOTFOUND;
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (q->note_cb != NULL) {
        (void)snprintf(
            note, sizeof note,
            "there is a pooler in between: the lock is a lease of %lld ms, renewed while "
            "the program runs",
            (long long)(lease_us(l) / 1000));
        q->note_cb(q->note_ctx, note);
    }
    status = lease_wait(l, q, err);
    if (status == WEIR_OK) {
        l->base.ops = &lease_ops;
        l->base.kind = LOCK_LEASE;
    }
    return status;
}

/* ---- acquiring ----------------------------------------------------------------------------- */

static weir_status text_copy(weir_arena *arena, weir_str text, weir_str *out, weir_error *err)
{
    out->ptr = weir__arena_copy(arena, text.ptr, text.len);
    out->len = text.len;
    return out->ptr == NULL ? no_memory(err) : WEIR_OK;
}

weir_status weir__lock_postgres(named_lock **out, store_url *url, const lock_request *q,
                                weir_error *err)
{
    char application[APPLICATION_BYTES];
    postgres_lock *l = weir__calloc(1, sizeof *l);
    if (l == NULL) {
        return no_memory(err);
    }
    l->base.check_us = q->check_us;
    l->base.grace_us = q->grace_us;
    l->url = *url;
    *url = (store_url){ 0 }; /* moved */
    l->key = weir__lock_key(l->url.options.schema, q->name);
    weir_status status = text_copy(&l->url.memory, q->name, &l->name, err);
    if (status == WEIR_OK) {
        status = text_copy(&l->url.memory, q->holder, &l->holder, err);
    }
    if (status == WEIR_OK) {
        l->schema = weir__pg_url_schema_quoted(&l->url.options, &l->url.memory);
        status = l->schema == NULL ? no_memory(err) : WEIR_OK;
    }
    if (status == WEIR_OK) {
        (void)snprintf(application, sizeof application, "weir lock %.*s", (int)q->name.len,
                       q->name.ptr);
        status = session_connect(&l->url, &l->database, &l->conn, application, err);
    }
    if (status == WEIR_OK) {
        status = session_acquire(l, q, err);
    }
    if (status == WEIR_OK && l->conn.server.pooled) {
        status = lease_acquire(l, q, err);
    }
    if (status != WEIR_OK) {
        lock_free(l);
        return status;
    }
    *out = &l->base;
    return WEIR_OK;
}

/* ---- who holds what ------------------------------------------------------------------------ */

/* The name: from the tag, if the number is that of the name (a tag may be somebody else's text), or
 * from a note of the store. */
static weir_str name_of(weir_str schema, int64_t key, weir_str tagged, const store_lock_list *notes)
{
    if (tagged.len > 0 && weir__lock_key(schema, tagged) == key) {
        return tagged;
    }
    for (size_t i = 0; i < notes->locks_count; i++) {
        if (weir__lock_key(schema, notes->locks[i].name) == key) {
            return notes->locks[i].name;
        }
    }
    return (weir_str){ 0 };
}

static weir_status sessions_add(const PGresult *result, weir_str schema,
                                const store_lock_list *notes, lock_list *list, size_t *capacity,
                                weir_error *err)
{
    weir_status status = WEIR_OK;
    for (int row = 0; row < pq.PQntuples(result) && status == WEIR_OK; row++) {
        lock_tag tag = { 0 };
        if (!session_read(result, row, &list->arena, &tag)) {
            return no_memory(err);
        }
        const bool waiting = !text_is(result, row, S_GRANTED, "t");
        const int64_t key = number_of(result, row, S_KEY);
        const weir_str name = name_of(schema, key, tag.name, notes);
        if (tag.name.len > 0 && name.ptr == NULL) {
            continue; /* a lock of another store in this database */
        }
        const lock_row found = {
            .name = name,
            .holder = tag.by,
            .kind = LOCK_SESSION,
            .waiting = waiting,
            .since_us = waiting ? number_of(result, row, S_SINCE) : tag.since_us,
        };
        status = weir__lock_list_add(list, capacity, &found, err);
    }
    return status;
}

weir_status weir__lock_postgres_list(const store_url *url, lock_list *list, weir_error *err)
{
    const sql_words words = { .schema = "''", .all = "true" };
    pg_database database;
    weir_store *store = NULL;
    pg_conn conn = { 0 };
    PGresult *result = NULL;
    store_lock_list notes = { 0 };
    size_t capacity = 0;
    weir_status status = session_connect(url, &database, &conn, "weir locks", err);
    if (status != WEIR_OK) {
        return status; /* there may be no libpq to clear anything with */
    }
    status = server_ask(&conn, sql_lock_sessions, &words, &result, err);
    if (status == WEIR_OK) {
        status = weir__lock_store(url, WEIR_OPEN_READONLY, &store, err);
    }
    if (status == WEIR_OK && store != NULL) {
        status = store->locks->list(store, &notes, err);
    }
    if (status == WEIR_OK) {
        status = sessions_add(result, url->options.schema, &notes, list, &capacity, err);
    }
    if (status == WEIR_OK && store != NULL) {
        status = weir__lock_list_store(list, &capacity, store, true, err);
    }
    pq.PQclear(result);
    weir__arena_free(&notes.arena);
    weir__pg_disconnect(&conn);
    if (store != NULL) {
        store->about->close(store);
    }
    return status;
}
