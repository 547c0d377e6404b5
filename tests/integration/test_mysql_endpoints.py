#!/usr/bin/env python3
"""Several MySQL endpoints of one cluster, encryption, silent servers, changed passwords, and what db check says."""

import concurrent.futures
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import metrics  # noqa: E402
from delay_proxy import DelayProxy  # noqa: E402
from leafctl import LeafTest, main, poll  # noqa: E402
from servers import MariaDb, free_port  # noqa: E402
from sql_client import SqlError  # noqa: E402

PASSWORD = "application-secret"
TABLE = """CREATE TABLE leaf_alloc (
  biz_tag varchar(128) COLLATE utf8mb4_bin NOT NULL DEFAULT '', max_id bigint(20) NOT NULL DEFAULT '1',
  step int(11) NOT NULL, description varchar(256) DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)
) ENGINE=InnoDB"""

# Two servers that do not know each other, but for what a test sets up.
FIRST = None
SECOND = None


class Server(MariaDb):
    """One that can be started again with other options, and that is as it should be after `reset`."""

    def __init__(self, number):
        super().__init__()
        self.plain = [*self.command, "--log-bin", "--sync-binlog=1", "--server-id=%d" % number]
        self.restart()
        self.sql("GRANT REPLICATION SLAVE ON *.* TO leaf@'%'")

    def restart(self, *options):
        self.stop()
        self.command = [*self.plain, *options]
        self.start()

    def reset(self):
        self.ensure_up()
        self.wait_up()
        self.sql("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0; SET GLOBAL sync_binlog = 1;"
                 "SET GLOBAL rpl_semi_sync_master_enabled = 0; SET GLOBAL rpl_semi_sync_slave_enabled = 0")  # fmt: skip

    def follow(self, primary):
        position = primary.sql("SHOW MASTER STATUS")[0]
        self.sql(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='leaf', MASTER_PASSWORD='leaf-secret',"
            "MASTER_USE_GTID=no, MASTER_LOG_FILE='%s', MASTER_LOG_POS=%s, MASTER_CONNECT_RETRY=1; SET GLOBAL read_only = 1; START SLAVE"
            % (primary.port, position[0], position[1])
        )

    @property
    def endpoint(self):
        return "127.0.0.1:%d" % self.port


def setUpModule():
    global FIRST, SECOND
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        FIRST, SECOND = pool.map(Server, (1, 2))


def tearDownModule():
    for server in (FIRST, SECOND):
        server.close()


class Silent:
    """A listener that takes connections and never says a word."""

    def __init__(self):
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(100)
        self.endpoint = "127.0.0.1:%d" % self._listener.getsockname()[1]

    def close(self):
        self._listener.close()


class EndpointTest(LeafTest):
    """A database of the same name on both servers, and a user whose rights end with it."""

    count = 0

    def setUp(self):
        super().setUp()
        EndpointTest.count += 1
        self.database = "e%d" % EndpointTest.count
        for server in (FIRST, SECOND):
            server.reset()
            server.sql(
                "CREATE DATABASE %s CHARACTER SET utf8mb4; CREATE OR REPLACE USER app@'%%' IDENTIFIED BY '%s';"
                "GRANT ALL ON %s.* TO app@'%%'" % (self.database, PASSWORD, self.database)
            )
            server.sql(TABLE, self.database)
        self.addCleanup(self.drop)
        self.password = self.box.write("password", PASSWORD + "\n")
        self.use(FIRST.endpoint, SECOND.endpoint)

    def drop(self):
        for daemon in self.box.daemons:
            self.assertNotIn(PASSWORD, daemon.log())
            daemon.kill()
        for server in (FIRST, SECOND):
            server.reset()
        for server in (FIRST, SECOND):
            server.sql("DROP DATABASE IF EXISTS %s" % self.database)

    def use(self, *endpoints, **more):
        settings = {"database": self.database, "user": "app", "password_file": self.password}
        settings.update(more)
        text = '[segment]\nstore = "mysql"\nrefresh_interval = "1s"\nfence = "node"\n[mysql]\n'
        text += "endpoints = [%s]\n" % ", ".join('"%s"' % endpoint for endpoint in endpoints)
        text += "".join('%s = "%s"\n' % item for item in settings.items() if item[1] is not None)
        self.box.env["LEAFCTL_CONFIG"] = self.box.write("leafctl.toml", text)

    def insert(self, server, tag, max_id=1, step=100):
        server.sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES ('%s', %d, %d)" % (tag, max_id, step),
                   self.database)  # fmt: skip

    def max_id(self, server, tag):
        return int(server.sql("SELECT max_id FROM leaf_alloc WHERE biz_tag = '%s'" % tag, self.database)[0][0])

    def store(self, daemon):
        return next(item for item in daemon.status()["dependencies"] if item["name"] == "database")

    def endpoint(self, daemon):
        return self.store(daemon)["identity"].split(": ")[0]

    def moves_on(self, daemon, tag, least):
        """Waits for an ID of at least `least`, whatever comes before."""

        def moved():
            response = daemon.v1(tag, 5)
            return response.status == 200 and int(json.loads(response.body)["ids"][-1]) >= least

        poll(moved, "%s moves on" % tag)

    def db_check(self, code, *more):
        # A busy machine is no fault of an endpoint's.
        patience = {"LEAFCTL_MYSQL_CONNECT_TIMEOUT": "60s", "LEAFCTL_MYSQL_QUERY_TIMEOUT": "60s"}
        result = self.box.run(["db", "check", "--json", *more], env=patience)
        self.assertEqual(result.rc, code, result)
        return json.loads(result.out)


