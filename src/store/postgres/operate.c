/* operate.c - the operator's verbs, on one target or on a million, in short transactions.
 *
 * Each step walks over at most STORE_OPERATE_CHUNK names, then changes what it found in one
 * transaction: one call of one function. Names and patterns are judged before that (names do not
 * change); whether a target is blocked, and whether the verb changes it at all, is decided in the
 * transaction, with the row locked.
 *
 * SKIP needs the next event of each subscription, and finding it needs patterns, so it is chosen
 * here. What the choice was made on goes along, and a target that has changed since is chosen for
 * again.
 *
 * INVARIANT  Whoever moves a position takes the lease away (fence + 1), so that no holder can write
 * as if it had not moved.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/operate_sql.h"
#include "store/postgres/targets.h"
#include "store/refusal.h"
#include "store/target.h"

enum {
    SKIP_ROUNDS_MAX = 50, /* a target that changes so often while being skipped is too busy */
};

/* One call. */
typedef struct operating {
    pg_store *s;
    const store_operate *op;
    bool only_blocked;
    int64_t position; /* of a reset: the last position that is not handled again */
    int64_t changed;
} operating;

/* Runs a statement that gives one number. */
static weir_status number_ask(pg_store *s, const char *sql, pg_params *p, pg_repeat repeat,
                              int64_t *out, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql, .params = p, .repeat = repeat, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    if (status == WEIR_OK) {
        *out = weir__pg_i64(result, 0, 0);
    }
    pq.PQclear(result);
    return status;
}

/* ---- skip ---------------------------------------------------------------------------------- */

/* A target that is behind, and what is in its way. */
typedef struct candidate {
    int64_t target;
    weir_str state; /* in the arena */
    store_obstacles obstacles;
    store_obstacle first; /* of them */
} candidate;

/* Everything about one round of choosing. */
typedef struct choosing {
    weir_arena arena;
    candidate *candidates;
    size_t candidates_count;
    store_fetch_item *items; /* subscriptions that are behind */
    size_t *owners;          /* index of the candidate an item belongs to */
    int64_t *retries;        /* of an item */
    size_t items_count;
} choosing;

static weir_status read_candidates(const PGresult *result, const operating *o, choosing *x,
                                   weir_error *err)
{
    const size_t rows = (size_t)pq.PQntuples(result);
    bool wanted = false;
    x->candidates = weir__arena_alloc(&x->arena, (rows + 1) * sizeof *x->candidates);
    x->items = weir__arena_alloc(&x->arena, (rows + 1) * sizeof *x->items);
    x->owners = weir__arena_alloc(&x->arena, (rows + 1) * sizeof *x->owners);
    x->retries = weir__arena_alloc(&x->arena, (rows + 1) * sizeof *x->retries);
    if (x->candidates == NULL || x->items == NULL || x->owners == NULL || x->retries == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a list of targets");
    }
    for (int row = 0; row < (int)rows; row++) {
        const int kind = weir__pg_i32(result, row, 1);
        const store_obstacle event = { .reaction = weir__pg_i64(result, row, 2),
                                       .event = weir__pg_i64(result, row, 3),
                                       .attempts = weir__pg_i64(result, row, 5) };
        if (kind == 0) {
            const bool blocked = weir__pg_bool(result, row, 6);
            wanted = blocked || !o->only_blocked;
            if (!wanted) {
                continue;
            }
            candidate *c = &x->candidates[x->candidates_count++];
            *c = (candidate){ .target = weir__pg_i64(result, row, 0) };
            if (blocked) {
                c->obstacles.named = event;
            }
            if (!weir__pg_text_copy(&x->arena, result, row, 7, &c->state)) {
                return weir__fail(err, WEIR_ENOMEM, "could not copy a target");
            }
        } else if (wanted && kind == 1) {
            x->items[x->items_count] = (store_fetch_item){ .target = weir__pg_i64(result, row, 0),
                                                           .reaction = event.reaction,
                                                           .after = event.event,
                                                           .up_to = weir__pg_i64(result, row, 4),
                                                           .limit = 1 };
            x->owners[x->items_count] = x->candidates_count - 1;
            x->retries[x->items_count++] = event.attempts;
        } else if (wanted) {
            weir__obstacle_add(&x->candidates[x->candidates_count - 1].obstacles, event.event,
                               event.reaction, event.attempts);
        }
    }
    return WEIR_OK;
}

/* Notes the next event of each item. A fetch ends when its list is full: what it did not come to is
 * asked for again, by itself. */
