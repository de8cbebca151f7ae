/* guarded.h - what weir lock and weir once share: a program that runs while something is held. */
#ifndef WEIR_CLI_GUARDED_H
#define WEIR_CLI_GUARDED_H

#include "cli/cli.h"
#include "supervisor/run.h"

enum { CLI_HOLDER_BYTES = 320 };

typedef struct cli_guarded {
    char *const *argv; /* owned array; what follows -- */
    char holder[CLI_HOLDER_BYTES];
    int64_t check_us, grace_us;
} cli_guarded;

/* From the word before --, which is a `what` ("lock name"), those after it, and --check and
 * --grace. CLI_DONE, or the exit status of what was
 * reported. weir__cli_guarded_free ends it, also after a failure. */
int weir__cli_guarded_take(const cli *c, const char *what, cli_guarded *g);
void weir__cli_guarded_free(cli_guarded *g);
/* Says what has to be said about a program that has run; its exit status, or CLI_HELD when `what`
 * was lost. */
int weir__cli_guarded_end(const cli *c, const cli_guarded *g, const char *what,
                          const run_outcome *out);

#endif
