/* params.h - the parameters of one statement and the values of its result, in PostgreSQL's binary
 * format: no escaping, no limit of 65,535, exact 64-bit numbers.
 *
 *     pg_params p = { 0 };
 *     weir__pg_add_i64(&p, target);
 *     weir__pg_add_text_array(&p, names, names_count);
 *     status = weir__pg_call(s, &(pg_call){ .sql = sql_lease, .params = &p }, &result, err);
 *     weir__pg_params_free(&p);
 *
 * Adding never fails visibly: what could not be added is remembered, and running the statement is
 * then WEIR_ENOMEM. Values are copied into the buffer.
 */
#ifndef WEIR_PG_PARAMS_H
#define WEIR_PG_PARAMS_H

#include "base/memory.h"
#include "pg/libpq.h"

#include <stdbool.h>

enum { PG_PARAMS_MAX = 48 };

/* Object ids of the types, which never change. */
enum {
    PG_OID_BOOL = 16,
    PG_OID_BYTEA = 17,
    PG_OID_INT8 = 20,
    PG_OID_INT4 = 23,
    PG_OID_TEXT = 25,
    PG_OID_JSON = 114,
    PG_OID_JSON_ARRAY = 199,
    PG_OID_BOOL_ARRAY = 1000,
    PG_OID_BYTEA_ARRAY = 1001,
    PG_OID_INT4_ARRAY = 1007,
    PG_OID_INT8_ARRAY = 1016,
    PG_OID_TEXT_ARRAY = 1009,
};

typedef struct pg_params {
    weir_buffer bytes;
    int count;
    bool failed;         /* out of memory, or too many */
    size_t array_header; /* of the array that is being built: where it begins, plus 1; 0: none */
    size_t array_count;
    bool array_has_null;
    Oid types[PG_PARAMS_MAX];
    size_t offsets[PG_PARAMS_MAX]; /* into bytes; SIZE_MAX: NULL */
    int lengths[PG_PARAMS_MAX];
} pg_params;

void weir__pg_params_reset(pg_params *p); /* empty again, keeps its memory */
void weir__pg_params_free(pg_params *p);  /* zeroed is fine */

void weir__pg_add_null(pg_params *p, Oid type);
void weir__pg_add_i64(pg_params *p, int64_t value);
void weir__pg_add_i32(pg_params *p, int32_t value);
void weir__pg_add_bool(pg_params *p, bool value);
void weir__pg_add_text(pg_params *p, weir_str value); /* empty is '', not NULL */
void weir__pg_add_json(pg_params *p, weir_str value); /* valid JSON */
void weir__pg_add_bytes(pg_params *p, const void *ptr, size_t len);

/* Arrays: begin, push each element, end. Elements are of the array's type. */
void weir__pg_array_begin(pg_params *p, Oid array_type);
void weir__pg_push_i64(pg_params *p, int64_t value);
void weir__pg_push_i32(pg_params *p, int32_t value);
void weir__pg_push_bool(pg_params *p, bool value);
void weir__pg_push_text(pg_params *p, weir_str value); /* also bytea */
void weir__pg_push_null(pg_params *p);
void weir__pg_array_end(pg_params *p);

void weir__pg_add_i64_array(pg_params *p, const int64_t *values, size_t count);
void weir__pg_add_text_array(pg_params *p, const weir_str *values, size_t count);

/* ---- results ------------------------------------------------------------------------------ */

/* The value of a column that is not NULL and has this type. Texts are borrowed from the result. */
int64_t weir__pg_i64(const PGresult *result, int row, int column);
int32_t weir__pg_i32(const PGresult *result, int row, int column);
bool weir__pg_bool(const PGresult *result, int row, int column);
weir_str weir__pg_text(const PGresult *result, int row, int column);   /* text, json, bytea */
int64_t weir__pg_time_us(const PGresult *result, int row, int column); /* timestamptz, since 1970 */
bool weir__pg_null(const PGresult *result, int row, int column);
/* NULL: `otherwise`. */
int64_t weir__pg_i64_or(const PGresult *result, int row, int column, int64_t otherwise);
/* A NUL-terminated copy in an arena (NULL: empty). false: out of memory. */
bool weir__pg_text_copy(weir_arena *arena, const PGresult *result, int row, int column,
                        weir_str *out);

#endif
