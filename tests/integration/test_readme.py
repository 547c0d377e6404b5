#!/usr/bin/env python3
"""What README and the pages for users show is what happens: each command of their ```console blocks is run, in order, by
one shell, in a network and a /tmp of its own, and has to print what stands below it.

    $ command             run by bash in the root of the checkout; `> more` continues it
    text                  what it prints, stdout and stderr; up to the next command

Times, process IDs, ports that were free, random IDs and the like are compared by kind. `…` in a line stands for anything in
it, alone for any lines. The pages in the other language have the same blocks.

LEAFCTL_TEST_ACCEPT=1 writes what was found into all of them, and fails.
"""

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import words  # noqa: E402
from leafctl import BINARY, ROOT, clean_environment, main, through_sudo  # noqa: E402

# In the order in which the shell reads them; each with the same page in other languages.
PAGES = {
    "README.md": ["README.zh-CN.md"],
    **{"doc/" + name: ["doc/zh-CN/" + name] for name in ("tour.md", "operating.md", "reference.md", "testing.md")},
}
# Two screens.
README_LINES = 160
BELOW_TMP = ROOT.startswith("/tmp/")
# For one command, with a database that starts.
PATIENCE_S = 600.0
# For a background process, once the command itself has ended.
BACKGROUND_S = 120.0
# A command of a background process has printed everything if nothing follows for so long.
QUIET_S = 0.3
MARKER = "@@README@@"
# On a slow disk a first grant can take longer than a request waits: the command is given once more, as the message says.
RETRY = re.compile(r"no grant came in time\nhint: retry soon|Result\{id=-3, status=EXCEPTION\}|\"code\":\"exhausted\"")
RETRIES = 10

# What differs from run to run, and what it is compared as.
KINDS = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"process \d+ on \S+"), "process <pid> on <host>"),
    (re.compile(r"<uuid> on \S+"), "<uuid> on <host>"),
    (re.compile(r"worker \d+ of local-"), "worker <number> of local-"),
    (re.compile(r"\bworker=\d+"), "worker=<number>"),
    (re.compile(r"/repairs/\S+"), "/repairs/<file>"),
    (re.compile(r"\bpid \d+"), "pid <pid>"),
    (re.compile(r"\S+:\d{5} server_id"), "<host>:<port> server_id"),
    (re.compile(r"\d+\.\d+\.\d+-MariaDB\S*( from Debian)?"), "<version>-MariaDB"),
    (re.compile(r"127\.0\.0\.1:[23]\d{4}\b"), "127.0.0.1:<port>"),
    (re.compile(r"\bup \d+\w+"), "up <duration>"),
    (re.compile(r"with \d+ threads?"), "with <number> threads"),
    (re.compile(r"\d+ ms ahead"), "<lead> ahead"),
    (re.compile(r"\b2\d{18}\b"), "<id>"),
    (re.compile(r"\b179\d{10}\b"), "<time_ms>"),
    # Columns are as wide as what is in them.
    (re.compile(r"  +"), "  "),
    (re.compile(r"[ \t]+$"), ""),
    (re.compile(r"(?<=  )\d+ s(?=  |$)"), "<seconds> s"),
    (re.compile(r"^(\S+  (?:active|idle)  \d+  \d+)  \d+(  \d+  \d+  \d+)$"), r"\1  <rate>\2"),
]


def kinds(line):
    for pattern, name in KINDS:
        line = pattern.sub(name, line)
    return line


class Command:
    def __init__(self, text, line):
        self.text = text
        self.line = line  # of the page, from 1
        self.expected = []

    def pattern(self):
        """A regular expression for all that it prints."""
        parts = []
        for line in self.expected:
            if line.strip() == "…":
                parts.append(r"(?:.*\n)*?")
            else:
                parts.append(".*?".join(re.escape(kinds(piece)) for piece in line.split("…")) + r"\n")
        return re.compile("".join(parts))


def blocks(path):
    """The fenced blocks: [(language, first line's number, lines)]."""
    found = []
    inside = None
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for number, line in enumerate(file.read().split("\n"), 1):
            if line.startswith("```"):
                if inside is None:
                    inside = (line[3:].strip(), number + 1, [])
                else:
                    found.append(inside)
                    inside = None
            elif inside is not None:
                inside[2].append(line)
    if inside is not None:
        raise AssertionError("%s: a block does not end" % path)
    return found


