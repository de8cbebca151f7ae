/* reactions.c - reactions as the store knows them: definitions, positions, routers' leases. */
#include "base/error.h"
#include "base/str.h"
#include "store/judge.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

#include <stdlib.h>

const store_reaction *weir__memory_reaction(const memory_core *c, int64_t id)
{
    return id >= 1 && id <= (int64_t)c->reactions.count ? c->reactions.rows[id - 1] : NULL;
}

const store_reaction *weir__memory_reaction_named(const memory_core *c, weir_str name)
{
    for (size_t i = 0; i < c->reactions.count; i++) {
        const store_reaction *r = c->reactions.rows[i];
        if (weir__str_equal(r->name, name)) {
            return r;
        }
    }
    return NULL;
}

static const memory_definition *definition_find(const memory_core *c, int64_t reaction,
                                                int64_t number)
{
    const memory_definition key = { .reaction = reaction, .number = number };
    return weir__rows_find(&c->definitions, &key);
}

const memory_definition *weir__memory_definition(const memory_core *c, int64_t reaction)
{
    return definition_find(c, reaction, weir__memory_reaction(c, reaction)->current);
}

bool weir__memory_listens(const memory_definition *d, const weir_event *e)
{
    bool named = d->all_names && e->name.ptr[0] != '$';
    const char *end = d->names.ptr + d->names.len;
    for (const char *at = d->names.ptr; at < end && !named; at += strlen(at) + 1) {
        named = weir__str_equal(weir__str(at), e->name);
    }
    return named && weir__pattern_matches(d->pattern, e->stream);
}

/* ---- declaring ---------------------------------------------------------------------------- */

/* What is declared, under no number yet; its names in `joined`, its pattern owned by the caller. */
static weir_status definition_open(memory_definition *out, const store_reaction_declaration *d,
                                   weir_buffer *joined, weir_error *err)
{
    const size_t count = d->all_names ? 0 : d->names_count;
    weir_str *names = weir__calloc(count + 1, sizeof *names);
    bool ok = names != NULL;

    for (size_t i = 0; i < count && ok; i++) {
        names[i] = d->names[i];
    }
    const size_t distinct = ok ? weir__names_sort(names, count) : 0;
    for (size_t i = 0; i < distinct && ok; i++) {
        ok =
            weir__buffer_add(joined, names[i].ptr, names[i].len) && weir__buffer_add(joined, "", 1);
    }
    weir__free(names);
    *out = (memory_definition){
        .rule = d->rule,
        .all_names = d->all_names,
        .source = d->source,
        .rule_text = d->rule_text,
        .names = { .ptr = joined->ptr, .len = joined->len },
        .names_count = distinct,
    };
    return ok ? weir__pattern_open(&out->pattern, d->source, err) : weir__memory_full(err);
}

static bool definition_equal(const memory_definition *a, const memory_definition *b)
{
    return a->rule == b->rule && a->all_names == b->all_names &&
           weir__str_equal(a->names, b->names) && weir__str_equal(a->source, b->source) &&
           weir__str_equal(a->rule_text, b->rule_text);
}

/* The latest number under which a definition of a reaction is known; 0: it is not. */
static int64_t definition_number(const memory_core *c, const store_reaction *r,
                                 const memory_definition *definition)
{
    int64_t number = r->current;
    while (number > 0 && !definition_equal(definition_find(c, r->id, number), definition)) {
        number--;
    }
    return number;
}

/* Derives the targets of a reaction again, once it has been retired or brought back. */
static void targets_derive(memory_core *c, int64_t reaction)
{
    for (size_t i = 0; i < c->subscriptions.count; i++) {
        const memory_subscription *s = c->subscriptions.rows[i];
        if (s->reaction == reaction) {
            store_target t = *weir__memory_target(c, s->target);
            weir__memory_target_put(c, &t);
        }
    }
}

/* A copy of a reaction with its current definition, in the arena. */
static void reaction_fill(memory_core *c, const store_reaction *r, int64_t number,
                          weir_arena *arena, store_reaction *out)
{
    const memory_definition *row = weir__memory_definition(c, r->id);
    weir_str *names = weir__memory_array(c, arena, row->names_count + 1, sizeof *names);
    memory_definition d;

    weir__memory_copy(c, &c->reactions, r, arena, out);
    weir__memory_copy(c, &c->definitions, row, arena, &d);
    const char *at = d.names.ptr;
    for (size_t i = 0; i < d.names_count && names != NULL; i++) {
        names[i] = weir__str(at);
        at += names[i].len + 1;
    }
    out->number = number;
    out->rule = d.rule;
    out->source = d.source;
    out->rule_text = d.rule_text;
    out->names = names;
    out->names_count = d.names_count;
    out->all_names = d.all_names;
}

/* Makes a definition current under the next number. Its pattern is moved. */
static void definition_put(memory_core *c, store_reaction *r, memory_definition *d)
{
    d->reaction = r->id;
    d->number = ++r->current;
    weir__memory_put(c, &c->definitions, d);
    d->pattern = c->full ? d->pattern : NULL;
}

