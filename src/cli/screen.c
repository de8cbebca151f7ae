/* screen.c - what stdout is like: how wide, whether it has colours, how times are to be told.
 *
 * A file or a pipe has no width and no colours, so that text which is searched or kept is whole.
 */
#include "base/clock.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* COLUMNS is what a user says of the terminal, so it counts more than what the terminal says. */
size_t weir__cli_columns(int fd)
{
    const char *columns = getenv("COLUMNS");
    int64_t number = 0;
    struct winsize size = { 0 };

    if (isatty(fd) == 0) {
        return 0;
    }
    if (columns != NULL && weir__str_to_i64(weir__str(columns), &number) && number > 0 &&
        number < UINT16_MAX) {
        return (size_t)number;
    }
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* no-color.org: any value but the empty one. */
static bool has_colours(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

    return (no_color == NULL || no_color[0] == '\0') && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0;
}

void weir__cli_screen(cli *c)
{
    const bool terminal = isatty(c->out.fd) != 0;
    report_screen *screen = &c->out.screen;

    screen->columns = c->wide ? 0 : weir__cli_columns(c->out.fd);
    screen->colour = c->colour == CLI_COLOUR_ALWAYS ||
                     (c->colour == CLI_COLOUR_AUTO && terminal && has_colours());
    screen->relative = !c->utc;
    screen->now_us = weir__clock_wall(weir__clock_machine());
    c->out.table.screen = screen;
}
