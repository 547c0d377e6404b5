#!/usr/bin/env python3
"""Three daemons, with a witness, on a real Galera cluster of three nodes that are killed, frozen, stopped and come back."""

import contextlib
import datetime
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import real_time_order  # noqa: E402
from cluster import Taker  # noqa: E402
from galera import PASSWORD, GaleraCluster  # noqa: E402
from leafctl import LeafTest, Sandbox, main, poll  # noqa: E402
from real_time_order import OrderTaker  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

# A cluster on a busy machine takes its time to agree on its members.
PATIENCE_S = 180.0

CLUSTER = None
ZOOKEEPER = None
# Requests for the strict tag; 0: those of a moment.
ORDER_REQUESTS = int(os.environ.get("LEAFCTL_ORDER_REQUESTS") or 0)


def setUpModule():
    global CLUSTER, ZOOKEEPER
    CLUSTER = GaleraCluster(3)
    ZOOKEEPER = ZooKeeper()


def tearDownModule():
    CLUSTER.close()
    ZOOKEEPER.close()


# How long after such a line, and before it, a request may have found nothing in reserve.
TROUBLE_S = 30


def troubles(daemon):
    """When, by time.monotonic, the daemon said that a store did not answer."""
    ahead = time.time() - time.monotonic()
    said = re.findall(r"^(\S+)Z warning .*(?:does not answer|connection lost|failed: |cannot read)", daemon.log(), re.M)
    return [datetime.datetime.fromisoformat(at + "+00:00").timestamp() - ahead for at in said]


