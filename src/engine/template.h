/* template.h - texts with placeholders, filled from an event.
 *
 *   {stream}  {category}  {name}   of the event
 *   {data.a.b}                     a member of its data: a string (decoded), a number (as it was
 *                                  written) or a boolean
 *   {{  }}                         a brace
 *
 * Whatever else stands between braces is refused when the template is opened. A member that is
 * missing, null, an object or an array is refused when the template is filled.
 */
#ifndef WEIR_ENGINE_TEMPLATE_H
#define WEIR_ENGINE_TEMPLATE_H

#include "base/memory.h"
#include "store/store.h"

enum {
    TEMPLATE_BYTES_MAX = 1024,
    TEMPLATE_RESULT_BYTES_MAX = 4096, /* more than any name may have */
};

/* Immutable after opening; any thread. */
typedef struct template_text template_text;

/* EINVAL with what is wrong and where. text: copied. *out: owned, ended by weir__template_close. */
weir_status weir__template_open(template_text **out, weir_str text, weir_error *err);
void weir__template_close(template_text *t); /* NULL is a no-op */

/* How the events of one filled text are found: CONSTANT without placeholders; STREAM, CATEGORY,
 * NAME when that is the only placeholder and stands there once, so that different values give
 * different texts; else WORK. */
store_rule weir__template_rule(const template_text *t);
/* Whether filling it looks at the event's data. */
bool weir__template_reads_data(const template_text *t);
/* What the rule is resolved to for this event, as store_mark.value; borrowed from the event. */
weir_str weir__template_value(const template_text *t, const weir_event *e);
/* *out: in the arena, or borrowed from the template or the event. EINVAL: the member is named. */
weir_status weir__template_fill(const template_text *t, const weir_event *e, weir_arena *arena,
                                weir_str *out, weir_error *err);

#endif
