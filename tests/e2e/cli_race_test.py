#!/usr/bin/env python3
"""cli_race_test.py - weir race: every line that it prints against the table, the recorded side
effects and, on PostgreSQL, a witness in the database that has seen every write.

    cli_race_test.py [postgres]    in memory and on SQLite files, or in $WEIR_TEST_POSTGRES

Nothing is expected of the machine's speed: whoever pauses does so until all workers have looked.
"""

import collections
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "stress"))
import tap  # pylint: disable=wrong-import-position

POSTGRES = sys.argv[1:2] == ["postgres"]
SERVER = os.environ.get("WEIR_TEST_POSTGRES")
# What a worker says, in this order.
TURNS = {
    "skip": "asks gets (sends )*(writes )*",
    "wait": "asks gets (sends )*(writes )*commits ",
    "autocommit": "asks sees commits (sends )*(writes )*",
    "none": "asks sees (sends )*(writes )*",
}
SHAPES = [(2, 3, 1), (3, 2, 1), (2, 5, 2), (2, 1, 4), (2, 0, 1), (1, 3, 2), (6, 3, 1)]
NAME = re.compile(r"weir_race_[0-9a-f]{16}")


# ---- the database, seen from outside -----------------------------------------------------------

def psql(sql, url=SERVER):
    done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-F", "\t", url, "-c", sql],
                          stdout=subprocess.PIPE, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


class Place:
    """Where races are run, and how to look at what they leave there: a database of its own."""

    def __init__(self, kind):
        self.kind = kind
        self.directory = tap.Directory("race")
        self.path = os.path.join(self.directory.path, "shop.db")
        self.effects = os.path.join(self.directory.path, "effects.jsonl")
        self.database = f"race_{os.path.basename(self.directory.path).split('.')[1].lower()}"
        self.url = {"memory": "memory:", "sqlite": f"sqlite:{self.path}",
                    "postgres": (SERVER or "").replace(":///postgres?", f":///{self.database}?")}[kind]

    def __enter__(self):
        if self.kind == "sqlite":
            sqlite3.connect(self.path).execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
        elif self.kind == "postgres":
            psql(f'CREATE DATABASE "{self.database}"')
        return self

    def __exit__(self, *_):
        if self.kind == "postgres":
            psql(f'DROP DATABASE "{self.database}" WITH (FORCE)')
        self.directory.__exit__()

    def psql(self, sql):
        return psql(sql, self.url)

    def tables(self):
        if self.kind == "sqlite":
            with sqlite3.connect(self.path) as db:
                names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema")]
        elif self.kind == "postgres":
            names = [row[0] for row in self.psql("SELECT relname FROM pg_class WHERE relkind = 'r'")]
        else:
            names = []
        return [name for name in names if name.startswith("weir_race")]

    def rows(self, table):
        """[id, status, claimed_by, claimed_at] of each, as texts; None: not to be looked at."""
        sql = f"SELECT id, status, claimed_by, claimed_at FROM {table} ORDER BY id"
        if self.kind == "sqlite":
            with sqlite3.connect(self.path) as db:
                return [[str(row[0]), row[1], row[2] or "", row[3] or ""]
                        for row in db.execute(sql)]
        if self.kind == "postgres":
            return self.psql(sql.replace("claimed_at ", "to_char(claimed_at AT TIME ZONE 'UTC', "
                                         "'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') ", 1))
        return None

    def sent(self):
        """(row, worker) of each side effect."""
        with open(self.effects, encoding="utf-8") as file:
            return [(e["row"], e["worker"]) for e in map(json.loads, file)]

    def drop(self, table):
        tap.check(NAME.fullmatch(table), f"a table's name: {table}")
        done = tap.weir("race", "--drop", table, "--store", self.url)
        tap.check(done.returncode == 0, f"--drop: {done.stderr}")


