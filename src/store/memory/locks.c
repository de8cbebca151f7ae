/* locks.c - named locks, and keys of once: one row for each, replaced whenever somebody takes it.
 *
 * Fences come from one counter of the store, so a name whose row was removed and that is taken
 * again has a larger one.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdlib.h>

static const store_lock *row_find(const row_table *rows, weir_str name)
{
    return weir__rows_find(rows, &(store_lock){ .name = name });
}

static bool is_live(const memory_core *c, const store_lock *l)
{
    return l->state == STORE_ONCE_RUNNING && l->until_us > c->now_us;
}

/* ---- taking --------------------------------------------------------------------------------- */

weir_status weir__memory_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                                   store_lock *out, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    store_lock copy;
    row_table *rows = q->kind == STORE_ONCE ? &c->once : &c->locks;
    const store_lock *old = row_find(rows, q->name);
    const bool taken = old != NULL && (is_live(c, old) || old->state == STORE_ONCE_DONE);
    const store_lock mine = {
        .name = q->name,
        .holder = q->holder,
        .fence = c->counters.fence + 1,
        .since_us = c->now_us,
        .until_us = q->lease_us == 0 ? 0 : weir__time_later(c->now_us, q->lease_us),
        .state = STORE_ONCE_RUNNING,
    };

    if (!taken) {
        c->counters.fence++;
        weir__memory_put(c, rows, &mine);
    }
    weir__memory_copy(c, rows, taken ? old : &mine, arena, &copy);
    const weir_status status = weir__memory_end(base, WEIR_OK, false, err);
    if (status == WEIR_OK) {
        *out = copy;
    }
    return status == WEIR_OK && taken ? weir__lock_taken(q->kind, out, err) : status;
}

/* ---- holding, and letting go ---------------------------------------------------------------- */

/* One change of a row that is held with a fence. */
typedef struct row_ending {
    enum { EXTEND, RELEASE, FINISH } what;
    bool once;
    weir_str name;
    int64_t fence, lease_us;
    int64_t exit_status;
    weir_str output;
} row_ending;

static weir_status row_end_locked(memory_core *c, const row_ending *how, weir_error *err)
{
    row_table *rows = how->once ? &c->once : &c->locks;
    const store_lock *old = row_find(rows, how->name);
    if (old == NULL || old->fence != how->fence) {
        return weir__lock_lost(how->name, how->fence, err);
    }
    if (old->state != STORE_ONCE_RUNNING) {
        return how->what == FINISH ? WEIR_OK : weir__lock_lost(how->name, how->fence, err);
    }
    store_lock l = *old;
    switch (how->what) {
    case EXTEND:
        l.until_us = l.until_us == 0 ? 0 : weir__time_later(c->now_us, how->lease_us);
        break;
    case RELEASE:
        weir__memory_remove(c, rows, old);
        return WEIR_OK;
    case FINISH:
        l.state = how->exit_status == 0 ? STORE_ONCE_DONE : STORE_ONCE_FAILED;
        l.exit_status = how->exit_status;
        l.ended_us = c->now_us;
        l.output = how->output;
        break;
    }
    weir__memory_put(c, rows, &l);
    return WEIR_OK;
}

static weir_status row_end(weir_store *base, const row_ending *how, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    weir_status status = row_end_locked(c, how, err);
    return weir__memory_end(base, status, false, err);
}

weir_status weir__memory_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                     int64_t fence, int64_t token, int64_t lease_us,
                                     weir_error *err)
{
    (void)token;
    const row_ending how = { .what = EXTEND,
                             .once = kind == STORE_ONCE,
                             .name = name,
                             .fence = fence,
                             .lease_us = lease_us };
    return row_end(base, &how, err);
}

weir_status weir__memory_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err)
{
    (void)token;
    return row_end(base, &(row_ending){ .what = RELEASE, .name = name, .fence = fence }, err);
}

weir_status weir__memory_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err)
{
    (void)token;
    const row_ending how = { .what = FINISH,
                             .once = true,
                             .name = key,
                             .fence = fence,
                             .exit_status = exit_status,
                             .output = output };
    return row_end(base, &how, err);
}

weir_status weir__memory_once_forget(weir_store *base, weir_str key, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    weir_status status = WEIR_OK;
    const store_lock *l = row_find(&c->once, key);
    if (l == NULL) {
        status = weir__once_unknown(key, err);
    } else if (is_live(c, l)) {
        status = weir__once_running(l, err);
    } else {
        weir__memory_remove(c, &c->once, l);
    }
    return weir__memory_end(base, status, false, err);
}

/* ---- listing -------------------------------------------------------------------------------- */

weir_status weir__memory_locks(weir_store *base, store_lock_list *list, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    weir__arena_reset(&list->arena);
    list->locks_count = 0;
    list->locks = weir__memory_array(c, &list->arena, c->locks.count + 1, sizeof *list->locks);
    for (size_t i = 0; i < c->locks.count && !c->full; i++) {
        const store_lock *l = c->locks.rows[i];
        store_lock copy;
        if (l->until_us == 0 || is_live(c, l)) {
            weir__memory_copy(c, &c->locks, l, &list->arena, &copy);
            list->locks[list->locks_count++] = copy;
        }
    }
    return weir__memory_unlock(c, WEIR_OK, err);
}

static int compare_runs(const void *a, const void *b)
{
    const store_lock *left = a;
    const store_lock *right = b;
    const bool left_runs = left->state == STORE_ONCE_RUNNING;
    if (left_runs != (right->state == STORE_ONCE_RUNNING)) {
        return left_runs ? -1 : 1;
    }
    if (left->since_us != right->since_us) {
        return left->since_us > right->since_us ? -1 : 1;
    }
    return weir__str_compare(left->name, right->name);
}

weir_status weir__memory_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    size_t count = 0;
    weir__arena_reset(&list->arena);
    list->runs = weir__memory_array(c, &list->arena, c->once.count + 1, sizeof *list->runs);
    for (size_t i = 0; i < c->once.count && !c->full; i++) {
        store_lock run = *(const store_lock *)c->once.rows[i];
        if (match == NULL || weir__pattern_matches(match, run.name)) {
            run.state = weir__once_state_at(&run, c->now_us);
            run.output = (weir_str){ 0 };
            weir__memory_copy(c, &c->once, &run, &list->arena, &list->runs[count++]);
        }
    }
    if (!c->full) {
        qsort(list->runs, count, sizeof *list->runs, compare_runs);
    }
    list->runs_count = (int64_t)count > limit ? (size_t)limit : count;
    return weir__memory_unlock(c, WEIR_OK, err);
}
