/* claim_fast.c - the best that a database can.
 *
 * With row locks (PostgreSQL) a claim is one statement, which is its own transaction. Two kinds are
 * not: who waits locks in one statement and judges again in the next, with a snapshot that is newer
 * than the wait; who counts (max_per) does so after everybody else who counts has committed.
 * Without row locks (SQLite) one writes at a time, and a claim is one UPDATE in a transaction,
 * after a SELECT that says in which order its rows go.
 *
 * INVARIANT  Nothing is waited for while a row is locked, but by who asked to wait.
 */
#include "base/str.h"
#include "claim/claim_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Rows that were locked and could not be taken after all; a trigger may do that for ever. */
    IDLE_ROUNDS_MAX = 3,
    SAME_MAX = 100,
    KEYS_GIVEN_MAX = 2048, /* values; what is larger chooses its rows once more */
};

/* ---- with row locks ------------------------------------------------------------------------- */

static weir_status run_fast(table_session *s, const claim_spec *c, claim_lock lock, int64_t limit,
                            table_result *rows, weir_error *err)
{
    /* A parameter in --where may decide which index is the right one. */
    claim_text t = { .dialect = c->dialect,
                     .again =
                         c->request->writes.params_count == 0 && c->request->exclude_count == 0 };
    weir__claim_add_fast(&t, c, lock, limit, true);
    const weir_status status = weir__claim_text_run(&t, s, 0, rows, err);
    weir__claim_text_free(&t);
    return status;
}

/* One round of a claim that takes several: what it takes is found in `found`, its keys in
 * `taken`. */
static weir_status run_round(table_session *s, claim_spec *c, claim_lock lock, claim_found *found,
                             claim_found *taken, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    table_result keys = { 0 };
    weir__claim_add_fast(&t, c, lock, c->limit - (int64_t)found->rows, false);
    weir_status status = weir__claim_text_run(&t, s, 0, &keys, err);
    for (size_t i = 0; i < keys.rows_count && status == WEIR_OK; i++) {
        if (!weir__claim_found_add(found, &keys, i) || !weir__claim_found_add(taken, &keys, i)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate what was claimed");
        }
    }
    c->taken = taken->values;
    c->taken_count = taken->rows;
    weir__table_result_free(&keys);
    weir__claim_text_free(&t);
    return status;
}

void weir__claim_add_wait(claim_text *t, const claim_spec *c, int64_t limit)
{
    weir__claim_add_choice(t, c, &(claim_choice){ .lock = CLAIM_LOCK_WAIT, .limit = limit });
    weir__claim_add(t, "\nSELECT count(*) FROM weir_taken");
}

/* Locks what a claim would take now, waiting for others. *locked: how many rows. */
static weir_status wait_for_rows(table_session *s, const claim_spec *c, claim_deadline deadline,
                                 int64_t limit, int64_t *locked, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    table_result count = { 0 };
    const int64_t left_us = weir__claim_left(deadline);
    if (left_us == 0) {
        return weir__fail(err, WEIR_EHELD, "someone else holds rows of %.*s still",
                          (int)c->table->shown.len, c->table->shown.ptr);
    }
    weir__claim_add_wait(&t, c, limit);
    const weir_status status = weir__claim_text_run(&t, s, left_us, &count, err);
    if (status == WEIR_OK) {
        (void)weir__str_to_i64(count.cells[0].text, locked);
    }
    weir__table_result_free(&count);
    weir__claim_text_free(&t);
    return status;
}

static weir_status rounds_run(table_session *s, claim_spec *c, claim_found *found,
                              claim_found *taken, weir_error *err)
{
    const claim_lock lock = weir__claim_lock_of(c->request);
    const bool waits = lock == CLAIM_LOCK_WAIT;
    const claim_deadline deadline = weir__claim_deadline(c->request);
    int64_t locked = 0;
    int idle = 0;
    weir_status status = weir__claim_serialise(s, c, waits ? weir__claim_left(deadline) : 0, err);
    while (status == WEIR_OK && (int64_t)found->rows < c->limit && idle < IDLE_ROUNDS_MAX) {
        const size_t before = found->rows;
        if (waits) {
            status = wait_for_rows(s, c, deadline, c->limit - (int64_t)found->rows, &locked, err);
        }
        if (status == WEIR_OK) {
            status = run_round(s, c, waits ? CLAIM_LOCK_SKIP : lock, found, taken, err);
        }
        idle = found->rows > before ? 0 : locked > 0 ? idle + 1 : IDLE_ROUNDS_MAX;
    }
    return status;
}

weir_status weir__claim_reread(table_session *s, const claim_spec *c, const claim_found *found,
                               table_result *result, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    if (found->rows == 0) {
        return WEIR_OK;
    }
    weir__claim_add_reread(&t, c, found->values, found->rows);
    const weir_status status = weir__claim_text_run(&t, s, 0, result, err);
    weir__claim_text_free(&t);
    return status;
}

