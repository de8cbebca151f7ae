/* claim_private.h - what the files of claim/ share. README.md says how they fit together.
 *
 * A request is checked once, against the table (claim_check.c); what comes out, a claim_spec, has
 * columns instead of names. From it statements are written (claim_text.c), with values as
 * parameters or, to be shown, as literals, and run: claim_fast.c, claim_portable.c.
 */
#ifndef WEIR_CLAIM_CLAIM_PRIVATE_H
#define WEIR_CLAIM_CLAIM_PRIVATE_H

#include "base/error.h"
#include "claim/claim.h"

/* ---- what a dialect is like (claim_dialect.c) ----------------------------------------------- */

/* How a column holds a time. */
typedef enum claim_clock {
    CLAIM_CLOCK_NONE = 0, /* it cannot */
    CLAIM_CLOCK_ZONED,    /* timestamp with time zone */
    CLAIM_CLOCK_BARE,     /* timestamp, UTC */
    CLAIM_CLOCK_NUMBER,   /* microseconds since 1970 */
    CLAIM_CLOCK_TEXT,     /* RFC 3339, 27 bytes */
    CLAIM_CLOCKS,
} claim_clock;

/* SQL around something. */
typedef struct claim_around {
    const char *before, *after;
} claim_around;

/* Everything in which databases differ here. */
typedef struct claim_dialect {
    claim_path best;                  /* FAST, or PORTABLE when there is nothing better */
    bool row_locks;                   /* FOR UPDATE [SKIP LOCKED]; without, one writes at a time */
    bool casts;                       /* a parameter is given its type by a CAST */
    const char *same;                 /* operator: equal, or both NULL */
    const char *always;               /* a condition */
    const char *untrue;               /* after a condition: it is false or NULL */
    claim_around seldom;              /* around a condition that hardly any row fulfils */
    const char *moment;               /* SELECT of the time now, called at */
    claim_around later;               /* around a number of microseconds, after a time */
    claim_around times[CLAIM_CLOCKS]; /* around a time: as the column has it */
} claim_dialect;

const claim_dialect *weir__claim_dialect(table_dialect dialect);
claim_clock weir__claim_clock(table_dialect dialect, const table_column *column);
bool weir__claim_is_integer(table_dialect dialect, const table_column *column);
/* A text that looks like a number becomes one in this column of SQLite's. */
bool weir__claim_makes_numbers(const table_column *column);

/* ---- SQL of the user's (claim_scan.c) ------------------------------------------------------- */

typedef struct claim_piece {
    bool param;    /* text is a parameter's name, without the colon */
    weir_str text; /* of the SQL given; borrowed */
} claim_piece;

/* Reads SQL piece by piece. Zero but for sql and dialect at first. */
typedef struct claim_scan {
    weir_str sql;
    table_dialect dialect;
    size_t at;
    int64_t depth; /* of parentheses */
} claim_scan;

/* *found false: the end. EINVAL: a string, a name or a comment that does not end, parentheses that
 * do not match, a second statement, a numbered parameter. */
weir_status weir__claim_scan_next(claim_scan *s, claim_piece *piece, bool *found, weir_error *err);

/* The end of the part up to the next AND outside of parentheses, and where the one after it begins:
 * at the end of all, both are that. */
weir_status weir__claim_scan_and(claim_scan *s, size_t *end, size_t *next, weir_error *err);

/* ---- a request that was checked (claim_check.c) --------------------------------------------- */

enum { CLAIM_KEY_MAX = 32, CLAIM_ORDER_MAX = CLAIM_COLUMNS_MAX + CLAIM_KEY_MAX };

typedef struct claim_order_column {
    const table_column *column;
    bool descending;
    bool written; /* the claim gives it another value */
} claim_order_column;

typedef struct claim_spec {
    const claim_request *request;
    const table_info *table;
    const claim_dialect *sql;
    table_dialect dialect;
    claim_path path;
    int64_t limit;
    claim_order_column order[CLAIM_ORDER_MAX]; /* the key's columns come last */
    size_t order_count;
    const table_column *set[CLAIM_COLUMNS_MAX]; /* of request->writes */
    const table_column *set_sql[CLAIM_COLUMNS_MAX];
    const table_column *by, *at, *lease, *fence, *attempts, *per; /* NULL: none */
    claim_clock at_clock, lease_clock;
    const table_value *taken; /* keys of what this claim has already; not given again */
    size_t taken_count;       /* of rows */
} claim_spec;

