#!/usr/bin/env bash
# check_test.sh - each check passes a tree that is in order and finds what it is there to find. A
# small tree of its own is checked by copies of the tools; the checks that need a build (tidy, man)
# are run on a build of one file and one page.
# shellcheck disable=SC2016 # backquotes of Markdown
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

top=$tmp/top
mkdir -p "$top/tools" "$top/src/base" "$top/include" "$top/build/man"
cp "$WEIR_SOURCE/tools/check.sh" "$WEIR_SOURCE/tools/check-layers.sh" \
    "$WEIR_SOURCE/tools/codespell-ignore.txt" "$top/tools/"
cp "$WEIR_SOURCE/.clang-format" "$WEIR_SOURCE/.clang-tidy" "$WEIR_SOURCE/.shellcheckrc" "$top/"
echo /build/ >"$top/.gitignore"
git -C "$top" init -q

cat >"$top/src/base/sum.c" <<'END'
/* sum.c - adds. */
int sum(int a, int b);

int sum(int a, int b)
{
    return a + b;
}
END
cat >"$top/tools/say" <<'END'
#!/bin/sh
echo "$1"
END
printf '#!/usr/bin/env python3\nprint(1)\n' >"$top/tools/count"
printf '```\nsrc/        sources\n  src/base/ the base\ntools/      tools\n```\n' >"$top/CONTRIBUTING.md"
printf '# Sources\n\n| `base/` | the base |\n' >"$top/src/README.md"
echo 'build all: phony' >"$top/build/build.ninja"
cat >"$top/build/compile_commands.json" <<END
[{"directory": "$top/build", "command": "cc -c ../src/base/sum.c", "file": "../src/base/sum.c"}]
END
page='.TH A 1 2026-01-01
.SH NAME
a - b'
echo "$page" >"$top/build/man/a.1"
git -C "$top" add -A

check() { "$top/tools/check.sh" "$top/build" "$@"; }
# finds CHECK FILE PATTERN: with what is on stdin added to the file, the check fails and shows it.
finds() {
    local kept
    kept=$(cat "$top/$2" 2>/dev/null; echo x)
    cat >>"$top/$2"
    git -C "$top" add -A
    status "$1 finds it" 1 check "$1"
    like "$1 shows it" "$out" "$3"
    is "$1 counts it" "$(tail -n 1 <<<"$out")" "0 passed, 1 failed"
    printf '%s' "${kept%x}" >"$top/$2"
    git -C "$top" add -A
}

ok "a tree in order passes" check
is "with every check" "$(tail -n 1 <<<"$out")" "11 passed, 0 failed"

finds format src/base/sum.c 'clang-format -i src/base/sum.c' <<<'int  x;'
finds layers src/base/sum.c 'src/base/sum.c:8: base includes' <<<'#include "store/store.h"'
finds maps CONTRIBUTING.md 'the map lists src/gone/, which does not exist' <<<'  src/gone/ gone'
finds maps src/README.md 'src/README.md: the map lists gone.c, which does not exist' <<<'| `base/`, `gone.c` | gone |'
mkdir -p "$top/new" "$top/src/new" "$top/src/base/deep"
for file in new src/new src/base/deep; do echo x >"$top/$file/file"; done
finds maps src/base/README.md 'CONTRIBUTING.md: the map does not list new/
.*CONTRIBUTING.md: the map does not list src/new/
.*src/base/README.md: the map does not list deep/
.*src/README.md: the map does not list new/' <<<'# Base'
rm -r "$top/new" "$top/src/new" "$top/src/base/deep" "$top/src/base/README.md"
git -C "$top" add -A
ok "maps: a tree that is in order again" check maps
finds sizes src/base/sum.c 'src/base/sum.c:8:' <<<"/* $(printf 'é%.0s' {1..97}) */"
finds sizes src/base/sum.c 'src/base/sum.c: 1007 lines' < <(yes '' | head -n 1000)
finds whitespace src/base/sum.c 'src/base/sum.c:8: trailing whitespace' <<<'/* x */ '
finds codespell src/base/sum.c 'reci''eve ==> receive' <<<'/* reci''eve */' # here it is no finding
finds shellcheck tools/say 'SC2086' <<'END'
echo $1
END
finds python tools/count 'SyntaxError' <<<'print('
finds man build/man/a.1 'unknown macro' <<<'.XX'
finds cppcheck src/base/sum.c 'sum.c:10: error' <<'END'
int first(void)
{
    int a[2] = { 0, 1 }; return a[2];
}
END
finds tidy src/base/sum.c 'src/base/sum.c:11:.*braces' <<'END'
int larger(int a, int b);
int larger(int a, int b)
{
    if (a > b)
        return a;
    return b;
}
END
ok "a line of 100 characters is no finding" bash -c \
    "printf '/* %s */\n' \"\$(printf 'é%.0s' {1..94})\" >>'$top/src/base/sum.c' && '$top/tools/check.sh' '$top/build' sizes"
status "a check that does not exist" 2 check nonsense

done_testing
