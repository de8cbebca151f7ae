#!/usr/bin/env bash
# handlers_test.sh - the handlers of examples/handlers/, in shell, Python, Node and Go, do what they say,
# and are safe to run twice, each in its way.
#
# Method: a wrapper gives every delivery to the handler twice, as after a crash between the effect and the
# settling, and passes on the second answer only. A handler that just adds shows that duplicates would be
# seen. Then the same with workers that are killed with SIGKILL between an effect and its settling.
# shellcheck disable=SC2016 # wrappers expand for themselves
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
examples=$WEIR_SOURCE/examples/handlers
cd "$tmp" || exit 1
mkdir bin && ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$PATH
export GOCACHE=$tmp/go-cache GOFLAGS=-mod=mod GO111MODULE=off

# twice COMMAND...: for exec:. Each line goes in twice; the first answer is dropped.
cat >bin/twice <<'END'
#!/usr/bin/env python3
import subprocess, sys
handler = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
for line in sys.stdin:
    for _ in 1, 2:
        handler.stdin.write(line)
        handler.stdin.flush()
        answer = handler.stdout.readline()
    print(answer, end="", flush=True)
END
# The same for run:.
cat >bin/run-twice <<'END'
#!/bin/sh
delivery=$(cat)
printf '%s\n' "$delivery" | "$@" >/dev/null && printf '%s\n' "$delivery" | "$@"
END
# What no handler should be: it adds, and remembers nothing.
cat >bin/naive <<'END'
#!/bin/sh
while read -r line; do
    echo x >>naive.seen
    echo '{"ok":true}'
done
END
chmod +x bin/*

ok "Go builds its example" go build -o "$tmp/bin/totals" "$examples/totals.go"
ok "go vet is content" go vet "$examples/totals.go"
for file in forward.sh confirm.py balance.py page.js; do
    ok "$file can be run as it is" test -x "$examples/$file"
done

fresh() { mkdir "$tmp/$1" && cd "$tmp/$1" || exit 1; }
append() { weir append "$@" >/dev/null 2>>append.err || fail "append $*"; }
member() { python3 -c 'import json, sys
for line in sys.stdin:
    value = json.loads(line)
    for name in sys.argv[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    print(value)' "$1"; }
drain() { timeout 60 weir work "$@" --from start --until-idle; }
# Nothing failed: not a retry, not a parked event.
smooth() {
    is "$1: no target is in trouble" "$(weir targets | member state | sort -u)" idle
    ok "$1: nothing failed" bash -c '! grep -qE "\"msg\":\"(retrying|deferred|blocked|parked|lost)\"" <<<"$1"' - "$errout"
}

# ---- every delivery twice ----------------------------------------------------------------------

fresh naive
for _ in 1 2 3 4 5; do append a A; done
ok "a naive handler, every delivery twice" drain --on A --to t --exec 'twice naive'
is "shows its duplicates" "$(wc -l <naive.seen)" 10

fresh forward
export OTHER=sqlite:$tmp/forward/copy.db
for i in 1 2 3; do append order-1 OrderPlaced "{\"n\":$i,\"key\":\"x\",\"stream\":\"y\"}"; done
append order-2 OrderPlaced
ok "forward.sh, every delivery twice" drain --on OrderPlaced --to 'forward-{stream}' --run "run-twice $examples/forward.sh" --name f
smooth forward.sh
is "every event was forwarded once, in order" "$(weir read copy-order-1 --store "$OTHER" | member data.data.n | tr '\n' ' ')" "1 2 3 "
is "those of the other stream, too" "$(weir read copy-order-2 --store "$OTHER" | member data.stream)" order-2
append 'odd"name' OrderPlaced
status "a name that it cannot read" 1 drain --on OrderPlaced --to 'forward-{stream}' --run "$examples/forward.sh" --name f
like "is blocked at once, with the reason" "$(weir targets --blocked | member error)" 'a name that this script cannot read'
status "without its store" 1 env -u OTHER timeout 60 weir work --on OrderPlaced --to g --run "$examples/forward.sh" --name g --from start --retries 0 --until-idle
like "it says so" "$(weir targets --match g | member error)" 'the store to forward to'

fresh confirm
append order-1 OrderPlaced '{"total":40}'
append order-2 OrderPlaced '{"total":4000}'
ok "confirm.py, every delivery twice" drain --on OrderPlaced --to 'confirm-{stream}' --exec "twice $examples/confirm.py" --name c
smooth confirm.py
is "an order is confirmed once" "$(weir read order-1 | member name | tr '\n' ' ')" "OrderPlaced OrderConfirmed "
is "or referred" "$(weir read order-2 | member name | tr '\n' ' ')" "OrderPlaced OrderReferred "
is "because of its event" "$(weir read order-2 --from 1 | member meta.causation)" 2
append order-3 OrderPlaced '{}'
status "an order without a total" 1 drain --on OrderPlaced --to 'confirm-{stream}' --exec "$examples/confirm.py" --name c
is "is not tried again" "$(weir targets --blocked | member error)" "order without a total: None"

fresh balance
export BALANCES=$tmp/balance/balances.db
for i in 1 2 3 4; do append account-1 Deposited "{\"amount\":${i}0}"; done
append account-1 Withdrawn '{"amount":5}'
append account-2 Deposited '{"amount":7}'
ok "balance.py, every delivery twice" drain --on Deposited --on Withdrawn --to '{stream}' --exec "twice $examples/balance.py" --name b
smooth balance.py
balances() { sqlite3 "$BALANCES" 'SELECT account, amount FROM balances ORDER BY account' | tr '\n' ' '; }
is "the balances are right" "$(balances)" "account-1|95 account-2|7 "

fresh page
export PAGES=$tmp/page/pages
append order-1 OrderPlaced
append order-1 OrderPaid
append 'order-<2>' OrderPlaced
ok "page.js, every delivery twice" drain --on '*' --source 'order-*' --to 'page-{stream}' --exec "twice $examples/page.js" --name p
smooth page.js
is "a page says where the order stands" "$(cat pages/order-1.html)" "$(printf '<h1>order-1</h1>\n<p>OrderPaid, version 1</p>')"
like "names are escaped" "$(cat pages/order-%3C2%3E.html)" '<h1>order-&#60;2&#62;</h1>'
is "no draft is left" "$(find pages -type f | wc -l)" 2

fresh totals
export TOTALS=$tmp/totals/totals.json
for i in 1 2 3 4 5; do append "order-$i" Paid "{\"amount\":$i}"; done
ok "totals.go, every delivery twice" drain --on Paid --to totals --exec 'twice totals' --name t
smooth totals.go
is "every payment was counted once" "$(cat totals.json)" '{"position":5,"amount":15}'

# ---- workers that are killed -------------------------------------------------------------------

# All of them at work on one store. One handler kills its worker five times, each time after its effect
# and before its answer, whatever the others are doing then.
fresh killed
export OTHER=sqlite:$tmp/killed/copy.db BALANCES=$tmp/killed/balances.db TOTALS=$tmp/killed/totals.json PAGES=$tmp/killed/pages
cat >killer <<'END'
#!/bin/sh
while read -r line; do
    echo x >>naive.seen
    id=$(echo "$line" | sed 's/^{"event":{"id":\([0-9]*\),.*/\1/')
    if [ $((id % 16)) -eq 1 ] && mkdir "killed.$id" 2>/dev/null; then
        kill -9 "$(cat worker.pid)"
    fi
    echo '{"ok":true}'
