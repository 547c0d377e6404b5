#!/usr/bin/env python3
"""`leafctl doctor` against a real MariaDB and a real ZooKeeper: silent on what is sound, and it finds each thing that is
planted; it changes nothing, and whatever is away is one finding."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import TABLE  # noqa: E402
from leafctl import LeafTest, Sandbox, main, poll  # noqa: E402
from servers import PASSWORD, MariaDb, free_port  # noqa: E402
from zk_client import NoNode  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

# One that the doctor does not warn about. Peers are told another: nothing is ever sent to this one.
ADDRESS = "192.0.2.7:8686"
ADVERTISED = "http://127.0.0.1:1"


def node_data(address, timestamp):
    ip, port = address.rsplit(":", 1)
    return json.dumps({"ip": ip, "port": port, "timestamp": timestamp}, separators=(",", ":")).encode()


class Calls:
    """Of a LeafTest."""

    def doctor(self, box=None, rc=None, env=None):
        """What was found, by check."""
        result = (box or self.box).run(["doctor", "--json"], env=env)
        self.assertIn(result.rc, (0, 10), result)
        report = json.loads(result.out)
        self.assertEqual(report["ok"], result.rc == 0, result.out)
        for entry in report["checks"]:
            if entry["status"] == "problem":
                self.assertNotEqual(entry["cause"], "", entry)
        if rc is not None:
            self.assertEqual(result.rc, rc, result.out)
        return report["checks"]

    def find(self, checks, check, status, part=""):
        found = [one for one in checks if one["check"] == check and one["status"] == status and part in one["found"]]
        self.assertTrue(found, "no %s of %s with %r in %s" % (status, check, part, json.dumps(checks, indent=1)))
        return found[0]

    def problems(self, checks):
        return {one["check"] for one in checks if one["status"] == "problem"}


class DoctorTest(Calls, LeafTest):
    count = 0

    @classmethod
    def setUpClass(cls):
        cls.mariadb = MariaDb()
        cls.addClassCleanup(cls.mariadb.close)
        cls.zookeeper = ZooKeeper()
        cls.addClassCleanup(cls.zookeeper.close)

    def setUp(self):
        super().setUp()
        DoctorTest.count += 1
        # Java keeps a file of that name in /tmp.
        self.name = "doctor%d.%d" % (os.getpid(), DoctorTest.count)
        self.database = self.name.replace(".", "_")
        self.sql("CREATE DATABASE %s CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" % self.database, "")
        self.addCleanup(lambda: self.sql("DROP DATABASE %s" % self.database, ""))
        self.sql(TABLE.replace("CHARSET=utf8mb4", "CHARSET=utf8mb4 COLLATE utf8mb4_bin"))
        self.sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES ('pay', 1001, 100)")
        self.configure(self.box)
        self.forever = "/snowflake/%s/forever" % self.name
        with self.zookeeper.client() as client:
            client.create(self.forever + "/" + ADDRESS + "-0000000000", node_data(ADDRESS, 1700000000000), parents=True)
        self.box.ok("db", "init")

    def configure(self, box, *more, **settings):
        password = box.write("password", PASSWORD + "\n")
        values = {"registry": "zookeeper", "mysql": self.mariadb.port, "zookeeper": self.zookeeper.connect, **settings}
        box.env["LEAFCTL_CONFIG"] = box.write(
            "leafctl.toml",
            """
