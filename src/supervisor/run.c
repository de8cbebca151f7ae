/* run.c - see run.h: the side of weir lock; the other one is supervisor.c. */
#define _GNU_SOURCE /* environ, pipe2 */

#include "supervisor/run.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NOT_EXECUTABLE = 126,
    NOT_FOUND = 127,
    BY_SIGNAL = 128,
    CHUNK_BYTES = 64 * 1024,
    WRITE_BYTES = 4096, /* PIPE_BUF: a pipe that poll calls writable takes them without waiting */
    LOOK_MS_MAX = 1000, /* poll does not count the time that the machine sleeps */
};

typedef struct run {
    const run_request *q;
    run_outcome *out;
    supervisor_program program;
    weir_arena memory;
    int leash_fd, signals_fd, output_fd; /* owned; -1: none */
    pid_t keeper, group;                 /* of the supervisor; 0 until it is known */
    bool foreground;
    bool ended;         /* the supervisor has said how */
    bool stdout_closed; /* nobody reads it any more */
    sigset_t before;    /* the mask that was */
} run;

/* ---- the program --------------------------------------------------------------------------- */

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

static char **array_of(run *r, size_t count)
{
    char **array = weir__arena_alloc(&r->memory, (count + 1) * sizeof *array);
    for (size_t i = 0; array != NULL && i <= count; i++) {
        array[i] = NULL;
    }
    return array;
}

static size_t count_of(char *const *array)
{
    size_t count = 0;
    while (array[count] != NULL) {
        count++;
    }
    return count;
}

/* DIRECTORY/NAME for each part of PATH; an empty part is the current directory. */
static bool paths_fill(run *r, const char *name)
{
    /* Nothing changes the environment. */
    const char *path = getenv("PATH"); /* NOLINT(concurrency-mt-unsafe) */
    path = path == NULL ? "/usr/local/bin:/bin:/usr/bin" : path;
    size_t parts = 1, count = 0;
    for (const char *at = path; *at != '\0'; at++) {
        parts += *at == ':' ? 1 : 0;
    }
    r->program.paths = array_of(r, parts);
    if (r->program.paths == NULL) {
        return false;
    }
    if (strchr(name, '/') != NULL) {
        r->program.paths[0] = weir__arena_copy(&r->memory, name, strlen(name));
        return r->program.paths[0] != NULL;
    }
    for (size_t i = 0; i < parts && name[0] != '\0'; i++) {
        const size_t len = strcspn(path, ":");
        char text[PATH_MAX];
        const int n = snprintf(text, sizeof text, "%.*s/%s", len == 0 ? 1 : (int)len,
                               len == 0 ? "." : path, name);
        path += len + 1;
        if (n < 0 || (size_t)n >= sizeof text) {
            continue;
        }
        r->program.paths[count] = weir__arena_copy(&r->memory, text, (size_t)n);
        if (r->program.paths[count++] == NULL) {
            return false;
        }
    }
    return true;
}

static bool environment_fill(run *r)
{
    static const char fence_name[] = "WEIR_FENCE=";
    const size_t count = count_of(environ);
    char **to = array_of(r, count + 1);
    char text[64];
    size_t n = 0;
    if (to == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], fence_name, sizeof fence_name - 1) != 0) {
            to[n++] = environ[i];
        }
    }
    if (r->q->fence != 0) {
        (void)snprintf(text, sizeof text, "%s%lld", fence_name, (long long)r->q->fence);
        to[n] = weir__arena_copy(&r->memory, text, strlen(text));
        if (to[n] == NULL) {
            return false;
        }
    }
    r->program.environment = to;
    return true;
}

static bool program_prepare(run *r)
{
    const size_t count = count_of(r->q->argv);
    static char shell[] = "sh";
    r->program.argv = array_of(r, count);
    r->program.script = array_of(r, count + 1);
    if (r->program.argv == NULL || r->program.script == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        r->program.argv[i] = r->q->argv[i];
        r->program.script[i + 1] = r->q->argv[i];
    }
    r->program.script[0] = shell; /* [1] becomes the file's path */
    return paths_fill(r, r->q->argv[0]) && environment_fill(r);
}

