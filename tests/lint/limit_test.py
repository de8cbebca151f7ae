#!/usr/bin/env python3
"""limit_test.py - limit-not-kept is found in a statement exactly when PostgreSQL does not keep its
LIMIT.

A table with a primary key, statistics from when it had one row, and 40 rows more: every way to
write the claim of five of them is run there, and the rows it took are counted. Needs a server in
$WEIR_TEST_POSTGRES.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "stress"))
import tap  # pylint: disable=wrong-import-position

TABLE = """
CREATE TABLE jobs (id integer PRIMARY KEY, status text NOT NULL) WITH (autovacuum_enabled = off);
INSERT INTO jobs VALUES (1, 'pending');
ANALYZE jobs;
INSERT INTO jobs SELECT n, 'pending' FROM generate_series(2, 41) AS n;
"""
TAKE = "SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT {} FOR UPDATE{}"
SKIP = " SKIP LOCKED"


def claimed(statement):
    """How many rows the statement takes."""
    psql = os.path.join(os.environ["WEIR_TEST_PG_BIN"], "psql")
    script = (f"BEGIN;\n{TABLE}\n{statement};\n"
              "SELECT 41 - count(*) FROM jobs WHERE status = 'pending';\nROLLBACK;\n")
    done = subprocess.run([psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
                           os.environ["WEIR_TEST_POSTGRES"]], input=script, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    tap.check(done.returncode == 0, done.stderr)
    return int(done.stdout.splitlines()[-1])


def rules(statement):
    done = tap.weir("lint", "--json", "-", input=statement)
    tap.check(done.returncode in (0, 1), done.stderr)
    return [json.loads(line)["rule"] for line in done.stdout.splitlines()]


def check(statement, limit):
    count = claimed(statement)
    found = "limit-not-kept" in rules(statement)
    tap.check(found == (count > limit), f"took {count} of {limit}, found {rules(statement)} in {statement}")
    return count > limit


def test_of(name, statement, limit, kept):
    def test():
        tap.check(check(statement, limit) != kept, f"PostgreSQL {'does not keep' if kept else 'keeps'} the LIMIT here")
    test.__name__ = name
    return test


def tests():
    five, one = TAKE.format(5, SKIP), TAKE.format(1, SKIP)
    update = "UPDATE jobs SET status = 'running' "
    forms = [
        ("in", 5, False, f"{update} WHERE id IN ({five}) RETURNING id"),
        ("in_without_skip_locked", 5, False, f"{update} WHERE id IN ({TAKE.format(5, '')}) RETURNING id"),
        ("any_of_a_query", 5, False, f"{update} WHERE id = ANY ({five}) RETURNING id"),
        ("a_subquery_in_from", 5, False, f"{update} FROM ({five}) AS p WHERE jobs.id = p.id RETURNING jobs.id"),
        ("delete_in", 5, False, f"DELETE FROM jobs WHERE id IN ({five}) RETURNING id"),
        ("delete_using", 5, False, f"DELETE FROM jobs USING ({five}) AS p WHERE jobs.id = p.id RETURNING jobs.id"),
        ("with_materialized", 5, True, f"WITH p AS MATERIALIZED ({five}) {update} FROM p WHERE jobs.id = p.id RETURNING jobs.id"),
        ("with", 5, True, f"WITH p AS ({five}) {update} WHERE id IN (SELECT id FROM p) RETURNING id"),
        ("with_not_materialized", 5, True, f"WITH p AS NOT MATERIALIZED ({five}) {update} FROM p WHERE jobs.id = p.id RETURNING jobs.id"),
        ("any_of_an_array", 5, True, f"{update} WHERE id = ANY (ARRAY({five})) RETURNING id"),
        ("a_single_value", 1, True, f"{update} WHERE id = ({one}) RETURNING id"),
    ]
    return [test_of(f"{name}_{'keeps_its_limit' if kept else 'takes_too_many'}", statement, limit, kept)
            for name, limit, kept, statement in forms]


tap.run(tests())
