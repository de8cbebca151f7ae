#!/usr/bin/env bash
# cli_read_test.sh - weir read, log, streams, close and targets: bounds, filters, forms, exit statuses,
# and readers that go away.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }
versions() { sed -n 's/.*"version":\([0-9]*\).*/\1/p' <<<"$out" | tr '\n' ' '; }
ids() { sed -n 's/^{"id":\([0-9]*\).*/\1/p' <<<"$out" | tr '\n' ' '; }

for i in 0 1 2 3 4; do weir append order-1 "Step$((i % 2))" "{\"i\":$i}" --correlation "c-$i" >/dev/null 2>&1; done
moment=$(weir read order-1 --from 2 --limit 1 | sed 's/.*"created":"\([^"]*\)".*/\1/')
for i in 1 2 3; do weir append "user-$i" Registered >/dev/null; done
weir append other Registered >/dev/null

# ---- read --------------------------------------------------------------------------------------

ok "read a stream" weir read order-1
is "all of it, in order" "$(versions)" "0 1 2 3 4 "
like "an event is one line of JSON" "$(head -n 1 <<<"$out")" \
    '^\{"id":1,"stream":"order-1","version":0,"name":"Step0","data":\{"i":0\},"meta":\{"correlation":"c-0"\},"created":"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"\}$'
ok "--from and --to" weir read order-1 --from 1 --to 3
is "are both included" "$(versions)" "1 2 3 "
ok "--to 0" weir read order-1 --to 0
is "is a bound" "$(versions)" "0 "
ok "--limit" weir read order-1 --limit 2
is "is kept" "$(versions)" "0 1 "
ok "--limit 0" weir read order-1 --limit 0
is "is a bound too" "$(versions)" ""
ok "--backward" weir read order-1 --backward
is "newest first" "$(versions)" "4 3 2 1 0 "
ok "--backward with bounds" weir read order-1 --backward --from 3 --to 1 --limit 2
is "begins at --from" "$(versions)" "3 2 "
ok "--at" weir read order-1 --at "$moment"
is "is the stream as it was then" "$(versions)" "0 1 2 "
ok "--at before it began" weir read order-1 --at 2001-01-01
is "is nothing" "$(versions)" ""
ok "beyond its end" weir read order-1 --from 100
is "is nothing" "$(versions)" ""
status "no such stream is exit status 3" 3 weir read nothing-1
like "its code" "$errout" '"code":"not-found"'
status "a bad time is wrong usage" 2 weir read order-1 --at yesterday
status "a bad version is wrong usage" 2 weir read order-1 --from x
status "no stream is wrong usage" 2 weir read
like "as text it is a table" "$(weir read order-1 --text)" \
    $'^ID +STREAM +VERSION +NAME +CREATED +DATA\n +1 +order-1 +0 +Step0 +(now|[0-9]+ s ago)'

# ---- log ---------------------------------------------------------------------------------------

ok "the log" weir log
is "all of it, in order" "$(ids)" "1 2 3 4 5 6 7 8 9 "
ok "--after" weir log --after 7
is "is exclusive" "$(ids)" "8 9 "
ok "--after 0 and --limit" weir log --after 0 --limit 2
is "is the beginning" "$(ids)" "1 2 "
ok "--since" weir log --since "$moment"
is "is inclusive" "$(ids)" "3 4 5 6 7 8 9 "
ok "--tail" weir log --tail 2
is "is the end, in order" "$(ids)" "8 9 "
ok "--tail 0" weir log --tail 0
is "is nothing" "$(ids)" ""
ok "--tail with more than there are" weir log --tail 100
is "is all" "$(ids)" "1 2 3 4 5 6 7 8 9 "
ok "--tail counts what fits" weir log --tail 2 --name Step0
is "and gives that" "$(ids)" "3 5 "
ok "--tail with --after" weir log --tail 5 --after 7
is "keeps both bounds" "$(ids)" "8 9 "
ok "--name, twice" weir log --name Step1 --name Registered
is "is any of them" "$(ids)" "2 4 6 7 8 9 "
ok "--stream with a name" weir log --stream order-1
is "is that stream" "$(ids)" "1 2 3 4 5 "
ok "--stream with a prefix" weir log --stream 'user-*'
is "is what begins so" "$(ids)" "6 7 8 "
ok "--stream with a regular expression" weir log --stream '/-[23]$/'
is "is what matches" "$(ids)" "7 8 "
ok "--category" weir log --category other
is "is the whole name without a dash" "$(ids)" "9 "
ok "--correlation" weir log --correlation c-3
is "is exactly that" "$(ids)" "4 "
ok "filters combine" weir log --category order --name Step0 --after 1
is "all must fit" "$(ids)" "3 5 "
status "a pattern that cannot be" 1 weir log --stream '/(/'
status "--after beyond the log" 1 weir log --after 1000
like "is rewound" "$errout" '"code":"rewound"'
status "an argument is wrong usage" 2 weir log order-1

