/* fullscreen.c - the alternate screen of a terminal: taken, drawn, read from, given back.
 *
 *   CLOSED --open--> TAKEN --close, SIGTSTP, a crash--> CLOSED
 *                      ^                                  |
 *                      \------------SIGCONT---------------/
 *
 * `terminal_take` and `terminal_give_back` are the only two that write the sequences for it and
 * change its modes. The second uses nothing but write and tcsetattr: a handler of SIGSEGV may call
 * it.
 */
#include "cli/fullscreen.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

enum {
    ROWS_DEFAULT = 24,
    COLUMNS_DEFAULT = 80,
    ROWS_MAX = 1000, /* a terminal that claims more is shown this much */
    COLUMNS_MAX = 4000,
    INPUT_BYTES = 256,
};

/* Alternate screen, no cursor, lines are cut at the edge; and back. */
static const char take_text[] = "\033[?1049h\033[?25l\033[?7l\033[H\033[2J";
static const char give_back_text[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

/* All that report.h ever writes to colour a word. */
static const char *const colours[] = { "\033[1;31m", "\033[33m", "\033[32m", "\033[2m", "\033[0m" };

/* What a crash wants, too. */
typedef struct terminal {
    int output_fd;
    int input_fd;
    struct termios before;
} terminal;

struct fullscreen {
    terminal terminal;
    bool input_is_ours; /* opened by us: closed by us */
    int signal_fd;      /* owned */
    sigset_t signals_before;
    bool gone; /* the terminal cannot be written to or read from */
    size_t rows, columns;
    weir_buffer *shown; /* owned; ROWS_MAX: each line as it is on the screen */
    bool all;           /* nothing of `shown` can be relied upon */
    weir_buffer frame, line;
    cli_keys keys;
    unsigned char input[INPUT_BYTES]; /* read, and not looked at yet */
    size_t input_first, input_end;
};

/* The one that is taken, for handlers of signals. NULL: none. */
static terminal *volatile taken;

static const int crash_signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };

/* ---- taking and giving back ----------------------------------------------------------------- */

static bool write_all(int fd, const char *ptr, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, ptr, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd writable = { .fd = fd, .events = POLLOUT };
            (void)poll(&writable, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return false;
        } else if (n > 0) {
            ptr += n;
            len -= (size_t)n;
        }
    }
    return true;
}

/* Async-signal-safe. */
static void terminal_give_back(void)
{
    terminal *t = taken;

    if (t != NULL) {
        taken = NULL;
        (void)write_all(t->output_fd, give_back_text, sizeof give_back_text - 1);
        (void)tcsetattr(t->input_fd, TCSADRAIN, &t->before);
    }
}

static bool terminal_take(terminal *t)
{
    struct termios raw = t->before;

    /* Ctrl-C and Ctrl-Z stay what they are. */
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(IXON | ICRNL | INLCR | ISTRIP);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(t->input_fd, TCSADRAIN, &raw) != 0) {
        return false;
    }
    taken = t;
    return write_all(t->output_fd, take_text, sizeof take_text - 1);
}

/* The handler is gone by now (SA_RESETHAND): raising it again is what it would have been. */
static void screen_crashed(int number)
{
    terminal_give_back();
    (void)raise(number);
}

static void crashes_catch(bool on)
{
    struct sigaction action = { 0 };

    (void)sigemptyset(&action.sa_mask);
    action.sa_flags = on ? (int)SA_RESETHAND | SA_NODEFER : 0;
    action.sa_handler = on ? screen_crashed : SIG_DFL;
    for (size_t i = 0; i < sizeof crash_signals / sizeof crash_signals[0]; i++) {
        (void)sigaction(crash_signals[i], &action, NULL);
    }
}

static int signals_open(sigset_t *before)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH };
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)sigaddset(&set, numbers[i]);
    }
    return sigprocmask(SIG_BLOCK, &set, before) != 0
               ? -1
               : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Where keys come from: stdin, or else the terminal that the process has. *ours: to be closed. -1:
 * from nowhere. */
static int input_open(bool *ours)
{
    *ours = isatty(STDIN_FILENO) == 0;
    return *ours ? open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
}

bool weir__fullscreen_possible(const cli *c)
{
    const char *term = getenv("TERM");
    bool ours = false;

    if (isatty(c->out.fd) == 0 || term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0) {
        return false;
    }
    const int fd = input_open(&ours);
    if (fd >= 0 && ours) {
        (void)close(fd);
    }
    return fd >= 0;
}

