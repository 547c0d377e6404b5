#!/usr/bin/env python3
"""Groups the sources for clang-tidy: it spends most of its time on headers, which one unit of several files reads once.

Usage: tidy_units.py COMPILE_COMMANDS OUT
Writes OUT/units/*.cc, each of which includes a few sources that are compiled alike, and OUT/compile_commands.json for
them. Prints the paths of the units.
"""

import glob
import json
import os
import re
import sys

FILES_A_UNIT = 6
# What clang does not understand of g++'s commands, and what belongs to one file only.
FOREIGN = re.compile(
    r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -Werror| -Wno-(?:maybe-uninitialized|stringop-overread|tsan)"
    r"| -fpch-preprocess| -o \S+| -c \S+$"
)


def main():
    source, out = sys.argv[1:]
    root = os.getcwd()
    groups = {}
    with open(source, encoding="utf-8") as file:
        for entry in json.load(file):
            path = os.path.relpath(entry["file"], root)
            if not re.match(r"(lib|cmd)/.*\.cc$", path):
                continue
            command = FOREIGN.sub("", entry["command"])
            command = command[command.index(" ") :] if "ccache" in command.split(" ", 1)[0] else command
            groups.setdefault((entry["directory"], command.strip(), os.path.dirname(path)), []).append(path)
    seen = {path for paths in groups.values() for path in paths}
    missing = [
        path for path in glob.glob("lib/**/*.cc", recursive=True) + glob.glob("cmd/**/*.cc", recursive=True)
        # A library's code, of which we have one line.
        if path not in seen and path != "lib/archives/fmt.cc"
    ]  # fmt: skip
    if missing:
        sys.exit("tidy_units.py: not among what is compiled: " + ", ".join(sorted(missing)))
    units = []
    folder = os.path.join(out, "units")
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        os.remove(os.path.join(folder, old))
    for (directory, command, part), paths in sorted(groups.items()):
        paths.sort()
        count = -(-len(paths) // FILES_A_UNIT)
        for i in range(count):
            unit = os.path.join(folder, "%s-%d.cc" % (part.replace("/", "-"), i))
            with open(unit, "w", encoding="utf-8") as file:
                file.writelines('#include "%s"\n' % os.path.join(root, path) for path in paths[i::count])
            units.append({"directory": directory, "command": "%s -c %s" % (command, unit), "file": unit})
    with open(os.path.join(out, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(units, file, indent=1)
    print("\n".join(unit["file"] for unit in units))


main()
