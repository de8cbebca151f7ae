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
