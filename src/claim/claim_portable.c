/* claim_portable.c - a claim for databases that can do no more than transactions and UPDATE: look
 * for rows, then write each one if it is still free, and look again until there are as many as
 * wanted or nothing is left.
 *
 * It runs on the others too (--path portable), with the same promises: everything is one
 * transaction, so an error leaves nothing claimed, and a row that someone else has locked is not
 * waited for by who did not ask to wait. That needs a savepoint, since being refused a lock ends a
 * transaction in some databases.
 *
 * INVARIANT  A row that was tried and not got is not looked at again: every round ends with fewer.
 * But who was refused a lock tries once more before a batch stays short: databases count waits for
 * other things too, room in a file for example, and then the row was free all the time.
 */
#include "base/str.h"
#include "claim/claim_private.h"

/* As short as a database can be told. */
enum { TRY_US = 1000 };

typedef struct portable {
    table_session *s;
    claim_spec *c;
    claim_lock lock;
    claim_deadline deadline;
    claim_found taken; /* keys, and what the order needs */
    claim_found tried; /* keys that are not to be found again */
    claim_found keys;  /* of those taken; the same, whatever the claim leaves of the condition */
    size_t held;       /* of those, how many were locked */
    bool again;        /* they have been tried twice */
} portable;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate what was claimed");
}

static weir_status rows_look(portable *p, table_result *found, weir_error *err)
{
    claim_text t = { .dialect = p->c->dialect };
    const claim_choice choice = { .limit = p->c->limit - (int64_t)p->taken.rows,
                                  .exclude = p->tried.values,
                                  .exclude_count = p->tried.rows };
    weir__claim_add_choice(&t, p->c, &choice);
    weir__claim_add_chosen(&t, p->c, false);
    const weir_status status = weir__claim_text_run(&t, p->s, 0, found, err);
    weir__claim_text_free(&t);
    return status;
}

static weir_status still_held(const portable *p, weir_error *err)
{
    return weir__fail(err, WEIR_EHELD, "someone else holds rows of %.*s",
                      (int)p->c->table->shown.len, p->c->table->shown.ptr);
}

static int64_t wait_of(const portable *p)
{
    return p->lock == CLAIM_LOCK_WAIT ? weir__claim_left(p->deadline) : TRY_US;
}

static weir_status write_guarded(portable *p, const table_value *key, int64_t wait_us,
                                 bool *written, weir_error *err)
{
    claim_text t = { .dialect = p->c->dialect };
    table_result r = { 0 };
    weir__claim_add_guarded(&t, p->c, key);
    const weir_status status = weir__claim_text_run(&t, p->s, wait_us, &r, err);
    *written = status == WEIR_OK && r.changed == 1;
    weir__table_result_free(&r);
    weir__claim_text_free(&t);
    return status;
}

static weir_status lock_one(portable *p, const table_value *key, int64_t wait_us, weir_error *err)
{
    claim_text t = { .dialect = p->c->dialect };
    weir__claim_add(&t, "SELECT 1 FROM ");
    weir__claim_add_str(&t, p->c->table->quoted);
    weir__claim_add(&t, " WHERE ");
    weir__claim_add_key_is(&t, p->c->table, key);
    weir__claim_add_lock(&t, p->c, CLAIM_LOCK_WAIT);
    const weir_status status = weir__claim_text_run(&t, p->s, wait_us, NULL, err);
    weir__claim_text_free(&t);
    return status;
}

/* Writes a row if it can be had. A claim that waits locks it first, and then judges it as it is. */
static weir_status take_one(portable *p, const table_value *key, bool *got, weir_error *err)
{
    const int64_t wait_us = wait_of(p);
    *got = false;
    if (p->lock == CLAIM_LOCK_WAIT && wait_us == 0) {
        return still_held(p, err);
    }
    weir_status status = weir__claim_run(p->s, "SAVEPOINT weir_row", 0, err);
    if (status == WEIR_OK && p->lock == CLAIM_LOCK_WAIT && p->c->sql->row_locks) {
        status = lock_one(p, key, wait_us, err);
    }
    if (status == WEIR_OK) {
        status = write_guarded(p, key, wait_us, got, err);
    }
    if (status == WEIR_EHELD && p->lock == CLAIM_LOCK_SKIP) {
        p->held++;
        status = weir__claim_run(p->s, "ROLLBACK TO SAVEPOINT weir_row", 0, err);
    }
    return status == WEIR_OK ? weir__claim_run(p->s, "RELEASE SAVEPOINT weir_row", 0, err) : status;
}

static weir_status take_found(portable *p, const table_result *found, weir_error *err)
{
    claim_found key = { .columns = p->c->table->key_count };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < found->rows_count && status == WEIR_OK; i++) {
        bool got = false;
        key.rows = 0;
        if (!weir__claim_found_add(&key, found, i)) {
            status = no_memory(err);
            break;
        }
        status = take_one(p, key.values, &got, err);
        if (status == WEIR_OK && !(got ? weir__claim_found_add(&p->taken, found, i) &&
                                             weir__claim_found_add(&p->keys, found, i)
                                       : weir__claim_found_add(&p->tried, found, i))) {
            status = no_memory(err);
        }
    }
    p->c->taken = p->keys.values;
    p->c->taken_count = p->keys.rows;
    weir__claim_found_free(&key);
    return status;
}

/* Nothing more was found. Whether what was locked before is worth another look. */
static bool look_again(portable *p)
{
    const bool again = p->held > 0 && !p->again;
    p->again = true;
    if (again) {
        p->tried.rows = 0;
    }
    return again;
}

static weir_status rows_refill(portable *p, weir_error *err)
{
    table_result found = { 0 };
    weir_status status = WEIR_OK;
    do {
        status = rows_look(p, &found, err);
        if (status == WEIR_OK) {
            status = take_found(p, &found, err);
        }
    } while (status == WEIR_OK && (int64_t)p->taken.rows < p->c->limit &&
             (found.rows_count > 0 || look_again(p)));
    weir__table_result_free(&found);
    return status;
}

weir_status weir__claim_portable(table_session *s, const claim_spec *c, table_result *result,
                                 weir_error *err)
{
    claim_spec rest = *c;
    portable p = { .s = s,
                   .c = &rest,
                   .lock = weir__claim_lock_of(c->request),
                   .deadline = weir__claim_deadline(c->request),
                   .taken = { .columns = weir__claim_chosen_columns(c) },
                   .tried = { .columns = c->table->key_count },
                   .keys = { .columns = c->table->key_count } };
    weir_status status = weir__claim_begin(s, weir__claim_begin_wait(c->request), err);
    if (status == WEIR_OK) {
        status = weir__claim_serialise(s, c, p.lock == CLAIM_LOCK_WAIT ? wait_of(&p) : 0, err);
    }
    if (status == WEIR_OK) {
        status = rows_refill(&p, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_reread(s, c, &p.taken, result, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_commit(s, err);
    }
    if (status != WEIR_OK) {
        weir__claim_rollback(s);
    }
    weir__claim_found_free(&p.taken);
    weir__claim_found_free(&p.tried);
    weir__claim_found_free(&p.keys);
    return status;
}
