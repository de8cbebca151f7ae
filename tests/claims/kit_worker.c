/* kit_worker.c - the claimers of kit.h that are processes. */
#include "kit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends with the test's program, however that ends. */
static void become(const kit *k, int skew_seconds, int in, int out)
{
    const char *program = getenv("CLAIM_WORKER");
    const char *skew = getenv("CLOCK_SKEW");
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%d", skew_seconds);
    char *const arguments[] = { strdup("claim_worker"), strdup(k->url),
                                strdup(k->path == CLAIM_PATH_PORTABLE ? "portable" : "fast"),
                                NULL };
    if (program == NULL || skew == NULL || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        (skew_seconds != 0 &&
         (setenv("LD_PRELOAD", skew, 1) != 0 || setenv("CLOCK_SKEW_SECONDS", seconds, 1) != 0))) {
        _exit(120);
    }
    (void)execv(program, arguments);
    _exit(121);
}

kit_worker *kit_worker_start(kit *k, int skew_seconds)
{
    int in[2];
    int out[2];
    kit_worker *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_true(k->workers_count < KIT_WORKERS_MAX);
    k->workers[k->workers_count++] = w;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    fflush(stdout);
    w->pid = fork();
    assert_true(w->pid >= 0);
    if (w->pid == 0) {
        become(k, skew_seconds, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    w->in = in[1];
    w->out = out[0];
    const char *line = kit_worker_read(w);
    if (line == NULL || strcmp(line, "ready") != 0) {
        fail_msg("the worker did not start: %s", line == NULL ? "it ended" : line);
    }
    return w;
}

void kit_worker_send(kit_worker *w, const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    assert_true(len > 0 && (size_t)len < sizeof line - 1);
    line[len] = '\n';
    assert_int_equal(write(w->in, line, (size_t)len + 1), len + 1);
}

/* Whether a whole line was there. */
static bool take_line(kit_worker *w)
{
    char *end = memchr(w->rest, '\n', w->rest_len);
    if (end == NULL) {
        return false;
    }
    const size_t len = (size_t)(end - w->rest);
    memcpy(w->line, w->rest, len);
    w->line[len] = '\0';
    w->rest_len -= len + 1;
    memmove(w->rest, end + 1, w->rest_len);
    return true;
}

const char *kit_worker_read(kit_worker *w)
{
    const int64_t deadline = kit_mono_us() + KIT_PATIENCE;
    while (!take_line(w)) {
        assert_true(w->rest_len < sizeof w->rest);
        struct pollfd ready = { .fd = w->out, .events = POLLIN };
        const int64_t left = deadline - kit_mono_us();
        if (left <= 0 || poll(&ready, 1, (int)(left / KIT_MS) + 1) == 0) {
            fail_msg("a worker did not answer");
        }
        const ssize_t got = read(w->out, w->rest + w->rest_len, sizeof w->rest - w->rest_len);
        if (got == 0) {
            return NULL;
        }
        assert_true(got > 0 || errno == EINTR);
        w->rest_len += got > 0 ? (size_t)got : 0;
    }
    return w->line;
}

const char *kit_worker_ask(kit_worker *w, const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    kit_worker_send(w, "%s", line);
    const char *answer = kit_worker_read(w);
    if (answer == NULL) {
        fail_msg("a worker ended instead of answering \"%s\"", line);
    }
    return answer;
}

int kit_worker_end(kit_worker *w)
{
    int status = 0;
    close(w->in);
    while (waitpid(w->pid, &status, 0) < 0) {
        assert_int_equal(errno, EINTR);
    }
    close(w->out);
    w->pid = 0;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void kit_worker_kill(kit_worker *w)
{
    if (w->pid != 0) {
        (void)kill(w->pid, SIGKILL);
        (void)kit_worker_end(w);
    }
}
