/* seal.c - recognising a database file that was swapped, before SQLite sees it.
 *
 * The record in the side file says: while the WAL has these salts, the database file bears the mark
 * `before`. With any other salts it bears `after`: the WAL was started over, which happens only
 * after a complete checkpoint. Or it has a page of that same WAL, because a checkpoint has already
 * copied it.
 *
 * Other programs checkpoint as well, and start the WAL over, and know nothing of marks. So a file
 * that was changed by somebody else is refused only if its mark is wrong; or if this WAL is one
 * that no record knows, the file was changed after it, and a checkpoint of it cannot have been that
 * change. README.md says why that is sound, and what it cannot tell.
 *
 * INVARIANTS
 *   (1) The mark of the database changes only in weir__seal_renew, to the one that follows it, and
 *       is in the record before a checkpoint can bring it into the database file.
 *   (2) The mark is at the end of a page that holds nothing else that changes, inside one sector,
 *       which a disk writes as a whole.
 *   (3) The database file is read through SQLite's VFS: closing another descriptor of it would end
 *       SQLite's POSIX locks.
 */
#define _GNU_SOURCE /* memmem */

#include "store/sqlite/seal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/str.h"
#include "store/sqlite/seal_sql.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    MARK_BYTES = 16,
    SALTS_BYTES = 8,
    RECORD_AT = 64, /* in the side file, behind the stamp */
    WAL_HEADER_BYTES = 32,
    WAL_FRAME_HEADER_BYTES = 24,
    WAL_SALTS_AT = 16,
    FRAME_SALTS_AT = 8,
    PAGE_BYTES_MIN = 512,
    PAGE_BYTES_MAX = 65536,
    TAIL_BYTES = 512, /* of a page: where the mark is; every page is a multiple of it */
    BOOT_BYTES = 36,
    MARKS_AHEAD_MAX = 256, /* checkpoints whose record a power failure may have taken back */
    LOOKS_MAX = 5,
    LOOK_PAUSE_US = 10 * 1000,
};

static const char record_magic[8] = "weirseal";

typedef enum record_state {
    RECORD_SEALED = 0,
    RECORD_RESTORING = 1,
} record_state;

/* As it is in the side file. It never leaves the machine, so it is in the machine's byte order. */
typedef struct record {
    char magic[8];
    uint32_t state;
    uint32_t page; /* where the mark is */
    unsigned char salts[SALTS_BYTES];
    unsigned char before[MARK_BYTES]; /* zeros: the file has no such page yet; ones: not known */
    unsigned char after[MARK_BYTES];
    /* What the file looked like from outside when we last wrote it, during this boot of the
     * machine; changed 0: not known. side_ino: where this record was written, which shows when it
     * was copied together with the database. While restoring it is the copy's, and `boot` is the
     * name behind the path that the files get that it replaces. */
    char boot[BOOT_BYTES];
    uint32_t unsynced; /* a power failure may have taken `after` back to `before` in the file */
    uint64_t side_ino, db_ino;
    int64_t db_changed_ns;
    unsigned char digest[8]; /* of all before it */
} record;

static_assert(sizeof(record) == 128, "the record has no padding");

static const unsigned char mark_none[MARK_BYTES] = { 0 };
static const unsigned char mark_any[MARK_BYTES] = { 255, 255, 255, 255, 255, 255, 255, 255,
                                                    255, 255, 255, 255, 255, 255, 255, 255 };

/* Marks are a chain: each is the digest of the one before. So a record that a power failure has set
 * back, because it is never synced, is told from a database that was set back: there the mark
 * cannot be reached from the record's. */
static void mark_next(unsigned char mark[MARK_BYTES])
{
    weir_sha256 sum;
    uint8_t bytes[WEIR_SHA256_BYTES];
    weir__sha256_init(&sum);
    weir__sha256_add(&sum, mark, MARK_BYTES);
    weir__sha256_end(&sum, bytes);
    memcpy(mark, bytes, MARK_BYTES);
}

