#!/usr/bin/env python3
"""json_oracle_test.py - our JSON check against two that we did not write.

    json_oracle_test.py PROGRAM [SEED]

PROGRAM is json_oracle. The texts are hand-written, generated from SEED, and broken in small ways.

Python's json, decoding strictly, differs from RFC 8259 and from us in known ways only, and each is
taken out here, which makes it an exact oracle:
    - it reads NaN and Infinity: refused through parse_constant;
    - it limits the digits of integers: numbers stay text through parse_int and parse_float;
    - it accepts lone surrogates, \\u0000 and any depth, which we refuse on purpose: looked for in
      what it decoded.
What compact text looks like is computed with a regular expression that knows strings from space.

SQLite's json_valid() looks neither at UTF-8 nor at surrogates nor at our depth, and ends at a NUL.
So: what we accept it must accept, and what it accepts and we refuse must be one of those.
"""

import json
import os
import random
import re
import sqlite3
import struct
import subprocess
import sys

DEPTH_MAX = 128
GENERATED = 300
BROKEN_PER_TEXT = 5

VALID = [
    "{}", "[]", "null", "true", "false", '""', "0", "-0", "-0.0", "1e5", "1E+5", "1e-05", "0e0",
    "123456789012345678901234567890123456789012345", "0.1", "-1.5e300", "1e999999", "[ ]", "{ }",
    " \t\r\n1 \t\r\n", '{"a":1,"a":2}', '{"":""}', '"\\u0001"', '"\\ud83d\\ude00"', '"\\uffff"',
    '"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\u007f"', '"\u0080"', '"\u2028\u2029"', '"\U0010ffff"', '"\ufeff"',
    "[" * 128 + "]" * 128, '{"a":' * 127 + "[]" + "}" * 127, "[[],[[]],{},{\"a\":[]}]",
    '["a","b",["c"],{"d":"e"}]', '{"a" : [1 , 2 , {"b" : null}] , "c" : "d e" }', "9" * 5000,
    '"' + "x" * 5000 + '"', '"\\\\"', '"\\\\\\""', '["\\\\","]"]', "[1,2,3,4,5,6,7,8,9,0]",
]
INVALID = [
    "", " ", "\n", "nul", "nullx", "True", "NULL", "undefined", "NaN", "Infinity", "-Infinity", "Inf",
    "+1", "01", "-01", "00", "1.", ".1", "-", "-.1", "1e", "1e+", "1.e1", "1.1.1", "0x1", "1_0", "1,",
    "1 2", "[", "]", "{", "}", "[}", "{]", "[1", "[1,", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1:2]",
    '{"a"}', '{"a":}', '{"a":1,}', '{,"a":1}', '{"a":1 "b":2}', '{"a" 1}', "{a:1}", "{'a':1}", "'a'",
    "{1:2}", '{"a":1}}', "[1]]", "[1],", '{"a":1]', '[{"a":1]', '"', '"a', "\"a\\", '"a\\"', '"\\x41"',
    '"\\u"', '"\\u123"', '"\\u123g"', '"\\U0041"', '"\\\'"', '"\\0"', '"\\v"', '"\\a"', '"a\nb"', '"\t"',
    '"\x00"', '"\x1f"', "\x00", "1\x00", "[1]\x00", "\ufeff1", "\u00a01", "1\u00a0", "\v1", "\f1",
    "[1,\v2]", "//x\n1", "/**/1", "1//", "#1", "[1,2", "[true false]", "truefalse", '"a""b"', '"a"b',
    "{\"a\":1,\"b\"}", "{\"a\":,\"b\":1}", "{:1}", "{\"a\"::1}", "--1", "- 1", "1 .5", "1e 5", "[-]",
    "tru e", "[nul]", "{}{}", "[][]", "{} x", '"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"', '"\\ud800x"',
    '"\\ud800\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude0"', '"\\u0000"', '{"\\u0000":1}', "[" * 129 + "]" * 129,
    '{"a":' * 128 + "[]" + "}" * 128, "[" * 5000 + "]" * 5000, "[" * 5000,
]
INVALID_BYTES = [
    b'"\x80"', b'"\xc3"', b'"\xc0\x80"', b'"\xc1\xbf"', b'"\xe0\x80\x80"', b'"\xed\xa0\x80"', b'"\xed\xbf\xbf"',
    b'"\xf0\x8f\xbf\xbf"', b'"\xf4\x90\x80\x80"', b'"\xf5\x80\x80\x80"', b'"\xff"', b'"\xfe"', b'{"\xff":1}',
    b'"\xe2\x82"', b'"\xf0\x9f\x98"', b"\xff", b"1\xff", b"[\x80]", b'"abcdefg\xc3\x28"',
]


