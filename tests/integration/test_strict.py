#!/usr/bin/env python3
"""Strict tags: on SQLite and real MariaDB and Galera, an ID is above all that was answered before it was asked for."""

import concurrent.futures
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import real_time_order  # noqa: E402
from cluster import ClusterTest  # noqa: E402
from leafctl import LeafTest, main, poll, scaled  # noqa: E402
from real_time_order import OrderTaker  # noqa: E402
from servers import MariaDb, ReplicatedDb  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

SERVER = None
ZOOKEEPER = None
# Of one run. scripts/soak.sh order takes many more.
REQUESTS = int(os.environ.get("LEAFCTL_ORDER_REQUESTS") or scaled(4000, 400))
# Servers on a busy machine take their time.
PATIENCE_S = max(600.0, REQUESTS / 20)


def setUpModule():
    global SERVER, ZOOKEEPER
    SERVER = MariaDb()
    ZOOKEEPER = ZooKeeper()


def tearDownModule():
    SERVER.close()
    ZOOKEEPER.close()


def order_of(box, tag):
    """Its order, and from which ID on it holds."""
    row = json.loads(box.ok("tag", "show", tag, "--json"))
    return row["order"], row["strict_since"]


def progress(daemon, tag):
    status = daemon.tag_status(tag)
    return status["issued"] if status else 0


