/* watch.c - the loop of a command that goes on looking: look, show, wait. */
#include "cli/watch.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    WATCH_LOOK_MS = 1000,  /* the longest without a look                    */
    WATCH_PAUSE_MS = 100,  /* the shortest between two                      */
    WATCH_REST_FACTOR = 4, /* it rests at least this many times as long as the last look took */
};

static int64_t mono_ms(void)
{
    return weir__clock_mono(weir__clock_machine()) / 1000;
}

/* How long to rest after a look that took so long. */
static int64_t rest_ms(int64_t took_ms)
{
    const int64_t rest = took_ms * WATCH_REST_FACTOR;

    return rest < WATCH_PAUSE_MS ? WATCH_PAUSE_MS : rest;
}

static int timeout_ms(int64_t span_ms)
{
    return span_ms < 0 ? 0 : span_ms > INT32_MAX ? INT32_MAX : (int)span_ms;
}

/* ---- on a full screen ----------------------------------------------------------------------- */

typedef struct watching {
    cli *c;
    weir_store *store;
    store_watch *watch; /* owned */
    fullscreen *screen; /* owned */
    watch_view *v;
    const watch_source *source;
    weir_buffer header; /* of the last look that was complete */
    weir_buffer top;    /* the line that is drawn: that, trouble, the time */
    char trouble[256];  /* why the store could not be asked; "": it could */
    int64_t rest_until_ms, look_at_ms;
    bool explains; /* the text over the list is an explanation */
} watching;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

/* As wide as the terminal is now, unless every column is wanted whole. */
static void screen_measure(watching *w)
{
    weir__cli_screen(w->c);
    w->c->out.screen.columns = w->c->wide ? 0 : weir__fullscreen_columns(w->screen);
}

/* The terminal knows its own size best: COLUMNS would not follow it. */
static bool top_fill(watching *w)
{
    const time_t now = (time_t)(weir__clock_wall(weir__clock_machine()) / 1000000);
    struct tm parts = { 0 };
    char clock[32] = "";

    if ((w->c->utc ? gmtime_r(&now, &parts) : localtime_r(&now, &parts)) != NULL) {
        (void)strftime(clock, sizeof clock, w->c->utc ? "%H:%M:%SZ" : "%H:%M:%S", &parts);
    }
    weir__buffer_clear(&w->top);
    return weir__buffer_add_text(&w->top, clock) && weir__buffer_add_text(&w->top, "  ") &&
           (w->trouble[0] == '\0' ||
            (weir__buffer_add_text(&w->top, w->trouble) && weir__buffer_add_text(&w->top, "  "))) &&
           (w->header.len == 0 || weir__buffer_add(&w->top, w->header.ptr, w->header.len));
}

static weir_status screen_draw(watching *w, weir_error *err)
{
    const weir_str *lines = NULL;
    size_t count = 0, marked = SIZE_MAX;
    const bool ok =
        top_fill(w) &&
        weir__view_frame(w->v, (weir_str){ w->top.ptr, w->top.len },
                         weir__fullscreen_rows(w->screen), weir__fullscreen_columns(w->screen),
                         &lines, &count, &marked) &&
        weir__fullscreen_draw(w->screen, lines, count, marked);

    return ok ? WEIR_OK : no_memory(err);
}

static weir_status lay_out(watching *w, weir_error *err)
{
    screen_measure(w);
    return weir__view_lay_out(w->v, &w->c->out.screen) ? WEIR_OK : no_memory(err);
}

/* Waiting may help. */
static bool is_away(weir_status status)
{
    return status == WEIR_EUNAVAILABLE || status == WEIR_EBUSY;
}

