/* config.c - weir.yaml, read event by event so that every complaint has a line and a column.
 *
 * For now the file is one mapping with at most one key:
 *
 *     store: sqlite:orders.db
 *
 * What is not known is an error: a key that is misspelt must not be a key that is ignored.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <yaml.h>

typedef struct config {
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    char *store; /* owned */
} config;

/* Lines and columns are counted from 1, as editors do. */
static weir_status fail_at(const config *f, yaml_mark_t mark, weir_error *err, const char *what)
{
    return weir__fail(err, WEIR_EINVAL, "%s:%zu:%zu: %s", f->path, mark.line + 1, mark.column + 1,
                      what);
}

static weir_status next(config *f, weir_error *err)
{
    if (f->has_event) {
        yaml_event_delete(&f->event);
        f->has_event = false;
    }
    if (yaml_parser_parse(&f->parser, &f->event) == 0) {
        return fail_at(f, f->parser.problem_mark, err,
                       f->parser.problem == NULL ? "could not be read" : f->parser.problem);
    }
    f->has_event = true;
    return WEIR_OK;
}

static weir_str scalar(const config *f)
{
    return (weir_str){ .ptr = (const char *)f->event.data.scalar.value,
                       .len = f->event.data.scalar.length };
}

/* The key is the current event; reads its value. */
static weir_status read_pair(config *f, weir_error *err)
{
    char what[256];
    weir_status status;

    if (f->event.type != YAML_SCALAR_EVENT) {
        return fail_at(f, f->event.start_mark, err, "expected a key");
    }
    const weir_str key = scalar(f);
    if (!weir__str_equal(key, weir__str("store"))) {
        (void)snprintf(what, sizeof what, "unknown key \"%.*s\", expected \"store\"",
                       (int)(key.len < 128 ? key.len : 128), key.ptr);
        return fail_at(f, f->event.start_mark, err, what);
    }
    if (f->store != NULL) {
        return fail_at(f, f->event.start_mark, err, "key \"store\" is given twice");
    }
    status = next(f, err);
    if (status != WEIR_OK) {
        return status;
    }
    const weir_str value = f->event.type == YAML_SCALAR_EVENT ? scalar(f) : weir__str(NULL);
    if (value.len == 0 || memchr(value.ptr, '\0', value.len) != NULL) {
        return fail_at(f, f->event.start_mark, err,
                       "\"store\" takes a URL such as sqlite:orders.db");
    }
    f->store = weir__strndup(value.ptr, value.len);
    if (f->store == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    return WEIR_OK;
}

static weir_status read_document(config *f, weir_error *err)
{
    weir_status status = next(f, err); /* stream start */

    if (status == WEIR_OK) {
        status = next(f, err);
    }
    if (status != WEIR_OK || f->event.type == YAML_STREAM_END_EVENT) {
        return status; /* an empty file sets nothing */
    }
    status = next(f, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (f->event.type != YAML_MAPPING_START_EVENT) {
        return fail_at(f, f->event.start_mark, err, "expected keys and values, such as store: URL");
    }
    for (;;) {
        status = next(f, err);
        if (status != WEIR_OK || f->event.type == YAML_MAPPING_END_EVENT) {
            break;
        }
        status = read_pair(f, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (status == WEIR_OK) {
        status = next(f, err); /* document end */
    }
    if (status == WEIR_OK) {
        status = next(f, err);
    }
    if (status == WEIR_OK && f->event.type != YAML_STREAM_END_EVENT) {
        return fail_at(f, f->event.start_mark, err, "expected one document");
    }
    return status;
}

weir_status weir__cli_config_store(const char *path, char **store, weir_error *err)
{
    config f = { .path = path };
    weir_status status;
    FILE *file = fopen(path, "re");

    *store = NULL;
    if (file == NULL && errno == ENOENT) {
        return WEIR_OK;
    }
    if (file == NULL) {
        return weir__fail(err, WEIR_EIO, "could not open \"%s\": %s", path, strerror(errno));
    }
    if (yaml_parser_initialize(&f.parser) == 0) {
        (void)fclose(file);
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    yaml_parser_set_input_file(&f.parser, file);
    status = read_document(&f, err);
    if (status == WEIR_OK) {
        *store = f.store;
        f.store = NULL; /* moved to the caller */
    }
    if (f.has_event) {
        yaml_event_delete(&f.event);
    }
    yaml_parser_delete(&f.parser);
    weir__free(f.store);
    (void)fclose(file);
    return status;
}
