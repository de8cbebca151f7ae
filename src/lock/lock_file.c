/* lock_file.c - named locks where the database is a file: a file for each name, in PATH-locks
 * beside it, locked while the name is held. One machine.
 *
 * The lock belongs to an open file (OFD), so it ends when the last process that has it open ends,
 * however it ends, and the guard of a program keeps it while the program runs. The file says who it
 * is; it is removed with the lock, and what a crash leaves is used again or ignored.
 *
 * Whether there is a database, and whether it holds a store, makes no difference to who gets the
 * lock. If there is a store each holder gets a fence from it.
 *
 * INVARIANTS
 *   (1) A lock counts only on the file that others find under its name: after locking, that is
 *       looked up again, and a file that was removed or replaced meanwhile is let go.
 *   (2) A file is removed by its holder only, while it holds it. Files of those who wait have names
 *       of their own and mean nothing but that somebody waits.
 *   (3) Nothing is opened through a symbolic link, and nothing is written that another user could
 *       have put there (base/file.h): neither the directory nor a file in it.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/str.h"
#include "lock/lock_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HASH_BYTES = 16,
    OPENS_MAX = 1000, /* of a file that is removed again and again */
    READS_MAX = 20,   /* of a holder that is about to say who it is */
    READ_PAUSE_US = 5 * 1000,
    RETRY_US_FIRST = 5 * 1000,
    RETRY_US_MAX = 100 * 1000,
    TAG_BYTES_MAX = 8 * 1024,
};

typedef struct file_lock {
    named_lock base;
    int fd; /* owned, locked */
    dev_t dev;
    ino_t ino;
    char *directory, *path; /* owned */
    char *name;             /* owned */
    weir_store *store;      /* owned; NULL: not initialised */
} file_lock;

static file_lock *lock_file_of(named_lock *base)
{
    return (file_lock *)(void *)base;
}

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a lock");
}

static weir_status file_failed(const char *what, const char *path, weir_error *err)
{
    char text[128];
    const int code = errno;
    /* The GNU form, which always gives a text. */
    const char *why = strerror_r(code, text, sizeof text);
    (void)weir__fail(err, WEIR_EIO, "could not %s \"%s\": %s", what, path, why);
    weir__error_store_code(err, "%d", code);
    return WEIR_EIO;
}

/* ---- where --------------------------------------------------------------------------------- */

static int path_judging(const store_url *url)
{
    return url->options.insecure ? FILE_INSECURE : 0;
}

/* Of a file that could not be opened, with errno. */
static weir_status not_opened(const char *path, int flags, weir_error *err)
{
    const int code = errno;
    const weir_status refused = weir__file_open_judge(code, path, flags, err);
    errno = code;
    return refused != WEIR_OK ? refused : file_failed("open", path, err);
}

/* The directory of the locks of a database: one for all the ways to write its path. A database with
 * a second name would have two. */
static weir_status directory_of(const store_url *url, char **out, weir_error *err)
{
    char resolved[PATH_MAX], parent[PATH_MAX];
    const char *path = url->options.path.ptr;
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    weir_buffer text = { 0 };
    weir_status status = weir__file_judge_given(path, path_judging(url), err);
    if (status != WEIR_OK) {
        return status;
    }
    if (realpath(path, resolved) != NULL) {
        name = "";
        status = weir__file_judge_name(resolved, FILE_ONE_NAME | path_judging(url), err);
        if (status != WEIR_OK) {
            return status;
        }
    } else if (errno != ENOENT) {
        return file_failed("find", path, err);
    } else {
        /* There is no database yet: where it would be. */
        const size_t len = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
        (void)snprintf(parent, sizeof parent, "%.*s", (int)len, slash == NULL ? "." : path);
        if (realpath(parent, resolved) == NULL) {
            return file_failed("find", parent, err);
        }
    }
    if (!weir__buffer_add_text(&text, resolved) ||
        !weir__buffer_add_text(&text, name[0] == '\0' || strcmp(resolved, "/") == 0 ? "" : "/") ||
        !weir__buffer_add_text(&text, name) || !weir__buffer_add(&text, "-locks", 7)) {
        weir__buffer_free(&text);
        return no_memory(err);
    }
    *out = text.ptr;
    return weir__file_judge_above(text.ptr, path_judging(url), err);
}

