/* snapshots.c - folded states of streams, one for each, by name. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

weir_status weir__memory_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    const store_snapshot *old = weir__rows_find(&c->snapshots, snapshot);
    const bool newer = old == NULL || snapshot->version >= old->version ||
                       !weir__str_equal(snapshot->revision, old->revision);
    if (newer) {
        weir__memory_put(c, &c->snapshots, snapshot);
    }
    return weir__memory_end(base, WEIR_OK, false, err);
}

weir_status weir__memory_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const store_snapshot *s = weir__rows_find(&c->snapshots, &(store_snapshot){ .stream = stream });
    weir_status status = WEIR_OK;
    store_snapshot copy = { 0 };
    if (s == NULL || s->version > at_most || !weir__str_equal(s->revision, revision)) {
        status = weir__snapshot_unknown(stream, err);
    } else {
        weir__memory_copy(c, &c->snapshots, s, arena, &copy);
    }
    status = weir__memory_unlock(c, status, err);
    if (status == WEIR_OK) {
        *out = copy;
    }
    return status;
}

weir_status weir__memory_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    int64_t count = 0;
    for (size_t i = c->snapshots.count; i > 0; i--) {
        const store_snapshot *s = c->snapshots.rows[i - 1];
        if (!weir__str_equal(s->revision, keep_revision) &&
            (category.len == 0 || weir__str_equal(weir__category(s->stream), category))) {
            weir__memory_remove(c, &c->snapshots, s);
            count++;
        }
    }
    const weir_status status = weir__memory_end(base, WEIR_OK, false, err);
    if (status == WEIR_OK && dropped != NULL) {
        *dropped = count;
    }
    return status;
}
