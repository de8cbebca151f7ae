/* json.c - checking JSON, walking over it, writing strings.
 *
 * The check is one loop without recursion: what is open is a depth and one bit per level. It never
 * copies while it goes; it remembers where the run of bytes began that is to be kept, and copies
 * that run when white space ends it. A text without white space is one run.
 *
 * The cursor trusts the check. All it guarantees for other texts is that it stays inside them: each
 * step compares with the end of the text, and nothing is counted but depth.
 */
#include "base/json.h"

#include "base/error.h"
#include "base/str.h"
#include "base/utf8.h"

#include <endian.h>
#include <string.h>

static bool is_space(char c)
{
    /* One comparison for nearly every byte that is asked about. */
    return (uint8_t)c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- strings ------------------------------------------------------------------------------ */

/* The first byte at or after `at` that is not plain inside a string: a quote, a backslash, a
 * control character or part of a multi-byte sequence; or `end`. */
static const char *skip_plain(const char *at, const char *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word;

    while ((size_t)(end - at) >= sizeof word) {
        memcpy(&word, at, sizeof word);
        word = le64toh(word);
        /* Eight comparisons at once: the high bit of a byte is set if the byte is one of those
         * (below 0x20; equal, which a subtraction of 1 makes negative; or high to begin with).
         * Borrows can spoil bytes above the first hit, never one below it. */
        const uint64_t hits = (word | (word - ones * 0x20) | ((word ^ ones * '"') - ones) |
                               ((word ^ ones * '\\') - ones)) &
                              ones * 0x80;
        if (hits != 0) {
            return at + __builtin_ctzll(hits) / 8;
        }
        at += sizeof word;
    }
    while (at < end && (uint8_t)*at >= 0x20 && (uint8_t)*at < 0x80 && *at != '"' && *at != '\\') {
        at++;
    }
    return at;
}

static int hex_value(char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Four hexadecimal digits. How many of them there are: 4 is success. */
static size_t read_hex4(const char *at, const char *end, uint32_t *out)
{
    uint32_t value = 0;
    size_t i = 0;

    for (; i < 4 && at + i < end; i++) {
        const int digit = hex_value(at[i]);
        if (digit < 0) {
            break;
        }
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return i;
}

/* What the character after a backslash stands for; 0: none of the short escapes. */
static char short_escape(char c)
{
    switch (c) {
    case '"':
    case '\\':
    case '/':
        return c;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return 0;
    }
}

typedef struct escape {
    uint32_t code;        /* the code point */
    size_t bytes;         /* of the escape; 0: it is wrong */
    size_t wrong_at;      /* where, counted from the backslash */
    const char *expected; /* what was expected there */
} escape;

/* The part of an escape from `\u` on. */
static escape read_unicode_escape(const char *at, const char *end)
{
    uint32_t high, low;
    size_t digits = read_hex4(at + 2, end, &high);

    if (digits < 4) {
        return (escape){ .wrong_at = 2 + digits, .expected = "expected four hexadecimal digits" };
    }
    if (high == 0) {
        return (escape){ .expected = "\\u0000 is not allowed" };
    }
    if (high < 0xD800 || high > 0xDFFF) {
        return (escape){ .code = high, .bytes = 6 };
    }
    if (high > 0xDBFF) {
        return (escape){ .expected = "expected a high surrogate before this low one" };
    }
    if (end - at < 8 || at[6] != '\\' || at[7] != 'u') {
        return (escape){ .wrong_at = 6,
                         .expected = "expected the escape of a low surrogate after a high one" };
    }
    digits = read_hex4(at + 8, end, &low);
    if (digits < 4) {
        return (escape){ .wrong_at = 8 + digits, .expected = "expected four hexadecimal digits" };
    }
    if (low < 0xDC00 || low > 0xDFFF) {
        return (escape){ .wrong_at = 6,
                         .expected = "expected the escape of a low surrogate after a high one" };
    }
    return (escape){ .code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), .bytes = 12 };
}

/* The escape whose backslash is at `at`. */
static escape read_escape(const char *at, const char *end)
{
    if (end - at >= 2) {
        if (at[1] == 'u') {
            return read_unicode_escape(at, end);
        }
        const char c = short_escape(at[1]);
        if (c != 0) {
            return (escape){ .code = (uint32_t)c, .bytes = 2 };
        }
    }
    return (escape){ .wrong_at = 1, .expected = "expected one of \"\\/bfnrtu after a backslash" };
}

/* ---- checking ----------------------------------------------------------------------------- */

enum { DEPTH_WORDS = WEIR_JSON_DEPTH_MAX / 64 + 1 }; /* one more for an envelope */

typedef struct checker {
    const char *at;
    const char *end;
    const char *run;      /* what begins here has been checked and not been copied */
    weir_buffer *out;     /* borrowed; has room for the whole text */
    const char *expected; /* NULL until something is wrong, which then is at `at` */
    unsigned depth, depth_max;
    uint64_t objects[DEPTH_WORDS]; /* bit n: level n is an object, not an array */
} checker;

static bool json_wrong(checker *c, const char *at, const char *expected)
{
    c->at = at;
    c->expected = expected;
    return false;
}

static void copy_run(checker *c)
{
    const size_t len = (size_t)(c->at - c->run);
    if (len > 0) { /* an empty text has no memory to point to */
        memcpy(c->out->ptr + c->out->len, c->run, len);
        c->out->len += len;
    }
}

static inline void skip_space(checker *c)
{
    if (c->at == c->end || !is_space(*c->at)) {
        return;
    }
    copy_run(c);
    do {
        c->at++;
    } while (c->at < c->end && is_space(*c->at));
    c->run = c->at;
}

static bool open_level(checker *c, bool object)
{
    if (c->depth == c->depth_max) {
        return json_wrong(c, c->at, "nested deeper than 128 levels");
    }
    const uint64_t bit = UINT64_C(1) << c->depth % 64;
    uint64_t *word = &c->objects[c->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    c->depth++;
    c->at++;
    return true;
}

static bool in_object(const checker *c)
{
    return (c->objects[(c->depth - 1) / 64] >> (c->depth - 1) % 64 & 1) != 0;
}

static bool check_string(checker *c)
{
    const char *at = c->at + 1;

    for (;;) {
        at = skip_plain(at, c->end);
        if (at == c->end) {
            return json_wrong(c, at, "expected '\"' to end a string");
        }
        if (*at == '"') {
            c->at = at + 1;
            return true;
        }
        if (*at == '\\') {
            const escape e = read_escape(at, c->end);
            if (e.bytes == 0) {
                return json_wrong(c, at + e.wrong_at, e.expected);
            }
            at += e.bytes;
        } else if ((uint8_t)*at < 0x20) {
            return json_wrong(c, at, "expected an escape for a control character");
        } else {
            uint32_t code;
            const size_t bytes = weir__utf8_decode(at, c->end, &code);
            if (bytes == 0) {
                return json_wrong(c, at, "expected valid UTF-8");
            }
            at += bytes;
        }
    }
}

static bool check_digits(checker *c)
{
    if (c->at == c->end || !is_digit(*c->at)) {
        return json_wrong(c, c->at, "expected a digit");
    }
    do {
        c->at++;
    } while (c->at < c->end && is_digit(*c->at));
    return true;
}

static bool check_number(checker *c)
{
    if (*c->at == '-') {
        c->at++;
    }
    if (c->at < c->end && *c->at == '0') {
        c->at++; /* and no further digit: what follows is then not expected */
    } else if (!check_digits(c)) {
        return false;
    }
    if (c->at < c->end && *c->at == '.') {
        c->at++;
        if (!check_digits(c)) {
            return false;
        }
    }
    if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
        c->at++;
        if (c->at < c->end && (*c->at == '+' || *c->at == '-')) {
            c->at++;
        }
        return check_digits(c);
    }
    return true;
}

static bool check_word(checker *c, const char *word, const char *expected)
{
    const size_t len = strlen(word);
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len) != 0) {
        return json_wrong(c, c->at, expected);
    }
    c->at += len;
    return true;
}

