#!/usr/bin/env python3
"""The Debian packages on a machine that has nothing else: made from the build, installed with apt into a bare root,
used, upgraded, removed and purged there; and the one file for any Linux in a bare root. Needs to be root for it, and
becomes it with sudo.

Environment: LEAFCTL_BUILD_DIR       the build (default build/release)
             LEAFCTL_TARBALL_SUITES  suites of Debian in whose bare roots the one file is tried (default this machine's)
"""

import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from bare_root import BareRoot, command, make_base, suite  # noqa: E402
from debs import BASE, BUILD, make_debs, revision, version  # noqa: E402
from leafctl import ROOT, main, through_sudo  # noqa: E402

CONFIG = "/etc/leafctl/leafctl.toml"
STATE = "/var/lib/leafctl"
UNITS = "/usr/lib/systemd/system"
SAMPLES = "/usr/share/doc/libleaf-dev/examples"
COMPLETIONS = {
    "bash": "/usr/share/bash-completion/completions/leafctl",
    "zsh": "/usr/share/zsh/vendor-completions/_leafctl",
    "fish": "/usr/share/fish/vendor_completions.d/leafctl.fish",
}
USER = "4242:4242"
USER_HOME = "/home/person"


def setUpModule():
    global DEBS, FIRST, SECOND, DEV
    DEBS = tempfile.TemporaryDirectory(prefix="leafctl-debs-")
    try:
        # What that version left behind is handed over.
        FIRST, DEV = make_debs(os.path.join(DEBS.name, "first"), "0.1.0")
        SECOND, _ = make_debs(os.path.join(DEBS.name, "second"), version())
        make_base(BASE)
    except BaseException:
        DEBS.cleanup()
        raise


def tearDownModule():
    DEBS.cleanup()


def linked():
    """Some of what is in the binary. The packages of Boost and of the C++ library have other names in each Debian."""
    with open(os.path.join(BUILD, "config", "libraries.txt"), encoding="utf-8") as file:
        (boost,) = re.findall(r"(?m)^libboost1\.\d+-dev", file.read())
    library = "libstdc++-%s-dev" % command(["g++", "-dumpversion"]).strip().split(".", maxsplit=1)[0]
    return (boost, library, "libfmt-dev", "libsoci-dev", "libsqlite3-dev", "libzookeeper-mt-dev")


