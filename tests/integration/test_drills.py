#!/usr/bin/env python3
"""leafctl(7), "Backups and restores", done as it says, on real servers: each sentence of the page has a function here
that does it, and its commands are run as they stand there. A sentence without a function fails, and so does a function
without a sentence.

An operator that follows the page repeats no ID; each mistake costs what the page says.
"""

import concurrent.futures
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import ClusterTest  # noqa: E402
from fake_clock import FakeClock  # noqa: E402
from fault_matrix import NO_ANSWER, Row, go_on  # noqa: E402
from leafctl import ROOT, main, poll  # noqa: E402
from manuals import compare, sentences_of  # noqa: E402
from restores import PATIENCE_S, Restores  # noqa: E402
from servers import MariaDb  # noqa: E402
from zookeeper import ZooKeeper  # noqa: E402

with open(os.path.join(ROOT, "man", "leafctl.7"), encoding="utf-8") as man_page:
    PAGE = man_page.read()
SECTION = "Backups and restores"
SENTENCES = sentences_of(PAGE, SECTION)

# The step of "pay", from which IDs are taken after the backup. Small, so that it is granted often.
STEP = 100
# The step of "calm", of which no range is granted after the backup: the one from before lasts.
CALM_STEP = 100_000_000
# Far more than a node holds in reserve, which is 16 steps where a grant takes long: most of it is granted after the
# backup, and a node that goes on from the backup does not get as far.
TAKEN = 60 * STEP
# For tests that are not about the length of the wait.
SHORT = ("--set", "segment.claim_watch=1s")
NO_WAIT = ("--set", "segment.claim_watch=0s")
# Errors that a request may get while the stores are exchanged, and until the page's last command.
MEANWHILE = (NO_ANSWER, "frozen", "exhausted", "unavailable", "outcome_unknown", "config", "not_found", "draining")

DOERS = {}  # sentence → the function's name


def does(*sentences):
    """The function does what these sentences of the page say, and fails if one of them is not there."""

    def bind(function):
        for sentence in sentences:
            if sentence in DOERS:
                raise AssertionError("%s and %s do the same: %s" % (DOERS[sentence], function.__qualname__, sentence))
            DOERS[sentence] = function.__qualname__

        @functools.wraps(function)
        def checked(self, *args, **more):
            for sentence in sentences:
                self.assertIn(sentence, [each.text for each in SENTENCES], "leafctl(7) no longer says so")
            return function(self, *args, **more)

        return checked

    return bind


def undone(page):
    """Sentences of the page without a function, and the reverse."""
    said = [sentence.text for sentence in sentences_of(page, SECTION)]
    return compare(SECTION, ("leafctl(7)", "the tests"), said, DOERS)


def setUpModule():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        database = pool.submit(MariaDb)
        ClusterTest.zookeeper = ZooKeeper()
        ClusterTest.databases = (database.result(),)


def tearDownModule():
    for server in (ClusterTest.zookeeper, *ClusterTest.databases):
        server.close()


