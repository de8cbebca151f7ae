#!/usr/bin/env bash
# cli_append_test.sh - weir append: what it prints, every exit status, and bad input: each refused
# with a clear error and nothing written.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

weir() { "$WEIR" "$@"; }
# member NAME: its value in the JSON of the last output, or of the error in the last stderr.
member() { python3 -c 'import json,sys; print(json.dumps(json.loads(sys.argv[2])[sys.argv[1]]))' "$1" "$out"; }
error() {
    python3 - "$1" "$errout" <<'END'
import json, sys
for line in sys.argv[2].splitlines():
    object = json.loads(line)
    if "error" in object:
        print(json.dumps(object["error"].get(sys.argv[1])))
END
}

# ---- what it prints ---------------------------------------------------------------------------

ok "the first append" weir append order-1 OrderPlaced '{"total":12}' --expect none
is "prints stream, versions, position" "$out" '{"stream":"order-1","first":0,"last":0,"id":1,"replayed":false}'
is "says on stderr that it made the store" "$errout" '{"note":"created store weir.db"}'
ok "the second append" weir append order-1 OrderPaid
is "prints the next version" "$out" '{"stream":"order-1","first":1,"last":1,"id":2,"replayed":false}'
is "says nothing else" "$errout" ""
weir read order-1 --backward --limit 1 >last
like "an event without data has {}" "$(cat last)" '"data":\{\},"meta":\{"correlation":"[0-9a-f-]{36}"\},'
like "as text it is a table" "$(weir append order-1 Noted --text)" '^STREAM +FIRST +LAST +ID +REPLAYED'

# ---- data from an argument, a file, standard input ---------------------------------------------

printf '{\n  "pretty" : [ 1, 2 ],\n  "s": "a  b"\n}\n' >data.json
ok "data from a file" weir append input-1 Given @data.json
ok "data from standard input" bash -c '"$WEIR" append input-1 Given - <data.json'
is "is on one line when it comes out, and otherwise unchanged" \
    "$(weir read input-1 | grep -c '"data":{"pretty":\[1,2\],"s":"a  b"}')" 2
ok "meta from a file" bash -c 'echo "{\"user\":7}" >meta.json && "$WEIR" append input-1 Given 1 --meta @meta.json'
like "gets its correlation at its end" "$(weir read input-1 --backward --limit 1)" '"meta":\{"user":7,"correlation":"'
ok "a correlation of one's own" weir append input-1 Given 2 --correlation abc
like "is kept" "$(weir read input-1 --backward --limit 1)" '"meta":\{"correlation":"abc"\}'
forty=1234567890123456789012345678901234567890
ok "a number of 40 digits" weir append input-1 Given "$forty"
like "comes back with all of them" "$(weir read input-1 --backward --limit 1)" "\"data\":$forty,"
ok "a negative number is data, not an option" weir append input-1 Given -5
like "and is kept" "$(weir read input-1 --backward --limit 1)" '"data":-5,'
ok "-- ends options" weir append -- --odd-name Given 1
status "both data and meta from standard input are refused" 2 bash -c 'echo {} | "$WEIR" append input-1 Given - --meta -'
status "a file that is not there" 1 weir append input-1 Given @nowhere.json
like "is named" "$(error message)" 'nowhere\.json'
status "an empty argument is not a left-out one" 1 weir append input-1 Given ''

# ---- expectations ------------------------------------------------------------------------------

ok "--expect exists" weir append order-1 Noted --expect exists
ok "--expect with the version" weir append order-1 Noted --expect=3
status "a conflict is exit status 4" 4 weir append order-1 Noted --expect 3
is "its code" "$(error code)" '"conflict"'
is "its stream, expected and actual version" "$(error stream) $(error expected) $(error actual)" '"order-1" 3 4'
is "its message" "$(error message)" '"conflict on order-1: expected version 3, it is at 4"'
status "as text" 4 weir append order-1 Noted --expect 3 --text
is "it is one line" "$errout" "weir: append: conflict on order-1: expected version 3, it is at 4"
status "none, where there is one" 4 weir append order-1 Noted --expect none
is "says none" "$(error expected) $(error actual)" '"none" 4'
status "exists, where there is none" 4 weir append order-2 Noted --expect exists
is "says that there is no such stream" "$(error expected) $(error actual)" '"exists" null'
status "wrong expectation syntax is wrong usage" 2 weir append order-1 Noted --expect latest
status "a negative version too" 2 weir append order-1 Noted --expect -1
is "a conflict leaves nothing" "$(weir read order-1 | wc -l)" 5

# ---- keys --------------------------------------------------------------------------------------

