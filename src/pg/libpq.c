/* libpq.c - see libpq.h. */
#include "pg/libpq.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

weir_libpq weir__libpq;

static pthread_once_t loaded_once = PTHREAD_ONCE_INIT;
/* Written once, before weir__libpq_load returns anywhere. */
static bool loaded;
static char why[256];

static bool symbol_load(void *library, const char *name, void *slot)
{
    void *address = dlsym(library, name);
    if (address == NULL) {
        return false;
    }
    /* A function pointer in a void *, as POSIX wants it; a cast would be undefined in C. */
    memcpy(slot, &address, sizeof address);
    return true;
}

static void library_load(void)
{
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;
    if (library == NULL) {
        /* Of this thread since glibc 2.34 at the latest, and run once. */
        const char *reason = dlerror(); /* NOLINT(concurrency-mt-unsafe) */
        strncpy(why, reason != NULL ? reason : "libpq.so.5 is not there", sizeof why - 1);
        return;
    }
#define X(name)                                                                                    \
    if (missing == NULL && !symbol_load(library, #name, &weir__libpq.name)) {                      \
        missing = #name;                                                                           \
    }
    LIBPQ_FUNCTIONS(X)
#undef X
    if (missing != NULL) {
        strncpy(why, "it is too old: it lacks ", sizeof why - 1);
        strncat(why, missing, sizeof why - strlen(why) - 1);
        (void)dlclose(library);
        return;
    }
    loaded = true; /* and stays: connections may outlive any one store */
}

weir_status weir__libpq_load(weir_error *err)
{
    (void)pthread_once(&loaded_once, library_load);
    if (!loaded) {
        return weir__fail(err, WEIR_EUNAVAILABLE,
                          "could not load PostgreSQL's client library (Debian: apt-get install "
                          "libpq5): %s",
                          why);
    }
    return WEIR_OK;
}
