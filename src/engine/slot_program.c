/* slot_program.c - events that are handled by programs (see child/): the line they are given, and
 * what their answer means.
 *
 * A slot keeps one long-lived program per reaction that wants one. Nothing of a program's answer
 * remains unless all of it can be staged.
 */
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/child/child.h"
#include "engine/slot_private.h"

typedef struct slot_program {
    const reaction *reaction;
    child *child; /* owned */
} slot_program;

typedef struct slot_programs {
    slot_program *items; /* owned */
    size_t items_count;
    child_result result;
    weir_buffer line;
} slot_programs;

void weir__slot_programs_free(slot_programs *p)
{
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->items_count; i++) {
        weir__child_close(p->items[i].child);
    }
    weir__free(p->items);
    weir__child_result_free(&p->result);
    weir__buffer_free(&p->line);
    weir__free(p);
}

enum { LINE_KEPT_BYTES_MAX = 64 * 1024 }; /* a buffer that is larger does not outlive its event */

/* ---- the question ------------------------------------------------------------------------- */

static bool add_text(weir_buffer *b, const char *name, weir_str text)
{
    return weir__buffer_add_text(b, name) && weir__json_write_string(b, text);
}

static bool add_number(weir_buffer *b, const char *name, int64_t number)
{
    return weir__buffer_add_text(b, name) && weir__buffer_add_i64(b, number);
}

/* Checked, and made one line: what somebody put into the store past Weir must not become a line of
 * its own, which would be a delivery that nobody made. */
static weir_status add_json(weir_buffer *b, const char *name, weir_str json, weir_error *err)
{
    if (!weir__buffer_add_text(b, ",\"") || !weir__buffer_add_text(b, name) ||
        !weir__buffer_add_text(b, "\":")) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the line for a program");
    }
    const weir_status status = weir__json_compact(json, b, NULL, err);
    return status == WEIR_OK ? WEIR_OK : weir__wrap(err, status, "%s of the event", name);
}

static weir_status write_line(weir_buffer *b, const weir_delivery *d, weir_error *err)
{
    const weir_event *e = d->event;
    char created[WEIR_TIME_TEXT_BYTES], deadline[WEIR_TIME_TEXT_BYTES];

    weir__time_to_text(e->created_us, created);
    weir__time_to_text(d->deadline_us, deadline);
    weir__buffer_clear(b);
    bool ok = add_number(b, "{\"event\":{\"id\":", e->id) &&
              add_text(b, ",\"stream\":", e->stream) &&
              add_number(b, ",\"version\":", e->version) && add_text(b, ",\"name\":", e->name);
    weir_status status = ok ? add_json(b, "data", e->data, err) : WEIR_OK;
    if (status == WEIR_OK && ok) {
        status = add_json(b, "meta", e->meta, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    ok = ok && add_text(b, ",\"created\":", weir__str(created)) &&
         add_text(b, "},\"reaction\":", d->reaction->name) &&
         add_text(b, ",\"target\":", d->target) && add_number(b, ",\"attempt\":", d->attempt) &&
         add_number(b, ",\"fence\":", d->fence) &&
         add_text(b, ",\"deadline\":", weir__str(deadline)) &&
         add_text(b, ",\"key\":", weir__str(d->key)) && weir__buffer_add_text(b, "}");
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate the line for a program");
}

/* The long-lived program of a reaction; not started before it is asked. */
static weir_status find_child(slot *s, const reaction *q, child **out, weir_error *err)
{
    slot_programs *p = s->programs;
    for (size_t i = 0; i < p->items_count; i++) {
        if (p->items[i].reaction == q) {
            *out = p->items[i].child;
            return WEIR_OK;
        }
    }
    slot_program *items = weir__realloc(p->items, (p->items_count + 1) * sizeof *items);
    if (items == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a program");
    }
    p->items = items;
    const weir_status status =
        weir__child_open(out, weir__slot_worker(s)->options.keeper, q->command.ptr, err);
    if (status == WEIR_OK) {
        p->items[p->items_count++] = (slot_program){ .reaction = q, .child = *out };
    }
    return status;
}

static weir_status program_ask(slot *s, const weir_delivery *d, weir_error *err)
{
    worker *w = weir__slot_worker(s);
    child *c = NULL;

    if (w->options.keeper == NULL) {
        return weir__fail(err, WEIR_EMISUSE, "this worker cannot run programs");
    }
    if (s->programs == NULL) {
        s->programs = weir__calloc(1, sizeof *s->programs);
    }
    if (s->programs == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the line for a program");
    }
    slot_programs *p = s->programs;
    weir_status status = write_line(&p->line, d, err);
    if (status != WEIR_OK) {
        return status;
    }
    const child_call call = { .line = { .ptr = p->line.ptr, .len = p->line.len },
                              .deadline_mono_us = d->deadline_mono_us,
                              .interrupted = d->interrupted,
                              .lease = &s->lease };
    if (d->reaction->mode == REACTION_RUN) {
        return weir__child_run(w->options.keeper, d->reaction->command.ptr, &call, &p->result, err);
    }
    status = find_child(s, d->reaction, &c, err);
    return status == WEIR_OK ? weir__child_ask(c, &call, &p->result, err) : status;
}

/* ---- the answer --------------------------------------------------------------------------- */

/* Each by itself: they are judged in their order, as the program gave them. */
static weir_status reply_stage(weir_delivery *d, const child_result *r, weir_error *err)
{
    for (size_t i = 0; i < r->appends_count; i++) {
        const child_append *a = &r->appends[i];
        const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = a->stream, .name = a->name,
                                       .data = a->data, .meta = a->meta };
        const weir_expectation expectation = { WEIR_EXPECTATION_INIT, .expect = a->expect,
                                               .version = a->version, .stream = a->stream };
        const weir_new_event *const events[] = { &event };
        const weir_expectation *const expectations[] = { &expectation };
        const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                              .events_count = 1, .expectations = expectations,
                                              .expectations_count = 1 };
        const weir_status status = weir__stage_append(d, &request, err);
        if (status != WEIR_OK) {
            return weir__wrap(err, status, "append %zu of %zu in the reply", i + 1,
                              r->appends_count);
        }
    }
    return WEIR_OK;
}

