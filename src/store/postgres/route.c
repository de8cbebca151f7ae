/* route.c - one step of routing: one call of a function of the database (route_functions.sql),
 * however many marks there are (route_marks.h). */
#include "base/error.h"
#include "base/str.h"
#include "store/error_text.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/route_marks.h"
#include "store/postgres/route_sql.h"

#include <stdlib.h>

static void add_steps(pg_params *p, const store_route *r)
{
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->steps_count; i++) {
        weir__pg_push_i64(p, r->steps[i].reaction);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->steps_count; i++) {
        weir__pg_push_i64(p, r->steps[i].number);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->steps_count; i++) {
        weir__pg_push_i64(p, r->steps[i].from);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->steps_count; i++) {
        weir__pg_push_i64(p, r->steps[i].to);
    }
    weir__pg_array_end(p);
}

static void add_mark_names(pg_params *p, const pg_route_marks *m)
{
    weir__pg_add_text_array(p, m->names, m->names_count);
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_i32(p, (int32_t)m->marks[i].begin->reaction_index);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_i32(p, (int32_t)m->marks[i].name);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_i32(p, (int32_t)m->marks[i].round);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_text(p, m->marks[i].begin->lane);
    }
    weir__pg_array_end(p);
}

static void add_mark_values(pg_params *p, const pg_route_marks *m)
{
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_i64(p, m->marks[i].end->priority);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_text(p, m->marks[i].end->source);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_text(p, m->marks[i].end->value);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_i64(p, m->marks[i].begin->first);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < m->marks_count; i++) {
        weir__pg_push_i64(p, m->marks[i].end->last);
    }
    weir__pg_array_end(p);
}

static void add_events(pg_params *p, const pg_route_marks *m)
{
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < m->events_count; i++) {
        weir__pg_push_i32(p, (int32_t)m->events[i].mark);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < m->events_count; i++) {
        weir__pg_push_i64(p, m->events[i].event);
    }
    weir__pg_array_end(p);
}

static void add_parks(pg_params *p, const store_route *r, weir_arena *arena)
{
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < r->parks_count; i++) {
        weir__pg_push_i32(p, (int32_t)r->parks[i].reaction_index);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->parks_count; i++) {
        weir__pg_push_i64(p, r->parks[i].event);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < r->parks_count; i++) {
        weir__pg_push_text(p,
                           weir__error_text(arena, r->parks[i].error, STORE_ERROR_TEXT_BYTES_MAX));
    }
    weir__pg_array_end(p);
}

/* own: as the database said it; *bad_mark only where it names one. */
static void tell_refused(weir_status status, const store_route *r, const pg_route_marks *m,
                         size_t *bad_mark, weir_error *own)
{
    if (status == WEIR_EINVAL) {
        /* The detail is the index of the mark: for us, not for a reader. */
        const size_t bad = (size_t)strtoull(own->detail, NULL, 10);
        if (bad_mark != NULL && bad < m->marks_count) {
            *bad_mark = (size_t)(m->marks[bad].begin - r->marks);
        }
        weir__error_detail(own, "%s", "");
    }
}

/* text: indexes of our marks, with spaces between. A store of before gives none. */
static void tell_beyond(weir_str text, const store_route *r, const pg_route_marks *m)
{
    for (size_t at = 0; at < text.len;) {
        size_t index = 0;
        for (; at < text.len && text.ptr[at] >= '0' && text.ptr[at] <= '9'; at++) {
            index = index * 10 + (size_t)(text.ptr[at] - '0');
        }
        at++;
        if (index < m->marks_count) {
            r->beyond[m->marks[index].begin - r->marks] = true;
        }
    }
}

weir_status weir__pg_route(weir_store *base, const store_route *r, size_t *bad_mark,
                           weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir_error own = { 0 };
    weir_arena arena = { 0 };
    pg_route_marks marks;
    weir_status status = WEIR_OK;

    if (!weir__pg_route_marks(r->marks, r->marks_count, &arena, &marks)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate marks");
        goto out;
    }
    add_steps(&p, r);
    add_mark_names(&p, &marks);
    add_mark_values(&p, &marks);
    add_events(&p, &marks);
    add_parks(&p, r, &arena);
    weir__pg_add_i64(&p, r->place);
    /* Routed without our hearing of it: a second try finds `routed` where it leads to and answers
     * with a conflict, as if somebody else had been faster. */
    status = weir__pg_call(s, &(pg_call){ .sql = sql_route, .params = &p, .repeat = PG_REPEAT },
                           &result, &own);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
        if (r->beyond != NULL) {
            tell_beyond(weir__pg_text(result, 0, 0), r, &marks);
        }
        if (r->marks_count > 0) {
            weir__pg_wake(s);
        }
    } else {
        tell_refused(status, r, &marks, bad_mark, &own);
        if (err != NULL) {
            *err = own;
        }
    }
out:
    pq.PQclear(result);
    weir__pg_params_free(&p);
    weir__arena_free(&arena);
    return status;
}
