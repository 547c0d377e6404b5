#!/usr/bin/env python3
"""Measures leafctl side by side with its yardsticks. See scripts/bench.sh, which runs this, and PERFORMANCE.md."""

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import leafctl  # noqa: E402
import load  # noqa: E402
from certificates import Authority  # noqa: E402
from delay_proxy import DelayProxy  # noqa: E402
from guardian import Guardian  # noqa: E402
from measure import PACKAGES, SERVER_CORE, BenchError, check_sample, medians, on_core, tool  # noqa: E402
from rows import AMPLE, FIGURES, FIRST_ID, NGINX_BODIES, ROWS  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402
from tls_daemon import TlsDaemon  # noqa: E402
from yardsticks import IdStatements, Nginx, Redis  # noqa: E402

# Leaf's rule, ten minutes of the peak rate, says of a hundred thousand calls a second or two: this.
STEP = 100000000


class Bench:
    """What the rows share: servers that are started when first asked for, and how often and how long to measure."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, folder, rounds, seconds, smoke):
        self.folder = folder
        self.rounds = rounds
        self.seconds = seconds
        self.smoke = smoke
        self.whole_seconds = max(1, round(seconds))  # wrk knows no others
        self.binary = leafctl.BINARY
        self._known = {}
        self._databases = 0
        self._stack = contextlib.ExitStack()

    def close(self):
        self._stack.close()

    def path(self, name):
        return os.path.join(self.folder, name)

    def once(self, name, make):
        """What `make` returned the first time."""
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]

    def _owned(self, thing):
        self._stack.callback(thing.close)
        return thing

    def alternate(self, ours, theirs, rounds=None):
        """Samples of both, one round after the other, and each goes first in turn: what heats one heats both."""
        samples = ([], [])
        for number in range(rounds or self.rounds):
            turns = ((samples[0], ours), (samples[1], theirs))
            for found, measure in turns if number % 2 == 0 else reversed(turns):
                found.append(check_sample("a round", measure()))
        return samples

    def settled(self, measure):
        """The least value of a second."""
        until = time.monotonic() + (0.1 if self.smoke else 1)
        least = measure()
        while time.monotonic() < until:
            time.sleep(0.02)
            least = min(least, measure())
        return least

    # ---- servers

    def mariadb(self):
        return self.once("mariadb", lambda: self._owned(MariaDb(flush=True)))

    def primary(self):
        """A MariaDB that replicas could follow, and that loses nothing."""

        def make():
            server = self._owned(MariaDb(flush=True))
            server.stop()
            server.command += ["--server-id=1", "--log-bin", "--sync-binlog=1", "--binlog-format=ROW"]
            server.start()
            # On a slow disk 256 callers of one row wait for each other longer than the default, 50 s.
            server.sql("SET GLOBAL max_connections = 400; SET GLOBAL innodb_lock_wait_timeout = 100000")
            return server

        return self.once("primary", make)

    def nginx(self):
        return self.once("nginx", lambda: self._owned(Nginx(self.path("nginx"), NGINX_BODIES, SERVER_CORE)))

    def authority(self):
        return self.once("authority", lambda: Authority(self.path("pki")))

    def identity(self):
        """A certificate with an EC key, as a new one has today, for ours and theirs."""
        return self.once("identity", lambda: self.authority().issue("server"))

    def tls_nginx(self):
        return self.once(
            "tls_nginx",
            lambda: self._owned(Nginx(self.path("tls_nginx"), NGINX_BODIES, SERVER_CORE, self.identity())),
        )

    def redis(self):
        return self.once("redis", lambda: self._owned(Redis(self.path("redis"))))

    def counters(self):
        """The database with the tables of IdStatements."""
        return self.once("counters", lambda: self._make_counters(self.mariadb()))

    def primary_counters(self):
        return self.once("primary_counters", lambda: self._make_counters(self.primary()))

    @staticmethod
    def _make_counters(server):
        server.sql("CREATE DATABASE counters CHARACTER SET utf8mb4")
        server.sql(IdStatements.TABLES, "counters")
        return "counters"

    # ---- leafctl

    def _box(self):
        box = self._owned(leafctl.Sandbox())
        box.socket = os.path.join(box.state, "leafctl.sock")
        return box

    def sqlite_box(self):
        """A sandbox without any configuration, with the tag pay."""

        def make():
            box = self._box()
            box.ok("tag", "add", "pay", "--step", "1000000")
            return box

        return self.once("sqlite", make)

    def counted_box(self):
        """The same for programs whose work is counted: all IDs have as many digits."""

        def make():
            box = self._box()
            box.ok("tag", "add", "pay", "--step", "1000000", "--start", str(FIRST_ID))
            return box

        return self.once("counted", make)

    def _mysql_box(self, port=None, server=None):
        """With an empty database of its own; through `port` instead of the server's."""
        server = server or self.mariadb()
        self._databases += 1
        database = "bench%d" % self._databases
        server.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % database)
        box = self._box()
        box.database = database
        password = box.write("password", PASSWORD + "\n")
        box.env["LEAFCTL_CONFIG"] = box.write(
            "leafctl.toml",
            '[segment]\nstore = "mysql"\n[mysql]\nendpoints = ["127.0.0.1:%d"]\ndatabase = "%s"\nuser = "leaf"\n'
            'password_file = "%s"\n' % (port or server.port, database, password),
        )
        box.ok("db", "init")
        return box

    def mysql_box(self):
        """Without a daemon."""

        def make():
            box = self._mysql_box()
            box.ok("tag", "add", "pay", "--step", "1000000")
            return box

        return self.once("mysql", make)

    def pinned_redis(self, name, *flags):
        """On the processor of our server, which is idle meanwhile."""

        def make():
            with on_core(SERVER_CORE):
                return self._owned(Redis(self.path(name), *flags))

        return self.once(name, make)

    def _serve_pinned(self, box, *args):
        # In a session of its own, as the yardsticks are: the kernel's scheduler shares a busy machine by sessions.
        with on_core(SERVER_CORE):
            daemon = box.serve(*AMPLE, "--redis-listen", "127.0.0.1:0", *args, start_new_session=True)
        daemon.ids("pay")  # the first range is there
        return daemon

    def server(self):
        """A daemon with one thread on one processor, on MariaDB, as configured by default but for limits."""

        def make():
            box = self._mysql_box()
            box.ok("tag", "add", "pay", "--step", str(STEP), "--start", str(FIRST_ID))
            return self._serve_pinned(box)

        return self.once("server", make)

    def strict_server(self):
        """The same with a strict tag, which is called pay as well, on primary()."""

        def make():
            box = self._mysql_box(server=self.primary())
            box.ok("tag", "add", "pay", "--order", "strict", "--start", str(FIRST_ID))
            return self._serve_pinned(box)

        return self.once("strict_server", make)

    def strict_sqlite_server(self):
        """A daemon without any configuration but its limits, with a strict tag pay."""

        def make():
            box = self._box()
            box.ok("tag", "add", "pay", "--order", "strict")
            return self._serve_pinned(box)

        return self.once("strict_sqlite_server", make)

    def tls_server(self):
        """The same as server(), and its ports speak TLS."""

        def make():
            box = self._mysql_box()
            box.ok("tag", "add", "pay", "--step", str(STEP), "--start", str(FIRST_ID))
            with on_core(SERVER_CORE):
                daemon = TlsDaemon(box, list(AMPLE), self.identity(), self.authority(), start_new_session=True)
            daemon.wait_ready()
            daemon.ids("pay")
            return daemon

        return self.once("tls_server", make)

    @contextlib.contextmanager
    def slow_server(self, step):
        """The same with ranges of `step` IDs, and the proxy through which it sees its database."""
        proxy = DelayProxy(self.mariadb().port)
        try:
            box = self._mysql_box(proxy.port)
            box.ok("tag", "add", "pay", "--step", str(step))
            daemon = self._serve_pinned(box, "--set", "segment.step_policy=fixed", "--set", "segment.refresh_interval=1h")
            try:
                yield daemon, proxy
            finally:
                daemon.kill()
        finally:
            proxy.close()

    def many_tags_box(self, count):
        box = self._mysql_box()
        self.mariadb().sql(
            "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) "
            "SELECT CONCAT('company.service-', seq, '.order'), 1, 2000, 'one of many' FROM seq_1_to_%d" % count,
            box.database,
        )
        return box


