/* api.h - the handle behind weir.h, for the files of this directory, the command line and the
 * tests.
 *
 * A weir * is a ticket (base/handle.h). What it stands for is a weir_core, shared by the handle,
 * its readers and its engines. They may end in any order; the last one closes the store.
 */
#ifndef WEIR_API_API_H
#define WEIR_API_API_H

#include "api/waits.h"
#include "store/committer.h"
#include "store/store.h"
#include "store/url.h"

/* Immutable after weir_open, except for what is atomic or has its own lock: any thread may use
 * it. */
typedef struct weir_core {
    weir_store *store;    /* owned */
    committer *committer; /* owned */
    store_url url;        /* owned */
    uint32_t fork_generation;
    bool readonly;
    wait_list waits;        /* see there */
    _Atomic size_t holders; /* the handle, readers, engines */
    _Atomic bool closed;    /* weir_close was called */
} weir_core;

/* Every function of weir.h that takes a handle begins with it; weir__leave ends it. WEIR_EINVAL for
 * NULL, WEIR_EMISUSE when it was closed, and in a forked child. */
weir_status weir__enter(const weir *w, weir_core **out, weir_error *err);
/* The same for what changes something: WEIR_EMISUSE also when it was opened for reading only. */
weir_status weir__enter_writing(const weir *w, weir_core **out, weir_error *err);
void weir__leave(const weir *w);

/* For readers and engines: the core lives until it is dropped. Inside a call. */
void weir__core_hold(weir_core *c);
void weir__core_drop(weir_core *c);
/* WEIR_EMISUSE: closed, or in a forked child. */
weir_status weir__core_check(const weir_core *c, weir_error *err);

/* The store of a handle, for what weir.h does not offer. Borrowed until weir_close. */
weir_store *weir__store(weir *w);

/* A handle on a store that is already open. url: moved (also on failure); store: moved (also on
 * failure). For stores that are wrapped, and for tests. */
weir_status weir__open_store(weir **out, weir_store *store, store_url *url, weir_error *err);

/* What weir_engine_stop begins with: from now on nothing is leased. Does not wait. It runs. */
void weir__engine_drain(weir_engine *ticket);
/* Whether its store is damaged or was taken away, and how: it does no more work. */
bool weir__engine_damaged(weir_engine *ticket, weir_error *how);
/* Whether all that ran has ended since. Does not wait. */
bool weir__engine_drained(weir_engine *ticket);
/* How many events its handlers have handled, and failed to, so far. false: it does not run. */
bool weir__engine_counted(weir_engine *ticket, int64_t *handled, int64_t *failed);
/* Whether it has nothing to do itself at the moment: no handler runs, and what it routes is routed.
 * name: what its worker is called in the store, `bytes` with the NUL. */
bool weir__engine_rests(weir_engine *ticket, char *name, size_t bytes);

/* claim_words.c. Turns the flags that an error of src/claim/ names into fields; returns status. */
weir_status weir__claim_words(weir_status status, weir_error *err);

#endif
