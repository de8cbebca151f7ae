# bash completion for weir                                              -*- shell-script -*-
#
# Options come from the lists below; names of streams and targets come from the store that the
# command line names, when there is one and it answers.

_weir_commands='append read log streams close work targets why reactions parked claim done fail release extend lock
    once locks race lint init status doctor backup restore unblock skip reset prioritize pause resume help version'
_weir_common='--store --insecure --json --text --wide --utc --color --help'
# What acts on targets takes a filter in place of names.
_weir_acting='--match --source --lane --blocked --all --dry-run --yes'

_weir_options() {
    case $1 in
    append) echo '--expect --meta --correlation --key --reserve --release-key --batch --keep-going --atomic' ;;
    read) echo '--from --to --limit --backward --at' ;;
    log) echo '--after --since --tail --limit --name --stream --category --correlation --follow' ;;
    streams) echo '--match --category --open --closed --after --limit' ;;
    close) echo '--expect --force --dry-run' ;;
    work) echo '--config --on --to --run --exec --name --source --lane --priority --retries --from --lanes --threads
        --memory-limit --until-idle --redeclare --budget --log --verbose --check' ;;
    targets) echo '--match --source --lane --blocked --limit --watch' ;;
    why) echo '--verbose' ;;
    reactions) echo '--dry-run' ;;
    once) echo '--nowait --check --grace --list --limit --forget --yes' ;;
    lock) echo '--table --id --wait --held-exit --check --grace' ;;
    parked) echo '--target --reaction --all --limit --dry-run --yes' ;;
    claim) echo '--table --where --param --order --limit --set --set-sql --by --by-column --at-column --lease
        --lease-column --fence-column --attempts-column --max-per --wait --nowait --path --dry-run --sql
        --explain --run --parallel --deadline --budget --done --done-sql --fail --fail-sql --release
        --release-sql --hold' ;;
    done | fail | release) echo '--by --by-column --at-column --fence --fence-column --lease-column --set --set-sql --param' ;;
    extend) echo '--lease --by --by-column --fence --fence-column --lease-column' ;;
    race) echo '--workers --rows --limit --mode --pause --effects --keep --drop' ;;
    lint) echo '--limit --dialect --rules' ;;
    unblock | skip | pause | resume) echo "$_weir_acting" ;;
    reset) echo "$_weir_acting --to" ;;
    prioritize) echo "$_weir_acting --clear" ;;
    init) echo '--plan --adopt --grant --as' ;;
    status) echo '--metrics --watch' ;;
    backup) echo '--force' ;;
    esac
}

# Names of streams or targets ($4) that begin with $1, of store $2, quoted for where they go: '' on
# the bare line, or inside the quotes $3. They are data of whoever appended them: nothing here may expand them, so
# they never meet compgen -W. Names that JSON must escape are left out.
_weir_names() {
    local arguments=("$4" --json --limit 50 --match "$1*") quoting=
    [ -n "$2" ] && arguments+=(--store "$2")
    case $3 in
    \') quoting="/'/d" ;;
    \") quoting='s/[$`]/\\&/g' ;;
    *) quoting="s/[] !\"#\$&'()*;<>?[\`{|}~^]/\\\\&/g" ;;
    esac
    weir "${arguments[@]}" 2>/dev/null | sed -n 's/^{"\(stream\|target\)":"\([^"\\]*\)".*/\2/p' | sed "$quoting"
}

