/* finding.h - what a check finds: kept until it may be told, and what to do about it. */
#ifndef WEIR_STORE_FINDING_H
#define WEIR_STORE_FINDING_H

#include "base/memory.h"
#include "store/about.h"
#include "weir.h"

#include <stddef.h>

enum { STORE_FINDINGS_MAX = 200 }; /* of one check: enough to know that something is wrong */

/* A callback may call the store, so what is found while it is locked is told afterwards. A zeroed
 * struct is empty; weir__findings_tell ends it. */
typedef struct store_findings {
    weir_buffer texts; /* rule, text and advice of each, ended by a NUL */
    size_t count;
    bool no_memory;
} store_findings;

/* A store_finding_fn that keeps what it is told in `findings`. */
void weir__finding_keep(void *findings, const char *rule, const char *text, const char *advice);
/* Tells all, if the check itself went well. Gives `status`, or ENOMEM when something is missing. */
weir_status weir__findings_tell(store_findings *f, weir_status status, store_finding_fn fn,
                                void *ctx, weir_error *err);
/* What to do about a rule, for every store. Static. */
const char *weir__finding_advice(const char *rule);

#endif
