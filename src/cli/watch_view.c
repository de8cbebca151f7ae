/* watch_view.c - rows in order, the part of them that is shown, and the cursor. */
#include "cli/watch_view.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

static const char help_text[] =
    "Up, Down, k, j        one row up, down\n"
    "PgUp, PgDn, Space     one screen up, down\n"
    "Home, End, g, G       the first row, the last one\n"
    "Enter                 why: explain the row at the cursor\n"
    "/                     filter: only rows with this text; Enter keeps it, Esc drops it\n"
    "s                     order by the next column, at last in the first order again\n"
    "r                     reverse the order\n"
    "Ctrl-L                draw the screen anew\n"
    "q, Esc                back, or quit\n";

/* ---- rows ----------------------------------------------------------------------------------- */

static const view_row *rows_of(const view_set *set, size_t table)
{
    return (const view_row *)(const void *)set->tables[table].rows.ptr;
}

static const view_set *shown_set(const watch_view *v)
{
    return &v->sets[v->set];
}

static const view_line *line_at(const watch_view *v, size_t line)
{
    return (const view_line *)(const void *)v->lines.ptr + line;
}

static void set_free(view_set *set)
{
    for (size_t i = 0; i < VIEW_TABLES_MAX; i++) {
        weir__buffer_free(&set->tables[i].rows);
    }
    weir__arena_free(&set->arena);
}

void weir__view_begin(watch_view *v)
{
    view_set *set = &v->sets[1 - v->set];

    for (size_t i = 0; i < VIEW_TABLES_MAX; i++) {
        weir__buffer_clear(&set->tables[i].rows);
        set->tables[i].rows_count = 0;
    }
    weir__arena_reset(&set->arena);
}

void weir__view_commit(watch_view *v)
{
    v->set = 1 - v->set;
}

void weir__view_free(watch_view *v)
{
    set_free(&v->sets[0]);
    set_free(&v->sets[1]);
    weir__buffer_free(&v->list);
    weir__buffer_free(&v->lines);
    weir__buffer_free(&v->kept);
    weir__buffer_free(&v->text);
    weir__buffer_free(&v->title);
    weir__buffer_free(&v->frame);
    weir__buffer_free(&v->rows);
}

static bool text_copy(weir_arena *arena, weir_str *text)
{
    if (text->ptr != NULL) {
        text->ptr = weir__arena_copy(arena, text->ptr, text->len);
        return text->ptr != NULL;
    }
    return true;
}

bool weir__view_add(watch_view *v, size_t table, weir_str key, const report_field *fields,
                    size_t count)
{
    view_set *set = &v->sets[1 - v->set];
    view_row row = { .key = key };
    report_field *copies = weir__arena_alloc(&set->arena, count * sizeof *copies);
    size_t kept = 0;

    WEIR_ASSERT(table < v->tables_count && v->tables_count <= VIEW_TABLES_MAX);
    if (copies == NULL || !text_copy(&set->arena, &row.key)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if ((fields[i].flags & REPORT_JSON_ONLY) == 0) {
            copies[kept] = fields[i];
            if (!text_copy(&set->arena, &copies[kept++].text)) {
                return false;
            }
        }
    }
    row.fields = copies;
    set->tables[table].fields_count = kept;
    if (!weir__buffer_add(&set->tables[table].rows, &row, sizeof row)) {
        return false;
    }
    set->tables[table].rows_count++;
    return true;
}

/* ---- the filter ----------------------------------------------------------------------------- */

static char letter_lower(char ch)
{
    return ch >= 'A' && ch <= 'Z' ? (char)(ch - 'A' + 'a') : ch;
}

bool weir__view_fits(const watch_view *v, weir_str text)
{
    for (size_t at = 0; at + v->filter_bytes <= text.len; at++) {
        size_t same = 0;
        while (same < v->filter_bytes &&
               letter_lower(text.ptr[at + same]) == letter_lower(v->filter[same])) {
            same++;
        }
        if (same == v->filter_bytes) {
            return true;
        }
    }
    return false;
}

static bool row_fits(const watch_view *v, size_t table, const view_row *row)
{
    for (size_t i = 0; i < shown_set(v)->tables[table].fields_count; i++) {
        const report_field *field = &row->fields[i];
        const bool text = field->type == REPORT_STR || field->type == REPORT_STATE;
        if (text && weir__view_fits(v, field->text)) {
            return true;
        }
    }
    return v->filter_bytes == 0;
}

