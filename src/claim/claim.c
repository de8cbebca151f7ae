/* claim.c - the way in: a request, the table it is about, and the path it takes.
 *
 * What a table looks like is asked once for a session. A statement that the database refuses
 * because the table is not like that any more has done nothing: it is asked again, once.
 */
#include "base/clock.h"
#include "claim/claim_private.h"

#include <inttypes.h>
#include <string.h>

enum {
    ATTEMPTS_MAX = 50,      /* a conflict with another transaction: somebody got on, so try again */
    ATTEMPT_PAUSE_US = 200, /* times the attempt */
};

typedef weir_status (*path_fn)(table_session *s, const claim_spec *c, table_result *result,
                               weir_error *err);

static void result_clear(table_result *r)
{
    weir__arena_reset(&r->arena);
    *r = (table_result){ .arena = r->arena };
}

/* The database's own words are about a relation's lock, or a statement that was cancelled. Its code
 * stays. */
static weir_status say_held(const claim_spec *c, weir_error *err)
{
    const weir_error said = *err;
    const weir_status status = weir__fail(err, WEIR_EHELD, "someone else holds rows of %.*s",
                                          (int)c->table->shown.len, c->table->shown.ptr);
    memcpy(err->store_code, said.store_code, sizeof err->store_code);
    return status;
}

static weir_status run_spec(table_session *s, const claim_spec *c, path_fn run,
                            table_result *result, weir_error *err)
{
    weir_status status = WEIR_ECONFLICT;
    for (int64_t i = 0; i < ATTEMPTS_MAX && status == WEIR_ECONFLICT; i++) {
        weir__clock_pause(i * ATTEMPT_PAUSE_US);
        status = run(s, c, result, err);
        if (c->request->hold) {
            break; /* the caller's transaction is lost */
        }
    }
    return status == WEIR_EHELD && c->sql->row_locks ? say_held(c, err) : status;
}

static weir_status with_spec(table_session *s, const claim_request *request, path_fn run,
                             table_result *result, weir_error *err)
{
    claim_spec c;
    const table_info *table = NULL;
    weir_status status = WEIR_OK;
    bool again = true;
    for (int i = 0; i < 2 && again; i++) {
        status = weir__table_described(s, request->table, &table, err);
        if (status == WEIR_OK) {
            status = weir__claim_check(request, table, weir__table_session_dialect(s), &c, err);
        }
        if (status == WEIR_OK && request->limit > 0) {
            status = run_spec(s, &c, run, result, err);
        }
        /* Inside of a transaction that has failed there is nothing more to ask. */
        again = status == WEIR_EINVAL && !weir__table_in_transaction(s);
        if (status != WEIR_OK) {
            result_clear(result);
        }
        if (again) {
            weir__table_forget(s);
        }
    }
    return status;
}

static weir_status run_path(table_session *s, const claim_spec *c, table_result *result,
                            weir_error *err)
{
    if (c->request->hold) {
        return weir__claim_hold(s, c, result, err);
    }
    return c->path == CLAIM_PATH_FAST ? weir__claim_fast(s, c, result, err)
                                      : weir__claim_portable(s, c, result, err);
}

weir_status weir__claim_rows(table_session *s, const claim_request *request, table_result *result,
                             weir_error *err)
{
    weir_error local = { 0 };
    err = err == NULL ? &local : err;
    result_clear(result);
    const bool inside = weir__table_in_transaction(s);
    if (inside && !request->hold) {
        const weir_status status = weir__fail(
            err, WEIR_EMISUSE, "a transaction is open: a claim is to be durable when it returns");
        weir__error_detail(err, "Commit first, or hold the rows in the transaction (--hold).");
        return status;
    }
    if (!inside && request->hold) {
        return weir__fail(err, WEIR_EMISUSE, "no transaction is open in which to hold rows");
    }
    return with_spec(s, request, run_path, result, err);
}

weir_status weir__claim_preview(table_session *s, const claim_request *request,
                                table_result *result, weir_error *err)
{
    weir_error local = { 0 };
    result_clear(result);
    return with_spec(s, request, weir__claim_look, result, err == NULL ? &local : err);
}

/* ---- to be shown ---------------------------------------------------------------------------- */

