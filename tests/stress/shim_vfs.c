/* shim_vfs.c - the pass-through VFS; see shim_vfs.h.
 *
 * Memory-mapped reads are left out (version 2 of the methods), so that every byte that reaches a
 * database file passes through here; Weir does not map files anyway. One shim per name; at most
 * SHIMS_MAX, because a VFS is never taken away again.
 */
#include "shim_vfs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SHIMS_MAX = 4 };

static struct {
    sqlite3_vfs vfs;
    const shim_hooks *hooks;
} shims[SHIMS_MAX];
static int shims_count;

static sqlite3_vfs *real_vfs(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static const shim_hooks *hooks_of(const sqlite3_vfs *vfs)
{
    for (int i = 0; i < shims_count; i++) {
        if (&shims[i].vfs == vfs) {
            return shims[i].hooks;
        }
    }
    abort();
}

static shim_file *shim(sqlite3_file *file)
{
    return (shim_file *)(void *)file;
}

static sqlite3_file *real(sqlite3_file *file)
{
    return (sqlite3_file *)(void *)(shim(file) + 1);
}

/* ---- files -------------------------------------------------------------------------------- */

static int file_close(sqlite3_file *file)
{
    if (shim(file)->hooks->closing != NULL) {
        shim(file)->hooks->closing(shim(file));
    }
    return real(file)->pMethods->xClose(real(file));
}

static int file_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 offset)
{
    return real(file)->pMethods->xRead(real(file), bytes, len, offset);
}

static int file_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 offset)
{
    if (shim(file)->hooks->writing != NULL) {
        shim(file)->hooks->writing(shim(file), bytes, len, offset);
    }
    return real(file)->pMethods->xWrite(real(file), bytes, len, offset);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    if (shim(file)->hooks->truncating != NULL) {
        shim(file)->hooks->truncating(shim(file), size);
    }
    return real(file)->pMethods->xTruncate(real(file), size);
}

static int file_sync(sqlite3_file *file, int flags)
{
    int rc =
        shim(file)->hooks->syncing == NULL ? SQLITE_OK : shim(file)->hooks->syncing(shim(file));
    if (rc == SQLITE_OK && !shim(file)->hooks->skip_sync) {
        rc = real(file)->pMethods->xSync(real(file), flags);
    }
    if (rc == SQLITE_OK && shim(file)->hooks->synced != NULL) {
        shim(file)->hooks->synced(shim(file));
    }
    return rc;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real(file)->pMethods->xFileSize(real(file), size);
}

static void level_set(shim_file *f, int level)
{
    const int before = f->level;
    f->level = level;
    if (f->hooks->leveled != NULL && before != level) {
        f->hooks->leveled(f, before);
    }
}

static int file_lock(sqlite3_file *file, int level)
{
    const int rc = real(file)->pMethods->xLock(real(file), level);
    if (rc == SQLITE_OK && level > shim(file)->level) {
        level_set(shim(file), level);
    }
    return rc;
}

static int file_unlock(sqlite3_file *file, int level)
{
    const int rc = real(file)->pMethods->xUnlock(real(file), level);
    if (rc == SQLITE_OK && level < shim(file)->level) {
        level_set(shim(file), level);
    }
    return rc;
}

static int file_check_lock(sqlite3_file *file, int *out)
{
    return real(file)->pMethods->xCheckReservedLock(real(file), out);
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    return real(file)->pMethods->xFileControl(real(file), op, arg);
}

static int file_sector_size(sqlite3_file *file)
{
    return real(file)->pMethods->xSectorSize(real(file));
}

