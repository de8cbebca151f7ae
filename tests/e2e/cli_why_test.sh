#!/usr/bin/env bash
# cli_why_test.sh - every answer of weir why, of a target that got there by itself: through workers that run, fail, are
# killed or are not there, and through the commands of an operator. Nothing is written into the store by hand; the
# words of each answer, and of states that are hard to meet, are tried in cli_operate_test.sh.
#
# Handlers are held by files, never by time. Run by tests/postgres/with-server: on SQLite, then on PostgreSQL.
# shellcheck disable=SC2016 # handlers expand for themselves
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
cd "$tmp" || exit 1
mkdir bin && ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$WEIR_TEST_PG_BIN:$PATH PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres
time_re='20[0-9-]+T[0-9:.]+Z'

member() { python3 -c 'import json, sys
for line in sys.stdin:
    value = json.loads(line)
    for name in sys.argv[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    print(value)' "$1"; }
append() { weir append "$@" >/dev/null 2>>append.err || fail "append $*"; }
# why NAME TARGET PATTERN: the reason and the sentence, when the reason has come to be what PATTERN begins with.
why() {
    wait_for "$1" 30 bash -c '[ "$(weir why "$1" --json | sed "s/.*\"reason\":\"\([a-z-]*\)\".*/\1/")" = "$2" ]' - "$2" "${3%%:*}"
    run weir why "$2" --json
    like "$1" "$(member reason <<<"$out"): $(member answer <<<"$out")" "^$3\$"
}
# work ARGUMENT...: in the background, its pid in $pid. Waits until it has begun.
work() {
    weir work "$@" 2>work.log &
    pid=$!
    spawned $pid
    wait_for "the worker" 20 grep -q '"msg":"started"' work.log || diag "$(cat work.log)"
}
end_worker() {
    kill -TERM $pid
    wait $pid
    is "the worker ends with 0" $? 0
}

answers() {
    cat >weir.yaml <<'EOF'
lanes:
  fast: { threads: 1, lease: 1s }
  other: { threads: 1 }
reactions:
  - { name: hold, on: Hold, to: "{stream}", lane: fast, run: "cat >>begun; until [ -e go ]; do sleep 0.02; done", from: start }
  - { name: fail, on: Fail, to: "{stream}", lane: other, run: "echo no route >&2; exit 1", retries: 3, from: start,
      backoff: { kind: fixed, base: 7d, cap: 7d } }
  - { name: poison, on: Poison, to: "{stream}", lane: other, run: "echo no address >&2; exit 65", from: start }
  - { name: later, on: Later, to: "{stream}", lane: other, exec: ./later, from: start }
EOF
    printf '#!/bin/sh\nwhile read -r line; do echo %s; done\n' "'{\"defer\":\"2999-01-01T00:00:00Z\"}'" >later
    chmod +x later
    ok "init" weir init
    append h-1 Hold
    append h-2 Hold
    append f-1 Fail
    append p-1 Poison
    append p-1 Poison
    append l-1 Later

    work
    why "leased, by whom and where" h-1 "leased: h-1 is leased by weir@.*:$pid:[0-9a-f]+ on host $(hostname) \(process $pid\) until $time_re with fence 1"
    why "ready: the one slot is busy" h-2 "ready: h-2 is ready: the next free one of 1 worker of its lane takes it"
    why "deferred by a failure, with its attempt" f-1 "deferred: f-1 is deferred until $time_re because of error \"the handler exited with 1\.\.\.\" at event 3, attempt 1 of 4"
    why "blocked, with what is behind it" p-1 "blocked: p-1 is blocked since $time_re at event 4 of reaction poison with error \"the handler exited with 65\.\.\.\" after attempt 1 of 4, 1 event behind it"
    like "all that it said is evidence" "$(member evidence.error <<<"$out")" 'no address'
    why "deferred by its handler" l-1 "deferred: l-1 is deferred until 2999-01-01T00:00:00\.?0*Z, without an error"
    ok "an operator pauses h-2" weir pause h-2
    why "paused, by whom" h-2 "paused: h-2 is paused by $(id -un)@$(hostname)"
    ok "and its lane instead" bash -c 'weir resume h-2 && weir pause --lane fast'
    why "its lane is paused" h-2 "lane-paused: h-2 waits: its lane fast is paused by $(id -un)@$(hostname)"
    ok "no longer" weir resume --lane fast
    touch go
    why "no work" h-1 "no-work: h-1 has no work"
    why "no work in the other one either" h-2 "no-work: h-2 has no work"
    end_worker

    # What ended workers leave behind.
    append h-1 Hold
    why "not routed, and nobody runs" h-1 "unknown-reaction: h-1 has no work yet: event 7 is not routed; reaction hold is known to no running worker"
    rm go
    work --lanes other
    why "routed by a worker of another lane" h-1 "no-worker: h-1 has work, and its lane fast has no worker"
    end_worker
    printf 'lanes: { fast: {} }\nreactions: [ { name: new, on: New, to: n, lane: fast, run: "true" } ]\n' >new.yaml
    work --config new.yaml
    why "a worker that does not know the reaction" h-1 "unknown-reaction: h-1 has work of reaction hold, which is known to no running worker of its lane"
    ok "an operator ends the reaction" weir reactions retire hold
    why "its reaction is retired" h-1 "retired: h-1 has no work that counts: its reaction hold is retired"
    end_worker

    # A handler that takes its worker along, ten times.
    printf 'lanes: { fast: { lease: 100ms } }\nreactions: [ { name: killer, on: Kill, to: k, lane: fast, run: "kill -9 $(cat pid)", from: start } ]\n' >killer.yaml
    append k-1 Kill
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        timeout 60 bash -c 'echo $$ >pid; exec weir work --config killer.yaml' 2>>killed.log
        is "a worker is killed by its handler" $? 137
    done
    timeout 60 weir work --config killer.yaml --until-idle 2>>killed.log
    why "blocked for having lost its leases" k "blocked: k is blocked since $time_re with error \"lost its lease 10 times in a row\", 1 event waiting"
}

# On SQLite nothing is ever above safe, and a router that is stopped would hold nobody up.
on_postgres() {
    printf 'reactions: [ { name: calm, on: Calm, to: "{stream}", run: "true", from: start } ]\n' >calm.yaml
    append c-1 Calm
    work --config calm.yaml
    why "all is done" c-1 "no-work: .*"
    kill -STOP $pid
    append c-1 Calm
    why "its router is stopped, and its lease lasts" c-1 "unrouted: c-1 has no work yet: event [0-9]+ is not routed; reaction calm is routed by .*:$pid:[0-9a-f]+, up to [0-9]+ of [0-9]+"
    kill -CONT $pid
    why "it goes on" c-1 "no-work: .*"
    coproc HOLDER { psql -X -q -A -t "$database" 2>&1; }
    spawned "$HOLDER_PID"
    printf 'BEGIN;\nSELECT pg_backend_pid();\nSELECT weir.append_one(0, 1000, %s);\n' "'held-1', 0, 0, 'Late', '{}', '{}'" >&"${HOLDER[1]}"
    read -r backend <&"${HOLDER[0]}"
    read -r _ <&"${HOLDER[0]}"
    append c-1 Calm
    why "held back, by whom" c-1 "held-back: c-1 has no work yet: event [0-9]+ is above safe \([0-9]+\), held back by process $backend \(psql\) since $time_re"
    printf 'ROLLBACK;\n\\q\n' >&"${HOLDER[1]}"
    why "and no longer" c-1 "no-work: .*"
    end_worker
}

mkdir sqlite postgres
cd "$tmp/sqlite" || exit 1
export WEIR_STORE=sqlite:why.db
answers

cd "$tmp/postgres" || exit 1
database=why
ok "a database" createdb $database
export WEIR_STORE=postgres:///$database
answers
on_postgres

done_testing