static weir_status find_next(pg_store *s, choosing *x, weir_error *err)
{
    store_fetch_list list = { 0 };
    weir_status status = WEIR_OK;
    size_t done = 0;
    while (done < x->items_count && status == WEIR_OK) {
        size_t event = 0, i = done;
        status = weir__pg_fetch(&s->base, x->items + done, x->items_count - done, &list, err);
        for (; status == WEIR_OK && i < x->items_count; i++) {
            if (event < list.events_count && list.events[event].item_index == i - done) {
                weir__obstacle_add(&x->candidates[x->owners[i]].obstacles,
                                   list.events[event++].event->id, x->items[i].reaction,
                                   x->retries[i]);
            } else if (!list.exhausted[i - done]) {
                break;
            }
        }
        if (status == WEIR_OK && i == done) {
            status = weir__fail(err, WEIR_ECORRUPT, "a fetch gave nothing and has more");
        }
        done = i;
    }
    weir__arena_free(&list.arena);
    return status;
}

static weir_status skip_choose(operating *o, const int64_t *ids, size_t count, choosing *x,
                               weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64_array(&p, ids, count);
    weir_status status = weir__pg_call(
        o->s, &(pg_call){ .sql = sql_skip_read, .params = &p, .repeat = PG_REPEAT }, &result, err);
    if (status == WEIR_OK) {
        status = read_candidates(result, o, x, err);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    if (status == WEIR_OK) {
        status = find_next(o->s, x, err);
    }
    /* A target that is behind may have nothing in the way: a mark whose events the reaction no
     * longer wants. The next worker finds that out and settles it. */
    size_t kept = 0;
    for (size_t i = 0; i < x->candidates_count && status == WEIR_OK; i++) {
        candidate c = x->candidates[i];
        c.first = weir__obstacle_first(&c.obstacles);
        if (c.first.found) {
            x->candidates[kept++] = c;
        }
    }
    x->candidates_count = kept;
    return status;
}

static void add_choice(pg_params *p, const choosing *x)
{
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->candidates_count; i++) {
        weir__pg_push_i64(p, x->candidates[i].target);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < x->candidates_count; i++) {
        weir__pg_push_text(p, x->candidates[i].state);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->candidates_count; i++) {
        weir__pg_push_i64(p, x->candidates[i].first.reaction);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->candidates_count; i++) {
        weir__pg_push_i64(p, x->candidates[i].first.event);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->candidates_count; i++) {
        weir__pg_push_i64(p, x->candidates[i].first.attempts);
    }
    weir__pg_array_end(p);
}

