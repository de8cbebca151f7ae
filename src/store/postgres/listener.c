/* listener.c - see listener.h. */
#include "store/postgres/listener.h"

#include "base/assert.h"
#include "base/random.h"
#include "base/sha256.h"
#include "store/postgres/listener_sql.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATEMENT_BYTES = 512 };
#define TEST_US INT64_C(2000000) /* a notification that has not come by then does not come */

static void why_set(pg_listener *l, const char *text)
{
    size_t len = 0;
    for (; *text != '\0' && len + 1 < sizeof l->why; text++) {
        l->why[len++] = *text == '\n' || *text == '\t' ? ' ' : *text;
    }
    while (len > 0 && l->why[len - 1] == ' ') {
        len--;
    }
    l->why[len] = '\0';
}

void weir__pg_listener_init(pg_listener *l, pg_store *s)
{
    weir_sha256 hash;
    uint8_t digest[WEIR_SHA256_BYTES];
    char number[16];
    memset(l, 0, sizeof *l);
    l->store = s;
    l->due_us = INT64_MAX;
    l->hosts = 1;
    /* A channel belongs to the database, so a store's own name is in it. The number alone would do,
     * were it not for copies of a schema in the same database. */
    (void)snprintf(number, sizeof number, "%" PRId32, s->number);
    weir__sha256_init(&hash);
    weir__sha256_add(&hash, s->schema_name, strlen(s->schema_name) + 1);
    weir__sha256_add(&hash, number, strlen(number));
    weir__sha256_end(&hash, digest);
    (void)snprintf(l->channel, sizeof l->channel, "weir_%02x%02x%02x%02x%02x%02x%02x%02x",
                   digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
                   digest[7]);
    (void)snprintf(l->test_channel, sizeof l->test_channel, "weir_test_%016" PRIx64,
                   weir__random_u64());
}

void weir__pg_listener_close(pg_listener *l)
{
    if (l->raw != NULL) {
        pq.PQfinish(l->raw);
    }
    l->raw = NULL;
    l->state = LISTENER_DOWN;
    l->asking = false;
    l->notifying = false;
    l->heard = false;
    l->due_us = INT64_MAX;
}

static uint32_t listener_lost(pg_listener *l, const char *what)
{
    const char *said = l->raw == NULL ? "" : pq.PQerrorMessage(l->raw);
    why_set(l, said[0] != '\0' ? said : what);
    weir__pg_listener_close(l);
    return LISTENER_TOLD_LOST;
}

static uint32_t listener_deaf(pg_listener *l, const char *why)
{
    why_set(l, why);
    weir__pg_listener_close(l);
    return LISTENER_TOLD_DEAF;
}

/* ---- connecting --------------------------------------------------------------------------- */

/* Of several hosts one at a time: libpq tries all of them by itself, but when connecting does not
 * block it waits for a host that does not answer for ever. */
static void place_next(pg_listener *l, PQconninfoOption *parsed, pg_place *out)
{
    const char *host = NULL, *hostaddr = NULL, *port = NULL;
    memset(out, 0, sizeof *out);
    for (PQconninfoOption *o = parsed; o->keyword != NULL; o++) {
        host = strcmp(o->keyword, "host") == 0 ? o->val : host;
        hostaddr = strcmp(o->keyword, "hostaddr") == 0 ? o->val : hostaddr;
        port = strcmp(o->keyword, "port") == 0 ? o->val : port;
    }
    if (l->store->options.direct.len > 0) {
        weir__pg_place_direct(l->store->options.direct, out);
        return;
    }
    const char *list = hostaddr != NULL ? hostaddr : host;
    l->hosts = list == NULL ? 1 : weir__pg_list_count(list);
    const size_t index = l->host % l->hosts;
    if (l->hosts > 1) {
        if (host != NULL) {
            (void)weir__pg_list_part(host, index, out->host, sizeof out->host);
        }
        if (hostaddr != NULL) {
            (void)weir__pg_list_part(hostaddr, index, out->hostaddr, sizeof out->hostaddr);
        }
        if (port != NULL) {
            (void)weir__pg_list_part(port, index, out->port, sizeof out->port);
        }
    }
}

