#!/usr/bin/env python3
"""cli_watch_test.py - targets --watch, status --watch and the live line of weir work, on terminals
of tmux: keys are sent, screens are captured.

A test waits until the screen shows what it must; no verdict depends on how long that takes. States
of targets are made by target_state, as a worker would.
"""

import os
import re
import shlex
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "stress"))
import tap  # pylint: disable=wrong-import-position

TARGET_STATE = os.environ["TARGET_STATE"]
HOSTILE = "it \x1b[31mbroke\x1b]0;pwned\x07 \x9b2J"


class Terminal:
    """A terminal of tmux with a shell in it."""

    def __init__(self, path, columns=100, rows=16, **environment):
        self.socket = os.path.join(path, "tmux")
        with open(os.path.join(path, "rc"), "w", encoding="ascii") as file:
            file.write("PS1='$ '\nset +o history\n")
        env = dict(os.environ, WEIR_STORE="sqlite:w.db", LC_ALL="C.UTF-8", **environment)
        for name in ("TMUX", "COLUMNS", "LINES", "NO_COLOR", "WEIR_OUTPUT"):
            env.pop(name, None)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  "-c", path, "bash --noprofile --rcfile rc", env=env)

    def __enter__(self):
        try:
            self.wait("$")
        except tap.Failed:
            self.tmux("kill-server")
            raise
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")

    def tmux(self, *args, **options):
        return subprocess.run(["tmux", "-S", self.socket, *args], check=True, text=True,
                              stdout=subprocess.PIPE, **options).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def wait(self, *texts, absent=()):
        """Waits for a screen with all of these and none of those; gives it."""
        last = [""]

        def shown():
            last[0] = self.screen()
            return all(t.search(last[0]) if isinstance(t, re.Pattern) else t in last[0]
                       for t in texts) and not any(t in last[0] for t in absent)
        try:
            tap.wait_until(f"{texts}", shown, pause=0.02)
        except tap.Failed as error:
            raise tap.Failed(f"{error}, not {absent}\nscreen:\n{last[0]}") from None
        return last[0]

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def run(self, *command):
        """Types a command; `done` tells of its end and how the terminal is then."""
        words = " ".join(shlex.quote(word) for word in (tap.WEIR, *command))
        self.keys("-l", f"clear; {words}; echo done=$?; stty -a | grep -o -e '-*icanon' -e '-*echo '")
        self.keys("Enter")

    def ended(self, status=0):
        """The screen of before is back, with the cursor and the modes of the terminal."""
        screen = self.wait(f"done={status}", re.compile("^icanon", re.M), re.compile("^echo", re.M))
        tap.check("q quit" not in screen, f"what was drawn is still there:\n{screen}")
        tap.check("Nothing" not in screen, f"it speaks of nothing:\n{screen}")
        flags = self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}")
        tap.check(flags.split() == ["0", "1", "1"], f"alternate, cursor, wrap: {flags}")


def rows_of(screen):
    """The first words of the rows between head and footer."""
    return [line[2:].split()[0] for line in screen.splitlines()[2:] if re.match("[> ] mail-", line)]


def cursor_of(screen):
    marked = [line[2:].split()[0] for line in screen.splitlines() if line.startswith("> ")]
    tap.check(len(marked) == 1, f"one row has the cursor:\n{screen}")
    return marked[0]


