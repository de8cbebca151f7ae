#!/usr/bin/env bash
# cli_backup_test.sh - saving a store and putting it back: with weir backup and weir restore, and with cp and mv by
# people who know no better. A backup is complete, a restore stays, and a database file that was swapped is never mixed
# with the write-ahead log of another.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
unset WEIR_STORE
mkdir "$tmp/bin" && ln -s "$WEIR" "$tmp/bin/weir"
export PATH=$tmp/bin:$PATH

fresh() { mkdir "$tmp/$1" && cd "$tmp/$1" || exit 1; }
append() {
    local i
    for ((i = 0; i < $1; i++)); do weir append order-1 N '{}' >/dev/null 2>>append.err || fail "append" "$(tail -n 1 append.err)"; done
}
count() { weir log "$@" 2>/dev/null | wc -l; }
# A process that has the store open: its pid in $pid.
follow() {
    : >follow.out
    rm -f follow.out follow.err
    weir log --follow >follow.out 2>follow.err &
    pid=$!
    spawned $pid
    wait_for "the follower" test -s follow.out
}
# Events that stay in a write-ahead log, because everybody who had the store open was killed.
killed() {
    follow
    append "$1"
    kill -9 $pid
    wait $pid 2>/dev/null
}

# ---- one complete file -------------------------------------------------------------------------

for threshold in 4 4000; do
    fresh "closed-$threshold"
    export WEIR_STORE="sqlite:weir.db?checkpoint=$threshold"
    append 3
    is "nothing is left in the write-ahead log ($threshold)" "$(stat -c %s weir.db-wal)" 0
    mkdir copy && cp weir.db copy/
    is "a copy of a closed store is complete ($threshold)" "$(count --store sqlite:copy/weir.db)" 3

    # ---- swapped by hand ---------------------------------------------------------------------------

    cp weir.db good.db
    append 3
    killed 2
    ok "a killed process leaves a write-ahead log ($threshold)" test -s weir.db-wal
    cp -a . ../moved-"$threshold"
    is "a store that was moved with all its files is complete" "$(count --store "sqlite:../moved-$threshold/weir.db")" 8
    mkdir pair && cp weir.db weir.db-wal pair/
    is "a database that was copied with its own log is complete" "$(count --store sqlite:pair/weir.db)" 8
    for way in cp mv; do
        cp good.db fresh.db
        $way fresh.db weir.db
        cp weir.db before.db
        for command in "log" "append order-1 N" "status" "init" "init --plan"; do
            # shellcheck disable=SC2086 # words
            run weir $command
            # SQLite may fail as well, but only after it has mixed the two files.
            is "C12_a_swapped_file_is_refused_before_it_is_read" "$rc, $(grep -o 'was replaced' <<<"$errout")" "1, was replaced"
            like "and says what to do ($way, $command, $threshold)" "$errout" 'was replaced.*weir restore FILE.*move .*weir.db-wal.* away and keep it'
        done
        ok "and it was not written" cmp weir.db before.db
    done
    ok "C12_a_restore_stays (beside a log of the old file)" weir restore good.db
    like "and keeps the old files" "$out" '"kept":".*/weir.db.before-[0-9]{8}T[0-9]{6}Z'
    is "it has what the backup had" "$(count)" 3
    append 1
    is "and goes on" "$(count)" 4
    ok "doctor finds nothing" weir doctor
done

fresh again
export WEIR_STORE=sqlite:weir.db
append 3
cp weir.db good.db
killed 2
cp good.db weir.db
status "a file with the same content as before is refused too" 1 weir log
ok "and restored" weir restore good.db
is "to what it was" "$(count)" 3

fresh advice
append 3
ok "a backup" weir backup good.db
append 40
killed 20
cp good.db weir.db
status "a swapped file is refused" 1 weir log
mv weir.db-wal away
is "and read as it is when the log is moved away, as the error says" "$(count)" 3
append 1
ok "without damage" weir doctor

fresh twice
append 3
ok "a backup" weir backup good.db
rm weir.db*
cp good.db weir.db
killed 300
cp good.db weir.db
status "a backup that was copied by hand twice is refused" 1 weir log