/* ---- the order ------------------------------------------------------------------------------ */

typedef struct sorted {
    const view_row *row;
    const report_field *field; /* NULL: the order in which they came */
    size_t index;
    bool reversed;
} sorted;

static bool field_is_text(const report_field *f)
{
    return f->type == REPORT_STR || f->type == REPORT_STATE || f->type == REPORT_RAW;
}

static bool field_is_null(const report_field *f)
{
    return f->type == REPORT_NULL || (field_is_text(f) && f->text.ptr == NULL) ||
           (f->type == REPORT_TIME && f->number == 0);
}

/* Text from a to z; of numbers, the greatest is what people look for. */
static int compare_fields(const report_field *a, const report_field *b)
{
    if (field_is_text(a)) {
        return weir__str_compare(a->text, b->text);
    }
    return a->number == b->number ? 0 : a->number > b->number ? -1 : 1;
}

/* Rows without a value come last in either direction. */
static int compare_sorted(const void *a, const void *b)
{
    const sorted *x = a, *y = b;
    int order = 0;

    if (x->field != NULL) {
        const bool x_null = field_is_null(x->field), y_null = field_is_null(y->field);
        if (x_null != y_null) {
            return x_null ? 1 : -1;
        }
        order = x_null ? 0 : compare_fields(x->field, y->field);
    } else {
        order = x->index < y->index ? -1 : 1;
    }
    if (order != 0) {
        return x->reversed ? -order : order;
    }
    return x->index < y->index ? -1 : x->index > y->index ? 1 : 0;
}

/* Those that fit, in order. *out: owned by the caller. */
static bool rows_select(const watch_view *v, size_t table, sorted **out, size_t *count)
{
    const view_order *order = &v->orders[table];
    const size_t rows_count = shown_set(v)->tables[table].rows_count;
    sorted *all = weir__calloc(rows_count + 1, sizeof *all);

    if (all == NULL) {
        return false;
    }
    *count = 0;
    for (size_t i = 0; i < rows_count; i++) {
        const view_row *row = &rows_of(shown_set(v), table)[i];
        if (row_fits(v, table, row)) {
            all[(*count)++] =
                (sorted){ .row = row,
                          .field = order->sort == 0 ? NULL : &row->fields[order->sort - 1],
                          .index = i,
                          .reversed = order->reversed };
        }
    }
    qsort(all, *count, sizeof *all, compare_sorted);
    *out = all;
    return true;
}

/* ---- laying out ----------------------------------------------------------------------------- */

static bool line_add(watch_view *v, size_t at, size_t len, const view_row *row, size_t table)
{
    const view_line line = { .at = at, .len = len, .row = row, .table = table };

    v->lines_count++;
    return weir__buffer_add(&v->lines, &line, sizeof line);
}

/* A head and a line for each row: cells have no line breaks, see report.h. */
static bool table_split(watch_view *v, size_t table, const sorted *rows, size_t count, size_t at)
{
    bool ok = true;

    for (size_t i = 0; ok && at < v->list.len; i++) {
        const char *end = memchr(v->list.ptr + at, '\n', v->list.len - at);
        WEIR_ASSERT(i <= count);
        const size_t len = end == NULL ? v->list.len - at : (size_t)(end - v->list.ptr) - at;
        ok = line_add(v, at, len, i == 0 ? NULL : rows[i - 1].row, table);
        at += len + 1;
    }
    return ok;
}

static bool table_lay_out(watch_view *v, size_t table, const report_screen *screen)
{
    report_table shown = { .screen = screen };
    sorted *rows = NULL;
    size_t count = 0;
    bool ok = rows_select(v, table, &rows, &count);

    for (size_t i = 0; ok && i < count; i++) {
        ok = weir__report_table_row(&shown, rows[i].row->fields,
                                    shown_set(v)->tables[table].fields_count);
    }
    if (ok && count > 0) {
        ok = v->lines_count == 0 || line_add(v, v->list.len, 0, NULL, table);
        const size_t at = v->list.len;
        ok = ok && weir__report_table_flush(&shown, &v->list) &&
             table_split(v, table, rows, count, at);
        v->rows_shown += count;
    }
    weir__free(rows);
    weir__report_table_free(&shown);
    return ok;
}