class DrillTest(Restores, ClusterTest):
    def setUp(self):
        super().setUp()
        # leafctl's own tables.
        self.box.ok("db", "init")
        self.insert("pay", step=STEP)
        self.insert("calm", step=CALM_STEP)

    def configure(self, box, **settings):
        super().configure(box, **settings)
        # As users have it.
        box.env["LEAFCTL_SNOWFLAKE_CLAIM_WATCH"] = "auto"

    def nodes(self, count, *args):
        daemons = [self.node().serve(*args, ready=False) for _ in range(count)]
        for daemon in daemons:
            daemon.wait_ready(PATIENCE_S)
        return daemons

    def again(self, daemon, *args, **more):
        """A daemon on the same state directory."""
        return daemon.box.serve(*args, ready=False, **more)

    @does("Back up the database, with leafctl's own tables, and, if you like, ZooKeeper.")
    def back_up(self):
        super().back_up()
        self.assertIn(b"CREATE TABLE `leafctl_", self.dump)
        self.assertIn(b"CREATE TABLE `leaf_alloc`", self.dump)

    def take(self, daemon, count, tag="pay"):
        """IDs, as soon as it issues them."""
        ids = []

        def more():
            response = daemon.v1(tag, min(STEP, count - len(ids)))
            if response.status == 200:
                ids.extend(int(text) for text in json.loads(response.body)["ids"])
            return len(ids) >= count

        poll(more, "%d IDs of %s" % (count, tag), PATIENCE_S)
        return ids

    def wait_open(self, *daemons):
        """Waits until all that was granted is known again, and ranges are claimed."""
        for daemon in daemons:
            poll(lambda daemon=daemon: self.cluster(daemon)["state"] == "open", "it claims ranges", PATIENCE_S)

    def wait_said_or_open(self, daemon, text):
        """With SHORT: where ZooKeeper is slow, the second that it has to wait is over before it could say so."""
        poll(lambda: text in daemon.log() or self.cluster(daemon)["state"] == "open", "it says: " + text, PATIENCE_S)

    def end_knowing(self, daemon):
        """Ends the daemon, which says so in ZooKeeper after the backup: the backup does not know that it left."""
        # The backup has cut its connection, without which it cannot say that it leaves.
        before = self.cluster(daemon)["heartbeats"]
        poll(lambda: self.cluster(daemon)["heartbeats"] > before, "it is in touch again", PATIENCE_S)
        self.assertEqual(daemon.terminate(), 0)

    def wait_found_out(self, *daemons):
        """Waits until each daemon knows that ZooKeeper went back, for the first time in this test."""
        for daemon in daemons:
            poll(lambda daemon=daemon: self.cluster(daemon)["incarnation"] > 1, "it has found out", PATIENCE_S)

    def command(self, text, *more):
        """A command of the page; `more` is what the page leaves to the reader."""
        words = shlex.split(text)
        self.assertEqual(words[0], "leafctl")
        # A machine may take its time; how long a command waits for a store is no part of a drill.
        return self.box.run([*words[1:], *more, "--timeout", "60s"])

    def commands(self):
        """The page's two commands: the dry run, and the recovery."""
        ((look, do),) = [sentence.commands for sentence in SENTENCES if sentence.commands]
        return look, do

    def recover(self, *more):
        """Runs both commands. Returns what the first one printed."""
        look, do = self.commands()
        more = (*more, *SHORT)
        plan = self.command(look, *more)
        self.assertEqual(plan.rc, 0, plan)
        name = re.search(r"would recover cluster '(.+)':", plan.out)
        if not name:
            self.assertIn("nothing to recover", plan.out)
            return plan.out
        done = self.command(do.replace("CLUSTER", name.group(1)), *more)
        self.assertEqual(done.rc, 0, done)
        # Nodes wait for a while for others that may know more. That may end between the two commands, and where nothing
        # else was to be done, nothing is left.
        if plan.out.rstrip().endswith("would recover cluster '%s': move 0 tags up" % self.name) and "nothing to recover" in done.out:
            return plan.out
        self.assertIn("recovered cluster '%s'" % self.name, done.out)
        return plan.out

    @does("What mistakes cost:")
    def issued_twice(self, later, since, used):
        """IDs that were granted since the backup and are issued again. Those from before it never are."""
        self.assertEqual(set(later) & set(used), set())
        return set(later) & set(since)

    def check_going_on(self, daemons, used):
        """All nodes issue, and nothing that was issued before."""
        later = []
        for daemon in daemons:
            for tag in ("pay", "calm"):
                ids = self.take(daemon, 3 * STEP, tag)
                if tag == "pay":
                    later += ids
        self.check_distinct(later)
        self.assertEqual(set(later) & set(used), set(), "IDs repeat")


# ---- the drill ----------------------------------------------------------------------------------------------------


