/* url.c - see url.h. SCHEME:PATH[?NAME=VALUE[&NAME=VALUE...]]; %XX is decoded in the path, and in
 * the values of our own parameters of a PostgreSQL URL; the rest of that is libpq's business and
 * handed on as it is. */
#include "store/url.h"

#include "base/error.h"
#include "base/str.h"

enum {
    BUSY_US_DEFAULT = 10 * 1000 * 1000,
    PAYLOAD_BYTES_MAX = 32 * 1024 * 1024,
    CHECKPOINT_PAGES_MAX = 1000000,
    POOL_MAX = 1000,
};
#define KEY_TTL_US_DEFAULT INT64_C(86400000000)    /* 24 h; does not fit into an enum */
#define DURATION_US_MAX    INT64_C(31536000000000) /* a year */

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') {
        return ch - '0';
    }
    if (ch >= 'a' && ch <= 'f') {
        return ch - 'a' + 10;
    }
    return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

static weir_status url_decode(store_url *u, weir_str in, const char *what, weir_str *decoded,
                              weir_error *err)
{
    char *out = weir__arena_copy(&u->memory, in.ptr, in.len);
    size_t len = 0;
    if (out == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store URL");
    }
    for (size_t i = 0; i < in.len; i++) {
        char ch = in.ptr[i];
        if (ch == '%') {
            const int high = i + 2 < in.len ? hex_digit(in.ptr[i + 1]) : -1;
            const int low = i + 2 < in.len ? hex_digit(in.ptr[i + 2]) : -1;
            if (high < 0 || low < 0 || (high == 0 && low == 0)) {
                return weir__fail(
                    err, WEIR_EINVAL,
                    "store URL has '%%' without two hexadecimal digits at byte %zu of "
                    "its %s (write %%25 for '%%')",
                    i, what);
            }
            ch = (char)(high * 16 + low);
            i += 2;
        }
        out[len++] = ch;
    }
    out[len] = '\0';
    *decoded = (weir_str){ .ptr = out, .len = len };
    return WEIR_OK;
}

static weir_status bad_value(weir_error *err, weir_str name, weir_str value, const char *allowed)
{
    return weir__fail(err, WEIR_EINVAL, "store URL has %.*s=%.*s, allowed %s", (int)name.len,
                      name.ptr, (int)value.len, value.ptr, allowed);
}

