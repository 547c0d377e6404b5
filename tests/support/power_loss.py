"""What a loss of power leaves of a directory: every call of a program that changes it is written down (power_loss.c), and
from that log come the disks that there could be after each of the calls.

What is on such a disk:
  - of a file, all that was written before its last flush began, and of what was written later any 512 bytes or not, in
    any combination; a new length or not;
  - of a directory, the names as of its last flush, and of the changes since then those up to any of them. A directory
    whose own name is lost takes all with it.
That is what POSIX promises, and less than common file systems do, but for one thing: the changes of one directory come
in their order.

A record of the log is a line "KIND THREAD INODE AT SIZE PATH PATH2", and SIZE bytes. Kinds: make, write, truncate, rename,
link, unlink, mkdir, rmdir; flush and flushed, of a file or a directory; and heard: what others were told, on standard
output or over a socket.
"""

import collections
import os
import shutil
import subprocess
import tempfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "power_loss.c")
SECTOR = 512
ROOT = "."
# What is not flushed: none of it is on the disk, all of it, or a random part.
LEFT = ("none", "all", "some")

Record = collections.namedtuple("Record", "kind thread inode at data path path2")


class PowerLoss:
    """A log of what programs that are started with `env` do below `directory`, which exists and is empty."""

    def __init__(self, directory):
        compiler = shutil.which("cc")
        if not compiler:
            raise AssertionError("there is no C compiler: apt-get install gcc libc6-dev")
        self.directory = os.path.realpath(directory)
        self.dir = tempfile.mkdtemp(prefix="leafctl-power-loss-")
        library = os.path.join(self.dir, "power_loss.so")
        self._log = os.path.join(self.dir, "log")
        done = subprocess.run(
            [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError("power_loss.c does not compile:\n" + done.stdout.decode("utf-8", "replace"))
        preloaded = " ".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))  # a slow disk: scripts/weather.sh
        self.env = {"LD_PRELOAD": preloaded, "POWER_LOSS_DIRECTORY": self.directory, "POWER_LOSS_LOG": self._log}

    def killing(self, number):
        """As `env`, and the program is killed before its call of that number, counted from 1."""
        return dict(self.env, POWER_LOSS_KILL=str(number))

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def note(self, kind, path):
        """Something that the test itself has done."""
        with open(self._log, "ab") as file:
            file.write(b"%s 0 0 0 0 %s -\n" % (kind.encode(), path.encode()))

    def records(self):
        with open(self._log, "rb") as file:
            log = file.read()
        found = []
        at = 0
        while at < len(log):
            end = log.index(b"\n", at)
            kind, thread, inode, offset, size, path, path2 = log[at:end].decode().split(" ")
            at = end + 1 + int(size)
            found.append(Record(kind, int(thread), int(inode), int(offset), log[end + 1 : at], path, path2))
        return found


def without(records, is_lost):
    """The log without the flushes of those paths for which `is_lost` is true."""
    return [each for each in records if not (each.kind in ("flush", "flushed") and is_lost(each.path))]


class _Node:
    """What of a file or a directory is durable, and what is not yet."""

    def __init__(self, durable):
        self.durable = durable
        self.pending = []
        self._flushes = {}  # of a thread: with how many of the pending ones its flush began

    def begin_flush(self, thread):
        self._flushes[thread] = len(self.pending)

    def end_flush(self, thread):
        count = self._flushes.pop(thread)
        self.make_durable(self.pending[:count])
        del self.pending[:count]
        self._flushes = {other: max(0, began - count) for other, began in self._flushes.items()}


class _File(_Node):
    """Changes are records."""

    def __init__(self):
        super().__init__(bytearray())
        self.named = False

    def make_durable(self, records):
        for record in records:
            _apply(self.durable, record)

    def content(self, left, dice):
        data = bytearray(self.durable)
        for record in self.pending:
            if left == "all":
                _apply(data, record)
            elif left == "some":
                _apply_some(data, record, dice)
        return bytes(data)


