/* open.c - opening and closing a handle; versions; codes as words. */
#include "api/api.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/struct.h"

#include <string.h>
#include <unistd.h>

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

/* ---- the core ----------------------------------------------------------------------------- */

void weir__core_hold(weir_core *c)
{
    atomic_fetch_add_explicit(&c->holders, 1, memory_order_relaxed);
}

void weir__core_drop(weir_core *c)
{
    if (atomic_fetch_sub_explicit(&c->holders, 1, memory_order_acq_rel) > 1) {
        return;
    }
    /* In a forked child the store belongs to the parent: only our memory is given back. */
    if (c->fork_generation == weir__fork_generation()) {
        weir__committer_close(c->committer);
        c->store->about->close(c->store);
        weir__waits_destroy(&c->waits);
    } else {
        (void)close(weir__waits_fd(&c->waits));
    }
    weir__url_free(&c->url);
    weir__free(c);
}

static void core_end(void *object)
{
    weir__core_drop(object);
}

weir_status weir__core_check(const weir_core *c, weir_error *err)
{
    if (c->fork_generation != weir__fork_generation()) {
        return weir__fail(err, WEIR_EMISUSE,
                          "store was opened before a fork; open it again in the child");
    }
    return atomic_load_explicit(&c->closed, memory_order_relaxed)
               ? weir__fail(err, WEIR_EMISUSE, "store handle was closed")
               : WEIR_OK;
}

weir_status weir__enter(const weir *w, weir_core **out, weir_error *err)
{
    if (w == NULL) {
        return weir__fail(err, WEIR_EINVAL, "store handle is NULL");
    }
    weir_core *c = weir__handle_enter(HANDLE_STORE, w);
    if (c == NULL) {
        return weir__fail(err, WEIR_EMISUSE, "this is not a store handle, or it was closed");
    }
    const weir_status status = weir__core_check(c, err);
    if (status != WEIR_OK) {
        weir__handle_leave(w);
        return status;
    }
    *out = c;
    return WEIR_OK;
}

weir_status weir__enter_writing(const weir *w, weir_core **out, weir_error *err)
{
    const weir_status status = weir__enter(w, out, err);
    if (status == WEIR_OK && (*out)->readonly) {
        weir__leave(w);
        return weir__fail(err, WEIR_EMISUSE, "store was opened for reading only");
    }
    return status;
}

void weir__leave(const weir *w)
{
    weir__handle_leave(w);
}

weir_store *weir__store(weir *w)
{
    weir_core *c = weir__handle_enter(HANDLE_STORE, w);
    WEIR_ASSERT(c != NULL);
    weir__handle_leave(w);
    return c->store;
}

/* ---- opening and closing ------------------------------------------------------------------ */

weir_status weir__open_store(weir **out, weir_store *store, store_url *url, weir_error *err)
{
    weir_core *c = weir__calloc(1, sizeof *c);
    if (c == NULL || !weir__waits_init(&c->waits)) {
        store->about->close(store);
        weir__url_free(url);
        weir__free(c);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store handle");
    }
    c->store = store;
    c->url = *url;
    *url = (store_url){ 0 };
    c->fork_generation = weir__fork_generation();
    c->readonly = (c->url.options.open_flags & WEIR_OPEN_READONLY) != 0;
    c->holders = 1;
    const weir_status status = weir__committer_open(&c->committer, store, err);
    if (status != WEIR_OK) {
        weir__core_drop(c);
        return status;
    }
    weir *w = weir__handle_open(HANDLE_STORE, c, core_end);
    if (w == NULL) {
        weir__core_drop(c);
        return weir__fail(err, WEIR_EBUSY, "%d handles are open already", HANDLES_MAX);
    }
    *out = w;
    return WEIR_OK;
}

int32_t weir_open(const weir_options *options, weir **out, weir_error *err)
{
    weir_options o = { WEIR_OPTIONS_INIT };
    store_url url = { 0 };
    weir_store *store = NULL;
    weir_status status = WEIR_OK;
    const uint32_t known = WEIR_OPEN_EXISTING | WEIR_OPEN_READONLY | WEIR_OPEN_ADOPT;
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the handle: out is NULL");
    }
    if (options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_options", err);
    }
    if (status == WEIR_OK && (o.flags & ~known) != 0) {
        status =
            weir__fail(err, WEIR_EINVAL, "weir_options has unknown flags %u", o.flags & ~known);
    }
    if (status == WEIR_OK) {
        status = weir__url_parse(&url, o.store_url, err);
    }
    if (status == WEIR_OK) {
        url.options.open_flags = o.flags;
        if (o.application != NULL) {
            url.options.application =
                weir__arena_copy(&url.memory, o.application, strlen(o.application));
        }
        status = url.options.application == NULL
                     ? weir__fail(err, WEIR_ENOMEM, "could not allocate a store handle")
                     : weir__store_open(&store, &url, err);
    }
    if (status != WEIR_OK) {
        weir__url_free(&url);
        return status;
    }
    return weir__open_store(out, store, &url, err);
}

void weir_close(weir *w)
{
    weir_core *c = w == NULL ? NULL : weir__handle_shut(HANDLE_STORE, w);
    if (c == NULL) {
        return;
    }
    const bool forked = c->fork_generation != weir__fork_generation();
    if (!forked) {
        atomic_store_explicit(&c->closed, true, memory_order_relaxed);
        weir__waits_close(&c->waits);
    }
    weir__handle_end(w, forked);
}

void weir_interrupt(weir *w)
{
    weir_core *c = NULL;
    if (w != NULL && weir__enter(w, &c, NULL) == WEIR_OK) {
        weir__waits_interrupt(&c->waits);
        weir__leave(w);
    }
}

int32_t weir_version_number(void)
{
    return WEIR_VERSION_NUMBER;
}

const char *weir_version_text(void)
{
    return VALUE(WEIR_VERSION_MAJOR) "." VALUE(WEIR_VERSION_MINOR) "." VALUE(WEIR_VERSION_PATCH);
}

const char *weir_status_text(int32_t status)
{
    switch ((weir_status)status) {
    case WEIR_OK:
        return "ok";
    case WEIR_ENOMEM:
        return "nomem";
    case WEIR_EINVAL:
        return "inval";
    case WEIR_ECONFLICT:
        return "conflict";
    case WEIR_EBUSY:
        return "busy";
    case WEIR_EIO:
        return "io";
    case WEIR_ENOTFOUND:
        return "not-found";
    case WEIR_ECLOSED:
        return "closed";
    case WEIR_EKEYREUSED:
        return "key-reused";
    case WEIR_EINFLIGHT:
        return "in-flight";
    case WEIR_ETAKEN:
        return "taken";
    case WEIR_ELOST:
        return "lost";
    case WEIR_EHELD:
        return "held";
    case WEIR_ECORRUPT:
        return "corrupt";
    case WEIR_ENEWER:
        return "newer";
    case WEIR_EUNAVAILABLE:
        return "unavailable";
    case WEIR_EUNKNOWN:
        return "unknown";
    case WEIR_EREWOUND:
        return "rewound";
    case WEIR_EMISUSE:
        return "misuse";
    case WEIR_EINTERRUPTED:
        return "interrupted";
    }
    return "unknown-status";
}
