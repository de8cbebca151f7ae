/* connect.c - making a connection to PostgreSQL: the hosts of the URL one after the other, then
 * asking what kind of server it is.
 *
 * libpq's own PQconnectdbParams is not used. What a server says while it is connecting would go to
 * stderr, raw: the receiver of notices can be set on a connection only when there is one. So a
 * connection is started, gets its receiver, and is waited for here.
 *
 *     start --> poll --+--> connected --> hello
 *       ^              |
 *       |              +--> failed: libpq has tried all hosts
 *       |              |
 *       |              +--> connect_timeout has passed for one address
 *       |                     it does not take connections: libpq goes on with the next address
 *       +---------------------it took ours and is silent: again, without that host
 *
 * INVARIANTS
 *   (1) Nothing is written to stderr.
 *   (2) Bounded by connect_timeout for each address of each host, and by the system's own time for
 *       looking up a name, which libpq cannot bound.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "pg/connect_sql.h"
#include "pg/pg.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    PARAMETERS_MAX = 24,
    HOSTS_BYTES = 2048, /* of a list of hosts */
    PLACE_BYTES = 1024, /* host, address and port of one */
    POLL_MS_MAX = 60 * 1000,
    MESSAGE_BYTES = 400,
};

/* ---- notices ------------------------------------------------------------------------------- */

/* A commit that should have waited for a standby and did not is durable here, but perhaps not
 * there. It is recognised by the place in the server's source: the text may be in any language. */
static void notice_receive(void *ctx, const PGresult *notice)
{
    pg_conn *conn = ctx;
    if (strcmp(weir__pg_field(notice, PG_DIAG_SOURCE_FUNCTION), "SyncRepWaitForLSN") == 0) {
        conn->unsynced = true;
    }
    /* An error that comes while no statement is running ends the session. A server that is stopped
     * immediately says it in a warning (57P01, 57P02). */
    if (weir__pg_is_fatal(notice) ||
        strncmp(weir__pg_field(notice, PG_DIAG_SQLSTATE), "57P", 3) == 0) {
        conn->ended = true;
        weir__pg_one_line(weir__pg_field(notice, PG_DIAG_MESSAGE_PRIMARY), conn->farewell,
                          sizeof conn->farewell);
    }
}

/* ---- the server --------------------------------------------------------------------------- */

static weir_status read_committed(pg_conn *conn, weir_error *err)
{
    PGresult *result = NULL;
    if (conn->server.pooled) {
        return weir__fail(
            err, WEIR_EMISUSE,
            "default_transaction_isolation is not \"read committed\", and a pooler is "
            "in between; set it for the role: ALTER ROLE ... SET "
            "default_transaction_isolation = 'read committed'");
    }
    const weir_status status =
        weir__pg_run_text(conn, sql_connection_read_committed, NULL, 0, &result, err);
    pq.PQclear(result);
    return status;
}

/* Sets what has to be set, or keeps it for each transaction when sessions are not our own. */
static weir_status settings_take(pg_conn *conn, const PGresult *hello, weir_error *err)
{
    char session[PG_SETTINGS_BYTES];
    const weir_str once = weir__pg_text(hello, 0, 7);
    const weir_str each = weir__pg_text(hello, 0, 8);
    WEIR_ASSERT(once.len < sizeof session && each.len < sizeof conn->settings);
    conn->settings[0] = '\0';
    if (each.len == 0) {
        return WEIR_OK;
    }
    if (conn->server.pooled) {
        (void)snprintf(conn->settings, sizeof conn->settings, "%.*s", (int)each.len, each.ptr);
        return WEIR_OK;
    }
    (void)snprintf(session, sizeof session, "%.*s", (int)once.len, once.ptr);
    return weir__pg_run_script(conn, session, PG_ANSWER_US_DEFAULT, err);
}

/* What kind of server is this, and is there somebody in between? foreign: the database is somebody
 * else's. */
