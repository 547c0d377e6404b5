#!/usr/bin/env python3
"""Golden tests of the command line: transcripts in cases/*.case, each in a HOME of its own.

Each case runs twice: with pipes, and in a pseudo terminal whose output is stdout and stderr merged.
In a case file

    # text            a comment, before a command
    $ command         run by sh in HOME; leafctl, `sql` and `with_daemon` (below) are on its PATH
    > more of it      further lines of the command
    < text            a line on its standard input, typed in the terminal
    text              expected on stdout; one that starts with a special character is escaped with \\
    ! text            expected on stderr
    ? N               the exit code, which ends the expectation
    @ terminal        what follows, up to another `? N`, is expected in the terminal instead; without this
                      section the terminal shows the lines of stdout and of stderr, each in their own order
                      but mixed in any way, and the same exit code

Two processes, or two streams of one, reach a terminal in no fixed order: only an `@ terminal` section asks for one.
`\\c` at the end of a line: no newline follows. Times, paths, process ids and ports are normalised.

    run.py [CASE]...  runs these cases, or all; exit 1 if any differs
    LEAFCTL           the binary (default build/release/leafctl)
    LEAFCTL_TEST_ACCEPT=1  writes what comes out into the case files, verifies nothing, and exits 77
"""

import concurrent.futures
import difflib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from leafctl import BINARY, SANITIZER_REPORT, clean_environment  # noqa: E402

CASES = os.path.join(HERE, "cases")
TIMEOUT_S = 120
EXIT_SKIPPED = 77
SPECIAL = ("\\", "#", "$", ">", "<", "!", "?", "@")

# sql STATEMENT: runs it on the SQLite database behind leafctl's back.
SQL = """#!%s
import os, sqlite3, sys
connection = sqlite3.connect(os.environ["LEAFCTL_STATE_DIR"] + "/leaf.db")
for row in connection.execute(sys.argv[1]):
    print("|".join(map(str, row)))
connection.commit()
"""

# with_daemon COMMAND…: runs it while a daemon runs, whose log goes to serve.log.
WITH_DAEMON = """#!/bin/sh
leafctl serve --listen 127.0.0.1:0 --set segment.refresh_interval=100ms --set server.request_timeout=8s >serve.log 2>&1 </dev/null &
daemon=$!
tries=0
until leafctl status --json 2>/dev/null </dev/null | grep -q '"ready":true'; do
  tries=$((tries + 1))
  if [ $tries -gt 600 ] || ! kill -0 $daemon; then cat serve.log; kill -9 $daemon; exit 99; fi
  sleep 0.05
done
"$@"
code=$?
kill $daemon
wait $daemon || exit 98
exit $code
"""


class Step:
    """One command and what it is expected to do."""

    def __init__(self):
        self.comments = []
        self.command = []
        self.input = []
        self.out = ""
        self.err = ""
        self.code = None
        self.terminal = None  # (text, code)


def take_line(text):
    """The text that a line of an expectation stands for."""
    return text[:-2] if text.endswith("\\c") else text + "\n"


def unescape(line):
    return line[1:] if line.startswith("\\") and line[1:2] in SPECIAL else line


def parse(path):
    steps = []
    trailer = []
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    step = None
    expecting = False  # inside an expectation
    terminal = False
    for number, line in enumerate(lines, 1):
        if not expecting:
            if line.startswith("$ "):
                step = Step()
                step.comments, trailer = trailer, []
                step.command.append(line[2:])
                steps.append(step)
                expecting, terminal = True, False
            elif line == "@ terminal" and step is not None:
                step.terminal = ("", None)
                expecting, terminal = True, True
            elif not line or line.startswith("#"):
                trailer.append(line)
            else:
                sys.exit("%s:%d: neither a command nor a comment: %s" % (path, number, line))
            continue
        if line.startswith("? "):
            code = int(line[2:])
            if terminal:
                step.terminal = (step.terminal[0], code)
            else:
                step.code = code
            expecting = False
        elif terminal:
            step.terminal = (step.terminal[0] + take_line(unescape(line)), None)
        elif line.startswith("> "):
            step.command.append(line[2:])
        elif line == ">":
            step.command.append("")
        elif line.startswith("< "):
            step.input.append(line[2:])
        elif line == "<":
            step.input.append("")
        elif line.startswith("! ") or line == "!":
            step.err += take_line(line[2:])
        elif line.startswith("$ "):  # no expectation yet: a new case
            sys.exit("%s:%d: no '? N' before it; to have it written: LEAFCTL_TEST_ACCEPT=1" % (path, number))
        else:
            step.out += take_line(unescape(line))
    while trailer and not trailer[-1]:
        trailer.pop()
    return steps, trailer


