/* append.c - weir_append, its short form, weir_append_in and weir_stream_close: prepare, let the
 * committer or the store judge, hand out the result. */
#include "api/api.h"
#include "base/error.h"
#include "base/str.h"
#include "base/struct.h"
#include "store/request.h"

/* A result is one block of memory: this, the entries, the pointers to them, the names. */
typedef struct append_result {
    weir_append_result head; /* first: what the caller sees */
    weir_appended entries[];
} append_result;

/* Everything but the outcome is known before the append, so that the memory is, too: what was
 * committed is never reported as failed. */
static append_result *result_new(const store_append *a)
{
    const size_t count = a->streams_count;
    size_t bytes = sizeof(append_result) + count * sizeof(weir_appended);
    const size_t pointers_at = bytes;
    bytes += count * sizeof(weir_appended *);
    const size_t names_at = bytes;
    for (size_t i = 0; i < count; i++) {
        bytes += a->streams[i].name.len;
    }
    char *block = weir__malloc(bytes);
    if (block == NULL) {
        return NULL;
    }
    append_result *result = (void *)block;
    const weir_appended **pointers = (void *)(block + pointers_at);
    char *names = block + names_at;
    for (size_t i = 0; i < count; i++) {
        const weir_str name = a->streams[i].name;
        memcpy(names, name.ptr, name.len);
        result->entries[i] = (weir_appended){ .size = sizeof(weir_appended),
                                              .stream = { .ptr = names, .len = name.len } };
        pointers[i] = &result->entries[i];
        names += name.len;
    }
    result->head = (weir_append_result){ .size = sizeof(weir_append_result),
                                         .streams_count = count,
                                         .streams = pointers };
    return result;
}

static void result_fill(append_result *result, const store_append *a)
{
    for (size_t i = 0; i < a->streams_count; i++) {
        result->entries[i].first = a->streams[i].first;
        result->entries[i].last = a->streams[i].last;
        result->entries[i].id = a->streams[i].id;
        result->entries[i].created_us = a->streams[i].created_us;
    }
    result->head.replayed = a->replayed;
}

/* The time to wait runs from here: waiting behind another caller of this handle counts. */
static weir_status append_commit(weir_core *c, store_append *append)
{
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    if (__builtin_add_overflow(now_us, c->url.options.busy_us, &append->deadline_us)) {
        append->deadline_us = INT64_MAX;
    }
    return weir__committer_append(c->committer, append);
}

/* In a transaction of the caller's own there is nobody to share it with. */
static weir_status commit_in(weir_core *c, void *connection, store_append *append, weir_error *err)
{
    const weir_status status = c->store->log->append_in(c->store, connection, append, err);
    return status == WEIR_OK ? append->status : status;
}

/* connection NULL: in a transaction of Weir's own. */
static weir_status append_checked(weir_core *c, void *connection,
                                  const weir_append_request *request,
                                  const weir_append_result **out, weir_error *err)
{
    prepared_append p = { 0 };
    append_result *result = NULL;
    weir_status status =
        weir__append_prepare(&p, request, c->url.options.payload_bytes, c->url.options.clock, err);
    if (status == WEIR_OK && out != NULL && (result = result_new(&p.append)) == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the result of an append");
    }
    if (status == WEIR_OK) {
        status = connection == NULL ? append_commit(c, &p.append)
                                    : commit_in(c, connection, &p.append, err);
    }
    if (status == WEIR_OK && out != NULL) {
        result_fill(result, &p.append);
        *out = &result->head;
        result = NULL; /* moved to the caller */
    }
    weir__free(result);
    weir__prepared_free(&p);
    return status;
}

int32_t weir_append(weir *w, const weir_append_request *request, const weir_append_result **out,
                    weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = weir__enter_writing(w, &c, err);
    if (status == WEIR_OK) {
        status = append_checked(c, NULL, request, out, err);
        weir__leave(w);
    }
    return status;
}

/* Fills as much of the caller's struct as the caller knows. */
static void appended_give(weir_appended *out, const weir_appended *from, weir_str stream)
{
    weir_appended full = *from;
    full.size = out->size;
    full.stream = stream; /* the caller's own text, which outlives the result */
    memcpy(out, &full, full.size < sizeof full ? full.size : sizeof full);
}

/* What are fields in the long form are arguments here. NOLINTNEXTLINE(readability-function-size) */
int32_t weir_append_one(weir *w, weir_str stream, int32_t expect, int64_t version, weir_str name,
                        weir_str data, weir_appended *out, weir_error *err)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = stream, .name = name,
                                   .data = data };
    const weir_expectation expectation = { WEIR_EXPECTATION_INIT, .expect = expect,
                                           .version = version, .stream = stream };
    const weir_new_event *const events[] = { &event };
    const weir_expectation *const expectations[] = { &expectation };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1, .expectations = expectations,
                                          .expectations_count = 1 };
    const weir_append_result *result = NULL;
    weir_appended known;
    if (out != NULL) {
        const weir_status status =
            weir__struct_copy(&known, sizeof known, out, "weir_appended", err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    const int32_t status = weir_append(w, &request, out == NULL ? NULL : &result, err);
    if (status == WEIR_OK && out != NULL) {
        appended_give(out, result->streams[0], stream);
        weir_append_result_free(result);
    }
    return status;
}

int32_t weir_append_in(weir *w, void *connection, const weir_append_request *request,
                       const weir_append_result **out, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = weir__enter_writing(w, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (c->store->log->append_in == NULL) {
        status =
            weir__fail(err, WEIR_EMISUSE,
                       "only a PostgreSQL store can append in a transaction of the caller's own");
    } else if (connection == NULL) {
        status = weir__fail(err, WEIR_EINVAL, "no connection was given");
    } else {
        status = append_checked(c, connection, request, out, err);
    }
    weir__leave(w);
    return status;
}

void weir_wake(weir *w)
{
    weir_core *c = NULL;
    if (w == NULL || weir__enter(w, &c, NULL) != WEIR_OK) {
        return;
    }
    if (c->store->log->wake != NULL) {
        c->store->log->wake(c->store);
    }
    weir__leave(w);
}

void weir_append_result_free(const weir_append_result *result)
{
    union {
        const weir_append_result *given;
        void *owned; /* what result_new allocated: const only towards the user */
    } block = { .given = result };
    weir__free(block.owned);
}

int32_t weir_stream_close(weir *w, weir_str stream, const weir_close_options *options,
                          weir_error *err)
{
    prepared_append p = { 0 };
    weir_core *c = NULL;
    weir_status status = weir__enter_writing(w, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__close_prepare(&p, stream, options, c->url.options.payload_bytes,
                                 c->url.options.clock, err);
    if (status == WEIR_OK) {
        status = append_commit(c, &p.append);
    }
    weir__prepared_free(&p);
    weir__leave(w);
    return status;
}
