/* claim_sql.c - the statements of a claim.
 *
 * Which rows is the same in every statement, and written once: WITH ... weir_taken AS (...), the
 * choice. Names that begin with weir_ are ours; columns and tables of the user's are never renamed,
 * so that --where and --set-sql mean in all of them what they say.
 *
 * What must stay true
 *   (1) LIMIT stands above the lock: who is left out because it is locked, or no longer fits once
 *       it is, does not count.
 *   (2) A CTE with a lock in it is MATERIALIZED, and read once: no plan locks a row that it does
 *       not take.
 *   (3) The arm of ready rows is limited twice. The constant is for the planner, which would
 *       otherwise take the limit for a tenth of the table; the other one counts what expired claims
 *       have left, so that nothing is locked that is not claimed.
 *   (4) One reading of the clock for the whole statement.
 */
#include "claim/claim_private.h"

#include <inttypes.h>

#define NOW "weir_now"

enum { ARM_EXPIRED = 0, ARM_READY = 1 };

static const table_column *key_column(const table_info *table, size_t i)
{
    return &table->columns[table->key[i]];
}

void weir__claim_add_key(claim_text *t, const table_info *table)
{
    for (size_t i = 0; i < table->key_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : ", ");
        weir__claim_add_str(t, key_column(table, i)->quoted);
    }
}

void weir__claim_add_columns(claim_text *t, const table_info *table)
{
    for (size_t i = 0; i < table->columns_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : ", ");
        weir__claim_add_str(t, table->columns[i].quoted);
    }
}

/* Ours, of a kind: weir_key_1, weir_key_2, ... */
static void add_ours(claim_text *t, const char *from, const char *kind, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weir__claim_add(t, "%s%s%s_%zu", i == 0 ? "" : ", ", from, kind, i + 1);
    }
}

void weir__claim_add_order(claim_text *t, const claim_spec *c, bool ours)
{
    for (size_t i = 0; i < c->order_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : ", ");
        if (ours) {
            weir__claim_add(t, "weir_order_%zu", i + 1);
        } else {
            weir__claim_add_str(t, c->order[i].column->quoted);
        }
        weir__claim_add(t, "%s", c->order[i].descending ? " DESC" : "");
    }
}

/* ---- conditions ----------------------------------------------------------------------------- */

void weir__claim_add_where(claim_text *t, const claim_spec *c, weir_str where)
{
    if (where.len == 0) {
        weir__claim_add(t, "%s", c->sql->always);
        return;
    }
    weir__claim_add(t, "(");
    weir__claim_add_sql(t, where, c->request->writes.params, c->request->writes.params_count);
    weir__claim_add(t, "\n)"); /* after a comment to the end of the line */
}

/* As literals, even where values are parameters: a statement that comes again is planned for any
 * values, and that plan could not use an index of such rows alone (WHERE status = 'claimed'). */
void weir__claim_add_held(claim_text *t, const claim_spec *c)
{
    const bool literals = t->literals;
    t->literals = true;
    for (size_t i = 0; i < c->request->writes.set_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : " AND ");
        weir__claim_add_equal(t, c->set[i], &c->request->writes.set[i].value);
    }
    t->literals = literals;
}

static void add_lease_past(claim_text *t, const claim_spec *c, const char *now)
{
    weir__claim_add_str(t, c->lease->quoted);
    weir__claim_add(t, " <= ");
    weir__claim_add_time(t, c->lease_clock, now, 0);
}

/* An expired claim, whatever else it must fulfil. */
void weir__claim_add_ended(claim_text *t, const claim_spec *c, const char *now)
{
    if (c->request->writes.set_count > 0) {
        weir__claim_add_held(t, c);
    } else {
        weir__claim_add_where(t, c, c->request->where);
    }
    /* Statistics know how many rows were claimed when they were made, often none or all; an index
     * of claims by their leases is right whatever they say. */
    weir__claim_add(t, " AND %s", c->sql->seldom.before);
    add_lease_past(t, c, now);
    weir__claim_add(t, "%s", c->sql->seldom.after);
}

static void add_condition(claim_text *t, const claim_spec *c, int arm, const char *now)
{
    if (arm == ARM_EXPIRED) {
        weir__claim_add_ended(t, c, now);
        if (c->request->expired_where.len > 0) {
            weir__claim_add(t, " AND ");
            weir__claim_add_where(t, c, c->request->expired_where);
        }
        return;
    }
    weir__claim_add_where(t, c, c->request->where);
    if (c->lease == NULL) {
        return;
    }
    weir__claim_add(t, " AND ");
    if (c->request->writes.set_count == 0) { /* what has a lease that is past is an expired claim */
        weir__claim_add_str(t, c->lease->quoted);
        weir__claim_add(t, " IS NULL");
        return;
    }
    weir__claim_add(t, "(");
    weir__claim_add_str(t, c->lease->quoted);
    weir__claim_add(t, " IS NULL OR ");
    add_lease_past(t, c, now);
    weir__claim_add(t, " AND (");
    weir__claim_add_held(t, c);
    weir__claim_add(t, ") %s)", c->sql->untrue);
}