/* ---- starting ------------------------------------------------------------------------------ */

static void fd_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* Those that are passed on. SIGTTOU is blocked, so that the terminal can be given and taken. */
static bool signals_take(run *r)
{
    static const int passed[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };
    sigset_t signals;
    (void)sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++) {
        (void)sigaddset(&signals, passed[i]);
    }
    r->signals_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    (void)sigaddset(&signals, SIGTTOU);
    return r->signals_fd >= 0 && pthread_sigmask(SIG_BLOCK, &signals, &r->before) == 0;
}

/* Without a terminal the supervisor can have a session of its own. */
static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    const bool has = fd >= 0;
    fd_close(&fd);
    return has;
}

static void until_tell(const run *r, int64_t known_us)
{
    weir__leash_tell(r->leash_fd, LEASH_UNTIL, 0,
                     known_us == INT64_MAX ? INT64_MAX : known_us + r->q->check_us);
}

static weir_status supervisor_fork(run *r, int leash_fd, int output_fd, weir_error *err)
{
    r->foreground = isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
    const supervisor_start s = {
        .program = r->program,
        .leash_fd = leash_fd,
        .hold_fd = r->q->hold_fd,
        .hold_passed = r->q->hold_passed,
        .leased = r->q->leased,
        .terminal = has_terminal(),
        .foreground = r->foreground,
        .stdio = { -1, output_fd, -1 },
        .mask = r->before,
        .grace_us = r->q->grace_us,
    };
    const pid_t pid = fork();
    if (pid == 0) {
        weir__supervisor_main_kept(&s);
    }
    r->keeper = pid;
    return pid < 0 ? weir__fail(err, WEIR_EIO, "could not start a process: errno %d", errno)
                   : WEIR_OK;
}

static weir_status run_start(run *r, int64_t known_us, weir_error *err)
{
    int leash[2] = { -1, -1 }, output[2] = { -1, -1 };
    const bool capture = r->q->capture_bytes_max > 0;
    weir_status status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, leash) != 0 ||
        (capture &&
         (pipe2(output, O_CLOEXEC) != 0 || fcntl(output[0], F_SETFL, O_NONBLOCK) != 0)) ||
        !signals_take(r)) {
        status = weir__fail(err, WEIR_EIO, "could not prepare a process: errno %d", errno);
    } else {
        r->leash_fd = leash[0];
        until_tell(r, known_us); /* the supervisor will find it on the leash */
        status = supervisor_fork(r, leash[1], output[1], err);
    }
    r->leash_fd = leash[0];
    r->output_fd = output[0];
    fd_close(&leash[1]);
    fd_close(&output[1]);
    return status;
}

/* ---- while it runs ------------------------------------------------------------------------- */

static void held_look(run *r, bool prove)
{
    int64_t known_us = 0;
    if (r->out->lost) {
        return;
    }
    if (r->q->watch.look(r->q->watch.ctx, prove, &known_us, &r->out->why) == WEIR_OK) {
        until_tell(r, known_us);
    } else {
        r->out->lost = true;
        weir__leash_tell(r->leash_fd, LEASH_END, 0, 0);
    }
}

