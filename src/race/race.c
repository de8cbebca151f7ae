/* race.c - starts, directs and ends a race; the lines on their way to the caller.
 *
 * INVARIANTS
 *   (1) Steps are stamped and queued under one lock, so that their lines are in the order of their
 *       times.
 *   (2) `over` is set last, by the director, when the table is gone (or kept) and no worker runs.
 *   (3) No worker pauses for another that is not yet let go: all are let go together.
 *
 * THREADS  `mu` guards what is marked so in race_private.h. It is a leaf lock.
 */
#include "base/assert.h"
#include "race/race_private.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_ALLOWED "42501" /* insufficient_privilege */

static int64_t now_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

const char *weir__race_mode_name(race_mode mode)
{
    switch (mode) {
    case RACE_SKIP:
        return "skip";
    case RACE_WAIT:
        return "wait";
    case RACE_AUTOCOMMIT:
        return "autocommit";
    case RACE_NONE:
        return "none";
    case RACE_MODES_COUNT:
        break;
    }
    return "?";
}

bool weir__race_mode_of(weir_str name, race_mode *out)
{
    for (int i = 0; i < RACE_MODES_COUNT; i++) {
        if (weir__str_equal(name, weir__str(weir__race_mode_name((race_mode)i)))) {
            *out = (race_mode)i;
            return true;
        }
    }
    return false;
}

const char *weir__race_what_name(race_what what)
{
    switch (what) {
    case RACE_ASKS:
        return "asks";
    case RACE_GETS:
        return "gets";
    case RACE_SEES:
        return "sees";
    case RACE_SENDS:
        return "sends";
    case RACE_WRITES:
        return "writes";
    case RACE_COMMITS:
        return "commits";
    case RACE_FAILS:
        return "fails";
    case RACE_WHATS_COUNT:
        break;
    }
    return "?";
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A copy in one piece: the line, its rows, its texts. NULL: out of memory. */
static race_line *line_copy(const race_line *from)
{
    const weir_str texts[] = { from->text, from->by, from->at };
    size_t bytes = sizeof *from + from->rows_count * sizeof *from->rows;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bytes += texts[i].len + 1;
    }
    race_line *line = weir__malloc(bytes);
    if (line == NULL) {
        return NULL;
    }
    *line = *from;
    line->next = NULL;
    int64_t *rows = (int64_t *)(void *)(line + 1);
    if (from->rows_count > 0) {
        memcpy(rows, from->rows, from->rows_count * sizeof *rows);
    }
    line->rows = rows;
    char *text = (char *)(rows + from->rows_count);
    weir_str *const copies[] = { &line->text, &line->by, &line->at };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].ptr != NULL) {
            memcpy(text, texts[i].ptr, texts[i].len);
            copies[i]->ptr = text;
            text += texts[i].len;
        }
    }
    return line;
}

static void race_tell(const race *r)
{
    const uint64_t one = 1;
    const ssize_t n = write(r->fd, &one, sizeof one);
    WEIR_ASSERT(n == (ssize_t)sizeof one);
}

static void stop_locked(race *r) WEIR_REQUIRES(r->mu)
{
    r->stop = true;
    weir__cond_broadcast(&r->changed);
}

void weir__race_say(race *r, const race_line *line)
{
    race_line *copy = line_copy(line);
    weir__lock(&r->mu);
    if (copy == NULL) {
        /* A timeline with a hole in it is worth nothing. */
        r->status = weir__fail(&r->err, WEIR_ENOMEM, "could not allocate a line");
        stop_locked(r);
    } else {
        if (copy->kind == RACE_LINE_STEP && r->zero_us != 0) {
            copy->elapsed_us = now_us() - r->zero_us;
        }
        *r->last = copy;
        r->last = &copy->next;
    }
    weir__unlock(&r->mu);
    race_tell(r);
}

int weir__race_fd(const race *r)
{
    return r->fd;
}

const race_line *weir__race_next(race *r)
{
    uint64_t count;
    weir__free(r->taken);
    weir__lock(&r->mu);
    r->taken = r->first;
    if (r->first != NULL) {
        r->first = r->first->next;
        if (r->first == NULL) {
            r->last = &r->first;
        }
    } else if (!r->over) {
        (void)!read(r->fd, &count, sizeof count); /* it does not wait: there may be nothing */
    }
    weir__unlock(&r->mu);
    return r->taken;
}

