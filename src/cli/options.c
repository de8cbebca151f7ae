/* options.c - arguments against a command's table of options.
 *
 * Long options only: --name VALUE, --name=VALUE, flags without a value, `--` ends options. A lone
 * `-` and negative numbers are words, because both can be data. When an option is given twice the
 * last one counts, unless the command looks at all of them. Values are checked here, so that a
 * command never sees one that cannot be meant.
 */
#include "cli/cli.h"
#include "cli/config_yaml.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NEAREST_EDITS_MAX = 2,
};

const cli_option weir__cli_common[] = {
    { "store", "URL", CLI_TEXT,
      "postgres://HOST/DB, sqlite:PATH or memory: (default: WEIR_STORE, weir.yaml, "
      "sqlite:weir.db)" },
    { "insecure", NULL, CLI_FLAG,
      "use files that belong to another user or that every user may write to" },
    { "json", NULL, CLI_FLAG, "print JSON lines, also on a terminal" },
    { "text", NULL, CLI_FLAG, "print text, also into a pipe or file" },
    { "wide", NULL, CLI_FLAG, "print every column whole, however narrow the terminal is" },
    { "utc", NULL, CLI_FLAG, "print times in UTC, not as 3 s ago" },
    { "color", "WHEN", CLI_WORD, "auto, always or never (default: auto)" },
    { "help", NULL, CLI_FLAG, "explain the command" },
};
const size_t weir__cli_common_count = sizeof weir__cli_common / sizeof weir__cli_common[0];

static size_t length_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

const char *weir__cli_nearest(const char *word, const char *(*name_of)(const void *ctx, size_t i),
                              const void *ctx, size_t count)
{
    const char *best = NULL;
    size_t best_edits = NEAREST_EDITS_MAX + 1;

    for (size_t i = 0; i < count; i++) {
        const char *name = name_of(ctx, i);
        size_t n = weir__str_edits(weir__str(word), weir__str(name));
        /* The beginning of a name is as good as one slip. */
        if (strlen(word) >= 2 && strncmp(word, name, strlen(word)) == 0) {
            n = length_least(n, 1);
        }
        /* Two slips in a word of three or four letters is another word. */
        if (n < best_edits && 2 * n < strlen(name)) {
            best = name;
            best_edits = n;
        }
    }
    return best;
}

bool weir__cli_expect(weir_str text, int32_t *expect, int64_t *version)
{
    *version = 0;
    if (weir__str_equal(text, weir__str("any"))) {
        *expect = WEIR_EXPECT_ANY;
    } else if (weir__str_equal(text, weir__str("none"))) {
        *expect = WEIR_EXPECT_NONE;
    } else if (weir__str_equal(text, weir__str("exists"))) {
        *expect = WEIR_EXPECT_EXISTS;
    } else if (weir__str_to_i64(text, version) && *version >= 0) {
        *expect = WEIR_EXPECT_EXACT;
    } else {
        return false;
    }
    return true;
}

int weir__cli_forms(cli *c, int argc, char *const *argv)
{
    const char *output = getenv("WEIR_OUTPUT");
    bool json = false, text = false, bogus = false;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        json = json || strcmp(argv[i], "--json") == 0;
        text = text || strcmp(argv[i], "--text") == 0;
    }
    if (!json && !text && output != NULL && output[0] != '\0') {
        json = strcmp(output, "json") == 0;
        text = strcmp(output, "text") == 0;
        bogus = !json && !text;
    }
    c->json_errors = json || (!text && isatty(STDERR_FILENO) == 0);
    c->out.json = json || (!text && isatty(STDOUT_FILENO) == 0);
    return bogus ? weir__cli_usage(c, "WEIR_OUTPUT is text or json, not \"%s\"", output) : CLI_DONE;
}

static const cli_option *find_in(const cli_option *options, size_t count, weir_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (weir__str_equal(weir__str(options[i].name), name)) {
            return &options[i];
        }
    }
    return NULL;
}

static const cli_option *option_find(const cli *c, weir_str name)
{
    const cli_option *o = find_in(weir__cli_common, weir__cli_common_count, name);

    if (o == NULL && c->command != NULL) {
        o = find_in(c->command->options, c->command->options_count, name);
    }
    return o;
}

