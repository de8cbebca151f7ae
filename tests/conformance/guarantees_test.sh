#!/bin/bash
# guarantees_test.sh - docs/guarantees.md names every test that is called after a promise, wherever
# it lives, and no other; and every promise has a patch in tests/mutants/ that breaks it.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

page=$WEIR_SOURCE/docs/guarantees.md
name='([A-Za-z0-9]+_)*[CP][0-9]{2}_[A-Za-z0-9_]+'

# Tests as "NAME SUITE", the suite of those in the conformance kit being "kit", and of those in the kit
# of claims "claims". On the page: a line `NAME` of its own, or `NAME` (`SUITE`). In the sources: a function, or a check of a shell script.
# shellcheck disable=SC2016 # the backquotes are the page's
documented=$(sed -nE "s/^- \`($name)\`\$/\1 kit/p
    s/^- \`($name)\` \(\`([a-z0-9_]+)\`\)\$/\1 \3/p" "$page" | sort)
existing=$(cd "$WEIR_SOURCE" && grep -roE --include='*.c' --include='*.py' --include='*.sh' \
    "^(static )?(void|bool|def) $name\(|^ *(ok|not_ok|is|like|status|pass|refused) \"$name\"" src tests |
    sed -E "s/^[^:]*tests\/conformance\/[^:]*:/kit:/; s/^[^:]*tests\/(claims)\/[^:]*:/\1:/" |
    sed -E "s/^[^:]*\/([a-z0-9_]+)\.[a-z]+:/\1:/" |
    sed -E "s/^([^:]*):.*[ \"]($name)[(\"]$/\2 \1/" | sort)
# Of the same section as its number, not of another.
misplaced=$(awk '/^### /{number=$2} /^- /{match($2, /[CP][0-9][0-9]_/)
    if (substr($2, RSTART, 3) != number) print $2, "under", number}' "$page")
promises=$(grep -oE '^### C[0-9]{2} ' "$page" | cut -c5-7 | sort)
broken=$(grep -ohE '^Breaks: C[0-9]{2}' "$WEIR_SOURCE"/tests/mutants/*.patch | cut -c9-11 | sort -u)

like "the kit has tests" "$existing" 'C07_conflict_leaves_no_trace kit'
like "and so have others" "$existing" 'C34_three_times_more_then_it_counts_as_one_failure slot_test'
is "every test is documented" "$(comm -13 <(echo "$documented") <(echo "$existing"))" ""
is "every documented test exists" "$(comm -23 <(echo "$documented") <(echo "$existing"))" ""
is "each under its own promise" "$misplaced" ""
is "no promise stands twice" "$promises" "$(sort -u <<<"$promises")"
# A mutant may be ahead of the page: part of a promise whose other parts do not exist yet.
is "every promise has a mutant" "$(comm -23 <(echo "$promises") <(echo "$broken"))" ""
# Where the engine has a part in a promise, its part is broken too.
engines=$(awk '/^### /{number=$2} /^- /{kept=0} /^Kept in:/{kept=1} /^Also:/{kept=0}
    kept && /src\/engine\//{print number}' "$page" | sort -u)
engines_broken=$(grep -lE '^diff --git a/src/(engine|api|cli)/' "$WEIR_SOURCE"/tests/mutants/*.patch |
    xargs grep -ohE '^Breaks: C[0-9]{2}' | cut -c9-11 | sort -u)
like "the engine keeps promises" "$engines" C34
is "and has a mutant for each" "$(comm -23 <(echo "$engines") <(echo "$engines_broken"))" ""

# A mutant that no longer applies shows nothing, and make mutants is not run every day.
cp -r "$WEIR_SOURCE/src" "$tmp/src" || exit 1
is "every mutant applies to the code as it is" "$(cd "$tmp" && for patch in "$WEIR_SOURCE"/tests/mutants/*.patch; do
    GIT_CEILING_DIRECTORIES=${tmp%/*} git apply --check "$patch" 2>/dev/null || echo "${patch##*/}"
done)" ""

# The table of tests/postgres/README.md: tests of any suite, by their names.
# shellcheck disable=SC2016 # these are not for the shell
listed=$(sed -n '/^## What others got wrong/,$p' "$WEIR_SOURCE/tests/postgres/README.md" |
    sed -n 's/^| T[0-9]* |.*|\([^|]*\)|$/\1/p' | grep -oE '`[A-Za-z0-9_]+`' | tr -d '`' | sort -u)
there=$(grep -ohE '(PG_TEST|KIT_TEST)\([A-Za-z0-9_]+|^def [a-z0-9_]+' "$WEIR_SOURCE"/tests/postgres/*.c \
    "$WEIR_SOURCE"/tests/claims/*.c "$WEIR_SOURCE"/tests/conformance/*.c \
    "$WEIR_SOURCE"/tests/stress/*.py | sed 's/.*[( ]//' | sort -u)
like "the table of known failures lists tests" "$listed" T10_a_restored_store
is "every one of them exists" "$(comm -23 <(echo "$listed") <(echo "$there"))" ""
done_testing
