/* keeper_process.c - the keeper itself: starts programs, and sees to it that their groups end.
 *
 * INVARIANTS
 *   (1) Nothing here but async-signal-safe calls: this process is a fork of one with threads, whose
 *       locks may be held for ever.
 *   (2) A group is signalled only while a process of it has not been waited for, by us, who alone
 *       can: its number belongs to nobody else. Orphans of a program become our children (we are
 *       their subreaper), so that this holds after the program itself has been waited for.
 *   (3) The note goes out when no process of the group is left.
 *
 *   RUNNING --program ends--> LINGERING --group empty--> free, noted
 *      |                          |
 *      +---leash is let go--------+---CHILD_LINGER_US---> KILLED --group empty--> free, noted
 *
 * THREADS  One, for life: the programs' parent-death signal comes when the thread that forked them
 * ends, so it must be one that ends with the keeper only.
 */
#define _GNU_SOURCE /* POLLRDHUP */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/child/keeper.h"

extern char **environ;

enum {
    REQUESTS_FD = 3,
    SIGNALS_FD = 4,
    FDS_OWN = 5,          /* descriptors below this are ours for life          */
    EXIT_NOT_RUN = 127,   /* as a shell says it                                */
    FD_NUMBER_MAX = 65536 /* looked at where the kernel has no close_range     */
};

typedef struct kept {
    pid_t pid;    /* the program and its group; 0: free                         */
    int leash_fd; /* the note goes here                                         */
    bool ended;   /* the program itself has been waited for                     */
    bool killed;  /* its group has been sent SIGKILL                            */
    leash_note note;
    int64_t linger_until_us; /* once ended */
} kept;

static kept table[CHILD_COUNT_MAX]; /* the first `table_count` may be in use */
static size_t table_count;
static struct pollfd polled[CHILD_COUNT_MAX + 2];
static char command[CHILD_COMMAND_BYTES_MAX + 1];
static pid_t keeper_pid;

/* ---- a program's beginning ------------------------------------------------------------------ */

static void signals_default(void)
{
    struct sigaction action = { .sa_handler = SIG_DFL };

    (void)sigemptyset(&action.sa_mask);
    for (int number = 1; number <= SIGRTMAX; number++) {
        (void)sigaction(number, &action, NULL); /* two cannot be set, and some are the library's */
    }
}

static _Noreturn void program_exec(const int fds[KEEPER_FDS])
{
    char shell[] = "sh", option[] = "-c";
    char *const arguments[] = { shell, option, command, NULL };
    sigset_t none;

    /* The second line is for a keeper that died before the first. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != keeper_pid || setpgid(0, 0) != 0 ||
        dup2(fds[0], STDIN_FILENO) < 0 || dup2(fds[1], STDOUT_FILENO) < 0 ||
        dup2(fds[2], STDERR_FILENO) < 0) {
        _exit(EXIT_NOT_RUN);
    }
    signals_default();
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)execve("/bin/sh", arguments, environ); /* all other descriptors are close-on-exec */
    _exit(EXIT_NOT_RUN);
}

/* *c takes the leash. 0, or why there is no process. */
static int program_start(kept *c, const int fds[KEEPER_FDS])
{
    const pid_t pid = fork();

    if (pid == 0) {
        program_exec(fds);
    }
    if (pid < 0) {
        return errno;
    }
    /* Both do this: whoever is first, the group is there before either goes on. Fails once the
     * program has been executed, which is after it has done so itself. */
    (void)setpgid(pid, pid);
    *c = (kept){ .pid = pid, .leash_fd = fds[3] };
    const leash_note begun = { .group = pid };
    (void)send(c->leash_fd, &begun, sizeof begun, MSG_NOSIGNAL | MSG_DONTWAIT);
    return 0;
}

static void note_send(int leash_fd, const leash_note *note)
{
    /* Nobody may be there to read it. */
    (void)send(leash_fd, note, sizeof *note, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(leash_fd);
}

static void request_serve(const int fds[KEEPER_FDS])
{
    size_t i = 0;

    while (i < table_count && table[i].pid != 0) {
        i++;
    }
    const int start_errno = i == CHILD_COUNT_MAX ? EBUSY : program_start(&table[i], fds);
    if (start_errno != 0) {
        note_send(fds[3], &(leash_note){ .start_errno = start_errno });
    } else if (i == table_count) {
        table_count++;
    }
    for (int k = 0; k < 3; k++) {
        (void)close(fds[k]);
    }
}

/* Takes one request. false: none is waiting, or (*closed) none will come any more. */
static bool request_take(bool *closed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(KEEPER_FDS * sizeof(int))];
    } control;
    struct iovec text = { .iov_base = command, .iov_len = sizeof command - 1 };
    struct msghdr message = { .msg_iov = &text,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    const ssize_t len = recvmsg(REQUESTS_FD, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int fds[KEEPER_FDS];

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
    if (given == KEEPER_FDS) {
        request_serve(fds);
    } else { /* out of descriptors: the leash ends without a note */
        for (size_t i = 0; i < given; i++) {
            (void)close(fds[i]);
        }
    }
    return true;
}

/* ---- a program's end ------------------------------------------------------------------------ */

static void reap(void)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        for (size_t i = 0; i < table_count; i++) {
            if (table[i].pid == pid && !table[i].ended) {
                table[i].ended = true;
                table[i].note.wait_status = wait_status;
                table[i].linger_until_us =
                    weir__clock_mono(weir__clock_machine()) + CHILD_LINGER_US;
            }
        }
    }
}

