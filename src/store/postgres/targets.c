/* targets.c - looking at targets: walking over those a filter accepts, listing them; lanes.
 *
 * A walk reads a bounded number of names in their order and judges them here: a pattern means the
 * same on every store because the same code decides. Names are compared bytewise by the database
 * too (COLLATE "C"), so a name is a place to go on from.
 *
 * Everything here only reads, but for the pause of a lane, which is one row however many targets
 * the lane has.
 */
#include "store/postgres/targets.h"
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/targets_sql.h"
#include "store/target.h"

#include <stdlib.h>

/* ---- walking ------------------------------------------------------------------------------- */

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a list of targets");
}

/* The listed names above `after`, sorted, each once; in the arena. */
static weir_status names_after(const pg_walk *walk, weir_arena *arena, weir_str **out,
                               size_t *count, weir_error *err)
{
    const store_target_filter *filter = walk->filter;
    weir_str *sorted = weir__arena_alloc(arena, filter->names_count * sizeof *sorted);
    if (sorted == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < filter->names_count; i++) {
        sorted[i] = filter->names[i];
    }
    const size_t kept = weir__names_sort(sorted, filter->names_count);
    size_t first = 0;
    while (first < kept && weir__str_compare(sorted[first], walk->after) <= 0) {
        first++;
    }
    *out = sorted + first;
    *count = kept - first;
    return WEIR_OK;
}

/* The listed names in their order, as many at a time as the walk may still accept. What is not a
 * target is passed over. */
static weir_status walk_names(pg_store *s, pg_walk *walk, weir_arena *arena, weir_str *scanned_to,
                              weir_error *err)
{
    weir_str *names = NULL;
    size_t count = 0, at = 0;
    weir_status status = names_after(walk, arena, &names, &count, err);
    while (status == WEIR_OK && at < count && walk->ids_count < walk->limit) {
        const size_t room = walk->limit - walk->ids_count;
        const size_t slice = count - at < room ? count - at : room;
        pg_params p = { 0 };
        PGresult *result = NULL;
        weir__pg_add_text_array(&p, names + at, slice);
        status =
            weir__pg_call(s, &(pg_call){ .sql = sql_walk_names, .params = &p, .repeat = PG_REPEAT },
                          &result, err);
        for (int row = 0; status == WEIR_OK && row < pq.PQntuples(result); row++) {
            walk->ids[walk->ids_count++] = weir__pg_i64(result, row, 0);
        }
        pq.PQclear(result);
        weir__pg_params_free(&p);
        at += slice;
        *scanned_to = names[at - 1];
    }
    walk->more = at < count;
    return status;
}

