/* locks.c - named locks and keys of once, by leases of the store.
 *
 * What is given out is one block of memory: the public struct, then its texts. It is a ticket for
 * the verbs that follow, which name the lease by key, fence and token; the store decides.
 */
#include "api/api.h"
#include "base/error.h"
#include "base/str.h"
#include "base/struct.h"
#include "base/utf8.h"
#include "store/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define LEASE_US_DEFAULT INT64_C(30000000)
#define LEASE_US_MIN     INT64_C(100000)
#define LEASE_US_MAX     INT64_C(86400000000)

enum { HOLDER_BYTES_MAX = 300, APPLICATION_SHOWN_MAX = 128 };

/* ---- what is asked for -------------------------------------------------------------------- */

static weir_status lease_check(int64_t *lease_us, weir_error *err)
{
    if (*lease_us == 0) {
        *lease_us = LEASE_US_DEFAULT;
    }
    return *lease_us >= LEASE_US_MIN && *lease_us <= LEASE_US_MAX
               ? WEIR_OK
               : weir__fail(err, WEIR_EINVAL,
                            "lease_us is %" PRId64 ", allowed %" PRId64 " to %" PRId64 ", or 0",
                            *lease_us, LEASE_US_MIN, LEASE_US_MAX);
}

/* application@host:pid, for people to read. */
static weir_str holder_default(const weir_core *c, char *text, size_t size)
{
    char host[128] = "";
    const weir_str shown = weir__str(c->url.options.application);
    const size_t most = shown.len < APPLICATION_SHOWN_MAX ? shown.len : APPLICATION_SHOWN_MAX;
    if (gethostname(host, sizeof host - 1) != 0) {
        host[0] = '\0';
    }
    const int written =
        snprintf(text, size, "%.*s@%s:%lld", (int)weir__utf8_valid_prefix(shown.ptr, most),
                 shown.ptr, host, (long long)getpid());
    return written > 0 ? weir__str(text) : weir__str("weir");
}

/* Who asks, for what and for how long. Ends outside of the handle, or inside it when it is OK. */
static weir_status request_take(const weir *w, const char *what, weir_str name,
                                const weir_lock_options *options, weir_lock_options *o,
                                weir_core **c, weir_error *err)
{
    weir_status status = weir__name_check(what, name, true, err);
    *o = (weir_lock_options){ WEIR_LOCK_OPTIONS_INIT };
    if (status == WEIR_OK && options != NULL) {
        status = weir__struct_copy(o, sizeof *o, options, "weir_lock_options", err);
    }
    if (status == WEIR_OK && o->flags != 0) {
        status = weir__fail(err, WEIR_EINVAL, "weir_lock_options has unknown flags %u", o->flags);
    }
    if (status == WEIR_OK && o->holder.len > 0) {
        status = weir__name_check("holder", o->holder, true, err);
    }
    if (status == WEIR_OK) {
        status = lease_check(&o->lease_us, err);
    }
    return status == WEIR_OK ? weir__enter_writing(w, c, err) : status;
}

/* Copies a text to *place, which moves on. */
static weir_str text_put(char **place, weir_str text)
{
    const weir_str copy = { .ptr = *place, .len = text.len };
    if (text.len > 0) {
        memcpy(*place, text.ptr, text.len);
    }
    *place += text.len;
    return copy;
}

/* ---- locks -------------------------------------------------------------------------------- */

static weir_status lock_give(const store_lock *from, const weir_lock **out, weir_error *err)
{
    weir_lock *lock = weir__malloc(sizeof *lock + from->name.len + from->holder.len);
    if (lock == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a lock");
    }
    char *place = (char *)(lock + 1);
    *lock = (weir_lock){ .size = sizeof *lock,
                         .fence = from->fence,
                         .token = from->token,
                         .since_us = from->since_us,
                         .until_us = from->until_us };
    lock->name = text_put(&place, from->name);
    lock->holder = text_put(&place, from->holder);
    *out = lock;
    return WEIR_OK;
}

int32_t weir_lock_take(weir *w, weir_str name, const weir_lock_options *options,
                       const weir_lock **out, weir_error *err)
{
    weir_lock_options o;
    char holder[HOLDER_BYTES_MAX];
    weir_arena arena = { 0 };
    store_lock found = { 0 };
    weir_core *c = NULL;
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the lock: out is NULL");
    }
    weir_status status = request_take(w, "name of a lock", name, options, &o, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    const weir_str who = o.holder.len > 0 ? o.holder : holder_default(c, holder, sizeof holder);
    status = c->store->locks->take(
        c->store, &(store_lock_request){ STORE_LOCK, name, who, o.lease_us }, &arena, &found, err);
    if (status == WEIR_OK) {
        status = lock_give(&found, out, err);
        if (status != WEIR_OK) { /* nobody would know of it: not held is what was said */
            (void)c->store->locks->release(c->store, name, found.fence, found.token, NULL);
        }
    }
    weir__leave(w);
    weir__arena_free(&arena);
    return status;
}

static weir_status lock_named(const weir_lock *lock, weir_error *err)
{
    return lock != NULL ? WEIR_OK : weir__fail(err, WEIR_EINVAL, "the lock is NULL");
}