bool weir__race_over(race *r)
{
    weir__lock(&r->mu);
    const bool over = r->over && r->first == NULL;
    weir__unlock(&r->mu);
    return over;
}

void weir__race_stop(race *r)
{
    weir__lock(&r->mu);
    stop_locked(r);
    weir__unlock(&r->mu);
}

bool weir__race_stopped(race *r)
{
    weir__lock(&r->mu);
    const bool stop = r->stop;
    weir__unlock(&r->mu);
    return stop;
}

/* ---- workers and their director -------------------------------------------------------------- */

bool weir__race_gate(race *r)
{
    weir__lock(&r->mu);
    r->ready++;
    weir__cond_broadcast(&r->changed);
    while (r->zero_us == 0 && !r->stop) {
        weir__cond_wait(&r->changed, &r->mu);
    }
    const bool go = !r->stop;
    weir__unlock(&r->mu);
    return go;
}

void weir__race_looked(race_worker *w)
{
    race *r = w->race;
    if (!w->looked) {
        w->looked = true;
        weir__lock(&r->mu);
        r->looked++;
        weir__cond_broadcast(&r->changed);
        weir__unlock(&r->mu);
    }
}

bool weir__race_pause(race *r)
{
    const int64_t deadline_us = now_us() + r->options.pause_us;
    weir__lock(&r->mu);
    while (!r->stop && now_us() < deadline_us) {
        (void)weir__cond_wait_until(&r->changed, &r->mu, deadline_us);
    }
    while (!r->stop && r->looked < (size_t)r->options.workers) {
        weir__cond_wait(&r->changed, &r->mu);
    }
    const bool go = !r->stop;
    weir__unlock(&r->mu);
    return go;
}

/* Lets the workers go, when all of them are ready. */
static void open_gate(race *r)
{
    weir__lock(&r->mu);
    while (r->ready < (size_t)r->options.workers && !r->stop) {
        weir__cond_wait(&r->changed, &r->mu);
    }
    r->zero_us = now_us();
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
}

static weir_status run_workers(race *r, weir_error *err)
{
    weir_status status = WEIR_OK;
    const size_t count = (size_t)r->options.workers;
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        race_worker *w = &r->workers[i];
        *w = (race_worker){ .race = r,
                            .number = i + 1,
                            .seat = { .db = r->db,
                                      .by_turns = strncmp(r->url, "memory:", 7) == 0 } };
        if (pthread_create(&w->thread, NULL, weir__race_worker_run, w) != 0) {
            status = weir__fail(err, WEIR_EIO, "could not start worker %zu", w->number);
            weir__race_stop(r);
        } else {
            w->started = true;
        }
    }
    open_gate(r);
    for (size_t i = 0; i < count; i++) {
        race_worker *w = &r->workers[i];
        if (w->started) {
            (void)pthread_join(w->thread, NULL);
            if (status == WEIR_OK && w->status != WEIR_OK) {
                *err = w->err;
                status = weir__wrap(err, w->status, "%s", w->name);
            }
        }
    }
    return status;
}

/* ---- the table, before and after ------------------------------------------------------------- */

static weir_status say_left(race *r, race_seat *seat, table_result *result, weir_error *err)
{
    const weir_status status = weir__race_sql(seat, RACE_SQL_LEFT, r->table, NULL, 0, result, err);
    for (size_t i = 0; i < result->rows_count && status == WEIR_OK; i++) {
        weir__race_say(r, &(race_line){ .kind = RACE_LINE_LEFT,
                                        .text = result->cells[i * result->columns_count].text });
    }
    return status;
}

