/* target_filter.c - which targets a command is about: names, or a filter, never nothing.
 *
 * A script whose variable is empty must not reach every target: without names and without a filter
 * it is wrong usage, and "every target" has a word of its own, --all.
 */
#include "cli/operate.h"
#include "store/request.h"

#include <stdlib.h>

bool weir__cli_has_filter(const cli *c)
{
    return weir__cli_has(c, "match") || weir__cli_has(c, "source") || weir__cli_has(c, "lane") ||
           weir__cli_has(c, "blocked");
}

weir_status weir__cli_filter_options(const cli *c, cli_target_filter *f, weir_error *err)
{
    const cli_given *match = weir__cli_get(c, "match"), *source = weir__cli_get(c, "source");
    weir_status status = WEIR_OK;

    if (match != NULL) {
        status = weir__pattern_open(&f->match, weir__str(match->text), err);
    }
    if (status == WEIR_OK && source != NULL) {
        status = weir__pattern_open(&f->source, weir__str(source->text), err);
    }
    f->filter.match = f->match;
    f->filter.source = f->source;
    f->filter.lane = weir__cli_text(c, "lane");
    f->filter.blocked = weir__cli_has(c, "blocked");
    return status;
}

/* A name that is given twice is one target, which changes once. */
static weir_status take_names(const cli *c, size_t first, cli_target_filter *f, weir_error *err)
{
    const size_t count = c->words_count - first;

    f->names = weir__calloc(count, sizeof *f->names);
    if (f->names == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        f->names[i] = weir__str(c->words[first + i]);
        const weir_status status = weir__name_check("target name", f->names[i], true, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    f->filter.names = f->names;
    f->filter.names_count = weir__names_sort(f->names, count);
    return WEIR_OK;
}

int weir__cli_filter_take(const cli *c, size_t first, cli_target_filter *f)
{
    const bool named = c->words_count > first, filtered = weir__cli_has_filter(c);
    const bool all = weir__cli_has(c, "all");
    weir_error err;

    if (!named && !filtered && !all) {
        return weir__cli_usage(c, "which targets? Name them, or give --match, --source, --lane, "
                                  "--blocked or --all");
    }
    if (named && (filtered || all)) {
        return weir__cli_usage(c, "names of targets and a filter exclude each other");
    }
    if (filtered && all) {
        return weir__cli_usage(c, "--all and a filter exclude each other");
    }
    const weir_status status =
        named ? take_names(c, first, f, &err) : weir__cli_filter_options(c, f, &err);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

void weir__cli_filter_free(cli_target_filter *f)
{
    weir__pattern_close(f->match);
    weir__pattern_close(f->source);
    weir__free(f->names);
    *f = (cli_target_filter){ 0 };
}

static bool take_none(void *ctx, const store_target *t, bool *wanted)
{
    (void)t;
    *(bool *)ctx = true;
    *wanted = false;
    return false;
}

weir_status weir__cli_filter_check(weir_store *store, const cli_target_filter *f, weir_error *err)
{
    bool found = f->filter.names_count > 0;
    const cli_target_sink sink = { .wants = take_none, .ctx = &found };
    weir_status status = WEIR_OK;

    if (!found) {
        status = weir__cli_targets_each(store, &f->filter, 1, &sink, err);
    }
    return status != WEIR_OK || found ? status
                                      : weir__fail(err, WEIR_ENOTFOUND, "no target matched");
}