/* Whether `bytes` have the mark, or one that follows it. */
static bool mark_found(const unsigned char *mark, const unsigned char *bytes, size_t count)
{
    unsigned char at[MARK_BYTES];
    memcpy(at, mark, MARK_BYTES);
    for (size_t i = 0; i < MARKS_AHEAD_MAX; i++) {
        if (memmem(bytes, count, at, MARK_BYTES) != NULL) {
            return true;
        }
        mark_next(at);
    }
    return false;
}

/* What is in the header of a WAL. page_bytes 0: there is no WAL, or nothing in it. */
typedef struct wal_header {
    uint32_t page_bytes;
    unsigned char salts[SALTS_BYTES];
} wal_header;

static void record_digest(const record *r, unsigned char out[8])
{
    weir_sha256 sum;
    uint8_t bytes[WEIR_SHA256_BYTES];
    weir__sha256_init(&sum);
    weir__sha256_add(&sum, r, offsetof(record, digest));
    weir__sha256_end(&sum, bytes);
    memcpy(out, bytes, 8);
}

static bool record_read(const sqlite_store *s, record *r)
{
    unsigned char digest[8];
    if (s->side.fd < 0 || pread(s->side.fd, r, sizeof *r, RECORD_AT) != (ssize_t)sizeof *r ||
        memcmp(r->magic, record_magic, sizeof record_magic) != 0) {
        return false;
    }
    record_digest(r, digest);
    return memcmp(digest, r->digest, sizeof digest) == 0;
}

static bool record_write(const sqlite_store *s, record *r, bool sync)
{
    memcpy(r->magic, record_magic, sizeof record_magic);
    record_digest(r, r->digest);
    return pwrite(s->side.fd, r, sizeof *r, RECORD_AT) == (ssize_t)sizeof *r &&
           (!sync || fdatasync(s->side.fd) == 0);
}

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int wal_open(const sqlite_store *s)
{
    weir_buffer name = { 0 };
    int fd = -1;
    if (weir__buffer_add_text(&name, s->path) && weir__buffer_add(&name, "-wal", sizeof "-wal")) {
        fd = open(name.ptr, O_RDONLY | O_CLOEXEC); /* SQLite has no locks on it: closing is safe */
    }
    weir__buffer_free(&name);
    return fd;
}

/* fd -1 is fine. */
static wal_header wal_look(int fd)
{
    unsigned char bytes[WAL_HEADER_BYTES];
    wal_header out = { 0 };
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > WAL_HEADER_BYTES &&
        pread(fd, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes &&
        (big_endian(bytes) & ~1U) == 0x377f0682U) {
        const uint32_t page_bytes = big_endian(bytes + 8);
        if (page_bytes >= PAGE_BYTES_MIN && page_bytes <= PAGE_BYTES_MAX) {
            out.page_bytes = page_bytes;
            memcpy(out.salts, bytes + WAL_SALTS_AT, SALTS_BYTES);
        }
    }
    return out;
}

