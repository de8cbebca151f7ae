/* finding_test.c - findings are told in their order, or not at all. */
#include "store/finding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void last_keep(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)snprintf(ctx, 100, "%s: %s (%s)", rule, text, advice);
}

static void findings_are_told_when_the_check_has_ended_well(void **state)
{
    store_findings f = { .count = 0 };
    char last[100] = "";
    weir_error err;
    (void)state;
    weir__finding_keep(&f, "order", "one", "look");
    assert_int_equal(weir__findings_tell(&f, WEIR_EIO, last_keep, last, &err), WEIR_EIO);
    assert_string_equal(last, "");

    f = (store_findings){ .count = 0 };
    for (int i = 0; i < STORE_FINDINGS_MAX + 5; i++) {
        char text[20];
        (void)snprintf(text, sizeof text, "number %d", i);
        weir__finding_keep(&f, "order", text, "look");
    }
    assert_int_equal(weir__findings_tell(&f, WEIR_OK, last_keep, last, &err), WEIR_OK);
    assert_string_equal(last, "order: number 199 (look)");

    f = (store_findings){ .no_memory = true };
    assert_int_equal(weir__findings_tell(&f, WEIR_OK, last_keep, last, &err), WEIR_ENOMEM);
}

static void every_rule_has_an_advice(void **state)
{
    (void)state;
    assert_non_null(strstr(weir__finding_advice("target-held"), "Pause and resume"));
    assert_ptr_equal(weir__finding_advice("target-rank"), weir__finding_advice("target-derived"));
    assert_non_null(strstr(weir__finding_advice("keys"), "Restore"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(findings_are_told_when_the_check_has_ended_well),
        cmocka_unit_test(every_rule_has_an_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
