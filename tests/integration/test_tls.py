#!/usr/bin/env python3
"""TLS: the listeners, their clients, certificates on both sides, reloads, and peers that keep no rule of it.

Environment:
  LEAFCTL_TEST_HANDSHAKES  how many handshakes are begun and not completed (default 400)
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from certificates import Authority, openssl  # noqa: E402
from leafctl import BINARY, DEADLINE_S, LeafTest, RawConnection, main, poll, scaled  # noqa: E402
from load import raise_open_files  # noqa: E402
from resp import Resp  # noqa: E402
from tls_daemon import TlsDaemon  # noqa: E402

HANDSHAKES = int(os.environ.get("LEAFCTL_TEST_HANDSHAKES") or "400")


# Keeps writers out of an SQLite database until its input ends.
HOLD_DATABASE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held_database(box):
    """Nothing is granted until the block ends, or calls what it is given."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_DATABASE, os.path.join(box.state, "leaf.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        try:
            if holder.stdout.readline() != b"held\n":
                raise AssertionError("the database could not be locked")
            yield holder.stdin.close
        finally:
            holder.stdin.close()


def waiting(daemon):
    """How many requests for the tag pay are parked."""
    return json.loads(daemon.local("/v1/status?tag=pay").body)["segment"]["tags"][0]["waiting"]


class TlsConnection(RawConnection):
    """Bytes over TLS. `context`: of Python's ssl."""

    def __init__(self, port, context, host="localhost"):
        super().__init__(("127.0.0.1", port))
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        except BaseException:
            self.socket.close()
            raise


class TlsResp(Resp):
    def __init__(self, port, context):
        plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.file = self.socket.makefile("rb")


