/* path.c - the files that SQLite opens by name: where they are, and whether they can be trusted. */
#include "base/error.h"
#include "base/file.h"
#include "sqlite/sqlite.h"

#include <errno.h>
#include <string.h>

weir_status weir__sqlite_file_fail(weir_error *err, int code, const char *what, const char *path)
{
    char text[128];
    if (strerror_r(code, text, sizeof text) != 0) {
        text[0] = '\0'; /* a code without a text; store_code has it */
    }
    const weir_status status =
        weir__fail(err, WEIR_EIO, "could not %s \"%s\": %s", what, path, text);
    weir__error_store_code(err, "%d", code);
    if (code == ENOSPC || code == EDQUOT) {
        weir__error_detail(err,
                           "The disk is full. The store is as it was; make room and try again.");
    } else if (code == EACCES || code == EPERM || code == EROFS) {
        weir__error_detail(err,
                           "A store needs write permission on its directory and on its files.");
    } else if (code == ENOENT) {
        weir__error_detail(err, "The directory of a store must be there already.");
    }
    return status;
}

weir_status weir__sqlite_path_check(const char *given, size_t len, int judging, weir_error *err)
{
    return strlen(given) == len && len > 0 && strcmp(given, ":memory:") != 0
               ? weir__file_judge_given(given, judging, err)
               : weir__fail(err, WEIR_EINVAL, "\"%s\" is not the path of a file", given);
}

weir_status weir__sqlite_path_suffix(const char *path, bool is_store, weir_error *err)
{
    /* A restore opens the last one as a store. */
    static const char *const suffixes[] = { "-wal",  "-shm",   "-journal",
                                            "-weir", "-locks", "-restoring" };
    const size_t count = sizeof suffixes / sizeof suffixes[0] - (is_store ? 1 : 0);
    const size_t len = strlen(path);
    for (size_t i = 0; i < count; i++) {
        const size_t suffix_len = strlen(suffixes[i]);
        struct stat st;
        if (len <= suffix_len || strcmp(path + len - suffix_len, suffixes[i]) != 0) {
            continue;
        }
        char *beside = weir__strndup(path, len - suffix_len);
        const bool taken = beside != NULL && stat(beside, &st) == 0 && S_ISREG(st.st_mode);
        weir__free(beside);
        if (taken) {
            const weir_status status =
                weir__fail(err, WEIR_EINVAL, "\"%s\" is the name of a file of \"%.*s\"", path,
                           (int)(len - suffix_len), path);
            weir__error_detail(err, "SQLite or Weir would write to it, or remove it. Choose "
                                    "another name.");
            return status;
        }
    }
    return WEIR_OK;
}

weir_status weir__sqlite_path_resolve(const char *given, const char *vfs_name, weir_arena *arena,
                                      const char **out, weir_error *err)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(vfs_name);
    if (vfs == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is no SQLite VFS \"%s\"",
                          vfs_name == NULL ? "default" : vfs_name);
    }
    char *path = weir__arena_alloc(arena, (size_t)vfs->mxPathname + 1);
    if (path == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
    }
    const int rc = vfs->xFullPathname(vfs, given, vfs->mxPathname + 1, path);
    if ((rc & 0xff) != SQLITE_OK) {
        const weir_status status =
            weir__fail(err, WEIR_EIO, "could not resolve \"%s\": %s", given, sqlite3_errstr(rc));
        weir__error_store_code(err, "%d", rc);
        return status;
    }
    *out = path;
    return weir__sqlite_path_suffix(path, true, err);
}

weir_status weir__sqlite_files_judge(const char *path, int judging, weir_error *err)
{
    static const char *const suffixes[] = { "", "-journal", "-wal", "-shm" };
    weir_status status = weir__file_judge_above(path, judging, err);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0] && status == WEIR_OK; i++) {
        weir_buffer name = { 0 };
        if (!weir__buffer_add_text(&name, path) || !weir__buffer_add_text(&name, suffixes[i]) ||
            !weir__buffer_add(&name, "", 1)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
        } else {
            status = weir__file_judge_name(name.ptr, FILE_ONE_NAME | judging, err);
        }
        weir__buffer_free(&name);
    }
    return status;
}

weir_status weir__sqlite_file_look(const sqlite_database *db, struct stat *st, bool *there,
                                   weir_error *err)
{
    *there = stat(db->path, st) == 0;
    if (*there && !S_ISREG(st->st_mode)) {
        return weir__fail(err, WEIR_EINVAL, "\"%s\" is not a file", db->given);
    }
    return *there || errno == ENOENT ? WEIR_OK
                                     : weir__sqlite_file_fail(err, errno, "look at", db->given);
}
