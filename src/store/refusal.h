/* refusal.h - what every store answers to whoever is refused, in one wording; those of locks and of
 * once are in locks.h. Each writes *err and gives the status that is named.
 */
#ifndef WEIR_STORE_REFUSAL_H
#define WEIR_STORE_REFUSAL_H

#include "store/store.h"

/* ---- appends ------------------------------------------------------------------------------- */

weir_status weir__stream_unknown(weir_str stream, weir_error *err); /* ENOTFOUND */
weir_status weir__stream_closed(weir_str stream, weir_error *err);  /* ECLOSED   */
/* ECONFLICT: what `want` says does not hold at this version, WEIR_VERSION_NONE: without events. */
weir_status weir__stream_conflict(const store_append_stream *want, int64_t version,
                                  weir_error *err);
weir_status weir__key_reused(weir_str key, weir_error *err);                /* EKEYREUSED */
weir_status weir__key_taken(weir_str key, weir_str owner, weir_error *err); /* ETAKEN */
/* Of an append that nobody has tried because of the one before it. */
void weir__append_not_tried(store_append *append);

/* Names for people to read, as many as a message has room for. A zeroed struct has none. */
typedef struct store_named {
    char text[256];
    size_t len;
    bool is_cut;
} store_named;

void weir__named_add(store_named *names, weir_str name);
/* EHELD: these reactions have events of the stream to handle. */
weir_status weir__stream_unhandled(weir_str stream, const store_named *reactions, weir_error *err);

/* ---- targets and reactions ------------------------------------------------------------------- */

weir_status weir__target_unknown(int64_t target, weir_error *err);    /* ENOTFOUND */
weir_status weir__target_not_named(weir_str name, weir_error *err);   /* ENOTFOUND */
weir_status weir__reaction_not_named(weir_str name, weir_error *err); /* ENOTFOUND */
weir_status weir__parked_unknown(int64_t parked, weir_error *err);    /* ENOTFOUND */
weir_status weir__parked_targetless(int64_t parked, weir_error *err); /* EMISUSE   */
weir_status weir__snapshot_unknown(weir_str stream, weir_error *err); /* ENOTFOUND */
weir_status weir__subscription_unknown(int64_t target, int64_t reaction, weir_error *err);
/* EMISUSE. remains: what became of what the SQL did, a sentence. */
weir_status weir__settle_sql_ended(const char *remains, weir_error *err);

#endif
