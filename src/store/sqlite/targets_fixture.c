/* targets_fixture.c - see targets_fixture.h. */
#include "store/sqlite/targets_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MARKS_PER_ROUTE = 10000, LEASE_US = 1000000 };

static int64_t clock_read(void *ctx)
{
    return ((fixture *)ctx)->now_us;
}

void fixture_ok(fixture *f, weir_status status, const char *call, const char *file, int line)
{
    if (status != WEIR_OK) {
        print_error("%s: %s (%s)\n", call, weir_status_text(status), f->err.message);
        _assert_int_equal(0, 1, file, line);
    }
}

int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return -1;
    }
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/weir-targets-XXXXXX");
    if (mkdtemp(f->dir) == NULL) {
        free(f);
        return -1;
    }
    (void)snprintf(f->path, sizeof f->path, "%s/store.db", f->dir);
    f->now_us = INT64_C(1700000000000000);
    f->clock = (weir_clock){ .wall_us = clock_read, .mono_us = clock_read, .ctx = f };
    const store_options options = { .path = weir__str(f->path),
                                    .busy_us = 10000000,
                                    .key_ttl_us = 1000000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .sync_normal = true,
                                    .application = "test",
                                    .clock = &f->clock };
    *state = f;
    if (weir__sqlite_open(&f->store, &options, &f->err) != WEIR_OK) {
        print_error("%s\n", f->err.message);
        return -1;
    }
    return 0;
}

int fixture_teardown(void **state)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-weir" };
    fixture *f = *state;
    char path[128];
    if (f->store != NULL) {
        f->store->about->close(f->store);
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", f->path, suffixes[i]);
        (void)unlink(path);
    }
    (void)rmdir(f->dir);
    weir__arena_free(&f->arena);
    free(f);
    return 0;
}

sqlite3 *fixture_db(fixture *f)
{
    return sqlite_of(f->store)->writer.db;
}

void fixture_exec(fixture *f, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(fixture_db(f), sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
}

int64_t fixture_int(fixture *f, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(fixture_db(f), sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    const int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
}

fixture_steps fixture_take_steps(fixture *f)
{
    fixture_steps steps = { 0 };
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(fixture_db(f), NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(fixture_db(f), stmt)) {
        steps.vm += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
        steps.fullscan += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
        steps.sorts += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_SORT, 1);
    }
    return steps;
}

int64_t fixture_put(fixture *f, const char *stream, const char *name)
{
    store_append_stream streams[] = { { .name = weir__str(stream), .expect = WEIR_EXPECT_ANY } };
    const store_new_event events[] = { { .stream_index = 0,
                                         .name = weir__str(name),
                                         .data = weir__str("{}"),
                                         .meta = weir__str("{}") } };
    store_append append = {
        .streams = streams, .streams_count = 1, .events = events, .events_count = 1, .err = &f->err
    };
    store_append *appends[] = { &append };
    OK(f, f->store->log->append(f->store, appends, 1, &f->err));
    OK(f, append.status);
    return streams[0].id;
}

store_reaction fixture_declare(fixture *f, const char *name, const char *names, const char *source,
                               store_rule rule)
{
    weir_str list[16];
    size_t count = 0;
    for (const char *from = names; *from != '\0';) {
        const size_t len = strcspn(from, ",");
        list[count++] = (weir_str){ .ptr = from, .len = len };
        from += len + (from[len] == ',' ? 1 : 0);
    }
    const store_reaction_declaration d = { .name = weir__str(name),
                                           .names = list,
                                           .names_count = count,
                                           .all_names = strcmp(names, "*") == 0,
                                           .source = weir__str(source),
                                           .rule = rule,
                                           .rule_text = weir__str("t") };
    store_reaction reaction = { 0 };
    OK(f, f->store->work->declare(f->store, &d, &f->arena, &reaction, &f->err));
    return reaction;
}

static store_reaction find_reaction(fixture *f, const char *name)
{
    store_reaction_list list = { 0 };
    store_reaction found = { 0 };
    OK(f, f->store->work->reactions(f->store, &list, &f->err));
    for (size_t i = 0; i < list.reactions_count; i++) {
        if (weir__str_equal(list.reactions[i].name, weir__str(name))) {
            found = list.reactions[i];
        }
    }
    weir__arena_free(&list.arena); /* only numbers are used */
    assert_int_not_equal(found.id, 0);
    return found;
}

void fixture_mark(fixture *f, const char *reaction, const char *target, const char *lane,
                  const char *value, int64_t first, int64_t last)
{
    const store_reaction r = find_reaction(f, reaction);
    const store_route_step steps[] = { { .reaction = r.id,
                                         .number = r.current,
                                         .from = r.routed,
                                         .to = last > r.routed ? last : r.routed } };
    const store_mark marks[] = { { .target = weir__str(target),
                                   .lane = weir__str(lane),
                                   .source = weir__str("*"),
                                   .value = weir__str(value),
                                   .first = first,
                                   .last = last } };
    const store_route route = {
        .steps = steps, .steps_count = 1, .marks = marks, .marks_count = 1
    };
    OK(f, f->store->work->route(f->store, &route, NULL, &f->err));
}

void fixture_lease(fixture *f, size_t limit, store_lease_list *list)
{
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("tester"),
                                          .lease_us = LEASE_US,
                                          .limit = limit,
                                          .all_reactions = true };
    OK(f, f->store->work->turn(f->store, NULL, 0, &request, list, &f->err));
}

void fixture_many(fixture *f, const char *reaction, int64_t first, int64_t count, int64_t per_rank)
{
    const store_reaction r = find_reaction(f, reaction);
    store_mark *marks = calloc(MARKS_PER_ROUTE, sizeof *marks);
    char(*names)[16] = calloc(MARKS_PER_ROUTE, sizeof *names);
    assert_non_null(marks);
    assert_non_null(names);
    const store_route_step steps[] = {
        { .reaction = r.id, .number = r.current, .from = r.routed, .to = r.routed }
    };
    for (int64_t done = 0; done < count;) {
        size_t n = 0;
        for (; n < MARKS_PER_ROUTE && done < count; n++, done++) {
            const int64_t at = ((first + done) / per_rank) << STORE_RANK_SHIFT;
            (void)snprintf(names[n], sizeof names[n], "t%07lld", (long long)(first + done));
            marks[n] = (store_mark){ .target = weir__str(names[n]),
                                     .lane = weir__str("l"),
                                     .source = weir__str("*"),
                                     .value = weir__str(names[n]),
                                     .first = at + 1,
                                     .last = at + 1 };
        }
        const store_route route = {
            .steps = steps, .steps_count = 1, .marks = marks, .marks_count = n
        };
        OK(f, f->store->work->route(f->store, &route, NULL, &f->err));
    }
    free(names);
    free(marks);
}

static void show_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)advice;
    print_error("%s: %s\n", rule, text);
    ++*(int *)ctx;
}

void fixture_check(fixture *f)
{
    int findings = 0;
    OK(f, f->store->about->check(f->store, show_finding, &findings, &f->err));
    assert_int_equal(findings, 0);
}
