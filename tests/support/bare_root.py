"""A bare Debian root to install packages in: what debootstrap makes of the suite and the mirrors that this machine's apt
is configured for, or of another suite there. Nothing is mounted in it that this machine could see, so nothing can be left
mounted; the processes that run in it are waited for.

Needs to be root, and the mirror: what is missing is an error.
"""

import os
import shlex
import shutil
import subprocess
import tempfile

from leafctl import Result

# Debian's mirrors may be slow, and so may this machine.
DEADLINE_S = 900

# Mounts what a whole system has, in namespaces that end with the command, and runs it in the root $1 with the rest of the
# arguments. That root is a mount point, as some tests mount over it.
ENTER = r"""
set -e
root=$1
shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
# It becomes the root of its mounts, not only of its processes: what joins a namespace, as `crun exec` does, begins there.
cd "$root"
mkdir -p .outside
pivot_root . .outside
exec chroot . /bin/sh -c 'umount -l /.outside && rmdir /.outside && exec "$@"' sh "$@"
"""

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def command(args, **more):
    """stdout of a command that has to succeed."""
    result = subprocess.run(
        args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
        errors="replace", timeout=DEADLINE_S, check=False, **more,
    )  # fmt: skip
    if result.returncode != 0:
        raise AssertionError("%s: exit %d:\n%s" % (shlex.join(args), result.returncode, result.stdout))
    return result.stdout


