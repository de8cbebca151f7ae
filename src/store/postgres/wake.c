/* wake.c */
#include "store/postgres/postgres_private.h"

weir_status weir__pg_wake_open(pg_wake **out, pg_store *s, weir_error *err)
{
    (void)s;
    (void)err;
    *out = NULL;
    return WEIR_OK;
}

void weir__pg_wake_close(pg_wake *w)
{
    (void)w;
}

void weir__pg_wake(pg_store *s)
{
    (void)s;
}
