#!/usr/bin/env bash
# cli_once_test.sh - weir once on SQLite or, with the argument postgres, on the server of with-server: a key
# is run once, whoever asks and however often; its output is the first one's; what failed or died may be
# tried again, and nobody runs beside a run that is not over.
# shellcheck disable=SC2016 # what sh -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE WEIR_FENCE
weir() { "$WEIR" "$@"; }
works='echo $$ >p.tmp; mv p.tmp p; while [ ! -e go ]; do sleep 0.01; done'
if [ "${1-}" = postgres ]; then
    export WEIR_STORE=$WEIR_TEST_POSTGRES PATH=$WEIR_TEST_PG_BIN:$PATH
    status "without a store nothing runs" 1 weir once a -- touch ran
    like "and it says what to do" "$errout" '"code":"not-found".*weir init'
    ok "weir init" weir init
else
    export WEIR_STORE=sqlite:weir.db
    ok "the first use makes the file" weir once made -- true
    like "and says so" "$errout" 'created store weir.db'
fi
is "nothing ran before" "$(ls ran 2>/dev/null)" ""

# ---- once, ever ---------------------------------------------------------------------------------

ok "the first run" weir once a -- sh -c 'echo ran >>count; echo "out $WEIR_FENCE"; echo err >&2'
like "prints what it prints, with a fence" "$out" '^out [0-9]+$'
is "stderr is its own" "$errout" err
first=$out
ok "the second" weir once a -- sh -c 'echo ran >>count; echo other'
is "C40_a_key_is_run_once" "$out $(wc -l <count)" "$first 1"
head -c 300000 /dev/urandom >bytes
weir once bin -- cat bytes >out1
weir once bin -- false >out2
ok "C40_output_is_replayed_to_the_byte" bash -c 'cmp bytes out1 && cmp bytes out2'
is "keys are no names of locks" "$(weir lock a -- echo ran)" ran
key=$'odd */ \'"ä %'
is "odd keys" "$(weir once "$key" -- echo one; weir once "$key" -- echo two)" $'one\none'
ok "no output is none" weir once quiet -- true
is "the second time too" "$(weir once quiet -- echo loud)" ""
weir once long -- head -c 1500000 /dev/zero 2>note | wc -c >length
is "more than is kept is passed on" "$(cat length)" 1500000
like "and said" "$(cat note)" 'the first 1048576 bytes of its output were kept'
is "what was kept is replayed" "$(weir once long -- true | wc -c)" 1048576
# ---- nobody reads ---------------------------------------------------------------------------------

timeout 20 "$WEIR" once unread -- sh -c 'while :; do echo y; done' 2>unread.err | head -n 1 >unread.out
is "a program that nobody reads gets SIGPIPE" "${PIPESTATUS[0]} $(cat unread.out unread.err)" "141 y"
is "which is a failure like others" "$(weir once unread -- echo again)" again
timeout 20 "$WEIR" once deaf -- sh -c 'trap "" PIPE; while echo y; do :; done 2>/dev/null; echo ran >>deaf' 2>deaf.err | head -n 1 >deaf.out
is "one that ends well all the same has ended well" "${PIPESTATUS[0]} $(cat deaf.out deaf)" $'0 y\nran'
like "what was kept of its output is said" "$(cat deaf.err)" 'the first [0-9]+ bytes of its output were kept'
is "and it is not run again" "$(weir once deaf -- echo again | sort -u)" y

# ---- again, when it failed ------------------------------------------------------------------------

status "a status is passed on" 3 weir once f -- sh -c 'echo no; exit 3'
status "it may be tried again" 0 weir once f -- echo yes
is "C40_what_failed_may_be_tried_again" "$(weir once f -- echo third)" yes
status "a program that is not there" 127 weir once g -- ./nowhere
status "one that a signal ends" 143 weir once g -- sh -c 'kill $$'
is "neither counts" "$(weir once g -- echo now)" now
status "--forget asks" 2 weir once --forget g
status "where nobody can be asked it needs --yes" 0 weir once --forget g --yes
is "and it can be run again" "$(weir once g -- echo anew)" anew
status "what is not there is not forgotten" 3 weir once --forget nothing --yes
for line in once 'once k' 'once k --' 'once -- true' 'once k l -- true' 'once k --yes -- true' 'once --forget k --yes -- true'; do
    # shellcheck disable=SC2086
    status "weir $line is wrong usage" 2 weir $line
done
status "a key needs a command" 2 weir once a --
like "and says where it goes" "$errout" 'weir once KEY -- ./job'
status "an empty key" 2 weir once '' -- touch ran
like "is told as such" "$errout" 'has 0 bytes, allowed 1 to 512'
status "one that is too long" 2 weir once "$(printf '%0513d' 0)" -- touch ran