static const char *option_name(const void *ctx, size_t i)
{
    const cli_command *command = ctx;

    return i < weir__cli_common_count ? weir__cli_common[i].name
                                      : command->options[i - weir__cli_common_count].name;
}

static int unknown_option(const cli *c, const char *argument, weir_str name)
{
    char word[WEIR_STR_EDITS_BYTES_MAX + 1] = { 0 };
    const char *nearest = NULL;

    if (name.len <= WEIR_STR_EDITS_BYTES_MAX) {
        memcpy(word, name.ptr, name.len);
        nearest = weir__cli_nearest(word, option_name, c->command,
                                    weir__cli_common_count +
                                        (c->command == NULL ? 0 : c->command->options_count));
    }
    if (nearest != NULL) {
        return weir__cli_usage(c, "unknown option %s, did you mean --%s?", argument, nearest);
    }
    return weir__cli_usage(c, "unknown option %s", argument);
}

/* Checks a value and fills `given`. CLI_DONE or CLI_USAGE. */
static int take_value(const cli *c, cli_given *given)
{
    const cli_option *o = given->option;
    const weir_str text = weir__str(given->text);

    switch (o->kind) {
    case CLI_FLAG:
    case CLI_TEXT:
        break;
    case CLI_WORD:
        if (text.len == 0) {
            return weir__cli_usage(c, "--%s is empty", o->name);
        }
        if (weir__utf8_valid_prefix(text.ptr, text.len) != text.len) {
            return weir__cli_usage(c, "--%s is not valid UTF-8", o->name);
        }
        break;
    case CLI_NUMBER:
        if (!weir__str_to_i64(text, &given->number) || given->number < 0) {
            return weir__cli_usage(c, "--%s takes a number from 0, not \"%s\"", o->name,
                                   given->text);
        }
        break;
    case CLI_TIME:
        if (!weir__time_from_text(text, &given->number)) {
            return weir__cli_usage(c,
                                   "--%s takes a time such as 2026-11-15T20:02:24Z or 2026-11-15, "
                                   "not \"%s\"",
                                   o->name, given->text);
        }
        break;
    case CLI_EXPECT:
        if (!weir__cli_expect(text, &given->expect, &given->number)) {
            return weir__cli_usage(c, "--%s takes any, none, exists or a version, not \"%s\"",
                                   o->name, given->text);
        }
        break;
    case CLI_WAIT:
        if (given->text == NULL) {
            given->number = -1;
            break;
        }
        /* fall through */
    case CLI_SPAN:
        if (!weir__str_to_duration_us(text, &given->number)) {
            return weir__cli_usage(c,
                                   "--%s takes a duration such as 500ms, 5s, 5m or 1h, not \"%s\"",
                                   o->name, given->text);
        }
        break;
    }
    return CLI_DONE;
}

/* CLI_DONE or CLI_USAGE. */
static int take_colour(cli *c, const char *when)
{
    static const char *const names[] = {
        [CLI_COLOUR_AUTO] = "auto", [CLI_COLOUR_ALWAYS] = "always", [CLI_COLOUR_NEVER] = "never"
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(when, names[i]) == 0) {
            c->colour = (cli_colour)i;
            return CLI_DONE;
        }
    }
    return weir__cli_usage(c, "--color takes auto, always or never, not \"%s\"", when);
}

/* Keeps an option. Common ones also set their field. CLI_DONE or CLI_USAGE. */
static int value_keep(cli *c, const cli_given *given)
{
    const char *name = given->option->name;

    if (strcmp(name, "store") == 0) {
        c->store = given->text;
    } else if (strcmp(name, "insecure") == 0) {
        c->insecure = true;
        weir__config_accept_insecure();
    } else if (strcmp(name, "json") == 0) {
        c->json = true;
    } else if (strcmp(name, "text") == 0) {
        c->text = true;
    } else if (strcmp(name, "wide") == 0) {
        c->wide = true;
    } else if (strcmp(name, "utc") == 0) {
        c->utc = true;
    } else if (strcmp(name, "color") == 0) {
        return take_colour(c, given->text);
    } else if (strcmp(name, "help") == 0) {
        c->help = true;
    } else {
        c->given[c->given_count++] = *given;
    }
    return CLI_DONE;
}

static bool is_option(const char *argument)
{
    /* "-5" is a number, "-" is stdin. */
    return argument[0] == '-' && argument[1] != '\0' && (argument[1] < '0' || argument[1] > '9');
}