ok "with an idempotency key" weir append pay-1 Paid '{"n":1}' --key k-1
first=$out
ok "again" weir append pay-1 Paid '{"n":1}' --key k-1
is "it is a replay of the first result" "$out" "${first/false/true}"
is "nothing was written twice" "$(weir read pay-1 | wc -l)" 1
status "the same key with other content is exit status 4" 4 weir append pay-1 Paid '{"n":2}' --key k-1
is "its code" "$(error code)" '"key-reused"'
ok "reserve a key" weir append user-1 Registered --reserve email:a@example.org --reserve nick:a
status "another stream cannot have it" 4 weir append user-2 Registered --reserve email:a@example.org
is "its code, and who has it" "$(error code) $(error stream)" '"taken" "user-1"'
ok "the owner gives it up" weir append user-1 MailChanged --release-key email:a@example.org
ok "then another stream can have it" weir append user-2 Registered --reserve email:a@example.org
ok "close a stream" weir close pay-1
status "an append to a closed stream is exit status 4" 4 weir append pay-1 Paid
is "its code" "$(error code)" '"closed"'

# ---- wrong usage -------------------------------------------------------------------------------

status "no arguments" 2 weir append
status "no name" 2 weir append order-1
status "too many arguments" 2 weir append a b 1 2
status "an unknown option" 2 weir append a b --expct none
like "suggests the right one" "$errout" 'did you mean --expect\?'
status "an option without its value" 2 weir append a b --key
status "a flag with a value" 2 weir append --batch x --atomic=yes
status "--json and --text together" 2 weir append a b --json --text
status "--atomic without --batch" 2 weir append a b --atomic
status "--expect with --batch" 2 weir append --batch x --expect 1
status "an empty key" 2 weir append a b --key ''

# ---- bad input: exit status 1, nothing written ---------------------------------------------------

before=$(weir log | wc -l)
# bad NAME PATTERN ARG...: refused with 1 and a message that fits.
bad() {
    local name=$1 pattern=$2
    shift 2
    status "$name is refused" 1 weir append "$@"
    like "$name: the message says why" "$(error message)" "$pattern"
}
bad "invalid UTF-8 in a name" 'UTF-8' $'bad-\xff' N
bad "invalid UTF-8 in data" 'byte' bad-1 N $'"\xff"'
bad "a name of 513 bytes" '513 bytes, allowed 1 to 512' "$(printf 'x%.0s' {1..513})" N
bad "an empty name" 'allowed 1 to 512' '' N
bad "a control character in a name" 'control character' $'bad\n1' N
bad "an event name with a control character" 'control character' bad-1 $'N\x01'
bad "a name of Weir's own" '\$' '$bad' N
bad "an event name of Weir's own" '\$' bad-1 '$closed'
bad "broken JSON" 'byte 7:' bad-1 N '{"a":1,}'
bad "JSON that ends early" 'byte' bad-1 N '{"a":'
bad "two JSON texts" 'byte 3' bad-1 N '{} {}'
bad "an escaped NUL" 'byte' bad-1 N '"\u0000"'
bad "a lone surrogate" 'byte' bad-1 N '"\ud800"'
bad "nesting of 129" '128' bad-1 N "$(printf '[%.0s' {1..129})$(printf ']%.0s' {1..129})"
bad "meta that is no object" 'meta' bad-1 N 1 --meta '[1]'
bad "meta that is no JSON" 'byte' bad-1 N 1 --meta '{'
bad "a correlation with a control character" 'correlation' bad-1 N 1 --correlation $'a\tb'
bad "a key that is too long" 'key' bad-1 N 1 --key "$(printf 'k%.0s' {1..513})"
printf '"%s"' "$(head -c 1048575 /dev/zero | tr '\0' x)" >big.json
bad "data over the limit" '1048577 bytes, allowed 1048576' bad-1 N @big.json
printf '"a\0b"' >nul.json
bad "a NUL byte" 'byte' bad-1 N @nul.json
ok "data of exactly the limit is accepted" bash -c 'printf "\"%s\"" "$(head -c 1048574 /dev/zero | tr "\0" x)" >fits.json && "$WEIR" append fits-1 N @fits.json'
ok "nesting of 128 is accepted" weir append fits-1 N "$(printf '[%.0s' {1..128})$(printf ']%.0s' {1..128})"
is "nothing of what was refused was written" "$(weir log | wc -l)" "$((before + 2))"
status "no stream bad-1 came to be" 3 weir read bad-1

# A refused append makes no file.
mkdir fresh && cd fresh || exit 1
status "bad JSON on a new store" 1 weir append a N '{'
status "a conflict on a new store" 4 weir append a N --expect 0
status "a bad name on a new store" 1 weir append '$a' N
is "leave no file" "$(ls -A)" ""

done_testing
