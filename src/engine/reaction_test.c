/* reaction_test.c - what is refused when it is declared, all at once; where events go; how long a
 * failure waits.
 *
 * Every refusal starts from one reaction that is right and breaks one thing of it, and looks for
 * the line that says so, so that nothing else can be what was refused. */
#include "engine/reaction.h"

#include "base/error.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int32_t handle(void *ctx, weir_delivery *delivery)
{
    (void)ctx;
    (void)delivery;
    return WEIR_DONE;
}

static int32_t project(void *ctx, void *native, const weir_event *const *events, size_t count,
                       weir_error *err)
{
    (void)ctx;
    (void)native;
    (void)events;
    (void)count;
    (void)err;
    return WEIR_OK;
}

static const weir_str on[] = {
    { "OrderPlaced", 11 },
    { "OrderConfirmed", 14 },
    { "OrderPlaced", 11 },
};

static weir_reaction right(const char *name)
{
    return (weir_reaction){ .size = sizeof(weir_reaction),
                            .name = weir__str(name),
                            .on = on,
                            .on_count = 3,
                            .source = weir__str("order-*"),
                            .to = weir__str("mail-{stream}"),
                            .handle = handle };
}

static void add(registry *r, weir_reaction declared)
{
    assert_int_equal(weir__registry_reaction(r, &declared, NULL), WEIR_OK);
}

static void add_lane(registry *r, weir_lane declared)
{
    declared.size = sizeof declared;
    assert_int_equal(weir__registry_lane(r, &declared, NULL), WEIR_OK);
}

/* The registry has exactly this many problems, and one line with this text. */
static void wrong(registry *r, size_t count, const char *line)
{
    weir_error err = { 0 };
    assert_int_equal(weir__registry_check(r, &err), WEIR_EINVAL);
    assert_int_equal(weir__buffer_add(&r->problems, "", 1), true);
    if (strstr(r->problems.ptr, line) == NULL || r->problems_count != count) {
        fail_msg("expected %zu with \"%s\", got %zu:\n%s", count, line, r->problems_count,
                 r->problems.ptr);
    }
    weir__registry_free(r);
}

static void refused(weir_reaction declared, const char *line)
{
    registry r = { 0 };
    add(&r, declared);
    wrong(&r, 1, line);
}

/* ---- checks -------------------------------------------------------------------------------- */

static void what_is_right_is_kept_with_its_defaults(void **state)
{
    (void)state;
    registry r = { 0 };
    char name[] = "confirm";
    weir_reaction d = right(name);
    add(&r, d);
    name[0] = 'X'; /* copied */
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);

    const reaction *q = &r.reactions[0];
    assert_true(weir__str_equal(q->name, weir__str("confirm")));
    assert_int_equal(q->names_count, 2);
    assert_true(weir__str_equal(q->names[0], weir__str("OrderConfirmed")));
    assert_true(weir__str_equal(q->lane, weir__str("default")));
    assert_int_equal(q->retries, 3);
    assert_int_equal(q->backoff.base_us, 200000);
    assert_int_equal(q->backoff.cap_us, 30000000);
    assert_int_equal(q->deadline_us, 300000000);
    assert_int_equal(q->start, -1);
    assert_int_equal(q->mode, REACTION_HANDLE);
    assert_int_equal(q->rule, STORE_RULE_STREAM);
    assert_true(weir__str_equal(q->rule_text, weir__str("mail-{stream}")));
    assert_int_equal(r.lanes_count, 1);
    assert_int_equal(r.lanes[0].threads, 4);
    assert_int_equal(r.lanes[0].lease_us, 5000000);
    assert_int_equal(r.lanes[0].target_limit, 10);
    assert_int_equal(r.lanes[0].event_limit, 10);
    assert_int_equal(r.lanes[0].cycle_us, 1000000);
    weir__registry_free(&r);
}