void weir__claim_add_free(claim_text *t, const claim_spec *c, const char *now)
{
    weir__claim_add(t, "(");
    if (c->lease != NULL) {
        add_condition(t, c, ARM_EXPIRED, now);
        weir__claim_add(t, " OR ");
    }
    add_condition(t, c, ARM_READY, now);
    weir__claim_add(t, ")");
}

/* ("id") IN (...) */
static void add_key_in(claim_text *t, const claim_spec *c, const char *in, const table_value *keys,
                       size_t count)
{
    const size_t columns = c->table->key_count;
    weir__claim_add(t, "(");
    weir__claim_add_key(t, c->table);
    weir__claim_add(t, ") %s (%s", in, columns == 1 ? "" : "VALUES ");
    for (size_t i = 0; i < count; i++) {
        weir__claim_add(t, "%s%s", i == 0 ? "" : ", ", columns == 1 ? "" : "(");
        for (size_t j = 0; j < columns; j++) {
            weir__claim_add(t, "%s", j == 0 ? "" : ", ");
            weir__claim_add_value(t, &keys[i * columns + j], key_column(c->table, j));
        }
        weir__claim_add(t, "%s", columns == 1 ? "" : ")");
    }
    weir__claim_add(t, ")");
}

static void add_exclude(claim_text *t, const claim_spec *c, const table_value *keys, size_t count)
{
    if (count > 0) {
        weir__claim_add(t, "\n   AND ");
        add_key_in(t, c, "NOT IN", keys, count);
    }
}

/* Its value has room for one more. */
static void add_not_full(claim_text *t, const claim_spec *c)
{
    weir__claim_add(t, "\n   AND (");
    weir__claim_add_str(t, c->per->quoted);
    weir__claim_add(t,
                    " IS NULL AND NOT EXISTS (SELECT 1 FROM weir_held WHERE weir_value IS NULL "
                    "AND weir_count >= %" PRId64 ")\n     OR ",
                    c->request->max_per);
    weir__claim_add_str(t, c->per->quoted);
    weir__claim_add(t, " IS NOT NULL AND ");
    weir__claim_add_str(t, c->per->quoted);
    weir__claim_add(t,
                    " NOT IN (SELECT weir_value FROM weir_held WHERE weir_value IS NOT NULL AND "
                    "weir_count >= %" PRId64 "))",
                    c->request->max_per);
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* The claim gives the key another value. */
static bool key_written(const claim_spec *c)
{
    bool written = false;
    for (size_t i = 0; i < c->request->writes.set_count; i++) {
        written = written || c->set[i]->key > 0;
    }
    for (size_t i = 0; i < c->request->writes.set_sql_count; i++) {
        written = written || c->set_sql[i]->key > 0;
    }
    return written;
}

/* As much as the UPDATE will need, and no more: who writes a row that refers to this one does not
 * hold it, and is not held up while it is held. */
void weir__claim_add_lock(claim_text *t, const claim_spec *c, claim_lock lock)
{
    if (lock == CLAIM_LOCK_NONE) {
        return;
    }
    weir__claim_add(t, " FOR %sUPDATE%s", key_written(c) ? "" : "NO KEY ",
                    lock == CLAIM_LOCK_SKIP     ? " SKIP LOCKED"
                    : lock == CLAIM_LOCK_NOWAIT ? " NOWAIT"
                                                : "");
}

/* Rows of one kind. all: without order and limit. */
static void add_arm(claim_text *t, const claim_spec *c, const claim_choice *choice, int arm,
                    bool all)
{
    weir__claim_add(t, "\n  SELECT ");
    if (choice->rows) {
        weir__claim_add_columns(t, c->table);
        weir__claim_add(t, ", ");
    }
    for (size_t i = 0; i < c->table->key_count; i++) {
        weir__claim_add_str(t, key_column(c->table, i)->quoted);
        weir__claim_add(t, " AS weir_key_%zu, ", i + 1);
    }
    for (size_t i = 0; i < c->order_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : ", ");
        weir__claim_add_str(t, c->order[i].column->quoted);
        weir__claim_add(t, " AS weir_order_%zu", i + 1);
    }
    if (c->per != NULL) {
        weir__claim_add(t, ", ");
        weir__claim_add_str(t, c->per->quoted);
        weir__claim_add(t, " AS weir_per, %d AS weir_arm", arm);
    }
    weir__claim_add(t, "\n  FROM ");
    weir__claim_add_str(t, c->table->quoted);
    weir__claim_add(t, "\n  WHERE ");
    add_condition(t, c, arm, NOW);
    if (c->per != NULL) {
        add_not_full(t, c);
    }
    add_exclude(t, c, c->request->exclude, c->request->exclude_count);
    add_exclude(t, c, c->taken, c->taken_count);
    add_exclude(t, c, choice->exclude, choice->exclude_count);
    if (!all) {
        weir__claim_add(t, "\n  ORDER BY ");
        weir__claim_add_order(t, c, false);
        weir__claim_add(t, "\n  LIMIT %" PRId64, choice->limit);
        weir__claim_add_lock(t, c, choice->lock);
    }
}

