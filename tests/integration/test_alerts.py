#!/usr/bin/env python3
"""Each dependency killed: the right gauge, alert, problem and status line appear, and go away. With a real Prometheus
that scrapes and judges by config/prometheus/leafctl.rules.yml, and real servers of MariaDB and ZooKeeper."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import metrics
import explain  # noqa: E402
from leafctl import ROOT, LeafTest, main, poll
from resp import Resp, redis_port  # noqa: E402
from servers import PASSWORD, MariaDb, free_port
from zookeeper import ZooKeeper

RULES = os.path.join(ROOT, "config", "prometheus", "leafctl.rules.yml")
START_TRIES = 5
TIMEOUT_S = 120.0

database = None


def setUpModule():
    global database
    database = MariaDb()
    database.sql("CREATE DATABASE leaf_alerts CHARACTER SET utf8mb4")


def tearDownModule():
    database.close()


class Prometheus:
    """A server of its own that scrapes every second. Alerts fire as soon as what they are for was seen: how long
    they hold back otherwise is tested with promtool."""

    def __init__(self, targets):
        tool = shutil.which("prometheus")
        if not tool:
            raise AssertionError("there is no prometheus: apt-get install prometheus")
        self.dir = tempfile.mkdtemp(prefix="leafctl-prometheus-")
        self.process = None
        with open(RULES, encoding="utf-8") as file:
            rules, changed = re.subn(r"\n +for: \w+", "", file.read())
        assert changed > 0
        rules, changed = re.subn(r"(leaf_tag_paused_timestamp_seconds) > \d+", r"\1 > 0", rules)
        assert changed == 1
        self._write("rules.yml", rules)
        self._write("targets.json", json.dumps([{"targets": targets}]))
        self._write(
            "prometheus.yml",
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            "  - job_name: leafctl\n"
            "    file_sd_configs: [{files: [targets.json]}]\n",
        )
        explain.watch_file("prometheus", os.path.join(self.dir, "log"))
        # A port that was free is not always free any more.
        for attempt in range(START_TRIES):
            self.port = free_port()
            with open(os.path.join(self.dir, "log"), "wb") as log:
                self.process = subprocess.Popen(
                    [tool, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:%d"
                     % self.port], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            if self._wait_up():
                return
            log = self.log()
            self._kill()
            if attempt + 1 == START_TRIES:
                self.close()
                raise AssertionError("prometheus does not come up:\n" + log)

    def _write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)

    def log(self):
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def _wait_up(self):
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self._get("/-/ready")[0] == 200:
                    return True
            except OSError:
                pass
            time.sleep(0.05)
        return False

    def _get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def firing(self):
        """The alerts that fire: name → their labels."""
        alerts = json.loads(self._get("/api/v1/alerts")[1])["data"]["alerts"]
        return {alert["labels"]["alertname"]: alert["labels"] for alert in alerts if alert["state"] == "firing"}

    def _kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def close(self):
        self._kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Watched(LeafTest):
    def until(self, predicate, what):
        return poll(predicate, what, TIMEOUT_S, 0.1)

    def watch(self, daemon):
        prometheus = Prometheus(["127.0.0.1:%d" % daemon.port])
        self.addCleanup(prometheus.close)
        return prometheus


class Grafana(Watched):
    """config/grafana/leafctl.json, without Grafana: what it asks a real Prometheus for is there."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, "config", "grafana", "leafctl.json"), encoding="utf-8") as file:
            self.dashboard = json.load(file)
        self.panels = [panel for panel in self.dashboard["panels"] if panel["type"] != "row"]

    def queries(self):
        """(where it is, the expression) of each query, with Grafana's variables filled in."""
        found = [
            ("%s, %s" % (panel["title"], target["refId"]), target["expr"])
            for panel in self.panels
            for target in panel["targets"]
        ]
        found += [(note["name"], note["expr"]) for note in self.dashboard["annotations"]["list"]]
        return [(where, expr.replace("$instance", ".*").replace("$__rate_interval", "1m")) for where, expr in found]

    def test_every_query_has_data(self):
        self.box.ok("tag", "add", "pay", "--step", "10")
        daemon = self.box.serve("--redis-listen", "127.0.0.1:0")
        redis = Resp(redis_port(daemon))
        self.addCleanup(redis.close)
        prometheus = self.watch(daemon)

        def answer(expr):
            status, body = prometheus._get("/api/v1/query?" + urllib.parse.urlencode({"query": expr}))
            self.assertEqual(status, 200, body)
            return json.loads(body)["data"]["result"]

        def missing():
            # What changes is counted, and what goes wrong, too.
            daemon.ids("pay", 7)
            daemon.get("/v1/snowflake")
            daemon.get("/v1/segment/nosuch")
            redis.ask("INCR", "pay")
            return [where for where, expr in self.queries() if not answer(expr) and where != "Restarts"]

        self.until(lambda: not missing(), "data for each query")
        # An empty answer is what the annotation has most of the time, but its metric is there.
        self.assertTrue(answer("process_start_time_seconds"))
        variable = next(one for one in self.dashboard["templating"]["list"] if one["name"] == "instance")
        # "All" are the nodes of the list, not every program that Prometheus knows.
        self.assertNotIn("allValue", variable)
        metric = re.fullmatch(r"label_values\((\w+), instance\)", variable["definition"]).group(1)
        self.assertEqual([one["metric"]["instance"] for one in answer(metric)], ["127.0.0.1:%d" % daemon.port])

    def test_panels_do_not_overlap_and_say_what_they_show(self):
        taken = set()
        for panel in self.dashboard["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            taken |= cells
        ids = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        # Each follows the choice of nodes.
        for where, expr in [(p["title"], t["expr"]) for p in self.panels for t in p["targets"]]:
            self.assertIn('instance=~"$instance"', expr, where)


class Alerts(Watched):
    def setUp(self):
        super().setUp()
        database.ensure_up()
        self.addCleanup(database.ensure_up)
        password = self.box.write("password", PASSWORD + "\n")
        self.box.env.update(
            LEAFCTL_SEGMENT_STORE="mysql",
            LEAFCTL_MYSQL_ENDPOINTS="127.0.0.1:%d" % database.port,
            LEAFCTL_MYSQL_DATABASE="leaf_alerts",
            LEAFCTL_MYSQL_PASSWORD_FILE=password,
            LEAFCTL_MYSQL_CONNECT_TIMEOUT="1s",
            LEAFCTL_MYSQL_QUERY_TIMEOUT="1s",
            LEAFCTL_SEGMENT_REFRESH_INTERVAL="500ms",
        )
        self.box.ok("db", "init")

    def database_of(self, daemon):
        (found,) = [d for d in daemon.status()["dependencies"] if d["name"] == "database"]
        return found

    def test_a_database_that_is_killed_and_comes_back(self):
        self.box.ok("tag", "add", "pay", "--step", "10")
        daemon = self.box.serve("--set", "segment.step_policy=fixed")
        daemon.ids("pay", 3)
        prometheus = self.watch(daemon)
        self.until(lambda: prometheus._get("/api/v1/query?query=leaf_ready")[1].count('"1"') == 1, "it is scraped")
        self.until(lambda: prometheus.firing() == {}, "all is well")
        identity = self.database_of(daemon)["identity"]
        self.assertIn("MariaDB", identity)
        self.assertEqual(self.box.run(["status", "--server", daemon.url]).rc, 0)

        database.kill()
        self.until(lambda: "LeafDatabaseDown" in prometheus.firing(), "the alert")
        labels = prometheus.firing()["LeafDatabaseDown"]
        self.assertEqual((labels["kind"], labels["instance"]), ("mysql", "127.0.0.1:%d" % daemon.port))
        read = metrics.of(daemon)
        self.assertEqual(read.get("leaf_dependency_up", dependency="database", kind="mysql"), 0)
        self.assertEqual(read.get("leaf_snowflake_state", state="issuing"), 1)
        self.assertFalse(self.database_of(daemon)["up"])
        # There is a reserve: the node is ready, and IDs go on.
        self.assertEqual(daemon.get("/health/ready").status, 200)
        daemon.ids("pay")
        status = self.box.run(["status", "--server", daemon.url])
        self.assertEqual(status.rc, 10, status)
        self.assertIn("problem: cannot", status.out)
        self.assertIn("ready", status.out)
        self.assertEqual(daemon.get("/db").status, 500)
        self.assertEqual(daemon.get("/cache").status, 200)

        # The reserve is used up: now the node is not ready, and says why.
        self.until(lambda: daemon.v1("pay").status == 503, "the reserve is used up")
        self.until(lambda: daemon.get("/health/ready").status == 503, "not ready")
        (reason,) = json.loads(daemon.get("/health/ready").body)["reasons"]
        self.assertEqual(reason["code"], "segment_unavailable")
        self.until(lambda: "LeafNotReady" in prometheus.firing(), "the other alert")
        firing = set(prometheus.firing())
        self.assertLessEqual({"LeafDatabaseDown", "LeafNotReady"}, firing)
        self.assertLessEqual(firing, {"LeafDatabaseDown", "LeafNotReady", "LeafRefillsFail", "LeafRequestsFail", "LeafSlow"})
        self.assertEqual(metrics.of(daemon).get("leaf_not_ready_reason", code="segment_unavailable"), 1)

        database.start()
        self.until(lambda: daemon.get("/health/ready").status == 200, "ready again")
        self.until(lambda: not {"LeafDatabaseDown", "LeafNotReady"} & set(prometheus.firing()), "they go away")
        after = self.database_of(daemon)
        self.assertTrue(after["up"])
        self.assertGreaterEqual(after["reconnects"], 1)
        self.assertEqual((after["identity"], after["identity_changes"]), (identity, 0), "it is the same server")
        self.until(lambda: daemon.v1("pay").status == 200, "IDs again")
        self.until(lambda: self.box.run(["status", "--server", daemon.url]).rc == 0, "no problem is left")

    def test_a_registry_that_is_killed_and_comes_back(self):
        zookeeper = ZooKeeper()
        self.addCleanup(zookeeper.close)
        daemon = self.box.serve(
            "--set", "snowflake.registry=zookeeper", "--set", "snowflake.cluster=alerts", "--set",
            "snowflake.address=127.0.0.1:8080", "--set", "segment.fence=node", "--set", "snowflake.claim_watch=0s", "--set",
            "zookeeper.connect=" + zookeeper.connect)  # fmt: skip
        prometheus = self.watch(daemon)

        def up():
            return metrics.of(daemon).get("leaf_dependency_up", dependency="registry", kind="zookeeper")

        self.until(lambda: up() == 1, "it is up")
        self.until(lambda: prometheus._get("/api/v1/query?query=leaf_ready")[1].count('"1"') == 1, "it is scraped")
        self.until(lambda: prometheus.firing() == {}, "all is well")
        zookeeper.kill()
        self.until(lambda: "LeafRegistryDown" in prometheus.firing(), "the alert")
        self.assertEqual(up(), 0)
        self.assertLessEqual(set(prometheus.firing()), {"LeafRegistryDown", "LeafSlow"})
        # A fixed number goes on.
        self.assertEqual(daemon.get("/health/ready").status, 200)
        self.assertEqual(daemon.get("/v1/snowflake").status, 200)
        self.until(lambda: self.box.run(["status", "--server", daemon.url]).rc == 10, "a problem in status")
        zookeeper.ensure_up()
        self.until(lambda: up() == 1, "up again")
        self.until(lambda: prometheus.firing() == {}, "it goes away")
        self.until(lambda: self.box.run(["status", "--server", daemon.url]).rc == 0, "no problem is left")

    def test_a_witness_that_is_killed_and_comes_back(self):
        zookeeper = ZooKeeper()
        self.addCleanup(zookeeper.close)
        self.box.ok("tag", "add", "seen", "--step", "100")
        daemon = self.box.serve(
            "--set", "segment.fence=cluster", "--set", "snowflake.enabled=false", "--set", "snowflake.cluster=alerts",
            "--set", "segment.claim_watch=0s", "--set", "zookeeper.connect=" + zookeeper.connect)  # fmt: skip
        prometheus = self.watch(daemon)

        def up():
            return metrics.of(daemon).get("leaf_dependency_up", dependency="witness", kind="zookeeper")

        self.until(lambda: up() == 1, "it is up")
        self.until(lambda: prometheus._get("/api/v1/query?query=leaf_ready")[1].count('"1"') == 1, "it is scraped")
        self.until(lambda: prometheus.firing() == {}, "all is well")
        zookeeper.kill()
        self.until(lambda: daemon.get("/health/ready").status == 503, "nothing is in reserve: not ready")
        (reason,) = json.loads(daemon.get("/health/ready").body)["reasons"]
        self.assertEqual(reason["code"], "segment_unavailable")
        self.assertIn("the witness of the cluster cannot be used", reason["message"])
        self.until(lambda: {"LeafWitnessDown", "LeafNotReady"} <= set(prometheus.firing()), "the alerts")
        self.assertEqual(up(), 0)
        self.assertEqual(set(prometheus.firing()) - {"LeafSlow"}, {"LeafWitnessDown", "LeafNotReady"})
        shown = self.box.run(["status", "--server", daemon.url])
        self.assertEqual(shown.rc, 10, shown)
        self.assertIn("the witness /snowflake/alerts/leafctl/witness at", shown.out)
        zookeeper.ensure_up()
        self.until(lambda: daemon.get("/health/ready").status == 200, "ready again")
        self.until(lambda: up() == 1, "up again")
        self.until(lambda: prometheus.firing() == {}, "they go away")
        self.until(lambda: self.box.run(["status", "--server", daemon.url]).rc == 0, "no problem is left")
        daemon.ids("seen", 5)

    def test_a_frozen_tag_and_a_daemon_that_refuses_to_start(self):
        self.box.ok("tag", "add", "frost", "--step", "100")
        daemon = self.box.serve()
        daemon.ids("frost")
        prometheus = self.watch(daemon)
        database.sql("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'frost'", "leaf_alerts")
        self.until(lambda: "LeafTagFrozen" in prometheus.firing(), "the alert")
        self.assertEqual(metrics.of(daemon).get("leaf_tag_frozen", tag="frost"), 1)
        self.box.ok("tag", "repair", "frost", "--confirm", "frost")
        self.until(lambda: "LeafTagFrozen" not in prometheus.firing(), "it goes away")
        self.assertNotIn("LeafDown", prometheus.firing())
        # One that does not start is a target that is down.
        daemon.kill()
        refused = self.box.run(
            ["serve", "--listen", "127.0.0.1:%d" % daemon.port, "--set", "snowflake.worker_id=-1", "--set",
             "snowflake.cluster=c"])  # fmt: skip
        self.assertNotEqual(refused.rc, 0, refused)
        self.until(lambda: "LeafDown" in prometheus.firing(), "the target is down")
        # Taken from the list, it has vanished.
        prometheus._write("targets.json", "[]")
        self.until(lambda: "LeafVanished" in prometheus.firing(), "the target has vanished")
        self.assertNotIn("LeafDown", prometheus.firing())


class Node(Watched):
    """What the node itself can be in, without any outage: each has its alert, alone."""

    def setUp(self):
        super().setUp()
        self.box.ok("tag", "add", "pay")
        self.box.write("leafctl.toml", "[server]\nmax_connections = 20\n")
        self.daemon = self.serve("127.0.0.1:0")
        self.prometheus = self.watch(self.daemon)
        self.until(self.is_scraped, "it is scraped")
        self.until(self.fires, "all is well")

    def serve(self, address):
        return self.box.serve("--config", self.box.path("leafctl.toml"), listen=(address,))

    def is_scraped(self):
        return self.prometheus._get("/api/v1/query?query=leaf_ready")[1].count('"1"') == 1

    def fires(self, *alerts):
        """Whether these do, and no other. How long requests take is up to the machine."""
        return set(self.prometheus.firing()) - {"LeafSlow"} == set(alerts)

    def check_alone(self, alert):
        self.until(lambda: self.fires(alert), alert)

    def check_over(self):
        self.until(self.fires, "it goes away")

    def test_a_paused_tag(self):
        self.box.ok("tag", "pause", "pay")
        self.check_alone("LeafTagPaused")
        self.assertEqual(self.prometheus.firing()["LeafTagPaused"]["tag"], "pay")
        self.box.ok("tag", "resume", "pay")
        self.check_over()

    def test_connections_near_their_limit(self):
        self.assertEqual(metrics.of(self.daemon).get("leaf_http_connections_max"), 20)
        idle = [self.daemon.raw() for _ in range(18)]
        # A request each, so that none is waiting to be accepted.
        for connection in idle:
            self.assertEqual(connection.get("/health/live").status, 200)
        self.check_alone("LeafConnectionsNearLimit")
        for connection in idle:
            connection.close()
        self.check_over()
        # A higher limit is known after a reload.
        self.box.write("leafctl.toml", "[server]\nmax_connections = 30\n")
        self.daemon.signal(signal.SIGHUP)
        self.until(lambda: metrics.of(self.daemon).get("leaf_http_connections_max") == 30, "the new limit")

    def test_requests_over_a_limit(self):
        self.box.write("leafctl.toml", "[server]\nmax_connections = 20\nmax_tag_requests_per_second = 1\n")
        self.daemon.signal(signal.SIGHUP)
        self.until(lambda: self.daemon.v1("pay").status == 429, "it is refused")
        # The rate is seen once there are two scrapes with such requests between them.
        self.until(
            lambda: self.daemon.v1("pay").status in (200, 429) and "LeafRequestsLimited" in self.prometheus.firing(),
            "the alert",
        )
        self.check_alone("LeafRequestsLimited")

    def test_a_reload_that_fails(self):
        def config():
            read = metrics.of(self.daemon)
            return [read.get("leaf_config_last_reload_" + n) for n in ("successful", "success_timestamp_seconds")]

        successful, started = config()
        self.assertEqual(successful, 1)
        self.box.write("leafctl.toml", "[server]\nmax_connections = 'many'\n")
        self.daemon.signal(signal.SIGHUP)
        self.check_alone("LeafReloadFailed")
        self.assertEqual(config(), [0, started])
        status = self.box.run(["status", "--server", self.daemon.url])
        self.assertEqual(status.rc, 10, status)
        self.assertIn("problem: the last reload of the configuration failed, the old settings stay in force", status.out)
        self.assertIn("max_connections", status.out)
        self.box.write("leafctl.toml", "[server]\nmax_connections = 20\n")
        self.daemon.signal(signal.SIGHUP)
        self.check_over()
        successful, reloaded = config()
        self.assertEqual(successful, 1)
        self.assertGreater(reloaded, started)
        self.assertEqual(self.box.run(["status", "--server", self.daemon.url]).rc, 0)

    def test_a_restart(self):
        address = "127.0.0.1:%d" % self.daemon.port
        self.daemon.terminate()
        self.until(lambda: "LeafDown" in self.prometheus.firing(), "it is down")
        self.daemon = self.serve(address)
        self.until(lambda: "LeafDown" not in self.prometheus.firing(), "it is up")
        self.check_alone("LeafRestarted")


if __name__ == "__main__":
    main()
