#!/usr/bin/env python3
"""HTTP as clients see it, byte by byte, on a daemon with SQLite."""

import json
import os
import signal
import socket
import sqlite3
import struct
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import DEADLINE_S, NOBODY, LeafTest, RawConnection, Sandbox, main, poll, scaled  # noqa: E402

LEAF = "/api/segment/get/"
V1 = "/v1/segment/"


class SharedDaemonTest(LeafTest):
    """One daemon for all tests of the class; each test has a tag of its own."""

    count = 0

    @classmethod
    def setUpClass(cls):
        cls.shared = Sandbox()
        cls.daemon = cls.shared.serve()

    @classmethod
    def tearDownClass(cls):
        cls.shared.close()

    def setUp(self):
        SharedDaemonTest.count += 1
        self.tag = "t%d" % SharedDaemonTest.count
        self.shared.ok("tag", "add", self.tag, "--step", "100000", "--start", "1")

    def check_next_is(self, value):
        """Takes one ID; proves how many were taken before."""
        self.assertEqual(self.daemon.leaf(self.tag).body, str(value))

    def check_healthy(self):
        with self.daemon.raw() as raw:
            self.assertEqual(raw.get("/health/live").status, 200)


class LeafRoutes(SharedDaemonTest):
    def test_body_and_headers(self):
        for expected in ("1", "2", "3"):
            response = self.daemon.get(LEAF + self.tag)
            self.assertEqual((response.status, response.body), (200, expected))
            self.assertEqual(response.headers["Content-Type"], "text/plain;charset=UTF-8")
            self.assertEqual(response.headers["Content-Length"], "1")
            self.assertEqual(response.headers["Cache-Control"], "no-store")

    def test_accept_does_not_change_the_type(self):
        for accept in ("application/json", "text/html,*/*;q=0.8", "image/png"):
            response = self.daemon.get(LEAF + self.tag, {"Accept": accept})
            self.assertEqual(response.headers["Content-Type"], "text/plain;charset=UTF-8")
            self.assertTrue(response.body.isdigit())

    def test_unknown_tag_is_leafs_json(self):
        before = time.time() * 1000 - 1000
        response = self.daemon.get(LEAF + "nokey?x=1")
        self.assertEqual(response.status, 500)
        self.assertEqual(response.headers["Content-Type"], "application/json;charset=UTF-8")
        self.assertEqual(response.headers["Cache-Control"], "no-store")
        error = json.loads(response.body)
        self.assertEqual(list(error), ["timestamp", "status", "error", "exception", "message", "path"])
        self.assertIsInstance(error["timestamp"], int)
        self.assertTrue(before < error["timestamp"] < time.time() * 1000 + 1000)
        del error["timestamp"]
        self.assertEqual(
            error,
            {
                "status": 500,
                "error": "Internal Server Error",
                "exception": "com.sankuai.inf.leaf.server.exception.LeafServerException",
                "message": "Result{id=-2, status=EXCEPTION}",
                "path": LEAF + "nokey",
            },
        )
        self.assertRegex(response.body, r'^\{"timestamp":\d+,"status":500,"error":"Internal Server Error","exception":')

    def test_any_method_takes_one(self):
        for number, method in enumerate(("GET", "POST", "PUT", "PATCH", "DELETE"), 1):
            self.assertEqual(self.daemon.request(method, LEAF + self.tag).body, str(number), method)

    def test_head_takes_none(self):
        with self.daemon.raw() as raw:
            for _ in range(3):
                response = raw.get(LEAF + self.tag, method="HEAD")
                self.assertEqual((response.status, response.body), (200, ""))
            self.assertEqual(raw.get(LEAF + self.tag).body, "1")
            # A health check learns what GET would say.
            for path in (LEAF + "unknown", V1 + "unknown", LEAF + "a%01", V1 + self.tag + "?count=0"):
                get, head = (raw.get(path, method=method) for method in ("GET", "HEAD"))
                self.assertEqual((head.status, head.body), (get.status, ""), path)
                self.assertGreaterEqual(head.status, 400)
        # Nor has a refusal a body, which the next answer of a proxy's connection would begin with.
        for request in (b"HEAD /v1/clock HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"HEAD /v1/clock HTTP/1.1\r\n\r\n",
                        b"HEAD /v1/clock HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 20000 + b"\r\n\r\n"):  # fmt: skip
            with self.daemon.raw() as raw:
                raw.send(request)
                self.assertIn(raw.head().status, (400, 421, 431), request[:60])
                self.assertTrue(raw.at_end(), request[:60])
        off = self.box_without("segment")
        for path in (LEAF + "pay", V1 + "pay"):
            self.assertEqual(off.request("HEAD", path).status, off.get(path).status, path)
            self.assertGreaterEqual(off.request("HEAD", path).status, 500)

    def box_without(self, mode):
        box = Sandbox()
        self.addCleanup(box.close)
        return box.serve("--set", mode + ".enabled=false", ready=False)

    def test_head_of_snowflakes(self):
        off = self.box_without("snowflake")
        for path in ("/api/snowflake/get/x", "/v1/snowflake"):
            self.assertEqual(self.daemon.request("HEAD", path).status, 200)
            self.assertEqual(off.request("HEAD", path).status, off.get(path).status, path)
            self.assertGreaterEqual(off.request("HEAD", path).status, 500)

    def test_options_takes_none(self):
        response = self.daemon.request("OPTIONS", LEAF + self.tag)
        self.assertEqual((response.status, response.body), (200, ""))
        self.assertEqual(response.headers["Allow"], "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS")
        self.check_next_is(1)

    def test_trace_is_refused(self):
        self.assertEqual(self.daemon.request("TRACE", LEAF + self.tag).status, 405)
        self.check_next_is(1)

    def test_odd_methods_are_no_way_around(self):
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + self.tag, method="CONNECT")
            self.assertTrue(response is None or response.status in (400, 405), response)
        self.check_healthy()

    def test_path_forms(self):
        forms = (
            LEAF + self.tag + "/",
            "//api//segment///get//" + self.tag,
            LEAF + self.tag + ";jsessionid=1",
            "/api;x=1/segment/get/" + self.tag + ";a=b/",
            LEAF + self.tag + "?anything=1&&=",
            LEAF + "".join("%%%02x" % byte for byte in self.tag.encode()),
        )
        for number, path in enumerate(forms, 1):
            response = self.daemon.get(path)
            self.assertEqual((response.status, response.body), (200, str(number)), path)

    def test_tag_with_a_dot_is_taken_whole(self):
        dotted = self.tag + ".v1.0"
        self.shared.ok("tag", "add", dotted, "--start", "500")
        self.assertEqual(self.daemon.get(LEAF + dotted).body, "500")
        self.assertEqual(self.daemon.get(LEAF + dotted + "/").body, "501")
        self.assertEqual(self.daemon.get(LEAF + dotted.replace(".", "%2E")).body, "502")
        self.assertEqual(self.daemon.get(LEAF + dotted.replace(".", "%2e")).body, "503")
        self.check_leaf_error(self.daemon.get(LEAF + self.tag + ".v1"), -2)
        self.check_next_is(1)

    def test_unicode_and_blank_and_plus(self):
        for name, path in (
            ("订单" + self.tag, "%E8%AE%A2%E5%8D%95" + self.tag),
            ("a b" + self.tag, "a%20b" + self.tag),
            ("a+b" + self.tag, "a+b" + self.tag),
            ('q"<' + self.tag, "q%22%3C" + self.tag),
        ):
            self.shared.ok("tag", "add", name)
            self.assertEqual(self.daemon.get(LEAF + path).body, "1", name)
            self.assertEqual(json.loads(self.daemon.get(V1 + path).body), {"ids": ["2"]}, name)

    def test_raw_utf8_in_the_path(self):
        self.shared.ok("tag", "add", "é" + self.tag)
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + "é" + self.tag)
            # Not a legal target: answered as the tag or refused, but answered.
            self.assertIn(response.status, (200, 400))
        self.check_healthy()

    def test_malformed_escapes_are_400(self):
        for path in ("%zz", "%", "%2", "a%", "a%g0"):
            self.assertEqual(self.daemon.get(LEAF + path).status, 400, path)
            self.check_v1_error(self.daemon.get(V1 + path), 400)
            self.check_v1_error(self.daemon.get(V1 + self.tag + "?count=" + path), 400)
        self.check_next_is(1)

    def test_names_that_no_tag_can_have(self):
        for path in ("%00", "a%00b", "%0A", "%7f", "%ff%fe", "x" * 129):
            if "%00" in path:
                self.assertEqual(self.daemon.get(LEAF + path).status, 400)
            else:
                self.check_leaf_error(self.daemon.get(LEAF + path), -2)
            error = self.check_v1_error(self.daemon.get(V1 + path), 400, "invalid_argument")
            self.assertIn("tag", error["message"])
        self.assertEqual(self.daemon.get(LEAF + "a%2Fb").status, 400)
        self.assertEqual(self.daemon.get(V1 + "a%2Fb").status, 404)

    def test_error_json_survives_any_path(self):
        for path in ("%22%7D", "%5C", "%ff", "a'b"):
            error = json.loads(self.daemon.get(LEAF + path).body)
            self.assertEqual(error["path"], LEAF + path)

    def test_404(self):
        for path in ("/nothing", LEAF, LEAF[:-1], LEAF + "a/b", "/api/segment/" + self.tag, "/API/segment/get/a"):
            response = self.daemon.get(path)
            self.assertEqual(response.status, 404, path)
            error = json.loads(response.body)
            self.assertEqual(list(error), ["timestamp", "status", "error", "message", "path"])
            self.assertEqual((error["error"], error["path"]), ("Not Found", path))

    def test_case_of_the_tag_counts(self):
        self.check_leaf_error(self.daemon.leaf(self.tag.upper()), -2)


