/* struct_test.c - a struct from another version of the header. The sizes stand for the versions. */
#include "base/struct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct older {
    uint32_t size;
    uint32_t a;
} older;

typedef struct known {
    uint32_t size;
    uint32_t a;
    uint64_t b;
} known;

typedef struct newer {
    uint32_t size;
    uint32_t a;
    uint64_t b;
    uint64_t c;
} newer;

static void a_struct_of_this_version_is_copied(void **state)
{
    (void)state;
    const known in = { .size = sizeof in, .a = 1, .b = 2 };
    known out;
    memset(&out, 0xAB, sizeof out);
    assert_int_equal(weir__struct_copy(&out, sizeof out, &in, "known", NULL), WEIR_OK);
    assert_memory_equal(&out, &in, sizeof in);
}

static void an_older_struct_is_extended_with_zeros(void **state)
{
    (void)state;
    const older in = { .size = sizeof in, .a = 1 };
    known out;
    memset(&out, 0xAB, sizeof out);
    assert_int_equal(weir__struct_copy(&out, sizeof out, &in, "known", NULL), WEIR_OK);
    assert_int_equal(out.a, 1);
    assert_int_equal(out.b, 0);
}

static void a_newer_struct_is_accepted_while_its_new_members_are_zero(void **state)
{
    (void)state;
    newer in = { .size = sizeof in, .a = 1, .b = 2 };
    known out;
    weir_error err = { .message = "" };
    assert_int_equal(weir__struct_copy(&out, sizeof out, &in, "known", &err), WEIR_OK);
    assert_int_equal(out.a, 1);
    assert_int_equal(out.b, 2);
    in.c = UINT64_C(1) << 56; /* the last byte counts as well */
    memset(&out, 0xAB, sizeof out);
    const known untouched = out;
    assert_int_equal(weir__struct_copy(&out, sizeof out, &in, "known", &err), WEIR_EINVAL);
    assert_memory_equal(&out, &untouched, sizeof out);
    assert_non_null(strstr(err.message, "known"));
}

static void no_struct_and_one_that_was_not_initialised_are_refused(void **state)
{
    (void)state;
    known out;
    weir_error err = { .message = "" };
    const known zero = { 0 };
    assert_int_equal(weir__struct_copy(&out, sizeof out, NULL, "known", &err), WEIR_EINVAL);
    assert_string_equal(err.message, "known is NULL");
    assert_int_equal(weir__struct_copy(&out, sizeof out, &zero, "known", &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "_INIT"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_struct_of_this_version_is_copied),
        cmocka_unit_test(an_older_struct_is_extended_with_zeros),
        cmocka_unit_test(a_newer_struct_is_accepted_while_its_new_members_are_zero),
        cmocka_unit_test(no_struct_and_one_that_was_not_initialised_are_refused),
    };
    return cmocka_run_group_tests_name("struct", tests, NULL, NULL);
}
