/* kit_targets.c - the kit's helpers for reactions, targets and leases, and a small router. */
#include "kit.h"

/* ---- reactions ---------------------------------------------------------------------------- */

static size_t names_split(kit *k, const char *names, weir_str *out, size_t max)
{
    size_t count = 0;
    const char *at = names;
    while (*at != '\0') {
        const size_t len = strcspn(at, ",");
        assert_true(count < max);
        out[count].ptr = weir__arena_copy(&k->arena, at, len);
        out[count++].len = len;
        at += len + (at[len] == ',');
    }
    return count;
}

weir_status kit_declare_with(kit *k, store_reaction_declaration *d, const char *names,
                             store_reaction *out)
{
    weir_str list[16];
    if (strcmp(names, "*") == 0) {
        d->all_names = true;
    } else {
        d->names = list;
        d->names_count = names_split(k, names, list, 16);
    }
    const weir_status status = k->store->work->declare(k->store, d, &k->arena, out, &k->err);
    d->names = NULL;
    return status;
}

store_reaction kit_declare(kit *k, const char *name, const char *names, const char *source,
                           store_rule rule)
{
    store_reaction_declaration d = { .name = weir__str(name),
                                     .source = weir__str(source),
                                     .rule = rule,
                                     .rule_text = weir__str("rule") };
    store_reaction out = { 0 };
    KIT_OK(k, kit_declare_with(k, &d, names, &out));
    return out;
}

store_reaction kit_reaction(kit *k, const char *name)
{
    store_reaction_list list = { 0 };
    KIT_OK(k, k->store->work->reactions(k->store, &list, &k->err));
    store_reaction found = { 0 };
    for (size_t i = 0; i < list.reactions_count; i++) {
        if (weir__str_equal(list.reactions[i].name, weir__str(name))) {
            found = list.reactions[i];
        }
    }
    kit_keep(k, &list.arena);
    assert_true(found.id != 0);
    return found;
}

/* ---- routing ------------------------------------------------------------------------------ */

typedef struct mark_list {
    store_mark *marks;
    size_t count, capacity;
} mark_list;

static const char *target_name(kit *k, const store_reaction *r, const char *prefix,
                               const weir_event *e, weir_str *value)
{
    weir_str part = { 0 };
    *value = (weir_str){ 0 };
    switch (r->rule) {
    case STORE_RULE_CONSTANT:
        return prefix;
    case STORE_RULE_STREAM:
        part = e->stream;
        *value = part;
        break;
    case STORE_RULE_CATEGORY:
        part = weir__category(e->stream);
        *value = part;
        break;
    case STORE_RULE_NAME:
        part = e->name;
        *value = part;
        break;
    case STORE_RULE_WORK:
        part = e->stream;
        break;
    }
    return kit_text(k, "%s%.*s", prefix, (int)part.len, part.ptr);
}

static void mark_add(kit *k, mark_list *list, store_mark mark, bool merge)
{
    for (size_t i = 0; merge && i < list->count; i++) {
        if (weir__str_equal(list->marks[i].target, mark.target)) {
            list->marks[i].last = mark.last;
            return;
        }
    }
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 32 : 2 * list->capacity;
        store_mark *grown = weir__arena_alloc(&k->arena, list->capacity * sizeof *grown);
        assert_non_null(grown);
        if (list->count > 0) {
            memcpy(grown, list->marks, list->count * sizeof *grown);
        }
        list->marks = grown;
    }
    list->marks[list->count++] = mark;
}