static void modes_and_numbers_are_what_was_said(void **state)
{
    (void)state;
    registry r = { 0 };
    weir_reaction d = right("pull");
    d.handle = NULL;
    d.retries = -1;
    d.from = WEIR_FROM_POSITION;
    d.from_position = 7;
    d.backoff_base_us = 60000000;
    d.priority_text = weir__str("-5");
    d.on = NULL;
    d.on_count = 0;
    d.source = (weir_str){ 0 };
    add(&r, d);
    d = right("program");
    d.handle = NULL;
    d.exec = "./mailer --fast";
    add(&r, d);
    d = right("projection");
    d.handle = NULL;
    d.project = project;
    add(&r, d);
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK); /* twice adds nothing */
    assert_int_equal(r.lanes_count, 1);

    assert_int_equal(r.reactions[0].mode, REACTION_PULL);
    assert_int_equal(r.reactions[0].retries, 0);
    assert_int_equal(r.reactions[0].start, STORE_START_POSITION);
    assert_int_equal(r.reactions[0].start_position, 7);
    assert_int_equal(r.reactions[0].backoff.cap_us, 60000000);
    assert_int_equal(r.reactions[0].priority, -5);
    assert_null(r.reactions[0].priority_text);
    assert_true(r.reactions[0].all_names);
    assert_true(weir__str_equal(r.reactions[0].source->text, weir__str("*")));
    assert_int_equal(r.reactions[1].mode, REACTION_EXEC);
    assert_string_equal(r.reactions[1].command.ptr, "./mailer --fast");
    assert_int_equal(r.reactions[2].mode, REACTION_PROJECT);
    assert_int_equal(r.reactions[2].deadline_us, 5000000);
    weir__registry_free(&r);
}

static void names_are_checked(void **state)
{
    (void)state;
    weir_reaction d = right("");
    refused(d, "reaction number 1: name \"\" has 0 bytes");
    refused(right("$own"), "starts with '$'");
    refused(right("a\nb"), "reaction number 1: name \"a?b\" has a control character");

    const weir_str bad[] = { { "", 0 }, { "$closed", 7 }, { "$other", 6 } };
    d = right("r");
    d.on = bad;
    d.on_count = 1;
    refused(d, "reaction \"r\": event name \"\" has 0 bytes");
    d.on = bad + 2;
    refused(d, "event name \"$other\" is none of Weir's own");
    d.on_count = REACTION_NAMES_MAX + 1;
    refused(d, "has 1001 event names, allowed 0 to 1000");
    d.on = NULL;
    d.on_count = 1;
    refused(d, "at NULL");

    registry r = { 0 };
    d.on = bad + 1; /* $closed may be listened to */
    add(&r, d);
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);
    weir__registry_free(&r);
}

static void patterns_and_templates_are_checked(void **state)
{
    (void)state;
    weir_reaction d = right("r");
    d.source = weir__str("a*b");
    refused(d, "reaction \"r\": source: ");
    d = right("r");
    d.to = weir__str("mail-{flow}");
    refused(d, "reaction \"r\": to: unknown placeholder \"{flow}\" at byte 5");
    d.to = (weir_str){ 0 };
    refused(d, "has no target, neither `to` nor `resolve`");
    d.to = weir__str("$x");
    refused(d, "target name \"$x\" starts with '$'");
    d = right("r");
    d.lane = weir__str("mail-{data.region}");
    refused(d, "a lane cannot be a template");
    d = right("r");
    d.priority_text = weir__str("high");
    refused(d, "priority \"high\" is not an integer");
    d.priority_text = weir__str("{data.}");
    refused(d, "priority: unknown placeholder");
    d.priority_text = weir__str("{data.urgency}");
    d.priority = 3;
    refused(d, "a priority template and a priority");
}

static int32_t resolve(void *ctx, const weir_event *e, weir_route *out, weir_error *err);

static void handlers_and_resolvers_exclude_each_other(void **state)
{
    (void)state;
    weir_reaction d = right("r");
    d.project = project;
    d.run = "./x";
    refused(d, "has 3 of handle, project, run and exec");
    d = right("r");
    d.handle = NULL;
    d.run = "";
    refused(d, "command has 0 bytes");
    d = right("r");
    d.resolve = resolve;
    refused(d, "has both `to` and `resolve`");
    d.to = (weir_str){ 0 };
    d.priority_text = weir__str("{data.urgency}");
    refused(d, "a priority template and a resolver");
}

