#!/usr/bin/env bash
# cli_docs_test.sh - what is written about the program is so: every flag of every command is in its man
# page and in the completions of all three shells, and none is there that does not exist; man pages are
# clean; the commands of the README, of docs/events.md and of the man pages' examples run as written.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
. "$(dirname "$0")/page.sh" || exit 1
unset WEIR_STORE
man=$WEIR_SOURCE/man
completions=$WEIR_SOURCE/completions
cd "$tmp" || exit 1
mkdir bin && ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$PATH

sorted() { sort -u | tr '\n' ' '; }
common='--color --help --insecure --json --store --text --utc --wide '
commands=$(weir help | sed -n '/^Events/,$p' | sed -n 's/^  \([a-z]*\) .*/\1/p')
# The flags a command's --help lists; of its own, and all.
flags() { weir "$1" --help | sed -n "/^Options/,/^Examples/s/^  \(--[a-z-]*\).*/\1/p" | sorted; }
own_flags() { comm -23 <(flags "$1" | tr ' ' '\n' | sort) <(tr ' ' '\n' <<<"$common" | sort) | sorted; }

# ---- man pages ---------------------------------------------------------------------------------

for command in $commands; do
    page=$man/weir-$command.1.scd
    ok "weir-$command(1) is there" test -f "$page"
    is "weir-$command(1) has the flags of weir $command --help, and no other" \
        "$(sed -n 's/^\*\(--[a-z-]*\)\*.*/\1/p' "$page" | sorted)" "$(flags "$command")"
    like "weir-$command(1) says what weir help says of values" \
        "$(grep -c '' "$page") $(weir "$command" --help | sed -n 's/^  --\([a-z-]*\) \([A-Z]\+\) .*/*--\1* _\2_/p' | while read -r line; do grep -qxF -- "$line" "$page" || echo "missing: $line"; done)" '^[0-9]+ $'
    ok "weir(1) names weir-$command(1)" grep -qxF "*weir-$command*(1)" "$man/weir.1.scd"
done
is "weir(1) has the flags of weir" "$(sed -n 's/^\*\(--[a-z-]*\)\*.*/\1/p' "$man/weir.1.scd" | sorted)" "--color --help --insecure --json --store --text --utc --version --wide "
is "there is no page for a command that does not exist" \
    "$(for page in "$man"/weir-*.1.scd; do basename "$page" .1.scd | sed 's/weir-//'; done | sorted)" "$(sorted <<<"$commands")"
for source in "$man"/*.scd; do
    page=$(basename "$source" .scd)
    ok "$page: scdoc takes it" bash -c 'scdoc <"$1" >"$2"' - "$source" "$page"
    # scdoc itself writes a paragraph macro where mandoc wants none; that is not the page's fault.
    is "$page: mandoc finds nothing" "$(mandoc -T lint -W warning "$page" 2>&1 | grep -v 'skipping paragraph macro: PP')" ""
done
for function in $(grep -o 'weir_[a-z_]*(' "$WEIR_SOURCE/include/weir.h" | tr -d '(' | grep -v _fn | sort -u); do
    if grep -q "WEIR_API.* \**$function(\|^ *$function(\| \**$function(.*;" "$WEIR_SOURCE/include/weir.h"; then
        ok "libweir(3) names $function" grep -q "\*$function\*" "$man/libweir.3.scd"
    fi
done
# What a function of the header can return: the codes that any may, and those that comments of the
# declarations name. (Others of the enum belong to stores and commands still to come.)
for code in EINVAL ENOMEM EIO EMISUSE $(grep -oE '\bE[A-Z]{3,}\b' "$WEIR_SOURCE/include/weir.h" |
    grep -vxE 'EINVAL|EVERY|EXISTING' | sort -u); do
    ok "libweir(3) explains WEIR_$code" grep -qxF "|  WEIR_$code" "$man/libweir.3.scd"
done
ok "weir.yaml(5) has its key" grep -qxF '*store*' "$man/weir.yaml.5.scd"

# Parameters of a PostgreSQL URL, as url.c knows them.
parameters="payload keys $(sed -n 's/.*known\[\] = { \(.*\) };/\1/p' "$WEIR_SOURCE/src/store/url.c" | tr -d '",')"
like "url.c has parameters of its own" "$parameters" 'schema .*direct'
for name in $parameters; do
    ok "weir(1) explains $name=" grep -q "^\*$name=" "$man/weir.1.scd"
    ok "docs/postgres.md explains $name=" grep -q "^| \`$name=" "$WEIR_SOURCE/docs/postgres.md"
done

# Every command that weir help choosing names is there, and every flag that it names is one of it.
while read -r command rest; do
    ok "weir help choosing: weir $command" weir "$command" --help
    while read -r flag; do
        like "weir help choosing: weir $command $flag" " $(flags "$command")" " $flag "
    done < <(grep -oE -- '--[a-z-]+' <<<"$rest")
done < <(weir help choosing | grep -oE 'weir [a-z]+.*' | sed 's/^weir //; s/   .*//')
is "weir help choosing names all three patterns" \
    "$(weir help choosing | grep -oE '^ +weir (claim TABLE --run|lock --table|lock NAME)' | wc -l)" 3

