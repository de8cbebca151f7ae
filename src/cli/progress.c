/* progress.c - one line on the terminal while something takes longer than a second. */
#include "base/clock.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PROGRESS_FIRST_US = 1000000,
    PROGRESS_EVERY_US = 200000,
};

void weir__cli_progress_start(cli_progress *p, const cli *c, int input_fd)
{
    struct stat st;

    *p = (cli_progress){ .wanted = !c->json && isatty(STDERR_FILENO) != 0 };
    p->start_us = weir__clock_mono(weir__clock_machine());
    p->next_us = p->start_us + PROGRESS_FIRST_US;
    if (fstat(input_fd, &st) == 0 && S_ISREG(st.st_mode)) {
        p->bytes_total = st.st_size;
    }
}

void weir__cli_progress(cli_progress *p, int64_t count, int64_t bytes_done)
{
    char line[160];
    char left[48] = "";

    if (!p->wanted) {
        return;
    }
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    if (now_us < p->next_us) {
        return;
    }
    p->next_us = now_us + PROGRESS_EVERY_US;
    const double seconds = (double)(now_us - p->start_us) / 1e6;
    if (bytes_done > 0 && p->bytes_total >= bytes_done) {
        const double rest = (double)(p->bytes_total - bytes_done) / (double)bytes_done;
        (void)snprintf(left, sizeof left, ", %.0f s left", seconds * rest);
    }
    const int n = snprintf(line, sizeof line, "\r\033[K%" PRId64 " lines, %.0f/s%s", count,
                           (double)count / seconds, left);
    if (n > 0 && (size_t)n < sizeof line) {
        weir__cli_stderr((weir_str){ .ptr = line, .len = (size_t)n });
        p->shown = true;
    }
}

void weir__cli_progress_end(cli_progress *p)
{
    if (p->shown) {
        weir__cli_stderr(weir__str("\r\033[K"));
        p->shown = false;
    }
}

static void *progress_tick(void *ctx)
{
    cli_ticker *t = ctx;
    int64_t next_us = t->start_us + PROGRESS_FIRST_US;
    bool shown = false;

    weir__lock(&t->mu);
    while (!t->stop) {
        if (weir__cond_wait_until(&t->ended, &t->mu, next_us)) {
            continue;
        }
        char line[160];
        const int64_t now_us = weir__clock_mono(weir__clock_machine());
        const int n = snprintf(line, sizeof line, "\r\033[K%s, %" PRId64 " s", t->what,
                               (now_us - t->start_us) / 1000000);
        if (n > 0 && (size_t)n < sizeof line) {
            weir__cli_stderr((weir_str){ .ptr = line, .len = (size_t)n });
            shown = true;
        }
        next_us = now_us + PROGRESS_EVERY_US;
    }
    weir__unlock(&t->mu);
    if (shown) {
        weir__cli_stderr(weir__str("\r\033[K"));
    }
    return NULL;
}

void weir__cli_ticker_start(cli_ticker *t, const cli *c, const char *what)
{
    *t = (cli_ticker){ .what = what, .start_us = weir__clock_mono(weir__clock_machine()) };
    if (c->json || isatty(STDERR_FILENO) == 0 || !weir__mutex_init(&t->mu)) {
        return;
    }
    if (!weir__cond_init(&t->ended)) {
        weir__mutex_destroy(&t->mu);
        return;
    }
    /* Without the thread nothing is shown; the check itself does not depend on it. */
    t->running = pthread_create(&t->thread, NULL, progress_tick, t) == 0;
    if (!t->running) {
        weir__cond_destroy(&t->ended);
        weir__mutex_destroy(&t->mu);
    }
}

void weir__cli_ticker_stop(cli_ticker *t)
{
    if (!t->running) {
        return;
    }
    weir__lock(&t->mu);
    t->stop = true;
    weir__cond_signal(&t->ended);
    weir__unlock(&t->mu);
    (void)pthread_join(t->thread, NULL);
    weir__cond_destroy(&t->ended);
    weir__mutex_destroy(&t->mu);
    t->running = false;
}
