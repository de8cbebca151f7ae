#!/usr/bin/env python3
"""embed_sql.py - turns .sql files into a C header of string constants.

    embed_sql.py OUT.h [--words WORDS.sql]... IN.sql...

An input file is a sequence of named statements, each introduced by a marker on a line of its own:

    -- name: insert_event
    INSERT INTO event (stream, version) VALUES (?1, ?2);

The header then holds `static const char sql_insert_event[]`. A name may carry several SQL
statements (a schema, say): what is between two markers is one constant. Comments and empty lines
are left out, everything else stays as it is. SQL lives in .sql files so that it can be read,
formatted and explained as SQL.

What several statements share stands once, in a file of words. A constant is a number or a literal
that means something; a fragment is any piece of SQL, and may contain words itself:

    -- constant: rule_work 4
    -- fragment: is_free
    (t.holder IS NULL OR t.lease_until <= started)

Outside of literals, `{is_free}` stands for it; its second and later lines are indented like the line
it is put into. The header also has `#define SQL_RULE_WORK (4)` for constants that are numbers, so that
C can check that they mean the same there.

Refused, with file and line: SQL before the first marker, a name that is not a C identifier, the
same name twice, a statement without SQL in it, a comment or literal that is never closed, a
literal that goes over a line break (it would lose its empty lines), a word that nobody has
defined or that contains itself.
"""

import os
import re
import sys

MARKER = re.compile(r"^\s*--\s*name\s*:\s*(.*?)\s*$")
WORD_MARKER = re.compile(r"^\s*--\s*(constant|fragment)\s*:\s*(.*?)\s*$")
WORD = re.compile(r"\{([a-z][a-z0-9_]*)\}")
IDENTIFIER = re.compile(r"^[a-z][a-z0-9_]*$")
CLOSING = {"'": "'", '"': '"', "`": "`", "[": "]"}


class SqlError(Exception):
    """Bad input; the message starts with file and line."""


def without_comments(text, where, first_line):
    """`text` without -- and /* */ comments, literals and quoted names untouched."""
    out = []
    i = 0
    while i < len(text):
        line = first_line + text.count("\n", 0, i)
        if text.startswith("--", i):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif text.startswith("/*", i):
            end = text.find("*/", i + 2)
            if end < 0:
                raise SqlError(f"{where}:{line}: comment is never closed")
            out.append(" " + "\n" * text.count("\n", i, end))
            i = end + 2
        elif text[i] in CLOSING:
            # A doubled quote inside a literal reads as two literals side by side: same text.
            end = text.find(CLOSING[text[i]], i + 1)
            if end < 0:
                raise SqlError(f"{where}:{line}: {text[i]} is never closed")
            if "\n" in text[i:end]:
                raise SqlError(f"{where}:{line}: a literal goes over a line break")
            out.append(text[i : end + 1])
            i = end + 1
        else:
            out.append(text[i])
            i += 1
    lines = [part.rstrip() for part in "".join(out).split("\n")]
    return [part for part in lines if part]


def parts(path, marker, first):
    """Yields (match, where, [sql line, ...]) for each marker of a file; `first` is where it must begin."""
    where = os.path.basename(path)
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    found, start, body = None, 0, []
    for number, line in enumerate(lines + [None], 1):
        match = line is not None and marker.match(line)
        if line is not None and not match:
            body.append(line)
            continue
        sql = without_comments("\n".join(body), where, start + 1)
        if found:
            yield found, f"{where}:{start}", sql
        elif sql:
            raise SqlError(f"{where}:1: SQL before the first {first} marker")
        found, start, body = match, number, []


def statements(path, words):
    """Yields (name, place, [sql line, ...]) for each statement of a file."""
    for match, where, sql in parts(path, MARKER, "'-- name:'"):
        name = match.group(1)
        if not IDENTIFIER.match(name):
            raise SqlError(f"{where}: bad statement name {name!r}")
        if not any(re.search(r"[^\s;]", part) for part in sql):
            raise SqlError(f"{where}: statement {name} is empty")
        yield name, where, words.put_into(sql, where, ())


