/* race.h - workers that go for the rows of one table at the same time, and what each of them saw.
 *
 * A race makes a table of its own, lets workers take one turn each, in the right way or in one of
 * the wrong ones, counts the emails they have sent, and drops the table.
 *
 * What must stay true
 *   (1) Every line is something that was observed: the answer to a worker's own statement, a line
 *       of the file of side effects, or a row of the table as it is afterwards. Nothing is printed
 *       because it ought to be so, and nothing is derived from the mode.
 *   (2) Times are those of one monotonic clock, from the moment that the workers were let go; lines
 *       come in their order.
 *   (3) A side effect is a line in a file, written by the worker itself while no statement of its
 *       own runs: no rollback takes it back. What is counted is what is in the file.
 *   (4) The table has a name that nobody else has, and is dropped however the race ends, unless it
 *       is to be kept or the process is killed. Its name is said before anything else happens.
 *   (5) Right ways take rows through claim/claim.h. The statements of the wrong ways are in the
 *       .sql files here, and nowhere else.
 *
 * THREADS  Everything happens in threads of the race: one that directs, one for each worker. The
 * caller's thread takes lines, may stop the race at any time, and ends it.
 */
#ifndef WEIR_RACE_RACE_H
#define WEIR_RACE_RACE_H

#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RACE_WORKERS_MAX = 64,
    RACE_ROWS_MAX = 1000,
    RACE_TABLE_BYTES = 32, /* of a table's name, and its NUL */
};

#define RACE_PAUSE_US_MAX (INT64_C(3600) * 1000000)

typedef enum race_mode {
    RACE_SKIP = 0,   /* a claim that leaves out what others hold; done when the work is done */
    RACE_WAIT,       /* a claim that waits for others, held until the work is done */
    RACE_AUTOCOMMIT, /* wrong: a lock that is gone before the work begins */
    RACE_NONE,       /* wrong: no lock at all */
    RACE_MODES_COUNT,
} race_mode;

const char *weir__race_mode_name(race_mode mode); /* as on the command line */
bool weir__race_mode_of(weir_str name, race_mode *out);

typedef struct race_options {
    const char *url; /* borrowed until weir__race_end */
    race_mode mode;
    int64_t workers; /* 1 to RACE_WORKERS_MAX */
    int64_t rows;    /* 0 to RACE_ROWS_MAX */
    int64_t limit;   /* how many rows a worker asks for, from 1 */
    int64_t pause_us;
    int effects_fd; /* borrowed: a regular file to append to; what is in it before does not count */
    bool keep;      /* do not drop the table */
} race_options;

typedef enum race_kind {
    RACE_LINE_LEFT,   /* a table of another race: one that runs now, or one that was killed */
    RACE_LINE_TABLE,  /* the table that is about to be made */
    RACE_LINE_STEP,   /* a worker saw something */
    RACE_LINE_ROW,    /* of the table, afterwards */
    RACE_LINE_RESULT, /* the last one, unless the race was stopped or has failed */
} race_kind;

typedef enum race_what {
    RACE_ASKS = 0, /* sends its first statement */
    RACE_GETS,     /* the rows of its claim */
    RACE_SEES,     /* the rows of its SELECT */
    RACE_SENDS,    /* the email of a row: it is in the file */
    RACE_WRITES,   /* a row: the answer to its UPDATE */
    RACE_COMMITS,
    RACE_FAILS, /* its statement was refused; its turn has ended */
    RACE_WHATS_COUNT,
} race_what;

const char *weir__race_what_name(race_what what);

/* What does not belong to the kind is zero. */
typedef struct race_line {
    race_kind kind;
    race_what what;      /* STEP */
    int64_t elapsed_us;  /* STEP: since the workers were let go */
    int64_t took_us;     /* STEP: how long the answer took */
    size_t worker;       /* STEP: from 1 */
    const int64_t *rows; /* STEP: which ones; ROW: one */
    size_t rows_count;
    weir_str text;   /* LEFT, TABLE: the table; FAILS: why; WRITES, ROW: the status of the row */
    weir_str by;     /* ROW: who has it; ptr NULL: nobody */
    weir_str at;     /* ROW: since when, by the database's clock, as it writes times */
    int64_t effects; /* ROW: emails for it; RESULT: in all */
    int64_t doubled; /* RESULT: how many of them were not the first for their row */
    struct race_line *next; /* of race.c */
} race_line;

typedef struct race race;

/* EINVAL: numbers out of range; the message names the flag of the command line. */
weir_status weir__race_check(const race_options *options, weir_error *err);
/* Starts. EINVAL: options out of range, the URL, or a file that is none. */
weir_status weir__race_start(race **out, const race_options *options, weir_error *err);
/* Readable when there are lines, or the race is over. */
int weir__race_fd(const race *r);
/* The next line, or NULL: none at the moment. Borrowed until the next call. */
const race_line *weir__race_next(race *r);
/* No more lines will come; those that wait are still there. */
bool weir__race_over(race *r);
/* Workers end their turns where they are, and the table is dropped. */
void weir__race_stop(race *r);
/* Waits for the end and frees everything; NULL is a no-op. How the race went: what failed, or
 * WEIR_OK, also when it was stopped. */
weir_status weir__race_end(race *r, weir_error *err);

/* Drops a table that a race has left. EINVAL: no race has made a table of this name; ENOTFOUND. */
weir_status weir__race_drop(const char *url, weir_str table, weir_error *err);

#endif
