/* restore.c - putting a backup in the place of a store.
 *
 * Everything that can fail because of the backup happens in a copy beside the store, first: it is
 * checked, upgraded, and given a new epoch, so that positions, leases and fences of the log it
 * replaces are refused. Then, under the side lock, with nobody else having the store open:
 *
 *     the side file says "being restored"      from here on nobody opens the store
 *     PATH-wal, PATH  ->  PATH.before-TIME     kept; the name is in the side file
 *     the copy        ->  PATH
 *     the side file has the mark of the copy   from here on everybody does
 *
 * Each step is on the disk before the next. A crash in the middle leaves a store that refuses to
 * open and says so; restoring again makes another copy, and goes on to move the files to the name
 * that was chosen first.
 */
#define _GNU_SOURCE /* F_OFD_GETLK */

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/str.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/seal.h"
#include "store/store_backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Where SQLite has its shared locks in a database file: every connection holds one. */
    SHARED_FIRST = 0x40000000 + 2,
    SHARED_SIZE = 510,
    KEPT_NAMES_MAX = 1000,
};

static weir_status refuse_open(const sqlite_store *s, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_EHELD, "\"%s\" is open in another process", s->given);
    weir__error_detail(err, "Nothing was changed. End the programs that use the store, then "
                            "restore it.");
    return status;
}

/* Whether any program has a connection to the database. This process has none. */
static bool is_connected(const sqlite_store *s)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SHARED_FIRST, .l_len = SHARED_SIZE
    };
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    const bool connected = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (fd >= 0) {
        (void)close(fd);
    }
    return connected;
}

static weir_status take_alone(sqlite_store *s, weir_error *err)
{
    weir_status status = weir__side_open(&s->side, s->path, false, err);
    if (status == WEIR_OK) {
        status = weir__side_lock(&s->side, weir__sqlite_deadline(s), err);
    }
    if (status == WEIR_EBUSY) {
        return refuse_open(s, err);
    }
    if (status == WEIR_OK && (weir__side_others(&s->side) || is_connected(s))) {
        status = refuse_open(s, err);
    }
    return status;
}

/* Whether the WAL beside the backup belongs to it. A backup that was copied over a store that had
 * one would be mixed with that. */
static weir_status source_check(sqlite_store *source, weir_error *err)
{
    bool had_wal = false;
    if (!weir__sqlite_file_exists(source, "-weir", NULL)) {
        return WEIR_OK;
    }
    weir_status status = weir__side_open(&source->side, source->path, true, err);
    if (status == WEIR_OK) {
        status = weir__seal_check(source, &had_wal, err);
    }
    if (status == WEIR_ECORRUPT) {
        status = weir__wrap(err, WEIR_EMISUSE, "it is not complete");
        weir__error_detail(err,
                           "Nothing was changed. Restore another backup; or, to restore this file "
                           "without \"%s-wal\", move that away, keep it, and restore again.",
                           source->given);
    }
    return status;
}

/* As a store is: nobody else can have prepared what is read, or change it. It may have other names,
 * as copies of a backup program do. */
static weir_status source_judge(const sqlite_store *source, weir_error *err)
{
    static const char *const beside[] = { "", "-journal", "-wal", "-shm" };
    const int flags = source->options.insecure ? FILE_INSECURE : 0;
    weir_status status = weir__file_judge_above(source->path, flags, err);
    for (size_t i = 0; i < sizeof beside / sizeof beside[0] && status == WEIR_OK; i++) {
        char *name = weir__backup_name(source->path, beside[i]);
        status = name == NULL ? weir__fail(err, WEIR_ENOMEM, "could not allocate a name")
                              : weir__file_judge_name(name, flags, err);
        weir__free(name);
    }
    return status;
}

/* The backup, as a connection that changes nothing: not even files beside it, unless it has a WAL,
 * which then belongs to it. */
