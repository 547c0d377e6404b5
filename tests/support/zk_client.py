"""A small ZooKeeper client in plain Python, to look at the tree and to change it as Java Leaf would.

Speaks the wire protocol (jute) itself, one request at a time. A thread of its own keeps the session alive until
`close`, or until the process ends. Thread-safe.
"""

import collections
import contextlib
import socket
import struct
import threading

PERSISTENT, EPHEMERAL, SEQUENTIAL = 0, 1, 2
OPEN_ACL = ((31, "world", "anyone"),)
_CREATE, _DELETE, _EXISTS, _GET, _SET, _GET_ACL, _SET_ACL, _CHILDREN = 1, 2, 3, 4, 5, 6, 7, 8
_PING, _AUTH, _CLOSE = 11, 100, -11
_PING_XID, _AUTH_XID, _EVENT_XID = -2, -4, -1

Stat = collections.namedtuple(
    "Stat",
    "czxid mzxid ctime mtime version cversion aversion ephemeral_owner data_length num_children pzxid",
)
_STAT = struct.Struct(">qqqqiiiqiiq")


class ZkError(Exception):
    """An error that the server answered."""

    def __init__(self, code, path):
        super().__init__("%s: error %d" % (path, code))
        self.code = code


class NoNode(ZkError):
    pass


class NodeExists(ZkError):
    pass


class BadVersion(ZkError):
    pass


class NotEmpty(ZkError):
    pass


class NoAuth(ZkError):
    pass


class SessionExpired(ZkError):
    pass


_ERRORS = {-101: NoNode, -110: NodeExists, -103: BadVersion, -111: NotEmpty, -102: NoAuth, -112: SessionExpired}


def session_password(session_id):
    """The password of a session: ZooKeeper derives it from the number (ZooKeeperServer.generatePasswd)."""
    mask = (1 << 48) - 1
    # java.util.Random
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += struct.pack("<I", (state >> 16) & 0xFFFFFFFF)
    return password


def _buffer(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _text(text):
    return _buffer(text.encode("utf-8"))


def _rules(acl):
    entries = b"".join(struct.pack(">i", perms) + _text(scheme) + _text(who) for perms, scheme, who in acl)
    return struct.pack(">i", len(acl)) + entries


class _Reader:
    def __init__(self, data):
        self.data = data

    def take(self, form):
        values = struct.unpack_from(form, self.data)
        self.data = self.data[struct.calcsize(form) :]
        return values[0]

    def buffer(self):
        size = self.take(">i")
        if size < 0:
            return b""
        value, self.data = self.data[:size], self.data[size:]
        return value

    def stat(self):
        value = Stat(*_STAT.unpack_from(self.data))
        self.data = self.data[_STAT.size :]
        return value


class ZkClient:
    """`connect` is "host:port"; one server. `session`: (number, password) of a session to take over."""

    def __init__(self, connect, timeout_ms=10000, session=None, auth=None, call_timeout_s=60.0):
        host, port = connect.rsplit(":", 1)
        self._lock = threading.RLock()
        self._xid = 0
        self._closed = threading.Event()
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=call_timeout_s)
        try:
            number, password = session or (0, b"\0" * 16)
            self._send(struct.pack(">iqiq", 0, 0, timeout_ms, number) + _buffer(password) + b"\0")
            reply = _Reader(self._receive())
            reply.take(">i")
            self.timeout_ms = reply.take(">i")
            self.session_id = reply.take(">q")
            self.password = reply.buffer()
            if self.timeout_ms <= 0:
                raise SessionExpired(-112, "session")
        except BaseException:
            self._socket.close()
            raise
        if auth:
            self._call(_AUTH, struct.pack(">i", 0) + _text("digest") + _buffer(auth.encode()), "auth", _AUTH_XID)
        threading.Thread(target=self._keep_alive, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _send(self, payload):
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)

    def _receive_exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("ZooKeeper closed the connection")
            data += piece
        return data

    def _receive(self):
        return self._receive_exactly(struct.unpack(">i", self._receive_exactly(4))[0])

    def _call(self, kind, payload, path, xid=None):
        with self._lock:
            if xid is None:
                self._xid += 1
                xid = self._xid
            self._send(struct.pack(">ii", xid, kind) + payload)
            while True:
                reply = _Reader(self._receive())
                answered = reply.take(">i")
                reply.take(">q")
                code = reply.take(">i")
                if answered == xid:
                    break
        if code != 0:
            raise _ERRORS.get(code, ZkError)(code, path)
        return reply

    def _keep_alive(self):
        while not self._closed.wait(self.timeout_ms / 4000):
            with contextlib.suppress(OSError, ZkError):
                self._call(_PING, b"", "ping", _PING_XID)
                continue
            return

    def close(self):
        """Ends the session: its ephemeral nodes go away."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            with contextlib.suppress(OSError, ZkError):
                self._call(_CLOSE, b"", "close")
            self._socket.close()

    def abandon(self):
        """Drops the connection and leaves the session to time out, as a process that was killed."""
        self._closed.set()
        with self._lock:
            self._socket.close()

    def create(self, path, data=b"", flags=PERSISTENT, acl=OPEN_ACL, parents=False):
        """The path that was made: of a sequential node it ends with its number."""
        if isinstance(data, str):
            data = data.encode("utf-8")
        if parents:
            end = path.find("/", 1)
            while end > 0:
                with contextlib.suppress(NodeExists):
                    self.create(path[:end])
                end = path.find("/", end + 1)
        request = _text(path) + _buffer(data) + _rules(acl) + struct.pack(">i", flags)
        return self._call(_CREATE, request, path).buffer().decode("utf-8")

    def delete(self, path, version=-1):
        self._call(_DELETE, _text(path) + struct.pack(">i", version), path)

    def delete_all(self, path):
        """The node and everything below it; a node that is not there is no error."""
        with contextlib.suppress(NoNode):
            for child in self.children(path):
                self.delete_all(path.rstrip("/") + "/" + child)
            self.delete(path)

    def exists(self, path):
        """Its Stat, or None."""
        try:
            return self._call(_EXISTS, _text(path) + b"\0", path).stat()
        except NoNode:
            return None

    def get(self, path):
        """(data, Stat)."""
        reply = self._call(_GET, _text(path) + b"\0", path)
        return reply.buffer(), reply.stat()

    def set(self, path, data, version=-1):
        if isinstance(data, str):
            data = data.encode("utf-8")
        return self._call(_SET, _text(path) + _buffer(data) + struct.pack(">i", version), path).stat()

    def get_acl(self, path):
        """[(permissions, scheme, id)]"""
        reply = self._call(_GET_ACL, _text(path), path)
        text = lambda: reply.buffer().decode("utf-8")  # noqa: E731
        return [(reply.take(">i"), text(), text()) for _ in range(reply.take(">i"))]

    def set_acl(self, path, acl, version=-1):
        self._call(_SET_ACL, _text(path) + _rules(acl) + struct.pack(">i", version), path)

    def children(self, path):
        reply = self._call(_CHILDREN, _text(path) + b"\0", path)
        return sorted(reply.buffer().decode("utf-8") for _ in range(reply.take(">i")))

    def tree(self, path):
        """Every node at and below `path`: {path: data}; empty if there is none. For comparing before and after."""
        nodes = {}
        with contextlib.suppress(NoNode):
            nodes[path] = self.get(path)[0]
            for child in self.children(path):
                nodes.update(self.tree(path.rstrip("/") + "/" + child))
        return nodes
