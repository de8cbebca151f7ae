/* table.c - rows as a table with aligned columns, in bounded memory and within the screen.
 *
 * The first rows wait until their columns can be measured; later ones are set under them. Without a
 * limit on the width a column that must grow grows from there on, and the last one is never padded.
 *
 * With a limit, no line is longer than the screen, so nothing wraps:
 *   1. Columns of text can be shortened to a few characters, all others are shown whole or not.
 *   2. While the least widths do not fit, the column with the highest rank goes.
 *   3. The room that is left is given to the columns in the order of their ranks.
 * That is decided once, with the head. What is longer later is shortened.
 */
#include "report/report.h"

#include "base/utf8.h"

#include <ctype.h>

enum {
    TABLE_ROWS_MAX = 200,
    TABLE_BYTES_MAX = 64 * 1024,
    TABLE_GAP = 2,
    TABLE_PAD_MAX = 64, /* a column is not padded further than this       */
    /* How many columns of the screen a text gets before others have to go for it. */
    TABLE_NAME_LEAST = 32,     /* one that is always shown (rank 0) */
    TABLE_SENTENCE_LEAST = 20, /* the last column                   */
    TABLE_TEXT_LEAST = 8,      /* any other                         */
};

static const report_screen no_screen;

static const report_screen *screen_of(const report_table *t)
{
    return t->screen == NULL ? &no_screen : t->screen;
}

/* ---- collecting ----------------------------------------------------------------------------- */

static bool add_cell(const report_screen *screen, weir_buffer *b, const report_field *field)
{
    char word[REPORT_WORD_BYTES] = "-";

    switch (field->type) {
    case REPORT_STR:
    case REPORT_STATE:
    case REPORT_RAW:
        return weir__report_shown(b, field->text.ptr == NULL ? weir__str("-") : field->text);
    case REPORT_I64:
        return weir__buffer_add_i64(b, field->number);
    case REPORT_COUNT:
        weir__report_count(field->number, word);
        break;
    case REPORT_BYTES:
        weir__report_bytes(field->number, word);
        break;
    case REPORT_SPAN:
        weir__report_span(field->number, word);
        break;
    case REPORT_BOOL:
        return weir__buffer_add_text(b, field->number != 0 ? "yes" : "no");
    case REPORT_TIME:
        if (field->number != 0) {
            weir__report_time(screen, field->number, word);
        }
        break;
    case REPORT_NULL:
        break;
    }
    return weir__buffer_add_text(b, word);
}

static bool is_text(report_type type)
{
    return type == REPORT_STR || type == REPORT_RAW;
}

/* Takes the columns from the first row. */
static void set_head(report_table *t, const report_field *fields, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        if ((fields[i].flags & REPORT_JSON_ONLY) != 0 || t->columns_count == REPORT_COLUMNS_MAX ||
            at + 2 >= sizeof t->head) {
            continue; /* of a user's table with many columns, the first ones are shown */
        }
        for (const char *p = fields[i].name; *p != '\0' && at + 2 < sizeof t->head; p++) {
            t->head[at++] = *p == '_' ? ' ' : (char)toupper((unsigned char)*p);
        }
        t->head[at++] = '\0';
        t->columns[t->columns_count++] = (report_column){
            .natural = strlen(fields[i].name),
            .least = strlen(fields[i].name),
            .right = fields[i].type == REPORT_I64 || fields[i].type == REPORT_COUNT ||
                     fields[i].type == REPORT_BYTES || fields[i].type == REPORT_SPAN,
            .state = fields[i].type == REPORT_STATE,
            .rank = fields[i].rank,
        };
    }
}

static void columns_measure(report_table *t, size_t column, report_type type, size_t width)
{
    report_column *c = &t->columns[column];
    const size_t text_least = c->rank == 0                     ? TABLE_NAME_LEAST
                              : column + 1 == t->columns_count ? TABLE_SENTENCE_LEAST
                                                               : TABLE_TEXT_LEAST;

    c->natural = width > c->natural ? width : c->natural;
    if (is_text(type) && width > text_least) {
        width = text_least;
    }
    c->least = width > c->least ? width : c->least;
}

bool weir__report_table_row(report_table *t, const report_field *fields, size_t count)
{
    if (t->columns_count == 0) {
        set_head(t, fields, count);
    }
    size_t column = 0;
    for (size_t i = 0; i < count && column < t->columns_count; i++) {
        if ((fields[i].flags & REPORT_JSON_ONLY) != 0) {
            continue;
        }
        const size_t at = t->text.len;
        if (!add_cell(screen_of(t), &t->text, &fields[i])) {
            return false;
        }
        const size_t len = t->text.len - at;
        if (!weir__buffer_add(&t->lengths, &len, sizeof len)) {
            return false;
        }
        columns_measure(t, column++, fields[i].type,
                        len == 0 ? 0 : weir__report_width(t->text.ptr + at, len));
    }
    t->rows_count++;
    return true;
}

bool weir__report_table_full(const report_table *t)
{
    return t->rows_count >= TABLE_ROWS_MAX || t->text.len >= TABLE_BYTES_MAX;
}

/* ---- fitting -------------------------------------------------------------------------------- */

/* The width of the lines if every column that is shown had its least width. */
static size_t least_width(const report_table *t)
{
    size_t width = 0;

    for (size_t i = 0; i < t->columns_count; i++) {
        if (!t->columns[i].hidden) {
            width += t->columns[i].least + (width == 0 ? 0 : TABLE_GAP);
        }
    }
    return width;
}

