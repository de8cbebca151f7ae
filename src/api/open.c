/* open.c - opening and closing a handle; versions; codes as words. */
#include "api/api.h"
#include "base/error.h"
#include "base/struct.h"

#include <string.h>

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

weir_store *weir__store(weir *w)
{
    return w->store;
}

weir_status weir__handle_check(const weir *w, weir_error *err)
{
    if (w == NULL) {
        return weir__fail(err, WEIR_EINVAL, "store handle is NULL");
    }
    if (w->fork_generation != weir__fork_generation()) {
        return weir__fail(err, WEIR_EMISUSE,
                          "store was opened before a fork; open it again in the child");
    }
    return WEIR_OK;
}

weir_status weir__open_store(weir **out, weir_store *store, store_url *url, weir_error *err)
{
    weir *w = weir__calloc(1, sizeof *w);
    if (w == NULL) {
        store->ops->close(store);
        weir__url_free(url);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a store handle");
    }
    w->store = store;
    w->url = *url;
    *url = (store_url){ 0 };
    w->fork_generation = weir__fork_generation();
    w->readonly = (w->url.options.open_flags & WEIR_OPEN_READONLY) != 0;
    const weir_status status = weir__committer_open(&w->committer, store, err);
    if (status != WEIR_OK) {
        weir_close(w);
        return status;
    }
    *out = w;
    return WEIR_OK;
}

int32_t weir_open(weir **out, const weir_options *options, weir_error *err)
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
    if (w == NULL) {
        return;
    }
    /* In a forked child the store belongs to the parent: only our memory is given back. */
    if (w->fork_generation == weir__fork_generation()) {
        weir__committer_close(w->committer);
        w->store->ops->close(w->store);
    }
    weir__url_free(&w->url);
    weir__free(w);
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
    }
    return "unknown-status";
}
