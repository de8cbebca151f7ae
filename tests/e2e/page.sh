# shellcheck shell=bash disable=SC2154 # tmp comes from tap.sh
# page.sh - runs the commands of a page of the documentation as they are written. Source tap.sh first.
#
#     page_run PAGE [KIND]     runs the blocks of PAGE one after the other, in this shell and directory
#
# A block ```sh is run; one that says more, ```sh postgres, only if that is KIND. No command of a block may
# fail, but the last one, when it says `# exit status N`. A block ```text after it is what it printed, unless it
# tells times. What a block printed is in $tmp/.page; page_after, if there is such a function, is called after
# each. $page_blocks is how many were run.
page_blocks=0
page_number=0

# page_block NAME FILE: one block.
page_block() {
    local name=$1 block=$2 expected=0 got allowed
    [[ $(tail -n 1 "$block") =~ '# exit status '([0-9]+) ]] && expected=${BASH_REMATCH[1]}
    page_failures=()
    trap 'page_failures+=("$? from: $BASH_COMMAND")' ERR
    # shellcheck disable=SC1090
    { . "$block"; } >"$tmp/.page" 2>"$tmp/.page-err" </dev/null
    got=$?
    trap - ERR
    # The command itself, and the source command that it ends.
    allowed=$((expected == 0 ? 0 : 2))
    if [ "$got" -eq "$expected" ] && [ "${#page_failures[@]}" -le "$allowed" ]; then
        pass "$name"
    else
        fail "$name" "exit status $got, not $expected; failed: ${page_failures[*]}"
        diag "$(cat "$block")"
        diag "stdout: $(tail -n 20 "$tmp/.page")"
        diag "stderr: $(tail -n 20 "$tmp/.page-err")"
    fi
}

page_run() {
    local page=$1 kind=${2:-} directory block name text
    page_number=$((page_number + 1))
    directory=$tmp/blocks-$page_number
    mkdir "$directory"
    # Blocks as files: 012.sh, 013.text, ...
    awk -v directory="$directory" -v kind="$kind" '
    /^```/ {
        if (file != "") { close(file); file = ""; next }
        language = substr($1, 4)
        wanted = language == "text" || (language == "sh" && (NF == 1 || $2 == kind))
        file = wanted ? sprintf("%s/%03d.%s", directory, ++count, language) : "/dev/null"
        printf "" >file
        next
    }
    file != "" { print >file }' "$page"
    page_blocks=0
    for block in "$directory"/*.sh; do
        page_blocks=$((page_blocks + 1))
        name="$(basename "$page") $(basename "$block" .sh): $(head -n 1 "$block")"
        page_block "$name" "$block"
        if declare -F page_after >/dev/null; then page_after; fi
        text=$directory/$(printf '%03d.text' $((10#$(basename "$block" .sh) + 1)))
        if [ -e "$text" ] && ! grep -q '^ *[0-9.]* s  \|, doubled: 3' "$text"; then
            is "$name: prints what the page says" "$(cat "$tmp/.page")" "$(cat "$text")"
        fi
    done
}
