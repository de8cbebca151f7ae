/* other_name.c - whether somebody has the database file open under another name.
 *
 * The write-ahead log and the side file belong to a name. Whoever has a file open that was renamed
 * goes on with those of the old name; an opening under the new name would begin a second log on top
 * of the same file. Only the locks on the file itself tell: every connection in WAL mode keeps the
 * file locked (SHARED), and the -shm beside the name that it was opened under (DMS). A file that
 * others have locked, beside a -shm that they have not, is open under another name.
 *
 * INVARIANTS
 *   (1) Locks are asked for through descriptors that SQLite has open, and SQLite opens and closes
 *       them: closing one of our own would end all locks of this process on that file.
 *   (2) Nothing is made: a -shm is mapped only if there is one.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/sqlite_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Where SQLite locks (os_unix.c); part of its file format. */
    SHARED_FIRST = 0x40000002,
    SHARED_BYTES = 510,
    DMS_BYTE = 128, /* in the -shm */
    SHM_REGION_BYTES = 32 * 1024,
    READ_VERSION_AT = 19, /* in the header of the database */
    READ_VERSION_WAL = 2,
    /* Others who are just opening or closing it have one of the two locks for a moment. */
    LOOKS_MAX = 25,
    LOOK_PAUSE_US = 10 * 1000,
};

typedef enum found_lock {
    LOCK_NONE,
    LOCK_SHARED,
    LOCK_EXCLUSIVE,
    LOCK_UNKNOWN, /* this process has no descriptor of the file */
} found_lock;

static bool is_file(int fd, const struct stat *file)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
}

/* What other processes have locked in a file that SQLite has open here. *pid: one of them. */
static found_lock lock_of_others(const struct stat *file, off_t start, off_t bytes, pid_t *pid)
{
    struct rlimit limit = { 0 };
    const int fds = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT32_MAX
                        ? (int)limit.rlim_cur
                        : INT32_MAX;
    /* SQLite does not tell which descriptor it is. Any of this file will do; one that another
     * thread closes meanwhile is looked at again afterwards. */
    for (int fd = 0; fd < fds; fd++) {
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes
        };
        if (is_file(fd, file) && fcntl(fd, F_GETLK, &lock) == 0 && is_file(fd, file)) {
            *pid = lock.l_pid;
            return lock.l_type == F_UNLCK   ? LOCK_NONE
                   : lock.l_type == F_RDLCK ? LOCK_SHARED
                                            : LOCK_EXCLUSIVE;
        }
    }
    return LOCK_UNKNOWN;
}

/* Whether another process has the -shm beside this name open. */
static bool is_open_here(const sqlite_store *s, sqlite3_file *file)
{
    weir_buffer name = { 0 };
    struct stat st = { 0 };
    pid_t pid = 0;
    bool open_here = false;
    void volatile *region = NULL;
    const bool there = weir__buffer_add_text(&name, s->path) &&
                       weir__buffer_add(&name, "-shm", sizeof "-shm") && stat(name.ptr, &st) == 0;
    weir__buffer_free(&name);
    if (there && file->pMethods->iVersion >= 2 && file->pMethods->xShmMap != NULL) {
        /* Whatever it says: the file is open then, or the look finds no descriptor of it. */
        (void)file->pMethods->xShmMap(file, 0, SHM_REGION_BYTES, 0, &region);
        open_here = lock_of_others(&st, DMS_BYTE, 1, &pid) != LOCK_NONE;
        (void)file->pMethods->xShmUnmap(file, 0);
    }
    return open_here;
}

/* Without a WAL, readers have no -shm. */
static bool has_wal_mode(sqlite3_file *file)
{
    unsigned char version = 0;
    return file->pMethods->xRead(file, &version, 1, READ_VERSION_AT) == SQLITE_OK &&
           version == READ_VERSION_WAL;
}

static weir_status refuse_renamed(const sqlite_store *s, pid_t pid, weir_error *err)
{
    char who[48] = "somebody";
    if (pid > 0) {
        (void)snprintf(who, sizeof who, "process %ld", (long)pid);
    }
    const weir_status status = weir__fail(
        err, WEIR_EHELD, "\"%s\" was renamed: %s has it open under another name", s->given, who);
    weir__error_detail(err,
                       "What was committed last is in the -wal file beside the old name. "
                       "Rename it back, or end %s, then move all files of the store together.",
                       who);
    return status;
}

weir_status weir__sqlite_connected(sqlite_store *s, bool *connected, weir_error *err)
{
    sqlite_conn conn = { 0 };
    struct stat st;
    pid_t pid = 0;
    weir_status status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_PEEK, &conn, err);
    if (status == WEIR_OK) {
        *connected = stat(s->path, &st) == 0 &&
                     lock_of_others(&st, SHARED_FIRST, SHARED_BYTES, &pid) != LOCK_NONE;
    }
    weir__sqlite_conn_close(&conn);
    return status;
}

weir_status weir__sqlite_refuse_renamed(sqlite_store *s, weir_error *err)
{
    sqlite_conn conn = { 0 };
    sqlite3_file *file = NULL;
    struct stat st;
    if (stat(s->path, &st) != 0 || st.st_size == 0) {
        return WEIR_OK;
    }
    if (weir__sqlite_handle_elsewhere(&s->database, st.st_dev, st.st_ino)) {
        return refuse_renamed(s, getpid(), err);
    }
    weir_status status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_PEEK, &conn, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "open \"%s\"", s->given);
    }
    if (sqlite3_file_control(conn.db, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK &&
        file != NULL && file->pMethods != NULL && has_wal_mode(file)) {
        pid_t pid = 0;
        bool renamed = true;
        for (int i = 0; i < LOOKS_MAX && renamed; i++) {
            weir__clock_pause(i == 0 ? 0 : LOOK_PAUSE_US);
            renamed = lock_of_others(&st, SHARED_FIRST, SHARED_BYTES, &pid) == LOCK_SHARED &&
                      !is_open_here(s, file);
        }
        status = renamed ? refuse_renamed(s, pid, err) : WEIR_OK;
    }
    weir__sqlite_conn_close(&conn);
    return status;
}