/* Which of these targets have a subscription whose source matches; `has` is by their order. */
static weir_status match_sources(pg_store *s, const store_pattern *source, const int64_t *ids,
                                 size_t count, bool *has, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64_array(&p, ids, count);
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql_walk_sources, .params = &p, .repeat = PG_REPEAT }, &result, err);
    for (int row = 0; status == WEIR_OK && row < pq.PQntuples(result); row++) {
        if (!weir__pattern_matches(source, weir__pg_text(result, row, 1))) {
            continue;
        }
        const int64_t target = weir__pg_i64(result, row, 0);
        for (size_t i = 0; i < count; i++) {
            has[i] = has[i] || ids[i] == target;
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* What a walk has read. */
typedef struct looked {
    const PGresult *rows; /* borrowed */
    int64_t *ids;         /* in the arena: of the rows that were looked at */
    bool *accepted;
    size_t count;
    bool ended; /* by the pattern: nothing after this can match */
} looked;

/* Judges everything but the source. Rows equal to `after` are passed over: the range that was read
 * is inclusive, the walk is not. */
static void rows_look(const pg_walk *walk, looked *l, size_t *first)
{
    const store_target_filter *filter = walk->filter;
    const size_t rows = (size_t)pq.PQntuples(l->rows);
    *first = rows > 0 && weir__str_equal(weir__pg_text(l->rows, 0, 1), walk->after) ? 1 : 0;
    for (size_t i = *first; i < rows; i++) {
        const weir_str name = weir__pg_text(l->rows, (int)i, 1);
        if (weir__target_is_beyond(filter, name)) {
            l->ended = true;
            return;
        }
        if (l->count == walk->looked_max) {
            return;
        }
        l->ids[l->count] = weir__pg_i64(l->rows, (int)i, 0);
        l->accepted[l->count] =
            weir__target_accepts(filter, name, weir__pg_text(l->rows, (int)i, 2));
        l->count++;
    }
}

static weir_status judge_sources(pg_store *s, const pg_walk *walk, looked *l, weir_arena *arena,
                                 weir_error *err)
{
    bool *has = weir__arena_alloc(arena, l->count + 1);
    if (has == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < l->count; i++) {
        has[i] = false;
    }
    const weir_status status = match_sources(s, walk->filter->source, l->ids, l->count, has, err);
    for (size_t i = 0; i < l->count; i++) {
        l->accepted[i] = l->accepted[i] && has[i];
    }
    return status;
}

/* Takes what was accepted, up to the limit; the name of the last one that was looked at is where
 * the walk goes on. */
static void accepted_take(pg_walk *walk, const looked *l, size_t first, weir_str *scanned_to)
{
    size_t i = 0;
    for (; i < l->count && walk->ids_count < walk->limit; i++) {
        if (l->accepted[i]) {
            walk->ids[walk->ids_count++] = l->ids[i];
        }
    }
    if (i > 0) {
        *scanned_to = weir__pg_text(l->rows, (int)(first + i - 1), 1);
    }
    walk->more = i < l->count || (!l->ended && first + l->count < (size_t)pq.PQntuples(l->rows));
}

static weir_status walk_range(pg_store *s, pg_walk *walk, weir_arena *arena, PGresult **result,
                              weir_str *scanned_to, weir_error *err)
{
    const store_target_filter *filter = walk->filter;
    const bool exact = filter->match != NULL && filter->match->kind == PATTERN_EXACT;
    pg_params p = { 0 };
    looked l = { .ids = weir__arena_alloc(arena, (walk->looked_max + 1) * sizeof(int64_t)),
                 .accepted = weir__arena_alloc(arena, walk->looked_max + 1) };
    size_t first = 0;
    if (l.ids == NULL || l.accepted == NULL) {
        return no_memory(err);
    }
    weir__pg_add_text(&p, weir__target_range(filter, walk->after));
    /* One to pass over, and one to see whether there are more. */
    weir__pg_add_i64(&p, exact ? 2 : (int64_t)walk->looked_max + 2);
    weir_status status =
        weir__pg_call(s,
                      &(pg_call){ .sql = filter->blocked ? sql_walk_blocked : sql_walk_all,
                                  .params = &p,
                                  .repeat = PG_REPEAT },
                      result, err);
    weir__pg_params_free(&p);
    if (status != WEIR_OK) {
        return status;
    }
    l.rows = *result;
    rows_look(walk, &l, &first);
    if (filter->source != NULL && l.count > 0) {
        status = judge_sources(s, walk, &l, arena, err);
    }
    if (status == WEIR_OK) {
        accepted_take(walk, &l, first, scanned_to);
    }
    return status;
}

weir_status weir__pg_walk(pg_store *s, pg_walk *walk, weir_arena *arena, weir_error *err)
{
    PGresult *result = NULL;
    weir_str to = walk->after;
    walk->more = false;
    walk->ids_count = 0;
    walk->ids = weir__arena_alloc(arena, (walk->limit + 1) * sizeof *walk->ids);
    if (walk->ids == NULL) {
        return no_memory(err);
    }
    weir_status status = walk->filter->names_count > 0
                             ? walk_names(s, walk, arena, &to, err)
                             : walk_range(s, walk, arena, &result, &to, err);
    if (status == WEIR_OK) {
        walk->scanned_to.ptr = weir__arena_copy(arena, to.len == 0 ? "" : to.ptr, to.len);
        walk->scanned_to.len = to.len;
        status = walk->scanned_to.ptr == NULL ? no_memory(err) : WEIR_OK;
    }
    pq.PQclear(result);
    return status;
}

/* ---- listing ------------------------------------------------------------------------------- */

static bool read_target(const PGresult *result, int row, weir_arena *arena, store_target *t)
{
    const int64_t now_us = weir__pg_i64(result, row, 20);
    const bool live = !weir__pg_null(result, row, 9) && weir__pg_i64(result, row, 10) > now_us;
    const int64_t due_us = weir__pg_i64_or(result, row, 11, 0);
    *t = (store_target){
        .id = weir__pg_i64(result, row, 0),
        .priority = weir__pg_i64(result, row, 3),
        .prioritized = weir__pg_bool(result, row, 4),
        .watermark = weir__pg_i64(result, row, 5),
        .behind = weir__pg_bool(result, row, 6),
        .fence = weir__pg_i64(result, row, 7),
        .lost = weir__pg_i64(result, row, 8),
        .leased_until_us = live ? weir__pg_i64(result, row, 10) : 0,
        .due_us = due_us > now_us ? due_us : 0,
        .blocked = !weir__pg_null(result, row, 12),
        .blocked_us = weir__pg_i64_or(result, row, 12, 0),
        .event = weir__pg_i64(result, row, 14),
        .attempts = weir__pg_i64(result, row, 16),
        .paused = weir__pg_bool(result, row, 17),
    };
    t->state = weir__target_state(t, weir__pg_bool(result, row, 19), now_us);
    return weir__pg_text_copy(arena, result, row, 1, &t->name) &&
           weir__pg_text_copy(arena, result, row, 2, &t->lane) &&
           (!live || weir__pg_text_copy(arena, result, row, 9, &t->holder)) &&
           weir__pg_text_copy(arena, result, row, 13, &t->error) &&
           weir__pg_text_copy(arena, result, row, 15, &t->reaction) &&
           weir__pg_text_copy(arena, result, row, 18, &t->paused_by);
}

static bool read_subscription(const PGresult *result, int row, weir_arena *arena,
                              store_subscription *sub)
{
    *sub = (store_subscription){
        .reaction = weir__pg_i64(result, row, 21),
        .at = weir__pg_i64(result, row, 25),
        .mark = weir__pg_i64(result, row, 26),
        .retries = weir__pg_i64(result, row, 27),
        .priority = weir__pg_i64(result, row, 28),
        .retired = weir__pg_bool(result, row, 29),
        .routed = weir__pg_i64(result, row, 30),
    };
    return weir__pg_text_copy(arena, result, row, 22, &sub->reaction_name) &&
           weir__pg_text_copy(arena, result, row, 23, &sub->source) &&
           weir__pg_text_copy(arena, result, row, 24, &sub->value);
}

/* Rows of one target follow each other. */
static weir_status read_targets(const PGresult *result, bool only_blocked,
                                store_targets_chunk *chunk, weir_error *err)
{
    const int rows = pq.PQntuples(result);
    store_target *targets = weir__arena_alloc(&chunk->arena, ((size_t)rows + 1) * sizeof *targets);
    store_subscription *subs = weir__arena_alloc(&chunk->arena, ((size_t)rows + 1) * sizeof *subs);
    size_t count = 0;
    if (targets == NULL || subs == NULL) {
        return no_memory(err);
    }
    for (int row = 0; row < rows; row++) {
        if (only_blocked && weir__pg_null(result, row, 12)) {
            continue; /* unblocked since the walk has seen it */
        }
        if (count == 0 || targets[count - 1].id != weir__pg_i64(result, row, 0)) {
            if (!read_target(result, row, &chunk->arena, &targets[count])) {
                return no_memory(err);
            }
            targets[count].subscriptions = &subs[row];
            count++;
        }
        store_target *t = &targets[count - 1];
        if (weir__pg_null(result, row, 21)) {
            t->subscriptions = NULL;
            continue;
        }
        if (!read_subscription(result, row, &chunk->arena, &subs[row])) {
            return no_memory(err);
        }
        t->subscriptions_count++;
        t->mark = subs[row].mark > t->mark ? subs[row].mark : t->mark;
    }
    chunk->targets = targets;
    chunk->targets_count = count;
    return WEIR_OK;
}

weir_status weir__pg_targets(weir_store *base, const store_targets_query *q,
                             store_targets_chunk *chunk, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    pg_walk walk = { .filter = &q->filter,
                     .after = q->after,
                     .limit = weir__chunk_limit(q->limit, STORE_CHUNK_NAMES_MAX),
                     .looked_max = STORE_CHUNK_NAMES_MAX };
    weir__arena_reset(&chunk->arena);
    chunk->targets = NULL;
    chunk->targets_count = 0;
    chunk->scanned_to = (weir_str){ 0 };
    chunk->more = false;
    weir_status status = weir__pg_walk(s, &walk, &chunk->arena, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__pg_add_i64_array(&p, walk.ids, walk.ids_count);
    status = weir__pg_call(
        s, &(pg_call){ .sql = sql_targets_read, .params = &p, .repeat = PG_REPEAT }, &result, err);
    if (status == WEIR_OK) {
        status = read_targets(result, q->filter.blocked && q->filter.names_count == 0, chunk, err);
    }
    if (status == WEIR_OK) {
        chunk->scanned_to = walk.scanned_to;
        chunk->more = walk.more;
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* ---- lanes --------------------------------------------------------------------------------- */

weir_status weir__pg_lanes(weir_store *base, store_lane_list *list, weir_error *err)
{
    PGresult *result = NULL;
    weir__arena_reset(&list->arena);
    list->lanes = NULL;
    list->lanes_count = 0;
    weir_status status = weir__pg_call(
        pg_of(base),
        &(pg_call){ .sql = sql_lanes, .repeat = PG_REPEAT, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int rows = pq.PQntuples(result);
    store_lane *lanes = weir__arena_alloc(&list->arena, ((size_t)rows + 1) * sizeof *lanes);
    bool ok = lanes != NULL;
    for (int row = 0; row < rows && ok; row++) {
        lanes[row] = (store_lane){ .paused = weir__pg_bool(result, row, 1),
                                   .targets = weir__pg_i64(result, row, 3),
                                   .ready = weir__pg_i64(result, row, 4),
                                   .leased = weir__pg_i64(result, row, 5),
                                   .blocked = weir__pg_i64(result, row, 6),
                                   .retrying = weir__pg_i64(result, row, 7),
                                   .deferred = weir__pg_i64(result, row, 8),
                                   .lag = weir__pg_i64(result, row, 9),
                                   .oldest_us = weir__pg_i64(result, row, 10) };
        ok = weir__pg_text_copy(&list->arena, result, row, 0, &lanes[row].lane) &&
             weir__pg_text_copy(&list->arena, result, row, 2, &lanes[row].paused_by);
    }
    pq.PQclear(result);
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the list of lanes");
    }
    list->lanes = lanes;
    list->lanes_count = (size_t)rows;
    return WEIR_OK;
}
