"""Database and ZooKeeper that are backed up, and restored together or alone, under the nodes of a cluster."""

import os
import subprocess
import tempfile

from leafctl import DEADLINE_S, poll

PATIENCE_S = 240.0


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
        """A node that runs may enter itself in a list before its rows are written: leafctl(7) says to run it again."""
        while True:
            try:
                self._client("mariadb", input=self.dump, stderr=subprocess.PIPE)
                return
            except subprocess.CalledProcessError as error:
                listed = b"leafctl_nodes" in error.stderr or b"leafctl_orders" in error.stderr
                if not listed or b"Duplicate entry" not in error.stderr:
                    raise AssertionError("mariadb: " + error.stderr.decode("utf-8", "replace")) from error

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
