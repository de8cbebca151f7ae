/* storm_client.c - a client that appends from many threads until it is killed, and keeps a history.
 *
 *     storm_client --url URL --history DIR --name NAME [--threads N] [--streams N] [--appends N]
 *                  [--seconds N] [--seed N] [--race] [--away] [--rule]
 *
 * Each thread appends to the shared streams s-0 ... with every kind of expectation, to several
 * streams at once, and under idempotency keys; before each call it writes what it is about to do,
 * afterwards what came of it. A thread that finds an intent without an outcome from an earlier life
 * tries it again if it had a key: that append must be in the log once, whatever happened. It ends
 * after --appends per thread or
 * --seconds; by default only when it is killed. --rule watches the locking rule (rule.h), with a
 * URL that names RULE_VFS. --race: all appends go to one stream and expect the version that was
 * seen last. --away: the server may go away and come back; an append under a key is then tried
 * again until its outcome is known, one without is given up. Exit status: 0, or 1 when a call
 * failed in a way that must not happen.
 */
#include "history.h"
#include "rule.h"
#include "support.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 64,
    EVENTS_MAX = 16,
    DATA_BYTES_MAX = 512,
    PAD_BYTES_MAX = 256,
    BUSY_IN_A_ROW_MAX = 20, /* of 10 s each, unless the URL says otherwise */
    AWAY_SECONDS_MAX = 60,  /* a server that does not come back */
};

typedef struct client {
    /* immutable after main */
    const char *url, *directory, *name;
    int threads, streams;
    int64_t appends_max; /* per thread; 0: no limit */
    int64_t end_us;      /* monotonic; 0: no limit */
    uint64_t seed;
    bool watch_rule, race, away;
    weir *store;
    atomic_bool failed; /* relaxed: read once, after joining */
} client;

typedef struct worker {
    client *client;
    int number;
    history history;
    rng random;
    int64_t done;
    int busy_in_a_row;
    int64_t seen; /* --race: the version of the stream, -1: there is none */
} worker;

/* What came of one call. */
typedef enum outcome { ANSWERED, AWAY, WRONG } outcome;

/* ---- one append --------------------------------------------------------------------------- */

static int32_t expectation_of(int64_t expect)
{
    if (expect == HISTORY_ANY) {
        return WEIR_EXPECT_ANY;
    }
    if (expect == HISTORY_NONE) {
        return WEIR_EXPECT_NONE;
    }
    return expect == HISTORY_EXISTS ? WEIR_EXPECT_EXISTS : WEIR_EXPECT_EXACT;
}

static int64_t expected_of(const weir_error *err)
{
    return err->code == WEIR_ECONFLICT ? err->expected : 0;
}

/* Builds the request from the intent alone, so that a second life says exactly the same. The parts
 * take turns: an append to two streams interleaves their events. */
static int32_t intent_append(weir *w, const history_intent *intent, const weir_append_result **out,
                             weir_error *err)
{
    static const char pad[PAD_BYTES_MAX + 1] =
        "................................................................"
        "................................................................"
        "................................................................"
        "................................................................";
    char data[EVENTS_MAX][DATA_BYTES_MAX];
    weir_new_event events[EVENTS_MAX];
    const weir_new_event *event_list[EVENTS_MAX];
    weir_expectation expectations[HISTORY_STREAMS_MAX];
    const weir_expectation *expectation_list[HISTORY_STREAMS_MAX];
    int total = 0, left[HISTORY_STREAMS_MAX], count = 0;

    for (size_t i = 0; i < intent->parts_count; i++) {
        const history_part *p = &intent->parts[i];
        expectations[i] =
            (weir_expectation){ WEIR_EXPECTATION_INIT, .expect = expectation_of(p->expect),
                                .version = p->expect >= 0 ? p->expect : 0,
                                .stream = text(p->stream) };
        expectation_list[i] = &expectations[i];
        left[i] = p->count;
        total += p->count;
    }
    must(total <= EVENTS_MAX && intent->pad <= PAD_BYTES_MAX, "an intent is too large");
    while (count < total) {
        for (size_t i = 0; i < intent->parts_count; i++) {
            if (left[i] == 0) {
                continue;
            }
            left[i]--;
            (void)snprintf(data[count], DATA_BYTES_MAX,
                           "{\"op\":\"%s\",\"i\":%d,\"of\":%d,\"pad\":\"%.*s\"}", intent->op, count,
                           total, intent->pad, pad);
            events[count] =
                (weir_new_event){ WEIR_NEW_EVENT_INIT, .stream = text(intent->parts[i].stream),
                                  .name = text("Stormed"), .data = text(data[count]) };
            event_list[count] = &events[count];
            count++;
        }
    }
    const weir_append_request r = {
        WEIR_APPEND_REQUEST_INIT,
        .events = event_list,
        .events_count = (size_t)total,
        .expectations = expectation_list,
        .expectations_count = intent->parts_count,
        .key = intent->keyed ? text(intent->op) : (weir_str){ 0 },
    };
    return weir_append(w, &r, out, err);
}

