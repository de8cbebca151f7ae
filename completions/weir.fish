# fish completion for weir

set -l commands append read log streams close work targets why reactions dead lock locks race lint init status doctor unblock skip reset prioritize pause resume help version

function __weir_streams
    set -l token (commandline -ct)
    weir streams --json --limit 50 --match "$token*" 2>/dev/null | string replace -rf '^{"stream":"([^"\\\\]*)".*' '$1'
end

function __weir_targets
    set -l token (commandline -ct)
    weir targets --json --limit 50 --match "$token*" 2>/dev/null | string replace -rf '^{"target":"([^"\\\\]*)".*' '$1'
end

set -l first "not __fish_seen_subcommand_from $commands"

complete -c weir -f
complete -c weir -l store -x -a 'postgres:// sqlite: memory:' -d 'which store'
complete -c weir -l json -d 'print JSON lines'
complete -c weir -l text -d 'print text'
complete -c weir -l help -d 'explain the command'
complete -c weir -n $first -l version -d 'print the version'

complete -c weir -n $first -a append -d 'add an event to a stream, or every line of a file'
complete -c weir -n $first -a read -d 'print the events of a stream'
complete -c weir -n $first -a log -d 'print the events of all streams, and follow what comes'
complete -c weir -n $first -a streams -d 'list streams'
complete -c weir -n $first -a close -d 'end a stream: no more appends'
complete -c weir -n $first -a work -d 'run reactions: handlers for events, in order'
complete -c weir -n $first -a targets -d 'list targets: state, lag, retries, who holds them'
complete -c weir -n $first -a why -d 'why a target is, or is not, running'
complete -c weir -n $first -a reactions -d 'list reactions, or end one'
complete -c weir -n $first -a dead -d 'parked events: list, show, send back, drop'
complete -c weir -n $first -a lock -d 'run a program that one at a time may run'
complete -c weir -n $first -a locks -d 'who holds which lock, and who waits'
complete -c weir -n $first -a race -d 'two workers go for one table: what each of them sees'
complete -c weir -n $first -a lint -d 'say what is wrong with claims in SQL'
complete -c weir -n $first -a init -d 'make or upgrade the store'
complete -c weir -n $first -a status -d 'where the store stands: positions, lanes, size'
complete -c weir -n $first -a doctor -d 'check the store, and say what to do about each finding'
complete -c weir -n $first -a unblock -d 'let blocked and deferred targets go on, where they stopped'
complete -c weir -n $first -a skip -d 'set the event in the way aside, and go on after it'
complete -c weir -n $first -a reset -d 'rewind targets: handle events again'
complete -c weir -n $first -a prioritize -d 'which targets of a lane get workers first'
complete -c weir -n $first -a pause -d 'hold targets or a lane, until they are resumed'
complete -c weir -n $first -a resume -d 'let paused targets or a paused lane go on'
complete -c weir -n $first -a help -d 'list the commands, or explain one'
complete -c weir -n $first -a version -d 'print the version'
complete -c weir -n '__fish_seen_subcommand_from help' -a "$commands"
complete -c weir -n '__fish_seen_subcommand_from append read close' -a '(__weir_streams)'
complete -c weir -n '__fish_seen_subcommand_from why' -a '(__weir_targets)'
complete -c weir -n '__fish_seen_subcommand_from reactions' -a 'ls retire'
complete -c weir -n '__fish_seen_subcommand_from dead' -a 'ls show retry drop'

complete -c weir -n '__fish_seen_subcommand_from append' -l expect -x -a 'any none exists' -d 'what the stream must be like'
complete -c weir -n '__fish_seen_subcommand_from append' -l meta -x -d 'an object kept beside the data'
complete -c weir -n '__fish_seen_subcommand_from append' -l correlation -x -d 'meta.correlation'
complete -c weir -n '__fish_seen_subcommand_from append' -l key -x -d 'idempotency key'
complete -c weir -n '__fish_seen_subcommand_from append' -l reserve -x -d 'reserve a unique key for the stream'
complete -c weir -n '__fish_seen_subcommand_from append' -l release-key -x -d 'give a reserved key up'
complete -c weir -n '__fish_seen_subcommand_from append' -l batch -r -F -d 'append every line of a file'
complete -c weir -n '__fish_seen_subcommand_from append' -l keep-going -d 'go on after a refused line'
complete -c weir -n '__fish_seen_subcommand_from append' -l atomic -d 'all lines are one append'

