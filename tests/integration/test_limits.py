#!/usr/bin/env python3
"""A daemon that protects itself: limits on requests, connections and bytes, and clients that mean no good.

Environment, beside that of leafctl.py:
  LEAFCTL_ABUSE_S     seconds of mixed abuse (default 6)
  LEAFCTL_ABUSE_IDLE  connections that are idle meanwhile (default 200)
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import load  # noqa: E402
from leafctl import SCALE, LeafTest, RawConnection, main, poll, scaled  # noqa: E402

LEAF = "/api/segment/get/"
V1 = "/v1/segment/"
ABUSE_S = float(os.environ.get("LEAFCTL_ABUSE_S") or 6)
ABUSE_IDLE = int(os.environ.get("LEAFCTL_ABUSE_IDLE") or 200)
# Sanitizers keep what was freed.
JUDGE_MEMORY = SCALE >= 1
MIB = 1024 * 1024


def setUpModule():
    load.raise_open_files(ABUSE_IDLE + 2000)


def report(text, *values):
    print("limits: " + text % values, flush=True)


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
            LEAF + "nobody",
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
            # Whoever looks after the daemon gets through.
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
                    raw.send(("GET %shot HTTP/1.1\r\nHost: t\r\n\r\n" % LEAF) * 20)
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
                response = raw.get("/health/live")
                if response is None or response.status != 200:
                    raw.close()
                    return None
                return stack.enter_context(raw)

            held = [poll(take, "connection %d" % number) for number in range(3)]
            for _ in range(10):
                with daemon.raw() as surplus:
                    response = surplus.get("/health/live")
                    self.assertIsNotNone(response, "closed without a word")
                    self.assertEqual(response.status, 503)
                    self.assertRegex(response.headers["retry-after"], r"^\d+$")
                    self.assertEqual(response.headers["connection"], "close")
                    self.assertTrue(surplus.at_end())
            for raw in held:
                self.assertEqual(raw.get("/health/live").status, 200)
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
                response = raw.get("/health/live")
            except ConnectionError:
                return False
            return response is not None and response.status == 200


class Slow(LeafTest):
    def test_who_trickles_is_told(self):
        daemon = self.box.serve("--set", "server.header_timeout=300ms")
        for start in (
            "GET /health/live HTTP/1.1\r\nHo",
            "GET /health/li",
            "POST /health/live HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc",
            "POST /health/live HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        ):
            with daemon.raw() as raw:
                raw.send(start)
                response = raw.response()
                self.assertIsNotNone(response, "closed without a word: " + start)
                self.assertEqual(response.status, 408)
                self.assertEqual(response.headers["connection"], "close")
                self.assertTrue(raw.at_end())
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

    def test_answers_that_nobody_reads_are_bounded(self):
        """Each answer has 2.3 MB; of those that wait no more than 256 MiB are held, and small ones go on."""
        daemon = self.box.serve("--set", "server.header_timeout=120s")
        self.box.ok("tag", "add", "pay", "--step", "1000000")
        before = resident_bytes(daemon.process.pid)
        count = 150 if SCALE >= 1 else 12
        request = "GET %spay?count=100000 HTTP/1.1\r\nHost: t\r\n\r\n" % V1
        with contextlib.ExitStack() as stack:
            for number in range(count):
                raw = stack.enter_context(contextlib.closing(self.slow_reader(daemon)))
                raw.send(request * 3)
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
                self.assertLess(held, 400 * MIB)
        poll(lambda: daemon.v1("pay", 100000).status == 200, "large answers are given again")

    @staticmethod
    def slow_reader(daemon):
        raw = RawConnection.__new__(RawConnection)
        raw.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before connecting, or it grows
        raw.socket.settimeout(60)
        raw.socket.connect(("127.0.0.1", daemon.port))
        raw.buffer = b""
        return raw


class Sizes(LeafTest):
    def test_what_is_too_large_is_told(self):
        daemon = self.box.serve()
        self.box.ok("tag", "add", "pay", "--start", "1")
        for request, status in (
            ("GET %spay HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000000000\r\n\r\n" % V1, 413),
            ("GET %spay HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999999\r\n\r\n" % V1, 400),
            ("POST %spay HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n" % V1, 400),
            ("GET %spay HTTP/1.1\r\nHost: t\r\n%s\r\n" % (V1, "X: %s\r\n" % ("y" * 2000000)), 431),
            ("GET %spay HTTP/1.1\r\nHost: t\r\n%s\r\n" % (V1, "X: y\r\n" * 300000), 431),
            ("GET /%s HTTP/1.1\r\nHost: t\r\n\r\n" % ("p" * 2000000), 431),
            (
                "POST %spay HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n%s"
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
            raw.send("GET %spay HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\n%s" % (LEAF, "b" * 60000))
            self.assertEqual(raw.response().body, "1")
            self.assertEqual(raw.get(LEAF + "pay").body, "2")


class Abuse(LeafTest):
    """Everything at once, while a client that behaves goes on being served."""

    GARBAGE = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 200,
        b"GET /v1/segment/pay?count=-1 HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET /v1/segment/pay?count=1000000000 HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET /v1/segment/%00 HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET /v1/segment/" + b"%ff" * 300 + b" HTTP/1.1\r\nHost: t\r\n\r\n",
        b"POST /v1/segment/pay HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"GET /api/segment/get/nobody HTTP/1.0\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: t\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        b"PUT /v1/segment/pay HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    )

    @classmethod
    def abuse(cls, port, seed, seconds):
        """Connections of one abuser, one after the other, some of them kept open; their number."""
        dice = random.Random(seed)
        kept = []
        count = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                raw = RawConnection(("127.0.0.1", port), timeout=20)
            except OSError:
                continue
            count += 1
            try:
                act = dice.randrange(5)
                if act == 0:
                    raw.send(dice.choice(cls.GARBAGE))
                    raw.response()
                elif act == 1:
                    raw.send(dice.randbytes(dice.randrange(1, 4000)))
                elif act == 2:  # half a request, kept open
                    raw.send("GET /v1/segment/pay HTTP/1.1\r\nX: " + "y" * dice.randrange(4000))
                    kept.append(raw)
                elif act == 3:  # asks for much, reads nothing, hangs up some time
                    raw.send("GET /v1/segment/big?count=20000 HTTP/1.1\r\nHost: t\r\n\r\n" * dice.randrange(1, 5))
                    kept.append(raw)
                else:
                    raw.send("GET /v1/segment/pay HTTP/1.1\r\nHost: t\r\n\r\n" * 50)
            except OSError:
                pass
            if not kept or kept[-1] is not raw:
                raw.close()
            if len(kept) > 20:
                kept.pop(0).close()
        for raw in kept:
            raw.close()
        return count

    def test_a_client_that_behaves_is_served(self):
        daemon = self.box.serve("--set", "server.header_timeout=2s", "--set", "server.request_timeout=20s")
        for tag in ("pay", "big", "good"):
            self.box.ok("tag", "add", tag, "--step", "1000000")
        sizes = []
        answers = 0
        seconds = ABUSE_S
        with contextlib.ExitStack() as stack:
            for _ in range(ABUSE_IDLE):
                stack.enter_context(daemon.raw())
            abusers = []
            for seed in range(4):
                command = [sys.executable, os.path.abspath(__file__), "--abuse", str(daemon.port), str(seed), str(seconds)]
                abuser = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                stack.callback(abuser.stdout.close)
                stack.callback(abuser.wait)
                stack.callback(abuser.kill)
                abusers.append(abuser)
            started = time.monotonic()
            last = 0
            while time.monotonic() - started < seconds:
                response = daemon.get(LEAF + "good")
                self.assertEqual(response.status, 200, response.body)
                self.assertGreater(int(response.body), last)
                last = int(response.body)
                answers += 1
                if time.monotonic() - started > len(sizes) * seconds / 30:
                    sizes.append(resident_bytes(daemon.process.pid))
                time.sleep(0.002)
            counts = [int(abuser.communicate(timeout=120)[0]) for abuser in abusers]
        report(
            "%.0f s of abuse by %d connections, %d idle: %d requests of the good client served; %d to %d MiB resident",
            seconds, sum(counts), ABUSE_IDLE, answers, min(sizes) // MIB, max(sizes) // MIB,
        )  # fmt: skip
        self.assertGreater(min(counts), 0)
        self.assertGreater(answers, 0)
        if JUDGE_MEMORY:
            # What the heaviest moments of the first third took is kept for the next; nothing is added to it.
            third = len(sizes) // 3
            self.assertLess(max(sizes[-third:]), max(sizes[: third + 1]) + 64 * MIB, sizes)
        self.assertEqual(daemon.terminate(), 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--abuse"]:
        print(Abuse.abuse(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
    else:
        main()
