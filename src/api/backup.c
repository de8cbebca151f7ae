/* backup.c - a store into one file. */
#include "api/api.h"
#include "base/error.h"
#include "store/store_backup.h"

int32_t weir_backup_watched(weir *w, const char *path, uint32_t flags, weir_progress_fn fn,
                            void *ctx, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = weir__enter(w, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (path == NULL || path[0] == '\0') {
        status = weir__fail(err, WEIR_EINVAL, "there is no name for the backup");
    } else if ((flags & ~(uint32_t)WEIR_BACKUP_REPLACE) != 0) {
        status = weir__fail(err, WEIR_EINVAL, "a backup has unknown flags %u",
                            flags & ~(uint32_t)WEIR_BACKUP_REPLACE);
    } else {
        status =
            weir__sqlite_backup(c->store, path, (flags & WEIR_BACKUP_REPLACE) != 0, fn, ctx, err);
    }
    weir__leave(w);
    return status;
}

int32_t weir_backup(weir *w, const char *path, uint32_t flags, weir_error *err)
{
    return weir_backup_watched(w, path, flags, NULL, NULL, err);
}
