/* sql_token_test.c - what is one token, and of which kind, and on which line. */
#include "lint/sql_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The tokens of a text as kind:text, one letter a kind, with spaces between. */
static char *shown(const char *text)
{
    static const char letters[] = {
        [SQL_END] = '.',    [SQL_WORD] = 'w',   [SQL_QUOTED] = 'q', [SQL_STRING] = 's',
        [SQL_DOLLAR] = 'd', [SQL_NUMBER] = 'n', [SQL_PARAM] = 'p',  [SQL_HOLE] = 'h',
        [SQL_OP] = 'o',     [SQL_META] = 'm'
    };
    static char out[4096];
    weir_arena arena = { 0 };
    sql_tokens tokens = { 0 };
    weir_error err;
    uint32_t bad_line = 0;
    size_t len = 0;

    if (weir__sql_tokenize(weir__str(text), 1, &arena, &tokens, &bad_line, &err) != WEIR_OK) {
        (void)snprintf(out, sizeof out, "line %u: %s", bad_line, err.message);
    } else {
        for (size_t i = 0; i + 1 < weir__sql_tokens_count(&tokens); i++) {
            const sql_token *t = weir__sql_token(&tokens, i);
            const int n = snprintf(out + len, sizeof out - len, "%s%c:%.*s", i == 0 ? "" : " ",
                                   letters[t->kind], (int)t->text.len, t->text.ptr);
            assert_in_range(n, 1, sizeof out - len - 1);
            len += (size_t)n;
        }
        out[len] = '\0';
    }
    weir__sql_tokens_free(&tokens);
    weir__arena_free(&arena);
    return out;
}

static void strings_end_where_the_database_ends_them(void **state)
{
    (void)state;
    assert_string_equal(shown("'a''b' 'c\\' E'd\\'' e'e''f' U&'g' B'1' N'h'"),
                        "s:'a''b' s:'c\\' s:E'd\\'' s:e'e''f' s:U&'g' s:B'1' s:N'h'");
    assert_string_equal(shown("\"a\"\"b\" U&\"c\" `d`"), "q:\"a\"\"b\" q:U&\"c\" q:`d`");
    assert_string_equal(shown("type'x' x'1f'"), "w:type s:'x' s:x'1f'");
    assert_string_equal(shown("E'a'\n'\\'' b"), "s:E'a'\n'\\'' w:b");
    assert_string_equal(shown("'a\n"), "line 1: the string that begins here does not end");
    assert_string_equal(shown("\n E'a\\'"), "line 2: the string that begins here does not end");
}

static void comments_nest_and_are_no_tokens(void **state)
{
    (void)state;
    assert_string_equal(shown("a -- b ' \n c /* d /* e */ f */ g"), "w:a w:c w:g");
    assert_string_equal(shown("a--b"), "w:a");
    assert_string_equal(shown("a--b\rc"), "w:a w:c");
    assert_string_equal(shown("1/*a*/+/*b*/2 - -3 4--5"), "n:1 o:+ n:2 o:- o:- n:3 n:4");
    assert_string_equal(shown("a\n/* /* */"), "line 2: the comment that begins here does not end");
    assert_string_equal(shown("/*/ a"), "line 1: the comment that begins here does not end");
}

static void dollar_quotes_have_tags(void **state)
{
    (void)state;
    assert_string_equal(shown("$$a$$ $b$ $$ $c$ $b$ $1 $d a$b$c"),
                        "d:$$a$$ d:$b$ $$ $c$ $b$ p:$1 p:$d w:a$b$c");
    assert_string_equal(shown("$a$ $A$"),
                        "line 1: the dollar-quoted string that begins here does not end");
    assert_string_equal(shown("$1$2"), "p:$1 p:$2");
}

static void parameters_and_holes(void **state)
{
    (void)state;
    assert_string_equal(
        shown("= :a :'b' :\"c\" d::e f := 1 g[1:2]"),
        "o:= p::a p::'b' p::\"c\" w:d o::: w:e w:f o::= n:1 w:g o:[ n:1 o:: n:2 o:]");
    assert_string_equal(shown("x=? AND y=?2 OR z=%s, %(n)s LIMIT ?"),
                        "w:x o:= p:? w:AND w:y o:= p:?2 w:OR w:z o:= p:%s o:, p:%(n)s w:LIMIT p:?");
    assert_string_equal(shown("a ? 'b' @> c % d @? e =@f"),
                        "w:a o:? s:'b' o:@> w:c o:% w:d o:@? w:e o:= p:@f");
    assert_string_equal(
        shown("<a> {b} ${c} #{d} a<b a<>b <<c>> =<d>"),
        "h:<a> h:{b} h:${c} h:#{d} w:a o:< w:b w:a o:<> w:b o:<< w:c o:>> o:= h:<d>");
}

