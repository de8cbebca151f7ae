/* params.c - see params.h. Numbers travel in network byte order. */
#include "pg/params.h"

#include "base/assert.h"

#include <endian.h>
#include <string.h>

/* PostgreSQL counts time from 2000-01-01. */
#define EPOCH_US INT64_C(946684800000000)

void weir__pg_params_reset(pg_params *p)
{
    weir__buffer_clear(&p->bytes);
    p->count = 0;
    p->failed = false;
    p->array_header = 0;
    p->array_count = 0;
}

void weir__pg_params_free(pg_params *p)
{
    weir__buffer_free(&p->bytes);
    *p = (pg_params){ 0 };
}

static void bytes_put(pg_params *p, const void *ptr, size_t len)
{
    if (!p->failed && len > 0 && !weir__buffer_add(&p->bytes, ptr, len)) {
        p->failed = true;
    }
}

static void put_i32(pg_params *p, int32_t value)
{
    const uint32_t big = htobe32((uint32_t)value);
    bytes_put(p, &big, sizeof big);
}

static void put_i64(pg_params *p, int64_t value)
{
    const uint64_t big = htobe64((uint64_t)value);
    bytes_put(p, &big, sizeof big);
}

/* A new parameter whose value begins at the end of the buffer; false: there is no room for it. */
static bool param_begin(pg_params *p, Oid type)
{
    WEIR_ASSERT(p->array_header == 0);
    if (p->count == PG_PARAMS_MAX) {
        p->failed = true;
        return false;
    }
    p->types[p->count] = type;
    p->offsets[p->count] = p->bytes.len;
    p->count++;
    return true;
}

static void param_end(pg_params *p)
{
    const size_t len = p->bytes.len - p->offsets[p->count - 1];
    if (len > INT32_MAX) {
        p->failed = true;
        return;
    }
    p->lengths[p->count - 1] = (int)len;
}

void weir__pg_add_null(pg_params *p, Oid type)
{
    if (param_begin(p, type)) {
        p->offsets[p->count - 1] = SIZE_MAX;
        p->lengths[p->count - 1] = 0;
    }
}

void weir__pg_add_i64(pg_params *p, int64_t value)
{
    if (param_begin(p, PG_OID_INT8)) {
        put_i64(p, value);
        param_end(p);
    }
}

void weir__pg_add_i32(pg_params *p, int32_t value)
{
    if (param_begin(p, PG_OID_INT4)) {
        put_i32(p, value);
        param_end(p);
    }
}

void weir__pg_add_bool(pg_params *p, bool value)
{
    const char byte = value ? 1 : 0;
    if (param_begin(p, PG_OID_BOOL)) {
        bytes_put(p, &byte, 1);
        param_end(p);
    }
}

static void add_typed_text(pg_params *p, Oid type, weir_str value)
{
    if (param_begin(p, type)) {
        bytes_put(p, value.ptr, value.len);
        param_end(p);
    }
}

void weir__pg_add_text(pg_params *p, weir_str value)
{
    add_typed_text(p, PG_OID_TEXT, value);
}

void weir__pg_add_json(pg_params *p, weir_str value)
{
    add_typed_text(p, PG_OID_JSON, value);
}

void weir__pg_add_bytes(pg_params *p, const void *ptr, size_t len)
{
    if (param_begin(p, PG_OID_BYTEA)) {
        bytes_put(p, ptr, len);
        param_end(p);
    }
}

/* ---- arrays ------------------------------------------------------------------------------- */

static Oid element_type(Oid array_type)
{
    switch (array_type) {
    case PG_OID_BOOL_ARRAY:
        return PG_OID_BOOL;
    case PG_OID_BYTEA_ARRAY:
        return PG_OID_BYTEA;
    case PG_OID_INT4_ARRAY:
        return PG_OID_INT4;
    case PG_OID_INT8_ARRAY:
        return PG_OID_INT8;
    case PG_OID_JSON_ARRAY:
        return PG_OID_JSON;
    default:
        WEIR_ASSERT(array_type == PG_OID_TEXT_ARRAY);
        return PG_OID_TEXT;
    }
}

/* One dimension, elements from 1 on. The length and the flag for NULLs are put in by array_end; the
 * place of the header is kept with 1 added, so that 0 says there is none. */
enum { ARRAY_HEADER_BYTES = 20, ARRAY_FLAG_AT = 4, ARRAY_LENGTH_AT = 12 };