static void add_held_counts(claim_text *t, const claim_spec *c)
{
    weir__claim_add(t, "weir_held AS MATERIALIZED (\n  SELECT ");
    weir__claim_add_str(t, c->per->quoted);
    weir__claim_add(t, " AS weir_value, count(*) AS weir_count\n  FROM ");
    weir__claim_add_str(t, c->table->quoted);
    weir__claim_add(t, "\n  WHERE ");
    weir__claim_add_held(t, c);
    if (c->lease != NULL) {
        weir__claim_add(t, "%s", c->request->writes.set_count > 0 ? " AND (" : "");
        if (c->request->writes.set_count > 0) {
            weir__claim_add_str(t, c->lease->quoted);
            weir__claim_add(t, " IS NULL OR ");
        }
        weir__claim_add_str(t, c->lease->quoted);
        weir__claim_add(t, " > ");
        weir__claim_add_time(t, c->lease_clock, NOW, 0);
        weir__claim_add(t, "%s", c->request->writes.set_count > 0 ? ")" : "");
    }
    weir__claim_add(t, "\n  GROUP BY ");
    weir__claim_add_str(t, c->per->quoted);
    weir__claim_add(t, "), ");
}

/* Of each value so many as there is room for. */
static void add_ranked(claim_text *t, const claim_spec *c, const char *from, int64_t limit)
{
    weir__claim_add(t,
                    "weir_taken AS MATERIALIZED (\n"
                    "  SELECT * FROM (SELECT %s.*, row_number() OVER (PARTITION BY weir_per ORDER "
                    "BY weir_arm, ",
                    from);
    weir__claim_add_order(t, c, true);
    weir__claim_add(t,
                    ") AS weir_rank FROM %s) AS weir_ranked\n"
                    "  WHERE weir_rank <= %" PRId64 " - coalesce((SELECT weir_count FROM weir_held "
                    "WHERE weir_value %s weir_per), 0)\n  ORDER BY weir_arm, ",
                    from, c->request->max_per, c->sql->same);
    weir__claim_add_order(t, c, true);
    weir__claim_add(t, "\n  LIMIT %" PRId64 ")", limit);
}

static void add_arms(claim_text *t, const claim_spec *c, const claim_choice *choice,
                     const char *name)
{
    if (c->lease == NULL) {
        weir__claim_add(t, "%s AS MATERIALIZED (", name);
        add_arm(t, c, choice, ARM_READY, false);
        weir__claim_add(t, ")");
        return;
    }
    weir__claim_add(t, "weir_expired AS MATERIALIZED (");
    add_arm(t, c, choice, ARM_EXPIRED, false);
    weir__claim_add(t, "),\nweir_ready AS MATERIALIZED (\n  SELECT * FROM (");
    add_arm(t, c, choice, ARM_READY, false);
    weir__claim_add(t,
                    ") AS weir_next\n  LIMIT (SELECT %" PRId64 " - count(*) FROM weir_expired)),\n"
                    "%s AS MATERIALIZED (\n"
                    "  SELECT * FROM (SELECT * FROM weir_expired UNION ALL SELECT * FROM "
                    "weir_ready) AS weir_both\n  LIMIT %" PRId64 ")",
                    choice->limit, name, choice->limit);
}

static void add_now(claim_text *t, const claim_spec *c)
{
    weir__claim_add(t, "weir_now AS MATERIALIZED (%s)", c->sql->moment);
}

