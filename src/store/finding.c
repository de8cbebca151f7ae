/* finding.c - see finding.h. */
#include "store/finding.h"

#include "base/error.h"

#include <string.h>

static const char advice_restore[] = "Restore the store from a backup; nothing in Weir writes "
                                     "this, so find out what else writes to it.";
static const char advice_derived[] = "The target may be leased for nothing, or never. Resetting it "
                                     "to its own position derives it again; keep a copy of the "
                                     "store for the report of this fault.";

void weir__finding_keep(void *findings, const char *rule, const char *text, const char *advice)
{
    store_findings *f = findings;
    if (f->count == STORE_FINDINGS_MAX || f->no_memory) {
        return;
    }
    f->no_memory = !weir__buffer_add(&f->texts, rule, strlen(rule) + 1) ||
                   !weir__buffer_add(&f->texts, text, strlen(text) + 1) ||
                   !weir__buffer_add(&f->texts, advice, strlen(advice) + 1);
    f->count++;
}

weir_status weir__findings_tell(store_findings *f, weir_status status, store_finding_fn fn,
                                void *ctx, weir_error *err)
{
    const char *rule = f->texts.ptr;
    if (status == WEIR_OK && f->no_memory) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a check");
    }
    for (size_t i = 0; i < f->count && status == WEIR_OK; i++) {
        const char *text = rule + strlen(rule) + 1;
        const char *advice = text + strlen(text) + 1;
        fn(ctx, rule, text, advice);
        rule = advice + strlen(advice) + 1;
    }
    weir__buffer_free(&f->texts);
    return status;
}

const char *weir__finding_advice(const char *rule)
{
    static const struct {
        const char *rule, *advice;
    } advices[] = {
        { "target-derived", advice_derived },
        { "target-rank", advice_derived },
        { "target-held", "Pause and resume the target." },
        { "target-lane", "Pause and resume the lane: that lists it." },
    };
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        if (strcmp(advices[i].rule, rule) == 0) {
            return advices[i].advice;
        }
    }
    return advice_restore;
}