class Store:
    """Forty targets, mail-order-01 to 40; 30 is blocked, 20 has two events."""

    def __init__(self, path):
        self.path = path
        self.env = dict(os.environ, WEIR_STORE="sqlite:w.db")
        self.weir("init")
        orders = [f"order-{n:02}" for n in range(1, 41)] + ["order-20"]
        self.weir("append", "--batch", "-",
                  input="".join(f'{{"stream":"{order}","name":"Placed"}}\n' for order in orders))
        self.state("declare", "mail", "stream", "order-*")
        self.state("route", "mail", "mail", "mail-")
        self.state("block", "mail-order-30", HOSTILE)

    def weir(self, *args, **options):
        done = tap.weir(*args, cwd=self.path, env=self.env, **options)
        tap.check(done.returncode == 0, f"weir {args}: {done.stderr}")
        return done.stdout

    def state(self, *args):
        done = subprocess.run([TARGET_STATE, *args], cwd=self.path, env=self.env, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        tap.check(done.returncode == 0, f"target_state {args}: {done.stdout}")


# ---- targets --watch -------------------------------------------------------------------------


def those_that_need_someone_come_first_and_the_list_follows():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        store = Store(path)
        terminal.run("targets", "--watch")
        screen = terminal.wait("40 targets: 1 blocked, 39 ready", "sqlite:w.db", "q quit")
        tap.check(cursor_of(screen) == "mail-order-30", screen)
        tap.check(rows_of(screen)[:2] == ["mail-order-30", "mail-order-01"], screen)
        store.weir("pause", "mail-order-33")
        screen = terminal.wait("1 blocked, 1 paused, 38 ready")
        tap.check(rows_of(screen)[:2] == ["mail-order-30", "mail-order-33"], screen)
        store.state("block", "mail-order-05", "no such address")
        screen = terminal.wait("2 blocked", "no such address")
        tap.check(cursor_of(screen) == "mail-order-05", "the cursor stays at the top\n" + screen)
        store.state("block", "mail-order-06", "e" * 200)
        terminal.wait(re.compile("^.{99}\u2026$", re.M))  # to the last column
        terminal.keys("q")
        terminal.ended()


def the_list_is_scrolled_by_every_key_for_it():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30", "1-13 of 40")
        for key, name in (("Down", "01"), ("j", "02"), ("k", "01"), ("Up", "30"), ("End", "40"),
                          ("Home", "30"), ("G", "40"), ("g", "30")):
            terminal.keys(key)
            terminal.wait(f"> mail-order-{name}", "TARGET")
        terminal.keys("NPage")
        terminal.wait("> mail-order-12", "1-13 of 40")
        terminal.keys("NPage")
        terminal.wait("> mail-order-24", "13-25 of 40")
        terminal.keys("PPage", "PPage")
        terminal.wait("> mail-order-30", "1-13 of 40")
        terminal.keys("q")
        terminal.ended()


def the_order_is_chosen_and_reversed():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30")
        terminal.keys("s")
        screen = terminal.wait("order: TARGET")
        tap.check(rows_of(screen)[0] == "mail-order-01", screen)
        terminal.keys("r")
        screen = terminal.wait("order: TARGET reversed")
        tap.check(rows_of(screen)[0] == "mail-order-40", screen)
        for column in ("LANE", "PRIORITY", "STATE", "POSITION", "LAG"):
            terminal.keys("s")
            terminal.wait(f"order: {column} ")
        screen = terminal.screen()
        tap.check(rows_of(screen)[0] == "mail-order-20", "who is furthest behind\n" + screen)
        terminal.keys("q")
        terminal.ended()


def a_filter_is_typed_kept_and_dropped():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30")
        terminal.keys("/")
        terminal.keys("-l", "ORDER-2")
        screen = terminal.wait("/ORDER-2_", absent=["mail-order-01"])
        tap.check(rows_of(screen) == [f"mail-order-{n}" for n in range(20, 30)], screen)
        terminal.keys("BSpace", "3", "Enter")
        screen = terminal.wait("filter: ORDER-3 (Esc: all)   10 rows")
        tap.check(rows_of(screen)[0] == "mail-order-30", screen)
        terminal.keys("/", "C-u")
        terminal.keys("-l", "blocked")
        screen = terminal.wait("/blocked_", absent=["mail-order-31"])
        tap.check(rows_of(screen) == ["mail-order-30"], "by state\n" + screen)
        terminal.keys("Escape")
        terminal.wait("mail-order-01", absent=["/blocked", "filter:"])
        terminal.keys("/", "x", "y", "z")
        terminal.wait("nothing fits the filter")
        terminal.keys("Enter", "q")
        terminal.ended()


def enter_explains_and_goes_back():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30")
        terminal.keys("Enter")
        terminal.wait("weir why mail-order-30", "mail-order-30 is blocked: it ?[31mbroke",
                      "stream  order-30", "q back")
        terminal.keys("End")
        terminal.wait("weir unblock mail-order-30")
        terminal.tmux("resize-window", "-x", "60", "-y", "40")
        terminal.wait("mail-order-30 is blocked", "weir unblock mail-order-30")
        terminal.keys("Escape")
        terminal.wait("> mail-order-30", "mail-order-37", absent=["weir why"])
        terminal.keys("Down", "Enter")
        terminal.wait("weir why mail-order-01", "no worker")
        terminal.keys("q")
        terminal.wait("> mail-order-01")
        terminal.keys("?")
        terminal.wait("PgUp, PgDn", "reverse the order")
        terminal.keys("q")
        terminal.wait("> mail-order-01")
        terminal.keys("Escape")
        terminal.ended()


def the_screen_follows_a_resize():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30", "POSITION", "1-13 of 40")
        terminal.keys("End")
        terminal.wait("> mail-order-40")
        terminal.tmux("resize-window", "-x", "44", "-y", "8")
        screen = terminal.wait("> mail-order-40", "36-40 of 40", absent=["POSITION"])
        tap.check(len(screen.splitlines()) == 8, screen)
        terminal.tmux("resize-window", "-x", "120", "-y", "60")
        screen = terminal.wait("> mail-order-40", "POSITION", absent=[" of 40"])
        tap.check(len(rows_of(screen)) == 40, screen)
        terminal.tmux("resize-window", "-x", "10", "-y", "2")
        terminal.tmux("resize-window", "-x", "1", "-y", "1")
        terminal.tmux("resize-window", "-x", "80", "-y", "20")
        terminal.wait("> mail-order-40", "24-40 of 40")
        terminal.keys("q")
        terminal.ended()


def nothing_from_data_steers_the_terminal():
    with tap.Directory("watch") as path, Terminal(path, columns=140) as terminal:
        store = Store(path)
        title = terminal.tmux("display-message", "-p", "#{pane_title}")
        # All bytes that the program writes, as they are.
        terminal.tmux("pipe-pane", f"cat >{shlex.quote(path)}/bytes")
        store.state("block", "mail-order-07", "\x1b[2J\x1b[8mhidden\x1b]0;pwned\x07 \u202eback")
        terminal.run("targets", "--watch")
        terminal.wait("mail-order-07", "?[2J?[8mhidden?]0;pwned?", "it ?[31mbroke?]0;pwned?")
        terminal.keys("Enter")
        terminal.wait("weir why mail-order-07", "?[8mhidden")
        terminal.keys("q", "q")
        terminal.ended()
        terminal.run("status", "--watch")
        terminal.wait("FACT", "blocked")
        terminal.keys("Enter")
        terminal.wait("weir why", "?[8mhidden")
        terminal.keys("q", "q")
        terminal.ended()
        with open(os.path.join(path, "bytes"), "rb") as file:
            sent = file.read()
        own = re.compile(rb"\x1b\[(\d+;1H|[HK]|2J|[07]m|1;31m|33m|32m|2m|\?(25|7)[hl])")
        runs = re.findall(rb"\x1b\[\?1049h(.*?)\x1b\[\?1049l", sent, re.S)
        tap.check(len(runs) == 2, f"{len(runs)} full screens")
        for run in runs:
            left = own.sub(b"", run)
            found = re.search(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae", left)
            tap.check(not found, f"not ours: {found and left[found.start():][:40]}")
        now = terminal.tmux("display-message", "-p", "#{pane_title}")
        tap.check(now == title, f"the title of the terminal is {now}")


def process_of(terminal):
    """The weir that runs in the terminal."""
    shell = terminal.tmux("display-message", "-p", "#{pane_pid}").strip()

    def child():
        return subprocess.run(["pgrep", "-P", shell, "weir"], stdout=subprocess.PIPE, text=True,
                              check=False).stdout.strip()
    return int(tap.wait_until("a weir", child, pause=0.02))


def a_signal_gives_the_terminal_back():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 0)):
            terminal.run("targets", "--watch")
            terminal.wait("> mail-order-30")
            os.kill(process_of(terminal), number)
            terminal.ended(status)
        terminal.run("status", "--watch")
        terminal.wait("FACT")
        terminal.keys("C-c")
        terminal.ended()
        # A crash.
        terminal.keys("-l", "ulimit -c 0")
        terminal.keys("Enter")
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30")
        os.kill(process_of(terminal), signal.SIGSEGV)
        terminal.ended(128 + signal.SIGSEGV)


