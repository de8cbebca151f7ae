/* config_tables.c - see config_tables.h. */
#include "cli/config_tables.h"
#include "cli/column_text.h"

#include <assert.h>

static const char *const path_words[] = {
    [CLAIM_PATH_DEFAULT] = "default", [CLAIM_PATH_FAST] = "fast", [CLAIM_PATH_PORTABLE] = "portable"
};
enum { PATH_WORDS = sizeof path_words / sizeof path_words[0] };

bool weir__config_path(weir_str text, claim_path *path)
{
    for (int i = 0; i < PATH_WORDS; i++) {
        if (weir__str_equal(text, weir__str(path_words[i]))) {
            *path = (claim_path)i;
            return true;
        }
    }
    return false;
}

/* ---- values ------------------------------------------------------------------------------- */

static void take_text(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    weir_str text;

    if (weir__config_text(f, key->name, value, "text", &text)) {
        memcpy((char *)into + key->offset, &text, sizeof text);
    }
}

/* The name of a column; "": none is written. */
static void take_column(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    weir_str text;

    if (weir__config_scalar(value, &text) && text.len == 0) {
        const weir_str none = CLAIM_NO_COLUMN;
        memcpy((char *)into + key->offset, &none, sizeof none);
    } else if (weir__config_text(f, key->name, value, "the name of a column, or \"\" for none",
                                 &text)) {
        memcpy((char *)into + key->offset, &text, sizeof text);
    }
}

static void take_number(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    int64_t number = 0;

    if (weir__config_number(f, key, value, &number)) {
        memcpy((char *)into + key->offset, &number, sizeof number);
    }
}

/* The pairs of a mapping, at least one. NULL: told. */
static yaml_node_pair_t *pairs_of(config_file *f, const config_key *key, const yaml_node_t *value,
                                  const char *expected, size_t *count)
{
    if (value->type != YAML_MAPPING_NODE) {
        weir__config_expected(f, value, key->name, expected);
        return NULL;
    }
    *count = (size_t)(value->data.mapping.pairs.top - value->data.mapping.pairs.start);
    if (*count < 1 || *count > CLAIM_COLUMNS_MAX) {
        weir__config_problem(f, value, "\"%s\" has %zu columns, allowed 1 to %d", key->name, *count,
                             CLAIM_COLUMNS_MAX);
        return NULL;
    }
    return value->data.mapping.pairs.start;
}

/* A value of a column: a scalar, or null. */
static bool value_take(config_file *f, const config_key *key, const yaml_node_t *node,
                       table_value *out)
{
    weir_str text;

    if (weir__config_is_nothing(node)) {
        *out = (table_value){ .kind = TABLE_NULL };
        return true;
    }
    if (!weir__config_scalar(node, &text) ||
        (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL)) {
        weir__config_expected(f, node, key->name, "a value for each column");
        return false;
    }
    const char *copy = weir__arena_copy(f->arena, text.len == 0 ? "" : text.ptr, text.len);
    f->full |= copy == NULL;
    *out = (table_value){ .kind = TABLE_TEXT, .text = { .ptr = copy, .len = text.len } };
    return copy != NULL;
}

static void take_set(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    claim_writes *w = (claim_writes *)(void *)((char *)into + key->offset);
    size_t count = 0;
    const yaml_node_pair_t *pairs =
        pairs_of(f, key, value, "columns and values such as { status: done }", &count);
    claim_set *set = pairs == NULL ? NULL : weir__arena_alloc(f->arena, count * sizeof *set);

    f->full |= pairs != NULL && set == NULL;
    w->set = set;
    for (size_t i = 0; set != NULL && i < count; i++) {
        claim_set *s = &set[w->set_count];
        if (weir__config_text(f, key->name, weir__config_node(f, pairs[i].key),
                              "the name of a column", &s->column) &&
            value_take(f, key, weir__config_node(f, pairs[i].value), &s->value)) {
            w->set_count++;
        }
    }
}

