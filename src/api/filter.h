/* filter.h - which targets a function of weir.h is about: taken from its options, for the port. */
#ifndef WEIR_API_FILTER_H
#define WEIR_API_FILTER_H

#include "store/store.h"

typedef struct api_filter {
    weir_arena memory;             /* copies of the texts: the options need not outlive the call */
    store_pattern *match, *source; /* owned */
    store_target_filter filter;
} api_filter;

/* Copies what it needs of *o, of which it looks at nothing but which targets are meant. A zeroed
 * struct is ready; weir__api_filter_free ends it, also after a failure. */
weir_status weir__api_filter_take(api_filter *f, const weir_targets_options *o, weir_error *err);
void weir__api_filter_free(api_filter *f);

#endif
