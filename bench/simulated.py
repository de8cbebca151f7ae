"""simulated.py - tmpfs instead of a disk, with syncs that take a fixed time. See run.

For machines whose disk others use. The server that with-server started moves to tmpfs, and so does
everything else that a row writes. Server and programs get the fdatasync of slow_sync.c.
"""

import os
import shutil
import subprocess
import tempfile

# Waits until this program has ended, however that was, and the server's directory $1 is gone; then
# removes $0.
GUARD = 'cat; n=0; while [ -e "$1" ] && [ $n -lt 300 ]; do sleep 0.2; n=$((n + 1)); done; rm -rf "$0"'


def move_server(directory):
    server, binaries = os.environ["WEIR_TEST_PG_DIR"], os.environ["WEIR_TEST_PG_BIN"]
    data = os.environ["WEIR_TEST_PG_DATA"]
    user = ["runuser", "-u", os.environ["WEIR_TEST_PG_USER"], "--"] if os.getuid() == 0 else []

    def pg_ctl(*args):
        subprocess.run([*user, os.path.join(binaries, "pg_ctl"), "-D", data, "-s", "-w", "-l",
                        os.path.join(server, "log"), *args], check=True, cwd="/", timeout=120)

    pg_ctl("-m", "fast", "stop")
    moved = os.path.join(directory, "data")
    subprocess.run(["cp", "-a", data, moved], check=True)
    shutil.rmtree(data)
    os.symlink(moved, data)
    pg_ctl("start")


def begin(library, sync_us):
    """Simulates syncs from here on. Returns the directory to work in."""
    directory = tempfile.mkdtemp(prefix="weir-bench.", dir="/dev/shm")
    os.chmod(directory, 0o755)
    with_server = "WEIR_TEST_POSTGRES" in os.environ
    begin.guard = subprocess.Popen(
        ["sh", "-c", GUARD, directory, os.environ["WEIR_TEST_PG_DIR"] if with_server else ""],
        stdin=subprocess.PIPE, start_new_session=True)
    # The user that the server runs as may not read the build directory.
    os.environ["LD_PRELOAD"] = shutil.copy(library, directory)
    os.environ["WEIR_SYNC_US"] = str(sync_us)
    if with_server:
        move_server(directory)
    return tempfile.mkdtemp(dir=directory)
