/* backup.c - a copy of a store in one file, while others go on writing.
 *
 * SQLite's backup API copies pages. The reading connection stays in one read transaction for all of
 * it, so the copy is the store at one moment, and no write of others makes it begin again; the WAL
 * grows meanwhile. VACUUM INTO would do the same in one statement, without telling how far it is,
 * and would rewrite what it copies. The copy gets a mark that no store has (seal.c), so that it is
 * recognised when someone copies it over a store by hand.
 *
 * The copy is made under another name in the same directory, checked, synced, and only then
 * renamed: a file under the name of the backup is always complete. Who makes it has a lock on it
 * (flock, which SQLite does not use), so the next backup of that name can tell what a killed one
 * has left, and removes it.
 */
#define _GNU_SOURCE /* renameat2 */

#include "store/sqlite/backup.h"

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/str.h"
#include "store/store_backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKUP_STEP_PAGES = 512, PART_DIGITS = 16 };

static const char part_infix[] = ".part-";

char *weir__backup_name(const char *path, const char *suffix)
{
    weir_buffer name = { 0 };
    if (!weir__buffer_add_text(&name, path) ||
        !weir__buffer_add(&name, suffix, strlen(suffix) + 1)) {
        weir__buffer_free(&name);
    }
    return name.ptr;
}

weir_status weir__backup_make(const char *file, const char *like, weir_error *err)
{
    const int fd = weir__file_open(AT_FDCWD, file, O_RDWR | O_CREAT | O_EXCL, 0644);
    if (fd < 0) {
        return weir__sqlite_file_fail(err, errno, "create", file);
    }
    weir__file_match(fd, like);
    (void)close(fd); /* SQLite has no lock on it yet */
    return WEIR_OK;
}

static weir_status sync_path(const char *path, int flags, weir_error *err)
{
    const int fd = open(path, flags | O_CLOEXEC);
    const bool done = fd >= 0 && fsync(fd) == 0;
    const int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    return done ? WEIR_OK : weir__sqlite_file_fail(err, code, "sync", path);
}

weir_status weir__backup_sync(const char *file, weir_error *err)
{
    return sync_path(file, O_RDONLY, err);
}

/* Owned. NULL: out of memory. */
static char *directory_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash == NULL ? weir__strndup(".", 1) : weir__strndup(file, (size_t)(slash - file) + 1);
}

weir_status weir__backup_sync_directory(const char *file, weir_error *err)
{
    char *directory = directory_of(file);
    const weir_status status = directory == NULL
                                   ? weir__fail(err, WEIR_ENOMEM, "could not allocate a name")
                                   : sync_path(directory, O_RDONLY | O_DIRECTORY, err);
    weir__free(directory);
    return status;
}

enum { SUFFIXES = 5 };
static const char *const suffixes_beside[SUFFIXES] = { "", "-journal", "-wal", "-shm", "-weir" };

void weir__backup_remove(const char *file)
{
    for (size_t i = 0; i < SUFFIXES; i++) {
        char *name = weir__backup_name(file, suffixes_beside[i]);
        if (name != NULL) {
            (void)unlink(name);
        }
        weir__free(name);
    }
}

/* A connection to a file that is nobody else's. */
static weir_status own_open(sqlite_conn *conn, const char *file, const char *vfs, weir_error *err)
{
    const int rc =
        sqlite3_open_v2(file, &conn->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs);
    if (rc != SQLITE_OK) {
        return weir__sqlite_fail(conn, rc, err, "open the copy");
    }
    (void)sqlite3_extended_result_codes(conn->db, 1);
    return weir__sqlite_exec(conn, "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY", err);
}

