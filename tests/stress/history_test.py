#!/usr/bin/env python3
"""history_test.py - the checker of histories finds what it is there to find.

A true log and its histories pass; then one thing at a time is made wrong, in the log or in a
history, and the checker must name that kind of violation. The store here is a plain SQLite file
with a table of the name and columns of the view the checker reads.
"""

import os
import sqlite3

import history
import tap

# op, keyed, parts, and the outcomes; positions are given in this order from 1.
LINES = {
    "a-0": [
        "i a-0-0 0 0 s-1:none:2 .",
        "a a-0-0 0 s-1:0:1:2 .",
        "i a-0-1 1 0 s-1:1:1,s-2:any:2 .",
        "a a-0-1 0 s-1:2:2:3,s-2:0:1:5 .",
        "i a-0-1 1 0 s-1:1:1,s-2:any:2 .",
        "a a-0-1 1 s-1:2:2:3,s-2:0:1:5 .",
        "i a-0-2 0 3 s-1:1:1 .",
        "r a-0-2 conflict s-1 1 2 .",
        "d 3 .",
    ],
    "b-0": [
        "i b-0-0 0 2 s-2:exists:1 .",
        "a b-0-0 0 s-2:2:2:6 .",
        "i b-0-1 1 0 s-1:2:1,s-2:2:1 .",
        "i b-0-2 0 0 s-3:any:3 .",
        "i b-0-3 0 0 s-",
    ],
}
EVENTS = [
    (1, "s-1", 0, "a-0-0", 0, 2, 0),
    (2, "s-1", 1, "a-0-0", 1, 2, 0),
    (3, "s-1", 2, "a-0-1", 0, 3, 0),
    (4, "s-2", 0, "a-0-1", 1, 3, 0),
    (5, "s-2", 1, "a-0-1", 2, 3, 0),
    (6, "s-2", 2, "b-0-0", 0, 1, 2),
    (7, "s-1", 3, "b-0-1", 0, 2, 0),  # never acknowledged, and there all the same
    (8, "s-2", 3, "b-0-1", 1, 2, 0),
]


def data(op, index, total, pad):
    return '{"op":"%s","i":%d,"of":%d,"pad":"%s"}' % (op, index, total, "." * pad)


def true_log():
    return [(i, s, v, data(op, index, total, pad)) for i, s, v, op, index, total, pad in EVENTS]


def judge(log, lines):
    """The kinds of violations found in a store and histories on disk."""
    with tap.Directory("checker") as top:
        path, directory = os.path.join(top, "s.db"), os.path.join(top, "h")
        os.mkdir(directory)
        for client, text in lines.items():
            with open(os.path.join(directory, client), "w", encoding="utf-8") as out:
                out.write("\n".join(text) + ("" if text[-1].endswith("s-") else "\n"))
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE weir_log (id, stream, version, data)")
            db.executemany("INSERT INTO weir_log VALUES (?, ?, ?, ?)", log)
        db.close()
        found, summary = history.check(path, directory)
    return {kind for kind, _ in found}, summary


def with_lines(client, number, line):
    changed = {name: list(text) for name, text in LINES.items()}
    if line is None:
        del changed[client][number]
    else:
        changed[client][number] = line
    return changed


def expect(kind, log=None, lines=None):
    kinds, _ = judge(true_log() if log is None else log, LINES if lines is None else lines)
    tap.check(kind in kinds, f"expected {kind} to be found, found {sorted(kinds)}")


def without(*ids):
    return [e for e in true_log() if e[0] not in ids]


def a_true_history_passes():
    kinds, summary = judge(true_log(), LINES)
    tap.check(not kinds, f"found {sorted(kinds)}")
    tap.check(summary == {"intended": 6, "acknowledged": 3, "events": 8, "ended": 1,
                          "unknown": 0, "fences": 0, "violations": 0}, str(summary))


def an_unacknowledged_append_may_be_missing():
    kinds, _ = judge(without(7, 8), LINES)
    tap.check(not kinds, f"found {sorted(kinds)}")


def a_lost_append_is_found():
    expect("lost", without(6, 8))


def a_gap_is_found():
    expect("gap", [e if e[0] != 8 else (8, "s-2", 4, e[3]) for e in true_log()])


def a_repeated_version_is_found():
    expect("gap", [e if e[0] != 8 else (8, "s-2", 2, e[3]) for e in true_log()])


def a_repeated_append_is_found():
    expect("repeated", true_log() + [(9, "s-1", 4, data("b-0-1", 0, 2, 0)),
                                     (10, "s-2", 4, data("b-0-1", 1, 2, 0))])


def a_torn_append_is_found():
    expect("torn", without(8))


def a_moved_append_is_found():
    expect("moved", lines=with_lines("b-0", 1, "a b-0-0 0 s-2:1:1:6 ."))
    expect("moved", lines=with_lines("b-0", 1, "a b-0-0 0 s-2:2:2:5 ."))


