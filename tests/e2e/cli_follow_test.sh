#!/usr/bin/env bash
# cli_follow_test.sh - weir log --follow: nothing skipped, nothing twice, while four processes
# append; ends with 0 on SIGINT, SIGTERM and when nobody reads any more.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }
lines_at_least() { [ "$(wc -l <"$1")" -ge "$2" ]; }

# A background job of a script ignores SIGINT from the start; setsid and a plain `env` do not undo
# that, so followers are started by python, which does.
cat >start.py <<'END'
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
END

# ---- four writers ------------------------------------------------------------------------------

weir append start Started >/dev/null 2>&1
python3 start.py "$WEIR" log --follow >followed 2>followed.err &
follower=$!
spawned $follower
ok "what is there comes at once" wait_for "the first event" lines_at_least followed 1

writers=()
for w in 1 2 3 4; do
    (
        for i in {1..50}; do "$WEIR" append "w-$w" Wrote "{\"i\":$i}" >/dev/null || exit 1; done
        for i in {51..200}; do echo "{\"stream\":\"w-$w\",\"name\":\"Wrote\",\"data\":{\"i\":$i}}"; done |
            "$WEIR" append --batch - >/dev/null
    ) &
    writers+=($!)
done
failed=0
for pid in "${writers[@]}"; do wait "$pid" || failed=1; done
is "four processes appended 200 events each" "$failed" 0
ok "the follower has them all" wait_for "all events" lines_at_least followed 801
kill -INT $follower
rc=0
wait $follower || rc=$?
is "SIGINT ends it with 0" "$rc" 0
is "quietly" "$(cat followed.err)" ""
weir log >all
ok "it printed exactly the log: nothing skipped, nothing twice, in order" cmp followed all
is "whose events are complete" "$(wc -l <all)" 801
for w in 1 2 3 4; do
    is "writer $w: versions without a gap" "$(weir read "w-$w" | sed 's/.*"version":\([0-9]*\).*/\1/' | tr '\n' ' ')" "$(seq -s ' ' 0 199) "
done

# ---- other beginnings --------------------------------------------------------------------------

# follow NAME ARG...: a follower in the background, its output in NAME, its pid in $follower.
follow() {
    local name=$1
    shift
    rm -f "$name"
    "$WEIR" log --follow "$@" >"$name" 2>&1 &
    follower=$!
    spawned $follower
}
# Events that fit must come, in order, and no other; markers make the end visible.
follow tail0 --tail 0 --stream 'x-*'
follow_tail=$follower
follow after --after 800 --limit 3
follow_after=$follower
# A follower that began at the end has begun once an event that comes after it is printed.
begun() {
    "$WEIR" append x-probe Probe >/dev/null
    [ -s tail0 ]
}
ok "--tail 0 begins with what comes" wait_for "the follower to begin" begun
weir append y-1 Other >/dev/null
weir append x-1 Wanted >/dev/null
ok "--follow with a filter" wait_for "the event" grep -q Wanted tail0
is "gives only what fits" "$(grep -cv '"stream":"x-' tail0)" 0
ok "--limit ends a follower" wait_for "its end" bash -c "! kill -0 $follow_after 2>/dev/null || [ \$(wc -l <after) -eq 3 ]"
rc=0
wait "$follow_after" || rc=$?
is "with 0" "$rc" 0
is "after so many events" "$(wc -l <after)" 3
kill -TERM "$follow_tail"
rc=0
wait "$follow_tail" || rc=$?
is "SIGTERM ends it with 0" "$rc" 0

# ---- nobody reads ------------------------------------------------------------------------------

mkfifo idle
"$WEIR" log --follow --tail 1 >idle 2>idle.err &
follower=$!
spawned $follower
exec 9<idle
read -r _ <&9
exec 9<&-
ok "a closed pipe ends it while nothing happens" wait_for "its end" bash -c "! kill -0 $follower 2>/dev/null"
rc=0
wait $follower || rc=$?
is "with 0" "$rc" 0
is "quietly" "$(cat idle.err)" ""

# A reader that stops reading, then a signal: it ends although its pipe is full.
mkfifo full
"$WEIR" log --follow >full 2>full.err &
follower=$!
spawned $follower
exec 9<full
read -r _ <&9
# It has written what fits into the pipe, and sleeps.
pipe_is_full() {
    [ "$(awk '/^wchar/ {print $2}' "/proc/$follower/io")" -ge 32768 ] &&
        [ "$(awk '/^State/ {print $2}' "/proc/$follower/status")" = S ]
}
ok "a follower whose reader has stopped waits" wait_for "it to wait" pipe_is_full
ok "others append meanwhile" timeout 20 "$WEIR" append x-2 Wrote
kill -TERM $follower
rc=0
wait $follower || rc=$?
is "SIGTERM ends it all the same" "$rc" 0
exec 9<&-

# As a table, on request: line by line too.
"$WEIR" log --follow --tail 1 --text >table &
follower=$!
spawned $follower
ok "as text" wait_for "a line" lines_at_least table 2
kill -TERM $follower
wait $follower
like "under a head" "$(head -n 1 table)" '^ *ID +STREAM'

done_testing
