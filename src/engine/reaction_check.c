/* reaction_check.c - taking declarations: copied, checked, and everything that is wrong told at
 * once.
 *
 * INVARIANTS
 *   (1) A declaration that is wrong leaves a problem behind, and weir__registry_check fails; so
 *       nobody sees a reaction of which a part is missing. One that memory ran out for is dropped.
 *   (2) Problems are one line each and name the reaction or lane; nothing in them comes unchecked
 *       from a declaration (weir__fail has cleaned it).
 */
#include "engine/reaction.h"

#include "base/error.h"
#include "base/str.h"
#include "base/struct.h"
#include "engine/template.h"
#include "store/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_SHOWN_BYTES_MAX = 64, LABEL_BYTES = 96 };

/* One declaration while it is looked at. */
typedef struct checker {
    registry *registry;
    char label[LABEL_BYTES]; /* who is concerned: reaction "confirm-order" */
    bool full;               /* out of memory; what is known by then does not count */
} checker;

/* ---- problems ------------------------------------------------------------------------------ */

bool weir__registry_problem(registry *r, const char *line)
{
    const size_t before = r->problems.len;
    if (!weir__buffer_add_text(&r->problems, line) || !weir__buffer_add_text(&r->problems, "\n")) {
        r->problems.len = before;
        return false;
    }
    r->problems_count++;
    return true;
}

weir_status weir__registry_report(const registry *r, weir_error *err)
{
    const char *text = r->problems.ptr;
    const size_t first = strcspn(text, "\n");
    char joined[sizeof err->detail];
    size_t used = 0;

    /* Texts of an error have no line ends. */
    for (size_t i = 0; i + 1 < r->problems.len && used + 3 < sizeof joined; i++) {
        if (text[i] == '\n') {
            joined[used++] = ';';
        }
        joined[used++] = text[i] == '\n' ? ' ' : text[i];
    }
    if (r->problems_count == 1) {
        return weir__fail(err, WEIR_EINVAL, "%.*s", (int)first, text);
    }
    (void)weir__fail(err, WEIR_EINVAL, "%zu problems with reactions, the first: %.*s",
                     r->problems_count, (int)first, text);
    weir__error_detail(err, "%.*s", (int)used, joined);
    return WEIR_EINVAL;
}

static void complain_error(checker *c, const weir_error *why)
{
    weir_error line = *why;
    (void)weir__wrap(&line, WEIR_EINVAL, "%s", c->label);
    c->full |= !weir__registry_problem(c->registry, line.message);
}

static void check_complain(checker *c, const char *format, ...) WEIR_PRINTF(2, 3);

static void check_complain(checker *c, const char *format, ...)
{
    char text[sizeof((weir_error *)NULL)->message];
    weir_error why;
    va_list args;
    va_start(args, format);
    const int rc = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)weir__fail(&why, WEIR_EINVAL, "%s", rc < 0 ? "" : text);
    complain_error(c, &why);
}

/* A failure of something that checks: a problem, unless memory ran out. */
static bool field_passed(checker *c, weir_status status, const weir_error *why)
{
    if (status == WEIR_ENOMEM) {
        c->full = true;
    } else if (status != WEIR_OK) {
        complain_error(c, why);
    }
    return status == WEIR_OK;
}

static bool name_passes(checker *c, const char *what, weir_str name, bool own)
{
    weir_error why;
    return field_passed(c, weir__name_check(what, name, own, &why), &why);
}

static void label_set(checker *c, const char *what, weir_str name, size_t number)
{
    const int len = (int)(name.len > NAME_SHOWN_BYTES_MAX ? NAME_SHOWN_BYTES_MAX : name.len);
    if (len > 0 && name.ptr != NULL) {
        (void)snprintf(c->label, sizeof c->label, "%s \"%.*s\"", what, len, name.ptr);
    } else {
        (void)snprintf(c->label, sizeof c->label, "%s number %zu", what, number);
    }
}

static weir_str text_keep(checker *c, weir_str text)
{
    const char *copy =
        weir__arena_copy(&c->registry->arena, text.ptr == NULL ? "" : text.ptr, text.len);
    c->full |= copy == NULL;
    return (weir_str){ .ptr = copy, .len = copy == NULL ? 0 : text.len };
}

/* `said`, or the default when it is 0. */
static int64_t number_or(checker *c, const char *what, int64_t said, int64_t otherwise, int64_t min,
                         int64_t max)
{
    if (said != 0 && (said < min || said > max)) {
        check_complain(c, "%s is %" PRId64 ", allowed %" PRId64 " to %" PRId64, what, said, min,
                       max);
        return otherwise;
    }
    return said == 0 ? otherwise : said;
}

