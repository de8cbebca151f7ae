/* differential.c - runs the seeds of the differential kit.
 *
 *     differential [--stores LIST] [--seed N] [--seeds COUNT] [--operations COUNT] [--verbose]
 *                  [NAME OF A TEST]
 *
 * LIST is two or more of memory, sqlite and postgres, with commas; memory,sqlite unless given.
 * PostgreSQL is the server of WEIR_TEST_POSTGRES (see tests/postgres/with-server).
 *
 * Without --seed, seeds 1 to COUNT run (WEIR_DIFFERENTIAL_SEEDS, or 400; of those with PostgreSQL
 * a twentieth), 500 operations each, and each seed is one test in TAP. A seed that fails prints its
 * number, the operation and what each store answered; `--seed N --verbose` runs it again and prints
 * every operation.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    SEEDS_DEFAULT = 400,
    OPERATIONS_DEFAULT = 500,
    OPERATIONS_LOG_EVERY = 100,
    PROLOGUE = 8,
    WAKE_MS_MAX = 5000,
    POSTGRES_SHARE = 20
};

static const operation *const groups[] = { log_operations, reaction_operations, target_operations,
                                           operator_operations, world_operations };

static const char *const kind_names[STORES] = { "memory", "sqlite", "postgres" };

static const operation *some_operation(world *w)
{
    unsigned total = 0;
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (const operation *op = groups[g]; op->name != NULL; op++) {
            total += op->weight;
        }
    }
    uint64_t chosen = chance(w, total);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (const operation *op = groups[g]; op->name != NULL; op++) {
            if (chosen < op->weight) {
                return op;
            }
            chosen -= op->weight;
        }
    }
    return NULL;
}

/* Every line with "# " before it, as TAP wants it. */
static void print_text(const weir_buffer *b)
{
    const char *at = b->ptr;
    const char *end = b->ptr + b->len;
    while (at != NULL && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t len = (size_t)((newline == NULL ? end : newline) - at);
        printf("#   %.*s\n", (int)len, at);
        at = newline == NULL ? end : newline + 1;
    }
}

static void watches_check(world *w)
{
    for (int store = 0; store < w->stores_count; store++) {
        bool woken = false;
        weir_error err;
        /* A database tells everybody in its own time. */
        const int32_t wait_ms = w->must_wake && w->kinds[store] == KIND_POSTGRES ? WAKE_MS_MAX : 0;
        if (w->stores[store]->log->watch_wait(w->watches[store], wait_ms, &woken, &err) !=
            WEIR_OK) {
            wrong(w, "store %d: could not wait: %s", store, err.message);
        }
        if (w->must_wake && !woken) {
            wrong(w, "store %d: nobody was woken", store);
        }
    }
}

/* One operation; false: the stores differ, or one of them is wrong. */
static bool operation_run(world *w, int index, void (*run)(world *w), bool verbose)
{
    weir__arena_reset(&w->arena);
    weir__buffer_clear(&w->what);
    for (int i = 0; i < w->stores_count; i++) {
        weir__buffer_clear(&w->text[i]);
    }
    w->must_wake = false;
    run(w);
    watches_check(w);
    world_realign(w);
    bool same = w->wrong[0] == '\0';
    for (int i = 1; i < w->stores_count; i++) {
        same = same && w->text[i].len == w->text[0].len &&
               (w->text[0].len == 0 || memcmp(w->text[i].ptr, w->text[0].ptr, w->text[0].len) == 0);
    }
    if (verbose || !same) {
        printf("# operation %d: %.*s\n", index, (int)w->what.len, w->what.ptr);
    }
    if (verbose && same) {
        print_text(&w->text[0]);
    }
    if (!same) {
        printf("# seed %llu, operation %d: %s\n", (unsigned long long)w->seed, index,
               w->wrong[0] == '\0' ? "the stores differ" : w->wrong);
        for (int i = 0; i < w->stores_count; i++) {
            printf("# %s:\n", w->stores[i]->about->scheme);
            print_text(&w->text[i]);
        }
        printf("# again: differential --stores ");
        for (int i = 0; i < w->stores_count; i++) {
            printf("%s%s", i == 0 ? "" : ",", kind_names[w->kinds[i]]);
        }
        printf(" --seed %llu --verbose\n", (unsigned long long)w->seed);
    }
    return same;
}

