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

static bool every_promise_holds_in_every_seed(uint64_t seeds)
{
    uint64_t digest = 0, handled = 0, losses = 0, crashes = 0;
    int failures = 0;

    for (uint64_t seed = 1; seed <= seeds && failures < FAILURES_MAX; seed++) {
        if (!sim_run(&world, seed, false, &digest)) {
            (void)printf("# seed %llu: %s\n", (unsigned long long)seed, world.problem);
            failures++;
        }
        handled += world.effects;
        losses += world.losses;
        crashes += world.crashes;
    }
    (void)printf("# %llu seeds: %llu effects, %llu leases lost, %llu crashes\n",
                 (unsigned long long)seeds, (unsigned long long)handled, (unsigned long long)losses,
                 (unsigned long long)crashes);
    /* A simulation in which nothing happens proves nothing. */
    return failures == 0 && handled >= 50 * seeds && losses >= seeds && crashes >= seeds;
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
