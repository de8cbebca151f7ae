/* check.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_stats(weir_store *s, store_stats *out, weir_error *err)
{
    (void)s;
    (void)out;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_check(weir_store *s, store_finding_fn fn, void *ctx, weir_error *err)
{
    (void)s;
    (void)fn;
    (void)ctx;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
