/* race_worker.c - the turn of a worker, in each of the modes.
 *
 * A turn is: ask for rows, work on them (that is the pause), send the email of each, write that it
 * is done. What differs is what keeps others away from the rows meanwhile.
 *
 * INVARIANT  A step is said when its statement was answered, with what the answer was, and an email
 * is sent for no row but those that the worker was given.
 */
#include "claim/claim.h"
#include "race/race_private.h"

#include <stdio.h>

static int64_t now_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

static void line_say(const race_worker *w, race_what what, const int64_t *rows, size_t rows_count,
                     int64_t since_us)
{
    const race_line line = { .kind = RACE_LINE_STEP,
                             .what = what,
                             .worker = w->number,
                             .rows = rows,
                             .rows_count = rows_count,
                             .took_us = since_us == 0 ? 0 : now_us() - since_us };
    weir__race_say(w->race, &line);
}

/* ---- what a turn is made of ------------------------------------------------------------------ */

static const table_cell *cell_of(const table_result *r, size_t row, const char *column)
{
    for (size_t i = 0; i < r->columns_count; i++) {
        if (weir__str_equal(r->names[i], weir__str(column))) {
            return &r->cells[row * r->columns_count + i];
        }
    }
    return NULL;
}

/* The rows that a worker was given: *ids is owned. */
typedef struct given {
    int64_t *ids;
    size_t count;
} given;

static weir_status take_ids(const table_result *r, given *g, weir_error *err)
{
    g->ids = weir__calloc(r->rows_count + 1, sizeof *g->ids);
    if (g->ids == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the rows of a worker");
    }
    for (size_t i = 0; i < r->rows_count; i++) {
        const table_cell *id = cell_of(r, i, "id");
        if (id == NULL || !weir__str_to_i64(id->text, &g->ids[i])) {
            return weir__fail(err, WEIR_EIO, "a row came back without its id");
        }
    }
    g->count = r->rows_count;
    return WEIR_OK;
}

/* The emails of all rows: what cannot be taken back. */
static weir_status send_all(const race_worker *w, const given *g, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < g->count && status == WEIR_OK; i++) {
        status = weir__race_effect_send(w->race->options.effects_fd, g->ids[i], w->number, err);
        if (status == WEIR_OK) {
            line_say(w, RACE_SENDS, &g->ids[i], 1, 0);
        }
    }
    return status;
}

/* An answer to an UPDATE of a row: the row, and the status that it has now; or no row. */
static void say_written(const race_worker *w, int64_t id, const table_result *r, int64_t since_us)
{
    race_line line = { .kind = RACE_LINE_STEP,
                       .what = RACE_WRITES,
                       .worker = w->number,
                       .rows = &id,
                       .took_us = now_us() - since_us };
    const table_cell *cell = r->rows_count == 0 ? NULL : cell_of(r, 0, "status");
    if (cell != NULL) {
        line.rows_count = 1;
        line.text = cell->text;
    }
    weir__race_say(w->race, &line);
}

static weir_status row_mark(race_worker *w, int64_t id, table_result *r, weir_error *err)
{
    const table_value values[] = { { .kind = TABLE_INTEGER, .number = id },
                                   { .kind = TABLE_TEXT, .text = weir__str(w->name) } };
    const int64_t since_us = now_us();
    const weir_status status =
        weir__race_sql(&w->seat, RACE_SQL_MARK, w->race->table, values, 2, r, err);
    if (status == WEIR_OK) {
        say_written(w, id, r, since_us);
    }
    return status;
}

static weir_status row_finish(race_worker *w, int64_t id, table_result *r, weir_error *err)
{
    const table_value key = { .kind = TABLE_INTEGER, .number = id };
    const claim_set done = { .column = weir__str("status"),
                             .value = { .kind = TABLE_TEXT, .text = weir__str("done") } };
    const finish_request request = { .table = weir__str(w->race->table),
                                     .key = &key,
                                     .key_count = 1,
                                     .kind = FINISH_DONE,
                                     .by = weir__str(w->name),
                                     .writes.set = &done,
                                     .writes.set_count = 1 };
    const int64_t since_us = now_us();
    const weir_status status = weir__claim_finish(w->seat.session, &request, r, err);
    if (status == WEIR_OK) {
        say_written(w, id, r, since_us);
    }
    return status;
}

typedef weir_status (*write_fn)(race_worker *w, int64_t id, table_result *r, weir_error *err);

