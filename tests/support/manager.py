"""What a service manager does for a daemon: hears its notifications, and holds its sockets over a restart."""

import os
import re
import socket
import subprocess
import sys
import threading

from leafctl import Sandbox, poll

PASS_SOCKETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pass_sockets.py")


class NotifySocket:
    """$NOTIFY_SOCKET: every datagram, in order."""

    def __init__(self, path):
        self.path = path
        self.messages = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while True:
            try:
                message = self._socket.recv(4096).decode()
            except OSError:
                return
            if not message:
                return
            self.messages.append(message)

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._socket.close()

    def count(self, pattern):
        return sum(1 for message in list(self.messages) if re.search(pattern, message))

    def wait(self, pattern, times=1, timeout=60.0):
        """The `times`-th message that matches."""

        def look():
            found = [message for message in list(self.messages) if re.search(pattern, message)]
            return found[times - 1] if len(found) >= times else None

        return poll(look, "message %r; there are %r" % (pattern, self.messages[-10:]), timeout)


class ActivatedSandbox(Sandbox):
    """Its daemons get the sockets in `passed`, a list of (name, socket), in that order."""

    def __init__(self, passed):
        super().__init__()
        self.passed = passed

    def popen(self, args, env=None, **more):
        if args[0] != "serve":
            return super().popen(args, env, **more)
        full = dict(self.env)
        full.update(env or {})
        descriptors = [listener.fileno() for _, listener in self.passed]
        command = [
            sys.executable,
            PASS_SOCKETS,
            ",".join(map(str, descriptors)),
            ":".join(name for name, _ in self.passed),
            self.binary,
            *args,
        ]
        return subprocess.Popen(command, env=full, pass_fds=descriptors, **more)


def tcp_listener():
    """A listening TCP socket on a free port of 127.0.0.1."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


def unix_listener(path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1024)
    return listener
