/* reactions.c - what reactions are declared, by which definition, and who routes them.
 *
 * INVARIANTS
 *   (1) A reaction's definition numbers only grow; weir_reactions.number is the highest of them.
 *   (2) `since` never changes. `routed` moves forward in route.c, and back only in a reset.
 *   (3) router_fence grows with every taking, never with a renewal.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "store/request.h"
#include "store/sqlite/reactions_sql.h"
#include "store/sqlite/targets.h"

#include <stdlib.h>

static sqlite_store *store_of(weir_store *base)
{
    return (sqlite_store *)base;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* names: as weir_definitions keeps them. Fills names, names_count and all_names. */
static weir_status decode_names(weir_str names, weir_arena *arena, store_reaction *out,
                                weir_error *err)
{
    weir_buffer name = { 0 };
    weir_status status = WEIR_OK;
    weir_str *list = NULL;
    size_t count = 0;

    if (weir__json_type(names) == WEIR_JSON_TRUE) {
        out->all_names = true;
        out->names = NULL;
        out->names_count = 0;
        return WEIR_OK;
    }
    for (weir_json_members it = weir__json_elements(names); weir__json_elements_next(&it);) {
        count++;
    }
    list = weir__arena_alloc(arena, (count + 1) * sizeof *list);
    if (list == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate %zu event names", count);
        goto out;
    }
    count = 0;
    for (weir_json_members it = weir__json_elements(names); weir__json_elements_next(&it);) {
        weir__buffer_clear(&name);
        char *copy = NULL;
        if (weir__json_string_decode(it.value, &name)) {
            copy = weir__arena_copy(arena, name.len == 0 ? "" : name.ptr, name.len);
        }
        if (copy == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy an event name");
            goto out;
        }
        list[count++] = (weir_str){ .ptr = copy, .len = name.len };
    }
    out->all_names = false;
    out->names = list;
    out->names_count = count;
out:
    weir__buffer_free(&name);
    return status;
}

/* One row of reaction_load or reaction_list; router_until_us as it is kept. */
static weir_status read_reaction(sqlite3_stmt *stmt, weir_arena *arena, store_reaction *out,
                                 weir_error *err)
{
    const int64_t rule = sqlite3_column_int64(stmt, 12);
    store_reaction r = {
        .id = sqlite3_column_int64(stmt, 0),
        .name = weir__sqlite_column_copy(stmt, 1, arena),
        .number = sqlite3_column_int64(stmt, 2),
        .current = sqlite3_column_int64(stmt, 2),
        .since = sqlite3_column_int64(stmt, 3),
        .routed = sqlite3_column_int64(stmt, 4),
        .reread_to = sqlite3_column_int64(stmt, 5),
        .retired = sqlite3_column_int(stmt, 6) != 0,
        .router = weir__sqlite_column_copy(stmt, 7, arena),
        .router_until_us = sqlite3_column_int64(stmt, 8),
        .router_fence = sqlite3_column_int64(stmt, 9),
        .source = weir__sqlite_column_copy(stmt, 11, arena),
        .rule_text = weir__sqlite_column_copy(stmt, 13, arena),
        .attempts = sqlite3_column_int64(stmt, 14),
    };
    if (rule < STORE_RULE_CONSTANT || rule > STORE_RULE_WORK) {
        return weir__fail(err, WEIR_ECORRUPT, "reaction %lld has an unknown rule %lld",
                          (long long)r.id, (long long)rule);
    }
    r.rule = (store_rule)rule;
    if (r.name.ptr == NULL || r.router.ptr == NULL || r.source.ptr == NULL ||
        r.rule_text.ptr == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a reaction");
    }
    const weir_status status = decode_names(weir__sqlite_column_str(stmt, 10), arena, &r, err);
    if (status == WEIR_OK) {
        *out = r;
    }
    return status;
}

weir_status weir__sqlite_reaction_load(sqlite_conn *conn, int64_t reaction, weir_arena *arena,
                                       store_reaction *out, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_reaction_load, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, reaction);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no reaction with id %lld", (long long)reaction);
    } else if (status == WEIR_OK) {
        status = read_reaction(stmt, arena, out, err);
    }
    weir__sqlite_done(stmt);
    return status;
}

