/* supervisor.c - see supervisor.h.
 *
 * INVARIANTS
 *   (1) Nothing here but async-signal-safe calls: this process is a fork of one that may have
 *       threads.
 *   (2) The program's group is signalled only while a process of it has not been waited for, by us,
 *       who alone can: its number belongs to nobody else. All others are signalled by tree.h.
 *   (3) The process ends, and lets go of what is held, when it has no child: nobody is left then.
 *
 *   RUNNING --program ends--> LINGERING --no child--> gone
 *      |                          |
 *      |                          +-- SUPERVISOR_LINGER_US -----+
 *      +-- told to, deadline has passed, leash was let go ------+--> ENDING --no child--> gone
 *
 * THREADS  One, for life: the program gets its parent-death signal when the thread that forked it
 * ends.
 */
#define _GNU_SOURCE /* clone */

#include "supervisor/supervisor.h"
#include "base/clock.h"
#include "supervisor/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define WEIR_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEIR_THREAD_SANITIZER
#endif
#endif

enum {
    LOOK_MS_MAX = 1000, /* poll does not count the time that the machine sleeps */
    KILL_MS_FIRST = 5,  /* before SIGKILL is repeated, for processes that were being forked */
    EXIT_NOT_RUN = 127,
    PROGRAM_STACK_BYTES = 64 * 1024, /* until it is executed */
    FD_NUMBER_MAX = 65536,           /* looked at where the kernel has no close_range */
};

typedef struct supervised {
    const supervisor_start *start;
    pid_t pid;      /* the program, and its group; 0 before it is started */
    sigset_t early; /* signals for it that came before it was started */
    int signals_fd;
    bool let_go;     /* the other end of the leash */
    int wait_status; /* once ended */
    bool ended;      /* the program itself has been waited for */
    bool stopped;
    bool told_left;
    int64_t linger_until_us; /* once ended */
    int64_t until_us;
    int64_t kill_us;  /* once it is ending: when SIGKILL is due; 0: it is not */
    int kill_wait_ms; /* once SIGKILL was sent: until it is sent again */
} supervised;

static pid_t supervisor_pid;
static volatile int program_why; /* errno of a failed start; volatile: the child writes it */
#ifndef WEIR_THREAD_SANITIZER
static _Alignas(16) char program_stack[PROGRAM_STACK_BYTES];
#endif

