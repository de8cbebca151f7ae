#!/usr/bin/env bash
# cli_output_test.sh - help, version, misspelt commands; text on a terminal and JSON elsewhere, on stdout
# and stderr alike; progress of a long batch; data that would steer a terminal.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }

# terminal.py OUT|ERR|BOTH COMMAND...: runs it with a terminal as stdout, stderr or both; what went to the
# terminal comes out, and the exit status is the command's.
cat >terminal.py <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
which = sys.argv[1]
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL,
                         stdout=slave if which in ("OUT", "BOTH") else subprocess.DEVNULL,
                         stderr=slave if which in ("ERR", "BOTH") else subprocess.DEVNULL)
os.close(slave)
while True:
    try:
        data = os.read(master, 65536)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data.replace(b"\r\n", b"\n"))
sys.exit(child.wait())
END
on_terminal() { python3 terminal.py "$@"; }

# ---- help --------------------------------------------------------------------------------------

ok "weir help" weir help
is "has five starters on top" "$(sed -n '/^Start with/,/^$/p' <<<"$out" | grep -c '^  weir ')" 5
is "then its blocks" "$(grep -E '^[A-Z][a-z]+$' <<<"$out" | tr '\n' ' ')" "Events Workers Tables Jobs Operate "
commands=$(sed -n '/^Events/,$p' <<<"$out" | sed -n 's/^  \([a-z]*\) .*/\1/p')
is "with every command" "$(tr '\n' ' ' <<<"$commands")" \
    "append read log streams close work targets why reactions parked claim done fail release extend race lint lock once locks init status doctor backup restore unblock skip reset prioritize pause resume help version "
for command in $commands; do
    ok "weir $command --help" weir "$command" --help
    like "weir $command --help: has usage and examples" "$out" "^Usage: weir $command .*Examples"$'\n'"  weir $command"
    own=$out
    ok "weir help $command" weir help "$command"
    is "weir help $command: says the same" "$out" "$own"
done
ok "weir --help" weir --help
ok "weir append -h" weir append -h
status "weir alone is wrong usage" 2 weir
like "and shows the help on stderr" "$errout" 'Start with'
is "not on stdout" "$out" ""
status "weir help nonsense" 2 weir help nonsense
ok "weir --version" weir --version
like "is text everywhere" "$out" '^weir [0-9]+\.[0-9]+\.[0-9]+$'
ok "weir version" weir version
like "is JSON in a pipe" "$out" '^\{"version":"[0-9.]+"\}$'
status "a misspelt command" 2 weir appnd a b
like "suggests the right one" "$errout" 'unknown command \\"appnd\\", did you mean \\"append\\"\?'
for pair in lgo:log strems:streams stat:status docter:doctor; do
    status "weir ${pair%:*}" 2 weir "${pair%:*}"
    like "weir ${pair%:*}: suggests ${pair#*:}" "$errout" "did you mean \\\\\"${pair#*:}\\\\\""
done
status "what is like no command" 2 weir frobnicate
is "gets no suggestion" "$(grep -c 'did you mean' <<<"$errout")" 0
is "no command's examples have gone stale" "$(for c in $commands; do weir "$c" --help | sed -n '/^Examples/,$p' | grep -o -- ' --[a-z-]*' | while read -r flag; do weir "$c" --help | grep -q -- "^  $flag" || echo "$c $flag"; done; done)" ""

# ---- forms -------------------------------------------------------------------------------------

