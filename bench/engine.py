"""engine.py - the rows of the engine, on SQLite and on PostgreSQL. See run.

The references are raw_engine's: they lease, fetch and settle as durably, but their targets know
beforehand how far they have to go; Weir's time has the routing in it. Both sides count what they
handle and fail unless it is every event, once; then the store is asked whether anything is left.
"""

import contextlib
import json
import sqlite3
import statistics
import subprocess
import time

import postgres


class Lite:
    """Stores in SQLite files."""
    name = "SQLite"

    def __init__(self, bench):
        self.bench = bench
        self.path = None

    def fresh(self):
        self.path = self.bench.fresh("weir")
        return "sqlite:" + self.path

    def fresh_raw(self):
        return self.bench.fresh("raw")

    def analyze(self):
        """Nobody analyzes the store of an application."""

    def ask(self, text):
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            return ["|".join(map(str, row)) for row in db.execute(text.replace("$", "weir_"))]


class Pg:
    """Stores in a schema of the server's."""
    name = "PostgreSQL"

    def __init__(self, bench):
        self.bench = bench

    def fresh(self):
        return postgres.fresh_weir(self.bench)

    def fresh_raw(self):
        return postgres.url()

    def analyze(self):
        postgres.sql("ANALYZE")
        postgres.checkpoint()

    def ask(self, text):
        return postgres.sql(text.replace("$", "bench.")).splitlines()


def stores(bench):
    return Lite(bench), Pg(bench)


def nothing_left(store, targets):
    """Fails unless there are that many targets, all of them done and free."""
    rows = store.ask("SELECT count(*) FROM $targets WHERE name NOT LIKE 'warm%'")
    left = store.ask("SELECT count(*) FROM $subscriptions WHERE at < mark")
    held = store.ask("SELECT count(*) FROM $targets WHERE holder IS NOT NULL OR error <> ''")
    if (int(rows[0]), int(left[0]), int(held[0])) != (targets, 0, 0):
        raise RuntimeError(f"{rows[0]} targets instead of {targets}, {left[0]} of them behind, "
                           f"{held[0]} held or failed")


