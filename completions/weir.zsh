#compdef weir
# zsh completion for weir

_weir_streams() {
    local -a names arguments
    arguments=(streams --json --limit 50 --match "${PREFIX}*")
    [[ -n ${opt_args[--store]} ]] && arguments+=(--store ${opt_args[--store]})
    names=(${(f)"$(weir $arguments 2>/dev/null | sed -n 's/^{"stream":"\([^"\\]*\)".*/\1/p')"})
    compadd -a names
}

_weir_data() {
    if compset -P @; then
        _files
    else
        _message 'JSON, @FILE or -'
    fi
}

_weir() {
    local context state state_descr line
    typeset -A opt_args
    local -a common commands
    common=(
        '--store[which store]:URL:(postgres\:// sqlite\: memory\:)'
        '(--text)--json[print JSON lines]'
        '(--json)--text[print text]'
        '--help[explain the command]'
    )
    commands=(
        'append:add an event to a stream, or every line of a file'
        'read:print the events of a stream'
        'log:print the events of all streams, and follow what comes'
        'streams:list streams'
        'close:end a stream\: no more appends'
        'targets:list targets\: state, lag, retries, who holds them'
        'init:make or upgrade the store'
        'status:where the store stands\: positions, lanes, size'
        'doctor:check the store, and say what to do about each finding'
        'help:list the commands, or explain one'
        'version:print the version'
    )

    _arguments -C $common '--version[print the version]' '1: :->command' '*:: :->arguments'
    case $state in
    command) _describe command commands ;;
    arguments)
        case $words[1] in
        append)
            _arguments $common \
                '--expect[what the stream must be like]:WHAT:(any none exists)' \
                '--meta[an object kept beside the data]:JSON:_weir_data' \
                '--correlation[meta.correlation]:TEXT:' \
                '--key[idempotency key]:KEY:' \
                '*--reserve[reserve a unique key for the stream]:KEY:' \
                '*--release-key[give a reserved key up]:KEY:' \
                '--batch[append every line of a file]:FILE:_files' \
                '(--atomic)--keep-going[go on after a refused line]' \
                '(--keep-going)--atomic[all lines are one append]' \
                '1:stream:_weir_streams' '2:name:' '3:data:_weir_data'
            ;;
        read)
            _arguments $common \
                '--from[begin at this version]:VERSION:' \
                '--to[end with this version]:VERSION:' \
                '--limit[at most N events]:N:' \
                '--backward[newest first]' \
                '--at[the stream as it was at TIME]:TIME:' \
                '1:stream:_weir_streams'
            ;;
        log)
            _arguments $common \
                '--after[only events after this position]:ID:' \
                '--since[only events created at or after TIME]:TIME:' \
                '--tail[only the last N events]:N:' \
                '--limit[at most N events]:N:' \
                '*--name[only events with this name]:NAME:' \
                '--stream[only streams that fit]:PATTERN:' \
                '--category[only streams of this category]:NAME:' \
                '--correlation[only events with this meta.correlation]:TEXT:' \
                '--follow[then wait for more]'
            ;;
        streams)
            _arguments $common \
                '--match[only names that fit]:PATTERN:' \
                '--category[only this category]:NAME:' \
                '(--closed)--open[only streams that are not closed]' \
                '(--open)--closed[only streams that are closed]' \
                '--after[only names that sort after this one]:NAME:' \
                '--limit[at most N streams]:N:'
            ;;
        close)
            _arguments $common \
                '--expect[only when the stream is at this version]:WHAT:(exists)' \
                '--force[although reactions have not handled all of it]' \
                '--dry-run[say what would happen]' \
                '1:stream:_weir_streams'
            ;;
        targets)
            _arguments $common \
                '--match[only targets whose name fits]:PATTERN:' \
                '--source[only targets with a subscription whose source fits]:PATTERN:' \
                '--lane[only targets of this lane]:NAME:' \
                '--blocked[only targets that are blocked]' \
                '--limit[at most N targets]:N:'
            ;;
        init)
            _arguments $common \
                '--plan[print the SQL that would be run]' \
                '--adopt[add the store to a database that has other tables]' \
                '--grant[PostgreSQL\: let a role work on the store]:ROLE:'
            ;;
        status | doctor | version) _arguments $common ;;
        help)
            # With a state _arguments says "nothing added", so its status decides nothing.
            _arguments $common '1: :->command'
            [[ $state == command ]] && _describe command commands
            ;;
        esac
        ;;
    esac
}

_weir "$@"
