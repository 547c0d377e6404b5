"""What a test has for itself of the machine: a network, what lies in /run, or what it mounts."""

import functools
import os
import subprocess
import sys

# An address that is not loopback, for in_own_network.
ELSEWHERE = "192.0.2.1"
INSIDE = "LEAFCTL_TEST_INSIDE_NAMESPACES"
DEADLINE_S = 600


def in_own_network(*addresses):
    """The test has loopback with `addresses` as well, and no way out of it."""
    return _inside("--net", "ip link set lo up", *["ip address add %s/32 dev lo" % address for address in addresses])


def in_own_run():
    """The test has an empty /run, where the sockets of this machine's services are not."""
    return _inside("--mount", "mount -t tmpfs tmpfs /run")


def in_own_mounts():
    """The test may mount: no other process sees it."""
    return _inside("--mount", "true")


def in_own_host_name():
    """The test may change the host name (socket.sethostname): no other process sees it."""
    return _inside("--uts", "true")


def _inside(namespace, *begin):
    """The test runs in a namespace, once `begin` has been done there. For a method of a TestCase: its file is run once more,
    for this test alone, by root or by a root of its own."""

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            if os.environ.get(INSIDE) == self.id():
                test(self)
                return
            result = subprocess.run(
                ["unshare", namespace, *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
                 " && ".join([*begin, 'exec "$@"']), "sh", sys.executable, sys.argv[0],
                 "%s.%s" % (type(self).__name__, self._testMethodName)],
                env=dict(os.environ, **{INSIDE: self.id()}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=DEADLINE_S, check=False,
            )  # fmt: skip
            self.assertEqual(result.returncode, 0, result.stdout)

        return run

    return decorate
