#!/usr/bin/env python3
"""lint_test.py - weir lint finds in every statement of this directory what is expected there, and
nothing else, however the statement is written.

    lint_test.py [SUBSTRING]    only cases whose name has it

README.md says how a case is written. Each is given to weir lint as it stands, and in other forms
that mean the same: in lower and upper case, with comments between all tokens, on one line, behind
a WITH, in the body of a function. What is a token is decided here for a second time, on purpose: a
mistake of weir's own tokenizer does not hide itself.
"""

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "stress"))
import tap  # pylint: disable=wrong-import-position

# Without nested comments, which the expression below cannot have.
TOKEN = re.compile(r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<quoted>[eE]'(?:[^'\\]|\\.|'')*' | (?:[uU]&)?'(?:[^']|'')*' | :?"(?:[^"]|"")*" | :'[^']*'
      | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$ | `[^`]*`)
  | (?P<hole><[a-z_]+> | \$?\{[a-z_]+\} | %\([a-z]+\)s | %s | [$:@?][A-Za-z0-9_]+)
  | (?P<word>[^\W\d][\w$]*) | (?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
  | (?P<op>::|:=|->>|->|\#>>|@>|<>|<=|>=|\|\||<<|>>|!=|.)
""", re.VERBOSE | re.DOTALL)
EXPECT = re.compile(r"\s*-- expect(-above|-at)?: *(.*)$")


class Case:
    """One case: its text without expectations, and what is to be found in it."""

    def __init__(self, source, name):
        self.name = f"{source}: {name}"
        self.args, self.skip, self.lines, self.expected = [], [], [], []

    def add(self, line):
        if line.startswith("-- args: "):
            self.args = line[len("-- args: "):].split()
            return
        if line.startswith("-- skip: "):
            self.skip = [word.strip() for word in line[len("-- skip: "):].split(",")]
            return
        found = EXPECT.search(line)
        if found:
            line = line[:found.start()]
            where, rules = found.groups()
            number = len(self.lines) + 1
            if where == "-above":
                number -= 1
            elif where == "-at":
                place, rules = rules.split(" ", 1)
                number = int(place)
            self.expected += [(number, rule.strip()) for rule in rules.split(",")]
        self.lines.append(line)

    @property
    def text(self):
        return "\n".join(self.lines).rstrip("\n") + "\n"


def read_cases():
    cases = []
    for source in sorted(os.listdir(HERE)):
        if not source.endswith(".sql"):
            continue
        with open(os.path.join(HERE, source), encoding="utf-8") as file:
            case = None
            for line in file.read().split("\n"):
                if line.startswith("-- case: "):
                    case = Case(source[:-4], line[len("-- case: "):])
                    cases.append(case)
                elif case is not None:
                    case.add(line)
    return cases


# ---- other forms -----------------------------------------------------------------------------


def tokens(text):
    """Pairs of kind and text; whitespace and comments are kept as "space"."""
    return [(m.lastgroup if m.lastgroup != "tag" else "quoted", m.group())
            for m in TOKEN.finditer(text)]


def without_nested(text):
    """The one nested comment of these files, as a plain one."""
    return text.replace("/* a /* b */ FOR UPDATE SKIP LOCKED */", "/* a b */")


def in_case(case, change):
    return "".join(change(t) if kind == "word" else t
                   for kind, t in tokens(without_nested(case.text)))


def with_blocks(case):
    """A comment between all tokens, on the same lines."""
    out = []
    for kind, text in tokens(without_nested(case.text)):
        if kind == "space":
            out.append("".join(c if c == "\n" else "/* ; -- ' $$ ( /* FOR UPDATE SKIP LOCKED */ */"
                               for c in text if c.isspace()) if not text.startswith("--") else "")
        else:
            out.append("/**/" + text)
    return "".join(out) + "--"


def with_lines(case):
    """Every token on a line of its own, with a comment before it."""
    return "\n".join(f"-- it's ( /* ; FOR UPDATE\n{text}"
                     for kind, text in tokens(without_nested(case.text)) if kind != "space")


def on_one_line(case):
    return " ".join(text.replace("\n", " ") if kind == "quoted" else text
                    for kind, text in tokens(without_nested(case.text)) if kind != "space")


def statements(text, change):
    """The text with `change` applied to the words that begin a statement."""
    out, start = [], True
    for kind, token in tokens(without_nested(text)):
        if kind == "word" and start:
            token = change(token)
        out.append(token)
        start = token == ";" or (start and kind == "space")
    return "".join(out)


def behind_with(case):
    def change(word):
        if word.upper() in ("SELECT", "UPDATE", "DELETE", "INSERT"):
            return "WITH unrelated (n) AS (SELECT 1 FROM elsewhere) " + word
        if word.upper() == "WITH":
            return "WITH unrelated (n) AS (SELECT 1 FROM elsewhere),"
        return word
    return statements(case.text, change)


def without_transactions(text):
    """Statements alone: BEGIN, COMMIT and their like are for sessions."""
    out = re.sub(r"(?m)^(BEGIN|START TRANSACTION|COMMIT|END)\b[^;\n]*;", "", text)
    return out.replace("SAVEPOINT tried;", "").replace("ROLLBACK TO ", "")


def in_function(case):
    body = without_transactions(case.text)
    return f"CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $body$\nBEGIN\n{body}END $body$;\n"


def in_block(case):
    return f"SELECT 1;\nDO $block$ BEGIN\n{without_transactions(case.text)}END $block$;\n"


def in_atomic(case):
    body = without_transactions(case.text)
    return f"CREATE PROCEDURE p() LANGUAGE sql\nBEGIN ATOMIC\n{body}END;\n"


def in_body(expected):
    """A body is one transaction."""
    return [(line + 2, rule) for line, rule in expected if rule != "not-one-transaction"]


def same(expected):
    return expected


# Name, how it is made, what is expected of it, whether lines count.
FORMS = [
    ("as it stands", lambda case: case.text, same, True),
    ("lower", lambda case: in_case(case, str.lower), same, True),
    ("upper", lambda case: in_case(case, str.upper), same, True),
    ("comments", with_blocks, same, True),
    ("comments", with_lines, same, False),
    ("line", on_one_line, same, False),
    ("cte", behind_with, same, True),
    ("function", in_function, in_body, True),
    ("function", in_block, in_body, True),
    ("function", in_atomic, in_body, True),
]


# ---- the tests -------------------------------------------------------------------------------


def check_case(case, directory):
    paths = []
    for number, (name, make, _, _) in enumerate(FORMS):
        if name in case.skip:
            continue
        path = os.path.join(directory, f"{number}.sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write(make(case))
        paths.append((number, path))
    done = tap.weir("lint", "--json", *case.args, *[path for _, path in paths])
    tap.check(done.stderr == "", f"weir lint said: {done.stderr}")
    found = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        tap.check(sorted(row) == ["file", "line", "message", "rule"], f"its members: {line}")
        found.setdefault(row["file"], []).append((row["line"], row["rule"]))
    tap.check(done.returncode == (1 if found else 0), f"exit status {done.returncode}")
    for number, path in paths:
        name, make, expected_of, lines = FORMS[number]
        expected = sorted(set(expected_of(case.expected)))
        actual = sorted(found.get(path, []))
        if not lines:
            expected = sorted(rule for _, rule in expected)
            actual = sorted(rule for _, rule in actual)
            if name == "line":
                expected, actual = sorted(set(expected)), sorted(set(actual))
        tap.check(actual == expected,
                  f"{name} ({number}): expected {expected}, found {actual} in\n{make(case)}")


def test_of(case):
    def test():
        with tap.Directory("lint") as directory:
            check_case(case, directory)
    test.__name__ = re.sub(r"\W+", "_", case.name).strip("_")
    return test


CASES = read_cases()
KNOWN = {json.loads(line)["rule"] for line in tap.weir("lint", "--rules", "--json").stdout.splitlines()}


def there_are_80_statements_and_30_harmless_ones():
    harmless = [case for case in CASES if case.name.startswith("harmless:")]
    tap.check(len(CASES) - len(harmless) >= 80, f"{len(CASES) - len(harmless)} statements")
    tap.check(len(harmless) >= 30, f"{len(harmless)} harmless ones")
    tap.check(not any(case.expected for case in harmless), "a harmless one is not")
    tap.check(len({case.name for case in CASES}) == len(CASES), "two cases with one name")


def every_rule_is_expected_somewhere_and_no_other():
    expected = {rule for case in CASES for _, rule in case.expected}
    tap.check(expected == KNOWN, f"expected {sorted(expected)}, known {sorted(KNOWN)}")


def every_rule_has_a_wrong_and_a_right_example():
    rules = [json.loads(line) for line in tap.weir("lint", "--rules", "--json").stdout.splitlines()]
    for rule in rules:
        for which, expected in (("wrong", [rule["rule"]]), ("right", [])):
            args = ["--limit", "10"] if rule["rule"] == "wrong-limit" else []
            done = tap.weir("lint", "--json", *args, "-", input=rule[which])
            found = [json.loads(line)["rule"] for line in done.stdout.splitlines()]
            tap.check(found == expected, f"{which} example of {rule['rule']}: found {found}")


if __name__ == "__main__":
    wanted = [case for case in CASES if sys.argv[1:] == [] or sys.argv[1] in case.name]
    tap.run([there_are_80_statements_and_30_harmless_ones,
             every_rule_is_expected_somewhere_and_no_other,
             every_rule_has_a_wrong_and_a_right_example] + [test_of(case) for case in wanted])
