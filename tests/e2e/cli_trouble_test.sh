#!/usr/bin/env bash
# cli_trouble_test.sh - weir work among those who mean it no good: files that are rubbish, handlers that fork,
# flood, hang and stop themselves, too few descriptors, files that may not grow, a database that is taken away,
# and signals at any moment. Whatever happens is explained, costs only its own target, and loses nothing.
# shellcheck disable=SC2016 # handlers expand for themselves
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
mkdir "$tmp/bin" && ln -s "$WEIR" "$tmp/bin/weir"
export PATH=$tmp/bin:$PATH

fresh() { mkdir "$tmp/$1" && cd "$tmp/$1" || exit 1; }
append() { weir append "$@" >/dev/null 2>>append.err || fail "append $*"; }
member() { python3 -c 'import json, sys
for line in sys.stdin:
    print(json.loads(line).get(sys.argv[1]))' "$1"; }
target() { weir targets --match "$1" | member "$2"; }
# In the background: its pid in $pid, its log in work.log.
begin() {
    rm -f work.log
    "$@" 2>work.log &
    pid=$!
    spawned $pid
    wait_for "the worker" grep -q '"msg":"started"' work.log || diag "$(cat work.log)"
}

cat >"$tmp/answer" <<'END'
#!/bin/sh
while read -r line; do echo '{"ok":true,"append":[{"stream":"out","name":"Done"}]}'; done
END
chmod +x "$tmp/answer"

# ---- files -------------------------------------------------------------------------------------

fresh files
printf '\377\376\0\1rubbish' >binary.yaml
printf '\0' >nul.yaml
: >empty.yaml
printf 'reactions: [' >cut.yaml
python3 -c 'print("reactions: " + "[" * 200000)' >deep.yaml
python3 -c 'print("reactions: " + "[" * 40 + "]" * 40)' >nested.yaml
mkdir directory.yaml
ln -s loop.yaml loop.yaml
for file in *.yaml; do
    status "$file is refused, soon" 1 timeout 20 weir work --check --config "$file"
    like "$file: by its name" "$errout" "$file"
done
head -c 5000 /dev/urandom >rubbish.db
status "a store that is none" 1 timeout 20 weir work --on A --to t --run true --until-idle --store sqlite:rubbish.db
like "is called so" "$errout" 'not an SQLite database'

# ---- handlers ----------------------------------------------------------------------------------

# Each in a target of its own. What is left of them, when something is, sleeps for 7771 seconds.
fresh handlers
cat >weir.yaml <<'END'
lanes:
  default: { threads: 10 }
reactions:
  - { name: fork, on: A, to: fork, run: "sleep 7771 & sleep 7771 & exit 0", from: start, retries: 0 }
  - { name: flood, on: A, to: flood, run: "yes flood | head -c 100000000", from: start, retries: 0 }
  - { name: line, on: A, to: line, run: "tr '\\0' x </dev/zero", from: start, retries: 0 }
  - { name: lines, on: A, to: lines, exec: "yes", from: start, retries: 0 }
  - { name: stderr, on: A, to: stderr, run: "yes flood >&2", deadline: 1s, from: start, retries: 0 }
  - { name: hang, on: A, to: hang, run: "trap '' TERM INT HUP; sleep 7771", deadline: 1s, from: start, retries: 0 }
  - { name: stop, on: A, to: stop, exec: "kill -STOP $$; cat", deadline: 1s, from: start, retries: 0 }
  - { name: many, on: A, to: many, run: "for i in 1 2 3 4 5 6 7 8; do sleep 7771 & done; wait", deadline: 1s, from: start, retries: 0 }
  - { name: deaf, on: A, to: deaf, exec: "exec <&-; sleep 7771", deadline: 1s, from: start, retries: 0 }
  - { name: none, on: A, to: none, run: ./none, from: start, retries: 0 }
  - { name: good, on: A, to: good, run: cat >>good, from: start }
END
append a A
status "all of them, until nothing is left to do" 1 timeout 60 weir work --until-idle
is "the good one has done it" "$(wc -l <good) $(target good state)" "1 idle"
is "what is written and is no answer means nothing" "$(target flood state)" idle
while IFS='|' read -r name pattern; do
    is "$name costs one attempt" "$(target "$name" state) $(target "$name" retries) $(target "$name" lost)" "blocked 1 0"
    like "$name is explained" "$(target "$name" error)" "$pattern"
done <<'END'
fork|in the background were killed
line|a line of more than 4194304 bytes
lines|more than one line
stderr|not done by its deadline.*flood
hang|not done by its deadline
stop|not done by its deadline
many|not done by its deadline
deaf|not done by its deadline
none|exited with 127
END
is "no process of theirs is left" "$(pgrep -xa sleep | grep -c 7771)" 0

# ---- too little of everything ------------------------------------------------------------------

fresh descriptors
for i in 1 2 3 4 5 6; do append "a-$i" A; done
begin bash -c 'ulimit -n 20; exec weir work --on A --to "t-{stream}" --run "cat >>seen" --name r --retries 0 --from start'
ok "too few descriptors for a program: that is said" wait_for "not_started" grep -q '"msg":"not_started"' work.log
kill -TERM $pid
ended work.log
is "it ends with 0" $rc 0
is "and nobody was charged" "$(weir targets | member retries | sort -u) $(weir targets | grep -c '"blocked"')" "0 0"
ok "one with enough of them goes on" timeout 60 weir work --on A --to 't-{stream}' --run 'cat >>seen' --name r --until-idle
is "everything was handled" "$(weir targets | member state | sort -u) $(member key <seen | sort -u | wc -l)" "idle 6"

# Nothing may grow much beyond what is there when the worker begins, and there is far more to write than that.
fresh growth
letters=$(head -c 100000 /dev/zero | tr '\0' x)
cat >large <<END
#!/bin/sh
while read -r line; do echo '{"ok":true,"append":[{"stream":"out","name":"Done","data":"$letters"}]}'; done
END
chmod +x large
append a-0 A
ok "one event" timeout 60 weir work --on A --to 't-{stream}' --exec ./large --name r --from start --until-idle
for i in $(seq 20); do append "a-$((i % 6))" A; done
limit=$(($(stat -c %s weir.db weir.db-wal 2>/dev/null | sort -n | tail -n 1) / 1024 + 64)) # KiB
begin bash -c "ulimit -f $limit; exec weir work --on A --to 't-{stream}' --exec ./large --name r --retries 0 --budget 1s"
ok "files that may not grow: that is said" wait_for "store_away" grep -q '"msg":"store_away"' work.log
ok "more than five times" wait_for "some time" bash -c '[ "$(stat -c %Y work.log)" -le "$(($(date +%s) - 3))" ]'
ok "and is not the end" kill -0 $pid
kill -TERM $pid
ended work.log
is "it ends with 0" $rc 0
is "nobody was charged" "$(weir targets | member retries | sort -u) $(weir targets | grep -c '"blocked"')" "0 0"
ok "one that may write goes on" timeout 60 weir work --on A --to 't-{stream}' --exec ./large --name r --until-idle
is "every effect once" "$(weir read out | wc -l)" 21

fresh removed
append a A
begin weir work --on A --to t --run 'cat >>seen' --name r --from start
wait_for "the first" test -s seen
rm weir.db*
ended work.log
is "a database that is taken away ends it, as C41 says" $rc 1
ok "which is said" grep -q '"msg":"store_damaged".*was removed' work.log
not_ok "and makes no new one" test -e weir.db

append a A
ok "with a stderr that is full" bash -c 'timeout 60 weir work --on A --to t --run "cat >>seen" --name r --from start --until-idle 2>/dev/full'
append a A
ok "or closed, and stdin and stdout as well" bash -c 'timeout 60 weir work --on A --to t --run "cat >>seen" --name r --until-idle <&- >&- 2>&-'
is "work is done all the same" "$(wc -l <seen)" 3

# ---- signals -----------------------------------------------------------------------------------

fresh storm
cat >weir.yaml <<'END'
reactions:
  - { name: r, on: A, to: "t-{stream}", exec: ../answer, from: start }
END
begin weir work
for i in $(seq 200); do
    kill -HUP $pid
    [ $((i % 5)) -ne 0 ] || append "a-$((i % 7))" A
done
ok "a storm of SIGHUP: every event is handled" wait_for "40 effects" bash -c '[ "$(weir read out | wc -l)" -ge 40 ]'
kill -HUP $pid
kill -TERM $pid
kill -TERM $pid
ended work.log
is "SIGTERM twice behind it ends with 0" $rc 0
is "once each" "$(weir read out | wc -l)" 40
is "nothing is left" "$(weir targets | member state | sort -u)" idle
for delay in 0 0.005 0.01 0.02 0.04 0.08; do
    weir work 2>>work.log &
    pid=$!
    spawned $pid
    sleep $delay
    kill -TERM $pid
    ended work.log
    # Before it has begun to listen the signal ends it as it ends everybody.
    like "SIGTERM after $delay s" $rc '^(0|143)$'
done
ok "and nothing is broken" timeout 60 weir work --until-idle

done_testing