/* ---- one reaction -------------------------------------------------------------------------- */

static void event_name_check(checker *c, weir_str name)
{
    if (!name_passes(c, "event name", name, true)) {
        return;
    }
    if (name.ptr[0] == '$' && !weir__str_equal(name, weir__str("$closed"))) {
        check_complain(c, "event name \"%.*s\" is none of Weir's own, there is only \"$closed\"",
                       (int)name.len, name.ptr);
    }
}

/* Sorted and distinct: the store and every comparison of definitions want them so. */
static void take_names(checker *c, reaction *q, const weir_reaction *d)
{
    if (d->on_count == 0) {
        q->all_names = true;
        return;
    }
    if (d->on == NULL || d->on_count > REACTION_NAMES_MAX) {
        check_complain(c, "has %zu event names%s, allowed 0 to %d", d->on_count,
                       d->on == NULL ? " at NULL" : "", REACTION_NAMES_MAX);
        return;
    }
    weir_str *names = weir__arena_alloc(&c->registry->arena, d->on_count * sizeof *names);
    if (names == NULL) {
        c->full = true;
        return;
    }
    for (size_t i = 0; i < d->on_count; i++) {
        event_name_check(c, d->on[i]);
        names[i] = text_keep(c, d->on[i]);
    }
    q->names = names;
    q->names_count = weir__names_sort(names, d->on_count);
}

static void take_source(checker *c, reaction *q, const weir_reaction *d)
{
    weir_error why;
    const weir_str text = d->source.len == 0 ? weir__str("*") : d->source;
    weir_status status = weir__pattern_open(&q->source, text, &why);
    if (status != WEIR_OK && status != WEIR_ENOMEM) {
        status = weir__wrap(&why, status, "source");
    }
    (void)field_passed(c, status, &why);
}

static template_text *take_template(checker *c, const char *what, weir_str text)
{
    template_text *t = NULL;
    weir_error why;
    weir_status status = weir__template_open(&t, text, &why);
    if (status != WEIR_OK && status != WEIR_ENOMEM) {
        status = weir__wrap(&why, status, "%s", what);
    }
    (void)field_passed(c, status, &why);
    return t;
}

/* What a template without placeholders gives; it does not look at the event. */
static weir_str constant_of(const template_text *t)
{
    const weir_event nothing = { 0 };
    weir_str text = { 0 };
    const weir_status status = weir__template_fill(t, &nothing, NULL, &text, NULL);
    return status == WEIR_OK ? text : (weir_str){ 0 };
}

static void take_target(checker *c, reaction *q, const weir_reaction *d)
{
    q->resolve = d->resolve;
    q->resolver_revision = d->resolver_revision;
    if ((d->to.len > 0) == (d->resolve != NULL)) {
        check_complain(c, d->resolve != NULL ? "has both `to` and `resolve`, one of them is allowed"
                                             : "has no target, neither `to` nor `resolve`");
        return;
    }
    if (d->resolve != NULL) {
        char text[40];
        (void)snprintf(text, sizeof text, "resolver %" PRId64, d->resolver_revision);
        q->rule = STORE_RULE_WORK;
        q->rule_text = text_keep(c, weir__str(text));
        return;
    }
    q->to = take_template(c, "to", d->to);
    if (q->to == NULL) {
        return;
    }
    q->rule = weir__template_rule(q->to);
    q->rule_text = text_keep(c, d->to);
    if (q->rule == STORE_RULE_CONSTANT) {
        (void)name_passes(c, "target name", constant_of(q->to), false);
    }
}

static void take_priority(checker *c, reaction *q, const weir_reaction *d)
{
    q->priority = d->priority;
    if (d->priority_text.len == 0) {
        return;
    }
    if (d->resolve != NULL || d->priority != 0) {
        check_complain(c, "has a priority template and %s, one of them is allowed",
                       d->resolve != NULL ? "a resolver" : "a priority");
        return;
    }
    q->priority_text = take_template(c, "priority", d->priority_text);
    if (q->priority_text == NULL || weir__template_rule(q->priority_text) != STORE_RULE_CONSTANT) {
        return;
    }
    if (!weir__str_to_i64(constant_of(q->priority_text), &q->priority)) {
        check_complain(c, "priority \"%.*s\" is not an integer", (int)d->priority_text.len,
                       d->priority_text.ptr);
    }
    weir__template_close(q->priority_text);
    q->priority_text = NULL;
}

