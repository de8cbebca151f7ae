/* fullscreen_test.c - what a line may be on a full screen: only our colours pass, nothing is wider
 * than the screen. What terminals do with it is tested in tests/e2e/cli_watch_test.py.
 */
#include "cli/fullscreen.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static const char *line_of(const char *text, size_t columns, bool colour)
{
    static weir_buffer out;

    weir__buffer_clear(&out);
    assert_true(weir__fullscreen_add_line(&out, weir__str(text), columns, colour));
    assert_true(weir__buffer_add(&out, "", 1));
    return out.ptr;
}

static void only_our_colours_pass(void **state)
{
    (void)state;
    assert_string_equal(line_of("a \033[1;31mblocked\033[0m b", 80, true),
                        "a \033[1;31mblocked\033[0m b\033[0m");
    assert_string_equal(line_of("a \033[1;31mblocked\033[0m b", 80, false), "a blocked b");
    assert_string_equal(line_of("\033[31mred\033]0;title\007\033[2J\033c", 80, true),
                        "?[31mred?]0;title??[2J?c");
    assert_string_equal(line_of("a\r\n\t\b\177z", 80, true), "a?????z");
    assert_string_equal(line_of("\xc2\x9b"
                                "31m \xe2\x80\xae \xff",
                                80, true),
                        "?31m ? ?");
}

static void a_line_ends_where_the_screen_does(void **state)
{
    (void)state;
    assert_string_equal(line_of("abcdef", 6, true), "abcdef");
    assert_string_equal(line_of("abcdefg", 6, true), "abcdef");
    assert_string_equal(line_of("\xe5\xad\x97\xe5\xad\x97\xe5\xad\x97", 5, true),
                        "\xe5\xad\x97\xe5\xad\x97"); /* two columns each */
    assert_string_equal(line_of("\033[33mabcdef", 3, true), "\033[33mabc\033[0m");
    assert_string_equal(line_of("abc", 0, true), "");
}

static void random_bytes_never_become_a_sequence(void **state)
{
    const unsigned seed = (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 2000; round++) {
        char bytes[64];
        weir_buffer out = { 0 };
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (char)(rand() % 3 == 0 ? 0x1b : rand() & 0xff);
        }
        assert_true(weir__fullscreen_add_line(&out, (weir_str){ bytes, sizeof bytes }, 40, false));
        for (size_t i = 0; i < out.len; i++) {
            assert_true((unsigned char)out.ptr[i] >= 0x20 && out.ptr[i] != 0x7f);
        }
        assert_true(weir__report_width(out.ptr, out.len) <= 40);
        weir__buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_our_colours_pass),
        cmocka_unit_test(a_line_ends_where_the_screen_does),
        cmocka_unit_test(random_bytes_never_become_a_sequence),
    };

    (void)setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
