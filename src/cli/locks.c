/* locks.c - weir locks: who holds which name, and who waits for it. */
#include "cli/cli.h"
#include "lock/lock.h"

static bool print(cli *c, const lock_row *r)
{
    const cli_field fields[] = {
        { .name = "lock", .type = CLI_STR, .text = r->name },
        { .name = "state", .type = CLI_STR, .text = weir__str(r->waiting ? "waiting" : "held") },
        { .name = "by", .type = CLI_STR, .text = r->holder },
        { .name = "since", .type = CLI_STAMP, .number = r->since_us },
        { .name = "kind", .type = CLI_STR, .text = weir__str(weir__lock_kind_text(r->kind)) },
        { .name = "until", .type = CLI_STAMP, .number = r->until_us },
        { .name = "fence", .type = r->fence == 0 ? CLI_NULL : CLI_I64, .number = r->fence },
    };
    return weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
}

static int run(cli *c)
{
    char *url = NULL;
    lock_list list = { 0 };
    weir_error err;
    weir_status status = weir__cli_url(c, &url, &err);
    if (status == WEIR_OK) {
        status = weir__lock_list(url, &list, &err);
    }
    weir__free(url);
    for (size_t i = 0; status == WEIR_OK && i < list.rows_count; i++) {
        if (!print(c, &list.rows[i])) {
            break;
        }
    }
    weir__lock_list_free(&list);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_locks_command = {
    .name = "locks",
    .block = CLI_BLOCK_TABLES,
    .usage = "[options]",
    .summary = "who holds which lock, and who waits",
    .about =
        "Lists the names that weir lock holds at this moment, and who waits for them. kind is\n"
        "session (PostgreSQL), lease (PostgreSQL behind a pooler; until is its end; who waits\n"
        "for one is not listed) or file (SQLite). The fence is known in an initialised store.",
    .example = "weir locks\n"
               "weir locks --store postgres://db/shop --json",
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
