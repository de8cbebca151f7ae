/* route.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_route(weir_store *s, const store_route *r, size_t *bad_mark, weir_error *err)
{
    (void)s;
    (void)r;
    (void)bad_mark;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_subscribe(weir_store *s, const store_subscribe *sub, int64_t *target,
                               weir_error *err)
{
    (void)s;
    (void)sub;
    (void)target;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
