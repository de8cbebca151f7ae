#!/usr/bin/env bash
# header_test.sh - weir.h compiles alone, without a warning, in both languages and both compilers,
# and includes nothing but the standard headers of both.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

header=$WEIR_SOURCE/include/weir.h
source=$WEIR_SOURCE/tests/header/header_test.c
strict=(-Wall -Wextra -Werror -pedantic-errors "-I$WEIR_SOURCE/include")

for compiler in gcc clang; do
    ok "alone as C11 with $compiler" "$compiler" -std=c11 "${strict[@]}" -fsyntax-only -x c "$header"
    ok "in a program as C11 with $compiler" \
        "$compiler" -std=c11 "${strict[@]}" -o "$tmp/program" "$source"
    ok "the program runs" "$tmp/program"
    is "every initialiser sets its size" "$(grep -c '^ok' <<<"$out")" 22
    rm -f "$tmp/program"
done
# Leaving members out is how these structs are used. C++ compilers warn of it, but not where a member
# has a default (WEIR_0).
for compiler in g++ clang++; do
    ok "alone as C++20 with $compiler" \
        "$compiler" -std=c++20 "${strict[@]}" -fsyntax-only -x c++ "$header"
    ok "in a program as C++20 with $compiler" \
        "$compiler" -std=c++20 "${strict[@]}" -x c++ -o "$tmp/program" "$source"
    ok "the program runs" "$tmp/program"
    is "every initialiser sets its size" "$(grep -c '^ok' <<<"$out")" 22
    rm -f "$tmp/program"
done

is "every initialiser of the header is tried" \
    "$(grep -oE 'WEIR_[A-Z_]+_INIT' "$source" | sort -u)" \
    "$(sed -nE 's/^#define (WEIR_[A-Z_]+_INIT) .*/\1/p' "$header" | sort)"
# A struct that callers fill must be able to grow: all but its size may be left out.
is "and what has one can be left out" \
    "$(awk '/^typedef struct/{n=$3; body=""} {body=body "\n" $0}
        /^#define WEIR_[A-Z_]+_INIT/{print body}' "$header" |
        grep -E '^    [a-z].*;' | grep -vE 'WEIR_0;|uint32_t size;')" ""

run grep -E '^ *# *include' "$header"
is "only <stddef.h> and <stdint.h> are included" "$out" \
    $'#include <stddef.h>\n#include <stdint.h>'

# A member that is added without shrinking `reserved` must not compile.
sed 's/char reserved\[472\]/char reserved[480]/' "$header" >"$tmp/weir.h"
not_ok "a weir_error of another size does not compile" \
    gcc -std=c11 "-I$tmp" -fsyntax-only "$source"

done_testing
