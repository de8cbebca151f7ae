/* reaction_declare_test.c - reactions and the store: where they begin, which definition is current,
 * and that every thread may ask while the router renews. On memory and on SQLite. */
#include "base/error.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/reaction.h"
#include "store/fault/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64]; /* of the SQLite store that is open; "" : none */

static void path_of(char out[128], const char *suffix)
{
    (void)snprintf(out, 128, "%s/store.db%s", dir, suffix);
}

static weir_store *open_store(bool sqlite)
{
    char path[128];
    if (sqlite) {
        (void)snprintf(dir, sizeof dir, "/tmp/weir-reactions-XXXXXX");
        assert_non_null(mkdtemp(dir));
    }
    path_of(path, "");
    const store_options options = { .path = weir__str(sqlite ? path : ""),
                                    .busy_us = 10000000,
                                    .key_ttl_us = 1000000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .sync_normal = true,
                                    .application = "reaction_declare_test",
                                    .clock = weir__clock_machine() };
    weir_store *store = NULL;
    weir_error err;
    const weir_status status = sqlite ? weir__sqlite_open(&store, &options, &err)
                                      : weir__memory_open(&store, &options, &err);
    if (status != WEIR_OK) {
        fail_msg("%s", err.message);
    }
    return store;
}

static void close_store(weir_store *s)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-weir" };
    s->about->close(s);
    for (size_t i = 0; dir[0] != '\0' && i < sizeof suffixes / sizeof *suffixes; i++) {
        char path[128];
        path_of(path, suffixes[i]);
        (void)unlink(path);
    }
    assert_true(dir[0] == '\0' || rmdir(dir) == 0);
    dir[0] = '\0';
}

/* count events of one name to one stream, 1,000 per append. */
static void append(weir_store *s, const char *stream, const char *name, size_t count)
{
    static store_new_event events[1000];
    while (count > 0) {
        store_append_stream streams[] = { { .name = weir__str(stream) } };
        const size_t n = count < 1000 ? count : 1000;
        for (size_t i = 0; i < n; i++) {
            events[i] = (store_new_event){ .name = weir__str(name),
                                           .data = weir__str("{}"),
                                           .meta = weir__str("{}") };
        }
        store_append a = {
            .streams = streams, .streams_count = 1, .events = events, .events_count = n
        };
        store_append *const list[] = { &a };
        assert_int_equal(s->log->append(s, list, 1, NULL), WEIR_OK);
        assert_int_equal(a.status, WEIR_OK);
        count -= n;
    }
}

static int64_t head(weir_store *s)
{
    store_positions p;
    assert_int_equal(s->log->positions(s, &p, NULL), WEIR_OK);
    return p.head;
}

static void add(registry *r, const char *name, const char *event, const char *to, int32_t from)
{
    const weir_str on[] = { weir__str(event) };
    const weir_reaction d = { .size = sizeof d,
                              .name = weir__str(name),
                              .on = on,
                              .on_count = event == NULL ? 0 : 1,
                              .source = weir__str("order-*"),
                              .to = weir__str(to),
                              .from = from };
    assert_int_equal(weir__registry_reaction(r, &d, NULL), WEIR_OK);
}

static void declare(registry *r, weir_store *s, bool redeclare)
{
    weir_error err;
    if (weir__registry_declare(r, s, redeclare, &err) != WEIR_OK) {
        fail_msg("%s", err.message);
    }
}

static void refresh(registry *r, weir_store *s)
{
    assert_int_equal(weir__registry_refresh(r, s, NULL), WEIR_OK);
}

static void from_may_be_left_out_while_nothing_is_there_for_it(bool sqlite)
{
    weir_store *s = open_store(sqlite);
    registry r = { 0 };
    append(s, "order-1", "Other", 3);
    append(s, "invoice-1", "Placed", 2);
    const int64_t before = head(s);
    add(&r, "a", "Placed", "mail", WEIR_FROM_DEFAULT);
    declare(&r, s, false);
    assert_int_equal(r.reactions[0].known.since, before);
    assert_int_equal(r.reactions[0].known.routed, before);
    assert_int_equal(weir__reaction_number(&r.reactions[0]), 1);
    weir__registry_free(&r);

    /* Known by now: nothing has to be said although there are events. */
    append(s, "order-1", "Placed", 1);
    add(&r, "a", "Placed", "mail", WEIR_FROM_DEFAULT);
    declare(&r, s, false);
    assert_int_equal(r.reactions[0].known.since, before);
    weir__registry_free(&r);
    close_store(s);
}

