#!/usr/bin/env python3
"""The package on a machine that systemd runs: started, killed, restarted, upgraded, misconfigured, removed and purged.
No request fails during a restart, because the socket unit holds the sockets. A part of scripts/soak.sh, since not every machine of
a test run lets systemd be started. Needs to be root.

Environment: LEAFCTL_BUILD_DIR  the build (default build/release)
"""

import os
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import explain  # noqa: E402
from bare_root import BareRoot, make_base  # noqa: E402
from booted_root import BootedRoot  # noqa: E402
from debs import BASE, make_debs, version  # noqa: E402
from leafctl import main, poll  # noqa: E402

CONFIG = "/etc/leafctl/leafctl.toml"
STATE = "/var/lib/leafctl"
ASK = "curl -s --max-time 60 --unix-socket /run/leafctl/leafctl.sock http://localhost"


class Booted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_base(BASE)
        root = BareRoot(BASE)
        cls.addClassCleanup(root.close)
        root.install("systemd", "dbus", "curl", "libmariadb3", recommends=False)
        with tempfile.TemporaryDirectory(prefix="leafctl-debs-") as folder:
            for name, number in (("first", version()), ("second", version() + ".1")):
                shutil.copy(make_debs(os.path.join(folder, name), number)[0], root.path("/root/%s.deb" % name))
        cls.machine = BootedRoot(root)
        cls.addClassCleanup(cls.machine.close)
        explain.watch(cls.machine, cls.machine.running)

    def setUp(self):
        self.ok = self.machine.ok
        self.ok("dpkg -i /root/first.deb")
        # Whatever a test leaves: the next one starts with nothing.
        self.addCleanup(lambda: self.ok("dpkg --purge leafctl"))

    def active(self):
        return self.machine.run("systemctl is-active leafctl.service").out.strip()

    def wait_active(self):
        poll(lambda: self.active() == "active", "an active service")

    def shown(self, name):
        return self.ok("systemctl show --property %s --value leafctl.service" % name).strip()

    def test_started_by_its_installation(self):
        self.assertEqual(self.ok("systemctl is-active leafctl.service leafctl.socket"), "active\nactive\n")
        self.assertIn("ready: segment mode", self.shown("StatusText"))
        self.ok("leafctl tag add pay")
        self.assertEqual(self.ok("leafctl next pay -n 3"), "1\n2\n3\n")
        self.assertGreater(int(self.ok("leafctl next --mode snowflake")), 1 << 50)
        # What root's commands did is the service's all the same, and only its own.
        self.assertEqual(self.ok("find %s ! -user leafctl" % STATE), "")
        self.assertEqual(self.ok("find %s -type f -perm /077" % STATE), "")
        pid = self.shown("MainPID")
        self.assertRegex(self.ok("cat /proc/%s/limits" % pid), r"Max core file size\s+0\s+0")
        self.assertRegex(self.ok("cat /proc/%s/status" % pid), r"(?s)CapEff:\s+0000000000000000.*NoNewPrivs:\s+1")

    def test_killed_beside_a_command_that_has_its_state_directory(self):
        ids = [int(self.ok("leafctl next --mode snowflake"))]
        for _ in range(3):
            restarts = int(self.shown("NRestarts"))
            # The command takes over what the killed one leaves, and has to wait for its ceiling; the restart comes
            # meanwhile.
            self.ok("kill -9 " + self.shown("MainPID"))
            ids.append(int(self.ok("sleep 0.3; leafctl next --mode snowflake --direct")))
            poll(lambda: int(self.shown("NRestarts")) > restarts, "a restart")  # noqa: B023
            self.wait_active()
            ids.append(int(self.ok("leafctl next --mode snowflake")))
        self.assertEqual(ids, sorted(set(ids)), "never twice, and upward")
        self.assertEqual(self.active(), "active")

    def test_no_request_fails_while_it_is_restarted_and_upgraded(self):
        self.ok("leafctl tag add pay")
        asking = self.machine.background(
            "while test ! -e /run/enough; do %s/api/segment/get/pay -w ' %%{http_code}\\n'; done; "
            "%s/api/segment/get/pay -w ' %%{http_code}\\n'" % (ASK, ASK)
        )
        try:
            before = self.shown("MainPID")
            self.ok("systemctl restart leafctl")
            restarted = self.shown("MainPID")
            self.ok("echo 'level = \"debug\"' >>%s; systemctl reload leafctl" % CONFIG)
            self.assertEqual(self.shown("MainPID"), restarted)
            self.assertRegex(self.ok("journalctl -u leafctl --no-pager"), r"leafctl\[%s\]: reloaded: .*log\.level" % restarted)
            self.ok("dpkg -i --force-confold /root/second.deb")
            self.wait_active()
            upgraded = self.shown("MainPID")
        finally:
            self.machine.run("touch /run/enough")
            try:
                said, _ = asking.communicate(timeout=300)
            finally:
                asking.kill()
            self.machine.run("rm /run/enough")
        self.assertEqual(len({before, restarted, upgraded}), 3)
        answers = [line.rsplit(None, 1) for line in said.splitlines()]
        self.assertEqual({len(answer) for answer in answers}, {2}, said)
        self.assertEqual({code for _, code in answers}, {"200"})
        ids = [int(id) for id, _ in answers]
        self.assertEqual(ids, sorted(set(ids)), "never twice, and upward")
        self.assertGreater(len(ids), 10)

    def test_a_mistake_in_its_configuration_is_told_and_not_tried_again(self):
        self.ok("leafctl tag add pay")
        self.ok("cp %s /root/good && echo '[log]\nnonsense = 1' > %s" % (CONFIG, CONFIG))
        self.assertNotEqual(self.machine.run("systemctl restart leafctl").rc, 0)
        self.assertEqual((self.active(), self.shown("ExecMainStatus"), self.shown("NRestarts")), ("failed", "6", "0"))
        self.assertIn("unknown key 'log.nonsense'", self.ok("journalctl -u leafctl --no-pager"))
        # A client that waits for an answer has its socket start it again, now and then.
        began = time.monotonic()
        tries = lambda: self.ok("journalctl -u leafctl --no-pager").count("unknown key 'log.nonsense'")  # noqa: E731
        before = tries()
        asking = self.machine.background("curl -s --max-time 600 http://127.0.0.1:8080/api/segment/get/pay")
        try:
            poll(lambda: tries() >= before + 3, "it was tried again")
            self.assertLessEqual(tries() - before, 2 + (time.monotonic() - began) / 3)
            self.assertEqual(self.ok("systemctl is-active leafctl.socket"), "active\n")
            # Mended: the request is served, and nothing has to be done for that.
            self.ok("cp /root/good " + CONFIG)
            said, _ = asking.communicate(timeout=300)
        finally:
            asking.kill()
        self.assertEqual(said, "1")
        self.wait_active()

    def test_stopped_removed_and_purged(self):
        self.ok("leafctl tag add pay && leafctl next pay")
        self.ok("systemctl stop leafctl.socket leafctl.service")
        self.assertEqual((self.active(), self.shown("Result")), ("inactive", "success"))
        self.assertGreater(int(self.ok("leafctl next pay")), 1)
        self.ok("systemctl start leafctl.socket leafctl.service")
        self.ok("dpkg --remove leafctl")
        self.assertEqual(self.active(), "inactive")
        self.assertEqual(self.ok("ls %s/marks.db" % STATE), STATE + "/marks.db\n")
        self.ok("dpkg -i /root/first.deb")
        self.assertEqual(self.active(), "active")
        self.assertGreater(int(self.ok("leafctl next pay")), 2)
        self.ok("dpkg --purge leafctl")
        for path in (STATE, "/etc/leafctl", "/run/leafctl"):
            self.assertNotEqual(self.machine.run("test -e " + path).rc, 0, path)
        self.assertEqual(self.ok("systemctl --failed --plain --no-legend"), "")


if __name__ == "__main__":
    main()
