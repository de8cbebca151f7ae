/* tree.c - see tree.h: walks /proc.
 *
 * INVARIANTS
 *   (1) Nothing here but async-signal-safe calls, so no opendir.
 *   (2) A process is signalled by a descriptor (pidfd) that was opened before the process was seen
 *       to be below this one: its number cannot have gone to another process in between. Kernels
 *       before 5.3 have no pidfd; there it is signalled by its number.
 */
#define _GNU_SOURCE /* syscall, O_DIRECTORY */

#include "supervisor/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ENTRIES_BYTES = 4096,
    STAT_BYTES = 1024, /* a name, and less than 20 numbers                 */
    STAT_STATE = 3,    /* where the state stands, as proc(5) counts        */
    STAT_PARENT = 4,
    STAT_GROUP = 5,
    STAT_THREADS = 20,
    DEPTH_MAX = 10000, /* of a chain of parents: more than that is no chain */
};

/* An entry of a directory, as getdents64 writes it. */
typedef struct entry_head {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t kind;
} entry_head;
enum { ENTRY_NAME = 19 }; /* offset of the name, which is not aligned */

typedef struct tree_process {
    pid_t parent, group;
    bool alive; /* one of its threads is */
} tree_process;

/* The text of a number, at the end of *path. */
static void number_add(char *path, pid_t number)
{
    char digits[16];
    size_t n = 0;

    path += strlen(path);
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (n > 0) {
        *path++ = digits[--n];
    }
    *path = '\0';
}

/* 0: no number. *at: behind it. */
static pid_t number_read(const char **at)
{
    pid_t number = 0;

    while (**at == ' ') {
        (*at)++;
    }
    while (**at >= '0' && **at <= '9' && number < INT32_MAX / 10 - 1) {
        number = number * 10 + (**at - '0');
        (*at)++;
    }
    return number;
}

/* A number of /proc/PID/stat; `state` is where its third field stands. */
static pid_t stat_number(const char *state, int field)
{
    for (int i = STAT_STATE; i < field; i++) {
        state += strcspn(state, " ");
        state += strspn(state, " ");
    }
    return number_read(&state);
}

/* false: there is no such process, or it cannot be looked at. */
static bool process_read(pid_t pid, tree_process *out)
{
    char path[64] = "/proc/", text[STAT_BYTES];

    number_add(path, pid);
    memcpy(path + strlen(path), "/stat", sizeof "/stat");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const ssize_t len = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (len <= 0) {
        return false;
    }
    text[len] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may have anything in it */
    if (at == NULL || at[1] != ' ' || at[2] == '\0') {
        return false;
    }
    const char *state = at + 2;
    out->parent = stat_number(state, STAT_PARENT);
    out->group = stat_number(state, STAT_GROUP);
    /* A process whose first thread has ended is called a zombie while its other threads run. */
    out->alive = (*state != 'Z' && *state != 'X') || stat_number(state, STAT_THREADS) > 1;
    return true;
}

/* Whether `root` is an ancestor of it. Each link is looked at again on the way back: a process
 * whose parent has ended meanwhile has another one by then. */
static bool process_is_below(pid_t pid, pid_t root, tree_skip_fn skip, int depth)
{
    tree_process is, again;

    if (depth == DEPTH_MAX || (skip != NULL && skip(pid)) || !process_read(pid, &is) ||
        is.parent <= 1) {
        return false;
    }
    if (is.parent == root) {
        return true;
    }
    return process_is_below(is.parent, root, skip, depth + 1) && process_read(pid, &again) &&
           again.parent == is.parent;
}

static void process_signal(pid_t pid, int number, tree_skip_fn skip)
{
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) {
        if (process_is_below(pid, getpid(), skip, 0)) {
            (void)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
        }
        (void)close(fd);
        return;
    }
    if (errno == ESRCH) {
        return;
    }
#endif
    (void)skip;
    (void)kill(pid, number);
}

/* Whether it is alive and below this process; signals it then. */
static bool entry_take(const char *name, int number, pid_t group, tree_skip_fn skip)
{
    tree_process is;
    const char *at = name;
    const pid_t pid = number_read(&at);

    if (pid == 0 || *at != '\0' || !process_is_below(pid, getpid(), skip, 0) ||
        !process_read(pid, &is) || !is.alive) {
        return false;
    }
    if (group == 0 || is.group != group) {
        process_signal(pid, number, skip);
    }
    return true;
}

/* One is open: are there others for the stat and the pidfd of a process? Without them nobody would
 * be found, as if all were gone. */
static bool has_descriptors(int fd)
{
    int spare[TREE_FDS - 1];
    bool enough = true;

    for (size_t i = 0; i < TREE_FDS - 1; i++) {
        spare[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        enough = enough && spare[i] >= 0;
    }
    for (size_t i = 0; i < TREE_FDS - 1; i++) {
        if (spare[i] >= 0) {
            (void)close(spare[i]);
        }
    }
    return enough;
}

size_t weir__tree_signal(int number, pid_t group, tree_skip_fn skip)
{
    _Alignas(entry_head) char entries[ENTRIES_BYTES];
    size_t count = 0;
    long len;
    const int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE ? SIZE_MAX : 0;
    }
    if (!has_descriptors(fd)) {
        (void)close(fd);
        return SIZE_MAX;
    }
    while ((len = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
        for (long at = 0; at < len;) {
            entry_head head;
            memcpy(&head, entries + at, ENTRY_NAME);
            count += entry_take(entries + at + ENTRY_NAME, number, group, skip) ? 1 : 0;
            at += head.bytes;
        }
    }
    (void)close(fd);
    return count;
}
