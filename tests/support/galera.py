"""Starts a private Galera cluster on loopback: real MariaDB servers, each with its own data, killed and frozen at will."""

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import explain
import sql_client
from servers import suspend

START_TIMEOUT_S = 240.0
PROVIDER = "/usr/lib/galera/libgalera_smm.so"
PASSWORD = "leaf-secret"
ATTEMPTS = 5  # to start, each on other ports


def _free_ports(count):
    """Adjacent free ports, below those that the kernel hands out by itself."""
    while True:
        first = random.randrange(20000, 32000 - count)
        with_probes = []
        try:
            for port in range(first, first + count):
                probe = socket.socket()
                with_probes.append(probe)
                probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for probe in with_probes:
                probe.close()


class Node:
    """One server. `root` comes in by the socket, user `leaf` by TCP, with PASSWORD."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.home = os.path.join(cluster.dir, "node%d" % number)
        self.socket = os.path.join(self.home, "socket")
        self.log = os.path.join(self.home, "log")
        self.process = None
        self.port = 0
        self.base = 0
        explain.watch(self, lambda: os.path.exists(self.log))

    def log_title(self):
        return "Galera's node %d on port %d (%s)" % (self.number, self.port, "running" if self.running() else "ended")

    def log_tail(self, lines):
        return explain.tail_of(self.log, lines)

    def command(self, *options):
        address = "gcomm://" + ",".join("127.0.0.1:%d" % node.base for node in self.cluster.nodes)
        provider_options = [
            "base_port=%d" % self.base,
            "gmcast.listen_addr=tcp://127.0.0.1:%d" % self.base,
            "ist.recv_addr=127.0.0.1:%d" % (self.base + 1),
            "gcache.size=16M",
        ]
        command = [self.cluster.server, "--no-defaults"]
        if os.getuid() == 0:
            command.append("--user=mysql")
        return command + [
            "--datadir=" + os.path.join(self.home, "data"), "--tmpdir=" + os.path.join(self.home, "tmp"), "--socket=" + self.socket, "--port=%d" % self.port,
            "--bind-address=127.0.0.1", "--pid-file=" + os.path.join(self.home, "pid"), "--skip-name-resolve",
            "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-use-native-aio=OFF",
            "--performance-schema=OFF", "--server-id=%d" % self.number, "--binlog-format=ROW",
            "--default-storage-engine=InnoDB", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON",
            # A newer server (11.8) has a plugin with a variable for most of Galera's options, but not for gmcast.isolate.
            "--loose-plugin-wsrep-provider=OFF",
            "--wsrep-provider=" + PROVIDER, "--wsrep-cluster-address=" + address, "--wsrep-sst-method=rsync",
            "--wsrep-node-name=node%d" % self.number, "--wsrep-node-address=127.0.0.1:%d" % self.base,
            "--wsrep-provider-options=" + ";".join(provider_options),
            "--wsrep-sst-receive-address=127.0.0.1:%d" % (self.base + 2), *options,
        ]  # fmt: skip

    def start(self, *options, wait=True):
        assert not self.running()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(*options), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if wait:
            self.wait_ready()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()[-6000:]
        except FileNotFoundError:
            return ""

    def sql(self, statements):
        return sql_client.rows(self.socket, statements, timeout_s=120)

    def wsrep(self):
        """Its state; empty if it does not answer."""
        with contextlib.suppress(sql_client.SqlError):
            return dict(sql_client.rows(self.socket, "SHOW GLOBAL STATUS LIKE 'wsrep%'", timeout_s=10))
        return {}

    def set_provider_option(self, name, value):
        """An option of Galera, such as pc.bootstrap."""
        self.sql("SET GLOBAL wsrep_provider_options = '%s=%d'" % (name, value))

    def ready(self):
        state = self.wsrep()
        return state.get("wsrep_ready") == "ON" and state.get("wsrep_cluster_status") == "Primary"

    def wait_ready(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.ready():
            if not self.running():
                raise AssertionError("node %d has ended:\n%s" % (self.number, self.read_log()))
            if time.monotonic() > deadline:
                raise AssertionError("node %d does not become ready:\n%s" % (self.number, self.read_log()))
            time.sleep(0.1)

    def kill(self):
        """kill -9, its helpers included."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(60)
        self.process = None

    def stop(self):
        """An orderly end."""
        self.process.terminate()
        self.process.wait(START_TIMEOUT_S)
        self.process = None

    def freeze(self):
        suspend(self.process.pid)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)


