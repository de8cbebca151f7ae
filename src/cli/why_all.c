/* why_all.c - weir why without a target: everything that is stuck, worst first.
 *
 * First the targets that a failure or an operator holds, each with the answer that weir why gives
 * for it alone; of many, the first ones are explained and the others counted. Then lanes that are
 * paused, and what weir doctor says about work that waits for nobody.
 */
#include "cli/why.h"

#include <inttypes.h>
#include <stdio.h>

enum { EXPLAINED_MAX = 20 };

/* Worst first. */
typedef enum stuck_kind {
    STUCK_BLOCKED,
    STUCK_BEYOND,
    STUCK_RETRYING,
    STUCK_PAUSED,
    STUCK_KINDS_COUNT
} stuck_kind;

typedef struct stuck {
    cli *c;
    why_facts *f;
    weir_arena arena;
    weir_str names[STUCK_KINDS_COUNT][EXPLAINED_MAX]; /* in the arena */
    int64_t counts[STUCK_KINDS_COUNT];
    int64_t items; /* that were shown */
    bool no_memory;
} stuck;

/* A `wants` of cli_target_sink: takes note of what is stuck. A target whose lane is paused is not
 * noted: the lane is told of. */
static bool note_target(void *ctx, const store_target *t, bool *wanted)
{
    stuck *s = ctx;
    const cli_target_state state = weir__cli_target_state(t);
    const bool beyond = weir__cli_is_beyond(t, s->f->positions.head, NULL, NULL);
    const stuck_kind kind = state == CLI_TARGET_BLOCKED               ? STUCK_BLOCKED
                            : beyond                                  ? STUCK_BEYOND
                            : state == CLI_TARGET_RETRYING            ? STUCK_RETRYING
                            : state == CLI_TARGET_PAUSED && t->paused ? STUCK_PAUSED
                                                                      : STUCK_KINDS_COUNT;

    *wanted = false;
    if (kind == STUCK_KINDS_COUNT) {
        return true;
    }
    if (s->counts[kind] < EXPLAINED_MAX) {
        const weir_str copy = { .ptr = weir__arena_copy(&s->arena, t->name.ptr, t->name.len),
                                .len = t->name.len };
        s->names[kind][s->counts[kind]] = copy;
        s->no_memory = copy.ptr == NULL;
    }
    s->counts[kind]++;
    return !s->no_memory;
}

/* ---- one item ------------------------------------------------------------------------------- */

/* w: its reason, answer and what is next. advice: a sentence instead of commands; may be NULL. */
static void stuck_show(stuck *s, weir_str target, const why *w, const char *advice)
{
    const weir_str answer = { w->answer.ptr, w->answer.len };
    weir_buffer text = { 0 };
    bool ok = !w->failed;

    s->items++;
    if (s->c->out.json) {
        ok = ok && weir__cli_why_json_next(&text, w);
        const report_field fields[] = {
            { .name = "target", .type = REPORT_STR, .text = weir__cli_or_null(target) },
            { .name = "reason", .type = REPORT_STR, .text = weir__str(w->reason) },
            { .name = "answer", .type = REPORT_STR, .text = answer },
            { .name = "next", .type = REPORT_RAW, .text = { text.ptr, text.len } },
            { .name = "advice", .type = REPORT_STR, .text = weir__str(advice) },
        };
        ok = ok && (weir__cli_row(&s->c->out, fields, sizeof fields / sizeof fields[0]) || true);
    } else {
        const report_screen *screen = &s->c->out.screen;
        ok =
            ok && (s->items == 1 || weir__buffer_add(&text, "\n", 1)) &&
            weir__report_wrap(&text, screen, answer, "", "") &&
            weir__cli_why_add_next(&text, screen, w) &&
            (advice == NULL || weir__report_wrap(&text, screen, weir__str(advice), "    ", "    "));
        ok = ok && (weir__cli_put(&s->c->out, (weir_str){ text.ptr, text.len }) || true);
    }
    s->no_memory = s->no_memory || !ok;
    weir__buffer_free(&text);
}

static why stuck_begin(const stuck *s)
{
    static const report_screen exact = { 0 };

    return (why){ .f = s->f,
                  .screen = s->c->out.json ? &exact : &s->c->out.screen,
                  .store = s->c->store };
}

