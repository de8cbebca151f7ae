/* sqlite_base.c - see sqlite_base.h. */
#include "table/sqlite_base.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "store/store_backup.h"

#include <string.h>

enum { CHECKPOINT_ON_CLOSE_PAGES = 1000 };

static void base_disconnect(sqlite_database *db)
{
    sqlite_base *base = db->owner;
    weir__sqlite_conn_close(&base->checkpointer);
    weir__sqlite_conn_close(&base->writer);
}

static const sqlite_holder base_holder = { .close = base_disconnect };

/* There is no lock that writers share: BEGIN IMMEDIATE keeps everyone out. */
static void base_checkpoint(sqlite_base *base)
{
    if (weir__sqlite_checkpoint_begin(&base->database, &base->checkpointer)) {
        bool all = false;
        (void)weir__sqlite_checkpoint_run(&base->database, &base->writer, &base->checkpointer,
                                          &all);
    }
}

void weir__table_base_committed(sqlite_base *base)
{
    if (base->database.wal_pages >= base->database.checkpoint_next) {
        base_checkpoint(base);
    }
}

void weir__table_base_close(sqlite_base *base)
{
    sqlite_database *db = &base->database;
    if (db->inherited) {
        return; /* what can be closed is closed by sqlite/fork.c */
    }
    db->at_rest = false;
    if (base->writer.db != NULL && db->wal_pages >= CHECKPOINT_ON_CLOSE_PAGES) {
        base_checkpoint(base);
    }
    base_disconnect(db);
    weir__sqlite_handle_remove(db);
    weir__arena_free(&base->texts);
    weir__free(base);
}

static weir_status database_fill(sqlite_base *base, const store_options *o, weir_error *err)
{
    const char *vfs = weir__arena_copy(&base->texts, o->vfs.len == 0 ? "" : o->vfs.ptr, o->vfs.len);
    const int64_t pages =
        o->checkpoint_pages > 0 ? o->checkpoint_pages : SQLITE_CHECKPOINT_PAGES_DEFAULT;
    base->database.given =
        weir__arena_copy(&base->texts, o->path.len == 0 ? "" : o->path.ptr, o->path.len);
    if (vfs == NULL || base->database.given == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
    }
    base->database.vfs = o->vfs.len == 0 ? NULL : vfs;
    base->database.busy_us = o->busy_us;
    base->database.checkpoint_pages = pages;
    base->database.checkpoint_next = pages;
    return WEIR_OK;
}

/* The file as it is: it has to be there. */
static weir_status file_find(sqlite_base *base, size_t len, int judging, weir_error *err)
{
    sqlite_database *db = &base->database;
    struct stat st;
    bool there = false;
    weir_status status = weir__sqlite_path_check(db->given, len, judging, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_path_resolve(db->given, db->vfs, &base->texts, &db->path, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_file_look(db, &st, &there, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_files_judge(db->path, judging, err);
    }
    if (status == WEIR_OK && !there) {
        status = weir__fail(err, WEIR_ENOTFOUND, "there is no database \"%s\"", db->given);
    }
    return status;
}

/* It may be the file of a store: then under the store's rules, until SQLite has it open, which
 * others see. */
static weir_status file_connect(sqlite_base *base, const store_options *o, weir_error *err)
{
    weir_store *visit = NULL;
    weir_status status = weir__sqlite_visit(&visit, o, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_conn_open(&base->database, SQLITE_ROLE_WRITER, &base->writer, err);
        if (status != WEIR_OK) {
            status = weir__wrap(err, status, "open \"%s\"", base->database.given);
        }
    }
    if (status == WEIR_OK) {
        status =
            weir__sqlite_files_judge(base->database.path, o->insecure ? FILE_INSECURE : 0, err);
    }
    if (status == WEIR_OK) {
        /* If it cannot be read, whoever uses it is told. */
        (void)weir__sqlite_exec(&base->writer, "SELECT count(*) FROM sqlite_schema", NULL);
    }
    weir__sqlite_visit_end(visit);
    return status;
}

static weir_status base_connect(sqlite_base *base, const store_options *o, weir_error *err)
{
    sqlite_database *db = &base->database;
    const bool in_memory = o->path.len == 0;
    const int judging = o->insecure ? FILE_INSECURE : 0;
    weir_status status = WEIR_OK;
    db->path = ":memory:";
    if (!in_memory) {
        status = file_find(base, o->path.len, judging, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    db->deadline_us = o->busy_us > INT64_MAX - now_us ? INT64_MAX : now_us + o->busy_us;
    return in_memory ? weir__sqlite_conn_open(db, SQLITE_ROLE_WRITER, &base->writer, err)
                     : file_connect(base, o, err);
}

weir_status weir__table_base_open(sqlite_base **out, const store_options *options, weir_error *err)
{
    weir_status status = weir__sqlite_inherited_close(err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_base *base = weir__calloc(1, sizeof *base);
    if (base == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
    }
    base->database.guest = true;
    base->database.holder = &base_holder;
    base->database.owner = base;
    status = weir__sqlite_handle_add(&base->database, err);
    if (status == WEIR_OK) {
        status = database_fill(base, options, err);
    }
    if (status == WEIR_OK) {
        status = base_connect(base, options, err);
    }
    if (status != WEIR_OK) {
        weir__table_base_close(base);
        return status;
    }
    base->database.at_rest = true;
    *out = base;
    return WEIR_OK;
}
