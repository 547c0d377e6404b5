#!/usr/bin/env python3
"""The power goes while leafctl works, at every one of its calls that change a disk: on what is left, it gives no ID twice.

The calls are those of the binary as it is, with its databases, state files and directories; what a disk may have kept of
them, see tests/support/power_loss.py. scripts/soak.sh power tries more.

Environment, beside that of leafctl.py:
  LEAFCTL_POWER_DISKS  disks that each test tries (default 80)
"""

import concurrent.futures
import contextlib
import os
import re
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import explain  # noqa: E402
import power_loss  # noqa: E402
from fake_clock import FakeClock  # noqa: E402
from leafctl import LeafTest, main  # noqa: E402
from power_loss import LEFT, Disk, PowerLoss, Record  # noqa: E402

DISKS = int(os.environ.get("LEAFCTL_POWER_DISKS") or 80)
STATE = "lib/leafctl"
LEAF_EPOCH_MS = 1288834974657
SNOWFLAKE_BEGIN = 1 << 52  # no tag of these tests has such an ID

ID_LINE = re.compile(rb"^\d+$", re.MULTILINE)


class Moment:
    """Just after a call: what others had been told by then."""

    def __init__(self, number, segment, snowflake, tag_is_there):
        self.number = number
        self.segment = segment
        self.snowflake = snowflake
        self.tag_is_there = tag_is_there


