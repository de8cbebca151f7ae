/* fullscreen.h - a terminal that one command has for itself, until it gives it back.
 *
 * Must stay true:
 *   1. However the command ends, the terminal is as it was: its modes, its cursor, what it showed
 *      before. That holds for q, an error, SIGINT, SIGTERM, SIGHUP, SIGTSTP and a crash; only
 *      SIGKILL is stronger.
 *   2. Nothing but our own sequences reaches the terminal. Whatever a line contains, a control
 *      character in it is shown as "?"; only the colours of report.h pass.
 *   3. A frame is one write, and only of lines that changed: nothing flickers.
 *
 * One per process, one thread.
 */
#ifndef WEIR_CLI_FULLSCREEN_H
#define WEIR_CLI_FULLSCREEN_H

#include "cli/cli.h"
#include "cli/keys.h"

typedef struct fullscreen fullscreen;

typedef enum fullscreen_event {
    FULLSCREEN_TIME,   /* the time is up                                                */
    FULLSCREEN_KEY,    /* `key` says which                                              */
    FULLSCREEN_RESIZE, /* another size, or it has to be drawn anew for another reason   */
    FULLSCREEN_WAKE,   /* wake_fd is readable                                           */
    FULLSCREEN_STOP,   /* a signal came, or the terminal is gone: end                   */
} fullscreen_event;

/* Whether stdout is a terminal that can be drawn on, and there is somewhere to read keys from. Not
 * with TERM=dumb, which is how one asks for plain lines. */
bool weir__fullscreen_possible(const cli *c);
/* Takes the terminal of c->out.fd. *out: ended by weir__fullscreen_close. */
weir_status weir__fullscreen_open(fullscreen **out, const cli *c, weir_error *err);
void weir__fullscreen_close(fullscreen *f); /* NULL is fine */

size_t weir__fullscreen_rows(const fullscreen *f);
size_t weir__fullscreen_columns(const fullscreen *f);
/* Shows these lines from the top, and nothing below them. marked: the one that stands out;
 * SIZE_MAX: none. false: out of memory. A terminal that is gone is told by the next wait. */
bool weir__fullscreen_draw(fullscreen *f, const weir_str *lines, size_t count, size_t marked);
/* wake_fd -1: none; timeout_ms -1: no limit. */
fullscreen_event weir__fullscreen_wait(fullscreen *f, int wake_fd, int timeout_ms, cli_key *key);
/* Whether wait would return at once, for a key or a signal. */
bool weir__fullscreen_asked(const fullscreen *f);

/* Adds a line as it may be shown: harmless, and at most `columns` wide. colour: the sequences of
 * report.h pass; otherwise they are left out. false: out of memory. */
bool weir__fullscreen_add_line(weir_buffer *out, weir_str line, size_t columns, bool colour);

#endif
