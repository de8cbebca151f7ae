#!/usr/bin/env python3
"""append.py - the same as append.c, with nothing but ctypes.

    ./append.py sqlite:orders.db

The structs below are those of weir.h. Fields at their end may be left out: `size` tells the library
which ones there are, and it takes the rest as zero.
"""

import sys
from ctypes import CDLL, POINTER, Structure, byref, c_char, c_char_p, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_void_p, cast, pointer, sizeof

EXPECT_NONE, EXPECT_EXACT = 1, 3
OK, ECONFLICT = 0, -3

weir = CDLL("libweir.so.0")


class Sized(Structure):
    """A struct that starts with its own size."""

    def __init__(self, **fields):
        super().__init__(size=sizeof(type(self)), **fields)


class Str(Structure):
    _fields_ = [("ptr", POINTER(c_char)), ("len", c_size_t)]

    def text(self):
        return self.ptr[: self.len].decode()


def utf8(text):
    """A weir_str of some text; ctypes keeps the bytes alive for as long as the struct."""
    data = text.encode()
    return Str(cast(c_char_p(data), POINTER(c_char)), len(data))


class Error(Structure):
    _fields_ = [("size", c_uint32), ("code", c_int32), ("expected", c_int64), ("actual", c_int64),
                ("stream", c_char * 520), ("message", c_char * 512), ("detail", c_char * 512),
                ("store_code", c_char * 8), ("reserved", c_char * 472)]


class Options(Sized):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("store_url", c_char_p)]


class NewEvent(Sized):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("stream", Str), ("name", Str),
                ("data", Str), ("meta", Str)]


class Expectation(Sized):
    _fields_ = [("size", c_uint32), ("expect", c_int32), ("version", c_int64), ("stream", Str)]


class AppendRequest(Sized):
    _fields_ = [("size", c_uint32), ("flags", c_uint32),
                ("events", POINTER(POINTER(NewEvent))), ("events_count", c_size_t),
                ("expectations", POINTER(POINTER(Expectation))), ("expectations_count", c_size_t)]


class ReadOptions(Sized):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("fields", c_uint32),
                ("reserved", c_uint32), ("stream", Str)]


class Event(Structure):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("id", c_int64), ("version", c_int64),
                ("created_us", c_int64), ("stream", Str), ("name", Str), ("data", Str),
                ("meta", Str)]


weir.weir_append.argtypes = [c_void_p, POINTER(AppendRequest), c_void_p, POINTER(Error)]
weir.weir_reader_next.argtypes = [c_void_p, c_int32, POINTER(POINTER(Event)), POINTER(Error)]
weir.weir_reader_close.argtypes = [c_void_p]
weir.weir_close.argtypes = [c_void_p]


class WeirError(Exception):
    def __init__(self, error):
        super().__init__(error.message.decode())
        self.error = error


def call(function, *args):
    """Calls a function of weir.h whose last parameter is a weir_error."""
    error = Error()
    if function(*args, byref(error)) != OK:
        raise WeirError(error)


def append(store, name, expect, version=0):
    event = NewEvent(stream=utf8("order-1"), name=utf8(name))
    expectation = Expectation(stream=utf8("order-1"), expect=expect, version=version)
    call(weir.weir_append, store, AppendRequest(
        events=pointer(pointer(event)), events_count=1,
        expectations=pointer(pointer(expectation)), expectations_count=1), None)


def read(store, stream):
    reader, event = c_void_p(), POINTER(Event)()
    options = ReadOptions(stream=utf8(stream))
    call(weir.weir_read_open, store, byref(options), byref(reader))
    try:
        call(weir.weir_reader_next, reader, 0, byref(event))
        while event:
            yield event.contents
            call(weir.weir_reader_next, reader, 0, byref(event))
    finally:
        weir.weir_reader_close(reader)


def main():
    store = c_void_p()
    url = sys.argv[1].encode() if len(sys.argv) > 1 else None
    try:
        call(weir.weir_open, byref(Options(store_url=url)), byref(store))
        append(store, "OrderPlaced", EXPECT_NONE)
        try:  # we still believe that there is no such order: that is a conflict
            append(store, "OrderPaid", EXPECT_NONE)
        except WeirError as failure:
            if failure.error.code != ECONFLICT:
                raise
            error = failure.error
            print(f"conflict on {error.stream.decode()}: it is at version {error.actual}")
            append(store, "OrderPaid", EXPECT_EXACT, error.actual)
        for event in read(store, "order-1"):
            print(event.version, event.name.text(), event.data.text())
    except WeirError as failure:
        print(f"append: {failure}", file=sys.stderr)
        return 1
    finally:
        weir.weir_close(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