static void numbers_have_limits(void **state)
{
    (void)state;
    weir_reaction d = right("r");
    d.retries = 1001;
    refused(d, "retries is 1001, allowed -1 (none) to 1000");
    d.retries = -2;
    refused(d, "retries is -2");
    d = right("r");
    d.backoff = 3;
    refused(d, "backoff is 3");
    d = right("r");
    d.poison = -1;
    refused(d, "poison is -1");
    d = right("r");
    d.backoff_base_us = -1;
    refused(d, "backoff base in us is -1");
    d.backoff_base_us = 2000;
    d.backoff_cap_us = 1000;
    refused(d, "backoff cap is 1000 us, less than the base of 2000 us");
    d = right("r");
    d.deadline_us = REACTION_DEADLINE_US_MAX + 1;
    refused(d, "deadline in us is 604800000001");
    d.deadline_us = 5000001;
    d.handle = NULL;
    d.project = project;
    refused(d, "deadline in us is 5000001, allowed 1000 to 5000000");
    d = right("r");
    d.from = 4;
    refused(d, "from is 4");
    d.from = WEIR_FROM_POSITION;
    d.from_position = -1;
    refused(d, "position -1 does not go");
    d.from = WEIR_FROM_NOW;
    d.from_position = 3;
    refused(d, "position 3 does not go");
    d = right("r");
    d.flags = 1;
    refused(d, "flags are 1");
    d = right("r");
    d.size = 2;
    refused(d, "reaction number 1: weir_reaction has size 2");
}

static void lanes_are_checked(void **state)
{
    (void)state;
    registry r = { 0 };
    add_lane(&r, (weir_lane){ .name = weir__str("mail"), .threads = -1 });
    add_lane(&r, (weir_lane){ .name = weir__str("mail") });
    add_lane(&r, (weir_lane){ .name = weir__str("slow"), .lease_us = 99999, .cycle_us = -1 });
    add_lane(&r,
             (weir_lane){ .name = weir__str("wide"), .target_limit = 1001, .event_limit = 1001 });
    add_lane(&r, (weir_lane){ .flags = 1 });
    weir_error err;
    assert_int_equal(weir__registry_check(&r, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "8 problems with reactions, the first: lane \"mail\": "
                                        "threads is -1, allowed 1 to 1000"));
    assert_non_null(
        strstr(err.detail, "; lane \"mail\": is declared twice; lane \"slow\": lease "));
    wrong(&r, 8, "lane \"wide\": event limit is 1001, allowed 1 to 1000\n");
}

static void a_lane_that_is_unknown_is_found_and_the_default_one_is_always_there(void **state)
{
    (void)state;
    registry r = { 0 };
    weir_reaction d = right("a");
    add(&r, d);
    d = right("b");
    d.lane = weir__str("post");
    add(&r, d);
    add_lane(&r, (weir_lane){ .name = weir__str("mail") });
    weir_error err;
    assert_int_equal(weir__registry_check(&r, &err), WEIR_EINVAL);
    assert_string_equal(err.message, "reaction \"b\": lane \"post\" is not declared, though others "
                                     "are");
    weir__registry_free(&r);

    add(&r, d);
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);
    assert_int_equal(r.lanes_count, 1);
    assert_true(weir__str_equal(r.lanes[0].name, weir__str("post")));
    weir__registry_free(&r);
}

static void reactions_are_compared_with_each_other(void **state)
{
    (void)state;
    registry r = { 0 };
    for (int i = 0; i < 3; i++) {
        add(&r, right("same"));
    }
    add(&r, right("other"));
    wrong(&r, 1, "reaction \"same\": is declared twice\n");

    weir_reaction d = right("a");
    d.to = weir__str("report");
    add(&r, d);
    d = right("b");
    d.to = weir__str("report");
    d.lane = weir__str("slow");
    add(&r, d);
    d = right("c");
    d.to = weir__str("other");
    d.lane = weir__str("slow");
    add(&r, d);
    wrong(&r, 1,
          "reaction \"b\": its target \"report\" is in lane \"slow\", with reaction \"a\" it is in "
          "lane \"default\": one target has one lane\n");
}

