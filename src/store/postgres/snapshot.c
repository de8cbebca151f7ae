/* snapshot.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_snapshot_put(weir_store *s, const store_snapshot *snapshot, weir_error *err)
{
    (void)s;
    (void)snapshot;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_snapshot_get(weir_store *s, weir_str stream, weir_str revision,
                                  int64_t at_most, weir_arena *arena, store_snapshot *out,
                                  weir_error *err)
{
    (void)s;
    (void)stream;
    (void)revision;
    (void)at_most;
    (void)arena;
    (void)out;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_snapshot_drop(weir_store *s, weir_str category, weir_str keep_revision,
                                   int64_t *dropped, weir_error *err)
{
    (void)s;
    (void)category;
    (void)keep_revision;
    (void)dropped;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