complete -c weir -n '__fish_seen_subcommand_from read' -l from -x -d 'begin at this version'
complete -c weir -n '__fish_seen_subcommand_from read' -l to -x -d 'end with this version'
complete -c weir -n '__fish_seen_subcommand_from read' -l limit -x -d 'at most N events'
complete -c weir -n '__fish_seen_subcommand_from read' -l backward -d 'newest first'
complete -c weir -n '__fish_seen_subcommand_from read' -l at -x -d 'the stream as it was at a time'

complete -c weir -n '__fish_seen_subcommand_from log' -l after -x -d 'only events after this position'
complete -c weir -n '__fish_seen_subcommand_from log' -l since -x -d 'only events created at or after a time'
complete -c weir -n '__fish_seen_subcommand_from log' -l tail -x -d 'only the last N events'
complete -c weir -n '__fish_seen_subcommand_from log' -l limit -x -d 'at most N events'
complete -c weir -n '__fish_seen_subcommand_from log' -l name -x -d 'only events with this name'
complete -c weir -n '__fish_seen_subcommand_from log' -l stream -x -d 'only streams that fit'
complete -c weir -n '__fish_seen_subcommand_from log' -l category -x -d 'only streams of this category'
complete -c weir -n '__fish_seen_subcommand_from log' -l correlation -x -d 'only events with this meta.correlation'
complete -c weir -n '__fish_seen_subcommand_from log' -l follow -d 'then wait for more'

complete -c weir -n '__fish_seen_subcommand_from streams' -l match -x -d 'only names that fit'
complete -c weir -n '__fish_seen_subcommand_from streams' -l category -x -d 'only this category'
complete -c weir -n '__fish_seen_subcommand_from streams' -l open -d 'only streams that are not closed'
complete -c weir -n '__fish_seen_subcommand_from streams' -l closed -d 'only streams that are closed'
complete -c weir -n '__fish_seen_subcommand_from streams' -l after -x -d 'only names that sort after this one'
complete -c weir -n '__fish_seen_subcommand_from streams' -l limit -x -d 'at most N streams'

complete -c weir -n '__fish_seen_subcommand_from close' -l expect -x -a 'exists' -d 'only when the stream is at this version'
complete -c weir -n '__fish_seen_subcommand_from close' -l force -d 'although reactions have not handled all of it'
complete -c weir -n '__fish_seen_subcommand_from close' -l dry-run -d 'say what would happen'

complete -c weir -n '__fish_seen_subcommand_from work' -l config -r -F -d 'the reactions of this file'
complete -c weir -n '__fish_seen_subcommand_from work' -l on -x -d 'events with this name'
complete -c weir -n '__fish_seen_subcommand_from work' -l to -x -d 'the target'
complete -c weir -n '__fish_seen_subcommand_from work' -l run -x -d 'a command per event'
complete -c weir -n '__fish_seen_subcommand_from work' -l exec -x -d 'a command that stays'
complete -c weir -n '__fish_seen_subcommand_from work' -l name -x -d 'what the reaction is called'
complete -c weir -n '__fish_seen_subcommand_from work' -l source -x -d 'only streams that fit'
complete -c weir -n '__fish_seen_subcommand_from work' -l lane -x -d 'the lane of its targets'
complete -c weir -n '__fish_seen_subcommand_from work' -l priority -x -d 'its priority'
complete -c weir -n '__fish_seen_subcommand_from work' -l retries -x -d 'attempts after the first one'
complete -c weir -n '__fish_seen_subcommand_from work' -l from -x -a 'start now' -d 'where a new reaction begins'
complete -c weir -n '__fish_seen_subcommand_from work' -l lanes -x -d 'only these lanes'
complete -c weir -n '__fish_seen_subcommand_from work' -l threads -x -d 'how many handlers at once'
complete -c weir -n '__fish_seen_subcommand_from work' -l until-idle -d 'end when nothing is left to do'
complete -c weir -n '__fish_seen_subcommand_from work' -l redeclare -d 'these definitions count'
complete -c weir -n '__fish_seen_subcommand_from work' -l budget -x -d 'how long handlers may take to end'
complete -c weir -n '__fish_seen_subcommand_from work' -l log -x -a 'text json' -d 'form of the log'
complete -c weir -n '__fish_seen_subcommand_from work' -l verbose -d 'log every lease'
complete -c weir -n '__fish_seen_subcommand_from work' -l check -d 'only say what is wrong'