/* table: must live as long as the spec. */
weir_status weir__claim_check(const claim_request *request, const table_info *table,
                              table_dialect dialect, claim_spec *out, weir_error *err);
/* A column by the name that a flag has given. EINVAL: none, or one that cannot be written. */
weir_status weir__claim_column(const table_info *table, const char *flag, weir_str name, bool write,
                               const table_column **out, weir_error *err);
/* The same for a column that Weir fills itself, and that may have a default name: if it is missing,
 * the error has the statement that adds it. */
weir_status weir__claim_own_column(const table_info *table, table_dialect dialect, const char *flag,
                                   weir_str name, const table_column **out, weir_error *err);
/* SQL of the user's: it reads, and has a value for each of its parameters; used: which were. */
weir_status weir__claim_check_sql(const char *flag, weir_str sql, table_dialect dialect,
                                  const claim_param *params, size_t params_count, bool *used,
                                  weir_error *err);

/* ---- writing statements (claim_text.c) ------------------------------------------------------ */

/* A statement that is being written. Zero but for the first three at first. */
typedef struct claim_text {
    table_dialect dialect;
    bool literals; /* values are written out; else they become parameters */
    bool again;    /* the statement will come again, and is best planned without its values */
    weir_buffer sql;
    table_value *values; /* owned */
    size_t values_count, values_capacity;
    bool ended;  /* with its NUL */
    bool failed; /* out of memory */
} claim_text;

void weir__claim_text_free(claim_text *t);
void weir__claim_text_clear(claim_text *t);
void weir__claim_add(claim_text *t, const char *format, ...) WEIR_PRINTF(2, 3);
void weir__claim_add_str(claim_text *t, weir_str s);
/* A value as the type of a column; NULL: as it is. */
void weir__claim_add_value(claim_text *t, const table_value *value, const table_column *column);
/* SQL that was checked, its parameters filled in. */
void weir__claim_add_sql(claim_text *t, weir_str sql, const claim_param *params,
                         size_t params_count);
/* column = value, or IS NULL. */
void weir__claim_add_equal(claim_text *t, const table_column *column, const table_value *value);
/* The time as a column has it. from: what to select `at` from; NULL: the moment itself. later_us:
 * so much later. */
void weir__claim_add_time(claim_text *t, claim_clock clock, const char *from, int64_t later_us);
/* Ends the statement and runs it; again with other values, if they were changed. */
weir_status weir__claim_text_run(claim_text *t, table_session *s, int64_t wait_us,
                                 table_result *result, weir_error *err);

/* ---- the statements of a claim (claim_sql.c) ------------------------------------------------ */

typedef enum claim_lock {
    CLAIM_LOCK_NONE = 0,
    CLAIM_LOCK_SKIP,
    CLAIM_LOCK_NOWAIT,
    CLAIM_LOCK_WAIT,
} claim_lock;

/* Which rows: WITH ... weir_taken AS (...). Of every row its key (weir_key_1...) and what it is
 * ordered by (weir_order_1...); rows: and all its columns. */
typedef struct claim_choice {
    claim_lock lock;
    bool rows;
    int64_t limit;
    const table_value *exclude; /* beside those of the request */
    size_t exclude_count;
} claim_choice;

/* FOR UPDATE ..., as much as the claim needs. */
void weir__claim_add_lock(claim_text *t, const claim_spec *c, claim_lock lock);
void weir__claim_add_choice(claim_text *t, const claim_spec *c, const claim_choice *choice);
/* The rows of the choice, or their keys and the values of order columns that the claim writes, in
 * the order asked for. */
void weir__claim_add_chosen(claim_text *t, const claim_spec *c, bool rows);
/* UPDATE ... SET ..., of one claim. now: see weir__claim_add_time. */
void weir__claim_add_update(claim_text *t, const claim_spec *c, const char *now);
/* The condition under which a row is free. */
void weir__claim_add_free(claim_text *t, const claim_spec *c, const char *now);
/* Parts of it: SQL of the user's, the values of `set`, an expired claim whatever expired_where
 * says, and what is ordered by; ours: by the names of the choice. */