void weir__claim_add_choice(claim_text *t, const claim_spec *c, const claim_choice *choice)
{
    weir__claim_add(t, "WITH ");
    if (c->lease != NULL || c->at != NULL) {
        add_now(t, c);
        weir__claim_add(t, ",\n");
    }
    if (c->per == NULL) {
        add_arms(t, c, choice, "weir_taken");
        return;
    }
    add_held_counts(t, c);
    if (choice->lock != CLAIM_LOCK_NONE) {
        add_arms(t, c, choice, "weir_free");
    } else { /* nothing is locked: all of them can be looked at */
        weir__claim_add(t, "weir_free AS MATERIALIZED (");
        if (c->lease != NULL) {
            add_arm(t, c, choice, ARM_EXPIRED, true);
            weir__claim_add(t, "\n  UNION ALL");
        }
        add_arm(t, c, choice, ARM_READY, true);
        weir__claim_add(t, ")");
    }
    weir__claim_add(t, ",\n");
    add_ranked(t, c, "weir_free", choice->limit);
}

static void add_chosen_from(claim_text *t, const claim_spec *c, const char *from, bool rows)
{
    weir__claim_add(t, "\nSELECT ");
    if (rows) {
        weir__claim_add_columns(t, c->table);
    } else {
        add_ours(t, "", "weir_key", c->table->key_count);
        for (size_t i = 0; i < c->order_count; i++) {
            if (c->order[i].written) {
                weir__claim_add(t, ", weir_order_%zu", i + 1);
            }
        }
    }
    weir__claim_add(t, " FROM %s ORDER BY ", from);
    weir__claim_add_order(t, c, true);
}

void weir__claim_add_chosen(claim_text *t, const claim_spec *c, bool rows)
{
    add_chosen_from(t, c, "weir_taken", rows);
}

size_t weir__claim_chosen_columns(const claim_spec *c)
{
    size_t columns = c->table->key_count;
    for (size_t i = 0; i < c->order_count; i++) {
        columns += c->order[i].written ? 1 : 0;
    }
    return columns;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void add_column_is(claim_text *t, const table_column *column, bool *first)
{
    weir__claim_add(t, "%s", *first ? "\n  SET " : ",\n      ");
    weir__claim_add_str(t, column->quoted);
    weir__claim_add(t, " = ");
    *first = false;
}

static void add_counted(claim_text *t, const table_column *column, bool *first)
{
    if (column != NULL) {
        add_column_is(t, column, first);
        weir__claim_add(t, "coalesce(");
        weir__claim_add_str(t, column->quoted);
        weir__claim_add(t, ", 0) + 1");
    }
}

void weir__claim_add_update(claim_text *t, const claim_spec *c, const char *now)
{
    const claim_request *r = c->request;
    bool first = true;
    weir__claim_add(t, "UPDATE ");
    weir__claim_add_str(t, c->table->quoted);
    for (size_t i = 0; i < r->writes.set_count; i++) {
        add_column_is(t, c->set[i], &first);
        weir__claim_add_value(t, &r->writes.set[i].value, c->set[i]);
    }
    for (size_t i = 0; i < r->writes.set_sql_count; i++) {
        add_column_is(t, c->set_sql[i], &first);
        weir__claim_add(t, "(");
        weir__claim_add_sql(t, r->writes.set_sql[i].sql, r->writes.params, r->writes.params_count);
        weir__claim_add(t, "\n)");
    }
    if (c->by != NULL) {
        add_column_is(t, c->by, &first);
        weir__claim_add_value(t, &(table_value){ .kind = TABLE_TEXT, .text = r->by }, c->by);
    }
    if (c->at != NULL) {
        add_column_is(t, c->at, &first);
        weir__claim_add_time(t, c->at_clock, now, 0);
    }
    if (c->lease != NULL) {
        add_column_is(t, c->lease, &first);
        weir__claim_add_time(t, c->lease_clock, now, r->lease_us);
    }
    add_counted(t, c->fence, &first);
    add_counted(t, c->attempts, &first);
}

void weir__claim_add_fast(claim_text *t, const claim_spec *c, claim_lock lock, int64_t limit,
                          bool rows)
{
    weir__claim_add_choice(t, c, &(claim_choice){ .lock = lock, .limit = limit });
    weir__claim_add(t, ",\nweir_claimed AS (\n  ");
    weir__claim_add_update(t, c, NOW);
    weir__claim_add(t, "\n  FROM weir_taken\n  WHERE ");
    for (size_t i = 0; i < c->table->key_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : " AND ");
        weir__claim_add_str(t, key_column(c->table, i)->quoted);
        weir__claim_add(t, " = weir_taken.weir_key_%zu", i + 1);
    }
    weir__claim_add(t, "\n  RETURNING ");
    if (rows) {
        weir__claim_add_columns(t, c->table);
        weir__claim_add(t, ", ");
    }
    add_ours(t, "weir_taken.", "weir_key", c->table->key_count);
    weir__claim_add(t, ", ");
    add_ours(t, "weir_taken.", "weir_order", c->order_count);
    weir__claim_add(t, ")");
    add_chosen_from(t, c, "weir_claimed", rows);
}

