/* schema_name_test.c - the schema's name in our SQL. */
#include "store/postgres/postgres_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void the_schemas_name_is_put_in_where_it_is_meant(void **state)
{
    (void)state;
    weir_buffer out = { 0 };
    const pg_store s = { .schema = "\"My Store\"" };
    assert_true(weir__pg_sql_add(&s, &out,
                                 "CREATE SCHEMA IF NOT EXISTS weir; REVOKE x IN SCHEMA weir FROM y;"
                                 "SELECT 'weir: a', weir.f(weir.t.x), nextval('weir.s'), "
                                 "a.weir.b, myweir.c, current_setting('weir_test.clock')"));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr,
                        "CREATE SCHEMA IF NOT EXISTS \"My Store\"; REVOKE x IN SCHEMA \"My Store\" "
                        "FROM y;SELECT 'weir: a', \"My Store\".f(\"My Store\".t.x), "
                        "nextval('\"My Store\".s'), a.weir.b, myweir.c, "
                        "current_setting('weir_test.clock')");
    weir__buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_schemas_name_is_put_in_where_it_is_meant),
    };
    return cmocka_run_group_tests_name("pg_schema_name", tests, NULL, NULL);
}