static weir_status set_sqlite_parameter(store_url *u, weir_str name, weir_str value,
                                        weir_error *err)
{
    store_options *o = &u->options;
    if (weir__str_equal(name, weir__str("busy"))) {
        return weir__str_to_duration_us(value, &o->busy_us) && o->busy_us <= DURATION_US_MAX
                   ? WEIR_OK
                   : bad_value(err, name, value, "a duration such as 10s");
    }
    if (weir__str_equal(name, weir__str("sync"))) {
        o->sync_normal = weir__str_equal(value, weir__str("normal"));
        return o->sync_normal || weir__str_equal(value, weir__str("full"))
                   ? WEIR_OK
                   : bad_value(err, name, value, "full or normal");
    }
    if (weir__str_equal(name, weir__str("checkpoint"))) {
        return weir__str_to_i64(value, &o->checkpoint_pages) && o->checkpoint_pages >= 1 &&
                       o->checkpoint_pages <= CHECKPOINT_PAGES_MAX
                   ? WEIR_OK
                   : bad_value(err, name, value, "1 to 1000000 pages");
    }
    if (weir__str_equal(name, weir__str("insecure"))) {
        o->insecure = weir__str_equal(value, weir__str("1"));
        return o->insecure || weir__str_equal(value, weir__str("0"))
                   ? WEIR_OK
                   : bad_value(err, name, value, "0 or 1");
    }
    if (weir__str_equal(name, weir__str("vfs"))) {
        o->vfs.ptr = weir__arena_copy(&u->memory, value.ptr, value.len);
        o->vfs.len = value.len;
        return o->vfs.ptr != NULL ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    return weir__fail(
        err, WEIR_EINVAL,
        "store URL has the unknown parameter \"%.*s\", allowed payload, keys, busy, sync, "
        "checkpoint, insecure",
        (int)name.len, name.ptr);
}

static weir_status set_prepare(store_options *o, weir_str name, weir_str value, weir_error *err)
{
    static const char *const words[] = { "auto", "on", "off" };
    for (int32_t i = 0; i < 3; i++) {
        if (weir__str_equal(value, weir__str(words[i]))) {
            o->prepare = i;
            return WEIR_OK;
        }
    }
    return bad_value(err, name, value, "auto, on or off");
}

/* *ours: whether it is one of ours and not one of libpq's. */
static weir_status set_postgres_parameter(store_url *u, weir_str name, weir_str raw, bool *ours,
                                          weir_error *err)
{
    static const char *const known[] = { "schema", "busy", "pool", "timeout", "prepare", "direct" };
    store_options *o = &u->options;
    weir_str value;
    *ours = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        *ours = *ours || weir__str_equal(name, weir__str(known[i]));
    }
    if (!*ours) {
        return WEIR_OK;
    }
    const weir_status status = url_decode(u, raw, "parameters", &value, err);
    if (status != WEIR_OK) {
        return status;
    }
    switch (name.ptr[0]) {
    case 's':
        o->schema = value;
        return value.len > 0 ? WEIR_OK : bad_value(err, name, value, "the name of a schema");
    case 'd':
        o->direct = value;
        return value.len > 0 ? WEIR_OK : bad_value(err, name, value, "HOST:PORT");
    case 'b':
        return weir__str_to_duration_us(value, &o->busy_us) && o->busy_us <= DURATION_US_MAX
                   ? WEIR_OK
                   : bad_value(err, name, value, "a duration such as 10s");
    case 't':
        return weir__str_to_duration_us(value, &o->answer_us) && o->answer_us >= 100000 &&
                       o->answer_us <= DURATION_US_MAX
                   ? WEIR_OK
                   : bad_value(err, name, value, "a duration of 100ms or more, such as 8s");
    default:
        break;
    }
    if (weir__str_equal(name, weir__str("prepare"))) {
        return set_prepare(o, name, value, err);
    }
    return weir__str_to_i64(value, &o->pool) && o->pool >= 1 && o->pool <= POOL_MAX
               ? WEIR_OK
               : bad_value(err, name, value, "1 to 1000 connections");
}

static weir_status set_parameter(store_url *u, weir_str name, weir_str value, weir_error *err)
{
    store_options *o = &u->options;
    if (weir__str_equal(name, weir__str("payload"))) {
        return weir__str_to_bytes(value, &o->payload_bytes) && o->payload_bytes >= 2 &&
                       o->payload_bytes <= PAYLOAD_BYTES_MAX
                   ? WEIR_OK
                   : bad_value(err, name, value, "2 to 32MiB");
    }
    if (weir__str_equal(name, weir__str("keys"))) {
        return weir__str_to_duration_us(value, &o->key_ttl_us) && o->key_ttl_us >= 1 &&
                       o->key_ttl_us <= DURATION_US_MAX
                   ? WEIR_OK
                   : bad_value(err, name, value, "a duration such as 24h");
    }
    if (u->options.path.ptr != NULL && strcmp(u->scheme, "sqlite") == 0) {
        return set_sqlite_parameter(u, name, value, err);
    }
    return weir__fail(err, WEIR_EINVAL,
                      "store URL has the unknown parameter \"%.*s\", allowed payload, keys",
                      (int)name.len, name.ptr);
}

/* Called for each NAME=VALUE of a URL. */
typedef weir_status (*parameter_fn)(store_url *u, weir_str name, weir_str value, void *ctx,
                                    weir_error *err);

static weir_status take_own(store_url *u, weir_str name, weir_str value, void *ctx, weir_error *err)
{
    (void)ctx;
    return set_parameter(u, name, value, err);
}