static void everything_that_is_wrong_is_told_at_once(void **state)
{
    (void)state;
    registry r = { 0 };
    weir_reaction d = right("a");
    d.retries = -7;
    d.source = weir__str("/(/");
    d.to = weir__str("{");
    add(&r, d);
    add(&r, right(""));
    add(&r, right("b"));
    add(&r, right("b"));
    wrong(&r, 5, "reaction \"b\": is declared twice\n");
}

static void there_is_a_largest_number_of_reactions(void **state)
{
    (void)state;
    registry r = { 0 };
    char name[16];
    for (int i = 0; i < REACTIONS_MAX; i++) {
        (void)snprintf(name, sizeof name, "r%d", i);
        add(&r, right(name));
    }
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);
    add(&r, right("one more"));
    add(&r, right("and one"));
    assert_int_equal(r.reactions_count, REACTIONS_MAX);
    wrong(&r, 1, "there are more than 1000 reactions");
}

static void no_memory_is_a_failure_that_leaves_a_registry_to_free(void **state)
{
    (void)state;
    uint64_t failures = 0;
    for (uint64_t nth = 1;; nth++) {
        registry r = { 0 };
        weir_reaction d = right("a");
        const weir_lane lane = { .size = sizeof lane, .name = weir__str("slow") };
        d.priority_text = weir__str("{data.p}");
        d.retries = (int32_t)(nth % 2) * 5000; /* a problem needs memory as well */
        weir__memory_fail_nth(nth);
        weir_status status = weir__registry_lane(&r, &lane, NULL);
        status = status == WEIR_OK ? weir__registry_reaction(&r, &d, NULL) : status;
        status = status == WEIR_OK ? weir__registry_check(&r, NULL) : status;
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(status, failed ? WEIR_ENOMEM : d.retries > 0 ? WEIR_EINVAL : WEIR_OK);
        weir__registry_free(&r);
        if (!failed) {
            break;
        }
        failures++;
    }
    assert_true(failures > 8);
}

/* ---- where events go ----------------------------------------------------------------------- */

static weir_event event(const char *stream, const char *name, const char *data)
{
    return (weir_event){ .size = sizeof(weir_event),
                         .id = 1,
                         .stream = weir__str(stream),
                         .name = weir__str(name),
                         .data = weir__str(data) };
}

static void a_reaction_listens_to_its_names_in_its_streams(void **state)
{
    (void)state;
    registry r = { 0 };
    weir_reaction d = right("a");
    add(&r, d);
    d = right("all");
    d.on_count = 0;
    d.source = (weir_str){ 0 };
    add(&r, d);
    const reaction *some = &r.reactions[0];
    const reaction *all = &r.reactions[1];
    assert_true(weir__reaction_listens(some, weir__str("OrderPlaced"), weir__str("order-1")));
    assert_true(weir__reaction_listens(some, weir__str("OrderConfirmed"), weir__str("order-1")));
    assert_false(weir__reaction_listens(some, weir__str("OrderPaid"), weir__str("order-1")));
    assert_false(weir__reaction_listens(some, weir__str("OrderPlaced"), weir__str("invoice-1")));
    assert_true(weir__reaction_listens(all, weir__str("Any"), weir__str("x")));
    assert_false(weir__reaction_listens(all, weir__str("$closed"), weir__str("x")));
    weir__registry_free(&r);
}