static weir_status screen_look(watching *w, weir_error *err)
{
    const int64_t begun_ms = mono_ms();
    weir_buffer header = { 0 };
    bool woken = false, complete = true;
    /* Before the look: what happens during it wakes us again. */
    weir_status status = w->store->log->watch_wait(w->watch, 0, &woken, err);

    if (status == WEIR_OK) {
        weir__view_begin(w->v);
        status = w->source->look(w->source->ctx, w->screen, w->v, &header, &complete, err);
    }
    const int64_t took_ms = mono_ms() - begun_ms;
    w->rest_until_ms = mono_ms() + (complete ? rest_ms(took_ms) : 0);
    w->look_at_ms =
        w->rest_until_ms > begun_ms + WATCH_LOOK_MS ? w->rest_until_ms : begun_ms + WATCH_LOOK_MS;
    w->look_at_ms = complete ? w->look_at_ms : mono_ms();
    w->trouble[0] = '\0';
    if (is_away(status)) {
        (void)snprintf(w->trouble, sizeof w->trouble, "[%.*s]", (int)sizeof w->trouble - 3,
                       err->message);
        w->rest_until_ms = w->look_at_ms = mono_ms() + WATCH_LOOK_MS;
        status = WEIR_OK;
    } else if (status == WEIR_OK && complete) {
        const weir_buffer before = w->header;
        w->header = header;
        header = before;
        weir__view_commit(w->v);
        status = lay_out(w, err);
    }
    weir__buffer_free(&header);
    return status;
}

static weir_status screen_explain(watching *w, weir_error *err)
{
    weir_buffer text = { 0 }, title = { 0 };
    weir_str key;
    weir_status status = WEIR_OK;

    if (weir__view_key_of(w->v, &key)) {
        screen_measure(w);
        status = w->source->explain(w->source->ctx, key, &title, &text, err);
        if (status == WEIR_ENOTFOUND || is_away(status)) {
            weir__buffer_clear(&text);
            status = weir__buffer_add_text(&text, err->message) ? WEIR_OK : no_memory(err);
        }
        if (status == WEIR_OK &&
            !(weir__buffer_add(&title, "", 1) &&
              weir__view_show(w->v, title.ptr, (weir_str){ text.ptr, text.len },
                              weir__fullscreen_columns(w->screen)))) {
            status = no_memory(err);
        }
    }
    weir__buffer_free(&text);
    weir__buffer_free(&title);
    return status;
}

/* *go_on false: somebody wants to leave. */
static weir_status screen_key(watching *w, const cli_key *key, bool *go_on, weir_error *err)
{
    const view_action action = weir__view_key(w->v, key);

    w->explains = w->v->mode == VIEW_TEXT && w->explains;
    switch (action) {
    case VIEW_QUIT:
        *go_on = false;
        return WEIR_OK;
    case VIEW_EXPLAIN:
        w->explains = true;
        return screen_explain(w, err);
    case VIEW_LOOK:
        w->look_at_ms = 0; /* what is there already is filtered at once */
        return lay_out(w, err);
    case VIEW_ORDER:
        return lay_out(w, err);
    case VIEW_DRAW:
        break;
    }
    return WEIR_OK;
}

/* Text is broken into lines for a width, so it is made again. */
static weir_status screen_resize(watching *w, weir_error *err)
{
    weir_status status = lay_out(w, err);

    return status == WEIR_OK && w->explains && w->v->mode == VIEW_TEXT ? screen_explain(w, err)
                                                                       : status;
}

static weir_status screen_loop(watching *w, weir_error *err)
{
    weir_status status = w->store->log->watch_open(w->store, &w->watch, err);
    bool go_on = true;

    while (status == WEIR_OK && go_on) {
        cli_key key;
        if (mono_ms() >= w->look_at_ms) {
            status = screen_look(w, err);
        }
        if (status == WEIR_OK) {
            status = screen_draw(w, err);
        }
        if (status != WEIR_OK) {
            break;
        }
        const int64_t now_ms = mono_ms();
        const bool rests = now_ms < w->rest_until_ms;
        const int64_t until_ms = rests ? w->rest_until_ms : w->look_at_ms;
        switch (weir__fullscreen_wait(w->screen, rests ? -1 : w->store->log->watch_fd(w->watch),
                                      timeout_ms(until_ms - now_ms), &key)) {
        case FULLSCREEN_STOP:
            go_on = false;
            break;
        case FULLSCREEN_KEY:
            status = screen_key(w, &key, &go_on, err);
            break;
        case FULLSCREEN_RESIZE:
            status = screen_resize(w, err);
            break;
        case FULLSCREEN_WAKE:
            w->look_at_ms = 0;
            break;
        case FULLSCREEN_TIME:
            break;
        }
    }
    return status;
}

