/* reactions.c - reactions as the store knows them: definitions, positions, routers' leases. */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"
#include "store/request.h"

#include <stdlib.h>

enum { ARRAY_MIN = 4 };

memory_reaction *weir__memory_reaction(const memory_core *c, int64_t id)
{
    return id >= 1 && id <= (int64_t)c->reactions_count ? c->reactions[id - 1] : NULL;
}

bool weir__memory_listens(const memory_definition *d, const memory_event *e)
{
    const weir_str name = e->name->item.key;
    const bool named =
        d->all_names ? name.ptr[0] != '$' : weir__names_contain(d->names, d->names_count, name);
    return named && weir__pattern_matches(d->pattern, e->stream->item.key);
}

/* ---- definitions -------------------------------------------------------------------------- */

void weir__memory_definition_free(memory_definition *d)
{
    if (d != NULL) {
        weir__pattern_close(d->pattern);
        weir__free(d);
    }
}

static int compare_names(const void *a, const void *b)
{
    return weir__str_compare(*(const weir_str *)a, *(const weir_str *)b);
}

static char *put_text(char *place, weir_str text, weir_str *out)
{
    if (text.len > 0) {
        memcpy(place, text.ptr, text.len);
    }
    *out = (weir_str){ .ptr = place, .len = text.len };
    return place + text.len;
}

/* A definition in one block: the struct, the names, then all texts. *out: owned. */
static weir_status definition_open(memory_definition **out, const store_reaction_declaration *d,
                                   weir_error *err)
{
    const size_t names_count = d->all_names ? 0 : d->names_count;
    size_t bytes = sizeof(memory_definition) + names_count * sizeof(weir_str);
    const size_t texts = bytes;

    bytes += d->source.len + d->rule_text.len;
    for (size_t i = 0; i < names_count; i++) {
        bytes += d->names[i].len;
    }
    memory_definition *def = weir__calloc(1, bytes);
    if (def == NULL) {
        return weir__memory_full(err);
    }
    weir_str *names = (weir_str *)(void *)(def + 1);
    char *place = (char *)def + texts;
    for (size_t i = 0; i < names_count; i++) {
        place = put_text(place, d->names[i], &names[i]);
    }
    place = put_text(place, d->source, &def->source);
    put_text(place, d->rule_text, &def->rule_text);
    qsort(names, names_count, sizeof *names, compare_names);
    for (size_t i = 0; i < names_count; i++) {
        if (i == 0 || !weir__str_equal(names[i], names[def->names_count - 1])) {
            names[def->names_count++] = names[i];
        }
    }
    def->names = names;
    def->all_names = d->all_names;
    def->rule = d->rule;
    const weir_status status = weir__pattern_open(&def->pattern, d->source, err);
    if (status != WEIR_OK) {
        weir__memory_definition_free(def);
        return status;
    }
    *out = def;
    return WEIR_OK;
}

static bool definition_equal(const memory_definition *a, const memory_definition *b)
{
    if (a->names_count != b->names_count || a->all_names != b->all_names || a->rule != b->rule ||
        !weir__str_equal(a->source, b->source) || !weir__str_equal(a->rule_text, b->rule_text)) {
        return false;
    }
    for (size_t i = 0; i < a->names_count; i++) {
        if (!weir__str_equal(a->names[i], b->names[i])) {
            return false;
        }
    }
    return true;
}

/* The latest number under which a definition is known; 0: it is not. */
static int64_t definition_number(const memory_reaction *r, const memory_definition *def)
{
    for (size_t i = r->definitions_count; i > 0; i--) {
        if (definition_equal(r->definitions[i - 1], def)) {
            return r->definitions[i - 1]->number;
        }
    }
    return 0;
}

/* ---- declaring ---------------------------------------------------------------------------- */

static int compare_values(const ordered_node *a, const ordered_node *b)
{
    const memory_subscription *x = ORDERED_ITEM_CONST(a, memory_subscription, by_value);
    const memory_subscription *y = ORDERED_ITEM_CONST(b, memory_subscription, by_value);
    const int order = weir__str_compare(x->state.value, y->state.value);
    return order != 0 ? order : (x->target->id > y->target->id) - (x->target->id < y->target->id);
}

static int compare_work(const ordered_node *a, const ordered_node *b)
{
    const memory_work *x = ORDERED_ITEM_CONST(a, memory_work, by_reaction);
    const memory_work *y = ORDERED_ITEM_CONST(b, memory_work, by_reaction);
    if (x->event != y->event) {
        return x->event < y->event ? -1 : 1;
    }
    const int64_t left = x->subscription->target->id;
    const int64_t right = y->subscription->target->id;
    return (left > right) - (left < right);
}