void weir__claim_add_where(claim_text *t, const claim_spec *c, weir_str where);
void weir__claim_add_held(claim_text *t, const claim_spec *c);
void weir__claim_add_ended(claim_text *t, const claim_spec *c, const char *now);
void weir__claim_add_order(claim_text *t, const claim_spec *c, bool ours);
/* "a", "b": names of the key's columns, or of all. */
void weir__claim_add_key(claim_text *t, const table_info *table);
void weir__claim_add_columns(claim_text *t, const table_info *table);
/* The one statement of the fast path where there is one; rows: it gives whole rows, else as
 * weir__claim_add_chosen. */
void weir__claim_add_fast(claim_text *t, const claim_spec *c, claim_lock lock, int64_t limit,
                          bool rows);
/* What waits for the rows of a choice, and locks them. */
void weir__claim_add_wait(claim_text *t, const claim_spec *c, int64_t limit);
/* The one UPDATE ... RETURNING of where there are no row locks; rows in any order. It chooses its
 * rows, or is given their keys. */
void weir__claim_add_fast_update(claim_text *t, const claim_spec *c);
void weir__claim_add_update_of(claim_text *t, const claim_spec *c, const table_value *keys,
                               size_t rows_count);
/* UPDATE of one row, if it is still free. key NULL: placeholders, to be shown. */
void weir__claim_add_guarded(claim_text *t, const claim_spec *c, const table_value *key);
/* "id" = ... */
void weir__claim_add_key_is(claim_text *t, const table_info *table, const table_value *key);
/* Reads rows that were claimed before, in order. chosen: as given by weir__claim_add_chosen. */
void weir__claim_add_reread(claim_text *t, const claim_spec *c, const table_value *chosen,
                            size_t rows_count);
/* What weir__claim_add_chosen gives without rows. */
size_t weir__claim_chosen_columns(const claim_spec *c);

/* ---- running (claim_fast.c, claim_portable.c, claim_session.c) ------------------------------ */

/* Until when a request waits for others, and how long that still is: 0 over, -1 for ever. */
typedef struct claim_deadline {
    int64_t until_us; /* by the machine's monotonic clock; -1: for ever */
} claim_deadline;
claim_deadline weir__claim_deadline(const claim_request *request);
int64_t weir__claim_left(claim_deadline deadline);

/* What the request's mode comes to: NOWAIT, too, is who waits no time at all. */
claim_lock weir__claim_lock_of(const claim_request *request);

weir_status weir__claim_fast(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err);
weir_status weir__claim_portable(table_session *s, const claim_spec *c, table_result *result,
                                 weir_error *err);
weir_status weir__claim_hold(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err);

/* A transaction of our own. wait_us: for SQLite's lock. */
#define CLAIM_BUSY_TIMEOUT INT64_MIN /* as long as the URL or the caller's connection says */
weir_status weir__claim_begin(table_session *s, int64_t wait_us, weir_error *err);
int64_t weir__claim_begin_wait(const claim_request *request);
weir_status weir__claim_commit(table_session *s, weir_error *err);
void weir__claim_rollback(table_session *s);
/* One statement without values. */
weir_status weir__claim_run(table_session *s, const char *sql, int64_t wait_us, weir_error *err);
/* Claims with max_per wait for each other here, until their transactions end. */
weir_status weir__claim_serialise(table_session *s, const claim_spec *c, int64_t wait_us,
                                  weir_error *err);
void weir__claim_add_serialise(claim_text *t, const claim_spec *c);
/* What the database has refused because of what was asked: EINVAL. Anything else as it was. */
weir_status weir__claim_refused(weir_status status, weir_error *err);

/* What would be taken now: nothing is locked. */
weir_status weir__claim_look(table_session *s, const claim_spec *c, table_result *result,
                             weir_error *err);

/* Keys that were found, and what goes with them: columns values each. */
typedef struct claim_found {
    weir_arena arena;
    table_value *values;
    size_t columns, rows, capacity;
} claim_found;

bool weir__claim_found_add(claim_found *f, const table_result *r, size_t row);
void weir__claim_found_free(claim_found *f);
/* The rows that were claimed, in order. */
weir_status weir__claim_reread(table_session *s, const claim_spec *c, const claim_found *found,
                               table_result *result, weir_error *err);

#endif
