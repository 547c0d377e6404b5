#!/usr/bin/env python3
"""Whether IDs follow the order of requests in real time: what was answered before another request was sent is below it.

As a program: takes IDs of a tag over many connections to the Unix socket of a daemon, until SIGTERM, and then writes
what it saw to a file. All programs of a machine share one clock.

Usage: real_time_order.py SOCKET TAG CONNECTIONS COUNT FILE
"""

import array
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

FIELDS = 4  # sent, answered (nanoseconds of the monotonic clock), first ID, last ID
RETRY_S = 0.02


class Connection:
    """One request after the other."""

    def __init__(self, path, request):
        self.path = path
        self.request = request
        self.socket = None
        self.sent = 0
        self.buffer = b""

    def open(self, selector):
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(self.path)
        except OSError:
            self.socket.close()
            self.socket = None
            return False
        selector.register(self.socket, selectors.EVENT_READ, self)
        return self.send(selector)

    def close(self, selector):
        selector.unregister(self.socket)
        self.socket.close()
        self.socket = None
        self.buffer = b""

    def send(self, selector):
        self.sent = time.monotonic_ns()
        try:
            self.socket.sendall(self.request)
        except OSError:
            self.close(selector)
            return False
        return True

    def read(self):
        """Status and body of a whole answer; None if it is not there yet, False if the daemon has closed."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            return False
        if not data:
            return False
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at:].split(b"\r\n", 1)[0])
        if len(body) < length:
            return None
        self.buffer = body[length:]
        return int(head[9:12]), body[:length]


def take(path, tag, connections, count, file):
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    request = "GET /v1/segment/%s?count=%d HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n" % (tag, count)
    seen = array.array("Q")
    selector = selectors.DefaultSelector()
    idle = [(0.0, Connection(path, request.encode())) for _ in range(connections)]
    errors = 0
    while not stop:
        now = time.monotonic()
        waiting = []
        for due, connection in idle:
            if due > now:
                waiting.append((due, connection))
            elif not (connection.send(selector) if connection.socket else connection.open(selector)):
                waiting.append((now + RETRY_S, connection))
        idle = waiting
        for key, _ in selector.select(RETRY_S):
            connection = key.data
            answer = connection.read()
            answered = time.monotonic_ns()
            if answer is None:
                continue
            if answer is False:
                connection.close(selector)
                idle.append((now + RETRY_S, connection))
                continue
            status, body = answer
            if status == 200:
                ids = body.split()
                seen.extend((connection.sent, answered, int(ids[0]), int(ids[-1])))
            else:
                errors += 1
                idle.append((now + RETRY_S, connection))
                continue
            if not connection.send(selector):
                idle.append((now + RETRY_S, connection))
    with open(file + ".part", "wb") as out:
        seen.tofile(out)
    os.rename(file + ".part", file)
    print("%d answers, %d errors" % (len(seen) // FIELDS, errors))


class OrderTaker:
    """The program, for a test."""

    def __init__(self, box, tag, connections=8, count=1, name="order"):
        self.file = box.path("%s-%d" % (name, time.monotonic_ns()))
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), os.path.join(box.state, "leafctl.sock"), tag,
             str(connections), str(count), self.file],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def stop(self):
        """What it saw: a list of (sent, answered, first, last)."""
        self.process.terminate()
        out, err = self.process.communicate(timeout=120)
        if self.process.returncode != 0:
            raise AssertionError("the taker failed: %s%s" % (out.decode(), err.decode()))
        seen = array.array("Q")
        with open(self.file, "rb") as file:
            seen.frombytes(file.read())
        return list(zip(*[iter(seen)] * FIELDS))


def check(requests):
    """Raises on the first pair that is out of order, or an ID that is there twice. How many pairs were in order at
    least: one for each request that was sent when another one had been answered."""
    by_first = sorted(requests, key=lambda request: request[2])
    for before, after in zip(by_first, by_first[1:]):
        if after[2] <= before[3]:
            raise AssertionError("an ID twice: %r and %r" % (before, after))
    answered = sorted(requests, key=lambda request: request[1])
    highest, at, pairs = None, 0, 0
    for request in sorted(requests):
        while at < len(answered) and answered[at][1] < request[0]:
            if highest is None or answered[at][3] > highest[3]:
                highest = answered[at]
            at += 1
        if highest is None:
            continue
        pairs += 1
        if request[2] <= highest[3]:
            raise AssertionError("out of order: %r was answered before %r was sent" % (highest, request))
    return pairs


if __name__ == "__main__":
    take(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
