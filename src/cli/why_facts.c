/* why_facts.c - everything that can keep a target from running, as the store tells it.
 *
 * Each question is a short read of its own, so the answers are not of one moment; each is true when
 * it is read. Events that a target was not told of are looked for as whoever routes would: by the
 * reaction's names and source and by what its rule gives for the event.
 */
#include "cli/why.h"

enum { PARKED_PAGE = 500 };

const store_reaction *weir__cli_why_reaction(const why_facts *f, int64_t id)
{
    for (size_t i = 0; i < f->reactions.reactions_count; i++) {
        if (f->reactions.reactions[i].id == id) {
            return &f->reactions.reactions[i];
        }
    }
    return NULL;
}

int64_t weir__cli_why_attempts(const why_facts *f)
{
    for (size_t i = 0; i < f->reactions.reactions_count; i++) {
        const store_reaction *r = &f->reactions.reactions[i];
        if (weir__str_equal(r->name, f->target->reaction)) {
            return r->attempts;
        }
    }
    return 0;
}

/* ---- the target and what waits for it ------------------------------------------------------- */

static weir_status read_target(weir_store *store, weir_str name, why_facts *f, weir_error *err)
{
    const store_targets_query q = { .filter = { .names = &name, .names_count = 1 }, .limit = 1 };
    store_positions now = { 0 };
    weir_status status = store->work->targets(store, &q, &f->chunk, err);

    if (status == WEIR_OK) {
        status = store->log->positions(store, &now, err);
        f->head = now.head;
    }
    if (status == WEIR_OK && f->chunk.targets_count == 0) {
        (void)weir__fail(err, WEIR_ENOTFOUND, "no target \"%.*s\"", (int)name.len, name.ptr);
        weir__error_detail(err, "A target is made when the first event for it is routed. "
                                "weir targets lists them.");
        return WEIR_ENOTFOUND;
    }
    f->target = f->chunk.targets;
    return status;
}

/* The event that failed, as it is in the log. */
static weir_status read_failed(weir_store *store, why_facts *f, weir_error *err)
{
    const int64_t id = f->target->event;
    const store_log_query q = { .after = id - 1, .to = id, .limit = 1 };
    const weir_status status = id == 0 ? WEIR_OK : store->log->read_log(store, &q, &f->failed, err);

    if (status == WEIR_OK && id != 0 && f->failed.events_count > 0 &&
        f->failed.events[0].id == id) {
        f->event = &f->failed.events[0];
    }
    return status;
}

static weir_status count_waiting(weir_store *store, why_facts *f, weir_error *err)
{
    const store_target *t = f->target;
    store_fetch_list list = { 0 };
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        const store_fetch_item item = { .target = t->id,
                                        .reaction = s->reaction,
                                        .after = s->at,
                                        .up_to = s->mark,
                                        .limit = STORE_CHUNK_EVENTS_MAX };
        if (s->retired || s->at >= s->mark) {
            continue;
        }
        status = store->work->fetch(store, &item, 1, &list, err);
        if (status == WEIR_OK) {
            f->waiting += (int64_t)list.events_count;
            f->waiting_more = f->waiting_more || !list.exhausted[0];
        }
        for (size_t k = 0; status == WEIR_OK && k < list.events_count; k++) {
            f->failed_waits = f->failed_waits || (list.events[k].event->id == t->event &&
                                                  weir__str_equal(s->reaction_name, t->reaction));
        }
    }
    weir__arena_free(&list.arena);
    return status;
}

static weir_status count_parked(weir_store *store, why_facts *f, weir_error *err)
{
    store_parked_query q = { .limit = PARKED_PAGE, .target = f->target->name };
    store_parked_chunk chunk = { .more = true };
    weir_status status = WEIR_OK;

    while (status == WEIR_OK && chunk.more) {
        status = store->work->parked(store, &q, &chunk, err);
        for (size_t i = 0; status == WEIR_OK && i < chunk.parked_count; i++) {
            f->parked++;
            f->sent_back += chunk.parked[i].sent_back ? 1 : 0;
            q.after = chunk.parked[i].id;
        }
    }
    weir__arena_free(&chunk.arena);
    return status;
}

/* ---- events that it was not told of --------------------------------------------------------- */

/* Whether the reaction listens to the event and its rule gives this target. */
static bool is_for(const store_reaction *r, const store_subscription *s,
                   const store_pattern *source, const weir_event *event)
{
    const bool listens = r->all_names ? event->name.len > 0 && event->name.ptr[0] != '$'
                                      : weir__names_contain(r->names, r->names_count, event->name);

    if (!listens || !weir__pattern_matches(source, event->stream)) {
        return false;
    }
    switch (r->rule) {
    case STORE_RULE_STREAM:
        return weir__str_equal(s->value, event->stream);
    case STORE_RULE_CATEGORY:
        return weir__str_equal(s->value, weir__category(event->stream));
    case STORE_RULE_NAME:
        return weir__str_equal(s->value, event->name);
    case STORE_RULE_CONSTANT:
    case STORE_RULE_WORK:
        break;
    }
    return true;
}

