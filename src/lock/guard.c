/* guard.c - see guard.h.
 *
 * INVARIANTS
 *   (1) Nothing here but async-signal-safe calls: this process is a fork of one that may have
 *       threads.
 *   (2) The group is signalled only while a process of it has not been waited for, by us, who alone
 *       can: orphans of the program become our children.
 *   (3) The process ends, and lets go of the lock, when no process of the group is left.
 *
 *   RUNNING --program ends--> LINGERING --group empty--> gone
 *      |                          |
 *      |                          +-- GUARD_LINGER_US --+
 *      +-- told to, expired, weir lock is dead ---------+--> ENDING: SIGTERM, grace_us, SIGKILL
 */
#define _GNU_SOURCE /* POLLRDHUP */

#include "lock/guard.h"
#include "lock/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GUARD_LINGER_US = 250 * 1000, /* for what outlives its program: the tee of a >(tee log) */
    LOOK_MS_MAX = 1000,           /* poll does not count the time that the machine sleeps   */
    EXIT_NOT_RUN = 127,
    FD_NUMBER_MAX = 65536, /* looked at where the kernel has no close_range */
};

typedef struct watched {
    const guard_start *start;
    pid_t pid;
    int signals_fd;
    int socket_fd;   /* -1: weir lock is dead */
    int wait_status; /* once ended */
    bool ended;      /* the program itself has been waited for */
    bool stopped;
    bool told_left;
    int64_t linger_until_us; /* once ended */
    int64_t until_us;
    int64_t kill_us; /* once it is ending: when SIGKILL is due; 0: it is not */
    bool killed;
} watched;

/* ---- the program's beginning --------------------------------------------------------------- */

static void signal_default(int number)
{
    struct sigaction action = { .sa_handler = SIG_DFL };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

/* What the shell would say: the last reason that is not "not there". */
static int execute(const guard_program *p)
{
    int why = ENOENT;
    for (char **path = p->paths; *path != NULL; path++) {
        (void)execve(*path, p->argv, p->environment);
        if (errno == ENOEXEC) {
            p->script[1] = *path;
            (void)execve("/bin/sh", p->script, p->environment);
            return errno;
        }
        if (errno != ENOENT && errno != ENOTDIR) {
            why = errno;
        }
    }
    return why;
}

static _Noreturn void program_main(const guard_start *s, pid_t guard, int why_fd)
{
    int why = 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != guard || setpgid(0, 0) != 0 ||
        (s->stdout_fd >= 0 && dup2(s->stdout_fd, STDOUT_FILENO) < 0)) {
        why = errno == 0 ? ECHILD : errno;
    }
    if (s->foreground) {
        (void)tcsetpgrp(STDIN_FILENO, getpid()); /* SIGTTOU is blocked */
    }
    signal_default(SIGPIPE); /* which weir ignores */
    signal_default(SIGXFSZ);
    (void)pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    if (why == 0) {
        why = execute(&s->program);
    }
    (void)!write(why_fd, &why, sizeof why);
    _exit(EXIT_NOT_RUN);
}

/* 0, or why it does not run. */
static int program_start(watched *w)
{
    const pid_t guard = getpid();
    int why_pipe[2], why = 0;
    if (pipe2(why_pipe, O_CLOEXEC) != 0) {
        return errno;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        program_main(w->start, guard, why_pipe[1]);
    }
    const int fork_errno = errno;
    (void)close(why_pipe[1]);
    if (pid < 0) {
        (void)close(why_pipe[0]);
        return fork_errno;
    }
    (void)setpgid(pid, pid); /* both do it: whoever is first, the group is there */
    while (read(why_pipe[0], &why, sizeof why) < 0 && errno == EINTR) {
    }
    (void)close(why_pipe[0]);
    if (why != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        return why;
    }
    w->pid = pid;
    return 0;
}

/* ---- the group ----------------------------------------------------------------------------- */

static void tell(watched *w, guard_word word, int number)
{
    const guard_message m = { .word = (int32_t)word, .number = number };
    if (w->socket_fd >= 0) {
        (void)send(w->socket_fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Whether a process of the group is left; waits for those that have ended. */
static bool group_exists(watched *w)
{
    for (;;) {
        siginfo_t info = { .si_pid = 0 };
        const int options = WEXITED | WNOHANG | (w->ended ? 0 : WSTOPPED | WCONTINUED);
        if (waitid(P_PGID, (id_t)w->pid, &info, options) != 0) {
            return false;
        }
        if (info.si_pid == 0) {
            return true;
        }
        if (info.si_pid != w->pid) {
            continue;
        }
        if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
            w->stopped = info.si_code == CLD_STOPPED;
            if (w->stopped) {
                tell(w, GUARD_STOPPED, 0);
            }
        } else {
            w->ended = true;
            w->stopped = false;
            /* As waitpid would have it. */
            w->wait_status =
                info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
            w->linger_until_us = weir__lock_now_us() + GUARD_LINGER_US;
        }
    }
}

/* Only where group_exists has just said so: see (2). */
static void group_signal(const watched *w, int number)
{
    (void)kill(-w->pid, number);
}

static void group_end(watched *w, int64_t now_us)
{
    if (w->kill_us == 0) {
        w->kill_us = now_us + w->start->grace_us;
        group_signal(w, SIGTERM);
        group_signal(w, SIGCONT); /* one that is stopped has to hear it */
    }
    if (now_us >= w->kill_us && !w->killed) {
        w->killed = true;
        group_signal(w, SIGKILL);
    }
}

/* Others, not of the group, that have become our children. */
static void strangers_reap(const watched *w)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 ||
            getpgid(info.si_pid) == w->pid) {
            return;
        }
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
    }
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void message_take(watched *w, const guard_message *m, int64_t now_us)
{
    switch ((guard_word)m->word) {
    case GUARD_UNTIL:
        w->until_us = m->time_us;
        break;
    case GUARD_SIGNAL:
        group_signal(w, m->number);
        break;
    case GUARD_END:
        group_end(w, now_us);
        break;
    case GUARD_STARTED:
    case GUARD_STOPPED:
    case GUARD_EXPIRED:
    case GUARD_LEFT:
    case GUARD_ENDED:
    case GUARD_FAILED:
        break;
    }
}

