"""postgres.py - the rows of PostgreSQL. See run.

They need a server with fsync on; run starts one with tests/postgres/with-server when the environment
names none (WEIR_TEST_POSTGRES). Every row works in a schema of its own and removes it.
"""

import os
import statistics
import subprocess
import time

TARGETS = (1000, 10000, 100000, 1000000)
# Column values of weir.targets for the four states in which leasing must cost the same.
STATES = {
    "all ready": "behind = true",
    "0.01 % ready": "behind = (id % 10000 = 1)",
    "all blocked": "behind = true, held = true, blocked = 1",
    "all deferred": "behind = true, due = 9000000000000000",
}


def url(schema=None):
    base = os.environ["WEIR_TEST_POSTGRES"]
    return base if schema is None else f"{base}&schema={schema}"


def sql(text, database=None):
    """Runs SQL with psql; what it prints."""
    done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", database or url()],
                          input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"psql: {done.stderr.strip()[:500]}")
    return done.stdout.strip()


def number(text):
    return int(sql(text))


def fresh_weir(bench):
    sql('DROP SCHEMA IF EXISTS bench CASCADE')
    subprocess.run([bench.weir, "init", "--store", url("bench")], check=True,
                   stdout=subprocess.DEVNULL)
    return url("bench")


def fresh_raw(bench):
    subprocess.run([bench.program("raw_postgres"), "init", "--url", url()], check=True,
                   stderr=subprocess.DEVNULL)
    return url()


def counted(work):
    """Runs a piece of work; its report, with the WAL and the statements it took."""
    before = sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements;"
                 " SELECT pg_current_wal_insert_lsn() FROM pg_stat_statements_reset()")
    report = work()
    after = sql(f"SELECT pg_current_wal_insert_lsn() - '{before}'::pg_lsn, coalesce(sum(calls), 0)"
                " FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'")
    report["wal_bytes"], report["statements"] = map(int, after.split("|"))
    return report


def checkpoint():
    """Both sides begin at the same distance from the next one."""
    sql("CHECKPOINT")


# ---- appending -----------------------------------------------------------------------------


def raw_append(bench, verb, *args):
    fresh_raw(bench)
    checkpoint()
    return counted(lambda: bench.run("raw_postgres", verb, "--url", url(), *args))


def weir_append(bench, verb, *args):
    store = fresh_weir(bench)
    checkpoint()
    return counted(lambda: bench.run("weir_store", verb, "--url", store, *args))


# Raw's connections of a group commit: the number with which it is fastest.
GROUP_WRITERS = 2


