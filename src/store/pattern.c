/* pattern.c - see pattern.h. Regular expressions are checked against the portable subset before
 * PCRE2 compiles them, so that what is accepted here means the same in every store's own dialect.
 *
 * INVARIANTS
 *   (1) check_regex accepts nothing whose meaning depends on the dialect.
 *   (2) a match is bounded by PATTERN_MATCH_STEPS_MAX, whatever the pattern and the name.
 *
 * THREADS  A pattern is immutable but for `match`, PCRE2's scratch memory, which `mu` guards. It is
 * a leaf lock, held for one match.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "store/pattern.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/thread.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

enum { REGEX_GROUPS_DEPTH_MAX = 32 };

struct store_pattern_match {
    weir_mutex mu;
    pcre2_match_data *data;       /* owned; guarded by mu */
    pcre2_match_context *context; /* owned; immutable */
};

/* ---- the portable subset ------------------------------------------------------------------ */

typedef struct regex_check {
    const char *at, *end;
    const char *begin;
    int depth;
    bool repeatable; /* what stands before can be repeated */
    weir_error *err;
} regex_check;

static weir_status regex_refuse(const regex_check *c, const char *what)
{
    return weir__fail(c->err, WEIR_EINVAL,
                      "invalid regular expression at byte %td: %s is not supported",
                      c->at - c->begin, what);
}

static bool is_one_of(char ch, const char *set)
{
    return ch != '\0' && strchr(set, ch) != NULL;
}

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

/* At a backslash. */
static weir_status check_escape(regex_check *c, bool in_class)
{
    if (c->end - c->at < 2) {
        return regex_refuse(c, "a backslash at the end");
    }
    const char ch = c->at[1];
    const bool shorthand = is_one_of(ch, in_class ? "dws" : "dwsDWS");
    if (!shorthand && !is_one_of(ch, "\\.*+?()[]{}|^$/-")) {
        char what[32];
        (void)snprintf(what, sizeof what, "\\%c", ch >= 0x20 && ch < 0x7f ? ch : '?');
        return regex_refuse(c, what);
    }
    c->at += 2;
    return WEIR_OK;
}

