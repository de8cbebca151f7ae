/* lists.c - targets, lanes, parked events, locks and keys of once, a row at a time.
 *
 * INVARIANTS
 *   (1) Between two calls a list holds one chunk in memory and nothing in the store.
 *   (2) The row that was given last lives in the list until the next call.
 */
#include "api/api.h"
#include "api/filter.h"
#include "base/error.h"
#include "base/str.h"
#include "base/struct.h"
#include "store/request.h"

#include <assert.h>

enum {
    LIST_CHUNK_ROWS = 200,
    LIST_ONCES_MAX = 10000,
};

/* What all lists have. Immutable after opening, but for what is marked. */
typedef struct list_head {
    const weir *w;   /* the handle's ticket; it may end before the list */
    weir_core *core; /* held */
    /* owned by the thread that uses the list */
    size_t index; /* of the next row of the chunk */
    bool ended;   /* no chunk comes after this one */
} list_head;

struct weir_target_list {
    list_head head; /* first: see list_new */
    api_filter filter;
    weir_buffer after; /* owned: the last name that was looked at */
    store_targets_chunk chunk;
    weir_target row;
};

struct weir_lane_list {
    list_head head;
    store_lane_list chunk;
    weir_lane_state row;
};

struct weir_parked_list {
    list_head head;
    weir_arena memory; /* of the texts of the query */
    store_parked_query query;
    store_parked_chunk chunk;
    weir_parked row;
};

struct weir_lock_list {
    list_head head;
    store_lock_list chunk;
    weir_lock row;
};

struct weir_once_list {
    list_head head;
    store_once_list chunk;
    weir_once row;
};

static_assert((int)WEIR_ONCE_RUNNING == (int)STORE_ONCE_RUNNING &&
                  (int)WEIR_ONCE_DONE == (int)STORE_ONCE_DONE &&
                  (int)WEIR_ONCE_FAILED == (int)STORE_ONCE_FAILED &&
                  (int)WEIR_ONCE_DIED == (int)STORE_ONCE_DIED,
              "the port counts them alike");

/* ---- what is the same for all ------------------------------------------------------------- */

/* Allocates a list of `bytes` bytes that begins with a list_head. NULL: *status says why. */
static void *list_new(const weir *w, size_t bytes, bool has_out, weir_status *status,
                      weir_error *err)
{
    weir_core *core = NULL;
    if (!has_out) {
        *status = weir__fail(err, WEIR_EINVAL, "there is nowhere to put the list: out is NULL");
        return NULL;
    }
    *status = weir__enter(w, &core, err);
    if (*status != WEIR_OK) {
        return NULL;
    }
    list_head *list = weir__calloc(1, bytes);
    if (list == NULL) {
        *status = weir__fail(err, WEIR_ENOMEM, "could not allocate a list");
    } else {
        weir__core_hold(core);
        list->w = w;
        list->core = core;
    }
    weir__leave(w);
    return list;
}

/* The last of it. */
static void list_end(list_head *list)
{
    weir__core_drop(list->core);
    weir__free(list);
}

/* Every `_next` begins with it. *more: a chunk has to be read; then the handle was entered. */
static weir_status list_begin(list_head *list, const void *out, size_t rows_count, bool *more,
                              weir_error *err)
{
    weir_core *core = NULL;
    *more = false;
    if (list == NULL || out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "the list is NULL, or out is");
    }
    weir_status status = weir__core_check(list->core, err);
    if (status == WEIR_OK && list->index >= rows_count && !list->ended) {
        status = weir__enter(list->w, &core, err);
        *more = status == WEIR_OK;
    }
    return status;
}

/* A copy in the arena; empty stays empty. */
static bool text_copy(weir_arena *arena, weir_str in, weir_str *out)
{
    *out = (weir_str){ .len = 0 };
    if (in.len == 0) {
        return true;
    }
    out->ptr = weir__arena_copy(arena, in.ptr, in.len);
    out->len = in.len;
    return out->ptr != NULL;
}

/* ---- targets ------------------------------------------------------------------------------ */

