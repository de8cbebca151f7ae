#!/usr/bin/env bash
# cli_lint_test.sh - weir lint as a program: its output in both forms, its exit status, its arguments,
# and what it says of a file that cannot be read. What it finds is the business of tests/lint.
# shellcheck disable=SC2001,SC2016 # what bash -c runs expands there; sed is for every line
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
cd "$tmp" || exit 1
weir() { "$WEIR" "$@"; }

cat >good.sql <<'END'
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'claimed' WHERE id = $1;
COMMIT;
END
cat >bad.sql <<'END'
BEGIN;
SELECT id FROM jobs WHERE status = 'pending'
 ORDER BY created LIMIT 1;
UPDATE jobs SET status = 'claimed' WHERE id = $1;
COMMIT;
END

# ---- output and exit status ----------------------------------------------------------------------

status "a good claim: 0" 0 weir lint good.sql
is "and nothing is said" "$out$errout" ""
status "a bad one: 1" 1 weir lint bad.sql
is "a finding a line, in the order of lines" "$(cut -d: -f1-3 <<<"$out")" $'bad.sql:2: no-row-lock\nbad.sql:3: no-tie-break'
like "what goes wrong, and what to do" "$(head -n 1 <<<"$out")" ': two workers can read .*: add FOR UPDATE SKIP LOCKED'
is "nothing on stderr" "$errout" ""
status "--json" 1 weir lint --json bad.sql
is "an object a finding" "$(sed 's/"message":"[^"]*"/"message":"..."/' <<<"$out")" \
    '{"file":"bad.sql","line":2,"rule":"no-row-lock","message":"..."}
{"file":"bad.sql","line":3,"rule":"no-tie-break","message":"..."}'
status "standard input" 1 bash -c '"$WEIR" lint - <bad.sql'
is "is called -" "$(cut -d: -f1-3 <<<"$out")" $'-:2: no-row-lock\n-:3: no-tie-break'
status "several files" 1 weir lint good.sql bad.sql good.sql bad.sql
is "one after the other" "$(cut -d: -f1,2 <<<"$out" | tr '\n' ' ')" "bad.sql:2 bad.sql:3 bad.sql:2 bad.sql:3 "
status "an empty file" 0 weir lint /dev/null
mkdir empty && cd empty || exit 1
status "no store is needed, and none is made" 1 weir lint --store postgres://nowhere.invalid/x ../bad.sql
is "nothing was written" "$(ls -A)" ""
cd .. || exit 1

# ---- arguments -----------------------------------------------------------------------------------

status "--limit that is kept" 0 weir lint --limit 1 good.sql
status "--limit that is not" 1 weir lint --limit 10 good.sql
like "says both numbers" "$out" '^good.sql:2: wrong-limit: .*1 rows.*10 were asked for'
status "--limit 0" 2 weir lint --limit 0 good.sql
status "--dialect" 0 bash -c 'echo "UPDATE jobs SET status = 1 WHERE id IN (SELECT id FROM jobs WHERE status = 0 ORDER BY id LIMIT 5) RETURNING id" | "$WEIR" lint --dialect sqlite -'
status "of another database" 1 bash -c 'echo "UPDATE jobs SET status = 1 WHERE id IN (SELECT id FROM jobs WHERE status = 0 ORDER BY id LIMIT 5) RETURNING id" | "$WEIR" lint --dialect postgres -'
status "of none that is known" 2 weir lint --dialect oracle good.sql
status "no file" 2 weir lint
status "--rules with a file" 2 weir lint --rules good.sql

# ---- what cannot be read -------------------------------------------------------------------------

# unreadable WHAT LINE MESSAGE: bad.txt holds it.
unreadable() {
    status "$1: 2" 2 weir lint --text unread.sql
    is "$1: says where and what" "$errout" "weir: lint: unread.sql:$2: $3"
    is "$1: no findings" "$out" ""
}
status "a file that is not there: 2" 2 weir lint --text none.sql
is "is named" "$errout" 'weir: lint: could not open "none.sql": No such file or directory'
status "a directory: 2" 2 weir lint --text .
printf "SELECT 1;\nSELECT 'it is open;\n\n" >unread.sql
unreadable "a string without an end" 2 "the string that begins here does not end"
printf "SELECT 1;\n\nSELECT E'a\\\\';" >unread.sql
unreadable "a string whose quote is escaped" 3 "the string that begins here does not end"
printf 'SELECT 1 /* /* */ FROM t;\n' >unread.sql
unreadable "a nested comment without an end" 1 "the comment that begins here does not end"
printf 'SELECT "a FROM t;\n' >unread.sql
unreadable "a name without an end" 1 "the quoted name that begins here does not end"
printf 'SELECT\n$x$ a $y$;\n' >unread.sql
unreadable "a dollar quote without an end" 2 "the dollar-quoted string that begins here does not end"
printf 'CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$\nSELECT 1\n; SELECT /* $$;\n' >unread.sql
unreadable "inside a function" 3 "the comment that begins here does not end"
printf 'SELECT (1;\nSELECT 2);\n' >unread.sql
unreadable "a parenthesis that is open at the ;" 1 "this parenthesis is not closed"
printf 'SELECT 1;\nSELECT 2);\n' >unread.sql
unreadable "one that was not opened" 2 "a parenthesis is closed that was not opened"
printf 'SELECT 1;\nSELECT \xff;\n' >unread.sql
unreadable "bytes that are not UTF-8" 2 "it is not UTF-8"
printf 'SELECT 1;\n\n\0' >unread.sql
unreadable "a NUL" 3 "there is a NUL byte in it"
{ printf 'SELECT '; printf '(%.0s' $(seq 201); printf '1'; printf ')%.0s' $(seq 201); } >unread.sql
unreadable "201 levels of parentheses" 1 "parentheses are nested more than 200 deep"
{ printf 'SELECT '; printf '(%.0s' $(seq 200); printf '1'; printf ')%.0s' $(seq 200); } >deep.sql
status "200 levels" 0 weir lint deep.sql
status "findings of the other files are printed all the same" 2 weir lint unread.sql bad.sql none.sql
is "both of them" "$(cut -d: -f1-3 <<<"$out")" $'bad.sql:2: no-row-lock\nbad.sql:3: no-tie-break'
status "--json: the message is an object" 2 weir lint --json unread.sql
like "with a code" "$errout" '^\{"error":\{"code":"inval","message":"unread.sql:1: parentheses'
printf 'x\n' >$'a\e[31m\n.sql'
cat bad.sql >>$'a\e[31m\n.sql'
status "a name that would steer the terminal" 1 weir lint $'a\e[31m\n.sql'
is "does not" "$(grep -c $'\e' <<<"$out")" 0

# ---- rules and examples --------------------------------------------------------------------------

ok "--rules" weir lint --rules
is "has thirteen" "$(grep -c '^[a-z-]*: ' <<<"$out")" 13
for rule in $(weir lint --rules --json | sed -n 's/^{"rule":"\([a-z-]*\)".*/\1/p'); do
    ok "weir-lint(1) has $rule" grep -qxF "*$rule*" "$WEIR_SOURCE/man/weir-lint.1.scd"
done
is "weir-lint(1) has the examples of --rules" \
    "$(weir lint --rules | sed -n 's/^    //p' | while IFS= read -r line; do grep -qxF -- "$line" "$WEIR_SOURCE/man/weir-lint.1.scd" || echo "missing: $line"; done)" ""
cp bad.sql claims.sql
while IFS= read -r line; do
    expected=1
    [[ $line == *--rules* ]] && expected=0
    status "weir lint --help: $line" $expected bash -c "PATH=$(dirname "$WEIR"):\$PATH; $line"
done < <(weir lint --help | sed -n '/^Examples/,$s/^  //p')

done_testing
