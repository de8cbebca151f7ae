/* work_live.c - one line under the log of a worker on a terminal: how it is going, lane by lane.
 *
 *     12 handled/s, 1 failed | mail: 2 running, 40 waiting | slow: 0 running, 3 waiting, 1 blocked
 *
 *   OFF --begin--> SHOWN --end--> ENDED
 *
 * Must stay true:
 *   1. A log line is never mixed with the live line: that is wiped, the log line written and the
 *      live line drawn again in one write, under `mu`.
 *   2. It is one line: never wider than the terminal, and names in it cannot steer that.
 *   3. OFF unless stderr is a terminal that can wipe a line, and the log is text. Then nothing here
 *      runs. After the end nothing of it is left on the screen.
 *
 * When a terminal is made narrower, some break the line that is there into two, and the upper part
 * stays: nobody can ask a terminal what it does.
 *
 * What lanes have to do is asked of the store, which knows all workers; what this worker has
 * handled since the line was made last, of its engine.
 *
 * THREADS  One of its own asks the store, at most for a fifth of the time, and never under `mu`,
 * which is a leaf.
 */
#include "api/api.h"
#include "base/clock.h"
#include "cli/fullscreen.h"
#include "cli/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LIVE_EVERY_US = 1000000,
    LIVE_REST_FACTOR = 4,
    COLUMNS_DEFAULT = 80,
};

/* ---- the line ------------------------------------------------------------------------------- */

/* As it is on the screen, into `out`. */
static bool line_add(const work_live *l, weir_buffer *out)
{
    const size_t columns = weir__cli_columns(STDERR_FILENO);
    const weir_str line = { l->line.ptr, l->line.len };

    /* One less than there is: the cursor stays in this line. */
    return weir__fullscreen_add_line(out, line, columns == 0 ? COLUMNS_DEFAULT : columns - 1,
                                     false);
}

/* Wipes the line, writes the text, draws the line anew. */
static void write_over_locked(const work_live *l, weir_str text) WEIR_REQUIRES(l->mu)
{
    weir_buffer out = { 0 };
    const bool ok = weir__buffer_add_text(&out, "\r\033[K") &&
                    (text.len == 0 || weir__buffer_add(&out, text.ptr, text.len)) &&
                    (l->state != WORK_LIVE_SHOWN || line_add(l, &out));

    weir__cli_stderr(ok ? (weir_str){ out.ptr, out.len } : text);
    weir__buffer_free(&out);
}

void weir__work_live_write(work_live *l, weir_str text)
{
    if (l->state == WORK_LIVE_OFF) { /* that does not change while others write */
        weir__cli_stderr(text);
        return;
    }
    weir__lock(&l->mu);
    if (l->state == WORK_LIVE_SHOWN) {
        write_over_locked(l, text);
    } else {
        weir__cli_stderr(text);
    }
    weir__unlock(&l->mu);
}

/* ---- what it says --------------------------------------------------------------------------- */

/* What the engine has counted, from one line to the next. */
typedef struct live_rate {
    const weir_engine *engine; /* that was asked; NULL: none yet */
    int64_t asked_us;
    int64_t handled, failed;
    double per_second;
} live_rate;

static void rate_update(live_rate *r, weir_engine *engine)
{
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    int64_t handled = 0, failed = 0;

    if (!weir__engine_counted(engine, &handled, &failed)) {
        return;
    }
    const int64_t spent_us = now_us - r->asked_us;
    if (r->engine == engine && spent_us > 0) {
        r->per_second = (double)(handled - r->handled) * 1e6 / (double)spent_us;
    }
    r->engine = engine;
    r->asked_us = now_us;
    r->handled = handled;
    r->failed = failed;
}