/* PostgreSQL: ours are taken, the others are kept for libpq. ctx: a buffer that gets them. */
static weir_status take_or_keep(store_url *u, weir_str name, weir_str value, void *ctx,
                                weir_error *err)
{
    weir_buffer *kept = ctx;
    bool ours = false;
    if (weir__str_equal(name, weir__str("payload")) || weir__str_equal(name, weir__str("keys"))) {
        return set_parameter(u, name, value, err);
    }
    const weir_status status = set_postgres_parameter(u, name, value, &ours, err);
    if (status != WEIR_OK || ours) {
        return status;
    }
    return weir__buffer_add_text(kept, memchr(kept->ptr, '?', kept->len) == NULL ? "?" : "&") &&
                   weir__buffer_add(kept, name.ptr, name.len) && weir__buffer_add_text(kept, "=") &&
                   weir__buffer_add(kept, value.ptr, value.len)
               ? WEIR_OK
               : weir__fail(err, WEIR_ENOMEM, "could not allocate a store URL");
}

static weir_status parse_parameters(store_url *u, weir_str rest, parameter_fn fn, void *ctx,
                                    weir_error *err)
{
    while (rest.len > 0) {
        const char *amp = memchr(rest.ptr, '&', rest.len);
        const weir_str one = { .ptr = rest.ptr,
                               .len = amp == NULL ? rest.len : (size_t)(amp - rest.ptr) };
        const char *equals = one.len == 0 ? NULL : memchr(one.ptr, '=', one.len);
        if (equals == NULL && strcmp(u->scheme, "postgres") == 0) {
            /* Not shown: it may be the second half of a password. */
            return weir__fail(
                err, WEIR_EINVAL,
                "store URL has something after '?' that is not NAME=VALUE (write %%3F "
                "for a '?' in a name or password)");
        }
        if (equals == NULL) {
            return weir__fail(err, WEIR_EINVAL,
                              "store URL has \"%.*s\" where NAME=VALUE is expected", (int)one.len,
                              one.ptr);
        }
        const weir_str name = { .ptr = one.ptr, .len = (size_t)(equals - one.ptr) };
        const weir_str value = { .ptr = equals + 1, .len = one.len - name.len - 1 };
        const weir_status status = fn(u, name, value, ctx, err);
        if (status != WEIR_OK) {
            return status;
        }
        const size_t used = one.len + (amp == NULL ? 0 : 1);
        rest = (weir_str){ .ptr = rest.ptr + used, .len = rest.len - used };
    }
    return WEIR_OK;
}

/* A path, and nothing that could hide a password. */
static bool looks_like_path(weir_str text)
{
    static const char *const endings[] = { ".db", ".sqlite", ".sqlite3" };

    if (text.len == 0 || memchr(text.ptr, '@', text.len) != NULL ||
        memchr(text.ptr, ':', text.len) != NULL || memchr(text.ptr, '=', text.len) != NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const weir_str end = weir__str(endings[i]);
        if (text.len > end.len && memcmp(text.ptr + text.len - end.len, end.ptr, end.len) == 0) {
            return true;
        }
    }
    return text.ptr[0] == '/' || text.ptr[0] == '.';
}

/* What comes after the scheme may have a password in it, and so may a text without a scheme. */
static weir_status refuse_scheme(weir_str text, weir_error *err)
{
    size_t len = 0;

    while (len < text.len && ((text.ptr[len] >= 'a' && text.ptr[len] <= 'z') ||
                              (text.ptr[len] >= 'A' && text.ptr[len] <= 'Z'))) {
        len++;
    }
    if (len > 0 && len < text.len && text.ptr[len] == ':') {
        return weir__fail(
            err, WEIR_EINVAL,
            "store URL \"%.*s:\" begins with none of postgres://, sqlite: and memory:",
            (int)(len < 16 ? len : 16), text.ptr);
    }
    (void)weir__fail(err, WEIR_EINVAL,
                     "store URL begins with none of postgres://, sqlite: and memory:");
    if (looks_like_path(text)) {
        weir__error_detail(err, "Did you mean sqlite:%.*s?", (int)text.len, text.ptr);
    }
    return WEIR_EINVAL;
}

/* sqlite://weir.db would be /weir.db; who writes it means the file of this directory. */
static weir_status refuse_slashes(weir_str path, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_EINVAL, "store URL \"sqlite://\" is followed by no absolute path");
    const weir_str name = { .ptr = path.ptr + 2, .len = path.len - 2 };
    if (looks_like_path(name)) {
        weir__error_detail(err, "Did you mean sqlite:%.*s?", (int)name.len, name.ptr);
    } else {
        weir__error_detail(err, "Write sqlite:FILE, or sqlite:///DIRECTORY/FILE.");
    }
    return status;
}

