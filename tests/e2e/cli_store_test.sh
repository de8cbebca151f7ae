#!/usr/bin/env bash
# cli_store_test.sh - which store a command is about (--store, WEIR_STORE, weir.yaml, the default), and
# weir init, status and doctor; files that are no store, or not there, or not to be written.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }
with() { WEIR_STORE=$1 "$WEIR" "${@:2}"; }

# ---- which one ---------------------------------------------------------------------------------

ok "--store" weir append a N --store sqlite:flag.db
ok "WEIR_STORE" with sqlite:environment.db append a N
is "each made its own file" "$(echo ./*.db)" "./environment.db ./flag.db"
ok "--store before the command" weir --store sqlite:flag.db append a N
ok "--store goes before WEIR_STORE" with sqlite:environment.db read a --store sqlite:flag.db
is "so it has two events" "$(wc -l <<<"$out")" 2
echo 'store: sqlite:yaml.db?busy=5s' >weir.yaml
ok "store in weir.yaml" weir append a N
like "is where it went" "$errout" 'created store yaml\.db'
ok "WEIR_STORE goes before weir.yaml" with sqlite:environment.db append b N
is "and weir.yaml before the default" "$(ls weir.db 2>/dev/null)" ""
ok "an empty WEIR_STORE is none" with "" read a
ok "a name with a space and a per cent sign" weir append a N --store 'sqlite:odd%20name%25.db'
ok "is that file" test -f 'odd name%.db'
ok "memory: is there and then gone" weir append a N --store memory:
is "without a file" "$errout" ""
status "an unknown scheme" 1 weir log --store mysql://u:secret@host/db
status "an unknown parameter" 1 weir log --store 'sqlite:flag.db?colour=red'
is "no password is printed" "$(weir log --store postgres://u:secret@host/db 2>&1 | grep -c secret)" 0

# ---- weir.yaml ---------------------------------------------------------------------------------

# yaml NAME TEXT PATTERN: refused with what is wrong, and where.
yaml() {
    printf '%b' "$2" >weir.yaml
    status "weir.yaml: $1" 1 weir log
    like "weir.yaml: $1: says where" "$errout" "$3"
}
yaml "an unknown key" '# ours\nstor: x\n' 'weir.yaml:2:1: unknown key \\"stor\\"'
yaml "a key given twice" 'store: a\nstore: b\n' 'weir.yaml:2:1: .*twice'
yaml "broken YAML" 'store: [a\n' 'weir.yaml:[0-9]+:[0-9]+: '
yaml "a list for a store" 'store: [a]\n' 'weir.yaml:1:8: '
yaml "an empty store" 'store:\n' 'weir.yaml:1:7: '
yaml "no mapping" '- store\n' 'weir.yaml:1:1: '
yaml "two documents" 'store: sqlite:flag.db\n---\nstore: b\n' 'weir.yaml:[0-9]+:[0-9]+: expected one document'
ok "--store does not read it" weir log --store sqlite:flag.db
printf '# nothing yet\n' >weir.yaml
ok "an empty one sets nothing" weir append a N
like "so the default is made" "$errout" 'created store weir\.db'
rm weir.yaml

# ---- no store ----------------------------------------------------------------------------------

mkdir empty && cd empty || exit 1
for command in "read a" log streams "close a" status doctor targets "log --follow"; do
    # shellcheck disable=SC2086
    status "weir $command without a store is exit status 3" 3 timeout 20 "$WEIR" $command
    like "weir $command: says so" "$errout" '"code":"not-found","message":"no store at \\"weir.db\\""'
done
is "none of them made anything" "$(ls -A)" ""
status "a directory that is not there" 1 weir append a N --store sqlite:no/such/weir.db
is "is not made" "$(ls -A)" ""
cd .. || exit 1

# ---- init --------------------------------------------------------------------------------------

ok "init --plan of a new store" weir init --plan --store sqlite:planned.db
plan=$out
is "makes nothing" "$(ls planned.db* 2>/dev/null)" ""
ok "init" weir init --store sqlite:planned.db
is "says what it did" "$out" '{"store":"sqlite:planned.db","schema":3,"created":true,"upgraded":false}'
ok "init again" weir init --store sqlite:planned.db
is "changes nothing" "$out" '{"store":"sqlite:planned.db","schema":3,"created":false,"upgraded":false}'
ok "init --plan of what is up to date" weir init --plan --store sqlite:planned.db
is "has nothing to do" "$out" ""
printf '%s\n' "$plan" >plan.sql
sqlite3 by-hand.db <plan.sql >/dev/null 2>sql.err
is "the plan is SQL that SQLite accepts" "$(cat sql.err)" ""
tables() { sqlite3 "$1" "SELECT type, name FROM sqlite_schema WHERE name LIKE 'weir%' ORDER BY 1, 2"; }
is "and makes what init makes" "$(tables by-hand.db)" "$(tables planned.db)"
like "as JSON on request" "$(weir init --plan --json --store sqlite:other.db)" '^\{"sql":"'
ok "several at once" bash -c 'for i in $(seq 8); do "$WEIR" init --store sqlite:raced.db >raced.$i 2>&1 & pids="$pids $!"; done; for p in $pids; do wait $p || exit 1; done'
is "exactly one of them has created it" "$(cat raced.[1-8] | grep -c '"created":true,"upgraded":false')" 1
is "and nobody has upgraded it" "$(cat raced.[1-8] | grep -c '"created":false,"upgraded":false')" 7
ok "leave one store" weir append a N --store sqlite:raced.db