static weir_status write_all(race_worker *w, const given *g, write_fn write_one, table_result *r,
                             weir_error *err)
{
    weir_status status = g->count == 0 ? WEIR_OK : weir__race_enter(&w->seat, err);
    for (size_t i = 0; i < g->count && status == WEIR_OK; i++) {
        status = write_one(w, g->ids[i], r, err);
    }
    return status;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* What the right ways ask for. */
static claim_request request_of(const race_worker *w)
{
    return (claim_request){ .table = weir__str(w->race->table),
                            .where = weir__str("status = 'pending'"),
                            .limit = w->race->options.limit };
}

/* The claim is over as soon as it is answered: others find the rows taken, and nobody waits. */
static weir_status turn_skip(race_worker *w, given *g, table_result *r, weir_error *err)
{
    const claim_set claimed = { .column = weir__str("status"),
                                .value = { .kind = TABLE_TEXT, .text = weir__str("claimed") } };
    claim_request request = request_of(w);
    request.writes.set = &claimed;
    request.writes.set_count = 1;
    request.by = weir__str(w->name);
    request.mode = CLAIM_SKIP;
    line_say(w, RACE_ASKS, NULL, 0, 0);
    const int64_t since_us = now_us();
    weir_status status = weir__race_enter(&w->seat, err);
    if (status == WEIR_OK) {
        status = weir__claim_rows(w->seat.session, &request, r, err);
    }
    if (status == WEIR_OK) {
        status = take_ids(r, g, err);
    }
    weir__race_leave(&w->seat);
    if (status != WEIR_OK) {
        return status;
    }
    line_say(w, RACE_GETS, g->ids, g->count, since_us);
    weir__race_looked(w);
    if (!weir__race_pause(w->race)) {
        return WEIR_OK;
    }
    status = send_all(w, g, err);
    if (status == WEIR_OK) {
        status = write_all(w, g, row_finish, r, err);
    }
    weir__race_leave(&w->seat);
    return status;
}

/* The rows stay locked until the work is done; whoever wants them waits. */
static weir_status turn_wait(race_worker *w, given *g, table_result *r, weir_error *err)
{
    claim_request request = request_of(w);
    request.hold = true;
    request.mode = CLAIM_WAIT;
    request.wait_us = -1;
    line_say(w, RACE_ASKS, NULL, 0, 0);
    weir__race_looked(w); /* it may wait for a worker that pauses: that one must not wait for it */
    const int64_t since_us = now_us();
    weir_status status = weir__race_enter(&w->seat, err);
    if (status == WEIR_OK) {
        status = weir__table_begin(w->seat.session, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_rows(w->seat.session, &request, r, err);
    }
    if (status == WEIR_OK) {
        status = take_ids(r, g, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    line_say(w, RACE_GETS, g->ids, g->count, since_us);
    if (!weir__race_pause(w->race)) {
        return WEIR_OK;
    }
    status = send_all(w, g, err);
    if (status == WEIR_OK) {
        status = write_all(w, g, row_mark, r, err);
    }
    if (status == WEIR_OK) {
        const int64_t commit_us = now_us();
        status = weir__table_commit(w->seat.session, err);
        if (status == WEIR_OK) {
            line_say(w, RACE_COMMITS, NULL, 0, commit_us);
        }
    }
    return status;
}

/* Looks, and works on what it saw: nothing keeps others away meanwhile. With a lock that ends with
 * the transaction that looked, or without one. */
static weir_status row_look(race_worker *w, bool locked, given *g, table_result *r, weir_error *err)
{
    const table_value limit = { .kind = TABLE_INTEGER, .number = w->race->options.limit };
    const race_sql which = locked ? RACE_SQL_LOOK_LOCKED : RACE_SQL_LOOK;
    const int64_t since_us = now_us();
    weir_status status = weir__race_enter(&w->seat, err);
    if (status == WEIR_OK && locked) {
        status = weir__table_begin(w->seat.session, err);
    }
    if (status == WEIR_OK) {
        status = weir__race_sql(&w->seat, which, w->race->table, &limit, 1, r, err);
    }
    if (status == WEIR_OK) {
        status = take_ids(r, g, err);
    }
    if (status == WEIR_OK) {
        line_say(w, RACE_SEES, g->ids, g->count, since_us);
    }
    if (status == WEIR_OK && locked) {
        const int64_t commit_us = now_us();
        status = weir__table_commit(w->seat.session, err);
        if (status == WEIR_OK) {
            line_say(w, RACE_COMMITS, NULL, 0, commit_us);
        }
    }
    return status;
}

static weir_status turn_wrong(race_worker *w, bool locked, given *g, table_result *r,
                              weir_error *err)
{
    line_say(w, RACE_ASKS, NULL, 0, 0);
    weir_status status = row_look(w, locked, g, r, err);
    weir__race_leave(&w->seat);
    weir__race_looked(w);
    if (status != WEIR_OK || !weir__race_pause(w->race)) {
        return status;
    }
    status = send_all(w, g, err);
    if (status == WEIR_OK) {
        status = write_all(w, g, row_mark, r, err);
    }
    return status;
}

static weir_status turn_take(race_worker *w, given *g, table_result *r, weir_error *err)
{
    switch (w->race->options.mode) {
    case RACE_SKIP:
        return turn_skip(w, g, r, err);
    case RACE_WAIT:
        return turn_wait(w, g, r, err);
    case RACE_AUTOCOMMIT:
        return turn_wrong(w, true, g, r, err);
    case RACE_NONE:
        return turn_wrong(w, false, g, r, err);
    case RACE_MODES_COUNT:
        break;
    }
    return weir__fail(err, WEIR_EMISUSE, "there is no such mode");
}

void *weir__race_worker_run(void *ctx)
{
    race_worker *w = ctx;
    table_result r = { 0 };
    given g = { 0 };
    (void)snprintf(w->name, sizeof w->name, "worker-%zu", w->number);
    /* Connected before the race begins: it is not about who connects first. */
    if (!w->seat.by_turns) {
        w->status = weir__race_enter(&w->seat, &w->err);
    }
    if (weir__race_gate(w->race) && w->status == WEIR_OK) {
        w->status = turn_take(w, &g, &r, &w->err);
    }
    /* What was begun and not committed is rolled back, before anybody hears of the end. */
    weir__race_seat_close(&w->seat);
    if (w->status != WEIR_OK) {
        weir__race_say(w->race, &(race_line){ .kind = RACE_LINE_STEP,
                                              .what = RACE_FAILS,
                                              .worker = w->number,
                                              .text = weir__str(w->err.message) });
    }
    weir__race_looked(w);
    weir__table_result_free(&r);
    weir__free(g.ids);
    return NULL;
}