# ---- completions -------------------------------------------------------------------------------

cat >complete.bash <<'END'
. "$1"
shift
COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_weir
printf '%s\n' "${COMPREPLY[@]}"
END
# What zsh offers for a command beside the common flags: its branch of the case, and the lists that it
# names.
zsh_list() { sed -n "/^    $1=(/,/^    )/p" "$completions/weir.zsh" | grep -o -- '--[a-z-]*\[' | tr -d '['; }
zsh_flags() {
    local branch
    branch=$(awk -v command="$1" '/^        [a-z |]+\)/ { here = (" " $0) ~ "[ |]" command "[ )]" } here' "$completions/weir.zsh")
    { grep -o -- '--[a-z-]*\[' <<<"$branch" | tr -d '['; grep -q '\$acting' <<<"$branch" && zsh_list acting; } | sorted
}
fish_flags() { fish --no-config -c 'source $argv[1]; complete -C "weir $argv[2] --"' "$completions/weir.fish" "$1" | cut -f 1 | sorted; }
bash_completes() { bash complete.bash "$completions/weir.bash" "$@" | sorted; }
is "bash completes commands" "$(bash_completes weir '')" "$(sorted <<<"$commands")"
is "bash: --version stands alone" "$(bash_completes weir --v)" "--version "
for command in $commands; do
    is "bash: flags of weir $command" "$(bash_completes weir "$command" --)" "$(flags "$command")"
    is "zsh: flags of weir $command" "$(zsh_flags "$command")" "$(own_flags "$command")"
    is "fish: flags of weir $command" "$(fish_flags "$command")" "$(flags "$command")"
done
is "zsh: flags of every command" "$(zsh_list common | sorted)" "$common"
is "fish: --version stands alone" "$(fish_flags '')" "$(tr ' ' '\n' <<<"$common--version" | sorted)"
is "zsh: commands" "$(sed -n '/^    commands=(/,/^    )/s/^        .\([a-z]*\):.*/\1/p' "$completions/weir.zsh" | sorted)" "$(sorted <<<"$commands")"
is "fish: commands" "$(fish --no-config -c 'source $argv[1]; complete -C "weir "' "$completions/weir.fish" | cut -f 1 | sorted)" "$(sorted <<<"$commands")"
weir append order-1 N >/dev/null 2>&1
weir append order-2 N >/dev/null
is "bash completes names of streams" "$(bash_completes weir read or)" "order-1 order-2 "
is "of the store that is named" "$(bash_completes weir --store sqlite:none.db read or)" " "
is "bash completes weir help choosing" "$(bash_completes weir help cho)" "choosing "
is "bash completes expectations" "$(bash_completes weir append order-1 N --expect '')" "any exists none "

# ---- examples run as written -------------------------------------------------------------------

# Each page in a fresh directory, with the examples in it.
page_home() {
    mkdir "$tmp/$1" && cd "$tmp/$1" && ln -s "$WEIR_SOURCE/examples" examples || exit 1
}
page_home readme
page_run "$WEIR_SOURCE/README.md"
is "the README has three doors" "$page_blocks" 3
is "two workers have sent each email once" "$(grep -o '[a-z]*@x' sent.jsonl | sort | tr '\n' ' ')" \
    "ada@x bob@x cleo@x "
ok "the README has at most 150 lines" test "$(wc -l <"$WEIR_SOURCE/README.md")" -le 150

# What the README shows of a race is what it prints: without times, and whichever worker was first.
told() { sed -E 's/^ +[0-9.]+ s  worker-[0-9]+ +//; s/row [12]/row N/' | grep -E '^(asks|sees|gets|sends|writes|[0-9]+ emails) ' | sort; }
for race in 'race --mode none' race; do
    # shellcheck disable=SC2086 # words
    is "the README shows what weir $race prints" \
        "$(awk -v line="\$ weir $race" '/^```/ { here = 0 } here; $0 == line { here = 1 }' "$WEIR_SOURCE/README.md" | told)" \
        "$(weir $race --pause 100ms --text | told)"
done
page_home events
page_run "$WEIR_SOURCE/docs/events.md"
ok "docs/events.md has commands (it has $page_blocks blocks)" test "$page_blocks" -ge 8
cd "$tmp" || exit 1

# The examples of --help, in an order that makes sense.
mkdir help && cd help || exit 1
echo '{"amount":12}' >payment.json
echo '{"stream":"order-9","name":"N"}' >events.jsonl
for command in append read log streams targets race init status doctor version help close; do
    while IFS= read -r line; do
        case $line in
        *--follow* | *--watch* | *postgres:*) continue ;; # have tests of their own
        *'close order-1 --expect 4') for _ in 2 3 4; do weir append order-1 Noted >/dev/null; done ;;
        esac
        expected=0
        [[ $line == *targets* ]] && expected=3 # there are none
        if [[ $line == *orders.db* && ! -e orders.db ]]; then weir init --store sqlite:orders.db >/dev/null; fi
        [[ $line == *--after* ]] && line=${line/1200/0}
        status "weir $command --help: $line" "$expected" bash -c "$line"
    done < <(weir "$command" --help | sed -n '/^Examples/,$s/^  //p')
done

done_testing
