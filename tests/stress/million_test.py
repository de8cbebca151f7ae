#!/usr/bin/env python3
"""million_test.py - a million lines go in, and a million events come out, in at most 32 MB.

The memory is the most that the `weir` process had at any time, as the kernel counted it
(measure.c). The lines are made while they are read, by another process.
"""

import json
import os
import subprocess
import sys

import tap

COUNT = int(os.environ.get("WEIR_STRESS_EVENTS", "1000000"))
MEMORY_KB_MAX = 32 * 1024
STREAMS = 100


def produce():
    """The lines, about 200 bytes each; the last event of a stream can be told from its number."""
    pad = "." * 110
    write = sys.stdout.write
    for i in range(COUNT):
        write('{"stream":"order-%d","name":"Counted","data":{"i":%d,"pad":"%s"}}\n'
              % (i % STREAMS, i, pad))


def measured(top, *args, **options):
    """Runs weir under measure, and gives the finished process and the report."""
    report = os.path.join(top, "report")
    done = subprocess.run([tap.program("measure"), report, tap.WEIR, *args], stderr=subprocess.PIPE,
                          check=False, **options)
    with open(report, encoding="utf-8") as text:
        return done, json.loads(text.read())


def memory_check(what, report):
    print(f"# {what}: {json.dumps(report)}")
    tap.check(report["memory_kb"] <= MEMORY_KB_MAX, f"{what} took {report['memory_kb']} kB")
    tap.check(report["memory_kb"] > 1000, f"{what} cannot have taken only {report['memory_kb']} kB")


TOP = ""  # the directory of the tests below, set once


def a_million_lines_are_appended_in_32_mb():
    with subprocess.Popen([sys.executable, __file__, "produce"], stdout=subprocess.PIPE) as source:
        done, report = measured(TOP, "append", "--store", f"sqlite:{TOP}/s.db?sync=normal",
                                "--json", "--batch", "-", stdin=source.stdout,
                                stdout=subprocess.PIPE)
    tap.check(done.returncode == 0, f"{done.returncode} {done.stderr.decode()[:500]}")
    tap.check(json.loads(done.stdout)["committed"] == COUNT, done.stdout.decode()[:200])
    memory_check("append --batch", report)


def consume(*args):
    """Reads with weir through a pipe; how many events came, in order, and the report."""
    report = os.path.join(TOP, "report")
    with subprocess.Popen([tap.program("measure"), report, tap.WEIR, *args],
                          stdout=subprocess.PIPE) as reader:
        count, last = 0, 0
        for line in reader.stdout:
            # Not json.loads: a million of them would be most of this test.
            position = int(line[len(b'{"id":'):line.index(b",")])
            tap.check(position > last, f"position {position} after {last}")
            last = position
            count += 1
    tap.check(reader.returncode == 0, f"weir {args[0]}: {reader.returncode}")
    with open(report, encoding="utf-8") as text:
        return count, json.loads(text.read())


def a_million_events_are_read_in_32_mb():
    count, report = consume("log", "--store", f"sqlite:{TOP}/s.db", "--json")
    tap.check(count == COUNT, f"{count} events came")
    memory_check("log", report)


def a_long_stream_is_read_in_32_mb():
    count, report = consume("read", "--store", f"sqlite:{TOP}/s.db", "--json", "order-7")
    tap.check(count == COUNT // STREAMS, f"{count} events came")
    memory_check("read", report)


def the_streams_are_listed_in_32_mb():
    report = os.path.join(TOP, "report")
    done = subprocess.run([tap.program("measure"), report, tap.WEIR, "streams", "--store",
                           f"sqlite:{TOP}/s.db", "--json"], stdout=subprocess.PIPE, check=True)
    streams = [json.loads(line) for line in done.stdout.splitlines()]
    tap.check(len(streams) == STREAMS, f"{len(streams)} streams")
    tap.check(sum(s["count"] for s in streams) == COUNT, "the counts do not add up")
    with open(report, encoding="utf-8") as text:
        memory_check("streams", json.loads(text.read()))


if __name__ == "__main__":
    if sys.argv[1:] == ["produce"]:
        produce()
    else:
        with tap.Directory("million") as TOP:
            tap.run([
                a_million_lines_are_appended_in_32_mb,
                a_million_events_are_read_in_32_mb,
                a_long_stream_is_read_in_32_mb,
                the_streams_are_listed_in_32_mb,
            ])
