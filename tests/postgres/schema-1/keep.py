#!/usr/bin/env python3
"""keep.py - writes down what schema 1 is, and what its client sends.

    tests/postgres/schema-1/keep.py BUILD

BUILD is a configured build directory. What is needed is built, and run with a server of its own.

create.sql  what weir init runs, as weir init --plan prints it
client.sql  every statement that schema_client sends, as the server has logged it, with the values
            of its parameters, for psql
client.out  what psql prints for it on a new store, without what differs from run to run (times,
            UUIDs)

Of schema 1 only create.sql is kept: its programs are refused by schema 2 (schema_test), because they
name a lease by its fence alone. When schema 2 is released, its set is written in the same way.

    keep.py --check URL

replays client.sql on the store there, which must be new, and compares with client.out.
"""

import difflib
import glob
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Answers that are about the server and the moment: they are asked for, and not shown.
UNSHOWN = (
    "client_least",
    "pg_backend_pid",
    "pg_locks",
    "pg_total_relation_size",
    "weir.server()",
)
MASK = (
    (r"\b[0-9]{13,}\b", "TIME"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+\+[0-9:]+", "TIME"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"psql:[^ ]*client\.sql:[0-9]+: ", ""),
)


def masked(text):
    for pattern, word in MASK:
        text = re.sub(pattern, word, text)
    return text


def replay(psql, url):
    """What psql prints for client.sql."""
    done = subprocess.run(
        [psql, "-X", "-A", "-d", url, "-f", os.path.join(HERE, "client.sql")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return masked(done.stdout)


def parameters(detail):
    """The values of "parameters: $1 = '...', $2 = NULL", as SQL literals."""
    return re.findall(r"\$[0-9]+ = (NULL|'(?:[^']|'')*')", detail or "")


def logged(data):
    """(statement, [literal, ...]) in the order in which the server got them from Weir."""
    for path in sorted(glob.glob(os.path.join(data, "log", "*.json"))):
        with open(path, encoding="utf-8") as f:
            for line in f:
                entry = json.loads(line)
                found = re.match(
                    r"(?:statement|execute [^:]*): (.*)", entry.get("message", ""), re.DOTALL
                )
                if found and entry.get("application_name") == "weir":
                    yield found.group(1).strip(), parameters(entry.get("detail"))


def script(statements):
    """For psql: every text is prepared once, as a client does."""
    names = {}
    out = ["-- What the client of schema 1 sends; written by keep.py.", ""]
    for sql, values in statements:
        if sql not in names:
            names[sql] = f"s{len(names) + 1}"
            out.append(f"PREPARE {names[sql]} AS\n{sql.rstrip(';')};")
        if "weir.server()" in sql:  # which server it was does not matter, and differs every time
            values = [re.sub(r"^'[0-9]{13,}'$", "'0'", value) for value in values]
        call = f"EXECUTE {names[sql]}" + (f" ({', '.join(values)})" if values else "")
        unshown = any(word in sql for word in UNSHOWN)
        out.append(f"{call} \\g /dev/null" if unshown else f"{call};")
    return "\n".join(out) + "\n"


def check(psql, url):
    """Whether a store answers the client of schema 1 as the store of schema 1 did."""
    with open(os.path.join(HERE, "client.out"), encoding="utf-8") as f:
        expected = f.read().splitlines()
    got = replay(psql, url).splitlines()
    for line in difflib.unified_diff(expected, got, "client.out", "this store", lineterm=""):
        print("# " + line)
    return 0 if got == expected else 1


def run_with_server(build):
    """This program again, with a server that writes down what it is sent."""
    subprocess.check_call(["ninja", "-C", build, "weir", "tests/postgres/schema_client"])
    server = os.path.join(os.path.dirname(HERE), "with-server")
    settings = ("logging_collector=on", "log_destination=jsonlog", "log_statement=all")
    words = [word for setting in settings for word in ("-c", setting)]
    again = [sys.executable, os.path.abspath(__file__), os.path.abspath(build)]
    os.execv(server, [server, "--own", *words, "--", *again])


def main():
    if len(sys.argv) == 2 and "WEIR_TEST_PG_DATA" not in os.environ:
        run_with_server(sys.argv[1])
    psql = os.path.join(os.environ["WEIR_TEST_PG_BIN"], "psql")
    if sys.argv[1] == "--check":
        return check(psql, sys.argv[2])
    build = sys.argv[1]
    server = os.environ["WEIR_TEST_POSTGRES"]
    weir = os.path.join(build, "weir")

    def database(name):
        subprocess.check_call([psql, "-X", "-q", "-d", server, "-c", f"CREATE DATABASE {name}"])
        return f"{server}&dbname={name}"

    first, second = database("first"), database("second")
    plan = subprocess.check_output([weir, "init", "--plan", "--text", "--store", first], text=True)
    with open(os.path.join(HERE, "create.sql"), "w", encoding="utf-8") as f:
        f.write("-- What weir init runs for schema 1; written by keep.py.\n" + plan)
    subprocess.check_call([weir, "init", "--store", first], stdout=subprocess.DEVNULL)
    before = len(list(logged(os.environ["WEIR_TEST_PG_DATA"])))
    subprocess.check_call([os.path.join(build, "tests/postgres/schema_client"), first])
    time.sleep(0.5)  # the collector writes what it has
    sent = [
        (sql, values)
        for sql, values in list(logged(os.environ["WEIR_TEST_PG_DATA"]))[before:]
        if re.match(r"(SELECT|WITH|INSERT|UPDATE|DELETE)\b", sql) and "weir." in sql
    ]
    with open(os.path.join(HERE, "client.sql"), "w", encoding="utf-8") as f:
        f.write(script(sent))
    create = os.path.join(HERE, "create.sql")
    subprocess.check_call(
        [psql, "-X", "-q", "-d", second, "-f", create], stdout=subprocess.DEVNULL
    )
    with open(os.path.join(HERE, "client.out"), "w", encoding="utf-8") as f:
        f.write(replay(psql, second))
    print(f"kept {len(sent)} calls of {len({sql for sql, _ in sent})} statements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
