/* url.h - from a store URL to store_options, and to an open store. */
#ifndef WEIR_STORE_URL_H
#define WEIR_STORE_URL_H

#include "store/store.h"

typedef struct store_url {
    store_options options; /* path and vfs point into `memory` */
    const char *scheme;    /* "postgres", "sqlite" or "memory", static */
    weir_arena memory;     /* owned */
} store_url;

/* EINVAL: unknown scheme or parameter, a value out of range. NULL is sqlite:weir.db. The clock is
 * the machine's and the application "weir" unless the caller changes them afterwards. */
weir_status weir__url_parse(store_url *out, const char *url, weir_error *err);
void weir__url_free(store_url *url); /* zeroed is fine */

/* Opens the store a URL names. *out: owned, ended by about->close. */
weir_status weir__store_open(weir_store **out, const store_url *url, weir_error *err);

#endif
