"""What a failed test leaves to be read: both values, the ends of the logs of every daemon and server it had, and the
seed of what it left to chance. Nothing has to be run again to learn what happened.

Environment:
  LEAFCTL_TEST_SEED      the seed of every Dice (default DEFAULT_SEED)
  LEAFCTL_TEST_HANGS_S   a test file that takes longer says where it is, before ctest ends it (default HANGS_S)
"""

import faulthandler
import os
import random
import sys
import threading
import time
import unittest

DEFAULT_SEED = 20260501
HANGS_S = 1140.0  # ctest ends a test after 1200
TAIL_LINES = 40
LOGS_MAX = 24  # the latest ones of a test that starts hundreds of processes
SUMMARY_CHARS_MAX = 400

_lock = threading.Lock()
_logs = []  # (what has log_title() and log_tail(lines), whether it is of use to the next test)
_cast = set()  # the names of what was left to chance by this test
_died = []  # (type, value, traceback) of what ended threads of this test


def watch(log, lasts):
    """The end of this log is shown if the test fails: `log_title()`, `log_tail(lines)`. Those of the tests behind it show
    it, too, as long as `lasts()`."""
    with _lock:
        _logs.append((log, lasts))


class _File:
    def __init__(self, title, path):
        self.title = title
        self.path = path

    def log_title(self):
        return self.title

    def log_tail(self, lines):
        return tail_of(self.path, lines)


def watch_file(title, path):
    """The same for a log in a file, as long as there is one."""
    watch(_File(title, path), lambda: os.path.exists(path))


def tail_of(path, lines):
    """The last lines of a file, as text; None if there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - lines * 2000))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    return "\n".join(text.splitlines()[-lines:])


def seed():
    return int(os.environ.get("LEAFCTL_TEST_SEED") or DEFAULT_SEED)


def dice(name):
    """A random.Random of its own, decided by the seed and by `name`. A failed test tells the seed."""
    with _lock:
        _cast.add(str(name))
    return random.Random("%d %s" % (seed(), name))


def _begin_test():
    """Forgets what belonged to the test before: daemons that have ended, servers that are gone, and its dice."""
    with _lock:
        _logs[:] = [(log, lasts) for log, lasts in _logs if lasts()]
        _cast.clear()


def circumstances():
    """The seed, and the ends of all logs there are, as text."""
    with _lock:
        logs, cast = [log for log, _ in _logs], sorted(_cast)
    parts = []
    if cast:
        parts.append("seed: LEAFCTL_TEST_SEED=%d decided %s" % (seed(), ", ".join(cast)))
    if len(logs) > LOGS_MAX:
        parts.append("---- %d earlier logs are left out" % (len(logs) - LOGS_MAX))
    for log in logs[-LOGS_MAX:]:
        try:
            tail = log.log_tail(TAIL_LINES)
            if tail is not None:
                parts.append("---- the end of the log of %s:\n%s" % (log.log_title(), tail or "(nothing)"))
        except Exception as error:  # the explanation is not what the test is about
            parts.append("---- a log that cannot be read: %r" % error)
    return "".join(part + "\n" for part in parts)


def _name(test):
    """Class.test_name, with the parameters of a subtest."""
    name = test.id()
    module = type(getattr(test, "test_case", test)).__module__ + "."
    return name[len(module) :] if name.startswith(module) else name


def _one_line(error):
    text = next((line.strip() for line in str(error[1]).splitlines() if line.strip()), "")
    text = "%s: %s" % (error[0].__name__, text) if text else error[0].__name__
    return text if len(text) <= SUMMARY_CHARS_MAX else text[:SUMMARY_CHARS_MAX] + "…"


def _note_death(args):
    """For threading.excepthook: a thread that ends early has done less than the test believes. Those that Python does
    not wait for are servers and the like, whose test ends before they do."""
    threading.__excepthook__(args)
    if args.thread is None or args.thread.daemon or issubclass(args.exc_type, SystemExit):
        return
    with _lock:
        _died.append((args.exc_type, args.exc_value, args.exc_traceback))


class Result(unittest.TextTestResult):
    """Tells all about a failure when it happens: later the processes are gone, and a test that hangs tells nothing."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.summary = []
        self.explained = None
        self.current = None

    def startTest(self, test):
        _begin_test()
        self.explained = None
        self.current = test
        super().startTest(test)

    def stopTest(self, test):
        self._tell_deaths(test)
        super().stopTest(test)

    def _tell_deaths(self, test):
        with _lock:
            died, _died[:] = list(_died), []
        for error in died:
            self.addError(test, error)

    def stopTestRun(self):
        # Of threads that belong to a class, or a module.
        if self.current is not None:
            self._tell_deaths(self.current)
        super().stopTestRun()

    def _explain(self, test, error, kept):
        """The traceback is the last one of `kept`."""
        self.summary.append("%s: %s" % (_name(test), _one_line(error)))
        self.stream.write("\n%s%s\n" % (kept[-1][1], "" if kept[-1][1].endswith("\n") else "\n"))
        case = getattr(test, "test_case", test)
        if self.explained is not case:  # a cleanup that fails as well has nothing to add
            self.explained = case
            self.stream.write(circumstances())
        self.stream.flush()

    def addError(self, test, err):
        super().addError(test, err)
        self._explain(test, err, self.errors)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._explain(test, err, self.failures)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            is_failure = issubclass(err[0], test.failureException)
            self._explain(subtest, err, self.failures if is_failure else self.errors)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.summary.append(_name(test) + ": passes, and should not")

    def printErrors(self):
        """They were told when they happened."""

    def print_summary(self):
        for line in self.summary:
            self.stream.write("failed: %s\n" % line)
        self.stream.flush()


class Runner(unittest.TextTestRunner):
    resultclass = Result

    def _makeResult(self):
        self.result = super()._makeResult()
        return self.result

    def run(self, test):
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        watcher.start()
        threading.excepthook = _note_death
        try:
            result = super().run(test)
        finally:
            threading.excepthook = threading.__excepthook__
            ended.set()
        result.print_summary()
        return result

    def _watch(self, ended):
        limit = float(os.environ.get("LEAFCTL_TEST_HANGS_S") or HANGS_S)
        began = time.monotonic()
        if ended.wait(limit):
            return
        name = _name(self.result.current) if self.result.current else "its preparations"
        sys.stderr.write("\nnot at its end after %.0f s; it is in %s\n" % (time.monotonic() - began, name))
        sys.stderr.flush()
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.write(circumstances())
        sys.stderr.write("failed: %s: not at its end after %.0f s\n" % (name, limit))
        sys.stderr.flush()
