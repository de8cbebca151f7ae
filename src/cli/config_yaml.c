/* config_yaml.c - see config_yaml.h.
 *
 * INVARIANTS
 *   (1) Nothing that was found in the file gets into a message unchecked: weir__fail cleans it.
 *   (2) The document is a tree of known depth to whoever reads it: no function here goes down by
 *       itself, so that a node that contains itself, by an alias, does no harm.
 */
#include "cli/config_yaml.h"
#include "base/file.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOUND_SHOWN_BYTES_MAX = 64, EXPECTED_BYTES = 384 };

/* ---- problems ------------------------------------------------------------------------------ */

/* line and column from 0, shown from 1 as editors do. */
static void problem_at(config_file *f, size_t line, size_t column, const char *text)
{
    weir_error clean;
    const size_t before = f->problems.len;

    if (f->problems_count++ >= CONFIG_PROBLEMS_MAX) {
        return;
    }
    (void)weir__fail(&clean, WEIR_EINVAL, "%s:%zu:%zu: %s", f->path, line + 1, column + 1, text);
    if (!weir__buffer_add_text(&f->problems, clean.message) ||
        !weir__buffer_add(&f->problems, "\n", 1)) {
        f->problems.len = before;
        f->full = true;
    }
}

void weir__config_problem(config_file *f, const yaml_node_t *at, const char *format, ...)
{
    char text[sizeof((weir_error *)NULL)->message];
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    problem_at(f, at->start_mark.line, at->start_mark.column, n < 0 ? "is wrong" : text);
}

void weir__config_expected(config_file *f, const yaml_node_t *found, const char *name,
                           const char *expected)
{
    weir_str text;

    if (weir__config_is_nothing(found)) {
        weir__config_problem(f, found, "\"%s\" is empty, expected %s", name, expected);
    } else if (weir__config_scalar(found, &text)) {
        const bool cut = text.len > FOUND_SHOWN_BYTES_MAX;
        weir__config_problem(f, found, "\"%s\" is \"%.*s%s\", expected %s", name,
                             (int)(cut ? FOUND_SHOWN_BYTES_MAX : text.len), text.ptr,
                             cut ? "..." : "", expected);
    } else {
        weir__config_problem(f, found, "\"%s\" is a %s, expected %s", name,
                             found->type == YAML_SEQUENCE_NODE ? "list" : "mapping", expected);
    }
}

weir_status weir__config_report(const config_file *f, weir_error *err)
{
    (void)weir__fail(err, WEIR_EINVAL, "%.*s", (int)strcspn(f->problems.ptr, "\n"),
                     f->problems.ptr);
    if (f->problems_count > 1) {
        weir__error_detail(err, "There are %zu problems; weir work --check lists them.",
                           f->problems_count);
    }
    return WEIR_EINVAL;
}

/* ---- loading ------------------------------------------------------------------------------- */

static int insecure; /* FILE_INSECURE: said so by --insecure */

void weir__config_accept_insecure(void)
{
    insecure = FILE_INSECURE;
}

/* What the file says is executed. So it counts in a directory like /tmp only if it is the caller's
 * own, or root's, even for root; elsewhere root is content with whose directory it is. */
static weir_status judge_opened(const config_file *f, int fd, weir_error *err)
{
    char resolved[PATH_MAX];
    struct stat st;
    int flags = insecure | FILE_ANY_KIND;
    weir_status status = weir__file_judge_given(f->path, flags, err);

    if (status == WEIR_OK && realpath(f->path, resolved) != NULL) {
        status = weir__file_judge_above(resolved, flags, err);
        strrchr(resolved, '/')[1] = '\0';
        flags |= stat(resolved, &st) == 0 && (st.st_mode & S_IWOTH) != 0 ? FILE_ROOTS_OWN : 0;
    }
    return status == WEIR_OK ? weir__file_judge(fd, f->path, flags, err) : status;
}

/* A link is followed, a pipe is read; but nothing is waited for until it was judged. */
static weir_status open_judged(const config_file *f, FILE **out, weir_error *err)
{
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0) {
        const weir_status status =
            weir__fail(err, errno == ENOENT ? WEIR_ENOTFOUND : WEIR_EIO,
                       "could not open \"%s\": %s", f->path, strerror(errno));
        const weir_status refused = weir__file_judge_given(f->path, insecure, err);
        return refused != WEIR_OK ? refused : status;
    }
    const weir_status status = judge_opened(f, fd, err);
    *out = status == WEIR_OK && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "r") : NULL;
    if (*out == NULL) {
        (void)close(fd);
    }
    return status != WEIR_OK || *out != NULL ? status
                                             : weir__fail(err, WEIR_ENOMEM, "out of memory");
}

