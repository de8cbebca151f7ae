#!/usr/bin/env bash
# cli_batch_test.sh - weir append --batch: each line is its own append, a refused line stops it with
# what was committed, nothing after it is written; --keep-going and --atomic; bounded memory.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }
error() { sed -n 's/^{"error":{"code":"\([a-z-]*\)".*"line":\([0-9]*\).*/\1 \2/p' <<<"$errout"; }
fresh() { rm -f weir.db weir.db-*; }

# ---- lines -------------------------------------------------------------------------------------

cat >three.jsonl <<'END'
{"stream":"order-1","name":"OrderPlaced","data":{"total":12},"expect":"none"}

{"stream":"order-1","name":"OrderPaid","expect":0,"key":"pay-1","meta":{"user":1}}
 { "stream" : "user-1" , "name" : "Registered" , "reserve" : [ "email:a" , "nick:a" ] }
END
ok "a batch" weir append --batch three.jsonl
is "prints how many lines were committed" "$out" '{"committed":3}'
is "makes the store, and says so" "$errout" '{"note":"created store weir.db"}'
is "in the order of the lines" "$(weir log | sed 's/.*"name":"\([A-Za-z]*\)".*/\1/' | tr '\n' ' ')" \
    "OrderPlaced OrderPaid Registered "
like "with their meta" "$(weir read order-1 --from 1)" '"meta":\{"user":1,"correlation":"'
status "reserved keys are reserved" 4 weir append user-2 Registered --reserve nick:a
ok "from standard input, without a newline at the end" bash -c 'printf "{\"stream\":\"s\",\"name\":\"N\"}" | "$WEIR" append --batch -'
is "it was one line" "$out" '{"committed":1}'
ok "an empty batch" weir append --batch /dev/null
is "commits nothing" "$out" '{"committed":0}'
ok "escaped names mean the same" bash -c 'printf "%s\n" "{\"str\\u0065am\":\"caf\\u00e9-1\",\"name\":\"N\"}" | "$WEIR" append --batch -'
ok "and are decoded" weir read café-1
ok "with a correlation for all" weir append --batch three.jsonl --correlation c-9 --store memory:
status "a file that is not there" 1 weir append --batch nowhere.jsonl
# nested N: a line whose data is nested N deep.
nested() { python3 -c 'import sys; n = int(sys.argv[1]); print("{\"stream\":\"deep\",\"name\":\"N\",\"data\":" + "[" * n + "]" * n + "}")' "$1"; }
ok "data nested 128 deep is as good as alone" weir append --batch <(nested 128)
status "129 is one too deep" 1 weir append --batch <(nested 129)

# ---- a refused line ----------------------------------------------------------------------------

# stops NAME LINE CODE EXIT TEXT: TEXT as the third line stops the batch there.
stops() {
    local name=$1 code=$2 exit_status=$3 line=$4
    fresh
    printf '%s\n' '{"stream":"a","name":"N"}' '{"stream":"b","name":"N"}' "$line" '{"stream":"c","name":"N"}' >lines.jsonl
    status "$name stops the batch" "$exit_status" weir append --batch lines.jsonl
    is "$name: code and line" "$(error)" "$code 3"
    is "$name: it says what is committed" "$(tail -n 1 <<<"$errout")" '{"committed":2,"line":3}'
    is "$name: nothing on stdout" "$out" ""
    is "$name: the lines before it are there, none after it" "$(weir streams | wc -l)" 2
}
stops "an unknown member" inval 1 '{"stream":"x","name":"N","dat":1}'
like "the unknown member is named" "$errout" 'unknown member \\"dat\\"'
stops "a member given twice" inval 1 '{"stream":"x","name":"N","name":"M"}'
stops "a missing name" inval 1 '{"stream":"x"}'
stops "a missing stream" inval 1 '{"name":"x"}'
stops "broken JSON" inval 1 '{"stream":"x","name":'
like "broken JSON has its byte" "$errout" 'byte [0-9]+'
stops "a line that is no object" inval 1 '[1]'
stops "a stream that is no string" inval 1 '{"stream":1,"name":"N"}'
stops "an empty key" inval 1 '{"stream":"x","name":"N","key":""}'
stops "a bad name" inval 1 '{"stream":"$x","name":"N"}'
stops "a bad expectation" inval 1 '{"stream":"x","name":"N","expect":"latest"}'
stops "a version in quotes" inval 1 '{"stream":"x","name":"N","expect":"0"}'
stops "meta that is no object" inval 1 '{"stream":"x","name":"N","meta":1}'
stops "a reserve that is no key" inval 1 '{"stream":"x","name":"N","reserve":[1]}'
stops "a conflict" conflict 4 '{"stream":"a","name":"N","expect":"none"}'
stops "an escaped NUL" inval 1 '{"stream":"x","name":"N","data":"\u0000"}'
stops "a line that is too long" inval 1 "$(head -c 2200000 /dev/zero | tr '\0' ' ')"
fresh
status "as text" 4 weir append --text --batch <(printf '%s\n' '{"stream":"a","name":"N"}' '{"stream":"a","name":"N","expect":5}')
is "it says the same in words" "$(tail -n 2 <<<"$errout")" \
    "weir: append: line 2: conflict on a: expected version 5, it is at 0
