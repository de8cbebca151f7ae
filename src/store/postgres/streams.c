/* streams.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_stream_info(weir_store *s, weir_str stream, weir_arena *arena,
                                 store_stream_info *out, weir_error *err)
{
    (void)s;
    (void)stream;
    (void)arena;
    (void)out;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_streams(weir_store *s, const store_streams_query *q,
                             store_streams_chunk *chunk, weir_error *err)
{
    (void)s;
    (void)q;
    (void)chunk;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_key_owner(weir_store *s, weir_str key, weir_arena *arena, weir_str *stream,
                               weir_error *err)
{
    (void)s;
    (void)key;
    (void)arena;
    (void)stream;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
