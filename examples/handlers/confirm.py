#!/usr/bin/env python3
"""confirm.py - a handler for `exec:`: confirms orders up to a limit, and refers the others.

Safe to run twice: all that it does is in its answer. Weir writes the events of an answer in the same
transaction as the progress, so they happen exactly once, however often this program is run.

    weir work --on OrderPlaced --to 'confirm-{stream}' --exec ./confirm.py --from start
"""
import json
import sys

LIMIT = 1000


def handle(event):
    """The answer for one event."""
    total = event["data"].get("total")
    if not isinstance(total, (int, float)):
        # It will be the same next time: retries are of no use.
        return {"permanent": f"order without a total: {total!r}"}
    name = "OrderConfirmed" if total <= LIMIT else "OrderReferred"
    return {
        "ok": True,
        "append": [{"stream": event["stream"], "name": name, "data": {"total": total}}],
    }


for line in sys.stdin:
    try:
        answer = handle(json.loads(line)["event"])
    except Exception as error:  # one event that fails must not end the program
        answer = {"retry": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
