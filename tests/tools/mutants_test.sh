#!/usr/bin/env bash
# mutants_test.sh - the mutants runner on a small project of its own: it accepts only a mutant whose
# test passes without the patch and fails with it.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

top=$tmp/top
mkdir -p "$top/tests/mutants" "$top/docs"
cat >"$top/meson.build" <<'END'
project('small', 'c')
sum_test = executable('sum_test', 'sum.c', 'sum_test.c')
test('sum_test', sum_test, timeout: 2)
test('wrapped_test', find_program('wrapper'), args: ['--', sum_test], timeout: 2)
sum = executable('sum', 'sum.c', 'main.c', build_by_default: false)
test('script_test', find_program('bash'), args: files('script.sh'), depends: sum,
  env: {'SUM': sum.full_path()})
test('wrapped_script_test', find_program('wrapper'),
  args: ['--', find_program('bash').full_path(), files('script.sh')], depends: sum,
  env: {'SUM': sum.full_path()})
END
cat >"$top/wrapper" <<'END'
#!/bin/sh
# Gives its command what it needs, and passes its arguments and its end on.
[ "$1" = -- ] || exit 125
shift
"$@"
END
chmod +x "$top/wrapper"
printf 'int sum(int a, int b);\nint main(void)\n{\n    return sum(1, 2);\n}\n' >"$top/main.c"
cat >"$top/script.sh" <<'END'
echo 1..1
"$SUM"
[ $? = 3 ] || printf 'not '
echo "ok 1 - the program adds"
sleep 100 # what comes after the test does not count
END
echo "option('checks', type: 'boolean', value: false)" >"$top/meson_options.txt"
cat >"$top/sum.c" <<'END'
int sum(int a, int b);
int sum(int a, int b)
{
    int result = a;
    result += b;
    return result;
}
END
cat >"$top/sum_test.c" <<'END'
#include <stdio.h>
#include <string.h>
int sum(int a, int b);
static void check(const char *filter, const char *name, int good)
{
    if (strcmp(filter, name) == 0)
        printf("1..1\n%sok 1 - %s\n", good ? "" : "not ", name);
}
int main(int argc, char **argv)
{
    setbuf(stdout, NULL);
    check(argc > 1 ? argv[1] : "", "adds", sum(1, 2) == 3);
    check(argc > 1 ? argv[1] : "", "adds_zero", sum(1, 0) == 1);
    check(argc > 1 ? argv[1] : "", "fails", 0);
    return 0;
}
END
git -C "$top" init -q

# mutant NAME TEST LINE: a patch that puts LINE in the place of `result += b;`.
mutant() {
    cat >"$top/tests/mutants/$1.patch" <<END
Breaks: C01 the sum of two numbers
Test: $2

--- a/sum.c
+++ b/sum.c
@@ -2,6 +2,6 @@
 int sum(int a, int b)
 {
     int result = a;
-    result += b;
+    $3
     return result;
 }
END
}

mutants() { "$WEIR_SOURCE/tools/mutants" --top "$top" "$@"; }

run mutants
is "no mutants at all is a failure" "$(tail -n 1 <<<"$out")" "0 passed, 1 failed"

mutant killed 'sum_test adds' 'result -= b;'
mutant crashes 'sum_test adds' '__builtin_trap();'
mutant hangs 'sum_test adds' 'for (volatile int i = 0;;) i = 1;'
mutant survives 'sum_test adds_zero' 'result -= b;'
mutant does_not_compile 'sum_test adds' 'result +=;'
mutant does_not_apply 'sum_test adds' 'result -= b;'
sed -i 's/int result = a;/int other = a;/' "$top/tests/mutants/does_not_apply.patch"
mutant bad_baseline 'sum_test fails' 'result -= b;'
mutant no_such_test 'sum_test nothing' 'result -= b;'
mutant no_such_suite 'other_test adds' 'result -= b;'
mutant wrapped 'wrapped_test adds' 'result -= b;'
mutant wrapped_crashes 'wrapped_test adds' '__builtin_trap();'
mutant wrapped_survives 'wrapped_test adds_zero' 'result -= b;'
mutant script 'script_test the program adds' 'result -= b;'
mutant wrapped_script 'wrapped_script_test the program adds' 'result -= b;'
mutant no_header 'sum_test adds' 'result -= b;'
sed -i '/^Test:/d' "$top/tests/mutants/no_header.patch"

run mutants
is "good and bad mutants are told apart" "$rc $(tail -n 1 <<<"$out")" "1 7 passed, 8 failed"
judged() { like "$1" "$out" $'(^|\n)'"$2"; } # NAME PATTERN_OF_ITS_LINE
judged "a mutant that its test notices is killed" \
    'killed +killed \(not ok\) +C01 the sum of two numbers'
judged "a crash is noticed as well" 'crashes +killed \(crashed\)'
judged "so is a test that does not end" 'hangs +killed \(ran too long\)'
judged "a mutant that survives" 'survives +FAILED: SURVIVES: adds_zero in sum_test passes all the same'
judged "a patch that does not compile" 'does_not_compile +FAILED: does not compile'
judged "a patch that does not apply" 'does_not_apply +FAILED: does not apply'
judged "a test that fails without the patch" \
    'bad_baseline +FAILED: without the patch fails in sum_test is not ok'
judged "a test that is not there" \
    'no_such_test +FAILED: without the patch nothing in sum_test does not run'
judged "a suite that is not there" 'no_such_suite +FAILED: no suite is called other_test'
judged "a program behind a wrapper is told which test" 'wrapped +killed \(not ok\)'
judged "its crash is a crash" 'wrapped_crashes +killed \(crashed\)'
judged "and its other tests do not count" 'wrapped_survives +FAILED: SURVIVES: adds_zero'
judged "a script has what it depends on built" 'script +killed \(not ok\)'
judged "also behind a wrapper, and is run up to its test" 'wrapped_script +killed \(not ok\)'
judged "a patch that does not say its test" "no_header +FAILED: the header has no line 'Test:"
is "the sources themselves are untouched" "$(grep -c 'result += b' "$top/sum.c")" 1

run mutants "$top/tests/mutants/killed.patch"
is "one patch alone" "$rc $(tail -n 1 <<<"$out")" "0 1 passed, 0 failed"

rm "$top"/tests/mutants/[!k]*.patch
mutant other 'sum_test adds' 'result -= b;'
printf '| C01 | sums |\n| C02 | products |\n' >"$top/docs/guarantees.md"
run mutants
is "patches are taken back one after the other" "$(tail -n 1 <<<"$out")" \
    "2 passed, 1 failed"
like "a promise without a mutant is a failure" "$out" 'C02: no mutant'

done_testing
