/* open.c - from options to an open handle: finding the file, making it, or saying why not.
 *
 * The order is: resolve the path, open the side file, lock it, open the database, look, make or
 * upgrade, unlock. A reading handle does the same with a connection that cannot write. Whatever
 * this opening has made and that turns out to be useless is removed again, while the lock is held,
 * so that nobody else can be using it; a process that waited for that lock notices, and opens the
 * side file again.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/file.h"
#include "base/str.h"
#include "store/sqlite/seal.h"
#include "store/store_backup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What there was before this opening. */
typedef struct found_files {
    bool database;       /* there is a file, of whatever size */
    bool database_bytes; /* and something in it               */
    bool wal_bytes;
} found_files;

static const char *copy_text(weir_arena *arena, weir_str text)
{
    return weir__arena_copy(arena, text.len == 0 ? "" : text.ptr, text.len);
}

static weir_status copy_options(sqlite_store *s, const store_options *o, weir_error *err)
{
    s->options = *o;
    s->given = copy_text(&s->texts, o->path);
    const char *vfs = copy_text(&s->texts, o->vfs);
    s->options.application = copy_text(&s->texts, weir__str(o->application));
    if (s->given == NULL || vfs == NULL || s->options.application == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
    }
    s->vfs = o->vfs.len == 0 ? NULL : vfs;
    s->options.path = weir__str(s->given);
    s->options.vfs = weir__str(vfs);
    if (s->options.checkpoint_pages <= 0) {
        s->options.checkpoint_pages = SQLITE_CHECKPOINT_PAGES_DEFAULT;
    }
    s->read_only = (o->open_flags & WEIR_OPEN_READONLY) != 0;
    if (s->read_only) {
        weir__store_read_only(&s->base, &s->reading);
    }
    s->side.insecure = o->insecure;
    s->database.given = s->given;
    s->database.vfs = s->vfs;
    s->database.sync_normal = o->sync_normal;
    s->database.busy_us = o->busy_us;
    s->database.checkpoint_pages = s->options.checkpoint_pages;
    s->database.checkpoint_next = s->options.checkpoint_pages;
    return WEIR_OK;
}

static int judging_flags(const sqlite_store *s)
{
    return s->options.insecure ? FILE_INSECURE : 0;
}

bool weir__sqlite_file_exists(const sqlite_store *s, const char *suffix, bool *has_bytes)
{
    weir_buffer name = { 0 };
    struct stat st = { 0 };
    bool exists = false;
    if (weir__buffer_add_text(&name, s->path) && weir__buffer_add_text(&name, suffix) &&
        weir__buffer_add(&name, "", 1)) {
        exists = stat(name.ptr, &st) == 0;
    }
    if (has_bytes != NULL) {
        *has_bytes = exists && st.st_size > 0;
    }
    weir__buffer_free(&name);
    return exists;
}

/* The side file is judged where it is opened. */
static weir_status judge_files(const sqlite_store *s, weir_error *err)
{
    return weir__sqlite_files_judge(s->path, judging_flags(s), err);
}