# ---- at the same time -----------------------------------------------------------------------------

pids=()
for i in $(seq 20); do
    "$WEIR" once many -- sh -c "echo ran >>many; $works; echo out" >"many.$i" 2>"many.err.$i" &
    pids+=($!)
done
wait_for "the program" test -s p
status "--nowait is told who runs it" 75 weir once many --nowait -- touch ran
like "with whom and since when" "$errout" '"code":"in-flight".*being run by [^ ]+@[^ ]+ pid [0-9]+ since 20'
status "it cannot be forgotten" 75 weir once --forget many --yes
touch go
bad=0
for pid in "${pids[@]}"; do wait "$pid" || bad=$((bad + 1)); done
is "C40_of_twenty_at_once_one_runs" "$(cat many) $(cat many.[0-9]* | sort | uniq -c | tr -d ' ') $bad" "ran 20out 0"
rm -f p go

# ---- died in the middle -----------------------------------------------------------------------------

"$WEIR" once dead --check 300ms --grace 100ms -- sh -c "trap '' TERM; $works" 2>/dev/null &
holder=$!
wait_for "the program" test -s p
program=$(cat p)
kill -9 $holder
wait $holder 2>/dev/null
ok "a crashed run may be tried again" weir once dead -- sh -c "kill -0 $program 2>/dev/null && touch both; echo second"
is "C40_nobody_runs_beside_a_run_that_died" "$out $(ls both 2>/dev/null)" "second "
rm -f p

# With all of its group, while a child of the program is in the group and one in a session of its own.
setsid "$WEIR" once group --check 300ms --grace 100ms -- sh -c "sh -c 'echo \$\$ >c1; exec sleep 600' & setsid sh -c 'echo \$\$ >c2; exec sleep 600' &
    while [ ! -s c1 ] || [ ! -s c2 ]; do sleep 0.01; done; $works" 2>/dev/null &
holder=$!
spawned $holder
wait_for "the program" test -s p
alone=
for i in $(<p) $(<c1) $(<c2); do alone+="kill -0 $i 2>/dev/null && touch both; "; done
kill -9 -- -"$(ps -o pgid= -p $holder | tr -d ' ')"
wait $holder 2>/dev/null
ok "a run whose group was killed may be tried again" weir once group -- sh -c "$alone echo second"
is "C40_nobody_runs_beside_a_run_whose_group_was_killed" "$out $(ls both 2>/dev/null)" "second "
rm -f p c1 c2

"$WEIR" once stopped --check 300ms --grace 100ms -- sh -c "trap '' TERM; $works" 2>lost &
holder=$!
wait_for "the program" test -s p
program=$(cat p)
kill -STOP $holder
is "C40_a_stopped_run_has_no_program_when_its_lease_ends" \
    "$(weir once stopped -- sh -c "kill -0 $program 2>/dev/null && echo both; echo second")" second
kill -CONT $holder
wait $holder
is "who was stopped hears of it" "$? $(grep -c '"code":"lost"' lost)" "75 1"
is "what is remembered is the other's" "$(weir once stopped -- true)" second
rm -f p

# It lives for longer than its lease.
"$WEIR" once slow --check 300ms --grace 100ms -- sh -c "$works; echo slow" >slow.out &
holder=$!
wait_for "the program" test -s p
over=$(($(date +%s%N) + 5500000000))
is_over() { [ "$(date +%s%N)" -ge "$over" ]; }
wait_for "the end of a lease" is_over
status "a long run is renewed" 75 weir once slow --nowait -- touch both
touch go
wait $holder
is "and ends as it should" "$? $(cat slow.out) $(ls both 2>/dev/null)" "0 slow "
rm -f p go

# ---- the list ---------------------------------------------------------------------------------------

