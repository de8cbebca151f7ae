/* table_json.c - rows as JSON objects, without losing a digit.
 *
 * INVARIANTS
 *   (1) What is written is valid JSON on one line, whatever the database gave: what is not of the
 *       shape that was announced is written as a string.
 *   (2) Numbers are copied digit by digit; no floating point is involved.
 */
#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "table/table_private.h"

#include <string.h>

enum { ARRAY_DEPTH_MAX = 16 }; /* PostgreSQL's own limit is 6 */

static bool write_cell(weir_buffer *out, const table_cell *cell);

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t digits_at(weir_str s, size_t at)
{
    size_t n = 0;
    while (at + n < s.len && s.ptr[at + n] >= '0' && s.ptr[at + n] <= '9') {
        n++;
    }
    return n;
}

/* As RFC 8259 has it: NaN, Infinity and 007 are none. */
static bool is_json_number(weir_str s)
{
    size_t at = s.len > 0 && s.ptr[0] == '-' ? 1 : 0;
    const size_t whole = digits_at(s, at);
    if (whole == 0 || (whole > 1 && s.ptr[at] == '0')) {
        return false;
    }
    at += whole;
    if (at < s.len && s.ptr[at] == '.') {
        const size_t fraction = digits_at(s, at + 1);
        if (fraction == 0) {
            return false;
        }
        at += 1 + fraction;
    }
    if (at < s.len && (s.ptr[at] == 'e' || s.ptr[at] == 'E')) {
        at++;
        at += at < s.len && (s.ptr[at] == '+' || s.ptr[at] == '-') ? 1 : 0;
        const size_t exponent = digits_at(s, at);
        if (exponent == 0) {
            return false;
        }
        at += exponent;
    }
    return at == s.len;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Two digits, or -1. */
static int two_digits(const char *at)
{
    return at[0] >= '0' && at[0] <= '9' && at[1] >= '0' && at[1] <= '9'
               ? (at[0] - '0') * 10 + (at[1] - '0')
               : -1;
}

/* PostgreSQL's ISO style: 2026-11-15 10:00:00.5+05:30, an offset of +HH, +HH:MM or, before the time
 * zones were agreed upon, +HH:MM:SS. false: infinity, a year before 1 or after 9999. */
static bool time_from_postgres(weir_str s, int64_t *out)
{
    enum { TEXT_BYTES_MAX = 40, CLOCK_END = 19 };
    char text[TEXT_BYTES_MAX + 4];
    size_t sign = CLOCK_END;
    int64_t seconds = 0;
    if (s.len < CLOCK_END + 3 || s.len > TEXT_BYTES_MAX) {
        return false;
    }
    while (sign < s.len && s.ptr[sign] != '+' && s.ptr[sign] != '-') {
        sign++;
    }
    memcpy(text, s.ptr, s.len);
    size_t len = s.len;
    if (len == sign + 9 && text[sign + 6] == ':') {
        seconds = two_digits(text + sign + 7);
        len -= 3;
    } else if (len == sign + 3) {
        text[len++] = ':';
        text[len++] = '0';
        text[len++] = '0';
    }
    if (sign == s.len || seconds < 0 ||
        !weir__time_from_text((weir_str){ .ptr = text, .len = len }, out)) {
        return false;
    }
    *out += (s.ptr[sign] == '+' ? -seconds : seconds) * 1000000;
    return true;
}

static bool write_time(weir_buffer *out, weir_str s)
{
    char text[WEIR_TIME_TEXT_BYTES];
    int64_t time_us;
    if (!time_from_postgres(s, &time_us)) {
        return weir__json_write_string(out, s);
    }
    weir__time_to_text(time_us, text);
    return weir__json_write_string(out, weir__str(text));
}

/* The blank between date and clock is a T in RFC 3339; a year of five digits, or before Christ, is
 * left to the reader as it is. */
static bool write_time_bare(weir_buffer *out, weir_str s)
{
    enum { DATE_BYTES = 10 };
    char text[32];
    if (s.len <= DATE_BYTES || s.len >= sizeof text || s.ptr[DATE_BYTES] != ' ' ||
        memchr(s.ptr + DATE_BYTES + 1, ' ', s.len - DATE_BYTES - 1) != NULL) {
        return weir__json_write_string(out, s);
    }
    memcpy(text, s.ptr, s.len);
    text[DATE_BYTES] = 'T';
    return weir__json_write_string(out, (weir_str){ .ptr = text, .len = s.len });
}

/* ---- JSON and bytes -------------------------------------------------------------------------- */

/* Without the white space, which may hold line breaks. What PostgreSQL accepts and our stricter
 * reader does not (\u0000, 1,000 levels) is kept, on one line. */
static bool write_json(weir_buffer *out, weir_str s)
{
    const weir_status status = weir__json_compact(s, out, NULL, NULL);
    if (status != WEIR_EINVAL) {
        return status == WEIR_OK;
    }
    const size_t start = out->len;
    if (s.len == 0 || !weir__buffer_add(out, s.ptr, s.len)) {
        return s.len == 0 && weir__buffer_add_text(out, "null");
    }
    for (size_t i = start; i < out->len; i++) {
        if ((unsigned char)out->ptr[i] < ' ') {
            out->ptr[i] = ' '; /* never inside a string: there it would be escaped */
        }
    }
    return true;
}

static bool write_bytes(weir_buffer *out, weir_str bytes)
{
    return weir__buffer_add_text(out, "\"") && weir__base64_add(out, bytes) &&
           weir__buffer_add_text(out, "\"");
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool weir__table_bytes_decode(weir_str text, char *out, size_t *len)
{
    size_t n = 0;
    if (text.len >= 2 && text.ptr[0] == '\\' && text.ptr[1] == 'x') {
        for (size_t i = 2; i + 1 < text.len; i += 2) {
            const int high = hex_value(text.ptr[i]);
            const int low = hex_value(text.ptr[i + 1]);
            if (high < 0 || low < 0) {
                return false;
            }
            out[n++] = (char)(high * 16 + low);
        }
        *len = n;
        return text.len % 2 == 0;
    }
    /* The older form: \\ is a backslash, \ooo a byte in octal, anything else itself. */
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] != '\\') {
            out[n++] = text.ptr[i];
        } else if (i + 1 < text.len && text.ptr[i + 1] == '\\') {
            out[n++] = '\\';
            i++;
        } else if (i + 3 < text.len) {
            out[n++] = (char)((text.ptr[i + 1] - '0') * 64 + (text.ptr[i + 2] - '0') * 8 +
                              (text.ptr[i + 3] - '0'));
            i += 3;
        } else {
            return false;
        }
    }
    *len = n;
    return true;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