def race(place, *args):
    done = tap.weir("race", *args, "--json", "--store", place.url, "--effects", place.effects)
    tap.check(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- every line ------------------------------------------------------------------------------

def parted(lines):
    """The line of the table, steps, rows and the result, in this order and no other."""
    kinds = "".join(line["kind"] + " " for line in lines)
    tap.check(re.fullmatch("table (step )*(row )*result ", kinds), f"lines: {kinds}")
    steps = [line for line in lines if line["kind"] == "step"]
    return lines[0], steps, [line for line in lines if line["kind"] == "row"], lines[-1]


def check_steps(mode, shape, pause_us, steps):
    workers, rows, limit = shape
    turns = collections.defaultdict(list)
    for step in steps:
        turns[step["worker"]].append(step)
    tap.check(sorted(turns) == sorted(f"worker-{i + 1}" for i in range(workers)),
              f"workers: {sorted(turns)}")
    times = [step["elapsed_us"] for step in steps]
    tap.check(times == sorted(times) and times[0] >= 0, f"times: {times}")
    given = {}
    for worker, turn in turns.items():
        words = "".join(step["what"] + " " for step in turn)
        tap.check(re.fullmatch(TURNS[mode], words), f"{worker}: {words}")
        answer = turn[1]
        given[worker] = answer["rows"]
        tap.check(len(answer["rows"]) <= limit, f"{worker} asked for {limit}: {answer}")
        tap.check(answer["rows"] == sorted(set(answer["rows"])), f"{worker}: order of {answer}")
        tap.check(all(1 <= row <= rows for row in answer["rows"]), f"{worker}: {answer}")
        for what in ("sends", "writes"):
            said = [step["rows"] for step in turn if step["what"] == what]
            tap.check(said == [[row] for row in answer["rows"]], f"{worker} {what}: {said}")
        for step in turn:
            tap.check(step["what"] != "writes" or step["status"] == "done", f"{step}")
            tap.check(step["what"] != "sends"
                      or step["elapsed_us"] >= answer["elapsed_us"] + pause_us, f"no pause: {turn}")
    return given


def check_mode(mode, shape, pause_us, steps, given):
    """What this mode is there to show."""
    workers, rows, limit = shape
    taken = [row for each in given.values() for row in each]
    if mode in ("skip", "wait"):
        tap.check(len(taken) == len(set(taken)), f"a row twice: {given}")
        tap.check(sorted(taken) == list(range(1, min(rows, workers * limit) + 1)),
                  f"rows that were free were not taken: {given}")
    else:
        first = list(range(1, min(rows, limit) + 1))
        tap.check(all(each == first for each in given.values()), f"not all saw {first}: {given}")
    answers = [step for step in steps if step["what"] in ("gets", "sees")]
    if mode == "wait":
        # Who wants what another holds has it only when that one has worked and committed; SQLite
        # has one holder at a time, PostgreSQL too while all of them want the first row.
        for i in range(1, len(answers)):
            if answers[i - 1]["rows"] and limit == 1:
                tap.check(answers[i]["elapsed_us"] >= answers[i - 1]["elapsed_us"] + pause_us
                          and answers[i]["took_us"] > 0, f"did not wait: {answers}")
    else:
        last = max(step["elapsed_us"] for step in answers)
        tap.check(all(step["elapsed_us"] >= last for step in steps if step["what"] == "sends"),
                  f"one worked before all had looked: {steps}")


def check_end(place, mode, steps, rows, result):
    """The final table, the side effects and the last line."""
    sent = place.sent()
    said = [(step["rows"][0], step["worker"]) for step in steps if step["what"] == "sends"]
    tap.check(sorted(sent) == sorted(said), f"sent {sent}, said {said}")
    counts = collections.Counter(row for row, _ in sent)
    tap.check(result["side_effects"] == len(sent), f"{result}, sent {sent}")
    tap.check(result["doubled"] == len(sent) - len(counts), f"{result}, sent {sent}")
    writers = collections.defaultdict(set)
    for step in steps:
        if step["what"] == "writes":
            writers[step["rows"][0]].add(step["worker"])
    for row in rows:
        tap.check(row["side_effects"] == counts[row["row"]], f"{row}, sent {sent}")
        if writers[row["row"]]:
            tap.check(row["status"] == "done" and row["claimed_by"] in writers[row["row"]],
                      f"{row}, written by {writers[row['row']]}")
            tap.check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["claimed_at"]),
                      f"{row}")
        else:
            tap.check((row["status"], row["claimed_by"]) == ("pending", None), f"{row}, {mode}")