static void from_has_to_be_said_when_there_are_events_and_all_are_told(bool sqlite)
{
    weir_store *s = open_store(sqlite);
    registry r = { 0 };
    weir_error err;
    append(s, "order-1", "Placed", 1);
    append(s, "order-2", "Paid", 10000);
    add(&r, "one", "Placed", "mail", WEIR_FROM_DEFAULT);
    add(&r, "fine", "Placed", "mail", WEIR_FROM_START);
    add(&r, "limit", "Paid", "mail", WEIR_FROM_DEFAULT);
    add(&r, "all", NULL, "mail", WEIR_FROM_DEFAULT);
    assert_int_equal(weir__registry_declare(&r, s, false, &err), WEIR_EINVAL);
    assert_int_equal(r.problems_count, 3);
    const char *expected =
        "reaction \"one\" does not say where it begins, and the log holds 1 event for it: write "
        "from: start, from: now or a position\n"
        "reaction \"limit\" does not say where it begins, and the log holds 10000 events for it: "
        "write from: start, from: now or a position\n"
        "reaction \"all\" does not say where it begins, and the log holds more than 10000 events "
        "for it: write from: start, from: now or a position\n";
    assert_int_equal(r.problems.len, strlen(expected));
    assert_memory_equal(r.problems.ptr, expected, r.problems.len);
    assert_non_null(strstr(err.message, "3 problems"));

    store_reaction_list list = { 0 };
    assert_int_equal(s->work->reactions(s, &list, NULL), WEIR_OK);
    assert_int_equal(list.reactions_count, 0); /* nothing was declared */
    weir__arena_free(&list.arena);
    weir__registry_free(&r);
    close_store(s);
}

static void from_says_where_to_begin(bool sqlite)
{
    weir_store *s = open_store(sqlite);
    registry r = { 0 };
    append(s, "order-1", "Placed", 5);
    add(&r, "z-start", "Placed", "mail", WEIR_FROM_START);
    add(&r, "a-now", "Placed", "mail", WEIR_FROM_NOW);
    declare(&r, s, false);
    assert_true(r.reactions[0].known.id < r.reactions[1].known.id);
    assert_ptr_equal(weir__registry_find(&r, r.reactions[0].known.id), &r.reactions[0]);
    assert_ptr_equal(weir__registry_find(&r, r.reactions[1].known.id), &r.reactions[1]);
    assert_null(weir__registry_find(&r, r.reactions[1].known.id + 1));
    assert_null(weir__registry_find(&r, 0));
    assert_int_equal(r.reactions[0].known.since, 0);
    assert_int_equal(r.reactions[1].known.since, head(s));
    const int64_t first = r.reactions[0].known.id;
    weir__registry_free(&r);

    /* The ids are the store's, whatever the order of declaring is. */
    add(&r, "a-now", "Placed", "mail", WEIR_FROM_NOW);
    add(&r, "z-start", "Placed", "mail", WEIR_FROM_START);
    declare(&r, s, false);
    assert_int_equal(r.reactions[0].known.id, first);
    assert_ptr_equal(weir__registry_find(&r, first), &r.reactions[0]);
    weir__registry_free(&r);
    close_store(s);
}

/* The old and the new version of a service during a deploy, and the way back. */
static void only_the_current_definition_is_served(bool sqlite)
{
    weir_store *s = open_store(sqlite);
    registry old = { 0 };
    registry new = { 0 };
    add(&old, "r", "Placed", "mail-{stream}", WEIR_FROM_START);
    add(&new, "r", "Placed", "post-{stream}", WEIR_FROM_START);
    declare(&old, s, false);
    assert_true(weir__reaction_current(&old.reactions[0]));
    declare(&new, s, false);
    refresh(&old, s);
    refresh(&new, s);
    assert_false(weir__reaction_current(&old.reactions[0]));
    assert_int_equal(weir__reaction_number(&new.reactions[0]), 2);

    declare(&old, s, false); /* a restart does not take it back */
    assert_false(weir__reaction_current(&old.reactions[0]));
    declare(&old, s, true);
    assert_int_equal(weir__reaction_number(&old.reactions[0]), 3);
    refresh(&new, s);
    assert_false(weir__reaction_current(&new.reactions[0]));

    /* Somebody else with our definition makes it current: we go on under its new number. */
    registry other = { 0 };
    add(&other, "r", "Placed", "post-{stream}", WEIR_FROM_START);
    declare(&other, s, true);
    refresh(&new, s);
    refresh(&old, s);
    assert_int_equal(weir__reaction_number(&new.reactions[0]), 4);
    assert_false(weir__reaction_current(&old.reactions[0]));

    assert_int_equal(s->work->retire(s, weir__str("r"), NULL), WEIR_OK);
    refresh(&new, s);
    assert_false(weir__reaction_current(&new.reactions[0]));
    declare(&other, s, false); /* brings it back */
    refresh(&new, s);
    assert_true(weir__reaction_current(&new.reactions[0]));
    weir__registry_free(&old);
    weir__registry_free(&new);
    weir__registry_free(&other);
    close_store(s);
}

