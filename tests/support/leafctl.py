"""Runs the leafctl binary for black-box tests: one-shot commands, daemons and HTTP.

Environment:
  LEAFCTL             the binary (default build/release/leafctl)
  LEAFCTL_TEST_SCALE  factor for counts, such as 0.1 under sanitizers (default 1)
  LEAFCTL_TEST_SEED   decides what tests leave to chance (explain.py)
"""

import collections
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

import explain

# What a shell starts in the background ignores SIGINT, and so would each program that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("LEAFCTL") or os.path.join(ROOT, "build", "release", "leafctl"))
SCALE = float(os.environ.get("LEAFCTL_TEST_SCALE") or "1")

# Where servers are; a plain user's PATH does not name it.
os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"

# An upper bound for anything that should happen "soon", far above what it takes.
DEADLINE_S = 180.0

ID_END = 1 << 63

NOBODY = 65534  # a user, and a group, without a right to anything

SANITIZER_REPORT = re.compile(
    r"ERROR: AddressSanitizer|ERROR: LeakSanitizer|WARNING: ThreadSanitizer|: runtime error: |leafctl: bug:"
)

Result = collections.namedtuple("Result", "rc out err")
Response = collections.namedtuple("Response", "status headers body")


def scaled(count, least=1):
    """`count`, scaled down by LEAFCTL_TEST_SCALE, but at least `least`."""
    return max(least, int(count * SCALE))


def poll(predicate, what, timeout=DEADLINE_S, interval=0.02):
    """Calls `predicate` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("not within %g s: %s" % (timeout, what))
        time.sleep(interval)


def clean_environment(**more):
    """This environment without anything that leafctl would look at."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LEAFCTL", "XDG_"))
        and name
        not in ("NO_COLOR", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM")
    }
    env.update(LC_ALL="C.UTF-8", TERM="xterm")
    env.update(more)
    return env


def check_sane(text):
    if SANITIZER_REPORT.search(text):
        raise AssertionError("the binary reports a bug of its own:\n" + text)


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def through_sudo(keep=()):
    """What a command line begins with to run as root, without a question: nothing for root itself.

    `keep`: names of variables of this environment that the command gets.
    """
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise AssertionError("needs to be root, or a user who may use sudo")
    return ["sudo", "-n", "env", *("%s=%s" % (name, os.environ[name]) for name in keep if name in os.environ)]