fresh clean
append 3
cp weir.db good.db
append 2
epoch=$(sqlite3 weir.db 'SELECT epoch FROM weir_store')
cp good.db weir.db
append 1
is "a file that was swapped without a log is taken as it is" "$(count)" 4
isnt_same() { test "$1" != "$2"; }
ok "C16_a_swapped_store_is_another_log" isnt_same "$epoch" "$(sqlite3 weir.db 'SELECT epoch FROM weir_store')"
epoch=$(sqlite3 weir.db 'SELECT epoch FROM weir_store')
append 2
killed 2
append 1
is "a store that was not swapped stays the log that it is" "$(sqlite3 weir.db 'SELECT epoch FROM weir_store')" "$epoch"

# ---- a file that other programs checkpoint -----------------------------------------------------

# A program with a connection of its own, and a table of its own, in the store's file. Each line on its stdin is run;
# "kill" ends it as kill -9 does, whatever it has in the log.
application() { # LINE...
    python3 -c 'import os, signal, sqlite3, sys
db = sqlite3.connect("weir.db", isolation_level=None, timeout=20)
for line in sys.argv[1:]:
    if line == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    db.execute(line).fetchall()' "$@" 2>>application.err
}
fill="INSERT INTO mine WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i, 'p', hex(randomblob(300)) FROM n"
own_table() { application "CREATE TABLE mine (id INTEGER PRIMARY KEY, status TEXT, x TEXT)" "$fill"; }
update="UPDATE mine SET status = status || 'x' WHERE id % 10 = 1"
# A reader that stops every checkpoint short: its pid in $pid_reader.
reader() {
    rm -f reading
    python3 -c 'import sqlite3, time
db = sqlite3.connect("weir.db", isolation_level=None)
db.execute("BEGIN")
db.execute("SELECT count(*) FROM weir_events").fetchall()
open("reading", "w").close()
time.sleep(1000)' &
    pid_reader=$!
    spawned "$pid_reader"
    wait_for "a reader" test -e reading
}
ended_hard() { # PID
    kill -9 "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

n=0
for how in 'application "$update" "PRAGMA wal_checkpoint(RESTART)" "$update" "PRAGMA wal_checkpoint" kill' \
    'application "PRAGMA wal_checkpoint"' 'application "PRAGMA wal_checkpoint(RESTART)" "$update"' \
    'application "PRAGMA wal_checkpoint(TRUNCATE)"' 'application "PRAGMA wal_checkpoint(TRUNCATE)" "$update"' \
    'application "VACUUM" "PRAGMA wal_checkpoint(RESTART)" "UPDATE mine SET status = 2 WHERE id = 2000" kill' 'application "VACUUM"' \
    'application "$update" "PRAGMA wal_checkpoint(RESTART)" "$update" "PRAGMA wal_checkpoint(RESTART)" "$update" kill' \
    'reader; application "$update" "PRAGMA wal_checkpoint" "$update" "PRAGMA wal_checkpoint" kill; ended_hard $pid_reader' \
    'touch weir.db' 'touch -d "2 days ago" weir.db' 'cp -p weir.db x.db; cp -p x.db weir.db' 'cat weir.db >x.db; cp x.db weir.db'; do
    for killed in no yes; do
        n=$((n + 1))
        [ $((n / 2 % 2)) -eq 1 ] && continue # each way once, killed or not in turn
        fresh "foreign-$n"
        append 3
        own_table
        follow
        append 1
        sleep 0.02 # SQLite's own change is another one than that before it, in the time of change
        eval "$how"
        [ $killed = yes ] && ended_hard $pid
        run weir append order-1 N
        if [[ $how == *VACUUM* ]]; then
            is "C12_a_file_that_another_program_vacuumed_is_the_same_store" "$rc" 0
        else
            is "C12_a_file_that_another_program_checkpointed_is_the_same_store" "$rc" 0
        fi
        eval "$how"
        append 1
        ended_hard $pid
        status "nor after all were killed ($how, $killed)" 0 weir append order-1 N
        is "nothing of it is lost" "$(count)" 7
        ok "and it is undamaged" weir doctor
        is "rows of the program too" "$(sqlite3 weir.db 'SELECT count(*) FROM mine')" 2000
    done
done

# An older copy, put over it after all of that.
for how in 'application "PRAGMA wal_checkpoint"' 'application "PRAGMA wal_checkpoint(RESTART)" "$update"' \
    'application "PRAGMA wal_checkpoint(TRUNCATE)" "$update" kill' 'application "VACUUM" "PRAGMA wal_checkpoint(RESTART)" "$update"' \
    'application "$update" "PRAGMA wal_checkpoint(RESTART)" "$update" "PRAGMA wal_checkpoint(RESTART)" "$update" kill' \
    'reader; application "$update" "PRAGMA wal_checkpoint" "$update" kill; ended_hard $pid_reader' 'touch weir.db'; do
    for copy in 'cp good.db weir.db' 'cp -p good.db weir.db' 'cp good.db x.db; mv x.db weir.db' 'cp other.db weir.db' 'cp backup.db weir.db'; do
        for then in '' 'append 1'; do
            n=$((n + 1))
            [ $((n / 2 % 2)) -eq 1 ] && continue # each pair once, with and without in turn
            fresh "swapped-$n"
            append 3
            own_table
            append 1
            cp weir.db good.db
            weir append order-1 N --store sqlite:other.db >/dev/null
            weir backup backup.db >/dev/null
            follow
            append 1
            eval "$how"
            [ -n "$then" ] && eval "$then"
            ended_hard $pid
            [ -s weir.db-wal ] || continue
            eval "$copy"
            cp weir.db before.db
            cp weir.db-wal before.db-wal
            run weir append order-1 N
            is "C12_a_swapped_file_is_refused_whoever_checkpointed" "$rc, $(grep -o 'was replaced' <<<"$errout")" "1, was replaced"
            : "$how, $copy, $then"
            ok "and nothing was written" cmp weir.db before.db
            ok "also not to the log" cmp weir.db-wal before.db-wal
        done
    done
done

# The program alone: it starts the log over, and no mark tells its generations apart.
fresh alone
append 3
own_table
cp weir.db good.db
application "$update" "PRAGMA wal_checkpoint(RESTART)" "UPDATE mine SET x = x || 'y' WHERE id % 10 = 7" kill
sleep 0.02
cp good.db weir.db
status "C12_an_older_copy_beside_the_log_of_another_program_is_refused" 1 weir append order-1 N
like "and both files are to be copied first" "$errout" 'was replaced.*Copy both files elsewhere first'
fresh alone-p
append 3
own_table
append 1
cp -p weir.db good.db
application "$update" "PRAGMA wal_checkpoint(RESTART)" "UPDATE mine SET x = x || 'y' WHERE id % 10 = 7" kill
sleep 0.02
cp -p good.db weir.db
status "nor with the time of the file that it replaces" 1 weir append order-1 N
fresh alone-marked
append 3
own_table
append 1
cp weir.db good.db
application "$update" "PRAGMA wal_checkpoint(RESTART)" "UPDATE mine SET x = x || 'y' WHERE id % 10 = 7" kill
killed 1
cp -a . ../alone-moved && cd ../alone-moved || exit 1 # where no time is known
cp good.db weir.db
status "C12_an_older_copy_is_refused_by_its_mark_alone" 1 weir append order-1 N
fresh alone-whole
append 3
own_table
application "$update" "PRAGMA wal_checkpoint(RESTART)" "UPDATE mine SET x = x || 'y' WHERE id % 10 = 7" kill
status "the same without such a copy is the store" 0 weir append order-1 N
ok "and it is undamaged" weir doctor

# Programs of Weir's own, which are guests in the store's file.
fresh guest
append 3
own_table
rm -f work.log
weir work --on N --to t --run true --from start --log json 2>work.log &
pid=$!
spawned $pid
wait_for "the worker" grep -q '"msg":"started"' work.log
for _ in 1 2 3 4; do
    weir claim --table mine --where "status = 'p'" --set status=c --limit 500 >/dev/null || fail claim
    ok "C12_claims_in_the_file_of_a_store_leave_it_whole" weir append order-1 N
done
ended_hard $pid
ok "also when the worker was killed" weir append order-1 N
ok "and it is undamaged" weir doctor

# A swapped file is refused by the commands for tables too.
fresh guest-swapped
export WEIR_STORE='sqlite:weir.db?checkpoint=4'
append 3
own_table
cp weir.db good.db
append 3
follow
append 20
ended_hard $pid
export WEIR_STORE=sqlite:weir.db
cp good.db weir.db
cp weir.db-wal before.db-wal
status "a swapped file is refused" 1 weir append order-1 N
for command in 'claim --table mine --set status=c' 'claim --table mine --hold --run true' 'lock --table mine --id 1 -- true'; do
    # shellcheck disable=SC2086 # words
    run weir $command
    is "C12_commands_for_tables_refuse_a_swapped_file" "$rc, $(grep -o 'was replaced' <<<"$errout")" "1, was replaced"
    ok "before anything is written ($command)" cmp weir.db good.db
    ok "also to the log" cmp weir.db-wal before.db-wal
done

# ---- backup ------------------------------------------------------------------------------------

fresh backup
append 5
follow
ok "a backup beside a process that has the store open" weir backup monday.db
like "says what it wrote" "$out" '^\{"backup":"monday.db","bytes":[0-9]+\}$'
is "it is one file" "$(echo monday.db*)" "monday.db"
is "and complete" "$(count --store sqlite:monday.db)" 5
rm -f monday.db-*
sum=$(cksum monday.db)
status "a file that is there is refused" 1 weir backup monday.db
like "by name, with the way out" "$errout" 'monday.db.* is there already.*--force'
is "and left alone" "$(cksum monday.db)" "$sum"
append 1
ok "unless it is to be replaced" weir backup monday.db --force
is "then it is the new one" "$(count --store sqlite:monday.db)" 6
hint=$(weir backup monday.db 2>&1)
ok "the way out is one of the command" bash -c '[[ $1 != *WEIR_BACKUP* ]]' _ "$hint"
mkfifo pipe && mkdir folder && ln -s monday.db link
for special in pipe folder link; do
    status "a $special is not replaced" 1 weir backup $special --force
    like "and it says why" "$errout" 'not a regular file'
done
ok "they are what they were" test -p pipe -a -d folder -a -L link
status "a backup is no stream" 2 weir backup -
like "and that is said" "$errout" 'is a file'
ok "nothing has that name" test ! -e ./-
status "the store itself is no place for it" 1 weir backup weir.db --force
status "nor a file of it" 1 weir backup weir.db-wal --force
status "nor a directory that is not there" 1 weir backup nowhere/x.db
status "there is nothing to copy of no store" 3 weir backup x.db --store sqlite:none.db
status "nor in memory" 2 weir backup x.db --store memory:
ok "no half file stays" test -z "$(ls -- *.part-* 2>/dev/null)"
for suffix in journal wal shm weir locks restoring; do
    for more in '' --force; do
        # shellcheck disable=SC2086 # words
        status "C12_a_backup_takes_no_name_of_a_file_of_a_store" 1 weir backup $more weir.db-$suffix
        # shellcheck disable=SC2086 # words
        status "of another store neither ($suffix)" 1 weir backup $more monday.db-$suffix
        like "and says which" "$errout" 'is the name of a file of .*monday.db'
    done
    [ $suffix = restoring ] || status "nor does a store take it ($suffix)" 1 weir append order-1 N --store "sqlite:monday.db-$suffix"
done
bash -c 'ulimit -f 40; exec weir backup full.db' >/dev/null 2>full.err
is "a disk that is full fails it" $? 1
like "and says so" "$(cat full.err)" 'disk full|disk I/O error'
ok "and leaves nothing" test -z "$(ls full.db* 2>/dev/null)"
kill -9 $pid
wait $pid 2>/dev/null

# Somebody has another store open: it is not replaced.
fresh opened
append 3
WEIR_STORE=sqlite:o.db append 2
WEIR_STORE=sqlite:o.db follow
append 1
status "C12_a_store_that_is_open_is_not_replaced_by_a_backup" 75 weir backup o.db --force
like "and says so" "$errout" 'o.db.* is a store that is open'
is "it has its events" "$(count --store sqlite:o.db)" 2
ended_hard $pid
ok "when nobody has it open it is replaced" weir backup o.db --force
is "as asked for" "$(count --store sqlite:o.db)" 4
python3 -c 'import sqlite3, time
db = sqlite3.connect("o.db")
db.execute("SELECT count(*) FROM weir_events").fetchall()
open("ready", "w").close()
time.sleep(1000)' &
pid=$!
spawned $pid
wait_for "a foreign program" test -e ready
status "nor one that another program has open" 75 weir backup o.db --force
ended_hard $pid

# ---- what a killed backup leaves ---------------------------------------------------------------

fresh leftovers
export WEIR_STORE=sqlite:weir.db
# Large enough to be met while it is copied.
{ printf '"' && head -c 1000000 /dev/zero | tr '\0' x && printf '"'; } >large.json
for _ in {1..20}; do weir append order-1 N - <large.json >/dev/null || fail "append"; done
# A backup that is stopped while it writes its copy: its pid in $pid.
stopped() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        rm -f monday.db
        weir backup monday.db >/dev/null 2>&1 &
        pid=$!
        spawned $pid
        until compgen -G 'monday.db.part-*-journal' >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
        kill -STOP $pid 2>/dev/null
        if kill -0 $pid 2>/dev/null && compgen -G 'monday.db.part-*-journal' >/dev/null; then return; fi
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
    fail "a backup that is stopped"
}
stopped
ok "another backup beside one that is being made" weir backup monday.db
ok "leaves its copy alone" compgen -G 'monday.db.part-*-journal'
kill -9 $pid
wait $pid 2>/dev/null
ok "so does a backup of another name" weir backup monday
ok "when it was killed as well" compgen -G 'monday.db.part-*-journal'
: >monday.db.part-mine
: >monday.db.part-0123456789abcdef-journal
mkdir monday.db.part-fedcba9876543210
ln -s weir.db monday.db.part-0000000000000000
ok "a backup of the same name removes what a killed one has left" weir backup monday.db --force
is "and nothing else" "$(echo monday.db*)" \
    "monday.db monday.db.part-0000000000000000 monday.db.part-fedcba9876543210 monday.db.part-mine"
