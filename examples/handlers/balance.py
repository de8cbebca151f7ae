#!/usr/bin/env python3
"""balance.py - a handler for `exec:`: keeps balances in a database of its own.

Safe to run twice: the key of the delivery goes into a table in the same transaction as the change. A
key that is there already means that this was done; then nothing is changed, and the answer is the same.

    BALANCES=balances.db weir work --on Deposited --on Withdrawn --to '{stream}' --exec ./balance.py --from start
"""
import json
import os
import sqlite3
import sys

# isolation_level None: BEGIN and COMMIT are ours, where they can be seen.
db = sqlite3.connect(os.environ["BALANCES"], isolation_level=None, timeout=10)
db.execute("CREATE TABLE IF NOT EXISTS handled (key TEXT PRIMARY KEY)")
db.execute("CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, amount INTEGER NOT NULL)")


def handle(delivery):
    event = delivery["event"]
    amount = event["data"]["amount"] * (1 if event["name"] == "Deposited" else -1)
    db.execute("BEGIN IMMEDIATE")
    try:
        new = db.execute("INSERT OR IGNORE INTO handled VALUES (?)", (delivery["key"],)).rowcount == 1
        if new:
            db.execute(
                "INSERT INTO balances VALUES (?, ?)"
                " ON CONFLICT (account) DO UPDATE SET amount = amount + excluded.amount",
                (event["stream"], amount),
            )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


for line in sys.stdin:
    try:
        handle(json.loads(line))
        answer = {"ok": True}
    except Exception as error:  # one event that fails must not end the program
        answer = {"retry": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
