/* settle_test.c - settling on SQLite: the caller's own SQL runs inside the transaction, and cannot
 * get out of it; effects, positions and fence go together. What was held before a restore is lost.
 */
#include "store/sqlite/targets_fixture.h"
#include "store/store_backup.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static store_leased one_lease(fixture *f, store_lease_list *list)
{
    fixture_lease(f, 1, list);
    assert_int_equal(list->leases_count, 1);
    return list->leases[0];
}

/* A store with reaction r, target t with one event at position 1, leased. */
static store_leased setup_lease(fixture *f, store_lease_list *list)
{
    fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    const int64_t id = fixture_put(f, "order-1", "Placed");
    fixture_mark(f, "r", "t", "l", "", id, id);
    fixture_exec(f, "CREATE TABLE mine (x INTEGER)");
    return one_lease(f, list);
}

static int run(void *native, const char *sql)
{
    return sqlite3_exec(native, sql, NULL, NULL, NULL);
}

static store_settle settle_of(const store_leased *l, store_sql_fn sql)
{
    return (store_settle){ .target = l->target, .fence = l->fence, .sql = sql };
}

/* Still leased, still at its event, nothing of the caller's left. */
static void assert_untouched(fixture *f, const store_leased *l)
{
    store_fenced item = { .target = l->target, .fence = l->fence };
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM mine"), 0);
    assert_int_equal(fixture_int(f, "SELECT at FROM weir_subscriptions"), 0);
    assert_int_equal(fixture_int(f, "SELECT behind FROM weir_targets"), 1);
    OK(f, f->store->work->extend(f->store, 1000, &item, 1, &f->err));
    OK(f, item.status);
    fixture_check(f);
    (void)fixture_put(f, "order-2", "Placed"); /* and the store works */
}

/* ---- the caller's own SQL ------------------------------------------------------------------ */

static weir_status insert_row(void *ctx, void *native, weir_error *err)
{
    (void)ctx;
    (void)err;
    assert_int_equal(run(native, "INSERT INTO mine VALUES (1)"), SQLITE_OK);
    return WEIR_OK;
}

static weir_status insert_and_fail(void *ctx, void *native, weir_error *err)
{
    (void)insert_row(ctx, native, err);
    return weir__fail(err, WEIR_EINVAL, "no thank you");
}

static weir_status insert_and_commit(void *ctx, void *native, weir_error *err)
{
    (void)insert_row(ctx, native, err);
    (void)run(native, "COMMIT");
    return WEIR_OK;
}

static weir_status insert_and_roll_back(void *ctx, void *native, weir_error *err)
{
    (void)insert_row(ctx, native, err);
    (void)run(native, "ROLLBACK");
    return WEIR_OK;
}

static weir_status insert_commit_and_begin(void *ctx, void *native, weir_error *err)
{
    (void)insert_and_commit(ctx, native, err);
    (void)run(native, "BEGIN IMMEDIATE");
    (void)run(native, "INSERT INTO mine VALUES (2)");
    return WEIR_OK;
}

static weir_status write_after_rolling_back(void *ctx, void *native, weir_error *err)
{
    (void)insert_and_roll_back(ctx, native, err);
    (void)run(native, "INSERT INTO mine VALUES (3)"); /* would commit by itself */
    return WEIR_OK;
}

