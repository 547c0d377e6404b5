"""Stops single threads of a process, as a debugger does: a thread that hangs, without a hook in the program."""

import contextlib
import ctypes
import os

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # __WALL: threads, too

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request, tid):
    if _libc.ptrace(request, tid, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "ptrace(%#x, %d): %s" % (request, tid, os.strerror(number)))


def threads(pid, name):
    """IDs of the threads of that name."""
    found = []
    for tid in map(int, os.listdir("/proc/%d/task" % pid)):
        with contextlib.suppress(FileNotFoundError):
            with open("/proc/%d/task/%d/comm" % (pid, tid), encoding="utf-8") as file:
                if file.read().strip() == name:
                    found.append(tid)
    return sorted(found)


@contextlib.contextmanager
def frozen(tid):
    """The thread does not run meanwhile. All on one thread of ours: the kernel wants it so."""
    _ptrace(SEIZE, tid)
    _ptrace(INTERRUPT, tid)
    os.waitpid(tid, WALL)
    try:
        yield
    finally:
        # A thread that has died with its process cannot be let go.
        with contextlib.suppress(ProcessLookupError):
            _ptrace(DETACH, tid)