/* since: where it begins if it is new. */
static void declare_locked(memory_core *c, const store_reaction_declaration *declared,
                           int64_t since, memory_definition *d, weir_arena *arena,
                           store_reaction *out)
{
    const store_reaction *old = weir__memory_reaction_named(c, declared->name);
    store_reaction r = { .id = (int64_t)c->reactions.count + 1, .name = declared->name };

    if (old != NULL) {
        r = *old;
    } else {
        r.since = r.routed = since;
    }
    const int64_t number = weir__declared_number(declared, &r, definition_number(c, &r, d));
    const bool revived = r.retired;
    if (number > r.current) {
        definition_put(c, &r, d);
    }
    r.retired = false;
    if (number == r.current) {
        r.attempts = declared->attempts;
    }
    const bool changed =
        old == NULL || revived || r.current != old->current || r.attempts != old->attempts;
    if (changed) {
        weir__memory_put(c, &c->reactions, &r);
    }
    if (revived) {
        targets_derive(c, r.id);
    }
    if (!c->full) {
        reaction_fill(c, &r, number, arena, out);
    }
}

weir_status weir__memory_declare(weir_store *base, const store_reaction_declaration *declared,
                                 weir_arena *arena, store_reaction *out, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    memory_definition d = { 0 };
    store_reaction answer;
    weir_buffer names = { 0 };
    int64_t since = 0;
    weir_status status = WEIR_OK;

    if (weir__memory_reaction_named(c, declared->name) == NULL) {
        status = weir__declared_start(declared, weir__memory_head(c), &since, err);
    }
    if (status == WEIR_OK) {
        status = definition_open(&d, declared, &names, err);
    }
    if (status == WEIR_OK) {
        declare_locked(c, declared, since, &d, arena, &answer);
    }
    weir__pattern_close(d.pattern);
    weir__buffer_free(&names);
    status = weir__memory_end(base, status, c->changes.count > 0, err);
    if (status == WEIR_OK) {
        *out = answer;
    }
    return status;
}

static int compare_reactions(const void *a, const void *b)
{
    return weir__str_compare(((const store_reaction *)a)->name, ((const store_reaction *)b)->name);
}

weir_status weir__memory_reactions(weir_store *base, store_reaction_list *list, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    weir__arena_reset(&list->arena);
    list->reactions_count = 0;
    list->reactions =
        weir__memory_array(c, &list->arena, c->reactions.count + 1, sizeof *list->reactions);
    for (size_t i = 0; i < c->reactions.count && !c->full; i++) {
        const store_reaction *r = c->reactions.rows[i];
        reaction_fill(c, r, r->current, &list->arena, &list->reactions[list->reactions_count++]);
    }
    if (!c->full) {
        qsort(list->reactions, list->reactions_count, sizeof *list->reactions, compare_reactions);
    }
    return weir__memory_unlock(c, WEIR_OK, err);
}

weir_status weir__memory_retire(weir_store *base, weir_str name, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    weir_status status = WEIR_OK;
    const store_reaction *old = weir__memory_reaction_named(c, name);

    if (old == NULL) {
        status = weir__reaction_not_named(name, err);
    } else if (!old->retired) {
        store_reaction r = *old;
        r.retired = true;
        weir__memory_put(c, &c->reactions, &r);
        targets_derive(c, r.id);
    }
    return weir__memory_end(base, status, false, err);
}

/* ---- routers' leases ---------------------------------------------------------------------- */

static void router_lease_one(memory_core *c, weir_str holder, int64_t lease_us,
                             store_router_lease *item)
{
    const store_reaction *old = weir__memory_reaction(c, item->reaction);
    const int64_t fence = item->fence;

    item->fence = 0;
    item->until_us = 0;
    if (old == NULL) {
        return;
    }
    store_reaction r = *old;
    switch (weir__router_judge(&r, fence, lease_us, c->now_us)) {
    case ROUTER_STAYS:
        return;
    case ROUTER_ENDS:
        r.router = (weir_str){ 0 };
        r.router_until_us = 0;
        break;
    case ROUTER_BEGINS:
        r.router_fence++;
        /* fall through */
    case ROUTER_GOES_ON:
        r.router = holder;
        r.router_until_us = weir__time_later(c->now_us, lease_us);
        item->fence = r.router_fence;
        item->until_us = r.router_until_us;
        break;
    }
    weir__memory_put(c, &c->reactions, &r);
}

weir_status weir__memory_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    /* Answers are worked out on copies: a failed verb leaves its outputs as they were. */
    store_router_lease *answers = weir__calloc(count + 1, sizeof *answers);

    c->full = answers == NULL;
    for (size_t i = 0; i < count && answers != NULL; i++) {
        answers[i] = items[i];
        router_lease_one(c, holder, lease_us, &answers[i]);
    }
    /* What is given back can be taken at once by whoever waits for it. */
    const weir_status status = weir__memory_end(base, WEIR_OK, lease_us == 0 && count > 0, err);
    for (size_t i = 0; i < count && status == WEIR_OK && answers != NULL; i++) {
        items[i] = answers[i];
    }
    weir__free(answers);
    return status;
}
