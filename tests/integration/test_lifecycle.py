#!/usr/bin/env python3
"""From start to end under a service manager: notifications, reload, watchdog, sockets that are passed, log, pauses.

Environment, beside that of leafctl.py:
  LEAFCTL_ROLLING_REQUESTS  requests behind the rolling restart (default 20000, less under sanitizers)
"""

import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import freeze  # noqa: E402
import wrk  # noqa: E402
from leafctl import LeafTest, RawConnection, Sandbox, main, poll, scaled  # noqa: E402
from manager import ActivatedSandbox, NotifySocket, tcp_listener, unix_listener  # noqa: E402
from own_namespace import ELSEWHERE, in_own_network, in_own_run  # noqa: E402

LEAF = "/api/segment/get/"
V1 = "/v1/segment/"
ROLLING_REQUESTS = int(os.environ.get("LEAFCTL_ROLLING_REQUESTS") or scaled(20000))


def report(text, *values):
    print("lifecycle: " + text % values, flush=True)


class ManagedTest(LeafTest):
    def setUp(self):
        super().setUp()
        self.notify = NotifySocket(self.box.path("notify"))
        self.addCleanup(self.notify.close)

    def serve(self, *args, env=None, **more):
        env = dict(env or {}, NOTIFY_SOCKET=self.notify.path)
        return self.box.serve(*args, env=env, **more)


class Universe(LeafTest):
    """An ordinary user beside the daemon of the machine, whose socket `next` asks first."""

    @in_own_run()
    def test_commands_work_on_what_next_takes_from(self):
        os.mkdir("/run/leafctl")
        system = Sandbox()
        self.addCleanup(system.close)
        system.serve("--socket", "/run/leafctl/leafctl.sock")
        self.check(self.box.run(["next", "inv"]), 9)
        for words in (
            ["tag", "add", "inv"], ["tag", "list"], ["tag", "show", "inv"], ["tag", "advance", "inv", "--to", "5"],
            ["tag", "remove", "inv", "--yes"], ["db", "init"], ["db", "check"], ["worker", "list"], ["worker", "check"],
        ):  # fmt: skip
            self.check(self.box.run(words), 11, system.state, self.box.state, "--state-dir " + system.state)
        self.assertFalse(os.path.exists(os.path.join(self.box.state, "leaf.db")), "a store of its own was made")
        self.box.ok("tag", "add", "inv", "--state-dir", system.state)
        poll(lambda: self.box.run(["next", "inv"]).out == "1\n", "the daemon has it")
        # A store that is named is used.
        self.box.ok("tag", "add", "inv", "--set", "sqlite.path=" + self.box.path("own.db"))
        # Commands that ask the daemon still work.
        self.assertEqual(self.box.run(["tag", "pause", "inv"]).rc, 0)


