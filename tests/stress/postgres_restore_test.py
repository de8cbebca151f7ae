#!/usr/bin/env python3
"""postgres_restore_test.py dump|point - a store is put back to an earlier state under running workers: by pg_restore
into the same database, or by recovery to a point in time.

Two workers run all the time, one of them in the middle of an event that is lost. Every event of the log
as it is afterwards must be handled, and no position be beyond its end.
"""

import os
import shutil
import subprocess
import sys

import postgres
import postgres_failover_test as failover
import postgres_lost_log_test as lost_log
import tap

KEPT, LOST, NEW = 10, 40, 20


class Dump(failover.Standby):
    """Restored in place."""

    def take(self, database):
        self.dump = os.path.join(self.directory, "dump")
        postgres.as_server("pg_dump", "-h", postgres.DIRECTORY, "-U", "postgres", "-Fc", "-n",
                           "weir", "-f", self.dump, database)

    def restore(self, database):
        # A worker may be in the way of one that locks all tables: then nothing was restored.
        tap.wait_until("the dump to be restored", lambda: subprocess.run(
            [os.path.join(postgres.BIN, "pg_restore"), "-h", postgres.DIRECTORY, "-U", "postgres",
             "--clean", "--single-transaction", "-d", database, self.dump],
            stderr=subprocess.DEVNULL, check=False).returncode == 0, pause=0.1)
        return postgres.DIRECTORY


class Point(failover.Standby):
    """A base backup, and the archive of what followed; the server that it becomes is another one."""

    def take(self, _):
        self.archive = os.path.join(self.directory, "archive")
        postgres.sql("ALTER SYSTEM SET archive_command = "
                     f"'mkdir -p {self.archive} && cp %p {self.archive}/%f'")
        postgres.sql("SELECT pg_reload_conf()")
        postgres.as_server("pg_basebackup", "-D", self.data, "-X", "stream", "-c", "fast", "-d",
                           f"host={postgres.DIRECTORY} user=postgres")
        postgres.sql("SELECT pg_create_restore_point('here')")

    def restore(self, _):
        segment = postgres.sql("SELECT pg_walfile_name(pg_switch_wal())")[0]
        tap.wait_until("the log to be archived", lambda: postgres.sql(
            f"SELECT 1 FROM pg_stat_archiver WHERE last_archived_wal >= '{segment}'"), pause=0.05)
        failover.kill_primary()
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as out:
            out.write(f"unix_socket_directories = '{self.directory}'\narchive_mode = off\n"
                      f"restore_command = 'cp {self.archive}/%f %p'\n"
                      "recovery_target_name = 'here'\nrecovery_target_action = 'promote'\n")
        signal = os.path.join(self.data, "recovery.signal")
        open(signal, "w", encoding="utf-8").close()
        if os.geteuid() == 0:
            shutil.chown(signal, postgres.USER)
        self.started = True
        postgres.control(self.data, self.directory, "start")
        tap.wait_until("the recovery to end", lambda: postgres.sql(
            "SELECT 1 WHERE NOT pg_is_in_recovery()", directory=self.directory), pause=0.05)
        return self.directory


def restored(way):
    with {"dump": Dump, "point": Point}[way]() as backup, tap.Directory("restore") as top:
        database = f"restored_{way}"
        store = postgres.new_store(database, postgres.DIRECTORY, backup.directory)
        store += "&target_session_attrs=read-write"
        gate = os.path.join(top, "gate")
        open(gate, "w", encoding="utf-8").close()
        workers = []
        try:
            workers.append(lost_log.Work(store, top, "first"))
            workers.append(lost_log.Work(store, top, "second"))
            lost_log.append(store, 1, KEPT)
            tap.wait_until("the first events to be settled", lambda: postgres.sql(
                f"SELECT 1 FROM weir.subscriptions WHERE at = {KEPT}", database), pause=0.05)
            backup.take(database)
            os.unlink(gate)
            lost_log.append(store, "lost", LOST)
            tap.wait_until("a worker to begin a lost event", lambda: any(
                d["log"] == "lost" for w in workers for d in w.data()), pause=0.05)
            server = backup.restore(database)
            tap.check(postgres.sql("SELECT max(id) FROM weir.events", database, server)
                      == [str(KEPT)], "nothing was lost")
            lost_log.append(store, 2, NEW)
            open(gate, "w", encoding="utf-8").close()
            tap.wait_until("the new log to be handled", lambda: postgres.sql(
                "SELECT 1 FROM weir.subscriptions WHERE at >= (SELECT max(id) FROM weir.events)",
                database, server), pause=0.1)
            tap.check(postgres.sql("SELECT max(at) FROM weir.subscriptions", database, server)
                      == postgres.sql("SELECT max(id) FROM weir.events", database, server),
                      "a position is beyond the end of the log")
            # Also the one that held nothing, and did not route.
            tap.wait_until("both workers to say that the log is another one",
                           lambda: all(w.rewinds() > 0 for w in workers), pause=0.1)
            tap.check(all(w.rewinds() == 1 for w in workers), "it was said more than once")
        finally:
            for worker in workers:
                worker.end()
        handled = {d["n"] for w in workers for d in w.data() if d["log"] == 2}
        tap.check(handled == set(range(NEW)), f"of the new log only {sorted(handled)} were handled")
        postgres.doctor(postgres.url(database, server))


def what_is_restored_under_running_workers_is_handled_from_there():
    restored(sys.argv[1])


if __name__ == "__main__":
    tap.run([what_is_restored_under_running_workers_is_handled_from_there])
