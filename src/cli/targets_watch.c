/* targets_watch.c - weir targets --watch: the list, and then what changes.
 *
 * On a terminal the list is drawn anew; into a pipe each target that changed is a line. A change is
 * seen by looking at all targets again, after a wake-up of the store and at least once a second,
 * because a wake-up can be lost and time alone changes states (a backoff that is over). Looking
 * costs a scan, so it is done for at most a fifth of the time.
 *
 * What is remembered of a target is a number made of its row, without what time alone changes. A
 * target that fits the filter no longer is printed once more, as it is then.
 */
#include "cli/operate.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    WATCH_LOOK_MS = 1000,  /* the longest without a look                    */
    WATCH_PAUSE_MS = 100,  /* the shortest between two                      */
    WATCH_REST_FACTOR = 4, /* and so many times as long as a look has taken */
    SCREEN_ROWS_DEFAULT = 24,
    SCREEN_ROWS_BESIDE = 4,  /* title, head, "and N more", the line of the cursor */
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
    store_watch *watch; /* owned */
    bool lines;         /* a line per change; else the list as a table */
    bool terminal;
    uint64_t look; /* from 1 */
    seen *seen;    /* owned: open addressing by target */
    size_t seen_count, seen_capacity;
    weir_buffer reactions, row;
    /* the table */
    report_table table;
    weir_buffer frame, last_frame; /* as drawn, and as drawn before */
    size_t rows_max, rows_count;
    int64_t states[CLI_TARGET_STATES_COUNT];
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
static bool rebuild(watching *w, size_t capacity, uint64_t look)
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
static bool remember(watching *w, const store_target *t, bool *changed)
{
    uint64_t number = 0;

    if ((w->seen_count + 1) * 2 > w->seen_capacity &&
        !rebuild(w, w->seen_capacity == 0 ? SEEN_CAPACITY_MIN : w->seen_capacity * 2, 0)) {
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

    w->no_memory = !remember(w, t, wanted);
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
    if (status == WEIR_OK && gone > 0 && !rebuild(w, w->seen_capacity, w->look)) {
        w->no_memory = true;
    }
    return status;
}

static weir_status look_for_changes(watching *w, weir_error *err)
{
    const cli_target_sink sink = { .wants = wants_changed, .row = print_line, .ctx = w };
    weir_status status;

    w->look++;
    status = weir__cli_targets_each(w->store, w->filter, INT64_MAX, &sink, err);
    if (status == WEIR_OK && !w->no_memory && !w->c->out.closed && !w->c->out.failed) {
        status = print_gone(w, err);
    }
    return status;
}

/* ---- the list, drawn ------------------------------------------------------------------------ */

static bool wants_shown(void *ctx, const store_target *t, bool *wanted)
{
    watching *w = ctx;

    w->states[weir__cli_target_state(t)]++;
    *wanted = w->rows_count < w->rows_max;
    w->rows_count++;
    return true;
}

static bool add_row(void *ctx, const store_target *t, int64_t waited_us)
{
    watching *w = ctx;
    report_field fields[CLI_TARGET_FIELDS_COUNT];

    w->no_memory = !weir__cli_target_fields(t, waited_us, &w->reactions, fields) ||
                   !weir__report_table_row(&w->table, fields, CLI_TARGET_FIELDS_COUNT);
    return !w->no_memory;
}

static size_t screen_rows(const watching *w)
{
    struct winsize size = { 0 };

    if (!w->terminal) {
        return SIZE_MAX;
    }
    const int rows = ioctl(w->c->out.fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0
                         ? size.ws_row
                         : SCREEN_ROWS_DEFAULT;
    return rows > SCREEN_ROWS_BESIDE ? (size_t)(rows - SCREEN_ROWS_BESIDE) : 1;
}

/* How many there are of each state, in one line. */
static bool add_title(watching *w, weir_buffer *out)
{
    char text[128];
    bool ok = true;

    (void)snprintf(text, sizeof text, "%zu target%s", w->rows_count, w->rows_count == 1 ? "" : "s");
    ok = weir__buffer_add_text(out, text);
    for (int state = 0; ok && state < CLI_TARGET_STATES_COUNT; state++) {
        if (w->states[state] > 0) {
            (void)snprintf(text, sizeof text, ", %" PRId64 " %s", w->states[state],
                           weir__cli_state_text((cli_target_state)state));
            ok = weir__buffer_add_text(out, text);
        }
    }
    return ok && weir__buffer_add_text(out, "\n");
}

static bool fill_frame(watching *w)
{
    char more[64];
    const size_t shown = w->rows_count < w->rows_max ? w->rows_count : w->rows_max;
    bool ok = add_title(w, &w->frame) && weir__report_table_flush(&w->table, &w->frame);

    if (ok && shown < w->rows_count) {
        (void)snprintf(more, sizeof more, "and %zu more\n", w->rows_count - shown);
        ok = weir__buffer_add_text(&w->frame, more);
    }
    return ok;
}

/* Over what is there, so that nothing flickers: each line wipes its rest, and the last one what is
 * below. Long lines are cut by the terminal itself. */
static bool draw(watching *w)
{
    cli_output *o = &w->c->out;
    const weir_str frame = { .ptr = w->frame.ptr, .len = w->frame.len };

    if (!w->terminal) {
        const bool first = w->last_frame.len == 0;
        return (first || weir__cli_print(o, "\n")) && weir__cli_put(o, frame) && weir__cli_flush(o);
    }
    bool ok = weir__cli_print(o, "\033[H\033[?7l");
    for (size_t at = 0; ok && at < frame.len;) {
        const char *end = memchr(frame.ptr + at, '\n', frame.len - at);
        const size_t len = end == NULL ? frame.len - at : (size_t)(end - frame.ptr) - at;
        ok = weir__cli_put(o, (weir_str){ .ptr = frame.ptr + at, .len = len }) &&
             weir__cli_print(o, "\033[K\r\n");
        at += len + 1;
    }
    return ok && weir__cli_print(o, "\033[J\033[?7h") && weir__cli_flush(o);
}

static weir_status look_and_draw(watching *w, weir_error *err)
{
    const cli_target_sink sink = { .wants = wants_shown, .row = add_row, .ctx = w };

    weir__cli_screen(w->c); /* it may have another size, and time has gone on */
    memset(w->states, 0, sizeof w->states);
    w->rows_count = 0;
    w->rows_max = screen_rows(w);
    weir__report_table_free(&w->table);
    weir__buffer_clear(&w->frame);
    const weir_status status = weir__cli_targets_each(w->store, w->filter, INT64_MAX, &sink, err);
    if (status != WEIR_OK || w->no_memory) {
        return status;
    }
    w->no_memory = !fill_frame(w);
    const bool same = w->frame.len == w->last_frame.len &&
                      memcmp(w->frame.ptr, w->last_frame.ptr, w->frame.len) == 0;
    if (!w->no_memory && !same) {
        (void)draw(w);
        const weir_buffer drawn = w->frame;
        w->frame = w->last_frame;
        w->last_frame = drawn;
    }
    return WEIR_OK;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Waits until timeout_ms have passed or, with `woken`, the store has woken us. false: a signal
 * came, or nobody reads stdout any more. */
static bool wait_for(watching *w, int timeout_ms, bool woken)
{
    const cli_output *o = &w->c->out;
    struct pollfd fds[] = {
        { .fd = o->stop_fd, .events = POLLIN },
        { .fd = o->fd, .events = 0 }, /* only that it was closed */
        { .fd = woken ? w->store->ops->watch_fd(w->watch) : -1, .events = POLLIN },
    };

    if (o->closed || o->failed) {
        return false;
    }
    if (poll(fds, sizeof fds / sizeof fds[0], timeout_ms) < 0) {
        return errno == EINTR;
    }
    return fds[0].revents == 0 && (fds[1].revents & (POLLERR | POLLHUP)) == 0;
}

/* Rests after a look that took so long, then waits for something to look at. */
static bool wait_after(watching *w, int64_t took_us)
{
    const int64_t rest_ms = took_us * WATCH_REST_FACTOR / 1000;
    const int pause_ms = rest_ms < WATCH_PAUSE_MS ? WATCH_PAUSE_MS
                         : rest_ms > INT32_MAX    ? INT32_MAX
                                                  : (int)rest_ms;

    return wait_for(w, pause_ms, false) &&
           (pause_ms >= WATCH_LOOK_MS || wait_for(w, WATCH_LOOK_MS - pause_ms, true));
}

static weir_status watch(watching *w, weir_error *err)
{
    const weir_clock *clock = weir__clock_machine();
    weir_status status = w->store->ops->watch_open(w->store, &w->watch, err);
    bool go_on = status == WEIR_OK;

    while (go_on) {
        bool woken = false;
        const int64_t begun_us = weir__clock_mono(clock);
        /* Before the look: what happens during it wakes us again. */
        status = w->store->ops->watch_wait(w->watch, 0, &woken, err);
        if (status == WEIR_OK) {
            status = w->lines ? look_for_changes(w, err) : look_and_draw(w, err);
        }
        if (status == WEIR_OK && w->no_memory) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
        (void)weir__cli_flush(&w->c->out);
        go_on = status == WEIR_OK && wait_after(w, weir__clock_mono(clock) - begun_us);
    }
    return status;
}

weir_status weir__cli_targets_watch(cli *c, weir_store *store, const store_target_filter *filter,
                                    weir_error *err)
{
    watching w = { .c = c,
                   .store = store,
                   .filter = filter,
                   .lines = c->out.json,
                   .table = { .screen = &c->out.screen },
                   .terminal = isatty(c->out.fd) != 0 };
    weir_status status;

    c->out.stop_fd = weir__cli_signals_open();
    if (c->out.stop_fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
    }
    status = watch(&w, err);
    store->ops->watch_close(w.watch);
    (void)close(c->out.stop_fd);
    c->out.stop_fd = -1;
    if (w.terminal && !w.lines) {
        /* A signal may have come in the middle of a frame. */
        static const char wrap[] = "\033[?7h";
        (void)!write(c->out.fd, wrap, sizeof wrap - 1);
    }
    for (size_t i = 0; i < w.seen_capacity; i++) {
        weir__free(w.seen[i].name);
    }
    weir__free(w.seen);
    weir__buffer_free(&w.reactions);
    weir__buffer_free(&w.row);
    weir__buffer_free(&w.frame);
    weir__buffer_free(&w.last_frame);
    weir__report_table_free(&w.table);
    return status;
}
