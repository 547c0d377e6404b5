#!/usr/bin/env python3
"""Counts what does not depend on the day: instructions, system calls, flushes, round trips, bytes. See PERFORMANCE.md.

    counts.py           measures, and compares with counts.txt: fails if a row has moved by more than 2 %
    counts.py --accept  writes what was measured to counts.txt
    counts.py --list    names the rows

The judgement is for the processor, the compiler and the packages that the file was made with. Elsewhere the rows are
reported only.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import leafctl  # noqa: E402
from kill_at import KillAt  # noqa: E402
from leafctl import RawConnection, poll  # noqa: E402
from measure import BenchError, tool  # noqa: E402
from resp import Resp  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

FILE = os.path.join(HERE, "counts.txt")
TOLERANCE = 0.02
# Where the tag begins: all IDs have as many digits.
FIRST_ID = 10**12
REQUESTS = 160
BLOCKS = 8
DEPTH = 16
STARTS = 15
GRANTS = 40
GRANT_STEP = 100
# The processor that valgrind presents has what the machine's has, and the C library chooses by it.
SAME_EVERYWHERE = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-ERMS,-FSRM"}

# `why`: for a row that is reported and not judged.
Row = collections.namedtuple("Row", "name what why")
ROWS = [
    Row("segment.take1", "instructions an ID: Take(1) of a segment", None),
    Row("segment.named", "instructions an ID: the same by tag name, through the service", None),
    Row("segment.handle", "instructions an ID: the same with a handle of the tag", None),
    Row("snowflake.below", "instructions an ID: a snowflake below the ceiling, in a millisecond that has begun", None),
    Row("http.get", "instructions a request: GET /api/segment/get/TAG", None),
    Row("http.get.calls", "system calls a request, on a connection that stays", None),
    Row("http.pipelined", "instructions a request: 16 in one go", None),
    Row("http.pipelined.calls", "system calls of 16 requests in one go", None),
    Row("http.count100", "instructions a request: 100 IDs, listed", None),
    Row("http.count100.bytes", "bytes an ID of that answer, head included", None),
    Row("redis.incr", "instructions a call: INCR", None),
    Row("redis.incr.calls", "system calls a call", None),
    Row("redis.pipelined", "instructions a call: 16 INCR in one go", None),
    Row("redis.pipelined.calls", "system calls of 16 INCR in one go", None),
    Row("next", "instructions of `leafctl next TAG` through the socket, from exec to exit", None),
    Row("next.faults", "page faults of it", "the kernel's doing: how much it maps at once"),
    Row("help", "instructions of `leafctl --help`", None),
    Row("help.faults", "page faults of it", "the kernel's doing: how much it maps at once"),
    Row("grant.flushes", "flushes of a grant, on this node's disk", None),
    Row("grant.mysql", "messages to MariaDB for a grant", None),
    Row("grant.witness.flushes", "flushes of a grant with a witness", None),
    Row("grant.witness.mysql", "messages to MariaDB for such a grant", None),
    Row("grant.witness.zookeeper", "messages to ZooKeeper for such a grant", None),
]  # fmt: skip


# ---- callgrind -----------------------------------------------------------------------------------------------------


def callgrind(out, *options):
    return [tool("valgrind"), "-q", "--tool=callgrind", "--callgrind-out-file=" + out, *options]


def to_a_quarter(count):
    """Of few calls each time. A timer that runs meanwhile makes some hundredths more or less, and on a busy machine up to
    a tenth."""
    return round(4 * count) / 4


Dump = collections.namedtuple("Dump", "thread trigger instructions calls")


def read_dump(path):
    """Totals of a file. `calls`: to the system, but for readings of the clock, which are none outside of valgrind."""
    thread, trigger, totals, events, clock_calls = 0, "", [0], ["Ir"], 0
    function, inclusive = "", False
    names = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("fn="):
                found = re.match(r"fn=(\(\d+\))(?: (.*))?", line)
                function = names.setdefault(found.group(1), found.group(2) or "")
            elif line.startswith(("cfn=", "cfi=", "cob=")):
                found = re.match(r"cfn=(\(\d+\)) (.*)", line)
                if found:
                    names.setdefault(found.group(1), found.group(2))
            elif line.startswith("calls="):
                inclusive = True
            elif line[:1] in "0123456789+-*":
                if not inclusive and function.startswith("clock_gettime"):
                    costs = dict(zip(events, line.split()[1:]))
                    clock_calls += int(costs.get("sysCount", 0))
                inclusive = False
            elif line.startswith("events: "):
                events = line.split()[1:]
            elif line.startswith("totals: "):
                totals = [int(word) for word in line.split()[1:]]
            elif line.startswith("thread: "):
                thread = int(line.split()[1])
            elif line.startswith("desc: Trigger: "):
                trigger = line.split(": ", 2)[2].strip()
    found = dict(zip(events, totals))
    return Dump(thread, trigger, found.get("Ir", 0), found.get("sysCount", 0) - clock_calls)


def in_process(folder, found):
    """The rows of counted.cc."""
    program = os.path.join(os.path.dirname(leafctl.BINARY), "counted")
    if not os.access(program, os.X_OK):
        raise BenchError("there is no %s beside leafctl: build the target counted" % program)
    out = os.path.join(folder, "counted.out")
    done = subprocess.run(
        [*callgrind(out), program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=dict(os.environ, **SAME_EVERYWHERE), check=False, encoding="utf-8",
    )  # fmt: skip
    sizes = re.search(r"^(\d+) IDs a row, (\d+) and (\d+) a batch$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not sizes:
        raise BenchError("counted failed:\n" + done.stdout)
    ids, small, large = map(int, sizes.groups())
    rows = collections.defaultdict(list)
    for path in glob.glob(out + ".*"):
        dump = read_dump(path)
        rows[dump.trigger.rsplit(" ", 1)[-1]].append(dump.instructions)
    for name in ("segment.take1", "segment.named", "segment.handle"):
        found[name] = rows[name][0] / ids
    found["snowflake.below"] = (min(rows["snowflake.batch2"]) - min(rows["snowflake.batch"])) / (large - small)


# ---- requests ------------------------------------------------------------------------------------------------------


class CountedDaemon:
    """`leafctl serve` with one thread under callgrind. What the thread of the requests does is counted between two marks:
    a request for /health/live, at which callgrind writes down what there was since the last one."""

    def __init__(self, box, folder):
        self._out = os.path.join(folder, "serve.out")
        binary, box.binary = box.binary, box.write(
            "counted", "#!/bin/sh\nexec %s '%s' \"$@\"\n" % (
                " ".join("'%s'" % word for word in callgrind(
                    self._out, "--separate-threads=yes", "--collect-systime=yes",
                    "--dump-before=leaf::server::HealthLive*")),
                box.binary), mode=0o700,
        )  # fmt: skip
        try:
            self.daemon = box.serve(
                "--set", "server.threads=1", "--set", "segment.refresh_interval=1h", "--redis-listen", "127.0.0.1:0",
                "--set", "server.max_requests_per_second=100000000",
                "--set", "server.max_tag_requests_per_second=100000000", env=SAME_EVERYWHERE,
            )  # fmt: skip
        finally:
            box.binary = binary
        self._stat = next(
            "/proc/%d/task/%s/stat" % (self.daemon.process.pid, task)
            for task in os.listdir("/proc/%d/task" % self.daemon.process.pid)
            if self._name(task) == "leaf-http"
        )
        self._marks = RawConnection(("127.0.0.1", self.daemon.port))
        self._dumps = 0
        self.redis_port = int(self.daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)").group(1))

    def _name(self, task):
        with open("/proc/%d/task/%s/comm" % (self.daemon.process.pid, task), encoding="ascii") as file:
            return file.read().strip()

    def settle(self):
        """Until the thread waits for a request. One that came while it was still at the last one would save it a call."""

        def waits():
            with open(self._stat, encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "S"

        poll(waits, "the thread of the requests at rest", interval=0.0002)

    def _mark(self):
        self.settle()
        answer = self._marks.get("/health/live")
        if answer is None or answer.status != 200:
            raise BenchError("no mark: %r" % (answer,))
        self.settle()

    def _dump(self):
        """What was counted between the last two marks."""
        numbers = {
            int(re.search(r"\.(\d+)-\d+$", path).group(1)) for path in glob.glob(glob.escape(self._out) + ".*-*")
        }
        # The thread of the requests is the only one that works: the others sleep.
        dumps = [read_dump(path) for path in glob.glob("%s.%d-*" % (glob.escape(self._out), max(numbers)))]
        return max(dumps, key=lambda dump: dump.instructions)

    def count(self, ask, times):
        """(instructions, system calls) of one `ask`."""
        for _ in range(10):
            self.settle()
            ask()
        each = times // BLOCKS
        # Of several the least: on a busy machine a timer of the server runs beside some of them.
        none, some = [], []
        self._mark()
        for _ in range(BLOCKS):
            self._mark()
            none.append(self._dump())
            for _ in range(each):
                self.settle()
                ask()
            self._mark()
            some.append(self._dump())
        return (
            (min(dump.instructions for dump in some) - min(dump.instructions for dump in none)) / each,
            to_a_quarter((min(dump.calls for dump in some) - min(dump.calls for dump in none)) / each),
        )

    def close(self):
        self._marks.close()
        if self.daemon.terminate() != 0:
            raise BenchError("leafctl serve ended badly:\n" + self.daemon.log())


def get(connection, path):
    answer = connection.get(path)
    if answer is None or answer.status != 200:
        raise BenchError("%s: %r" % (path, answer))
    return answer


def requests(box, folder, found):
    server = CountedDaemon(box, folder)
    port = server.daemon.port
    path = "/api/segment/get/pay"
    hundred = "/v1/segment/pay?count=100"
    with contextlib.closing(server):
        with RawConnection(("127.0.0.1", port)) as connection:
            for _ in range(20):
                get(connection, path)  # the first range is there
            found["http.get"], found["http.get.calls"] = server.count(lambda: get(connection, path), REQUESTS)

            def pipelined():
                connection.send(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path) * DEPTH)
                for _ in range(DEPTH):
                    if connection.response().status != 200:
                        raise BenchError("no ID")

            instructions, found["http.pipelined.calls"] = server.count(pipelined, REQUESTS)
            found["http.pipelined"] = instructions / DEPTH
            found["http.count100"], _ = server.count(lambda: get(connection, hundred), REQUESTS)
            connection.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % hundred)
            answer = b""
            while not answer.endswith(b"]}"):
                answer += connection.socket.recv(65536)
            found["http.count100.bytes"] = len(answer) / 100
        with Resp(server.redis_port) as redis:
            found["redis.incr"], found["redis.incr.calls"] = server.count(lambda: redis.ask("INCR", "pay"), REQUESTS)

            def incr16():
                redis.send(redis.encode("INCR", "pay") * DEPTH)
                for _ in range(DEPTH):
                    if not isinstance(redis.reply(), int):
                        raise BenchError("no ID")

            instructions, found["redis.pipelined.calls"] = server.count(incr16, REQUESTS)
            found["redis.pipelined"] = instructions / DEPTH


# ---- programs ------------------------------------------------------------------------------------------------------


def page_faults(command, env):
    counts = []
    for _ in range(STARTS):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise BenchError("%s: exit %d" % (" ".join(command), process.returncode))
        counts.append(usage.ru_minflt)
    return statistics.median(counts)


def instructions_of(command, env, out):
    # Without -q's errors nothing is printed but what the program says.
    done = subprocess.run(
        [*callgrind(out), *command], env=dict(env, **SAME_EVERYWHERE), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, encoding="utf-8",
    )  # fmt: skip
    if done.returncode != 0:
        raise BenchError("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr))
    return read_dump(out).instructions


def programs(box, folder, found):
    daemon = box.serve("--set", "server.threads=1")
    daemon.ids("pay")
    # What the caller's environment holds would count.
    env = {name: value for name, value in box.env.items() if name == "HOME" or name.startswith("LEAFCTL")}
    env["PATH"] = "/usr/bin:/bin"
    for name, command in (("next", ["next", "pay"]), ("help", ["--help"])):
        whole = [box.binary, *command]
        found[name] = instructions_of(whole, env, os.path.join(folder, name + ".out"))
        found[name + ".faults"] = page_faults(whole, env)
    if daemon.terminate() != 0:
        raise BenchError("leafctl serve ended badly:\n" + daemon.log())


class GrantServers:
    """MariaDB and ZooKeeper, started at the same time."""

    def __init__(self):
        with concurrent.futures.ThreadPoolExecutor() as starters:
            zookeeper = starters.submit(ZooKeeper)
            self.mariadb = MariaDb()
            self.zookeeper = zookeeper.result()

    def close(self):
        self.mariadb.close()
        self.zookeeper.close()

    def configure(self, box, fence):
        """A database of its own; what is asked for in the background is asked for once an hour."""
        self.mariadb.sql("CREATE DATABASE counts_%s CHARACTER SET utf8mb4" % fence)
        password = box.write("password", PASSWORD + "\n")
        box.env["LEAFCTL_CONFIG"] = box.write(
            "leafctl.toml",
            '[segment]\nstore = "mysql"\nfence = "%s"\nrefresh_interval = "1h"\nstep_policy = "fixed"\n'
            '[mysql]\nendpoints = ["127.0.0.1:%d"]\ndatabase = "counts_%s"\nuser = "leaf"\npassword_file = "%s"\n'
            '[snowflake]\nenabled = false\ncluster = "counts"\nclaim_watch = "0s"\n'
            '[zookeeper]\nconnect = "%s"\nsession_timeout = "60s"\n'
            % (fence, self.mariadb.port, fence, password, self.zookeeper.connect),
        )


def grants_of(servers, shim, fence):
    """(flushes, messages to MariaDB, messages to ZooKeeper) of a grant, of a daemon that makes one after the other."""
    box = leafctl.Sandbox()
    try:
        servers.configure(box, fence)
        box.ok("db", "init")
        box.ok("tag", "add", "pay", "--step", str(GRANT_STEP))
        env, calls = shim.tracing(box.state)
        daemon = box.serve("--set", "server.threads=1", env=env)

        def look():
            # A grant is counted when all of it is done.
            grants = daemon.tag_status("pay")["grants"]
            return grants, {
                (function, target): count for (when, function, target), count in calls().items() if when == "before"
            }

        def at_rest():
            """Once nothing has gone on for a moment: a request sets a grant going for those that follow."""
            last = look()
            while True:
                time.sleep(0.01)
                now = look()
                if now == last:
                    return now
                last = now

        for _ in range(5):
            daemon.ids("pay", GRANT_STEP)
        steps, (before, calls_before) = [], at_rest()
        for _ in range(GRANTS):
            daemon.ids("pay", GRANT_STEP)
            after, calls_after = at_rest()
            if after > before:
                steps.append((after - before, collections.Counter(calls_after) - collections.Counter(calls_before)))
            before, calls_before = after, calls_after
        if len(steps) < GRANTS // 3:
            raise BenchError("%d requests for as many IDs as a grant has made a grant %d times" % (GRANTS, len(steps)))

        def median(functions, target=None):
            # Whatever else is said meanwhile, such as that this node lives, comes with few of them.
            return statistics.median(
                sum(count for (function, at), count in step.items() if function in functions and target in (None, at))
                / grants
                for grants, step in steps
            )

        return (
            median(("fsync", "fdatasync")), median(("send", "sendmsg"), "mysql"), median(("send", "sendmsg"), "zookeeper")
        )  # fmt: skip
    finally:
        box.close()


def grants(found):
    with contextlib.closing(GrantServers()) as servers:
        shim = KillAt({"mysql": servers.mariadb.port, "zookeeper": servers.zookeeper.port})
        with contextlib.closing(shim):
            node, cluster = (grants_of(servers, shim, fence) for fence in ("node", "cluster"))
    found["grant.flushes"], found["grant.mysql"], _ = node
    found["grant.witness.flushes"], found["grant.witness.mysql"], found["grant.witness.zookeeper"] = cluster


# ---- the file ------------------------------------------------------------------------------------------------------


def measure():
    folder = tempfile.mkdtemp(prefix="leafctl-counts-")
    found = {}
    box = leafctl.Sandbox()
    try:
        box.ok("tag", "add", "pay", "--step", "1000000", "--start", str(FIRST_ID))
        in_process(folder, found)
        requests(box, folder, found)
        programs(box, folder, found)
        grants(found)
    finally:
        box.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def text_of(value):
    return "%d" % round(value) if value == int(value) or value >= 1e5 else "%.2f" % value


HEAD = """\
# What scripts/bench.sh counts has counted, and a test compares with: counts that do not depend on how fast or busy
# the machine is. A row that moves by more than 2 % fails the test; with a reason, take it over with
#   scripts/bench.sh counts --accept
# "reported" rows are not judged: they say why. Judged only where it says the same of the machine:
"""
MADE_WITH = "# made with: "
# What the program is made of, and what counts.
PACKAGES = ("g++-12", "libc6", "libssl-dev", "valgrind")


def made_with():
    """What instructions depend on, beside the program's text."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return "; ".join([processor, *sorted(done.stdout.split("\n"))[1:]])


