/* room.c - see room.h.
 *
 * INVARIANT  room.used is the sum of its shares' used, but for changes under way.
 *
 * No wake-up is lost: a lane that is refused sets `wanted` before it looks once more, and a lane
 * that gives room back does so before it looks at `wanted`.
 */
#include "engine/room.h"

#include "base/assert.h"
#include "store/store.h"

enum {
    ROOM_FETCHES = 8, /* there is room for at least this many fetches of that size */
    ROOM_FETCH_BYTES_MIN = 64 * 1024,
};

void weir__room_share(room_share *s, room *r, void (*told_cb)(void *ctx), void *ctx)
{
    *s = (room_share){ .room = r, .next = r->shares, .told_cb = told_cb, .told_ctx = ctx };
    r->shares = s;
}

size_t weir__room_fetch_bytes(const room *r)
{
    const int64_t part = r->bytes_max / ROOM_FETCHES;
    return part > STORE_FETCH_BYTES_SOFT ? STORE_FETCH_BYTES_SOFT
           : part < ROOM_FETCH_BYTES_MIN ? ROOM_FETCH_BYTES_MIN
                                         : (size_t)part;
}

bool weir__room_is_there(const room_share *s, int64_t bytes)
{
    return atomic_load(&s->room->used) <= s->room->bytes_max - bytes || atomic_load(&s->used) == 0;
}

static bool take_now(room_share *s, int64_t bytes)
{
    room *r = s->room;
    int64_t used = atomic_load(&r->used), none = 0;

    while (used <= r->bytes_max - bytes) {
        if (atomic_compare_exchange_weak(&r->used, &used, used + bytes)) {
            atomic_fetch_add(&s->used, bytes);
            return true;
        }
    }
    if (atomic_compare_exchange_strong(&s->used, &none, bytes)) {
        atomic_fetch_add(&r->used, bytes);
        return true;
    }
    return false;
}

bool weir__room_take(room_share *s, int64_t bytes)
{
    if (bytes <= 0 || take_now(s, bytes)) {
        return true;
    }
    atomic_store(&s->wanted, bytes);
    if (!take_now(s, bytes)) {
        return false;
    }
    atomic_store(&s->wanted, 0);
    return true;
}

/* Tells only shares that were refused and would not be refused now. Otherwise a lane that takes
 * room, finds nothing to lease and gives it back would keep waking the others, and itself. */
static void tell_refused(room *r)
{
    for (room_share *s = r->shares; s != NULL; s = s->next) {
        int64_t wanted = atomic_load(&s->wanted);
        if (wanted > 0 && weir__room_is_there(s, wanted) &&
            atomic_compare_exchange_strong(&s->wanted, &wanted, 0)) {
            s->told_cb(s->told_ctx);
        }
    }
}

void weir__room_correct(room_share *s, int64_t *taken, int64_t bytes)
{
    const int64_t more = bytes - *taken;

    if (more == 0) {
        return;
    }
    *taken = bytes;
    const int64_t before = atomic_fetch_add(&s->used, more);
    atomic_fetch_add(&s->room->used, more);
    WEIR_ASSERT(before + more >= 0);
    if (more < 0) {
        tell_refused(s->room);
    }
}