static weir_status server_ask(pg_conn *conn, bool foreign, weir_error *err)
{
    PGresult *result = NULL;
    pg_params params = { 0 };
    if (!foreign) {
        weir__pg_add_i32(&params, pq.PQbackendPID(conn->raw));
    }
    weir_status status =
        weir__pg_run_text(conn, foreign ? sql_connection_hello_foreign : sql_connection_hello,
                          &params, foreign ? PG_ANSWER_US_DEFAULT : 0, &result, err);
    weir__pg_params_free(&params);
    if (status != WEIR_OK) {
        return status;
    }
    conn->server = (pg_server){
        .pooled = weir__pg_i32(result, 0, 0) != pq.PQbackendPID(conn->raw),
        .standby = weir__pg_bool(result, 0, 1),
        .started_us = weir__pg_time_us(result, 0, 2),
        .system = weir__pg_i64(result, 0, 3),
        .version = weir__pg_i32(result, 0, 4),
    };
    const bool committed = weir__pg_bool(result, 0, 5);
    const bool utf8 = weir__pg_bool(result, 0, 6);
    if (foreign) {
        status = settings_take(conn, result, err);
    }
    pq.PQclear(result);
    if (status != WEIR_OK) {
        return status;
    }
    if (conn->server.version < PG_VERSION_LEAST) {
        return weir__fail(err, WEIR_EMISUSE, "PostgreSQL is version %d, needed is %d or later",
                          conn->server.version / 10000, PG_VERSION_LEAST / 10000);
    }
    if (!utf8) {
        return weir__fail(err, WEIR_EMISUSE,
                          "the database's encoding is %s; make another one: CREATE DATABASE "
                          "... ENCODING 'UTF8' TEMPLATE template0",
                          foreign ? "SQL_ASCII" : "not UTF8");
    }
    return committed ? WEIR_OK : read_committed(conn, err);
}

weir_status weir__pg_hello(pg_conn *conn, weir_error *err)
{
    return server_ask(conn, false, err);
}

static weir_status guest_hello(pg_conn *conn, weir_error *err)
{
    return server_ask(conn, true, err);
}

const pg_manner weir__pg_guest = {
    .hello = guest_hello,
    .refusal = weir__pg_foreign_status,
    .cancels = true,
    /* Whose statement it is knows how long it takes; a connection that is dead is noticed by
     * TCP. */
    .answer_us = PG_ANSWER_US_LONG,
};

/* ---- why not ------------------------------------------------------------------------------- */

/* A code of five characters that stands before the server's own words (PQERRORS_VERBOSE):
 * "FATAL:  57P03: the database system is starting up". NULL: there is none in this line. */
static const char *sqlstate_in(const char *line, size_t len)
{
    static const char signs[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (size_t i = 0; i + 10 <= len; i++) {
        if (memcmp(line + i, ":  ", 3) == 0 && strspn(line + i + 3, signs) == 5 &&
            memcmp(line + i + 8, ": ", 2) == 0) {
            return line + i + 3;
        }
    }
    return NULL;
}

/* "LOCATION:  InitPostgres, postinit.c:940", in whatever language. */
static bool is_source_line(const char *line, size_t len)
{
    size_t digits = len;
    while (digits > 0 && line[digits - 1] >= '0' && line[digits - 1] <= '9') {
        digits--;
    }
    return digits < len && digits >= 3 && memcmp(line + digits - 3, ".c:", 3) == 0;
}

/* Waiting does not help: wrong password, no such role or database, no right. */
static bool is_lasting(const char *sqlstate)
{
    static const char *const classes[] = { "0A", "22", "28", "3D", "42", "55" };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strncmp(sqlstate, classes[i], 2) == 0) {
            return true;
        }
    }
    return false;
}

/* libpq's report of its attempts, a line or two for each host, without codes and places in the
 * server's source. sqlstate: the last code, unchanged if there is none. *lasting: how many of the
 * hosts refused us for good. */
