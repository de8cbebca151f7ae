/* cli.h - what the commands of `weir` share: their description, their arguments, their output.
 *
 * A command is one file: it describes itself in a cli_command, and its `run` parses nothing and
 * formats nothing by hand: arguments come checked from options.c, and everything it says goes
 * through output.c (stdout, rows) or report.c (stderr, errors and notes), each in two forms:
 * text for people, JSON lines for programs. `run` returns the exit status of the process.
 *
 * One thread, but for cli_ticker. Nothing here is used by the library.
 */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/thread.h"
#include "report/report.h"
#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses: an interface, see weir(1). */
enum {
    CLI_DONE = 0,
    CLI_ERROR = 1,   /* anything that failed, bad data included             */
    CLI_USAGE = 2,   /* wrong flags or arguments                            */
    CLI_NOTHING = 3, /* no such stream, no target matched                   */
    CLI_REFUSED = 4, /* conflict, closed, taken, key-reused, lost           */
    CLI_HELD = 75,   /* held, in-flight: EX_TEMPFAIL, worth another attempt */
};

/* ---- a command and its options ------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_FLAG,   /* no value                                                     */
    CLI_TEXT,   /* any text                                                     */
    CLI_WORD,   /* UTF-8, and not empty: an empty filter would be none          */
    CLI_NUMBER, /* a decimal integer from 0                                     */
    CLI_TIME,   /* RFC 3339                                                     */
    CLI_EXPECT, /* any, none, exists or a version                               */
    CLI_SPAN,   /* a duration such as 5s                                        */
    CLI_WAIT,   /* the same, or nothing: for as long as it takes                */
} cli_kind;

typedef struct cli_option {
    const char *name;  /* without the dashes                                    */
    const char *value; /* what help calls the value; NULL for a flag            */
    cli_kind kind;
    const char *help; /* one line                                               */
} cli_option;

/* An option as it was given. */
typedef struct cli_given {
    const cli_option *option;
    const char *text; /* borrowed from argv; NULL for a flag                    */
    int64_t number;   /* NUMBER: the value; TIME, SPAN, WAIT: microseconds (WAIT: -1 without a
                         value); EXPECT: version */
    int32_t expect;   /* EXPECT: WEIR_EXPECT_*                                  */
} cli_given;

typedef enum cli_block {
    CLI_BLOCK_EVENTS,
    CLI_BLOCK_WORKERS,
    CLI_BLOCK_TABLES,
    CLI_BLOCK_JOBS,
    CLI_BLOCK_OPERATE,
    CLI_BLOCKS_COUNT,
} cli_block;

typedef struct cli cli;

typedef struct cli_command {
    const char *name;
    cli_block block;
    const char *usage;   /* what follows the name; lines are alternatives       */
    const char *summary; /* one line, for weir help                             */
    const char *about;   /* sentences, for --help                               */
    const char *example; /* lines, as typed                                     */
    const char *empty;   /* said to people when nothing was found; NULL: nothing is said */
    const cli_option *options;
    size_t options_count;
    size_t words_min, words_max; /* how many arguments that are not options     */
    int (*run)(cli *c);
} cli_command;

/* ---- output --------------------------------------------------------------------------------- */

typedef struct cli_output {
    int fd;      /* -1: what is printed stays in `buffer` */
    int stop_fd; /* readable when the command is to end (SIGINT, SIGTERM); -1: none */
    bool json;
    bool line_by_line; /* flush after every row                                 */
    bool answered;     /* something was printed, or will be: the result is not empty */
    bool closed;       /* nobody reads any more, or the command is to end: not an error */
    bool failed;       /* `error` says why                                      */
    weir_error error;
    weir_buffer buffer;
    report_screen screen; /* set by weir__cli_screen */
    report_table table;
} cli_output;

/* ---- a run ---------------------------------------------------------------------------------- */

typedef enum cli_colour {
    CLI_COLOUR_AUTO, /* where the terminal has colours */
    CLI_COLOUR_ALWAYS,
    CLI_COLOUR_NEVER,
} cli_colour;

struct cli {
    const cli_command *command; /* NULL until it is known                       */
    cli_given *given;           /* owned: every option, in the order given      */
    size_t given_count;
    const char **words; /* owned array of what is no option, borrowed from argv */
    size_t words_count;
    size_t program_first; /* the first word after --; words_count: there is none */
    bool has_program;     /* -- was given                                        */
    const char *store;    /* --store; NULL: not given                             */
    bool insecure;        /* --insecure                                           */
    bool json, text;      /* --json, --text                                       */
    bool wide, utc;       /* --wide, --utc                                        */
    cli_colour colour;    /* --color                                              */
    bool help;            /* --help                                               */
    bool json_errors;     /* the form of stderr                                   */
    cli_output out;
};

