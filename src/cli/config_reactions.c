/* config_reactions.c - lanes and reactions of a weir.yaml, see weir.yaml(5).
 *
 *     lanes:
 *       mail: { threads: 4, lease: 10s }
 *     reactions:
 *       - name: confirm-order
 *         on: [OrderConfirmed]
 *         to: "mail-{stream}"
 *         lane: mail
 *         run: ./send-confirmation
 *
 * Every value is checked where it stands. What the engine would still find afterwards is told
 * without a place; there should be nothing of that kind, and it is an error all the same.
 */
#include "cli/config_reactions.h"
#include "cli/cli.h"
#include "cli/config_tables.h"
#include "cli/config_yaml.h"
#include "engine/reaction.h"
#include "engine/room.h"
#include "engine/template.h"
#include "store/request.h"

#include <assert.h>

/* A reaction while it is read, with the places that are compared with those of others. */
typedef struct parsed_reaction {
    weir_reaction r;
    const yaml_node_t *name_at, *lane_at, *to_at, *cap_at;
} parsed_reaction;

/* A file while it is read. */
typedef struct reading {
    cli_config *config;
    const char *store;       /* in the config's arena */
    parsed_reaction *parsed; /* owned */
    size_t parsed_count;
    config_tables tables; /* looked at, and left to who claims */
} reading;

/* ---- parts of a reaction ------------------------------------------------------------------- */

static bool value_passes(config_file *f, const yaml_node_t *at, weir_status status,
                         const weir_error *why)
{
    if (status == WEIR_ENOMEM) {
        f->full = true;
    } else if (status != WEIR_OK) {
        weir__config_problem(f, at, "%s", why->message);
    }
    return status == WEIR_OK;
}

static bool take_checked_name(config_file *f, const char *key, const char *what,
                              const yaml_node_t *value, weir_str *out)
{
    weir_str text = { 0 };
    weir_error why;

    if (!weir__config_text(f, key, value, "a name", &text) ||
        !value_passes(f, value, weir__name_check(what, text, false, &why), &why)) {
        return false;
    }
    *out = text;
    return true;
}

static void take_name(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;

    p->name_at = value;
    (void)take_checked_name(f, key->name, "reaction name", value, &p->r.name);
}

/* One event name; `*` is no name but all of them, and stands alone. */
static bool take_event(config_file *f, const yaml_node_t *value, weir_str *out)
{
    weir_str text;

    if (weir__config_scalar(value, &text) && weir__str_equal(text, weir__str("*"))) {
        weir__config_problem(
            f, value, "\"on\" has \"*\" in a list, expected names; on: \"*\" is every event");
        return false;
    }
    return take_checked_name(f, "on", "event name", value, out);
}

static void take_on(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;
    weir_str text;

    if (weir__config_scalar(value, &text) && weir__str_equal(text, weir__str("*"))) {
        return; /* no names: every event */
    }
    const bool list = value->type == YAML_SEQUENCE_NODE;
    const size_t count =
        list ? (size_t)(value->data.sequence.items.top - value->data.sequence.items.start) : 1;
    if (count == 0 || count > REACTION_NAMES_MAX || value->type == YAML_MAPPING_NODE) {
        weir__config_problem(f, value, "\"%s\" has %zu names, expected 1 to %d, or \"*\"",
                             key->name, value->type == YAML_MAPPING_NODE ? 0 : count,
                             REACTION_NAMES_MAX);
        return;
    }
    weir_str *names = weir__arena_alloc(f->arena, count * sizeof *names);
    if (names == NULL) {
        f->full = true;
        return;
    }
    p->r.on = names;
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *item =
            list ? weir__config_node(f, value->data.sequence.items.start[i]) : value;
        if (take_event(f, item, &names[p->r.on_count])) {
            p->r.on_count++;
        }
    }
}

static void take_source(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;
    store_pattern *pattern = NULL;
    weir_error why;

    if (weir__config_text(f, key->name, value, "a stream, a prefix such as order-*, or a /regex/",
                          &p->r.source) &&
        value_passes(f, value, weir__pattern_open(&pattern, p->r.source, &why), &why)) {
        weir__pattern_close(pattern);
    }
}