static void take_set_sql(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    claim_writes *w = (claim_writes *)(void *)((char *)into + key->offset);
    size_t count = 0;
    const yaml_node_pair_t *pairs =
        pairs_of(f, key, value, "columns and SQL such as { tries: \"tries + 1\" }", &count);
    claim_set_sql *sql = pairs == NULL ? NULL : weir__arena_alloc(f->arena, count * sizeof *sql);

    f->full |= pairs != NULL && sql == NULL;
    w->set_sql = sql;
    for (size_t i = 0; sql != NULL && i < count; i++) {
        claim_set_sql *s = &sql[w->set_sql_count];
        if (weir__config_text(f, key->name, weir__config_node(f, pairs[i].key),
                              "the name of a column", &s->column) &&
            weir__config_text(f, key->name, weir__config_node(f, pairs[i].value),
                              "SQL for each column", &s->sql)) {
            w->set_sql_count++;
        }
    }
}

static void take_order(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    claim_request *r = &((table_spec *)into)->claim;
    weir_str text;
    weir_error why;

    if (!weir__config_text(f, key->name, value, "columns such as \"priority desc, id\"", &text)) {
        return;
    }
    const weir_status status =
        weir__cli_column_order(text, f->arena, &r->order, &r->order_count, &why);
    if (status == WEIR_ENOMEM) {
        f->full = true;
    } else if (status != WEIR_OK) {
        weir__config_problem(f, value, "\"%s\": %s", key->name, why.message);
    }
}

static void take_max_per(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    claim_request *r = &((table_spec *)into)->claim;
    size_t count = 0;
    const yaml_node_pair_t *pairs =
        pairs_of(f, key, value, "a column and a number such as { customer: 2 }", &count);

    if (pairs != NULL && count > 1) {
        weir__config_problem(f, value, "\"%s\" has %zu columns, allowed 1", key->name, count);
    } else if (pairs != NULL && weir__config_text(f, key->name, weir__config_node(f, pairs[0].key),
                                                  "the name of a column", &r->max_per_column)) {
        (void)weir__config_number(f, key, weir__config_node(f, pairs[0].value), &r->max_per);
    }
}

static void take_path(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    int32_t path;

    if (weir__config_choice(f, key, value, path_words, PATH_WORDS, &path)) {
        ((table_spec *)into)->claim.path = (claim_path)path;
    }
}

static const config_key table_keys[] = {
    { .name = "table", .take = take_text, .offset = offsetof(table_spec, claim.table) },
    { .name = "ready", .take = take_text, .offset = offsetof(table_spec, claim.where) },
    { .name = "claimed", .take = take_set, .offset = offsetof(table_spec, claim.writes) },
    { .name = "claimed_sql", .take = take_set_sql, .offset = offsetof(table_spec, claim.writes) },
    { .name = "done", .take = take_set, .offset = offsetof(table_spec, done) },
    { .name = "done_sql", .take = take_set_sql, .offset = offsetof(table_spec, done) },
    { .name = "failed", .take = take_set, .offset = offsetof(table_spec, failed) },
    { .name = "failed_sql", .take = take_set_sql, .offset = offsetof(table_spec, failed) },
    { .name = "released", .take = take_set, .offset = offsetof(table_spec, released) },
    { .name = "released_sql", .take = take_set_sql, .offset = offsetof(table_spec, released) },
    { .name = "order", .take = take_order },
    { .name = "limit",
      .take = take_number,
      .offset = offsetof(table_spec, claim.limit),
      .min = 1,
      .max = CLAIM_LIMIT_MAX },
    { .name = "by", .take = take_text, .offset = offsetof(table_spec, claim.by) },
    { .name = "by_column", .take = take_column, .offset = offsetof(table_spec, claim.by_column) },
    { .name = "at_column", .take = take_column, .offset = offsetof(table_spec, claim.at_column) },
    { .name = "lease",
      .take = weir__config_take_duration,
      .offset = offsetof(table_spec, claim.lease_us),
      .min = TABLE_DURATION_US_MIN,
      .max = TABLE_DURATION_US_MAX },
    { .name = "lease_column",
      .take = take_text,
      .offset = offsetof(table_spec, claim.lease_column) },
    { .name = "fence_column",
      .take = take_text,
      .offset = offsetof(table_spec, claim.fence_column) },
    { .name = "attempts_column",
      .take = take_text,
      .offset = offsetof(table_spec, claim.attempts_column) },
    { .name = "max_per", .take = take_max_per, .min = 1, .max = INT64_C(1000000000) },
    { .name = "path", .take = take_path },
    { .name = "parallel",
      .take = take_number,
      .offset = offsetof(table_spec, parallel),
      .min = 1,
      .max = RUNNER_PARALLEL_MAX },
    { .name = "deadline",
      .take = weir__config_take_duration,
      .offset = offsetof(table_spec, deadline_us),
      .min = TABLE_DURATION_US_MIN,
      .max = TABLE_DURATION_US_MAX },
};
static_assert(sizeof table_keys / sizeof table_keys[0] <= CONFIG_KEYS_MAX, "keys of one kind");