class Pump:
    """TLS that reads whenever there is something, also while it sends: Python's sockets cannot do that in two threads."""

    def __init__(self, port, context, piece=None):
        """`piece`: so many bytes go into one segment, and into one record."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._piece = piece
        self._wire = b""
        while True:
            try:
                self._client.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._move(wait=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _move(self, wait):
        """Sends what there is room for, and takes what has come. `wait`: something has to move, once all is sent."""
        self._wire += self._outgoing.read()
        wants_room = [self._socket] if self._wire else []
        readable, writable, _ = select.select(
            [self._socket], wants_room, [], DEADLINE_S if wait or self._wire else 0
        )
        if writable:
            sent = self._socket.send(self._wire[: self._piece or len(self._wire)], socket.MSG_DONTWAIT)
            self._wire = self._wire[sent:]
        if readable:
            data = self._socket.recv(1 << 18)
            if not data:
                self._incoming.write_eof()
            self._incoming.write(data)
        return bool(readable)

    def exchange(self, data, done):
        """Sends `data`; what was received until `done` of it is true."""
        size = self._piece or 16384
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        got = bytearray()
        while not done(got):
            if pieces and len(self._wire) < 65536:
                self._client.write(pieces.pop(0))
            self._move(wait=not pieces)
            try:
                while True:
                    more = self._client.read(1 << 18)
                    if not more:
                        raise AssertionError("the server ended the connection after %r" % bytes(got[-200:]))
                    got += more
            except ssl.SSLWantReadError:
                pass
        return bytes(got)


class TlsTest(LeafTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.box.path("pki"))
        self.cert, self.key = self.authority.issue("server")

    def serve(self, *args, cert=None, key=None, **more):
        daemon = TlsDaemon(self.box, list(args), (cert or self.cert, key or self.key), **more)
        poll(lambda: daemon.local("/health/ready").status == 200, "ready")
        return daemon

    def context(self, identity=None, authority=None):
        context = ssl.create_default_context(cafile=(authority or self.authority).cert)
        if identity:
            context.load_cert_chain(*identity)
        return context

    def connect(self, daemon, context=None):
        return TlsConnection(daemon.port, context or self.context())

    def add_tag(self, tag="pay", *args):
        self.box.ok("tag", "add", tag, *args)

    def fails(self, work, error=(OSError, ssl.SSLError)):
        with self.assertRaises(error) as raised:
            work()
        return str(raised.exception)


class Http(TlsTest):
    def test_requests_and_what_the_daemon_says_of_itself(self):
        self.add_tag()
        daemon = self.serve()
        with self.connect(daemon) as connection:
            self.assertEqual(json.loads(connection.get("/v1/segment/pay?count=3").body)["ids"], ["1", "2", "3"])
            self.assertEqual(connection.get("/api/segment/get/pay").body, "4")
            self.assertEqual(connection.get("/nowhere").status, 404)
            self.assertEqual(connection.socket.version(), "TLSv1.3")
            listens = json.loads(connection.get("/v1/status").body)["listen"]
        self.assertIn(daemon.url, listens)
        self.assertTrue(any(name.startswith("unix:") for name in listens), listens)
        self.assertEqual(daemon.handshakes("ok"), 1)
        self.assertEqual(daemon.handshakes("failed"), 0)
        end = subprocess.run(
            ["openssl", "x509", "-in", self.cert, "-noout", "-enddate"], check=True, capture_output=True, text=True
        ).stdout
        self.assertEqual(
            daemon.metric("leaf_tls_certificate_expiry_seconds"), ssl.cert_time_to_seconds(end.strip().split("=")[1])
        )
        self.assertEqual(daemon.terminate(), 0)

    def test_curl_and_alpn(self):
        self.add_tag()
        daemon = self.serve()
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--verbose", "--cacert", self.authority.cert,
             "https://localhost:%d/v1/segment/pay?count=2" % daemon.port],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(json.loads(done.stdout)["ids"], ["1", "2"])
        context = self.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with self.connect(daemon, context) as connection:
            self.assertEqual(connection.socket.selected_alpn_protocol(), "http/1.1")
        # One that names nothing that is spoken here is answered all the same.
        context = self.context()
        context.set_alpn_protocols(["h2"])
        with self.connect(daemon, context) as connection:
            self.assertIsNone(connection.socket.selected_alpn_protocol())
            self.assertEqual(connection.get("/health/live").status, 200)

    def test_a_certificate_with_an_rsa_key_and_tls_1_2(self):
        self.add_tag()
        cert, key = self.authority.issue("rsa", rsa=True)
        daemon = self.serve(cert=cert, key=key)
        context = self.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.connect(daemon, context) as connection:
            self.assertEqual(connection.socket.version(), "TLSv1.2")
            for i in range(1, 50):
                self.assertEqual(connection.get("/api/segment/get/pay").body, str(i))

    def test_older_versions_are_refused(self):
        daemon = self.serve()
        for version in ("-tls1_1", "-tls1"):
            done = subprocess.run(
                ["openssl", "s_client", "-connect", "127.0.0.1:%d" % daemon.port, version,
                 "-cipher", "ALL:@SECLEVEL=0"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.assertNotEqual(done.returncode, 0, done.stdout)
        poll(lambda: daemon.handshakes("failed") == 2, "two failures")

    def test_renegotiation_is_refused(self):
        daemon = self.serve()
        with subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % daemon.port, "-tls1_2"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as client:  # fmt: skip
            client.stdin.write(b"R\n")
            client.stdin.flush()
            output = client.stdout.read().decode("utf-8", "replace")
        self.assertIn("no renegotiation", output)
        with self.connect(daemon) as connection:
            self.assertEqual(connection.get("/health/live").status, 200)

    def test_keys_that_are_renewed_without_end(self):
        """Some are fine; a client that does nothing else is dropped, and others are served meanwhile."""
        daemon = self.serve()
        client = subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % daemon.port, "-tls1_3", "-quiet", "-no_ign_eof"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
        )  # fmt: skip
        try:
            with self.connect(daemon) as other:

                def renew():
                    try:
                        client.stdin.write(b"K\n")
                    except BrokenPipeError:
                        return True
                    self.assertEqual(other.get("/health/live").status, 200)
                    return client.poll() is not None

                poll(renew, "the end of the connection")
        finally:
            client.kill()
            client.stdin.close()
            output = client.stdout.read()
            client.stdout.close()
            client.wait()
        self.assertGreater(output.count(b"KEYUPDATE"), 30)
        self.assertNotIn(b"400 Bad Request", output)

    def test_a_plain_request_is_told(self):
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        with daemon.raw() as connection:
            response = connection.get("/v1/segment/pay")
            self.assertEqual(response.status, 400)
            self.assertIn("this port speaks TLS", response.body)
            self.assertTrue(connection.at_end())
        # Neither what is no HTTP, nor the Redis port, has a word for it.
        for port, text in ((daemon.port, b"\x00\x01garbage"), (daemon.redis_port(), b"PING\r\n")):
            with RawConnection(("127.0.0.1", port)) as connection:
                connection.send(text)
                self.assertTrue(connection.at_end())
        self.assertEqual(daemon.handshakes("failed"), 3)

    def test_bytes_that_look_like_a_handshake(self):
        daemon = self.serve()
        for text in (b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\x7f\xff" + b"x" * 40000):
            with daemon.raw() as connection:
                connection.send(text)
                connection.socket.shutdown(socket.SHUT_WR)
                # An alert, or nothing.
                while connection._receive():  # pylint: disable=protected-access
                    pass
        with self.connect(daemon) as connection:
            self.assertEqual(connection.get("/health/live").status, 200)

    def test_large_batches_and_pipelines(self):
        self.add_tag("big", "--step", "1000000")
        daemon = self.serve()
        with self.connect(daemon) as connection:
            ids = json.loads(connection.get("/v1/segment/big?count=100000").body)["ids"]
            self.assertEqual(len(set(ids)), 100000)
            count = scaled(2000)
        request = b"GET /api/segment/get/big HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with Pump(daemon.port, self.context()) as pump:
            got = pump.exchange(request * count, lambda got: got.count(b"HTTP/1.1 200") == count and got[-1:].isdigit())
        numbers = [int(text) for text in re.findall(rb"\r\n\r\n(\d+)", got)]
        self.assertEqual(numbers[:-1], list(range(numbers[0], numbers[0] + count - 1)))

    def test_byte_by_byte(self):
        """Each byte a record of its own, and, of the handshake, a segment of its own."""
        self.add_tag()
        daemon = self.serve()
        request = b"GET /api/segment/get/pay HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with Pump(daemon.port, self.context(), piece=1) as pump:
            for i in (b"1", b"2"):
                answer = pump.exchange(request, lambda got, i=i: got.endswith(b"\r\n\r\n" + i))
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)

    def test_a_slow_reader_gets_all_of_a_long_answer(self):
        self.add_tag("big", "--step", "1000000")
        daemon = self.serve()
        context = self.context()
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(DEADLINE_S)
        plain.connect(("127.0.0.1", daemon.port))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"GET /v1/segment/big?count=100000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            pieces = []
            while True:
                piece = connection.recv(1500)
                if not piece:
                    break
                pieces.append(piece)
        head, body = b"".join(pieces).split(b"\r\n\r\n", 1)
        self.assertIn(b"200 OK", head)
        self.assertEqual(len(json.loads(body)["ids"]), 100000)

    def test_both_ends_say_that_nothing_follows(self):
        daemon = self.serve()
        context = self.context()
        with self.connect(daemon, context) as connection:
            connection.socket.suppress_ragged_eofs = False
            connection.send("GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertEqual(connection.response().status, 200)
            # A TCP end without a word of TLS would raise.
            self.assertEqual(connection.socket.recv(1), b"")

    def test_a_hang_up_while_parked(self):
        """The request is given up: what it waited for is left to others."""
        self.add_tag()
        daemon = self.serve("--set", "server.request_timeout=170s")
        with held_database(self.box):
            with self.connect(daemon) as connection:
                connection.send("GET /api/segment/get/pay HTTP/1.1\r\nHost: localhost\r\n\r\n")
                poll(lambda: waiting(daemon) == 1, "a request that is parked")
            poll(lambda: waiting(daemon) == 0, "that it is given up")
        with self.connect(daemon) as connection:
            self.assertEqual(connection.get("/api/segment/get/pay").status, 200)

    def test_a_connection_over_a_limit_is_told(self):
        daemon = self.serve("--set", "server.max_connections=1")

        def connect_first():
            # What asked whether the daemon is ready may have the place for a moment longer.
            connection = self.connect(daemon)
            if connection.get("/v1/snowflake").status == 200:
                return connection
            connection.close()
            return None

        with poll(connect_first, "the only place") as first:
            self.assertEqual(first.get("/v1/snowflake").status, 200)
            with self.connect(daemon) as second:
                self.assertEqual(second.get("/v1/snowflake").status, 503)
                self.assertTrue(second.at_end())


class Redis(TlsTest):
    def test_commands(self):
        self.add_tag()
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        with TlsResp(daemon.redis_port(), self.context()) as client:
            self.assertEqual(client.ask("PING"), "PONG")
            self.assertEqual(client.ask("INCR", "pay"), 1)
        count = scaled(2000)
        with Pump(daemon.redis_port(), self.context()) as pump:
            got = pump.exchange(Resp.encode("INCR", "pay") * count, lambda got: got.count(b"\r\n") == count)
        self.assertEqual([int(line[1:]) for line in got.split()], list(range(2, count + 2)))
        tool = shutil.which("redis-cli")
        self.assertIsNotNone(tool, "there is no redis-cli: apt-get install redis-tools")
        done = subprocess.run(
            [tool, "-p", str(daemon.redis_port()), "--tls", "--cacert", self.authority.cert, "incrby", "pay", "3"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(int(done.stdout), count + 4)

    def test_a_client_may_be_silent(self):
        """Before its first command, for longer than a request may take; after a handshake that may not."""
        daemon = self.serve("--redis-listen", "127.0.0.1:0", "--set", "server.header_timeout=2s")
        with RawConnection(("127.0.0.1", daemon.redis_port())) as silent, TlsResp(
            daemon.redis_port(), self.context()
        ) as client:
            self.assertTrue(silent.at_end())
            self.assertEqual(client.ask("PING"), "PONG")


    def test_a_drain_answers_what_has_come(self):
        """A command a record: what is in the socket, or in the library, counts as well."""
        self.add_tag()
        daemon = self.serve("--redis-listen", "127.0.0.1:0", "--set", "server.request_timeout=60s")
        lock = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        with TlsResp(daemon.redis_port(), self.context()) as client:
            client.send(Resp.encode("INCR", "pay"))
            for _ in range(3000):
                client.send(Resp.encode("ECHO", "abcdefgh"))
            poll(lambda: '"waiting":1' in daemon.local("/v1/status").body.replace(" ", ""), "the first one waits")
            daemon.signal(signal.SIGTERM)
            daemon.wait_log("draining")
            lock.execute("ROLLBACK")
            self.assertEqual(client.reply(), 1)
            self.assertEqual([client.reply() for _ in range(3000)], ["abcdefgh"] * 3000)
            self.assertTrue(client.at_end())
        self.assertEqual(daemon.wait(), 0)


class Clients(TlsTest):
    def test_next_status_and_bench(self):
        self.add_tag()
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        trust = ("--ca", self.authority.cert)
        self.assertEqual(self.box.next("pay", "--server", daemon.url, *trust), [1])
        redis = "rediss://localhost:%d" % daemon.redis_port()
        self.assertEqual(self.box.next("pay", "--server", redis, *trust, "-n", "3"), [2, 3, 4])
        self.assertEqual(self.box.next("pay", "--server", redis, *trust, "-n", "3", "--contiguous"), [5, 6, 7])
        self.assertEqual(len(self.box.next("pay", "--server", daemon.url, *trust, "-n", "250000")), 250000)
        status = json.loads(self.box.ok("status", "--json", "--server", daemon.url, *trust))
        self.assertIn(daemon.url, status["listen"])
        self.assertIn("answers", self.box.ok("status", "--live", "--server", daemon.url, *trust))
        report = json.loads(self.box.ok("bench", daemon.url, *trust, "-d", "500ms", "-c", "8", "--json"))
        self.assertGreater(report["requests"], 0)
        self.assertEqual(report["failed"], 0)
        # From a file.
        config = self.box.write(
            "client.toml", '[client]\nservers = ["%s"]\nca = "%s"\n' % (daemon.url, self.authority.cert)
        )
        self.assertEqual(len(self.box.next("pay", "--config", config)), 1)

    def test_whom_a_client_does_not_believe(self):
        self.add_tag()
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        stranger = Authority(self.box.path("stranger"), "stranger")
        redis = "rediss://127.0.0.1:%d" % daemon.redis_port()
        for server in (daemon.url, redis):
            result = self.box.run(["next", "pay", "--server", server, "--ca", stranger.cert])
            self.check(result, 6, server, "certificate is not accepted", "--ca")
        # The system's authorities do not know ours either.
        self.check(self.box.run(["next", "pay", "--server", daemon.url]), 6, "certificate is not accepted")
        result = self.box.run(["bench", daemon.url, "--ca", stranger.cert, "-d", "100ms"])
        self.check(result, 6, "certificate is not accepted")

    def test_another_host_and_an_old_certificate(self):
        self.add_tag()
        cert, key = self.authority.issue("elsewhere", "DNS:elsewhere.example,IP:127.0.0.9")
        daemon = self.serve(cert=cert, key=key)
        for url in (daemon.url, "https://localhost:%d" % daemon.port):
            result = self.box.run(["next", "pay", "--server", url, "--ca", self.authority.cert])
            self.check(result, 6, "its certificate is not for %s" % url.split("/")[2].split(":")[0])
        daemon.terminate()
        cert, key = self.authority.issue("old", days=-1)
        daemon = self.serve(cert=cert, key=key)
        daemon.wait_log("warning server.tls_cert: .*old.pem: the certificate has ended on ")
        result = self.box.run(["next", "pay", "--server", daemon.url, "--ca", self.authority.cert])
        self.check(result, 6, "certificate has expired", "renew")

    def test_the_wrong_kind_of_server(self):
        self.add_tag()
        plain = self.box.serve()
        result = self.box.run(
            ["next", "pay", "--server", plain.url.replace("http:", "https:"), "--ca", self.authority.cert]
        )
        self.check(result, 6, "does not speak TLS", "http://")
        plain.terminate()
        daemon = self.serve()
        result = self.box.run(["next", "pay", "--server", daemon.url.replace("https:", "http:")])
        self.check(result, 6, "speaks TLS", "https://")

    def test_the_next_server_is_asked(self):
        """Trust in one of several is no reason not to ask another."""
        self.add_tag()
        cert, key = self.authority.issue("elsewhere", "DNS:elsewhere.example")
        other = self.box.path("other")
        stranger = TlsDaemon(self.box, ["--state-dir", other], (cert, key))
        daemon = self.serve()
        ids = self.box.next("pay", "--server", stranger.url, "--server", daemon.url, "--ca", self.authority.cert)
        self.assertEqual(ids, [1])


class Library(TlsTest):
    """The client of the library leaf, in the program of the example."""

    def client(self, *args):
        program = os.path.join(os.path.dirname(BINARY), "library_client")
        if not os.access(program, os.X_OK):
            self.skipTest("there is no library_client beside leafctl")
        done = subprocess.run([program, *args], env=self.box.env, capture_output=True, text=True, timeout=DEADLINE_S)
        return done.returncode, done.stdout + done.stderr

    def test_trust(self):
        self.add_tag()
        daemon = self.serve()
        ask = (daemon.url, "pay")
        self.assertEqual(self.client(*ask, self.authority.cert), (0, "1\n"))
        stranger = Authority(self.box.path("stranger"), "stranger")
        for files in ((stranger.cert,), ()):
            code, text = self.client(*ask, *files)
            self.assertEqual(code, 1, text)
            self.assertIn("its certificate is not accepted", text)
        # A port that speaks no TLS is no daemon: the next group is asked.
        plain = self.box.serve("--state-dir", self.box.path("other"))
        away = plain.url.replace("http:", "https:")
        self.assertEqual(self.client(away + ";" + daemon.url, "pay", self.authority.cert), (0, "2\n"))
        code, text = self.client(away, "pay", self.authority.cert)
        self.assertEqual(code, 1, text)

    def test_a_certificate_of_its_own(self):
        self.add_tag()
        daemon = self.serve("--set", "server.tls_client_ca=" + self.authority.cert)
        ask = (daemon.url, "pay", self.authority.cert)
        code, text = self.client(*ask)
        self.assertEqual(code, 1, text)
        self.assertIn("refuses this client", text)
        self.assertEqual(self.client(*ask, *self.authority.issue("client", "DNS:client")), (0, "1\n"))


class ClientCertificates(TlsTest):
    def setUp(self):
        super().setUp()
        self.add_tag()
        self.mutual = ("--set", "server.tls_client_ca=" + self.authority.cert)

    def test_who_comes_in(self):
        daemon = self.serve("-v", "--redis-listen", "127.0.0.1:0", *self.mutual)
        for name, alternatives, known_as in (
            ("dns", "email:ops@example.org,URI:spiffe://example.org/orders,DNS:orders.example.org,DNS:b", "orders.example.org"),
            ("uri", "email:ops@example.org,URI:spiffe://example.org/orders", "spiffe://example.org/orders"),
            ("mail", "email:ops@example.org", "ops@example.org"),
        ):
            identity = self.authority.issue(name, alternatives)
            with self.connect(daemon, self.context(identity)) as connection:
                self.assertEqual(connection.get("/health/live").status, 200)
            daemon.wait_log(r"(?m)debug 127\.0\.0\.1:\d+ is %s$" % re.escape(known_as))
        nameless = self.authority.issue("nameless", "")
        with self.connect(daemon, self.context(nameless)) as connection:
            self.assertEqual(connection.get("/health/live").status, 200)
        cert, key = self.authority.issue("client", "DNS:client")
        trust = ("--ca", self.authority.cert, "--cert", cert, "--key", key)
        self.assertEqual(self.box.next("pay", "--server", daemon.url, *trust), [1])
        self.assertEqual(
            self.box.next("pay", "--server", "rediss://127.0.0.1:%d" % daemon.redis_port(), *trust), [2]
        )
        # The Unix socket asks for none.
        self.assertEqual(daemon.local("/api/segment/get/pay").body, "3")

    def test_who_does_not(self):
        daemon = self.serve(*self.mutual)
        stranger = Authority(self.box.path("stranger"), "stranger")
        for identity in (None, stranger.issue("client", "DNS:client"), self.authority.issue("old", "DNS:old", days=-1)):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = self.context(identity)
                context.maximum_version = version

                def ask():
                    with self.connect(daemon, context) as connection:
                        connection.send("GET /api/segment/get/pay HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        if not connection.socket.recv(1):
                            raise ConnectionError("closed")

                self.fails(ask)
        self.assertEqual(daemon.handshakes("ok"), 0)
        poll(lambda: daemon.handshakes("failed") == 6, "six failures")
        result = self.box.run(["next", "pay", "--server", daemon.url, "--ca", self.authority.cert])
        self.check(result, 6, "refuses this client", "certificate required", "--cert")
        cert, key = stranger.issue("client2", "DNS:client")
        result = self.box.run(
            ["next", "pay", "--server", daemon.url, "--ca", self.authority.cert, "--cert", cert, "--key", key]
        )
        self.check(result, 6, "refuses this client", "unknown ca")
        self.assertEqual(daemon.local("/api/segment/get/pay").body, "1")

    def test_a_session_is_not_resumed(self):
        """Each connection shows its certificate again, which may have ended since the last one."""
        daemon = self.serve(*self.mutual)
        context = self.context(self.authority.issue("client", "DNS:client"))
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.maximum_version = version
            with self.connect(daemon, context) as connection:
                self.assertEqual(connection.get("/health/live").status, 200)
                session = connection.socket.session
            plain = socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE_S)
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as again:
                self.assertFalse(again.session_reused)


class BrokenConfigurations(TlsTest):
    def refused(self, values, *parts, mode=None):
        """By serve and by config check, with the same words."""
        args = [word for key, value in values.items() for word in ("--set", "%s=%s" % (key, value))]
        for command in (["serve", "--listen", "127.0.0.1:0"], ["config", "check"]):
            result = self.box.run([*command, *args])
            self.check(result, 6, *parts)

    def test_half_of_it(self):
        # In a file: what is on the command line is a mistake of another kind.
        for text, key in (
            ('tls_cert = "%s"' % self.cert, "server.tls_key"),
            ('tls_key = "%s"' % self.key, "server.tls_cert"),
            ('tls_client_ca = "%s"' % self.authority.cert, "server.tls_cert"),
        ):
            config = self.box.write("half.toml", "[server]\n%s\n" % text)
            for command in (["serve", "--listen", "127.0.0.1:0"], ["config", "check"], ["doctor"]):
                result = self.box.run(["--config", config, *command])
                self.assertIn(result.rc, (6, 10))
                self.assertIn(key, result.out + result.err)
        config = self.box.write("half.toml", '[client]\ncert = "%s"\n' % self.cert)
        self.check(self.box.run(["--config", config, "config", "check"]), 6, "client.key")

    def test_files_that_are_no_use(self):
        both = {"server.tls_cert": self.cert, "server.tls_key": self.key}
        nowhere = self.box.path("nowhere.pem")
        broken = self.box.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        empty = self.box.write("empty.pem", "")
        other_key = self.authority.issue("other")[1]
        secret = self.box.path("secret.key")
        openssl("pkey", "-in", self.key, "-aes256", "-passout", "pass:x", "-out", secret)
        os.chmod(secret, 0o600)
        self.refused({**both, "server.tls_cert": nowhere}, "server.tls_cert", nowhere)
        self.refused({**both, "server.tls_key": nowhere}, "server.tls_key", nowhere)
        self.refused({**both, "server.tls_cert": broken}, "server.tls_cert", broken, "broken")
        self.refused({**both, "server.tls_cert": empty}, "server.tls_cert", empty, "no certificate")
        self.refused({**both, "server.tls_key": empty}, "server.tls_key", empty, "no private key")
        self.refused({**both, "server.tls_key": self.cert}, "server.tls_key", "mode" if os.stat(self.cert).st_mode & 0o44 else "")
        self.refused({**both, "server.tls_key": other_key}, "server.tls_key", other_key, "not that of", self.cert)
        self.refused({**both, "server.tls_key": secret}, "server.tls_key", secret, "pass phrase")
        self.refused({**both, "server.tls_client_ca": broken}, "server.tls_client_ca", broken)
        self.refused({**both, "server.tls_client_ca": nowhere}, "server.tls_client_ca", nowhere)
        os.chmod(self.key, 0o644)
        self.refused(both, "server.tls_key", self.key, "chmod 600")

    def test_what_doctor_finds(self):
        def doctor(**values):
            args = [word for key, value in values.items() for word in ("--set", "server.%s=%s" % (key, value))]
            result = self.box.run(["doctor", "--json", *args])
            return [check for check in json.loads(result.out)["checks"] if check["check"] == "server-tls"]

        self.assertEqual(doctor(), [])
        sound = doctor(tls_cert=self.cert, tls_key=self.key)
        self.assertEqual([check["status"] for check in sound], ["ok"])
        for name, days, status in (("short", 3, "warning"), ("old", -1, "problem")):
            cert, key = self.authority.issue(name, days=days)
            found = doctor(tls_cert=cert, tls_key=key)
            self.assertEqual([check["status"] for check in found], [status], found)
            self.assertIn(cert, found[0]["found"])
        found = doctor(tls_cert=self.cert, tls_key=self.box.path("nowhere"))
        self.assertEqual([check["status"] for check in found], ["problem"])
        self.assertIn("nowhere", found[0]["found"])


class Reload(TlsTest):
    def test_under_load_nothing_is_lost_and_both_certificates_are_seen(self):
        self.add_tag("pay", "--step", "100000")
        daemon = self.serve()
        second = self.authority.issue("second")
        stop = threading.Event()
        serials, ids, problems = set(), [], []
        lock = threading.Lock()

        def load():
            try:
                while not stop.is_set():
                    with self.connect(daemon) as connection:
                        serial = connection.socket.getpeercert()["serialNumber"]
                        got = [int(connection.get("/api/segment/get/pay").body) for _ in range(5)]
                    with lock:
                        serials.add(serial)
                        ids.extend(got)
            except Exception as error:  # pylint: disable=broad-except
                problems.append(error)

        threads = [threading.Thread(target=load) for _ in range(4)]
        with self.connect(daemon) as old:
            old_serial = old.socket.getpeercert()["serialNumber"]
            for thread in threads:
                thread.start()
            try:
                poll(lambda: ids or problems, "the first load")
                shutil.copy(second[0], self.cert)
                shutil.copy(second[1], self.key)
                daemon.signal(signal.SIGHUP)
                daemon.wait_log("info TLS with the certificate in ")
                poll(lambda: len(serials) == 2 or problems, "the second certificate")
                # A connection from before goes on with what it began with.
                self.assertEqual(old.get("/health/live").status, 200)
                self.assertEqual(old.socket.getpeercert()["serialNumber"], old_serial)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        self.assertEqual(problems, [])
        self.check_distinct(ids)

    def test_a_broken_file_leaves_the_old_one(self):
        daemon = self.serve()
        with open(self.cert, "w", encoding="ascii") as file:
            file.write("nothing\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("error reload failed, the old settings stay in force: server.tls_cert: ")
        with self.connect(daemon) as connection:
            status = json.loads(connection.get("/v1/status").body)
        self.assertIn("server.tls_cert", json.dumps(status["problems"]) + json.dumps(status.get("config", "")))
        # It is right again, with one that has another end.
        end = daemon.metric("leaf_tls_certificate_expiry_seconds")
        cert, key = self.authority.issue("longer", days=60)
        shutil.copy(cert, self.cert)
        shutil.copy(key, self.key)
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("info TLS with the certificate in ")
        poll(lambda: daemon.metric("leaf_tls_certificate_expiry_seconds") > end, "the new end")
        with self.connect(daemon) as connection:
            self.assertEqual(connection.get("/health/live").status, 200)

    def test_on_and_off_need_a_restart(self):
        config = self.box.write("leafctl.toml", "")
        plain = self.box.serve("--config", config)
        self.box.write(
            "leafctl.toml", '[server]\ntls_cert = "%s"\ntls_key = "%s"\n' % (self.cert, self.key)
        )
        plain.signal(signal.SIGHUP)
        plain.wait_log("reload: server.tls_cert, server.tls_key changed, which needs a restart")
        self.assertEqual(plain.get("/health/live").status, 200)
        plain.terminate()
        daemon = TlsDaemon(self.box, ["--config", config])
        self.box.write("leafctl.toml", "")
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("reload: server.tls_cert, server.tls_key changed, which needs a restart")
        with self.connect(daemon) as connection:
            self.assertEqual(connection.get("/health/live").status, 200)

    def test_authorities_of_clients(self):
        stranger = Authority(self.box.path("stranger"), "stranger")
        identity = stranger.issue("client", "DNS:client")
        trusted = self.box.path("trusted.pem")
        shutil.copy(self.authority.cert, trusted)
        daemon = self.serve("--set", "server.tls_client_ca=" + trusted)

        def ask():
            with self.connect(daemon, self.context(identity)) as connection:
                connection.send("GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return connection.response().status

        self.fails(ask, (OSError, ssl.SSLError, AttributeError))
        with open(trusted, "a", encoding="ascii") as file, open(stranger.cert, encoding="ascii") as more:
            file.write(more.read())
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("info TLS with the certificate in ")
        self.assertEqual(ask(), 200)

    def test_an_authority_that_is_not_believed_any_more(self):
        """Its clients' open connections end with the reload; those of others go on, also while a request waits."""
        self.add_tag()
        stranger = Authority(self.box.path("stranger"), "stranger")
        trusted = self.box.path("trusted.pem")
        shutil.copy(self.authority.cert, trusted)
        with open(trusted, "a", encoding="ascii") as file, open(stranger.cert, encoding="ascii") as more:
            file.write(more.read())
        daemon = self.serve(
            "--redis-listen", "127.0.0.1:0", "--set", "server.tls_client_ca=" + trusted,
            "--set", "server.request_timeout=170s", "--set", "server.idle_timeout=170s",
        )  # fmt: skip
        good = self.context(self.authority.issue("good", "DNS:good"))
        bad = self.context(stranger.issue("bad", "DNS:bad"))
        with contextlib.ExitStack() as open_now:
            give_back = open_now.enter_context(held_database(self.box))
            stays, waits = (open_now.enter_context(self.connect(daemon, good)) for _ in range(2))
            idle, parked = (open_now.enter_context(self.connect(daemon, bad)) for _ in range(2))
            redis = open_now.enter_context(TlsResp(daemon.redis_port(), bad))
            self.assertEqual(redis.ask("PING"), "PONG")
            for connection in (stays, idle):
                self.assertEqual(connection.get("/health/live").status, 200)
            for connection in (waits, parked):
                connection.send("GET /api/segment/get/pay HTTP/1.1\r\nHost: localhost\r\n\r\n")
            poll(lambda: waiting(daemon) == 2, "two requests that are parked")
            # With the same authorities nothing is closed.
            daemon.signal(signal.SIGHUP)
            daemon.wait_log("info TLS with the certificate in ")
            self.assertEqual(idle.get("/health/live").status, 200)
            shutil.copy(self.authority.cert, trusted)
            daemon.signal(signal.SIGHUP)
            for connection in (idle, parked):
                self.assertTrue(connection.at_end())
            self.assertEqual(redis.file.read(1), b"")
            poll(lambda: waiting(daemon) == 1, "the request that is left")
            self.assertEqual(stays.get("/health/live").status, 200)
            give_back()
            self.assertEqual(waits.response().body, "1")
        daemon.wait_log("TLS connections that were closed, since their clients are not accepted any more: ")
        self.fails(lambda: self.connect(daemon, bad).get("/health/live").status, (OSError, ssl.SSLError, AttributeError))


