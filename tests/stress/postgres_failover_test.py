#!/usr/bin/env python3
"""postgres_failover_test.py - the primary is killed in a storm, its synchronous standby takes over,
and nothing that was acknowledged is lost.

Both servers are on this machine. The clients name both in their URL and are told nothing: they find
the new primary by themselves. What they wrote down is then held against the log of the new primary.
"""

import os
import shutil
import signal
import tempfile

import history
import postgres
import tap

PROCESSES = 4
ACKNOWLEDGED_LEAST = 500  # before the failover, and again after it


class Standby:
    """A synchronous standby of the test's server; its directory is removed at the end."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="weir-standby.", dir="/tmp")
        if os.geteuid() == 0:
            shutil.chown(self.directory, postgres.USER)
        os.chmod(self.directory, 0o755)
        self.data = os.path.join(self.directory, "data")
        self.started = False
        return self

    def start(self):
        postgres.as_server("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast",
                           "-d", f"host={postgres.DIRECTORY} user=postgres "
                                 "application_name=standby")
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as out:
            out.write(f"unix_socket_directories = '{self.directory}'\n")
        postgres.control(self.data, self.directory, "start")
        self.started = True
        postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        postgres.sql("SELECT pg_reload_conf()")
        tap.wait_until("the standby to be synchronous", lambda: postgres.sql(
            "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), pause=0.05)

    def promote(self):
        postgres.control(self.data, self.directory, "promote")

    def __exit__(self, *_):
        if self.started:
            postgres.control(self.data, self.directory, "-m", "immediate", "stop")
        shutil.rmtree(self.directory)


def children_of(parent):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as stat:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) == parent:
                        found.append(int(name))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def kill_primary():
    """All of it at once, as if its machine had gone."""
    path = os.path.join(postgres.DATA, "postmaster.pid")
    with open(path, encoding="utf-8") as lines:
        postmaster = int(lines.readline())
    victims = [postmaster, *children_of(postmaster)]
    os.kill(postmaster, signal.SIGSTOP)  # it starts nothing new while the others go
    for victim in {*victims, *children_of(postmaster)}:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.unlink(path)  # with-server need not look for it


def acknowledged_reaches(directory, count):
    tap.wait_until(f"{count} acknowledged appends",
                   lambda: history.Histories().load(directory).acknowledged() >= count,
                   pause=0.2, seconds=300)


def a_failover_in_a_storm_loses_nothing_that_was_acknowledged():
    with Standby() as standby, tap.Directory("failover") as top:
        store = postgres.new_store("storm", postgres.DIRECTORY, standby.directory)
        standby.start()
        clients = [postgres.Client("storm_client", store, top, f"p{i}", "--away", "--threads", "2",
                                   "--streams", "40", "--seed", str(i + 1))
                   for i in range(PROCESSES)]
        workers = [postgres.Client("fence_client", store, top, "w0", "--targets", "6")]
        everyone = clients + workers
        for client in everyone:
            client.start()
        try:
            acknowledged_reaches(top, ACKNOWLEDGED_LEAST)
            kill_primary()
            before = history.Histories().load(top).acknowledged()
            standby.promote()
            acknowledged_reaches(top, before + ACKNOWLEDGED_LEAST)
            for client in everyone:
                if client.ended():
                    client.finish()
                    raise tap.Failed(f"{client.name} ended by itself")
        finally:
            for client in everyone:
                client.kill()
        for client in clients:
            client.start("--appends", "3")
        for client in workers:
            client.start("--seconds", "1")
        for client in everyone:
            client.finish()
        survivor = postgres.url("storm", standby.directory)
        summary = postgres.judge(survivor, top, 100)
        print(f"# {before} acknowledged before the failover")
        tap.check(summary["ended"] == 2 * PROCESSES, "a client did not come to its end")
        postgres.doctor(survivor)


if __name__ == "__main__":
    tap.run([a_failover_in_a_storm_loses_nothing_that_was_acknowledged])