static void attempts_text(const char *said, char *out, size_t bytes, char sqlstate[6],
                          size_t *lasting)
{
    char lines[MESSAGE_BYTES * 2];
    size_t len = 0;
    *lasting = 0;
    lines[0] = '\0';
    while (*said != '\0') {
        const size_t line = strcspn(said, "\n");
        const char *code = sqlstate_in(said, line);
        const size_t before = code == NULL ? line : (size_t)(code - said);
        const size_t after = code == NULL ? line : before + 7;
        if (code != NULL) {
            memcpy(sqlstate, code, 5);
        }
        *lasting += code != NULL && is_lasting(code) ? 1 : 0;
        if (!is_source_line(said, line) && len < sizeof lines) {
            const size_t indent = strspn(said, "\t ");
            const size_t from = indent < before ? indent : before;
            const int written =
                snprintf(lines + len, sizeof lines - len, "%s%.*s%.*s", len > 0 ? "; " : "",
                         (int)(before - from), said + from, (int)(line - after), said + after);
            len += written > 0 ? (size_t)written : 0;
        }
        said += line + (said[line] == '\n' ? 1 : 0);
    }
    weir__pg_one_line(lines, out, bytes);
}

/* What to do about it. The words decide; in another language there is the general advice. */
static const char *connection_advice(const char *message)
{
    static const struct {
        const char *words, *advice;
    } known[] = {
        { "password", "Give the password in PGPASSWORD or ~/.pgpass, or as user:password@ in the "
                      "store URL; the user must be the one the server knows." },
        { "pg_hba.conf", "The server's pg_hba.conf has no line that lets this user in from here." },
        { "authentication failed", "The server wants another kind of login for this user: see its "
                                   "pg_hba.conf, and the user in the store URL." },
        { "too many", "The server has no connection to spare: lower pool= in the store URLs, raise "
                      "max_connections, or put a pooler in between." },
        { "remaining connection slots", "The server has no connection to spare: lower pool= in the "
                                        "store URLs, raise max_connections, or put a pooler in "
                                        "between." },
        { "role \"", "Name another user in the store URL, or create this one: CREATE ROLE ... "
                     "LOGIN." },
        { "not currently accepting", "Somebody has closed this database to all connections. Its "
                                     "owner opens it: ALTER DATABASE ... ALLOW_CONNECTIONS true. "
                                     "Or name another database in the store URL." },
        { "database \"", "Name another database in the store URL, or create this one: createdb." },
        { "read-only", "None of the hosts takes writes: is a failover going on?" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strstr(message, known[i].words) != NULL) {
            return known[i].advice;
        }
    }
    return "Is the server running, and are host and port in the store URL right? Try psql with the "
           "same URL, without Weir's own parameters.";
}

/* ---- lists of hosts ------------------------------------------------------------------------ */

const char *weir__pg_list_part(const char *list, size_t index, char *out, size_t bytes)
{
    const char *from = list;
    for (const char *comma = strchr(from, ','); index > 0 && comma != NULL;
         comma = strchr(from, ',')) {
        from = comma + 1;
        index--;
    }
    (void)snprintf(out, bytes, "%.*s", (int)strcspn(from, ","), from);
    return out;
}

size_t weir__pg_list_count(const char *list)
{
    size_t count = 1;
    for (; *list != '\0'; list++) {
        count += *list == ',' ? 1 : 0;
    }
    return count;
}

typedef struct place_lists {
    char host[HOSTS_BYTES], hostaddr[HOSTS_BYTES], port[HOSTS_BYTES];
} place_lists;

static void list_add(char *list, const char *part, bool first)
{
    const size_t len = strlen(list);
    (void)snprintf(list + len, HOSTS_BYTES - len, "%s%s", first ? "" : ",", part);
}

static void lists_of(PGconn *raw, place_lists *out)
{
    PQconninfoOption *all = pq.PQconninfo(raw);
    *out = (place_lists){ .host = "" };
    for (const PQconninfoOption *o = all; o != NULL && o->keyword != NULL; o++) {
        char *into = strcmp(o->keyword, "host") == 0       ? out->host
                     : strcmp(o->keyword, "hostaddr") == 0 ? out->hostaddr
                     : strcmp(o->keyword, "port") == 0     ? out->port
                                                           : NULL;
        if (into != NULL && o->val != NULL) {
            (void)snprintf(into, HOSTS_BYTES, "%s", o->val);
        }
    }
    pq.PQconninfoFree(all);
}

