/* keeper.c - this process's side of the keeper: forks it, sends it requests, replaces it.
 *
 * INVARIANTS
 *   (1) fd >= 0 exactly when pid is a keeper that has not been waited for.
 *   (2) Between fork and weir__keeper_main no signal handler of this process can run in the keeper:
 *       all signals are blocked.
 *
 * THREADS  Any. `mu` guards fd and pid. It is a leaf lock, held over the fork: at most one thread
 * replaces a keeper that has died.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "supervisor/keeper.h"

enum {
    STARTS_MAX = 3,   /* keepers that one request may go through      */
    SENDS_MAX = 2000, /* tries, a millisecond apart, to hand it over  */
    PAUSE_US = 1000,
    DYING_MS = 100, /* a keeper that still lives after this long was not dying */
};

struct child_keeper {
    /* immutable after open */
    uint32_t generation; /* of forks: the keeper serves the process that opened it */

    weir_mutex mu;
    /* guarded by mu */
    int fd; /* owned: requests. -1: none */
    pid_t pid;
};

static weir_status keeper_fork_locked(child_keeper *k, weir_error *err) WEIR_REQUIRES(k->mu);
static weir_status keeper_fork_locked(child_keeper *k, weir_error *err)
{
    sigset_t all, before;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return weir__fail(err, WEIR_EIO, "could not make a socket: errno %d", errno);
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0) {
        weir__keeper_main(pair[1]);
    }
    const int fork_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)close(pair[1]);
    if (pid < 0) {
        (void)close(pair[0]);
        return weir__fail(err, WEIR_EIO, "could not start a process: errno %d", fork_errno);
    }
    k->fd = pair[0];
    k->pid = pid;
    return WEIR_OK;
}

/* The keeper ends within CHILD_KILL_US after its socket is closed. If this process itself waits for
 * any child, it may have reaped the keeper already: that is no error. */
static void keeper_bury_locked(child_keeper *k) WEIR_REQUIRES(k->mu);
static void keeper_bury_locked(child_keeper *k)
{
    if (k->fd < 0) {
        return;
    }
    (void)close(k->fd);
    while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    k->fd = -1;
    k->pid = 0;
}

/* 0, or errno of sendmsg. */
static int request_send_locked(child_keeper *k, const char *command, const int *fds,
                               size_t fds_count) WEIR_REQUIRES(k->mu);
static int request_send_locked(child_keeper *k, const char *command, const int *fds,
                               size_t fds_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(KEEPER_FDS_MAX * sizeof(int))];
    } control = { .bytes = { 0 } };
    char *text = weir__strndup(command, strlen(command)); /* iov_base is not const */
    struct iovec part = { .iov_base = text, .iov_len = strlen(command) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = CMSG_SPACE(fds_count * sizeof(int)) };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int send_errno = 0;

    if (text == NULL) {
        return ENOMEM;
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds_count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, fds_count * sizeof(int));
    if (sendmsg(k->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        send_errno = errno;
    }
    weir__free(text);
    return send_errno;
}

/* Hands the request to a keeper that is alive. *send_errno: EAGAIN when it is too busy now. */
static weir_status request_place(child_keeper *k, const char *command, const int *fds,
                                 size_t fds_count, int *send_errno, weir_error *err)
{
    weir_status status = WEIR_OK;

    *send_errno = EPIPE;
    weir__lock(&k->mu);
    for (int i = 0; i < STARTS_MAX && status == WEIR_OK && *send_errno == EPIPE; i++) {
        if (k->fd < 0) {
            status = keeper_fork_locked(k, err);
        }
        if (status == WEIR_OK) {
            *send_errno = request_send_locked(k, command, fds, fds_count);
            if (*send_errno == ECONNRESET || *send_errno == ENOTCONN) {
                *send_errno = EPIPE;
            }
        }
        if (status == WEIR_OK && *send_errno == EPIPE) {
            keeper_bury_locked(k);
        }
    }
    weir__unlock(&k->mu);
    return status;
}

weir_status weir__keeper_start(child_keeper *k, const char *command, const int *fds,
                               size_t fds_count, weir_error *err)
{
    weir_status status = WEIR_OK;
    int send_errno = EAGAIN;

    if (k->generation != weir__fork_generation()) {
        return weir__fail(err, WEIR_EMISUSE, "the keeper of programs belongs to another process");
    }
    for (int i = 0; i < SENDS_MAX && status == WEIR_OK && send_errno == EAGAIN; i++) {
        if (i > 0) {
            weir__clock_pause(PAUSE_US);
        }
        status = request_place(k, command, fds, fds_count, &send_errno, err);
    }
    if (status != WEIR_OK || send_errno == 0) {
        return status;
    }
    return send_errno == ENOMEM ? weir__fail(err, WEIR_ENOMEM, "out of memory")
                                : weir__fail(err, send_errno == EAGAIN ? WEIR_EBUSY : WEIR_EIO,
                                             "could not ask for a process: errno %d", send_errno);
}

void weir__keeper_lost(child_keeper *k)
{
    weir__lock(&k->mu);
    struct pollfd fd = { .fd = k->fd }; /* POLLHUP need not be asked for */
    if (k->fd >= 0 && poll(&fd, 1, DYING_MS) == 1) {
        keeper_bury_locked(k);
    }
    weir__unlock(&k->mu);
}

weir_status weir__child_keeper_open(child_keeper **out, weir_error *err)
{
    child_keeper *k = weir__calloc(1, sizeof *k);
    weir_status status;

    if (k == NULL || !weir__mutex_init(&k->mu)) {
        weir__free(k);
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    k->generation = weir__fork_generation();
    k->fd = -1;
    weir__lock(&k->mu);
    status = keeper_fork_locked(k, err);
    weir__unlock(&k->mu);
    if (status != WEIR_OK) {
        weir__child_keeper_close(k);
        return status;
    }
    *out = k;
    return WEIR_OK;
}

void weir__child_keeper_close(child_keeper *k)
{
    if (k == NULL) {
        return;
    }
    if (k->generation == weir__fork_generation()) {
        weir__lock(&k->mu);
        keeper_bury_locked(k);
        weir__unlock(&k->mu);
    } else if (k->fd >= 0) {
        (void)close(k->fd); /* the keeper is not this process's child */
    }
    weir__mutex_destroy(&k->mu);
    weir__free(k);
}
