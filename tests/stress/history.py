#!/usr/bin/env python3
"""history.py - holds what clients wrote down about their appends against what the log holds.

    history.py STORE HISTORY_DIR

It knows the contract and the format of the histories (history.h), and nothing of Weir: the log of a
file is read with Python's own sqlite3, from the documented view weir_log, that of a postgres:// URL
with psql, from the documented table weir.events. What must be true:

    gap          versions of a stream are 0, 1, 2 ... without gaps or repeats
    order        positions grow with versions inside a stream, and as given inside an append
    lost         an acknowledged append is there
    moved        ... at the versions and the position it was acknowledged with
    repeated     no event of an append is there twice
    torn         an append is there whole or not at all, whatever became of its client
    unexpected   an append stands where its expectations allow it, acknowledged or not
    refused      what was refused left nothing
    answers      an append under a key that was acknowledged more than once has one result
    backwards    what one client appended later has the higher position
    stranger     every event was intended by somebody, in that stream, with that content
    conflict     a conflict was reported with versions that can be true
    fence        no target was leased twice with the same fence
    error        no client met an error that must not happen, nor a broken rule
    integrity    PRAGMA integrity_check says ok (SQLite)

Prints one line per violation and a summary; exit status 1 when there are any.
"""

import collections
import json
import os
import sqlite3
import subprocess
import sys

ANY, NONE, EXISTS = "any", "none", "exists"


class Append:
    """One append as its client saw it: what was intended, and every outcome."""

    def __init__(self, op, keyed, pad, parts):
        self.op = op
        self.keyed = keyed
        self.pad = pad
        self.parts = parts  # [(stream, expectation, count)]
        self.acks = []  # [(replayed, {stream: (first, last, id)})]
        self.refusals = []  # [(code, stream, expected, actual)]
        self.attempts = 1

    def streams_in_order(self):
        """The stream of each event: the parts take turns, as the client does it."""
        left = [count for _, _, count in self.parts]
        order = []
        while any(left):
            for i, (stream, _, _) in enumerate(self.parts):
                if left[i]:
                    left[i] -= 1
                    order.append(stream)
        return order

    def data(self, index, total):
        return {"op": self.op, "i": index, "of": total, "pad": "." * self.pad}


class Histories:
    """Everything that all clients wrote down."""

    def __init__(self):
        self.appends = {}
        self.by_client = collections.defaultdict(list)  # client: its appends in order
        self.problems = []  # of the kind error
        self.ended = 0  # clients that ended as they were meant to
        self.unknown = 0  # outcomes that were not known
        self.fences = collections.defaultdict(list)  # (target, fence): who leased it

    def line(self, client, words):
        kind = words[0]
        if kind == "i":
            op = words[1]
            if op in self.appends:
                self.appends[op].attempts += 1
                return
            parts = []
            for part in words[4].split(","):
                stream, expect, count = part.split(":")
                parts.append((stream, expect if expect in (ANY, NONE, EXISTS) else int(expect),
                              int(count)))
            self.appends[op] = Append(op, words[2] == "1", int(words[3]), parts)
            self.by_client[client].append(op)
        elif kind == "a":
            streams = {}
            for part in words[3].split(","):
                stream, first, last, position = part.split(":")
                streams[stream] = (int(first), int(last), int(position))
            self.appends[words[1]].acks.append((words[2] == "1", streams))
        elif kind == "r":
            self.appends[words[1]].refusals.append(
                (words[2], words[3], int(words[4]), int(words[5])))
        elif kind == "u":
            self.unknown += 1  # it may be there or not, whole
        elif kind == "f":
            self.fences[(words[1], int(words[2]))].append(client)
        elif kind == "d":
            self.ended += 1
        else:
            self.problems.append(f"{client}: {' '.join(words)}")

    def load(self, directory):
        for client in sorted(os.listdir(directory)):
            with open(os.path.join(directory, client), encoding="utf-8") as lines:
                for line in lines:
                    # A line that does not end as it should was cut off with its client.
                    if line.endswith(" .\n"):
                        self.line(client, line.split()[:-1])
        return self

    def acknowledged(self):
        return sum(1 for a in self.appends.values() if a.acks)


