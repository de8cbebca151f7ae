/* safe.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_positions(weir_store *s, store_positions *out, weir_error *err)
{
    (void)s;
    (void)out;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_holders(weir_store *s, store_holder_list *list, weir_error *err)
{
    (void)s;
    (void)list;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_safe_open(pg_safe **out, pg_store *s, weir_error *err)
{
    (void)s;
    (void)err;
    *out = NULL;
    return WEIR_OK;
}

void weir__pg_safe_close(pg_safe *safe)
{
    (void)safe;
}

void weir__pg_safe_connected(pg_safe *safe, const pg_server *server)
{
    (void)safe;
    (void)server;
}
