#!/usr/bin/env bash
# run_suites_test.sh - the runner must not be fooled: each suite below lies in its own way, and the
# runner has to say so. A small meson project is made for it, whose tests are shell scripts.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

# suite NAME MESON_ARGUMENTS: a suite whose script comes from stdin.
suite() {
    { echo '#!/bin/sh'; cat; } >"$tmp/src/$1.sh"
    chmod +x "$tmp/src/$1.sh"
    echo "test('$1', find_program('$1.sh')${2:+, $2})" >>"$tmp/src/meson.build"
}

run_suites() { "$WEIR_SOURCE/tools/run-suites" "$tmp/build" "$@"; }

# Runs one suite by name and leaves the last line of what the runner printed in $last.
run_one() {
    run run_suites --no-build --suite "$1"
    last=$(printf '%s\n' "$out" | tail -n 1)
}

# fails NAME SUITE LAST_LINE REASON
fails() {
    run_one "$2"
    is "$1: exit status" "$rc" 1
    is "$1: last line" "$last" "$3"
    like "$1: reason" "$out" "$4"
}

mkdir "$tmp/src"
echo "project('liars')" >"$tmp/src/meson.build"

suite good "suite: 'unit'" <<'END'
[ "$CMOCKA_MESSAGE_OUTPUT" = TAP ] || exit 9
echo 1..2; echo 'ok 1 - a'; echo 'ok 2'; echo '# ok - group'
END
suite two_groups <<'END'
echo 1..1; echo 'ok 1 - a'; echo '# ok - one'; echo 1..2; echo 'ok 1 - b'; echo 'ok 2 - c'
END
suite plan_last <<'END'
echo 'ok 1 - a'; echo 1..1
END
suite not_ok <<'END'
echo 1..2; echo before; echo 'not ok 1 - a'; echo '# why it failed'; echo 'ok 2 - b'
END
suite none <<'END'
echo 1..0
END
suite silent <<'END'
exit 0
END
suite no_plan <<'END'
echo 'ok 1 - a'
END
suite too_few <<'END'
echo 1..5; echo 'ok 1 - a'; echo 'ok 2 - b'
END
suite too_many <<'END'
echo 1..1; echo 'ok 1 - a'; echo 'ok 2 - b'
END
suite exits_1 <<'END'
echo 1..1; echo 'ok 1 - a'; exit 1
END
suite crashes <<'END'
echo 1..1; echo 'ok 1 - a'; kill -SEGV $$
END
suite skips <<'END'
echo 1..2; echo 'ok 1 - a # SKIP no database here'; echo 'ok 2 - b'
END
suite cmocka_skips <<'END'
echo 1..1; echo 'not ok 1 # SKIP a'
END
suite bails <<'END'
echo 1..1; echo 'ok 1 - a'; echo 'Bail out! no room'
END
suite sanitizer <<'END'
echo 1..1; echo 'ok 1 - a'; echo 'WARNING: ThreadSanitizer: data race (pid=1)' >&2
END
suite endless "timeout: 1" <<END
echo 1..1; echo 'ok 1 - a'
sh -c 'echo \$\$ >$tmp/grandchild; exec sleep 300'
END
suite in_build_dir <<'END'
echo 1..1; [ -e build.ninja ] && echo 'ok 1 - meson would run it here, too'
END
suite long_one "suite: 'soak'" <<'END'
echo 1..1; echo 'ok 1 - a'
END
suite also_long "suite: ['unit', 'soak']" <<'END'
echo 1..1; echo 'ok 1 - a'
END
suite stress_one "suite: 'stress'" <<END
echo 1..1; [ -e $tmp/other ] || echo 'ok 1 - alone'; : >$tmp/mine; rm $tmp/mine
END

ok "the project is set up" meson setup "$tmp/build" "$tmp/src"

run_one good
is "a good suite passes: exit status" "$rc" 0
is "a good suite passes: last line" "$last" "2 passed, 0 failed"
like "its line has the name, the number of tests and the time" "$out" \
    'unit/good +2 tests +[0-9]+\.[0-9] s'
run_one two_groups
is "the groups of one program add up" "$last" "3 passed, 0 failed"
run_one plan_last
is "the plan may come last" "$last" "1 passed, 0 failed"
run_one in_build_dir
is "a suite runs in the build directory" "$last" "1 passed, 0 failed"

fails "a failed test" not_ok "1 passed, 1 failed" 'why it failed'
fails "a suite that ran none" none "0 passed, 1 failed" 'ran no test'
fails "a suite that said nothing" silent "0 passed, 1 failed" 'printed no plan'
fails "a suite without a plan" no_plan "1 passed, 1 failed" 'printed no plan'
fails "fewer tests than planned" too_few "2 passed, 3 failed" 'ran 2 of 5 planned'
fails "more tests than planned" too_many "2 passed, 1 failed" 'ran 2 tests but planned 1'
fails "exit status 1 after all ok" exits_1 "1 passed, 1 failed" 'exit status 1'
fails "a crash after all ok" crashes "1 passed, 1 failed" 'killed by SIGSEGV'
fails "a skipped test" skips "1 passed, 1 failed" 'skipping is failing'
fails "a skipped test of cmocka" cmocka_skips "0 passed, 1 failed" 'skipping is failing'
fails "a suite that bails out" bails "1 passed, 1 failed" 'no room'
fails "a sanitizer's report" sanitizer "1 passed, 1 failed" 'sanitizer reported'
fails "a suite that does not end" endless "1 passed, 1 failed" 'ran longer than 4 s'
gone() { ! kill -0 "$(cat "$tmp/grandchild")"; }
if wait_for "the grandchild to be killed" gone; then
    pass "a time limit ends the whole process group"
else
    fail "a time limit ends the whole process group"
fi
fails "a suite that is not there" nonsense "0 passed, 1 failed" '0 passed'

run run_suites
is "all together: exit status" "$rc" 1
is "all together: the sum" "$(printf '%s\n' "$out" | tail -n 1)" "21 passed, 15 failed"
is "all together: one line per suite" "$(printf '%s\n' "$out" | grep -cE ' tests? +[0-9.]+ s')" 19
like "a stress suite runs after the others" "$out" 'stress/stress_one[^|]*$'

run run_suites --suite unit --suite plan_last
is "filters take groups and names" "$(printf '%s\n' "$out" | tail -n 1)" "4 passed, 0 failed"
run run_suites --suite soak
is "what is long runs when asked for" "$(printf '%s\n' "$out" | tail -n 1)" "2 passed, 0 failed"

echo "custom_target('broken', output: 'x', command: ['false'], build_by_default: true)" \
    >>"$tmp/src/meson.build"
run run_suites --suite good
is "a build that fails fails the run" "$rc" 1
is "a build that fails: last line" "$(printf '%s\n' "$out" | tail -n 1)" "0 passed, 1 failed"

done_testing
