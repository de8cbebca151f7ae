/* work_config.c - what `weir work` runs: a weir.yaml, or one reaction from flags.
 *
 * Both become a cli_config that has been checked, so that the rest of the command knows no
 * difference.
 */
#include "cli/work.h"

#include "engine/reaction.h"

#include <unistd.h>

static const char *const reaction_flags[] = { "on",     "to",   "run",      "exec",    "name",
                                              "source", "lane", "priority", "retries", "from" };

/* The first flag that describes a reaction; NULL: none was given. */
static const char *reaction_flag(const cli *c)
{
    for (size_t i = 0; i < sizeof reaction_flags / sizeof reaction_flags[0]; i++) {
        if (weir__cli_has(c, reaction_flags[i])) {
            return reaction_flags[i];
        }
    }
    return NULL;
}

int weir__work_problems(const cli *c, const cli_config *config, const weir_error *err)
{
    weir_str left = { config->problems.ptr, config->problems.len };
    size_t told = 0;

    if (left.len == 0) {
        return weir__cli_fail(c, err);
    }
    while (left.len > 0) {
        const char *end = memchr(left.ptr, '\n', left.len);
        const size_t len = end == NULL ? left.len : (size_t)(end - left.ptr);
        weir_error line;
        (void)weir__fail(&line, WEIR_EINVAL, "%.*s", (int)len, left.ptr);
        (void)weir__cli_fail(c, &line);
        told++;
        left.ptr += len + (end == NULL ? 0 : 1);
        left.len -= len + (end == NULL ? 0 : 1);
    }
    if (told < config->problems_count) {
        weir__cli_note(c, "and %zu more problems", config->problems_count - told);
    }
    return CLI_ERROR;
}

/* ---- lanes --------------------------------------------------------------------------------- */

static weir_lane *lane_find(const cli_config *config, weir_str name)
{
    for (size_t i = 0; i < config->lanes_count; i++) {
        if (weir__str_equal(config->lanes[i].name, name)) {
            return &config->lanes[i];
        }
    }
    return NULL;
}

