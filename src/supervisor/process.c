/* process.c - see process.h.
 *
 * INVARIANTS
 *   (1) Once it is over, no process of it is left, and the pipes hold all that there will be. Only
 *       what they hold at that moment is read: somebody else may have been given the other ends,
 *       and may never stop writing.
 *   (2) line and last never hold more than CHILD_LINE_BYTES_MAX each.
 *
 * THREADS  A process belongs to one thread at a time.
 */
#define _GNU_SOURCE /* pipe2 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "supervisor/process.h"
#include "supervisor/supervisor.h"

enum { INTERRUPTED_LOOK_MS = 50 };

static void fd_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* ---- what the program says ------------------------------------------------------------------ */

static bool line_is_blank(const weir_buffer *line)
{
    for (size_t i = 0; i < line->len; i++) {
        if (line->ptr[i] != ' ' && line->ptr[i] != '\t' && line->ptr[i] != '\r') {
            return false;
        }
    }
    return true;
}

static void line_end(process *p, const child_call *call)
{
    p->lines_count++;
    if (call != NULL && call->stdout_cb != NULL) {
        call->stdout_cb(call->stdout_ctx, (weir_str){ .ptr = p->line.ptr, .len = p->line.len });
    }
    if (!line_is_blank(&p->line)) {
        const weir_buffer ended = p->line;
        p->line = p->last;
        p->last = ended;
    }
    weir__buffer_clear(&p->line);
}

static void stdout_take(process *p, const child_call *call, const char *at, size_t len)
{
    while (len > 0 && !p->flooded && !p->no_memory) {
        const char *newline = memchr(at, '\n', len);
        const size_t part = newline == NULL ? len : (size_t)(newline - at);
        if (p->line.len + part > CHILD_LINE_BYTES_MAX) {
            p->flooded = true;
        } else if (!weir__buffer_add(&p->line, at, part)) {
            p->no_memory = true;
        } else if (newline != NULL) {
            line_end(p, call);
        }
        at += part + (newline != NULL);
        len -= part + (newline != NULL);
    }
}

static void stderr_line_give(process *p, const child_call *call)
{
    call->stderr_cb(call->stderr_ctx,
                    (weir_str){ .ptr = p->stderr_line, .len = p->stderr_line_len });
    p->stderr_line_len = 0;
}

static void stderr_pass_on(process *p, const child_call *call, const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (at[i] == '\n') {
            stderr_line_give(p, call);
            continue;
        }
        if (p->stderr_line_len == sizeof p->stderr_line) {
            stderr_line_give(p, call);
        }
        p->stderr_line[p->stderr_line_len++] = at[i];
    }
}

static void stderr_take(process *p, const child_call *call, const char *at, size_t len)
{
    if (call != NULL && call->stderr_cb != NULL) {
        stderr_pass_on(p, call, at, len);
    }
    if (len > sizeof p->tail) {
        at += len - sizeof p->tail;
        len = sizeof p->tail;
        p->tail_cut = true;
    }
    if (p->tail_len + len > sizeof p->tail) {
        const size_t drop = p->tail_len + len - sizeof p->tail;
        memmove(p->tail, p->tail + drop, p->tail_len - drop);
        p->tail_len -= drop;
        p->tail_cut = true;
    }
    memcpy(p->tail + p->tail_len, at, len);
    p->tail_len += len;
}

typedef void (*take_fn)(process *p, const child_call *call, const char *at, size_t len);

/* One read of at most `most` bytes; how many came. */
static size_t stream_read(process *p, const child_call *call, int *fd, size_t most, take_fn take)
{
    const ssize_t len = read(*fd, p->chunk, most < sizeof p->chunk ? most : sizeof p->chunk);

    if (len > 0) {
        take(p, call, p->chunk, (size_t)len);
        return (size_t)len;
    }
    if (len == 0 || (errno != EAGAIN && errno != EINTR)) {
        fd_close(fd);
    }
    return 0;
}

static void stream_drain(process *p, const child_call *call, int *fd, take_fn take)
{
    int held = 0;

    if (*fd < 0 || ioctl(*fd, FIONREAD, &held) != 0) {
        return;
    }
    for (size_t left = held > 0 ? (size_t)held : 0; left > 0 && *fd >= 0;) {
        const size_t len = stream_read(p, call, fd, left, take);
        if (len == 0) {
            break;
        }
        left -= len;
    }
}

void weir__process_drain(process *p, const child_call *call)
{
    stream_drain(p, call, &p->stdout_fd, stdout_take);
    stream_drain(p, call, &p->stderr_fd, stderr_take);
}