class Drill(DrillTest):
    """Three nodes under load, as users have them. One is down since before the backup, one since after it, one runs."""

    tags = ("pay", "calm")

    def configure(self, box, **settings):
        super().configure(box, **settings)
        # As users have it. How long a node takes to find out depends on it.
        box.env["LEAFCTL_ZOOKEEPER_SESSION_TIMEOUT"] = "6s"

    @does("To bring back an older database, ZooKeeper, or both:")
    def drill(self, *restored):
        self.restored = restored
        began = time.monotonic()
        # What a node that is new waits for is behind them.
        self.daemons = []
        for daemon in self.nodes(3, *NO_WAIT):
            self.assertEqual(daemon.terminate(), 0)
            self.daemons.append(self.again(daemon))
        for daemon in self.daemons:
            daemon.wait_ready(PATIENCE_S)
        evidence = ["daemons left running", *restored, "daemons started", "IDs meanwhile"]
        self.row = row = Row("drill", "restored: " + ", ".join(restored), evidence)
        self.addCleanup(row.stop_customers)
        # One for each tag, so that waiting for one tag does not delay the others.
        self.customers = [
            {tag: row.customer(daemon, (tag,), pause=0.01, name="node %d" % number) for tag in self.tags}
            for number, daemon in enumerate(self.daemons, 1)
        ]
        all_customers = [customer for customers in self.customers for customer in customers.values()]
        go_on(all_customers, 2, PATIENCE_S)
        self.down = []
        with row.allowing(*MEANWHILE):
            self.end(0)
            self.back_up()
            go_on(all_customers[len(self.tags) :], 2, PATIENCE_S)
            self.beat_again(*self.daemons[1:], times=1)
            seen = row.ids
            poll(lambda: row.ids > seen + 20 * STEP, "more is granted than the backup knows of", PATIENCE_S)
            self.end(2)
            for sentence in SENTENCES:
                if sentence.list == "enum":
                    self.step(sentence)
            done = time.monotonic()
            go_on(all_customers, 2, PATIENCE_S)
            service_s = time.monotonic() - done
        # From here on nothing is refused, and all nodes are granted more.
        pays = [customers["pay"] for customers in self.customers]
        taken = [customer.taken["pay"] for customer in pays]
        poll(
            lambda: all(customer.taken["pay"] > before + 5 * STEP for customer, before in zip(pays, taken)),
            "all nodes are granted more", PATIENCE_S,
        )  # fmt: skip
        self.wait_open(*self.daemons)
        for daemon in self.daemons:
            states = {tag["tag"]: tag["state"] for tag in daemon.status()["segment"]["tags"]}
            self.assertEqual(set(states), set(self.tags))
            self.assertNotIn("frozen", states.values())
        row.stop_customers()
        self.assertEqual(row.faults(), [])
        # What is in reserve does not need ZooKeeper.
        refused = [text for text in row.allowed_texts() if text.startswith("node 2: calm:")]
        if "database" not in restored:
            self.assertEqual(refused, [])
        figures = (row.ids, row.duplicates, time.monotonic() - began, service_s, row.evidence)
        print("%d IDs, %d twice, %.1f s, service %.2f s after the last command; %s" % figures)

    def serve_with(self, index, daemon):
        for customer in self.customers[index].values():
            customer.daemon = daemon

    def end(self, index):
        self.serve_with(index, None)
        self.daemons[index].kill()
        self.down.append(index)

    def step(self, sentence):
        """What the page says here."""
        self.assertIn(sentence.text, DOERS)
        getattr(self, DOERS[sentence.text].rpartition(".")[2])(*sentence.commands)

    @does("Leave running daemons running, and state directories where they are.")
    def leave_them(self):
        self.processes = {daemon.process.pid for daemon in self.daemons if daemon.running()}
        self.assertEqual(len(self.processes), 1)
        for daemon in self.daemons:
            self.assertTrue(os.listdir(daemon.box.state))

    @does("Restore ZooKeeper, if it is to be restored, and then the database.")
    def restore_what_is_to_be_restored(self):
        if "ZooKeeper" in self.restored:
            self.restore_zookeeper()
        if "database" in self.restored:
            before = self.max_id("pay")
            self.restore_database()
            self.row.saw("database", self.max_id("pay") < before)
        self.beats = self.cluster(self.daemons[1])["heartbeats"]
        self.calm = self.customers[1]["calm"].taken["calm"]

    @does("Start the daemons that are down, first those that ran last.")
    def start_them(self):
        for index in reversed(self.down):
            self.daemons[index] = self.again(self.daemons[index])
            self.serve_with(index, self.daemons[index])
            self.row.saw("daemons started")

    @does("Wait for half a minute: daemons find out what was lost, and report again what they were granted.")
    def wait(self):
        """Until it is so, which on a busy machine takes as long as it takes."""
        running = self.daemons[1]
        self.row.saw("daemons left running", running.process.pid in self.processes)
        if "ZooKeeper" in self.restored:
            self.wait_found_out(*self.daemons)
            self.row.saw("ZooKeeper")
        else:
            poll(lambda: self.cluster(running)["heartbeats"] > self.beats, "it is in touch", PATIENCE_S)
        for daemon in self.daemons:
            poll(lambda daemon=daemon: self.nobody_is_missing(daemon), "all that was granted is known again", PATIENCE_S)
        if "database" in self.restored:
            for daemon in self.daemons:
                self.wait_frozen(daemon, "pay")
        # What is not behind is issued meanwhile.
        poll(lambda: self.customers[1]["calm"].taken["calm"] > self.calm, "calm is issued", PATIENCE_S)
        self.row.saw("IDs meanwhile", self.customers[1]["calm"].taken["calm"] - self.calm)

    def nobody_is_missing(self, daemon):
        cluster = self.cluster(daemon)
        # Nodes that no other node knows of may show up until it is open.
        return cluster["state"] in ("open", "watching") or "no other node knows of" in cluster.get("why", "")

    @does("Look at what is to be done, and do it:")
    def look_and_do(self, look, do):
        self.assertEqual((look, do), self.commands())
        plan = self.recover()
        if "database" in self.restored:
            self.assertRegex(plan, r"tag 'pay': the table says max_id \d+, .* move it to \d+")
            self.assertIn("move 1 tag up", plan)
        self.assertNotIn("'calm'", plan)