class Crowds(TlsTest):
    def test_handshakes_that_do_not_go_on(self):
        """They take their places, and nothing from others, and are gone at the deadline."""
        raise_open_files(2 * HANDSHAKES + 200)
        self.add_tag()
        daemon = self.serve("--set", "server.header_timeout=10s", "--set", "server.max_connections=%d" % (HANDSHAKES + 100))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        self.fails(client.do_handshake, ssl.SSLWantReadError)
        hello = outgoing.read()
        crowd = []
        try:
            for i in range(HANDSHAKES):
                connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE_S)
                crowd.append(connection)
                # Silent, a part, all but the last byte, or all of the first message, and nothing after it.
                connection.sendall((b"", hello[:1], hello[:-1], hello)[i % 4])
            poll(lambda: daemon.metric("leaf_http_connections") >= HANDSHAKES, "all of them")
            with self.connect(daemon) as connection:
                for i in range(1, 201):
                    self.assertEqual(connection.get("/api/segment/get/pay").body, str(i))
            poll(lambda: daemon.metric("leaf_http_connections") <= 2, "their end")
            # Those on which nothing has come are no handshakes. One that has not ended yet may be among the two.
            failed = HANDSHAKES - (HANDSHAKES + 3) // 4
            poll(lambda: daemon.handshakes("failed") >= failed, "each handshake has failed")
            self.assertEqual(daemon.handshakes("failed"), failed)
        finally:
            for connection in crowd:
                connection.close()
        self.assertEqual(daemon.terminate(), 0)

    def test_a_drain_loses_nothing(self):
        self.add_tag("pay", "--step", "100000")
        daemon = self.serve()
        ids, problems, ended, served = [], [], [], set()
        lock = threading.Lock()

        def load():
            try:
                with self.connect(daemon) as connection:
                    while True:
                        connection.send("GET /api/segment/get/pay HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        response = connection.response()
                        # Each request that is sent before the server says "close" is answered.
                        if response is None:
                            raise AssertionError("a request was lost")
                        with lock:
                            ids.append(int(response.body))
                            served.add(threading.get_ident())
                        if response.headers.get("connection") == "close":
                            ended.append(connection.at_end())
                            return
            except Exception as error:  # pylint: disable=broad-except
                problems.append(error)

        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads:
            thread.start()
        poll(lambda: (len(ids) > 100 and len(served) == 8) or problems, "the load")
        self.assertEqual(daemon.terminate(), 0)
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])
        self.assertEqual(ended, [True] * 8)
        self.check_distinct(ids)


if __name__ == "__main__":
    main()
