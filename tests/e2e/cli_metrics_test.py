#!/usr/bin/env python3
"""cli_metrics_test.py - weir status --metrics: real workers, a known number of events, failures and
lost leases, and a parser that accepts nothing but Prometheus' text format.

    cli_metrics_test.py [postgres]    on SQLite files, or in schemas of $WEIR_TEST_POSTGRES

Handlers are held by files, never by time.
"""

import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "stress"))
import tap  # pylint: disable=wrong-import-position

POSTGRES = sys.argv[1:] == ["postgres"]
HISTOGRAMS = ("weir_lease_seconds", "weir_settle_seconds", "weir_handler_seconds",
              "weir_delay_seconds", "weir_commit_batch_appends")

# ---- the format ------------------------------------------------------------------------------

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
VALUE = re.compile(r"[0-9]+(\.[0-9]+)?")
SUFFIXES = ("_bucket", "_sum", "_count")


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), text)


def parse_labels(text):
    labels, at = {}, 0
    while at < len(text):
        tap.check(at == 0 or text[at] == ",", f"no comma between labels: {text}")
        found = LABEL.match(text, at + (at > 0))
        tap.check(found is not None, f"not a label: {text[at:]}")
        tap.check(found.group(1) not in labels, f"a label twice: {text}")
        labels[found.group(1)] = unescaped(found.group(2))
        at = found.end()
    return labels


def parse_sample(line):
    name = NAME.match(line).group(0)
    rest = line[len(name):]
    labels = {}
    if rest.startswith("{"):
        end = rest.rindex("}")
        labels = parse_labels(rest[1:end])
        rest = rest[end + 1:]
    tap.check(rest.startswith(" ") and VALUE.fullmatch(rest[1:]), f"not a value: {line}")
    return name, labels, float(rest[1:])


def check_histogram(name, samples):
    """Buckets grow, the last is +Inf and the count, and there is one sum and one count."""
    series = {}
    for (sample, labels), value in samples.items():
        key = frozenset((k, v) for k, v in labels if k != "le")
        series.setdefault(key, {}).setdefault(sample[len(name):], []).append(
            (dict(labels).get("le"), value))
    for parts in series.values():
        tap.check(set(parts) == set(SUFFIXES), f"{name} has {sorted(parts)}")
        bounds = [le for le, _ in parts["_bucket"]]
        counts = [value for _, value in parts["_bucket"]]
        tap.check(bounds[-1] == "+Inf", f"{name} does not end with +Inf")
        numbers = [float(b) for b in bounds]
        tap.check(numbers == sorted(set(numbers)), f"{name}: bounds {bounds}")
        tap.check(counts == sorted(counts), f"{name}: counts {counts}")
        tap.check(len(parts["_count"]) == 1 and len(parts["_sum"]) == 1, f"{name}: one sum, count")
        tap.check(parts["_count"][0][1] == counts[-1], f"{name}: its count is not the last bucket")


class Page:
    """What was printed, understood: {(name, labels): value} of each metric."""

    def __init__(self, text):
        self.types, self.samples, self.helped = {}, {}, set()
        tap.check(text.endswith("\n"), "the last line does not end")
        current = None
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                current = line.split(" ", 3)[2]
                tap.check(len(line.split(" ", 3)) == 4, f"no help: {line}")
                tap.check(current not in self.helped, f"HELP twice: {line}")
                self.helped.add(current)
                continue
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                tap.check(name == current and name not in self.types, f"out of place: {line}")
                tap.check(kind in ("counter", "gauge", "histogram"), f"no type: {line}")
                tap.check((kind == "counter") == name.endswith("_total"), f"misnamed: {line}")
                self.types[name] = kind
                continue
            name, labels, value = parse_sample(line)
            base = name
            if self.types.get(current) == "histogram":
                base = name[:-len(next(s for s in SUFFIXES if name.endswith(s)))]
            tap.check(base == current and current in self.types, f"not with its metric: {line}")
            key = (name, frozenset(labels.items()))
            tap.check(key not in self.samples, f"twice: {line}")
            self.samples[key] = value
        for name, kind in self.types.items():
            if kind == "histogram":
                check_histogram(name, {k: v for k, v in self.samples.items()
                                       if k[0].startswith(name + "_")})

    def get(self, name, **labels):
        return self.samples.get((name, frozenset(labels.items())))

    def of_worker(self, name, pid):
        for (sample, labels) in self.samples:
            if sample == "weir_worker_up" and ("pid", str(pid)) in labels:
                return self.get(name, worker=dict(labels)["worker"])
        return None

    def up(self, pid):
        return next((v for (n, l), v in self.samples.items()
                     if n == "weir_worker_up" and ("pid", str(pid)) in l), None)


