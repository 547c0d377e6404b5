#!/usr/bin/env python3
"""Snowflake mode on the real binary: kills, stops, two processes with one state directory, and moved clocks."""

import concurrent.futures
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from fake_clock import FakeClock  # noqa: E402
from leafctl import BINARY, LeafTest, Sandbox, main, poll, scaled  # noqa: E402
from own_namespace import ELSEWHERE, in_own_host_name, in_own_network  # noqa: E402

EPOCH_MS = 1288834974657
WINDOW_S = 3.0


def time_ms(value):
    return (value >> 22) + EPOCH_MS


def is_sanitized():
    with open(BINARY, "rb") as file:
        data = file.read()
    return b"__asan_init" in data or b"__tsan_init" in data


class SnowflakeTest(LeafTest):
    def setUp(self):
        super().setUp()
        self.seen = []

    def take(self, daemon, count=1):
        response = daemon.get("/v1/snowflake?count=%d" % count)
        self.assertEqual(response.status, 200, response.body)
        ids = [int(text) for text in json.loads(response.body)["ids"]]
        self.assertEqual(len(ids), count)
        self.seen += ids
        return ids

    def next(self, *args, **more):
        ids = [int(line) for line in self.box.ok("next", "--mode", "snowflake", *args, **more).split()]
        self.seen += ids
        return ids

    def check_seen(self):
        self.check_distinct(self.seen)
        self.assertEqual(self.seen, sorted(self.seen), "not ascending")


PRIVATE = "unique in this state directory only"


class PrivateCluster(SnowflakeTest):
    """Nothing is configured that keeps one node's IDs from being another's."""

    def numbers(self, directory):
        found = self.box.run(["--state-dir", directory, "next", "--mode", "snowflake", "-n", "2000"])
        self.assertEqual(found.rc, 0, found)
        ids = [int(line) for line in found.out.split()]
        (worker,) = {(value >> 12) & 1023 for value in ids}
        return worker, ids, found.err

    def test_each_directory_has_a_number_of_its_own_and_says_what_that_is_worth(self):
        workers = {}
        for name in "abcdef":
            directory = self.box.path(name)
            worker, ids, said = self.numbers(directory)
            self.assertIn(PRIVATE, said)
            self.assertIn("snowflake.cluster", said)
            again, more, said = self.numbers(directory)
            self.assertEqual(again, worker, "the number is kept")
            self.assertNotIn(PRIVATE, said, "it is said once")
            workers.setdefault(worker, []).append(ids + more)
        self.assertGreater(len(workers), 1, "six directories have drawn one number")
        # One number twice is rare, and is what the warning is about.
        of_one = [lists[0] for lists in workers.values()]
        self.check_distinct([value for ids in of_one for value in ids])

    def test_the_daemon_the_doctor_and_status_say_it_always(self):
        for _ in range(2):
            daemon = self.box.serve()
            daemon.wait_log("warning snowflake IDs of local-[0-9a-f-]+ are " + PRIVATE)
            self.assertIs(daemon.status()["snowflake"]["private"], True)
            self.assertIn("private cluster: these IDs are " + PRIVATE, self.box.run(["status"]).out)
            daemon.terminate()
        self.assertIn(PRIVATE, self.box.run(["doctor"]).out)
        for name, value in (("cluster", "pay"), ("worker_id", "3")):
            box = Sandbox()
            self.addCleanup(box.close)
            named = ["--set", "snowflake.worker_id=3", "--set", "snowflake.%s=%s" % (name, value)]
            daemon = box.serve(*named)
            self.assertIs(daemon.status()["snowflake"]["private"], False)
            self.assertNotIn(PRIVATE, box.run(["status", *named]).out + daemon.log())
            daemon.terminate()
            self.assertNotIn(PRIVATE, box.run(["doctor", *named]).out)

    @in_own_network(ELSEWHERE)
    def test_it_is_not_served_to_other_machines(self):
        self.box.ok("tag", "add", "pay")
        far = ["--listen", ELSEWHERE + ":0"]
        daemon = self.box.serve(*far)
        daemon.wait_log("snowflake mode is off: .* http://%s:\\d+ can be reached from other machines" % re.escape(ELSEWHERE))
        error = self.check_v1_error(daemon.get("/v1/snowflake"), 503, "disabled")
        self.assertIn("set snowflake.cluster", error["hint"])
        self.assertEqual(len(daemon.ids("pay", 5)), 5)
        self.assertEqual(daemon.get("/health/ready").status, 200)
        daemon.terminate()
        # Asked for by name it is refused, and with a number it is given.
        refused = self.box.run(["serve", *far, "--set", "snowflake.enabled=true"])
        self.check(refused, 6, "cannot serve snowflake mode", ELSEWHERE, "snowflake.cluster")
        daemon = self.box.serve(*far, "--set", "snowflake.worker_id=5")
        self.assertEqual((self.take(daemon)[0] >> 12) & 1023, 5)