def suite():
    with open("/etc/os-release", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VERSION_CODENAME="):
                return line.split("=", 1)[1].strip().strip('"')
    raise AssertionError("/etc/os-release does not tell which Debian this is")


def sources(of=None):
    """(URI, suite, component) of each source of this machine that is Debian's own, for the suite `of`."""
    found = []
    said = command(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"])
    for line in said.splitlines():
        uri, release, component = line.split()
        if release != suite() and not release.startswith(suite() + "-"):
            continue
        # The mirror that has the one has the other, with the same suites beside it: of updates, of security.
        source = (uri, (of or suite()) + release[len(suite()) :], component)
        if source not in found:
            found.append(source)
    if not any(release == (of or suite()) for _, release, _ in found):
        raise AssertionError("apt has no source for %s: %s" % (suite(), said))
    return found


def proxies():
    """What apt's configuration says of the way to its mirrors."""
    lines = command(["apt-config", "dump"]).splitlines()
    return [line for line in lines if line.startswith("Acquire::") and not line.endswith(' "";')]


def make_base(cache, of=None):
    """A tar archive of the bare root, made once and kept at `cache`. `of`: a suite that need not be this machine's."""
    if os.path.exists(cache):
        return
    if os.geteuid() != 0:
        raise AssertionError("needs to be root, to make a root of its own")
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="leafctl-base-") as folder:
        mirror = next(uri for uri, release, _ in sources() if release == suite())
        include = ["--include=ca-certificates"] if mirror.startswith("https:") else []
        # debootstrap mounts /proc while it works: in a mount namespace of its own, which ends with it.
        command(
            ["unshare", "--mount", "--propagation", "private", "debootstrap", "--variant=minbase", *include, of or suite(),
             os.path.join(folder, "root"), mirror]
        )  # fmt: skip
        command(["tar", "-C", os.path.join(folder, "root"), "--one-file-system", "-cf", cache + ".new", "."])
        os.rename(cache + ".new", cache)


class BareRoot:
    """A root unpacked from `base`; gone with close()."""

    # What apt knows of the mirrors, once one of the roots has asked them: a folder for each suite.
    _lists = {}

    def __init__(self, base, apt=True, of=None):
        """`apt`: it can install packages, of the suite `of` (default: this machine's). Else it stays as it was unpacked."""
        self._suite = of or suite()
        self.dir = tempfile.mkdtemp(prefix="leafctl-root-")
        try:
            os.chmod(self.dir, 0o755)
            command(["tar", "-C", self.dir, "-xpf", base])
            if not apt:
                return
            for name in ("resolv.conf", "hosts"):
                shutil.copy(os.path.join("/etc", name), self.path("/etc/" + name))
            self.write("/etc/apt/sources.list", "".join("deb %s %s %s\n" % source for source in sources(of)))
            self.write("/etc/apt/apt.conf.d/99test", "\n".join(proxies()) + "\n")
            # A root for a test need not outlive a power cut.
            self.write("/etc/dpkg/dpkg.cfg.d/test", "force-unsafe-io\n")
            self._update()
        except BaseException:
            self.close()
            raise

    def _update(self):
        lists = self.path("/var/lib/apt/lists")
        if self._suite not in BareRoot._lists:
            self.ok("apt-get -q -o APT::Update::Error-Mode=any update")
            known = BareRoot._lists[self._suite] = tempfile.TemporaryDirectory(prefix="leafctl-lists-")
            command(["cp", "-a", lists + "/.", known.name])
        else:
            command(["cp", "-a", BareRoot._lists[self._suite].name + "/.", lists])

    def close(self):
        shutil.rmtree(self.dir)

    def path(self, inside):
        return os.path.join(self.dir, inside.lstrip("/"))

    def exists(self, inside):
        return os.path.lexists(self.path(inside))

    def read(self, inside):
        with open(self.path(inside), encoding="utf-8") as file:
            return file.read()

    def write(self, inside, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(inside)), exist_ok=True)
        with open(self.path(inside), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(inside), mode)

    def run(self, line, user=None, home="/root"):
        """Runs a shell command in there; `user` is "uid:gid"."""
        userspec = ["--userspec=" + user] if user else []
        # What is preloaded here (scripts/weather.sh) is not in there.
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        result = subprocess.run(
            ["chroot", *userspec, self.dir, "/usr/bin/env", "-i", "HOME=" + home, "PATH=" + PATH, "LC_ALL=C.UTF-8",
             "DEBIAN_FRONTEND=noninteractive", "/bin/sh", "-ec", line],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            errors="replace", timeout=DEADLINE_S, check=False, env=env,
        )  # fmt: skip
        return Result(result.returncode, result.stdout, result.stderr)

    def run_whole(self, line, log, deadline_s, **env):
        """The exit code of a shell command in there that finds /proc, /sys and /dev as on a whole machine, and an environment
        of nothing but `env`; what it says goes to the file `log`. Its processes end with it, or with this one."""
        outside = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork",
                   "--kill-child", "bash", "-c", ENTER, "enter", self.dir]  # fmt: skip
        inside = ["/usr/bin/env", "-i", "HOME=/root", "PATH=" + PATH, *("%s=%s" % entry for entry in env.items())]
        ended, held = os.pipe()
        try:
            with open(log, "wb") as file:
                return subprocess.run(
                    [*outside, *inside, "/bin/sh", "-ec", line], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                    timeout=deadline_s, check=False, pass_fds=(held,),
                ).returncode  # fmt: skip
        finally:
            # Until nothing is left that holds its end, and could write to a root that is about to be removed.
            os.close(held)
            os.read(ended, 1)
            os.close(ended)

    def ok(self, line, **more):
        result = self.run(line, **more)
        if result.rc != 0:
            raise AssertionError("%s: exit %d:\n%s%s" % (line, result.rc, result.out, result.err))
        return result.out

    def install(self, *packages, recommends=True):
        flag = "" if recommends else " --no-install-recommends"
        return self.ok("apt-get -q -y%s install %s" % (flag, shlex.join(packages)))

    def files(self):
        """Every path in there, but for what any use of apt and dpkg changes."""
        volatile = ("/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/", "/var/log/", "/tmp/", "/home/", "/root/", "/proc/", "/dev/")
        found = set()
        for folder, folders, names in os.walk(self.dir):
            inside = folder[len(self.dir) :] + "/"
            if inside.startswith(volatile):
                folders.clear()
                continue
            found.update(inside + name for name in folders + names)
        # Backups that every change of an account makes.
        return {path for path in found if path not in ("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-")}

    def files_of_packages(self, but=()):
        """Every path that belongs to an installed package."""
        folder = self.path("/var/lib/dpkg/info")
        found = set()
        for name in os.listdir(folder):
            package, extension = os.path.splitext(name)
            if extension == ".list" and package.split(":")[0] not in but:
                found.update(self.read("/var/lib/dpkg/info/" + name).splitlines())
        return found
