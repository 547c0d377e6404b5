#!/usr/bin/env python3
"""scripts/bench.sh, each row for a moment: that it still measures, not what."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import counts  # noqa: E402
import guardian  # noqa: E402
import measure  # noqa: E402
from leafctl import BINARY, ROOT, main, poll  # noqa: E402

SCRIPT = os.path.join(ROOT, "scripts", "bench.sh")
# Only a hang lasts as long.
TIMEOUT_S = 7200


class BenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="leafctl-test-")
        self.addCleanup(folder.cleanup)
        self.dir = os.path.realpath(folder.name)
        os.chmod(self.dir, 0o711)  # the user mysql has to pass
        self.env = dict(os.environ, LEAFCTL=BINARY, TMPDIR=self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def bench(self, *args, command=(SCRIPT,), **env):
        return subprocess.run(
            [*command, *args], env=dict(self.env, **env), timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip

    def figures(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def test_each_row_has_figures(self):
        began = time.monotonic()
        done = self.bench("--smoke", "--json", self.path("first.json"))
        print("bench: all rows in %.1f s" % (time.monotonic() - began))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        names = [line.split()[0] for line in self.bench("--list").stdout.splitlines()]
        self.assertGreater(len(names), 20)
        document = self.figures("first.json")
        self.assertEqual(list(document["rows"]), names)
        self.assertEqual(document["failed"], [])
        for name, row in document["rows"].items():
            self.assertIn(name, done.stdout)
            # Of something else, too.
            self.assertTrue(any("ratio" in figure for figure in row["figures"].values()), name)
            for figure in row["figures"].values():
                for value in [figure["ours"], *(figure[key] for key in ("theirs", "ratio") if key in figure)]:
                    self.assertTrue(math.isfinite(value) and value > 0, (name, figure))
                self.assertIn(figure.get("reached", False), (True, False))
                self.assertEqual("goal" in figure, "reached" in figure)
        # All of it is over, and nothing is left.
        self.assertEqual(guardian.inhabitants(self.dir), [])
        self.assertEqual(os.listdir(self.dir), ["first.json"])

        # A row of it once more, beside what was.
        done = self.bench(
            "snowflake.below", "--smoke", "--json", self.path("again.json"), "--compare", self.path("first.json")
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.figures("again.json")["rows"]), ["snowflake.below"])
        figure = self.figures("again.json")["rows"]["snowflake.below"]["figures"]["cpu_ns"]
        then = document["rows"]["snowflake.below"]["figures"]["cpu_ns"]["ratio"]
        line = next(line for line in done.stdout.splitlines() if line.startswith("snowflake.below"))
        self.assertEqual(line.split()[-2:], ["%.2f" % then, "%.2f" % (figure["ratio"] / then)])

    def test_ends_what_it_started(self):
        """Even killed in the middle of a row."""
        process = subprocess.Popen(
            [SCRIPT, "--seconds", "300", "--json", self.path("x.json"), "http.64"],
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def programs():
            found = set()
            for pid in guardian.inhabitants(self.dir):
                try:
                    with open("/proc/%d/comm" % pid, encoding="ascii") as file:
                        found.add(file.read().strip())
                except OSError:
                    pass  # it has ended
            return found

        try:
            # Under way: the servers and the load.
            poll(lambda: {"mariadbd", "nginx", "wrk"} <= programs(), "a row", timeout=TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        poll(lambda: not os.listdir(self.dir), "nothing left of it")
        self.assertEqual(guardian.inhabitants(self.dir), [])

    def test_a_tool_that_is_missing_is_an_error(self):
        # Not even a shell is found there, but the program needs none.
        done = self.bench(command=(sys.executable, os.path.join(HERE, "bench.py")), PATH="/nonexistent")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("there is no wrk: apt-get install wrk", done.stderr)

    def test_a_row_without_figures_is_an_error(self):
        done = self.bench("oneshot.sqlite", "--smoke", "--json", self.path("x.json"), LEAFCTL="/bin/false")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("no figures for oneshot.sqlite", done.stderr)
        self.assertEqual(self.figures("x.json")["rows"], {})
        for value in (0, -1, math.nan, math.inf):
            with self.assertRaises(measure.BenchError):
                measure.check_sample("x", {"requests_per_s": value})

    def test_a_count_that_moved_is_named_and_one_that_is_reported_is_not_judged(self):
        known = counts.read()
        self.assertEqual(list(known), [row.name for row in counts.ROWS])
        _, moved = counts.compare(known, known)
        self.assertEqual(moved, [])
        for row in counts.ROWS:
            for factor in (0.97, 1.03):
                found = dict(known, **{row.name: known[row.name] * factor})
                lines, moved = counts.compare(found, known)
                self.assertEqual(len(moved), 0 if row.why else 1, row.name)
                self.assertTrue(row.why or moved[0].startswith(row.name + ": "), moved)
                self.assertIn("not judged" if row.why else "MOVED", next(line for line in lines if row.name in line.split()))
            _, moved = counts.compare(dict(known, **{row.name: known[row.name] * 1.015}), known)
            self.assertEqual(moved, [])
            rest = {name: value for name, value in known.items() if name != row.name}
            self.assertEqual(len(counts.compare(known, rest)[1]), 0 if row.why else 1)
        self.assertEqual(counts.compare(known, dict(known, older=1))[1], ["older is in the file, and no row"])

    def test_a_row_that_does_not_exist_is_an_error(self):
        done = self.bench("no.such.row", "--json", self.path("x.json"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("there is no row no.such.row", done.stderr)


if __name__ == "__main__":
    main()
