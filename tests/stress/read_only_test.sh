#!/usr/bin/env bash
# read_only_test.sh - directories and files that may not be written: clear errors, nothing broken,
# and reading works where it can.
#
# The program runs as nobody, because root may write everywhere; and on a read-only bind mount,
# where not even root may, in a mount namespace of its own. Both need root: without it the test
# fails.
set -u
# shellcheck source=tests/e2e/tap.sh
. "$WEIR_SOURCE/tests/e2e/tap.sh"

if [ "$(id -u)" -ne 0 ]; then
    fail "this test needs root" "it becomes another user and mounts a directory"
    done_testing
fi

chmod 755 "$tmp"
weir=$tmp/weir
cp "${WEIR:?}" "$weir" # where nobody can get at it

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }

# A store with two events, whose WAL still holds them: nothing checkpoints on close.
make_store() {
    mkdir -p "$1"
    "$weir" append --store "sqlite:$1/s.db" order-1 Placed '{"n":1}' >/dev/null 2>&1
    "$weir" append --store "sqlite:$1/s.db" order-1 Paid '{"n":2}' >/dev/null 2>&1
}

# One that was checkpointed and has neither WAL nor index beside it, as a copied file would be.
make_still_store() {
    make_store "$1"
    python3 - "$1/s.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
db.close()
PY
    rm -f "$1/s.db-wal" "$1/s.db-shm" "$1/s.db-weir"
}

# --- a directory that nobody may write ------------------------------------------------------------

mkdir "$tmp/dir"
status "a store cannot be created in a read-only directory" 1 \
    as_nobody "$weir" append --store "sqlite:$tmp/dir/s.db" order-1 Placed '{}'
like "the error names the store and the reason" "$errout" "(ermission|read-only|denied)"
is "nothing was created" "$(ls -A "$tmp/dir")" ""

make_still_store "$tmp/still"
ok "a store without a WAL is read in a read-only directory" \
    as_nobody "$weir" log --store "sqlite:$tmp/still/s.db" --json
is "all its events come" "$(printf '%s\n' "$out" | grep -c '"stream":"order-1"')" 2
is "reading created nothing" "$(ls -A "$tmp/still")" "s.db"

status "appending to it is refused" 1 \
    as_nobody "$weir" append --store "sqlite:$tmp/still/s.db" order-1 Shipped '{}'
like "and says why" "$errout" "(ermission|read-only|denied)"
is "and creates nothing" "$(ls -A "$tmp/still")" "s.db"
ok "its owner can still append" \
    "$weir" append --store "sqlite:$tmp/still/s.db" --json order-1 Shipped '{}'
like "at the next version" "$out" '"first":2,"last":2'

# --- a WAL that nobody may open for writing -------------------------------------------------------

make_store "$tmp/wal"
run as_nobody "$weir" log --store "sqlite:$tmp/wal/s.db" --json
if [ "$rc" -eq 0 ]; then
    is "a store with a WAL is read whole" "$(printf '%s\n' "$out" | grep -c '"stream":"order-1"')" 2
else
    like "a store with a WAL is read whole, or refused with the reason" "$errout" \
        "(ermission|read-only|denied|not writable)"
fi
ok "its owner still reads both events" "$weir" read --store "sqlite:$tmp/wal/s.db" --json order-1
is "both of them" "$(printf '%s\n' "$out" | grep -c '"stream":"order-1"')" 2

# --- a file that may not be written, in a directory that may --------------------------------------

make_still_store "$tmp/file"
chown 65534:65534 "$tmp/file"
chmod 444 "$tmp/file/s.db"
status "appending to a read-only file is refused" 1 \
    as_nobody "$weir" append --store "sqlite:$tmp/file/s.db" order-1 Shipped '{}'
like "and says why" "$errout" "(ermission|read-only|denied)"
ok "it can be read" as_nobody "$weir" read --store "sqlite:$tmp/file/s.db" --json order-1
is "whole" "$(printf '%s\n' "$out" | grep -c '"stream":"order-1"')" 2

# --- a read-only file system, as root -------------------------------------------------------------

# DIRECTORY COMMAND...: the shell inside gets the directory as $0 and the command as $@.
on_read_only_mount() {
    # shellcheck disable=SC2016
    # In a chroot the root is no mount point and cannot be made private; so the mount is taken away
    # again at the end, wherever else it may have appeared.
    unshare -m --propagation unchanged -- bash -c '
        mount --make-rprivate / 2>/dev/null
        mount --bind "$0" "$0" || exit 99
        rc=98
        if mount -o remount,bind,ro "$0"; then "$@"; rc=$?; fi
        umount "$0" || rc=97
        exit "$rc"' "$@"
}

make_still_store "$tmp/mount"
ok "a store is read on a read-only file system" \
    on_read_only_mount "$tmp/mount" "$weir" log --store "sqlite:$tmp/mount/s.db" --json
is "all its events come from there" "$(printf '%s\n' "$out" | grep -c '"stream":"order-1"')" 2
status "appending there is refused" 1 \
    on_read_only_mount "$tmp/mount" "$weir" append --store "sqlite:$tmp/mount/s.db" order-1 X '{}'
like "with the reason" "$errout" "(ermission|ead-only|denied)"
status "creating there is refused" 1 \
    on_read_only_mount "$tmp/mount" "$weir" append --store "sqlite:$tmp/mount/new.db" order-1 X '{}'
like "with the reason as well" "$errout" "(ermission|ead-only|denied)"
ok "once it may be written again, appending works" \
    "$weir" append --store "sqlite:$tmp/mount/s.db" --json order-1 X '{}'
like "at the next version there, too" "$out" '"first":2,"last":2'

done_testing
