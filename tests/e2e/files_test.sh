#!/usr/bin/env bash
# files_test.sh - hostile file names and links around a store, its locks and weir.yaml. Goal: nothing that
# another user has prepared under a name that Weir uses is followed, read, written or waited for, and one
# file never is two stores or two locks. Method: real processes and real files. Run by root, alice and mallory are two
# users; run by anybody else alice is the one who runs it, and what only mallory could prepare is left out.
# shellcheck disable=SC2016,SC2119,SC2120 # what sh -c runs expands there; append takes options or none
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
unset WEIR_STORE WEIR_FENCE
umask 022
chmod 755 "$tmp"
cp "$WEIR" weir
export WEIR=$tmp/weir
if [ "$(id -u)" -eq 0 ]; then
    two_users=true
    as() { timeout 60 setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"; }
    alice() { as 54321 "$@"; }
    mallory() { as 54322 "$@"; }
    export -f as alice
else
    two_users=false
    alice() { timeout 60 "$@"; }
fi
# A directory of alice's, or with a mode of its own.
place() {
    cd "$tmp" && rm -rf place && mkdir place && cd place || exit 1
    if $two_users; then chown 54321:54321 .; fi
    chmod "${1:-755}" .
}
hash_of() { printf %s "$1" | sha256sum | cut -c 1-32; }
refused() { # NAME REGEX COMMAND...: it fails, and says why
    run "${@:3}"
    if [ "$rc" -ne 0 ] && [[ $errout =~ $2 ]]; then
        pass "$1"
    else
        fail "$1" "expected a failure with: $2"
        tap_show_run "${@:3}"
    fi
}
a_lock() { alice "$WEIR" lock job "$@" -- true; }
append() { alice "$WEIR" append s N "$@"; }

# ---- locks: links -------------------------------------------------------------------------------

place
alice mkdir weir.db-locks
alice sh -c 'echo precious >victim'
alice ln -s ../victim "weir.db-locks/$(hash_of job)"
refused "C40_a_link_in_place_of_a_lock_is_not_followed" 'is a symbolic link' a_lock
is "what it leads to is as it was" "$(cat victim)" precious
refused "nor with --insecure" 'is a symbolic link' a_lock --insecure
ok "nor by weir locks" alice "$WEIR" locks
is "which lists nothing" "$out" ''
rm "weir.db-locks/$(hash_of job)"
alice ln -s ../made "weir.db-locks/$(hash_of job)"
not_ok "nothing is made through a dangling one" a_lock
ok "which is true" test ! -e made
rm "weir.db-locks/$(hash_of job)"
alice ln victim "weir.db-locks/$(hash_of job)"
refused "C40_a_hard_link_in_place_of_a_lock_is_not_written_to" 'has 2 names' a_lock
is "that file is as it was" "$(cat victim)" precious
rm "weir.db-locks/$(hash_of job)"
alice mkfifo "weir.db-locks/$(hash_of job)"
refused "a pipe is not waited for" 'is not a file' a_lock
ok "nor by weir locks, which lists no pipe" alice "$WEIR" locks
rm -r weir.db-locks
alice mkdir elsewhere
alice ln -s elsewhere weir.db-locks
refused "the directory of locks cannot be a link" 'weir.db-locks\\" is a symbolic link' a_lock
refused "nor for weir locks" 'is a symbolic link' alice "$WEIR" locks
is "nothing was made there" "$(ls elsewhere)" ''
rm weir.db-locks
alice touch weir.db-locks
refused "nor a file" 'is not a directory' a_lock
rm weir.db-locks
alice mkdir weir.db-locks
chmod 1777 weir.db-locks
refused "a directory of locks that everybody may write to" 'every user may write to .*weir.db-locks' a_lock
like "and what to do about it" "$errout" 'chmod o-w.*--insecure'
ok "is used with --insecure" a_lock --insecure
ok "it works without anything prepared" a_lock
is "and leaves nothing behind" "$(ls)" 'elsewhere
victim'
(umask 0 && alice "$WEIR" lock job -- sh -c 'stat -c %a weir.db-locks weir.db-locks/* >modes')
is "with any umask" "$(cat modes)" '775
664'

# ---- one file, one lock, one store --------------------------------------------------------------

place
ok "a store" append
alice mkdir dir
alice ln -s .. dir/up
alice ln -s weir.db link.db
alice sh -c '"$WEIR" lock job -- sh -c "touch held; while [ ! -e go ]; do sleep 0.01; done"' &
holder=$!
spawned $holder
wait_for "the holder" test -e held
for path in ./weir.db dir/../weir.db dir/up/weir.db link.db "$PWD/weir.db"; do
    status "$path is the same lock" 75 a_lock --store "sqlite:$path"
done
alice ln weir.db second.db
refused "C40_a_second_name_of_a_database_is_no_second_lock" 'has 2 names' a_lock --store sqlite:second.db
refused "whatever the lock is called" 'has 2 names' alice "$WEIR" lock other --store sqlite:second.db -- true
not_ok "nor under the first name, while there are two" a_lock
rm second.db
status "the one lock is still held" 75 a_lock
touch go
wait $holder
is "and was never lost" $? 0

alice sh -c 'echo $$ >reader; exec "$WEIR" log --follow --json >seen' &
wait_for "a reader" test -s seen
spawned "$(cat reader)"
alice ln weir.db second.db
refused "C12_a_store_with_a_second_name_is_refused" 'has 2 names' append --store sqlite:second.db
like "and what to do" "$errout" 'find -samefile'
refused "also for reading" 'has 2 names' alice "$WEIR" read s --store sqlite:second.db
refused "also under the first name: nobody knows who uses the other" 'has 2 names' append
refused "also with insecure=1" 'has 2 names' append --store 'sqlite:second.db?insecure=1'
is "no file was made beside it" "$(echo second.db*)" second.db
rm second.db
ok "it goes on when there is one name" append
wait_for "the event" sh -c '[ "$(wc -l <seen)" -eq 2 ]'
is "which the reader got" "$(wc -l <seen)" 2
kill "$(cat reader)"
wait

# Both names, all the time: whatever was acknowledged is there, once.
writer() { for _ in $(seq 15); do alice "$WEIR" append s "$2" --expect exists --store "sqlite:$1" && echo "$2" >>acknowledged; done >/dev/null 2>&1; }
for i in 1 2; do
    writer weir.db "first-$i" & pids[i]=$!
    writer second.db "second-$i" & pids[i + 2]=$!
done
while kill -0 "${pids[@]}" 2>/dev/null; do
    alice ln weir.db second.db
    sleep 0.02
    rm -f second.db
    sleep 0.1
done
wait "${pids[@]}"
rm -f second.db*
is "every acknowledged event is there, once, whatever the name" \
    "$(alice "$WEIR" log --json | grep -o '\(first\|second\)-.' | sort | uniq -c)" "$(sort acknowledged | uniq -c)"
ok "some were" grep -q first acknowledged
not_ok "none under the second name" grep second acknowledged
ok "the store is sound" alice "$WEIR" doctor

# ---- renamed while it is open --------------------------------------------------------------------

place
ok "a store" append
alice sh -c 'echo $$ >reader; exec "$WEIR" log --follow --json >seen' &
wait_for "a reader" test -s seen
spawned "$(cat reader)"
ok "an event that stays in the log" append
alice mv weir.db moved.db
refused "C12_a_store_that_is_open_under_another_name_is_refused" 'was renamed: process [0-9]+ has it open' append --store sqlite:moved.db
is "with the status of what is held" "$rc" 75
like "and what to do" "$errout" 'Rename it back'
refused "also for reading" 'was renamed' alice "$WEIR" log --store sqlite:moved.db
is "no file was made beside it" "$(echo moved.db*)" moved.db
refused "C12_the_log_of_a_database_that_was_taken_away_is_kept" 'there is no .*weir.db.*-wal.* has commits of it' append
ok "with what was acknowledged" test -s weir.db-wal
# What an earlier store has left beside the new name changes nothing.
alice touch moved.db-wal moved.db-shm moved.db-weir
refused "with the files of an earlier one beside it" 'was renamed' append --store sqlite:moved.db
rm moved.db-*
alice mv moved.db weir.db
ok "it goes on under its old name" append
is "with all that was acknowledged" "$(alice "$WEIR" log --json | wc -l)" 3
kill "$(cat reader)"
wait
ok "the last to close it makes it one file" append
alice mv weir.db moved.db
ok "which may be renamed" append --store sqlite:moved.db
is "and is complete" "$(alice "$WEIR" log --json --store sqlite:moved.db | wc -l)" 5
alice mv moved.db weir.db
rm -f moved.db-*

# The same name: others who have it open, also with another program, are not in the way.
mkfifo statements
alice sqlite3 weir.db <statements >rows &
shell=$!
spawned $shell
exec 3>statements
echo 'SELECT count(*) FROM weir_events;' >&3
wait_for "another program" test -s rows
ok "a store that another program has open under this name" append
ok "also for reading" alice "$WEIR" log
alice mv weir.db moved.db
refused "but not under another one" 'was renamed' append --store sqlite:moved.db
alice mv moved.db weir.db
exec 3>&-
wait $shell

alice sh -c '"$WEIR" lock job -- sh -c "touch held; while [ ! -e go ]; do sleep 0.01; done"' &
holder=$!
spawned $holder
wait_for "the holder" test -e held
alice mv weir.db moved.db
refused "C40_a_database_that_was_renamed_is_no_second_lock" 'was renamed' a_lock --store sqlite:moved.db
is "it is held" "$rc" 75
alice mv moved.db weir.db
touch go
wait $holder

# All the time: whatever was acknowledged is there, once.
place
ok "a store" append
writer() { for _ in $(seq 20); do alice "$WEIR" append s "$2" --expect exists --store "sqlite:$1" && echo "$2" >>acknowledged; done >/dev/null 2>&1; }
for i in 1 2; do
    writer weir.db "first-$i" & pids[i]=$!
    writer moved.db "second-$i" & pids[i + 2]=$!
done
alice sh -c 'echo $$ >reader; exec "$WEIR" log --follow --json >seen' &
wait_for "a reader" test -s seen
spawned "$(cat reader)"
while kill -0 "${pids[@]}" 2>/dev/null; do
    if [ ! -e moved.db ]; then alice mv weir.db moved.db; fi
    sleep 0.02
    alice mv moved.db weir.db
    sleep 0.1
done
wait "${pids[@]}"
is "every acknowledged event is there, once, whatever the name was" \
    "$(alice "$WEIR" log --json | grep -o '\(first\|second\)-.' | sort | uniq -c)" "$(sort acknowledged | uniq -c)"
not_ok "none under the second name" grep second acknowledged
kill "$(cat reader)"
wait
ok "the store is sound" alice "$WEIR" doctor

place
ok "a store" append
alice ln -s nowhere.db dangling.db
refused "C12_a_dangling_link_is_no_store" 'is a symbolic link to nothing' append --store sqlite:dangling.db
refused "nor to read" 'is a symbolic link to nothing' alice "$WEIR" log --store sqlite:dangling.db
refused "nor for init" 'is a symbolic link to nothing' alice "$WEIR" init --store sqlite:dangling.db
refused "C40_a_dangling_link_is_no_lock" 'is a symbolic link to nothing' a_lock --store sqlite:dangling.db
is "nothing was made" "$(echo nowhere* dangling.db*)" 'nowhere* dangling.db'

# A file that is mounted by itself has another directory around it: the log would not be shared.
mkdir "$tmp/mounts" "$tmp/mounts/inner" && cd "$tmp/mounts" || exit 1
ok "a store" "$WEIR" append s N
mounted='touch inner/weir.db && mount --bind weir.db inner/weir.db && exec "$WEIR" read s --store sqlite:inner/weir.db'
if unshare -rm true 2>/dev/null && unshare -rm sh -c 'mount --bind weir.db weir.db' 2>/dev/null; then
    refused "a store that is mounted by itself" 'is mounted as a single file' unshare -rm sh -c "$mounted"
fi

# ---- who may have prepared it -------------------------------------------------------------------

for suffix in '' -wal -shm -weir -journal; do
    place
    append >/dev/null
    [ -e "weir.db$suffix" ] || alice touch "weir.db$suffix"
    chmod o+w "weir.db$suffix"
    not_ok "C56_what_every_user_may_write_to_is_refused" append
    like "weir.db$suffix: says why" "$errout" "every user may write to .*/weir.db$suffix"
    refused "for reading as well" "every user may write to" alice "$WEIR" log
    chmod o-w "weir.db$suffix"
    chmod g+w "weir.db$suffix"
    if [ "$suffix" = -journal ]; then rm weir.db-journal; fi
    ok "a group may write" append
    alice mv "weir.db$suffix" away 2>/dev/null || alice cp weir.db away
    alice ln -sf away "weir.db$suffix"
    if [ -n "$suffix" ]; then
        not_ok "C56_a_link_beside_a_store_is_refused" append
        like "weir.db$suffix: says why" "$errout" "weir.db$suffix.* is a symbolic link"
        rm -f "weir.db$suffix"
        alice mkfifo "weir.db$suffix"
        refused "so is a pipe, without waiting" "weir.db$suffix.* is not a file" append
    fi
done
place
append >/dev/null
chmod o+w weir.db
ok "insecure=1 accepts it" append --store 'sqlite:weir.db?insecure=1'
ok "and so does --insecure" append --insecure
ok "before the command as well" alice "$WEIR" --insecure append s N
refused "insecure is 0 or 1" 'insecure=yes, allowed 0 or 1' append --store 'sqlite:weir.db?insecure=yes'
refused "it is checked without a store too" 'every user may write to' a_lock
chmod o-w weir.db
chmod 777 .
refused "C56_a_directory_in_which_every_user_renames_is_refused" 'every user may rename what is in' append
refused "for locks too" 'every user may rename what is in' a_lock
ok "insecure=1 accepts it" append --store 'sqlite:weir.db?insecure=1'
chmod 1777 .
ok "a directory like /tmp is fine" append
ok "for locks too" a_lock

# Tables of a database that is no store: the same rule.
place
shop() { # [OWNER]
    python3 -c 'import sqlite3
with sqlite3.connect("shop.db") as d:
    d.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT)")
    d.execute("INSERT INTO jobs VALUES (1, \"new\"), (2, \"new\")")'
    if $two_users; then chown "${1:-54321}" shop.db; fi
}
shop
claim() { alice "$WEIR" claim --store sqlite:shop.db --table jobs --where "status = 'new'" --set status=taken "$@"; }
chmod o+w shop.db
refused "C56_tables_of_a_database_that_every_user_may_write_to" 'every user may write to' claim
ok "are claimed with --insecure" claim --insecure
chmod o-w shop.db
alice ln shop.db other.db
refused "a database with two names" 'has 2 names' claim
rm other.db
ok "and with one" claim

