/* error.h - filling a weir_error where a failure is detected, and adding meaning on the way up.
 *
 * Both functions accept err == NULL and return `status`, so that a failure is one line:
 *     return weir__fail(err, WEIR_EINVAL, "name has %zu bytes, allowed 1 to 512", len);
 * Messages are one line, lower case, without a full stop; control characters and invalid UTF-8 in
 * arguments are shown as '?', invisible characters as \u202e. Nothing here allocates.
 */
#ifndef WEIR_BASE_ERROR_H
#define WEIR_BASE_ERROR_H

#include "weir.h"

#include <stdarg.h>
#include <stdbool.h>

#define WEIR_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Resets *err and writes code and message; detail becomes what weir__status_advice says. */
weir_status weir__fail(weir_error *err, weir_status status, const char *format, ...)
    WEIR_PRINTF(3, 4);

/* Puts "format: " before the message that is there. The code becomes `status`, which a caller may
 * change on the way up; everything else is kept. */
weir_status weir__wrap(weir_error *err, weir_status status, const char *format, ...)
    WEIR_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* The analyser does not look into functions with variable arguments, and would follow paths on
 * which a failure returns WEIR_OK. */
#define weir__fail(err, status, ...) ((void)weir__fail((err), (status), __VA_ARGS__), (status))
#define weir__wrap(err, status, ...) ((void)weir__wrap((err), (status), __VA_ARGS__), (status))
#endif

/* What to do about a code when nothing more is known: full sentences, static. "" for WEIR_OK. */
const char *weir__status_advice(weir_status status);
/* Whether the place that failed has said what to do, beyond that. */
bool weir__error_advised(const weir_error *err);

/* Set one field of an error that weir__fail has filled. A detail of no text stands for the advice
 * of its code. */
void weir__error_stream(weir_error *err, weir_str stream);
void weir__error_detail(weir_error *err, const char *format, ...) WEIR_PRINTF(2, 3);
void weir__error_store_code(weir_error *err, const char *format, ...) WEIR_PRINTF(2, 3);

/* WEIR_ECONFLICT with its fields and the house wording:
 * conflict on "order-1": expected version 3, it is at 5. */
weir_status weir__fail_conflict(weir_error *err, weir_str stream, int64_t expected, int64_t actual);

#endif