weir append order-1 Placed '{"a":1}' >/dev/null 2>&1
ok "on a terminal" on_terminal OUT "$WEIR" read order-1
like "output is a table" "$out" $'^ID +STREAM +VERSION +NAME +CREATED +DATA\n'
ok "--json on a terminal" on_terminal OUT "$WEIR" read order-1 --json
like "is JSON" "$out" '^\{"id":1,'
ok "--text in a pipe" weir read order-1 --text
like "is a table" "$out" '^ID +STREAM'
status "an error on a terminal" 4 on_terminal ERR "$WEIR" append order-1 N --expect 5
is "is text" "$out" "weir: append: conflict on order-1: expected version 5, it is at 0"
status "an error with --json" 4 on_terminal ERR "$WEIR" append order-1 N --expect 5 --json
is "is JSON" "$out" '{"error":{"code":"conflict","message":"conflict on order-1: expected version 5, it is at 0","stream":"order-1","expected":5,"actual":0}}'
status "wrong usage on a terminal" 2 on_terminal ERR "$WEIR" append
like "is text with a hint" "$out" $'^weir: append: .*\nweir: Try weir append --help\\.'
rm -f weir.db*
ok "a new store, seen from a terminal" on_terminal ERR "$WEIR" append order-1 N
is "is announced as text" "$out" "weir: created store weir.db"
for command in "append order-1 N" "read order-1" log streams status doctor "close order-1" init version; do
    # shellcheck disable=SC2086
    "$WEIR" $command >json.out 2>/dev/null
    ok "weir $command: every line is a JSON object" python3 -c 'import json,sys
lines = open("json.out").read().splitlines()
assert lines
for line in lines: assert isinstance(json.loads(line), dict)'
    # shellcheck disable=SC2086
    "$WEIR" $command --text >text.out 2>/dev/null
    is "weir $command --text: none is" "$(grep -c '^{' text.out)" 0
done

# Columns are aligned, whatever is in them.
weir append 'a-very-long-name-of-a-stream' N >/dev/null
weir append 'ü' N >/dev/null
is "columns begin at the same place" "$(weir streams --text | python3 -c 'import sys
print(len({line.rstrip("\n").rindex(" ") for line in sys.stdin}))')" 1
steering=$(printf '\302\23331m\177')
ok "control characters that JSON allows" weir append control N "\"$steering\""
ok "come back as they are in JSON" bash -c '"$WEIR" read control --json | LC_ALL=C grep -qF "$1"' - "$steering"
ok "but cannot steer a terminal" bash -c '"$WEIR" read control --text | LC_ALL=C grep -qF "\"??31m?\""'

# Characters that nobody sees, or that turn a line: the separators of lines and paragraphs, zero
# width, directions. They are escaped wherever the program writes, whatever the form.
for code in 2028 2029 200b 202e 2066 feff; do
    hidden=$(printf '%b' "\\u$code")
    weir append "odd${hidden}name" "Na${hidden}me" "{\"a\":\"x${hidden}y\"}" --json >odd.out 2>odd.err
    weir work --on "Na${hidden}me" --to "t${hidden}t" --run 'exit 7' --retries 0 --from start --until-idle \
        --name "re${hidden}act" --log text >>odd.out 2>>odd.err
    weir work --on "Na${hidden}me" --to "t${hidden}t" --run 'exit 7' --retries 0 --from start --until-idle \
        --name "re${hidden}act" --log json >>odd.out 2>>odd.err
    for form in --text --json; do
        for command in "read odd${hidden}name" log streams targets status doctor reactions parked "why t${hidden}t" \
            "read none${hidden}such"; do
            # shellcheck disable=SC2086
            weir $command $form >>odd.out 2>>odd.err
        done
    done
    is "U+$code is in nothing that is printed" "$(cat odd.out odd.err | LC_ALL=C grep -cF "$hidden")" 0
    ok "but its escape is, on stdout" grep -qF "\\u$code" odd.out
    ok "and on stderr" grep -qF "\\u$code" odd.err
    is "and JSON is what it was" "$(weir read "odd${hidden}name" --json | python3 -c 'import json,sys
print(json.loads(sys.stdin.readline())["data"]["a"])')" "x${hidden}y"
done

# ---- terminals ---------------------------------------------------------------------------------

mkdir terminal && cd terminal || exit 1
on_terminal() { env -u COLUMNS -u NO_COLOR TERM=xterm python3 "$WEIR_SOURCE/tests/e2e/on_terminal.py" "$@"; }
widest() { python3 -c 'import sys; print(max(len(line.decode().rstrip()) for line in sys.stdin.buffer))'; }
long=$(printf '%0100d' 7)
weir append order-1 OrderPlaced "{\"note\":\"$long\"}" >/dev/null 2>&1
for columns in 40 80 120; do
    ok "a table fits $columns columns" test "$(on_terminal $columns "$WEIR" log | widest)" -le "$columns"
