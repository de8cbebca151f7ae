/* keeper_process.c - the keeper itself: it forks a supervisor for each program, and ends what a
 * killed supervisor leaves behind.
 *
 * INVARIANTS
 *   (1) Nothing here but async-signal-safe calls: this process is a fork of one with threads, whose
 *       locks may be held for ever.
 *   (2) We are a subreaper. So a child that is not a supervisor was below a supervisor that has
 *       been killed. We kill it, and keep the leash of that supervisor open until no such child is
 *       left.
 *
 *   free --request--> RUNNING --supervisor ends--> free
 *                        |
 *                        +--supervisor is killed--> ORPHANED --nobody is left--> free
 *
 * THREADS  One, for life.
 */
#define _GNU_SOURCE /* environ */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "supervisor/keeper.h"
#include "supervisor/supervisor.h"
#include "supervisor/tree.h"

extern char **environ;

enum {
    REQUESTS_FD = 3,
    SIGNALS_FD = 4,
    FDS_OWN = 5,        /* descriptors below this are ours for life */
    ORPHANS_MS = 5,     /* from one SIGKILL to the next             */
    EXIT_NOT_RUN = 127, /* as a shell says it                       */
};

typedef enum kept_state { KEPT_FREE = 0, KEPT_RUNNING, KEPT_ORPHANED } kept_state;

typedef struct kept {
    kept_state state;
    pid_t pid;    /* of the supervisor                                        */
    int leash_fd; /* the supervisor's end: open here until nobody is left     */
    int hold_fd;  /* the same; -1: none                                       */
} kept;

static kept table[CHILD_COUNT_MAX]; /* the first `table_count` may be in use */
static size_t table_count;
static size_t orphaned_count;
static char command[CHILD_COMMAND_BYTES_MAX + 1];

/* ---- a supervisor's beginning --------------------------------------------------------------- */

static _Noreturn void supervisor_run(const int *fds, size_t fds_count)
{
    char shell[] = "/bin/sh", option[] = "-c";
    char *paths[] = { shell, NULL }, *arguments[] = { shell + 5, option, command, NULL };
    supervisor_start start = {
        .program = { .paths = paths, .argv = arguments, .environment = environ },
        .leash_fd = fds[3],
        .hold_fd = fds_count > KEEPER_FDS ? fds[KEEPER_FDS] : -1,
        .leased = true,
        .clean = true,
        .stdio = { fds[0], fds[1], fds[2] },
    };

    (void)sigemptyset(&start.mask);
    weir__supervisor_main(&start);
}

/* Takes the leash. */
static void request_serve(const int *fds, size_t fds_count)
{
    size_t i = 0;
    pid_t pid = -1;
    int fork_errno = EBUSY;

    while (i < table_count && table[i].state != KEPT_FREE) {
        i++;
    }
    if (i < CHILD_COUNT_MAX) {
        pid = fork();
        fork_errno = errno;
    }
    if (pid == 0) {
        supervisor_run(fds, fds_count);
    }
    if (pid > 0) {
        table[i] = (kept){ .state = KEPT_RUNNING,
                           .pid = pid,
                           .leash_fd = fds[3],
                           .hold_fd = fds_count > KEEPER_FDS ? fds[KEEPER_FDS] : -1 };
        table_count += i == table_count ? 1 : 0;
    } else {
        weir__leash_tell(fds[3], LEASH_FAILED, fork_errno, 0);
    }
    for (size_t k = 0; k < (pid > 0 ? 3 : fds_count); k++) {
        (void)close(fds[k]);
    }
}

/* Takes one request. false: none is waiting, or (*closed) no more will come. */
static bool request_take(bool *closed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(KEEPER_FDS_MAX * sizeof(int))];
    } control;
    struct iovec text = { .iov_base = command, .iov_len = sizeof command - 1 };
    struct msghdr message = { .msg_iov = &text,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    const ssize_t len = recvmsg(REQUESTS_FD, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int fds[KEEPER_FDS_MAX];

    if (len <= 0) {
        *closed = len == 0 || (errno != EAGAIN && errno != EINTR);
        return false;
    }
    command[len] = '\0';
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    const size_t given = header == NULL ? 0 : (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (given > 0) {
        memcpy(fds, CMSG_DATA(header), given * sizeof(int));
    }
    if (given >= KEEPER_FDS && (message.msg_flags & MSG_CTRUNC) == 0) {
        request_serve(fds, given);
    } else { /* out of descriptors: the leash ends without a word */
        for (size_t i = 0; i < given; i++) {
            (void)close(fds[i]);
        }
    }
    return true;
}

/* ---- a supervisor's end --------------------------------------------------------------------- */

static void kept_free(kept *c)
{
    (void)close(c->leash_fd);
    if (c->hold_fd >= 0) {
        (void)close(c->hold_fd);
    }
    *c = (kept){ .state = KEPT_FREE };
}

static void children_reap(void)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        for (size_t i = 0; i < table_count; i++) {
            if (table[i].state != KEPT_RUNNING || table[i].pid != pid) {
                continue;
            }
            if (WIFSIGNALED(wait_status)) {
                table[i].state = KEPT_ORPHANED;
                orphaned_count++;
            } else {
                kept_free(&table[i]);
            }
        }
    }
}

