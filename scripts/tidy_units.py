#!/usr/bin/env python3
"""Groups the sources for clang-tidy: it spends most of its time on headers, which one unit of several files reads once.

Usage: tidy_units.py COMPILE_COMMANDS OUT [FILES]
Writes OUT/units/*.cc, each of which includes a few sources that are compiled alike, and OUT/compile_commands.json for
them. Prints the paths of the units. FILES names a list of files, one a line: then only those sources are in the units,
and for each header among them the source of its name, or else the first that includes it.
"""

import glob
import json
import os
import re
import sys

# More cost less in all; beyond a folder there is nothing to gain, and one unit is work for one processor.
FILES_A_UNIT = 24
# What clang does not understand of g++'s commands, and what belongs to one file only.
FOREIGN = re.compile(
    r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -Werror| -Wno-(?:maybe-uninitialized|stringop-overread|tsan)"
    r"| -fpch-preprocess| -o \S+| -c \S+$"
)


def sources_of(files, sources):
    """Those of `sources` that are among `files`, or stand for a header that is."""
    wanted = set()
    for name in files:
        if name in sources:
            wanted.add(name)
        elif name.endswith(".h") and name.startswith(("lib/", "cmd/")):
            own = name[:-2] + ".cc"
            include = '#include "%s"' % re.sub(r"^(lib|cmd/leafctl)/", "", name)
            found = [own] if own in sources else [path for path in sources if include in read(path)]
            wanted.update(found[:1])
    return wanted


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    source, out = sys.argv[1:3]
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
        if path not in seen and not path.startswith("lib/archives/")
    ]  # fmt: skip
    if missing:
        sys.exit("tidy_units.py: not among what is compiled: " + ", ".join(sorted(missing)))
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="utf-8") as file:
            wanted = sources_of(file.read().split("\n"), sorted(seen))
        groups = {key: [path for path in paths if path in wanted] for key, paths in groups.items()}
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
    # The longest first, so that no processor is left with one when the others are done.
    units.sort(key=lambda unit: -read(unit["file"]).count("\n"))
    print("\n".join(unit["file"] for unit in units))


main()