/* The program was stopped from the terminal. We stop too, so that the shell gets it back. */
static void stop_with_program(run *r)
{
    if (!r->foreground) {
        return;
    }
    (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    (void)kill(0, SIGTSTP); /* returns after SIGCONT */
    held_look(r, true);
    if (!r->out->lost) {
        if (tcgetpgrp(STDIN_FILENO) == getpgrp()) {
            (void)tcsetpgrp(STDIN_FILENO, r->group);
        }
        weir__leash_tell(r->leash_fd, LEASH_SIGNAL, SIGCONT, 0);
    }
}

static void message_take(run *r, const leash_message *m)
{
    switch ((leash_word)m->word) {
    case LEASH_STARTED:
        r->group = m->number;
        break;
    case LEASH_STOPPED:
        stop_with_program(r);
        break;
    case LEASH_EXPIRED:
        if (!r->out->lost) {
            (void)weir__fail(&r->out->why, WEIR_ELOST,
                             "it was not known for too long whether the lock is held");
        }
        r->out->lost = true;
        break;
    case LEASH_LEFT:
        r->out->left_behind = true;
        break;
    case LEASH_ENDED:
        r->ended = true;
        r->out->exit_status =
            WIFEXITED(m->number) ? WEXITSTATUS(m->number) : BY_SIGNAL + WTERMSIG(m->number);
        break;
    case LEASH_FAILED:
        r->ended = true;
        r->out->start_errno = m->number;
        r->out->exit_status = m->number == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
        break;
    case LEASH_UNTIL:
    case LEASH_SIGNAL:
    case LEASH_END:
        break;
    }
}

/* false: the supervisor is gone. */
static bool messages_take(run *r)
{
    leash_message m;
    for (;;) {
        const ssize_t len = recv(r->leash_fd, &m, sizeof m, MSG_DONTWAIT);
        if (len == (ssize_t)sizeof m) {
            message_take(r, &m);
        } else if (len >= 0 || errno != ECONNRESET) {
            return len < 0 && (errno == EAGAIN || errno == EINTR);
        } /* it ended before it read our last message; what it sent itself comes after this */
    }
}

static void signals_pass_on(run *r)
{
    struct signalfd_siginfo got;
    while (read(r->signals_fd, &got, sizeof got) == (ssize_t)sizeof got) {
        weir__leash_tell(r->leash_fd, LEASH_SIGNAL, (int)got.ssi_signo, 0);
    }
}

/* ---- what it writes ------------------------------------------------------------------------ */

/* Keeps the first capture_bytes_max bytes, and all of it until it is passed on. */
static void output_take(run *r, const char *at, size_t len)
{
    run_outcome *o = r->out;
    const size_t room = r->q->capture_bytes_max - o->output.len;
    const size_t kept = len < room ? len : room;
    if (!weir__buffer_add(&o->output, at, kept) || kept < len) {
        o->cut = true;
    }
    if (!r->stdout_closed && !weir__buffer_add(&o->pending, at, len)) {
        r->stdout_closed = true;
    }
}

static void output_read(run *r, size_t most)
{
    static char chunk[CHUNK_BYTES]; /* one thread */
    const ssize_t len = read(r->output_fd, chunk, most < sizeof chunk ? most : sizeof chunk);
    if (len > 0) {
        output_take(r, chunk, (size_t)len);
    } else if (len == 0 || (errno != EAGAIN && errno != EINTR)) {
        fd_close(&r->output_fd);
    }
}

/* Nobody reads our stdout. Keeps what the pipe holds and closes it: the program gets SIGPIPE. */
static void output_abandon(run *r)
{
    output_read(r, CHUNK_BYTES);
    if (r->output_fd >= 0) {
        fd_close(&r->output_fd);
        r->out->cut = true;
    }
}

/* No process of the program is left. Reads what is there, even if others still have it open. */
static void output_drain(run *r)
{
    int held = 0;
    while (r->output_fd >= 0 && ioctl(r->output_fd, FIONREAD, &held) == 0 && held > 0) {
        output_read(r, (size_t)held);
    }
}

/* One write. false: there is nobody to pass it on to, errno says why. */
static bool output_pass_on(run_outcome *o, size_t most)
{
    const size_t len = o->pending.len < most ? o->pending.len : most;
    const ssize_t n = write(STDOUT_FILENO, o->pending.ptr, len);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    memmove(o->pending.ptr, o->pending.ptr + n, o->pending.len - (size_t)n);
    o->pending.len -= (size_t)n;
    return true;
}

void weir__run_flush(run_outcome *out)
{
    while (out->pending.len > 0) {
        struct pollfd fd = { .fd = STDOUT_FILENO, .events = POLLOUT };
        if ((poll(&fd, 1, -1) < 0 && errno != EINTR) || !output_pass_on(out, SSIZE_MAX)) {
            weir__buffer_clear(&out->pending);
        }
    }
}

/* ---- the loop ------------------------------------------------------------------------------ */

static int wait_ms(const run *r)
{
    const int64_t due_us = r->out->lost ? INT64_MAX : r->q->watch.due_us(r->q->watch.ctx);
    const int64_t left_us = due_us - weir__clock_boot();
    const int64_t ms = left_us <= 0 ? 0 : left_us / 1000 + 1;
    return ms > LOOK_MS_MAX ? LOOK_MS_MAX : (int)ms;
}

/* false: the supervisor is gone. */
static bool run_turn(run *r)
{
    run_outcome *o = r->out;
    const bool passing = o->pending.len > 0 && !r->stdout_closed;
    struct pollfd fds[] = {
        { .fd = r->leash_fd, .events = POLLIN },
        { .fd = r->signals_fd, .events = POLLIN },
        { .fd = o->lost ? -1 : r->q->watch.poll_fd(r->q->watch.ctx), .events = POLLIN },
        { .fd = passing ? -1 : r->output_fd, .events = POLLIN },
        { .fd = passing ? STDOUT_FILENO : -1, .events = POLLOUT },
    };
    if (poll(fds, sizeof fds / sizeof fds[0], wait_ms(r)) < 0) {
        return true; /* interrupted, or out of memory: again */
    }
    if (fds[1].revents != 0) {
        signals_pass_on(r);
    }
    if (fds[3].revents != 0) {
        output_read(r, CHUNK_BYTES);
    }
    if (fds[4].revents != 0 && !output_pass_on(o, WRITE_BYTES)) {
        r->stdout_closed = true;
        if (errno == EPIPE) {
            output_abandon(r);
        }
    }
    if (r->stdout_closed) {
        weir__buffer_clear(&o->pending);
    }
    if (fds[2].revents != 0 || wait_ms(r) == 0) {
        held_look(r, false);
    }
    return fds[0].revents == 0 || messages_take(r);
}

/* The leash has ended without a word. keeper: its wait status. The keeper ends what a supervisor
 * leaves, unless it was killed too. */
static weir_status fail_killed(run *r, int keeper, weir_error *err)
{
    if (!WIFSIGNALED(keeper)) {
        return weir__fail(err, WEIR_EIO,
                          "the process that supervises the program was killed: the program was "
                          "ended");
    }
    r->out->orphaned = true;
    const weir_status status =
        weir__fail(err, WEIR_EIO,
                   "the processes that supervise the program were killed: what it has started may "
                   "still be running");
    weir__error_detail(err, r->q->hold_passed
                                ? "Nobody else is let in before that has ended."
                                : "Look for it and end it: others may be let in beside it.");
    return status;
}

weir_status weir__run(const run_request *q, run_outcome *out, weir_error *err)
{
    run r = { .q = q, .out = out, .leash_fd = -1, .signals_fd = -1, .output_fd = -1 };
    int64_t known_us = 0;
    weir_status status = program_prepare(&r) ? WEIR_OK : no_memory(err);
    if (status == WEIR_OK) {
        status = q->watch.look(q->watch.ctx, false, &known_us, err);
    }
    if (status == WEIR_OK) {
        status = run_start(&r, known_us, err);
    }
    if (status == WEIR_OK) {
        int keeper = 0;
        bool there = true;
        while (there && !r.ended) {
            there = run_turn(&r);
        }
        while (waitpid(r.keeper, &keeper, 0) < 0 && errno == EINTR) {
        }
        status = r.ended ? WEIR_OK : fail_killed(&r, keeper, err);
        output_drain(&r);
    }
    if (r.foreground) {
        (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    if (r.stdout_closed) {
        weir__buffer_clear(&out->pending);
    }
    fd_close(&r.leash_fd);
    fd_close(&r.signals_fd);
    fd_close(&r.output_fd);
    weir__arena_free(&r.memory);
    return status;
}

void weir__run_outcome_free(run_outcome *out)
{
    weir__buffer_free(&out->output);
    weir__buffer_free(&out->pending);
    *out = (run_outcome){ 0 };
}
