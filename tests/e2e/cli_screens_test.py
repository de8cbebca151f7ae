#!/usr/bin/env python3
"""cli_screens_test.py - what every command shows on a terminal of 80 and of 120 columns, compared
with the screens that are kept in tests/e2e/screens/, one file per command.

    cli_screens_test.py             compares
    cli_screens_test.py --update    writes the files anew: read the difference before you commit it

One story is played for each width, on an SQLite store: an empty store, orders, handlers that fail,
an operator who mends it, jobs, and a table. Programs see a clock that stands still where the story
puts it (clock_skew.c), so that nothing on a screen depends on when it is taken. What depends on
the machine is replaced: numbers of processes, versions and sizes of SQLite.
"""

import fcntl
import os
import pty
import re
import sqlite3
import struct
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "stress"))
import tap  # pylint: disable=wrong-import-position

SCREENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "screens")
WIDTHS = (80, 120)
NOON = 1772366400  # 2026-03-01T12:00:00Z

CONFIG = """\
lanes:
  mail: { threads: 2 }
reactions:
  - name: charge
    on: OrderPlaced
    to: "charge-{stream}"
    from: start
    retries: 0
    run: "./charge.py"
  - name: mail
    on: OrderPaid
    to: "mail-{stream}"
    lane: mail
    from: start
    run: "true"
  - name: archive
    on: OrderPaid
    to: archive
    from: start
    retries: 0
    on_poison: park
    run: "echo 'no space left on /archive' >&2; exit 1"
tables:
  payments:
    ready: "status = 'pending'"
    claimed: { status: claimed }
    done: { status: done }
    failed: { status: failed }
    lease: 5m
"""

CHARGE = """\
#!/usr/bin/env python3
import json, sys
amount = json.load(sys.stdin)["event"]["data"]["total"]
print("charging", amount, file=sys.stderr)
share = 100 / (amount - 40)
print('{"ok":true}')
"""

PAYMENTS = """\
CREATE TABLE payments (id INTEGER PRIMARY KEY, email TEXT, status TEXT DEFAULT 'pending',
    claimed_by TEXT, claimed_at TEXT, locked_until TEXT);
INSERT INTO payments (email) VALUES ('ada@example.org'), ('bob@example.org'), ('cleo@example.org'),
    ('dora@example.org'), ('emil@example.org'), ('fay@example.org');
CREATE TABLE bare (id INTEGER PRIMARY KEY, status TEXT);
"""

TOO_WIDE = []  # lines that do not fit
UNBROKEN = re.compile("time=|  weir ")  # lines of a log, and commands to be typed

WRONG_SQL = """\
SELECT id FROM payments WHERE status = 'pending' LIMIT 1;
UPDATE payments SET status = 'claimed' WHERE id = 1;
"""

