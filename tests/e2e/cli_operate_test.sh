#!/usr/bin/env bash
# cli_operate_test.sh - the operator's commands on SQLite and on PostgreSQL: every answer of weir why, every
# verb with names and filters, parked events, reactions, doctor, and targets --watch. States are made as a
# worker makes them ($TARGET_STATE), in processes of their own. Run by tests/postgres/with-server.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE
export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres
export PATH=$WEIR_TEST_PG_BIN:$PATH

weir() { timeout 60 "$WEIR" "$@"; }
state() { timeout 60 "$TARGET_STATE" "$@"; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
python=$(python3 -c 'import sys; print(sys.executable)')
# A member of the first line of JSON on stdin: member .evidence.error
member() { "$python" -S -E -c '
import json, sys
value = json.loads(sys.stdin.readline())
for name in sys.argv[1].strip(".").split("."):
    value = value[int(name)] if isinstance(value, list) else value[name]
print(json.dumps(value) if not isinstance(value, str) else value)' "$1"; }
why() { run weir why "$1"; answer=$(member .answer <<<"$out") reason=$(member .reason <<<"$out"); }
is_so() { is "$1: $2" "$(weir targets --match "$3" | member ".$2")" "$4"; }
time_re='20[0-9-]+T[0-9:.]+Z'
errors() { member .error.message <<<"$errout"; }

# terminal.py ANSWER COMMAND...: runs it with a terminal as stdin, stdout and stderr. ANSWER is typed when it
# asks ("[y/N]"); ANSWER "^C": SIGINT is sent when it has drawn the word in $SEEN. What went to the terminal
# comes out, and the exit status is the command's.
cat >terminal.py <<'END'
import os, pty, signal, subprocess, sys, termios, fcntl, struct
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", int(os.environ.get("ROWS", "24")), 80, 0, 0))
child = subprocess.Popen(sys.argv[2:], stdin=slave, stdout=slave, stderr=slave)
os.close(slave)
signal.alarm(60)
seen, acted = b"", False
while True:
    try:
        data = os.read(master, 65536)
    except OSError:
        break
    if not data:
        break
    seen += data
    if not acted and sys.argv[1] == "^C" and os.environ["SEEN"].encode() in seen:
        acted = True
        child.send_signal(signal.SIGINT)
    if not acted and sys.argv[1] != "^C" and b"[y/N]" in seen:
        acted = True
        os.write(master, sys.argv[1].encode() + b"\n")
sys.stdout.buffer.write(seen.replace(b"\r\n", b"\n"))
sys.exit(child.wait())
END
on_terminal() { "$python" terminal.py "$@"; }

# ---- why: every answer -------------------------------------------------------------------------

# Orders 1 to 3 have two, one and one events, routed to mail-order-N in the lane mail.
make_orders() {
    weir init >/dev/null
    for event in "order-1 Placed" "order-1 Paid" "order-2 Placed" "order-3 Placed"; do
        # shellcheck disable=SC2086
        weir append $event >/dev/null
    done
    state declare mail stream 'order-*' && state route mail mail mail-
}

answers() {
    why mail-order-1
    is "why: no worker in its lane" "$reason: $answer" "no-worker: mail-order-1 has work for reaction mail, and no worker is running"
    is "with evidence" "$(member .evidence.waiting <<<"$out") $(member .evidence.workers <<<"$out")" "2 []"

    state worker w-other other 60 mail
    why mail-order-1
    is "why: a worker of another lane is none" "$reason" no-worker
    state worker w-mail mail 60
    why mail-order-1
    is "why: a reaction that no worker knows" "$reason: $answer" \
        "unknown-reaction: mail-order-1 has work for reaction mail, which no running worker of its lane handles"
    state worker w-mail mail 60 mail
    why mail-order-1
    is "why: ready" "$reason: $answer" "ready: mail-order-1 is ready: the next free one of 1 worker of its lane takes it"
    is "with the worker as evidence" "$(member .evidence.workers.0 <<<"$out")" '{"worker": "w-mail", "host": "h", "pid": 4194304}'
    state declare audit stream 'order-*' && state route audit mail mail-
    why mail-order-1
    like "why: ready, and one reaction is known to none" "$reason: $answer" '^ready: .*; but its reaction audit is handled by none of them$'
    ok "reactions retire" weir reactions retire audit

    ok "a lease" state hold mail-order-1 w-mail 60
    fence=$out
    why mail-order-1
    like "why: leased" "$reason: $answer" "^leased: mail-order-1 is leased by w-mail on host h \(process 4194304\); the lease ends or is renewed $time_re$"
    is "the fence is evidence" "$(member .evidence.fence <<<"$out")" "$fence"
    ok "somebody the list does not know" state hold mail-order-3 stranger 60
    why mail-order-3
    like "why: leased by a stranger" "$answer" "^mail-order-3 is leased by stranger; the lease ends or is renewed $time_re$"

    ok "a block" state block mail-order-2 $'it \e[31mbroke\nsecond line'
    why mail-order-2
    like "why: blocked" "$reason: $answer" "^blocked: mail-order-2 is blocked: it .\[31mbroke \(event 3 of reaction mail, attempt 1, $time_re\)$"
    is "all of the error is evidence" "$(member .evidence.error <<<"$out")" $'it \e[31mbroke\nsecond line'
    not_ok "and steers no terminal" grep -q $'\e' <<<"$(weir why mail-order-2 --text)"
    like "in words, too" "$(weir why mail-order-2 --text)" '^mail-order-2 is blocked: it \?\[31mbroke \(.*( ago|now)\).*Error:.    it \?\[31mbroke.    second line.*Event 3:.    stream +order-2.    name +Placed.    data +\{\}.*Workers: 1 is running for lane mail.*Next:.    weir unblock mail-order-2 .*weir skip mail-order-2 '

    like "internals are shown when they are asked for" "$(weir why mail-order-2 --text --verbose)" 'EVIDENCE +VALUE.*fence +[0-9].*REACTION +AT +MARK'
    not_ok "and otherwise not" grep -Eq 'EVIDENCE|fence|MARK' <<<"$(weir why mail-order-2 --text)"
    like "what is next names the store as it was named" \
        "$(weir why mail-order-2 --text --store "$WEIR_STORE")" "weir unblock mail-order-2 --store $WEIR_STORE"

    weir append order-4 Placed >/dev/null && state route mail mail mail-
    ok "a backoff" state defer mail-order-4 60 'no route to host'
    why mail-order-4
    like "why: retrying" "$reason: $answer" "^retrying: mail-order-4 is retrying: no route to host \(event 5 of reaction mail, attempt 1\); next attempt $time_re$"
    weir append order-5 Placed >/dev/null && state route mail mail mail-
    ok "deferred by its handler" state defer mail-order-5 60
    why mail-order-5
    like "why: deferred without an error" "$reason: $answer" "^deferred: mail-order-5 was deferred by its handler; next attempt $time_re$"

    weir append order-6 Placed >/dev/null && state route mail lossy mail-
    ok "leases that end by themselves" state lose mail-order-6 4
    why mail-order-6
    like "why: blocked for having lost its leases" "$reason: $answer" "^blocked: mail-order-6 is blocked: lost its lease 3 times in a row \($time_re\); 1 event waits$"

    weir append order-7 Placed >/dev/null && state route mail mail mail-
    ok "pause" weir pause mail-order-7
    me="$(id -un)@$(hostname)"
    why mail-order-7
    is "why: paused" "$reason: $answer" "paused: mail-order-7 is paused by $me"
    ok "resume" weir resume mail-order-7
    ok "pause its lane" weir pause --lane mail
    why mail-order-7
    is "why: its lane is paused" "$reason: $answer" "lane-paused: mail-order-7 waits: its lane mail is paused by $me"
    ok "resume its lane" weir resume --lane mail

    ok "the work is done" state finish mail-order-7
    why mail-order-7
    is "why: no work" "$reason: $answer" "no-work: mail-order-7 has no work"
    weir append order-7 Shipped >/dev/null
    why mail-order-7
    is "why: not routed, by nobody" "$reason: $answer" \
        "unrouted: mail-order-7 has no work yet: event 9 is not routed; reaction mail is routed by nobody at the moment"
    ok "the workers end" bash -c '"$TARGET_STATE" worker w-mail mail 0 && "$TARGET_STATE" worker w-other other 0'
    why mail-order-7
    is "why: not routed, and its reaction is known to nobody" "$reason: $answer" \
        "unknown-reaction: mail-order-7 has no work yet: event 9 is not routed; reaction mail is handled by no running worker"
    ok "a router" state router mail router-1 600
    why mail-order-7
    is "why: not routed yet" "$reason: $answer" \
        "unrouted: mail-order-7 has no work yet: event 9 is not routed; reaction mail is routed by router-1, up to 8 of 9"
    why mail-order-1
    is "another stream's event is not its own" "$reason $(member .evidence.unrouted <<<"$out")" "leased null"
    ok "it is routed" state route mail mail mail-
    ok "and done" state finish mail-order-7
    weir append shelf-1 Filled >/dev/null && state declare stock constant 'shelf-*' Filled && state route stock mail stock
    ok "a reaction with work is retired" weir reactions retire stock
    why stock
    is "why: retired" "$reason: $answer" "retired: stock has no work that counts: its reaction stock is retired"
    ok "the rest is routed" state route mail mail mail-

    status "why of what is not there" 3 weir why mail-order-99
    is "says so" "$(errors)" 'no target "mail-order-99"'
    status "--verbose without a target" 2 weir why --verbose
    status "why of two" 2 weir why a b
    status "why of an empty name" 1 weir why ''
}

# On PostgreSQL only: elsewhere nothing is ever above safe.
held_back() {
    PGAPPNAME=slow sql operate >/dev/null 2>&1 <<'END' &
BEGIN;
SELECT weir.append_one(0, 1000, 'held-1', 0, 0, 'Late', '{}', '{}');
SELECT pg_sleep(60);
END
    spawned $!
    wait_for "the open append" bash -c '[ "$(psql -XAtc "SELECT count(*) FROM pg_stat_activity WHERE wait_event = '"'PgSleep'"'" operate)" = 1 ]'
    ok "an event past one that is not finished" weir append order-7 Returned
    why mail-order-7
    like "why: held back" "$reason: $answer" "^held-back: mail-order-7 has no work yet: event [0-9]+ is above safe \([0-9]+\), held back by process [0-9]+ \(slow\), which began $time_re$"
    is "with who does it as evidence" "$(member .evidence.held_back_by.0.application <<<"$out")" slow
    why stock
    is "other targets are not held back" "$reason" retired
    sql operate -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'" >/dev/null
    wait_for "the end of it" bash -c '"$WEIR" why mail-order-7 | grep -vq held-back'
    why mail-order-7
    is "and no longer when it has ended" "$reason" unrouted
    ok "the rest is routed" state route mail mail mail-
}

# ---- the verbs ---------------------------------------------------------------------------------

# Targets p-1 to p-4 in the lane fast, p-5 in the lane slow, each with three events.
make_verbs() {
    weir init >/dev/null
    for i in 1 2 3 4 5; do
        for name in A B C; do weir append "s-$i" "$name" >/dev/null; done
    done
    state declare p stream 's-*'
    state route p fast p- || return
}

verbs() {
    for verb in "unblock --yes" "skip --yes" "reset --to start --yes" "prioritize 1 --yes" "prioritize --clear" "pause --yes" "resume --yes" unblock; do
        # shellcheck disable=SC2086
        status "weir $verb: which targets?" 2 weir $verb
        like "is asked" "$(errors)" 'which targets\?'
        # shellcheck disable=SC2086
        status "weir $verb: a name and a filter" 2 weir $verb p-s-1 --match 'p-*'
        # shellcheck disable=SC2086
        status "weir $verb: --all and a filter" 2 weir $verb --all --blocked
        # shellcheck disable=SC2086
        status "weir $verb: no such target" 3 weir $verb p-s-1 nobody
        is "is named" "$(errors)" 'no target "nobody"'
        # shellcheck disable=SC2086
        status "weir $verb: nothing matched" 3 weir $verb --match 'x-*'
        is "is said" "$(errors)" 'no target matched'
        # shellcheck disable=SC2086
        status "weir $verb: an empty filter" 2 weir $verb --match ''
        # shellcheck disable=SC2086
        status "weir $verb: a pattern that is none" 1 weir $verb --match '/(/'
        # shellcheck disable=SC2086
        status "weir $verb: an empty name" 1 weir $verb ''
        # shellcheck disable=SC2086
        status "weir $verb: a name that is not UTF-8" 1 weir $verb $'a\xff'
        # shellcheck disable=SC2086
        status "weir $verb: an unknown option" 2 weir $verb p-s-1 --sideways
        is "none of these printed a result" "$out" ""
    done
    is "and none changed anything" "$(weir targets | sort | sed 's/"lag_seconds":[0-9]*//' | md5sum)" "$before"

    # unblock
    ok "a block" state block p-s-1 broken
    ok "and another" state block p-s-2 broken
    ok "and a backoff" state defer p-s-3 600 slow
    is "unblock --dry-run" "$(weir unblock --blocked --dry-run)" '{"would_change":2}'
    is_so "changes nothing" state p-s-1 blocked
    is "unblock by name, twice the same" "$(weir unblock p-s-1 p-s-1)" '{"changed":1}'
    is_so "it goes on" state p-s-1 ready
    is_so "where it was" watermark p-s-1 0
    is_so "with its error forgotten" error p-s-1 null
    is "unblock what is not blocked" "$(weir unblock p-s-1)" '{"changed":0}'
    is "unblock --match" "$(weir unblock --match 'p-*')" '{"changed":2}'

    # skip
    ok "a block" state block p-s-1 broken
    status "skip without --yes" 2 weir skip p-s-1
    like "says what is needed" "$(errors)" 'add --yes: there is no terminal'
    is "skip --dry-run" "$(weir skip p-s-1 --dry-run)" '{"would_change":1}'
    is "a name that is given twice is one target" "$(weir skip p-s-1 p-s-1 --dry-run)" '{"would_change":1}'
    is "parks nothing" "$(weir parked ls)" ""
    status "skip, and the answer is no" 1 on_terminal n "$WEIR" skip p-s-1
    like "it asked" "$out" 'weir: skip: park event 1 \(A of s-1\) of p-s-1\? \[y/N\] '
    like "and says that nothing was done" "$out" 'nothing was changed'
    is "which is so" "$(weir parked ls)" ""
    status "skip, and no answer" 1 on_terminal '' "$WEIR" skip p-s-1
    ok "skip, and the answer is yes" on_terminal y "$WEIR" skip p-s-1
    like "and says what it did" "$out" 'skipped an event of p-s-1'
    is "it is parked, with the error" "$(weir parked ls | member .error)" broken
    is_so "and the target goes on after it" watermark p-s-1 1
    is_so "ready" state p-s-1 ready
    ok "somebody holds it" state hold p-s-2 w1 600
    is "skip a leased one" "$(weir skip p-s-2 --yes)" '{"changed":1}'
    is_so "takes the lease away" leased_by p-s-2 null
    is_so "with its fence" fence p-s-2 $((out + 1))

    # reset
    for where in '' start- -1 +1 1.5 tomorrow 2026-13-01 9223372036854775808; do
        status "reset --to '$where'" 2 weir reset p-s-1 --to "$where" --yes
    done
    status "reset without --to" 2 weir reset p-s-1 --yes
    like "says so" "$(errors)" '^--to start'
    status "reset without --yes" 2 weir reset p-s-1 --to start
    ok "p-s-3 is done" state finish p-s-3
    is "reset --dry-run" "$(weir reset p-s-3 p-s-2 --to 8 --dry-run)" '{"would_change":1}'
    is "reset --to start" "$(weir reset p-s-3 --to start --yes)" '{"changed":1}'
    is "handles all of it again" "$(weir why p-s-3 | member .evidence.waiting)" 3
    ok "p-s-3 is done again" state finish p-s-3
    is "reset --to a position" "$(weir reset p-s-3 --to 8 --yes)" '{"changed":1}'
    is "which stays handled" "$(weir why p-s-3 | member .evidence.waiting)" 1
    is "reset --to what is not behind it" "$(weir reset p-s-3 --to 9 --yes)" '{"changed":0}'
    ok "p-s-3 is done once more" state finish p-s-3
    is "reset --to a time to come" "$(weir reset p-s-3 --to 2999-01-01 --yes)" '{"changed":0}'
    is "reset --to a time long ago" "$(weir reset p-s-3 --to 2001-01-01T00:00:00Z --yes)" '{"changed":1}'
    is "handles all of it again" "$(weir why p-s-3 | member .evidence.waiting)" 3
    created=$(weir read s-3 --from 1 --limit 1 | member .created)
    ok "p-s-3 is done for the last time" state finish p-s-3
    is "reset --to the time of an event" "$(weir reset p-s-3 --to "$created" --yes)" '{"changed":1}'
    is "handles that one and those after it" "$(weir why p-s-3 | member .evidence.waiting)" 2
    status "reset, and the answer is no" 1 on_terminal no "$WEIR" reset --all --to start
    like "it asked, with the count" "$out" 'reset: handle events again of 5 targets\? '

    # prioritize
    status "prioritize what" 2 weir prioritize p-s-1
    like "wants a number first" "$(errors)" 'the first argument is the priority'
    status "prioritize nothing" 2 weir prioritize
    status "prioritize with too much" 2 weir prioritize 9223372036854775808 p-s-1
    is "prioritize" "$(weir prioritize 10 p-s-1 p-s-2)" '{"changed":2}'
    is_so "is seen" priority p-s-1 10
    is "prioritize, downwards" "$(weir prioritize -5 p-s-2)" '{"changed":1}'
    is_so "is seen" priority p-s-2 -5
    is "the same again" "$(weir prioritize -5 p-s-2)" '{"changed":0}'
    is "prioritize --clear" "$(weir prioritize --clear --all --dry-run)" '{"would_change":2}'
    is "prioritize --clear" "$(weir prioritize --clear --all)" '{"changed":2}'
    is_so "is as declared" priority p-s-1 0

    # pause, resume
    is "pause --source" "$(weir pause --source s-1)" '{"changed":1}'
    is_so "is seen" state p-s-1 paused
    is "pause --lane with another filter" "$(weir pause --lane fast --match '*' --dry-run)" '{"would_change":4}'
    is "pause the lane" "$(weir pause --lane fast)" '{"changed":1}'
    is "pause the lane again" "$(weir pause --lane fast)" '{"changed":0}'
    is "pause the lane once more, dry" "$(weir pause --lane fast --dry-run)" '{"would_change":0}'
    is_so "all of its targets are" state p-s-4 paused
    is "resume --all: targets only" "$(weir resume --all)" '{"changed":1}'
    is_so "the lane is still paused" state p-s-1 paused
    is "resume the lane" "$(weir resume --lane fast)" '{"changed":1}'
    is_so "which ends it" state p-s-1 ready
    status "resume a lane that is not there" 3 weir resume --lane nowhere
    ok "pause a lane that has no target" weir pause --lane later
    like "says so" "$errout" 'lane .*later.* has no target yet'
    is "and is kept" "$(weir resume --lane later)" '{"changed":1}'
}

# ---- parked events, reactions, doctor -----------------------------------------------------------

dead_letters() {
    is "parked ls" "$(weir parked ls | wc -l)" 2
    is "so does parked alone" "$(weir parked)" "$(weir parked ls)"
    is "in words, too" "$(weir parked --text --utc)" "$(weir parked ls --text --utc)"
    is "with a filter" "$(weir parked --target p-s-1)" "$(weir parked ls --target p-s-1)"
    status "with one that nothing fits" 3 weir parked --reaction nobody
    is "of a target" "$(weir parked ls --target p-s-1 | member .event)" 1
    is "of a reaction" "$(weir parked ls --reaction p --limit 1 | wc -l)" 1
    status "of one that is not there" 3 weir parked ls --reaction nobody
    id=$(weir parked ls --target p-s-1 | member .id)
    ok "parked show" weir parked show "$id"
    is "has the event" "$(member .stream <<<"$out") $(member .name <<<"$out") $(member .data <<<"$out")" "s-1 A {}"
    for line in frobnicate 1 --all --yes --dry-run "show" "show x" "show 0" "show -1" "ls 1" "ls --all" "show 1 --yes" "retry" "drop --yes" \
        "retry 1 --all" "retry --all --target a" "drop 1 --limit 1" "drop --target ''" "drop 1"; do
        # shellcheck disable=SC2086
        status "parked $line" 2 eval "weir parked $line"
    done
    status "parked show of another number" 3 weir parked show 4711
    status "parked retry of one that is there and one that is not" 3 weir parked retry "$id" 4711
    is "sends nothing back" "$(weir parked ls --target p-s-1 | member .sent_back)" false
    is "parked retry --dry-run" "$(weir parked retry --all --dry-run)" '{"would_change":2}'
    is "parked retry" "$(weir parked retry "$id" "$id")" '{"changed":1}'
    is "is seen" "$(weir parked ls --target p-s-1 | member .sent_back)" true
    is "parked retry again" "$(weir parked retry "$id")" '{"changed":0}'
    why p-s-1
    is "why knows of it" "$(member .evidence.sent_back <<<"$out")" 1
    ok "it is handled" state finish p-s-1
    status "and gone" 3 weir parked ls --target p-s-1
    ok "an event that cannot be routed" weir append s-6 A
    ok "is parked" state misroute p 'no template'
    is "without a target" "$(weir parked ls | tail -n 1 | member .target)" null
    id=$(weir parked ls | tail -n 1 | member .id)
    status "it cannot be sent back" 1 weir parked retry "$id"
    is "a filter leaves it out" "$(weir parked retry --all)" '{"changed":1}'
    like "and says so" "$errout$(weir parked retry --all 2>&1 >/dev/null)" "$id stays parked: it has no target"
    is "parked drop --dry-run" "$(weir parked drop --all --dry-run)" '{"would_change":2}'
    status "parked drop, and the answer is no" 1 on_terminal n "$WEIR" parked drop "$id"
    like "it asked" "$out" 'drop 1 parked event for ever\? '
    is "parked drop" "$(weir parked drop "$id" --yes)" '{"changed":1}'
    is "parked drop of a reaction's" "$(weir parked drop --reaction p --yes)" '{"changed":1}'
    is "there are none" "$(weir parked ls)" ""
    status "to retry, either" 3 weir parked retry --all
}

reactions_and_doctor() {
    ok "reactions ls" weir reactions ls
    is "has the definition" "$(member .reaction <<<"$out") $(member .names <<<"$out") $(member .source <<<"$out") $(member .rule <<<"$out")" 'p null s-* stream'
    is "and how far it is" "$(member .routed <<<"$out") $(member .lag <<<"$out") $(member .workers <<<"$out")" "16 0 0"
    like "in words, too" "$(weir reactions ls --text)" 'REACTION +NAMES +SOURCE'
    is "so does reactions alone" "$(weir reactions)" "$out"
    for line in frobnicate "ls p" "ls --dry-run" --dry-run retire "retire a b"; do
        # shellcheck disable=SC2086
        status "reactions $line" 2 weir reactions $line
    done
    status "retire what is not there" 3 weir reactions retire nobody

    ok "doctor where nobody works" weir doctor
    like "notes the lane" "$out" '"level":"note","rule":"lane-without-worker","message":"[0-9] targets are ready in lane \\"fast\\"'
    like "and the reaction, with targets" "$out" '"level":"note","rule":"unknown-reaction","message":"no running worker handles reaction \\"p\\"; [0-9] targets have work for it: p-s-[0-9], p-s-[0-9], p-s-[0-9]'
    ok "somebody works, elsewhere" state worker w1 other 600
    status "doctor then" 1 weir doctor
    like "finds the lane" "$out" '"level":"finding","rule":"lane-without-worker"'
    like "and the reaction" "$out" '"level":"finding","rule":"unknown-reaction"'
    ok "a worker of which nothing was heard for 7 s" state worker w2 fast 8 p
    like "is late, and status shows since when" "$(weir status --text)" 'w2 +late .* [0-9]+ s ago'
    ok "that one is forgotten" state worker w2 fast 0
    ok "where it should" state worker w1 fast 600 p
    ok "doctor then" weir doctor
    is "has nothing to say of it" "$(grep -c 'without-worker\|unknown-reaction' <<<"$out")" 0
    is "reactions ls counts it" "$(weir reactions ls | member .workers)" 1
    ok "another definition" state declare p stream 's-*' A B
    is "is known to nobody" "$(weir reactions ls | member .definition) $(weir reactions ls | member .workers)" "2 0"
    status "doctor finds it" 1 weir doctor
    like "by name" "$out" 'unknown-reaction'

    is "retire --dry-run" "$(weir reactions retire p --dry-run)" '{"would_change":1}'
    is "retires nothing" "$(weir reactions ls | member .retired)" false
    is "retire" "$(weir reactions retire p)" '{"changed":1}'
    is "again" "$(weir reactions retire p)" '{"changed":0}'
    is "is seen" "$(weir reactions ls | member .retired)" true
    ok "doctor then" weir doctor
    like "notes what it leaves behind" "$out" '"level":"note","rule":"retired-reaction","message":"reaction \\"p\\" is retired; [0-9] targets have work for it: p-s-'
    ok "declared again" state declare p stream 's-*'
    is "it is back" "$(weir reactions ls | member .retired)" false
}

# ---- watching ----------------------------------------------------------------------------------

line_with() { wait_for "$2" grep -q "$1" watched; }

watching() {
    timeout 100 "$WEIR" targets --watch --match 'p-s-[12]*' >/dev/null 2>&1 &
    local nothing=$!
    spawned $nothing
    rm -f watched watched.err
    "$WEIR" targets --watch --match '/^p-s-[12]$/' >watched 2>watched.err &
    local watcher=$!
    spawned $watcher
    ok "--watch begins with what is there" wait_for "two lines" bash -c '[ "$(wc -l <watched)" = 2 ]'
    ok "a change" weir pause p-s-1
    ok "is a line" line_with '"target":"p-s-1",.*"state":"paused"' "the pause"
    ok "a lease" state hold p-s-2 w9 600
    ok "is a line" line_with '"target":"p-s-2",.*"state":"leased",.*"leased_by":"w9"' "the lease"
    ok "it is renewed" state extend p-s-2 900
    ok "and something else happens" weir prioritize 7 p-s-1
    ok "which is a line" line_with '"target":"p-s-1",.*"priority":7' "the priority"
    is "the renewal is none" "$(grep -c '"state":"leased"' watched)" 1
    ok "it is to end soon" state extend p-s-2 1
    ok "its end is one, though nothing wakes" wait_for "its end" bash -c 'tail -n 1 watched | grep -q "\"target\":\"p-s-2\",.*\"state\":\"ready\""'
    is "targets that did not change are not repeated" "$(grep -c p-s-1 watched)" 3
    ok "a priority is cleared" weir prioritize --clear p-s-1
    kill -INT $watcher
    wait $watcher
    is "SIGINT ends it with 0" $? 0
    is "quietly" "$(cat watched.err)" ""
    kill -TERM $nothing
    wait $nothing

    ok "a block" state block p-s-2 broken
    rm -f watched
    "$WEIR" targets --watch --blocked >watched 2>&1 &
    watcher=$!
    spawned $watcher
    ok "--watch --blocked" line_with '"target":"p-s-2",.*"state":"blocked"' "the blocked one"
    ok "it is unblocked" weir unblock p-s-2
    ok "and printed once more" line_with '"target":"p-s-2",.*"state":"ready"' "the last line of it"
    kill -TERM $watcher
    wait $watcher
    is "SIGTERM ends it with 0" $? 0
    is "two lines in all" "$(wc -l <watched)" 2
    ok "a reader that goes away ends it, too" timeout 60 bash -c '"$WEIR" targets --watch | head -n 1; exit "${PIPESTATUS[0]}"'

    ok "--watch on a terminal" env TERM=xterm SEEN=paused "$python" terminal.py ^C "$WEIR" targets --watch
    like "is a full screen" "$out" $'\e\\[\\?1049h.*5 targets: .*1 paused.*TARGET.*p-s-1 .*\e\\[\\?1049l'
    ok "on a low one" env TERM=xterm ROWS=6 SEEN='q quit' "$python" terminal.py ^C "$WEIR" targets --watch
    like "says how many there is no room for" "$out" '1-3 of 5'
    ok "--json there" env SEEN=p-s-5 "$python" terminal.py ^C "$WEIR" targets --watch --json
    like "is lines" "$out" '^\{"target":"p-s-1"'
    status "--watch with --limit" 2 weir targets --watch --limit 1
    status "--watch of a store that is not there" 3 weir targets --watch --store sqlite:nowhere.db
    ok "resume" weir resume p-s-1
}

# The examples of --help, where there is something to do them to.
examples() {
    for command in why unblock reset skip prioritize pause resume parked reactions; do
        while IFS= read -r line; do
            line=${line//mail-1/p-s-1} line=${line//mail-\*/p-*} line=${line//lane mail/lane fast} line=${line//confirm-order/p}
            line=${line/parked show 1/parked show $1} line=${line/parked drop 1/parked drop $1}
            [[ $line == *"--blocked --lane"* ]] && state block p-s-3 broken
            ok "weir $command --help: $line" bash -c "PATH=$tmp/bin:\$PATH; $line"
        done < <(weir "$command" --help | sed -n '/^Examples/,$s/^  //p')
    done
}

# Names of targets are completed as names of streams are.
completion() {
    cat >complete.bash <<'END'
. "$1"
shift
COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_weir
printf '%s ' "${COMPREPLY[@]}"
END
    local completes="PATH=$tmp/bin:\$PATH bash complete.bash $WEIR_SOURCE/completions/weir.bash weir"
    is "bash completes names of targets" "$(eval "$completes why p-")" "p-s-1 p-s-2 p-s-3 p-s-4 p-s-5 "
    is "also the second one" "$(eval "$completes pause p-s-1 p-s-2")" "p-s-2 "
    is "and the one after a priority" "$(eval "$completes prioritize 3 p-s-4")" "p-s-4 "
    is "and verbs" "$(eval "$completes parked ''")" "ls show retry drop "
}

# ---- on both stores ----------------------------------------------------------------------------

mkdir bin && ln -s "$WEIR" bin/weir
createdb operate
for store in "sqlite:$tmp/answers.db" postgres:///operate; do
    export WEIR_STORE=$store
    diag "answers on ${store%%:*}"
    ok "orders and their targets" make_orders
    answers
    if [[ $store == postgres:* ]]; then held_back; fi
    status "doctor" 1 weir doctor
    is "finds the targets that are blocked, and nothing else" "$(sed -n 's/.*"level":"finding","rule":"\([a-z-]*\)","message":"\([^"]*\)".*/\1: \2/p' <<<"$out")" \
        "blocked: 2 targets are blocked: mail-order-2, mail-order-6"
done

for store in "sqlite:$tmp/verbs.db" "postgres:///operate?schema=verbs"; do
    export WEIR_STORE=$store
    diag "verbs on ${store%%:*}"
    ok "targets" make_verbs
    before=$(weir targets | sort | sed 's/"lag_seconds":[0-9]*//' | md5sum)
    verbs
    dead_letters
    reactions_and_doctor
    watching
    completion
    ok "something to skip" weir skip p-s-4 --yes
    examples "$(weir parked ls | member .id)"
done

# ---- a parked event that is no longer in the log -----------------------------------------------

# As the owner of a database can: the event is removed, what protects it and what was parked are left.
remove_event() {
    if [[ $WEIR_STORE == sqlite:* ]]; then
        "$python" -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
(kept,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", ("weir_events_no_delete",)).fetchone()
db.executescript("BEGIN; DROP TRIGGER weir_events_no_delete; DELETE FROM weir_events WHERE id = 1; %s; COMMIT" % kept)' \
            "$tmp/gone.db"
    else
        sql operate -c 'ALTER TABLE gone.events DISABLE TRIGGER events_no_change; DELETE FROM gone.events WHERE id = 1;
            ALTER TABLE gone.events ENABLE ALWAYS TRIGGER events_no_change'
    fi
}

cat >gone.yaml <<'END'
reactions:
  - { name: gone, on: [A], to: all, run: exit 65, retries: 0, on_poison: park, from: start }
END

for store in "sqlite:$tmp/gone.db" "postgres:///operate?schema=gone"; do
    export WEIR_STORE=$store
    diag "an event that is gone, on ${store%%:*}"
    ok "two events" eval 'weir append s A "{}" && weir append s A "{}"'
    status "cannot be handled" 1 weir work --config gone.yaml --until-idle
    like "which is told" "$errout" '"msg":"not_all_handled","blocked":0,"parked":2,'
    is "and are parked" "$(weir parked ls | wc -l)" 2
    ok "the first is removed from the log" remove_event
    is "both are sent back" "$(weir parked retry --all)" '{"changed":2}'
    status "the worker comes to an end" 1 weir work --config gone.yaml --until-idle --log json
    is "and says once why" "$(grep -c '"msg":"event_gone".*"event":1,' <<<"$errout")" 1
    is "the other is parked again" "$(weir parked ls | member .event)" 2
    is "alone" "$(weir parked ls | wc -l)" 1
done

# A log that lost its end: targets are further than it is. `damage AT MARK` says where.
damage() {
    if [[ $WEIR_STORE == sqlite:* ]]; then
        "$python" -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("UPDATE weir_subscriptions SET at = ?, mark = ?", sys.argv[2:4])
db.execute("UPDATE weir_targets SET watermark = ?1, rank = ?1 >> 5, behind = 0", (int(sys.argv[2]),))' "$tmp/beyond.db" "$@"
    else
        sql operate -c "UPDATE beyond.subscriptions SET at = $1, mark = $2" \
            -c 'SELECT beyond.derive(ARRAY(SELECT id FROM beyond.targets))' >/dev/null
    fi
}
findings() { weir doctor | grep -o '"level":"finding","rule":"[a-z-]*"' | sed 's/.*:"\(.*\)"/\1/' | sort | xargs; }
work_beyond() { weir work --on E --to tgt --run "${1:-true}" --name r --from start --until-idle --log json; }

for store in "sqlite:$tmp/beyond.db" "postgres:///operate?schema=beyond"; do
    export WEIR_STORE=$store
    diag "a target beyond the log, on ${store%%:*}"
    ok "three events" eval 'for i in 1 2 3; do weir append s E "{}"; done'
    ok "are handled" work_beyond
    ok "the target is further than the log" damage 500 3
    is "lag is not negative" "$(weir targets | member .lag)" 0
    is "doctor says what why says, and nothing else" "$(findings)" beyond-log
    ok "its mark, too" damage 500 500
    is "doctor says so" "$(findings)" beyond-log
    why tgt
    is "and why" "$reason: $answer" "beyond-log: tgt is at position 500, but the log ends at 3: a part of the log was lost"
    ok "the log grows past it" eval 'for i in $(seq 520); do echo "{\"stream\":\"s\",\"name\":\"E\",\"data\":{}}"; done |
        weir append --batch - && weir append s E "{}"'
    is "it is still seen" "$(findings)" beyond-log
    why tgt
    like "by what was routed" "$answer" 'at position 500, but what was routed of the log ends at 3:'
    status "C16_a_target_beyond_the_log_stops_by_name_instead_of_passing_over_events" 1 work_beyond 'echo >>got'
    like "the worker names it" "$errout" '"target_beyond_log","target":"tgt","reaction":"r","event":4'
    not_ok "and delivers nothing" test -e got
    is "it is blocked" "$(weir targets | member .state)" blocked
    like "and says why" "$(weir targets | member .error)" '^position 500 is beyond what was routed of the log \(3\): a part'
    is "doctor has it by its name" "$(findings)" beyond-log
    why tgt
    is "and why, too" "$reason" beyond-log
    like "what repairs it" "$(member .next.0 <<<"$out")" '^weir reset --to 3 tgt'
    status "unblock refuses it" 1 weir unblock tgt
    like "and says what to type" "$(errors)" 'would pass over event 4; set it back with weir reset --to 3'
    status "and so does skip" 1 weir skip tgt --yes
    is "who means all leaves it alone" "$(weir unblock --all)" '{"changed":0}'
    ok "a second worker passes over nothing" work_beyond 'echo >>got'
    not_ok "nor delivers anything" test -e got
    ok "reset repairs it" weir reset tgt --to 3 --yes
    ok "and a worker goes on" work_beyond 'echo >>got'
    is "C16_every_event_that_would_have_been_passed_over_is_delivered" "$(wc -l <got)" 521
    is "doctor has no complaint" "$(findings)" ""
    rm got
    # A position alone that is beyond the log: its mark says nothing of what it would have passed over.
    ok "a position without its mark" damage 1000 523
    ok "another event" weir append s E
    status "stops it as well" 1 work_beyond 'echo >>got'
    ok "reset to before it" weir reset tgt --to 524 --yes
    ok "lets it go on" work_beyond 'echo >>got'
    is "C16_a_mark_that_its_position_has_passed_hides_no_event" "$(wc -l <got)" 1
    rm got
done
unset WEIR_STORE

for command in "why a" "unblock a" "skip a --yes" "reset a --to start --yes" "prioritize 1 a" "pause a" "resume a" \
    "pause --lane a" "parked ls" "parked retry --all" "reactions ls" "reactions retire a"; do
    # shellcheck disable=SC2086
    status "weir $command without a store" 3 weir $command --store sqlite:nowhere.db
done
not_ok "makes none" test -e nowhere.db

done_testing
