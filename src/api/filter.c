/* filter.c - see filter.h. */
#include "api/filter.h"

#include "base/error.h"
#include "base/str.h"
#include "store/request.h"

#include <stdlib.h>

static int name_order(const void *a, const void *b)
{
    return weir__str_compare(*(const weir_str *)a, *(const weir_str *)b);
}

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a filter of targets");
}

/* The port wants names in bytewise order and distinct. */
static weir_status names_take(api_filter *f, const weir_targets_options *o, weir_error *err)
{
    weir_str *names = NULL;
    size_t bytes = 0;
    if (o->names == NULL) {
        return weir__fail(err, WEIR_EINVAL, "names is NULL and names_count is %zu", o->names_count);
    }
    if (!__builtin_mul_overflow(o->names_count, sizeof *names, &bytes)) {
        names = weir__arena_alloc(&f->memory, bytes);
    }
    if (names == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < o->names_count; i++) {
        const weir_status status = weir__name_check("target", o->names[i], true, err);
        if (status != WEIR_OK) {
            return status;
        }
        names[i].ptr = weir__arena_copy(&f->memory, o->names[i].ptr, o->names[i].len);
        names[i].len = o->names[i].len;
        if (names[i].ptr == NULL) {
            return no_memory(err);
        }
    }
    qsort(names, o->names_count, sizeof *names, name_order);
    size_t kept = 1;
    for (size_t i = 1; i < o->names_count; i++) {
        if (!weir__str_equal(names[i], names[kept - 1])) {
            names[kept++] = names[i];
        }
    }
    f->filter.names = names;
    f->filter.names_count = kept;
    return WEIR_OK;
}

weir_status weir__api_filter_take(api_filter *f, const weir_targets_options *o, weir_error *err)
{
    const bool filtered = o->match.len > 0 || o->source.len > 0 || o->lane.len > 0 ||
                          (o->flags & WEIR_TARGETS_BLOCKED) != 0;
    const bool all = (o->flags & WEIR_TARGETS_ALL) != 0;
    weir_status status = WEIR_OK;
    if (o->names_count > 0) {
        return filtered || all ? weir__fail(err, WEIR_EINVAL,
                                            "names of targets and a filter exclude each other")
                               : names_take(f, o, err);
    }
    if (filtered && all) {
        return weir__fail(err, WEIR_EINVAL, "WEIR_TARGETS_ALL and a filter exclude each other");
    }
    if (o->match.len > 0) {
        status = weir__pattern_open(&f->match, o->match, err);
    }
    if (status == WEIR_OK && o->source.len > 0) {
        status = weir__pattern_open(&f->source, o->source, err);
    }
    if (status == WEIR_OK && o->lane.len > 0) {
        f->filter.lane.ptr = weir__arena_copy(&f->memory, o->lane.ptr, o->lane.len);
        f->filter.lane.len = o->lane.len;
        status = f->filter.lane.ptr == NULL ? no_memory(err) : WEIR_OK;
    }
    f->filter.match = f->match;
    f->filter.source = f->source;
    f->filter.blocked = (o->flags & WEIR_TARGETS_BLOCKED) != 0;
    return status;
}

void weir__api_filter_free(api_filter *f)
{
    weir__pattern_close(f->match);
    weir__pattern_close(f->source);
    weir__arena_free(&f->memory);
    *f = (api_filter){ 0 };
}