void weir__pg_array_begin(pg_params *p, Oid array_type)
{
    if (!param_begin(p, array_type)) {
        return;
    }
    p->array_header = p->bytes.len + 1;
    p->array_count = 0;
    p->array_has_null = false;
    put_i32(p, 1);
    put_i32(p, 0);
    put_i32(p, (int32_t)element_type(array_type));
    put_i32(p, 0);
    put_i32(p, 1);
}

void weir__pg_push_i64(pg_params *p, int64_t value)
{
    put_i32(p, (int32_t)sizeof value);
    put_i64(p, value);
    p->array_count++;
}

void weir__pg_push_i32(pg_params *p, int32_t value)
{
    put_i32(p, (int32_t)sizeof value);
    put_i32(p, value);
    p->array_count++;
}

void weir__pg_push_bool(pg_params *p, bool value)
{
    const char byte = value ? 1 : 0;
    put_i32(p, 1);
    bytes_put(p, &byte, 1);
    p->array_count++;
}

void weir__pg_push_text(pg_params *p, weir_str value)
{
    if (value.len > INT32_MAX) {
        p->failed = true;
        return;
    }
    put_i32(p, (int32_t)value.len);
    bytes_put(p, value.ptr, value.len);
    p->array_count++;
}

void weir__pg_push_null(pg_params *p)
{
    put_i32(p, -1);
    p->array_has_null = true;
    p->array_count++;
}

void weir__pg_array_end(pg_params *p)
{
    const size_t header = p->array_header - 1;
    const bool begun = p->array_header != 0;
    p->array_header = 0;
    if (!begun || p->failed) {
        return;
    }
    if (p->array_count > INT32_MAX) {
        p->failed = true;
        return;
    }
    const uint32_t count = htobe32((uint32_t)p->array_count);
    const uint32_t flag = htobe32(p->array_has_null ? 1 : 0);
    memcpy(p->bytes.ptr + header + ARRAY_FLAG_AT, &flag, sizeof flag);
    memcpy(p->bytes.ptr + header + ARRAY_LENGTH_AT, &count, sizeof count);
    if (p->array_count == 0) {
        /* An empty array has no dimension. */
        memset(p->bytes.ptr + header, 0, 4);
        p->bytes.len = header + ARRAY_LENGTH_AT;
    }
    param_end(p);
}

void weir__pg_add_i64_array(pg_params *p, const int64_t *values, size_t count)
{
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i64(p, values[i]);
    }
    weir__pg_array_end(p);
}

void weir__pg_add_text_array(pg_params *p, const weir_str *values, size_t count)
{
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_text(p, values[i]);
    }
    weir__pg_array_end(p);
}

/* ---- results ------------------------------------------------------------------------------ */

int64_t weir__pg_i64(const PGresult *result, int row, int column)
{
    uint64_t big;
    WEIR_ASSERT(pq.PQgetlength(result, row, column) == (int)sizeof big);
    memcpy(&big, pq.PQgetvalue(result, row, column), sizeof big);
    return (int64_t)be64toh(big);
}

int32_t weir__pg_i32(const PGresult *result, int row, int column)
{
    uint32_t big;
    WEIR_ASSERT(pq.PQgetlength(result, row, column) == (int)sizeof big);
    memcpy(&big, pq.PQgetvalue(result, row, column), sizeof big);
    return (int32_t)be32toh(big);
}

bool weir__pg_bool(const PGresult *result, int row, int column)
{
    WEIR_ASSERT(pq.PQgetlength(result, row, column) == 1);
    return *pq.PQgetvalue(result, row, column) != 0;
}

weir_str weir__pg_text(const PGresult *result, int row, int column)
{
    return (weir_str){ .ptr = pq.PQgetvalue(result, row, column),
                       .len = (size_t)pq.PQgetlength(result, row, column) };
}

int64_t weir__pg_time_us(const PGresult *result, int row, int column)
{
    return weir__pg_i64(result, row, column) + EPOCH_US;
}

bool weir__pg_null(const PGresult *result, int row, int column)
{
    return pq.PQgetisnull(result, row, column) != 0;
}

int64_t weir__pg_i64_or(const PGresult *result, int row, int column, int64_t otherwise)
{
    return weir__pg_null(result, row, column) ? otherwise : weir__pg_i64(result, row, column);
}

bool weir__pg_text_copy(weir_arena *arena, const PGresult *result, int row, int column,
                        weir_str *out)
{
    const weir_str text = weir__pg_text(result, row, column);
    out->ptr = weir__arena_copy(arena, text.ptr, text.len);
    out->len = text.len;
    return out->ptr != NULL;
}