static void acknowledge(worker *me, const history_intent *intent, const weir_append_result *result)
{
    char parts[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < result->streams_count; i++) {
        const weir_appended *a = result->streams[i];
        const int n =
            snprintf(parts + used, sizeof(parts) - used, "%s%.*s:%" PRId64 ":%" PRId64 ":%" PRId64,
                     i > 0 ? "," : "", (int)a->stream.len, a->stream.ptr, a->first, a->last, a->id);
        must(n > 0 && (size_t)n < sizeof(parts) - used, "an acknowledgement is too long");
        used += (size_t)n;
    }
    history_line(&me->history, "a %s %u %s", intent->op, result->replayed, parts);
}

/* WRONG: something happened that must not. */
static outcome intent_try(worker *me, const history_intent *intent, bool again)
{
    const weir_append_result *result = NULL;
    weir_error err;
    history_intend(&me->history, intent, again);
    const int32_t rc = intent_append(me->client->store, intent, &result, &err);
    if (rc == WEIR_OK) {
        acknowledge(me, intent, result);
        me->seen = result->streams[0]->last;
        weir_append_result_free(result);
        me->busy_in_a_row = 0;
        return ANSWERED;
    }
    if (rc == WEIR_EBUSY) {
        me->busy_in_a_row++;
    }
    if (rc == WEIR_ECONFLICT || (rc == WEIR_EBUSY && me->busy_in_a_row < BUSY_IN_A_ROW_MAX) ||
        (rc == WEIR_EUNAVAILABLE && me->client->away)) {
        history_line(&me->history, "r %s %s %s %" PRId64 " %" PRId64, intent->op,
                     weir_status_text(rc), err.stream[0] != '\0' ? err.stream : "-",
                     expected_of(&err), rc == WEIR_ECONFLICT ? err.actual : 0);
        me->seen = rc == WEIR_ECONFLICT ? err.actual : me->seen;
        return rc == WEIR_EUNAVAILABLE ? AWAY : ANSWERED;
    }
    if (rc == WEIR_EUNKNOWN && me->client->away) {
        history_line(&me->history, "u %s", intent->op);
        return AWAY;
    }
    history_line(&me->history, "e %s %s %s", intent->op, weir_status_text(rc), err.message);
    return WRONG;
}

/* False: something happened that must not. */
static bool intent_run(worker *me, const history_intent *intent, bool again)
{
    const int64_t end_us = mono_us() + AWAY_SECONDS_MAX * INT64_C(1000000);
    outcome came = intent_try(me, intent, again);
    while (came == AWAY && intent->keyed && mono_us() < end_us) {
        came = intent_try(me, intent, true);
    }
    if (came == AWAY && intent->keyed) {
        history_line(&me->history, "e %s unavailable the server did not come back", intent->op);
    }
    return came == ANSWERED || (came == AWAY && !intent->keyed);
}

/* ---- what to append ------------------------------------------------------------------------ */

/* A version to expect: the stream's own, as of now, so that some expectations hold and some lose a
 * race. */
static int64_t expectation_draw(worker *me, const char *stream)
{
    const weir_stream *info = NULL;
    const uint32_t kind = rng_below(&me->random, 10);
    if (kind < 5) {
        return HISTORY_ANY;
    }
    if (weir_stream_info(me->client->store, text(stream), &info, NULL) != WEIR_OK) {
        return HISTORY_NONE;
    }
    const int64_t version = info->version;
    weir_stream_free(info);
    return kind < 9 ? version : HISTORY_EXISTS;
}

static void intent_draw(worker *me, history_intent *out)
{
    const uint32_t kind = rng_below(&me->random, 100);
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->op, sizeof(out->op), "%s-%d-%" PRId64, me->client->name, me->number,
                   me->history.intents);
    out->keyed = rng_below(&me->random, 3) == 0;
    out->pad = (int)rng_below(&me->random, PAD_BYTES_MAX);
    if (me->client->race) {
        out->parts_count = 1;
        (void)snprintf(out->parts[0].stream, HISTORY_NAME_BYTES, "s-0");
        out->parts[0].expect = me->seen < 0 ? HISTORY_NONE : me->seen;
        out->parts[0].count = 1 + (int)rng_below(&me->random, 3);
        return;
    }
    if (kind < 5) { /* a stream of its own, which must not be there */
        out->parts_count = 1;
        (void)snprintf(out->parts[0].stream, HISTORY_NAME_BYTES, "own-%.59s", out->op);
        out->parts[0].expect = HISTORY_NONE;
        out->parts[0].count = 1 + (int)rng_below(&me->random, 3);
        return;
    }
    out->parts_count = kind < 75 ? 1 : 2 + rng_below(&me->random, HISTORY_STREAMS_MAX - 1);
    const uint32_t first = rng_below(&me->random, (uint32_t)me->client->streams);
    for (size_t i = 0; i < out->parts_count; i++) {
        history_part *p = &out->parts[i];
        (void)snprintf(p->stream, sizeof(p->stream), "s-%u",
                       (first + (uint32_t)i) % (uint32_t)me->client->streams);
        p->expect = expectation_draw(me, p->stream);
        p->count = 1 + (int)rng_below(&me->random, 3);
    }
}

