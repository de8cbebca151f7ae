#!/usr/bin/env python3
"""storm_test.py - kill -9, more than 200 times, loses nothing, repeats nothing, tears nothing.

Clients append to one SQLite file and keep their own histories (storm_client.c, and the `weir`
program run by CommandClient below). They are killed with SIGKILL when their histories have grown by
a random amount, and started again; those that had an idempotency key in flight try it again.
Afterwards history.py holds all histories against the log. The seed is printed; WEIR_SEED repeats
it.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time

import history
import tap

SEED = int(os.environ.get("WEIR_SEED", time.time_ns() % 1000000))
THREADED_KILLS = 90
STORM_KILLS = 140
STREAMS = 8


class Client:
    """A storm_client process that is killed and started again."""

    def __init__(self, url, directory, name, threads, rng):
        self.url, self.directory, self.name = url, directory, name
        self.threads, self.rng = threads, rng
        self.process = None
        self.lives = 0
        self.kills = 0
        self.goal = 0

    def grown(self):
        total = 0
        for i in range(self.threads):
            try:
                total += os.stat(os.path.join(self.directory, f"{self.name}-{i}")).st_size
            except FileNotFoundError:
                pass
        return total

    def start(self, appends=None):
        self.lives += 1
        command = [tap.program("storm_client"), "--url", self.url, "--history", self.directory,
                   "--name", self.name, "--threads", str(self.threads), "--streams", str(STREAMS),
                   "--seed", str(self.rng.randrange(1 << 30))]
        if appends is not None:
            command += ["--appends", str(appends)]
        # A line has some 60 bytes: a life of up to 40 of them per thread, or of none at all.
        self.goal = self.grown() + self.rng.randrange(1, 2400) * self.threads
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE)

    def due(self):
        if self.process.poll() is not None:
            errors = self.process.stderr.read().decode()
            raise tap.Failed(f"{self.name} ended by itself: {self.process.returncode} {errors}")
        return self.grown() >= self.goal

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.reap()
        self.kills += 1

    def reap(self):
        code = self.process.wait()
        self.process.stderr.close()
        return code

    def finish(self):
        """A last life that ends by itself, so that every key in flight is tried again."""
        self.start(appends=3)
        errors = self.process.stderr.read().decode()
        tap.check(self.reap() == 0, f"{self.name} failed at the end: {errors}")


class CommandClient(threading.Thread):
    """Appends with the `weir` program, one process per append, and kills some of them half-way."""

    def __init__(self, store, directory, name, rng, stop):
        super().__init__()
        self.store, self.name_, self.rng, self.stop = store, name, rng, stop
        self.history = open(os.path.join(directory, name), "a", encoding="utf-8", buffering=1)
        self.kills = 0
        self.problem = None

    def note(self, line):
        self.history.write(line + " .\n")

    def attempt(self, op, stream, expect, keyed, kill):
        """Runs one append; None when it was killed, else whether it may be tried again."""
        self.note(f"i {op} {int(keyed)} 0 {stream}:{expect}:1")
        data = json.dumps({"op": op, "i": 0, "of": 1, "pad": ""})
        command = [tap.WEIR, "append", "--store", self.store, "--json", "--expect", expect]
        if keyed:
            command += ["--key", op]
        command += [stream, "Stormed", data]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        if kill:
            # At any moment of its short life: an append takes a few milliseconds.
            try:
                process.wait(self.rng.random() * 0.006)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                self.kills += 1
        out, err = process.communicate()
        if process.returncode == 0:
            answer = json.loads(out)
            self.note(f"a {op} {int(answer['replayed'])} "
                      f"{stream}:{answer['first']}:{answer['last']}:{answer['id']}")
        elif process.returncode == 4:
            error = json.loads(err)["error"]
            self.note(f"r {op} {error['code']} {error['stream']} {error['expected']} "
                      f"{error['actual']}")
        elif process.returncode != -signal.SIGKILL:
            raise tap.Failed(f"weir append: {process.returncode} {err}")
        return process.returncode

    def run(self):
        number = 0
        try:
            while not self.stop.is_set():
                op = f"{self.name_}-{number}"
                number += 1
                keyed = self.rng.random() < 0.5
                stream = f"s-{self.rng.randrange(STREAMS)}"
                code = self.attempt(op, stream, "any", keyed, self.rng.random() < 0.4)
                if code == -signal.SIGKILL and keyed:
                    self.attempt(op, stream, "any", keyed, False)
            self.note(f"d {number}")
        except Exception as error:  # pylint: disable=broad-except
            self.problem = error
        self.history.close()


def judge(store, directory, least):
    found, summary = history.check(store, directory)
    print(f"# seed {SEED}: {json.dumps(summary)}")
    for kind, text in found[:20]:
        print(f"# {kind}: {text}")
    tap.check(not found, f"{len(found)} violations, seed {SEED}")
    tap.check(summary["acknowledged"] >= least,
              f"only {summary['acknowledged']} acknowledged appends")
    return summary


def same_log(store):
    """The program tells the same story as the file."""
    out = tap.weir("log", "--store", f"sqlite:{store}", "--json")
    tap.check(out.returncode == 0, out.stderr)
    told = [(e["id"], e["stream"], e["version"], json.dumps(e["data"])) for e in
            map(json.loads, out.stdout.splitlines())]
    kept = [(i, s, v, json.dumps(json.loads(d))) for i, s, v, d in history.read_log(store)]
    tap.check(told == kept, "`weir log` and the file differ")


def a_killed_client_with_many_threads_loses_and_repeats_nothing():
    rng = random.Random(SEED)
    with tap.Directory("storm") as top:
        store, directory = os.path.join(top, "s.db"), os.path.join(top, "h")
        os.mkdir(directory)
        client = Client(f"sqlite:{store}?checkpoint=50", directory, "t", 12, rng)
        for _ in range(THREADED_KILLS):
            client.start()
            tap.wait_until("the history to grow", client.due, pause=0.0005)
            client.kill()
        client.finish()
        judge(store, directory, THREADED_KILLS)
        same_log(store)
        tap.check(client.kills == THREADED_KILLS, "every life but the last was to end with a kill")
        print(f"# {client.kills} kills")


def a_storm_of_killed_processes_loses_and_repeats_nothing():
    rng = random.Random(SEED + 1)
    with tap.Directory("storm") as top:
        store, directory = os.path.join(top, "s.db"), os.path.join(top, "h")
        os.mkdir(directory)
        made = tap.weir("init", "--store", f"sqlite:{store}")
        tap.check(made.returncode == 0, made.stderr)
        stop = threading.Event()
        commands = [CommandClient(f"sqlite:{store}", directory, f"w{i}",
                                  random.Random(SEED + 2 + i), stop) for i in range(2)]
        clients = [Client(f"sqlite:{store}?checkpoint=20", directory, f"p{i}", 1 + i % 2, rng)
                   for i in range(5)]
        for thread in commands:
            thread.start()
        for client in clients:
            client.start()
        kills = 0
        try:
            while kills < STORM_KILLS:
                due = tap.wait_until("a history to grow", lambda: [c for c in clients if c.due()],
                                     pause=0.0005)
                if kills % 20 == 19:
                    due = clients  # all at once: the next to open finds a WAL that nobody has open
                for client in due:
                    client.kill()
                    kills += 1
                for client in due:
                    client.start()
        finally:
            stop.set()
            for client in clients:
                client.process.kill()
                client.reap()
            for thread in commands:
                thread.join()
        for thread in commands:
            if thread.problem:
                raise thread.problem
        for client in clients:
            client.finish()
        judge(store, directory, STORM_KILLS)
        same_log(store)
        commanded = sum(t.kills for t in commands)
        print(f"# {kills} kills of clients, {commanded} kills of `weir append`")
        tap.check(commanded > 0, "no `weir append` was killed half-way")


if __name__ == "__main__":
    tap.run([
        a_killed_client_with_many_threads_loses_and_repeats_nothing,
        a_storm_of_killed_processes_loses_and_repeats_nothing,
    ])