def prepare(text):
    """Lets a case without expectations be parsed, when they are about to be written."""
    lines = text.rstrip("\n").split("\n")
    result = []
    open_command = False
    for line in lines:
        if line.startswith(("$ ", "#")) or not line:
            if open_command:
                result.append("? 0")
            open_command = line.startswith("$ ")
        elif line.startswith("? "):
            open_command = False
        elif not line.startswith(("> ", "< ")) and line not in (">", "<") and open_command:
            open_command = None  # an expectation: it has its own end
        result.append(line)
    if open_command:
        result.append("? 0")
    return "\n".join(result) + "\n"


def escape_lines(text, prefix=""):
    lines = []
    if not text:
        return lines
    parts = text.split("\n")
    if parts[-1] == "":
        parts.pop()
    else:
        parts[-1] += "\\c"
    for part in parts:
        if prefix:
            lines.append((prefix + part) if part else prefix.rstrip())
        else:
            lines.append("\\" + part if part.startswith(SPECIAL) else part)
    return lines


def render(steps, trailer):
    lines = []
    for step in steps:
        lines += step.comments
        lines.append("$ " + step.command[0])
        lines += ["> " + more if more else ">" for more in step.command[1:]]
        lines += ["< " + text if text else "<" for text in step.input]
        lines += escape_lines(step.out)
        lines += escape_lines(step.err, "! ")
        lines.append("? %d" % step.code)
        if step.terminal is not None:
            lines.append("@ terminal")
            lines += escape_lines(step.terminal[0])
            lines.append("? %d" % step.terminal[1])
    lines += trailer
    return "\n".join(lines) + "\n"


