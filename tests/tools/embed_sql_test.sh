#!/usr/bin/env bash
# embed_sql_test.sh - what embed_sql.py accepts comes out unchanged when a C program prints it, and
# what it refuses is refused with file and line.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

embed() { python3 "$WEIR_SOURCE/tools/embed_sql.py" "$tmp/out.h" "$@"; }

# refused NAME MESSAGE: the file on stdin is not accepted.
refused() {
    cat >"$tmp/bad.sql"
    status "$1" 1 embed "$tmp/bad.sql"
    is "$1: message" "$errout" "embed_sql.py: $2"
}

cat >"$tmp/a.sql" <<'END'
-- A file may open with a comment.

-- name: one
SELECT 'it''s -- no comment', "a/*b", [c--d], `e` /* gone
   with its second line */ FROM t -- gone
WHERE x = '??=' AND y = '\n' AND z = '"';

-- name: two
-- a comment before it
CREATE TABLE a(b);
	CREATE TABLE c(d);
END
printf -- '-- name: three\nSELECT 3;' >"$tmp/b.sql"
cat >"$tmp/want" <<'END'
SELECT 'it''s -- no comment', "a/*b", [c--d], `e`
 FROM t
WHERE x = '??=' AND y = '\n' AND z = '"';
|CREATE TABLE a(b);
	CREATE TABLE c(d);
|SELECT 3;
|
END
cat >"$tmp/main.c" <<'END'
#include "out.h"
#include <stdio.h>
int main(void)
{
    printf("%s|%s|%s|\n", sql_one, sql_two, sql_three);
    return 0;
}
END
ok "two files are embedded" embed "$tmp/a.sql" "$tmp/b.sql"
ok "the header compiles without warnings" \
    "${CC:-cc}" -std=c11 -trigraphs -Wall -Wextra -Werror -o "$tmp/main" "$tmp/main.c"
run "$tmp/main"
is "the constants hold the SQL without its comments" "$out" "$(cat "$tmp/want")"

refused "the same name twice" "bad.sql:3: statement a is already at bad.sql:1" <<'END'
-- name: a
SELECT 1;
-- name: a
SELECT 2;
END
refused "an empty statement" "bad.sql:1: statement a is empty" <<'END'
-- name: a
-- SELECT 1;
;
END
refused "SQL before the first marker" "bad.sql:1: SQL before the first '-- name:' marker" <<'END'
SELECT 1;
END
refused "a bad name" "bad.sql:1: bad statement name 'a-b'" <<'END'
-- name: a-b
SELECT 1;
END
refused "an open literal" "bad.sql:2: ' is never closed" <<'END'
-- name: a
SELECT 'x;
END
refused "an open comment" "bad.sql:3: comment is never closed" <<'END'
-- name: a
SELECT 1;
/* and
END
refused "a literal over two lines" "bad.sql:2: a literal goes over a line break" <<'END'
-- name: a
SELECT 'x
y';
END
refused "a file without statements" "bad.sql: no statements" <<'END'
-- nothing
END
status "a missing file" 1 embed "$tmp/none.sql"
status "no arguments" 2 python3 "$WEIR_SOURCE/tools/embed_sql.py"

done_testing
