#!/usr/bin/env python3
"""What README says of a bare Debian 12 and 13, done in a root of each: the quickstart, the packages, and the tests. Takes
the last commit, not what is changed since. A part of scripts/soak.sh, since all of it is built again in each root. Needs to
be root, and the mirror; about 4 GB in the folder for temporary files.

Environment: LEAFCTL_SUITES         suites of Debian to try (default "bookworm trixie")
             LEAFCTL_SUITE_PRESETS  the presets that are tested on other suites than bookworm (default "release"); there it
                                    is what test.sh takes by itself
             LEAFCTL_SUITE_LOGS     folder for what each step says (default build/suites)
"""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from bare_root import BareRoot, command, make_base  # noqa: E402
from leafctl import ROOT, main  # noqa: E402

BUILD = os.path.join(ROOT, "build")
LOGS = os.environ.get("LEAFCTL_SUITE_LOGS") or os.path.join(BUILD, "suites")
CHECKOUT = "/root/leafctl"
# Only a hang takes so long, even on a machine that has other things to do.
STEP_DEADLINE_S = 6 * 3600
# Lines of a step's log that are shown if it fails.
SHOWN = 80
RELEASES = {"bookworm": "12", "trixie": "13"}


class Suites(unittest.TestCase):
    def test_each(self):
        os.makedirs(LOGS, exist_ok=True)
        for suite in (os.environ.get("LEAFCTL_SUITES") or "bookworm trixie").split():
            with self.subTest(suite=suite):
                base = os.path.join(BUILD, "packages-base-%s.tar" % suite)
                make_base(base, suite)
                root = BareRoot(base, of=suite)
                try:
                    self.check(root, suite)
                finally:
                    # Whatever ends this, a signal included.
                    root.close()

    def check(self, root, suite):
        command(["git", "clone", "--quiet", "--no-hardlinks", ROOT, root.path(CHECKOUT)])
        self.step(root, suite, "quickstart.sh")
        self.step(root, suite, "package.sh")
        debs = sorted(os.listdir(root.path(CHECKOUT + "/build/packages")))
        self.assertEqual(len(debs), 2, debs)
        for name, deb in zip(("leafctl", "libleaf-dev"), debs):
            self.assertRegex(deb, r"^%s_[0-9.]+-1~deb%s_\w+\.deb$" % (name, RELEASES.get(suite, r"\d+")))
        env = {}
        if suite != "bookworm":
            env["LEAF_TEST_PRESETS"] = os.environ.get("LEAFCTL_SUITE_PRESETS") or "release"
        self.step(root, suite, "test.sh", **env)

    def step(self, root, suite, script, **env):
        log = os.path.join(LOGS, "%s-%s.txt" % (suite, script))
        began = time.monotonic()
        code = root.run_whole("cd %s && exec ./scripts/%s" % (CHECKOUT, script), log, STEP_DEADLINE_S, **env)
        print("suites: %s in a bare root of %s: exit %d after %d s" % (script, suite, code, time.monotonic() - began), flush=True)
        if code != 0:
            with open(log, encoding="utf-8", errors="replace") as file:
                said = file.read().splitlines()[-SHOWN:]
            self.fail("%s failed in a bare root of %s; the end of %s:\n%s" % (script, suite, log, "\n".join(said)))


def interrupted(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupted)
    if os.geteuid() != 0:
        sys.exit("test_suites.py needs to be root, to make roots of its own")
    main()
