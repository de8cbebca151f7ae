/* targets.h - what the files of the targets side of the SQLite adapter share.
 *
 * Everything here runs inside a transaction of the caller's: weir__sqlite_write_begin for what
 * changes something. `conn` is that transaction's connection.
 */
#ifndef WEIR_STORE_SQLITE_TARGETS_H
#define WEIR_STORE_SQLITE_TARGETS_H

#include "store/sqlite/sqlite_store.h"
#include "store/target.h"

/* ---- derive.c ------------------------------------------------------------------------------ */

typedef struct sqlite_subscription {
    int64_t reaction, at, mark, priority;
    bool retired; /* its reaction is */
} sqlite_subscription;

/* A target and its subscriptions, as they are in this transaction. Ended by
 * weir__sqlite_target_free, also when loading failed. */
typedef struct sqlite_target {
    int64_t id, fence, lost;
    bool leased;    /* somebody holds the fence, its time over or not   */
    bool failed;    /* it keeps a failure                               */
    bool paused;    /* or its lane is                                   */
    bool sent_back; /* it has events that were sent back              */
    bool has_work;  /* it has work rows                               */
    bool prioritized;
    int64_t override;                   /* the operator's priority, if prioritized      */
    store_derived is;                   /* as its row says */
    sqlite_subscription *subscriptions; /* `few` or `many` */
    size_t subscriptions_count, capacity;
    sqlite_subscription few[4];
    sqlite_subscription *many; /* owned */
} sqlite_target;

/* ENOTFOUND. */
weir_status weir__sqlite_target_load(sqlite_conn *conn, int64_t id, sqlite_target *t,
                                     weir_error *err);
void weir__sqlite_target_free(sqlite_target *t);
/* What its row should say. */
store_derived weir__sqlite_target_derived(const sqlite_target *t);
/* Whether a column of an index is another one. SQLite rewrites an index entry whenever a column of
 * it is named in an UPDATE, changed or not; most settles move the watermark alone, inside its
 * rank. */
bool weir__sqlite_derived_moves(const store_derived *is, const store_derived *should);

/* Brings behind, watermark, rank and priority of a target in step with its subscriptions and
 * sent-back events. Whoever changes one of those calls this afterwards, in the same transaction.
 * *behind may be NULL. */
weir_status weir__sqlite_derive(sqlite_conn *conn, int64_t target, bool *behind, weir_error *err);

/* A growing list of ids. A zeroed struct is empty; ended by weir__buffer_free(&list->bytes). */
typedef struct sqlite_ids {
    weir_buffer bytes;
} sqlite_ids;

static inline size_t weir__sqlite_ids_count(const sqlite_ids *ids)
{
    return ids->bytes.len / sizeof(int64_t);
}
weir_status weir__sqlite_ids_add(sqlite_ids *ids, int64_t id, weir_error *err);
int64_t weir__sqlite_ids_get(const sqlite_ids *ids, size_t index);
/* Ascending, each once. */
void weir__sqlite_ids_sort(sqlite_ids *ids);

/* ---- reactions.c --------------------------------------------------------------------------- */

/* A reaction with its current definition, texts in the arena; router_until_us is as it is kept, of
 * the machine's clock. ENOTFOUND. */
weir_status weir__sqlite_reaction_load(sqlite_conn *conn, int64_t reaction, weir_arena *arena,
                                       store_reaction *out, weir_error *err);

/* ---- subscribe.c --------------------------------------------------------------------------- */

/* The target of that name; *target 0: there is none. EINVAL when it is in another lane. */
weir_status weir__sqlite_target_find(sqlite_conn *conn, weir_str name, weir_str lane,
                                     int64_t *target, weir_error *err);
/* The same, created when there is none. */
weir_status weir__sqlite_target_ensure(sqlite_conn *conn, weir_str name, weir_str lane,
                                       int64_t *target, weir_error *err);

/* ---- settle.c ------------------------------------------------------------------------------ */

/* Sets an event aside for a reaction; one that is parked already is parked anew, no longer sent
 * back. target 0: it was parked while routing. */
weir_status weir__sqlite_park(sqlite_conn *conn, int64_t target, const store_park *park,
                              int64_t now_us, weir_error *err);
/* Takes everything off a target that says it failed: block, due, error, retries, lost. With `take`
 * its lease as well, so that the holder's next write is refused. */
weir_status weir__sqlite_clear(sqlite_conn *conn, int64_t target, bool take, weir_error *err);

/* Settles what has nothing but advances and ends with a release. ELOST, ENOTFOUND: nothing was
 * written, the transaction can go on. *behind: as in store_settle. */
weir_status weir__sqlite_settle_plain(sqlite_conn *conn, const store_settle *settle,
                                      const sqlite_times *now, bool *behind, weir_error *err);

/* ---- lease.c ------------------------------------------------------------------------------- */

/* Leases into an empty list; r->limit is not 0. The transaction is SQLITE_TX_DURABLE. */
weir_status weir__sqlite_lease_in(sqlite_conn *conn, const sqlite_times *now,
                                  const store_lease_request *r, store_lease_list *list,
                                  weir_error *err);

/* ---- fetch.c ------------------------------------------------------------------------------- */

/* A reaction's current definition, ready to be matched. */
typedef struct sqlite_definition {
    store_reaction reaction; /* texts in the arena it was opened with */
    store_pattern *source;   /* owned */
} sqlite_definition;

weir_status weir__sqlite_definition_open(sqlite_conn *conn, int64_t reaction, weir_arena *arena,
                                         sqlite_definition *out, weir_error *err);
void weir__sqlite_definition_close(sqlite_definition *definition); /* NULL and zeroed are no-ops */
/* Whether the reaction listens to events of that name in that stream. */
bool weir__sqlite_definition_wants(const sqlite_definition *definition, weir_str stream,
                                   weir_str name);

/* One subscription's range of the log. */
typedef struct sqlite_range {
    int64_t target;
    weir_str value;
    int64_t after, up_to; /* after < id <= up_to */
} sqlite_range;

/* Adds the positions of the next `limit` events of a subscription to `ids`, ascending. */
weir_status weir__sqlite_find_events(sqlite_conn *conn, const sqlite_definition *definition,
                                     const sqlite_range *range, size_t limit, sqlite_ids *ids,
                                     weir_error *err);
/* The first version of a stream (weir_streams.id) whose event lies above `after`; *found false:
 * none. */
weir_status weir__sqlite_version_after(sqlite_conn *conn, int64_t stream_row, int64_t after,
                                       bool *found, int64_t *version, weir_error *err);

/* ---- targets.c ----------------------------------------------------------------------------- */

/* One step of a walk over the targets that a filter accepts, in the order of their names. */
typedef struct sqlite_walk {
    const store_target_filter *filter; /* borrowed */
    weir_str after;                    /* borrowed: only names above it */
    size_t limit;                      /* accepted targets at most */
    size_t looked_max;                 /* names looked at at most */
    /* results */
    sqlite_ids ids;      /* of the accepted targets; added to */
    weir_str scanned_to; /* the last name looked at, in the arena given */
    bool more;           /* whether there are names above it */
} sqlite_walk;

weir_status weir__sqlite_walk(sqlite_conn *conn, sqlite_walk *walk, weir_arena *arena,
                              weir_error *err);

#endif
