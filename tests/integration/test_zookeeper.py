#!/usr/bin/env python3
"""Worker numbers from a real ZooKeeper, one server and an ensemble of three: claims, outages, leases, peers' clocks.

LEAFCTL_ZK_ROUNDS    virgin namespaces that 64 nodes come to at once (default 3)
LEAFCTL_ZK_OUTAGE_S  seconds without any server, under load (default 5)
"""

import base64
import concurrent.futures
import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from certificates import Authority  # noqa: E402
from leafctl import ROOT, LeafTest, Sandbox, main, poll, scaled  # noqa: E402
from servers import free_port  # noqa: E402
from zk_client import EPHEMERAL, OPEN_ACL, NoAuth  # noqa: E402
from zookeeper import Ensemble, Proxy, ZooKeeper  # noqa: E402

EPOCH_MS = 1288834974657
LEAF_NODE = re.compile(r"^[^-/]+:\d+-\d{10}$")


def time_ms(value):
    return (value >> 22) + EPOCH_MS


def worker_of(value):
    return value >> 12 & 1023


def digest_of(auth):
    """As in access rules (DigestAuthenticationProvider.generateDigest)."""
    return base64.b64encode(hashlib.sha1(auth.encode()).digest()).decode()


class Taker:
    """Takes IDs from a daemon all the time, one request after the other, and keeps them and every other answer."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.ids = []
        self.errors = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            try:
                response = self.daemon.get("/v1/snowflake?count=20")
            except OSError as error:
                self.errors.append((time.time(), 0, str(error)))
                time.sleep(0.01)
                continue
            if response.status == 200:
                self.ids += [int(text) for text in json.loads(response.body)["ids"]]
            else:
                self.errors.append((time.time(), response.status, json.loads(response.body)["code"]))
            time.sleep(0.005)
        self.daemon.disconnect()

    def stop(self):
        self._stop.set()
        self._thread.join()
        return self.ids


class RegistryTest(LeafTest):
    """Each test has a cluster name, and so a tree, of its own."""

    @classmethod
    def setUpClass(cls):
        cls.zookeeper = cls.make_servers()

    @classmethod
    def tearDownClass(cls):
        cls.zookeeper.close()

    @classmethod
    def make_servers(cls):
        return ZooKeeper()

    def setUp(self):
        super().setUp()
        self.cluster = "com.example." + self._testMethodName.replace("_", "-")
        self.boxes = []
        self.addCleanup(lambda: [box.close() for box in self.boxes])

    def more_box(self):
        box = Sandbox()
        self.boxes.append(box)
        return box

    def settings(self, address, *more, connect=None):
        """`address`: a number that makes one."""
        values = (
            "snowflake.registry=zookeeper",
            "snowflake.cluster=" + self.cluster,
            "snowflake.address=127.1.%d.%d:8080" % divmod(address, 256),
            "zookeeper.connect=" + (connect or self.zookeeper.connect),
            "segment.enabled=false",
            # Nothing goes back here but what says so: a new number need not be watched.
            "snowflake.claim_watch=0s",
            *more,
        )
        return [part for value in values for part in ("--set", value)]

    def serve(self, address, *more, box=None, connect=None, **options):
        return (box or self.box).serve(*self.settings(address, *more, connect=connect), **options)

    def take(self, daemon, count=1):
        response = daemon.get("/v1/snowflake?count=%d" % count)
        self.assertEqual(response.status, 200, response.body)
        return [int(text) for text in json.loads(response.body)["ids"]]

    def snowflake(self, daemon):
        return daemon.status()["snowflake"]

    def forever(self):
        with self.zookeeper.client() as client:
            path = "/snowflake/%s/forever" % self.cluster
            return {name: client.get(path + "/" + name)[0] for name in client.children(path)}

    def check_javas_rules(self):
        """What Java Leaf can live with: leaf-compat 9.2, M1, M2 and M7."""
        for name, data in self.forever().items():
            self.assertRegex(name, LEAF_NODE)
            value = json.loads(data)
            self.assertEqual(list(value), ["ip", "port", "timestamp"], data)
            self.assertIsInstance(value["port"], str)
            self.assertEqual("%s:%s" % (value["ip"], value["port"]), name.rsplit("-", 1)[0])
            self.assertLessEqual(value["timestamp"], time.time() * 1000 + 1)


class Claims(RegistryTest):
    def test_many_nodes_at_once_on_a_virgin_namespace(self):
        nodes = scaled(64, 12)
        boxes = [self.more_box() for _ in range(nodes)]
        for round_number in range(int(os.environ.get("LEAFCTL_ZK_ROUNDS") or scaled(3, 1))):
            cluster = "%s-%d" % (self.cluster, round_number)

            def start(index, cluster=cluster, round_number=round_number):
                settings = self.settings(index)
                state = boxes[index].path("state-%d" % round_number)
                out = boxes[index].ok(
                    "next", "--mode", "snowflake", "--direct", "--timeout", "60s", *settings,
                    "--set", "snowflake.cluster=" + cluster, "--state-dir", state, timeout=240,
                )  # fmt: skip
                return index, worker_of(int(out))

            with concurrent.futures.ThreadPoolExecutor(nodes) as pool:
                found = dict(pool.map(start, range(nodes)))
            self.assertEqual(len(set(found.values())), nodes, found)
            with self.zookeeper.client() as client:
                names = client.children("/snowflake/%s/forever" % cluster)
            self.assertEqual(len(names), nodes)
            suffixes = {name.rsplit("-", 1)[0]: int(name.rsplit("-", 1)[1]) for name in names}
            for index, worker in found.items():
                self.assertEqual(suffixes["127.1.%d.%d:8080" % divmod(index, 256)], worker)

    def test_a_number_is_kept_over_restarts(self):
        daemon = self.serve(1)
        first = self.take(daemon, 10)
        daemon.terminate()
        daemon = self.serve(1)
        second = self.take(daemon, 10)
        daemon.kill()
        daemon = self.serve(1)
        third = self.take(daemon, 10)
        self.assertEqual({worker_of(value) for value in first + second + third}, {0})
        self.check_distinct(first + second + third)
        self.assertEqual(first + second + third, sorted(first + second + third))
        self.check_javas_rules()
        self.assertEqual(len(self.forever()), 1)

    def test_two_hosts_with_one_address(self):
        daemon = self.serve(1)
        owner = self.snowflake(daemon)["node"]
        other = self.more_box()
        result = other.run(["serve", "--listen", "127.0.0.1:0", *self.settings(1)])
        self.check(result, 11, owner, "127.1.0.1:8080", "worker release 0")
        self.take(daemon)
        # While its node is live the number cannot be taken away.
        release = ["worker", "release", "0", "--confirm", self.cluster, *self.settings(1)]
        self.check(other.run(release), 11)
        ids = self.take(daemon, 100)
        daemon.terminate()
        other.ok(*release)
        second = self.serve(1, box=other)
        ids += self.take(second, 100)
        self.check_distinct(ids)
        self.assertEqual({worker_of(value) for value in ids}, {0})
        # The first node has lost the number.
        self.check(self.box.run(["serve", "--listen", "127.0.0.1:0", *self.settings(1)]), 11, "worker release")

    def test_a_released_number_stops_a_daemon_that_still_runs(self):
        daemon = self.serve(1)
        self.take(daemon)
        with self.zookeeper.client() as client:
            client.delete("/snowflake/%s/leafctl/owners/0" % self.cluster)
        poll(lambda: daemon.get("/health/ready").status == 503, "the loss is noticed")
        self.check_v1_error(daemon.get("/v1/snowflake"), 503, "not_owner")
        self.assertIn("owner", json.loads(daemon.get("/health/ready").body)["reasons"][0]["message"])

    def test_a_number_that_java_used_for_a_while_is_claimed_again(self):
        daemon = self.serve(1)
        ids = self.take(daemon)
        path = "/snowflake/%s/forever/" % self.cluster
        with self.zookeeper.client() as client:
            path += client.children(path[:-1])[0]

            def report():
                data = json.dumps({"ip": "127.1.0.1", "port": "8080", "timestamp": int(time.time() * 1000)})
                client.set(path, data.encode())

            report()
            poll(lambda: daemon.get("/health/ready").status == 503, "the loss is noticed")
            # As long as it reports, the number stays its own, and a check says so.
            end = time.time() + 8
            while time.time() < end:
                report()
                self.check_v1_error(daemon.get("/v1/snowflake"), 503, "not_owner")
                time.sleep(0.5)
            checked = self.box.run(["worker", "check", *self.settings(1)])
            self.check(checked, 10, "findings about")
            self.assertIn("own-number-lost: 0", checked.out)
            report()
            last = int(time.time() * 1000)
        poll(lambda: daemon.get("/health/ready").status == 200, "it is claimed again")
        again = self.take(daemon, 10)
        self.assertGreater(min(time_ms(value) for value in again), last)
        self.assertEqual({worker_of(value) for value in again}, {worker_of(ids[0])})
        self.check_distinct(ids + again)
        self.assertNotIn("own-number-lost", self.box.run(["worker", "check", *self.settings(1)]).out)
        self.assertEqual(daemon.terminate(), 0)

    def test_a_running_java_node_is_not_taken_over(self):
        stop = threading.Event()
        path = "/snowflake/%s/forever/127.1.0.1:8080-" % self.cluster

        def data():
            return json.dumps({"ip": "127.1.0.1", "port": "8080", "timestamp": int(time.time() * 1000)}).encode()

        with self.zookeeper.client() as client:
            node = client.create(path, data(), flags=2, parents=True)

        def report():
            with self.zookeeper.client() as client:
                while not stop.wait(0.5):
                    client.set(node, data())

        java = threading.Thread(target=report)
        java.start()
        try:
            result = self.box.run(["serve", "--listen", "127.0.0.1:0", *self.settings(1)])
            self.check(result, 11, "Java Leaf node is alive")
        finally:
            stop.set()
            java.join()
        # Once it is stopped its number goes on, above what it may have issued.
        last = max(json.loads(value)["timestamp"] for value in self.forever().values())
        daemon = self.serve(1, ready=False)
        daemon.wait_ready(120)
        value = self.take(daemon)[0]
        self.assertEqual(worker_of(value), 0)
        self.assertGreater(time_ms(value), last)
        self.assertEqual(len(self.forever()), 1)
        poll(lambda: self.snowflake(daemon)["registered"], "it reports")
        self.check_javas_rules()

    def test_what_javas_local_file_says_is_a_ceiling(self):
        """The fork's Java node runs on without ZooKeeper, and tells its time to this file alone."""
        folder = os.path.join("/tmp", self.cluster, "leafconf", "8080")
        self.addCleanup(shutil.rmtree, os.path.join("/tmp", self.cluster), ignore_errors=True)
        os.makedirs(folder)

        def write(ahead_s):
            reached = int((time.time() + ahead_s) * 1000)
            with open(os.path.join(folder, "workerID.properties"), "w", encoding="utf-8") as file:
                file.write("workerID=0\nmaxTimestamp=%d" % reached)
            return reached

        write(3600)
        # A daemon on a slow machine would stay up, and tell the reason there.
        result = self.box.run(["next", "--mode", "snowflake", "--direct", "--timeout", "60s", *self.settings(1)])
        self.check(result, 11, "behind")
        reached = write(5)
        daemon = self.serve(1, "snowflake.start_wait=1h")
        value = self.take(daemon)[0]
        self.assertEqual(worker_of(value), 0)
        self.assertGreaterEqual((value >> 22) + 1288834974657, reached + 4000)
        self.assertIn(folder, daemon.log())
        self.assertEqual(daemon.terminate(), 0)
        # Neither written nor taken away, and of no consequence for another number.
        write(3600)
        other = self.more_box()
        self.assertEqual(worker_of(self.take(self.serve(2, box=other))[0]), 1)

    def test_the_last_number_and_the_next(self):
        path = "/snowflake/%s/forever" % self.cluster
        with self.zookeeper.client() as client:
            client.create(path, parents=True)
            # What years of addresses that came and went leave behind.
            for _ in range(1023):
                client.delete(client.create(path + "/127.0.9.9:1-", b"{}", flags=2))
        daemon = self.serve(1)
        self.assertEqual(worker_of(self.take(daemon)[0]), 1023)
        self.check(
            self.more_box().run(["next", "--mode", "snowflake", "--direct", *self.settings(2)]), 8, "1024", "recycle"
        )
        self.assertEqual(len(self.forever()), 1, "a number was used up by a node that cannot have it")

    def test_properties_belong_to_the_cluster(self):
        self.serve(1).terminate()
        other = self.more_box()
        refused = self.settings(2, "snowflake.layout=42-9-12")
        self.check(other.run(["serve", "--listen", "127.0.0.1:0", *refused]), 11, "41-10-12", "42-9-12")
        refused = self.settings(2, "snowflake.recycle=true")
        self.check(other.run(["serve", "--listen", "127.0.0.1:0", *refused]), 11, "recycl")

    def test_bad_input_is_named(self):
        def refused(rc, *parts, **more):
            settings = self.settings(1, **more)
            self.check(self.box.run(["serve", "--listen", "127.0.0.1:0", *settings]), rc, *parts)

        refused(6, "127.0.0.1:nonsense", connect="127.0.0.1:nonsense")
        settings = self.settings(1)[:-2] + ["--set", "snowflake.address=", "--set", "segment.enabled=false"]
        self.check(self.box.run(["serve", "--listen", "127.0.0.1:0", *settings]), 6, "snowflake.address")
        auth = self.box.write("auth", "user:password", mode=0o644)
        settings = self.settings(1, "zookeeper.auth_file=" + auth)
        self.check(self.box.run(["serve", "--listen", "127.0.0.1:0", *settings]), 6, auth)