is "it is complete" "$(count --store sqlite:monday.db)" 20

fresh stale
append 3
ok "a backup" weir backup monday.db
WEIR_STORE=sqlite:monday.db killed 2
status "C12_a_backup_is_not_put_beside_the_log_of_another_file" 1 weir backup monday.db --force
like "and says which one" "$errout" 'monday.db-wal.*Choose another name'
rm monday.db
status "not even under a name that is free" 1 weir backup monday.db
rm monday.db-wal
ok "but without that log" weir backup monday.db
ok "and this one can be restored" weir restore monday.db

fresh mixed
append 3
cp weir.db good.db
ok "a backup" weir backup monday.db
WEIR_STORE=sqlite:monday.db killed 2
cp good.db monday.db
status "C12_a_backup_beside_the_log_of_another_file_is_not_restored" 1 weir restore monday.db
like "and says what to do" "$errout" 'monday.db-wal.*Nothing was changed.*move'
is "the store is as it was" "$(count)" 3

# ---- restore -----------------------------------------------------------------------------------

fresh restore
append 5
ok "a backup" weir backup monday.db
append 2
follow
before=$(sqlite3 weir.db 'SELECT epoch FROM weir_store')
status "C12_a_store_that_is_open_is_not_restored" 75 weir restore monday.db
like "and says why" "$errout" 'open in another process'
kill -9 $pid
wait $pid 2>/dev/null
python3 -c 'import sqlite3, time
db = sqlite3.connect("weir.db")
db.execute("SELECT count(*) FROM weir_events").fetchall()
open("ready", "w").close()
time.sleep(1000)' &
pid=$!
spawned $pid
wait_for "a foreign program" test -e ready
status "nor one that another program has open" 75 weir restore monday.db
kill -9 $pid
wait $pid 2>/dev/null
head -c 5000 /dev/urandom >rubbish.db
status "rubbish is refused" 1 weir restore rubbish.db
sqlite3 foreign.db 'CREATE TABLE t (x)'
status "so is somebody's database" 1 weir restore foreign.db
like "by its own name" "$errout" 'restore \\"foreign.db\\": there is no store in it'
sqlite3 bare.db 'PRAGMA user_version = 1; VACUUM'
status "so is one with nothing in it" 1 weir restore bare.db
cp monday.db broken.db
dd if=/dev/urandom of=broken.db bs=4096 seek=4 count=30 conv=notrunc status=none
status "so is a damaged backup" 1 weir restore broken.db
like "and another one is asked for" "$errout" 'Nothing was changed.*another one'
: >empty.db && mkdir folder.db
status "so is an empty file" 1 weir restore empty.db
like "by its own name" "$errout" 'restore \\"empty.db\\": the file is empty'
status "so is a directory" 1 weir restore folder.db
like "which is said" "$errout" 'not a regular file'
status "so is none" 3 weir restore none.db
status "so is the store itself" 1 weir restore weir.db
cp monday.db weir.db-restoring
status "so is what a restore writes to itself" 1 weir restore weir.db-restoring
like "by name" "$errout" 'weir.db-restoring.*another name'
ok "which is still there" cmp monday.db weir.db-restoring
rm weir.db-restoring
is "all of that changed nothing" "$(count)" 7
ok "no copy is left" test -z "$(ls -- *-restoring* 2>/dev/null)"
ok "a restore" weir restore monday.db
is "brings back what was saved" "$(count)" 5
isnt_same "$before" "$(sqlite3 weir.db 'SELECT epoch FROM weir_store')"
is "C16_a_restored_store_is_another_log" $? 0
is "what was there is kept, complete" "$(count --store "sqlite:$(echo weir.db.before-*Z)")" 7
status "a restore to a new place" 0 weir restore monday.db --store sqlite:elsewhere.db
like "keeps nothing" "$out" '"kept":null'
is "and is complete" "$(count --store sqlite:elsewhere.db)" 5