# ---- figures -------------------------------------------------------------------------------------------------------


def reached(goal, ratio, ours):
    value = ratio if goal.of == "ratio" else ours
    return value >= goal.value if goal.at == "least" else value <= goal.value


def result_of(row, samples):
    """What the JSON says of a row."""
    ours, theirs = samples
    if not ours or not theirs:
        raise BenchError("nothing was measured")
    for sample in ours + theirs:
        check_sample(row.name, sample)
    our_medians, their_medians = medians(ours), medians(theirs)
    figures = {}
    for name, value in our_medians.items():
        figure = {"ours": value, "rounds": {"ours": [sample[name] for sample in ours]}}
        if name in their_medians:
            figure["theirs"] = their_medians[name]
            figure["ratio"] = value / their_medians[name]
            figure["rounds"]["theirs"] = [sample[name] for sample in theirs]
        goal = row.goals.get(name)
        if goal:
            figure["goal"] = goal._asdict()
            figure["reached"] = reached(goal, figure.get("ratio"), value)
        figures[name] = figure
    missing = set(row.goals) - set(figures)
    if missing:
        raise BenchError("no figure for the goal of %s" % ", ".join(sorted(missing)))
    return {"ours": row.ours, "theirs": row.theirs, "figures": figures}


def number_text(name, value):
    """Rates with what makes them short."""
    if name.endswith("_per_s"):
        for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
            if value >= size:
                return "%.4g" % (value / size) + letter
        return "%.4g  " % value
    return "%.4g" % value if value < 1 else "%.2f" % value


def goal_text(name, figure):
    if "goal" not in figure:
        return ""
    goal = figure["goal"]
    sign = "≥" if goal["at"] == "least" else "≤"
    if goal["of"] == "ratio":
        text = "%s %g of theirs" % (sign, goal["value"])
    else:
        text = "%s %s" % (sign, number_text(name, goal["value"]))
    return text + (", reached" if figure["reached"] else ", MISSED")