/* As the port does it for a statement that waits: 0 is for ever. */
static void show_wait(claim_text *t, const claim_spec *c)
{
    const int64_t wait_us = c->request->wait_us;
    const int64_t ms = wait_us < 0 ? 0 : wait_us < 1000 ? 1 : wait_us / 1000;
    weir__claim_add(t, "SET LOCAL lock_timeout = %" PRId64 ";\n", ms);
    weir__claim_add_wait(t, c, c->limit);
    weir__claim_add(t, "%s", ms == 0 ? ";\n" : ";\nSET LOCAL lock_timeout = 0;\n");
}

static void show_fast(claim_text *t, const claim_spec *c)
{
    const claim_lock lock = weir__claim_lock_of(c->request);
    const bool waits = lock == CLAIM_LOCK_WAIT;
    const bool rounds = c->per != NULL || waits;
    weir__claim_add(t, "%s", rounds ? "BEGIN;\n" : "");
    if (c->per != NULL) {
        weir__claim_add_serialise(t, c);
        weir__claim_add(t, ";\n");
    }
    if (waits) {
        show_wait(t, c);
    }
    weir__claim_add_fast(t, c, waits ? CLAIM_LOCK_SKIP : lock, c->limit, true);
    weir__claim_add(t, "%s", rounds ? ";\nCOMMIT;\n" : ";\n");
}

static void show_choice(claim_text *t, const claim_spec *c, claim_lock lock, bool rows)
{
    weir__claim_add_choice(t, c, &(claim_choice){ .lock = lock, .rows = rows, .limit = c->limit });
    weir__claim_add_chosen(t, c, rows);
    weir__claim_add(t, ";\n");
}

/* Nothing is written by the claim itself, which the comment tells weir lint. */
static void show_hold(claim_text *t, const claim_spec *c)
{
    const claim_lock lock = weir__claim_lock_of(c->request);
    const bool waits = c->sql->row_locks && lock == CLAIM_LOCK_WAIT;
    const claim_lock last = waits ? CLAIM_LOCK_SKIP : lock;
    weir__claim_add(t, "%s;\n", c->sql->row_locks ? "BEGIN" : "BEGIN IMMEDIATE");
    if (waits) {
        show_wait(t, c);
    }
    weir__claim_add(t, "-- weir:allow no-flip\n");
    show_choice(t, c, c->sql->row_locks ? last : CLAIM_LOCK_NONE, true);
    weir__claim_add(t, "-- the work is done here, and what becomes of the rows is written\n"
                       "COMMIT;\n");
}

static void show_one_at_a_time(claim_text *t, const claim_spec *c)
{
    weir__claim_add(t, "BEGIN IMMEDIATE;\n");
    show_choice(t, c, CLAIM_LOCK_NONE, false);
    weir__claim_add_fast_update(t, c);
    weir__claim_add(t, ";\nCOMMIT;\n");
}

static void show_portable(claim_text *t, const claim_spec *c)
{
    weir__claim_add(t, "%s;\n", c->sql->row_locks ? "BEGIN" : "BEGIN IMMEDIATE");
    if (c->per != NULL && c->sql->row_locks) {
        weir__claim_add_serialise(t, c);
        weir__claim_add(t, ";\n");
    }
    show_choice(t, c, CLAIM_LOCK_NONE, false);
    weir__claim_add(t, "-- for each row found, with its key\n");
    weir__claim_add_guarded(t, c, NULL);
    weir__claim_add(t, ";\nCOMMIT;\n");
}

weir_status weir__claim_sql(const claim_request *request, const table_info *table,
                            table_dialect dialect, weir_buffer *out, weir_error *err)
{
    claim_spec c;
    claim_text t = { .dialect = dialect, .literals = true };
    weir_status status = weir__claim_check(request, table, dialect, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (request->hold) {
        show_hold(&t, &c);
    } else if (c.path != CLAIM_PATH_FAST) {
        show_portable(&t, &c);
    } else if (c.sql->row_locks) {
        show_fast(&t, &c);
    } else {
        show_one_at_a_time(&t, &c);
    }
    if (t.failed || !weir__buffer_add(out, t.sql.ptr, t.sql.len)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the statements of a claim");
    }
    weir__claim_text_free(&t);
    return status;
}