static void take_lane(checker *c, reaction *q, const weir_reaction *d)
{
    const weir_str lane = d->lane.len == 0 ? weir__str("default") : d->lane;
    if (name_passes(c, "lane", lane, false) && memchr(lane.ptr, '{', lane.len) != NULL) {
        check_complain(c, "lane \"%.*s\" has a brace: a lane cannot be a template", (int)lane.len,
                       lane.ptr);
    }
    q->lane = text_keep(c, lane);
}

static void take_handler(checker *c, reaction *q, const weir_reaction *d)
{
    const int handlers =
        (d->handle != NULL) + (d->project != NULL) + (d->run != NULL) + (d->exec != NULL);
    if (handlers > 1) {
        check_complain(c, "has %d of handle, project, run and exec, at most one is allowed",
                       handlers);
    }
    q->mode = d->handle != NULL    ? REACTION_HANDLE
              : d->project != NULL ? REACTION_PROJECT
              : d->run != NULL     ? REACTION_RUN
              : d->exec != NULL    ? REACTION_EXEC
                                   : REACTION_PULL;
    q->handle = d->handle;
    q->project = d->project;
    q->ctx = d->ctx;
    if (d->run != NULL || d->exec != NULL) {
        const weir_str command = weir__str(d->run != NULL ? d->run : d->exec);
        if (command.len == 0 || command.len > REACTION_COMMAND_BYTES_MAX) {
            check_complain(c, "command has %zu bytes, allowed 1 to %d", command.len,
                           REACTION_COMMAND_BYTES_MAX);
        } else {
            q->command = text_keep(c, command);
        }
    }
}

static void take_failures(checker *c, reaction *q, const weir_reaction *d)
{
    if (d->retries < WEIR_NONE || d->retries > REACTION_RETRIES_MAX) {
        check_complain(c, "retries is %d, allowed -1 (none) to %d", d->retries,
                       REACTION_RETRIES_MAX);
    }
    q->retries = d->retries == 0 ? REACTION_RETRIES_DEFAULT : d->retries < 0 ? 0 : d->retries;
    if (d->backoff < WEIR_BACKOFF_EXPONENTIAL || d->backoff > WEIR_BACKOFF_LINEAR) {
        check_complain(c, "backoff is %d, allowed are exponential, fixed and linear (0 to 2)",
                       d->backoff);
    }
    if (d->poison < WEIR_POISON_BLOCK || d->poison > WEIR_POISON_RETRY) {
        check_complain(c, "poison is %d, allowed are block, park and retry (0 to 2)", d->poison);
    }
    q->poison = (poison_policy)d->poison;
    q->backoff.kind = (backoff_kind)d->backoff;
    q->backoff.base_us =
        number_or(c, "backoff base in us", d->backoff_base_us, REACTION_BACKOFF_BASE_US,
                  REACTION_DURATION_US_MIN, REACTION_BACKOFF_US_MAX);
    /* A base above the default cap is what was meant: nothing shorter. */
    const int64_t cap =
        q->backoff.base_us > REACTION_BACKOFF_CAP_US ? q->backoff.base_us : REACTION_BACKOFF_CAP_US;
    q->backoff.cap_us = number_or(c, "backoff cap in us", d->backoff_cap_us, cap,
                                  REACTION_DURATION_US_MIN, REACTION_BACKOFF_US_MAX);
    if (q->backoff.cap_us < q->backoff.base_us) {
        check_complain(c, "backoff cap is %" PRId64 " us, less than the base of %" PRId64 " us",
                       q->backoff.cap_us, q->backoff.base_us);
    }
    const bool project = d->project != NULL;
    q->deadline_us = number_or(c, "deadline in us", d->deadline_us,
                               project ? REACTION_PROJECT_US_MAX : REACTION_DEADLINE_US_DEFAULT,
                               REACTION_DURATION_US_MIN,
                               project ? REACTION_PROJECT_US_MAX : REACTION_DEADLINE_US_MAX);
}

static void take_start(checker *c, reaction *q, const weir_reaction *d)
{
    static const int32_t starts[] = { -1, STORE_START_BEGINNING, STORE_START_NOW,
                                      STORE_START_POSITION };
    if (d->from < WEIR_FROM_DEFAULT || d->from > WEIR_FROM_POSITION) {
        check_complain(c, "from is %d, allowed are start, now and a position (1 to 3)", d->from);
        return;
    }
    if (d->from == WEIR_FROM_POSITION ? d->from_position < 0 : d->from_position != 0) {
        check_complain(c,
                       "position %" PRId64
                       " does not go with its `from` (0 or more with a position, "
                       "0 with the others)",
                       d->from_position);
    }
    q->start = starts[d->from];
    q->start_position = d->from_position;
}