# What is restored: the same rule.
place
ok "a store" append
ok "a backup" alice "$WEIR" backup good.db
chmod o+w good.db
refused "C56_a_backup_that_every_user_may_write_to_is_not_restored" 'every user may write to .*good.db' alice "$WEIR" restore good.db
ok "but with --insecure" alice "$WEIR" restore good.db --insecure
chmod o-w good.db
if $two_users; then
    chown 54322 good.db
    refused "nor one of another user" 'belongs to user 54322' alice "$WEIR" restore good.db
    chown 54321 good.db
fi
alice ln good.db second.db
ok "a second name does not matter" alice "$WEIR" restore good.db

# weir.yaml names the store and what is run.
place
printf 'store: sqlite:theirs.db\n' >weir.yaml
if $two_users; then chown 54321 weir.yaml; fi
ok "a weir.yaml" append
ok "counts" test -e theirs.db
chmod o+w weir.yaml
refused "C56_a_weir_yaml_that_every_user_may_write_to" 'every user may write to \\"weir.yaml' append
refused "is not run either" 'every user may write to \\"weir.yaml' alice "$WEIR" work --until-idle
ok "but with --insecure" append --insecure
chmod o-w weir.yaml
ok "a link to one's own is fine" alice sh -c 'mv weir.yaml real.yaml && ln -s real.yaml weir.yaml && "$WEIR" append s N'
ok "a pipe is read" alice bash -c '"$WEIR" work --check --config <(echo "store: sqlite:x.db"; echo "reactions: []") || [ $? -ne 124 ]'