class Occupied(ManagedTest):
    """The state directory is in use when a daemon starts."""

    def command(self):
        """A command that issues by itself, and does not end, as its output is not read."""
        process = self.box.popen(
            ["next", "--mode", "snowflake", "-n", "2000000", "--direct"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        first = int(process.stdout.readline())
        return process, first

    def test_a_command_is_waited_for(self):
        first_life = self.box.serve()
        before = self.v1(first_life)
        first_life.kill()
        process, first = self.command()
        daemon = self.serve(listening=False)
        waiting = daemon.wait_log(r"waiting for the state directory (\S+): a leafctl command \(pid (\d+)\) is using it")
        self.assertEqual(waiting.groups(), (self.box.state, str(process.pid)))
        self.assertGreaterEqual(int(re.search(r"=(\d+)", self.notify.wait("^EXTEND_TIMEOUT_USEC=")).group(1)), 5_000_000)
        self.notify.wait(r"^STATUS=waiting for a leafctl command")
        given = [before, first, *(int(process.stdout.readline()) for _ in range(1000))]
        self.assertEqual(self.notify.count("READY"), 0)
        process.kill()
        given += [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
        daemon.wait_listening()
        daemon.wait_ready()
        self.check_distinct([*given, self.v1(daemon)])

    def v1(self, daemon):
        return int(json.loads(daemon.get("/v1/snowflake").body)["ids"][0])

    def test_a_command_of_another_container_is_waited_for_too(self):
        """Its pid means nothing here."""
        os.mkdir(self.box.state, 0o700)
        with open(os.path.join(self.box.state, "lock"), "w", encoding="utf-8") as lock:
            os.chmod(lock.name, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            print("999999999 serve", file=lock, flush=True)
            self.check(self.box.run(["serve", "--listen", "127.0.0.1:0"]), 11, "leafctl serve (pid 999999999)")
            lock.truncate(0)
            lock.seek(0)
            print("999999999 command", file=lock, flush=True)
            daemon = self.serve(listening=False)
            daemon.wait_log(r"waiting for the state directory \S+: a leafctl command \(pid 999999999\) is using it")
            self.notify.wait("^EXTEND_TIMEOUT_USEC=")
        daemon.wait_listening()
        daemon.wait_ready()

    def test_a_reload_that_comes_during_the_wait_is_not_lost(self):
        os.mkdir(self.box.state, 0o700)
        path = self.box.write("leafctl.toml", '[log]\nlevel = "info"\n')
        self.box.env["LEAFCTL_CONFIG"] = path
        with open(os.path.join(self.box.state, "lock"), "w", encoding="utf-8") as lock:
            os.chmod(lock.name, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            print("999999999 command", file=lock, flush=True)
            daemon = self.serve(listening=False)
            daemon.wait_log("waiting for the state directory")
            self.box.write("leafctl.toml", '[log]\nlevel = "debug"\n')
            daemon.signal(signal.SIGHUP)
        daemon.wait_listening()
        daemon.wait_log(r"log\.level")

    def test_without_its_state_directory_a_daemon_issues_nothing(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        first = self.serve()
        first.ids("pay", 10)
        self.v1(first)
        os.rename(self.box.state, self.box.state + ".away")
        ready = poll(lambda: (r := first.get("/health/ready")).status == 503 and r, "it notices")
        (reason,) = json.loads(ready.body)["reasons"]
        self.assertEqual(reason["code"], "state_dir_lost")
        said = "the state directory %s was deleted while this process was using it" % self.box.state
        self.assertEqual(reason["message"], said)
        for answer in (first.v1("pay"), first.v1("another"), first.get("/v1/snowflake")):
            self.check_v1_error(answer, 503, "unavailable")
            self.assertEqual(json.loads(answer.body)["message"], said)
        self.assertEqual([problem["code"] for problem in first.status()["problems"]][0], "state_dir_lost")
        self.assertIn("no more IDs: " + said, first.log())
        self.notify.wait(r"^STATUS=not ready: the state directory \S+ was deleted")
        # One that takes the place has it for itself.
        second = self.box.serve()
        mine = self.v1(second)
        self.check_v1_error(first.get("/v1/snowflake"), 503, "unavailable")
        self.assertEqual(first.terminate(), 0)
        with open(os.path.join(self.box.state, "snowflake.state"), encoding="utf-8") as file:
            self.assertIn("\nnode %s\n" % second.status()["snowflake"]["node"], file.read())
        self.assertGreater(self.v1(second), mine)

    def test_a_signal_ends_the_wait(self):
        self.command()
        daemon = self.serve(listening=False)
        daemon.wait_log("waiting for the state directory")
        self.assertEqual(daemon.terminate(), 0)

    def test_another_daemon_is_not(self):
        daemon = self.box.serve()
        refused = self.box.run(["serve", "--listen", "127.0.0.1:0"], env={"NOTIFY_SOCKET": self.notify.path})
        self.check(refused, 11, "leafctl serve (pid %d)" % daemon.process.pid, "a state_dir of its own")
        self.assertEqual(self.notify.count("EXTEND"), 0)

    def test_a_command_for_a_tag_is_in_no_daemons_way(self):
        self.box.ok("tag", "add", "pay", "--step", "10")
        process = self.box.popen(["next", "pay", "-n", "2000000", "--direct"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        given = [int(process.stdout.readline())]
        daemon = self.serve()
        self.assertNotIn("waiting for the state directory", daemon.log())
        given += daemon.ids("pay", 20)
        given += [int(process.stdout.readline()) for _ in range(100)]
        self.check_distinct(given)


class Notify(ManagedTest):
    def test_from_start_to_end(self):
        daemon = self.serve()
        self.notify.wait(r"^READY=1$|^READY=1\n")
        # With it, or a moment later: a daemon is up before its tags are read.
        self.notify.wait(r"STATUS=ready: segment mode on sqlite and snowflake mode as worker \d+ of local-")
        self.assertEqual(self.notify.messages[0], "STATUS=starting\n")
        self.assertEqual(self.notify.count("WATCHDOG"), 0)
        before = time.monotonic_ns() // 1000
        daemon.signal(signal.SIGHUP)
        reloading = self.notify.wait("RELOADING=1")
        usec = int(re.search(r"MONOTONIC_USEC=(\d+)\n", reloading).group(1))
        self.assertTrue(before <= usec <= time.monotonic_ns() // 1000, usec)
        self.notify.wait("READY=1", times=2)
        self.assertEqual(daemon.terminate(), 0)
        self.notify.wait("STOPPING=1\nSTATUS=draining")
        order = [
            word
            for message in self.notify.messages
            for word in re.findall(r"^(READY|RELOADING|STOPPING)=1", message, re.MULTILINE)
        ]
        self.assertEqual(order, ["READY", "RELOADING", "READY", "STOPPING"])

    def test_an_abstract_name_too(self):
        name = "@leafctl-test-%d" % os.getpid()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind("\0" + name[1:])
        listener.settimeout(60)
        daemon = self.box.serve(env={"NOTIFY_SOCKET": name})
        messages = [listener.recv(4096).decode()]
        while not messages[-1].startswith("READY=1"):
            messages.append(listener.recv(4096).decode())
        self.assertEqual(daemon.terminate(), 0)

    def test_a_database_that_is_away_keeps_no_daemon_from_starting(self):
        """READY comes all the same: the daemon is up, and its status says what is missing."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            endpoint = "127.0.0.1:%d" % closed.getsockname()[1]
        daemon = self.serve(
            "--set", "segment.store=mysql", "--set", "mysql.endpoints=" + endpoint, ready=False
        )
        self.notify.wait("^STATUS=not ready: segment mode")
        self.assertEqual(daemon.get("/health/live").status, 200)
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.assertIn("STATUS=not ready: segment mode", self.notify.wait("READY=1"))
        self.assertEqual(daemon.terminate(), 0)


class Reload(ManagedTest):
    def config(self, text):
        self.box.write("leafctl.toml", text)

    def setUp(self):
        super().setUp()
        self.config("[server]\nmax_count = 10\n")
        self.daemon = self.serve("--config", self.box.path("leafctl.toml"))
        self.notify.wait("READY=1")
        self.box.ok("tag", "add", "pay")
        self.reloads = 1

    def reload(self, text):
        self.config(text)
        self.daemon.signal(signal.SIGHUP)
        self.reloads += 1
        return self.notify.wait("READY=1", times=self.reloads)

    def test_limits_and_log_level(self):
        self.assertEqual(self.daemon.v1("pay", 11).status, 413)
        self.assertNotIn(" debug ", self.daemon.log())
        self.reload('[server]\nmax_count = 20\nmax_tag_requests_per_second = 1\n[log]\nlevel = "warning"\n')
        self.assertEqual(self.daemon.v1("pay", 21).status, 413)
        self.assertEqual(self.daemon.v1("pay", 11).status, 200)
        poll(lambda: self.daemon.v1("pay", 1).status == 429, "the new limit on requests")
        lines = len(self.daemon.lines)
        self.reload('[server]\nmax_count = 20\n[log]\nlevel = "info"\n')
        for _ in range(20):
            self.assertEqual(self.daemon.v1("pay", 1).status, 200)
        found = self.daemon.wait_log(r"reloaded: (.*)").group(1)
        self.assertIn("server.max_tag_requests_per_second = 0", found)
        self.assertIn('log.level = "info"', found)
        self.assertEqual(lines, [i for i, line in enumerate(self.daemon.lines) if "reloaded" in line][0])

    def test_a_tag_that_was_removed_stops_sooner_when_asked_to(self):
        self.assertEqual(self.daemon.leaf("pay").status, 200)
        self.box.ok("tag", "remove", "pay", "--yes", "--direct")
        self.assertEqual(self.daemon.leaf("pay").status, 200)  # the table is read once a minute
        self.reload('[segment]\nrefresh_interval = "100ms"\n')
        poll(lambda: self.daemon.leaf("pay").status == 500, "the removal is noticed")

    def test_a_bad_file_changes_nothing(self):
        for bad, word in (
            ("[server]\nmax_count = 'many'\n", "max_count"),
            ("[server]\nmax_cuont = 3\n", "max_cuont"),
            ("][", "leafctl.toml"),
        ):
            status = self.reload(bad)
            self.assertIn("the last reload failed", status)
            self.daemon.wait_log("reload failed, the old settings stay in force: .*" + re.escape(word))
            self.assertEqual(self.daemon.v1("pay", 10).status, 200)
            self.assertEqual(self.daemon.v1("pay", 11).status, 413)
        os.unlink(self.box.path("leafctl.toml"))
        self.daemon.signal(signal.SIGHUP)
        self.assertIn("the last reload failed", self.notify.wait("READY=1", times=self.reloads + 1))
        self.reloads += 1
        self.assertNotIn("failed", self.reload("[server]\nmax_count = 12\n"))
        self.assertEqual(self.daemon.v1("pay", 12).status, 200)

    def test_places_that_there_are_no_files_for(self):
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (2000, 2000))
        self.reload("[server]\nmax_connections = 5000\n")
        self.daemon.wait_log(r"only 2000 files may be open: at most \d+ connections instead of server.max_connections = 5000")

    def test_what_needs_a_restart_is_named(self):
        self.reload('[server]\nthreads = 3\nmax_count = 10\n[segment]\nstep_policy = "fixed"\n')
        self.daemon.wait_log("server.threads, segment.step_policy changed, which needs a restart")

    def test_many_reloads_under_load(self):
        stop = threading.Event()
        bad = []

        def ask():
            with self.daemon.raw() as raw:
                while not stop.is_set():
                    response = raw.get(LEAF + "pay")
                    if response is None or response.status != 200:
                        bad.append(response)
                        return

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for number in range(20):
                self.reload('[server]\nmax_count = %d\n[segment]\nrefresh_interval = "%dms"\nreserve_time = "%dms"\n'
                            % (10 + number, 200 + number, number))  # fmt: skip
        finally:
            stop.set()
            thread.join()
        self.assertEqual(bad, [])


class Signals(ManagedTest):
    def parked_drain(self):
        """A daemon that drains, and cannot come to an end by itself."""
        daemon = self.serve("--set", "server.drain_timeout=300s", "--set", "server.idle_timeout=300s")
        self.notify.wait("READY=1")
        raw = daemon.raw()
        self.addCleanup(raw.close)
        raw.send("POST /v1/clock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        # Its bytes have arrived once later requests of other connections are answered by every thread.
        for _ in range(50):
            daemon.get("/health/live")
            daemon.disconnect()
        return daemon

    def test_sighup_does_not_end_a_drain(self):
        daemon = self.parked_drain()
        daemon.signal(signal.SIGTERM)
        self.notify.wait("STOPPING=1")
        daemon.wait_log("draining")
        for _ in range(3):
            daemon.signal(signal.SIGHUP)
        time.sleep(0.3)
        self.assertIsNone(daemon.process.poll())
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(), -signal.SIGTERM)

    def test_second_signal_of_either_kind(self):
        daemon = self.parked_drain()
        daemon.signal(signal.SIGINT)
        self.notify.wait("STOPPING=1")
        daemon.wait_log("SIGINT: draining")
        daemon.signal(signal.SIGINT)
        self.assertEqual(daemon.wait(), -signal.SIGINT)


class Watchdog(ManagedTest):
    WATCHDOG_S = 4.0

    def serve(self, *args, **more):
        return super().serve(*args, env={"WATCHDOG_USEC": str(int(self.WATCHDOG_S * 1e6))}, **more)

    def pings_go_on(self):
        count = self.notify.count("WATCHDOG=1")
        self.notify.wait("WATCHDOG=1", times=count + 3)

    def pings_stop(self, daemon):
        """Until no ping has come for the time after which a service manager acts."""

        def quiet():
            count = self.notify.count("WATCHDOG=1")
            time.sleep(self.WATCHDOG_S)
            return self.notify.count("WATCHDOG=1") == count

        poll(quiet, "the pings stop")
        daemon.wait_log("no progress in the threads")

    def test_for_another_process(self):
        daemon = self.box.serve(env={"NOTIFY_SOCKET": self.notify.path, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"})
        self.notify.wait("READY=1")
        self.assertEqual(daemon.terminate(), 0)
        self.assertEqual(self.notify.count("WATCHDOG"), 0)

    def test_stops_when_one_thread_hangs(self):
        # Refills are given what they may wait for SQLite, twice its busy time-out, on top.
        daemon = self.serve("--set", "server.threads=3", "--timeout", "500ms")
        daemon.disconnect()
        self.pings_go_on()
        pid = daemon.process.pid
        for name, count in (("leaf-http", 3), ("leaf-timers", 1), ("leaf-workers", 2)):
            found = freeze.threads(pid, name)
            self.assertEqual(len(found), count, name)
            with freeze.frozen(found[-1]):
                self.pings_stop(daemon)
                self.assertIn(name, daemon.log().rsplit("no progress", 1)[1])
            self.pings_go_on()  # it moves again, and all is well
        self.assertEqual(daemon.terminate(), 0)

    def test_a_database_that_is_locked_is_no_reason(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.serve("--set", "server.request_timeout=100ms")
        lock = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        self.assertEqual(daemon.v1("pay").status, 503)
        deadline = time.monotonic() + 3 * self.WATCHDOG_S
        while time.monotonic() < deadline:
            self.pings_go_on()
        self.assertNotIn("no progress", daemon.log())
        lock.execute("ROLLBACK")
        self.assertEqual(daemon.terminate(), 0)


class Activation(LeafTest):
    def activated(self, passed):
        box = ActivatedSandbox(passed)
        self.addCleanup(box.close)
        for _, listener in passed:
            self.addCleanup(listener.close)
        return box

    def test_sockets_in_any_order(self):
        for tcp_first in (True, False):
            path = self.box.path("passed-%s.sock" % tcp_first)
            tcp = tcp_listener()
            passed = [("http", tcp), ("local", unix_listener(path))]
            box = self.activated(passed if tcp_first else passed[::-1])
            box.ok("tag", "add", "pay")
            daemon = box.serve()
            self.assertEqual(daemon.port, tcp.getsockname()[1])
            self.assertIn("server.listen is not used", daemon.log())
            self.assertEqual(daemon.leaf("pay").body, "1")
            with RawConnection(path) as raw:
                self.assertEqual(raw.get(LEAF + "pay").body, "2")
            self.assertEqual(daemon.status()["listen"][0 if tcp_first else 1], daemon.url)
            self.assertFalse(os.path.exists(os.path.join(box.state, "leafctl.sock")))
            # A child of the daemon would not take them for its own.
            with open("/proc/%d/environ" % daemon.process.pid, "rb") as file:
                self.assertIn(b"LISTEN_PID=%d" % daemon.process.pid, file.read())
            self.assertEqual(daemon.terminate(), 0)
            # It is the manager's file, and still listened on.
            self.assertTrue(stat.S_ISSOCK(os.stat(path).st_mode))
            with RawConnection(path):
                pass

    def test_a_reload_says_what_the_socket_unit_decides(self):
        box = self.activated([("", tcp_listener()), ("redis", tcp_listener())])
        config = box.write("leafctl.toml", "")
        daemon = box.serve("--config", config)
        box.write("leafctl.toml", '[server]\nredis_listen = ["127.0.0.1:1"]\nthreads = 3\n')
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("reload: server.redis_listen is not used: the service manager passed sockets")
        daemon.wait_log("reload: server.threads changed, which needs a restart")
        self.assertEqual(daemon.terminate(), 0)

    def test_one_kind_stands_for_that_kind_only(self):
        box = self.activated([("", tcp_listener())])
        box.serve()
        with RawConnection(os.path.join(box.state, "leafctl.sock")) as raw:
            self.assertEqual(raw.get("/health/live").status, 200)
        path = self.box.path("only.sock")
        box = self.activated([("", unix_listener(path))])
        daemon = box.serve()
        with RawConnection(path) as raw:
            self.assertEqual(raw.get("/health/live").status, 200)
        self.assertEqual(daemon.get("/health/live").status, 200)

    def test_what_cannot_be_served_is_refused(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            box = self.activated([("odd", udp)])
            daemon = box.serve(listening=False)
            self.assertEqual(daemon.wait(), 6)
            self.assertIn("passed descriptor 3 (odd) is not a listening stream socket", daemon.log())

    def test_a_client_that_connects_between_two_processes_is_served_by_the_second(self):
        box = self.activated([("http", tcp_listener())])
        box.ok("tag", "add", "pay")
        daemon = box.serve()
        first = int(daemon.leaf("pay").body)
        self.assertEqual(daemon.terminate(), 0)
        with daemon.raw() as waiting:
            waiting.send("GET %spay HTTP/1.1\r\nHost: localhost\r\n\r\n" % V1)
            box.serve("--set", "server.request_timeout=60s")
            response = waiting.response()
            self.assertEqual(response.status, 200, response.body)
            self.assertGreater(int(json.loads(response.body)["ids"][0]), first)


class Client:
    """Takes IDs one by one over kept connections to several servers in turn, and fails at the least failure."""

    def __init__(self, ports, requests):
        self.ports = ports
        self.requests = requests
        self.ids = []
        self.reconnects = 0
        self.done = 0
        self.failures = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        connections = {}
        request = ("GET %spay HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n" % V1).encode()
        try:
            for number in range(self.requests):
                self.done = number
                port = self.ports[number % len(self.ports)]
                raw = connections.get(port)
                # As every pool of connections does: one that was closed meanwhile is not used again.
                if raw is not None and select.select([raw.socket], [], [], 0)[0]:
                    raw.close()
                    raw = None
                if raw is None:
                    raw = connections[port] = RawConnection(("127.0.0.1", port), timeout=120)
                    self.reconnects += 1
                raw.send(request)
                response = raw.response()
                if response is None or response.status != 200:
                    self.failures.append(response)
                    del connections[port]
                    continue
                self.ids.append(int(response.body))
                if response.headers.get("connection") == "close":
                    raw.close()
                    del connections[port]
        except Exception as error:  # pylint: disable=broad-except
            self.failures.append(error)
        finally:
            self.done = self.requests
            for raw in connections.values():
                raw.close()


class RollingRestart(LeafTest):
    """Two daemons on one database are restarted in turn, again and again: no request fails, no ID repeats."""

    RESTARTS = 4
    SETTINGS = ("--set", "server.request_timeout=60s", "--set", "server.drain_timeout=60s")

    def start(self, listeners, first_id=1):
        """One daemon for each listening socket, which it is passed."""
        self.boxes = []
        for listener in listeners:
            box = ActivatedSandbox([("http", listener)])
            self.addCleanup(box.close)
            box.env["LEAFCTL_SQLITE_PATH"] = self.box.path("shared.db")
            self.boxes.append(box)
        self.boxes[0].ok("tag", "add", "pay", "--step", "1000", "--start", str(first_id))
        self.daemons = [box.serve(*self.SETTINGS) for box in self.boxes]
        for daemon in self.daemons:
            daemon.disconnect()

    def listener(self):
        listener = tcp_listener()
        self.addCleanup(listener.close)
        return listener

    def restart(self, turn):
        """A new process in the place of one that drains."""
        self.assertEqual(self.daemons[turn].terminate(), 0)
        self.assertNotIn("cut off", self.daemons[turn].log())
        self.daemons[turn] = self.boxes[turn].serve(*self.SETTINGS)
        self.daemons[turn].wait_log("ready: ")  # itself: behind one socket the other one may have said so
        self.daemons[turn].disconnect()

    def restart_often(self, restarts, requests, done, running):
        """Spread over the whole run, by how many requests are `done`."""
        for restart in range(restarts):
            due = requests * (restart + 1) // (restarts + 1)
            poll(
                lambda due=due: done() >= due or not running(),
                "%d requests" % due, timeout=60 + requests / 100, interval=0.005,
            )  # fmt: skip
            self.restart(restart % 2)

    def test_behind_pools_of_connections(self):
        """Each client keeps one to either daemon."""
        count, requests = 8, scaled(20000)
        self.start([self.listener(), self.listener()])
        ports = [daemon.port for daemon in self.daemons]
        clients = [Client(ports[n % 2 :] + ports[: n % 2], requests // count) for n in range(count)]
        self.restart_often(
            self.RESTARTS, requests,
            lambda: sum(client.done for client in clients),
            lambda: any(client.thread.is_alive() for client in clients),
        )  # fmt: skip
        for client in clients:
            client.thread.join()
        failures = [failure for client in clients for failure in client.failures]
        self.assertEqual(failures, [])
        ids = [value for client in clients for value in client.ids]
        self.assertEqual(len(ids), requests // count * count)
        self.check_distinct(ids)

    def test_behind_one_socket(self):
        """wrk asks one address, which both daemons serve: the one that accepts a connection has it."""
        first_id = 1000000000
        line_bytes = len("%d\n" % first_id)
        listener = self.listener()
        self.start([listener, listener], first_id)
        restarts = max(self.RESTARTS, ROLLING_REQUESTS // 50000)
        answers = self.box.path("answers")
        with wrk.Wrk(
            self.daemons[0].url + V1 + "pay", 64, 3600, answers=answers, headers=["Accept: text/plain"]
        ) as load:

            def done():
                return load.answered_bytes() // line_bytes

            self.restart_often(restarts, ROLLING_REQUESTS, done, load.running)
            poll(
                lambda: done() >= ROLLING_REQUESTS or not load.running(),
                "the last requests", timeout=60 + ROLLING_REQUESTS / 100,
            )  # fmt: skip
            load.stop()
            result = load.result()
            lines = load.lines()
        self.assertEqual(result.errors, {})
        self.assertEqual([line for line in lines if not line.isdigit()], [])
        self.assertGreaterEqual(len(lines), ROLLING_REQUESTS)
        self.assertEqual(len(lines), result.requests, "answers that were not looked at")
        self.check_distinct([int(line) for line in lines])
        report(
            "%d requests of wrk over %d restarts of two daemons behind one socket, %.0f/s: 0 failed, 0 duplicates",
            len(lines), restarts, result.rate,
        )  # fmt: skip


class Log(LeafTest):
    def serve_into_journal(self, *args):
        """A daemon whose stderr is what $JOURNAL_STREAM names; its lines as they are, once it has ended."""
        reader, writer = os.pipe()
        status = os.fstat(writer)
        env = {"JOURNAL_STREAM": "%d:%d" % (status.st_dev, status.st_ino)}
        process = self.box.popen(["serve", "--listen", "127.0.0.1:0", *args], env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=writer)  # fmt: skip
        os.close(writer)
        lines = []
        with os.fdopen(reader, encoding="utf-8") as stream:
            for line in stream:
                lines.append(line.rstrip("\n"))
                if "ready: " in line and process.poll() is None:
                    process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)
        return lines

    def test_text_for_the_journal(self):
        lines = self.serve_into_journal("--set", "segment.max_tags=1", "--set", "mysql.tls=verify")
        self.assertTrue(any(re.match(r"<6>listening on http://", line) for line in lines), lines)
        ours = [line for line in lines if not line.startswith("leafctl: ")]  # what precedes the log
        for line in ours:
            self.assertRegex(line, r"^<[3-7]>\S")
            self.assertNotRegex(line, r"^<.>\d{4}-")

    def test_json(self):
        lines = self.serve_into_journal("--set", "log.format=json")
        for line in lines:
            entry = json.loads(line)
            self.assertEqual(list(entry), ["time", "level", "message"])

    def test_a_stream_that_is_not_the_journal(self):
        daemon = self.box.serve(env={"JOURNAL_STREAM": "1:2"})
        self.assertRegex(daemon.lines[0], r"^\d{4}-\d\d-\d\dT.*Z info listening")

    def test_no_line_for_a_request(self):
        daemon = self.box.serve("--set", "server.max_tag_requests_per_second=100")
        self.box.ok("tag", "add", "pay")
        daemon.wait_log("ready: ")
        before = len(daemon.lines)
        seen = set()
        for number in range(300):
            seen.add(daemon.leaf("pay").status)
            seen.add(daemon.leaf("unknown%d" % (number % 10)).status)
            seen.add(daemon.get("/nothing").status)
            with daemon.raw() as raw:
                raw.send("garbage\r\n\r\n")
                seen.add(raw.response().status)
        self.assertTrue({200, 400, 404, 500} <= seen, seen)
        self.assertEqual(daemon.lines[before:], [])


class Pause(LeafTest):
    def setUp(self):
        super().setUp()
        self.box.ok("tag", "add", "pay")
        self.box.ok("tag", "add", "order")

    def check_paused(self, daemon):
        error = self.check_v1_error(daemon.v1("pay"), 503, "paused")
        self.assertIn("resume", error["hint"])
        self.check_leaf_error(daemon.leaf("pay"), -3)
        self.check(self.box.run(["next", "pay"]), 11, "paused")
        self.check(self.box.run(["next", "pay", "--direct"]), 11, "paused")
        self.assertEqual(daemon.tag_status("pay")["state"], "paused")
        result = self.box.run(["status"])
        self.assertEqual(result.rc, 10)
        self.assertIn("tag 'pay' is paused on this node", result.out)
        self.assertEqual(daemon.get("/health/ready").status, 200)
        self.assertEqual(daemon.leaf("order").status, 200)

    def test_across_restarts(self):
        daemon = self.box.serve()
        self.assertEqual(daemon.leaf("pay").body, "1")
        self.assertIn("would pause", self.box.run(["tag", "pause", "pay", "--dry-run"]).out)
        self.assertEqual(daemon.leaf("pay").body, "2")
        self.assertIn("paused tag 'pay'", self.box.run(["tag", "pause", "pay"]).out)
        self.check_paused(daemon)
        self.assertEqual(json.loads(self.box.ok("tag", "pause", "pay", "--json"))["changed"], False)
        daemon.kill()
        daemon = self.box.serve()
        self.check_paused(daemon)
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.box.serve()
        self.check_paused(daemon)
        answer = json.loads(self.box.ok("tag", "resume", "pay", "--json"))
        self.assertEqual(answer, {"tag": "pay", "paused": False, "changed": True, "known": True, "dry_run": False})
        self.assertGreater(int(daemon.leaf("pay").body), 2)
        self.assertEqual(self.box.run(["status"]).rc, 0)
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.box.serve()
        poll(lambda: daemon.leaf("pay").status == 200, "the tag goes on after another restart")

    def test_without_the_database(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            endpoint = "127.0.0.1:%d" % closed.getsockname()[1]
        self.box.serve("--set", "segment.store=mysql", "--set", "mysql.endpoints=" + endpoint, ready=False)
        result = self.box.run(["tag", "pause", "any"])
        self.assertEqual(result.rc, 0, result)
        self.assertIn("has no tag 'any'", result.err)
        self.assertEqual(json.loads(self.box.run(["status", "--json"]).out)["segment"]["paused"], ["any"])
        self.assertEqual(self.box.run(["tag", "resume", "any"]).rc, 0)

    def test_not_over_tcp_from_here_either(self):
        """Behind a proxy on this machine every caller is from here; so is a web page that is looked at here."""
        daemon = self.box.serve()
        for path in (V1 + "pay/pause", V1 + "pay/pause;x=1", V1 + "pay%2Fpause", V1 + "pay//pause"):
            self.assertIn(daemon.request("POST", path).status, (400, 403, 404), path)
            self.assertEqual(daemon.leaf("pay").status, 200)
        self.check_v1_error(daemon.request("POST", V1 + "pay/pause"), 403, "permission")
        self.assertEqual(daemon.get(V1 + "pay/pause").status, 405)
        self.check(self.box.run(["tag", "resume", "pay", "--server", "http://127.0.0.1:1"]), 7)
        self.check(self.box.run(["tag", "pause", "pay", "--server", daemon.url]), 4, "lacks role admin", "unix:")
        self.assertEqual(daemon.leaf("pay").status, 200)

    def test_a_tag_that_does_not_exist_is_not_paused(self):
        self.box.serve()
        self.check(self.box.run(["tag", "pause", "pya"]), 9, "unknown tag 'pya'", "did you mean pay?")
        self.check(self.box.run(["tag", "resume", "pya"]), 9, "unknown tag 'pya'")
        self.assertEqual(json.loads(self.box.run(["status", "--json"]).out)["segment"]["paused"], [])

    @in_own_network(ELSEWHERE)
    def test_not_from_another_address(self):
        daemon = self.box.serve("--listen", ELSEWHERE + ":0")
        port = int(daemon.wait_log(r"listening on http://%s:(\d+)" % re.escape(ELSEWHERE)).group(1))
        with RawConnection((ELSEWHERE, port)) as raw:
            self.assertEqual(raw.get(LEAF + "pay").status, 200)
            self.assertEqual(raw.get(V1 + "pay/pause", method="POST").status, 403)
            self.assertEqual(raw.get(LEAF + "pay").status, 200)
        self.check(self.box.run(["tag", "pause", "pay", "--server", "http://%s:%d" % (ELSEWHERE, port)]), 4, "machine")

    def test_a_damaged_list_is_no_list(self):
        self.box.serve().terminate()
        path = os.path.join(self.box.state, "paused-tags")
        with open(path, "w", encoding="utf-8") as file:
            file.write("pay\n")
        daemon = self.box.serve(listening=False)
        self.assertEqual(daemon.wait(), 11)
        self.assertIn("paused-tags", daemon.log())
        os.unlink(path)
        self.box.serve()


class Advise(LeafTest):
    def test_ten_minutes_of_the_peak(self):
        self.box.ok("tag", "add", "pay", "--step", "500")
        daemon = self.box.serve()
        advice = json.loads(self.box.ok("tag", "advise", "pay", "--json"))
        self.assertIsNone(advice["advised_step"])
        self.assertEqual(advice["step"], 500)
        self.check(self.box.run(["tag", "advise", "unknown"]), 9)
        # Two looks at a second and more each, with IDs in both.
        started = time.monotonic()
        taken = 0

        def seen():
            nonlocal taken
            for _ in range(5):
                taken += len(daemon.ids("pay", 20))
            return (daemon.tag_status("pay") or {}).get("peak_rate", 0) > 0

        poll(seen, "a rate is seen", interval=0.1)
        advice = json.loads(self.box.ok("tag", "advise", "pay", "--json"))
        self.assertGreater(advice["peak_rate"], 0)
        self.assertAlmostEqual(advice["advised_step"], 600 * advice["peak_rate"], delta=1.5)
        self.assertLess(advice["peak_rate"], taken / 1.0 + 1, "more than all IDs in one second")
        self.assertGreaterEqual(advice["watched_s"], 1)
        self.assertLess(advice["watched_s"], time.monotonic() - started + 600)
        result = self.box.run(["tag", "advise", "pay"])
        self.assertIn("peak rate:", result.out)
        self.assertIn("hint: leafctl tag set pay --step %d" % advice["advised_step"], result.err)


if __name__ == "__main__":
    main()