class Choice(EndpointTest):
    def test_the_first_that_takes_writes(self):
        self.insert(FIRST, "pay", 1)
        self.insert(SECOND, "pay", 1001)
        self.use("127.0.0.1:%d" % free_port(), FIRST.endpoint, SECOND.endpoint)
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        FIRST.sql("SET GLOBAL read_only = 1")
        self.assertEqual(self.box.next("pay", "--direct"), [1001])
        self.assertEqual(self.max_id(FIRST, "pay"), 2)

    def test_none_takes_writes(self):
        """The error names each, and why."""
        dead = "127.0.0.1:%d" % free_port()
        self.use(dead, FIRST.endpoint, SECOND.endpoint)
        for server in (FIRST, SECOND):
            self.insert(server, "pay")
            server.sql("SET GLOBAL read_only = 1")
        result = self.check(self.box.run(["next", "pay", "--direct"]), 8, "no endpoint takes writes")
        self.assertRegex(result.err, r"%s: Can't connect" % dead)
        for server in (FIRST, SECOND):
            self.assertIn("%s: read-only" % server.endpoint, result.err)
        # A daemon says the same, stays up, and goes on by itself.
        daemon = self.box.serve(ready=False)
        poll(lambda: "%s: read-only" % SECOND.endpoint in daemon.get("/health/ready").body, "it says why")
        SECOND.sql("SET GLOBAL read_only = 0")
        daemon.wait_ready()
        poll(lambda: daemon.v1("pay").status == 200, "the tag")
        self.assertEqual(self.endpoint(daemon), SECOND.endpoint)

    def test_one_alone_that_is_read_only(self):
        self.use(FIRST.endpoint)
        FIRST.sql("SET GLOBAL read_only = 1")
        self.check(self.box.run(["tag", "list"]), 8, "read-only (%s)" % FIRST.endpoint)

    def test_a_name(self):
        self.insert(FIRST, "pay")
        self.use("localhost:%d" % FIRST.port)
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        # A label may have 63 characters: that this is no name is found out here, and no server is asked.
        self.use("x" * 64, "localhost:%d" % FIRST.port)
        self.assertEqual(self.box.next("pay", "--direct"), [2])

    def test_malformed(self):
        for text in ("db1:x", "::1", "db1;ssl-enforce=0", "[db1]:1"):
            self.use(text)
            self.check(self.box.run(["tag", "list"]), 6, "mysql.endpoints", "is not HOST:PORT")

    def test_a_failover_by_read_only_under_load(self):
        """No request fails while there is reserve; a daemon that has moved stays when the first takes writes again."""
        tags = ["pay%d" % number for number in range(4)]
        SECOND.follow(FIRST)
        FIRST.sql("DROP TABLE leaf_alloc", self.database)
        FIRST.sql(TABLE, self.database)
        for tag in tags:
            self.insert(FIRST, tag, 1, 2000)

        def synchronous():
            table = "SELECT biz_tag, max_id FROM leaf_alloc ORDER BY biz_tag"
            try:
                return FIRST.sql(table, self.database) == SECOND.sql(table, self.database)
            except SqlError:
                return False

        poll(synchronous, "the replica has it all")
        # A server that answers late is no server that is gone: two that take writes would both be used.
        daemon = self.box.serve(
            "--set", "segment.step_policy=fixed", "--set", "segment.reserve_time=5s",
            "--set", "mysql.connect_timeout=60s", "--set", "mysql.query_timeout=60s",
        )  # fmt: skip
        self.assertEqual(self.endpoint(daemon), FIRST.endpoint)
        stop = threading.Event()
        taken = {tag: [] for tag in tags}
        failures = []

        def take(tag):
            while not stop.is_set():
                response = daemon.v1(tag, 10)
                if response.status == 200:
                    taken[tag] += [int(text) for text in json.loads(response.body)["ids"]]
                else:
                    failures.append(response.body)
                time.sleep(0.002)
            daemon.disconnect()

        with concurrent.futures.ThreadPoolExecutor(len(tags)) as pool:
            takers = [pool.submit(take, tag) for tag in tags]
            try:
                poll(lambda: all(len(ids) > 3000 for ids in taken.values()), "every tag had several grants")
                FIRST.sql("SET GLOBAL read_only = 1")
                poll(synchronous, "the replica has caught up")
                SECOND.sql("STOP SLAVE; SET GLOBAL read_only = 0")
                poll(lambda: self.endpoint(daemon) == SECOND.endpoint, "it moves on")
                before = {tag: len(ids) for tag, ids in taken.items()}
                FIRST.sql("SET GLOBAL read_only = 0")
                poll(lambda: all(len(taken[tag]) > before[tag] + 4000 for tag in tags), "every tag goes on")
            finally:
                stop.set()
            for taker in takers:
                taker.result()
        self.assertEqual(failures, [])
        for ids in taken.values():
            self.check_distinct(ids)
        store = self.store(daemon)
        host = SECOND.sql("SELECT @@hostname")[0][0]
        self.assertTrue(
            store["identity"].startswith("%s: %s:%d server_id 2 " % (SECOND.endpoint, host, SECOND.port)), store
        )
        self.assertEqual(store["identity_changes"], 1)
        self.assertNotIn("frozen", daemon.log())
        self.assertRegex(
            daemon.log(), r"warning another database server is in use: %s .* instead of %s" % (SECOND.endpoint, FIRST.endpoint)
        )
        changes = metrics.of(daemon).get("leaf_dependency_identity_changes_total", dependency="database", kind="mysql")
        self.assertEqual(changes, 1)

    def test_the_first_grant_of_another_server_is_judged(self):
        """It is checked against the marks by itself: here no refresh comes in between."""
        self.insert(FIRST, "pay", 1, 100)
        self.insert(FIRST, "ship", 1, 100)
        daemon = self.box.serve("--set", "segment.refresh_interval=1h", "--set", "segment.step_policy=fixed")
        self.assertEqual(daemon.ids("pay", 5), [1, 2, 3, 4, 5])
        self.assertEqual(daemon.ids("ship"), [1])
        # The second server has lost what the first had committed of one of them.
        self.insert(SECOND, "pay", 51, 100)
        self.insert(SECOND, "ship", 10001, 100)
        FIRST.kill()
        ids = [1, 2, 3, 4, 5]

        def frozen():
            response = daemon.v1("pay", 5)
            if response.status == 200:
                ids.extend(int(text) for text in json.loads(response.body)["ids"])
            return response.status == 409

        poll(frozen, "the tag freezes")
        self.check_distinct(ids)
        self.assertEqual(self.max_id(SECOND, "pay"), 51, "the row that went back is left as it is")

        self.moves_on(daemon, "ship", 10001)
        self.assertEqual(self.store(daemon)["identity_changes"], 1)

    def test_nothing_is_committed_on_the_server_before(self):
        """A transaction that began on a server that is not in use any more does not commit there: the first can be
        written to all the time, but not connected to."""
        for server in (FIRST, SECOND):
            for tag in ("slow", "fast"):
                self.insert(server, tag, 1 if server is FIRST else 100001, 10)
        proxy = DelayProxy(FIRST.port)
        self.addCleanup(proxy.close)
        self.use("127.0.0.1:%d" % proxy.port, SECOND.endpoint, query_timeout="50s")
        daemon = self.box.serve("--set", "segment.step_policy=fixed", "--set", "segment.refresh_interval=1h",
                                "--set", "server.request_timeout=1s")  # fmt: skip
        # On a slow disk the first grant takes longer than a request waits.
        first = poll(lambda: [reply for reply in [daemon.v1("fast")] if reply.status == 200], "the first ID")[0]
        self.assertEqual(json.loads(first.body)["ids"], ["1"])
        lock = subprocess.Popen(
            [FIRST.client, "--no-defaults", "-u" + FIRST.user, "--socket=" + FIRST.socket, "-N", "-B", "--unbuffered",
             self.database],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.addCleanup(lock.stdout.close)
        self.addCleanup(lock.wait)
        self.addCleanup(lock.kill)
        lock.stdin.write(b"BEGIN; SELECT max_id FROM leaf_alloc WHERE biz_tag = 'slow' FOR UPDATE; SELECT 'held';\n")
        lock.stdin.flush()
        while b"held" not in lock.stdout.readline():
            pass
        self.assertEqual(daemon.v1("slow").status, 503)  # its transaction waits for the row

        def waiting():
            return FIRST.sql("SELECT id FROM information_schema.processlist WHERE user = 'app' AND info LIKE 'SELECT%FOR UPDATE%'")

        poll(waiting, "the transaction waits")
        proxy.shut()
        FIRST.cut("app", "command = 'Sleep'")

        self.moves_on(daemon, "fast", 100001)
        self.assertTrue(waiting(), "the old transaction still waits")
        lock.stdin.write(b"ROLLBACK;\n")
        lock.stdin.close()
        poll(lambda: not FIRST.sql("SELECT id FROM information_schema.processlist WHERE user = 'app'"),
             "the old connections go")  # fmt: skip
        self.assertEqual(self.max_id(FIRST, "slow"), 1, "committed on the server before")
        poll(lambda: daemon.v1("slow").status == 200, "it goes on")
        self.assertGreaterEqual(self.max_id(SECOND, "slow"), 100011)
        self.assertEqual(self.max_id(FIRST, "slow"), 1)


class Silence(EndpointTest):
    def setUp(self):
        super().setUp()
        self.silent = Silent()
        self.addCleanup(self.silent.close)
        self.insert(FIRST, "pay")

    def test_silent_from_the_start(self):
        self.use(self.silent.endpoint, connect_timeout="1s")
        self.check(self.box.run(["next", "pay", "--direct"]), 8, self.silent.endpoint)
        self.use(self.silent.endpoint, FIRST.endpoint, connect_timeout="1s")
        # A server that answers late has its first range dropped.
        self.assertEqual(len(self.box.next("pay", "--direct")), 1)
        daemon = self.box.serve()
        poll(lambda: daemon.v1("pay").status == 200, "the second is used")

    def test_silent_while_it_is_in_use(self):
        self.insert(SECOND, "pay", 100001, 100)
        self.use(FIRST.endpoint, SECOND.endpoint, connect_timeout="1s", query_timeout="1s")
        daemon = self.box.serve("--set", "segment.refresh_interval=1h")
        self.assertEqual(daemon.v1("pay").status, 200)
        FIRST.freeze()
        try:
            self.moves_on(daemon, "pay", 100001)
        finally:
            FIRST.thaw()
        self.assertEqual(self.endpoint(daemon), SECOND.endpoint)


class Tls(EndpointTest):
    """The second server has a certificate for "localhost"; the first offers no encryption."""

    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(SECOND.dir, "tls")
        os.mkdir(cls.folder, 0o755)
        cls.make_ca("ca")
        cls.make_ca("other")
        cls.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr",
                    "-subj", "/CN=localhost")  # fmt: skip
        with open(os.path.join(cls.folder, "names"), "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:localhost\n")
        cls.openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                    "-days", "2", "-extfile", "names", "-out", "server.pem")  # fmt: skip
        for name in os.listdir(cls.folder):
            os.chmod(os.path.join(cls.folder, name), 0o644)
        # A newer server (11.8) makes itself a certificate, unless it is told not to.
        FIRST.restart("--skip-ssl")
        SECOND.restart(*("--ssl-%s=%s/%s" % (option, cls.folder, name) for option, name in
                         (("ca", "ca.pem"), ("cert", "server.pem"), ("key", "server.key"))))  # fmt: skip

    @classmethod
    def tearDownClass(cls):
        for server in (FIRST, SECOND):
            server.restart()

    @classmethod
    def make_ca(cls, name):
        cls.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", name + ".key",
                    "-out", name + ".pem", "-subj", "/CN=" + name)  # fmt: skip

    @classmethod
    def openssl(cls, *args):
        done = subprocess.run(["openssl", *args], cwd=cls.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120, check=False)  # fmt: skip
        if done.returncode != 0:
            raise AssertionError("openssl %s: %s" % (args, done.stdout.decode("utf-8", "replace")))

    def setUp(self):
        super().setUp()
        for server in (FIRST, SECOND):
            self.insert(server, "pay")
        # The server itself refuses connections of this user that are not encrypted.
        SECOND.sql("ALTER USER app@'%' REQUIRE SSL")

    def ca(self, name):
        return os.path.join(self.folder, name + ".pem")

    def test_disabled_and_preferred(self):
        self.use(SECOND.endpoint, tls="disabled")
        self.check(self.box.run(["next", "pay", "--direct"]), 4)
        self.use(SECOND.endpoint, tls="preferred")
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        FIRST.sql("UPDATE leaf_alloc SET max_id = 11", self.database)
        self.use(FIRST.endpoint, tls="preferred")
        self.assertEqual(self.box.next("pay", "--direct"), [11])

    def test_a_certificate_that_fits_nothing(self):
        """Neither the name nor the authority counts, unless mysql.tls says "verify": also where a newer client library (3.4) would
        look at both by itself. 127.1 is 127.0.0.1, but none of the names that it never looks at."""
        for number, tls in enumerate(("preferred", "required"), 1):
            self.use("127.1:%d" % SECOND.port, tls=tls)
            self.assertEqual(self.box.next("pay", "--direct"), [number])

    def test_required(self):
        self.use(SECOND.endpoint, tls="required")
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        self.use(FIRST.endpoint, tls="required")
        self.check(self.box.run(["next", "pay", "--direct"]), 8, "offers no TLS", "mysql.tls")
        # One that cannot be encrypted is passed over.
        self.use(FIRST.endpoint, SECOND.endpoint, tls="required")
        self.assertEqual(self.box.next("pay", "--direct"), [2])
        self.assertEqual(self.max_id(FIRST, "pay"), 1)

    def test_verify(self):
        name = "localhost:%d" % SECOND.port
        self.use(name, tls="verify", tls_ca=self.ca("ca"))
        self.assertEqual(self.box.next("pay", "--direct"), [1])
        odd = os.path.join(self.folder, "an odd; name='x'.pem")
        shutil.copy(self.ca("ca"), odd)
        self.use(name, tls="verify", tls_ca=odd)
        self.assertEqual(self.box.next("pay", "--direct"), [2])
        self.use(name, tls="verify", tls_ca=self.ca("other"))
        self.check(self.box.run(["next", "pay", "--direct"]), 8, "TLS", "certificate")
        self.use(name, tls="verify")  # an authority that this system does not know
        self.check(self.box.run(["next", "pay", "--direct"]), 8, "TLS", "certificate")
        # It is not called 127.1, which is the same address as 127.0.0.1: that one newer client libraries do not compare.
        self.use("127.1:%d" % SECOND.port, tls="verify", tls_ca=self.ca("ca"))
        result = self.box.run(["next", "pay", "--direct"])
        self.check(result, 8, "TLS")
        self.assertRegex(result.err, "Validation|Hostname verification")
        self.use("localhost:%d" % FIRST.port, tls="verify", tls_ca=self.ca("ca"))
        self.check(self.box.run(["next", "pay", "--direct"]), 8, "TLS", "does not support")
        self.use(name, tls="verify", tls_ca=self.ca("nothing"))
        self.check(self.box.run(["next", "pay", "--direct"]), 8, "TLS")
        for server, number in ((FIRST, 1), (SECOND, 3)):
            self.assertEqual(self.max_id(server, "pay"), number)

    def test_an_authority_without_verify(self):
        self.use(SECOND.endpoint, tls="required", tls_ca=self.ca("ca"))
        self.check(self.box.run(["next", "pay", "--direct"]), 6, "mysql.tls_ca")

    def test_a_daemon_encrypts_every_connection(self):
        self.use("localhost:%d" % SECOND.port, tls="verify", tls_ca=self.ca("ca"), query_timeout="1s")
        daemon = self.box.serve()
        self.assertEqual(daemon.ids("pay", 3), [1, 2, 3])
        # Connections that are cut are made again the same way; a server that hangs inside one is noticed.
        SECOND.cut("app")
        self.moves_on(daemon, "pay", 500)
        SECOND.freeze()
        try:
            poll(lambda: daemon.v1("pay", 500).status == 503, "the reserve is drained")
        finally:
            SECOND.thaw()
        poll(lambda: daemon.v1("pay").status == 200, "it goes on")


