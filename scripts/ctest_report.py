#!/usr/bin/env python3
"""Stands behind ctest in a pipe: passes on what it prints, and adds two things to its summary, which stays last.

    ctest --test-dir DIR --output-on-failure 2>&1 | ctest_report.py [--test-dir DIR] [--phases FILE] [--table FILE]

The first, before the summary, is where the time went: the minutes of each phase, the seconds of each label in each build,
and the slowest tests with their share of all. The second names the case in each test that failed, and what it says of
itself. It stands within the summary, before the names of those tests, so that the last lines of a log have both. ctest's
exit code is the pipe's with `set -o pipefail`. If ctest is ended early, what there is up to then is told.

  --test-dir DIR  where ctest is asked for the labels; without it a test's label is the second part of its name
  --phases FILE   lines "name<TAB>seconds<TAB>%" of what was done before, and how busy the processors were; the tests are
                  added
  --table FILE    the first part goes to this file as well
"""

import argparse
import collections
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

SLOWEST = 20
CASES_MAX = 20  # of one test
LINES_MAX = 12  # of what one case says of itself
CHARS_MAX = 400
TAIL_LINES = 8  # of a test that says nothing that is known here

RESULT = re.compile(
    r"^\s*(?P<number>\d+)/(?P<total>\d+) Test\s+#\d+: (?P<name>\S.*?) \.{3,}\s*(?P<status>.*?)\s+(?P<seconds>\d+\.\d+) sec\s*$"
)
START = re.compile(r"^\s*Start\s+\d+: \S")
SUMMARY = re.compile(r"^\s*\d+% tests passed")
NAMES = b"The following tests FAILED:"  # in the summary
GOOD = ("Passed", "***Skipped")

Test = collections.namedtuple("Test", "name status seconds output")


# ---- what a failed test says of itself -----------------------------------------------------------------------------


def unique(lines):
    return list(dict.fromkeys(lines))


def cut(line):
    line = line.rstrip()
    return line if len(line) <= CHARS_MAX else line[:CHARS_MAX] + "…"


def unittest_cases(lines):
    """The summary of tests/support/explain.py; without it, the case that was running."""
    found = [line[len("failed: ") :] for line in lines if line.startswith("failed: ")]
    if not found:
        found = [line for line in lines if re.match(r"(FAIL|ERROR): \w+ \(", line)]
    if found:
        return found + [line for line in lines if line.startswith("seed: LEAFCTL_TEST_SEED=")]
    running = None
    for line in lines:
        begins = re.match(r"(test_\w+) \(([\w.]+)\)", line)
        if begins:
            running = "%s (%s)" % begins.groups()
        # The result may stand behind the description, or behind what the case prints.
        if re.search(r"(^|\.\.\. )(ok|FAIL|ERROR|skipped\b.*|expected failure)$", line):
            running = None
    return [running + ": was running when it ended"] if running else []


def gtest_cases(lines):
    """Each case with its assertions; one without a result was running."""
    found = []
    said = []
    running = None
    failed = set()
    for line in lines:
        begins = re.match(r"\[ RUN      \] (\S+)", line)
        ends = re.match(r"\[  (     OK|FAILED ) \] ([^\s,]+)", line)
        if begins:
            running, said = begins.group(1), []
        elif ends:
            if ends.group(1) == "FAILED " and ends.group(2) not in failed and not ends.group(2).isdigit():
                failed.add(ends.group(2))
                found += [ends.group(2), *("  " + text for text in said[:LINES_MAX])]
            running, said = None, []
        elif running and line.strip() and (said or re.match(r"\S+:\d+: Failure|unknown file: Failure", line)):
            said.append(line)
    if running:
        found += [running + ": was running when it ended", *("  " + text for text in said[:LINES_MAX])]
    return found


def golden_cases(lines):
    """tests/cli/run.py: the lines that differ."""
    found = []
    inside = False
    for line in lines:
        case = re.match(r"(FAIL|ok  ) (\w+)$", line)
        if case:
            inside = case.group(1) == "FAIL"
            changes = 0
            if inside:
                found.append(case.group(2))
        elif inside and re.match(r"[-+](?![-+]{2} )", line) and changes < LINES_MAX:
            found.append("  " + line)
            changes += 1
    return found


