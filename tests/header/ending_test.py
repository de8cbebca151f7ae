#!/usr/bin/env python3
"""ending_test.py - ending handles from another thread, as a language runtime does it: through ctypes,
with calls that wait without end and finalisers that come late, twice, and in the wrong order.

    WEIR_LIBRARY=.../libweir.so ending_test.py
"""

import ctypes
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "stress"))
import tap  # pylint: disable=wrong-import-position

OK, ENOTFOUND, EMISUSE, EINTERRUPTED = 0, -6, -18, -19
READ_FOLLOW = 2
THREADS = 8

weir = ctypes.CDLL(os.environ["WEIR_LIBRARY"])
weir.weir_status_text.restype = ctypes.c_char_p


class Str(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("store_url", ctypes.c_char_p)]


class LogOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32)]


class Reaction(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("name", Str),
                ("on", ctypes.c_void_p), ("on_count", ctypes.c_size_t), ("source", Str), ("to", Str)]


for function in ["weir_close", "weir_interrupt", "weir_engine_free", "weir_reader_close"]:
    getattr(weir, function).restype = None
    getattr(weir, function).argtypes = [ctypes.c_void_p]
weir.weir_positions.argtypes = [ctypes.c_void_p] * 4
weir.weir_log_open.argtypes = [ctypes.c_void_p] * 4
weir.weir_reader_next.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
weir.weir_next.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
weir.weir_engine_open.argtypes = [ctypes.c_void_p] * 4
weir.weir_engine_reaction.argtypes = [ctypes.c_void_p] * 3
weir.weir_engine_start.argtypes = [ctypes.c_void_p] * 2
weir.weir_engine_stop.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]


def is_so(what, got, wanted):
    tap.check(got == wanted, f"{what}: {weir.weir_status_text(got).decode()}")


def store_open():
    w = ctypes.c_void_p()
    options = Options(ctypes.sizeof(Options), 0, b"memory:")
    is_so("open", weir.weir_open(ctypes.byref(options), ctypes.byref(w), None), OK)
    return w


def reader_open(w):
    reader = ctypes.c_void_p()
    options = LogOptions(ctypes.sizeof(LogOptions), READ_FOLLOW)
    is_so("a reader", weir.weir_log_open(w, ctypes.byref(options), ctypes.byref(reader), None), OK)
    return reader


def engine_run(w):
    engine = ctypes.c_void_p()
    pulled = Reaction(size=ctypes.sizeof(Reaction), name=Str(b"pulled", 6), to=Str(b"all", 3))
    is_so("an engine", weir.weir_engine_open(w, None, ctypes.byref(engine), None), OK)
    is_so("a reaction", weir.weir_engine_reaction(engine, ctypes.byref(pulled), None), OK)
    is_so("the start", weir.weir_engine_start(engine, None), OK)
    return engine


class Waiters:
    """Threads that wait without end, each in one call."""

    def __init__(self, call):
        self.answers = []
        self.begun = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.wait, args=(call, i)) for i in range(THREADS)]
        for thread in self.threads:
            thread.start()
        tap.wait_until("threads that wait", lambda: self.begun == THREADS)

    def wait(self, call, number):
        with self.lock:
            self.begun += 1
        answer = call(number)
        with self.lock:
            self.answers.append(answer)

    def out(self):
        return len(self.answers) == THREADS

    def join(self):
        for thread in self.threads:
            thread.join()
        return set(self.answers)


def an_interrupt_ends_the_waits_of_readers_and_engines():
    w = store_open()
    engine = engine_run(w)
    readers = [reader_open(w) for _ in range(THREADS)]

    def call(number):
        out = ctypes.c_void_p()
        if number % 2 == 0:
            return weir.weir_next(engine, -1, ctypes.byref(out), None)
        return weir.weir_reader_next(readers[number], -1, ctypes.byref(out), None)

    waiters = Waiters(call)

    def out():
        weir.weir_interrupt(w)  # again, for those that had not begun to wait
        return waiters.out()

    tap.wait_until("the end of the waits", out)
    tap.check(waiters.join() == {EINTERRUPTED}, f"the answers are {waiters.answers}")
    for reader in readers:
        weir.weir_reader_close(reader)
    weir.weir_engine_free(engine)
    weir.weir_close(w)


def a_stop_ends_the_waits_of_an_engine():
    for _ in range(10):
        w = store_open()
        engine = engine_run(w)
        waiters = Waiters(lambda _, e=engine: weir.weir_next(e, -1, ctypes.byref(ctypes.c_void_p()), None))
        is_so("the stop", weir.weir_engine_stop(engine, 1000, None), OK)
        tap.check(waiters.join() <= {ENOTFOUND, EMISUSE}, f"the answers are {waiters.answers}")
        weir.weir_engine_free(engine)
        weir.weir_close(w)


def a_close_ends_the_waits_and_finalisers_may_come_in_any_order():
    for _ in range(10):
        w = store_open()
        engine = engine_run(w)
        readers = [reader_open(w) for _ in range(THREADS)]
        waiters = Waiters(lambda i, r=readers: weir.weir_reader_next(r[i], -1, ctypes.byref(ctypes.c_void_p()), None))
        weir.weir_close(w)
        tap.check(waiters.join() <= {EINTERRUPTED, EMISUSE}, f"the answers are {waiters.answers}")
        is_so("a call on a handle that was closed", weir.weir_positions(w, None, None, None), EMISUSE)
        later = store_open()  # which is not taken for it
        is_so("and later", weir.weir_positions(w, None, None, None), EMISUSE)
        weir.weir_close(w)
        is_so("the other one", weir.weir_positions(later, None, None, None), OK)
        for reader in readers:
            weir.weir_reader_close(reader)
        weir.weir_engine_free(engine)
        weir.weir_engine_free(engine)
        is_so("a call on an engine that was freed", weir.weir_engine_stop(engine, 0, None), EMISUSE)
        weir.weir_close(later)


tap.run([
    an_interrupt_ends_the_waits_of_readers_and_engines,
    a_stop_ends_the_waits_of_an_engine,
    a_close_ends_the_waits_and_finalisers_may_come_in_any_order,
])
