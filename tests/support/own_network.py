"""A network of a test's own: loopback with the addresses that it asks for, and no way out of it."""

import functools
import os
import subprocess
import sys

INSIDE = "LEAFCTL_TEST_OWN_NETWORK"
DEADLINE_S = 600


def in_own_network(*addresses):
    """The test runs in a network namespace, where this machine has `addresses`, too. For a method of a TestCase: its file is
    run once more, for this test alone, by root or by a root of its own."""

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            if os.environ.get(INSIDE) == self.id():
                test(self)
                return
            begin = " && ".join(
                ["ip link set lo up", *["ip address add %s/32 dev lo" % address for address in addresses], 'exec "$@"']
            )
            result = subprocess.run(
                ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", begin, "sh",
                 sys.executable, sys.argv[0], "%s.%s" % (type(self).__name__, self._testMethodName)],
                env=dict(os.environ, **{INSIDE: self.id()}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=DEADLINE_S, check=False,
            )  # fmt: skip
            self.assertEqual(result.returncode, 0, result.stdout)

        return run

    return decorate
