/* report.h - how anything that Weir knows is shown: as JSON for programs, as a table for people.
 *
 * A command describes each row as fields. This module decides how they look: which columns fit the
 * screen, how a number, a size or a time reads, what is coloured. Nothing here does input or
 * output: text goes into a buffer, and whoever owns the screen writes it.
 *
 * Must stay true:
 *   1. Nothing that comes from data can steer a terminal. Every cell goes through report_shown.
 *   2. JSON has every field with its exact value, whatever the screen is like.
 *   3. Colour is never the only sign: the word is there as well.
 */
#ifndef WEIR_REPORT_REPORT_H
#define WEIR_REPORT_REPORT_H

#include "base/memory.h"
#include "base/str.h"
#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the screen ----------------------------------------------------------------------------- */

/* What the text is for. Zeroed: a file or a pipe, as wide as it needs to be, without colour. */
typedef struct report_screen {
    size_t columns; /* 0: no limit                                               */
    bool colour;
    bool relative;  /* times as "3 s ago"; otherwise RFC 3339 in UTC              */
    int64_t now_us; /* what relative times are relative to                        */
} report_screen;

/* ---- words ---------------------------------------------------------------------------------- */

enum { REPORT_WORD_BYTES = 48 };

/* "1,234,567" */
void weir__report_count(int64_t count, char out[REPORT_WORD_BYTES]);
/* "640 B", "2.5 MiB" */
void weir__report_bytes(int64_t bytes, char out[REPORT_WORD_BYTES]);
/* "0 s", "350 ms", "3 s", "4 min 10 s", "12 min", "2 h 5 min", "26 h", "3 days" */
void weir__report_span(int64_t span_us, char out[REPORT_WORD_BYTES]);
/* As the screen wants it: "3 s ago", "in 4 min", "now", or the time itself. */
void weir__report_time(const report_screen *screen, int64_t time_us, char out[REPORT_WORD_BYTES]);
/* Adds text with what would steer a terminal made harmless. false: out of memory. */
bool weir__report_shown(weir_buffer *out, weir_str text);
/* A paragraph: broken between words where the screen ends, its first line after `first` and each
 * other line after `prefix`; harmless, and ended by a newline. false: out of memory. */
bool weir__report_wrap(weir_buffer *out, const report_screen *screen, weir_str text,
                       const char *first, const char *prefix);
/* The line of an error that matters: of a program's stderr the last one that is not empty,
 * otherwise the first. Part of `error`. */
weir_str weir__report_gist(weir_str error);
/* How many columns of a terminal it takes. */
size_t weir__report_width(const char *ptr, size_t len);

/* What a state means to whoever looks: the first ones need someone. */
typedef enum report_mood {
    REPORT_MOOD_PLAIN,
    REPORT_MOOD_BAD,  /* someone has to act            */
    REPORT_MOOD_WARN, /* it may end by itself, or not  */
    REPORT_MOOD_GOOD, /* it is being worked on         */
    REPORT_MOOD_QUIET /* nothing to do                 */
} report_mood;

/* The mood of a word such as "blocked". */
report_mood weir__report_mood(weir_str state);
/* Escape sequences that begin and end the mood's colour; "" without colour. */
const char *weir__report_colour_on(const report_screen *screen, report_mood mood);
const char *weir__report_colour_off(const report_screen *screen, report_mood mood);

/* ---- rows ----------------------------------------------------------------------------------- */

typedef enum report_type {
    REPORT_STR,   /* text; ptr NULL: null                                         */
    REPORT_STATE, /* the same: one word, coloured by its mood                      */
    REPORT_I64,   /* number: a name, such as a position; people type it, so it has no separators */
    REPORT_COUNT, /* number: an amount                                             */
    REPORT_BYTES, /* number: a size                                                */
    REPORT_SPAN,  /* number: microseconds                                          */
    REPORT_BOOL,  /* number 0 or 1                                                 */
    REPORT_TIME,  /* number: microseconds since 1970; 0: null                      */
    REPORT_RAW,   /* text: JSON, as it is                                          */
    REPORT_NULL,  /* null                                                          */
} report_type;

enum {
    REPORT_JSON_ONLY = 1, /* not a column of the table                              */
    REPORT_TEXT_ONLY = 2, /* not a member of the object                             */
    REPORT_COLUMNS_MAX = 24,
};

typedef struct report_field {
    const char *name; /* JSON member; the table's head is the same in capitals   */
    report_type type;
    uint32_t flags;
    int64_t number;
    weir_str text; /* borrowed until the row is written                          */
    uint32_t rank; /* 0: always shown. A screen that is too narrow loses the column with the
                      highest rank first; of equal ranks, the last one.          */
} report_field;

/* Rows of text that wait for their columns to be measured. Zeroed, with a screen, it is empty. */
typedef struct report_column {
    size_t natural; /* how wide its cells are                                     */
    size_t least;   /* how narrow it can be made                                  */
    size_t width;   /* how wide it is shown; set when the head is                 */
    bool right;     /* aligned to the right                                       */
    bool state;     /* coloured                                                   */
    bool hidden;    /* no room for it                                             */
    uint32_t rank;
} report_column;

typedef struct report_table {
    const report_screen *screen; /* borrowed; NULL: a zeroed one                   */
    weir_buffer text;            /* the cells, one after the other                 */
    weir_buffer lengths;         /* of size_t                                      */
    size_t columns_count;
    size_t rows_count;
    report_column columns[REPORT_COLUMNS_MAX];
    bool headed;
    char head[512]; /* names of the columns, each NUL-terminated                   */
} report_table;

/* All rows of a table have the same fields. false: out of memory. */
bool weir__report_table_row(report_table *t, const report_field *fields, size_t count);
bool weir__report_table_full(const report_table *t);
/* Writes the rows that wait, under the head when it is the first time. */
bool weir__report_table_flush(report_table *t, weir_buffer *out);
void weir__report_table_free(report_table *t);

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Member by member, into a buffer. A failure (no memory) sticks. */
typedef struct report_json {
    weir_buffer *buffer;
    bool comma;
    bool failed;
} report_json;

void weir__report_json_open(report_json *j, const char *name, char bracket);
void weir__report_json_close(report_json *j, char bracket);
/* name NULL: an element of an array. */
void weir__report_json_field(report_json *j, const report_field *field);
void weir__report_json_str(report_json *j, const char *name, weir_str text);
void weir__report_json_i64(report_json *j, const char *name, int64_t number);
void weir__report_json_bool(report_json *j, const char *name, bool value);
void weir__report_json_time(report_json *j, const char *name, int64_t time_us);
void weir__report_json_null(report_json *j, const char *name);

#endif