/* Of the columns that are shown the one to go first; columns_count: only one is left. */
static size_t least_important(const report_table *t)
{
    size_t worst = t->columns_count, shown = 0;

    for (size_t i = 0; i < t->columns_count; i++) {
        if (!t->columns[i].hidden) {
            shown++;
            if (worst == t->columns_count || t->columns[i].rank >= t->columns[worst].rank) {
                worst = i;
            }
        }
    }
    return shown > 1 ? worst : t->columns_count;
}

static void fit_columns(report_table *t)
{
    const size_t room = screen_of(t)->columns;
    size_t column;

    while (least_width(t) > room && (column = least_important(t)) < t->columns_count) {
        t->columns[column].hidden = true;
    }
    size_t spare = least_width(t) < room ? room - least_width(t) : 0;
    for (size_t i = 0; i < t->columns_count; i++) {
        t->columns[i].width = t->columns[i].least < room ? t->columns[i].least : room;
    }
    for (uint32_t rank = 0, next = 0;; rank = next) {
        next = rank;
        for (size_t i = 0; i < t->columns_count; i++) {
            report_column *c = &t->columns[i];
            if (!c->hidden && c->rank == rank && c->natural > c->width) {
                const size_t more = c->natural - c->width < spare ? c->natural - c->width : spare;
                c->width += more;
                spare -= more;
            }
            if (c->rank > rank && (next == rank || c->rank < next)) {
                next = c->rank;
            }
        }
        if (next == rank) {
            break;
        }
    }
}

/* Without a limit: as wide as what was seen so far, within reason. */
static void grow_columns(report_table *t)
{
    for (size_t i = 0; i < t->columns_count; i++) {
        const size_t natural = t->columns[i].natural;
        t->columns[i].width = natural < TABLE_PAD_MAX ? natural : TABLE_PAD_MAX;
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

static bool add_spaces(weir_buffer *out, size_t n)
{
    static const char spaces[] = "                                                                ";

    while (n > 0) {
        const size_t part = n < sizeof spaces - 1 ? n : sizeof spaces - 1;
        if (!weir__buffer_add(out, spaces, part)) {
            return false;
        }
        n -= part;
    }
    return true;
}

/* How many bytes of a cell are shown in `columns`, and how wide that is. */
static size_t fitting_bytes(const char *ptr, size_t len, size_t columns, size_t *width)
{
    size_t bytes = 0;

    *width = 0;
    while (bytes < len) {
        uint32_t code = 0;
        size_t n = weir__utf8_decode(ptr + bytes, ptr + len, &code);
        n = n == 0 ? 1 : n;
        const size_t wide = weir__report_width(ptr + bytes, n);
        if (*width + wide > columns) {
            break;
        }
        *width += wide;
        bytes += n;
    }
    return bytes;
}

/* The end of the line is not padded. */
static bool is_last(const report_table *t, size_t column)
{
    for (size_t i = column + 1; i < t->columns_count; i++) {
        if (!t->columns[i].hidden) {
            return false;
        }
    }
    return true;
}

static bool put_cell(const report_table *t, weir_buffer *out, size_t column, const char *ptr,
                     size_t len, bool head)
{
    static const char ellipsis[] = "\xe2\x80\xa6"; /* takes one column */
    const report_column *c = &t->columns[column];
    const report_screen *screen = screen_of(t);
    size_t width = weir__report_width(ptr, len);
    bool cut = false;

    if (screen->columns > 0 && width > c->width) {
        len = fitting_bytes(ptr, len, c->width - 1, &width);
        width++;
        cut = true;
    }
    const size_t pad = width < c->width ? c->width - width : 0;
    const report_mood mood =
        c->state && !head ? weir__report_mood((weir_str){ ptr, len }) : REPORT_MOOD_PLAIN;
    return add_spaces(out, c->right ? pad : 0) &&
           weir__buffer_add_text(out, weir__report_colour_on(screen, mood)) &&
           (len == 0 || weir__buffer_add(out, ptr, len)) &&
           (!cut || weir__buffer_add_text(out, ellipsis)) &&
           weir__buffer_add_text(out, weir__report_colour_off(screen, mood)) &&
           (is_last(t, column) ? weir__buffer_add(out, "\n", 1)
                               : add_spaces(out, (c->right ? 0 : pad) + TABLE_GAP));
}

static bool put_head(report_table *t, weir_buffer *out)
{
    const char *at = t->head;

    for (size_t column = 0; column < t->columns_count; column++) {
        if (!t->columns[column].hidden && !put_cell(t, out, column, at, strlen(at), true)) {
            return false;
        }
        at += strlen(at) + 1;
    }
    t->headed = true;
    return true;
}

bool weir__report_table_flush(report_table *t, weir_buffer *out)
{
    if (t->rows_count == 0) {
        return true;
    }
    if (screen_of(t)->columns == 0) {
        grow_columns(t);
    } else if (!t->headed) {
        fit_columns(t);
    }
    if (!t->headed && !put_head(t, out)) {
        return false;
    }
    const char *at = t->text.ptr;
    for (size_t i = 0; i < t->rows_count * t->columns_count; i++) {
        const size_t column = i % t->columns_count;
        size_t len;
        memcpy(&len, t->lengths.ptr + i * sizeof len, sizeof len);
        if (!t->columns[column].hidden && !put_cell(t, out, column, at, len, false)) {
            return false;
        }
        at += len;
    }
    weir__buffer_clear(&t->text);
    weir__buffer_clear(&t->lengths);
    t->rows_count = 0;
    return true;
}

void weir__report_table_free(report_table *t)
{
    weir__buffer_free(&t->text);
    weir__buffer_free(&t->lengths);
    *t = (report_table){ .screen = t->screen };
}
