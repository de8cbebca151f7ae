/* claim_dialect.c - in what databases differ: the one table that says which path a database gets,
 * and how it speaks of time.
 */
#include "base/str.h"
#include "claim/claim_private.h"

#include <strings.h>

static const claim_dialect dialects[TABLE_DIALECTS_COUNT] = {
    [TABLE_POSTGRES] = {
        .best = CLAIM_PATH_FAST,
        .row_locks = true,
        .casts = true,
        .same = "IS NOT DISTINCT FROM",
        .always = "TRUE",
        .untrue = "IS NOT TRUE",
        .seldom = { "", "" },
        .moment = "SELECT clock_timestamp() AS at",
        .later = { " + CAST('", " microseconds' AS interval)" },
        .times = {
            [CLAIM_CLOCK_ZONED] = { "", "" },
            [CLAIM_CLOCK_BARE] = { "(", ") AT TIME ZONE 'UTC'" },
            [CLAIM_CLOCK_NUMBER] = { "CAST(extract(epoch FROM ",
                                     ") OPERATOR(pg_catalog.*) 1000000 AS bigint)" },
            [CLAIM_CLOCK_TEXT] = { "to_char((", ") AT TIME ZONE 'UTC', "
                                   "'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')" },
        },
    },
    [TABLE_SQLITE] = {
        .best = CLAIM_PATH_FAST,
        .same = "IS",
        .always = "1",
        .untrue = "IS NOT 1",
        .seldom = { "unlikely(", ")" },
        /* Its clock has milliseconds, and a double of days has them exactly. */
        .moment = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 "
                  "AS at",
        .later = { " + ", "" },
        .times = {
            [CLAIM_CLOCK_NUMBER] = { "", "" },
            [CLAIM_CLOCK_TEXT] = { "strftime('%Y-%m-%dT%H:%M:%S', (",
                                   ") / 1000000, 'unixepoch') || "
                                   "printf('.%06dZ', at % 1000000)" },
        },
    },
};

const claim_dialect *weir__claim_dialect(table_dialect dialect)
{
    return &dialects[dialect];
}

/* SQLite decides by parts of the declared type's name; see its documentation of affinity. */
static bool declared_with(const table_column *column, const char *part)
{
    const size_t len = strlen(part);
    for (size_t i = 0; i + len <= column->type.len; i++) {
        if (strncasecmp(column->type.ptr + i, part, len) == 0) {
            return true;
        }
    }
    return false;
}

static claim_clock clock_sqlite(const table_column *column)
{
    if (declared_with(column, "INT")) {
        return CLAIM_CLOCK_NUMBER;
    }
    return declared_with(column, "REAL") || declared_with(column, "FLOA") ||
                   declared_with(column, "DOUBLE")
               ? CLAIM_CLOCK_NONE
               : CLAIM_CLOCK_TEXT; /* a text that is no number stays one in any other column */
}

bool weir__claim_makes_numbers(const table_column *column)
{
    static const char *const texts[] = { "CHAR", "CLOB", "TEXT", "BLOB" };
    bool text = column->type.len == 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        text = text || declared_with(column, texts[i]);
    }
    return declared_with(column, "INT") || !text;
}

claim_clock weir__claim_clock(table_dialect dialect, const table_column *column)
{
    static const struct {
        const char *type;
        claim_clock clock;
    } clocks[] = {
        { "timestamp with time zone", CLAIM_CLOCK_ZONED },
        { "timestamp without time zone", CLAIM_CLOCK_BARE },
        { "bigint", CLAIM_CLOCK_NUMBER },
        { "text", CLAIM_CLOCK_TEXT },
        { "character varying", CLAIM_CLOCK_TEXT },
    };
    if (dialect == TABLE_SQLITE) {
        return clock_sqlite(column);
    }
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        if (weir__str_equal(column->type, weir__str(clocks[i].type))) {
            return clocks[i].clock;
        }
    }
    return CLAIM_CLOCK_NONE;
}

bool weir__claim_is_integer(table_dialect dialect, const table_column *column)
{
    static const char *const types[] = { "bigint", "integer", "smallint", "numeric" };
    if (dialect == TABLE_SQLITE) {
        return declared_with(column, "INT") || declared_with(column, "NUM");
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (weir__str_equal(column->type, weir__str(types[i]))) {
            return true;
        }
    }
    return false;
}

weir_status weir__claim_path_choose(const claim_request *request, table_dialect dialect,
                                    claim_path *out, weir_error *err)
{
    const claim_path best = dialects[dialect].best;
    if (request->path == CLAIM_PATH_FAST && best != CLAIM_PATH_FAST) {
        return weir__fail(err, WEIR_EINVAL, "--path: this database has no fast path");
    }
    *out = request->path == CLAIM_PATH_DEFAULT ? best : request->path;
    return WEIR_OK;
}
