/* settle.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_settle(weir_store *s, store_settle *settle, weir_error *err)
{
    (void)s;
    (void)settle;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_extend(weir_store *s, int64_t lease_us, store_fenced *items, size_t count,
                            weir_error *err)
{
    (void)s;
    (void)lease_us;
    (void)items;
    (void)count;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_release(weir_store *s, store_fenced *items, size_t count, weir_error *err)
{
    (void)s;
    (void)items;
    (void)count;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_block(weir_store *s, int64_t target, int64_t fence, const store_failure *why,
                           weir_error *err)
{
    (void)s;
    (void)target;
    (void)fence;
    (void)why;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_defer(weir_store *s, int64_t target, int64_t fence, int64_t until_us,
                           weir_error *err)
{
    (void)s;
    (void)target;
    (void)fence;
    (void)until_us;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