class GaleraCluster:
    """A cluster of `size` nodes, all of them ready, with an empty database `leaf` that the user leaf owns."""

    def __init__(self, size=3):
        if not os.path.exists(PROVIDER):
            raise AssertionError("there is no Galera: apt-get install galera-4")
        self.server = self._find("mariadbd")
        self._find("rsync")
        self.user = sql_client.USER
        self.dir = tempfile.mkdtemp(prefix="leafctl-galera-")
        self.nodes = []
        atexit.register(self.close)
        os.chmod(self.dir, 0o711)
        self.nodes = [Node(self, number + 1) for number in range(size)]
        self._make_data()
        for attempt in range(ATTEMPTS):
            # Another process may take one of them first: then a node ends, and other ports are tried.
            first = _free_ports(4 * size)
            for place, node in enumerate(self.nodes):
                node.base = first + 4 * place
                node.port = node.base + 3
            try:
                self.bootstrap()
                break
            except AssertionError:
                # Or Galera gives up: a thread of its own was quicker than the one that made it.
                ended = any(node.process is not None and not node.running() for node in self.nodes)
                for node in self.nodes:
                    node.kill()
                if not ended or attempt + 1 == ATTEMPTS:
                    self.close()
                    raise
                self._make_data()
        self.nodes[0].sql(
            "CREATE DATABASE leaf CHARACTER SET utf8mb4; CREATE USER leaf@'%%' IDENTIFIED BY '%s';"
            "GRANT ALL ON leaf.* TO leaf@'%%'" % PASSWORD
        )

    @staticmethod
    def _find(program):
        path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if not path:
            raise AssertionError("there is no %s: apt-get install mariadb-server galera-4 rsync" % program)
        return path

    def _make_data(self):
        """Made once and copied: the joiners get the first node's data anyway."""
        first = os.path.join(self.nodes[0].home, "data")
        for node in self.nodes:
            shutil.rmtree(node.home, ignore_errors=True)
            os.mkdir(node.home, 0o755)
            # Its own: a server that starts removes every temporary table it finds.
            os.mkdir(os.path.join(node.home, "tmp"), 0o777)
        install = [self._find("mariadb-install-db"), "--no-defaults", "--datadir=" + first,
                   "--tmpdir=" + os.path.join(self.nodes[0].home, "tmp"), "--skip-test-db",
                   "--auth-root-authentication-method=socket", "--auth-root-socket-user=" + self.user,
                   "--innodb-log-file-size=16M", "--innodb-use-native-aio=OFF"]  # fmt: skip
        if os.getuid() == 0:
            for node in self.nodes:
                shutil.chown(node.home, "mysql", "mysql")
                shutil.chown(os.path.join(node.home, "tmp"), "mysql", "mysql")
            install.append("--user=mysql")
        made = subprocess.run(install, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=300, check=False)  # fmt: skip
        if made.returncode != 0:
            raise AssertionError("mariadb-install-db failed:\n" + made.stdout.decode("utf-8", "replace"))
        for node in self.nodes[1:]:
            subprocess.run(["cp", "-a", first, node.home + "/data"], check=True, timeout=120)

    def bootstrap(self):
        """Starts them all, the first as a new cluster."""
        self.nodes[0].start("--wsrep-new-cluster")
        for node in self.nodes[1:]:
            node.start()

    def close(self):
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