def check_race(place, mode, shape, pause_us):
    workers, rows, limit = shape
    began = time.time()
    lines = race(place, "--mode", mode, "--workers", str(workers), "--rows", str(rows), "--limit",
                 str(limit), "--pause", f"{pause_us // 1000}ms", "--keep")
    ended = time.time()
    table, steps, last_rows, result = parted(lines)
    name = table["table"]
    tap.check(NAME.fullmatch(name), f"{table}")
    tap.check((table["mode"], table["workers"], table["rows"], table["limit"], table["pause_us"])
              == (mode, workers, rows, limit, pause_us), f"{table}")
    given = check_steps(mode, shape, pause_us, steps)
    check_mode(mode, shape, pause_us, steps, given)
    check_end(place, mode, steps, last_rows, result)
    tap.check(steps[-1]["elapsed_us"] <= (ended - began) * 1e6, f"{steps[-1]} after the end")
    there = place.rows(name)
    if there is not None:
        shown = [[str(r["row"]), r["status"], r["claimed_by"] or "", r["claimed_at"] or ""]
                 for r in last_rows]
        tap.check(shown == there, f"printed {shown}, the table has {there}")
        place.drop(name)
    tap.check(place.tables() == [], f"left: {place.tables()}")
    os.remove(place.effects)
    return steps, result


def all_shapes(kind, mode):
    with Place(kind) as place:
        for shape in SHAPES:
            check_race(place, mode, shape, 20000)


def mode_test(kind, mode):
    def test():
        all_shapes(kind, mode)
    test.__name__ = f"every_line_is_true_{kind}_{mode}"
    return test


# ---- a witness in the database -----------------------------------------------------------------

WITNESS = """
CREATE TABLE seen (number bigserial, row_id integer, status text, claimed_by text);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen (row_id, status, claimed_by) VALUES (NEW.id, NEW.status, NEW.claimed_by);
    RETURN NEW;
END $$;
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE made record;
BEGIN
    FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
        IF made.object_identity LIKE '%weir\\_race\\_%' THEN
            EXECUTE format('CREATE TRIGGER see AFTER UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION see()',
                           made.object_identity);
        END IF;
    END LOOP;
END $$;
CREATE EVENT TRIGGER watch ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION watch();
"""


def a_witness_in_the_database_saw_the_same_writes():
    """A trigger has written down every UPDATE: who, which row, what it became."""
    with Place("postgres") as place:
        place.psql(WITNESS)
        for mode in TURNS:
            place.psql("TRUNCATE seen")
            steps, _ = check_race(place, mode, (3, 4, 1), 20000)
            seen = [tuple(r) for r in place.psql("SELECT row_id, status, claimed_by FROM seen")]
            said = [(str(row), "done", step["worker"]) for step in steps for row in step["rows"]
                    if step["what"] == "writes"]
            if mode == "skip": # the claim writes too
                said += [(str(row), "claimed", step["worker"]) for step in steps
                         for row in step["rows"] if step["what"] == "gets"]
            tap.check(sorted(seen) == sorted(said), f"{mode}: the database saw {seen}, workers "
                      f"said {said}")


# ---- what a terminal shows ---------------------------------------------------------------------

TEXT_STEP = re.compile(r" +(\d+\.\d{3}) s  (worker-\d+) +(asks for|gets|sees|sends the email of|"
                       r"writes|commits)(?: (?:rows? )?([\d, ]+?)(?: rows?)?)?(: done)?"
                       r"(, after (\d+\.\d{3}) s)?")