/* The first row at or after `line`, or else the last one before it; SIZE_MAX: there is none. */
static size_t nearest_row(const watch_view *v, size_t line)
{
    for (size_t i = line; i < v->lines_count; i++) {
        if (line_at(v, i)->row != NULL) {
            return i;
        }
    }
    for (size_t i = line < v->lines_count ? line : v->lines_count; i > 0; i--) {
        if (line_at(v, i - 1)->row != NULL) {
            return i - 1;
        }
    }
    return SIZE_MAX;
}

/* Puts the cursor where it was: on its row, or about there. */
static void cursor_find(watch_view *v, size_t before)
{
    const weir_str kept = { v->kept.ptr, v->kept.len };

    for (size_t i = 0; v->keeps && i < v->lines_count; i++) {
        const view_line *line = line_at(v, i);
        if (line->row != NULL && line->table == v->kept_table &&
            weir__str_equal(line->row->key, kept)) {
            v->cursor = i;
            return;
        }
    }
    v->cursor = nearest_row(v, v->keeps && before != SIZE_MAX ? before : 0);
}

/* Scrolls as little as is needed for the cursor to be seen. */
static void cursor_show(watch_view *v)
{
    const size_t page = v->page > v->head_lines ? v->page - v->head_lines : 1;
    const size_t body = v->lines_count > v->head_lines ? v->lines_count - v->head_lines : 0;

    if (v->cursor != SIZE_MAX) {
        const size_t line = v->cursor - v->head_lines;
        if (line < v->top) {
            v->top = line;
        }
        if (line >= v->top + page) {
            v->top = line - page + 1;
        }
        /* What stands above the first row is shown with it. */
        if (v->cursor == nearest_row(v, 0)) {
            v->top = line < page ? 0 : v->top;
        }
    }
    if (v->top + page > body) {
        v->top = body > page ? body - page : 0;
    }
}