/* The next place of an array that grows; zeroed. NULL: out of memory. */
static void *array_next(void **array, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count == *capacity) {
        const size_t more = *capacity == 0 ? 8 : *capacity * 2;
        void *grown = weir__realloc(*array, more * item_bytes);
        if (grown == NULL) {
            return NULL;
        }
        *array = grown;
        *capacity = more;
    }
    void *place = (char *)*array + count * item_bytes;
    memset(place, 0, item_bytes);
    return place;
}

weir_status weir__registry_reaction(registry *r, const weir_reaction *declared, weir_error *err)
{
    checker c = { .registry = r };
    weir_reaction d = { 0 };
    weir_error why;
    void *array = r->reactions;

    r->checked = false;
    r->declared_count++;
    label_set(&c, "reaction", (weir_str){ 0 }, r->declared_count);
    if (r->declared_count > REACTIONS_MAX) {
        if (r->declared_count == REACTIONS_MAX + 1) {
            check_complain(&c, "there are more than %d reactions", REACTIONS_MAX);
        }
        goto out;
    }
    if (!field_passed(&c, weir__struct_copy(&d, sizeof d, declared, "weir_reaction", &why), &why)) {
        goto out;
    }
    reaction *q = array_next(&array, r->reactions_count, &r->reactions_capacity, sizeof *q);
    r->reactions = array;
    if (q == NULL) {
        c.full = true;
        goto out;
    }
    r->reactions_count++;
    if (name_passes(&c, "name", d.name, false)) {
        label_set(&c, "reaction", d.name, r->declared_count);
    }
    if (d.flags != 0) {
        check_complain(&c, "flags are %" PRIu32 ", allowed 0", d.flags);
    }
    q->name = text_keep(&c, d.name);
    take_names(&c, q, &d);
    take_source(&c, q, &d);
    take_target(&c, q, &d);
    take_priority(&c, q, &d);
    take_lane(&c, q, &d);
    take_handler(&c, q, &d);
    take_failures(&c, q, &d);
    take_start(&c, q, &d);
    if (c.full) {
        weir__reaction_clear(&r->reactions[--r->reactions_count]);
    }
out:
    return c.full ? weir__fail(err, WEIR_ENOMEM, "could not keep a reaction") : WEIR_OK;
}

/* ---- one lane ------------------------------------------------------------------------------ */

static bool lane_add(registry *r, const lane_config *config)
{
    void *array = r->lanes;
    lane_config *l = array_next(&array, r->lanes_count, &r->lanes_capacity, sizeof *l);
    r->lanes = array;
    if (l == NULL) {
        return false;
    }
    *l = *config;
    r->lanes_count++;
    return true;
}

static const lane_config *lane_find(const registry *r, weir_str name)
{
    for (size_t i = 0; i < r->lanes_count; i++) {
        if (weir__str_equal(r->lanes[i].name, name)) {
            return &r->lanes[i];
        }
    }
    return NULL;
}

static lane_config lane_from(checker *c, const weir_lane *d)
{
    return (lane_config){
        .name = text_keep(c, d->name),
        .threads = (int32_t)number_or(c, "threads", d->threads, 4, 1, LANE_THREADS_MAX),
        .lease_us = number_or(c, "lease in us", d->lease_us, INT64_C(5000000), LANE_LEASE_US_MIN,
                              LANE_DURATION_US_MAX),
        .target_limit =
            (int32_t)number_or(c, "target limit", d->target_limit, 10, 1, STORE_LEASE_TARGETS_MAX),
        .event_limit =
            (int32_t)number_or(c, "event limit", d->event_limit, 10, 1, STORE_CHUNK_EVENTS_MAX),
        .cycle_us = number_or(c, "cycle in us", d->cycle_us, INT64_C(1000000), LANE_CYCLE_US_MIN,
                              LANE_DURATION_US_MAX),
    };
}