static weir_status read_bytes(config_file *f, weir_error *err)
{
    char chunk[65536];
    FILE *file = NULL;
    weir_status status = open_judged(f, &file, err);

    if (status != WEIR_OK) {
        return status;
    }
    for (size_t n; status == WEIR_OK && (n = fread(chunk, 1, sizeof chunk, file)) > 0;) {
        if (f->bytes.len + n > CONFIG_BYTES_MAX) {
            status = weir__fail(err, WEIR_EINVAL, "\"%s\" has more than %d bytes", f->path,
                                CONFIG_BYTES_MAX);
        } else if (!weir__buffer_add(&f->bytes, chunk, n)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
    }
    if (status == WEIR_OK && ferror(file) != 0) {
        status = weir__fail(err, WEIR_EIO, "could not read \"%s\": %s", f->path, strerror(errno));
    }
    (void)fclose(file);
    return status;
}

/* What the parser says. It knows no line for bytes that are no text, only how far it had come. */
static void problem_of_parser(config_file *f, const yaml_parser_t *p)
{
    size_t line = p->problem_mark.line, column = p->problem_mark.column;

    if (p->error == YAML_MEMORY_ERROR) {
        f->full = true;
        return;
    }
    if (p->error == YAML_READER_ERROR) {
        line = column = 0;
        for (size_t i = 0; i < p->problem_offset && i < f->bytes.len; i++) {
            column = f->bytes.ptr[i] == '\n' ? 0 : column + 1;
            line += f->bytes.ptr[i] == '\n' ? 1 : 0;
        }
    }
    problem_at(f, line, column, p->problem == NULL ? "could not be read" : p->problem);
}

static void set_input(const config_file *f, yaml_parser_t *p)
{
    yaml_parser_set_input_string(p, (const unsigned char *)(f->bytes.len == 0 ? "" : f->bytes.ptr),
                                 f->bytes.len);
}

/* false: it nests deeper than anything we know. Loading such a file takes a time that grows with
 * the square of its depth. What else is wrong with it is for the loading to say. */
static bool is_shallow(config_file *f)
{
    yaml_parser_t p;
    yaml_event_t event;
    bool more = true;
    int depth = 0;

    if (yaml_parser_initialize(&p) == 0) {
        f->full = true;
        return false;
    }
    set_input(f, &p);
    while (more && yaml_parser_parse(&p, &event) != 0) {
        const bool begins =
            event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        const bool ends =
            event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        depth += begins ? 1 : (ends ? -1 : 0);
        if (depth > CONFIG_DEPTH_MAX) {
            problem_at(f, event.start_mark.line, event.start_mark.column, "nests too deep");
        }
        more = depth <= CONFIG_DEPTH_MAX && event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&p);
    return depth <= CONFIG_DEPTH_MAX;
}

static int key_order(const void *a, const void *b)
{
    const yaml_node_t *x = *(yaml_node_t *const *)a, *y = *(yaml_node_t *const *)b;
    const weir_str left = { (const char *)x->data.scalar.value, x->data.scalar.length };
    const weir_str right = { (const char *)y->data.scalar.value, y->data.scalar.length };
    const int order = weir__str_compare(left, right);

    return order != 0                                  ? order
           : x->start_mark.index < y->start_mark.index ? -1
                                                       : x->start_mark.index > y->start_mark.index;
}

/* No mapping says the same twice, whether or not anybody takes what it says. */
static void check_twice(config_file *f, const yaml_node_t *mapping)
{
    const yaml_node_pair_t *pairs = mapping->data.mapping.pairs.start;
    const size_t count = (size_t)(mapping->data.mapping.pairs.top - pairs);
    size_t scalars = 0;
    yaml_node_t **keys = weir__calloc(count + 1, sizeof(yaml_node_t *));

    f->full |= keys == NULL;
    for (size_t i = 0; i < count && keys != NULL; i++) {
        yaml_node_t *key = weir__config_node(f, pairs[i].key);
        if (key->type == YAML_SCALAR_NODE) {
            keys[scalars++] = key;
        }
    }
    if (scalars > 1) {
        qsort(keys, scalars, sizeof(yaml_node_t *), key_order);
    }
    for (size_t i = 1; i < scalars; i++) {
        const weir_str name = { (const char *)keys[i]->data.scalar.value,
                                keys[i]->data.scalar.length };
        const weir_str before = { (const char *)keys[i - 1]->data.scalar.value,
                                  keys[i - 1]->data.scalar.length };
        if (weir__str_equal(name, before)) {
            const size_t shown =
                name.len < FOUND_SHOWN_BYTES_MAX ? name.len : FOUND_SHOWN_BYTES_MAX;
            weir__config_problem(f, keys[i], "key \"%.*s\" is given twice, first in line %zu",
                                 (int)shown, name.ptr, keys[i - 1]->start_mark.line + 1);
        }
    }
    weir__free(keys);
}

static void check_all_twice(config_file *f)
{
    for (yaml_node_t *node = f->document.nodes.start; node < f->document.nodes.top; node++) {
        if (node->type == YAML_MAPPING_NODE) {
            check_twice(f, node);
        }
    }
}

static void document_parse(config_file *f, yaml_parser_t *p)
{
    yaml_document_t second;

    if (yaml_parser_load(p, &f->document) == 0) {
        problem_of_parser(f, p);
        return;
    }
    f->loaded = true;
    if (yaml_document_get_root_node(&f->document) == NULL) {
        return; /* an empty file sets nothing */
    }
    if (yaml_parser_load(p, &second) == 0) {
        problem_of_parser(f, p);
        return;
    }
    if (yaml_document_get_root_node(&second) != NULL) {
        problem_at(f, second.start_mark.line, second.start_mark.column,
                   "expected one document, here begins a second");
    }
    yaml_document_delete(&second);
}

weir_status weir__config_load(config_file *f, weir_error *err)
{
    yaml_parser_t parser;
    weir_status status = read_bytes(f, err);

    if (status != WEIR_OK) {
        return status;
    }
    if (yaml_parser_initialize(&parser) == 0) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    set_input(f, &parser);
    if (is_shallow(f)) {
        document_parse(f, &parser);
    }
    yaml_parser_delete(&parser);
    f->broken = f->problems_count > 0;
    if (f->loaded && !f->broken) {
        check_all_twice(f);
    }
    return f->full ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;
}

void weir__config_unload(config_file *f)
{
    if (f->loaded) {
        yaml_document_delete(&f->document);
        f->loaded = false;
    }
    weir__buffer_free(&f->bytes);
}

yaml_node_t *weir__config_root(config_file *f)
{
    return f->loaded ? yaml_document_get_root_node(&f->document) : NULL;
}

yaml_node_t *weir__config_node(config_file *f, int index)
{
    return yaml_document_get_node(&f->document, index);
}

/* ---- mappings ------------------------------------------------------------------------------ */

static const char *key_name(const void *ctx, size_t i)
{
    return ((const config_key *)ctx)[i].name;
}

void weir__config_unknown(config_file *f, const yaml_node_t *key, const config_key *keys,
                          size_t keys_count)
{
    char word[64] = "", expected[EXPECTED_BYTES] = "";
    weir_str text = { 0 };
    size_t used = 0;

    (void)weir__config_scalar(key, &text);
    if (text.len < sizeof word && text.len > 0) {
        memcpy(word, text.ptr, text.len);
    }
    const char *nearest = weir__cli_nearest(word, key_name, keys, keys_count);
    if (nearest != NULL) {
        weir__config_problem(f, key, "unknown key \"%s\", did you mean \"%s\"?", word, nearest);
        return;
    }
    for (size_t i = 0; i < keys_count && used < sizeof expected; i++) {
        const char *comma = i == 0 ? "" : i + 1 == keys_count ? " or " : ", ";
        const int n =
            snprintf(expected + used, sizeof expected - used, "%s\"%s\"", comma, keys[i].name);
        used += n < 0 ? sizeof expected : (size_t)n;
    }
    const size_t shown = text.len < FOUND_SHOWN_BYTES_MAX ? text.len : FOUND_SHOWN_BYTES_MAX;
    weir__config_problem(f, key, "unknown key \"%.*s\", expected %s", (int)shown,
                         text.ptr == NULL ? "" : text.ptr, expected);
}

static size_t key_find(const config_key *keys, size_t count, weir_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (weir__str_equal(weir__str(keys[i].name), name)) {
            return i;
        }
    }
    return count;
}