def an_append_against_its_expectation_is_found():
    expect("unexpected", lines=with_lines("b-0", 2, "i b-0-1 1 0 s-1:1:1,s-2:2:1 ."))
    expect("unexpected", lines=with_lines("a-0", 0, "i a-0-0 0 0 s-1:exists:2 ."))
    expect("unexpected", lines=with_lines("b-0", 0, "i b-0-0 0 2 s-2:none:1 ."))


def a_refused_append_that_is_there_is_found():
    expect("refused", true_log() + [(9, "s-1", 4, data("a-0-2", 0, 1, 3))])


def an_unknown_outcome_may_be_either():
    lines = with_lines("a-0", 7, "u a-0-2 .")
    for log in (true_log(), true_log() + [(9, "s-1", 4, data("a-0-2", 0, 1, 3))]):
        kinds, summary = judge(log, lines)
        # Where it is, it stands against its expectation: it came too late.
        tap.check(kinds <= {"unexpected"} and summary["unknown"] == 1, f"found {sorted(kinds)}")


def a_fence_that_was_given_twice_is_found():
    kinds, summary = judge(true_log(), {**LINES, "c-0": ["f t-1 1 .", "f t-1 2 .", "f t-2 1 ."]})
    tap.check(not kinds and summary["fences"] == 3, f"found {sorted(kinds)}")
    expect("fence", lines={**LINES, "c-0": ["f t-1 1 ."], "c-1": ["f t-1 1 ."]})


def two_different_answers_are_found():
    expect("answers", lines=with_lines("a-0", 5, "a a-0-1 1 s-1:2:2:3,s-2:0:1:4 ."))
    expect("answers", lines=with_lines("a-0", 5, "a a-0-1 0 s-1:2:2:3,s-2:0:1:5 ."))


def positions_against_the_order_are_found():
    log = true_log()
    log[0], log[1] = (2,) + log[0][1:], (1,) + log[1][1:]
    expect("order", sorted(log))


def a_client_that_goes_back_is_found():
    lines = {"c-0": ["i c-0-0 0 0 s-1:any:1 .", "a c-0-0 0 s-1:0:0:2 .",
                     "i c-0-1 0 0 s-2:any:1 .", "a c-0-1 0 s-2:0:0:1 ."]}
    log = [(1, "s-2", 0, data("c-0-1", 0, 1, 0)), (2, "s-1", 0, data("c-0-0", 0, 1, 0))]
    expect("backwards", log, lines)


def a_stranger_is_found():
    expect("stranger", true_log() + [(9, "s-1", 4, "{}")])
    expect("stranger", true_log() + [(9, "s-1", 4, data("x-0-0", 0, 1, 0))])
    expect("stranger", [e if e[0] != 6 else e[:3] + (data("b-0-0", 0, 1, 1),) for e in true_log()])
    expect("stranger", [e if e[0] != 6 else (6, "s-1", 3, e[3]) for e in true_log()])


def an_impossible_conflict_is_found():
    expect("conflict", lines=with_lines("a-0", 7, "r a-0-2 conflict s-1 1 1 ."))
    expect("conflict", lines=with_lines("a-0", 7, "r a-0-2 conflict s-1 1 9 ."))


def an_error_and_a_broken_rule_are_found():
    expect("error", lines=with_lines("a-0", 8, "e a-0-2 io disk gone ."))
    expect("error", lines=with_lines("a-0", 8, "v a commit without the side lock ."))


def a_damaged_file_is_found():
    with tap.Directory("checker") as top:
        path = os.path.join(top, "s.db")
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE weir_log (id, stream, version, data)")
            db.execute("CREATE INDEX by_stream ON weir_log (stream)")
            db.executemany("INSERT INTO weir_log VALUES (?, ?, ?, ?)", true_log())
            db.execute("PRAGMA writable_schema = ON")
            db.execute("UPDATE sqlite_schema SET sql = "
                       "'CREATE INDEX by_stream ON weir_log (version)' WHERE name = 'by_stream'")
        db.close()
        tap.check(history.integrity(path) != ["ok"], "the damage was not seen")


tap.run([
    a_true_history_passes,
    an_unacknowledged_append_may_be_missing,
    a_lost_append_is_found,
    a_gap_is_found,
    a_repeated_version_is_found,
    a_repeated_append_is_found,
    a_torn_append_is_found,
    a_moved_append_is_found,
    an_append_against_its_expectation_is_found,
    a_refused_append_that_is_there_is_found,
    an_unknown_outcome_may_be_either,
    a_fence_that_was_given_twice_is_found,
    two_different_answers_are_found,
    positions_against_the_order_are_found,
    a_client_that_goes_back_is_found,
    a_stranger_is_found,
    an_impossible_conflict_is_found,
    an_error_and_a_broken_rule_are_found,
    a_damaged_file_is_found,
])
