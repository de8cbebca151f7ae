#!/usr/bin/env python3
"""four_processes_test.py - four processes on one file, checkpointing all the time, for a minute.

The threshold of ten pages makes nearly every commit a checkpoint, which is where SQLite's WAL-reset
bug lives. Each process watches its own locks at every write (rule.h) and keeps a history; at the
end the histories are held against the log and the file is checked. WEIR_STORM_SECONDS changes the
time.
"""

import json
import os
import subprocess

import history
import tap

SECONDS = int(os.environ.get("WEIR_STORM_SECONDS", "60"))
PROCESSES = 4


def four_processes_with_a_tiny_checkpoint_threshold_keep_the_file_sound():
    with tap.Directory("four") as top:
        store, directory = os.path.join(top, "s.db"), os.path.join(top, "h")
        os.mkdir(directory)
        url = f"sqlite:{store}?checkpoint=10&vfs=rule"
        clients = [subprocess.Popen(
            [tap.program("storm_client"), "--url", url, "--history", directory, "--name", f"p{i}",
             "--threads", "2", "--streams", "16", "--seconds", str(SECONDS), "--seed", str(i + 1),
             "--rule"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for i in range(PROCESSES)]
        reports = []
        for client in clients:
            out, err = client.communicate()
            tap.check(client.returncode == 0,
                      f"a client ended with {client.returncode}: {out} {err}")
            reports.append(json.loads(out))
        found, summary = history.check(store, directory)
        print(f"# {json.dumps(summary)}")
        print(f"# {json.dumps(reports)}")
        for kind, text in found[:20]:
            print(f"# {kind}: {text}")
        tap.check(not found, f"{len(found)} violations")
        tap.check(summary["ended"] == 2 * PROCESSES, "a client did not come to its end")
        tap.check(sum(r["breaches"] for r in reports) == 0, "the locking rule was broken")
        checkpoints = sum(r["checkpoints"] for r in reports)
        tap.check(checkpoints > 100 * SECONDS / 60, f"only {checkpoints} checkpoints")
        done = tap.weir("doctor", "--store", f"sqlite:{store}", "--json")
        tap.check(done.returncode == 0, f"weir doctor: {done.stdout} {done.stderr}")


tap.run([four_processes_with_a_tiny_checkpoint_threshold_keep_the_file_sound])