static void program_answered(slot *s, weir_delivery *d, const child_result *r)
{
    const size_t appends = s->effects.appends_count, sqls = s->effects.sqls_count;
    weir_error err;

    switch ((child_kind)r->kind) {
    case CHILD_DONE:
        if (reply_stage(d, r, &err) != WEIR_OK) {
            weir__effects_cut(&s->effects, appends, sqls);
            weir__slot_failed(s, false, weir__str(err.message), STORE_ERROR_TEXT_BYTES_MAX);
            return;
        }
        weir__slot_done(s);
        return;
    case CHILD_RETRY:
    case CHILD_PERMANENT:
        if (weir__slot_told_to_end(s, d)) {
            s->batch->stopped = true;
            return;
        }
        weir__slot_failed(s, r->kind == CHILD_PERMANENT, r->error, STORE_ERROR_TEXT_BYTES_MAX);
        return;
    case CHILD_DEFER:
        weir__slot_postponed(s, r->defer_us);
        return;
    case CHILD_INTERRUPTED:
        s->batch->stopped = true; /* says nothing about the event: it will be run again */
        return;
    }
}

/* A line is as large as its event was, whose room is given back. p may be NULL. */
static void free_large_line(slot_programs *p)
{
    if (p != NULL && p->line.len > LINE_KEPT_BYTES_MAX) {
        weir__buffer_free(&p->line);
    }
}

void weir__slot_program(slot *s, weir_delivery *d)
{
    worker *w = weir__slot_worker(s);
    weir_error err;

    const int64_t begin_us = weir__task_now(&s->task);
    const weir_status status = program_ask(s, d, &err);
    weir__metric_observe(&w->metrics, METRIC_HANDLER_US, weir__task_now(&s->task) - begin_us);
    free_large_line(s->programs);
    if (status == WEIR_OK) {
        program_answered(s, d, &s->programs->result);
    } else if (status == WEIR_EIO || status == WEIR_EBUSY || status == WEIR_ENOMEM) {
        /* Nothing was run: this worker is in trouble, not the handler. Another may have better
         * luck with it, or this one in a while. */
        weir__slot_log(s, 3, "not_started", s->batch->next, d->attempt, weir__str(err.message));
        weir__slot_postponed(s, 0);
    } else {
        weir__slot_failed(s, false, weir__str(err.message), STORE_ERROR_TEXT_BYTES_MAX);
    }
}