ok "an empty list" weir once --list 'list-*'
is "has no rows" "$out" ""
like "and says so" "$errout" 'no key matches \\"list-\*\\"'
"$WEIR" once list-killed --check 200ms --grace 0ms -- sh -c "$works" 2>/dev/null &
killed=$!
wait_for "the program" test -s p
kill -9 $killed
wait $killed 2>/dev/null
rm -f p
ok "one that is done" weir once list-done -- sh -c 'sleep 0.3; echo output'
status "one that fails" 3 weir once list-failed -- sh -c 'exit 3'
has_died() { "$WEIR" once --list list-killed | grep -q '"state":"died"'; }
wait_for "the end of the killed run's lease" has_died
"$WEIR" once list-running -- sh -c "$works" 2>/dev/null &
running=$!
wait_for "the program" test -s p
ok "the list" weir once --list 'list-*'
me="$(id -un)@$(hostname)"
is "the running one is first, then the newest; each with how it ended" \
    "$(sed -E 's/"(started|ended)":"20[^"]*Z"/"\1":TIME/g; s/"took_ms":[0-9]+/"took_ms":N/; s/ pid [0-9]+/ pid N/; s/"fence":[0-9]+/"fence":N/' <<<"$out")" \
    '{"key":"list-running","state":"running","exit_status":null,"host":"'"$(hostname)"'","by":"'"$me"' pid N","started":TIME,"ended":null,"took_ms":N,"fence":N}
{"key":"list-failed","state":"failed","exit_status":3,"host":"'"$(hostname)"'","by":"'"$me"' pid N","started":TIME,"ended":TIME,"took_ms":N,"fence":N}
{"key":"list-done","state":"done","exit_status":0,"host":"'"$(hostname)"'","by":"'"$me"' pid N","started":TIME,"ended":TIME,"took_ms":N,"fence":N}
{"key":"list-killed","state":"died","exit_status":null,"host":"'"$(hostname)"'","by":"'"$me"' pid N","started":TIME,"ended":null,"took_ms":null,"fence":N}'
took=$(sed -nE 's/.*"list-done".*"took_ms":([0-9]+).*/\1/p' <<<"$out")
ok "it says how long they took" test "$took" -ge 300
ok "as text" weir once --list list-failed --text
like "it is a table" "$out" $'^KEY +STATE +EXIT +HOST +STARTED +TOOK\nlist-failed +failed +3 '
is "--limit" "$(weir once --list 'list-*' --limit 2 | grep -c .)" 2
is "a regular expression" "$(weir once --list '/-(done|failed)$/' | grep -c .)" 2
touch go
wait $running
rm -f p go
for line in 'once --list a b' 'once --list --yes' 'once --list --forget a' 'once --list a -- true' 'once --list /(/' 'once a --limit 1 -- true'; do
    # shellcheck disable=SC2086
    status "weir $line is wrong usage" 2 weir $line
done

page=$WEIR_BUILD/man/weir-once.1
if [ -e "$page" ]; then
    like "the manual's line for cron has a backslash before %" "$(grep '^0 3 ' "$page")" 'date \+\\+%F'
fi

# ---- a clock that is days ahead ----------------------------------------------------------------------

if [ "${1-}" != postgres ]; then
    ahead() { LD_PRELOAD=$CLOCK_SKEW CLOCK_SKEW_SECONDS=259200 "$WEIR" "$@"; }
    "$WEIR" once live -- sh -c "$works; echo live" >live.out &
    holder=$!
    wait_for "the program" test -s p
    status "C04_a_process_whose_clock_is_ahead_runs_beside_nobody" 75 ahead once live --nowait -- touch both
    like "since when is said" "$errout" '"code":"in-flight".*since 20'
    ok "one whose clock is ahead appends" ahead append ahead Came
    status "that ends no run either" 75 weir once live --nowait -- touch both
    status "and a clock behind does not" 75 env LD_PRELOAD="$CLOCK_SKEW" CLOCK_SKEW_SECONDS=-259200 "$WEIR" once live --nowait -- touch both
    touch go
    wait $holder
    is "the run ends as it should" "$? $(cat live.out) $(ls both 2>/dev/null)" "0 live "
    rm -f p go
    "$WEIR" once killed --check 300ms --grace 100ms -- sh -c "$works" 2>/dev/null &
    holder=$!
    wait_for "the program" test -s p
    kill -9 $holder
    wait $holder 2>/dev/null
    wait_for "the end of its lease" weir once killed --nowait -- true
    ok "C04_a_killed_run_is_over_for_those_who_come_and_go" weir once killed -- true
    rm -f p
fi

# ---- a store in trouble -----------------------------------------------------------------------------

if [ "${1-}" = postgres ]; then
    sql() { psql -X -qAt -v ON_ERROR_STOP=1 "$WEIR_TEST_POSTGRES" -c "$1"; }
    "$WEIR" once cut -- sh -c "$works; echo cut" >cut.out &
    holder=$!
    wait_for "the program" test -s p
    sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'weir%'" >/dev/null
    touch go
    wait $holder
    is "a lost connection loses nothing" "$? $(cat cut.out) $(weir once cut -- true)" "0 cut cut"
else
    # The disk is full when it is to be remembered: what was done is, what it said is not.
    export WEIR_STORE=sqlite:full.db
    ok "a store of its own" weir init
    (ulimit -f 900 && exec "$WEIR" once full -- sh -c 'head -c 1000000 /dev/zero; echo ran >&2') 2>full.err | cat >full.out
    is "what it says is passed on" "$(wc -c <full.out) $(grep -cx ran full.err)" "1000000 1"
    like "and says what it could not keep" "$(cat full.err)" 'its output could not be kept'
    is "C40_a_full_store_still_remembers_that_it_ran" "$(weir once full -- echo again)" ""
fi
done_testing
