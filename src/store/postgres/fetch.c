/* fetch.c - the events of subscriptions.
 *
 * INVARIANTS
 *   (1) What is given is exactly what the reaction's current definition wants (names, source),
 *       restricted by its rule. weir.fetch finds it; a source that is a regular expression is
 *       judged here, so that it means the same on every store.
 *   (2) `exhausted` is said only of an item for which fewer events were found than asked for, while
 *       the list, and the answer, still had room: the caller moves its position on that word.
 *
 * One round trip, unless events are refused here, or an answer is full, or an event is too large
 * for the quick way: then what is still wanted is asked for again, from that item on.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/pattern.h"
#include "store/postgres/fetch_sql.h"
#include "store/postgres/postgres_private.h"

#include <string.h>

/* The columns of sql_fetch. */
enum {
    FETCH_ITEM,
    FETCH_ID,
    FETCH_VERSION,
    FETCH_CREATED,
    FETCH_STREAM,
    FETCH_NAME,
    FETCH_DATA,
    FETCH_META,
    FETCH_JUDGE,
};

enum {
    SMALL_EVENTS_MAX = 4000, /* of one answer of the quick way                                */
    SMALL_BYTES_MAX = STORE_FETCH_BYTES_SOFT / SMALL_EVENTS_MAX,
    LARGE_FETCHES = 16, /* where one event is large, others are: so many fetches add sizes up
                                before the quick way is tried again                           */
};

/* One fetch call. */
typedef struct fetching {
    const store_fetch_item *items; /* borrowed */
    size_t items_count;
    weir_arena *arena;      /* of the list */
    store_fetched *fetched; /* in the arena: STORE_FETCH_EVENTS_MAX */
    size_t fetched_count;
    size_t bytes;           /* of data and meta so far */
    size_t bytes_soft;      /* where they end          */
    bool *exhausted;        /* in the arena: per item */
    store_pattern *pattern; /* owned: the last one that was needed */
    size_t item_index;      /* the first item that is not done */
    int64_t after;          /* of that item: already looked at */
    int64_t limit;          /* of that item: still wanted */
    bool sized;             /* sizes are added up by the server */
} fetching;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate fetched events");
}

static int64_t room_left(const fetching *f)
{
    return f->bytes >= f->bytes_soft ? 0 : STORE_FETCH_EVENTS_MAX - (int64_t)f->fetched_count;
}

/* How many events the next answer has at most. */
static int64_t answer_room(const fetching *f)
{
    const int64_t room = room_left(f);
    return f->sized || room < SMALL_EVENTS_MAX ? room : SMALL_EVENTS_MAX;
}

static void start_item(fetching *f, size_t index)
{
    f->item_index = index;
    if (index < f->items_count) {
        f->after = f->items[index].after;
        f->limit = f->items[index].limit;
    }
}

static weir_status fetch_ask(fetching *f, pg_store *s, PGresult **result, weir_error *err)
{
    pg_params p = { 0 };
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = f->item_index; i < f->items_count; i++) {
        weir__pg_push_i64(&p, f->items[i].target);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = f->item_index; i < f->items_count; i++) {
        weir__pg_push_i64(&p, f->items[i].reaction);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = f->item_index; i < f->items_count; i++) {
        weir__pg_push_i64(&p, i == f->item_index ? f->after : f->items[i].after);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = f->item_index; i < f->items_count; i++) {
        weir__pg_push_i64(&p, f->items[i].up_to);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = f->item_index; i < f->items_count; i++) {
        weir__pg_push_i64(&p, i == f->item_index ? f->limit : f->items[i].limit);
    }
    weir__pg_array_end(&p);
    weir__pg_add_i64(&p, answer_room(f));
    weir__pg_add_i64(&p, f->sized ? (int64_t)(f->bytes_soft - f->bytes) : SMALL_BYTES_MAX);
    const weir_status status = weir__pg_call(
        s,
        &(pg_call){
            .sql = f->sized ? sql_fetch : sql_fetch_small, .params = &p, .repeat = PG_REPEAT },
        result, err);
    weir__pg_params_free(&p);
    return status;
}

