/* log.h - what the engine tells about itself: one event, a short word, with its fields.
 *
 * A line says what happened to which target or reaction. Payloads are never in it.
 */
#ifndef WEIR_ENGINE_LOG_H
#define WEIR_ENGINE_LOG_H

#include "base/memory.h"
#include "weir.h"

#include <stddef.h>
#include <stdint.h>

enum { LOG_DEBUG = 0, LOG_INFO = 1, LOG_WARNING = 2, LOG_ERROR = 3 };

typedef struct log_field {
    const char *name;
    weir_str text; /* when text.ptr is NULL: number */
    int64_t number;
} log_field;

/* level: LOG_*. Everything is borrowed until it returns. Any thread; never blocks for long. */
typedef void (*worker_log_fn)(void *ctx, int level, const char *event, const log_field *fields,
                              size_t count);

static inline log_field weir__log_text_field(const char *name, weir_str text)
{
    return (log_field){ .name = name, .text = { text.ptr == NULL ? "" : text.ptr, text.len } };
}
static inline log_field weir__log_number_field(const char *name, int64_t number)
{
    return (log_field){ .name = name, .number = number };
}

/* key=value key="a value" ...: quoted when it is empty or has anything but letters, digits and what
 * needs no quotes; inside quotes as a JSON string. false: out of memory, `out` is as it was. */
bool weir__log_to_text(weir_buffer *out, const log_field *fields, size_t count);
/* One JSON object on one line. */
bool weir__log_to_json(weir_buffer *out, const log_field *fields, size_t count);

#endif