def _apply(data, record):
    if record.kind == "truncate":
        if record.at < len(data):
            del data[record.at :]
        else:
            data.extend(bytes(record.at - len(data)))
        return
    _put(data, record.at, record.data)


def _apply_some(data, record, dice):
    if record.kind == "truncate":
        if dice.random() < 0.5:
            _apply(data, record)
        return
    begin = record.at
    end = record.at + len(record.data)
    while begin < end:
        stop = min(end, (begin // SECTOR + 1) * SECTOR)
        if dice.random() < 0.5:
            _put(data, begin, record.data[begin - record.at : stop - record.at])
        begin = stop


def _put(data, at, part):
    if at > len(data):
        data.extend(bytes(at - len(data)))
    data[at : at + len(part)] = part


class _Folder(_Node):
    """Changes are ("set", name, node), ("drop", name) and ("move", name, name)."""

    def __init__(self):
        super().__init__({})

    def make_durable(self, changes):
        _change(self.durable, changes)

    def names(self, left, dice):
        found = dict(self.durable)
        count = {"none": 0, "all": len(self.pending)}.get(left)
        _change(found, self.pending[: dice.randint(0, len(self.pending)) if count is None else count])
        return found


def _change(names, changes):
    for change in changes:
        if change[0] == "set":
            names[change[1]] = change[2]
        elif change[0] == "move":
            names[change[2]] = names.pop(change[1])
        else:
            names.pop(change[1], None)


class Disk:
    """The state of the directory while a log is replayed, call by call."""

    def __init__(self):
        self._root = _Folder()
        self._now = {ROOT: self._root}  # by path: what a program finds there
        self._files = {}  # by inode

    def add(self, record):
        if record.kind != "heard":
            getattr(self, "_" + record.kind)(record)

    def _split(self, path):
        folder, _, name = path.rpartition("/")
        return self._now[folder or ROOT], name

    def _set(self, path, node):
        self._now[path] = node
        folder, name = self._split(path)
        folder.pending.append(("set", name, node))

    def _make(self, record):
        known = self._files.get(record.inode)
        if known is not None and self._now.get(record.path) is known:
            return  # two processes opened it at once
        if known is None or known.named:
            self._files[record.inode] = _File()  # the system uses the number again
        self._files[record.inode].named = True
        self._set(record.path, self._files[record.inode])

    def _mkdir(self, record):
        self._set(record.path, _Folder())

    def _write(self, record):
        # Another thread may have made the file, and have logged it later.
        self._files.setdefault(record.inode, _File()).pending.append(record)

    _truncate = _write

    def _rename(self, record):
        self._now[record.path2] = self._now.pop(record.path)
        source, name = self._split(record.path)
        target, name2 = self._split(record.path2)
        if source is not target:
            raise AssertionError("a rename from one directory to another is not foreseen: %s" % record.path)
        source.pending.append(("move", name, name2))

    def _link(self, record):
        self._set(record.path2, self._now[record.path])

    def _unlink(self, record):
        if record.path not in self._now:
            return  # a socket, of which the log knows nothing else
        del self._now[record.path]
        folder, name = self._split(record.path)
        folder.pending.append(("drop", name))

    _rmdir = _unlink

    def _node(self, record):
        node = self._now.get(record.path)
        return node if isinstance(node, _Folder) else self._files.get(record.inode)

    def _flush(self, record):
        self._node(record).begin_flush(record.thread)

    def _flushed(self, record):
        self._node(record).end_flush(record.thread)

    def files(self, left, dice):
        """What there may be if the power goes now: path → content."""
        found = {}

        def look(folder, path):
            for name, node in folder.names(left, dice).items():
                if isinstance(node, _Folder):
                    look(node, path + name + "/")
                else:
                    found[path + name] = node.content(left, dice)

        look(self._root, "")
        return found

    def now(self):
        """What a program finds: path → content."""
        return {
            path: node.content("all", None) for path, node in self._now.items() if isinstance(node, _File)
        }