/* options.c. The options that every command has. */
extern const cli_option weir__cli_common[];
extern const size_t weir__cli_common_count;
/* Sets the form of stdout and stderr from --json and --text wherever they stand, or else from
 * WEIR_OUTPUT; the rest is parsed later. CLI_USAGE, reported: WEIR_OUTPUT is something else. */
int weir__cli_forms(cli *c, int argc, char *const *argv);
/* Options before the command's name. *used: how many arguments they were. CLI_DONE or the exit
 * status of a failure that has been reported. */
int weir__cli_parse_before(cli *c, int argc, char *const *argv, int *used);
/* Everything after the command's name. The same. */
int weir__cli_parse(cli *c, int argc, char *const *argv);
/* The last one given with that name, or NULL. The name must be an option of the command. */
const cli_given *weir__cli_get(const cli *c, const char *name);
bool weir__cli_has(const cli *c, const char *name);
/* Its text; empty when it was not given. */
weir_str weir__cli_text(const cli *c, const char *name);
/* "any", "none", "exists" or a version. */
bool weir__cli_expect(weir_str text, int32_t *expect, int64_t *version);
/* The nearest of `count` names, or NULL when none is near. name_of gives them. */
const char *weir__cli_nearest(const char *word, const char *(*name_of)(const void *ctx, size_t i),
                              const void *ctx, size_t count);

/* screen.c. Sets out.screen from the terminal and the options. Called when they are parsed, and
 * again when the terminal has another size. */
void weir__cli_screen(cli *c);
/* How wide a terminal is; 0: it is none, or does not say. */
size_t weir__cli_columns(int fd);

/* report.c. Errors and notes on stderr, in the form of the run; exit statuses. */
int weir__cli_exit_status(int32_t status);
/* Reports and returns the exit status that belongs to the error. */
int weir__cli_fail(const cli *c, const weir_error *err);
/* The same for one line of a batch. */
int weir__cli_fail_line(const cli *c, const weir_error *err, int64_t line);
/* Wrong flags or arguments: CLI_USAGE. */
int weir__cli_usage(const cli *c, const char *format, ...) WEIR_PRINTF(2, 3);
void weir__cli_note(const cli *c, const char *format, ...) WEIR_PRINTF(2, 3);
/* One line to stderr, in one write; invisible characters in it are escaped. */
void weir__cli_stderr(weir_str text);

/* output.c. A row in the form of the run: a line of JSON, or a line of a table. All rows of a run
 * have the same fields. false: nobody wants more (closed or failed): end quietly. */
bool weir__cli_row(cli_output *o, const report_field *fields, size_t count);
bool weir__cli_event(cli_output *o, const weir_event *event);
/* Our own text, in any form; invisible characters in it are escaped (base/utf8.h). exact: text that
 * must not be changed, such as the output of programs, or SQL that somebody will run. */
bool weir__cli_print(cli_output *o, const char *format, ...) WEIR_PRINTF(2, 3);
/* A paragraph that fits the terminal; first and prefix as for weir__report_wrap. */
bool weir__cli_wrap(cli_output *o, const char *first, const char *prefix, weir_str text);
bool weir__cli_put(cli_output *o, weir_str text);
bool weir__cli_put_exact(cli_output *o, weir_str text);
/* Text as one word of a shell, in quotes if it needs them. false: out of memory. */
bool weir__cli_add_shell_word(weir_buffer *b, weir_str text);
bool weir__cli_flush(cli_output *o);
/* Flushes; the exit status of a run that has otherwise ended with `status`. */
int weir__cli_finish(cli *c, int status);
void weir__cli_output_free(cli_output *o);

/* log.c. A descriptor that is readable once SIGINT or SIGTERM came, for cli_output.stop_fd; they
 * are no longer fatal. -1: errno says why. */
int weir__cli_signals_open(void);

/* config.c. The store of a weir.yaml: *store is a copy (owned) or NULL. A file that is not there
 * is WEIR_OK. EINVAL with line and column. */
weir_status weir__cli_config_store(const char *path, char **store, weir_error *err);

/* open.c. */
enum {
    CLI_OPEN_READ = 0,   /* what is there, to read; WEIR_ENOTFOUND otherwise                  */
    CLI_OPEN_WRITE = 1,  /* what is there; *out is NULL when there is no store yet and one can be
                           made with weir__cli_create                                      */
    CLI_OPEN_CHANGE = 2, /* what is there, to write to; WEIR_ENOTFOUND otherwise              */
};
/* The URL of this run: --store, WEIR_STORE, weir.yaml, or sqlite:weir.db. *url: owned copy. */
weir_status weir__cli_url(const cli *c, char **url, weir_error *err);
/* What may be shown of a URL: scheme and path. *shown: owned. */
weir_status weir__cli_url_shown(const char *url, char **shown, weir_error *err);
weir_status weir__cli_open(const cli *c, int32_t mode, weir **out, weir_error *err);
/* Makes the store, and says so on stderr. */
weir_status weir__cli_create(const cli *c, weir **out, weir_error *err);
/* What the store's URL sets for `payload`. */
weir_status weir__cli_payload_bytes(const cli *c, int64_t *bytes, weir_error *err);
/* Appends, making the store when there is none, unless the append would be refused. *out as
 * weir_append; may be NULL. */