static void message_take(process *p, const leash_message *m)
{
    switch ((leash_word)m->word) {
    case LEASH_STARTED:
        p->group = m->number;
        break;
    case LEASH_EXPIRED:
        p->expired = true;
        break;
    case LEASH_LEFT:
        p->left_behind = true;
        break;
    case LEASH_ENDED:
        p->over = true;
        p->wait_status = m->number;
        break;
    case LEASH_FAILED:
        p->over = true;
        p->start_errno = m->number;
        break;
    case LEASH_STOPPED:
    case LEASH_UNTIL:
    case LEASH_SIGNAL:
    case LEASH_END:
        break;
    }
}

/* Takes what the supervisor has said. */
static void leash_read(process *p)
{
    leash_message m;

    while (!p->over) {
        const ssize_t len = recv(p->leash_fd, &m, sizeof m, MSG_DONTWAIT);
        if (len == (ssize_t)sizeof m) {
            message_take(p, &m);
        } else if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else if (len >= 0 || errno != ECONNRESET) { /* that is: it did not read our last word */
            p->over = true;
            p->lost = true;
            weir__keeper_lost(p->keeper);
        }
    }
}

void weir__process_look(process *p, const child_call *call)
{
    if (p->over) {
        return;
    }
    leash_read(p);
    if (!p->over) {
        return;
    }
    weir__process_lease(p, NULL);
    fd_close(&p->leash_fd);
    fd_close(&p->stdin_fd);
    weir__process_drain(p, call);
    if (p->line.len > 0) {
        line_end(p, call); /* nobody will write its newline */
    }
    if (call != NULL && call->stderr_cb != NULL && p->stderr_line_len > 0) {
        stderr_line_give(p, call);
    }
}

/* ---- what it is told ------------------------------------------------------------------------ */

/* write() that raises no SIGPIPE. Whether that is ignored is for the program that uses the library
 * to decide. */
