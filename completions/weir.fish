# fish completion for weir

set -l commands append read log streams close targets init status doctor help version

function __weir_streams
    set -l token (commandline -ct)
    weir streams --json --limit 50 --match "$token*" 2>/dev/null | string replace -rf '^{"stream":"([^"\\\\]*)".*' '$1'
end

complete -c weir -f
complete -c weir -l store -x -a 'postgres:// sqlite: memory:' -d 'which store'
complete -c weir -l json -d 'print JSON lines'
complete -c weir -l text -d 'print text'
complete -c weir -l help -d 'explain the command'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -l version -d 'print the version'

complete -c weir -n "not __fish_seen_subcommand_from $commands" -a append -d 'add an event to a stream, or every line of a file'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a read -d 'print the events of a stream'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a log -d 'print the events of all streams, and follow what comes'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a streams -d 'list streams'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a close -d 'end a stream: no more appends'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a targets -d 'list targets: state, lag, retries, who holds them'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a init -d 'make or upgrade the store'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a status -d 'where the store stands: positions, lanes, size'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a doctor -d 'check the store, and say what to do about each finding'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a help -d 'list the commands, or explain one'
complete -c weir -n "not __fish_seen_subcommand_from $commands" -a version -d 'print the version'
complete -c weir -n '__fish_seen_subcommand_from help' -a "$commands"
complete -c weir -n '__fish_seen_subcommand_from append read close' -a '(__weir_streams)'

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

complete -c weir -n '__fish_seen_subcommand_from targets' -l match -x -d 'only targets whose name fits'
complete -c weir -n '__fish_seen_subcommand_from targets' -l source -x -d 'only targets with a subscription whose source fits'
complete -c weir -n '__fish_seen_subcommand_from targets' -l lane -x -d 'only targets of this lane'
complete -c weir -n '__fish_seen_subcommand_from targets' -l blocked -d 'only targets that are blocked'
complete -c weir -n '__fish_seen_subcommand_from targets' -l limit -x -d 'at most N targets'

complete -c weir -n '__fish_seen_subcommand_from init' -l plan -d 'print the SQL that would be run'
complete -c weir -n '__fish_seen_subcommand_from init' -l adopt -d 'add the store to a database that has other tables'
complete -c weir -n '__fish_seen_subcommand_from init' -l grant -x -d 'PostgreSQL: let a role work on the store'
