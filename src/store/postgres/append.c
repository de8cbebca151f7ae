/* append.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_append(weir_store *s, store_append *const *appends, size_t count,
                            weir_error *err)
{
    (void)s;
    (void)appends;
    (void)count;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_append_in(weir_store *s, void *native, store_append *append, weir_error *err)
{
    (void)s;
    (void)native;
    (void)append;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

void weir__pg_append_params(pg_params *p, store_append *const *appends, size_t count)
{
    (void)p;
    (void)appends;
    (void)count;
}