fresh removed
append 3
ok "a backup" weir backup good.db
killed 2
rm weir.db
ok "a restore beside a log whose database was removed" weir restore good.db
is "has what the backup had" "$(count)" 3
ok "and the log is kept" test -s "$(echo weir.db.before-*-wal)"

# ---- a damaged store ---------------------------------------------------------------------------

fresh damaged
append 40
cp weir.db whole.db
pages=$(($(stat -c %s weir.db) / 4096))
dd if=/dev/zero of=weir.db bs=4096 seek=2 count=$((pages - 2)) conv=notrunc status=none
status "C12_a_damaged_store_refuses_appends" 1 weir append order-1 N
like "and says what to do" "$errout" 'weir restore|not an SQLite database'

fresh worker
append 40
rm -f work.log
weir work --on N --to t --run true --from start --log json 2>work.log &
pid=$!
spawned $pid
wait_for "the worker" grep -q '"msg":"started"' work.log
wait_for "all its work" bash -c "weir targets | grep -q '\"lag\":0'"
roots=$(sqlite3 weir.db "SELECT rootpage FROM sqlite_schema WHERE name IN ('weir_targets', 'weir_streams', 'weir_reactions', 'weir_events')")
weir backup healthy.db >/dev/null
# Into the database, so that no log hides the damage; then the pages are overwritten.
sqlite3 weir.db 'PRAGMA wal_checkpoint(TRUNCATE)' >/dev/null
for page in $roots; do dd if=/dev/urandom of=weir.db bs=4096 seek=$((page - 1)) count=1 conv=notrunc status=none; done
ended work.log
is "C41_a_worker_on_a_damaged_store_ends" $rc 1
is "and says so once" "$(grep -c '"msg":"store_damaged"' work.log)" 1
like "and what to do" "$(tail -n 1 work.log)" 'weir restore'
ok "it said little" test "$(wc -l <work.log)" -lt 20
ok "restored" weir restore healthy.db
ok "it works again" timeout 60 weir work --on N --to t --run true --from start --until-idle

