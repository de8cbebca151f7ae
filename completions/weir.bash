# bash completion for weir                                              -*- shell-script -*-
#
# Options come from the lists below; names of streams, events' categories and lanes come from the
# store that the command line names, when there is one and it answers.

_weir_commands='append read log streams close targets init status doctor help version'
_weir_common='--store --json --text --help'

_weir_options() {
    case $1 in
    append) echo '--expect --meta --correlation --key --reserve --release-key --batch --keep-going --atomic' ;;
    read) echo '--from --to --limit --backward --at' ;;
    log) echo '--after --since --tail --limit --name --stream --category --correlation --follow' ;;
    streams) echo '--match --category --open --closed --after --limit' ;;
    close) echo '--expect --force --dry-run' ;;
    targets) echo '--match --source --lane --blocked --limit' ;;
    init) echo '--plan --adopt' ;;
    esac
}

# Names of streams that begin with $1.
_weir_streams() {
    local arguments=(streams --json --limit 50 --match "$1*")
    [ -n "$2" ] && arguments+=(--store "$2")
    weir "${arguments[@]}" 2>/dev/null | sed -n 's/^{"stream":"\([^"\\]*\)".*/\1/p'
}

_weir() {
    local current previous words cword cur prev
    if declare -F _init_completion >/dev/null; then
        _init_completion -n : || return
        current=$cur previous=$prev
    else
        words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
        current=${words[cword]} previous=${words[cword - 1]}
    fi

    local command='' store='' i argument=0
    for ((i = 1; i < cword; i++)); do
        case ${words[i]} in
        --store) store=${words[++i]-} ;;
        --store=*) store=${words[i]#--store=} ;;
        -*) ;;
        *) if [ -z "$command" ]; then command=${words[i]}; else argument=$((argument + 1)); fi ;;
        esac
    done

    case $previous in
    --store)
        mapfile -t COMPREPLY < <(compgen -W 'sqlite: memory:' -- "$current")
        return
        ;;
    --expect)
        mapfile -t COMPREPLY < <(compgen -W 'any none exists' -- "$current")
        return
        ;;
    --batch)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --meta | --correlation | --key | --reserve | --release-key | --from | --to | --limit | --at | \
        --after | --since | --tail | --name | --stream | --category | --match | --source | --lane)
        return
        ;;
    esac

    if [[ $current == -* ]]; then
        local version=''
        [ -z "$command" ] && version=--version
        mapfile -t COMPREPLY < <(compgen -W "$_weir_common $(_weir_options "$command") $version" -- "$current")
    elif [ -z "$command" ] || [ "$command" = help ]; then
        mapfile -t COMPREPLY < <(compgen -W "$_weir_commands" -- "$current")
    elif [ "$argument" -eq 0 ]; then
        case $command in
        append | read | close)
            mapfile -t COMPREPLY < <(compgen -W "$(_weir_streams "$current" "$store")" -- "$current")
            ;;
        esac
    elif [ "$command" = append ] && [[ $current == @* ]]; then
        mapfile -t COMPREPLY < <(compgen -P @ -f -- "${current#@}")
    fi
}

complete -F _weir weir