# ---- the surroundings ------------------------------------------------------------------------

class Place:
    """A directory with a store and a weir.yaml of its own; workers end with it."""

    def __init__(self, name, config):
        self.name, self.config, self.workers = name, config, []

    def __enter__(self):
        self.directory = tap.Directory("metrics")
        self.path = self.directory.__enter__()
        if POSTGRES:
            base = os.environ["WEIR_TEST_POSTGRES"]
            url = f"{base}{'&' if '?' in base else '?'}schema=metrics_{self.name}"
        else:
            url = f"sqlite:{self.path}/s.db"
        self.environ = dict(os.environ, WEIR_STORE=url)
        self.weir("init")
        with open(os.path.join(self.path, "weir.yaml"), "w", encoding="utf-8") as file:
            file.write(self.config)
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
                worker.wait()
        self.directory.__exit__()

    def weir(self, *args):
        done = tap.weir(*args, cwd=self.path, env=self.environ)
        tap.check(done.returncode == 0, f"weir {args}: {done.stderr}")
        return done.stdout

    def put(self, stream, name, data="{}"):
        self.weir("append", stream, name, data)

    def page(self):
        return Page(self.weir("status", "--metrics"))

    def work(self):
        log = open(os.path.join(self.path, f"log-{len(self.workers)}"), "w", encoding="utf-8")
        worker = subprocess.Popen([tap.WEIR, "work"], cwd=self.path, env=self.environ, stdout=log,
                                  stderr=log)
        log.close()
        self.workers.append(worker)
        return worker

    def target(self, name):
        lines = self.weir("targets", "--json").splitlines()
        return next((t for t in map(json.loads, lines) if t["target"] == name), None)

    def await_state(self, name, state):
        tap.wait_until(f"{name} is {state}",
                       lambda: (self.target(name) or {}).get("state") == state, pause=0.05)

    def file(self, name):
        return os.path.exists(os.path.join(self.path, name))


def end(worker):
    worker.send_signal(signal.SIGTERM)
    tap.check(worker.wait(60) == 0, f"weir work ended with {worker.returncode}")


def same(what, got, wanted):
    tap.check(got == wanted, f"{what} is {got}, should be {wanted}")


# ---- the tests -------------------------------------------------------------------------------

ODD = 'odd "name" \\ é'
# Leases that outlast any pause of a busy machine: what is handed out twice is counted twice.
COUNTING = """
lanes:
  mail: { threads: 2, lease: 60s }
  slow: { threads: 1, lease: 60s }
reactions:
  - name: 'odd "name" \\ é'
    on: [Good, Bad, Race]
    to: "{stream}"
    lane: mail
    from: start
    run: |
      event=$(cat)
      case $event in
      *'"name":"Bad"'*) exit 65 ;;
      *'"name":"Race"'*) staged='{"stream":"taken","name":"X","expect":"none"}' ;;
      *) staged='{"stream":"sent","name":"Sent"},{"stream":"sent","name":"Sent"}' ;;
      esac
      echo '{"ok":true,"append":['"$staged"']}'
    retries: 0
    on_poison: park
  - name: slow
    on: [Slow]
    to: "slow"
    lane: slow
    from: start
    run: exit 1
    retries: 4
    backoff: { kind: fixed, base: 600s, cap: 600s }
"""