/* Whether the source, a regular expression, matches the event's stream. */
static weir_status source_judge(fetching *f, weir_str text, weir_str stream, bool *wanted,
                                weir_error *err)
{
    if (f->pattern == NULL || !weir__str_equal(f->pattern->text, text)) {
        weir__pattern_close(f->pattern);
        f->pattern = NULL;
        const weir_status status = weir__pattern_open(&f->pattern, text, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    *wanted = weir__pattern_matches(f->pattern, stream);
    return WEIR_OK;
}

static weir_status keep_event(fetching *f, const PGresult *result, int row, size_t item_index,
                              weir_error *err)
{
    weir_event *event = weir__arena_alloc(f->arena, sizeof *event);
    if (event == NULL) {
        return no_memory(err);
    }
    *event = (weir_event){ .size = sizeof *event,
                           .id = weir__pg_i64(result, row, FETCH_ID),
                           .version = weir__pg_i64(result, row, FETCH_VERSION),
                           .created_us = weir__pg_time_us(result, row, FETCH_CREATED) };
    if (!weir__pg_text_copy(f->arena, result, row, FETCH_STREAM, &event->stream) ||
        !weir__pg_text_copy(f->arena, result, row, FETCH_NAME, &event->name) ||
        !weir__pg_text_copy(f->arena, result, row, FETCH_DATA, &event->data) ||
        !weir__pg_text_copy(f->arena, result, row, FETCH_META, &event->meta)) {
        return no_memory(err);
    }
    f->fetched[f->fetched_count++] =
        (store_fetched){ .event = event, .item_index = (uint32_t)item_index };
    f->bytes += event->data.len + event->meta.len;
    return WEIR_OK;
}

/* An answer, while it is read. */
typedef struct answer {
    PGresult *result;
    int rows, row; /* `row` is the next one */
    bool full;     /* there may be more than what it has */
    bool again;    /* what follows in it was counted wrongly, or is not there: ask anew */
} answer;

/* Whether the next row is of this item and has its texts. One that has not is too large. */
static bool next_of(answer *a, int32_t item, fetching *f)
{
    if (a->row >= a->rows || weir__pg_i32(a->result, a->row, FETCH_ITEM) != item) {
        return false;
    }
    if (weir__pg_null(a->result, a->row, FETCH_DATA)) {
        f->sized = true;
        a->again = true;
        return false;
    }
    return true;
}

/* The rows of one item, and with them the item: done, unless it has to be asked for again. */
static weir_status take_item(fetching *f, answer *a, int32_t item, weir_error *err)
{
    const int64_t asked = f->limit < room_left(f) ? f->limit : room_left(f);
    const size_t index = f->item_index;
    int64_t found = 0;
    int64_t kept = 0;

    for (; next_of(a, item, f); a->row++, found++) {
        bool wanted = true;
        weir_status status = WEIR_OK;
        if (!weir__pg_null(a->result, a->row, FETCH_JUDGE)) {
            status = source_judge(f, weir__pg_text(a->result, a->row, FETCH_JUDGE),
                                  weir__pg_text(a->result, a->row, FETCH_STREAM), &wanted, err);
        }
        if (status == WEIR_OK && wanted) {
            status = keep_event(f, a->result, a->row, index, err);
            kept++;
        }
        if (status != WEIR_OK) {
            return status;
        }
        /* With refusals fewer rows than asked for may also mean that the server's list was full. */
        a->again = a->again || !wanted;
        f->after = weir__pg_i64(a->result, a->row, FETCH_ID);
    }
    f->limit -= kept;
    a->again = a->again || (a->full && a->row == a->rows);
    if (a->again) {
        if (f->limit == 0) {
            start_item(f, index + 1);
        }
        return WEIR_OK;
    }
    f->exhausted[index] = room_left(f) > 0 && found < asked;
    start_item(f, index + 1);
    return WEIR_OK;
}

/* Whether to add sizes up this time. */
static bool expects_large(pg_store *s)
{
    const int32_t left = atomic_load_explicit(&s->fetch_large, memory_order_relaxed);
    if (left > 0) {
        atomic_store_explicit(&s->fetch_large, left - 1, memory_order_relaxed);
    }
    return left > 0;
}

static weir_status fetch_all(fetching *f, pg_store *s, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool first = true; /* items are looked at once also when nothing is asked for: ENOTFOUND */
    const bool expected = expects_large(s);
    /* The quick way asks for no less than the usual size. */
    f->sized = expected || f->bytes_soft < STORE_FETCH_BYTES_SOFT;
    start_item(f, 0);
    while (status == WEIR_OK && f->item_index < f->items_count && (first || room_left(f) > 0)) {
        answer a = { 0 };
        const size_t base = f->item_index;
        const bool capped = answer_room(f) < room_left(f);
        const int64_t room = answer_room(f);
        first = false;
        status = fetch_ask(f, s, &a.result, err);
        if (status == WEIR_OK) {
            a.rows = pq.PQntuples(a.result);
            a.full = capped && a.rows >= room;
        }
        while (status == WEIR_OK && !a.again && f->item_index < f->items_count &&
               room_left(f) > 0) {
            status = take_item(f, &a, (int32_t)(f->item_index - base), err);
        }
        pq.PQclear(a.result);
    }
    if (f->sized && !expected) {
        atomic_store_explicit(&s->fetch_large, LARGE_FETCHES, memory_order_relaxed);
    }
    return status;
}

weir_status weir__pg_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                           store_fetch_list *list, weir_error *err)
{
    fetching f = { .items = items,
                   .items_count = count,
                   .arena = &list->arena,
                   .bytes_soft = weir__fetch_bytes_soft(list) };
    weir__arena_reset(&list->arena);
    list->events = NULL;
    list->events_count = 0;
    list->exhausted = NULL;
    f.exhausted = weir__arena_alloc(&list->arena, (count + 1) * sizeof *f.exhausted);
    f.fetched = weir__arena_alloc(&list->arena, STORE_FETCH_EVENTS_MAX * sizeof *f.fetched);
    if (f.exhausted == NULL || f.fetched == NULL) {
        return no_memory(err);
    }
    memset(f.exhausted, 0, (count + 1) * sizeof *f.exhausted);
    const weir_status status = fetch_all(&f, pg_of(base), err);
    if (status == WEIR_OK) {
        list->events = f.fetched;
        list->events_count = f.fetched_count;
        list->exhausted = f.exhausted;
    }
    weir__pattern_close(f.pattern);
    return status;
}