class Credentials(RegistryTest):
    """zookeeper.auth_file: leafctl's own nodes are for its holders alone, Leaf's for every client."""

    AUTH = "leaf:secret"
    PROTECTED = ((31, "digest", "leaf:%s" % digest_of("leaf:secret")), (1, "world", "anyone"))

    def setUp(self):
        super().setUp()
        self.auth = self.box.write("auth", self.AUTH + "\n")
        self.with_auth = "zookeeper.auth_file=" + self.auth
        self.base = "/snowflake/" + self.cluster
        self.own = self.base + "/leafctl"
        self.witness = ("segment.enabled=true", "segment.fence=cluster")

    def rules(self):
        """Path -> rules of everything in the cluster's tree."""
        with self.zookeeper.client(auth=self.AUTH) as client:
            return {path: tuple(client.get_acl(path)) for path in client.tree(self.base)}

    def check_rules(self):
        rules = self.rules()
        for path, acl in rules.items():
            expected = self.PROTECTED if (path + "/").startswith(self.own + "/") else OPEN_ACL
            self.assertEqual(acl, expected, path)
        return rules

    def worker(self, *args, settings=None, box=None):
        return (box or self.box).run(["worker", *args, *(settings or self.settings(1, self.with_auth))])

    def findings(self, settings=None):
        """About access: loopback addresses are always one."""
        result = self.worker("check", "--json", settings=settings)
        self.assertEqual(result.rc, 10, result)
        return [f for f in json.loads(result.out)["findings"] if f["code"] == "open-to-everyone"]

    def ceiling(self):
        with self.zookeeper.client() as client:
            return json.loads(client.get(self.own + "/ceilings/0")[0])["ceiling_ms"]

    def wait_renewed(self):
        before = self.ceiling()
        poll(lambda: self.ceiling() > before, "the ceiling rises")

    def check_one_session(self):
        """Worker numbers and the witness: one daemon is one session."""
        with self.zookeeper.client() as client:
            paths = [self.own + "/temporary/127.1.0.1:8080"]
            paths += ["%s/daemons/%s" % (self.own, name) for name in client.children(self.own + "/daemons")]
            owners = [client.exists(path).ephemeral_owner for path in paths]
        self.assertEqual(len(owners), 2, paths)
        self.assertEqual(len(set(owners)), 1, dict(zip(paths, owners)))

    def test_only_its_holders_change_leafctls_nodes_and_java_still_writes_its_own(self):
        settings = (self.with_auth, *self.witness)
        self.box.ok("tag", "add", "order", "--step", "100", *self.settings(1, *settings))
        daemon = self.serve(1, *settings)
        ids, numbers = self.take(daemon), daemon.ids("order", 5)
        self.check_one_session()
        rules = self.check_rules()
        for name in ("", "/cluster", "/owners/0", "/ceilings/0", "/addresses/127.1.0.1:8080", "/witness/order",
                     "/temporary/127.1.0.1:8080", "/daemons"):  # fmt: skip
            self.assertIn(self.own + name, rules)
        own = [path for path in rules if (path + "/").startswith(self.own + "/")]
        for stranger in (self.zookeeper.client(), self.zookeeper.client(auth="leaf:wrong")):
            with stranger as java:
                before = java.tree(self.own)
                for path in own:
                    self.assertRaises(NoAuth, java.set, path, b"{}")
                    self.assertRaises(NoAuth, java.create, path + "/x")
                    self.assertRaises(NoAuth, java.set_acl, path, OPEN_ACL)
                    if path != self.own:
                        self.assertRaises(NoAuth, java.delete, path)
                self.assertEqual(set(before), set(own), "a node that not every client can read")
                # As Java does.
                node = java.create(self.base + "/forever/127.0.9.9:1-", b"{}", flags=2)
                java.set(node, b'{"ip":"127.0.9.9","port":"1","timestamp":1}')
                java.delete(node)
                ours = self.base + "/forever/127.1.0.1:8080-0000000000"
                self.assertTrue(java.get(ours)[0])
        self.wait_renewed()
        ids += self.take(daemon)
        daemon.terminate()
        daemon = self.serve(1, *settings)
        self.assertEqual(self.snowflake(daemon)["worker"], 0)
        self.wait_renewed()
        ids += self.take(daemon)
        numbers += daemon.ids("order", 5)
        daemon.kill()
        daemon = self.serve(1, *settings)
        ids += self.take(daemon)
        numbers += daemon.ids("order", 5)
        daemon.terminate()
        self.check_distinct(ids)
        self.check_distinct(numbers)
        self.check_rules()
        released = self.worker("release", "0", "--confirm", self.cluster)
        self.assertEqual(released.rc, 0, released)
        self.assertNotIn(self.own + "/owners/0", self.rules())
        daemon = self.serve(1, *settings, box=self.more_box())
        self.assertEqual(self.snowflake(daemon)["worker"], 0)
        daemon.terminate()
        self.check_rules()
        self.check_javas_rules()

    def test_leases_are_protected_too(self):
        daemon = self.serve(1, self.with_auth, "snowflake.recycle=true", "snowflake.lease_time=3s")
        ids = self.take(daemon)
        lease = "%s/leases/%d" % (self.own, self.snowflake(daemon)["worker"])
        self.assertIn(lease, self.check_rules())
        with self.zookeeper.client() as stranger:
            version = stranger.get(lease)[1].version
            poll(lambda: stranger.get(lease)[1].version > version, "it is renewed")
            self.assertRaises(NoAuth, stranger.set, lease, b"{}")
        daemon.terminate()
        daemon = self.serve(2, self.with_auth, "snowflake.recycle=true", "snowflake.lease_time=3s", box=self.more_box())
        ids += self.take(daemon)
        self.check_distinct(ids)
        self.check_rules()

    def test_a_node_without_them_is_told_which_path_it_may_not_write(self):
        settings = (self.with_auth, *self.witness)
        self.box.ok("tag", "add", "order", "--step", "100", *self.settings(1, *settings))
        self.box.ok("next", "order", "--direct", *self.settings(1, *settings))
        self.box.ok("next", "--mode", "snowflake", "--direct", *self.settings(1, *settings))
        before = self.forever()
        other = self.more_box()
        self.check(
            other.run(["next", "--mode", "snowflake", "--direct", *self.settings(2)]), 4,
            self.own + "/addresses/127.1.0.2:8080", "zookeeper.auth_file",
        )  # fmt: skip
        self.assertEqual(self.forever(), before, "a number was used up")
        self.check(self.worker("release", "0", "--confirm", self.cluster, settings=self.settings(1)), 4, self.own)
        segment = self.box.run(["next", "order", "--direct", *self.settings(1, *self.witness)])
        self.check(segment, 4, self.own + "/nodes/")
        # All may look.
        self.assertEqual(self.findings(self.settings(1)), [])
        self.box.ok("next", "order", "--direct", *self.settings(1, *settings))

    def test_nodes_from_before_are_reported_once_and_closed_by_a_repair(self):
        self.box.ok("tag", "add", "order", "--step", "100", *self.settings(1, *self.witness))
        daemon = self.serve(1, *self.witness)
        ids, numbers = self.take(daemon), daemon.ids("order", 5)
        daemon.terminate()
        self.assertEqual(set(self.rules().values()), {OPEN_ACL}, "without credentials nothing changes")
        self.assertEqual(self.findings(self.settings(1)), [])
        # With credentials they go on; what is new is protected, and the rest is one finding.
        daemon = self.serve(1, self.with_auth, *self.witness)
        self.box.ok("tag", "add", "late", "--step", "100", *self.settings(1, self.with_auth, *self.witness))
        ids += self.take(daemon)
        numbers += daemon.ids("order", 5)
        daemon.ids("late", 1)
        self.wait_renewed()
        rules = self.rules()
        still_open = [path for path in rules if path.startswith(self.own) and rules[path] == OPEN_ACL]
        self.assertEqual(rules[self.own + "/witness/late"], self.PROTECTED)
        (finding,) = self.findings()
        self.assertEqual((finding["code"], finding["subject"]), ("open-to-everyone", self.own))
        self.assertTrue(finding["repairable"])
        named = re.split(": |, ", finding["cause"])
        for path in still_open:
            self.assertIn(path[len(self.base) + 1 :], named)
        self.assertNotIn("leafctl/witness/late", named)
        result = self.box.run(["doctor", *self.settings(1, self.with_auth)])
        self.assertRegex(result.out, "warning +open-to-everyone: %s: .*leafctl/witness/order" % re.escape(self.own))
        plan = self.worker("repair", "--dry-run")
        self.assertEqual(plan.rc, 0, plan)
        self.assertIn("leafctl/witness/order", plan.out)
        self.assertEqual(self.rules(), rules)
        with self.zookeeper.client() as client:
            before = client.tree(self.own)
        done = self.worker("repair", "--yes", "--json")
        self.assertEqual(done.rc, 0, done)
        (step,) = json.loads(done.out)["steps"]
        self.assertEqual(step["outcome"], "done")
        self.assertEqual({change["name"] for change in step["changes"]}, set(still_open))
        self.assertEqual({(change["change"], change["access"]) for change in step["changes"]},
                         {("protect", "world:anyone:cdrwa")})  # fmt: skip
        with self.zookeeper.client() as client:
            self.assertEqual(set(client.tree(self.own)), set(before))
        self.check_rules()
        self.assertEqual(self.findings(), [])
        self.assertIn("nothing to repair\n", self.worker("repair", "--yes").out)
        # The daemon that ran meanwhile has noticed nothing.
        self.wait_renewed()
        ids += self.take(daemon)
        numbers += daemon.ids("order", 200)
        daemon.terminate()
        daemon = self.serve(1, self.with_auth, *self.witness)
        self.assertEqual(self.snowflake(daemon)["worker"], 0)
        self.check_distinct(ids + self.take(daemon))
        self.check_distinct(numbers + daemon.ids("order", 5))

    def test_nothing_is_closed_while_a_daemon_without_them_runs(self):
        one = self.serve(1)
        box = self.more_box()
        two = self.serve(2, self.with_auth, box=box)
        (finding,) = self.findings()
        self.assertFalse(finding["repairable"])
        self.assertIn("leafctl/temporary/127.1.0.1:8080", finding["left"])
        self.assertNotIn("127.1.0.2", finding["left"])
        before = self.rules()
        repaired = self.worker("repair", "--yes")
        self.assertEqual(repaired.rc, 0, repaired)
        self.assertIn("left alone: open-to-everyone", repaired.out)
        self.assertEqual(self.rules(), before)
        one.terminate()
        one = self.serve(1, self.with_auth)
        repaired = self.worker("repair", "--yes")
        self.assertEqual(repaired.rc, 0, repaired)
        self.check_rules()
        self.wait_renewed()
        self.check_distinct(self.take(one) + self.take(two))

    def test_the_witness_of_a_cluster_without_registry(self):
        """Nothing but the doctor looks at it there."""
        settings = [
            part
            for value in ("snowflake.enabled=false", "segment.fence=cluster", "snowflake.cluster=" + self.cluster,
                          "zookeeper.connect=" + self.zookeeper.connect)  # fmt: skip
            for part in ("--set", value)
        ]
        self.box.ok("tag", "add", "order", "--step", "100", *settings)
        ids = self.box.next("order", "--direct", *settings)
        settings += ["--set", self.with_auth]
        doctor = self.box.run(["doctor", *settings])
        self.assertRegex(doctor.out, "warning +open-to-everyone: .*leafctl/witness/order")
        remedy = ["--set", "snowflake.registry=zookeeper", "--set", "snowflake.cluster=" + self.cluster]
        self.assertIn("leafctl worker repair " + " ".join(remedy), doctor.out)
        repaired = self.box.run(["worker", "repair", "--yes", *settings, *remedy])
        self.assertEqual(repaired.rc, 0, repaired)
        self.check_rules()
        self.assertNotIn("open-to-everyone", self.box.run(["doctor", *settings]).out)
        self.check_distinct(ids + self.box.next("order", "--direct", *settings))


