#!/usr/bin/env bash
# mutants_test.sh - the mutants runner on a small project of its own: it accepts only a mutant whose
# test passes without the patch and fails with it.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

top=$tmp/top
mkdir -p "$top/tests/mutants" "$top/docs"
cat >"$top/meson.build" <<'END'
project('small', 'c')
test('sum_test', executable('sum_test', 'sum.c', 'sum_test.c'), timeout: 2)
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
judge() { # NAME
    run mutants "$top/tests/mutants/$1.patch"
    last=$(tail -n 1 <<<"$out")
}

run mutants
is "no mutants at all is a failure" "$(tail -n 1 <<<"$out")" "0 passed, 1 failed"

mutant killed 'sum_test adds' 'result -= b;'
judge killed
is "a mutant that its test notices passes" "$rc $last" "0 1 passed, 0 failed"
like "the table says what was broken" "$out" 'killed +killed \(not ok\) +C01 the sum of two numbers'
mutant crashes 'sum_test adds' '__builtin_trap();'
judge crashes
is "a crash is noticed as well" "$rc $last" "0 1 passed, 0 failed"
mutant hangs 'sum_test adds' 'for (volatile int i = 0;;) i = 1;'
judge hangs
is "so is a test that does not end" "$rc $last" "0 1 passed, 0 failed"

# fails NAME PATTERN
fails() {
    judge "$1"
    is "$1: fails" "$rc $last" "1 0 passed, 1 failed"
    like "$1: why" "$out" "$2"
}
mutant survives 'sum_test adds_zero' 'result -= b;'
fails survives 'SURVIVES: adds_zero in sum_test passes all the same'
mutant does_not_compile 'sum_test adds' 'result +=;'
fails does_not_compile 'does not compile'
mutant does_not_apply 'sum_test adds' 'result -= b;'
sed -i 's/int result = a;/int other = a;/' "$top/tests/mutants/does_not_apply.patch"
fails does_not_apply 'does not apply'
mutant bad_baseline 'sum_test fails' 'result -= b;'
fails bad_baseline 'without the patch fails in sum_test is not ok'
mutant no_such_test 'sum_test nothing' 'result -= b;'
fails no_such_test 'without the patch nothing in sum_test does not run'
mutant no_such_suite 'other_test adds' 'result -= b;'
fails no_such_suite 'no suite is called other_test'
mutant no_header 'sum_test adds' 'result -= b;'
sed -i '/^Test:/d' "$top/tests/mutants/no_header.patch"
fails no_header "no line 'Test:"

rm "$top"/tests/mutants/[!k]*.patch
mutant other 'sum_test adds' 'result -= b;'
printf '| C01 | sums |\n| C02 | products |\n' >"$top/docs/guarantees.md"
run mutants
is "all together: patches are taken back one after the other" "$(tail -n 1 <<<"$out")" \
    "2 passed, 1 failed"
like "a promise without a mutant is a failure" "$out" 'C02: no mutant'
is "the sources themselves are untouched" "$(grep -c 'result += b' "$top/sum.c")" 1

done_testing