bool weir__view_lay_out(watch_view *v, const report_screen *screen)
{
    const size_t before = v->cursor;
    report_screen room = *screen;
    bool ok = true;

    if (room.columns > 0) {
        room.columns = room.columns > VIEW_GUTTER + 1 ? room.columns - VIEW_GUTTER : 1;
    }
    weir__buffer_clear(&v->list);
    weir__buffer_clear(&v->lines);
    v->lines_count = 0;
    v->rows_shown = 0;
    for (size_t i = 0; ok && i < v->tables_count; i++) {
        ok = table_lay_out(v, i, &room);
    }
    v->head_lines = v->tables_count == 1 && v->lines_count > 0 ? 1 : 0;
    if (!ok) {
        v->lines_count = 0;
    }
    cursor_find(v, before);
    cursor_show(v);
    return ok;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* To the row that is `by` rows further, or the first or last one. It stays with that from now on,
 * but at the top. */
static void cursor_move(watch_view *v, int64_t by)
{
    size_t to = v->cursor;
    int64_t left = by < 0 ? -by : by;

    if (v->cursor == SIZE_MAX) {
        return;
    }
    for (size_t i = v->cursor; left > 0;) {
        if (by < 0 ? i == 0 : i + 1 >= v->lines_count) {
            break;
        }
        i = by < 0 ? i - 1 : i + 1;
        if (line_at(v, i)->row != NULL) {
            to = i;
            left--;
        }
    }
    v->cursor = to;
    const view_line *line = line_at(v, to);
    weir__buffer_clear(&v->kept);
    v->kept_table = line->table;
    v->keeps = to != nearest_row(v, 0) &&
               (line->row->key.len == 0 ||
                weir__buffer_add(&v->kept, line->row->key.ptr, line->row->key.len));
    cursor_show(v);
}

static void text_move(watch_view *v, int64_t by)
{
    const int64_t last = v->text_lines > v->page ? (int64_t)(v->text_lines - v->page) : 0;
    const int64_t most = INT32_MAX;
    const int64_t step = by > most ? most : by < -most ? -most : by;
    const int64_t to = (int64_t)v->text_top + step;

    v->text_top = (size_t)(to < 0 ? 0 : to > last ? last : to);
}

/* How far a key moves. 0: it does not. */
static int64_t key_step(const watch_view *v, const cli_key *key)
{
    const int64_t page = v->page > 2 ? (int64_t)v->page - 2 : 1;
    const int64_t far = INT32_MAX;

    switch (key->kind) {
    case CLI_KEY_UP:
        return -1;
    case CLI_KEY_DOWN:
        return 1;
    case CLI_KEY_PAGE_UP:
        return -page;
    case CLI_KEY_PAGE_DOWN:
        return page;
    case CLI_KEY_HOME:
        return -far;
    case CLI_KEY_END:
        return far;
    case CLI_KEY_TEXT:
        switch (key->text[0]) {
        case 'k':
            return -1;
        case 'j':
            return 1;
        case ' ':
            return page;
        case 'g':
            return -far;
        case 'G':
            return far;
        default:
            return 0;
        }
    case CLI_KEY_ENTER:
    case CLI_KEY_ESCAPE:
    case CLI_KEY_BACKSPACE:
    case CLI_KEY_CLEAR:
    case CLI_KEY_REDRAW:
    case CLI_KEY_OTHER:
        break;
    }
    return 0;
}

/* The table that has the cursor, if its order can be chosen; else the first one that has one. */
static size_t sorted_table(const watch_view *v)
{
    size_t table = v->cursor == SIZE_MAX ? 0 : line_at(v, v->cursor)->table;

    while (table + 1 < v->tables_count && v->orders[table].fixed) {
        table++;
    }
    return table;
}

static view_action filter_set(watch_view *v, size_t bytes)
{
    v->filter_bytes = bytes;
    return VIEW_LOOK;
}

static view_action typing_key(watch_view *v, const cli_key *key)
{
    switch (key->kind) {
    case CLI_KEY_ENTER:
        v->mode = VIEW_LIST;
        return VIEW_DRAW;
    case CLI_KEY_ESCAPE:
        v->mode = VIEW_LIST;
        return filter_set(v, 0);
    case CLI_KEY_CLEAR:
        return filter_set(v, 0);
    case CLI_KEY_BACKSPACE: {
        size_t bytes = v->filter_bytes;
        while (bytes > 0 && ((unsigned char)v->filter[--bytes] & 0xc0) == 0x80) {
        }
        return filter_set(v, bytes);
    }
    case CLI_KEY_TEXT:
        if (v->filter_bytes + key->text_bytes > sizeof v->filter) {
            return VIEW_DRAW;
        }
        memcpy(v->filter + v->filter_bytes, key->text, key->text_bytes);
        return filter_set(v, v->filter_bytes + key->text_bytes);
    case CLI_KEY_UP:
    case CLI_KEY_DOWN:
    case CLI_KEY_PAGE_UP:
    case CLI_KEY_PAGE_DOWN:
    case CLI_KEY_HOME:
    case CLI_KEY_END:
        cursor_move(v, key_step(v, key));
        break;
    case CLI_KEY_REDRAW:
    case CLI_KEY_OTHER:
        break;
    }
    return VIEW_DRAW;
}

static view_action text_key(watch_view *v, const cli_key *key)
{
    const bool closes = key->kind == CLI_KEY_ESCAPE || key->kind == CLI_KEY_ENTER ||
                        (key->kind == CLI_KEY_TEXT && key->text[0] == 'q');

    if (closes) {
        v->mode = VIEW_LIST;
    } else {
        text_move(v, key_step(v, key));
    }
    return VIEW_DRAW;
}

static view_action list_letter(watch_view *v, char letter)
{
    const size_t table = sorted_table(v);
    const size_t fields_count = shown_set(v)->tables[table].fields_count;
    view_order *order = &v->orders[table];

    switch (letter) {
    case 'q':
        return VIEW_QUIT;
    case '/':
        v->mode = VIEW_TYPING;
        return VIEW_DRAW;
    case 's':
        if (!order->fixed && fields_count > 0) {
            order->sort = (order->sort + 1) % (fields_count + 1);
            order->reversed = false;
        }
        return VIEW_ORDER;
    case 'r':
        order->reversed = !order->fixed && !order->reversed;
        return VIEW_ORDER;
    case '?':
        (void)weir__view_show(v, "keys", weir__str(help_text), SIZE_MAX);
        return VIEW_DRAW;
    default:
        return VIEW_DRAW;
    }
}

view_action weir__view_key(watch_view *v, const cli_key *key)
{
    if (v->mode == VIEW_TYPING) {
        return typing_key(v, key);
    }
    if (v->mode == VIEW_TEXT) {
        return text_key(v, key);
    }
    if (key->kind == CLI_KEY_ENTER) {
        return v->cursor == SIZE_MAX ? VIEW_DRAW : VIEW_EXPLAIN;
    }
    if (key->kind == CLI_KEY_ESCAPE) {
        return v->filter_bytes > 0 ? filter_set(v, 0) : VIEW_QUIT;
    }
    const int64_t step = key_step(v, key);
    if (step != 0) {
        cursor_move(v, step);
        return VIEW_DRAW;
    }
    return key->kind == CLI_KEY_TEXT ? list_letter(v, key->text[0]) : VIEW_DRAW;
}

bool weir__view_key_of(const watch_view *v, weir_str *key)
{
    if (v->cursor == SIZE_MAX) {
        return false;
    }
    *key = line_at(v, v->cursor)->row->key;
    return true;
}

/* Adds a line, broken where the screen ends: nothing of an explanation is lost at the edge. */
static bool text_fold(watch_view *v, weir_str line, size_t columns)
{
    size_t used = 0, from = 0;
    bool ok = true;

    for (size_t at = 0; ok && at < line.len;) {
        uint32_t code = 0;
        const size_t n = weir__utf8_decode(line.ptr + at, line.ptr + line.len, &code);
        const size_t bytes = n == 0 ? 1 : n;
        const size_t width = weir__report_width(line.ptr + at, bytes);
        if (used > 0 && used + width > columns) {
            ok = weir__buffer_add(&v->text, line.ptr + from, at - from) &&
                 weir__buffer_add(&v->text, "\n", 1);
            v->text_lines++;
            from = at;
            used = 0;
        }
        used += width;
        at += bytes;
    }
    v->text_lines++;
    return ok &&
           (line.len == from || weir__buffer_add(&v->text, line.ptr + from, line.len - from)) &&
           weir__buffer_add(&v->text, "\n", 1);
}

bool weir__view_show(watch_view *v, const char *title, weir_str text, size_t columns)
{
    bool ok = true;

    weir__buffer_clear(&v->text);
    weir__buffer_clear(&v->title);
    v->text_top = 0;
    v->text_lines = 0;
    v->mode = VIEW_TEXT;
    for (size_t at = 0; ok && at < text.len;) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        const size_t len = end == NULL ? text.len - at : (size_t)(end - text.ptr) - at;
        ok = text_fold(v, (weir_str){ text.ptr + at, len }, columns);
        at += len + 1;
    }
    return ok && weir__buffer_add_text(&v->title, title);
}