/* to -> target, value, source; or an error. */
static void goes(const char *to, const char *priority, weir_event e, const char *expected)
{
    registry r = { 0 };
    weir_reaction d = right("r");
    weir_arena arena = { 0 };
    reaction_route route = { 0 };
    weir_error err;
    char said[600];
    d.to = weir__str(to);
    d.priority_text = weir__str(priority);
    d.lane = weir__str("mail");
    add(&r, d);
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);
    const weir_status status = weir__reaction_resolve(&r.reactions[0], &e, &arena, &route, &err);
    if (status == WEIR_OK) {
        assert_true(weir__str_equal(route.lane, weir__str("mail")));
        (void)snprintf(said, sizeof said, "%.*s|%.*s|%.*s|%lld", (int)route.target.len,
                       route.target.ptr, (int)route.value.len,
                       route.value.ptr == NULL ? "" : route.value.ptr, (int)route.source.len,
                       route.source.ptr, (long long)route.priority);
    } else {
        assert_int_equal(status, WEIR_EINVAL);
        assert_null(route.target.ptr);
        (void)snprintf(said, sizeof said, "%s", err.message);
    }
    assert_string_equal(said, expected);
    weir__arena_free(&arena);
    weir__registry_free(&r);
}

static void a_template_gives_target_value_source_and_priority(void **state)
{
    (void)state;
    const weir_event e =
        event("order-1", "OrderPlaced", "{\"region\":\"eu\",\"p\":-3,\"s\":\"x\"}");
    goes("report", "", e, "report||order-*|0");
    goes("mail-{stream}", "7", e, "mail-order-1|order-1|order-1|7");
    goes("{category}s", "{data.p}", e, "orders|order|order-*|-3");
    goes("{name}", "1{data.p}", e, "OrderPlaced|OrderPlaced|order-*|0"); /* 1-3 is none */
    goes("{name}", "", e, "OrderPlaced|OrderPlaced|order-*|0");
    goes("{data.region}", "", e, "eu||order-1|0");
    goes("mail", "{data.s}", e, "mail||order-*|0");
    goes("mail", "{data.none}", e, "mail||order-*|0");
    goes("{data.none}", "", e, "target: the event has no \"data.none\"");
}

static void a_target_is_a_valid_name_or_refused(void **state)
{
    (void)state;
    static char stream[STORE_NAME_BYTES_MAX + 1];
    (void)memset(stream, 's', STORE_NAME_BYTES_MAX);
    registry r = { 0 };
    weir_arena arena = { 0 };
    reaction_route route = { 0 };
    weir_event e = event(stream, "OrderPlaced", "{}");
    add(&r, right("r"));
    assert_int_equal(weir__reaction_resolve(&r.reactions[0], &e, &arena, &route, NULL),
                     WEIR_EINVAL);
    e.stream.len -= 5; /* for "mail-" */
    assert_int_equal(weir__reaction_resolve(&r.reactions[0], &e, &arena, &route, NULL), WEIR_OK);
    assert_int_equal(route.target.len, STORE_NAME_BYTES_MAX);
    weir__arena_free(&arena);
    weir__registry_free(&r);
    goes("{data.t}", "", event("a", "b", "{\"t\":\"\"}"),
         "target: target name \"\" has 0 bytes, allowed 1 to 512");
    goes("{data.t}", "", event("a", "b", "{\"t\":\"$x\"}"),
         "target: target name \"$x\" starts with '$': such names are Weir's own");
    goes("{data.t}", "", event("a", "b", "{\"t\":\"a\\nb\"}"),
         "target: target name \"a?b\" has a control character at byte 1");
}

/* Answers with what ctx says, in memory that it uses again with the next call. */
static int32_t resolve(void *ctx, const weir_event *e, weir_route *out, weir_error *err)
{
    static char target[64];
    const char *say = ctx;
    (void)memset(target, '!', sizeof target);
    if (strcmp(say, "fail") == 0) {
        return weir__fail(err, WEIR_EIO, "no region for \"%.*s\"", (int)e->stream.len,
                          e->stream.ptr);
    }
    if (strcmp(say, "mute") == 0) {
        return -99;
    }
    const int len = snprintf(target, sizeof target, "%s", say);
    out->target = (weir_str){ .ptr = target, .len = (size_t)len };
    if (e->version == 1) {
        out->lane = weir__str("fast");
        out->source = weir__str("regions");
        out->priority = 9;
    }
    if (e->version == 2) {
        out->lane = weir__str("$fast");
    }
    return WEIR_OK;
}

