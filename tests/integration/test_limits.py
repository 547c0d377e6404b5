#!/usr/bin/env python3
"""A daemon that protects itself: limits on requests, connections and bytes, and clients that mean no good.

Environment, beside that of leafctl.py:
  LEAFCTL_ABUSE_S       seconds of mixed abuse (default 30, less under sanitizers)
  LEAFCTL_ABUSE_IDLE    connections that are idle meanwhile (default 200)
  LEAFCTL_ABUSE_DEAF    connections that ask for large batches and read nothing (default 900, less under sanitizers)
  LEAFCTL_CROWD_IDLE    connections in the crowd that are idle (default 10000, less under sanitizers)
  LEAFCTL_CROWD_SLOW    connections in the crowd that send a byte a second (default 200, less under sanitizers)
  LEAFCTL_COST_ROUNDS   pairs of runs whose medians are compared; without it, one, and no word on what is quicker
  LEAFCTL_COST_RUN_S    seconds of each such run (default 5; 1 without rounds)
  LEAFCTL_PRESSURE_JUDGE  0: print what was measured, but do not judge it
"""

import contextlib
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import crowd  # noqa: E402
import explain  # noqa: E402
import load  # noqa: E402
import metrics  # noqa: E402
import wrk  # noqa: E402
from leafctl import SCALE, LeafTest, RawConnection, main, poll, scaled  # noqa: E402

LEAF = "/api/segment/get/"
V1 = "/v1/segment/"
ABUSE_S = float(os.environ.get("LEAFCTL_ABUSE_S") or scaled(10, 4))
ABUSE_IDLE = int(os.environ.get("LEAFCTL_ABUSE_IDLE") or 200)
ABUSE_DEAF = int(os.environ.get("LEAFCTL_ABUSE_DEAF") or scaled(900, 50))
CROWD_IDLE = int(os.environ.get("LEAFCTL_CROWD_IDLE") or scaled(10000))
CROWD_SLOW = int(os.environ.get("LEAFCTL_CROWD_SLOW") or scaled(200))
COST_ROUNDS = int(os.environ.get("LEAFCTL_COST_ROUNDS") or 0)
COST_RUN_S = int(os.environ.get("LEAFCTL_COST_RUN_S") or (5 if COST_ROUNDS else 1))
JUDGE_SPEED = COST_ROUNDS > 0 and os.environ.get("LEAFCTL_PRESSURE_JUDGE") != "0"
# Sanitizers keep what was freed.
JUDGE_MEMORY = SCALE >= 1
MIB = 1024 * 1024


def setUpModule():
    load.raise_open_files(max(ABUSE_IDLE + ABUSE_DEAF, CROWD_IDLE + CROWD_SLOW) + 2000)


def report(text, *values):
    print("limits: " + text % values, flush=True)


def open_connections(daemon):
    count = metrics.of(daemon).get("leaf_http_connections")
    daemon.disconnect()
    return count


