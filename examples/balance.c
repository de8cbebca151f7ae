/* balance.c - keeps a table of account balances from the events of the accounts, exactly once.
 *
 *     cc balance.c -o balance $(pkg-config --cflags --libs libweir sqlite3)
 *     ./balance accounts.db &
 *     weir append account-1 Deposited '{"amount":5}' --store sqlite:accounts.db
 *
 * The projection runs inside the transaction in which Weir notes how far it is: the row and the
 * note change together, or neither does. So it needs no memory of what it has seen and no unique
 * key, and may be killed at any moment and started again, also twice at the same time.
 */
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <weir.h>

static const char create[] = "CREATE TABLE IF NOT EXISTS balances (account TEXT, amount INTEGER)";
static const char add[] = "UPDATE balances SET amount = amount + json_extract(?2, '$.amount') "
                          "WHERE account = ?1";
static const char begin[] = "INSERT INTO balances VALUES (?1, json_extract(?2, '$.amount'))";

static int run(sqlite3 *db, const char *sql, const weir_event *event)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, event->stream.ptr, (int)event->stream.len, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, event->data.ptr, (int)event->data.len, SQLITE_STATIC);
        code = sqlite3_step(statement);
    }
    sqlite3_finalize(statement);
    return code;
}

static int32_t project(void *ctx, void *native, const weir_event *const *events, size_t count,
                       weir_error *err)
{
    sqlite3 *db = native;
    (void)ctx;
    for (size_t i = 0; i < count; i++) {
        int code = run(db, add, events[i]);
        if (code == SQLITE_DONE && sqlite3_changes(db) == 0) {
            code = run(db, begin, events[i]); /* the account's first event */
        }
        if (code != SQLITE_DONE) {
            snprintf(err->message, sizeof err->message, "balances: %s", sqlite3_errmsg(db));
            return WEIR_EIO;
        }
    }
    return WEIR_OK;
}

static int create_table(const char *path)
{
    sqlite3 *db = NULL;
    int code = sqlite3_open(path, &db);
    if (code == SQLITE_OK) {
        sqlite3_busy_timeout(db, 10000);
        code = sqlite3_exec(db, create, NULL, NULL, NULL);
    }
    sqlite3_close(db);
    return code;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "accounts.db";
    char url[512];
    snprintf(url, sizeof url, "sqlite:%s", path);
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url, .application = "balance" };
    const weir_str deposited[] = { { "Deposited", 9 } };
    const weir_reaction balances = { WEIR_REACTION_INIT,
                                     .name = { "balances", 8 },
                                     .on = deposited,
                                     .on_count = 1,
                                     .source = { "account-*", 9 },
                                     .to = { "balance-of-{stream}", 19 },
                                     .from = WEIR_FROM_START,
                                     .project = project };
    /* A lease is how long others wait for the accounts of a worker that was killed. */
    const weir_lane lane = { WEIR_LANE_INIT, .name = { "default", 7 }, .lease_us = 500000 };
    weir *w = NULL;
    weir_engine *engine = NULL;
    weir_error err;
    sigset_t ends;
    int number;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before there are threads: all of them wait here */

    int32_t status = weir_open(&options, &w, &err);
    if (status == WEIR_OK && create_table(path) != SQLITE_OK) {
        fprintf(stderr, "balance: could not create the table\n");
        return 1;
    }
    status = status != WEIR_OK ? status : weir_engine_open(w, NULL, &engine, &err);
    status = status != WEIR_OK ? status : weir_engine_lane(engine, &lane, &err);
    status = status != WEIR_OK ? status : weir_engine_reaction(engine, &balances, &err);
    status = status != WEIR_OK ? status : weir_engine_start(engine, &err);
    if (status == WEIR_OK) {
        sigwait(&ends, &number);
        status = weir_engine_stop(engine, 5000, &err);
    }
    if (status != WEIR_OK) {
        fprintf(stderr, "balance: %s\n", err.message);
    }
    weir_engine_free(engine);
    weir_close(w);
    return status == WEIR_OK ? 0 : 1;
}