class V1Routes(SharedDaemonTest):
    def test_shape(self):
        response = self.daemon.get(V1 + self.tag)
        self.assertEqual((response.status, response.body), (200, '{"ids":["1"]}'))
        self.assertTrue(response.headers["Content-Type"].startswith("application/json"))
        self.assertEqual(response.headers["Cache-Control"], "no-store")
        self.assertEqual(self.daemon.request("POST", V1 + self.tag + "?count=2").body, '{"ids":["2","3"]}')

    def test_count_and_range(self):
        body = json.loads(self.daemon.get(V1 + self.tag + "?count=5").body)
        self.assertEqual(body, {"ids": ["1", "2", "3", "4", "5"]})
        body = json.loads(self.daemon.get(V1 + self.tag + "?count=5&form=range").body)
        self.assertEqual(body, {"ranges": [{"begin": "6", "end": "11"}]})
        body = json.loads(self.daemon.get(V1 + self.tag + "?form=range").body)
        self.assertEqual(body, {"ranges": [{"begin": "11", "end": "12"}]})

    def test_text(self):
        response = self.daemon.get(V1 + self.tag + "?count=3", {"Accept": "text/plain"})
        self.assertEqual(response.body, "1\n2\n3\n")
        self.assertTrue(response.headers["Content-Type"].startswith("text/plain"))
        for accept in ("*/*", "application/json", "application/json, text/html"):
            response = self.daemon.get(V1 + self.tag, {"Accept": accept})
            self.assertTrue(response.headers["Content-Type"].startswith("application/json"), accept)

    def test_bytes(self):
        """Half-open ranges, two big-endian numbers each."""

        def take(path, accept="application/octet-stream"):
            url = self.daemon.url + path
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=DEADLINE_S) as got:
                return got.headers["Content-Type"], got.read()

        kind, body = take(V1 + self.tag + "?count=5")
        self.assertEqual((kind, struct.unpack(">2Q", body)), ("application/octet-stream", (1, 6)))
        for path in (V1 + self.tag, V1 + self.tag + "?form=range&count=1"):
            kind, body = take(path, "application/json;q=0.1, application/octet-stream")
            begin, end = struct.unpack(">2Q", body)
            self.assertEqual((kind, end), ("application/octet-stream", begin + 1))
        # Above what is written out at once, and over several ranges of the table.
        _, body = take(V1 + self.tag + "?count=5000")
        numbers = struct.unpack(">%dQ" % (len(body) // 8), body)
        self.assertEqual(sum(end - begin for begin, end in zip(numbers[::2], numbers[1::2])), 5000)
        # Errors are JSON.
        error = self.daemon.get(V1 + "none", {"Accept": "application/octet-stream"})
        self.check_v1_error(error, 404, "not_found")
        head = self.daemon.request("HEAD", V1 + self.tag, headers={"Accept": "application/octet-stream"})
        self.assertEqual((head.status, head.headers["Content-Type"]), (200, "application/octet-stream"))

    def test_accept_that_prefers_json_gets_json(self):
        # axios and Angular send exactly this.
        response = self.daemon.get(V1 + self.tag, {"Accept": "application/json, text/plain, */*"})
        self.assertTrue(response.headers["Content-Type"].startswith("application/json"), response)

    def test_text_with_q_0_is_not_wanted(self):
        response = self.daemon.get(V1 + self.tag, {"Accept": "application/json, text/plain;q=0"})
        self.assertTrue(response.headers["Content-Type"].startswith("application/json"), response)

    def test_bad_counts(self):
        for count in ("0", "-1", "abc", "", "1e9", "1.0", "+3", "%203", "0x10", "３"):
            error = self.check_v1_error(
                self.daemon.get(V1 + self.tag + "?count=" + count.replace("３", "%EF%BC%93")), 400, "invalid_argument"
            )
            self.assertIn("count", error["message"])
        self.check_v1_error(self.daemon.get(V1 + self.tag + "?count=1&count=2"), 400)
        self.check_v1_error(self.daemon.get(V1 + self.tag + "?count"), 400)
        self.check_v1_error(self.daemon.get(V1 + self.tag + "?form=xml"), 400)
        self.check_next_is(1)

    def test_counts_over_the_limit(self):
        for count in ("100001", "1000000000", "9223372036854775807"):
            response = self.daemon.get(V1 + self.tag + "?count=" + count)
            self.check_v1_error(response, 413, "too_large")
        response = self.daemon.get(V1 + self.tag + "?count=18446744073709551617")
        self.assertIn(response.status, (400, 413))
        self.check_next_is(1)

    def test_the_limit_itself(self):
        ids = self.daemon.ids(self.tag, 100000)
        self.assertEqual(ids, list(range(1, 100001)))

    def test_methods(self):
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            response = self.daemon.request(method, V1 + self.tag)
            self.assertIn(response.status, (200, 204, 405) if method == "OPTIONS" else (405,), method)
            self.assertIn("GET", response.headers["Allow"])
        with self.daemon.raw() as raw:
            self.assertEqual(raw.get(V1 + self.tag, method="HEAD").status, 200)
        self.check_next_is(1)

    def test_errors(self):
        error = self.check_v1_error(self.daemon.get(V1 + "nokey"), 404, "not_found")
        self.assertIn("nokey", error["message"])
        self.check_v1_error(self.daemon.get("/v1/nothing"), 404)
        self.check_v1_error(self.daemon.get("/v1/segment"), 404)
        self.check_v1_error(self.daemon.get("/v1/segment/"), 404)
        self.check_v1_error(self.daemon.get("/v1"), 404)

    def test_health_and_status(self):
        self.assertEqual(self.daemon.get("/health/live").status, 200)
        ready = self.daemon.get("/health/ready")
        self.assertEqual((ready.status, json.loads(ready.body)), (200, {"ready": True, "reasons": []}))
        unknown = self.daemon.get("/health/ready?tag=nokey")
        self.assertEqual(unknown.status, 503)
        self.assertEqual([r["code"] for r in json.loads(unknown.body)["reasons"]], ["not_found"])
        self.assertEqual(self.daemon.get("/health/nothing").status, 404)
        self.daemon.ids(self.tag, 7)
        status = self.daemon.status()
        self.assertIs(status["ready"], True)
        self.assertEqual(status["reasons"], [])
        self.assertEqual(status["fence"], "node")
        self.assertEqual(self.daemon.tag_status(self.tag)["issued"], 7)
        self.assertEqual(self.daemon.get("/health/ready?tag=" + self.tag).status, 200)

    def test_ready_for_a_tag_that_was_not_asked_for_yet(self):
        """It answers at its first request, so it is ready."""
        self.assertEqual(self.daemon.get("/health/ready?tag=" + self.tag).status, 200)

    def test_each_connection_sees_them_increase(self):
        lists = []

        def take():
            mine = []
            for number in range(scaled(300, 20)):
                mine += self.daemon.ids(self.tag, 1 + number % 5)
            self.daemon.disconnect()
            lists.append(mine)

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(lists), 8)
        for mine in lists:
            self.assertEqual(mine, sorted(mine))
        self.check_distinct([value for mine in lists for value in mine])


class Wire(SharedDaemonTest):
    def test_http_1_0_closes(self):
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + self.tag, version="1.0")
            self.assertEqual(response.body, "1")
            self.assertTrue(raw.at_end())

    def test_http_1_0_keep_alive_is_said_or_not_done(self):
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + self.tag, "Connection: keep-alive", version="1.0")
            self.assertEqual(response.body, "1")
            if response.headers.get("connection", "").lower() == "keep-alive":
                self.assertEqual(raw.get(LEAF + self.tag, version="1.0").body, "2")
            else:
                # Without that header such a client reads up to the end.
                raw.socket.settimeout(3)
                self.assertTrue(raw.at_end())

    def test_connection_close(self):
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + self.tag, "Connection: close")
            self.assertEqual(response.headers["connection"], "close")
            self.assertTrue(raw.at_end())

    def test_keep_alive_over_errors(self):
        with self.daemon.raw() as raw:
            for path, status in ((LEAF + "nokey", 500), ("/no", 404), (LEAF + "%zz", 400), (LEAF + self.tag, 200)):
                self.assertEqual(raw.get(path).status, status)

    def test_pipelining(self):
        with self.daemon.raw() as raw:
            raw.send(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (LEAF + self.tag)) * 50)
            self.assertEqual([raw.response().body for _ in range(50)], [str(n) for n in range(1, 51)])

    def test_pipelining_keeps_the_order_of_different_requests(self):
        with self.daemon.raw() as raw:
            paths = (LEAF + self.tag, "/no", V1 + self.tag + "?count=2", LEAF + "nokey", LEAF + self.tag)
            raw.send("".join("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths))
            answers = [raw.response() for _ in paths]
            self.assertEqual([a.status for a in answers], [200, 404, 200, 500, 200])
            self.assertEqual((answers[0].body, answers[2].body, answers[4].body), ("1", '{"ids":["2","3"]}', "4"))

    def test_the_same_request_again_and_others_in_between(self):
        """A request that comes twice is not read twice. Each gets its own answer, whatever comes in between."""
        self.shared.ok("tag", "add", self.tag + "b")

        def get(path, *headers, method="GET"):
            return "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (method, path, "".join(line + "\r\n" for line in headers))

        leaf, other, v1 = get(LEAF + self.tag), get(LEAF + self.tag + "b"), get(V1 + self.tag)
        escaped = get(LEAF + "%%%02x%s" % (ord(self.tag[0]), self.tag[1:]))
        lines = get(V1 + self.tag, "Accept: text/plain")
        expected = []  # request, status, body
        expected += [(leaf, 200, body) for body in ("1", "2", "3")] + [(other, 200, "1"), (other, 200, "2"), (leaf, 200, "4")]
        expected += [(v1, 200, '{"ids":["%d"]}' % id) for id in (5, 6, 7)] + [(lines, 200, "%d\n" % id) for id in (8, 9, 10)]
        expected += [(escaped, 200, str(id)) for id in (11, 12)] + [(leaf, 200, "13")]
        expected += [(get(V1 + self.tag + "?count=1"), 200, '{"ids":["%d"]}' % id) for id in (14, 15)]
        expected += [(get(V1 + self.tag + "?count=2"), 200, '{"ids":["%d","%d"]}' % (id, id + 1)) for id in (16, 18)]
        expected += [(get(LEAF + "nokey"), 500, None)] * 2 + [(leaf, 200, "20"), (get("/no"), 404, None), (leaf, 200, "21")]
        expected += [(get(LEAF + self.tag, "X-Trace: %d" % id), 200, str(id)) for id in (22, 23)]
        expected += [(leaf, 200, str(id)) for id in range(24, 110)]

        def batch(query, begin, count, body):
            return [(get(V1 + self.tag + query), 200, body(range(id, id + count))) for id in range(begin, begin + 3 * count, count)]

        expected += batch("?count=5&form=range", 110, 5, lambda ids: '{"ranges":[{"begin":"%d","end":"%d"}]}' % (ids[0], ids[-1] + 1))
        expected += batch("?count=1&form=range", 125, 1, lambda ids: '{"ranges":[{"begin":"%d","end":"%d"}]}' % (ids[0], ids[-1] + 1))
        expected += batch("?count=100", 128, 100, lambda ids: '{"ids":["%s"]}' % '","'.join(map(str, ids)))
        expected += batch("?count=4&contiguous=1", 428, 4, lambda ids: '{"ids":["%s"]}' % '","'.join(map(str, ids)))
        expected += [(leaf, 200, "440"), (leaf, 200, "441")]
        with self.daemon.raw() as raw:
            raw.send("".join(request for request, _, _ in expected))
            heads = {}
            for request, status, body in expected:
                answer = raw.response()
                self.assertEqual(answer.status, status, request)
                if body is None:
                    continue
                self.assertEqual(answer.body, body, request)
                head = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
                self.assertEqual(heads.setdefault(request, head), head)
                self.assertEqual(answer.headers["content-length"], str(len(body)))
            # In pieces, with a HEAD, which takes none, and while the tag is paused.
            for cut in (1, 20, len(leaf) - 1, len(leaf), len(leaf) + 1):
                raw.send((leaf * 3)[:cut])
                self.check_healthy()
                raw.send((leaf * 3)[cut:])
                first = int(raw.response().body)
                self.assertEqual([int(raw.response().body) for _ in range(2)], [first + 1, first + 2])
            raw.send(get(LEAF + self.tag, method="HEAD"))
            self.assertEqual(raw.response(head=True).status, 200)
            self.shared.ok("tag", "pause", self.tag)
            raw.send(leaf)
            self.assertEqual(raw.response().status, 500)
            self.shared.ok("tag", "resume", self.tag)
            raw.send(leaf * 2 + get(LEAF + self.tag, "Connection: close") + leaf)
            self.assertEqual([int(raw.response().body) for _ in range(3)], [first + 3, first + 4, first + 5])
            self.assertTrue(raw.at_end())

    def test_the_same_snowflake_request_again(self):
        with self.daemon.raw() as raw:
            last = 0
            for path, count in (("/api/snowflake/get/x", 1), ("/v1/snowflake", 1), ("/v1/snowflake?count=3", 3),
                                ("/v1/snowflake?count=3&form=range", 3)):  # fmt: skip
                raw.send(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path) * 5)
                heads = []
                for _ in range(5):
                    answer = raw.response()
                    self.assertEqual(answer.status, 200, answer.body)
                    if "range" in path:
                        ids = [id for part in json.loads(answer.body)["ranges"] for id in range(int(part["begin"]), int(part["end"]))]
                    else:
                        ids = [int(answer.body)] if path.startswith("/api") else [int(id) for id in json.loads(answer.body)["ids"]]
                    self.assertEqual(len(ids), count)
                    self.assertEqual(sorted(set(ids)), ids)
                    self.assertGreater(ids[0], last)
                    last = ids[-1]
                    self.assertEqual(answer.headers["content-length"], str(len(answer.body)))
                    heads.append({name: value for name, value in answer.headers.items() if name not in ("date", "content-length")})
                self.assertEqual(heads, heads[:1] * 5)

    def test_many_pipelined_requests_and_a_slow_reader(self):
        count = scaled(3000, 500)
        with self.daemon.raw() as raw:
            request = ("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (LEAF + self.tag)).encode()
            writer = threading.Thread(target=raw.send, args=(request * count,))
            writer.start()
            ids = [int(raw.response().body) for _ in range(count)]
            writer.join()
            self.assertEqual(ids, list(range(1, count + 1)))

    def test_request_in_single_bytes(self):
        with self.daemon.raw() as raw:
            raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in ("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (LEAF + self.tag)).encode():
                raw.send(bytes([byte]))
            self.assertEqual(raw.response().body, "1")

    def test_bodies_are_read_and_ignored(self):
        with self.daemon.raw() as raw:
            start = "POST %s HTTP/1.1\r\nHost: localhost\r\n" % (LEAF + self.tag)
            raw.send(start + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\n\r\n\r\n\r\n0\r\n\r\n")
            self.assertEqual(raw.response().body, "1")
            raw.send(start + "Content-Length: 20\r\n\r\nGET /no HTTP/1.1\r\n\r\n")
            self.assertEqual(raw.response().body, "2")
            self.assertEqual(raw.get(LEAF + self.tag).body, "3")

    def test_an_empty_line_before_a_request(self):
        """Some clients send one behind the body of the request before; it may come in pieces, and without more."""
        request = "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (LEAF + self.tag)
        post = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na=b\r\n" % (LEAF + self.tag)
        with self.daemon.raw() as raw:
            raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.send("\r\n" + request + "\r\n\r\n" + request + post + post + request)
            self.assertEqual([raw.response().body for _ in range(5)], ["1", "2", "3", "4", "5"])
            for piece in ("\r", "\n", "\r\n", "\r", "\n" + request[:1], request[1:]):
                raw.send(piece)
            self.assertEqual(raw.response().body, "6")
            raw.send("\r\n")
            raw.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(raw.at_end())
        for broken in ("\r\r\n" + request, "\n\r" + request, " \r\n" + request):
            with self.daemon.raw() as raw:
                raw.send(broken)
                self.assertEqual(raw.response().status, 400)

    def test_body_too_large(self):
        with self.daemon.raw() as raw:
            raw.send("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n" % (LEAF + self.tag))
            response = raw.response()
            self.assertTrue(response is None or response.status == 413, response)
        self.check_next_is(1)

    def test_two_lengths_are_no_way_to_smuggle(self):
        for headers in (
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 4\r\nContent-Length: 5\r\n",
            "Content-Length: -1\r\n",
        ):
            with self.daemon.raw() as raw:
                raw.send("POST /no HTTP/1.1\r\nHost: localhost\r\n%s\r\n0\r\n\r\nGET /no HTTP/1.1\r\nHost: localhost\r\n\r\n" % headers)
                raw.socket.shutdown(socket.SHUT_WR)
                response = raw.response()
                self.assertTrue(response is None or response.status in (400, 501), (headers, response))
                self.assertTrue(raw.at_end(), headers)
        self.check_healthy()

    def test_encoding_that_does_not_end_with_chunked(self):
        with self.daemon.raw() as raw:  # RFC 9112, 6.3: its length is not known, so 400 and the end
            raw.send("POST /no HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n")
            raw.socket.shutdown(socket.SHUT_WR)
            response = raw.response()
            self.assertTrue(response is None or response.status in (400, 501), response)
            self.assertTrue(raw.at_end())

    def test_what_a_proxy_may_read_otherwise_is_refused(self):
        """Two bodies, depending on which word counts: the second would be the next client's request."""
        hidden = "0\r\n\r\nGET /v1/segment/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for fields in (
            "Transfer-Encoding: chunked, chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
        ):
            with self.subTest(fields=fields), self.daemon.raw() as raw:
                raw.send("POST /no HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s" % (fields, hidden))
                response = raw.response()
                self.assertTrue(response is None or response.status in (400, 501), response)
                self.assertTrue(raw.at_end(), "and nothing behind it is taken for a request")
        with self.daemon.raw() as raw:
            raw.send("POST /no HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n")
            self.assertEqual(raw.response().status, 404)

    def test_expect_100_continue(self):
        with self.daemon.raw() as raw:
            raw.socket.settimeout(5)
            raw.send(
                "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n" % (LEAF + self.tag)
            )
            response = raw.response()  # RFC 9110, 10.1.1: 100 or the final answer, without the body
            self.assertIsNotNone(response)
            if response.status == 100:
                raw.send("ab")
                response = raw.response()
            self.assertEqual(response.body, "1")

    def test_absolute_form(self):
        with self.daemon.raw() as raw:  # RFC 9112, 3.2.2: a server accepts it
            response = raw.get("http://127.0.0.1:%d%s" % (self.daemon.port, LEAF + self.tag))
            self.assertEqual((response.status, response.body), (200, "1"))

    def test_huge_headers(self):
        for header in (b"X: " + b"a" * (2 << 20), b"a: b\r\n" * (1 << 19), b"a" * (2 << 20)):
            with self.daemon.raw() as raw:
                try:
                    raw.send(b"GET " + (LEAF + self.tag).encode() + b" HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
                    response = raw.response()
                except ConnectionError:
                    response = None
                self.assertTrue(response is None or response.status in (400, 431), response)
        self.check_next_is(1)
        self.check_healthy()

    def test_many_fields_are_refused_before_the_last_has_come(self):
        with self.daemon.raw() as raw:
            fields = ["X-%d: 1" % i for i in range(90)]
            self.assertEqual(raw.get(LEAF + self.tag, *fields).status, 200)
        with self.daemon.raw() as raw:
            raw.send(b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * 150)
            self.assertEqual(raw.response().status, 431)
            self.assertTrue(raw.at_end())
        # However its bytes come.
        with self.daemon.raw() as raw:
            self.assertEqual(raw.get(LEAF + self.tag, *["a:"] * 150).status, 431)
        self.check_next_is(2)

    def test_header_just_over_the_limit_is_told(self):
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + self.tag, "X: " + "a" * 20000)
            self.assertEqual(response.status, 431)
            self.assertTrue(raw.at_end())
        self.check_next_is(1)

    def test_long_target(self):
        with self.daemon.raw() as raw:
            response = raw.get(LEAF + "x" * 100000)
            self.assertTrue(response is None or response.status in (400, 414, 431), response)
        self.check_healthy()

    def test_garbage(self):
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
            b"hello\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / FTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\0" * 100 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        ):
            with self.daemon.raw() as raw:
                raw.send(garbage)
                response = raw.response()
                self.assertIsNotNone(response, garbage)
                self.assertIn(response.status, (400, 505), garbage)
                self.assertTrue(raw.at_end())
        self.check_healthy()

    def test_half_closed_client_is_answered(self):
        # From the reserve: how long it is waited for a grant is another matter.
        self.assertEqual(self.daemon.leaf(self.tag).body, "1")
        with self.daemon.raw() as raw:
            raw.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (LEAF + self.tag))
            raw.socket.shutdown(socket.SHUT_WR)
            self.assertEqual(raw.response().body, "2")
            self.assertTrue(raw.at_end())

    def test_clients_that_vanish(self):
        for data in ("", "GET", "GET / HTTP/1.1\r\n", "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (LEAF + self.tag)):
            for _ in range(20):
                raw = self.daemon.raw()
                raw.send(data)
                raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                raw.close()
        self.check_healthy()
        self.assertEqual(self.daemon.leaf(self.tag).status, 200)


class Parked(LeafTest):
    """Requests that wait for a grant, and the ends of their connections."""

    def test_answered_by_a_worker_while_its_connection_ends(self):
        # Step 1 parks nearly every request, and each client hangs up as soon as it has its answer: the connection
        # ends on its own thread while the thread that obtained the grant still holds the callback.
        # What a grant takes on a busy machine is not what this is about.
        daemon = self.box.serve("--set", "segment.step_policy=fixed", "--set", "server.request_timeout=60s")
        self.box.ok("tag", "add", "tiny", "--step", "1", "--start", "1")
        count = scaled(1000)
        seen = []

        def ask():
            for _ in range(count // 4):
                response = daemon.get(V1 + "tiny", {"Connection": "close"})
                self.assertEqual(response.status, 200, response)
                seen.append(response.body)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(seen)), count // 4 * 4)
        self.assertEqual(daemon.terminate(), 0)


    def blocked(self, timeout="20s"):
        """A daemon whose database stays locked until the returned connection is closed."""
        self.box.ok("tag", "add", "pay", "--step", "10", "--start", "1")
        daemon = self.box.serve("--set", "segment.step_policy=fixed", "--set", "server.request_timeout=" + timeout)
        daemon.wait_ready()
        lock = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        return daemon, lock

    def park(self, daemon, *paths):
        raw = daemon.raw()
        self.addCleanup(raw.close)
        for path in paths:
            raw.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        return raw

    def waiting(self, daemon):
        status = daemon.tag_status("pay")
        return status["waiting"] if status else 0

    def test_a_client_that_hangs_up_waits_no_longer(self):
        daemon, lock = self.blocked()
        reset = b"\1\0\0\0\0\0\0\0"
        parked = [self.park(daemon, V1 + "pay?count=5000") for _ in range(6)]
        # Hangs up behind further requests, which the daemon has not read yet.
        parked.append(self.park(daemon, V1 + "pay?count=5000", V1 + "pay?count=5000", LEAF + "pay"))
        stays = self.park(daemon, V1 + "pay")
        poll(lambda: self.waiting(daemon) == 8, "8 parked")
        for i, raw in enumerate(parked):
            if i % 2:
                raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            raw.close()
        poll(lambda: self.waiting(daemon) == 1, "the requests of the clients that left are gone")
        lock.execute("ROLLBACK")
        response = stays.response()
        self.assertEqual((response.status, response.body), (200, '{"ids":["1"]}'))
        # Nothing was reserved for the clients that left.
        self.assertLess(int(json.loads(self.box.ok("tag", "show", "pay", "--json"))["max_id"]), 1000)
        self.assertEqual(daemon.terminate(), 0)

    def test_a_client_that_stops_sending_is_told(self):
        daemon, lock = self.blocked()
        raw = self.park(daemon, V1 + "pay")
        poll(lambda: self.waiting(daemon) == 1, "parked")
        raw.socket.shutdown(socket.SHUT_WR)
        response = raw.response()
        self.assertEqual(response.status, 503)
        self.assertIn("hung up", response.body)
        self.assertTrue(raw.at_end())
        self.assertEqual(self.waiting(daemon), 0)

    def test_pipelined_behind_a_parked_one(self):
        daemon, lock = self.blocked()
        raw = self.park(daemon, V1 + "pay", V1 + "pay", LEAF + "pay")
        poll(lambda: self.waiting(daemon) == 1, "parked")
        time.sleep(0.1)
        raw.send("GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.1)
        lock.execute("ROLLBACK")
        bodies = [raw.response().body for _ in range(4)]
        self.assertEqual(bodies[:3], ['{"ids":["1"]}', '{"ids":["2"]}', "3"])
        self.assertIn("ready", bodies[3])

    def test_pipelined_by_a_client_that_stops_sending(self):
        self.box.ok("tag", "add", "pay", "--step", "10", "--start", "1")
        daemon = self.box.serve()
        daemon.ids("pay")  # from the reserve: a client that has to wait, and stops sending, is told that it hung up
        raw = self.park(daemon, V1 + "pay", LEAF + "pay")
        raw.socket.shutdown(socket.SHUT_WR)
        self.assertEqual([raw.response().body for _ in range(2)], ['{"ids":["2"]}', "3"])
        self.assertTrue(raw.at_end())

    def test_more_pipelined_than_is_read_ahead(self):
        daemon, lock = self.blocked()
        count = 1000  # of some 60 bytes
        raw = self.park(daemon, *[V1 + "pay"] * count)
        poll(lambda: self.waiting(daemon) == 1, "parked")
        lock.execute("ROLLBACK")
        ids = [json.loads(raw.response().body)["ids"][0] for _ in range(count)]
        self.assertEqual(ids, [str(i + 1) for i in range(count)])


class Limits(LeafTest):
    def test_header_timeout(self):
        daemon = self.box.serve("--set", "server.header_timeout=300ms")
        with daemon.raw() as raw:
            raw.send("GET /health/live HTTP/1.1\r\nHo")
            response = raw.response()
            self.assertTrue(response is None or response.status == 408, response)
        with daemon.raw() as raw:  # one that always sends a little more
            stop = threading.Event()

            def drip():
                try:
                    raw.send("GET /health/live HTTP/1.1\r\nX: ")
                    while not stop.wait(0.05):
                        raw.send("a")
                except OSError:
                    pass

            dripper = threading.Thread(target=drip)
            dripper.start()
            try:
                response = raw.response()
                self.assertTrue(response is None or response.status == 408, response)
            finally:
                stop.set()
                dripper.join()
        self.assertEqual(daemon.get("/health/live").status, 200)

    def test_empty_lines_put_no_deadline_off(self):
        daemon = self.box.serve("--set", "server.header_timeout=2s", "--set", "server.idle_timeout=170s")
        with daemon.raw() as raw:
            ended = threading.Event()

            def drip():
                while not ended.wait(0.2):
                    try:
                        raw.send("\r\n")
                    except OSError:
                        return

            dripper = threading.Thread(target=drip)
            dripper.start()
            try:
                self.assertTrue(raw.at_end())
            except ConnectionResetError:
                pass
            finally:
                ended.set()
                dripper.join()

    def test_slow_body_too(self):
        daemon = self.box.serve("--set", "server.header_timeout=300ms")
        with daemon.raw() as raw:
            raw.send("POST /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
            response = raw.response()
            self.assertTrue(response is None or response.status in (405, 408), response)

    def test_idle_timeout(self):
        daemon = self.box.serve("--set", "server.idle_timeout=300ms")
        with daemon.raw() as fresh, daemon.raw() as used:
            self.assertEqual(used.get("/health/live").status, 200)
            self.assertTrue(used.at_end())
            self.assertTrue(fresh.at_end())

    def test_client_that_never_reads(self):
        daemon = self.box.serve("--set", "server.header_timeout=300ms")
        self.box.ok("tag", "add", "pay", "--step", "1000000")
        with daemon.raw() as raw:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = "GET /v1/segment/pay?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            raw.send(request * 20)
            poll(lambda: (daemon.tag_status("pay") or {}).get("issued", 0) > 0, "some answer")
            self.assertEqual(daemon.leaf("pay").status, 200)
            self.assertEqual(daemon.terminate(), 0)

    def test_max_connections(self):
        daemon = self.box.serve("--set", "server.max_connections=4")
        daemon.disconnect()
        held = []

        def take_all():
            # The daemon sees the end of the readiness probe's connection in its own time.
            while len(held) < 4:
                raw = daemon.raw()
                try:
                    response = raw.get("/v1/clock")
                except ConnectionError:
                    response = None
                # One too many is told so, and is not one of the four.
                if response is None or response.status != 200:
                    raw.close()
                    return False
                held.append(raw)
            return True

        poll(take_all, "four connections")
        with daemon.raw() as fifth:
            try:
                response = fifth.get("/v1/clock")
            except ConnectionError:
                response = None
            self.assertTrue(response is None or response.status == 503, response)
        for raw in held:
            self.assertEqual(raw.get("/v1/clock").status, 200)
        held.pop().close()

        def served():
            with daemon.raw() as raw:
                try:
                    response = raw.get("/v1/clock")
                except ConnectionError:
                    return False
                return response is not None and response.status == 200

        poll(served, "a connection after one was given back")
        for raw in held:
            raw.close()

    def test_max_count(self):
        daemon = self.box.serve("--set", "server.max_count=10")
        self.box.ok("tag", "add", "pay")
        self.assertEqual(daemon.v1("pay", 10).status, 200)
        error = self.check_v1_error(daemon.v1("pay", 11), 413, "too_large")
        self.assertIn("10", error["message"])
        # `next` splits by itself.
        ids = self.box.next("pay", "-n", "35", "--server", daemon.url)
        self.assertEqual(ids, list(range(11, 46)))


class Hosts(LeafTest):
    """What a web page could ask, that lets a name of its own resolve to this machine (DNS rebinding)."""

    PATHS = ("/v1/status", "/v1/workers", "/v1/segment/pay", "/api/segment/get/pay", "/api/snowflake/get/x", "/metrics", "/health/live", "/")

    def status(self, daemon, host, path="/v1/clock", *headers):
        with daemon.raw() as raw:
            request = ("GET %s HTTP/1.1" % path, "Host: " + host, *headers)
            raw.send("".join(line + "\r\n" for line in request) + "\r\n")
            response = raw.response()
            self.assertIsNotNone(response, request)
            if response.status == 421:
                self.assertIn("server.allowed_hosts", response.body)
                if path.startswith("/v1/"):
                    self.check_v1_error(response, 421, "refused")
                self.assertTrue(raw.at_end(), "no more requests are answered")
            return response.status

    def check_hosts(self, daemon, good, bad):
        for headers in ((), ("Connection: close",)):
            for host in good:
                self.assertEqual(self.status(daemon, host, "/v1/clock", *headers), 200, host)
            for host in bad:
                self.assertEqual(self.status(daemon, host, "/v1/clock", *headers), 421, host)

    def test_on_loopback(self):
        daemon = self.box.serve()
        self.box.ok("tag", "add", "pay")
        good = ("127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:80", "localhost", "LocalHost:1", "a.localhost", "localhost.", "")
        bad = ("evil.example", "evil.example:8080", "EVIL.EXAMPLE.", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3", "xlocalhost")
        self.check_hosts(daemon, (*good, socket.gethostname(), socket.gethostname().upper() + ":80"), bad)
        for path in self.PATHS:
            self.assertEqual(self.status(daemon, "evil.example", path), 421, path)
        self.assertEqual((daemon.tag_status("pay") or {}).get("issued", 0), 0)
        # A connection that was good once is not good for any name.
        with daemon.raw() as raw:
            self.assertEqual(raw.get("/v1/clock").status, 200)
            raw.send("GET /v1/clock HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            self.assertEqual(raw.response().status, 421)
        # HTTP/1.0 needs no Host, and the Unix socket is no web page's.
        with daemon.raw() as raw:
            raw.send("GET /v1/clock HTTP/1.0\r\n\r\n")
            self.assertEqual(raw.response().status, 200)
        with RawConnection(os.path.join(self.box.state, "leafctl.sock")) as raw:
            raw.send("GET /v1/clock HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            self.assertEqual(raw.response().status, 200)
        self.assertIn('code="421"', daemon.get("/metrics").body)

    def test_on_all_addresses(self):
        daemon = self.box.serve(listen=("0.0.0.0:0",))
        self.check_hosts(daemon, ("leaf.example", "127.0.0.1", "localhost"), ())

    def test_names_that_are_allowed(self):
        for listen in ("127.0.0.1:0", "0.0.0.0:0"):
            daemon = self.box.serve("--set", "server.allowed_hosts=leaf.example,*.ids.example", listen=(listen,))
            good = ("leaf.example", "LEAF.example:99", "a.ids.example", "a.b.ids.example", "127.0.0.1", "localhost")
            self.check_hosts(daemon, good, ("evil.example", "ids.example", "a.leaf.example", "xids.example"))
            self.assertEqual(daemon.terminate(), 0)
        # Its peers call it by what it tells them.
        daemon = self.box.serve("--set", "snowflake.advertise=http://node1.example:8080")
        self.check_hosts(daemon, ("node1.example:8080", "node1.example"), ("node2.example",))
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.box.serve("--set", "server.allowed_hosts=*")
        self.check_hosts(daemon, ("evil.example",), ())
        for name in ("a b", "leaf.example:80", "http://leaf.example", "*.", ".example", "*x"):
            self.check(self.box.run(["config", "check", "--set", "server.allowed_hosts=" + name]), 2, "allowed_hosts")


class Drain(LeafTest):
    def lock_database(self):
        """Holds SQLite's write lock, so that a grant has to wait."""
        connection = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        self.addCleanup(connection.close)
        return connection

    def park(self, daemon, tag="pay"):
        raw = daemon.raw()
        self.addCleanup(raw.close)
        raw.send("GET /v1/segment/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % tag)
        poll(lambda: (daemon.tag_status(tag) or {}).get("waiting") == 1, "the request is parked")
        daemon.disconnect()
        return raw

    def begin_drain(self, daemon):
        """SIGTERM, until it has got around."""
        with daemon.raw() as idle:
            self.assertEqual(idle.get("/health/live").status, 200)
            daemon.signal(signal.SIGTERM)
            self.assertTrue(idle.at_end())

    def test_idle_daemon_ends_with_0(self):
        daemon = self.box.serve()
        idle = daemon.raw()
        self.addCleanup(idle.close)
        self.assertEqual(idle.get("/health/live").status, 200)
        self.assertEqual(daemon.terminate(), 0)
        self.assertTrue(idle.at_end())
        self.assertFalse(os.path.exists(os.path.join(self.box.state, "leafctl.sock")))

    def test_sigint_too(self):
        daemon = self.box.serve()
        daemon.signal(signal.SIGINT)
        self.assertEqual(daemon.wait(), 0)

    def test_parked_request_is_finished(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve("--set", "server.request_timeout=60s", "--set", "server.drain_timeout=60s")
        lock = self.lock_database()
        raw = self.park(daemon)
        self.begin_drain(daemon)
        lock.execute("ROLLBACK")
        response = raw.response()
        self.assertEqual((response.status, response.body), (200, '{"ids":["1"]}'))
        self.assertEqual(response.headers.get("connection"), "close")
        self.assertTrue(raw.at_end())
        self.assertEqual(daemon.wait(), 0)

    def test_new_connections_are_refused_while_draining(self):
        """A load balancer must not have its requests swallowed: the port closes at once."""
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve("--set", "server.request_timeout=60s", "--set", "server.drain_timeout=60s")
        lock = self.lock_database()
        self.park(daemon)
        self.begin_drain(daemon)

        for _ in range(10):
            try:
                with daemon.raw() as raw:
                    raw.socket.settimeout(5)
                    response = raw.get("/health/ready")
            except ConnectionRefusedError:
                break
            except socket.timeout:
                self.fail("a new connection is taken and never answered")
            self.assertTrue(response is None or response.status == 503, response)
        lock.execute("ROLLBACK")
        self.assertEqual(daemon.wait(), 0)

    def test_drain_timeout_bounds_the_wait(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve("--set", "server.request_timeout=300s", "--set", "server.drain_timeout=200ms")
        lock = self.lock_database()
        raw = self.park(daemon)
        self.assertEqual(daemon.terminate(), 0)
        response = raw.response()
        self.assertTrue(response is None or response.status == 503, response)
        lock.execute("ROLLBACK")
        # Whatever became of that grant, nothing repeats.
        first = self.box.next("pay", "--direct")[0]
        self.assertGreaterEqual(first, 1)

    def test_second_signal_ends_at_once(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve("--set", "server.request_timeout=300s", "--set", "server.drain_timeout=300s")
        self.lock_database()
        self.park(daemon)
        daemon.signal(signal.SIGTERM)
        daemon.wait_log("draining")
        daemon.signal(signal.SIGTERM)
        self.assertIn(daemon.wait(timeout=10), (0, 130, 143, -signal.SIGTERM))

    def test_readiness_is_lost_while_draining(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve("--set", "server.request_timeout=60s", "--set", "server.drain_timeout=60s")
        lock = self.lock_database()
        self.park(daemon)
        with daemon.raw() as probe:
            # Half of a request is in flight when the drain begins: it is finished, and the answer is no.
            probe.send("GET /health/ready HTTP/1.1\r\n")
            # Its bytes have arrived once a later request of another connection is answered by each thread.
            for _ in range(50):
                daemon.get("/health/live")
                daemon.disconnect()
            self.begin_drain(daemon)
            probe.send("Host: localhost\r\n\r\n")
            response = probe.response()
            self.assertIsNotNone(response)
            self.assertEqual(response.status, 503)
            self.assertIs(json.loads(response.body)["ready"], False)
        lock.execute("ROLLBACK")
        self.assertEqual(daemon.wait(), 0)

    def test_drained_tag_times_out_with_retry_after(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve("--set", "server.request_timeout=200ms")
        lock = self.lock_database()
        response = daemon.v1("pay")
        self.check_v1_error(response, 503)
        self.assertRegex(response.headers["Retry-After"], r"^\d+$")
        self.check_leaf_error(daemon.leaf("pay"), -3)
        lock.execute("ROLLBACK")
        poll(lambda: daemon.v1("pay").status == 200, "the tag is back")


class Sockets(LeafTest):
    def test_unix_socket(self):
        daemon = self.box.serve()
        path = os.path.join(self.box.state, "leafctl.sock")
        self.box.ok("tag", "add", "pay")
        with RawConnection(path) as raw:
            self.assertEqual(raw.get(LEAF + "pay").body, "1")
            self.assertEqual(raw.get(V1 + "pay?count=2").body, '{"ids":["2","3"]}')
        self.assertEqual(self.box.next("pay", "--server", "unix:" + path), [4])
        self.assertEqual(self.box.next("pay", "--server", daemon.url), [5])

    def test_socket_elsewhere_and_none(self):
        path = self.box.path("my.sock")
        self.box.serve("--socket", path)
        self.assertTrue(os.path.exists(path))
        self.assertFalse(os.path.exists(os.path.join(self.box.state, "leafctl.sock")))
        other = Sandbox()
        self.addCleanup(other.close)
        other.serve("--socket", "")
        self.assertFalse(os.path.exists(os.path.join(other.state, "leafctl.sock")))

    def test_several_listen_addresses(self):
        daemon = self.box.serve(listen=("127.0.0.1:0", "127.0.0.1:0"))
        daemon.wait_log("serves")
        ports = [line.rsplit(":", 1)[1] for line in daemon.lines if "listening on http://" in line]
        self.assertEqual(len(set(ports)), 2)
        for port in ports:
            with RawConnection(("127.0.0.1", int(port))) as raw:
                self.assertEqual(raw.get("/health/live").status, 200)

    def test_port_in_use(self):
        daemon = self.box.serve()
        other = Sandbox()
        self.addCleanup(other.close)
        address = "127.0.0.1:%d" % daemon.port
        self.check(other.run(["serve", "--listen", address]), 11, address, "in use")
        # So does a wildcard listener in front of a special one.
        self.check(other.run(["serve", "--listen", "0.0.0.0:%d" % daemon.port]), 11, "in use")
        self.assertEqual(daemon.get("/health/live").status, 200)

    def test_state_directory_in_use(self):
        daemon = self.box.serve()
        result = self.box.run(["serve", "--listen", "127.0.0.1:0", "--socket", ""])
        self.check(result, 11, self.box.state, str(daemon.process.pid))
        self.assertEqual(daemon.get("/health/live").status, 200)
        # Its end frees the directory, kill -9 included.
        daemon.kill()
        self.box.serve()

    def test_stale_socket_is_replaced(self):
        daemon = self.box.serve()
        path = os.path.join(self.box.state, "leafctl.sock")
        daemon.kill()
        self.assertTrue(os.path.exists(path))
        self.box.ok("tag", "add", "pay")
        self.assertEqual(self.box.next("pay"), [1])  # a dead socket is no daemon
        self.box.serve()
        self.assertEqual(self.box.next("pay", "--server", "unix:" + path), [2])

    def test_live_socket_is_not_stolen(self):
        path = self.box.path("my.sock")
        self.box.serve("--socket", path)
        other = Sandbox()
        self.addCleanup(other.close)
        self.check(other.run(["serve", "--listen", "127.0.0.1:0", "--socket", path]), 11, path)
        with RawConnection(path) as raw:
            self.assertEqual(raw.get("/health/live").status, 200)

    def test_a_file_in_the_way_is_left_alone(self):
        path = self.box.write("my.sock", "precious")
        result = self.box.run(["serve", "--listen", "127.0.0.1:0", "--socket", path])
        self.check(result, 6, path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    def test_socket_path_too_long(self):
        result = self.box.run(["serve", "--listen", "127.0.0.1:0", "--socket", self.box.path("x" * 200)])
        self.check(result, 6, "x" * 200)

    def test_socket_that_may_not_be_opened(self):
        """Never a fall-through to the next server or to the store."""
        self.box.open_to_others()
        self.box.ok("tag", "add", "pay")
        path = self.box.path("my.sock")
        daemon = self.box.serve("--socket", path)
        os.chmod(path, 0)
        mine = self.box.path("mine")
        os.mkdir(mine)
        user = self.box.without_rights()
        if os.geteuid() == 0:
            os.chown(mine, NOBODY, NOBODY)

        env = {"LEAFCTL_STATE_DIR": mine, "HOME": mine}
        for servers in (["--server", "unix:" + path], ["--server", "unix:" + path, "--server", daemon.url]):
            result = self.box.run(["next", "pay", *servers], env=env, **user)
            self.check(result, 4, path)
        config = {"LEAFCTL_CLIENT_SERVERS": "unix:" + path, **env}
        self.check(self.box.run(["next", "pay"], env=config, **user), 4, path)
        self.check(self.box.run(["status"], env=config, **user), 4, path)

    def test_default_socket_that_may_not_be_opened(self):
        self.box.open_to_others()
        self.box.ok("tag", "add", "pay")
        self.box.serve()
        os.chmod(os.path.join(self.box.state, "leafctl.sock"), 0)

        result = self.box.run(["next", "pay"], **self.box.without_rights())
        self.check(result, 4, "leafctl.sock")

    def test_no_daemon(self):
        unused = socket.socket()
        unused.bind(("127.0.0.1", 0))
        self.addCleanup(unused.close)
        url = "http://127.0.0.1:%d" % unused.getsockname()[1]
        self.box.ok("tag", "add", "pay")
        self.check(self.box.run(["next", "pay", "--server", url]), 7, url)
        self.check(self.box.run(["status", "--server", url]), 7, url)
        self.check(self.box.run(["next", "pay", "--server", "unix:" + self.box.path("none.sock")]), 7, "none.sock")
        # The second one answers.
        daemon = self.box.serve()
        self.assertEqual(self.box.next("pay", "--server", url, "--server", daemon.url), [1])

    def test_a_server_that_is_no_leafctl(self):
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = "http://127.0.0.1:%d" % listener.getsockname()[1]
        answers = [
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nshort",
            b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{"ids":["1","1e9"]}',
            b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"ids":[1]}',
            b'HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\n{"ranges":[{"begin":"9","end":"5"}]}'[:-2],
            b'HTTP/1.1 200 OK\r\nContent-Length: 48\r\n\r\n{"ranges":[{"begin":"0","end":"18446744073709"}]}'[:-1],
            b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n",
            # Not to be taken for an unknown tag: a script might add it.
            b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>no</p>",
        ]

        def serve(answer):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        for answer in answers:
            server = threading.Thread(target=serve, args=(answer,))
            server.start()
            result = self.box.run(["next", "pay", "--server", url, "--timeout", "5s"])
            server.join(DEADLINE_S)
            self.assertNotEqual(result.rc, 0, (answer, result))
            self.assertEqual(result.out, "", answer)
            self.assertIn(result.rc, (1, 7, 8), (answer, result))

    def test_a_server_that_never_answers(self):
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = "http://127.0.0.1:%d" % listener.getsockname()[1]
        result = self.box.run(["next", "pay", "--server", url, "--timeout", "300ms"])
        self.assertIn(result.rc, (7, 8), result)
        self.assertEqual(result.out, "")


if __name__ == "__main__":
    main()