# ---- a store that is no longer there -------------------------------------------------------------

# Opening it again is all that helps, so a worker ends; SIGTERM need not be sent.
worker() { # ARGUMENT...: of weir work
    append 3
    cp weir.db good.db
    cp weir.db new.db
    append 1
    rm -f work.log
    weir work --on N --to t --from start --log json "$@" 2>work.log &
    pid=$!
    spawned $pid
    wait_for "the worker" grep -q '"msg":"started"' work.log
}
gone=0
for how in 'cp good.db weir.db' ': >weir.db' 'head -c 100000 /dev/urandom >weir.db' 'rm weir.db-wal' 'rm weir.db weir.db-*' \
    'rm weir.db weir.db-*; weir append order-1 N' 'mv new.db weir.db'; do
    gone=$((gone + 1))
    fresh "gone-$gone"
    worker --run true
    wait_for "all its work" bash -c "weir targets | grep -q '\"lag\":0'"
    eval "$how" >made.log 2>&1
    ended work.log
    is "C41_a_worker_whose_store_was_taken_away_ends" $rc 1
    is "and says so once ($how)" "$(grep -c '"msg":"store_damaged"' work.log)" 1
    like "and what happened" "$(tail -n 1 work.log)" 'was (overwritten|removed|replaced) while the store was open'
    like "and what to do" "$(tail -n 1 work.log)" '"detail":"[A-Z]'
    is "and not that it is back" "$(grep -c store_back work.log)" 0