static weir_status in_rounds(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err)
{
    claim_found found = { .columns = weir__claim_chosen_columns(c) };
    claim_found taken = { .columns = c->table->key_count };
    claim_spec rest = *c;
    weir_status status = weir__claim_begin(s, CLAIM_BUSY_TIMEOUT, err);
    if (status == WEIR_OK) {
        status = rounds_run(s, &rest, &found, &taken, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_reread(s, c, &found, result, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_commit(s, err);
    }
    if (status != WEIR_OK) {
        weir__claim_rollback(s);
    }
    weir__claim_found_free(&found);
    weir__claim_found_free(&taken);
    return status;
}

/* ---- without row locks ---------------------------------------------------------------------- */

/* A row by its key. */
typedef struct ranked {
    const table_cell *key; /* key_count of them, one after the other */
    const size_t *columns; /* where in the row they are; NULL: at its beginning */
    size_t count, row;
} ranked;

static const table_cell *key_cell(const ranked *r, size_t i)
{
    return &r->key[r->columns == NULL ? i : r->columns[i]];
}

static int compare_keys(const void *a, const void *b)
{
    const ranked *x = a;
    const ranked *y = b;
    for (size_t i = 0; i < x->count; i++) {
        const table_cell *one = key_cell(x, i);
        const table_cell *other = key_cell(y, i);
        const int order = one->shape != other->shape ? (int)one->shape - (int)other->shape
                                                     : weir__str_compare(one->text, other->text);
        if (order != 0) {
            return order;
        }
    }
    return 0;
}

static void fill_ranked(const table_result *r, const claim_spec *c, bool whole, ranked *out)
{
    for (size_t i = 0; i < r->rows_count; i++) {
        out[i] = (ranked){ .key = &r->cells[i * r->columns_count],
                           .columns = whole ? c->table->key : NULL,
                           .count = c->table->key_count,
                           .row = i };
    }
    qsort(out, r->rows_count, sizeof *out, compare_keys);
}

/* Puts the rows into the order of `keys`. *same: they are the same ones. */
static weir_status restore_order(const claim_spec *c, const table_result *keys, table_result *rows,
                                 bool *same, weir_error *err)
{
    const size_t count = rows->rows_count;
    const size_t row_bytes = rows->columns_count * sizeof(table_cell);
    *same = count == keys->rows_count;
    if (!*same || count == 0) {
        return WEIR_OK;
    }
    ranked *wanted = weir__calloc(count, sizeof *wanted);
    ranked *got = weir__calloc(count, sizeof *got);
    table_cell *cells = weir__arena_alloc(&rows->arena, count * row_bytes);
    weir_status status = WEIR_OK;
    if (wanted == NULL || got == NULL || cells == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the order of a claim");
        goto out;
    }
    fill_ranked(keys, c, false, wanted);
    fill_ranked(rows, c, true, got);
    for (size_t i = 0; i < count && *same; i++) {
        *same = compare_keys(&wanted[i], &got[i]) == 0;
        memcpy(cells + wanted[i].row * rows->columns_count,
               rows->cells + got[i].row * rows->columns_count, row_bytes);
    }
    if (*same) {
        rows->cells = cells;
    }
out:
    weir__free(wanted);
    weir__free(got);
    return status;
}

/* What was found, as values that find the same rows; *out is NULL when they do not. Their number is
 * a power of two, the last one repeated, so that statements of many sizes are a few texts. */
static weir_status keys_given(const claim_spec *c, const table_result *keys, table_value **out,
                              size_t *count, weir_error *err)
{
    const size_t columns = c->table->key_count;
    bool fits = true;
    *count = 1;
    while (*count < keys->rows_count) {
        *count *= 2;
    }
    fits = *count <= KEYS_GIVEN_MAX / columns;
    table_value *values = fits ? weir__calloc(*count * columns, sizeof *values) : NULL;
    for (size_t i = 0; values != NULL && i < *count * columns; i++) {
        const size_t row = i / columns < keys->rows_count ? i / columns : keys->rows_count - 1;
        const table_cell *cell = &keys->cells[row * keys->columns_count + i % columns];
        values[i] = weir__table_cell_value(cell);
        /* NULL is equal to nothing, a number that is no integer would become a text. */
        fits = fits && !cell->null &&
               (cell->shape != TABLE_SHAPE_NUMBER || values[i].kind == TABLE_INTEGER) &&
               (values[i].kind != TABLE_TEXT || cell->text.len == 0 ||
                memchr(cell->text.ptr, '\0', cell->text.len) == NULL);
    }
    if (fits && values == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the keys of a claim");
    }
    if (!fits) {
        weir__free(values);
    }
    *out = fits ? values : NULL;
    return WEIR_OK;
}

static weir_status not_written(const claim_spec *c, weir_error *err)
{
    return weir__fail(err, WEIR_EIO, "what was found in %.*s is not what was written",
                      (int)c->table->shown.len, c->table->shown.ptr);
}

/* *same false: the rows that were written are not those that were found. */
static weir_status update_found(table_session *s, const claim_spec *c, const table_result *keys,
                                table_result *rows, bool *same, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    table_value *given = NULL;
    size_t count = 0;
    weir_status status = keys_given(c, keys, &given, &count, err);
    if (status == WEIR_OK) {
        if (given != NULL) {
            weir__claim_add_update_of(&t, c, given, count);
        } else {
            weir__claim_add_fast_update(&t, c);
        }
        status = weir__claim_text_run(&t, s, 0, rows, err);
    }
    if (status == WEIR_OK) {
        status = restore_order(c, keys, rows, same, err);
    }
    if (status == WEIR_OK && given != NULL && !*same) {
        status = not_written(c, err); /* a trigger of the table's is in the way */
    }
    weir__free(given);
    weir__claim_text_free(&t);
    return status;
}

static weir_status update_all(table_session *s, const claim_spec *c, table_result *keys,
                              table_result *rows, bool *same, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    weir__claim_add_choice(&t, c, &(claim_choice){ .limit = c->limit });
    weir__claim_add_chosen(&t, c, false);
    const weir_status status = weir__claim_text_run(&t, s, 0, keys, err);
    weir__claim_text_free(&t);
    *same = status == WEIR_OK && keys->rows_count == 0;
    return status == WEIR_OK && keys->rows_count > 0 ? update_found(s, c, keys, rows, same, err)
                                                     : status;
}

/* A lease may end between the two statements, and the second, when it chooses for itself, then
 * takes what the first did not. It is undone and done again. */
static weir_status one_at_a_time(table_session *s, const claim_spec *c, table_result *result,
                                 weir_error *err)
{
    table_result keys = { 0 };
    bool same = false;
    weir_status status = WEIR_OK;
    for (int i = 0; status == WEIR_OK && !same; i++) {
        if (i == SAME_MAX) { /* a trigger of the table's is in the way */
            status = not_written(c, err);
            break;
        }
        status = weir__claim_begin(s, weir__claim_begin_wait(c->request), err);
        if (status == WEIR_OK) {
            status = update_all(s, c, &keys, result, &same, err);
        }
        if (status == WEIR_OK && same) {
            status = weir__claim_commit(s, err);
        }
        if (status != WEIR_OK || !same) {
            weir__claim_rollback(s);
        }
    }
    weir__table_result_free(&keys);
    return status;
}

weir_status weir__claim_fast(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err)
{
    const claim_lock lock = weir__claim_lock_of(c->request);
    if (!c->sql->row_locks) {
        return one_at_a_time(s, c, result, err);
    }
    return c->per == NULL && lock != CLAIM_LOCK_WAIT ? run_fast(s, c, lock, c->limit, result, err)
                                                     : in_rounds(s, c, result, err);
}

/* ---- holding -------------------------------------------------------------------------------- */

static weir_status read_chosen(table_session *s, const claim_spec *c, claim_lock lock,
                               table_result *result, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    weir__claim_add_choice(&t, c, &(claim_choice){ .lock = lock, .rows = true, .limit = c->limit });
    weir__claim_add_chosen(&t, c, true);
    const weir_status status = weir__claim_text_run(&t, s, 0, result, err);
    weir__claim_text_free(&t);
    return status;
}

weir_status weir__claim_look(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err)
{
    return read_chosen(s, c, CLAIM_LOCK_NONE, result, err);
}

/* A transaction that has only read so far becomes one that writes, and keeps everybody else out. */
static weir_status keep_others_out(table_session *s, const claim_spec *c, weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    const table_column *key = &c->table->columns[c->table->key[0]];
    weir__claim_add(&t, "UPDATE ");
    weir__claim_add_str(&t, c->table->quoted);
    weir__claim_add(&t, " SET ");
    weir__claim_add_str(&t, key->quoted);
    weir__claim_add(&t, " = ");
    weir__claim_add_str(&t, key->quoted);
    weir__claim_add(&t, " WHERE 0");
    const int64_t wait_us = weir__claim_begin_wait(c->request);
    const weir_status status =
        weir__claim_text_run(&t, s, wait_us == CLAIM_BUSY_TIMEOUT ? 0 : wait_us, NULL, err);
    weir__claim_text_free(&t);
    return status;
}

weir_status weir__claim_hold(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err)
{
    const claim_lock lock = weir__claim_lock_of(c->request);
    const claim_deadline deadline = weir__claim_deadline(c->request);
    int64_t locked = 0;
    int rounds_left = IDLE_ROUNDS_MAX;
    weir_status status = WEIR_OK;
    if (!c->sql->row_locks) {
        status = keep_others_out(s, c, err);
        return status == WEIR_OK ? read_chosen(s, c, CLAIM_LOCK_NONE, result, err) : status;
    }
    if (lock != CLAIM_LOCK_WAIT) {
        return read_chosen(s, c, lock, result, err);
    }
    /* What was locked and no longer fits is replaced by what comes next, which may be locked too.
     */
    do {
        status = wait_for_rows(s, c, deadline, c->limit, &locked, err);
        if (status == WEIR_OK) {
            status = read_chosen(s, c, CLAIM_LOCK_SKIP, result, err);
        }
    } while (status == WEIR_OK && (int64_t)result->rows_count < locked && --rounds_left > 0);
    return status;
}