weir_status weir__cli_append(const cli *c, const weir_append_request *request,
                             const weir_append_result **out, weir_error *err);

/* input.c. Data from an argument, @FILE, or - for stdin, which can be read once. `what`: its name
 * in messages. *data borrows from `memory` or from the argument. */
weir_status weir__cli_data(const char *what, const char *argument, weir_buffer *memory,
                           weir_str *data, weir_error *err);

/* Lines of a file or a pipe, one at a time, in bounded memory. */
typedef struct cli_lines {
    int fd;           /* borrowed                                                */
    const char *path; /* what it is, for messages; NULL: standard input          */
    size_t line_max;  /* bytes, without the newline                              */
    char *ptr;        /* owned                                                   */
    size_t capacity, start, end;
    bool eof;
    int64_t number;     /* of the last line given, from 1                       */
    int64_t bytes_done; /* of the input, up to the end of the last line         */
} cli_lines;

/* *more false: there is none. The line is borrowed until the next call. WEIR_EINVAL: longer than
 * line_max; the next call goes on after it. */
weir_status weir__cli_lines_next(cli_lines *l, weir_str *line, bool *more, weir_error *err);
/* Whether the next call would wait for whoever writes. Does not wait itself; a line given before is
 * no longer there. */
bool weir__cli_lines_wait(cli_lines *l);
void weir__cli_lines_free(cli_lines *l);

/* progress.c. On a terminal, after a second: how many, how fast, how long still. */
typedef struct cli_progress {
    bool wanted;
    bool shown;
    int64_t start_us, next_us; /* monotonic */
    int64_t bytes_total;       /* of the input; 0: not known */
} cli_progress;

void weir__cli_progress_start(cli_progress *p, const cli *c, int input_fd);
void weir__cli_progress(cli_progress *p, int64_t count, int64_t bytes_done);
void weir__cli_progress_end(cli_progress *p); /* wipes the line */

/* The same for one call that says nothing until it ends: on a terminal, after a second, what is
 * being done and for how long. The one place of the command line with a second thread. */
typedef struct cli_ticker {
    bool running; /* the thread is there; false: nothing is shown */
    const char *what;
    int64_t start_us; /* monotonic */
    pthread_t thread;
    weir_mutex mu;
    weir_cond ended;
    bool stop; /* guarded by mu */
} cli_ticker;

void weir__cli_ticker_start(cli_ticker *t, const cli *c, const char *what);
void weir__cli_ticker_stop(cli_ticker *t); /* wipes the line; not running is fine */

/* One per file, in the order of weir help. */
extern const cli_command weir__cli_append_command, weir__cli_read_command, weir__cli_log_command,
    weir__cli_streams_command, weir__cli_close_command, weir__cli_work_command,
    weir__cli_targets_command, weir__cli_why_command, weir__cli_reactions_command,
    weir__cli_parked_command, weir__cli_claim_command, weir__cli_done_command,
    weir__cli_fail_command, weir__cli_release_command, weir__cli_extend_command,
    weir__cli_lock_command, weir__cli_once_command, weir__cli_locks_command, weir__cli_race_command,
    weir__cli_lint_command, weir__cli_init_command, weir__cli_status_command,
    weir__cli_doctor_command, weir__cli_backup_command, weir__cli_restore_command,
    weir__cli_unblock_command, weir__cli_skip_command, weir__cli_reset_command,
    weir__cli_prioritize_command, weir__cli_pause_command, weir__cli_resume_command,
    weir__cli_help_command, weir__cli_version_command;

/* help.c. */
extern const cli_command *const weir__cli_commands[];
extern const size_t weir__cli_commands_count;
const cli_command *weir__cli_command(const char *name); /* NULL: no such command */
/* Reports an unknown command and what was probably meant: CLI_USAGE. */
int weir__cli_unknown(const cli *c, const char *name);
int weir__cli_help_all(cli *c);
int weir__cli_help_of(cli *c, const cli_command *command);

/* batch.c. */
int weir__cli_batch(cli *c, const char *path);

/* lock_table.c. weir lock --table. */
int weir__cli_lock_table(cli *c);

#endif