/* Skips what was chosen. `left`: targets to choose for again, *left_count of them; room for all. */
static weir_status skip_chosen(operating *o, const choosing *x, int64_t *left, size_t *left_count,
                               weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    add_choice(&p, x);
    const weir_status status = weir__pg_call(
        o->s, &(pg_call){ .sql = sql_operate_skip, .params = &p, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    if (status == WEIR_OK) {
        const int done = pq.PQntuples(result);
        atomic_fetch_add(&o->s->transactions, 1);
        o->changed += done;
        *left_count = 0;
        for (size_t i = 0; i < x->candidates_count; i++) {
            bool found = false;
            for (int row = 0; row < done && !found; row++) {
                found = weir__pg_i64(result, row, 0) == x->candidates[i].target;
            }
            if (!found) {
                left[(*left_count)++] = x->candidates[i].target;
            }
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* ids is used up. */
static weir_status targets_skip(operating *o, int64_t *ids, size_t count, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (int round = 0; count > 0 && status == WEIR_OK; round++) {
        choosing x = { 0 };
        if (round == SKIP_ROUNDS_MAX) {
            return weir__fail(err, WEIR_EBUSY,
                              "%zu targets keep changing while an event of theirs is skipped; "
                              "pause them first",
                              count);
        }
        status = skip_choose(o, ids, count, &x, err);
        if (status == WEIR_OK && o->op->dry_run) {
            o->changed += (int64_t)x.candidates_count;
            count = 0;
        } else if (status == WEIR_OK && x.candidates_count > 0) {
            status = skip_chosen(o, &x, ids, &count, err);
        } else {
            count = 0;
        }
        weir__arena_free(&x.arena);
    }
    return status;
}

/* ---- the other verbs ----------------------------------------------------------------------- */

static weir_status targets_change(operating *o, const int64_t *ids, size_t count, weir_error *err)
{
    const store_operate *op = o->op;
    const bool dry = op->dry_run;
    const char *sql = NULL;
    pg_params p = { 0 };
    int64_t changed = 0;
    if (op->verb == STORE_RESET) {
        sql = dry ? sql_operate_reset_count : sql_operate_reset;
        weir__pg_add_i64_array(&p, ids, count);
        weir__pg_add_bool(&p, o->only_blocked);
        weir__pg_add_i64(&p, o->position);
    } else {
        sql = dry ? sql_operate_count : sql_operate;
        weir__pg_add_i32(&p, (int32_t)op->verb);
        weir__pg_add_i64_array(&p, ids, count);
        weir__pg_add_bool(&p, o->only_blocked);
        if (op->verb == STORE_PRIORITIZE && !op->clear) {
            weir__pg_add_i64(&p, op->priority);
        } else {
            weir__pg_add_null(&p, PG_OID_INT8);
        }
        if (!dry) {
            weir__pg_add_text(&p, op->by);
        }
    }
    const weir_status status = number_ask(o->s, sql, &p, dry ? PG_REPEAT : PG_ONCE, &changed, err);
    weir__pg_params_free(&p);
    if (status == WEIR_OK) {
        o->changed += changed;
        if (!dry) {
            atomic_fetch_add(&o->s->transactions, 1);
        }
    }
    return status;
}

/* ---- all of them --------------------------------------------------------------------------- */

/* Every name given must be a target. Targets are never deleted, so this holds until the end. */
static weir_status check_names(const operating *o, weir_error *err)
{
    const store_target_filter *filter = &o->op->filter;
    pg_params p = { 0 };
    PGresult *result = NULL;
    if (filter->names_count == 0) {
        return WEIR_OK;
    }
    weir__pg_add_text_array(&p, filter->names, filter->names_count);
    weir_status status = weir__pg_call(
        o->s, &(pg_call){ .sql = sql_operate_unknown, .params = &p, .repeat = PG_REPEAT }, &result,
        err);
    if (status == WEIR_OK && pq.PQntuples(result) > 0) {
        status = weir__target_not_named(weir__pg_text(result, 0, 0), err);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* What must be known before the first target is touched. */
static weir_status operate_prepare(operating *o, weir_error *err)
{
    weir_status status = check_names(o, err);
    if (status != WEIR_OK || o->op->verb != STORE_RESET) {
        return status;
    }
    if (o->op->reset_to == STORE_RESET_POSITION) {
        o->position = o->op->position;
    } else if (o->op->reset_to == STORE_RESET_TIME) {
        pg_params p = { 0 };
        weir__pg_add_i64(&p, o->op->time_us);
        status = number_ask(o->s, sql_operate_position_of_time, &p, PG_REPEAT, &o->position, err);
        weir__pg_params_free(&p);
    }
    return status;
}

/* The next names after *after; the new *after is in the arena. */
static weir_status operate_chunk(operating *o, weir_arena *arena, weir_str *after, bool *more,
                                 weir_error *err)
{
    pg_walk walk = { .filter = &o->op->filter,
                     .after = *after,
                     .limit = STORE_OPERATE_CHUNK,
                     .looked_max = STORE_OPERATE_CHUNK };
    weir_status status = weir__pg_walk(o->s, &walk, arena, err);
    if (status == WEIR_OK && walk.ids_count > 0) {
        status = o->op->verb == STORE_SKIP ? targets_skip(o, walk.ids, walk.ids_count, err)
                                           : targets_change(o, walk.ids, walk.ids_count, err);
    }
    if (status == WEIR_OK) {
        *after = walk.scanned_to;
        *more = walk.more;
    }
    return status;
}

/* Leasing is slow until the dead entries are gone. A role that does not own the tables cannot do
 * this, and then autovacuum does it later: not worth an error. */
static void targets_vacuum(pg_store *s)
{
    pg_conn *conn = NULL;
    PGresult *result = NULL;
    weir_error ignored;
    if (weir__pg_take(s, 0, &conn, &ignored) == WEIR_OK) {
        (void)!weir__pg_run_text(conn, sql_operate_vacuum, NULL, PG_ANSWER_US_LONG, &result,
                                 &ignored);
        pq.PQclear(result);
        weir__pg_give(conn);
    }
}

weir_status weir__pg_operate(weir_store *base, store_operate *op, weir_error *err)
{
    operating o = {
        .s = pg_of(base),
        .op = op,
        .only_blocked = op->filter.blocked && op->filter.names_count == 0,
    };
    /* Two arenas in turn: the name where a chunk ended is where the next one begins. */
    weir_arena names[2] = { { 0 }, { 0 } };
    weir_str after = { 0 };
    bool more = true;

    weir_status status = operate_prepare(&o, err);
    for (size_t turn = 0; more && status == WEIR_OK; turn ^= 1) {
        weir__arena_reset(&names[turn]);
        status = operate_chunk(&o, &names[turn], &after, &more, err);
    }
    weir__arena_free(&names[0]);
    weir__arena_free(&names[1]);
    if (o.changed > 0 && !op->dry_run) {
        weir__pg_wake(o.s); /* also when a later chunk failed */
        if (o.changed > STORE_OPERATE_CHUNK) {
            targets_vacuum(o.s);
        }
    }
    if (status == WEIR_OK) {
        op->changed = o.changed;
    }
    return status;
}

weir_status weir__pg_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                bool *changed, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, lane);
    weir__pg_add_bool(&p, paused);
    weir__pg_add_text(&p, by);
    const weir_status status =
        weir__pg_call(s, &(pg_call){ .sql = sql_lane_pause, .params = &p }, &result, err);
    if (status == WEIR_OK) {
        const bool did = weir__pg_bool(result, 0, 0);
        atomic_fetch_add(&s->transactions, 1);
        if (changed != NULL) {
            *changed = did;
        }
        if (did) {
            weir__pg_wake(s);
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}
