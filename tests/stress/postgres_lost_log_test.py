#!/usr/bin/env python3
"""postgres_lost_log_test.py LOST [stopped] - ordinary workers and a failover to an asynchronous standby that has lost
events, with fewer and with more than 32 positions lost, with and without a worker that is stopped.

A worker is in the middle of an event that is lost when the primary is killed. Another one leases the
same target on the new primary, with the same fence. What the first one does then must change nothing:
every event of the new log is handled, and no position is beyond its end.
"""

import json
import os
import signal
import subprocess
import sys

import postgres
import postgres_failover_test as failover
import tap

NEW = 20  # events of the new log


class Standby(failover.Standby):
    """An asynchronous one, which can be cut off."""

    def start(self):
        postgres.as_server("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast",
                           "-d", f"host={postgres.DIRECTORY} user=postgres")
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as out:
            out.write(f"unix_socket_directories = '{self.directory}'\n")
        postgres.control(self.data, self.directory, "start")
        self.started = True

    def sql(self, text, database="postgres"):
        return postgres.sql(text, database, self.directory)

    def cut(self):
        lsn = postgres.sql("SELECT pg_current_wal_flush_lsn()")[0]
        tap.wait_until("the standby to have everything", lambda: self.sql(
            f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{lsn}'"), pause=0.05)
        self.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.sql("SELECT pg_reload_conf()")
        tap.wait_until("the standby to be cut off", lambda: not self.sql(
            "SELECT 1 FROM pg_stat_wal_receiver"), pause=0.05)


class Work:
    """weir work, with a handler that writes down what it begins, and waits while the gate is shut."""

    def __init__(self, store, top, name):
        self.begun = os.path.join(top, name)
        self.log = os.path.join(top, name + ".log")
        gate = os.path.join(top, "gate")
        run = (f"cat >> {self.begun}; echo >> {self.begun}; "
               f"while [ ! -e {gate} ]; do sleep 0.05; done")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [tap.WEIR, "work", "--store", store, "--on", "Placed", "--to", "all",
                 "--name", "r", "--from", "start", "--threads", "1", "--log", "json", "--run", run],
                stdout=subprocess.DEVNULL, stderr=log)

    def data(self):
        """Of the events it has begun."""
        if not os.path.exists(self.begun):
            return []
        with open(self.begun, encoding="utf-8") as lines:
            return [json.loads(line)["event"]["data"] for line in lines if line.endswith("}\n")]

    def rewinds(self):
        """How often it has said that the log is another one."""
        with open(self.log, encoding="utf-8") as lines:
            return sum('"log_rewound"' in line for line in lines)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def append(store, log, count):
    lines = "".join(json.dumps({"stream": "order-1", "name": "Placed",
                                "data": {"log": log, "n": n}}) + "\n" for n in range(count))
    done = tap.weir("append", "--store", store, "--batch", "-", input=lines)
    tap.check(done.returncode == 0, done.stderr)


def lost_log(lost, stopped):
    with Standby() as standby, tap.Directory("lost") as top:
        database = f"lost_{lost}{'_stopped' if stopped else ''}"
        store = postgres.new_store(database, postgres.DIRECTORY, standby.directory)
        store += "&target_session_attrs=read-write"
        gate = os.path.join(top, "gate")
        open(gate, "w", encoding="utf-8").close()
        append(store, 1, 5)
        first = Work(store, top, "first")
        second = None
        try:
            fence = "SELECT fence FROM weir.targets WHERE holder IS NOT NULL"
            tap.wait_until("the first events to be settled", lambda: postgres.sql(
                "SELECT 1 FROM weir.subscriptions WHERE at = 5", database), pause=0.05)
            standby.start()
            standby.cut()
            os.unlink(gate)
            append(store, "lost", lost)
            tap.wait_until("the worker to begin a lost event",
                           lambda: any(d["log"] == "lost" for d in first.data()), pause=0.05)
            old = postgres.sql(fence, database)
            if stopped:
                first.process.send_signal(signal.SIGSTOP)
            failover.kill_primary()
            standby.promote()
            append(store, 2, NEW)
            if not stopped:  # it is in its handler, and may or may not lease again before the other
                first.process.send_signal(signal.SIGSTOP)
            second = Work(store, top, "second")
            tap.wait_until("the other worker to begin", second.data, pause=0.05)
            tap.check(standby.sql(fence, database) == old, "the fences differ")
            first.process.send_signal(signal.SIGCONT)
            open(gate, "w", encoding="utf-8").close()
            tap.wait_until("the new log to be handled", lambda: standby.sql(
                "SELECT 1 FROM weir.subscriptions WHERE at >= (SELECT max(id) FROM weir.events)",
                database), pause=0.1)
            tap.check(standby.sql("SELECT max(at) FROM weir.subscriptions", database)
                      == standby.sql("SELECT max(id) FROM weir.events", database),
                      "a position is beyond the end of the log")
            tap.wait_until("the first worker to say it", lambda: first.rewinds() > 0, pause=0.1)
            tap.check(first.rewinds() == 1, "it was said more than once")
            tap.check(second.rewinds() == 0, "the second worker knows one log only")
        finally:
            first.end()
            if second is not None:
                second.end()
        handled = {d["n"] for d in first.data() + second.data() if d["log"] == 2}
        tap.check(handled == set(range(NEW)), f"of the new log only {sorted(handled)} were handled")
        postgres.doctor(postgres.url(database, standby.directory))


def what_was_held_when_the_log_was_lost_changes_nothing_on_the_new_one():
    lost_log(int(sys.argv[1]), sys.argv[2:] == ["stopped"])


if __name__ == "__main__":
    tap.run([what_was_held_when_the_log_was_lost_changes_nothing_on_the_new_one])