static weir_status copy_pages(sqlite_conn *from, sqlite_conn *to, const backup_progress *progress,
                              weir_error *err)
{
    sqlite3_backup *backup = sqlite3_backup_init(to->db, "main", from->db, "main");
    int rc = backup == NULL ? sqlite3_extended_errcode(to->db) : SQLITE_OK;
    while (rc == SQLITE_OK) {
        rc = sqlite3_backup_step(backup, BACKUP_STEP_PAGES);
        const int64_t total = sqlite3_backup_pagecount(backup);
        if (progress->fn != NULL && (rc == SQLITE_OK || rc == SQLITE_DONE)) {
            progress->fn(progress->ctx, total - sqlite3_backup_remaining(backup), total);
        }
    }
    const weir_status status =
        rc == SQLITE_DONE ? WEIR_OK
                          : weir__sqlite_fail(&(sqlite_conn){ 0 }, rc, err, "copy the store");
    if (backup != NULL) {
        (void)sqlite3_backup_finish(backup); /* repeats the failure that step has reported */
    }
    return status;
}

/* SQLite's own check of every page. */
static weir_status check_copy(sqlite_conn *conn, weir_error *err)
{
    static const char sql_check[] = "PRAGMA integrity_check(1)";
    sqlite_cursor cursor = weir__cursor_open(conn, sql_check, err);
    if (weir__cursor_next(&cursor)) {
        const weir_str text = weir__cursor_text(&cursor, 0);
        if (!weir__str_equal(text, weir__str("ok"))) {
            weir__cursor_fail(&cursor,
                              weir__fail(err, WEIR_ECORRUPT, "the database is damaged: %.*s",
                                         (int)(text.len < 200 ? text.len : 200), text.ptr));
            weir__error_detail(err, SQLITE_DAMAGED_DETAIL);
        }
    }
    return weir__cursor_end(&cursor);
}

weir_status weir__backup_copy(sqlite_conn *from, const char *file, const char *vfs,
                              const backup_progress *progress, weir_error *err)
{
    sqlite_conn to = { 0 };
    weir_status status = own_open(&to, file, vfs, err);
    if (status == WEIR_OK) {
        status = copy_pages(from, &to, progress, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_exec(&to, "PRAGMA journal_mode=DELETE", err);
    }
    if (status == WEIR_OK) {
        status = check_copy(&to, err);
    }
    weir__sqlite_conn_close(&to);
    return status;
}

weir_status weir__backup_exec(const char *file, const char *vfs, const char *sql, weir_error *err)
{
    sqlite_conn conn = { 0 };
    weir_status status = own_open(&conn, file, vfs, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_exec(&conn, sql, err);
    }
    weir__sqlite_conn_close(&conn);
    return status;
}

static weir_status refuse_existing(const char *file, weir_error *err)
{
    const weir_status status = weir__fail(err, WEIR_EINVAL, "\"%s\" is there already", file);
    weir__error_detail(err, "Choose another name, or replace it: WEIR_BACKUP_REPLACE.");
    return status;
}

/* Not even to be replaced: a device, a pipe, a directory, a link. */
static weir_status refuse_special(const char *file, weir_error *err)
{
    const weir_status status = weir__fail(err, WEIR_EINVAL, "\"%s\" is not a regular file", file);
    weir__error_detail(err, "It was left as it is. Choose another name.");
    return status;
}

/* SQLite would mix the copy with a log that was left under this name. */
static weir_status check_no_log(const char *file, weir_error *err)
{
    static const char *const suffixes[] = { "-wal", "-journal" };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0] && status == WEIR_OK; i++) {
        struct stat st;
        char *log = weir__backup_name(file, suffixes[i]);
        if (log == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a name");
        } else if (lstat(log, &st) == 0 && st.st_size > 0) {
            status = weir__fail(err, WEIR_EINVAL, "\"%s\" belongs to another file", log);
            weir__error_detail(err, "It holds what was written to a store of this name that was "
                                    "not closed. Choose another name, or move both files away.");
        }
        weir__free(log);
    }
    return status;
}

/* Whether a name leads to the store's own files. */
static bool is_own_file(const sqlite_store *s, const char *file)
{
    struct stat st;
    if (stat(file, &st) != 0) {
        return false;
    }
    bool own = s->side.fd >= 0 && st.st_dev == s->side.dev && st.st_ino == s->side.ino;
    for (size_t i = 0; i < SQLITE_FILES_COUNT; i++) {
        const sqlite_file *f = &s->files[i];
        own = own || (f->name != NULL && f->dev == st.st_dev && f->ino == st.st_ino);
    }
    return own;
}