def warm(bench, store, *args):
    """Runs drain; tells it to go on when the store was analyzed."""
    command = [bench.program("drain"), *map(str, args)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as running:
        if running.stdout.readline() == "ready\n":
            store.analyze()
            running.stdin.write("\n")
            running.stdin.flush()
        out = running.stdout.read()
    if running.returncode != 0:
        raise RuntimeError(f"{command[:2]} failed")
    return json.loads(out)


def lane(slots, batch):
    return ["--threads", slots, "--targets-limit", slots, "--events-limit", batch]


# ---- draining ------------------------------------------------------------------------------

# Name, slots, events to a batch, streams, template, least of raw.
DRAINS = (
    ("one target, batches of 10", 1, 10, 1, "only", 0.75),
    ("one target, batches of 1,000", 1, 1000, 1, "only", 0.75),
    ("100 {stream} targets, 10 slots x 10", 10, 10, 100, "{stream}", 0.75),
    ("100 {stream} targets, 100 slots x 1,000", 100, 1000, 100, "{stream}", 0.75),
    ("100 {data.x} targets, 10 slots x 10", 10, 10, 100, "{data.customer}", 0.5),
    ("100 {data.x} targets, 100 slots x 1,000", 100, 1000, 100, "{data.customer}", 0.5),
)


def raw_drain(bench, store, count, slots, batch, streams, each):
    url = store.fresh_raw()
    subprocess.run([bench.program("raw_engine"), "fill", "--url", url, "--count", str(count),
                    "--streams", str(streams), "--targets", "1" if streams == 1 else "0"],
                   check=True)
    store.analyze()
    return bench.run("raw_engine", "drain", "--url", url, "--count", count, "--slots", slots,
                     "--batch", batch, "--each", each)


def weir_drain(bench, store, count, slots, batch, streams, to):
    report = warm(bench, store, "drain", "--url", store.fresh(), "--count", count, "--streams",
                  streams, "--to", to, *lane(slots, batch))
    nothing_left(store, streams)
    return report


def drain(bench, compare, _):
    count = 5000 // bench.scale
    for store in stores(bench):
        for name, slots, batch, streams, to, target in DRAINS:
            for each in (0, 1) if slots > 1 else (0,):
                compare(bench, f"drain {store.name}, {name}{', each' if each else ''}", "events/s",
                        lambda a=(count, slots, batch, streams, each): raw_drain(
                            bench, store, *a),
                        lambda a=(count, slots, batch, streams, to): weir_drain(bench, store, *a),
                        None if each else target,
                        reference="a settle for each target" if each else "one settle per round")


def fill_and_drain(bench, url, count, streams, *lane_args):
    """Events that are there before; the time, and all else, has the routing and the handling."""
    subprocess.run([bench.program("drain"), "fill", "--url", url, "--count", str(count),
                    "--streams", str(streams)], check=True)
    return bench.run("drain", "drain", "--filled", 1, "--url", url, "--count", count, "--streams",
                     streams, *lane_args)


def growth(bench, _, __):
    """What an event costs that is handled, in logs of 1, 10 and 100 times the size."""
    base = 5000 // bench.scale
    for store in stores(bench):
        points = []
        for factor in (1, 10, 100):
            took = []
            for _ in range(bench.rounds if factor < 100 else 1):
                report = fill_and_drain(bench, store.fresh(), base * factor, 100, *lane(10, 100))
                nothing_left(store, 100)
                took.append(report["wall_us"] / report["events"])
            points.append({"events": base * factor, "rounds": len(took),
                           "handle_us": round(statistics.median(took), 2),
                           "handle_spread": [round(min(took), 2), round(max(took), 2)]})
        bench.note({"row": f"growth, {store.name}: cost per handled event at 1, 10 and 100 times "
                           "the events", "points": points})


def wal(bench, _, limit):
    """Of routing, leasing and settling; appending is not in it."""
    count, store, values = 5000 // bench.scale, Pg(bench), {}
    for name, slots, batch in (("10 slots x 10", 10, 10), ("100 slots x 1,000", 100, 1000)):
        values[name] = []
        for _ in range(bench.rounds):
            url = store.fresh()
            subprocess.run([bench.program("drain"), "fill", "--url", url, "--count", str(count),
                            "--streams", "100"], check=True)
            store.analyze()
            report = postgres.counted(lambda a=(slots, batch), u=url: bench.run(
                "drain", "drain", "--filled", 1, "--url", u, "--count", count, "--streams", 100,
                *lane(*a)))
            values[name].append(round(report["wal_bytes"] / count))
        limit(bench, f"WAL per handled event, 100 {{stream}} targets, {name}", "bytes",
              values[name], None)


def held(bench, _, __):
    """Drains of 10,000 targets while somebody keeps a snapshot: the last ones against those before
    it. Nothing that was leased and settled since can be cleaned up (T11)."""
    seconds, targets = (300, 10000) if bench.scale == 1 else (10, 1000)
    store = Pg(bench)
    url = store.fresh()

    def rates(duration, least):
        taken, until = [], time.monotonic() + duration
        while len(taken) < least or time.monotonic() < until:
            report = warm(bench, store, "drain", "--url", url, "--count", 2 * targets, "--streams",
                          targets, *lane(10, 10))
            taken.append(round(report["events"] * 1e6 / report["wall_us"]))
        return taken

    free = rates(0, 3)
    with subprocess.Popen(["psql", "-X", "-q", postgres.url()], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.DEVNULL) as holder:
        holder.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ;"
                           " SELECT count(*) FROM bench.streams;\n")
        holder.stdin.flush()
        under = rates(seconds, 3)
        holder.stdin.close()
    nothing_left(store, targets)
    last = under[-max(1, len(under) // 4):]
    before = statistics.median(free)
    ratio = statistics.median(last) / before
    bench.note({"row": f"drain of {targets:,} targets, a transaction held for {seconds} s",
                "unit": "events/s", "raw": before, "weir": statistics.median(last),
                "reference": "itself, before the transaction", "ratio": round(ratio, 3),
                "ratio_spread": [min(last) / before, max(last) / before], "target": 0.8,
                "met": ratio >= 0.8, "free": free, "held": under})


# ---- priority ------------------------------------------------------------------------------


def state_of(store):
    """What must not depend on who was preferred."""
    return store.ask("SELECT t.name, t.watermark, s.at, s.mark, s.retries, t.holder FROM $targets t"
                     " JOIN $subscriptions s ON s.target = t.id ORDER BY t.name")


def raw_priority(bench, store, count, targets, preferred, _):
    url = store.fresh_raw()
    subprocess.run([bench.program("raw_engine"), "fill", "--url", url, "--count", str(count),
                    "--streams", "1", "--targets", str(targets), "--preferred", str(preferred)],
                   check=True)
    store.analyze()
    return bench.run("raw_engine", "drain", "--url", url, "--count", count * targets, "--slots", 5,
                     "--batch", 20, "--watch", targets // 2 + 1)


def weir_priority(bench, store, count, targets, preferred, which):
    report = warm(bench, store, "priority", "--url", store.fresh(), "--count", count, "--targets",
                  targets, "--preferred", preferred, "--which", which, *lane(5, 20))
    nothing_left(store, targets)
    report["state"] = state_of(store)
    return report


def priority(bench, _, limit):
    count, targets = 500 // bench.scale, 50
    for store in stores(bench):
        raws, weirs, totals, states, done = [], [], [], [], []
        times = {"raw": [], "weir": []}
        for _ in range(bench.rounds):
            for side, run, factors in (("raw", raw_priority, raws), ("weir", weir_priority, weirs)):
                without = run(bench, store, count, targets, 0, 0)
                # Raw's targets all end in the last round; of Weir's, the last one is preferred.
                ends = without.get("done_us", [without["preferred_us"]])
                preferred = run(bench, store, count, targets, 10, ends.index(max(ends)))
                factors.append(max(ends) / preferred["preferred_us"])
                times[side].append([max(ends), preferred["preferred_us"],
                                    without["wall_us"], preferred["wall_us"]])
            totals.append(preferred["wall_us"] / without["wall_us"])
            done.append(sorted(without["done_us"]))
            states.append(without["state"] == preferred["state"])
        ratios = [w / r for r, w in zip(raws, weirs)]
        middle = statistics.median(ratios)
        bench.note({
            "row": f"priority {store.name}, {targets} targets x {count}, 5 slots x 20",
            "unit": "times sooner", "raw": round(statistics.median(raws), 2),
            "weir": round(statistics.median(weirs), 2), "ratio": round(middle, 3),
            "ratio_spread": [min(ratios), max(ratios)], "target": 0.9, "sooner_at_least": 7,
            "met": middle >= 0.9 and statistics.median(weirs) >= 7 and all(states),
            "state_identical": all(states), "times_us": times,
            "without_first_middle_last_us": [[d[0], d[len(d) // 2], d[-1]] for d in done],
            "rounds": bench.rounds})
        limit(bench, f"priority {store.name}, time of all, of that without", "x", totals, 1.05)


# ---- from commit to handler ----------------------------------------------------------------


def raw_latency(bench, store, count, rate):
    url = store.fresh_raw()
    subprocess.run([bench.program("raw_engine"), "fill", "--url", url, "--count", "0",
                    "--targets", "1"], check=True)
    return bench.run("raw_engine", "latency", "--url", url, "--count", count, "--rate", rate)


def weir_latency(bench, store, *args):
    return bench.run("drain", "latency", "--url", store.fresh(), *args)


def latency(bench, _, limit):
    count, rate = 1000 // bench.scale, 100
    for store in stores(bench):
        raws, weirs = [], []
        for _ in range(bench.rounds):
            raws.append(raw_latency(bench, store, count, rate))
            weirs.append(weir_latency(bench, store, "--count", count, "--rate", rate))
        for name, most in (("p50", 1.3), ("p99", None)):
            key = f"whole_{name}_us"
            limit(bench, f"commit to handler {store.name}, from the append's call, {name}, of raw", "x",
                  [round(w[key] / max(r[key], 1), 2) for r, w in zip(raws, weirs)], most,
                  raw_us=[r[key] for r in raws], weir_us=[w[key] for w in weirs],
                  raw_after_append_us=[r[name + "_us"] for r in raws],
                  weir_after_append_us=[w[name + "_us"] for w in weirs])


def load(bench, _, limit):
    count, rate = 10000 // bench.scale, 1000
    for store in stores(bench):
        reports = []
        for _ in range(bench.rounds):
            reports.append(weir_latency(bench, store, "--count", count, "--rate", rate, "--slots",
                                        16, "--callers", 4, "--streams", 100))
            nothing_left(store, 100)
        limit(bench, f"commit to handler {store.name}, {rate:,} appends/s, p99", "ms",
              [r["p99_us"] / 1000 for r in reports], 10,
              p50_ms=[r["p50_us"] / 1000 for r in reports],
              largest_ms=[r["max_us"] / 1000 for r in reports],
              achieved=[round(r["events"] * 1e6 / r["offered_us"]) for r in reports])


def lanes(bench, _, limit):
    """A fast lane, alone and beside a slow one that has more to do than it can."""
    count, rate = 1000 // bench.scale, 100
    slow = 200 * (count // rate + 30)
    for store in stores(bench):
        alone, beside = [], []
        for _ in range(bench.rounds):
            alone.append(weir_latency(bench, store, "--count", count, "--rate", rate))
            beside.append(weir_latency(bench, store, "--count", count, "--rate", rate, "--slow",
                                       slow))
        limit(bench, f"fast lane beside a slow one, {store.name}, p99, of alone", "x",
              [round(b["p99_us"] / max(a["p99_us"], 1), 2) for a, b in zip(alone, beside)], 2,
              alone_us=[a["p99_us"] for a in alone], beside_us=[b["p99_us"] for b in beside],
              slow_handled=[b["slow_handled"] for b in beside])


# ---- memory, and doing nothing -------------------------------------------------------------


@contextlib.contextmanager
def idle_worker(bench, store, reports):
    """A worker with nothing to do; its report is added when it has ended."""
    command = [bench.program("drain"), "idle", "--url", store.fresh()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as running:
        if running.stdout.readline() != "ready\n":
            raise RuntimeError("the idle worker did not start")
        yield
        reports.append(json.loads(running.communicate("\n")[0]))


def memory(bench, _, limit):
    million = 1000000 // bench.scale
    for store in stores(bench):
        idle_reports = []
        with idle_worker(bench, store, idle_reports):
            time.sleep(2)
        limit(bench, f"resident memory {store.name}, idle worker", "kB",
              [r["memory_kb"] for r in idle_reports], 12 * 1024)
        url = store.fresh()
        fill = [bench.program("drain"), "fill", "--url", url, "--count"]
        subprocess.run([*fill, str(million), "--streams", str(million)], check=True)
        subprocess.run([*fill, "1", "--name", "Last"], check=True)
        report = bench.run("drain", "targets", "--url", url, "--count", million)
        there = int(store.ask("SELECT count(*) FROM $targets")[0])
        if there != million + 1:
            raise RuntimeError(f"{there} targets instead of {million + 1}")
        limit(bench, f"resident memory {store.name}, {million:,} targets", "kB",
              [report["memory_kb"]], 64 * 1024, handled=report["events"],
              routed_per_second=round(million * 1e6 / report["wall_us"]))
        report = fill_and_drain(bench, store.fresh(), million, 1000, *lane(4, 1000))
        nothing_left(store, 1000)
        limit(bench, f"resident memory {store.name}, draining {million:,} events", "kB",
              [report["memory_kb"]], 64 * 1024,
              events_per_second=round(million * 1e6 / report["wall_us"]))


def idle(bench, _, limit):
    """Statements of a worker with nothing to do. It takes a while until it asks least."""
    settling, seconds = (15, 30) if bench.scale == 1 else (3, 5)
    store = Pg(bench)
    postgres.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    with idle_worker(bench, store, []):
        time.sleep(settling)
        postgres.sql("SELECT pg_stat_statements_reset()")
        held = 0
        for _ in range(seconds):
            time.sleep(1)
            held += postgres.number(
                "SELECT count(*) FROM pg_stat_activity WHERE xact_start < now() - interval '0.5 s'"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
        texts = postgres.sql("SELECT calls, left(regexp_replace(query, E'\\\\s+', ' ', 'g'), 60)"
                             " FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%'"
                             " ORDER BY calls DESC").splitlines()
    calls = sum(int(text.split("|")[0]) for text in texts)
    limit(bench, f"idle worker, statements per second over {seconds} s", "1/s",
          [round(calls / seconds, 2)], 2, transactions_open=held, statements=texts)


ROWS = {"engine_drain": drain, "engine_growth": growth, "engine_wal": wal, "engine_held": held,
        "engine_priority": priority, "engine_latency": latency,
        "engine_load": load, "engine_lanes": lanes, "engine_memory": memory, "engine_idle": idle}
