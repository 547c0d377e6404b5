"""Database and ZooKeeper that are backed up, and restored together or alone, under the nodes of a cluster."""

import os
import subprocess
import tempfile

from leafctl import DEADLINE_S, poll

PATIENCE_S = 240.0


def put_back_dump(server, database, dump, *lists):
    """A node that runs may enter itself in one of the tables `lists` before its rows are written: leafctl(7) says to run it
    again."""
    command = ["mariadb", "--no-defaults", "--socket", server.socket, database]

    def put_back():
        done = subprocess.run(command, input=dump, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S)
        if done.returncode == 0:
            return True
        if b"Duplicate entry" in done.stderr and any(name.encode() in done.stderr for name in lists):
            return False
        raise AssertionError("mariadb: " + done.stderr.decode("utf-8", "replace"))

    poll(put_back, "the dump is written whole")


class Restores:
    """Of a ClusterTest. A restore of ZooKeeper is one for whatever else its server keeps."""

    def back_up(self):
        """Both as they are at one moment: while ZooKeeper is away nothing is granted."""
        self.zookeeper.stop()
        self.backup = self.zookeeper.copy_data(os.path.join(tempfile.mkdtemp(dir=self.box.dir), "zookeeper"))
        self.dump = self._client("mariadb-dump").stdout
        self.zookeeper.start()

    def restore(self):
        """Both, and no node sees one without the other."""
        self.zookeeper.kill()
        self.restore_database()
        self.restore_zookeeper()

    def restore_zookeeper(self):
        self.zookeeper.kill()
        self.zookeeper.put_back_data(self.backup)
        self.zookeeper.start()

    def restore_database(self):
        put_back_dump(self.one, self.name, self.dump, "leafctl_nodes", "leafctl_orders")

    def _client(self, program, **more):
        command = [program, "--no-defaults", "--socket", self.one.socket, self.name]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S, **more)

    def cluster(self, daemon):
        """What it knows of the others."""
        return daemon.status()["witness"]["cluster"]

    def beat_again(self, *daemons, times=2):
        """Each has told ZooKeeper that it is there, after now, and remembers that: two are enough for one that ends next."""
        goals = [(daemon, self.cluster(daemon)["heartbeats"] + times) for daemon in daemons]
        for daemon, goal in goals:
            poll(lambda daemon=daemon, goal=goal: self.cluster(daemon)["heartbeats"] >= goal, "it is in touch", PATIENCE_S)
