#!/usr/bin/env python3
"""What the daemon tells about itself: /metrics, /v1/status, Leaf's pages /cache and /db, and `leafctl status`."""

import html
import json
import os
import re
import sqlite3
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import freeze
import metrics
from leafctl import LeafTest, main, poll, scaled


class Observed(LeafTest):
    def table(self, statement, rows):
        connection = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), timeout=60)
        connection.executemany(statement, rows)
        connection.commit()
        connection.close()

    def add_tags(self, names, step=100):
        """Through the table: ten thousand commands would take too long."""
        self.box.ok("db", "init")
        self.table("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 1, %d)" % step, [(n,) for n in names])


class Metrics(Observed):
    def test_counts_are_exact(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        self.box.ok("tag", "add", "order", "--step", "1000")
        daemon = self.box.serve("--set", "server.max_count=500", "--set", "segment.step_policy=fixed")
        before = metrics.of(daemon)
        for _ in range(7):
            self.assertEqual(daemon.leaf("pay").status, 200)
        daemon.ids("pay", 93)
        daemon.ids("order", 500)
        self.assertEqual(daemon.v1("order", 501).status, 413)
        self.assertEqual(daemon.v1("nope").status, 404)
        self.check_leaf_error(daemon.leaf("nope"), -2)
        self.assertEqual(len(json.loads(daemon.get("/v1/snowflake?count=250").body)["ids"]), 250)
        self.assertEqual(daemon.get("/api/snowflake/get/x").status, 200)
        self.assertEqual(daemon.get("/nothing/here").status, 404)
        self.assertEqual(daemon.request("POST", "/metrics").status, 405)
        with daemon.raw() as raw:
            raw.send("NONSENSE\r\n\r\n")
            self.assertEqual(raw.response().status, 400)
        after = metrics.of(daemon)
        self.assertEqual(after.get("leaf_segment_ids_issued_total"), 600)
        self.assertEqual(after.get("leaf_tag_ids_issued_total", tag="pay"), 100)
        self.assertEqual(after.get("leaf_tag_ids_issued_total", tag="order"), 500)
        self.assertEqual(after.get("leaf_snowflake_ids_issued_total"), 251)
        self.assertEqual(after.get("leaf_segment_errors_total", cause="not_found"), 2)
        self.assertEqual(after.get("leaf_segment_ids_wasted_total"), 0)
        # What was granted is issued or in reserve.
        self.assertEqual(
            after.get("leaf_segment_ids_granted_total"), 600 + after.get("leaf_segment_reserve_ids"), after.text
        )
        self.assertGreaterEqual(after.get("leaf_tag_waits_total", tag="pay"), 1)
        self.assertEqual(after.get("leaf_tag_step_ids", tag="pay"), 1000)
        self.assertEqual(after.get("leaf_tag_frozen", tag="pay"), 0)

        def requests(code, route):
            name = "leaf_http_requests_total"
            return after.get(name, 0, route=route, code=code) - before.get(name, 0, route=route, code=code)

        self.assertEqual(requests("200", "/api/segment/get"), 7)
        self.assertEqual(requests("500", "/api/segment/get"), 1)
        self.assertEqual(requests("200", "/v1/segment"), 2)
        self.assertEqual(requests("413", "/v1/segment"), 1)
        self.assertEqual(requests("404", "/v1/segment"), 1)
        self.assertEqual(requests("200", "/v1/snowflake"), 1)
        self.assertEqual(requests("200", "/api/snowflake/get"), 1)
        self.assertEqual(requests("404", "other"), 1)
        self.assertEqual(requests("400", "other"), 1)
        self.assertEqual(requests("405", "/metrics"), 1)
        # A scrape counts from its answer on.
        self.assertEqual(requests("200", "/metrics"), 1)
        for route in ("/api/segment/get", "/v1/segment", "/v1/snowflake"):
            name = "leaf_http_request_duration_seconds"
            count = after.get(name + "_count", route=route)
            self.assertEqual(count, sum(after.get("leaf_http_requests_total", 0, route=route, code=code)
                                        for code in ("200", "404", "413", "500")))  # fmt: skip
            self.assertEqual(after.get(name + "_bucket", route=route, le="+Inf"), count)
            self.assertGreater(after.get(name + "_sum", route=route), 0)
        self.assertGreaterEqual(after.get("leaf_http_connections"), 1)
        self.assertEqual(after.get("leaf_ready"), 1)
        self.assertEqual(after.get("leaf_dependency_up", dependency="database", kind="sqlite"), 1)
        self.assertEqual(after.get("leaf_snowflake_state", state="issuing"), 1)
        self.assertEqual(after.get("leaf_snowflake_worker"), daemon.status()["snowflake"]["worker"])
        self.assertGreater(after.get("leaf_snowflake_exhaustion_seconds"), 40 * 365 * 86400)
        self.assertGreater(after.get("process_resident_memory_bytes"), 1 << 20)
        self.assertGreater(after.get("process_open_fds"), 3)

    def test_a_duration_from_microseconds_to_seconds_has_a_bucket(self):
        daemon = self.box.serve()
        daemon.get("/health/live")
        bounds = [
            float(dict(labels)["le"])
            for name, labels in metrics.of(daemon).samples
            if name == "leaf_http_request_duration_seconds_bucket" and ("route", "/health") in labels
        ]
        self.assertGreaterEqual(len([bound for bound in bounds if bound < 50e-6]), 3, bounds)
        self.assertGreaterEqual(len([bound for bound in bounds if 1 < bound < float("inf")]), 3, bounds)
        self.assertEqual(bounds, sorted(bounds))

    def test_promtool_finds_nothing_to_mend(self):
        names = ["pay", 'say "hi"', "back\\slash", "中文 tag", "{brace=\"x\"}", "<script>", "a,b", "x" * 128]
        self.add_tags(names)
        daemon = self.box.serve("--set", "segment.refresh_interval=100ms")
        for name in names:
            daemon.ids(name, 3)
        self.table("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = ?", [("pay",)])
        poll(lambda: daemon.v1("pay").status == 409, "a frozen tag")
        response = daemon.get("/metrics")
        self.assertEqual(response.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(metrics.promtool_check(response.body), "")
        read = metrics.Metrics(response.body)
        self.assertEqual(set(read.values("leaf_tag_ids_issued_total", "tag")), set(names))
        self.assertEqual(read.get("leaf_tag_frozen", tag="pay"), 1)
        self.assertEqual(read.get("leaf_segment_tags", state="frozen"), 1)
        self.assertGreaterEqual(read.get("leaf_tag_errors_total", tag="pay", cause="frozen"), 1)
        self.assertGreater(read.get("leaf_segment_ids_wasted_total"), 0)
        head = daemon.request("HEAD", "/metrics")
        self.assertEqual((head.status, head.body), (200, ""))

    def test_each_mode_can_be_off(self):
        for off, families in (("segment", "leaf_segment_"), ("snowflake", "leaf_snowflake_")):
            with self.subTest(off):
                daemon = self.box.serve("--set", off + ".enabled=false")
                read = metrics.of(daemon)
                self.assertEqual(metrics.promtool_check(read.text), "")
                self.assertEqual([name for name in read.types if name.startswith(families)], [])
                daemon.terminate()

    def test_few_tags_have_metrics_of_their_own_and_all_are_in_the_totals(self):
        names = ["tag-%02d" % i for i in range(20)]
        self.add_tags(names)
        daemon = self.box.serve("--set", "metrics.top_tags=3", "--set", "segment.refresh_interval=100ms")
        for i, name in enumerate(names):
            daemon.ids(name, i + 1)
        # The smallest is in trouble: that goes first.
        self.table("UPDATE leaf_alloc SET max_id = 0 WHERE biz_tag = ?", [("tag-00",)])
        poll(lambda: daemon.tag_status("tag-00")["state"] == "frozen", "a frozen tag")
        read = metrics.of(daemon)
        shown = read.values("leaf_tag_ids_issued_total", "tag")
        self.assertEqual(len(shown), 3, shown)
        self.assertIn("tag-00", shown)
        self.assertEqual(read.get("leaf_segment_ids_issued_total"), sum(range(1, 21)))
        self.assertEqual(read.get("leaf_segment_tags", state="active"), 19)
        self.assertEqual(read.get("leaf_segment_tags", state="frozen"), 1)
        daemon.terminate()
        none = self.box.serve("--set", "metrics.top_tags=0")
        read = metrics.of(none)
        self.assertEqual([name for name in read.types if name.startswith("leaf_tag_")], [])
        self.assertEqual(metrics.promtool_check(read.text), "")

    def test_a_paused_tag_has_a_state_of_its_own(self):
        self.add_tags(["pay", "order", "idle"])
        daemon = self.box.serve("--set", "metrics.top_tags=1")
        daemon.ids("pay", 3)
        daemon.ids("order", 3)
        self.assertEqual(metrics.of(daemon).values("leaf_tag_paused_timestamp_seconds", "tag"), {})
        before = time.time()
        self.box.ok("tag", "pause", "pay")
        states = {"idle": 1, "active": 1, "frozen": 0, "paused": 1}
        read = metrics.of(daemon)
        self.assertEqual(read.values("leaf_segment_tags", "state"), states)
        # One that is paused has metrics of its own before those that are well.
        (since,) = read.values("leaf_tag_paused_timestamp_seconds", "tag").items()
        self.assertEqual(since[0], "pay")
        self.assertGreater(since[1], before - 60)
        self.assertLess(since[1], time.time() + 60)
        totals = daemon.status()["segment"]["totals"]
        self.assertEqual((totals["frozen"], totals["paused"]), (0, 1))
        self.assertEqual(daemon.tag_status("pay")["state"], "paused")
        # The next process knows since when, too.
        daemon.terminate()
        daemon = self.box.serve("--set", "segment.refresh_interval=100ms")
        poll(lambda: metrics.of(daemon).get("leaf_segment_tags", state="paused") == 1, "the table is read")
        self.assertEqual(metrics.of(daemon).get("leaf_tag_paused_timestamp_seconds", tag="pay"), since[1])
        self.assertEqual(metrics.promtool_check(metrics.of(daemon).text), "")
        # A frozen tag needs an operator, paused or not: it counts as frozen, wherever one looks.
        self.table("UPDATE leaf_alloc SET max_id = 0 WHERE biz_tag = ?", [("pay",)])
        poll(lambda: metrics.of(daemon).get("leaf_segment_tags", state="frozen") == 1, "a frozen tag")
        read = metrics.of(daemon)
        self.assertEqual(read.get("leaf_segment_tags", state="paused"), 0)
        self.assertEqual(read.get("leaf_tag_frozen", tag="pay"), 1)
        totals = daemon.status()["segment"]["totals"]
        self.assertEqual((totals["frozen"], totals["paused"]), (1, 0))
        self.box.ok("tag", "repair", "pay", "--confirm", "pay")
        poll(lambda: metrics.of(daemon).get("leaf_segment_tags", state="paused") == 1, "a tag that has thawed")
        self.box.ok("tag", "resume", "pay")
        self.assertEqual(metrics.of(daemon).get("leaf_segment_tags", state="paused"), 0)

    def test_totals_never_go_back_while_tags_come_and_go(self):
        rounds = scaled(30, 8)
        names = ["stays", "goes-a", "goes-b", "goes-c"]
        for name in names:
            self.box.ok("tag", "add", name, "--step", "50")
        daemon = self.box.serve("--set", "segment.refresh_interval=100ms", "--set", "metrics.top_tags=2")
        received = {name: 0 for name in names}
        stop = threading.Event()

        def take(name):
            while not stop.is_set():
                response = daemon.v1(name, 3)
                if response.status == 200:
                    received[name] += len(json.loads(response.body)["ids"])
            daemon.disconnect()

        takers = [threading.Thread(target=take, args=(name,)) for name in names]
        for taker in takers:
            taker.start()
        try:
            last = {}
            for i in range(rounds):
                name = names[1 + i % 3]
                if i % 2 == 0:
                    self.box.ok("tag", "remove", name, "--yes", "--if-present")
                else:
                    for absent in names[1:]:
                        self.box.ok("tag", "add", absent, "--step", "50", "--if-absent")
                for _ in range(3):
                    read = metrics.of(daemon)
                    for key, value in read.samples.items():
                        if not key[0].startswith("leaf_segment_") or not re.search("_(total|count|sum|bucket)$", key[0]):
                            continue
                        self.assertGreaterEqual(value, last.get(key, 0), "%s went back" % (key,))
                        last[key] = value
        finally:
            stop.set()
            for taker in takers:
                taker.join()
        self.assertGreater(min(received.values()), 0)
        self.assertEqual(metrics.of(daemon).get("leaf_segment_ids_issued_total"), sum(received.values()))

    def test_a_scrape_of_many_tags_keeps_no_request_waiting(self):
        self.add_tags("tag-%05d" % i for i in range(scaled(10_000, 2000)))
        # Reading twelve of them may take this process longer than a client that reads nothing has.
        daemon = self.box.serve(
            "--set", "server.threads=1", "--set", "metrics.top_tags=2000", "--set", "server.header_timeout=10m"
        )
        daemon.ids("tag-00001")

        def answered_between():
            """Scrapes that were asked for before the request and made after it was answered."""
            counted = metrics.of(daemon).get("leaf_http_requests_total", route="/v1/segment", code="200")
            scrapes = [daemon.raw() for _ in range(12)]
            for scrape in scrapes:
                scrape.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            daemon.ids("tag-00001")
            later = 0
            for scrape in scrapes:
                read = metrics.Metrics(scrape.response().body)
                scrape.close()
                later += read.get("leaf_http_requests_total", route="/v1/segment", code="200") > counted
            return later >= 3

        # One thread makes all reports, another one serves; this process is the one that may be late.
        poll(answered_between, "a request overtakes the scrapes")


class Status(Observed):
    def get(self, daemon, query):
        response = daemon.get("/v1/status?" + query)
        self.assertEqual(response.status, 200, response.body)
        return json.loads(response.body)

    def test_searches_sorts_and_pages(self):
        names = ["tag-%03d" % i for i in range(200)] + ["Ärger 中文"]
        self.add_tags(names)
        daemon = self.box.serve()
        daemon.ids("tag-150", 50)
        daemon.ids("tag-007", 20)

        def tags(query):
            segment = self.get(daemon, query)["segment"]
            return [tag["tag"] for tag in segment["tags"]], segment["tags_matching"], segment["tags_total"]

        everything, matching, total = tags("")
        self.assertEqual((everything, matching, total), (sorted(names), 201, 201))
        self.assertEqual(tags("limit=3&offset=10"), (["tag-010", "tag-011", "tag-012"], 201, 201))
        self.assertEqual(tags("limit=0"), ([], 201, 201))
        self.assertEqual(tags("offset=500&limit=5"), ([], 201, 201))
        self.assertEqual(tags("search=TAG-15&limit=2"), (["tag-150", "tag-151"], 10, 201))
        self.assertEqual(tags("search=" + urllib.parse.quote("ger 中"))[0], ["Ärger 中文"])
        self.assertEqual(tags("search=%20no%20such%20tag"), ([], 0, 201))
        self.assertEqual(tags("sort=issued&limit=2")[0], ["tag-150", "tag-007"])
        self.assertEqual(sorted(tags("sort=trouble")[0]), sorted(names))
        for bad in ("sort=colour", "limit=-1", "limit=x", "offset=", "problems=1&problems=2", "offset=1.5"):
            self.check_v1_error(daemon.get("/v1/status?" + bad), 400, "invalid_argument")
        status = self.get(daemon, "limit=1")
        self.assertEqual(status["segment"]["totals"]["issued"], 70)
        self.assertEqual(status["dependencies"][0]["name"], "database")
        self.assertTrue(status["dependencies"][0]["up"])

    def test_reports_keep_metrics_and_health_not_waiting_and_are_dropped_with_their_clients(self):
        self.add_tags(["pay"])
        daemon = self.box.serve("--set", "server.header_timeout=3m")
        ask = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"

        def answered(code):
            return metrics.of(daemon).get("leaf_http_requests_total", 0, route="/v1/status", code=code)

        (reports,) = freeze.threads(daemon.process.pid, "leaf-reports")
        with freeze.frozen(reports):
            asking = [daemon.raw() for _ in range(200)]
            pipelined = daemon.raw()
            self.addCleanup(pipelined.close)
            pipelined.send(ask * 200)
            for raw in asking:
                self.addCleanup(raw.close)
                raw.send(ask)
            for raw in asking[100:]:
                raw.close()
            # Given up one by one; the others wait on.
            poll(lambda: answered("503") == 100, "reports are given up")
            self.assertEqual(answered("200"), 0)
            for path in ("/health/live", "/health/ready", "/health/ready?tag=pay"):
                self.assertEqual(daemon.get(path).status, 200)
        for raw in asking[:100] + [pipelined] * 200:
            response = raw.response()
            self.assertEqual(response.status, 200, response.body)
            self.assertEqual(json.loads(response.body)["segment"]["tags_total"], 1)
        self.assertEqual((answered("200"), answered("503")), (300, 100))

    def test_an_operator_does_not_queue_behind_others(self):
        self.add_tags(["pay"])
        daemon = self.box.serve("--set", "server.header_timeout=3m")
        local = os.path.join(self.box.state, "leafctl.sock")
        for lane, path in (("leaf-reports", "/v1/status"), ("leaf-tag-reads", "/v1/tags")):
            (thread,) = freeze.threads(daemon.process.pid, lane)
            with freeze.frozen(thread):
                others = [daemon.raw() for _ in range(40)]
                for raw in others:
                    self.addCleanup(raw.close)
                    raw.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
                self.assertIn("pay", self.box.ok("status", "--server", "unix:" + local))
                self.assertIn("pay", self.box.ok("tag", "list", "--server", "unix:" + local))
            for raw in others:
                self.assertIn(raw.response().status, (200, 503))

    def test_one_tag_is_told_as_it_is_now(self):
        self.add_tags(["pay", "a/b 中"])
        daemon = self.box.serve()
        for tag in ("pay", "a/b 中"):
            for issued in range(1, 6):
                daemon.ids(tag)
                self.assertEqual(daemon.tag_status(tag)["issued"], issued)
        self.assertIsNone(daemon.tag_status("pa"))
        for bad in ("tag=", "tag=pay&limit=1", "tag=pay&tag=pay", "tag=%01"):
            self.check_v1_error(daemon.get("/v1/status?" + bad), 400, "invalid_argument")

    def test_a_thousand_tags_unless_asked_for_more(self):
        names = ["tag-%04d" % i for i in range(1003)]
        self.add_tags(names)
        daemon = self.box.serve()

        def tags(query):
            segment = self.get(daemon, query)["segment"]
            return [tag["tag"] for tag in segment["tags"]], segment["tags_total"], segment["tags_truncated"]

        self.assertEqual(tags(""), (names[:1000], 1003, True))
        self.assertEqual(tags("offset=1000"), (names[1000:], 1003, False))
        self.assertEqual(tags("limit=1003"), (names, 1003, False))
        # The command shows each.
        self.assertEqual(len(json.loads(self.box.ok("status", "--json"))["segment"]["tags"]), 1003)
        self.assertIn("\ntag-1002 ", self.box.ok("status"))

    def test_problems_are_told_in_part_and_counted_in_full(self):
        names = ["tag-%d" % i for i in range(6)]
        self.add_tags(names)
        daemon = self.box.serve("--set", "segment.refresh_interval=100ms")
        for name in names:
            daemon.ids(name)
        self.table("UPDATE leaf_alloc SET max_id = 0 WHERE biz_tag = ?", [(name,) for name in names[:5]])
        poll(lambda: self.get(daemon, "")["problems_total"] == 5, "five problems")
        status = self.get(daemon, "problems=2&limit=3&sort=trouble")
        self.assertEqual(len(status["problems"]), 2)
        self.assertEqual(status["problems_total"], 5)
        for problem in status["problems"]:
            self.assertEqual(problem["code"], "frozen")
            self.assertIn("leafctl tag repair", problem["hint"])
        self.assertEqual([tag["state"] for tag in status["segment"]["tags"]], ["frozen"] * 3)
        self.assertEqual(status["segment"]["totals"]["frozen"], 5)

    def test_reasons_have_code_message_and_hint(self):
        daemon = self.box.serve("--set", "segment.enabled=false", "--set", "snowflake.enabled=false", ready=False)
        response = daemon.get("/health/ready")
        self.assertEqual(response.status, 503)
        reason = json.loads(response.body)["reasons"][0]
        self.assertEqual(list(reason), ["code", "message", "hint"])
        self.assertEqual(reason["code"], "disabled")
        read = metrics.of(daemon)
        self.assertEqual(read.get("leaf_ready"), 0)
        self.assertEqual(read.get("leaf_not_ready_reason", code="disabled"), 1)

    def test_the_command_asks_several_daemons_at_once(self):
        self.box.ok("tag", "add", "pay")
        first = self.box.serve("--set", "segment.refresh_interval=100ms")
        second = self.box.serve(
            "--socket", "", "--set", "segment.enabled=false",
            env={"LEAFCTL_STATE_DIR": self.box.path("second")},
        )  # fmt: skip
        both = ["status", "--server", first.url, "--server", second.url]
        result = self.box.run(both)
        self.assertEqual(result.rc, 0, result)
        lines = result.out.splitlines()
        self.assertEqual(len(lines), 3, result)
        self.assertTrue(lines[1].startswith(first.url) and " ready " in lines[1], result)
        self.assertTrue(lines[2].startswith(second.url) and " ready " in lines[2], result)
        servers = json.loads(self.box.ok(*both, "--json"))["servers"]
        self.assertEqual([server["server"] for server in servers], [first.url, second.url])
        self.assertTrue(all(server["ready"] for server in servers))
        # A problem: 10, and which.
        first.ids("pay")
        self.table("UPDATE leaf_alloc SET max_id = 0 WHERE biz_tag = ?", [("pay",)])
        poll(lambda: first.status()["problems"], "the problem")
        result = self.box.run(both)
        self.assertEqual(result.rc, 10, result)
        self.assertIn("frozen", result.out)
        self.assertIn(first.url, result.err)
        self.assertNotIn(second.url, result.err)
        # One that is away outweighs it.
        second.terminate()
        result = self.box.run(both)
        self.assertEqual(result.rc, 7, result)
        self.assertIn("UNREACHABLE", result.out)
        self.assertIn("frozen", result.out)
        result = self.box.run([*both, "--json"])
        self.assertEqual(result.rc, 7, result)
        servers = json.loads(result.out)["servers"]
        self.assertEqual(servers[1]["error"]["code"], "unreachable")
        self.assertEqual(servers[0]["problems"][0]["code"], "frozen")
        # Configured, each stands for the others.
        result = self.box.run(["status", "--json"], env={"LEAFCTL_CLIENT_SERVERS": second.url + "," + first.url})
        self.assertEqual(result.rc, 10, result)
        self.assertIn("segment", json.loads(result.out))


class LeafPages(Observed):
    def page(self, daemon, path, language=None):
        response = daemon.get(path, {"Accept-Language": language} if language else {})
        self.assertEqual(response.status, 200, response.body)
        self.assertEqual(response.headers["Content-Type"], "text/html;charset=UTF-8")
        self.assertIn("<title>Leaf</title>", response.body)
        rows = re.findall(r"<tr>(.*?)</tr>", response.body)
        return [[html.unescape(cell) for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)] for row in rows]

    def test_columns_rows_and_numbers(self):
        self.box.ok("tag", "add", "pay", "--step", "12000", "--start", "1000001")
        self.box.ok("tag", "add", "idle", "--step", "5")
        daemon = self.box.serve("--set", "segment.step_policy=fixed")
        daemon.ids("pay", 500)
        head, idle, pay = self.page(daemon, "/cache")
        self.assertEqual(head, ["name", "init", "next", "pos", "value0", "max0", "step0", "value1", "max1", "step1"])
        self.assertEqual(idle, ["idle", "false", "false", "0", "0", "0", "0", "0", "0", "0"])
        self.assertEqual(pay[:7], ["pay", "true", "false", "0", "1,000,501", "1,012,001", "12,000"])
        # Beyond a tenth the next segment is fetched; it takes the other place.
        daemon.ids("pay", 1000)
        poll(lambda: self.page(daemon, "/cache")[2][2] == "true", "the next segment")
        self.assertEqual(
            self.page(daemon, "/cache")[2],
            ["pay", "true", "true", "0", "1,001,501", "1,012,001", "12,000", "1,012,001", "1,024,001", "12,000"],
        )
        daemon.ids("pay", 11000)
        self.assertEqual(self.page(daemon, "/cache")[2][:1] + self.page(daemon, "/cache")[2][3:4], ["pay", "1"])
        self.assertEqual(self.page(daemon, "/cache")[2][7], "1,012,501")
        daemon.ids("pay", 1500)
        poll(lambda: self.page(daemon, "/cache")[2][2] == "true", "a segment in the first place again")
        # Numbers as their reader writes them.
        for language, step in (
            (None, "12,000"), ("en-US", "12,000"), ("de-DE,de;q=0.9,en;q=0.8", "12.000"), ("fr", "12\u202f000"),
            ("en;q=0.1, fr;q=0.9", "12\u202f000"), ("x-klingon", "12,000"),
        ):  # fmt: skip
            self.assertEqual(self.page(daemon, "/cache", language)[2][6], step)
            self.assertEqual(self.page(daemon, "/db", language)[2][2], step)
        head, idle, pay = self.page(daemon, "/db")
        self.assertEqual(head, ["tag", "max", "step", "update"])
        self.assertEqual(idle[:3], ["idle", "1", "5"])
        self.assertRegex(idle[3], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+$")
        for path in ("/cache/", "/cache.html", "/db/", "/db.html", "//db"):
            self.page(daemon, path)

    def test_names_are_escaped_and_a_disabled_mode_is_an_error(self):
        name = "<script>alert('x')</script>\"&"
        self.add_tags([name])
        daemon = self.box.serve()
        for path in ("/cache", "/db"):
            response = daemon.get(path)
            self.assertNotIn("<script", response.body)
            self.assertEqual(self.page(daemon, path)[1][0], name)
            self.assertIn("default-src 'none'", response.headers["Content-Security-Policy"])
        daemon.terminate()
        daemon = self.box.serve("--set", "segment.enabled=false")
        for path in ("/cache", "/db"):
            response = daemon.get(path)
            self.assertEqual(response.status, 500)
            error = json.loads(response.body)
            self.assertEqual(list(error), ["timestamp", "status", "error", "exception", "message", "path"])
            self.assertEqual(error["exception"], "java.lang.IllegalArgumentException")
            self.assertEqual(error["message"], "You should config leaf.segment.enable=true first")

    def test_the_dashboards_files(self):
        daemon = self.box.serve()
        for path, kind in (("/", "text/html"), ("/dashboard.css", "text/css"), ("/dashboard.js", "text/javascript")):
            response = daemon.get(path)
            self.assertEqual(response.status, 200)
            self.assertEqual(response.headers["Content-Type"], kind + ";charset=UTF-8")
            self.assertIn("script-src 'self'", response.headers["Content-Security-Policy"])
            self.assertNotRegex(response.body, r"(src|href)=\"(https?:)?//")
            self.assertNotRegex(response.body, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(")
        self.assertEqual(daemon.request("POST", "/").status, 405)
        self.assertEqual(daemon.get("/dashboard.txt").status, 404)


if __name__ == "__main__":
    main()
