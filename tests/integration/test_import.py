#!/usr/bin/env python3
"""Java Leaf's leaf.properties, in every spelling, becomes a configuration with which a daemon issues IDs: against a
real MariaDB and a real ZooKeeper."""

import json
import os
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import TABLE  # noqa: E402
from leafctl import LeafTest, main  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

# scripts/leaf_workerid_alloc.sql of the fork.
WORKERID_TABLE = """CREATE TABLE leaf_workerid_alloc (
  id bigint(20) NOT NULL AUTO_INCREMENT, ip varchar(127) DEFAULT NULL, port varchar(127) DEFAULT NULL,
  ip_port varchar(127) NOT NULL, max_timestamp bigint(20) DEFAULT NULL, create_time timestamp NULL DEFAULT NULL,
  update_time timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id), UNIQUE KEY idx_ipport (ip_port) USING BTREE) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"""


class ImportTest(LeafTest):
    count = 0

    @classmethod
    def setUpClass(cls):
        cls.mariadb = MariaDb()
        cls.addClassCleanup(cls.mariadb.close)
        cls.zookeeper = ZooKeeper()
        cls.addClassCleanup(cls.zookeeper.close)

    def setUp(self):
        super().setUp()
        ImportTest.count += 1
        self.name = "import%d" % ImportTest.count
        self.mariadb.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % self.name)
        self.addCleanup(lambda: self.mariadb.sql("DROP DATABASE %s" % self.name))
        self.mariadb.sql(TABLE, self.name)
        self.mariadb.sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES ('pay', 1001, 100)", self.name)
        self.url = "jdbc:mysql://127.0.0.1:%d/%s?useSSL=false&autoReconnect=true&useUnicode=true" % (
            self.mariadb.port,
            self.name,
        )

    def import_file(self, lines, *more):
        """Imports it into files; what came out, as JSON."""
        source = self.box.write("leaf.properties", "\n".join(lines) + "\n")
        out = self.box.ok(
            "config", "import", source, "--address", "127.0.8.7", "--to", self.box.path("leafctl.toml"),
            "--password-file", self.box.path("secret"), "--json", *more,
        )  # fmt: skip
        self.box.env["LEAFCTL_CONFIG"] = self.box.path("leafctl.toml")
        # Nothing goes back here: a new worker number need not be watched.
        self.box.env["LEAFCTL_SNOWFLAKE_CLAIM_WATCH"] = "0s"
        return json.loads(out)

    def serve_and_take(self, segment=True, snowflake=True):
        """The daemon starts with the configuration as it is; its first IDs of each mode."""
        self.box.ok("config", "check")
        daemon = self.box.serve()
        ids = []
        if segment:
            self.assertEqual(daemon.ids("pay", 3), [1001, 1002, 1003])
        if snowflake:
            response = daemon.get("/v1/snowflake?count=3")
            self.assertEqual(response.status, 200, response.body)
            ids = [int(text) for text in json.loads(response.body)["ids"]]
            self.check_distinct(ids)
        status = daemon.status()
        self.assertEqual(daemon.terminate(), 0)
        return ids, status

    def upstream(self, *more):
        return [
            "# shipped with the server",
            "leaf.name=%s" % self.name,
            "leaf.segment.enable=true",
            "leaf.jdbc.url=" + self.url,
            "leaf.jdbc.username=leaf",
            "leaf.jdbc.password=" + PASSWORD,
            *more,
        ]

    def test_upstream(self):
        lines = self.upstream(
            "leaf.snowflake.enable = true", "leaf.snowflake.zk.address : " + self.zookeeper.connect, "leaf.snowflake.port=8686"
        )
        # A Java node of this address had number 0: it is kept.
        with self.zookeeper.client() as client:
            path = "/snowflake/%s/forever/127.0.8.7:8686-0000000000" % self.name
            client.create(path, b'{"ip":"127.0.8.7","port":"8686","timestamp":1700000000000}', parents=True)
        result = self.import_file(lines)
        self.assertEqual(result["spelling"], "upstream")
        self.assertEqual(stat.S_IMODE(os.stat(self.box.path("secret")).st_mode), 0o600)
        with open(self.box.path("leafctl.toml"), encoding="utf-8") as file:
            self.assertNotIn(PASSWORD, file.read())
        ids, status = self.serve_and_take()
        self.assertEqual({value >> 12 & 1023 for value in ids}, {0})
        self.assertEqual(status["snowflake"]["cluster"], self.name)
        self.assertEqual(status["fence"], "cluster")

    def test_starter(self):
        result = self.import_file(
            [
                "leaf.name=" + self.name,
                "leaf.segment.enable=true",
                "leaf.segment.url=" + self.url.replace(":", "\\:"),
                "leaf.segment.username=leaf",
                "leaf.segment.password=" + PASSWORD,
                "leaf.snowflake.enable=true",
                "leaf.snowflake.address=" + self.zookeeper.connect,
                "leaf.snowflake.port=2181",
            ]
        )
        self.assertEqual(result["spelling"], "starter")
        ids, _ = self.serve_and_take()
        self.assertEqual(len({value >> 12 & 1023 for value in ids}), 1)

    def test_what_spring_fills_in_is_not_taken_as_it_stands(self):
        """The cluster would be another one than Java's, with the same worker numbers."""
        lines = ["leaf.name=x", "leaf.segment.enable=true", "leaf.segment.url=" + self.url, "leaf.segment.username=leaf",
                 "leaf.segment.password=x", "leaf.snowflake.enable=true", "leaf.snowflake.address=z:2181"]  # fmt: skip
        for number, line in ((1, "leaf.name=${spring.application.name}"), (5, "leaf.segment.password=${SECRET_%s}" % PASSWORD)):
            source = self.box.write("leaf.properties", "\n".join([*lines[:number - 1], line, *lines[number:]]) + "\n")
            result = self.box.run(["config", "import", source, "--address", "127.0.8.7", "--to", self.box.path("made.toml")])
            self.check(result, 6, "line %d: %s: " % (number, line.split("=")[0]), "Spring")
            self.assertNotIn(PASSWORD, result.err)
            self.assertFalse(os.path.exists(self.box.path("made.toml")))

    def test_a_password_that_root_writes_is_the_services(self):
        os.makedirs(self.box.state, exist_ok=True)
        owner = 65534 if os.geteuid() == 0 else os.geteuid()
        os.chown(self.box.state, owner, -1)
        self.import_file(self.upstream("leaf.snowflake.enable=false"))
        status = os.stat(self.box.path("secret"))
        self.assertEqual((status.st_uid, status.st_mode & 0o777), (owner, 0o600))

    def test_starter_with_switches_left_out_has_both_modes_off(self):
        self.import_file(["leaf.name=x", "leaf.segment.url=" + self.url])
        shown = self.box.ok("config", "show")
        self.assertEqual(shown.count("enabled = false"), 2)

    def test_fork_with_zk_recycle(self):
        result = self.import_file(
            self.upstream(
                "leaf.snowflake.enable=true",
                "leaf.snowflake.zk.address=" + self.zookeeper.connect,
                "leaf.snowflake.port=8686",
                "leaf.snowflake.mode=zk_recycle",
            )
        )
        self.assertEqual(result["spelling"], "fork")
        self.assertTrue(any("nodes of the fork may run on" in note["message"] for note in result["notes"]))
        ids, status = self.serve_and_take()
        # Leases come from the top.
        self.assertEqual({value >> 12 & 1023 for value in ids}, {1023})
        self.assertEqual(status["snowflake"]["registry"], "zookeeper")

    def test_fork_with_a_local_map(self):
        self.import_file(
            [
                "leaf.name=" + self.name,
                "leaf.segment.enable=false",
                "leaf.snowflake.enable=true",
                "leaf.snowflake.port=8686",
                "leaf.snowflake.mode=local",
                'leaf.snowflake.local.workIdMap={"127.0.8.7:8686":5, \\',
                '    "127.0.8.8:8686":6}',
            ]
        )
        ids, _ = self.serve_and_take(segment=False)
        self.assertEqual({value >> 12 & 1023 for value in ids}, {5})

    def test_fork_with_mysql(self):
        self.mariadb.sql(WORKERID_TABLE, self.name)
        self.mariadb.sql(
            "INSERT INTO leaf_workerid_alloc(id, ip, port, ip_port, max_timestamp, create_time) "
            "VALUES (7, '127.0.8.7', '8686', '127.0.8.7:8686', 1700000000000, NOW())",
            self.name,
        )
        self.import_file(
            self.upstream("leaf.snowflake.enable=true", "leaf.snowflake.port=8686", "leaf.snowflake.mode=mysql")
        )
        self.box.ok("db", "init")
        ids, _ = self.serve_and_take()
        self.assertEqual({value >> 12 & 1023 for value in ids}, {7})

    def test_files_are_never_replaced_unasked(self):
        lines = self.upstream("leaf.snowflake.enable=false")
        self.import_file(lines)
        source = self.box.path("leaf.properties")
        again = ["config", "import", source, "--to", self.box.path("leafctl.toml")]
        self.check(self.box.run(again, env={"LEAFCTL_CONFIG": None}), 9, "exists already", "--force")
        again = ["config", "import", source, "--password-file", self.box.path("secret")]
        self.check(self.box.run(again, env={"LEAFCTL_CONFIG": None}), 9, "exists already", "--force")
        # Both files, or none of them.
        both = ["config", "import", source, "--password-file", self.box.path("other"), "--to"]
        for to, rc, text in ((self.box.path("leafctl.toml"), 9, "exists already"),
                             (self.box.path("nowhere/leafctl.toml"), 6, "nowhere"),
                             (self.box.path("../" + os.path.basename(self.box.dir) + "/other"), 2, "both name")):  # fmt: skip
            with self.subTest(to=to):
                self.check(self.box.run([*both, to], env={"LEAFCTL_CONFIG": None}), rc, text)
                self.assertFalse(os.path.exists(self.box.path("other")))
        self.check(self.box.run([*both, self.box.path("other"), "--force"], env={"LEAFCTL_CONFIG": None}), 2, "both name")
        for empty in (["--to", ""], ["--password-file", ""]):
            self.check(self.box.run(["config", "import", source, *empty], env={"LEAFCTL_CONFIG": None}), 2, empty[0])
        self.serve_and_take(snowflake=False)


if __name__ == "__main__":
    main()