class Galera(LeafTest):
    tags = ("pay", "ship")

    def configure(self, box, nodes):
        password = box.write("password", PASSWORD + "\n")
        endpoints = ", ".join('"127.0.0.1:%d"' % node.port for node in nodes)
        box.env["LEAFCTL_CONFIG"] = box.write(
            "leafctl.toml",
            '[segment]\nstore = "mysql"\nrefresh_interval = "1s"\nstep_policy = "fixed"\n'
            # Three nodes that raise one witness take turns: on a slow disk a node may lose many in a row.
            "[server]\nrequest_timeout = \"2m\"\n"
            '[mysql]\nendpoints = [%s]\npassword_file = "%s"\nconnect_timeout = "10s"\nquery_timeout = "10s"\n'
            '[snowflake]\nenabled = false\ncluster = "galera"\n[zookeeper]\nconnect = "%s"\n'
            % (endpoints, password, ZOOKEEPER.connect),
        )

    def endpoint(self, daemon):
        database = next(item for item in daemon.status()["dependencies"] if item["name"] == "database")
        return database["identity"].split(": ")[0]

    def on(self, daemon, node):
        """Whether that is the node it uses."""
        return self.endpoint(daemon) == "127.0.0.1:%d" % node.port

    def goes_on(self, what):
        """Every daemon gets several new grants of every tag."""
        before = [{tag: len(ids) for tag, ids in load.ids.items()} for load in self.loads]
        poll(
            lambda: all(
                len(ids) > before[index][tag] + 1000
                for index, load in enumerate(self.loads)
                for tag, ids in load.ids.items()
            ),
            what,
            timeout=PATIENCE_S,
        )

    def serve_on(self, box, node):
        """A daemon that uses its first endpoint. On a busy machine a node may be suspected of being away just then."""
        found = []

        def serve():
            if found:
                found[-1].terminate()
            found.append(box.serve())
            return self.on(found[-1], node)

        poll(serve, "a daemon on its first node", PATIENCE_S)
        return found[-1]

    @contextlib.contextmanager
    def nothing_may_be_writable(self):
        """From the moment in which something happens until all daemons get grants again."""
        began = time.monotonic()
        yield
        self.disturbed.append((began, time.monotonic()))

    def test_nodes_come_and_go(self):
        first, second, third = CLUSTER.nodes
        others = [Sandbox(), Sandbox()]
        for box in others:
            self.addCleanup(box.close)
        self.configure(self.box, (first, second, third))
        self.configure(others[0], (third, second, first))
        self.configure(others[1], (first, third, second))
        self.box.ok("db", "init")
        for tag in self.tags:
            # Servers on a slow disk take their time.
            self.box.ok("tag", "add", tag, "--step", "200", "--timeout", "2m")
        one, two, three = daemons = [
            self.serve_on(box, node) for box, node in ((self.box, first), (others[0], third), (others[1], first))
        ]
        for daemon in daemons:
            self.assertEqual(daemon.status()["fence"], "cluster")
            for tag in self.tags:
                poll(lambda daemon=daemon, tag=tag: daemon.v1(tag).status == 200, "the tag is known")
        report = json.loads(self.box.ok("db", "check", "--json"))
        self.assertEqual([item["takes_writes"] for item in report["endpoints"]], [True, True, True])
        self.assertIn("Galera: Synced in a primary component, 3 nodes", json.dumps(report["endpoints"][0]))

        # A tag whose IDs follow the order of requests, whatever happens to the nodes of either kind.
        self.box.ok("tag", "add", "version", "--order", "strict", "--timeout", "2m")
        many = ORDER_REQUESTS > 0
        takers = [OrderTaker(box, "version", connections=32 if many else 2) for box in (self.box, *others)]

        self.disturbed = []
        self.loads = [Taker(daemon, self.tags, pause=0.01, count=10) for daemon in daemons]
        try:
            self.goes_on("all get grants")

            with self.nothing_may_be_writable():
                first.kill()
                poll(lambda: self.on(one, second), "it moves on to the next", PATIENCE_S)
                poll(lambda: self.on(three, third), "so does the other", PATIENCE_S)
                self.goes_on("service returns after the node in use was killed")

            with self.nothing_may_be_writable():
                self.lose_the_majority(daemons)
                # A node that joins keeps the one that it copies from busy.
                second.start()
                first.start()
                poll(lambda: first.wsrep().get("wsrep_cluster_size") == "3", "all are back", PATIENCE_S)
                stayed = self.endpoint(one)
                self.goes_on("all are back")
            self.assertEqual(self.endpoint(one), stayed, "it stays where it is")

            in_use = next(node for node in CLUSTER.nodes if self.on(one, node))
            with self.nothing_may_be_writable():
                in_use.freeze()
                poll(lambda: not self.on(one, in_use), "it moves on to another", PATIENCE_S)
                self.goes_on("service returns after the node in use has hung")
                in_use.thaw()
                self.goes_on("and when it is back")
            self.goes_on("nothing is left of it")
            poll(
                lambda: sum(daemon.tag_status("version")["issued"] for daemon in daemons) >= ORDER_REQUESTS,
                "so many requests for the strict tag are answered", timeout=max(PATIENCE_S, ORDER_REQUESTS / 100),
            )  # fmt: skip
        finally:
            for node in CLUSTER.nodes:
                if node.running():
                    node.thaw()
            for load in self.loads:
                load.stop()
            seen = [request for taker in takers for request in taker.stop()]
        pairs = real_time_order.check(seen)
        self.assertGreater(pairs, len(seen) // 2)
        if many:
            print("order: %d requests for a strict tag on Galera, each above %d at least that were over before" % (len(seen), pairs))
        for index, daemon in enumerate(daemons):
            self.assertEqual(daemon.tag_status("version")["order"], "strict", index)
        for tag in self.tags:
            self.check_distinct([value for load in self.loads for value in load.ids[tag]])
            for load in self.loads:
                self.assertEqual(load.ids[tag], sorted(load.ids[tag]))
        for load, daemon in zip(self.loads, daemons):
            # A store that does not answer in time, on a machine that stands still, disturbs as well.
            times = self.disturbed + [(at - TROUBLE_S, at + TROUBLE_S) for at in troubles(daemon)]
            for asked_at, answered_at, body in load.refused:
                self.assertTrue(any(began <= answered_at and asked_at <= ended for began, ended in times), body)
        for daemon in daemons:
            self.assertNotIn("frozen", daemon.log())
            self.assertEqual(daemon.get("/health/ready").status, 200)

    def lose_the_majority(self, daemons):
        _, second, third = CLUSTER.nodes
        # Two of three are gone, one of them only silent: what is left is no primary component.
        third.freeze()
        poll(lambda: second.wsrep().get("wsrep_cluster_status") == "non-Primary", "no majority", PATIENCE_S)
        for daemon in daemons:
            poll(
                lambda daemon=daemon: "Galera: cluster status non-Primary" in json.dumps(daemon.status()),
                "it says why", PATIENCE_S,
            )  # fmt: skip
        for load in self.loads:
            refused = len(load.refused)
            poll(lambda load=load, refused=refused: len(load.refused) > refused, "reserves are drained", PATIENCE_S)
        # A server on a busy machine may not answer in time.
        check = poll(
            lambda: (done := self.box.run(["db", "check", "--json"])).rc == 10 and done, "the one that answers is examined", PATIENCE_S
        )  # fmt: skip
        self.assertEqual(
            [item["reached"] for item in json.loads(check.out)["endpoints"]], [False, True, False], check.out
        )
        self.assertIn("non-Primary", check.out)

        # And then the last one. What is left comes back without a majority, and is told to go on.
        second.stop()
        third.thaw()
        poll(lambda: third.wsrep().get("wsrep_cluster_status") == "non-Primary", "alone", PATIENCE_S)
        third.set_provider_option("pc.bootstrap", 1)
        self.goes_on("service returns with the last one")


if __name__ == "__main__":
    main()