def simulator_cases(lines):
    """leafsim: the seed, its options or its scenario, and what was broken; cli.sh, which tests it."""
    plans = {}
    found = []
    for line in lines:
        plan = re.match(r"seed (\d+): ", line)
        broken = re.match(r"seed (\d+) (VIOLATION|NOT REPEATABLE)", line)
        if plan:
            plans[plan.group(1)] = line
        elif broken:
            if broken.group(1) in plans:
                found.append(plans[broken.group(1)])
            found.append("  " + line)
        elif line.startswith(("leafsim: an assertion failed at seed ", "FAILED: ")):
            found.append(line)
    return found


def fuzz_cases(lines):
    """fuzz_corpus: the input that it was at is left in a file. Without a result, this is what failed."""
    found = []
    for line in lines:
        kept = re.match(r"(seed \d+, \d+ iterations); what fails is kept in (.*)/fuzz_corpus\.TARGET\.input$", line)
        if kept:
            files = glob.glob(os.path.join(glob.escape(kept.group(2)), "fuzz_corpus.*.input"))
            found += ["%s: %s (fuzz_corpus --target NAME --replay FILE)" % (kept.group(1), path) for path in sorted(files)]
    return found


def own_reports(lines):
    """What a binary reports of itself, sanitizers included."""
    pattern = re.compile(
        r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: |^SUMMARY: \w+Sanitizer|leafctl: bug:|"
        r"broken invariant: |: Assertion .* failed"
    )
    return [line for line in lines if pattern.search(line)]


def explain(output):
    """Lines that name what failed, and why."""
    lines = [line for line in output if not re.fullmatch(r"-+|=+", line)]
    found = []
    for look in (unittest_cases, gtest_cases, golden_cases, simulator_cases, fuzz_cases):
        found += look(lines)
    reports = unique(own_reports(lines))
    found = unique(found + [line for line in reports if not any(line in other for other in found)])
    if not found:
        found = [line for line in lines if line.strip()][-TAIL_LINES:]
    limit = CASES_MAX * (1 + LINES_MAX)
    return [cut(line) for line in found[:limit]]


def explanation(tests):
    lines = []
    for test in tests:
        if test.status.startswith(GOOD):
            continue
        lines.append("%s (%s, %.1f s)" % (test.name, test.status.lstrip("* ") or "no result", test.seconds))
        try:
            lines += ["    " + line for line in explain(test.output) or ["(it has printed nothing)"]]
        except Exception as error:  # ctest's own words stand above all the same
            lines.append("    (its output cannot be explained: %r)" % error)
    return lines


# ---- where the time went -------------------------------------------------------------------------------------------


