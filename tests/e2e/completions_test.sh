#!/usr/bin/env bash
# completions_test.sh - completions in the shells themselves: names of streams are data, whatever they
# look like, and are never run, split or expanded.
# shellcheck disable=SC2016 # names that look like commands
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE

mkdir bin home
: >'my events.jsonl'
ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$PATH HOME=$tmp/home
completions=$WEIR_SOURCE/completions

evil='a$(touch${IFS}pwned)'
for stream in order-1 "$evil" 'b`touch pwned`' 'two words' user:17 user:2 'c;touch pwned' 'd*'; do
    ok "a stream $stream" weir append "$stream" N
done

# Both shells complete only where somebody types. This types a line ($2...: what to begin the shell
# with) in a terminal of its own and prints what came back.
cat >type.zsh <<'END2'
zmodload zsh/zpty
line=$1
shift
zpty z "${(q)@}"
until_seen() { local part; seen=; while zpty -r z part; do seen+=$part; [[ $seen == *$1* ]] && return; done; return 1 }
zpty -w z "$(<setup)"
zpty -w z "printf 'READ%s\n' Y"
until_seen READY
zpty -w -n z "$line"
until_seen MARKED
print -r -- "$seen"
END2
types() { timeout 30 zsh -f type.zsh "$@" | tr -d '\r'; }

# ---- bash --------------------------------------------------------------------------------------

# `show` is completed as weir is, and prints the words that bash made of the line.
bash_setup() {
    cat <<END2
set +o history
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
. '$completions/weir.bash'
complete -F _weir show
show() { printf '<%s>' "\$@"; printf 'MARK%s\n' ED; }
COMP_WORDBREAKS=$1
END2
}
completed() { types "show $1"$'\t\n' bash --norc --noprofile -i | grep -o '<.*MARKED'; }
bash_setup '$COMP_WORDBREAKS' >setup
is "bash: a name with a command in it" "$(completed 'read a')" '<read><a$(touch${IFS}pwned)>MARKED'
is "bash: and one with backquotes" "$(completed 'read b')" '<read><b`touch pwned`>MARKED'
is "bash: a name with a space is one word" "$(completed 'read tw')" '<read><two words>MARKED'
is "bash: and can be completed further" "$(completed 'read two\ w')" '<read><two words>MARKED'
is "bash: between single quotes" "$(completed "read 'two w")" '<read><two words>MARKED'
is "bash: between double quotes" "$(completed 'read "b')" '<read><b`touch pwned`>MARKED'
is "bash: a name with a semicolon" "$(completed 'read c')" '<read><c;touch pwned>MARKED'
is "bash: a name with a star" "$(completed 'read d')" '<read><d*>MARKED'
is "bash: what is usual is as it is" "$(completed 'read ord')" '<read><order-1>MARKED'
is "bash: up to where names differ" "$(completed 'read us')" '<read><user:>MARKED'
is "bash: after a colon" "$(completed 'read user:1')" '<read><user:17>MARKED'
is "bash: the store that is named" "$(completed '--store sqlite:weir.db read ord')" '<--store><sqlite:weir.db><read><order-1>MARKED'
is "bash: also with =" "$(completed '--store=sqlite:weir.db read ord')" '<--store=sqlite:weir.db><read><order-1>MARKED'
is "bash: another that is not there" "$(completed '--store sqlite:none.db read ord')" '<--store><sqlite:none.db><read><ord>MARKED'
is "bash: a scheme" "$(completed 'log --store sq')" '<log><--store><sqlite:>MARKED'
is "bash: a value after =" "$(completed 'append x N --expect=no')" '<append><x><N><--expect=none>MARKED'
is "bash: a file with a space" "$(completed 'append --batch my')" '<append><--batch><my events.jsonl>MARKED'
is "bash: a file of data" "$(completed 'append x N @my')" '<append><x><N><@my events.jsonl>MARKED'
bash_setup "' '" >setup
is "bash: where a colon ends no word" "$(completed 'read user:1')" '<read><user:17>MARKED'
is "bash: nor does =" "$(completed 'append x N --expect=no')" '<append><x><N><--expect=none>MARKED'
not_ok "bash: nothing was run" test -e pwned

# ---- zsh and fish ------------------------------------------------------------------------------

mkdir functions
cp "$completions/weir.zsh" functions/_weir
# ^T lists what would be offered.
cat >setup <<END2
PS1= RPS1= PROMPT_EOL_MARK=; fpath=('$tmp/functions' \$fpath); autoload -Uz compinit; compinit -u -D
list() {
    compadd() { builtin compadd -O matched "\$@"; print -rl -- \$matched; builtin compadd "\$@" }
    _main_complete
    unfunction compadd
    print MARK''ED
}
zle -C list list-choices list; bindkey '^T' list
END2
zsh_lists() { types "$1"$'\024' zsh -f -i; }
like "zsh: commands" "$(zsh_lists 'weir st')" $'\nstatus\n'
like "zsh: commands to be explained" "$(zsh_lists 'weir help st')" $'\nstatus\n'
like "zsh: flags that several commands share" "$(zsh_lists 'weir skip --blo')" $'\n--blocked\n'
like "zsh: names of streams" "$(zsh_lists 'weir read a')" 'touch'
not_ok "zsh: nothing was run" test -e pwned

fish_completes() { fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$completions/weir.fish" "$1" | cut -f 1; }
is "fish: commands" "$(fish_completes 'weir sta')" status
is "fish: commands to be explained" "$(fish_completes 'weir help sta')" status
is "fish: a name with a command in it" "$(fish_completes 'weir read a')" "$evil"
not_ok "fish: nothing was run" test -e pwned

done_testing
