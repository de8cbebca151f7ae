/* lease.c - how long leasing ten targets takes, in a store that was filled before.
 *
 *     lease --url URL --lane LANE --times N
 *
 * Every lease is given back before the next, outside of the time. Prints the median and the 99th
 * percentile in microseconds, and how many targets a lease gave.
 */
#include "bench.h"
#include "store/url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TARGETS = 10, TIMES_MAX = 10000 };

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void give_back(weir_store *s, const store_lease_list *list)
{
    store_fenced items[TARGETS];
    weir_error err;
    for (size_t i = 0; i < list->leases_count; i++) {
        items[i] =
            (store_fenced){ .target = list->leases[i].target, .fence = list->leases[i].fence };
    }
    bench_must(s->work->extend(s, 0, items, list->leases_count, &err) == WEIR_OK, "cannot release");
}

int main(int argc, char **argv)
{
    static int64_t took[TIMES_MAX];
    store_url url = { 0 };
    weir_store *s = NULL;
    weir_error err = { 0 };
    store_lease_list list = { 0 };
    const int64_t times = bench_number(argc, argv, "times", 300);
    const char *lane = bench_text(argc, argv, "lane", "default");
    bench_must(times >= 1 && times <= TIMES_MAX, "1 to 10000 times");
    bench_must(weir__url_parse(&url, bench_text(argc, argv, "url", NULL), &err) == WEIR_OK &&
                   weir__store_open(&s, &url, &err) == WEIR_OK,
               err.message);
    const store_lease_request r = { .lane = { lane, strlen(lane) },
                                    .holder = { "bench", 5 },
                                    .lease_us = 30 * 1000 * 1000,
                                    .limit = TARGETS,
                                    .leading = 2,
                                    .reserve = 2,
                                    .all_reactions = true,
                                    .lost_max = 10 };
    size_t given = 0;
    for (int64_t i = -10; i < times; i++) { /* the first ten only warm up */
        const int64_t from = bench_now_us();
        const weir_status status = s->work->turn(s, NULL, 0, &r, &list, &err);
        bench_must(status == WEIR_OK, err.message);
        if (i >= 0) {
            took[i] = bench_now_us() - from;
        }
        given = list.leases_count;
        give_back(s, &list);
    }
    qsort(took, (size_t)times, sizeof took[0], compare);
    printf("{\"p50_us\":%" PRId64 ",\"p99_us\":%" PRId64 ",\"given\":%zu}\n", took[times / 2],
           took[times * 99 / 100], given);
    weir__arena_free(&list.arena);
    s->about->close(s);
    weir__url_free(&url);
    return 0;
}