/* ---- the frame ------------------------------------------------------------------------------ */

/* In capitals, as the head of the column. */
static void order_name(const watch_view *v, size_t table, char *out, size_t bytes)
{
    const size_t sort = v->orders[table].sort;
    const char *name = sort == 0 ? v->order : rows_of(shown_set(v), table)[0].fields[sort - 1].name;
    size_t at = 0;

    for (; name[at] != '\0' && at + 1 < bytes; at++) {
        const char ch = name[at] == '_' ? ' ' : name[at];
        out[at] = sort > 0 && ch >= 'a' && ch <= 'z' ? (char)(ch - 'a' + 'A') : ch;
    }
    out[at] = '\0';
}

static bool footer_add(watch_view *v, weir_buffer *out, size_t columns)
{
    char text[160], order[48];
    const size_t table = sorted_table(v);
    const view_order *by = &v->orders[table];
    const bool narrow = columns < 70;

    switch (v->mode) {
    case VIEW_TYPING:
        return weir__buffer_add_text(out, "/") &&
               weir__buffer_add(out, v->filter, v->filter_bytes) &&
               weir__buffer_add_text(out, "_   Enter: keep this filter   Esc: no filter");
    case VIEW_TEXT:
        (void)snprintf(text, sizeof text, "q back   up/down scroll   lines %zu-%zu of %zu",
                       v->text_lines == 0 ? 0 : v->text_top + 1,
                       v->text_top + v->page < v->text_lines ? v->text_top + v->page
                                                             : v->text_lines,
                       v->text_lines);
        return weir__buffer_add_text(out, text);
    case VIEW_LIST:
        break;
    }
    if (v->lines_count > v->page) {
        const size_t page = v->page > v->head_lines ? v->page - v->head_lines : 1;
        const size_t body = v->lines_count - v->head_lines;
        (void)snprintf(text, sizeof text, "%zu-%zu of %zu   ", v->top + 1,
                       v->top + page < body ? v->top + page : body, body);
        if (!weir__buffer_add_text(out, text)) {
            return false;
        }
    }
    if (v->filter_bytes > 0) {
        (void)snprintf(text, sizeof text, " (Esc: all)   %zu row%s   ", v->rows_shown,
                       v->rows_shown == 1 ? "" : "s");
        if (!weir__buffer_add_text(out, "filter: ") ||
            !weir__buffer_add(out, v->filter, v->filter_bytes) ||
            !weir__buffer_add_text(out, text)) {
            return false;
        }
    }
    if (shown_set(v)->tables[table].rows_count > 0 && (by->sort > 0 || by->reversed)) {
        order_name(v, table, order, sizeof order);
        (void)snprintf(text, sizeof text, "order: %s%s   ", order, by->reversed ? " reversed" : "");
        if (!weir__buffer_add_text(out, text)) {
            return false;
        }
    }
    return weir__buffer_add_text(out, narrow ? "q quit  / filter  s sort  Enter why  ? keys"
                                             : "q quit   / filter   s sort   r reverse   "
                                               "Enter why   ? keys");
}

