#!/usr/bin/env python3
"""Tags through a running daemon: the routes below /v1/tags, the commands with --server, and the history of changes."""

import concurrent.futures
import http.client
import json
import os
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from certificates import Authority  # noqa: E402
from leafctl import DEADLINE_S, LeafTest, RawConnection, Sandbox, main, poll  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402

SERVER = None

# scripts/leaf_alloc.sql of Java Leaf.
JAVA_TABLE = """CREATE TABLE `leaf_alloc` (
  `biz_tag` varchar(128)  NOT NULL DEFAULT '',
  `max_id` bigint(20) NOT NULL DEFAULT '1',
  `step` int(11) NOT NULL,
  `description` varchar(256)  DEFAULT NULL,
  `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (`biz_tag`)
) ENGINE=InnoDB;"""


def setUpModule():
    global SERVER
    SERVER = MariaDb()


def tearDownModule():
    SERVER.close()


SOCKET_USER = "uid %d on the Unix socket" % os.geteuid()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self.path)


class ApiTest(LeafTest):
    """A daemon, and requests over its Unix socket."""

    def start(self, *args):
        self.daemon = self.box.serve(*args)
        self.socket = os.path.join(self.box.state, "leafctl.sock")
        self.through = ["--server", "unix:" + self.socket]

    def ask(self, method, path, body=None, headers=None):
        """status, JSON"""
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        every = {} if text is None else {"Content-Type": "application/json"}
        connection = UnixConnection(self.socket)
        try:
            connection.request(method, path, text, {**every, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "null")
        finally:
            connection.close()

    def expect(self, status, method, path, body=None, **more):
        got, answer = self.ask(method, path, body, **more)
        self.assertEqual(got, status, answer)
        return answer

    def history(self, tag, **env):
        return json.loads(self.box.ok("tag", "history", tag, "--json", **env))["changes"]


class Sqlite(ApiTest):
    def setUp(self):
        super().setUp()
        self.start()

    def test_a_tag_from_its_beginning_to_its_end(self):
        self.assertEqual(self.daemon.v1("pay").status, 404)
        added = self.expect(201, "POST", "/v1/tags", {"tag": "pay", "step": 10, "start": "5", "description": "cash"})
        self.assertEqual((added["max_id"], added["step"], added["description"]), ("5", 10, "cash"))
        # Also where it was known a moment ago that there is none.
        self.assertEqual(self.daemon.ids("pay"), [5])

        shown = self.expect(200, "GET", "/v1/tags/pay")
        self.assertEqual(shown["mark"], shown["max_id"])
        self.assertEqual(shown["mark"], "15")
        listed = self.expect(200, "GET", "/v1/tags")["tags"]
        self.assertEqual([tag["tag"] for tag in listed], ["pay"])

        set_ = self.expect(200, "PATCH", "/v1/tags/pay", {"step": 20, "description": "", "max_id": 1000})
        self.assertEqual((set_["max_id"], set_["step"], set_["description"]), ("1000", 20, ""))
        self.expect(409, "PATCH", "/v1/tags/pay", {"max_id": 999, "step": 7})
        self.assertEqual(self.expect(200, "GET", "/v1/tags/pay")["step"], 20)

        far = self.expect(428, "PATCH", "/v1/tags/pay", {"max_id": 1000 + 20 * 1001, "step": 7})
        self.assertIn("advance tag 'pay' from 1000 to 21020, over more than 1000 steps of 20", far["message"])
        self.assertEqual(far["hint"], 'send "confirm": "pay"')
        self.assertEqual(self.expect(200, "GET", "/v1/tags/pay")["step"], 20)
        self.expect(409, "PATCH", "/v1/tags/pay", {"max_id": 21020, "confirm": "other"})
        moved = self.expect(200, "PATCH", "/v1/tags/pay", {"max_id": "21020", "confirm": "pay"})
        self.assertEqual(moved["max_id"], "21020")

        unconfirmed = self.expect(428, "DELETE", "/v1/tags/pay")
        self.assertIn("remove tag 'pay' (max_id 21020)", unconfirmed["message"])
        self.expect(409, "DELETE", "/v1/tags/pay", {"confirm": "other"})
        self.assertTrue(self.expect(200, "DELETE", "/v1/tags/pay?dry_run=1")["dry_run"])
        self.assertTrue(self.expect(200, "DELETE", "/v1/tags/pay", {"confirm": "pay"})["removed"])
        self.assertEqual(self.daemon.v1("pay").status, 404)
        for method, body in (("GET", None), ("PATCH", {"step": 5}), ("DELETE", {"confirm": "pay"})):
            self.assertIn("unknown tag 'pay'", self.expect(404, method, "/v1/tags/pay", body)["message"])
        # And again, above all that it issued.
        self.expect(409, "POST", "/v1/tags", {"tag": "pay", "start": 5})
        self.assertEqual(self.expect(201, "POST", "/v1/tags", {"tag": "pay"})["max_id"], "21020")
        self.assertEqual(self.daemon.ids("pay"), [21020])

        actions = [change["action"] for change in self.expect(200, "GET", "/v1/tags/pay/history")["changes"]]
        self.assertEqual(actions, ["add", "remove", "advance", "set", "add"])
        self.assertEqual(len(self.expect(200, "GET", "/v1/tags/pay/history?limit=2")["changes"]), 2)
        self.assertEqual(len(re.findall(r" info tag 'pay' was ", self.daemon.log())), 5)

    def test_lists_are_found_sorted_and_cut(self):
        for name, start in (("a1", 30), ("a2", 10), ("b1", 20)):
            self.expect(201, "POST", "/v1/tags", {"tag": name, "start": start})

        def tags(query):
            return [tag["tag"] for tag in self.expect(200, "GET", "/v1/tags?" + query)["tags"]]

        self.assertEqual(tags("search=A"), ["a1", "a2"])
        self.assertEqual(tags("sort=max_id"), ["a2", "b1", "a1"])
        self.assertEqual(tags("sort=max_id&reverse=1&offset=1&limit=1"), ["b1"])
        self.assertEqual(tags("offset=5"), [])
        self.assertEqual(self.expect(200, "GET", "/v1/tags?search=a&limit=0")["tags_matching"], 2)
        self.assertIn("did you mean max_id?", self.expect(400, "GET", "/v1/tags?sort=maxid")["hint"])

    def test_what_is_no_request(self):
        post = lambda body, **more: self.expect(400, "POST", "/v1/tags", body, **more)["message"]  # noqa: E731
        self.assertIn("is missing", post({}))
        self.assertIn("not JSON", post("{"))
        self.assertIn("unknown field 'steps'", post({"tag": "a", "steps": 1}))
        self.assertIn("is there twice", post('{"tag":"a","tag":"b"}'))
        self.assertIn("bad step '0'", post({"tag": "a", "step": 0}))
        self.assertIn("not trend or strict", post({"tag": "a", "order": "up"}))
        self.assertIn("a/b", post({"tag": "a/b"}))
        self.assertIn("not a JSON object", post("[" * 60000))
        self.expect(415, "POST", "/v1/tags", '{"tag":"a"}', headers={"Content-Type": "text/plain"})
        self.expect(405, "PUT", "/v1/tags", {})
        with RawConnection(self.socket) as raw:
            raw.send("POST /v1/tags HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n")
            self.assertEqual(raw.response().status, 413)
        # The longest that is read, in pieces.
        body = '{"tag":"long"' + " " * (65536 - 14) + "}"
        self.assertEqual(len(body), 65536)
        self.expect(201, "POST", "/v1/tags", body)
        self.assertEqual(self.daemon.v1("a").status, 404)

    def test_who_may_change(self):
        for method, path in (
            ("POST", "/v1/tags"), ("PATCH", "/v1/tags/pay"), ("DELETE", "/v1/tags/pay?confirm=pay"),
            ("POST", "/v1/tags/pay/repair"), ("POST", "/v1/tags/pay/pause"),
        ):  # fmt: skip
            answer = self.daemon.request(method, path, '{"tag":"a"}', {"Content-Type": "application/json"})
            self.assertEqual(answer.status, 403, path)
            # Nor a web page, by whatever way it gets to the socket.
            self.expect(403, method, path, {"tag": "a"}, headers={"Origin": "http://evil.example"})
        self.expect(201, "POST", "/v1/tags", {"tag": "pay"})
        self.assertEqual(self.daemon.get("/v1/tags/pay").status, 200)

    def test_two_at_once(self):
        barrier = threading.Barrier(8)

        def add(_):
            barrier.wait()
            return self.ask("POST", "/v1/tags", {"tag": "race"})[0]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(sorted(pool.map(add, range(8))), [201] + [409] * 7)
        self.assertEqual(len(self.history("race")), 1)

    def test_pause_and_resume_are_in_the_history(self):
        self.expect(201, "POST", "/v1/tags", {"tag": "pay"})
        self.expect(200, "POST", "/v1/tags/pay/pause")
        self.assertEqual(self.daemon.v1("pay").status, 503)
        self.expect(200, "POST", "/v1/tags/pay/resume")
        self.assertEqual(self.daemon.v1("pay").status, 200)
        self.box.ok("tag", "pause", "pay")
        poll(lambda: len(self.history("pay")) == 4, "the last pause is recorded")
        self.assertEqual([change["action"] for change in self.history("pay")], ["pause", "resume", "pause", "add"])
        self.expect(404, "POST", "/v1/tags/nokey/pause")

    def test_repair(self):
        self.expect(201, "POST", "/v1/tags", {"tag": "pay", "step": 10})
        self.daemon.ids("pay")
        sound = self.expect(200, "POST", "/v1/tags/pay/repair", {"confirm": "pay"})
        self.assertEqual((sound["max_id"], sound["dry_run"]), (sound["max_id_before"], False))
        self.assertEqual(self.daemon.terminate(), 0)
        self.sqlite("UPDATE leaf_alloc SET max_id = 2")
        self.start()
        poll(lambda: self.daemon.v1("pay").status == 409, "frozen")
        plan = self.expect(200, "POST", "/v1/tags/pay/repair")
        self.assertEqual((plan["max_id_before"], plan["max_id"], plan["dry_run"]), ("2", "11", True))
        self.assertEqual(self.expect(200, "GET", "/v1/tags/pay")["max_id"], "2")
        self.expect(409, "POST", "/v1/tags/pay/repair", {"confirm": "order"})
        done = self.expect(200, "POST", "/v1/tags/pay/repair", {"confirm": "pay"})
        self.assertEqual((done["max_id"], done["dry_run"]), ("11", False))
        poll(lambda: self.daemon.v1("pay").status == 200, "thawed at once")
        newest = self.history("pay")[0]
        self.assertEqual((newest["action"], newest["before"]["max_id"], newest["after"]["max_id"]), ("repair", "2", "11"))
        self.expect(404, "POST", "/v1/tags/nokey/repair")

    def test_repair_from_a_machine_that_knows_nothing_of_the_store(self):
        for tag in ("pay", "ship", "well"):
            self.box.ok("tag", "add", tag, "--step", "10")
            self.daemon.ids(tag)
        elsewhere = self.another_box()
        repair = ["tag", "repair", "pay", *self.through]
        self.assertIn("nothing to repair: max_id 11 is above every known mark", elsewhere.ok(*repair))
        self.assertEqual(self.daemon.terminate(), 0)
        self.sqlite("UPDATE leaf_alloc SET max_id = 2 WHERE biz_tag <> 'well'")
        self.start()
        poll(lambda: self.daemon.v1("pay").status == 409, "frozen")

        plan = elsewhere.ok(*repair, "--dry-run")
        self.assertIn("tag 'pay': the table says max_id 2 ", plan)
        self.assertIn("  state directory %s: granted up to 11" % self.box.state, plan)
        self.assertIn("  daemon at %s: granted up to 11" % self.through[1], plan)
        self.assertIn("would move tag 'pay' from 2 to 11", plan)
        self.check(elsewhere.run(repair), 11, "--confirm pay")
        self.check(elsewhere.run([*repair, "--confirm", "ship"]), 11, "ship")
        # Each daemon that is named is asked, as on the store itself.
        absent = ["--server", "unix:" + elsewhere.path("nobody")]
        self.check(elsewhere.run([*repair, *absent, "--confirm", "pay"]), 11, elsewhere.path("nobody"), "--to")
        # Over TCP all callers may read here; to change something takes the role.
        over_tcp = ["tag", "repair", "pay", "--server", self.daemon.url]
        self.check(elsewhere.run([*over_tcp, "--confirm", "pay"]), 4, "lacks role admin")
        self.assertEqual(self.expect(200, "GET", "/v1/tags/pay")["max_id"], "2")
        self.check(elsewhere.run(["tag", "repair", "nokey", *self.through, "--confirm", "nokey"]), 9, "nokey")

        every = ["tag", "repair", "--all", *self.through]
        plan = json.loads(elsewhere.ok(*every, "--dry-run", "--json"))
        self.assertEqual([(tag["tag"], tag["to"], tag["outcome"]) for tag in plan["tags"]],
                         [("pay", "11", "planned"), ("ship", "11", "planned")])  # fmt: skip
        done = json.loads(elsewhere.ok(*repair, *absent, "--to", "50", "--confirm", "pay", "--json"))
        self.assertEqual((done["max_id_before"], done["max_id"], done["dry_run"]), ("2", "50", False))
        poll(lambda: self.daemon.v1("pay").status == 200, "thawed at once")
        out = elsewhere.ok(*every, "--confirm", "all")
        self.assertIn("repaired tag 'ship': the next grant begins at 11", out)
        self.assertEqual(self.history("ship")[0]["who"], SOCKET_USER)
        # Nothing was written here.
        self.assertFalse(os.path.exists(os.path.join(elsewhere.state, "leaf.db")))

    def test_repair_of_the_store_that_is_configured_needs_no_role(self):
        """As it was before daemons could repair: --server says whose marks to ask."""
        self.box.ok("tag", "add", "pay", "--step", "10")
        self.daemon.ids("pay")
        self.sqlite("UPDATE leaf_alloc SET max_id = 2")
        self.box.ok("tag", "repair", "pay", "--server", self.daemon.url, "--confirm", "pay")
        self.assertRegex(self.history("pay")[0]["who"], r"@.* \(tag repair\)")

    def sqlite(self, statement):
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            database.execute(statement)

    def test_the_commands_say_the_same_both_ways(self):
        """Each line is run on the store and, with another tag, through the daemon."""
        lines = [
            ["add", "TAG", "--step", "10", "--description", "a 'b'"],
            ["add", "TAG"],
            ["add", "TAG", "--if-absent", "--step", "11"],
            ["add", "TAG2", "--start", "7", "--json", "--dry-run"],
            ["add", "a/b"],
            ["show", "TAG"],
            ["show", "TAG", "--json"],
            ["show", "nokey"],
            ["list"],
            ["list", "TAG*", "--json"],
            ["list", "--sort", "max_id", "-o", "csv"],
            ["set", "TAG", "--step", "20"],
            ["set", "TAG", "nokey", "--step", "20"],
            ["set", "TAG", "--step", "0"],
            ["advance", "TAG", "--to", "100"],
            ["advance", "TAG", "--to", "99"],
            ["advance", "TAG", "--to", "900000"],
            ["advance", "TAG", "--to", "900000", "--confirm", "other"],
            ["advance", "TAG", "--to", "900000", "--confirm", "TAG", "--json"],
            ["export", "TAG*"],
            ["export", "TAG*", "--json", "--no-max-id"],
            ["remove", "TAG"],
            ["remove", "nokey", "--yes"],
            ["remove", "nokey", "--if-present", "--json"],
            ["remove", "TAG", "--dry-run"],
            ["remove", "TAG", "--yes"],
            ["add", "TAG", "--start", "5"],
            ["add", "TAG"],
            ["history", "TAG"],
            ["history", "TAG", "--json", "--limit", "1"],
            ["history", "nokey"],
        ]
        other = self.another_box()

        def run(box, line, more):
            result = box.run(["tag", *line, *more])
            text = result.out + "|" + result.err
            text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>", text)
            text = re.sub(r'_ms":\d+', '_ms":0', text)
            # Only that differs.
            text = re.sub(r"by (uid \d+ on the Unix socket|\S+@\S+ \(tag \w+\))", "by <who>", text)
            text = re.sub(r'"who":"[^"]*","origin":"[^"]*"', '"who":"","origin":""', text)
            return result.rc, text

        for line in lines:
            direct = run(other, line, [])
            through = run(self.box, line, self.through)
            self.assertEqual(through, direct, line)

    def another_box(self):
        box = Sandbox()
        self.addCleanup(box.close)
        return box

    def test_apply_through_the_daemon(self):
        self.box.ok("tag", "add", "old", "gone", *self.through)
        plan = """[[tags]]
tag = "old"
step = 7
max_id = 500
[[tags]]
tag = "new"
description = "x"
"""
        path = self.box.write("tags.toml", plan)
        dry = self.box.ok("tag", "apply", "-f", path, "--prune", "--dry-run", *self.through)
        self.assertEqual(dry, self.box.ok("tag", "apply", "-f", path, "--prune", "--dry-run"))
        self.box.ok("tag", "apply", "-f", path, "--prune", "--confirm", "all", *self.through)
        self.assertEqual(sorted(self.box.rows()), ["new", "old"])
        self.assertEqual(self.box.ok("tag", "apply", "-f", path, "--prune", *self.through), "nothing to change\n")
        self.assertEqual(self.daemon.ids("old"), [500])
        self.assertEqual([c["action"] for c in self.history("old")], ["advance", "set", "add"])

    def test_changes_go_through_the_daemon_that_serves_the_store(self):
        self.assertEqual(self.daemon.v1("pay").status, 404)
        self.box.ok("tag", "add", "pay")
        self.assertEqual(self.daemon.ids("pay"), [1])
        self.assertEqual(self.history("pay")[0]["who"], SOCKET_USER)
        self.box.ok("tag", "set", "pay", "--step", "7", "--direct")
        self.assertIn("(tag set)", self.history("pay")[0]["who"])
        # One that serves another database is left alone.
        elsewhere = "sqlite.path=" + self.box.path("other.db")
        self.box.ok("tag", "add", "other", "--set", elsewhere)
        self.assertEqual(self.daemon.v1("other").status, 404)
        self.assertIn("(tag add)", self.history_at("other", elsewhere)[0]["who"])
        # So is one that does not run any more.
        self.assertEqual(self.daemon.kill(), -9)
        self.box.ok("tag", "set", "pay", "--step", "8")
        self.assertIn("(tag set)", self.history("pay")[0]["who"])

    def test_the_two_ways_exclude_each_other(self):
        result = self.box.run(["tag", "add", "pay", "--direct", *self.through])
        self.assertEqual((result.rc, self.box.rows()), (2, {}), result.err)

    def history_at(self, tag, setting):
        return json.loads(self.box.ok("tag", "history", tag, "--json", "--set", setting))["changes"]

    def test_without_a_daemon(self):
        result = self.box.run(["tag", "add", "pay", "--server", "unix:/nowhere/leafctl.sock"])
        self.assertEqual(result.rc, 7, result.err)
        result = self.box.run(["tag", "add", "pay", "--server", self.daemon.url])
        self.assertEqual(result.rc, 4, result.err)
        self.assertIn("lacks role admin", result.err)
        self.assertEqual(self.box.rows(), {})
        self.assertEqual(self.box.ok("tag", "list", "--server", self.daemon.url), self.box.ok("tag", "list"))

    def test_changes_while_ids_are_taken(self):
        """Changes delay nothing that takes IDs, and each is seen by the next request."""
        self.expect(201, "POST", "/v1/tags", {"tag": "busy", "step": 100000})
        self.daemon.ids("busy")
        stop = threading.Event()
        seen = []

        def take():
            while not stop.is_set():
                seen.extend(self.daemon.ids("busy"))
            self.daemon.disconnect()

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            takers = [pool.submit(take) for _ in range(2)]
            try:
                for i in range(30):
                    name = "t%d" % i
                    self.expect(201, "POST", "/v1/tags", {"tag": name})
                    self.assertEqual(self.daemon.ids(name), [1])
                    self.expect(200, "DELETE", "/v1/tags/" + name, {"confirm": name})
                    self.assertEqual(self.daemon.v1(name).status, 404)
            finally:
                stop.set()
            for taker in takers:
                taker.result()
        self.assertEqual(len(seen), len(set(seen)))


class MariaDbApi(ApiTest):
    count = 0

    def setUp(self):
        super().setUp()
        SERVER.ensure_up()
        MariaDbApi.count += 1
        self.database = "api%d" % MariaDbApi.count
        SERVER.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % self.database)
        self.addCleanup(self.drop)
        self.configure("leaf", "60s")

    def drop(self):
        SERVER.ensure_up()
        for daemon in self.box.daemons:
            self.assertNotIn(PASSWORD, daemon.log())
            daemon.kill()
        SERVER.sql("DROP DATABASE IF EXISTS %s" % self.database)

    def configure(self, user, patience):
        password = self.box.write("password", PASSWORD + "\n")
        self.box.env["LEAFCTL_CONFIG"] = self.box.write(
            "leafctl.toml",
            """[segment]
store = "mysql"
[snowflake]
enabled = false
[mysql]
endpoints = ["127.0.0.1:%d"]
database = "%s"
user = "%s"
password_file = "%s"
connect_timeout = "%s"
query_timeout = "%s"
"""
            % (SERVER.port, self.database, user, password, patience, patience),
        )

    def sql(self, statements):
        return SERVER.sql(statements, self.database)

    def test_changes_and_their_history(self):
        self.box.ok("db", "init")
        self.start()
        name = "订单 1"
        path = "/v1/tags/" + urllib.parse.quote(name)
        self.expect(201, "POST", "/v1/tags", {"tag": name, "step": 10, "description": "纸"})
        self.assertEqual(self.daemon.ids(name), [1])
        self.box.ok("tag", "set", name, "--step", "20", "--direct")
        self.expect(200, "PATCH", path, {"max_id": 5000, "description": "x", "step": 30})
        self.expect(409, "POST", "/v1/tags", {"tag": name})
        self.box.ok("tag", "remove", name, "--yes", *self.through)
        changes = self.history(name)
        self.assertEqual([change["action"] for change in changes], ["remove", "set", "set", "add"])
        self.assertEqual([change["who"].split("@")[0] for change in changes][0:2], [SOCKET_USER, SOCKET_USER])
        self.assertRegex(changes[2]["who"], r"^\S+@\S* \(tag set\)$")
        self.assertEqual(changes[3]["before"], None)
        self.assertEqual(changes[3]["after"], {"max_id": "1", "step": 10, "description": "纸"})
        self.assertEqual(changes[2]["before"]["step"], 10)
        self.assertEqual(changes[2]["after"]["step"], 20)
        self.assertEqual(changes[1]["after"], {"max_id": "5000", "step": 30, "description": "x"})
        self.assertEqual(changes[0]["after"], None)
        self.assertEqual(self.sql("SELECT COUNT(*) FROM leafctl_audit"), [["4"]])

    def test_two_at_once(self):
        self.box.ok("db", "init")
        self.start()
        barrier = threading.Barrier(6)

        def add(i):
            barrier.wait()
            if i % 2:
                return {0: 201, 9: 409}.get(self.box.run(["tag", "add", "race", "--direct"]).rc)
            return self.ask("POST", "/v1/tags", {"tag": "race"})[0]

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            self.assertEqual(sorted(pool.map(add, range(6))), [201] + [409] * 5)
        self.assertEqual(self.sql("SELECT COUNT(*) FROM leafctl_audit"), [["1"]])

    def test_the_database_is_killed(self):
        self.box.ok("db", "init")
        self.configure("leaf", "2s")
        self.start()
        self.expect(201, "POST", "/v1/tags", {"tag": "pay"})
        self.daemon.ids("pay")
        SERVER.kill()
        try:
            direct = self.box.run(["tag", "add", "other", "--direct"])
            added = self.expect(503, "POST", "/v1/tags", {"tag": "other"})
            self.assertEqual(added["code"], "unavailable")
            self.assertIn(added["message"].split(":")[0], direct.err)
            for method, path, body in (
                ("GET", "/v1/tags", None), ("GET", "/v1/tags/pay", None), ("PATCH", "/v1/tags/pay", {"step": 5}),
                ("DELETE", "/v1/tags/pay", {"confirm": "pay"}), ("GET", "/v1/tags/pay/history", None),
            ):  # fmt: skip
                self.assertEqual(self.expect(503, method, path, body)["code"], "unavailable")
            # Neither needs the database; the history has no place for it then.
            self.expect(200, "POST", "/v1/tags/pay/pause")
            self.assertEqual(self.daemon.get("/health/live").status, 200)
            self.daemon.wait_log("the pause of tag 'pay' is not in its history")
        finally:
            SERVER.ensure_up()
        self.expect(200, "POST", "/v1/tags/pay/resume")
        poll(lambda: self.ask("PATCH", "/v1/tags/pay", {"step": 5})[0] == 200, "changes again")
        # The line about the resume is written beside it, and may come later.
        self.assertIn("set", [entry["action"] for entry in self.history("pay")[:2]])

    def test_a_database_that_hangs(self):
        self.box.ok("db", "init")
        self.configure("leaf", "60s")
        self.start()
        self.expect(201, "POST", "/v1/tags", {"tag": "pay"})
        SERVER.freeze()
        try:
            change = self.expect(503, "PATCH", "/v1/tags/pay", {"step": 5})
            self.assertEqual(change["code"], "outcome_unknown")
            self.assertIn("unknown whether it was done", change["message"] + change["hint"])
            read = self.expect(503, "GET", "/v1/tags")
            self.assertEqual(read["code"], "unavailable")
            self.assertEqual(self.daemon.get("/health/live").status, 200)
        finally:
            SERVER.thaw()
        poll(lambda: self.ask("GET", "/v1/tags")[0] == 200, "the table is read again")

    def test_a_database_of_java_leaf(self):
        """A user that may do nothing but with leaf_alloc."""
        self.sql(JAVA_TABLE)
        user = "java%d" % MariaDbApi.count
        SERVER.sql("CREATE USER %s@'%%' IDENTIFIED BY '%s'" % (user, PASSWORD))
        SERVER.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON %s.leaf_alloc TO %s@'%%'" % (self.database, user))
        self.configure(user, "60s")
        self.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('pay', 1, 2000)")
        self.start()
        self.assertEqual(self.daemon.ids("pay"), [1])
        self.expect(200, "PATCH", "/v1/tags/pay", {"description": "cash"})
        self.daemon.wait_log("changes of tags are in this log, and not in their history")
        self.expect(200, "PATCH", "/v1/tags/pay", {"step": 5})
        self.assertEqual(len(re.findall("and not in their history", self.daemon.log())), 1)
        self.daemon.wait_log(r"info tag 'pay' was changed by uid \d+ on the Unix socket: step 5 \(was 2000\)")
        result = self.box.run(["tag", "set", "pay", "--step", "6", "--direct"])
        self.assertEqual(result.rc, 0, result.err)
        self.assertIn("not in the tag's history", result.err)
        self.expect(503, "GET", "/v1/tags/pay/history")
        # What a removed tag issued is not to be seen: nothing is added.
        self.assertEqual(self.expect(503, "POST", "/v1/tags", {"tag": "new"})["code"], "permission")
        # The table is there, and the user may not write to it.
        self.sql("CREATE TABLE leafctl_audit (id int)")
        result = self.box.run(["tag", "set", "pay", "--step", "7", "--direct"])
        self.assertEqual(result.rc, 0, result.err)
        self.assertIn("leafctl_audit", result.err)
        self.assertEqual(self.sql("SELECT step FROM leaf_alloc"), [["7"]])
        SERVER.sql("DROP USER %s@'%%'" % user)

    def test_a_database_from_before_there_was_a_history(self):
        self.box.ok("db", "init")
        self.box.ok("tag", "add", "pay")
        self.sql("DROP TABLE leafctl_audit")
        remedy = "leafctl db init"
        changed = self.box.run(["tag", "set", "pay", "--step", "5", "--direct"])
        self.assertEqual(changed.rc, 0, changed)
        self.assertIn("no table leafctl_audit; %s creates it" % remedy, changed.err)
        self.start()
        self.expect(200, "PATCH", "/v1/tags/pay", {"step": 6})
        self.daemon.wait_log("no table leafctl_audit; %s creates it" % remedy)
        for line in (["history", "pay", *self.through], ["history", "pay"]):
            self.check(self.box.run(["tag", *line]), 6, "no table leafctl_audit", remedy)
        for line in (["doctor"], ["db", "check"]):
            found = self.box.run(line)
            self.assertIn("table leafctl_audit is missing", found.out, line)
            self.assertIn(remedy, found.out, line)

        self.box.ok("db", "init")
        self.assertNotIn("leafctl_audit", self.box.run(["doctor"]).out)
        # The daemon needs no restart for it.
        self.expect(200, "PATCH", "/v1/tags/pay", {"step": 7})
        self.assertEqual([(change["action"], change["after"]["step"]) for change in self.history("pay")], [("set", 7)])

    def test_no_change_without_its_line(self):
        """What fails for another reason than a missing right undoes the change."""
        self.box.ok("db", "init")
        self.start()
        self.expect(201, "POST", "/v1/tags", {"tag": "pay"})
        self.sql(
            "CREATE TRIGGER never BEFORE INSERT ON leafctl_audit FOR EACH ROW SIGNAL SQLSTATE '45000'"
        )
        status, answer = self.ask("PATCH", "/v1/tags/pay", {"step": 5})
        self.assertIn(status, (500, 503), answer)
        self.assertEqual(self.sql("SELECT step FROM leaf_alloc"), [["2000"]])