void weir__config_mapping(config_file *f, yaml_node_t *node, const char *what,
                          const config_key *keys, size_t keys_count, void *into)
{
    bool seen[CONFIG_KEYS_MAX] = { false };
    weir_str name;

    if (node->type != YAML_MAPPING_NODE) {
        weir__config_expected(f, node, what, "keys and values");
        return;
    }
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = weir__config_node(f, pair->key);
        if (!weir__config_scalar(key, &name)) {
            weir__config_problem(f, key, "expected a key");
            continue;
        }
        const size_t i = key_find(keys, keys_count, name);
        if (i == keys_count) {
            weir__config_unknown(f, key, keys, keys_count);
        } else if (!seen[i]) { /* twice is told already */
            seen[i] = true;
            keys[i].take(f, &keys[i], weir__config_node(f, pair->value), into);
        }
    }
    for (size_t i = 0; i < keys_count; i++) {
        if (keys[i].required && !seen[i]) {
            weir__config_problem(f, node, "%s has no \"%s\"", what, keys[i].name);
        }
    }
}

/* ---- values -------------------------------------------------------------------------------- */

bool weir__config_is_nothing(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        return false;
    }
    const weir_str text = { (const char *)node->data.scalar.value, node->data.scalar.length };
    return text.len == 0 || weir__str_equal(text, weir__str("~")) ||
           weir__str_equal(text, weir__str("null"));
}

