#!/usr/bin/env bash
# install_test.sh - what `make install` leaves is complete and usable: the examples are built against
# the installed header and library alone, through pkg-config, and run.
. "$(dirname "$0")/tap.sh" || exit 1

root=$tmp/root
ok "the build is installed" env DESTDIR="$root" meson install -C "$WEIR_BUILD" --no-rebuild

prefix=$root$(meson introspect "$WEIR_BUILD" --buildoptions |
    python3 -c 'import json,sys; print(*(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
pc=$(find "$root" -name libweir.pc)
lib=$(dirname "$(dirname "${pc:-/none/none}")")
for file in bin/weir include/weir.h share/man/man1/weir.1 share/man/man3/libweir.3 \
    share/bash-completion/completions/weir share/zsh/site-functions/_weir \
    share/fish/vendor_completions.d/weir.fish; do
    ok "$file is there" test -s "$prefix/$file"
done
for file in libweir.a libweir.so libweir.so.0 pkgconfig/libweir.pc; do
    ok "the library directory has $file" test -s "$lib/$file"
done
ok "nothing but our header is installed" test "$(find "$prefix/include" -type f | wc -l)" -eq 1

run "$prefix/bin/weir" --version
like "the installed program says its version" "$out" '^weir [0-9]+\.[0-9]+\.[0-9]+'
run ldd "$prefix/bin/weir"
like "it needs the C library" "$out" 'libc\.so'
ok "and carries the others inside it" test -z "$(grep -E 'sqlite|pcre|yaml|weir\.so' <<<"$out")"

# The functions that are exported are those that the header declares, no more and no fewer.
tr '\n' ' ' <"$prefix/include/weir.h" | grep -oE 'WEIR_API [^;]*;' |
    grep -oE '\bweir_[a-z0-9_]+\(' | tr -d '(' | sort >"$tmp/declared"
nm -D --defined-only "$lib/libweir.so" | awk '{ print $3 }' | sort >"$tmp/exported"
ok "the header declares functions" test -s "$tmp/declared"
ok "the shared library exports those" diff "$tmp/declared" "$tmp/exported"
nm -g --defined-only "$lib/libweir.a" 2>/dev/null | awk 'NF == 3 { print $3 }' |
    grep -vE '^(weir_|weir__)' >"$tmp/foreign"
ok "the archive defines no name outside weir_" test ! -s "$tmp/foreign"
# What is above api in tools/check-layers.sh belongs to the program alone.
ok "the archive has parts, named after their directories" grep -q '^api_' <(ar t "$lib/libweir.a")
is "none of them is the program's" "$(ar t "$lib/libweir.a" | grep -E '^(cli|lint|lock|race)_|^claim_(explain|hold|runner)|^supervisor_run')" ""

export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root LD_LIBRARY_PATH=$lib
read -ra flags <<<"$(pkg-config --cflags --libs libweir)"
ok "the C example compiles with pkg-config" "${CC:-cc}" -std=c11 -Wall -Wextra -Werror \
    -o "$tmp/append" "$WEIR_SOURCE/examples/append.c" "${flags[@]}"
read -ra flags <<<"$(pkg-config --static --cflags --libs libweir)"
ok "and with the static library" "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -o "$tmp/append-static" \
    "$WEIR_SOURCE/examples/append.c" "${flags[@]/#-lweir/-l:libweir.a}"
run ldd "$tmp/append-static"
is "which it then carries inside it" "$(grep -c libweir <<<"$out")" 0

read -ra flags <<<"$(pkg-config --cflags --libs libweir)"
ok "the example of claims compiles" "${CC:-cc}" -std=c11 -Wall -Wextra -Werror \
    -o "$tmp/claim" "$WEIR_SOURCE/examples/claim.c" "${flags[@]}"
sqlite3 "$tmp/jobs.db" "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT DEFAULT 'new', claimed_by TEXT,
    claimed_at TEXT, locked_until TEXT); INSERT INTO jobs (status) VALUES ('new'), ('new'), ('old')"
ok "it runs" "$tmp/claim" "sqlite:$tmp/jobs.db" me
like "and works on what is ready" "$out" $'^\{"id":1,"status":"claimed","claimed_by":"me",.*\n\{"id":2,.*\}$'
is "which is done then" "$(sqlite3 "$tmp/jobs.db" 'SELECT group_concat(status) FROM jobs')" "done,done,old"
status "it reports an error" 1 "$tmp/claim" "sqlite:$tmp/none.db"
like "in words" "$errout" '^claim: there is no database'

ok "the example of operating compiles" "${CC:-cc}" -std=c11 -Wall -Wextra -Werror \
    -o "$tmp/operate" "$WEIR_SOURCE/examples/operate.c" "${flags[@]}"
status "it needs a store" 1 "$tmp/operate" "sqlite:$tmp/none.db"
like "and says what to do" "$errout" $'^operate: .*\n[A-Z].*[.]$'

expected='conflict on order-1: it is at version 0
0 OrderPlaced {}
1 OrderPaid {}'
example() { # NAME STORE COMMAND...
    ok "$1: runs" "${@:3}" "$2"
    is "$1: appends, handles the conflict, reads back" "$out" "$expected"
    is "$1: has nothing to complain about" "$errout" ""
}
example "C example in memory" memory: "$tmp/append"
example "C example on a file" "sqlite:$tmp/c.db" "$tmp/append"
example "static C example" "sqlite:$tmp/static.db" "$tmp/append-static"
example "Python example in memory" memory: python3 "$WEIR_SOURCE/examples/append.py"
example "Python example on a file" "sqlite:$tmp/py.db" python3 "$WEIR_SOURCE/examples/append.py"
run "$prefix/bin/weir" read order-1 --store "sqlite:$tmp/py.db" --json
is "the program reads what Python wrote" "$(grep -c '"stream":"order-1"' <<<"$out")" 2
run "$tmp/operate" "sqlite:$tmp/py.db"
is "the example of operating finds nothing blocked" "$out" "0 unblocked"
status "an example reports an error" 1 "$tmp/append" nonsense:
like "in words" "$errout" '^append: .*nonsense'
status "so does the other" 1 python3 "$WEIR_SOURCE/examples/append.py" nonsense:
like "in the same words" "$errout" '^append: .*nonsense'
# The order is there now: only the second append of a run may meet a conflict and go on.
conflict='append: conflict on "order-1": expected no such stream, it is at 1'
status "a second run of the C example ends with the conflict" 1 "$tmp/append" "sqlite:$tmp/c.db"
is "and says so" "$errout$out" "$conflict"
status "a second run of the Python example as well" 1 python3 "$WEIR_SOURCE/examples/append.py" "sqlite:$tmp/py.db"
is "in the same words" "$errout$out" "$conflict"
is "and neither appends" "$("$prefix/bin/weir" log --store "sqlite:$tmp/c.db" | wc -l)" 2

done_testing
