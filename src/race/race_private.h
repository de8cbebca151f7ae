/* race_private.h - what the files of a race share.
 *
 *   race.c           starts, directs and ends a race; the lines on their way to the caller
 *   race_worker.c    the turn of a worker, in each of the modes
 *   race_table.c     the table, and sessions to use it with
 *   race_effects.c   emails that were sent: the file of side effects
 */
#ifndef WEIR_RACE_RACE_PRIVATE_H
#define WEIR_RACE_RACE_PRIVATE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/thread.h"
#include "race/race.h"
#include "table/table.h"

/* ---- the table (race_table.c) ---------------------------------------------------------------- */

/* A place to run statements from. A database in memory has one connection, which is taken from
 * enter to leave; anywhere else a seat keeps its own. Owned by one thread. */
typedef struct race_seat {
    table_db *db; /* borrowed */
    bool by_turns;
    table_session *session; /* owned; NULL: none at the moment */
} race_seat;

weir_status weir__race_enter(race_seat *seat, weir_error *err);
void weir__race_leave(race_seat *seat);
void weir__race_seat_close(race_seat *seat);

typedef enum race_sql {
    RACE_SQL_MAKE,
    RACE_SQL_FILL,
    RACE_SQL_LOOK,
    RACE_SQL_LOOK_LOCKED,
    RACE_SQL_MARK,
    RACE_SQL_ROWS,
    RACE_SQL_LEFT,
    RACE_SQL_DROP,
    RACE_SQLS_COUNT,
} race_sql;

/* One statement about `table`, in a seat that was entered. result may be NULL. */
weir_status weir__race_sql(race_seat *seat, race_sql which, const char *table,
                           const table_value *values, size_t values_count, table_result *result,
                           weir_error *err);
/* A name that no other race has or had. */
void weir__race_table_name(char out[RACE_TABLE_BYTES]);
/* How long one waits who comes last: URL with a busy timeout for it, where it says nothing of one.
 * *out: owned. */
weir_status weir__race_url(const race_options *options, char **out, weir_error *err);

/* ---- side effects (race_effects.c) ----------------------------------------------------------- */

enum { RACE_WHY_BYTES = 128 };
/* What errno says. Any thread. */
const char *weir__race_errno(int code, char *text, size_t bytes);
/* The email of a row, by a worker (from 1). Any thread. */
weir_status weir__race_effect_send(int fd, int64_t row, size_t worker, weir_error *err);
/* Counts what was sent after `start`: counts[row - 1] for rows from 1 to rows_count. EIO: a line
 * that is none of these. */
weir_status weir__race_effects_count(int fd, int64_t start, int64_t *counts, size_t rows_count,
                                     weir_error *err);

/* ---- the race (race.c) ----------------------------------------------------------------------- */

enum { RACE_NAME_BYTES = 24 };

typedef struct race_worker {
    race *race;    /* borrowed */
    size_t number; /* from 1 */
    char name[RACE_NAME_BYTES];
    race_seat seat;
    pthread_t thread;
    bool started;       /* there is a thread */
    bool looked;        /* weir__race_looked was called; of its own thread */
    weir_status status; /* how its turn went; read after the join */
    weir_error err;
} race_worker;

struct race {
    /* immutable after the start */
    race_options options;
    char table[RACE_TABLE_BYTES];
    char *url; /* owned: the one that is used */
    table_db *db;
    int fd; /* eventfd */
    int64_t effects_start;
    pthread_t director;
    race_worker *workers; /* owned */

    weir_mutex mu;
    weir_cond changed;
    /* guarded by mu */
    race_line *first, **last; /* owned: lines that nobody has taken yet */
    size_t ready;             /* workers that are connected, or have failed to */
    size_t looked;            /* workers whose first statement is answered (or waits for a lock) */
    int64_t zero_us;          /* when the workers were let go; 0: not yet */
    bool stop;
    bool over;

    race_line *taken;   /* of the caller's thread: what weir__race_next gave */
    weir_status status; /* of the director; read after the join */
    weir_error err;
};

/* Adds a copy of the line. STEP: its time is now. */
void weir__race_say(race *r, const race_line *line);
bool weir__race_stopped(race *r);
/* The worker is ready; waits until it is let go. false: it is to end. */
bool weir__race_gate(race *r);
/* The first statement of a worker has its answer, or waits for somebody's lock. Once for each. */
void weir__race_looked(race_worker *w);
/* For the length of --pause, and until all workers have looked: the race is about who sees what,
 * not about which thread the machine runs first. false: the worker is to end. */
bool weir__race_pause(race *r);

/* race_worker.c: one worker, from its connection to the end of its turn. ctx: race_worker. */
void *weir__race_worker_run(void *ctx);

#endif
