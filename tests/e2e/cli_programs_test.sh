#!/usr/bin/env bash
# cli_programs_test.sh - programs that misbehave, under weir work: a crash, a hang, rubbish, a flood, an exit without
# reading, a grandchild that lives on. Each costs its target one retry per run, is explained, and harms no other target.
#
#   cli_programs_test.sh [postgres]    on a SQLite file, or in a schema of $WEIR_TEST_POSTGRES
# shellcheck disable=SC2016 # handlers expand for themselves
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
cd "$tmp" || exit 1
weir() { timeout 60 "$WEIR" "$@"; }
member() { python3 -c 'import json, sys
for line in sys.stdin:
    value = json.loads(line)
    for name in sys.argv[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    print(value)' "$1"; }

export WEIR_STORE=sqlite:programs.db
if [ "${1:-sqlite}" = postgres ]; then
    separator='?'
    [[ $WEIR_TEST_POSTGRES == *\?* ]] && separator='&'
    export WEIR_STORE="$WEIR_TEST_POSTGRES${separator}schema=programs"
fi
ok "a store" weir init

printf '#!/bin/sh\nwhile read -r line; do echo run >>ran.good; echo %s; done\n' "'{\"ok\":true}'" >good
chmod +x good

# Each notes that it was run. One retry, so two runs, and then its target is blocked.
{
    echo 'reactions:'
    while IFS='|' read -r name kind command; do
        [ -n "$name" ] || continue
        echo "  - { name: $name, on: Go, to: $name, $kind: 'echo run >>ran.$name; $command', from: start, retries: 1,"
        echo "      backoff: { kind: fixed, base: 10ms, cap: 10ms }, deadline: $([ "$name" = hang ] && echo 500ms || echo 1m) }"
    done
    echo '  - { name: good, on: Go, to: good, exec: ./good, from: start }'
} >weir.yaml <<'EOF'
crash|run|echo "about to crash" >&2; kill -SEGV $$
fail|run|echo "no route" >&2; exit 7
hang|run|echo $$ >pid.hang; sleep 1000
rubbish|exec|while read -r line; do echo "all is well"; done
flood|exec|head -c 5000000 /dev/zero | tr "\\0" x; cat
unread|exec|exit 0
grandchild|run|sleep 1000 & echo $! >pid.grandchild; exit 0
EOF
ok "its reactions are well" weir work --check
for _ in 1 2 3 4 5; do ok "an event" weir append s-1 Go; done
status "they are run until nothing is left to do" 1 weir work --until-idle
like "and how many are blocked is told" "$errout" '"msg":"not_all_handled","blocked":7,"parked":0,"next":"weir why"'

explained() { # NAME PATTERN
    is "$1: it was run twice" "$(wc -l <"ran.$1")" 2
    is "$1: its target is blocked" "$(weir targets --match "$1" | member state)" blocked
    weir why "$1" --json >why.json
    is "$1: after one retry, with an error" "$(member reason <why.json) $(member evidence.attempts <why.json) $(member evidence.event <why.json)" "blocked 2 1"
    like "$1: which explains it" "$(member evidence.error <why.json)" "$2"
}
explained crash 'killed by signal 11.*about to crash'
explained fail 'exited with 7.*no route'
explained hang 'not done by its deadline and was killed'
explained rubbish 'not a reply.*all is well'
explained flood 'a line of more than 4194304 bytes and was killed'
explained unread 'exited with 0 without answering'
explained grandchild 'exited with 0; processes it had left in the background were killed'
is "the one that is well was run for every event" "$(wc -l <ran.good)" 5
is "and its target has no work left" "$(weir targets --match good | member state) $(weir targets --match good | member error)" "idle None"
not_ok "what hung is gone" kill -0 "$(cat pid.hang)"
not_ok "and the grandchild" kill -0 "$(cat pid.grandchild)"

done_testing
