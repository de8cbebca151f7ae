/* pg_url.c - see pg_url.h. */
#include "store/pg_url.h"

#include "base/error.h"
#include "base/str.h"
#include "store/away.h"
#include "store/secrets.h"

#include <stdio.h>
#include <string.h>

enum { SCHEMA_NAME_BYTES_MAX = 63 };

weir_str weir__pg_url_schema(const store_options *options)
{
    return options->schema.len == 0 ? weir__str("weir") : options->schema;
}

const char *weir__pg_url_schema_quoted(const store_options *options, weir_arena *arena)
{
    const weir_str name = weir__pg_url_schema(options);
    char *quoted = weir__arena_alloc(arena, name.len + 3);
    if (quoted != NULL) {
        quoted[0] = '"';
        memcpy(quoted + 1, name.ptr, name.len);
        memcpy(quoted + 1 + name.len, "\"", 2);
    }
    return quoted;
}

/* The name goes between double quotes, and inside string literals of our SQL. */
weir_status weir__postgres_schema_check(weir_str name, weir_error *err)
{
    bool fits = name.len <= SCHEMA_NAME_BYTES_MAX &&
                !weir__str_starts_with(name, weir__str("pg_")) &&
                weir__utf8_valid_prefix(name.ptr, name.len) == name.len;
    for (size_t i = 0; i < name.len && fits; i++) {
        const char ch = name.ptr[i];
        fits = (unsigned char)ch >= ' ' && strchr("\"'\\$\x7f", ch) == NULL;
    }
    return fits ? WEIR_OK
                : weir__fail(err, WEIR_EINVAL,
                             "schema \"%.*s\" is not a name of 1 to 63 bytes without quotes, "
                             "backslashes, dollars and control characters, not starting with pg_",
                             (int)name.len, name.ptr);
}

/* Does libpq understand the URL? Its words about one that it does not may hold a part of it. */
static weir_status url_check(weir_str url, weir_error *err)
{
    char *why = NULL;
    weir_status status = weir__url_check_password(url, err);
    if (status != WEIR_OK) {
        return status;
    }
    PQconninfoOption *parsed = pq.PQconninfoParse(url.ptr, &why);
    if (parsed == NULL) {
        char text[256];
        (void)snprintf(text, sizeof text, "%s", why == NULL ? "out of memory" : why);
        text[strcspn(text, "\n")] = '\0';
        status = weir__fail(err, WEIR_EINVAL, "store URL is not understood: %s", text);
        weir__url_scrub(url, err);
    }
    pq.PQconninfoFree(parsed);
    pq.PQfreemem(why);
    return status;
}

weir_status weir__pg_url_database(pg_database *out, const store_options *options,
                                  const pg_manner *manner, void *owner, weir_error *err)
{
    weir_status status = weir__libpq_load(err);
    if (status == WEIR_OK) {
        status = weir__postgres_schema_check(weir__pg_url_schema(options), err);
    }
    if (status == WEIR_OK) {
        status = url_check(options->path, err);
    }
    *out = (pg_database){
        .url = options->path.ptr,
        .application = options->application,
        .writes = (options->open_flags & WEIR_OPEN_READONLY) == 0,
        .prepare = options->prepare,
        .busy_us = options->busy_us,
        .answer_us = options->answer_us == 0 ? manner->answer_us : options->answer_us,
        .manner = manner,
        .owner = owner,
        .away_cb = weir__store_away_tell,
    };
    return status;
}
