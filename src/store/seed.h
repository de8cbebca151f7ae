/* seed.h - for tests: where a log begins, so that 64-bit paths can be tried. */
#ifndef WEIR_STORE_SEED_H
#define WEIR_STORE_SEED_H

#include "store/store.h"

#include <string.h>

/* Makes the next position of the log base + 1, and the next version of a stream that has no event
 * version_base. Only on an empty store: else EMISUSE. */
weir_status weir__memory_seed(weir_store *base, int64_t position_base, int64_t version_base,
                              weir_error *err);
weir_status weir__sqlite_seed(weir_store *base, int64_t position_base, int64_t version_base,
                              weir_error *err);
weir_status weir__postgres_seed(weir_store *base, int64_t position_base, int64_t version_base,
                                weir_error *err);

static inline weir_status weir__store_seed(weir_store *s, int64_t position_base,
                                           int64_t version_base, weir_error *err)
{
    return strcmp(s->about->scheme, "memory") == 0
               ? weir__memory_seed(s, position_base, version_base, err)
           : strcmp(s->about->scheme, "sqlite") == 0
               ? weir__sqlite_seed(s, position_base, version_base, err)
               : weir__postgres_seed(s, position_base, version_base, err);
}

#endif
