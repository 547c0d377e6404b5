#!/usr/bin/env python3
"""Segment mode on a real MariaDB whose table was made by plain SQL, as users of Java Leaf have it."""

import concurrent.futures
import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import explain  # noqa: E402
import metrics  # noqa: E402
from leafctl import ID_END, LeafTest, Sandbox, main, poll, scaled  # noqa: E402
from servers import PASSWORD, MariaDb, free_port  # noqa: E402

SERVER = None

# scripts/leaf_alloc.sql of Java Leaf.
VARIANT_A = """CREATE TABLE `leaf_alloc` (
  `biz_tag` varchar(128)  NOT NULL DEFAULT '',
  `max_id` bigint(20) NOT NULL DEFAULT '1',
  `step` int(11) NOT NULL,
  `description` varchar(256)  DEFAULT NULL,
  `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (`biz_tag`)
) ENGINE=InnoDB;"""
# The variant with a surrogate key.
VARIANT_B = """CREATE TABLE `leaf_alloc` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `biz_tag` varchar(128)  NOT NULL DEFAULT '',
  `max_id` bigint(20) NOT NULL DEFAULT '1',
  `step` int(11) NOT NULL,
  `description` varchar(256)  DEFAULT NULL,
  `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (`id`),
  UNIQUE KEY (`biz_tag`)
) ENGINE=InnoDB;"""

# How much longer than its deadline an answer may take on a busy machine.
SLACK_S = 60.0


def setUpModule():
    global SERVER
    SERVER = MariaDb()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))