done

# Also if it is already ending: what runs cannot be settled, so there is nothing to wait for.
fresh gone-ending
worker --run 'touch running; while [ ! -e go ]; do sleep 0.01; done'
wait_for "a handler" test -e running
kill $pid
wait_for "the end to begin" grep -q '"msg":"draining"' work.log
cp good.db weir.db
touch go
ended work.log
is "C41_a_worker_that_ends_does_not_wait_for_a_store_that_was_taken_away" $rc 1
not_ok "nor for its budget" grep -q '"reason":"budget"' work.log

for how in 'head -c 100000 /dev/urandom >weir.db' ': >weir.db'; do
    gone=$((gone + 1))
    fresh "gone-$gone"
    append 3
    follow
    eval "$how"
    # The stamp of a commit, which makes it look.
    head -c 8 /dev/urandom | dd of=weir.db-weir conv=notrunc status=none
    ended follow.err
    like "a reader is told that its store was overwritten ($how)" "$(cat follow.err)" 'was overwritten while the store was open'
done

# ---- PostgreSQL --------------------------------------------------------------------------------

fresh postgres
ok "the line for pg_dump" weir backup "it's.dump" --store 'postgres://me:secret@db/orders?schema=odd%20name' --text
is "is for exactly this schema, without a password" "$out" \
    "pg_dump --format=custom --schema='\"odd name\"' --file='it'\\''s.dump' postgres://me@db/orders"
ok "a password among the parameters" weir backup a.dump --text \
    --store 'postgres://me@db/orders?password=secret&sslmode=require&sslpassword=secret'
is "is left out too" "$out" \
    "pg_dump --format=custom --schema='\"weir\"' --file=a.dump 'postgres://me@db/orders?sslmode=require'"
for name in 'odd"name' 'a%0Ab' pg_mine; do
    status "no line for a schema that no store can have: $name" 1 weir backup a.dump --store "postgres://db/orders?schema=$name"
    like "and why" "$errout" 'is not a name of 1 to 63 bytes'
done
ok "the line for pg_restore" weir restore orders.dump --store postgres:///orders --text
is "is for exactly this database" "$out" \
    "pg_restore --single-transaction --exit-on-error --clean --if-exists --dbname=postgres:///orders orders.dump"

# ---- the page ----------------------------------------------------------------------------------

fresh page
unset WEIR_STORE
sed -n '/^```sh$/,/^```$/p' "$WEIR_SOURCE/docs/backup.md" | sed '/^```/d' >commands
while read -r line; do
    ok "docs/backup.md: $line" bash -c "$line"
done <commands
is "docs/backup.md: the store is as it was saved" "$(count)" 1

done_testing
