/* help.c - weir help, weir COMMAND --help, weir version, and the list of commands. */
#include "cli/cli.h"

#include <stdio.h>

enum {
    HELP_COLUMNS_MAX = 92,
    COMMANDS_INDENT = 14,
    OPTIONS_INDENT = 24,
};

const cli_command *const weir__cli_commands[] = {
    &weir__cli_append_command,  &weir__cli_read_command,       &weir__cli_log_command,
    &weir__cli_streams_command, &weir__cli_close_command,      &weir__cli_work_command,
    &weir__cli_targets_command, &weir__cli_why_command,        &weir__cli_reactions_command,
    &weir__cli_parked_command,  &weir__cli_claim_command,      &weir__cli_done_command,
    &weir__cli_fail_command,    &weir__cli_release_command,    &weir__cli_extend_command,
    &weir__cli_race_command,    &weir__cli_lint_command,       &weir__cli_lock_command,
    &weir__cli_once_command,    &weir__cli_locks_command,      &weir__cli_init_command,
    &weir__cli_status_command,  &weir__cli_doctor_command,     &weir__cli_backup_command,
    &weir__cli_restore_command, &weir__cli_unblock_command,    &weir__cli_skip_command,
    &weir__cli_reset_command,   &weir__cli_prioritize_command, &weir__cli_pause_command,
    &weir__cli_resume_command,  &weir__cli_help_command,       &weir__cli_version_command,
};
const size_t weir__cli_commands_count = sizeof weir__cli_commands / sizeof weir__cli_commands[0];

static const char *const block_titles[CLI_BLOCKS_COUNT] = { "Events", "Workers", "Tables", "Jobs",
                                                            "Operate" };

static const char starters[] =
    "Start with\n"
    "  weir append order-1 OrderPlaced '{\"total\":12}'  add an event; makes weir.db\n"
    "  weir read order-1                               what happened to order-1\n"
    "  weir append order-1 OrderPaid --expect 0        if nothing came in between\n"
    "  weir log --follow                               watch events as they happen\n"
    "  weir status                                     where the store stands\n";

const cli_command *weir__cli_command(const char *name)
{
    for (size_t i = 0; i < weir__cli_commands_count; i++) {
        if (strcmp(weir__cli_commands[i]->name, name) == 0) {
            return weir__cli_commands[i];
        }
    }
    return NULL;
}

static const char *command_name(const void *ctx, size_t i)
{
    (void)ctx;
    return weir__cli_commands[i]->name;
}

int weir__cli_unknown(const cli *c, const char *name)
{
    const char *nearest = weir__cli_nearest(name, command_name, NULL, weir__cli_commands_count);

    if (nearest != NULL) {
        return weir__cli_usage(c, "unknown command \"%s\", did you mean \"%s\"?", name, nearest);
    }
    return weir__cli_usage(c, "unknown command \"%s\"", name);
}

/* Lines longer than this are hard to read, also where there is room. */
static void screen_limit(cli *c)
{
    report_screen *screen = &c->out.screen;

    if (screen->columns == 0 || screen->columns > HELP_COLUMNS_MAX) {
        screen->columns = HELP_COLUMNS_MAX;
    }
}

/* A name, and from column `indent` on what it means. */
static void print_entry(cli *c, int indent, const char *name, const char *text)
{
    char first[80], prefix[40];

    (void)snprintf(first, sizeof first, "%-*s ", indent - 1, name);
    (void)snprintf(prefix, sizeof prefix, "%*s", indent, "");
    (void)weir__cli_wrap(&c->out, first, prefix, weir__str(text));
}

/* A form per line: a long one goes on below its own beginning. */
static void print_usage(cli *c, const char *first, const char *indent, const char *text)
{
    while (*text != '\0') {
        const size_t len = strcspn(text, "\n");
        (void)weir__cli_wrap(&c->out, first, "           ", (weir_str){ text, len });
        first = indent;
        text += len + (text[len] == '\n' ? 1 : 0);
    }
}

/* Paragraphs between empty lines, as wide as there is room. A line that begins with a space is
 * kept as it is. */
