/* table.c - rows as a table with aligned columns, in bounded memory.
 *
 * The first rows wait until their columns can be measured; later ones are set under them, and a
 * column that must grow grows from there on. The last column is never padded. Control characters
 * that JSON allows (U+007F to U+009F) and marks that turn the direction of a line are shown as '?',
 * so that data cannot steer the terminal.
 */
#define _XOPEN_SOURCE 700 /* wcwidth */

#define _GNU_SOURCE /* wcwidth */
#include "base/utf8.h"
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <wchar.h>

enum {
    TABLE_ROWS_MAX = 200,
    TABLE_BYTES_MAX = 64 * 1024,
    TABLE_GAP = 2,
    TABLE_PAD_MAX = 64, /* a column is not padded further than this */
};

/* How many columns a terminal uses. What the C library does not know takes one. */
static size_t shown_width(const char *ptr, size_t len)
{
    size_t columns = 0;

    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        const size_t bytes = weir__utf8_decode(ptr + i, ptr + len, &code);
        const int width = bytes > 1 ? wcwidth((wchar_t)code) : 1;
        columns += width < 0 ? 1 : (size_t)width;
        i += bytes == 0 ? 1 : bytes;
    }
    return columns;
}

/* The embeddings, overrides and isolates: U+202A to U+202E, U+2066 to U+2069. */
static bool is_direction(const unsigned char *at)
{
    return at[0] == 0xE2 && ((at[1] == 0x80 && at[2] >= 0xAA && at[2] <= 0xAE) ||
                             (at[1] == 0x81 && at[2] >= 0xA6 && at[2] <= 0xA9));
}

bool weir__cli_shown(weir_buffer *out, weir_str text)
{
    const size_t at = out->len;

    if (text.len == 0) {
        return true;
    }
    if (!weir__buffer_add(out, text.ptr, text.len)) {
        return false;
    }
    for (size_t i = at; i < out->len; i++) {
        const unsigned char byte = (unsigned char)out->ptr[i];
        if (byte < 0x20 || byte == 0x7F) {
            out->ptr[i] = '?';
        } else if (byte == 0xC2 && i + 1 < out->len && (unsigned char)out->ptr[i + 1] < 0xA0) {
            out->ptr[i] = '?';
            out->ptr[++i] = '?';
        } else if (i + 2 < out->len && is_direction((const unsigned char *)out->ptr + i)) {
            memset(out->ptr + i, '?', 3);
            i += 2;
        }
    }
    return true;
}

static bool add_cell(weir_buffer *b, const cli_field *field)
{
    char time[WEIR_TIME_TEXT_BYTES];

    switch (field->type) {
    case CLI_STR:
    case CLI_RAW:
        return weir__cli_shown(b, field->text.ptr == NULL ? weir__str("-") : field->text);
    case CLI_I64:
        return weir__buffer_add_i64(b, field->number);
    case CLI_BOOL:
        return weir__buffer_add_text(b, field->number != 0 ? "yes" : "no");
    case CLI_STAMP:
        if (field->number != 0) {
            weir__time_to_text(field->number, time);
            return weir__buffer_add_text(b, time);
        }
        break;
    case CLI_NULL:
        break;
    }
    return weir__buffer_add_text(b, "-");
}

/* Takes the names of the columns from the first row. */
static void set_head(cli_table *t, const cli_field *fields, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        if ((fields[i].flags & CLI_JSON_ONLY) != 0 || t->columns_count == CLI_COLUMNS_MAX ||
            at + 2 >= sizeof t->head) {
            continue; /* of a user's table with many columns, the first ones are shown */
        }
        for (const char *p = fields[i].name; *p != '\0' && at + 2 < sizeof t->head; p++) {
            t->head[at++] = *p == '_' ? ' ' : (char)toupper((unsigned char)*p);
        }
        t->head[at++] = '\0';
        t->widths[t->columns_count] = strlen(fields[i].name);
        t->right[t->columns_count] = fields[i].type == CLI_I64;
        t->columns_count++;
    }
}

bool weir__cli_table_row(cli_table *t, const cli_field *fields, size_t count)
{
    if (t->columns_count == 0) {
        set_head(t, fields, count);
    }
    size_t column = 0;
    for (size_t i = 0; i < count && column < t->columns_count; i++) {
        if ((fields[i].flags & CLI_JSON_ONLY) != 0) {
            continue;
        }
        const size_t at = t->text.len;
        if (!add_cell(&t->text, &fields[i])) {
            return false;
        }
        const size_t len = t->text.len - at;
        if (!weir__buffer_add(&t->lengths, &len, sizeof len)) {
            return false;
        }
        const size_t width = len == 0 ? 0 : shown_width(t->text.ptr + at, len);
        if (width > t->widths[column]) {
            t->widths[column] = width < TABLE_PAD_MAX ? width : TABLE_PAD_MAX;
        }
        column++;
    }
    t->rows_count++;
    return true;
}

bool weir__cli_table_full(const cli_table *t)
{
    return t->rows_count >= TABLE_ROWS_MAX || t->text.len >= TABLE_BYTES_MAX;
}

static bool add_spaces(weir_buffer *out, size_t n)
{
    static const char spaces[TABLE_PAD_MAX + TABLE_GAP + 1] =
        "                                                                  ";

    return n == 0 || weir__buffer_add(out, spaces, n);
}

static bool put_cell(const cli_table *t, weir_buffer *out, size_t column, const char *ptr,
                     size_t len)
{
    const bool last = column + 1 == t->columns_count;
    const size_t width = shown_width(ptr, len);
    const size_t pad = width < t->widths[column] ? t->widths[column] - width : 0;

    return add_spaces(out, t->right[column] ? pad : 0) &&
           (len == 0 || weir__buffer_add(out, ptr, len)) &&
           (last ? weir__buffer_add(out, "\n", 1)
                 : add_spaces(out, (t->right[column] ? 0 : pad) + TABLE_GAP));
}

bool weir__cli_table_flush(cli_table *t, weir_buffer *out)
{
    const char *at = t->head;

    if (t->rows_count == 0) {
        return true;
    }
    if (!t->headed) {
        for (size_t column = 0; column < t->columns_count; column++) {
            if (!put_cell(t, out, column, at, strlen(at))) {
                return false;
            }
            at += strlen(at) + 1;
        }
        t->headed = true;
    }
    at = t->text.ptr;
    for (size_t i = 0; i < t->rows_count * t->columns_count; i++) {
        size_t len;
        memcpy(&len, t->lengths.ptr + i * sizeof len, sizeof len);
        if (!put_cell(t, out, i % t->columns_count, at, len)) {
            return false;
        }
        at += len;
    }
    weir__buffer_clear(&t->text);
    weir__buffer_clear(&t->lengths);
    t->rows_count = 0;
    return true;
}

void weir__cli_table_free(cli_table *t)
{
    weir__buffer_free(&t->text);
    weir__buffer_free(&t->lengths);
    *t = (cli_table){ 0 };
}