weir_status weir__sqlite_reactions(weir_store *base, store_reaction_list *list, weir_error *err)
{
    sqlite_store *s = store_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    sqlite_times now = { 0 };
    weir_buffer found = { 0 };
    bool row = false;

    weir__arena_reset(&list->arena);
    list->reactions = NULL;
    list->reactions_count = 0;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_statement(conn, sql_reaction_list, &stmt, err);
    }
    while (status == WEIR_OK) {
        store_reaction reaction = { 0 };
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        status = read_reaction(stmt, &list->arena, &reaction, err);
        reaction.router_until_us = weir__sqlite_held_until(&now, reaction.router_until_us);
        if (status == WEIR_OK && !weir__buffer_add(&found, &reaction, sizeof reaction)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate the list of reactions");
        }
    }
    weir__sqlite_done(stmt);
    weir__sqlite_read_end(s, conn);
    if (status == WEIR_OK && found.len > 0) {
        store_reaction *reactions = weir__arena_alloc(&list->arena, found.len);
        if (reactions == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate the list of reactions");
        } else {
            memcpy(reactions, found.ptr, found.len);
            list->reactions = reactions;
            list->reactions_count = found.len / sizeof *reactions;
        }
    }
    weir__buffer_free(&found);
    return status;
}

/* ---- declaring ----------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return weir__str_compare(*(const weir_str *)a, *(const weir_str *)b);
}

/* The names as weir_definitions keeps them: one text for one set of names. */
static weir_status encode_names(const store_reaction_declaration *d, weir_buffer *out,
                                weir_error *err)
{
    weir_str *sorted = NULL;
    bool ok = true;

    if (d->all_names) {
        ok = weir__buffer_add_text(out, "true");
        goto out;
    }
    sorted = weir__calloc(d->names_count + 1, sizeof *sorted);
    if (sorted == NULL) {
        ok = false;
        goto out;
    }
    for (size_t i = 0; i < d->names_count; i++) {
        sorted[i] = d->names[i];
    }
    qsort(sorted, d->names_count, sizeof *sorted, compare_names);
    ok = weir__buffer_add_text(out, "[");
    for (size_t i = 0; i < d->names_count && ok; i++) {
        if (i > 0 && weir__str_equal(sorted[i], sorted[i - 1])) {
            continue;
        }
        ok = (i == 0 || weir__buffer_add_text(out, ",")) && weir__json_write_string(out, sorted[i]);
    }
    ok = ok && weir__buffer_add_text(out, "]");
out:
    weir__free(sorted);
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate a definition");
}

static void bind_definition(sqlite3_stmt *stmt, int64_t reaction, weir_str names,
                            const store_reaction_declaration *d)
{
    sqlite3_bind_int64(stmt, 1, reaction);
    weir__sqlite_bind_str(stmt, 2, names);
    weir__sqlite_bind_str(stmt, 3, d->source);
    sqlite3_bind_int64(stmt, 4, d->rule);
    weir__sqlite_bind_str(stmt, 5, d->rule_text);
}