static wal_header wal_now(const sqlite_store *s)
{
    const int fd = wal_open(s);
    const wal_header out = wal_look(fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    return out;
}

/* Bytes of the database file itself, whatever the WAL says; zeros where the file is shorter. False:
 * it could not be read. */
static bool file_bytes(sqlite_conn *conn, int64_t at, unsigned char *out, size_t count)
{
    sqlite3_file *file = NULL;
    if (sqlite3_file_control(conn->db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL) {
        return false;
    }
    const int rc = file->pMethods->xRead(file, out, (int)count, at);
    return rc == SQLITE_OK || rc == SQLITE_IOERR_SHORT_READ; /* which fills up with zeros */
}

static bool file_tail(sqlite_conn *conn, uint32_t page, uint32_t page_bytes, unsigned char *out)
{
    return file_bytes(conn, (int64_t)page_bytes * page - TAIL_BYTES, out, TAIL_BYTES);
}

/* Whether the page of a frame, which begins at `at`, is the same in the file. */
static bool frame_was_copied(int fd, off_t at, uint32_t page, uint32_t page_bytes,
                             sqlite_conn *conn)
{
    unsigned char image[TAIL_BYTES], here[TAIL_BYTES];
    for (uint32_t i = 0; i < page_bytes; i += TAIL_BYTES) {
        if (pread(fd, image, sizeof image, at + i) != (ssize_t)sizeof image ||
            !file_bytes(conn, (int64_t)page_bytes * (page - 1) + i, here, sizeof here) ||
            memcmp(image, here, sizeof image) != 0) {
            return false;
        }
    }
    return true;
}

/* Whether the file has that page, or any (0), as it is in the WAL: a checkpoint has copied it. */
static bool wal_was_copied(int fd, const wal_header *wal, uint32_t page, sqlite_conn *conn)
{
    unsigned char header[WAL_FRAME_HEADER_BYTES];
    off_t at = WAL_HEADER_BYTES;
    while (pread(fd, header, sizeof header, at) == (ssize_t)sizeof header &&
           memcmp(header + FRAME_SALTS_AT, wal->salts, SALTS_BYTES) == 0) {
        const uint32_t found = big_endian(header);
        at += (off_t)sizeof header;
        if (found > 0 && (page == 0 || found == page) &&
            frame_was_copied(fd, at, found, wal->page_bytes, conn)) {
            return true;
        }
        at += (off_t)wal->page_bytes;
    }
    return false;
}

static bool all_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Zeros: not known. */
static void boot_set(char out[BOOT_BYTES])
{
    const char *boot = weir__clock_boot_id();
    memset(out, 0, BOOT_BYTES);
    if (strlen(boot) == BOOT_BYTES) {
        memcpy(out, boot, BOOT_BYTES);
    }
}

static bool is_this_boot(const record *r)
{
    char boot[BOOT_BYTES];
    boot_set(boot);
    return boot[0] != '\0' && memcmp(boot, r->boot, sizeof boot) == 0;
}

/* The mark of the file itself, wherever another program's VACUUM has moved its page. */
static bool file_mark(sqlite_store *s, unsigned char mark[MARK_BYTES])
{
    sqlite_conn conn = { 0 };
    uint32_t page = 0;
    bool read = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_PEEK, &conn, NULL) == WEIR_OK;
    conn.damaged = NULL; /* a checkpoint may be under way: that is no damage */
    read = read && weir__seal_read(&conn, mark, &page, NULL) == WEIR_OK;
    weir__sqlite_conn_close(&conn);
    return read;
}

static bool tail_has(const unsigned char *mark, const unsigned char *tail)
{
    return memcmp(mark, mark_any, MARK_BYTES) == 0 ||
           (memcmp(mark, mark_none, MARK_BYTES) == 0 ? all_zero(tail, TAIL_BYTES)
                                                     : mark_found(mark, tail, TAIL_BYTES));
}

/* Whether the WAL that is there was written on top of the database file that is there. */
static bool wal_belongs(sqlite_store *s, const record *r, int fd, const wal_header *wal,
                        sqlite_conn *conn)
{
    const bool same = memcmp(wal->salts, r->salts, SALTS_BYTES) == 0;
    const bool before = r->unsynced != 0 ? !is_this_boot(r) : same;
    const bool after = !same || r->unsynced != 0;
    unsigned char tail[TAIL_BYTES], mark[MARK_BYTES];

    if (r->page == 0 || !file_tail(conn, r->page, wal->page_bytes, tail) ||
        (before && tail_has(r->before, tail)) || (after && tail_has(r->after, tail)) ||
        wal_was_copied(fd, wal, r->page, conn)) {
        return true;
    }
    return file_mark(s, mark) && ((before && mark_found(r->before, mark, MARK_BYTES)) ||
                                  (after && mark_found(r->after, mark, MARK_BYTES)));
}

/* Whether we know what the file looked like from outside when we last wrote it. */
static bool file_is_known(const sqlite_store *s, const record *r, struct stat *st)
{
    return r->db_changed_ns != 0 && r->side_ino == (uint64_t)s->side.ino && is_this_boot(r) &&
           stat(s->path, st) == 0;
}

static int64_t ctime_ns(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

/* Somebody else has changed the file since we did, and started the WAL over: whether the last of
 * that can have been SQLite. It wrote the WAL after the file; or it has copied a page of the WAL
 * into the file. */
static bool was_checkpoint(int fd, const wal_header *wal, const struct stat *file,
                           sqlite_conn *conn)
{
    struct stat log;
    return fstat(fd, &log) != 0 || ctime_ns(file) <= ctime_ns(&log) ||
           wal_was_copied(fd, wal, 0, conn);
}

static bool looks_swapped(sqlite_store *s, const record *r, sqlite_conn *conn)
{
    struct stat st;
    const int fd = wal_open(s);
    const wal_header wal = wal_look(fd);
    const bool known = file_is_known(s, r, &st);
    bool swapped = wal.page_bytes != 0 && ((known && (uint64_t)st.st_ino != r->db_ino) ||
                                           !wal_belongs(s, r, fd, &wal, conn));
    if (!swapped && wal.page_bytes != 0 && known && ctime_ns(&st) != r->db_changed_ns &&
        memcmp(wal.salts, r->salts, SALTS_BYTES) != 0) {
        swapped = !was_checkpoint(fd, &wal, &st, conn);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return swapped;
}

/* Other programs do not take the side lock: what one of them is in the middle of may look like a
 * swap for a moment. */
static bool is_swapped(sqlite_store *s, const record *r, sqlite_conn *conn)
{
    bool swapped = looks_swapped(s, r, conn);
    for (int i = 1; i < LOOKS_MAX && swapped; i++) {
        weir__clock_pause(LOOK_PAUSE_US);
        swapped = looks_swapped(s, r, conn);
    }
    return swapped;
}

static weir_status refuse_swapped(const sqlite_store *s, weir_error *err)
{
    const weir_status status = weir__fail(
        err, WEIR_ECORRUPT, "\"%s\" was replaced, and \"%s-wal\" belongs to the file before it",
        s->given, s->given);
    weir__error_detail(
        err,
        "Nothing was read or written. Copy both files elsewhere first: the second has what was "
        "committed last, perhaps nowhere else. To restore a backup, run weir restore FILE. To go "
        "on with the file that is there, without those commits, move \"%s-wal\" away and keep it. "
        "If nobody put another file there, see \"Not swapped\" in docs/backup.md.",
        s->given);
    return status;
}

weir_status weir__seal_check(sqlite_store *s, bool *had_wal, weir_error *err)
{
    record r;
    sqlite_conn conn = { 0 };
    weir_status status = WEIR_OK;

    *had_wal = wal_now(s).page_bytes != 0;
    if (!record_read(s, &r)) {
        goto out;
    }
    if (r.state == RECORD_RESTORING) {
        status = weir__fail(err, WEIR_ECORRUPT, "a restore of \"%s\" was interrupted", s->given);
        weir__error_detail(err, "Run the same weir restore again; it begins anew.");
        goto out;
    }
    if (!*had_wal) {
        goto out;
    }
    status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_PEEK, &conn, err);
    if (status == WEIR_OK && is_swapped(s, &r, &conn)) {
        status = refuse_swapped(s, err);
    }
out:
    weir__sqlite_conn_close(&conn);
    return status;
}

weir_status weir__seal_read(sqlite_conn *conn, unsigned char mark[16], uint32_t *page,
                            weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_seal_read, err);
    const bool row = weir__cursor_next(&cursor);
    const weir_str text = row ? weir__cursor_text(&cursor, 0) : (weir_str){ 0 };
    if (text.len == MARK_BYTES) {
        memcpy(mark, text.ptr, MARK_BYTES);
        *page = (uint32_t)weir__cursor_i64(&cursor, 1);
    } else if (cursor.status == WEIR_OK) {
        weir__cursor_fail(
            &cursor, weir__fail(err, WEIR_ECORRUPT, "the store has lost its own row in weir_seal"));
    }
    return weir__cursor_end(&cursor);
}

static weir_status fail_record(const sqlite_store *s, weir_error *err)
{
    return weir__sqlite_file_fail(err, errno, "write side file", s->side.path);
}

/* The store is another one than the record knows: positions, leases and fences of the old one mean
 * nothing here. */
static weir_status epoch_renew(sqlite_store *s, weir_error *err)
{
    char epoch[WEIR_UUID_TEXT_BYTES];
    sqlite_cursor cursor = weir__cursor_open(&s->writer, sql_seal_epoch, err);
    weir__uuid7(weir__sqlite_clock(s, 0), epoch);
    weir__cursor_bind_text(&cursor, 1, weir__str(epoch));
    return weir__cursor_run(&cursor);
}

weir_status weir__seal_adopt(sqlite_store *s, bool had_wal, bool made, weir_error *err)
{
    record r;
    unsigned char mark[MARK_BYTES];
    uint32_t page = 0;
    weir_status status = weir__seal_read(&s->writer, mark, &page, err);
    if (status != WEIR_OK) {
        return status;
    }
    const bool known = !made && record_read(s, &r);
    if (known && (had_wal || mark_found(r.after, mark, MARK_BYTES))) {
        return WEIR_OK;
    }
    if (known) {
        status = epoch_renew(s, err);
    }
    if (status == WEIR_OK) {
        r = (record){ .page = page };
        const wal_header wal = wal_now(s);
        memcpy(r.salts, wal.salts, SALTS_BYTES);
        memcpy(r.before, made ? mark_none : mark_any, MARK_BYTES);
        memcpy(r.after, mark, MARK_BYTES);
        status = record_write(s, &r, false) ? WEIR_OK : fail_record(s, err);
    }
    /* A file that was put here is still somewhere else too: from now on it differs from that. */
    if (status == WEIR_OK && !made) {
        weir__sqlite_checkpoint(s);
        s->database.deadline_us = weir__sqlite_deadline(s);
    }
    return status;
}

weir_status weir__seal_fail_overwritten(const sqlite_store *s, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_ECORRUPT, "\"%s\" was overwritten while the store was open", s->given);
    weir__error_detail(err, "Nothing was written. End every program that has the store open, then "
                            "run weir restore FILE.");
    return status;
}