/* `"name":`, at a place where a member has to begin. */
static bool check_name(checker *c, const char *expected)
{
    if (c->at == c->end || *c->at != '"') {
        return json_wrong(c, c->at, expected);
    }
    if (!check_string(c)) {
        return false;
    }
    skip_space(c);
    if (c->at == c->end || *c->at != ':') {
        return json_wrong(c, c->at, "expected ':'");
    }
    c->at++;
    return true;
}

/* Opens an array or object. *empty: and it has been closed again. */
static bool check_open(checker *c, bool object, bool *empty)
{
    if (!open_level(c, object)) {
        return false;
    }
    skip_space(c);
    *empty = c->at < c->end && *c->at == (object ? '}' : ']');
    if (*empty) {
        c->depth--;
        c->at++;
        return true;
    }
    return !object || check_name(c, "expected a member's name or '}'");
}

/* A value, or the opening of one: *complete says which. `expected`: what to say if there is none.
 */
static bool check_value(checker *c, const char *expected, bool *complete)
{
    *complete = true;
    if (c->at == c->end) {
        return json_wrong(c, c->at, expected);
    }
    switch (*c->at) {
    case '"':
        return check_string(c);
    case '{':
        return check_open(c, true, complete);
    case '[':
        return check_open(c, false, complete);
    case 't':
        return check_word(c, "true", expected);
    case 'f':
        return check_word(c, "false", expected);
    case 'n':
        return check_word(c, "null", expected);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return check_number(c);
    default:
        return json_wrong(c, c->at, expected);
    }
}