static weir_status source_open(const store_options *options, const char *file, sqlite_store **out,
                               weir_error *err)
{
    store_options o = *options;
    bool has_wal = false;
    o.path = weir__str(file);
    o.open_flags = WEIR_OPEN_READONLY;
    weir_status status = weir__sqlite_place(out, &o, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_store *source = *out;
    struct stat st;
    if (stat(source->path, &st) != 0) {
        return weir__fail(err, WEIR_ENOTFOUND, "there is no file \"%s\"", file);
    }
    if (!S_ISREG(st.st_mode)) {
        return weir__fail(err, WEIR_EINVAL, "it is not a regular file");
    }
    (void)weir__sqlite_file_exists(source, "-wal", &has_wal);
    if (st.st_size == 0 && !has_wal) {
        return weir__fail(err, WEIR_EINVAL, "the file is empty");
    }
    status = source_judge(source, err);
    if (status == WEIR_OK && has_wal) {
        status = source_check(source, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    source->database.immutable = !has_wal;
    return weir__sqlite_conn_open(&source->database, SQLITE_ROLE_READER, &source->readers[0], err);
}

static weir_status refuse_finding(const char *rule, const char *text, weir_error *err)
{
    return weir__fail(err, WEIR_ECORRUPT, "the store in it is damaged: %s: %s", rule, text);
}

typedef struct first_finding {
    weir_status status;
    weir_error *err;
} first_finding;

static void note_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    first_finding *first = ctx;
    (void)advice;
    if (first->status == WEIR_OK) {
        first->status = refuse_finding(rule, text, first->err);
    }
}

/* Opens the copy as a store, which upgrades it, checks all of it, and gives it a new epoch: it is
 * another log now. */
static weir_status make_own(const store_options *options, const char *copy, weir_error *err)
{
    store_options o = *options;
    weir_store *store = NULL;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    char sql[200];
    char epoch[WEIR_UUID_TEXT_BYTES];
    first_finding first = { .err = err };

    o.path = weir__str(copy);
    o.open_flags = WEIR_OPEN_EXISTING;
    weir_status status = weir__sqlite_open(&store, &o, err);
    if (status == WEIR_EINVAL || status == WEIR_ENOTFOUND) { /* about a name that nobody gave */
        return weir__fail(err, WEIR_EINVAL, "there is no store in it");
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = store->about->check(store, note_finding, &first, err);
    if (status == WEIR_OK) {
        status = first.status;
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_write_begin(sqlite_of(store), SQLITE_TX_DURABLE, &conn, &now_us, err);
    }
    if (status == WEIR_OK) {
        weir__uuid7(now_us, epoch);
        (void)snprintf(sql, sizeof sql,
                       "UPDATE weir_store SET epoch = '%s';"
                       "UPDATE weir_seal SET mark = randomblob(16);",
                       epoch);
        status = weir__sqlite_exec(conn, sql, err);
        status = weir__sqlite_write_end(sqlite_of(store), status, false, err);
    }
    store->about->close(store);
    return status;
}

/* The copy beside the store: complete, checked, its own log. */
static weir_status make_copy(sqlite_store *s, const store_options *options, const char *file,
                             const char *copy, const backup_progress *progress, weir_error *err)
{
    sqlite_store *source = NULL;
    weir__backup_remove(copy); /* of a restore that was interrupted */
    weir_status status = source_open(options, file, &source, err);
    if (status == WEIR_OK) {
        status = weir__backup_make(copy, s->path, err);
    }
    if (status == WEIR_OK) {
        status = weir__backup_copy(&source->readers[0], copy, s->vfs, progress, err);
    }
    if (source != NULL) {
        source->base.about->close(&source->base);
    }
    if (status == WEIR_OK) {
        status = make_own(options, copy, err);
    }
    /* Empties its WAL: it is about to be renamed without its side files. */
    if (status == WEIR_OK) {
        status = weir__backup_exec(copy, s->vfs,
                                   "PRAGMA journal_mode=DELETE; PRAGMA journal_mode=WAL", err);
    }
    return status == WEIR_OK ? weir__backup_sync(copy, err) : status;
}

static weir_status file_rename(const char *from, const char *to, weir_error *err)
{
    return rename(from, to) == 0 || errno == ENOENT
               ? WEIR_OK
               : weir__sqlite_file_fail(err, errno, "rename", from);
}

static bool is_there(const char *path, const char *suffix)
{
    struct stat st;
    char *name = weir__backup_name(path, suffix);
    const bool there = name != NULL && lstat(name, &st) == 0;
    weir__free(name);
    return there;
}

/* The files of a store. The database goes last: once it is away, so are the others. */
static const char *const suffixes[] = { "-wal", "-shm", "-journal", "" };
enum { SUFFIXES_COUNT = sizeof suffixes / sizeof suffixes[0] };

static bool is_any_there(const char *path)
{
    bool there = false;
    for (size_t i = 0; i < SUFFIXES_COUNT; i++) {
        there = there || is_there(path, suffixes[i]);
    }
    return there;
}

/* PATH.before-20261118T031500Z, the first one of which there is nothing. */
static char *name_new(const sqlite_store *s, seal_restore *now)
{
    char stamp[20];
    struct tm parts;
    const time_t at = time(NULL);
    if (gmtime_r(&at, &parts) == NULL ||
        strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &parts) == 0) {
        return NULL;
    }
    for (int i = 1; i < KEPT_NAMES_MAX; i++) {
        (void)snprintf(now->kept, sizeof now->kept, i == 1 ? ".before-%s" : ".before-%s-%d", stamp,
                       i);
        char *name = weir__backup_name(s->path, now->kept);
        if (name == NULL || !is_any_there(name)) {
            return name;
        }
        weir__free(name);
    }
    return NULL;
}

/* The name under which the files that are there are kept. A restore that was interrupted is
 * continued with the name it had chosen, so that a database and its WAL stay together. If it had
 * moved all of them, its copy may have taken their place; that is removed. */
static char *name_choose(const sqlite_store *s, seal_restore *now)
{
    seal_restore old;
    struct stat st;
    if (!weir__seal_interrupted(s, &old)) {
        return name_new(s, now);
    }
    char *name = weir__backup_name(s->path, old.kept);
    const bool moved = name != NULL && is_there(name, "");
    if (moved && lstat(s->path, &st) == 0 && (uint64_t)st.st_ino == old.copy_ino &&
        weir__mtime_ns(&st) == old.copy_mtime_ns) {
        (void)unlink(s->path);
    }
    if (moved && is_any_there(s->path)) {
        weir__free(name);
        return name_new(s, now); /* something else was put there since */
    }
    memcpy(now->kept, old.kept, sizeof now->kept);
    return name;
}

static weir_status move_file(const sqlite_store *s, const char *kept, const char *suffix,
                             weir_error *err)
{
    char *from = weir__backup_name(s->path, suffix);
    char *to = weir__backup_name(kept, suffix);
    weir_status status = WEIR_OK;
    if (from == NULL || to == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a name");
    } else if (is_there(from, "") && is_there(to, "") && strcmp(suffix, "-shm") != 0) {
        status = weir__fail(err, WEIR_EIO, "\"%s\" and \"%s\" are both there", from, to);
        weir__error_detail(err, "Another program has used the store while a restore was "
                                "interrupted. Move the first of the two away, keep it, and "
                                "restore again.");
    } else {
        status = file_rename(from, to, err);
    }
    weir__free(from);
    weir__free(to);
    return status;
}

static weir_status move_away(const sqlite_store *s, const char *kept, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < SUFFIXES_COUNT && status == WEIR_OK; i++) {
        if (i == SUFFIXES_COUNT - 1) {
            status = weir__backup_sync_directory(s->path, err);
        }
        if (status == WEIR_OK) {
            status = move_file(s, kept, suffixes[i], err);
        }
    }
    return status;
}

/* The mark of the copy, which is one complete file. */
static weir_status read_mark(const char *copy, const char *vfs, unsigned char mark[16],
                             uint32_t *page, weir_error *err)
{
    sqlite_conn conn = { 0 };
    const int rc = sqlite3_open_v2(copy, &conn.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, vfs);
    const weir_status status = rc == SQLITE_OK ? weir__seal_read(&conn, mark, page, err)
                                               : weir__sqlite_fail(&conn, rc, err, "open the copy");
    weir__sqlite_conn_close(&conn);
    return status;
}

/* Under the side lock, from here on with nobody else. */
static weir_status put_in_place(sqlite_store *s, const char *copy, char **kept, weir_error *err)
{
    unsigned char mark[16];
    uint32_t page = 0;
    struct stat st;
    seal_restore now = { 0 };
    weir_status status = read_mark(copy, s->vfs, mark, &page, err);
    if (status == WEIR_OK && stat(copy, &st) != 0) {
        status = weir__sqlite_file_fail(err, errno, "look at", copy);
    }
    if (status != WEIR_OK) {
        return status;
    }
    now.copy_ino = (uint64_t)st.st_ino;
    now.copy_mtime_ns = weir__mtime_ns(&st);
    char *name = name_choose(s, &now);
    if (name == NULL) {
        return weir__fail(err, WEIR_EIO, "could not find a name for the files of \"%s\"", s->given);
    }
    status = weir__seal_restoring(s, &now, err);
    if (status == WEIR_OK) {
        status = weir__backup_sync_directory(s->path, err);
    }
    if (status == WEIR_OK) {
        status = move_away(s, name, err);
    }
    if (status == WEIR_OK) {
        status = file_rename(copy, s->path, err);
    }
    if (status == WEIR_OK) {
        status = weir__backup_sync_directory(s->path, err);
    }
    if (status == WEIR_OK) {
        status = weir__seal_restored(s, mark, page, err);
    }
    if (status == WEIR_OK && is_any_there(name)) {
        *kept = name;
        name = NULL; /* moved to the caller */
    }
    weir__free(name);
    return status;
}

static bool is_same_file(const char *name, const char *file)
{
    struct stat here, there;
    return stat(name, &here) == 0 && stat(file, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* `copy` is removed before anything is written to it. */
static weir_status check_file(const sqlite_store *s, const char *copy, const char *file,
                              weir_error *err)
{
    if (is_same_file(s->path, file)) {
        return weir__fail(err, WEIR_EINVAL, "\"%s\" is the store itself", file);
    }
    if (is_same_file(copy, file)) {
        const weir_status status =
            weir__fail(err, WEIR_EINVAL, "\"%s\" is where a restore makes its copy", file);
        weir__error_detail(err, "Nothing was changed. If it is a backup, give it another name and "
                                "restore that.");
        return status;
    }
    return WEIR_OK;
}

weir_status weir__sqlite_restore(const store_options *options, const char *file, char **kept,
                                 weir_progress_fn fn, void *ctx, weir_error *err)
{
    sqlite_store *s = NULL;
    char *copy = NULL;
    const backup_progress progress = { .fn = fn, .ctx = ctx };
    weir_status status = weir__sqlite_place(&s, options, err);
    if (status != WEIR_OK) {
        return status;
    }
    copy = weir__backup_name(s->path, "-restoring");
    status = copy == NULL ? weir__fail(err, WEIR_ENOMEM, "could not allocate a name")
                          : check_file(s, copy, file, err);
    if (status == WEIR_OK) {
        status = take_alone(s, err);
    }
    if (status == WEIR_OK) {
        status = make_copy(s, options, file, copy, &progress, err);
        if (status != WEIR_OK) {
            weir__backup_remove(copy);
            status = weir__wrap(err, status, "restore \"%s\"", file);
            if (status == WEIR_EINVAL) {
                weir__error_detail(err,
                                   "Nothing was changed. The file must be a backup of a store.");
            } else if (status == WEIR_ECORRUPT) {
                weir__error_detail(err, "Nothing was changed. The file is no backup of a store, or "
                                        "it is damaged: restore another one.");
            }
            if (s->side.created && !weir__sqlite_file_exists(s, "", NULL)) {
                weir__side_remove(&s->side);
            }
        }
    }
    if (status == WEIR_OK) {
        status = put_in_place(s, copy, kept, err);
        weir__backup_remove(copy); /* what is left beside it */
    }
    weir__side_unlock(&s->side);
    s->base.about->close(&s->base);
    weir__free(copy);
    return status;
}