static bool was_overwritten(sqlite_store *s, sqlite_conn *conn)
{
    record r;
    return record_read(s, &r) && is_swapped(s, &r, conn);
}

weir_status weir__seal_running(sqlite_store *s, int64_t written_ns, weir_error *err)
{
    if (s->writer.db == NULL || written_ns == s->written_ns) {
        return WEIR_OK;
    }
    if (was_overwritten(s, &s->writer)) {
        return weir__seal_fail_overwritten(s, err);
    }
    s->written_ns = written_ns; /* somebody else has checkpointed */
    s->wal_unseen = true;
    return WEIR_OK;
}

bool weir__seal_follow(sqlite_store *s)
{
    record r;
    struct stat st;
    if (!s->wal_unseen) {
        return true;
    }
    s->wal_unseen = false;
    if (!record_read(s, &r)) {
        return false; /* the side file was removed: it gets another record */
    }
    const wal_header wal = wal_now(s);
    if (memcmp(wal.salts, r.salts, SALTS_BYTES) == 0) {
        return true;
    }
    /* Started over. On the file as we left it: then it bears the same mark as before. */
    if (!file_is_known(s, &r, &st) || (uint64_t)st.st_ino != r.db_ino ||
        ctime_ns(&st) != r.db_changed_ns) {
        return false;
    }
    if (r.unsynced == 0) {
        memcpy(r.before, r.after, MARK_BYTES);
    }
    memcpy(r.salts, wal.salts, SALTS_BYTES);
    (void)record_write(s, &r, false); /* without it, it is asked again at the next opening */
    return true;
}

