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
#include "store/judge.h"
#include "store/refusal.h"
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
static weir_status read_reaction(sqlite_cursor *cursor, weir_arena *arena, store_reaction *out)
{
    const int64_t rule = weir__cursor_i64(cursor, 12);
    store_reaction r = {
        .id = weir__cursor_i64(cursor, 0),
        .name = weir__cursor_copy(cursor, 1, arena),
        .number = weir__cursor_i64(cursor, 2),
        .current = weir__cursor_i64(cursor, 2),
        .since = weir__cursor_i64(cursor, 3),
        .routed = weir__cursor_i64(cursor, 4),
        .reread_to = weir__cursor_i64(cursor, 5),
        .retired = weir__cursor_bool(cursor, 6),
        .rule = (store_rule)rule,
        .router = weir__cursor_copy(cursor, 7, arena),
        .router_until_us = weir__cursor_i64(cursor, 8),
        .router_fence = weir__cursor_i64(cursor, 9),
        .source = weir__cursor_copy(cursor, 11, arena),
        .rule_text = weir__cursor_copy(cursor, 13, arena),
        .attempts = weir__cursor_i64(cursor, 14),
    };
    if (cursor->status != WEIR_OK) {
        return cursor->status;
    }
    if (rule < STORE_RULE_CONSTANT || rule > STORE_RULE_WORK) {
        return weir__fail(cursor->err, WEIR_ECORRUPT, "reaction %lld has an unknown rule %lld",
                          (long long)r.id, (long long)rule);
    }
    const weir_status status = decode_names(weir__cursor_text(cursor, 10), arena, &r, cursor->err);
    if (status == WEIR_OK) {
        *out = r;
    }
    return status;
}

weir_status weir__sqlite_reaction_load(sqlite_conn *conn, int64_t reaction, weir_arena *arena,
                                       store_reaction *out, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_reaction_load, err);
    weir__cursor_bind_i64(&cursor, 1, reaction);
    if (weir__cursor_next(&cursor)) {
        weir__cursor_fail(&cursor, read_reaction(&cursor, arena, out));
    } else if (cursor.status == WEIR_OK) {
        weir__cursor_fail(&cursor, weir__fail(err, WEIR_ENOTFOUND, "no reaction with id %lld",
                                              (long long)reaction));
    }
    return weir__cursor_end(&cursor);
}

static weir_status reactions_in(sqlite_conn *conn, const sqlite_times *now,
                                store_reaction_list *list, weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_reaction_list, err);
    while (weir__cursor_next(&cursor)) {
        store_reaction reaction = { 0 };
        weir__cursor_fail(&cursor, read_reaction(&cursor, &list->arena, &reaction));
        reaction.router_until_us = weir__sqlite_held_until(now, reaction.router_until_us);
        weir__cursor_collect(&cursor, &found, &reaction, sizeof reaction);
    }
    return weir__cursor_keep(&cursor, &found, sizeof *list->reactions, &list->arena,
                             &list->reactions, &list->reactions_count);
}

weir_status weir__sqlite_reactions(weir_store *base, store_reaction_list *list, weir_error *err)
{
    sqlite_store *s = store_of(base);
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };

    weir__arena_reset(&list->arena);
    list->reactions = NULL;
    list->reactions_count = 0;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = reactions_in(conn, &now, list, err);
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

/* ---- declaring ----------------------------------------------------------------------------- */

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
    const size_t count = weir__names_sort(sorted, d->names_count);
    ok = weir__buffer_add_text(out, "[");
    for (size_t i = 0; i < count && ok; i++) {
        ok = (i == 0 || weir__buffer_add_text(out, ",")) && weir__json_write_string(out, sorted[i]);
    }
    ok = ok && weir__buffer_add_text(out, "]");
out:
    weir__free(sorted);
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate a definition");
}

/* A statement with the five parameters that make a definition. */
static sqlite_cursor open_definition(sqlite_conn *conn, const char *sql, int64_t reaction,
                                     weir_str names, const store_reaction_declaration *d,
                                     weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_i64(&cursor, 1, reaction);
    weir__cursor_bind_text(&cursor, 2, names);
    weir__cursor_bind_text(&cursor, 3, d->source);
    weir__cursor_bind_i64(&cursor, 4, d->rule);
    weir__cursor_bind_text(&cursor, 5, d->rule_text);
    return cursor;
}

/* The latest number of a definition; 0: the reaction never had it. */
static weir_status definition_number(sqlite_conn *conn, int64_t reaction, weir_str names,
                                     const store_reaction_declaration *d, int64_t *number,
                                     weir_error *err)
{
    bool found = false;
    sqlite_cursor cursor = open_definition(conn, sql_definition_number, reaction, names, d, err);
    *number = 0;
    return weir__cursor_get_int(&cursor, &found, number);
}

