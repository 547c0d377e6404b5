#!/usr/bin/env python3
"""Holds many connections to a server that are no work: some do nothing, some send a byte a second.

    crowd.py PORT IDLE SLOW [DEAF]

Of the deaf each asks for batches of 2.3 MB, and reads nothing; one that is cut off is followed by another.
Says "ready" once all are there. Then takes commands, a line each: "told" asks how many slow ones got an answer so far,
"rest" ends the slow ones; the end of its input ends it all. Says at the end, as one line of JSON: how many idle ones
were `open` still, after how many seconds the first one was `closed_after_s`, how often each status was `answered` to
slow ones, how many of those were cut off `unanswered`, and how many of the deaf were `dropped`.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time

INTERVAL_S = 1.0
DEAF_REQUEST = b"GET /v1/segment/big?count=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"GET /api/segment/get/pay HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


class Slow:
    """One request that never gets to its end, a byte at a time."""

    def __init__(self, port):
        self.socket = connect(port)
        self.sent = 0

    def drip(self):
        self.socket.send(HEAD[self.sent : self.sent + 1] or b"x")
        self.sent += 1


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=120)


def connect_deaf(port):
    """With so small a buffer that next to nothing is taken unless it is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before connecting, or it grows
    connection.settimeout(120)
    connection.connect(("127.0.0.1", port))
    return connection


def leave(connection):
    """Closes with a reset: ten thousand ports that wait for stragglers would be missed by the next run."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def be_idle(port, count):
    """Each asks once, and keeps its connection."""
    idle = []
    for _ in range(count):
        connection = connect(port)
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if not connection.recv(4096).startswith(b"HTTP/1.1 200 "):
            raise SystemExit("an idle connection got no answer")
        idle.append(connection)
    return idle


class Crowd:
    def __init__(self, port, idle, slow, deaf=0):
        self.port = port
        self.began = time.monotonic()
        self.idle = be_idle(port, idle)
        self.slow = {}  # by descriptor
        self.answered = {}
        self.unanswered = 0
        self.closed_after_s = None
        self.epoll = select.epoll()
        for connection in self.idle:
            self.epoll.register(connection, select.EPOLLRDHUP)
        for _ in range(slow):
            self.add_slow()
        self.deaf = {}  # by descriptor
        self.dropped = 0
        for _ in range(deaf):
            self.add_deaf()

    def add_deaf(self):
        connection = connect_deaf(self.port)
        connection.sendall(DEAF_REQUEST * 3)
        self.deaf[connection.fileno()] = connection
        self.epoll.register(connection, select.EPOLLRDHUP)

    def add_slow(self):
        slow = Slow(self.port)
        self.slow[slow.socket.fileno()] = slow
        self.epoll.register(slow.socket, select.EPOLLIN)

    def drop_slow(self, slow):
        self.epoll.unregister(slow.socket)
        del self.slow[slow.socket.fileno()]
        leave(slow.socket)

    def hear(self, descriptor):
        if descriptor in self.deaf:
            self.epoll.unregister(descriptor)
            leave(self.deaf.pop(descriptor))
            self.dropped += 1
            return self.add_deaf()
        slow = self.slow.get(descriptor)
        if slow is None:  # an idle one is closed
            self.epoll.unregister(descriptor)
            self.closed_after_s = self.closed_after_s or time.monotonic() - self.began
            return None
        try:
            answer = slow.socket.recv(4096)
        except ConnectionError:
            answer = b""
        if answer.startswith(b"HTTP/1.1 "):
            status = answer[9:12].decode()
            self.answered[status] = self.answered.get(status, 0) + 1
        else:
            self.unanswered += 1
        self.drop_slow(slow)
        return self.add_slow()

    def run(self):
        self.epoll.register(sys.stdin, select.EPOLLIN)
        print("ready", flush=True)
        due = time.monotonic()
        while True:
            # Spread over the interval, as those of so many clients are.
            for descriptor, _ in self.epoll.poll(max(0.0, due - time.monotonic()) if self.slow else None):
                if descriptor != sys.stdin.fileno():
                    self.hear(descriptor)
                    continue
                command = os.read(descriptor, 100)
                if command == b"told\n":
                    print(sum(self.answered.values()), flush=True)
                elif command == b"rest\n":
                    for slow in list(self.slow.values()):
                        self.drop_slow(slow)
                    print("resting", flush=True)
                else:
                    return self.end()
            if self.slow and time.monotonic() >= due:
                due = max(due, time.monotonic() - INTERVAL_S) + INTERVAL_S / len(self.slow)
                descriptor, slow = next(iter(self.slow.items()))
                self.slow[descriptor] = self.slow.pop(descriptor)  # it is the last in turn now
                try:
                    slow.drip()
                except ConnectionError:
                    self.hear(descriptor)

    def end(self):
        open_count = sum(is_open(connection) for connection in self.idle)
        for connection in [*self.idle, *(slow.socket for slow in self.slow.values()), *self.deaf.values()]:
            leave(connection)
        report = {"open": open_count, "closed_after_s": self.closed_after_s, "answered": self.answered,
                  "unanswered": self.unanswered, "dropped": self.dropped}  # fmt: skip
        print(json.dumps(report), flush=True)


class Process:
    """A crowd in a process of its own."""

    def __init__(self, port, idle, slow=0, deaf=0):
        command = [sys.executable, os.path.abspath(__file__), *map(str, (port, idle, slow, deaf))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._expect("ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _expect(self, word):
        line = self._process.stdout.readline().decode().strip()
        if line != word:
            raise AssertionError("the crowd says %r instead of %r" % (line, word))

    def _say(self, command):
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()

    def told(self):
        """How many of the slow ones got an answer so far."""
        self._say("told")
        return int(self._process.stdout.readline())

    def rest(self):
        """The slow ones leave, and are gone when this returns."""
        self._say("rest")
        self._expect("resting")

    def leave(self):
        """All leave; what they saw."""
        output, _ = self._process.communicate(timeout=120)
        return json.loads(output)


if __name__ == "__main__":
    Crowd(*map(int, sys.argv[1:])).run()
