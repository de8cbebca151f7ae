/* url_test.c - store URLs: what they say, and that nothing in them is ignored. */
#include "store/url.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void parsed(store_url *url, const char *text)
{
    weir_error err;
    if (weir__url_parse(url, text, &err) != WEIR_OK) {
        fail_msg("\"%s\" was refused: %s", text, err.message);
    }
}

static void refused(const char *text, const char *because)
{
    store_url url;
    weir_error err;
    assert_int_equal(weir__url_parse(&url, text, &err), WEIR_EINVAL);
    weir__url_free(&url);
    if (strstr(err.message, because) == NULL) {
        fail_msg("\"%s\" was refused with \"%s\", expected \"%s\"", text, err.message, because);
    }
}

static void without_a_url_the_store_is_weir_db(void **state)
{
    (void)state;
    store_url url;
    parsed(&url, NULL);
    assert_string_equal(url.scheme, "sqlite");
    assert_string_equal(url.options.path.ptr, "weir.db");
    assert_int_equal(url.options.busy_us, 10000000);
    assert_int_equal(url.options.key_ttl_us, INT64_C(24) * 3600 * 1000000);
    assert_int_equal(url.options.payload_bytes, 1024 * 1024);
    assert_false(url.options.sync_normal);
    weir__url_free(&url);
}

static void every_parameter_is_read(void **state)
{
    (void)state;
    store_url url;
    parsed(&url,
           "sqlite:/tmp/a.db?busy=500ms&sync=normal&checkpoint=10&payload=64KiB&keys=1h&vfs=x");
    assert_string_equal(url.options.path.ptr, "/tmp/a.db");
    assert_int_equal(url.options.busy_us, 500000);
    assert_true(url.options.sync_normal);
    assert_int_equal(url.options.checkpoint_pages, 10);
    assert_int_equal(url.options.payload_bytes, 65536);
    assert_int_equal(url.options.key_ttl_us, INT64_C(3600000000));
    assert_string_equal(url.options.vfs.ptr, "x");
    weir__url_free(&url);
}

static void a_path_may_hold_any_byte_when_it_is_encoded(void **state)
{
    (void)state;
    store_url url;
    parsed(&url, "sqlite:///tmp/a.db");
    assert_string_equal(url.options.path.ptr, "///tmp/a.db");
    weir__url_free(&url);
    parsed(&url, "sqlite:what%3F 100%25.db");
    assert_string_equal(url.options.path.ptr, "what? 100%.db");
    weir__url_free(&url);
    parsed(&url, "sqlite:end%41");
    assert_string_equal(url.options.path.ptr, "endA");
    weir__url_free(&url);
    refused("sqlite:100%.db", "hexadecimal");
    refused("sqlite:a%4", "hexadecimal");
    refused("sqlite:a%00b", "hexadecimal");
}

static void a_memory_store_may_have_a_name(void **state)
{
    (void)state;
    store_url url;
    parsed(&url, "memory:");
    assert_int_equal(url.options.path.len, 0);
    weir__url_free(&url);
    parsed(&url, "memory:shared?keys=2d");
    assert_string_equal(url.options.path.ptr, "shared");
    weir__url_free(&url);
    refused("memory:x?busy=1s", "busy");
}

static void a_postgres_url_is_libpqs_but_for_our_own_parameters(void **state)
{
    (void)state;
    store_url url;
    parsed(&url,
           "postgresql://u:p%40ss@a:5432,b:5433/db?target_session_attrs=read-write&schema=My%20"
           "Store&pool=3&options=-c%20x%3D1&timeout=2s&busy=1s&keys=1h&prepare=off&direct=c:6");
    assert_string_equal(url.scheme, "postgres");
    assert_string_equal(url.options.path.ptr,
                        "postgresql://u:p%40ss@a:5432,b:5433/db?target_session_attrs=read-write&"
                        "options=-c%20x%3D1");
    assert_string_equal(url.options.schema.ptr, "My Store");
    assert_string_equal(url.options.direct.ptr, "c:6");
    assert_int_equal(url.options.pool, 3);
    assert_int_equal(url.options.answer_us, 2000000);
    assert_int_equal(url.options.busy_us, 1000000);
    assert_int_equal(url.options.key_ttl_us, INT64_C(3600000000));
    assert_int_equal(url.options.prepare, 2);
    weir__url_free(&url);
    parsed(&url, "postgres://");
    assert_string_equal(url.options.path.ptr, "postgres://");
    weir__url_free(&url);
    refused("postgres://h/d?pool=0", "1 to 1000");
    refused("postgres://h/d?timeout=1ms", "100ms");
    refused("postgres://h/d?prepare=maybe", "auto, on or off");
    refused("postgres://h/d?schema=", "schema");
    refused("postgres://u:hun?ter2@h/d", "store URL has something after '?'");
}

static void a_path_without_a_scheme_is_guessed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *detail;
    } cases[] = {
        { "/tmp/foo.db", "Did you mean sqlite:/tmp/foo.db?" },
        { "foo.sqlite3", "Did you mean sqlite:foo.sqlite3?" },
        { "./foo", "Did you mean sqlite:./foo?" },
        { "sqlite://foo.db", "Did you mean sqlite:foo.db?" },
        { "sqlite://./foo?busy=1s", "Did you mean sqlite:./foo?" },
        { "sqlite://hunter2@h/foo", NULL },
        { "sqlite://", NULL },
        { "foo", NULL },
        { "hunter2@h/foo.db", NULL }, /* may have a password in it */
        { "u:hunter2/foo.db", NULL },
        { "password=hunter2.db", NULL },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        store_url url = { 0 };
        weir_error err = { 0 };
        assert_int_equal(weir__url_parse(&url, cases[i].text, &err), WEIR_EINVAL);
        if (cases[i].detail != NULL) {
            assert_string_equal(err.detail, cases[i].detail);
        } else {
            assert_null(strstr(err.detail, "Did you mean"));
            assert_null(strstr(err.detail, "hunter2"));
        }
        weir__url_free(&url);
    }
}

static void what_is_not_understood_is_refused(void **state)
{
    (void)state;
    refused("mysql:x", "none of");
    refused("", "none of");
    refused("sqlite:", "no path");
    refused("sqlite:?password=hunter2", "store URL \"sqlite:\" has no path");
    refused("mysql://u:hunter2@h/db",
            "store URL \"mysql:\" begins with none of postgres://, sqlite: and memory:");
    refused("hunter2@h/db", "store URL begins with none of postgres://, sqlite: and memory:");
    refused("u%3ahunter2@h:5432/db",
            "store URL begins with none of postgres://, sqlite: and memory:");
    refused("sqlite:x?colour=red", "colour");
    refused("sqlite:x?busy", "NAME=VALUE");
    refused("sqlite:x?busy=10", "duration");
    refused("sqlite:x?sync=off", "full or normal");
    refused("sqlite:x?checkpoint=0", "pages");
    refused("sqlite:x?payload=1", "32MiB");
    refused("sqlite:x?payload=33MiB", "32MiB");
    refused("sqlite:x?keys=0s", "24h");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_url_the_store_is_weir_db),
        cmocka_unit_test(every_parameter_is_read),
        cmocka_unit_test(a_path_may_hold_any_byte_when_it_is_encoded),
        cmocka_unit_test(a_memory_store_may_have_a_name),
        cmocka_unit_test(a_postgres_url_is_libpqs_but_for_our_own_parameters),
        cmocka_unit_test(a_path_without_a_scheme_is_guessed),
        cmocka_unit_test(what_is_not_understood_is_refused),
    };
    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