typedef struct connection_words {
    const char *names[64], *values[64];
    size_t count;
} connection_words;

static void word_add(connection_words *w, const char *name, const char *value)
{
    if (w->count + 1 < sizeof w->names / sizeof w->names[0]) {
        w->names[w->count] = name;
        w->values[w->count++] = value;
    }
}

/* The URL's words, with this one place in place of the URL's. */
static PGconn *connection_start(pg_listener *l, PQconninfoOption *parsed)
{
    connection_words w = { .count = 0 };
    pg_place at;
    place_next(l, parsed, &at);
    const bool placed = at.host[0] != '\0' || at.hostaddr[0] != '\0' || at.port[0] != '\0';
    word_add(&w, "keepalives_idle", "10");
    word_add(&w, "keepalives_interval", "3");
    word_add(&w, "keepalives_count", "3");
    word_add(&w, "tcp_user_timeout", "9000");
    for (PQconninfoOption *o = parsed; o->keyword != NULL; o++) {
        const bool place_word = strcmp(o->keyword, "host") == 0 ||
                                strcmp(o->keyword, "hostaddr") == 0 ||
                                strcmp(o->keyword, "port") == 0;
        if (o->val != NULL && !(placed && place_word)) {
            word_add(&w, o->keyword, o->val);
        }
    }
    /* libpq passes over words without a value. */
    word_add(&w, "host", at.host);
    word_add(&w, "hostaddr", at.hostaddr);
    word_add(&w, "port", at.port);
    word_add(&w, "fallback_application_name", l->store->options.application);
    word_add(&w, "client_encoding", "UTF8");
    return pq.PQconnectStartParams(w.names, w.values, 0);
}

/* libpq would print them. What matters of them comes again as an error. */
static void notice_ignore(void *ctx, const PGresult *notice)
{
    (void)ctx;
    (void)notice;
}

uint32_t weir__pg_listener_begin(pg_listener *l, int64_t now_us)
{
    char *message = NULL;
    WEIR_ASSERT(l->state == LISTENER_DOWN);
    PQconninfoOption *parsed = pq.PQconninfoParse(l->store->options.path.ptr, &message);
    if (parsed == NULL) {
        why_set(l, message == NULL ? "out of memory" : message);
        pq.PQfreemem(message);
        return LISTENER_TOLD_LOST;
    }
    l->raw = connection_start(l, parsed);
    pq.PQconninfoFree(parsed);
    l->host++;
    if (l->raw == NULL || pq.PQstatus(l->raw) == CONNECTION_BAD) {
        return listener_lost(l, "out of memory");
    }
    (void)pq.PQsetNoticeReceiver(l->raw, notice_ignore, NULL);
    l->state = LISTENER_CONNECTING;
    l->events = POLLOUT;
    l->due_us = now_us + LISTENER_CONNECT_US;
    return 0;
}

int weir__pg_listener_fd(const pg_listener *l)
{
    return l->raw == NULL ? -1 : pq.PQsocket(l->raw);
}

/* ---- statements --------------------------------------------------------------------------- */

/* false: lost, which the caller tells. channel: the statement's parameter; NULL: it has none. */
static bool listener_ask(pg_listener *l, const char *sql, const char *channel, int64_t now_us)
{
    WEIR_ASSERT(!l->asking);
    const int sent = channel == NULL
                         ? pq.PQsendQuery(l->raw, sql)
                         : pq.PQsendQueryParams(l->raw, sql, 1, NULL, &channel, NULL, NULL, 0);
    if (sent != 1) {
        return false;
    }
    const int unsent = pq.PQflush(l->raw);
    l->asking = true;
    l->events = (short)(POLLIN | (unsent > 0 ? POLLOUT : 0));
    l->due_us = now_us + LISTENER_ANSWER_US;
    return unsent >= 0;
}

bool weir__pg_listener_notify(pg_listener *l, bool look, int64_t now_us)
{
    if (l->state != LISTENER_READY || l->asking) {
        return false;
    }
    if (!listener_ask(l, look ? sql_listener_notify_others : sql_listener_notify, l->channel,
                      now_us)) {
        l->due_us = now_us; /* the next step finds it lost */
        return false;
    }
    l->notifying = true;
    l->looking = look;
    return true;
}

