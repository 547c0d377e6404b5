#!/usr/bin/python3
"""Changes the code of lib/leaf/core and lib/leaf/service mechanically, one place at a time, and sees whether a test
notices. scripts/mutations.sh plants bugs that were thought of; this finds the lines that no test needs.

What is changed: a comparison's limit (< and <=) or its sense (== and !=), && and ||, + and -, a number by one, a
statement is left out, two arguments that follow each other are swapped. Assertions and lines of the log are left alone.
A mutant that does not compile does not count. What looks: unit tests, the same with failpoints, the library's tests, the
model checker, and the simulator.

Usage: mutants.py [--list] [--all | --again LIST] [FILE...]   (default: a sample over all files)
Environment: LEAF_MUTANTS        how many are drawn (default 150)
             LEAF_MUTANTS_SEED   which are drawn (default: the time)
             LEAF_MUTANTS_SKIP   how many of those were tried by an earlier run, and are left out (default 0)
             LEAF_MUTANTS_JOBS   how many are tried at once (default: one for each processor)
             LEAF_MUTANTS_SEEDS  seeds of the simulator for each (default 20)
             LEAF_MUTANTS_DIR    where it builds; kept, so that the next run is quicker (default build/mutants)
Fails if one survives. Those that tests/mutations/explained.txt names are not tried.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import glob
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXPLAINED = os.path.join(ROOT, "tests", "mutations", "explained.txt")
PARTS = {"lib/leaf/core": 0.95, "lib/leaf/service": 0.85}
OTHER = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "+=": "-=", "-=": "+=",
}  # fmt: skip
LEFT_ALONE = re.compile(r"^\s*(LEAF_CHECK|LEAF_FAILPOINT|static_assert|assert|default:|case )|\blog(ger)?_?(->|\.)|\bfailures?_?log|log_\.")
# Their result is the same either way round.
SYMMETRIC = {"max", "min", "swap"}
PATIENCE_S = 60

Mutant = collections.namedtuple("Mutant", "file start end text function before after")


def key(mutant):
    return " | ".join((mutant.file.removeprefix("lib/leaf/"), mutant.function, mutant.before, mutant.after))


def read(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return file.read()


def squeezed(text):
    """As one line."""
    return re.sub(r"\s+", " ", text.decode()).strip()


# ---- what can be changed -----------------------------------------------------------------------------------------------


class Finder:
    """Collects the mutants of the files of PARTS that a source includes."""

    def __init__(self):
        # Not needed to check what is explained, which each test run does.
        import clang.cindex  # pylint: disable=import-outside-toplevel

        self.clang = clang.cindex
        kind = clang.cindex.CursorKind
        self.functions = {
            kind.FUNCTION_DECL, kind.FUNCTION_TEMPLATE, kind.CXX_METHOD, kind.CONSTRUCTOR, kind.DESTRUCTOR,
            kind.CONVERSION_FUNCTION,
        }  # fmt: skip
        self.statements = {
            kind.CALL_EXPR, kind.BINARY_OPERATOR, kind.COMPOUND_ASSIGNMENT_OPERATOR, kind.UNARY_OPERATOR,
            kind.UNEXPOSED_EXPR, kind.IF_STMT,
        }  # fmt: skip
        self.found = {}
        self.texts = {}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = read(path)
        return self.texts[path]

    def add(self, path, start, end, replacement, function, what=None):
        """`what` describes it; without it, the line before and after does."""
        text = self.text(path)
        if what is None:
            line = text.rfind(b"\n", 0, start) + 1
            stop = text.find(b"\n", end)
            before = text[line:stop]
            after = text[line:start] + replacement.encode() + text[end:stop]
        else:
            before, after = what
        before, after = squeezed(before), squeezed(after)
        if not LEFT_ALONE.search(before) and before != after:
            self.found[(path, start, end, replacement)] = Mutant(path, start, end, replacement, function, before, after)

    def source(self, path):
        index = self.clang.Index.create()
        unit = index.parse(os.path.join(ROOT, path), ["-std=c++20", "-I" + os.path.join(ROOT, "lib"), "-x", "c++"])
        fatal = [str(problem) for problem in unit.diagnostics if problem.severity >= 3]
        if fatal:
            sys.exit("mutants.py: %s cannot be read: %s" % (path, fatal[0]))
        for cursor in unit.cursor.get_children():
            self.visit(cursor, "")

    def visit(self, cursor, function):
        kinds = self.clang.CursorKind
        file = cursor.location.file
        path = os.path.relpath(os.path.realpath(file.name), ROOT) if file else ""
        if not path.startswith(tuple(PARTS)):
            return
        if cursor.kind in self.functions:
            function = cursor.spelling
        elif cursor.kind in (kinds.STATIC_ASSERT, kinds.FRIEND_DECL):
            return
        children = list(cursor.get_children())
        if self.text(path)[cursor.extent.start.offset : cursor.extent.end.offset].startswith(b"LEAF_"):
            return
        if len(children) >= 2 and cursor.kind in (
            kinds.BINARY_OPERATOR, kinds.CALL_EXPR, kinds.COMPOUND_ASSIGNMENT_OPERATOR,
            kinds.UNEXPOSED_EXPR,
        ):  # fmt: skip
            self.operator(path, cursor, children, function)
        if cursor.kind == kinds.CALL_EXPR:
            self.arguments(path, cursor, function)
        if cursor.kind == kinds.INTEGER_LITERAL and function:
            self.number(path, cursor, function)
        if cursor.kind == kinds.COMPOUND_STMT:
            for child in children:
                self.statement(path, child, function)
        for child in children:
            self.visit(child, function)

    def operator(self, path, cursor, children, function):
        first, last = children[0].extent.end.offset, children[-1].extent.start.offset
        between = self.text(path)[first:last]
        if "basic_string" in cursor.type.get_canonical().spelling:
            return  # nothing can be taken away from a text
        match = re.fullmatch(rb"\s*(<=|>=|==|!=|&&|\|\||\+=|-=|<|>|\+|-)\s*", between)
        if match:
            token = match[1].decode()
            start = first + match.start(1)
            self.add(path, start, start + len(token), OTHER[token], function)

    def arguments(self, path, cursor, function):
        if cursor.spelling in SYMMETRIC:
            return
        given = [argument for argument in cursor.get_arguments() if argument is not None]
        for left, right in zip(given, given[1:]):
            one, two = (argument.type.get_canonical() for argument in (left, right))
            if one.kind == self.clang.TypeKind.INVALID or one.spelling.removeprefix("const ") != two.spelling.removeprefix("const "):
                continue
            start, middle = left.extent.start.offset, left.extent.end.offset
            other, end = right.extent.start.offset, right.extent.end.offset
            text = self.text(path)
            if not (start < middle <= other < end) or b"," not in text[middle:other]:
                continue
            swapped = text[other:end] + text[middle:other] + text[start:middle]
            self.add(path, start, end, swapped.decode(), function)

    def number(self, path, cursor, function):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        literal = self.text(path)[start:end].decode(errors="replace")
        if re.fullmatch(r"[0-9']+[uUlL]*", literal):
            digits = re.match(r"[0-9']+", literal)[0]
            self.add(path, start, start + len(digits), str(int(digits.replace("'", "")) + 1), function)

    def statement(self, path, cursor, function):
        kinds = self.clang.CursorKind
        if cursor.kind not in self.statements or (cursor.kind == kinds.IF_STMT and b" else " in self.piece(path, cursor)):
            return
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        piece = self.piece(path, cursor)
        if not piece or piece.startswith(b"{"):
            return
        replacement = "{}" if cursor.kind == kinds.IF_STMT else "(void)0"
        self.add(path, start, end, replacement, function, (piece, b"(left out)"))

    def piece(self, path, cursor):
        return self.text(path)[cursor.extent.start.offset : cursor.extent.end.offset]


def find_all():
    finder = Finder()
    for part in PARTS:
        for path in sorted(glob.glob(os.path.join(ROOT, part, "*.cc"))):
            finder.source(os.path.relpath(path, ROOT))
    return sorted(finder.found.values())


# ---- what looks --------------------------------------------------------------------------------------------------------


class Stage(collections.namedtuple("Stage", "build target arguments files late")):
    """A program that may notice, in one of BUILDS; `files` is what it is of use for. Those that are `late` need minutes
    each, and look at what is left when the others have seen all mutants."""


# Most mutants fall to the first program, which has to be built quickly. The simulator runs for long.
BUILDS = {"quick": "-O0", "fast": "-O1"}


def suites(*folders):
    """The suites in these folders of tests/unit, for a filter."""
    names = set()
    for folder in folders:
        for path in glob.glob(os.path.join(ROOT, "tests", "unit", folder, "*.cc")):
            names.update(re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)", read(path).decode(), re.M))
    return ":".join(shape % name for name in sorted(names) for shape in ("%s.*", "*/%s.*", "%s/*"))


def stages(seeds):
    own = suites(*(os.path.basename(part) for part in PARTS))
    museum = sorted(glob.glob(os.path.join(ROOT, "tests", "sim", "museum", "*.toml")))
    shared = re.compile(r"/(segment_buffer|snowflake|id_layout)\.(h|cc)$")
    every = re.compile("")
    gtest = ("--gtest_fail_fast", "--gtest_brief=1")
    return [
        Stage("quick", "unit_tests", (*gtest, "--gtest_filter=" + own), every, False),
        Stage("quick", "failpoint_tests", gtest, re.compile(r"/segment_buffer\.(h|cc)$"), False),
        Stage("quick", "model_tests", (*gtest, "--gtest_filter=-Long*"), shared, False),
        Stage("quick", "service_failpoint_tests", gtest, every, False),
        Stage("quick", "library_tests", gtest, every, False),
        Stage("quick", "unit_tests", (*gtest, "--gtest_filter=-" + own), every, True),
        Stage("fast", "leafsim", ("--quiet", "--stop", "--seed", "1", "--seeds", str(seeds)), every, True),
        Stage("fast", "leafsim", ("--quiet", "--stop", "--seed", "1", "--seeds", "1", "--scenario", *museum), every, True),
    ]


class Tree:
    """A copy of the sources with a build of its own, in which one mutant at a time is planted."""

    def __init__(self, folder):
        self.folder = folder
        self.times = {}

    def prepare(self, looks):
        os.makedirs(self.folder, exist_ok=True)
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in names.splitlines():
            source, target = os.path.join(ROOT, name), os.path.join(self.folder, name)
            if not os.path.isfile(source):
                continue
            self.put(target, read(source))
            shutil.copymode(source, target)
        for build, optimized in BUILDS.items():
            self.shell(
                ["cmake", "-S", ".", "-B", os.path.join("build", build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                 "-DCMAKE_CXX_FLAGS_DEBUG=" + optimized, "-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld", "-DLEAF_UNITY=ON"],
            )  # fmt: skip
        for look in looks:
            if not self.build(look):
                sys.exit("mutants.py: %s does not build in %s" % (look.target, self.folder))
            started = time.monotonic()
            if self.run(look, None):
                sys.exit("mutants.py: %s fails without any mutant" % look.target)
            self.times[look] = time.monotonic() - started

    @staticmethod
    def put(path, content):
        """Writes only what differs, so that little is compiled again."""
        if os.path.exists(path):
            if read(path) == content:
                return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    def shell(self, command):
        subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, check=True)

    def build(self, look):
        with open(os.path.join(self.folder, "build.log"), "w", encoding="utf-8") as log:
            return subprocess.run(
                ["cmake", "--build", os.path.join("build", look.build), "-j", "1", "--target", look.target],
                cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, check=False,
            ).returncode == 0  # fmt: skip

    def run(self, look, patience):
        """Whether something was noticed: a failure, or no end."""
        # A mutant may write, and take memory, for ever.
        limited = ["bash", "-c", 'ulimit -v 16000000 -f 2000000; exec "$@"', "bash"]
        with open(os.path.join(self.folder, "run.log"), "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*limited, os.path.join("build", look.build, look.target), *look.arguments], cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(patience) != 0
            except subprocess.TimeoutExpired:
                return True
            finally:
                # With what it started.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def attempt(self, mutant, looks):
        """The program that noticed; "" if it does not compile, None if it survived."""
        path = os.path.join(self.folder, mutant.file)
        original = read(path)
        self.put(path, original[: mutant.start] + mutant.text.encode() + original[mutant.end :])
        try:
            for look in looks:
                if not look.files.search(mutant.file):
                    continue
                if not self.build(look):
                    return ""
                if self.run(look, PATIENCE_S + 5 * self.times[look]):
                    return look.target
            return None
        finally:
            self.put(path, original)


# ---- the run -----------------------------------------------------------------------------------------------------------


def explained():
    """The survivors that have a reason to live; the reason is for people."""
    found = {}
    with open(EXPLAINED, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                parts = line.rstrip("\n").split(" | ")
                if len(parts) != 5 or not parts[4].strip():
                    sys.exit("mutants.py: %s:%d is not 'file | function | before | after | reason'" % (EXPLAINED, number))
                found[" | ".join(parts[:4])] = parts[4]
    return found


def check():
    """Whether what is explained still stands in the code."""
    stale = []
    for line in explained():
        file, _, before, _ = line.split(" | ")
        path = os.path.join(ROOT, "lib", "leaf", file)
        if not os.path.isfile(path) or before not in squeezed(read(path)):
            stale.append(line)
            print("mutants.py: explained.txt names what is not in the code (any more): " + line, file=sys.stderr)
    return 1 if stale else 0


def try_all(mutants, looks, jobs, scratch):
    """What became of each."""
    found = {}
    for late in (False, True):
        left = [mutant for mutant in mutants if found.get(mutant) is None]
        if left:
            print("== with %s" % ", ".join(look.target for look in looks if look.late == late), flush=True)
            found.update(try_with(left, [look for look in looks if look.late == late], jobs, scratch))
    return list(found.items())


def try_with(mutants, looks, jobs, scratch):
    trees = queue.Queue()
    prepared = [Tree(os.path.join(scratch, str(number))) for number in range(jobs)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda tree: tree.prepare(looks), prepared))
        for tree in prepared:
            trees.put(tree)

        def one(mutant):
            tree = trees.get()
            started = time.monotonic()
            try:
                noticed = tree.attempt(mutant, looks)
            finally:
                trees.put(tree)
            verdict = "does not compile" if noticed == "" else noticed or "not noticed"
            print("%-24s %4.0f s  %s" % (verdict, time.monotonic() - started, key(mutant)), flush=True)
            return mutant, noticed

        return list(pool.map(one, mutants))


def report(results):
    code = 0
    useless = sum(1 for _, noticed in results if noticed == "")
    if 2 * useless > len(results):
        print("mutants.py: %d of %d did not compile: is something missing?" % (useless, len(results)), file=sys.stderr)
        code = 1
    survivors = [mutant for mutant, noticed in results if noticed is None]
    print("\n== survivors without a reason in tests/mutations/explained.txt")
    for mutant in survivors:
        print(key(mutant))
        code = 1
    print("\n== summary")
    for part, least in PARTS.items():
        own = [(mutant, noticed) for mutant, noticed in results if mutant.file.startswith(part + "/") and noticed != ""]
        caught = sum(1 for _, noticed in own if noticed)
        if own:
            print("%s: %d of %d noticed (%.1f %%, at least %.0f %% wanted)"
                  % (part, caught, len(own), 100.0 * caught / len(own), 100 * least))  # fmt: skip
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the mutants, and try none")
    parser.add_argument("--check", action="store_true", help="only whether what is explained is still there")
    parser.add_argument("--all", action="store_true", help="try all of them, not a sample")
    parser.add_argument("--again", metavar="LIST", help="only mutants that have a line in this file, as --list prints them and a run its survivors")
    parser.add_argument("files", nargs="*", metavar="FILE", help="only mutants of these files")
    flags = parser.parse_args()
    if flags.check:
        return check()
    mutants = find_all()
    if flags.files:
        flags.all = True
        wanted = {os.path.relpath(os.path.abspath(name), ROOT) for name in flags.files}
        mutants = [mutant for mutant in mutants if mutant.file in wanted]
        for name in wanted - {mutant.file for mutant in mutants}:
            sys.exit("mutants.py: nothing to change in %s" % name)
    if flags.again:
        flags.all = True
        with open(flags.again, encoding="utf-8") as file:
            wanted = set(file.read().splitlines())
        mutants = [mutant for mutant in mutants if key(mutant) in wanted]
        if not mutants:
            sys.exit("mutants.py: no line of %s is a mutant" % flags.again)
    seed = int(os.environ.get("LEAF_MUTANTS_SEED") or time.time())
    count = int(os.environ.get("LEAF_MUTANTS") or 150)
    total = len(mutants)
    if not flags.all and total > count:
        # In the order of the draw: what was tried by the time a run is stopped is a sample, too.
        mutants = random.Random(seed).sample(mutants, count)[int(os.environ.get("LEAF_MUTANTS_SKIP") or 0) :]
    if flags.list:
        for mutant in mutants:
            print(key(mutant))
        return 0
    reasons = explained()
    known = sum(1 for mutant in mutants if key(mutant) in reasons)
    print("%d of %d mutants, drawn with LEAF_MUTANTS_SEED=%d; %d of them are explained, and not tried"
          % (len(mutants), total, seed, known), flush=True)  # fmt: skip
    jobs = int(os.environ.get("LEAF_MUTANTS_JOBS") or os.cpu_count())
    looks = stages(int(os.environ.get("LEAF_MUTANTS_SEEDS") or 20))
    scratch = os.environ.get("LEAF_MUTANTS_DIR") or os.path.join(ROOT, "build", "mutants")
    return report(try_all([mutant for mutant in mutants if key(mutant) not in reasons], looks, jobs, os.path.abspath(scratch)))


if __name__ == "__main__":
    sys.exit(main())