static void measure_terminal(fullscreen *f)
{
    struct winsize size = { 0 };
    const bool known = ioctl(f->terminal.output_fd, TIOCGWINSZ, &size) == 0;

    f->rows = known && size.ws_row > 0 ? size.ws_row : ROWS_DEFAULT;
    f->rows = f->rows < ROWS_MAX ? f->rows : ROWS_MAX;
    f->columns = known && size.ws_col > 0 ? size.ws_col : COLUMNS_DEFAULT;
    f->columns = f->columns < COLUMNS_MAX ? f->columns : COLUMNS_MAX;
    f->all = true;
}

weir_status weir__fullscreen_open(fullscreen **out, const cli *c, weir_error *err)
{
    fullscreen *f = weir__calloc(1, sizeof *f);
    weir_status status = WEIR_OK;

    WEIR_ASSERT(taken == NULL);
    if (f == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    f->signal_fd = -1;
    f->terminal = (terminal){ .output_fd = c->out.fd, .input_fd = -1 };
    f->shown = weir__calloc(ROWS_MAX, sizeof *f->shown);
    if (f->shown == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        goto out;
    }
    f->terminal.input_fd = input_open(&f->input_is_ours);
    f->signal_fd = signals_open(&f->signals_before);
    if (f->terminal.input_fd < 0 || f->signal_fd < 0 ||
        tcgetattr(f->terminal.input_fd, &f->terminal.before) != 0) {
        status = weir__fail(err, WEIR_EIO, "could not use the terminal: %s", strerror(errno));
        goto out;
    }
    crashes_catch(true);
    measure_terminal(f);
    if (!terminal_take(&f->terminal)) {
        status = weir__fail(err, WEIR_EIO, "could not use the terminal: %s", strerror(errno));
        goto out;
    }
    *out = f;
    f = NULL; /* moved to the caller */
out:
    weir__fullscreen_close(f);
    return status;
}

void weir__fullscreen_close(fullscreen *f)
{
    if (f == NULL) {
        return;
    }
    terminal_give_back();
    crashes_catch(false);
    if (f->signal_fd >= 0) {
        struct signalfd_siginfo info;
        /* What was for us must not end whatever comes next. */
        while (read(f->signal_fd, &info, sizeof info) == sizeof info) {
        }
        (void)close(f->signal_fd);
        (void)sigprocmask(SIG_SETMASK, &f->signals_before, NULL);
    }
    if (f->input_is_ours && f->terminal.input_fd >= 0) {
        (void)close(f->terminal.input_fd);
    }
    for (size_t i = 0; f->shown != NULL && i < ROWS_MAX; i++) {
        weir__buffer_free(&f->shown[i]);
    }
    weir__free(f->shown);
    weir__buffer_free(&f->frame);
    weir__buffer_free(&f->line);
    weir__free(f);
}

/* ---- drawing -------------------------------------------------------------------------------- */

/* The bytes of the colour that begins at `at`; 0: none does. */
static size_t colour_bytes(weir_str line, size_t at)
{
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++) {
        const size_t len = strlen(colours[i]);
        if (line.len - at >= len && memcmp(line.ptr + at, colours[i], len) == 0) {
            return len;
        }
    }
    return 0;
}

bool weir__fullscreen_add_line(weir_buffer *out, weir_str line, size_t columns, bool colour)
{
    size_t used = 0;
    bool coloured = false, ok = true;

    for (size_t at = 0; ok && at < line.len;) {
        const size_t sequence = colour_bytes(line, at);
        if (sequence > 0) {
            ok = !colour || weir__buffer_add(out, line.ptr + at, sequence);
            coloured = colour;
            at += sequence;
            continue;
        }
        uint32_t code = 0;
        const size_t bytes = weir__utf8_decode(line.ptr + at, line.ptr + line.len, &code);
        const bool shown =
            bytes > 0 && code >= 0x20 && (code < 0x7f || code >= 0xa0) && !weir__utf8_hidden(code);
        const size_t width = shown ? weir__report_width(line.ptr + at, bytes) : 1;
        if (used + width > columns) {
            break;
        }
        ok = weir__buffer_add(out, shown ? line.ptr + at : "?", shown ? bytes : 1);
        used += width;
        at += bytes == 0 ? 1 : bytes;
    }
    return ok && (!coloured || weir__buffer_add_text(out, "\033[0m"));
}

size_t weir__fullscreen_rows(const fullscreen *f)
{
    return f->rows;
}

size_t weir__fullscreen_columns(const fullscreen *f)
{
    return f->columns;
}

/* One line as it is sent, into f->line. */
static bool line_fill(fullscreen *f, weir_str line, bool marked)
{
    weir__buffer_clear(&f->line);
    return (!marked || weir__buffer_add_text(&f->line, "\033[7m")) &&
           weir__fullscreen_add_line(&f->line, line, f->columns, !marked) &&
           (!marked || weir__buffer_add_text(&f->line, "\033[0m"));
}