class Sandbox:
    """A HOME and a state directory of its own; ends every daemon it started."""

    def __init__(self):
        if not os.access(BINARY, os.X_OK):
            raise AssertionError("no binary at %s: build it, or name it with LEAFCTL" % BINARY)
        self.dir = tempfile.mkdtemp(prefix="leafctl-test-")
        self.home = os.path.join(self.dir, "home")
        self.state = os.path.join(self.dir, "state")
        os.mkdir(self.home)
        self.daemons = []
        self.binary = BINARY
        self.cwd = None  # where commands run, if not here
        self.env = clean_environment(HOME=self.home, LEAFCTL_STATE_DIR=self.state)

    def close(self):
        reports = []
        for daemon in self.daemons:
            daemon.kill()
            if SANITIZER_REPORT.search(daemon.log()):
                reports.append(daemon.log())
        shutil.rmtree(self.dir, ignore_errors=True)
        if reports:
            raise AssertionError("a daemon reports a bug of its own:\n" + "\n".join(reports))

    def path(self, name):
        return os.path.join(self.dir, name)

    def open_to_others(self):
        """Lets another user come in and run the binary. The checkout may be where only its owner gets to: what the
        binary needs of it is copied, and the sanitizers' options name the copies."""
        os.chmod(self.dir, 0o755)
        self.cwd = self.dir
        copies = []

        def copy(path, mode):
            copies.append(self.path(os.path.basename(path)))
            shutil.copy(path, copies[-1])
            os.chmod(copies[-1], mode)
            return copies[-1]

        def copy_file(found):
            return copy(found.group(), 0o644) if os.path.isfile(found.group()) else found.group()

        self.binary = copy(BINARY, 0o755)
        for name, value in self.env.items():
            if name.endswith("SAN_OPTIONS"):
                self.env[name] = re.sub(r"(?<==)/[^ :,]+", copy_file, value)
        for path in copies:
            if subprocess.run(["test", "-r", path], cwd="/", check=False, **self.without_rights()).returncode != 0:
                raise AssertionError("another user cannot read %s: is TMPDIR open to others?" % path)

    def without_rights(self):
        """What run() and popen() need to run a command as a user who has no right to what is root's: root becomes
        nobody. Other users stay who they are, and what they may not open has to have mode 0."""
        return {"preexec_fn": become_nobody} if os.geteuid() == 0 else {}

    def write(self, name, text, mode=0o600):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def popen(self, args, env=None, **more):
        full = dict(self.env)
        full.update(env or {})
        more.setdefault("cwd", self.cwd)
        return subprocess.Popen([self.binary, *args], env={k: v for k, v in full.items() if v is not None}, **more)

    def run(self, args, env=None, stdin=None, timeout=DEADLINE_S, **more):
        """Runs `leafctl args`; `env` is added, a value of None takes a variable away."""
        process = self.popen(
            args,
            env,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )
        try:
            out, err = process.communicate(None if stdin is None else stdin.encode(), timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError("leafctl %s hangs; stderr: %r" % (args, err)) from None
        result = Result(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        check_sane(result.err)
        return result

    def ok(self, *args, **more):
        """stdout of a command that has to succeed."""
        result = self.run(list(args), **more)
        if result.rc != 0:
            raise AssertionError("leafctl %s: exit %d: %s" % (" ".join(args), result.rc, result.err))
        return result.out

    def next(self, tag, *args, **more):
        return [int(line) for line in self.ok("next", tag, *args, **more).split()]

    def rows(self):
        """tag → row, as `tag list` tells them."""
        return {row["tag"]: row for row in json.loads(self.ok("tag", "list", "--json"))["tags"]}

    def configures(self, section, name, env=None):
        """Whether the environment or the configuration file names a key."""
        full = {**self.env, **(env or {})}
        if full.get("LEAFCTL_%s_%s" % (section.upper(), name.upper())):
            return True
        path = full.get("LEAFCTL_CONFIG")
        if not path or not os.path.exists(path):
            return False
        with open(path, encoding="utf-8", errors="replace") as file:
            return re.search(r"^%s *=" % name, file.read(), re.MULTILINE) is not None

    def serve(self, *args, ready=True, listening=True, env=None, **more):
        daemon = Daemon(self, list(args), env, **more)
        self.daemons.append(daemon)
        if listening:
            daemon.wait_listening()
            if ready:
                daemon.wait_ready()
        return daemon


class Daemon:
    """`leafctl serve` on a free port."""

    def __init__(self, box, args, env=None, listen=("127.0.0.1:0",), **more):
        command = ["serve"]
        if "request_timeout" not in " ".join(args) and not box.configures("server", "request_timeout", env):
            # On a slow disk or under a sanitizer, beside other tests, a grant can take longer than a request waits by
            # default. A test of something else may not depend on that.
            command += ["--set", "server.request_timeout=8s"]
        for address in listen:
            command += ["--listen", address]
        self.box = box
        self.lines = []
        self.port = None
        self._local = threading.local()
        self.process = box.popen(
            command + args, env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more
        )
        self.args = command + args
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        explain.watch(self, self.running)

    def running(self):
        return self.process.poll() is None

    def log_title(self):
        code = self.process.poll()
        return "leafctl %s (process %d, %s)" % (
            " ".join(self.args), self.process.pid, "running" if code is None else "ended with %d" % code
        )  # fmt: skip

    def log_tail(self, lines):
        if not self.running():
            self._reader.join(5)
        return "\n".join(self.lines[-lines:])

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))

    def log(self):
        return "\n".join(self.lines)

    def wait_log(self, pattern, timeout=DEADLINE_S):
        """The first match of `pattern` in the log."""

        def look():
            found = re.search(pattern, self.log())
            if not found and self.process.poll() is not None:
                self._reader.join(5)
                found = re.search(pattern, self.log())
                if not found:
                    raise AssertionError("serve ended with %d:\n%s" % (self.process.returncode, self.log()))
            return found

        return poll(look, "log line %r in:\n%s" % (pattern, self.log()), timeout)

    def wait_listening(self):
        self.port = int(self.wait_log(r"listening on http://(?:127|0)\.0\.0\.[01]:(\d+)").group(1))

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def wait_ready(self, timeout=DEADLINE_S):
        try:
            poll(lambda: self.get("/health/ready").status == 200, "ready", timeout)
        except (OSError, http.client.HTTPException) as error:
            # It may have closed its connections, and have a moment left.
            self.process.wait(DEADLINE_S)
            self._reader.join(5)
            raise AssertionError("serve ended with %d:\n%s" % (self.process.returncode, self.log())) from error

    def request(self, method, path, body=None, headers=None, timeout=DEADLINE_S):
        """One request on this thread's keep-alive connection."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._open_connection(timeout)
            self._local.connection = connection
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Response(response.status, response.headers, response.read().decode("utf-8", "replace"))
        except BaseException:
            self.disconnect()
            raise

    def _open_connection(self, timeout):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path, headers=None, **more):
        return self.request("GET", path, None, headers, **more)

    def disconnect(self):
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None

    def leaf(self, tag, **more):
        """Leaf's own route; `tag` is percent-encoded here."""
        return self.get("/api/segment/get/" + urllib.parse.quote(tag, safe=""), **more)

    def v1(self, tag, count=1, **more):
        return self.get("/v1/segment/%s?count=%d" % (urllib.parse.quote(tag, safe=""), count), **more)

    def ids(self, tag, count=1):
        """IDs through /v1; anything but a full answer fails."""
        response = self.v1(tag, count)
        if response.status != 200:
            raise AssertionError("%d %s" % (response.status, response.body))
        ids = [int(text) for text in json.loads(response.body)["ids"]]
        if len(ids) != count:
            raise AssertionError("%d IDs instead of %d" % (len(ids), count))
        return ids

    def status(self):
        """Not older than this call: a snapshot is shared for a second by all requests."""

        def clock_ms():
            return json.loads(self.get("/v1/clock").body)["time_ms"]

        called_ms = clock_ms()
        poll(lambda: clock_ms() != called_ms, "another millisecond", interval=0.001)
        first = json.loads(self.get("/v1/status").body)

        def fresh():
            status = json.loads(self.get("/v1/status").body)
            # The second one was made after the first, whatever the clock did meanwhile.
            return status["uptime_ms"] != first["uptime_ms"] and status

        return first if first["time_ms"] > called_ms else poll(fresh, "a new snapshot")

    def tag_status(self, tag):
        """As it is now; None if the daemon does not serve it."""
        status = json.loads(self.get("/v1/status?problems=0&tag=" + urllib.parse.quote(tag, safe="")).body)
        return next(iter(status["segment"]["tags"]), None)

    def raw(self, source=None):
        """`source`: the address that it comes from."""
        return RawConnection(("127.0.0.1", self.port), source=source)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, and waits."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self._reader.join(10)
        self.process.stderr.close()
        self.disconnect()
        return code

    def wait(self, timeout=DEADLINE_S):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError("serve does not end:\n" + self.log()) from None
        self._reader.join(10)
        self.disconnect()
        return code

    def terminate(self, timeout=DEADLINE_S):
        """SIGTERM; the exit code."""
        self.disconnect()
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)


