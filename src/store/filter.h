/* filter.h - which events of the log a reader wants; one meaning for all stores. */
#ifndef WEIR_STORE_FILTER_H
#define WEIR_STORE_FILTER_H

#include "store/pattern.h"
#include "weir.h"

#include <stdbool.h>

/* Borrowed by whoever queries. An adapter may use any part to read less, and must then still give
 * exactly what weir__filter_matches accepts. */
typedef struct store_filter {
    bool has_names;        /* with names_count 0: nothing matches */
    const weir_str *names; /* in bytewise order, distinct */
    size_t names_count;
    const store_pattern *stream; /* NULL: all */
    weir_str category;           /* empty: all */
    weir_str correlation;        /* empty: all */
    int64_t since_us, until_us;  /* inclusive; INT64_MIN and INT64_MAX: no bound */
} store_filter;

bool weir__filter_matches(const store_filter *filter, const weir_event *event);
/* Brings names into bytewise order, each once; how many are left. */
size_t weir__names_sort(weir_str *names, size_t count);
/* Whether `name` is in a list that is in bytewise order and distinct. */
bool weir__names_contain(const weir_str *names, size_t count, weir_str name);

#endif
