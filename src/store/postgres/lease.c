/* lease.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_lease(weir_store *s, const store_lease_request *r, store_lease_list *list,
                           weir_error *err)
{
    (void)s;
    (void)r;
    (void)list;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_poll(weir_store *s, store_poll *poll, weir_error *err)
{
    (void)s;
    (void)poll;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