weir_status weir__registry_lane(registry *r, const weir_lane *declared, weir_error *err)
{
    checker c = { .registry = r };
    weir_lane d = { 0 };
    weir_error why;

    r->checked = false;
    label_set(&c, "lane", (weir_str){ 0 }, r->lanes_count + 1);
    if (!field_passed(&c, weir__struct_copy(&d, sizeof d, declared, "weir_lane", &why), &why)) {
        goto out;
    }
    if (name_passes(&c, "name", d.name, false)) {
        label_set(&c, "lane", d.name, 0);
    }
    if (d.flags != 0) {
        check_complain(&c, "flags are %" PRIu32 ", allowed 0", d.flags);
    }
    if (r->lanes_count >= LANES_MAX) {
        check_complain(&c, "there are more than %d lanes", LANES_MAX);
        goto out;
    }
    if (lane_find(r, d.name) != NULL) {
        check_complain(&c, "is declared twice");
        goto out;
    }
    const lane_config config = lane_from(&c, &d);
    c.full |= c.full || !lane_add(r, &config);
out:
    return c.full ? weir__fail(err, WEIR_ENOMEM, "could not keep a lane") : WEIR_OK;
}

/* ---- all together -------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const reaction *x = *(const reaction *const *)a;
    const reaction *y = *(const reaction *const *)b;
    return weir__str_compare(x->name, y->name);
}

static weir_str constant_target(const reaction *q)
{
    return q->to != NULL && q->rule == STORE_RULE_CONSTANT ? constant_of(q->to) : (weir_str){ 0 };
}

static int compare_targets(const void *a, const void *b)
{
    const reaction *x = *(const reaction *const *)a;
    const reaction *y = *(const reaction *const *)b;
    const int order = weir__str_compare(constant_target(x), constant_target(y));
    return order != 0 ? order : weir__str_compare(x->name, y->name);
}

static void twice_check(checker *c, const reaction **sorted, size_t count)
{
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count; i++) {
        const weir_str name = sorted[i]->name;
        const bool again = i > 1 && weir__str_equal(name, sorted[i - 2]->name);
        if (name.len > 0 && !again && weir__str_equal(name, sorted[i - 1]->name)) {
            label_set(c, "reaction", name, 0);
            check_complain(c, "is declared twice");
        }
    }
}

/* Only constant targets can be compared now; for the others the store refuses (C19). */
static void target_lanes_check(checker *c, const reaction **sorted, size_t count)
{
    qsort(sorted, count, sizeof *sorted, compare_targets);
    for (size_t i = 1; i < count; i++) {
        const reaction *a = sorted[i - 1];
        const reaction *b = sorted[i];
        const weir_str target = constant_target(b);
        if (target.len > 0 && weir__str_equal(target, constant_target(a)) &&
            !weir__str_equal(a->lane, b->lane)) {
            label_set(c, "reaction", b->name, 0);
            check_complain(
                c,
                "its target \"%.*s\" is in lane \"%.*s\", with reaction \"%.*s\" it is in "
                "lane \"%.*s\": one target has one lane",
                (int)target.len, target.ptr, (int)b->lane.len, b->lane.ptr, (int)a->name.len,
                a->name.ptr, (int)a->lane.len, a->lane.ptr);
        }
    }
}

static void lanes_check(checker *c)
{
    registry *r = c->registry;
    const bool explicit_lanes = r->lanes_count > 0;
    for (size_t i = 0; i < r->reactions_count; i++) {
        const reaction *q = &r->reactions[i];
        if (q->lane.len == 0 || lane_find(r, q->lane) != NULL) {
            continue;
        }
        if (explicit_lanes && !weir__str_equal(q->lane, weir__str("default"))) {
            label_set(c, "reaction", q->name, i + 1);
            check_complain(c, "lane \"%.*s\" is not declared, though others are", (int)q->lane.len,
                           q->lane.ptr);
            continue;
        }
        const weir_lane defaults = { .size = sizeof defaults, .name = q->lane };
        const lane_config config = lane_from(c, &defaults);
        c->full |= !lane_add(r, &config);
    }
}

weir_status weir__registry_check(registry *r, weir_error *err)
{
    checker c = { .registry = r };
    if (!r->checked && r->reactions_count > 0) {
        const reaction **sorted = weir__calloc(r->reactions_count, sizeof *sorted);
        if (sorted == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "could not check the reactions");
        }
        for (size_t i = 0; i < r->reactions_count; i++) {
            sorted[i] = &r->reactions[i];
        }
        twice_check(&c, sorted, r->reactions_count);
        target_lanes_check(&c, sorted, r->reactions_count);
        lanes_check(&c);
        weir__free(sorted);
    }
    if (c.full) {
        return weir__fail(err, WEIR_ENOMEM, "could not check the reactions");
    }
    r->checked = true;
    return r->problems_count == 0 ? WEIR_OK : weir__registry_report(r, err);
}