static void refresh_reads_how_far_routing_is(bool sqlite)
{
    weir_store *s = open_store(sqlite);
    registry r = { 0 };
    append(s, "order-1", "Placed", 5);
    add(&r, "b", "Placed", "mail", WEIR_FROM_START);
    add(&r, "a", "Placed", "mail", WEIR_FROM_START);
    declare(&r, s, false);
    const store_route_step step = {
        .reaction = r.reactions[1].known.id, .number = 1, .from = 0, .to = 4
    };
    const store_route route = { .steps = &step, .steps_count = 1 };
    assert_int_equal(s->work->route(s, &route, NULL, NULL), WEIR_OK);
    refresh(&r, s);
    assert_int_equal(r.reactions[0].known.routed, 0);
    assert_int_equal(r.reactions[1].known.routed, 4);
    weir__registry_free(&r);
    close_store(s);
}

/* Under a store that is away for every call once: a failure, and the next try works. */
static void a_store_that_fails_is_told_and_can_be_tried_again(bool sqlite)
{
    for (uint64_t nth = 1; nth <= 4; nth++) {
        weir_store *s = NULL;
        registry r = { 0 };
        weir_error err;
        assert_int_equal(weir__fault_open(&s, open_store(sqlite), NULL), WEIR_OK);
        add(&r, "a", "Placed", "mail", WEIR_FROM_DEFAULT);
        add(&r, "b", "Placed", "mail", WEIR_FROM_START);
        weir__fault_set(s, &(fault_plan){ .verb = FAULT_ANY,
                                          .action = FAULT_FAIL_BEFORE,
                                          .nth = nth,
                                          .status = WEIR_EUNAVAILABLE });
        assert_int_equal(weir__registry_declare(&r, s, false, &err), WEIR_EUNAVAILABLE);
        declare(&r, s, false);
        assert_true(weir__reaction_current(&r.reactions[0]));
        assert_true(weir__reaction_current(&r.reactions[1]));
        weir__fault_set(s, &(fault_plan){ .verb = FAULT_REACTIONS,
                                          .action = FAULT_FAIL_BEFORE,
                                          .nth = 1,
                                          .status = WEIR_EBUSY });
        assert_int_equal(weir__registry_refresh(&r, s, &err), WEIR_EBUSY);
        assert_true(weir__reaction_current(&r.reactions[0]));
        weir__registry_free(&r);
        close_store(s);
    }
}

/* ---- another log: what was declared last is lost ------------------------------------------- */

/* A store whose reaction r has these definitions, one after the other. */
static weir_store *store_with(const char *const *events, size_t count)
{
    weir_store *s = open_store(false);
    for (size_t i = 0; i < count; i++) {
        registry r = { 0 };
        add(&r, "r", events[i], "mail", WEIR_FROM_START);
        declare(&r, s, true);
        weir__registry_free(&r);
    }
    return s;
}

static void C31_a_definition_that_was_lost_is_not_taken_for_the_one_with_its_number(void **state)
{
    (void)state;
    static const char *const ours[] = { "Placed" }, *const theirs[] = { "Placed", "Paid" };
    weir_store *before = store_with(ours, 1), *after = store_with(theirs, 2);
    registry r = { 0 };
    add(&r, "r", "Shipped", "mail", WEIR_FROM_START);
    declare(&r, before, false);
    assert_int_equal(weir__reaction_number(&r.reactions[0]), 2);
    for (int i = 0; i < 3; i++) {
        refresh(&r, after);
        assert_false(weir__reaction_current(&r.reactions[0]));
        assert_int_equal(r.reactions[0].known.current, 2); /* and nothing was declared */
    }
    weir__registry_free(&r);
    before->about->close(before);
    after->about->close(after);
}

static void C31_a_definition_that_was_lost_is_declared_again(void **state)
{
    (void)state;
    static const char *const first[] = { "Placed" };
    for (size_t kept = 0; kept <= 1; kept++) { /* with the reaction itself, and without */
        weir_store *before = store_with(first, kept), *after = store_with(first, kept);
        registry r = { 0 };
        add(&r, "r", "Shipped", "mail", WEIR_FROM_START);
        declare(&r, before, false);
        refresh(&r, after);
        assert_int_equal(weir__reaction_number(&r.reactions[0]), kept + 1);
        assert_false(r.reactions[0].known.retired);
        refresh(&r, after);
        assert_int_equal(weir__reaction_number(&r.reactions[0]), kept + 1);
        weir__registry_free(&r);
        before->about->close(before);
        after->about->close(after);
    }
}