static bool rule_kept(worker *me)
{
    if (!me->client->watch_rule) {
        return true;
    }
    const rule_report report = rule_now();
    if (report.breaches > 0) {
        history_line(&me->history, "v %" PRId64 " breaches, first: %s", report.breaches,
                     report.first[0]);
    }
    return report.breaches == 0;
}

static void *worker_main(void *arg)
{
    worker *me = arg;
    client *c = me->client;
    history_intent intent;
    bool has_open = false;
    char *path = text_format("%s/%s-%d", c->directory, c->name, me->number);
    me->history = history_open(path, &intent, &has_open);
    free(path);
    /* Another life, another sequence: the number of appends so far is part of the seed. */
    me->random = rng_seeded(c->seed * 1000003 + (uint64_t)me->number * 7919 +
                            (uint64_t)me->history.intents * 31);
    bool ok = !(has_open && intent.keyed) || intent_run(me, &intent, true);
    while (ok && (c->appends_max == 0 || me->done < c->appends_max) &&
           (c->end_us == 0 || mono_us() < c->end_us)) {
        intent_draw(me, &intent);
        ok = intent_run(me, &intent, false);
        if (ok && intent.keyed && rng_below(&me->random, 8) == 0) {
            ok = intent_run(me, &intent, true); /* a client that repeats itself for no reason */
        }
        me->done++;
        ok = ok && rule_kept(me);
    }
    if (ok) {
        history_line(&me->history, "d %" PRId64, me->done);
    } else {
        atomic_store_explicit(&c->failed, true, memory_order_relaxed);
    }
    history_close(&me->history);
    return NULL;
}

static void arguments_parse(client *c, int argc, char **argv)
{
    static const struct option options[] = {
        { "url", required_argument, NULL, 'u' },     { "history", required_argument, NULL, 'h' },
        { "name", required_argument, NULL, 'n' },    { "threads", required_argument, NULL, 't' },
        { "streams", required_argument, NULL, 's' }, { "appends", required_argument, NULL, 'a' },
        { "seconds", required_argument, NULL, 'd' }, { "seed", required_argument, NULL, 'x' },
        { "rule", no_argument, NULL, 'r' },          { "race", no_argument, NULL, 'R' },
        { "away", no_argument, NULL, 'A' },          { NULL, 0, NULL, 0 },
    };
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        switch (o) {
        case 'u':
            c->url = optarg;
            break;
        case 'h':
            c->directory = optarg;
            break;
        case 'n':
            c->name = optarg;
            break;
        case 't':
            c->threads = atoi(optarg);
            break;
        case 's':
            c->streams = atoi(optarg);
            break;
        case 'a':
            c->appends_max = strtoll(optarg, NULL, 10);
            break;
        case 'd':
            c->end_us = mono_us() + strtoll(optarg, NULL, 10) * 1000000;
            break;
        case 'x':
            c->seed = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            c->watch_rule = true;
            break;
        case 'R':
            c->race = true;
            break;
        case 'A':
            c->away = true;
            break;
        default:
            exit(2);
        }
    }
    must(c->url != NULL && c->directory != NULL && c->name != NULL, "usage: see storm_client.c");
    must(c->threads >= 1 && c->threads <= THREADS_MAX && c->streams >= HISTORY_STREAMS_MAX,
         "usage: 1 to 64 threads, at least 4 streams");
}

int main(int argc, char **argv)
{
    static worker workers[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    client c = { .threads = 1, .streams = 8, .seed = 1 };
    arguments_parse(&c, argc, argv);
    if (c.watch_rule) {
        rule_register();
    }
    c.store = c.away ? store_await(c.url, AWAY_SECONDS_MAX) : store_open(c.url, 0);
    for (int i = 0; i < c.threads; i++) {
        workers[i].client = &c;
        workers[i].number = i;
        workers[i].seen = -1;
        must(pthread_create(&threads[i], NULL, worker_main, &workers[i]) == 0,
             "cannot start a thread");
    }
    for (int i = 0; i < c.threads; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    weir_close(c.store);
    if (c.watch_rule) {
        const rule_report report = rule_now();
        (void)printf("{\"commits\":%" PRId64 ",\"checkpoints\":%" PRId64 ",\"recoveries\":%" PRId64
                     ",\"breaches\":%" PRId64 "}\n",
                     report.commits, report.checkpoints, report.recoveries, report.breaches);
        return report.breaches > 0 || atomic_load(&c.failed) ? 1 : 0;
    }
    return atomic_load(&c.failed) ? 1 : 0;
}
