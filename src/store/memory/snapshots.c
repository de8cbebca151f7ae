/* snapshots.c - folded states of streams, one for each, by name. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

static memory_snapshot *find(const memory_core *c, weir_str stream)
{
    return (memory_snapshot *)(void *)weir__table_find(&c->snapshots, weir__str_hash(stream),
                                                       stream);
}

static weir_status put_locked(memory_core *c, const store_snapshot *snapshot, weir_error *err)
{
    memory_snapshot *old = find(c, snapshot->stream);
    if (old != NULL && snapshot->version < old->version &&
        weir__str_equal(snapshot->revision, old->revision)) {
        return WEIR_OK;
    }
    memory_snapshot *s = weir__tx_alloc(c, sizeof *s + snapshot->stream.len +
                                               snapshot->revision.len + snapshot->data.len);
    if (s == NULL) {
        return weir__memory_full(err);
    }
    char *place = s->bytes;
    s->item.key = weir__memory_put_text(&place, snapshot->stream);
    s->item.hash = weir__str_hash(snapshot->stream);
    s->revision = weir__memory_put_text(&place, snapshot->revision);
    s->data = weir__memory_put_text(&place, snapshot->data);
    s->version = snapshot->version;
    if ((old != NULL &&
         (!weir__tx_table_remove(c, &c->snapshots, &old->item) || !weir__tx_free(c, old))) ||
        !weir__tx_table_add(c, &c->snapshots, &s->item)) {
        return weir__memory_full(err);
    }
    return WEIR_OK;
}

weir_status weir__memory_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = put_locked(h->core, snapshot, err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

static weir_status get_locked(const memory_core *c, weir_str stream, weir_str revision,
                              int64_t at_most, weir_arena *arena, store_snapshot *out,
                              weir_error *err)
{
    const memory_snapshot *s = find(c, stream);
    if (s == NULL || s->version > at_most || !weir__str_equal(s->revision, revision)) {
        return weir__fail(err, WEIR_ENOTFOUND, "no snapshot of \"%.*s\" fits", (int)stream.len,
                          stream.ptr);
    }
    store_snapshot copy = { .version = s->version };
    if (!weir__memory_text_copy(arena, s->item.key, &copy.stream) ||
        !weir__memory_text_copy(arena, s->revision, &copy.revision) ||
        !weir__memory_text_copy(arena, s->data, &copy.data)) {
        return weir__memory_full(err);
    }
    *out = copy;
    return WEIR_OK;
}

weir_status weir__memory_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = get_locked(h->core, stream, revision, at_most, arena, out, err);
    weir__unlock(&h->core->mu);
    return status;
}

/* Removing shifts items back, so the walk starts again at the slot it has emptied; when the table
 * wraps around, an item may be looked at twice, which changes nothing. */
static weir_status drop_locked(memory_core *c, weir_str category, weir_str keep, int64_t *dropped,
                               weir_error *err)
{
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(&c->snapshots, &cursor)) != NULL;) {
        const memory_snapshot *s = (const memory_snapshot *)(const void *)item;
        if (weir__str_equal(s->revision, keep) ||
            (category.len > 0 && !weir__str_equal(weir__category(item->key), category))) {
            continue;
        }
        if (!weir__tx_table_remove(c, &c->snapshots, item) || !weir__tx_free(c, item)) {
            return weir__memory_full(err);
        }
        ++*dropped;
        cursor--;
    }
    return WEIR_OK;
}

weir_status weir__memory_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    int64_t count = 0;
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = drop_locked(h->core, category, keep_revision, &count, err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    if (status == WEIR_OK && dropped != NULL) {
        *dropped = count;
    }
    return status;
}
