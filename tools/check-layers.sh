#!/usr/bin/env bash
# check-layers.sh - dependencies point downwards only. Reads the includes of every source file and
# prints those that do not, as file:line.
#
#   cli  >  race, lint  >  api  >  claim, lock  >  engine, table
#        >  engine/child, store/memory, store/sqlite, store/postgres, store/fault  >  store
#        >  supervisor, report, pg, sqlite  >  base
#
# A layer may include itself and what is below it; those of one level never include one another, and
# race, lint, claim and lock know of engine only engine/child. pg and sqlite are drivers, which stores,
# tables and locks stand on; nobody but itself knows what is in a store's directory. What is above api is the program's own
# and not in the library. The public header includes nothing but standard headers. Tests beside a module may look at anything.
#
#   tools/check-layers.sh [TOP]     TOP: the directory with include/ and src/
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# shellcheck disable=SC2016  # the dollar signs are awk's
find src include -name '*.[ch]' ! -name '*_test.[ch]' ! -name '*_fuzz.c' ! -name '*_bench.c' -print0 |
    sort -z | xargs -0 awk '
function layer(path) {
    if (path ~ /^base\//) return 1
    if (path ~ /^(supervisor|report|pg|sqlite)\//) return 2
    if (path ~ /^store\/[^\/]+$/) return 3
    if (path ~ /^store\/[^\/]+\//) return 4
    if (path ~ /^engine\/child\//) return 4
    if (path ~ /^(engine|table)\//) return 5
    if (path ~ /^(claim|lock)\//) return 6
    if (path ~ /^api\//) return 7
    if (path ~ /^(race|lint)\//) return 8
    if (path ~ /^cli\//) return 9
    return 0
}
function complain(what) {
    printf "%s:%d: %s\n", FILENAME, FNR, what
    bad = 1
}
FNR == 1 {
    from = FILENAME
    public = from ~ /^include\//
    sub(/^(src|include)\//, "", from)
    rank = layer(from)
    directory = from
    sub(/\/[^\/]*$/, "", directory)
    if (!public && rank == 0) {
        complain("the directory is in no layer; name it in tools/check-layers.sh")
        exit
    }
}
/^[ \t]*#[ \t]*include/ {
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    quoted = name ~ /^"/
    sub(/^["<]/, "", name)
    sub(/[">].*$/, "", name)
    if (public) {
        if (quoted || name !~ /^(stddef|stdint)\.h$/)
            complain("weir.h includes " name "; it stands on <stddef.h> and <stdint.h> alone")
        next
    }
    if (!quoted) next
    if (name == "weir.h" || name !~ /\//) next # the public header, or one generated for this directory
    if (name ~ /\.\./) { complain("include \"" name "\" by its path below src/"); next }
    to = layer(name)
    target = name
    sub(/\/[^\/]*$/, "", target)
    if (to == 0) complain("\"" name "\" is in no layer")
    else if (to > rank) complain(directory " includes \"" name "\", which is above it")
    else if (to >= 2 && to != 3 && to == rank && target != directory)
        complain(directory " includes \"" name "\": those of one level do not know one another")
    else if (to == 4 && rank > 4 && target ~ /^store\//)
        complain(directory " includes \"" name "\": stores are reached by the port")
    else if ((rank == 6 || rank == 8) && target == "engine")
        complain(directory " includes \"" name "\": of engine it may know engine/child alone")
}
END { exit bad }' || exit 1
