/* finish.c - weir done, fail, release and extend: the end of a claim, or more time for it.
 *
 * A row is named by its primary key; several keys name several rows, each finished by itself. What
 * is written is guarded by the holder and the fence: nothing is written to a row that was lost.
 */
#include "cli/claim_options.h"

#define KEYS_MAX ((size_t)10000)

static const cli_option writing_options[] = {
    { "by", "ID", CLI_WORD, "who holds the row: the --by of the claim" },
    { "by-column", "COLUMN", CLI_TEXT, "the column with the holder (default: claimed_by)" },
    { "at-column", "COLUMN", CLI_TEXT,
      "the column with the time of the claim (default: claimed_at)" },
    { "fence", "N", CLI_NUMBER, "the fence that the claim was given" },
    { "fence-column", "COLUMN", CLI_WORD, "the column with the fence" },
    { "lease-column", "COLUMN", CLI_TEXT,
      "the column with the end of the lease (default: locked_until)" },
    { "set", "COLUMN=VALUE", CLI_TEXT, "write this as well; may be repeated" },
    { "set-sql", "COLUMN=SQL", CLI_TEXT, "write an expression; may be repeated" },
    { "param", "NAME=VALUE", CLI_TEXT, "what :NAME stands for in --set-sql; may be repeated" },
};
static const cli_option extend_options[] = {
    { "lease", "TIME", CLI_SPAN, "for how long from now on, such as 5m" },
    { "by", "ID", CLI_WORD, "who holds the row: the --by of the claim" },
    { "by-column", "COLUMN", CLI_TEXT, "the column with the holder (default: claimed_by)" },
    { "fence", "N", CLI_NUMBER, "the fence that the claim was given" },
    { "fence-column", "COLUMN", CLI_WORD, "the column with the fence" },
    { "lease-column", "COLUMN", CLI_TEXT,
      "the column with the end of the lease (default: locked_until)" },
};

static finish_kind kind_of(const cli *c)
{
    const char *name = c->command->name;

    return strcmp(name, "done") == 0      ? FINISH_DONE
           : strcmp(name, "fail") == 0    ? FINISH_FAIL
           : strcmp(name, "release") == 0 ? FINISH_RELEASE
                                          : FINISH_EXTEND;
}

static claim_writes writes_of(const table_spec *s, finish_kind kind)
{
    switch (kind) {
    case FINISH_DONE:
        return s->done;
    case FINISH_FAIL:
        return s->failed;
    case FINISH_RELEASE:
        return s->released;
    case FINISH_EXTEND:
        break;
    }
    return (claim_writes){ .set_count = 0 };
}

/* Whatever is asked for by name is used, also where the claims of weir.yaml have no lease. */
static finish_request request_of(const cli *c, const claim_options *o)
{
    const table_spec *s = &o->spec;
    const cli_given *fence = weir__cli_get(c, "fence");
    finish_request r = weir__claim_finish_of(&s->claim);

    r.kind = kind_of(c);
    r.by = s->claim.by;
    r.lease_column = s->claim.lease_column;
    r.has_fence = fence != NULL;
    r.fence = fence == NULL ? 0 : fence->number;
    r.writes = writes_of(s, r.kind);
    r.writes.params = o->params;
    r.writes.params_count = o->params_count;
    return r;
}

static int guards_check(const cli *c, const finish_request *r)
{
    if (r->by.len == 0 && !r->has_fence) {
        return weir__cli_usage(c, "%s needs --by ID or --fence N: whose claim it is",
                               c->command->name);
    }
    if (r->has_fence && r->fence_column.len == 0) {
        return weir__cli_usage(c, "--fence needs --fence-column COLUMN: where it is kept");
    }
    if (r->kind == FINISH_EXTEND && r->lease_us == 0) {
        return weir__cli_usage(c, "extend needs --lease TIME: for how long");
    }
    return CLI_DONE;
}

/* One row after the other; the exit status of the first that was refused. */
static int finish_rows(cli *c, const claim_place *p, const finish_request *request, size_t rows)
{
    table_value key[CLAIM_COLUMNS_MAX] = { { 0 } };
    table_result result = { .rows_count = 0 };
    int worst = CLI_DONE;

    finish_request r = *request;

    r.key = key;
    r.key_count = p->table.key_count;
    for (size_t i = 0; i < rows; i++) {
        weir_error err;
        for (size_t k = 0; k < r.key_count; k++) {
            key[k] = (table_value){ .kind = TABLE_TEXT,
                                    .text = weir__str(c->words[1 + i * r.key_count + k]) };
        }
        if (weir__claim_finish(p->session, &r, &result, &err) != WEIR_OK) {
            const int status = weir__cli_fail(c, &err);
            worst = worst == CLI_DONE ? status : worst;
        } else if (result.rows_count > 0 && !weir__cli_table_print(&c->out, &result, 0)) {
            break;
        }
    }
    weir__table_result_free(&result);
    return worst;
}

