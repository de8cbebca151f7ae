#!/usr/bin/env bash
# cli_misuse_test.sh - arguments that cannot be meant: an empty or broken filter is never "no filter", no
# part of a password is printed, and what an error advises can be done and helps.
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { timeout 30 "$WEIR" "$@"; }
ok "a store to misuse" weir append order-1 Placed --correlation c1
ok "with two streams" weir append order-2 Placed

# ---- filters -----------------------------------------------------------------------------------

# A script whose variable is empty would otherwise get everything.
for option in "log --stream" "log --name" "log --category" "log --correlation" "streams --match" \
    "streams --category" "targets --match" "targets --source" "targets --lane"; do
    # shellcheck disable=SC2086
    status "weir $option '' is wrong usage" 2 weir $option ''
    like "and says which option" "$errout" "${option#* } is empty"
    is "and prints nothing" "$out" ""
    # shellcheck disable=SC2086
    status "weir $option with invalid UTF-8 is wrong usage" 2 weir $option $'a\xff'
    like "and says so" "$errout" "${option#* } is not valid UTF-8"
done
for option in --key --correlation --reserve --release-key; do
    status "weir append $option '' is wrong usage" 2 weir append order-1 Paid "$option" ''
    status "also before one that is not empty" 2 weir append order-1 Paid "$option" '' "$option" x
done
is "nothing was appended" "$(weir log | wc -l)" 2
ok "all names sort after an empty one" weir streams --after ''
is "so it lists all" "$(wc -l <<<"$out")" 2
status "--after beyond everything, with --tail" 1 weir log --after 9223372036854775807 --tail 1
like "is a position of another log" "$errout" '"code":"rewound"'

# ---- targets -----------------------------------------------------------------------------------

status "no target matched" 3 weir targets --lane nowhere
is "is said" "$errout" '{"error":{"code":"not-found","message":"no target matched"}}'
ok "--limit is no filter: there are none, and that is an answer" weir targets --limit 5

# ---- data --------------------------------------------------------------------------------------

status "- for data and for meta is wrong usage" 2 weir append order-1 Paid - --meta - <<<'{}'
like "because there is one standard input" "$errout" 'only one of DATA and --meta can be -'
status "empty data" 1 weir append order-1 Paid ''
like "says that data is empty" "$errout" 'data is empty'
status "empty meta" 1 weir append order-1 Paid --meta ''
like "says that meta is empty" "$errout" 'meta is empty'
status "a directory is no batch" 1 weir append --batch .
like "and its name is said" "$errout" 'could not read \\"\.\\": Is a directory'

# ---- passwords ---------------------------------------------------------------------------------

for url in postgres://u:hunter2@host/db mysql://hunter2@host postgresql://u:hunter2@127.0.0.1:1/db hunter2@host/db \
    u:hunter2@host 'sqlite:?password=hunter2'; do
    for command in "append a N" log init "status --text"; do
        # shellcheck disable=SC2086
        status "weir $command --store ${url%%hunter*}...: is refused" 1 weir $command --store "$url"
        is "and no letter of the password is printed" "$(grep -c 'hu' <<<"$errout$out")" 0
    done
done
status "another scheme" 1 weir log --store mysql://u:hunter2@host/db
like "is named" "$errout" 'store URL \\"mysql:\\" begins with none of postgres://, sqlite: and memory:'

# ---- advice ------------------------------------------------------------------------------------

ok "somebody else's database" sqlite3 other.db 'CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)'
for command in "append a N" log init; do
    # shellcheck disable=SC2086
    status "weir $command on it" 1 weir $command --store sqlite:other.db
    like "advises what helps" "$errout" 'weir init --adopt'
done
ok "which it does" weir init --adopt --store sqlite:other.db
ok "from then on" weir append a N --store sqlite:other.db
is "and theirs is still there" "$(sqlite3 other.db 'SELECT a FROM theirs')" 1
for command in "append a N" init; do
    # shellcheck disable=SC2086
    status "weir $command in a directory that is not there" 1 weir $command --store sqlite:nowhere/orders.db
    like "says that it is the directory" "$errout" 'directory'
    like "and what to do" "$errout" '"detail":"[A-Z]'
done
status "an option where a value is missing" 2 weir pause --lane --dry-run
like "is not taken for the value" "$errout" '--lane needs a value before --dry-run; write --lane=--dry-run if that'
status "a word that is like no command" 2 weir foo
is "gets no suggestion" "$errout" '{"error":{"code":"inval","message":"unknown command \"foo\"","detail":"Try weir help."}}'

done_testing