done
like "what is cut short says so" "$(on_terminal 80 "$WEIR" log)" '"note":"0+…'
like "--wide shows all of it" "$(on_terminal 80 "$WEIR" log --wide)" "$long"
like "a pipe gets all of it" "$(weir log --text)" "$long"
like "COLUMNS counts more than the terminal" "$(COLUMNS=300 python3 "$WEIR_SOURCE/tests/e2e/on_terminal.py" 80 "$WEIR" log)" "$long"
like "times are told from now" "$(on_terminal 120 "$WEIR" log)" ' (now|[0-9]+ s ago) '
like "or as they are" "$(on_terminal 120 "$WEIR" log --utc)" ' 20[0-9-]+T[0-9:.]+Z '
is "WEIR_OUTPUT=json holds on a terminal" "$(WEIR_OUTPUT=json on_terminal 80 "$WEIR" streams | head -c 10)" '{"stream":'
is "WEIR_OUTPUT=text holds in a pipe" "$(WEIR_OUTPUT=text weir streams | head -c 6)" STREAM
status "any other WEIR_OUTPUT is wrong usage" 2 env WEIR_OUTPUT=bogus "$WEIR" streams
like "and says what is allowed" "$errout" 'WEIR_OUTPUT is text or json, not .*bogus'
ok "an empty one counts as none" env WEIR_OUTPUT= "$WEIR" streams
is "--json counts more" "$(WEIR_OUTPUT=text weir streams --json | head -c 10)" '{"stream":'
status "a colour that is none" 2 weir streams --color blue
like "is refused with what there is" "$errout" 'auto, always or never'
cat >weir.yaml <<'END'
reactions: [{ name: fail, on: OrderPlaced, to: "mail-{stream}", run: "echo no route >&2; exit 65", from: start }]
END
weir work --until-idle >/dev/null 2>&1
red=$(printf '\033[1;31mblocked\033[0m')
like "a state has a colour on a terminal" "$(on_terminal 80 "$WEIR" targets | tr -d '[')" "$(tr -d '[' <<<"$red")"
for never in "NO_COLOR=1" "TERM=dumb"; do
    is "no colour with $never" "$(env -u COLUMNS TERM=xterm "$never" python3 "$WEIR_SOURCE/tests/e2e/on_terminal.py" 80 "$WEIR" targets | grep -c "$(printf '\033')")" 0
done
is "nor in a pipe" "$(weir targets --text | grep -c "$(printf '\033')")" 0
is "unless it is asked for" "$(weir targets --text --color always | grep -c "$(printf '\033')")" 1
is "the line that matters of an error" "$(weir targets --text | awk 'NR == 2 { print $NF, $(NF - 1) }')" "route no"
cd .. || exit 1

# ---- closed standard files ---------------------------------------------------------------------

ok "without stdin, stdout and stderr" bash -c '"$WEIR" append closed N <&- >&- 2>&-'
is "the store is whole" "$(sqlite3 weir.db 'PRAGMA integrity_check')" ok
ok "and has the event" weir read closed

# ---- progress ----------------------------------------------------------------------------------

# A pipe that is held open until the progress has been seen: it must come after a second.
cat >progress.py <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
child = subprocess.Popen([sys.argv[1], "append", "--batch", "-", "--store", "memory:"],
                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=slave)
os.close(slave)
os.set_blocking(master, False)
seen = b""
while b" lines, " not in seen:
    child.stdin.write(b'{"stream":"s","name":"N"}\n' * 100)
    child.stdin.flush()
    try:
        seen += os.read(master, 65536)
    except BlockingIOError:
        pass
child.stdin.close()
os.set_blocking(master, True)
try:
    while data := os.read(master, 65536):
        seen += data
except OSError:
    pass
code = child.wait()
print(seen.split(b"\r\x1b[K")[1].decode())
print("wiped" if seen.endswith(b"\r\x1b[K") else "left")
sys.exit(code)
END
ok "a batch on a terminal shows progress" timeout 60 python3 progress.py "$WEIR"
like "count and rate" "$out" '^[0-9]+ lines, [0-9]+/s'
like "and wipes it at the end" "$out" 'wiped$'

done_testing
