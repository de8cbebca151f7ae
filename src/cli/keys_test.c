/* keys_test.c - every key that a full screen knows, as terminals send it; and bytes that are none.
 *
 * Bytes are fed one at a time, as if each came in a read of its own; `end` stands for a terminal
 * that sends nothing more. Random bytes come from a seed, which is printed.
 */
#include "cli/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { KEYS_MAX = 16 };

typedef struct typed {
    cli_keys decoder;
    cli_key keys[KEYS_MAX];
    size_t count;
} typed;

static void type_bytes(typed *t, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        assert_true(t->count < KEYS_MAX);
        t->count += weir__cli_keys_feed(&t->decoder, (unsigned char)bytes[i], &t->keys[t->count]);
    }
}

/* The one key that the bytes are. */
static cli_key key_of(const char *bytes)
{
    typed t = { 0 };

    type_bytes(&t, bytes, strlen(bytes));
    assert_int_equal(t.count, 1);
    assert_false(weir__cli_keys_waits(&t.decoder));
    return t.keys[0];
}

static void arrows_and_pages_are_known_however_they_are_sent(void **state)
{
    static const struct {
        const char *bytes;
        cli_key_kind kind;
    } known[] = {
        { "\033[A", CLI_KEY_UP },       { "\033OA", CLI_KEY_UP },
        { "\033[B", CLI_KEY_DOWN },     { "\033OB", CLI_KEY_DOWN },
        { "\033[5~", CLI_KEY_PAGE_UP }, { "\033[6~", CLI_KEY_PAGE_DOWN },
        { "\033[H", CLI_KEY_HOME },     { "\033[1~", CLI_KEY_HOME },
        { "\033[7~", CLI_KEY_HOME },    { "\033[F", CLI_KEY_END },
        { "\033[4~", CLI_KEY_END },     { "\033[8~", CLI_KEY_END },
        { "\033[1;5A", CLI_KEY_UP },    { "\033[5;2~", CLI_KEY_PAGE_UP },
        { "\r", CLI_KEY_ENTER },        { "\n", CLI_KEY_ENTER },
        { "\033OM", CLI_KEY_ENTER },    { "\177", CLI_KEY_BACKSPACE },
        { "\b", CLI_KEY_BACKSPACE },    { "\025", CLI_KEY_CLEAR },
        { "\014", CLI_KEY_REDRAW },     { "\020", CLI_KEY_UP },
        { "\016", CLI_KEY_DOWN },       { "\002", CLI_KEY_PAGE_UP },
        { "\006", CLI_KEY_PAGE_DOWN },  { "\033[3~", CLI_KEY_OTHER },
        { "\033[15~", CLI_KEY_OTHER },  { "\033[C", CLI_KEY_OTHER },
        { "\033x", CLI_KEY_OTHER },     { "\033[~", CLI_KEY_OTHER },
        { "\033[200~", CLI_KEY_OTHER }, { "\001", CLI_KEY_OTHER },
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(key_of(known[i].bytes).kind, known[i].kind);
    }
}

static void a_character_is_text(void **state)
{
    static const char *const characters[] = {
        "a", "/", " ", "~", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"
    };

    (void)state;
    for (size_t i = 0; i < sizeof characters / sizeof characters[0]; i++) {
        const cli_key key = key_of(characters[i]);
        assert_int_equal(key.kind, CLI_KEY_TEXT);
        assert_int_equal(key.text_bytes, strlen(characters[i]));
        assert_memory_equal(key.text, characters[i], key.text_bytes);
    }
}

static void escape_is_a_key_when_nothing_follows(void **state)
{
    typed t = { 0 };
    cli_key key;

    (void)state;
    type_bytes(&t, "\033", 1);
    assert_int_equal(t.count, 0);
    assert_true(weir__cli_keys_waits(&t.decoder));
    assert_true(weir__cli_keys_end(&t.decoder, &key));
    assert_int_equal(key.kind, CLI_KEY_ESCAPE);
    assert_false(weir__cli_keys_end(&t.decoder, &key));
    /* Twice, and then an arrow. */
    type_bytes(&t, "\033\033[A", 4);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.keys[0].kind, CLI_KEY_ESCAPE);
    assert_int_equal(t.keys[1].kind, CLI_KEY_UP);
}

static void a_sequence_that_is_cut_off_is_no_text(void **state)
{
    typed t = { 0 };
    cli_key key;

    (void)state;
    type_bytes(&t, "\033[1;", 4);
    assert_true(weir__cli_keys_end(&t.decoder, &key));
    assert_int_equal(key.kind, CLI_KEY_OTHER);
    type_bytes(&t, "\033[1\033[B", 6);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.keys[0].kind, CLI_KEY_DOWN);
    /* A character that is cut off by another one. */
    type_bytes(&t, "\xe2\x82q", 3);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.keys[1].kind, CLI_KEY_TEXT);
    assert_memory_equal(t.keys[1].text, "q", 1);
}

static void a_long_sequence_is_read_to_its_end(void **state)
{
    typed t = { 0 };
    char bytes[300] = "\033[5";

    (void)state;
    memset(bytes + 3, ';', sizeof bytes - 4);
    bytes[sizeof bytes - 1] = '~';
    type_bytes(&t, bytes, sizeof bytes);
    type_bytes(&t, "q", 1);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.keys[0].kind, CLI_KEY_OTHER);
    assert_int_equal(t.keys[1].kind, CLI_KEY_TEXT);
}

static void what_is_invisible_is_never_text(void **state)
{
    (void)state;
    assert_int_equal(key_of("\xc2\x9b").kind, CLI_KEY_OTHER);     /* CSI in one character */
    assert_int_equal(key_of("\xe2\x80\xae").kind, CLI_KEY_OTHER); /* right to left */
    assert_int_equal(key_of("\xff").kind, CLI_KEY_OTHER);
    assert_int_equal(key_of("\x9b").kind, CLI_KEY_OTHER);
    assert_int_equal(key_of("\xc0").kind, CLI_KEY_OTHER);
}

static void random_bytes_are_keys_or_nothing(void **state)
{
    const unsigned seed = (unsigned)time(NULL);
    cli_keys decoder = { 0 };

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 200000; i++) {
        cli_key key;
        if (weir__cli_keys_feed(&decoder, (unsigned char)(rand() & 0xff), &key)) {
            uint32_t code = 0;
            assert_in_range(key.kind, CLI_KEY_TEXT, CLI_KEY_OTHER);
            if (key.kind == CLI_KEY_TEXT) {
                const char *end = key.text + key.text_bytes;
                assert_int_equal(weir__utf8_decode(key.text, end, &code), key.text_bytes);
                assert_true(code >= 0x20 && code != 0x7f && (code < 0x80 || code >= 0xa0));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrows_and_pages_are_known_however_they_are_sent),
        cmocka_unit_test(a_character_is_text),
        cmocka_unit_test(escape_is_a_key_when_nothing_follows),
        cmocka_unit_test(a_sequence_that_is_cut_off_is_no_text),
        cmocka_unit_test(a_long_sequence_is_read_to_its_end),
        cmocka_unit_test(what_is_invisible_is_never_text),
        cmocka_unit_test(random_bytes_are_keys_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
