"""A wall clock that tests move: libfaketime, whose offset is read from a file at every look; boot time and the times of
files are left alone."""

import glob
import os


def faketime_library():
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        raise AssertionError("libfaketime is missing: apt-get install faketime")
    return found[0]


class FakeClock:
    """Right at first. A program that is started with `env` has it."""

    def __init__(self, path):
        self._path = path
        self.env = {
            "LD_PRELOAD": faketime_library(),
            "FAKETIME_TIMESTAMP_FILE": path,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Newer versions would move the times of files, too.
            "NO_FAKE_STAT": "1",
        }
        self.set_offset(0)

    def set_offset(self, seconds):
        """Ahead of this machine's clock by so much from now on."""
        draft = self._path + ".new"
        with open(draft, "w", encoding="utf-8") as file:
            file.write("%+.3f\n" % seconds)
        os.replace(draft, self._path)