/* Whether a process is left in the group; waits for those that have ended. */
static bool group_exists(const kept *c)
{
    if (!c->ended) {
        return true;
    }
    for (;;) {
        siginfo_t info = { .si_pid = 0 };
        if (waitid(P_PGID, (id_t)c->pid, &info, WEXITED | WNOHANG) != 0) {
            return false;
        }
        if (info.si_pid == 0) {
            return true;
        }
    }
}

/* Only where group_exists has just said so: see (2). */
static void group_kill(kept *c)
{
    if (!c->killed) {
        (void)kill(-c->pid, SIGKILL);
        c->killed = true;
    }
}

static void kept_settle(kept *c, bool let_go, int64_t now_us)
{
    if (!group_exists(c)) {
        note_send(c->leash_fd, &c->note);
        *c = (kept){ .pid = 0 };
        return;
    }
    if (let_go) {
        group_kill(c);
    } else if (c->ended && !c->killed && now_us >= c->linger_until_us) {
        c->note.left_behind = 1;
        group_kill(c);
    }
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void close_from(unsigned first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) {
        return;
    }
#endif
    for (unsigned fd = first; fd < FD_NUMBER_MAX; fd++) {
        (void)close((int)fd);
    }
}

/* Leaves nothing of the process that this is a fork of: not its descriptors (a leash among them
 * would never be let go), not its signal handlers, not its terminal. */
static bool keeper_settle_in(int requests_fd)
{
    static const int ignored[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t signals;

    keeper_pid = getpid();
    (void)setsid(); /* what is typed at the worker's terminal is not for its programs */
    (void)prctl(PR_SET_NAME, "weir-keeper");
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int kept_fd = fcntl(requests_fd, F_DUPFD, FDS_OWN);
    if (null < 0 || kept_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return false;
    }
    if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(null, STDERR_FILENO) < 0 || dup2(kept_fd, REQUESTS_FD) < 0 ||
        fcntl(REQUESTS_FD, F_SETFD, FD_CLOEXEC) != 0) {
        return false;
    }
    close_from(REQUESTS_FD + 1);
    signals_default();
    (void)sigemptyset(&ignore.sa_mask);
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        (void)sigaction(ignored[i], &ignore, NULL); /* it ends when the worker does, not before */
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    return pthread_sigmask(SIG_SETMASK, &signals, NULL) == 0 &&
           signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK) == SIGNALS_FD;
}

/* Fills `polled` and says how long to wait for it. */
static int polled_prepare(bool closed, int64_t close_by_us, int64_t now_us)
{
    int64_t next_us = closed ? close_by_us : INT64_MAX;

    polled[0] = (struct pollfd){ .fd = closed ? -1 : REQUESTS_FD, .events = POLLIN };
    polled[1] = (struct pollfd){ .fd = SIGNALS_FD, .events = POLLIN };
    for (size_t i = 0; i < table_count; i++) {
        const kept *c = &table[i];
        const bool watched = c->pid != 0 && !c->killed;
        polled[i + 2] =
            (struct pollfd){ .fd = watched ? c->leash_fd : -1, .events = POLLIN | POLLRDHUP };
        if (watched && c->ended && c->linger_until_us < next_us) {
            next_us = c->linger_until_us;
        }
    }
    if (next_us == INT64_MAX) {
        return -1;
    }
    return next_us <= now_us ? 0 : (int)((next_us - now_us + 999) / 1000);
}

static void polled_answer(int64_t now_us)
{
    struct signalfd_siginfo signals[8];

    while (read(SIGNALS_FD, signals, sizeof signals) > 0) {
    }
    reap();
    for (size_t i = 0; i < table_count; i++) {
        if (table[i].pid != 0) {
            kept_settle(&table[i], polled[i + 2].revents != 0, now_us);
        }
    }
    while (table_count > 0 && table[table_count - 1].pid == 0) {
        table_count--;
    }
}

/* Nobody will ask any more. */
static void let_all_go(void)
{
    for (size_t i = 0; i < table_count; i++) {
        if (table[i].pid != 0 && group_exists(&table[i])) {
            group_kill(&table[i]);
        }
    }
}

_Noreturn void weir__keeper_main(int requests_fd)
{
    const weir_clock *clock = weir__clock_machine();
    int64_t close_by_us = 0;
    bool closed = false;

    if (!keeper_settle_in(requests_fd)) {
        _exit(EXIT_NOT_RUN);
    }
    for (;;) {
        const int64_t now_us = weir__clock_mono(clock);
        if (closed && (table_count == 0 || now_us >= close_by_us)) {
            _exit(0);
        }
        if (poll(polled, table_count + 2, polled_prepare(closed, close_by_us, now_us)) < 0) {
            continue; /* out of memory: try again */
        }
        polled_answer(weir__clock_mono(clock));
        while (!closed && request_take(&closed)) {
        }
        if (closed && close_by_us == 0) {
            close_by_us = weir__clock_mono(clock) + CHILD_KILL_US;
            let_all_go();
        }
    }
}