static void hash_text(weir_str name, char out[2 * HASH_BYTES + 1])
{
    uint8_t digest[WEIR_SHA256_BYTES];
    weir_sha256 hash;
    weir__sha256_init(&hash);
    weir__sha256_add(&hash, name.ptr, name.len);
    weir__sha256_end(&hash, digest);
    for (size_t i = 0; i < HASH_BYTES; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}

/* DIRECTORY/HASH, and for who waits something of its own behind it. NULL: out of memory. */
static char *path_of(const char *directory, weir_str name, bool waiting)
{
    char file[2 * HASH_BYTES + 1], own[64] = "";
    weir_buffer text = { 0 };
    hash_text(name, file);
    if (waiting) {
        (void)snprintf(own, sizeof own, ".%ld.%08llx", (long)getpid(),
                       (unsigned long long)(weir__random_u64() & UINT32_MAX));
    }
    if (!weir__buffer_add_text(&text, directory) || !weir__buffer_add_text(&text, "/") ||
        !weir__buffer_add_text(&text, file) || !weir__buffer_add_text(&text, own) ||
        !weir__buffer_add(&text, "", 1)) {
        weir__buffer_free(&text);
        return NULL;
    }
    return text.ptr;
}

/* Opens the directory, and makes it if that is asked for. *fd -1: there is none. */
static weir_status directory_open(const store_url *url, const char *path, bool make, int *fd,
                                  weir_error *err)
{
    const int flags = FILE_DIRECTORY | path_judging(url);
    bool made = false;
    *fd = weir__file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    for (int i = 0; i < OPENS_MAX && *fd < 0 && errno == ENOENT && make; i++) {
        made = mkdir(path, 0775) == 0;
        if (!made && errno != EEXIST) {
            return file_failed("make", path, err);
        }
        *fd = weir__file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    }
    if (*fd < 0) {
        return errno == ENOENT && !make ? WEIR_OK : not_opened(path, flags, err);
    }
    const weir_status status = weir__file_judge(*fd, path, flags, err);
    if (status == WEIR_OK && made) {
        weir__file_match(*fd, url->options.path.ptr);
    } else if (status != WEIR_OK) {
        (void)close(*fd);
        *fd = -1;
    }
    return status;
}

static const char *name_in(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* Opens or makes a file in the directory, and the directory. */
static weir_status open_made(const store_url *url, const char *directory, const char *path, int *fd,
                             weir_error *err)
{
    int code = ENOENT;
    *fd = -1;
    for (int i = 0; i < OPENS_MAX && *fd < 0 && (code == ENOENT || code == EEXIST); i++) {
        int at = -1;
        const weir_status status = directory_open(url, directory, true, &at, err);
        if (status != WEIR_OK) {
            return status;
        }
        *fd = weir__file_open(at, name_in(path), O_RDWR, 0);
        if (*fd < 0 && errno == ENOENT) {
            *fd = weir__file_open(at, name_in(path), O_RDWR | O_CREAT | O_EXCL, 0664);
            if (*fd >= 0) {
                weir__file_match(*fd, url->options.path.ptr);
            }
        }
        code = errno;
        (void)close(at);
    }
    errno = code;
    const int flags = FILE_ONE_NAME | path_judging(url);
    const weir_status status =
        *fd < 0 ? not_opened(path, flags, err) : weir__file_judge(*fd, path, flags, err);
    if (status != WEIR_OK && *fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
    return status;
}

/* ---- locking ------------------------------------------------------------------------------- */

static bool lock_file(int fd)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

static bool is_locked(int fd)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

static bool is_at(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

static bool tag_write(int fd, const lock_request *q, int64_t since_us)
{
    const lock_tag tag = { .since_us = since_us, .by = q->holder, .name = q->name };
    weir_buffer text = { 0 };
    const bool ok = ftruncate(fd, 0) == 0 && weir__lock_tag_add(&text, &tag) &&
                    pwrite(fd, text.ptr, text.len, 0) == (ssize_t)text.len;
    weir__buffer_free(&text);
    return ok;
}

static bool tag_read(int fd, weir_arena *arena, lock_tag *tag)
{
    static char text[TAG_BYTES_MAX]; /* one thread */
    const ssize_t len = pread(fd, text, sizeof text, 0);
    *tag = (lock_tag){ 0 };
    return weir__lock_tag_read((weir_str){ .ptr = text, .len = len < 0 ? 0 : (size_t)len }, arena,
                               tag);
}

/* One attempt. WEIR_EHELD without words; *fd: locked, and what others find there. */
static weir_status try_lock(const store_url *url, const file_lock *l, int *fd, weir_error *err)
{
    for (int i = 0; i < OPENS_MAX; i++) {
        const weir_status status = open_made(url, l->directory, l->path, fd, err);
        if (status != WEIR_OK) {
            return status;
        }
        const bool locked = lock_file(*fd);
        if (locked && is_at(*fd, l->path)) {
            return WEIR_OK;
        }
        const int code = errno;
        (void)close(*fd);
        *fd = -1;
        if (!locked) {
            errno = code;
            return code == EAGAIN || code == EACCES ? WEIR_EHELD
                                                    : file_failed("lock", l->path, err);
        }
    }
    return weir__fail(err, WEIR_EBUSY, "\"%s\" is replaced again and again", l->path);
}

/* EHELD with who it is. WEIR_OK: nobody any more. */
static weir_status say_holder(const file_lock *l, weir_error *err)
{
    weir_arena arena = { 0 };
    lock_tag tag = { 0 };
    bool held = true;
    weir_status status = WEIR_OK;
    for (int i = 0; i < READS_MAX && held && tag.by.len == 0; i++) {
        weir__clock_pause(i == 0 ? 0 : READ_PAUSE_US);
        const int fd = weir__file_open(AT_FDCWD, l->path, O_RDONLY, 0);
        held = fd >= 0 && is_locked(fd);
        if (held && !tag_read(fd, &arena, &tag)) {
            status = no_memory(err);
            held = false;
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (held) {
        status = weir__lock_fail_held(
            weir__str(l->name), tag.by.len > 0 ? tag.by : weir__str("somebody"), tag.since_us, err);
    }
    weir__arena_free(&arena);
    return status;
}

/* *out NULL: there is none. */
static weir_status directory_read(const store_url *url, const char *path, DIR **out,
                                  weir_error *err)
{
    int fd = -1;
    weir_status status = directory_open(url, path, false, &fd, err);
    *out = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && *out == NULL) {
        status = file_failed("read", path, err);
        (void)close(fd);
    }
    return status;
}

/* What those who died while they waited have left. One who is just about to lock its file loses it,
 * and is not listed. */
static void waiters_sweep(const store_url *url, const char *path)
{
    DIR *directory = NULL;
    (void)directory_read(url, path, &directory, NULL);
    const struct dirent *entry;
    /* This thread alone reads this directory. */
    while (directory != NULL &&
           (entry = readdir(directory)) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        const bool waiter = entry->d_name[0] != '.' && strchr(entry->d_name, '.') != NULL;
        const int fd = waiter ? weir__file_open(dirfd(directory), entry->d_name, O_RDONLY, 0) : -1;
        if (fd >= 0 && !is_locked(fd)) {
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

/* A file that says that somebody waits. -1: it could not be made, which costs nothing but that
 * nobody sees it. */
static int waiter_open(const store_url *url, const file_lock *l, const lock_request *q, char **path)
{
    *path = path_of(l->directory, q->name, true);
    if (*path == NULL) {
        return -1;
    }
    int fd = -1;
    waiters_sweep(url, l->directory);
    if (open_made(url, l->directory, *path, &fd, NULL) == WEIR_OK && lock_file(fd)) {
        (void)tag_write(fd, q, weir__clock_wall(weir__clock_machine()));
    }
    return fd;
}

static void waiter_close(int fd, char *path)
{
    if (fd >= 0) {
        (void)unlink(path);
        (void)close(fd);
    }
    weir__free(path);
}

static weir_status wait_lock(const store_url *url, file_lock *l, const lock_request *q,
                             weir_error *err)
{
    const int64_t start_us = weir__clock_boot();
    int64_t pause_us = RETRY_US_FIRST;
    char *path = NULL;
    int waiter = -1;
    weir_status status;
    for (;;) {
        status = try_lock(url, l, &l->fd, err);
        if (status != WEIR_EHELD) {
            break;
        }
        const int64_t left_us =
            q->wait_us < 0 ? INT64_MAX : q->wait_us - (weir__clock_boot() - start_us);
        if (left_us <= 0) {
            status = say_holder(l, err);
            if (status != WEIR_OK) {
                break;
            }
            continue; /* it is free */
        }
        if (path == NULL) {
            waiter = waiter_open(url, l, q, &path);
        }
        weir__clock_pause(weir__lock_least(left_us, pause_us));
        pause_us = weir__lock_least(pause_us + pause_us / 4, RETRY_US_MAX);
    }
    waiter_close(waiter, path);
    return status;
}

/* ---- the lock ------------------------------------------------------------------------------ */

static int hold_fd(const named_lock *base)
{
    return ((const file_lock *)(const void *)base)->fd;
}

static int poll_fd(const named_lock *base)
{
    (void)base;
    return -1;
}

static weir_status holder_watch(named_lock *base, int64_t now_us, weir_error *err)
{
    file_lock *l = lock_file_of(base);
    if (!is_at(l->fd, l->path)) {
        return weir__lock_fail_lost("the locked file was removed or replaced", err);
    }
    base->due_us = now_us + base->check_us / LOCK_CHECKS;
    base->known_us = INT64_MAX; /* it stays locked, whatever becomes of us */
    return WEIR_OK;
}

static void lock_free(file_lock *l)
{
    if (l->store != NULL) {
        l->store->about->close(l->store);
    }
    if (l->fd >= 0) {
        /* A process that finds no file makes a new one, and does not see that this is locked. */
        if (!l->base.left && is_at(l->fd, l->path)) {
            (void)unlink(l->path);
        }
        (void)close(l->fd);
        (void)rmdir(l->directory); /* not if there are others */
    }
    weir__free(l->directory);
    weir__free(l->path);
    weir__free(l->name);
    weir__free(l);
}

static void file_release(named_lock *base)
{
    file_lock *l = lock_file_of(base);
    if (l->store != NULL && !base->left) {
        (void)l->store->locks->release(l->store, weir__str(l->name), base->fence, base->token,
                                       NULL);
    }
    lock_free(l);
}

static const lock_ops file_ops = {
    .hold_fd = hold_fd, .poll_fd = poll_fd, .watch = holder_watch, .release = file_release
};

static weir_status take_fence(const store_url *url, file_lock *l, const lock_request *q,
                              weir_error *err)
{
    weir_arena arena = { 0 };
    store_lock taken = { 0 };
    weir_status status = weir__lock_store(url, WEIR_OPEN_EXISTING, &l->store, err);
    if (status == WEIR_OK && l->store != NULL) {
        status = l->store->locks->take(l->store,
                                       &(store_lock_request){ STORE_LOCK, q->name, q->holder, 0 },
                                       &arena, &taken, err);
        l->base.fence = status == WEIR_OK ? taken.fence : 0;
        l->base.token = status == WEIR_OK ? taken.token : 0;
    }
    weir__arena_free(&arena);
    return status;
}

weir_status weir__lock_file(named_lock **out, store_url *url, const lock_request *q,
                            weir_error *err)
{
    file_lock *l = weir__calloc(1, sizeof *l);
    if (l == NULL) {
        return no_memory(err);
    }
    l->base = (named_lock){ .ops = &file_ops,
                            .kind = LOCK_FILE,
                            .check_us = q->check_us,
                            .grace_us = q->grace_us,
                            .known_us = INT64_MAX };
    l->fd = -1;
    l->name = weir__strndup(q->name.ptr, q->name.len);
    weir_status status = directory_of(url, &l->directory, err);
    if (status == WEIR_OK) {
        l->path = path_of(l->directory, q->name, false);
        status = l->path == NULL || l->name == NULL ? no_memory(err) : wait_lock(url, l, q, err);
    }
    if (status == WEIR_OK && !tag_write(l->fd, q, weir__clock_wall(weir__clock_machine()))) {
        status = file_failed("write", l->path, err);
    }
    if (status == WEIR_OK) {
        status = take_fence(url, l, q, err);
    }
    if (status != WEIR_OK) {
        lock_free(l);
        return status;
    }
    *out = &l->base;
    return WEIR_OK;
}

/* ---- who holds what ------------------------------------------------------------------------ */

static weir_status entry_add(int directory, const char *file, lock_list *list, size_t *capacity,
                             weir_error *err)
{
    lock_tag tag = { 0 };
    weir_status status = WEIR_OK;
    const int fd = weir__file_open(directory, file, O_RDONLY, 0);
    if (fd < 0) {
        return WEIR_OK; /* gone, or somebody else's */
    }
    if (is_locked(fd)) {
        if (!tag_read(fd, &list->arena, &tag)) {
            status = no_memory(err);
        } else if (tag.name.len > 0) {
            const lock_row row = { .name = tag.name,
                                   .holder = tag.by,
                                   .kind = LOCK_FILE,
                                   .waiting = strchr(file, '.') != NULL,
                                   .since_us = tag.since_us };
            status = weir__lock_list_add(list, capacity, &row, err);
        }
    }
    (void)close(fd);
    return status;
}

static weir_status directory_list(const store_url *url, const char *path, lock_list *list,
                                  size_t *capacity, weir_error *err)
{
    DIR *directory = NULL;
    weir_status status = directory_read(url, path, &directory, err);
    if (directory == NULL) {
        return status;
    }
    const struct dirent *entry;
    /* This thread alone reads this directory. */
    while (status == WEIR_OK &&
           (entry = readdir(directory)) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        if (entry->d_name[0] != '.') {
            status = entry_add(dirfd(directory), entry->d_name, list, capacity, err);
        }
    }
    (void)closedir(directory);
    return status;
}

weir_status weir__lock_file_list(const store_url *url, lock_list *list, weir_error *err)
{
    char *path = NULL;
    weir_store *store = NULL;
    size_t capacity = 0;
    weir_status status = directory_of(url, &path, err);
    if (status == WEIR_OK) {
        status = directory_list(url, path, list, &capacity, err);
    }
    if (status == WEIR_OK && list->rows_count > 0) {
        status = weir__lock_store(url, WEIR_OPEN_READONLY, &store, err);
    }
    if (status == WEIR_OK && store != NULL) {
        status = weir__lock_list_store(list, &capacity, store, false, err);
    }
    if (store != NULL) {
        store->about->close(store);
    }
    weir__free(path);
    return status;
}