/* After a complete value: closes what closes here. *more: another value has to follow. */
static bool check_after_value(checker *c, bool *more)
{
    for (;;) {
        skip_space(c);
        if (c->depth == 0) {
            *more = false;
            return c->at == c->end || json_wrong(c, c->at, "expected the end of the text");
        }
        const bool object = in_object(c);
        const char next = c->at < c->end ? *c->at : '\0';
        if (next == ',') {
            c->at++;
            *more = true;
            if (!object) {
                return true;
            }
            skip_space(c);
            return check_name(c, "expected a member's name");
        }
        if (next != (object ? '}' : ']')) {
            return json_wrong(c, c->at, object ? "expected ',' or '}'" : "expected ',' or ']'");
        }
        c->depth--;
        c->at++;
    }
}

static bool check_text(checker *c)
{
    const char *expected = "expected a value";
    bool more = true;

    while (more) {
        bool complete;
        skip_space(c);
        if (!check_value(c, expected, &complete)) {
            return false;
        }
        if (!complete) {
            expected = in_object(c) ? "expected a value" : "expected a value or ']'";
            continue;
        }
        expected = "expected a value";
        if (!check_after_value(c, &more)) {
            return false;
        }
    }
    return true;
}

static weir_status json_compact(weir_str text, unsigned depth_max, weir_buffer *out,
                                weir_json_type *type, weir_error *err)
{
    const size_t old_len = out->len;
    const char *start = text.len == 0 ? "" : text.ptr;

    if (start == NULL) {
        return weir__fail(err, WEIR_EINVAL, "JSON is NULL and has %zu bytes", text.len);
    }
    checker c = {
        .at = start, .end = start + text.len, .run = start, .out = out, .depth_max = depth_max
    };
    if (!weir__buffer_reserve(out, text.len)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu bytes for JSON", text.len);
    }
    if (!check_text(&c)) {
        out->len = old_len;
        return weir__fail(err, WEIR_EINVAL, "invalid JSON at byte %zu: %s", (size_t)(c.at - start),
                          c.expected);
    }
    copy_run(&c);
    if (type != NULL) {
        *type = weir__json_type((weir_str){ .ptr = out->ptr + old_len, .len = out->len - old_len });
    }
    return WEIR_OK;
}

weir_status weir__json_compact(weir_str text, weir_buffer *out, weir_json_type *type,
                               weir_error *err)
{
    return json_compact(text, WEIR_JSON_DEPTH_MAX, out, type, err);
}

weir_status weir__json_compact_envelope(weir_str text, weir_buffer *out, weir_json_type *type,
                                        weir_error *err)
{
    return json_compact(text, WEIR_JSON_DEPTH_MAX + 1, out, type, err);
}

/* ---- walking ------------------------------------------------------------------------------ */

static const char *after_space(const char *at, const char *end)
{
    while (at < end && is_space(*at)) {
        at++;
    }
    return at;
}

/* Behind the string whose opening quote is at `at`. */
static const char *after_string(const char *at, const char *end)
{
    at++;
    for (;;) {
        at = skip_plain(at, end);
        if (at == end) {
            return end;
        }
        if (*at == '"') {
            return at + 1;
        }
        at += *at == '\\' && end - at >= 2 ? 2 : 1;
    }
}

/* Behind the array or object that opens at `at`. Which bracket closes which has been checked. */
static const char *after_container(const char *at, const char *end)
{
    size_t depth = 0;

    while (at < end) {
        if (*at == '"') {
            at = after_string(at, end);
            continue;
        }
        if (*at == '{' || *at == '[') {
            depth++;
        } else if ((*at == '}' || *at == ']') && --depth == 0) {
            return at + 1;
        }
        at++;
    }
    return end;
}