def write(found):
    lines = [HEAD, MADE_WITH + made_with() + "\n"]
    for row in ROWS:
        lines.append("%-24s %10s  # %s%s\n" % (
            row.name, text_of(found[row.name]), row.what, "; reported: " + row.why if row.why else ""))  # fmt: skip
    with open(FILE, "w", encoding="utf-8") as file:
        file.writelines(lines)


def read():
    known = {}
    with open(FILE, encoding="utf-8") as file:
        for line in file:
            words = line.split("#", 1)[0].split()
            if words:
                known[words[0]] = float(words[1])
    return known


def why_not_judged():
    """Why this build's counts are not those of the file; None if they should be."""
    with open(leafctl.BINARY, "rb") as file:
        compilers = set(re.findall(rb"(?:GCC: \([^)]*\) [0-9.]+|clang version [0-9.]+)", file.read()))
    if not compilers or any(b"GCC: (Debian 12.2.0" not in compiler for compiler in compilers):
        return "it was not g++ 12.2 that built leafctl"
    with open(FILE, encoding="utf-8") as file:
        then = next((line[len(MADE_WITH) :].strip() for line in file if line.startswith(MADE_WITH)), "")
    now = made_with()
    return None if now == then else "this is another machine (%s; the file: %s)" % (now, then)