/* Statements with the name of a channel in them; what step tells of it. */
static uint32_t listener_say(pg_listener *l, const char *sql, const char *channel, int64_t now_us)
{
    static const char place[] = "weir_channel";
    char text[STATEMENT_BYTES];
    size_t used = 0;
    while (*sql != '\0') {
        const bool here = strncmp(sql, place, sizeof place - 1) == 0;
        const char *piece = here ? channel : sql;
        const size_t len = here ? strlen(channel) : 1;
        WEIR_ASSERT(used + len < sizeof text);
        memcpy(text + used, piece, len);
        used += len;
        sql += here ? sizeof place - 1 : 1;
    }
    text[used] = '\0';
    return listener_ask(l, text, NULL, now_us) ? 0 : listener_lost(l, "the connection broke");
}

static uint32_t listener_greet(pg_listener *l, int64_t now_us)
{
    if (pq.PQsetnonblocking(l->raw, 1) != 0) {
        return listener_lost(l, "out of memory");
    }
    l->state = LISTENER_GREETING;
    return listener_say(l, sql_listener_greet, l->test_channel, now_us);
}

/* The server itself can be asked to notify us on this connection; with a pooler in between only a
 * notification by somebody else shows whether one arrives between two statements. */
static uint32_t listener_test(pg_listener *l, int64_t now_us)
{
    l->state = LISTENER_TESTING;
    if (l->process != pq.PQbackendPID(l->raw)) {
        l->due_us = now_us + TEST_US;
        return LISTENER_TOLD_TEST;
    }
    return listener_ask(l, sql_listener_notify, l->test_channel, now_us)
               ? 0
               : listener_lost(l, "the connection broke");
}

static uint32_t listener_join(pg_listener *l, int64_t now_us)
{
    l->state = LISTENER_JOINING;
    return listener_say(l, sql_listener_join, l->channel, now_us);
}

bool weir__pg_listener_alone(const PGresult *result)
{
    return pq.PQresultStatus(result) == PGRES_TUPLES_OK && pq.PQntuples(result) == 0;
}

/* A result of the greeting that is not an error. */
static void listener_greeted(pg_listener *l, const PGresult *result, bool *standby)
{
    if (pq.PQresultStatus(result) == PGRES_TUPLES_OK && pq.PQntuples(result) == 1) {
        l->process = (int32_t)strtol(pq.PQgetvalue(result, 0, 0), NULL, 10);
        *standby = pq.PQgetvalue(result, 0, 1)[0] == 't';
    }
}

/* The answer to what was asked is complete. */
static uint32_t listener_answered(pg_listener *l, int64_t now_us)
{
    bool failed = false, standby = false, alone = false;
    PGresult *result;
    while (pq.PQisBusy(l->raw) == 0 && (result = pq.PQgetResult(l->raw)) != NULL) {
        if (pq.PQresultStatus(result) == PGRES_FATAL_ERROR) {
            const char *message = pq.PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
            why_set(l, message == NULL ? "the connection broke" : message);
            failed = true;
        } else if (l->state == LISTENER_GREETING) {
            listener_greeted(l, result, &standby);
        } else if (l->notifying) {
            alone = weir__pg_listener_alone(result);
        }
        pq.PQclear(result);
    }
    if (pq.PQisBusy(l->raw) != 0) {
        return 0; /* several statements: the last one is still to be answered */
    }
    l->asking = false;
    l->events = POLLIN;
    l->due_us = now_us + LISTENER_QUIET_US;
    if (standby) {
        /* Nobody can listen on a standby. With several hosts the next one may be the primary. */
        return l->hosts > 1
                   ? listener_lost(l, "this host is a standby")
                   : listener_deaf(l, "the server is a standby, which nobody can listen on");
    }
    if (failed) {
        char kept[sizeof l->why];
        (void)snprintf(kept, sizeof kept, "%s", l->why);
        weir__pg_listener_close(l);
        why_set(l, kept);
        return LISTENER_TOLD_LOST;
    }
    if (l->notifying) {
        l->notifying = false;
        return !l->looking ? 0 : alone ? LISTENER_TOLD_ALONE : LISTENER_TOLD_OTHERS;
    }
    switch (l->state) {
    case LISTENER_GREETING:
        return listener_test(l, now_us);
    case LISTENER_TESTING:
        l->due_us = now_us + TEST_US;
        return 0;
    case LISTENER_JOINING:
        l->state = LISTENER_READY;
        return LISTENER_TOLD_READY;
    case LISTENER_READY:
    case LISTENER_DOWN:
    case LISTENER_CONNECTING:
        break;
    }
    return 0;
}