static int file_characteristics(sqlite3_file *file)
{
    return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

static int file_shm_map(sqlite3_file *file, int page, int page_bytes, int extend,
                        void volatile **out)
{
    const int rc = real(file)->pMethods->xShmMap(real(file), page, page_bytes, extend, out);
    if (rc == SQLITE_OK) {
        shim(file)->has_index = true;
    }
    return rc;
}

static int file_shm_lock(sqlite3_file *file, int first, int count, int flags)
{
    shim_file *f = shim(file);
    const int slots = ((1 << count) - 1) << first;
    const bool exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
    const bool unlock = (flags & SQLITE_SHM_UNLOCK) != 0;
    const int rc = real(file)->pMethods->xShmLock(real(file), first, count, flags);
    if (rc == SQLITE_OK && exclusive && !unlock) {
        f->index_locks |= slots;
        if (f->hooks->index_locked != NULL) {
            f->hooks->index_locked(f, first, count);
        }
    } else if (rc == SQLITE_OK && exclusive && (f->index_locks & slots) != 0) {
        f->index_locks &= ~slots;
        if (f->hooks->index_unlocked != NULL) {
            f->hooks->index_unlocked(f, first, count);
        }
    }
    return rc;
}

static void file_shm_barrier(sqlite3_file *file)
{
    real(file)->pMethods->xShmBarrier(real(file));
}

static int file_shm_unmap(sqlite3_file *file, int delete_flag)
{
    return real(file)->pMethods->xShmUnmap(real(file), delete_flag);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* ---- the file system ---------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out)
{
    enum {
        TYPES = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL |
                SQLITE_OPEN_TEMP_DB | SQLITE_OPEN_TEMP_JOURNAL | SQLITE_OPEN_SUBJOURNAL |
                SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_TRANSIENT_DB
    };
    shim_file *f = shim(file);
    int there = 1;
    memset(f, 0, sizeof(*f));
    f->hooks = hooks_of(vfs);
    f->path = path;
    f->type = flags & TYPES;
    if (path != NULL) {
        (void)real_vfs(vfs)->xAccess(real_vfs(vfs), path, SQLITE_ACCESS_EXISTS, &there);
    }
    const int rc = real_vfs(vfs)->xOpen(real_vfs(vfs), path, real(file), flags, out);
    if (rc != SQLITE_OK) {
        return rc;
    }
    f->created = there == 0;
    f->base.pMethods = &methods;
    if (f->hooks->opened != NULL) {
        f->hooks->opened(f);
    }
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync_directory)
{
    const int rc = real_vfs(vfs)->xDelete(real_vfs(vfs), path, sync_directory);
    if (rc == SQLITE_OK && hooks_of(vfs)->deleted != NULL) {
        hooks_of(vfs)->deleted(path, sync_directory != 0);
    }
    return rc;
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
    return real_vfs(vfs)->xAccess(real_vfs(vfs), path, flags, out);
}

static int vfs_full_pathname(sqlite3_vfs *vfs, const char *path, int len, char *out)
{
    return real_vfs(vfs)->xFullPathname(real_vfs(vfs), path, len, out);
}

static int vfs_randomness(sqlite3_vfs *vfs, int len, char *out)
{
    return real_vfs(vfs)->xRandomness(real_vfs(vfs), len, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
    return real_vfs(vfs)->xSleep(real_vfs(vfs), microseconds);
}

static int vfs_time(sqlite3_vfs *vfs, double *out)
{
    return real_vfs(vfs)->xCurrentTime(real_vfs(vfs), out);
}

static int vfs_time64(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    return real_vfs(vfs)->xCurrentTimeInt64(real_vfs(vfs), out);
}

static int vfs_last_error(sqlite3_vfs *vfs, int len, char *out)
{
    return real_vfs(vfs)->xGetLastError(real_vfs(vfs), len, out);
}

int shim_vfs_register(const char *name, const shim_hooks *hooks)
{
    sqlite3_vfs *base = sqlite3_vfs_find(NULL);
    assert(base != NULL && shims_count < SHIMS_MAX);
    assert(sizeof(shim_file) % 8 == 0);
    shims[shims_count].hooks = hooks;
    shims[shims_count].vfs = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = (int)sizeof(shim_file) + base->szOsFile,
        .mxPathname = base->mxPathname,
        .zName = name,
        .pAppData = base,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_pathname,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_time64,
    };
    shims_count++;
    return sqlite3_vfs_register(&shims[shims_count - 1].vfs, 0);
}
