/* filter.c - see filter.h. */
#include "store/filter.h"

#include "base/json.h"
#include "base/str.h"

#include <stdlib.h>

static int compare_names(const void *a, const void *b)
{
    return weir__str_compare(*(const weir_str *)a, *(const weir_str *)b);
}

size_t weir__names_sort(weir_str *names, size_t count)
{
    size_t kept = 0;
    if (count > 1) {
        qsort(names, count, sizeof *names, compare_names);
    }
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || !weir__str_equal(names[i], names[kept - 1])) {
            names[kept++] = names[i];
        }
    }
    return kept;
}

bool weir__names_contain(const weir_str *names, size_t count, weir_str name)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = weir__str_compare(names[middle], name);
        if (order == 0) {
            return true;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

static bool correlation_is(weir_str meta, weir_str correlation)
{
    weir_str value;
    return weir__json_get(meta, "correlation", &value) && weir__json_string_is(value, correlation);
}

bool weir__filter_matches(const store_filter *filter, const weir_event *event)
{
    if (filter == NULL) {
        return true;
    }
    if (event->created_us < filter->since_us || event->created_us > filter->until_us) {
        return false;
    }
    if (filter->has_names &&
        !weir__names_contain(filter->names, filter->names_count, event->name)) {
        return false;
    }
    if (filter->category.len > 0 &&
        !weir__str_equal(weir__category(event->stream), filter->category)) {
        return false;
    }
    if (filter->stream != NULL && !weir__pattern_matches(filter->stream, event->stream)) {
        return false;
    }
    return filter->correlation.len == 0 || correlation_is(event->meta, filter->correlation);
}