class PowerLossTest(LeafTest):
    """Each test records what a program does, and then looks at the disks that there could be."""

    def setUp(self):
        super().setUp()
        self.base = os.path.join(os.path.realpath(self.box.dir), "disk")
        os.mkdir(self.base)
        self.power = PowerLoss(self.base)
        self.addCleanup(self.power.close)
        self.state = os.path.join(self.base, STATE)
        self.dice = explain.dice("when the power goes, and what the disk keeps")
        self.clock = FakeClock(self.box.path("clock"))
        self.clock.set_offset(-3600)

    settings = ("--set", "snowflake.worker_id=7", "--set", "snowflake.cluster=power", "--set", "snowflake.window=200ms")

    def command(self, *args, env=None):
        more = self.settings if "snowflake" in args else ("--timeout", "60s") if args[0] == "next" else ()
        # Looks at a disk take no longer on one that is slow (scripts/weather.sh).
        return self.box.run([*args, *more, "--state-dir", self.state], env=env or {"LD_PRELOAD": None})

    def record(self, *args):
        result = self.command(*args, env=self.power.env)
        self.assertEqual(result.rc, 0, result)
        return result.out

    def serve(self):
        return self.box.serve(
            "--state-dir", self.state, *self.settings, "--set", "segment.step_policy=fixed", env=self.power.env
        )  # fmt: skip

    def take(self, daemon):
        for path in ("/api/segment/get/pay", "/api/snowflake/get/any"):
            self.assertEqual(daemon.get(path).status, 200)

    def recorded(self, killed=False):
        """The log; it has to know all that is in the directory now.

        But for a process that was killed by one of its threads, while another had logged a write and not made it.
        """
        records = self.power.records()
        if killed:
            return records
        disk = Disk()
        for record in records:
            disk.add(record)
        found = {}
        for folder, _, names in os.walk(self.base):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.isfile(path):
                    continue  # a socket
                with open(path, "rb") as file:
                    found[os.path.relpath(path, self.base)] = file.read()
        known = {path: content for path, content in disk.now().items() if not path.endswith("-shm")}
        self.assertEqual(
            {path: len(content) for path, content in known.items()},
            {path: len(content) for path, content in found.items() if not path.endswith("-shm")},
        )
        self.assertTrue(all(found[path] == content for path, content in known.items()))
        return records

    def moments(self, records):
        """After each call that changes something, what was heard before."""
        segment = set()
        snowflake = set()
        there = False
        found = []
        for number, record in enumerate(records, 1):
            if record.kind == "heard":
                body = record.data.partition(b"\r\n\r\n")[2] if record.data.startswith(b"HTTP/") else record.data
                for value in map(int, ID_LINE.findall(body)):
                    ids = snowflake if value >= SNOWFLAKE_BEGIN else segment
                    self.assertNotIn(value, ids, "twice, and no power was lost")
                    ids.add(value)
                there = there or record.data.startswith(b"added tag")
            found.append(Moment(number, frozenset(segment), frozenset(snowflake), there))
        return found

    def disks(self, records, count):
        """(moment, what is left, the files) of `count` disks, over all moments, every second one just after an answer."""
        moments = self.moments(records)
        self.assertTrue(moments[-1].segment and moments[-1].snowflake, "IDs of both modes were given out")
        answers = [index for index, record in enumerate(records) if record.kind == "heard"]
        chosen = sorted(
            (self.dice.choice(answers if number % 2 else range(len(records))), self.dice.choice(LEFT)) for number in range(count)
        )
        disk = Disk()
        added = 0
        for last, left in chosen:
            for record in records[added : last + 1]:
                disk.add(record)
            added = last + 1
            yield moments[last], left, disk.files(left, self.dice)

    def lay(self, files):
        # The directory itself stays: another one would be taken for a copy.
        for name in os.listdir(self.state):
            os.unlink(os.path.join(self.state, name))
        for path, content in files.items():
            folder, name = os.path.split(path)
            self.assertEqual(folder, STATE)
            with open(os.path.join(self.state, name), "wb") as file:
                file.write(content)

    def look(self, moment, files):
        """What is wrong on that disk; "" if nothing is."""
        for look in (self.look_at_segment, self.look_at_marks, self.look_at_clock):
            self.lay(files)
            if why := look(moment):
                return why
        return ""

    def look_at_segment(self, moment):
        result = self.command("next", "pay", "-n", "12", "--direct")
        if result.rc == 9 and not moment.tag_is_there:
            return ""  # no answer had said that the tag exists
        if result.rc != 0:
            return "next: exit %d: %s" % (result.rc, result.err)
        twice = moment.segment & {int(line) for line in result.out.split()}
        return "next gives %r again" % sorted(twice) if twice else ""

    def look_at_marks(self, moment):
        """The table is lost, too, and the tag is made again: the marks know what was given out."""
        for name in ("leaf.db", "leaf.db-wal", "leaf.db-shm", "leaf.db-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.state, name))
        result = self.command("tag", "add", "pay", "--step", "10")
        if result.rc != 0:
            return "tag add: exit %d: %s" % (result.rc, result.err)
        result = self.command("next", "pay", "-n", "12", "--direct")
        if result.rc != 0:
            return "next of a new table: exit %d: %s" % (result.rc, result.err)
        twice = moment.segment & {int(line) for line in result.out.split()}
        return "with a new table, next gives %r again" % sorted(twice) if twice else ""

    def look_at_clock(self, moment):
        """With a clock an hour back no ID may be given out if one was issued before: it could be given again."""
        if moment.snowflake:
            newest = (max(moment.snowflake) >> 22) + LEAF_EPOCH_MS
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.state, "snowflake.state"), encoding="ascii") as file:
                ceiling = re.search(r"^ceiling_ms (\d+)$", file.read(), re.MULTILINE)
                if ceiling is None or int(ceiling.group(1)) <= newest:
                    return "the ceiling is %s, and an ID of %d was issued" % (ceiling and ceiling.group(1), newest)
        next_id = ("next", "--mode", "snowflake", "--direct")
        if moment.snowflake:
            result = self.command(*next_id, env=self.clock.env)
            if result.rc != 11:
                return "snowflake with a clock that is behind: exit %d: %s%s" % (result.rc, result.out, result.err)
        result = self.command(*next_id)
        return "" if result.rc == 0 else "snowflake: exit %d: %s" % (result.rc, result.err)

    def faults(self, records, count=DISKS):
        """What is wrong on `count` disks; a generator, which tries them until its caller stops."""
        for moment, left, files in self.disks(records, count):
            why = self.look(moment, files)
            if why:
                last = records[moment.number - 1]
                yield "after call %d of %d (%s %s), %s of the rest left: %s" % (
                    moment.number, len(records), last.kind, last.path, left, why
                )  # fmt: skip

    def check(self, records):
        faults = list(self.faults(records))
        if faults:  # each in full: the schedule may not come again
            self.fail("%d of %d disks: %s" % (len(faults), DISKS, "; ".join(faults)))


class Flushes(unittest.TestCase):
    """Of the disks themselves."""

    def test_a_flush_counts_for_the_thread_that_asked_for_it(self):
        """Two threads of the daemon flush one directory at once. What the second one has made is durable for it."""
        disk = Disk()
        for kind, thread, path in (("flush", 1, "."), ("make", 2, "two"), ("flush", 2, "."), ("flushed", 2, ".")):
            disk.add(Record(kind, thread, 7, 0, b"", path, "-"))
        self.assertEqual(list(disk.files("none", None)), ["two"])
        disk.add(Record("make", 2, 8, 0, b"", "three", "-"))
        disk.add(Record("flushed", 1, 7, 0, b"", ".", "-"))
        self.assertEqual(list(disk.files("none", None)), ["two"], "it was made after the first flush began")