def ctrl_z_gives_the_terminal_back_until_it_goes_on():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.keys("-l", "set -m")
        terminal.keys("Enter")
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30")
        terminal.keys("C-z")
        terminal.wait(re.compile("^icanon", re.M), absent=["q quit"])
        terminal.keys("-l", "fg")
        terminal.keys("Enter")
        terminal.wait("> mail-order-30", "q quit")
        terminal.keys("q")
        terminal.wait("$", absent=["q quit"])


def a_store_that_breaks_gives_the_terminal_back():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        terminal.run("targets", "--watch")
        terminal.wait("> mail-order-30")
        # SQLite notices that this is no database any more.
        with open(os.path.join(path, "w.db"), "r+b") as file:
            file.write(b"\xff" * os.path.getsize(os.path.join(path, "w.db")))
        for name in ("w.db-wal", "w.db-shm"):
            if os.path.exists(os.path.join(path, name)):
                with open(os.path.join(path, name), "r+b") as file:
                    file.truncate(0)
        terminal.ended(1)


def a_dumb_terminal_and_a_pipe_get_lines():
    with tap.Directory("watch") as path, Terminal(path, rows=60) as terminal:
        store = Store(path)
        terminal.keys("-l", "TERM=dumb")
        terminal.keys("Enter")
        terminal.run("targets", "--watch", "--blocked")
        terminal.wait("TARGET", "mail-order-30", absent=["q quit"])
        store.state("block", "mail-order-11", "later")
        terminal.wait("mail-order-11", "later")
        terminal.keys("C-c")
        terminal.ended()