done
END
chmod +x killer
cat >weir.yaml <<END
lanes:
  default: { threads: 4, lease: 300ms, event_limit: 5 }
reactions:
  - { name: forward, on: Paid, to: "forward-{stream}", run: $examples/forward.sh, from: start, retries: 100 }
  - { name: confirm, on: Paid, to: "confirm-{stream}", exec: $examples/confirm.py, from: start, retries: 100 }
  - { name: balance, on: Deposited, to: "balance-{stream}", exec: $examples/balance.py, from: start, retries: 100 }
  - { name: page, on: Paid, to: "page-{stream}", exec: $examples/page.js, from: start, retries: 100 }
  - { name: totals, on: Paid, to: totals, exec: totals, from: start, retries: 100 }
  - { name: naive, on: Paid, to: naive, exec: ./killer, from: start, retries: 100 }
END
ok "its weir.yaml is well" weir work --check
for i in $(seq 40); do
    printf '{"stream":"order-%d","name":"Paid","data":{"amount":1,"total":1}}\n' $((i % 4))
    printf '{"stream":"account-%d","name":"Deposited","data":{"amount":1}}\n' $((i % 4))
done | weir append --batch - >/dev/null 2>&1
kills=0
rc=137
while [ $rc -eq 137 ] && [ $kills -le 10 ]; do
    rc=0
    timeout 60 sh -c 'echo $$ >worker.pid; exec weir work --until-idle' 2>work.log || rc=$?
    [ $rc -eq 137 ] && kills=$((kills + 1))
done
is "workers were killed" $kills 5
is "the last one has done what was left" $rc 0
is "no target is in trouble" "$(weir targets | member state | sort -u)" idle
is "forward.sh: every event once, per stream" "$(for i in 0 1 2 3; do weir read copy-order-$i --store "$OTHER" | wc -l; done | tr '\n' ' ')" "10 10 10 10 "
is "confirm.py: every event once" "$(weir log --name OrderConfirmed | wc -l)" 40
is "balance.py: the balances are right" "$(balances)" "account-0|10 account-1|10 account-2|10 account-3|10 "
is "page.js: the last event of each" "$(cat pages/order-*.html | grep -c "Paid, version")" 4
is "totals.go: every payment once" "$(member amount <totals.json)" 40
ok "the one that adds has duplicates: each kill was between an effect and its settling" \
    test "$(wc -l <naive.seen)" -ge $((40 + kills))

# ---- what is written about them ----------------------------------------------------------------

for file in "$examples"/*; do
    name=$(basename "$file")
    ok "docs/handlers.md explains $name" grep -q "examples/handlers/$name" "$WEIR_SOURCE/docs/handlers.md"
    ok "handlers_test.sh runs $name" grep -q "${name%.go}" "$WEIR_SOURCE/tests/e2e/handlers_test.sh"
done

done_testing
