#!/usr/bin/env python3
"""A real MariaDB primary is lost, and its asynchronous replica, which has not seen everything, is promoted."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import TABLE, ClusterTest, Taker  # noqa: E402
from leafctl import main, poll  # noqa: E402
from servers import ReplicatedDb  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402


def setUpModule():
    ClusterTest.zookeeper = ZooKeeper()


def tearDownModule():
    ClusterTest.zookeeper.close()


class Failover(ClusterTest):
    """A primary whose asynchronous replica is promoted after the primary was lost."""

    def setUp(self):
        self.primary = ReplicatedDb(1)
        self.addCleanup(self.primary.close)
        self.replica = ReplicatedDb(2)
        self.addCleanup(self.replica.close)
        super().setUp()
        self.replica.follow(self.primary)
        self.primary.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % self.name)
        self.primary.sql(TABLE, self.name)

    def endpoints(self, server):
        return '["127.0.0.1:%d", "127.0.0.1:%d"]' % (self.primary.port, self.replica.port)

    def fail_over(self, daemons, tags, seen):
        """100 grants and more of the tags that the replica never sees, and then it is the primary."""
        self.replica.wait_for(self.primary)
        self.replica.sql("STOP SLAVE")
        for tag in set(seen) - set(tags):
            # A range that is reserved in advance may come after the replica stopped: above that too.
            self.set_max_id(tag, self.max_id(tag, self.replica) + 1000, self.replica)
        for tag in tags:
            first = daemons[0].ids(tag, 10)
            seen[tag] += first
            while len(seen[tag]) < 1000 + 10:
                seen[tag] += daemons[0].ids(tag, 10)
        self.primary.kill()
        self.replica.sql("RESET SLAVE ALL; SET GLOBAL read_only = 0")

    def test_what_the_replica_never_saw_is_not_issued_again(self):
        tags = ["pay", "mail"]
        self.insert("pay", servers=[self.primary])
        self.insert("mail", servers=[self.primary])
        self.insert("calm", servers=[self.primary])
        one = self.box.serve()
        two = self.node().serve()
        seen = {tag: one.ids(tag, 5) + two.ids(tag, 5) for tag in [*tags, "calm"]}
        self.fail_over([one, two], tags, seen)
        takers = [Taker(daemon, [*tags, "calm"]) for daemon in (one, two)]
        for tag in tags:
            for daemon in (one, two):
                problem = self.wait_frozen(daemon, tag)["problem"]["message"]
                self.assertRegex(problem, r"the table says max_id \d+, but .* was already granted everything up to \d+")
        for taker in takers:
            count = len(taker.ids["calm"])
            poll(lambda taker=taker, count=count: len(taker.ids["calm"]) > count + 100, "the other tag goes on")
            taker.stop()
            for tag, ids in taker.ids.items():
                seen[tag] += ids
        for tag in tags:
            self.assertLess(self.max_id(tag, self.replica), self.witness(tag))
            done = self.node().run(["tag", "repair", tag, "--confirm", tag, "--timeout", "60s"])
            self.assertEqual(done.rc, 0, done)
            self.assertEqual(self.max_id(tag, self.replica), self.witness(tag))
            for daemon in (one, two):
                self.wait_thawed(daemon, tag)
                for _ in range(10):
                    seen[tag] += daemon.ids(tag, 10)
        for daemon in (one, two):
            seen["calm"] += daemon.ids("calm", 50)
        for tag, ids in seen.items():
            self.check_distinct(ids, tag)

    def test_with_the_node_fence_the_node_that_was_granted_it_freezes_and_status_says_which_fence(self):
        self.insert("pay", servers=[self.primary])
        one = self.node(fence="node").serve()
        two = self.node(fence="node").serve()
        seen = {"pay": one.ids("pay", 5)}
        self.fail_over([one], ["pay"], seen)
        self.wait_frozen(one, "pay")
        for daemon in (one, two):
            self.assertEqual(daemon.status()["fence"], "node")
        # What this fence cannot see, and README says so.
        again = poll(lambda: (r := two.v1("pay", 10)).status == 200 and r, "IDs from the other node")
        self.assertTrue(set(seen["pay"]) & {int(text) for text in json.loads(again.body)["ids"]})


if __name__ == "__main__":
    main()
