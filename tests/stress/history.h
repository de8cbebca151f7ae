/* history.h - what a client writes down about its own appends, for the checker to hold against the
 * log.
 *
 * A client keeps one file per thread. Each line is written with one write() to a file opened with
 * O_APPEND and ends with " .": what a killed client had half-written is no line. Names have no
 * spaces, commas or colons. OP names an append for ever; an append that is tried again under its
 * idempotency key keeps its OP. history.py reads these files, and says what each line means for the
 * log.
 *
 * i OP KEYED PAD STREAM:EXPECT:COUNT,... - about to append; EXPECT: any, none, exists or a version.
 *
 * a OP REPLAYED STREAM:FIRST:LAST:ID,... - acknowledged.
 *
 * r OP CODE STREAM EXPECTED ACTUAL - refused, nothing written; STREAM is - when there is none.
 *
 * u OP - the outcome is not known.
 *
 * f TARGET FENCE - leased a target, with this fence.
 *
 * e OP CODE TEXT - failed in a way that must not happen.
 *
 * v TEXT - a rule was broken (see rule.h).
 *
 * d COUNT - the client ended as it was meant to.
 */
#ifndef WEIR_TESTS_STRESS_HISTORY_H
#define WEIR_TESTS_STRESS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HISTORY_STREAMS_MAX = 4,
    HISTORY_NAME_BYTES = 64,
    HISTORY_ANY = -10, /* expectations that are no version */
    HISTORY_NONE = -11,
    HISTORY_EXISTS = -12,
};

typedef struct history_part {
    char stream[HISTORY_NAME_BYTES];
    int64_t expect; /* a version, or HISTORY_* */
    int count;      /* events */
} history_part;

typedef struct history_intent {
    char op[HISTORY_NAME_BYTES];
    bool keyed;
    int pad; /* bytes of padding in each event */
    history_part parts[HISTORY_STREAMS_MAX];
    size_t parts_count;
} history_intent;

typedef struct history {
    int fd;
    int64_t intents; /* distinct OPs in the file so far */
} history;

/* Opens a history and reads what an earlier life of the client left there. *open: its last intent,
 * when that has no outcome yet; `has_open` tells. */
history history_open(const char *path, history_intent *open, bool *has_open);
/* Adds a line; a history that cannot be written ends the program. */
__attribute__((format(printf, 2, 3))) void history_line(history *h, const char *format, ...);
void history_intend(history *h, const history_intent *intent, bool again);
void history_close(history *h);

#endif
