/* rows.c - see rows.h.
 *
 * INVARIANTS
 *   (1) The keys of a table are strictly ascending.
 *   (2) A table and the list of changes get their room before anything changes and never lose it,
 *       so undoing needs no memory.
 */
#include "store/memory/rows.h"

#include "base/assert.h"
#include "base/str.h"

enum { ROOM_MIN = 16 };

static weir_str row_text(const void *row, size_t offset)
{
    weir_str text;
    memcpy(&text, (const char *)row + offset, sizeof text);
    return text;
}

static int64_t row_number(const void *row, size_t offset)
{
    int64_t number;
    memcpy(&number, (const char *)row + offset, sizeof number);
    return number;
}

int weir__row_compare(const row_kind *kind, const void *a, const void *b)
{
    int order = 0;
    if (kind->by_text) {
        order = weir__str_compare(row_text(a, kind->texts[0]), row_text(b, kind->texts[0]));
    }
    for (size_t i = 0; i < kind->numbers_count && order == 0; i++) {
        const int64_t left = row_number(a, kind->numbers[i]);
        const int64_t right = row_number(b, kind->numbers[i]);
        order = (left > right) - (left < right);
    }
    return order;
}

size_t weir__rows_seek(const row_table *t, const void *key)
{
    size_t low = 0;
    size_t high = t->count;
    if (high > 0 && weir__row_compare(t->kind, t->rows[high - 1], key) < 0) {
        return high; /* most rows are added at the end */
    }
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (weir__row_compare(t->kind, t->rows[middle], key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The row with a key, which can only be at `at`; NULL: there is none. */
static void *row_at(const row_table *t, size_t at, const void *key)
{
    return at < t->count && weir__row_compare(t->kind, t->rows[at], key) == 0 ? t->rows[at] : NULL;
}

const void *weir__rows_find(const row_table *t, const void *key)
{
    return row_at(t, weir__rows_seek(t, key), key);
}

/* ---- rows --------------------------------------------------------------------------------- */

static void row_free(const row_table *t, void *row)
{
    if (row == NULL || t->kind->shared) {
        return;
    }
    if (t->kind->end != NULL) {
        t->kind->end(row);
    }
    weir__free(row);
}

/* NULL: out of memory. */
static void *row_new(const row_kind *kind, const void *from)
{
    size_t bytes = kind->bytes;
    for (size_t i = 0; i < kind->texts_count; i++) {
        if (__builtin_add_overflow(bytes, row_text(from, kind->texts[i]).len, &bytes)) {
            return NULL;
        }
    }
    char *row = weir__malloc(bytes);
    if (row == NULL) {
        return NULL;
    }
    memcpy(row, from, kind->bytes);
    char *place = row + kind->bytes;
    for (size_t i = 0; i < kind->texts_count; i++) {
        const weir_str text = row_text(from, kind->texts[i]);
        const weir_str copy = { .ptr = place, .len = text.len };
        if (text.len > 0) {
            memcpy(place, text.ptr, text.len);
        }
        memcpy(row + kind->texts[i], &copy, sizeof copy);
        place += text.len;
    }
    return row;
}

bool weir__row_copy(const row_kind *kind, const void *row, weir_arena *arena, void *out)
{
    memmove(out, row, kind->bytes);
    for (size_t i = 0; i < kind->texts_count; i++) {
        weir_str text = row_text(row, kind->texts[i]);
        text.ptr = weir__arena_copy(arena, text.ptr, text.len);
        if (text.ptr == NULL) {
            return false;
        }
        memcpy((char *)out + kind->texts[i], &text, sizeof text);
    }
    return true;
}

/* ---- changes ------------------------------------------------------------------------------ */

/* Room for one more item in an array. NULL: out of memory, it is as it was. */
static void *array_room(void *array, size_t count, size_t *capacity, size_t item_bytes)
{
    size_t bytes;
    if (count < *capacity) {
        return array;
    }
    const size_t grown = *capacity == 0 ? ROOM_MIN : *capacity * 2;
    if (__builtin_mul_overflow(grown, item_bytes, &bytes)) {
        return NULL;
    }
    array = weir__realloc(array, bytes);
    *capacity = array == NULL ? *capacity : grown;
    return array;
}

/* Room for one more row and one more change. */
static bool change_room(row_changes *c, row_table *t)
{
    row_change *list = array_room(c->list, c->count, &c->capacity, sizeof *list);
    if (list == NULL) {
        return false;
    }
    c->list = list;
    void **rows = array_room(t->rows, t->count, &t->capacity, sizeof *rows);
    if (rows == NULL) {
        return false;
    }
    t->rows = rows;
    return true;
}

/* Where `old` is, or `now` belongs, becomes `now`. One of them may be NULL. */
static void row_replace(row_table *t, size_t at, const void *old, void *now)
{
    void **place = t->rows + at;
    if (old == NULL) {
        WEIR_ASSERT(t->count < t->capacity);
        memmove(place + 1, place, (t->count - at) * sizeof *place);
        t->count++;
    }
    if (now == NULL) {
        t->count--;
        memmove(place, place + 1, (t->count - at) * sizeof *place);
    } else {
        *place = now;
    }
}

static void change_make(row_changes *c, row_table *t, size_t at, void *old, void *now)
{
    c->list[c->count++] = (row_change){ .table = t, .old = old, .now = now };
    row_replace(t, at, old, now);
}

bool weir__rows_put(row_changes *c, row_table *t, const void *row)
{
    void *now = change_room(c, t) ? row_new(t->kind, row) : NULL;
    if (now == NULL) {
        return false;
    }
    const size_t at = weir__rows_seek(t, now);
    change_make(c, t, at, row_at(t, at, now), now);
    return true;
}

bool weir__rows_share(row_changes *c, row_table *t, void *row)
{
    if (!change_room(c, t)) {
        return false;
    }
    change_make(c, t, weir__rows_seek(t, row), NULL, row);
    return true;
}

bool weir__rows_remove(row_changes *c, row_table *t, const void *key)
{
    if (!change_room(c, t)) {
        return false;
    }
    const size_t at = weir__rows_seek(t, key);
    void *old = row_at(t, at, key);
    WEIR_ASSERT(old != NULL);
    change_make(c, t, at, old, NULL);
    return true;
}

void weir__changes_undo(row_changes *c, size_t count)
{
    while (c->count > count) {
        const row_change *change = &c->list[--c->count];
        row_table *t = change->table;
        const size_t at = weir__rows_seek(t, change->now != NULL ? change->now : change->old);
        row_replace(t, at, change->now, change->old);
        row_free(t, change->now);
    }
}

void weir__changes_keep(row_changes *c)
{
    for (size_t i = 0; i < c->count; i++) {
        row_free(c->list[i].table, c->list[i].old);
    }
    c->count = 0;
}

void weir__rows_free(row_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        row_free(t, t->rows[i]);
    }
    weir__free(t->rows);
    *t = (row_table){ .kind = t->kind };
}