/* NULL: out of memory. */
static memory_reaction *reaction_add(memory_core *c, const store_reaction_declaration *d)
{
    if (!weir__memory_room(&c->reactions, c->reactions_count, &c->reactions_capacity, ARRAY_MIN)) {
        return NULL;
    }
    memory_reaction *r = weir__tx_alloc(c, sizeof *r + d->name.len);
    if (r == NULL) {
        return NULL;
    }
    memcpy(r->bytes, d->name.ptr, d->name.len);
    r->item.key = (weir_str){ .ptr = r->bytes, .len = d->name.len };
    r->item.hash = weir__str_hash(d->name);
    r->id = (int64_t)c->reactions_count + 1;
    weir__ordered_init(&r->by_value, compare_values);
    weir__ordered_init(&r->work, compare_work);
    if (d->start == STORE_START_NOW) {
        r->state.since = weir__memory_head(c);
    } else if (d->start == STORE_START_POSITION) {
        r->state.since = d->start_position;
    }
    r->state.routed = r->state.since;
    return weir__tx_add_reaction(c, r) && weir__tx_table_add(c, &c->reactions_by_name, &r->item)
               ? r
               : NULL;
}

/* Copies a reaction with its current definition into the arena. */
static bool reaction_fill(const memory_reaction *r, int64_t number, weir_arena *arena,
                          store_reaction *out)
{
    const memory_definition *d = weir__memory_current(r);
    store_reaction copy = {
        .id = r->id,
        .number = number,
        .current = d->number,
        .since = r->state.since,
        .routed = r->state.routed,
        .reread_to = r->state.reread_to,
        .retired = r->state.retired,
        .attempts = r->state.attempts,
        .rule = d->rule,
        .names_count = d->names_count,
        .all_names = d->all_names,
        .router_until_us = r->state.router_until_us,
        .router_fence = r->state.router_fence,
    };
    weir_str *names = weir__arena_alloc(arena, d->names_count * sizeof *names);
    if (names == NULL ||
        !weir__memory_text_copy(arena, weir__memory_reaction_name(r), &copy.name) ||
        !weir__memory_text_copy(arena, d->source, &copy.source) ||
        !weir__memory_text_copy(arena, d->rule_text, &copy.rule_text) ||
        !weir__memory_text_copy(arena, r->state.router, &copy.router)) {
        return false;
    }
    for (size_t i = 0; i < d->names_count; i++) {
        if (!weir__memory_text_copy(arena, d->names[i], &names[i])) {
            return false;
        }
    }
    copy.names = names;
    *out = copy;
    return true;
}

/* Makes a definition current under the next number; moved into the reaction on success. */
static bool make_current(memory_core *c, memory_reaction *r, memory_definition *def)
{
    if (!weir__memory_room(&r->definitions, r->definitions_count, &r->definitions_capacity,
                           ARRAY_MIN)) {
        return false;
    }
    def->number = (int64_t)r->definitions_count + 1;
    return weir__tx_add_definition(c, r, def);
}

/* A retired reaction has nobody whose definition could be newer, so it comes back as declared.
 * *revived: the reaction was retired and no longer is. */
