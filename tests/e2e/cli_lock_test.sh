#!/usr/bin/env bash
# cli_lock_test.sh - weir lock and weir locks on SQLite, with and without a database, with and without a
# store: one holder, whoever it is and however it ends; and what a program that runs under a lock gets:
# its arguments, files, signals, terminal, exit status. tests/postgres/lock_test.c has PostgreSQL.
# shellcheck disable=SC2016 # what sh -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE WEIR_FENCE
weir() { "$WEIR" "$@"; }
works='echo $$ >p.tmp; mv p.tmp p; while [ ! -e go ]; do sleep 0.01; done'
gone() { ! kill -0 "$1" 2>/dev/null; }
fresh() { rm -rf p go ran both term weir.db*; }

# ---- what the program gets ----------------------------------------------------------------------

status "the program's own status" 7 weir lock a -- sh -c 'exit 7'
status "a program that is not there" 127 weir lock a -- ./nowhere
like "is named" "$errout" 'could not run \\"./nowhere\\": No such file'
status "nor in PATH" 127 weir lock a -- no-such-program
status "one that may not be executed" 126 weir lock a -- /etc/passwd
status "one that a signal ends" 143 weir lock a -- sh -c 'kill $$'
is "arguments as they are" "$(weir lock a -- printf '<%s>' --json '' 'a b' -- '*')" '<--json><><a b><--><*>'
is "stdin" "$(echo text | weir lock a -- cat)" text
printf 'echo script $1\n' >plain && chmod +x plain
is "a file without #! is a script" "$(weir lock a -- ./plain x)" 'script x'
status "SIGPIPE is as it should be" 141 bash -c '"$WEIR" lock a -- yes | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}'
is "no fence without a store" "$(WEIR_FENCE=9 weir lock a -- sh -c 'echo .$WEIR_FENCE.')" ..
is "nothing was made" "$(ls)" plain
for line in 'lock' 'lock a' 'lock a --' 'lock -- true' 'lock a b -- true' 'lock a true' \
    'lock a --check 10ms -- true' 'lock a --held-exit 256 -- true' 'lock a --wait soon -- true'; do
    # shellcheck disable=SC2086
    status "weir $line is wrong usage" 2 weir $line
done
status "a name that is none" 2 weir lock $'a\nb' -- true
status "an empty one" 2 weir lock '' -- true
status "one that is too long" 2 weir lock "$(printf '%0513d' 0)" -- true
like "and says so" "$errout" 'has 513 bytes, allowed 1 to 512'

"$WEIR" lock sig -- sh -c 'trap "touch term; exit 9" TERM; echo $$ >p; while :; do sleep 0.01; done' &
holder=$!
spawned $holder
wait_for "the program" test -s p
kill -TERM $holder
wait $holder
is "a signal is passed on, and the status is the program's" "$? $(ls term)" "9 term"
fresh
is "what it leaves behind is ended" "$(weir lock a --grace 1s -- sh -c 'sleep 60 >/dev/null 2>&1 & echo $! >p' 2>&1; gone "$(cat p)" && echo gone)" \
    '{"note":"sh left processes behind, which were ended"}
gone'
is "who lingers for a moment is waited for" "$(weir lock a -- bash -c 'echo text | tee >(cat >late) >/dev/null' 2>&1; cat late)" text
is "who left its group and its session is ended as well" \
    "$(weir lock a --grace 1s -- sh -c 'setsid sh -c "echo \$\$ >p; exec sleep 60" >/dev/null 2>&1 & while [ ! -s p ]; do sleep 0.01; done' 2>&1; gone "$(cat p)" && echo gone)" \
    '{"note":"sh left processes behind, which were ended"}
gone'
is "who ignores SIGTERM is ended all the same" \
    "$(weir lock a --grace 100ms -- sh -c 'setsid sh -c "trap : TERM; echo \$\$ >p2; while :; do sleep 0.01; done" >/dev/null 2>&1 & while [ ! -s p2 ]; do sleep 0.01; done' 2>&1; gone "$(cat p2)" && echo gone)" \
    '{"note":"sh left processes behind, which were ended"}
gone'
rm -f p2

# A terminal: the program has it, and Ctrl-Z stops both.
cat >terminal.py <<'END'
import os, pty, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
def until(text, seen=b"", seconds=20):
    end = time.monotonic() + seconds
    while text not in seen:
        if time.monotonic() > end:
            sys.exit("never came: %r in %r" % (text, seen))
        seen += os.read(fd, 4096)
    return seen