def normalise(text, home):
    text = text.replace(home, "HOME")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>", text)
    text = re.sub(r'(_ms"?:\s?)\d{13}\b', r"\1<ms>", text)
    text = re.sub(r'("uptime_ms":)\d+', r"\1<ms>", text)
    text = re.sub(r"\bup \d+(ms|s|m)\b", "up <duration>", text)
    text = re.sub(r"\bpid \d+", "pid <pid>", text)
    text = re.sub(r"local-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "local-<uuid>", text)
    text = re.sub(r"worker \d+ of local-", "worker <number> of local-", text)
    text = re.sub(r"\bprocess \d+ on [^ \n\"]+", "process <pid> on <host>", text)
    text = re.sub(r'("(rate|grant_latency_ms)":)[0-9.e+-]+', r"\1<figure>", text)
    text = text.replace("\x1b", "^[")
    text = re.sub(r"(127\.0\.0\.1:)[1-6]\d{4}\b", r"\1<port>", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", lambda match: "\\x%02x" % ord(match.group()), text)


def is_interleaving(text, out, err):
    """Whether `text` consists of the lines of `out` and `err`, each in their own order, mixed in any way.

    A line stays whole. The last line of a stream may lack its newline: the other's next line follows on the same line.
    """
    if len(text) != len(out) + len(err):
        return False
    out_lines, err_lines = (re.findall(r"[^\n]*\n|[^\n]+", stream) for stream in (out, err))
    begins = {(0, 0): 0}  # (lines of `out`, lines of `err`) that may be there so far: where the next one begins
    for _ in range(len(out_lines) + len(err_lines)):
        following = {}
        for (i, j), at in begins.items():
            if i < len(out_lines) and text.startswith(out_lines[i], at):
                following[i + 1, j] = at + len(out_lines[i])
            if j < len(err_lines) and text.startswith(err_lines[j], at):
                following[i, j + 1] = at + len(err_lines[j])
        begins = following
    return bool(begins)


def decode(data):
    return data.decode("utf-8", "backslashreplace")


def run_with_pipes(step, home, env):
    process = subprocess.Popen(
        ["/bin/sh", "-c", "\n".join(step.command)],
        cwd=home, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate("".join(line + "\n" for line in step.input).encode(), TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return "", "(it hangs)\n", -1
    return decode(out), decode(err), process.returncode


def run_in_terminal(step, home, env):
    master, slave = pty.openpty()
    try:
        # Without echo and without carriage returns what comes out is what was written.
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)

        # A session whose terminal that is. Python's own way to it would copy this process for each command.
        process = subprocess.Popen(
            ["/usr/bin/setsid", "--ctty", "/bin/sh", "-c", "\n".join(step.command)],
            cwd=home, env=env, stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        slave = -1
        os.write(master, "".join(line + "\n" for line in step.input).encode() + b"\x04")
        data = b""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            readable, _, _ = select.select([master], [], [], max(0, deadline - time.monotonic()))
            if not readable:
                os.killpg(process.pid, 9)
                process.wait()
                return decode(data) + "(it hangs)\n", -1
            try:
                chunk = os.read(master, 65536)
            except OSError:  # how a terminal says that its last user is gone
                chunk = b""
            if not chunk:
                break
            data += chunk
        return decode(data), process.wait(TIMEOUT_S)
    finally:
        os.close(master)
        if slave >= 0:
            os.close(slave)


def make_home():
    home = tempfile.mkdtemp(prefix="leafctl-cli-", dir="/tmp")
    bin_dir = os.path.join(home, ".bin")
    os.mkdir(bin_dir)
    os.symlink(BINARY, os.path.join(bin_dir, "leafctl"))
    for name, text in (("sql", SQL % sys.executable), ("with_daemon", WITH_DAEMON)):
        path = os.path.join(bin_dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
    env = clean_environment(HOME=home, LEAFCTL_STATE_DIR=home + "/state")
    env["NO_COLOR"] = "1"  # a case about colour takes it away
    env["PATH"] = bin_dir + ":/usr/bin:/bin"
    return home, env


def run_case(path, accept):
    """Differences as text; with `accept` what is written instead."""
    with open(path, encoding="utf-8") as file:
        before = file.read()
    if accept:
        prepared = prepare(before)
        if prepared != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(prepared)
    expected_steps, trailer = parse(path)
    found_steps, _ = parse(path)
    for in_terminal in (False, True):
        home, env = make_home()
        try:
            for expected, found in zip(expected_steps, found_steps):
                if not in_terminal:
                    out, err, code = run_with_pipes(expected, home, env)
                    found.out, found.err, found.code = normalise(out, home), normalise(err, home), code
                    if SANITIZER_REPORT.search(err):
                        print(err, file=sys.stderr)
                    continue
                text, code = run_in_terminal(expected, home, env)
                text = normalise(text, home)
                # Against what the pipe is expected to give, so that one fault is one difference.
                base = found if accept else expected
                plain = code == base.code and text in (base.out + base.err, base.err + base.out)
                mixed = code == base.code and is_interleaving(text, base.out, base.err)
                if expected.terminal is None and mixed:
                    found.terminal = None
                elif accept and plain:
                    found.terminal = None  # a section that says nothing; one that asks for a mixture stays
                elif expected.terminal is None and code == found.code and is_interleaving(text, found.out, found.err):
                    found.terminal = None
                else:
                    found.terminal = (text, code)
        finally:
            shutil.rmtree(home, ignore_errors=True)
    expected_text, found_text = render(expected_steps, trailer), render(found_steps, trailer)
    if accept:
        if found_text != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(found_text)
        return ""
    name = os.path.relpath(path, HERE)
    return "".join(
        difflib.unified_diff(
            expected_text.splitlines(True), found_text.splitlines(True), name + " (expected)", name + " (found)", n=6
        )
    )


def main():
    accept = os.environ.get("LEAFCTL_TEST_ACCEPT", "") not in ("", "0")
    if accept and os.environ.get("CI"):
        print("LEAFCTL_TEST_ACCEPT has no place in CI: expectations are reviewed by people", file=sys.stderr)
        return 1
    if not os.access(BINARY, os.X_OK):
        print("no binary at %s: build it, or name it with LEAFCTL" % BINARY, file=sys.stderr)
        return 1
    names = [name[:-5] for name in sorted(os.listdir(CASES)) if name.endswith(".case")]
    wanted = [os.path.basename(name).replace(".case", "") for name in sys.argv[1:]] or names
    unknown = sorted(set(wanted) - set(names))
    if unknown or not wanted:
        print("no such case: %s" % ", ".join(unknown), file=sys.stderr)
        return 1
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        paths = [os.path.join(CASES, name + ".case") for name in wanted]
        for name, difference in zip(wanted, pool.map(lambda path: run_case(path, accept), paths)):
            print("%s %s" % ("FAIL" if difference else "ok  ", name))
            if difference:
                failed += 1
                print(difference)
    if accept:
        print("accepted, not verified")
        return EXIT_SKIPPED
    print("%d of %d cases differ" % (failed, len(wanted)) if failed else "%d cases ok" % len(wanted))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
