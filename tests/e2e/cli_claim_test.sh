#!/usr/bin/env bash
# cli_claim_test.sh - weir claim, done, fail, release and extend on a table of the user's: every option,
# every exit status; commands for rows (--run) that succeed, fail, hang, die and flood, with claimers that
# are told to stop, killed, or cut off; rows that are held (--hold). Commands are held up by files, never
# by time.
#
#   cli_claim_test.sh [postgres]    on SQLite files, or in databases of $WEIR_TEST_POSTGRES
# shellcheck disable=SC2016,SC1010 # commands expand for themselves; done is one of ours
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
cd "$tmp" || exit 1
mkdir bin && ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$PATH
kind=${1:-sqlite}

if [ "$kind" = postgres ]; then
    export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres PATH=$WEIR_TEST_PG_BIN:$PATH
    sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -d "$place" -c "$1"; }
    text=text time='timestamptz'
else
    sql() { sqlite3 -cmd '.timeout 10000' "$place.db" "$1"; }
    text=TEXT time='INTEGER'
fi
# A directory and a database of its own, with a table of jobs: three that are pending.
fresh() {
    mkdir "$tmp/$1" && cd "$tmp/$1" || exit 1
    place=$1
    if [ "$kind" = postgres ]; then
        createdb "$1"
        export WEIR_STORE="postgres:///$1"
    else
        export WEIR_STORE=sqlite:$1.db
    fi
    sql "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status $text NOT NULL DEFAULT 'pending', n INTEGER,
         customer $text, claimed_by $text, claimed_at $time, locked_until $time, fence INTEGER NOT NULL DEFAULT 0,
         tries INTEGER NOT NULL DEFAULT 0)"
    sql "INSERT INTO jobs (id, n, customer) VALUES (1, 10, 'a'), (2, 20, 'a'), (3, 30, 'b')"
}
member() { python3 -c 'import json, sys
for line in sys.stdin:
    value = json.loads(line)
    for name in sys.argv[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    print(value)' "$1"; }
all() { sql "SELECT id || ' ' || status FROM jobs ORDER BY id" | tr '\n' ','; }
row() { sql "SELECT $2 FROM jobs WHERE id = $1"; }
pending=(--table jobs --where "status = 'pending'" --set status=claimed)
# begin ARGUMENT...: weir claim in the background; its pid in $pid, its output in claim.out and claim.err.
begin() {
    rm -f claim.out claim.err
    weir claim "$@" >claim.out 2>claim.err &
    pid=$!
    spawned $pid
}
# A command that says that it runs, and waits for the file go.
cat >"$tmp/hold" <<'END'
#!/bin/sh
read -r row
id=$(echo "$row" | sed 's/^{"id":\([0-9]*\),.*/\1/')
touch "began.$id"
until [ -e go ]; do sleep 0.02; done
echo "ran $id"
END
chmod +x "$tmp/hold"

# ---- claiming ----------------------------------------------------------------------------------

fresh claiming
ok "claim" weir claim "${pending[@]}" --by w1
is "prints the row as it is then" "$(member id <<<"$out") $(member status <<<"$out") $(member claimed_by <<<"$out") $(member n <<<"$out")" "1 claimed w1 10"
like "one flat object" "$out" '^\{"id":1,"status":"claimed","n":10,"customer":"a","claimed_by":"w1","claimed_at":[^,]*,"locked_until":null,"fence":0,"tries":0\}$'
is "which it is" "$(all)" "1 claimed,2 pending,3 pending,"
ok "as text" weir claim "${pending[@]}" --by w1 --text
like "it is a table" "$out" $'^ID +STATUS +N .*\n2 +claimed +20 '
ok "the last" weir claim "${pending[@]}" --limit 10
is "fewer than asked for: no more were free" "$(member id <<<"$out")" 3
status "nothing to claim is exit status 3" 3 weir claim "${pending[@]}"
is "and quiet, but on a terminal" "$out$errout" ""
status "where it is said" 3 weir claim "${pending[@]}" --text
is "in words" "$errout" "weir: nothing to claim"

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, claimed_at = NULL"
ok "order and limit" weir claim "${pending[@]}" --order 'customer desc, n desc' --limit 2
is "as asked" "$(member id <<<"$out" | tr '\n' ' ')" "3 2 "
ok "parameters" weir claim --table jobs --where 'n < :most' --param most=15 --set status=mine --set-sql 'n=n + :more' --param more=5
is "are values" "$(row 1 "status || ' ' || n")" "mine 15"
status "one that is used nowhere is an error" 1 weir claim "${pending[@]}" --param most=15
like "that names it" "$errout" '--param: :most is used nowhere'
status "so is one that is missing" 1 weir claim --table jobs --where "status = 'pending' AND n > :least" --set status=mine
ok "a value is no SQL" weir claim --table jobs --where "id = 2 AND status = 'claimed'" --set "status='; DROP TABLE jobs; --"
is "whatever it looks like" "$(row 2 status)" "'; DROP TABLE jobs; --"

sql "UPDATE jobs SET status = 'pending'"
ok "other columns" weir claim "${pending[@]}" --by me --by-column customer --at-column ''
is "are written" "$(row 1 customer)" me
ok "attempts and fences" weir claim --table jobs --where 'id = 3 AND tries = 0' --by w --fence-column fence --attempts-column tries
is "are counted" "$(member fence <<<"$out") $(member tries <<<"$out")" "1 1"
sql "UPDATE jobs SET status = 'pending', customer = 'a'"
ok "at most so many for each value" weir claim "${pending[@]}" --max-per customer=2 --limit 3
is "are held" "$(wc -l <<<"$out")" 2
status "then none is free" 3 weir claim "${pending[@]}" --max-per customer=2
ok "the portable path" weir claim "${pending[@]}" --path portable
is "gives the same" "$(member id <<<"$out")" 3

# ---- leases, and ends --------------------------------------------------------------------------

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, fence = 0"
ok "a lease" weir claim "${pending[@]}" --by w1 --lease 1h --fence-column fence
is "has an end" "$(row 1 'locked_until IS NOT NULL AND fence = 1')" "$([ "$kind" = postgres ] && echo t || echo 1)"
status "somebody else's is exit status 4" 4 weir done jobs 1 --by w2 --set status=done
like "and says whose it is" "$errout" '"code":"lost".*it is \\"w1\\"'
status "a stale fence, too" 4 weir done jobs 1 --by w1 --fence 0 --fence-column fence --set status=done
like "and says so" "$errout" 'fence is 1, not 0'
status "no such row is exit status 3" 3 weir done jobs 99 --by w1 --set status=done
ok "extend" weir extend jobs 1 --by w1 --lease 2h
ok "done" weir done jobs 1 --by w1 --fence 1 --fence-column fence --set status=done --set-sql 'n=n + :m' --param m=1
is "prints the row" "$(member status <<<"$out") $(member locked_until <<<"$out") $(member claimed_by <<<"$out")" "done None w1"
ok "another" weir claim "${pending[@]}" --by w1 --lease 1h
ok "fail" weir fail jobs 2 --by w1 --set status=failed
is "is written" "$(row 2 status)" failed
ok "a third" weir claim "${pending[@]}" --by w1 --lease 1h
status "it is held" 3 weir claim "${pending[@]}" --by w2 --lease 1h
ok "release" weir release jobs 3 --by w1
ok "is free at once" weir claim "${pending[@]}" --by w2 --lease 1s
is "for others" "$(member id <<<"$out") $(member claimed_by <<<"$out")" "3 w2"
ok "and so is what a dead worker had, when its lease ends" \
    wait_for "the end of the lease" weir claim "${pending[@]}" --by w3 --lease 1h
is "for one" "$(row 3 claimed_by)" w3
status "its holder is refused" 4 weir extend jobs 3 --by w2 --lease 1h
sql "UPDATE jobs SET status = 'claimed', claimed_by = 'w1', locked_until = NULL"
status "several rows, one of which is another's" 4 bash -c 'weir release jobs 1 2 3 --by w1 --set status=pending >released; rc=$?; [ "$(wc -l <released)" = 3 ] || exit 1; weir release jobs 1 --by w1; exit $?'

sql "CREATE TABLE pairs (a INTEGER, b $text, state $text, claimed_by $text, PRIMARY KEY (b, a))"
sql "INSERT INTO pairs VALUES (1, 'x', 'new', NULL), (2, 'y', 'new', NULL)"
ok "a key of two columns" weir claim --table pairs --where "state = 'new'" --set state=taken --by w --at-column ''
status "half of it is wrong usage" 2 weir done pairs x --by w --set state=done
like "and says so" "$errout" 'has 2 parts'
ok "both, in the order of the key" weir done pairs x 1 --by w --set state=done
is "name a row" "$(sql "SELECT state FROM pairs WHERE a = 1")" "done"

# ---- what would happen -------------------------------------------------------------------------

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, locked_until = NULL"
before=$(all)
ok "a dry run" weir claim "${pending[@]}" --limit 2 --dry-run
is "prints rows as they are" "$(member status <<<"$out" | tr '\n' ' ')" "pending pending "
ok "the SQL" weir claim "${pending[@]}" --by "o'hara" --lease 5m --sql
like "with values as literals" "$out" "'o''hara'"
is "neither changes anything" "$(all)" "$before"
status "a dry run of nothing" 3 weir claim --table jobs --where "status = 'none'" --set status=x --dry-run
ok "with a command it is not run" weir claim "${pending[@]}" --run 'touch was-run' --dry-run
not_ok "really" test -e was-run
printf '%s\n' "$(weir claim "${pending[@]}" --sql)" >claim.sql
if [ "$kind" = postgres ]; then psql -X -q -d claiming -f claim.sql >/dev/null; else sqlite3 claiming.db <claim.sql >/dev/null; fi
is "what is printed claims" "$(all)" "1 claimed,2 pending,3 pending,"

# ---- wrong flags, wrong names ------------------------------------------------------------------

usage() {
    local pattern=$1
    shift
    status "wrong usage: weir $*" 2 weir "$@"
    like "it says so" "$errout" "$pattern"
}
usage 'which table' claim --where "status = 'pending'" --set status=x
usage 'exclude each other' claim jobs --table jobs --set status=x
usage 'nothing would show that a row is claimed' claim --table jobs --where 'n > 0'
usage 'exclude each other' claim "${pending[@]}" --wait --nowait
usage 'abc.. is no duration' claim "${pending[@]}" --wait abc
usage 'exclude each other' claim "${pending[@]}" --dry-run --sql
usage 'needs --run' claim "${pending[@]}" --done status=done
usage 'needs --run' claim "${pending[@]}" --parallel 2
usage '--hold needs --run' claim --table jobs --hold
usage '--hold and --set exclude' claim "${pending[@]}" --hold --run true
usage '--hold and --fail exclude' claim --table jobs --hold --run true --fail status=failed
usage 'COLUMN=VALUE' claim --table jobs --set status
usage 'COLUMN=VALUE' claim --table jobs --set =x
usage 'desc or asc' claim "${pending[@]}" --order '"n" down'
usage 'a column is missing' claim "${pending[@]}" --order 'n,'
usage 'closing quote' claim "${pending[@]}" --order '"n'
usage 'with N from 1' claim "${pending[@]}" --max-per customer=0
usage 'default, fast or portable' claim "${pending[@]}" --path quick
usage 'number from 0' claim "${pending[@]}" --limit x
usage 'from 1 to 10000' claim "${pending[@]}" --limit 10001
usage 'from 1 to 10000' claim "${pending[@]}" --limit 0
usage 'a duration' claim "${pending[@]}" --lease 5
usage 'from 1 to 256' claim "${pending[@]}" --run true --parallel 0
usage 'unexpected argument' claim jobs more
usage 'too few arguments' done jobs --by w
usage '--by ID or --fence N' done jobs 1 --set status=x
usage 'needs --fence-column' done jobs 1 --fence 3 --set status=x
usage 'needs --lease' extend jobs 1 --by w
usage 'unknown option' extend jobs 1 --by w --set status=x
wrong() {
    local pattern=$1
    shift
    status "an error: weir $*" 1 weir "$@"
    like "it names what is wrong" "$errout" "$pattern"
}
wrong 'there is no table .*near it: ..jobs' claim --table job --set status=x
wrong '--set: no column' claim "${pending[@]}" --set state=x
wrong 'looks at nothing that the claim writes' claim --table jobs --where 'n > 0' --set status=x
wrong '--by-column: no column' claim "${pending[@]}" --by w --by-column owner
wrong '--order: no column' claim "${pending[@]}" --order nn
wrong '--fence-column: ' claim "${pending[@]}" --by w --fence-column fences
wrong '--lease-column: ' claim "${pending[@]}" --lease 1m --lease-column until
wrong 'there is no table' done nowhere 1 --by w --set status=x
wrong 'syntax|incomplete' claim --table jobs --where 'status >' --set status=x
wrong 'where' claim --table jobs --where "status = '" --set status=x
sql "CREATE VIEW seen AS SELECT id, status FROM jobs"
wrong 'view' claim --table seen --set status=x
sql "CREATE TABLE bare (a INTEGER)"
wrong 'primary key' claim --table bare --set a=1
if [ "$kind" = sqlite ]; then
    wrong 'there is no database' claim "${pending[@]}" --store sqlite:none.db
    not_ok "which is not made" test -e none.db
    wrong '.' claim "${pending[@]}" --store memory:
    printf 'this is no database, and longer than its head, which has a hundred bytes; so here are some more of them' >rubbish.db
    wrong 'not an SQLite database' claim "${pending[@]}" --store sqlite:rubbish.db
    if [ "$(id -u)" != 0 ]; then
        chmod 400 claiming.db
        wrong '.' claim "${pending[@]}"
        chmod 600 claiming.db
    fi
else
    wrong '.' claim "${pending[@]}" --store "postgres:///nowhere"
    wrong '"code":"unavailable"' claim "${pending[@]}" --store "postgres:///postgres?host=$tmp/none"
    PGOPTIONS='-c default_transaction_read_only=on' status "a database that may only be read" 1 weir claim "${pending[@]}"
fi

# ---- commands for rows -------------------------------------------------------------------------

fresh running
ends=(--done status=done --fail status=failed)
ok "a command for each" weir claim "${pending[@]}" --limit 3 --run 'cat; echo to stderr >&2' "${ends[@]}"
is "has the row on stdin, and its stdout is ours" "$(member id <<<"$out" | tr '\n' ' ')" "1 2 3 "
is "its stderr, too" "$(grep -c '^to stderr$' <<<"$errout")" 3
is "its success is written" "$(all)" "1 done,2 done,3 done,"
like "by a holder that was made up" "$(row 1 claimed_by)" "^$(hostname)-[0-9]+-[0-9a-f]{8}$"
status "nothing to run it for" 3 weir claim "${pending[@]}" --run 'touch was-run' "${ends[@]}"
not_ok "then it is not run" test -e was-run

sql "UPDATE jobs SET status = 'pending'"
status "one of three fails: exit status 1" 1 weir claim "${pending[@]}" --limit 3 --run 'read -r row; case $row in *\"id\":2,*) echo why >&2; exit 7 ;; esac' "${ends[@]}"
is "the others stand" "$(all)" "1 done,2 failed,3 done,"
like "it is told which, and why" "$errout" '\{"row":\{"id":2\},"outcome":"failed","why":"[^"]*exited with 7"\}'
sql "UPDATE jobs SET status = 'pending'"
status "killed by a signal" 1 weir claim "${pending[@]}" --run 'kill -9 $$' "${ends[@]}" --text
like "as text" "$errout" 'weir: claim: \{"id":1\} failed: .*killed by signal 9'
status "hangs" 1 weir claim "${pending[@]}" --run 'sleep 600' --deadline 200ms "${ends[@]}"
like "is ended by its deadline" "$errout" '"row":\{"id":2\}.*deadline'
status "floods" 1 weir claim "${pending[@]}" --run 'tr "\0" x </dev/zero' "${ends[@]}"
like "is ended for that" "$errout" 'a line of more than'
is "each costs its row a failure" "$(all)" "1 failed,2 failed,3 failed,"
sql "UPDATE jobs SET status = 'pending'"
status "a command that fails" 1 weir claim "${pending[@]}" --limit 3 --run 'read -r row; case $row in *\"id\":2,*) exit 1 ;; esac' "${ends[@]}"
is "is counted apart" "$(tail -n 1 <<<"$errout")" '{"note":"2 done, 1 failed, 0 left"}'
sql "UPDATE jobs SET status = 'pending', claimed_by = NULL"
status "a command that is not there" 1 weir claim "${pending[@]}" --run /nowhere/to/be/found "${ends[@]}"
like "says so" "$errout" 'exited with 127'
ok "without --done the row stays claimed" weir claim "${pending[@]}" --run true
is "for the command itself to write" "$(all)" "1 failed,2 claimed,3 pending,"
ok "what a command prints is its own" weir claim "${pending[@]}" --run 'echo "{\"retry\":\"x\"}"; exit 0' "${ends[@]}"
is "and no answer to us" "$(row 3 status)" "done"

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL"
begin "${pending[@]}" --limit 3 --parallel 2 --run "$tmp/hold" "${ends[@]}"
ok "two at once" wait_for "both" test -e began.1 -a -e began.2
not_ok "not three" test -e began.3
touch go
ended claim.err
is "all succeed" "$rc $(all)" "0 1 done,2 done,3 done,"
is "the last line says how many" "$(tail -n 1 claim.err)" '{"note":"3 done, 0 failed, 0 left"}'
is "lines are whole" "$(sort claim.out | tr '\n' ,)" "ran 1,ran 2,ran 3,"
rm -f go began.*

# A lease that is much shorter than the command is renewed.
sql "UPDATE jobs SET status = 'pending', claimed_by = NULL"
begin "${pending[@]}" --limit 2 --lease 1s --fence-column fence --run "$tmp/hold" "${ends[@]}"
ok "a command under a lease" wait_for "it" test -e began.1
end=$(row 1 locked_until)
ok "which is renewed" wait_for "a renewal" bash -c '! [ "$("$@")" = '"'$end'"' ]' - env bash -c "$(declare -f sql row); kind=$kind place=$place; row 1 locked_until"
end=$(row 2 locked_until)
ok "also while the row waits for its turn" wait_for "a renewal" bash -c '! [ "$("$@")" = '"'$end'"' ]' - env bash -c "$(declare -f sql row); kind=$kind place=$place; row 2 locked_until"
status "nobody else is given it" 3 weir claim --table jobs --where "status = 'pending' AND id < 3" --set status=claimed --lease 1s --by other
# Another takes it all the same: by force.
sql "UPDATE jobs SET claimed_by = 'thief', fence = fence + 1 WHERE id = 1"
ok "a command that lost its row is ended" wait_for "that" grep -q '"row":{"id":1},"outcome":"lost"' claim.err
like "and it is told to whom" "$(cat claim.err)" 'thief'
touch go
ended claim.err
is "the rest goes on" "$rc $(row 1 "status || ' ' || claimed_by") $(row 2 status)" "1 claimed thief done"
rm -f go began.*

# The row is taken while its command ends: what it says is refused.
sql "UPDATE jobs SET status = 'pending', claimed_by = NULL"
status "a late finisher" 1 weir claim "${pending[@]}" --run "$([ "$kind" = postgres ] && echo "psql -X -q -d $place -c" || echo "sqlite3 $place.db") \"UPDATE jobs SET claimed_by = 'thief' WHERE id = 1\"" "${ends[@]}"
like "is told so" "$errout" '"outcome":"lost","why":"the command has succeeded.*thief'
is "and writes nothing" "$(row 1 "status || ' ' || claimed_by")" "claimed thief"

# ---- a claimer that is stopped, or killed ------------------------------------------------------

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, locked_until = NULL"
begin "${pending[@]}" --limit 3 --lease 1h --run "$tmp/hold" "${ends[@]}"
wait_for "the first" test -e began.1
kill -TERM $pid
ok "SIGTERM gives back what was not begun" wait_for "that" grep -q '"row":{"id":3},"outcome":"released"' claim.err
ok "which others can claim at once" weir claim "${pending[@]}" --by other --lease 1h
is "there it is" "$(member claimed_by <<<"$out")" other
touch go
ended claim.err
is "and lets the one that runs end" "$rc $(row 1 status)" "1 done"
rm -f go began.*
sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, locked_until = NULL"
begin "${pending[@]}" --limit 1 --run "$tmp/hold" "${ends[@]}" --budget 100ms --release status=pending
wait_for "it" test -e began.1
kill -INT $pid
ended claim.err
is "a budget that is over ends it, and gives its row back" "$rc $(all)" "1 1 pending,2 pending,3 pending,"
like "and says so" "$(cat claim.err)" '"row":\{"id":1\},"outcome":"released"'
is "nobody holds it" "$(row 1 'claimed_by IS NULL')" "$([ "$kind" = postgres ] && echo t || echo 1)"
rm -f began.*
begin "${pending[@]}" --limit 2 --run "$tmp/hold" "${ends[@]}" --budget 1h --release status=pending
wait_for "it" test -e began.1
kill -TERM $pid
wait_for "that it was heard" grep -q '"row":{"id":2},"outcome":"released"' claim.err
kill -TERM $pid
ended claim.err
is "a second signal does not wait for the budget" "$rc $(all)" "1 1 pending,2 pending,3 pending,"

# Nobody reads what commands print: a stop, as by a signal.
unread() { timeout 20 weir claim "$@" 2>claim.err | head -n 1 >claim.out; rc=${PIPESTATUS[0]}; }
unread "${pending[@]}" --limit 3 --run 'while :; do echo y; done' "${ends[@]}" --budget 100ms --release status=pending
is "a command that nobody reads is ended with the budget" "$rc $(cat claim.out) $(all)" "1 y 1 pending,2 pending,3 pending,"
is "and what was not begun is given back" "$(grep -c 'not begun before the stop' claim.err)" 2
rm -f began.*

sql "UPDATE jobs SET status = 'done' WHERE id = 3"
begin "${pending[@]}" --limit 2 --lease 1s --run "echo \$\$ >child.pid; exec $tmp/hold" "${ends[@]}"
wait_for "it" test -e began.1
child=$(cat child.pid)
kill -9 $pid
ended claim.err
ok "kill -9 ends the command, too" wait_for "its end" bash -c "! kill -0 $child"
ok "the lease of what it had ends" wait_for "that" weir claim "${pending[@]}" --by next --lease 1h
is "and another takes it, first of all" "$(row 1 claimed_by)" next

# Stopped past its lease. It is stopped after a renewal, when it has nothing locked.
sql "UPDATE jobs SET status = 'done'"
sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, locked_until = NULL WHERE id = 1"
rm -f began.* c1 c2
begin "${pending[@]}" --lease 2s --fence-column fence --run 'echo $$ >c1; setsid sh -c "echo \$\$ >c2; exec sleep 600" &
    until [ -s c2 ]; do sleep 0.01; done; exec '"$tmp/hold" "${ends[@]}"
wait_for "it" test -e began.1
end=$(row 1 locked_until)
wait_for "a renewal" bash -c '! [ "$("$@")" = '"'$end'"' ]' - env bash -c "$(declare -f sql row); kind=$kind place=$place; row 1 locked_until"
kill -STOP $pid
c1=$(cat c1) c2=$(cat c2)
ok "the row of a claimer that is stopped goes to another" wait_for "it" weir claim "${pending[@]}" --lease 1h --fence-column fence \
    --run "kill -0 $c1 2>/dev/null && touch both; kill -0 $c2 2>/dev/null && touch both; true" --done status=second
is "C38_a_stopped_claimer_has_no_command_when_its_lease_ends" "$(ls both 2>/dev/null)" ""
kill -CONT $pid
ended claim.err
is "and hears of it" "$rc $(grep -c '"row":{"id":1},"outcome":"lost"' claim.err) $(row 1 status)" "1 1 second"
rm -f began.*

# ---- rows that are held ------------------------------------------------------------------------

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, locked_until = NULL, n = id"
hold=(--table jobs --where "status = 'pending'" --hold)
ok "held, and what it prints last is written" weir claim "${hold[@]}" --run 'read -r row; echo seen; echo "{\"set\":{\"n\":77,\"customer\":null}}"' --done status=done
is "with --done, in one transaction" "$(row 1 "status || ' ' || n || ' ' || coalesce(customer, 'none')")" "done 77 none"
is "that line is not ours to print" "$out" seen
ok "without anything to write" weir claim "${hold[@]}" --run 'cat >got'
is "nothing is" "$(all)" "1 done,2 pending,3 pending,"
is "it had its row" "$(member id <got)" 2
status "a failure" 1 weir claim "${hold[@]}" --run 'echo "{\"set\":{\"n\":0}}"; exit 3' --done status=done
is "leaves the row untouched" "$(all) $(row 2 n)" "1 done,2 pending,3 pending, 2"
status "a column that is not there" 1 weir claim "${hold[@]}" --run 'echo "{\"set\":{\"m\":0}}"' --done status=done
like "is told" "$errout" 'no column ..m'
status "rubbish" 1 weir claim "${hold[@]}" --run 'echo "{\"set\":5}"'
like "is told" "$errout" 'must be an object'
is "and neither is half written" "$(all)" "1 done,2 pending,3 pending,"
# says LINE [ARGUMENT...]: a held row whose command prints this line last.
says() {
    printf '%s\n' "$1" >said
    shift
    weir claim "${hold[@]}" --run 'cat said' "$@"
}
status "an answer that cannot be read is a failure" 1 says '{"set":{"customer":"a\u0000b"}}' --done status=done
like "which says what is wrong with it" "$errout" '"outcome":"failed","why":".*no valid \{\\"set\\":\{\.\.\.\}\}: invalid JSON at byte [0-9]+: .*"'
status "one that was cut off" 1 says '{"set":{"n":5}' --done status=done
like "as well" "$errout" 'no valid .*: invalid JSON at byte 14: '
status "after white space, between its tokens too" 1 says '	 { "set" : nothing' --done status=done
like "as well" "$errout" 'invalid JSON at byte'
status "in front of blank lines" 1 says $'{"set"\n \n\n' --done status=done
like "as well" "$errout" 'invalid JSON at byte'
status "a column twice" 1 says '{"set":{"n":5,"customer":"c","\u006e":6}}' --done status=done
like "is told, too" "$errout" 'names column \\"n\\" twice'
status "two answers in one" 1 says '{"set":{"n":5},"set":{"customer":"c"}}' --done status=done
like "the same" "$errout" 'has \\"set\\" twice'
status "a column that --done writes" 1 says '{"set":{"n":5,"status":"mine"}}' --done status=done
like "belongs to one of the two" "$errout" 'column \\"status\\" is in .* and in --done: leave it to one of the two'
status "or --done-sql" 1 says '{"set":{"n":5}}' --done status=done --done-sql n=n+1
like "likewise" "$errout" 'column \\"n\\" is in .* and in --done-sql: leave it to one of the two'
status "or both of them" 1 says seen --done n=5 --done-sql n=n+1
like "likewise" "$errout" 'column \\"n\\" is written twice: by --done and by --done-sql'
status "a number that is larger than the column can have" 1 says '{"set":{"n":1e400}}' --done status=done
if [ "$kind" = sqlite ]; then
    like "by its name" "$errout" '1e400 is too large a number for column \\"n\\"'
fi
is "all of these roll back" "$(all) $(row 2 "n || ' ' || coalesce(customer, 'none')")" "1 done,2 pending,3 pending, 2 a"
ok "SQL may end with a comment" says seen --done-sql 'n=n -- as it was'
ok "others are output" says '{"sets":' --limit 1
is "as they are" "$out" '{"sets":'
ok "so is one that is not the last" says $'{"set":\n\nseen'
is "with what follows it" "$out" $'{"set":\n\nseen'
ok "blank lines after an answer" says $'seen\n{"set":{"n":78}}\n \n'
is "do not make it output" "$out $(row 2 n)" "seen 78"
sql "UPDATE jobs SET n = id WHERE id = 2"
status "several, of which one fails" 1 weir claim "${hold[@]}" --limit 5 --parallel 2 --run 'read -r row; case $row in *\"id\":2,*) exit 1 ;; esac' --done status=done
is "and is not tried twice" "$(all) $(grep -c outcome <<<"$errout")" "1 done,2 pending,3 done, 1"
status "nothing to hold" 3 weir claim --table jobs --where 'n < 0' --hold --run true
begin "${hold[@]}" --run "$tmp/hold"
wait_for "it" test -e began.2
if [ "$kind" = postgres ]; then
    status "it is locked: skipped" 3 weir claim "${hold[@]}" --run true
    status "or exit status 75" 75 weir claim "${hold[@]}" --run true --nowait
    like "in our words" "$errout" 'someone else holds rows of .*jobs'
    is "and no others" "$(grep -c 'could not obtain' <<<"$errout")" 0
    status "after a wait, too" 75 weir claim "${hold[@]}" --run true --wait 200ms
    like "in the same words" "$errout" 'someone else holds rows of .*jobs'
    status "a claim that is not held the same" 75 weir claim "${pending[@]}" --nowait
    like "in the same words" "$errout" 'someone else holds rows of .*jobs'
fi
kill -9 $pid
ended claim.err
ok "a claimer that is killed has held nothing" wait_for "the row" weir claim "${hold[@]}" --run true --done status=after
is "its row is as it was" "$(row 2 status)" after
rm -f began.*
if [ "$kind" = postgres ]; then
    # Its supervisor is slow to end the command.
    sql "UPDATE jobs SET status = 'pending' WHERE id = 2"
    begin "${hold[@]}" --run "echo \$PPID >s; echo \$\$ >c1; exec $tmp/hold"
    wait_for "it" test -e began.2
    kill -STOP "$(cat s)"
    kill -9 $pid
    ended claim.err
    status "C38_a_held_row_is_locked_while_a_process_of_its_command_lives" 3 weir claim "${hold[@]}" --run true
    kill -CONT "$(cat s)"
    ok "and free then" wait_for "the row" weir claim "${hold[@]}" --run "! kill -0 $(cat c1)" --done status=after
    rm -f began.*
fi
sql "UPDATE jobs SET status = 'pending'"
begin "${hold[@]}" --run "$tmp/hold" --done status=done --budget 100ms
wait_for "it" test -e began.1
kill -TERM $pid
ended claim.err
is "SIGTERM and the end of the budget roll back" "$rc $(all)" "1 1 pending,2 pending,3 pending,"
unread "${hold[@]}" --run 'while :; do echo y; done' --done status=done --budget 100ms
is "and so does a reader that has gone" "$rc $(cat claim.out) $(all)" "1 y 1 pending,2 pending,3 pending,"
rm -f began.*

# ---- a command that writes its own row over a connection of its own ----------------------------

sql "UPDATE jobs SET status = 'pending', n = id, customer = 'a'"
if [ "$kind" = postgres ]; then
    own="read -r row; psql -X -q -d $place -c \"UPDATE jobs SET n = 1000 WHERE id = 1\"; touch after"
    status "it would wait for its parent for ever, and is ended" 1 timeout 30 weir claim "${hold[@]}" --run "$own"
    like "with an error that says exactly this" "$errout" '"row":\{"id":1\},"outcome":"failed","why":"the command was waiting for its own row, which is locked by the transaction that waits for the command .*\{\\"set\\":\{\\"amount\\":5\}\}"'
    is "its statement does not go on afterwards" "$(sql "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^UPDATE jobs SET n = 1000' AND state <> 'idle'") $(row 1 n)" "0 1"
    status "whatever it says then" 1 timeout 30 weir claim "${hold[@]}" --run "$own; exit 0"
    is "nothing is written" "$(row 1 n)" 1
    # Somebody else waits for the row first, and the command behind them.
    cat >behind <<END
read -r row
psql -X -q -d $place -c "UPDATE jobs SET n = n + 1 WHERE id = 1" &
until [ "\$(psql -X -A -t -d $place -c "SELECT count(*) FROM pg_locks WHERE NOT granted")" -ge 1 ]; do sleep 0.05; done
PGAPPNAME="\$PGAPPNAME too" psql -X -q -d $place -c "UPDATE jobs SET n = n + 1 WHERE id = 1"
END
    PGAPPNAME=mine status "also behind others" 1 timeout 30 weir claim "${hold[@]}" --run 'sh ./behind'
    like "with the same words" "$errout" 'waiting for its own row'
    is "and nothing of it is left" "$(sql "SELECT count(*) FROM pg_locks WHERE NOT granted") $(row 1 n)" "0 1"
    # Others who wait for the row are no fault of the command.
    begin "${hold[@]}" --run "$tmp/hold" --done status=done
    wait_for "it" test -e began.1
    psql -X -q -d "$place" -c "UPDATE jobs SET n = 50 WHERE id = 1" &
    other=$!
    spawned $other
    ok "somebody else waits for the row" wait_for "them" bash -c '[ "$(psql -X -A -t -d '"$place"' -c "SELECT count(*) FROM pg_locks WHERE NOT granted")" -ge 1 ]'
    sql "SELECT pg_sleep(0.5)" >/dev/null # two looks of ours
    touch go
    ended claim.err
    wait $other
    is "and is no reason to end it" "$rc $(row 1 "status || ' ' || n")" "0 done 50"
    rm -f go began.*
    # The connection that holds the row is lost.
    sql "UPDATE jobs SET status = 'pending', n = id"
    begin "${hold[@]}" --run "$tmp/hold" --done status=done
    wait_for "it" test -e began.1
    sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weir' AND state = 'idle in transaction'" >/dev/null
    ended claim.err
    is "a command that lost its row is ended" "$rc $(row 1 status)" "1 pending"
    like "which is told" "$(cat claim.err)" 'the connection that held the row was lost'
    rm -f began.*
else
    status "it gets what SQLite says, and an explanation" 1 weir claim "${hold[@]}" --run "sqlite3 $place.db 'UPDATE jobs SET n = 1000 WHERE id = 1'"
    like "which is this" "$errout" 'database is locked.*"row":\{"id":1\}.*while its row is held nobody else can write.*amount'
    is "nothing is written" "$(row 1 n)" 1
fi

# ---- weir lock --table -------------------------------------------------------------------------

ok "a row is locked by its key" weir lock --table jobs --id 2 -- sh -c 'cat >got; echo "{\"set\":{\"n\":8}}"'
is "it is on stdin, and what is printed last is written" "$(member id <got) $(row 2 n) $out" "2 8 "
status "the exit status is the program's" 9 weir lock --table jobs --id 2 -- sh -c 'echo "{\"set\":{\"n\":9}}"; exit 9'
is "which rolls back, without words" "$(row 2 n) $errout" "8 "
status "an answer that cannot be read is one of ours" 1 weir lock --table jobs --id 2 -- echo '{"set":{"n":9}'
like "with words" "$errout" 'invalid JSON at byte'
is "and rolls back" "$(row 2 n)" 8
status "a program that is not there" 127 weir lock --table jobs --id 2 -- /nowhere/to/be/found
status "killed by a signal" 143 weir lock --table jobs --id 2 -- sh -c 'kill -TERM $$'
status "no such row is exit status 3" 3 weir lock --table jobs --id 99 -- touch was-run
status "no such table is an error" 1 weir lock --table nowhere --id 99 -- touch was-run
not_ok "then nothing is run" test -e was-run
status "who comes second" 75 weir lock --table jobs --id 2 -- weir lock --table jobs --id 2 -- true
status "or another status" 7 weir lock --table jobs --id 2 -- weir lock --table jobs --id 2 --held-exit 7 -- true
status "a wait that is over" 75 weir lock --table jobs --id 2 -- weir lock --table jobs --id 2 --wait 100ms -- true
sql "UPDATE jobs SET n = 0 WHERE id = 2"
weir lock --table jobs --id 2 -- sh -c 'read -r row; touch began.lock; until [ -e go ]; do sleep 0.02; done; echo "{\"set\":{\"n\":1}}"' &
pid=$!
spawned $pid
wait_for "the first" test -e began.lock
weir lock --table jobs --id 2 --wait -- cat >second &
other=$!
spawned $other
touch go
wait $pid && wait $other
is "who waits sees what was committed" "$? $(member n <second)" "0 1"
rm -f go
sql "CREATE TABLE pairs (a INTEGER, b $text, PRIMARY KEY (b, a))"
sql "INSERT INTO pairs VALUES (1, 'x')"
ok "a key of two columns" weir lock --table pairs --id x --id 1 -- cat
is "names one row" "$out" '{"a":1,"b":"x"}'
usage '--id KEY' lock --table jobs -- true
usage '--table NAME' lock --id 3 -- true
usage 'exclude each other' lock name --table jobs --id 3 -- true
usage 'too few arguments' lock --table jobs --id 3
usage 'has 1 parts, and 2 were given' lock --table jobs --id 3 --id 4 -- true
usage 'exclude each other' lock --table jobs --id 3 --grace 1s -- true

# ---- tables: in weir.yaml ----------------------------------------------------------------------

sql "UPDATE jobs SET status = 'pending', claimed_by = NULL, locked_until = NULL, n = id"
{
    echo "store: $WEIR_STORE"
    cat <<'END'
tables:
  work:
    table: jobs
    ready: "status = 'pending'"
    claimed: { status: claimed }
    done: { status: done }
    failed: { status: failed, customer: null }
    failed_sql: { tries: "tries + 1" }
    released: { status: pending }
    lease: 1h
    order: n desc
    fence_column: fence
  jobs: { ready: "status = 'pending'", claimed: { status: claimed }, by: me, limit: 2 }
END
} >weir.yaml
store=$WEIR_STORE
unset WEIR_STORE
ok "the daily command is short" weir claim work --run 'read -r row'
is "and says all that is needed" "$(row 3 status)" "done"
status "a failure" 1 weir claim work --run false
is "is written as the file says" "$(row 2 "status || ' ' || coalesce(customer, 'none') || ' ' || tries")" "failed none 1"
ok "a claim by hand" weir claim work --by w1
fence=$(member fence <<<"$out")
ok "extend takes the lease of the file" weir extend work 1 --by w1
ok "release" weir release work 1 --by w1 --fence "$fence"
is "makes it ready" "$(row 1 status)" pending
ok "a flag takes the place of what the file says" weir claim work --by w1 --where "status = 'failed'" --lease 2h
is "here of ready" "$(member id <<<"$out")" 2
ok "done" weir done work 2 --by w1
is "writes what the file says" "$(row 2 status)" "done"
status "only what is still claimed" 4 weir done work 2 --by w1
like "and says so" "$errout" 'no longer claimed'
sql "UPDATE jobs SET status = 'pending', claimed_by = NULL"
ok "an entry with the name of its table" weir claim jobs
is "has limit and holder of its own" "$(member claimed_by <<<"$out" | tr '\n' ' ')" "me me "
ok "--table does without the file" weir claim --table jobs --where "status = 'pending'" --set status=other
is "but for its store" "$(member status <<<"$out") $(member claimed_by <<<"$out")" "other None"
sed -i 's/    ready: /    raedy: /' weir.yaml
status "a slip in the file" 1 weir claim work
like "is told with its place" "$errout" 'weir.yaml:5:5: unknown key ..raedy.., did you mean ..ready'
status "also by weir work --check" 1 weir work --check
like "with the same words" "$errout" 'weir.yaml:5:5: unknown key ..raedy'
export WEIR_STORE=$store
rm weir.yaml

# ---- its plan ----------------------------------------------------------------------------------

ok "explain" weir claim "${pending[@]}" --explain
like "has the plan, findings, and an index" "$out" '"plan":".*"findings":\[.*"indexes":".*CREATE INDEX'
sql "$(member indexes <<<"$out")"
ok "with that index" weir claim "${pending[@]}" --explain
is "there is no finding" "$(member findings <<<"$out")" "[]"
like "in words" "$(weir claim "${pending[@]}" --explain --text)" 'no complaint'

done_testing