# ---- another user -------------------------------------------------------------------------------

if $two_users; then
    place 1777
    alice sh -c 'echo precious >victim'
    mallory mkdir weir.db-locks
    mallory ln -s ../victim "weir.db-locks/$(hash_of job)"
    refused "C56_a_directory_of_locks_of_another_user_is_refused" 'belongs to user 54322, neither to you nor to root' a_lock
    refused "even with --insecure no link in it is followed" 'is a symbolic link' a_lock --insecure
    not_ok "nor by root" "$WEIR" lock job -- true
    is "the file is as it was" "$(cat victim)" precious
    mallory rm "weir.db-locks/$(hash_of job)"
    ok "root may use anybody's" "$WEIR" lock job -- true
    rm -rf weir.db-locks
    mallory ln -s victim weir.db
    refused "a link of another user to one's own file" 'is a symbolic link of user 54322' append
    refused "to read as well" 'is a symbolic link of user 54322' alice "$WEIR" log
    mallory rm weir.db
    mkdir -m 700 hidden && "$WEIR" append s N --store sqlite:hidden/own.db >/dev/null
    mallory ln -s hidden/own.db weir.db
    refused "C56_a_link_of_another_user_is_not_followed_by_root" 'is a symbolic link of user 54322' "$WEIR" append s N
    refused "nor to read" 'is a symbolic link of user 54322' "$WEIR" log
    refused "nor for a lock" 'is a symbolic link of user 54322' "$WEIR" lock job -- true
    ok "but with --insecure" "$WEIR" append s N --insecure
    mallory rm weir.db
    echo 'reactions: []' >hidden/own.yaml
    mallory ln -s hidden/own.yaml weir.yaml
    refused "nor one in place of weir.yaml" 'weir.yaml.* is a symbolic link of user 54322' "$WEIR" work --check
    mallory rm weir.yaml
    rm -rf hidden
    mallory "$WEIR" append s N >/dev/null
    refused "C56_a_store_of_another_user_is_refused" 'weir.db.* belongs to user 54322' append
    refused "for reading as well" 'belongs to user 54322' alice "$WEIR" log
    ok "but with --insecure" alice "$WEIR" log --insecure
    refused "and so are its locks" 'belongs to user 54322' a_lock
    ok "root may open anybody's" "$WEIR" append s N
    is "and its files stay their owner's" "$(stat -c %u weir.db*  | sort -u)" 54322
    ok "who goes on" mallory "$WEIR" append s N
    rm -f weir.db*
    for suffix in -wal -shm -journal -weir; do
        append >/dev/null
        rm -f "weir.db$suffix"
        mallory sh -c 'touch "$1"; chmod 644 "$1"' sh "weir.db$suffix"
        not_ok "C56_a_file_of_another_user_beside_a_store_is_refused" append
        like "weir.db$suffix: says why" "$errout" "weir.db$suffix.* belongs to user 54322"
        refused "for reading as well" "weir.db$suffix.* belongs to user 54322" alice "$WEIR" log
        rm -f weir.db*
    done
    shop 54322
    refused "tables of another user's database" 'belongs to user 54322' claim
    mallory sh -c 'echo "store: sqlite:evil.db" >weir.yaml'
    refused "C56_a_weir_yaml_of_another_user_is_refused" 'weir.yaml.* belongs to user 54322' append
    refused "by root too, in a directory like this" 'weir.yaml.* belongs to user 54322' "$WEIR" append s N
    ok "unless another store is given" append --store sqlite:mine.db
    mallory rm weir.yaml
    mallory mkfifo weir.yaml
    refused "a pipe of another user is not waited for" 'weir.yaml.* belongs to user 54322' append
    chmod 755 .
    rm weir.yaml
    # What root leaves behind after a crash is no trap for the owner of the store.
    place
    append >/dev/null
    "$WEIR" lock job -- sh -c 'kill -9 $PPID' >/dev/null 2>&1
    wait_for "the lock" a_lock
    ok "a lock that root held and left" a_lock
    ok "a directory of locks that root has made" "$WEIR" lock job -- bash -c 'alice "$WEIR" lock other -- true'
fi

done_testing
