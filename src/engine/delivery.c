/* delivery.c - see delivery.h.
 *
 * INVARIANT  Nothing that was staged points to memory of the handler: names are copied here, data
 * and meta by weir__append_prepare.
 */
#include "engine/delivery.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "base/struct.h"
#include "base/utf8.h"

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate an effect");
}

/* ---- effects ------------------------------------------------------------------------------ */

static void staged_free(staged_append *a)
{
    if (a != NULL) {
        weir__prepared_free(&a->prepared);
        weir__arena_free(&a->names);
        weir__free(a);
    }
}

void weir__effects_cut(effects *e, size_t appends_count, size_t sqls_count)
{
    while (e->appends_count > appends_count) {
        staged_free(e->appends[--e->appends_count]);
    }
    if (e->sqls_count > sqls_count) {
        e->sqls_count = sqls_count;
    }
}

void weir__effects_free(effects *e)
{
    weir__effects_cut(e, 0, 0);
    weir__free(e->appends);
    weir__free(e->sqls);
    weir__free(e->list);
    *e = (effects){ 0 };
}

/* Room for `more` of an array's elements; *array may move. */
static bool effects_grow(void *array, size_t *capacity, size_t count, size_t more, size_t bytes)
{
    size_t wanted = *capacity == 0 ? 8 : *capacity;
    void *moved = NULL;
    while (wanted < count + more) {
        wanted *= 2;
    }
    if (wanted == *capacity) {
        return true;
    }
    memcpy(&moved, array, sizeof moved);
    moved = weir__realloc(moved, wanted * bytes);
    if (moved == NULL) {
        return false;
    }
    memcpy(array, &moved, sizeof moved);
    *capacity = wanted;
    return true;
}

weir_status weir__effects_move(effects *to, effects *from, weir_error *err)
{
    if (!effects_grow(&to->appends, &to->appends_capacity, to->appends_count, from->appends_count,
                      sizeof(staged_append *)) ||
        !effects_grow(&to->sqls, &to->sqls_capacity, to->sqls_count, from->sqls_count,
                      sizeof *to->sqls)) {
        return no_memory(err);
    }
    for (size_t i = 0; i < from->appends_count; i++) {
        to->appends[to->appends_count++] = from->appends[i];
    }
    for (size_t i = 0; i < from->sqls_count; i++) {
        to->sqls[to->sqls_count++] = from->sqls[i];
    }
    from->appends_count = 0;
    from->sqls_count = 0;
    return WEIR_OK;
}

store_append *const *weir__effects_list(effects *e)
{
    if (!effects_grow(&e->list, &e->list_capacity, 0, e->appends_count, sizeof(store_append *))) {
        return NULL;
    }
    for (size_t i = 0; i < e->appends_count; i++) {
        store_append *a = &e->appends[i]->prepared.append;
        a->status = WEIR_OK;
        a->replayed = false;
        a->alone = false;
        for (size_t n = 0; n < a->streams_count; n++) {
            a->streams[n].first = -1;
            a->streams[n].last = -1;
            a->streams[n].id = 0;
        }
        e->list[i] = a;
    }
    return e->list;
}

/* ---- a request that outlives its caller ---------------------------------------------------- */

static bool copy_str(weir_arena *arena, weir_str *s)
{
    if (s->len > 0) {
        s->ptr = weir__arena_copy(arena, s->ptr, s->len);
    }
    return s->len == 0 || s->ptr != NULL;
}

static weir_status copy_events(weir_arena *arena, weir_append_request *r, weir_error *err)
{
    const weir_new_event **list = weir__arena_alloc(arena, (r->events_count + 1) * sizeof *list);
    weir_new_event *copies = weir__arena_alloc(arena, (r->events_count + 1) * sizeof *copies);
    if (list == NULL || copies == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < r->events_count; i++) {
        const weir_status status =
            weir__struct_copy(&copies[i], sizeof copies[i], r->events[i], "weir_new_event", err);
        if (status != WEIR_OK) {
            return status;
        }
        copies[i].size = sizeof copies[i];
        if (!copy_str(arena, &copies[i].stream) || !copy_str(arena, &copies[i].name)) {
            return no_memory(err);
        }
        list[i] = &copies[i];
    }
    r->events = list;
    return WEIR_OK;
}

static weir_status copy_expectations(weir_arena *arena, weir_append_request *r, weir_error *err)
{
    const size_t count = r->expectations_count;
    const weir_expectation **list = weir__arena_alloc(arena, (count + 1) * sizeof *list);
    weir_expectation *copies = weir__arena_alloc(arena, (count + 1) * sizeof *copies);
    if (list == NULL || copies == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        const weir_status status = weir__struct_copy(&copies[i], sizeof copies[i],
                                                     r->expectations[i], "weir_expectation", err);
        if (status != WEIR_OK) {
            return status;
        }
        copies[i].size = sizeof copies[i];
        if (!copy_str(arena, &copies[i].stream)) {
            return no_memory(err);
        }
        list[i] = &copies[i];
    }
    r->expectations = list;
    return WEIR_OK;
}