/* Without a WAL the file itself has the last mark, unless another program has moved its page
 * (VACUUM). So this alone is no reason to refuse. */
static bool has_lost_mark(const sqlite_store *s, sqlite_conn *conn)
{
    record r;
    unsigned char tail[TAIL_BYTES];
    return wal_now(s).page_bytes == 0 && record_read(s, &r) && r.page != 0 &&
           memcmp(r.after, mark_any, MARK_BYTES) != 0 &&
           file_tail(conn, r.page, SQLITE_PAGE_BYTES, tail) &&
           !mark_found(r.after, tail, sizeof tail);
}

weir_status weir__seal_explain(sqlite_store *s, sqlite_conn *conn, weir_status status,
                               weir_error *err)
{
    /* The side file belongs to whoever has the slot. */
    if (status == WEIR_ECORRUPT && conn->db != NULL &&
        weir__sqlite_slot_take(s, weir__sqlite_deadline(s), NULL) == WEIR_OK) {
        /* 26: no database any more. It was one when it was opened. While the first WAL of a store
         * lasts, it has every page, so the file may be anything and was_overwritten says no. */
        const bool is_other = err != NULL && strcmp(err->store_code, "26") == 0;
        if (is_other || was_overwritten(s, conn) || has_lost_mark(s, conn)) {
            status = weir__seal_fail_overwritten(s, err);
        }
        weir__sqlite_slot_give(s);
    }
    return status;
}

