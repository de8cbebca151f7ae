#!/usr/bin/env bash
# cli_roles_test.sh - what each kind of role (weir init --grant ROLE --as KIND) can do with the program, and what
# it is refused. Run by tests/postgres/with-server.
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
chmod 755 "$tmp"
export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres PATH=$WEIR_TEST_PG_BIN:$PATH
export WEIR_STORE=postgres:///roles
weir() { "$WEIR" "$@"; }
as() { printf 'postgres://%s@/roles' "$1"; }

createdb roles
ok "init" weir init
for kind in reader writer worker operator; do
    psql -X -q -d roles -c "CREATE ROLE r_$kind LOGIN"
    ok "init --grant --as $kind" weir init --grant r_$kind --as $kind
    like "says so" "$out" "\"granted\":\"r_$kind\",\"as\":\"$kind\""
done
psql -X -q -d roles -c 'CREATE ROLE r_default LOGIN'
ok "init --grant" weir init --grant r_default
like "is for a worker" "$out" '"granted":"r_default","as":"worker"'
ok "init --plan --grant" weir init --plan --grant r_default --as reader
is "prints what it would run" "$out" "SELECT weir.grant_role('r_default', 'reader');"
status "a kind that is none" 2 weir init --grant r_default --as boss
like "names the kinds" "$errout" 'reader, writer, worker or operator'
status "--as alone" 2 weir init --as reader

weir append order-1 Placed '{}' >/dev/null
weir append order-2 Placed '{}' >/dev/null
status "the owner declares a reaction" 1 weir work --on Placed --to 'mail-{stream}' --run 'exit 1' --name mail --from start --retries 0 --until-idle

can() {
    local kind=$1
    shift
    ok "$kind can: weir $*" env WEIR_STORE="$(as "r_$kind")" timeout 60 "$WEIR" "$@"
}
cannot() {
    local kind=$1
    shift
    status "$kind cannot: weir $*" 1 env WEIR_STORE="$(as "r_$kind")" timeout 60 "$WEIR" "$@"
    like "and is told why" "$errout" 'permission denied.*weir init --grant'
}
for kind in reader writer worker operator default; do
    for command in log 'log --name Placed --since 2020-01-01' 'read order-1' streams status targets 'reactions ls' \
        'parked ls' 'why mail-order-1' why locks 'once --list'; do
        # shellcheck disable=SC2086 # words of a command
        can $kind $command
    done
    status "$kind can: weir doctor, which finds the blocked targets" 1 env WEIR_STORE="$(as "r_$kind")" timeout 60 "$WEIR" doctor
    is "and nothing else" "$(grep -o '"level":"finding","rule":"[a-z-]*"' <<<"$out")" '"level":"finding","rule":"blocked"'
done
cannot reader append order-1 Paid
for kind in writer worker operator; do
    can $kind append order-1 Paid
    can $kind append "new-$kind" Paid
    can $kind close "new-$kind"
done
cannot writer lock job -- true
cannot writer once job -- true
cannot reader close order-1
for kind in worker default operator; do
    can $kind lock job -- true
    can $kind once "job-$kind" -- true
    can $kind work --on Paid --to "paid-$kind" --run true --name "paid-$kind" --from start --until-idle
    is "and its work is done" "$(weir targets --match "paid-$kind" | grep -o '"state":"[a-z]*"')" '"state":"idle"'
done
for kind in reader writer; do
    status "$kind cannot work" 1 timeout 60 "$WEIR" work --on Paid --to x --run true --name "x-$kind" --from start --until-idle --store "$(as "r_$kind")"
done
for kind in reader writer worker default; do
    cannot $kind unblock mail-order-1
    cannot $kind pause mail-order-1
    cannot $kind reset mail-order-1 --to start --yes
    cannot $kind reactions retire mail
done
can operator unblock mail-order-1
can operator pause mail-order-1
can operator resume mail-order-1
can operator pause --lane default
can operator resume --lane default
can operator prioritize 5 mail-order-1
can operator reset mail-order-1 --to start --yes
can operator skip mail-order-1 --yes
can operator once --forget job-worker --yes
can operator reactions retire mail
status "doctor" 1 weir doctor
is "finds what is left of it, and nothing else" "$(grep -o '"level":"finding","rule":"[a-z-]*"' <<<"$out")" '"level":"finding","rule":"blocked"
"level":"finding","rule":"parked"'

done_testing