# What depends on the machine, and what stands for it.
REPLACED = (
    (re.compile(r"SQLite 3\.\d+\.\d+"), "SQLite 3.N"),
    (re.compile(r"\b[\d.]+ [KM]iB\b"), "N KiB"),
    (re.compile(r"(pid|process) \d+"), r"\1 N"),
    (re.compile(r"host-1:\d+:[0-9a-f]{16}"), "host-1:N"),
    (re.compile(r"(weir@host-1:N +ended).*"), r"\1 ..."),  # since when is told by the machine's clock
    (re.compile(r"\b\d+ ms\b"), "N ms"),
    (re.compile(r"(T\d\d:\d\d:\d\d\.)\d{6}Z"), r"\1NNNNNNZ"),
    (re.compile(r" \d+\.\d{3} s  "), " N.NNN s  "),
    (re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
)


def plain(shown):
    """Without what varies, and without what a terminal needs but a reader does not."""
    text = shown.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    text = re.sub(r"[^\n]*\r\x1b\[K", "", text)  # progress, which is erased
    for pattern, word in REPLACED:
        text = pattern.sub(word, text)
    return "".join(line.rstrip(" ") + "\n" for line in text.rstrip("\n").split("\n")) if text else ""


class Story:
    """A directory with a store, and the screens that were seen there, by command."""

    def __init__(self, path, width):
        self.path, self.width, self.now, self.screens = path, width, NOON, {}
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": path, "LANG": "C.UTF-8", "TERM": "xterm",
            "NO_COLOR": "1", "LD_PRELOAD": os.environ["CLOCK_SKEW"], "CLOCK_HOST": "host-1"}

    def write(self, name, text, mode=0o644):
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(os.path.join(self.path, name), mode)

    def later(self, seconds):
        """Some seconds more: no number of these is nearly a whole minute, so that a command that runs
        for seconds moves no minute."""
        self.now += seconds + 26

    def env(self):
        return {**self.environment, "CLOCK_STANDS_AT": str(self.now), "WEIR_STORE": "sqlite:weir.db"}

    def state(self, *arguments):
        """Brings a target into a state, as a worker would."""
        subprocess.run([os.environ["TARGET_STATE"], *arguments], cwd=self.path, env=self.env(),
                       stdout=subprocess.DEVNULL, check=True)

    def quiet(self, *arguments):
        """A command that belongs to the story and is not shown."""
        got = subprocess.run([tap.WEIR, *arguments], cwd=self.path, env=self.env(), text=True,
                             stdin=subprocess.DEVNULL, capture_output=True, check=False)
        tap.check(got.returncode == 0, f"weir {' '.join(arguments)}: {got.stderr}")

    def start(self, *arguments):
        return subprocess.Popen([tap.WEIR, *arguments], cwd=self.path, env=self.env(),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def terminal(self, arguments, typed=""):
        """What appears on a terminal, and the exit status."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, self.width, 0, 0))
        child = subprocess.Popen([tap.WEIR, *arguments], stdin=slave, stdout=slave, stderr=slave,
                                 start_new_session=True, cwd=self.path, env=self.env())
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last one has closed it
                break
            shown += part
            if typed and shown.endswith(b"[y/N] "):
                os.write(master, typed.encode())
        os.close(master)
        return plain(shown), child.wait()

    def see(self, line, typed="", squeeze=False, keep=None):
        """Takes the screen of a command line. squeeze: columns whose width depends on the machine.
        keep: only what matches this."""
        arguments = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)]
        shown, status = self.terminal(arguments, typed)
        if "--wide" not in arguments and "--sql" not in arguments:
            TOO_WIDE.extend(f"{len(text)} columns of {self.width} in weir {line}: {text}"
                            for text in shown.split("\n")
                            if len(text) > self.width and not UNBROKEN.match(text))
        if squeeze:
            shown = re.sub(r"(?<=\S) {2,}", "  ", shown)
        if keep:
            shown = "".join(f"{text}\n" for text in shown.split("\n") if re.search(keep, text))
        ends = f"[exit status {status}]\n" if status else ""
        self.screens.setdefault(arguments[0], []).append(f"$ weir {line}\n{shown}{ends}")


# ---- the story -------------------------------------------------------------------------------

def an_empty_store(story):
    story.see("status")
    story.see("read order-1")
    story.see("init")
    story.see("init")
    for line in ("streams", "log", "targets", "why", "parked", "reactions", "locks", "status",
                 "doctor", "once --list"):
        story.see(line)
    story.see("read order-1")
    story.see("why charge-order-1")


def orders(story):
    story.see("append order-1 OrderPlaced '{\"total\":40}' --expect none")
    story.see("append order-1 OrderPlaced '{\"total\":40}' --expect none")
    story.later(3600)
    for order, total in ((2, 40), (3, 90), (4, 40)):
        story.quiet("append", f"order-{order}", "OrderPlaced", f'{{"total":{total}}}')
    story.later(3600)
    for order in (1, 2, 3):
        story.quiet("append", f"order-{order}", "OrderPaid",
                    '{"by":"card","note":"left at the door of the neighbours, who were at home"}')
    story.later(3600)
    story.see("read order-1")
    story.see("read order-1 --wide")
    story.see("read order-1 --utc --from 1")
    story.see("log --limit 4")
    story.see("streams")


def handlers_that_fail(story):
    story.see("work --check")
    story.quiet("append", "order-5", "OrderPlaced", '{"total":90}')
    # Lines of a log come in the order in which things happen: several threads, no order to keep.
    story.see("work --until-idle", keep="msg=not_all_handled")
    story.later(5400)
    story.quiet("append", "order-4", "OrderPaid", "{}")
    story.quiet("append", "order-5", "OrderPaid", "{}")
    story.quiet("append", "order-6", "OrderPaid", "{}")
    story.state("route", "mail", "mail", "mail-")
    story.state("worker", "w1", "mail", "36000", "mail")
    # As wide as any name of a worker, so that the one that ran here does not decide what has room.
    story.state("worker", "weir@host-2:4194304:0123456789abcdef", "mail", "36000", "mail")
    story.state("hold", "mail-order-4", "w1", "10800")
    story.state("defer", "mail-order-5", "18000", "the mail server said: come back later")
    story.quiet("pause", "mail-order-6")
    story.later(5400)
    for line in ("targets", "targets --wide", "targets --state blocked", "targets --reaction none",
                 "why", "why charge-order-1", "why charge-order-1 --verbose", "why mail-order-4",
                 "why mail-order-5", "why mail-order-6", "why mail-order-1", "parked",
                 "parked show 1", "reactions", "status", "doctor"):
        story.see(line, squeeze=line == "status")


def an_operator(story):
    story.see("unblock charge-order-1 --dry-run")
    story.see("unblock charge-order-1")
    story.see("skip charge-order-2", typed="n\n")
    story.see("skip charge-order-2 --yes")
    story.see("reset mail-order-1 --to 0", typed="y\n")
    story.see("prioritize mail-order-1 10")
    story.see("pause mail-order-1")
    story.see("resume mail-order-1")
    story.see("pause --lane mail")
    story.see("resume --lane mail")
    story.see("resume --lane nowhere")
    story.see("parked retry --all")
    story.see("parked drop 1 --yes")
    story.see("parked drop --all --yes")
    story.see("reactions retire archive --yes")
    story.see("close order-9")
    story.see("close order-1")
    story.see("close order-1 --force")
    story.see("backup copy.db")
    story.see("backup copy.db")
    story.see("restore copy.db --yes")


def jobs(story):
    story.see("lock nightly -- echo 'it runs'")
    holder = story.start("lock", "nightly", "--", "sleep", "600")
    tap.wait_until("the lock is held", lambda: "nightly" in story.terminal(["locks"])[0], pause=0.05)
    story.see("locks", squeeze=True)
    story.see("lock nightly -- echo 'it runs'", squeeze=True)
    holder.terminate()
    holder.wait()
    story.see("once report-1 -- echo 'the report'")
    story.later(3600)
    story.see("once report-1 -- echo 'the report'")
    story.see("once report-2 -- false")
    story.see("once --list", squeeze=True)
    story.see("once --list 'nothing*'")


def a_table(story):
    with sqlite3.connect(os.path.join(story.path, "shop.db")) as db:
        db.executescript(PAYMENTS)
    db.close()
    claim = "claim payments --store sqlite:shop.db"
    story.see(f"{claim} --dry-run --limit 2")
    story.see(f"{claim} --sql")
    story.see(f"{claim} --limit 2 --by ada")
    story.see("done payments 1 --store sqlite:shop.db --by ada")
    story.see("extend payments 2 --store sqlite:shop.db --by ada")
    story.see("fail payments 2 --store sqlite:shop.db --by bob")
    story.see("fail payments 2 --store sqlite:shop.db --by ada")
    story.see(f"{claim} --by ada")
    story.see("release payments 3 --store sqlite:shop.db --by ada")
    story.see(f"{claim} --limit 4 --run 'grep -qv emil'", keep="done, ")
    story.see(claim)
    story.see("claim --store sqlite:shop.db --table bare --where 'status IS NULL' --lease 5m")
    story.see("claim --store shop.db --table bare --where 'status IS NULL'")
    story.see("race --mode none", keep="emails")
    story.see("race", keep="emails")
    story.see("lint wrong.sql")
    story.see("lint right.sql")


def help_and_mistakes(story):
    story.see("version")
    story.see("help")
    story.see("help output")
    story.see("help choosing")
    for command in commands():
        story.see(f"help {command}")
    story.see("targets --sate blocked")
    story.see("append")


def played(width):
    with tap.Directory("screens") as path:
        story = Story(path, width)
        story.write("charge.py", CHARGE, 0o755)
        story.write("wrong.sql", WRONG_SQL)
        story.write("right.sql", "SELECT 1;\n")
        story.write("weir.yaml", CONFIG)
        for part in (an_empty_store, orders, handlers_that_fail, an_operator, jobs, a_table,
                     help_and_mistakes):
            part(story)
        return {command: "\n".join(screens).replace(path, "DIRECTORY")
                for command, screens in story.screens.items()}


# ---- comparing -------------------------------------------------------------------------------

def kept(command):
    try:
        with open(os.path.join(SCREENS, f"{command}.txt"), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def differences(expected, actual):
    rows = []
    for number, (old, new) in enumerate(zip(expected.split("\n") + ["(end)"],
                                            actual.split("\n") + ["(end)"]), 1):
        if old != new:
            rows.append(f"line {number}: expected {old!r}\n         got      {new!r}")
    return "\n".join(rows[:6])


def commands():
    """All of them, as `weir help` lists them."""
    listed = tap.weir("help", "--text").stdout
    return sorted(set(re.findall(r"^  ([a-z]+) {2,}\S", listed, re.M)))


PLAYED = {}


def page(command):
    return "".join(f"{'=' * 30} {width} columns {'=' * 30}\n{PLAYED[width].get(command, '')}"
                   for width in WIDTHS)


def test_of(command):
    def test():
        tap.check(kept(command) == page(command),
                  f"screens/{command}.txt differs; to take it over, run this test with --update\n"
                  + differences(kept(command), page(command)))
    test.__name__ = f"the_screens_of_{command}_are_as_they_were"
    return test


def every_command_has_its_screens():
    for width in WIDTHS:
        missing = [c for c in commands() if c not in PLAYED[width]]
        tap.check(not missing, f"no screen of {missing} at {width} columns")
    known = {name[:-len(".txt")] for name in os.listdir(SCREENS)}
    tap.check(known == set(PLAYED[WIDTHS[0]]), f"files without a command: {known}")


def no_line_is_wider_than_its_terminal():
    tap.check(not TOO_WIDE, "\n".join(TOO_WIDE))


def main():
    for width in WIDTHS:
        PLAYED[width] = played(width)
    names = sorted(PLAYED[WIDTHS[0]])
    if sys.argv[1:] == ["--update"]:
        os.makedirs(SCREENS, exist_ok=True)
        for name in names:
            with open(os.path.join(SCREENS, f"{name}.txt"), "w", encoding="utf-8") as file:
                file.write(page(name))
    tap.run([every_command_has_its_screens, no_line_is_wider_than_its_terminal]
            + [test_of(name) for name in names])


main()
