#!/usr/bin/env python3
"""scripts/preflight.sh on machines that are made unfit, in a namespace for mounts: it says what is missing, and nothing else.
The mirror of Debian is a server of this test's, on loopback."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import ROOT, clean_environment, main  # noqa: E402
from servers import free_port  # noqa: E402

# A silent mirror, on a slow machine, takes half a minute.
DEADLINE_S = 300
NOBODY = 65534
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# In a chroot, which is no mount point, what is needed of this machine.
CHROOT = """
mkdir "$0/root"
for name in /bin /sbin /lib* /usr /etc /proc /dev /sys /var; do
  if [ -L "$name" ]; then cp -P "$name" "$0/root$name"; else mkdir "$0/root$name" && mount --rbind "$name" "$0/root$name"; fi
done
mkdir -m 1777 "$0/root/tmp" && mkdir "$0/root/checkout" && mount --bind "$0/checkout" "$0/root/checkout" || exit 99
cp "$APT_CONFIG" "$0/root/apt.conf" && cp "$0/sources.list" "$0/root/sources.list" || exit 99
sed -i "s|$0/|/|" "$0/root/apt.conf" && APT_CONFIG=/apt.conf exec chroot "$0/root" /checkout/scripts/preflight.sh
"""


class Mirror(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"Origin: Debian\n"
        self.send_response(200 if self.path.endswith("/dists/bookworm/InRelease") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Preflight(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def setUp(self):
        # Not below /tmp, of which each machine has one of its own; and readable for all users.
        self.dir = tempfile.mkdtemp(prefix="leafctl-preflight-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        shutil.copytree(os.path.join(ROOT, "scripts"), self.path("scripts"))
        os.mkdir(self.path("checkout"))
        self.env = clean_environment(PATH=PATH, APT_CONFIG=self.path("apt.conf"))
        for name in ("LEAF_TEST_PRESETS", "http_proxy", "https_proxy"):
            self.env.pop(name, None)
        self.write("apt.conf", 'Dir::Etc::sourcelist "%s";\nDir::Etc::sourceparts "/dev/null";\n'
                   'Acquire::http::Proxy "DIRECT";\n' % self.path("sources.list"))  # fmt: skip
        self.use_mirror(self.server.server_port)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def use_mirror(self, port):
        self.write("sources.list", "deb http://127.0.0.1:%d/debian bookworm main\n" % port)

    def machine(self, prepare="", builds_mb=64000, tmp_mb=64000, memory_mb=8000, command=()):
        """What preflight.sh (or `command`) says on a machine with so much space and memory, which shell commands may change
        further."""
        meminfo = "MemTotal: 99999999 kB\nMemAvailable: %d kB\nSwapFree: 1024 kB\n" % (memory_mb * 1024)
        begin = [
            "mount -t tmpfs -o size=%dm tmpfs /tmp" % tmp_mb,
            'mount -t tmpfs -o size=%dm,mode=755 tmpfs "$0/checkout"' % builds_mb,
            'cp -r "$0/scripts" "$0/checkout/"',
            'mount --bind "%s" /proc/meminfo' % self.write("meminfo", meminfo),
            *([prepare] if prepare else []),
            'exec "$@"',
        ]
        result = subprocess.run(
            ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
             " || exit 99\n".join(begin), self.dir, *(command or [self.path("checkout/scripts/preflight.sh")])],
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            errors="replace", timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        self.assertEqual(result.stdout, "", result.stderr)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        self.assertEqual(result.returncode == 0, result.stderr == "", result.stderr)
        return result.stderr

    def refused(self, said, *parts):
        """One line, with all of these in it."""
        self.assertEqual(said.count("\n"), 1, said)
        self.assertTrue(said.startswith("preflight.sh: "), said)
        for part in parts:
            self.assertIn(part, said)

    def test_a_machine_that_has_all_of_it(self):
        self.assertEqual(self.machine(), "")

    def test_too_little_memory(self):
        self.refused(self.machine(memory_mb=1000), "too little memory: 1001 MB", "4096 MB")

    def test_too_little_space_for_the_builds(self):
        self.refused(self.machine(builds_mb=100), "too little space", "checkout has", "3 builds need 4500 MB")
        self.env["LEAF_TEST_PRESETS"] = "release"
        self.refused(self.machine(builds_mb=100), "too little space", "checkout has", "1 build needs 1500 MB")

    def test_too_little_space_for_the_tests(self):
        self.refused(self.machine(tmp_mb=100), "too little space", "/tmp has 100 MB")

    def test_a_tmp_that_cannot_be_written_to(self):
        self.refused(self.machine("mount -t tmpfs -o ro,size=64g tmpfs /tmp"), "cannot write to /tmp")

    def test_a_tmp_where_nothing_runs(self):
        self.refused(self.machine("mount -t tmpfs -o noexec,size=64g tmpfs /tmp"), "cannot run a program in /tmp")

    def test_no_mirror(self):
        self.use_mirror(free_port())
        self.refused(
            self.machine(), "no mirror of Debian answers for http://127.0.0.1:", "/dists/bookworm/InRelease", "Connection refused"
        )

    def test_a_mirror_without_the_suite(self):
        self.write("sources.list", "deb http://127.0.0.1:%d/debian nosuch main\n" % self.server.server_port)
        self.refused(self.machine(), "no mirror of Debian answers", "/dists/nosuch/InRelease", "404")

    def test_no_source(self):
        self.write("sources.list", "")
        self.refused(self.machine(), "apt has no source")

    def test_neither_root_nor_sudo(self):
        os.mkdir(self.path("bin"))
        for folder in PATH.split(":"):
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                if name != "sudo" and not os.path.lexists(self.path("bin/" + name)):
                    os.symlink(os.path.join(folder, name), self.path("bin/" + name))
        self.env["PATH"] = self.path("bin")
        user = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"] if os.geteuid() == 0 else []
        result = subprocess.run(
            [*user, self.path("scripts/preflight.sh")], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="utf-8", errors="replace", timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        self.assertEqual(result.returncode, 1)
        # This machine may lack other things, too.
        said = [line for line in result.stderr.splitlines() if "needs root" in line]
        self.refused("".join(line + "\n" for line in said), "sudo asks for no password")

    def test_a_root_that_is_no_mount_point(self):
        said = self.machine(command=["sh", "-c", CHROOT, self.dir])
        # The space below /tmp is that of this machine there.
        said = [line for line in said.splitlines() if "too little space: /tmp" not in line]
        self.refused("".join(line + "\n" for line in said), "/ is no mount point", "mount --bind ROOT ROOT")

    def test_no_namespaces(self):
        # As a container without privileges answers.
        self.write("scripts/unshare", "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
        os.chmod(self.path("scripts/unshare"), 0o755)
        self.refused(self.machine('PATH="$0/scripts:$PATH"'), "without privileges", "Operation not permitted")

    def test_no_control_groups(self):
        # As a kernel without them answers; everything else is there.
        self.write("scripts/mount", "#!/bin/sh\ncase $* in *cgroup2*) echo 'mount: no cgroup2' >&2; exit 32 ;; esac\nexec /bin/mount \"$@\"\n")
        os.chmod(self.path("scripts/mount"), 0o755)
        self.refused(self.machine('PATH="$0/scripts:$PATH"'), "cannot run a container", "no cgroup2")

    def test_it_comes_before_everything_else(self):
        # Nothing is installed, configured or built where it refuses.
        said = self.machine(builds_mb=100, memory_mb=1000, command=[self.path("checkout/scripts/test.sh")])
        self.assertEqual([line.split(":")[:2] for line in said.splitlines()],
            [["preflight.sh", " too little space"], ["preflight.sh", " too little memory"]],
        )
        self.assertEqual(os.listdir(self.path("checkout")), [])


class Names(unittest.TestCase):
    """The names of packages that scripts/lib.sh takes where one Debian has others than the next; apt asks a mirror of this
    test's, and knows of no other package."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="leafctl-names-")
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        os.makedirs(os.path.join(self.dir, "state", "lists", "partial"))
        for name, text in (
            ("status", ""),
            ("sources.list", "deb [trusted=yes] file:%s ./\n" % self.dir),
            ("apt.conf", 'Dir::State "%s/state";\nDir::State::status "%s/status";\nDir::Cache "%s/cache";\n' % ((self.dir,) * 3)
             + 'Dir::Etc::sourcelist "%s/sources.list";\nDir::Etc::sourceparts "/dev/null";\n' % self.dir
             + 'APT::Sandbox::User "root";\n'),
        ):  # fmt: skip
            self.write(name, text)

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w", encoding="utf-8") as file:
            file.write(text)

    def lib(self, *line):
        """What a function of lib.sh says of its arguments."""
        return subprocess.run(
            ["bash", "-c", '. "$0/scripts/lib.sh" && "$@"', ROOT, *line], env=clean_environment(PATH=PATH, APT_CONFIG=os.path.join(self.dir, "apt.conf")),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=DEADLINE_S,
            check=False,
        )  # fmt: skip

    def publish(self, *names):
        """What the mirror has now, and apt knows."""
        entry = "Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: x <x@localhost>\nFilename: ./%s.deb\nSize: 1\nSHA256: %s\n"
        self.write("Packages", "\n".join(entry % (name, name, "0" * 64) for name in names))
        updated = self.lib("apt-get", "-q", "update")
        self.assertEqual(updated.returncode, 0, updated)

    def test_the_first_that_apt_knows_is_taken(self):
        self.publish("one-81", "one-83", "other-83")
        chosen = self.lib("choose_packages", "plain", "one-81|one-83", "other-81|other-83")
        self.assertEqual((chosen.returncode, chosen.stdout), (0, "plain\none-81\nother-83\n"), chosen)
        self.publish("one-83")
        chosen = self.lib("choose_packages", "one-81|one-83")
        self.assertEqual((chosen.returncode, chosen.stdout), (0, "one-83\n"), chosen)

    def test_none_of_them(self):
        self.publish("one-83")
        chosen = self.lib("choose_packages", "other-81|other-83")
        self.assertEqual(chosen.returncode, 1, chosen)
        self.assertIn("none of the packages other-81 other-83", chosen.stderr)

    def test_one_that_is_installed_is_enough(self):
        missing = self.lib("missing_packages", "no-such-package|bash", "no-such-package|no-such-one", "no-such-package", "bash")
        self.assertEqual(missing.stdout, "no-such-package|no-such-one\nno-such-package\n", missing)


if __name__ == "__main__":
    main()