static bool template_passes(config_file *f, const yaml_node_t *at, weir_str text, store_rule *rule)
{
    template_text *template = NULL;
    weir_error why;

    if (!value_passes(f, at, weir__template_open(&template, text, &why), &why)) {
        return false;
    }
    *rule = weir__template_rule(template);
    weir__template_close(template);
    return true;
}

static void take_to(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;
    store_rule rule;

    if (weir__config_text(f, key->name, value, "a target such as mail-{stream}", &p->r.to)) {
        p->to_at = value;
        (void)template_passes(f, value, p->r.to, &rule);
    }
}

static void take_lane(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;

    if (take_checked_name(f, key->name, "lane", value, &p->r.lane)) {
        p->lane_at = value;
    }
}

void weir__cli_config_priority(weir_str text, weir_reaction *into)
{
    if (!weir__str_to_i64(text, &into->priority)) {
        into->priority_text = text;
    }
}

static void take_priority(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    static const char expected[] = "a number, or a template that gives one such as {data.priority}";
    parsed_reaction *p = into;
    weir_str text;
    store_rule rule = STORE_RULE_CONSTANT;

    if (!weir__config_text(f, key->name, value, expected, &text)) {
        return;
    }
    weir__cli_config_priority(text, &p->r);
    if (p->r.priority_text.len > 0 && template_passes(f, value, text, &rule) &&
        rule == STORE_RULE_CONSTANT) {
        weir__config_expected(f, value, key->name, expected);
    }
}

static void take_command(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;
    weir_str text;

    if (!weir__config_text(f, key->name, value, "a command such as ./send-confirmation", &text)) {
        text = weir__str("?"); /* it was given, and that is all that is still asked */
    } else if (text.len > REACTION_COMMAND_BYTES_MAX) {
        weir__config_problem(f, value, "\"%s\" has %zu bytes, allowed 1 to %d", key->name, text.len,
                             REACTION_COMMAND_BYTES_MAX);
    }
    if (p->r.run != NULL || p->r.exec != NULL) {
        weir__config_problem(f, value, "\"run\" and \"exec\" exclude each other");
    } else if (strcmp(key->name, "run") == 0) {
        p->r.run = text.ptr;
    } else {
        p->r.exec = text.ptr;
    }
}

static void take_retries(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;
    int64_t number = 0;

    if (weir__config_number(f, key, value, &number)) {
        p->r.retries = number == 0 ? -1 : (int32_t)number; /* 0 is the default there */
    }
}

static void take_backoff_kind(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    static const char *const words[] = { "exponential", "fixed", "linear" };
    parsed_reaction *p = into;

    (void)weir__config_choice(f, key, value, words, 3, &p->r.backoff);
}

static void take_backoff_cap(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;

    if (weir__config_duration(f, key, value, &p->r.backoff_cap_us)) {
        p->cap_at = value;
    }
}

static void take_backoff(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    static const config_key keys[] = {
        { .name = "kind", .take = take_backoff_kind },
        { .name = "base",
          .take = weir__config_take_duration,
          .offset = offsetof(parsed_reaction, r.backoff_base_us),
          .min = REACTION_DURATION_US_MIN,
          .max = REACTION_BACKOFF_US_MAX },
        { .name = "cap",
          .take = take_backoff_cap,
          .min = REACTION_DURATION_US_MIN,
          .max = REACTION_BACKOFF_US_MAX },
    };
    parsed_reaction *p = into;

    weir__config_mapping(f, value, key->name, keys, sizeof keys / sizeof keys[0], into);
    const int64_t base =
        p->r.backoff_base_us == 0 ? REACTION_BACKOFF_BASE_US : p->r.backoff_base_us;
    if (p->cap_at != NULL && p->r.backoff_cap_us < base) {
        weir__config_problem(f, p->cap_at, "\"cap\" is less than \"base\"%s",
                             p->r.backoff_base_us == 0 ? ", which is 200ms when it is not given"
                                                       : "");
    }
}

