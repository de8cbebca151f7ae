/* reactions.c - weir reactions: which there are, how far they are routed, and ending one. */
#include "cli/operate.h"
#include "store/request.h"

static const cli_option options[] = {
    { "dry-run", NULL, CLI_FLAG, "retire: say whether anything would change; change nothing" },
};

static const char *rule_text(store_rule rule)
{
    switch (rule) {
    case STORE_RULE_CONSTANT:
        return "constant";
    case STORE_RULE_STREAM:
        return "stream";
    case STORE_RULE_CATEGORY:
        return "category";
    case STORE_RULE_NAME:
        return "name";
    case STORE_RULE_WORK:
        break;
    }
    return "work";
}

/* ---- ls ------------------------------------------------------------------------------------- */

/* The names it listens to, as a JSON array; null, or * in a table, when it is all of them. */
static bool write_names(const cli *c, const store_reaction *r, weir_buffer *out)
{
    report_json j = { .buffer = out };

    weir__buffer_clear(out);
    if (r->all_names) {
        return weir__buffer_add_text(out, c->out.json ? "null" : "*");
    }
    if (!c->out.json) {
        bool ok = true;
        for (size_t i = 0; ok && i < r->names_count; i++) {
            ok = weir__buffer_add_text(out, i == 0 ? "" : ", ") &&
                 weir__buffer_add(out, r->names[i].ptr, r->names[i].len);
        }
        return ok;
    }
    weir__report_json_open(&j, NULL, '[');
    for (size_t i = 0; i < r->names_count; i++) {
        weir__report_json_str(&j, NULL, r->names[i]);
    }
    weir__report_json_close(&j, ']');
    return !j.failed;
}

static void print_reaction(cli *c, const store_reaction *r, weir_str names,
                           const store_positions *at, const cli_workers *workers)
{
    const bool routed_by = r->router.len > 0 && r->router_until_us > at->now_us;
    const int64_t lag = r->retired || at->safe <= r->routed ? 0 : at->safe - r->routed;
    const report_field fields[] = {
        { .name = "reaction", .type = REPORT_STR, .text = r->name },
        { .name = "definition",
          .type = REPORT_I64,
          .number = r->current,
          .flags = REPORT_JSON_ONLY },
        { .name = "names", .type = REPORT_RAW, .text = names, .rank = 3 },
        { .name = "source", .type = REPORT_STR, .text = r->source, .rank = 4 },
        { .name = "rule",
          .type = REPORT_STR,
          .text = weir__str(rule_text(r->rule)),
          .flags = REPORT_JSON_ONLY },
        { .name = "to", .type = REPORT_STR, .text = weir__cli_or_null(r->rule_text), .rank = 2 },
        { .name = "since", .type = REPORT_I64, .number = r->since, .flags = REPORT_JSON_ONLY },
        { .name = "routed", .type = REPORT_I64, .number = r->routed, .rank = 5 },
        { .name = "lag", .type = REPORT_COUNT, .number = lag, .rank = 1 },
        { .name = "attempts",
          .type = r->attempts == 0 ? REPORT_NULL : REPORT_I64,
          .number = r->attempts,
          .flags = REPORT_JSON_ONLY },
        { .name = "retired", .type = REPORT_BOOL, .number = r->retired, .rank = 6 },
        { .name = "workers",
          .type = REPORT_COUNT,
          .number = (int64_t)weir__cli_workers_count(workers, NULL, r) },
        { .name = "router",
          .type = REPORT_STR,
          .text = routed_by ? r->router : (weir_str){ 0 },
          .rank = 7 },
        { .name = "router_until",
          .type = REPORT_TIME,
          .number = routed_by ? r->router_until_us : 0,
          .flags = REPORT_JSON_ONLY },
    };

    (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
}

static weir_status reactions_list(cli *c, weir_store *store, weir_error *err)
{
    store_reaction_list reactions = { 0 };
    store_positions positions = { 0 };
    cli_workers workers = { 0 };
    weir_buffer names = { 0 };
    weir_status status = store->work->reactions(store, &reactions, err);

    if (status == WEIR_OK) {
        status = store->log->positions(store, &positions, err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_workers_read(store, &workers, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < reactions.reactions_count; i++) {
        if (!write_names(c, &reactions.reactions[i], &names)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
            break;
        }
        print_reaction(c, &reactions.reactions[i], (weir_str){ names.ptr, names.len }, &positions,
                       &workers);
    }
    if (status == WEIR_OK) {
        weir__cli_note_routed_beyond(c, &reactions, &positions);
    }
    weir__buffer_free(&names);
    weir__cli_workers_free(&workers);
    weir__arena_free(&reactions.arena);
    return status;
}

/* ---- retire --------------------------------------------------------------------------------- */

static weir_status reactions_retire(cli *c, weir_store *store, weir_str name, weir_error *err)
{
    store_reaction_list reactions = { 0 };
    const store_reaction *found = NULL;
    weir_status status = store->work->reactions(store, &reactions, err);

    for (size_t i = 0; status == WEIR_OK && i < reactions.reactions_count; i++) {
        if (weir__str_equal(reactions.reactions[i].name, name)) {
            found = &reactions.reactions[i];
        }
    }
    const bool was_retired = found != NULL && found->retired;
    if (status == WEIR_OK && found == NULL) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no reaction \"%.*s\"", (int)name.len, name.ptr);
    }
    weir__arena_free(&reactions.arena);
    if (status == WEIR_OK && !weir__cli_has(c, "dry-run")) {
        status = store->work->retire(store, name, err);
    }
    if (status == WEIR_OK) {
        weir__cli_changed(c, was_retired ? 0 : 1,
                          &(cli_deed){ .would = "retire", .did = "retired", .name = name });
    }
    return status;
}

static int reactions_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    const bool lists = c->words_count == 0 || strcmp(c->words[0], "ls") == 0;
    const bool reads = lists || weir__cli_has(c, "dry-run");
    weir_status status = WEIR_OK;

    if (!lists && strcmp(c->words[0], "retire") != 0) {
        return weir__cli_usage(c, "unknown verb \"%s\": it is ls or retire", c->words[0]);
    }
    if (lists && (c->words_count > 1 || weir__cli_has(c, "dry-run"))) {
        return weir__cli_usage(c, "ls takes nothing else");
    }
    if (!lists && c->words_count < 2) {
        return weir__cli_usage(c, "retire takes the name of a reaction");
    }
    if (!lists) {
        status = weir__name_check("reaction name", weir__str(c->words[1]), true, &err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_open(c, reads ? CLI_OPEN_READ : CLI_OPEN_CHANGE, &w, &err);
    }
    if (status == WEIR_OK) {
        status = lists ? reactions_list(c, weir__store(w), &err)
                       : reactions_retire(c, weir__store(w), weir__str(c->words[1]), &err);
    }
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_reactions_command = {
    .name = "reactions",
    .block = CLI_BLOCK_WORKERS,
    .usage = "[ls] [options]\nretire NAME [options]",
    .summary = "list reactions, or end one",
    .about =
        "ls, or no verb: lists every reaction with its current definition, how far events were\n"
        "routed for it, how far that is behind (lag), how many running workers know it, and\n"
        "which worker routes it. retire: stops counting the reaction's work and routing events\n"
        "for it, until a worker declares it again. Its targets stay as they are.",
    .empty = "No reactions yet. weir work declares those of weir.yaml.",
    .example = "weir reactions\n"
               "weir reactions retire confirm-order --dry-run",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 2,
    .run = reactions_run,
};
