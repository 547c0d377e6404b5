"""Starts a private MariaDB for tests, and stops, kills and freezes it."""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import explain
import sql_client

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_TIMEOUT_S = 120.0
PASSWORD = "leaf-secret"


def free_port():
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def suspend(pid):
    """Stops a process, and waits until each of its threads stands still: on a busy machine one may answer meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        states = set()
        for task in os.listdir("/proc/%d/task" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/task/%s/stat" % (pid, task), encoding="utf-8") as file:
                states.add(file.read().rsplit(")", 1)[1].split()[0])
        if states <= {"T"}:
            return
        if time.monotonic() > deadline:
            raise AssertionError("process %d does not stop: %s" % (pid, states))
        time.sleep(0.002)


class MariaDb:
    """The server of scripts/dev_up.sh. User `leaf` has PASSWORD and may do anything; `root` comes in by the socket."""

    def __init__(self, flush=False):
        """`flush`: each COMMIT reaches the disk. Tests end servers, not machines, and many run on a slow disk."""
        self.pid = None
        self.process = None  # once it is our own child
        # Not below the private folder that some systems make of /tmp for each user: the user mysql has to get there.
        self.dir = tempfile.mkdtemp(prefix="leafctl-mariadb-")
        atexit.register(self.close)
        made = subprocess.run(
            [os.path.join(ROOT, "scripts", "dev_up.sh"), "--dir", self.dir, "--only", "mariadb"]
            + ([] if flush else ["--no-flush"]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            raise AssertionError("dev_up.sh failed:\n" + made.stdout.decode("utf-8", "replace"))
        with open(os.path.join(self.dir, "env"), encoding="utf-8") as file:
            # The last one counts: a port that was taken is tried again with another.
            values = dict(line.strip().split("=", 1) for line in file)
        with open(os.path.join(self.dir, "mysql-command"), encoding="utf-8") as file:
            self.command = file.read().split("\0")[:-1]
        self.client = shutil.which("mariadb")
        self.socket = values["LEAF_MYSQL_SOCKET"]
        self.port = int(values["LEAF_MYSQL_PORT"])
        self.log = os.path.join(self.dir, "mysql", "log")
        explain.watch(self, lambda: os.path.exists(self.log))
        self.user = sql_client.USER
        self.pid = int(values["LEAF_MYSQL_PID"])
        self.sql("ALTER USER leaf@'%%' IDENTIFIED BY '%s'; GRANT ALL ON *.* TO leaf@'%%'" % PASSWORD)

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def log_title(self):
        return "mariadbd on port %d (process %s, %s)" % (self.port, self.pid, "running" if self.running() else "ended")

    def log_tail(self, lines):
        return explain.tail_of(self.log, lines)

    def start(self, wait=True):
        """Starts it again, on the same port as before."""
        assert not self.running()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = self.process.pid
        if wait:
            self.wait_up()

    def running(self):
        if self.process is not None:
            return self.process.poll() is None
        if self.pid is None:
            return False  # it did not come up
        try:
            with open("/proc/%d/stat" % self.pid, encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def _wait_up(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.running():
                return False
            with contextlib.suppress(sql_client.SqlError):
                self.sql("SELECT 1")
                return True
            time.sleep(0.05)
        return False

    def wait_up(self):
        if not self._wait_up():
            raise AssertionError("mariadbd does not come up:\n" + self.read_log())

    def sql(self, statements, database=""):
        """The rows that come out, each a list of strings."""
        return sql_client.rows(self.socket, statements, database)

    def cut(self, user, where="true"):
        """Ends the connections of a user, as far as `where` is true of them in the process list."""
        listed = "SELECT id FROM information_schema.processlist WHERE user = '%s' AND %s" % (user, where)
        for (connection,) in self.sql(listed):
            try:
                self.sql("KILL %s" % connection)
            except sql_client.SqlError as error:
                if "Unknown thread id" not in str(error):  # it may have ended by itself
                    raise

    def stop(self):
        """An orderly end."""
        self._end(signal.SIGTERM)

    def kill(self):
        self._end(signal.SIGKILL)

    def _end(self, number):
        if not self.running():
            return
        os.kill(self.pid, number)
        if number != signal.SIGKILL:
            os.kill(self.pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while self.running():
            if time.monotonic() > deadline:
                raise AssertionError("mariadbd does not end:\n" + self.read_log())
            time.sleep(0.01)

    def freeze(self):
        """Hangs: connections stay open, nothing is answered."""
        suspend(self.pid)

    def thaw(self):
        os.kill(self.pid, signal.SIGCONT)

    def ensure_up(self):
        if self.running():
            self.thaw()
        else:
            self.start()

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class ReplicatedDb(MariaDb):
    """One that others can follow, and that can follow another."""

    def __init__(self, server_id):
        super().__init__()
        self.stop()
        self.command += ["--server-id=%d" % server_id, "--log-bin", "--log-slave-updates", "--binlog-format=ROW"]
        self.start()

    def follow(self, primary):
        """Read-only from now on, and as far behind `primary` as that takes."""
        self.sql(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='leaf', MASTER_PASSWORD='%s', "
            "MASTER_USE_GTID=slave_pos; START SLAVE; SET GLOBAL read_only = 1" % (primary.port, PASSWORD)
        )

    def wait_for(self, primary):
        """Until it has everything that `primary` has now."""
        position = primary.sql("SELECT @@gtid_binlog_pos")[0][0]
        if self.sql("SELECT MASTER_GTID_WAIT('%s', 60)" % position)[0][0] != "0":
            raise AssertionError("the replica does not follow:\n" + self.read_log())
