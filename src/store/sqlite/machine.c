/* machine.c - the machine's clock: how long something is held, and how old a key is.
 *
 * Store time follows the wall clock, and never goes back. One process whose wall clock is days
 * ahead takes it along for everybody, so it is good for saying when something happened, and no good
 * for deciding who may hold what. A store in SQLite has one machine, and a machine has a clock that
 * nobody can set: the time since it was started. All processes read the same, and it goes on while
 * none of them runs.
 *
 * INVARIANTS
 *   (1) Between two starts of the machine this clock goes as the machine's does. The wall clock
 *       sets it once, at the first write after a start, so that its times can be compared with
 *       those from before the start: keys have to expire in days.
 *   (2) Nobody who held anything lives on when the machine starts anew: every lease ends then. So
 *       it does no harm if the wall clock sets this clock back.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/machine_sql.h"
#include "store/sqlite/sqlite_private.h"

/* The row of weir_key_clock. */
typedef struct machine_row {
    bool found;
    bool same; /* written since the machine was started */
    weir_age_clock age;
} machine_row;

static weir_status read_row(sqlite_conn *conn, weir_str boot, int64_t boot_us, machine_row *out,
                            weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_machine_clock, err);
    *out = (machine_row){ 0 };
    if (weir__cursor_next(&cursor)) {
        *out = (machine_row){ .found = true,
                              .age = { .boot_us = weir__cursor_i64(&cursor, 1),
                                       .at_us = weir__cursor_i64(&cursor, 2) } };
        out->same =
            weir__str_equal(weir__cursor_text(&cursor, 0), boot) && out->age.boot_us <= boot_us;
    }
    return weir__cursor_end(&cursor);
}

static weir_status write_row(sqlite_conn *conn, weir_str boot, const weir_age_clock *age,
                             weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_machine_clock_set, err);
    weir__cursor_bind_text(&cursor, 1, boot);
    weir__cursor_bind_i64(&cursor, 2, age->boot_us);
    weir__cursor_bind_i64(&cursor, 3, age->at_us);
    return weir__cursor_run(&cursor);
}

static weir_status end_leases(sqlite_conn *conn, int64_t now_us, weir_error *err)
{
    static const char *const ends[] = { sql_machine_end_targets, sql_machine_end_routers,
                                        sql_machine_end_locks, sql_machine_end_workers };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && status == WEIR_OK; i++) {
        status = weir__sqlite_run_ints(conn, ends[i], &now_us, 1, err);
    }
    return status;
}

/* The machine was started, or the store is new. A store without a row may have leases all the same,
 * of a Weir that went by store time. Their holders may live: those end by themselves. */
static weir_status clock_begin(sqlite_conn *conn, weir_str boot, const machine_row *row,
                               const weir_age_clock *age, weir_error *err)
{
    const weir_status status = write_row(conn, boot, age, err);
    return status == WEIR_OK && row->found ? end_leases(conn, age->at_us, err) : status;
}

weir_status weir__sqlite_machine_now(sqlite_store *s, sqlite_conn *conn, int64_t *now_us,
                                     weir_error *err)
{
    const weir_clock *clock = s->options.clock;
    const weir_str boot = weir__str(weir__clock_start(clock));
    const weir_age_clock fresh = weir__age_clock_begin(clock);
    machine_row row;

    if (conn->row->machine_us != 0) {
        *now_us = conn->row->machine_us;
        return WEIR_OK;
    }
    weir_status status = read_row(conn, boot, fresh.boot_us, &row, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int64_t row_us = weir__age_clock_now(&row.age, clock);
    int64_t machine_us = fresh.at_us;
    if (boot.len == 0) {
        /* Without /proc/sys nobody can tell whether the machine was started since. If it was, the
         * row is behind, and what was held then would be held for as long as the machine ran. So
         * the wall clock has a say here, and the row is left to those who know. */
        machine_us = row.found && row_us > fresh.at_us ? row_us : fresh.at_us;
    } else if (row.same) {
        machine_us = row_us;
    } else if (conn == &s->writer) {
        status = clock_begin(conn, boot, &row, &fresh, err);
    } else if (row.found) {
        machine_us = INT64_MAX; /* nobody holds anything: the first to write will end it */
    }
    if (status == WEIR_OK) {
        conn->row->machine_us = machine_us;
        *now_us = machine_us;
    }
    return status;
}

weir_status weir__sqlite_hold_begin(sqlite_store *s, uint32_t flags, sqlite_conn **conn,
                                    sqlite_times *now, weir_error *err)
{
    weir_status status = weir__sqlite_write_begin(s, flags, conn, &now->store_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_machine_now(s, *conn, &now->machine_us, err);
    return status == WEIR_OK ? WEIR_OK : weir__sqlite_write_end(s, status, false, err);
}

weir_status weir__sqlite_read_times(sqlite_store *s, sqlite_conn *conn, sqlite_times *now,
                                    weir_error *err)
{
    const weir_status status = weir__sqlite_read_now(s, conn, &now->store_us, err);
    return status == WEIR_OK ? weir__sqlite_machine_now(s, conn, &now->machine_us, err) : status;
}

int64_t weir__sqlite_held_until(const sqlite_times *now, int64_t until_us)
{
    int64_t left_us = 0, shown_us = 0;
    if (until_us == 0 || until_us == INT64_MAX) { /* no lease, or one without end */
        return until_us;
    }
    if (__builtin_sub_overflow(until_us, now->machine_us, &left_us) ||
        __builtin_add_overflow(now->store_us, left_us, &shown_us)) {
        return until_us > now->machine_us ? INT64_MAX : 0;
    }
    return shown_us < 0 ? 0 : shown_us;
}
