"""Load on a daemon from wrk: each connection asks again as soon as it has its answer."""

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import time

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wrk.lua")
# Under it no answer is late.
TIMEOUT_S = 120


class WrkResult:
    """What came of a run: `requests` were answered in `duration_s`."""

    def __init__(self, output):
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if len(lines) != 1:
            raise AssertionError("wrk says something else than expected:\n" + output)
        values = json.loads(lines[0])
        self.requests = values["requests"]
        self.duration_s = values["duration_s"]
        self.rate = self.requests / self.duration_s
        self.p50_ms = values["p50_ms"]
        self.p99_ms = values["p99_ms"]
        self.p999_ms = values["p999_ms"]
        # By kind; "status" are answers other than 2xx and 3xx.
        self.errors = {kind: values[kind] for kind in ("connect", "read", "write", "timeout", "status") if values[kind]}


class Wrk:
    """A run in the background; `result` waits for it. With `answers`, a path, `lines` are what was answered.

    Each connection sends `pipeline` requests in one go; wrk's latencies say nothing then.
    """

    def __init__(self, url, connections, seconds, answers=None, threads=1, headers=(), pipeline=1):
        tool = shutil.which("wrk")
        if not tool:
            raise AssertionError("there is no wrk: apt-get install wrk")
        command = [tool, "--threads=%d" % threads, "--connections=%d" % connections, "--duration=%ds" % seconds,
                   "--timeout=%ds" % TIMEOUT_S, "--script=" + SCRIPT]  # fmt: skip
        for header in headers:
            command.append("--header=" + header)
        command += [url, "--", str(pipeline)]
        self._answers = answers
        if answers:
            command.append(answers)
        self._seconds = seconds
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def running(self):
        return self._process.poll() is None

    def answered_bytes(self):
        """Of the answers so far, in the end or a little less."""
        return sum(os.path.getsize(path) for path in self._files())

    def lines(self):
        """All answers, after `result`."""
        lines = []
        for path in self._files():
            with open(path, encoding="latin-1") as file:
                lines += file.read().splitlines()
        return lines

    def _files(self):
        return glob.glob(glob.escape(self._answers) + ".*")

    def stop(self):
        """Ends it before its time, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def result(self):
        try:
            output, _ = self._process.communicate(timeout=self._seconds + 120)
        except subprocess.TimeoutExpired:
            raise AssertionError("wrk does not come to an end") from None
        text = output.decode("utf-8", "replace")
        if self._process.returncode != 0:
            raise AssertionError("wrk failed:\n" + text)
        return WrkResult(text)


def run(url, connections, seconds, **more):
    """A whole run."""
    with Wrk(url, connections, seconds, **more) as wrk:
        return wrk.result()


def cpu_s(pid):
    """Seconds of processor time that the threads of a process have used. Ones that ended are forgotten."""
    total_ns = 0
    for path in glob.glob("/proc/%d/task/*/schedstat" % pid):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            total_ns += int(file.read().split()[0])
    return total_ns / 1e9


def cpu_share(pid, seconds):
    """Of one processor, over some seconds from now."""
    before, started = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(pid) - before) / (time.monotonic() - started)
