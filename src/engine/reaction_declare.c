/* reaction_declare.c - telling the store about reactions, and asking it again.
 *
 * INVARIANTS
 *   (1) A reaction is served under the number that its own definition has, and only while that is
 *       the current one and the reaction is not retired.
 *   (2) The number alone does not tell whose definition is current: after a failover or a restore
 *       that lost our declaration, it is given to somebody else's. The definitions are compared.
 *   (3) Nothing is declared while `from` is missing for a reaction that the store does not know and
 *       that the log holds events for. A reaction without `from` begins where that was found out:
 *       what is appended meanwhile is handled.
 */
#include "engine/reaction.h"

#include "base/error.h"
#include "base/str.h"

#include <stdlib.h>

static void reaction_serve(reaction *q)
{
    const bool current = q->known.number == q->known.current && !q->known.retired;
    /* Not relaxed: see weir__registry_unserve. */
    atomic_store(&q->serving, current ? q->known.number : 0);
}

void weir__registry_unserve(registry *r)
{
    for (size_t i = 0; i < r->reactions_count; i++) {
        atomic_store(&r->reactions[i].serving, 0);
    }
}

static const store_reaction *list_find(const store_reaction_list *list, weir_str name)
{
    size_t low = 0;
    size_t high = list->reactions_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = weir__str_compare(list->reactions[middle].name, name);
        if (order == 0) {
            return &list->reactions[middle];
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NULL;
}

/* ---- where to begin ------------------------------------------------------------------------ */

/* Counts the events in the log that the reaction would handle; stops when there are more than
 * REACTION_FROM_COUNT_MAX. *looked_to: everything up to here was looked at. */
static weir_status log_count(const reaction *q, weir_store *store, int64_t *count,
                             int64_t *looked_to, weir_error *err)
{
    const store_filter filter = { .has_names = !q->all_names,
                                  .names = q->names,
                                  .names_count = q->names_count,
                                  .stream = q->source,
                                  .since_us = INT64_MIN,
                                  .until_us = INT64_MAX };
    store_log_query query = { .to = INT64_MAX, .limit = STORE_CHUNK_EVENTS_MAX, .filter = &filter };
    store_chunk chunk = { 0 };
    weir_status status = WEIR_OK;

    *count = 0;
    do {
        status = store->log->read_log(store, &query, &chunk, err);
        for (size_t i = 0; status == WEIR_OK && i < chunk.events_count; i++) {
            *count += weir__reaction_listens(q, chunk.events[i].name, chunk.events[i].stream);
        }
        query.after = status == WEIR_OK ? chunk.scanned_to : query.after;
    } while (status == WEIR_OK && chunk.more && *count <= REACTION_FROM_COUNT_MAX);
    *looked_to = query.after;
    weir__chunk_free(&chunk);
    return status;
}

/* Fixes where a reaction begins that does not say so. EINVAL: it has to. */
static weir_status start_find(reaction *q, weir_store *store, weir_error *err)
{
    int64_t count = 0;
    int64_t looked_to = 0;
    const weir_status status = log_count(q, store, &count, &looked_to, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "could not count the events of reaction \"%.*s\"",
                          (int)q->name.len, q->name.ptr);
    }
    if (count > 0) {
        const bool many = count > REACTION_FROM_COUNT_MAX;
        return weir__fail(err, WEIR_EINVAL,
                          "reaction \"%.*s\" does not say where it begins, and the log holds "
                          "%s%lld event%s for it: write from: start, from: now or a position",
                          (int)q->name.len, q->name.ptr, many ? "more than " : "",
                          (long long)(many ? REACTION_FROM_COUNT_MAX : count),
                          count == 1 ? "" : "s");
    }
    q->start = STORE_START_POSITION;
    q->start_position = looked_to;
    return WEIR_OK;
}

/* Every reaction that needs a `from` is told about, not only the first. */
static weir_status starts_find(registry *r, weir_store *store, weir_error *err)
{
    store_reaction_list list = { 0 };
    weir_status status = WEIR_OK;
    size_t missing = 0;
    bool listed = false;
    weir_error why;

    for (size_t i = 0; i < r->reactions_count && status == WEIR_OK; i++) {
        if (r->reactions[i].start != -1) {
            continue;
        }
        if (!listed) {
            status = store->work->reactions(store, &list, err);
            listed = true;
        }
        if (status != WEIR_OK || list_find(&list, r->reactions[i].name) != NULL) {
            continue;
        }
        status = start_find(&r->reactions[i], store, &why);
        if (status == WEIR_EINVAL) {
            status = weir__registry_problem(r, why.message) ? WEIR_OK : WEIR_ENOMEM;
            missing++;
        } else if (status != WEIR_OK && err != NULL) {
            *err = why;
        }
    }
    weir__arena_free(&list.arena);
    if (status == WEIR_ENOMEM && missing > 0) {
        return weir__fail(err, status, "could not collect what is wrong");
    }
    return status != WEIR_OK || missing == 0 ? status : weir__registry_report(r, err);
}

