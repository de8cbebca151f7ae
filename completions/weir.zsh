#compdef weir
# zsh completion for weir

_weir_names() {
    local -a names arguments
    arguments=($1 --json --limit 50 --match "${PREFIX}*")
    [[ -n ${opt_args[--store]} ]] && arguments+=(--store ${opt_args[--store]})
    names=(${(f)"$(weir $arguments 2>/dev/null | sed -n 's/^{"\(stream\|target\)":"\([^"\\]*\)".*/\2/p')"})
    compadd -a names
}

_weir_streams() { _weir_names streams }
_weir_targets() { _weir_names targets }

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
    local -a common acting commands
    common=(
        '--store[which store]:URL:(postgres\:// sqlite\: memory\:)'
        '--insecure[use files of other users]'
        '(--text)--json[print JSON lines]'
        '(--json)--text[print text]'
        '--wide[print every column whole]'
        '--utc[print times in UTC]'
        '--color[use colours]:WHEN:(auto always never)'
        '--help[explain the command]'
    )
    # What acts on targets takes a filter in place of names.
    acting=(
        '--match[targets whose name fits\: mail-1, mail-*, /^mail-/]:PATTERN:'
        '--source[targets with a subscription whose source fits]:PATTERN:'
        '--lane[targets of this lane]:NAME:'
        '--blocked[targets that are blocked]'
        '--all[every target]'
        '--dry-run[print how many would change; change nothing]'
        '--yes[do not ask; only skip and reset ask]'
    )
    commands=(
        'append:add an event to a stream, or every line of a file'
        'read:print the events of a stream'
        'log:print the events of all streams, and follow new ones'
        'streams:list streams'
        'close:end a stream\: no more appends'
        'work:run reactions\: handlers for events, in order'
        'targets:list targets\: state, lag, retries, who holds them'
        'why:what is stuck, or why a target is, or is not, running'
        'reactions:list reactions, or end one'
        'parked:parked events\: list, show, send back, drop'
        'claim:take rows of your own table that nobody else holds'
        'done:finish a claimed row\: the work is done'
        'fail:finish a claimed row\: the work has failed'
        'release:give a claimed row back, for others to claim'
        'extend:renew the lease of a claimed row'
        'lock:run a program unless another copy is already running'
        'once:run a program once, ever, for a key'
        'locks:who holds which lock, and who waits'
        'race:two workers go for one table\: what each of them sees'
        'lint:say what is wrong with claims in SQL'
        'init:create or upgrade the store'
        'status:where the store stands\: positions, lanes, size'
        'doctor:check the store, and say what to do about each finding'
        'backup:copy the store into one file, while it is in use'
        'restore:replace the store with a backup, and keep what was there'
        'unblock:let blocked and deferred targets continue where they stopped'
        'skip:park the event that a target is stuck at, and go on after it'
        'reset:rewind targets\: handle events again'
        'prioritize:set which targets of a lane get workers first'
        'pause:pause targets or a lane'
        'resume:resume targets or a lane'
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
        race)
            _arguments $common \
                '--workers[how many workers]:N:' \
                '--rows[how many rows]:N:' \
                '--limit[how many rows a worker asks for]:N:' \
                '--mode[how rows are taken]:MODE:(skip wait autocommit none)' \
                '--pause[how long a worker works on its rows]:TIME:' \
                '--effects[append the side effects to a file]:FILE:_files' \
                '--keep[do not drop the table afterwards]' \
                '--drop[drop a table that a race has left]:TABLE:'
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
        work)
            _arguments $common \
                '--config[run the reactions of this file]:FILE:_files' \
                '*--on[react to events with this name]:NAME:' \
                '--to[the target]:TARGET:' \
                '--run[run CMD for each event]:CMD:' \
                '--exec[keep CMD running\: one line per event]:CMD:' \
                '--name[name of the reaction]:NAME:' \
                '--source[only streams that fit]:PATTERN:' \
                '--lane[the lane of its targets]:NAME:' \
                '--priority[priority of its targets]:N:' \
                '--retries[attempts after the first one]:N:' \
                '--from[where a new reaction begins]:PLACE:(start now)' \
                '*--lanes[work only in these lanes]:NAMES:' \
                '--threads[how many handlers run at the same time]:N:' \
                '--memory-limit[memory for the events of all handlers]:SIZE:' \
                '--until-idle[stop when no running worker has work left]' \
                '--redeclare[use these definitions, even if newer ones were declared]' \
                '--budget[how long handlers may take to finish after a signal]:TIME:' \
                '--log[form of the log]:FORM:(text json)' \
                '--verbose[also log every lease and every settle]' \
                '--check[check the reactions, and do not run them]'
            ;;
        targets)
            _arguments $common \
                '--match[only targets whose name fits]:PATTERN:' \
                '--source[only targets with a subscription whose source fits]:PATTERN:' \
                '--lane[only targets of this lane]:NAME:' \
                '--blocked[only targets that are blocked]' \
                '(--watch)--limit[at most N targets]:N:' \
                '(--limit)--watch[keep showing changes until interrupted]'
            ;;
        why)
            _arguments $common \
                '--verbose[also show fences, marks and the other facts behind the answer]' \
                '1:target:_weir_targets'
            ;;
        lint)
            _arguments $common \
                '--limit[every claim takes N rows]:N:' \
                '--dialect[which SQL it is]:NAME:(postgres sqlite)' \
                '--rules[print the rules, with examples]' \
                '*:file:_files'
            ;;
        reactions)
            _arguments $common \
                '--dry-run[retire\: say whether anything would change; change nothing]' \
                '1:verb:(ls retire)' \
                '2:reaction:'
            ;;
        parked)
            _arguments $common \
                '--target[only events of this target]:NAME:_weir_targets' \
                '--reaction[only events of this reaction]:NAME:' \
                '--all[retry, drop\: every parked event]' \
                '--limit[ls\: at most N events]:N:' \
                '--dry-run[retry, drop\: print how many would change; change nothing]' \
                '--yes[drop\: do not ask]' \
                '1:verb:(ls show retry drop)' \
                '*:number:'
            ;;
        claim)
            _arguments $common \
                '--table[a table of the database, whatever weir.yaml says of it]:NAME:' \
                '--where[which rows are ready, such as "status = '\''pending'\''"]:SQL:' \
                '*--param[what \:NAME stands for in SQL; may be repeated]:NAME=VALUE:' \
                '--order[such as "priority desc, created" (default: the primary key)]:COLUMNS:' \
                '--limit[at most N rows (default: 1)]:N:' \
                '*--set[what a claim writes; may be repeated]:COLUMN=VALUE:' \
                '*--set-sql[the same with an expression; may be repeated]:COLUMN=SQL:' \
                '--by[who claims\: written with the time of the claim]:ID:' \
                '--by-column[where to (default: claimed_by); '\'''\''\: nowhere]:COLUMN:' \
                '--at-column[where the time goes (default: claimed_at); '\'''\''\: nowhere]:COLUMN:' \
                '--lease[the claim ends after TIME unless it is renewed]:TIME:' \
                '--lease-column[where its end is kept (default: locked_until)]:COLUMN:' \
                '--fence-column[a number that grows with every claim]:COLUMN:' \
                '--attempts-column[how often the row was claimed]:COLUMN:' \
                '--max-per[never more than N held rows for each value]:COLUMN=N:' \
                '--wait[wait for rows that others have locked, instead of skipping]' \
                '--nowait[exit with 75 when a row is locked, instead of skipping]' \
                '--path[default, fast or portable\: which statements are used]:PATH:(default fast portable)' \
                '--dry-run[print what would be claimed; lock and write nothing]' \
                '--sql[print the SQL, values as literals; run nothing]' \
                '--explain[print the plan, and which index is missing; claim nothing]' \
                '--run[a command for each row, which it reads as JSON on stdin]:CMD:' \
                '--parallel[at most N commands at once (default: 1)]:N:' \
                '--deadline[how long a command may take (default: as long as it takes)]:TIME:' \
                '--budget[how long commands may take to end at a signal (default: 30s)]:TIME:' \
                '*--done[with --run\: written when the command succeeds]:COLUMN=VALUE:' \
                '*--done-sql[the same with an expression]:COLUMN=SQL:' \
                '*--fail[with --run\: written when the command fails]:COLUMN=VALUE:' \
                '*--fail-sql[the same with an expression]:COLUMN=SQL:' \
                '*--release[with --run\: written to rows that are given back]:COLUMN=VALUE:' \
                '*--release-sql[the same with an expression]:COLUMN=SQL:' \
                '--hold[with --run\: inside a transaction for each row, which holds it]' \
                '1:table:'
            ;;
        done | fail | release)
            _arguments $common \
                '--by[who holds it, as it was claimed]:ID:' \
                '--by-column[the column with the holder (default: claimed_by)]:COLUMN:' \
                '--at-column[the column with the time of the claim (default: claimed_at)]:COLUMN:' \
                '--fence[the fence with which it was claimed]:N:' \
                '--fence-column[the column with the fence]:COLUMN:' \
                '--lease-column[the column with the lease'\''s end (default: locked_until)]:COLUMN:' \
                '*--set[write this as well; may be repeated]:COLUMN=VALUE:' \
                '*--set-sql[write an expression; may be repeated]:COLUMN=SQL:' \
                '*--param[what \:NAME stands for in --set-sql; may be repeated]:NAME=VALUE:' \
                '1:table:' \
                '*:key:'
            ;;
        extend)
            _arguments $common \
                '--lease[for how long from now on, such as 5m]:TIME:' \
                '--by[who holds it, as it was claimed]:ID:' \
                '--by-column[the column with the holder (default: claimed_by)]:COLUMN:' \
                '--fence[the fence with which it was claimed]:N:' \
                '--fence-column[the column with the fence]:COLUMN:' \
                '--lease-column[the column with the lease'\''s end (default: locked_until)]:COLUMN:' \
                '1:table:' \
                '*:key:'
            ;;
        lock)
            _arguments $common \
                '--table[lock a row of this table instead]:NAME:' \
                '*--id[which row\: its primary key]:KEY:' \
                '--wait[wait for the holder, for D or as long as it takes]' \
                '--held-exit[exit with N, not 75, when somebody else holds it]:N:' \
                '--check[notice within D that the lock was lost (10s)]:D:' \
                '--grace[from SIGTERM to SIGKILL when it was (10s)]:D:' \
                '1:name:' \
                '*:program:_command_names -e'
            ;;
        once)
            _arguments $common \
                '--nowait[exit with 75 if another process is running it]' \
                '--check[notice within D that the run was lost (default: 10s)]:D:' \
                '--grace[time from SIGTERM to SIGKILL if it was lost (default: 10s)]:D:' \
                '--list[list runs\: where, when, how long, and how they ended]' \
                '--limit[with --list\: at most N runs]:N:' \
                '--forget[forget the run of KEY, so that it can be run again]' \
                '--yes[with --forget\: do not ask]' \
                '1:key:' \
                '*:program:_command_names -e'
            ;;
        unblock | skip | pause | resume) _arguments $common $acting '*:target:_weir_targets' ;;
        reset)
            _arguments $common $acting \
                '--to[start, a position (the last that stays handled), or a time]:WHERE:(start)' \
                '*:target:_weir_targets'
            ;;
        prioritize)
            _arguments $common $acting \
                '--clear[back to what its reactions declare]' \
                '1:priority:' \
                '*:target:_weir_targets'
            ;;
        init)
            _arguments $common \
                '--plan[print the SQL that would be run]' \
                '--adopt[add the store to a database that has other tables]' \
                '--grant[PostgreSQL\: let a role work on the store]:ROLE:' \
                '--as[what the role is for]:KIND:(reader writer worker operator)'
            ;;
        status)
            _arguments $common \
                '(--watch)--metrics[print numbers for Prometheus instead, with what each worker has counted]' \
                '(--metrics)--watch[keep showing changes until interrupted]'
            ;;
        backup) _arguments $common '--force[replace FILE if it is there]' '1:file:_files' ;;
        restore) _arguments $common '1:file:_files' ;;
        doctor | locks | version) _arguments $common ;;
        help)
            # With a state _arguments says "nothing added", so its status decides nothing.
            _arguments $common '1: :->command'
            if [[ $state == command ]]; then
                commands+=('choosing:which claim or lock is for what' 'output:how text and JSON are printed')
                _describe command commands
            fi
            ;;
        esac
        ;;
    esac
}

_weir "$@"