static weir_status definition_add(sqlite_conn *conn, int64_t reaction, weir_str names,
                                  const store_reaction_declaration *d, int64_t number,
                                  weir_error *err)
{
    sqlite_cursor cursor = open_definition(conn, sql_definition_insert, reaction, names, d, err);
    weir__cursor_bind_i64(&cursor, 6, number);
    return weir__cursor_run(&cursor);
}

/* Gives id, current and retired of it; id 0: there is none. */
static weir_status reaction_by_name(sqlite_conn *conn, weir_str name, store_reaction *out,
                                    weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_reaction_by_name, err);
    weir__cursor_bind_text(&cursor, 1, name);
    *out = (store_reaction){ 0 };
    if (weir__cursor_next(&cursor)) {
        *out = (store_reaction){ .id = weir__cursor_i64(&cursor, 0),
                                 .current = weir__cursor_i64(&cursor, 1),
                                 .retired = weir__cursor_bool(&cursor, 2) };
    }
    return weir__cursor_end(&cursor);
}

static weir_status reaction_add(sqlite_conn *conn, const store_reaction_declaration *d, int64_t *id,
                                weir_error *err)
{
    bool found = false;
    int64_t since = 0;
    const weir_status status = weir__declared_start(d, conn->row->head, &since, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_reaction_insert, err);
    weir__cursor_bind_text(&cursor, 1, d->name);
    weir__cursor_bind_i64(&cursor, 2, since);
    return weir__cursor_get_int(&cursor, &found, id);
}

static weir_status derive_targets(sqlite_conn *conn, int64_t reaction, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_reaction_targets, err);
    weir__cursor_bind_i64(&cursor, 1, reaction);
    /* Deriving writes to weir_targets, this cursor is on weir_subscriptions: it stays where it
     * is. */
    while (weir__cursor_next(&cursor)) {
        weir__cursor_fail(&cursor,
                          weir__sqlite_derive(conn, weir__cursor_i64(&cursor, 0), NULL, err));
    }
    return weir__cursor_end(&cursor);
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
    store_reaction row = { 0 };
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
    *number = weir__declared_number(d, &row, *number);
    if (status == WEIR_OK && *number > row.current) {
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
    store_reaction row = { 0 };
    int64_t now_us = 0;

    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = reaction_by_name(conn, name, &row, err);
    if (status == WEIR_OK && row.id == 0) {
        status = weir__reaction_not_named(name, err);
    } else if (status == WEIR_OK && !row.retired) {
        status = set_retired(conn, row.id, true, err);
    }
    return weir__sqlite_write_end(s, status, false, err);
}

/* ---- routers' leases ----------------------------------------------------------------------- */

/* Gives what weir__router_judge asks for; retired when there is no such reaction. */
static weir_status router_read(sqlite_conn *conn, int64_t reaction, store_reaction *out,
                               weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_router_read, err);
    weir__cursor_bind_i64(&cursor, 1, reaction);
    *out = (store_reaction){ .retired = true };
    if (weir__cursor_next(&cursor)) {
        const bool held = weir__cursor_bool(&cursor, 0);
        *out = (store_reaction){ .router_until_us = held ? weir__cursor_i64(&cursor, 1) : 0,
                                 .router_fence = weir__cursor_i64(&cursor, 2),
                                 .retired = weir__cursor_bool(&cursor, 3) };
    }
    return weir__cursor_end(&cursor);
}

/* One item. `item` is a copy: the caller's is written when all of it is committed. */
static weir_status router_lease_one(sqlite_conn *conn, weir_str holder, int64_t lease_us,
                                    const sqlite_times *now, store_router_lease *item,
                                    weir_error *err)
{
    store_reaction row = { 0 };
    const weir_status status = router_read(conn, item->reaction, &row, err);
    if (status != WEIR_OK) {
        return status;
    }
    const router_verdict verdict = weir__router_judge(&row, item->fence, lease_us, now->machine_us);
    item->fence = 0;
    item->until_us = 0;
    if (verdict == ROUTER_ENDS) {
        return weir__sqlite_run_ints(conn, sql_router_give_back, &item->reaction, 1, err);
    }
    if (verdict == ROUTER_STAYS) {
        return WEIR_OK;
    }
    item->fence = row.router_fence + (verdict == ROUTER_BEGINS);
    item->until_us = weir__time_later(now->store_us, lease_us);
    sqlite_cursor cursor = weir__cursor_open(conn, sql_router_take, err);
    weir__cursor_bind_i64(&cursor, 1, item->reaction);
    weir__cursor_bind_text(&cursor, 2, holder);
    weir__cursor_bind_i64(&cursor, 3, weir__time_later(now->machine_us, lease_us));
    weir__cursor_bind_i64(&cursor, 4, item->fence);
    return weir__cursor_run(&cursor);
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
