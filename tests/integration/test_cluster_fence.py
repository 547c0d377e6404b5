#!/usr/bin/env python3
"""The witness of a cluster in a real ZooKeeper, over real MariaDB servers that go back, part ways and come back.

LEAFCTL_GRANTS_S       seconds of each run at the highest rate of grants (default 2)
LEAFCTL_GRANTS_ROUNDS  such runs of each kind, in turn (default 1)
"""

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import load  # noqa: E402
from cluster import ClusterTest, Taker  # noqa: E402
from delay_proxy import DelayProxy  # noqa: E402
from leafctl import Sandbox, main, poll, scaled  # noqa: E402
from power_loss import PowerLoss  # noqa: E402
from servers import MariaDb  # noqa: E402
from zk_client import NoNode  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402


def setUpModule():
    ClusterTest.zookeeper = ZooKeeper()
    ClusterTest.databases = (MariaDb(), MariaDb())


def tearDownModule():
    for server in (ClusterTest.zookeeper, *ClusterTest.databases):
        server.close()


class DatabaseGoesBack(ClusterTest):
    def dump(self):
        return subprocess.run(
            ["mariadb-dump", "--no-defaults", "-u" + self.one.user, "--socket=" + self.one.socket, self.name],
            stdout=subprocess.PIPE, check=True, timeout=60,
        ).stdout.decode()  # fmt: skip

    def test_a_restored_dump_freezes_the_tag_on_all_nodes_and_a_repair_mends_it(self):
        tags = ["pay", "a/b", "ünïcode"]
        for tag in tags:
            self.insert(tag)
        one = self.box.serve()
        two = self.node().serve()
        self.assertEqual(one.status()["fence"], "cluster")
        seen = {tag: [] for tag in tags}
        for tag in tags:
            seen[tag] += two.ids(tag, 5)
        dump = self.dump()
        for tag in tags:
            for _ in range(30):
                seen[tag] += one.ids(tag, 5)
        self.one.sql(dump, self.name)
        takers = [Taker(daemon, tags) for daemon in (one, two)]
        frozen = [{tag: self.wait_frozen(daemon, tag) for tag in tags} for daemon in (one, two)]
        for taker in takers:
            taker.stop()
        # Nothing is granted any more.
        highest = {tag: self.witness(tag) for tag in tags}
        self.assertLess(self.max_id("pay"), highest["pay"])
        self.assertIn(
            "another node of the cluster was already granted everything up to %d" % highest["pay"],
            frozen[1]["pay"]["problem"]["message"],
        )
        self.check_v1_error(two.v1("pay"), 409, "frozen")
        # A command names the nodes and their marks; a third machine that never saw the tag can repair it.
        third = self.node()
        for tag in tags:
            plan = third.run(["tag", "repair", tag, "--dry-run", "--timeout", "60s"])
            self.assertEqual(plan.rc, 0, plan)
            for part in ("witness in /snowflake/%s/leafctl/witness at" % self.name, one.url, two.url, str(highest[tag])):
                self.assertIn(part, plan.out)
            self.assertLess(self.max_id(tag), highest[tag])
            third.ok("tag", "repair", tag, "--confirm", tag, "--timeout", "60s")
            self.assertEqual(self.max_id(tag), highest[tag])
        for daemon, taker in zip((one, two), takers, strict=True):
            for tag in tags:
                self.wait_thawed(daemon, tag)
                seen[tag] += taker.ids[tag]
                for _ in range(10):
                    seen[tag] += daemon.ids(tag, 5)
        for tag in tags:
            self.check_distinct(seen[tag], tag)

    def test_a_token_goes_to_no_address_that_only_zookeeper_names(self):
        """What may write there could have it sent to itself."""
        self.insert("pay")
        tokens = []

        class Recorder(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                tokens.append(self.headers["Authorization"])
                body = b'{"code":"permission","message":"this needs role read","hint":""}'
                self.send_response(401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        token_file = self.box.write("token", "leaf_" + "a" * 43)
        host = socket.gethostname()
        with self.zookeeper.client() as client:
            # The first is an address of this machine, too, but does not say so. Of several those are asked that may have it.
            for i, names in enumerate((["0.0.0.0"], ["127.0.0.1"], ["0.0.0.0", "127.0.0.1"])):
                urls = ["http://%s:%d" % (name, server.server_address[1]) for name in names]
                record = {"host": host, "process": "serve", "urls": urls}
                path = "/snowflake/%s/leafctl/daemons/%d" % (self.name, i)
                client.create(path, json.dumps(record).encode(), parents=True)
                self.addCleanup(self.forget, path)
        result = self.box.run(["--set", "client.token_file=" + token_file, "tag", "repair", "pay", "--confirm", "pay"])
        self.check(result, 11, "is not sent to it")
        self.assertEqual(tokens, [None, *["Bearer leaf_" + "a" * 43] * 2])

    def forget(self, path):
        with self.zookeeper.client() as client:
            client.delete(path)

    def test_a_node_without_any_state_is_fenced_too(self):
        self.insert("pay")
        daemon = self.box.serve()
        seen = daemon.ids("pay", 50)
        self.set_max_id("pay", 11)
        self.wait_frozen(daemon, "pay")
        fresh = self.node()
        self.check(
            fresh.run(["next", "pay", "-n", "5", "--direct"]), 11,
            "frozen", "another node of the cluster was already granted everything up to %d" % self.witness("pay"),
        )  # fmt: skip
        self.assertEqual(self.max_id("pay"), 11)
        second = self.node().serve()
        self.assertEqual(self.wait_frozen(second, "pay")["witness"], str(self.witness("pay")))
        self.set_max_id("pay", self.witness("pay"))
        self.wait_thawed(second, "pay")
        seen += second.ids("pay", 5) + fresh.next("pay", "-n", "7", "--direct")
        self.check_distinct(seen)

    def test_a_removed_tag_goes_on_above_what_the_cluster_was_granted(self):
        self.insert("pay")
        # Its own mark is far below the witness; a third machine has none.
        other = self.node()
        seen = other.next("pay", "-n", "1", "--direct")
        daemon = self.box.serve()
        seen += daemon.ids("pay", 25)
        self.one.sql("DELETE FROM leaf_alloc", self.name)
        for node in (self.node(), other):
            self.check(node.run(["tag", "add", "pay", "--start", "5"]), 11, str(self.witness("pay")))
        other.ok("tag", "add", "pay")
        self.assertEqual(self.max_id("pay"), self.witness("pay"))
        poll(lambda: daemon.v1("pay").status == 200, "the tag is back")
        self.check_distinct(seen + daemon.ids("pay", 5))


class SplitBrain(ClusterTest):
    def run_both(self, **settings):
        """A node on each of two databases that both take writes. What they issued, and their answers."""
        daemons = [self.node(server=server, **settings).serve() for server in (self.one, self.two)]
        takers = [Taker(daemon, ["pay"]) for daemon in daemons]
        wanted = scaled(600, 100)
        poll(lambda: sum(len(taker.ids["pay"]) for taker in takers) >= wanted, "%d IDs" % wanted)
        time.sleep(1)
        for taker in takers:
            taker.stop()
        return daemons, [value for taker in takers for value in taker.ids["pay"]], takers

    def test_with_the_witness_no_id_is_issued_twice(self):
        self.insert("pay", step=5)
        _, ids, takers = self.run_both()
        self.check_distinct(ids)
        self.assertIn("frozen", {code for taker in takers for code in taker.codes})

    def test_with_the_node_fence_they_are_and_status_says_which_fence_it_is(self):
        self.insert("pay", step=5)
        daemons, ids, _ = self.run_both(fence="node")
        self.assertLess(len(set(ids)), len(ids))
        for daemon in daemons:
            self.assertEqual(daemon.status()["fence"], "node")
        text = self.node(fence="node").ok("status", "--server", daemons[0].url)
        self.assertIn("fence: node", text)


class WitnessAway(ClusterTest):
    def test_reserve_is_served_refills_wait_and_all_goes_on_by_itself(self):
        self.insert("pay", step=50)
        daemon = self.box.serve()
        seen = daemon.ids("pay")
        reserve = poll(lambda: int(daemon.tag_status("pay")["reserve"]), "a reserve")
        self.zookeeper.kill()
        seen += daemon.ids("pay", reserve)
        before = self.max_id("pay")
        # The first one may wait as long as ZooKeeper is waited for.
        poll(lambda: "witness" in self.check_v1_error(daemon.v1("pay"), 503)["message"], "the reason is the witness")
        status = poll(lambda: (s := daemon.status()) and not s["ready"] and s, "not ready")
        self.assertIn("witness", status["reasons"][0]["message"])
        self.assertFalse(status["witness"]["usable"])
        self.assertEqual(status["fence"], "cluster")
        shown = self.box.run(["status", "--server", daemon.url])
        self.assertEqual(shown.rc, 10, shown)
        self.assertIn("witness", shown.out)
        metrics = daemon.get("/metrics").body
        self.assertRegex(metrics, r'leaf_dependency_up\{dependency="witness",kind="zookeeper"\} 0')
        self.assertRegex(metrics, r"leaf_witness_usable 0")
        time.sleep(3)
        # What was reserved when it went away may be lost; nothing is while it is known to be away.
        self.assertLessEqual(self.max_id("pay"), before + 50)
        self.zookeeper.start()
        poll(lambda: daemon.v1("pay").status == 200, "IDs again")
        daemon.wait_ready()
        self.assertTrue(daemon.status()["witness"]["usable"])
        self.check_distinct(seen + daemon.ids("pay", 60))

    def test_with_fallback_it_goes_on_and_says_so(self):
        self.insert("pay", step=10)
        daemon = self.node(fallback=True).serve()
        seen = daemon.ids("pay", 5)
        self.zookeeper.kill()
        taker = Taker(daemon, ["pay"])
        status = poll(lambda: (s := daemon.status()) and s["fence"] == "node" and s, "the node fence")
        self.assertTrue(status["witness"]["fallback_allowed"])
        self.assertTrue(any("fenced by this node's own marks" in p["message"] for p in status["problems"]), status)
        self.assertRegex(daemon.get("/metrics").body, r'leaf_segment_fence\{fence="node"\} 1')
        self.assertIn("fence: node", self.box.run(["status", "--server", daemon.url]).out)
        poll(lambda: int(daemon.status()["witness"]["unfenced"]) > 2, "grants without a claim")
        self.assertTrue(daemon.status()["ready"])
        self.zookeeper.start()
        poll(lambda: daemon.status()["fence"] == "cluster", "the cluster's fence again")
        taker.stop()
        # A grant may wait for the first time-outs of ZooKeeper, none fails for good.
        self.assertLessEqual(set(taker.codes), {"exhausted"}, taker.codes)
        poll(lambda: self.witness("pay") == self.max_id("pay"), "the witness knows of all")
        self.check_distinct(seen + taker.ids["pay"] + daemon.ids("pay", 20))

    def test_a_daemon_starts_while_it_is_away(self):
        self.insert("pay")
        self.zookeeper.kill()
        daemon = self.box.serve(ready=False)
        poll(lambda: daemon.status()["reasons"], "a reason")
        poll(lambda: "witness" in daemon.status()["reasons"][0]["message"], "the reason is the witness")
        self.zookeeper.start()
        daemon.wait_ready()
        self.assertEqual(len(daemon.ids("pay", 20)), 20)

    def test_a_session_that_expires_costs_nothing(self):
        self.insert("pay", step=10)
        daemon = self.box.serve()
        taker = Taker(daemon, ["pay"])
        for _ in range(scaled(10, 3)):
            for session in poll(self.zookeeper.sessions, "a session"):
                self.zookeeper.expire(session)
            count = len(taker.ids["pay"])
            poll(lambda count=count: len(taker.ids["pay"]) > count + 30, "IDs")
        taker.stop()
        self.assertLessEqual(set(taker.codes), {"exhausted"}, taker.codes)
        self.check_distinct(taker.ids["pay"])

        def registered():
            # The first session may have ended before anything was written with it.
            with self.zookeeper.client() as client, contextlib.suppress(NoNode):
                return len(client.children("/snowflake/%s/leafctl/daemons" % self.name)) == 1
            return False

        poll(registered, "the daemon is registered again")


class Repair(ClusterTest):
    # A daemon that hangs stays registered for as long.
    session_timeout = "10s"

    def broken(self):
        """Two daemons, and a tag that went back; its highest mark."""
        self.insert("pay")
        daemons = [self.box.serve(), self.node().serve()]
        for daemon in daemons:
            daemon.ids("pay", 25)
        self.set_max_id("pay", 5)
        for daemon in daemons:
            self.wait_frozen(daemon, "pay")
        # Nothing is granted any more.
        return daemons, self.witness("pay")

    def test_a_registered_daemon_that_does_not_answer_is_not_passed_over(self):
        daemons, highest = self.broken()
        third = self.node()

        def repair():
            # Hung, and its session with ZooKeeper alive: asked at once, before that runs out.
            hung = Hung(daemons[1])
            try:
                result = third.run(["tag", "repair", "pay", "--confirm", "pay", "--timeout", "2s"])
            finally:
                hung.end()
            # Once more if ZooKeeper was too slow to tell which daemons are registered.
            return None if re.search(r"ZooKeeper at \S+ does not answer", result.err) else result

        refused = poll(repair, "ZooKeeper answers")
        self.check(refused, 11, daemons[1].url, "--to N --confirm pay")
        self.assertEqual(self.max_id("pay"), 5)
        # The operator may say where the tag goes on.
        hung = Hung(daemons[1])
        try:
            third.ok("tag", "repair", "pay", "--to", str(highest + 1000), "--confirm", "pay", "--timeout", "2s")
        finally:
            hung.end()
        self.assertEqual(self.max_id("pay"), highest + 1000)
        for daemon in daemons:
            self.wait_thawed(daemon, "pay")

    def test_without_zookeeper_it_refuses(self):
        _, highest = self.broken()
        third = self.node()
        self.zookeeper.kill()
        self.check(
            third.run(["tag", "repair", "pay", "--confirm", "pay", "--timeout", "1s"]), 11, "witness", "--to n --confirm pay"
        )
        self.assertEqual(self.max_id("pay"), 5)
        third.ok("tag", "repair", "pay", "--to", str(highest), "--confirm", "pay", "--timeout", "1s")
        self.zookeeper.start()
        for daemon in self.box.daemons:
            self.wait_thawed(daemon, "pay")

    def test_daemons_that_ended_are_not_waited_for(self):
        daemons, highest = self.broken()
        self.assertEqual(daemons[1].terminate(), 0)
        third = self.node()
        done = third.run(["tag", "repair", "pay", "--confirm", "pay", "--timeout", "60s"])
        self.assertEqual(done.rc, 0, done)
        self.assertNotIn(daemons[1].url, done.err)
        self.assertEqual(self.max_id("pay"), highest)

    def test_a_cluster_that_zookeeper_does_not_know(self):
        self.insert("pay")
        result = self.box.run(["cluster", "recover", "--dry-run", "--timeout", "60s"])
        self.check(result, 0, "ZooKeeper knows no node of cluster '%s'" % self.name, "zookeeper.connect")
        self.box.serve().ids("pay")
        result = self.box.run(["cluster", "recover", "--dry-run", "--timeout", "60s"])
        self.assertEqual((result.rc, result.err), (0, ""))
        # Under a chroot of its own that is another cluster.
        elsewhere = {"LEAFCTL_ZOOKEEPER_CONNECT": self.zookeeper.connect + "/elsewhere"}
        with self.zookeeper.client() as client:
            client.create("/elsewhere", b"", parents=True)
        result = self.box.run(["cluster", "recover", "--dry-run", "--timeout", "60s"], env=elsewhere)
        self.check(result, 0, "/elsewhere", "ZooKeeper knows no node")

    def test_a_server_of_the_configuration_that_is_down(self):
        self.insert("pay")
        daemon = self.box.serve()
        daemon.ids("pay")
        self.assertEqual(daemon.terminate(), 0)
        recover = ["cluster", "recover", "--dry-run", "--timeout", "60s"]
        result = self.box.run(recover, env={"LEAFCTL_CLIENT_SERVERS": daemon.url})
        self.check(result, 7, daemon.url, "--state-dir")
        self.assertEqual(self.box.run(recover).rc, 0)

    def test_a_witness_that_cannot_be_read_stops_its_tag_and_is_named(self):
        self.insert("pay")
        self.insert("mail")
        daemon = self.box.serve()
        daemon.ids("pay", 5)
        path = "/snowflake/%s/leafctl/witness/pay" % self.name
        with self.zookeeper.client() as client:
            client.set(path, b"what?")
        self.assertEqual(len(daemon.ids("mail", 30)), 30)
        response = poll(lambda: (r := daemon.v1("pay", 20)).status != 200 and r, "an error")
        self.assertIn(path, json.loads(response.body)["message"])
        self.check(self.node().run(["tag", "repair", "pay", "--confirm", "pay"]), 11, path)
        recover = ["cluster", "recover", "--dry-run", "--timeout", "60s"]
        self.check(self.box.run(recover), 11, "tag 'pay'", path, "With all daemons running, delete it")
        with self.zookeeper.client() as client:
            client.delete(path)
        poll(lambda: self.box.run(recover).rc == 0 and len(daemon.ids("pay")) == 1, "the daemon has created it again")

    def test_a_record_of_a_node_that_cannot_be_read(self):
        self.insert("pay", step=10)
        daemons = [box.serve() for box in (self.box, self.node())]
        issued = [number for daemon in daemons for number in daemon.ids("pay", 5)]
        recover = ["cluster", "recover", "--timeout", "60s"]
        folder = "/snowflake/%s/leafctl/" % self.name
        with self.zookeeper.client() as client:
            node = folder + "nodes/" + sorted(client.children(folder + "nodes"))[0]
            for path in (node, folder + "incarnation"):
                client.set(path, b"what?")
                self.check(self.box.run([*recover, "--dry-run"]), 11, path, "With all daemons running, delete it")
                client.delete(path)
                poll(lambda: self.box.run([*recover, "--confirm", self.name]).rc == 0, "nothing is in the way any more")
        for daemon in daemons:
            poll(lambda daemon=daemon: daemon.v1("pay", 30).status == 200, "ranges are claimed again")
            issued += daemon.ids("pay", 30)
        self.assertEqual(len(issued), len(set(issued)))


class ManyGrants(ClusterTest):
    """Grants as fast as they come, over 1000 tags whose step is 1, beside a tag that has reserve."""

    seconds = float(os.environ.get("LEAFCTL_GRANTS_S", "2"))
    rounds = int(os.environ.get("LEAFCTL_GRANTS_ROUNDS", "1"))
    rate = 500  # requests a second to the tag that has reserve

    def grants(self, daemon):
        found = re.search(r'^leaf_segment_refills_total\{result="granted"\} (\d+)$', daemon.get("/metrics").body, re.MULTILINE)
        return int(found.group(1))

    def measure(self, daemon, storm):
        """Latencies of the tag that has reserve, and grants a second of the others."""
        url = daemon.url + "/v1/segment/"
        before, began = self.grants(daemon), time.monotonic()
        with contextlib.ExitStack() as stack:
            if storm:
                urls = [url + "t%d" % number for number in range(1000)]
                stack.enter_context(load.Load(urls, None, 64, seconds=self.seconds + 1))
            result = load.run(url + "pay", int(self.rate * self.seconds), 8, 120, rate=self.rate, with_latencies=True)
            grants = (self.grants(daemon) - before) / (time.monotonic() - began)
        self.assertEqual(result.errors, 0, result.why())
        return result, grants

    def test_they_do_not_slow_requests_that_have_reserve(self):
        values = ", ".join("('t%d', 1, 1)" % number for number in range(1000))
        self.one.sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES %s, ('pay', 1, 100000)" % values, self.name)
        cluster = self.box.serve()
        node = self.node(fence="node").serve()
        figures = {"idle": [], "node": [], "cluster": []}
        for daemon in (cluster, node):
            daemon.ids("pay")
        for _ in range(self.rounds):
            for kind, daemon in (("idle", cluster), ("node", node), ("cluster", cluster)):
                figures[kind].append(self.measure(daemon, kind != "idle"))
        for kind, runs in figures.items():
            print(
                "fence: %-7s %6.0f grants a second; requests with reserve: p50 %.2f ms, p99 %.2f ms"
                % (kind, *(statistics.median(values) for values in zip(*(
                    (grants, result.latency_ms(0.5), result.latency_ms(0.99)) for result, grants in runs
                ), strict=True))),
                flush=True,
            )  # fmt: skip
        status = cluster.status()["witness"]
        self.assertEqual(status["outbid"], 0)
        self.assertGreater(status["claims"], 0)


class Costs(ClusterTest):
    """What taking part in a cluster costs where nothing goes wrong, counted."""

    def counted(self, what, begin):
        """What has gone to ZooKeeper and the database, and was flushed, since `begin` (a count of flushes)."""
        zookeeper, database = self.to_zookeeper.stats(), self.to_database.stats()
        flushes = self.flushes() - begin
        print(
            "%s: ZooKeeper %d round trips, %d bytes; database %d round trips, %d bytes; %d flushes"
            % (what, zookeeper["round_trips"], zookeeper["bytes"], database["round_trips"], database["bytes"], flushes),
            flush=True,
        )
        return zookeeper, database, flushes

    def flushes(self):
        return sum(record.kind == "flushed" for record in self.power.records())

    def test_a_grant_a_request_and_a_heartbeat(self):
        step = 10
        self.insert("pay", step=step)
        self.to_zookeeper, self.to_database = DelayProxy(self.zookeeper.port), DelayProxy(self.one.port)
        state = self.box.path("counted")
        os.mkdir(state, 0o700)
        self.power = PowerLoss(state)
        for closing in (self.to_zookeeper, self.to_database, self.power):
            self.addCleanup(closing.close)
        daemon = self.box.serve(
            "--set", "zookeeper.connect=127.0.0.1:%d" % self.to_zookeeper.port,
            "--set", "mysql.endpoints=127.0.0.1:%d" % self.to_database.port,
            "--set", "segment.refresh_interval=1h", "--set", "zookeeper.session_timeout=30s",
            "--state-dir", state, env=self.power.env,
        )  # fmt: skip

        def heartbeats():
            return daemon.status()["witness"]["cluster"]["heartbeats"]

        def claims():
            return daemon.status()["witness"]["claims"]

        def settled():
            before = claims()
            time.sleep(0.5)
            return claims() == before

        daemon.ids("pay", step)
        poll(settled, "its reserve is full")
        # At rest.
        first = heartbeats()
        poll(lambda: heartbeats() > first, "a heartbeat")
        first, begin = heartbeats(), self.flushes()
        self.counted("so far", begin)
        poll(lambda: heartbeats() >= first + 3, "heartbeats", timeout=600)
        zookeeper, database, flushes = self.counted("3 heartbeats", begin)
        beats = heartbeats() - first
        # The pings of the session are among them; one more heartbeat may be under way.
        self.assertLessEqual(zookeeper["round_trips"], 8 * (beats + 1))
        self.assertLessEqual(zookeeper["bytes"], 4000 * (beats + 1))
        self.assertEqual(database["round_trips"], 0)
        self.assertLessEqual(flushes, 3 * (beats + 1))

        # Requests that are served from the reserve.
        while True:
            before, first, begin = claims(), heartbeats(), self.flushes()
            self.counted("before", begin)
            daemon.ids("pay", 1)
            zookeeper, database, flushes = self.counted("a request", begin)
            if claims() == before and heartbeats() == first:
                break
        self.assertEqual((zookeeper["round_trips"], database["round_trips"], flushes), (0, 0, 0))

        # Grants.
        before, first, begin = claims(), heartbeats(), self.flushes()
        self.counted("before", begin)
        for _ in range(100):
            daemon.ids("pay", step)
        poll(settled, "its reserve is full")
        grants = claims() - before
        zookeeper, database, flushes = self.counted("%d grants" % grants, begin)
        beats = heartbeats() - first + 1
        self.assertGreaterEqual(grants, 50)
        # A look at the witness and the claim; the row; a mark.
        self.assertLessEqual(zookeeper["round_trips"], 2 * grants + 8 * beats)
        self.assertLessEqual(zookeeper["bytes"], 1200 * grants + 4000 * beats)
        self.assertLessEqual(database["round_trips"], 4 * grants)
        self.assertLessEqual(flushes, 2 * grants + 3 * beats)


class Configuration(ClusterTest):
    def test_the_witness_of_nodes_without_a_cluster_name_has_the_databases(self):
        self.insert("pay")
        box = self.node()
        with open(box.env["LEAFCTL_CONFIG"], encoding="utf-8") as file:
            text = file.read().replace('cluster = "%s"' % self.name, "")
        box.env["LEAFCTL_CONFIG"] = box.write("other.toml", text)
        daemon = box.serve()
        daemon.ids("pay")
        self.assertGreater(self.witness("pay"), 1)

    def test_sqlite_is_fenced_by_the_cluster_if_asked_to(self):
        lines = '[segment]\nfence = "cluster"\nrefresh_interval = "1s"\n[snowflake]\nenabled = false\nclaim_watch = "0s"\n%s[zookeeper]\nconnect = "%s"\n'
        box = Sandbox()
        self.addCleanup(box.close)
        box.env["LEAFCTL_CONFIG"] = box.write("leafctl.toml", lines % ("", self.zookeeper.connect))
        self.check(box.run(["config", "check"]), 6, "segment.fence", "snowflake.cluster")
        box.write("leafctl.toml", lines % ('cluster = "%s"\n' % self.name, self.zookeeper.connect))
        box.ok("tag", "add", "pay", "--step", "10")
        daemon = box.serve()
        daemon.ids("pay", 5)
        self.assertEqual(daemon.status()["fence"], "cluster")
        self.assertGreater(self.witness("pay"), 1)

    def test_auto_is_the_node_fence_without_zookeeper_or_with_a_private_database(self):
        for text in (
            "",
            '[zookeeper]\nconnect = "%s"\n' % self.zookeeper.connect,
            '[segment]\nfence = "node"\n[zookeeper]\nconnect = "%s"\n' % self.zookeeper.connect,
        ):
            box = Sandbox()
            self.addCleanup(box.close)
            box.env["LEAFCTL_CONFIG"] = box.write("leafctl.toml", text)
            box.ok("tag", "add", "pay")
            daemon = box.serve()
            self.assertEqual(daemon.status()["fence"], "node")
            self.assertNotIn("witness", daemon.status())


class Hung:
    """A daemon that is stopped by SIGSTOP, until `end`."""

    def __init__(self, daemon):
        self._daemon = daemon
        daemon.disconnect()
        daemon.signal(signal.SIGSTOP)

    def end(self):
        self._daemon.signal(signal.SIGCONT)


if __name__ == "__main__":
    main()