static void print_prose(cli *c, const char *text)
{
    weir_buffer paragraph = { 0 };
    bool ok = true;

    while (ok && *text != '\0') {
        const size_t len = strcspn(text, "\n");
        const bool prose = len > 0 && text[0] != ' ';
        if (prose) {
            ok = (paragraph.len == 0 || weir__buffer_add(&paragraph, " ", 1)) &&
                 weir__buffer_add(&paragraph, text, len);
        }
        const char *next = text + len + (text[len] == '\n' ? 1 : 0);
        const bool ends = !prose || *next == '\0' || *next == '\n' || *next == ' ';
        if (ok && ends && paragraph.len > 0) {
            ok = weir__cli_wrap(&c->out, "", "", (weir_str){ paragraph.ptr, paragraph.len });
            weir__buffer_clear(&paragraph);
        }
        if (ok && !prose) {
            ok = weir__cli_print(&c->out, "%.*s\n", (int)len, text);
        }
        text = next;
    }
    weir__buffer_free(&paragraph);
}

int weir__cli_help_all(cli *c)
{
    cli_output *o = &c->out;

    screen_limit(c);
    (void)weir__cli_print(o, "weir - one worker at a time, for rows, jobs and events\n\n%s",
                          starters);
    for (int block = 0; block < CLI_BLOCKS_COUNT; block++) {
        bool titled = false;
        for (size_t i = 0; i < weir__cli_commands_count; i++) {
            const cli_command *command = weir__cli_commands[i];
            if ((int)command->block != block) {
                continue;
            }
            if (!titled) {
                (void)weir__cli_print(o, "\n%s\n", block_titles[block]);
                titled = true;
            }
            char name[32];
            (void)snprintf(name, sizeof name, "  %s", command->name);
            print_entry(c, COMMANDS_INDENT, name, command->summary);
        }
    }
    print_prose(
        c,
        "\nThe store is the file weir.db unless --store, WEIR_STORE or weir.yaml says otherwise:\n"
        "sqlite:PATH, postgres://HOST/DATABASE. weir COMMAND --help explains a command, weir help\n"
        "choosing says which claim or lock is for what, weir help output how text and JSON are\n"
        "printed; man weir has more.\n");
    return CLI_DONE;
}

static void print_options(cli *c, const cli_option *options, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "  --%s%s%s", options[i].name,
                       options[i].value == NULL ? "" : " ",
                       options[i].value == NULL ? "" : options[i].value);
        print_entry(c, OPTIONS_INDENT, name, options[i].help);
    }
}

/* Every line of `text` behind `indent`; the first one begins with `first`. */
static void print_lines(cli *c, const char *first, const char *indent, const char *text)
{
    while (*text != '\0') {
        const size_t len = strcspn(text, "\n");
        (void)weir__cli_print(&c->out, "%s%.*s\n", first, (int)len, text);
        first = indent;
        text += len + (text[len] == '\n' ? 1 : 0);
    }
}

int weir__cli_help_of(cli *c, const cli_command *command)
{
    char usage[64], more[64];

    screen_limit(c);
    (void)snprintf(usage, sizeof usage, "Usage: weir %s ", command->name);
    (void)snprintf(more, sizeof more, "       weir %s ", command->name);
    print_usage(c, usage, more, command->usage);
    (void)weir__cli_print(&c->out, "\n");
    print_prose(c, command->about);
    if (command->options_count > 0) {
        (void)weir__cli_print(&c->out, "\nOptions\n");
        print_options(c, command->options, command->options_count);
    }
    (void)weir__cli_print(&c->out, "\nOptions of every command\n");
    print_options(c, weir__cli_common, weir__cli_common_count);
    (void)weir__cli_print(&c->out, "\nExamples\n");
    print_lines(c, "  ", "  ", command->example);
    return CLI_DONE;
}