static weir_status ask(const char *say, int64_t version, reaction_route *out, weir_arena *arena,
                       weir_error *err)
{
    static registry r;
    weir__registry_free(&r);
    if (say == NULL) {
        return WEIR_OK;
    }
    weir_reaction d = right("r");
    d.to = (weir_str){ 0 };
    d.resolve = resolve;
    d.resolver_revision = 12;
    d.priority = 4;
    d.ctx = (void *)(uintptr_t)say;
    add(&r, d);
    assert_int_equal(weir__registry_check(&r, NULL), WEIR_OK);
    assert_int_equal(r.reactions[0].rule, STORE_RULE_WORK);
    assert_true(weir__str_equal(r.reactions[0].rule_text, weir__str("resolver 12")));
    weir_event e = event("order-1", "OrderPlaced", "{}");
    e.version = version;
    return weir__reaction_resolve(&r.reactions[0], &e, arena, out, err);
}

static void a_resolver_decides_and_its_answer_is_copied(void **state)
{
    (void)state;
    weir_arena arena = { 0 };
    reaction_route plain = { 0 };
    reaction_route full = { 0 };
    reaction_route none = { .priority = 77 };
    weir_error err;
    assert_int_equal(ask("eu", 0, &plain, &arena, &err), WEIR_OK);
    assert_int_equal(plain.priority, 4);
    assert_true(weir__str_equal(plain.lane, weir__str("default")));
    assert_true(weir__str_equal(plain.source, weir__str("order-1")));
    assert_int_equal(plain.value.len, 0);
    assert_int_equal(ask("us", 1, &full, &arena, &err), WEIR_OK);
    assert_int_equal(full.priority, 9);
    assert_true(weir__str_equal(full.lane, weir__str("fast")));
    assert_true(weir__str_equal(full.source, weir__str("regions")));
    assert_true(weir__str_equal(plain.target, weir__str("eu"))); /* although the next call came */
    assert_int_equal(ask("", 0, &none, &arena, &err), WEIR_OK);
    assert_int_equal(none.target.len, 0);
    assert_int_equal(ask(NULL, 0, NULL, NULL, NULL), WEIR_OK);
    weir__arena_free(&arena);
}

static void a_resolver_that_fails_is_quoted(void **state)
{
    (void)state;
    weir_arena arena = { 0 };
    reaction_route route = { 0 };
    weir_error err;
    assert_int_equal(ask("fail", 0, &route, &arena, &err), WEIR_EINVAL);
    assert_string_equal(err.message, "the resolver failed: no region for \"order-1\"");
    assert_int_equal(ask("mute", 0, &route, &arena, &err), WEIR_EINVAL);
    assert_string_equal(err.message, "the resolver failed: unknown-status");
    assert_int_equal(ask("$own", 0, &route, &arena, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "the resolver's answer: target name \"$own\""));
    assert_int_equal(ask("eu", 2, &route, &arena, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "the resolver's answer: lane \"$fast\""));
    assert_null(route.target.ptr);
    assert_int_equal(ask(NULL, 0, NULL, NULL, NULL), WEIR_OK);
    weir__arena_free(&arena);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* The longest wait after an attempt: full jitter gives it when random is just that. */
static int64_t longest(backoff_kind kind, int64_t base, int64_t cap, int64_t attempt)
{
    const reaction q = { .backoff = { .kind = kind, .base_us = base, .cap_us = cap } };
    int64_t found = 0;
    for (uint64_t bit = UINT64_C(1) << 62; bit > 0; bit >>= 1) {
        /* random % (wait + 1) is random itself exactly up to the wait. */
        const uint64_t random = (uint64_t)found | bit;
        const int64_t itself = random < 1000 ? 1000 : (int64_t)random;
        if (weir__reaction_backoff_us(&q, attempt, random) == itself) {
            found = (int64_t)random;
        }
    }
    return found;
}

static void backoff_grows_as_its_kind_says_up_to_the_cap(void **state)
{
    (void)state;
    static const int64_t exponential[] = { 200000, 400000, 800000, 1600000, 2000000, 2000000 };
    static const int64_t linear[] = { 300000, 600000, 900000, 1000000, 1000000 };
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(longest(BACKOFF_EXPONENTIAL, 200000, 2000000, i + 1), exponential[i]);
    }
    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(longest(BACKOFF_LINEAR, 300000, 1000000, i + 1), linear[i]);
    }
}

