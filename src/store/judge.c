/* judge.c - see judge.h. */
#include "store/judge.h"

#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
#include "store/request.h"

#include <string.h>

/* ---- appends ------------------------------------------------------------------------------- */

static bool expectation_holds(const store_append_stream *want, int64_t version)
{
    switch (want->expect) {
    case WEIR_EXPECT_NONE:
        return version == WEIR_VERSION_NONE;
    case WEIR_EXPECT_EXISTS:
        return version != WEIR_VERSION_NONE;
    case WEIR_EXPECT_EXACT:
        return version != WEIR_VERSION_NONE && version == want->version;
    default:
        return true;
    }
}

weir_status weir__stream_judge(const store_append *append, size_t index, int64_t version,
                               bool closed, bool *done, weir_error *err)
{
    const store_append_stream *want = &append->streams[index];
    const bool closing = (append->flags & STORE_APPEND_CLOSE) != 0 && index == 0;
    if (closing && version == WEIR_VERSION_NONE) {
        return weir__stream_unknown(want->name, err);
    }
    if (closed) {
        *done = *done || closing;
        return closing ? WEIR_OK : weir__stream_closed(want->name, err);
    }
    return expectation_holds(want, version) ? WEIR_OK : weir__stream_conflict(want, version, err);
}

weir_status weir__key_judge(const store_append *append, weir_str fingerprint, weir_error *err)
{
    return fingerprint.len == WEIR_SHA256_BYTES &&
                   memcmp(fingerprint.ptr, append->fingerprint, WEIR_SHA256_BYTES) == 0
               ? WEIR_OK
               : weir__key_reused(append->key, err);
}

weir_status weir__key_change_judge(const store_append *append, const store_key_change *change,
                                   weir_str owner, weir_str *after, weir_error *err)
{
    const weir_str stream = append->streams[change->stream_index].name;
    if (owner.len > 0 && !weir__str_equal(owner, stream)) {
        return weir__key_taken(change->key, owner, err);
    }
    *after = change->change == WEIR_KEY_RESERVE ? stream : (weir_str){ 0 };
    return WEIR_OK;
}

/* ---- leases -------------------------------------------------------------------------------- */

weir_status weir__fence_judge(const store_fenced *held, int64_t fence, bool leased, int64_t token,
                              weir_error *err)
{
    if (held->token != 0 && held->token != token) {
        return weir__fail(err, WEIR_ELOST,
                          "the lease is lost: fence %lld was taken before the store was restored",
                          (long long)held->fence);
    }
    if (fence != held->fence) {
        return weir__fail(err, WEIR_ELOST, "the lease is lost: fence %lld, the target is at %lld",
                          (long long)held->fence, (long long)fence);
    }
    return leased ? WEIR_OK
                  : weir__fail(err, WEIR_ELOST, "the lease is lost: nobody holds fence %lld",
                               (long long)fence);
}

bool weir__settle_is_plain(const store_settle *settle)
{
    return settle->parks_count == 0 && settle->parked_done_count == 0 &&
           settle->failure.reaction == 0 &&
           (settle->end == STORE_END_RELEASE || settle->end == STORE_END_KEEP);
}

router_verdict weir__router_judge(const store_reaction *r, int64_t fence, int64_t lease_us,
                                  int64_t now_us)
{
    const bool ours = r->router_until_us != 0 && fence != 0 && fence == r->router_fence;
    if (lease_us == 0) {
        return ours ? ROUTER_ENDS : ROUTER_STAYS;
    }
    if (r->retired || (!ours && r->router_until_us > now_us)) {
        return ROUTER_STAYS;
    }
    return ours ? ROUTER_GOES_ON : ROUTER_BEGINS;
}

/* ---- reactions ----------------------------------------------------------------------------- */

weir_status weir__declared_start(const store_reaction_declaration *d, int64_t end, int64_t *since,
                                 weir_error *err)
{
    *since = d->start == STORE_START_POSITION ? d->start_position
             : d->start == STORE_START_NOW    ? end
                                              : 0;
    return weir__start_check(*since, end, err);
}

int64_t weir__declared_number(const store_reaction_declaration *d, const store_reaction *r,
                              int64_t number)
{
    /* A retired reaction has nobody whose definition could be newer: it comes back as declared. */
    const bool is_older = number < r->current;
    return number == 0 || (is_older && (d->redeclare || r->retired)) ? r->current + 1 : number;
}

weir_status weir__step_judge(const store_route_step *step, const store_reaction *r, weir_error *err)
{
    if (r == NULL) {
        return weir__fail(err, WEIR_ECONFLICT, "no reaction with id %lld",
                          (long long)step->reaction);
    }
    if (r->retired) {
        return weir__fail(err, WEIR_ECONFLICT, "reaction \"%.*s\" is retired", (int)r->name.len,
                          r->name.ptr);
    }
    if (r->current != step->number) {
        return weir__fail(
            err, WEIR_ECONFLICT, "reaction \"%.*s\" has definition %lld, routed with %lld",
            (int)r->name.len, r->name.ptr, (long long)r->current, (long long)step->number);
    }
    return r->routed == step->from
               ? WEIR_OK
               : weir__fail(
                     err, WEIR_ECONFLICT, "reaction \"%.*s\" is routed up to %lld, expected %lld",
                     (int)r->name.len, r->name.ptr, (long long)r->routed, (long long)step->from);
}

bool weir__mark_counts(const store_mark *mark, const store_routed *sub, store_rule rule,
                       int64_t reread_to)
{
    if (sub->found && mark->last <= sub->at) {
        return false;
    }
    return rule != STORE_RULE_WORK || mark->last > reread_to || sub->was_reset;
}

void weir__mark_raise(const store_mark *mark, store_routed *sub)
{
    const int64_t before = mark->first - 1;
    if (!sub->found) {
        *sub = (store_routed){ .found = true, .at = before, .mark = before };
    }
    /* An idle subscription follows the log, or its target would look most lagging. */
    if (sub->at == sub->mark && sub->at < before) {
        sub->at = before;
    }
    sub->mark = mark->last > sub->mark ? mark->last : sub->mark;
    sub->priority = mark->priority;
}

weir_status weir__lane_judge(weir_str target, weir_str has, weir_str wants, weir_error *err)
{
    return weir__str_equal(has, wants)
               ? WEIR_OK
               : weir__fail(err, WEIR_EINVAL,
                            "target \"%.*s\" is in lane \"%.*s\", not in \"%.*s\"", (int)target.len,
                            target.ptr, (int)has.len, has.ptr, (int)wants.len, wants.ptr);
}
