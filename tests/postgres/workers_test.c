/* workers_test.c - what a worker's beat costs on PostgreSQL: one statement, no flush, no index
 * entry, and no waiting for somebody else's row.
 */
#include "pg_support.h"

enum { BEATS = 200 };

#define LEASE_US INT64_C(30000000)

static void beat(pg_test *t, weir_store *s, const char *name)
{
    const weir_str lanes[] = { weir__str("default") };
    const store_known_reaction known[] = { { .reaction = 1, .number = 1 } };
    const store_worker worker = { .name = weir__str(name),
                                  .host = weir__str("host"),
                                  .pid = 7,
                                  .lanes = lanes,
                                  .lanes_count = 1,
                                  .known = known,
                                  .known_count = 1 };
    TEST_OK(t, s->about->worker_beat(s, &worker, LEASE_US, &t->err));
}

static int64_t rows(pg_test *t)
{
    return test_number(t->conn, "SELECT count(*) FROM %s.workers", t->schema);
}

/* In a transaction of somebody's own the setting is that transaction's, too: so nobody puts a beat
 * beside what has to stay. */
static void the_commit_of_a_beat_waits_for_no_disk_and_the_next_one_does(void **state)
{
    pg_test *t = *state;
    (void)test_store(t);
    test_exec(t->conn,
              "BEGIN; SELECT %s.worker_beat('w', 'h', 1, '{}', '{}', '{}', false, 1000, 1000, 64, "
              "'{}')",
              t->schema);
    assert_string_equal(test_text(t->conn, "SHOW synchronous_commit"), "off");
    test_exec(t->conn, "COMMIT");
    assert_string_equal(test_text(t->conn, "SHOW synchronous_commit"), "on");
    assert_int_equal(rows(t), 1);
}

static void a_beat_is_one_statement_and_a_hot_update(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    beat(t, s, "w");
    test_statements_reset(t);
    for (int i = 0; i < BEATS; i++) {
        beat(t, s, "w");
    }
    assert_int_equal(test_statements(t, "%worker_beat%"), BEATS);
    assert_int_equal(test_statements(t, "%"), BEATS);
    assert_int_equal(rows(t), 1);
    test_store_close(t, s); /* its counts are told when its connections end */
    assert_true(test_wait(t->conn, 120,
                          "SELECT n_tup_upd = %d FROM pg_stat_all_tables "
                          "WHERE relid = '%s.workers'::regclass",
                          BEATS, t->schema));
    assert_int_equal(test_number(t->conn,
                                 "SELECT n_tup_hot_upd FROM pg_stat_all_tables "
                                 "WHERE relid = '%s.workers'::regclass",
                                 t->schema),
                     BEATS);
}

static void an_ended_worker_whose_row_is_held_is_left_to_who_holds_it(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *other = test_connect(t);
    beat(t, s, "held");
    beat(t, s, "free");
    test_exec(t->conn, "UPDATE %s.workers SET lease_until = 1", t->schema);
    test_exec(other, "BEGIN; SELECT FROM %s.workers WHERE name = 'held' FOR UPDATE", t->schema);
    beat(t, s, "w"); /* answers although the row stays locked */
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s.workers WHERE name = 'free'", t->schema), 0);
    assert_int_equal(rows(t), 2);
    /* It comes back while somebody wants to forget it. */
    test_exec(other, "UPDATE %s.workers SET lease_until = %lld WHERE name = 'held'; COMMIT",
              t->schema, (long long)INT64_MAX);
    beat(t, s, "w");
    assert_int_equal(rows(t), 2);
    test_exec(t->conn, "UPDATE %s.workers SET lease_until = 1 WHERE name = 'held'", t->schema);
    beat(t, s, "w");
    assert_int_equal(rows(t), 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(the_commit_of_a_beat_waits_for_no_disk_and_the_next_one_does),
        PG_TEST(a_beat_is_one_statement_and_a_hot_update),
        PG_TEST(an_ended_worker_whose_row_is_held_is_left_to_who_holds_it),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
