/* sql_test.c - SQL is taken apart as its database does it. What PostgreSQL and SQLite make of the
 * texts here was asked of PostgreSQL 15 and SQLite 3.40.
 */
#include "base/sql.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { ON_POSTGRES = 1, ON_SQLITE = 2, ON_ANY = 4, ON_ALL = 7 };

/* The parts but for single bytes, as kind:text, with '~' behind one that does not end. */
static const char *shown(weir_str sql, sql_flavor flavor)
{
    static const char letters[] = {
        [SQL_PART_WORD] = 'w',   [SQL_PART_NUMBER] = 'n', [SQL_PART_COMMENT] = 'c',
        [SQL_PART_STRING] = 's', [SQL_PART_DOLLAR] = 'd', [SQL_PART_QUOTED] = 'q',
    };
    static char out[1024];
    size_t len = 0;

    out[0] = '\0';
    for (size_t at = 0; at < sql.len;) {
        const sql_part p = weir__sql_part(sql, at, flavor);
        assert_in_range(p.len, 1, sql.len - at);
        assert_true(p.opening + p.closing <= p.len);
        if (p.kind != SQL_PART_BYTE) {
            len +=
                (size_t)snprintf(out + len, sizeof out - len, "%s%c:%.*s%s", len > 0 ? " " : "",
                                 letters[p.kind], (int)p.len, sql.ptr + at, p.endless ? "~" : "");
        }
        at += p.len;
    }
    return out;
}

static void parts(unsigned where, const char *sql, const char *expected)
{
    for (int flavor = SQL_FLAVOR_POSTGRES; flavor <= SQL_FLAVOR_ANY; flavor++) {
        if ((where & (1U << flavor)) != 0) {
            assert_string_equal(shown(weir__str(sql), (sql_flavor)flavor), expected);
        }
    }
}

static void words_and_numbers(void **state)
{
    (void)state;
    parts(ON_ALL, "", "");
    parts(ON_ALL, "a_1+\xc3\xa9 (B2) 10 1e5", "w:a_1 w:\xc3\xa9 w:B2 n:10 n:1e5");
    parts(ON_ALL, "a$1 a$b$c :x", "w:a$1 w:a$b$c w:x");
    parts(ON_ALL, "$1 $2", "n:1 n:2");
}

static void strings_end_where_the_database_ends_them(void **state)
{
    (void)state;
    parts(ON_ALL, "'a''b' 'c\\' x'1f' N'h'", "s:'a''b' s:'c\\' s:x'1f' s:N'h'");
    parts(ON_ALL, "type'\\' a", "w:type s:'\\' w:a");
    parts(ON_ALL, "U&'g' U&\"h\" u&1", "s:U&'g' q:U&\"h\" w:u n:1");
    parts(ON_POSTGRES | ON_ANY, "E'\\'a' e'\\\\' b", "s:E'\\'a' s:e'\\\\' w:b");
    parts(ON_SQLITE, "E'\\' a", "s:E'\\' w:a");
    parts(ON_ALL, "'a", "s:'a~");
    parts(ON_ALL, "'a''", "s:'a''~");
    parts(ON_POSTGRES, "E'\\'", "s:E'\\'~");
    parts(ON_POSTGRES, "E'\\", "s:E'\\~");
}

/* A quote that is doubled does not begin another string, in which a backslash would be a letter. */
static void a_doubled_quote_leaves_an_escape_string_one(void **state)
{
    (void)state;
    parts(ON_POSTGRES | ON_ANY, "E'''\\'' a", "s:E'''\\'' w:a");
    parts(ON_ALL, "'''\\'' a", "s:'''\\'' a~");
}

static void an_escape_string_goes_on_in_another_line(void **state)
{
    (void)state;
    parts(ON_POSTGRES | ON_ANY, "E'a'\n '\\'' b", "s:E'a'\n '\\'' w:b");
    parts(ON_POSTGRES, "E'a' --c\n --d\n'\\'' b", "s:E'a' --c\n --d\n'\\'' w:b");
    parts(ON_POSTGRES, "E'a'\r'\\'' b", "s:E'a'\r'\\'' w:b");
    parts(ON_POSTGRES, "E'a' '\\' b", "s:E'a' s:'\\' w:b");
    parts(ON_POSTGRES, "E'a' /* c */\n'\\' b", "s:E'a' c:/* c */ s:'\\' w:b");
    parts(ON_POSTGRES, "E'a'\n+'\\' b", "s:E'a' s:'\\' w:b");
    parts(ON_POSTGRES, "E'a' -- c", "s:E'a' c:-- c");
    parts(ON_POSTGRES, "'a'\n'\\' b", "s:'a' s:'\\' w:b");
    parts(ON_SQLITE, "E'a'\n'\\' b", "s:E'a' s:'\\' w:b");
}