/* ---- declaring ----------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    const reaction *x = a;
    const reaction *y = b;
    return (x->known.id > y->known.id) - (x->known.id < y->known.id);
}

/* start_max: a position beyond this is this one. *known: as the store has it then; its texts are in
 * the registry's arena. */
static weir_status reaction_declare(registry *r, const reaction *q, weir_store *store,
                                    bool redeclare, int64_t start_max, store_reaction *known,
                                    weir_error *err)
{
    const store_reaction_declaration declaration = {
        .name = q->name,
        .names = q->names,
        .names_count = q->names_count,
        .all_names = q->all_names,
        .source = q->source->text,
        .rule = q->rule,
        .rule_text = q->rule_text,
        .start = q->start == -1 ? STORE_START_BEGINNING : q->start,
        .start_position = q->start_position < start_max ? q->start_position : start_max,
        .redeclare = redeclare,
        .attempts = q->poison == POISON_RETRY ? 0 : (int64_t)q->retries + 1,
    };
    const weir_status status = store->work->declare(store, &declaration, &r->arena, known, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "could not declare reaction \"%.*s\"", (int)q->name.len,
                          q->name.ptr);
    }
    return WEIR_OK;
}

weir_status weir__registry_declare(registry *r, weir_store *store, bool redeclare, weir_error *err)
{
    weir_status status = weir__registry_check(r, err);
    if (status == WEIR_OK) {
        status = starts_find(r, store, err);
    }
    for (size_t i = 0; i < r->reactions_count && status == WEIR_OK; i++) {
        reaction *q = &r->reactions[i];
        status = reaction_declare(r, q, store, redeclare, INT64_MAX, &q->known, err);
        if (status == WEIR_OK) {
            reaction_serve(q);
        }
    }
    if (status == WEIR_OK && r->reactions_count > 0) {
        qsort(r->reactions, r->reactions_count, sizeof *r->reactions, compare_ids);
    }
    return status;
}

/* ---- asking again -------------------------------------------------------------------------- */

static bool definition_is(const store_reaction *known, const reaction *q)
{
    if (known->all_names != q->all_names || known->rule != q->rule ||
        known->names_count != q->names_count || !weir__str_equal(known->source, q->source->text) ||
        !weir__str_equal(known->rule_text, q->rule_text)) {
        return false;
    }
    for (size_t i = 0; i < q->names_count; i++) {
        if (!weir__str_equal(known->names[i], q->names[i])) {
            return false;
        }
    }
    return true;
}

/* Whether our declaration was lost with a part of the log, and nobody has made another one since:
 * numbers only grow in one log. now: NULL when the store does not know the reaction. */
static bool declaration_is_lost(const reaction *q, const store_reaction *now)
{
    return now == NULL ||
           (now->id == q->known.id && now->current < q->known.number && !definition_is(now, q));
}

static void reaction_refresh(reaction *q, const store_reaction *now)
{
    if (now->id != q->known.id) {
        q->known.retired = true; /* another store was put in its place */
    } else {
        q->known.current = now->current;
        q->known.routed = now->routed;
        q->known.reread_to = now->reread_to;
        q->known.retired = now->retired;
        if (definition_is(now, q)) {
            q->known.number = now->current; /* it may be current again, under a new number */
        } else if (q->known.number == now->current) {
            q->known.number = 0; /* ours was lost, and another one has its number */
        }
    }
    reaction_serve(q);
}

/* As at the start; but the log may end before its position now. Then it begins at that end, and has
 * all that is appended from here on. Others read its id, so it keeps that while the worker runs:
 * under another id it cannot be served until the worker is started again. */
static weir_status reaction_declare_again(registry *r, reaction *q, weir_store *store,
                                          weir_error *err)
{
    store_positions positions = { 0 };
    store_reaction now = { 0 };
    weir_status status = store->log->positions(store, &positions, err);

    if (status == WEIR_OK) {
        status = reaction_declare(r, q, store, false, positions.safe, &now, err);
    }
    if (status == WEIR_OK) {
        q->known.number = now.number;
        reaction_refresh(q, &now);
    }
    return status;
}

weir_status weir__registry_refresh(registry *r, weir_store *store, weir_error *err)
{
    store_reaction_list list = { 0 };
    weir_status status = store->work->reactions(store, &list, err);
    for (size_t i = 0; status == WEIR_OK && i < r->reactions_count; i++) {
        reaction *q = &r->reactions[i];
        const store_reaction *now = list_find(&list, q->name);
        if (declaration_is_lost(q, now)) {
            status = reaction_declare_again(r, q, store, err);
        } else {
            reaction_refresh(q, now);
        }
    }
    weir__arena_free(&list.arena);
    return status;
}