class ForkWithTheSameMap(SnowflakeTest):
    """A node of Leaf's fork in its mode local has a number of the same map, and writes its file every 3 s."""

    ADDRESS = "127.1.0.1:8080"

    def setUp(self):
        super().setUp()
        self.cluster = "fork-%d-%s" % (os.getpid(), self._testMethodName[-20:])
        folder = os.path.join("/tmp", self.cluster)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.file = os.path.join(folder, "leafconf", "8080", "workerID.json")
        os.makedirs(os.path.dirname(self.file))
        self.stop = threading.Event()

    def write(self):
        now = int(time.time() * 1000)
        with open(self.file + ".new", "w", encoding="utf-8") as file:
            json.dump({"ip": "127.1.0.1", "port": "8080", "workId": 5, "timestamp": now}, file)
        os.rename(self.file + ".new", self.file)
        return now

    def start_fork(self):
        self.stop.clear()
        self.write()

        def report():
            while not self.stop.wait(1):
                self.write()

        fork = threading.Thread(target=report)
        fork.start()

        def end():
            self.stop.set()
            fork.join()

        self.addCleanup(end)
        return end

    def settings(self):
        values = ("snowflake.cluster=" + self.cluster, "snowflake.address=" + self.ADDRESS,
                  "snowflake.workers=%s=5" % self.ADDRESS, "segment.enabled=false")  # fmt: skip
        return [part for value in values for part in ("--set", value)]

    def test_which_of_the_two_comes_first(self):
        end_fork = self.start_fork()
        refused = self.box.run(["next", "--mode", "snowflake", "--direct", "--timeout", "120s", *self.settings()])
        self.check(refused, 11, "workerID.json")
        end_fork()
        last = self.write()
        daemon = self.box.serve(*self.settings())
        first = self.take(daemon)[0]
        self.assertGreaterEqual((first >> 22) + 1288834974657, last)
        self.assertEqual(first >> 12 & 1023, 5)

        end_fork = self.start_fork()
        poll(lambda: daemon.get("/v1/snowflake").status == 503, "the daemon stops beside the fork")
        self.assertEqual(json.loads(daemon.get("/v1/snowflake").body)["code"], "not_owner")
        self.assertIn("workerID.json", json.loads(daemon.get("/health/ready").body)["reasons"][0]["message"])
        end_fork()
        last = self.write()
        poll(lambda: daemon.get("/health/ready").status == 200, "the daemon goes on after it")
        self.assertGreaterEqual((self.take(daemon)[0] >> 22) + 1288834974657, last)
        self.check_seen()
        self.assertEqual(daemon.terminate(), 0)


