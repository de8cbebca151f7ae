#!/usr/bin/env python3
"""slow_reader_test.py - a reader that stops reading holds up nobody.

`weir log` is started and its output is not read, so it stands still in the middle of the log.
Meanwhile others append many times the checkpoint threshold. If the reader held a transaction, no
checkpoint could pass it and the WAL would grow with every append; it must stay small, and nothing
may fail. Then the reader is read to its end and must tell every event it began with, once.
"""

import fcntl
import json
import os
import struct
import subprocess
import termios

import tap

BEFORE = 20000  # far more than fits into a pipe and the reader's own buffers
AFTER = 20000
CHECKPOINT_PAGES = 100
PAGE_BYTES = 4096
# The WAL may run over the threshold by what one transaction of a batch writes, and a checkpoint may
# lose a race with a reader now and then: 1.1 MB were seen. Behind a reader that holds a transaction
# it grows to 14 MB here.
WAL_BYTES_MAX = 4 * 1024 * 1024


def batch(url, first, count):
    lines = "".join(json.dumps({"stream": f"s-{i % 50}", "name": "Slow",
                                "data": {"i": i, "pad": "." * 120}}) + "\n"
                    for i in range(first, first + count))
    done = tap.weir("append", "--store", url, "--json", "--batch", "-", input=lines)
    tap.check(done.returncode == 0, f"append: {done.returncode} {done.stderr[:300]}")
    tap.check(json.loads(done.stdout)["committed"] == count, done.stdout)


def standing_still(reader):
    """True when its pipe is full: the next line it writes has to wait for us."""
    size = fcntl.fcntl(reader.stdout, fcntl.F_GETPIPE_SZ)
    waiting = struct.unpack("i", fcntl.ioctl(reader.stdout, termios.FIONREAD, b"\0" * 4))[0]
    return waiting > size - 2 * PAGE_BYTES


def slow_reader(*args):
    with tap.Directory("slow") as top:
        store = os.path.join(top, "s.db")
        url = f"sqlite:{store}?checkpoint={CHECKPOINT_PAGES}"
        batch(url, 0, BEFORE)
        with subprocess.Popen([tap.WEIR, *args, "--store", url, "--json"],
                              stdout=subprocess.PIPE) as reader:
            first = json.loads(reader.stdout.readline())
            tap.wait_until("the reader to stand still", lambda: standing_still(reader))
            highest = 0
            for part in range(20):
                batch(url, BEFORE + part * (AFTER // 20), AFTER // 20)
                highest = max(highest, os.stat(f"{store}-wal").st_size)
            tap.check(standing_still(reader), "the reader was not standing still all the time")
            print(f"# the WAL had {highest} bytes at most")
            tap.check(highest <= WAL_BYTES_MAX, f"the WAL grew to {highest} bytes")
            tap.check(highest > 0, "there was no WAL")
            ids = [first["id"]]
            for line in reader.stdout:
                ids.append(json.loads(line)["id"])
                if "--follow" in args and len(ids) == BEFORE + AFTER:
                    reader.terminate()
        tap.check(reader.returncode == 0, f"the reader ended with {reader.returncode}")
        tap.check(ids == sorted(set(ids)), "events came twice or out of order")
        tap.check(len(ids) >= BEFORE, f"only {len(ids)} events came")


def a_log_that_is_not_read_stops_no_writer_and_no_checkpoint():
    slow_reader("log")


def a_follower_that_is_not_read_stops_no_writer_and_no_checkpoint():
    slow_reader("log", "--follow")


tap.run([
    a_log_that_is_not_read_stops_no_writer_and_no_checkpoint,
    a_follower_that_is_not_read_stops_no_writer_and_no_checkpoint,
])