# ---- streams -----------------------------------------------------------------------------------

names() { sed -n 's/^{"stream":"\([^"]*\)".*/\1/p' <<<"$out" | tr '\n' ' '; }
ok "streams" weir streams
is "in the order of their names" "$(names)" "order-1 other user-1 user-2 user-3 "
like "with what is known about them" "$(head -n 1 <<<"$out")" \
    '^\{"stream":"order-1","version":4,"count":5,"created":"[^"]+Z","updated":"[^"]+Z","closed":false\}$'
ok "--match" weir streams --match 'user-*' --limit 2
is "filters, --limit is kept" "$(names)" "user-1 user-2 "
ok "--after" weir streams --after user-2
is "begins after a name" "$(names)" "user-3 "
ok "--category" weir streams --category order
is "filters" "$(names)" "order-1 "
status "--open and --closed exclude each other" 2 weir streams --open --closed

# ---- close -------------------------------------------------------------------------------------

ok "close --dry-run" weir close user-1 --dry-run
is "says what would change" "$out" '{"stream":"user-1","version":0,"count":1,"closed":false,"would_change":1}'
status "close under a wrong expectation" 4 weir close user-1 --expect 7
ok "close" weir close user-1 --expect 0
is "says so" "$out" '{"stream":"user-1","version":1,"count":2,"closed":true,"changed":1}'
ok "close again" weir close user-1
is "changes nothing" "$out" '{"stream":"user-1","version":1,"count":2,"closed":true,"changed":0}'
like "the last event is \$closed" "$(weir read user-1 --backward --limit 1)" '"name":"\$closed"'
status "no such stream" 3 weir close nothing-1
ok "streams --closed" weir streams --closed
is "knows" "$(names)" "user-1 "
ok "streams --open" weir streams --open --match 'user-*'
is "the others" "$(names)" "user-2 user-3 "

# ---- targets -----------------------------------------------------------------------------------

ok "targets of a store without any" weir targets
is "is nothing" "$out" ""
status "no target matched" 3 weir targets --match 'mail-*'
status "none is blocked" 3 weir targets --blocked

# ---- readers that go away ----------------------------------------------------------------------

for ((i = 0; i < 3000; i++)); do echo '{"stream":"long","name":"N","data":"'"$(printf 'x%.0s' {1..100})"'"}'; done >long.jsonl
weir append --batch long.jsonl >/dev/null
for command in "read long" log streams; do
    # shellcheck disable=SC2086
    ok "weir $command | head -n 1: ends with 0" bash -o pipefail -c "'$WEIR' $command --json 2>went.err | head -n 1 >/dev/null; exit \${PIPESTATUS[0]}"
    is "weir $command | head -n 1: and quietly" "$(cat went.err)" ""
done
status "an output that is full is an error" 1 bash -c '"$WEIR" log >/dev/full'
like "and says so" "$errout" 'could not write output'

# A reader that stops reading holds nothing: appends go on.
mkfifo slow
"$WEIR" log >slow &
reader=$!
spawned $reader
exec 8<slow
read -r _ <&8
ok "an append while a reader has stopped reading" timeout 20 "$WEIR" append order-1 Noted
exec 8<&-
ok "the reader ends with 0 when its reader goes" wait $reader

done_testing
