/* workers.c - who works at the moment, as far as the store was told.
 *
 * The list is a hint: a worker that was killed stays in it until its time is over. So it explains
 * why nothing happens, and decides nothing.
 */
#include "cli/operate.h"

weir_status weir__cli_workers_read(weir_store *store, cli_workers *w, weir_error *err)
{
    const weir_status status = store->about->workers(store, &w->list, err);

    return status == WEIR_OK ? store->about->now(store, &w->now_us, err) : status;
}

void weir__cli_workers_free(cli_workers *w)
{
    weir__arena_free(&w->list.arena);
}

bool weir__cli_worker_works(const cli_workers *w, const store_worker *worker)
{
    return worker->until_us > w->now_us && !worker->draining;
}

bool weir__cli_worker_serves(const store_worker *worker, weir_str lane)
{
    for (size_t i = 0; i < worker->lanes_count; i++) {
        if (weir__str_equal(worker->lanes[i], lane)) {
            return true;
        }
    }
    return false;
}

bool weir__cli_worker_knows(const store_worker *worker, const store_reaction *reaction)
{
    for (size_t i = 0; i < worker->known_count; i++) {
        if (worker->known[i].reaction == reaction->id &&
            worker->known[i].number == reaction->current) {
            return true;
        }
    }
    return false;
}

size_t weir__cli_workers_count(const cli_workers *w, const weir_str *lane,
                               const store_reaction *reaction)
{
    size_t count = 0;

    for (size_t i = 0; i < w->list.workers_count; i++) {
        const store_worker *worker = &w->list.workers[i];
        if (weir__cli_worker_works(w, worker) &&
            (lane == NULL || weir__cli_worker_serves(worker, *lane)) &&
            (reaction == NULL || weir__cli_worker_knows(worker, reaction))) {
            count++;
        }
    }
    return count;
}

const store_worker *weir__cli_worker_named(const cli_workers *w, weir_str holder)
{
    for (size_t i = 0; i < w->list.workers_count; i++) {
        if (w->list.workers[i].name.len > 0 &&
            weir__str_starts_with(holder, w->list.workers[i].name)) {
            return &w->list.workers[i];
        }
    }
    return NULL;
}
