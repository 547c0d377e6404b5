#!/usr/bin/env python3
"""Finds the addresses in tests and scripts that are not loopback: a daemon that is given one really tries to reach it, or has
its peers try. Nothing that a test does leaves the machine.

    addresses.py    says where they are; exit 1 if there are any

A dotted quad whose numbers are made by a format counts (10.0.%d.{}), and so does the beginning of one that ends a text
("10.0."). What the fuzzers read is only parsed, and not looked at. Expects to run in the root of the checkout.
"""

import os
import re
import sys

FOLDERS = ["tests", "scripts"]
IGNORED = ["tests/fuzz/corpus", "scripts/addresses.py"]

NUMBER = r"(?:\d{1,3}|%[dsu]|\{\w*\})"
ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.%s){3}(?![\w-]|\.\d)|\d{1,3}\.\d{1,3}\.(?:\d{1,3}\.)?(?=[\"']))" % NUMBER
)
FINE = re.compile(r"127\.|0\.0\.0\.0$")

# What RFC 5737 keeps for documentation: no machine has such an address.
NOBODYS = r"192\.0\.2\.(\d+|\{\}|%d)"
# Where an address that is no loopback is needed: the file, what its line has to contain, the addresses, and why. Nothing
# there opens a socket to one.
ALLOWED = [
    ("tests/cli/cases/help.case", "", r"10\.0\.0\.1", "what --help shows"),
    ("tests/cli/cases/import.case", "  leafctl config import", r"10\.0\.0\.1", "what --help shows"),
    ("tests/cli/cases/worker.case", "", NOBODYS, "a row that is looked at; loopback would be a finding of its own"),
    ("tests/integration/test_doctor.py", "", NOBODYS, "the doctor warns of loopback; peers are told a loopback URL"),
    ("tests/integration/test_doctor.py", "", r"172\.17\.0\.1", "docker's bridge, which is a finding"),
    ("tests/support/own_namespace.py", "", r"192\.0\.2\.1", "of a network that its test has for itself"),
    ("tests/integration/test_workers.py", "", NOBODYS, "records that are looked at; loopback would be a finding of its own"),
    ("tests/integration/test_workers.py", "", r"172\.17\.0\.1", "docker's bridge, which is a finding"),
    ("tests/packages/example/client.cc", "", r"192\.0\.2\.\d|198\.51\.100\.1", "a comment, for readers of the example"),
    ("tests/unit/base/endpoint_test.cc", "", NOBODYS, "a text that is read; it has to be no loopback"),
    ("tests/unit/config/config_test.cc", "", NOBODYS, "the first address that is no loopback is the default; nothing listens"),
    ("tests/unit/inspect/workers_test.cc", "", NOBODYS, "records that are looked at; loopback would be a finding"),
    ("tests/unit/inspect/workers_test.cc", "", r"172\.17\.0\.1|169\.254\.1\.1", "addresses that are a finding"),
]


def files():
    for top in FOLDERS:
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not path.startswith(tuple(IGNORED)):
                    yield path


def allows(entry, path, line, address):
    where, context, addresses, _ = entry
    return where == path and context in line and re.fullmatch(addresses, address)


def main():
    bad = False
    used = set()
    for path in files():
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().split("\n")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for address in ADDRESS.findall(line):
                if FINE.match(address):
                    continue
                entry = next((one for one in ALLOWED if allows(one, path, line, address)), None)
                if entry is None:
                    print("%s:%d: %s is not loopback (127.0.0.x), or `advertise` one; see scripts/addresses.py" % (
                        path, number, address))  # fmt: skip
                    bad = True
                used.add(entry)
    for entry in ALLOWED:
        if entry not in used:
            print("scripts/addresses.py: %s has no %s any more" % (entry[0], entry[2]))
            bad = True
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
