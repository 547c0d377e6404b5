#!/usr/bin/env python3
"""A red test explains itself: what is printed of one that fails, and what scripts/ctest_report.py makes of it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
sys.path.insert(0, SUPPORT)
import explain  # noqa: E402
from leafctl import DEADLINE_S, NOBODY, ROOT, LeafTest, Sandbox, main, through_sudo  # noqa: E402

CTEST_REPORT = os.path.join(ROOT, "scripts", "ctest_report.py")
sys.path.insert(0, os.path.dirname(CTEST_REPORT))
import ctest_report  # noqa: E402

PLANTED = """
    import os, sys, threading, unittest
    sys.path.insert(0, %r)
    import explain
    from leafctl import LeafTest, main

    class Planted(LeafTest):
        def test_it_is_well(self):
            explain.dice("the moments of another test")

    %s

    main()
"""


class FileOfTests(LeafTest):
    """What a file of tests prints when something is planted in it."""

    def plant(self, body):
        path = self.box.write("planted.py", textwrap.dedent(PLANTED) % (SUPPORT, textwrap.indent(textwrap.dedent(body), "    ")))
        return [sys.executable, path]

    def planted(self, body, **env):
        done = subprocess.run(
            self.plant(body), env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=600, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def test_a_failure_is_told_with_all_that_belongs_to_it(self):
        code, said = self.planted(
            """
            def test_planted(self):
                self.box.ok("tag", "add", "pay", "--start", "41")
                first = self.box.serve("--set", "log.level=debug")
                explain.dice("a number").random()
                self.assertEqual(first.terminate(), 0)
                second = self.box.serve()
                self.assertEqual(second.ids("pay")[0], 4711)
            """,
            LEAFCTL_TEST_SEED="99",
        )
        self.assertEqual(code, 1, said)
        summary = re.findall(r"(?m)^failed: .*$", said)
        self.assertEqual(summary, ["failed: Planted.test_planted: AssertionError: 41 != 4711"], said)
        self.assertEqual(said.rstrip("\n").split("\n")[-1], summary[0])
        # The traceback, then the seed, then the logs of both daemons, the first of which has ended.
        order = (
            r"line \d+, in test_planted\n.*AssertionError: 41 != 4711\n.*seed: LEAFCTL_TEST_SEED=99 decided a number\n"
            r".*the end of the log of leafctl serve [^\n]*log\.level=debug \(process \d+, ended with 0\):\n"
            r".*listening on http.*the end of the log of leafctl serve [^\n]*\(process \d+, running\):\n.*listening on http"
        )
        self.assertRegex(said, re.compile(order, re.DOTALL))
        self.assertNotIn("another test", said)

    def test_only_the_ends_of_logs(self):
        _, said = self.planted(
            """
            def test_planted(self):
                daemon = self.box.serve()
                daemon.terminate()
                daemon.log_tail(1)  # by then all that it wrote itself is there
                daemon.lines += ["line %d" % number for number in range(100)]
                self.fail("planted")
            """
        )
        shown = [int(number) for number in re.findall(r"(?m)^line (\d+)$", said)]
        self.assertEqual(shown, list(range(100 - explain.TAIL_LINES, 100)), said)

    def test_the_log_of_a_server(self):
        # By the time the test's own clean-up has run, it is gone.
        code, said = self.planted(
            """
            def test_planted(self):
                from servers import MariaDb
                server = MariaDb()
                self.addCleanup(server.close)
                self.fail("planted")

            def test_the_next_one(self):
                self.fail("has no server")
            """
        )
        self.assertEqual(code, 1, said)
        self.assertEqual(len(re.findall(r"the end of the log of mariadbd on port \d+ \(process \d+, running\):", said)), 1, said)
        self.assertIn("ready for connections", said)

    def test_errors_subtests_and_fixtures(self):
        code, said = self.planted(
            """
            def test_an_error(self):
                raise OSError(5, "planted")

            def test_of_parts(self):
                for part in (1, 2, 3):
                    with self.subTest(part=part):
                        self.assertNotEqual(part, 2)

            def test_long_texts(self):
                self.assertEqual("a" * 1000, "b" * 1000)

            def tearDown(self):
                if "of_parts" in self.id():
                    raise KeyError("planted")
            """
        )
        self.assertEqual(code, 1, said)
        summary = re.findall(r"(?m)^failed: (.*)$", said)
        self.assertEqual(len(summary), 4, said)
        self.assertEqual(summary[0], "Planted.test_an_error: OSError: [Errno 5] planted")
        self.assertTrue(summary[1].startswith("Planted.test_long_texts: AssertionError: 'a"), summary)
        self.assertEqual(summary[2], "Planted.test_of_parts (part=2): AssertionError: 2 == 2")
        self.assertEqual(summary[3], "Planted.test_of_parts: KeyError: 'planted'")
        code, said = self.planted(
            """
            @classmethod
            def setUpClass(cls):
                raise AssertionError("no server")
            """
        )
        self.assertIn(code, (1, 5), said)  # 5: no test has run, as newer versions of Python say
        self.assertRegex(said, r"(?m)^failed: setUpClass \(__main__\.Planted\): AssertionError: no server$")

    def test_a_thread_that_ends_early(self):
        code, said = self.planted(
            """
            def work(self, daemon):
                thread = threading.Thread(target=lambda: self.assertEqual(1, 2), daemon=daemon)
                thread.start()
                thread.join()

            def test_planted(self):
                self.work(False)

            def test_of_a_server(self):
                self.work(True)
            """
        )
        self.assertEqual(code, 1, said)
        self.assertEqual(re.findall(r"(?m)^failed: (.*)$", said), ["Planted.test_planted: AssertionError: 1 != 2"], said)

    def test_one_that_hangs_tells_where(self):
        command = self.plant(
            """
            def test_planted(self):
                self.box.serve()
                threading.Event().wait()
            """
        )
        with subprocess.Popen(
            command, env=dict(os.environ, LEAFCTL_TEST_HANGS_S="20", TMPDIR=self.box.dir), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            watchdog = threading.Timer(10 * DEADLINE_S, process.kill)
            watchdog.start()
            said = ""
            while line := process.stdout.readline().decode("utf-8", "replace"):
                said += line
                if line.startswith("failed: "):
                    os.killpg(process.pid, signal.SIGKILL)  # as ctest would, a minute later; the daemon as well
            watchdog.cancel()
        self.assertIn("failed: Planted.test_planted: not at its end after 20 s\n", said)
        self.assertIn("in test_planted", said)
        self.assertIn("listening on http", said)

    def test_the_log_of_a_contracts_server(self):
        for name, title in (("with_mariadb.sh", "mariadbd"), ("with_zookeeper.sh", "ZooKeeper")):
            for code in (0, 3):
                done = subprocess.run(
                    [os.path.join(SUPPORT, name), "sh", "-c", "exit %d" % code], stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=600, check=False,
                )  # fmt: skip
                self.assertEqual(done.returncode, code, done.stdout)
                said = re.match(r"---- the end of the log of (\w+):\n+.+", done.stdout)
                self.assertEqual(said.group(1) if said else None, title if code else None, done.stdout)

    def test_nothing_is_said_of_what_passes(self):
        code, said = self.planted("")
        self.assertEqual(code, 0, said)
        self.assertTrue(said.endswith("\nOK\n"), said)

    def test_dice(self):
        self.assertEqual(explain.dice("a").random(), explain.dice("a").random())
        self.assertNotEqual(explain.dice("a").random(), explain.dice("b").random())


class CTest(LeafTest):
    """A small project, through ctest and the script behind it."""

    def project(self, **tests):
        """name=shell script"""
        self.folder = self.box.path("project")
        os.mkdir(self.folder)
        lines = []
        for name, script in tests.items():
            path = self.box.write("project/%s.sh" % name, textwrap.dedent(script))
            lines.append('add_test(release.unit.%s "/bin/sh" "%s")' % (name, path))
            lines.append('set_tests_properties(release.unit.%s PROPERTIES LABELS "%s" TIMEOUT 120)' % (name, "label-of-" + name))
        self.box.write("project/CTestTestfile.cmake", "\n".join(lines) + "\n")

    def report(self, *, until=None):
        self.box.write("phases.txt", "installing\t30\nbuild release\t90.5\t87\n")
        script = 'set -o pipefail; ctest --test-dir "$1" --output-on-failure -j 2 2>&1 | "$2" "$3" --test-dir "$1" --phases "$4" --table "$5"'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", self.folder, sys.executable, CTEST_REPORT, self.box.path("phases.txt"),
             self.box.path("table.txt")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        with process:
            watchdog = threading.Timer(10 * DEADLINE_S, process.kill)
            watchdog.start()
            said = b""
            while line := process.stdout.readline():
                said += line
                if until and until in line:
                    os.killpg(process.pid, signal.SIGINT)
            watchdog.cancel()
        return process.returncode, said.decode("utf-8", "replace")

    def test_order_exit_code_and_table(self):
        self.project(good="exit 0", bad="echo 'failed: A.test_b: AssertionError: 1 != 2'; exit 1", slow="sleep 1.2")
        code, said = self.report()
        self.assertEqual(code, 8, said)  # ctest's own
        order = (
            r"#\d: release\.unit\.bad \.+\*\*\*Failed.*\nfailed: A\.test_b.*==== where the time went\n.*"
            r"  installing +0\.5\n  build release +1\.5 +87\n  tests +\d+\.\d +\d+\n  all +\d+\.\d\n.*"
            r"  label-of-slow +\d+\.\d +\d+\.\d +\d+\.\d +1\n.*the 20 slowest tests.*\n  release\.unit\.slow +\d+\.\d +\d+\.\d\n.*"
            r"\n67% tests passed, 1 tests failed out of 3\n.*Total Test time [^\n]*\n\n"
            r"==== what failed\n\nrelease\.unit\.bad \(Failed, \d+\.\d s\)\n    A\.test_b: AssertionError: 1 != 2\n\n"
            r"The following tests FAILED:\n[^\n]*release\.unit\.bad \(Failed\)[^\n]*\n"
            r"Errors while running CTest\n"
        )
        self.assertRegex(said, re.compile(order, re.DOTALL))
        with open(self.box.path("table.txt"), encoding="utf-8") as file:
            table = file.read()
        self.assertIn(table, said)
        self.assertRegex(table, r"label-of-bad +\d+\.\d")

    def test_all_is_well(self):
        self.project(good="exit 0", better="exit 0")
        code, said = self.report()
        self.assertEqual(code, 0, said)
        self.assertNotIn("what failed", said)
        self.assertRegex(said, r"100% tests passed, 0 tests failed out of 2\n[\s\S]*\nTotal Test time[^\n]*\n$")

    def test_output_that_looks_like_ctests_own(self):
        self.project(
            bad="""
            echo ' 1/77 Test #1: other.unit.x ....   Passed    0.04 sec'
            echo '50% tests passed, 1 tests failed out of 2'
            echo 'Total Test time (real) =   0.05 sec'
            echo 'failed: A.test_b: planted'
            sleep 1
            exit 1""",
            last="sleep 2",
        )
        code, said = self.report()
        self.assertEqual(code, 8, said)
        self.assertRegex(
            said,
            r"\n50% tests passed, 1 tests failed out of 2\n[\s\S]*"
            r"==== what failed\n\nrelease\.unit\.bad \(Failed, \d+\.\d s\)\n    A\.test_b: planted\n\nThe following tests",
        )
        self.assertEqual(said.count("==== what failed"), 1)
        self.assertNotRegex(said, r"(?m)^  other\.unit\.x")

    def test_ctest_is_ended_early(self):
        self.project(bad="echo 'failed: A.test_b: planted'; exit 1", long="sleep 100")
        code, said = self.report(until=b"failed: A.test_b: planted")  # what it has printed comes after its result
        self.assertNotEqual(code, 0)
        self.assertIn("==== ctest has not come to its end", said)
        self.assertIn("    A.test_b: planted\n", said)


class Explanations(LeafTest):
    """The case that failed, found in what each kind of test prints."""

    def check_explained(self, output, *expected):
        self.assertEqual(ctest_report.explain(textwrap.dedent(output).strip("\n").split("\n")), list(expected))

    def test_of_a_file_of_tests_that_was_killed(self):
        self.check_explained(
            """
            test_a (__main__.A.test_a) ... ok
            test_b (__main__.A.test_b)
            What it is about. ... ok
            test_c (__main__.A.test_c)
            Something else. ...
            """,
            "test_c (__main__.A.test_c): was running when it ended",
        )

    def test_of_gtest(self):
        self.check_explained(
            """
            [ RUN      ] Store/Contract.Grants/MariaDb
            /src/contract.cc:12: Failure
            Expected equality of these values:
              end
                Which is: 7
              8
            [  FAILED  ] Store/Contract.Grants/MariaDb, where GetParam() = "x" (12 ms)
            [ RUN      ] Store.Other
            [       OK ] Store.Other (1 ms)
            [ RUN      ] Store.Crashes
            leafctl: broken invariant: end > begin (/src/core.cc:5)
            """,
            "Store/Contract.Grants/MariaDb",
            "  /src/contract.cc:12: Failure",
            "  Expected equality of these values:",
            "    end",
            "      Which is: 7",
            "    8",
            "Store.Crashes: was running when it ended",
            "leafctl: broken invariant: end > begin (/src/core.cc:5)",
        )
        self.check_explained("[  FAILED  ] A.B\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.B", "A.B")

    def test_of_golden_tests(self):
        self.check_explained(
            """
            ok   next
            FAIL doctor
            --- cases/doctor.case (expected)
            +++ cases/doctor.case (found)
            @@ -1,2 +1,2 @@
             $ leafctl doctor
            -ok
            +problem

            ok   usage
            1 of 3 cases differ
            """,
            "doctor",
            "  -ok",
            "  +problem",
        )

    def test_of_the_simulator(self):
        self.check_explained(
            """
            leafsim: seeds from 5 on
            seed 6: nodes 3, Java 1
            seed 6 VIOLATION tag a: 7 was issued twice
            leafsim: 2 runs
            """,
            "seed 6: nodes 3, Java 1",
            "  seed 6 VIOLATION tag a: 7 was issued twice",
        )
        self.check_explained(
            "leafsim: an assertion failed at seed 8 late_writes", "leafsim: an assertion failed at seed 8 late_writes"
        )
        self.check_explained("FAILED: leafsim --seed 7: exit code 1, not 0", "FAILED: leafsim --seed 7: exit code 1, not 0")

    def test_of_fuzzers(self):
        kept = self.box.write("fuzz_corpus.http.input", "x")
        self.check_explained(
            """
            seed 1, 12000 iterations; what fails is kept in %s/fuzz_corpus.TARGET.input
            toml                2 files,  12000 mutations
            leafctl: broken invariant: x (targets.cc:9)
            """ % self.box.dir,
            "seed 1, 12000 iterations: %s (fuzz_corpus --target NAME --replay FILE)" % kept,
            "leafctl: broken invariant: x (targets.cc:9)",
        )

    def test_of_sanitizers_and_of_anything_else(self):
        self.check_explained("x\nWARNING: ThreadSanitizer: data race (pid=1)\ny", "WARNING: ThreadSanitizer: data race (pid=1)")
        self.check_explained("\n".join("line %d" % n for n in range(20)), *["line %d" % n for n in range(12, 20)])


class OtherUsers(LeafTest):
    """What runs as another user is independent of the folder that the checkout is in."""

    def test_the_checkout_may_be_private(self):
        with tempfile.TemporaryDirectory(prefix="leafctl-private-") as private:  # which only its owner may enter
            suppressions = os.path.join(private, "suppressions")
            with open(suppressions, "w", encoding="utf-8") as file:
                file.write("race:nothing\n")
            box = Sandbox()
            self.addCleanup(box.close)
            box.env["TSAN_OPTIONS"] = "second_deadlock_stack=1:suppressions=%s:log_path=/tmp/none" % suppressions
            box.open_to_others()
            copy = box.path("suppressions")
            self.assertEqual(
                box.env["TSAN_OPTIONS"], "second_deadlock_stack=1:suppressions=%s:log_path=/tmp/none" % copy
            )
            as_nobody = [*through_sudo(), "setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]

            def run(*args):
                return subprocess.run(
                    [*as_nobody, *args], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
                )

            self.assertNotEqual(run("cat", suppressions).returncode, 0, "it shows nothing")
            self.assertEqual(run("cat", copy).stdout, b"race:nothing\n")
            self.assertEqual(run("env", "-i", box.binary, "--version").returncode, 0)

    def test_a_sandbox_that_others_cannot_reach_is_told(self):
        inside = tempfile.mkdtemp(prefix="leafctl-private-")
        self.addCleanup(shutil.rmtree, inside)
        box = Sandbox()
        self.addCleanup(shutil.rmtree, box.dir)
        if os.geteuid() == 0:  # for other users this is all their own
            box.dir = os.path.join(inside, "box")
            shutil.copytree(self.box.dir, box.dir)
            self.assertRaisesRegex(AssertionError, "another user cannot read", box.open_to_others)
        else:
            box.open_to_others()


if __name__ == "__main__":
    main()