def what_was_done_is_what_is_counted():
    with Place("counting", COUNTING) as place:
        for i in range(12):
            place.put(f"g-{i % 3}", "Good")
        for i in range(2):
            place.put(f"b-{i}", "Bad")
        place.put("taken", "Other")
        place.put("r-1", "Race")
        for i in range(3):
            place.put("s-1", "Slow")
        before = place.page()
        same("head", before.get("weir_head_position"), 19.0)
        same("workers", [k for k in before.samples if k[0] == "weir_worker_up"], [])
        worker = place.work()
        place.await_state("slow", "retrying")
        tap.wait_until("the dead letters", lambda: place.page().get("weir_dead_letters") == 3,
                       pause=0.05)
        for name in ("g-0", "g-1", "g-2", "b-0", "b-1", "r-1"):
            place.await_state(name, "idle")
        counted = tap.wait_until("a beat that has counted all of it", lambda: (
            p := place.page()) and (p.of_worker("weir_handled_events_total", worker.pid) or 0) >= 12 and
            (p.of_worker("weir_failed_events_total", worker.pid) or 0) >= 4 and p, pause=0.2)
        wanted = {
            "weir_handled_events_total": 12, "weir_failed_events_total": 4,
            "weir_parked_events_total": 3, "weir_deferred_targets_total": 1,
            "weir_blocked_targets_total": 0, "weir_lost_leases_total": 0,
            "weir_stale_fences_total": 0, "weir_route_parked_events_total": 0,
            "weir_appends_total": 24, "weir_appended_events_total": 24,
            "weir_conflicts_total": 4, "weir_reruns_total": 4, "weir_store_errors_total": 0,
        }
        for name, value in wanted.items():
            same(name, counted.of_worker(name, worker.pid), value)
        tap.check(counted.of_worker("weir_settles_total", worker.pid) >= 6, "settles")
        for name in HISTOGRAMS[:-1]:
            tap.check(counted.of_worker(name + "_count", worker.pid) > 0, f"{name} is empty")
        same("handlers that were run", counted.of_worker("weir_handler_seconds_count", worker.pid),
             12 + 2 + 4 + 1)
        tap.check(counted.of_worker("weir_delay_seconds_sum", worker.pid) > 0, "delay")
        same("up", counted.up(worker.pid), 1)
        head = counted.get("weir_head_position")
        same("the appends of handlers are in the log", head - 24 >= 19, True)
        same("routed", counted.get("weir_routed_position", reaction=ODD), head)
        same("safe", counted.get("weir_safe_position"), head)
        same("routing lag", counted.get("weir_routing_lag_events", reaction="slow"), 0)
        for state, count in {"idle": 6, "ready": 0, "retrying": 0, "deferred": 0, "leased": 0}.items():
            same(state, counted.get("weir_lane_targets", lane="mail", state=state), count)
        same("retrying", counted.get("weir_lane_targets", lane="slow", state="retrying"), 1)
        same("deferred", counted.get("weir_lane_targets", lane="slow", state="deferred"), 0)
        same("lag", counted.get("weir_lane_lag_events", lane="slow"), 3)
        tap.check(counted.get("weir_lane_lag_seconds", lane="slow") > 0, "it waits for some time")
        same("lag", counted.get("weir_lane_lag_events", lane="mail"), 0)
        same("lag", counted.get("weir_lane_lag_seconds", lane="mail"), 0)
        why = json.loads(place.weir("why", "slow", "--json"))
        tap.check("attempt 1 of 5" in why["answer"], why["answer"])
        end(worker)
        last = place.page()
        same("up", last.up(worker.pid), 0)
        for (name, labels), value in counted.samples.items():
            if name.endswith(("_total", "_bucket", "_count", "_sum")):
                tap.check(last.samples.get((name, labels), -1) >= value, f"{name} went back")


HOLDING = """
lanes:
  held: { threads: 1, lease: 1s }
reactions:
  - name: hold
    on: [Hold]
    to: "held"
    lane: held
    from: start
    run: "touch begun-$PPID; while ! test -e go; do sleep 0.05; done"
    retries: 0
"""


def a_lease_lost_while_the_worker_was_stopped_is_counted_once():
    with Place("holding", HOLDING) as place:
        place.put("h-1", "Hold")
        first = place.work()
        place.await_state("held", "leased")
        fence = place.target("held")["fence"]
        first.send_signal(signal.SIGSTOP)
        second = place.work()
        tap.wait_until("another has it", lambda: place.target("held")["fence"] > fence, pause=0.05)
        with open(os.path.join(place.path, "go"), "w", encoding="utf-8"):
            pass
        place.await_state("held", "idle")
        first.send_signal(signal.SIGCONT)
        end(second)
        tap.wait_until("the first notices", lambda: "\"msg\":\"lost\"" in open(
            os.path.join(place.path, "log-0"), encoding="utf-8").read(), pause=0.05)
        end(first)
        page = place.page()
        same("lost", page.of_worker("weir_lost_leases_total", first.pid), 1)
        same("refused", page.of_worker("weir_stale_fences_total", first.pid), 1)
        same("handled", page.of_worker("weir_handled_events_total", first.pid), 0)
        same("lost", page.of_worker("weir_lost_leases_total", second.pid), 0)
        same("handled", page.of_worker("weir_handled_events_total", second.pid), 1)


def it_has_a_format_of_its_own():
    with Place("format", COUNTING) as place:
        for flag in ("--json", "--text"):
            done = tap.weir("status", "--metrics", flag, cwd=place.path, env=place.environ)
            same(f"the status of --metrics {flag}", done.returncode, 2)


tap.run([what_was_done_is_what_is_counted,
         a_lease_lost_while_the_worker_was_stopped_is_counted_once,
         it_has_a_format_of_its_own])