static size_t hosts_count(const place_lists *l)
{
    return weir__pg_list_count(l->hostaddr[0] != '\0' ? l->hostaddr : l->host);
}

/* The hosts that are left without the one that this connection was being made to. false: none. */
static bool lists_without(PGconn *raw, place_lists *out)
{
    place_lists all;
    bool dropped = false;
    size_t kept = 0;
    lists_of(raw, &all);
    *out = (place_lists){ .host = "" };
    for (size_t i = 0; i < hosts_count(&all); i++) {
        char host[PLACE_BYTES], hostaddr[PLACE_BYTES], port[PLACE_BYTES];
        (void)weir__pg_list_part(all.host, i, host, sizeof host);
        (void)weir__pg_list_part(all.hostaddr, i, hostaddr, sizeof hostaddr);
        (void)weir__pg_list_part(all.port, i, port, sizeof port);
        const bool here = strcmp(host[0] != '\0' ? host : hostaddr, pq.PQhost(raw)) == 0 &&
                          (port[0] == '\0' || strcmp(port, pq.PQport(raw)) == 0);
        if (here && !dropped) {
            dropped = true;
            continue;
        }
        list_add(out->host, host, kept == 0);
        list_add(out->hostaddr, hostaddr, kept == 0);
        list_add(out->port, port, kept == 0);
        kept++;
    }
    /* A list of nothing but empty parts is no list. */
    char *const lists[] = { out->host, out->hostaddr, out->port };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (strspn(lists[i], ",") == strlen(lists[i])) {
            lists[i][0] = '\0';
        }
    }
    return dropped && kept > 0;
}

void weir__pg_place_direct(weir_str direct, pg_place *out)
{
    size_t colon = direct.len;
    while (colon > 0 && direct.ptr[colon - 1] != ':') {
        colon--;
    }
    const size_t host_len = colon > 0 ? colon - 1 : direct.len;
    const bool bracketed = host_len >= 2 && direct.ptr[0] == '[' && direct.ptr[host_len - 1] == ']';
    (void)snprintf(out->host, sizeof out->host, "%.*s", (int)(bracketed ? host_len - 2 : host_len),
                   direct.ptr + (bracketed ? 1 : 0));
    (void)snprintf(out->port, sizeof out->port, "%.*s", (int)(colon > 0 ? direct.len - colon : 0),
                   direct.ptr + colon);
}

static bool has_several_hosts(const pg_database *db)
{
    bool several = false;
    PQconninfoOption *parsed = pq.PQconninfoParse(db->url, NULL);
    for (const PQconninfoOption *o = parsed; o != NULL && o->keyword != NULL; o++) {
        const bool names_hosts =
            strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0;
        several = several || (names_hosts && o->val != NULL && strchr(o->val, ',') != NULL);
    }
    pq.PQconninfoFree(parsed);
    return several;
}

/* ---- connecting ---------------------------------------------------------------------------- */

typedef struct connection_words {
    const char *names[PARAMETERS_MAX + 1], *values[PARAMETERS_MAX + 1];
    size_t count;
} connection_words;

static void word_add(connection_words *w, const char *name, const char *value)
{
    WEIR_ASSERT(w->count < PARAMETERS_MAX);
    w->names[w->count] = name;
    w->values[w->count++] = value;
}

/* Words before dbname are defaults, which the URL may override. */
static void words_fill(connection_words *w, const pg_database *db, const char *const *extra)
{
    *w = (connection_words){ .count = 0 };
    word_add(w, "connect_timeout", "5");
    word_add(w, "keepalives_idle", "10");
    word_add(w, "keepalives_interval", "3");
    word_add(w, "keepalives_count", "3");
    word_add(w, "tcp_user_timeout", "9000");
    if (db->writes && has_several_hosts(db)) {
        /* One of them is the primary: a standby is no use. A single host is taken as it is. */
        word_add(w, "target_session_attrs", "read-write");
    }
    word_add(w, "dbname", db->url);
    word_add(w, "fallback_application_name", db->application);
    word_add(w, "client_encoding", "UTF8");
    for (size_t i = 0; extra != NULL && extra[i] != NULL; i += 2) {
        word_add(w, extra[i], extra[i + 1]);
    }
}

