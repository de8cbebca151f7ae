#!/usr/bin/env bash
# two_workers_test.sh - the page "Two workers, one table" is run as it is written, block after block, in
# one shell, in a fresh directory: on SQLite, or with `postgres` on the server of with-server.
#
# A block ```sh is for both, ```sh sqlite and ```sh postgres for one. No command of a block may fail, but
# the last one, when it says `# exit status N`. A block ```text after it is what it printed, unless it
# tells times. The emails are counted: doubled without Weir, never with it.
. "$(dirname "$0")/tap.sh" || exit 1
kind=${1:-sqlite}
page=$WEIR_SOURCE/docs/two-workers-one-table.md
mkdir "$tmp/bin" "$tmp/blocks" "$tmp/home" && ln -s "$WEIR" "$tmp/bin/weir" || exit 1
export PATH=$tmp/bin:$PATH
unset WEIR_STORE
if [ "$kind" = postgres ]; then
    export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres PATH=$PATH:$WEIR_TEST_PG_BIN
fi

# Blocks as files: 012.sh, 013.text, ...
awk -v directory="$tmp/blocks" -v kind="$kind" '
/^```/ {
    if (file != "") { close(file); file = ""; next }
    language = substr($1, 4)
    wanted = language == "text" || (language == "sh" && (NF == 1 || $2 == kind))
    file = wanted ? sprintf("%s/%03d.%s", directory, ++count, language) : "/dev/null"
    printf "" >file
    next
}
file != "" { print >file }' "$page"

cd "$tmp/home" || exit 1
counted=()
blocks=0
for block in "$tmp"/blocks/*.sh; do
    blocks=$((blocks + 1))
    name="$(basename "$block" .sh) $(head -n 1 "$block")"
    expected=0
    [[ $(tail -n 1 "$block") =~ '# exit status '([0-9]+) ]] && expected=${BASH_REMATCH[1]}
    failures=()
    trap 'failures+=("$? from: $BASH_COMMAND")' ERR
    # shellcheck disable=SC1090
    { . "$block"; } >"$tmp/.page" 2>"$tmp/.page-err" </dev/null
    got=$?
    trap - ERR
    # The command itself, and the source command that it ends.
    allowed=$((expected == 0 ? 0 : 2))
    if [ "$got" -eq "$expected" ] && [ "${#failures[@]}" -le "$allowed" ]; then
        pass "$name"
    else
        fail "$name" "exit status $got, not $expected; failed: ${failures[*]}"
        diag "$(cat "$block")"
        diag "stdout: $(tail -n 20 "$tmp/.page")"
        diag "stderr: $(tail -n 20 "$tmp/.page-err")"
    fi
    result=$(grep '^emails: ' "$tmp/.page") && counted+=("$result")
    text=$tmp/blocks/$(printf '%03d.text' $((10#$(basename "$block" .sh) + 1)))
    if [ -e "$text" ] && ! grep -q '^ *[0-9.]* s  \|, doubled: 3' "$text"; then
        is "$name: prints what the page says" "$(cat "$tmp/.page")" "$(cat "$text")"
    fi
done
ok "the page has commands (it has $blocks blocks)" test "$blocks" -ge 24

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
