/* fork_test.c - what a forked child may do with a store, and what it must not keep of its parent's.
 *
 * Method: real children, which tell and are told through pipes. "Another program" is a connection
 * with SQLite's own settings: whoever closes last deletes the WAL, unless someone holds a lock.
 */
#include "store/sqlite/sqlite_testing.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct family {
    testing *t;
    int up[2], down[2]; /* pipes: to the parent, to the child */
} family;

static void family_begin(family *f, testing *t)
{
    f->t = t;
    assert_int_equal(pipe(f->up), 0);
    assert_int_equal(pipe(f->down), 0);
}

static void family_end(family *f)
{
    (void)close(f->up[0]);
    (void)close(f->up[1]);
    (void)close(f->down[0]);
    (void)close(f->down[1]);
}

static bool say(const int ends[2])
{
    return write(ends[1], "x", 1) == 1;
}

static bool hear(const int ends[2])
{
    char byte = 0;
    return read(ends[0], &byte, 1) == 1;
}

/* Opens a store of its own and appends before and after the parent has closed the other one. */
static int append_twice(void *ctx)
{
    family *f = ctx;
    weir_store *store = NULL;
    weir_error err;
    if (weir__sqlite_open(&store, &f->t->options, &err) != WEIR_OK ||
        testing_append(store, "child-1", &err) != WEIR_OK || !say(f->up) || !hear(f->down) ||
        testing_append(store, "child-1", &err) != WEIR_OK) {
        return 1;
    }
    store->about->close(store);
    return 0;
}

static void visit_as_another_program(const testing *t)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(t->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM weir_store", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void C12_a_child_that_opens_the_store_again_holds_locks_of_its_own(void **state)
{
    testing *t = *state;
    family f;
    family_begin(&f, t);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    child c = testing_fork(append_twice, &f);
    testing_go(&c);
    assert_true(hear(f.up));
    testing_close(&t->store); /* the child is alone with the store now */
    visit_as_another_program(t);
    assert_true(testing_exists(t, "-wal"));
    assert_true(say(f.down));
    assert_int_equal(testing_join(&c), 0);
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
    assert_int_equal(testing_head(t->store), 3);
    assert_string_equal(testing_check(t->store), "");
    family_end(&f);
}

enum { APPENDS = 100 };

static int append_many(void *ctx)
{
    const testing *t = ctx;
    weir_store *store = NULL;
    weir_error err;
    if (weir__sqlite_open(&store, &t->options, &err) != WEIR_OK) {
        return 1;
    }
    for (int i = 0; i < APPENDS; i++) {
        if (testing_append(store, "child-1", &err) != WEIR_OK) {
            return 2;
        }
    }
    store->about->close(store);
    return 0;
}

static void C08_parent_and_children_append_side_by_side(void **state)
{
    testing *t = *state;
    child children[2];
    testing_close(&t->store);
    t->options.checkpoint_pages = 4;
    t->store = testing_open(t, 0);
    assert_int_equal(testing_head(t->store), 0); /* so that a reader is open as well */
    for (size_t i = 0; i < 2; i++) {
        children[i] = testing_fork(append_many, t);
    }
    for (size_t i = 0; i < 2; i++) {
        testing_go(&children[i]);
    }
    for (int i = 0; i < APPENDS; i++) {
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(testing_join(&children[i]), 0);
    }
    assert_int_equal(testing_head(t->store), 3 * APPENDS);
    assert_string_equal(testing_check(t->store), "");
}

/* Has a transaction open, and a child that knows nothing of it, until it is killed. */
static int hold_and_fork(void *ctx)
{
    family *f = ctx;
    weir_store *store = NULL;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    weir_error err;
    if (weir__sqlite_open(&store, &f->t->options, &err) != WEIR_OK ||
        weir__sqlite_write_begin(sqlite_of(store), 0, &conn, &now_us, &err) != WEIR_OK) {
        return 1;
    }
    const pid_t grandchild = fork();
    if (grandchild == 0) {
        /* Ends with the test, which holds the other end of this pipe. */
        (void)close(f->down[1]);
        _exit(say(f->up) && hear(f->down) ? 0 : 1);
    }
    for (;;) {
        (void)pause();
    }
}

static void a_child_does_not_keep_the_side_lock_of_a_parent_that_died(void **state)
{
    testing *t = *state;
    family f;
    side_lock side = { 0 };
    testing_close(&t->store);
    family_begin(&f, t);
    child c = testing_fork(hold_and_fork, &f);
    testing_go(&c);
    assert_true(hear(f.up));
    assert_int_equal(weir__side_open(&side, t->path, false, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&side, 0, &t->err), WEIR_EBUSY);
    assert_int_equal(kill(c.pid, SIGKILL), 0);
    assert_int_equal(testing_join(&c), -1);
    assert_int_equal(weir__side_lock(&side, 0, &t->err), WEIR_OK);
    weir__side_close(&side);
    family_end(&f);
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
}

static int expect_refusal(void *ctx)
{
    const testing *t = ctx;
    weir_store *store = NULL;
    weir_error err;
    const weir_status status = weir__sqlite_open(&store, &t->options, &err);
    return status == WEIR_EMISUSE && strstr(err.message, "fork") != NULL ? 0 : 1;
}

static void a_child_that_was_forked_inside_a_transaction_is_refused(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    sqlite_store *s = sqlite_of(t->store);
    assert_int_equal(weir__sqlite_write_begin(s, 0, &conn, &now_us, &t->err), WEIR_OK);
    child c = testing_fork(expect_refusal, t);
    testing_go(&c);
    assert_int_equal(testing_join(&c), 0);
    assert_int_equal(weir__sqlite_write_end(s, WEIR_OK, false, &t->err), WEIR_OK);

    assert_int_equal(weir__sqlite_read_begin(s, &conn, &t->err), WEIR_OK);
    c = testing_fork(expect_refusal, t);
    testing_go(&c);
    assert_int_equal(testing_join(&c), 0);
    weir__sqlite_read_end(s, conn);

    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    c = testing_fork(append_many, t); /* at rest again: welcome */
    testing_go(&c);
    assert_int_equal(testing_join(&c), 0);
    assert_int_equal(testing_head(t->store), 1 + APPENDS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, testing_setup, testing_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(C12_a_child_that_opens_the_store_again_holds_locks_of_its_own),
        TEST(C08_parent_and_children_append_side_by_side),
        TEST(a_child_does_not_keep_the_side_lock_of_a_parent_that_died),
        TEST(a_child_that_was_forked_inside_a_transaction_is_refused),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
