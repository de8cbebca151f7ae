"""tap.py - what a Python test of this directory needs: results in TAP, a directory, the programs.

A test is a function; its name is the sentence it proves; it fails by raising. run(TESTS) prints the
plan and the results and ends the program.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

WEIR = os.environ.get("WEIR", "build/weir")
PROGRAMS = os.environ.get("WEIR_STRESS", "build/tests/stress")
WAIT_SECONDS = 60.0


class Failed(AssertionError):
    """A test's own verdict, shown without a traceback."""


def check(condition, why):
    if not condition:
        raise Failed(why)


def program(name):
    """The path of a program that was built for these tests."""
    return os.path.join(PROGRAMS, name)


def wait_until(what, condition, pause=0.001, seconds=WAIT_SECONDS):
    """Waits for a condition; the pause only keeps the processor free for those it depends on."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds:g} s for: {what}")
        time.sleep(pause)


class Directory:
    """A fresh directory, removed at the end."""

    def __init__(self, what):
        self.path = tempfile.mkdtemp(prefix=f"weir-{what}.")

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def weir(*args, **options):
    """Runs the weir program to its end; stdout and stderr are text."""
    return subprocess.run([WEIR, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **options)


def run(tests):
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, test in enumerate(tests, 1):
        started = time.monotonic()
        try:
            test()
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {number} - {test.__name__}")
            text = str(error) if isinstance(error, Failed) else traceback.format_exc()
            for line in text.splitlines():
                print(f"# {line}")
        else:
            print(f"ok {number} - {test.__name__}")
            print(f"# {time.monotonic() - started:.1f} s")
        sys.stdout.flush()
    sys.exit(1 if failed else 0)