static bool lane_add(weir_buffer *out, const store_lane *l)
{
    char text[224], running[REPORT_WORD_BYTES], waiting[REPORT_WORD_BYTES],
        blocked[REPORT_WORD_BYTES];

    weir__report_count(l->leased, running);
    weir__report_count(l->ready, waiting);
    weir__report_count(l->blocked, blocked);
    (void)snprintf(text, sizeof text, ": %s running, %s waiting%s%s%s%s", running, waiting,
                   l->blocked > 0 ? ", " : "", l->blocked > 0 ? blocked : "",
                   l->blocked > 0 ? " blocked" : "", l->paused ? ", paused" : "");
    return weir__buffer_add_text(out, " | ") && weir__report_shown(out, l->lane) &&
           weir__buffer_add_text(out, text);
}

/* Asks the store. false: it could not be asked, or there is no memory: the line stays as it is. */
static bool line_make(weir_store *store, live_rate *rate, weir_buffer *out)
{
    store_lane_list lanes = { 0 };
    weir_error err;
    char text[128], failed[REPORT_WORD_BYTES];
    bool ok = store->work->lanes(store, &lanes, &err) == WEIR_OK;

    weir__report_count(rate->failed, failed);
    (void)snprintf(text, sizeof text, "%.*f handled/s, %s failed",
                   rate->per_second > 0 && rate->per_second < 10 ? 1 : 0, rate->per_second, failed);
    ok = ok && weir__buffer_add_text(out, text);
    for (size_t i = 0; ok && i < lanes.lanes_count; i++) {
        ok = lane_add(out, &lanes.lanes[i]);
    }
    weir__arena_free(&lanes.arena);
    return ok;
}

/* ---- its thread ----------------------------------------------------------------------------- */

static void *live_main(void *ctx)
{
    work_live *l = ctx;
    const weir_clock *clock = weir__clock_machine();
    live_rate rate = { 0 };
    int64_t next_us = 0;

    weir__lock(&l->mu);
    while (l->state == WORK_LIVE_SHOWN) {
        if (weir__clock_mono(clock) < next_us) {
            (void)weir__cond_wait_until(&l->ended, &l->mu, next_us);
            continue;
        }
        weir__unlock(&l->mu);
        weir_buffer line = { 0 };
        const int64_t begun_us = weir__clock_mono(clock);
        rate_update(&rate, atomic_load(&l->engine));
        const bool made = line_make(l->store, &rate, &line);
        const int64_t now_us = weir__clock_mono(clock);
        const int64_t rest_us = (now_us - begun_us) * LIVE_REST_FACTOR;
        next_us = now_us + (rest_us < LIVE_EVERY_US ? LIVE_EVERY_US : rest_us);
        weir__lock(&l->mu);
        if (made) {
            const weir_buffer before = l->line;
            l->line = line;
            line = before;
        }
        weir__buffer_free(&line);
        if (l->state == WORK_LIVE_SHOWN) {
            write_over_locked(l, (weir_str){ 0 });
        }
    }
    weir__unlock(&l->mu);
    return NULL;
}

static bool can_be_drawn(const work_log *log)
{
    const char *term = getenv("TERM");

    return !log->json && isatty(STDERR_FILENO) != 0 && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0;
}

void weir__work_live_begin(work_live *l, const work_log *log, weir_store *store)
{
    if (!can_be_drawn(log) || !weir__mutex_init(&l->mu)) {
        return;
    }
    if (!weir__cond_init(&l->ended)) {
        weir__mutex_destroy(&l->mu);
        return;
    }
    l->store = store;
    l->state = WORK_LIVE_SHOWN;
    /* Without the thread there is no line; the work does not depend on it. */
    if (pthread_create(&l->thread, NULL, live_main, l) != 0) {
        l->state = WORK_LIVE_OFF;
        weir__cond_destroy(&l->ended);
        weir__mutex_destroy(&l->mu);
    }
}

void weir__work_live_end(work_live *l)
{
    if (l->state != WORK_LIVE_SHOWN) {
        return;
    }
    weir__lock(&l->mu);
    l->state = WORK_LIVE_ENDED;
    write_over_locked(l, (weir_str){ 0 });
    weir__cond_signal(&l->ended);
    weir__unlock(&l->mu);
    (void)pthread_join(l->thread, NULL);
    weir__buffer_free(&l->line);
    l->line = (weir_buffer){ 0 };
    /* The lock stays: a handler that cannot be ended may still write to the log. */
}