static void take_poison(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    static const char *const words[] = { "block", "park", "retry" };
    parsed_reaction *p = into;

    (void)weir__config_choice(f, key, value, words, 3, &p->r.poison);
}

bool weir__cli_config_from(weir_str text, weir_reaction *into)
{
    int64_t position = 0;

    if (weir__str_equal(text, weir__str("start"))) {
        into->from = WEIR_FROM_START;
    } else if (weir__str_equal(text, weir__str("now"))) {
        into->from = WEIR_FROM_NOW;
    } else if (weir__str_to_i64(text, &position) && position >= 0) {
        into->from = WEIR_FROM_POSITION;
        into->from_position = position;
    } else {
        return false;
    }
    return true;
}

static void take_from(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    parsed_reaction *p = into;
    weir_str text;

    if (!weir__config_scalar(value, &text) || !weir__cli_config_from(text, &p->r)) {
        weir__config_expected(f, value, key->name, "start, now or a position from 0");
    }
}

static const config_key reaction_keys[] = {
    { .name = "name", .take = take_name, .required = true },
    { .name = "on", .take = take_on, .required = true },
    { .name = "source", .take = take_source },
    { .name = "to", .take = take_to, .required = true },
    { .name = "lane", .take = take_lane },
    { .name = "priority", .take = take_priority },
    { .name = "run", .take = take_command },
    { .name = "exec", .take = take_command },
    { .name = "retries", .take = take_retries, .min = 0, .max = REACTION_RETRIES_MAX },
    { .name = "backoff", .take = take_backoff },
    { .name = "on_poison", .take = take_poison },
    { .name = "deadline",
      .take = weir__config_take_duration,
      .offset = offsetof(parsed_reaction, r.deadline_us),
      .min = REACTION_DURATION_US_MIN,
      .max = REACTION_DEADLINE_US_MAX },
    { .name = "from", .take = take_from },
};
static_assert(sizeof reaction_keys / sizeof reaction_keys[0] <= CONFIG_KEYS_MAX,
              "keys of one kind");

/* ---- lanes --------------------------------------------------------------------------------- */

static const config_key lane_keys[] = {
    { .name = "threads",
      .take = weir__config_take_i32,
      .offset = offsetof(weir_lane, threads),
      .min = 1,
      .max = LANE_THREADS_MAX },
    { .name = "lease",
      .take = weir__config_take_duration,
      .offset = offsetof(weir_lane, lease_us),
      .min = LANE_LEASE_US_MIN,
      .max = LANE_DURATION_US_MAX },
    { .name = "target_limit",
      .take = weir__config_take_i32,
      .offset = offsetof(weir_lane, target_limit),
      .min = 1,
      .max = STORE_LEASE_TARGETS_MAX },
    { .name = "event_limit",
      .take = weir__config_take_i32,
      .offset = offsetof(weir_lane, event_limit),
      .min = 1,
      .max = STORE_CHUNK_EVENTS_MAX },
    { .name = "cycle",
      .take = weir__config_take_duration,
      .offset = offsetof(weir_lane, cycle_us),
      .min = LANE_CYCLE_US_MIN,
      .max = LANE_DURATION_US_MAX },
};

static const weir_lane *lane_find(const cli_config *c, weir_str name)
{
    for (size_t i = 0; i < c->lanes_count; i++) {
        if (weir__str_equal(c->lanes[i].name, name)) {
            return &c->lanes[i];
        }
    }
    return NULL;
}

