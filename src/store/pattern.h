/* pattern.h - source patterns, the same everywhere: `order-1` that name, `order-*` a prefix (only a
 * last `*`), `/.../` a regular expression, `*` all.
 *
 * Regular expressions are the portable subset that means the same on every store: literals, `.`,
 * classes, ASCII \d \w \s (and \D \W \S), ^ $, groups ( ) and (?: ), alternation, * + ? {m,n} with
 * n <= 255 (and their lazy forms). Anything else is refused by name: back references, look-around,
 * \b, inline flags, possessive forms, POSIX classes. They are searched for anywhere in the name.
 */
#ifndef WEIR_STORE_PATTERN_H
#define WEIR_STORE_PATTERN_H

#include "weir.h"

#include <stdbool.h>

enum {
    PATTERN_BYTES_MAX = 512,
    PATTERN_REPEAT_MAX = 255,
    PATTERN_MATCH_STEPS_MAX = 1000000, /* a match that needs more does not match */
};

typedef enum store_pattern_kind {
    PATTERN_ALL,
    PATTERN_EXACT,
    PATTERN_PREFIX,
    PATTERN_REGEX,
} store_pattern_kind;

/* Immutable after opening; may be used by any thread. */
typedef struct store_pattern {
    store_pattern_kind kind;
    char *owned_text;                  /* owned: the pattern as given, NUL-terminated */
    weir_str text;                     /* the same                                    */
    weir_str name;                     /* EXACT: the name; PREFIX: without the *      */
    struct pcre2_real_code_8 *code;    /* owned; REGEX                                */
    struct store_pattern_match *match; /* owned; REGEX: scratch memory, has its own lock */
} store_pattern;

/* EINVAL with what is wrong and where. *out: owned, ended by weir__pattern_close. */
weir_status weir__pattern_open(store_pattern **out, weir_str text, weir_error *err);
void weir__pattern_close(store_pattern *pattern); /* NULL is a no-op */
bool weir__pattern_matches(const store_pattern *pattern, weir_str name);

/* The part of a stream's name before its first '-', or all of it. */
weir_str weir__category(weir_str stream);

#endif
