/* conformance_sqlite.c - the conformance kit on the SQLite store.
 *
 * A place is a file in a directory of its own. What the store does is looked at from outside with
 * plain SQLite connections.
 */
#include "kit.h"

#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool sqlite_create(char place[KIT_PLACE_BYTES])
{
    char dir[KIT_PLACE_BYTES / 2];
    snprintf(dir, sizeof dir, "%s/weir-conformance-XXXXXX", kit_temp_dir());
    if (mkdtemp(dir) == NULL) {
        return false;
    }
    snprintf(place, KIT_PLACE_BYTES, "%s/store.db", dir);
    return true;
}

static weir_status sqlite_open(const char *place, const store_options *options, weir_store **out,
                               weir_error *err)
{
    store_options o = *options;
    o.path = weir__str(place);
    return weir__sqlite_open(out, &o, err);
}

static void sqlite_destroy(const char *place)
{
    char dir[KIT_PLACE_BYTES];
    char file[KIT_PLACE_BYTES + 300];
    snprintf(dir, sizeof dir, "%s", place);
    *strrchr(dir, '/') = '\0';
    DIR *d = opendir(dir);
    if (d != NULL) {
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            if (e->d_name[0] != '.') {
                snprintf(file, sizeof file, "%s/%s", dir, e->d_name);
                unlink(file);
            }
        }
        closedir(d);
    }
    rmdir(dir);
}

static void sqlite_url(const char *place, char *out, size_t bytes)
{
    snprintf(out, bytes, "sqlite:%s", place);
}

/* A connection from outside, which leaves the file as it is when it goes. */
static sqlite3 *look(const char *place)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(place, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
    return db;
}

/* A checkpoint that empties the WAL succeeds only when nobody is inside a transaction. */
static bool sqlite_quiet(const char *place)
{
    sqlite3 *db = look(place);
    const int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_close(db);
    return rc == SQLITE_OK;
}

/* Steps of SQLite's virtual machine in all statements of the writing connection. */
static uint64_t sqlite_steps(weir_store *s, void *native)
{
    uint64_t steps = 0;
    (void)s;
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(native, NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(native, stmt)) {
        steps += (uint64_t)(unsigned)sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 0);
    }
    return steps;
}

static bool sqlite_own_write(void *native)
{
    return sqlite3_exec(native,
                        "CREATE TABLE IF NOT EXISTS my_mails(sent TEXT);"
                        "INSERT INTO my_mails VALUES ('now')",
                        NULL, NULL, NULL) == SQLITE_OK;
}

/* The number a query gives; 0 when it cannot be asked, for want of the table. */
static int64_t number(const char *place, const char *sql)
{
    sqlite3 *db = look(place);
    sqlite3_stmt *stmt = NULL;
    int64_t count = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        count = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return count;
}

static int64_t sqlite_own_count(const char *place)
{
    return number(place, "SELECT count(*) FROM my_mails");
}

static int64_t sqlite_keys_count(const char *place, weir_store *s)
{
    (void)s;
    return number(place, "SELECT count(*) FROM weir_keys");
}

static int64_t sqlite_workers_count(const char *place, weir_store *s)
{
    (void)s;
    return number(place, "SELECT count(*) FROM weir_workers");
}

int main(int argc, char **argv)
{
    static const kit_adapter adapter = {
        .name = "conformance_sqlite",
        .features = KIT_DURABLE | KIT_PROCESSES | KIT_KEEPS_TIME | KIT_ONE_MACHINE,
        .create = sqlite_create,
        .open = sqlite_open,
        .destroy = sqlite_destroy,
        .url = sqlite_url,
        .quiet = sqlite_quiet,
        .steps = sqlite_steps,
        .own_write = sqlite_own_write,
        .own_count = sqlite_own_count,
        .keys_count = sqlite_keys_count,
        .workers_count = sqlite_workers_count,
    };
    return kit_main(argc, argv, &adapter);
}
