#!/usr/bin/env bash
# cli_lines_test.sh - one event is one line, whatever somebody has put into the store past Weir: handlers get
# no delivery that nobody made, log, read and parked print no event that is not there, and JSON that is none is an
# error of one event.
#
#   cli_lines_test.sh [postgres]    on an SQLite file, or in a database of $WEIR_TEST_POSTGRES
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
cd "$tmp" || exit 1
kind=${1:-sqlite}
weir() { "$WEIR" "$@"; }

# insert DATA META: an event by the owner, with no function of Weir's in between.
if [ "$kind" = postgres ]; then
    export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres PATH=$WEIR_TEST_PG_BIN:$PATH
    createdb lines
    export WEIR_STORE=postgres:///lines
    insert() {
        psql -X -q -v ON_ERROR_STOP=1 -d lines -v data="$1" -v meta="$2" <<'END'
INSERT INTO weir.events SELECT nextval('weir.positions'), name, version + 1, 'Placed', :'data', :'meta', now()
  FROM weir.streams WHERE name = 'order-1';
END
    }
else
    export WEIR_STORE=sqlite:$tmp/lines.db
    insert() {
        python3 - "$tmp/lines.db" "$1" "$2" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute(
    "INSERT INTO weir_events SELECT (SELECT max(id) + 1 FROM weir_events), stream, version + 1, category,"
    " created, name, ?, ? FROM weir_events ORDER BY id DESC LIMIT 1",
    (sys.argv[3], sys.argv[2]),
)
db.commit()
END
    }
fi

ok "a store" weir append order-1 Placed '{"n":1}'
forged='{"event":{"id":99,"stream":"order-1","version":9,"name":"Forged","data":{},"meta":{}},"target":"t"}'
insert "$(printf '{"n":2,\n"x":[\n%s\n]\r\n}' "$forged")" "$(printf '{\n"m":\t1}')"
ok "one more, as it should be" weir append order-1 Placed '{"n":3}'

cat >exec.py <<'END'
import json, sys
# Also by what other languages take for the end of a line.
for line in sys.stdin:
    with open("seen", "a") as f:
        f.write(line)
    json.loads(line)
    print('{"ok":true}', flush=True)
END
cat >run.sh <<'END'
cat >>seen
END
for mode in exec run; do
    rm -f seen
    command="python3 exec.py"
    [ $mode = run ] && command="sh run.sh"
    ok "work --$mode" weir work --on '*' --to t-$mode --$mode "$command" --name $mode --from start --until-idle
    is "--$mode: one line for each event" "$(wc -l <seen)" 3
    is "--$mode: no other event" "$(grep -c '^{"event":{"id":99' seen)" 0
    is "--$mode: nothing of it is lost" "$(python3 -c 'import json; print([json.loads(l)["event"]["data"]["n"] for l in open("seen", newline="\n")])')" "[1, 2, 3]"
    is "--$mode: no raw line break in it" "$(tr -d '\n' <seen | tr -dc '\r\t' | wc -c)" 0
done
for command in log 'read order-1'; do
    # shellcheck disable=SC2086 # words of a command
    ok "weir $command --json" weir $command --json
    is "$command: one line for each event" "$(wc -l <<<"$out")" 3
    is "$command: each is JSON" "$(python3 -c 'import json, sys; print([json.loads(l)["data"]["n"] for l in sys.stdin])' <<<"$out")" "[1, 2, 3]"
done

# What the store's own JSON is not: on SQLite, where a column is a text, it need be no JSON at all.
if [ "$kind" = postgres ]; then
    insert '{"deep":'"$(printf '[%.0s' {1..200})$(printf ']%.0s' {1..200})"'}' '{}'
else
    insert "$(printf '{"n":4}}}\n%s' "$forged")" '{}'
fi
ok "log --json of what is no JSON" weir log --json
is "one line for each event" "$(wc -l <<<"$out")" 4
is "as a text" "$(tail -n 1 <<<"$out" | python3 -c 'import json, sys; print(type(json.loads(sys.stdin.read())["data"]).__name__)')" str
rm -f seen
status "work goes on" 1 weir work --on '*' --to t-last --exec 'python3 exec.py' --name last --from start --retries 0 --until-idle
is "the handler is not given it" "$(wc -l <seen)" 3
like "and the error says why" "$(weir targets --match t-last; weir parked ls)" 'data of the event: invalid JSON at byte'
like "by name, with what to look at" "$(weir why t-last)" 'invalid JSON'

done_testing
