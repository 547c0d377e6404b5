#!/usr/bin/env python3
"""Faults on real servers, one row each: all IDs that all nodes of a row gave out are compared, and a table is printed.

What makes a row red is in tests/support/fault_matrix.py. scripts/soak.sh matrix runs the long form.

Environment, beside that of leafctl.py:
  LEAFCTL_MATRIX_IDS       IDs that a row checks at least; those of kills and starts check what their runs give out
                           (default 20000)
  LEAFCTL_MATRIX_OUTAGE_S  seconds of each outage (default 3)
  LEAFCTL_MATRIX_POINTS    calls of each kind at which a program is killed; 0 for all (default 1)
  LEAFCTL_MATRIX_TABLE     file for the table, and, with its ending changed, for the same as JSON (default none)
"""

import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import explain  # noqa: E402
import fault_matrix  # noqa: E402
import kill_at  # noqa: E402
import metrics  # noqa: E402
import real_time_order  # noqa: E402
from cluster import ClusterTest  # noqa: E402
from delay_proxy import DelayProxy  # noqa: E402
from fake_clock import FakeClock  # noqa: E402
from fault_matrix import NO_ANSWER, Row, Table, go_on  # noqa: E402
from galera import GaleraCluster  # noqa: E402
from id_ledger import IdLedger  # noqa: E402
from leafctl import DEADLINE_S, LeafTest, Sandbox, main, poll  # noqa: E402
from real_time_order import OrderTaker  # noqa: E402
from restores import Restores, put_back_dump  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402
from zookeeper import Ensemble, ZooKeeper  # noqa: E402

IDS = int(os.environ.get("LEAFCTL_MATRIX_IDS") or 20000)
OUTAGE_S = float(os.environ.get("LEAFCTL_MATRIX_OUTAGE_S") or 3)
POINTS = int(os.environ.get("LEAFCTL_MATRIX_POINTS") or 1) or None

