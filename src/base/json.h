/* json.h - JSON as Weir carries it: checked, made one line, never changed.
 *
 * Payloads travel as raw slices: same members in the same order, repeated ones too, same digits,
 * same escapes. Only white space outside strings is removed. RFC 8259, and stricter: no NUL byte,
 * no \u0000, no lone surrogate escape, valid UTF-8, nesting of at most WEIR_JSON_DEPTH_MAX.
 */
#ifndef WEIR_BASE_JSON_H
#define WEIR_BASE_JSON_H

#include "base/memory.h"
#include "weir.h"

#include <stdbool.h>

enum { WEIR_JSON_DEPTH_MAX = 128 };

typedef enum weir_json_type {
    WEIR_JSON_NULL,
    WEIR_JSON_FALSE,
    WEIR_JSON_TRUE,
    WEIR_JSON_NUMBER,
    WEIR_JSON_STRING,
    WEIR_JSON_ARRAY,
    WEIR_JSON_OBJECT,
} weir_json_type;

/* Checks `text` and appends it without white space to `out`. WEIR_EINVAL with the byte offset and
 * what was expected in the message ("invalid JSON at byte 17: expected ',' or '}'"); `out` is then
 * as it was. A text without superfluous white space is copied in one go. *type: of the outermost
 * value; may be NULL. */
weir_status weir__json_compact(weir_str text, weir_buffer *out, weir_json_type *type,
                               weir_error *err);

/* The same for an object whose members are payloads: one level deeper. */
weir_status weir__json_compact_envelope(weir_str text, weir_buffer *out, weir_json_type *type,
                                        weir_error *err);

/* What a store gave as JSON, as one value on one line, whatever it is: compact if it is valid, else
 * as a string that holds it. false: ENOMEM. */
bool weir__json_write_value(weir_buffer *out, weir_str text);

/* A walk over a text that weir__json_compact has accepted; on anything else the result is
 * undefined but stays inside the text.
 *     weir_json_members it = weir__json_members(object);
 *     while (weir__json_members_next(&it)) ... it.name (raw, without quotes), it.value (raw) ...
 */
typedef struct weir_json_members {
    weir_str name;  /* as written between the quotes: escapes are not decoded */
    weir_str value; /* raw, quotes included when it is a string               */
    const char *next, *end;
} weir_json_members;
weir_json_members weir__json_members(weir_str object);
bool weir__json_members_next(weir_json_members *it);
weir_json_members weir__json_elements(weir_str array); /* the same for an array: name is empty */
bool weir__json_elements_next(weir_json_members *it);

weir_json_type weir__json_type(weir_str value);
/* The last member with that name (names compared after decoding escapes). false: none, or not an
 * object. */
bool weir__json_get(weir_str object, const char *name, weir_str *value);
/* A string value, escapes decoded, appended to `out`. false: ENOMEM or not a string. */
bool weir__json_string_decode(weir_str value, weir_buffer *out);
/* Whether a string value, decoded, is exactly `text`. Does not allocate. */
bool weir__json_string_is(weir_str value, weir_str text);
/* Appends `text` as a JSON string with quotes; control characters and invalid UTF-8 escaped
 * (U+FFFD for the latter, and for NUL). What it writes, weir__json_compact accepts. */
bool weir__json_write_string(weir_buffer *out, weir_str text);

#endif