# The line up to the cursor, as words: bash also cuts at the ':' and '=' of COMP_WORDBREAKS, and what
# it cut is joined again here. Sets `words` and `current`, which is the last of them.
_weir_split() {
    local line=${COMP_LINE:0:COMP_POINT} i

    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if [ "$i" -eq 0 ] || [[ $line == [[:blank:]]* ]]; then
            line=${line#"${line%%[![:blank:]]*}"}
            words+=('')
        fi
        if [ "$i" -eq "$COMP_CWORD" ]; then
            words[${#words[@]} - 1]+=$line
        else
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
            line=${line#"${COMP_WORDS[i]}"}
        fi
    done
    current=${words[${#words[@]} - 1]}
}

# Puts the lines of stdin that begin with $1 (what was typed) into COMPREPLY. After a ':' or '=' that
# ends a word, readline replaces only what follows it.
_weir_reply() {
    local candidate i cut=0

    for ((i = 0; i < ${#1}; i++)); do
        [[ ${1:i:1} == [:=] && $COMP_WORDBREAKS == *"${1:i:1}"* && $1 != [\"\']* ]] && cut=$((i + 1))
    done
    COMPREPLY=()
    while IFS= read -r candidate; do
        [[ ${candidate:0:cut} == "${1:0:cut}" ]] && COMPREPLY+=("${candidate:cut}")
    done
}

# The same for words of our own, which need no quoting.
_weir_words() {
    local typed=$1 prefix=$2
    shift 2
    _weir_reply "$prefix$typed" < <(compgen -P "$prefix" -W "$*" -- "$typed")
}

# Completes what is being typed with names of streams or targets ($1).
_weir_stored() {
    local quote='' bare=${current//\\/}

    if [[ $current == [\"\']* ]]; then
        quote=${current:0:1} bare=${bare:1}
    fi
    _weir_reply "$prefix$current" < <(_weir_names "$bare" "$store" "$quote" "$1" | sed "s/^/$prefix/")
}

_weir() {
    local words current previous command='' store='' i argument=0 prefix=''

    _weir_split
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        case ${words[i]} in
        --store) store=${words[++i]-} ;;
        --store=*) store=${words[i]#--store=} ;;
        -*) ;;
        *) if [ -z "$command" ]; then command=${words[i]}; else argument=$((argument + 1)); fi ;;
        esac
    done
    previous=${words[${#words[@]} - 2]}
    if [[ $current == --*=* ]]; then
        previous=${current%%=*}
        prefix=$previous=
        current=${current#*=}
    fi

    case $previous in
    --store)
        compopt -o nospace 2>/dev/null
        _weir_words "$current" "$prefix" postgres:// sqlite: memory:
        return
        ;;
    --target)
        _weir_stored targets
        return
        ;;
    --color)
        _weir_words "$current" "$prefix" auto always never
        return
        ;;
    --expect)
        _weir_words "$current" "$prefix" any none exists
        return
        ;;
    --path)
        _weir_words "$current" "$prefix" default fast portable
        return
        ;;
    --log)
        _weir_words "$current" "$prefix" text json
        return
        ;;
    --mode)
        _weir_words "$current" "$prefix" skip wait autocommit none
        return
        ;;
    --dialect)
        _weir_words "$current" "$prefix" postgres sqlite
        return
        ;;
    --as)
        _weir_words "$current" "$prefix" reader writer worker operator
        return
        ;;
    --batch | --config | --effects)
        compopt -o filenames 2>/dev/null
        _weir_reply "$current" < <(compgen -f -- "$current")
        return
        ;;
    --meta | --correlation | --key | --reserve | --release-key | --from | --to | --limit | --at | \
        --after | --since | --tail | --name | --stream | --category | --match | --source | --lane | --grant | \
        --reaction | --on | --run | --exec | --priority | --retries | --lanes | --threads | --memory-limit | --budget | \
        --held-exit | --grace | --id | --workers | --rows | --pause | --drop | \
        --table | --where | --param | --order | --set | --set-sql | --by | --by-column | --at-column | \
        --lease | --lease-column | --fence-column | --attempts-column | --max-per | --parallel | --deadline \
        | --done | --done-sql | --fail | --fail-sql | --release | --release-sql | --fence)
        return
        ;;
    esac

    if [[ $current == -* ]]; then
        local version=''
        [ -z "$command" ] && version=--version
        _weir_words "$current" '' "$_weir_common" "$(_weir_options "$command")" "$version"
    elif [ -z "$command" ] || [ "$command" = help ]; then
        _weir_words "$current" '' "$_weir_commands" ${command:+choosing output}
    elif [ "$command" = lint ]; then
        compopt -o filenames 2>/dev/null
        _weir_reply "$current" < <(compgen -f -- "$current")
    elif [ "$argument" -eq 0 ]; then
        case $command in
        append | read | close) _weir_stored streams ;;
        why | unblock | skip | reset | pause | resume) _weir_stored targets ;;
        reactions) _weir_words "$current" '' ls retire ;;
        parked) _weir_words "$current" '' ls show retry drop ;;
        esac
    elif [[ $command =~ ^(unblock|skip|reset|prioritize|pause|resume)$ ]]; then
        _weir_stored targets
    elif [ "$command" = append ] && [[ $current == @* ]]; then
        compopt -o filenames 2>/dev/null
        _weir_reply "$current" < <(compgen -P @ -f -- "${current#@}")
    fi
}

complete -F _weir weir