weir_status kit_route(kit *k, weir_store *s, const char *reaction, const char *prefix,
                      const char *lane, int64_t priority)
{
    const store_reaction r = kit_reaction(k, reaction);
    store_pattern *source = NULL;
    KIT_OK(k, weir__pattern_open(&source, r.source, &k->err));
    const store_filter filter = { .has_names = !r.all_names,
                                  .names = r.names,
                                  .names_count = r.names_count,
                                  .stream = source,
                                  .since_us = INT64_MIN,
                                  .until_us = INT64_MAX };
    const int64_t head = kit_head(k);
    const store_log_query q = {
        .after = r.routed, .to = head, .limit = INT64_MAX, .filter = &filter
    };
    const kit_events events = kit_read_log(k, s, &q);
    weir__pattern_close(source);

    mark_list list = { 0 };
    for (size_t i = 0; i < events.count; i++) {
        const weir_event *e = &events.events[i];
        if (e->name.ptr[0] == '$' && r.all_names) {
            continue;
        }
        weir_str value;
        const char *target = target_name(k, &r, prefix, e, &value);
        const store_mark mark = { .target = weir__str(target),
                                  .lane = weir__str(lane),
                                  .priority = priority,
                                  .source = e->stream,
                                  .value = value,
                                  .first = e->id,
                                  .last = e->id };
        mark_add(k, &list, mark, r.rule != STORE_RULE_WORK);
    }
    const store_route_step step = {
        .reaction = r.id, .number = r.current, .from = r.routed, .to = head
    };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = list.marks, .marks_count = list.count
    };
    return s->work->route(s, &route, NULL, &k->err);
}

weir_status kit_mark(kit *k, const char *reaction, const char *target, const char *lane,
                     int64_t priority, int64_t first, int64_t last)
{
    const store_reaction r = kit_reaction(k, reaction);
    const store_mark mark = { .target = weir__str(target),
                              .lane = weir__str(lane),
                              .priority = priority,
                              .source = weir__str("source"),
                              .value = weir__str(r.rule == STORE_RULE_CONSTANT ? "" : target),
                              .first = first,
                              .last = last };
    /* Not further than the log goes: some tests have marks without events. */
    const store_route_step step = { .reaction = r.id,
                                    .number = r.current,
                                    .from = r.routed,
                                    .to =
                                        last > r.routed && last <= kit_head(k) ? last : r.routed };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    return k->store->work->route(k->store, &route, NULL, &k->err);
}

/* ---- leases ------------------------------------------------------------------------------- */

store_lease_request kit_lease_request(const char *lane, size_t limit)
{
    return (store_lease_request){ .lane = weir__str(lane),
                                  .holder = weir__str("worker-1"),
                                  .lease_us = KIT_LEASE_US,
                                  .limit = limit,
                                  .all_reactions = true };
}

weir_status kit_lease_with(kit *k, weir_store *s, const store_lease_request *r,
                           store_lease_list **out)
{
    store_lease_list list = { 0 };
    const weir_status status = s->work->turn(s, NULL, 0, r, &list, &k->err);
    store_lease_list *kept = weir__arena_alloc(&k->arena, sizeof *kept);
    assert_non_null(kept);
    *kept = (store_lease_list){ .leases = list.leases, .leases_count = list.leases_count };
    kit_keep(k, &list.arena);
    *out = kept;
    return status;
}

store_lease_list *kit_lease(kit *k, const char *lane, size_t limit)
{
    const store_lease_request r = kit_lease_request(lane, limit);
    store_lease_list *list = NULL;
    KIT_OK(k, kit_lease_with(k, k->store, &r, &list));
    assert_true(list->leases_count <= limit);
    return list;
}

store_leased kit_lease_target(kit *k, const char *lane, const char *target)
{
    const store_lease_list *list = kit_lease(k, lane, 1);
    assert_int_equal(list->leases_count, 1);
    KIT_STR(list->leases[0].name, target);
    return list->leases[0];
}

bool kit_nothing_to_lease(kit *k, const char *lane)
{
    const store_lease_list *list = kit_lease(k, lane, 1);
    for (size_t i = 0; i < list->leases_count; i++) {
        KIT_OK(k, kit_release(k, &list->leases[i]));
    }
    return list->leases_count == 0;
}

store_settle kit_settle_of(const store_leased *l, store_end end)
{
    return (store_settle){ .target = l->target, .fence = l->fence, .end = end };
}