static void C27_a_fixed_backoff_has_no_jitter(void **state)
{
    (void)state;
    static const uint64_t randoms[] = { 0, 1, 4999, 5000, 5001, UINT64_MAX };
    static const int64_t attempts[] = { 1, 2, 1000, INT64_MAX };
    const reaction q = { .backoff = { .kind = BACKOFF_FIXED, .base_us = 5000, .cap_us = 1000000 } };
    for (size_t i = 0; i < sizeof randoms / sizeof *randoms; i++) {
        for (size_t n = 0; n < sizeof attempts / sizeof *attempts; n++) {
            assert_int_equal(weir__reaction_backoff_us(&q, attempts[n], randoms[i]), 5000);
        }
    }
}

static void backoff_does_not_overflow(void **state)
{
    (void)state;
    static const int64_t attempts[] = { 0, -1, 1, 64, 1000000, INT64_MAX };
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
        const int64_t want = attempts[i] <= 1 ? 1000 : INT64_C(604800000000);
        if (attempts[i] != 64) {
            assert_int_equal(longest(BACKOFF_LINEAR, 1000, REACTION_BACKOFF_US_MAX, attempts[i]),
                             attempts[i] == 1000000 ? INT64_C(1000000000) : want);
        }
        assert_int_equal(longest(BACKOFF_EXPONENTIAL, 1000, REACTION_BACKOFF_US_MAX, attempts[i]),
                         want);
    }
    const int64_t large = INT64_MAX / 2 - 1;
    assert_int_equal(longest(BACKOFF_LINEAR, large, large, INT64_MAX), large);
    assert_int_equal(longest(BACKOFF_EXPONENTIAL, large - 1, large, INT64_MAX), large);
}

static void jitter_is_full_but_never_nothing(void **state)
{
    (void)state;
    const reaction q = { .backoff = { .kind = BACKOFF_LINEAR, .base_us = 10000, .cap_us = 10000 } };
    uint64_t random = 88172645463325252u;
    int64_t low = 0;
    for (int i = 0; i < 10000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const int64_t wait = weir__reaction_backoff_us(&q, 1, random);
        assert_in_range(wait, 1000, 10000);
        low += wait < 5000;
    }
    assert_in_range(low, 4500, 5500);
    assert_int_equal(weir__reaction_backoff_us(&q, 1, 0), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_right_is_kept_with_its_defaults),
        cmocka_unit_test(modes_and_numbers_are_what_was_said),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(patterns_and_templates_are_checked),
        cmocka_unit_test(handlers_and_resolvers_exclude_each_other),
        cmocka_unit_test(numbers_have_limits),
        cmocka_unit_test(lanes_are_checked),
        cmocka_unit_test(a_lane_that_is_unknown_is_found_and_the_default_one_is_always_there),
        cmocka_unit_test(reactions_are_compared_with_each_other),
        cmocka_unit_test(everything_that_is_wrong_is_told_at_once),
        cmocka_unit_test(there_is_a_largest_number_of_reactions),
        cmocka_unit_test(no_memory_is_a_failure_that_leaves_a_registry_to_free),
        cmocka_unit_test(a_reaction_listens_to_its_names_in_its_streams),
        cmocka_unit_test(a_template_gives_target_value_source_and_priority),
        cmocka_unit_test(a_target_is_a_valid_name_or_refused),
        cmocka_unit_test(a_resolver_decides_and_its_answer_is_copied),
        cmocka_unit_test(a_resolver_that_fails_is_quoted),
        cmocka_unit_test(backoff_grows_as_its_kind_says_up_to_the_cap),
        cmocka_unit_test(C27_a_fixed_backoff_has_no_jitter),
        cmocka_unit_test(backoff_does_not_overflow),
        cmocka_unit_test(jitter_is_full_but_never_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
