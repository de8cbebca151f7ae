/* read_only.h - a store that was opened for reading alone: what writes answers so, and asks nobody.
 * The database would let the role write: the handle does not. */
#ifndef WEIR_STORE_READ_ONLY_H
#define WEIR_STORE_READ_ONLY_H

#include "store/store.h"

/* The verbs of such a store; lives as long as it does. */
typedef struct store_reading {
    store_log_ops log;
    store_work_ops work;
    store_locks_ops locks;
    store_about_ops about;
} store_reading;

/* From now on every verb of `s` that changes something is WEIR_EMISUSE. */
void weir__store_read_only(weir_store *s, store_reading *reading);

#endif
