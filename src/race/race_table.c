/* race_table.c - the table of a race, and sessions to use it with.
 *
 * INVARIANT  A name of a table gets into SQL only when it has the form that weir__race_table_name
 * gives it: letters, digits and underscores.
 */
#include "base/assert.h"
#include "base/random.h"
#include "race/postgres_sql.h"
#include "race/race_private.h"
#include "race/sqlite_sql.h"

#include <inttypes.h>
#include <stdio.h>

#define NAME_BEGIN  "weir_race_"
#define PLACEHOLDER "weir_race_table"

enum { NAME_DIGITS = 16, DROP_WAIT_US = 10 * 1000000 };

static const char *const sql_texts[TABLE_DIALECTS_COUNT][RACE_SQLS_COUNT] = {
    [TABLE_POSTGRES] = { [RACE_SQL_MAKE] = sql_postgres_make,
                         [RACE_SQL_FILL] = sql_postgres_fill,
                         [RACE_SQL_LOOK] = sql_postgres_look,
                         [RACE_SQL_LOOK_LOCKED] = sql_postgres_look_locked,
                         [RACE_SQL_MARK] = sql_postgres_mark,
                         [RACE_SQL_ROWS] = sql_postgres_rows,
                         [RACE_SQL_LEFT] = sql_postgres_left,
                         [RACE_SQL_DROP] = sql_postgres_drop },
    [TABLE_SQLITE] = { [RACE_SQL_MAKE] = sql_sqlite_make,
                       [RACE_SQL_FILL] = sql_sqlite_fill,
                       [RACE_SQL_LOOK] = sql_sqlite_look,
                       [RACE_SQL_LOOK_LOCKED] = sql_sqlite_look, /* BEGIN IMMEDIATE has locked */
                       [RACE_SQL_MARK] = sql_sqlite_mark,
                       [RACE_SQL_ROWS] = sql_sqlite_rows,
                       [RACE_SQL_LEFT] = sql_sqlite_left,
                       [RACE_SQL_DROP] = sql_sqlite_drop },
};

/* ---- sessions -------------------------------------------------------------------------------- */

weir_status weir__race_enter(race_seat *seat, weir_error *err)
{
    weir_status status = WEIR_OK;
    while (seat->session == NULL) {
        status = weir__table_session_open(seat->db, &seat->session, err);
        /* Whoever has the one connection in memory leaves it sooner or later. */
        if (status != WEIR_OK && !(status == WEIR_EBUSY && seat->by_turns)) {
            break;
        }
    }
    return seat->session != NULL ? WEIR_OK : status;
}

void weir__race_seat_close(race_seat *seat)
{
    weir__table_session_close(seat->session);
    seat->session = NULL;
}

void weir__race_leave(race_seat *seat)
{
    if (seat->by_turns) {
        weir__race_seat_close(seat);
    }
}

/* ---- statements ------------------------------------------------------------------------------ */

static bool is_race_table(weir_str name)
{
    const size_t begin = strlen(NAME_BEGIN);
    if (name.len != begin + NAME_DIGITS || memcmp(name.ptr, NAME_BEGIN, begin) != 0) {
        return false;
    }
    for (size_t i = begin; i < name.len; i++) {
        if (strchr("0123456789abcdef", name.ptr[i]) == NULL || name.ptr[i] == '\0') {
            return false;
        }
    }
    return true;
}

void weir__race_table_name(char out[RACE_TABLE_BYTES])
{
    const int n =
        snprintf(out, RACE_TABLE_BYTES, NAME_BEGIN "%016" PRIx64, (uint64_t)weir__random_u64());
    WEIR_ASSERT(n == (int)strlen(NAME_BEGIN) + NAME_DIGITS);
}

/* The statement with the table's name in it. */
static bool table_named(weir_buffer *out, const char *sql, const char *table)
{
    bool ok = true;
    for (const char *at; (at = strstr(sql, PLACEHOLDER)) != NULL && ok;) {
        ok = weir__buffer_add(out, sql, (size_t)(at - sql)) && weir__buffer_add_text(out, table);
        sql = at + strlen(PLACEHOLDER);
    }
    return ok && weir__buffer_add(out, sql, strlen(sql) + 1);
}

weir_status weir__race_sql(race_seat *seat, race_sql which, const char *table,
                           const table_value *values, size_t values_count, table_result *result,
                           weir_error *err)
{
    weir_buffer sql = { 0 };
    weir_status status;
    WEIR_ASSERT(is_race_table(weir__str(table)));
    if (!table_named(&sql, sql_texts[weir__table_dialect(seat->db)][which], table)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    } else {
        /* Whoever looks at the table from outside keeps it from being dropped, but not for ever. */
        const table_statement statement = { .sql = sql.ptr,
                                            .values = values,
                                            .values_count = values_count,
                                            .wait_us = which == RACE_SQL_DROP ? DROP_WAIT_US : -1 };
        status = weir__table_run(seat->session, &statement, result, err);
    }
    weir__buffer_free(&sql);
    return status;
}

weir_status weir__race_url(const race_options *options, char **out, weir_error *err)
{
    enum { MORE_BYTES = 48, MARGIN_SECONDS = 30 };
    const bool sqlite = strncmp(options->url, "sqlite:", 7) == 0;
    const size_t bytes = strlen(options->url) + MORE_BYTES;
    char *url = weir__malloc(bytes);
    if (url == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a race");
    }
    const int64_t seconds =
        (options->pause_us / 1000000 + 1) * options->workers + (int64_t)MARGIN_SECONDS;
    int n;
    if (sqlite && strstr(options->url, "busy=") == NULL) {
        n = snprintf(url, bytes, "%s%sbusy=%" PRId64 "s", options->url,
                     strchr(options->url, '?') == NULL ? "?" : "&", seconds);
    } else {
        n = snprintf(url, bytes, "%s", options->url);
    }
    WEIR_ASSERT(n >= 0 && (size_t)n < bytes);
    *out = url;
    return WEIR_OK;
}

weir_status weir__race_drop(const char *url, weir_str table, weir_error *err)
{
    table_db *db = NULL;
    race_seat seat = { 0 };
    char name[RACE_TABLE_BYTES];
    weir_arena arena = { 0 };
    table_info info;
    weir_status status;
    if (!is_race_table(table)) {
        return weir__fail(err, WEIR_EINVAL,
                          "\"%.*s\" is not the name of a race's table: " NAME_BEGIN
                          " and %d hexadecimal digits",
                          (int)table.len, table.ptr, NAME_DIGITS);
    }
    memcpy(name, table.ptr, table.len);
    name[table.len] = '\0';
    status = weir__table_open(&db, &(table_options){ .url = url }, err);
    if (status == WEIR_OK) {
        seat.db = db;
        status = weir__race_enter(&seat, err);
    }
    if (status == WEIR_OK) {
        status = weir__table_describe(seat.session, table, &arena, &info, err);
    }
    if (status == WEIR_OK) {
        status = weir__race_sql(&seat, RACE_SQL_DROP, name, NULL, 0, NULL, err);
    }
    weir__race_seat_close(&seat);
    weir__table_close(db);
    weir__arena_free(&arena);
    return status;
}
