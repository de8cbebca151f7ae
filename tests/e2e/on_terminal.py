#!/usr/bin/env python3
"""on_terminal.py - runs a program on a terminal of its own and prints what appears there.

    on_terminal.py [--enter PROMPT] COLUMNS PROGRAM [ARGUMENT...]

stdin, stdout and stderr are that terminal: COLUMNS wide, 40 lines high. The exit status is the
program's. With --enter, Enter is pressed each time PROMPT appears.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def main():
    prompt, answered = None, 0
    if sys.argv[1] == "--enter":
        prompt = sys.argv[2].encode()
        del sys.argv[1:3]
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(sys.argv[1]), 0, 0))
    child = subprocess.Popen(sys.argv[2:], stdin=slave, stdout=slave, stderr=slave,
                             start_new_session=True)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the last one has closed it
            break
        if not part:
            break
        shown += part
        while prompt and shown.count(prompt) > answered:
            os.write(master, b"\n")
            answered += 1
    sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