static int32_t state_of(store_target_state state)
{
    switch (state) {
    case STORE_TARGET_LEASED:
        return WEIR_TARGET_LEASED;
    case STORE_TARGET_BLOCKED:
        return WEIR_TARGET_BLOCKED;
    case STORE_TARGET_PAUSED:
        return WEIR_TARGET_PAUSED;
    case STORE_TARGET_DEFERRED:
        return WEIR_TARGET_DEFERRED;
    case STORE_TARGET_READY:
        return WEIR_TARGET_READY;
    case STORE_TARGET_IDLE:
        return WEIR_TARGET_IDLE;
    }
    return 0;
}

static weir_target target_view(const store_target *t)
{
    return (weir_target){
        .size = sizeof(weir_target),
        .flags = (t->behind ? WEIR_TARGET_BEHIND : 0U) |
                 (t->prioritized ? WEIR_TARGET_PRIORITIZED : 0U) |
                 (t->paused ? WEIR_TARGET_PAUSED_SELF : 0U),
        .state = state_of(t->state),
        .name = t->name,
        .lane = t->lane,
        .priority = t->priority,
        .lag = t->behind && t->mark > t->watermark ? t->mark - t->watermark : 0,
        .watermark = t->watermark,
        .fence = t->fence,
        .lost = t->lost,
        .holder = t->holder,
        .leased_until_us = t->leased_until_us,
        .due_us = t->due_us,
        .blocked_us = t->blocked ? t->blocked_us : 0,
        .error = t->error,
        .event = t->event,
        .reaction = t->reaction,
        .attempts = t->attempts,
        .paused_by = t->paused_by,
    };
}

int32_t weir_targets_open(weir *w, const weir_targets_options *options, weir_target_list **out,
                          weir_error *err)
{
    weir_targets_options o = { WEIR_TARGETS_OPTIONS_INIT };
    weir_status status = WEIR_OK;
    if (options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_targets_options", err);
    }
    const uint32_t known = WEIR_TARGETS_ALL | WEIR_TARGETS_BLOCKED;
    if (status == WEIR_OK && ((o.flags & ~known) != 0 || o.reset_to != 0 || o.reset_position != 0 ||
                              o.reset_time_us != 0 || o.priority != 0 || o.by.len > 0)) {
        status = weir__fail(err, WEIR_EINVAL,
                            "weir_targets_options has what is for verbs, not for a list");
    }
    weir_target_list *list =
        status == WEIR_OK ? list_new(w, sizeof *list, out != NULL, &status, err) : NULL;
    if (list == NULL) {
        return status;
    }
    status = weir__api_filter_take(&list->filter, &o, err);
    if (status != WEIR_OK) {
        weir_targets_close(list);
        return status;
    }
    *out = list;
    return WEIR_OK;
}

/* The next chunk that has a row, or the end. */
static weir_status targets_read(weir_target_list *list, weir_error *err)
{
    weir_store *s = list->head.core->store;
    weir_status status = WEIR_OK;
    list->head.index = 0;
    do {
        const store_targets_query q = { .filter = list->filter.filter,
                                        .after = { list->after.ptr, list->after.len },
                                        .limit = LIST_CHUNK_ROWS };
        status = s->work->targets(s, &q, &list->chunk, err);
        if (status != WEIR_OK) {
            list->chunk.targets_count = 0;
            break;
        }
        list->head.ended = !list->chunk.more;
        const weir_str to = list->chunk.scanned_to;
        weir__buffer_clear(&list->after);
        if (!list->head.ended && !weir__buffer_add(&list->after, to.ptr, to.len)) {
            list->chunk.targets_count = 0;
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a list");
        }
    } while (status == WEIR_OK && list->chunk.targets_count == 0 && !list->head.ended);
    return status;
}

