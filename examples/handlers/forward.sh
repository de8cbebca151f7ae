#!/bin/sh
# forward.sh - a handler for `run:`: hands each event on to another store (or any service that takes
# an idempotency key).
#
# Safe to run twice: the key that Weir gives with an event is the same every time, and whoever gets it
# does nothing for a key that it has seen.
#
#   OTHER=sqlite:copy.db weir work --on OrderPlaced --to 'forward-{stream}' --run ./forward.sh --from start
set -eu
: "${OTHER:?the store to forward to}"

delivery=$(cat)
# The delivery is one line: {"event":{"id":7,"stream":"order-1",...},"reaction":...,"key":"..."}. These
# are parts of it as they stand there; a program for exec: would parse it.
part() { printf '%s\n' "$delivery" | sed -n "$1"; }
event=$(part 's/^{"event":\(.*\),"reaction":.*/\1/p')
stream=$(part 's/^{"event":{"id":[0-9]*,"stream":"\([^"\\]*\)".*/\1/p')
key=$(part 's/.*"key":"\([^"\\]*\)"}$/\1/p')
if [ -z "$event" ] || [ -z "$stream" ] || [ -z "$key" ]; then
    echo "a name that this script cannot read" >&2
    exit 65 # it will be the same next time: do not try again
fi
# Anything but 0 and 65 is tried again later, with what is on stderr as the reason. What is sent with a
# key must be the same each time: the event is, but "attempt", "fence" and "deadline" are not.
printf '%s\n' "$event" | weir append "copy-$stream" Forwarded - --key "$key" --store "$OTHER" >&2