static void a_word_swallows_what_would_begin_a_string(void **state)
{
    (void)state;
    parts(ON_ALL, "a$E'\\' b", "w:a$E s:'\\' w:b");
    parts(ON_ALL, "a$$b$$ c", "w:a$$b$$ w:c");
    parts(ON_POSTGRES, "1$$a$$", "n:1 d:$$a$$");
}

static void dollar_quotes_have_tags(void **state)
{
    (void)state;
    parts(ON_POSTGRES | ON_ANY, "$$a$$ $b$ $$ $c$ $b$ a", "d:$$a$$ d:$b$ $$ $c$ $b$ w:a");
    parts(ON_POSTGRES, "$$ $a$$ b", "d:$$ $a$$ w:b");
    parts(ON_POSTGRES, "$a$ $A$", "d:$a$ $A$~");
    parts(ON_POSTGRES, "$1$ $d $", "n:1 w:d");
    parts(ON_SQLITE, "$a$ 'b'", "w:a$ s:'b'");
}

static void names_in_quotes(void **state)
{
    (void)state;
    parts(ON_ALL, "\"a\"\"b\" \"'\" c", "q:\"a\"\"b\" q:\"'\" w:c");
    parts(ON_SQLITE | ON_ANY, "`a``'` b", "q:`a``'` w:b");
    parts(ON_POSTGRES, "`a'` b'", "w:a s:'` b'");
    parts(ON_SQLITE, "[a'] [b]] c", "q:[a'] q:[b] w:c");
    parts(ON_POSTGRES | ON_ANY, "a[b] 'c'", "w:a w:b s:'c'");
    parts(ON_SQLITE, "[a", "q:[a~");
    parts(ON_ALL, "\"a", "q:\"a~");
}

static void comments_nest_where_the_database_nests_them(void **state)
{
    (void)state;
    parts(ON_ALL, "a -- b '\n c--", "w:a c:-- b ' w:c c:--");
    parts(ON_ALL, "/* ' */ a /**/ b - -1 /", "c:/* ' */ w:a c:/**/ w:b n:1");
    parts(ON_POSTGRES | ON_ANY, "/* /* a */ ' */ b", "c:/* /* a */ ' */ w:b");
    parts(ON_SQLITE, "/* /* a */ b", "c:/* /* a */ w:b");
    parts(ON_ALL, "/*/ a", "c:/*/ a~");
    parts(ON_POSTGRES, "/* /* */", "c:/* /* */~");
}

/* To PostgreSQL a carriage return ends a comment, to SQLite it does not. */
static void a_comment_ends_with_its_line(void **state)
{
    (void)state;
    parts(ON_POSTGRES | ON_ANY, "-- a\rb\nc", "c:-- a w:b w:c");
    parts(ON_SQLITE, "-- a\rb\nc", "c:-- a\rb w:c");
}

static void nothing_behind_the_end_is_looked_at(void **state)
{
    (void)state;
    assert_string_equal(shown((weir_str){ .ptr = "''''", .len = 3 }, SQL_FLAVOR_POSTGRES),
                        "s:'''~");
    assert_string_equal(shown((weir_str){ .ptr = "--a", .len = 1 }, SQL_FLAVOR_POSTGRES), "");
    assert_string_equal(shown((weir_str){ .ptr = "$$a$$", .len = 4 }, SQL_FLAVOR_POSTGRES),
                        "d:$$a$~");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_numbers),
        cmocka_unit_test(strings_end_where_the_database_ends_them),
        cmocka_unit_test(a_doubled_quote_leaves_an_escape_string_one),
        cmocka_unit_test(an_escape_string_goes_on_in_another_line),
        cmocka_unit_test(a_word_swallows_what_would_begin_a_string),
        cmocka_unit_test(dollar_quotes_have_tags),
        cmocka_unit_test(names_in_quotes),
        cmocka_unit_test(comments_nest_where_the_database_nests_them),
        cmocka_unit_test(a_comment_ends_with_its_line),
        cmocka_unit_test(nothing_behind_the_end_is_looked_at),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