bool weir__config_scalar(const yaml_node_t *node, weir_str *out)
{
    if (node->type != YAML_SCALAR_NODE || weir__config_is_nothing(node)) {
        return false;
    }
    *out = (weir_str){ (const char *)node->data.scalar.value, node->data.scalar.length };
    return true;
}

bool weir__config_text(config_file *f, const char *name, const yaml_node_t *node,
                       const char *expected, weir_str *out)
{
    weir_str text;

    if (!weir__config_scalar(node, &text) || text.len == 0 ||
        memchr(text.ptr, '\0', text.len) != NULL) {
        weir__config_expected(f, node, name, expected);
        return false;
    }
    const char *copy = weir__arena_copy(f->arena, text.ptr, text.len);
    if (copy == NULL) {
        f->full = true;
        return false;
    }
    *out = (weir_str){ copy, text.len };
    return true;
}

bool weir__config_number(config_file *f, const config_key *key, const yaml_node_t *node,
                         int64_t *out)
{
    char expected[128];
    weir_str text;
    int64_t number = 0;

    if (weir__config_scalar(node, &text) && weir__str_to_i64(text, &number) && number >= key->min &&
        number <= key->max) {
        *out = number;
        return true;
    }
    (void)snprintf(expected, sizeof expected, "a number from %" PRId64 " to %" PRId64, key->min,
                   key->max);
    weir__config_expected(f, node, key->name, expected);
    return false;
}

/* The largest unit that says it exactly. */
static void duration_text(int64_t us, char *out, size_t bytes)
{
    static const struct {
        int64_t us;
        const char *unit;
    } units[] = { { INT64_C(86400000000), "d" },
                  { INT64_C(3600000000), "h" },
                  { INT64_C(60000000), "m" },
                  { INT64_C(1000000), "s" },
                  { 1000, "ms" } };
    size_t i = 0;

    while (i + 1 < sizeof units / sizeof units[0] && us % units[i].us != 0) {
        i++;
    }
    (void)snprintf(out, bytes, "%" PRId64 "%s", us / units[i].us, units[i].unit);
}

bool weir__config_duration(config_file *f, const config_key *key, const yaml_node_t *node,
                           int64_t *out)
{
    char expected[128], least[32], most[32];
    weir_str text;
    int64_t us = 0;

    if (!weir__config_scalar(node, &text) || !weir__str_to_duration_us(text, &us)) {
        weir__config_expected(f, node, key->name, "a duration such as 200ms, 5s, 5m or 1h");
        return false;
    }
    if (us >= key->min && us <= key->max) {
        *out = us;
        return true;
    }
    duration_text(key->min, least, sizeof least);
    duration_text(key->max, most, sizeof most);
    (void)snprintf(expected, sizeof expected, "%s to %s", least, most);
    weir__config_expected(f, node, key->name, expected);
    return false;
}

bool weir__config_choice(config_file *f, const config_key *key, const yaml_node_t *node,
                         const char *const *words, size_t count, int32_t *out)
{
    char expected[EXPECTED_BYTES] = "";
    weir_str text;
    size_t used = 0;

    for (size_t i = 0; i < count && weir__config_scalar(node, &text); i++) {
        if (weir__str_equal(text, weir__str(words[i]))) {
            *out = (int32_t)i;
            return true;
        }
    }
    for (size_t i = 0; i < count && used < sizeof expected; i++) {
        const char *comma = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        const int n = snprintf(expected + used, sizeof expected - used, "%s%s", comma, words[i]);
        used += n < 0 ? sizeof expected : (size_t)n;
    }
    weir__config_expected(f, node, key->name, expected);
    return false;
}

void weir__config_take_i32(config_file *f, const config_key *key, yaml_node_t *value, void *into)
{
    int64_t number = 0;

    if (weir__config_number(f, key, value, &number)) {
        const int32_t narrow = (int32_t)number; /* `max` of the key fits */
        memcpy((char *)into + key->offset, &narrow, sizeof narrow);
    }
}

void weir__config_take_duration(config_file *f, const config_key *key, yaml_node_t *value,
                                void *into)
{
    int64_t us = 0;

    if (weir__config_duration(f, key, value, &us)) {
        memcpy((char *)into + key->offset, &us, sizeof us);
    }
}
