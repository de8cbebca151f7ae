#!/bin/bash
# guarantees_test.sh - docs/guarantees.md and the conformance kit name the same tests, and every
# promise with a number has a patch in tests/mutants/ that breaks it.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

documented=$(grep -oE '^- .[CP][0-9]{2}_[a-z0-9_]+' "$WEIR_SOURCE/docs/guarantees.md" | tr -d '`' |
    cut -c3- | sort)
existing=$(grep -ohE 'KIT_TEST\([CP][0-9]{2}_[a-z0-9_]+\)' "$WEIR_SOURCE"/tests/conformance/*.c |
    sed 's/KIT_TEST(//; s/)//' | sort)
promises=$(grep -oE '^### C[0-9]{2} ' "$WEIR_SOURCE/docs/guarantees.md" | cut -c5-7 | sort)
broken=$(grep -ohE '^Breaks: C[0-9]{2}' "$WEIR_SOURCE"/tests/mutants/*.patch | cut -c9-11 | sort -u)

like "the kit has tests" "$existing" C07_conflict_leaves_no_trace
is "every test is documented, and every documented test exists" "$documented" "$existing"
is "no promise stands twice" "$promises" "$(sort -u <<<"$promises")"
# A mutant may be ahead of the page: part of a promise whose other parts do not exist yet.
is "every promise has a mutant" "$(comm -23 <(echo "$promises") <(echo "$broken"))" ""

# The table of tests/postgres/README.md: tests of any suite, by their names.
# shellcheck disable=SC2016 # these are not for the shell
listed=$(sed -n '/^## What others got wrong/,$p' "$WEIR_SOURCE/tests/postgres/README.md" |
    sed -n 's/^| T[0-9]* |.*|\([^|]*\)|$/\1/p' | grep -oE '`[A-Za-z0-9_]+`' | tr -d '`' | sort -u)
there=$(grep -ohE '(PG_TEST|KIT_TEST)\([A-Za-z0-9_]+|^def [a-z0-9_]+' "$WEIR_SOURCE"/tests/postgres/*.c \
    "$WEIR_SOURCE"/tests/conformance/*.c "$WEIR_SOURCE"/tests/stress/*.py | sed 's/.*[( ]//' | sort -u)
like "the table of known failures lists tests" "$listed" T10_a_restored_store
is "every one of them exists" "$(comm -23 <(echo "$listed") <(echo "$there"))" ""
done_testing
