"""What the rows of the benchmark measure with: processors, processes, figures."""

import contextlib
import math
import os
import shutil
import socket
import statistics
import time

# The server has the first processor for itself, and its clients have the last: so neither slows the other down.
_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = _CORES[0]
LOAD_CORE = _CORES[-1]

# package of each tool
PACKAGES = {
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "nginx": "nginx-light",
    "redis-server": "redis-server",
    "redis-cli": "redis-tools",
    "mariadb": "mariadb-client",
    "mariadbd": "mariadb-server",
    "valgrind": "valgrind",
}


class BenchError(Exception):
    """Why a row has no figures."""


def tool(name):
    """The path of a program; servers are not on every user's path."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not path:
        raise BenchError("there is no %s: apt-get install %s" % (name, PACKAGES[name]))
    return path


@contextlib.contextmanager
def on_core(core):
    """What this thread starts meanwhile runs on that processor, and so do its threads and children."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def resident_mb(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise BenchError("process %d has no resident memory" % pid)


class Spawner:
    """Runs one program after the other, from fork to exit; what they print goes to one file."""

    def __init__(self, folder, name):
        self._out_path = os.path.join(folder, name + ".out")
        self._err_path = os.path.join(folder, name + ".err")

    def run(self, command, env):
        """(wall ms, processor ms) of one process. An exit code other than 0 is an error."""
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, self._out_path, append, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, self._err_path, append, 0o600),
        ]
        began = time.perf_counter()
        pid = os.posix_spawn(command[0], command, env, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        wall_ms = 1000 * (time.perf_counter() - began)
        if status != 0:
            with open(self._err_path, encoding="utf-8", errors="replace") as file:
                raise BenchError("%s: status %d: %s" % (" ".join(command), status, file.read()[-2000:]))
        return wall_ms, 1000 * (usage.ru_utime + usage.ru_stime)

    def check_ids(self, count):
        """Each run has printed one number, and none came twice."""
        with open(self._out_path, encoding="ascii") as file:
            ids = [int(line) for line in file]
        if len(ids) != count or len(set(ids)) != count:
            raise BenchError("%d runs printed %d numbers, %d different" % (count, len(ids), len(set(ids))))


def ask_unix(path, question):
    """What a server on a Unix socket answers; b"" if it is not there yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        try:
            connection.connect(path)
            connection.sendall(question)
            return connection.recv(4096)
        except (FileNotFoundError, ConnectionError):
            return b""


def ms_until(began, condition, process, what):
    """Milliseconds from `began` (time.perf_counter) until it is true; looks every quarter of a millisecond."""
    while not condition():
        if process.poll() is not None:
            raise BenchError("%s ended with %d" % (what, process.returncode))
        if time.perf_counter() - began > 120:
            raise BenchError("%s is not ready after 2 minutes" % what)
        time.sleep(0.00025)
    return 1000 * (time.perf_counter() - began)


def check_sample(name, sample):
    """Fails if a figure is no positive number: then nothing was measured."""
    for figure, value in sample.items():
        if not math.isfinite(value) or value <= 0:
            raise BenchError("%s: %s is %r" % (name, figure, value))
    return sample


def medians(samples):
    """Of each figure over the rounds."""
    return {figure: statistics.median(sample[figure] for sample in samples) for figure in samples[0]}
