"""What leafctl is compared with: nginx that always says the same, Redis, and IDs straight out of a database."""

import os
import signal
import socket
import subprocess
import time

import explain
from measure import BenchError, ask_unix, on_core, tool
from servers import PASSWORD, free_port

ATTEMPTS = 8  # ports to try
START_TIMEOUT_S = 60.0


def start_on_free_port(start):
    """What `start(port)` returns. It returns None if another process took the port after it was chosen."""
    for _ in range(ATTEMPTS):
        started = start(free_port())
        if started is not None:
            return started
    raise BenchError("no server came up on any of %d ports" % ATTEMPTS)


def wait_up(process, is_up):
    """False if the process ends before it is up."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_up():
        if process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise BenchError("%s does not come up" % process.args[0])
        time.sleep(0.01)
    return process.poll() is None


def end(process):
    """The whole session that a process began."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Nginx:
    """Constant answers from one worker on one processor: `bodies` is path → body. Over TCP and a Unix socket."""

    CONFIG = """
daemon off;
%(user)s
worker_processes 1;
pid %(folder)s/pid;
error_log stderr error;
events { worker_connections 4096; }
http {
  access_log off;
  default_type text/plain;
  # The default closes a connection after 1000 requests, which would be measured, too.
  keepalive_requests 1000000000;
  client_body_temp_path %(folder)s/body;
  proxy_temp_path %(folder)s/proxy;
  fastcgi_temp_path %(folder)s/fastcgi;
  uwsgi_temp_path %(folder)s/uwsgi;
  scgi_temp_path %(folder)s/scgi;
  server {
    listen 127.0.0.1:%(port)d%(ssl)s;
    listen unix:%(folder)s/socket;
%(tls)s
%(locations)s
  }
}
"""

    def __init__(self, folder, bodies, core, identity=None):
        """`identity`: certificate and key; then its port speaks TLS."""
        self.folder = folder
        self._identity = identity
        self.socket = os.path.join(folder, "socket")
        explain.watch_file("nginx", os.path.join(folder, "log"))
        self._bodies = bodies
        os.mkdir(folder)
        with on_core(core):
            self.process = start_on_free_port(self._start)

    def _start(self, port):
        config = os.path.join(self.folder, "conf")
        locations = ["    location = %s { return 200 '%s'; }" % item for item in self._bodies.items()]
        with open(config, "w", encoding="ascii") as file:
            file.write(
                self.CONFIG
                % {
                    "user": "user root;" if os.getuid() == 0 else "",
                    "folder": self.folder,
                    "port": port,
                    "locations": "\n".join(locations),
                    "ssl": " ssl" if self._identity else "",
                    "tls": "    ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.3;" % self._identity
                    if self._identity
                    else "",
                }
            )
        # What an attempt before this one may have left.
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        log_path = os.path.join(self.folder, "log")
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                [tool("nginx"), "-p", self.folder, "-c", config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        path = next(iter(self._bodies))
        question = ("GET %s HTTP/1.0\r\n\r\n" % path).encode()
        if wait_up(process, lambda: ask_unix(self.socket, question).startswith(b"HTTP/1.1 200")):
            self.url = "%s://127.0.0.1:%d" % ("https" if self._identity else "http", port)
            return process
        end(process)
        with open(log_path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if "Address already in use" in text:
            return None
        raise BenchError("nginx does not start:\n" + text)

    def pids(self):
        """Those that serve."""
        path = "/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)
        with open(path, encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def close(self):
        end(self.process)


class Redis:
    """In memory only, unless told otherwise."""

    def __init__(self, folder, *flags):
        self.folder = folder
        self.flags = flags
        self.socket = os.path.join(folder, "socket")
        if not os.path.isdir(folder):
            os.mkdir(folder)
        explain.watch_file("redis-server", os.path.join(folder, "log"))
        self.port = None
        self.began = None  # when the process that is up was started (time.perf_counter)
        self.process = start_on_free_port(self._start)

    def launch(self, port):
        """A process that need not be up yet."""
        with open(os.path.join(self.folder, "log"), "wb") as log:
            return subprocess.Popen(
                [tool("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.socket,
                 "--dir", self.folder, "--save", "", "--appendonly", "no", "--daemonize", "no", *self.flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def is_up(self):
        return ask_unix(self.socket, b"PING\r\n").startswith(b"+PONG")

    def _start(self, port):
        process = self.launch(port)
        if wait_up(process, self.is_up):
            self.port = port
            return process
        end(process)
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            text = file.read()
        if "Address already in use" in text:
            return None
        raise BenchError("redis-server does not start:\n" + text)

    def fill(self, count):
        """That many counters, at 1."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(60)
            connection.connect(self.socket)
            answers = connection.makefile("rb")
            for begin in range(0, count, 1000):
                names = range(begin, min(count, begin + 1000))
                connection.sendall("".join("INCR company.service-%d.order\r\n" % name for name in names).encode())
                for _ in names:
                    if answers.readline() != b":1\r\n":
                        raise BenchError("redis does not count")

    def close(self):
        end(self.process)


class IdStatements:
    """One connection to MariaDB that makes an ID with a statement or two, over TCP as a service would."""

    # What one ID needs; each ends with a row that is the ID. The first is Flickr's ticket server.
    TICKET = "REPLACE INTO tickets (stub) VALUES ('a'); SELECT LAST_INSERT_ID();\n"
    UPDATE = "UPDATE counters SET id = LAST_INSERT_ID(id + 1) WHERE tag = 'pay'; SELECT LAST_INSERT_ID();\n"
    TABLES = (
        "CREATE TABLE tickets (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) NOT NULL UNIQUE)"
        " ENGINE=InnoDB; CREATE TABLE counters (tag VARCHAR(128) NOT NULL PRIMARY KEY, id BIGINT NOT NULL)"
        " ENGINE=InnoDB; INSERT INTO counters VALUES ('pay', 0)"
    )
    # At once: what is written and what is read fits into the pipes.
    CHUNK = 100

    def __init__(self, server, database):
        self._process = subprocess.Popen(
            [tool("mariadb"), *client_flags(server), "--unbuffered", database],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=client_environment(),
        )  # fmt: skip

    def run(self, statements, seconds):
        """IDs a second. The client waits for each answer before it sends the next statement."""
        last = 0
        count = 0
        began = time.perf_counter()
        while count == 0 or time.perf_counter() - began < seconds:
            self._process.stdin.write((statements * self.CHUNK).encode())
            self._process.stdin.flush()
            for _ in range(self.CHUNK):
                line = self._process.stdout.readline()
                if not line or int(line) <= last:
                    raise BenchError("the database says %r after ID %d" % (line, last))
                last = int(line)
            count += self.CHUNK
        return count / (time.perf_counter() - began)

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def tickets_per_second(server, database, clients, statements, count):
    """IDs a second that so many connections make with `statements`, which are two for an ID: `count` in all, about."""
    done = subprocess.run(
        [tool("mariadb-slap"), "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=%d" % server.port,
         "--user=leaf", "--create-schema=" + database, "--concurrency=%d" % clients, "--iterations=1", "--delimiter=;",
         "--number-of-queries=%d" % (2 * max(count, clients)), "--query=" + statements.strip().rstrip(";"), "--csv",
         "--no-drop"],
        check=False, capture_output=True, text=True, env=client_environment(),
    )  # fmt: skip
    parts = done.stdout.strip().split(",")
    # Engine, load, average, least and longest time, clients, and statements of each.
    if done.returncode != 0 or len(parts) != 7 or int(parts[5]) != clients:
        raise BenchError("mariadb-slap: %d %s%s" % (done.returncode, done.stdout, done.stderr))
    return clients * (int(parts[6]) // 2) / float(parts[2])


def client_flags(server):
    """Of the mariadb client, to get in as the user of leafctl does."""
    return ["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=%d" % server.port, "--user=leaf",
            "--batch", "--skip-column-names"]  # fmt: skip


def client_environment():
    return dict(os.environ, MYSQL_PWD=PASSWORD)