def compare(found, known):
    """(lines of the table, what has moved)"""
    lines, moved = [], []
    for row in ROWS:
        now, then = found[row.name], known.get(row.name)
        line = "%-24s %10s" % (row.name, text_of(now))
        if then is None:
            line += "  not in the file"
            if not row.why:
                moved.append("%s is not in the file: %s (%s)" % (row.name, text_of(now), row.what))
        else:
            by = now / then - 1 if then else float(now != then)
            line += "  %+6.1f %%" % (100 * by)
            if row.why:
                line += "  not judged: " + row.why
            elif abs(by) > TOLERANCE:
                line += "  MOVED"
                moved.append("%s: %s, was %s (%+.1f %%): %s" % (row.name, text_of(now), text_of(then), 100 * by, row.what))
        lines.append(line)
    for name in sorted(set(known) - {row.name for row in ROWS}):
        moved.append("%s is in the file, and no row" % name)
    return lines, moved


def main():
    parser = argparse.ArgumentParser(prog="bench.sh counts", description="counts that do not depend on the day")
    parser.add_argument("--accept", action="store_true", help="take over what is measured to tests/bench/counts.txt")
    parser.add_argument("--list", action="store_true", help="names the rows, and ends")
    options = parser.parse_args()
    if options.list:
        for row in ROWS:
            print("%-24s %s" % (row.name, row.what))
        return 0
    began = time.monotonic()
    known = read() if os.path.exists(FILE) else {}
    try:
        found = measure()
        moved = compare(found, known)[1]
        if moved and not options.accept and not why_not_judged():
            # Where the machine is busy, more of what timers do falls among the requests. That only adds.
            print("counts: measured again, since rows have moved:\n  " + "\n  ".join(moved))
            again = measure()
            found = {name: min(value, again[name]) for name, value in found.items()}
    except (BenchError, AssertionError) as error:
        print("counts: %s" % error, file=sys.stderr)
        return 1
    lines, moved = compare(found, known)
    print("\n".join(lines))
    print("counts: in %.1f s" % (time.monotonic() - began))
    if options.accept:
        write(found)
        print("counts: written to %s" % os.path.relpath(FILE, leafctl.ROOT))
        return 0
    reason = why_not_judged()
    if reason:
        print("counts: reported only, since %s" % reason)
        return 0
    if moved:
        print("counts: moved by more than 2 %:\n  " + "\n  ".join(moved), file=sys.stderr)
        print(
            "counts: find out why (callgrind_annotate says where); if it is wanted: scripts/bench.sh counts --accept,\n"
            "counts: and commit tests/bench/counts.txt with what moved it",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