def append(bench, compare, limit):
    def row(name, raw, weir, target, reference):
        return compare(bench, f"append PostgreSQL, {name}", "events/s", raw, weir, target,
                       reference=reference)

    args = ["--count", 8000 // bench.scale]
    cost = row("1 caller", lambda: raw_append(bench, "append", *args),
               lambda: weir_append(bench, "append", *args), 0.8,
               "one INSERT to a transaction")["per_event"]
    wal = {side: cost[side]["wal_bytes"] for side in cost}
    limit(bench, "WAL per event, 1 caller, of a bare INSERT", "x",
          [round(wal["weir"] / wal["raw"], 2)], 1.2, wal_bytes=wal)
    for callers, count in ((16, 64000), (64, 128000)):
        args = ["--count", count // bench.scale, "--callers", callers]
        row(f"{callers} callers in one process",
            lambda a=args: raw_append(bench, "group", "--writers", GROUP_WRITERS, *a),
            lambda a=args: weir_append(bench, "append", *a), 0.9,
            f"the least group commit over {callers} threads, versions checked")
    args = ["--count", 48000 // bench.scale, "--callers", 16]
    row("16 processes, 1 caller each",
        lambda: raw_append(bench, "append", "--statement", "checked", *args),
        lambda: weir_append(bench, "many", *args), 0.8,
        "16 connections with shared lock and version check")
    one = 6000 // bench.scale
    row("one stream, 16 callers", lambda: weir_append(bench, "one", "--count", one),
        lambda: weir_append(bench, "one", "--count", 4 * one, "--callers", 16), 5,
        "one caller alone")


def read(bench, compare, _):
    count = 100000 // bench.scale
    fresh_raw(bench)
    bench.run("raw_postgres", "fill", "--url", url(), "--count", count)
    store = fresh_weir(bench)
    bench.run("weir_store", "fill", "--url", store, "--count", count)
    sql("VACUUM ANALYZE")
    compare(bench, f"read {count:,} events of a stream, PostgreSQL", "events/s",
            lambda: bench.run("raw_postgres", "read", "--url", url()),
            lambda: bench.run("weir_store", "read", "--url", store), 0.9, reference="one SELECT")
    compare(bench, f"read {count:,} events of the log, PostgreSQL", "events/s",
            lambda: bench.run("raw_postgres", "read", "--url", url()),
            lambda: bench.run("weir_store", "log", "--url", store), None, reference="one SELECT")


# ---- leasing -------------------------------------------------------------------------------


def fill_targets(count, state):
    """Targets of one reaction, each with a thousand events to go, in one of the states."""
    sql(f"""
        SET search_path = bench;
        TRUNCATE targets, subscriptions, reactions, definitions RESTART IDENTITY;
        INSERT INTO reactions (name, number, since, routed) VALUES ('bench', 1, 0, 0);
        INSERT INTO definitions (reaction, number, names, source, rule, rule_text)
            VALUES (1, 1, NULL, '*', 1, '');
        INSERT INTO lanes (lane) VALUES ('default') ON CONFLICT DO NOTHING;
        INSERT INTO targets (name, lane, priority, watermark, rank)
            SELECT 'target-' || lpad(i::text, 8, '0'), 'default', i % 5, i, i >> 5
              FROM generate_series(1, {count}) AS i;
        UPDATE targets SET {STATES[state]};
        INSERT INTO subscriptions (target, reaction, at, mark, priority, source, value)
            SELECT t.id, 1, t.watermark, t.watermark + CASE WHEN t.behind THEN 1000 ELSE 0 END,
                   t.priority, '*', t.name
              FROM targets AS t;
        VACUUM (FULL, ANALYZE) targets;
        VACUUM (FULL, ANALYZE) subscriptions;
    """)


def leasing(bench, _, limit):
    store = fresh_weir(bench)
    for state in STATES:
        points = []
        for count in TARGETS[:-1] if bench.scale > 1 else TARGETS:
            fill_targets(count, state)
            checkpoint()
            reports = [bench.run("lease", "--url", store, "--times", 300)
                       for _ in range(bench.rounds)]
            points.append({"targets": count, "given": reports[0]["given"],
                           "p50_us": statistics.median(r["p50_us"] for r in reports),
                           "p99_us": statistics.median(r["p99_us"] for r in reports)})
        limit(bench, f"leasing, {state}, largest against 1,000 targets", "x",
              [round(points[-1]["p50_us"] / points[0]["p50_us"], 2)], 1.5, sizes=points)
    sql("DROP SCHEMA bench CASCADE")


# ---- following and idling ------------------------------------------------------------------


def follow(bench, _, limit):
    count = 1000 // bench.scale
    reports = []
    for _ in range(bench.rounds):
        reports.append(bench.run("follow", "--weir", bench.weir, "--url", fresh_weir(bench),
                                 "--count", count, "--rate", 200))
    for name, most in (("p50", 3), ("p99", 20)):
        limit(bench, f"log --follow across processes, PostgreSQL, {name}", "ms",
              [r[f"{name}_us"] / 1000 for r in reports], most,
              after_commit_ms=[r[f"after_commit_{name}_us"] / 1000 for r in reports])


def idle(bench, _, limit):
    """Statements of a follower with nothing to do, over 30 seconds."""
    seconds = 30 if bench.scale == 1 else 5
    store = fresh_weir(bench)
    sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    follower = subprocess.Popen([bench.weir, "log", "--follow", "--store", store],
                                stdout=subprocess.DEVNULL)
    try:
        time.sleep(3)
        sql("SELECT pg_stat_statements_reset()")
        time.sleep(seconds)
        calls = number("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements"
                       " WHERE query NOT LIKE '%pg_stat_statements%'")
        open_transactions = number("SELECT count(*) FROM pg_stat_activity"
                                   " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
                                   " AND backend_type = 'client backend'")
    finally:
        follower.terminate()
        follower.wait()
    limit(bench, f"idle follower, statements per second over {seconds} s", "1/s",
          [round(calls / seconds, 2)], 2, transactions_open=open_transactions)


# ---- growth, and a transaction that is held open -------------------------------------------


def growth(bench, _compare, _limit):
    base = 10000 // bench.scale
    points = []
    store = fresh_weir(bench)
    there = 0
    for factor in (1, 10, 100):
        bench.run("weir_store", "append", "--url", store, "--count", base * factor - there,
                  "--callers", 50, "--from", there // 1000)
        there = base * factor
        appends, reads = [], []
        for _ in range(bench.rounds):
            report = bench.run("weir_store", "one", "--url", store, "--count", 4000, "--callers", 8)
            appends.append(report["wall_us"] / report["events"])
            report = bench.run("weir_store", "log", "--url", store)
            reads.append(report["wall_us"] / report["events"])
        points.append({"events": base * factor, "append_us": round(statistics.median(appends), 2),
                       "append_spread": [min(appends), max(appends)],
                       "read_us": round(statistics.median(reads), 3),
                       "read_spread": [min(reads), max(reads)]})
    bench.note({"row": "growth, PostgreSQL: cost per event at 1, 10 and 100 times the data",
                "points": points, "rounds": bench.rounds})


def held(bench, _, limit):
    """Appending to 100 hot streams, and leasing, while somebody keeps a snapshot (T11)."""
    seconds = 60 if bench.scale == 1 else 5
    store = fresh_weir(bench)
    fill_targets(1000, "all ready")

    def rounds_for(duration):
        appends, leases = [], []
        until = time.monotonic() + duration
        while time.monotonic() < until:
            report = bench.run("weir_store", "one", "--url", store, "--count", 2000, "--callers", 8)
            appends.append(report["wall_us"] / report["events"])
            leases.append(bench.run("lease", "--url", store, "--times", 100)["p50_us"])
        return appends, leases

    free = rounds_for(seconds / 4)
    holder = subprocess.Popen(["psql", "-X", "-q", url()], stdin=subprocess.PIPE, text=True,
                              stdout=subprocess.DEVNULL)
    holder.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM bench.streams;\n")
    holder.stdin.flush()
    try:
        time.sleep(1)
        under = rounds_for(seconds)
    finally:
        holder.stdin.close()
        holder.wait()
    for index, name in enumerate(("append to one stream", "leasing 10")):
        last = under[index][-max(1, len(under[index]) // 4):]
        limit(bench, f"a transaction held open for {seconds} s: {name}, cost at its end", "x",
              [round(statistics.median(last) / statistics.median(free[index]), 2)], None,
              free_us=[round(x, 1) for x in free[index]], held_us=[round(x, 1) for x in under[index]])
    sql("DROP SCHEMA bench CASCADE")


# ---- locks ---------------------------------------------------------------------------------


def lock(bench, compare, _):
    """Acquiring a free lock, connection included: at most 1.2 times as long as raw."""
    count = 600 // bench.scale
    sql("DROP SCHEMA IF EXISTS bench CASCADE")
    for name, store, target in (("lock PostgreSQL, free, new connection", None, 0.833),
                                ("the same in an initialised store, with a fence", fresh_weir, None)):
        if store is not None:
            store(bench)
        compare(bench, name, "locks/s",
                lambda: bench.run("lock", "raw", "--url", url(), "--count", count),
                lambda: bench.run("lock", "weir", "--url", url("bench"), "--count", count), target,
                reference="connect, SELECT pg_try_advisory_lock")
    sql("DROP SCHEMA IF EXISTS bench CASCADE")


ROWS = {"pg_append": append, "pg_read": read, "pg_leasing": leasing, "pg_follow": follow,
        "pg_idle": idle, "pg_growth": growth, "pg_held": held,
        "pg_lock": lock}