class Tunnel(RegistryTest):
    """As leafctl(7) has it under "ZooKeeper over TLS": its file for stunnel, with the addresses of the test."""

    def stunnel(self, name, text, ports):
        """Runs it with a file; waits until it listens."""
        tool = shutil.which("stunnel", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not tool:
            raise AssertionError("there is no stunnel: apt-get install stunnel4")
        path = self.box.write(name + ".conf", "foreground = yes\npid =\nsyslog = no\n" + text)
        with open(self.box.path(name + ".log"), "wb") as log:
            process = subprocess.Popen([tool, path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(lambda: (process.kill(), process.wait()))

        def is_up():
            self.assertIsNone(process.poll(), name)
            for port in ports:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) != 0:
                        return False
            return True

        poll(is_up, name + " listens")
        return process

    def serve_tls(self, authority, ports):
        """In front of ZooKeeper, as its secureClientPort is."""
        text = ""
        for number, port in enumerate(ports, 1):
            cert, key = authority.issue("zk%d" % number, "DNS:zk%d.example.org" % number)
            text += "[zk%d]\naccept = 127.0.0.1:%d\nconnect = %s\ncert = %s\nkey = %s\n" % (
                number, port, self.zookeeper.connect, cert, key,
            )  # fmt: skip
        return self.stunnel("server-" + os.path.basename(authority.folder), text, ports)

    def example(self, authority, secure, local):
        with open(os.path.join(ROOT, "man", "leafctl.7"), encoding="utf-8") as file:
            text = re.search(r"\n(# /etc/stunnel/zookeeper\.conf\n.*?)\n\.Ed\n", file.read(), re.DOTALL).group(1)
        for old, new in (
            ("/etc/leafctl/zookeeper-ca.pem", authority.cert),
            *(("127.0.0.1:1218%d" % n, "127.0.0.1:%d" % local[n - 1]) for n in (1, 2)),
            *(("connect = zk%d.example.org:2281" % n, "connect = 127.0.0.1:%d" % secure[n - 1]) for n in (1, 2)),
        ):
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        return text + "\n"

    def test_the_example_of_the_manual(self):
        authority = Authority(self.box.path("good"))
        secure, local = [free_port(), free_port()], [free_port(), free_port()]
        tunnel = self.serve_tls(authority, secure)
        self.stunnel("client", self.example(authority, secure, local), local)
        connect = ",".join("127.0.0.1:%d" % port for port in local)
        daemon = self.serve(1, connect=connect)
        self.assertEqual(len(set(self.take(daemon, 10))), 10)
        self.assertEqual(len(self.forever()), 1)

        # A server with another authority's certificates is given nothing.
        daemon.terminate()
        tunnel.kill()
        tunnel.wait()
        self.serve_tls(Authority(self.box.path("stranger"), "stranger"), secure)
        names = self.settings(1, connect=connect)
        refused = self.box.run(["worker", "list", *names, "--timeout", "3s"])
        self.assertNotEqual(refused.rc, 0, refused)
        self.assertEqual(refused.out, "")


class Outage(RegistryTest):
    """The server goes away and comes back."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.zookeeper.ensure_up)

    def test_down_at_boot_with_state(self):
        daemon = self.serve(1)
        ids = self.take(daemon, 50)
        daemon.terminate()
        self.zookeeper.kill()
        daemon = self.serve(1)
        ids += self.take(daemon, 50)
        status = self.snowflake(daemon)
        self.assertEqual((status["worker"], status["registered"]), (0, False))
        self.assertIn("registry_problem", status)
        self.zookeeper.ensure_up()
        poll(lambda: self.snowflake(daemon)["registered"], "it registers by itself")
        poll(lambda: "registry_problem" not in self.snowflake(daemon), "and says so")
        ids += self.take(daemon, 50)
        self.check_distinct(ids)
        self.check_javas_rules()

    def test_down_at_boot_without_state(self):
        self.zookeeper.kill()
        self.check(self.box.run(["next", "--mode", "snowflake", "--direct", *self.settings(1)]), 8)
        daemon = self.serve(1, ready=False)
        ready = daemon.get("/health/ready")
        self.assertEqual(ready.status, 503)
        self.check_v1_error(daemon.get("/v1/snowflake"), 503, "unavailable")
        self.assertEqual(daemon.get("/v1/clock").status, 200)
        self.zookeeper.ensure_up()
        daemon.wait_ready(120)
        self.assertEqual(worker_of(self.take(daemon)[0]), 0)

    def test_servers_that_went_back_are_connected_to_again(self):
        """A server refuses a client that has seen more than the server has."""
        daemon = self.serve(1, "zookeeper.session_timeout=1s")
        ids = self.take(daemon, 10)
        # The owner is in the older data: without it, the daemon would have lost its number.
        self.zookeeper.stop()
        older = self.zookeeper.copy_data(self.box.path("older"))
        self.zookeeper.start()
        with self.zookeeper.client() as client:
            for number in range(100):
                client.create("/%s-%d" % (self.cluster, number), b"")
        reported = self.forever()
        poll(lambda: self.forever() != reported, "the daemon has seen a reply since")
        self.zookeeper.kill()
        self.zookeeper.put_back_data(older)
        connected = daemon.log().count("ZooKeeper: connected")
        self.zookeeper.start()
        poll(lambda: daemon.log().count("ZooKeeper: connected") > connected, "it is connected again")
        poll(lambda: "registry_problem" not in self.snowflake(daemon), "and its ceilings are kept there again")
        self.check_distinct(ids + self.take(daemon, 10))

    def test_the_number_has_become_another_nodes(self):
        daemon = self.serve(1)
        self.take(daemon)
        daemon.terminate()
        self.zookeeper.kill()
        daemon = self.serve(1)
        self.take(daemon)
        # Seen from this node the server stays away; the others see an operator release the number.
        self.zookeeper.ensure_up()
        path = "/snowflake/%s/leafctl/" % self.cluster
        with self.zookeeper.client() as client:
            data = json.loads(client.get(path + "owners/0")[0])
            data["uuid"] = "another-node"
            client.set(path + "owners/0", json.dumps(data).encode())
            poll(lambda: daemon.get("/health/ready").status == 503, "it stops")
        self.check_v1_error(daemon.get("/v1/snowflake"), 503, "not_owner")

    def test_a_server_that_is_silent_hangs_no_request(self):
        proxy = Proxy(self.zookeeper.port)
        self.addCleanup(proxy.close)
        daemon = self.serve(1, connect="127.0.0.1:%d" % proxy.port)
        taker = Taker(daemon)
        self.addCleanup(taker.stop)
        proxy.blackhole()
        poll(lambda: "registry_problem" in self.snowflake(daemon), "the outage is noticed")
        # Well over a window, in which a ceiling would run out.
        before = len(taker.ids)
        until = time.time() * 1000 + 5000
        poll(lambda: taker.ids and time_ms(taker.ids[-1]) > until, "IDs go on")
        self.assertGreater(len(taker.ids), before)
        proxy.thaw()
        poll(lambda: "registry_problem" not in self.snowflake(daemon), "it recovers", 120)
        self.assertEqual(taker.stop() and taker.errors, [])
        self.check_distinct(taker.ids)
        self.assertEqual(daemon.terminate(), 0)


class Leases(RegistryTest):
    RECYCLE = ("snowflake.recycle=true", "snowflake.lease_time=2s")

    def test_from_the_top_of_the_range_and_back(self):
        settings = (*self.RECYCLE, "snowflake.worker_range=20-21")
        first = self.serve(1, *settings)
        self.assertEqual(worker_of(self.take(first)[0]), 21)
        second = self.serve(2, *settings, box=self.more_box())
        ids = self.take(second, 10)
        self.assertEqual(worker_of(ids[0]), 20)
        # The third one waits until one is free.
        third = self.serve(3, *settings, box=self.more_box(), ready=False)
        poll(lambda: self.snowflake(third)["state"] == "claiming", "it waits")
        self.assertEqual(third.get("/health/ready").status, 503)
        self.assertEqual(second.terminate(), 0)
        third.wait_ready(120)
        more = self.take(third, 10)
        self.assertEqual(worker_of(more[0]), 20)
        self.check_distinct(ids + more)

    def test_a_holder_that_sleeps_past_its_lease(self):
        settings = (*self.RECYCLE, "snowflake.worker_range=30-30")
        first = self.serve(1, *settings)
        ids = self.take(first, 1000)
        first.signal(signal.SIGSTOP)
        second = self.serve(2, *settings, box=self.more_box(), ready=False)
        second.wait_ready(180)
        taker = Taker(second)
        self.addCleanup(taker.stop)
        poll(lambda: len(taker.ids) > 200, "the second one issues")
        first.signal(signal.SIGCONT)
        # It is told, and has nothing to issue with until then: its ceiling is in the past.
        error = self.check_v1_error(first.get("/v1/snowflake"), 503)
        self.assertIn(error["code"], ("not_owner", "unavailable", "exhausted", "outcome_unknown"))
        poll(lambda: self.snowflake(first)["state"] == "claiming", "it has lost its lease")
        self.check_distinct(ids + taker.stop())
        self.assertEqual({worker_of(value) for value in ids + taker.ids}, {30})

    def test_outage_stops_a_lease_at_its_ceiling(self):
        proxy = Proxy(self.zookeeper.port)
        self.addCleanup(proxy.close)
        settings = (*self.RECYCLE, "snowflake.worker_range=40-40")
        first = self.serve(1, *settings, connect="127.0.0.1:%d" % proxy.port)
        taker = Taker(first)
        self.addCleanup(taker.stop)
        poll(lambda: len(taker.ids) > 100, "it issues")
        proxy.blackhole()
        poll(lambda: taker.errors, "it stops")
        second = self.serve(2, *settings, box=self.more_box(), ready=False)
        second.wait_ready(180)
        other = Taker(second)
        self.addCleanup(other.stop)
        poll(lambda: len(other.ids) > 100, "the other one goes on")
        self.assertLess(max(taker.ids), min(other.ids), "above the ceiling of the first")
        proxy.thaw()
        poll(lambda: self.snowflake(first)["state"] == "claiming", "the first one is told", 120)
        self.check_distinct(taker.stop() + other.stop())


class UnderLoad(RegistryTest):
    """An ensemble of three: its leader killed, sessions expired, all of it down."""

    @classmethod
    def make_servers(cls):
        return Ensemble(3)

    def test_fixed_numbers_go_on_without_an_error(self):
        down_s = float(os.environ.get("LEAFCTL_ZK_OUTAGE_S") or "5")
        # Requests wait long, since a slow disk may write a ceiling late.
        patient = "server.request_timeout=60s"
        daemons = [self.serve(1, patient), self.serve(2, patient, box=self.more_box())]
        takers = [Taker(daemon) for daemon in daemons]
        for taker in takers:
            self.addCleanup(taker.stop)
        self.zookeeper.leader().kill()
        self.zookeeper.leader()
        poll(lambda: all("registry_problem" not in self.snowflake(each) for each in daemons), "a new leader", 120)
        self.zookeeper.start()
        # Another client ends the daemons' sessions.
        path = "/snowflake/%s/leafctl/temporary" % self.cluster
        with self.zookeeper.client() as client:
            old = {name: client.exists(path + "/" + name).ephemeral_owner for name in client.children(path)}
            self.assertEqual(len(old), 2)
            for session in old.values():
                self.zookeeper.expire(session)

            def renewed():
                now = {}
                for name in client.children(path):
                    stat = client.exists(path + "/" + name)
                    if stat is not None:
                        now[name] = stat.ephemeral_owner
                return set(now) == set(old) and all(now[name] != old[name] for name in old)

            poll(renewed, "new sessions announce themselves", 120)
        self.zookeeper.wait_in_step()
        self.zookeeper.kill()
        poll(lambda: all("registry_problem" in self.snowflake(each) for each in daemons), "the outage is seen", 120)
        time.sleep(down_s)
        # Beyond what a last report before the outage could cover.
        then = [taker.ids[-1] >> 22 for taker in takers]
        poll(lambda: all(taker.ids[-1] >> 22 > time_ms + 4000 for taker, time_ms in zip(takers, then)), "IDs without a registry")
        self.zookeeper.start()
        poll(lambda: all("registry_problem" not in self.snowflake(each) for each in daemons), "all is well", 120)
        for taker in takers:
            taker.stop()
            self.assertEqual(taker.errors, [])
            self.assertEqual(taker.ids, sorted(taker.ids))
        self.check_distinct(takers[0].ids + takers[1].ids)
        self.check_javas_rules()


class FakePeer:
    """Answers /v1/clock with a clock that is `ahead_s` ahead, and says so in ZooKeeper. `tls`: a context of ssl."""

    def __init__(self, test, address, ahead_s, tls=None):
        peer = self
        self.ahead_s = ahead_s

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps({"time_ms": int((time.time() + peer.ahead_s) * 1000)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.client = test.zookeeper.client()
        url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.server.server_port)
        record = {"url": url, "worker": 900, "uuid": "peer-" + address}
        path = "/snowflake/%s/leafctl/temporary/%s" % (test.cluster, address)
        self.client.create(path, json.dumps(record).encode(), flags=EPHEMERAL, parents=True)
        test.addCleanup(self.close)

    def close(self):
        self.client.close()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class PeerClocks(RegistryTest):
    def test_a_node_whose_clock_is_off_does_not_start(self):
        peer = FakePeer(self, "127.0.1.1:80", 60)
        # On a busy machine a peer may not answer in time, and then the daemon starts.
        while True:
            daemon = self.box.serve(*self.settings(1), listening=False)
            if daemon.wait_log("behind those of its peers|was not compared").group(0) != "was not compared":
                break
            daemon.terminate()
        self.assertEqual(daemon.wait(), 11)
        self.assertIn("127.0.1.1:80", daemon.log())
        # The median is what counts: one wild clock among three is none.
        FakePeer(self, "127.0.1.2:80", 0)
        FakePeer(self, "127.0.1.3:80", 0)
        daemon = self.serve(1)
        self.take(daemon)
        peer.ahead_s = 0

    def test_a_peer_that_speaks_tls_and_asks_for_certificates(self):
        authority = Authority(self.box.path("pki"))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.cert)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*authority.issue("peer"))
        FakePeer(self, "127.0.1.1:80", 60, context)
        cert, key = authority.issue("node")
        trust = ["client.ca=" + authority.cert, "client.cert=" + cert, "client.key=" + key]
        with_trust = [word for setting in trust for word in ("--set", setting)]
        while True:
            daemon = self.box.serve(*self.settings(1), *with_trust, listening=False)
            if daemon.wait_log("behind those of its peers|was not compared").group(0) != "was not compared":
                break
            daemon.terminate()
        self.assertEqual(daemon.wait(), 11)
        # One that does not believe the peer has nothing to compare.
        daemon = self.box.serve(*self.settings(1), "--set", "client.ca=" + cert)
        daemon.wait_log("was not compared")

    def test_a_running_node_is_outvoted_by_two_and_goes_on_after_them(self):
        first = FakePeer(self, "127.0.1.1:80", 0)
        second = FakePeer(self, "127.0.1.2:80", 0)
        daemon = self.serve(1)
        first.ahead_s = -60
        second.ahead_s = -61
        poll(lambda: daemon.get("/health/ready").status == 503, "it stops", 120)
        error = self.check_v1_error(daemon.get("/v1/snowflake"), 503, "clock")
        self.assertIn("ahead of", error["message"])
        first.ahead_s = 0
        daemon.wait_ready(120)
        self.take(daemon)


if __name__ == "__main__":
    main()
