#!/usr/bin/env bash
# cli_work_test.sh - weir work: reactions from flags and from weir.yaml, its log, and its signals (SIGTERM, a
# second one, SIGHUP) with handlers that run meanwhile. Handlers are held by files, never by time: one that
# shall run on waits for a file that the test makes.
#
#   cli_work_test.sh [postgres]    on SQLite files, or in schemas of $WEIR_TEST_POSTGRES
# shellcheck disable=SC2016 # handlers expand for themselves
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
cd "$tmp" || exit 1
mkdir bin && ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$PATH

# In a directory of its own, with a store of its own.
kind=${1:-sqlite}
fresh() {
    mkdir "$tmp/$1" && cd "$tmp/$1" || exit 1
    if [ "$kind" = postgres ]; then
        local separator='?'
        [[ $WEIR_TEST_POSTGRES == *\?* ]] && separator='&'
        export WEIR_STORE="$WEIR_TEST_POSTGRES${separator}schema=work_$1"
        ok "weir init for $1" weir init
    fi
}
append() { weir append "$@" >/dev/null 2>>append.err || fail "append $*"; }
member() { python3 -c 'import json, sys
for line in sys.stdin:
    value = json.loads(line)
    for name in sys.argv[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    print(value)' "$1"; }
# work ARGUMENT...: in the background; its pid in $pid, its log in work.log. Waits until it has begun.
work() {
    rm -f work.log
    weir work "$@" 2>work.log &
    pid=$!
    spawned $pid
    wait_for "the worker" grep -q '"msg":"started"' work.log || diag "$(cat work.log)"
}
# Sends SIGTERM and waits for the end.
stop() {
    kill -TERM $pid
    ended work.log
}
target() { weir targets --match "$1" | member "$2"; }

# ---- one reaction from flags -------------------------------------------------------------------

fresh flags
cat >note <<'END'
#!/bin/sh
read -r line
echo "$line" >>seen.$(echo "$line" | sed 's/.*"stream":"\([^"]*\)".*/\1/')
END
chmod +x note
for i in 1 2 3 4 5; do append order-1 OrderPlaced "{\"n\":$i}"; done
append order-2 OrderPlaced '{"n":1}'
append order-2 OrderPaid
status "events that are there already: where to begin must be said" 1 \
    weir work --on OrderPlaced --to 'mail-{stream}' --run ./note --until-idle
like "and how many they are" "$errout" 'holds 6 events for it: write from'
ok "from the start until there is nothing left" \
    timeout 60 weir work --on OrderPlaced --to 'mail-{stream}' --run ./note --until-idle --from start
is "all events of a target, in order, once" "$(member event.data.n <seen.order-1 | tr '\n' ' ')" "1 2 3 4 5 "
is "and of the other, only those with the name" "$(member event.name <seen.order-2)" "OrderPlaced"
is "a handler is told the target" "$(head -n 1 seen.order-1 | member target)" "mail-order-1"
is "and a key for the event; the reaction is called after its command" "$(head -n 1 seen.order-1 | member key)" "./note:1"
ok "again: nothing to do" timeout 60 weir work --on OrderPlaced --to 'mail-{stream}' --run ./note --until-idle
is "and nothing was done" "$(wc -l <seen.order-1)" 5
append order-3 OrderPlaced
ok "what came since, without saying where to begin" \
    timeout 60 weir work --on OrderPlaced --to 'mail-{stream}' --run ./note --until-idle
is "is handled" "$(wc -l <seen.order-3)" 1

cat >answer <<'END'
#!/bin/sh
while read -r line; do
    echo '{"ok":true,"append":[{"stream":"copies","name":"Copied","data":{"by":"answer"}}]}'
done
END
chmod +x answer
ok "a program that stays, and appends by its answers" timeout 60 \
    weir work --on '*' --source 'order-*' --to copies --exec ./answer --name copy --from start --until-idle --threads 2 --priority 5
is "once per event" "$(weir read copies | member name | sort | uniq -c | tr -s ' ')" " 8 Copied"
is "with what caused it" "$(weir read copies --limit 1 | member meta.causation)" 1
is "--priority" "$(target copies priority)" 5
ok "a store that is not there is made" timeout 60 \
    weir work --on A --to t --run true --until-idle --store sqlite:new.db
like "and that is said" "$errout" 'created store new\.db'

while IFS='|' read -r what arguments pattern; do
    eval "set -- $arguments"
    status "misuse: $what" 2 weir work "$@"
    like "misuse: $what: is explained" "$errout" "$pattern"
done <<'END'
no --on|--to t --run true|--to needs --on NAME
no --to|--on A --run true|--on needs --to TARGET
no command|--on A --to t|one of --run CMD and --exec CMD
two commands|--on A --to t --run a --exec b|one of --run CMD and --exec CMD
a file and a reaction|--config x.yaml --on A|--config and --on exclude each other
neither|--until-idle|there is no weir.yaml here
a place|--on A --to t --run a --from yesterday|--from takes start, now or a position
a budget|--on A --to t --run a --budget 5|--budget takes a duration
a form|--on A --to t --run a --log xml|--log takes text or json
threads|--on A --to t --run a --threads 0|--threads takes a number from 1 to 1000
a lane|--on A --to t --run a --lanes fast|no reaction is in lane .*fast
END
status "a target that cannot be" 1 weir work --on A --to '{strea}' --run a --check
like "is explained as in a file" "$errout" 'unknown placeholder'
status "too many retries" 1 weir work --on A --to t --run a --retries 1001 --check
status "a file that is not there" 1 weir work --config none.yaml
like "is named" "$errout" 'could not open \\"none.yaml\\"'

# ---- weir.yaml ---------------------------------------------------------------------------------

fresh file
cat >weir.yaml <<'END'
store: sqlite:orders.db
lanes:
  fast: { threads: 2 }
  slow: { lease: 1s }
reactions:
  - { name: count, on: [Placed, Paid], to: "count-{category}", lane: fast, run: cat >>counted, from: start }
  - { name: park, on: Bad, to: park, lane: slow, run: "exit 65", on_poison: park, from: start }
END
ok "--check of a file that is well" weir work --check
is "says what is in it" "$out" '{"reactions":2,"lanes":2}'
ok "--check makes no store" test ! -e orders.db
append order-1 Placed
append order-1 Paid
append order-1 Bad
ok "only one lane" timeout 60 weir work --lanes fast --until-idle
is "its reaction was run" "$(member event.name <counted | tr '\n' ' ')" "Placed Paid "
is "the other was not" "$(weir parked ls | wc -l)" 0
status "both lanes" 1 timeout 60 weir work --lanes slow,fast --until-idle
is "a poison event is parked" "$(weir parked ls | member reaction)" park
is "and nothing was handled twice" "$(wc -l <counted)" 2
is "the store of the file is used, unless WEIR_STORE says otherwise" "$(find . -name '*.db')" \
    "$([ "$kind" = sqlite ] && echo ./orders.db)"

cat >bad.yaml <<'END'
reactions:
  - name: a
    on: [A]
    to: t
    run: ./a
    retires: 3
  - { name: a, on: B, to: t, exec: ./b, lane: other }
lane: { x: }
END
status "--check of one that is not" 1 weir work --check --config bad.yaml
is "tells every problem at once, each with its place" "$(grep -o 'bad.yaml:[0-9]*:[0-9]*' <<<"$errout" | tr '\n' ' ')" \
    "bad.yaml:6:5 bad.yaml:8:1 bad.yaml:7:13 bad.yaml:7:47 "
like "with what was probably meant" "$errout" 'unknown key \\"retires\\", did you mean \\"retries\\"'
status "as text" 1 weir work --check --config bad.yaml --text
is "a line each" "$(grep -c '^weir: work: bad.yaml:' <<<"$errout")" 4
status "such a file is not run" 1 timeout 20 weir work --config bad.yaml
echo 'store: sqlite:orders.db' >none.yaml
status "a file without a reaction" 1 weir work --config none.yaml
like "is said to be one" "$errout" 'none.yaml: there is no reaction in it'

# Every key that the program knows, by its own word, is in the man page and in its sample.
printf 'zzzzzzzz: 1\nlanes: { a: { zzzzzzzz: 1 } }\nreactions: [ { zzzzzzzz: 1, backoff: { zzzzzzzz: 1 } } ]\n' >keys.yaml
status "keys of weir.yaml" 1 weir work --check --config keys.yaml --text
keys=$(grep -o 'unknown key "zzzzzzzz", expected .*' <<<"$errout" | sed 's/.*expected//' | grep -o '"[a-z_]*"' | tr -d '"' | sort -u)
ok "there are many (they are $(wc -w <<<"$keys"))" test "$(wc -w <<<"$keys")" -ge 20
for key in $keys; do
    ok "weir.yaml(5) explains $key" grep -q "\*$key\*" "$WEIR_SOURCE/man/weir.yaml.5.scd"
done
sed -n '/^lanes:/,/^```/p' "$WEIR_SOURCE/man/weir.yaml.5.scd" | grep -v '```' >sample.yaml
ok "the sample of weir.yaml(5) is well" weir work --check --config sample.yaml

sed -n '/^```yaml/,/^```/p' "$WEIR_SOURCE/docs/events.md" | grep -v '```' >events.yaml
ok "and so is that of docs/events.md" weir work --check --config events.yaml
is "which has two reactions" "$(member reactions <<<"$out")" 2

# The examples of weir work --help.
printf '#!/bin/sh\ncat >/dev/null\n' >send-mail
chmod +x send-mail
sed -i 's/\<slow\>/mail/' weir.yaml
count=0
while IFS= read -r line; do
    [[ $line == *--lanes* ]] && line+=" --until-idle"
    ok "weir work --help: $line" timeout 60 bash -c "$line"
    count=$((count + 1))
done < <(weir work --help | sed -n '/^Examples/,$s/^  //p')
is "there are three" $count 3

# ---- the log -----------------------------------------------------------------------------------

fresh log
append order-1 Placed '{"secret":"s3cr3t"}'
status "a log as text" 1 timeout 60 weir work --on Placed --to t --run 'exit 65' --name r --from start --until-idle --log text --verbose
like "key=value, with the time" "$errout" 'time=20[0-9-]+T[0-9:.]+Z level=info msg=started reactions=1'
like "what was leased, when asked for" "$errout" 'level=debug msg=leased target=t fence=1'
like "what was blocked" "$errout" 'level=error msg=blocked target=t .*reaction=r'
like "that it ended" "$errout" 'level=info msg=stopped'
like "and what it left" "$errout" 'level=error msg=not_all_handled blocked=1 parked=0 next="weir why"'
ok "a run that finds it blocked has not left it so" timeout 60 weir work --on Placed --to t --run 'exit 65' --name r --until-idle
weir unblock t >/dev/null
status "as JSON" 1 timeout 60 weir work --on Placed --to t --run 'exit 65' --name r --until-idle --log json
is "an object per line" "$(member level <<<"$errout" | sort | uniq -c | tr -s ' \n' ' ')" " 2 error 2 info "
is "each says what happened" "$(member msg <<<"$errout" | tr '\n' ' ')" "started blocked stopped not_all_handled "
ok "no data of events in it" bash -c '! grep s3cr3t <<<"$1"' - "$errout"

# ---- SIGTERM -----------------------------------------------------------------------------------

# Says that it runs, and runs until the test lets it go on.
hold() {
    cat >hold <<'END'
#!/bin/sh
cat >>begun
until [ -e go ]; do sleep 0.02; done
echo done >>ended
END
    chmod +x hold
}
fresh term
hold
append a A
append a A
append b A
work --on A --to 't-{stream}' --run ./hold --name r --from start --threads 1
wait_for "a handler that runs" test -s begun
kill -TERM $pid
ok "SIGTERM: it takes nothing more" wait_for "draining" grep -q '"msg":"draining"' work.log
ok "it waits for the handler" kill -0 $pid
touch go
ended work.log
is "ends with 0" $rc 0
is "what ran has ended, and nothing else was begun" "$(wc -l <begun) $(wc -l <ended)" "1 1"
like "is told" "$(member msg <work.log | tr '\n' ' ')" 'started draining stopped'
is "no lease is left" "$(weir targets | member state | sort -u)" ready
ok "the rest is done by the next one" timeout 60 weir work --on A --to 't-{stream}' --run ./hold --name r --until-idle
is "all of it, once" "$(member event.id <begun | sort | tr '\n' ' ')" "1 2 3 "

fresh budget
hold
append a A
work --on A --to t --run 'echo $$ >pid; exec ./hold' --name r --from start --budget 100ms
wait_for "a handler that runs" test -s begun
stop
is "SIGTERM: at the end of the budget it ends with 0" $rc 0
like "and says why" "$(cat work.log)" '"msg":"interrupting","reason":"budget"'
not_ok "the handler's program is gone" kill -0 "$(cat pid)"
is "nothing was charged" "$(target t retries) $(target t lost) $(target t state)" "0 0 ready"

rm -f begun
work --on A --to t --run 'echo $$ >pid; exec ./hold' --name r --budget 1h
wait_for "a handler that runs" test -s begun
kill -INT $pid
ok "SIGINT with a long budget: it waits" wait_for "draining" grep -q '"msg":"draining","signal":"INT"' work.log
stop
is "a second signal ends it at once, with 0" $rc 0
not_ok "and the handler's program" kill -0 "$(cat pid)"
is "nothing was charged for that either" "$(target t retries) $(target t state)" "0 ready"

# ---- SIGHUP ------------------------------------------------------------------------------------

fresh hup
hold
cat >weir.yaml <<'END'
reactions:
  - { name: one, on: A, to: "one-{stream}", run: ./hold, from: start }
  - { name: two, on: B, to: "two-{stream}", run: cat >>two, from: start }
END
append a A
work
wait_for "a handler that runs" test -s begun
cp weir.yaml good.yaml
sed 's/run: cat/rnu: cat/' good.yaml >weir.yaml
kill -HUP $pid
ok "SIGHUP with a file that is wrong: every problem is logged" \
    wait_for "refused" grep -q '"msg":"reload_refused","error":"weir.yaml:3:45: unknown key .*rnu' work.log
append b B
ok "and nothing changes" wait_for "two" test -s two
sed 's/name: two, on: B/name: three, on: C/; s/two-/three-/; s/>>two/>>three/; s/, from: start }$/ }/' good.yaml >weir.yaml
kill -HUP $pid
ok "with one that is well: it is taken" wait_for "reloaded" grep -q '"msg":"reloaded","reactions":2' work.log
append c C
ok "what is new in it runs" wait_for "three" test -s three
is "what ran before was not interrupted" "$(wc -l <begun) $(cat ended 2>/dev/null)" "1 "
routed=$(weir reactions ls | grep '"two"' | member routed)
append b B
append c C
ok "what is still in it goes on" wait_for "three again" bash -c '[ "$(wc -l <three)" -eq 2 ]'
is "what is no longer in it is not routed" "$(weir reactions ls | grep '"two"' | member routed)" "$routed"
is "nor run" "$(wc -l <two)" 1
is "its targets stay" "$(target two-b state)" idle
run weir doctor # its status is about the server, too
like "names it, and them" "$out" '"level":"note","rule":"unknown-reaction","message":"no running worker handles reaction \\"two\\"; 1 target is left: two-b"'
is "and no other reaction" "$(grep -c unknown-reaction <<<"$out")" 1
kill -HUP $pid
touch go
ok "the handler that ran all the time ends" wait_for "its end" test -s ended
ok "a signal that came meanwhile counts afterwards" wait_for "reloaded again" bash -c '[ "$(grep -c reloaded work.log)" -eq 2 ]'
stop
is "SIGTERM after that ends with 0" $rc 0
is "that event was handled once, by the engine that had begun it" "$(wc -l <begun) $(wc -l <ended) $(target one-a state) $(target one-a fence)" "1 1 idle 1"

append d A
rm go
cp good.yaml weir.yaml
work
wait_for "a handler that runs" bash -c '[ "$(wc -l <begun)" -eq 2 ]'
kill -HUP $pid
wait_for "reloaded" grep -q '"msg":"reloaded"' work.log
kill -TERM $pid
ok "SIGTERM while an engine still ends: both are drained" wait_for "draining" grep -q '"msg":"draining"' work.log
touch go
ended work.log
is "with 0" $rc 0
is "what ran in the first one has ended" "$(wc -l <ended) $(target one-d state)" "2 idle"
ok "the event for the reaction that was away was not lost" timeout 60 weir work --until-idle
is "it was handled" "$(wc -l <two)" 2

# ---- definitions -------------------------------------------------------------------------------

fresh redeclare
append a A
ok "one definition" timeout 60 weir work --on A --to t --run 'cat >>first' --name r --from start --until-idle
ok "another one" timeout 60 weir work --on A --on B --to t --run 'cat >>second' --name r --until-idle
append a A
ok "the first again" timeout 60 weir work --on A --to t --run 'cat >>first' --name r --until-idle
is "does not count" "$(wc -l <first)" 1
like "and that is said" "$errout" '"level":"warning","msg":"[a-z_]*".*"reaction":"r"'
ok "--redeclare" timeout 60 weir work --on A --to t --run 'cat >>first' --name r --until-idle --redeclare
is "does" "$(wc -l <first)" 2

# ---- work of reactions that this worker does not have ------------------------------------------

# --until-idle waits for the worker that has them, and says for what.
fresh others
hold
append a A
append a A
append b B
work --on A --to 'a-{stream}' --run ./hold --name first --from start --threads 1 --budget 0s
wait_for "a handler that runs" test -s begun
timeout 120 "$WEIR" work --on B --to 'b-{stream}' --run true --name second --from start --until-idle 2>idle.log &
idle=$!
spawned $idle
wait_for "what it waits for" grep -q '"msg":"waiting"' idle.log
like "is told" "$(<idle.log)" '"level":"info","msg":"waiting","targets":1,"reactions":"first","without_worker":0,"next":"weir why"'
touch go
wait "$idle"
is "it ends when the other worker has done it" $? 0
is "that was told once" "$(grep -c '"msg":"waiting"' idle.log)" 1
stop

# When no worker has them, it does not wait for ever.
rm go begun
append a A
work --on A --to 'a-{stream}' --run ./hold --name first --threads 1 --budget 0s
wait_for "a handler that runs" test -s begun
stop
is "a target is ready, and no worker has its reaction" "$(target a-a state)" ready
append b B
status "a worker of another reaction comes to an end" 1 timeout 120 weir work --on B --to 'b-{stream}' --run true --name second --until-idle
is "it has done what it has a reaction for" "$(target b-b state)" idle
like "what is left is told" "$errout" '"level":"warning","msg":"waiting","targets":1,"reactions":"first","without_worker":1,"next":"weir why"'
is "once" "$(grep -c '"msg":"waiting"' <<<"$errout")" 1
like "and at the end" "$errout" '"msg":"not_all_handled","blocked":0,"parked":0,"without_worker":1,"next":"weir why"'
ok "why says what is missing" weir why --text
like "a worker, and for which reaction" "$out" '1 target is ready in lane "default", and no worker is running'

done_testing
