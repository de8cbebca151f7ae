/* pg_url.h - from a store URL to a database, as the driver for PostgreSQL knows it (pg/pg.h). */
#ifndef WEIR_STORE_PG_URL_H
#define WEIR_STORE_PG_URL_H

#include "pg/pg.h"
#include "store/store.h"

/* What the connections of this URL have in common; texts are borrowed from the options. owner: of
 * the manner's functions. EINVAL: libpq does not understand the URL, or its schema cannot be the
 * name of one; EUNAVAILABLE: there is no libpq. */
weir_status weir__pg_url_database(pg_database *out, const store_options *options,
                                  const pg_manner *manner, void *owner, weir_error *err);
/* Where the store lives, as it is and as an identifier. */
weir_str weir__pg_url_schema(const store_options *options);
/* In the arena; NULL: out of memory. */
const char *weir__pg_url_schema_quoted(const store_options *options, weir_arena *arena);

#endif
