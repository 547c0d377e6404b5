"""Starts a private ZooKeeper for tests, one server or an ensemble, and stops, kills and freezes its members."""

import atexit
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import explain
from delay_proxy import DelayProxy
from servers import START_TIMEOUT_S, free_port
from zk_client import SEQUENTIAL, SessionExpired, ZkClient, session_password

JARS = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
ATTEMPTS = 8  # ports to try
# The one-shot compiler starts sooner.
JAVA_OPTIONS = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]


class Proxy(DelayProxy):
    """Between a client and a server: delay, cut, refuse/accept, and blackhole/thaw (accepts, answers nothing)."""

    def blackhole(self):
        self.freeze()


class Member:
    """One server process. Data and port stay the same over restarts."""

    def __init__(self, home, ports, servers=(), number=1, snap_count=None):
        self.home = home
        self.snap_count = snap_count  # transactions after which it takes a snapshot and begins another log, about
        self.port, self.number = ports[0], number
        self.connect = "127.0.0.1:%d" % self.port
        self.log = os.path.join(home, "log")
        self.process = None
        os.makedirs(os.path.join(home, "data"), exist_ok=True)
        lines = [
            "dataDir=%s/data" % home,
            "clientPort=%d" % self.port,
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "tickTime=500",
            "initLimit=20",
            "syncLimit=10",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=*",
            *servers,
        ]
        with open(os.path.join(home, "zoo.cfg"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        with open(os.path.join(home, "data", "myid"), "w", encoding="utf-8") as file:
            file.write("%d\n" % number)
        explain.watch(self, lambda: os.path.exists(self.log))

    def log_title(self):
        return "ZooKeeper %d on port %d (%s)" % (self.number, self.port, "running" if self.running() else "ended")

    def log_tail(self, lines):
        return explain.tail_of(self.log, lines)

    def launch(self):
        assert not self.running()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["java", *JAVA_OPTIONS, *self.more_options(), "-cp", JARS, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                 os.path.join(self.home, "zoo.cfg")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def more_options(self):
        return ["-Dzookeeper.snapCount=%d" % self.snap_count] if self.snap_count else []

    def snapshots(self):
        """Their names; a new log begins with each."""
        return {os.path.basename(path) for path in glob.glob(os.path.join(self.home, "data", "version-2", "snapshot.*"))}

    def replace(self):
        """Another machine takes its place in an ensemble: with its number, and nothing else of it. Does not wait."""
        self.kill()
        shutil.rmtree(os.path.join(self.home, "data", "version-2"))
        self.launch()

    def start(self):
        """Starts it and waits until it serves; in an ensemble that takes a majority."""
        self.launch()
        self.wait_up()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def ask(self, word):
        """The answer to a four-letter word; "" if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                answer = b""
                while piece := connection.recv(65536):
                    answer += piece
                return answer.decode("utf-8", "replace")
        except OSError:
            return ""

    def zxid(self):
        """Of its last transaction; None while it does not serve."""
        found = re.search(r"^Zxid: (0x[0-9a-f]+)$", self.ask("srvr"), re.MULTILINE)
        return int(found.group(1), 16) if found else None

    def mode(self):
        """"standalone", "leader", "follower"; None while it does not serve."""
        found = re.search(r"^Mode: (\w+)$", self.ask("srvr"), re.MULTILINE)
        return found.group(1) if found else None

    def sessions(self):
        """The numbers of the sessions connected to this server."""
        return [int(number, 16) for number in re.findall(r"sid=0x([0-9a-f]+)", self.ask("cons"))]

    def wait_up(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.mode() is None:
            if not self.running() or time.monotonic() > deadline:
                raise AssertionError("ZooKeeper does not come up:\n" + self.read_log())
            time.sleep(0.05)

    def port_was_taken(self):
        return not self.running() and "Address already in use" in self.read_log()

    def _end(self, number):
        if not self.running():
            return
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """An orderly end."""
        self._end(signal.SIGTERM)

    def kill(self):
        self._end(signal.SIGKILL)

    def restart(self):
        self.stop()
        self.start()

    def copy_data(self, folder):
        """What it knows now, while it does not run; `folder` is made."""
        assert not self.running()
        return shutil.copytree(os.path.join(self.home, "data"), folder)

    def put_back_data(self, folder):
        """A restore: it knows what it knew then, and nothing else. It does not run."""
        assert not self.running()
        shutil.rmtree(os.path.join(self.home, "data"))
        shutil.copytree(folder, os.path.join(self.home, "data"))

    def freeze(self):
        """Hangs: connections stay open, nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def ensure_up(self):
        if self.running():
            self.thaw()
            self.wait_up()
        else:
            self.start()

    def client(self, **options):
        return ZkClient(self.connect, **options)

    def expire(self, session_id):
        """Ends another client's session, as if it had timed out. Its client learns it when it comes back."""
        # Its own client may take it back in between: until the server says that it is gone.
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                ZkClient(self.connect, session=(session_id, session_password(session_id))).close()
            except SessionExpired:
                return
            except OSError:
                pass
        raise AssertionError("session %#x does not end" % session_id)


def _need_java():
    if shutil.which("java") is None or not os.path.exists(JARS.split(":", maxsplit=1)[0]):
        raise AssertionError("there is no ZooKeeper: apt-get install zookeeper default-jre-headless")


class ZooKeeper(Member):
    """A single server, up when this returns."""

    def __init__(self):
        _need_java()
        self.dir = tempfile.mkdtemp(prefix="leafctl-zookeeper-")
        atexit.register(self.close)
        for attempt in range(ATTEMPTS):
            super().__init__(os.path.join(self.dir, str(attempt)), [free_port()])
            try:
                self.start()
                return
            except AssertionError:
                if attempt + 1 == ATTEMPTS or not self.port_was_taken():
                    raise

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Ensemble:
    """Several servers, all up when this returns. `connect` names them all."""

    def __init__(self, size=3, snap_count=None):
        _need_java()
        self.dir = tempfile.mkdtemp(prefix="leafctl-ensemble-")
        atexit.register(self.close)
        self.members = []
        for attempt in range(ATTEMPTS):
            ports = [[free_port() for _ in range(3)] for _ in range(size)]
            servers = ["server.%d=127.0.0.1:%d:%d" % (i + 1, ports[i][1], ports[i][2]) for i in range(size)]
            self.members = [
                Member(os.path.join(self.dir, "%d-%d" % (attempt, i + 1)), ports[i], servers, i + 1, snap_count)
                for i in range(size)
            ]
            for member in self.members:
                member.launch()
            try:
                self.wait_up()
                return
            except AssertionError:
                taken = any("Address already in use" in member.read_log() for member in self.members)
                for member in self.members:
                    member.kill()
                if attempt + 1 == ATTEMPTS or not taken:
                    raise

    @property
    def connect(self):
        return ",".join(member.connect for member in self.members)

    def wait_up(self):
        """Until every member that runs serves."""
        for member in self.members:
            if member.process is not None:
                member.wait_up()

    def leader(self):
        """The member that leads; waits for an election."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for member in self.members:
                if member.running() and member.mode() == "leader":
                    return member
            time.sleep(0.05)
        raise AssertionError("no server leads:\n" + "\n".join(member.read_log() for member in self.members))

    def followers(self):
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def kill(self):
        for member in self.members:
            member.kill()

    def start(self):
        """Starts those that do not run, and waits for all."""
        for member in self.members:
            if not member.running():
                member.launch()
        for member in self.members:
            member.wait_up()

    def wait_in_step(self):
        """Until every member that runs has the same transactions, and two that were made after this began.

        ZooKeeper 3.8 may lose acknowledged writes if members are killed while one of them joins (ZOOKEEPER-4643,
        ZOOKEEPER-4646).
        """
        with self.client() as client:
            for name in ("one", "two"):
                path = client.create("/in-step-" + name, b"", flags=SEQUENTIAL)
                client.delete(path)

        def in_step():
            zxids = {member.zxid() for member in self.members if member.running()}
            return len(zxids) == 1 and None not in zxids

        deadline = time.monotonic() + START_TIMEOUT_S
        while not in_step():
            if time.monotonic() > deadline:
                raise AssertionError("the members do not get in step:\n" + "\n".join(m.read_log() for m in self.members))
            time.sleep(0.05)

    def ensure_up(self):
        for member in self.members:
            if member.running():
                member.thaw()
        self.start()

    def client(self, **options):
        """To any member that serves."""
        for member in self.members:
            if member.running() and member.mode():
                return member.client(**options)
        raise AssertionError("no member serves")

    def expire(self, session_id):
        for member in self.members:
            if member.running() and member.mode():
                return member.expire(session_id)
        raise AssertionError("no member serves")

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