/* connect_timeout as libpq takes it: at least 2 s; INT64_MAX: no limit. */
static int64_t timeout_us(PGconn *raw)
{
    int64_t seconds = 0;
    PQconninfoOption *all = pq.PQconninfo(raw);
    for (const PQconninfoOption *o = all; o != NULL && o->keyword != NULL; o++) {
        if (strcmp(o->keyword, "connect_timeout") == 0 && o->val != NULL) {
            (void)weir__str_to_i64(weir__str(o->val), &seconds);
        }
    }
    pq.PQconninfoFree(all);
    if (seconds <= 0 || seconds > INT32_MAX) {
        return INT64_MAX;
    }
    return (seconds < 2 ? 2 : seconds) * INT64_C(1000000);
}

/* Where libpq is at the moment. */
static void place_now(PGconn *raw, char place[PLACE_BYTES])
{
    (void)snprintf(place, PLACE_BYTES, "%s %s %s", pq.PQhost(raw), pq.PQhostaddr(raw),
                   pq.PQport(raw));
}

static void socket_await(PGconn *raw, PostgresPollingStatusType state, int64_t deadline_us)
{
    const int64_t left_us = deadline_us - pg_mono_us();
    const int64_t left_ms = left_us <= 0 ? 0 : left_us / 1000 + 1;
    struct pollfd fd = { .fd = pq.PQsocket(raw),
                         .events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT };
    (void)poll(&fd, 1, (int)(left_ms < POLL_MS_MAX ? left_ms : POLL_MS_MAX));
}

typedef enum attempt_end { ATTEMPT_CONNECTED, ATTEMPT_FAILED, ATTEMPT_SILENT } attempt_end;

/* Until it is connected, or has failed at all addresses, or one of them took the connection and
 * says nothing. */
static attempt_end attempt_run(PGconn *raw)
{
    char place[PLACE_BYTES], before[PLACE_BYTES] = "";
    const int64_t each_us = timeout_us(raw);
    int64_t deadline_us = INT64_MAX;
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    for (;;) {
        if (pq.PQstatus(raw) == CONNECTION_BAD) {
            return ATTEMPT_FAILED;
        }
        place_now(raw, place);
        if (strcmp(place, before) != 0) {
            memcpy(before, place, sizeof before);
            deadline_us = each_us == INT64_MAX ? INT64_MAX : pg_mono_us() + each_us;
        }
        socket_await(raw, state, deadline_us);
        if (pg_mono_us() >= deadline_us) {
            if (pq.PQstatus(raw) != CONNECTION_STARTED) {
                return ATTEMPT_SILENT;
            }
            /* Its connect() then fails, and libpq goes on with the next address, which may be the
             * same one once more. */
            (void)shutdown(pq.PQsocket(raw), SHUT_RDWR);
            before[0] = '\0';
        }
        state = pq.PQconnectPoll(raw);
        if (state == PGRES_POLLING_OK) {
            return ATTEMPT_CONNECTED;
        }
        if (state == PGRES_POLLING_FAILED) {
            return ATTEMPT_FAILED;
        }
    }
}

static weir_status attempt_failed(pg_conn *conn, size_t hosts, const char *silent, weir_error *err)
{
    char message[MESSAGE_BYTES];
    char sqlstate[6] = "";
    size_t lasting = 0;
    attempts_text(pq.PQerrorMessage(conn->raw), message, sizeof message, sqlstate, &lasting);
    conn->refused = pq.PQconnectionNeedsPassword(conn->raw) != 0 || lasting >= hosts;
    const weir_status status =
        weir__fail(err, WEIR_EUNAVAILABLE, "could not reach PostgreSQL: %s%s%s", silent,
                   silent[0] != '\0' && message[0] != '\0' ? "; " : "", message);
    weir__error_detail(err, "%s", connection_advice(message));
    weir__error_store_code(err, "%s", sqlstate);
    return status;
}

/* Tries one host after the other. conn->raw is set even if all failed, unless there is no
 * memory. */
