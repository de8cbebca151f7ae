/* locks.c - what every store answers to whoever comes too late for a lock or a run, in one wording.
 *
 * An operator reads these: they say who it is and since when.
 */
#include "store/locks.h"

#include "base/error.h"
#include "base/str.h"

weir_status weir__lock_held(const store_lock *other, weir_error *err)
{
    char since[WEIR_TIME_TEXT_BYTES];
    weir__time_to_text(other->since_us, since);
    return weir__fail(err, WEIR_EHELD, "\"%.*s\" is held by %.*s since %s", (int)other->name.len,
                      other->name.ptr, (int)other->holder.len, other->holder.ptr, since);
}

weir_status weir__lock_lost(weir_str name, int64_t fence, weir_error *err)
{
    return weir__fail(err, WEIR_ELOST, "\"%.*s\" is no longer held with fence %lld", (int)name.len,
                      name.ptr, (long long)fence);
}

weir_status weir__once_running(const store_lock *other, weir_error *err)
{
    char since[WEIR_TIME_TEXT_BYTES];
    weir__time_to_text(other->since_us, since);
    return weir__fail(err, WEIR_EINFLIGHT, "\"%.*s\" is being run by %.*s since %s",
                      (int)other->name.len, other->name.ptr, (int)other->holder.len,
                      other->holder.ptr, since);
}

weir_status weir__lock_taken(store_lock_kind kind, const store_lock *found, weir_error *err)
{
    return found->state == STORE_ONCE_DONE ? WEIR_OK
           : kind == STORE_LOCK            ? weir__lock_held(found, err)
                                           : weir__once_running(found, err);
}

store_once_state weir__once_state_at(const store_lock *run, int64_t now_us)
{
    return run->state == STORE_ONCE_RUNNING && run->until_us <= now_us ? STORE_ONCE_DIED
                                                                       : run->state;
}

weir_status weir__once_unknown(weir_str key, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "there is no run of \"%.*s\"", (int)key.len, key.ptr);
}
