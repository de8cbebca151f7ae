#!/usr/bin/env bash
# ci_test.sh - .ci/run adds up what its steps say, and what they do not say counts against them. The
# steps themselves are played by a script in the place of make.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

mkdir -p "$tmp/top/.ci" "$tmp/bin"
cp "$WEIR_SOURCE/.ci/run" "$tmp/top/.ci/run"
cat >"$tmp/bin/make" <<END
#!/bin/sh
for word in "\$@"; do case \$word in -* | *=*) ;; *) step=\$word ;; esac; done
echo "\$step" >>"$tmp/steps"
[ -e "$tmp/\$step" ] && . "$tmp/\$step"
END
chmod +x "$tmp/bin/make"
say() { echo "$2" >"$tmp/$1"; } # STEP COMMANDS
ci() { : >"$tmp/steps"; PATH=$tmp/bin:$PATH "$tmp/top/.ci/run"; }
result() { # NAME STATUS LAST_LINE
    run ci
    is "$1" "$rc $(tail -n 1 <<<"$out")" "$2 $3"
}

say test 'echo "10 passed, 0 failed"; exit 0'
say check 'echo "9 passed, 0 failed"; exit 0'
say asan 'echo "5 passed, 0 failed"; exit 0'
say tsan 'echo "4 passed, 0 failed"; exit 0'
result "all steps pass" 0 "28 passed, 0 failed"
is "the steps, in order" "$(tr '\n' ' ' <"$tmp/steps")" "test check asan tsan "
like "each has its line in the summary" "$out" 'make check +9 passed +0 failed'
say check 'echo "8 passed, 1 failed"; echo "make: *** Error 1"; exit 2'
result "a failure is counted" 1 "27 passed, 1 failed"
is "and the steps after it still run" "$(wc -l <"$tmp/steps")" 4
say asan 'echo "unit/lane_test 9 tests 1 FAILED"; echo "    | not ok"; echo "5 passed, 1 failed"; exit 1'
run ci
like "what failed is said again behind all steps" "$(sed -n '/^== what failed/,$p' <<<"$out")" \
    'make asan.*lane_test 9 tests 1 FAILED.*not ok.*== summary'
say asan 'echo "5 passed, 0 failed"; exit 0'
say check 'echo "broken"; exit 2'
result "a step that fails without a count is one failure" 1 "19 passed, 1 failed"
say check 'echo "9 passed, 0 failed"; exit 2'
result "an exit status is believed, a count is not" 1 "28 passed, 1 failed"
say check 'exit 0'
result "a step that says nothing is one failure" 1 "19 passed, 1 failed"
for step in test check asan tsan; do say $step 'echo "0 passed, 0 failed"; exit 0'; done
result "nothing at all is no success" 1 "0 passed, 0 failed"

done_testing