static weir_status hosts_try(pg_conn *conn, const connection_words *words, weir_error *err)
{
    char silent[MESSAGE_BYTES] = "";
    place_lists *left = weir__calloc(1, sizeof *left);
    weir_status status = WEIR_OK;
    attempt_end end = left == NULL ? ATTEMPT_FAILED : ATTEMPT_SILENT;
    bool again = true;
    size_t hosts = 0;
    conn->refused = false;
    for (size_t tried = 0; end == ATTEMPT_SILENT && again; tried++) {
        connection_words w = *words;
        if (tried > 0) {
            weir__pg_disconnect(conn);
            /* libpq passes over words without a value. */
            word_add(&w, "host", left->host);
            word_add(&w, "hostaddr", left->hostaddr);
            word_add(&w, "port", left->port);
        }
        conn->raw = pq.PQconnectStartParams(w.names, w.values, 1);
        if (conn->raw == NULL) {
            break;
        }
        (void)pq.PQsetNoticeReceiver(conn->raw, notice_receive, conn);
        (void)pq.PQsetErrorVerbosity(conn->raw, PQERRORS_VERBOSE); /* for the codes */
        end = attempt_run(conn->raw);
        if (tried == 0) {
            lists_of(conn->raw, left);
            hosts = hosts_count(left);
        }
        if (end == ATTEMPT_SILENT) {
            const size_t len = strlen(silent);
            (void)snprintf(silent + len, sizeof silent - len, "%sno answer from \"%s\" port %s",
                           len == 0 ? "" : "; ", pq.PQhost(conn->raw), pq.PQport(conn->raw));
            again = lists_without(conn->raw, left);
        }
    }
    if (left == NULL || conn->raw == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a connection");
    } else if (end != ATTEMPT_CONNECTED) {
        status = attempt_failed(conn, hosts, silent, err);
    } else {
        (void)pq.PQsetErrorVerbosity(conn->raw, PQERRORS_DEFAULT);
    }
    weir__free(left);
    return status;
}

weir_status weir__pg_connect(pg_database *db, pg_conn *conn, const char *const *extra,
                             weir_error *err)
{
    connection_words words;
    words_fill(&words, db, extra);
    conn->database = db;
    conn->serial = atomic_fetch_add(&db->connections, 1) + 1;
    conn->prepared_again = 0;
    conn->told_us = 0;
    conn->unsynced = false;
    conn->ended = false;
    conn->farewell[0] = '\0';
    weir_status status = hosts_try(conn, &words, err);
    if (status == WEIR_OK && pq.PQsetnonblocking(conn->raw, 1) != 0) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a connection");
    }
    if (status == WEIR_OK) {
        conn->server = (pg_server){ .version = pq.PQserverVersion(conn->raw) };
        status = db->manner->hello == NULL ? WEIR_OK : db->manner->hello(conn, err);
        if (status == WEIR_EUNKNOWN) {
            status = weir__pg_lost_nothing("asking what kind of server it is", err);
        }
    }
    if (status != WEIR_OK) {
        weir__pg_disconnect(conn);
        return status;
    }
    atomic_store(&db->reached, true);
    return WEIR_OK;
}

bool weir__pg_waiting_helps(const pg_conn *conn, weir_status status)
{
    return status == WEIR_EUNAVAILABLE && (!conn->refused || atomic_load(&conn->database->reached));
}

weir_status weir__pg_connect_first(pg_database *db, pg_conn *conn, const char *const *extra,
                                   weir_error *err)
{
    const int64_t deadline_us = pg_mono_us() + db->busy_us;
    for (int attempt = 0;; attempt++) {
        const bool first = !atomic_load(&db->reached);
        const weir_status status = weir__pg_connect(db, conn, extra, err);
        const int64_t pause_us = weir__pg_pause_us(attempt, deadline_us);
        if (!first || !weir__pg_waiting_helps(conn, status) || pause_us == 0) {
            return status;
        }
        if (err != NULL && db->away_cb != NULL) {
            db->away_cb(err);
        }
        weir__clock_pause(pause_us);
    }
}