complete -c weir -n '__fish_seen_subcommand_from race' -l workers -x -d 'how many workers'
complete -c weir -n '__fish_seen_subcommand_from race' -l rows -x -d 'how many rows'
complete -c weir -n '__fish_seen_subcommand_from race' -l limit -x -d 'how many rows a worker asks for'
complete -c weir -n '__fish_seen_subcommand_from race' -l mode -x -a 'skip wait autocommit none' -d 'how rows are taken'
complete -c weir -n '__fish_seen_subcommand_from race' -l pause -x -d 'how long a worker works'
complete -c weir -n '__fish_seen_subcommand_from race' -l effects -r -F -d 'append the side effects to a file'
complete -c weir -n '__fish_seen_subcommand_from race' -l keep -d 'do not drop the table'
complete -c weir -n '__fish_seen_subcommand_from race' -l drop -x -d 'drop a table that a race has left'

complete -c weir -n '__fish_seen_subcommand_from targets' -l match -x -d 'only targets whose name fits'
complete -c weir -n '__fish_seen_subcommand_from targets' -l source -x -d 'only targets with a subscription whose source fits'
complete -c weir -n '__fish_seen_subcommand_from targets' -l lane -x -d 'only targets of this lane'
complete -c weir -n '__fish_seen_subcommand_from targets' -l blocked -d 'only targets that are blocked'
complete -c weir -n '__fish_seen_subcommand_from targets' -l limit -x -d 'at most N targets'
complete -c weir -n '__fish_seen_subcommand_from targets' -l watch -d 'go on with what changes'

complete -c weir -n '__fish_seen_subcommand_from status' -l metrics -d 'print it, and what workers count, for Prometheus'
complete -c weir -n '__fish_seen_subcommand_from init' -l plan -d 'print the SQL that would be run'
complete -c weir -n '__fish_seen_subcommand_from init' -l adopt -d 'add the store to a database that has other tables'
complete -c weir -n '__fish_seen_subcommand_from init' -l grant -x -d 'PostgreSQL: let a role work on the store'

complete -c weir -n '__fish_seen_subcommand_from reactions' -l dry-run -d 'retire: say whether it would change anything, change nothing'

complete -c weir -n '__fish_seen_subcommand_from lock' -l wait -d 'wait for the holder, for D or as long as it takes'
complete -c weir -n '__fish_seen_subcommand_from lock' -l held-exit -x -d 'exit with N, not 75, when somebody else holds it'
complete -c weir -n '__fish_seen_subcommand_from lock' -l check -x -d 'notice within D that the lock was lost (10s)'
complete -c weir -n '__fish_seen_subcommand_from lock' -l grace -x -d 'from SIGTERM to SIGKILL when it was (10s)'
complete -c weir -n '__fish_seen_subcommand_from dead' -l target -x -a '(__weir_targets)' -d 'only events of this target'
complete -c weir -n '__fish_seen_subcommand_from dead' -l reaction -x -d 'only events of this reaction'
complete -c weir -n '__fish_seen_subcommand_from dead' -l all -d 'retry, drop: every parked event'
complete -c weir -n '__fish_seen_subcommand_from dead' -l limit -x -d 'ls: at most N events'
complete -c weir -n '__fish_seen_subcommand_from dead' -l dry-run -d 'retry, drop: say how many would change, change nothing'
complete -c weir -n '__fish_seen_subcommand_from dead' -l yes -d 'drop: do not ask'

# What acts on targets: by name, or by a filter.
set -l acting '__fish_seen_subcommand_from unblock skip reset prioritize pause resume'
complete -c weir -n $acting -a '(__weir_targets)'
complete -c weir -n $acting -l match -x -d 'targets whose name fits: mail-1, mail-*, /^mail-/'
complete -c weir -n $acting -l source -x -d 'targets with a subscription whose source fits'
complete -c weir -n $acting -l lane -x -d 'targets of this lane'
complete -c weir -n $acting -l blocked -d 'targets that are blocked'
complete -c weir -n $acting -l all -d 'every target'
complete -c weir -n $acting -l dry-run -d 'say how many would change, change nothing'
complete -c weir -n '__fish_seen_subcommand_from skip reset' -l yes -d 'do not ask'
complete -c weir -n '__fish_seen_subcommand_from reset' -l to -x -a start -d 'start, a position (the last that stays handled), or a time'
complete -c weir -n '__fish_seen_subcommand_from prioritize' -l clear -d 'back to what its reactions declare'

complete -c weir -n '__fish_seen_subcommand_from lint' -F
complete -c weir -n '__fish_seen_subcommand_from lint' -l limit -x -d 'every claim takes N rows'
complete -c weir -n '__fish_seen_subcommand_from lint' -l dialect -x -a 'postgres sqlite' -d 'which SQL it is'
complete -c weir -n '__fish_seen_subcommand_from lint' -l rules -d 'print the rules, with examples'