static ssize_t write_quietly(int fd, const void *at, size_t len)
{
    const struct timespec now = { .tv_sec = 0 };
    sigset_t pipe_signal, before, pending;

    (void)sigemptyset(&pipe_signal);
    (void)sigaddset(&pipe_signal, SIGPIPE);
    (void)sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    const ssize_t written = write(fd, at, len);
    const int write_errno = errno;
    if (written < 0 && write_errno == EPIPE && !was_pending) {
        while (sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = write_errno;
    return written;
}

bool weir__process_was_given(const process *p, const child_call *call)
{
    return p->stdin_fd < 0 || p->written == call->line.len + 1;
}

static void stdin_write(process *p, const child_call *call)
{
    const bool in_line = p->written < call->line.len;
    const ssize_t len = write_quietly(p->stdin_fd, in_line ? call->line.ptr + p->written : "\n",
                                      in_line ? call->line.len - p->written : 1);

    if (len > 0) {
        p->written += (size_t)len;
    } else if (len < 0 && errno != EAGAIN && errno != EINTR) {
        fd_close(&p->stdin_fd); /* it does not read; its exit status says what that means */
    }
    if (p->stdin_fd >= 0 && !p->stdin_keep && p->written == call->line.len + 1) {
        fd_close(&p->stdin_fd);
    }
}

/* ---- taking turns --------------------------------------------------------------------------- */

static int wait_ms(const child_call *call, int64_t now_us)
{
    const int64_t left_us = call->deadline_mono_us - now_us;
    int64_t ms = left_us <= 0 ? 0 : left_us / 1000 + 1;

    if (call->interrupted != NULL && ms > INTERRUPTED_LOOK_MS) {
        ms = INTERRUPTED_LOOK_MS;
    }
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

process_turn weir__process_turn(process *p, const child_call *call)
{
    const weir_clock *clock = weir__clock_machine();
    const bool writes = !weir__process_was_given(p, call);
    struct pollfd fds[] = {
        { .fd = writes ? p->stdin_fd : -1, .events = POLLOUT },
        { .fd = p->stdout_fd, .events = POLLIN },
        { .fd = p->stderr_fd, .events = POLLIN },
        { .fd = p->leash_fd, .events = POLLIN },
        { .fd = call->stop_fd > 0 ? call->stop_fd : -1, .events = POLLIN },
    };

    if (poll(fds, sizeof fds / sizeof fds[0], wait_ms(call, weir__clock_mono(clock))) > 0) {
        if (fds[0].revents != 0) {
            stdin_write(p, call);
        }
        if (fds[1].revents != 0) {
            (void)stream_read(p, call, &p->stdout_fd, PROCESS_CHUNK_BYTES, stdout_take);
        }
        if (fds[2].revents != 0) {
            (void)stream_read(p, call, &p->stderr_fd, PROCESS_CHUNK_BYTES, stderr_take);
        }
        if (fds[3].revents != 0) {
            weir__process_look(p, call);
        }
    } else {
        fds[4].revents = 0; /* poll failed: nothing is known */
    }
    if (fds[4].revents != 0 || (call->interrupted != NULL && atomic_load(call->interrupted))) {
        return PROCESS_STOPPED;
    }
    return weir__clock_mono(clock) >= call->deadline_mono_us ? PROCESS_TIMED_OUT : PROCESS_GO_ON;
}

void weir__process_lease(process *p, child_lease *lease)
{
    if (p->lease != NULL) {
        weir__child_lease_detach(p->lease);
    }
    p->lease = p->leash_fd >= 0 ? lease : NULL;
    if (p->lease != NULL) {
        weir__child_lease_attach(p->lease, p->leash_fd);
    }
}

void weir__process_question(process *p, bool stdin_keep)
{
    p->written = 0;
    p->stdin_keep = stdin_keep;
    p->lines_count = 0;
    weir__buffer_clear(&p->line);
    weir__buffer_clear(&p->last);
    p->tail_len = 0;
    p->tail_cut = false;
}

/* ---- its life ------------------------------------------------------------------------------- */

/* Our end does not block; the program's does, as programs expect. */
static bool stream_open(int fds[2], int ours)
{
    return pipe2(fds, O_CLOEXEC) == 0 && fcntl(fds[ours], F_SETFL, O_NONBLOCK) == 0;
}

weir_status weir__process_start(process **out, child_keeper *k, const char *command,
                                const child_call *call, weir_error *err)
{
    int in[2] = { -1, -1 }, output[2] = { -1, -1 }, errors[2] = { -1, -1 }, leash[2] = { -1, -1 };
    process *p = weir__calloc(1, sizeof *p);
    weir_status status;

    if (p == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    p->leash_fd = -1;
    if (!stream_open(in, 1) || !stream_open(output, 0) || !stream_open(errors, 0) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, leash) != 0) {
        status = weir__fail(err, WEIR_EIO, "could not make pipes for a program: errno %d", errno);
    } else {
        const int fds[] = { in[0], output[1], errors[1], leash[1], call->hold_fd };
        p->leash_fd = leash[0];
        weir__process_lease(p, call->lease); /* the supervisor will find it on the leash */
        status = weir__keeper_start(k, command, fds,
                                    call->hold_fd > 0 ? KEEPER_FDS_MAX : KEEPER_FDS, err);
    }
    p->keeper = k;
    p->stdin_fd = in[1];
    p->stdout_fd = output[0];
    p->stderr_fd = errors[0];
    p->leash_fd = leash[0];
    fd_close(&in[0]);
    fd_close(&output[1]);
    fd_close(&errors[1]);
    fd_close(&leash[1]);
    if (status != WEIR_OK) {
        weir__process_lease(p, NULL);
        p->over = true; /* it never was */
        weir__process_free(p);
        return status;
    }
    *out = p;
    return WEIR_OK;
}

void weir__process_end(process *p, const child_call *call)
{
    const weir_clock *clock = weir__clock_machine();
    const int64_t until_us = weir__clock_mono(clock) + CHILD_KILL_US;
    const child_call patient = { .deadline_mono_us = until_us };

    if (p->over) {
        return;
    }
    (void)shutdown(p->leash_fd, SHUT_WR);
    while (!p->over) {
        const int64_t now_us = weir__clock_mono(clock);
        struct pollfd fd = { .fd = p->leash_fd, .events = POLLIN };
        if (now_us >= until_us) {
            break; /* it is in the kernel's hands; the keeper goes on waiting for it */
        }
        if (poll(&fd, 1, wait_ms(&patient, now_us)) > 0) {
            weir__process_look(p, call);
        }
    }
}

void weir__process_free(process *p)
{
    if (p == NULL) {
        return;
    }
    weir__process_end(p, NULL);
    weir__process_lease(p, NULL);
    fd_close(&p->stdin_fd);
    fd_close(&p->stdout_fd);
    fd_close(&p->stderr_fd);
    fd_close(&p->leash_fd);
    weir__buffer_free(&p->line);
    weir__buffer_free(&p->last);
    weir__free(p);
}
