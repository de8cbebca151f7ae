/* claim_session.c - transactions around a claim, and what the database says about one.
 *
 * A session on a connection of the caller's own gets its transactions by statements; what the port
 * begins itself it also ends.
 */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/str.h"
#include "claim/claim_private.h"

#include <inttypes.h>
#include <stdio.h>

weir_status weir__claim_run(table_session *s, const char *sql, int64_t wait_us, weir_error *err)
{
    return weir__table_run(s, &(table_statement){ .sql = sql, .wait_us = wait_us }, NULL, err);
}

weir_status weir__claim_begin(table_session *s, int64_t wait_us, weir_error *err)
{
    const bool sqlite = weir__table_session_dialect(s) == TABLE_SQLITE;
    if (sqlite && (wait_us != CLAIM_BUSY_TIMEOUT || weir__table_adopted(s))) {
        return weir__claim_run(s, "BEGIN IMMEDIATE", wait_us == CLAIM_BUSY_TIMEOUT ? 0 : wait_us,
                               err);
    }
    return weir__table_adopted(s) ? weir__claim_run(s, "BEGIN", 0, err) : weir__table_begin(s, err);
}

weir_status weir__claim_commit(table_session *s, weir_error *err)
{
    if (!weir__table_adopted(s)) {
        return weir__table_commit(s, err);
    }
    const weir_status status = weir__claim_run(s, "COMMIT", 0, err);
    /* Inside of a transaction the port takes a lost answer for undone. This was its end. */
    return status == WEIR_EUNAVAILABLE ? weir__wrap(err, WEIR_EUNKNOWN, "commit") : status;
}

void weir__claim_rollback(table_session *s)
{
    if (!weir__table_adopted(s)) {
        weir__table_rollback(s);
    } else if (weir__table_in_transaction(s)) {
        (void)weir__claim_run(s, "ROLLBACK", 0, NULL);
    }
}

/* A lock of the whole table's, in a namespace of ours: 64 bits of a hash, so that no two tables and
 * no other user of such locks meet. */
void weir__claim_add_serialise(claim_text *t, const claim_spec *c)
{
    char name[64];
    uint8_t digest[WEIR_SHA256_BYTES];
    weir_sha256 hash;
    uint64_t key = 0;
    const int len = snprintf(name, sizeof name, "weir claim max-per %" PRIu64, c->table->id);
    weir__sha256_init(&hash);
    weir__sha256_add(&hash, name, (size_t)len);
    weir__sha256_end(&hash, digest);
    for (size_t i = 0; i < sizeof key; i++) {
        key = key << 8 | digest[i];
    }
    weir__claim_add(t, "SELECT pg_catalog.pg_advisory_xact_lock(%" PRId64 ")", (int64_t)key);
}

weir_status weir__claim_serialise(table_session *s, const claim_spec *c, int64_t wait_us,
                                  weir_error *err)
{
    claim_text t = { .dialect = c->dialect };
    if (c->per == NULL || !c->sql->row_locks) {
        return WEIR_OK; /* where one writes at a time they wait for each other anyway */
    }
    weir__claim_add_serialise(&t, c);
    const weir_status status = weir__claim_text_run(&t, s, wait_us, NULL, err);
    weir__claim_text_free(&t);
    return status;
}

weir_status weir__claim_refused(weir_status status, weir_error *err)
{
    if (status != WEIR_EIO || err == NULL) {
        return status;
    }
    /* PostgreSQL: syntax and names (42), values (22). SQLite: its general error. */
    const bool asked = strncmp(err->store_code, "42", 2) == 0 ||
                       (strncmp(err->store_code, "22", 2) == 0 && strlen(err->store_code) == 5) ||
                       strcmp(err->store_code, "1") == 0;
    if (asked) {
        err->code = WEIR_EINVAL;
    }
    return asked ? WEIR_EINVAL : status;
}

/* ---- keys that were found ------------------------------------------------------------------- */

bool weir__claim_found_add(claim_found *f, const table_result *r, size_t row)
{
    if (f->rows == f->capacity) {
        const size_t capacity = f->capacity == 0 ? 64 : f->capacity * 2;
        table_value *values = weir__realloc(f->values, capacity * f->columns * sizeof *values);
        if (values == NULL) {
            return false;
        }
        f->values = values;
        f->capacity = capacity;
    }
    for (size_t i = 0; i < f->columns; i++) {
        table_value *value = &f->values[f->rows * f->columns + i];
        *value = weir__table_cell_value(&r->cells[row * r->columns_count + i]);
        if (value->text.len > 0) {
            value->text.ptr = weir__arena_copy(&f->arena, value->text.ptr, value->text.len);
            if (value->text.ptr == NULL) {
                return false;
            }
        }
    }
    f->rows++;
    return true;
}

void weir__claim_found_free(claim_found *f)
{
    weir__arena_free(&f->arena);
    weir__free(f->values);
    *f = (claim_found){ 0 };
}

/* ---- waiting -------------------------------------------------------------------------------- */

claim_lock weir__claim_lock_of(const claim_request *request)
{
    switch (request->mode) {
    case CLAIM_SKIP:
        return CLAIM_LOCK_SKIP;
    case CLAIM_WAIT:
        return request->wait_us == 0 ? CLAIM_LOCK_NOWAIT : CLAIM_LOCK_WAIT;
    case CLAIM_NOWAIT:
        break;
    }
    return CLAIM_LOCK_NOWAIT;
}

int64_t weir__claim_begin_wait(const claim_request *request)
{
    switch (request->mode) {
    case CLAIM_SKIP:
        return CLAIM_BUSY_TIMEOUT;
    case CLAIM_WAIT:
        return request->wait_us;
    case CLAIM_NOWAIT:
        break;
    }
    return 0;
}

claim_deadline weir__claim_deadline(const claim_request *request)
{
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    const bool ever = request->wait_us < 0 || request->wait_us > INT64_MAX - now_us;
    return (claim_deadline){ .until_us = ever ? -1 : now_us + request->wait_us };
}

int64_t weir__claim_left(claim_deadline deadline)
{
    if (deadline.until_us < 0) {
        return -1;
    }
    const int64_t left_us = deadline.until_us - weir__clock_mono(weir__clock_machine());
    return left_us > 0 ? left_us : 0;
}