class Input(LeafTest):
    """What a command reads from a pipe that others share."""

    def test_an_input_that_pauses_has_not_ended(self):
        tags = ["a", "b", "c", "d"]
        for tag in tags:
            self.box.ok("tag", "add", tag, "--step", "100")
        lines = json.loads(self.box.ok("tag", "export", "--json"))
        text = json.dumps(lines, indent=1)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        process = self.box.popen(["tag", "apply", "-f", "-", "--prune", "--confirm", "all"], stdin=reader,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        os.close(reader)
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            for part in (text[: len(text) // 2], text[len(text) // 2 :]):
                pipe.write(part)
                pipe.flush()
                time.sleep(0.5)  # it has found the pipe empty by then
        out, _ = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, out)
        self.assertEqual(sorted(self.box.rows()), tags)

    def test_an_input_that_cannot_be_read_is_none(self):
        self.box.ok("tag", "add", "pay")
        folder = os.open("/", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        for args in (["decode"], ["tag", "apply", "-f", "-", "--prune", "--confirm", "all"]):
            process = self.box.popen(args, stdin=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            out, err = process.communicate(timeout=DEADLINE_S)
            self.assertEqual((process.returncode, out), (1, b""), err)
            self.assertIn(b"cannot read stdin: Is a directory", err)
        self.assertEqual(sorted(self.box.rows()), ["pay"])


class StandIn(LeafTest):
    """A server in a daemon's place, over TCP and at the path of the daemon's socket, that answers as `answer` says."""

    def setUp(self):
        super().setUp()
        self.requests = []
        self.answer = None  # bytes, or None: it hangs up; "hang": it does not
        self.read = None  # what is answered to GET instead
        self.tls = None  # an ssl.SSLContext
        self.held = []
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.listen(self.tcp)
        self.server = ["--server", "http://127.0.0.1:%d" % self.tcp.getsockname()[1]]

    def listen(self, listener):
        self.addCleanup(listener.close)
        threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def serve(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(DEADLINE_S)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            self.requests.append(self.whole(connection))
            if self.read is not None and self.requests[-1].startswith("GET"):
                connection.sendall(self.read)
            elif self.answer == "hang":
                self.held.append(connection)
                continue
            elif self.answer is not None:
                connection.sendall(self.answer)
            connection.close()

    @staticmethod
    def whole(connection):
        """A request that a client could not send whole would be another matter."""
        text = ""
        while "\r\n\r\n" not in text:
            text += connection.recv(65536).decode()
        head, body = text.split("\r\n\r\n", 1)
        length = re.search(r"(?i)^content-length: *(\d+)", head, re.M)
        while length and len(body) < int(length.group(1)):
            body += connection.recv(65536).decode()
        return head + "\r\n\r\n" + body

    @staticmethod
    def http(status, body, kind="text/plain"):
        head = "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
        return (head + body).encode()

    def test_what_is_no_daemon_sends_nothing_to_the_store(self):
        self.box.ok("tag", "add", "pay")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(self.box.state, "leafctl.sock"))
        listener.listen()
        self.listen(listener)
        for self.answer, rc in ((self.http("404 Not Found", "no such page"), 7), (self.http("502 Bad Gateway", "x"), 8), (None, 8)):
            result = self.box.run(["next", "pay"])
            self.assertEqual((result.rc, result.out), (rc, ""), result.err)
        self.assertEqual(self.box.next("pay", "--direct"), [1])

    def test_a_status_that_is_none(self):
        for body in ('{"version":7}', '{"tags":', '{"ready":"yes"}', '{"problems":[7]}', '{"segment":{"tags":[{"tag":5}]}}'):
            self.answer = self.http("200 OK", body, "application/json")
            # With several there is a line for each, which does not name tags.
            for several in ([],) if "tag\"" in body else ([], self.server):
                result = self.box.run(["status", *self.server, *several])
                self.assertEqual(result.rc, 1, (body, result.err))
                self.assertIn("not from leafctl", result.err)
                self.assertNotIn("bug", result.err)
        evil = {"version": "\x1b[31m", "ready": True, "segment": {"tags": [{"tag": "x\x1b[2J\x07"}]}}
        self.answer = self.http("200 OK", json.dumps(evil), "application/json")
        result = self.box.run(["status", *self.server])
        self.assertNotRegex(result.out, r"[\x1b\x07]")

    def test_a_status_that_is_none_hides_no_other(self):
        daemon = self.box.serve()
        self.answer = self.http("200 OK", '{"version":7}', "application/json")
        result = self.box.run(["status", *self.server, "--server", daemon.url])
        self.assertEqual(result.rc, 1, result.err)
        self.assertIn(daemon.url, result.out)
        self.assertRegex(result.out, r"NO STATUS")
        self.assertIn("%s sent an answer that is not from leafctl" % self.server[1], result.err)
        nested = self.http("200 OK", '{"a":' * 100000 + "1" + "}" * 100000, "application/json")
        self.answer = nested
        self.assertEqual(self.box.run(["status", *self.server]).rc, 1)

    def test_a_role_that_is_missing_is_no_silence(self):
        self.answer = self.http("401 Unauthorized", '{"code":"permission","message":"no token","hint":""}', "application/json")
        for several in ([], self.server):
            result = self.box.run(["status", *self.server, *several])
            self.assertEqual(result.rc, 4, result.err)
            self.assertNotIn("UNREACHABLE", result.out)
        result = self.box.run(["status", *self.server, "--server", "unix:/nowhere/leafctl.sock"])
        self.assertEqual(result.rc, 7, result.err)

    def test_an_answer_that_is_cut_is_none(self):
        head = "HTTP/1.0 201 Created\r\nContent-Type: application/json\r\n\r\n"
        self.answer = (head + '{"tag":"pay","max_').encode()
        result = self.box.run(["tag", "add", "pay", "--step", "100", "--json", *self.server])
        self.assertEqual((result.rc, json.loads(result.err)["code"]), (8, "outcome_unknown"), result.err)

    def test_an_answer_that_is_lost_over_tls(self):
        authority = Authority(self.box.path("ca"))
        cert, key = authority.issue("server")
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(cert, key)
        # Python closes without a word of TLS, as a process that is killed does.
        server = ["--server", "https://127.0.0.1:%d" % self.tcp.getsockname()[1], "--set", "client.ca=" + authority.cert]
        result = self.box.run(["tag", "add", "pay", "--step", "100", "--json", *server])
        self.assertEqual((result.rc, json.loads(result.err)["code"]), (8, "outcome_unknown"), result.err)

    def test_no_place_is_no_change(self):
        """A daemon that has too many connections has done nothing."""
        daemon = self.box.serve("--set", "server.max_connections=1")
        with daemon.raw() as raw:
            raw.send("GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertEqual(raw.response().status, 200)
            result = self.box.run(["tag", "add", "pay", "--json", "--server", daemon.url])
            self.assertEqual((result.rc, json.loads(result.err)["code"]), (8, "unavailable"), result.err)

    def test_whether_a_change_was_made_is_unknown(self):
        server = [*self.server, "--json"]
        row = {"tag": "pay", "max_id": "1", "step": 200, "description": None, "update_time_ms": 1795000000000}
        self.read = self.http("200 OK", json.dumps(row), "application/json")
        changes = (
            ["tag", "add", "pay", "--step", "100"],
            ["tag", "set", "pay", "--step", "100"],
            ["tag", "advance", "pay", "--to", "1000", "--yes"],
            ["tag", "remove", "pay", "--yes"],
            ["tag", "pause", "pay", "--yes"],
            ["tag", "resume", "pay"],
        )
        for self.answer in (None, "hang", self.http("504 Gateway Timeout", "the proxy gives up")):
            more = ["--timeout", "3s"] if self.answer == "hang" else []
            # Each of those waits as long.
            for change in changes[:1] + changes[-1:] if more else changes:
                with self.subTest(change=change, answer=self.answer):
                    count = len(self.requests)
                    result = self.box.run([*change, *server, *more])
                    error = json.loads(result.err.splitlines()[-1])
                    sent = self.requests[count:]
                    changed = [request for request in sent if not request.startswith("GET") and "dry_run" not in request]
                    self.assertEqual(len(changed), 1, (result.err, sent))
                    self.assertEqual((result.rc, error["code"]), (8, "outcome_unknown"), (result.err, sent))
                    self.assertIn("unknown whether the change was made", error["message"])
                    self.assertIn("look at the tag", error["hint"])
        made = {request.split()[0] for request in self.requests}
        self.assertEqual(made, {"GET", "POST", "PATCH", "DELETE"})
        self.answer = "hang"
        result = self.box.run(["tag", "add", "pay", "--step", "100", "--dry-run", *server, "--timeout", "3s"])
        self.assertEqual(json.loads(result.err.splitlines()[-1])["code"], "unavailable", result.err)


class Bodies(ApiTest):
    def test_many_half_sent_bodies_leave_room_for_others(self):
        self.start()
        waiting = []
        try:
            for _ in range(80):
                connection = RawConnection(("127.0.0.1", self.daemon.port))
                connection.send("POST /v1/tags HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + "x" * 5000)
                waiting.append(connection)
            # Over the Unix socket there is room of its own.
            self.expect(201, "POST", "/v1/tags", '{"tag":"pay"' + " " * 5000 + "}")
        finally:
            for connection in waiting:
                connection.close()
        self.assertEqual(self.daemon.ids("pay"), [1])


if __name__ == "__main__":
    main()
