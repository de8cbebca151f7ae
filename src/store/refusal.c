/* refusal.c - see refusal.h. */
#include "store/refusal.h"

#include "base/error.h"
#include "base/str.h"

#include <string.h>

/* ---- appends ------------------------------------------------------------------------------- */

weir_status weir__stream_unknown(weir_str stream, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_ENOTFOUND, "no stream \"%.*s\"", (int)stream.len, stream.ptr);
    weir__error_stream(err, stream);
    return status;
}

weir_status weir__stream_closed(weir_str stream, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_ECLOSED, "stream \"%.*s\" is closed", (int)stream.len, stream.ptr);
    weir__error_stream(err, stream);
    return status;
}

weir_status weir__stream_conflict(const store_append_stream *want, int64_t version, weir_error *err)
{
    const int64_t expected = want->expect == WEIR_EXPECT_NONE     ? WEIR_VERSION_NONE
                             : want->expect == WEIR_EXPECT_EXISTS ? WEIR_VERSION_EXISTS
                                                                  : want->version;
    return weir__fail_conflict(err, want->name, expected, version);
}

weir_status weir__key_reused(weir_str key, weir_error *err)
{
    return weir__fail(err, WEIR_EKEYREUSED, "idempotency key \"%.*s\" was used with other content",
                      (int)key.len, key.ptr);
}

weir_status weir__key_taken(weir_str key, weir_str owner, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_ETAKEN, "key \"%.*s\" belongs to stream \"%.*s\"", (int)key.len,
                   key.ptr, (int)owner.len, owner.ptr);
    weir__error_stream(err, owner);
    return status;
}

void weir__append_not_tried(store_append *append)
{
    append->replayed = false;
    append->alone = false;
    append->status =
        weir__fail(append->err, WEIR_EMISUSE, "not tried: the append before it was refused");
}

void weir__named_add(store_named *names, weir_str name)
{
    const size_t comma = names->len == 0 ? 0 : 2;
    const size_t room = sizeof names->text - names->len - sizeof ", ...";
    if (names->is_cut) {
        return;
    }
    names->is_cut = comma + name.len > room;
    if (names->is_cut) { /* of the first one at least a part */
        name.len = comma > 0 ? 0 : weir__utf8_valid_prefix(name.ptr, room);
    }
    memcpy(names->text + names->len, ", ", comma);
    memcpy(names->text + names->len + comma, name.ptr, name.len);
    names->len += comma + name.len;
    if (names->is_cut) {
        memcpy(names->text + names->len, "...", 3);
        names->len += 3;
    }
}

weir_status weir__stream_unhandled(weir_str stream, const store_named *reactions, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_EHELD, "stream \"%.*s\" has events that were not handled by: %.*s",
                   (int)stream.len, stream.ptr, (int)reactions->len, reactions->text);
    weir__error_stream(err, stream);
    return status;
}

/* ---- targets and reactions ------------------------------------------------------------------- */

weir_status weir__target_unknown(int64_t target, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "no target with id %lld", (long long)target);
}

weir_status weir__target_not_named(weir_str name, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "no target \"%.*s\"", (int)name.len, name.ptr);
}

weir_status weir__reaction_not_named(weir_str name, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "no reaction \"%.*s\"", (int)name.len, name.ptr);
}

weir_status weir__parked_unknown(int64_t parked, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "no parked event with id %lld", (long long)parked);
}

weir_status weir__parked_targetless(int64_t parked, weir_error *err)
{
    const weir_status status = weir__fail(
        err, WEIR_EMISUSE, "parked event %lld was parked while routing and has no target",
        (long long)parked);
    weir__error_detail(err, "Its reaction could not say which target it is for. Reset the "
                            "reaction's targets once it can, and drop this one.");
    return status;
}

weir_status weir__snapshot_unknown(weir_str stream, weir_error *err)
{
    const weir_status status = weir__fail(err, WEIR_ENOTFOUND, "no snapshot of stream \"%.*s\"",
                                          (int)stream.len, stream.ptr);
    weir__error_stream(err, stream);
    return status;
}

weir_status weir__subscription_unknown(int64_t target, int64_t reaction, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "target %lld has no subscription of reaction %lld",
                      (long long)target, (long long)reaction);
}

weir_status weir__settle_sql_ended(const char *remains, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_EMISUSE, "the SQL of a settle has ended its transaction");
    weir__error_detail(err,
                       "It runs inside a transaction of the store's and must not commit or roll "
                       "back. %s",
                       remains);
    return status;
}
