#!/usr/bin/env python3
"""postgres_storm_test.py - eight processes on one PostgreSQL store, and everything that dies there.

The clients write down what they are about to do and what came of it (storm_client.c,
fence_client.c); history.py, which knows the contract and nothing of Weir, holds it against the log.
While they run, sessions of the server are terminated at random, clients are killed, and the server
is restarted in the way that loses everything it has not made durable. The seed is printed;
WEIR_SEED repeats the choices, WEIR_STORM_SECONDS makes it longer.
"""

import os
import random
import time

import history
import postgres
import tap

SEED = int(os.environ.get("WEIR_SEED", time.time_ns() % 1000000))
PROCESSES = 8
RACE_SECONDS = 5
STORM_SECONDS = int(os.environ.get("WEIR_STORM_SECONDS", "14"))
RESTART_SECONDS = 4.5  # from one to the next
RESTARTS_LEAST = 2
ACKNOWLEDGED_LEAST = 500
FENCES_LEAST = 100


def eight_processes_race_one_stream_with_exact_versions():
    with tap.Directory("race") as top:
        store = postgres.new_store("race")
        clients = [postgres.Client("storm_client", store, top, f"p{i}", "--race", "--seconds",
                                   str(RACE_SECONDS), "--seed", str(SEED + i))
                   for i in range(PROCESSES)]
        for client in clients:
            client.start()
        for client in clients:
            client.finish()
        summary = postgres.judge(store, top, 100)
        tap.check(summary["ended"] == PROCESSES, "a client did not come to its end")
        tap.check(summary["intended"] > summary["acknowledged"], "nobody ever lost a race")
        postgres.doctor(store)


def terminate_some(database):
    return len(postgres.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        f"'{database}' AND backend_type = 'client backend' ORDER BY random() LIMIT 2"))


def kills_of(clients):
    return sum(c.kills for c in clients)


def was_a_storm(directory, terminated, kills, restarts):
    """Enough has happened for the verdict to mean something, however slow the machine is."""
    so_far = history.Histories().load(directory)
    return (terminated > 5 and kills > 5 and restarts >= RESTARTS_LEAST
            and so_far.acknowledged() >= ACKNOWLEDGED_LEAST
            and len(so_far.fences) >= FENCES_LEAST)


def a_storm_of_kills_and_restarts_loses_and_repeats_nothing():
    rng = random.Random(SEED)
    terminated = 0
    with tap.Directory("storm") as top:
        store = postgres.new_store("storm")
        clients = [postgres.Client("storm_client", store, top, f"p{i}", "--away", "--threads", "2",
                                   "--streams", "80", "--seed", str(SEED + i))
                   for i in range(PROCESSES)]
        workers = [postgres.Client("fence_client", store, top, f"w{i}", "--targets", "6")
                   for i in range(2)]
        everyone = clients + workers
        for client in everyone:
            client.start()
        began = time.monotonic()
        restarts = 0
        restart_at = began + RESTART_SECONDS
        try:
            while time.monotonic() - began < STORM_SECONDS or not was_a_storm(
                    top, terminated, kills_of(everyone), restarts):
                # From the end of one to the next, and none when the time is over: a machine that
                # restarts slowly must get on between them.
                if time.monotonic() >= restart_at and (restarts < RESTARTS_LEAST or
                                                       time.monotonic() < began + STORM_SECONDS):
                    restarts += 1
                    postgres.control(postgres.DATA, postgres.DIRECTORY, "-m", "immediate",
                                     "restart")
                    restart_at = time.monotonic() + RESTART_SECONDS
                if rng.random() < 0.6:
                    terminated += terminate_some("storm")
                else:
                    victim = rng.choice(everyone)
                    victim.kill()
                    victim.start()
                for client in everyone:
                    if client.ended():
                        client.finish()  # says what happened
                        raise tap.Failed(f"{client.name} ended by itself")
                time.sleep(rng.random() * 0.3)
        finally:
            for client in everyone:
                client.kill()
        # A last life that ends by itself, so that every key in flight is tried again.
        for client in clients:
            client.start("--appends", "3")
        for client in workers:
            client.start("--seconds", "1")
        for client in everyone:
            client.finish()
        print(f"# seed {SEED}: {terminated} sessions terminated, "
              f"{kills_of(everyone) - len(everyone)} clients killed, "
              f"{restarts} restarts")
        summary = postgres.judge(store, top, ACKNOWLEDGED_LEAST)
        tap.check(summary["ended"] == 2 * PROCESSES, "a client did not come to its end")
        postgres.doctor(store)


if __name__ == "__main__":
    tap.run([
        eight_processes_race_one_stream_with_exact_versions,
        a_storm_of_kills_and_restarts_loses_and_repeats_nothing,
    ])