class Password(EndpointTest):
    def change(self, password):
        FIRST.sql("ALTER USER app@'%%' IDENTIFIED BY '%s'" % password)
        FIRST.cut("app")

    def test_a_changed_file_needs_no_restart(self):
        self.insert(FIRST, "pay")
        self.use(FIRST.endpoint)
        daemon = self.box.serve()
        daemon.ids("pay")
        self.change("another-" + PASSWORD)
        poll(lambda: "Access denied" in json.dumps(daemon.status()), "it is told")
        self.box.write("password", "another-" + PASSWORD + "\n")
        poll(lambda: self.store(daemon)["up"], "it comes in with the new password")
        # The file is read for every connection, and refused when others may read it.
        os.chmod(self.password, 0o644)
        self.change("another-" + PASSWORD)
        poll(lambda: "refusing secret file" in json.dumps(daemon.status()), "it is told")
        os.chmod(self.password, 0o600)
        poll(lambda: self.store(daemon)["up"], "it comes in again")
        poll(lambda: daemon.v1("pay").status == 200, "the tag")
        self.assertNotIn("another", daemon.log())


class Check(EndpointTest):
    """db check, on what makes commits durable."""

    def findings(self, report, index, severity):
        """Of an endpoint; of all of them together if `index` is None."""
        of = report if index is None else report["endpoints"][index]
        return [item["message"] for item in of["findings"] if item["severity"] == severity]

    def test_a_server_alone(self):
        self.use(FIRST.endpoint)
        report = self.db_check(0)
        self.assertEqual(list(report), ["ok", "findings", "endpoints"])
        self.assertEqual(
            list(report["endpoints"][0]),
            ["endpoint", "reached", "identity", "takes_writes", "in_use", "state", "findings"],
        )
        endpoint = report["endpoints"][0]
        self.assertEqual(
            (endpoint["endpoint"], endpoint["reached"], endpoint["takes_writes"], endpoint["in_use"], endpoint["state"]),
            (FIRST.endpoint, True, True, True, "takes writes"),
        )
        self.assertEqual(self.findings(report, 0, "problem"), [])
        text = self.box.ok("db", "check")
        self.assertIn("%s: takes writes, in use: " % FIRST.endpoint, text)
        self.assertIn("ok: leafctl can use this schema", text)
        # A missing privilege is told, and goes when it is granted.
        self.assertTrue(any("PROCESS" in note for note in self.findings(report, 0, "note")), report)
        FIRST.sql("GRANT PROCESS ON *.* TO app@'%'")
        self.assertEqual(self.findings(self.db_check(0), 0, "note"), [])
        FIRST.sql("SET GLOBAL sync_binlog = 0")
        self.assertIn("sync_binlog", self.findings(self.db_check(10), 0, "problem")[0])
        FIRST.sql("SET GLOBAL sync_binlog = 1; GRANT READ ONLY ADMIN ON *.* TO app@'%'")
        self.assertIn("READ_ONLY ADMIN", self.findings(self.db_check(0), 0, "note")[0])

    def test_an_endpoint_that_is_away(self):
        """The others are examined all the same."""
        dead = "127.0.0.1:%d" % free_port()
        self.use(dead, FIRST.endpoint)
        FIRST.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        try:
            report = self.db_check(10)
            text = self.box.run(["db", "check"])
        finally:
            FIRST.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        self.assertEqual([item["reached"] for item in report["endpoints"]], [False, True])
        self.assertIn("cannot be examined: Can't connect", self.findings(report, 0, "problem")[0])
        self.assertIn("innodb_flush_log_at_trx_commit is 2", self.findings(report, 1, "problem")[0])
        self.assertEqual(text.rc, 10)
        self.assertIn("  problem: cannot be examined", text.out)
        # With none at all there is nothing to report.
        self.use(dead, "127.0.0.1:%d" % free_port())
        self.check(self.box.run(["db", "check", "--json"]), 8)

    def test_a_password_that_only_one_takes(self):
        SECOND.sql("ALTER USER app@'%' IDENTIFIED BY 'different'")
        report = self.db_check(10)
        self.assertEqual([item["reached"] for item in report["endpoints"]], [True, False])
        self.assertIn("Access denied", self.findings(report, 1, "problem")[0])

    def test_none_takes_writes(self):
        for server in (FIRST, SECOND):
            server.sql("SET GLOBAL read_only = 1")
        report = self.db_check(10)
        self.assertEqual([item["state"] for item in report["endpoints"]], ["read-only", "read-only"])
        self.assertIn("no endpoint takes writes", self.findings(report, None, "problem")[0])

    def test_two_that_take_writes(self):
        report = self.db_check(10)
        self.assertIn(
            "%s and %s take writes, each by itself" % (FIRST.endpoint, SECOND.endpoint),
            self.findings(report, None, "problem")[0],
        )
        # Each would give its next worker number to another node.
        numbers = (
            "--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay", "--set", "snowflake.address=127.0.0.1:8080"
        )  # fmt: skip
        self.box.ok("db", "init")
        self.check(self.box.run(["next", "--mode", "snowflake", "--direct", *numbers]), 11, "take writes, each by itself")
        self.assertEqual(FIRST.sql("SELECT COUNT(*) FROM leaf_workerid_alloc", self.database), [["0"]])
        # The same server under two names is one.
        self.use(FIRST.endpoint, "localhost:%d" % FIRST.port)
        self.assertEqual(self.findings(self.db_check(10), None, "problem"), [])
        self.assertEqual(self.findings(self.db_check(10, *numbers), None, "problem"), [])
        self.box.ok("next", "--mode", "snowflake", "--direct", *numbers, "--set", "snowflake.claim_watch=0s")

    def test_replicas(self):
        SECOND.follow(FIRST)
        FIRST.sql("GRANT PROCESS ON *.* TO app@'%'")
        poll(lambda: FIRST.sql("SELECT 1 FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"),
             "the replica is there")  # fmt: skip
        report = self.db_check(10)
        self.assertIn("asynchronous replicas: 1: ", self.findings(report, 0, "problem")[0])
        self.assertIn("fence", self.findings(report, 0, "problem")[0])
        self.assertEqual(self.findings(report, 1, "problem"), [])
        self.assertEqual(report["endpoints"][1]["state"], "read-only")
        # A user that may not see replicas is told so; the other endpoint says that there is one.
        FIRST.sql("REVOKE PROCESS ON *.* FROM app@'%'")
        report = self.db_check(10)
        self.assertIn("replicas cannot be seen", self.findings(report, 0, "problem")[0])
        self.assertIn("PROCESS", self.findings(report, 0, "note")[0])
        # Enabled, but the replica does not take part.
        FIRST.sql("GRANT PROCESS ON *.* TO app@'%'; SET GLOBAL rpl_semi_sync_master_enabled = 1")
        report = self.db_check(10)
        self.assertIn("no replica acknowledges", self.findings(report, 0, "problem")[0])
        # And with it.
        SECOND.sql("STOP SLAVE; SET GLOBAL rpl_semi_sync_slave_enabled = 1; START SLAVE")
        poll(lambda: FIRST.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")[0][1] == "1", "it acknowledges")
        poll(lambda: FIRST.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'")[0][1] == "ON", "it acknowledges")
        report = self.db_check(0)
        self.assertIn("semi-synchronous replication: a COMMIT waits for one of 1 replica", self.findings(report, 0, "note")[0])
        # Worker numbers need more than that: a server that was cut off may go on taking writes.
        report = self.db_check(10, "--set", "snowflake.registry=sql", "--set", "snowflake.cluster=pay")
        # The tables are missing, too.
        self.assertIn("snowflake IDs repeat", " ".join(self.findings(report, None, "problem")))
        self.assertEqual(self.box.run(["db", "check"]).rc, 0)


if __name__ == "__main__":
    main()