/* At a '['. */
static weir_status check_class(regex_check *c)
{
    c->at++;
    if (c->at < c->end && *c->at == '^') {
        c->at++;
    }
    if (c->at < c->end && *c->at == ']') {
        return regex_refuse(c, "an empty class or a class that begins with ']' (write \\])");
    }
    while (c->at < c->end && *c->at != ']') {
        weir_status status = WEIR_OK;
        if (*c->at == '[') {
            status = regex_refuse(c, "'[' inside a class (write \\[)");
        } else if (*c->at == '\\') {
            status = check_escape(c, true);
        } else {
            c->at++;
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (c->at == c->end) {
        return regex_refuse(c, "a class without ']'");
    }
    c->at++;
    c->repeatable = true;
    return WEIR_OK;
}

static bool read_count(regex_check *c, int *out)
{
    int value = 0;
    const char *start = c->at;
    while (c->at < c->end && is_digit(*c->at) && value <= PATTERN_REPEAT_MAX) {
        value = value * 10 + (*c->at - '0');
        c->at++;
    }
    *out = value;
    return c->at > start;
}

/* At a '{': {m}, {m,} or {m,n}. */
static weir_status check_counts(regex_check *c)
{
    const regex_check start = *c;
    int least = 0;
    int most = 0;
    c->at++;
    if (!read_count(c, &least)) {
        return regex_refuse(&start, "'{' that is not {m}, {m,} or {m,n} (write \\{)");
    }
    most = least;
    if (c->at < c->end && *c->at == ',') {
        c->at++;
        if (!read_count(c, &most)) {
            most = least;
        }
    }
    if (c->at == c->end || *c->at != '}' || least > most || most > PATTERN_REPEAT_MAX) {
        return regex_refuse(&start,
                            "a repetition other than {m}, {m,} or {m,n} with m <= n <= 255");
    }
    c->at++;
    return WEIR_OK;
}

/* At one of * + ? {. */
static weir_status check_repetition(regex_check *c)
{
    if (!c->repeatable) {
        return regex_refuse(c, "a repetition of nothing or of a repetition");
    }
    if (*c->at == '{') {
        const weir_status status = check_counts(c);
        if (status != WEIR_OK) {
            return status;
        }
    } else {
        c->at++;
    }
    if (c->at < c->end && *c->at == '?') {
        c->at++; /* lazy: the same names match */
    } else if (c->at < c->end && *c->at == '+') {
        return regex_refuse(c, "a possessive repetition");
    }
    c->repeatable = false;
    return WEIR_OK;
}

/* At a '('. */
static weir_status check_group_begin(regex_check *c)
{
    if (++c->depth > REGEX_GROUPS_DEPTH_MAX) {
        return regex_refuse(c, "nesting of groups over 32");
    }
    c->at++;
    if (c->at < c->end && *c->at == '?') {
        if (c->end - c->at < 2 || c->at[1] != ':') {
            return regex_refuse(c, "'(?' other than '(?:' (look-around, flags, names)");
        }
        c->at += 2;
    } else if (c->at < c->end && *c->at == '*') {
        return regex_refuse(c, "'(*'");
    }
    c->repeatable = false;
    return WEIR_OK;
}

static weir_status check_one(regex_check *c)
{
    switch (*c->at) {
    case '\\':
        c->repeatable = true;
        return check_escape(c, false);
    case '[':
        return check_class(c);
    case '(':
        return check_group_begin(c);
    case ')':
        if (--c->depth < 0) {
            return regex_refuse(c, "')' without '('");
        }
        c->repeatable = true;
        break;
    case '*':
    case '+':
    case '?':
    case '{':
        return check_repetition(c);
    case '^':
    case '$':
    case '|':
        c->repeatable = false;
        break;
    case ']':
    case '}':
        return regex_refuse(c, "']' or '}' without its beginning (write it with a backslash)");
    default:
        c->repeatable = true;
        break;
    }
    c->at++;
    return WEIR_OK;
}

static weir_status check_regex(weir_str body, weir_error *err)
{
    regex_check c = { .at = body.ptr, .begin = body.ptr, .end = body.ptr + body.len, .err = err };
    while (c.at < c.end) {
        const weir_status status = check_one(&c);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return c.depth == 0 ? WEIR_OK : regex_refuse(&c, "'(' without ')'");
}

/* ---- compiling ---------------------------------------------------------------------------- */

static weir_status compile_regex(store_pattern *p, weir_str body, weir_error *err)
{
    int code = 0;
    PCRE2_SIZE offset = 0;
    p->code = pcre2_compile((PCRE2_SPTR)body.ptr, body.len,
                            PCRE2_UTF | PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY | PCRE2_NO_AUTO_CAPTURE,
                            &code, &offset, NULL);
    if (p->code == NULL) {
        PCRE2_UCHAR text[128] = { 0 };
        (void)pcre2_get_error_message(code, text, sizeof text);
        return weir__fail(err, WEIR_EINVAL, "invalid regular expression at byte %zu: %s", offset,
                          (const char *)text);
    }
    p->match = weir__calloc(1, sizeof *p->match);
    if (p->match == NULL || !weir__mutex_init(&p->match->mu)) {
        weir__free(p->match);
        p->match = NULL;
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a pattern");
    }
    p->match->data = pcre2_match_data_create(1, NULL);
    p->match->context = pcre2_match_context_create(NULL);
    if (p->match->data == NULL || p->match->context == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a pattern");
    }
    (void)pcre2_set_match_limit(p->match->context, PATTERN_MATCH_STEPS_MAX);
    return WEIR_OK;
}

static weir_status open_regex(store_pattern *p, weir_error *err)
{
    const weir_str text = p->text;
    if (text.len < 3 || text.ptr[text.len - 1] != '/') {
        return weir__fail(
            err, WEIR_EINVAL,
            "invalid pattern \"%.*s\": a regular expression stands between two slashes",
            (int)text.len, text.ptr);
    }
    const weir_str body = { .ptr = text.ptr + 1, .len = text.len - 2 };
    weir_status status = check_regex(body, err);
    if (status == WEIR_OK) {
        status = compile_regex(p, body, err);
    }
    p->kind = PATTERN_REGEX;
    return status;
}

static weir_status open_plain(store_pattern *p, weir_error *err)
{
    const weir_str text = p->text;
    const char *star = memchr(text.ptr, '*', text.len);
    if (star == NULL) {
        p->kind = PATTERN_EXACT;
        p->name = text;
        return WEIR_OK;
    }
    if (star != text.ptr + text.len - 1) {
        return weir__fail(
            err, WEIR_EINVAL,
            "invalid pattern \"%.*s\": '*' is allowed at the end only; write a regular "
            "expression between slashes for anything else",
            (int)text.len, text.ptr);
    }
    p->kind = text.len == 1 ? PATTERN_ALL : PATTERN_PREFIX;
    p->name = (weir_str){ .ptr = text.ptr, .len = text.len - 1 };
    return WEIR_OK;
}

weir_status weir__pattern_open(store_pattern **out, weir_str text, weir_error *err)
{
    weir_status status = WEIR_OK;
    store_pattern *p = NULL;
    if (text.len == 0 || text.len > PATTERN_BYTES_MAX) {
        return weir__fail(err, WEIR_EINVAL, "pattern has %zu bytes, allowed 1 to %d", text.len,
                          PATTERN_BYTES_MAX);
    }
    if (text.ptr == NULL || weir__utf8_valid_prefix(text.ptr, text.len) != text.len ||
        memchr(text.ptr, '\0', text.len) != NULL) {
        return weir__fail(err, WEIR_EINVAL, "pattern is not valid UTF-8");
    }
    p = weir__calloc(1, sizeof *p);
    char *copy = weir__strndup(text.ptr, text.len);
    if (p == NULL || copy == NULL) {
        weir__free(copy);
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a pattern");
        goto out;
    }
    p->owned_text = copy;
    p->text = (weir_str){ .ptr = copy, .len = text.len };
    status = copy[0] == '/' ? open_regex(p, err) : open_plain(p, err);
    if (status == WEIR_OK) {
        *out = p;
        p = NULL; /* moved to the caller */
    }
out:
    weir__pattern_close(p);
    return status;
}

void weir__pattern_close(store_pattern *pattern)
{
    if (pattern == NULL) {
        return;
    }
    if (pattern->match != NULL) {
        pcre2_match_data_free(pattern->match->data);
        pcre2_match_context_free(pattern->match->context);
        weir__mutex_destroy(&pattern->match->mu);
        weir__free(pattern->match);
    }
    pcre2_code_free(pattern->code);
    weir__free(pattern->owned_text);
    weir__free(pattern);
}

bool weir__pattern_matches(const store_pattern *pattern, weir_str name)
{
    int rc = 0;
    switch (pattern->kind) {
    case PATTERN_ALL:
        return true;
    case PATTERN_EXACT:
        return weir__str_equal(pattern->name, name);
    case PATTERN_PREFIX:
        return weir__str_starts_with(name, pattern->name);
    case PATTERN_REGEX:
        weir__lock(&pattern->match->mu);
        rc = pcre2_match(pattern->code, (PCRE2_SPTR)name.ptr, name.len, 0, 0, pattern->match->data,
                         pattern->match->context);
        weir__unlock(&pattern->match->mu);
        return rc >= 0;
    }
    return false;
}

weir_str weir__category(weir_str stream)
{
    const char *dash = stream.len == 0 ? NULL : memchr(stream.ptr, '-', stream.len);
    if (dash != NULL) {
        stream.len = (size_t)(dash - stream.ptr);
    }
    return stream;
}