static void take_lanes(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    cli_config *c = ((reading *)into)->config;

    if (value->type != YAML_MAPPING_NODE) {
        weir__config_expected(f, value, key->name, "lanes by name, such as mail: { threads: 4 }");
        return;
    }
    yaml_node_pair_t *pairs = value->data.mapping.pairs.start;
    const size_t count = (size_t)(value->data.mapping.pairs.top - pairs);
    if (count > LANES_MAX) {
        weir__config_problem(f, value, "there are %zu lanes, allowed 0 to %d", count, LANES_MAX);
        return;
    }
    c->lanes = weir__arena_alloc(f->arena, (count + 1) * sizeof *c->lanes);
    f->full |= c->lanes == NULL;
    for (size_t i = 0; i < count && c->lanes != NULL; i++) {
        const yaml_node_t *name = weir__config_node(f, pairs[i].key);
        yaml_node_t *lane = weir__config_node(f, pairs[i].value);
        weir_lane l = { WEIR_LANE_INIT };
        const bool named = take_checked_name(f, key->name, "lane", name, &l.name);
        if (named && lane_find(c, l.name) != NULL) {
            continue; /* which is told already */
        }
        if (!weir__config_is_nothing(lane)) {
            weir__config_mapping(f, lane, "a lane", lane_keys,
                                 sizeof lane_keys / sizeof lane_keys[0], &l);
        }
        if (named) {
            c->lanes[c->lanes_count++] = l;
        }
    }
}

/* ---- reactions ----------------------------------------------------------------------------- */

static const char *lane_name(const void *ctx, size_t i)
{
    return ((const cli_config *)ctx)->lanes[i].name.ptr;
}

static void lane_check(config_file *f, const cli_config *c, const parsed_reaction *p)
{
    if (c->lanes_count == 0 || p->lane_at == NULL || lane_find(c, p->r.lane) != NULL ||
        weir__str_equal(p->r.lane, weir__str("default"))) {
        return;
    }
    const char *nearest = weir__cli_nearest(p->r.lane.ptr, lane_name, c, c->lanes_count);
    weir__config_problem(f, p->lane_at, "lane \"%s\" is not among \"lanes\"%s%s%s", p->r.lane.ptr,
                         nearest == NULL ? "" : ", did you mean \"", nearest == NULL ? "" : nearest,
                         nearest == NULL ? "" : "\"?");
}

static weir_str lane_of(const parsed_reaction *p)
{
    return p->r.lane.len == 0 ? weir__str("default") : p->r.lane;
}

/* What two reactions of one file cannot have. Templates are compared by the store (C19). */
static void pair_check(config_file *f, const parsed_reaction *before, const parsed_reaction *p)
{
    const size_t line = before->name_at == NULL ? 0 : before->name_at->start_mark.line + 1;

    if (p->r.name.len > 0 && weir__str_equal(p->r.name, before->r.name)) {
        weir__config_problem(f, p->name_at, "reaction \"%s\" is given twice, first in line %zu",
                             p->r.name.ptr, line);
    }
    if (p->to_at != NULL && memchr(p->r.to.ptr, '{', p->r.to.len) == NULL &&
        weir__str_equal(p->r.to, before->r.to) && !weir__str_equal(lane_of(p), lane_of(before))) {
        weir__config_problem(
            f, p->lane_at == NULL ? p->to_at : p->lane_at,
            "target \"%s\" is in lane \"%s\", and in lane \"%s\" with the reaction "
            "in line %zu: one target has one lane",
            p->r.to.ptr, lane_of(p).ptr, lane_of(before).ptr, line);
    }
}

static void reactions_compare(config_file *f, const reading *r)
{
    for (size_t i = 0; i < r->parsed_count; i++) {
        lane_check(f, r->config, &r->parsed[i]);
        for (size_t j = 0; j < i; j++) {
            pair_check(f, &r->parsed[j], &r->parsed[i]);
        }
    }
}

static void reaction_read(config_file *f, yaml_node_t *node, parsed_reaction *p)
{
    *p = (parsed_reaction){ .r = { WEIR_REACTION_INIT } };
    weir__config_mapping(f, node, "a reaction", reaction_keys,
                         sizeof reaction_keys / sizeof reaction_keys[0], p);
    if (node->type == YAML_MAPPING_NODE && p->r.run == NULL && p->r.exec == NULL) {
        weir__config_problem(f, node, "a reaction has no \"run\" and no \"exec\", expected one");
    }
}

