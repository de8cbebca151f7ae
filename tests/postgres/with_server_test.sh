#!/usr/bin/env bash
# with_server_test.sh - the server that tests get: it works, it is the command's own, and nothing of
# it is left, however the harness ends.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1
unset WEIR_TEST_POSTGRES WEIR_TEST_PG_BIN WEIR_TEST_PG_DATA WEIR_TEST_PG_DIR

with() { "$WEIR_SOURCE/tests/postgres/with-server" "$@"; }
# shellcheck disable=SC2016  # the command's shell expands it
ask='"$WEIR_TEST_PG_BIN/psql" -d "$WEIR_TEST_POSTGRES" -AtqX'

# A harness in the background whose command waits for ever; $harness, $place and $command are its
# process, its directory and the command's process.
start() {
    mkfifo "$tmp/started"
    # A shell has its background commands ignore SIGINT; ours should not.
    env --default-signal=INT "$WEIR_SOURCE/tests/postgres/with-server" -- bash -c \
        "echo \"\$WEIR_TEST_PG_DIR \$\$\" >'$tmp/started'; exec tail -f /dev/null" 9>&- &
    harness=$!
    spawned "$harness"
    read -r place command <"$tmp/started"
    rm "$tmp/started"
    postmaster=$(head -n 1 "$place/data/postmaster.pid")
}
running() { kill -0 "$1" 2>/dev/null && [ "$(ps -o stat= -p "$1" | head -c 1)" != Z ]; }
gone() { ! running "$1"; }
all_gone() { [ ! -e "$place" ] && gone "$postmaster" && gone "$command"; }
stops_after() { # NAME SIGNAL STATUS
    start
    ok "before $1 the server is there" running "$postmaster"
    kill "-$2" "$harness"
    wait "$harness" 2>/dev/null
    is "after $1 the harness says so" "$?" "$3"
    ok "after $1 server, directory and command are gone" wait_for "all to be gone" all_gone
}

ok "a command finds a server" with -- bash -c "$ask -c 'SELECT 1 + 1'; echo \$WEIR_TEST_PG_DIR"
is "that answers" "$(head -n 1 <<<"$out")" 2
ok "and that is gone afterwards" test ! -e "$(tail -n 1 <<<"$out")"
status "the command's exit status is passed on" 7 with -- sh -c 'exit 7'
status "so is the signal that ended it" 143 with -- sh -c 'kill -TERM $$'
is "and its input" "$(echo given | with cat)" given
ok "settings are taken" with --fsync -c "work_mem=77MB" -c "cluster_name=it's ours" -- bash -c \
    "$ask -c 'SHOW fsync' -c 'SHOW work_mem' -c 'SHOW cluster_name' -c 'SHOW listen_addresses'"
is "as they were given" "$out" $'on\n77MB\nit\'s ours'
status "a setting that the server refuses" 125 with -c 'work_mem=much' -- true
like "is shown" "$errout" 'work_mem'
status "no command is wrong usage" 125 with --fsync
status "so is an unknown option" 125 with --what -- true

# shellcheck disable=SC2016
ok "a server that is named already is used" env WEIR_TEST_POSTGRES=postgres://elsewhere/ \
    "$WEIR_SOURCE/tests/postgres/with-server" -- sh -c 'echo "$WEIR_TEST_POSTGRES"'
is "as it is" "$out" postgres://elsewhere/
# shellcheck disable=SC2016
ok "unless the command must have its own" env WEIR_TEST_POSTGRES=postgres://elsewhere/ \
    "$WEIR_SOURCE/tests/postgres/with-server" --own -- sh -c 'echo "$WEIR_TEST_POSTGRES"'
like "and gets it" "$out" '^postgres:///postgres\?host=/tmp/weir-pg'

ok "a command may restart its server" with -- bash -c "
    runuser -u \"\$WEIR_TEST_PG_USER\" -- true 2>/dev/null && as='runuser -u postgres --' || as=
    cd / && \$as \"\$WEIR_TEST_PG_BIN/pg_ctl\" -D \"\$WEIR_TEST_PG_DATA\" -l \"\$WEIR_TEST_PG_DIR/log\" \
        -s -w -m immediate restart && $ask -c 'SELECT 3'; echo \$WEIR_TEST_PG_DIR"
is "and goes on with it" "$(head -n 1 <<<"$out")" 3
ok "which is gone afterwards as well" test ! -e "$(tail -n 1 <<<"$out")"

stops_after "SIGTERM" TERM 143
stops_after "SIGINT" INT 130
stops_after "SIGKILL" KILL 137

done_testing