static const char *after_value(const char *at, const char *end)
{
    if (at == end) {
        return end;
    }
    if (*at == '"') {
        return after_string(at, end);
    }
    if (*at == '{' || *at == '[') {
        return after_container(at, end);
    }
    while (at < end && *at != ',' && *at != ']' && *at != '}' && !is_space(*at)) {
        at++;
    }
    return at;
}

/* `s` without white space around it; never with a NULL pointer. */
static weir_str number_trimmed(weir_str s)
{
    const char *at = s.len == 0 ? "" : s.ptr;
    const char *end = at + s.len;

    at = after_space(at, end);
    while (end > at && is_space(end[-1])) {
        end--;
    }
    return (weir_str){ .ptr = at, .len = (size_t)(end - at) };
}

/* The walk over what is between `open` and the bracket at the end; an empty one for other texts. */
static weir_json_members json_walk(weir_str s, char open)
{
    const weir_str value = number_trimmed(s);
    const char *end = value.ptr + value.len;

    if (value.len < 2 || *value.ptr != open) {
        return (weir_json_members){ .next = end, .end = end };
    }
    return (weir_json_members){ .next = value.ptr + 1, .end = end - 1 };
}

/* The value at it->next, and the comma behind it. */
static bool take_value(weir_json_members *it)
{
    const char *start = after_space(it->next, it->end);
    const char *end = after_value(start, it->end);

    if (end == start) {
        it->next = it->end;
        return false;
    }
    it->value = (weir_str){ .ptr = start, .len = (size_t)(end - start) };
    it->next = after_space(end, it->end);
    if (it->next < it->end) {
        it->next++;
    }
    return true;
}

weir_json_members weir__json_members(weir_str object)
{
    return json_walk(object, '{');
}

bool weir__json_members_next(weir_json_members *it)
{
    const char *start = after_space(it->next, it->end);

    if (start == it->end || *start != '"') {
        it->next = it->end;
        return false;
    }
    const char *end = after_string(start, it->end);
    const char *colon = after_space(end, it->end);
    if (end - start < 2 || colon == it->end) {
        it->next = it->end;
        return false;
    }
    it->name = (weir_str){ .ptr = start + 1, .len = (size_t)(end - start) - 2 };
    it->next = colon + 1;
    return take_value(it);
}

weir_json_members weir__json_elements(weir_str array)
{
    return json_walk(array, '[');
}

bool weir__json_elements_next(weir_json_members *it)
{
    return take_value(it);
}

weir_json_type weir__json_type(weir_str value)
{
    const weir_str s = number_trimmed(value);

    if (s.len == 0) {
        return WEIR_JSON_NULL;
    }
    switch (*s.ptr) {
    case '{':
        return WEIR_JSON_OBJECT;
    case '[':
        return WEIR_JSON_ARRAY;
    case '"':
        return WEIR_JSON_STRING;
    case 't':
        return WEIR_JSON_TRUE;
    case 'f':
        return WEIR_JSON_FALSE;
    case 'n':
        return WEIR_JSON_NULL;
    default:
        return WEIR_JSON_NUMBER;
    }
}

/* ---- string values ------------------------------------------------------------------------ */

/* What is between the quotes of a string value. */
static bool string_body(weir_str value, weir_str *body)
{
    const weir_str s = number_trimmed(value);

    if (s.len < 2 || s.ptr[0] != '"' || s.ptr[s.len - 1] != '"') {
        return false;
    }
    *body = (weir_str){ .ptr = s.ptr + 1, .len = s.len - 2 };
    return true;
}

/* The next piece of a string's body, decoded: a run of bytes as they stand, or one escape. The
 * latter is put into `decoded`, which has to live as long as the result. false: a wrong escape. */
static bool next_piece(const char **at, const char *end, char decoded[WEIR_UTF8_BYTES_MAX],
                       weir_str *piece)
{
    if (**at != '\\') {
        const char *stop = memchr(*at, '\\', (size_t)(end - *at));
        if (stop == NULL) {
            stop = end;
        }
        *piece = (weir_str){ .ptr = *at, .len = (size_t)(stop - *at) };
        *at = stop;
        return true;
    }
    const escape e = read_escape(*at, end);
    if (e.bytes == 0) {
        return false;
    }
    *piece = (weir_str){ .ptr = decoded, .len = weir__utf8_encode(e.code, decoded) };
    *at += e.bytes;
    return true;
}