def tearDownModule():
    SERVER.close()


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def read_all(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


class MariaDbTest(LeafTest):
    """A database of its own with an empty table of variant a, and a configuration that names it."""

    count = 0
    charset = "utf8mb4"
    table = VARIANT_A
    # How long a busy machine may take for a statement; nothing, for the program's own defaults.
    patience = '"60s"'

    def setUp(self):
        SERVER.ensure_up()
        super().setUp()
        MariaDbTest.count += 1
        self.database = "t%d" % MariaDbTest.count
        SERVER.sql("CREATE DATABASE %s CHARACTER SET %s" % (self.database, self.charset))
        self.addCleanup(self.drop)
        self.configure(self.box)
        if self.table:
            self.sql(self.table)

    def drop(self):
        SERVER.ensure_up()
        for daemon in self.box.daemons:
            self.assertNotIn(PASSWORD, daemon.log())
            daemon.kill()
        SERVER.sql("DROP DATABASE IF EXISTS %s" % self.database)

    def configure(self, box, **more):
        password = box.write("password", PASSWORD + "\n")
        settings = {
            "endpoints": '["127.0.0.1:%d"]' % SERVER.port,
            "database": '"%s"' % self.database,
            "user": '"leaf"',
            "password_file": '"%s"' % password,
            "connect_timeout": self.patience,
            "query_timeout": self.patience,
        }
        settings.update(more)
        text = '[segment]\nstore = "mysql"\nrefresh_interval = "1s"\n[mysql]\n'
        text += "".join("%s = %s\n" % item for item in settings.items() if item[1] is not None)
        box.env["LEAFCTL_CONFIG"] = box.write("leafctl.toml", text)

    def another_node(self):
        box = Sandbox()
        self.addCleanup(box.close)
        self.configure(box)
        return box

    def sql(self, statements):
        return SERVER.sql(statements, self.database)

    def insert(self, tag, max_id=1, step=2000):
        self.sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES (%s, %d, %d)" % (quoted(tag), max_id, step))

    def max_id(self, tag):
        rows = self.sql("SELECT max_id FROM leaf_alloc WHERE BINARY CONVERT(biz_tag USING utf8mb4) = " + quoted(tag))
        return int(rows[0][0])

    def take(self, daemon, tag, seen):
        """One ID if there is one; tells whether there was."""
        response = daemon.leaf(tag)
        if response.status == 200:
            seen.append(int(response.body))
        return response.status == 200

    @contextlib.contextmanager
    def locked_rows(self, tags, end="ROLLBACK;"):
        """Another client's transaction that holds the rows. `end`: its last statements."""
        client = subprocess.Popen(
            [SERVER.client, "--no-defaults", "-u" + SERVER.user, "--socket=" + SERVER.socket, "-N", "-B", "--unbuffered",
             self.database],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        # One statement a row: for many names at once the server may read, and so lock, the whole table.
        locks = "".join("SELECT max_id FROM leaf_alloc WHERE biz_tag = %s FOR UPDATE; " % quoted(tag) for tag in tags)
        client.stdin.write(("BEGIN; " + locks + "SELECT 'held';\n").encode())
        client.stdin.flush()
        try:
            while b"held" not in client.stdout.readline():
                pass
            yield
        finally:
            client.stdin.write(end.encode() + b"\n")
            client.stdin.close()
            client.stdout.read()
            client.stdout.close()
            client.wait(60)


class PublishedTable(MariaDbTest):
    def test_serve_and_kill(self):
        self.sql(
            "insert into leaf_alloc(biz_tag, max_id, step, description) "
            "values('pay', 1, 2000, 'Test leaf Segment Mode Get Id')"
        )
        daemon = self.box.serve()
        self.assertEqual([daemon.leaf("pay").body for _ in range(3)], ["1", "2", "3"])
        self.assertEqual(self.max_id("pay"), 2001)
        daemon.kill()
        daemon = self.box.serve()
        first = int(daemon.leaf("pay").body)
        self.assertIn(first, (2001, 4001))
        ids = daemon.ids("pay", 300)  # past a tenth of the range, so the next one is fetched
        self.assertEqual(ids, list(range(first + 1, first + 301)))
        poll(lambda: self.max_id("pay") > first + 2000, "the next range is fetched in advance")
        daemon.kill()
        daemon = self.box.serve()
        self.assertGreaterEqual(int(daemon.leaf("pay").body), first + 4000)
        self.assertEqual(self.sql("SELECT step, description FROM leaf_alloc")[0][0], "2000")

    def test_first_range_is_exactly_leafs(self):
        """[max_id before, max_id before + step), also from 0."""
        self.insert("zero", 0, 10)
        daemon = self.box.serve()
        self.assertEqual([int(daemon.leaf("zero").body) for _ in range(30)], list(range(30)))

    def test_provisioning(self):
        self.box.ok("tag", "add", "pay", "--step", "1000", "--start", "5", "--description", "Zahlungen für alle")
        self.assertEqual(
            self.sql("SELECT biz_tag, max_id, step, description FROM leaf_alloc"),
            [["pay", "5", "1000", "Zahlungen für alle"]],
        )
        self.assertEqual(self.box.next("pay", "--direct", "-n", "3"), [5, 6, 7])
        self.assertEqual(self.max_id("pay"), 8)  # exactly three
        self.check(self.box.run(["tag", "add", "pay"]), 9, "pay")
        self.box.ok("tag", "set", "pay", "--step", "7")
        self.box.ok("tag", "advance", "pay", "--to", "100")
        self.assertEqual(self.sql("SELECT max_id, step FROM leaf_alloc"), [["100", "7"]])
        self.assertEqual(list(self.box.rows()), ["pay"])
        self.assertEqual(self.box.run(["db", "check"]).rc, 0)

    def test_removed_tag_goes_on_above_its_mark(self):
        for with_own_tables in (False, True):
            with self.subTest(with_own_tables=with_own_tables):
                self.box.ok("tag", "add", "pay", "--step", "100")
                last = self.box.next("pay", "--direct", "-n", "50")[-1]
                self.box.ok("tag", "remove", "pay", "--yes")
                self.assertEqual(self.sql("SELECT * FROM leaf_alloc"), [])
                self.check(self.box.run(["tag", "add", "pay", "--start", "1"]), 11, str(last + 1))
                self.check(self.box.run(["tag", "add", "pay", "--start", str(last)]), 11, str(last + 1))
                self.box.ok("tag", "add", "pay")
                self.assertGreater(self.box.next("pay", "--direct")[0], last)
                self.box.ok("tag", "remove", "pay", "--yes")
                if not with_own_tables:
                    self.box.ok("db", "init")
        # What the database remembers, other nodes know too.
        other = self.another_node()
        self.check(other.run(["tag", "add", "pay", "--start", "1"]), 11)
        other.ok("tag", "add", "pay")
        self.assertGreater(other.next("pay", "--direct")[0], last)


class SurrogateKey(PublishedTable):
    table = VARIANT_B


class Cluster(MariaDbTest):
    def test_two_daemons_on_one_table(self):
        self.insert("pay")
        nodes = [self.box.serve(), self.another_node().serve()]
        each = scaled(200000, 10000)
        sizes = (1, 7, 100, 3, 999, 1, 50, 2500)
        results = []

        def take(node, seed, wanted):
            mine = []
            number = seed
            while len(mine) < wanted:
                mine += node.ids("pay", sizes[number % len(sizes)])
                number += 1
            node.disconnect()
            results.append(mine)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(take, nodes[n % 2], n, each // 4) for n in range(8)]:
                future.result()
        for mine in results:
            self.assertEqual(mine, sorted(mine), "one connection's IDs increase")
        everything = [value for mine in results for value in mine]
        self.assertGreaterEqual(len(everything), 2 * (each // 4) * 4)
        self.check_distinct(everything)
        for node in nodes:
            self.assertNotIn("frozen", node.log())

    def test_direct_runs_of_two_nodes(self):
        self.insert("pay")
        boxes = [self.box, self.another_node()]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            batches = list(
                pool.map(
                    lambda n: boxes[n % 2].next("pay", "--direct", "--timeout", "50s", "-n", str(1 + n % 5)), range(scaled(120, 24))
                )
            )
        ids = [value for batch in batches for value in batch]
        self.assertEqual(sorted(ids), list(range(1, len(ids) + 1)))

    def test_a_thousand_at_once_on_a_small_step(self):
        for tag, path, headers in (
            ("leaf", "/api/segment/get/leaf", ()),
            ("v1", "/v1/segment/v1", ("Accept: text/plain",)),
        ):
            self.insert(tag, 1, 100)
            daemon = self.box.serve() if tag == "leaf" else self.box.daemons[-1]
            connections = [daemon.raw() for _ in range(scaled(1000, 200))]
            request = "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, "".join(h + "\r\n" for h in headers))
            ids = []
            for _ in range(3):
                for connection in connections:
                    connection.send(request)
                for connection in connections:
                    response = connection.response()
                    self.assertEqual(response.status, 200, response.body)
                    ids.append(int(response.body))
            for connection in connections:
                connection.close()
            self.check_distinct(ids)

    def test_second_endpoint(self):
        self.insert("pay")
        self.configure(self.box, endpoints='["127.0.0.1:%d", "127.0.0.1:%d"]' % (free_port(), SERVER.port))
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        daemon = self.box.serve()
        self.assertEqual(daemon.leaf("pay").body, "2")


class Tags(MariaDbTest):
    def test_inserted_by_sql(self):
        daemon = self.box.serve("--set", "segment.refresh_interval=1h")
        self.insert("pay", 100)
        self.assertEqual(daemon.leaf("pay").body, "100")  # at its first request
        self.insert("ship", 200)
        self.assertEqual(json.loads(daemon.v1("ship").body), {"ids": ["200"]})
        self.insert("rail", 300)
        self.assertEqual(self.box.next("rail"), [300])

    def test_what_is_granted_while_a_tag_is_removed_is_remembered(self):
        """Without the table of removed tags this state directory is all that remembers."""
        self.insert("pay", 1000)
        results = []
        remove = threading.Thread(target=lambda: results.append(self.box.run(["tag", "remove", "pay", "--yes"])))
        with self.locked_rows(["pay"], "UPDATE leaf_alloc SET max_id = 5000 WHERE biz_tag = 'pay'; COMMIT;"):
            remove.start()
            marks = os.path.join(self.box.state, "marks.db")
            poll(lambda: b"pay" in read_all(marks) + read_all(marks + "-wal"), "it has read the row, and remembers it")
        remove.join()
        self.assertEqual(results[0].rc, 0, results[0])
        self.assertIn("only this state directory remembers that the tag was at 5000", results[0].err)
        self.box.ok("tag", "add", "pay")
        self.assertEqual(self.box.next("pay", "--direct"), [5000])

    def test_a_table_with_a_trigger(self):
        """Such as one that keeps a history."""
        self.insert("pay", 100)
        self.insert("ship", 1)
        self.sql("CREATE TABLE history (id INT AUTO_INCREMENT PRIMARY KEY, max_id BIGINT)")
        self.sql("CREATE TRIGGER keep AFTER UPDATE ON leaf_alloc FOR EACH ROW INSERT INTO history(max_id) VALUES (NEW.max_id)")
        ids = [*self.box.next("pay", "-n", "3", "--direct"), *self.box.next("pay", "-n", "3", "--direct")]
        daemon = self.box.serve()
        for tag in ("pay", "ship"):
            for _ in range(30):
                response = daemon.leaf(tag)
                self.assertEqual(response.status, 200, response.body)
                if tag == "pay":
                    ids.append(int(response.body))
        self.check_distinct(ids)
        self.assertEqual(ids, sorted(ids))
        # The first grant of a process is lost, since its reply does not tell where it ends.
        self.assertEqual(daemon.log().count("grants are obtained in transactions from now on"), 1)

    def test_deleted_by_sql(self):
        for tag in ("pay", "ship", "rail"):
            self.insert(tag)
        daemon = self.box.serve()
        for tag in ("pay", "ship", "rail"):
            self.assertEqual(daemon.leaf(tag).body, "1")
        self.sql("DELETE FROM leaf_alloc WHERE biz_tag = 'pay'")
        poll(lambda: daemon.leaf("pay").status == 500, "the deleted tag stops", timeout=1 + SLACK_S)
        self.check_leaf_error(daemon.leaf("pay"), -2)
        self.check_v1_error(daemon.v1("pay"), 404, "not_found")
        self.check(self.box.run(["next", "pay"]), 9, "pay")
        self.assertEqual(daemon.leaf("ship").status, 200)
        # An empty table is a valid answer.
        self.sql("DELETE FROM leaf_alloc")
        poll(lambda: daemon.leaf("ship").status == 500, "the last tags stop", timeout=1 + SLACK_S)
        self.check_leaf_error(daemon.leaf("ship"), -2)
        poll(lambda: daemon.leaf("rail").status == 500, "the last tags stop", timeout=1 + SLACK_S)
        self.check_leaf_error(daemon.leaf("rail"), -2)
        self.assertEqual(daemon.get("/health/ready").status, 200)
        # One that comes back below the mark of this node is frozen, one above goes on.
        self.insert("pay", 1)
        self.insert("ship", 100000)
        poll(lambda: daemon.leaf("ship").status == 200, "a tag that came back")
        poll(lambda: daemon.v1("pay").status == 409, "a tag that came back too low")
        self.check_leaf_error(daemon.leaf("pay"), -3)

    def test_set_back_by_hand_is_seen_at_the_refresh(self):
        self.insert("pay", 1, 100)
        self.insert("ship", 1, 100)
        daemon = self.box.serve()
        seen = daemon.ids("pay", 250)
        daemon.ids("ship")
        self.sql("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'pay'")

        def frozen():
            response = daemon.v1("pay")
            if response.status == 200:
                seen.append(int(json.loads(response.body)["ids"][0]))
            return response.status == 409

        poll(frozen, "the tag freezes", timeout=1 + SLACK_S)
        self.check_frozen(daemon)
        self.repair(daemon, seen)

    def test_set_back_by_hand_is_seen_at_the_next_grant(self):
        self.insert("pay", 1, 100)
        self.insert("ship", 1, 100)
        daemon = self.box.serve("--set", "segment.refresh_interval=1h")
        seen = daemon.ids("pay", 3)
        daemon.ids("ship")
        self.sql("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'pay'")
        for _ in range(1000):
            if not self.take(daemon, "pay", seen):
                break
        self.check_distinct(seen)
        self.assertLessEqual(max(seen), 100)
        self.check_frozen(daemon)
        # Without a refresh it does not know of the repair until it is told otherwise; a new node does.
        self.check_distinct(seen)

    def check_frozen(self, daemon):
        error = self.check_v1_error(daemon.v1("pay"), 409, "frozen")
        self.assertIn("pay", error["message"])
        self.assertIn("repair", error["hint"])
        self.check_leaf_error(daemon.leaf("pay"), -3)
        self.check(self.box.run(["next", "pay"]), 11, "pay", "frozen", "repair")
        self.check(self.box.run(["next", "pay", "--direct"]), 11, "pay", "frozen", "repair")
        for _ in range(300):  # past its reserve
            self.assertEqual(daemon.leaf("ship").status, 200)
        self.assertEqual(daemon.get("/health/ready").status, 200)
        self.assertEqual(daemon.get("/health/ready?tag=pay").status, 503)
        self.assertEqual(daemon.tag_status("pay")["state"], "frozen")
        status = self.box.run(["status"])
        self.assertEqual(status.rc, 10, status)
        self.assertIn("pay", status.out + status.err)

    def repair(self, daemon, seen):
        self.check(self.box.run(["tag", "repair", "pay"]), 11, "--confirm pay")
        self.check(self.box.run(["tag", "repair", "pay", "--yes"]), 11, "--confirm pay")
        self.assertEqual(self.max_id("pay"), 1)
        self.box.ok("tag", "repair", "pay", "--confirm", "pay")
        poll(lambda: daemon.leaf("pay").status == 200, "the tag thaws", timeout=1 + SLACK_S)
        seen += daemon.ids("pay", 300)
        self.check_distinct(seen)
        # It tells of the last second.
        poll(lambda: self.box.run(["status"]).rc == 0, "status shows no problem")

    def test_repair_asks_for_marks_of_tags_the_daemon_does_not_serve(self):
        """The row was deleted and is back at its beginning: the daemon has a mark and, so far, no generator."""
        self.insert("pay", 1, 100)
        daemon = self.box.serve("--set", "segment.refresh_interval=1h")
        given = daemon.ids("pay", 250)
        daemon.terminate()
        self.sql("DELETE FROM leaf_alloc")
        daemon = self.box.serve("--set", "segment.refresh_interval=1h")
        self.insert("pay", 1, 100)
        dba = self.another_node()
        before = dba.run(["tag", "repair", "pay", "--server", daemon.url, "--dry-run"])
        self.check(before, 0)
        self.assertIn("granted up to", before.out)
        self.check_v1_error(daemon.v1("pay"), 409, "frozen")
        self.check(dba.run(["tag", "repair", "pay", "--server", daemon.url, "--confirm", "pay"]), 0)
        self.assertGreater(dba.next("pay", "--direct")[0], max(given))

    def test_repair_warns_of_nodes_whose_marks_no_witness_knows(self):
        """Each node knows only what it was granted: a repair on one would thaw it into the other's IDs."""
        self.box.ok("db", "init")
        self.insert("pay", 1, 100)
        other = self.another_node().serve()
        other.ids("pay", 250)
        daemon = self.box.serve()
        daemon.ids("pay", 1)
        alone = self.box.run(["tag", "repair", "pay", "--dry-run"])
        self.check(alone, 0, "has had other nodes", "--server")
        self.assertIn("process %d " % other.process.pid, alone.err)
        self.assertNotIn("process %d " % daemon.process.pid, alone.err)
        own = self.box.run(["tag", "repair", "pay", "--server", daemon.url, "--dry-run"])
        self.check(own, 0, "has had other nodes")
        named = self.box.run(["tag", "repair", "pay", "--server", daemon.url, "--server", other.url, "--dry-run"])
        self.check(named, 0)
        self.assertNotIn("other nodes", named.err)
        self.assertEqual(daemon.terminate(), 0)
        self.assertEqual(other.terminate(), 0)
        self.assertNotIn("other nodes", self.check(self.box.run(["tag", "repair", "pay", "--dry-run"]), 0).err)

    def test_repair_refuses_while_a_named_daemon_cannot_be_asked(self):
        self.insert("pay", 1, 100)
        self.check(
            self.box.run(["tag", "repair", "pay", "--server", "http://127.0.0.1:%d" % free_port(), "--confirm", "pay"]),
            11, "pay", "--to",
        )  # fmt: skip

    def test_repair_asks_the_daemon_of_another_state_directory(self):
        self.insert("pay", 1, 100)
        daemon = self.box.serve()
        seen = daemon.ids("pay", 250)
        self.sql("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'pay'")
        poll(lambda: daemon.v1("pay").status == 409, "the tag freezes", timeout=1 + SLACK_S)
        dba = self.another_node()
        result = dba.run(["tag", "repair", "pay", "--server", daemon.url, "--confirm", "pay"])
        self.assertEqual(result.rc, 0, result)
        self.assertGreater(self.max_id("pay"), max(seen))
        poll(lambda: daemon.leaf("pay").status == 200, "the tag thaws", timeout=1 + SLACK_S)

    def test_repair_of_all_tags_asks_for_the_marks_of_each(self):
        for tag in ("pay", "ship", "well"):
            self.insert(tag, 1, 100)
        daemon = self.box.serve()
        seen = {tag: max(daemon.ids(tag, 250)) for tag in ("pay", "ship", "well")}
        self.sql("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag <> 'well'")
        dba = self.another_node()
        args = ["tag", "repair", "--all", "--server", daemon.url]
        plan = json.loads(dba.ok(*args, "--dry-run", "--json"))
        self.assertEqual([item["tag"] for item in plan["tags"]], ["pay", "ship"])
        for item in plan["tags"]:
            ends = [mark["end"] for mark in item["marks"] if mark["where"] == "daemon at " + daemon.url]
            self.assertEqual(ends, [item["to"]], item)
            self.assertGreater(int(item["to"]), seen[item["tag"]])
        self.assertEqual(self.max_id("pay"), 1)
        self.check(dba.run(args), 11, "--confirm all")
        text = dba.ok(*args, "--confirm", "all")
        for item in plan["tags"]:
            self.assertIn("repaired tag '%s': the next grant begins at %s" % (item["tag"], item["to"]), text)
            self.assertEqual(self.max_id(item["tag"]), int(item["to"]))
        poll(lambda: daemon.leaf("pay").status == 200, "the tag thaws", timeout=1 + SLACK_S)
        # A daemon that is away may know of more.
        daemon.terminate()
        self.sql("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'ship'")
        self.check(dba.run([*args, "--confirm", "all"]), 11, "cannot repair all tags", daemon.url)
        self.assertEqual(self.max_id("ship"), 1)

    def test_repair_of_more_tags_than_a_daemon_looks_up_in_a_second(self):
        count = 1200
        rows = ",".join("('tag%d', 1, 100, 'd')" % number for number in range(count))
        self.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES " + rows)
        daemon = self.box.serve()
        plan = json.loads(
            self.another_node().ok("tag", "repair", "--all", "--server", daemon.url, "--dry-run", "--json")
        )  # fmt: skip
        self.assertEqual(plan["tags"], [], "every mark was asked for, and no row is behind")

    def test_bad_steps(self):
        self.insert("ship")
        for number, step in enumerate((0, -5, 2147483647, 1 << 30)):
            self.insert("bad%d" % number, 1000, step)
        self.insert("top", 1, (1 << 30) - 1)
        daemon = self.box.serve("--set", "server.request_timeout=3s")
        for number, step in enumerate((0, -5, 2147483647, 1 << 30)):
            tag = "bad%d" % number
            response = daemon.v1(tag)
            error = json.loads(response.body)
            self.assertGreaterEqual(response.status, 400, error)
            self.assertIn(tag, error["message"])
            self.assertIn(str(step), error["message"])
            self.check_leaf_error(daemon.leaf(tag), -3)
            result = self.box.run(["next", tag, "--direct"])
            self.check(result, 11, tag, str(step))
            self.check(self.box.run(["next", tag]), 11, tag, str(step))
            self.assertEqual(self.max_id(tag), 1000, "the row moved")
        self.assertEqual(daemon.leaf("ship").body, "1")
        self.assertEqual(daemon.leaf("top").body, "1")
        self.assertEqual(daemon.get("/health/ready").status, 200)
        self.assertEqual(self.box.run(["status"]).rc, 10)
        # Mended by hand they go on by themselves.
        self.box.ok("tag", "set", "bad0", "--step", "100")
        poll(lambda: daemon.leaf("bad0").status == 200, "the mended tag", timeout=SLACK_S)

    def test_negative_max_id(self):
        self.insert("low", -10, 100)
        self.insert("lowest", -ID_END, 100)
        daemon = self.box.serve()
        for tag, value in (("low", -10), ("lowest", -ID_END)):
            self.assertIn(daemon.v1(tag).status, (409, 500, 503))
            self.check_leaf_error(daemon.leaf(tag), -3)
            self.check(self.box.run(["next", tag, "--direct"]), 11, tag, str(value))
            self.assertEqual(self.max_id(tag), value)
        self.assertEqual(daemon.get("/health/ready").status, 200)

    def test_the_end_of_the_numbers(self):
        daemon = self.box.serve()
        for start in (ID_END - 11, ID_END - 2, ID_END - 1):
            tag = "end%d" % start
            self.insert(tag, start, 2000)
            seen = []
            for _ in range(15):
                if not self.take(daemon, tag, seen):
                    break
            self.assertEqual(seen, list(range(start, start + len(seen))))
            self.check_distinct(seen)
            self.assertEqual(len(seen), ID_END - 1 - start)
            self.check_leaf_error(daemon.leaf(tag), -3)
            self.assertEqual(self.max_id(tag), ID_END - 1)
            self.check(self.box.run(["next", tag, "--direct"]), 11, tag)
            self.check(self.box.run(["next", tag, "--direct", "-n", "100"]), 11, tag)
        self.insert("direct", ID_END - 11, 2000)
        self.check(self.box.run(["next", "direct", "--direct", "-n", "11"]), 11, "direct")
        self.assertEqual(self.max_id("direct"), ID_END - 11)
        self.assertEqual(self.box.next("direct", "--direct", "-n", "10")[-1], ID_END - 2)

    def test_changed_step_is_used(self):
        self.insert("pay", 1, 10)
        daemon = self.box.serve("--set", "segment.step_policy=fixed")
        daemon.ids("pay", 5)
        self.sql("UPDATE leaf_alloc SET step = 5000")
        daemon.ids("pay", 40)
        poll(lambda: self.max_id("pay") > 5000, "grants of the new step")


class NamesUtf8(MariaDbTest):
    """Names are matched byte for byte, whatever the collation makes of them."""

    unicode_fits = True

    def setUp(self):
        super().setUp()
        self.names = ["pay", "ship ", "é", "v1.0", "a.b.c", "a b", "50%", "x'y\\z", '"<&>']
        if self.unicode_fits:
            self.names += ["订单", "Straße", "\U0001f600"]
        for name in self.names:
            self.insert(name, 100, 10)

    def test_each_name_answers_as_itself(self):
        daemon = self.box.serve()
        for name in self.names:
            self.assertEqual(daemon.leaf(name).body, "100", name)
            self.assertEqual(json.loads(daemon.v1(name).body), {"ids": ["101"]}, name)
            self.assertEqual(self.box.next(name), [102], name)
            direct = self.box.next(name, "--direct")[0]  # above what the daemon reserved
            self.assertIn(direct, (110, 120), name)
            self.assertGreater(self.max_id(name), direct)
        self.assertEqual(sorted(self.box.rows()), sorted(self.names))
        encoded = "".join("%%%02X" % byte for byte in "v1.0".encode())
        self.assertEqual(daemon.get("/api/segment/get/" + encoded).body, "103")
        self.assertEqual(daemon.get("/api/segment/get/v1%2E0").body, "104")
        self.assertEqual(daemon.get("/api/segment/get/v1.0/").body, "105")

    def test_names_that_only_look_alike(self):
        daemon = self.box.serve()
        alike = ["PAY", "Pay", "pay ", " pay", "pay\u200b", "ship", "ship  ", "e", "É", "e\u0301", "v1", "V1.0"]
        alike += ["A.b.c", "A B", "a  b", "50%25", "5_%", "x'y\\Z", "strasse", "Strasse", "订", "％", "ｐａｙ"]
        before = self.sql("SELECT biz_tag, max_id FROM leaf_alloc ORDER BY 1")
        for name in alike:
            self.check_leaf_error(daemon.leaf(name), -2)
            self.check_v1_error(daemon.v1(name), 404, "not_found")
            self.check(self.box.run(["next", name]), 9)
            self.check(self.box.run(["next", name, "--direct"]), 9)
        for name in ("PAY", "pay ", "e", "ship", "É"):
            self.check(self.box.run(["tag", "show", name]), 9)
            self.check(self.box.run(["tag", "set", name, "--step", "5"]), 9)
            self.check(self.box.run(["tag", "advance", name, "--to", "5000"]), 9)
            self.check(self.box.run(["tag", "repair", name, "--to", "5000", "--confirm", name]), 9)
            self.check(self.box.run(["tag", "remove", name, "--yes"]), 9)
        self.assertEqual(self.sql("SELECT biz_tag, max_id FROM leaf_alloc ORDER BY 1"), before, "a row moved")

    def test_adding_a_name_that_the_collation_takes_for_another(self):
        result = self.box.run(["tag", "add", "PAY"])
        self.check(result, 9, "PAY")
        result = self.box.run(["tag", "add", "PAY", "--if-absent"])
        self.check(result, 9, "PAY")
        self.assertEqual(self.max_id("pay"), 100)

    def test_adding_unicode(self):
        result = self.box.run(["tag", "add", "物流.v2"])
        if self.unicode_fits:
            self.assertEqual(result.rc, 0, result)
            self.assertEqual(self.box.next("物流.v2", "--direct"), [1])
        else:
            # Refused, never stored as question marks.
            self.check(result, result.rc, "物流.v2")
            self.assertIn(result.rc, (1, 2, 6, 11))
            self.assertEqual(sorted(self.box.rows()), sorted(self.names))

    def test_db_check_tells_of_the_collation(self):
        result = self.box.run(["db", "check"])
        self.assertEqual(result.rc, 0, result)
        self.assertIn("collation", result.out)


class NamesLatin1(NamesUtf8):
    """A database as a server without configuration makes it."""

    charset = "latin1"
    unicode_fits = False


class NamesInOwnTable(MariaDbTest):
    """The table that `db init` makes keeps all of them apart."""

    table = None
    charset = "latin1"

    def test_all_are_different(self):
        self.box.ok("db", "init")
        names = ["pay", "PAY", "é", "e", "É", "订单", "\U0001f600"]
        for number, name in enumerate(names, 1):
            self.box.ok("tag", "add", name, "--start", str(1000 * number))
        daemon = self.box.serve()
        for number, name in enumerate(names, 1):
            self.assertEqual(daemon.leaf(name).body, str(1000 * number), name)
        self.assertEqual(sorted(self.box.rows()), sorted(names))


class Schema(MariaDbTest):
    table = None

    def check_unhealthy(self, *parts):
        result = self.box.run(["db", "check"])
        self.assertEqual(result.rc, 10, result)
        for part in parts:
            self.assertIn(part.lower(), (result.out + result.err).lower())

    def test_missing_table(self):
        self.check(self.box.run(["next", "pay", "--direct"]), 6, "leaf_alloc", "hint:", "db init")
        self.check(self.box.run(["tag", "list"]), 6, "db init")
        self.check_unhealthy("leaf_alloc", "db init")
        daemon = self.box.serve(ready=False)
        poll(lambda: "leaf_alloc" in daemon.get("/health/ready").body, "it says what is missing")
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.assertEqual(daemon.get("/health/live").status, 200)
        self.assertEqual(self.box.run(["status"]).rc, 10)
        # It mends itself once the table is there.
        self.box.ok("db", "init")
        daemon.wait_ready()
        self.box.ok("tag", "add", "pay")
        poll(lambda: daemon.leaf("pay").status == 200, "the tag")

    def test_init_is_idempotent(self):
        self.box.ok("db", "init")
        self.box.ok("tag", "add", "pay")
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        before = self.sql("SHOW CREATE TABLE leaf_alloc")
        self.box.ok("db", "init")
        self.assertEqual(self.sql("SHOW CREATE TABLE leaf_alloc"), before)
        self.assertEqual(self.box.next("pay", "--direct"), [2])
        self.assertEqual(self.box.run(["db", "check"]).rc, 0)

    def test_printed_sql_is_what_init_does(self):
        self.sql(self.box.ok("db", "init", "--print-sql"))
        printed = self.sql("SHOW CREATE TABLE leaf_alloc")
        tables = self.sql("SHOW TABLES")
        self.sql("".join("DROP TABLE %s;" % row[0] for row in tables))
        self.box.ok("db", "init", "--dry-run")
        self.assertEqual(self.sql("SHOW TABLES"), [])
        self.box.ok("db", "init")
        self.assertEqual(self.sql("SHOW CREATE TABLE leaf_alloc"), printed)
        self.assertEqual(self.sql("SHOW TABLES"), tables)

    def test_init_leaves_an_existing_table_alone(self):
        self.sql(VARIANT_B)
        before = self.sql("SHOW CREATE TABLE leaf_alloc")
        self.box.ok("db", "init")
        self.assertEqual(self.sql("SHOW CREATE TABLE leaf_alloc"), before)

    def test_check_passes_both_published_variants(self):
        for table in (VARIANT_A, VARIANT_B):
            self.sql("DROP TABLE IF EXISTS leaf_alloc;" + table)
            result = self.box.run(["db", "check"])
            self.assertEqual(result.rc, 0, result)
            self.assertIs(json.loads(self.box.ok("db", "check", "--json"))["ok"], True)

    def test_check_finds_what_is_unsafe(self):
        self.sql(VARIANT_A.replace("InnoDB", "MyISAM"))
        self.check_unhealthy("MyISAM", "InnoDB")
        self.sql("DROP TABLE leaf_alloc;" + VARIANT_B.replace("UNIQUE KEY", "KEY"))
        self.check_unhealthy("biz_tag", "unique")
        # Unique together with something else is not unique.
        self.sql("DROP TABLE leaf_alloc;" + VARIANT_A.replace("KEY (`biz_tag`)", "KEY (`biz_tag`, `step`)"))
        self.check_unhealthy("biz_tag", "unique")
        self.sql("DROP TABLE leaf_alloc;" + VARIANT_A.replace("`step`", "`steps`"))
        self.check_unhealthy("step")
        self.sql("DROP TABLE leaf_alloc;" + VARIANT_A.replace("bigint(20)", "int"))
        self.check_unhealthy("max_id", "not bigint")

    def test_an_order_is_not_changed_beside_what_the_table_refuses(self):
        """Two tables: what the second one would refuse is found before the first is changed."""
        self.box.ok("db", "init")
        self.box.ok("tag", "add", "abc", "--step", "10")
        self.sql("ALTER TABLE leaf_alloc MODIFY description varchar(4)")
        for order in ("strict", "trend"):
            self.check(self.box.run(["tag", "set", "abc", "--order", order, "--description", "much too long"]), 2)
            self.assertEqual(json.loads(self.box.ok("tag", "show", "abc", "--json"))["order"], "trend")
        self.box.ok("tag", "set", "abc", "--order", "strict", "--description", "abcd")
        self.check(self.box.run(["tag", "set", "abc", "--order", "trend", "--description", "much too long"]), 2)
        self.assertEqual(json.loads(self.box.ok("tag", "show", "abc", "--json"))["order"], "strict")

    def test_check_looks_for_the_tables_of_worker_numbers(self):
        """Only where they are used."""
        self.sql(VARIANT_A)
        numbers = ("--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay")
        self.assertEqual(self.box.run(["db", "check"]).rc, 0)
        result = self.box.run(["db", "check", *numbers])
        self.check(result, 10)
        self.assertIn("leaf_workerid_alloc, leafctl_cluster, leafctl_workers", result.out)
        self.box.ok("db", "init", *numbers)
        self.assertEqual(self.box.run(["db", "check", *numbers]).rc, 0)
        self.sql("ALTER TABLE leaf_workerid_alloc ENGINE=MyISAM")
        result = self.box.run(["db", "check", *numbers])
        self.check(result, 10)
        self.assertIn("engine of leaf_workerid_alloc is MyISAM", result.out)
        self.assertEqual(self.box.run(["db", "check"]).rc, 0)

    def test_check_of_durability(self):
        self.sql(VARIANT_A)
        for value in (0, 2):
            SERVER.sql("SET GLOBAL innodb_flush_log_at_trx_commit = %d" % value)
            try:
                self.check_unhealthy("innodb_flush_log_at_trx_commit")
            finally:
                SERVER.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        self.assertEqual(self.box.run(["db", "check"]).rc, 0)


class Access(MariaDbTest):
    patience = None

    def setUp(self):
        super().setUp()
        self.insert("pay")

    def test_wrong_password(self):
        self.box.write("password", "wrong")
        result = self.box.run(["next", "pay", "--direct"])
        self.check(result, 4, "leaf")
        self.assertNotIn("wrong", result.err)
        self.check(self.box.run(["db", "check"]), 4)
        self.check(self.box.run(["tag", "list"]), 4)
        # The daemon stays up, not ready, and says why.
        daemon = self.box.serve(ready=False)
        poll(lambda: "access denied" in daemon.get("/health/ready").body.lower(), "it says why")
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.assertEqual(daemon.get("/health/live").status, 200)
        self.assertGreaterEqual(daemon.v1("pay").status, 500)

    def test_password_file_of_others(self):
        for mode in (0o644, 0o640, 0o604):
            os.chmod(self.box.path("password"), mode)
            result = self.box.run(["next", "pay", "--direct"])
            self.check(result, 6, self.box.path("password"))
            self.assertNotIn(PASSWORD, result.err)
            self.check(self.box.run(["serve", "--listen", "127.0.0.1:0"]), 6, self.box.path("password"))
        os.chmod(self.box.path("password"), 0o400)
        self.assertEqual(self.box.next("pay", "--direct"), [1])

    def test_password_is_not_shown(self):
        for args in (["config", "show"], ["config", "show", "--json"], ["-v", "next", "pay", "--direct"]):
            result = self.box.run(args)
            self.assertEqual(result.rc, 0, result)
            self.assertNotIn(PASSWORD, result.out + result.err)

    def test_password_from_credentials(self):
        self.check_credentials()

    def test_password_from_credentials_with_the_default_written_out(self):
        """A key that is set to its default is no other configuration."""
        self.check_credentials(password_file='""')

    def check_credentials(self, password_file=None):
        self.configure(self.box, password_file=password_file)
        directory = self.box.path("credentials")
        os.mkdir(directory)
        self.box.write("credentials/mysql-password", PASSWORD)
        env = {"CREDENTIALS_DIRECTORY": directory}
        self.assertEqual([int(self.box.ok("next", "pay", "--direct", env=env))], [1])
        self.check(self.box.run(["next", "pay", "--direct"]), 4)

    def test_user_without_rights(self):
        SERVER.sql(
            "CREATE USER IF NOT EXISTS poor@'%%' IDENTIFIED BY '%s'; GRANT SELECT ON %s.* TO poor@'%%'"
            % (PASSWORD, self.database)
        )
        self.configure(self.box, user='"poor"')
        self.check(self.box.run(["next", "pay", "--direct"]), 4)
        self.assertEqual(list(self.box.rows()), ["pay"])  # it may look
        self.assertEqual(self.max_id("pay"), 1)
        # For callers it is the server's trouble, as any of the database: 403 would be theirs.
        daemon = self.box.serve()
        self.check_leaf_error(daemon.leaf("pay"), -3)
        self.check_v1_error(daemon.v1("pay"), 503, "permission")

    def test_user_without_rights_to_own_tables(self):
        """A DBA may give leafctl the rights that Java Leaf needs, and no more."""
        SERVER.sql(
            "CREATE USER IF NOT EXISTS java@'%%' IDENTIFIED BY '%s'; GRANT SELECT, UPDATE ON %s.leaf_alloc TO java@'%%'"
            % (PASSWORD, self.database)
        )
        self.configure(self.box, user='"java"')
        daemon = self.box.serve()
        self.assertEqual(daemon.leaf("pay").body, "1")
        self.assertEqual(self.box.next("pay", "--direct"), [2001])
        # Whether there is a table that the user may not read cannot be seen: `db init` would not help.
        seen = self.box.ok("db", "check")
        self.assertIn("the user has no right to table leafctl_removed_tags", seen)
        self.assertNotIn("table leafctl_removed_tags is missing", seen)

    def test_a_user_that_is_locked_ends_no_daemon(self):
        """Segment mode goes on where the database of worker numbers refuses the user."""
        self.configure(self.box)
        self.box.ok("db", "init")
        SERVER.sql("CREATE USER IF NOT EXISTS locked@'%%' IDENTIFIED BY '%s'" % PASSWORD)
        SERVER.sql("GRANT ALL ON %s.* TO locked@'%%'; ALTER USER locked@'%%' ACCOUNT LOCK" % self.database)
        self.configure(self.box, user='"locked"')
        self.check(self.box.run(["next", "pay", "--direct"]), 4)
        snowflake = ("enabled=true", "registry=sql", "cluster=locked", "address=127.0.0.1:1", "claim_watch=0s")
        settings = [part for each in snowflake for part in ("--set", "snowflake." + each)]
        daemon = self.box.serve(*settings, ready=False)
        self.check_v1_error(daemon.v1("pay"), 503, "permission")
        SERVER.sql("ALTER USER locked@'%' ACCOUNT UNLOCK")
        daemon.wait_ready()
        self.assertEqual(daemon.leaf("pay").body, "1")

    def test_unknown_database(self):
        self.configure(self.box, database='"nothing"')
        self.check(self.box.run(["next", "pay", "--direct"]), 6, "nothing")

    def test_server_down(self):
        self.configure(self.box, endpoints='["127.0.0.1:%d"]' % free_port())
        self.check(self.box.run(["next", "pay", "--direct"]), 8)
        self.check(self.box.run(["tag", "list"]), 8)
        self.check(self.box.run(["db", "check"]), 8)
        self.check(self.box.run(["tag", "add", "x"]), 8)


class Outage(MariaDbTest):
    """The database goes away in several ways and comes back."""

    patience = None

    def outage(self, begin, end):
        self.insert("pay", 1, 100)
        self.insert("ship", 1, 100000)
        daemon = self.box.serve("--set", "server.request_timeout=500ms")
        seen = {"pay": [], "ship": []}
        # The first grant of each may take longer than a request waits here.
        poll(lambda: self.take(daemon, "ship", seen["ship"]), "the first ID of ship")
        poll(lambda: self.take(daemon, "pay", seen["pay"]), "the first ID of pay")
        begin()
        # No error until it is drained.
        for _ in range(99):
            self.assertTrue(self.take(daemon, "pay", seen["pay"]), len(seen["pay"]))
        for _ in range(1000):  # what was fetched in advance
            if not self.take(daemon, "pay", seen["pay"]):
                break
        for _ in range(3):
            started = time.monotonic()
            response = daemon.v1("pay")
            self.check_v1_error(response, 503)
            self.assertRegex(response.headers["Retry-After"], r"^\d+$")
            self.check_leaf_error(daemon.leaf("pay"), -3)
            self.assertLess(time.monotonic() - started, 0.5 + SLACK_S)
            # Others go on.
            for _ in range(100):
                self.assertTrue(self.take(daemon, "ship", seen["ship"]))
        result = self.box.run(["next", "pay"])
        self.check(result, 8, "pay")
        self.assertEqual(self.box.next("ship"), [seen["ship"][-1] + 1])
        self.assertEqual(daemon.get("/health/live").status, 200)
        # An unknown tag is no -2 while the table cannot be asked.
        self.check_leaf_error(daemon.leaf("other"), -3)
        self.check_v1_error(daemon.v1("other"), 503)
        end()
        poll(lambda: self.take(daemon, "pay", seen["pay"]), "service returns by itself")
        # More than one grant, each of which may take longer than a request waits here.
        enough = len(seen["pay"]) + 500
        poll(lambda: self.take(daemon, "pay", seen["pay"]) and len(seen["pay"]) >= enough, "IDs of several grants", interval=0)
        self.check_distinct(seen["pay"])
        self.check_distinct(seen["ship"])
        poll(lambda: self.box.run(["status"]).rc == 0, "no problem is left")
        self.assertEqual(daemon.get("/health/ready").status, 200)
        self.assertNotIn("frozen", daemon.log())
        self.assertEqual(daemon.terminate(), 0)

    def test_stopped(self):
        self.outage(SERVER.stop, SERVER.start)

    def test_killed(self):
        self.outage(SERVER.kill, SERVER.start)

    def test_hung(self):
        self.outage(SERVER.freeze, SERVER.thaw)

    def test_leafs_routes_do_not_wait_while_grants_fail(self):
        """As Java Leaf does, so that requests do not pile up; /v1 waits up to request_timeout."""
        self.insert("pay", 1, 10)
        daemon = self.box.serve("--set", "server.request_timeout=120s")
        daemon.ids("pay")
        SERVER.stop()
        with daemon.raw() as parked:
            parked.send("GET /v1/segment/pay?count=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            poll(lambda: daemon.tag_status("pay")["failures"] > 0, "a grant fails", timeout=30)
            poll(lambda: daemon.leaf("pay").status != 200, "the rest of the reserve is used up")
            for _ in range(20):
                started = time.monotonic()
                self.check_leaf_error(daemon.leaf("pay"), -3)
                self.assertLess(time.monotonic() - started, SLACK_S)
            SERVER.start()
            response = parked.response()
            self.assertEqual(response.status, 200, response.body)
            self.assertEqual(len(json.loads(response.body)["ids"]), 1000)

    def test_leafs_request_that_waits_when_the_grant_fails(self):
        """Also one that was parked before it failed is told then, not at the end of request_timeout."""
        self.insert("pay", 1, 10)
        daemon = self.box.serve("--set", "server.request_timeout=120s")
        SERVER.stop()
        daemon.disconnect()
        try:
            response = daemon.leaf("pay", timeout=SLACK_S)
        except TimeoutError:
            self.fail("it still waits after the grant has failed: %s" % daemon.tag_status("pay"))
        self.check_leaf_error(response, -3)

    def test_daemon_started_while_it_is_down(self):
        self.insert("pay")
        SERVER.stop()
        daemon = self.box.serve(ready=False)
        ready = daemon.get("/health/ready")
        self.assertEqual(ready.status, 503)
        poll(lambda: str(SERVER.port) in daemon.get("/health/ready").body, "it says why", timeout=30)
        for reason in json.loads(daemon.get("/health/ready").body)["reasons"]:
            self.assertEqual(list(reason), ["code", "message", "hint"])
        self.assertEqual(daemon.get("/health/live").status, 200)
        self.assertEqual(self.box.run(["status"]).rc, 10)
        self.check_v1_error(daemon.v1("pay"), 503)
        self.check_leaf_error(daemon.leaf("pay"), -3)
        self.check(self.box.run(["next", "pay", "--direct"]), 8)
        SERVER.start()
        daemon.wait_ready(timeout=30)
        poll(lambda: daemon.leaf("pay").status == 200, "it serves", timeout=30)

    def test_daemon_started_while_it_hangs_and_stopped_again(self):
        self.insert("pay")
        SERVER.freeze()
        daemon = self.box.serve(ready=False)
        self.assertEqual(daemon.get("/health/live").status, 200)
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.check_v1_error(daemon.v1("pay"), 503)
        self.assertEqual(daemon.terminate(), 0)

    def test_not_ready_once_nothing_can_be_issued(self):
        self.insert("pay", 1, 10)
        daemon = self.box.serve("--set", "server.request_timeout=200ms")
        poll(lambda: daemon.v1("pay").status == 200, "the first ID")
        SERVER.stop()
        poll(lambda: daemon.v1("pay").status == 503, "the only tag is drained")
        poll(lambda: daemon.get("/health/ready").status == 503, "and so the node is not ready")
        SERVER.start()
        daemon.wait_ready(timeout=30)

    def test_connections_cut_again_and_again(self):
        self.insert("pay", 1, 10)
        daemon = self.box.serve("--set", "server.request_timeout=30s", "--set", "segment.step_policy=fixed")
        stop = threading.Event()
        lists = [[] for _ in range(4)]

        def take(mine):
            while not stop.is_set():
                mine += daemon.ids("pay", 1 + len(mine) % 13)
            daemon.disconnect()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(take, mine) for mine in lists]
            try:
                for _ in range(scaled(20, 5)):
                    SERVER.cut("leaf")
                before = sum(map(len, lists))
                poll(
                    lambda: any(f.done() for f in futures) or sum(map(len, lists)) > before + 100, "it still serves"
                )
            finally:
                stop.set()
            for future in futures:
                future.result()
        self.check_distinct([value for mine in lists for value in mine])
        self.assertNotIn("frozen", daemon.log())

    def test_server_crashes_under_load(self):
        self.insert("pay", 1, 50)
        daemon = self.box.serve("--set", "server.request_timeout=60s")
        stop = threading.Event()
        lists = [[] for _ in range(4)]

        def take(mine):
            while not stop.is_set():
                mine += daemon.ids("pay", 1 + len(mine) % 13)
            daemon.disconnect()

        moments = explain.dice("the moments of the kills")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(take, mine) for mine in lists]
            try:
                for _ in range(scaled(3, 1)):
                    before = sum(map(len, lists))
                    poll(lambda: any(f.done() for f in futures) or sum(map(len, lists)) > before + 50, "it serves")
                    time.sleep(moments.uniform(0, 0.05))  # a random moment
                    SERVER.kill()
                    SERVER.start()
                before = sum(map(len, lists))
                poll(lambda: any(f.done() for f in futures) or sum(map(len, lists)) > before + 50, "it serves")
            finally:
                stop.set()
                SERVER.ensure_up()
            for future in futures:
                future.result()
        self.check_distinct([value for mine in lists for value in mine])
        self.assertNotIn("frozen", daemon.log())

    def test_locked_row_is_one_tags_trouble(self):
        self.insert("pay", 1, 10)
        self.insert("ship", 1, 10)
        daemon = self.box.serve("--set", "segment.step_policy=fixed")
        with self.locked_rows(["pay"]):
            self.check_v1_error(daemon.v1("pay"), 503)
            for _ in range(200):
                self.assertEqual(daemon.leaf("ship").status, 200)
            self.assertEqual(daemon.get("/health/ready").status, 200)
        poll(lambda: daemon.leaf("pay").status == 200, "the lock is gone")

    def test_many_locked_rows_leave_room_for_others(self):
        """More of them than there are connections: a healthy tag still gets its grants."""
        locked = ["locked%d" % number for number in range(20)]
        for tag in locked:
            self.insert(tag, 1, 10)
        self.insert("ship", 1, 10)
        daemon = self.box.serve("--set", "segment.step_policy=fixed")
        daemon.ids("ship")
        stop = threading.Event()

        def hammer(tag):
            while not stop.is_set():
                daemon.v1(tag)
            daemon.disconnect()

        with concurrent.futures.ThreadPoolExecutor(len(locked)) as pool, self.locked_rows(locked):
            futures = [pool.submit(hammer, tag) for tag in locked]
            try:
                poll(
                    lambda: sum(1 for tag in daemon.status()["segment"]["tags"] if tag["failures"] or tag["waiting"])
                    >= len(locked),
                    "all of them wait",
                )
                until = time.monotonic() + 4
                while time.monotonic() < until:
                    response = daemon.v1("ship", 3)
                    self.assertEqual(response.status, 200, response.body)
            finally:
                stop.set()
            for future in futures:
                future.result()


class Connections(MariaDbTest):
    """How many connections a daemon has, and what it does if the server lets in no more."""

    tags = ["tag%d" % number for number in range(64)]

    def setUp(self):
        super().setUp()
        for tag in self.tags:
            self.insert(tag, 1, 10)
        # Its account is not an administrator's, and can have a limit.
        self.user = "few%d" % MariaDbTest.count
        SERVER.sql("CREATE USER %s IDENTIFIED BY '%s'" % (self.user, PASSWORD))
        self.addCleanup(SERVER.sql, "DROP USER %s" % self.user)
        SERVER.sql("GRANT ALL ON %s.* TO %s" % (self.database, self.user))
        self.configure(self.box, user='"%s"' % self.user)

    def connections(self):
        listed = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '%s'" % self.user
        return int(SERVER.sql(listed)[0][0])

    def burst(self, daemon):
        """Several grants of every tag, all tags at once; the most connections that were seen meanwhile."""

        def take(tag):
            got = daemon.ids(tag, 15) + daemon.ids(tag, 15)
            daemon.disconnect()
            return got

        with concurrent.futures.ThreadPoolExecutor(len(self.tags)) as pool:
            futures = [pool.submit(take, tag) for tag in self.tags]
            most = 0
            while not all(future.done() for future in futures):
                most = max(most, self.connections())
        for future in futures:
            self.check_distinct(future.result())
        return most

    def open_metric(self, daemon):
        return metrics.of(daemon).get("leaf_dependency_connections_open", dependency="database", kind="mysql")

    def test_a_burst_has_eight_and_two_are_left_at_rest(self):
        daemon = self.box.serve("--set", "segment.step_policy=fixed", "--set", "server.request_timeout=100s")
        self.assertLessEqual(self.burst(daemon), 8)
        self.assertLessEqual(self.open_metric(daemon), 8)
        poll(lambda: self.connections() <= 2, "two are left")
        poll(lambda: self.open_metric(daemon) <= 2, "the daemon knows it")

    def test_a_limit_of_the_configuration(self):
        daemon = self.box.serve(
            "--set", "segment.step_policy=fixed", "--set", "server.request_timeout=100s", "--set", "mysql.max_connections=2"
        )
        self.assertLessEqual(self.burst(daemon), 2)

    def test_a_server_that_lets_in_no_more(self):
        SERVER.sql("ALTER USER %s WITH MAX_USER_CONNECTIONS 3" % self.user)
        daemon = self.box.serve("--set", "segment.step_policy=fixed", "--set", "server.request_timeout=100s")
        self.burst(daemon)
        # One more may be asked for at this moment.
        poll(lambda: self.open_metric(daemon) <= 3, "the daemon knows it")
        log = daemon.log()
        self.assertEqual(log.count("accepts no more connections than"), 1, log)
        self.assertIn("MySQL error 1226", log)
        self.assertNotIn("failed", log)
        self.assertEqual(daemon.get("/health/ready").status, 200)


if __name__ == "__main__":
    main()
