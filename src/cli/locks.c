/* locks.c - weir locks: who holds which name, and who waits for it. */
#include "cli/cli.h"
#include "lock/lock.h"

static bool locks_print(cli *c, const lock_row *r)
{
    const report_field fields[] = {
        { .name = "lock", .type = REPORT_STR, .text = r->name },
        { .name = "state",
          .type = REPORT_STATE,
          .text = weir__str(r->waiting ? "waiting" : "held") },
        { .name = "by", .type = REPORT_STR, .text = r->holder },
        { .name = "since", .type = REPORT_TIME, .number = r->since_us, .rank = 1 },
        { .name = "kind",
          .type = REPORT_STR,
          .text = weir__str(weir__lock_kind_text(r->kind)),
          .rank = 3 },
        { .name = "until", .type = REPORT_TIME, .number = r->until_us, .rank = 2 },
        { .name = "fence",
          .type = r->fence == 0 ? REPORT_NULL : REPORT_I64,
          .number = r->fence,
          .rank = 4 },
    };
    return weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
}

static int locks_run(cli *c)
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
        if (!locks_print(c, &list.rows[i])) {
            break;
        }
    }
    weir__lock_list_free(&list);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_locks_command = {
    .name = "locks",
    .block = CLI_BLOCK_JOBS,
    .usage = "[options]",
    .summary = "who holds which lock, and who waits",
    .about =
        "Lists the locks that are held with weir lock, and who is waiting for them. KIND is\n"
        "session (PostgreSQL), lease (PostgreSQL behind a pooler; UNTIL is when the lease ends,\n"
        "and waiters are not listed) or file (SQLite). The fence is known if the store is\n"
        "initialised.",
    .empty = "No lock is held.",
    .example = "weir locks\n"
               "weir locks --store postgres://db/shop --json",
    .words_min = 0,
    .words_max = 0,
    .run = locks_run,
};
