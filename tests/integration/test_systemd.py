#!/usr/bin/env python3
"""The unit files, judged by systemd's own tools; no service manager has to run."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import BINARY, ROOT, main  # noqa: E402

UNITS = os.path.join(ROOT, "config", "systemd")
EXPOSURE_MAX = 1.5


class Unit(configparser.RawConfigParser):
    """A unit file; of keys that stand several times, the last."""

    def __init__(self, name):
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",), interpolation=None)
        self.optionxform = str
        self.read(os.path.join(UNITS, name), encoding="utf-8")


class SystemdTest(unittest.TestCase):
    def analyze(self, *args):
        tool = shutil.which("systemd-analyze")
        self.assertIsNotNone(tool, "there is no systemd-analyze: apt-get install systemd")
        result = subprocess.run(
            [tool, "--no-pager", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", timeout=120, check=False,
        )  # fmt: skip
        return result.returncode, result.stdout

    def test_systemd_understands_every_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("leafctl.service", "leafctl.socket"):
                with open(os.path.join(UNITS, name), encoding="utf-8") as file:
                    text = file.read()
                # The binary as it is here: that it can be executed is looked at, too.
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text.replace("/usr/bin/leafctl", BINARY))
            code, said = self.analyze(
                "verify", "--man=no", os.path.join(folder, "leafctl.service"), os.path.join(folder, "leafctl.socket")
            )
            self.assertEqual((code, said), (0, ""))
            # The test can fail.
            with open(os.path.join(folder, "leafctl.service"), "a", encoding="utf-8") as file:
                file.write("\n[Service]\nNoSuchThing=1\n")
            _, said = self.analyze("verify", "--man=no", os.path.join(folder, "leafctl.service"))
            self.assertIn("NoSuchThing", said)

    def test_exposure(self):
        unit = os.path.join(UNITS, "leafctl.service")
        code, said = self.analyze(
            "security", "--offline=true", "--threshold=%d" % int(EXPOSURE_MAX * 10), unit
        )
        self.assertEqual(code, 0, said)
        exposure = float(re.search(r"Overall exposure level for leafctl\.service: ([\d.]+)", said).group(1))
        self.assertLessEqual(exposure, EXPOSURE_MAX)
        code, _ = self.analyze("security", "--offline=true", "--threshold=1", unit)
        self.assertNotEqual(code, 0, "no threshold is ever too low")

    def test_every_directive_has_its_reason(self):
        for name in ("leafctl.service", "leafctl.socket"):
            with open(os.path.join(UNITS, name), encoding="utf-8") as file:
                lines = file.read().split("\n")
            section = ""
            for number, line in enumerate(lines):
                if line.startswith("["):
                    section = line
                if "=" not in line or line.startswith("#") or section in ("[Install]",):
                    continue
                if line.startswith(("Description=", "Documentation=")):
                    continue
                above = number - 1  # directives that belong together share one
                while "=" in lines[above] and not lines[above].startswith("#"):
                    above -= 1
                self.assertTrue(lines[above].startswith("#"), "%s:%d: %s" % (name, number + 1, line))

    def test_what_the_daemon_relies_on(self):
        service = Unit("leafctl.service")["Service"]
        self.assertEqual(service["Type"], "notify")
        self.assertEqual(service["User"], "leafctl")
        self.assertNotIn("DynamicUser", service)
        self.assertIn("WatchdogSec", service)
        # The password is in the memory.
        self.assertEqual(service["LimitCORE"], "0")
        self.assertEqual(service["MemoryMax"], "2G")
        self.assertEqual(service["PrivateMounts"], "yes")
        self.assertRegex(service["LoadCredential"], "^mysql-password:")
        self.assertEqual(service["RestartPreventExitStatus"].split(), ["2", "4", "6", "11"])
        sockets = Unit("leafctl.socket")["Socket"]
        self.assertEqual(sockets["SocketUser"], service["User"])
        self.assertEqual(sockets["ListenStream"], "/run/leafctl/leafctl.sock")
        with open(os.path.join(UNITS, "leafctl.sysusers.conf"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"(?m)^u leafctl - ")


if __name__ == "__main__":
    main()