class Words:
    """What `{name}` stands for."""

    def __init__(self):
        self.constants = {}  # name -> text
        self.fragments = {}  # name -> (place, [sql line, ...])

    def read(self, path):
        for match, where, sql in parts(path, WORD_MARKER, "'-- constant:' or '-- fragment:'"):
            kind, rest = match.groups()
            name, _, value = rest.partition(" ")
            if not IDENTIFIER.match(name) or (kind == "fragment") == bool(value):
                raise SqlError(f"{where}: bad {kind} {rest!r}")
            if name in self.constants or name in self.fragments:
                raise SqlError(f"{where}: {name} is defined twice")
            if bool(sql) != (kind == "fragment"):
                raise SqlError(f"{where}: {kind} {name} has {'SQL' if sql else 'no SQL'}")
            if kind == "constant":
                self.constants[name] = value.strip()
            else:
                self.fragments[name] = (where, sql)

    def put_into(self, lines, where, inside):
        """`lines` with every word replaced; inside: the fragments they belong to."""
        out = []
        for line in lines:
            indent = " " * (len(line) - len(line.lstrip()))
            text, end = "", 0
            for match in WORD.finditer(line):
                name = match.group(1)
                if line.count("'", 0, match.start()) % 2 == 1:
                    continue
                if name in inside:
                    raise SqlError(f"{where}: {name} contains itself")
                if name in self.constants:
                    word = self.constants[name]
                elif name in self.fragments:
                    place, body = self.fragments[name]
                    word = ("\n" + indent).join(self.put_into(body, place, inside + (name,)))
                else:
                    raise SqlError(f"{where}: nobody has defined {{{name}}}")
                text, end = text + line[end : match.start()] + word, match.end()
            out += (text + line[end:]).split("\n")
        return out


def c_literal(line):
    """A line of SQL as a C string literal that ends in a line break."""
    # '?' is escaped as well: "??=" and its kin are trigraphs.
    escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
    return '"' + escaped.replace("\t", "\\t") + '\\n"'


def render(out_path, words_paths, in_paths):
    """The text of the header."""
    guard = re.sub(r"[^A-Z0-9]+", "_", "WEIR_" + os.path.basename(out_path).upper())
    files = ", ".join(os.path.basename(p) for p in in_paths)
    text = [f"/* Generated from {files} by embed_sql.py: edit those. */"]
    text += [f"#ifndef {guard}", f"#define {guard}", ""]
    words = Words()
    for path in words_paths:
        words.read(path)
    for name, value in words.constants.items():
        if re.fullmatch(r"-?[0-9]+", value):
            text.append(f"#define SQL_{name.upper()} ({value})")
    seen = {}
    for path in in_paths:
        for name, here, sql in statements(path, words):
            if name in seen:
                raise SqlError(f"{here}: statement {name} is already at {seen[name]}")
            seen[name] = here
            text.append(f"/* {here} */")
            text.append(f"static const char sql_{name}[] __attribute__((unused)) =")
            text.append("\n".join("    " + c_literal(part) for part in sql) + ";")
            text.append("")
    if not seen:
        raise SqlError(f"{files}: no statements")
    return "\n".join(text + ["#endif", ""])


def main(argv):
    words_paths, in_paths = [], argv[2:]
    while len(in_paths) > 1 and in_paths[0] == "--words":
        words_paths.append(in_paths[1])
        del in_paths[:2]
    if not in_paths:
        print("usage: embed_sql.py OUT.h [--words WORDS.sql]... IN.sql...", file=sys.stderr)
        return 2
    try:
        text = render(argv[1], words_paths, in_paths)
    except (SqlError, OSError, UnicodeDecodeError) as error:
        print(f"embed_sql.py: {error}", file=sys.stderr)
        return 1
    with open(argv[1], "w", encoding="utf-8") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
