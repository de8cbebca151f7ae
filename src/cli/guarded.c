/* guarded.c - see guarded.h. */
#define _GNU_SOURCE /* strerror_r that gives a text */

#include "cli/guarded.h"

#include "cli/operate.h"
#include "lock/lock.h"
#include "store/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* *us: the option's value, or what it is without. */
static int take_span(const cli *c, const char *name, int64_t least_us, int64_t *us)
{
    const cli_given *given = weir__cli_get(c, name);
    if (given == NULL) {
        return CLI_DONE;
    }
    if (given->number < least_us || given->number > LOCK_SPAN_US_MAX) {
        return weir__cli_usage(c, "--%s is %s, allowed %s to 1d", name, given->text,
                               least_us == 0 ? "0ms" : "200ms");
    }
    *us = given->number;
    return CLI_DONE;
}

static char *const *program_of(const cli *c)
{
    const size_t count = c->words_count - c->program_first;
    char **argv = weir__calloc(count + 1, sizeof *argv);
    for (size_t i = 0; argv != NULL && i < count; i++) {
        /* execve takes char *const *, and changes nothing. */
        memcpy(&argv[i], &c->words[c->program_first + i], sizeof argv[i]);
    }
    return argv;
}

int weir__cli_guarded_take(const cli *c, const char *what, cli_guarded *g)
{
    char who[CLI_HOLDER_BYTES - 32];
    weir_error err;

    *g = (cli_guarded){ .check_us = LOCK_CHECK_US_DEFAULT, .grace_us = LOCK_GRACE_US_DEFAULT };
    if (c->program_first == c->words_count) {
        return weir__cli_usage(c, "what is to be run? It follows --, as in weir %s %s -- ./job",
                               c->command->name, strcmp(what, "key") == 0 ? "KEY" : "NAME");
    }
    if (weir__name_check(what, weir__str(c->words[0]), true, &err) != WEIR_OK) {
        return weir__cli_usage(c, "%s", err.message);
    }
    int result = take_span(c, "check", LOCK_CHECK_US_MIN, &g->check_us);
    if (result == CLI_DONE) {
        result = take_span(c, "grace", 0, &g->grace_us);
    }
    if (result != CLI_DONE) {
        return result;
    }
    g->argv = program_of(c);
    if (g->argv == NULL) {
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return weir__cli_fail(c, &err);
    }
    (void)snprintf(g->holder, sizeof g->holder, "%s pid %ld", weir__cli_operator(who, sizeof who),
                   (long)getpid());
    return CLI_DONE;
}

void weir__cli_guarded_free(cli_guarded *g)
{
    char **argv = NULL;
    memcpy(&argv, &g->argv, sizeof argv); /* what it points to is const for all others */
    weir__free(argv);
    g->argv = NULL;
}

int weir__cli_guarded_end(const cli *c, const cli_guarded *g, const char *what,
                          const run_outcome *out)
{
    weir_error err;
    char text[128];

    if (out->start_errno != 0) {
        (void)weir__fail(&err, WEIR_EIO, "could not run \"%s\": %s", g->argv[0],
                         strerror_r(out->start_errno, text, sizeof text));
        (void)weir__cli_fail(c, &err);
        return out->exit_status;
    }
    if (out->lost) {
        err = out->why;
        (void)weir__wrap(&err, WEIR_ELOST, "%s was lost, and the program was ended", what);
        (void)weir__cli_fail(c, &err);
        return CLI_HELD;
    }
    if (out->left_behind) {
        weir__cli_note(c, "%s left processes behind, which were ended", g->argv[0]);
    }
    return out->exit_status;
}
