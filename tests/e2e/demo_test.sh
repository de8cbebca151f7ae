#!/usr/bin/env bash
# demo_test.sh - the demo that `make start` shows does what it says, and notices when it does not.
. "$(dirname "$0")/tap.sh" || exit 1

demo() { "$WEIR_SOURCE/tools/demo" "$1" "$tmp/demo"; }

ok "the demo runs" demo "$WEIR"
text=$out
like "it creates the file" "$errout" 'shop\.db'
is "the two writers of the race: one exits with 0, one with 4" \
    "$(grep '^(exit status' <<<"$text" | head -n 2 | sort | tr -d '\n')" "(exit status 0)(exit status 4)"
like "the conflict says what was expected and what is there" "$text" \
    '"code":"conflict".*"stream":"order-1","expected":1,"actual":2'
is "the order then has three events" \
    "$(grep -cE '^\{"id":[0-9]+,"stream":"order-1","version":[012],' <<<"$text")" 3
is "the repeated payment is a replay of the first" \
    "$(grep '"stream":"payment-7"' <<<"$text" | sed 's/.*"replayed"://' | head -n 2 | tr -d '\n')" 'false}true}'
like "the reserved key names its owner" "$text" '"code":"taken".*"stream":"user-1"'
like "all versions of the counter are there" "$text" 'versions 0 to 199, no gap'
like "and the follower saw them" "$text" 'The follower printed each of them once'
is "two workers without a claim double an email, two with one do not" \
    "$(grep -o '"side_effects":2,"doubled":[0-9]' <<<"$text" | tr '\n' ' ')" \
    '"side_effects":2,"doubled":1 "side_effects":2,"doubled":0 '
like "a killed worker costs no mail and doubles none" "$text" "79 orders, 79 mails, none twice"
like "the event that cannot be handled blocks its target" "$text" "mail-shop-4 (is|was) blocked"
like "it says what to try next" "$text" 'log --follow'
is "the file holds what was shown" \
    "$("$WEIR" log --json --store "sqlite:$tmp/demo/shop.db" | wc -l)" 365
is "and is in order" "$(sqlite3 "file:$tmp/demo/shop.db?mode=ro" 'PRAGMA integrity_check')" ok
ok "it can be run again" demo "$WEIR"
is "without a terminal it never waits" "$(grep -c 'Press Enter' <<<"$out")" 0
is "and has no colours" "$(grep -c $'\e' <<<"$out")" 0

# On a terminal it waits for Enter before each chapter but the first.
on_terminal() {
    env "$@" python3 "$(dirname "$0")/on_terminal.py" --enter 'Press Enter' 120 \
        "$WEIR_SOURCE/tools/demo" "$WEIR" "$tmp/demo"
}
ok "on a terminal it runs" on_terminal -u NO_COLOR TERM=xterm
is "begins with the race" "$(grep -aoE '[0-9] of [0-9]  [A-Z].*|emails were sent, 1' <<<"$out" | head -n 2 | cut -c 1-21 | tr '\n' '|')" \
    '1 of 5  Two workers, |emails were sent, 1|'
is "waits between its five chapters" "$(grep -ac 'Press Enter' <<<"$out") $(grep -acE '[1-5] of 5  ' <<<"$out")" "4 5"
like "and has colours" "$out" $'\e\\[1;36m1 of 5'
for setting in NO_COLOR=1 TERM=dumb; do
    ok "on a terminal with $setting" on_terminal TERM=xterm $setting
    is "it has none" "$(grep -ac $'\e' <<<"$out")" 0
done
out=$text

# The commands at the end work as printed.
while read -r line; do
    command=${line%%#*}
    case $command in
    *--follow*) continue ;; # does not end; it has tests of its own
    *doctor*)
        status "as printed: $command" 1 bash -c "cd '$WEIR_SOURCE' && $(sed -n '/export/p' <<<"$text"); $command"
        like "it finds what the demo has parked" "$out" '"rule":"parked"'
        ;;
    *) ok "as printed: $command" bash -c "cd '$WEIR_SOURCE' && $(sed -n '/export/p' <<<"$text"); $command" ;;
    esac
done < <(sed -n '/Try next/,$p' <<<"$out" | grep -E '^ +[^ ]*weir ')

# Interrupted while its workers run, it takes them with it.
workers() { pgrep -f -- "work --config $tmp/cut/weir.yaml" | wc -l; }
"$WEIR_SOURCE/tools/demo" "$WEIR" "$tmp/cut" >/dev/null 2>&1 &
cut=$!
for _ in {1..600}; do [ "$(workers)" -lt 2 ] || break; sleep 0.05; done
ok "its workers are at it" test "$(workers)" -ge 2
kill -TERM "$cut"
wait "$cut"
is "interrupted, it ends as interrupted" $? 143
for _ in {1..200}; do [ "$(workers)" -gt 0 ] || break; sleep 0.05; done
is "and so have its workers" "$(workers)" 0

# A program that drops --expect lets both writers win; the demo must not call that fine.
cat >"$tmp/careless" <<END
#!/usr/bin/env bash
words=()
while [ \$# -gt 0 ]; do
    case \$1 in --expect) shift 2 ;; *) words+=("\$1"); shift ;; esac
done
exec "$WEIR" "\${words[@]}"
END
chmod +x "$tmp/careless"
status "a store that lets both writers win is noticed" 1 demo "$tmp/careless"
like "and the demo says so" "$errout" 'not exactly one of two writers won'

# A program whose claims are none.
cat >"$tmp/claimless" <<END
#!/usr/bin/env bash
case " \$* " in *' --mode '*) ;; ' race '*) set -- "\$@" --mode none ;; esac
exec "$WEIR" "\$@"
END
chmod +x "$tmp/claimless"
status "claims that keep nobody away are noticed" 1 demo "$tmp/claimless"
like "and the demo says so" "$errout" 'two workers with claims sent 1 emails twice'

done_testing