typedef struct array_reader {
    const char *at, *end;
    table_shape element;
    weir_buffer text; /* of the element that is read */
    int depth;
} array_reader;

/* An element as it was before it became part of an array. *quoted: NULL in it is a text. */
static bool read_element(array_reader *r, bool *quoted)
{
    weir__buffer_clear(&r->text);
    *quoted = r->at < r->end && *r->at == '"';
    r->at += *quoted ? 1 : 0;
    for (; r->at < r->end; r->at++) {
        if (*quoted ? *r->at == '"' : *r->at == ',' || *r->at == '}') {
            r->at += *quoted ? 1 : 0;
            return true;
        }
        if (*r->at == '\\' && ++r->at == r->end) {
            return false;
        }
        if (!weir__buffer_add(&r->text, r->at, 1)) {
            return false;
        }
    }
    return false;
}

static bool write_element(weir_buffer *out, array_reader *r)
{
    bool quoted;
    if (!read_element(r, &quoted)) {
        return false;
    }
    table_cell cell = { .shape = r->element,
                        .text = { .ptr = r->text.ptr == NULL ? "" : r->text.ptr,
                                  .len = r->text.len } };
    cell.null = !quoted && weir__str_equal(cell.text, weir__str("NULL"));
    if (cell.shape == TABLE_SHAPE_BYTES && !cell.null && r->text.len > 0 &&
        !weir__table_bytes_decode(cell.text, r->text.ptr, &cell.text.len)) {
        return false; /* decoding in place: bytes are never longer than their text */
    }
    return write_cell(out, &cell);
}