bool weir__seal_renew(sqlite_store *s)
{
    record r, old;
    uint32_t page = 0;
    unsigned char mark[MARK_BYTES];
    const bool known = record_read(s, &old);

    /* Not synced: the checkpoint syncs the WAL before it writes the database. */
    if (s->database.sync_full &&
        weir__sqlite_exec(&s->writer, "PRAGMA synchronous=NORMAL", NULL) != WEIR_OK) {
        return false;
    }
    s->database.sync_full = false;
    if (weir__seal_read(&s->writer, mark, &page, NULL) != WEIR_OK) {
        return false;
    }
    mark_next(mark);
    sqlite_cursor cursor = weir__cursor_open(&s->writer, sql_seal_renew, NULL);
    weir__cursor_bind_bytes(&cursor, 1, mark, MARK_BYTES);
    if (weir__cursor_run(&cursor) != WEIR_OK) {
        return false;
    }
    const wal_header wal = wal_now(s);
    r = (record){ .page = page };
    memcpy(r.salts, wal.salts, SALTS_BYTES);
    if (!known) {
        memcpy(r.before, mark_any, MARK_BYTES);
    } else if (memcmp(old.salts, wal.salts, SALTS_BYTES) == 0) {
        memcpy(r.before, old.before, MARK_BYTES); /* the WAL was not started over since */
    } else {
        memcpy(r.before, old.after, MARK_BYTES);
    }
    memcpy(r.after, mark, MARK_BYTES);
    return record_write(s, &r, false);
}

void weir__seal_written(sqlite_store *s, seal_extent extent)
{
    record r;
    struct stat st;
    if (stat(s->path, &st) != 0) {
        return;
    }
    s->written_ns = weir__mtime_ns(&st);
    s->wal_unseen = true; /* whoever commits next may start it over */
    if (record_read(s, &r) && r.state == RECORD_SEALED) {
        boot_set(r.boot);
        r.unsynced = extent == SEAL_UNSYNCED;
        if (extent == SEAL_ALL) {
            memcpy(r.before, r.after, MARK_BYTES);
        }
        r.side_ino = (uint64_t)s->side.ino;
        r.db_ino = (uint64_t)st.st_ino;
        r.db_changed_ns = ctime_ns(&st);  /* cp -p gives back the other one */
        (void)record_write(s, &r, false); /* without it, one check less */
    }
}

bool weir__seal_interrupted(const sqlite_store *s, seal_restore *out)
{
    record r;
    if (!record_read(s, &r) || r.state != RECORD_RESTORING || r.boot[0] == '\0') {
        return false;
    }
    *out = (seal_restore){ .copy_ino = r.db_ino, .copy_mtime_ns = r.db_changed_ns };
    memcpy(out->kept, r.boot, sizeof out->kept - 1);
    return true;
}

weir_status weir__seal_restoring(sqlite_store *s, const seal_restore *now, weir_error *err)
{
    record r = { .state = RECORD_RESTORING,
                 .db_ino = now->copy_ino,
                 .db_changed_ns = now->copy_mtime_ns };
    static_assert(sizeof now->kept == sizeof r.boot, "it has room");
    memcpy(r.boot, now->kept, sizeof r.boot);
    return record_write(s, &r, true) ? WEIR_OK : fail_record(s, err);
}

weir_status weir__seal_restored(sqlite_store *s, const unsigned char mark[16], uint32_t page,
                                weir_error *err)
{
    record r = { .page = page };
    memcpy(r.before, mark, MARK_BYTES);
    memcpy(r.after, mark, MARK_BYTES);
    return record_write(s, &r, true) ? WEIR_OK : fail_record(s, err);
}
