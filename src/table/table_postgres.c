/* table_postgres.c - the port to tables on PostgreSQL. */
#include "base/error.h"
#include "table/table_private.h"

weir_status weir__table_postgres_open(table_db **out, store_url *url, weir_error *err)
{
    (void)out;
    (void)url;
    return weir__fail(err, WEIR_EMISUSE, "tables in PostgreSQL cannot be worked on yet");
}

weir_status weir__table_postgres_adopt(table_session **out, void *given, weir_error *err)
{
    (void)out;
    (void)given;
    return weir__fail(err, WEIR_EMISUSE, "tables in PostgreSQL cannot be worked on yet");
}
