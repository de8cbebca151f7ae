/* read.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_read_stream(weir_store *s, const store_stream_query *q, store_chunk *chunk,
                                 weir_error *err)
{
    (void)s;
    (void)q;
    (void)chunk;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_read_log(weir_store *s, const store_log_query *q, store_chunk *chunk,
                              weir_error *err)
{
    (void)s;
    (void)q;
    (void)chunk;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