static weir_status declare_locked(memory_core *c, const store_reaction_declaration *d,
                                  weir_arena *arena, store_reaction *out, memory_reaction **revived,
                                  weir_error *err)
{
    memory_reaction *r = (memory_reaction *)(void *)weir__table_find(
        &c->reactions_by_name, weir__str_hash(d->name), d->name);
    memory_definition *def = NULL;
    weir_status status = WEIR_OK;
    if (r == NULL && d->start == STORE_START_POSITION) {
        status = weir__start_check(d->start_position, weir__memory_head(c), err);
    }
    if (status == WEIR_OK) {
        status = definition_open(&def, d, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    WEIR_ASSERT(def != NULL);
    bool ok = true;
    if (r == NULL) {
        r = reaction_add(c, d);
        ok = r != NULL;
    }
    int64_t number = ok ? definition_number(r, def) : 0;
    const bool is_new = number == 0;
    const bool is_older = ok && !is_new && number < weir__memory_current(r)->number;
    if (ok && (is_new || (is_older && (d->redeclare || r->state.retired)))) {
        ok = make_current(c, r, def);
        if (ok) {
            number = def->number;
            def = NULL; /* moved into the reaction */
        }
    }
    if (ok && r->state.retired) {
        ok = weir__tx_save(c, &r->state, sizeof r->state);
        r->state.retired = !ok;
        *revived = r;
    }
    if (ok && number == weir__memory_current(r)->number && r->state.attempts != d->attempts) {
        ok = weir__tx_save(c, &r->state, sizeof r->state);
        r->state.attempts = ok ? d->attempts : r->state.attempts;
    }
    if (!ok || !reaction_fill(r, number, arena, out)) {
        status = weir__memory_full(err);
    }
    weir__memory_definition_free(def);
    return status;
}

/* Derives the targets of a reaction again, once it has been retired or brought back. Cannot fail,
 * so it needs no undoing, however many there are. */
static void derive_targets(memory_reaction *r)
{
    for (ordered_node *n = weir__ordered_first(&r->by_value); n != NULL;
         n = weir__ordered_next(&r->by_value, n)) {
        memory_target *t = ORDERED_ITEM(n, memory_subscription, by_value)->target;
        weir__memory_unplace(t);
        weir__memory_derive(t);
        weir__memory_place(t);
    }
}

weir_status weir__memory_declare(weir_store *base, const store_reaction_declaration *d,
                                 weir_arena *arena, store_reaction *out, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    memory_reaction *revived = NULL;
    store_reaction answer;
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = declare_locked(h->core, d, arena, &answer, &revived, err);
    status = weir__tx_end(h, status, weir__tx_savepoint(h->core) > 0);
    if (status == WEIR_OK) {
        *out = answer;
        if (revived != NULL) {
            derive_targets(revived);
        }
    }
    weir__unlock(&h->core->mu);
    return status;
}

static int compare_reactions(const void *a, const void *b)
{
    return weir__str_compare(((const store_reaction *)a)->name, ((const store_reaction *)b)->name);
}

static weir_status reactions_locked(const memory_core *c, store_reaction_list *list,
                                    weir_error *err)
{
    weir__arena_reset(&list->arena);
    list->reactions_count = 0;
    list->reactions = weir__arena_alloc(&list->arena, c->reactions_count * sizeof *list->reactions);
    if (list->reactions == NULL) {
        return weir__memory_full(err);
    }
    for (size_t i = 0; i < c->reactions_count; i++) {
        const memory_reaction *r = c->reactions[i];
        if (!reaction_fill(r, weir__memory_current(r)->number, &list->arena, &list->reactions[i])) {
            return weir__memory_full(err);
        }
    }
    list->reactions_count = c->reactions_count;
    qsort(list->reactions, list->reactions_count, sizeof *list->reactions, compare_reactions);
    return WEIR_OK;
}

weir_status weir__memory_reactions(weir_store *base, store_reaction_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = reactions_locked(h->core, list, err);
    weir__unlock(&h->core->mu);
    return status;
}

weir_status weir__memory_retire(weir_store *base, weir_str name, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    memory_reaction *r = (memory_reaction *)(void *)weir__table_find(&h->core->reactions_by_name,
                                                                     weir__str_hash(name), name);
    if (r == NULL) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no reaction \"%.*s\"", (int)name.len, name.ptr);
    } else if (!r->state.retired) {
        r->state.retired = true;
        derive_targets(r);
    }
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

/* ---- routers' leases ---------------------------------------------------------------------- */

static weir_status router_lease_one(memory_core *c, weir_str holder, int64_t lease_us,
                                    int64_t now_us, store_router_lease *item, weir_error *err)
{
    memory_reaction *r = weir__memory_reaction(c, item->reaction);
    if (r == NULL) {
        item->fence = 0;
        item->until_us = 0;
        return WEIR_OK;
    }
    const weir_str none = { 0 };
    struct reaction_state *state = &r->state;
    const bool held = state->router_until_us != 0;
    const bool ours = held && item->fence != 0 && item->fence == state->router_fence;
    const bool taken = !ours && (!held || state->router_until_us <= now_us);
    const bool given_back = lease_us == 0;
    const bool allowed = given_back ? ours : (ours || taken) && !state->retired;

    item->until_us = 0;
    if (!allowed) {
        item->fence = 0;
        return WEIR_OK;
    }
    if (!weir__tx_save(c, state, sizeof *state) ||
        !weir__tx_set_text(c, &state->router, given_back ? none : holder)) {
        return weir__memory_full(err);
    }
    if (given_back) {
        state->router_until_us = 0;
        item->fence = 0;
        return WEIR_OK;
    }
    state->router_fence += taken;
    state->router_until_us = weir__memory_later(now_us, lease_us);
    item->fence = state->router_fence;
    item->until_us = state->router_until_us;
    return WEIR_OK;
}

weir_status weir__memory_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    store_router_lease *answers = NULL;
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK || count == 0) {
        return status;
    }
    /* Answers are worked out on copies: a failed verb leaves its outputs as they were. */
    answers = weir__calloc(count, sizeof *answers);
    if (answers == NULL) {
        return weir__memory_full(err);
    }
    memcpy(answers, items, count * sizeof *answers);
    weir__lock(&h->core->mu);
    const int64_t now_us = weir__memory_now(h);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = router_lease_one(h->core, holder, lease_us, now_us, &answers[i], err);
    }
    /* What is given back can be taken at once by whoever waits for it. */
    status = weir__tx_end(h, status, lease_us == 0);
    weir__unlock(&h->core->mu);
    if (status == WEIR_OK) {
        memcpy(items, answers, count * sizeof *answers);
    }
    weir__free(answers);
    return status;
}

void weir__memory_reactions_free(memory_core *c)
{
    for (size_t i = 0; i < c->reactions_count; i++) {
        memory_reaction *r = c->reactions[i];
        char *router;
        for (size_t n = 0; n < r->definitions_count; n++) {
            weir__memory_definition_free(r->definitions[n]);
        }
        memcpy(&router, &r->state.router.ptr, sizeof router);
        weir__free(router);
        weir__free(r->definitions);
        weir__free(r);
    }
    weir__free(c->reactions);
    weir__table_free(&c->reactions_by_name);
}
