/* watch.c - wake-ups: the watches of a core, which keeps as long as one of them is open. */
#include "store/memory/memory_store.h"

void weir__memory_wake(memory_core *c)
{
    weir__watches_wake_locked(&c->watches);
}

weir_status weir__memory_watch_open(weir_store *base, store_watch **out, weir_error *err)
{
    memory_core *c = weir__memory_handle(base)->core;
    weir__memory_core_retain(c);
    const weir_status status = weir__watch_add(&c->watches, c, out, err);
    if (status != WEIR_OK) {
        weir__memory_core_release(c);
    }
    return status;
}

void weir__memory_watch_close(store_watch *watch)
{
    memory_core *c = watch != NULL ? watch->owner : NULL;
    weir__watch_remove(watch);
    if (c != NULL) {
        weir__memory_core_release(c);
    }
}
