/* utf8_test.c - every code point there is, and the ways to get UTF-8 wrong. */
#include "base/str.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static bool is_valid(const char *ptr, size_t len)
{
    return weir__utf8_valid_prefix(ptr, len) == len;
}

static void every_code_point_is_written_and_read_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) {
            continue;
        }
        char text[WEIR_UTF8_BYTES_MAX];
        uint32_t read = UINT32_MAX;
        const size_t bytes = weir__utf8_encode(code, text);
        const size_t expected = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        if (bytes != expected || weir__utf8_decode(text, text + bytes, &read) != bytes ||
            read != code || !is_valid(text, bytes)) {
            fail_msg("U+%04X", (unsigned)code);
        }
        for (size_t cut = 0; cut < bytes; cut++) { /* no part of it is valid by itself */
            if (weir__utf8_decode(text, text + cut, &read) != 0) {
                fail_msg("U+%04X cut to %zu bytes", (unsigned)code, cut);
            }
        }
    }
}

/* Counting is an oracle of its own: of all 2^16 pairs and 2^24 triples of bytes, exactly as many
 * may be single sequences as there are code points of that length. */
static void no_other_sequence_of_two_or_three_bytes_is_accepted(void **state)
{
    (void)state;
    unsigned pairs = 0;
    unsigned triples = 0;
    uint32_t code;
    for (unsigned i = 0x80; i < 0x100; i++) {
        for (unsigned j = 0; j < 0x100; j++) {
            char text[3] = { (char)i, (char)j, 0 };
            pairs += weir__utf8_decode(text, text + 2, &code) == 2;
            for (unsigned k = 0; k < 0x100; k++) {
                text[2] = (char)k;
                triples += weir__utf8_decode(text, text + 3, &code) == 3;
            }
        }
    }
    assert_int_equal(pairs, 0x800 - 0x80);
    assert_int_equal(triples, 0x10000 - 0x800 - 0x800); /* without the surrogates */
}

static void wrong_sequences_end_the_valid_prefix_before_them(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\x80", /* a tail without a head */
        "\xBF",
        "\xC0\x80",         /* overlong NUL */
        "\xC1\xBF",         /* overlong */
        "\xE0\x9F\xBF",     /* overlong */
        "\xED\xA0\x80",     /* U+D800 */
        "\xED\xBF\xBF",     /* U+DFFF */
        "\xF0\x8F\xBF\xBF", /* overlong */
        "\xF4\x90\x80\x80", /* U+110000 */
        "\xF5\x80\x80\x80",
        "\xFE",
        "\xFF",
        "\xC3", /* cut off */
        "\xE2\x82",
        "\xF0\x9F\x98",
        "\xE2\x28\xA1", /* an ASCII byte where a tail belongs */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        for (size_t before = 0; before < 20; before++) { /* across the eight-byte steps */
            char text[40];
            memset(text, 'a', sizeof text);
            memcpy(text + before, wrong[i], strlen(wrong[i]));
            assert_int_equal(weir__utf8_valid_prefix(text, before + strlen(wrong[i])), before);
        }
    }
}

static void valid_text_of_any_length_is_valid(void **state)
{
    (void)state;
    const char *text = "plain, gr\xC3\xBC\xC3\x9F, \xE2\x82\xAC and \xF0\x9F\x98\x80 to the end";
    assert_true(is_valid(text, strlen(text)));
    assert_true(is_valid("", 0));
    assert_int_equal(weir__utf8_valid_prefix(NULL, 0), 0);
    assert_true(is_valid("a\0b", 3)); /* NUL is a character here; who forbids it says so */
    /* Cut anywhere, the prefix ends at the last whole character. */
    for (size_t len = 0; len <= strlen(text); len++) {
        const size_t prefix = weir__utf8_valid_prefix(text, len);
        assert_true(prefix <= len && len - prefix < WEIR_UTF8_BYTES_MAX);
        assert_true(prefix == len || ((uint8_t)text[prefix] & 0xC0) == 0xC0);
    }
}

static void characters_that_nobody_sees_are_escaped_and_nothing_else(void **state)
{
    (void)state;
    static const uint32_t hidden[] = { 0xAD,   0x34F,  0x61C,  0x115F,  0x1160,  0x17B4,  0x180B,
                                       0x180E, 0x200B, 0x200F, 0x2028,  0x2029,  0x202A,  0x202E,
                                       0x2060, 0x2066, 0x2069, 0x2800,  0x3164,  0xFE0F,  0xFEFF,
                                       0xFFA0, 0xFFF9, 0xFFFB, 0x1BCA0, 0x1D173, 0xE0001, 0xE0100 };
    static const uint32_t seen[] = { 'a',    0xA0,   0xAC,   0xAE,   0x1100, 0x200A,
                                     0x2010, 0x2027, 0x202F, 0x2801, 0xFE10, 0x1F600 };
    weir_buffer out = { 0 };
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        assert_true(weir__utf8_hidden(hidden[i]));
    }
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        assert_false(weir__utf8_hidden(seen[i]));
    }
    const char *text = "a\n\x1b\xE2\x80\xA8\xC3\xBC\xFF\xE2\x80\xF3\xA0\x80\x81"
                       "e\xE2\x80\x8B";
    assert_true(weir__utf8_add_shown(&out, weir__str(text)));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, "a\n\x1b\\u2028\xC3\xBC\xFF\xE2\x80\\udb40\\udc01"
                                 "e\\u200b");
    weir__buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_is_written_and_read_back),
        cmocka_unit_test(no_other_sequence_of_two_or_three_bytes_is_accepted),
        cmocka_unit_test(wrong_sequences_end_the_valid_prefix_before_them),
        cmocka_unit_test(valid_text_of_any_length_is_valid),
        cmocka_unit_test(characters_that_nobody_sees_are_escaped_and_nothing_else),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
