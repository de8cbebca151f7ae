/* targets_watch.c - weir targets --watch without a screen: the list, and then a line for each
 * target that has changed.
 *
 * What is remembered of a target is a number made of its row, without what time alone changes. A
 * target that fits the filter no longer is printed once more, as it is then.
 */
#include "cli/watch.h"

enum {
    SEEN_CAPACITY_MIN = 256, /* a power of two */
    GONE_CHUNK = 200,
};

/* What was printed of a target. */
typedef struct seen {
    int64_t target; /* id; 0: a free slot */
    uint64_t row;   /* hash */
    uint64_t look;  /* number of the look that last found it */
    char *name;     /* owned */
} seen;

typedef struct watching {
    cli *c;
    weir_store *store;
    const store_target_filter *filter;
    uint64_t look; /* from 1 */
    seen *seen;    /* owned: open addressing by target */
    size_t seen_count, seen_capacity;
    weir_buffer reactions, row;
    bool no_memory;
} watching;

/* ---- what is known -------------------------------------------------------------------------- */

static seen *slot_of(seen *table, size_t capacity, int64_t target)
{
    size_t i = ((uint64_t)target * UINT64_C(0x9E3779B97F4A7C15)) >> 32 & (capacity - 1);

    while (table[i].target != 0 && table[i].target != target) {
        i = (i + 1) & (capacity - 1);
    }
    return &table[i];
}

/* Moves what is remembered into a table of another size, without what `look` did not find. */
static bool rows_rebuild(watching *w, size_t capacity, uint64_t look)
{
    seen *table = weir__calloc(capacity, sizeof *table);

    if (table == NULL) {
        return false;
    }
    w->seen_count = 0;
    for (size_t i = 0; i < w->seen_capacity; i++) {
        seen *old = &w->seen[i];
        if (old->target != 0 && old->look >= look) {
            *slot_of(table, capacity, old->target) = *old;
            w->seen_count++;
        } else {
            weir__free(old->name);
        }
    }
    weir__free(w->seen);
    w->seen = table;
    w->seen_capacity = capacity;
    return true;
}

/* A number for the row as it is shown, without what time alone changes. */
static bool row_number(watching *w, const store_target *t, uint64_t *number)
{
    report_field fields[CLI_TARGET_FIELDS_COUNT];
    report_json j = { .buffer = &w->row };

    if (!weir__cli_target_fields(t, 0, &w->reactions, fields)) {
        return false;
    }
    weir__buffer_clear(&w->row);
    for (size_t i = 0; i < CLI_TARGET_FIELDS_COUNT; i++) {
        if (strcmp(fields[i].name, "leased_until") != 0) {
            weir__report_json_field(&j, &fields[i]);
        }
    }
    *number = weir__str_hash((weir_str){ .ptr = w->row.ptr, .len = w->row.len });
    return !j.failed;
}

/* Remembers the target as it is. *changed: it was not so before. */
static bool row_remember(watching *w, const store_target *t, bool *changed)
{
    uint64_t number = 0;

    if ((w->seen_count + 1) * 2 > w->seen_capacity &&
        !rows_rebuild(w, w->seen_capacity == 0 ? SEEN_CAPACITY_MIN : w->seen_capacity * 2, 0)) {
        return false;
    }
    if (!row_number(w, t, &number)) {
        return false;
    }
    seen *s = slot_of(w->seen, w->seen_capacity, t->id);
    *changed = s->target == 0 || s->row != number;
    if (s->target == 0) {
        s->name = weir__strndup(t->name.ptr, t->name.len);
        if (s->name == NULL) {
            return false;
        }
        s->target = t->id;
        w->seen_count++;
    }
    s->row = number;
    s->look = w->look;
    return true;
}

/* ---- a line per change ---------------------------------------------------------------------- */

static bool wants_changed(void *ctx, const store_target *t, bool *wanted)
{
    watching *w = ctx;

    w->no_memory = !row_remember(w, t, wanted);
    return !w->no_memory;
}

static bool print_line(void *ctx, const store_target *t, int64_t waited_us)
{
    watching *w = ctx;
    report_field fields[CLI_TARGET_FIELDS_COUNT];

    w->no_memory = !weir__cli_target_fields(t, waited_us, &w->reactions, fields);
    return !w->no_memory && weir__cli_row(&w->c->out, fields, CLI_TARGET_FIELDS_COUNT);
}

static weir_status print_names(watching *w, const weir_str *names, size_t count, weir_error *err)
{
    const store_target_filter filter = { .names = names, .names_count = count };
    const cli_target_sink sink = { .row = print_line, .ctx = w };

    return weir__cli_targets_each(w->store, &filter, INT64_MAX, &sink, err);
}

/* Targets that were there and fit no longer: as they are now, once. */
static weir_status print_gone(watching *w, weir_error *err)
{
    weir_str names[GONE_CHUNK];
    size_t count = 0, gone = 0;
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < w->seen_capacity; i++) {
        if (w->seen[i].target == 0 || w->seen[i].look == w->look) {
            continue;
        }
        names[count++] = weir__str(w->seen[i].name);
        gone++;
        if (count == GONE_CHUNK) {
            status = print_names(w, names, count, err);
            count = 0;
        }
    }
    if (status == WEIR_OK && count > 0) {
        status = print_names(w, names, count, err);
    }
    if (status == WEIR_OK && gone > 0 && !rows_rebuild(w, w->seen_capacity, w->look)) {
        w->no_memory = true;
    }
    return status;
}

/* A look of weir__watch_lines. */
static weir_status look_for_changes(void *ctx, weir_error *err)
{
    watching *w = ctx;
    const cli_target_sink sink = { .wants = wants_changed, .row = print_line, .ctx = w };
    weir_status status;

    w->look++;
    status = weir__cli_targets_each(w->store, w->filter, INT64_MAX, &sink, err);
    if (status == WEIR_OK && !w->no_memory && !w->c->out.closed && !w->c->out.failed) {
        status = print_gone(w, err);
    }
    return status == WEIR_OK && w->no_memory ? weir__fail(err, WEIR_ENOMEM, "out of memory")
                                             : status;
}

weir_status weir__cli_targets_watch(cli *c, weir_store *store, const store_target_filter *filter,
                                    weir_error *err)
{
    watching w = { .c = c, .store = store, .filter = filter };
    weir_status status;

    if (!c->out.json && weir__fullscreen_possible(c)) {
        return weir__cli_targets_screen(c, store, filter, err);
    }
    status = weir__watch_lines(c, store, look_for_changes, &w, err);
    for (size_t i = 0; i < w.seen_capacity; i++) {
        weir__free(w.seen[i].name);
    }
    weir__free(w.seen);
    weir__buffer_free(&w.reactions);
    weir__buffer_free(&w.row);
    return status;
}
