#!/usr/bin/env python3
"""What the first version (0.1) left behind is read for ever: its state directories, its tables, its nodes in ZooKeeper.

tests/support/first_version has them as they were written by that version; test_mixed_versions.py records them, and lets
both versions run beside each other.
"""

import json
import os
import re
import shutil
import sqlite3
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import ClusterTest  # noqa: E402
from leafctl import LeafTest, main  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

FIRST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "first_version")


def setUpModule():
    ClusterTest.zookeeper = ZooKeeper()
    ClusterTest.databases = (MariaDb(),)


def tearDownModule():
    for server in (ClusterTest.zookeeper, *ClusterTest.databases):
        server.close()


def read(*names):
    with open(os.path.join(FIRST, *names), encoding="utf-8") as file:
        return file.read()


class Alone(LeafTest):
    """The embedded default: SQLite, and a worker number of its own."""

    kind = "alone"

    def put_back(self):
        """The state directory of the node that ran; returns its last IDs."""
        os.mkdir(self.box.state, 0o700)
        for name in os.listdir(os.path.join(FIRST, self.kind)):
            path = os.path.join(self.box.state, name)
            if name in ("marks.sql", "leaf.sql"):
                database = sqlite3.connect(path[:-4] + ".db")
                database.executescript(read(self.kind, name))
                database.close()
            elif name == "snowflake.state":
                with open(path, "w", encoding="utf-8") as file:
                    file.write(read(self.kind, name))
        return json.loads(read(self.kind, "highest.json"))

    def check_above(self, highest, take):
        for scope, last in highest.items():
            ids = take(scope)
            self.assertGreater(min(ids), last, scope)
            self.check_distinct(ids, scope)

    def test_a_daemon_goes_on(self):
        highest = self.put_back()
        worker = int(re.search(r"^worker (\d+)$", read(self.kind, "snowflake.state"), re.MULTILINE).group(1))
        daemon = self.box.serve()
        if self.kind == "cluster":
            self.assertEqual(daemon.status()["snowflake"]["worker"], worker)
        self.check_above(highest, lambda scope: self.take(daemon, scope))

    def take(self, daemon, scope):
        path = "/v1/snowflake" if scope == "snowflake" else "/v1/segment/" + scope
        return [int(text) for text in json.loads(daemon.get(path + "?count=20").body)["ids"]]

    def test_commands_go_on(self):
        highest = self.put_back()
        self.assertEqual(sorted(self.box.rows()), ["pay", "ship"])
        self.check_above(
            highest,
            lambda scope: self.box.next("--mode", "snowflake", "-n", "5") if scope == "snowflake" else self.box.next(scope, "-n", "5"),
        )


class InACluster(Alone):
    """MariaDB, and ZooKeeper for the witness and worker numbers."""

    kind = "cluster"

    def put_back(self):
        for server in (ClusterTest.zookeeper, *ClusterTest.databases):
            server.ensure_up()
        database = ClusterTest.databases[0]
        database.sql("DROP DATABASE IF EXISTS first; CREATE DATABASE first CHARACTER SET utf8mb4")
        database.sql(read("cluster", "mariadb.sql"), "first")
        with ClusterTest.zookeeper.client() as client:
            if client.exists("/snowflake"):
                client.delete_all("/snowflake")
            nodes = {"/snowflake": "", **json.loads(read("cluster", "zookeeper.json"))}
            for path in sorted(nodes):
                client.create(path, nodes[path].encode())
        (address,) = (path.rsplit("/", 1)[1] for path in nodes if "/addresses/" in path)
        password = self.box.write("password", PASSWORD + "\n")
        lines = [
            '[segment]\nstore = "mysql"\nrefresh_interval = "1s"\nstep_policy = "fixed"\nclaim_watch = "0s"',
            '[mysql]\nendpoints = ["127.0.0.1:%d"]' % database.port,
            'database = "first"\nuser = "leaf"\npassword_file = "%s"' % password,
            '[snowflake]\ncluster = "first"\naddress = "%s"\nregistry = "zookeeper"\nclaim_watch = "0s"' % address,
            '[zookeeper]\nconnect = "%s"' % ClusterTest.zookeeper.connect,
        ]
        self.box.env["LEAFCTL_CONFIG"] = self.box.write("leafctl.toml", "\n".join(lines) + "\n")
        return super().put_back()

    def test_a_daemon_of_a_node_that_is_new(self):
        """It has no state directory, and is fenced by what the first version left in ZooKeeper."""
        highest = self.put_back()
        del highest["snowflake"]
        database = ClusterTest.databases[0]
        database.sql("UPDATE leaf_alloc SET max_id = 1", "first")
        shutil.rmtree(self.box.state)
        self.box.env["LEAFCTL_SNOWFLAKE_ENABLED"] = "false"
        daemon = self.box.serve()
        for tag in highest:
            response = daemon.v1(tag)
            self.check_v1_error(response, 409, "frozen")


if __name__ == "__main__":
    main()
