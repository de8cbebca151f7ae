#!/usr/bin/env bash
# cli_many_test.sh - several processes at once, from a shell script, on one file: two writers never both
# win a version, nothing acknowledged is lost, a key is used once, a closed stream stays closed.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }

# together N COMMAND...: N of them at once; $i is the number of each. Exit statuses go to rc.I.
together() {
    local n=$1 i pids=()
    shift
    rm -f out.* err.*
    for ((i = 1; i <= n; i++)); do
        (
            export i
            rc=0
            "$@" >"out.$i" 2>"err.$i" || rc=$?
            echo $rc >"rc.$i"
        ) &
        pids+=($!)
    done
    wait "${pids[@]}"
    cat rc.*
    rm rc.*
}

# ---- one version, many writers -----------------------------------------------------------------

is "eight writers make one store and one stream: one wins" \
    "$(together 8 bash -c '"$WEIR" append race Began "{\"by\":$i}" --expect none' | sort | uniq -c | tr -s ' ' | tr '\n' ';')" " 1 0; 7 4;"
is "the stream has one event" "$(weir read race | wc -l)" 1
for round in 0 1 2 3 4; do
    is "round $round: one of six wins the next version" \
        "$(together 6 bash -c "\"\$WEIR\" append race Went --expect $round" | sort | uniq -c | tr -s ' ' | tr '\n' ';')" " 1 0; 5 4;"
done
is "versions have no gap" "$(weir read race | sed 's/.*"version":\([0-9]*\).*/\1/' | tr '\n' ' ')" "0 1 2 3 4 5 "

# ---- everybody appends -------------------------------------------------------------------------

is "six processes append 30 events each to one stream, expecting nothing" \
    "$(together 6 bash -c 'for ((k = 0; k < 30; k++)); do "$WEIR" append busy Wrote "{\"by\":$i,\"k\":$k}" || exit 1; done' | sort -u)" 0
is "all acknowledged versions are different and there" \
    "$(cat out.* | sed 's/.*"first":\([0-9]*\).*/\1/' | sort -n | tr '\n' ' ')" "$(seq -s ' ' 0 179) "
is "each writer's events are in the order it wrote them" "$(weir read busy | python3 -c 'import json,sys
last = {}
for line in sys.stdin:
    d = json.loads(line)["data"]
    assert d["k"] == last.get(d["by"], -1) + 1
    last[d["by"]] = d["k"]
print(sorted(last.values()))')" "[29, 29, 29, 29, 29, 29]"

# ---- keys --------------------------------------------------------------------------------------

is "one idempotency key, eight processes: all succeed" "$(together 8 "$WEIR" append paid Paid '{"n":1}' --key pay-1 | sort -u)" 0
is "one wrote, the others were told" "$(cat out.* | sed 's/.*"replayed"://' | sort | uniq -c | tr -s ' ' | tr '\n' ';')" " 1 false}; 7 true};"
is "and all were told the same place" "$(cat out.* | sed 's/,"replayed".*//' | sort -u | wc -l)" 1
is "one event is there" "$(weir read paid | wc -l)" 1
is "one reserved key, eight streams: one gets it" \
    "$(together 8 bash -c '"$WEIR" append "user-$i" Registered --reserve email:a' | sort | uniq -c | tr -s ' ' | tr '\n' ';')" " 1 0; 7 4;"
owner=$(weir streams --match 'user-*' | sed 's/{"stream":"\([^"]*\)".*/\1/')
is "all others are told who has it" "$(cat err.* | sed 's/.*"stream":"\([^"]*\)".*/\1/' | sort -u)" "$owner"

# ---- batches -----------------------------------------------------------------------------------

for i in 1 2 3 4; do
    for ((k = 0; k < 500; k++)); do echo "{\"stream\":\"batch-$((k % 7))\",\"name\":\"N\",\"data\":{\"by\":$i,\"k\":$k}}"; done >"batch.$i"
done
is "four batches at once" "$(together 4 bash -c '"$WEIR" append --batch "batch.$i"' | sort -u)" 0
is "each committed all its lines" "$(cat out.* | sort | uniq -c | tr -s ' ')" ' 4 {"committed":500}'
is "which are there once, in the order of each file" "$(weir log --category batch | python3 -c 'import json,sys
seen, last = set(), {}
for line in sys.stdin:
    d = json.loads(line)["data"]
    assert d["k"] == last.get(d["by"], -1) + 1
    last[d["by"]] = d["k"]
    seen.add((d["by"], d["k"]))
print(len(seen))')" 2000

# ---- closing -----------------------------------------------------------------------------------

is "appends and one close at once: all answer" \
    "$(together 6 bash -c 'if [ $i = 3 ]; then "$WEIR" close busy; else for ((k = 0; k < 10; k++)); do "$WEIR" append busy Late || exit; done; fi' | grep -cvE '^(0|4)$')" 0
like "nothing came after \$closed" "$(weir read busy --backward --limit 1)" '"name":"\$closed"'
is "the file is whole" "$(sqlite3 weir.db 'PRAGMA integrity_check')" ok
ok "and sound" weir doctor

done_testing
