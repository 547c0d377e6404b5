#!/usr/bin/env python3
"""leafctl worker list | show | check | repair | release | export on a real ZooKeeper, SQLite and MariaDB."""

import contextlib
import glob
import http.server
import json
import operator
import os
import re
import shutil
import sqlite3
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import LeafTest, main, poll  # noqa: E402
from servers import PASSWORD, MariaDb, free_port  # noqa: E402
from zk_client import EPHEMERAL, SEQUENTIAL, BadVersion, NodeExists  # noqa: E402
from zookeeper import Proxy, ZooKeeper  # noqa: E402

SERVER = None
HOUR_MS = 3600 * 1000
UUID = "11111111-2222-3333-4444-555555555555"
# What Java can start beside (leaf-compat): no other dash, and Leaf's ten digits.
JAVA_NAME = re.compile(r"[^/:-]+:[0-9]+-[0-9]{10}")


def setUpModule():
    global SERVER
    SERVER = ZooKeeper()


def tearDownModule():
    SERVER.close()


def now_ms():
    return int(time.time() * 1000)


def leaf_json(address, timestamp):
    """As Jackson writes it."""
    ip, port = address.rsplit(":", 1)
    return '{"ip":"%s","port":"%s","timestamp":%d}' % (ip, port, timestamp)


class WorkersTest(LeafTest):
    """A cluster of its own in the shared server."""

    CLUSTER = "pay"

    def setUp(self):
        super().setUp()
        self.zk = SERVER.client()
        self.addCleanup(self.zk.close)
        self.base = "/snowflake/" + self.CLUSTER
        self.zk.delete_all(self.base)
        self.addCleanup(self.zk.delete_all, self.base)

    def args(self, *more):
        return [
            "--set", "snowflake.registry=zookeeper",
            "--set", "snowflake.cluster=" + self.CLUSTER,
            "--set", "zookeeper.connect=" + SERVER.connect,
            "worker", *more,
        ]  # fmt: skip

    def worker(self, *more, **options):
        return self.box.run(self.args(*more), **options)

    def json(self, *more, rc=0):
        result = self.worker(*more, "--json")
        self.assertEqual(result.rc, rc, result)
        return json.loads(result.out)

    def findings(self):
        """[(code, subject)] of `worker check`."""
        result = self.worker("check", "--json")
        document = json.loads(result.out)
        self.assertEqual(result.rc, 10 if document["findings"] else 0, result)
        self.assertEqual(document["ok"], not document["findings"])
        for finding in document["findings"]:
            for key in ("code", "subject", "cause", "consequence", "remedy"):
                self.assertTrue(finding[key], finding)
            self.assertEqual(finding["repairable"], finding["left"] is None, finding)
        return [(finding["code"], finding["subject"]) for finding in document["findings"]]

    def workers(self):
        return {(item["kind"], item["worker"]): item for item in self.json("list")["workers"]}

    def forever(self, name=""):
        return self.base + "/forever" + ("/" + name if name else "")

    def own(self, path):
        return self.base + "/leafctl/" + path

    def java_node(self, address, timestamp=None, data=None):
        """As a Java node leaves it; its number."""
        data = leaf_json(address, now_ms() if timestamp is None else timestamp) if data is None else data
        path = self.zk.create(self.forever(address + "-"), data, SEQUENTIAL, parents=True)
        return int(path[-10:])

    def make_own(self, **records):
        """Nodes of leafctl's, as its registries write them: owners={7: {...}}."""
        for folder in ("owners", "addresses", "ceilings", "leases", "temporary"):
            with contextlib.suppress(NodeExists):
                self.zk.create(self.own(folder), parents=True)
        for folder, nodes in records.items():
            for name, record in nodes.items():
                flags = EPHEMERAL if folder == "temporary" else 0
                self.zk.create(self.own("%s/%s" % (folder, name)), json.dumps(record), flags)

    @staticmethod
    def owner(address, uuid=UUID):
        return {"uuid": uuid, "address": address, "host": "alpha", "since_ms": now_ms()}

    @staticmethod
    def ceiling(time_ms, uuid=UUID, generation=3):
        return {
            "uuid": uuid, "generation": generation, "ceiling_ms": time_ms, "leaf_version": 0, "leaf_timestamp_ms": 0,
        }  # fmt: skip

    def own_fixed(self, worker, address, ceiling_ms=None):
        self.make_own(
            owners={worker: self.owner(address)},
            addresses={address: {"uuid": UUID, "worker": worker}},
            ceilings={worker: self.ceiling(now_ms() - 1000 if ceiling_ms is None else ceiling_ms)},
        )


