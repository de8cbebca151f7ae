/* watch.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_watch_open(weir_store *s, store_watch **out, weir_error *err)
{
    (void)s;
    (void)out;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken,
                                weir_error *err)
{
    (void)watch;
    (void)timeout_ms;
    (void)woken;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

int weir__pg_watch_fd(store_watch *watch)
{
    (void)watch;
    return -1;
}

void weir__pg_watch_close(store_watch *watch)
{
    (void)watch;
}