class Mismatch(AssertionError):
    pass


def refuse_constant(name):
    raise ValueError(name)


def parse(text):
    """The value, with objects as lists of pairs and numbers as their own text."""
    return json.loads(text, object_pairs_hook=lambda pairs: ("object", pairs), parse_int=str,
                      parse_float=str, parse_constant=refuse_constant)


def depth_of(text):
    """The deepest nesting of a text that is valid JSON."""
    depth = deepest = 0
    for c in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        depth += (c in "[{") - (c in "]}")
        deepest = max(deepest, depth)
    return deepest


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif isinstance(value, tuple):
        for name, item in value[1]:
            yield name
            yield from strings_in(item)


def python_says(data):
    """(accepted, accepted but for our own restrictions)"""
    try:
        text = data.decode("utf-8")
        value = parse(text)
    except (UnicodeDecodeError, ValueError):
        return False, False
    except RecursionError:  # far deeper than we allow, and Python cannot tell whether it is valid
        return False, None
    restricted = depth_of(text) > DEPTH_MAX or any(
        c == "\0" or "\ud800" <= c <= "\udfff" for s in strings_in(value) for c in s)
    return not restricted, True


def compacted(data):
    return re.sub(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', lambda m: m.group(1) or b"", data, flags=re.S)


def sqlite_says(connection, data):
    return connection.execute("select json_valid(cast(? as text))", (data,)).fetchone()[0] == 1


def space(rng):
    return "".join(rng.choice(" \t\r\n") for _ in range(rng.choice((0, 0, 0, 1, 2))))


def random_string(rng):
    pieces = []
    for _ in range(rng.choice((0, 1, 3, 8, 9, 20))):
        kind = rng.randrange(12)
        if kind < 6:
            pieces.append(rng.choice("abcXYZ 019_-/,:[]{}"))
        elif kind < 8:
            pieces.append(rng.choice(("\u00e9", "\u20ac", "\U0001f600", "\u0080", "\uffff", "\ud7ff", "\ue000")))
        elif kind < 10:
            pieces.append(rng.choice(('\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t")))
        elif kind < 11:
            pieces.append("\\u%04x" % rng.choice((1, 0x1F, 0x41, 0xE9, 0xD7FF, 0xE000, 0xFFFF)))
        else:
            code = rng.randrange(0x10000, 0x110000) - 0x10000
            pieces.append("\\u%04X\\u%04x" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)))
    return '"' + "".join(pieces) + '"'


def random_number(rng):
    text = rng.choice(("", "-")) + rng.choice(("0", str(rng.randrange(1, 10 ** rng.choice((1, 5, 40))))))
    if rng.random() < 0.4:
        text += "." + "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 20)))
    if rng.random() < 0.3:
        text += rng.choice("eE") + rng.choice(("", "+", "-")) + str(rng.randrange(0, 400))
    return text


def random_value(rng, depth):
    kind = rng.randrange(9 if depth > 0 else 6)
    if kind < 2:
        return random_string(rng)
    if kind < 4:
        return random_number(rng)
    if kind < 6:
        return rng.choice(("true", "false", "null", "{}", "[]"))
    count = rng.randrange(0, 5)
    if kind < 8:
        members = (space(rng) + random_string(rng) + space(rng) + ":" + space(rng)
                   + random_value(rng, depth - 1) + space(rng) for _ in range(count))
        return "{" + (",".join(members) or space(rng)) + "}"
    items = (space(rng) + random_value(rng, depth - 1) + space(rng) for _ in range(count))
    return "[" + (",".join(items) or space(rng)) + "]"


def broken(rng, data):
    """`data` with one small change, which may well leave it valid."""
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + 1:]
    if kind == 2:
        return data[:at] + bytes([rng.choice(b'"\\,:[]{}01-+.eEu \n\x00\x1f\x80\xc3\xed\xff')]) + data[at:]
    if kind == 3:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    other = rng.randrange(len(data) + 1)
    return data[:at] + data[min(at, other):max(at, other)] + data[at:]


def ask(program, texts):
    """Our verdict on each text: (accepted, compact text or message)."""
    request = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    reply = subprocess.run([program], input=request, stdout=subprocess.PIPE, check=True).stdout
    verdicts, at = [], 0
    while at < len(reply):
        (length,) = struct.unpack_from("<I", reply, at + 1)
        verdicts.append((reply[at:at + 1] == b"A", reply[at + 5:at + 5 + length]))
        at += 5 + length
    if len(verdicts) != len(texts):
        raise Mismatch(f"{len(verdicts)} answers to {len(texts)} texts")
    return verdicts


class Suite:
    def __init__(self, program, seed):
        rng = random.Random(seed)
        self.valid = [t.encode() for t in VALID]
        self.invalid = [t.encode() for t in INVALID] + INVALID_BYTES
        self.generated = [(space(rng) + random_value(rng, 5) + space(rng)).encode()
                          for _ in range(GENERATED)]
        self.broken = [broken(rng, text) for text in self.valid + self.generated
                       if len(text) < 2000 for _ in range(BROKEN_PER_TEXT)]
        texts = self.valid + self.invalid + self.generated + self.broken
        self.verdicts = dict(zip(texts, ask(program, texts)))

    def hand_written_valid_texts_are_accepted(self):
        for text in self.valid:
            if not self.verdicts[text][0]:
                raise Mismatch(f"{text!r}: {self.verdicts[text][1]!r}")

    def hand_written_invalid_texts_are_refused(self):
        for text in self.invalid:
            if self.verdicts[text][0]:
                raise Mismatch(f"{text!r}")

    def python_accepts_exactly_what_we_accept(self):
        both = neither = 0
        for text, (accepted, answer) in self.verdicts.items():
            if python_says(text)[0] != accepted:
                raise Mismatch(f"{text!r}: we {'accept' if accepted else 'refuse'} it: {answer!r}")
            both += accepted
            neither += not accepted
        if min(both, neither) < 300:
            raise Mismatch(f"the texts prove little: {both} valid, {neither} invalid")

    def compact_text_differs_in_space_only_and_means_the_same(self):
        for text, (accepted, answer) in self.verdicts.items():
            if not accepted:
                continue
            if answer != compacted(text):
                raise Mismatch(f"{text!r} became {answer!r}")
            if parse(answer.decode()) != parse(text.decode()):
                raise Mismatch(f"{text!r} means something else as {answer!r}")

    def offsets_lie_in_the_text(self):
        for text, (accepted, answer) in self.verdicts.items():
            if accepted:
                continue
            match = re.match(rb"invalid JSON at byte (\d+): \S", answer)
            if match is None or int(match.group(1)) > len(text):
                raise Mismatch(f"{text!r}: {answer!r}")

    def sqlite_accepts_what_we_accept(self):
        connection = sqlite3.connect(":memory:")
        for text, (accepted, _) in self.verdicts.items():
            if accepted and not sqlite_says(connection, text):
                raise Mismatch(f"{text!r}")

    def what_sqlite_accepts_and_we_refuse_is_refused_on_purpose(self):
        connection = sqlite3.connect(":memory:")
        for text, (accepted, answer) in self.verdicts.items():
            if accepted or b"\0" in text or not sqlite_says(connection, text):
                continue
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                continue
            if python_says(text)[1] is not True:
                raise Mismatch(f"{text!r}: {answer!r}, SQLite {sqlite3.sqlite_version} accepts it")


TESTS = [
    Suite.hand_written_valid_texts_are_accepted,
    Suite.hand_written_invalid_texts_are_refused,
    Suite.python_accepts_exactly_what_we_accept,
    Suite.compact_text_differs_in_space_only_and_means_the_same,
    Suite.offsets_lie_in_the_text,
    Suite.sqlite_accepts_what_we_accept,
    Suite.what_sqlite_accepts_and_we_refuse_is_refused_on_purpose,
]


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ.get("WEIR_JSON_SEED", "1"))
    print(f"1..{len(TESTS)}")
    print(f"# seed {seed}")
    suite = Suite(sys.argv[1], seed)
    failed = 0
    for number, test in enumerate(TESTS, 1):
        try:
            test(suite)
            print(f"ok {number} - {test.__name__}")
        except Mismatch as error:
            failed += 1
            print(f"not ok {number} - {test.__name__}\n# {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
