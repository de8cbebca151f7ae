#!/usr/bin/env bash
# check.sh - everything that can be said about the sources without running them.
#
#   tools/check.sh BUILD_DIR [CHECK...]
#
# BUILD_DIR is a configured build directory (for compile_commands.json and generated headers). Names
# of checks: format tidy cppcheck layers maps sizes shellcheck python man codespell whitespace; none:
# all of them. Each prints what it found; the last line is `N passed, N failed`, counted in checks.
set -u
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
build=$(cd "$1" && pwd) || usage
shift
cd "$(dirname "$0")/.." || exit 1

FILE_LINES_MAX=1000 # a file past this is two modules
COLUMNS_MAX=100

# Every file of the project that fits the patterns, whether or not it is committed yet.
files() { git ls-files -z --cached --others --exclude-standard -- "$@" | while read -r -d '' file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi
done; }

check_format() {
    files '*.c' '*.h' | xargs -0 -r clang-format --dry-run -Werror 2>"$tmp/format" || {
        # One line per file is enough: the remedy is the same for all of its places.
        sed -nE 's/^([^ :]+):[0-9]+:[0-9]+: error: .*/\1/p' "$tmp/format" | sort | uniq -c |
            while read -r count file; do echo "clang-format -i $file   # $count places"; done
        return 1
    }
}

# The analysers look at what is shipped. Tests are held to the compilers' warnings instead.
shipped() { files 'src/*.c' | grep -zvE '_(test|testing|fixture|fuzz|bench)\.c$'; }

check_tidy() {
    ninja -C "$build" >/dev/null || { echo "the build failed"; return 1; }
    shipped | xargs -0 -r -n 1 -P 2 clang-tidy --quiet -p "$build" \
        --extra-arg=-Wno-unknown-warning-option >"$tmp/tidy" 2>&1 || {
        # A finding in a header comes once for every file that includes it.
        grep -E ': (error|warning): ' "$tmp/tidy" | sed 's|^.*/\(src/\)|\1|' | sort -u
        return 1
    }
}

# autoVariables: callers that wait stand in a queue with a record on their own stack, on purpose.
check_cppcheck() {
    shipped | xargs -0 -r cppcheck --quiet --std=c11 --enable=warning,performance,portability \
        --inline-suppr --error-exitcode=1 -j 2 -I include -I src \
        --suppress=missingIncludeSystem --suppress=autoVariables \
        --template='{file}:{line}: {severity}: {message} [{id}]'
}

check_layers() { tools/check-layers.sh; }

# Every folder of the project, once, with its parents.
folders() {
    local folder
    while read -r -d '' folder; do
        while [[ $folder == */* ]]; do
            folder=${folder%/*}
            echo "$folder"
        done
    done < <(files) | sort -u
}

# The map of CONTRIBUTING.md has a line for every folder at the top, in src/ and in tests/, and for no other.
# A README names each folder beside it, and the files and folders of its table exist.
check_maps() {
    local folder readme name
    folders | grep -E '^([^/]+|(src|tests)/[^/]+)$' >"$tmp/folders"
    sed -nE 's|^ *([A-Za-z0-9_./-]+)/ +[^ ].*|\1|p' CONTRIBUTING.md | sort -u >"$tmp/map"
    comm -23 "$tmp/folders" "$tmp/map" | sed 's|.*|CONTRIBUTING.md: the map does not list &/|' >"$tmp/missing"
    comm -13 "$tmp/folders" "$tmp/map" | sed 's|.*|CONTRIBUTING.md: the map lists &/, which does not exist|' >>"$tmp/missing"
    while read -r folder; do
        readme=${folder%/*}/README.md
        if [[ $folder == */* && -e $readme ]] && ! grep -qF "\`${folder##*/}/" "$readme"; then
            echo "$readme: the map does not list ${folder##*/}/" >>"$tmp/missing"
        fi
    done < <(folders)
    while read -r -d '' readme; do
        # shellcheck disable=SC2016 # backquotes of Markdown
        while read -r name; do
            if [[ $readme == */* && ! -e ${readme%/*}/$name ]]; then
                echo "$readme: the map lists $name, which does not exist" >>"$tmp/missing"
            fi
        done < <(sed -nE '/^\| `/s/^\|([^|]*)\|.*/\1/p' "$readme" | grep -oE '`[a-z0-9_-]+(/|\.(c|h|sql|py|sh))`' | tr -d '`')
    done < <(files 'README.md' '*/README.md')
    cat "$tmp/missing"
    [ ! -s "$tmp/missing" ]
}

check_sizes() {
    local bad=0 lines file
    while read -r -d '' file; do
        lines=$(wc -l <"$file")
        # The public header stays one file: whoever includes it needs nothing else.
        if [ "$lines" -gt "$FILE_LINES_MAX" ] && [ "$file" != include/weir.h ]; then
            echo "$file: $lines lines; past $FILE_LINES_MAX it is two modules"
            bad=1
        fi
    done < <(files '*.c' '*.h' '*.py' '*.sh')
    # In characters, not bytes. The formatter leaves comments alone, so it does not see these.
    if files '*.c' '*.h' | LC_ALL=C.UTF-8 xargs -0 -r grep -nHE ".{$((COLUMNS_MAX + 1)),}" >"$tmp/long"; then
        cut -c 1-160 "$tmp/long"
        bad=1
    fi
    return $bad
}

# Scripts by their first line, so that those without an extension are found as well.
scripts() {
    local kind=$1 file first
    while read -r -d '' file; do
        first=
        IFS= read -r first <"$file" 2>/dev/null
        if [[ $first =~ ^'#!'.*[/\ ]$kind ]] || [[ $first =~ ^'# shellcheck shell=' && $kind != python3 ]]; then
            printf '%s\0' "$file"
        fi
    done < <(files)
}

check_shellcheck() {
    { scripts bash; scripts sh; } 2>/dev/null | sort -zu | xargs -0 -r shellcheck
}

check_python() {
    scripts python3 2>/dev/null | xargs -0 -r -n 1 python3 -c '
import ast, sys
ast.parse(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1])'
}

check_man() {
    ninja -C "$build" >/dev/null || { echo "the build failed"; return 1; }
    local page bad=0
    for page in "$build"/man/*.[1-9]; do
        [ -e "$page" ] || { echo "no man page was built"; return 1; }
        # scdoc puts a paragraph before every heading and list; mandoc skips those, which is fine.
        mandoc -T lint -W warning "$page" | grep -v 'skipping paragraph macro' && bad=1
    done
    return $bad
}

check_codespell() {
    files '*.c' '*.h' '*.md' '*.sh' '*.py' '*.scd' '*.sql' '*.build' 'tools/*' Makefile |
        xargs -0 -r codespell --ignore-words tools/codespell-ignore.txt
}

check_whitespace() {
    git diff --check "$(git hash-object -t tree /dev/null)" -- . ':!*.patch'
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
all=(format layers maps sizes whitespace codespell shellcheck python man cppcheck tidy)
[ $# -gt 0 ] || set -- "${all[@]}"
passed=0
failed=0
for check in "$@"; do
    declare -F "check_$check" >/dev/null || usage
    started=$SECONDS
    if "check_$check" >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
        printf '%-12s ok      %4d s\n' "$check" $((SECONDS - started))
    else
        failed=$((failed + 1))
        printf '%-12s FAILED  %4d s\n' "$check" $((SECONDS - started))
        head -n 200 "$tmp/log" | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