/* path becomes the URL without our own parameters. */
static weir_status parse_postgres(store_url *out, weir_str text, weir_error *err)
{
    const char *question = memchr(text.ptr, '?', text.len);
    const size_t before = question == NULL ? text.len : (size_t)(question - text.ptr);
    const weir_str rest = { .ptr = text.ptr + before + (question == NULL ? 0 : 1),
                            .len = text.len - before - (question == NULL ? 0 : 1) };
    weir_buffer kept = { 0 };
    weir_status status = weir__buffer_add(&kept, text.ptr, before)
                             ? WEIR_OK
                             : weir__fail(err, WEIR_ENOMEM, "could not allocate a store URL");
    out->scheme = "postgres";
    if (status == WEIR_OK) {
        status = parse_parameters(out, rest, take_or_keep, &kept, err);
    }
    if (status == WEIR_OK) {
        out->options.path.ptr = weir__arena_copy(&out->memory, kept.ptr, kept.len);
        out->options.path.len = kept.len;
        status = out->options.path.ptr != NULL
                     ? WEIR_OK
                     : weir__fail(err, WEIR_ENOMEM, "could not allocate a store URL");
    }
    weir__buffer_free(&kept);
    return status;
}

weir_status weir__url_parse(store_url *out, const char *url, weir_error *err)
{
    *out = (store_url){ 0 };
    out->options = (store_options){ .busy_us = BUSY_US_DEFAULT,
                                    .key_ttl_us = KEY_TTL_US_DEFAULT,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .application = "weir",
                                    .clock = weir__clock_machine() };
    const weir_str text = weir__str(url == NULL ? "sqlite:weir.db" : url);
    size_t scheme_len = 0;
    if (weir__str_starts_with(text, weir__str("postgres://")) ||
        weir__str_starts_with(text, weir__str("postgresql://"))) {
        return parse_postgres(out, text, err);
    }
    if (weir__str_starts_with(text, weir__str("sqlite:"))) {
        out->scheme = "sqlite";
        scheme_len = 7;
    } else if (weir__str_starts_with(text, weir__str("memory:"))) {
        out->scheme = "memory";
        scheme_len = 7;
    } else {
        return refuse_scheme(text, err);
    }
    const weir_str rest = { .ptr = text.ptr + scheme_len, .len = text.len - scheme_len };
    const char *question = rest.len == 0 ? NULL : memchr(rest.ptr, '?', rest.len);
    const weir_str path = { .ptr = rest.ptr,
                            .len = question == NULL ? rest.len : (size_t)(question - rest.ptr) };
    weir_status status = url_decode(out, path, "path", &out->options.path, err);
    if (status == WEIR_OK && path.len == 0 && strcmp(out->scheme, "sqlite") == 0) {
        status = weir__fail(err, WEIR_EINVAL, "store URL \"sqlite:\" has no path");
    }
    if (status == WEIR_OK && strcmp(out->scheme, "sqlite") == 0 &&
        weir__str_starts_with(path, weir__str("//")) &&
        !weir__str_starts_with(path, weir__str("///"))) {
        status = refuse_slashes(path, err);
    }
    if (status == WEIR_OK && question != NULL) {
        status =
            parse_parameters(out, (weir_str){ .ptr = question + 1, .len = rest.len - path.len - 1 },
                             take_own, NULL, err);
    }
    return status;
}

void weir__url_free(store_url *url)
{
    weir__arena_free(&url->memory);
    *url = (store_url){ 0 };
}

weir_status weir__store_open(weir_store **out, const store_url *url, weir_error *err)
{
    if (strcmp(url->scheme, "postgres") == 0) {
        return weir__postgres_open(out, &url->options, err);
    }
    return strcmp(url->scheme, "memory") == 0 ? weir__memory_open(out, &url->options, err)
                                              : weir__sqlite_open(out, &url->options, err);
}
