# shellcheck shell=bash
# tap.sh - what a shell test needs to report in TAP. Source it, then:
#
#     . "$(dirname "$0")/tap.sh" || exit 1
#     ok   "NAME" COMMAND [ARG...]        passes when the command exits with 0
#     not_ok "NAME" COMMAND [ARG...]      passes when it exits with anything else
#     is   "NAME" ACTUAL EXPECTED         passes when both texts are equal
#     like "NAME" ACTUAL REGEX            passes when the text matches (bash =~, extended)
#     status "NAME" CODE COMMAND [ARG...] passes when the command exits with exactly CODE
#     pass "NAME" / fail "NAME" [WHY]     when the script judges for itself
#     diag TEXT                           a note; shown when something failed
#     wait_for "WHAT" COMMAND [ARG...]    polls the command until it exits with 0; gives up after a minute
#     ended LOG                           waits for the end of $pid and leaves its exit status in $rc; if it
#                                         does not end, shows the end of LOG and kills it
#     done_testing                        the last line: prints the plan, exits 1 if anything failed
#
# ok, not_ok and status keep what the command wrote to stdout and stderr in $out and $errout for the
# checks that follow. A script that ends before done_testing has no plan, which the runner counts
# as a failure; a script may also print the plan up front with `plan N`, and is then held to it.
# $tmp is a fresh directory, removed at the end; background children that the script started
# (and announced with `spawned PID`) are killed at the end. meson gives the program under test as
# $WEIR; $WEIR_SOURCE is the top of the sources.

WEIR_SOURCE=${WEIR_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
tap_count=0
tap_failed=0
tap_plan=
tap_pids=()
out=
errout=
tmp=$(mktemp -d "${TMPDIR:-/tmp}/weir-e2e.XXXXXX") || exit 1

tap_cleanup() {
    local pid
    for pid in "${tap_pids[@]}"; do
        kill -9 "$pid" 2>/dev/null
    done
    rm -rf "$tmp"
}
trap tap_cleanup EXIT

spawned() { tap_pids+=("$1"); }

plan() {
    tap_plan=$1
    printf '1..%d\n' "$1"
}

diag() { printf '%s\n' "$*" | sed 's/^/# /'; }

pass() {
    tap_count=$((tap_count + 1))
    printf 'ok %d - %s\n' "$tap_count" "$1"
}

fail() {
    tap_count=$((tap_count + 1))
    tap_failed=$((tap_failed + 1))
    printf 'not ok %d - %s\n' "$tap_count" "$1"
    if [ $# -gt 1 ]; then diag "$2"; fi
}

# Runs a command, leaves its output in $out and $errout and its exit status in $rc.
run() {
    rc=0
    "$@" >"$tmp/.out" 2>"$tmp/.err" || rc=$?
    out=$(tr -d '\0' <"$tmp/.out")
    errout=$(tr -d '\0' <"$tmp/.err")
}

tap_show_run() {
    diag "exit status $rc of: $*"
    diag "stdout: $(printf '%s' "$out" | head -c 2000)"
    diag "stderr: $(printf '%s' "$errout" | head -c 2000)"
}

status() {
    local name=$1 expected=$2
    shift 2
    run "$@"
    if [ "$rc" -eq "$expected" ]; then
        pass "$name"
    else
        fail "$name" "expected exit status $expected"
        tap_show_run "$@"
    fi
}

ok() {
    local name=$1
    shift
    status "$name" 0 "$@"
}

not_ok() {
    local name=$1
    shift
    run "$@"
    if [ "$rc" -ne 0 ]; then
        pass "$name"
    else
        fail "$name" "expected a failure"
        tap_show_run "$@"
    fi
}

is() {
    if [ "$2" = "$3" ]; then
        pass "$1"
    else
        fail "$1" "got:      $(printf '%s' "$2" | head -c 2000)"
        diag "expected: $(printf '%s' "$3" | head -c 2000)"
    fi
}

like() {
    if [[ $2 =~ $3 ]]; then
        pass "$1"
    else
        fail "$1" "got:     $(printf '%s' "$2" | head -c 2000)"
        diag "pattern: $3"
    fi
}

# One limit for all: no verdict depends on it, it only ends what would hang.
wait_for() {
    local what=$1 deadline=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            diag "gave up waiting for: $what"
            return 1
        fi
        sleep 0.05
    done
}

ended() {
    if ! wait_for "the end of process $pid" bash -c "! kill -0 $pid"; then
        diag "$(tail -n 5 "$1")"
        kill -9 "$pid"
    fi
    wait "$pid"
    rc=$?
}

done_testing() {
    if [ -z "$tap_plan" ]; then printf '1..%d\n' "$tap_count"; fi
    [ "$tap_failed" -eq 0 ] && [ "$tap_count" -gt 0 ] && [ "${tap_plan:-$tap_count}" -eq "$tap_count" ]
    exit
}