/* A line of the list, after the cursor's sign. */
static bool list_line_add(const watch_view *v, weir_buffer *out, size_t line)
{
    const view_line *l = line_at(v, line);

    return weir__buffer_add_text(out, line == v->cursor ? "> " : "  ") &&
           (l->len == 0 || weir__buffer_add(out, v->list.ptr + l->at, l->len));
}

/* Ends the line of the frame that began at `at`. */
static bool frame_line_end(watch_view *v, size_t at)
{
    /* The buffer can still move: pointers are set at the end. Lines follow one another. */
    const weir_str line = { .len = v->frame.len - at };

    return weir__buffer_add(&v->rows, &line, sizeof line);
}

static bool list_add(watch_view *v, size_t *count, size_t *marked)
{
    bool ok = true;

    if (v->lines_count == 0) {
        const size_t at = v->frame.len;
        (*count)++;
        return weir__buffer_add_text(&v->frame, v->filter_bytes > 0 ? "  (nothing fits the filter)"
                                                                    : "  (nothing to show)") &&
               frame_line_end(v, at);
    }
    for (size_t i = 0, shown = 0; ok && shown < v->page; i++, shown++) {
        const size_t line = i < v->head_lines ? i : i + v->top;
        const size_t at = v->frame.len;
        if (line >= v->lines_count) {
            break;
        }
        if (line == v->cursor) {
            *marked = *count;
        }
        ok = list_line_add(v, &v->frame, line) && frame_line_end(v, at);
        (*count)++;
    }
    return ok;
}

static bool text_add(watch_view *v, size_t *count)
{
    size_t at = 0, line = 0, shown = 0;
    bool ok = true;

    while (ok && at < v->text.len && shown < v->page) {
        const char *end = memchr(v->text.ptr + at, '\n', v->text.len - at);
        const size_t len = end == NULL ? v->text.len - at : (size_t)(end - v->text.ptr) - at;
        if (line++ >= v->text_top) {
            const size_t from = v->frame.len;
            ok = (len == 0 || weir__buffer_add(&v->frame, v->text.ptr + at, len)) &&
                 frame_line_end(v, from);
            shown++;
            (*count)++;
        }
        at += len + 1;
    }
    return ok;
}

bool weir__view_frame(watch_view *v, weir_str header, size_t rows, size_t columns,
                      const weir_str **lines, size_t *count, size_t *marked)
{
    *count = 0;
    *marked = SIZE_MAX;
    v->page = rows > 3 ? rows - 2 : 1;
    cursor_show(v);
    text_move(v, 0);
    weir__buffer_clear(&v->frame);
    weir__buffer_clear(&v->rows);
    if (v->mode == VIEW_TEXT) {
        header = (weir_str){ v->title.ptr, v->title.len };
    }
    bool ok = weir__buffer_add(&v->frame, header.ptr, header.len) && frame_line_end(v, 0);
    (*count)++;
    ok = ok && (v->mode == VIEW_TEXT ? text_add(v, count) : list_add(v, count, marked));
    while (ok && *count < v->page + 1) {
        ok = frame_line_end(v, v->frame.len);
        (*count)++;
    }
    const size_t at = v->frame.len;
    ok = ok && footer_add(v, &v->frame, columns) && frame_line_end(v, at);
    (*count)++;
    weir_str *all = (weir_str *)(void *)v->rows.ptr;
    size_t from = 0;
    for (size_t i = 0; ok && i < *count; i++) {
        all[i].ptr = v->frame.ptr + from;
        from += all[i].len;
    }
    *lines = all;
    return ok;
}
