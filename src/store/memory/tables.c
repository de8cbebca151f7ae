/* tables.c - what the rows of each table are: their texts, and what they are sorted by. */
#include "store/memory/memory_store.h"

#include <stddef.h>

static void definition_end(void *row)
{
    weir__pattern_close(((memory_definition *)row)->pattern);
}

static const row_kind event_kind = {
    .bytes = sizeof(weir_event),
    .texts_count = 4,
    .texts = { offsetof(weir_event, stream), offsetof(weir_event, name), offsetof(weir_event, data),
               offsetof(weir_event, meta) },
    .numbers_count = 1,
    .numbers = { offsetof(weir_event, id) },
};
static const row_kind stream_kind = {
    .bytes = sizeof(weir_event),
    .texts_count = 1,
    .texts = { offsetof(weir_event, stream) },
    .by_text = true,
    .numbers_count = 1,
    .numbers = { offsetof(weir_event, id) },
    .shared = true,
};
static const row_kind key_kind = {
    .bytes = sizeof(memory_key),
    .texts_count = 2,
    .texts = { offsetof(memory_key, key), offsetof(memory_key, results) },
    .by_text = true,
};
static const row_kind reserved_kind = {
    .bytes = sizeof(memory_reserved),
    .texts_count = 2,
    .texts = { offsetof(memory_reserved, key), offsetof(memory_reserved, owner) },
    .by_text = true,
};
static const row_kind snapshot_kind = {
    .bytes = sizeof(store_snapshot),
    .texts_count = 3,
    .texts = { offsetof(store_snapshot, stream), offsetof(store_snapshot, revision),
               offsetof(store_snapshot, data) },
    .by_text = true,
};
static const row_kind worker_kind = {
    .bytes = sizeof(memory_worker),
    .texts_count = 5,
    .texts = { offsetof(memory_worker, worker.name), offsetof(memory_worker, worker.host),
               offsetof(memory_worker, worker.metrics), offsetof(memory_worker, lanes),
               offsetof(memory_worker, known) },
    .by_text = true,
};
static const row_kind lock_kind = {
    .bytes = sizeof(store_lock),
    .texts_count = 3,
    .texts = { offsetof(store_lock, name), offsetof(store_lock, holder),
               offsetof(store_lock, output) },
    .by_text = true,
};
static const row_kind reaction_kind = {
    .bytes = sizeof(store_reaction),
    .texts_count = 2,
    .texts = { offsetof(store_reaction, name), offsetof(store_reaction, router) },
    .numbers_count = 1,
    .numbers = { offsetof(store_reaction, id) },
};
static const row_kind definition_kind = {
    .bytes = sizeof(memory_definition),
    .texts_count = 3,
    .texts = { offsetof(memory_definition, source), offsetof(memory_definition, rule_text),
               offsetof(memory_definition, names) },
    .numbers_count = 2,
    .numbers = { offsetof(memory_definition, reaction), offsetof(memory_definition, number) },
    .end = definition_end,
};
static const row_kind lane_kind = {
    .bytes = sizeof(store_lane),
    .texts_count = 2,
    .texts = { offsetof(store_lane, lane), offsetof(store_lane, paused_by) },
    .by_text = true,
};
static const row_kind target_kind = {
    .bytes = sizeof(store_target),
    .texts_count = 6,
    .texts = { offsetof(store_target, name), offsetof(store_target, lane),
               offsetof(store_target, holder), offsetof(store_target, error),
               offsetof(store_target, reaction), offsetof(store_target, paused_by) },
    .numbers_count = 1,
    .numbers = { offsetof(store_target, id) },
};
static const row_kind name_kind = {
    .bytes = sizeof(memory_name),
    .texts_count = 1,
    .texts = { offsetof(memory_name, name) },
    .by_text = true,
};
static const row_kind subscription_kind = {
    .bytes = sizeof(memory_subscription),
    .texts_count = 2,
    .texts = { offsetof(memory_subscription, source), offsetof(memory_subscription, value) },
    .numbers_count = 2,
    .numbers = { offsetof(memory_subscription, target), offsetof(memory_subscription, reaction) },
};
static const row_kind work_kind = {
    .bytes = sizeof(memory_work),
    .numbers_count = 3,
    .numbers = { offsetof(memory_work, target), offsetof(memory_work, reaction),
                 offsetof(memory_work, event) },
};
static const row_kind parked_kind = {
    .bytes = sizeof(store_parked),
    .texts_count = 3,
    .texts = { offsetof(store_parked, reaction_name), offsetof(store_parked, target),
               offsetof(store_parked, error) },
    .numbers_count = 1,
    .numbers = { offsetof(store_parked, id) },
};

void weir__memory_tables_begin(memory_core *c)
{
    c->events.kind = &event_kind;
    c->streams.kind = &stream_kind;
    c->keys.kind = &key_kind;
    c->reserved.kind = &reserved_kind;
    c->snapshots.kind = &snapshot_kind;
    c->workers.kind = &worker_kind;
    c->locks.kind = &lock_kind;
    c->once.kind = &lock_kind;
    c->reactions.kind = &reaction_kind;
    c->definitions.kind = &definition_kind;
    c->lanes.kind = &lane_kind;
    c->targets.kind = &target_kind;
    c->names.kind = &name_kind;
    c->subscriptions.kind = &subscription_kind;
    c->work.kind = &work_kind;
    c->parked.kind = &parked_kind;
}

void weir__memory_tables_free(memory_core *c)
{
    row_table *const tables[] = {
        &c->streams,   &c->events,      &c->keys,  &c->reserved, &c->snapshots, &c->workers,
        &c->locks,     &c->once,        &c->lanes, &c->targets,  &c->names,     &c->subscriptions,
        &c->reactions, &c->definitions, &c->work,  &c->parked,
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        weir__rows_free(tables[i]);
    }
}