/* ---- targets -------------------------------------------------------------------------------- */

static weir_status target_explain(stuck *s, weir_store *store, weir_str name, weir_error *err)
{
    why w = stuck_begin(s);
    weir_status status = weir__cli_why_collect(store, name, s->f, err);

    if (status == WEIR_OK) {
        weir__cli_why_judge(&w);
        stuck_show(s, name, &w, NULL);
    }
    weir__cli_why_free(&w);
    return status == WEIR_ENOTFOUND ? WEIR_OK : status;
}

/* Those that were not explained. */
static void count_rest(stuck *s, int64_t rest)
{
    why w = stuck_begin(s);
    char text[96];

    (void)snprintf(text, sizeof text, "%" PRId64 " more target%s stuck", rest,
                   rest == 1 ? " is" : "s are");
    w.reason = "more";
    w.failed = !weir__buffer_add_text(&w.answer, text);
    weir__cli_why_next(&w, "those that need attention come first", "targets", (weir_str){ 0 });
    stuck_show(s, (weir_str){ 0 }, &w, NULL);
    weir__cli_why_free(&w);
}

static weir_status explain_targets(stuck *s, weir_store *store, weir_error *err)
{
    weir_status status = WEIR_OK;
    int64_t all = 0, shown = 0;

    for (size_t kind = 0; kind < STUCK_KINDS_COUNT; kind++) {
        all += s->counts[kind];
        for (int64_t i = 0; status == WEIR_OK && i < s->counts[kind] && shown < EXPLAINED_MAX;
             i++) {
            shown++;
            status = target_explain(s, store, s->names[kind][i], err);
        }
    }
    if (status == WEIR_OK && all > shown) {
        count_rest(s, all - shown);
    }
    return status;
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void tell_lane(stuck *s, const store_lane *l)
{
    why w = stuck_begin(s);
    char text[1024];

    (void)snprintf(text, sizeof text, "lane %.*s is paused by %.*s", (int)l->lane.len, l->lane.ptr,
                   (int)l->paused_by.len, l->paused_by.ptr);
    w.reason = "lane-paused";
    w.failed = !weir__buffer_add_text(&w.answer, text);
    weir__cli_why_next(&w, "let the lane continue", "resume --lane", l->lane);
    stuck_show(s, (weir_str){ 0 }, &w, NULL);
    weir__cli_why_free(&w);
}

/* A store_survey_fn. Targets have been explained; what was retired is not stuck, but given up. */
static void tell_finding(void *ctx, bool act, const char *rule, const char *text,
                         const char *advice)
{
    stuck *s = ctx;
    why w = stuck_begin(s);

    (void)act;
    if (strcmp(rule, "blocked") != 0 && strcmp(rule, "beyond-log") != 0 &&
        strcmp(rule, "retired-reaction") != 0) {
        w.reason = rule;
        w.failed = !weir__buffer_add_text(&w.answer, text);
        stuck_show(s, (weir_str){ 0 }, &w, advice);
    }
    weir__cli_why_free(&w);
}

weir_status weir__cli_why_all(cli *c, weir_store *store, weir_error *err)
{
    why_facts facts = { 0 };
    stuck s = { .c = c, .f = &facts };
    const cli_target_sink sink = { .wants = note_target, .ctx = &s, .head = &facts.positions.head };
    const store_target_filter all = { 0 };
    weir_status status = weir__cli_why_look(store, &facts, err);

    if (status == WEIR_OK) {
        status = weir__cli_targets_each(store, &all, INT64_MAX, &sink, err);
    }
    if (status == WEIR_OK) {
        status = explain_targets(&s, store, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < facts.lanes.lanes_count; i++) {
        if (facts.lanes.lanes[i].paused) {
            tell_lane(&s, &facts.lanes.lanes[i]);
        }
    }
    if (status == WEIR_OK) {
        status = weir__cli_doctor_work(store, tell_finding, &s, err);
    }
    if (status == WEIR_OK && s.no_memory) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (status == WEIR_OK && s.items == 0 && !c->out.json) {
        (void)weir__cli_print(&c->out, "Nothing is stuck.\n");
    }
    weir__arena_free(&s.arena);
    weir__cli_why_facts_free(&facts);
    return status;
}
