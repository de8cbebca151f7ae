/* streams.c - what is known about streams, and where the log stands. */
#include "api/api.h"
#include "base/error.h"
#include "base/str.h"
#include "base/struct.h"
#include "store/request.h"

#include <inttypes.h>

static weir_stream stream_view(const store_stream_info *info)
{
    return (weir_stream){ .size = sizeof(weir_stream),
                          .closed = info->closed,
                          .version = info->version,
                          .count = info->version + 1,
                          .id = info->id,
                          .created_us = info->created_us,
                          .updated_us = info->updated_us,
                          .stream = info->stream };
}

int32_t weir_stream_info(weir *w, weir_str stream, const weir_stream **out, weir_error *err)
{
    weir_arena arena = { 0 };
    store_stream_info info;
    weir_stream *result = NULL;
    weir_core *c = NULL;
    weir_status status = weir__enter(w, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        status = weir__fail(err, WEIR_EINVAL, "there is nowhere to put the result: out is NULL");
    }
    if (status == WEIR_OK) {
        status = weir__name_check("stream name", stream, true, err);
    }
    if (status == WEIR_OK) {
        status = c->store->log->stream_info(c->store, stream, &arena, &info, err);
    }
    weir__leave(w);
    if (status == WEIR_OK) {
        result = weir__malloc(sizeof *result + info.stream.len);
        if (result == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a stream's information");
        }
    }
    if (status == WEIR_OK) {
        char *name = (char *)(result + 1);
        memcpy(name, info.stream.ptr, info.stream.len);
        *result = stream_view(&info);
        result->stream.ptr = name;
        *out = result;
    }
    weir__arena_free(&arena);
    return status;
}

void weir_stream_free(const weir_stream *info)
{
    union {
        const weir_stream *given;
        void *owned; /* what weir_stream_info allocated: const only towards the user */
    } block = { .given = info };
    weir__free(block.owned);
}

/* Gives one chunk to fn. *stop: fn wants no more. */
static void chunk_give(const store_streams_chunk *chunk, weir_stream_fn fn, void *ctx, bool *stop)
{
    for (size_t i = 0; i < chunk->streams_count && !*stop; i++) {
        const weir_stream view = stream_view(&chunk->streams[i]);
        *stop = fn(ctx, &view) != 0;
    }
}

static weir_status streams_each(weir_core *c, store_streams_query *q, int64_t left,
                                weir_stream_fn fn, void *ctx, weir_error *err)
{
    store_streams_chunk chunk = { 0 };
    weir_buffer after = { 0 };
    weir_status status = WEIR_OK;
    bool stop = left == 0;
    while (!stop) {
        q->limit = left < STORE_CHUNK_EVENTS_MAX ? left : STORE_CHUNK_EVENTS_MAX;
        status = c->store->log->streams(c->store, q, &chunk, err);
        if (status != WEIR_OK) {
            break;
        }
        chunk_give(&chunk, fn, ctx, &stop);
        left -= (int64_t)chunk.streams_count;
        stop = stop || !chunk.more || left <= 0;
        weir__buffer_clear(&after);
        if (!stop && !weir__buffer_add(&after, chunk.scanned_to.ptr, chunk.scanned_to.len)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a list of streams");
            break;
        }
        q->after = (weir_str){ .ptr = after.ptr, .len = after.len };
    }
    weir__buffer_free(&after);
    weir__arena_free(&chunk.arena);
    return status;
}

int32_t weir_streams(weir *w, const weir_streams_options *options, weir_stream_fn fn, void *ctx,
                     weir_error *err)
{
    weir_streams_options o = { WEIR_STREAMS_OPTIONS_INIT };
    store_pattern *pattern = NULL;
    weir_core *c = NULL;
    weir_status status = weir__enter(w, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (fn == NULL) {
        status =
            weir__fail(err, WEIR_EINVAL, "fn is NULL: there is no function to give the streams to");
    }
    if (status == WEIR_OK && options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_streams_options", err);
    }
    const bool has_limit = (o.fields & WEIR_HAS_LIMIT) != 0;
    if (status == WEIR_OK && ((has_limit && o.limit < 0) || o.closed < 0 || o.closed > 2 ||
                              o.flags != 0 || (o.fields & ~(uint32_t)WEIR_HAS_LIMIT) != 0)) {
        status =
            weir__fail(err, WEIR_EINVAL,
                       "streams with limit %" PRId64 ", closed %d, flags %u, fields %u: out of "
                       "range",
                       o.limit, o.closed, o.flags, o.fields);
    }
    if (status == WEIR_OK && o.stream.len > 0) {
        status = weir__pattern_open(&pattern, o.stream, err);
    }
    if (status == WEIR_OK) {
        store_streams_query q = {
            .after = o.after, .pattern = pattern, .category = o.category, .closed = o.closed
        };
        status = streams_each(c, &q, has_limit ? o.limit : INT64_MAX, fn, ctx, err);
    }
    weir__pattern_close(pattern);
    weir__leave(w);
    return status;
}

int32_t weir_positions(weir *w, int64_t *head, int64_t *safe, weir_error *err)
{
    store_positions at = { 0 };
    weir_core *c = NULL;
    weir_status status = weir__enter(w, &c, err);
    if (status == WEIR_OK) {
        status = c->store->log->positions(c->store, &at, err);
        weir__leave(w);
    }
    if (status == WEIR_OK && head != NULL) {
        *head = at.head;
    }
    if (status == WEIR_OK && safe != NULL) {
        *safe = at.safe;
    }
    return status;
}
