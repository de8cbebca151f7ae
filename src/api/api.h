/* api.h - the handle behind weir.h, for the files of this directory, the command line and the
 * tests. */
#ifndef WEIR_API_API_H
#define WEIR_API_API_H

#include "store/committer.h"
#include "store/store.h"
#include "store/url.h"

/* Immutable after weir_open: any thread may use it. What changes has locks of its own. */
struct weir {
    weir_store *store;    /* owned */
    committer *committer; /* owned */
    store_url url;        /* owned */
    uint32_t fork_generation;
    bool readonly;
};

/* The store of a handle, for what weir.h does not offer. Borrowed until weir_close. */
weir_store *weir__store(weir *w);

/* A handle on a store that is already open. url: moved (also on failure); store: moved (also on
 * failure). For stores that are wrapped, and for tests. */
weir_status weir__open_store(weir **out, weir_store *store, store_url *url, weir_error *err);

/* WEIR_EMISUSE in a forked child, WEIR_EINVAL for NULL. Every function of weir.h begins with it. */
weir_status weir__handle_check(const weir *w, weir_error *err);

/* What weir_engine_stop begins with: from now on nothing is leased. Does not wait. It runs. */
void weir__engine_drain(weir_engine *e);
/* Whether all that ran has ended since. Does not wait. */
bool weir__engine_drained(weir_engine *e);

#endif