/* Whether the rest of a name is that of a copy in the making, or of a file beside one. */
static bool is_part(const char *rest)
{
    if (strncmp(rest, part_infix, strlen(part_infix)) != 0) {
        return false;
    }
    rest += strlen(part_infix);
    if (strspn(rest, "0123456789abcdef") != PART_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < SUFFIXES; i++) {
        if (strcmp(rest + PART_DIGITS, suffixes_beside[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Removes a copy that nobody is making any more. */
static void remove_unused(const char *part)
{
    struct stat st;
    const int fd = weir__file_open(AT_FDCWD, part, O_RDONLY, 0);
    if (fd < 0) {
        if (errno == ENOENT) {
            weir__backup_remove(part); /* only what lies beside it is left */
        }
        return;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        weir__backup_remove(part);
    }
    (void)close(fd);
}

/* What killed backups of this name have left. Best effort. */
static void remove_leftovers(const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *base = slash == NULL ? file : slash + 1;
    const size_t base_len = strlen(base);
    char *directory = directory_of(file);
    DIR *dir = directory == NULL ? NULL : opendir(directory);
    const struct dirent *entry = NULL;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this thread's own */
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, base, base_len) != 0 || !is_part(entry->d_name + base_len)) {
            continue;
        }
        char suffix[sizeof part_infix + PART_DIGITS];
        /* Cut off before the suffix of a file beside it. */
        (void)snprintf(suffix, sizeof suffix, "%s", entry->d_name + base_len);
        char *part = weir__backup_name(file, suffix);
        if (part != NULL) {
            remove_unused(part);
        }
        weir__free(part);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    weir__free(directory);
}

/* A new file for the copy, its name in *made (owned), and a lock on it in *held: to be closed when
 * SQLite has no lock on it any more. */
static weir_status make_part(const char *file, const char *like, char **made, int *held,
                             weir_error *err)
{
    for (;;) {
        struct stat st;
        char suffix[sizeof part_infix + PART_DIGITS];
        (void)snprintf(suffix, sizeof suffix, "%s%016" PRIx64, part_infix, weir__random_u64());
        *made = weir__backup_name(file, suffix);
        if (*made == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "could not allocate the name of the copy");
        }
        const weir_status status = weir__backup_make(*made, like, err);
        if (status != WEIR_OK) {
            return status;
        }
        *held = weir__file_open(AT_FDCWD, *made, O_RDONLY, 0);
        if (*held < 0 && errno != ENOENT) {
            const int code = errno;
            weir__backup_remove(*made);
            return weir__sqlite_file_fail(err, code, "open", *made);
        }
        int rc = *held < 0 ? 0 : flock(*held, LOCK_EX);
        while (rc != 0 && errno == EINTR) {
            rc = flock(*held, LOCK_EX);
        }
        /* Without a lock (a file system may have none) nobody else gets one either. */
        if (*held >= 0 && (rc != 0 || fstat(*held, &st) != 0 || st.st_nlink > 0)) {
            return WEIR_OK;
        }
        /* Another backup took it for a leftover, before it was locked. */
        if (*held >= 0) {
            (void)close(*held);
            *held = -1;
        }
        weir__free(*made);
        *made = NULL;
    }
}

static weir_status give_name(const char *made, const char *file, bool replace, weir_error *err)
{
    int rc =
        replace ? rename(made, file) : renameat2(AT_FDCWD, made, AT_FDCWD, file, RENAME_NOREPLACE);
    if (rc != 0 && !replace && errno == EINVAL) {
        /* The file system does not know this flag. A link does not replace anything either. */
        rc = link(made, file);
        if (rc == 0) {
            (void)unlink(made);
        }
    }
    if (rc != 0) {
        return errno == EEXIST ? refuse_existing(file, err)
                               : weir__sqlite_file_fail(err, errno, "rename the copy to", file);
    }
    return weir__backup_sync_directory(file, err);
}

static weir_status refuse_open(const char *file, weir_error *err)
{
    const weir_status status = weir__fail(err, WEIR_EHELD, "\"%s\" is a store that is open", file);
    weir__error_detail(err, "It was left as it is. Choose another name, or end the programs that "
                            "use it.");
    return status;
}

/* Makes sure that nobody has the file open that is about to be replaced, as a store or otherwise.
 * *out: has its side lock, so that nobody opens it; NULL when there is no such file. Ended by its
 * close. */
static weir_status target_take(const sqlite_store *s, const char *file, sqlite_store **out,
                               weir_error *err)
{
    struct stat st;
    bool taken = false;
    store_options options = s->options;
    options.path = weir__str(file);
    options.open_flags = WEIR_OPEN_READONLY;
    if (stat(file, &st) != 0) {
        return WEIR_OK;
    }
    weir_status status = weir__sqlite_place(out, &options, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_store *target = *out;
    if (weir__sqlite_file_exists(target, "-weir", NULL)) {
        status = weir__side_open(&target->side, target->path, true, err);
        if (status == WEIR_OK) {
            status = weir__side_lock(&target->side, weir__sqlite_deadline(target), err);
        }
        taken = status == WEIR_EBUSY || (status == WEIR_OK && weir__side_others(&target->side));
    }
    taken = taken || weir__sqlite_handle_elsewhere(&s->database, st.st_dev, st.st_ino);
    if (status == WEIR_OK && !taken) {
        status = weir__sqlite_connected(target, &taken, err);
    }
    return taken ? refuse_open(file, err) : status;
}

static void target_give(sqlite_store *target)
{
    if (target != NULL) {
        weir__side_unlock(&target->side);
        target->base.about->close(&target->base);
    }
}

static weir_status copy_store(sqlite_store *s, const char *made, const backup_progress *progress,
                              weir_error *err)
{
    sqlite_conn *conn = NULL;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__backup_copy(conn, made, s->vfs, progress, err);
    weir__sqlite_read_end(s, conn);
    if (status == WEIR_OK) {
        status = weir__backup_exec(
            made, s->vfs, "UPDATE weir_seal SET mark = randomblob(16); PRAGMA journal_mode=WAL",
            err);
    }
    return status == WEIR_OK ? weir__backup_sync(made, err) : status;
}

weir_status weir__sqlite_backup(weir_store *base, const char *file, bool replace,
                                weir_progress_fn fn, void *ctx, weir_error *err)
{
    if (strcmp(base->about->scheme, "sqlite") != 0) {
        return weir__fail(err, WEIR_EMISUSE, "only a store of SQLite is copied into a file");
    }
    sqlite_store *s = sqlite_of(base);
    const backup_progress progress = { .fn = fn, .ctx = ctx };
    struct stat st;
    sqlite_store *target = NULL;
    char *made = NULL;
    int held = -1;

    if (is_own_file(s, file)) {
        return weir__fail(err, WEIR_EINVAL, "\"%s\" is a file of the store itself", file);
    }
    weir_status status = weir__sqlite_path_suffix(file, false, err);
    if (status == WEIR_OK && lstat(file, &st) == 0 && (!replace || !S_ISREG(st.st_mode))) {
        status = S_ISREG(st.st_mode) ? refuse_existing(file, err) : refuse_special(file, err);
    }
    if (status == WEIR_OK) {
        status = target_take(s, file, &target, err);
        target_give(target); /* the copy may take long */
        target = NULL;
    }
    if (status == WEIR_OK) {
        status = check_no_log(file, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    remove_leftovers(file);
    status = make_part(file, s->path, &made, &held, err);
    if (status == WEIR_OK) {
        status = copy_store(s, made, &progress, err);
        if (status == WEIR_OK) {
            status = target_take(s, file, &target, err);
        }
        if (status == WEIR_OK) {
            status = check_no_log(file, err); /* somebody may have used it meanwhile */
        }
        if (status == WEIR_OK) {
            status = give_name(made, file, replace, err);
        }
        target_give(target);
        if (status != WEIR_OK) {
            weir__backup_remove(made);
        }
    }
    if (held >= 0) {
        (void)close(held);
    }
    weir__free(made);
    return status == WEIR_OK ? WEIR_OK : weir__wrap(err, status, "back up \"%s\"", s->given);
}
