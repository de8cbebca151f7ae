/* fence_client.c - a worker that leases targets until it is killed, and writes down every fence.
 *
 *     fence_client --url URL --history DIR --name NAME [--targets N] [--seconds N]
 *
 * The targets t-0 ... are behind for ever: the client declares one reaction and marks them far
 * ahead when nobody has done it yet. Each round leases a few, for a short time; some are given
 * back, some forgotten. The server may go away and come back. Fences never repeat, whatever
 * happens: history.py sees it. Exit status: 0, or 1 when a call failed in a way that must not
 happen. */
#include "api/api.h"
#include "base/str.h"
#include "history.h"
#include "support.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TARGETS_MAX = 64, LEASES_MAX = 4, AWAY_SECONDS_MAX = 60 };
#define LEASE_US INT64_C(100000)

typedef struct arguments {
    const char *url, *directory, *name;
    size_t targets;
    int64_t end_us;
} arguments;

static bool is_away(weir_status status)
{
    return status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN || status == WEIR_EBUSY;
}

/* One reaction, and targets that are behind by it. Whoever comes second finds it done. */
static weir_status prepare(weir_store *s, size_t targets, weir_error *err)
{
    weir_arena arena = { 0 };
    store_reaction reaction;
    const store_reaction_declaration declaration = {
        .name = weir__str("storm"),
        .all_names = true,
        .source = weir__str("*"),
        .rule = STORE_RULE_STREAM,
        .rule_text = weir__str("{stream}"),
        .start = STORE_START_BEGINNING,
    };
    weir_status status = s->work->declare(s, &declaration, &arena, &reaction, err);
    store_positions log = { 0 };
    while (status == WEIR_OK && log.head == 0) { /* until somebody has appended something */
        (void)usleep(10000);
        status = s->log->positions(s, &log, err);
    }
    if (status == WEIR_OK && reaction.routed == 0) {
        static char names[TARGETS_MAX][16];
        store_mark marks[TARGETS_MAX];
        for (size_t i = 0; i < targets; i++) {
            (void)snprintf(names[i], sizeof names[i], "t-%zu", i);
            marks[i] = (store_mark){ .target = weir__str(names[i]),
                                     .lane = weir__str("default"),
                                     .source = weir__str("*"),
                                     .value = weir__str(names[i]),
                                     .first = 1,
                                     .last = log.head };
        }
        const store_route_step step = {
            .reaction = reaction.id, .number = reaction.number, .from = 0, .to = log.head
        };
        const store_route route = {
            .steps = &step, .steps_count = 1, .marks = marks, .marks_count = targets
        };
        status = s->work->route(s, &route, NULL, err);
        status = status == WEIR_ECONFLICT ? WEIR_OK : status;
    }
    weir__arena_free(&arena);
    return status;
}

/* Leases a few and writes them down; gives some back. */
static weir_status round_run(weir_store *s, const arguments *a, history *h, rng *random,
                             store_lease_list *list, weir_error *err)
{
    const store_lease_request request = {
        .lane = weir__str("default"),
        .holder = weir__str(a->name),
        .lease_us = LEASE_US,
        .limit = 1 + rng_below(random, LEASES_MAX),
        .all_reactions = true,
    };
    weir_status status = s->work->turn(s, NULL, 0, &request, list, err);
    if (status != WEIR_OK) {
        return status;
    }
    store_fenced given[LEASES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < list->leases_count; i++) {
        const store_leased *l = &list->leases[i];
        history_line(h, "f %.*s %" PRId64, (int)l->name.len, l->name.ptr, l->fence);
        if (rng_below(random, 4) != 0) {
            given[count++] = (store_fenced){ .target = l->target, .fence = l->fence };
        }
    }
    return count == 0 ? WEIR_OK : s->work->extend(s, 0, given, count, err);
}

static void arguments_parse(arguments *a, int argc, char **argv)
{
    static const struct option options[] = {
        { "url", required_argument, NULL, 'u' },     { "history", required_argument, NULL, 'h' },
        { "name", required_argument, NULL, 'n' },    { "targets", required_argument, NULL, 't' },
        { "seconds", required_argument, NULL, 'd' }, { NULL, 0, NULL, 0 },
    };
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        switch (o) {
        case 'u':
            a->url = optarg;
            break;
        case 'h':
            a->directory = optarg;
            break;
        case 'n':
            a->name = optarg;
            break;
        case 't':
            a->targets = (size_t)atoi(optarg);
            break;
        case 'd':
            a->end_us = mono_us() + strtoll(optarg, NULL, 10) * 1000000;
            break;
        default:
            exit(2);
        }
    }
    must(a->url != NULL && a->directory != NULL && a->name != NULL && a->targets >= 1 &&
             a->targets <= TARGETS_MAX,
         "usage: see fence_client.c");
}

int main(int argc, char **argv)
{
    arguments a = { .targets = 8, .end_us = INT64_MAX };
    history_intent unused;
    bool has_open = false;
    weir_error err = { 0 };
    store_lease_list list = { 0 };
    arguments_parse(&a, argc, argv);
    char *path = text_format("%s/%s", a.directory, a.name);
    history h = history_open(path, &unused, &has_open);
    free(path);
    weir *w = store_await(a.url, AWAY_SECONDS_MAX);
    weir_store *s = weir__store(w);
    rng random = rng_seeded((uint64_t)mono_us());
    weir_status status = prepare(s, a.targets, &err);
    while (mono_us() < a.end_us && (status == WEIR_OK || is_away(status))) {
        status = round_run(s, &a, &h, &random, &list, &err);
    }
    const bool ok = status == WEIR_OK || is_away(status);
    if (!ok) {
        history_line(&h, "e lease %s %s", weir_status_text(status), err.message);
    }
    weir__arena_free(&list.arena);
    history_close(&h);
    weir_close(w);
    return ok ? 0 : 1;
}