def table(results, before):
    """`before`: the rows of an earlier run, or None. Only ratios are compared: they travel."""
    columns = ["row", "figure", "ours", "theirs", "ratio", "goal"] + (["ratio then", "now ÷ then"] if before else [])
    lines = [columns]
    for name, result in results.items():
        first = name
        for figure_name, figure in result["figures"].items():
            line = [first, FIGURES[figure_name], number_text(figure_name, figure["ours"])]
            line.append(number_text(figure_name, figure["theirs"]) if "theirs" in figure else "")
            line.append("%.2f" % figure["ratio"] if "ratio" in figure else "")
            line.append(goal_text(figure_name, figure))
            if before:
                then = before.get(name, {}).get("figures", {}).get(figure_name, {}).get("ratio")
                both = then and "ratio" in figure
                line += ["%.2f" % then, "%.2f" % (figure["ratio"] / then)] if both else ["", ""]
            lines.append(line)
            first = ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    numbers = {"ours", "theirs", "ratio", "ratio then", "now ÷ then"}
    text = []
    for line in lines:
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns)
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def machine():
    model = "unknown"
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
    }


# ---- command line --------------------------------------------------------------------------------------------------


def chosen_rows(names):
    """Those that are named, or whose names begin so, in their order."""
    unknown = [name for name in names if not any(matches(row, name) for row in ROWS)]
    if unknown:
        raise BenchError("there is no row %s; bench.sh --list names them" % ", ".join(unknown))
    return [row for row in ROWS.values() if not names or any(matches(row.name, name) for name in names)]


def matches(row, name):
    return row == name or row.startswith(name + ".")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench.sh", description="measures leafctl side by side with its yardsticks")
    parser.add_argument("rows", metavar="ROW", nargs="*", help="a row of --list, or the beginning of some, as in http")
    parser.add_argument("--rounds", type=int, help="of which the medians are taken (default 5)")
    parser.add_argument("--seconds", type=float, help="of a measurement (default 5)")
    parser.add_argument("--smoke", action="store_true", help="each row for a moment: does it still work?")
    parser.add_argument("--json", metavar="FILE", help="where to write the figures (default build/bench.json)")
    parser.add_argument("--compare", metavar="FILE", help="figures of an earlier run, to put the ratios beside")
    parser.add_argument("--list", action="store_true", help="names the rows, and ends")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.smoke else 5)
    options.seconds = options.seconds or (0.2 if options.smoke else 5)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds are above 0")
    options.json = os.path.abspath(options.json or os.path.join(leafctl.ROOT, "build", "bench.json"))
    return options


def list_rows():
    for row in ROWS.values():
        print("%-24s %s | %s" % (row.name, row.ours, row.theirs))


def measure_rows(rows, options, folder):
    """(results, names of rows that failed)"""
    bench = Bench(folder, options.rounds, options.seconds, options.smoke)
    results, failed = {}, []
    try:
        for number, row in enumerate(rows, 1):
            began = time.monotonic()
            print("bench: %d of %d: %s" % (number, len(rows), row.name), end="", file=sys.stderr, flush=True)
            try:
                results[row.name] = result_of(row, row.run(bench))
                print(" (%.1f s)" % (time.monotonic() - began), file=sys.stderr, flush=True)
            except (BenchError, AssertionError) as error:
                failed.append(row.name)
                print("\nbench: %s: %s" % (row.name, error), file=sys.stderr, flush=True)
            except Exception:  # the other rows may have figures all the same
                failed.append(row.name)
                print("\nbench: %s:" % row.name, file=sys.stderr)
                traceback.print_exc()
    finally:
        bench.close()
    return results, failed


def run(options):
    rows = chosen_rows(options.rows)
    before = None
    if options.compare:
        with open(options.compare, encoding="utf-8") as file:
            before = json.load(file)["rows"]
    # Now, and not after half an hour.
    for name in PACKAGES:
        tool(name)
    load.raise_open_files()
    document = {
        "began": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "settings": {"rounds": options.rounds, "seconds": options.seconds, "smoke": options.smoke},
    }
    folder = os.path.realpath(tempfile.mkdtemp(prefix="leafctl-bench-"))
    guardian = Guardian(folder)
    try:
        os.chmod(folder, 0o711)  # the user mysql has to pass
        # Whatever is started works below, and is thereby the guardian's.
        os.chdir(folder)
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        results, failed = measure_rows(rows, options, folder)
    finally:
        os.chdir("/")
        guardian.close()
    document["failed"] = failed
    document["rows"] = results
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    print(table(results, before))
    print("load average %.1f before, %.1f after; figures: %s" % (
        document["machine"]["load_average"], os.getloadavg()[0], options.json))  # fmt: skip
    if failed:
        print("bench: no figures for " + ", ".join(failed), file=sys.stderr)
        return 1
    return 0


def main():
    options = parse(sys.argv[1:])
    if options.list:
        list_rows()
        return 0
    # Ends as an error does, and so ends what was started.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        return run(options)
    except BenchError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