class DrillOfOne(Drill):
    def test_database_alone(self):
        self.drill("database")

    def test_zookeeper_alone(self):
        self.drill("ZooKeeper")


class DrillOfBoth(Drill):
    def test_both(self):
        self.drill("ZooKeeper", "database")


# ---- what is said beside the steps, and what mistakes cost --------------------------------------------------------


class StateDirectories(DrillTest):
    # The witness and the other node still know what it knew.
    @does("A node that has lost its state directory starts with an empty one.")
    def test_a_lost_directory_begins_anew(self):
        kept, lost = self.nodes(2, *SHORT)
        used = self.take(kept, STEP) + self.take(lost, STEP)
        self.back_up()
        used += self.take(lost, TAKEN)
        lost.kill()
        shutil.rmtree(lost.box.state)
        self.restore_database()
        lost = self.again(lost, *SHORT)
        self.wait_said_or_open(lost, "this node is new")
        self.wait_frozen(lost, "pay")
        self.recover()
        self.check_going_on([kept, lost], used)

    # With both stores restored, no other node knows of those grants.
    @does("Do not restore a state directory from a backup: its node then forgets what it was granted since.")
    def test_an_older_directory_forgets(self):
        other, forgetful = self.nodes(2, *SHORT)
        used = self.take(other, STEP) + self.take(forgetful, STEP)
        self.assertEqual(forgetful.terminate(), 0)
        older = self.box.path("older")
        shutil.copytree(forgetful.box.state, older)
        self.back_up()
        self.end_knowing(other)
        forgetful = self.again(forgetful, *SHORT)
        since = self.take(forgetful, TAKEN)
        forgetful.kill()
        shutil.rmtree(forgetful.box.state)
        shutil.copytree(older, forgetful.box.state)
        self.restore()
        daemons = [self.again(daemon, *SHORT) for daemon in (forgetful, other)]
        # The other one asks it, and it knows of nothing.
        self.wait_found_out(*daemons)
        self.wait_open(*daemons)
        self.assertIn("nothing to recover", self.recover())
        later = self.take(daemons[1], 2 * TAKEN)
        self.assertEqual(self.issued_twice(later, since, used), set(since))

    @does(
        "To delete state directories: what only they knew is forgotten.",
        "With both stores restored, IDs that were granted since the backup are then issued twice.",
    )
    def test_deleted_directories(self):
        daemons = self.nodes(2, *SHORT)
        used = [value for daemon in daemons for value in self.take(daemon, STEP)]
        for daemon in daemons:
            daemon.kill()
        self.back_up()
        daemons = [self.again(daemon, *SHORT) for daemon in daemons]
        since = [value for daemon in daemons for value in self.take(daemon, TAKEN)]
        for daemon in daemons:
            daemon.kill()
            shutil.rmtree(daemon.box.state)
        self.restore()
        daemons = [self.again(daemon, *SHORT) for daemon in daemons]
        self.assertIn("nothing to recover", self.recover())
        later = self.take(daemons[0], 3 * TAKEN)
        self.assertEqual(self.issued_twice(later, since, used), set(since))


