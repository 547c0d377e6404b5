#!/usr/bin/env python3
"""What commands make of what a server answers: a cache in between that repeats it, an end in the middle, another program,
a server that wishes its callers no good."""

import contextlib
import http.server
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from leafctl import LeafTest, main  # noqa: E402


def ranges(begin, end):
    return 200, {"ranges": [{"begin": str(begin), "end": str(end)}]}


def refusal(status, code, message):
    return status, {"code": code, "message": message, "hint": ""}


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class AnswersTest(LeafTest):
    def http(self, *answers, socket_path=None):
        """The URL of a server that gives these answers, each to one request, and the last one to all others. An answer is
        a status and a document, or a text."""
        rest = list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = rest.pop(0) if len(rest) > 1 else rest[0]
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.do_GET()

            def log_message(self, *_):
                pass

        server = (
            UnixServer(socket_path, Handler) if socket_path else http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        )
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return "unix:" + socket_path if socket_path else "http://127.0.0.1:%d" % server.server_address[1]

    def redis(self, reply, piece=b""):
        """The URL of a server that answers each command with `reply`, and then sends `piece` for as long as anything takes
        it."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    while connection.recv(65536):
                        connection.sendall(reply)
                        while piece:
                            connection.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        return "redis://127.0.0.1:%d" % listener.getsockname()[1]

    def run_next(self, url, *args, **more):
        return self.box.run(["next", "--server", url, *args], **more)

    def check_part(self, result, rc, part):
        """It ended with this error, after some output."""
        self.assertEqual(result.rc, rc, result.err)
        self.assertIn(part, result.err)


class Repeated(AnswersTest):
    def test_ranges(self):
        for args in (["pay"], ["--mode", "snowflake"]):
            result = self.run_next(self.http(ranges(1, 100001)), *args, "-n", "200000")
            self.check_part(result, 1, "gave IDs that an earlier answer had")
            self.assertEqual(result.out.split(), [str(i) for i in range(1, 100001)])

    def test_a_part_of_a_range(self):
        for second in (ranges(50000, 150000), ranges(0, 100000), ranges(100000, 200000)):
            result = self.run_next(self.http(ranges(1, 100001), second), "pay", "-n", "200000")
            self.check_part(result, 1, "100000 of 200000 IDs were taken, then:")
            self.assertEqual(len(result.out.split()), 100000)

    def test_ranges_beside_each_other_are_none(self):
        answers = [ranges(200001, 300001), ranges(1, 100001), ranges(100001, 200001)]
        result = self.run_next(self.http(*answers), "pay", "-n", "300000")
        self.assertEqual((result.rc, len(set(result.out.split()))), (0, 300000), result.err)

    def test_texts(self):
        answer = 200, {"codes": ["%012d" % i for i in range(100000)]}
        result = self.run_next(self.http(answer), "pay", "-n", "200000", "--format", "code")
        self.check_part(result, 1, "gave IDs that an earlier answer had")
        self.assertEqual(len(result.out.split()), 100000)


class Ends(AnswersTest):
    FROZEN = refusal(409, "frozen", "tag 'pay' is frozen")

    def test_the_ids_before_an_error_are_printed(self):
        for extra in ([], ["--json"]):
            result = self.run_next(self.http(ranges(1, 100001), self.FROZEN), "pay", "-n", "200000", *extra)
            self.check_part(result, 11, "100000 of 200000 IDs were taken, then: tag 'pay' is frozen")
            ids = json.loads(result.out)["ids"] if extra else [int(line) for line in result.out.split()]
            self.assertEqual([int(each) for each in ids], list(range(1, 100001)))

    def test_nothing_is_printed_where_there_is_nothing(self):
        result = self.run_next(self.http(self.FROZEN), "pay", "--json")
        self.check(result, 11)
        self.assertEqual(result.out, "")

    def test_a_wait_is_for_all_of_it(self):
        away = refusal(503, "unavailable", "the database is away")
        result = self.run_next(
            self.http(ranges(1, 100001), away, ranges(100001, 200001)), "pay", "-n", "200000", "--json", "--wait", "60s"
        )
        self.assertEqual((result.rc, len(json.loads(result.out)["ids"])), (0, 200000), result.err)

    def test_a_wait_gives_no_id_twice(self):
        away = refusal(503, "unavailable", "the database is away")
        codes = 200, {"codes": ["%012d" % i for i in range(100000)]}
        for answer, extra in ((ranges(1, 100001), []), (codes, ["--format", "code"])):
            url = self.http(answer, away, answer)
            result = self.run_next(url, "pay", "-n", "200000", "--wait", "60s", *extra)
            self.check_part(result, 1, "gave IDs that an earlier answer had")
            self.assertEqual(len(result.out.split()), 100000)

    def test_a_wait_asks_the_daemon_that_came_up_meanwhile(self):
        """Where there was none, the worker itself was tried, and its registry is away."""
        command = self.box.popen(
            ["next", "--mode", "snowflake", "--wait", "600s", "--set", "snowflake.cluster=pay", "--set",
             "snowflake.registry=zookeeper", "--set", "zookeeper.connect=127.0.0.1:1", "--set",
             "snowflake.address=127.0.0.1:8080"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(command.kill)
        while "trying again" not in (line := command.stderr.readline()):
            self.assertTrue(line, "it has ended")
        self.http(ranges(7, 8), socket_path=self.box.path("state/leafctl.sock"))
        out, err = command.communicate()
        self.assertEqual((command.returncode, out), (0, "7\n"), err)

    def test_a_clock_is_waited_for(self):
        clock = refusal(503, "clock", "the clock has to pass what may have been issued before the start")
        url = self.http(clock, clock, ranges(5, 6))
        self.check(self.run_next(url, "--mode", "snowflake"), 11, "the clock has to pass")
        result = self.run_next(url, "--mode", "snowflake", "--wait", "60s")
        self.assertEqual((result.rc, result.out), (0, "5\n"), result.err)


class Shapes(AnswersTest):
    def test_texts_of_ids_have_no_other_characters(self):
        for text in ('A"],"x":["B', "A\\", "<b>", "a b", "\x1b[2J", "ü"):
            for extra in ([], ["--json"]):
                result = self.run_next(self.http((200, {"codes": [text]})), "pay", "--format", "code", *extra)
                self.check(result, 1, "not from leafctl")
                self.assertEqual(result.out, "", text)

    def test_a_status(self):
        known = {"ready": True, "segment": {"tags": [{"tag": "pay", "state": "active", "reserve_target": "12"}]}}
        for body in (known, {"segment": {"tags": ["x"]}}, {"segment": {"tags": 5}}, {"segment": []}, {"reasons": [1]},
                     {"problems": "x"}, [], "x", "null"):  # fmt: skip
            url = self.http((200, body))
            for args in (["status"], ["doctor"]):
                result = self.box.run([*args, "--server", url])
                self.assertNotIn("leafctl: bug", result.err, (args, body))
            result = self.box.run(["__complete", "--line", "zsh", "--", "leafctl", "--server", url, "tag", "show", ""])
            self.assertEqual((result.rc, result.err), (0, ""), body)

    def test_what_nests_without_end(self):
        deep = "[" * 200_000 + "]" * 200_000
        for body in (deep, '{"tag":"pay","changed":%s}' % deep, '{"workers":%s}' % deep):
            url = self.http((200, body))
            static = ("--set", "snowflake.cluster=pay", "--set", "snowflake.worker_id=1", "--set", "client.servers=" + url)
            for args in (["status"], ["doctor"], ["tag", "pause", "pay"], ["tag", "advise", "pay"], ["tag", "show", "pay"],
                         ["worker", "list"], ["tag", "list"]):  # fmt: skip
                result = self.box.run([*args, "--server", url])
                self.assertGreaterEqual(result.rc, 0, (args, body[:40], "it crashed"))
                self.assertNotIn("leafctl: bug", result.err, (args, body[:40]))
            self.assertGreaterEqual(self.box.run(["worker", "check", *static]).rc, 0, body[:40])
        for name, text in (("t.json", '{"tags":[{"tag":"a","step":%s}]}' % deep), ("t.toml", '"\\""' + ".a" * 100_000 + "=1\n")):
            path = self.box.write(name, text)
            self.check(self.box.run(["tag", "apply", "-f", path, "--dry-run"]), 2, "bad file")
            self.check(self.box.run(["--config", path, "config", "check"]), 6, name)

    def test_fields_of_another_kind(self):
        for body in ({"tag": None}, {"tag": "pay", "why": 1, "changed": 5}, {"tag": "pay", "why": [], "known": "x"}):
            url = self.http((200, body))
            for command in ("pause", "resume", "advise"):
                self.check(self.box.run(["tag", command, "pay", "--server", url]), 1, "not from leafctl")

    def test_silence_is_no_daemon(self):
        """However many are asked, and for whatever."""
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            urls = ["http://127.0.0.1:%d" % listener.getsockname()[1] for listener in (one, two)]
            for servers in (urls[:1], urls):
                named = [word for url in servers for word in ("--server", url)]
                result = self.box.run(["status", *named, "--timeout", "300ms"])
                self.assertEqual(result.rc, 7, result)
            busy = self.http(refusal(503, "unavailable", "too many connections"))
            self.check(self.box.run(["status", "--server", busy]), 8, "too many connections")
            live = ["status", "--live", "--set", "server.listen=" + urls[0][7:], "--set", "server.socket="]
            self.check(self.box.run([*live, "--timeout", "300ms"]), 7)

    def test_a_daemon_that_hangs_is_one(self):
        with socket.socket(socket.AF_UNIX) as listener:
            os.makedirs(self.box.path("state"), exist_ok=True)
            listener.bind(self.box.path("state/leafctl.sock"))
            listener.listen(8)
            result = self.box.run(["doctor", "--timeout", "2s"])
        self.assertNotIn("none runs here", result.out)
        self.assertIn("did not answer within 2s", result.out)


class Redis(AnswersTest):
    def test_there_are_no_such_ids(self):
        big = b"9223372036854775808"
        url = self.redis(b"*1\r\n$19\r\n" + big + b"\r\n")
        result = self.run_next(url, "--mode", "snowflake")
        self.check(result, 1, "its IDs are not what was asked for")
        self.assertEqual(result.out, "")
        url = self.redis(b"*1\r\n*2\r\n$19\r\n9223372036854775807\r\n$19\r\n" + big + b"\r\n")
        self.assertEqual(self.run_next(url, "pay").out, "9223372036854775807\n", "the highest one")

    def test_an_answer_without_an_end(self):
        for reply in (b"$60000000\r\n", b"*60000000\r\n$60000000\r\n", b"+", b"*60000000\r\n"):
            piece = b":1\r\n" * 16384 if reply.startswith(b"*60000000\r\n") and len(reply) == 11 else b"x" * 65536
            result = self.run_next(self.redis(reply, piece), "pay", "--timeout", "60s")
            self.check(result, 1, "its answer is too long")


if __name__ == "__main__":
    main()
