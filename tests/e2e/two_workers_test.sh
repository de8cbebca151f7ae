#!/usr/bin/env bash
# two_workers_test.sh - the page "Two workers, one table" is run as it is written, block after block, in
# one shell, in a fresh directory: on SQLite, or with `postgres` on the server of with-server.
#
# The blocks ```sh sqlite and ```sh postgres are for one of them; page.sh has the rules. The emails are counted:
# doubled without Weir, never with it.
. "$(dirname "$0")/tap.sh" || exit 1
. "$(dirname "$0")/page.sh" || exit 1
kind=${1:-sqlite}
mkdir "$tmp/bin" "$tmp/home" && ln -s "$WEIR" "$tmp/bin/weir" || exit 1
export PATH=$tmp/bin:$PATH
unset WEIR_STORE
if [ "$kind" = postgres ]; then
    export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres PATH=$PATH:$WEIR_TEST_PG_BIN
fi

cd "$tmp/home" || exit 1
counted=()
page_after() {
    local result
    result=$(grep '^emails: ' "$tmp/.page") && counted+=("$result")
}
page_run "$WEIR_SOURCE/docs/two-workers-one-table.md" "$kind"
ok "the page has commands (it has $page_blocks blocks)" test "$page_blocks" -ge 24

is "one reconciler alone doubles nothing" "${counted[0]}" "emails: 3, doubled: 0"
like "two without Weir do" "${counted[1]}" '^emails: [4-6], doubled: [1-3]$'
is "two with claims do not" "${counted[2]}" "emails: 3, doubled: 0"
is "nor when one of them is killed" "${counted[3]}" "emails: 3, doubled: 0"
is "that was all that was counted" "${#counted[@]}" 4
is "emails are still there, one for each transaction" \
    "$(cd emails && printf '%s\n' * | cut -d . -f 1 | tr '\n' ' ')" \
    "transaction-1 transaction-2 transaction-3 "
if [ "$kind" = postgres ]; then
    is "nothing is left of races" "$(./sql "SELECT count(*) FROM pg_class WHERE relname LIKE 'weir_race%'")" 0
else
    is "nothing is left of races" "$(./sql "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'weir_race%'")" 0
fi

done_testing