def labels_of(test_dir):
    """name → label, as ctest knows it; nothing if it cannot be asked."""
    if not test_dir:
        return {}
    try:
        done = subprocess.run(
            ["ctest", "--test-dir", test_dir, "--show-only=json-v1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300, check=True,
        )  # fmt: skip
        found = {}
        for test in json.loads(done.stdout)["tests"]:
            for item in test.get("properties", []):
                if item["name"] == "LABELS" and item["value"]:
                    found[test["name"]] = item["value"][0]
        return found
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return {}


def processor_time():
    """(busy, all) of this machine's processors, since it was started; nothing where that is not told."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            times = [int(field) for field in file.readline().split()[1:9]]
        return sum(times) - times[3] - times[4], sum(times)  # 3, 4: idle, or waiting for a disk
    except (OSError, ValueError, IndexError):
        return None


def busy_since(before):
    """Per cent."""
    now = processor_time()
    return share(now[0] - before[0], now[1] - before[1]) if before and now else None


def read_phases(path):
    """(name, seconds, per cent that the processors were busy, or None)"""
    phases = []
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    fields = line.rstrip("\n").split("\t")
                    if len(fields) >= 2:
                        phases.append((fields[0], float(fields[1]), float(fields[2]) if len(fields) > 2 else None))
        except (OSError, ValueError) as error:
            print("ctest_report.py: %s: %s" % (path, error), file=sys.stderr)
    return phases


def share(part, whole):
    return 100.0 * part / whole if whole > 0 else 0.0


def table(tests, phases, labels):
    lines = ["phase                              minutes  busy %"]
    for name, seconds, busy in phases:
        lines.append("  %-30s  %8.1f%s" % (name, seconds / 60, "" if busy is None else "%8.0f" % busy))
    lines.append("  %-30s  %8.1f" % ("all", sum(seconds for _, seconds, _ in phases) / 60))

    all_seconds = sum(test.seconds for test in tests)
    sums = collections.defaultdict(float)
    counts = collections.Counter()
    builds = unique(test.name.split(".")[0] for test in tests if "." in test.name)
    for test in tests:
        parts = test.name.split(".")
        build = parts[0] if len(parts) > 1 else ""
        label = labels.get(test.name) or (parts[1] if len(parts) > 1 else test.name)
        sums[label, build] += test.seconds
        sums[label, None] += test.seconds
        counts[label] += 1
    lines += ["", "seconds of tests    " + "".join("%12s" % build for build in builds) + "         all      %   tests"]
    order = sorted(counts, key=lambda label: -sums[label, None])
    for label in order:
        lines.append(
            "  %-18s" % label
            + "".join("%12.1f" % sums[label, build] for build in builds)
            + "%12.1f  %5.1f  %6d" % (sums[label, None], share(sums[label, None], all_seconds), counts[label])
        )
    lines.append(
        "  %-18s" % "all"
        + "".join("%12.1f" % sum(sums[label, build] for label in order) for build in builds)
        + "%12.1f  %5.1f  %6d" % (all_seconds, share(all_seconds, all_seconds), len(tests))
    )

    lines += ["", "the %d slowest tests                                      seconds      %%" % SLOWEST]
    for test in sorted(tests, key=lambda test: -test.seconds)[:SLOWEST]:
        lines.append("  %-50s  %11.1f  %5.1f" % (test.name, test.seconds, share(test.seconds, all_seconds)))
    return lines


# ---- the pipe ------------------------------------------------------------------------------------------------------


class Report:
    """Takes ctest's output line by line; says what may be printed at once."""

    def __init__(self):
        self.tests = []
        self.held = []
        self.total = None
        self.inside = False  # of the output of a failed test

    def take(self, raw):
        """The lines to print now, as bytes."""
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        result = RESULT.match(line)
        # A test may be one of this script, and print such lines itself.
        if result and self.total in (None, result["total"]):
            self.total = result["total"]
            released = self._release()
            status = result["status"]
            self.tests.append(Test(result["name"], status, float(result["seconds"]), []))
            self.inside = not status.startswith(GOOD)
            return [*released, raw]
        if START.match(line):
            # The output of a test that failed has no end of its own; if it has such a line in it, the rest is lost.
            released = self._release()
            self.inside = False
            return [*released, raw]
        if self.held or SUMMARY.match(line):
            self.held.append(raw)
            return []
        if self.inside:
            self.tests[-1].output.append(line)
        return [raw]

    def _release(self):
        """What looked like the summary was none."""
        held, self.held = self.held, []
        if self.inside and self.tests:
            self.tests[-1].output.extend(raw.decode("utf-8", "replace").rstrip("\r\n") for raw in held)
        return held


def encode(lines):
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--test-dir")
    parser.add_argument("--phases")
    parser.add_argument("--table")
    options = parser.parse_args()
    # ctest hears of an interruption itself; what there is until then is told.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    out = sys.stdout.buffer
    began = time.monotonic()
    processors = processor_time()
    report = Report()
    while raw := sys.stdin.buffer.readline():
        try:
            lines = report.take(raw)
        except Exception as error:  # ctest's words come through, whatever they are
            lines = [raw, ("ctest_report.py: %r\n" % error).encode()]
        out.writelines(lines)
        out.flush()
    phases = [*read_phases(options.phases), ("tests", time.monotonic() - began, busy_since(processors))]
    summary = b"".join(report.held)
    try:
        lines = table(report.tests, phases, labels_of(options.test_dir))
        if options.table:
            with open(options.table, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        lines = ["==== where the time went", "", *lines, ""]
        failures = explanation(report.tests)
        if failures:
            failures = ["==== what failed", "", *failures, ""]
        before, names, after = summary.rpartition(NAMES)
        if failures and names:
            summary = before + encode(failures) + names + after
        else:
            lines += failures
        if not summary:
            lines.append("==== ctest has not come to its end: it has no summary")
        out.write(encode(["", *lines]))
    except Exception as error:  # the summary is what counts
        out.write(encode(["ctest_report.py: %r" % error]))
    out.write(summary)
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
