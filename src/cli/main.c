/* main.c - the program `weir`: finds the command, parses its arguments, runs it. */
#include "cli/cli.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

/* A program that is started without stdin, stdout or stderr would otherwise get the store's files
 * under their numbers, and write its output into them. */
static bool have_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            return false;
        }
    }
    return true;
}

static int command_dispatch(cli *c, int argc, char *const *argv, bool version, int used)
{
    if (version) {
        (void)weir__cli_print(&c->out, "weir %s\n", weir_version_text());
        return CLI_DONE;
    }
    if (used == argc) {
        if (c->help) {
            return weir__cli_help_all(c);
        }
        c->out.fd = STDERR_FILENO; /* nothing was asked for */
        (void)weir__cli_help_all(c);
        return CLI_USAGE;
    }
    const cli_command *command = weir__cli_command(argv[used]);
    if (command == NULL) {
        return weir__cli_unknown(c, argv[used]);
    }
    c->command = command;
    const int status = weir__cli_parse(c, argc - used - 1, argv + used + 1);
    if (status != CLI_DONE) {
        return status;
    }
    weir__cli_screen(c);
    return c->help ? weir__cli_help_of(c, command) : command->run(c);
}

int main(int argc, char **argv)
{
    cli c = { .out = { .fd = STDOUT_FILENO, .stop_fd = -1 } };
    int used = 0;

    if (!have_standard_files()) {
        return CLI_ERROR;
    }
    /* How wide characters are, whatever the locale: all text is UTF-8. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    /* A reader that goes away is told by write(). */
    (void)signal(SIGPIPE, SIG_IGN);
    /* And so is a file that may not grow: a store that is full, not the end of us. */
    (void)signal(SIGXFSZ, SIG_IGN);
    const bool version = argc == 2 && strcmp(argv[1], "--version") == 0;
    int status = weir__cli_forms(&c, argc, argv);
    if (status == CLI_DONE && !version && argc > 0) {
        status = weir__cli_parse_before(&c, argc - 1, argv + 1, &used);
    }
    if (status == CLI_DONE) {
        status = command_dispatch(&c, argc - 1, argv + 1, version, used);
    }
    status = weir__cli_finish(&c, status);
    weir__cli_output_free(&c.out);
    weir__free(c.given);
    weir__free(c.words);
    return status;
}