static void take_reactions(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    reading *r = into;

    if (value->type != YAML_SEQUENCE_NODE) {
        weir__config_expected(f, value, key->name,
                              "a list of reactions, each beginning with \"-\"");
        return;
    }
    const yaml_node_item_t *items = value->data.sequence.items.start;
    const size_t count = (size_t)(value->data.sequence.items.top - items);
    if (count > REACTIONS_MAX) {
        weir__config_problem(f, value, "there are %zu reactions, allowed 0 to %d", count,
                             REACTIONS_MAX);
        return;
    }
    r->parsed = weir__calloc(count + 1, sizeof *r->parsed);
    if (r->parsed == NULL) {
        f->full = true;
        return;
    }
    r->parsed_count = count;
    for (size_t i = 0; i < count; i++) {
        reaction_read(f, weir__config_node(f, items[i]), &r->parsed[i]);
    }
}

/* ---- a file -------------------------------------------------------------------------------- */

static void reactions_keep(config_file *f, const reading *r)
{
    cli_config *c = r->config;

    c->store = r->store;
    c->reactions = weir__arena_alloc(&c->arena, (r->parsed_count + 1) * sizeof *c->reactions);
    if (c->reactions == NULL) {
        f->full = true;
        return;
    }
    for (size_t i = 0; i < r->parsed_count; i++) {
        c->reactions[c->reactions_count++] = r->parsed[i].r;
    }
}

static void take_memory_limit(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    reading *r = into;
    weir_str text;

    if (!weir__config_scalar(value, &text) ||
        !weir__cli_config_memory(text, &r->config->memory_limit_bytes)) {
        weir__config_expected(f, value, key->name, ROOM_BYTES_TEXT);
    }
}

static void document_read(config_file *f, reading *r)
{
    static const config_key keys[] = {
        { .name = "store", .take = weir__config_take_store, .offset = offsetof(reading, store) },
        { .name = "memory_limit", .take = take_memory_limit },
        { .name = "lanes", .take = take_lanes },
        { .name = "reactions", .take = take_reactions },
        { .name = "tables", .take = weir__config_take_tables, .offset = offsetof(reading, tables) },
    };
    yaml_node_t *root = weir__config_root(f);

    if (root != NULL && !f->broken) {
        weir__config_mapping(f, root, "the file", keys, sizeof keys / sizeof keys[0], r);
        reactions_compare(f, r);
        reactions_keep(f, r);
    }
}

weir_status weir__cli_config_read(cli_config *out, const char *path, weir_error *err)
{
    config_file f = { .path = path, .arena = &out->arena };
    reading r = { .config = out };
    weir_status status = weir__config_load(&f, err);

    if (status == WEIR_OK) {
        document_read(&f, &r);
        status = f.full ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;
    }
    weir__config_unload(&f);
    weir__free(r.parsed);
    out->problems = f.problems; /* moved */
    out->problems_count = f.problems_count;
    if (status == WEIR_OK && f.problems_count > 0) {
        status = weir__config_report(&f, err);
    }
    return status == WEIR_OK ? weir__cli_config_check(out, path, err) : status;
}

bool weir__cli_config_memory(weir_str text, int64_t *out)
{
    int64_t bytes = 0;

    if (!weir__str_to_bytes(text, &bytes) || bytes < ROOM_BYTES_MIN || bytes > ROOM_BYTES_MAX) {
        return false;
    }
    *out = bytes;
    return true;
}

/* The engine's own look, when nothing was found before. */
weir_status weir__cli_config_check(cli_config *config, const char *who, weir_error *err)
{
    registry r = { 0 };
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < config->lanes_count; i++) {
        status = weir__registry_lane(&r, &config->lanes[i], err);
    }
    for (size_t i = 0; status == WEIR_OK && i < config->reactions_count; i++) {
        status = weir__registry_reaction(&r, &config->reactions[i], err);
    }
    if (status == WEIR_OK) {
        status = weir__registry_check(&r, err);
    }
    if (status == WEIR_EINVAL) {
        config->problems_count += r.problems_count;
        if (!weir__buffer_add(&config->problems, r.problems.ptr, r.problems.len)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        } else {
            status = weir__wrap(err, WEIR_EINVAL, "%s", who);
        }
    }
    weir__registry_free(&r);
    return status;
}

void weir__cli_config_free(cli_config *config)
{
    weir__arena_free(&config->arena);
    weir__buffer_free(&config->problems);
    *config = (cli_config){ 0 };
}