def get(target):
    return ("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target).encode()


CHUNKED = b"POST /v1/segment/pay HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def resident_bytes(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Requests(LeafTest):
    def check_limited(self, response):
        self.assertEqual(response.status, 429, response.body)
        self.assertRegex(response.headers["Retry-After"], r"^\d+$")

    def until_limited(self, daemon, path, most):
        """Answers before the first 429, which is checked."""
        for number in range(most):
            response = daemon.get(path)
            if response.status != 200:
                self.check_limited(response)
                return number, response
        self.fail("%d requests, and no limit" % most)

    def test_of_one_tag(self):
        # So slow that no token comes back while this runs.
        daemon = self.box.serve("--set", "server.max_tag_requests_per_second=1")
        for tag in ("pay", "order"):
            self.box.ok("tag", "add", tag)
        for path in (V1 + "pay", LEAF + "order"):
            _, response = self.until_limited(daemon, path, 1000)
            error = json.loads(response.body)
            if path.startswith(V1):
                self.assertEqual(error["code"], "limited")
                self.assertIn("pay", error["message"])
            else:
                self.assertEqual(error["status"], 429)

        def one_tag_is_free():
            result = self.box.run(["next", "pay", "--server", daemon.url])
            if result.rc == 8:
                self.assertIn("too many requests", result.err)
            return result.rc == 0

        poll(one_tag_is_free, "the tag is served again")

    def test_over_all_on_every_route(self):
        daemon = self.box.serve("--set", "server.max_requests_per_second=1")
        self.box.ok("tag", "add", "pay")
        for path in (
            V1 + "pay",
            LEAF + "pay",
            LEAF + "unknown",
            "/v1/snowflake",
            "/api/snowflake/get/x",
            "/v1/decode/1",
            "/decodeSnowflakeId?snowflakeId=1",
        ):
            for _ in range(1000):
                response = daemon.get(path)
                if response.status == 429:
                    break
            self.check_limited(response)
            # Operators and monitoring get through.
            for route in ("/health/live", "/health/ready", "/v1/status", "/v1/clock"):
                self.assertEqual(daemon.get(route).status, 200)

    def test_one_hammered_tag_leaves_the_others_their_share(self):
        limit = 200
        daemon = self.box.serve("--set", "server.max_requests_per_second=%d" % limit)
        for tag in ("hot", "calm"):
            self.box.ok("tag", "add", tag, "--step", "1000000")
        stop = threading.Event()
        answers = []

        def hammer():
            counts = {200: 0, 429: 0}
            with daemon.raw() as raw:
                while not stop.is_set():
                    raw.send(("GET %shot HTTP/1.1\r\nHost: localhost\r\n\r\n" % LEAF) * 20)
                    for _ in range(20):
                        counts[raw.response().status] += 1
            answers.append(counts)

        started = time.monotonic()
        hammers = [threading.Thread(target=hammer) for _ in range(3)]
        for thread in hammers:
            thread.start()
        try:
            poll(lambda: daemon.get(LEAF + "hot").status == 429, "the limit is reached")
            # A tenth of the limit and less: far below half of it, its part.
            for _ in range(scaled(60, 20)):
                self.assertEqual(daemon.get(LEAF + "calm").status, 200)
                time.sleep(0.05)
        finally:
            stop.set()
            for thread in hammers:
                thread.join()
        elapsed = time.monotonic() - started
        self.assertEqual(len(answers), 3)
        admitted = sum(counts[200] for counts in answers)
        self.assertGreater(sum(counts[429] for counts in answers), 0)
        self.assertLessEqual(admitted, limit * (elapsed + 2) + 1)

    def test_a_large_limit_is_none(self):
        daemon = self.box.serve(
            "--set", "server.max_requests_per_second=1000000000", "--set", "server.max_tag_requests_per_second=100000000"
        )
        self.box.ok("tag", "add", "pay")
        for _ in range(scaled(500)):
            self.assertEqual(daemon.get(LEAF + "pay").status, 200)


class Connections(LeafTest):
    def test_one_too_many_is_told(self):
        daemon = self.box.serve("--set", "server.max_connections=3")
        daemon.disconnect()
        with contextlib.ExitStack() as stack:

            def take():
                raw = daemon.raw()
                response = raw.get("/v1/clock")
                if response is None or response.status != 200:
                    raw.close()
                    return None
                return stack.enter_context(raw)

            held = [poll(take, "connection %d" % number) for number in range(3)]
            for _ in range(10):
                with daemon.raw() as surplus:
                    response = surplus.get("/v1/clock")
                    self.assertIsNotNone(response, "closed without a word")
                    self.assertEqual(response.status, 503)
                    self.assertRegex(response.headers["retry-after"], r"^\d+$")
                    self.assertEqual(response.headers["connection"], "close")
                    self.assertTrue(surplus.at_end())
            for raw in held:
                self.assertEqual(raw.get("/v1/clock").status, 200)
            held[0].close()
            stack.enter_context(poll(take, "a connection after one was given back"))

    def test_many_too_many_take_nothing_up(self):
        daemon = self.box.serve("--set", "server.max_connections=2")
        daemon.disconnect()
        surplus = []
        try:
            for _ in range(400):
                surplus.append(daemon.raw())
            # Each is closed: at once, or when it has not asked for long. Which two are kept is the daemon's matter.
            poll(lambda: sum(not self.is_closed(raw) for raw in surplus) <= 2, "those beyond the limit are closed")
        finally:
            for raw in surplus:
                raw.close()
        poll(lambda: self.served(daemon), "the daemon is free again")

    @staticmethod
    def is_closed(raw):
        raw.socket.setblocking(False)
        try:
            return raw.socket.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def served(self, daemon):
        with daemon.raw() as raw:
            try:
                response = raw.get("/v1/clock")
            except ConnectionError:
                return False
            return response is not None and response.status == 200

    def test_silent_connections_lock_no_operator_out(self):
        daemon = self.box.serve("--set", "server.max_connections=8")
        daemon.disconnect()
        path = os.path.join(self.box.state, "leafctl.sock")
        with contextlib.ExitStack() as stack:

            def all_places_are_taken():
                # More than eight may be needed: the daemon gives the last connection's place back in its own time.
                stack.enter_context(daemon.raw())
                return self.refused(daemon)

            poll(all_places_are_taken, "all places are taken")
            # The operator's commands and monitoring get through.
            self.assertIn('"version"', self.box.ok("status", "--json", "--server", "unix:" + path))
            for target in ("/health/live", "/health/ready", "/metrics"):
                response = poll(lambda target=target: self.ask(daemon, target), target + " is answered")
                self.assertEqual((response.status, response.headers["connection"]), (200, "close"), target)
            with RawConnection(path) as operator:
                metrics_now = operator.get("/metrics").body
        found = re.search(r"^leaf_http_connections_refused_total (\d+)$", metrics_now, re.M)
        self.assertGreaterEqual(int(found.group(1)), 4)
        # A line for the first of them, and another one a minute later at the earliest.
        self.assertEqual(daemon.log().count("over server.max_connections"), 1, daemon.log())
        self.assertIn("1 connection over server.max_connections", daemon.log())
        poll(lambda: not self.refused(daemon), "there are places again")
        self.assertEqual(daemon.terminate(), 0)

    def test_a_flood_beyond_the_limit_keeps_no_watcher_out(self):
        """However many there are: of those that ask nothing, and of those that stay after their answer."""
        daemon = self.box.serve("--set", "server.max_connections=8")
        daemon.disconnect()

        def all_are_answered(flood):
            with contextlib.ExitStack() as stack:
                for _ in range(300):
                    raw = stack.enter_context(daemon.raw())
                    with contextlib.suppress(ConnectionError):
                        raw.send(flood)
                found = [self.ask(daemon, target) for target in ("/health/live", "/health/ready", "/metrics")]
            return [response and response.status for response in found] == [200] * 3

        for flood in ("", "GET /v1/clock HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            # A busy machine may keep this process from asking for longer than such a connection has.
            self.assertTrue(any(all_are_answered(flood) for _ in range(5)), "flood of %r" % flood)

    def test_a_connection_that_asks_nothing_is_closed(self):
        """It has no more time than one that asks slowly."""
        daemon = self.box.serve("--set", "server.header_timeout=500ms", "--set", "server.idle_timeout=1h")
        with daemon.raw() as raw, RawConnection(os.path.join(self.box.state, "leafctl.sock")) as local:
            self.assertTrue(raw.at_end())
            self.assertTrue(local.at_end())

    def ask(self, daemon, target):
        """The answer to a connection's only request; nothing if it was closed before it was asked."""
        with daemon.raw() as raw:
            try:
                return raw.get(target)
            except ConnectionError:
                return None

    def refused(self, daemon):
        response = self.ask(daemon, "/v1/clock")
        return response is not None and response.status == 503

    def test_one_address_has_so_many(self):
        daemon = self.box.serve("--set", "server.max_connections_per_address=2")
        daemon.disconnect()

        def connect(source):
            raw = daemon.raw(source=source)
            response = raw.get("/v1/clock")
            if response is not None and response.status == 503:
                self.assertIn("this address has too many connections", response.body)
            if response is None or response.status != 200:
                raw.close()
                return None
            return stack.enter_context(raw)

        with contextlib.ExitStack() as stack:
            held = [poll(lambda: connect("127.0.0.1"), "a connection") for _ in range(2)]
            for _ in range(20):
                self.assertIsNone(connect("127.0.0.1"))
            for _ in range(2):
                self.assertIsNotNone(connect("127.0.0.2"), "another address has places of its own")
            self.assertIsNone(connect("127.0.0.2"))
            # The Unix socket has no addresses.
            self.box.ok("status", "--server", "unix:" + os.path.join(self.box.state, "leafctl.sock"))
            held[0].close()
            poll(lambda: connect("127.0.0.1"), "the place that was given back")


class Slow(LeafTest):
    def test_a_client_that_trickles_is_told(self):
        daemon = self.box.serve("--set", "server.header_timeout=300ms")
        for start in (
            "GET /health/live HTTP/1.1\r\nHo",
            "GET /health/li",
            "POST /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
            "POST /health/live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        ):

            def told(start=start):
                with daemon.raw() as raw:
                    with contextlib.suppress(ConnectionError):
                        raw.send(start)
                    response = raw.response()
                    if response is None:
                        return False  # what was sent came after the time-out: nothing had begun
                    self.assertEqual(response.status, 408)
                    self.assertEqual(response.headers["connection"], "close")
                    return raw.at_end()

            poll(told, "it is told: " + start)
        with daemon.raw() as raw:  # a byte at a time, for ever
            stop = threading.Event()

            def drip():
                with contextlib.suppress(OSError):
                    raw.send("GET /health/live HTTP/1.1\r\nX: ")
                    while not stop.wait(0.02):
                        raw.send("a")

            dripper = threading.Thread(target=drip)
            dripper.start()
            try:
                response = raw.response()
                self.assertEqual(response.status, 408)
            finally:
                stop.set()
                dripper.join()
        with daemon.raw() as raw:  # the second request of a connection, too
            self.assertEqual(raw.get("/health/live").status, 200)
            raw.send("GET /health/live")
            self.assertEqual(raw.response().status, 408)
        self.assertEqual(daemon.get("/health/live").status, 200)

    def test_answers_that_are_not_read_are_bounded(self):
        """Each has 2.3 MB, or is as long as it likes: what waits is ranges, until a client takes a piece."""
        daemon = self.box.serve("--set", "server.header_timeout=10m", "--set", "server.threads=1")
        self.box.ok("tag", "add", "pay", "--step", "1000000")
        before = resident_bytes(daemon.process.pid)
        count = 300 if SCALE >= 1 else 30
        with contextlib.ExitStack() as stack:
            for number in range(count):
                raw = stack.enter_context(contextlib.closing(self.slow_reader(daemon)))
                raw.send(get(V1 + "pay?count=100000") * 3)
                if number % 10 == 0:
                    self.assertEqual(daemon.get(LEAF + "pay").status, 200)
            poll(
                lambda: daemon.tag_status("pay")["issued"] >= 100000 * count, "all of them are being answered", 240
            )
            for _ in range(20):
                self.assertEqual(daemon.get(LEAF + "pay").status, 200)
            held = resident_bytes(daemon.process.pid) - before
            report("%d unread answers of 2.3 MB: %d MiB held", count, held // MIB)
            if JUDGE_MEMORY:
                self.assertLess(held, 60 * MIB)
            self.assertEqual(daemon.v1("pay", 100000).status, 200)
        poll(lambda: open_connections(daemon) <= 1, "their connections are gone")

    def test_one_answer_is_sent_beside_others(self):
        """One loop serves all: a client that asks for one ID has it long before a batch of millions has been read."""
        daemon = self.box.serve("--set", "server.threads=1", "--set", "server.max_count=100000000")
        self.box.ok("tag", "add", "huge", "--step", "100000000", "--start", "1000000000")
        self.box.ok("tag", "add", "pay")
        count = scaled(10_000_000)
        before = resident_bytes(daemon.process.pid)
        read = [0]
        with daemon.raw() as raw:
            raw.send(get(V1 + "huge?count=%d" % count))
            head = raw.head()
            size = int(head.headers["content-length"])
            self.assertEqual(size, len('{"ids":[]}') + 13 * count - 1)  # ten digits, quotes, comma

            def read_all():
                tail = b""
                while read[0] + len(raw.buffer) < size:
                    # A busy machine may run this thread alone for long: the end is left until one was answered.
                    if read[0] >= size * 8 // 10:
                        one_was_answered.wait()
                    data = raw.socket.recv(1 << 20)
                    if not data:
                        return
                    read[0] += len(data)
                    tail = (tail + data)[-30:]
                ends.append(tail)

            ends = []
            answered = 0
            one_was_answered = threading.Event()
            reader = threading.Thread(target=read_all)
            reader.start()
            try:
                while read[0] < size * 9 // 10 and reader.is_alive():
                    self.assertEqual(daemon.get(LEAF + "pay").status, 200)
                    answered += read[0] < size * 9 // 10
                    one_was_answered.set()
                    if JUDGE_MEMORY and answered % 20 == 0:
                        self.assertLess(resident_bytes(daemon.process.pid) - before, 30 * MIB)
            finally:
                one_was_answered.set()
                reader.join()
            self.assertGreater(answered, 0)
            self.assertTrue(ends and ends[0].endswith(b',"%d"]}' % (10**9 + count - 1)), ends)
            report("%d requests beside a batch of %d IDs on one loop", answered, count)
            self.assertEqual(raw.get(LEAF + "pay").status, 200, "the connection goes on")

    def test_the_kernel_keeps_little_for_a_client_that_does_not_read(self):
        """Small answers, too: those that one connection may have waiting are a few hundred, not many thousands."""
        daemon = self.box.serve("--set", "server.header_timeout=2s")
        self.box.ok("tag", "add", "pay", "--step", "1000000")
        with contextlib.closing(self.slow_reader(daemon)) as raw:

            def ask():
                with contextlib.suppress(OSError):
                    raw.send(get(LEAF + "pay") * 40000)

            asker = threading.Thread(target=ask)
            asker.start()
            ended = select.poll()
            ended.register(raw.socket, select.POLLRDHUP)
            self.assertTrue(ended.poll(240_000), "it is closed, having read nothing for header_timeout")
            asker.join()
        issued = daemon.tag_status("pay")["issued"]
        self.assertGreater(issued, 10)
        self.assertLess(issued, 4000)

    def test_a_client_that_reads_slowly_is_not_cut(self):
        """Not even if the kernel's room for its answer does not change within header_timeout."""
        header_timeout_s = 3
        daemon = self.box.serve(
            "--set", "server.header_timeout=%ds" % header_timeout_s, "--set", "server.max_count=1000000"
        )
        self.box.ok("tag", "add", "pay", "--step", "10000000")
        daemon.disconnect()

        def read_slowly():
            """False if it was cut: on a bad machine it may itself have been away for so long."""
            with contextlib.closing(self.slow_reader(daemon)) as raw:
                raw.send(get(V1 + "pay?count=1000000"))
                began = time.monotonic()
                with contextlib.suppress(ConnectionError):
                    while raw.socket.recv(100):
                        if time.monotonic() - began > 2.5 * header_timeout_s:
                            # What a closed connection left in the kernel would still come.
                            return open_connections(daemon) == 2
                        time.sleep(0.05)
                return False

        poll(read_slowly, "an answer goes on for longer than header_timeout")

    def test_a_half_read_batch_ends_well(self):
        """While the daemon is drained, in HTTP/1.0, without a body, and where the client hangs up."""
        daemon = self.box.serve("--set", "server.max_count=10000000", "--set", "server.drain_timeout=10m")
        self.box.ok("tag", "add", "huge", "--step", "100000000")
        count = scaled(2_000_000)
        target = V1 + "huge?count=%d" % count
        for _ in range(5):
            with daemon.raw() as raw:
                raw.send(get(target))
                self.assertEqual(raw.head().status, 200)
        poll(lambda: open_connections(daemon) <= 1, "those that hung up are forgotten")
        with daemon.raw() as raw:
            raw.send("GET %s HTTP/1.0\r\n\r\n" % target)
            self.assertEqual(len(json.loads(raw.response().body)["ids"]), count)
            self.assertTrue(raw.at_end())
        with daemon.raw() as raw:
            # Nothing is taken, so the length of its answer is not known.
            self.assertEqual(raw.get(target, method="HEAD").body, "")
            self.assertEqual(raw.get(LEAF + "huge").status, 200)
            status = raw.get("/v1/status?pad=" + "x" * 8000, method="HEAD")
            self.assertEqual(raw.get(LEAF + "huge").status, 200)
            self.assertGreater(int(status.headers["content-length"]), 0)
        with daemon.raw() as raw:
            raw.send(get(target) + get(LEAF + "huge"))
            head = raw.head()
            daemon.signal(signal.SIGTERM)
            poll(lambda: "draining" in daemon.log(), "it is being drained")
            size = int(head.headers["content-length"])
            ids = json.loads(raw.body(size))["ids"]
            first = int(ids[0])
            self.assertEqual(ids, [str(number) for number in range(first, first + count)])
            # What was asked behind it is answered, too.
            self.assertEqual(raw.response().status, 200)
            self.assertTrue(raw.at_end())
        self.assertEqual(daemon.wait(), 0)

    @staticmethod
    def slow_reader(daemon):
        raw = RawConnection.__new__(RawConnection)
        raw.socket = crowd.connect_deaf(daemon.port)
        raw.buffer = b""
        return raw


class Sizes(LeafTest):
    def test_what_is_too_large_is_told(self):
        daemon = self.box.serve()
        self.box.ok("tag", "add", "pay", "--start", "1")
        for request, status in (
            ("GET %spay HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n" % V1, 413),
            ("GET %spay HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n" % V1, 400),
            ("POST %spay HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n" % V1, 400),
            ("GET %spay HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (V1, "X: %s\r\n" % ("y" * 2000000)), 431),
            ("GET %spay HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (V1, "X: y\r\n" * 300000), 431),
            ("GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % ("p" * 2000000), 431),
            (
                "POST %spay HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%s"
                % (V1, ("10000\r\n" + "z" * 65536 + "\r\n") * 20),
                413,
            ),
        ):
            with daemon.raw() as raw:
                with contextlib.suppress(ConnectionError):  # it need not read to the end
                    raw.send(request)
                response = raw.response()
                self.assertIsNotNone(response, request[:60])
                self.assertEqual(response.status, status, request[:60])
                self.assertTrue(raw.at_end())
        # None of these took an ID; a body on GET that is not too large is read, and means nothing.
        with daemon.raw() as raw:
            raw.send("GET %spay HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n%s" % (LEAF, "b" * 60000))
            self.assertEqual(raw.response().body, "1")
            self.assertEqual(raw.get(LEAF + "pay").body, "2")


class Cost(LeafTest):
    """What busy clients have of a daemon, and what it takes for it, without something and with it in turn."""

    BUSY = 64

    def start(self, *args):
        daemon = self.box.serve(*args)
        self.assertEqual(daemon.leaf("busy").status, 200)  # the first grant is not what is measured
        daemon.disconnect()
        return daemon

    def busy(self, daemon):
        """A run of the busy ones: its rate, and microseconds of processor time of the daemon for each request."""

        def run():
            before = wrk.cpu_s(daemon.process.pid)
            result = wrk.run(daemon.url + LEAF + "busy", self.BUSY, COST_RUN_S)
            self.assertEqual(result.errors, {})
            # On a loaded machine no request may be answered in one second.
            return result.requests and (result.rate, (wrk.cpu_s(daemon.process.pid) - before) * 1e6 / result.requests)

        return poll(run, "the busy ones are answered")

    def compare(self, what, without, with_it):
        """Ratios of the medians of `with_it` to those of `without`: of the rates, and of the processor times."""
        runs = ([], [])
        for number in range(2 * max(1, COST_ROUNDS)):
            # One goes first as often as the other.
            which = (number + number // 2) % 2
            runs[which].append((without, with_it)[which]())
        (rate, cpu_us), (rate_with, cpu_us_with) = [
            [statistics.median(values) for values in zip(*results)] for results in runs
        ]
        report(
            "%s: %.0f and %.0f requests/s (%.3f), %.2f and %.2f us of processor time each (%.3f), %d + %d runs of %d s",
            what, rate, rate_with, rate_with / rate, cpu_us, cpu_us_with, cpu_us_with / cpu_us,
            len(runs[0]), len(runs[1]), COST_RUN_S,
        )  # fmt: skip
        return rate_with / rate, cpu_us_with / cpu_us

    def provision(self):
        for tag in ("pay", "busy"):
            self.box.ok("tag", "add", tag, "--step", "1000000")

    def test_of_a_crowd(self):
        """Thousands that are idle and hundreds that are slow take nothing from the busy ones."""
        self.provision()
        daemon = self.start("--set", "server.header_timeout=%s" % ("10s" if COST_ROUNDS else "2s"))
        answered = {}

        def in_the_crowd():
            with crowd.Process(daemon.port, CROWD_IDLE, CROWD_SLOW) as people:
                result = self.busy(daemon)
                poll(lambda: people.told() >= CROWD_SLOW, "each of the slow ones is told, or some twice")
                seen = people.leave()
                self.assertEqual(seen["open"], CROWD_IDLE, seen)
                self.assertIsNone(seen["closed_after_s"], seen)
                self.assertEqual(seen["unanswered"], 0, seen)
                self.assertLessEqual(set(seen["answered"]), {"408"}, seen)
                for status, count in seen["answered"].items():
                    answered[status] = answered.get(status, 0) + count
            return result

        rate, _ = self.compare(
            "%d idle and %d slow connections beside %d busy ones" % (CROWD_IDLE, CROWD_SLOW, self.BUSY),
            lambda: self.busy(daemon), in_the_crowd,
        )  # fmt: skip
        self.assertGreater(sum(answered.values()), 0)
        if JUDGE_SPEED:
            self.assertGreaterEqual(rate, 0.9)
        self.assertEqual(daemon.terminate(), 0)

    def test_of_limits_that_are_never_met(self):
        self.provision()
        without = self.start()
        with_limits = self.start(
            "--state-dir", self.box.path("limited"),
            "--set", "sqlite.path=" + os.path.join(self.box.state, "leaf.db"),
            "--set", "server.max_requests_per_second=100000000",
            "--set", "server.max_tag_requests_per_second=100000000",
        )  # fmt: skip
        self.compare("limits that are never met", lambda: self.busy(without), lambda: self.busy(with_limits))

    def test_of_metrics(self):
        self.provision()
        daemon = self.start()

        def scraped():
            stop = threading.Event()
            scrapes = []

            def scrape():
                while not stop.is_set():
                    scrapes.append(daemon.get("/metrics").status)
                    stop.wait(1)
                daemon.disconnect()

            thread = threading.Thread(target=scrape)
            thread.start()
            try:
                return self.busy(daemon)
            finally:
                stop.set()
                thread.join()
                self.assertEqual(set(scrapes), {200})

        self.compare("metrics that are read once a second", lambda: self.busy(daemon), scraped)


class Idle(LeafTest):
    # Of one processor, beyond what it takes without them. To look at each of ten thousand connections four times a
    # second takes more.
    REST_SHARE = 0.005 if SCALE >= 1 else 0.02

    def test_ten_thousand_at_rest_take_nothing(self):
        daemon = self.box.serve()
        daemon.disconnect()
        pid = daemon.process.pid
        alone = wrk.cpu_share(pid, 3)
        with crowd.Process(daemon.port, CROWD_IDLE) as people:
            shares = []

            def rests():
                # Other processes on this machine make it dearer, but not for ever.
                shares.append(wrk.cpu_share(pid, 3))
                return shares[-1] < alone + self.REST_SHARE

            poll(rests, "%d idle connections take next to nothing" % CROWD_IDLE)
            report("%d idle connections: %.4f of a processor, %.4f without them", CROWD_IDLE, shares[-1], alone)
            self.assertEqual(people.leave()["open"], CROWD_IDLE)
        self.assertEqual(daemon.terminate(), 0)

    def test_the_memory_of_a_crowd_is_given_back(self):
        """Whether its clients leave together, or some stay on for a while."""
        daemon = self.box.serve("--set", "server.header_timeout=10m")
        daemon.disconnect()
        before = resident_bytes(daemon.process.pid)
        count = scaled(4000, 100)
        # A small part of what a connection takes up is kept for the next one, and keeps a page of memory at most.
        kept = count * os.sysconf("SC_PAGE_SIZE") + 6 * MIB
        for stay in (0, count // 8, count // 10):
            with contextlib.ExitStack() as staying, contextlib.ExitStack() as leaving:
                for number in range(count):
                    stack = staying if number % (count // max(stay, 1)) == 1 else leaving
                    raw = stack.enter_context(daemon.raw())
                    raw.send("GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 14000)
                if JUDGE_MEMORY:
                    poll(lambda: resident_bytes(daemon.process.pid) > before + 50 * MIB, "they take up memory")
                leaving.close()
                poll(lambda at_most=stay + 2: open_connections(daemon) <= at_most, "all but %d have gone" % stay)
                time.sleep(1)  # the daemon gives back what it can meanwhile
            poll(lambda: open_connections(daemon) <= 1, "all have gone")
            if JUDGE_MEMORY:
                poll(lambda: resident_bytes(daemon.process.pid) < before + kept, "it is given back")

    def test_none_is_closed_before_its_time_nor_kept_for_long(self):
        daemon = self.box.serve("--set", "server.idle_timeout=3s")
        daemon.disconnect()
        count = scaled(500, 100)
        with crowd.Process(daemon.port, count) as people:
            poll(lambda: open_connections(daemon) <= 1, "idle connections are closed")
            seen = people.leave()
        self.assertEqual(seen["open"], 0, seen)
        self.assertGreaterEqual(seen["closed_after_s"], 3)


class Abuse(LeafTest):
    """Everything at once, while a client that behaves goes on being served."""

    # What is sent, and the statuses of the answers, in order. A client that sends no valid request gets a 4xx and is
    # cut off, which REFUSED stands for.
    REFUSED = "refused"
    HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n"
    REQUESTS = (
        (HELLO, 400, REFUSED),
        (b"GET / HTTP/9.9\r\n\r\n", 400, REFUSED),
        (b"GET\x00/ HTTP/1.1\r\n\r\n", 400, REFUSED),
        (b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 5000 + b"\r\n", 431, REFUSED),
        (b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 2000000 + b"\r\n\r\n", 431, REFUSED),
        (b"GET /" + b"p" * 2000000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431, REFUSED),
        (b"POST /v1/segment/pay HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400, REFUSED),
        (b"POST /v1/segment/pay HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, REFUSED),
        (b"POST /v1/segment/pay HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n", 413, REFUSED),
        (CHUNKED + b"ffffffffffffffff\r\n", 413, REFUSED),
        (CHUNKED + b"fffffffffffffffffffff\r\n", 400, REFUSED),
        (CHUNKED + b"xyz\r\n", 400, REFUSED),
        (CHUNKED + (b"10000\r\n" + b"z" * 65536 + b"\r\n") * 5, 413, REFUSED),
        (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", 200),
        (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n" + CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\nT: x\r\n\r\n", 200, 200),
        (b"GET /v1/segment/pay HTTP/1.0\r\n\r\n", 200, REFUSED),
        (b"GET /api/segment/get/unknown HTTP/1.0\r\n\r\n", 500, REFUSED),
        (b"GET /v1/segment/pay HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2, 200, 200),
        (get(V1 + "pay") * 50, *[200] * 50),
        (get(V1 + "pay") + get(V1 + "pay?count=-1") + get("/nothing") + get(LEAF + "pay"), 200, 400, 404, 200),
        (get(V1 + "pay?count=0"), 400),
        (get(V1 + "pay?count=1000000000"), 413),
        (get(V1 + "pay?count=1e9"), 400),
        (get(V1 + "pay?count=99999999999999999999"), 400),
        (get(V1 + "%00"), 400),
        (get(V1 + "pay%00"), 400),
        (get("/api/segment/get/pay%00"), 400),
        (get(V1 + "%ff" * 300), 400),
        (get(V1 + "%zz"), 400),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"BREW /v1/segment/pay HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    )

    @classmethod
    def ask(cls, raw, request):
        """Sends one of REQUESTS; what came of it in the same form."""
        with contextlib.suppress(ConnectionError):  # it need not read to the end
            raw.send(request[0])
        seen = []
        for expected in request[1:]:
            if expected == cls.REFUSED:
                seen.append(cls.REFUSED if raw.at_end() else "not closed")
            else:
                response = raw.response()
                seen.append(response.status if response else "closed")
        return seen

    @classmethod
    def abuse(cls, port, seed, seconds):
        """Connections of one abuser, one after the other, some of them kept open; what it saw."""
        dice = explain.dice("abuser %s" % seed)
        kept = []
        connections = 0
        wrong = []
        end = time.monotonic() + seconds

        def keep(raw):
            kept.append(raw)
            if len(kept) > 20:
                kept.pop(0).close()

        def one(act):
            nonlocal connections
            raw = RawConnection(("127.0.0.1", port))
            connections += 1
            try:
                if isinstance(act, tuple):
                    seen = cls.ask(raw, act)
                    if seen != list(act[1:]):
                        wrong.append([repr(act[0][:80]), list(act[1:]), seen])
                elif act == "noise":
                    raw.send(dice.randbytes(dice.randrange(1, 4000)))
                elif act == "half":  # a request that goes no further, for as long as the daemon will have it
                    raw.send(b"GET /v1/segment/pay HTTP/1.1\r\nX: " + b"y" * dice.randrange(4000))
                    return keep(raw)
                elif act == "deaf":  # asks for much, and reads nothing
                    raw.send(get(V1 + "big?count=20000") * dice.randrange(1, 5))
                    return keep(raw)
                elif act == "gone":  # asks, and does not wait for the answers
                    raw.send(get(V1 + "pay") * 50)
            except OSError as error:
                if isinstance(act, tuple):
                    wrong.append([repr(act[0][:80]), list(act[1:]), repr(error)])
            raw.close()
            return None

        while not connections or time.monotonic() < end:
            acts = [*cls.REQUESTS, *["noise", "half", "deaf", "gone"] * 6]
            dice.shuffle(acts)
            for act in acts:
                one(act)
        for raw in kept:
            raw.close()
        return {"connections": connections, "wrong": wrong[:20]}

    def test_a_client_that_behaves_is_served(self):
        # The idle ones are to stay until the end.
        idle_timeout = "server.idle_timeout=%ds" % (2 * ABUSE_S + 600)
        daemon = self.box.serve(
            "--set", "server.header_timeout=2s", "--set", "server.request_timeout=20s", "--set", idle_timeout
        )
        for tag in ("pay", "big", "good"):
            self.box.ok("tag", "add", tag, "--step", "1000000")
        sizes = []
        last = 0
        # Of the good client's requests, in microseconds: without those that do not read, and beside them.
        took_us = ([], [])
        with contextlib.ExitStack() as stack:
            people = stack.enter_context(crowd.Process(daemon.port, ABUSE_IDLE, max(1, ABUSE_IDLE // 50)))
            abusers = []
            for seed in range(4):
                explain.dice("abuser %s" % seed)  # told if the test fails
                arguments = ["--abuse", str(daemon.port), str(seed), str(ABUSE_S)]
                command = [sys.executable, os.path.abspath(__file__), *arguments]
                abuser = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                stack.callback(abuser.stdout.close)
                stack.callback(abuser.wait)
                stack.callback(abuser.kill)
                abusers.append(abuser)
            started = time.monotonic()
            deaf = None
            while any(abuser.poll() is None for abuser in abusers):
                if not deaf and time.monotonic() - started > ABUSE_S / 2:
                    deaf = stack.enter_context(crowd.Process(daemon.port, 0, deaf=ABUSE_DEAF))
                asked = time.monotonic()
                response = daemon.get(LEAF + "good")
                took_us[deaf is not None].append((time.monotonic() - asked) * 1e6)
                self.assertEqual(response.status, 200, response.body)
                self.assertGreater(int(response.body), last)
                last = int(response.body)
                self.assertLess(asked - started, ABUSE_S + 300, "the abusers come to no end")
                if asked - started > len(sizes) * ABUSE_S / 30:
                    sizes.append(resident_bytes(daemon.process.pid))
                    self.assertEqual(daemon.get("/health/ready").status, 200)
                time.sleep(0.002)
            seen = [json.loads(abuser.communicate()[0]) for abuser in abusers]
            crowd_seen = people.leave()
            dropped = deaf.leave()["dropped"] if deaf else 0
        poll(lambda: open_connections(daemon) <= 1, "all that was taken up is given back")
        if JUDGE_MEMORY:
            poll(lambda: resident_bytes(daemon.process.pid) < 60 * MIB, "memory is given back, too")
        sizes.append(resident_bytes(daemon.process.pid))
        report(
            "%.0f s of abuse by %d connections, %d idle, slow ones told %d times: "
            "%d requests of the good client served, the longest took %.0f ms; "
            "%d MiB resident after a fifth of it, %d at the end, %d at most",
            ABUSE_S, sum(one["connections"] for one in seen), ABUSE_IDLE, sum(crowd_seen["answered"].values()),
            sum(map(len, took_us)), max(map(max, filter(None, took_us))) / 1000,
            sizes[len(sizes) // 5] // MIB, sizes[-1] // MIB, max(sizes) // MIB,
        )  # fmt: skip
        p99_ms, p99_beside_ms = (load.percentile(sorted(times) or [0], 0.99) / 1000 for times in took_us)
        report(
            "%d that do not read, and %d after those that were cut off: p99 of the good client %.2f ms, %.2f without them",
            ABUSE_DEAF, dropped, p99_beside_ms, p99_ms,
        )  # fmt: skip
        self.assertEqual([wrong for one in seen for wrong in one["wrong"]], [])
        self.assertEqual(crowd_seen["open"], ABUSE_IDLE, crowd_seen)
        self.assertEqual(set(crowd_seen["answered"]), {"408"}, crowd_seen)
        self.assertEqual(crowd_seen["unanswered"], 0, crowd_seen)
        if JUDGE_MEMORY:
            # What the heaviest moments of the first third took is kept for the next; nothing is added to it.
            third = len(sizes) // 3
            self.assertLess(max(sizes[-third:]), max(sizes[: third + 1]) + 64 * MIB, sizes)
            # Beside the connections themselves, which the idle ones are many of.
            self.assertLess(max(sizes), 200 * MIB)
        if JUDGE_SPEED:
            self.assertLess(p99_beside_ms, 2 * p99_ms + 1)
        self.assertEqual(daemon.terminate(), 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--abuse"]:
        print(json.dumps(Abuse.abuse(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
    else:
        main()
