/* parked.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_parked(weir_store *s, const store_parked_query *q, store_parked_chunk *chunk,
                            weir_error *err)
{
    (void)s;
    (void)q;
    (void)chunk;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_parked_retry(weir_store *s, int64_t parked, weir_error *err)
{
    (void)s;
    (void)parked;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_parked_drop(weir_store *s, int64_t parked, weir_error *err)
{
    (void)s;
    (void)parked;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