static void numbers_and_operators(void **state)
{
    (void)state;
    assert_string_equal(shown("1.5e-3 .5 1..10 0x1F 1_000 =-1 a->>'b' @-1"),
                        "n:1.5e-3 n:.5 n:1 o:.. n:10 n:0x1F n:1_000 o:= o:- n:1 w:a o:->> s:'b' "
                        "o:@- n:1");
}

static void lines_that_are_not_sql(void **state)
{
    (void)state;
    assert_string_equal(shown("\\! rm 'x\nSELECT 1\n\\set a 'b\n, 2 \\gset\n3 \\; 4"),
                        "m:\\! rm 'x w:SELECT n:1 o:, n:2 o:; n:3 o:; n:4");
    assert_string_equal(shown(".mode 'x\nSELECT a\n.b;\n.quit"), "m:.mode 'x w:SELECT w:a o:. w:b "
                                                                 "o:; m:.quit");
    assert_string_equal(shown("COPY t FROM STDIN;\nit's (\n\\.\nSELECT 1"),
                        "w:COPY w:t w:FROM w:STDIN o:; w:SELECT n:1");
    assert_string_equal(shown("COPY t FROM 'f';\nSELECT 1"), "w:COPY w:t w:FROM s:'f' o:; w:SELECT "
                                                             "n:1");
    assert_string_equal(shown("COPY t FROM stdin;\nno end '"), "w:COPY w:t w:FROM w:stdin o:;");
}

static void parentheses_are_pairs(void **state)
{
    (void)state;
    assert_string_equal(shown("(a\n;"), "line 1: this parenthesis is not closed");
    assert_string_equal(shown("(a\n("), "line 2: this parenthesis is not closed");
    assert_string_equal(shown("a\n)"), "line 2: a parenthesis is closed that was not opened");
    assert_string_equal(shown("CREATE RULE r AS ON DELETE TO t DO (a; b);"),
                        "w:CREATE w:RULE w:r w:AS w:ON w:DELETE w:TO w:t w:DO o:( w:a o:; w:b o:) "
                        "o:;");
}

static void names_are_in_lower_case_and_lines_are_counted(void **state)
{
    weir_arena arena = { 0 };
    sql_tokens tokens = { 0 };
    weir_error err;
    uint32_t bad_line = 0;

    (void)state;
    assert_int_equal(
        weir__sql_tokenize(weir__str("\xEF\xBB\xBFSeLeCT\n\"Ab\"\n$$\n\nx$$ -- name: y\n"
                                     " /* weir:allow a, b\n */ Zu"),
                           7, &arena, &tokens, &bad_line, &err),
        WEIR_OK);
    assert_int_equal(weir__sql_tokens_count(&tokens), 5);
    assert_true(weir__sql_is_word(weir__sql_token(&tokens, 0), "select"));
    assert_int_equal(weir__sql_token(&tokens, 0)->line, 7);
    assert_true(weir__str_equal(weir__sql_token(&tokens, 1)->name, weir__str("Ab")));
    assert_int_equal(weir__sql_token(&tokens, 1)->line, 8);
    assert_int_equal(weir__sql_token(&tokens, 2)->line, 9);
    assert_int_equal(weir__sql_token(&tokens, 2)->body_line, 9);
    assert_false(weir__sql_token(&tokens, 2)->section);
    assert_int_equal(weir__sql_token(&tokens, 3)->line, 13);
    assert_true(weir__sql_token(&tokens, 3)->section);
    assert_int_equal(tokens.allows.len, sizeof(sql_allow));
    const sql_allow *allow = (const sql_allow *)(const void *)tokens.allows.ptr;
    assert_int_equal(allow->token, 3);
    assert_int_equal(allow->line, 12);
    assert_true(weir__str_equal(allow->rules, weir__str(" a, b")));
    weir__sql_tokens_free(&tokens);
    weir__arena_free(&arena);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_end_where_the_database_ends_them),
        cmocka_unit_test(comments_nest_and_are_no_tokens),
        cmocka_unit_test(dollar_quotes_have_tags),
        cmocka_unit_test(parameters_and_holes),
        cmocka_unit_test(numbers_and_operators),
        cmocka_unit_test(lines_that_are_not_sql),
        cmocka_unit_test(parentheses_are_pairs),
        cmocka_unit_test(names_are_in_lower_case_and_lines_are_counted),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