/* Adds the line to the frame unless the screen shows it already. */
static bool row_draw(fullscreen *f, size_t row, weir_str line, bool marked)
{
    weir_buffer *shown = &f->shown[row];
    char place[32];

    if (!line_fill(f, line, marked)) {
        return false;
    }
    if (!f->all && shown->len == f->line.len &&
        (shown->len == 0 || memcmp(shown->ptr, f->line.ptr, shown->len) == 0)) {
        return true;
    }
    /* Wiped first: after a full line the cursor is still on its last character. */
    (void)snprintf(place, sizeof place, "\033[%zu;1H\033[K", row + 1);
    const bool ok = weir__buffer_add_text(&f->frame, place) &&
                    (f->line.len == 0 || weir__buffer_add(&f->frame, f->line.ptr, f->line.len));
    const weir_buffer before = *shown;
    *shown = f->line;
    f->line = before;
    return ok;
}

bool weir__fullscreen_draw(fullscreen *f, const weir_str *lines, size_t count, size_t marked)
{
    bool ok = true;

    weir__buffer_clear(&f->frame);
    for (size_t row = 0; ok && row < f->rows; row++) {
        ok = row_draw(f, row, row < count ? lines[row] : (weir_str){ 0 }, row == marked);
    }
    if (!ok) {
        return false;
    }
    f->all = false;
    if (f->frame.len > 0 && !f->gone) {
        f->gone = !write_all(f->terminal.output_fd, f->frame.ptr, f->frame.len);
    }
    return true;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Lets the shell have the terminal until it brings us back. */
static void stop_and_go_on(fullscreen *f)
{
    terminal_give_back();
    (void)kill(getpid(), SIGSTOP);
    f->gone = !terminal_take(&f->terminal);
    measure_terminal(f);
}

/* What came, if anything did. FULLSCREEN_TIME: nothing that matters. */
static fullscreen_event signal_take(fullscreen *f)
{
    struct signalfd_siginfo info;
    fullscreen_event event = FULLSCREEN_TIME;

    while (event != FULLSCREEN_STOP && read(f->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGWINCH) {
            measure_terminal(f);
            event = FULLSCREEN_RESIZE;
        } else if (info.ssi_signo == SIGTSTP) {
            stop_and_go_on(f);
            event = FULLSCREEN_RESIZE;
        } else {
            event = FULLSCREEN_STOP;
        }
    }
    return event;
}

/* The next key of what was read. */
static bool key_take(fullscreen *f, cli_key *key)
{
    while (f->input_first < f->input_end) {
        if (weir__cli_keys_feed(&f->keys, f->input[f->input_first++], key)) {
            return true;
        }
    }
    return false;
}

static void input_read(fullscreen *f)
{
    const ssize_t n = read(f->terminal.input_fd, f->input, sizeof f->input);

    f->input_first = 0;
    f->input_end = n > 0 ? (size_t)n : 0;
    f->gone = f->gone || n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

fullscreen_event weir__fullscreen_wait(fullscreen *f, int wake_fd, int timeout_ms, cli_key *key)
{
    for (;;) {
        if (f->gone) {
            return FULLSCREEN_STOP;
        }
        if (key_take(f, key)) {
            if (key->kind != CLI_KEY_REDRAW) {
                return FULLSCREEN_KEY;
            }
            measure_terminal(f);
            return FULLSCREEN_RESIZE;
        }
        /* An Escape that was only the beginning goes on at once. */
        const bool part = weir__cli_keys_waits(&f->keys);
        struct pollfd fds[] = {
            { .fd = f->signal_fd, .events = POLLIN },
            { .fd = f->terminal.input_fd, .events = POLLIN },
            { .fd = part ? -1 : wake_fd, .events = POLLIN },
        };
        const int ready = poll(fds, sizeof fds / sizeof fds[0], part ? KEYS_ESCAPE_MS : timeout_ms);
        if (ready == 0) {
            if (!part || weir__cli_keys_end(&f->keys, key)) {
                return part ? FULLSCREEN_KEY : FULLSCREEN_TIME;
            }
        } else if (ready < 0 && errno != EINTR) {
            return FULLSCREEN_STOP;
        } else if (ready > 0 && fds[0].revents != 0) {
            const fullscreen_event event = signal_take(f);
            if (event != FULLSCREEN_TIME) {
                return event;
            }
        } else if (ready > 0 && fds[1].revents != 0) {
            input_read(f);
        } else if (ready > 0) {
            return FULLSCREEN_WAKE;
        }
    }
}

bool weir__fullscreen_asked(const fullscreen *f)
{
    struct pollfd fds[] = {
        { .fd = f->signal_fd, .events = POLLIN },
        { .fd = f->terminal.input_fd, .events = POLLIN },
    };

    return f->gone || f->input_first < f->input_end || poll(fds, sizeof fds / sizeof fds[0], 0) > 0;
}
