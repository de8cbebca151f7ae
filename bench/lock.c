/* lock.c - how long it takes to have a lock that is free, on a connection that is not there yet.
 *
 *     lock raw --url URL --count N     connect, SELECT pg_try_advisory_lock
 *     lock weir --url URL --count N    weir__lock_acquire
 *
 * N names, one after the other. Letting go, and the end of the connection, is outside of the time
 * on both sides.
 */
#include "lock/lock.h"
#include "bench.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 32, SQL_BYTES = 96 };

static int64_t raw_acquire(const char *url, int64_t number)
{
    char sql[SQL_BYTES];
    (void)snprintf(sql, sizeof sql, "SELECT pg_try_advisory_lock(%lld)", (long long)number);
    const int64_t start_us = bench_now_us();
    PGconn *conn = PQconnectdb(url);
    PGresult *result = PQexec(conn, sql);
    const int64_t took_us = bench_now_us() - start_us;
    bench_must(PQresultStatus(result) == PGRES_TUPLES_OK && PQgetvalue(result, 0, 0)[0] == 't',
               PQerrorMessage(conn));
    PQclear(result);
    PQfinish(conn);
    return took_us;
}

static int64_t weir_acquire(const char *url, int64_t number)
{
    char name[NAME_BYTES];
    named_lock *lock = NULL;
    weir_error err = { 0 };
    (void)snprintf(name, sizeof name, "job-%lld", (long long)number);
    const lock_request q = { .url = url,
                             .name = { name, strlen(name) },
                             .holder = { "bench", 5 },
                             .check_us = LOCK_CHECK_US_DEFAULT,
                             .grace_us = LOCK_GRACE_US_DEFAULT };
    const int64_t start_us = bench_now_us();
    const weir_status status = weir__lock_acquire(&lock, &q, &err);
    const int64_t took_us = bench_now_us() - start_us;
    bench_must(status == WEIR_OK && weir__lock_kind(lock) == LOCK_SESSION, err.message);
    weir__lock_release(lock);
    return took_us;
}

int main(int argc, char **argv)
{
    const char *url = bench_text(argc, argv, "url", NULL);
    const int64_t count = bench_number(argc, argv, "count", 500);
    const bool raw = argc > 1 && strcmp(argv[1], "raw") == 0;
    int64_t took_us = 0;
    bench_must(url != NULL && (raw || (argc > 1 && strcmp(argv[1], "weir") == 0)),
               "usage: see lock.c");
    for (int64_t i = 0; i < 10; i++) { /* libraries are loaded, and the server has been asked */
        (void)(raw ? raw_acquire : weir_acquire)(url, i);
    }
    bench_timer started = bench_start();
    for (int64_t i = 0; i < count; i++) {
        took_us += (raw ? raw_acquire : weir_acquire)(url, i);
    }
    started.wall_us = bench_now_us() - took_us; /* what counts, and nothing in between */
    bench_report(started, count);
    return 0;
}