static bool seed_run(uint64_t seed, const store_kind *kinds, int kinds_count, int operations,
                     bool verbose)
{
    static world w;
    weir_error err = { 0 };
    bool same = true;
    if (!world_open(&w, seed, kinds, kinds_count, &err)) {
        printf("# seed %llu: could not open the stores: %s\n", (unsigned long long)seed,
               err.message);
        world_close(&w);
        return false;
    }
    for (int i = 0; i < operations && same; i++) {
        same = operation_run(&w, i, i < PROLOGUE ? op_declare : some_operation(&w)->run, verbose);
        if (same && (i + 1) % OPERATIONS_LOG_EVERY == 0) {
            same = operation_run(&w, i, compare_logs, false);
        }
    }
    world_close(&w);
    return same;
}

/* The stores of a list; 0: not such a list. */
static int kinds_parse(const char *list, store_kind kinds[STORES])
{
    int count = 0;
    while (*list != '\0') {
        const size_t len = strcspn(list, ",");
        int kind = 0;
        while (kind < STORES &&
               (strncmp(kind_names[kind], list, len) != 0 || kind_names[kind][len] != '\0')) {
            kind++;
        }
        for (int i = 0; i < count; i++) {
            kind = (int)kinds[i] == kind ? STORES : kind; /* twice */
        }
        if (kind == STORES) {
            return 0;
        }
        kinds[count++] = (store_kind)kind;
        list += len + (list[len] == ',');
    }
    return count;
}

int main(int argc, char **argv)
{
    const char *seeds_text = getenv("WEIR_DIFFERENTIAL_SEEDS");
    uint64_t first = 1;
    uint64_t count = seeds_text != NULL ? strtoull(seeds_text, NULL, 10) : SEEDS_DEFAULT;
    int operations = OPERATIONS_DEFAULT;
    bool counted = false;
    store_kind kinds[STORES] = { KIND_MEMORY, KIND_SQLITE };
    int kinds_count = 2;
    bool verbose = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
            continue;
        }
        unsigned long long seed = 0; /* a test by its name */
        if (sscanf(argv[i], "seed %llu of %d operations", &seed, &operations) == 2) {
            first = seed;
            count = 1;
            counted = true;
            continue;
        }
        if (strcmp(argv[i], "--seed") == 0) {
            first = strtoull(value, NULL, 10);
            count = 1;
            counted = true;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            count = strtoull(value, NULL, 10);
            counted = true;
        } else if (strcmp(argv[i], "--stores") == 0) {
            kinds_count = kinds_parse(value, kinds);
            if (kinds_count == 0) {
                fprintf(stderr, "differential: --stores takes memory, sqlite, postgres\n");
                return 2;
            }
        } else if (strcmp(argv[i], "--operations") == 0) {
            operations = (int)strtol(value, NULL, 10);
        } else {
            fprintf(stderr, "differential: unknown argument %s\n", argv[i]);
            return 2;
        }
        i++;
    }
    for (int i = 0; i < kinds_count; i++) {
        if (kinds[i] == KIND_POSTGRES) {
            if (getenv("WEIR_TEST_POSTGRES") == NULL) {
                fprintf(stderr, "differential: WEIR_TEST_POSTGRES is not set: run this by "
                                "tests/postgres/with-server\n");
                return 2;
            }
            count = counted ? count : (count + POSTGRES_SHARE - 1) / POSTGRES_SHARE;
        }
    }
    printf("1..%llu\n", (unsigned long long)count);
    int failed = 0;
    for (uint64_t i = 0; i < count; i++) {
        const bool same = seed_run(first + i, kinds, kinds_count, operations, verbose);
        printf("%s %llu - seed %llu of %d operations\n", same ? "ok" : "not ok",
               (unsigned long long)(i + 1), (unsigned long long)(first + i), operations);
        fflush(stdout);
        failed += !same;
    }
    return failed == 0 ? 0 : 1;
}
