"""Nodes of one cluster on databases that they share or believe to share, with a witness in ZooKeeper."""

import json
import threading
import time
import urllib.parse

from leafctl import LeafTest, Sandbox, poll
from servers import PASSWORD

TABLE = """CREATE TABLE leaf_alloc (
  biz_tag varchar(128) NOT NULL DEFAULT '', max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL,
  description varchar(256) DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"""


class Taker:
    """Takes IDs of the tags from a daemon all the time, and keeps them and every other answer."""

    def __init__(self, daemon, tags, pause=0.005, count=1):
        self.ids = {tag: [] for tag in tags}
        self.refused = []  # when it was asked for and answered, and the body
        self._daemon = daemon
        self._pause = pause
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            for tag, ids in self.ids.items():
                asked_at = time.monotonic()
                response = self._daemon.v1(tag, self._count)
                if response.status == 200:
                    ids += [int(text) for text in json.loads(response.body)["ids"]]
                else:
                    self.refused.append((asked_at, time.monotonic(), response.body))
            time.sleep(self._pause)
        self._daemon.disconnect()

    @property
    def codes(self):
        """Of what was refused."""
        return [json.loads(body)["code"] for _, _, body in self.refused]

    def stop(self):
        self._stop.set()
        self._thread.join()


class ClusterTest(LeafTest):
    """Each test has a database and a cluster name of its own, and as many nodes as it likes.

    A subclass sets `zookeeper`, and `databases`, of which the first is every node's unless a node is told otherwise.
    """

    zookeeper = None
    databases = ()
    session_timeout = "2s"
    count = 0

    def setUp(self):
        for server in (self.zookeeper, *self.databases):
            server.ensure_up()
        super().setUp()
        ClusterTest.count += 1
        self.name = "c%d" % ClusterTest.count
        self.configure(self.box)
        for server in self.databases:
            server.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % self.name)
            server.sql(TABLE, self.name)
        self.addCleanup(self.drop)

    def drop(self):
        self.zookeeper.ensure_up()
        for server in self.databases:
            server.ensure_up()
            server.sql("DROP DATABASE IF EXISTS %s" % self.name)

    @property
    def one(self):
        return self.databases[0]

    @property
    def two(self):
        return self.databases[1]

    def endpoints(self, server):
        return '["127.0.0.1:%d"]' % (server or self.one).port

    def configure(self, box, server=None, fence=None, fallback=False):
        lines = ['[segment]\nstore = "mysql"\nrefresh_interval = "1s"\nstep_policy = "fixed"']
        if fence:
            lines.append('fence = "%s"' % fence)
        if fallback:
            lines.append("witness_fallback = true")
        password = box.write("password", PASSWORD + "\n")
        lines += [
            "[mysql]\nendpoints = %s" % self.endpoints(server),
            'database = "%s"\nuser = "leaf"\npassword_file = "%s"' % (self.name, password),
            # A node that is new waits for others, which is what test_fault_matrix is about.
            '[snowflake]\nenabled = false\ncluster = "%s"\nclaim_watch = "0s"' % self.name,
            '[zookeeper]\nconnect = "%s"\nsession_timeout = "%s"' % (self.zookeeper.connect, self.session_timeout),
        ]
        box.env["LEAFCTL_CONFIG"] = box.write("leafctl.toml", "\n".join(lines) + "\n")

    def node(self, **settings):
        box = Sandbox()
        self.addCleanup(box.close)
        self.configure(box, **settings)
        return box

    def insert(self, tag, max_id=1, step=10, servers=None):
        for server in servers or self.databases:
            server.sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES ('%s', %d, %d)" % (tag, max_id, step), self.name)

    def max_id(self, tag, server=None):
        return int((server or self.one).sql("SELECT max_id FROM leaf_alloc WHERE biz_tag = '%s'" % tag, self.name)[0][0])

    def set_max_id(self, tag, max_id, server=None):
        (server or self.one).sql("UPDATE leaf_alloc SET max_id = %d WHERE biz_tag = '%s'" % (max_id, tag), self.name)

    def witness(self, tag):
        name = urllib.parse.quote(tag, safe="")
        with self.zookeeper.client() as client:
            data, _ = client.get("/snowflake/%s/leafctl/witness/%s" % (self.name, name))
        return int(json.loads(data)["end"])

    def wait_frozen(self, daemon, tag):
        def look():
            status = daemon.tag_status(tag)
            return status if status and status["state"] == "frozen" else None

        return poll(look, "tag %s is frozen" % tag)

    def wait_thawed(self, daemon, tag):
        poll(lambda: daemon.tag_status(tag)["state"] != "frozen", "tag %s thaws" % tag)
