/* secrets.h - passwords that stand in a PostgreSQL URL, and keeping them out of everything that is
 * shown: postgres://USER:PASSWORD@HOST/DATABASE?password=...&sslpassword=...
 *
 * A URL is not decoded for this and need not be well-formed: where it is not clear what is part of
 * a password, it counts as one.
 */
#ifndef WEIR_STORE_SECRETS_H
#define WEIR_STORE_SECRETS_H

#include "base/memory.h"
#include "weir.h"

/* The URL with *** in place of each password. false: out of memory. */
bool weir__url_shown(weir_buffer *out, weir_str url);
/* The URL without passwords, for programs that ask for them or find them elsewhere (~/.pgpass).
 * false: out of memory. */
bool weir__url_without_passwords(weir_buffer *out, weir_str url);

/* Puts *** where the message or the detail has a password of the URL, as it is written there or
 * decoded. */
void weir__url_scrub(weir_str url, weir_error *err);

/* EINVAL: the password holds a character that libpq would take for the end of it. The message does
 * not show it; libpq's would show a part. */
weir_status weir__url_check_password(weir_str url, weir_error *err);

#endif