[server]
listen = ["127.0.0.1:0"]
[segment]
store = "mysql"
[mysql]
endpoints = ["127.0.0.1:%(mysql)d"]
database = "%(database)s"
user = "leaf"
password_file = "%(password)s"
# A busy machine is nothing that doctor should tell of.
connect_timeout = "60s"
query_timeout = "60s"
[snowflake]
cluster = "%(name)s"
registry = "%(registry)s"
address = "%(address)s"
advertise = "%(advertised)s"
claim_watch = "0s"
%(more)s
[zookeeper]
connect = "%(zookeeper)s"
session_timeout = "20s"
"""
            % dict(
                values, database=self.database, password=password, name=self.name, address=ADDRESS, advertised=ADVERTISED,
                more="\n".join(more),
            ),  # fmt: skip
        )

    def sql(self, statements, database=None):
        return self.mariadb.sql(statements, self.database if database is None else database)

    def plant(self, name, data, under=None):
        with self.zookeeper.client() as client:
            client.create((under or self.forever) + "/" + name, data, parents=True)

    def snapshot(self):
        """All files of the box, all tables and all of ZooKeeper, as they are."""
        files = {}
        for folder, _, names in os.walk(self.box.dir):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.isfile(path):
                    continue  # the socket of a daemon that was killed
                with open(path, "rb") as file:
                    files[path] = (os.stat(path).st_mtime_ns, hashlib.sha256(file.read()).hexdigest())
            files[folder] = os.stat(folder).st_mtime_ns
        tables = {
            table: self.sql("SELECT * FROM %s" % table) for (table,) in self.sql("SHOW TABLES")
        }
        nodes = {}
        with self.zookeeper.client() as client:
            for path in client.tree("/snowflake"):
                # A killed daemon's own may go away in between.
                with contextlib.suppress(NoNode):
                    nodes[path] = client.get(path)
        return files, tables, nodes

    def test_nothing_is_wrong_and_nothing_is_changed(self):
        daemon = self.box.serve()
        daemon.ids("pay", 3)
        checks = self.doctor(rc=0)
        self.find(checks, "daemon", "ok", "is ready")
        self.find(checks, "database-clock", "ok")
        self.find(checks, "own-number", "ok", "has worker 0")
        self.find(checks, "fence", "ok", "cluster")
        self.find(checks, "tags", "ok", "1 tag")
        daemon.terminate()
        before = self.snapshot()
        checks = self.doctor(rc=0)
        self.find(checks, "daemon", "ok", "none runs here")
        self.find(checks, "marks", "ok", "1 readable")
        self.assertEqual(self.snapshot(), before)
        # The same while there is nothing yet, and with a killed daemon's files.
        fresh = Sandbox()
        self.addCleanup(fresh.close)
        self.configure(fresh)
        self.doctor(fresh)
        self.assertFalse(os.path.exists(fresh.state))
        self.box.serve().kill()
        files, tables, nodes = self.snapshot()
        self.doctor()
        now_files, now_tables, now_nodes = self.snapshot()
        self.assertEqual(now_tables, tables)
        # A killed daemon's ephemeral nodes go by themselves.
        self.assertEqual({k: v for k, v in now_nodes.items() if "/temporary" not in k and "/daemons" not in k},
                         {k: v for k, v in nodes.items() if "/temporary" not in k and "/daemons" not in k})  # fmt: skip
        # SQLite's index of a log that is still there is no content.
        self.assertEqual({k: v for k, v in now_files.items() if not k.endswith("-shm")},
                         {k: v for k, v in files.items() if not k.endswith("-shm")})  # fmt: skip

    def test_rows_of_the_table(self):
        self.sql(
            "INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES ('zero', 1, 0), ('huge', 1, 1073741824), "
            "('back', 1, -5), ('end', 9223372036854775000, 1), ('Pay', 1, 1), ('v1.0', 1, 1), ('minus', -7, 1)"
        )
        checks = self.doctor(rc=10)
        for tag in ("zero", "huge", "back"):
            self.find(checks, "tag-step", "problem", tag)
        self.find(checks, "tag-exhaustion", "warning", "end")
        self.find(checks, "tag-exhaustion", "problem", "minus")
        self.find(checks, "tag-alike", "warning", "'Pay', 'pay'")
        self.find(checks, "tag-dotted", "warning", "v1.0")

    def test_a_database_that_went_back(self):
        daemon = self.box.serve()
        daemon.ids("pay", 3)
        daemon.terminate()
        self.sql("UPDATE leaf_alloc SET max_id = 1001 WHERE biz_tag = 'pay'")
        self.find(self.doctor(rc=10), "tag-went-back", "problem", "pay")

    def test_the_table_itself(self):
        self.sql("ALTER TABLE leaf_alloc ENGINE=MyISAM; ALTER TABLE leaf_alloc DROP PRIMARY KEY")
        checks = self.doctor(rc=10)
        self.find(checks, "database", "problem", "MyISAM")
        self.find(checks, "database", "problem", "not unique")
        self.sql("DROP TABLE leaf_alloc")
        self.find(self.doctor(rc=10), "database", "problem", "is missing")

    def test_what_stands_under_forever(self):
        now = int(time.time() * 1000)
        self.plant("lock", b"")
        self.plant("192.0.2.1:80-0000000003", b'{"ip":"192.0.2.1","port":"80","timestamp":1700000000000,"uuid":"x"}')
        self.plant("192.0.2.2:80-0000000004", node_data("192.0.2.2:80", now + 3600_000))
        self.plant("192.0.2.2:80-0000000005", node_data("192.0.2.2:80", 1700000000000))
        self.plant("web-1:80-0000000006", node_data("web-1:80", 1700000000000))
        self.plant("192.0.2.3:80-0000001024", node_data("192.0.2.3:80", 1700000000000))
        self.plant("172.17.0.1:80-0000000008", node_data("172.17.0.1:80", 1700000000000))
        self.plant("workId:8", b'{"workId":8,"lastUsedIp":"192.0.2.4","lastUsedPort":"1","lastUsedTimestamp":1700000000000}',
                   "/snowflake/%s/recycle/inuse" % self.name)  # fmt: skip
        self.plant("workId:9", b'{"workId":9,"lastUsedIp":"192.0.2.5","lastUsedPort":"1","lastUsedTimestamp":%d}' % now,
                   "/snowflake/%s/recycle/inuse" % self.name)  # fmt: skip
        checks = self.doctor(rc=10)
        problems = self.problems(checks)
        for code in ("foreign-child", "malformed-data", "future-time", "duplicate-address", "dashed-address",
                     "number-too-large", "shared-address", "two-number-spaces", "fork-running"):  # fmt: skip
            self.assertIn(code, problems, json.dumps(checks, indent=1))
        self.find(checks, "number-spaces", "warning", "2 of the fork's recycled numbers")

    def test_an_unused_namespace(self):
        with self.zookeeper.client() as client:
            client.delete_all("/snowflake/%s" % self.name)
        self.assertTrue(self.problems(self.doctor(rc=10)) & {"forever-missing", "virgin-namespace"})

    def test_two_registries(self):
        self.sql("INSERT INTO leaf_workerid_alloc(ip_port) VALUES ('192.0.2.9:80')")
        self.find(self.doctor(), "number-spaces", "warning", "leaf_workerid_alloc has 1 numbers")
        self.configure(self.box, registry="sql")
        self.find(self.doctor(), "number-spaces", "warning", "/forever has 1 numbers")

    def test_a_java_node_that_runs_under_our_address(self):
        stop = threading.Event()

        def report():
            with self.zookeeper.client() as client:
                while not stop.is_set():
                    client.set(self.forever + "/" + ADDRESS + "-0000000000", node_data(ADDRESS, int(time.time() * 1000)))
                    stop.wait(0.2)

        thread = threading.Thread(target=report)
        thread.start()
        try:
            # A reporter that the machine holds up for 4 s looks dead.
            checks = poll(
                lambda: [one for one in self.doctor() if one["check"] == "address-in-use"], "it is seen", timeout=120
            )
        finally:
            stop.set()
            thread.join()
        self.assertEqual(checks[0]["status"], "problem")
        self.assertIn("worker 0", checks[0]["found"])

    def test_javas_local_file(self):
        folder = os.path.join("/tmp", self.name)
        self.addCleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.makedirs(folder + "/leafconf/8686")
        path = folder + "/leafconf/8686/workerID.properties"
        for number, status in ((0, "ok"), (5, "problem")):
            with open(path, "w", encoding="utf-8") as file:
                file.write("workerID=%d" % number)
            self.find(self.doctor(rc=0 if status == "ok" else 10), "java-file", status)

    def test_a_daemon_that_answers_elsewhere(self):
        daemon = self.box.serve("--socket", self.box.path("elsewhere"))
        self.find(self.doctor(rc=10), "daemon", "problem", "process %d holds the state directory" % daemon.process.pid)

    def test_a_number_of_another_state_directory(self):
        self.box.serve().terminate()
        other = Sandbox()
        self.addCleanup(other.close)
        self.configure(other)
        self.find(self.doctor(other, rc=10), "own-number", "problem", "another state directory")

    def test_a_lease_of_this_address_that_another_directory_had_is_not_in_the_way(self):
        self.configure(self.box, "recycle = true")
        with self.zookeeper.client() as client:
            client.create("/snowflake/%s/leafctl/leases/1023" % self.name,
                          '{"generation":4,"uuid":"11111111-2222-3333-4444-555555555555","address":"%s","ceiling_ms":1}' % ADDRESS,
                          parents=True)  # fmt: skip
        checks = self.doctor()
        self.assertNotIn("own-number", self.problems(checks), json.dumps(checks, indent=1))

    def test_a_new_address_is_told(self):
        self.find(self.doctor(env={"LEAFCTL_SNOWFLAKE_ADDRESS": "192.0.2.99:1"}, rc=0), "own-number", "warning", "no worker number yet")
        self.find(self.doctor(env={"LEAFCTL_SNOWFLAKE_ADDRESS": "127.0.0.1:1"}), "address", "warning", "many machines")

    def test_another_epoch(self):
        self.find(self.doctor(env={"LEAFCTL_SNOWFLAKE_EPOCH_MS": "1"}), "epoch", "warning")

    def test_files_that_others_can_read_or_change(self):
        os.chmod(self.box.path("password"), 0o644)
        os.chmod(self.box.path("leafctl.toml"), 0o666)
        checks = self.doctor(rc=10)
        self.find(checks, "mysql-password", "problem", "0644")
        self.find(checks, "config-file", "problem", "0666")

    def test_a_damaged_state(self):
        self.box.serve().terminate()
        with open(os.path.join(self.box.state, "snowflake.state"), "a", encoding="utf-8") as file:
            file.write("x")
        with open(os.path.join(self.box.state, "marks.db"), "wb") as file:
            file.write(b"no database at all" * 100)
        checks = self.doctor(rc=10)
        self.find(checks, "worker-state", "problem")
        self.find(checks, "marks", "problem")

    def test_a_daemon_with_a_problem(self):
        daemon = self.box.serve()
        daemon.ids("pay", 3)
        self.box.ok("tag", "pause", "pay", "--yes")
        poll(lambda: daemon.status()["problems"], "the daemon has a problem")
        self.find(self.doctor(rc=10), "daemon", "problem", "pay")

    def test_what_is_away_is_one_finding(self):
        dead = free_port()
        self.configure(self.box, mysql=dead, zookeeper="127.0.0.1:%d" % dead)
        checks = self.doctor(rc=10)
        self.assertEqual(self.problems(checks), {"database", "registry"})
        self.find(checks, "state-dir", "ok")
        self.find(checks, "daemon", "ok")
        self.configure(self.box, zookeeper="127.0.0.1:%d" % dead)
        checks = self.doctor(rc=10)
        self.assertEqual(self.problems(checks), {"registry"})
        self.find(checks, "tags", "ok")

    def test_a_password_that_is_wrong(self):
        self.box.write("password", "wrong\n")
        checks = self.doctor(rc=10)
        self.find(checks, "database", "problem", "denied")
        self.find(checks, "registry", "ok")


class WithoutServers(Calls, LeafTest):
    """The embedded default, and what its daemon would listen on."""

    def test_ports_that_are_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = "127.0.0.1:%d" % taken.getsockname()[1]
            for key in ("listen", "admin_listen", "redis_listen"):
                checks = self.doctor(rc=0, env={"LEAFCTL_SERVER_" + key.upper(): place})
                found = self.find(checks, "listen", "warning", place.rpartition(":")[2])
                self.assertIn("choose another server." + key, found["remedy"])

    def test_what_other_machines_reach(self):
        for key, cause in (("listen", "take IDs"), ("redis_listen", "take IDs"), ("admin_listen", "may read the status")):
            env = {"LEAFCTL_SERVER_" + key.upper(): "0.0.0.0:%d" % free_port()}
            checks = self.doctor(rc=0, env=env)
            self.assertIn(cause, self.find(checks, "access", "warning", "0.0.0.0")["cause"])
            # As serve does: without a word, it goes on without snowflakes.
            self.assertIn("serves no snowflake IDs", self.find(checks, "cluster", "warning", "0.0.0.0")["cause"])
            env["LEAFCTL_SNOWFLAKE_ENABLED"] = "true"
            self.assertIn("exit 6", self.find(self.doctor(rc=10, env=env), "cluster", "problem", "0.0.0.0")["cause"])
            self.check(self.box.run(["serve"], env=env), 6, "cannot serve snowflake mode")
            env["LEAFCTL_SNOWFLAKE_ENABLED"] = "false"
            self.assertNotIn("cluster", [one["check"] for one in self.doctor(rc=0, env=env)])

    def test_a_state_that_is_not_read(self):
        self.box.ok("next", "--mode", "snowflake")
        with open(os.path.join(self.box.state, "snowflake.state"), "a", encoding="utf-8") as file:
            file.write("x")
        self.find(self.doctor(rc=10), "worker-state", "problem")
        self.doctor(rc=0, env={"LEAFCTL_SNOWFLAKE_ENABLED": "false"})

    def test_remedies_can_be_pasted(self):
        path = self.box.write("a file's name.toml", "")
        os.chmod(path, 0o666)
        found = self.find(self.doctor(rc=10, env={"LEAFCTL_CONFIG": path}), "config-file", "problem", "0666")
        subprocess.run(["sh", "-c", found["remedy"]], check=True)
        self.find(self.doctor(rc=0, env={"LEAFCTL_CONFIG": path}), "config-file", "ok")
        # A tag whose name is not a word: its row is behind what this node was granted.
        self.box.ok("tag", "add", "two words", "--start", "1")
        self.box.ok("next", "two words", "--direct")
        with contextlib.closing(sqlite3.connect(os.path.join(self.box.state, "leaf.db"))) as database:
            database.execute("UPDATE leaf_alloc SET max_id = 1")
            database.commit()
        remedy = self.find(self.doctor(rc=10), "tag-went-back", "problem", "two words")["remedy"]
        self.assertTrue(remedy.endswith("leafctl tag repair 'two words'"), remedy)


if __name__ == "__main__":
    main()
