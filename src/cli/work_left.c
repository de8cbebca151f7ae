/* work_left.c - what a run of weir work --until-idle has left for people: targets that were blocked
 * and events that were parked since it began. The store is asked, because a target that keeps
 * losing its lease is blocked by the store. */
#include "cli/operate.h"
#include "cli/work.h"

enum { PARKED_PAGE = 500 };

/* A `wants` of cli_target_sink. */
static bool count_blocked(void *ctx, const store_target *t, bool *wanted)
{
    work_left *left = ctx;

    left->blocked += t->blocked && t->blocked_us >= left->since_us ? 1 : 0;
    *wanted = false;
    return true;
}

weir_status weir__work_left(weir_store *store, work_left *left, weir_error *err)
{
    const cli_target_sink sink = { .wants = count_blocked, .ctx = left };
    const store_target_filter filter = { .blocked = true };
    store_parked_query q = { .limit = PARKED_PAGE };
    store_parked_chunk chunk = { .more = true };
    weir_status status = weir__cli_targets_each(store, &filter, INT64_MAX, &sink, err);

    while (status == WEIR_OK && chunk.more) {
        status = store->work->parked(store, &q, &chunk, err);
        for (size_t i = 0; status == WEIR_OK && i < chunk.parked_count; i++) {
            const store_parked *p = &chunk.parked[i];
            left->parked += !p->sent_back && p->parked_us >= left->since_us ? 1 : 0;
            q.after = p->id;
        }
    }
    weir__arena_free(&chunk.arena);
    return status;
}