static int finish_run(cli *c)
{
    claim_options o = { .params = NULL };
    claim_place p = { .db = NULL };
    finish_request r = { .kind = FINISH_DONE };
    int status = weir__cli_claim_read(c, &o, c->words[0], true);

    if (status == CLI_DONE) {
        r = request_of(c, &o);
        status = guards_check(c, &r);
    }
    if (status == CLI_DONE) {
        status = weir__cli_place_open(c, o.spec.claim.table, &p);
    }
    if (status == CLI_DONE) {
        const size_t parts = p.table.key_count, words = c->words_count - 1;
        if (parts > CLAIM_COLUMNS_MAX || words % parts != 0) {
            status = weir__cli_usage(c, "a key of %.*s has %zu parts, and %zu were given",
                                     (int)p.table.shown.len, p.table.shown.ptr, parts, words);
        } else {
            status = finish_rows(c, &p, &r, words / parts);
        }
    }
    weir__cli_place_close(&p);
    weir__cli_claim_free(&o);
    return status;
}

const cli_command weir__cli_done_command = {
    .name = "done",
    .block = CLI_BLOCK_TABLES,
    .usage = "TABLE KEY... --by ID [options]",
    .summary = "finish a claimed row: the work is done",
    .about =
        "Finishes a claimed row: writes --set (default: done: in weir.yaml) and ends its lease.\n"
        "The row still says who held it.\n"
        "\n"
        "KEY is the primary key of the row. A key of several columns takes several arguments;\n"
        "several keys finish several rows. If the row is no longer held by --by with --fence, or\n"
        "its lease has ended, nothing is written and the exit status is 4. TABLE is a table of\n"
        "the database or an entry under tables: in weir.yaml.",
    .example = "weir done jobs 42 --by worker-7 --set status=done",
    .options = writing_options,
    .options_count = sizeof writing_options / sizeof writing_options[0],
    .words_min = 2,
    .words_max = KEYS_MAX,
    .run = finish_run,
};

const cli_command weir__cli_fail_command = {
    .name = "fail",
    .block = CLI_BLOCK_TABLES,
    .usage = "TABLE KEY... --by ID [options]",
    .summary = "finish a claimed row: the work has failed",
    .about =
        "Writes --set (or failed: of weir.yaml) to a claimed row and ends its lease; who held\n"
        "it stays on record.\n"
        "KEY is the row's primary key; a key of several columns is several arguments, and\n"
        "several keys are several rows. When the row is no longer held by --by under --fence,\n"
        "or its lease has ended, nothing is written, and the exit status is 4. TABLE is one\n"
        "of the database, or of tables: in weir.yaml.",
    .example = "weir fail jobs 42 --by worker-7 --set status=failed",
    .options = writing_options,
    .options_count = sizeof writing_options / sizeof writing_options[0],
    .words_min = 2,
    .words_max = KEYS_MAX,
    .run = finish_run,
};

const cli_command weir__cli_release_command = {
    .name = "release",
    .block = CLI_BLOCK_TABLES,
    .usage = "TABLE KEY... --by ID [options]",
    .summary = "give a claimed row back, for others to claim",
    .about =
        "Writes --set (or released: of weir.yaml) to a claimed row, takes its holder out and ends\n"
        "its lease, so that others can claim it.\n"
        "KEY is the row's primary key; a key of several columns is several arguments, and\n"
        "several keys are several rows. When the row is no longer held by --by under --fence,\n"
        "or its lease has ended, nothing is written, and the exit status is 4. TABLE is one\n"
        "of the database, or of tables: in weir.yaml.",
    .example = "weir release jobs 42 --by worker-7 --set status=pending",
    .options = writing_options,
    .options_count = sizeof writing_options / sizeof writing_options[0],
    .words_min = 2,
    .words_max = KEYS_MAX,
    .run = finish_run,
};

const cli_command weir__cli_extend_command = {
    .name = "extend",
    .block = CLI_BLOCK_TABLES,
    .usage = "TABLE KEY... --by ID --lease TIME [options]",
    .summary = "renew the lease of a claimed row",
    .about =
        "Lets the lease of a claimed row end --lease (or lease: of weir.yaml) from now, by the\n"
        "database's clock.\n"
        "KEY is the row's primary key; a key of several columns is several arguments, and\n"
        "several keys are several rows. When the row is no longer held by --by under --fence,\n"
        "or its lease has ended, nothing is written, and the exit status is 4. TABLE is one\n"
        "of the database, or of tables: in weir.yaml.",
    .example = "weir extend jobs 42 --by worker-7 --lease 5m",
    .options = extend_options,
    .options_count = sizeof extend_options / sizeof extend_options[0],
    .words_min = 2,
    .words_max = KEYS_MAX,
    .run = finish_run,
};