/* Remembers which files we have open. Under the side lock, when SQLite has opened them all. */
static weir_status note_files(sqlite_store *s, const sqlite_conn *conn, weir_error *err)
{
    static const char *const suffixes[SQLITE_FILES_COUNT] = { "", "-wal", "-shm" };
    const size_t len = strlen(s->path);
    const weir_status status = judge_files(s, err);
    if (status != WEIR_OK) {
        return status;
    }
    int moved = 0;
    if (sqlite3_file_control(conn->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
        moved != 0) {
        return weir__fail(err, WEIR_EUNAVAILABLE,
                          "\"%s\" was renamed or replaced while it was opened", s->given);
    }
    for (size_t i = 0; i < SQLITE_FILES_COUNT; i++) {
        struct stat st;
        const size_t suffix_len = strlen(suffixes[i]);
        char *name = weir__arena_alloc(&s->texts, len + suffix_len + 1);
        if (name == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
        }
        memcpy(name, s->path, len);
        memcpy(name + len, suffixes[i], suffix_len + 1);
        if (stat(name, &st) == 0) {
            s->files[i] = (sqlite_file){ .name = name, .dev = st.st_dev, .ino = st.st_ino };
            s->written_ns = i == 0 ? weir__mtime_ns(&st) : s->written_ns;
            s->database.dev = i == 0 ? st.st_dev : s->database.dev;
            s->database.ino = i == 0 ? st.st_ino : s->database.ino;
            s->wal_unseen = true;
        }
    }
    return WEIR_OK;
}

weir_status weir__sqlite_files_check(const sqlite_store *s, size_t count, int64_t *written_ns,
                                     weir_error *err)
{
    *written_ns = s->written_ns;
    for (size_t i = 0; i < count; i++) {
        const sqlite_file *file = &s->files[i];
        struct stat st;
        if (file->name == NULL) {
            continue;
        }
        const bool found = stat(file->name, &st) == 0;
        if (found && i == 0 && st.st_size == 0) {
            return weir__seal_fail_overwritten(s, err); /* never so while it is open */
        }
        if (found && i == 0) {
            *written_ns = weir__mtime_ns(&st);
        }
        if (found ? st.st_dev != file->dev || st.st_ino != file->ino
                  : errno == ENOENT || errno == ENOTDIR) {
            /* A reader may wait until the file is put back; meanwhile it keeps it from being
             * opened under another name, without its log. */
            const bool waits = !found && count == 1;
            const weir_status status = weir__fail(err, waits ? WEIR_EUNAVAILABLE : WEIR_ECORRUPT,
                                                  "\"%s\" was %s while the store was open",
                                                  file->name, found ? "replaced" : "removed");
            weir__error_detail(err, "Nothing was written. Put the file back, or close the store "
                                    "and open it again to work with what is there now.");
            return status;
        }
    }
    return WEIR_OK;
}

static weir_status look_at_files(sqlite_store *s, found_files *found, weir_error *err)
{
    struct stat st = { 0 };
    *found = (found_files){ 0 };
    weir_status status = weir__sqlite_file_look(&s->database, &st, &found->database, err);
    found->database_bytes = st.st_size > 0;
    if (status == WEIR_OK) {
        status = judge_files(s, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    (void)weir__sqlite_file_exists(s, "-wal", &found->wal_bytes);
    /* A database whose first commits are all in the WAL may be empty itself. */
    const bool nothing = !found->database || (!found->database_bytes && !found->wal_bytes);
    if (nothing && (s->options.open_flags & (WEIR_OPEN_EXISTING | WEIR_OPEN_READONLY)) != 0) {
        return weir__fail(err, WEIR_ENOTFOUND, "no store at \"%s\"", s->given);
    }
    return WEIR_OK;
}

static void remove_file(const sqlite_store *s, const char *suffix)
{
    weir_buffer name = { 0 };
    if (weir__buffer_add_text(&name, s->path) && weir__buffer_add_text(&name, suffix) &&
        weir__buffer_add(&name, "", 1)) {
        (void)unlink(name.ptr);
    }
    weir__buffer_free(&name);
}

/* After a failure, with the side lock held. A store that is there, whoever made it, stays. */
static void remove_what_we_made(sqlite_store *s, const found_files *found, weir_status status)
{
    /* EUNAVAILABLE: the name no longer leads to what we have made. */
    if (!found->database && !found->wal_bytes && status != WEIR_EUNAVAILABLE) {
        weir__sqlite_conn_close(&s->writer);
        remove_file(s, "-wal");
        remove_file(s, "-shm");
        remove_file(s, "-journal");
        remove_file(s, "");
    }
    const bool no_store = !found->database || status == WEIR_ENOTFOUND || status == WEIR_EINVAL ||
                          status == WEIR_ECORRUPT || status == WEIR_EHELD;
    if (s->side.created && no_store) {
        weir__side_remove(&s->side);
    }
}

/* A database that was taken away has left its last commits here: SQLite would remove them. */
static weir_status refuse_orphaned_wal(const sqlite_store *s, const found_files *found,
                                       weir_error *err)
{
    if (found->database || !found->wal_bytes) {
        return WEIR_OK;
    }
    const weir_status status =
        weir__fail(err, WEIR_ECORRUPT, "there is no \"%s\", but \"%s-wal\" has commits of it",
                   s->given, s->given);
    weir__error_detail(err,
                       "Nothing was made or removed. Put the file back, or move \"%s-wal\" away "
                       "and keep it.",
                       s->given);
    return status;
}

static weir_status open_for_writing(sqlite_store *s, weir_error *err)
{
    found_files found;
    bool made = false;
    bool had_wal = false;
    const bool create = (s->options.open_flags & WEIR_OPEN_EXISTING) == 0;

    weir_status status = look_at_files(s, &found, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__side_open(&s->side, s->path, false, err);
    if (status != WEIR_OK) {
        return status;
    }
    s->database.deadline_us = weir__sqlite_deadline(s);
    status = weir__side_lock(&s->side, s->database.deadline_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    /* Again, now that nobody else is making or removing it. */
    status = look_at_files(s, &found, err);
    if (status == WEIR_OK) {
        status = refuse_orphaned_wal(s, &found, err);
    }
    if (status == WEIR_OK) {
        status = weir__seal_check(s, &had_wal, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_refuse_renamed(s, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_conn_open(
            &s->database, create ? SQLITE_ROLE_CREATOR : SQLITE_ROLE_WRITER, &s->writer, err);
        if (status != WEIR_OK) {
            status = weir__wrap(err, status, "open \"%s\"", s->given);
        }
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_schema_prepare(s, &made, err);
    }
    if (status == WEIR_OK) {
        status = weir__seal_adopt(s, had_wal, made, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_row_read(s, &s->writer, err);
    }
    if (status == WEIR_OK) {
        status = note_files(s, &s->writer, err);
    }
    if (status == WEIR_OK) {
        (void)weir__sqlite_clock(s, s->writer.row->clock_us);
    } else {
        remove_what_we_made(s, &found, status);
    }
    weir__side_unlock(&s->side);
    return status;
}

static bool directory_is_writable(const sqlite_store *s)
{
    const char *slash = strrchr(s->path, '/');
    char *directory = slash == NULL ? NULL : weir__strndup(s->path, (size_t)(slash - s->path) + 1);
    const bool writable = directory != NULL && access(directory, W_OK) == 0;
    weir__free(directory);
    return writable;
}

/* Opens the first reading connection and looks at what it shows. */
static weir_status try_reading(sqlite_store *s, weir_error *err)
{
    sqlite_conn *conn = &s->readers[0];
    weir_status status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_READER, conn, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "open \"%s\"", s->given);
    }
    status = weir__sqlite_schema_verify(s, conn, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_row_read(s, conn, err);
    }
    if (status == WEIR_OK) {
        status = note_files(s, conn, err);
    }
    if (status == WEIR_OK) {
        (void)weir__sqlite_clock(s, conn->row->clock_us);
    } else {
        weir__sqlite_conn_close(conn);
    }
    return status;
}

static weir_status open_for_reading(sqlite_store *s, weir_error *err)
{
    found_files found;
    weir_status status = look_at_files(s, &found, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__side_open(&s->side, s->path, true, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__side_lock(&s->side, weir__sqlite_deadline(s), err);
    if (status != WEIR_OK) {
        return status;
    }
    bool had_wal = false;
    status = weir__seal_check(s, &had_wal, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_refuse_renamed(s, err);
    }
    if (status == WEIR_OK) {
        status = try_reading(s, err);
    }
    if (status == WEIR_EIO && !found.wal_bytes && !directory_is_writable(s)) {
        /* SQLite wants a -shm file beside a database with a WAL and could not make one. There is
         * nothing in a WAL, so the database file is all there is, and it is read as one that does
         * not change. With a WAL it would not be all, and a reader that ignored it would show an
         * old store as if it were the current one; so from the moment there is one, this handle
         * refuses to go on (weir__sqlite_read_begin). */
        s->database.immutable = true;
        status = try_reading(s, err);
    }
    if (status != WEIR_OK && s->side.created && s->side.held && status != WEIR_EIO &&
        status != WEIR_EBUSY && status != WEIR_ENOMEM && status != WEIR_ENEWER) {
        weir__side_remove(&s->side);
    }
    weir__side_unlock(&s->side);
    return status;
}

/* ---- forking ------------------------------------------------------------------------------- */

static bool store_in_use(const sqlite_database *db)
{
    const sqlite_store *s = db->owner;
    bool used = s->writer_taken;
    for (size_t i = 0; i < SQLITE_READERS_MAX; i++) {
        used = used || s->readers_taken[i];
    }
    return used;
}

static void store_let_go(sqlite_database *db)
{
    sqlite_store *s = db->owner;
    struct stat st;
    /* Compared, because another thread may have been about to open or to close it. */
    if (s->side.fd >= 0 && fstat(s->side.fd, &st) == 0 && st.st_dev == s->side.dev &&
        st.st_ino == s->side.ino) {
        (void)close(s->side.fd);
    }
    s->side.fd = -1;
    s->side.held = false;
}

static void store_disconnect(sqlite_database *db)
{
    sqlite_store *s = db->owner;
    for (size_t i = 0; i < SQLITE_READERS_MAX; i++) {
        weir__sqlite_conn_close(&s->readers[i]);
    }
    weir__sqlite_conn_close(&s->checkpointer);
    weir__sqlite_conn_close(&s->writer);
}

static const sqlite_holder holder_of_store = {
    .in_use = store_in_use,
    .let_go = store_let_go,
    .close = store_disconnect,
};

/* ---- handles ------------------------------------------------------------------------------- */

/* A handle whose locks work and that has nothing open. */
static weir_status store_allocate(sqlite_store **out, weir_error *err)
{
    const weir_status forked = weir__sqlite_inherited_close(err);
    if (forked != WEIR_OK) {
        return forked;
    }
    sqlite_store *s = weir__calloc(1, sizeof *s);
    if (s == NULL) {
        goto fail_memory;
    }
    weir__sqlite_verbs(s);
    s->side.fd = -1;
    s->schema = weir__sqlite_schema();
    if (!weir__mutex_init(&s->writer_mu)) {
        goto fail_writer_mu;
    }
    if (!weir__cond_init(&s->writer_free)) {
        goto fail_writer_free;
    }
    if (!weir__mutex_init(&s->pool_mu)) {
        goto fail_pool_mu;
    }
    if (!weir__cond_init(&s->pool_free)) {
        goto fail_pool_free;
    }
    if (!weir__mutex_init(&s->clock_mu)) {
        goto fail_clock_mu;
    }
    s->writer.row = &s->writer_row;
    for (size_t i = 0; i < SQLITE_READERS_MAX; i++) {
        s->readers[i].row = &s->reader_rows[i];
    }
    s->database.holder = &holder_of_store;
    s->database.owner = s;
    s->database.damaged = &s->damaged;
    const weir_status added = weir__sqlite_handle_add(&s->database, err);
    if (added != WEIR_OK) {
        s->base.about->close(&s->base);
        return added;
    }
    *out = s;
    return WEIR_OK;

fail_clock_mu:
    weir__cond_destroy(&s->pool_free);
fail_pool_free:
    weir__mutex_destroy(&s->pool_mu);
fail_pool_mu:
    weir__cond_destroy(&s->writer_free);
fail_writer_free:
    weir__mutex_destroy(&s->writer_mu);
fail_writer_mu:
    weir__free(s);
fail_memory:
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
}

weir_status weir__sqlite_place(sqlite_store **out, const store_options *options, weir_error *err)
{
    sqlite_store *s = NULL;
    weir_status status = store_allocate(&s, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = copy_options(s, options, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_path_check(s->given, options->path.len, judging_flags(s), err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_path_resolve(s->given, s->vfs, &s->texts, &s->path, err);
        s->database.path = s->path;
    }
    if (status != WEIR_OK) {
        s->base.about->close(&s->base);
        return status;
    }
    *out = s;
    return WEIR_OK;
}

/* There is no database: a restore that was interrupted may have taken it away for a moment. */
static weir_status explain_missing(sqlite_store *s, weir_status status, weir_error *err)
{
    bool had_wal = false;
    weir_error why;
    if (weir__sqlite_file_exists(s, "-weir", NULL) &&
        (s->side.path != NULL || weir__side_open(&s->side, s->path, true, NULL) == WEIR_OK) &&
        weir__seal_check(s, &had_wal, &why) == WEIR_ECORRUPT) {
        status = WEIR_ECORRUPT;
        if (err != NULL) {
            *err = why;
        }
    }
    return status;
}

weir_status weir__sqlite_open(weir_store **out, const store_options *options, weir_error *err)
{
    sqlite_store *s = NULL;
    weir_status status = weir__sqlite_place(&s, options, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = s->read_only ? open_for_reading(s, err) : open_for_writing(s, err);
    if (status == WEIR_ENOTFOUND ||
        (status == WEIR_ECORRUPT && !weir__sqlite_file_exists(s, "", NULL))) {
        status = explain_missing(s, status, err);
    }
    if (status != WEIR_OK) {
        s->base.about->close(&s->base);
        return status;
    }
    s->database.at_rest = true;
    *out = &s->base;
    return WEIR_OK;
}

weir_status weir__sqlite_visit(weir_store **out, const store_options *options, weir_error *err)
{
    sqlite_store *s = NULL;
    bool had_wal = false;
    *out = NULL;
    weir_status status = weir__sqlite_place(&s, options, err);
    if (status == WEIR_OK && weir__sqlite_file_exists(s, "-weir", NULL)) {
        status = weir__side_open(&s->side, s->path, true, err);
        if (status == WEIR_OK) {
            status = weir__side_lock(&s->side, weir__sqlite_deadline(s), err);
        }
        if (status == WEIR_OK) {
            status = weir__seal_check(s, &had_wal, err);
        }
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_refuse_renamed(s, err);
    }
    if (status != WEIR_OK && s != NULL) {
        weir__side_unlock(&s->side);
        s->base.about->close(&s->base);
        return status;
    }
    *out = s == NULL ? NULL : &s->base;
    return status;
}

void weir__sqlite_visit_end(weir_store *base)
{
    if (base != NULL) {
        weir__side_unlock(&sqlite_of(base)->side);
        base->about->close(base);
    }
}

weir_status weir__sqlite_plan(const store_options *options, weir_buffer *sql, weir_error *err)
{
    sqlite_store *s = NULL;
    found_files found = { 0 };
    weir_buffer text = { 0 };
    sqlite_conn *conn = NULL;
    weir_status status = weir__sqlite_place(&s, options, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = look_at_files(s, &found, err);
    /* Without a WAL the file is all there is, and looking at it so leaves no file behind. */
    s->read_only = true;
    s->database.immutable = !found.wal_bytes;
    if (status == WEIR_OK && found.wal_bytes && weir__sqlite_file_exists(s, "-weir", NULL)) {
        status = weir__side_open(&s->side, s->path, true, err);
        if (status == WEIR_OK) {
            status = weir__side_lock(&s->side, weir__sqlite_deadline(s), err);
        }
        bool had_wal = false;
        if (status == WEIR_OK) {
            status = weir__seal_check(s, &had_wal, err);
        }
    }
    if (status == WEIR_OK && (found.database_bytes || found.wal_bytes)) {
        conn = &s->readers[0];
        status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_READER, conn, err);
        if (status != WEIR_OK) {
            status = weir__wrap(err, status, "open \"%s\"", s->given);
        }
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_schema_plan(s, conn, &text, err);
    }
    if (status == WEIR_OK && text.len > 0 && !weir__buffer_add(sql, text.ptr, text.len)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for the schema");
    }
    weir__buffer_free(&text);
    weir__side_unlock(&s->side);
    s->base.about->close(&s->base);
    return status;
}