void weir__leash_tell(int leash_fd, leash_word word, int number, int64_t time_us)
{
    const leash_message m = { .word = (int32_t)word, .number = number, .time_us = time_us };
    (void)send(leash_fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the program's beginning --------------------------------------------------------------- */

static void signal_set(int number, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

void weir__supervisor_signals_default(void)
{
    for (int number = 1; number <= SIGRTMAX; number++) {
        signal_set(number, SIG_DFL); /* two cannot be set, and some are the library's */
    }
}

/* The reason that a shell would give: the last one that is not "no such file". */
static int program_execute(const supervisor_program *p)
{
    int why = ENOENT;
    for (char **path = p->paths; *path != NULL; path++) {
        (void)execve(*path, p->argv, p->environment);
        if (errno == ENOEXEC && p->script != NULL) {
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

static bool program_files(const supervisor_start *s)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (s->stdio[fd] >= 0 && dup2(s->stdio[fd], fd) < 0) {
            return false;
        }
    }
    return !s->hold_passed || s->hold_fd < 0 || fcntl(s->hold_fd, F_SETFD, 0) == 0;
}

/* In the memory of the supervisor, which waits until this has become another program or ended. */
static int program_main(void *ctx)
{
    const supervisor_start *s = ctx;
    int why = 0;
    errno = 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != supervisor_pid ||
        setpgid(0, 0) != 0 || !program_files(s)) {
        why = errno == 0 ? ECHILD : errno;
    }
    if (s->foreground) {
        (void)tcsetpgrp(STDIN_FILENO, getpid()); /* SIGTTOU is blocked */
    }
    if (s->clean) {
        weir__supervisor_signals_default();
    } else {
        signal_set(SIGPIPE, SIG_DFL); /* which weir ignores */
        signal_set(SIGXFSZ, SIG_DFL);
    }
    (void)pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    program_why = why == 0 ? program_execute(&s->program) : why;
    _exit(EXIT_NOT_RUN);
}

/* ThreadSanitizer does not survive two processes that share memory. With it we fork, and a program
 * that cannot be executed exits with 127. */
static pid_t program_clone(supervisor_start *start)
{
#ifdef WEIR_THREAD_SANITIZER
    const pid_t pid = fork();
    if (pid == 0) {
        (void)program_main(start);
    }
    (void)setpgid(pid, pid); /* nobody waited for it to do so itself, and it may be signalled now */
    return pid;
#else
    return clone(program_main, program_stack + sizeof program_stack,
                 CLONE_VM | CLONE_VFORK | SIGCHLD, start);
#endif
}

/* 0, or the errno that says why it does not run. Not a fork: that would copy the page tables of a
 * whole worker once more. */
static int program_start(supervised *w)
{
    sigset_t all;
    supervisor_start start = *w->start; /* for clone it is not const */
    program_why = 0;
    supervisor_pid = getpid();
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    const pid_t pid = program_clone(&start);
    if (pid < 0) {
        return errno;
    }
    if (program_why != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        return program_why;
    }
    w->pid = pid;
    return 0;
}

/* ---- the tree ------------------------------------------------------------------------------ */

static void program_take(supervised *w, const siginfo_t *info)
{
    if (info->si_code == CLD_STOPPED || info->si_code == CLD_CONTINUED) {
        w->stopped = info->si_code == CLD_STOPPED;
        if (w->stopped) {
            weir__leash_tell(w->start->leash_fd, LEASH_STOPPED, 0, 0);
        }
        return;
    }
    w->ended = true;
    w->stopped = false;
    /* As waitpid would have it. */
    w->wait_status =
        info->si_code == CLD_EXITED ? (info->si_status & 0xff) << 8 : info->si_status & 0x7f;
    w->linger_until_us = weir__clock_boot() + SUPERVISOR_LINGER_US;
}

/* Whether a process is left; waits for those that have ended. */
static bool tree_exists(supervised *w)
{
    for (;;) {
        siginfo_t info = { .si_pid = 0 };
        const int options = WEXITED | WNOHANG | (w->ended ? 0 : WSTOPPED | WCONTINUED);
        if (waitid(P_ALL, 0, &info, options) != 0) {
            return false;
        }
        if (info.si_pid == 0) {
            return true;
        }
        if (info.si_pid == w->pid && !w->ended) {
            program_take(w, &info);
        }
    }
}

/* Signals the program's group, if it is sure to be that: see (2). */
static bool group_signal(const supervised *w, int number)
{
    siginfo_t info;
    if (w->pid == 0) {
        return false;
    }
    if (w->ended && waitid(P_PGID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
        return false;
    }
    return kill(-w->pid, number) == 0;
}

/* First the group as a whole, because nobody can fork out of that meanwhile, then all others. */
static void tree_signal(const supervised *w, int number)
{
    const bool grouped = group_signal(w, number);
    (void)weir__tree_signal(number, grouped ? w->pid : 0, NULL);
}

static void tree_end(supervised *w, int64_t now_us)
{
    if (w->kill_us == 0) {
        w->kill_us = now_us + w->start->grace_us;
        if (w->start->grace_us > 0) {
            tree_signal(w, SIGTERM);
            tree_signal(w, SIGCONT); /* a stopped process does not see SIGTERM */
        }
    }
    if (now_us >= w->kill_us) {
        tree_signal(w, SIGKILL);
        w->kill_wait_ms = w->kill_wait_ms == 0                ? KILL_MS_FIRST
                          : w->kill_wait_ms < LOOK_MS_MAX / 2 ? w->kill_wait_ms * 2
                                                              : LOOK_MS_MAX;
    }
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void message_take(supervised *w, const leash_message *m, int64_t now_us)
{
    switch ((leash_word)m->word) {
    case LEASH_UNTIL:
        w->until_us = m->time_us;
        break;
    case LEASH_SIGNAL:
        if (w->pid == 0) {
            (void)sigaddset(&w->early, m->number);
        } else {
            (void)group_signal(w, m->number);
        }
        break;
    case LEASH_END:
        tree_end(w, now_us);
        break;
    case LEASH_STARTED:
    case LEASH_STOPPED:
    case LEASH_EXPIRED:
    case LEASH_LEFT:
    case LEASH_ENDED:
    case LEASH_FAILED:
        break;
    }
}

/* Somebody who interrupts us in the first millisecond means the program as well. */
static void early_pass_on(const supervised *w)
{
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (sigismember(&w->early, number) == 1) {
            (void)group_signal(w, number);
        }
    }
}

static void messages_take(supervised *w, int64_t now_us)
{
    leash_message m;
    while (!w->let_go) {
        const ssize_t len = recv(w->start->leash_fd, &m, sizeof m, MSG_DONTWAIT);
        if (len == (ssize_t)sizeof m) {
            message_take(w, &m, now_us);
        } else if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else {
            /* The owner is dead, or has shut down its side; then it still listens. */
            w->let_go = true;
        }
    }
}

/* A stopped program does no harm after its deadline, unless what it runs under ends by itself and
 * somebody else takes it. */
static bool is_expired(const supervised *w, int64_t now_us)
{
    return now_us >= w->until_us && (!w->stopped || w->start->leased);
}

/* When the next thing is due; INT64_MAX: nothing is. */
static int64_t next_us(const supervised *w)
{
    int64_t next = w->stopped && !w->start->leased ? INT64_MAX : w->until_us;
    if (w->ended && w->linger_until_us < next) {
        next = w->linger_until_us;
    }
    return w->kill_us != 0 ? w->kill_us : next;
}

static int await_ms(const supervised *w)
{
    const int64_t next = next_us(w);
    if (w->kill_wait_ms > 0) {
        return w->kill_wait_ms;
    }
    if (next == INT64_MAX) {
        return -1;
    }
    const int64_t left_us = next - weir__clock_boot();
    const int64_t ms = left_us <= 0 ? 0 : left_us / 1000 + 1;
    return ms > LOOK_MS_MAX ? LOOK_MS_MAX : (int)ms;
}

static void supervised_await(const supervised *w)
{
    struct pollfd fds[] = { { .fd = w->let_go ? -1 : w->start->leash_fd, .events = POLLIN },
                            { .fd = w->signals_fd, .events = POLLIN } };
    struct signalfd_siginfo signals[4];
    if (poll(fds, 2, await_ms(w)) > 0 && fds[1].revents != 0) {
        while (read(w->signals_fd, signals, sizeof signals) > 0) {
        }
    }
}

static void supervised_look(supervised *w)
{
    const int64_t now_us = weir__clock_boot();
    messages_take(w, now_us);
    if (w->kill_us == 0 && is_expired(w, now_us)) {
        weir__leash_tell(w->start->leash_fd, LEASH_EXPIRED, 0, 0);
        tree_end(w, now_us);
    } else if (w->ended && !w->let_go && now_us >= w->linger_until_us) {
        if (!w->told_left) {
            w->told_left = true;
            weir__leash_tell(w->start->leash_fd, LEASH_LEFT, 0, 0);
        }
        tree_end(w, now_us);
    } else if (w->kill_us != 0 || w->let_go) {
        tree_end(w, now_us);
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

/* The program has its standard files already. If we kept them open as well, a reader would wait for
 * us and not only for the program. */
void weir__supervisor_close_others(const int *kept, size_t kept_count)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++) {
        (void)dup2(null, fd);
    }
    int from = STDERR_FILENO + 1;
    for (;;) { /* the least that is kept, from `from` on */
        int next = -1;
        for (size_t i = 0; i < kept_count; i++) {
            if (kept[i] >= from && (next < 0 || kept[i] < next)) {
                next = kept[i];
            }
        }
        if (next < 0) {
            close_between((unsigned)from, ~0U);
            return;
        }
        if (next > from) {
            close_between((unsigned)from, (unsigned)next - 1);
        }
        from = next + 1;
    }
}

/* Signals to the process group or the terminal of our parent must not reach us. */
static void place_take(const supervisor_start *start)
{
    if (start->terminal || setsid() < 0) {
        (void)setpgid(0, 0);
    }
    signal_set(SIGCHLD, SIG_DFL);
}

static void signals_ignore(void)
{
    static const int ignored[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                   SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE };
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        signal_set(ignored[i], SIG_IGN); /* it ends when the program has */
    }
}

static bool settle_in(supervised *w)
{
    sigset_t signals;
    signals_ignore();
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    w->signals_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    const int kept[] = { w->start->leash_fd, w->signals_fd, w->start->hold_fd };
    weir__supervisor_close_others(kept, sizeof kept / sizeof kept[0]);
    return w->signals_fd >= 0 && pthread_sigmask(SIG_SETMASK, &signals, NULL) == 0;
}

_Noreturn void weir__supervisor_main(const supervisor_start *start)
{
    supervised w = { .start = start, .until_us = INT64_MAX, .wait_status = SIGKILL };
    int why = 0;
    (void)sigemptyset(&w.early);
    /* The program inherits signal settings, so it is started before we ignore any. */
    place_take(start);
    (void)prctl(PR_SET_NAME, "weir-supervisor");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        why = errno;
    }
    messages_take(&w, weir__clock_boot());
    if (why == 0 && !w.let_go && is_expired(&w, weir__clock_boot())) {
        weir__leash_tell(start->leash_fd, LEASH_EXPIRED, 0, 0);
        weir__leash_tell(start->leash_fd, LEASH_ENDED, w.wait_status, 0);
        _exit(0);
    }
    if (why == 0) {
        why = w.let_go || w.kill_us != 0 ? ECANCELED : program_start(&w);
    }
    if (why != 0) {
        weir__leash_tell(start->leash_fd, LEASH_FAILED, why, 0);
        _exit(EXIT_NOT_RUN);
    }
    if (!settle_in(&w)) {
        (void)kill(getpid(), SIGKILL); /* the keeper ends the rest */
    }
    weir__leash_tell(start->leash_fd, LEASH_STARTED, (int)w.pid, 0);
    early_pass_on(&w);
    while (tree_exists(&w)) {
        supervised_look(&w);
        supervised_await(&w);
    }
    weir__leash_tell(start->leash_fd, LEASH_ENDED, w.wait_status, 0);
    _exit(0);
}

_Noreturn void weir__supervisor_main_kept(const supervisor_start *start)
{
    const int kept[] = { start->leash_fd, start->hold_fd };
    int wait_status = 0;
    pid_t ended;
    place_take(start);
    (void)prctl(PR_SET_NAME, "weir-keeper");
    const pid_t pid = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? fork() : -1;
    if (pid == 0) {
        weir__supervisor_main(start);
    }
    if (pid < 0) {
        weir__leash_tell(start->leash_fd, LEASH_FAILED, errno, 0);
        _exit(EXIT_NOT_RUN);
    }
    signals_ignore();
    weir__supervisor_close_others(kept, sizeof kept / sizeof kept[0]);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    /* What was below a supervisor that was killed is below us now. */
    while (WIFSIGNALED(wait_status) && ((ended = waitpid(-1, NULL, WNOHANG)) >= 0)) {
        if (ended == 0) {
            (void)weir__tree_signal(SIGKILL, 0, NULL);
            (void)poll(NULL, 0, KILL_MS_FIRST);
        }
    }
    _exit(0);
}