weir: append: stopped at line 2, 1 lines committed"
fresh
status "a bad first line" 1 weir append --batch <(echo '{')
is "makes no store" "$(ls weir.db* 2>/dev/null)" ""
ok "a refusal in the middle of many, all in one chunk" bash -c '
    for i in {1..300}; do echo "{\"stream\":\"m-$i\",\"name\":\"N\"}"; done >many.jsonl
    sed -i "200s/.*/{\"stream\":\"m-1\",\"name\":\"N\",\"expect\":\"none\"}/" many.jsonl
    ! "$WEIR" append --batch many.jsonl 2>many.err'
is "the lines before it are committed and counted" "$(tail -n 1 many.err)" '{"committed":199,"line":200}'
is "and none after it" "$(weir streams | wc -l)" 199

# ---- --keep-going ------------------------------------------------------------------------------

fresh
printf '%s\n' '{"stream":"a","name":"N"}' '{' '{"stream":"a","name":"N","expect":"none"}' \
    "$(head -c 2200000 /dev/zero | tr '\0' ' ')" '{"stream":"b","name":"N"}' >some.jsonl
status "--keep-going with refused lines" 1 weir append --batch some.jsonl --keep-going
is "goes on and counts both" "$out" '{"committed":2,"refused":3}'
is "reports each refused line" "$(error | tr '\n' ';')" "inval 2;conflict 3;inval 4;"
is "the others are there" "$(weir streams | wc -l)" 2
ok "--keep-going without refused lines" weir append --batch <(echo '{"stream":"z","name":"N"}') --keep-going
is "says so" "$out" '{"committed":1,"refused":0}'

# ---- --atomic ----------------------------------------------------------------------------------

fresh
printf '%s\n' '{"stream":"a","name":"N","expect":"none"}' '{"stream":"b","name":"N"}' '{"stream":"a","name":"M"}' >atomic.jsonl
ok "--atomic" weir append --batch atomic.jsonl --atomic --key whole
is "prints how many lines" "$out" '{"committed":3}'
is "events are in the order of the lines" "$(weir log | sed 's/.*"stream":"\(.\)","version":\(.\).*/\1\2/' | tr '\n' ' ')" "a0 b0 a1 "
is "and were created at the same moment" "$(weir log | sed 's/.*"created"://' | sort -u | wc -l)" 1
ok "again with the same key" weir append --batch atomic.jsonl --atomic --key whole
is "is a replay" "$(weir log | wc -l)" 3
status "a conflict in one stream" 4 weir append --batch atomic.jsonl --atomic
is "is nothing at all" "$(weir log | wc -l)" 3
like "and says so" "$errout" '\{"committed":0\}$'
status "a bad line" 1 weir append --atomic --batch <(printf '%s\n' '{"stream":"q","name":"N"}' '{"stream":"q"}')
is "names its line, nothing is committed" "$(tail -n 1 <<<"$errout")" '{"committed":0,"line":2}'
status "expect on a later line of a stream" 1 weir append --atomic --batch <(printf '%s\n' '{"stream":"q","name":"N"}' '{"stream":"q","name":"N","expect":0}')
status "two different keys" 1 weir append --atomic --batch <(printf '%s\n' '{"stream":"q","name":"N","key":"1"}' '{"stream":"r","name":"N","key":"2"}')
ok "100,000 events" bash -c 'for ((i = 0; i < 100000; i++)); do echo "{\"stream\":\"h\",\"name\":\"N\"}"; done >h.jsonl; "$WEIR" append --atomic --batch h.jsonl --store memory:'
status "100,001 events" 1 bash -c 'echo "{\"stream\":\"h\",\"name\":\"N\"}" >>h.jsonl; "$WEIR" append --atomic --batch h.jsonl --store memory:'
like "is over the limit" "$errout" '"line":100001'

# ---- as they come ------------------------------------------------------------------------------

# A producer that writes a line now and then sees it committed before it writes the next one.
fresh
mkfifo pipe
"$WEIR" append --batch pipe >batch.out 2>batch.err &
batch=$!
spawned $batch
exec 7>pipe
for i in 0 1 2; do
    printf '{"stream":"live","name":"N"}\n{"stream":"li' >&7
    ok "line $i is committed while the pipe is open" wait_for "line $i" bash -c "[ \"\$('$WEIR' read live | wc -l)\" -eq $((i + 1)) ]"
    printf 'ne-2","name":"N"}\n' >&7
done
exec 7>&-
ok "the batch ends with its input" wait $batch
is "and has committed all" "$(cat batch.out)" '{"committed":6}'

# 100,000 lines in bounded memory: the most that was resident, from the kernel.
fresh
python3 -c 'for i in range(100000): print("{\"stream\":\"s-%d\",\"name\":\"Happened\",\"data\":{\"n\":%d,\"text\":\"%s\"}}" % (i % 1000, i, "x" * 150))' >many.jsonl
cat >peak.py <<'END'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
END
ok "100,000 lines" python3 peak.py "$WEIR" append --batch many.jsonl --store 'sqlite:weir.db?sync=normal'
like "are committed" "$out" '\{"committed":100000\}'
kilobytes=$(tail -n 1 <<<"$out")
ok "in at most 32 MB (it was $kilobytes kB)" test "$kilobytes" -le 32768
is "and are there" "$(weir log | wc -l)" 100000
is "versions have no gaps" "$(weir streams | grep -c '"version":99,"count":100')" 1000

done_testing
