/* operate.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_operate(weir_store *s, store_operate *op, weir_error *err)
{
    (void)s;
    (void)op;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_lane_pause(weir_store *s, weir_str lane, bool paused, weir_str by,
                                bool *changed, weir_error *err)
{
    (void)s;
    (void)lane;
    (void)paused;
    (void)by;
    (void)changed;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