static const char choosing[] =
    "Which claim or lock solves which problem, and what happens to the one who comes second\n"
    "\n"
    "  rows of a table that wait for workers\n"
    "    weir claim TABLE --run CMD                 gets the next row, or none\n"
    "  the same, and all of the work is in that database\n"
    "    weir claim TABLE --hold --run CMD          the same; a crash changes nothing\n"
    "  one row, known beforehand, that two programs want to change\n"
    "    weir lock --table T --id ID --wait -- CMD  waits, then sees the row as it is\n"
    "  a job that must not overlap with itself, on one machine or many\n"
    "    weir lock NAME -- CMD                      exits with 75, or waits (--wait)\n"
    "  a job that must happen once, and never again\n"
    "    weir once KEY -- CMD                       prints the first one's output\n"
    "  a decision that depends on all that has happened so far\n"
    "    weir append STREAM NAME --expect N         gets a conflict, decides again\n"
    "  work that follows from what has happened, in order\n"
    "    weir work                                  takes another target\n"
    "\n"
    "A unique index or an idempotency key keeps a second row out of a table. It does not keep a\n"
    "second email from being sent: for that, only one worker may be given the row.\n"
    "\n"
    "weir race shows two workers and one table, in the right ways and in the wrong ones. weir\n"
    "lint reads claims that are written in SQL. docs/two-workers-one-table.md goes through all\n"
    "of it.\n";

static const char output_topic[] =
    "How Weir prints\n"
    "\n"
    "On a terminal Weir prints text for people. In a pipe or a file it prints one JSON object per\n"
    "line, errors and notes on stderr included. WEIR_OUTPUT=text or WEIR_OUTPUT=json decides for\n"
    "a whole session, --text or --json for one command.\n"
    "\n"
    "Text fits the terminal. Long texts are shortened and end in \xe2\x80\xa6, and the least\n"
    "important columns are left out; --wide prints everything. COLUMNS overrides the width of\n"
    "the terminal. Text in a pipe or a file is always whole.\n"
    "\n"
    "Rows that need someone come first. Amounts have separators; positions, versions and ids do\n"
    "not, because you type them. Times are told from now, such as 3 s ago; --utc prints the times\n"
    "themselves. States have a colour where the terminal has colours. --color always or never\n"
    "overrides that; NO_COLOR and TERM=dumb turn colours off.\n"
    "\n"
    "JSON has every field with its exact value: times in UTC with microseconds, sizes in bytes.\n"
    "Fields are added in later versions, but not renamed or removed. Nothing in your data can\n"
    "send control sequences to the terminal.\n";

static const struct {
    const char *name, *text;
} topics[] = {
    { "choosing", choosing },
    { "output", output_topic },
};

static int run_help(cli *c)
{
    if (c->words_count == 0) {
        return weir__cli_help_all(c);
    }
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        if (strcmp(c->words[0], topics[i].name) == 0) {
            screen_limit(c);
            print_prose(c, topics[i].text);
            return CLI_DONE;
        }
    }
    const cli_command *command = weir__cli_command(c->words[0]);
    return command == NULL ? weir__cli_unknown(c, c->words[0]) : weir__cli_help_of(c, command);
}

const cli_command weir__cli_help_command = {
    .name = "help",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[COMMAND]\n"
             "choosing\n"
             "output",
    .summary = "list the commands, or explain one",
    .about =
        "Lists the commands, or explains one, as weir COMMAND --help does. weir help choosing\n"
        "says which claim or lock is for which problem, weir help output how Weir prints.",
    .example = "weir help append\n"
               "weir help choosing\n"
               "weir help output",
    .words_min = 0,
    .words_max = 1,
    .run = run_help,
};

static int run_version(cli *c)
{
    const report_field field = { .name = "version",
                                 .type = REPORT_STR,
                                 .text = weir__str(weir_version_text()) };

    if (c->out.json) {
        (void)weir__cli_row(&c->out, &field, 1);
    } else {
        (void)weir__cli_print(&c->out, "weir %s\n", weir_version_text());
    }
    return CLI_DONE;
}

const cli_command weir__cli_version_command = {
    .name = "version",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[options]",
    .summary = "print the version",
    .about = "Prints the version of this program. weir --version prints it as text everywhere.",
    .example = "weir version",
    .words_min = 0,
    .words_max = 0,
    .run = run_version,
};
