#!/usr/bin/env python3
"""Ends what a benchmark has started, however the benchmark itself ends: kill -9 included.

Usage: guardian.py FOLDER, with a pipe from the benchmark as standard input.
Whatever the benchmark starts works in FOLDER or below. Once the pipe is closed, each process that still does is killed,
and the folder is removed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time


class Guardian:
    """The benchmark's side: a folder to work in, until `close`."""

    def __init__(self, folder):
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), folder],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/", start_new_session=True,
        )  # fmt: skip

    def close(self):
        """Returns once nothing is left."""
        self._process.stdin.close()
        self._process.wait()


def inhabitants(folder):
    """Processes that work in `folder` or below."""
    found = []
    for name in os.listdir("/proc"):
        # Some end meanwhile, and others belong to other users.
        with contextlib.suppress(OSError):
            if name.isdigit() and (os.readlink("/proc/%s/cwd" % name) + "/").startswith(folder + "/"):
                found.append(int(name))
    return found


def clear(folder):
    # One may have had a child after we looked.
    while pids := inhabitants(folder):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def main():
    folder = os.path.realpath(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    clear(folder)


if __name__ == "__main__":
    main()
