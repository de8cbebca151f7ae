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
    wait_for "$1" bash -c '[ "$(weir why "$1" --json | sed "s/.*\"reason\":\"\([a-z-]*\)\".*/\1/")" = "$2" ]' - "$2" "${3%%:*}"
    run weir why "$2" --json
    like "$1" "$(member reason <<<"$out"): $(member answer <<<"$out")" "^$3\$"
}
# work ARGUMENT...: in the background, its pid in $pid. Waits until it has begun.
work() {
    rm -f work.log
    weir work "$@" 2>work.log &
    pid=$!
    spawned $pid
    wait_for "the worker" grep -q '"msg":"started"' work.log || diag "$(cat work.log)"
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
    why "leased, by whom and where" h-1 "leased: h-1 is leased by weir@.*:$pid:[0-9a-f]+ on host $(hostname) \(process $pid\); the lease ends or is renewed $time_re"
    why "ready: the one slot is busy" h-2 "ready: h-2 is ready: the next free one of 1 worker of its lane takes it"
    why "retrying, with its attempt" f-1 "retrying: f-1 is retrying: no route \(event 3 of reaction fail, attempt 1 of 4\); next attempt $time_re"
    why "blocked, with what is behind it" p-1 "blocked: p-1 is blocked: no address \(event 4 of reaction poison, attempt 1 of 4, $time_re\); 1 event waits behind it"
    like "all that it said is evidence" "$(member evidence.error <<<"$out")" 'no address'
    why "deferred by its handler" l-1 "deferred: l-1 was deferred by its handler; next attempt 2999-01-01T00:00:00\.?0*Z"
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
    why "not routed, and nobody runs" h-1 "unknown-reaction: h-1 has no work yet: event 7 is not routed; reaction hold is handled by no running worker"
    rm go
    work --lanes other
    why "routed by a worker of another lane" h-1 "no-worker: h-1 has work for reaction hold, and no running worker serves its lane fast"
    end_worker
    printf 'lanes: { fast: {} }\nreactions: [ { name: new, on: New, to: n, lane: fast, run: "true" } ]\n' >new.yaml
    work --config new.yaml
    why "a worker that does not know the reaction" h-1 "unknown-reaction: h-1 has work for reaction hold, which no running worker of its lane handles"
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
    why "blocked for having lost its leases" k "blocked: k is blocked: lost its lease 10 times in a row \($time_re\); 1 event waits"
}

# Everything at once: p-1 and k are blocked, f-1 is retrying and nobody works. A paused target and lane and a parked event
# are added.
stuck() {
    ok "an operator skips the event that blocks p-1" weir skip p-1 --yes
    ok "pauses h-2" weir pause h-2
    ok "and a lane" weir pause --lane idle
    ok "what is stuck" weir why --json
    is "the worst comes first" "$(python3 -c 'import json, sys
for line in sys.stdin:
    item = json.loads(line)
    print(item["reason"], item["target"], item["next"][:1])' <<<"$out" | uniq)" "blocked k ['weir unblock k']
retrying f-1 ['weir unblock f-1']
paused h-2 ['weir resume h-2']
lane-paused None ['weir resume --lane idle']
parked None []
lane-without-worker None []
unknown-reaction None []"
    ok "a person reads it" weir why --text
    like "the worst first" "$out" $'^k is blocked: lost its lease 10 times in a row \\([^\n]*\\); 1 event waits\n    weir unblock k  .*\nf-1 is retrying: no route .*\nh-2 is paused by .*\n    weir resume h-2 .*\n1 event of reaction "poison" is parked\n    See them with weir parked ls --reaction poison'
    status "doctor has an exit status" 1 weir doctor
    like "names what is blocked, and what to do" "$out" '"level":"finding","rule":"blocked","message":"1 target is blocked: k","advice":"weir why TARGET shows the error'
    like "and what is parked" "$out" '"level":"finding","rule":"parked","message":"1 event of reaction ."poison." is parked","advice":"See them with weir parked ls --reaction poison'
    like "and the lane that nobody serves" "$out" '"rule":"lane-without-worker","message":"1 target is ready in lane ."other.".*"advice":"Start a worker: weir work --lanes other. Or pause the lane: weir pause --lane other'
    like "and the reaction that nobody handles" "$out" '"rule":"unknown-reaction","message":"no running worker handles reaction ."poison.".*"advice":"Start weir work'
}

