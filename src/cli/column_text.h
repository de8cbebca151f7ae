/* column_text.h - what a column, an order or a value looks like in flags and in weir.yaml.
 *
 * A column's name stands as the database has it. One with a comma, an equals sign or a quote in it
 * is written between double quotes, as in SQL.
 */
#ifndef WEIR_CLI_COLUMN_TEXT_H
#define WEIR_CLI_COLUMN_TEXT_H

#include "claim/claim.h"

/* Texts that were taken live in `arena`, or are slices of `text`. EINVAL: what was expected;
 * ENOMEM. */

/* COLUMN=REST. */
weir_status weir__cli_column_pair(weir_str text, weir_arena *arena, weir_str *column,
                                  weir_str *rest, weir_error *err);
/* COLUMN[ desc|asc],... */
weir_status weir__cli_column_order(weir_str text, weir_arena *arena, const claim_order **order,
                                   size_t *count, weir_error *err);

#endif