/* *made: there is a table, or it is not known that there is none. */
static weir_status make_table(race *r, race_seat *seat, bool *made, weir_error *err)
{
    table_result result = { 0 };
    const table_value rows = { .kind = TABLE_INTEGER, .number = r->options.rows };
    weir_status status = weir__race_enter(seat, err);
    if (status == WEIR_OK) {
        status = say_left(r, seat, &result, err);
    }
    if (status == WEIR_OK) {
        weir__race_say(r, &(race_line){ .kind = RACE_LINE_TABLE, .text = weir__str(r->table) });
        status = weir__race_sql(seat, RACE_SQL_MAKE, r->table, NULL, 0, NULL, err);
        *made = status == WEIR_OK || status == WEIR_EUNKNOWN;
        if (status != WEIR_OK) {
            status = weir__wrap(err, status, "make table %s", r->table);
            if (strcmp(err->store_code, NOT_ALLOWED) == 0) {
                weir__error_detail(err, "A race needs a schema in which it may make a table of its "
                                        "own; --store memory: needs no database at all.");
            }
        }
    }
    if (status == WEIR_OK) {
        status = weir__race_sql(seat, RACE_SQL_FILL, r->table, &rows, 1, NULL, err);
    }
    weir__race_leave(seat);
    weir__table_result_free(&result);
    return status;
}

static weir_status say_rows(race *r, const table_result *rows, const int64_t *counts,
                            weir_error *err)
{
    race_line total = { .kind = RACE_LINE_RESULT };
    for (size_t i = 0; i < rows->rows_count; i++) {
        const table_cell *cells = rows->cells + i * rows->columns_count;
        int64_t id = 0;
        if (!weir__str_to_i64(cells[0].text, &id) || id < 1 || id > r->options.rows) {
            return weir__fail(err, WEIR_EIO, "someone else has written to table %s", r->table);
        }
        race_line line = { .kind = RACE_LINE_ROW,
                           .rows = &id,
                           .rows_count = 1,
                           .text = cells[1].text,
                           .effects = counts[id - 1] };
        if (!cells[2].null) {
            line.by = cells[2].text;
        }
        if (!cells[3].null) {
            line.at = cells[3].text;
        }
        weir__race_say(r, &line);
    }
    for (int64_t i = 0; i < r->options.rows; i++) {
        total.effects += counts[i];
        total.doubled += counts[i] > 1 ? counts[i] - 1 : 0;
    }
    weir__race_say(r, &total);
    return WEIR_OK;
}

/* The table as it is now, and what is in the file of side effects. */
static weir_status look_back(race *r, race_seat *seat, weir_error *err)
{
    table_result rows = { 0 };
    int64_t *counts = weir__calloc((size_t)r->options.rows + 1, sizeof *counts);
    weir_status status = counts == NULL
                             ? weir__fail(err, WEIR_ENOMEM, "could not allocate the counts")
                             : weir__race_effects_count(r->options.effects_fd, r->effects_start,
                                                        counts, (size_t)r->options.rows, err);
    if (status == WEIR_OK) {
        status = weir__race_enter(seat, err);
    }
    if (status == WEIR_OK) {
        status = weir__race_sql(seat, RACE_SQL_ROWS, r->table, NULL, 0, &rows, err);
    }
    if (status == WEIR_OK) {
        status = say_rows(r, &rows, counts, err);
    }
    weir__table_result_free(&rows);
    weir__free(counts);
    return status;
}

/* Over a new connection when the old one was lost. */
static weir_status drop_table(race *r, race_seat *seat, weir_error *err)
{
    weir_status status = weir__race_enter(seat, err);
    if (status == WEIR_OK) {
        status = weir__race_sql(seat, RACE_SQL_DROP, r->table, NULL, 0, NULL, err);
    }
    if (status == WEIR_EUNAVAILABLE) {
        weir__race_seat_close(seat);
        status = weir__race_enter(seat, err);
        if (status == WEIR_OK) {
            status = weir__race_sql(seat, RACE_SQL_DROP, r->table, NULL, 0, NULL, err);
        }
    }
    return status == WEIR_OK ? WEIR_OK
                             : weir__wrap(err, status, "table %s is left behind", r->table);
}