def text_says_the_same(kind):
    with Place(kind) as place:
        for mode, doubled in (("skip", 0), ("wait", 0), ("autocommit", 1), ("none", 1)):
            done = tap.weir("race", "--mode", mode, "--pause", "60ms", "--text", "--store",
                            place.url, "--effects", place.effects)
            tap.check(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
            lines = done.stdout.splitlines()
            tap.check(re.match(rf"table {NAME.pattern} in .*: 3 rows, 2 workers, mode {mode}, "
                               r"pause 0\.060 s$", lines[0]), lines[0])
            verdict = ("2 emails were sent, 1 too many: a customer got the same email twice."
                       if doubled else "2 emails were sent, no customer got two.")
            tap.check(lines[-1] == verdict, lines[-1])
            steps = lines[2:lines.index("", 2)]
            found = [TEXT_STEP.fullmatch(step) for step in steps]
            tap.check(all(found), f"not a step: {steps}")
            sends = sorted((int(m[4]), m[2]) for m in found if m[3].startswith("sends"))
            tap.check(sends == sorted(place.sent()), f"{sends}, sent {place.sent()}")
            waits = [m for m in found if m[3] in ("gets", "sees") and m[6]]
            tap.check(mode != "wait" or len(waits) == 1, f"who waits: {steps}")
            table = [line.split() for line in lines[lines.index("", 2) + 1:-2]]
            tap.check(table[0] == ["ROW", "STATUS", "CLAIMED", "BY", "EMAILS"], f"{table}")
            counts = collections.Counter(row for row, _ in place.sent())
            tap.check([(int(r[0]), int(r[3])) for r in table[1:]]
                      == [(i, counts[i]) for i in (1, 2, 3)], f"{table}, {counts}")
            os.remove(place.effects)
        tap.check(place.tables() == [], f"left: {place.tables()}")


# ---- ends --------------------------------------------------------------------------------------

class Running:
    """A race with a pause that nobody waits for."""

    def __init__(self, place, *args, pause="30m", before=()):
        self.process = subprocess.Popen(
            [*before, tap.WEIR, "race", "--pause", pause, "--json", "--store", place.url, *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def read_until(self, what, count=1):
        """Lines up to the count-th step of that name."""
        lines = []
        while sum(line.get("what") == what for line in lines) < count:
            text = self.process.stdout.readline()
            tap.check(text != "", f"it ended before {what}: {lines}")
            lines.append(json.loads(text))
        return lines

    def end(self):
        out, err = self.process.communicate(timeout=tap.WAIT_SECONDS)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()], err


def a_signal_ends_it_and_leaves_nothing(kind):
    with Place(kind) as place:
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for mode in TURNS:
                answer = "gets" if mode in ("skip", "wait") else "sees"
                running = Running(place, "--mode", mode, "--effects", place.effects)
                lines = running.read_until(answer, 1 if mode == "wait" else 2)
                if kind != "memory":
                    tap.check(place.tables() == [lines[0]["table"]], f"{place.tables()}")
                running.process.send_signal(number)
                code, rest, err = running.end()
                tap.check(code == status, f"{mode}: exit status {code}: {err}")
                tap.check(not any(line["kind"] in ("row", "result") or line.get("what") == "sends"
                                  for line in rest), f"{mode}: {rest}")
                tap.check(place.sent() == [], f"{mode}: {place.sent()}")
                tap.check(place.tables() == [], f"{mode}: left {place.tables()}")


def a_reader_who_goes_away_ends_it(kind):
    with Place(kind) as place:
        running = Running(place)
        running.read_until("gets", 2)
        running.process.stdout.close()
        tap.check(running.process.wait(timeout=tap.WAIT_SECONDS) == 0, "exit status")
        running.process.stderr.close()
        tap.check(place.tables() == [], f"left: {place.tables()}")


def what_a_kill_leaves_is_named_and_removed(kind):
    with Place(kind) as place:
        running = Running(place, "--mode", "wait")
        table = running.read_until("gets")[0]["table"]
        running.process.kill()
        running.end()
        tap.check(place.tables() == [table], f"{place.tables()}")
        done = tap.weir("race", "--pause", "1ms", "--text", "--store", place.url)
        tap.check(done.returncode == 0 and f"weir race --drop {table} removes it" in done.stderr,
                  f"{done.returncode}: {done.stderr}")
        tap.check(place.tables() == [table], f"{place.tables()}")
        place.drop(table)
        tap.check(place.tables() == [], f"{place.tables()}")
        again = tap.weir("race", "--drop", table, "--store", place.url)
        tap.check(again.returncode == 3, f"{again.returncode}: {again.stderr}")


def nothing_else_is_dropped():
    with Place("sqlite") as place:
        for name in ("customers", "weir_race_", "weir_race_0123456789abcdeF",
                     "weir_race_0123456789abcdef0", "weir_race_0123456789abcde;", "main.customers"):
            done = tap.weir("race", "--drop", name, "--store", place.url)
            tap.check(done.returncode == 2, f"{name}: {done.returncode}: {done.stderr}")
        with sqlite3.connect(place.path) as db:
            tap.check(db.execute("SELECT count(*) FROM customers").fetchone() == (0,), "customers")


def two_races_in_one_database_do_not_meet(kind):
    with Place(kind) as place:
        running = Running(place, "--effects", place.effects)
        table = running.read_until("gets", 2)[0]["table"]
        place.effects += "-2"
        done = tap.weir("race", "--pause", "1ms", "--json", "--store", place.url, "--effects",
                        place.effects)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        tap.check(lines[-1] == {"kind": "result", "side_effects": 2, "doubled": 0}, f"{lines}")
        tap.check(place.tables() == [table], f"{place.tables()}")
        running.process.send_signal(signal.SIGINT)
        tap.check(running.end()[0] == 130 and place.tables() == [], f"{place.tables()}")


def a_worker_that_loses_its_connection_says_so():
    """A lock dies with its connection, and the worker does not notice while it works: both send the
    email. That is what happens, so that is what is printed; the exit status is not 0."""
    with Place("postgres") as place:
        running = Running(place, "--mode", "wait", "--effects", place.effects, pause="1s")
        lines = running.read_until("gets")
        winner = lines[-1]["worker"]
        tap.wait_until("a worker that waits for the lock", lambda: place.psql(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND "
            "wait_event_type = 'Lock'"))
        place.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                   "WHERE datname = current_database() AND state = 'idle in transaction'")
        code, rest, err = running.end()
        lines += rest
        fails = [line for line in lines if line.get("what") == "fails"]
        tap.check(code != 0 and [line["worker"] for line in fails] == [winner], f"{code}: {lines}")
        tap.check(winner in err, f"the error names {winner}: {err}")
        other = [line["rows"] for line in lines if line.get("what") == "gets"]
        tap.check(other == [[1], [1]], f"{other}")
        tap.check([row for row, _ in place.sent()] == [1, 1], f"{place.sent()}")
        tap.check(lines[-1] == {"kind": "result", "side_effects": 2, "doubled": 1}, f"{lines[-1]}")
        tap.check(place.tables() == [], f"left: {place.tables()}")


def a_second_signal_ends_it_at_once():
    """Also where signals were ignored, as they are behind an & in a script, and the drop waits."""
    with Place("postgres") as place:
        ignoring = ("bash", "-c", 'trap "" INT TERM; exec "$@"', "bash")
        for number in (signal.SIGINT, signal.SIGTERM):
            running = Running(place, before=ignoring)
            table = running.read_until("gets", 2)[0]["table"]
            with subprocess.Popen(["psql", "-XAtq", place.url], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as reader:
                reader.stdin.write(f"BEGIN; SELECT count(*) FROM {table};\n")
                reader.stdin.flush()
                tap.check(reader.stdout.readline() == "3\n", "a reader who keeps the table")
                running.process.send_signal(number)
                tap.wait_until("a drop that waits for the reader", lambda: place.psql(
                    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND "
                    "wait_event_type = 'Lock' AND query LIKE '%DROP%'"))
                running.process.send_signal(number)
                code, _, _ = running.end()
                tap.check(code == -number, f"exit status {code}")
                reader.stdin.write("COMMIT;\n")
            place.psql(f"DROP TABLE IF EXISTS {table}")


def who_may_make_no_table_is_told_what_to_do():
    """From PostgreSQL 15 on nobody may create in public who was not allowed to."""
    with Place("postgres") as place:
        role = place.database + "_shop"
        place.psql(f"CREATE ROLE {role} LOGIN")
        done = tap.weir("race", "--json", "--store", place.url.replace("user=postgres",
                                                                       f"user={role}"))
        place.psql(f"DROP ROLE {role}")
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        tap.check(done.returncode == 1 and "permission denied" in error["message"], f"{error}")
        tap.check("--store memory:" in error.get("detail", ""), f"{error}")
        tap.check(place.tables() == [], f"left: {place.tables()}")


def a_refused_statement_is_a_line_and_exit_1():
    """SQLite's own limit on waiting, which the URL sets, ends the turn of who waits."""
    with Place("sqlite") as place:
        done = tap.weir("race", "--mode", "wait", "--pause", "300ms", "--json", "--store",
                        place.url + "?busy=20ms", "--effects", place.effects)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        fails = [line for line in lines if line.get("what") == "fails"]
        tap.check(done.returncode != 0 and len(fails) == 1, f"{done.returncode}: {lines}")
        tap.check("writing" in fails[0]["message"] or "busy" in fails[0]["message"], f"{fails}")
        tap.check(lines[-1] == {"kind": "result", "side_effects": 1, "doubled": 0}, f"{lines}")
        tap.check(place.tables() == [], f"left: {place.tables()}")


# ---- wrong and odd calls -----------------------------------------------------------------------

def wrong_numbers_are_wrong_usage():
    for args in (["--workers", "0"], ["--workers", "65"], ["--rows", "1001"], ["--limit", "0"],
                 ["--limit", "1001"], ["--pause", "61m"], ["--mode", "fast"], ["--mode", ""],
                 ["order-1"]):
        done = tap.weir("race", *args, "--store", "memory:")
        tap.check(done.returncode == 2, f"{args}: {done.returncode}: {done.stderr}")
    done = tap.weir("race", "--workers", "64", "--rows", "1000", "--limit", "15", "--pause", "0s",
                    "--json", "--store", "memory:")
    tap.check(done.returncode == 0, f"at the limits: {done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    tap.check(result == {"kind": "result", "side_effects": 960, "doubled": 0}, f"{result}")


def without_a_store_it_races_in_memory_and_makes_no_file():
    with tap.Directory("race") as directory:
        environment = {**os.environ, "WEIR_STORE": "sqlite:used.db"}
        done = subprocess.run([os.path.abspath(tap.WEIR), "race", "--pause", "1ms", "--json"],
                              cwd=directory, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        tap.check(done.returncode == 0 and done.stderr == "", f"{done.returncode}: {done.stderr}")
        tap.check(json.loads(done.stdout.splitlines()[0])["store"] == "memory:", done.stdout)
        tap.check(os.listdir(directory) == [], f"{os.listdir(directory)}")
        done = subprocess.run([os.path.abspath(tap.WEIR), "race", "--store", "sqlite:none.db"],
                              cwd=directory, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        tap.check(done.returncode == 3, f"a file that is named: {done.returncode}: {done.stderr}")
        tap.check(os.listdir(directory) == [], f"{os.listdir(directory)}")


def side_effects_go_into_a_regular_file():
    with tap.Directory("race") as directory:
        fifo = os.path.join(directory, "fifo")
        os.mkfifo(fifo)
        for path in (fifo, directory, os.path.join(directory, "none", "file")):
            done = tap.weir("race", "--effects", path, "--store", "memory:")
            tap.check(done.returncode == 1, f"{path}: {done.returncode}: {done.stderr}")
        kept = os.path.join(directory, "kept")
        with open(kept, "w", encoding="utf-8") as file:
            file.write("what was there before\n")
        done = tap.weir("race", "--effects", kept, "--pause", "1ms", "--json", "--store", "memory:")
        tap.check(json.loads(done.stdout.splitlines()[-1])["side_effects"] == 2, done.stdout)
        with open(kept, encoding="utf-8") as file:
            lines = file.read().splitlines()
        tap.check(lines[0] == "what was there before" and len(lines) == 3, f"{lines}")


def of(kind, test):
    def named():
        test(kind)
    named.__name__ = f"{test.__name__}_{kind}"
    return named


KINDS = ["postgres"] if POSTGRES else ["memory", "sqlite"]
TESTS = [mode_test(kind, mode) for kind in KINDS for mode in TURNS]
TESTS += [of(kind, test) for kind in KINDS for test in (
    text_says_the_same, a_signal_ends_it_and_leaves_nothing, a_reader_who_goes_away_ends_it)]
KEPT = "postgres" if POSTGRES else "sqlite"
TESTS += [of(KEPT, what_a_kill_leaves_is_named_and_removed),
          of(KEPT, two_races_in_one_database_do_not_meet)]
if POSTGRES:
    TESTS += [a_witness_in_the_database_saw_the_same_writes,
              a_worker_that_loses_its_connection_says_so,
              a_second_signal_ends_it_at_once, who_may_make_no_table_is_told_what_to_do]
else:
    TESTS += [nothing_else_is_dropped, a_refused_statement_is_a_line_and_exit_1,
              wrong_numbers_are_wrong_usage, side_effects_go_into_a_regular_file,
              without_a_store_it_races_in_memory_and_makes_no_file]

if __name__ == "__main__":
    tap.run(TESTS)