/* The first (forwards) or last (backwards) event for the subscription between q->after and q->to.
 * What a store finds by name is left to it; is_for decides. */
static weir_status find_event(weir_store *store, const store_reaction *r,
                              const store_subscription *s, store_log_query q, why_event *found,
                              weir_error *err)
{
    store_pattern *source = NULL;
    store_chunk chunk = { .more = true };
    const store_filter filter = { .has_names = !r->all_names,
                                  .names = r->names,
                                  .names_count = r->names_count,
                                  .category = r->rule == STORE_RULE_CATEGORY ? s->value
                                              : r->rule == STORE_RULE_STREAM
                                                  ? weir__category(s->value)
                                                  : (weir_str){ 0 },
                                  .since_us = INT64_MIN,
                                  .until_us = INT64_MAX };
    weir_status status = weir__pattern_open(&source, r->source, err);

    q.filter = &filter;
    q.limit = STORE_CHUNK_EVENTS_MAX;
    while (status == WEIR_OK && chunk.more && found->event == 0) {
        status = store->log->read_log(store, &q, &chunk, err);
        for (size_t i = 0; status == WEIR_OK && found->event == 0 && i < chunk.events_count; i++) {
            if (is_for(r, s, source, &chunk.events[i])) {
                *found = (why_event){ .event = chunk.events[i].id,
                                      .certain = r->rule != STORE_RULE_WORK,
                                      .subscription = s,
                                      .reaction = r };
            }
        }
        q.after = chunk.scanned_to;
    }
    weir__pattern_close(source);
    weir__chunk_free(&chunk);
    return status;
}

static weir_status find_untold(weir_store *store, why_facts *f, weir_error *err)
{
    const store_positions *at = &f->positions;
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        const store_reaction *r = weir__cli_why_reaction(f, s->reaction);
        if (s->retired || r == NULL) {
            continue;
        }
        if (r->routed < at->safe && f->unrouted.event == 0) {
            const store_log_query q = { .after = r->routed, .to = at->safe };
            status = find_event(store, r, s, q, &f->unrouted, err);
        }
        if (status == WEIR_OK && at->safe < at->head && f->held.event == 0) {
            const store_log_query q = { .after = at->head + 1,
                                        .to = at->safe + 1,
                                        .backward = true };
            status = find_event(store, r, s, q, &f->held, err);
        }
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void find_lane(why_facts *f)
{
    for (size_t i = 0; i < f->lanes.lanes_count; i++) {
        if (weir__str_equal(f->lanes.lanes[i].lane, f->target->lane)) {
            f->lane = &f->lanes.lanes[i];
        }
    }
}

weir_status weir__cli_why_look(weir_store *store, why_facts *f, weir_error *err)
{
    weir_status status = store->work->reactions(store, &f->reactions, err);

    if (status == WEIR_OK) {
        status = store->work->lanes(store, &f->lanes, err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_workers_read(store, &f->workers, err);
    }
    if (status == WEIR_OK) {
        status = store->log->positions(store, &f->positions, err);
    }
    if (status == WEIR_OK && f->positions.safe < f->positions.head) {
        status = store->about->holders(store, &f->holders, err);
    }
    return status;
}

weir_status weir__cli_why_collect(weir_store *store, weir_str target, why_facts *f, weir_error *err)
{
    f->lane = NULL;
    f->event = NULL;
    f->waiting = f->parked = f->sent_back = 0;
    f->waiting_more = f->failed_waits = false;
    f->unrouted = f->held = (why_event){ 0 };
    weir_status status = read_target(store, target, f, err);

    if (status == WEIR_OK) {
        find_lane(f);
        status = read_failed(store, f, err);
    }
    if (status == WEIR_OK) {
        status = count_waiting(store, f, err);
    }
    if (status == WEIR_OK) {
        status = count_parked(store, f, err);
    }
    return status == WEIR_OK ? find_untold(store, f, err) : status;
}

void weir__cli_why_facts_free(why_facts *f)
{
    weir__arena_free(&f->chunk.arena);
    weir__arena_free(&f->reactions.arena);
    weir__arena_free(&f->lanes.arena);
    weir__arena_free(&f->holders.arena);
    weir__chunk_free(&f->failed);
    weir__cli_workers_free(&f->workers);
}