int32_t weir_targets_next(weir_target_list *list, const weir_target **out, weir_error *err)
{
    bool more = false;
    list_head *head = list == NULL ? NULL : &list->head;
    weir_status status =
        list_begin(head, out, list == NULL ? 0 : list->chunk.targets_count, &more, err);
    if (more) {
        status = targets_read(list, err);
        weir__leave(head->w);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *out = NULL;
    if (head->index < list->chunk.targets_count) {
        list->row = target_view(&list->chunk.targets[head->index++]);
        *out = &list->row;
    }
    return WEIR_OK;
}

void weir_targets_close(weir_target_list *list)
{
    if (list != NULL) {
        weir__arena_free(&list->chunk.arena);
        weir__buffer_free(&list->after);
        weir__api_filter_free(&list->filter);
        list_end(&list->head);
    }
}

/* ---- lanes -------------------------------------------------------------------------------- */

int32_t weir_lanes_open(weir *w, weir_lane_list **out, weir_error *err)
{
    weir_status status = WEIR_OK;
    weir_lane_list *list = list_new(w, sizeof *list, out != NULL, &status, err);
    if (list != NULL) {
        *out = list;
    }
    return status;
}

int32_t weir_lanes_next(weir_lane_list *list, const weir_lane_state **out, weir_error *err)
{
    bool more = false;
    list_head *head = list == NULL ? NULL : &list->head;
    weir_status status =
        list_begin(head, out, list == NULL ? 0 : list->chunk.lanes_count, &more, err);
    if (more) {
        weir_store *s = head->core->store;
        status = s->work->lanes(s, &list->chunk, err);
        head->ended = status == WEIR_OK;
        weir__leave(head->w);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *out = NULL;
    if (head->index < list->chunk.lanes_count) {
        const store_lane *l = &list->chunk.lanes[head->index++];
        list->row = (weir_lane_state){ .size = sizeof(weir_lane_state),
                                       .paused = l->paused,
                                       .name = l->lane,
                                       .paused_by = l->paused_by,
                                       .targets = l->targets,
                                       .ready = l->ready,
                                       .leased = l->leased,
                                       .blocked = l->blocked,
                                       .deferred = l->deferred,
                                       .lag = l->lag,
                                       .oldest_us = l->oldest_us };
        *out = &list->row;
    }
    return WEIR_OK;
}

void weir_lanes_close(weir_lane_list *list)
{
    if (list != NULL) {
        weir__arena_free(&list->chunk.arena);
        list_end(&list->head);
    }
}

/* ---- parked events ------------------------------------------------------------------------ */

int32_t weir_parked_open(weir *w, const weir_parked_options *options, weir_parked_list **out,
                         weir_error *err)
{
    weir_parked_options o = { WEIR_PARKED_OPTIONS_INIT };
    weir_status status = WEIR_OK;
    if (options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_parked_options", err);
    }
    if (status == WEIR_OK && o.flags != 0) {
        status = weir__fail(err, WEIR_EINVAL, "weir_parked_options has unknown flags %u", o.flags);
    }
    if (status == WEIR_OK && o.target.len > 0) {
        status = weir__name_check("target", o.target, true, err);
    }
    if (status == WEIR_OK && o.reaction.len > 0) {
        status = weir__name_check("reaction", o.reaction, true, err);
    }
    weir_parked_list *list =
        status == WEIR_OK ? list_new(w, sizeof *list, out != NULL, &status, err) : NULL;
    if (list == NULL) {
        return status;
    }
    list->query.limit = LIST_CHUNK_ROWS;
    if (!text_copy(&list->memory, o.target, &list->query.target) ||
        !text_copy(&list->memory, o.reaction, &list->query.reaction)) {
        weir_parked_close(list);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a list");
    }
    *out = list;
    return WEIR_OK;
}

static weir_status parked_read(weir_parked_list *list, weir_error *err)
{
    weir_store *s = list->head.core->store;
    list->head.index = 0;
    const weir_status status = s->work->parked(s, &list->query, &list->chunk, err);
    if (status != WEIR_OK) {
        list->chunk.parked_count = 0;
        return status;
    }
    const size_t count = list->chunk.parked_count;
    list->head.ended = !list->chunk.more || count == 0;
    list->query.after = count == 0 ? list->query.after : list->chunk.parked[count - 1].id;
    return WEIR_OK;
}

int32_t weir_parked_next(weir_parked_list *list, const weir_parked **out, weir_error *err)
{
    bool more = false;
    list_head *head = list == NULL ? NULL : &list->head;
    weir_status status =
        list_begin(head, out, list == NULL ? 0 : list->chunk.parked_count, &more, err);
    if (more) {
        status = parked_read(list, err);
        weir__leave(head->w);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *out = NULL;
    if (head->index < list->chunk.parked_count) {
        const store_parked *p = &list->chunk.parked[head->index++];
        list->row = (weir_parked){ .size = sizeof(weir_parked),
                                   .sent_back = p->sent_back,
                                   .id = p->id,
                                   .event = p->event,
                                   .attempts = p->attempts,
                                   .parked_us = p->parked_us,
                                   .reaction = p->reaction_name,
                                   .target = p->target,
                                   .error = p->error };
        *out = &list->row;
    }
    return WEIR_OK;
}

void weir_parked_close(weir_parked_list *list)
{
    if (list != NULL) {
        weir__arena_free(&list->chunk.arena);
        weir__arena_free(&list->memory);
        list_end(&list->head);
    }
}

/* ---- locks -------------------------------------------------------------------------------- */

int32_t weir_locks_open(weir *w, weir_lock_list **out, weir_error *err)
{
    weir_status status = WEIR_OK;
    weir_lock_list *list = list_new(w, sizeof *list, out != NULL, &status, err);
    if (list != NULL) {
        *out = list;
    }
    return status;
}

int32_t weir_locks_next(weir_lock_list *list, const weir_lock **out, weir_error *err)
{
    bool more = false;
    list_head *head = list == NULL ? NULL : &list->head;
    weir_status status =
        list_begin(head, out, list == NULL ? 0 : list->chunk.locks_count, &more, err);
    if (more) {
        weir_store *s = head->core->store;
        status = s->locks->list(s, &list->chunk, err);
        head->ended = status == WEIR_OK;
        weir__leave(head->w);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *out = NULL;
    if (head->index < list->chunk.locks_count) {
        const store_lock *l = &list->chunk.locks[head->index++];
        list->row = (weir_lock){ .size = sizeof(weir_lock),
                                 .name = l->name,
                                 .holder = l->holder,
                                 .fence = l->fence,
                                 .since_us = l->since_us,
                                 .until_us = l->until_us };
        *out = &list->row;
    }
    return WEIR_OK;
}

void weir_locks_close(weir_lock_list *list)
{
    if (list != NULL) {
        weir__arena_free(&list->chunk.arena);
        list_end(&list->head);
    }
}

/* ---- once --------------------------------------------------------------------------------- */

int32_t weir_onces_open(weir *w, weir_once_list **out, weir_error *err)
{
    weir_status status = WEIR_OK;
    weir_once_list *list = list_new(w, sizeof *list, out != NULL, &status, err);
    if (list != NULL) {
        *out = list;
    }
    return status;
}

/* All at once: what was begun meanwhile would come before what was given. */
static weir_status onces_read(weir_once_list *list, weir_error *err)
{
    weir_store *s = list->head.core->store;
    list->head.index = 0;
    const weir_status status = s->locks->runs(s, NULL, LIST_ONCES_MAX, &list->chunk, err);
    if (status != WEIR_OK) {
        list->chunk.runs_count = 0;
        return status;
    }
    list->head.ended = true;
    return WEIR_OK;
}

int32_t weir_onces_next(weir_once_list *list, const weir_once **out, weir_error *err)
{
    bool more = false;
    list_head *head = list == NULL ? NULL : &list->head;
    weir_status status =
        list_begin(head, out, list == NULL ? 0 : list->chunk.runs_count, &more, err);
    if (more) {
        status = onces_read(list, err);
        weir__leave(head->w);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *out = NULL;
    if (head->index < list->chunk.runs_count) {
        const store_lock *r = &list->chunk.runs[head->index++];
        list->row = (weir_once){ .size = sizeof(weir_once),
                                 .state = (int32_t)r->state,
                                 .key = r->name,
                                 .holder = r->holder,
                                 .fence = r->fence,
                                 .since_us = r->since_us,
                                 .until_us = r->state == STORE_ONCE_RUNNING ? r->until_us : 0,
                                 .exit_status = r->exit_status,
                                 .ended_us = r->ended_us };
        *out = &list->row;
    }
    return WEIR_OK;
}

void weir_onces_close(weir_once_list *list)
{
    if (list != NULL) {
        weir__arena_free(&list->chunk.arena);
        list_end(&list->head);
    }
}