static void *worker_direct(void *ctx)
{
    race *r = ctx;
    weir_error err = { 0 };
    weir_error drop_err = { 0 };
    bool made = false;
    race_seat seat = { .db = r->db, .by_turns = strncmp(r->url, "memory:", 7) == 0 };
    weir_status status = make_table(r, &seat, &made, &err);
    if (status == WEIR_OK && !weir__race_stopped(r)) {
        status = run_workers(r, &err);
        /* Also when a worker has failed: what the others saw is true. */
        if (!weir__race_stopped(r)) {
            weir_error *into = status == WEIR_OK ? &err : &drop_err;
            const weir_status looked = look_back(r, &seat, into);
            status = status == WEIR_OK ? looked : status;
        }
    }
    if (made && !r->options.keep) {
        const weir_status dropped = drop_table(r, &seat, &drop_err);
        if (dropped != WEIR_OK && status == WEIR_OK) {
            status = dropped;
            err = drop_err;
        }
    }
    weir__race_seat_close(&seat);
    weir__lock(&r->mu);
    if (r->status == WEIR_OK && status != WEIR_OK) {
        r->status = status;
        r->err = err;
    }
    r->over = true;
    weir__unlock(&r->mu);
    race_tell(r);
    return NULL;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

weir_status weir__race_check(const race_options *o, weir_error *err)
{
    if (o->workers < 1 || o->workers > RACE_WORKERS_MAX) {
        return weir__fail(err, WEIR_EINVAL, "--workers is %" PRId64 ", allowed 1 to %d", o->workers,
                          RACE_WORKERS_MAX);
    }
    if (o->rows < 0 || o->rows > RACE_ROWS_MAX) {
        return weir__fail(err, WEIR_EINVAL, "--rows is %" PRId64 ", allowed 0 to %d", o->rows,
                          RACE_ROWS_MAX);
    }
    if (o->limit < 1 || o->limit > RACE_ROWS_MAX) {
        return weir__fail(err, WEIR_EINVAL, "--limit is %" PRId64 ", allowed 1 to %d", o->limit,
                          RACE_ROWS_MAX);
    }
    if (o->pause_us < 0 || o->pause_us > RACE_PAUSE_US_MAX) {
        return weir__fail(err, WEIR_EINVAL, "--pause is longer than an hour");
    }
    return WEIR_OK;
}

/* Everything but the threads and the lock. */
static weir_status race_prepare(race *r, weir_error *err)
{
    struct stat file;
    char why[RACE_WHY_BYTES];
    weir_status status = weir__race_url(&r->options, &r->url, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (fstat(r->options.effects_fd, &file) != 0 || !S_ISREG(file.st_mode)) {
        return weir__fail(err, WEIR_EINVAL, "side effects are recorded in a regular file");
    }
    r->effects_start = (int64_t)file.st_size;
    weir__race_table_name(r->table);
    r->workers = weir__calloc((size_t)r->options.workers, sizeof *r->workers);
    if (r->workers == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the workers");
    }
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not open a descriptor: %s",
                          weir__race_errno(errno, why, sizeof why));
    }
    return weir__table_open(&r->db, &(table_options){ .url = r->url }, err);
}

static void race_free(race *r)
{
    weir__table_close(r->db);
    weir__free(r->workers);
    weir__free(r->url);
    weir__free(r->taken);
    while (r->first != NULL) {
        race_line *line = r->first;
        r->first = line->next;
        weir__free(line);
    }
    if (r->fd >= 0) {
        (void)close(r->fd);
    }
    weir__free(r);
}

weir_status weir__race_start(race **out, const race_options *options, weir_error *err)
{
    weir_status status = weir__race_check(options, err);
    if (status != WEIR_OK) {
        return status;
    }
    race *r = weir__calloc(1, sizeof *r);
    if (r == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a race");
    }
    r->options = *options;
    r->fd = -1;
    r->last = &r->first;
    status = race_prepare(r, err);
    if (status != WEIR_OK) {
        goto out;
    }
    if (!weir__mutex_init(&r->mu)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a lock");
        goto out;
    }
    if (!weir__cond_init(&r->changed)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a lock");
        goto out_mutex;
    }
    if (pthread_create(&r->director, NULL, worker_direct, r) != 0) {
        status = weir__fail(err, WEIR_EIO, "could not start a thread");
        weir__cond_destroy(&r->changed);
        goto out_mutex;
    }
    *out = r;
    return WEIR_OK;
out_mutex:
    weir__mutex_destroy(&r->mu);
out:
    race_free(r);
    return status;
}

weir_status weir__race_end(race *r, weir_error *err)
{
    if (r == NULL) {
        return WEIR_OK;
    }
    weir__race_stop(r); /* when it is over already this changes nothing */
    (void)pthread_join(r->director, NULL);
    const weir_status status = r->status;
    if (status != WEIR_OK && err != NULL) {
        *err = r->err;
    }
    weir__cond_destroy(&r->changed);
    weir__mutex_destroy(&r->mu);
    race_free(r);
    return status;
}