static bool write_array(weir_buffer *out, array_reader *r)
{
    bool first = true;
    if (r->at == r->end || *r->at != '{' || ++r->depth > ARRAY_DEPTH_MAX) {
        return false;
    }
    bool ok = weir__buffer_add_text(out, "[");
    r->at++;
    while (ok && r->at < r->end && *r->at != '}') {
        if (!first) {
            ok = *r->at++ == ',' && weir__buffer_add_text(out, ",") && r->at < r->end;
        }
        first = false;
        ok = ok && (*r->at == '{' ? write_array(out, r) : write_element(out, r));
    }
    r->depth--;
    return ok && r->at < r->end && *r->at++ == '}' && weir__buffer_add_text(out, "]");
}

/* {1,2,NULL}, {{"a b",c},{d,e}}, [2:3]={5,6}: the bounds of an array are no part of its JSON. */
static bool write_whole_array(weir_buffer *out, const table_cell *cell)
{
    array_reader r = { .at = cell->text.ptr,
                       .end = cell->text.ptr + cell->text.len,
                       .element = cell->element };
    const size_t start = out->len;
    if (cell->text.len > 0 && *r.at == '[') {
        const char *equals = memchr(r.at, '=', cell->text.len);
        r.at = equals == NULL ? r.at : equals + 1;
    }
    const bool ok = write_array(out, &r) && r.at == r.end;
    weir__buffer_free(&r.text);
    if (ok) {
        return true;
    }
    out->len = start;
    return weir__json_write_string(out, cell->text);
}

/* ---- cells and rows -------------------------------------------------------------------------- */

static bool write_cell(weir_buffer *out, const table_cell *cell)
{
    if (cell->null) {
        return weir__buffer_add_text(out, "null");
    }
    switch (cell->shape) {
    case TABLE_SHAPE_TEXT:
        break;
    case TABLE_SHAPE_NUMBER:
        if (is_json_number(cell->text)) {
            return weir__buffer_add(out, cell->text.ptr, cell->text.len);
        }
        break;
    case TABLE_SHAPE_BOOL:
        return weir__buffer_add_text(out, weir__str_equal(cell->text, weir__str("t")) ? "true"
                                                                                      : "false");
    case TABLE_SHAPE_JSON:
        return write_json(out, cell->text);
    case TABLE_SHAPE_BYTES:
        return write_bytes(out, cell->text);
    case TABLE_SHAPE_TIME:
        return write_time(out, cell->text);
    case TABLE_SHAPE_TIME_BARE:
        return write_time_bare(out, cell->text);
    case TABLE_SHAPE_ARRAY:
        return write_whole_array(out, cell);
    }
    return weir__json_write_string(out, cell->text);
}

bool weir__table_row_json(const table_result *r, size_t row, size_t columns, weir_buffer *out)
{
    const size_t count = columns < r->columns_count ? columns : r->columns_count;
    const table_cell *cells = r->cells + row * r->columns_count;
    bool ok = weir__buffer_add_text(out, "{");
    for (size_t i = 0; i < count && ok; i++) {
        ok = (i == 0 || weir__buffer_add_text(out, ",")) &&
             weir__json_write_string(out, r->names[i]) && weir__buffer_add_text(out, ":") &&
             write_cell(out, &cells[i]);
    }
    return ok && weir__buffer_add_text(out, "}");
}
