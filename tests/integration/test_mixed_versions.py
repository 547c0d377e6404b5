#!/usr/bin/env python3
"""Daemons of the first version (0.1) and of this one in one cluster, and the way from the one to the other, node by node.

scripts/soak.sh upgrade builds the first version from the history of this repository and runs this.

LEAFCTL_FIRST   the binary of the first version
LEAFCTL_RECORD  a folder, for what a node of the first version leaves behind: tests/support/first_version is made so
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import TABLE, ClusterTest  # noqa: E402
from leafctl import Sandbox, main, poll  # noqa: E402
from servers import PASSWORD, MariaDb, free_port  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

PATIENCE_S = 240.0
# What a request may be answered for want of ZooKeeper.
AWAY = ("unavailable", "outcome_unknown")


def first_binary():
    path = os.environ.get("LEAFCTL_FIRST", "")
    if not os.access(path, os.X_OK):
        raise AssertionError("LEAFCTL_FIRST names no binary of the first version: scripts/soak.sh upgrade builds it")
    return os.path.abspath(path)


def setUpModule():
    first_binary()
    ClusterTest.zookeeper = ZooKeeper()
    ClusterTest.databases = (MariaDb(),)


def tearDownModule():
    for server in (ClusterTest.zookeeper, *ClusterTest.databases):
        server.close()


class Node:
    """One node: its sandbox, its daemon, and all that it has issued."""

    def __init__(self, test, number):
        self.test = test
        self.box = Sandbox()
        test.addCleanup(self.box.close)
        self.this_binary = self.box.binary
        # Where its peers reach it.
        self.address = "127.1.0.%d:%d" % (number, free_port())
        test.configure_node(self.box, self.address)
        self.daemon = None
        self.ids = {"pay": [], "ship": [], "snowflake": []}

    def start(self, first):
        self.box.binary = first_binary() if first else self.this_binary
        self.daemon = self.box.serve(ready=False, listen=("127.0.0.1:0", self.address))
        self.daemon.wait_ready(PATIENCE_S)

    def stop(self):
        self.daemon.terminate(PATIENCE_S)

    def take(self, disturbed=False):
        """Some IDs of everything. None is refused, but for want of ZooKeeper where that is disturbed."""
        for scope, ids in self.ids.items():
            path = "/v1/snowflake" if scope == "snowflake" else "/v1/segment/" + scope
            response = self.daemon.get(path + "?count=7")
            if disturbed and response.status == 503 and json.loads(response.body)["code"] in AWAY:
                continue
            self.test.assertEqual(response.status, 200, response.body)
            ids += [int(text) for text in json.loads(response.body)["ids"]]

    def status(self):
        return self.daemon.status()


class MixedTest(ClusterTest):
    registry = "zookeeper"
    recycle = False

    def configure_node(self, box, address):
        password = box.write("password", PASSWORD + "\n")
        lines = [
            '[segment]\nstore = "mysql"\nrefresh_interval = "1s"\nstep_policy = "fixed"',
            "[mysql]\nendpoints = %s" % self.endpoints(None),
            'database = "%s"\nuser = "leaf"\npassword_file = "%s"' % (self.name, password),
            '[server]\nrequest_timeout = "60s"',
            '[snowflake]\ncluster = "%s"\naddress = "%s"\nregistry = "%s"' % (self.name, address, self.registry),
            '[zookeeper]\nconnect = "%s"' % self.zookeeper.connect,
        ]
        if self.recycle:
            lines[-2] += "\nrecycle = true"
        box.env["LEAFCTL_CONFIG"] = box.write("leafctl.toml", "\n".join(lines) + "\n")

    def nodes(self, count, first):
        self.insert("pay")
        self.insert("ship")
        found = [Node(self, number) for number in range(1, count + 1)]
        if self.registry == "sql":
            found[0].box.binary = first_binary()
            found[0].box.ok("db", "init")
        for node in found:
            node.start(first)
        return found

    def check_all(self, nodes):
        for scope in ("pay", "ship", "snowflake"):
            self.check_distinct([each for node in nodes for each in node.ids[scope]], scope)

    def older(self, node):
        return node.status()["witness"]["cluster"]["older_daemons"]

    def check_not_misjudged(self, node):
        cluster = node.status()["witness"]["cluster"]
        self.assertEqual((cluster["state"], cluster["incarnation"], cluster["went_back"]), ("open", 1, 0), cluster)


class Together(MixedTest):
    """With each registry."""

    def test_node_by_node(self):
        nodes = self.nodes(3, first=True)
        for _ in range(20):
            for node in nodes:
                node.take()
        workers = [node.status()["snowflake"]["worker"] for node in nodes]
        for number, node in enumerate(nodes):
            node.stop()
            for other in nodes:
                if other is not node:
                    other.take()
            began = time.monotonic()
            node.start(first=False)
            node.take()
            print("node %d issues again %.1f s after its start as this version" % (number + 1, time.monotonic() - began), flush=True)
            self.assertEqual(node.status()["snowflake"]["worker"], workers[number])
            for _ in range(20):
                for each in nodes:
                    each.take()
            left = len(nodes) - number - 1
            for new in nodes[: number + 1]:
                poll(lambda new=new, left=left: self.older(new) == left, "%d of the first version" % left, PATIENCE_S)
                poll(lambda new=new, left=left: new.status()["snowflake"]["older_peers"] == left, "peers", PATIENCE_S)
                self.check_not_misjudged(new)
            shown = node.box.ok("status", "--server", node.daemon.url)
            doctor = node.box.run(["doctor"])
            self.assertEqual("of a version before 0.2" in shown, left > 0, shown)
            self.assertEqual("of a version before 0.2" in doctor.out + doctor.err, left > 0, doctor)
        # Expired sessions and heartbeats make no node think otherwise.
        for node in nodes:
            self.check_not_misjudged(node)
        self.check_all(nodes)

    def test_beside_each_other(self):
        """For some heartbeats, with sessions that expire and daemons that are killed."""
        nodes = self.nodes(3, first=True)
        nodes[2].stop()
        nodes[2].start(first=False)
        new = nodes[2]
        for _ in range(3):
            before = new.status()["witness"]["cluster"]["heartbeats"]
            for session in poll(self.zookeeper.sessions, "a session"):
                self.zookeeper.expire(session)

            def beaten(before=before):
                for node in nodes:
                    node.take(disturbed=True)
                return new.status()["witness"]["cluster"]["heartbeats"] > before + 1

            poll(beaten, "heartbeats", PATIENCE_S)
            self.check_not_misjudged(new)
            nodes[1].daemon.kill()
            nodes[1].start(first=True)
        self.check_all(nodes)

    def test_back_again(self):
        """This version is given up: the first one goes on with what it left."""
        nodes = self.nodes(2, first=True)
        for first in (False, True, False):
            for node in nodes:
                node.take()
                node.stop()
                node.start(first)
                for _ in range(5):
                    node.take()
        for node in nodes:
            self.check_not_misjudged(node)
        self.check_all(nodes)


class Fixed(Together):
    pass


class Leased(Together):
    recycle = True


class InDatabase(Together):
    registry = "sql"


class Record(MixedTest):
    """What test_upgrade.py starts from: all that nodes of the first version leave behind."""

    def dump(self, database, path):
        connection = sqlite3.connect(database)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(connection.iterdump()) + "\n")
        connection.close()

    def keep(self, node, folder):
        """The state directory, as text."""
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(node.box.state):
            path = os.path.join(node.box.state, name)
            if name.endswith(".db"):
                self.dump(path, os.path.join(folder, name[:-3] + ".sql"))
            elif name == "snowflake.state":
                shutil.copy(path, folder)
        with open(os.path.join(folder, "highest.json"), "w", encoding="utf-8") as file:
            json.dump({scope: max(ids) for scope, ids in node.ids.items()}, file, indent=1, sort_keys=True)
            file.write("\n")

    def serve(self, node):
        node.start(first=True)
        for _ in range(30):
            node.take()
        node.stop()

    def test_record(self):
        folder = os.environ.get("LEAFCTL_RECORD")
        if not folder:
            return
        self.name = "first"
        self.one.sql("DROP DATABASE IF EXISTS first; CREATE DATABASE first CHARACTER SET utf8mb4")
        self.one.sql(TABLE, self.name)
        for tag in ("pay", "ship"):
            self.insert(tag)
        node = Node(self, 1)
        self.serve(node)
        self.keep(node, os.path.join(folder, "cluster"))
        with self.zookeeper.client() as client:
            found = {path: data.decode() for path, data in client.tree("/snowflake/" + self.name).items()}
        with open(os.path.join(folder, "cluster", "zookeeper.json"), "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1, sort_keys=True)
            file.write("\n")
        command = ["mariadb-dump", "--no-defaults", "--skip-comments", "--socket", self.one.socket, self.name]
        with open(os.path.join(folder, "cluster", "mariadb.sql"), "wb") as file:
            subprocess.run(command, stdout=file, check=True, timeout=60)
        # The embedded default.
        alone = Node(self, 2)
        alone.box.env.pop("LEAFCTL_CONFIG")
        alone.box.binary = first_binary()
        for tag in ("pay", "ship"):
            alone.box.ok("tag", "add", tag)
        self.serve(alone)
        self.keep(alone, os.path.join(folder, "alone"))


del MixedTest, Together

if __name__ == "__main__":
    main()
