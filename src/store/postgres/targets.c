/* targets.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_targets(weir_store *s, const store_targets_query *q,
                             store_targets_chunk *chunk, weir_error *err)
{
    (void)s;
    (void)q;
    (void)chunk;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_lanes(weir_store *s, store_lane_list *list, weir_error *err)
{
    (void)s;
    (void)list;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