/* ---- a file ------------------------------------------------------------------------------- */

const table_spec *weir__config_table(const config_tables *t, weir_str name)
{
    for (size_t i = 0; i < t->count; i++) {
        if (weir__str_equal(t->items[i].name, name)) {
            return &t->items[i];
        }
    }
    return NULL;
}

void weir__config_take_tables(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    config_tables *t = (config_tables *)(void *)((char *)into + key->offset);

    if (value->type != YAML_MAPPING_NODE) {
        weir__config_expected(f, value, key->name,
                              "tables by name, such as jobs: { ready: \"status = 'new'\" }");
        return;
    }
    yaml_node_pair_t *pairs = value->data.mapping.pairs.start;
    const size_t count = (size_t)(value->data.mapping.pairs.top - pairs);
    if (count > CONFIG_TABLES_MAX) {
        weir__config_problem(f, value, "there are %zu tables, allowed 0 to %d", count,
                             CONFIG_TABLES_MAX);
        return;
    }
    t->items = weir__arena_alloc(f->arena, (count + 1) * sizeof *t->items);
    f->full |= t->items == NULL;
    for (size_t i = 0; i < count && t->items != NULL; i++) {
        const yaml_node_t *name = weir__config_node(f, pairs[i].key);
        yaml_node_t *node = weir__config_node(f, pairs[i].value);
        weir_str text;
        if (!weir__config_text(f, key->name, name, "the name of a table", &text) ||
            weir__config_table(t, text) != NULL) { /* which is told already */
            continue;
        }
        table_spec spec = weir__table_spec(text);
        spec.name = text;
        weir__config_mapping(f, node, "a table", table_keys,
                             sizeof table_keys / sizeof table_keys[0], &spec);
        t->items[t->count++] = spec;
    }
}

static void key_leave(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    (void)f;
    (void)key;
    (void)value;
    (void)into;
}

weir_status weir__config_tables_read(config_tables *out, const char *path, weir_error *err)
{
    static const config_key keys[] = {
        { .name = "store", .take = key_leave },
        { .name = "memory_limit", .take = key_leave },
        { .name = "lanes", .take = key_leave },
        { .name = "reactions", .take = key_leave },
        { .name = "tables", .take = weir__config_take_tables },
    };
    config_file f = { .path = path, .arena = &out->arena };
    weir_status status = weir__config_load(&f, err);
    yaml_node_t *root = status == WEIR_OK ? weir__config_root(&f) : NULL;

    if (status == WEIR_ENOTFOUND) {
        status = WEIR_OK;
    }
    if (root != NULL && !f.broken) {
        weir__config_mapping(&f, root, "the file", keys, sizeof keys / sizeof keys[0], out);
    }
    weir__config_unload(&f);
    out->problems = f.problems; /* moved */
    out->problems_count = f.problems_count;
    if (status == WEIR_OK && f.full) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (status == WEIR_OK && f.problems_count > 0) {
        status = weir__config_report(&f, err);
    }
    return status;
}

void weir__config_tables_free(config_tables *t)
{
    weir__arena_free(&t->arena);
    weir__buffer_free(&t->problems);
    *t = (config_tables){ 0 };
}