class NodesThatAreGone(DrillTest):
    @does(
        "To start a node that was down since before the backup, and the others more than 22 seconds later: "
        "IDs that the others were granted since the backup may be issued twice."
    )
    def test_the_oldest_first(self):
        (other,) = self.nodes(1, *NO_WAIT)
        used = self.take(other, STEP)
        (old,) = self.nodes(1, *NO_WAIT)  # and knows that there is another one
        used += self.take(old, STEP)
        old.kill()
        self.back_up()
        since = self.take(other, TAKEN)
        self.end_knowing(other)
        self.restore()
        # By its clock it was away for a minute.
        clock = FakeClock(self.box.path("faketime"))
        clock.set_offset(60)
        old = self.again(old, env=clock.env)
        old.wait_log("this node was cut off, and waits for other nodes to report .*, for 22s at most")
        old.kill()
        old = self.again(old, *SHORT, env=clock.env)
        self.wait_said_or_open(old, "this node was cut off, and waits for other nodes")
        wrong = self.take(old, TAKEN // 4)
        self.assertGreater(len(self.issued_twice(wrong, since, used)), 0)
        # Once the other one is there, that is over.
        other = self.again(other, *SHORT)
        self.wait_found_out(old, other)
        self.wait_open(old, other)
        for daemon in (old, other):
            self.wait_frozen(daemon, "pay")
        self.recover()
        self.check_going_on([old, other], used + since + wrong)

    @does("To give --beyond too low a number: what a lost node was granted above it is issued twice.")
    def test_beyond_too_low(self):
        kept, lost = self.nodes(2, *SHORT)
        used = self.take(kept, STEP) + self.take(lost, STEP)
        self.back_up()
        self.end_knowing(kept)  # while it runs, it remembers what others are granted
        since = self.take(lost, TAKEN)
        lost.kill()
        shutil.rmtree(lost.box.state)
        self.restore()
        kept = self.again(kept, *SHORT)
        (missing,) = poll(lambda: self.cluster(kept).get("missing"), "it waits for the other", PATIENCE_S)
        look, _ = self.commands()
        self.check(self.command(look), 11, missing.split()[0], "--beyond")
        beyond = TAKEN // 3
        plan = self.recover("--beyond", str(beyond))
        self.assertIn("allowing for %d IDs of each tag" % beyond, plan)
        moved = re.search(r"tag 'pay': the table says max_id (\d+), .* says (\d+); move it to (\d+)", plan)
        max_id, known, to = map(int, moved.groups())
        self.assertEqual(to, max(max_id, known) + beyond)
        later = self.take(kept, 2 * TAKEN)
        twice = self.issued_twice(later, since, used)
        self.assertGreater(len(twice), 0)
        self.assertEqual(twice, {value for value in since if value >= to})


    def test_beyond_of_a_removed_tag(self):
        """Its row is gone when the command is given: added again, it starts above what was allowed for."""
        kept, lost = self.nodes(2, *SHORT)
        used = self.take(kept, STEP) + self.take(lost, STEP)
        self.back_up()
        self.end_knowing(kept)
        since = self.take(lost, TAKEN)
        lost.kill()
        shutil.rmtree(lost.box.state)
        self.restore()
        self.check(self.command("leafctl tag remove pay --confirm pay"), 0)
        kept = self.again(kept, *SHORT)
        poll(lambda: self.cluster(kept).get("missing"), "it waits for the other", PATIENCE_S)
        plan = self.recover("--beyond", str(2 * TAKEN))
        moved = re.search(
            r"tag 'pay': not in the table \(removed at (\d+)\), .* says (\d+); move its witness to (\d+)", plan
        )
        removed, known, to = map(int, moved.groups())
        self.assertEqual(to, max(removed, known) + 2 * TAKEN)
        added = self.command("leafctl tag add pay --json", "--step", str(STEP))
        self.assertEqual(added.rc, 0, added)
        self.assertGreaterEqual(int(json.loads(added.out)["max_id"]), to)
        self.assertEqual(self.issued_twice(self.take(kept, 2 * TAKEN), since, used), set())


class Stores(DrillTest):
    def take_one_each(self, daemons, tag):
        """One ID of each, so that no further range is granted yet, and the next backup is not behind. Later on each of
        them needs grants."""
        return [value for daemon in daemons for value in self.take(daemon, 1, tag)]

    @does("Not to run cluster recover: tags that are behind stay frozen.", "The others go on.")
    def test_without_the_command(self):
        daemons = self.nodes(2, *SHORT)
        self.insert("ship", step=STEP)
        used = [value for daemon in daemons for value in self.take(daemon, STEP)]
        ship = self.take_one_each(daemons, "ship")
        self.back_up()
        used += [value for daemon in daemons for value in self.take(daemon, TAKEN)]
        self.beat_again(*daemons, times=1)
        self.restore()
        self.wait_found_out(*daemons)
        self.wait_open(*daemons)
        for daemon in daemons:
            self.wait_frozen(daemon, "pay")
        # The wait is over, daemons look again and again, and one is started anew.
        self.assertEqual(daemons[1].terminate(), 0)
        daemons[1] = self.again(daemons[1], *SHORT)
        self.wait_open(*daemons)
        self.wait_frozen(daemons[1], "pay")
        self.beat_again(*daemons, times=1)
        for daemon in daemons:
            self.check_v1_error(daemon.v1("pay"), 409, "frozen")
            ship += self.take(daemon, 5 * STEP, "ship")
            self.check_v1_error(daemon.v1("pay"), 409, "frozen")
        self.check_distinct(ship)
        self.assertIn("move 1 tag up", self.recover())
        self.check_going_on(daemons, used)

    @does("To restore the database alone: nothing but frozen tags.")
    def test_database_alone(self):
        daemons = self.nodes(2, *SHORT)
        self.insert("ship", step=STEP)
        used = [value for daemon in daemons for value in self.take(daemon, STEP)]
        ship = self.take_one_each(daemons, "ship")
        self.back_up()
        used += [value for daemon in daemons for value in self.take(daemon, TAKEN)]
        self.restore_database()
        for daemon in daemons:
            self.wait_frozen(daemon, "pay")
        # No node waits for another, and other tags are granted more.
        for daemon in daemons:
            ship += self.take(daemon, 5 * STEP, "ship")
            self.check_v1_error(daemon.v1("pay"), 409, "frozen")
            self.assertEqual(self.cluster(daemon)["incarnation"], 1)
        self.check_distinct(ship)
        self.assertIn("move 1 tag up", self.recover())
        self.check_going_on(daemons, used)

    # Neither store knows of it, and all daemons were down.
    @does("A tag that has become strict since the backup stays strict: state directories remember it.")
    def test_the_order_of_a_tag(self):
        daemons = self.nodes(2, *SHORT)
        used = [value for daemon in daemons for value in self.take(daemon, STEP)]
        self.back_up()
        used += [value for daemon in daemons for value in self.take(daemon, TAKEN)]
        for tag in ("pay", "calm"):
            self.box.ok("tag", "set", tag, "--order", "strict", "--timeout", "60s")
        self.beat_again(*daemons, times=1)
        used += [value for daemon in daemons for value in self.take(daemon, 1)]
        for daemon in daemons:
            self.assertEqual(daemon.terminate(), 0)
        self.restore()
        for tag in ("pay", "calm"):
            self.assertEqual(json.loads(self.box.ok("tag", "show", tag, "--json"))["order"], "trend")
        daemons = [self.again(daemon, *SHORT) for daemon in daemons]
        self.wait_found_out(*daemons)
        self.wait_open(*daemons)
        self.assertRegex(self.recover(), "move [12] tags? up")
        for tag in ("pay", "calm"):
            ids = [value for _ in range(5) for daemon in daemons for value in self.take(daemon, 1, tag)]
            self.assertEqual(ids, sorted(set(ids)), "what one node was granted is above what the other has issued")
            if tag == "pay":
                self.assertEqual(set(ids) & set(used), set())
            for daemon in daemons:
                status = daemon.tag_status(tag)
                self.assertEqual((status["order"], status["reserve"]), ("strict", 0))
            self.assertEqual(json.loads(self.box.ok("tag", "show", tag, "--json"))["order"], "strict")
            self.assertIn("'%s' is strict" % tag, "".join(daemon.log() for daemon in daemons))

    @does("To restore ZooKeeper alone: grants wait for about half a minute, and go on by themselves.")
    def test_zookeeper_alone(self):
        daemons = self.nodes(2, *SHORT)
        used = [value for daemon in daemons for value in self.take(daemon, STEP)]
        self.back_up()
        used += [value for daemon in daemons for value in self.take(daemon, TAKEN)]
        self.beat_again(*daemons, times=1)
        self.restore_zookeeper()
        self.wait_found_out(*daemons)
        self.wait_open(*daemons)
        for daemon in daemons:
            self.assertRegex(daemon.log(), "no range is claimed from .*: ZooKeeper lost data")
        self.check_going_on(daemons, used)
        self.assertIn("nothing to recover", self.recover())
        # With what users have, that is 22 s, after the 5 s of a heartbeat.
        newcomer = self.node().serve(ready=False)
        newcomer.wait_log("this node is new, and waits for 22s before its first claim")


# ---- the page and the tests ---------------------------------------------------------------------------------------


class Words(unittest.TestCase):
    def test_each_class_has_its_part(self):
        cases = [value for value in globals().values() if isinstance(value, type) and issubclass(value, unittest.TestCase)]
        found = [case.__name__ for case in cases if unittest.defaultTestLoader.getTestCaseNames(case)]
        self.assertEqual(sorted(found), sorted(name for part in PARTS for name in part))

    def test_each_sentence_is_done(self):
        self.assertEqual(undone(PAGE), [])
        texts = [sentence.text for sentence in SENTENCES]
        self.assertEqual(len(texts), len(set(texts)))
        self.assertEqual([sentence.list for sentence in SENTENCES if sentence.commands], ["enum"])

    def test_a_page_that_says_something_else(self):
        changes = {
            "Leave running daemons running": "Stop all daemons",
            "nothing but frozen tags": "nothing",
            ".Fl -beyond\n": ".Fl -behind\n",
            ".It\nNot to run\n.Ql cluster recover :\ntags that are behind stay frozen.\n": ".It\n",
            "The others go on.": "The others go on.\nSo does the sun.",
        }
        for old, new in changes.items():
            with self.subTest(old):
                self.assertTrue(old in PAGE, "it does not say so anyway")
                self.assertNotEqual(undone(PAGE.replace(old, new)), [])
        self.assertEqual(len(undone(PAGE.replace("Ss " + SECTION, "Ss Another"))), len(DOERS))

    def test_how_a_page_reads(self):
        text = (
            ".Sh A\n.Ss B\nOne, with\n.Ql a b ,\nand\n.Fl -c .\nTwo.\n.Pp\n.Bl -enum\n.It\nThree:\n.Pp\n.Dl x --y\n.Dl z\n"
            ".It\nFour.\n.El\nFive:\n.Ss C\nSix.\n"
        )
        self.assertEqual(
            [tuple(sentence) for sentence in sentences_of(text, "B")],
            [
                ("", "One, with a b, and --c.", []),
                ("", "Two.", []),
                ("enum", "Three:", ["x --y", "z"]),
                ("enum", "Four.", []),
                ("", "Five:", []),
            ],
        )


# Nearly all of it is waiting, so these run beside each other, each part with servers of its own.
PARTS = (("DrillOfBoth", "Words"), ("DrillOfOne",), ("StateDirectories", "NodesThatAreGone"), ("Stores",))


def run_part(part):
    return subprocess.run(
        [sys.executable, os.path.abspath(__file__), *part],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def run_all():
    failed = False
    with concurrent.futures.ThreadPoolExecutor(len(PARTS)) as pool:
        for done in pool.map(run_part, PARTS):
            print(done.stdout.decode("utf-8", "replace"), flush=True)
            failed = failed or done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(run_all())
    main()