def commands(path):
    found = []
    for language, first, lines in blocks(path):
        if language != "console":
            continue
        for number, line in enumerate(lines, first):
            if line.startswith("$ "):
                found.append(Command(line[2:], number))
            elif line.startswith("> ") and found and not found[-1].expected:
                found[-1].text += "\n" + line[2:]
            elif found:
                found[-1].expected.append(line)
            else:
                raise AssertionError("%s:%d: output of no command" % (path, number))
    return found


def anchors(path):
    """Of its headings, as GitHub makes them."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", file.read()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def network_of(process):
    try:
        return os.readlink("/proc/%s/ns/net" % process)
    except OSError:  # it has ended
        return None


class Shell:
    """One bash, whose output is read up to the end of each command."""

    def __init__(self, home):
        env = clean_environment(HOME=home, PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        env["TMPDIR"] = "/tmp"
        # Root makes the network and the /tmp; the commands are this user's.
        user = ["setpriv", "--reuid=%d" % os.getuid(), "--regid=%d" % os.getgid(), "--init-groups", "env", "-i"]
        user += ["%s=%s" % item for item in env.items()]
        own = [*through_sudo(), "unshare", "--net", "--mount"]
        begin = "ip link set lo up && mount -t tmpfs tmpfs %s && " % ("/mnt" if BELOW_TMP else "/tmp")
        if BELOW_TMP:
            # The checkout is seen through the new /tmp.
            begin += 'mkdir -p "/mnt/$1" && mount --bind "/tmp/$1" "/mnt/$1" && mount --move /mnt /tmp && cd "/tmp/$1" && '
        # A session of its own begins only here: sudo remembers by the terminal that a password was given.
        begin += "exec setsid %s bash --noprofile --norc" % shlex.join(user)
        self.process = subprocess.Popen(
            [*own, "sh", "-c", begin, "sh", os.path.relpath(ROOT, "/tmp")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=env,
        )  # fmt: skip
        self.text = ""
        self.number = 0
        self.network = None
        try:
            self.network = self.run("readlink /proc/self/ns/net", lambda _: True).strip()
        except BaseException:
            self.close()
            raise

    def _more(self, timeout):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            return False
        data = os.read(self.process.stdout.fileno(), 65536)
        if not data:
            raise AssertionError("the shell has ended; last: %s" % self.text)
        self.text += data.decode("utf-8", "replace")
        return True

    def run(self, command, satisfied):
        """What it printed. Of background processes too: waits until `satisfied(text)`, then for quiet."""
        self.number += 1
        marker = "%s%d" % (MARKER, self.number)
        self.process.stdin.write(("%s\ncode=$?; echo %s; (exit $code)\n" % (command, marker)).encode())
        self.process.stdin.flush()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self._more(QUIET_S):
                if marker in self.text:
                    deadline = min(deadline, time.monotonic() + BACKGROUND_S)
                continue
            if marker in self.text and satisfied(self.text.replace(marker + "\n", "")):
                break
        found = self.text.replace(marker + "\n", "")
        ended = marker in self.text
        self.text = ""
        if not ended:
            raise AssertionError("%r does not end; it has printed:\n%s" % (command, found))
        return found

    def close(self):
        """Ends it with all that it started: what is in its network. Servers have sessions of their own."""
        if self.network not in (None, network_of("self")):
            for name in os.listdir("/proc"):
                if name.isdigit() and network_of(name) == self.network:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(name), signal.SIGKILL)
        with contextlib.suppress(PermissionError):  # sudo, which ends with what it has started
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def accept(path, found_of):
    """Writes what was found below each command of a page, in all languages."""
    for page in [path, *PAGES[path]]:
        out = []
        inside = skipping = False
        index = 0
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            for line in file.read().split("\n"):
                if line.startswith("```"):
                    inside = line[3:].strip() == "console"
                    skipping = False
                    out.append(line)
                elif inside and line.startswith("$ "):
                    lines = found_of[index][0].split("\n")
                    out += ["$ " + lines[0]] + ["> " + more for more in lines[1:]]
                    found = found_of[index][1]
                    index += 1
                    skipping = found is not None
                    if skipping and found:
                        out += found.rstrip("\n").split("\n")
                elif not (inside and (skipping or line.startswith("> "))):
                    out.append(line)
        with open(os.path.join(ROOT, page), "w", encoding="utf-8") as file:
            file.write("\n".join(out))


class Readme(unittest.TestCase):
    maxDiff = None

    def test_commands_print_what_they_show(self):
        self.assertEqual(BINARY, os.path.join(ROOT, "build", "release", "leafctl"), "README runs this one")
        home = tempfile.mkdtemp(prefix="leafctl-readme-")
        self.addCleanup(shutil.rmtree, home, ignore_errors=True)
        shell = Shell(home)
        self.addCleanup(shell.close)
        wrong = []
        for path in PAGES:
            wrong += self.run_page(path, shell)
        self.assertFalse(wrong, "\n\n".join(wrong))

    def run_page(self, path, shell):
        """What it shows and does not happen."""
        wrong = []
        found_of = []
        for command in commands(path):
            pattern = command.pattern()

            def matches(text, pattern=pattern):
                return pattern.fullmatch("".join(kinds(line) + "\n" for line in text.split("\n")[:-1])) is not None

            def satisfied(text, matches=matches):
                return os.environ.get("LEAFCTL_TEST_ACCEPT") or RETRY.search(text) or matches(text)

            found = shell.run(command.text, satisfied)
            for _ in range(RETRIES):
                if not RETRY.search(found):
                    break
                found = shell.run(command.text, satisfied)
            good = found == "" or found.endswith("\n")
            good = good and matches(found)
            found_of.append((command.text, None if good else found))
            if not good:
                wrong.append("%s:%d: $ %s\nshows:\n%s\nprints:\n%s" % (
                    path, command.line, command.text, "\n".join(command.expected), found))
        if os.environ.get("LEAFCTL_TEST_ACCEPT"):
            accept(path, found_of)
        return wrong

    def test_commands_stand_where_they_are_run(self):
        for path in self.all_pages():
            for language, first, lines in blocks(path):
                for number, line in enumerate(lines, first):
                    if language != "console" and line.startswith("$ "):
                        self.fail("%s:%d: not in a console block: %s" % (path, number, line))

    def all_pages(self):
        return [page for path, others in PAGES.items() for page in (path, *others)]

    def test_commands_are_found(self):
        self.assertGreater(len(commands("README.md")), 8)
        self.assertGreater(len(commands("doc/tour.md")), 60)

    def test_configurations_are_good(self):
        found = 0
        for path in self.all_pages():
            for language, first, lines in blocks(path):
                if language or not lines[0].startswith("["):
                    continue
                found += 1
                with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                    file.write("\n".join(lines))
                    file.flush()
                    checked = subprocess.run(
                        [BINARY, "--config", file.name, "config", "check"], env=clean_environment(HOME="/nonexistent"),
                        capture_output=True, text=True,
                    )  # fmt: skip
                self.assertEqual(checked.returncode, 0, "%s:%d: %s" % (path, first, checked.stderr))
        self.assertEqual(found, 2)

    def test_other_languages_show_the_same(self):
        for path, others in PAGES.items():
            expected = [block[2] for block in blocks(path) if block[0] in ("console", "sh")]
            for other in others:
                self.assertEqual([block[2] for block in blocks(other) if block[0] in ("console", "sh")], expected, other)

    def test_readme_is_two_screens(self):
        for path in ("README.md", *PAGES["README.md"]):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                self.assertLessEqual(len(file.readlines()), README_LINES, path)

    def test_words_are_plain(self):
        for path in PAGES:
            self.assertEqual(words.in_file(os.path.join(ROOT, path)), [], path)

    def test_links_lead_somewhere(self):
        for path in self.all_pages():
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                text = file.read()
            for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
                target = target[0] or target[1]
                if "://" in target:
                    continue
                name, _, anchor = target.partition("#")
                page = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
                self.assertTrue(os.path.exists(os.path.join(ROOT, page)), "%s: no %s" % (path, target))
                if anchor:
                    self.assertIn(anchor, anchors(page), "%s: no %s" % (path, target))


if __name__ == "__main__":
    main()
