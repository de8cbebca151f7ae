"""postgres.py - what the storms on PostgreSQL share: the test's server, its clients, the verdict.

They run below tests/postgres/with-server, which names the server in WEIR_TEST_PG_*.
"""

import json
import os
import signal
import subprocess

import history
import tap

BIN = os.environ["WEIR_TEST_PG_BIN"]
DIRECTORY = os.environ["WEIR_TEST_PG_DIR"]
DATA = os.environ["WEIR_TEST_PG_DATA"]
USER = os.environ["WEIR_TEST_PG_USER"]


def url(database, *directories):
    return f"postgres:///{database}?host={','.join(directories or [DIRECTORY])}&user=postgres"


def sql(text, database="postgres", directory=DIRECTORY):
    return history.psql(url(database, directory), text)


def as_server(program, *args):
    """Runs one of PostgreSQL's programs as the server's user; it must succeed."""
    command = [os.path.join(BIN, program), *args]
    if os.geteuid() == 0:
        command = ["runuser", "-u", USER, "--", *command]
    done = subprocess.run(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    tap.check(done.returncode == 0, f"{program}: {done.stdout}")


def control(data, directory, *args):
    """pg_ctl. A server that it starts must not inherit our pipes: it logs to a file."""
    command = [os.path.join(BIN, "pg_ctl"), "-D", data, "-s", "-w", "-t", "60", "-l",
               os.path.join(directory, "log"), *args]
    if os.geteuid() == 0:
        command = ["runuser", "-u", USER, "--", *command]
    code = subprocess.call(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tap.check(code == 0, f"pg_ctl {' '.join(args)}: {code}")


def new_store(database, *directories):
    """A database with an empty store in it; its URL for clients."""
    sql(f"CREATE DATABASE {database}")
    made = tap.weir("init", "--store", url(database, *directories))
    tap.check(made.returncode == 0, made.stderr)
    return url(database, *directories)


class Client:
    """A client program that keeps a history, and can be killed and started again."""

    def __init__(self, program, store, directory, name, *args):
        self.command = [tap.program(program), "--url", store, "--history", directory, "--name",
                        name, *args]
        self.name = name
        self.kills = 0
        self.process = None

    def start(self, *args):
        self.process = subprocess.Popen([*self.command, *args], stderr=subprocess.PIPE)

    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()
        self.kills += 1

    def finish(self):
        """Waits for its own end, which must be a good one."""
        errors = self.process.stderr.read().decode()
        code = self.process.wait()
        self.process.stderr.close()
        tap.check(code == 0, f"{self.name} ended with {code}: {errors}")


def judge(store, directory, least):
    """Holds the histories against the log; both must be rich enough to mean something."""
    found, summary = history.check(store, directory)
    print(f"# {json.dumps(summary)}")
    for kind, text in found[:20]:
        print(f"# {kind}: {text}")
    tap.check(not found, f"{len(found)} violations")
    tap.check(summary["acknowledged"] >= least, f"only {summary['acknowledged']} acknowledged")
    return summary


def doctor(store):
    done = tap.weir("doctor", "--store", store, "--json")
    tap.check(done.returncode == 0, f"weir doctor: {done.stdout} {done.stderr}")
