"""Ends a program with SIGKILL at the N-th call of a kind: just before it, or when it is done and before anything else is;
or stops it there.

A kind is (when, function, target): "before" or "after"; a function that writes to a disk or talks to a server, as in
kill_at.c; and on what: a file of the program's directory by its name, "directory" itself, "stdout", or a server by the
name it is given here. The calls of a run can be written down first, to know how many of a kind there are.
"""

import collections
import os
import shutil
import signal
import subprocess
import tempfile


SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kill_at.c")
SIGKILLED = -9

Point = collections.namedtuple("Point", "when function target number")


class KillAt:
    """The shim, built once. `servers`: name → port."""

    def __init__(self, servers=()):
        compiler = shutil.which("cc")
        if not compiler:
            raise AssertionError("there is no C compiler: apt-get install gcc libc6-dev")
        self.dir = tempfile.mkdtemp(prefix="leafctl-kill-at-")
        self.library = os.path.join(self.dir, "kill_at.so")
        self.servers = dict(servers)
        done = subprocess.run(
            [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", self.library, SOURCE,
             "-ldl"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError("kill_at.c does not compile:\n" + done.stdout.decode("utf-8", "replace"))
        self._runs = 0

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def _environment(self, directory):
        return {
            "LD_PRELOAD": self.library,
            "KILL_AT_DIRECTORY": directory,
            "KILL_AT_PORTS": " ".join("%s:%d" % item for item in self.servers.items()),
        }

    def tracing(self, directory):
        """(environment, calls): with the one a program writes down its calls, the other reads {kind: how many}."""
        self._runs += 1
        path = os.path.join(self.dir, "trace-%d" % self._runs)
        env = dict(self._environment(directory), KILL_AT_TRACE=path)
        return env, lambda: self._calls(path)

    @staticmethod
    def _calls(path):
        found = collections.Counter()
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    when, function, target = line.rstrip("\n").split(" ", 2)
                    found[when, function, target] += 1
        return found

    def killing(self, directory, point, number=signal.SIGKILL):
        """(environment, reached): with the one a program gets that signal there, the other tells whether it did."""
        self._runs += 1
        path = os.path.join(self.dir, "report-%d" % self._runs)
        env = dict(
            self._environment(directory),
            KILL_AT_WHEN=point.when, KILL_AT_FUNCTION=point.function, KILL_AT_TARGET=point.target,
            KILL_AT_NUMBER=str(point.number), KILL_AT_REPORT=path, KILL_AT_SIGNAL=str(int(number)),
        )  # fmt: skip

        def reached():
            if not os.path.exists(path):
                return False
            with open(path, encoding="utf-8") as file:
                return file.read() == "%s %s %s %d\n" % point

        return env, reached


def points(calls, each=None):
    """Every point of a run's calls; of a kind that is frequent, `each` of them, the first and the last included."""
    found = []
    for kind, count in calls.items():
        if each is None or count <= each:
            numbers = range(1, count + 1)
        elif each == 1:
            numbers = [1]
        else:
            numbers = sorted({1 + index * (count - 1) // (each - 1) for index in range(each)})
        found += [Point(*kind, number) for number in numbers]
    return found