class Commands(PowerLossTest):
    def work(self):
        self.record("tag", "add", "pay", "--step", "10")
        for count in ("3", "25", "1"):
            self.record("next", "pay", "-n", count, "--direct")
            self.record("next", "--mode", "snowflake", "-n", count, "--direct")
        return self.recorded()

    def test_ids_of_commands(self):
        self.check(self.work())

    def test_directories_that_a_killed_start_has_made(self):
        """It was killed before their names were durable, and the next start finds them."""
        for path in ("lib", STATE):
            os.mkdir(os.path.join(self.base, path))
            self.power.note("mkdir", path)
        self.check(self.work())

    def test_a_start_makes_the_names_durable_that_it_finds(self):
        """The process before may have been killed between naming a file and the flush of the folder."""
        work = ("next", "--mode", "snowflake", "--direct")
        self.record(*work)
        before = len(self.power.records())
        self.record(*work)
        flushed = [each.path for each in self.power.records()[before:] if each.kind == "flush"]
        self.assertEqual(flushed[0], STATE, flushed)

    def test_each_flush_is_needed(self):
        """A disk that does not do what one of them asks for gives IDs twice, or nothing at all: these tests see that."""
        records = self.work()
        for path in (".", "lib", STATE, *(STATE + "/" + name for name in ("leaf.db-wal", "marks.db-wal", "leaf.db", "marks.db", "snowflake.state.new"))):
            with self.subTest(path):
                less = power_loss.without(records, lambda each, path=path: each == path)
                self.assertLess(len(less), len(records))
                self.assertIsNotNone(next(self.faults(less, 5 * DISKS), None))


class Killed(PowerLossTest):
    """Processes that are killed before the power goes: those after them find what is on no disk yet."""

    COMMANDS = (
        ("next", "pay", "-n", "3", "--direct"), ("next", "--mode", "snowflake", "-n", "3", "--direct"),
        ("tag", "add", "other", "--if-absent"), ("next", "pay", "-n", "14", "--direct"), ("tag", "remove", "other", "--confirm", "other"),
    )  # fmt: skip

    def test_one_after_the_other(self):
        killed = 0
        self.record_in_part("tag", "add", "pay", "--step", "10")
        self.record("tag", "add", "pay", "--step", "10", "--if-absent")
        for _ in range(12):
            killed += self.record_in_part(*self.dice.choice(self.COMMANDS))
        self.record("next", "pay", "--direct")
        self.record("next", "--mode", "snowflake", "--direct")
        self.assertGreater(killed, 3)
        self.check(self.recorded(killed=True))

    def record_in_part(self, *args):
        """Whether it was killed."""
        result = self.command(*args, env=self.power.killing(self.dice.randint(1, 60)))
        self.assertIn(result.rc, (0, 9, 11, -9), result)
        return result.rc == -9

    def test_at_once(self):
        """A daemon, and commands beside it."""
        self.record("tag", "add", "pay", "--step", "10")
        daemon = self.serve()

        ends = []

        def others(dice):
            for _ in range(4):
                args = dice.choice(self.COMMANDS)
                result = self.command(*args, env=self.power.killing(dice.randint(1, 100)))
                # The daemon has the directory's worker number; the tag that comes and goes may be gone.
                if result.rc not in (0, -9, *((11,) if "snowflake" in args else (9,) if "remove" in args else ())):
                    ends.append(result)

        threads = [threading.Thread(target=others, args=(explain.dice(name),)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for _ in range(30):
            self.take(daemon)
        for thread in threads:
            thread.join()
        daemon.kill()
        self.assertEqual(ends, [])
        self.check(self.recorded(killed=True))


class Daemon(PowerLossTest):
    def test_ids_of_a_daemon(self):
        self.record("tag", "add", "pay", "--step", "10")
        daemon = self.serve()

        def take():
            for _ in range(40):
                self.take(daemon)
            daemon.disconnect()

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(take) for _ in range(3)]:
                done.result()
        self.assertEqual(daemon.terminate(), 0)
        self.check(self.recorded())


if __name__ == "__main__":
    main()