/* Whether an option whose value may be left out is followed by one. */
static bool is_span(const char *argument)
{
    int64_t us = 0;

    return argument != NULL && weir__str_to_duration_us(weir__str(argument), &us);
}

/* The option at argv[*i]; *i moves on to its value when that is an argument of its own. */
static int take_option(cli *c, int argc, char *const *argv, int *i)
{
    const char *argument = strcmp(argv[*i], "-h") == 0 ? "--help" : argv[*i];
    cli_given given = { 0 };

    if (strncmp(argument, "--", 2) != 0) {
        return weir__cli_usage(c, "unknown option %s", argument);
    }
    const char *equals = strchr(argument, '=');
    const weir_str name = { .ptr = argument + 2,
                            .len = equals == NULL ? strlen(argument + 2)
                                                  : (size_t)(equals - argument) - 2 };
    given.option = option_find(c, name);
    if (given.option == NULL) {
        return unknown_option(c, argument, name);
    }
    if (given.option->kind == CLI_FLAG) {
        if (equals != NULL) {
            return weir__cli_usage(c, "--%s takes no value", given.option->name);
        }
    } else if (equals != NULL) {
        given.text = equals + 1;
    } else if (given.option->kind == CLI_WAIT) {
        given.text = *i + 1 < argc && is_span(argv[*i + 1]) ? argv[++*i] : NULL;
    } else if (*i + 1 < argc && strncmp(argv[*i + 1], "--", 2) == 0) {
        /* Somebody who forgot the value must not have an option taken for it. */
        return weir__cli_usage(c,
                               "--%s needs a value before %s; write --%s=%s if that is its value",
                               given.option->name, argv[*i + 1], given.option->name, argv[*i + 1]);
    } else if (*i + 1 < argc) {
        given.text = argv[++*i];
    } else {
        return weir__cli_usage(c, "--%s needs a value: --%s %s", given.option->name,
                               given.option->name, given.option->value);
    }
    const int status = take_value(c, &given);
    return status == CLI_DONE ? value_keep(c, &given) : status;
}

/* An exit status when what was given cannot be meant together. */
static int check_common(const cli *c)
{
    if (c->json && c->text) {
        return weir__cli_usage(c, "--json and --text exclude each other");
    }
    return CLI_DONE;
}

int weir__cli_parse_before(cli *c, int argc, char *const *argv, int *used)
{
    int i = 0;

    for (; i < argc && is_option(argv[i]); i++) {
        const int status = take_option(c, argc, argv, &i);
        if (status != CLI_DONE) {
            return status;
        }
    }
    *used = i;
    return CLI_DONE;
}

int weir__cli_parse(cli *c, int argc, char *const *argv)
{
    bool options = true;

    c->given = weir__calloc((size_t)argc + 1, sizeof *c->given);
    c->words = weir__calloc((size_t)argc + 1, sizeof *c->words);
    if (c->given == NULL || c->words == NULL) {
        weir_error err;
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return weir__cli_fail(c, &err);
    }
    for (int i = 0; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
            c->has_program = true;
            c->program_first = c->words_count;
        } else if (options && is_option(argv[i])) {
            const int status = take_option(c, argc, argv, &i);
            if (status != CLI_DONE) {
                return status;
            }
        } else {
            c->words[c->words_count++] = argv[i];
        }
    }
    c->program_first = c->has_program ? c->program_first : c->words_count;
    if (c->help) {
        return CLI_DONE;
    }
    if (c->words_count < c->command->words_min) {
        return weir__cli_usage(c, "too few arguments");
    }
    if (c->words_count > c->command->words_max) {
        return weir__cli_usage(c, "unexpected argument \"%s\"", c->words[c->command->words_max]);
    }
    return check_common(c);
}

const cli_given *weir__cli_get(const cli *c, const char *name)
{
    for (size_t i = c->given_count; i > 0; i--) {
        if (strcmp(c->given[i - 1].option->name, name) == 0) {
            return &c->given[i - 1];
        }
    }
    return NULL;
}

bool weir__cli_has(const cli *c, const char *name)
{
    return weir__cli_get(c, name) != NULL;
}

weir_str weir__cli_text(const cli *c, const char *name)
{
    const cli_given *given = weir__cli_get(c, name);

    return weir__str(given == NULL ? NULL : given->text);
}
