#!/usr/bin/env python3
"""`leafctl status --watch` on a terminal: what the screen shows, what keys do, and that the terminal is as before at the
end, however it ends."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from unicodedata import east_asian_width

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import BINARY, DEADLINE_S, LeafTest, clean_environment, main  # noqa: E402
from own_namespace import in_own_host_name  # noqa: E402

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Screen:
    """leafctl in a terminal of its own."""

    def __init__(self, args, env, rows=24, columns=120):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(self.slave)
        self.columns, self.rows = columns, rows
        self.output = b""
        self.process = subprocess.Popen(
            [BINARY, *args], stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def read(self, timeout=0.05):
        """Whatever there is; False if the other end is closed."""
        while select.select([self.master], [], [], timeout)[0]:
            try:
                more = os.read(self.master, 65536)
            except OSError:
                return False
            if not more:
                return False
            self.output += more
            timeout = 0
        return True

    def frame(self):
        """The lines of the last frame that came whole, without colors."""
        text = self.output.decode(errors="replace")
        end = text.rfind("\x1b[J")
        begin = text.rfind("\x1b[H", 0, end)
        if end < 0 or begin < 0:
            return []
        return re.sub(r"\x1b\[[0-9;]*[mK]", "", text[begin + 3 : end]).split("\r\n")

    def wait(self, what, condition):
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.read()
            lines = self.frame()
            if lines and condition(lines):
                return lines
            if time.monotonic() > deadline:
                raise AssertionError("no frame with %s, the last one:\n%s" % (what, "\n".join(lines)))

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """The exit code, once it has ended."""
        code = self.process.wait(DEADLINE_S)
        self.read()
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def rows_of(lines):
    """The first word of each row, between the headings and the last line."""
    begin = next(i for i, line in enumerate(lines) if line.startswith("NAME"))
    return [line.split()[0] for line in lines[begin + 1 : -1] if line.strip()]


class Watch(LeafTest):
    def setUp(self):
        super().setUp()
        self.box.ok("tag", "add", "alpha", "beta", "gamma", "--step", "100")
        self.daemon = self.box.serve()

    @contextlib.contextmanager
    def watching(self, *args, **more):
        env = clean_environment(
            LEAFCTL_STATE_DIR=self.box.path("state"), HOME=self.box.path("home"), TERM="xterm", LANG="C.UTF-8"
        )
        screen = Screen(["status", "--watch", *args], env, **more)
        try:
            yield screen
        finally:
            screen.close()

    def server(self):
        return "unix:" + self.box.path("state/leafctl.sock")

    def assert_put_back(self, screen):
        text = screen.output.decode(errors="replace")
        self.assertEqual(text.count(ENTER), 1)
        self.assertIn(LEAVE, text)
        self.assertGreater(text.rindex(LEAVE), text.rindex("\x1b[J"), "something is drawn after the screen was left")
        self.assertEqual(termios.tcgetattr(screen.slave), screen.modes)

    def test_shows_what_there_is(self):
        self.daemon.ids("beta", 50)
        self.daemon.ids("gamma", 10)
        with self.watching("--server", self.server()) as screen:
            lines = screen.wait("three rows", lambda lines: "3 of 3" in lines[-1])
            self.assertEqual(len(lines), screen.rows)
            self.assertIn("ready", lines[0])
            self.assertEqual(rows_of(lines), ["alpha", "beta", "gamma"])
            beta = next(line for line in lines if line.startswith("beta"))
            self.assertRegex(beta, r"[▁▂▃▄▅▆▇█]")  # its rate
            self.assertRegex(beta, r"[█░]{10}")  # its reserve
            self.assertTrue(all(len(line) <= screen.columns for line in lines), lines)
            screen.press("q")
            self.assertEqual(screen.end(), 0)
            self.assert_put_back(screen)

    @in_own_host_name()
    def test_says_where_an_ordinal_is_from(self):
        socket.sethostname("leafctl-3")
        settings = ["--set", "snowflake.cluster=pay", "--set", "snowflake.worker_id=ordinal"]
        pod = self.box.serve("--state-dir", self.box.path("pod"), *settings)
        with self.watching("--server", pod.url) as screen:
            text = "worker 3 (host name 'leafctl-3') of pay"
            screen.wait("the host name", lambda lines: any(text in line for line in lines))

    def test_keys_sort_and_filter(self):
        self.daemon.ids("gamma", 90)
        self.daemon.ids("beta", 10)
        with self.watching("--server", self.server()) as screen:
            screen.wait("all rows", lambda lines: "3 of 3" in lines[-1])
            screen.press("r")
            screen.wait("names from the end", lambda lines: rows_of(lines) == ["gamma", "beta", "alpha"])
            screen.press("s")
            screen.wait("the rate, largest first", lambda lines: "sort: rate, largest first" in lines[-1])
            screen.press("/")
            screen.wait("a filter", lambda lines: lines[-1].startswith("filter: _"))
            screen.press("qa")  # a letter of the filter, not the key that ends
            screen.press("\x7f\x7fbet")
            screen.wait("one row", lambda lines: rows_of(lines) == ["beta"])
            screen.press("\r")
            screen.wait("the filter below", lambda lines: "1 of 3" in lines[-1] and "filter: bet" in lines[-1])
            screen.press("\x1b")
            screen.wait("all rows again", lambda lines: "3 of 3" in lines[-1])
            screen.press("q")
            self.assertEqual(screen.end(), 0)

    def test_scrolls_what_does_not_fit(self):
        self.box.ok("tag", "add", *("t%02d" % i for i in range(40)))
        self.daemon.signal(signal.SIGHUP)
        with self.watching("--server", self.server(), rows=12, columns=60) as screen:
            for i in range(40):
                self.daemon.ids("t%02d" % i)
            lines = screen.wait("43 rows", lambda lines: "43 of 43" in lines[-1])
            self.assertEqual(len(lines), 12)
            self.assertTrue(all(len(line) <= 60 for line in lines), lines)
            first = rows_of(lines)[0]
            screen.press("\x1b[B")
            screen.wait("one row further", lambda lines: rows_of(lines)[0] != first)
            screen.press("   " * 20)
            screen.wait("the last row", lambda lines: rows_of(lines)[-1] == "t39")
            screen.press("bbbb" * 20)
            screen.wait("the first row", lambda lines: rows_of(lines)[0] == "alpha")

    def test_shows_a_number_whole_or_not_at_all(self):
        """However narrow: columns go, digits do not. Wide characters take two columns."""
        self.box.ok("tag", "add", "日本語の長い名前", "--step", "1000000")
        self.daemon.signal(signal.SIGHUP)
        self.daemon.ids("日本語の長い名前", 1)
        for columns in (40, 60, 80, 110, 200):
            with self.subTest(columns=columns), self.watching("--server", self.server(), columns=columns) as screen:
                lines = screen.wait("four rows", lambda lines: "4 of 4" in lines[-1])
                begin = next(i for i, line in enumerate(lines) if line.startswith("NAME"))
                headings = re.findall("NAME|STATE|A SECOND|RESERVE|ISSUED|WASTED|WAITING", lines[begin])
                self.assertEqual(headings[:3], ["NAME", "STATE", "A SECOND"])
                for line in lines[begin:-1]:
                    self.assertLessEqual(sum(1 + (east_asian_width(c) in "WF") for c in line), columns, line)
                wide = next(line for line in lines if line.startswith("日本語"))
                numbers = re.findall(r"(?<!\S)\d+(?!\S)", wide)
                # Of this tag all were granted and one was issued.
                expected = {"A SECOND": None, "RESERVE": "999999", "ISSUED": "1", "WASTED": "0", "WAITING": "0"}
                shown = [heading for heading in headings if heading in expected]
                self.assertEqual(len(numbers), len(shown), (headings, wide))
                for heading, number in zip(shown, numbers):
                    self.assertIn(expected[heading], (None, number), (heading, wide))

    def test_shows_problems_first(self):
        with self.watching("--server", self.server()) as screen:
            screen.wait("a daemon", lambda lines: "ready" in lines[0])
            self.box.ok("tag", "pause", "beta", "--server", self.server())
            screen.wait("the paused tag", lambda lines: any(line.startswith("problem: ") for line in lines[:3]))
            self.daemon.terminate()
            screen.wait("no answer", lambda lines: "no answer" in lines[0] and "no daemon answers" in lines[1])
            # The rows stay as they were seen last.
            self.assertEqual(rows_of(screen.frame()), ["alpha", "beta", "gamma"])
            self.daemon = self.box.serve()
            screen.wait("the daemon again", lambda lines: "leafctl" in lines[0] and "no answer" not in lines[0])

    def test_shows_several_daemons(self):
        absent = "http://127.0.0.1:1"
        with self.watching("--server", self.server(), "--server", absent) as screen:
            lines = screen.wait("the other one's error", lambda lines: any("127.0.0.1:1" in line for line in lines))
            self.assertEqual(len(rows_of(lines)), 1)

    def test_ends_with_the_terminal_as_before(self):
        for end, code in (
            (lambda screen: screen.press("\x03"), -signal.SIGINT),
            (lambda screen: screen.process.send_signal(signal.SIGTERM), -signal.SIGTERM),
        ):
            with self.watching("--server", self.server()) as screen, self.subTest(code=code):
                screen.wait("a daemon", lambda lines: "ready" in lines[0])
                end(screen)
                self.assertEqual(screen.end(), code)
                self.assert_put_back(screen)

    def test_is_plain_where_no_screen_is(self):
        """In a pipe, and on a terminal that cannot do more than print."""
        process = self.box.popen(
            ["status", "--watch", "--server", self.server()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        self.assertIn("ready", process.stdout.readline().decode())
        self.assertRegex(process.stdout.readline().decode(), "^(snowflake|TAG)")
        process.kill()
        process.communicate()
        env = clean_environment(LEAFCTL_STATE_DIR=self.box.path("state"), TERM="dumb")
        screen = Screen(["status", "--watch", "--server", self.server()], env)
        deadline = time.monotonic() + DEADLINE_S
        while b"alpha" not in screen.output and time.monotonic() < deadline:
            screen.read()
        self.assertIn(b"alpha", screen.output)
        self.assertNotIn(b"\x1b", screen.output)
        screen.close()


if __name__ == "__main__":
    main()