os.write(fd, b"PS1='rea''dy> '; stty -echo\n")
until(b"ready> ")
os.write(fd, b"\"$WEIR\" lock tty -- sh -c 'echo wai\"\"ting; read x; echo got $x; read y; echo and $y; exit 5'\n")
until(b"waiting")
os.write(fd, b"one\n")
until(b"got one")
os.write(fd, b"\x1a")
until(b"Stopped")
os.write(fd, b"\"$WEIR\" lock tty -- true; echo held $?\n")
until(b"held 75")
os.write(fd, b"fg\n")
until(b"lock tty")
os.write(fd, b"two\n")
until(b"and two")
os.write(fd, b"echo status $?\n")
until(b"status 5")
os.write(fd, b"\"$WEIR\" lock tty -- sh -c 'echo be\"\"gun; exec sleep 60'\n")
until(b"begun")
os.write(fd, b"\x03")
os.write(fd, b"echo status $?\n")
until(b"status 130")
END
ok "a terminal: reading, Ctrl-Z, fg, Ctrl-C" timeout 60 python3 terminal.py

# ---- one holder ---------------------------------------------------------------------------------

# $1: what is there before. All ways to write the path of the database lead to one lock.
one_holder() {
    local paths=(sqlite:weir.db "sqlite:$tmp/weir.db" sqlite:./weir.db sqlite:link/weir.db) pids=() i ran=0 held=0
    for i in 0 1 2 3 4 5 6 7; do
        "$WEIR" lock one --store "${paths[i % 4]}" -- sh -c "echo ran >>ran; $works" 2>"err.$i" &
        pids+=($!)
    done
    wait_for "the program" test -s p
    # The others end by themselves, or run as well.
    wait_for "seven" bash -c '[ "$(cat err.* | grep -c "is held by")" = 7 ] || [ "$(wc -l <ran)" -gt 1 ]'
    touch go
    for i in "${pids[@]}"; do
        wait "$i"
        case $? in 0) ran=$((ran + 1)) ;; 75) held=$((held + 1)) ;; esac
    done
    is "C40_one_machine_one_holder" "$ran $held $(cat ran)" "1 7 ran"
    like "$1: the others were told who, where and since when" "$(cat err.0 err.1)" "one.. is held by [^ ]+@[^ ]+ pid [0-9]+ since 20[0-9-]+T"
    rm -f err.*
    fresh
}
ln -s . link
one_holder "without a database"
python3 -c 'import sqlite3; sqlite3.connect("weir.db").execute("CREATE TABLE t (x)")'
one_holder "with somebody's database"
weir init >/dev/null
one_holder "with a store"

"$WEIR" lock k --grace 500ms -- sh -c "trap 'touch term' TERM; $works" &
holder=$!
wait_for "the program" test -s p
program=$(cat p)
kill -9 $holder
wait $holder 2>/dev/null
early=0
while status=$(weir lock k -- sh -c "! kill -0 $program 2>/dev/null || touch both" 2>/dev/null; echo $?); [ "$status" = 75 ]; do
    early=$((early + 1))
done
is "C40_a_killed_holder_of_a_file_frees_it_when_its_program_is_gone" "$status $(ls both 2>&1) $(ls term) $([ $early -gt 0 ] && echo waited)" \
    "0 ls: cannot access 'both': No such file or directory term waited"
fresh

# A program with a child in its group and one in a session of its own, each of which says who it is.
family='sh -c "echo \$\$ >c1; exec sleep 600" & setsid sh -c "echo \$\$ >c2; exec sleep 600" &
    while [ ! -s c1 ] || [ ! -s c2 ]; do sleep 0.01; done; echo $PPID >s; '$works
family_start() { # NAME: holder is its process, and its process group
    rm -f c1 c2 s
    setsid "$WEIR" lock "$1" --grace 200ms -- sh -c "$family" 2>family.err &
    holder=$!
    spawned $holder
    wait_for "the program" test -s p
    program=$(cat p) child=$(cat c1) far=$(cat c2) supervisor=$(cat s)
    keeper=$(ps -o ppid= -p "$supervisor" | tr -d ' ')
    group=$(ps -o pgid= -p "$holder" | tr -d ' ')
    spawned "$child"
    spawned "$far"
}
# All of them in one moment: who is stopped sees nobody else die.
kill_together() {
    kill -STOP "$@"
    kill -9 "$@"
}
alone="! kill -0 \$program 2>/dev/null && ! kill -0 \$child 2>/dev/null && ! kill -0 \$far 2>/dev/null || touch both"

