#!/bin/sh
# install-deps.sh - installs the Debian packages that are missing, and only those.
#
#   tools/install-deps.sh build        what it takes to build and install Weir
#   tools/install-deps.sh build test   and what the tests and checks need
#
# Needs root or sudo only when something is missing, and asks nothing.
set -eu

build='gcc libc6-dev meson ninja-build pkg-config python3 scdoc
       libpcre2-dev libpq-dev libsqlite3-dev libyaml-dev zlib1g-dev' # zlib: for the static SQLite
test='clang clang-format clang-tidy codespell cppcheck fish g++ git golang-go
      libclang-rt-14-dev libcmocka-dev mandoc nodejs pgbouncer postgresql procps shellcheck sqlite3 tmux
      zsh'

usage() {
    echo 'usage: install-deps.sh build|test...' >&2
    exit 2
}

fail() {
    echo "install-deps: $*" >&2
    exit 1
}

# What is not installed, of the packages given. A virtual package is there when its provider is.
missing() {
    for package in "$@"; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || printf '%s ' "$package"
    done
}

[ $# -gt 0 ] || usage
packages=
for set in "$@"; do
    case $set in
    build) packages="$packages $build" ;;
    test) packages="$packages $test" ;;
    *) usage ;;
    esac
done

command -v dpkg-query >/dev/null ||
    fail "this is not Debian; install the equivalents of:$(echo "$packages" | tr -s ' \n' ' ')"
# shellcheck disable=SC2086  # lists of words
need=$(missing $packages)
[ -n "$need" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    fail "not root and no sudo; ask an administrator to run: apt-get install $need"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
quietly() {
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fail "could not install: $need"
    }
}

echo "installing: $need"
quietly apt-get -q update
# shellcheck disable=SC2086
quietly apt-get -q -y --no-install-recommends install $need
# shellcheck disable=SC2086
left=$(missing $need)
[ -z "$left" ] || fail "still missing after installing: $left"
