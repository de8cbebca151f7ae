/* fetch.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_fetch(weir_store *s, const store_fetch_item *items, size_t count,
                           store_fetch_list *list, weir_error *err)
{
    (void)s;
    (void)items;
    (void)count;
    (void)list;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
