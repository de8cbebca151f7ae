/* settle_test.c - settling on SQLite: the caller's own SQL runs inside the transaction, and cannot
 * get out of it; effects, positions and fence go together.
 */
#include "store/sqlite/targets_fixture.h"

#include <string.h>

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
    OK(f, f->store->ops->extend(f->store, 1000, &item, 1, &f->err));
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
    OK(f, f->store->ops->settle(f->store, &settle, &f->err));
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
    assert_int_equal(f->store->ops->settle(f->store, &settle, &f->err), WEIR_ELOST);
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
    assert_int_equal(f->store->ops->settle(f->store, &settle, &f->err), WEIR_EINVAL);
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
        assert_int_equal(f->store->ops->settle(f->store, &settle, &f->err), WEIR_EMISUSE);
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
    OK(f, f->store->ops->settle(f->store, &settle, &f->err));
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
    assert_int_equal(f->store->ops->settle(f->store, &settle, &f->err), WEIR_ECONFLICT);
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
    OK(f, f->store->ops->settle(f->store, &settle, &f->err));
    assert_true(settle.behind);
    assert_int_equal(settle.lease_until_us, f->now_us + 1000);
    /* derive_write is the only statement that names them. */
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(fixture_db(f), NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(fixture_db(f), stmt)) {
        if (strstr(sqlite3_sql(stmt), "SET behind") != NULL) {
            (void)sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 1);
        }
    }
    const store_advance again = { .reaction = 1, .to = 2 };
    settle.advances = &again;
    OK(f, f->store->ops->settle(f->store, &settle, &f->err));
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(fixture_db(f), NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(fixture_db(f), stmt)) {
        if (strstr(sqlite3_sql(stmt), "SET behind") != NULL) {
            assert_int_equal(sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0), 0);
        }
    }
    assert_int_equal(fixture_int(f, "SELECT watermark FROM weir_targets"), 2);
    weir__arena_free(&list.arena);
    fixture_check(f);
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
    };
    return cmocka_run_group_tests_name("settle", tests, NULL, NULL);
}
