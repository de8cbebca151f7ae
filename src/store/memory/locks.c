/* locks.c - named locks, and keys of once: one row for each, replaced whenever somebody takes it.
 *
 * INVARIANTS
 *   (1) Fences come from one counter of the store, so a name whose row was removed and that is
 *       taken again has a larger one.
 *   (2) A row is one block of memory; only the end of its lease ever changes.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdlib.h>

static memory_lock *lock_of(table_item *item)
{
    return (memory_lock *)(void *)item;
}

static memory_lock *find(const table *rows, weir_str name)
{
    return lock_of(weir__table_find(rows, weir__str_hash(name), name));
}

static bool is_live(const memory_lock *l, int64_t now_us)
{
    return l->once.state == STORE_ONCE_RUNNING && l->once.run.until_us > now_us;
}

static bool row_remove(memory_core *c, table *rows, memory_lock *l)
{
    return weir__tx_table_remove(c, rows, &l->item) && weir__tx_free(c, l);
}

/* A row that says what `from` says takes the place of `old`, which may be NULL. NULL: out of
 * memory. */
static memory_lock *row_put(memory_core *c, table *rows, memory_lock *old, const store_once *from)
{
    const store_lock *run = &from->run;
    memory_lock *l =
        weir__tx_alloc(c, sizeof *l + run->name.len + run->holder.len + from->output.len);
    if (l == NULL) {
        return NULL;
    }
    char *place = l->bytes;
    l->once = *from;
    l->once.run.name = weir__memory_put_text(&place, run->name);
    l->once.run.holder = weir__memory_put_text(&place, run->holder);
    l->once.output = weir__memory_put_text(&place, from->output);
    l->item = (table_item){ .hash = weir__str_hash(run->name), .key = l->once.run.name };
    const bool ok =
        (old == NULL || row_remove(c, rows, old)) && weir__tx_table_add(c, rows, &l->item);
    return ok ? l : NULL;
}

static weir_status copy_out(const store_once *from, weir_arena *arena, store_once *out,
                            weir_error *err)
{
    store_once copy = *from;
    if (!weir__memory_text_copy(arena, from->run.name, &copy.run.name) ||
        !weir__memory_text_copy(arena, from->run.holder, &copy.run.holder) ||
        !weir__memory_text_copy(arena, from->output, &copy.output)) {
        return weir__memory_full(err);
    }
    *out = copy;
    return WEIR_OK;
}

/* ---- taking --------------------------------------------------------------------------------- */

typedef struct take {
    weir_str name, holder;
    int64_t lease_us;
    bool once;
} take;

/* *held: it is another's, who is in *out. */
static weir_status take_locked(memory_core *c, const take *t, int64_t now_us, weir_arena *arena,
                               store_once *out, bool *held, weir_error *err)
{
    table *rows = t->once ? &c->once : &c->locks;
    memory_lock *old = find(rows, t->name);
    if (old != NULL && (is_live(old, now_us) || old->once.state == STORE_ONCE_DONE)) {
        *held = old->once.state == STORE_ONCE_RUNNING;
        return copy_out(&old->once, arena, out, err);
    }
    if (!weir__tx_save(c, &c->locks_fence, sizeof c->locks_fence)) {
        return weir__memory_full(err);
    }
    const store_once mine = {
        .run = { .name = t->name,
                 .holder = t->holder,
                 .fence = ++c->locks_fence,
                 .since_us = now_us,
                 .until_us = t->lease_us == 0 ? 0 : weir__memory_later(now_us, t->lease_us) },
        .state = STORE_ONCE_RUNNING,
    };
    const memory_lock *l = row_put(c, rows, old, &mine);
    return l == NULL ? weir__memory_full(err) : copy_out(&l->once, arena, out, err);
}