int32_t weir_lock_extend(weir *w, const weir_lock *lock, int64_t lease_us, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = lock_named(lock, err);
    if (status == WEIR_OK) {
        status = lease_check(&lease_us, err);
    }
    if (status == WEIR_OK) {
        status = weir__enter_writing(w, &c, err);
    }
    if (status == WEIR_OK) {
        status = c->store->locks->extend(c->store, STORE_LOCK, lock->name, lock->fence, lock->token,
                                         lease_us, err);
        weir__leave(w);
    }
    return status;
}

int32_t weir_lock_release(weir *w, const weir_lock *lock, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = lock_named(lock, err);
    if (status == WEIR_OK) {
        status = weir__enter_writing(w, &c, err);
    }
    if (status == WEIR_OK) {
        status = c->store->locks->release(c->store, lock->name, lock->fence, lock->token, err);
        weir__leave(w);
    }
    return status;
}

void weir_lock_free(const weir_lock *lock)
{
    union {
        const weir_lock *given;
        void *owned; /* what lock_give allocated: const only towards the user */
    } block = { .given = lock };
    weir__free(block.owned);
}

/* ---- once --------------------------------------------------------------------------------- */

static weir_status once_give(const store_lock *from, const weir_once **out, weir_error *err)
{
    weir_once *once =
        weir__malloc(sizeof *once + from->name.len + from->holder.len + from->output.len);
    if (once == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a run");
    }
    char *place = (char *)(once + 1);
    const bool done = from->state == STORE_ONCE_DONE;
    *once = (weir_once){ .size = sizeof *once,
                         .state = done ? WEIR_ONCE_DONE : WEIR_ONCE_RUNNING,
                         .fence = from->fence,
                         .token = from->token,
                         .since_us = from->since_us,
                         .until_us = done ? 0 : from->until_us,
                         .exit_status = done ? from->exit_status : 0,
                         .ended_us = done ? from->ended_us : 0 };
    once->key = text_put(&place, from->name);
    once->holder = text_put(&place, from->holder);
    once->output = text_put(&place, done ? from->output : (weir_str){ .len = 0 });
    *out = once;
    return WEIR_OK;
}

int32_t weir_once_begin(weir *w, weir_str key, const weir_lock_options *options,
                        const weir_once **out, weir_error *err)
{
    weir_lock_options o;
    char holder[HOLDER_BYTES_MAX];
    weir_arena arena = { 0 };
    store_lock found = { 0 };
    weir_core *c = NULL;
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the run: out is NULL");
    }
    weir_status status = request_take(w, "key", key, options, &o, &c, err);
    if (status != WEIR_OK) {
        return status;
    }
    const weir_str who = o.holder.len > 0 ? o.holder : holder_default(c, holder, sizeof holder);
    status = c->store->locks->take(
        c->store, &(store_lock_request){ STORE_ONCE, key, who, o.lease_us }, &arena, &found, err);
    if (status == WEIR_OK) {
        status = once_give(&found, out, err);
        if (status != WEIR_OK && found.state == STORE_ONCE_RUNNING) { /* it was not begun, then */
            const weir_str nothing = { .ptr = "", .len = 0 };
            (void)c->store->locks->finish(c->store, key, found.fence, found.token, 1, nothing,
                                          NULL);
        }
    }
    weir__leave(w);
    weir__arena_free(&arena);
    return status;
}

static weir_status once_ours(const weir_once *once, weir_error *err)
{
    return once == NULL ? weir__fail(err, WEIR_EINVAL, "the run is NULL")
           : once->state != WEIR_ONCE_RUNNING
               ? weir__fail(err, WEIR_EMISUSE, "\"%.*s\" was done before: there is no run to end",
                            (int)once->key.len, once->key.ptr)
               : WEIR_OK;
}

int32_t weir_once_extend(weir *w, const weir_once *once, int64_t lease_us, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = once_ours(once, err);
    if (status == WEIR_OK) {
        status = lease_check(&lease_us, err);
    }
    if (status == WEIR_OK) {
        status = weir__enter_writing(w, &c, err);
    }
    if (status == WEIR_OK) {
        status = c->store->locks->extend(c->store, STORE_ONCE, once->key, once->fence, once->token,
                                         lease_us, err);
        weir__leave(w);
    }
    return status;
}

int32_t weir_once_finish(weir *w, const weir_once *once, int64_t exit_status, weir_str output,
                         weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = once_ours(once, err);
    if (status == WEIR_OK && output.len > STORE_ONCE_OUTPUT_BYTES_MAX) {
        status = weir__fail(err, WEIR_EINVAL, "output has %zu bytes, allowed 0 to %d", output.len,
                            STORE_ONCE_OUTPUT_BYTES_MAX);
    }
    if (status == WEIR_OK) {
        status = weir__enter_writing(w, &c, err);
    }
    if (status == WEIR_OK) {
        const weir_str kept = output.len > 0 ? output : (weir_str){ .ptr = "", .len = 0 };
        status = c->store->locks->finish(c->store, once->key, once->fence, once->token, exit_status,
                                         kept, err);
        weir__leave(w);
    }
    return status;
}

int32_t weir_once_forget(weir *w, weir_str key, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = weir__name_check("key", key, true, err);
    if (status == WEIR_OK) {
        status = weir__enter_writing(w, &c, err);
    }
    if (status == WEIR_OK) {
        status = c->store->locks->forget(c->store, key, err);
        weir__leave(w);
    }
    return status;
}

void weir_once_free(const weir_once *once)
{
    union {
        const weir_once *given;
        void *owned; /* what once_give allocated: const only towards the user */
    } block = { .given = once };
    weir__free(block.owned);
}
