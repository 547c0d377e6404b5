"""A bare Debian root (bare_root.py) with systemd as its process 1: in namespaces of its own, with a loopback of its own,
and without any way out. Needs to be root, and a kernel that lets it mount cgroup2.
"""

import os
import signal
import subprocess
import time

from bare_root import PATH
from leafctl import Result, poll

DEADLINE_S = 300

# Mounts what systemd expects, makes the root its own, and becomes systemd. Everything ends with the namespaces.
BOOT = r"""
set -e
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts -o newinstance devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ip link set lo up
hostname booted
cd "$root"
mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old
exec /usr/bin/env -i container=lxc PATH="$2" /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
"""


class BootedRoot:
    """systemd in `root`, a BareRoot that has the package systemd; ends with close()."""

    def __init__(self, root):
        self._root = root
        self._log = root.path("/var/log/boot.txt")
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--net", "--cgroup",
                 "bash", "-c", BOOT, "boot", root.dir, PATH],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self._pid = poll(self._find_systemd, "systemd in " + root.dir, DEADLINE_S)
            poll(lambda: self.run("systemctl is-system-running").out == "running\n", "a system that runs", DEADLINE_S)
        except BaseException:
            self.close()
            raise

    def _find_systemd(self):
        """Its process as it is numbered here."""
        if self._process.poll() is not None:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                raise AssertionError("systemd cannot be started here:\n" + file.read())
        with open("/proc/%d/task/%d/children" % (self._process.pid, self._process.pid), encoding="ascii") as file:
            for pid in file.read().split():
                with open("/proc/%s/comm" % pid, encoding="utf-8") as comm:
                    if comm.read() == "systemd\n":
                        return pid
        return None

    def running(self):
        return self._process.poll() is None

    def log_title(self):
        return "the machine in " + self._root.dir

    def log_tail(self, lines):
        return self.run("journalctl --no-pager --lines=%d" % lines).out

    def _inside(self, line):
        return [
            "nsenter", "--target", self._pid, "--all", "/usr/bin/env", "-i", "HOME=/root", "PATH=" + PATH,
            "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "/bin/sh", "-ec", line,
        ]  # fmt: skip

    def run(self, line):
        """Runs a shell command in there, as root."""
        result = subprocess.run(
            self._inside(line), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", errors="replace", timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        return Result(result.returncode, result.stdout, result.stderr)

    def ok(self, line):
        result = self.run(line)
        if result.rc != 0:
            raise AssertionError("%s: exit %d:\n%s%s" % (line, result.rc, result.out, result.err))
        return result.out

    def background(self, line):
        """The same, and goes on: a Popen."""
        return subprocess.Popen(
            self._inside(line), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def close(self):
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)  # and with it process 1 (--kill-child), and so all of them
            self._process.wait()
        # The kernel takes the mounts down a moment later; what is in the root can be removed then.
        time.sleep(0.1)