# ---- what is not a store -----------------------------------------------------------------------

head -c 8192 /dev/urandom >noise.db
cp noise.db noise.copy
status "a file that is no database" 1 weir append a N --store sqlite:noise.db
status "is none for a reader either" 1 weir log --store sqlite:noise.db
ok "and was not touched" cmp noise.db noise.copy
sqlite3 theirs.db 'CREATE TABLE t (a); INSERT INTO t VALUES (1)'
status "a database of someone else's" 1 weir append a N --store sqlite:theirs.db
is "got no tables" "$(sqlite3 theirs.db 'SELECT count(*) FROM sqlite_schema')" 1
ok "init --adopt adds them" weir init --adopt --store sqlite:theirs.db
ok "then it is a store" weir append a N --store sqlite:theirs.db
is "and still theirs" "$(sqlite3 theirs.db 'SELECT a FROM t')" 1
weir init --store sqlite:newer.db >/dev/null
sqlite3 newer.db "UPDATE weir_store SET schema = 99"
status "a store of a newer version" 1 weir log --store sqlite:newer.db
like "is refused as such" "$errout" '"code":"newer"'
status "a directory" 1 weir log --store sqlite:empty

# ---- as someone who may not --------------------------------------------------------------------

chmod 755 "$tmp"
mkdir locked && chmod 755 locked
weir append a N --store sqlite:locked/weir.db >/dev/null 2>&1
chmod -R a-w locked
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
status "an append in a read-only directory" 1 nobody "$WEIR" append a N --store sqlite:locked/new.db
like "says why" "$errout" '"message":".*(ermission|read-only|unable to open|not open)'
status "an append to a read-only store" 1 nobody "$WEIR" append a N --store sqlite:locked/weir.db
ok "reading it works" nobody "$WEIR" read a --store sqlite:locked/weir.db
is "and finds what is there" "$(wc -l <<<"$out")" 1
is "nothing was made" "$(echo locked/new*)" "locked/new*"

# ---- status and doctor -------------------------------------------------------------------------

for i in 1 2 3; do weir append "s-$i" N --store sqlite:facts.db >/dev/null 2>&1; done
ok "status" weir status --store sqlite:facts.db
python3 - "$out" >shape <<'END'
import json, sys
s = json.loads(sys.argv[1])
print(s["head"], s["safe"], s["held_back_by"], s["routers"], s["lanes"], s["workers"], s["blocked"], s["parked"])
print(s["store"], s["schema"], s["library"].split()[0], s["durability"], s["streams"], s["targets"])
print(s["file_bytes"] > 0, s["wal_bytes"] >= 0, s["now"][-1])
END
is "has what the page says" "$(cat shape)" "3 3 [] [] [] [] 0 0
sqlite:facts.db 3 SQLite full 3 0
True True Z"
like "status as text" "$(weir status --text --store sqlite:facts.db)" $'store +sqlite:facts.db\n.*head +3\n'
like "status does not show parameters" "$(weir status --store 'sqlite:facts.db?sync=normal')" '"store":"sqlite:facts.db",.*"durability":"normal"'
ok "doctor of a sound store" weir doctor --store sqlite:facts.db
like "sums up" "$(tail -n 1 <<<"$out")" '^\{"findings":0,"notes":0,"schema":3,"library":"SQLite [0-9.]+","durability":"full"\}$'
like "notes sync=normal" "$(weir doctor --store 'sqlite:facts.db?sync=normal')" '"level":"note","rule":"durability"'
sqlite3 facts.db "UPDATE weir_streams SET closed = 1 WHERE name = 's-2'"
status "doctor of a damaged store is exit status 1" 1 weir doctor --store sqlite:facts.db
like "finds it" "$out" '"level":"finding","rule":"[a-z-]+","message":"[^}]*s-2'
like "and says what to do" "$out" '"advice":"[A-Za-z]'
status "as text too" 1 weir doctor --text --store sqlite:facts.db
like "in words" "$out" 'finding [a-z-]+: .*s-2'

done_testing