# IDs of one request. A grant lasts for a few requests, so that every fault meets many grants.
COUNT = max(50, min(100_000, IDS // 2000))
STEP = 5 * COUNT
# A busy machine is no fault: a request waits long enough for a grant that a healthy server gives.
REQUEST_TIMEOUT = "20s"
# For conditions that are sure to be met: servers that agree on the members of their cluster take their time on a busy
# machine.
PATIENCE_S = 240.0
# The same for the stores that a command asks.
PATIENCE = ("--timeout", "60s")

# Errors that a request may get while its backend cannot be asked (P3, P4, P7); never an ID that another request got.
STORE_AWAY = ("exhausted", "unavailable", "outcome_unknown")

# In the order of the table.
ROWS = {
    "kill-direct-sqlite": "`next --direct` on SQLite, killed at each of its calls",
    "kill-direct-mariadb": "the same on MariaDB with a witness in ZooKeeper",
    "kill-direct-snowflake": "`next --mode snowflake --direct` with a static number",
    "kill-direct-zookeeper": "the same with a number from ZooKeeper",
    "kill-daemon-sqlite": "a daemon on SQLite and a static number, killed at each kind of its calls",
    "kill-daemon-mariadb": "a daemon on MariaDB with a witness and a fixed number from ZooKeeper",
    "kill-daemon-lease": "a daemon with a leased number",
    "pause-node": "a daemon stopped by SIGSTOP beyond session and grant time-outs, another goes on",
    "pause-in-grant": "`next --direct` stopped by SIGSTOP at each call to the database, daemons go on",
    "pause-lease": "a daemon stopped beyond its lease, another takes the number",
    "mariadb-killed": "kill -9 of the database, and its restart",
    "mariadb-slow": "answers slower than query_timeout",
    "mariadb-cut": "connections cut, and refused",
    "mariadb-read-only": "SET GLOBAL read_only",
    "galera-node-lost": "the node in use killed, and back",
    "galera-split": "a node isolated from the others, and back",
    "zookeeper-leader": "the leader of three killed, and back",
    "zookeeper-session": "sessions expired by another client",
    "zookeeper-replaced": "each of three servers replaced by an empty one, logs that roll over",
    "zookeeper-down": "the whole ensemble killed, and back",
    "zookeeper-restored": "a server restored from a backup older than a live node's number, and a new node",
    "zookeeper-wiped": "the same with an ensemble of three on empty volumes, under load",
    "leases-restored": "the same with leased numbers",
    "registry-restored": "registry sql: a dump older than a live node's number is restored, and a new node",
    "both-restored": "database and ZooKeeper restored to one moment, all daemons down; the one that knew less starts first",
    "both-restored-running": "the same with daemons that run, and a new node",
    "both-restored-directory": "both restored, the node that knew more stays down: its state directory is named",
    "both-restored-lost": "the same, and it is lost with its state directory: --beyond",
    "clock-boot": "killed, and started with the clock behind and ahead",
    "clock-running": "the clock moves back and forward at run time",
    "state-lost": "killed, and its state directory removed",
    "state-copied": "a copy of the state directory, and the original, both started",
    "disk-full": "nothing more can be written to the state directory",
    "one-directory": "two processes with one state directory",
    "one-address": "two daemons with one address",
    "strict-nodes": "a strict tag: its nodes killed, and stopped by SIGSTOP while another one goes on",
    "strict-database": "a strict tag: kill -9 of the database, its restart, and connections cut",
    "nodes-at-once": "32 nodes start at once on one virgin namespace and one table",
}
TABLE = Table(ROWS, os.environ.get("LEAFCTL_MATRIX_TABLE", ""))
NODES_AT_ONCE = 32
LANES = 4  # programs killed at a time


def setUpModule():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        database = pool.submit(MariaDb)
        ClusterTest.zookeeper = ZooKeeper()
        ClusterTest.databases = (database.result(),)


def tearDownModule():
    for server in (ClusterTest.zookeeper, *ClusterTest.databases):
        server.close()
    TABLE.write()


class MatrixTest(ClusterTest):
    """Nodes of one cluster, with both modes on the real servers unless a row says otherwise."""

    scopes = ("pay", "ship", "snowflake")
    # Rows in which sessions end have shorter ones. In the others a server may answer late: a busy machine is no fault.
    session_timeout = "10s"

    def setUp(self):
        self.addresses = itertools.count(1)  # one step for several threads
        super().setUp()

    @contextlib.contextmanager
    def row(self, name, *needs):
        """The table's row: red, and an error of the test, if anything is wrong with it in the end."""
        row = Row(name, ROWS[name], needs)
        began = time.monotonic()
        try:
            yield row
        except BaseException as error:
            row.failure = repr(error)[:2000]
            raise
        finally:
            row.stop_customers()
            row.seconds = time.monotonic() - began
            TABLE.add(row)
        faults = row.faults()
        self.assertEqual(faults, [], "row %s is red" % name)

    def configure(self, box, endpoints=None, zookeeper=None, more=None):
        sections = {
            "server": {"request_timeout": REQUEST_TIMEOUT},
            "segment": {"store": "mysql", "refresh_interval": "1s", "step_policy": "fixed"},
            "mysql": {
                "endpoints": endpoints or ["127.0.0.1:%d" % self.one.port], "database": self.name, "user": "leaf",
                "password_file": box.write("password", PASSWORD + "\n"), "connect_timeout": "1s", "query_timeout": "1s",
                "tls": "disabled",
            },
            "snowflake": {
                "registry": "zookeeper", "cluster": self.name, "address": "127.1.%d.%d:8080" % divmod(next(self.addresses), 256),
                "claim_watch": "0s",
            },
            "zookeeper": {"connect": zookeeper or self.zookeeper.connect, "session_timeout": self.session_timeout},
        }  # fmt: skip
        for key, value in (more or {}).items():
            section, name = key.split(".")
            sections[section][name] = value
        # What TOML writes of a string, a number, a truth value and a list of strings is JSON.
        lines = []
        for section, values in sections.items():
            lines.append("[%s]" % section)
            lines += ["%s = %s" % (name, json.dumps(value)) for name, value in values.items()]
        box.env["LEAFCTL_CONFIG"] = box.write("leafctl.toml", "\n".join(lines) + "\n")

    def add_tags(self, box=None):
        for tag in ("pay", "ship"):
            add = ["tag", "add", tag, "--step", str(STEP), "--if-absent"]
            # Servers that have just started may not answer in time.
            poll(lambda add=add: (box or self.box).run(add).rc == 0, "%s is there" % tag, PATIENCE_S)

    def serve_two(self, **settings):
        """Two daemons that know the tags."""
        self.add_tags()
        if settings:
            self.configure(self.box, **settings)
        boxes = [self.box, self.node(**settings)]
        return [box.serve() for box in boxes]

    def customers(self, row, daemons, scopes=None):
        # A few hundred requests a second meet every fault. More would only keep the machine busy.
        pause = 0.005 * len(daemons)
        found = [
            row.customer(daemon, scopes or self.scopes, count=COUNT, pause=pause, name="node %d" % number)
            for number, daemon in enumerate(daemons, 1)
        ]
        go_on(found, 2, PATIENCE_S)
        return found

    def fill(self, row, customers):
        """All customers go on, until the row has enough IDs to check."""
        go_on(customers, 2, PATIENCE_S)
        poll(lambda: row.ids >= IDS, "%d IDs" % IDS, timeout=PATIENCE_S + IDS / 20000, interval=0.1)

    def metric(self, daemons, name, **labels):
        return sum(metrics.of(daemon).get(name, 0, **labels) for daemon in daemons)

    @contextlib.contextmanager
    def counted(self, row, what, daemons, name, **labels):
        """How much a metric of the daemons has grown meanwhile is evidence."""
        before = self.metric(daemons, name, **labels)
        yield
        row.saw(what, self.metric(daemons, name, **labels) - before)

    def reconnects(self, row, daemons):
        return self.counted(
            row, "reconnects", daemons, "leaf_dependency_reconnects_total", dependency="database", kind="mysql"
        )

    def failed_grants(self, row, daemons):
        return self.counted(row, "failed grants", daemons, "leaf_segment_refills_total", result="failed")


# ---- 1. kill -9 at each call --------------------------------------------------------------------------------------


class KillAt(MatrixTest):
    NEXT = ("next", "pay", "-n", "3", "--direct")
    NEXT_SNOWFLAKE = ("next", "--mode", "snowflake", "-n", "3", "--direct")
    session_timeout = "2s"
    # A ceiling that is extended often, and a start that does not wait long for the last one.
    QUICK = {"snowflake.window": "200ms"}
    # For the daemons that are started at the end, and are not killed.
    PATIENT = {"LEAFCTL_ZOOKEEPER_SESSION_TIMEOUT": "10s", "LEAFCTL_SNOWFLAKE_LEASE_TIME": "10s"}

    def setUp(self):
        super().setUp()
        self.shim = kill_at.KillAt({"mysql": self.one.port, "zookeeper": self.zookeeper.port})
        self.addCleanup(self.shim.close)

    def lines(self, out):
        """Those that are whole."""
        return [int(line) for line in out.split("\n")[:-1]]

    def run_direct(self, row, scope, box, args, point=None, env=None):
        """One run, killed at `point`; tells whether it was."""
        reached = None
        if point:
            env, reached = self.shim.killing(box.state, point)
        # On a busy machine a server may not answer in time, here and there.
        for _ in range(10):
            result = box.run(args, env=env)
            row.got_ids(scope, self.lines(result.out), "%s %s" % (" ".join(args), point or ""))
            if result.rc != 8:
                break
        killed = result.rc == kill_at.SIGKILLED and point is not None and reached()
        if not killed and result.rc != 0:
            row.trouble("exit %d" % result.rc, "%s: %s" % (point, result.err))
        return killed

    def kill_direct(self, name, scope, args, make_box, table_of=lambda box: ""):
        """Killed at every call of a node's first run, and of a later one; each time it goes on in the same state.

        Several at a time, each with a state of its own.
        """
        with self.row(name, "killed by SIGKILL", "kinds of calls", "runs after it") as row:
            kinds = collections.Counter()

            def run(box, point=None, env=None):
                return self.run_direct(row, fault_matrix.scope_name(scope, table_of(box)), box, args, point, env)

            def kill_first(point):
                box = make_box()
                killed = run(box, point)
                run(box)
                row.saw("runs after it")
                box.close()
                return point, killed

            def kill_later(lane):
                box = make_box()
                run(box)
                killed = []
                for point in lane:
                    killed.append((point, run(box, point)))
                    run(box)
                    row.saw("runs after it")
                return killed

            with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
                for later in (False, True):
                    box = make_box()
                    if later:
                        run(box)
                    env, calls = self.shim.tracing(box.state)
                    run(box, env=env)
                    points = kill_at.points(calls(), POINTS)
                    if later:
                        runs = sum(pool.map(kill_later, [points[lane::LANES] for lane in range(LANES)]), [])
                    else:
                        runs = list(pool.map(kill_first, points))
                    for point, killed in runs:
                        kinds[point[:3]] += killed
                    self.assertEqual({kind for kind in calls() if not kinds[kind]}, set(), "nothing was killed there")
            self.tell(row, kinds)

    def tell(self, row, kinds):
        row.saw("killed by SIGKILL", sum(kinds.values()))
        row.saw("kinds of calls", len(kinds))
        row.note("killed", {" ".join(kind): times for kind, times in sorted(kinds.items())})

    def plain_node(self):
        box = Sandbox()
        self.addCleanup(box.close)
        return box

    def test_direct_sqlite(self):
        def node():
            box = self.plain_node()
            self.add_tags(box)
            return box

        # Each has a table of its own.
        self.kill_direct("kill-direct-sqlite", "pay", self.NEXT, node, table_of=lambda box: box.dir)

    def test_direct_mariadb(self):
        self.add_tags()
        self.kill_direct("kill-direct-mariadb", "pay", self.NEXT, self.node)

    def test_direct_snowflake(self):
        made = []

        def node():
            # A number of its own in one cluster.
            box = self.plain_node()
            made.append(box)
            box.env.update(LEAFCTL_SNOWFLAKE_CLUSTER=self.name, LEAFCTL_SNOWFLAKE_WORKER_ID=str(len(made)))
            box.env["LEAFCTL_SNOWFLAKE_WINDOW"] = "200ms"
            return box

        self.kill_direct("kill-direct-snowflake", "snowflake", self.NEXT_SNOWFLAKE, node)

    def test_direct_zookeeper(self):
        def node():
            return self.node(more=self.QUICK)

        self.kill_direct("kill-direct-zookeeper", "snowflake", self.NEXT_SNOWFLAKE, node)

    def take_until_it_ends(self, row, daemon, scopes, table, seconds):
        """All that a daemon gives out until it has ended; tells whether it has."""
        deadline = time.monotonic() + seconds
        wanted = 20
        while daemon.process.poll() is None and time.monotonic() < deadline:
            if daemon.port is None:
                found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", daemon.log())
                if not found:
                    time.sleep(0.002)
                    continue
                daemon.port = int(found.group(1))
            for scope in scopes:
                try:
                    code, text, ranges = fault_matrix.take(daemon, scope, wanted)
                except (OSError, http.client.HTTPException, ValueError):
                    break  # it has ended in between, or is about to
                for begin, end in ranges:
                    row.got(fault_matrix.scope_name(scope, table), begin, end, "life %d" % len(daemon.box.daemons))
                if code:
                    row.trouble(code, "%s: %s" % (scope, text))
                    time.sleep(0.01)
        return daemon.process.poll() is not None

    def kill_daemon(self, name, make_box, scopes, table_of=lambda box: ""):
        """Life after life in one state directory, each killed at another point, and then one that goes on."""
        with self.row(name, "killed by SIGKILL", "kinds of calls", "IDs of the last lives") as row:
            kinds = collections.Counter()
            # Before it is ready, what it cannot issue yet it refuses.
            with row.allowing("clock", "unavailable", "exhausted", "not_found", "not_owner"):
                boxes = [make_box() for _ in range(LANES)]
                # A restart, as all that follow: a first start is killed in the rows above.
                boxes[0].serve().kill()
                env, calls = self.shim.tracing(boxes[0].state)
                daemon = boxes[0].serve(env=env)
                self.take_until_it_ends(row, daemon, scopes, table_of(boxes[0]), 1)
                daemon.kill()
                points = []
                for kind, count in sorted(calls().items()):
                    if kind[2] == "stdout":
                        continue
                    # The first one is part of a start; a later one, of service.
                    numbers = {1, 1 + count // 2} if POINTS else {1, 2, 3, 5, 8, 1 + count // 2}
                    points += [kill_at.Point(*kind, number) for number in sorted(numbers)]

                def kill(box, lane):
                    box.serve().kill()
                    return [(point, self.kill_life(row, box, scopes, table_of(box), point)) for point in lane]

                with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
                    lanes = [points[lane::LANES] for lane in range(LANES)]
                    runs = sum(pool.map(kill, boxes, lanes), [])
                for point, killed in runs:
                    kinds[point[:3]] += killed
                self.assertEqual({kind for kind, times in kinds.items() if not times}, set(), "nothing was killed there")
                daemons = [box.serve(env=self.PATIENT) for box in boxes]
                for daemon in daemons:
                    for scope in scopes:
                        poll(lambda: fault_matrix.take(daemon, scope, 1)[0] is None, "service is back")  # noqa: B023
            self.tell(row, kinds)
            row.note("points not reached", len(points) - sum(kinds.values()))
            before = row.ids
            last = [row.customer(each, scopes, count=COUNT, table=table_of(each.box)) for each in daemons]
            self.fill(row, last)
            row.saw("IDs of the last lives", row.ids - before)

    def kill_life(self, row, box, scopes, table, point):
        env, reached = self.shim.killing(box.state, point)
        daemon = box.serve(listening=False, env=env)
        # What is part of every start comes; what depends on the load may not.
        ended = self.take_until_it_ends(row, daemon, scopes, table, 20 if point.number == 1 else 3)
        code = daemon.kill()
        if ended and code != kill_at.SIGKILLED:
            row.trouble("exit %d" % code, "%s: %s" % (point, daemon.log()))
        return ended and reached()

    def test_daemon_sqlite(self):
        numbers = iter(range(1, 1000))

        def node():
            box = self.plain_node()
            self.add_tags(box)
            box.env.update(LEAFCTL_SEGMENT_STEP_POLICY="fixed")
            box.env.update(LEAFCTL_SNOWFLAKE_CLUSTER=self.name, LEAFCTL_SNOWFLAKE_WORKER_ID=str(next(numbers)))
            box.env.update(LEAFCTL_SNOWFLAKE_WINDOW="200ms", LEAFCTL_SERVER_REQUEST_TIMEOUT=REQUEST_TIMEOUT)
            return box

        # Each has a table of its own, and all one cluster.
        self.kill_daemon("kill-daemon-sqlite", node, self.scopes, table_of=lambda box: box.dir)

    def test_daemon_mariadb(self):
        self.add_tags(self.node(more=self.QUICK))
        self.kill_daemon("kill-daemon-mariadb", lambda: self.node(more=self.QUICK), self.scopes)

    def test_daemon_lease(self):
        settings = dict(self.QUICK, **{"snowflake.recycle": True, "snowflake.lease_time": "1s"})
        settings["segment.enabled"] = False
        self.kill_daemon("kill-daemon-lease", lambda: self.node(more=settings), ("snowflake",))


# ---- 2. SIGSTOP ---------------------------------------------------------------------------------------------------


def is_stopped(process):
    with open("/proc/%d/stat" % process.pid, encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


class Pause(MatrixTest):
    session_timeout = "2s"

    @contextlib.contextmanager
    def stopped(self, row, daemon):
        daemon.signal(signal.SIGSTOP)
        try:
            poll(lambda: is_stopped(daemon.process), "it stops")
            row.saw("stopped")
            yield
        finally:
            daemon.signal(signal.SIGCONT)

    def test_node(self):
        first, second = daemons = self.serve_two()
        with self.row("pause-node", "stopped", "expired sessions", "batches of the other meanwhile") as row:
            one, two = self.customers(row, daemons)
            sessions = set(self.zookeeper.sessions())
            # A stopped daemon answers no request, and what was under way fails when it wakes up.
            with row.allowing(NO_ANSWER, *STORE_AWAY):
                with self.stopped(row, first):
                    before = two.taken["pay"]
                    until = time.monotonic() + OUTAGE_S
                    poll(
                        lambda: time.monotonic() > until and len(sessions - set(self.zookeeper.sessions())) > 0,
                        "its session is gone", timeout=PATIENCE_S + OUTAGE_S,
                    )  # fmt: skip
                    two.goes_on()
                    row.saw("expired sessions", len(sessions - set(self.zookeeper.sessions())))
                    row.saw("batches of the other meanwhile", (two.taken["pay"] - before) // COUNT)
                one.goes_on(timeout=PATIENCE_S)
            self.fill(row, [one, two])
            self.assertNotIn("frozen", first.log() + second.log())

    def test_in_grant(self):
        """A process that is stopped inside its transaction holds the row that all others want."""
        daemons = self.serve_two()
        shim = kill_at.KillAt({"mysql": self.one.port})
        self.addCleanup(shim.close)
        args = ["next", "pay", "-n", "3", "--direct"]
        box = self.node()
        env, calls = shim.tracing(box.state)
        box.ok(*args, *PATIENCE, env=env)
        points = [kill_at.Point(*kind, number + 1) for kind, count in calls().items()
                  if kind == ("after", "send", "mysql") for number in range(count)]  # fmt: skip
        with self.row("pause-in-grant", "stopped", "batches of the others meanwhile", "ended well or with a reason") as row:
            customers = self.customers(row, daemons, ("pay",))
            stopped = []
            try:
                # A grant of theirs may fail while the server still waits for the stopped process.
                with row.allowing(*STORE_AWAY):
                    for point in points:
                        box = self.node()
                        env, reached = shim.killing(box.state, point, signal.SIGSTOP)
                        process = box.popen(args, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE)  # fmt: skip
                        stopped.append((point, process))
                        poll(lambda: reached() and is_stopped(process), "stopped at %s %s %s %d" % point)  # noqa: B023
                        row.saw("stopped")
                        before = sum(each.taken["pay"] for each in customers)
                        go_on(customers, timeout=PATIENCE_S)
                        row.saw(
                            "batches of the others meanwhile",
                            (sum(each.taken["pay"] for each in customers) - before) // COUNT,
                        )
            finally:
                for _, process in stopped:
                    process.send_signal(signal.SIGCONT)
            for point, process in stopped:
                out, err = process.communicate(timeout=PATIENCE_S)
                row.got_ids(fault_matrix.scope_name("pay"), [int(line) for line in out.split()], "stopped at %r" % (point,))
                # What it had begun may be lost; then it says so.
                if process.returncode in (0, 8):
                    row.saw("ended well or with a reason")
                else:
                    row.trouble("exit %d" % process.returncode, "%r: %r" % (point, err))
            self.fill(row, customers)

    def test_lease(self):
        settings = {
            "segment.enabled": False, "snowflake.recycle": True, "snowflake.lease_time": "1s",
            "snowflake.worker_range": "30-30",
        }  # fmt: skip
        self.configure(self.box, more=settings)
        first = self.box.serve()
        with self.row("pause-lease", "stopped", "taken over", "refused afterwards") as row:
            (one,) = self.customers(row, [first], ("snowflake",))
            lost = STORE_AWAY + (NO_ANSWER, "not_owner")
            with row.allowing(*lost):
                with self.stopped(row, first):
                    until = time.monotonic() + OUTAGE_S
                    second = self.node(more=settings).serve(ready=False)
                    second.wait_ready(PATIENCE_S)
                    row.saw("taken over", second.status()["snowflake"]["worker"] == 30)
                    two = row.customer(second, ("snowflake",), count=COUNT, name="node 2")
                    two.goes_on()
                    poll(lambda: time.monotonic() > until, "the outage", timeout=PATIENCE_S + OUTAGE_S)
                poll(lambda: first.status()["snowflake"]["state"] == "claiming", "it has lost its lease", PATIENCE_S)
                poll(lambda: row.refused("not_owner", *STORE_AWAY) > 0, "and refuses")
                self.fill(row, [two])
                # Nothing is free for it as long as the other one lives.
                one.stop()
                row.saw("refused afterwards", row.refused("not_owner", *STORE_AWAY))


# ---- 3. MariaDB ---------------------------------------------------------------------------------------------------


class Database(MatrixTest):
    def test_killed(self):
        daemons = self.serve_two()
        needs = ("kills", "restarts", "reconnects", "failed grants")
        with self.row("mariadb-killed", *needs) as row, self.reconnects(row, daemons), self.failed_grants(row, daemons):
            customers = self.customers(row, daemons)
            for seconds in (0.2, OUTAGE_S):
                with row.allowing(*STORE_AWAY):
                    self.one.kill()
                    row.saw("kills")
                    time.sleep(seconds)
                    self.one.start()
                    row.saw("restarts")
                    go_on(customers, timeout=PATIENCE_S)
            self.fill(row, customers)

    def proxied(self):
        proxy = DelayProxy(self.one.port)
        self.addCleanup(proxy.close)
        daemons = self.serve_two(endpoints=["127.0.0.1:%d" % proxy.port])
        return proxy, daemons

    def test_slow(self):
        proxy, daemons = self.proxied()
        with self.row("mariadb-slow", "slow round trips", "failed grants") as row, self.failed_grants(row, daemons):
            customers = self.customers(row, daemons)
            proxy.stats()
            # Slow, but in time: no request is refused.
            proxy.delay(100)
            time.sleep(1)

            def slow():
                held = proxy.stats()
                row.saw("slow round trips", held["round_trips"] if held.get("held_ms", {"max": 0})["max"] > 90 else 0)
                return row.evidence["slow round trips"] > 0

            poll(slow, "slow round trips", PATIENCE_S)
            with row.allowing(*STORE_AWAY):
                proxy.delay(2500)
                time.sleep(OUTAGE_S)
                proxy.delay(0)
                go_on(customers, timeout=PATIENCE_S)
            self.fill(row, customers)

    def test_cut(self):
        proxy, daemons = self.proxied()
        with self.row("mariadb-cut", "cuts", "refusals", "reconnects") as row, self.reconnects(row, daemons):
            customers = self.customers(row, daemons)
            proxy.stats()
            with row.allowing(*STORE_AWAY):
                until = time.monotonic() + OUTAGE_S
                while time.monotonic() < until:
                    proxy.cut()
                    row.saw("cuts")
                    time.sleep(0.1)
                proxy.refuse()
                row.saw("refusals")
                time.sleep(OUTAGE_S / 3)
                proxy.accept()
                go_on(customers, timeout=PATIENCE_S)
            self.fill(row, customers)

    def test_read_only(self):
        daemons = self.serve_two()
        with self.row("mariadb-read-only", "failed grants", "nodes that say so") as row, self.failed_grants(row, daemons):
            customers = self.customers(row, daemons)
            self.addCleanup(self.one.sql, "SET GLOBAL read_only = 0")
            with row.allowing(*STORE_AWAY):
                self.one.sql("SET GLOBAL read_only = 1")
                for daemon in daemons:
                    poll(lambda daemon=daemon: "read-only" in json.dumps(daemon.status()), "it says so", PATIENCE_S)
                    row.saw("nodes that say so")
                time.sleep(OUTAGE_S)
                self.one.sql("SET GLOBAL read_only = 0")
                go_on(customers, timeout=PATIENCE_S)
            self.fill(row, customers)


# ---- 4. Galera ----------------------------------------------------------------------------------------------------


class Galera(MatrixTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = GaleraCluster(3)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def serve_three(self):
        """On the first, the second and the third node, each with the others behind it."""
        nodes = self.cluster.nodes
        node = nodes[0]
        node.sql("DROP DATABASE leaf; CREATE DATABASE leaf CHARACTER SET utf8mb4")
        daemons = []
        for index in range(3):
            turned = nodes[index:] + nodes[:index]
            box = self.node(
                endpoints=["127.0.0.1:%d" % each.port for each in turned],
                # A cluster that has lost a node, or gets it back, may take long on a busy machine.
                more={"mysql.database": "leaf", "mysql.query_timeout": "2s", "server.request_timeout": "60s"},
            )
            if index == 0:
                box.ok("db", "init", *PATIENCE)
                self.add_tags(box)
            daemons.append(box.serve())
        return daemons

    def moves(self, daemons):
        return sum(
            metrics.of(daemon).get(
                "leaf_dependency_identity_changes_total", 0, dependency="database", kind="mysql"
            )
            for daemon in daemons
        )  # fmt: skip

    def test_node_lost(self):
        daemons = self.serve_three()
        first = self.cluster.nodes[0]
        with self.row("galera-node-lost", "kills", "moves to another node") as row:
            customers = self.customers(row, daemons)
            before = self.moves(daemons)
            with row.allowing(*STORE_AWAY):
                first.kill()
                row.saw("kills")
                poll(lambda: self.moves(daemons) > before, "it moves on", PATIENCE_S)
                go_on(customers, timeout=PATIENCE_S)
                time.sleep(OUTAGE_S)
                first.start()
                go_on(customers, timeout=PATIENCE_S)
            row.saw("moves to another node", self.moves(daemons) - before)
            self.fill(row, customers)

    def test_split(self):
        daemons = self.serve_three()
        first, second, _ = self.cluster.nodes
        with self.row("galera-split", "nodes without a majority", "moves to another node") as row:
            customers = self.customers(row, daemons)
            before = self.moves(daemons)
            with row.allowing(*STORE_AWAY):
                # It goes on to answer its clients, and hears nothing of the others.
                first.set_provider_option("gmcast.isolate", 1)
                poll(lambda: first.wsrep().get("wsrep_cluster_status") == "non-Primary", "it is alone", PATIENCE_S)
                row.saw("nodes without a majority")
                poll(lambda: second.wsrep().get("wsrep_cluster_size") == "2", "the others go on", PATIENCE_S)
                poll(lambda: self.moves(daemons) > before, "its daemon moves on", PATIENCE_S)
                go_on(customers, timeout=PATIENCE_S)
                time.sleep(OUTAGE_S)
                first.set_provider_option("gmcast.isolate", 0)
                poll(lambda: first.ready() and first.wsrep().get("wsrep_cluster_size") == "3", "all are back", PATIENCE_S)
                go_on(customers, timeout=PATIENCE_S)
            row.saw("moves to another node", self.moves(daemons) - before)
            self.fill(row, customers)


# ---- 5. ZooKeeper -------------------------------------------------------------------------------------------------


class Registry(MatrixTest):
    """An ensemble of three, for worker numbers and witness."""

    session_timeout = "2s"

    @classmethod
    def setUpClass(cls):
        cls.zookeeper = Ensemble(3, snap_count=100)

    @classmethod
    def tearDownClass(cls):
        cls.zookeeper.close()

    def troubled(self, daemon):
        return "registry_problem" in daemon.status()["snowflake"]

    def wait_troubled(self, daemons, troubled):
        for daemon in daemons:
            poll(lambda daemon=daemon: self.troubled(daemon) == troubled, "trouble: %s" % troubled, PATIENCE_S)

    def owners(self):
        """Address → the session that announces it."""
        path = "/snowflake/%s/leafctl/temporary" % self.name
        found = {}
        with self.zookeeper.client() as client:
            for name in client.children(path):
                stat = client.exists(path + "/" + name)
                if stat is not None:
                    found[name] = stat.ephemeral_owner
        return found

    def test_leader(self):
        daemons = self.serve_two()
        with self.row("zookeeper-leader", "leaders killed", "new leaders") as row:
            customers = self.customers(row, daemons)
            with row.allowing(*STORE_AWAY):
                leader = self.zookeeper.leader()
                leader.kill()
                row.saw("leaders killed")
                row.saw("new leaders", self.zookeeper.leader() is not leader)
                go_on(customers, timeout=PATIENCE_S)
                time.sleep(OUTAGE_S)
                self.zookeeper.start()
                self.wait_troubled(daemons, False)
                go_on(customers, timeout=PATIENCE_S)
            self.check_snowflake_never_refused(row)
            self.fill(row, customers)

    def test_session(self):
        daemons = self.serve_two()
        with self.row("zookeeper-session", "sessions expired", "sessions renewed") as row:
            customers = self.customers(row, daemons)
            with row.allowing(*STORE_AWAY):
                for _ in range(3):
                    old = poll(lambda: (found := self.owners()) and len(found) == 2 and found, "both are announced")
                    for session in old.values():
                        self.zookeeper.expire(session)
                        row.saw("sessions expired")

                    def renewed(old=old):
                        now = self.owners()
                        return set(now) == set(old) and all(now[name] != old[name] for name in old)

                    poll(renewed, "new sessions announce themselves", PATIENCE_S)
                    row.saw("sessions renewed", len(old))
                    go_on(customers, timeout=PATIENCE_S)
            self.check_snowflake_never_refused(row)
            self.fill(row, customers)

    def test_replaced(self):
        """ZooKeeper does not go back, and no daemon says that it did."""
        daemons = self.serve_two()
        with self.row("zookeeper-replaced", "members replaced", "snapshots taken, logs begun") as row:
            customers = self.customers(row, daemons)
            with row.allowing(*STORE_AWAY):
                for member in self.zookeeper.members:
                    before = member.snapshots()
                    poll(lambda member=member, before=before: member.snapshots() - before, "a snapshot", PATIENCE_S)
                    row.saw("snapshots taken, logs begun")
                    member.replace()
                    row.saw("members replaced")
                    member.wait_up()
                    self.zookeeper.wait_in_step()
                    go_on(customers, timeout=PATIENCE_S)
            self.check_snowflake_never_refused(row)
            self.fill(row, customers)
            for daemon in daemons:
                cluster = daemon.status()["witness"]["cluster"]
                self.assertEqual((cluster["incarnation"], cluster["went_back"]), (1, 0), cluster)
                self.assertEqual(daemon.status()["witness"]["usable"], True)

    def test_down(self):
        daemons = self.serve_two()
        with self.row("zookeeper-down", "servers killed", "nodes that say so") as row:
            customers = self.customers(row, daemons)
            with row.allowing(*STORE_AWAY):
                self.zookeeper.kill()
                row.saw("servers killed", sum(not member.running() for member in self.zookeeper.members))
                self.wait_troubled(daemons, True)
                row.saw("nodes that say so", len(daemons))
                time.sleep(OUTAGE_S)
                self.zookeeper.start()
                self.wait_troubled(daemons, False)
                go_on(customers, timeout=PATIENCE_S)
            self.check_snowflake_never_refused(row)
            self.fill(row, customers)

    def check_snowflake_never_refused(self, row):
        """P7: a fixed number goes on without its registry; what waits for the witness is the tags' own."""
        for text in row.allowed_texts():
            if ": snowflake: " in text:
                row.trouble("refused", text)


# ---- 6. clocks ----------------------------------------------------------------------------------------------------


class Forgetful(MatrixTest):
    """Stores that forget what they acknowledged, while nodes that know more live."""

    session_timeout = "6s"

    def first_start(self, box, *args):
        daemon = box.serve(*args, ready=False)
        daemon.wait_ready(PATIENCE_S)
        return daemon

    def use(self, zookeeper):
        self.zookeeper = zookeeper
        self.addCleanup(delattr, self, "zookeeper")
        self.addCleanup(zookeeper.close)


class GoesBack(Forgetful):
    """The registry of worker numbers forgets."""

    scopes = ("snowflake",)

    def configure(self, box, **settings):
        # As a user has it: the watch is the one that this makes.
        settings["more"] = {"snowflake.claim_watch": "auto", **settings.get("more", {})}
        super().configure(box, **settings)

    def two_nodes(self, between=lambda: None, **settings):
        """They have their numbers since before anything went back: what they watch then is not what is tested here."""
        daemons = []
        for _ in range(2):
            daemons.append(self.first_start(self.node(**settings), "--set", "snowflake.claim_watch=0s"))
            if len(daemons) == 1:
                between()
        # What happened between is over for the first one, too.
        for daemon in daemons:
            poll(lambda daemon=daemon: self.has_registry(daemon), "its registry answers", PATIENCE_S)
        return daemons

    def has_registry(self, daemon):
        up = metrics.of(daemon).values("leaf_dependency_up", "dependency").get("registry")
        return up == 1 and "registry_problem" not in daemon.status()["snowflake"]

    def worker(self, daemon):
        return daemon.status()["snowflake"]["worker"]

    def a_third_node_after(self, row, daemons, go_back, also_allowed=(), **settings):
        """Two nodes live, and one of their numbers is forgotten; then a third one claims one."""
        numbers = [self.worker(daemon) for daemon in daemons]
        customers = self.customers(row, daemons)
        third = self.node(**settings)
        # While the registry is away a lease is used up, and a fixed number is not.
        with row.allowing(*also_allowed, *STORE_AWAY):
            go_back()
            newcomer = self.first_start(third)
            self.assertIn("watching", newcomer.log())
            row.saw("numbers of three nodes", len({*numbers, self.worker(newcomer)}) == 3)
            self.assertEqual([self.worker(daemon) for daemon in daemons], numbers)
            # It may be put back before anything could look.
            row.saw("put back", poll(lambda: self.has_put_back(daemons[1]), "the records are back", PATIENCE_S))
            go_on(customers, 2, PATIENCE_S)
        for daemon in daemons:
            poll(lambda daemon=daemon: "registry_problem" not in daemon.status()["snowflake"], "no trouble is left", PATIENCE_S)
        customers += self.customers(row, [newcomer])
        self.fill(row, customers)
        # As fast as ever: a start with a number of its own watches nothing.
        customers[1].daemon = None
        daemons[1].terminate()
        again = daemons[1].box.serve()
        self.assertEqual(self.worker(again), numbers[1])
        self.assertNotIn("watching", again.log())
        customers[1].daemon = again
        go_on(customers, 2, PATIENCE_S)

    def put_back(self, daemon):
        """How often the daemon's registry had forgotten its number."""
        return metrics.of(daemon).sum("leaf_dependency_went_back_total")

    def has_put_back(self, daemon):
        """With a report; or with a claim, if the daemon looked while a restore had the database without its tables."""
        return (self.put_back(daemon) and "restoring this node's r" in daemon.log()) or "creating its rows again" in daemon.log()

    def restore_single(self, row, **settings):
        self.use(ZooKeeper())
        backup = os.path.join(self.box.home, "backup")

        def back_up():
            self.zookeeper.stop()
            self.zookeeper.copy_data(backup)
            self.zookeeper.start()

        daemons = self.two_nodes(back_up, **settings)

        def restore():
            self.zookeeper.kill()
            self.zookeeper.put_back_data(backup)
            self.zookeeper.start()

        self.a_third_node_after(row, daemons, restore, **settings)

    def test_zookeeper_restored(self):
        with self.row("zookeeper-restored", "put back", "numbers of three nodes") as row:
            self.restore_single(row)

    def test_leases_restored(self):
        with self.row("leases-restored", "put back", "numbers of three nodes") as row:
            self.restore_single(row, more={"snowflake.recycle": True})

    def test_zookeeper_wiped(self):
        with self.row("zookeeper-wiped", "put back", "numbers of three nodes") as row:
            self.use(Ensemble(3))
            daemons = self.two_nodes()

            def wipe():
                self.zookeeper.kill()
                for member in self.zookeeper.members:
                    shutil.rmtree(os.path.join(member.home, "data", "version-2"))
                self.zookeeper.start()

            self.a_third_node_after(row, daemons, wipe)

    def test_registry_restored(self):
        tables = ("leaf_workerid_alloc", "leafctl_workers", "leafctl_cluster")
        settings = {"more": {"snowflake.registry": "sql"}}

        def dump():
            command = ["mariadb-dump", "--no-defaults", "--socket", self.one.socket, self.name, *tables]
            return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S).stdout

        with self.row("registry-restored", "put back", "numbers of three nodes") as row:
            self.node(**settings).ok("db", "init", *PATIENCE)
            backups = []
            daemons = self.two_nodes(lambda: backups.append(dump()), **settings)

            def restore():
                put_back_dump(self.one, self.name, backups[0], *tables)

            # On a slow disk a restore leaves the database without its tables for a while.
            self.a_third_node_after(row, daemons, restore, also_allowed=("config", "not_owner"), **settings)


class BothGoBack(Restores, Forgetful):
    """Database and ZooKeeper forget the same: table and witness agree with each other, and are both wrong."""

    scopes = ("pay", "ship")

    def configure(self, box, **settings):
        settings["more"] = {
            "snowflake.enabled": False, "snowflake.claim_watch": "auto", "segment.fence": "cluster", **settings.get("more", {})
        }  # fmt: skip
        super().configure(box, **settings)

    def set_up_stores(self):
        self.use(ZooKeeper())
        self.configure(self.box)
        self.box.ok("db", "init", *PATIENCE)
        self.add_tags()

    def recover(self, row, *args):
        """One command, after which all go on. Returns what it planned."""
        refused = self.box.run(["cluster", "recover", "--confirm", "another", *PATIENCE, *args])
        self.assertEqual(refused.rc, 11, refused)
        brief = ("--set", "segment.claim_watch=1s")
        plan = json.loads(self.box.ok("cluster", "recover", "--dry-run", "--json", *brief, *PATIENCE, *args))
        self.assertEqual([tag["tag"] for tag in plan["tags"]], ["pay", "ship"])
        done = json.loads(self.box.ok("cluster", "recover", "--json", "--confirm", self.name, *PATIENCE, *args))
        self.assertTrue(done["settled"])
        row.saw("tags moved by one command", len(done["tags"]))
        return plan

    def restore_with_one_that_knows_less(self, row):
        """Two daemons that have ended, of which the second was granted more; both stores are as before that."""
        less, more = (self.first_start(self.node(), "--set", "segment.claim_watch=0s") for _ in range(2))
        customers = self.customers(row, [less, more])
        with row.allowing(*STORE_AWAY):
            self.back_up()
            go_on(customers, 2, PATIENCE_S)
        # From here on one of them is there, and asks for nothing.
        customers[0].stop()
        self.beat_again(less, more)
        seen = row.ids
        poll(lambda: row.ids > seen + 20 * STEP, "the other goes on", PATIENCE_S, interval=0.1)
        customers[1].stop()
        for daemon in (less, more):
            daemon.kill()
        self.restore()
        return less, more

    def start_again(self, row, daemon, name):
        daemon = daemon.box.serve(ready=False)
        return daemon, row.customer(daemon, self.scopes, count=COUNT, pause=0.01, name=name)

    def is_refused(self, row, less, more):
        """The one that knows more is waited for, and named."""
        poll(lambda: self.cluster(less).get("missing"), "it waits for the other", PATIENCE_S)
        row.saw("waits for the other")
        for args in (["--dry-run"], ["--confirm", self.name]):
            refused = self.box.run(["cluster", "recover", *PATIENCE, *args])
            self.check(refused, 11, "start the nodes that are down", "--state-dir", "--beyond", "what was granted to a node is not known")
            self.assertIn("process %d on " % more.process.pid, refused.err)
            self.assertNotIn("process %d on " % less.process.pid, refused.err.split("is not known")[1])

    def test_restored(self):
        self.set_up_stores()
        with self.row("both-restored", "waits for the other", "tags moved by one command") as row:
            less, more = self.restore_with_one_that_knows_less(row)
            with row.allowing(NO_ANSWER, "frozen", *STORE_AWAY):
                less, one = self.start_again(row, less, "node 1 again")
                self.is_refused(row, less, more)
                more, two = self.start_again(row, more, "node 2 again")
                poll(lambda: self.cluster(more)["state"] == "open", "all is known again", PATIENCE_S)
                self.recover(row)
                go_on([one, two], 2, PATIENCE_S)
            self.fill(row, [one, two])

    def go_on_without(self, row, less, more, *args):
        """The other one stays down while the command is given; after it, service is back. Returns the plan."""
        with row.allowing(NO_ANSWER, "frozen", *STORE_AWAY):
            less, customer = self.start_again(row, less, "node 1 again")
            self.is_refused(row, less, more)
            plan = self.recover(row, *args)
            began = time.monotonic()
            customer.goes_on(1, PATIENCE_S)
            row.note("seconds from the command to service", round(time.monotonic() - began, 2))
            print("%s: service is back after %.2f s" % (row.name, row.notes["seconds from the command to service"]))
        self.assertNotIn("missing", self.cluster(less))
        # It is no longer waited for: the one that is there goes on, grant by grant.
        taken = dict(customer.taken)
        poll(
            lambda: all(customer.taken[tag] > taken[tag] + 5 * STEP for tag in self.scopes), "it is granted more", PATIENCE_S
        )
        return customer, plan

    def test_directory_is_named(self):
        self.set_up_stores()
        evidence = ("waits for the other", "tags known from its directory", "tags moved by one command", "IDs of the other again")
        with self.row("both-restored-directory", *evidence) as row:
            less, more = self.restore_with_one_that_knows_less(row)
            one, plan = self.go_on_without(row, less, more, "--state-dir", more.box.state)
            self.assertEqual(plan["missing"], [])
            where = "state directory " + more.box.state
            row.saw("tags known from its directory", sum(tag["where"] == where for tag in plan["tags"]))
            # It was away, and goes on once it has seen that the other is there.
            with row.allowing(NO_ANSWER, *STORE_AWAY):
                more, two = self.start_again(row, more, "node 2 again")
                two.goes_on(2, PATIENCE_S)
            row.saw("IDs of the other again", sum(two.taken.values()))
            self.fill(row, [one, two])

    def test_lost(self):
        self.set_up_stores()
        evidence = ("waits for the other", "tags moved by one command", "missing nodes in the plan")
        with self.row("both-restored-lost", *evidence) as row:
            less, more = self.restore_with_one_that_knows_less(row)
            shutil.rmtree(more.box.state)
            # More than all IDs that there are yet.
            beyond = row.ids + 10 * STEP
            one, plan = self.go_on_without(row, less, more, "--beyond", str(beyond))
            (missing,) = plan["missing"]
            self.assertIn("process %d" % more.process.pid, missing["process"])
            row.saw("missing nodes in the plan")
            for tag in plan["tags"]:
                base = max(int(tag["known"]), int(tag["max_id_before"]))
                self.assertEqual(int(tag["to"]), base + beyond, tag)
            self.fill(row, [one])

    def test_running(self):
        self.set_up_stores()
        with self.row("both-restored-running", "new node waits", "tags moved by one command") as row:
            daemons = [self.first_start(self.node(), "--set", "segment.claim_watch=0s") for _ in range(2)]
            customers = self.customers(row, daemons)
            with row.allowing("frozen", *STORE_AWAY):
                self.back_up()
                go_on(customers, 2, PATIENCE_S)
                self.beat_again(*daemons)
                seen = row.ids
                poll(lambda: row.ids > seen + 20 * STEP, "they go on", PATIENCE_S, interval=0.1)
                self.restore()
                newcomer = self.node().serve(ready=False)
                customers.append(row.customer(newcomer, self.scopes, count=COUNT, pause=0.01, name="the new node"))
                poll(lambda: "this node is new" in newcomer.log(), "it waits", PATIENCE_S)
                row.saw("new node waits")
                for daemon in (*daemons, newcomer):
                    poll(lambda daemon=daemon: self.cluster(daemon)["state"] == "open", "all is known again", PATIENCE_S)
                self.recover(row)
                go_on(customers, 2, PATIENCE_S)
            self.fill(row, customers)


class Clock(MatrixTest):
    def setUp(self):
        super().setUp()
        self.clock = FakeClock(self.box.path("faketime"))
        self.configure(self.box, more={"segment.enabled": False})

    def take(self, row, daemon, name):
        code, text, ranges = fault_matrix.take(daemon, "snowflake", COUNT)
        self.assertIsNone(code, text)
        for begin, end in ranges:
            row.got("snowflake", begin, end, name)

    def test_boot(self):
        with self.row("clock-boot", "starts with the clock moved", "refused to start", "waited") as row:
            daemon = self.box.serve(env=self.clock.env)
            self.take(row, daemon, "before")
            daemon.kill()
            for offset in (-3600, -600, -60, 60, 3600):
                self.clock.set_offset(offset)
                row.saw("starts with the clock moved")
                result = self.box.run(["serve", "--listen", "127.0.0.1:0"], env=self.clock.env)
                self.assertEqual(result.rc, 11, result)
                self.assertIn("behind" if offset < 0 else "ahead", result.err)
                row.saw("refused to start")
            # A machine that takes seconds to start has waited by then: once more, a few times.
            for offset in (-5, -5, -5, -5, 0, 1):
                if offset < 0 and row.evidence["waited"]:
                    continue
                self.clock.set_offset(offset)
                row.saw("starts with the clock moved")
                daemon = self.box.serve(env=self.clock.env, ready=False)
                daemon.wait_ready(PATIENCE_S)
                row.saw("waited", "waiting" in daemon.log())
                self.take(row, daemon, "offset %+d" % offset)
                daemon.kill()
            self.clock.set_offset(0)
            daemon = self.box.serve(env=self.clock.env)
            self.fill(row, self.customers(row, [daemon], ("snowflake",)))

    def test_running(self):
        daemon = self.box.serve(env=self.clock.env)
        other = self.node(more={"segment.enabled": False}).serve()

        def ahead_s():
            return json.loads(daemon.get("/v1/clock").body)["time_ms"] / 1000 - time.time()

        with self.row("clock-running", "moves back", "moves forward", "refusals") as row:
            customers = self.customers(row, [daemon, other], ("snowflake",))
            # Far back it stops, and after a jump ahead, in which it may issue nothing.
            with row.allowing("clock", *STORE_AWAY):
                last = 0.0
                for offset in (0.011, 0, -0.011, 1.3, -1.3, 0.5, -2.0, 0, 2.0, 0, 60.0, 0, -30.0, 288.0, -288.0, 0):
                    self.clock.set_offset(offset)
                    poll(lambda offset=offset: abs(ahead_s() - offset) < 0.5, "the clock moves")
                    row.saw("moves back" if offset < last else "moves forward")
                    last = offset
                    time.sleep(0.2)
                for number in range(200):
                    self.clock.set_offset(number % 2)
                    row.saw("moves forward" if number % 2 else "moves back")
                    time.sleep(0.005)
                self.clock.set_offset(0)
                poll(lambda: daemon.get("/health/ready").status == 200, "it is ready", PATIENCE_S)
                row.saw("refusals", row.refused("clock"))
                customers[0].goes_on(timeout=PATIENCE_S)
            self.fill(row, customers)


# ---- 7. the state directory ---------------------------------------------------------------------------------------


class State(MatrixTest):
    def test_lost(self):
        self.add_tags()
        daemon = self.box.serve()
        with self.row("state-lost", "directories removed", "refused to start", "IDs without state") as row:
            (customer,) = self.customers(row, [daemon])
            worker = daemon.status()["snowflake"]["worker"]
            with row.allowing(NO_ANSWER, *STORE_AWAY):
                daemon.kill()
                customer.daemon = None
                customer.stop()
            shutil.rmtree(self.box.state)
            row.saw("directories removed")
            # Its number belongs to a directory that is no more.
            result = self.box.run(["serve", "--listen", "127.0.0.1:0"])
            self.check(result, 11, "worker release %d" % worker)
            row.saw("refused to start")
            # Its tags are fenced by the witness.
            before = row.ids
            row.got_ids(fault_matrix.scope_name("pay"), self.box.next("pay", "-n", "100", "--direct"), "without state")
            row.saw("IDs without state", row.ids - before)
            release = ["worker", "release", str(worker), "--confirm", self.name]
            poll(lambda: self.box.run(release).rc == 0, "its session is over", PATIENCE_S)
            daemon = self.box.serve(ready=False)
            daemon.wait_ready(PATIENCE_S)
            self.fill(row, self.customers(row, [daemon]))

    def test_copied(self):
        # A session that is lost on a busy machine would let a copy start, and be refused later.
        patient = {"zookeeper.session_timeout": "20s"}
        self.configure(self.box, more=patient)
        self.add_tags()
        first = self.box.serve()
        with self.row("state-copied", "copies", "refused to start", "IDs of the copy") as row:
            (one,) = self.customers(row, [first])
            # Another machine is made from an image of this one: with an address of its own, and with the same.
            beside = self.node(more=patient)
            copy = Sandbox()
            self.addCleanup(copy.close)
            copy.env["LEAFCTL_CONFIG"] = self.box.env["LEAFCTL_CONFIG"]
            for box in (beside, copy):
                shutil.copytree(
                    self.box.state, box.state, ignore=lambda _, names: [name for name in names if name.endswith(".sock")]
                )
                row.saw("copies")
            two = row.customer(beside.serve(), self.scopes, count=COUNT, name="copy with its own address")
            two.goes_on()
            one.goes_on()

            def refused(box, why):
                self.check(box.run(["serve", "--listen", "127.0.0.1:0"]), 11, why)
                row.saw("refused to start")

            refused(copy, "a copy of this state directory")
            one.goes_on()
            # Of two with one number it may be either, but one only: the one that has it keeps it.
            with row.allowing(NO_ANSWER, *STORE_AWAY):
                first.kill()
                one.daemon = None
                one.stop()
            second = copy.serve(ready=False)
            second.wait_ready(PATIENCE_S)
            before = row.ids
            three = row.customer(second, self.scopes, count=COUNT, name="copy with the same address")
            three.goes_on()
            row.saw("IDs of the copy", row.ids - before)
            refused(self.box, "another state directory")
            self.fill(row, [two, three])

    def test_disk_full(self):
        self.add_tags()

        def ignore_the_signal():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        daemon = self.box.serve("--set", "server.request_timeout=4s", preexec_fn=ignore_the_signal)
        # A limit on the size of files is a full disk for this one process.
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        with self.row("disk-full", "refusals of the tags", "refusals of snowflake") as row:
            # One for each scope, so that waiting for one does not delay the others.
            customers = [self.customers(row, [daemon], (scope,))[0] for scope in self.scopes]
            full = STORE_AWAY + ("config", "permission")
            with row.allowing(*full):
                resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
                poll(lambda: daemon.get("/health/ready").status == 503, "not ready", PATIENCE_S)

                def refused(what):
                    return sum(": %s: " % what in text for text in row.allowed_texts())

                poll(lambda: refused("snowflake") > 0, "no ceiling", PATIENCE_S)
                poll(lambda: refused("pay") > 0, "no mark", PATIENCE_S)
                time.sleep(OUTAGE_S)
                resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, unlimited)
                daemon.wait_ready(PATIENCE_S)
                go_on(customers, timeout=PATIENCE_S)
                row.saw("refusals of the tags", refused("pay") + refused("ship"))
                row.saw("refusals of snowflake", refused("snowflake"))
            self.fill(row, customers)


# ---- 8. one identity twice ----------------------------------------------------------------------------------------


class Identity(MatrixTest):
    def test_one_directory(self):
        # The daemon's grants, too, take turns with those of the commands.
        self.configure(self.box, more={"server.request_timeout": "120s", "zookeeper.session_timeout": "30s"})
        self.add_tags()
        daemon = self.box.serve()
        with self.row("one-directory", "daemons refused", "one-shots refused", "one-shots beside the daemon") as row:
            (customer,) = self.customers(row, [daemon])
            direct = ["next", "pay", "-n", "3", "--direct", "--timeout", "60s"]
            for _ in range(3):
                result = self.box.run(["serve", "--listen", "127.0.0.1:0"])
                self.check(result, 11, self.box.state)
                row.saw("daemons refused")
                self.check(self.box.run(["next", "--mode", "snowflake", "--direct"]), 11, self.box.state)
                row.saw("one-shots refused")
                # Ranges are as many as one likes; the grants of a directory take turns.
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    for result in pool.map(lambda _: self.box.run(direct), range(8)):
                        if result.rc == 8:
                            continue  # on a busy machine its turn did not come in time, or no answer
                        self.assertEqual(result.rc, 0, result)
                        row.got_ids(fault_matrix.scope_name("pay"), [int(line) for line in result.out.split()], "one-shot")
                        row.saw("one-shots beside the daemon")
            self.fill(row, [customer])

    def test_one_address(self):
        self.add_tags()
        daemon = self.box.serve()
        with self.row("one-address", "daemons refused", "one-shots refused") as row:
            (customer,) = self.customers(row, [daemon])
            other = Sandbox()
            self.addCleanup(other.close)
            other.env["LEAFCTL_CONFIG"] = self.box.env["LEAFCTL_CONFIG"]
            for _ in range(3):
                result = other.run(["serve", "--listen", "127.0.0.1:0"])
                self.check(result, 11, "worker release")
                row.saw("daemons refused")
                self.check(other.run(["next", "--mode", "snowflake", "--direct"]), 11, "worker release")
                row.saw("one-shots refused")
                row.got_ids(fault_matrix.scope_name("pay"), other.next("pay", "-n", "3", "--direct"), "the other directory")
            # While its node is live the number cannot be taken away.
            self.check(other.run(["worker", "release", "0", "--confirm", self.name]), 11, "is live")
            self.fill(row, [customer])


# ---- 9. strict tags -----------------------------------------------------------------------------------------------


class StrictTags(MatrixTest):
    """The IDs of all nodes follow the order of requests in real time."""

    @contextlib.contextmanager
    def order(self, row, boxes):
        takers = [OrderTaker(box, "version", connections=8, count=COUNT) for box in boxes]
        try:
            yield
        finally:
            answers = [taker.stop() for taker in takers]
        for number, seen in enumerate(answers, 1):
            for _, _, first, last in seen:
                row.got("version", first, last + 1, "node %d" % number)
        row.saw("requests in order", real_time_order.check([request for seen in answers for request in seen]))

    def goes_on(self, daemons):
        """Each of them is granted more."""

        def granted():
            return [(daemon.tag_status("version") or {"grants": 0})["grants"] for daemon in daemons]

        before = granted()
        poll(lambda: all(now > then + 3 for now, then in zip(granted(), before)), "grants", PATIENCE_S)

    def serve_strict(self):
        self.box.ok("db", "init", *PATIENCE)
        daemons = self.serve_two()
        self.box.ok("tag", "add", "version", "--order", "strict", *PATIENCE)
        return daemons

    def test_nodes(self):
        daemons = self.serve_strict()
        boxes = [daemon.box for daemon in daemons]
        beside = self.node()
        with self.row("strict-nodes", "kills", "stops", "requests in order") as row, self.order(row, boxes):
            self.goes_on(daemons)
            for index in (0, 1):
                daemons[index].kill()
                row.saw("kills")
                self.goes_on([daemons[1 - index]])
                daemons[index] = boxes[index].serve()
                self.goes_on(daemons)
                daemons[index].signal(signal.SIGSTOP)
                row.saw("stops")
                # What is granted meanwhile is above all that the one that is stopped may still answer.
                beside.next("version", "--direct")
                self.goes_on([daemons[1 - index]])
                daemons[index].signal(signal.SIGCONT)
                self.goes_on(daemons)

    def test_database(self):
        daemons = self.serve_strict()
        boxes = [daemon.box for daemon in daemons]
        with self.row("strict-database", "kills", "cuts", "requests in order") as row, self.order(row, boxes):
            self.goes_on(daemons)
            self.one.kill()
            row.saw("kills")
            time.sleep(OUTAGE_S / 3)
            self.one.start()
            self.goes_on(daemons)
            for _ in range(3):
                self.one.cut("leaf")
                row.saw("cuts")
                self.goes_on(daemons)


# ---- 10. many at once ----------------------------------------------------------------------------------------------


class AtOnce(MatrixTest):
    def test_nodes_at_once(self):
        self.add_tags()
        # A grant is lost if eight others were faster in a row, and 32 ask at once: such a tag answers the next request.
        with self.row("nodes-at-once", "nodes that serve", "distinct worker numbers") as row, row.allowing("exhausted"):
            boxes = [self.node() for _ in range(NODES_AT_ONCE)]
            daemons = [box.serve(listening=False) for box in boxes]
            for daemon in daemons:
                daemon.wait_listening()
            for daemon in daemons:
                daemon.wait_ready(PATIENCE_S)
                row.saw("nodes that serve")
            workers = {daemon.status()["snowflake"]["worker"] for daemon in daemons}
            row.saw("distinct worker numbers", len(workers))
            self.assertEqual(len(workers), NODES_AT_ONCE)
            self.fill(row, self.customers(row, daemons))
            row.stop_customers()  # while it is allowed


# ---- the judge itself ---------------------------------------------------------------------------------------------


class Judge(LeafTest):
    """What has to make a row red does."""

    def setUp(self):
        super().setUp()
        self.row = Row("a row", "a fault", ["kills"])
        self.row.saw("kills")
        self.row.got("tag pay", 1, 101, "one")
        self.row.got("tag pay", 101, 201, "two")
        self.row.got("tag ship", 1, 101, "one")
        self.assertEqual(self.row.faults(), [])

    def red(self, *parts):
        (fault,) = self.row.faults()
        for part in parts:
            self.assertIn(part, fault)
        table = Table(["a row"], self.box.path("table.txt"))
        table.add(self.row)
        with open(self.box.path("table.txt"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("  RED ", text)
        self.assertIn("RED a row: " + fault, text)
        with open(self.box.path("table.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["rows"][0]["result"], "red")

    def test_one_id_twice(self):
        self.row.got("tag pay", 150, 151, "three")
        self.assertEqual(self.row.duplicates, 1)
        self.red("1 IDs twice", "[150, 151) was given to two and to three")

    def test_ranges_that_overlap(self):
        self.row.got("tag pay", 50, 151, "three")
        self.assertEqual(self.row.duplicates, 101)
        self.row.got("tag pay", 0, 300, "four")
        self.assertEqual(self.row.duplicates, 101 + 200)
        self.row.got("tag pay", 0, 300, "four")
        self.assertEqual(self.row.duplicates, 101 + 200 + 300)

    def test_no_evidence(self):
        row = Row("a row", "a fault", ["kills", "restarts"])
        row.saw("kills")
        row.saw("restarts", 0)
        row.got("snowflake", 1, 2, "one")
        self.row = row
        self.red("nothing shows that it happened: restarts")
        with self.assertRaises(AssertionError):
            Row("a row", "a fault", [])

    def test_no_ids(self):
        self.row = Row("a row", "a fault", ["kills"])
        self.row.saw("kills")
        self.red("no ID was checked")

    def test_an_error_that_is_not_allowed(self):
        with self.row.allowing("exhausted"):
            self.row.trouble("exhausted", "inside")
            self.assertEqual(self.row.faults(), [])
            self.row.trouble("frozen", "another one")
        self.assertEqual(self.row.refused("exhausted"), 1)
        self.red("1 errors", "frozen another one")

    def test_an_error_at_another_time(self):
        with self.row.allowing("exhausted"):
            during = time.monotonic()
        after = time.monotonic()
        # Asked before, or in it, and answered later: it may have met what happened.
        self.row.trouble("exhausted", "overlaps", during, after + 1)
        self.assertEqual(self.row.faults(), [])
        self.row.trouble("exhausted", "too late", after + 0.001, after + 1)
        self.red("exhausted too late")

    def test_a_row_that_breaks_off(self):
        self.row.failure = "AssertionError()"
        self.red("it did not come to its end")

    def test_a_row_that_was_not_run(self):
        table = Table(["a row", "another"])
        table.add(self.row)
        self.assertEqual(table.missing(), ["another"])
        self.assertTrue(any(line.startswith("another  NOT RUN") for line in table.lines()))
        with self.assertRaises(AssertionError):
            table.add(self.row)

    def test_a_customer_whose_daemon_repeats_itself(self):
        """The whole way, from the answers of a daemon that is killed and whose state is thrown away."""
        for _ in range(2):
            self.box.ok("tag", "add", "pay")
            daemon = self.box.serve()
            customer = self.row.customer(daemon, ["pay", "snowflake"])
            customer.goes_on()
            self.row.stop_customers()
            daemon.kill()
            shutil.rmtree(self.box.state)
        self.assertGreater(self.row.duplicates, 0)

    def test_against_counting_one_by_one(self):
        """Random ranges, settled at random moments."""
        choose = explain.dice("the ranges")
        for _ in range(200):
            ledger, counts = IdLedger(), {}
            for _ in range(choose.randrange(1, 40)):
                begin = choose.randrange(200)
                end = begin + choose.randrange(1, 20)
                ledger.add("a", begin, end, "one of %d" % choose.randrange(3))
                for value in range(begin, end):
                    counts[value] = counts.get(value, 0) + 1
                if choose.random() < 0.2:
                    ledger.settle()
            self.assertEqual(ledger.duplicates, sum(counts.values()) - len(counts))
            self.assertEqual(ledger.count, sum(counts.values()))
            self.assertEqual(bool(ledger.examples()), ledger.duplicates > 0)


# ---- the whole table ----------------------------------------------------------------------------------------------

# Faults are mostly waited for, so these run beside each other, each part with servers of its own.
PARTS = (
    ("KillAt", "Pause", "Database", "State", "Identity"),
    ("Galera", "Registry", "Clock", "StrictTags", "AtOnce", "Judge"),
    ("GoesBack",),
    ("BothGoBack",),
)


def run_part(part, directory):
    """(exit code, output, rows) of a run of these classes."""
    table = os.path.join(directory, part[0] + ".txt")
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), *part], env=dict(os.environ, LEAFCTL_MATRIX_TABLE=table),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    rows = []
    with contextlib.suppress(FileNotFoundError), open(table[: -len("txt")] + "json", encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    return done.returncode, done.stdout.decode("utf-8", "replace"), rows


def run_all():
    """Exit code 1 if a part fails, or if a row is missing."""
    failed = False
    TABLE.write()  # instead of an older one, whatever happens
    with tempfile.TemporaryDirectory(prefix="leafctl-matrix-") as directory:
        with concurrent.futures.ThreadPoolExecutor(len(PARTS)) as pool:
            for code, output, rows in pool.map(lambda part: run_part(part, directory), PARTS):
                print(output, flush=True)
                failed = failed or code != 0
                for row in rows:
                    TABLE.add_json(row)
    TABLE.write()
    print("\n".join(["", *TABLE.lines()]), flush=True)
    return 1 if failed or TABLE.missing() else 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(run_all())
    try:
        main()
    finally:
        print("\n".join(["", *TABLE.lines(all_names=False)]), flush=True)
