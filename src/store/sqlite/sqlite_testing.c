/* sqlite_testing.c - see sqlite_testing.h. */
#include "store/sqlite/sqlite_testing.h"

#include "base/str.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t testing_wall_us(void *ctx)
{
    const testing *t = ctx;
    return t->wall_us != 0 ? t->wall_us : weir__clock_wall(weir__clock_machine());
}

static int64_t testing_mono_us(void *ctx)
{
    const testing *t = ctx;
    return t->wall_us != 0 ? t->mono_us : weir__clock_mono(weir__clock_machine());
}

int testing_setup_bare(void **state)
{
    testing *t = calloc(1, sizeof *t);
    assert_non_null(t);
    const char *base = getenv("TMPDIR");
    (void)snprintf(t->dir, sizeof t->dir, "%s/weir-sqlite-XXXXXX", base == NULL ? "/tmp" : base);
    assert_non_null(mkdtemp(t->dir));
    (void)snprintf(t->path, sizeof t->path, "%s/s.db", t->dir);
    t->clock = (weir_clock){ .wall_us = testing_wall_us, .mono_us = testing_mono_us, .ctx = t };
    t->options = (store_options){
        .path = weir__str(t->path),
        .busy_us = 10 * 1000 * 1000,
        .key_ttl_us = INT64_C(24) * 3600 * 1000000,
        .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
        .application = "test",
        .clock = &t->clock,
    };
    *state = t;
    return 0;
}

int testing_setup(void **state)
{
    (void)testing_setup_bare(state);
    testing *t = *state;
    t->store = testing_open(t, 0);
    return 0;
}

int testing_teardown(void **state)
{
    testing *t = *state;
    testing_close(&t->store);
    DIR *dir = opendir(t->dir);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
        }
    }
    (void)closedir(dir);
    assert_int_equal(rmdir(t->dir), 0);
    free(t);
    return 0;
}

weir_store *testing_open(testing *t, uint32_t open_flags)
{
    weir_store *store = NULL;
    store_options options = t->options;
    options.open_flags |= open_flags;
    if (weir__sqlite_open(&store, &options, &t->err) != WEIR_OK) {
        fail_msg("could not open: %s", t->err.message);
    }
    return store;
}

void testing_close(weir_store **store)
{
    if (*store != NULL) {
        (*store)->about->close(*store);
        *store = NULL;
    }
}

const char *testing_file(const testing *t, const char *suffix)
{
    static char names[4][128];
    static int next;
    char *name = names[next++ % 4];
    (void)snprintf(name, sizeof names[0], "%s%s", t->path, suffix);
    return name;
}

bool testing_exists(const testing *t, const char *suffix)
{
    return access(testing_file(t, suffix), F_OK) == 0;
}

int64_t testing_bytes(const testing *t, const char *suffix)
{
    struct stat st;
    return stat(testing_file(t, suffix), &st) == 0 ? (int64_t)st.st_size : -1;
}

weir_status testing_append_n(weir_store *store, const char *stream, int32_t expect, int64_t version,
                             size_t count, weir_error *err)
{
    store_append_stream streams[1] = {
        { .name = weir__str(stream), .expect = expect, .version = version }
    };
    store_new_event *events = calloc(count + 1, sizeof *events);
    assert_non_null(events);
    for (size_t i = 0; i < count; i++) {
        events[i] = (store_new_event){ .name = weir__str("Happened"),
                                       .data = weir__str("{\"n\":1}"),
                                       .meta = weir__str("{}") };
    }
    store_append append = {
        .streams = streams, .streams_count = 1, .events = events, .events_count = count, .err = err
    };
    store_append *appends[1] = { &append };
    const weir_status status = store->log->append(store, appends, 1, err);
    free(events);
    return status != WEIR_OK ? status : append.status;
}

weir_status testing_append(weir_store *store, const char *stream, weir_error *err)
{
    return testing_append_n(store, stream, WEIR_EXPECT_ANY, 0, 1, err);
}

int64_t testing_head(weir_store *store)
{
    store_positions positions = { 0 };
    assert_int_equal(store->log->positions(store, &positions, NULL), WEIR_OK);
    return positions.head;
}

static void add_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    char *all = ctx;
    const size_t len = strlen(all);
    assert_true(advice[0] != '\0');
    (void)snprintf(all + len, 8192 - len, "%s: %s\n", rule, text);
}

const char *testing_check(weir_store *store)
{
    static char all[8192];
    weir_error err;
    all[0] = '\0';
    if (store->about->check(store, add_finding, all, &err) != WEIR_OK) {
        fail_msg("check failed: %s", err.message);
    }
    return all;
}

static sqlite3 *raw_open(const testing *t)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(t->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA wal_autocheckpoint=0", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

void testing_sql(const testing *t, const char *sql)
{
    sqlite3 *db = raw_open(t);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
    (void)sqlite3_close(db);
}

int64_t testing_number(const testing *t, const char *sql)
{
    sqlite3 *db = raw_open(t);
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    const int64_t number = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return number;
}

child testing_fork(int (*fn)(void *ctx), void *ctx)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        (void)close(ends[1]);
        const bool go = read(ends[0], &byte, 1) == 1;
        _exit(go ? fn(ctx) : 99);
    }
    (void)close(ends[0]);
    return (child){ .pid = pid, .go = ends[1] };
}

void testing_go(child *c)
{
    assert_int_equal(write(c->go, "g", 1), 1);
}

int testing_join(child *c)
{
    int status = 0;
    (void)close(c->go);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