weir_status weir__watch_screen(cli *c, weir_store *store, watch_view *v, const watch_source *source,
                               weir_error *err)
{
    watching w = { .c = c, .store = store, .v = v, .source = source };
    weir_status status = weir__fullscreen_open(&w.screen, c, err);

    v->cursor = SIZE_MAX;
    if (status == WEIR_OK) {
        status = screen_loop(&w, err);
    }
    weir__fullscreen_close(w.screen); /* before anything is said about an error */
    store->log->watch_close(w.watch);
    weir__buffer_free(&w.header);
    weir__buffer_free(&w.top);
    return status;
}

/* ---- line by line --------------------------------------------------------------------------- */

/* Waits until timeout_ms have passed or wake_fd is readable. false: a signal came, or nobody reads
 * stdout any more. */
static bool lines_wait(const cli_output *o, int64_t span_ms, int wake_fd)
{
    struct pollfd fds[] = {
        { .fd = o->stop_fd, .events = POLLIN },
        { .fd = o->fd, .events = 0 }, /* only that it was closed */
        { .fd = wake_fd, .events = POLLIN },
    };

    if (o->closed || o->failed) {
        return false;
    }
    if (poll(fds, sizeof fds / sizeof fds[0], timeout_ms(span_ms)) < 0) {
        return errno == EINTR;
    }
    return fds[0].revents == 0 && (fds[1].revents & (POLLERR | POLLHUP)) == 0;
}

weir_status weir__watch_lines(cli *c, weir_store *store,
                              weir_status (*look)(void *ctx, weir_error *err), void *ctx,
                              weir_error *err)
{
    store_watch *watch = NULL;
    weir_status status = WEIR_OK;

    c->out.stop_fd = weir__cli_signals_open();
    if (c->out.stop_fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
    }
    status = store->log->watch_open(store, &watch, err);
    for (bool go_on = status == WEIR_OK; go_on;) {
        bool woken = false;
        const int64_t begun_ms = mono_ms();
        /* Before the look: what happens during it wakes us again. */
        status = store->log->watch_wait(watch, 0, &woken, err);
        if (status == WEIR_OK) {
            status = look(ctx, err);
        }
        (void)weir__cli_flush(&c->out);
        const int64_t rest = rest_ms(mono_ms() - begun_ms);
        go_on = status == WEIR_OK && lines_wait(&c->out, rest, -1) &&
                (rest >= WATCH_LOOK_MS ||
                 lines_wait(&c->out, WATCH_LOOK_MS - rest, store->log->watch_fd(watch)));
    }
    store->log->watch_close(watch);
    (void)close(c->out.stop_fd);
    c->out.stop_fd = -1;
    return status;
}

/* ---- what a command would print ------------------------------------------------------------- */

void weir__watch_kept_begin(cli *kept, const cli *c)
{
    *kept = *c;
    kept->out = (cli_output){ .fd = -1, .stop_fd = -1, .screen = c->out.screen };
    kept->out.table.screen = &kept->out.screen;
}

weir_status weir__watch_kept_end(cli *kept, weir_buffer *text, weir_error *err)
{
    const bool ok = weir__cli_flush(&kept->out);

    weir__buffer_free(text);
    *text = kept->out.buffer;
    kept->out.buffer = (weir_buffer){ 0 };
    weir__cli_output_free(&kept->out);
    return ok ? WEIR_OK : no_memory(err);
}