/* It would be refused, and with it everything that the worker routes. */
static void C31_what_is_declared_again_begins_where_a_shorter_log_ends(void **state)
{
    (void)state;
    static const int32_t starts[] = { WEIR_FROM_DEFAULT, WEIR_FROM_POSITION };
    for (size_t i = 0; i < 2; i++) {
        weir_store *before = open_store(false), *after = open_store(false);
        registry r = { 0 };
        append(before, "order-1", "Placed", 5);
        append(after, "order-1", "Placed", 2);
        add(&r, "r", "Shipped", "mail", starts[i]);
        r.reactions[0].start_position = 5;
        declare(&r, before, false);
        assert_int_equal(r.reactions[0].known.since, 5);
        refresh(&r, after);
        assert_true(weir__reaction_current(&r.reactions[0]));
        store_reaction_list list = { 0 };
        assert_int_equal(after->work->reactions(after, &list, NULL), WEIR_OK);
        assert_int_equal(list.reactions_count, 1);
        assert_int_equal(list.reactions[0].since, 2);
        weir__arena_free(&list.arena);
        weir__registry_free(&r);
        before->about->close(before);
        after->about->close(after);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct asker {
    registry *registry;
    _Atomic bool *stop;
    int64_t seen_max;
    bool seen_none;
} asker;

static void *ask(void *ctx)
{
    asker *a = ctx;
    while (!atomic_load(a->stop)) {
        reaction *q = weir__registry_find(a->registry, a->registry->reactions[0].known.id);
        const int64_t number = weir__reaction_number(q);
        a->seen_none |= number == 0;
        a->seen_max = number > a->seen_max ? number : a->seen_max;
    }
    return NULL;
}

/* ThreadSanitizer is what looks here; the numbers show that the threads did meet. */
static void others_may_ask_while_the_router_renews(void **state)
{
    (void)state;
    weir_store *s = open_store(false);
    registry a = { 0 };
    registry b = { 0 };
    _Atomic bool stop = false;
    add(&a, "r", "Placed", "mail-{stream}", WEIR_FROM_START);
    add(&b, "r", "Placed", "post-{stream}", WEIR_FROM_START);
    declare(&a, s, false);
    asker askers[2] = { { .registry = &a, .stop = &stop }, { .registry = &a, .stop = &stop } };
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    registry c = { 0 };
    int wrong = 0; /* asserted when the threads have ended: they use what is here */
    add(&c, "r", "Placed", "mail-{stream}", WEIR_FROM_START);
    for (int i = 0; i < 200; i++) {
        declare(&b, s, true);
        refresh(&a, s);
        wrong += weir__reaction_current(&a.reactions[0]);
        declare(&c, s, true);
        refresh(&a, s);
        wrong += weir__reaction_number(&a.reactions[0]) != 2 * i + 3;
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(askers[i].seen_max <= 401);
    }
    assert_int_equal(wrong, 0);
    weir__registry_free(&a);
    weir__registry_free(&b);
    weir__registry_free(&c);
    close_store(s);
}

/* ---- on every store ------------------------------------------------------------------------ */

typedef void (*store_test_fn)(bool sqlite);

static void on_both_stores(void **state)
{
    const store_test_fn *test = (const store_test_fn *)*state;
    (*test)(false);
    (*test)(true);
}

int main(void)
{
    static store_test_fn both[] = {
        from_may_be_left_out_while_nothing_is_there_for_it,
        from_has_to_be_said_when_there_are_events_and_all_are_told,
        from_says_where_to_begin,
        only_the_current_definition_is_served,
        refresh_reads_how_far_routing_is,
        a_store_that_fails_is_told_and_can_be_tried_again,
    };
    static const char *const names[] = {
        "from may be left out while nothing is there for it",
        "from has to be said when there are events, and all are told",
        "from says where to begin",
        "only the current definition is served",
        "refresh reads how far routing is",
        "a store that fails is told and can be tried again",
    };
    struct CMUnitTest tests[10] = {
        cmocka_unit_test(others_may_ask_while_the_router_renews),
        cmocka_unit_test(C31_a_definition_that_was_lost_is_not_taken_for_the_one_with_its_number),
        cmocka_unit_test(C31_a_definition_that_was_lost_is_declared_again),
        cmocka_unit_test(C31_what_is_declared_again_begins_where_a_shorter_log_ends),
    };
    for (size_t i = 0; i < 6; i++) {
        tests[i + 4] = (struct CMUnitTest){ .name = names[i],
                                            .test_func = on_both_stores,
                                            .initial_state = &both[i] };
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
