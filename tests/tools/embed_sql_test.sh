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

# Words: constants and fragments that others stand for.
cat >"$tmp/words.sql" <<'END'
-- A file of words may open with a comment.
-- constant: held 1
-- constant: lost 'WR011'
-- What t needs.
-- fragment: is_free
(t.holder IS NULL
 OR t.state <> {held})
-- fragment: free_targets
SELECT t.id FROM targets AS t WHERE {is_free}
END
cat >"$tmp/c.sql" <<'END'
-- name: four
    {free_targets}
 ORDER BY '{held}', {lost}; -- {nobody}
END
cat >"$tmp/want" <<'END'
    SELECT t.id FROM targets AS t WHERE (t.holder IS NULL
     OR t.state <> 1)
 ORDER BY '{held}', 'WR011';
1
END
cat >"$tmp/main.c" <<'END'
#include "out.h"
#include <stdio.h>
int main(void)
{
    printf("%s%d\n", sql_four, SQL_HELD);
    return 0;
}
END
ok "a file with words is embedded" embed --words "$tmp/words.sql" "$tmp/c.sql"
ok "its header compiles" "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -o "$tmp/main" "$tmp/main.c"
run "$tmp/main"
is "words are replaced, in words too, and not in literals" "$out" "$(cat "$tmp/want")"

# refused_words NAME MESSAGE: the words on stdin are not accepted.
refused_words() {
    cat >"$tmp/bad_words.sql"
    status "$1" 1 embed --words "$tmp/bad_words.sql" "$tmp/c.sql"
    is "$1: message" "$errout" "embed_sql.py: $2"
}
refused "a word that nobody has defined" "bad.sql:1: nobody has defined {held}" <<'END'
-- name: a
SELECT {held};
END
refused_words "a fragment that contains itself" "bad_words.sql:3: free_targets contains itself" <<'END'
-- fragment: free_targets
{b}
-- fragment: b
SELECT {free_targets}
END
refused_words "a word that is defined twice" "bad_words.sql:2: held is defined twice" <<'END'
-- constant: held 1
-- constant: held 2
END
refused_words "a constant without a value" "bad_words.sql:1: bad constant 'held'" <<'END'
-- constant: held
END
refused_words "a fragment without SQL" "bad_words.sql:1: fragment held has no SQL" <<'END'
-- fragment: held
END
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