static weir_status leave_a_cursor_open(void *ctx, void *native, weir_error *err)
{
    sqlite3_stmt **stmt = ctx;
    (void)insert_row(NULL, native, err);
    assert_int_equal(sqlite3_prepare_v2(native, "SELECT x FROM mine", -1, stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(*stmt), SQLITE_ROW);
    return WEIR_OK;
}

static void own_sql_and_position_are_one_transaction(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    const store_leased l = setup_lease(f, &list);
    const store_advance advance = { .reaction = 1, .to = 1 };
    store_settle settle = settle_of(&l, insert_row);
    settle.advances = &advance;
    settle.advances_count = 1;
    OK(f, f->store->work->settle(f->store, &settle, &f->err));
    assert_false(settle.behind);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM mine"), 1);
    assert_int_equal(fixture_int(f, "SELECT at FROM weir_subscriptions"), 1);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

static void own_sql_is_undone_with_a_stale_fence(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    store_leased l = setup_lease(f, &list);
    l.fence--;
    store_settle settle = settle_of(&l, insert_row);
    assert_int_equal(f->store->work->settle(f->store, &settle, &f->err), WEIR_ELOST);
    l.fence++;
    assert_untouched(f, &l);
    weir__arena_free(&list.arena);
}

static void own_sql_that_fails_leaves_nothing(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    const store_leased l = setup_lease(f, &list);
    store_settle settle = settle_of(&l, insert_and_fail);
    assert_int_equal(f->store->work->settle(f->store, &settle, &f->err), WEIR_EINVAL);
    assert_string_equal(f->err.message, "no thank you");
    assert_untouched(f, &l);
    weir__arena_free(&list.arena);
}

static void own_sql_that_ends_the_transaction_is_refused_and_undone(void **state)
{
    static const store_sql_fn misuses[] = { insert_and_commit, insert_and_roll_back,
                                            insert_commit_and_begin, write_after_rolling_back };
    fixture *f = *state;
    store_lease_list list = { 0 };
    const store_leased l = setup_lease(f, &list);
    const store_advance advance = { .reaction = 1, .to = 1 };
    for (size_t i = 0; i < sizeof misuses / sizeof misuses[0]; i++) {
        store_settle settle = settle_of(&l, misuses[i]);
        settle.advances = &advance;
        settle.advances_count = 1;
        assert_int_equal(f->store->work->settle(f->store, &settle, &f->err), WEIR_EMISUSE);
        assert_untouched(f, &l);
    }
    weir__arena_free(&list.arena);
}

static void own_sql_that_leaves_a_cursor_open_does_not_keep_the_transaction(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    const store_leased l = setup_lease(f, &list);
    sqlite3_stmt *stmt = NULL;
    store_settle settle = settle_of(&l, leave_a_cursor_open);
    settle.sql_ctx = &stmt;
    OK(f, f->store->work->settle(f->store, &settle, &f->err));
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM mine"), 1);
    (void)fixture_put(f, "order-2", "Placed");
    sqlite3_finalize(stmt);
    weir__arena_free(&list.arena);
}

/* ---- effects ------------------------------------------------------------------------------- */

/* The second of two effects conflicts: its error is reported, and the first is gone too. */
static void a_refused_effect_undoes_all_of_the_settle(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    const store_leased l = setup_lease(f, &list);
    store_append_stream good = { .name = weir__str("mail-1"), .expect = WEIR_EXPECT_ANY };
    store_append_stream bad = { .name = weir__str("order-1"), .expect = WEIR_EXPECT_NONE };
    const store_new_event event = { .name = weir__str("Sent"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append first = {
        .streams = &good, .streams_count = 1, .events = &event, .events_count = 1
    };
    store_append second = {
        .streams = &bad, .streams_count = 1, .events = &event, .events_count = 1
    };
    store_append *const appends[] = { &first, &second };
    const store_advance advance = { .reaction = 1, .to = 1 };
    store_settle settle = settle_of(&l, insert_row);
    settle.appends = appends;
    settle.appends_count = 2;
    settle.advances = &advance;
    settle.advances_count = 1;
    assert_int_equal(f->store->work->settle(f->store, &settle, &f->err), WEIR_ECONFLICT);
    assert_string_equal(f->err.stream, "order-1");
    assert_int_equal(f->err.expected, WEIR_VERSION_NONE);
    assert_int_equal(f->err.actual, 0);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_events"), 1);
    assert_untouched(f, &l);
    weir__arena_free(&list.arena);
}

/* The derived columns are indexed: a settle inside one rank must not touch those indexes. */
static void a_settle_inside_its_rank_rewrites_no_index_of_leasing(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    for (int i = 0; i < 3; i++) {
        const int64_t id = fixture_put(f, "order-1", "Placed");
        fixture_mark(f, "r", "t", "l", "", id, id);
    }
    const store_leased l = one_lease(f, &list);
    const store_advance advance = { .reaction = 1, .to = 1 };
    store_settle settle = settle_of(&l, NULL);
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.end = STORE_END_KEEP;
    settle.lease_us = 1000;
    OK(f, f->store->work->settle(f->store, &settle, &f->err));
    assert_true(settle.behind);
    assert_int_equal(settle.lease_until_us, f->now_us + 1000);
    /* Only these statements write what the indexes are about. */
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(fixture_db(f), NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(fixture_db(f), stmt)) {
        if (strstr(sqlite3_sql(stmt), "behind = ?") != NULL) {
            (void)sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 1);
        }
    }
    const store_advance again = { .reaction = 1, .to = 2 };
    settle.advances = &again;
    OK(f, f->store->work->settle(f->store, &settle, &f->err));
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(fixture_db(f), NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(fixture_db(f), stmt)) {
        if (strstr(sqlite3_sql(stmt), "behind = ?") != NULL) {
            assert_int_equal(sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0), 0);
        }
    }
    assert_int_equal(fixture_int(f, "SELECT watermark FROM weir_targets"), 2);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

/* ---- turns --------------------------------------------------------------------------------- */

enum { TURN_TARGETS = 3, FRAMES_MAX = 200 };

/* Fences, positions and who holds what, as one number. */
static int64_t turn_state(fixture *f)
{
    return fixture_int(f,
                       "SELECT (SELECT sum(id * (fence * 31 + lease_until % 1009 + behind * 41"
                       " + watermark * 43 + (holder IS NULL) * 47)) FROM weir_targets)"
                       " + (SELECT sum(target * (at * 59 + mark * 61)) FROM weir_subscriptions)");
}

static off_t wal_bytes(const fixture *f)
{
    char path[128];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s-wal", f->path);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* The operating system refuses to let a file grow further than that. */
static void files_end_at(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The first write of a turn that fails, then the second, and so on: nothing has happened. */
static void a_turn_that_cannot_be_written_has_not_happened(void **state)
{
    fixture *f = *state;
    store_lease_list held = { 0 }, list = { 0 };
    store_settle settles[TURN_TARGETS], *pointers[TURN_TARGETS];
    const store_advance advance = { .reaction = 1, .to = 1 };
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    (void)fixture_put(f, "order-1", "Placed");
    static const char *const names[TURN_TARGETS] = { "a", "b", "c" };
    for (size_t i = 0; i < TURN_TARGETS; i++) {
        fixture_mark(f, "r", names[i], "l", "", 1, 2);
    }
    fixture_lease(f, TURN_TARGETS, &held);
    assert_int_equal(held.leases_count, TURN_TARGETS);
    for (size_t i = 0; i < TURN_TARGETS; i++) {
        settles[i] = settle_of(&held.leases[i], NULL);
        settles[i].advances = &advance;
        settles[i].advances_count = 1;
        settles[i].status = WEIR_EMISUSE;
        pointers[i] = &settles[i];
    }
    const store_lease_request lease = { .lane = weir__str("l"),
                                        .holder = weir__str("me"),
                                        .lease_us = 1000000,
                                        .limit = TURN_TARGETS,
                                        .all_reactions = true };
    const int64_t was = turn_state(f);
    int failures = 0;
    weir_status status = WEIR_EIO;
    (void)signal(SIGXFSZ, SIG_IGN);
    for (rlim_t frames = 0; status != WEIR_OK && frames < FRAMES_MAX; frames++) {
        files_end_at((rlim_t)wal_bytes(f) + frames * 2000); /* also in the middle of a frame */
        status = f->store->work->turn(f->store, pointers, TURN_TARGETS, &lease, &list, &f->err);
        files_end_at(before.rlim_cur);
        if (status == WEIR_OK) {
            break;
        }
        failures++;
        assert_int_equal(list.leases_count, 0);
        for (size_t i = 0; i < TURN_TARGETS; i++) {
            assert_int_equal(settles[i].status, WEIR_EMISUSE);
        }
        assert_int_equal(turn_state(f), was);
    }
    (void)signal(SIGXFSZ, SIG_DFL);
    OK(f, status);
    assert_true(failures > 2);
    assert_int_equal(list.leases_count, TURN_TARGETS);
    for (size_t i = 0; i < TURN_TARGETS; i++) {
        assert_int_equal(settles[i].status, WEIR_OK);
        assert_true(settles[i].behind);
        assert_int_equal(list.leases[i].fence, held.leases[i].fence + 1);
    }
    weir__arena_free(&held.arena);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

/* A statement that fails, at every target and subscription there is, undoes those before it. */
static void a_turn_that_fails_half_way_has_not_happened(void **state)
{
    fixture *f = *state;
    store_lease_list held = { 0 }, list = { 0 };
    store_settle settles[TURN_TARGETS], *pointers[TURN_TARGETS];
    const store_advance advance = { .reaction = 1, .to = 2 };
    fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    (void)fixture_put(f, "order-1", "Placed");
    static const char *const names[TURN_TARGETS + 1] = { "a", "b", "c", "d" };
    for (size_t i = 0; i <= TURN_TARGETS; i++) {
        fixture_mark(f, "r", names[i], "l", "", 1, 2);
    }
    fixture_lease(f, TURN_TARGETS, &held);
    assert_int_equal(held.leases_count, TURN_TARGETS);
    for (size_t i = 0; i < TURN_TARGETS; i++) {
        settles[i] = settle_of(&held.leases[i], NULL);
        settles[i].advances = &advance;
        settles[i].advances_count = 1;
        settles[i].status = WEIR_EMISUSE;
        pointers[i] = &settles[i];
    }
    const store_lease_request lease = {
        .lane = weir__str("l"), .holder = weir__str("me"), .limit = 1, .all_reactions = true
    };
    static const char *const failing[] = {
        "weir_subscriptions WHEN NEW.target = 1",
        "weir_targets WHEN NEW.id = 1",
        "weir_subscriptions WHEN NEW.target = 3",
        "weir_targets WHEN NEW.id = 3",
        "weir_targets WHEN NEW.id = 4", /* which is leased */
        "weir_store WHEN true",
    };
    const int64_t was = turn_state(f);
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        char sql[256];
        (void)snprintf(sql, sizeof sql,
                       "CREATE TRIGGER refuse BEFORE UPDATE ON %s"
                       " BEGIN SELECT RAISE(ABORT, 'no'); END",
                       failing[i]);
        fixture_exec(f, sql);
        f->now_us++; /* which the commit writes down */
        assert_int_not_equal(
            f->store->work->turn(f->store, pointers, TURN_TARGETS, &lease, &list, &f->err),
            WEIR_OK);
        fixture_exec(f, "DROP TRIGGER refuse");
        assert_int_equal(list.leases_count, 0);
        assert_int_equal(settles[0].status, WEIR_EMISUSE);
        assert_int_equal(turn_state(f), was);
    }
    OK(f, f->store->work->turn(f->store, pointers, TURN_TARGETS, &lease, &list, &f->err));
    assert_int_equal(list.leases_count, 1);
    assert_int_equal(settles[2].status, WEIR_OK);
    weir__arena_free(&held.arena);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

/* ---- a restore ------------------------------------------------------------------------------- */

/* Puts the copy of the store in its place, and opens that. */
static void put_back(fixture *f, const char *copy)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    const store_options options = { .path = weir__str(f->path),
                                    .busy_us = 10000000,
                                    .key_ttl_us = 1000000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .application = "test",
                                    .clock = &f->clock };
    char *kept = NULL, path[256];
    f->store->about->close(f->store);
    f->store = NULL;
    OK(f, weir__sqlite_restore(&options, copy, &kept, NULL, NULL, &f->err));
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", kept, suffixes[i]);
        (void)unlink(path);
    }
    (void)unlink(copy);
    weir__free(kept);
    OK(f, weir__sqlite_open(&f->store, &options, &f->err));
}

/* Everything that the holder of a lease may write. */
static void assert_lease_lost(fixture *f, const store_leased *l, int64_t reaction)
{
    weir_store *s = f->store;
    const store_advance advance = { .reaction = reaction, .to = 1 };
    store_settle settle = { .target = l->target,
                            .fence = l->fence,
                            .token = l->token,
                            .advances = &advance,
                            .advances_count = 1 };
    store_settle *const settles[] = { &settle };
    store_fenced item = { .target = l->target, .fence = l->fence, .token = l->token };
    store_lease_list none = { 0 };
    assert_int_equal(s->work->settle(s, &settle, &f->err), WEIR_ELOST);
    assert_non_null(strstr(f->err.message, "before the store was restored"));
    OK(f, s->work->turn(s, settles, 1, NULL, &none, &f->err));
    assert_int_equal(settle.status, WEIR_ELOST);
    OK(f, s->work->extend(s, 1000000, &item, 1, &f->err));
    assert_int_equal(item.status, WEIR_ELOST);
    OK(f, s->work->extend(s, 0, &item, 1, &f->err));
    assert_int_equal(item.status, WEIR_ELOST);
    weir__arena_free(&none.arena);
    assert_int_equal(fixture_int(f, "SELECT sum(at) FROM weir_subscriptions"), 0);
}

static void C24_a_lease_from_before_a_restore_writes_nothing_after_it(void **state)
{
    fixture *f = *state;
    char copy[128];
    store_lease_list old = { 0 }, again = { 0 };
    const store_reaction r = fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    (void)snprintf(copy, sizeof copy, "%s/copy.db", f->dir);
    (void)fixture_put(f, "s-1", "A");
    fixture_mark(f, "r", "x", "l", "", 1, 1);
    OK(f, weir__sqlite_backup(f->store, copy, false, NULL, NULL, &f->err));
    fixture_lease(f, 1, &old);
    put_back(f, copy);
    fixture_lease(f, 1, &again);
    assert_int_equal(again.leases[0].target, old.leases[0].target);
    assert_int_equal(again.leases[0].fence, old.leases[0].fence); /* it begins again */
    assert_lease_lost(f, &old.leases[0], r.id);
    /* Who has it now has noticed nothing; but a copy in which the lease is, is another log too. */
    store_fenced item = { .target = again.leases[0].target,
                          .fence = again.leases[0].fence,
                          .token = again.leases[0].token };
    OK(f, f->store->work->extend(f->store, 1000000, &item, 1, &f->err));
    assert_int_equal(item.status, WEIR_OK);
    OK(f, weir__sqlite_backup(f->store, copy, false, NULL, NULL, &f->err));
    put_back(f, copy);
    assert_lease_lost(f, &again.leases[0], r.id);
    weir__arena_free(&old.arena);
    weir__arena_free(&again.arena);
    fixture_check(f);
}

static void C40_a_lock_from_before_a_restore_is_lost_after_it(void **state)
{
    fixture *f = *state;
    char copy[128];
    store_lock old = { 0 }, again = { 0 };
    store_lock run = { 0 }, rerun = { 0 };
    const weir_str me = weir__str("me"), name = weir__str("n");
    (void)snprintf(copy, sizeof copy, "%s/copy.db", f->dir);
    OK(f, weir__sqlite_backup(f->store, copy, false, NULL, NULL, &f->err));
    weir_store *s = f->store;
    OK(f, s->locks->take(s, &(store_lock_request){ STORE_LOCK, name, me, 1000000 }, &f->arena, &old,
                         &f->err));
    OK(f, s->locks->take(s, &(store_lock_request){ STORE_ONCE, name, me, 1000000 }, &f->arena, &run,
                         &f->err));
    put_back(f, copy);
    s = f->store;
    OK(f, s->locks->take(s, &(store_lock_request){ STORE_LOCK, name, me, 1000000 }, &f->arena,
                         &again, &f->err));
    OK(f, s->locks->take(s, &(store_lock_request){ STORE_ONCE, name, me, 1000000 }, &f->arena,
                         &rerun, &f->err));
    assert_int_equal(again.fence, old.fence);
    assert_int_equal(rerun.fence, run.fence);
    assert_int_equal(s->locks->extend(s, STORE_LOCK, name, old.fence, old.token, 1000000, &f->err),
                     WEIR_ELOST);
    assert_int_equal(s->locks->release(s, name, old.fence, old.token, &f->err), WEIR_ELOST);
    assert_int_equal(s->locks->extend(s, STORE_ONCE, name, run.fence, run.token, 1000000, &f->err),
                     WEIR_ELOST);
    assert_int_equal(s->locks->finish(s, name, run.fence, run.token, 0, me, &f->err), WEIR_ELOST);
    OK(f, s->locks->release(s, name, again.fence, again.token, &f->err));
    OK(f, s->locks->finish(s, name, rerun.fence, rerun.token, 0, me, &f->err));
    assert_int_equal(s->locks->finish(s, name, run.fence, run.token, 0, me, &f->err), WEIR_ELOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(own_sql_and_position_are_one_transaction, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(own_sql_is_undone_with_a_stale_fence, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(own_sql_that_fails_leaves_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(own_sql_that_ends_the_transaction_is_refused_and_undone,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(
            own_sql_that_leaves_a_cursor_open_does_not_keep_the_transaction, fixture_setup,
            fixture_teardown),
        cmocka_unit_test_setup_teardown(a_refused_effect_undoes_all_of_the_settle, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_settle_inside_its_rank_rewrites_no_index_of_leasing,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_turn_that_cannot_be_written_has_not_happened,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_turn_that_fails_half_way_has_not_happened, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(C24_a_lease_from_before_a_restore_writes_nothing_after_it,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(C40_a_lock_from_before_a_restore_is_lost_after_it,
                                        fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("settle", tests, NULL, NULL);
}
