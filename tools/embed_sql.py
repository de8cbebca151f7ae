#!/usr/bin/env python3
"""embed_sql.py - turns .sql files into a C header of string constants.

    embed_sql.py OUT.h IN.sql...

An input file is a sequence of named statements, each introduced by a marker on a line of its own:

    -- name: insert_event
    INSERT INTO event (stream, version) VALUES (?1, ?2);

The header then holds `static const char sql_insert_event[]`. A name may carry several SQL
statements (a schema, say): what is between two markers is one constant. Comments and empty lines
are left out, everything else stays as it is. SQL lives in .sql files so that it can be read,
formatted and explained as SQL.

Refused, with file and line: SQL before the first marker, a name that is not a C identifier, the
same name twice, a statement without SQL in it, a comment or literal that is never closed, a
literal that goes over a line break (it would lose its empty lines).
"""

import os
import re
import sys

MARKER = re.compile(r"^\s*--\s*name\s*:\s*(.*?)\s*$")
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


def statements(path):
    """Yields (name, line number, [sql line, ...]) for each marker of a file."""
    where = os.path.basename(path)
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    name, start, body = None, 0, []
    for number, line in enumerate(lines + ["-- name: end_of_file"], 1):
        marker = MARKER.match(line)
        if not marker:
            body.append(line)
            continue
        sql = without_comments("\n".join(body), where, start + 1)
        if name is not None:
            if not any(re.search(r"[^\s;]", part) for part in sql):
                raise SqlError(f"{where}:{start}: statement {name} is empty")
            yield name, start, sql
        elif sql:
            raise SqlError(f"{where}:1: SQL before the first '-- name:' marker")
        if number <= len(lines) and not IDENTIFIER.match(marker.group(1)):
            raise SqlError(f"{where}:{number}: bad statement name {marker.group(1)!r}")
        name, start, body = marker.group(1), number, []


def c_literal(line):
    """A line of SQL as a C string literal that ends in a line break."""
    # '?' is escaped as well: "??=" and its kin are trigraphs.
    escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
    return '"' + escaped.replace("\t", "\\t") + '\\n"'


def render(out_path, in_paths):
    """The text of the header."""
    guard = re.sub(r"[^A-Z0-9]+", "_", "WEIR_" + os.path.basename(out_path).upper())
    files = ", ".join(os.path.basename(p) for p in in_paths)
    text = [f"/* Generated from {files} by embed_sql.py: edit those. */"]
    text += [f"#ifndef {guard}", f"#define {guard}", ""]
    seen = {}
    for path in in_paths:
        for name, line, sql in statements(path):
            here = f"{os.path.basename(path)}:{line}"
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
    if len(argv) < 3:
        print("usage: embed_sql.py OUT.h IN.sql...", file=sys.stderr)
        return 2
    try:
        text = render(argv[1], argv[2:])
    except (SqlError, OSError, UnicodeDecodeError) as error:
        print(f"embed_sql.py: {error}", file=sys.stderr)
        return 1
    with open(argv[1], "w", encoding="utf-8") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
