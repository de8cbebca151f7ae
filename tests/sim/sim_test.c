/* sim_test.c - runs the simulator's seeds.
 *
 *     sim_test [--seed N] [--seeds COUNT] [NAME OF A TEST]
 *
 * Goal: the promises of the engine hold whatever happens, see model.c. Method: seeds 1 to COUNT
 * (WEIR_SIM_SEEDS, or 1,000) are run, 2,000 steps each, and then on without faults until all is
 * done. A seed that fails is named; `--seed N` runs it again and prints every step.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS_DEFAULT = 1000, FAILURES_MAX = 5 };

static sim world; /* large */

static int run_one(uint64_t seed)
{
    uint64_t digest = 0;
    const bool ok = sim_run(&world, seed, true, &digest);

    (void)printf("# digest %016llx, %llu effects\n", (unsigned long long)digest,
                 (unsigned long long)world.effects);
    (void)printf("1..1\n%s 1 - seed %llu\n", ok ? "ok" : "not ok", (unsigned long long)seed);
    return ok ? 0 : 1;
}

static bool one_seed_is_one_run(uint64_t seeds)
{
    (void)seeds;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        uint64_t first = 0, second = 0;
        (void)sim_run(&world, seed, false, &first);
        (void)sim_run(&world, seed, false, &second);
        if (first != second) {
            (void)printf("# seed %llu is two different runs\n", (unsigned long long)seed);
            return false;
        }
    }
    return true;
}

/* What has to happen at least so often in ten seeds: a simulation in which nothing happens proves
 * nothing. */
static const struct {
    const char *name;
    metric_counter counter;
    uint64_t least_in_ten;
} wanted[] = {
    { "events handled", METRIC_HANDLED, 1000 },  { "events failed", METRIC_FAILED, 100 },
    { "leases lost", METRIC_LOST, 30 },          { "settles that lost a race", METRIC_RERUN, 30 },
    { "targets deferred", METRIC_DEFERRED, 50 }, { "targets blocked", METRIC_BLOCKED, 10 },
    { "events parked", METRIC_PARKED, 4 },       { "calls that failed", METRIC_STORE_ERRORS, 100 },
};

/* What the simulator itself has seen, summed up. */
typedef struct seen {
    uint64_t effects, crashes, rows, pulls, pulls_lost, turns, plain, plain_lost, looks;
} seen;

static bool enough_seen(const seen *sum, uint64_t seeds)
{
    (void)printf("# %llu seeds, %llu effects, %llu crashes\n", (unsigned long long)seeds,
                 (unsigned long long)sum->effects, (unsigned long long)sum->crashes);
    (void)printf("# %llu rows of projections, %llu deliveries pulled, %llu of them lost\n",
                 (unsigned long long)sum->rows, (unsigned long long)(sum->pulls + sum->pulls_lost),
                 (unsigned long long)sum->pulls_lost);
    (void)printf("# %llu turns settled %llu plain batches with %llu events, and refused %llu\n",
                 (unsigned long long)sum->turns, (unsigned long long)sum->plain,
                 (unsigned long long)sum->looks, (unsigned long long)sum->plain_lost);
    return sum->crashes >= seeds && sum->rows >= 20 * seeds && sum->pulls >= 20 * seeds &&
           sum->pulls_lost >= seeds / 2 && sum->looks >= 20 * seeds && sum->turns >= 20 * seeds &&
           sum->plain > sum->turns && sum->plain_lost >= seeds / 20;
}

static bool enough_happened(const uint64_t *counted, uint64_t seeds)
{
    bool enough = true;

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const uint64_t count = counted[wanted[i].counter];
        (void)printf("# %llu %s\n", (unsigned long long)count, wanted[i].name);
        enough = enough && 10 * count >= wanted[i].least_in_ten * seeds;
    }
    return enough;
}

static bool every_promise_holds_in_every_seed(uint64_t seeds)
{
    uint64_t digest = 0;
    seen sum = { 0 };
    uint64_t counted[METRIC_COUNTERS] = { 0 };
    int failures = 0;

    for (uint64_t seed = 1; seed <= seeds && failures < FAILURES_MAX; seed++) {
        if (!sim_run(&world, seed, false, &digest)) {
            (void)printf("# seed %llu: %s\n", (unsigned long long)seed, world.problem);
            failures++;
        }
        sum.effects += world.effects;
        sum.crashes += world.crashes;
        sum.rows += world.projections;
        sum.pulls += world.pulls;
        sum.pulls_lost += world.pulls_lost;
        sum.turns += world.turns;
        sum.plain += world.plain;
        sum.plain_lost += world.plain_lost;
        sum.looks += world.looks;
        for (int i = 0; i < METRIC_COUNTERS; i++) {
            counted[i] += world.counted[i];
        }
    }
    return enough_seen(&sum, seeds) && enough_happened(counted, seeds) && failures == 0;
}

typedef struct sim_test {
    const char *name;
    bool (*run)(uint64_t seeds);
} sim_test;

static const sim_test tests[] = {
    { "one_seed_is_one_run", one_seed_is_one_run },
    { "every_promise_holds_in_every_seed", every_promise_holds_in_every_seed },
};

int main(int argc, char **argv)
{
    const size_t count = sizeof tests / sizeof tests[0];
    const char *from_environment = getenv("WEIR_SIM_SEEDS");
    uint64_t seeds =
        from_environment != NULL ? strtoull(from_environment, NULL, 10) : SEEDS_DEFAULT;
    const char *only = NULL;
    size_t planned = 0, number = 0;
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--seed") == 0) {
            return run_one(strtoull(value, NULL, 10));
        }
        if (strcmp(argv[i], "--seeds") == 0) {
            seeds = strtoull(value, NULL, 10);
            i++;
        } else {
            only = argv[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        planned += only == NULL || strcmp(only, tests[i].name) == 0;
    }
    (void)printf("1..%zu\n", planned);
    for (size_t i = 0; i < count; i++) {
        if (only == NULL || strcmp(only, tests[i].name) == 0) {
            const bool ok = tests[i].run(seeds);
            (void)printf("%s %zu - %s\n", ok ? "ok" : "not ok", ++number, tests[i].name);
            failed += !ok;
        }
    }
    return failed == 0 && planned > 0 ? 0 : 1;
}
