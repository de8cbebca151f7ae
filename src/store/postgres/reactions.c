/* reactions.c */
#include "base/error.h"
#include "store/postgres/postgres_private.h"

weir_status weir__pg_declare(weir_store *s, const store_reaction_declaration *d,
                             weir_arena *arena, store_reaction *out, weir_error *err)
{
    (void)s;
    (void)d;
    (void)arena;
    (void)out;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_reactions(weir_store *s, store_reaction_list *list, weir_error *err)
{
    (void)s;
    (void)list;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_retire(weir_store *s, weir_str name, weir_error *err)
{
    (void)s;
    (void)name;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}

weir_status weir__pg_router_lease(weir_store *s, weir_str holder, int64_t lease_us,
                                  store_router_lease *items, size_t count, weir_error *err)
{
    (void)s;
    (void)holder;
    (void)lease_us;
    (void)items;
    (void)count;
    return weir__fail(err, WEIR_EMISUSE, "not built yet");
}