class Packages(unittest.TestCase):
    maxDiff = None

    def make_root(self):
        root = BareRoot(BASE)
        self.addCleanup(root.close)
        root.ok("mkdir -p %s && chown %s %s" % (USER_HOME, USER, USER_HOME))
        return root

    def put(self, root, deb):
        """Brings a package in; its path there."""
        shutil.copy(deb, root.path("/tmp"))
        return "/tmp/" + os.path.basename(deb)

    def install(self, root, *debs, recommends=True):
        return root.install(*[self.put(root, deb) for deb in debs], recommends=recommends)

    def test_the_binary_is_hardened(self):
        folder = os.path.join(DEBS.name, "unpacked")
        command(["dpkg-deb", "-x", FIRST, folder])
        binary = os.path.join(folder, "usr/bin/leafctl")
        read = command(["readelf", "-W", "--file-header", "--program-headers", "--dynamic", "--dyn-syms", binary])
        for pattern in (r"Type:\s+DYN", r"GNU_RELRO", r"FLAGS_1\).*NOW.*PIE", r"__stack_chk_fail@", r"__\w+_chk@"):
            self.assertRegex(read, pattern)
        self.assertNotRegex(read, r"GNU_STACK.*RWE")
        with open(binary, "rb") as file:
            content = file.read()
        self.assertNotIn((ROOT + "/lib/leaf").encode(), content)
        if platform.machine() == "x86_64":
            # endbr64, where an indirect branch may go (-fcf-protection): in all of our functions. The linker's mark for
            # the whole binary needs it in the C library's start files, too, and Debian's have none.
            self.assertGreater(content.count(b"\xf3\x0f\x1e\xfa"), 5000)

    def test_what_is_in_the_binary_is_named(self):
        field = command(["dpkg-deb", "--field", FIRST, "Static-Built-Using"]).strip()
        sources = dict(re.fullmatch(r"(\S+) \(= (\S+)\)", entry).groups() for entry in field.split(", "))
        for library in linked():
            source, version = command(
                ["dpkg-query", "--show", "--showformat=${source:Package} ${source:Version}", library]
            ).split()
            self.assertEqual(sources[source], version)
        self.assertEqual(command(["dpkg-deb", "--field", FIRST, "Suggests"]).count("\n"), 1)

    # ---- one node's life ---------------------------------------------------------------------------------------------

    def test_installed_used_upgraded_removed_and_purged(self):
        root = self.make_root()
        bare = root.files()
        self.install(root, FIRST)
        root.ok("apt-get -q -y purge leafctl")
        # What is left is what came with it.
        without = root.files()
        self.assertEqual({path for path in without - bare if "leafctl" in path}, set())
        self.install(root, FIRST)
        self.check_installed(root)
        self.check_first_ids(root)
        self.check_upgrade(root)
        self.check_removal(root, without)
        self.check_purge(root, without)
        root.ok("apt-get -q -y autoremove --purge")
        self.assertEqual(root.files() ^ bare, set())

    def check_installed(self, root):
        # With what it needs, and what it may need.
        self.assertIn("installed", root.ok("dpkg-query -W -f '${db:Status-Status}' libmariadb3"))
        self.assertRegex(root.read("/etc/passwd"), r"(?m)^leafctl:.*:/var/lib/leafctl:/usr/sbin/nologin$")
        # What the unit runs is on the smallest machine.
        unit = root.read(UNITS + "/leafctl.service")
        run = re.findall(r"(?m)^Exec\w+=[-+!@:]*(\S+)", unit)
        self.assertEqual((len(run), [path for path in run if not root.exists(path)]), (3, []))
        # Nothing was started: there is no systemd. Both are enabled.
        self.assertTrue(root.exists("/etc/systemd/system/multi-user.target.wants/leafctl.service"))
        self.assertTrue(root.exists("/etc/systemd/system/sockets.target.wants/leafctl.socket"))
        self.assertEqual(root.run("dpkg --verify leafctl"), (0, "", ""))
        self.assertIn(CONFIG, root.ok("dpkg-query -W -f '${Conffiles}' leafctl"))
        root.ok("leafctl config check")
        self.assertFalse(
            [line for line in root.ok("leafctl config show --origin").splitlines() if CONFIG in line],
            "the installed file sets nothing",
        )
        for shell, path in COMPLETIONS.items():
            self.assertEqual(root.read(path), root.ok("leafctl completion " + shell), path)
        root.ok("bash -n " + COMPLETIONS["bash"])
        for name in ("copyright", "copyright.libraries.gz"):
            self.assertTrue(root.exists("/usr/share/doc/leafctl/" + name), name)

    def check_first_ids(self, root):
        for account, state in (({}, STATE), ({"user": USER, "home": USER_HOME}, USER_HOME + "/.local/state/leafctl")):
            self.assertEqual(root.run("leafctl next fresh", **account).rc, 9, "a tag that was not added")
            root.ok("leafctl tag add fresh", **account)
            self.assertEqual(root.ok("leafctl next fresh -n 2", **account), "1\n2\n")
            self.assertEqual(root.ok("leafctl next fresh", **account), "3\n")
            self.assertGreater(int(root.ok("leafctl next --mode snowflake", **account)), 1 << 50)
            self.assertTrue(root.exists(state + "/marks.db"), state)

    def check_handover(self, root):
        """What root's commands of before left in the service's directory becomes the service's, and nothing else."""
        root.ok("chown leafctl:leafctl %s && mkdir %s/repairs && touch %s/repairs/old" % (STATE, STATE, STATE))
        root.ok("touch /root/precious && ln /root/precious %s/hard && ln -s /root/precious %s/soft" % (STATE, STATE))
        self.install(root, SECOND)
        owners = dict(
            reversed(line.split()) for line in root.ok("find %s /root/precious -printf '%%u %%p\\n'" % STATE).splitlines()
        )
        for name in ("", "/leaf.db", "/marks.db", "/lock", "/snowflake.state", "/repairs", "/repairs/old"):
            self.assertEqual(owners[STATE + name], "leafctl", name)
        for name in ("/root/precious", STATE + "/hard", STATE + "/soft"):
            self.assertEqual(owners[name], "root", name)
        root.ok("rm -r /root/precious %s/hard %s/soft %s/repairs" % (STATE, STATE, STATE))

    def check_upgrade(self, root):
        # What an administrator has changed is kept, without a question.
        config = root.read(CONFIG) + "\n# Changed here.\n"
        root.write(CONFIG, config)
        state = self.state_files(root)
        snowflake = int(root.ok("leafctl next --mode snowflake"))
        self.check_handover(root)
        self.assertEqual(root.ok("dpkg-query -W -f '${Version}' leafctl"), os.path.basename(SECOND).split("_")[1])
        self.assertEqual(root.read(CONFIG), config)
        self.assertEqual(self.state_files(root), state)
        self.assertEqual(root.ok("leafctl next fresh -n 2"), "4\n5\n")
        self.assertGreater(int(root.ok("leafctl next --mode snowflake")), snowflake)
        # The marks are what they were: a database that goes back is found out.
        with sqlite3.connect(root.path(STATE + "/leaf.db")) as database:
            database.execute("UPDATE leaf_alloc SET max_id = 4")
        database.close()
        refused = root.run("leafctl next fresh")
        self.assertEqual((refused.rc, refused.out), (11, ""), refused.err)
        root.ok("leafctl tag repair fresh --confirm fresh")
        self.assertGreaterEqual(int(root.ok("leafctl next fresh")), 6)

    @staticmethod
    def state_files(root):
        return sorted(os.listdir(root.path(STATE)))

    def check_removal(self, root, without):
        root.ok("apt-get -q -y remove leafctl")
        state = {STATE} | {STATE + "/" + name for name in self.state_files(root)}
        self.assertIn(STATE + "/marks.db", state)
        self.assertEqual(root.files() ^ without, {"/etc/leafctl", CONFIG} | state)
        # Back again, with the numbers going on.
        self.install(root, SECOND)
        self.assertGreaterEqual(int(root.ok("leafctl next fresh")), 7)
        self.assertTrue(root.exists("/etc/systemd/system/multi-user.target.wants/leafctl.service"))

    def check_purge(self, root, without):
        root.write("/etc/leafctl/mysql-password", "secret\n", 0o600)
        root.ok("mkdir -p /var/lib/private/leafctl")
        said = root.ok("apt-get -q -y purge leafctl 2>&1")
        self.assertNotIn("warning", said)
        root.ok("rmdir /var/lib/private")
        self.assertEqual(root.files() ^ without, set())

    # ---- what the scripts ask of systemd -----------------------------------------------------------------------------

    def test_what_is_asked_of_systemd(self):
        # Its place is taken by a script that writes down what it is told; nothing here can run it as process 1.
        root = self.make_root()
        os.makedirs(root.path("/run/systemd/system"))
        active = "/run/leafctl-is-active"
        root.write(
            "/usr/bin/systemctl",
            '#!/bin/sh\necho "$*" >>/run/asked\ncase "$*" in\n'
            '*is-active*) cat %s 2>/dev/null ;;\n*is-enabled*) echo enabled ;;\nesac\n' % active,
            0o755,
        )

        def asked():
            lines = root.read("/run/asked").splitlines()
            root.write("/run/asked", "")
            return [
                " ".join(word for word in line.split() if not word.startswith("--"))
                for line in lines
                if not any(word in line for word in ("is-active", "is-enabled", "preset"))
            ]

        self.install(root, FIRST, recommends=False)
        self.assertEqual(asked(), ["daemon-reload", "start leafctl.socket leafctl.service"])
        # Stopped by an operator: it stays so.
        self.install(root, SECOND, recommends=False)
        self.assertEqual(asked(), ["daemon-reload"])
        # Running: restarted after, and not stopped before.
        for state in ("active", "activating"):
            root.write(active, state + "\n")
            root.ok("apt-get -q -y --allow-downgrades install " + self.put(root, FIRST))
            self.assertEqual(asked(), ["daemon-reload", "restart leafctl.service"])
            root.write(active, "inactive\n")
            self.install(root, SECOND, recommends=False)
            self.assertEqual(asked(), ["daemon-reload"])
        root.ok("apt-get -q -y remove leafctl")
        self.assertEqual(asked(), ["stop leafctl.socket leafctl.service", "daemon-reload"])
        # Its configuration is there still, and it starts as after a first installation.
        self.install(root, SECOND, recommends=False)
        self.assertEqual(asked(), ["daemon-reload", "start leafctl.socket leafctl.service"])
        root.ok("apt-get -q -y remove leafctl")
        self.assertEqual(asked(), ["stop leafctl.socket leafctl.service", "daemon-reload"])
        root.ok("apt-get -q -y purge leafctl")
        self.assertEqual(asked(), ["daemon-reload"])
        # A machine whose policy forbids it: installed, and not started.
        root.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
        self.install(root, FIRST, recommends=False)
        self.assertEqual(asked(), ["daemon-reload"])

    # ---- beside systemd, man and a compiler --------------------------------------------------------------------------

    def test_units_manuals_and_library(self):
        root = self.make_root()
        root.install("systemd", "man-db", "g++", "cmake", "make", "pkg-config", recommends=False)
        self.install(root, FIRST, DEV)
        self.check_units(root)
        self.check_manuals(root)
        self.check_library(root)

    def check_units(self, root):
        verify = "systemd-analyze --no-pager verify --man=no leafctl.service leafctl.socket 2>&1"
        self.assertEqual(root.run(verify), (0, "", ""))
        # The test can fail.
        path = UNITS + "/leafctl.service"
        unit = root.read(path)
        root.write(path, unit.replace("ExecStart=/usr/bin/leafctl", "ExecStart=/usr/bin/no-such-leafctl"))
        self.assertIn("no-such-leafctl", root.run(verify).out)
        root.write(path, unit)
        # The account is there, and the units agree on it.
        self.assertIn("leafctl", root.ok("getent passwd leafctl"))
        self.assertIn("User=leafctl", unit)

    def check_manuals(self, root):
        pages = sorted(os.listdir(os.path.join(ROOT, "man")))
        self.assertIn("leafctl.7", pages)
        for page in pages:
            name, section = page.rsplit(".", 1)
            self.assertTrue(root.exists("/usr/share/man/man%s/%s.gz" % (section, page)), page)
            # A hyphen in a name may look otherwise on a page.
            self.assertIn(name.split("-")[0], root.ok("MANPAGER=cat man %s %s" % (section, name)), page)
        for file in ("prometheus/leafctl.rules.yml", "sql/leaf_alloc.sql"):
            self.assertTrue(root.exists("/usr/share/leafctl/" + file), file)

    def check_library(self, root):
        # In another folder than the library's, as in a user's project.
        root.ok("cp -r %s /tmp/example" % SAMPLES)
        root.ok("cmake -S /tmp/example -B /tmp/example/build -DCMAKE_BUILD_TYPE=Release && cmake --build /tmp/example/build")
        with_pkg_config = (
            "g++ -std=c++20 -Wall -Wextra -Werror /tmp/example/%s.cc -o /tmp/%s $(pkg-config --cflags --libs --static %s)"
        )
        root.ok(with_pkg_config % ("main", "generators", "leaf"))
        root.ok(with_pkg_config % ("client", "client", "leaf-client"))
        for program in ("/tmp/example/build/example", "/tmp/generators"):
            self.check_example(root, program)
        self.check_no_macro(root)
        self.check_pasted(root)
        # The light half needs no database and no ZooKeeper, not even to be linked.
        for program in ("/tmp/example/build/example-client", "/tmp/client"):
            needed = root.ok("ldd " + program)
            for library in ("soci", "sqlite", "zookeeper", "mariadb"):
                self.assertNotIn(library, needed)
            self.assertEqual(root.run(program + " unix:/nowhere fresh").rc, 1)

    def check_no_macro(self, root):
        """What a program includes defines no macro in it."""
        root.write("/tmp/face.cc", '#include "leaf/leaf.h"\n')
        preprocessed = root.ok("g++ -std=c++20 -E -dD $(pkg-config --cflags leaf) /tmp/face.cc")
        defined, headers, header = [], set(), ""
        for line in preprocessed.splitlines():
            marker = re.match(r'# \d+ "([^"]*)"', line)
            if marker:
                header = marker[1]
                headers.add(header)
            elif line.startswith("#define") and "include/leaf/" in header:
                defined.append(line)
        self.assertEqual(defined, [])
        # It was looked for where it could be found.
        self.assertLess({"/usr/include/leaf/leaf.h", "/usr/include/leaf/base/result_type.h"}, headers)

    def check_pasted(self, root):
        """The example of the reference, as a reader pastes it: IDs, at the first run and at the next."""
        with open(os.path.join(ROOT, "doc", "reference.md"), encoding="utf-8") as file:
            (code,) = re.findall(r"^```cpp\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        with open(os.path.join(ROOT, "doc", "zh-CN", "reference.md"), encoding="utf-8") as file:
            (translated,) = re.findall(r"^```cpp\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        without_comments = [re.sub(r" *//.*", "", text) for text in (code, translated)]
        self.assertEqual(*without_comments)
        self.assertIn('"/var/lib/shop/leaf"', code)
        root.write("/tmp/pasted.cc", code.replace("/var/lib/shop/leaf", "/tmp/pasted-state"))
        root.ok("g++ -std=c++20 -Wall -Wextra -Werror /tmp/pasted.cc -o /tmp/pasted $(pkg-config --cflags --libs --static leaf)")
        runs = [tuple(map(int, root.ok("/tmp/pasted").split())) for _ in range(2)]
        self.assertEqual(runs[0][0], 1)
        self.assertGreater(runs[1][0], 10)
        self.assertGreater(runs[1][1], runs[0][1])

    # ---- one file for any Linux ----------------------------------------------------------------------------------

    def test_one_file_for_any_linux(self):
        folder = os.path.join(DEBS.name, "tarball")
        command([os.path.join(ROOT, "scripts", "tarball.sh"), BUILD, folder])
        (name,) = os.listdir(folder)
        self.assertEqual(name, "leafctl-%s-linux-%s.tar.gz" % (version(), platform.machine()))
        # The same bytes each time.
        again = os.path.join(DEBS.name, "tarball-again")
        command([os.path.join(ROOT, "scripts", "tarball.sh"), BUILD, again])
        self.assertEqual(*(command(["sha256sum", os.path.join(one, name)]).split()[0] for one in (folder, again)))
        for tried in (os.environ.get("LEAFCTL_TARBALL_SUITES") or suite()).split():
            with self.subTest(suite=tried):
                self.check_one_file(tried, os.path.join(folder, name))

    def check_one_file(self, tried, tarball):
        base = os.path.join(BUILD, "packages-base-%s.tar" % tried)
        make_base(base, tried)
        root = BareRoot(base, apt=False)
        self.addCleanup(root.close)
        before = root.files()
        command(["tar", "-C", root.path("/opt"), "-xzf", tarball])
        (unpacked,) = os.listdir(root.path("/opt"))
        leafctl = "LEAFCTL_STATE_DIR=/tmp/state /opt/%s/bin/leafctl " % unpacked
        self.assertIn(version(), root.ok(leafctl + "version"))
        root.ok(leafctl + "tag add pay --step 100")
        self.assertEqual(root.ok(leafctl + "next pay -n 3"), "1\n2\n3\n")
        # A daemon, and what throws and catches: an exception finds its way without the newest C library.
        root.ok(
            "%s serve --listen 127.0.0.1:0 >/tmp/log 2>&1 & "
            "%s next pay -n 2 --server unix:/tmp/state/leafctl.sock --wait 120s >/tmp/ids; kill $!; wait $!" % (leafctl, leafctl)
        )
        self.assertEqual(root.read("/tmp/ids"), "4\n5\n")
        bad = root.run("echo 'x = [' >/tmp/bad.toml; %s --config /tmp/bad.toml config check" % leafctl)
        self.assertEqual(bad.rc, 6, bad)
        self.assertIn("/tmp/bad.toml:1", bad.err)
        self.assertNotEqual(*(root.ok(leafctl + "next --mode snowflake") for _ in range(2)))
        # The one thing that it needs from the system.
        mysql = root.run(leafctl + "tag list --set segment.store=mysql")
        self.assertNotEqual(mysql.rc, 0)
        self.assertIn("libmariadb", mysql.err)
        # All of it is in one folder.
        self.assertEqual({path for path in root.files() - before if not path.startswith("/opt/")}, set())
        inside = "/opt/" + unpacked
        for path in ("bin/leafctl", "LICENSE", "share/man/man1/leafctl.1.gz", "lib/systemd/system/leafctl.service",
                     "share/bash-completion/completions/leafctl"):  # fmt: skip
            self.assertTrue(root.exists(inside + "/" + path), path)
        self.assertIn("ExecStart=/usr/local/bin/leafctl", root.read(inside + "/lib/systemd/system/leafctl.service"))
        document = json.loads(root.read(inside + "/sbom.spdx.json"))
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        purls = [one["externalRefs"][0]["referenceLocator"] for one in document["packages"] if "externalRefs" in one]
        release = revision(version()).rsplit("~deb", 1)[1]
        self.assertEqual({purl.rsplit("?", 1)[1] for purl in purls}, {"distro=debian-" + release})
        named = {one["name"]: one["versionInfo"] for one in document["packages"]}
        self.assertEqual(named.pop("leafctl"), version())
        for library, found in named.items():
            self.assertEqual(command(["dpkg-query", "--show", "--showformat=${Version}", library]), found, library)
        for library in linked():
            self.assertIn(library, named)

    def check_example(self, root, program):
        state = program + "-state"
        first = json.loads(root.ok("%s %s" % (program, state)))
        second = json.loads(root.ok("%s %s" % (program, state)))
        ids = [int(text) for text in first["segment"] + second["segment"]]
        self.assertEqual(ids, sorted(set(ids)), "never twice, and upward")
        self.assertEqual(len(ids), 20)
        self.assertLess(int(first["snowflake"]), int(second["snowflake"]))
        # Codes, with a key of the command's.
        root.ok("leafctl code keygen %s.key" % state)
        third = json.loads(root.ok("%s %s %s.key" % (program, state, state)))
        self.assertRegex(third["code"], r"^\d{4}-\d{4}-\d{4}-\d{3}$")
        self.assertEqual(int(third["of"]), int(third["segment"][-1]) + 1)


def as_root():
    """All of this needs root. What it leaves in the build folder belongs to this user all the same."""
    sudo = through_sudo(keep=("LEAFCTL_BUILD_DIR", "LEAFCTL_TARBALL_SUITES", "LEAFCTL_TEST_SEED", "http_proxy", "https_proxy", "no_proxy"))
    code = subprocess.call([*sudo, "PYTHONDONTWRITEBYTECODE=1", sys.executable, *sys.argv])
    owner = "%d:%d" % (os.getuid(), os.getgid())
    left = [entry.path for entry in os.scandir(BUILD) if entry.stat(follow_symlinks=False).st_uid == 0]
    if left:
        subprocess.check_call([*sudo, "chown", "-h", owner, *left])
    return code


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(as_root())
    main()
