/* targets_support.c - see targets_support.h. */
#include "targets_support.h"

#include <stdio.h>
#include <string.h>

int64_t give_reaction(pg_test *t, weir_store *s, const char *name, store_rule rule)
{
    weir_arena arena = { 0 };
    store_reaction r = { 0 };
    const store_reaction_declaration d = {
        .name = weir__str(name), .all_names = true, .source = weir__str("*"), .rule = rule
    };
    TEST_OK(t, s->work->declare(s, &d, &arena, &r, &t->err));
    const int64_t id = r.id;
    weir__arena_free(&arena);
    return id;
}

static store_reaction find_reaction(pg_test *t, weir_store *s, const char *name,
                                    store_reaction_list *list)
{
    TEST_OK(t, s->work->reactions(s, list, &t->err));
    for (size_t i = 0; i < list->reactions_count; i++) {
        if (weir__str_equal(list->reactions[i].name, weir__str(name))) {
            return list->reactions[i];
        }
    }
    fail_msg("no reaction %s", name);
    return (store_reaction){ 0 };
}

weir_status try_mark(pg_test *t, weir_store *s, const char *reaction, const char *target,
                     int64_t first, int64_t last)
{
    store_reaction_list list = { 0 };
    const store_reaction r = find_reaction(t, s, reaction, &list);
    const store_route_step step = { .reaction = r.id,
                                    .number = r.number,
                                    .from = r.routed,
                                    .to = last > r.routed ? last : r.routed };
    const store_mark mark = { .target = weir__str(target),
                              .lane = weir__str("l"),
                              .source = weir__str("order-*"),
                              .value = weir__str(""),
                              .first = first,
                              .last = last };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    const weir_status status = s->work->route(s, &route, NULL, &t->err);
    weir__arena_free(&list.arena);
    return status;
}

void give_mark(pg_test *t, weir_store *s, const char *reaction, const char *target, int64_t first,
               int64_t last)
{
    TEST_OK(t, try_mark(t, s, reaction, target, first, last));
}

store_leased take_lease(pg_test *t, weir_store *s)
{
    store_lease_list list = { 0 };
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("test"),
                                          .lease_us = INT64_C(10000000),
                                          .limit = 2,
                                          .all_reactions = true };
    TEST_OK(t, s->work->turn(s, NULL, 0, &request, &list, &t->err));
    assert_int_equal(list.leases_count, 1);
    store_leased lease = list.leases[0];
    weir__arena_free(&list.arena);
    lease.name = (weir_str){ 0 }; /* was in the arena, as were the others */
    lease.subscriptions = NULL;
    lease.sent_back = NULL;
    return lease;
}

work give_work(pg_test *t, const char *target)
{
    work w = { .s = test_store(t) };
    w.reaction = give_reaction(t, w.s, "r", STORE_RULE_CONSTANT);
    w.event = test_put(t, w.s, "order-1", "Placed");
    give_mark(t, w.s, "r", target, w.event, w.event);
    w.lease = take_lease(t, w.s);
    return w;
}

int64_t look(pg_test *t, const char *sql)
{
    char text[1024];
    const char *at = strstr(sql, "%s");
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - sql), sql, t->schema, at + 2);
    return test_number(t->conn, "%s", text);
}

/* ---- check -------------------------------------------------------------------------------- */

typedef struct found {
    const char *rule;
    int count;
    char text[512];
} found;

static void count_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    found *f = ctx;
    assert_true(strlen(advice) > 0);
    if (f->rule == NULL || strcmp(f->rule, rule) == 0) {
        if (f->count++ == 0) {
            (void)snprintf(f->text, sizeof f->text, "%s: %s", rule, text);
        }
    }
}

int findings(pg_test *t, weir_store *s, const char *rule, char text[512])
{
    found f = { .rule = rule };
    TEST_OK(t, s->about->check(s, count_finding, &f, &t->err));
    if (text != NULL) {
        memcpy(text, f.text, sizeof f.text);
    }
    return f.count;
}

void nothing_is_wrong(pg_test *t, weir_store *s)
{
    char text[512];
    if (findings(t, s, NULL, text) != 0) {
        fail_msg("the store's check says: %s", text);
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

static void *run_beside(void *ctx)
{
    beside *b = ctx;
    b->run(b->ctx);
    return NULL;
}

void begin_beside(beside *b, void (*run)(void *ctx), void *ctx)
{
    *b = (beside){ .run = run, .ctx = ctx };
    assert_int_equal(pthread_create(&b->thread, NULL, run_beside, b), 0);
}

void end_beside(beside *b)
{
    assert_int_equal(pthread_join(b->thread, NULL), 0);
}

bool somebody_waits(pg_test *t)
{
    return test_wait(t->conn, 120,
                     "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
                     "application_name = 'weir-test' AND query LIKE '%%%s%%'",
                     t->schema);
}