void weir__claim_add_fast_update(claim_text *t, const claim_spec *c)
{
    weir__claim_add_choice(t, c, &(claim_choice){ .limit = c->limit });
    weir__claim_add(t, "\n");
    weir__claim_add_update(t, c, NOW);
    weir__claim_add(t, "\n  WHERE (");
    weir__claim_add_key(t, c->table);
    weir__claim_add(t, ") IN (SELECT ");
    add_ours(t, "", "weir_key", c->table->key_count);
    weir__claim_add(t, " FROM weir_taken)\n  RETURNING ");
    weir__claim_add_columns(t, c->table);
}

static void add_timed_update(claim_text *t, const claim_spec *c)
{
    if (c->lease != NULL || c->at != NULL) {
        weir__claim_add(t, "WITH ");
        add_now(t, c);
        weir__claim_add(t, "\n");
    }
    weir__claim_add_update(t, c, NOW);
}

void weir__claim_add_update_of(claim_text *t, const claim_spec *c, const table_value *keys,
                               size_t rows_count)
{
    add_timed_update(t, c);
    weir__claim_add(t, "\n  WHERE ");
    add_key_in(t, c, "IN", keys, rows_count);
    weir__claim_add(t, "\n  RETURNING ");
    weir__claim_add_columns(t, c->table);
}

void weir__claim_add_guarded(claim_text *t, const claim_spec *c, const table_value *key)
{
    add_timed_update(t, c);
    weir__claim_add(t, "\n  WHERE ");
    weir__claim_add_key_is(t, c->table, key);
    weir__claim_add(t, " AND ");
    weir__claim_add_free(t, c, NOW);
}

void weir__claim_add_key_is(claim_text *t, const table_info *table, const table_value *key)
{
    for (size_t i = 0; i < table->key_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : " AND ");
        weir__claim_add_str(t, key_column(table, i)->quoted);
        weir__claim_add(t, " = ");
        if (key == NULL) { /* of the row that was found */
            weir__claim_add(t, ":weir_key_%zu", i + 1);
        } else {
            weir__claim_add_value(t, &key[i], key_column(table, i));
        }
    }
}

void weir__claim_add_reread(claim_text *t, const claim_spec *c, const table_value *chosen,
                            size_t rows_count)
{
    const size_t columns = weir__claim_chosen_columns(c);
    const table_column *types[CLAIM_KEY_MAX + CLAIM_ORDER_MAX] = { 0 };
    size_t n = 0;
    weir__claim_add(t, "WITH weir_wanted (");
    add_ours(t, "", "weir_key", c->table->key_count);
    for (; n < c->table->key_count; n++) {
        types[n] = key_column(c->table, n);
    }
    for (size_t i = 0; i < c->order_count; i++) {
        if (c->order[i].written) {
            types[n++] = c->order[i].column;
            weir__claim_add(t, ", weir_order_%zu", i + 1);
        }
    }
    weir__claim_add(t, ") AS MATERIALIZED (VALUES ");
    for (size_t i = 0; i < rows_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "(" : ", (");
        for (size_t j = 0; j < columns; j++) {
            weir__claim_add(t, "%s", j == 0 ? "" : ", ");
            weir__claim_add_value(t, &chosen[i * columns + j], types[j]);
        }
        weir__claim_add(t, ")");
    }
    weir__claim_add(t, ")\nSELECT ");
    weir__claim_add_columns(t, c->table);
    weir__claim_add(t, " FROM ");
    weir__claim_add_str(t, c->table->quoted);
    weir__claim_add(t, " JOIN weir_wanted ON ");
    for (size_t i = 0; i < c->table->key_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : " AND ");
        weir__claim_add_str(t, key_column(c->table, i)->quoted);
        weir__claim_add(t, " = weir_key_%zu", i + 1);
    }
    weir__claim_add(t, " ORDER BY ");
    for (size_t i = 0; i < c->order_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : ", ");
        if (c->order[i].written) {
            weir__claim_add(t, "weir_order_%zu", i + 1);
        } else {
            weir__claim_add_str(t, c->order[i].column->quoted);
        }
        weir__claim_add(t, "%s", c->order[i].descending ? " DESC" : "");
    }
}