# ---- status --watch --------------------------------------------------------------------------


def status_is_kept_up_to_date():
    with tap.Directory("watch") as path, Terminal(path, rows=40) as terminal:
        store = Store(path)
        terminal.run("status", "--watch")
        screen = terminal.wait("40 targets: 1 blocked, 0 deferred, 0 leased, 39 ready; 0 parked",
                               re.compile("^  head +41$", re.M), "LANE", re.compile("^  mail +40 ", re.M))
        tap.check(cursor_of(screen) == "store", screen)
        store.weir("append", "order-99", "Placed")
        terminal.wait(re.compile("^  head +42$", re.M))
        store.state("worker", "w-mail", "mail", "60", "mail")
        terminal.wait("WORKER", re.compile("^  w-mail +running", re.M))
        terminal.keys("End", "s", "s")
        terminal.wait("> mail", "order: TARGETS")
        terminal.keys("/")
        terminal.keys("-l", "w-ma")
        terminal.wait("> w-mail", absent=["LANE  ", "head  "])
        terminal.keys("Escape")
        terminal.wait("FACT", "LANE  ", absent=["/w-ma"])
        terminal.keys("Enter")
        terminal.wait("weir why", "mail-order-30 is blocked")
        terminal.keys("q")
        terminal.wait("FACT")
        terminal.tmux("resize-window", "-x", "50", "-y", "10")
        terminal.wait("q quit")
        terminal.keys("q")
        terminal.ended()


def status_into_a_pipe_is_printed_when_it_changes():
    with tap.Directory("watch") as path:
        store = Store(path)
        with subprocess.Popen([tap.WEIR, "status", "--watch"], cwd=path, env=store.env,
                              stdout=subprocess.PIPE, text=True) as child:
            first = child.stdout.readline()
            tap.check('"head":41,' in first, first)
            store.weir("append", "order-99", "Placed")
            second = child.stdout.readline()
            tap.check('"head":42,' in second, second)
            child.send_signal(signal.SIGTERM)
            tap.check(child.stdout.read() == "", "nothing has changed since")
            tap.check(child.wait() == 0, "the exit status")
        done = tap.weir("status", "--watch", "--metrics", cwd=path, env=store.env)
        tap.check(done.returncode == 2 and "exclude each other" in done.stderr, done.stderr)


