"""Runs a container image with crun, as engines do: what the image says of user, command, variables and volumes holds, and
what `Container` is told goes before. For tests in a network and a mount namespace of their own (`enter`): a container has
the network of its test.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile

import explain
from leafctl import DEADLINE_S, Result, through_sudo
from own_namespace import ELSEWHERE

INSIDE = "LEAFCTL_TEST_IN_CONTAINERS_WORLD"
# crun wants to see the one hierarchy of new kernels, which not every machine shows. It is told to change nothing there.
WORLD = """
set -e
mount --make-rprivate / 2>/dev/null || true
ip link set lo up
ip address add %s/32 dev lo
if [ "$(stat -f -c %%T /sys/fs/cgroup 2>/dev/null)" != cgroup2fs ]; then
  [ -d /sys/fs/cgroup ] || { mount -t tmpfs tmpfs /sys; mkdir -p /sys/fs/cgroup; }
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
exec "$@"
"""
# What an engine gives, less what the image has to do without.
MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]},
]


def enter(keep):
    """Runs this file once more as root in namespaces of its own, and ends with its result. `keep`: variables that it
    needs. Without the rights for it the tests cannot be run, and fail."""
    if os.environ.get(INSIDE):
        return
    world = ["unshare", "--net", "--mount", "sh", "-c", WORLD % ELSEWHERE, "sh"]
    sudo = through_sudo(keep=keep)
    tried = subprocess.run(
        [*sudo, *world, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if tried.returncode != 0:
        sys.exit("this machine lets no container be run (root, namespaces for mounts and the network, cgroup2): "
                 + tried.stdout.decode("utf-8", "replace").strip())  # fmt: skip
    sys.exit(subprocess.call([*sudo, "env", INSIDE + "=1", "PYTHONDONTWRITEBYTECODE=1", *world, sys.executable, *sys.argv]))


class Image:
    """An archive of the OCI layout, read as engines read it."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            self.files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
        self.index = json.loads(self.files["index.json"])
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.layers = [self.blob(layer) for layer in self.manifest["layers"]]

    def blob(self, descriptor):
        content = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        if len(content) != descriptor["size"]:
            raise AssertionError("%s has another size" % descriptor)
        return content


class Container:
    """One container. `root`: the image's unpacked layer. `mounts`: (source, destination, read only)."""

    def __init__(self, image, root, args=None, env=None, hostname="localhost", mounts=(), read_only=True, user=None):
        self.config = image.config["config"]
        self.name = "leafctl-test-%d-%s" % (os.getpid(), os.urandom(4).hex())
        self.bundle = tempfile.mkdtemp(prefix="leafctl-container-")
        self.process = None
        self.user = user or self.config["User"]
        self.env = [*self.config["Env"], *("%s=%s" % item for item in (env or {}).items())]
        uid, gid = (int(part) for part in self.user.split(":"))
        spec = {
            "ociVersion": "1.0.0",
            "process": {
                "terminal": False,
                "user": {"uid": uid, "gid": gid},
                "args": [*self.config["Entrypoint"], *(self.config["Cmd"] if args is None else args)],
                "env": self.env,
                "cwd": self.config["WorkingDir"],
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "root": {"path": root, "readonly": read_only},
            "hostname": hostname,
            "mounts": [
                *MOUNTS,
                *(
                    {"destination": destination, "type": "bind", "source": source,
                     "options": ["bind", "nosuid", "nodev", "ro" if only_read else "rw"]}
                    for source, destination, only_read in mounts
                ),
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
        }  # fmt: skip
        with open(os.path.join(self.bundle, "config.json"), "w", encoding="utf-8") as file:
            json.dump(spec, file)
        self.log = os.path.join(self.bundle, "log")

    def _crun(self, *args):
        return ["crun", "--cgroup-manager=disabled", "--root", os.path.join(self.bundle, "run"), *args]

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self._crun("run", "--bundle", self.bundle, self.name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        explain.watch(self, self.running)
        return self

    def run(self):
        """The command to its end."""
        result = subprocess.run(
            self._crun("run", "--bundle", self.bundle, self.name), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="utf-8", timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        return Result(result.returncode, result.stdout, result.stderr)

    def exec(self, *args):
        """One more process in it, as health checks and `docker exec` are: by the same user, with the same variables. Not
        by `crun exec`, which takes the root of the mount namespace for the container's: where the tests run in a chroot,
        that is still the root of the machine."""
        uid, gid = self.user.split(":")
        state = self._state()
        if state.returncode != 0:
            return Result(state.returncode, state.stdout, state.stderr)
        result = subprocess.run(
            ["nsenter", "--target", str(json.loads(state.stdout)["pid"]), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd", "--setuid", uid,
             "--setgid", gid, "--", *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=DEADLINE_S,
            check=False, env=dict(variable.split("=", 1) for variable in self.env),
        )  # fmt: skip
        return Result(result.returncode, result.stdout, result.stderr)

    def pid(self):
        """Of its first process, as this machine sees it."""
        state = self._state()
        state.check_returncode()
        return json.loads(state.stdout)["pid"]

    def _state(self):
        """It fails as long as the container is being made."""
        return subprocess.run(
            self._crun("state", self.name), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    def stop(self):
        """As an engine does; the exit code."""
        subprocess.run(self._crun("kill", self.name, self.config["StopSignal"]), check=True)
        return self.process.wait(DEADLINE_S)

    def kill(self):
        subprocess.run(self._crun("kill", self.name, "KILL"), check=True)
        self.process.wait(DEADLINE_S)

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def log_title(self):
        return "container %s (%s)" % (self.name, "running" if self.running() else "ended")

    def log_tail(self, lines):
        return explain.tail_of(self.log, lines)

    def close(self):
        if self.running():
            subprocess.run(self._crun("kill", self.name, "KILL"), stderr=subprocess.DEVNULL, check=False)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        subprocess.run(self._crun("delete", "--force", self.name), stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.bundle, ignore_errors=True)