class Embedded(LeafTest):
    """One daemon, on SQLite."""

    def setUp(self):
        super().setUp()
        self.box.ok("tag", "add", "plain")
        self.daemon = self.box.serve()

    def test_ids_are_dense_and_nothing_is_held(self):
        result = self.box.run(["tag", "add", "pay", "--order", "strict"])
        self.assertEqual(result.rc, 0, result.err)
        self.assertIn("order strict from ID 1 on", result.out)
        self.assertNotIn("Java", result.err)
        self.assertEqual([self.daemon.ids("pay")[0] for _ in range(3)], [1, 2, 3])
        self.assertEqual(self.daemon.ids("pay", 5), [4, 5, 6, 7, 8])
        self.assertEqual(self.box.next("pay", "-n", "2"), [9, 10])
        # A command that issues by itself holds nothing either.
        self.assertEqual(self.box.next("pay", "-n", "2", "--direct"), [11, 12])
        self.assertEqual(self.daemon.ids("pay"), [13])
        status = self.daemon.tag_status("pay")
        self.assertEqual((status["order"], status["reserve"], status["reserve_target"]), ("strict", 0, 0))
        self.assertEqual(status["wasted"], 0)
        self.assertEqual(order_of(self.box, "pay"), ("strict", "1"))
        self.assertIn("order:        strict from ID 1 on", self.box.ok("tag", "show", "pay"))
        listed = {row["tag"]: row["order"] for row in json.loads(self.box.ok("tag", "list", "--json"))["tags"]}
        self.assertEqual(listed, {"pay": "strict", "plain": "trend"})
        self.assertIn("strict", self.box.ok("tag", "list", "--columns", "tag,order"))
        poll(lambda: re.search(r"^pay +strict ", self.box.ok("status"), re.M), "the status says so")
        metrics = self.daemon.get("/metrics").body
        self.assertIn('leaf_tag_strict{tag="pay"} 1', metrics)
        self.assertNotIn('leaf_tag_reserve_target_ids{tag="pay"}', metrics)
        self.assertNotIn('leaf_tag_strict{tag="plain"}', metrics)

    def test_many_at_once_share_a_grant(self):
        self.box.ok("tag", "add", "pay", "--order", "strict")
        taker = OrderTaker(self.box, "pay", connections=32)
        poll(lambda: progress(self.daemon, "pay") >= REQUESTS, "requests are answered")
        seen = taker.stop()
        self.assertGreater(real_time_order.check(seen), len(seen) // 2)
        status = self.daemon.tag_status("pay")
        self.assertLess(status["grants"] * 4, status["issued"], "requests that wait together are granted together")
        # Gaps only where a caller has left.
        self.assertLessEqual(status["wasted"], 32)

    def test_a_tag_changes_its_order_and_back(self):
        self.assertEqual(self.daemon.ids("plain"), [1])
        reserve = self.daemon.tag_status("plain")["reserve"]
        self.assertGreater(reserve, 0)
        dry = self.box.ok("tag", "set", "plain", "--order", "strict", "--dry-run")
        self.assertIn("would set tag 'plain'", dry)
        self.assertEqual(order_of(self.box, "plain"), ("trend", None))
        changed = self.box.ok("tag", "set", "plain", "--order", "strict")
        since = int(re.search(r"order strict from ID (\d+) on", changed).group(1))
        self.assertEqual(self.daemon.tag_status("plain")["reserve"], 0)
        self.assertEqual(self.daemon.ids("plain"), [since])
        # It is so already.
        self.assertIn("from ID %d on" % since, self.box.ok("tag", "set", "plain", "--order", "strict"))
        self.daemon.terminate()
        self.daemon = self.box.serve()
        self.assertEqual(self.daemon.ids("plain"), [since + 1])
        with sqlite3.connect(os.path.join(self.box.state, "marks.db")) as marks:
            self.assertEqual(marks.execute("SELECT tag, strict, since FROM orders").fetchall(), [("plain", 1, since)])
        self.box.ok("tag", "set", "plain", "--order", "trend", "--step", "50")
        poll(lambda: self.daemon.tag_status("plain")["order"] == "trend", "the daemon takes it over")
        self.assertEqual(self.daemon.ids("plain"), [since + 2])
        self.assertGreater(self.daemon.tag_status("plain")["reserve"], 0)
        actions = [change["action"] for change in json.loads(self.box.ok("tag", "history", "plain", "--json"))["changes"]]
        self.assertEqual(actions, ["set", "trend", "strict", "add"])

    def test_a_tag_that_is_removed_takes_its_order_along(self):
        self.box.ok("tag", "add", "pay", "--order", "strict")
        self.assertEqual(self.daemon.ids("pay"), [1])
        self.box.ok("tag", "remove", "pay", "--yes", "--confirm", "pay")
        self.box.ok("tag", "add", "pay")
        self.assertEqual(order_of(self.box, "pay"), ("trend", None))
        self.assertEqual(self.daemon.ids("pay"), [2])
        poll(lambda: self.daemon.tag_status("pay")["order"] == "trend", "the daemon knows it")

    def test_through_a_named_daemon(self):
        sock = "unix:" + os.path.join(self.box.state, "leafctl.sock")
        self.box.ok("tag", "add", "pay", "--order", "strict", "--server", sock)
        self.assertEqual(order_of(self.box, "pay"), ("strict", "1"))
        self.box.ok("tag", "set", "pay", "--order", "trend", "--server", sock)
        self.assertEqual(order_of(self.box, "pay"), ("trend", None))

    def test_what_is_no_order(self):
        for args, what in (
            (["tag", "set", "plain", "--order", "random"], "bad --order 'random': not trend or strict"),
            (["tag", "set", "plain", "--step", "5", "--gone", "a"], "--gone goes with --order strict only"),
            (["tag", "set", "plain", "--order", "strict", "--gone", "other"], "bad --gone 'other'"),
            (["tag", "set", "plain"], "give --step, --description or --order"),
        ):
            self.check(self.box.run(args), 2, what)
            self.check(self.box.run([*args, "--direct"]), 2, what)
        self.check(self.box.run(["tag", "set", "missing", "--order", "strict"]), 9, "missing")
        self.assertEqual(order_of(self.box, "plain"), ("trend", None))

    def test_a_crash_loses_no_order(self):
        self.box.ok("tag", "add", "pay", "--order", "strict")
        taker = OrderTaker(self.box, "pay", connections=8)
        for _ in range(3):
            poll(lambda: progress(self.daemon, "pay") >= REQUESTS // 8, "requests are answered")
            self.daemon.kill()
            self.daemon = self.box.serve()
        poll(lambda: progress(self.daemon, "pay") >= REQUESTS // 8, "and again")
        answers = taker.stop()
        self.assertGreater(real_time_order.check(answers), 0)


class Shared(ClusterTest):
    """Several nodes on one MariaDB, with a witness."""

    @classmethod
    def setUpClass(cls):
        cls.zookeeper = ZOOKEEPER
        cls.databases = (SERVER,)

    def setUp(self):
        super().setUp()
        self.box.ok("db", "init")
        self.insert("pay", step=100)
        self.insert("plain", step=100)

    def refused(self, box, *args):
        # The patience with nodes, and with the database, too: a healthy node has to answer in that time.
        result = box.run(["tag", "set", "pay", "--order", "strict", "--timeout", "8s", *args])
        self.check(result, 11, "cannot make tag 'pay' strict")
        self.assertEqual(order_of(box, "pay"), ("trend", None))
        return result.err

    def await_nodes(self, count):
        """So many have read the orders as they are, and are about nothing in the table."""
        current = "SELECT count(*) FROM leafctl_nodes n JOIN leafctl_orders o ON o.biz_tag = '' AND n.acknowledged = o.version"
        poll(lambda: SERVER.sql(current, self.name) == [[str(count)]], "%d nodes have acknowledged" % count)

    def begin(self, args):
        return self.box.popen([*args, "--timeout", "600s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begin_strict(self):
        return self.begin(["tag", "set", "pay", "--order", "strict"])

    def test_every_node_has_to_acknowledge(self):
        boxes = [self.box, self.node(), self.node()]
        daemons = [box.serve() for box in boxes]
        for daemon in daemons:
            self.assertEqual(len(daemon.ids("pay")), 1)
            self.assertGreater(daemon.tag_status("pay")["reserve"], 0)
        daemons[1].signal(signal.SIGSTOP)
        try:
            message = self.refused(self.box)
            names = re.findall(r"\b([0-9a-f]{16}) \(leafctl serve, process (\d+)", message)
            self.assertEqual([int(pid) for _, pid in names], [daemons[1].process.pid], message)
            self.assertIn("--gone", message)
        finally:
            daemons[1].signal(signal.SIGCONT)
        changed = self.box.run(["tag", "set", "pay", "--order", "strict"])
        self.assertEqual(changed.rc, 0, changed.err)
        self.assertIn("Java Leaf does not know", changed.err)
        since = int(re.search(r"order strict from ID (\d+) on", changed.out).group(1))
        for daemon in daemons:
            self.assertEqual(daemon.tag_status("pay")["order"], "strict")
            self.assertEqual(daemon.tag_status("pay")["reserve"], 0)
        ids = [daemons[index % 3].ids("pay")[0] for index in range(12)]
        self.assertEqual(ids, list(range(since, since + 12)), "dense, and in the order of the requests")
        # The command asks all of them again: one may have started while the table had lost the order.
        daemons[1].signal(signal.SIGSTOP)
        try:
            again = ["tag", "set", "pay", "--order", "strict"]
            self.check(self.box.run(again + ["--timeout", "8s"]), 11, "tag 'pay' is strict, but not on all nodes", "--gone")
            self.assertIn("from ID %d on" % since, self.box.ok(*again, "--dry-run"))
        finally:
            daemons[1].signal(signal.SIGCONT)
        self.assertEqual(order_of(self.box, "pay"), ("strict", str(since)))
        self.assertIn("from ID %d on" % since, self.box.ok(*again))
        self.assertEqual(daemons[2].ids("pay"), [since + 12])

    def test_what_another_command_ends_meanwhile(self):
        boxes = [self.box, self.node(), self.node()]
        daemons = [box.serve() for box in boxes]
        command = ["tag", "set", "pay", "--order", "strict"]
        self.box.ok(*command)
        version = "SELECT version FROM leafctl_orders WHERE biz_tag = ''"
        before = SERVER.sql(version, self.name)
        daemons[1].signal(signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                waiting = pool.submit(self.box.run, [*command, "--timeout", "600s"])
                poll(lambda: SERVER.sql(version, self.name) != before, "the command asks the nodes")
                boxes[2].ok("tag", "set", "pay", "--order", "trend")
                daemons[1].signal(signal.SIGCONT)
                self.check(waiting.result(), 11, "another command has changed its order meanwhile")
        finally:
            daemons[1].signal(signal.SIGCONT)
        self.assertEqual(order_of(self.box, "pay"), ("trend", None))

    def test_a_command_that_does_not_end_as_it_began(self):
        daemon = self.node().serve()
        strict = "SELECT strict FROM leafctl_orders WHERE biz_tag = 'pay'"
        self.await_nodes(1)
        daemon.signal(signal.SIGSTOP)
        try:
            killed = self.begin_strict()
            poll(lambda: SERVER.sql(strict, self.name) == [["1"]], "the tag is to be strict")
            killed.kill()
            killed.communicate()
            # What it left is a difference to be mended.
            path = self.box.write("tags.toml", '[[tags]]\ntag = "pay"\norder = "strict"\n')
            plan = self.box.ok("tag", "apply", "-f", path, "--dry-run")
            self.assertIn("set tag 'pay': order strict instead of one that not all nodes have acknowledged", plan)
            # One that gives up takes nothing back: the table may only have lost that it was promised.
            self.check(self.box.run(["tag", "set", "pay", "--order", "strict", "--timeout", "8s"]), 11, "not acknowledged")
            self.assertEqual(order_of(self.box, "pay"), ("strict", None))
            added = self.box.run(["tag", "add", "pay", "--order", "strict", "--if-absent"])
            self.assertIn("order strict, which not all nodes have acknowledged", added.err)
        finally:
            daemon.signal(signal.SIGCONT)
        self.box.ok("tag", "apply", "-f", path, "--yes")
        self.assertEqual(self.box.ok("tag", "apply", "-f", path), "nothing to change\n")

    def test_commands_that_make_a_tag_strict_at_once(self):
        daemon = self.node().serve()
        self.await_nodes(1)
        daemon.signal(signal.SIGSTOP)
        try:
            before = SERVER.sql("SELECT version FROM leafctl_orders WHERE biz_tag = ''", self.name)[0][0]
            commands = [self.begin_strict(), self.begin_strict()]
            commands += [self.begin(["tag", "add", "new", "--order", "strict", "--if-absent"]) for _ in range(2)]
            poll(
                lambda: SERVER.sql("SELECT version >= %s + 4 FROM leafctl_orders WHERE biz_tag = ''" % before, self.name)
                == [["1"]],
                "all four wait",
            )
        finally:
            daemon.signal(signal.SIGCONT)
        for command in commands:
            _, err = command.communicate()
            self.assertEqual(command.returncode, 0, err)
        self.assertEqual(order_of(self.box, "pay"), ("strict", "1"))
        self.assertEqual(order_of(self.box, "new"), ("strict", "1"))
        # Nodes learn since when, without another change: a table that loses that has it again.
        self.await_nodes(1)
        SERVER.sql(
            "UPDATE leafctl_orders SET since = NULL, version = version + IF(biz_tag = '', 10, 0) WHERE biz_tag IN ('', 'pay')",
            self.name,
        )
        poll(lambda: order_of(self.box, "pay") == ("strict", "1"), "a node writes it again")

    def test_a_node_that_is_gone_for_good_is_confirmed_by_name(self):
        other = self.node()
        dead = other.serve()
        self.assertEqual(len(dead.ids("pay")), 1)
        daemon = self.box.serve()
        dead.kill()
        # Where ZooKeeper still has its entry, it has to be gone from there, too.
        poll(lambda: "an older version" not in self.refused(self.box), "its session has ended")
        name = re.search(r"\b([0-9a-f]{16}) \(", self.refused(self.box)).group(1)
        self.check(self.box.run(["tag", "set", "pay", "--order", "strict", "--gone", "0123"]), 2, name)
        for _ in range(2):
            self.box.ok("tag", "set", "pay", "--order", "strict", "--gone", name)  # as often as it is needed
        self.assertEqual(daemon.tag_status("pay")["order"], "strict")
        # A later run at its place needs no confirmation.
        again = other.serve()
        places = SERVER.sql("SELECT place FROM leafctl_nodes", self.name)
        device = ":%d:" % os.stat(self.box.path("state")).st_dev
        self.assertEqual([place for (place,) in places if device in place], [], "it changes with a reboot")
        self.assertGreater(again.ids("pay")[0], daemon.ids("pay")[0] - 2)
        again.kill()
        other.serve()
        self.box.ok("tag", "set", "plain", "--order", "strict")

    def lose_the_order(self):
        """As a failover does that loses the change. No node is left that has read it."""
        SERVER.sql(
            "DELETE FROM leafctl_orders WHERE biz_tag = 'pay'; UPDATE leafctl_orders SET version = 1", self.name
        )  # fmt: skip

    def test_a_node_that_starts_after_the_table_lost_the_change(self):
        daemon = self.box.serve()
        self.assertEqual(len(daemon.ids("pay")), 1)
        self.box.ok("tag", "set", "pay", "--order", "strict")
        _, since = order_of(self.box, "pay")
        daemon.terminate()
        self.lose_the_order()
        self.assertEqual(order_of(self.box, "pay"), ("trend", None))
        daemon = self.node().serve()
        self.assertEqual([daemon.ids("pay")[0] for _ in range(3)], [int(since) + step for step in range(3)])
        status = daemon.tag_status("pay")
        self.assertEqual((status["order"], status["reserve"]), ("strict", 0))
        poll(lambda: order_of(self.box, "pay") == ("strict", since), "the node writes the row again")
        # What an operator decides afterwards counts, and the witness forgets the order.
        daemon.terminate()
        self.box.ok("tag", "set", "pay", "--order", "trend")
        self.lose_the_order()
        daemon = self.node().serve()
        self.assertEqual(len(daemon.ids("pay")), 1)
        self.assertEqual(daemon.tag_status("pay")["order"], "trend")
        self.assertGreater(daemon.tag_status("pay")["reserve"], 0)

    def test_a_change_that_fails_does_not_end_an_order_that_only_the_witness_knows(self):
        dead = self.box.serve()
        self.box.ok("tag", "set", "pay", "--order", "strict")
        _, since = order_of(self.box, "pay")
        dead.kill()
        self.lose_the_order()
        # The dead one is on the list, and acknowledges nothing.
        command = ["tag", "set", "pay", "--order", "strict"]
        refused = self.node().run(command + ["--timeout", "8s"])
        self.check(refused, 11, "tag 'pay' is strict, but not on all nodes", "--gone")
        self.assertEqual(order_of(self.box, "pay"), ("strict", since))
        self.box.serve()
        self.assertIn("strict from ID %s on" % since, self.node().ok(*command, "--timeout", "60s"))

    def test_an_order_that_only_the_witness_knows_is_ended(self):
        daemon = self.box.serve()
        self.box.ok("tag", "set", "pay", "--order", "strict")
        daemon.terminate()
        self.lose_the_order()
        self.box.ok("tag", "set", "pay", "--order", "trend")
        daemon = self.box.serve()
        self.assertEqual(len(daemon.ids("pay")), 1)
        self.assertEqual(daemon.tag_status("pay")["order"], "trend")

    def test_a_tag_that_is_added_while_its_order_cannot_be_ended(self):
        daemon = self.box.serve()
        self.box.ok("tag", "set", "pay", "--order", "strict")
        daemon.terminate()
        SERVER.sql("DELETE FROM leaf_alloc WHERE biz_tag = 'pay'; DROP TABLE leafctl_orders, leafctl_nodes", self.name)
        result = self.box.run(["tag", "add", "pay"])
        self.check(result, 6, "tag 'pay' was added, but its order is not trend yet", "leafctl tag set pay --order trend")
        self.assertEqual(self.box.run(["tag", "add", "pay"]).rc, 9, "it is there")
        self.box.ok("db", "init")
        self.box.ok("tag", "set", "pay", "--order", "trend")

    def test_apply_waits_for_nodes_as_long_as_it_is_told_to(self):
        dead = self.box.serve()
        dead.kill()
        path = self.box.write("tags.toml", '[[tags]]\ntag = "pay"\norder = "strict"\n')
        process = self.begin(["tag", "apply", "-f", path, "--yes"])
        self.addCleanup(process.kill)
        # Longer than it waits if it is told nothing.
        until = time.monotonic() + 23
        while time.monotonic() < until:
            self.assertIsNone(process.poll(), "it has given up")
            time.sleep(0.5)
        self.box.serve()
        _, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(order_of(self.box, "pay")[0], "strict")

    def test_a_node_that_was_called_gone_and_is_not(self):
        other = self.node()
        paused = other.serve()
        self.assertEqual(len(paused.ids("pay")), 1)
        self.box.serve()
        rows = SERVER.sql("SELECT id, process FROM leafctl_nodes", self.name)
        name = next(row[0] for row in rows if "process %d " % paused.process.pid in row[1])
        # It is entered again, and acknowledges, before it is counted as one that has.
        self.box.ok("tag", "set", "pay", "--order", "strict", "--gone", name)
        poll(
            lambda: len(SERVER.sql("SELECT id FROM leafctl_nodes WHERE id = '%s'" % name, self.name)) == 1,
            "it is on the list again",
        )
        self.assertEqual(paused.tag_status("pay")["order"], "strict")

    def test_no_fallback(self):
        other = self.node(fallback=True)
        other.serve()
        self.assertIn("segment.witness_fallback is true", self.refused(self.box))

    def test_tables_that_are_missing(self):
        SERVER.sql("DROP TABLE leafctl_orders, leafctl_nodes", self.name)
        daemon = self.box.serve()
        self.assertEqual(len(daemon.ids("pay")), 1)
        result = self.box.run(["tag", "set", "pay", "--order", "strict"])
        self.check(result, 6, "leafctl db init")
        self.box.ok("db", "init")
        poll(lambda: len(SERVER.sql("SELECT id FROM leafctl_nodes", self.name)) == 1, "the daemon is on the list")
        self.box.ok("tag", "set", "pay", "--order", "strict")
        self.assertEqual(daemon.tag_status("pay")["reserve"], 0)

    def test_a_table_that_cannot_be_read(self):
        """What was read last counts; a node that never read it serves no tag."""
        self.box.ok("tag", "set", "pay", "--order", "strict")
        running = self.box.serve()
        first = running.ids("pay")[0]
        SERVER.sql("RENAME TABLE leafctl_orders TO orders_away", self.name)
        SERVER.sql("CREATE TABLE leafctl_orders (nothing int)", self.name)
        other = self.node()
        late = other.serve(ready=False)
        poll(lambda: "cannot read the order of the tags" in late.get("/health/ready").body, "it says why")
        self.check_v1_error(late.v1("plain"), 503)
        self.assertEqual(running.ids("pay"), [first + 1])
        # In one step: without a table no tag is strict.
        SERVER.sql("RENAME TABLE leafctl_orders TO useless, orders_away TO leafctl_orders", self.name)
        late.wait_ready()
        poll(lambda: late.v1("pay").status == 200, "it serves")
        self.assertEqual(late.tag_status("pay")["order"], "strict")

    def test_nodes_that_die_and_stop_and_are_cut_off(self):
        boxes = [self.box, self.node(), self.node()]
        beside = self.node()
        daemons = [box.serve() for box in boxes]
        self.box.ok("tag", "set", "pay", "--order", "strict")
        takers = [OrderTaker(box, "pay", connections=32 if REQUESTS > 100_000 else 4) for box in boxes]
        faults = 0

        def issued():
            return sum(progress(daemon, "pay") for daemon in daemons)

        def goes_on():
            before = issued()
            poll(lambda: issued() > before + REQUESTS // 10, "requests are answered", timeout=PATIENCE_S)

        try:
            goes_on()
            while faults < 9:
                index = faults % 3
                if faults // 3 == 0:
                    daemons[index].kill()
                    daemons[index] = boxes[index].serve()
                elif faults // 3 == 1:
                    daemons[index].signal(signal.SIGSTOP)
                    # Another node goes on, and the one that is stopped answers late.
                    beside.next("pay", "--direct")
                    daemons[index].signal(signal.SIGCONT)
                else:
                    SERVER.cut("leaf")
                goes_on()
                faults += 1
        finally:
            seen = [request for taker in takers for request in taker.stop()]
        pairs = real_time_order.check(seen)
        print("order: %d requests of three nodes, %d of them after another one's answer: all in order" % (len(seen), pairs))
        self.assertGreater(pairs, len(seen) // 2)


class Failover(ClusterTest):
    """A replica that lacks what the primary has committed takes over: the witness knows better."""

    @classmethod
    def setUpClass(cls):
        cls.zookeeper = ZOOKEEPER
        cls.primary = ReplicatedDb(1)
        cls.replica = ReplicatedDb(2)
        cls.databases = (cls.primary, cls.replica)

    @classmethod
    def tearDownClass(cls):
        cls.primary.close()
        cls.replica.close()

    def endpoints(self, server):
        return '["127.0.0.1:%d", "127.0.0.1:%d"]' % (self.primary.port, self.replica.port)

    def test_what_the_replica_lacks_is_not_issued_again(self):
        self.primary.sql("DROP DATABASE IF EXISTS %s" % self.name)
        self.replica.sql("DROP DATABASE IF EXISTS %s" % self.name)
        self.replica.follow(self.primary)
        self.primary.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % self.name)
        self.box.ok("db", "init")
        self.box.ok("tag", "add", "pay")
        boxes = [self.box, self.node(), self.node()]
        daemons = [box.serve() for box in boxes]
        self.box.ok("tag", "set", "pay", "--order", "strict")
        self.replica.wait_for(self.primary)
        takers = [OrderTaker(box, "pay", connections=32 if REQUESTS > 100_000 else 4) for box in boxes]
        try:
            poll(
                lambda: min(progress(daemon, "pay") for daemon in daemons) > REQUESTS // 6,
                "requests are answered", timeout=PATIENCE_S,
            )  # fmt: skip
            self.replica.sql("STOP SLAVE")
            before = [progress(daemon, "pay") for daemon in daemons]
            poll(
                lambda: all(progress(daemon, "pay") > old + 50 for daemon, old in zip(daemons, before)),
                "more than the replica has",
            )
            self.primary.kill()
            self.replica.sql("SET GLOBAL read_only = 0")
            poll(lambda: "frozen" in [daemon.tag_status("pay")["state"] for daemon in daemons], "the tag is frozen")
            self.box.ok("tag", "repair", "pay", "--yes", "--confirm", "pay", "--timeout", "60s")
            before = [progress(daemon, "pay") for daemon in daemons]
            poll(
                lambda: all(progress(daemon, "pay") > old + REQUESTS // 6 for daemon, old in zip(daemons, before)),
                "requests are answered again", timeout=PATIENCE_S,
            )  # fmt: skip
        finally:
            seen = [request for taker in takers for request in taker.stop()]
        pairs = real_time_order.check(seen)
        print("order: %d requests over a failover, %d of them after another one's answer: all in order" % (len(seen), pairs))
        self.assertGreater(pairs, len(seen) // 2)
        for daemon in daemons:
            self.assertEqual(daemon.tag_status("pay")["order"], "strict")


if __name__ == "__main__":
    main()
