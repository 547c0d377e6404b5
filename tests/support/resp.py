"""Redis' protocol, byte by byte: what clients hide."""

import socket

DEADLINE_S = 60


class ReplyError(str):
    """An error that the server replied with; its first word is the code."""

    @property
    def word(self):
        return self.split(" ", 1)[0]


class Resp:
    """One connection. `address`: a port on loopback, or the path of a Unix socket."""

    def __init__(self, address, timeout=DEADLINE_S):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(("127.0.0.1", address), timeout=timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    @staticmethod
    def encode(*words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            raw = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
        return b"".join(parts)

    def ask(self, *words):
        self.send(self.encode(*words))
        return self.reply()

    def reply(self):
        """The next reply: int, str, None, bool, list, dict or ReplyError."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server ended the connection: %r" % line)
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"+":
            return rest
        if kind == b"-":
            return ReplyError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == "t"
        if kind == b"$":
            if rest == "-1":
                return None
            data = self.file.read(int(rest) + 2)
            if data[-2:] != b"\r\n":
                raise AssertionError("a bulk string is longer than it says: %r" % data)
            return data[:-2].decode()
        if kind == b"*":
            return None if rest == "-1" else [self.reply() for _ in range(int(rest))]
        if kind == b"%":
            return {self.reply(): self.reply() for _ in range(int(rest))}
        raise AssertionError("no reply of Redis' protocol: %r" % line)

    def at_end(self):
        """Whether the server ends the connection, without another word."""
        try:
            return self.file.read(1) == b""
        except ConnectionError:
            return True


def redis_port(daemon):
    """As the daemon has bound it."""
    listening = daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)")
    return int(listening.group(1))