class OneNode(SnowflakeTest):
    def test_ids_have_the_time_and_the_worker(self):
        daemon = self.box.serve("--set", "snowflake.cluster=pay", "--set", "snowflake.worker_id=77")
        before = time.time() * 1000
        value = self.take(daemon)[0]
        after = time.time() * 1000
        self.assertTrue(before - 2 <= time_ms(value) <= after + 2)
        self.assertEqual(value >> 12 & 1023, 77)
        self.assertLess(value & 4095, 64)
        response = daemon.get("/api/snowflake/get/anything")
        self.assertEqual((response.status, response.headers["Content-Type"]), (200, "text/plain;charset=UTF-8"))
        self.seen.append(int(response.body))
        decoded = json.loads(daemon.get("/decodeSnowflakeId?snowflakeId=%d" % value).body)
        form = "snowflakeId=%d" % value
        for kind, status in (
            ("application/x-www-form-urlencoded", 200), ("Application/X-WWW-Form-Urlencoded ; charset=UTF-8", 200),
            ("text/plain", 400),
        ):  # fmt: skip
            posted = daemon.request("POST", "/decodeSnowflakeId", form, {"Content-Type": kind})
            self.assertEqual(posted.status, status, kind)
            if status == 200:
                self.assertEqual(json.loads(posted.body), decoded)
        kinds = {"Content-Type": "application/x-www-form-urlencoded"}
        long = daemon.request("POST", "/decodeSnowflakeId", form + "&x=" + "y" * 300, kinds)
        self.assertEqual(long.status, 400)  # no more is kept of a body
        self.assertEqual(list(decoded), ["workerId", "sequenceId", "timestamp"])
        self.assertEqual(decoded["workerId"], "77")
        self.assertTrue(decoded["timestamp"].startswith("%d(" % time_ms(value)))
        # Bytes are ranges of numbers: not of another form.
        response = daemon.get("/v1/snowflake?form=uuid", {"Accept": "application/octet-stream"})
        self.assertTrue(response.headers["Content-Type"].startswith("application/json"))
        self.assertEqual(len(json.loads(response.body)["ids"]), 1)
        self.check_seen()

    def test_many_threads(self):
        daemon = self.box.serve()
        total = scaled(400, 40)

        def work(_):
            mine = []
            for _ in range(total // 4):
                response = daemon.get("/v1/snowflake?count=500")
                self.assertEqual(response.status, 200, response.body)
                mine += [int(text) for text in json.loads(response.body)["ids"]]
            self.assertEqual(mine, sorted(mine))
            return mine

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            self.check_distinct([value for mine in pool.map(work, range(4)) for value in mine])

    def test_kill_and_start_at_once(self):
        for _ in range(3):
            daemon = self.box.serve()
            self.take(daemon, 2000)
            daemon.kill()
            daemon = self.box.serve(ready=False)
            # The clock answers before the node is ready.
            self.assertEqual(daemon.get("/v1/clock").status, 200)
            ready = daemon.get("/health/ready")
            if ready.status != 200:
                reasons = json.loads(ready.body)["reasons"]
                self.assertIn("snowflake_clock", [reason["code"] for reason in reasons])
            daemon.wait_ready()
            self.take(daemon, 2000)
            daemon.kill()
        self.check_seen()

    def test_a_killed_node_waits_no_longer_than_the_window(self):
        """The figures of the daemon itself, without what it takes to start processes."""
        daemon = self.box.serve()
        self.take(daemon)
        daemon.kill()
        daemon = self.box.serve()
        self.take(daemon)
        waited = re.search(r"waiting (\d+)ms|waiting (\d+)s", daemon.log())
        if waited:
            self.assertLessEqual(int(waited.group(1) or int(waited.group(2)) * 1000), WINDOW_S * 1000)
        self.check_seen()

    def test_kill_under_load(self):
        for _ in range(3):
            daemon = self.box.serve()
            stop = threading.Event()
            taken = []

            def work():
                while not stop.is_set():
                    try:
                        response = daemon.get("/v1/snowflake?count=3000")
                    except OSError:
                        return
                    except Exception:  # cut off inside an answer: those IDs do not count
                        return
                    if response.status == 200:
                        taken.append([int(text) for text in json.loads(response.body)["ids"]])

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            poll(lambda taken=taken: taken, "the first IDs")
            time.sleep(0.1)
            daemon.kill()
            stop.set()
            for thread in threads:
                thread.join()
            batch = sorted(value for ids in taken for value in ids)
            if self.seen:
                self.assertGreater(batch[0], max(self.seen))
            self.seen += batch
        self.check_distinct(self.seen)

    def test_stop_and_start_at_once(self):
        for _ in range(5):
            daemon = self.box.serve()
            self.assertNotIn("waiting", daemon.log())
            self.take(daemon, 5000)
            self.assertEqual(daemon.terminate(), 0)
        self.check_seen()

    def test_two_daemons_on_one_state_directory(self):
        daemon = self.box.serve()
        result = self.box.run(["serve", "--listen", "127.0.0.1:0"])
        self.check(result, 11, self.box.state, "pid %d" % daemon.process.pid)
        self.check(self.box.run(["next", "--mode", "snowflake", "--direct"]), 11, self.box.state)
        self.take(daemon)

    def test_next_asks_the_daemon(self):
        daemon = self.box.serve()
        first = self.take(daemon)[0]
        self.next("-n", "3")
        self.next("-n", "250000")
        self.take(daemon)
        self.assertGreater(self.seen[1], first)
        self.check_seen()
        self.assertEqual(daemon.terminate(), 0)

    def test_next_without_a_daemon(self):
        for _ in range(5):
            self.next("-n", "1000")
        self.next("--direct")
        self.next("--direct", "-n", "250000")
        daemon = self.box.serve()
        self.take(daemon)
        daemon.terminate()
        self.next()
        self.check_seen()
        self.assertEqual(len({value >> 12 & 1023 for value in self.seen}), 1)

    def test_parallel_one_shots_take_turns(self):
        def take(_):
            while True:
                result = self.box.run(["next", "--mode", "snowflake", "-n", "100"])
                # A slow machine may keep one waiting for more than a second: then it says so.
                self.assertIn(result.rc, (0, 11), result)
                if result.rc == 0:
                    return [int(line) for line in result.out.split()]

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            taken = list(pool.map(take, range(12)))
        self.assertEqual([len(ids) for ids in taken], [100] * 12)
        self.check_distinct([value for ids in taken for value in ids])

    def test_a_one_shot_waits_for_another_command_as_long_as_it_may(self):
        """Here a file that says so; a command that waits for its own ceiling holds the directory for seconds."""
        self.next()
        with open(os.path.join(self.box.state, "lock"), "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(0)
            file.write("%d command\n" % os.getpid())
            file.flush()
            self.check(self.box.run(["next", "--mode", "snowflake", "--timeout", "100ms"]), 11, "it ends soon: retry")
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(self.next, "--timeout", "100s")
                time.sleep(3)
                self.assertFalse(waiting.done())
                fcntl.flock(file, fcntl.LOCK_UN)
                waiting.result()
        self.check_seen()

    def test_json_and_forms(self):
        self.assertEqual(len(json.loads(self.box.ok("next", "--mode", "snowflake", "--json", "-n", "3"))["ids"]), 3)
        ranges = [line.split() for line in self.box.ok("next", "--mode", "snowflake", "--range", "-n", "9000").splitlines()]
        self.assertEqual(sum(int(end) - int(begin) for begin, end in ranges), 9000)
        text = self.box.ok("next", "--mode", "snowflake", "--format", "base62").strip()
        decoded = json.loads(self.box.ok("decode", "--format", "base62", text, "--json"))
        self.assertLess(abs(decoded["ids"][0]["time_ms"] - time.time() * 1000), 60000)

    def test_limits(self):
        daemon = self.box.serve("--set", "server.max_count=50")
        self.check_v1_error(daemon.get("/v1/snowflake?count=51"), 413, "too_large")
        self.assertEqual(len(self.next("-n", "120")), 120)
        self.check_v1_error(daemon.get("/v1/snowflake?count=0"), 400, "invalid_argument")
        self.check_v1_error(daemon.get("/v1/snowflakes"), 404, "not_found")

    def test_disabled(self):
        daemon = self.box.serve("--set", "snowflake.enabled=false")
        self.check_leaf_error(daemon.get("/api/snowflake/get/x"), -1)
        self.check_v1_error(daemon.get("/v1/snowflake"), 503, "disabled")
        self.check(self.box.run(["next", "--mode", "snowflake"]), 11, "disabled")
        result = self.box.run(["next", "--mode", "snowflake", "--direct", "--set", "snowflake.enabled=false"])
        self.check(result, 11, "disabled")
        # Decoding is no mode.
        self.assertEqual(daemon.get("/v1/decode/1").status, 200)

    def test_no_sudden_universe(self):
        """Something is configured, but no snowflake worker: nothing is issued from a private one by accident."""
        self.check(self.box.run(["next", "--mode", "snowflake", "--set", "sqlite.path=" + self.box.path("x.db")]), 7)


class State(SnowflakeTest):
    def state_file(self):
        return os.path.join(self.box.state, "snowflake.state")

    def refused(self, *args, rc=11, parts=()):
        result = self.box.run(["serve", "--listen", "127.0.0.1:0", *args])
        return self.check(result, rc, *parts)

    def test_changed_properties_are_refused_with_both_values(self):
        cluster = ["--set", "snowflake.cluster=pay", "--set", "snowflake.worker_id=1"]
        daemon = self.box.serve(*cluster)
        self.take(daemon)
        daemon.terminate()
        self.refused(*cluster, "--set", "snowflake.epoch_ms=1500000000000", parts=("1500000000000", str(EPOCH_MS)))
        self.refused(*cluster, "--set", "snowflake.layout=42-9-12", parts=("41-10-12", "42-9-12"))
        self.refused("--set", "snowflake.cluster=other", "--set", "snowflake.worker_id=1", parts=("'pay'", "'other'"))
        self.refused(*cluster, "--set", "snowflake.registry=zookeeper", rc=6, parts=("snowflake.address",))
        daemon = self.box.serve(*cluster)
        self.take(daemon)
        self.check_seen()

    def test_bad_state_is_refused_by_name(self):
        daemon = self.box.serve()
        self.take(daemon)
        daemon.terminate()
        with open(self.state_file(), "rb") as file:
            good = file.read()
        for bad, word in (
            (good[: len(good) // 2], "truncated"),
            (b"", "truncated"),
            (re.sub(rb"worker \d+", b"worker 1024", good), "corrupt"),
            (b"workerID=0\n", "not a leafctl file"),
            (good.replace(b"state 2\n", b"state 9\n"), "version '9'"),
        ):
            with open(self.state_file(), "wb") as file:
                file.write(bad)
            self.refused(parts=(self.state_file(), word))
            self.check(self.box.run(["next", "--mode", "snowflake"]), 11, self.state_file(), word)
        with open(self.state_file(), "wb") as file:
            file.write(good)
        self.take(self.box.serve())
        self.check_seen()

    def test_unwritable_state_is_refused_by_name(self):
        os.makedirs(self.state_file() + ".new")
        self.refused(rc=6, parts=(self.state_file(),))

    def test_full_disk_stops_before_the_ceiling(self):
        # A limit on file sizes is a full disk for this one process; the signal that comes with it is ignored.
        import resource

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        daemon = self.box.serve("--set", "segment.enabled=false", preexec_fn=limit)
        self.take(daemon)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        poll(lambda: daemon.get("/health/ready").status == 503, "not ready")
        response = daemon.get("/v1/snowflake")
        error = self.check_v1_error(response, 503)
        self.assertIn(self.state_file(), error["message"])
        self.assertIn(os.strerror(errno.EFBIG), error["message"])
        status = daemon.status()
        self.assertIn(self.state_file(), status["problems"][0]["message"])
        with open(self.state_file(), encoding="utf-8") as file:
            ceiling = int(re.search(r"ceiling_ms (\d+)", file.read()).group(1))
        self.assertTrue(all(time_ms(value) < ceiling for value in self.seen))
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        daemon.wait_ready()
        self.take(daemon)
        self.check_seen()

    def test_worker_map(self):
        workers = "snowflake.workers=127.0.9.1:80=3,127.0.9.2:80=4"
        daemon = self.box.serve("--set", workers, "--set", "snowflake.address=127.0.9.2:80")
        self.assertEqual(self.take(daemon)[0] >> 12 & 1023, 4)
        daemon.terminate()
        self.refused("--set", workers, "--set", "snowflake.address=127.0.9.3:80", rc=6, parts=("127.0.9.3:80",))
        self.refused("--set", workers, rc=6, parts=("snowflake.address",))
        # A file for all nodes, and an address with a slip of the pen: the number is another node's.
        other = ("--set", "snowflake.address=127.0.9.3:80", "--set", "snowflake.cluster=x", "--state-dir", self.box.path("other"))
        self.refused("--set", workers, *other, "--set", "snowflake.worker_id=4", rc=6, parts=("127.0.9.2:80", "127.0.9.3:80"))
        self.refused("--set", "snowflake.workers=127.0.9.1:8O=3", rc=2, parts=("127.0.9.1:8O",))
        self.refused("--set", "snowflake.cluster=x", rc=6, parts=("worker_id",))
        self.refused("--set", "snowflake.worker_id=1024", parts=("1024", "0..1023"))
        self.refused("--set", "snowflake.worker_id=7", "--set", "snowflake.worker_range=8-9", parts=("8..9",))


class Ordinal(SnowflakeTest):
    """snowflake.worker_id = "ordinal"."""

    CLUSTER = ["--set", "snowflake.cluster=pay"]

    def setUp(self):
        super().setUp()
        self.box.env["LEAFCTL_SNOWFLAKE_WORKER_ID"] = "ordinal"

    def refused(self, host, *parts, args=(), variable=True):
        socket.sethostname(host)
        place = "$LEAFCTL_SNOWFLAKE_WORKER_ID: snowflake.worker_id: " if variable else "snowflake.worker_id: "
        for command in (["next", "--mode", "snowflake"], ["config", "check"], ["serve", "--listen", "127.0.0.1:0"]):
            self.check(self.box.run([*command, *self.CLUSTER, *args]), 6, place, "'%s'" % host, *parts)
        self.assertFalse(os.path.exists(self.state_file()), "nothing was issued")

    def state_file(self):
        return os.path.join(self.box.state, "snowflake.state")

    @in_own_host_name()
    def test_the_number_and_its_source_are_told_everywhere(self):
        socket.sethostname("leafctl-37.leafctl.default.svc.cluster.local")
        source = "host name 'leafctl-37.leafctl.default.svc.cluster.local'"
        daemon = self.box.serve(*self.CLUSTER)
        self.assertEqual({value >> 12 & 1023 for value in self.take(daemon, 10)}, {37})
        self.assertIn("snowflake mode as worker 37 (%s) of pay" % source, daemon.log())
        status = json.loads(daemon.get("/v1/status").body)["snowflake"]
        self.assertEqual((status["worker"], status["worker_source"]), (37, source))
        server = ["--server", daemon.url]
        self.assertIn("snowflake: worker 37 of pay", self.box.ok("status", *server))
        self.assertIn("  worker number from the %s\n" % source, self.box.ok("status", *server))
        said = "37, from the %s" % source
        # What else it finds is this machine's affair.
        self.assertIn("worker-number: " + said, self.box.run(["doctor", *self.CLUSTER]).out)
        daemon.terminate()

        checked = self.box.run(["config", "check", *self.CLUSTER])
        self.check(checked, 0)
        self.assertIn("worker number " + said, checked.err)
        found = json.loads(self.box.ok("config", "check", "--json", *self.CLUSTER))
        self.assertEqual((found["worker"], found["worker_source"]), (37, source))
        self.assertRegex(self.box.ok("config", "show"), r'(?m)^worker_id = "ordinal" +# %s$' % re.escape(said))
        self.assertRegex(
            self.box.ok("config", "show", "--origin"),
            r'(?m)^worker_id = "ordinal" +# \$LEAFCTL_SNOWFLAKE_WORKER_ID: %s$' % re.escape(said),
        )
        shown = json.loads(self.box.ok("config", "show", "--json"))["values"]["snowflake.worker_id"]
        self.assertEqual(shown, {"value": "ordinal", "worker": 37, "worker_source": source})
        self.assertEqual(self.box.ok("config", "get", "snowflake.worker_id"), "ordinal\n")
        # What is shown is a file that says the same.
        path = self.box.write("shown.toml", self.box.ok("config", "show", *self.CLUSTER))
        again = self.box.ok("--config", path, "config", "show", env={"LEAFCTL_SNOWFLAKE_WORKER_ID": None})
        self.assertRegex(again, r'(?m)^worker_id = "ordinal" +# %s$' % re.escape(said))

        self.assertIn(source, self.box.ok("worker", "list", *self.CLUSTER))
        self.assertRegex(self.box.ok("worker", "show", "37", *self.CLUSTER), r"(?m)^source: +%s$" % re.escape(source))
        worker = json.loads(self.box.ok("worker", "list", "--json", *self.CLUSTER))["workers"][0]
        self.assertEqual((worker["worker"], worker["worker_source"]), (37, source))

    @in_own_host_name()
    def test_host_names_that_give_no_number(self):
        # What container engines make up, a pod of a Deployment, and a name that only ends with a digit.
        for host in ("web", "3f2a9c1b7d04", "leafctl-6d4cf56db6-x7k29", "leafctl3", "7", "leafctl-", "leafctl-3a"):
            self.refused(host, "does not end with a dash and a number")
        self.refused("leafctl-03", "leading zeros", "03 could be another node's")
        for host in ("leafctl-1024", "leafctl-4294967299", "leafctl-18446744073709551619"):
            self.refused(host, "ends with %s, which is not in 0..1023" % host[8:])
        self.refused("leafctl-8", "0..7", args=["--set", "snowflake.layout=44-3-16"])
        self.refused("leafctl-8", "9..10", args=["--set", "snowflake.worker_range=9-10"])
        path = self.box.write("leafctl.toml", '[snowflake]\nworker_id = "ordinal"\n')
        del self.box.env["LEAFCTL_SNOWFLAKE_WORKER_ID"]
        self.refused("web", path + ":2: ", args=["--config", path], variable=False)
        # The largest that there is.
        socket.sethostname("leafctl-1023")
        self.assertEqual(self.next("--config", path)[0] >> 12 & 1023, 1023)

    @in_own_host_name()
    def test_what_it_excludes(self):
        socket.sethostname("leafctl-3")
        for registry in ("zookeeper", "sql"):
            result = self.box.run(["config", "check", *self.CLUSTER, "--set", "snowflake.registry=" + registry])
            self.check(result, 6, "snowflake.worker_id", "registry " + registry)
        # A number that the map names for this node goes before, as it does before a fixed one.
        mapped = ["--set", "snowflake.workers=127.0.9.1:80=9", "--set", "snowflake.address=127.0.9.1:80"]
        daemon = self.box.serve(*self.CLUSTER, *mapped)
        self.assertEqual(json.loads(daemon.get("/v1/status").body)["snowflake"]["worker_source"], "snowflake.workers")
        self.assertEqual(self.take(daemon)[0] >> 12 & 1023, 9)
        daemon.terminate()
        # Without snowflake mode no number is needed.
        socket.sethostname("web")
        self.box.ok("config", "check", "--set", "snowflake.enabled=false")

    @in_own_host_name()
    def test_a_pod_and_its_volume(self):
        """What a fixed number has of safety is there."""
        socket.sethostname("leafctl-3")
        daemon = self.box.serve(*self.CLUSTER)
        self.take(daemon, 1000)
        daemon.kill()
        # The same pod once more, with its volume: nothing repeats after a crash.
        daemon = self.box.serve(*self.CLUSTER)
        self.take(daemon, 1000)
        self.check(self.box.run(["serve", "--listen", "127.0.0.1:0", *self.CLUSTER]), 11, "state directory")
        daemon.terminate()
        # A copy of the volume is refused, and one of another pod's begins after all that its owner has issued.
        copy = self.box.path("copy")
        shutil.copytree(self.box.state, copy)
        args = ["next", "--mode", "snowflake", "--state-dir", copy, *self.CLUSTER]
        self.check(self.box.run(args), 11, "it may be a copy", "as worker 3")
        socket.sethostname("leafctl-4")
        self.assertEqual(self.next(*self.CLUSTER)[0] >> 12 & 1023, 4)
        self.check_seen()


class MovedClock(SnowflakeTest):
    """The real binary under libfaketime."""

    def setUp(self):
        super().setUp()
        fake = FakeClock(self.box.path("faketime"))
        self.fake, self.set_offset = fake.env, fake.set_offset

    def serve(self, *args, **more):
        return self.box.serve(*args, env=self.fake, **more)

    def clock(self, daemon):
        return json.loads(daemon.get("/v1/clock").body)["time_ms"]

    def test_the_clock_moves_at_all(self):
        daemon = self.serve()
        self.set_offset(-1)
        self.assertLess(self.clock(daemon), time.time() * 1000 - 500)

    def test_bumps_and_strobes(self):
        daemon = self.serve("--set", "snowflake.clock_jump_max=1h")
        refusals = 0
        for offset in (0, 0.011, 0, -0.011, 0, 1.3, -1.3, 0.5, -2.0, 0, 4.0, 0, 60.0, 0, -30.0, 288.0, -288.0, 0):
            self.set_offset(offset)
            for _ in range(20):
                response = daemon.get("/v1/snowflake?count=100")
                if response.status != 200:
                    refusals += 1
                    self.check_v1_error(response, 503)
                    break
                ids = [int(text) for text in json.loads(response.body)["ids"]]
                self.assertLessEqual(time_ms(ids[-1]), self.clock(daemon) + WINDOW_S * 1000)
                self.seen += ids
        for i in range(200):
            self.set_offset(1.0 if i % 2 else 0.0)
            response = daemon.get("/v1/snowflake?count=10")
            if response.status == 200:
                self.seen += [int(text) for text in json.loads(response.body)["ids"]]
        self.check_seen()
        self.assertGreater(refusals, 0, "288 seconds back have to be refused")

    def test_a_large_step_back_says_for_how_long(self):
        daemon = self.serve()
        self.take(daemon)
        self.set_offset(-600)
        error = self.check_v1_error(daemon.get("/v1/snowflake"), 503, "clock")
        self.assertRegex(error["message"], r"for another (59\d{4}ms|59\ds|9m)")
        self.check_leaf_error(daemon.get("/api/snowflake/get/x"), -3)
        result = self.box.run(["next", "--mode", "snowflake"])
        self.check(result, 11, "behind")
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.set_offset(0)
        daemon.wait_ready()
        self.take(daemon)
        self.check_seen()

    def test_starts_with_the_clock_anywhere(self):
        daemon = self.serve()
        self.take(daemon, 5000)
        daemon.kill()
        # The time goes on while these run: far enough that it makes no difference.
        for offset, rc in ((-7200, 11), (-600, 11), (7200, 11), (600, 11)):
            self.set_offset(offset)
            result = self.box.run(["serve", "--listen", "127.0.0.1:0"], env=self.fake)
            self.check(result, rc, "behind" if offset < 0 else "ahead")
        # Behind by less than start_wait: it waits, and then issues above.
        self.set_offset(-600)
        daemon = self.serve(
            "--set", "snowflake.start_wait=1h", "--set", "snowflake.clock_jump_max=1h", ready=False
        )
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.check_v1_error(daemon.get("/v1/snowflake"), 503, "clock")
        self.set_offset(0)
        daemon.wait_ready()
        self.take(daemon)
        daemon.terminate()
        self.set_offset(0)
        daemon = self.serve()
        self.take(daemon)
        self.check_seen()

    def test_a_forward_jump_stops_until_it_is_accepted(self):
        daemon = self.serve()
        self.take(daemon)
        self.set_offset(7200)
        poll(lambda: daemon.get("/health/ready").status == 503, "not ready after a jump")
        error = self.check_v1_error(daemon.get("/v1/snowflake"), 503, "clock")
        self.assertIn("accept-clock", error["hint"])
        result = self.box.run(["worker", "accept-clock"], env=self.fake)
        self.check(result, 11, "confirmation")
        name = daemon.status()["snowflake"]["cluster"]
        self.box.ok("worker", "accept-clock", "--dry-run", env=self.fake)
        self.assertEqual(daemon.get("/health/ready").status, 503)
        self.box.ok("worker", "accept-clock", "--confirm", name, env=self.fake)
        daemon.wait_ready()
        value = self.take(daemon)[0]
        self.assertGreater(time_ms(value), time.time() * 1000 + 7000_000)
        daemon.kill()
        # A restart remembers what was accepted.
        daemon = self.serve()
        self.take(daemon)
        self.check_seen()

    def test_the_last_good_millisecond(self):
        # 2080-07-10T17:30:30.208Z
        last = 3487858230208
        self.set_offset(last / 1000 - time.time() - 600)
        daemon = self.serve("--set", "snowflake.clock_jump_max=1h")
        self.assertIn("exhaustion_near", [problem["code"] for problem in daemon.status()["problems"]])
        self.take(daemon)
        self.set_offset(last / 1000 - time.time() - 1)
        poll(lambda: self.clock(daemon) > last, "the end")
        error = self.check_v1_error(daemon.get("/v1/snowflake"), 503, "overflow")
        self.assertIn("2080-07-10T17:30:30.208Z", error["message"])
        self.assertTrue(all(0 <= value < 1 << 63 for value in self.seen))
        self.assertEqual(daemon.terminate(), 0)
        jump = ["--set", "snowflake.clock_jump_max=1h"]
        result = self.box.run(["serve", "--listen", "127.0.0.1:0", *jump], env=self.fake)
        self.check(result, 11, "2080-07-10T17:30:30.208Z")


# libfaketime and the sanitizers' runtimes exclude each other: these cases belong to the release build's run.
if is_sanitized():
    del MovedClock

if __name__ == "__main__":
    main()