/* Notifications that have come. Our own are not told: whoever sent them has woken the watches of
 * this handle already. */
static uint32_t listener_hear(pg_listener *l)
{
    uint32_t told = 0;
    PGnotify *n;
    while ((n = pq.PQnotifies(l->raw)) != NULL) {
        if (strcmp(n->relname, l->test_channel) == 0) {
            l->heard = true;
        } else if (strcmp(n->relname, l->channel) == 0 && n->be_pid != l->process) {
            told |= n->extra[0] == '\0' ? LISTENER_TOLD_WAKE : LISTENER_TOLD_OTHERS;
        }
        pq.PQfreemem(n);
    }
    return told;
}

/* ---- steps -------------------------------------------------------------------------------- */

static uint32_t listener_connecting(pg_listener *l, int64_t now_us)
{
    switch (pq.PQconnectPoll(l->raw)) {
    case PGRES_POLLING_READING:
        l->events = POLLIN;
        return 0;
    case PGRES_POLLING_WRITING:
        l->events = POLLOUT;
        return 0;
    case PGRES_POLLING_OK:
        return listener_greet(l, now_us);
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE:
        break;
    }
    return listener_lost(l, "could not connect");
}

/* due_us has come. */
static uint32_t listener_overdue(pg_listener *l, int64_t now_us)
{
    if (l->state == LISTENER_CONNECTING) {
        return listener_lost(l, "the server did not answer when connecting");
    }
    if (l->asking) {
        const bool ready = l->state == LISTENER_READY;
        return listener_lost(l, "the server did not answer") | (ready ? LISTENER_TOLD_SILENT : 0);
    }
    if (l->state == LISTENER_TESTING) {
        /* What a pooler's connection listens to, it would go on listening to; this reaches it when
         * the pooler happens to give us the same one, as it mostly does. */
        (void)pq.PQsendQuery(l->raw, sql_listener_leave);
        (void)pq.PQflush(l->raw);
        return listener_deaf(
            l, "a pooler in between does not pass notifications on; add direct=HOST:PORT "
               "to the store URL");
    }
    return listener_ask(l, sql_listener_alive, NULL, now_us)
               ? 0
               : listener_lost(l, "the connection broke");
}

uint32_t weir__pg_listener_step(pg_listener *l, int64_t now_us)
{
    uint32_t told = 0;
    if (l->state == LISTENER_DOWN) {
        return 0;
    }
    if (l->state == LISTENER_CONNECTING) {
        return now_us >= l->due_us ? listener_overdue(l, now_us) : listener_connecting(l, now_us);
    }
    const int unsent = pq.PQflush(l->raw);
    if (unsent < 0 || pq.PQconsumeInput(l->raw) != 1) {
        return listener_lost(l, "the connection broke");
    }
    l->events = (short)(POLLIN | (unsent > 0 ? POLLOUT : 0));
    told |= listener_hear(l);
    if (l->asking && pq.PQisBusy(l->raw) == 0) {
        told |= listener_answered(l, now_us);
    } else if (!l->asking && pq.PQstatus(l->raw) == CONNECTION_BAD) {
        return told | listener_lost(l, "the connection broke");
    }
    if (l->raw != NULL) {
        told |= listener_hear(l); /* what came with the answer */
    }
    if (l->state == LISTENER_TESTING && l->heard && !l->asking) {
        l->heard = false;
        told |= listener_join(l, now_us);
    }
    if (l->state != LISTENER_DOWN && now_us >= l->due_us) {
        told |= listener_overdue(l, now_us);
    }
    return told;
}
