/* watch.h - commands that go on looking at a store: on a full screen, or line by line.
 *
 * A change is seen by looking again, after a wake-up of the store and at least once a second,
 * because a wake-up can be lost and time alone changes states (a backoff that is over). Looking
 * costs a scan, so it is done for at most a fifth of the time.
 */
#ifndef WEIR_CLI_WATCH_H
#define WEIR_CLI_WATCH_H

#include "cli/fullscreen.h"
#include "cli/operate.h"
#include "cli/watch_view.h"

/* What a full screen shows. */
typedef struct watch_source {
    void *ctx;
    /* Reads anew and adds rows to the view, between begin and commit. header: what stands above
     * them, without the time. *complete false: it was given up because weir__fullscreen_asked, and
     * is made again. */
    weir_status (*look)(void *ctx, const fullscreen *screen, watch_view *v, weir_buffer *header,
                        bool *complete, weir_error *err);
    /* The answer of weir why for a row. title: what stands above it. */
    weir_status (*explain)(void *ctx, weir_str key, weir_buffer *title, weir_buffer *text,
                           weir_error *err);
} watch_source;

/* Until q, a signal, or an error of the store. While the store is away, it says so and goes on. */
weir_status weir__watch_screen(cli *c, weir_store *store, watch_view *v, const watch_source *source,
                               weir_error *err);
/* Calls `look` again and again, until a signal comes, nobody reads stdout any more, or it fails. */
weir_status weir__watch_lines(cli *c, weir_store *store,
                              weir_status (*look)(void *ctx, weir_error *err), void *ctx,
                              weir_error *err);

/* targets_screen.c. */
weir_status weir__cli_targets_screen(cli *c, weir_store *store, const store_target_filter *filter,
                                     weir_error *err);
/* What a command would print, into a buffer instead: a copy of the run that keeps its output. Ended
 * by weir__watch_kept_end. */
void weir__watch_kept_begin(cli *kept, const cli *c);
/* Moves what was printed to `text`. WEIR_ENOMEM. */
weir_status weir__watch_kept_end(cli *kept, weir_buffer *text, weir_error *err);

#endif