class RawConnection:
    """Bytes to a server, and its responses taken apart."""

    def __init__(self, address, timeout=DEADLINE_S, source=None):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(address)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def _receive(self):
        try:
            return self.socket.recv(65536)
        except ConnectionError:
            return b""

    def _more(self):
        data = self._receive()
        self.buffer += data
        return bool(data)

    def head(self):
        """The beginning of the next response, whose body is left; None if the server closes instead."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                return None
        start, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = start.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers[name.strip().lower()] = value.strip()
        return Response(int(lines[0].split(" ")[1]), headers, "")

    def body(self, length):
        pieces, size = [self.buffer], len(self.buffer)
        while size < length:
            pieces.append(self._receive())
            if not pieces[-1]:
                raise AssertionError("the connection ends inside a body")
            size += len(pieces[-1])
        whole = b"".join(pieces)
        self.buffer = whole[length:]
        return whole[:length].decode("utf-8", "replace")

    def response(self, head=False):
        """The next response; None if the server closes instead."""
        response = self.head()
        if response is None or head:
            return response
        return response._replace(body=self.body(int(response.headers.get("content-length", "0"))))

    def get(self, path, *headers, method="GET", version="1.1"):
        head = "".join(line + "\r\n" for line in headers)
        self.send("%s %s HTTP/%s\r\nHost: localhost\r\n%s\r\n" % (method, path, version, head))
        return self.response(head=method == "HEAD")

    def at_end(self):
        """Waits for the server to close; True if nothing but the end came."""
        while self._more():
            pass
        return not self.buffer


class LeafTest(unittest.TestCase):
    """A test with a sandbox of its own."""

    maxDiff = None

    def setUp(self):
        self.box = Sandbox()
        self.addCleanup(self.box.close)

    def check(self, result, rc, *err_parts):
        """Exit code `rc`, nothing on stdout, and each of `err_parts` on stderr, whatever its case."""
        self.assertEqual(result.rc, rc, result)
        if rc not in (0, 10):
            self.assertEqual(result.out, "", result)
            self.assertNotEqual(result.err, "", "an error without a word")
        for part in err_parts:
            self.assertIn(part.lower(), result.err.lower())
        return result

    def check_leaf_error(self, response, code):
        self.assertEqual(response.status, 500, response.body)
        error = json.loads(response.body)
        self.assertEqual(error["message"], "Result{id=%d, status=EXCEPTION}" % code)
        return error

    def check_v1_error(self, response, status, code=None):
        self.assertEqual(response.status, status, response.body)
        error = json.loads(response.body)
        self.assertEqual(list(error)[:3], ["code", "message", "hint"])
        if code:
            self.assertEqual(error["code"], code)
        return error

    def check_distinct(self, ids, what="IDs"):
        self.assertEqual(len(ids), len(set(ids)), what + " repeat")
        for value in ids:
            self.assertTrue(0 <= value < ID_END, value)


def main():
    unittest.main(module="__main__", verbosity=2, argv=[sys.argv[0], *sys.argv[1:]], testRunner=explain.Runner)