/* The latest number of a definition; 0: the reaction never had it. */
static weir_status definition_number(sqlite_conn *conn, int64_t reaction, weir_str names,
                                     const store_reaction_declaration *d, int64_t *number,
                                     weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_definition_number, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    bind_definition(stmt, reaction, names, d);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK) {
        *number = row ? sqlite3_column_int64(stmt, 0) : 0; /* max of no rows is NULL, read as 0 */
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status definition_add(sqlite_conn *conn, int64_t reaction, weir_str names,
                                  const store_reaction_declaration *d, int64_t number,
                                  weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    weir_status status = weir__sqlite_statement(conn, sql_definition_insert, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    bind_definition(stmt, reaction, names, d);
    sqlite3_bind_int64(stmt, 6, number);
    return weir__sqlite_run(conn, stmt, err);
}

/* What reaction_by_name gives; id 0: there is none. */
typedef struct reaction_row {
    int64_t id, number;
    bool retired;
} reaction_row;

static weir_status reaction_by_name(sqlite_conn *conn, weir_str name, reaction_row *out,
                                    weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_reaction_by_name, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, name);
    status = weir__sqlite_step(conn, stmt, &row, err);
    *out = (reaction_row){ 0 };
    if (status == WEIR_OK && row) {
        *out = (reaction_row){ .id = sqlite3_column_int64(stmt, 0),
                               .number = sqlite3_column_int64(stmt, 1),
                               .retired = sqlite3_column_int(stmt, 2) != 0 };
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status reaction_add(sqlite_conn *conn, const store_reaction_declaration *d, int64_t *id,
                                weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    int64_t since = 0;
    if (d->start == STORE_START_NOW) {
        since = conn->row->head;
    } else if (d->start == STORE_START_POSITION) {
        since = d->start_position;
    }
    weir_status status = weir__start_check(since, conn->row->head, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_statement(conn, sql_reaction_insert, &stmt, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, d->name);
    sqlite3_bind_int64(stmt, 2, since);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK) {
        WEIR_ASSERT(row);
        *id = sqlite3_column_int64(stmt, 0);
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status derive_targets(sqlite_conn *conn, int64_t reaction, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_reaction_targets, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, reaction);
    /* Deriving writes to weir_targets, this cursor is on weir_subscriptions: it stays where it
     * is. */
    for (;;) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        status = weir__sqlite_derive(conn, sqlite3_column_int64(stmt, 0), NULL, err);
        if (status != WEIR_OK) {
            break;
        }
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status set_retired(sqlite_conn *conn, int64_t reaction, bool retired, weir_error *err)
{
    weir_status status = weir__sqlite_run_ints(conn, sql_reaction_set_retired,
                                               (int64_t[]){ reaction, retired ? 1 : 0 }, 2, err);
    return status == WEIR_OK ? derive_targets(conn, reaction, err) : status;
}

/* number: of the definition that was asked for; if it is not the current one, nothing changes. */
static weir_status set_attempts(sqlite_conn *conn, int64_t reaction, int64_t number,
                                int64_t attempts, weir_error *err)
{
    return weir__sqlite_run_ints(conn, sql_reaction_set_attempts,
                                 (int64_t[]){ reaction, attempts, number }, 3, err);
}

/* *number: of the definition that was asked for, current or not. *changed: whether anything was. */
static weir_status declare_in(sqlite_conn *conn, const store_reaction_declaration *d,
                              weir_str names, int64_t *id, int64_t *number, bool *changed,
                              weir_error *err)
{
    reaction_row row = { 0 };
    weir_status status = reaction_by_name(conn, d->name, &row, err);
    if (status != WEIR_OK) {
        return status;
    }
    *id = row.id;
    *number = 0;
    *changed = row.id == 0 || row.retired;
    if (row.id == 0) {
        *number = 1;
        status = reaction_add(conn, d, id, err);
        return status == WEIR_OK ? definition_add(conn, *id, names, d, 1, err) : status;
    }
    status = definition_number(conn, row.id, names, d, number, err);
    /* A retired reaction has nobody whose definition could be newer: it comes back as declared. */
    if (status == WEIR_OK && *number != row.number &&
        (*number == 0 || d->redeclare || row.retired)) {
        *number = row.number + 1;
        *changed = true;
        status = definition_add(conn, row.id, names, d, *number, err);
        if (status == WEIR_OK) {
            status = weir__sqlite_run_ints(conn, sql_reaction_set_current,
                                           (int64_t[]){ row.id, *number }, 2, err);
        }
    }
    if (status == WEIR_OK && row.retired) {
        status = set_retired(conn, row.id, false, err);
    }
    return status;
}

weir_status weir__sqlite_declare(weir_store *base, const store_reaction_declaration *d,
                                 weir_arena *arena, store_reaction *out, weir_error *err)
{
    sqlite_store *s = store_of(base);
    sqlite_conn *conn = NULL;
    weir_buffer names = { 0 };
    store_reaction reaction = { 0 };
    sqlite_times now = { 0 };
    int64_t id = 0, number = 0;
    bool changed = false;

    weir_status status = encode_names(d, &names, err);
    if (status != WEIR_OK) {
        goto out;
    }
    status = weir__sqlite_hold_begin(s, 0, &conn, &now, err);
    if (status != WEIR_OK) {
        goto out;
    }
    status = declare_in(conn, d, (weir_str){ .ptr = names.ptr, .len = names.len }, &id, &number,
                        &changed, err);
    if (status == WEIR_OK) {
        status = set_attempts(conn, id, number, d->attempts, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_reaction_load(conn, id, arena, &reaction, err);
    }
    status = weir__sqlite_write_end(s, status, changed, err);
    if (status == WEIR_OK) {
        reaction.number = number;
        reaction.router_until_us = weir__sqlite_held_until(&now, reaction.router_until_us);
        *out = reaction;
    }
out:
    weir__buffer_free(&names);
    return status;
}

weir_status weir__sqlite_retire(weir_store *base, weir_str name, weir_error *err)
{
    sqlite_store *s = store_of(base);
    sqlite_conn *conn = NULL;
    reaction_row row = { 0 };
    int64_t now_us = 0;

    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = reaction_by_name(conn, name, &row, err);
    if (status == WEIR_OK && row.id == 0) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no reaction \"%.*s\"", (int)name.len, name.ptr);
    } else if (status == WEIR_OK && !row.retired) {
        status = set_retired(conn, row.id, true, err);
    }
    return weir__sqlite_write_end(s, status, false, err);
}

/* ---- routers' leases ----------------------------------------------------------------------- */

typedef struct router_row {
    bool leasable; /* there is such a reaction, and it is not retired */
    bool held;     /* by someone, expired or not */
    int64_t until_us, fence;
} router_row;

static weir_status router_read(sqlite_conn *conn, int64_t reaction, router_row *out,
                               weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_router_read, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, reaction);
    status = weir__sqlite_step(conn, stmt, &row, err);
    *out = (router_row){ 0 };
    if (status == WEIR_OK && row) {
        *out = (router_row){ .leasable = sqlite3_column_int(stmt, 3) == 0,
                             .held = sqlite3_column_int(stmt, 0) != 0,
                             .until_us = sqlite3_column_int64(stmt, 1),
                             .fence = sqlite3_column_int64(stmt, 2) };
    }
    weir__sqlite_done(stmt);
    return status;
}

/* One item. `item` is a copy: the caller's is written when all of it is committed. */
static weir_status router_lease_one(sqlite_conn *conn, weir_str holder, int64_t lease_us,
                                    const sqlite_times *now, store_router_lease *item,
                                    weir_error *err)
{
    router_row row = { 0 };
    sqlite3_stmt *stmt = NULL;
    weir_status status = router_read(conn, item->reaction, &row, err);
    if (status != WEIR_OK) {
        return status;
    }
    const bool ours = row.held && item->fence != 0 && row.fence == item->fence;
    const bool live = row.held && row.until_us > now->machine_us;
    item->fence = 0;
    item->until_us = 0;
    if (lease_us == 0) {
        return ours ? weir__sqlite_run_ints(conn, sql_router_give_back, &item->reaction, 1, err)
                    : WEIR_OK;
    }
    if (!row.leasable || (live && !ours)) {
        return WEIR_OK;
    }
    item->fence = ours ? row.fence : row.fence + 1;
    item->until_us = weir__sqlite_later(now->store_us, lease_us);
    status = weir__sqlite_statement(conn, sql_router_take, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, item->reaction);
    weir__sqlite_bind_str(stmt, 2, holder);
    sqlite3_bind_int64(stmt, 3, weir__sqlite_later(now->machine_us, lease_us));
    sqlite3_bind_int64(stmt, 4, item->fence);
    return weir__sqlite_run(conn, stmt, err);
}

weir_status weir__sqlite_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err)
{
    sqlite_store *s = store_of(base);
    sqlite_conn *conn = NULL;
    store_router_lease *results = NULL;
    sqlite_times now = { 0 };
    weir_status status = WEIR_OK;

    if (count == 0) {
        return WEIR_OK;
    }
    results = weir__calloc(count, sizeof *results);
    if (results == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu routers' leases", count);
    }
    status = weir__sqlite_hold_begin(s, SQLITE_TX_DURABLE, &conn, &now, err);
    if (status != WEIR_OK) {
        goto out;
    }
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        results[i] = items[i];
        status = router_lease_one(conn, holder, lease_us, &now, &results[i], err);
    }
    /* What is given back can be taken at once by whoever waits for it. */
    status = weir__sqlite_write_end(s, status, lease_us == 0, err);
    if (status == WEIR_OK) {
        memcpy(items, results, count * sizeof *items);
    }
out:
    weir__free(results);
    return status;
}
