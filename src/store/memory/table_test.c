/* table_test.c - the hash table: random additions and removals against an array of flags, with
 * hashes that collide on purpose, and an allocation that fails while it grows. */
#include "base/memory.h"
#include "base/str.h"
#include "store/memory/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { KEYS = 300, ROUNDS = 30000 };

typedef struct entry {
    table_item item;
    char name[16];
} entry;

static entry entries[KEYS];

/* Few different hashes: probing, and shifting back, run through long clusters that wrap around. */
static void entries_fill(uint64_t hashes)
{
    for (size_t i = 0; i < KEYS; i++) {
        const int len = snprintf(entries[i].name, sizeof entries[i].name, "name-%zu", i);
        entries[i].item.key = (weir_str){ .ptr = entries[i].name, .len = (size_t)len };
        entries[i].item.hash = weir__str_hash(entries[i].item.key) % hashes + UINT64_MAX - 8;
    }
}

static void check_all(const table *t, const bool *member)
{
    size_t cursor = 0, walked = 0, members = 0;
    for (size_t i = 0; i < KEYS; i++) {
        const table_item *found = weir__table_find(t, entries[i].item.hash, entries[i].item.key);
        assert_ptr_equal(found, member[i] ? &entries[i].item : NULL);
        members += member[i];
    }
    while (weir__table_next(t, &cursor) != NULL) {
        walked++;
    }
    assert_int_equal(walked, members);
    assert_int_equal(t->count, members);
}

static void run(uint64_t hashes)
{
    bool member[KEYS] = { false };
    table t = { 0 };
    uint64_t random = 1115 + hashes;

    print_message("# seed %llu\n", (unsigned long long)random);
    entries_fill(hashes);
    for (int round = 0; round < ROUNDS; round++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const size_t i = (random >> 33) % KEYS;
        if (member[i]) {
            weir__table_remove(&t, &entries[i].item);
        } else {
            assert_true(weir__table_reserve(&t));
            weir__table_add(&t, &entries[i].item);
        }
        member[i] = !member[i];
        if (round % 100 == 0) {
            check_all(&t, member);
        }
    }
    check_all(&t, member);
    weir__table_free(&t);
}

static void it_keeps_what_was_added_until_it_is_removed(void **state)
{
    (void)state;
    run(UINT64_MAX);
}

static void it_works_when_most_hashes_are_equal(void **state)
{
    (void)state;
    run(5);
}

static void a_failed_growth_leaves_it_as_it_was(void **state)
{
    (void)state;
    bool member[KEYS] = { false };
    table t = { 0 };

    entries_fill(UINT64_MAX);
    for (size_t i = 0; i < KEYS; i++) {
        weir__memory_fail_nth(1);
        const bool grown = weir__table_reserve(&t);
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(grown, !failed);
        check_all(&t, member);
        assert_true(weir__table_reserve(&t));
        weir__table_add(&t, &entries[i].item);
        member[i] = true;
    }
    weir__table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_what_was_added_until_it_is_removed),
        cmocka_unit_test(it_works_when_most_hashes_are_equal),
        cmocka_unit_test(a_failed_growth_leaves_it_as_it_was),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