static bool body_is(weir_str body, weir_str text)
{
    const char *at = body.ptr;
    const char *end = body.ptr + body.len;
    char decoded[WEIR_UTF8_BYTES_MAX];
    size_t matched = 0;

    while (at < end) {
        weir_str piece;
        if (!next_piece(&at, end, decoded, &piece) || piece.len > text.len - matched ||
            memcmp(piece.ptr, text.ptr + matched, piece.len) != 0) {
            return false;
        }
        matched += piece.len;
    }
    return matched == text.len;
}

bool weir__json_get(weir_str object, const char *name, weir_str *value)
{
    const weir_str wanted = weir__str(name);
    weir_json_members it = weir__json_members(object);
    bool found = false;

    while (weir__json_members_next(&it)) {
        if (body_is(it.name, wanted)) {
            *value = it.value;
            found = true;
        }
    }
    return found;
}

bool weir__json_string_decode(weir_str value, weir_buffer *out)
{
    const size_t old_len = out->len;
    weir_str body;
    char decoded[WEIR_UTF8_BYTES_MAX];

    if (!string_body(value, &body) || !weir__buffer_reserve(out, body.len)) {
        return false;
    }
    const char *at = body.ptr;
    const char *end = body.ptr + body.len;
    while (at < end) {
        weir_str piece;
        if (!next_piece(&at, end, decoded, &piece) ||
            !weir__buffer_add(out, piece.ptr, piece.len)) {
            out->len = old_len;
            return false;
        }
    }
    return true;
}

bool weir__json_string_is(weir_str value, weir_str text)
{
    weir_str body;
    return string_body(value, &body) && body_is(body, text);
}

/* Appends the escape of a code point below U+10000. */
static bool write_escape(weir_buffer *out, uint32_t code)
{
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";

    for (size_t i = 0; letters[i] != '\0'; i += 2) {
        if (code == (uint32_t)letters[i]) {
            const char text[2] = { '\\', letters[i + 1] };
            return weir__buffer_add(out, text, sizeof text);
        }
    }
    char text[WEIR_UTF8_ESCAPE_BYTES_MAX];
    return weir__buffer_add(out, text, weir__utf8_escape(code, text));
}

/* Appends text[0..len) between quotes; leaves half of it behind when memory runs out. */
static bool write_quoted(weir_buffer *out, const char *at, const char *end)
{
    const char *run = at; /* what begins here needs no escape and has not been copied */

    if (!weir__buffer_add(out, "\"", 1)) {
        return false;
    }
    for (;;) {
        const char *stop = skip_plain(at, end);
        const char *del = stop == at ? NULL : memchr(at, 0x7F, (size_t)(stop - at));
        at = del == NULL ? stop : del; /* plain to a parser, but not to a terminal */
        uint32_t code = 0;
        const size_t bytes = at == end ? 0 : weir__utf8_decode(at, end, &code);
        const bool hidden = bytes > 1 && weir__utf8_hidden(code);
        if (bytes > 1 && code > 0x9F && !hidden) {
            at += bytes;
            continue;
        }
        if (!weir__buffer_add(out, run, (size_t)(at - run))) {
            return false;
        }
        if (hidden) {
            char text[WEIR_UTF8_ESCAPE_BYTES_MAX];
            if (!weir__buffer_add(out, text, weir__utf8_escape(code, text))) {
                return false;
            }
            at += bytes;
            run = at;
            continue;
        }
        if (at == end) {
            return weir__buffer_add(out, "\"", 1);
        }
        /* NUL is as little allowed in our JSON as bytes that are not UTF-8. */
        if (!write_escape(out, bytes == 0 || code == 0 ? 0xFFFD : code)) {
            return false;
        }
        at += bytes == 0 ? 1 : bytes;
        run = at;
    }
}

bool weir__json_write_string(weir_buffer *out, weir_str text)
{
    const size_t old_len = out->len;
    const char *start = text.len == 0 ? "" : text.ptr;

    if (weir__buffer_reserve(out, text.len < SIZE_MAX - 2 ? text.len + 2 : text.len) &&
        write_quoted(out, start, start + text.len)) {
        return true;
    }
    out->len = old_len;
    return false;
}

bool weir__json_write_value(weir_buffer *out, weir_str text)
{
    const weir_status status = weir__json_compact(text, out, NULL, NULL);
    return status == WEIR_EINVAL ? weir__json_write_string(out, text) : status == WEIR_OK;
}
