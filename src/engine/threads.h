/* threads.h - the scheduler of a real worker: a thread per task, and one that watches the store.
 *
 *     weir__threads_open(&t, &err);                       a scheduler, no threads yet
 *     weir__worker_open(..., weir__threads_scheduler(t), ...);
 *     weir__threads_start(t, tasks, count, &err);         every task at once, then as it says
 *     weir__threads_watch(t, store, fn, ctx, &err);       fn is called when the store was woken
 *     weir__threads_stop(t, until_us);                    no step begins any more
 *     weir__threads_free(t);                              after all have ended
 */
#ifndef WEIR_ENGINE_THREADS_H
#define WEIR_ENGINE_THREADS_H

#include "engine/task.h"
#include "store/store.h"

typedef struct threads threads;

weir_status weir__threads_open(threads **out, weir_error *err);
/* Borrowed until weir__threads_free. */
scheduler *weir__threads_scheduler(threads *t);

/* Once. tasks: borrowed until weir__threads_free; their scheduler is set. On failure everything
 * that was started is stopped again. */
weir_status weir__threads_start(threads *t, task *const *tasks, size_t count, weir_error *err);

/* Called on the watching thread, also once after each time the watch had to be opened again. Must
 * not block for long. */
typedef void (*threads_watch_fn)(void *ctx);
/* Once. store: borrowed until weir__threads_stop. */
weir_status weir__threads_watch(threads *t, weir_store *store, threads_watch_fn fn, void *ctx,
                                weir_error *err);

/* No step is begun any more; waits for those that run until `until_us` (monotonic). true: all
 * threads have ended. May be called again. */
bool weir__threads_stop(threads *t, int64_t until_us);
/* Stops, waits for as long as steps run, frees. NULL is a no-op. */
void weir__threads_free(threads *t);

#endif