/* --threads is for every lane, also for those that are declared only by being used. */
static weir_status lanes_set(const cli *c, cli_config *config, weir_error *err)
{
    const cli_given *threads = weir__cli_get(c, "threads");
    const size_t most = config->lanes_count + config->reactions_count;

    if (threads == NULL) {
        return WEIR_OK;
    }
    weir_lane *lanes = weir__arena_alloc(&config->arena, (most + 1) * sizeof *lanes);
    if (lanes == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (config->lanes_count > 0) {
        memcpy(lanes, config->lanes, config->lanes_count * sizeof *lanes);
    }
    config->lanes = lanes;
    for (size_t i = 0; i < config->reactions_count; i++) {
        const weir_str lane = config->reactions[i].lane;
        const weir_str name = lane.len == 0 ? weir__str("default") : lane;
        if (lane_find(config, name) == NULL) {
            lanes[config->lanes_count++] = (weir_lane){ WEIR_LANE_INIT, .name = name };
        }
    }
    for (size_t i = 0; i < config->lanes_count; i++) {
        lanes[i].threads = (int32_t)threads->number;
    }
    return WEIR_OK;
}

/* ---- the file ------------------------------------------------------------------------------ */

weir_status weir__work_config_file(const cli *c, const char *path, cli_config *out, weir_error *err)
{
    weir_status status = weir__cli_config_read(out, path, err);

    if (status == WEIR_ENOTFOUND) {
        err->code = status = WEIR_EIO; /* "nothing there" is about what is in a store */
    }
    if (status == WEIR_OK && out->reactions_count == 0) {
        status = weir__fail(err, WEIR_EINVAL, "%s: there is no reaction in it", path);
    }
    return status == WEIR_OK ? lanes_set(c, out, err) : status;
}

/* ---- flags --------------------------------------------------------------------------------- */

/* Every --on; a lone * is every event. */
static weir_status flags_on(const cli *c, cli_config *out, weir_reaction *r, weir_error *err)
{
    weir_str *names = weir__arena_alloc(&out->arena, (c->given_count + 1) * sizeof *names);

    if (names == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    r->on = names;
    for (size_t i = 0; i < c->given_count; i++) {
        if (strcmp(c->given[i].option->name, "on") == 0) {
            names[r->on_count++] = weir__str(c->given[i].text);
        }
    }
    if (r->on_count == 1 && weir__str_equal(names[0], weir__str("*"))) {
        r->on_count = 0;
    }
    return WEIR_OK;
}

/* What is missing or excludes each other; CLI_DONE: neither. */
static int flags_check(const cli *c)
{
    const weir_str from = weir__cli_text(c, "from");
    weir_reaction scratch = { 0 };

    if (!weir__cli_has(c, "on")) {
        return weir__cli_usage(c, "--%s needs --on NAME: which events", reaction_flag(c));
    }
    if (!weir__cli_has(c, "to")) {
        return weir__cli_usage(c, "--on needs --to TARGET: where they go, such as 'mail-{stream}'");
    }
    if (weir__cli_has(c, "run") == weir__cli_has(c, "exec")) {
        return weir__cli_usage(c, "--on needs one of --run CMD and --exec CMD");
    }
    if (weir__cli_has(c, "from") && !weir__cli_config_from(from, &scratch)) {
        return weir__cli_usage(c, "--from takes start, now or a position, not \"%s\"", from.ptr);
    }
    return CLI_DONE;
}

static weir_status flags_read(const cli *c, cli_config *out, weir_error *err)
{
    const cli_given *retries = weir__cli_get(c, "retries");
    weir_reaction *r = weir__arena_alloc(&out->arena, sizeof *r);

    if (r == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    *r = (weir_reaction){ WEIR_REACTION_INIT,
                          .to = weir__cli_text(c, "to"),
                          .source = weir__cli_text(c, "source"),
                          .lane = weir__cli_text(c, "lane"),
                          .run = weir__cli_text(c, "run").ptr,
                          .exec = weir__cli_text(c, "exec").ptr,
                          .name = weir__cli_text(c, "name") };
    if (r->name.len == 0) {
        /* Workers with the same command share the work; another command is another reaction. */
        r->name = weir__str(r->run != NULL ? r->run : r->exec);
    }
    if (retries != NULL) {
        r->retries = retries->number == 0                     ? -1
                     : retries->number > REACTION_RETRIES_MAX ? INT32_MAX
                                                              : (int32_t)retries->number;
    }
    if (weir__cli_has(c, "priority")) {
        weir__cli_config_priority(weir__cli_text(c, "priority"), r);
    }
    if (weir__cli_has(c, "from")) {
        (void)weir__cli_config_from(weir__cli_text(c, "from"), r);
    }
    out->reactions = r;
    out->reactions_count = 1;
    const weir_status status = flags_on(c, out, r, err);
    return status == WEIR_OK ? weir__cli_config_check(out, "the flags", err) : status;
}

int weir__work_config(cli *c, cli_config *out, const char **path)
{
    const char *config = weir__cli_text(c, "config").ptr;
    const char *flag = reaction_flag(c);
    weir_error err;
    weir_status status;

    *path = NULL;
    if (flag != NULL) {
        if (config != NULL) {
            return weir__cli_usage(c, "--config and --%s exclude each other", flag);
        }
        const int usage = flags_check(c);
        if (usage != CLI_DONE) {
            return usage;
        }
        status = flags_read(c, out, &err);
        if (status == WEIR_OK) {
            status = lanes_set(c, out, &err);
        }
    } else {
        *path = config == NULL ? "weir.yaml" : config;
        if (config == NULL && access(*path, F_OK) != 0) {
            return weir__cli_usage(c, "there is no weir.yaml here; give --config FILE, or --on, "
                                      "--to and --run");
        }
        status = weir__work_config_file(c, *path, out, &err);
    }
    return status == WEIR_OK ? CLI_DONE : weir__work_problems(c, out, &err);
}