# kill -9: the store learns of it by what it does not hear any more.
killed() {
    state() { weir status | python3 -c 'import json, sys
print([w["state"] for w in json.load(sys.stdin)["workers"] if w["pid"] == int(sys.argv[1])][0])' "$1"; }
    printf 'reactions: [ { name: calm, on: Calm, to: "{stream}", run: "true", from: start } ]\n' >calm.yaml
    work --config calm.yaml
    is "a worker that runs" "$(state $pid) $(weir reactions ls | grep '"calm"' | member workers)" "running 1"
    kill -9 $pid
    wait_for "three beats" bash -c 'weir reactions ls | grep "\"calm\"" | grep -q "\"workers\":0,"'
    is "one that was killed" "$(state $pid) $(weir reactions ls | grep '"calm"' | member workers)" "gone 0"
    work --config calm.yaml
    end_worker
    is "one that ended by itself" "$(state $pid)" ended
}

# What a Python program wrote to stderr when an exception ended it, read by somebody on a terminal. What the screen says
# to type next is typed, and the target goes on.
exception() {
    mkdir charge && cd charge || exit 1
    cat >charge.py <<'EOF'
import json, os, sys
for line in sys.stdin:
    data = json.loads(line)["event"]["data"]
    share = 0 if os.path.exists("mended") else data["total"] / data["people"]
    print(json.dumps({"ok": True}), flush=True)
EOF
    printf 'reactions: [ { name: charge, on: Placed, to: "charge-{stream}", exec: "python3 charge.py", retries: 0, from: start } ]\n' >weir.yaml
    ok "a store of its own" weir init
    append order-1 Placed '{"total":3,"people":0}'
    append order-1 Placed '{"total":3,"people":1}'
    status "a run that leaves a target blocked" 1 weir work --until-idle
    why "the last line of the exception is in the sentence" charge-order-1 "blocked: charge-order-1 is blocked: ZeroDivisionError: division by zero \(event 1 of reaction charge, attempt 1 of 1, $time_re\); 1 event waits behind it"
    is "JSON has the event as well" "$(member evidence.event_stream <<<"$out") $(member evidence.event_name <<<"$out") $(member evidence.event_data.people <<<"$out")" \
        "order-1 Placed 0"
    is "and what to do" "$(member next <<<"$out")" "['weir unblock charge-order-1', 'weir skip charge-order-1', 'weir work --lanes default']"
    ok "a person reads it" python3 "$WEIR_SOURCE/tests/e2e/on_terminal.py" 80 weir why charge-order-1
    screen=$out
    not_ok "no line of ours is wider than the terminal" grep -Eq '^[^ ].{80}' <<<"$screen"
    like "the sentence" "$screen" $'^charge-order-1 is blocked: ZeroDivisionError: division by zero \\(event 1 of\nreaction charge, attempt 1 of 1, (now|[0-9].* ago)\\); 1 event waits behind it\n\n'
    like "all that it said, line by line" "$screen" $'\nError:\n    the handler exited with 1 without answering\n    stderr:\n    Traceback .*\n      File .*charge.py", line 4, in <module>\n.*\n    ZeroDivisionError: division by zero\n\n'
    like "the event" "$screen" $'\nEvent 1:\n    stream  order-1\n    name    Placed\n    data    \\{"total":3,"people":0\\}\n'
    like "that nobody works" "$screen" $'\nWorkers: none is running\n'
    like "and at the end, what to type" "$screen" $'\nNext:\n    weir unblock charge-order-1  # .*\n    weir skip charge-order-1     # .*\n    weir work --lanes default    # [a-z ]*$'
    mv weir.yaml elsewhere.yaml
    ok "without weir.yaml" weir why charge-order-1 --text
    like "it says in words to start a worker" "$out" $'\n    weir skip charge-order-1     # .*\n    start a worker for reaction charge again$'
    is "and JSON offers no command that would fail" "$(weir why charge-order-1 --json | member next)" "['weir unblock charge-order-1', 'weir skip charge-order-1']"
    mv elsewhere.yaml weir.yaml
    touch mended
    grep -E '^    weir (unblock|work)' <<<"$screen" | sed '$s/  #/ --until-idle  #/' >next
    ok "it is typed" bash -e next
    why "and helps" charge-order-1 "no-work: charge-order-1 has no work"
    is "nothing is stuck" "$(weir why --text; weir why --json)" "Nothing is stuck."
    like "nothing is left to do" "$(weir why charge-order-1 --text)" $'\nNext: nothing to do$'
    ok "a name that looks like an option" weir append -- --yes Odd '{}'
    status "its target is blocked" 1 weir work --on Odd --to '{stream}' --name odd --run false --retries 0 --from start --until-idle
    is "it comes after the end of options" "$(weir why -- --yes | member next)" "['weir unblock -- --yes', 'weir skip -- --yes']"
    ok "where it works" weir unblock -- --yes
    cd .. || exit 1
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
    why "held back, by whom" c-1 "held-back: c-1 has no work yet: event [0-9]+ is above safe \([0-9]+\), held back by process $backend \(psql\), which began $time_re"
    printf 'ROLLBACK;\n\\q\n' >&"${HOLDER[1]}"
    why "and no longer" c-1 "no-work: .*"
    end_worker
}

mkdir sqlite postgres
cd "$tmp/sqlite" || exit 1
export WEIR_STORE=sqlite:why.db
answers
stuck
killed
exception

cd "$tmp/postgres" || exit 1
database=why
ok "a database" createdb $database
export WEIR_STORE=postgres:///$database
answers
stuck
killed
on_postgres
ok "another database" createdb charge
WEIR_STORE=postgres:///charge
exception

# A name that cannot be copied from where it is shown.
strange=$'x\u202ey \'z\\'
export WEIR_STORE=sqlite:$tmp/strange.db
append order-9 Odd
ok "a target whose name is not shown as it is" weir work --name odd --on Odd --to "$strange" --run true --from start --until-idle
ok "is paused" weir pause "$strange"
run weir why "$strange" --text
command=$(sed -n "s/.*\(weir resume \$'[^']*'\).*/\1/p" <<<"$out")
is "the next command is given in bytes" "$command" "weir resume \$'x\\xe2\\x80\\xaey \\x27z\\x5c'"
ok "and works as it is printed" bash -c "$command"
is "on that target" "$(weir why "$strange" --json | member reason)" no-work

done_testing