static void messages_take(watched *w, int64_t now_us)
{
    guard_message m;
    while (w->socket_fd >= 0) {
        const ssize_t len = recv(w->socket_fd, &m, sizeof m, MSG_DONTWAIT);
        if (len == (ssize_t)sizeof m) {
            message_take(w, &m, now_us);
        } else if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else {
            (void)close(w->socket_fd); /* weir lock is dead */
            w->socket_fd = -1;
        }
    }
}

static int64_t next_us(const watched *w)
{
    int64_t next = w->stopped ? INT64_MAX : w->until_us;
    if (w->ended && w->linger_until_us < next) {
        next = w->linger_until_us;
    }
    if (w->kill_us != 0) {
        next = w->killed ? INT64_MAX : w->kill_us;
    }
    return next;
}

static void await(const watched *w)
{
    struct pollfd fds[] = { { .fd = w->socket_fd, .events = POLLIN },
                            { .fd = w->signals_fd, .events = POLLIN } };
    struct signalfd_siginfo signals[4];
    const int64_t left_us = next_us(w) - weir__lock_now_us();
    const int64_t ms = left_us <= 0 ? 0 : left_us / 1000 + 1;
    if (poll(fds, 2, ms > LOOK_MS_MAX ? LOOK_MS_MAX : (int)ms) > 0 && fds[1].revents != 0) {
        while (read(w->signals_fd, signals, sizeof signals) > 0) {
        }
    }
}

static void look(watched *w)
{
    const int64_t now_us = weir__lock_now_us();
    messages_take(w, now_us);
    if (w->kill_us == 0 && !w->stopped && now_us >= w->until_us) {
        tell(w, GUARD_EXPIRED, 0);
        group_end(w, now_us);
    } else if (w->ended && now_us >= w->linger_until_us) {
        if (!w->told_left) {
            w->told_left = true;
            tell(w, GUARD_LEFT, 0);
        }
        group_end(w, now_us);
    } else if (w->kill_us != 0 || w->socket_fd < 0) {
        group_end(w, now_us);
    }
}

/* ---- its life ------------------------------------------------------------------------------ */

static void close_between(unsigned first, unsigned last)
{
    if (first > last) {
        return;
    }
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0) {
        return;
    }
#endif
    for (unsigned fd = first; fd <= last && fd < FD_NUMBER_MAX; fd++) {
        (void)close((int)fd);
    }
}

/* Keeps what it needs and nothing else: the program has its standard files already, and who reads
 * them waits for it and not for us. */
static void files_close(watched *w)
{
    unsigned kept[3] = { (unsigned)w->socket_fd, (unsigned)w->signals_fd, 0 };
    size_t count = 2;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++) {
        (void)dup2(null, fd);
    }
    if (w->start->hold_fd >= 0) {
        kept[count++] = (unsigned)w->start->hold_fd;
    }
    for (size_t i = 0; i < count; i++) { /* three numbers, in order */
        for (size_t k = i + 1; k < count; k++) {
            if (kept[k] < kept[i]) {
                const unsigned swap = kept[i];
                kept[i] = kept[k];
                kept[k] = swap;
            }
        }
    }
    unsigned from = STDERR_FILENO + 1;
    for (size_t i = 0; i < count; i++) {
        close_between(from, kept[i] - 1);
        from = kept[i] + 1;
    }
    close_between(from, ~0U);
}

static bool settle_in(watched *w)
{
    static const int ignored[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                   SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t signals;
    (void)sigemptyset(&ignore.sa_mask);
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        (void)sigaction(ignored[i], &ignore, NULL); /* it ends when the program has */
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    w->signals_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return w->signals_fd >= 0 && pthread_sigmask(SIG_SETMASK, &signals, NULL) == 0;
}

_Noreturn void weir__guard_main(const guard_start *start)
{
    watched w = { .start = start, .socket_fd = start->socket_fd, .until_us = start->until_us };
    /* The program is started with the signals that weir lock was started with: before this process
     * ignores its own. */
    signal_default(SIGCHLD);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        _exit(EXIT_NOT_RUN);
    }
    const int why = program_start(&w);
    if (why != 0) {
        tell(&w, GUARD_FAILED, why);
        _exit(EXIT_NOT_RUN);
    }
    if (!settle_in(&w)) {
        group_signal(&w, SIGKILL);
        _exit(EXIT_NOT_RUN);
    }
    files_close(&w);
    tell(&w, GUARD_STARTED, (int)w.pid);
    while (group_exists(&w)) {
        look(&w);
        strangers_reap(&w);
        await(&w);
    }
    tell(&w, GUARD_ENDED, w.wait_status);
    _exit(0);
}
