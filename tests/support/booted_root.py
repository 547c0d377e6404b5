"""A bare Debian root (bare_root.py) with systemd as its process 1: in namespaces of its own, with a loopback of its own,
and without any way out. Needs to be root, and a kernel that lets it mount cgroup2.
"""

import os
import signal
import subprocess

from bare_root import PATH
from leafctl import Result, poll

DEADLINE_S = 300
APART = ("unshare", "--mount", "--propagation", "private")

# A control group of its own, which can be removed afterwards; then namespaces of its own.
ENTER = r"""
set -e
mount -t cgroup2 none "$1/mnt"
mkdir "$1/mnt/$3"
echo $$ >"$1/mnt/$3/cgroup.procs"
umount "$1/mnt"
exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup bash -c "$4" boot "$1" "$2"
"""
LEAVE = r"""
mount -t cgroup2 none "$1/mnt"
find "$1/mnt/$2" -depth -type d -exec rmdir {} +
"""

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
        self._pid = None
        self._group = os.path.basename(root.dir)
        self._log = root.path("/var/log/boot.txt")
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*APART, "bash", "-c", ENTER, "enter", root.dir, PATH, self._group, BOOT],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self._pid = poll(self._find_systemd, "systemd in " + root.dir, DEADLINE_S)
            poll(self._is_up, "a system that runs", DEADLINE_S)
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

    def _is_up(self):
        said = self.run("systemctl is-system-running").out.strip()
        if said == "degraded" or not self.running():
            raise AssertionError("systemd says '%s':\n%s" % (said, self.run("systemctl --failed").out))
        return said == "running"

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
        # Process 1 is gone when all others are, and their mounts with them: only then can the root be removed.
        if self._pid is not None:
            poll(self._has_ended, "the end of " + self._root.dir, DEADLINE_S)
        subprocess.run([*APART, "bash", "-c", LEAVE, "leave", self._root.dir, self._group], check=False)

    def _has_ended(self):
        try:
            with open("/proc/%s/stat" % self._pid, encoding="utf-8") as file:
                return file.read().rpartition(")")[2].split()[0] in "ZX"  # its new parent may take its time
        except (FileNotFoundError, ProcessLookupError):
            return True