static weir_status take_verb(weir_store *base, const take *t, weir_arena *arena, store_once *out,
                             bool *held, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);
    *held = false;
    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = take_locked(h->core, t, weir__memory_now(h), arena, out, held, err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

weir_status weir__memory_lock_take(weir_store *base, weir_str name, weir_str holder,
                                   int64_t lease_us, weir_arena *arena, store_lock *out,
                                   weir_error *err)
{
    const take t = { .name = name, .holder = holder, .lease_us = lease_us };
    store_once found = { 0 };
    bool held = false;
    const weir_status status = take_verb(base, &t, arena, &found, &held, err);
    if (status != WEIR_OK) {
        return status;
    }
    *out = found.run;
    return held ? weir__lock_held(out, err) : WEIR_OK;
}

weir_status weir__memory_once_begin(weir_store *base, weir_str key, weir_str holder,
                                    int64_t lease_us, weir_arena *arena, store_once *out,
                                    weir_error *err)
{
    const take t = { .name = key, .holder = holder, .lease_us = lease_us, .once = true };
    bool held = false;
    const weir_status status = take_verb(base, &t, arena, out, &held, err);
    return status == WEIR_OK && held ? weir__once_running(out, err) : status;
}

/* ---- holding, and letting go ---------------------------------------------------------------- */

/* One change of a row that is held with a fence. */
typedef struct change {
    enum { EXTEND, RELEASE, FINISH } what;
    weir_str name;
    int64_t fence, lease_us;
    int64_t exit_status;
    weir_str output;
    bool once;
} change;

static bool extend(memory_core *c, memory_lock *l, int64_t lease_us, int64_t now_us)
{
    int64_t *until_us = &l->once.run.until_us;
    if (*until_us == 0) {
        return true;
    }
    if (!weir__tx_save(c, until_us, sizeof *until_us)) {
        return false;
    }
    *until_us = weir__memory_later(now_us, lease_us);
    return true;
}

static bool finish(memory_core *c, memory_lock *l, const change *how, int64_t now_us)
{
    store_once ended = l->once;
    ended.state = how->exit_status == 0 ? STORE_ONCE_DONE : STORE_ONCE_FAILED;
    ended.exit_status = how->exit_status;
    ended.ended_us = now_us;
    ended.output = how->output;
    return row_put(c, &c->once, l, &ended) != NULL;
}

static weir_status change_locked(memory_core *c, const change *how, int64_t now_us, weir_error *err)
{
    table *rows = how->once ? &c->once : &c->locks;
    memory_lock *l = find(rows, how->name);
    bool ok = true;
    if (l == NULL || l->once.run.fence != how->fence) {
        return weir__lock_lost(how->name, how->fence, err);
    }
    if (l->once.state != STORE_ONCE_RUNNING) {
        return how->what == FINISH ? WEIR_OK : weir__lock_lost(how->name, how->fence, err);
    }
    switch (how->what) {
    case EXTEND:
        ok = extend(c, l, how->lease_us, now_us);
        break;
    case RELEASE:
        ok = row_remove(c, rows, l);
        break;
    case FINISH:
        ok = finish(c, l, how, now_us);
        break;
    }
    return ok ? WEIR_OK : weir__memory_full(err);
}

static weir_status change_verb(weir_store *base, const change *how, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = change_locked(h->core, how, weir__memory_now(h), err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

weir_status weir__memory_lock_extend(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                     int64_t lease_us, weir_error *err)
{
    (void)token;
    const change how = { .what = EXTEND, .name = name, .fence = fence, .lease_us = lease_us };
    return change_verb(base, &how, err);
}

weir_status weir__memory_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err)
{
    (void)token;
    return change_verb(base, &(change){ .what = RELEASE, .name = name, .fence = fence }, err);
}

weir_status weir__memory_once_extend(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t lease_us, weir_error *err)
{
    (void)token;
    const change how = {
        .what = EXTEND, .name = key, .fence = fence, .lease_us = lease_us, .once = true
    };
    return change_verb(base, &how, err);
}

weir_status weir__memory_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err)
{
    (void)token;
    const change how = { .what = FINISH,
                         .name = key,
                         .fence = fence,
                         .exit_status = exit_status,
                         .output = output,
                         .once = true };
    return change_verb(base, &how, err);
}

static weir_status forget_locked(memory_core *c, weir_str key, int64_t now_us, weir_error *err)
{
    memory_lock *l = find(&c->once, key);
    if (l == NULL) {
        return weir__once_unknown(key, err);
    }
    if (is_live(l, now_us)) {
        return weir__once_running(&l->once, err);
    }
    return row_remove(c, &c->once, l) ? WEIR_OK : weir__memory_full(err);
}

weir_status weir__memory_once_forget(weir_store *base, weir_str key, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = forget_locked(h->core, key, weir__memory_now(h), err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

/* ---- listing -------------------------------------------------------------------------------- */

static int compare_locks(const void *a, const void *b)
{
    const store_lock *left = a;
    const store_lock *right = b;
    return weir__str_compare(left->name, right->name);
}

static weir_status list_locked(const memory_core *c, int64_t now_us, store_lock_list *list,
                               weir_error *err)
{
    size_t cursor = 0;
    size_t count = 0;
    store_lock *locks = weir__arena_alloc(&list->arena, (c->locks.count + 1) * sizeof *locks);
    if (locks == NULL) {
        return weir__memory_full(err);
    }
    for (table_item *item; (item = weir__table_next(&c->locks, &cursor)) != NULL;) {
        const memory_lock *l = lock_of(item);
        store_once copy;
        if (l->once.run.until_us != 0 && !is_live(l, now_us)) {
            continue;
        }
        const weir_status status = copy_out(&l->once, &list->arena, &copy, err);
        if (status != WEIR_OK) {
            return status;
        }
        locks[count++] = copy.run;
    }
    qsort(locks, count, sizeof *locks, compare_locks);
    list->locks = locks;
    list->locks_count = count;
    return WEIR_OK;
}

weir_status weir__memory_locks(weir_store *base, store_lock_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__arena_reset(&list->arena);
    list->locks = NULL;
    list->locks_count = 0;
    weir__lock(&h->core->mu);
    const weir_status status = list_locked(h->core, weir__memory_now(h), list, err);
    weir__unlock(&h->core->mu);
    return status;
}

static int compare_runs(const void *a, const void *b)
{
    const store_once *left = a;
    const store_once *right = b;
    const bool left_runs = left->state == STORE_ONCE_RUNNING;
    if (left_runs != (right->state == STORE_ONCE_RUNNING)) {
        return left_runs ? -1 : 1;
    }
    if (left->run.since_us != right->run.since_us) {
        return left->run.since_us > right->run.since_us ? -1 : 1;
    }
    return weir__str_compare(left->run.name, right->run.name);
}

static weir_status runs_locked(const memory_core *c, const store_pattern *match, int64_t now_us,
                               store_once_list *list, weir_error *err)
{
    size_t cursor = 0;
    store_once *runs = weir__arena_alloc(&list->arena, (c->once.count + 1) * sizeof *runs);
    if (runs == NULL) {
        return weir__memory_full(err);
    }
    list->runs = runs;
    for (table_item *item; (item = weir__table_next(&c->once, &cursor)) != NULL;) {
        store_once run = lock_of(item)->once;
        if (match != NULL && !weir__pattern_matches(match, run.run.name)) {
            continue;
        }
        run.state = weir__once_state_at(&run, now_us);
        run.output = (weir_str){ 0 };
        const weir_status status = copy_out(&run, &list->arena, &runs[list->runs_count], err);
        if (status != WEIR_OK) {
            return status;
        }
        list->runs_count++;
    }
    qsort(runs, list->runs_count, sizeof *runs, compare_runs);
    return WEIR_OK;
}

weir_status weir__memory_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__arena_reset(&list->arena);
    list->runs = NULL;
    list->runs_count = 0;
    weir__lock(&h->core->mu);
    const weir_status status = runs_locked(h->core, match, weir__memory_now(h), list, err);
    weir__unlock(&h->core->mu);
    if (status != WEIR_OK) {
        list->runs_count = 0;
    } else if ((int64_t)list->runs_count > limit) {
        list->runs_count = (size_t)limit;
    }
    return status;
}

static void rows_free(table *rows)
{
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(rows, &cursor)) != NULL;) {
        weir__free(item);
    }
    weir__table_free(rows);
}

void weir__memory_locks_free(memory_core *c)
{
    rows_free(&c->locks);
    rows_free(&c->once);
}