# ---- the live line of weir work --------------------------------------------------------------


def a_worker_has_a_live_line_under_its_log_until_it_ends():
    with tap.Directory("watch") as path, Terminal(path, columns=40, rows=24) as terminal:
        store = Store(path)
        # Handlers are held by a file.
        gate = "while [ ! -e go ]; do sleep 0.05; done; case $(cat) in *'\"order-0'*) exit 1; esac"
        terminal.run("work", "--on", "Placed", "--to", "work-{stream}", "--run", gate, "--from",
                     "start", "--name", "hold", "--threads", "2", "--retries", "0",
                     "--lane", "l-\u202ex")
        terminal.wait("msg=started", re.compile(r"^0 handled/s, 0 failed \| l-.{13}$", re.M))
        terminal.tmux("resize-window", "-x", "200")
        screen = terminal.wait(re.compile(r"^0 handled/s, 0 failed \| .*: 2 running, 38 waiting", re.M))
        tap.check("mail: 0 running, 39 waiting, 1 blocked" in screen, screen)
        tap.check(len(re.findall("handled/s", screen)) == 1, "one line\n" + screen)
        tap.check("\u202e" not in re.sub(".*--lane.*", "", screen), "harmless\n" + screen)
        with open(os.path.join(path, "go"), "w", encoding="ascii"):
            pass
        # The log goes on above it, and lines of it are whole.
        screen = terminal.wait("msg=blocked", re.compile(
            r"^[0-9.]+ handled/s, 9 failed \| .*: 0 running, 0 waiting, 9 blocked", re.M))
        tap.check(re.search("^[^t].*time=", screen, re.M) is None, "mixed with the log\n" + screen)
        store.weir("append", "order-50", "Placed")
        os.kill(process_of(terminal), signal.SIGTERM)
        screen = terminal.wait("msg=stopped", "done=0")
        tap.check("handled/s" not in screen, "it is gone\n" + screen)


def there_is_no_live_line_where_nobody_could_wipe_it():
    with tap.Directory("watch") as path, Terminal(path) as terminal:
        Store(path)
        base = ["work", "--on", "Placed", "--to", "work-{stream}", "--run", "true", "--from",
                "start", "--until-idle"]
        terminal.tmux("pipe-pane", f"cat >{shlex.quote(path)}/bytes")
        terminal.run(*base, "--log", "json")
        terminal.wait("done=0")
        terminal.keys("-l", "TERM=dumb")
        terminal.keys("Enter")
        terminal.keys("-l", f"{tap.WEIR} append order-60 Placed >/dev/null")
        terminal.keys("Enter")
        terminal.run(*base)
        terminal.wait(re.compile("^.*msg=stopped", re.M), "done=0")
        with open(os.path.join(path, "bytes"), "rb") as file:
            tap.check(b"handled/s" not in file.read(), "with --log json, or TERM=dumb")
        done = subprocess.run([tap.WEIR, *base], cwd=path, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, check=False,
                              env=dict(os.environ, WEIR_STORE="sqlite:w.db", TERM="xterm"))
        tap.check("\x1b" not in done.stdout and "handled/s" not in done.stdout, done.stdout)


tap.run([
    those_that_need_someone_come_first_and_the_list_follows,
    the_list_is_scrolled_by_every_key_for_it,
    the_order_is_chosen_and_reversed,
    a_filter_is_typed_kept_and_dropped,
    enter_explains_and_goes_back,
    the_screen_follows_a_resize,
    nothing_from_data_steers_the_terminal,
    a_signal_gives_the_terminal_back,
    ctrl_z_gives_the_terminal_back_until_it_goes_on,
    a_store_that_breaks_gives_the_terminal_back,
    a_dumb_terminal_and_a_pipe_get_lines,
    status_is_kept_up_to_date,
    status_into_a_pipe_is_printed_when_it_changes,
    a_worker_has_a_live_line_under_its_log_until_it_ends,
    there_is_no_live_line_where_nobody_could_wipe_it,
])
