/* room.h - how much memory the events of a worker may take.
 *
 * Before events are fetched, room is taken for the most that the fetch may bring. It is
 * corrected to what came, and given back when the events are forgotten. Nobody waits while
 * holding room or a lease: a lane that gets none leases nothing and is told when there may be
 * some; a slot that gets none lets its target go. So somebody always makes progress and gives
 * room back.
 *
 *   - A lane that holds nothing always gets room, whatever the others hold: one that is stuck does
 *     not stop another, and an event larger than the limit goes through by itself.
 *   - What was fetched already is never refused. So the limit may be exceeded by an event that is
 *     larger than this worker's own payload limit, because a store may hold such events.
 *
 * THREADS  Any. Atomics only; told_cb is called by the thread that gives room back.
 */
#ifndef WEIR_ENGINE_ROOM_H
#define WEIR_ENGINE_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROOM_BYTES_DEFAULT (INT64_C(256) << 20)
#define ROOM_BYTES_MIN     (INT64_C(1) << 20)
#define ROOM_BYTES_MAX     (INT64_C(1) << 40)
#define ROOM_BYTES_TEXT    "a size from 1MiB to 1024GiB, such as 256MiB" /* what is allowed */

typedef struct room_share room_share;

/* Of a worker. */
typedef struct room {
    int64_t bytes_max;  /* immutable */
    room_share *shares; /* borrowed, immutable once events are fetched; linked by next */
    _Atomic int64_t used;
} room;

/* What one lane has of it. */
struct room_share {
    room *room;                 /* borrowed */
    room_share *next;           /* borrowed */
    void (*told_cb)(void *ctx); /* there is room again */
    void *told_ctx;
    _Atomic int64_t used;
    _Atomic int64_t wanted; /* bytes that were refused since told_cb was called; 0: none */
};

/* Before anything is taken. r, ctx: borrowed. */
void weir__room_share(room_share *s, room *r, void (*told_cb)(void *ctx), void *ctx);
/* How many bytes a fetch of this worker asks for: one batch must not take a large part of the
 * limit. */
size_t weir__room_fetch_bytes(const room *r);
/* Whether that much could be taken now, without taking it. */
bool weir__room_is_there(const room_share *s, int64_t bytes);
/* All of it or nothing. false: told_cb will be called when there is enough. */
bool weir__room_take(room_share *s, int64_t bytes);
/* Changes how much is taken to `bytes`; 0 gives all of it back. */
void weir__room_correct(room_share *s, int64_t *taken, int64_t bytes);

#endif