weir_status kit_settle(kit *k, const store_leased *l, int64_t reaction, int64_t to, store_end end)
{
    const store_advance advance = { .reaction = reaction, .to = to };
    store_settle settle = kit_settle_of(l, end);
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.lease_us = KIT_LEASE_US;
    return k->store->work->settle(k->store, &settle, &k->err);
}

weir_status kit_defer(kit *k, const store_leased *l, int64_t until_us)
{
    store_settle settle = kit_settle_of(l, STORE_END_DEFER);
    settle.until_us = until_us;
    return k->store->work->settle(k->store, &settle, &k->err);
}

weir_status kit_block(kit *k, const store_leased *l, const store_failure *why)
{
    store_settle settle = kit_settle_of(l, STORE_END_BLOCK);
    settle.failure = *why;
    return k->store->work->settle(k->store, &settle, &k->err);
}

weir_status kit_release(kit *k, const store_leased *l)
{
    store_fenced item = { .target = l->target, .fence = l->fence, .status = WEIR_EMISUSE };
    const weir_status status = k->store->work->extend(k->store, 0, &item, 1, &k->err);
    return status != WEIR_OK ? status : item.status;
}

/* ---- looking ------------------------------------------------------------------------------ */

const store_target *kit_target(kit *k, const char *name)
{
    const weir_str names[] = { weir__str(name) };
    const store_targets_query q = { .filter = { .names = names, .names_count = 1 }, .limit = 1 };
    store_targets_chunk chunk = { 0 };
    KIT_OK(k, k->store->work->targets(k->store, &q, &chunk, &k->err));
    assert_int_equal(chunk.targets_count, 1);
    const store_target *target = &chunk.targets[0];
    kit_keep(k, &chunk.arena);
    KIT_STR(target->name, name);
    return target;
}

const store_subscription *kit_subscription(kit *k, const char *target, int64_t reaction)
{
    const store_target *t = kit_target(k, target);
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        if (t->subscriptions[i].reaction == reaction) {
            return &t->subscriptions[i];
        }
    }
    fail_msg("target \"%s\" has no such subscription", target);
    return NULL;
}

store_operate kit_operate_of(kit *k, store_verb verb, const char *target)
{
    weir_str *names = weir__arena_alloc(&k->arena, sizeof *names);
    assert_non_null(names);
    names[0] = weir__str(target);
    return (store_operate){ .verb = verb,
                            .filter = { .names = names, .names_count = 1 },
                            .by = weir__str("an operator"),
                            .changed = -1 };
}

int64_t kit_operate(kit *k, store_verb verb, const char *target)
{
    store_operate op = kit_operate_of(k, verb, target);
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    return op.changed;
}

store_parked_chunk kit_parked(kit *k)
{
    const store_parked_query q = { .limit = 1000 };
    store_parked_chunk chunk = { 0 };
    KIT_OK(k, k->store->work->parked(k->store, &q, &chunk, &k->err));
    assert_false(chunk.more);
    kit_keep(k, &chunk.arena);
    return chunk;
}

size_t kit_fetch(kit *k, int64_t target, int64_t reaction, int64_t after, int64_t up_to,
                 int64_t *ids, size_t ids_max)
{
    const store_fetch_item item = { .target = target,
                                    .reaction = reaction,
                                    .after = after,
                                    .up_to = up_to,
                                    .limit = (int64_t)ids_max };
    store_fetch_list list = { 0 };
    KIT_OK(k, k->store->work->fetch(k->store, &item, 1, &list, &k->err));
    const size_t count = list.events_count;
    assert_true(count <= ids_max);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list.events[i].item_index, 0);
        ids[i] = list.events[i].event->id;
        assert_true(ids[i] > after && ids[i] <= up_to);
        assert_true(i == 0 || ids[i] > ids[i - 1]);
    }
    weir__arena_free(&list.arena);
    return count;
}