family_start group
kill -9 -- -"$group"
wait $holder 2>/dev/null
program="$program" child="$child" far="$far" weir lock group --wait 60s -- sh -c "$alone"
is "C40_who_kills_the_holders_group_lets_nobody_in_beside_its_program" "$? $(ls both 2>/dev/null)" "0 "
fresh

family_start keeper
kill -9 "$supervisor"
wait $holder
is "a supervisor that was killed" $? 1
ok "C40_what_a_killed_supervisor_leaves_is_ended_before_the_lock_goes" bash -c "! kill -0 $program && ! kill -0 $child && ! kill -0 $far"
fresh

family_start both
kill_together "$keeper" "$supervisor"
wait $holder
is "both supervising processes killed" $? 1
like "nobody claims that all is ended" "$(cat family.err)" 'may still be running'
status "C40_a_file_stays_locked_although_its_holder_has_ended" 75 weir lock both -- touch both
kill "$child" "$far"
status "and not longer than a process of the program lives" 0 weir lock both --wait 60s -- true
fresh

family_start all
kill_together "$holder" "$keeper" "$supervisor"
wait $holder 2>/dev/null
wait_for "the end of the program" gone "$program"
status "C40_a_file_stays_locked_while_a_process_of_the_program_lives" 75 weir lock all -- touch both
kill "$child" "$far"
status "and not longer" 0 weir lock all --wait 60s -- true
fresh

"$WEIR" lock f -- sh -c "$works" &
holder=$!
spawned $holder
wait_for "the program" test -s p
"$WEIR" lock f --wait -- touch ran &
waiter=$!
spawned $waiter
wait_for "who waits" bash -c '"$WEIR" locks | grep -q waiting'
is "locks lists holders and waiters" "$(weir locks | sed 's/"by":"[^"]*@[^"]* pid [0-9]*","since":"2[^"]*"/BY/')" \
    '{"lock":"f","state":"held",BY,"kind":"file","until":null,"fence":null}
{"lock":"f","state":"waiting",BY,"kind":"file","until":null,"fence":null}'
status "a short wait ends with 75" 75 weir lock f --wait 50ms -- touch both
# A store that is made meanwhile changes nothing about who holds it.
weir init >/dev/null
status "C40_a_store_made_meanwhile_changes_nothing" 75 weir lock f -- touch both
kill -9 $waiter
wait $waiter 2>/dev/null
is "who was killed waits no longer" "$(weir locks | grep -c waiting)" 0
rm -rf weir.db-locks
wait_for "the end of the program" gone "$(cat p)" || touch go
wait $holder
is "C40_a_lock_whose_file_was_removed_is_lost" $? 75
gone "$(cat p)"
is "and its program is gone" $? 0
fresh

weir init >/dev/null
fences=$(for _ in 1 2 3; do weir lock g -- sh -c 'echo $WEIR_FENCE'; done)
is "C40_each_run_on_this_machine_has_a_larger_fence" "$(sort -nu <<<"$fences" | tr '\n' ' ')" "$(tr '\n' ' ' <<<"$fences")"
is "a fence is listed" "$(weir lock g -- "$WEIR" locks | sed 's/.*"fence"/"fence"/')" "\"fence\":$(($(tail -n 1 <<<"$fences") + 1))}"
is "nothing is held afterwards, or left" "$(weir locks) $(ls -d weir.db-locks 2>/dev/null)" " "
chmod 555 . 2>/dev/null
if [ "$(id -u)" != 0 ]; then status "a directory that cannot be written" 1 weir lock --store sqlite:x.db a -- true; fi
chmod 755 .
status "a directory that is not there" 1 weir lock --store sqlite:no/where.db a -- touch ran
like "is named" "$errout" 'could not find \\"no\\": No such file'
ok "memory: works, and says what it is worth" weir lock --store memory: a -- sh -c 'test -n "$WEIR_FENCE"'
like "in a note" "$errout" 'known to nobody but this process'
is "what could not be locked did not run" "$(ls ran both 2>/dev/null)" ""
done_testing
