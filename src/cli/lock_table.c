/* lock_table.c - weir lock --table: runs a program while one row of a table is locked.
 *
 * The same as weir claim --hold for a row that is named by its key: the row is on the program's
 * standard input, what it prints last may be written to the row, exit 0 commits, and its exit
 * status is passed on.
 */
#include "cli/claim.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* The program and its arguments as a command for a shell, which they replace. */
static bool command_make(const cli *c, weir_buffer *out)
{
    bool ok = weir__buffer_add_text(out, "exec");

    for (size_t i = c->program_first; ok && i < c->words_count; i++) {
        ok = weir__buffer_add_text(out, " '");
        for (const char *p = c->words[i]; ok && *p != '\0'; p++) {
            ok = *p == '\'' ? weir__buffer_add_text(out, "'\\''") : weir__buffer_add(out, p, 1);
        }
        ok = ok && weir__buffer_add_text(out, "'");
    }
    return ok && weir__buffer_add(out, "", 1);
}

static int flags_check(const cli *c)
{
    static const char *const others[] = { "check", "grace" };
    const cli_given *held = weir__cli_get(c, "held-exit");

    if (c->program_first != 0) {
        return weir__cli_usage(c, "--table and a name exclude each other: what is locked is the "
                                  "row");
    }
    if (c->words_count == 0) {
        return weir__cli_usage(c, "what is to be run? It follows --, as in weir lock --table "
                                  "expenses --id 42 -- ./reconcile");
    }
    if (!weir__cli_has(c, "id")) {
        return weir__cli_usage(c, "--table needs --id KEY: which row");
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (weir__cli_has(c, others[i])) {
            return weir__cli_usage(c, "--table and --%s exclude each other", others[i]);
        }
    }
    if (held != NULL && held->number > 255) {
        return weir__cli_usage(c, "--held-exit is %s, allowed 0 to 255", held->text);
    }
    return CLI_DONE;
}

/* The row of the key that --id has given, a part each time. */
static int make_request(claim_run *k, weir_buffer *where)
{
    const cli *c = k->c;
    const table_info *t = &k->place.table;
    const cli_given *wait = weir__cli_get(c, "wait");
    weir_arena *arena = &k->options.arena;
    claim_param *params = weir__arena_alloc(arena, (c->given_count + 1) * sizeof *params);
    size_t parts = 0;
    bool ok = params != NULL;

    for (size_t i = 0; ok && i < c->given_count; i++) {
        char name[32];
        if (strcmp(c->given[i].option->name, "id") != 0) {
            continue;
        }
        (void)snprintf(name, sizeof name, "key_%zu", parts + 1);
        const char *copy = weir__arena_copy(arena, name, strlen(name));
        ok = copy != NULL;
        if (ok && parts < t->key_count) {
            ok = weir__buffer_add_text(where, parts == 0 ? "" : " AND ") &&
                 weir__buffer_add(where, t->columns[t->key[parts]].quoted.ptr,
                                  t->columns[t->key[parts]].quoted.len) &&
                 weir__buffer_add_text(where, " = :") && weir__buffer_add_text(where, name);
        }
        params[parts++] =
            (claim_param){ .name = weir__str(copy),
                           .value = { .kind = TABLE_TEXT, .text = weir__str(c->given[i].text) } };
    }
    if (!ok) {
        weir_error err;
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return weir__cli_fail(c, &err);
    }
    if (parts != t->key_count) {
        return weir__cli_usage(c, "a key of %.*s has %zu parts, and %zu were given with --id",
                               (int)t->shown.len, t->shown.ptr, t->key_count, parts);
    }
    k->request = k->options.spec.claim;
    k->request.where = (weir_str){ .ptr = where->ptr, .len = where->len };
    k->request.writes = (claim_writes){ .params = params, .params_count = parts };
    k->request.mode = wait == NULL ? CLAIM_NOWAIT : CLAIM_WAIT;
    k->request.wait_us = wait == NULL ? 0 : wait->number;
    k->request.hold = true;
    return CLI_DONE;
}

static int lock_row(claim_run *k)
{
    const cli_given *held = weir__cli_get(k->c, "held-exit");
    const int status = weir__cli_claim_held(k);
    weir_error err;

    if (status == CLI_NOTHING) {
        (void)weir__fail(&err, WEIR_ENOTFOUND, "there is no such row in %.*s",
                         (int)k->place.table.shown.len, k->place.table.shown.ptr);
        return weir__cli_fail(k->c, &err);
    }
    if (k->lost) {
        return CLI_HELD; /* as for a lock that was lost */
    }
    if (status == CLI_HELD && held != NULL) {
        return (int)held->number;
    }
    return status != CLI_DONE && k->exit_status > 0 ? k->exit_status : status;
}

int weir__cli_lock_table(cli *c)
{
    claim_run k = { .c = c, .signal_fd = -1, .exit_status = -1, .passes_on = true };
    weir_buffer where = { 0 }, command = { 0 };
    weir_error err;
    int status = flags_check(c);

    if (status == CLI_DONE && (!weir__mutex_init(&k.mu) || !command_make(c, &command))) {
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return weir__cli_fail(c, &err);
    }
    if (status != CLI_DONE) {
        return status;
    }
    k.command = command.ptr;
    k.options.spec = weir__table_spec(weir__cli_text(c, "table"));
    k.signal_fd = weir__cli_signals_open();
    if (k.signal_fd < 0) {
        (void)weir__fail(&err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
        status = weir__cli_fail(c, &err);
    } else if (weir__child_keeper_open(&k.keeper, &err) != WEIR_OK) {
        status = weir__cli_fail(c, &err);
    }
    if (status == CLI_DONE) {
        status = weir__cli_place_open(c, k.options.spec.claim.table, &k.place);
    }
    if (status == CLI_DONE) {
        status = make_request(&k, &where);
    }
    if (status == CLI_DONE) {
        status = lock_row(&k);
    }
    weir__cli_place_close(&k.place);
    weir__child_keeper_close(k.keeper);
    if (k.signal_fd >= 0) {
        (void)close(k.signal_fd);
    }
    weir__cli_claim_free(&k.options);
    weir__mutex_destroy(&k.mu);
    weir__buffer_free(&where);
    weir__buffer_free(&command);
    return status;
}