static bool is_supervisor(pid_t pid)
{
    for (size_t i = 0; i < table_count; i++) {
        if (table[i].state == KEPT_RUNNING && table[i].pid == pid) {
            return true;
        }
    }
    return false;
}

/* We cannot tell which supervisor an orphan belonged to, so we wait for all of them. Processes of a
 * supervisor that still runs are not among them. A process that is being forked may be missed by
 * one look, but not by two. */
static void orphans_end(void)
{
    if (orphaned_count == 0 || weir__tree_signal(SIGKILL, 0, is_supervisor) > 0 ||
        weir__tree_signal(SIGKILL, 0, is_supervisor) > 0) {
        return;
    }
    for (size_t i = 0; i < table_count; i++) {
        if (table[i].state == KEPT_ORPHANED) {
            kept_free(&table[i]);
        }
    }
    orphaned_count = 0;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Keeps nothing of the process that forked us: not its descriptors (a leash among them would never
 * be let go), not its signal handlers, not its terminal. */
static bool keeper_settle_in(int requests_fd)
{
    static const int ignored[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE };
    static const int own[] = { REQUESTS_FD };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t signals;

    (void)setsid(); /* keys typed at the worker's terminal must not reach its programs */
    (void)prctl(PR_SET_NAME, "weir-keeper");
    const int kept_fd = fcntl(requests_fd, F_DUPFD, FDS_OWN);
    if (kept_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || dup2(kept_fd, REQUESTS_FD) < 0 ||
        fcntl(REQUESTS_FD, F_SETFD, FD_CLOEXEC) != 0) {
        return false;
    }
    weir__supervisor_close_others(own, 1);
    weir__supervisor_signals_default();
    (void)sigemptyset(&ignore.sa_mask);
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        (void)sigaction(ignored[i], &ignore, NULL); /* it ends when the worker does, not before */
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    return pthread_sigmask(SIG_SETMASK, &signals, NULL) == 0 &&
           signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK) == SIGNALS_FD;
}

static int await_ms(bool closed, int64_t close_by_us, int64_t now_us)
{
    const int64_t left_us = close_by_us - now_us;

    if (orphaned_count > 0) {
        return ORPHANS_MS;
    }
    return !closed ? -1 : left_us <= 0 ? 0 : (int)(left_us / 1000 + 1);
}

_Noreturn void weir__keeper_main(int requests_fd)
{
    const weir_clock *clock = weir__clock_machine();
    struct signalfd_siginfo signals[8];
    int64_t close_by_us = 0;
    bool closed = false;

    if (!keeper_settle_in(requests_fd)) {
        _exit(EXIT_NOT_RUN);
    }
    for (;;) {
        const int64_t now_us = weir__clock_mono(clock);
        struct pollfd fds[] = { { .fd = closed ? -1 : REQUESTS_FD, .events = POLLIN },
                                { .fd = SIGNALS_FD, .events = POLLIN } };
        if (closed && (table_count == 0 || now_us >= close_by_us)) {
            _exit(0); /* what is left is ended by its supervisor: its leash was let go */
        }
        if (poll(fds, 2, await_ms(closed, close_by_us, now_us)) < 0) {
            continue; /* out of memory: try again */
        }
        while (read(SIGNALS_FD, signals, sizeof signals) > 0) {
        }
        children_reap();
        orphans_end();
        while (table_count > 0 && table[table_count - 1].state == KEPT_FREE) {
            table_count--;
        }
        while (!closed && request_take(&closed)) {
        }
        if (closed && close_by_us == 0) {
            close_by_us = weir__clock_mono(clock) + CHILD_KILL_US;
        }
    }
}