static weir_status copy_keys(weir_arena *arena, weir_append_request *r, weir_error *err)
{
    const size_t count = r->key_changes_count;
    const weir_key_change **list = weir__arena_alloc(arena, (count + 1) * sizeof *list);
    weir_key_change *copies = weir__arena_alloc(arena, (count + 1) * sizeof *copies);
    if (list == NULL || copies == NULL || !copy_str(arena, &r->key)) {
        return no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        const weir_status status = weir__struct_copy(&copies[i], sizeof copies[i],
                                                     r->key_changes[i], "weir_key_change", err);
        if (status != WEIR_OK) {
            return status;
        }
        copies[i].size = sizeof copies[i];
        if (!copy_str(arena, &copies[i].key) || !copy_str(arena, &copies[i].stream)) {
            return no_memory(err);
        }
        list[i] = &copies[i];
    }
    r->key_changes = list;
    return WEIR_OK;
}

/* What weir__append_prepare would refuse is left for it to refuse: only counts that cannot be
 * copied are looked at here. */
static weir_status request_copy(weir_arena *arena, const weir_append_request *in,
                                weir_append_request *out, weir_error *err)
{
    weir_status status = weir__struct_copy(out, sizeof *out, in, "weir_append_request", err);
    if (status != WEIR_OK) {
        return status;
    }
    out->size = sizeof *out;
    const bool odd = out->events_count > STORE_APPEND_EVENTS_MAX ||
                     out->expectations_count > STORE_APPEND_EVENTS_MAX ||
                     out->key_changes_count > STORE_APPEND_KEYS_MAX ||
                     (out->events_count > 0 && out->events == NULL) ||
                     (out->expectations_count > 0 && out->expectations == NULL) ||
                     (out->key_changes_count > 0 && out->key_changes == NULL);
    if (odd) {
        return WEIR_OK;
    }
    status = copy_events(arena, out, err);
    if (status == WEIR_OK) {
        status = copy_expectations(arena, out, err);
    }
    return status == WEIR_OK ? copy_keys(arena, out, err) : status;
}

/* The event's correlation, when it has one that an append may be given. */
static weir_status meta_inherit(const weir_event *event, weir_arena *arena, weir_append_request *r,
                                weir_error *err)
{
    weir_buffer text = { 0 };
    weir_str value;
    weir_status status = WEIR_OK;

    if (r->causation == 0) {
        r->causation = event->id;
    }
    if (r->correlation.len == 0 && weir__json_get(event->meta, "correlation", &value) &&
        weir__json_type(value) == WEIR_JSON_STRING) {
        if (!weir__json_string_decode(value, &text)) {
            status = no_memory(err);
        } else {
            r->correlation = (weir_str){ .ptr = text.ptr, .len = text.len };
        }
        if (weir__name_check("correlation", r->correlation, true, NULL) != WEIR_OK) {
            r->correlation = (weir_str){ 0 };
        }
    }
    if (status == WEIR_OK && !copy_str(arena, &r->correlation)) {
        status = no_memory(err);
    }
    weir__buffer_free(&text);
    return status;
}

weir_status weir__stage_append(weir_delivery *d, const weir_append_request *request,
                               weir_error *err)
{
    effects *e = d->effects;
    weir_append_request r;
    staged_append *a = NULL;

    if (e->appends_count >= EFFECTS_MAX) {
        return weir__fail(err, WEIR_EBUSY, "%d appends are staged already, allowed %d", EFFECTS_MAX,
                          EFFECTS_MAX);
    }
    if (!effects_grow(&e->appends, &e->appends_capacity, e->appends_count, 1,
                      sizeof(staged_append *)) ||
        (a = weir__calloc(1, sizeof *a)) == NULL) {
        return no_memory(err);
    }
    weir_status status = request_copy(&a->names, request, &r, err);
    if (status == WEIR_OK) {
        status = meta_inherit(d->event, &a->names, &r, err);
    }
    if (status == WEIR_OK) {
        status = weir__append_prepare(&a->prepared, &r, d->payload_bytes, d->clock, err);
    }
    if (status == WEIR_OK) {
        a->prepared.append.err = NULL; /* the handler's error is gone when it is settled */
        e->appends[e->appends_count++] = a;
        a = NULL;
    }
    staged_free(a);
    return status;
}

weir_status weir__stage_sql(weir_delivery *d, weir_sql_fn fn, void *ctx, weir_error *err)
{
    effects *e = d->effects;
    if (fn == NULL) {
        return weir__fail(err, WEIR_EINVAL, "SQL is staged without a function");
    }
    if (e->sqls_count >= EFFECTS_MAX) {
        return weir__fail(err, WEIR_EBUSY, "%d SQL functions are staged already, allowed %d",
                          EFFECTS_MAX, EFFECTS_MAX);
    }
    if (!effects_grow(&e->sqls, &e->sqls_capacity, e->sqls_count, 1, sizeof *e->sqls)) {
        return no_memory(err);
    }
    e->sqls[e->sqls_count++] = (staged_sql){ .fn = fn, .ctx = ctx };
    return WEIR_OK;
}

/* ---- what is said about a failure ----------------------------------------------------------- */

bool weir__delivery_interrupted(const weir_delivery *d)
{
    return atomic_load(d->interrupted) ||
           weir__clock_boottime(d->clock) >=
               atomic_load_explicit(d->held_until_us, memory_order_relaxed);
}

void weir__delivery_fail(weir_delivery *d, weir_str why)
{
    const size_t len = why.len < sizeof d->why - 1 ? why.len : sizeof d->why - 1;
    if (len > 0) {
        memcpy(d->why, why.ptr, len);
    }
    d->why[len] = '\0';
}
