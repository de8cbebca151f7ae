/* memory_kit_test.h - what the tests of the memory store share: a clock that stands still until it
 * is moved, small requests, and a store described as text.
 */
#ifndef WEIR_STORE_MEMORY_MEMORY_KIT_TEST_H
#define WEIR_STORE_MEMORY_MEMORY_KIT_TEST_H

#include "store/memory/memory_store.h"

extern int64_t kit_time_us; /* both clocks of every store that was opened here */

/* Keys live for a second. NULL: it could not be opened. Ended by about->close. */
weir_store *kit_open(const char *name, uint32_t flags);

/* One event "{}"; key "": none. */
weir_status kit_append(weir_store *s, const char *stream, const char *name, const char *key);
/* A reaction to two names, from the start of the log, in all streams. */
weir_status kit_declare(weir_store *s, const char *name, const char *event, store_rule rule,
                        store_reaction *out, weir_arena *arena);
/* In "lane", for the value "order-1". The target's id. */
/* One mark of one reaction, from r->routed to `to`. */
weir_status kit_route(weir_store *s, const store_reaction *r, const char *target, int64_t first,
                      int64_t last, int64_t to);
/* For "someone", for 1 ms, whatever the reaction. */
store_lease_request kit_lease_request(size_t limit);
int64_t kit_head(weir_store *s);

/* The store as text; it must find nothing wrong with itself. Owned: weir__buffer_free. */
weir_buffer kit_describe(weir_store *s);

#endif
