#!/usr/bin/env python3
"""The embedded default: no configuration, SQLite, with and without a daemon, and killed at any moment."""

import concurrent.futures
import errno
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import explain  # noqa: E402
from leafctl import BINARY, DEADLINE_S, ID_END, NOBODY, LeafTest, check_sane, main, poll, scaled, through_sudo  # noqa: E402
from own_namespace import in_own_mounts  # noqa: E402

# Where many processes take turns, a slow disk makes the last of them wait long.
PATIENCE = ("--timeout", "50s")


class NoConfiguration(LeafTest):
    def test_add_and_next(self):
        self.box.ok("tag", "add", "pay", "--step", "1000", "--start", "1")
        self.assertEqual(self.box.ok("next", "pay", "-n", "3"), "1\n2\n3\n")
        # Exactly three were reserved, never a whole step.
        self.assertEqual(self.box.rows()["pay"]["max_id"], "4")
        self.assertEqual(self.box.ok("next", "pay"), "4\n")
        self.assertEqual(self.box.rows()["pay"]["max_id"], "5")
        self.assertEqual(self.box.rows()["pay"]["step"], 1000)

    def test_as_a_plain_user_with_nothing_but_a_home(self):
        self.box.open_to_others()
        user = self.box.without_rights()
        if os.geteuid() == 0:
            os.chown(self.box.home, NOBODY, NOBODY)
        env = {"LEAFCTL_STATE_DIR": None}
        self.box.ok("tag", "add", "pay", env=env, **user)
        self.assertEqual(self.box.ok("next", "pay", "-n", "2", env=env, **user), "1\n2\n")
        state = os.path.join(self.box.home, ".local", "state", "leafctl")
        self.assertEqual(os.stat(state).st_mode & 0o777, 0o700)
        for name in ("leaf.db", "marks.db"):
            self.assertEqual(os.stat(os.path.join(state, name)).st_mode & 0o077 & os.stat(state).st_mode, 0)
        # XDG_STATE_HOME goes first.
        other = os.path.join(self.box.home, "xdg")
        env["XDG_STATE_HOME"] = other
        self.check(self.box.run(["next", "pay"], env=env, **user), 9)
        self.assertEqual(os.listdir(other), ["leafctl"])

    def test_unreadable_files(self):
        self.box.open_to_others()
        config = self.box.write("leafctl.toml", "[segment]\n", 0)
        self.check(self.box.run(["--config", config, "config", "check"], **self.box.without_rights()), 6, config)
        self.box.ok("tag", "add", "pay")
        os.chmod(self.box.state, 0o555)
        self.addCleanup(os.chmod, self.box.state, 0o755)  # or its owner could not remove what is in there
        result = self.box.run(["next", "pay", "--direct"], **self.box.without_rights())
        self.check(result, 4, self.box.state)

    def test_a_state_directory_that_another_user_made(self):
        """What lies in it is that user's wish: marks, a worker number, or a link to a file of ours."""
        self.box.open_to_others()
        precious = self.box.write("precious", "precious\n")
        foreign = self.box.path("foreign")
        os.mkdir(foreign)
        os.symlink(precious, os.path.join(foreign, "lock"))
        subprocess.run([*through_sudo(), "chown", "-h", "%d:%d" % (NOBODY, NOBODY), foreign], check=True)
        env = {"LEAFCTL_STATE_DIR": foreign}
        commands = (
            ["next", "--mode", "snowflake"], ["next", "pay", "--direct"], ["tag", "add", "pay"], ["serve", "--listen", "127.0.0.1:0"],
        )  # fmt: skip
        for args in commands:
            self.check(self.box.run(args, env=env), 4, foreign, "belongs to user")
        # Its owner may use it, without the link.
        subprocess.run([*through_sudo(), "rm", os.path.join(foreign, "lock")], check=True)
        if os.geteuid() == 0:
            self.box.ok("tag", "add", "pay", env=env, **self.box.without_rights())

        mine = self.box.path("mine")
        env = {"LEAFCTL_STATE_DIR": mine}
        self.box.ok("tag", "add", "pay", env=env)
        for name in ("lock", "grants.lock", "leaf.db", "marks.db", "snowflake.state", "paused-tags"):
            link = os.path.join(mine, name)
            if os.path.exists(link):
                os.rename(link, self.box.path("kept"))
            os.symlink(precious, link)
            for args in commands:
                self.check(self.box.run(args, env=env), 4, link, "symbolic link")
            os.remove(link)
            if os.path.exists(self.box.path("kept")):
                os.rename(self.box.path("kept"), link)
        with open(precious, encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious\n")
        self.assertEqual(self.box.ok("next", "pay", "--direct", env=env), "1\n")

        os.chmod(mine, 0o777)
        for args in commands:
            self.check(self.box.run(args, env=env), 4, mine, "0777", "every user")
        # A directory in it is made for its owner only.
        self.box.ok("tag", "add", "pay", env={"LEAFCTL_STATE_DIR": os.path.join(mine, "below")})

    def test_roots_commands_in_a_service_s_state_directory(self):
        """What they write in a directory that root gave to another user belongs to that user."""
        base = "/run/leafctl-test-%d" % os.getpid()
        state = os.path.join(base, "state")
        sudo = through_sudo()
        subprocess.run([*sudo, "mkdir", "-p", state], check=True)
        self.addCleanup(subprocess.run, [*sudo, "rm", "-rf", base], check=True)
        subprocess.run([*sudo, "chown", "%d:%d" % (NOBODY, NOBODY), state], check=True)
        command = [*sudo, BINARY, "--state-dir", state]
        subprocess.run([*command, "tag", "add", "pay"], check=True, capture_output=True, timeout=DEADLINE_S)
        done = subprocess.run([*command, "next", "pay", "--direct"], check=True, capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(done.stdout, b"1\n")

    def test_roots_commands_leave_files_of_the_directory_s_owner(self):
        """Else the service could not open them."""
        base = "/run/leafctl-test-owner-%d" % os.getpid()
        state = os.path.join(base, "state")
        sudo = through_sudo()
        subprocess.run([*sudo, "mkdir", "-p", state], check=True)
        self.addCleanup(subprocess.run, [*sudo, "rm", "-rf", base], check=True)
        owner = (1234, 4321)
        subprocess.run([*sudo, "chown", "%d:%d" % owner, state], check=True)
        subprocess.run([*sudo, "chmod", "755", state], check=True)
        commands = (
            ["tag", "add", "pay"], ["next", "pay", "--direct"], ["tag", "advance", "pay", "--to", "500"],
            ["tag", "remove", "pay", "--yes"], ["next", "--mode", "snowflake", "--direct"],
            ["worker", "accept-clock", "--confirm"], ["next", "--mode", "snowflake", "--direct"],
        )  # fmt: skip
        for args in commands:
            if args[-1] == "--confirm":
                listed = subprocess.run([*sudo, BINARY, "--state-dir", state, "worker", "list", "--json"],
                                        check=True, capture_output=True, timeout=DEADLINE_S)  # fmt: skip
                args = [*args, json.loads(listed.stdout)["cluster"]]
            done = subprocess.run([*sudo, BINARY, "--state-dir", state, *args], capture_output=True, timeout=DEADLINE_S,
                                  check=False)  # fmt: skip
            self.assertEqual(done.returncode, 0, (args, done.stderr))
            found = {name: os.stat(os.path.join(state, name)) for name in os.listdir(state)}
            self.assertEqual({name for name, of in found.items() if (of.st_uid, of.st_gid) != owner}, set(), args)
        self.assertLessEqual({"lock", "grants.lock", "leaf.db", "marks.db", "snowflake.state", "clock-accepted"}, set(found))

    def test_parallel_processes(self):
        self.box.ok("tag", "add", "pay", "--step", "1000", "--start", "1")
        calls = scaled(200, 16)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            outputs = list(pool.map(lambda _: self.box.ok("next", "pay", *PATIENCE), range(calls)))
        self.assertEqual(sorted(int(text) for text in outputs), list(range(1, calls + 1)))

    def test_parallel_batches(self):
        self.box.ok("tag", "add", "pay", "--step", "10")
        calls = scaled(100, 16)
        counts = [1 + 37 * number % 2000 for number in range(calls)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            batches = list(pool.map(lambda count: self.box.next("pay", "-n", str(count), *PATIENCE), counts))
        self.check_distinct([value for batch in batches for value in batch])
        self.assertEqual([len(batch) for batch in batches], counts)
        for batch in batches:
            self.assertEqual(batch, sorted(batch))
        self.assertEqual(int(self.box.rows()["pay"]["max_id"]), 1 + sum(counts))

    def test_parallel_first_commands(self):
        """Eight processes make the state directory and the database at the same time."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda n: self.box.run(["tag", "add", "tag%d" % n, *PATIENCE]), range(8)))
            self.assertEqual([result.rc for result in results], [0] * 8, results)
            results = list(pool.map(lambda _: self.box.run(["tag", "add", "same", *PATIENCE]), range(8)))
            self.assertEqual(sorted(result.rc for result in results), [0] + [9] * 7, results)

    def test_closed_standard_descriptors(self):
        """Files that are opened must not land where stdout and stderr are expected."""

        def shut(*numbers):
            return lambda: [os.close(number) for number in numbers]

        self.box.ok("tag", "add", "pay")
        lock_files = lambda: {  # noqa: E731
            name: os.path.getsize(os.path.join(root, name))
            for root, _, names in os.walk(self.box.state)
            for name in names
            if "lock" in os.path.join(root, name)
        }
        for numbers in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
            for command in (["next", "pay", "-n", "3"], ["tag", "show", "nokey"], ["tag", "repair", "pay"]):
                self.box.run(command, preexec_fn=shut(*numbers))
        self.assertFalse([name for name, size in lock_files().items() if size > 0])
        process = self.box.popen(["serve", "--listen", "127.0.0.1:0", "-v"], preexec_fn=shut(0, 1, 2))
        try:
            sock = os.path.join(self.box.state, "leafctl.sock")
            poll(lambda: self.box.run(["status", "--server", "unix:" + sock]).rc == 0, "a daemon without descriptors")
            with open(os.path.join(self.box.state, "lock"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "%d serve\n" % process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), 0)


class WithDaemon(LeafTest):
    def test_serve_and_next(self):
        self.box.ok("tag", "add", "pay", "--step", "1000", "--start", "1")
        daemon = self.box.serve()
        # Nothing is configured: it finds the socket in its own state directory.
        self.assertEqual(self.box.next("pay", "-n", "3"), [1, 2, 3])
        self.assertEqual(daemon.leaf("pay").body, "4")
        self.assertEqual(self.box.next("pay", "-n", "2000"), list(range(5, 2005)))
        status = json.loads(self.box.ok("status", "--json"))
        self.assertIs(status["ready"], True)
        self.assertEqual(daemon.terminate(), 0)
        # And the store again once it is gone, above everything that was reserved.
        self.assertGreater(self.box.next("pay")[0], 2004)

    def test_big_batches_through_the_daemon(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        self.box.serve()
        count = scaled(1000000, 250000)
        ids = self.box.next("pay", "-n", str(count))
        self.assertEqual(len(ids), count)
        self.assertEqual(ids, sorted(ids))
        self.check_distinct(ids)
        ranges = self.box.ok("next", "pay", "-n", str(count), "--range").splitlines()
        pairs = [tuple(map(int, line.split())) for line in ranges]
        self.assertEqual(sum(end - begin for begin, end in pairs), count)
        self.assertGreater(pairs[0][0], ids[-1])

    def test_tag_added_and_removed_under_the_daemon(self):
        daemon = self.box.serve("--set", "segment.refresh_interval=1s")
        self.check_leaf_error(daemon.leaf("pay"), -2)
        self.box.ok("tag", "add", "ship")
        self.assertEqual(daemon.leaf("ship").body, "1")  # at its first request
        self.box.ok("tag", "add", "pay")
        poll(lambda: daemon.leaf("pay").status == 200, "the tag that was asked for too early")
        self.box.ok("tag", "remove", "pay", "--yes")
        poll(lambda: daemon.leaf("pay").status == 500, "the removed tag stops")
        self.check_leaf_error(daemon.leaf("pay"), -2)
        self.check_v1_error(daemon.v1("pay"), 404, "not_found")

    def test_direct_and_daemon_mixed(self):
        """One state directory: never a repeat, and no grant of another process looks like a database gone back."""
        self.box.ok("tag", "add", "pay", "--step", "5")
        # Five that take turns wait for one another on a disk that is slow.
        daemon = self.box.serve(
            "--set", "segment.refresh_interval=100ms", "--set", "segment.step_policy=fixed", "--set",
            "server.request_timeout=50s",
        )  # fmt: skip
        stop = threading.Event()
        results = []

        def loop(take):
            mine = []
            results.append(mine)
            while not stop.is_set():
                mine.extend(take())
            daemon.disconnect()

        takers = (
            lambda: self.box.next("pay", "--direct", "-n", "3", *PATIENCE),
            lambda: self.box.next("pay", "--direct", *PATIENCE),
            lambda: self.box.next("pay", "-n", "4", *PATIENCE),
            lambda: daemon.ids("pay", 2),
            lambda: daemon.ids("pay", 7),
        )
        with concurrent.futures.ThreadPoolExecutor(len(takers)) as pool:
            futures = [pool.submit(loop, take) for take in takers]
            target = scaled(20, 6)
            try:
                poll(
                    lambda: any(future.done() for future in futures) or all(len(mine) >= target for mine in results),
                    "enough of each", timeout=900,
                )  # fmt: skip
            finally:
                stop.set()  # or none of the takers would end
            for future in futures:
                future.result()
        self.check_distinct([value for mine in results for value in mine])
        self.assertNotIn("frozen", daemon.log())
        self.assertEqual(daemon.tag_status("pay")["state"], "active")
        self.assertEqual(self.box.run(["status"]).rc, 0)

    def test_set_back_by_hand(self):
        """The same as on MariaDB, on the embedded store."""
        self.box.ok("tag", "add", "pay", "--step", "100")
        self.box.ok("tag", "add", "ship", "--step", "100")
        daemon = self.box.serve("--set", "segment.refresh_interval=200ms")
        self.assertEqual(daemon.leaf("pay").body, "1")
        self.assertEqual(daemon.leaf("ship").body, "1")
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db"), timeout=30) as connection:
            connection.execute("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'pay'")
        connection.close()
        poll(lambda: daemon.v1("pay").status == 409, "the tag freezes")
        self.check_v1_error(daemon.v1("pay"), 409, "frozen")
        self.check_leaf_error(daemon.leaf("pay"), -3)
        self.check(self.box.run(["next", "pay"]), 11, "frozen", "pay")
        self.check(self.box.run(["next", "pay", "--direct"]), 11, "frozen", "pay")
        self.assertEqual(daemon.leaf("ship").status, 200)
        self.assertEqual(daemon.get("/health/ready").status, 200)
        self.assertEqual(daemon.get("/health/ready?tag=pay").status, 503)
        self.assertEqual(daemon.get("/health/ready?tag=ship").status, 200)
        self.assertEqual(self.box.run(["status"]).rc, 10)
        self.box.ok("tag", "repair", "pay", "--confirm", "pay")
        poll(lambda: daemon.leaf("pay").status == 200, "the tag thaws")
        self.assertGreaterEqual(int(daemon.leaf("pay").body), 101)
        # It tells of the last second.
        poll(lambda: self.box.run(["status"]).rc == 0, "status shows no problem")

    def test_store_removed_under_the_daemon(self):
        """A whole database that is gone is a database that went back: no ID below what was granted."""
        self.box.ok("tag", "add", "pay", "--step", "50")
        daemon = self.box.serve("--set", "segment.refresh_interval=200ms")
        ids = daemon.ids("pay", 60)
        daemon.terminate()
        for name in os.listdir(self.box.state):
            if name.startswith("leaf.db"):
                os.unlink(os.path.join(self.box.state, name))
        # Added again it goes on above this node's mark, whatever the new table thinks.
        self.box.ok("tag", "add", "pay", "--step", "50")
        self.assertGreater(self.box.next("pay", "--direct")[0], ids[-1])


class Killed(LeafTest):
    def setUp(self):
        super().setUp()
        self.dice = explain.dice("the moments of the kills")
        self.rounds = scaled(30, 5)

    def test_daemon_killed_at_random_moments(self):
        self.box.ok("tag", "add", "pay", "--step", "20")
        seen = []
        for _ in range(self.rounds):
            daemon = self.box.serve("--set", "segment.step_policy=fixed")
            stop = threading.Event()

            def take(mine, daemon=daemon, stop=stop):
                while not stop.is_set():
                    try:
                        mine.extend(daemon.ids("pay", 1 + len(mine) % 9))
                    except (OSError, AssertionError, ValueError):
                        return
                    except Exception:  # http.client has exceptions of its own for a cut connection
                        return
                    finally:
                        if stop.is_set():
                            daemon.disconnect()

            lists = [[], [], []]
            threads = [threading.Thread(target=take, args=(mine,)) for mine in lists]
            for thread in threads:
                thread.start()
            poll(lambda lists=lists: any(lists), "the first ID")
            # A random moment is what this is about.
            time.sleep(self.dice.uniform(0, 0.08))
            daemon.kill()
            stop.set()
            for thread in threads:
                thread.join()
            for mine in lists:
                self.assertEqual(mine, sorted(mine))
                seen += mine
        self.assertGreater(len(seen), 0)
        self.check_distinct(seen)
        daemon = self.box.serve()
        self.assertGreater(daemon.ids("pay")[0], max(seen))
        self.assertNotIn("frozen", daemon.log())

    def test_direct_runs_killed_at_random_moments(self):
        self.box.ok("tag", "add", "pay", "--step", "20")
        seen = []
        killed = 0
        for number in range(self.rounds):
            out_path = self.box.path("out")
            with open(out_path, "wb") as out:
                processes = [
                    self.box.popen(
                        ["next", "pay", "--direct", "-n", "100"],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.DEVNULL,
                    )
                    for _ in range(3)
                ]
                time.sleep(self.dice.uniform(0, 0.02 if number % 2 else 0.006))
                for process in processes:
                    process.kill()
                for process in processes:
                    killed += process.wait() == -signal.SIGKILL
            with open(out_path, encoding="utf-8") as file:
                # What was written counts as issued, whole lines of whole answers.
                seen += [int(line) for line in file.read().split("\n")[:-1]]
            result = self.box.run(["next", "pay", "--direct", "-n", "2"])
            self.assertEqual(result.rc, 0, result)
            seen += [int(line) for line in result.out.split()]
        self.assertGreater(killed, 0)
        self.check_distinct(seen)

    def test_interrupted(self):
        """130 and 143: by a signal, as the shell tells it."""
        self.box.ok("tag", "add", "pay")
        connection = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                process = self.box.popen(
                    ["next", "pay", "--direct", "--timeout", "50s"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                # Once it has the database open it waits for the lock.
                poll(lambda: self.has_open(process.pid, "leaf.db"), "it waits for the database")
                process.send_signal(number)
                out, err = process.communicate(timeout=30)
                check_sane(err.decode())
                self.assertIn(process.returncode, (-number, 128 + number))
                self.assertEqual(out, b"")
        finally:
            connection.close()

    @staticmethod
    def has_open(pid, name):
        try:
            for fd in os.listdir("/proc/%d/fd" % pid):
                if os.readlink("/proc/%d/fd/%s" % (pid, fd)).endswith(name):
                    return True
        except OSError:
            pass
        return False


class Limits(LeafTest):
    def test_the_end_of_the_numbers(self):
        self.box.ok("tag", "add", "end", "--step", "1000", "--start", str(ID_END - 11))
        daemon = self.box.serve()
        ids = []
        for _ in range(12):
            response = daemon.v1("end")
            if response.status != 200:
                break
            ids += [int(text) for text in json.loads(response.body)["ids"]]
        self.assertEqual(len(ids), 10)
        self.check_distinct(ids)
        # A grant never passes 2^63-1; what is left may be smaller than a step, and is still good.
        self.assertEqual(ids, list(range(ID_END - 11, ID_END - 11 + len(ids))))
        self.assertGreaterEqual(response.status, 400)
        self.check_leaf_error(daemon.leaf("end"), -3)
        result = self.box.run(["next", "end", "-n", "20"])
        self.assertIn(result.rc, (8, 11))
        self.assertIn("end", result.err)

    def test_busy_database_is_a_backend_error(self):
        self.box.ok("tag", "add", "pay")
        connection = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        result = self.box.run(["next", "pay", "--direct", "--timeout", "300ms"])
        self.check(result, 8, "pay")
        connection.execute("ROLLBACK")
        self.assertEqual(self.box.next("pay"), [1])
        # For as long as one likes: longer than SQLite can count.
        connection.execute("BEGIN IMMEDIATE")
        waits = self.box.popen(["next", "pay", "--direct", "--timeout", "8760h"], stdout=subprocess.PIPE)
        with self.assertRaises(subprocess.TimeoutExpired):
            waits.wait(1)
        connection.execute("ROLLBACK")
        connection.close()
        self.assertEqual(waits.communicate(timeout=DEADLINE_S)[0], b"2\n")

    def test_an_export_of_any_rows_can_be_applied(self):
        self.box.ok("tag", "add", "pay", "--step", "10")
        with contextlib.closing(sqlite3.connect(os.path.join(self.box.state, "leaf.db"))) as store, store:
            store.execute("UPDATE leaf_alloc SET max_id = -5, step = 0, description = ?", ("x" * 300,))
            for tag in ("", "a\x01b", "a/b"):
                store.execute("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 7, 7)", (tag,))
        for form in ([], ["--json"]):
            exported = self.box.run(["tag", "export", *form])
            self.assertEqual(exported.rc, 0, exported)
            self.assertEqual(exported.err.count("note: left out: "), 5, exported.err)
            for part in ("max_id -5", "step 0", "description", "is empty", "control character", "cannot add this tag"):
                self.assertIn(part, exported.err)
            applied = self.box.run(["tag", "apply", "-f", "-", "--dry-run"], stdin=exported.out)
            self.assertEqual((applied.rc, applied.out, applied.err), (0, "nothing to change\n", ""))


class Disks(LeafTest):
    """File systems that are full or read-only: exit 8 for the state and the store, 1 for the output."""

    WRITERS = (
        ["tag", "add", "new"], ["tag", "set", "pay", "--step", "10"], ["tag", "advance", "pay", "--to", "500"],
        ["tag", "remove", "pay", "--yes"], ["tag", "repair", "pay", "--to", "500", "--confirm", "pay"],
        ["next", "pay"], ["next", "pay", "--direct"], ["next", "--mode", "snowflake", "--direct"], ["db", "init"],
    )  # fmt: skip
    READERS = (["tag", "list"], ["tag", "show", "pay"], ["tag", "repair", "pay", "--dry-run"], ["db", "check"])

    def disk(self, kib):
        """A file system of its own, of `kib` KiB."""
        path = self.box.path("disk")
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dk" % kib, "tmpfs", path], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", path], check=True)
        return path

    @staticmethod
    def fill(path):
        with open(os.path.join(path, "fill"), "wb", buffering=0) as file:
            try:
                while file.write(bytes(1024)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def provision(self, state):
        """The environment of commands on `state`, which has a tag and a worker."""
        env = {"LEAFCTL_STATE_DIR": state}
        self.box.ok("tag", "add", "pay", env=env)
        self.box.ok("next", "pay", "--direct", env=env)
        self.box.ok("next", "--mode", "snowflake", env=env)
        return env

    @in_own_mounts()
    def test_a_full_state_directory(self):
        disk = self.disk(400)
        used = self.provision(os.path.join(disk, "used"))
        os.mkdir(os.path.join(disk, "empty"))
        self.fill(disk)
        for args in self.WRITERS:
            self.check(self.box.run(args, env=used), 8, used["LEAFCTL_STATE_DIR"] if "snowflake" in args else "full")
        # With nothing in it yet, not even the files that keep processes apart can be written.
        empty = {"LEAFCTL_STATE_DIR": os.path.join(disk, "empty")}
        serve = ["serve", "--listen", "127.0.0.1:0"]
        for args in (serve, ["next", "--mode", "snowflake", "--direct"]):
            self.check(self.box.run(args, env=empty), 8, "no space left")
        for args in (["tag", "add", "new"], ["db", "init"], ["tag", "list"]):
            self.check(self.box.run(args, env=empty), 8, "full")
        for args in self.READERS:
            self.assertIn(self.box.run(args, env=used).rc, (0, 8), args)
        # It had room again.
        os.unlink(os.path.join(disk, "fill"))
        self.assertEqual(self.box.ok("next", "pay", "--direct", env=used), "2\n")
        self.assertEqual([row.split()[0] for row in self.box.ok("tag", "list", env=used).splitlines()], ["TAG", "pay"])

    @in_own_mounts()
    def test_a_full_store(self):
        """The state is elsewhere."""
        disk = self.disk(400)
        self.box.ok("tag", "add", "pay", env={"LEAFCTL_SQLITE_PATH": os.path.join(disk, "used.db")})
        self.fill(disk)
        for name in ("used.db", "new.db"):
            env = {"LEAFCTL_SQLITE_PATH": os.path.join(disk, name)}
            for args in (["tag", "add", "new"], ["next", "pay", "--direct"], ["db", "init"]):
                self.check(self.box.run(args, env=env), 8, "full", name)

    @in_own_mounts()
    def test_a_read_only_disk(self):
        disk = self.disk(4096)
        env = self.provision(os.path.join(disk, "state"))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for args in self.WRITERS:
            self.check(self.box.run(args, env=env), 8, env["LEAFCTL_STATE_DIR"], "read-only")
        self.check(self.box.run(["serve", "--listen", "127.0.0.1:0"], env=env), 8, "read-only")
        self.look(env)
        store = {"LEAFCTL_SQLITE_PATH": os.path.join(env["LEAFCTL_STATE_DIR"], "leaf.db")}
        self.check(self.box.run(["tag", "set", "pay", "--step", "10"], env=store), 8, "read-only")
        self.look(store)

    def look(self, env, **user):
        """What only looks works."""
        for args in self.READERS:
            self.check(self.box.run(args, env=env, **user), 0)
        self.assertRegex(self.box.ok("tag", "list", env=env, **user), r"(?m)^pay +2 ")

    def test_without_the_right_to_write(self):
        self.box.open_to_others()
        user = self.box.without_rights()
        env = self.provision(self.box.state)
        os.chmod(self.box.state, 0o555)
        self.addCleanup(os.chmod, self.box.state, 0o755)
        self.look(env, **user)
        self.check(self.box.run(["tag", "add", "new"], env=env, **user), 4, self.box.state)
        # Beside a daemon too, whose latest changes are not in the file itself yet.
        os.chmod(self.box.state, 0o755)
        self.box.serve()
        self.box.ok("tag", "add", "latest")
        os.chmod(self.box.state, 0o555)
        self.assertIn("latest", self.box.ok("tag", "list", env=env, **user))

    def cut(self, disk, args, mode, already=""):
        """What `leafctl args` leaves in a file on a full disk, and what it says."""
        path = os.path.join(disk, "out")
        with open(path, "w", encoding="utf-8") as file:
            file.write(already)
        fill = os.path.join(disk, "fill")
        if os.path.exists(fill):
            os.unlink(fill)
        self.fill(disk)
        os.truncate(fill, os.path.getsize(fill) - 64 * 1024)
        with open(path, mode) as file:
            process = self.box.popen(args, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE)
            err = process.communicate(timeout=DEADLINE_S)[1].decode()
            end = file.seek(0, os.SEEK_CUR)
        check_sane(err)
        with open(path, encoding="utf-8") as file:
            out = file.read()
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("No space left on device", err)
        self.assertEqual(len(out), end, "the next program writes right behind it")
        return out, err

    @in_own_mounts()
    def test_output_is_cut_at_a_line_s_end(self):
        disk = self.disk(400)
        self.box.ok("tag", "add", "pay", "--start", "1000000000")
        for mode, already in (("w", ""), ("a", "first\n")):
            out, err = self.cut(disk, ["next", "pay", "-n", "100000"], mode, already)
            lines = out[len(already) :].splitlines(keepends=True)
            self.assertGreater(len(lines), 1000)
            self.assertEqual({len(line) for line in lines}, {11}, "each whole")
            self.assertIn("wrote %d of 100000 IDs, the rest is lost" % len(lines), err)
        out, err = self.cut(disk, ["next", "pay", "-n", "100000", "--json"], "w")
        self.assertEqual(out, "", "half a document is none")
        self.assertIn("wrote 0 of 100000 IDs", err)
        # A daemon is not asked for more than was lost.
        self.box.serve("--set", "server.max_count=5000")
        out, err = self.cut(disk, ["next", "pay", "-n", "100000"], "w")
        self.assertTrue(out.endswith("\n"))
        found = re.search(r"wrote (\d+) of (\d+) IDs, the rest is lost", err)
        self.assertEqual(int(found[1]), len(out.splitlines()))
        self.assertLess(int(found[2]), 100000)


if __name__ == "__main__":
    main()