class Checker:
    """The violations found so far, as (kind, text)."""

    def __init__(self, histories, events):
        self.histories = histories
        self.events = events  # [(id, stream, version, data)], by id
        self.found = []
        self.of_append = collections.defaultdict(list)  # op: [(index, id, stream, version)]
        self.versions = collections.defaultdict(list)  # stream: versions by position

    def violation(self, kind, text):
        self.found.append((kind, text))

    def check_event(self, position, stream, version, data):
        self.versions[stream].append((version, position))
        try:
            content = json.loads(data)
            op, index, total = content["op"], content["i"], content["of"]
        except (ValueError, KeyError, TypeError):
            self.violation("stranger", f"event {position} holds {data!r}")
            return
        append = self.histories.appends.get(op)
        order = append.streams_in_order() if append else []
        if append is None:
            self.violation("stranger", f"event {position} is of {op}, which nobody intended")
        elif (total != len(order) or not 0 <= index < total or order[index] != stream
              or content != append.data(index, total)):
            self.violation("stranger",
                           f"event {position} of {op} is not as intended: {stream} {data}")
        else:
            self.of_append[op].append((index, position, stream, version))

    def check_streams(self):
        for stream, versions in self.versions.items():
            numbers = sorted(v for v, _ in versions)
            if numbers != list(range(len(numbers))):
                wrong = next(i for i, v in enumerate(numbers) if v != i)
                self.violation("gap", f"{stream}: version {wrong} is missing or repeated")
            by_version = sorted(versions)
            if any(a[1] >= b[1] for a, b in zip(by_version, by_version[1:])):
                self.violation("order", f"{stream}: positions do not grow with versions")

    def check_acknowledged(self, append, there):
        if any(ack[1] != append.acks[0][1] for ack in append.acks):
            self.violation("answers", f"{append.op} was answered in different ways")
        if sum(1 for ack in append.acks if not ack[0]) > 1:
            self.violation("answers", f"{append.op} was told twice that it was the first")
        if not there:
            self.violation("lost", f"{append.op} was acknowledged and is not there")
            return
        for stream, (first, last, position) in append.acks[0][1].items():
            mine = [e for e in there if e[2] == stream]
            versions = [e[3] for e in mine]
            if versions != list(range(first, last + 1)) or (mine and mine[-1][1] != position):
                at = mine[-1][1] if mine else None
                self.violation("moved", f"{append.op}: {stream} was acknowledged at "
                                        f"{first}-{last}, id {position}, and is at {versions}, "
                                        f"id {at}")
        if set(append.acks[0][1]) != {p[0] for p in append.parts}:
            self.violation("moved", f"{append.op}: the answer names other streams")

    def check_expectations(self, append, there):
        for stream, expect, _ in append.parts:
            first = next((e[3] for e in there if e[2] == stream), None)
            if first is None:
                continue
            if ((expect == NONE and first != 0) or (expect == EXISTS and first == 0)
                    or (isinstance(expect, int) and first != expect + 1)):
                self.violation("unexpected", f"{append.op}: expected {stream} at {expect}, and "
                                             f"begins at version {first}")

    def check_append(self, append):
        there = sorted(self.of_append.get(append.op, []))
        total = len(append.streams_in_order())
        indexes = [e[0] for e in there]
        if len(set(indexes)) != len(indexes):
            self.violation("repeated", f"{append.op} has an event more than once")
        elif there and len(there) != total:
            self.violation("torn", f"{append.op} has {len(there)} of its {total} events")
        if any(a[1] >= b[1] for a, b in zip(there, there[1:])):
            self.violation("order", f"{append.op}: events are not in the order given")
        if append.acks:
            self.check_acknowledged(append, there)
        elif there and append.attempts == len(append.refusals):
            self.violation("refused", f"{append.op} was refused and is there")
        self.check_expectations(append, there)
        for code, stream, expected, actual in append.refusals:
            # -1: no such stream, for both; -2: "exists" was expected.
            impossible = expected == actual or (expected == -2 and actual != -1)
            if code == "conflict" and (impossible or actual >= len(self.versions.get(stream, []))):
                self.violation("conflict", f"{append.op}: {stream} expected {expected}, actual "
                                           f"{actual}")

    def check_clients(self):
        """A client's thread waits for each answer, so its positions grow."""
        for client, ops in self.histories.by_client.items():
            highest = 0
            for op in ops:
                ids = [e[1] for e in self.of_append.get(op, [])]
                if self.histories.appends[op].acks and ids:
                    if min(ids) < highest:
                        self.violation("backwards", f"{client}: {op} is below what came before it")
                    highest = max(ids)

    def run(self):
        for event in self.events:
            self.check_event(*event)
        self.check_streams()
        for append in self.histories.appends.values():
            self.check_append(append)
        self.check_clients()
        for (target, fence), holders in self.histories.fences.items():
            if len(holders) > 1:
                self.violation("fence", f"{target} was leased with fence {fence} by "
                                        f"{' and '.join(holders)}")
        for problem in self.histories.problems:
            self.violation("error", problem)
        return self.found


def connect(path):
    """A reader that neither writes nor checkpoints."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def is_postgres(store):
    return store.startswith("postgres://")


def psql(url, sql):
    """The rows of a query, each of one column."""
    program = os.path.join(os.environ.get("WEIR_TEST_PG_BIN", ""), "psql")
    done = subprocess.run([program, "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql, url],
                          stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def read_log(path):
    if is_postgres(path):
        return [tuple(json.loads(line)) for line in psql(
            path, "SELECT json_build_array(id, stream, version, data::text) FROM weir.events "
                  "ORDER BY id")]
    with connect(path) as db:
        return db.execute("SELECT id, stream, version, data FROM weir_log ORDER BY id").fetchall()


def integrity(path):
    if is_postgres(path):
        return []
    with connect(path) as db:
        return [row[0] for row in db.execute("PRAGMA integrity_check")]


def check(path, directory):
    """The violations, and a summary."""
    histories = Histories().load(directory)
    events = read_log(path)
    found = Checker(histories, events).run()
    for line in integrity(path):
        if line != "ok":
            found.append(("integrity", line))
    summary = {"intended": len(histories.appends), "acknowledged": histories.acknowledged(),
               "events": len(events), "ended": histories.ended, "unknown": histories.unknown,
               "fences": len(histories.fences), "violations": len(found)}
    return found, summary


def main():
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[2].strip(), file=sys.stderr)
        return 2
    found, summary = check(sys.argv[1], sys.argv[2])
    for kind, text in found:
        print(f"{kind}: {text}")
    print(json.dumps(summary))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