class JavaNamespace(WorkersTest):
    """What years of Java Leaf leave behind."""

    CLUSTER = "pay-core"

    def setUp(self):
        super().setUp()
        self.good = self.java_node("192.0.2.1:8080")
        self.future_ms = now_ms() + HOUR_MS
        self.future = self.java_node("192.0.2.2:8080", self.future_ms)
        self.empty = self.java_node("192.0.2.3:8080", data="")
        self.first = self.java_node("192.0.2.4:8080")
        self.second = self.java_node("192.0.2.4:8080")
        self.docker = self.java_node("172.17.0.1:8080")
        self.nowhere = self.java_node(":8080")
        self.extra = self.java_node(
            "192.0.2.6:8080", data='{"ip":"192.0.2.6","port":"8080","timestamp":1795173800515,"zone":"a"}'
        )
        self.zk.create(self.forever("192.0.2.5:8080-0000001024"), leaf_json("192.0.2.5:8080", now_ms()))
        self.zk.create(self.forever("lock"), b"\xff\x00held")
        self.zk.create(self.forever("lock/below"), b"")
        self.zk.create(self.base + "/recycle/notuse", parents=True)
        self.zk.create(self.base + "/recycle/inuse")
        self.recycle("notuse", 0)
        self.recycle("notuse", 1024)
        self.recycle("inuse", 17, '"192.0.2.9"', '"8080"', now_ms())

    def recycle(self, folder, worker, ip="null", port="null", timestamp="null"):
        self.zk.create(
            "%s/recycle/%s/workId:%d" % (self.base, folder, worker),
            '{"workId":%d,"lastUsedIp":%s,"lastUsedPort":%s,"lastUsedTimestamp":%s}' % (worker, ip, port, timestamp),
        )

    def name(self, address, worker):
        return self.forever("%s-%010d" % (address, worker))

    def left(self):
        """What no repair may touch."""
        return {
            ("dashed-cluster", self.base),
            ("duplicate-address", "192.0.2.4:8080"),
            ("number-too-large", self.name("192.0.2.5:8080", 1024)),
            ("shared-address", self.name("172.17.0.1:8080", self.docker)),
            ("shared-address", self.name(":8080", self.nowhere)),
            ("recycled-too-large", self.base + "/recycle/notuse/workId:1024"),
            ("fork-running", self.base + "/recycle/inuse"),
        }

    def mended(self):
        return {
            ("malformed-data", self.name("192.0.2.3:8080", self.empty)),
            ("malformed-data", self.name("192.0.2.6:8080", self.extra)),
            ("foreign-child", self.forever("lock")),
        }

    def future_time(self):
        return {("future-time", self.name("192.0.2.2:8080", self.future))}

    def check_java_rules(self, *exceptions):
        for name in self.zk.children(self.forever()):
            data, stat = self.zk.get(self.forever(name))
            self.assertEqual(stat.ephemeral_owner, 0)
            if name.startswith(exceptions):
                continue
            self.assertRegex(name, JAVA_NAME)
            record = json.loads(data)
            self.assertEqual(list(record), ["ip", "port", "timestamp"], name)
            self.assertEqual("%s:%s" % (record["ip"], record["port"]), name[: name.rindex("-")])
            self.assertIs(type(record["timestamp"]), int)

    def test_check_names_each(self):
        findings = self.findings()
        self.assertEqual(len(findings), len(set(findings)), findings)
        self.assertEqual(set(findings), self.left() | self.mended() | self.future_time())
        text = self.check(self.worker("check"), 10, "11 findings")
        for code, subject in findings:
            self.assertIn("%s: %s\n" % (code, subject), text.out)

    def test_list_and_show(self):
        workers = self.workers()
        self.assertEqual(workers[("fixed", self.good)]["address"], "192.0.2.1:8080")
        self.assertLess(workers[("fixed", self.good)]["age_ms"], 600 * 1000)
        self.assertLess(workers[("fixed", self.future)]["age_ms"], 0)
        self.assertIsNone(workers[("fixed", self.empty)]["reported"])
        self.assertEqual(workers[("fixed", 1024)]["address"], "192.0.2.5:8080")
        self.assertEqual(workers[("recycled", 17)]["address"], "192.0.2.9:8080")
        self.assertFalse(any(item["program"] == "leafctl" for item in workers.values()))
        result = self.worker("list")
        self.assertEqual(result.rc, 0, result)
        self.assertIn("192.0.2.2:8080", result.out)
        self.assertIn("-5", result.out)  # minutes
        self.assertIn("2 unused numbers", result.err)

        found = self.json("show", "192.0.2.4:8080")["workers"]
        self.assertEqual([item["worker"] for item in found], [self.first, self.second])
        record = self.json("show", str(self.extra))["workers"][0]["records"][0]
        self.assertEqual(record["name"], self.name("192.0.2.6:8080", self.extra))
        self.assertIn('"zone":"a"', record["data"])
        self.assertEqual(record["version"], "0")
        self.assertIn(self.name("192.0.2.1:8080", self.good), self.worker("show", str(self.good)).out)
        self.check(self.worker("show", "999"), 9, "no worker '999'")
        self.check(self.worker("show", "192.0.2.99:1"), 9, "192.0.2.99:1")

    def test_a_node_that_reports_is_live(self):
        """Java Leaf writes its record every 3 s, and nothing else says that it runs."""
        name = self.name("192.0.2.1:8080", self.good)
        ended = threading.Event()

        def report():
            while not ended.wait(0.2):
                self.zk.set(name, leaf_json("192.0.2.1:8080", now_ms()))

        reporter = threading.Thread(target=report)
        reporter.start()
        try:
            item = self.workers()[("fixed", self.good)]
            text = self.worker("list").out
            shown = self.worker("show", "192.0.2.1:8080").out
        finally:
            ended.set()
            reporter.join()
        self.assertEqual((item["live"], item["program"]), (True, "java"))
        self.assertRegex(text, r"(?m)^fixed +%d +192\.0\.2\.1:8080 .* yes .* Java Leaf$" % self.good)
        self.assertRegex(shown, r"(?m)^live: +yes, as Java Leaf")

    def test_the_newest_report_of_the_fork(self):
        """What leaf-migration(7) has the clock wait for."""
        self.zk.delete_all(self.forever())
        self.recycle("inuse", 18, '"192.0.2.9"', '"8081"', 1795173800515)
        self.zk.set(self.base + "/recycle/inuse/workId:17", json.dumps(
            {"workId": 17, "lastUsedIp": "192.0.2.9", "lastUsedPort": "8080", "lastUsedTimestamp": 1795173800516}
        ))  # fmt: skip
        self.assertEqual(self.worker("list", "--newest-report").out, "2026-11-20T11:23:20.516Z\n")
        newest = self.json("list", "--newest-report")["newest"]
        self.assertEqual((newest["kind"], newest["worker"], newest["reported_ms"]), ("recycled", 17, 1795173800516))
        for number in (17, 18):
            self.zk.delete_all(self.base + "/recycle/inuse/workId:%d" % number)
        self.check(self.worker("list", "--newest-report"), 9, "no node has reported")

    def test_dry_run_changes_nothing(self):
        before = self.worker("export")
        self.assertEqual(before.rc, 0, before)
        plan = self.worker("repair", "--dry-run")
        self.assertEqual(plan.rc, 0, plan)
        for _, subject in self.mended():
            self.assertIn(subject, plan.out)
        self.assertIn("left alone: number-too-large", plan.out)
        document = self.json("repair", "--dry-run", "--java-retired")
        self.assertTrue(document["dry_run"])
        self.assertIsNone(document["record"])
        self.assertEqual({step["outcome"] for step in document["steps"]}, {"planned"})
        self.assertEqual(self.worker("export").out, before.out)
        self.assertFalse(os.path.exists(os.path.join(self.box.state, "repairs")))
        # Everything is in it, bytes that are no text included.
        records = {record["name"]: record for record in json.loads(before.out)["records"]}
        self.assertEqual(set(records), set(self.zk.tree(self.base)))
        self.assertEqual(records[self.forever("lock")]["data_hex"], b"\xff\x00held".hex())
        self.assertEqual(records[self.name("192.0.2.1:8080", self.good)]["decoded"]["port"], "8080")

    def test_repair_needs_to_be_confirmed(self):
        before = self.zk.tree(self.base)
        result = self.worker("repair")
        self.assertEqual(result.rc, 11, result)
        self.assertIn("--yes", result.err)
        self.assertEqual(self.zk.tree(self.base), before)

    def test_repair_mends_what_it_may(self):
        before = self.zk.tree(self.base)
        result = self.worker("repair", "--yes")
        self.assertEqual(result.rc, 0, result)
        # The future time stays: a Java node may need it.
        self.assertEqual(set(self.findings()), self.left() | self.future_time())
        after = self.zk.tree(self.base)
        touched = {path for path in before if after.get(path) != before[path]}
        self.assertEqual(
            touched,
            {
                self.name("192.0.2.3:8080", self.empty), self.name("192.0.2.6:8080", self.extra),
                self.forever("lock"), self.forever("lock/below"),
            },
        )  # fmt: skip
        self.assertEqual(set(after) - set(before), set())
        # What was there stands in the record.
        (path,) = glob.glob(os.path.join(self.box.state, "repairs", "*.json"))
        self.assertIn(path, result.err)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, encoding="utf-8") as file:
            steps = json.load(file)["steps"]
        kept = {
            change["before"]["name"]: change["before"].get("data_hex", change["before"].get("data"))
            for step in steps
            for change in step["changes"]
        }
        self.assertEqual(set(kept), touched)
        self.assertEqual(kept[self.forever("lock")], b"\xff\x00held".hex())
        self.assertIn('"zone":"a"', kept[self.name("192.0.2.6:8080", self.extra)])

        # Once no Java node will be started again, its time becomes a ceiling.
        document = self.json("repair", "--yes", "--java-retired")
        self.assertEqual({step["outcome"] for step in document["steps"]}, {"done"})
        ceiling = ("future-ceiling", self.own("ceilings/%d" % self.future))
        self.assertEqual(set(self.findings()), self.left() | {ceiling})
        record = json.loads(self.zk.get(self.own("ceilings/%d" % self.future))[0])
        self.assertGreaterEqual(record["ceiling_ms"], self.future_ms)
        self.assertGreaterEqual(self.workers()[("fixed", self.future)]["lead_ms"], HOUR_MS // 2)
        written = json.loads(self.zk.get(self.name("192.0.2.2:8080", self.future))[0])
        self.assertLessEqual(written["timestamp"], now_ms())
        self.check_java_rules(":8080")
        self.assertNotIn("lock", self.zk.children(self.forever()))
        third = self.worker("repair", "--yes", "--java-retired")
        self.assertEqual(third.rc, 0, third)
        self.assertIn("nothing to repair", third.out)

    def test_a_running_node_is_not_written_over(self):
        """A node that a repair would mend is written all the time."""
        name = self.name("192.0.2.3:8080", self.empty)
        ended = threading.Event()
        written_over = []

        def write():
            version = 0
            while not ended.is_set():
                try:
                    version = self.zk.set(name, "not JSON %d" % version, version).version
                except BadVersion:
                    written_over.append(self.zk.get(name)[0])
                    return
                time.sleep(0.05)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            document = self.json("repair", "--yes")
        finally:
            ended.set()
            writer.join()
        self.assertEqual(written_over, [])
        self.assertIn(name, [finding["subject"] for finding in document["left"]])
        self.assertEqual({step["outcome"] for step in document["steps"]}, {"done"})
        self.assertNotIn("lock", self.zk.children(self.forever()))


class OurRecords(WorkersTest):
    """Findings about leafctl's own nodes, and release."""

    def test_a_healthy_cluster(self):
        worker = self.java_node("192.0.2.1:8080")
        self.own_fixed(worker, "192.0.2.1:8080", now_ms() + 2000)
        self.make_own(temporary={"192.0.2.1:8080": {"url": "http://127.0.0.1:1", "worker": worker, "uuid": UUID}})
        self.assertEqual(self.findings(), [])
        result = self.worker("check")
        self.assertEqual((result.rc, result.out), (0, "ok: nothing is wrong with the 1 worker number of pay\n"))
        item = self.workers()[("fixed", worker)]
        self.assertEqual(
            (item["live"], item["url"], item["owner"], item["host"], item["generation"]),
            (True, "http://127.0.0.1:1", UUID, "alpha", 3),
        )
        names = [record["name"] for record in self.json("show", str(worker))["workers"][0]["records"]]
        self.assertEqual(
            set(names),
            {self.forever("192.0.2.1:8080-%010d" % worker), self.own("owners/%d" % worker),
             self.own("addresses/192.0.2.1:8080"), self.own("ceilings/%d" % worker), self.own("temporary/192.0.2.1:8080")},
        )  # fmt: skip
        again = self.worker("repair", "--yes")
        self.assertEqual((again.rc, again.out), (0, "nothing to repair\n"))

    def test_orphans_and_leases(self):
        for _ in range(3):
            last = self.java_node("192.0.2.1:%d" % free_port())
        soon = now_ms() + 60_000
        lease = {"generation": 4, "uuid": "", "address": "192.0.2.2:1", "ceiling_ms": soon}
        held = {"generation": 4, "uuid": UUID, "address": "192.0.2.3:1", "ceiling_ms": None}
        self.make_own(
            owners={700: self.owner("192.0.2.8:1"), 701: self.owner("192.0.2.9:1")},
            addresses={"192.0.2.8:1": {"uuid": UUID, "worker": 700}, "192.0.2.7:1": {"uuid": UUID, "worker": None},
                       "192.0.2.6:1": {"uuid": UUID, "worker": 600}},  # fmt: skip
            ceilings={700: self.ceiling(soon), 900: self.ceiling(soon)},
            leases={last: lease, last - 1: held, 1000: lease},
            temporary={"192.0.2.9:1": {"url": "", "worker": 701, "uuid": UUID}},
        )
        self.zk.create(self.own("temporary/192.0.2.1:1"), '{"url":"","worker":900,"uuid":"%s"}' % UUID)
        self.zk.set(self.own("ceilings/900"), '{"ceiling_ms":1}')
        self.zk.create(self.own("leases/x"))
        found = set(self.findings())
        ceilings = {
            ("future-ceiling", self.own(path)) for path in ("ceilings/700", "leases/%d" % last, "leases/1000")
        }
        left = {
            ("orphaned-owner", self.own("owners/701")),  # live
            ("orphaned-owner", self.own("owners/700")),  # may be cut off, and issue
            ("orphaned-hold", self.own("addresses/192.0.2.8:1")),
            ("lease-below-forever", self.own("leases/%d" % (last - 1))),  # owned
            ("malformed-record", self.own("ceilings/900")),
            ("malformed-name", self.own("leases/x")),
        }
        mended = {
            ("orphaned-hold", self.own("addresses/192.0.2.6:1")),
            ("dead-temporary", self.own("temporary/192.0.2.1:1")),
            ("lease-below-forever", self.own("leases/%d" % last)),
        }
        self.assertEqual(found, ceilings | left | mended)
        result = self.worker("repair", "--yes")
        self.assertEqual(result.rc, 0, result)
        # The lease's ceiling is kept where a claim of the number finds it.
        ceilings -= {("future-ceiling", self.own("leases/%d" % last))}
        ceilings |= {("future-ceiling", self.own("ceilings/%d" % last))}
        self.assertEqual(set(self.findings()), ceilings | left)
        self.assertEqual(json.loads(self.zk.get(self.own("ceilings/%d" % last))[0])["ceiling_ms"], soon)
        self.assertEqual(json.loads(self.zk.get(self.own("ceilings/700"))[0])["ceiling_ms"], soon)
        # An operator who knows that the node is gone for good.
        self.assertTrue(self.json("release", "700", "--confirm", "pay")["released"])
        self.assertEqual({code for code, _ in self.findings()} & {"orphaned-hold"}, set())
        self.assertEqual(json.loads(self.zk.get(self.own("ceilings/700"))[0])["ceiling_ms"], soon)

    def test_a_node_of_another_program_that_may_not_be_read(self):
        self.java_node("192.0.2.1:8080")
        self.addCleanup(self.zk.delete, self.base + "/notes")
        self.zk.create(self.base + "/notes", "private", acl=[(31, "digest", "other:AAAAAAAAAAAAAAAAAAAAAAAAAAA=")])
        self.assertEqual(self.findings(), [])
        names = [record["name"] for record in self.json("export")["records"]]
        self.assertIn(self.forever("192.0.2.1:8080-0000000000"), names)
        self.assertNotIn(self.base + "/notes", names)

    def test_a_chroot_that_is_not_there_is_no_new_cluster(self):
        nowhere = ("--set", "zookeeper.connect=%s/nowhere" % SERVER.connect)
        for args in (("list",), ("check",), ("repair", "--yes"), ("export",)):
            self.check(self.box.run([*self.args(*args), *nowhere]), 6, "chroot of zookeeper.connect does not exist")

    def test_release_of_a_fixed_number(self):
        worker = self.java_node("192.0.2.1:8080")
        self.own_fixed(worker, "192.0.2.1:8080")
        with SERVER.client() as live:
            live.create(
                self.own("temporary/192.0.2.1:8080"), '{"url":"","worker":%d,"uuid":"%s"}' % (worker, UUID), EPHEMERAL
            )
            before = self.zk.tree(self.base)
            self.check(self.worker("release", str(worker), "--confirm", "pay"), 11, "is live")
            self.assertEqual(self.zk.tree(self.base), before)
        before = self.zk.tree(self.base)
        self.check(self.worker("release", str(worker)), 11, "--confirm pay")
        self.check(self.worker("release", str(worker), "--yes"), 11, "--confirm pay")
        self.check(self.worker("release", str(worker), "--confirm", "other"), 11, "is not 'pay'")
        dry = self.worker("release", str(worker), "--dry-run")
        self.assertEqual(dry.rc, 0, dry)
        self.assertIn(UUID, dry.out)
        self.assertEqual(self.zk.tree(self.base), before)
        self.check(self.worker("release", "999", "--confirm", "pay"), 9, "no worker 999")
        self.check(self.worker("release", "192.0.2.1:8080", "--confirm", "pay"), 2)

        document = self.json("release", str(worker), "--confirm", "pay")
        self.assertEqual((document["released"], document["worker"]), (True, worker))
        after = self.zk.tree(self.base)
        self.assertEqual(
            set(before) - set(after), {self.own("owners/%d" % worker), self.own("addresses/192.0.2.1:8080")}
        )
        self.assertEqual({path: before[path] for path in after}, after)
        item = self.workers()[("fixed", worker)]
        self.assertEqual(item["owner"], "")
        self.assertIsNotNone(item["ceiling"])
        self.assertFalse(self.json("release", str(worker), "--confirm", "pay")["released"])

    def test_release_of_a_lease(self):
        lease = {"generation": 4, "uuid": UUID, "address": "192.0.2.3:1", "ceiling_ms": now_ms()}
        self.zk.create(self.forever(), parents=True)
        self.make_own(leases={1023: lease})
        result = self.worker("release", "1023", "--confirm", "pay")
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(
            json.loads(self.zk.get(self.own("leases/1023"))[0]), dict(lease, uuid="", generation=5)
        )

    def test_a_virgin_namespace(self):
        self.zk.delete_all(self.base)
        self.assertEqual(self.findings(), [("virgin-namespace", self.forever())])
        self.assertEqual(self.worker("repair", "--dry-run").rc, 0)
        self.assertIsNone(self.zk.exists(self.base))
        self.assertEqual(self.worker("repair", "--yes").rc, 0)
        self.assertEqual(self.zk.get(self.forever())[0], b"")
        self.assertEqual(self.findings(), [])
        # Java's next node gets a number that it parses.
        self.assertEqual(self.java_node("192.0.2.1:8080"), 0)

    def test_configuration_that_differs(self):
        self.zk.create(self.forever(), parents=True)
        self.make_own()
        record = {
            "name": "pay", "registry": "zookeeper", "layout": "41-10-12", "epoch_ms": 1288834974657, "recycle": False,
        }  # fmt: skip
        self.zk.create(self.own("cluster"), json.dumps(record))
        self.assertEqual(self.findings(), [])
        result = self.worker("check", "--json", "--set", "snowflake.recycle=true")
        self.assertEqual(result.rc, 10, result)
        self.assertEqual(json.loads(result.out)["findings"][0]["code"], "cluster-differs")


class Errors(WorkersTest):
    def test_zookeeper_away(self):
        for command in ("list", "check", "export"):
            self.check(
                self.box.run(
                    ["worker", command, "--timeout", "500ms", "--set", "snowflake.registry=zookeeper", "--set",
                     "snowflake.cluster=pay", "--set", "zookeeper.connect=127.0.0.1:%d" % free_port()]
                ),
                8,
            )  # fmt: skip

    def test_a_silent_server(self):
        proxy = Proxy(SERVER.port)
        self.addCleanup(proxy.close)
        proxy.blackhole()
        result = self.box.run(
            ["worker", "list", "--timeout", "500ms", "--set", "snowflake.registry=zookeeper", "--set",
             "snowflake.cluster=pay", "--set", "zookeeper.connect=127.0.0.1:%d" % proxy.port]
        )  # fmt: skip
        self.check(result, 8)

    def test_no_cluster(self):
        for registry in ("zookeeper", "sql"):
            for command in (["list"], ["check"], ["repair", "--yes"], ["release", "3", "--confirm", "x"], ["export"]):
                result = self.box.run(["worker", *command, "--set", "snowflake.registry=" + registry])
                self.check(result, 6, "snowflake.cluster")

    def test_bad_connect_string_and_secret(self):
        self.check(self.worker("list", "--set", "zookeeper.connect=nowhere"), 6, "nowhere")
        secret = self.box.write("secret", "user:password", 0o644)
        self.check(self.worker("list", "--set", "zookeeper.auth_file=" + secret), 6, "secret")
        os.chmod(secret, 0o600)
        self.zk.create(self.forever(), parents=True)
        result = self.worker("check", "--set", "zookeeper.auth_file=" + secret)
        self.assertEqual(result.rc, 0, result)

    def test_a_node_that_may_not_be_read(self):
        self.zk.create(self.forever(), parents=True)
        with SERVER.client(auth="admin:admin") as admin:
            path = self.own("owners")
            admin.create(self.own("").rstrip("/"), acl=((31, "auth", ""), (1, "world", "anyone")))
            # digest of admin:admin; no other client may do anything
            admin.create(path, acl=((31, "auth", ""),))
            self.check(self.worker("check"), 4, path)
            secret = self.box.write("secret", "admin:admin")
            self.assertEqual(self.worker("check", "--set", "zookeeper.auth_file=" + secret).rc, 0)
            admin.delete_all(self.own("").rstrip("/"))


def without_moments(document):
    """What does not change from one look to the next; ages, ceilings and reports do."""
    moving = ("age_ms", "lead_ms", "reported", "reported_ms", "ceiling", "ceiling_ms")
    workers = [{key: value for key, value in item.items() if key not in moving} for item in document["workers"]]
    return {"registry": document["registry"], "cluster": document["cluster"], "workers": workers}


class ThroughADaemon:
    """worker list --server: the daemon's registry, without its address. Subclasses say which registry."""

    ADDRESS = "127.0.0.1:4321"

    def list_through(self, *servers, more=()):
        """Without a word about the registry, in a state directory of nothing."""
        args = [word for server in servers for word in ("--server", server)]
        return self.box.run(["worker", "list", "--state-dir", os.path.join(self.box.home, "laptop"), *args, *more])

    def until_unavailable(self, daemon):
        """What was read before may still be told for a second."""
        deadline = time.monotonic() + 120
        while daemon.get("/v1/workers").status == 200:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def check_same(self, daemon, directly):
        """`directly`: the flags of a call that reads the registry itself."""
        through = self.list_through(daemon.url, more=["--json"])
        self.assertEqual(through.rc, 0, through)
        document = json.loads(through.out)
        own = json.loads(self.box.ok("worker", "list", *directly, "--json"))
        self.assertEqual(list(document), list(own))
        self.assertEqual([list(item) for item in document["workers"]], [list(item) for item in own["workers"]])
        self.assertEqual(without_moments(document), without_moments(own))
        self.assertLess(abs(document["time_ms"] - now_ms()), 600 * 1000)
        # The route says the same, and so does the table for people, but for times.
        answer = daemon.get("/v1/workers")
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(without_moments(json.loads(answer.body)), without_moments(own))

        def blurred():
            tables = [self.list_through(daemon.url).out, self.box.ok("worker", "list", *directly)]
            return [re.sub(r"\S+Z\b|-?[0-9]+ (s|min|h|d)\b", "T", re.sub(" +", " ", table)) for table in tables]

        # A node may report for the first time between the two, and the daemon tells for a second what it has read before.
        poll(lambda: operator.eq(*blurred()), "the daemon's list is the one that is read directly", 120)
        self.assertEqual(*blurred())
        self.assertGreater(len(blurred()[0].splitlines()), 1)
        # Over the socket, and with another one before it that is not there.
        socket = "unix:%s/leafctl.sock" % self.box.state
        through = self.list_through("unix:/nowhere", socket, more=["--json"])
        self.assertEqual(through.rc, 0, through)
        self.assertEqual(without_moments(json.loads(through.out)), without_moments(own))
        self.assertFalse(os.path.exists(os.path.join(self.box.home, "laptop")))
        return document


class ThroughADaemonOfZooKeeper(ThroughADaemon, WorkersTest):
    def flags(self, connect=None):
        return [
            "--set", "snowflake.registry=zookeeper", "--set", "snowflake.cluster=" + self.CLUSTER,
            "--set", "zookeeper.connect=" + (connect or SERVER.connect),
        ]  # fmt: skip

    def serve(self, connect=None):
        daemon = self.box.serve(
            *self.flags(connect), "--set", "segment.enabled=false", "--set", "snowflake.address=" + self.ADDRESS,
            "--set", "snowflake.claim_watch=0s",
        )  # fmt: skip
        # Before its nodes in ZooKeeper are removed: it would put them back.
        self.addCleanup(daemon.terminate)
        return daemon

    def test_the_same_list(self):
        java = self.java_node("192.0.2.1:8080")
        daemon = self.serve()
        document = self.check_same(daemon, self.flags())
        self.assertEqual((document["registry"], document["cluster"]), ("zookeeper", "pay"))
        workers = {item["address"]: item for item in document["workers"]}
        self.assertEqual((workers["192.0.2.1:8080"]["worker"], workers["192.0.2.1:8080"]["owner"]), (java, ""))
        self.assertEqual((workers[self.ADDRESS]["live"], workers[self.ADDRESS]["program"]), (True, "leafctl"))
        newest = self.list_through(daemon.url, more=["--newest-report", "--json"])
        self.assertIn(json.loads(newest.out)["newest"]["address"], ("192.0.2.1:8080", self.ADDRESS))

    def test_a_registry_that_does_not_answer(self):
        proxy = Proxy(SERVER.port)
        self.addCleanup(proxy.close)
        daemon = self.serve("127.0.0.1:%d" % proxy.port)
        self.assertEqual(self.list_through(daemon.url).rc, 0)
        proxy.blackhole()
        # Callers come together and one after the other: each has an answer, and the daemon goes on with everything else.
        answers = []

        def call():
            answers.append(daemon.get("/v1/workers"))
            daemon.disconnect()

        callers = [threading.Thread(target=call) for _ in range(8)]
        self.until_unavailable(daemon)
        for caller in callers:
            caller.start()
        self.assertEqual(daemon.get("/v1/clock").status, 200)
        for caller in callers:
            caller.join()
        self.assertEqual([answer.status for answer in answers], [503] * len(callers))
        for answer in answers:
            self.assertEqual(json.loads(answer.body)["code"], "unavailable")
        self.check(self.list_through(daemon.url), 8)
        proxy.thaw()
        deadline = time.monotonic() + 120
        while self.list_through(daemon.url).rc != 0:
            self.assertLess(time.monotonic(), deadline)

    def test_no_snowflake_mode(self):
        daemon = self.box.serve("--set", "snowflake.enabled=false")
        self.check(self.list_through(daemon.url), 11, "snowflake mode is disabled on this server")
        self.assertEqual(daemon.get("/v1/workers").status, 503)

    def test_an_older_daemon(self):
        class Older(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                known = self.path == "/v1/clock"
                body = (
                    {"time": "2026-11-20T11:29:38.000Z", "time_ms": 1795173800516, "version": "0.1.7"} if known
                    else {"code": "not_found", "message": "there is no route '%s'" % self.path, "hint": ""}
                )  # fmt: skip
                self.send_response(200 if known else 404)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Older) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = "http://127.0.0.1:%d" % server.server_address[1]
            self.check(self.list_through(url), 11, "the daemon at %s is leafctl 0.1.7, which does not" % url)
            server.shutdown()


class ThroughADaemonOfSql(ThroughADaemon, LeafTest):
    def test_the_same_list(self):
        flags = ["--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay"]
        daemon = self.box.serve(
            *flags, "--set", "snowflake.address=" + self.ADDRESS, "--set", "snowflake.claim_watch=0s"
        )
        document = self.check_same(daemon, flags)
        (item,) = document["workers"]
        self.assertEqual((document["registry"], item["address"], item["live"]), ("sql", self.ADDRESS, True))
        self.assertTrue(item["owner"])


class ThroughADaemonOfMariaDb(ThroughADaemon, LeafTest):
    def test_the_same_list_and_a_database_that_goes_away(self):
        server = MariaDb()
        self.addCleanup(server.close)
        flags = [
            "--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay", "--set", "segment.store=mysql",
            "--set", "mysql.endpoints=127.0.0.1:%d" % server.port,
            "--set", "mysql.password_file=" + self.box.write("password", PASSWORD),
        ]  # fmt: skip
        server.sql("DROP DATABASE IF EXISTS leaf; CREATE DATABASE leaf CHARACTER SET utf8mb4")
        self.box.ok("db", "init", *flags)
        daemon = self.box.serve(
            *flags, "--set", "snowflake.address=" + self.ADDRESS, "--set", "snowflake.claim_watch=0s"
        )
        document = self.check_same(daemon, flags)
        self.assertEqual([item["address"] for item in document["workers"]], [self.ADDRESS])
        server.kill()
        self.until_unavailable(daemon)
        answer = daemon.get("/v1/workers")
        self.assertEqual((answer.status, json.loads(answer.body)["code"]), (503, "unavailable"))
        self.check(self.list_through(daemon.url), 8)


class ThroughADaemonOfStaticNumbers(ThroughADaemon, LeafTest):
    def test_the_same_list(self):
        flags = ["--set", "snowflake.cluster=pay", "--set", "snowflake.worker_id=7"]
        daemon = self.box.serve(*flags)
        document = self.check_same(daemon, flags)
        self.assertEqual([item["worker"] for item in document["workers"]], [7])


class StaticRegistry(LeafTest):
    def test_says_what_the_state_directory_knows(self):
        self.assertEqual(json.loads(self.box.ok("worker", "list", "--json"))["workers"], [])
        self.box.ok("next", "--mode", "snowflake")
        (item,) = json.loads(self.box.ok("worker", "list", "--json"))["workers"]
        self.assertEqual(item["kind"], "fixed")
        number = str(item["worker"])
        self.assertTrue(item["owner"])
        self.assertIsNotNone(item["ceiling"])
        self.assertIn("snowflake.state", self.box.ok("worker", "show", number))
        self.assertEqual(self.box.run(["worker", "check"]).rc, 0)
        self.assertEqual(self.box.ok("worker", "repair", "--yes"), "nothing to repair\n")
        self.check(self.box.run(["worker", "release", number, "--confirm", "x"]), 11, "configuration")
        self.assertEqual(len(json.loads(self.box.ok("worker", "export"))["records"]), 1)
        self.check(self.box.run(["worker", "show", "5"]), 9)


class SqlTests:
    """The same list on both databases; subclasses say where."""

    def sql(self, statement):
        raise NotImplementedError

    def args(self, *more):
        return ["worker", *more, "--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay", *self.store]

    def worker(self, *more):
        return self.box.run(self.args(*more))

    def json(self, *more, rc=0):
        result = self.worker(*more, "--json")
        self.assertEqual(result.rc, rc, result)
        return json.loads(result.out)

    def findings(self):
        result = self.worker("check", "--json")
        document = json.loads(result.out)
        self.assertEqual(result.rc, 10 if document["findings"] else 0, result)
        return {(finding["code"], finding["subject"]) for finding in document["findings"]}

    def add_number(self, worker, address, timestamp):
        ip, port = address.rsplit(":", 1)
        self.sql(
            "INSERT INTO leaf_workerid_alloc (id, ip, port, ip_port, max_timestamp) VALUES (%d, '%s', '%s', '%s', %s)"
            % (worker, ip, port, address, timestamp)
        )

    def add_owner(self, worker, address, uuid=UUID, ceiling=0, reported=0, live=0):
        self.sql(
            "INSERT INTO leafctl_workers (worker, ip_port, uuid, host, url, claims, ceiling_ms, reported_ms, since_ms, "
            "live) VALUES (%d, '%s', '%s', 'alpha', 'http://a:1', 2, %d, %d, %d, %d)"
            % (worker, address, uuid, ceiling, reported, now_ms(), live)
        )

    def fill(self):
        now = now_ms()
        self.future_ms = now + HOUR_MS
        self.add_number(1, "192.0.2.1:8080", now)
        self.add_owner(1, "192.0.2.1:8080", ceiling=now + 1000, reported=now, live=1)
        self.add_number(2, "192.0.2.2:8080", self.future_ms)  # of the fork
        self.add_number(3, "192.0.2.3:8080", "NULL")
        self.add_owner(3, "192.0.2.3:8080", ceiling=now - 5000, reported=now - 60_000, live=1)  # crashed
        self.add_number(1024, "192.0.2.5:8080", now)
        self.add_number(4, "127.0.0.1:8080", now)
        self.add_owner(9, "192.0.2.9:8080", ceiling=now - 5000)  # orphaned
        self.sql("INSERT INTO leafctl_cluster (one, name, layout, epoch_ms) VALUES (1, 'pay', '41-10-12', 1288834974657)")

    def test_findings_repair_and_release(self):
        self.fill()
        left = {
            ("number-too-large", "leaf_workerid_alloc/1024"),
            ("shared-address", "leaf_workerid_alloc/4"),
            ("orphaned-owner", "leafctl_workers/9"),  # its node may be cut off, and issue
        }
        future = {("future-time", "leaf_workerid_alloc/2")}
        self.assertEqual(self.findings(), left | future)
        workers = {item["worker"]: item for item in self.json("list")["workers"]}
        self.assertTrue(workers[3]["owner"])
        self.assertEqual((workers[2]["owner"], workers[3]["host"], workers[3]["live"]), ("", "alpha", False))
        self.assertEqual(len(self.json("show", "192.0.2.1:8080")["workers"][0]["records"]), 2)
        self.check(self.worker("show", "77"), 9)

        before = self.worker("export")
        self.assertEqual(self.worker("repair", "--java-retired", "--dry-run").rc, 0)
        self.assertEqual(self.worker("export").out, before.out)
        self.assertEqual(self.worker("repair", "--java-retired").rc, 11)
        self.assertEqual(self.worker("repair", "--yes").rc, 0)
        self.assertEqual(self.worker("export").out, before.out, "only with the operator's word")
        result = self.worker("repair", "--yes", "--java-retired")
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(self.findings(), left | {("future-ceiling", "leafctl_workers/2")})
        self.assertEqual(len(glob.glob(os.path.join(self.box.state, "repairs", "*.json"))), 1)
        workers = {item["worker"]: item for item in self.json("list")["workers"]}
        self.assertGreaterEqual(workers[2]["ceiling_ms"], self.future_ms)
        self.assertLessEqual(workers[2]["reported_ms"], now_ms())
        self.assertEqual(workers[9]["owner"], UUID)
        self.assertTrue(self.json("release", "9", "--confirm", "pay")["released"])
        self.assertNotIn(("orphaned-owner", "leafctl_workers/9"), self.findings())

        self.check(self.worker("release", "3"), 11, "--confirm pay")
        self.check(self.worker("release", "77", "--confirm", "pay"), 9)
        document = self.json("release", "3", "--confirm", "pay")
        self.assertTrue(document["released"])
        released = {item["worker"]: item for item in self.json("list")["workers"]}[3]
        self.assertEqual((released["owner"], released["generation"]), ("", 3))
        self.assertEqual(released["ceiling_ms"], workers[3]["ceiling_ms"])
        self.assertFalse(self.json("release", "3", "--confirm", "pay")["released"])

    def test_a_live_owner_keeps_its_number(self):
        now = now_ms() + HOUR_MS  # reports far enough ahead to be live however long this takes
        self.add_number(5, "192.0.2.1:8080", now)
        self.add_owner(5, "192.0.2.1:8080", reported=now, live=1)
        self.check(self.worker("release", "5", "--confirm", "pay"), 11, "reported")

    def test_addresses_that_moved(self):
        self.add_number(1, "192.0.2.1:8080", 1)
        self.add_owner(1, "192.0.2.7:8080", uuid="", ceiling=5)
        self.add_number(2, "192.0.2.2:8080", 1)
        self.add_owner(2, "192.0.2.8:8080")
        self.assertEqual(
            self.findings(), {("owners-disagree", "leafctl_workers/1"), ("owners-disagree", "leafctl_workers/2")}
        )
        self.assertEqual(self.worker("repair", "--yes").rc, 0)
        self.assertEqual(self.findings(), {("owners-disagree", "leafctl_workers/2")})


class Sqlite(SqlTests, LeafTest):
    def setUp(self):
        super().setUp()
        self.store = []
        self.box.ok("db", "init")

    def sql(self, statement):
        with contextlib.closing(sqlite3.connect(os.path.join(self.box.state, "leaf.db"), timeout=60)) as connection:
            connection.execute(statement)
            connection.commit()

    def test_addresses_that_differ_in_case(self):
        self.add_number(1, "Host.example:8080", 1)
        self.add_number(2, "host.example:8080", 1)
        self.assertEqual(self.findings(), {("duplicate-address", "host.example:8080")})

    def test_looking_leaves_no_file_behind(self):
        shutil.rmtree(self.box.state)
        for command in (["list"], ["check"], ["repair", "--dry-run"], ["export"]):
            self.assertEqual(self.worker(*command).rc, 0)
        self.assertFalse(os.path.exists(self.box.state))


class MariaDbTables(SqlTests, LeafTest):
    server = None

    @classmethod
    def setUpClass(cls):
        cls.server = MariaDb()

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def setUp(self):
        super().setUp()
        password = self.box.write("password", PASSWORD)
        self.store = [
            "--set", "segment.store=mysql", "--set", "mysql.endpoints=127.0.0.1:%d" % self.server.port,
            "--set", "mysql.password_file=" + password,
        ]  # fmt: skip
        self.server.sql("DROP DATABASE IF EXISTS leaf; CREATE DATABASE leaf CHARACTER SET utf8mb4")
        self.box.ok("db", "init", *self.store)

    def sql(self, statement):
        self.server.sql("USE leaf; " + statement)

    def test_the_forks_own_database(self):
        """Before `db init`: its table alone."""
        self.add_number(1, "192.0.2.1:8080", now_ms())
        self.sql("DROP TABLE leafctl_workers; DROP TABLE leafctl_cluster")
        self.assertEqual(self.findings(), {("tables-missing", "leafctl_workers")})
        self.assertEqual([item["worker"] for item in self.json("list")["workers"]], [1])
        self.sql("DROP TABLE leaf_workerid_alloc")
        self.check(self.worker("list"), 6)

    def test_database_away(self):
        store = ["--set", "segment.store=mysql", "--set", "mysql.endpoints=127.0.0.1:%d" % free_port()]
        self.check(
            self.box.run(
                ["worker", "list", "--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay", *store]
            ),
            8,
        )


if __name__ == "__main__":
    main()
