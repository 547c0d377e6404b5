#!/usr/bin/env python3
"""A TCP proxy in a process of its own that puts a delay on every round trip, and cuts, refuses and freezes.

A database that answers more slowly, or not at all, for one client while it stays well for others. What the client
sends reaches the server a fixed time later, and so does a new connection; what the server says passes at once. So a
question and its answer take the delay longer, once, however many packets they consist of. A delay that is changed
counts for what comes in afterwards.

The proxy runs as a child process: the timers of a busy test must not make it late. It ends with its parent, when its
standard input does.
"""

import asyncio
import collections
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

ANSWER_TIMEOUT_S = 30.0
CLOCK_RESOLUTION_S = time.get_clock_info("monotonic").resolution


class DelayProxy:
    """A running proxy to `port` of this machine; connect to `self.port` instead."""

    def __init__(self, port, delay_ms=0.0):
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.port = self._ask("open")["port"]
        self.delay(delay_ms)

    def _ask(self, *words):
        with self._lock:
            # A proxy that hangs must not hang the test: without it the answer is an end of file.
            watchdog = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
            watchdog.start()
            try:
                self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            finally:
                watchdog.cancel()
        if not line:
            raise AssertionError("the delay proxy has ended at: " + " ".join(map(str, words)))
        return json.loads(line)

    def delay(self, milliseconds):
        """How much longer every round trip that begins from now on takes."""
        self._ask("delay", float(milliseconds))

    def cut(self):
        """Resets every connection; new ones are welcome."""
        self._ask("cut")

    def refuse(self):
        """Resets every connection and refuses new ones, as a server that is not running."""
        self._ask("refuse")

    def shut(self):
        """Refuses new connections; those that there are go on."""
        self._ask("shut")

    def accept(self):
        """Ends `refuse` and `shut`, on the same port."""
        self._ask("open")

    def freeze(self):
        """Holds everything that comes in, in both directions, as a server that hangs; connections stay open."""
        self._ask("freeze")

    def thaw(self):
        """Ends `freeze`: what was held goes on its way."""
        self._ask("thaw")

    def stats(self):
        """Since the last call: connections, round_trips, bytes of both ways, and how long the round trips were held
        (held_ms: min, p50, max)."""
        return self._ask("stats")

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class _Session:
    """One client's connection and its counterpart at the server."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.client = None  # transports
        self.server = None
        self.questions = collections.deque()  # (when it came, when due, data) for the server, oldest first
        self.answers = []  # held by a freeze, or until the client is there
        self.asked = False  # the client spoke last
        self.ended = False

    async def reach_server(self):
        """A connection costs a round trip, too."""
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self.proxy.delay_s)
            self.server, _ = await loop.create_connection(
                lambda: _End(self.on_answer, self.end), "127.0.0.1", self.proxy.server_port
            )
        except OSError:
            self.end()
            return
        if self.ended:
            self.server.abort()
        self._forward()

    def on_question(self, data):
        came = time.monotonic()
        # Never before what came earlier, even if the delay has become shorter meanwhile.
        due = max(came + self.proxy.delay_s, self.questions[-1][1] if self.questions else 0.0)
        self.questions.append((came, due, data))
        asyncio.get_running_loop().call_at(due, self._forward)

    def _forward(self):
        """Sends what is due; the rest has timers of its own."""
        if self.proxy.frozen or self.ended or not self.server:
            return
        now = time.monotonic()
        # The event loop takes its timers for due as soon as its clock's resolution allows it.
        while self.questions and self.questions[0][1] <= now + CLOCK_RESOLUTION_S:
            came, _, data = self.questions.popleft()
            self.server.write(data)
            self.proxy.bytes += len(data)
            if not self.asked:
                self.asked = True
                self.proxy.held.append(now - came)

    def on_answer(self, data):
        self.answers.append(data)
        self._answer()

    def _answer(self):
        if not self.proxy.frozen and self.answers and not self.ended:
            self.asked = False
            answer = b"".join(self.answers)
            self.client.write(answer)
            self.proxy.bytes += len(answer)
            self.answers.clear()

    def thaw(self):
        self._forward()
        self._answer()

    def end(self, reset=False):
        """Closes both connections, as one of them was; or resets them."""
        self.ended = True
        self.proxy.sessions.discard(self)
        for transport in (self.client, self.server):
            if not transport or transport.is_closing():
                continue
            if reset:
                # With nothing to linger for, closing is a reset.
                with contextlib.suppress(OSError):
                    transport.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                transport.abort()
            else:
                transport.close()


class _End(asyncio.Protocol):
    """One of a session's two connections."""

    def __init__(self, on_data, on_end):
        self.data_received = on_data
        self._on_end = on_end

    def eof_received(self):
        return False

    def connection_lost(self, error):
        self._on_end()


class _Client(_End):
    """A session begins with its client."""

    def __init__(self, proxy):
        self.session = _Session(proxy)
        super().__init__(self.session.on_question, self.session.end)

    def connection_made(self, transport):
        self.session.client = transport
        self.session.proxy.begin(self.session)


class _Proxy:
    """The child's side."""

    def __init__(self, server_port):
        self.server_port = server_port
        # Bound, and never listening: it keeps the port from all others while connections are refused.
        self.place = socket.socket()
        self.place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.place.bind(("127.0.0.1", 0))
        self.port = self.place.getsockname()[1]
        self.delay_s = 0.0
        self.listener = None
        self.sessions = set()
        self.tasks = set()
        self.frozen = False
        self.connections = 0
        self.bytes = 0
        self.held = []

    def begin(self, session):
        self.connections += 1
        self.sessions.add(session)
        task = asyncio.ensure_future(session.reach_server())
        self.tasks.add(task)  # or it would be collected
        task.add_done_callback(self.tasks.discard)

    async def open(self):
        if not self.listener:
            loop = asyncio.get_running_loop()
            self.listener = await loop.create_server(lambda: _Client(self), "127.0.0.1", self.port, backlog=512)
        return {"port": self.port}

    def cut(self):
        for session in list(self.sessions):
            session.end(reset=True)

    def take_stats(self):
        held = sorted(1000 * seconds for seconds in self.held)
        result = {"connections": self.connections, "round_trips": len(held), "bytes": self.bytes}
        if held:
            result["held_ms"] = {"min": held[0], "p50": held[len(held) // 2], "max": held[-1]}
        self.connections = 0
        self.bytes = 0
        self.held = []
        return result

    async def obey(self, command, *arguments):
        if command == "open":
            return await self.open()
        if command == "delay":
            self.delay_s = float(arguments[0]) / 1000
        elif command == "cut":
            self.cut()
        elif command in ("refuse", "shut"):
            if self.listener:
                self.listener.close()
                self.listener = None
            if command == "refuse":
                self.cut()
        elif command == "freeze":
            self.frozen = True
        elif command == "thaw":
            self.frozen = False
            for session in list(self.sessions):
                session.thaw()
        elif command == "stats":
            return self.take_stats()
        else:
            raise ValueError(command)
        return {}

    async def run(self):
        loop = asyncio.get_running_loop()
        commands = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while line := await commands.readline():
            answer = await self.obey(*line.decode().split())
            print(json.dumps(answer), flush=True)
        # Whatever is under way: neither side waits for it any more.
        os._exit(0)


async def _main():
    await _Proxy(int(sys.argv[1])).run()


if __name__ == "__main__":
    asyncio.run(_main())
