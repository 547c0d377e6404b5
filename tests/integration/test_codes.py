#!/usr/bin/env python3
"""Codes of IDs, and UUIDs and ULIDs of snowflake IDs: on the command line, over HTTP and on the Redis port."""

import json
import os
import re
import selectors
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import urllib.parse
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from leafctl import DEADLINE_S, LeafTest, main, poll  # noqa: E402
from resp import ReplyError, Resp  # noqa: E402
from servers import PASSWORD, MariaDb  # noqa: E402

CODE = re.compile(r"^\d{4}-\d{4}-\d{4}-\d$")


def luhn(text):
    digits = [int(c) for c in text if c.isdigit()]
    return sum(d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(reversed(digits))) % 10 == 0


class CodesTest(LeafTest):
    """A key, a tag `order`, and a configuration that both the commands and a daemon have."""

    config = ""

    def setUp(self):
        super().setUp()
        self.key = self.box.path("codes.key")
        self.box.ok("code", "keygen", self.key)
        self.configure(self.config)
        self.box.ok("tag", "add", "order", "--step", "1000")

    def configure(self, more="", key=None):
        """`more`: further lines of [codes], and other tables behind them."""
        self.box.env["LEAFCTL_CONFIG"] = self.box.write(
            "leafctl.toml", '[codes]\nkey_file = "%s"\n%s\n' % (self.key if key is None else key, more)
        )

    def serve(self, *args):
        return self.box.serve("--redis-listen", "127.0.0.1:0", *args)

    def lines(self, *args, **more):
        return self.box.ok(*args, **more).split()

    def code_of(self, tag, *ids):
        return self.lines("code", "of", tag, *[str(each) for each in ids])

    def codes(self, daemon, tag="order", count=1):
        response = daemon.get("/v1/segment/%s?form=code&count=%d" % (tag, count))
        self.assertEqual(response.status, 200, response.body)
        answer = json.loads(response.body)
        self.assertEqual(list(answer), ["codes"])
        self.assertEqual(len(answer["codes"]), count)
        return answer["codes"]

    def reveal(self, daemon, tag, code):
        return daemon.get("/v1/codes/%s/%s" % (tag, urllib.parse.quote(code, safe="")))

    def check_error(self, reply, part):
        self.assertIsInstance(reply, ReplyError)
        self.assertIn(part, reply)

    def redis(self, daemon):
        port = int(daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)").group(1))
        connection = Resp(port)
        self.addCleanup(connection.close)
        return connection


class Keys(CodesTest):
    def test_keygen(self):
        self.assertEqual(stat.S_IMODE(os.stat(self.key).st_mode), 0o600)
        with open(self.key, encoding="ascii") as file:
            self.assertRegex(file.read(), r"^[0-9a-f]{64}\n$")
        self.check(self.box.run(["code", "keygen", self.key]), 9, "codes.key")
        first, second = (self.box.ok("code", "keygen") for _ in range(2))
        self.assertRegex(first, r"^[0-9a-f]{64}\n$")
        self.assertNotEqual(first, second)

    def test_a_key_that_cannot_be_used(self):
        os.chmod(self.key, 0o644)
        self.check(self.box.run(["code", "of", "order", "1"]), 6, "chmod 600")
        self.check(self.box.run(["serve", "--listen", "127.0.0.1:0"]), 6, "chmod 600")
        pipe = self.box.path("pipe")
        os.mkfifo(pipe, 0o600)
        self.check(self.box.run(["code", "of", "order", "1", "--set", "codes.key_file=" + pipe]), 6, "not a regular file")
        os.chmod(self.key, 0o600)
        with open(self.key, "w", encoding="ascii") as file:
            file.write("00" * 31 + "\n")
        self.check(self.box.run(["code", "of", "order", "1"]), 6, "64 hexadecimal digits")
        self.configure(key="")
        self.check(self.box.run(["code", "of", "order", "1"]), 6, "codes.key_file")
        self.check(self.box.run(["next", "order", "--format", "code", "--direct"]), 6, "codes.key_file")

    def test_a_credential_of_the_service_manager(self):
        expected = self.code_of("order", 1)
        os.rename(self.key, self.box.path("codes-key"))
        self.box.write("leafctl.toml", "")
        self.box.env["CREDENTIALS_DIRECTORY"] = os.path.dirname(self.box.path("codes-key"))
        self.assertEqual(self.lines("code", "of", "order", "1"), expected)

    def test_another_key_is_refused_for_codes_alone(self):
        code = self.code_of("order", 1)[0]
        other = self.box.path("other.key")
        self.box.ok("code", "keygen", other)
        self.configure(key=other)
        for args in (["code", "of", "order", "1"], ["code", "reveal", "order", code],
                     ["next", "order", "--format", "code", "--direct"]):
            self.check(self.box.run(args), 6, "another key")
        self.check(self.box.run(["code", "check", "order"]), 10, "another key")
        self.box.ok("tag", "add", "pay", "--step", "1000")
        with self.subTest("over HTTP"):
            daemon = self.serve()
            before = daemon.ids("order")[0]
            error = self.check_v1_error(daemon.get("/v1/segment/order?form=code"), 503, "config")
            self.assertIn("another key", error["message"])
            self.check_v1_error(self.reveal(daemon, "order", code), 503, "config")
            self.check(self.box.run(["next", "order", "--format", "code"]), 6, "another key")
            # Nothing was taken, and neither the tag nor other tags' codes suffer.
            self.assertEqual(daemon.ids("order")[0], before + 1)
            self.codes(daemon, "pay")
            self.check_error(self.redis(daemon).ask("LEAF.CODE", "order"), "another key")

    def test_no_code_without_a_record(self):
        """The first code of a tag leaves once its key and shape are in the database, and not before."""
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            database.execute("CREATE TRIGGER never BEFORE INSERT ON leafctl_codes BEGIN SELECT RAISE(ABORT, 'no'); END")
        for args in (["code", "of", "order", "1"], ["next", "order", "--format", "code", "--direct"]):
            result = self.box.run(args)
            self.assertNotEqual(result.rc, 0)
            self.assertEqual(result.out, "")
        daemon = self.serve()
        response = daemon.get("/v1/segment/order?form=code")
        self.assertEqual(response.status, 503, response.body)
        # Nothing was taken for it.
        self.assertEqual(daemon.ids("order"), [1])
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            database.execute("DROP TRIGGER never")
        poll(lambda: daemon.get("/v1/segment/order?form=code").status == 200, "codes, now that they can be kept")

    def test_the_record_outlives_the_tag(self):
        code = self.code_of("order", 1)[0]
        self.box.ok("tag", "remove", "order", "--yes")
        self.assertEqual(self.lines("code", "reveal", "order", code), ["1"])
        other = self.box.path("other.key")
        self.box.ok("code", "keygen", other)
        self.box.ok("tag", "add", "order", "--step", "1000")
        self.configure(key=other)
        self.check(self.box.run(["code", "of", "order", "1"]), 6, "another key")


class CommandLine(CodesTest):
    def test_codes_and_back(self):
        codes = self.lines("next", "order", "--format", "code", "-n", "200", "--direct")
        self.assertEqual(len(set(codes)), 200)
        for code in codes:
            self.assertRegex(code, CODE)
            self.assertTrue(luhn(code), code)
        ids = self.lines("code", "reveal", "order", stdin="\n".join(codes))
        self.assertEqual(ids, [str(each) for each in range(1, 201)])
        self.assertEqual(self.lines("code", "of", "order", stdin="\n".join(ids)), codes)
        self.assertEqual(self.box.ok("next", "order"), "201\n")

    def test_json(self):
        answer = json.loads(self.box.ok("next", "order", "--format", "code", "-n", "2", "--direct", "--json"))
        self.assertEqual((list(answer), answer["tag"]), (["tag", "codes"], "order"))
        answer = json.loads(self.box.ok("code", "reveal", "order", *answer["codes"], "--json"))
        self.assertEqual([each["id"] for each in answer["ids"]], ["1", "2"])

    def test_what_people_type(self):
        code = self.code_of("order", 1002)[0]
        for typed in (code.replace("-", ""), code.replace("-", " "), " " + code + " "):
            self.assertEqual(self.lines("code", "reveal", "order", typed), ["1002"], typed)
        wrong = code[:-1] + str((int(code[-1]) + 1) % 10)
        self.check(self.box.run(["code", "reveal", "order", wrong]), 2, "check character is wrong")
        self.check(self.box.run(["code", "reveal", "order", code[:-2]]), 2, "characters")
        self.check(self.box.run(["code", "reveal", "order", code[:-1] + "O"]), 2, "check character")
        self.check(self.box.run(["code", "reveal", "order", "O" + code[1:]]), 2, "alphabet decimal")
        result = self.box.run(["code", "reveal", "order"], stdin="%s\nx\n\n%s\n" % (code, code))
        self.assertEqual((result.rc, result.out), (2, "1002\n1002\n"), result)
        self.assertIn("line 2", result.err)

    def test_unknown_tags_are_not_remembered(self):
        self.check(self.box.run(["code", "of", "oder", "1"]), 9, "unknown tag")
        self.check(self.box.run(["code", "reveal", "oder", "1234"]), 9, "has no codes")
        self.check(self.box.run(["next", "oder", "--format", "code", "--direct"]), 9, "unknown tag")
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            self.assertEqual(database.execute("SELECT count(*) FROM leafctl_codes").fetchone(), (0,))

    def test_what_makes_no_code_binds_no_tag(self):
        """The first code belongs to its key and length for ever: a command that fails before it decides nothing."""
        def rows():
            with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
                return database.execute("SELECT biz_tag, lengths FROM leafctl_codes").fetchall()

        self.configure("length = 6")
        self.check(self.box.run(["code", "of", "order", "x"]), 2, "bad ID")
        self.check(self.box.run(["code", "of", "order", "1", "x"]), 2, "bad ID")
        self.check(self.box.run(["code", "of", "order", "1", "1000000"]), 11, "has no code")
        self.assertEqual(self.box.run(["code", "of", "order"], stdin="x\n\n").rc, 2)
        self.check(self.box.run(["next", "order", "--direct", "--format", "code", "-n", "100000"]), 0)
        self.assertEqual(rows(), [("order", "6")])
        self.box.ok("tag", "add", "pay", "--step", "1000", "--start", "999999")
        self.check(self.box.run(["next", "pay", "--direct", "--format", "code", "-n", "2"]), 11, "has no code")
        self.assertEqual(rows(), [("order", "6")])
        self.configure("length = 12")
        self.assertEqual(len(self.code_of("pay", 999_999)), 1)
        self.assertEqual(sorted(rows()), [("order", "6"), ("pay", "12")])

    def test_codes_of_a_foreign_tag(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        code = self.code_of("order", 7)[0]
        self.assertNotEqual(self.code_of("pay", 7)[0], code)
        self.assertNotEqual(self.lines("code", "reveal", "pay", code), ["7"])

    def test_the_end_of_the_codes(self):
        self.configure("length = 6")
        self.assertEqual(len(set(self.code_of("order", 0, 1, 999999))), 3)
        self.check(self.box.run(["code", "of", "order", "1000000"]), 11, "ID 1000000", "10^6")
        self.box.ok("tag", "advance", "order", "--to", "999990", "--yes")
        self.assertEqual(len(self.lines("next", "order", "--format", "code", "-n", "5", "--direct")), 5)
        self.check(self.box.run(["next", "order", "--format", "code", "-n", "50", "--direct"]), 11, "has no code")
        # None was taken for it.
        self.assertEqual(self.box.ok("next", "order", "--direct"), "999995\n")
        result = self.box.run(["code", "check", "order"])
        self.assertIn("10^6", result.out)
        daemon = self.serve()
        response = daemon.get("/v1/segment/order?form=code&count=100")
        self.assertIn("has no code", self.check_v1_error(response, 503, "overflow")["message"])
        daemon.terminate()
        # A longer one goes on.
        self.configure("length = 7")
        self.assertEqual(len(self.lines("next", "order", "--format", "code", "-n", "50", "--direct")), 50)

    def test_check(self):
        answer = json.loads(self.box.ok("code", "check", "order", "--json"))
        self.assertFalse(answer["in_use"])
        self.box.ok("next", "order", "--format", "code", "-n", "999", "--direct")
        answer = json.loads(self.box.ok("code", "check", "order", "--json"))
        self.assertTrue(answer["in_use"])
        self.assertEqual((answer["lengths"], answer["domain"], answer["ids"]), ([12], "10^12", "1000"))
        self.assertAlmostEqual(answer["density"], 1e-9)
        self.assertIn("one guess in 1000000000 ", self.box.ok("code", "check", "order"))

    def test_wrong_configurations(self):
        for more, why in (("length = 5", "length 6 or more"), ("length = 25", "1..24"),
                          ('alphabet = "hex"', "decimal, base32"), ("group = -1", "0..24"),
                          ('[codes.tags."order"]\nlength = "12"', "whole number"),
                          ('[codes.tags."order"]\nlenght = 12', "lenght"),
                          ('[codes.tags."order"]\nlength = 5', "length 6 or more"),
                          ('[codes.tags."snowflake"]\nlength = 18', "19"),
                          ('[codes.tags."snowflake"]\nlength = 12\nalphabet = "base32"', "13")):
            self.configure(more)
            self.check(self.box.run(["config", "check"]), 6, why)

    def test_codes_configure_no_store(self):
        # As without any configuration, so that `next` may use the store in the state directory.
        self.assertEqual(self.box.ok("next", "order"), "1\n")


class DaysLeft(CodesTest):
    """How long the codes of a tag last, wherever the days left of a tag are shown, and of such tags alone."""

    config = '[codes.tags."invoice"]\nlength = 8'

    def setUp(self):
        super().setUp()
        for tag in ("invoice", "plain"):
            self.box.ok("tag", "add", tag, "--step", "1000")
        self.plain = [self.box.ok("tag", "show", "plain"), self.box.ok("tag", "list", "plain")]

    def use(self, tag, ids):
        """So many IDs within the last ten days."""
        self.box.ok("next", tag, "--direct", "--range", "-n", str(ids))
        with sqlite3.connect(os.path.join(self.box.state, "marks.db")) as marks:
            marks.execute("UPDATE marks SET base_at = base_at - 864000000, base_end = 1 WHERE tag = ?", (tag,))

    def listed(self, *args):
        tags = json.loads(self.box.ok("tag", "list", "--json", *args))["tags"]
        return {each["tag"]: each for each in tags}

    def test_they_have_ended(self):
        """Also where nothing was watched."""
        self.configure("length = 6\n" + self.config)
        self.code_of("order", 1)
        self.box.ok("tag", "advance", "order", "--to", "1000075", "--confirm", "order")
        self.assertEqual(self.listed()["order"]["codes_days_to_exhaustion"], 0)
        self.assertIn("codes left:   0.0 days", self.box.ok("tag", "show", "order"))
        first = self.box.ok("tag", "list", "--sort", "code_days_left", "--columns", "tag", "-o", "csv").split()[1]
        self.assertEqual(first, "order")

    def test_from_afar(self):
        self.configure("length = 6\n" + self.config)
        self.code_of("order", 1)
        self.use("order", 100_000)
        self.use("invoice", 100_000)
        before = self.listed()
        self.assertEqual(before["order"]["codes_end"], "1000000")
        self.assertAlmostEqual(before["order"]["codes_days_to_exhaustion"], 90, delta=1)
        self.assertAlmostEqual(before["invoice"]["codes_days_to_exhaustion"], 9990, delta=10)
        self.assertNotIn("codes_end", before["plain"])
        self.assertRegex(self.box.ok("tag", "show", "order"), r"\ncodes left:   \d+\.\d days; IDs from 1000000 on have no code\n")
        shown = json.loads(self.box.ok("tag", "show", "order", "--json"))
        self.assertEqual(shown["codes_end"], "1000000")
        self.assertIn("CODE DAYS", self.box.ok("tag", "list"))
        # Others are shown as ever.
        self.assertEqual([self.box.ok("tag", "show", "plain"), self.box.ok("tag", "list", "plain")], self.plain)
        order = self.box.ok("tag", "list", "--sort", "code_days_left", "--columns", "tag,code_days_left", "-o", "csv")
        self.assertRegex(order, r"^tag,code_days_left\norder,\d+\.\d\ninvoice,\d{4}\.\d\nplain,\n$")
        with self.subTest("by a daemon"):
            daemon = self.serve()
            url = "http://127.0.0.1:%d" % daemon.port
            daemon.ids("order")
            tags = {each["tag"]: each for each in daemon.status()["segment"]["tags"]}
            self.assertEqual(tags["order"]["codes_end"], "1000000")
            self.assertAlmostEqual(tags["order"]["codes_days_to_exhaustion"], 90, delta=1)
            self.assertNotIn("codes_end", tags["plain"])
            seen = self.listed("--server", url)
            self.assertAlmostEqual(seen["order"]["codes_days_to_exhaustion"], 90, delta=1)
            self.assertNotIn("codes_end", seen["plain"])
            self.assertIn("codes left:", self.box.ok("tag", "show", "order", "--server", url))
            metrics = daemon.get("/metrics").body
            self.assertRegex(metrics, r'leaf_tag_codes_exhaustion_seconds\{tag="order"\} 7\d{6}\b')
            self.assertNotIn('leaf_tag_codes_exhaustion_seconds{tag="plain"}', metrics)
            result = self.box.run(["status", "--server", url])
            self.assertIn("codes are left for", result.out + result.err)
            problems = [problem["code"] for problem in daemon.status()["problems"]]
            self.assertEqual(problems, ["codes_near_end"])

    def test_a_store_without_the_table(self):
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            database.execute("DROP TABLE IF EXISTS leafctl_codes")
        self.assertEqual(self.listed()["invoice"]["codes_end"], "100000000")
        self.configure()
        self.assertNotIn("codes_end", self.listed()["invoice"])
        self.assertEqual(self.box.ok("tag", "list", "plain"), self.plain[1])


class Shapes(CodesTest):
    config = 'alphabet = "base32"\nlength = 8\ngroup = 3\n[codes.tags."pay"]\nlength = 10\ngroup = 0\ncheck = false'

    def test_base32_and_a_tag_of_its_own(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        symbols = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
        codes = self.code_of("order", *range(200))
        for code in codes:
            self.assertRegex(code, r"^[%s]{3}-[%s]{3}-[%s]{2}[%s*~$=U]$" % ((symbols,) * 4))
        typed = [code.lower().replace("0", "o").replace("1", "l") for code in codes]
        self.assertEqual(self.lines("code", "reveal", "order", *typed), [str(each) for each in range(200)])
        self.assertRegex(self.code_of("pay", 1)[0], r"^[%s]{10}$" % symbols)
        daemon = self.serve()
        for code, number in list(zip(typed, range(200)))[:50]:
            answer = json.loads(self.reveal(daemon, "order", code).body)
            self.assertEqual(answer, {"tag": "order", "id": str(number)})

    def test_what_belongs_to_the_tag(self):
        self.code_of("order", 1)
        for more, why in (("length = 12", "alphabet"), ('alphabet = "base32"\nlength = 7', "length 8"),
                          ('alphabet = "base32"\nlength = 9\ncheck = false', "check character")):
            self.configure(more)
            self.check(self.box.run(["code", "of", "order", "1"]), 6, why)
        self.configure('alphabet = "base32"\nlength = 8\ngroup = 0')
        self.assertNotIn("-", self.code_of("order", 1)[0])


class Lengths(CodesTest):
    def test_a_longer_length_and_what_was_before(self):
        daemon = self.serve()
        short = self.codes(daemon, count=3)
        self.configure("length = 14")
        # Another process makes longer ones while the daemon runs, which reads both.
        long = self.code_of("order", 1)[0]
        self.assertEqual(len(long), len(short[0]) + 2)
        for code in (short[0], long):
            self.assertEqual(json.loads(self.reveal(daemon, "order", code).body)["id"], "1")
        # The daemon goes on with the tag's length as it has seen it, and makes no code twice.
        self.assertNotIn(self.codes(daemon)[0], short + [long])
        daemon.terminate()
        daemon = self.serve()
        longer = self.codes(daemon, count=3)
        self.assertEqual({len(code) for code in longer}, {len(long)})
        for code in short + longer:
            self.assertEqual(self.reveal(daemon, "order", code).status, 200)
        daemon.terminate()
        self.configure("length = 12")
        daemon = self.serve()
        self.check_v1_error(daemon.get("/v1/segment/order?form=code"), 503, "config")
        self.assertEqual(json.loads(self.reveal(daemon, "order", long).body)["id"], "1")
        daemon.ids("order")


class Reload(CodesTest):
    """SIGHUP takes over the key and the shapes, and judges them as a start does."""

    def reload(self, daemon, expected="reloaded: "):
        before = len(re.findall(expected, daemon.log()))
        daemon.signal(signal.SIGHUP)
        poll(lambda: len(re.findall(expected, daemon.log())) > before, "a reload; the log:\n" + daemon.log())

    def refused(self, daemon, tag, why):
        error = self.check_v1_error(daemon.get("/v1/segment/%s?form=code" % tag), 503, "config")
        self.assertIn(why, error["message"])

    def test_lengths_and_groups_under_load(self):
        for tag in ("pay", "user"):
            self.box.ok("tag", "add", tag, "--step", "1000")
        daemon = self.serve("--set", "server.threads=2")
        stop = threading.Event()
        taken = {tag: [] for tag in ("order", "pay", "user")}
        problems = []
        revealed = []

        def load(tag, count):
            try:
                while not stop.is_set():
                    codes = self.codes(daemon, tag, count)
                    answer = self.reveal(daemon, tag, codes[-1])
                    revealed.append(answer.status)
                    taken[tag].append((codes, json.loads(answer.body)["id"]))
            except Exception as error:  # pylint: disable=broad-except
                problems.append(error)
            finally:
                daemon.disconnect()

        threads = [threading.Thread(target=load, args=each) for each in
                   (("order", 1), ("order", 400), ("pay", 3), ("pay", 200), ("user", 1), ("user", 2))]
        for thread in threads:
            thread.start()
        try:
            for more in ("", "length = 13", "length = 14\ngroup = 0", "length = 14\ngroup = 2",
                         'length = 15\n[codes.tags."user"]\nlength = 16'):
                self.configure(more)
                self.reload(daemon)
                for tag in taken:
                    # The requests that began before have ended with it.
                    seen = len(taken[tag])
                    poll(lambda tag=tag, seen=seen: len(taken[tag]) > seen + 4 or problems, "codes of " + tag)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(problems, [])
        self.assertEqual(set(revealed), {200})
        for tag, answers in taken.items():
            codes = [code for batch, _ in answers for code in batch]
            self.assertEqual(len({code.replace("-", "") for code in codes}), len(codes), "a code twice")
            ids = self.lines("code", "reveal", tag, stdin="\n".join(codes))
            self.assertEqual(len(set(ids)), len(codes))
            # What the daemon said of the last one of each batch.
            last = dict(zip(codes, ids))
            self.assertEqual([last[batch[-1]] for batch, _ in answers], [told for _, told in answers])
            lengths = {len(code.replace("-", "")) for code in codes}
            self.assertLessEqual(lengths, {13, 14, 15, 16, 17})
            self.assertIn(17 if tag == "user" else 16, lengths)

    RECORDS = "SELECT biz_tag, alphabet, has_check, lengths, key_fingerprint FROM leafctl_codes"

    def test_a_record_that_the_database_has_lost(self):
        """It was restored, or a failover lost it: another node could make codes of the tag in another way."""
        daemon = self.serve()
        before = self.codes(daemon, "order", 3)
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            rows = database.execute(self.RECORDS).fetchall()
            self.assertEqual(len(rows), 1)
            database.execute("DELETE FROM leafctl_codes")
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("had lost what the codes of tag 'order' are made of")
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            self.assertEqual(database.execute(self.RECORDS).fetchall(), rows)
            database.execute("UPDATE leafctl_codes SET key_fingerprint = '0123456789abcdef'")
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("it makes no more of them")
        self.check_v1_error(daemon.get("/v1/segment/order?form=code"), 503, "config")
        self.assertEqual(len(set(before)), 3)

    def test_another_key_in_the_file(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        daemon = self.serve()
        redis = self.redis(daemon)
        code = self.codes(daemon)[0]
        old = self.box.path("old.key")
        os.rename(self.key, old)
        self.box.ok("code", "keygen", self.key)
        # Before the signal nothing changes.
        self.codes(daemon)
        self.reload(daemon)
        daemon.wait_log("codes: made with key [0-9a-f]{16} from now on")
        before = daemon.ids("order")[0]
        self.refused(daemon, "order", "another key")
        self.check_v1_error(self.reveal(daemon, "order", code), 503, "config")
        self.check_error(redis.ask("LEAF.CODE", "order"), "another key")
        self.assertEqual(daemon.ids("order")[0], before + 1)
        self.codes(daemon, "pay")
        # The old one is back.
        os.rename(old, self.key)
        self.reload(daemon)
        self.assertEqual(json.loads(self.reveal(daemon, "order", code).body)["id"], "1")
        self.assertNotEqual(self.codes(daemon)[0], code)
        self.refused(daemon, "pay", "another key")

    def test_what_belongs_to_the_tag(self):
        self.configure("length = 14")
        daemon = self.serve()
        code = self.codes(daemon)[0]
        for more, why in (('alphabet = "base32"', "alphabet"), ("length = 13", "length 14"),
                          ("length = 14\ncheck = false", "check character"),
                          ('length = 14\n[codes.tags."order"]\nlength = 12', "length 14")):
            self.configure(more)
            self.reload(daemon)
            self.refused(daemon, "order", why)
            self.assertEqual(json.loads(self.reveal(daemon, "order", code).body)["id"], "1")
            daemon.ids("order")
        self.configure('length = 12\n[codes.tags."order"]\nlength = 14')
        self.reload(daemon)
        self.codes(daemon)

    def test_off_and_on(self):
        daemon = self.serve()
        code = self.codes(daemon)[0]
        self.configure(key="")
        self.reload(daemon)
        daemon.wait_log("codes: no key any more, so there are none")
        self.refused(daemon, "order", "not configured")
        self.check_v1_error(self.reveal(daemon, "order", code), 503, "config")
        self.configure()
        self.reload(daemon)
        self.assertNotEqual(self.codes(daemon)[0], code)
        daemon.terminate()
        # One that began without any.
        self.configure(key="")
        daemon = self.serve()
        self.refused(daemon, "order", "not configured")
        self.configure()
        self.reload(daemon)
        self.assertEqual(self.reveal(daemon, "order", code).status, 200)
        self.codes(daemon)

    def test_a_file_that_cannot_be_used_changes_nothing(self):
        daemon = self.serve()
        self.codes(daemon)
        with open(self.key, encoding="ascii") as file:
            good = file.read()
        for spoil, why in ((lambda: os.chmod(self.key, 0o644), "codes.key"), (lambda: os.unlink(self.key), "codes.key"),
                           (lambda: self.box.write("codes.key", "00\n"), "64 hexadecimal digits"),
                           (lambda: self.configure("length = 5"), "length 6 or more")):
            spoil()
            self.reload(daemon, "reload failed, the old settings stay in force: .*" + why)
            self.codes(daemon)
            self.box.write("codes.key", good)
            os.chmod(self.key, 0o600)
        self.configure()
        self.reload(daemon)
        self.codes(daemon)


class Http(CodesTest):
    config = '[codes.tags."snowflake"]\nlength = 19'

    def test_batches_of_every_size(self):
        daemon = self.serve("--set", "server.max_count=5000")
        codes = []
        for count in (1, 2, 100, 102, 103, 104, 178, 179, 2500, 5000):
            codes += self.codes(daemon, count=count)
        self.assertEqual(len(set(codes)), len(codes))
        ids = self.lines("code", "reveal", "order", stdin="\n".join(codes))
        self.assertEqual(len(set(ids)), len(codes))
        self.assertEqual(ids, sorted(ids, key=int))
        self.check_v1_error(daemon.get("/v1/segment/order?form=code&count=5001"), 413)
        text = daemon.get("/v1/segment/order?form=code&count=3", {"Accept": "text/plain"})
        self.assertEqual(len(text.body.splitlines()), 3)
        self.assertEqual(daemon.get("/v1/segment/order?form=code&contiguous=1&count=3").status, 200)
        self.assertEqual(daemon.request("HEAD", "/v1/segment/order?form=code").status, 200)
        # As many as a server gives at once, and in more than one request.
        self.assertEqual(len(set(self.lines("next", "order", "--format", "code", "-n", "12000"))), 12000)

    def test_the_first_use_by_many_at_once(self):
        daemon = self.serve()
        found = []

        def take():
            found.extend(self.codes(daemon, count=5))
            daemon.disconnect()

        threads = [threading.Thread(target=take) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(found)), 100)

    def test_reveal(self):
        daemon = self.serve()
        code = self.codes(daemon)[0]
        self.assertEqual(json.loads(self.reveal(daemon, "order", code).body), {"tag": "order", "id": "1"})
        self.assertEqual(self.reveal(daemon, "order", code.replace("-", " ")).status, 200)
        wrong = code[:-1] + str((int(code[-1]) + 1) % 10)
        self.assertIn("check character", self.check_v1_error(self.reveal(daemon, "order", wrong), 400)["message"])
        self.check_v1_error(self.reveal(daemon, "oder", code), 404)
        self.check_v1_error(self.reveal(daemon, "order", "1"), 400)
        url = "http://127.0.0.1:%d" % daemon.port
        self.assertEqual(self.lines("code", "reveal", "order", code, "--server", url), ["1"])
        self.check(self.box.run(["code", "reveal", "order", wrong, "--server", url]), 2, "check character")

    def test_unknown_tags_and_forms(self):
        daemon = self.serve()
        self.check_v1_error(daemon.get("/v1/segment/oder?form=code"), 404, "not_found")
        self.check_v1_error(daemon.get("/v1/segment/order?form=hash"), 400)
        self.check_v1_error(daemon.get("/v1/segment/order?form=uuid"), 400)
        self.check_v1_error(daemon.get("/v1/segment/snowflake?form=code"), 503, "refused")

    def test_without_a_key(self):
        self.configure(key="")
        daemon = self.serve()
        self.check_v1_error(daemon.get("/v1/segment/order?form=code"), 503, "config")
        self.check_v1_error(daemon.request("GET", "/v1/codes/order/1234"), 503, "config")
        self.assertEqual(daemon.request("HEAD", "/v1/segment/order?form=code").status, 503)
        daemon.ids("order")

    def test_snowflake_codes(self):
        daemon = self.serve()
        answer = json.loads(daemon.get("/v1/snowflake?form=code&count=300").body)["codes"]
        self.assertEqual(len(set(answer)), 300)
        ids = [json.loads(self.reveal(daemon, "snowflake", code).body)["id"] for code in answer[:20]]
        self.assertEqual(ids, sorted(ids, key=int))
        self.assertEqual(json.loads(daemon.get("/v1/decode/" + ids[0]).body)["id"], ids[0])
        # The name of the private cluster is in the state directory: a command knows it, too.
        self.assertEqual(self.lines("code", "reveal", "snowflake", answer[0]), [ids[0]])
        self.assertEqual(self.code_of("snowflake", ids[0]), [answer[0]])
        self.assertEqual(len(self.lines("next", "--mode", "snowflake", "--format", "code", "-n", "3")), 3)
        self.box.ok("code", "check", "snowflake")

    def test_the_role(self):
        tokens = self.box.path("tokens")
        for name, role in (("taker", "ids"), ("reader", "read")):
            token = self.box.ok("--set", "auth.tokens_file=" + tokens, "token", "add", name, "--role", role)
            setattr(self, name, {"Authorization": "Bearer " + token.strip()})
        daemon = self.serve("--set", "auth.tokens_file=" + tokens)
        response = daemon.get("/v1/segment/order?form=code", self.taker)
        code = json.loads(response.body)["codes"][0]
        self.assertEqual(daemon.get("/v1/codes/order/" + code, self.reader).status, 200)
        self.assertEqual(daemon.get("/v1/codes/order/" + code, self.taker).status, 403)
        self.assertEqual(daemon.get("/v1/codes/order/" + code).status, 401)
        self.assertEqual(daemon.get("/v1/segment/order?form=code", self.reader).status, 403)


class Redis(CodesTest):
    config = '[codes.tags."snowflake"]\nlength = 19'

    def test_codes(self):
        daemon = self.serve()
        redis = self.redis(daemon)
        codes = redis.ask("LEAF.CODE", "order")
        for count in (2, 150, 151, 1000):
            more = redis.ask("leaf.code", "order", str(count))
            self.assertEqual(len(more), count)
            codes += more
        ids = self.lines("code", "reveal", "order", stdin="\n".join(codes))
        self.assertEqual(ids, sorted(set(ids), key=int))
        self.assertEqual(len(ids), 1304)
        redis.ask("MULTI")
        redis.ask("LEAF.CODE", "order", "2")
        redis.ask("LEAF.CODE", "snowflake")
        order, snowflake = redis.ask("EXEC")
        self.assertEqual((len(order), len(snowflake)), (2, 1))
        self.assertEqual(len(redis.ask("LEAF.CODE", "snowflake", "200")), 200)
        self.check_error(redis.ask("LEAF.CODE", "oder"), "oder")
        self.check_error(redis.ask("LEAF.CODE", "order", "0"), "count")

    def test_decode_reads_texts(self):
        daemon = self.serve()
        redis = self.redis(daemon)
        for form, size in (("uuid", 36), ("ulid", 26)):
            texts = []
            for count in (1, 150, 151, 1000):
                texts += redis.ask("LEAF.SNOWFLAKE", str(count), form)
            self.assertEqual((len(texts), {len(text) for text in texts}), (1302, {size}))
            self.assertEqual(texts, sorted(set(texts)))
        self.check_error(redis.ask("LEAF.SNOWFLAKE", "1", "code"), "none of uuid, ulid")
        self.check_error(redis.ask("LEAF.SNOWFLAKE", "1", "uuid", "x"), "wrong number of arguments")
        text = json.loads(daemon.get("/v1/snowflake?form=ulid").body)["ids"][0]
        answer = redis.ask("LEAF.DECODE", text)
        self.assertEqual(redis.ask("LEAF.DECODE", answer[1]), answer)


class Texts(LeafTest):
    """UUIDv7 and ULID."""

    def test_they_have_the_id_inside(self):
        for form, shape in (("uuidv7", r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"),
                            ("ulid", r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$")):
            texts = self.box.ok("next", "--format", form, "-n", "3000", "--direct").split()
            self.assertEqual(texts, sorted(set(texts)))
            for text in texts:
                self.assertRegex(text, shape)
            decoded = json.loads(self.box.ok("decode", "--json", stdin="\n".join(texts)))["ids"]
            self.assertEqual(len({(each["time_ms"], each["worker"], each["sequence"]) for each in decoded}), 3000)
            again = self.box.ok(
                "encode", "--format", form, "--time", str(decoded[7]["time_ms"]), "--worker",
                str(decoded[7]["worker"]), "--sequence", str(decoded[7]["sequence"]),
            ).strip()
            self.assertEqual(again, texts[7])
            if form == "uuidv7":
                # As RFC 9562 has it: version, variant, and the time in front.
                read = uuid.UUID(texts[0])
                self.assertEqual((read.version, read.variant), (7, uuid.RFC_4122))
                self.assertEqual(read.int >> 80, decoded[0]["time_ms"])

    def test_they_are_of_snowflake_ids(self):
        self.box.ok("tag", "add", "order", "--step", "1000")
        self.check(self.box.run(["next", "order", "--format", "uuidv7"]), 2, "for snowflake IDs")
        self.check(self.box.run(["next", "--format", "ulid", "--range"]), 2, "--range")
        self.check(self.box.run(["decode", "018bcfe5-6800-4fea-bcd0-000000000000"]), 2, "version 7")
        self.check(self.box.run(["decode", str(uuid.UUID(int=uuid.uuid4().int & ~(0xF << 76) | 7 << 76))]), 2,
                   "none of a snowflake ID")

    def test_over_http(self):
        daemon = self.box.serve()
        for form in ("uuid", "ulid"):
            texts = []
            for count in (1, 3, 102, 103, 1000):
                answer = json.loads(daemon.get("/v1/snowflake?form=%s&count=%d" % (form, count)).body)["ids"]
                self.assertEqual(len(answer), count)
                texts += answer
            self.assertEqual(texts, sorted(set(texts)))
            answer = json.loads(daemon.get("/v1/decode/" + texts[0]).body)
            self.assertEqual(json.loads(daemon.get("/v1/decode/" + answer["id"]).body), answer)
        self.assertEqual(len(self.box.ok("next", "--format", "uuidv7", "-n", "5").split()), 5)
        self.check_v1_error(daemon.get("/v1/decode/123?format=code"), 400)


def chi_square(counts):
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


class Statistics(LeafTest):
    """Codes of IDs that follow each other look like numbers drawn at random. The key is fixed, and so is the outcome."""

    def test_of_consecutive_codes(self):
        count = int(os.environ.get("LEAFCTL_CODES_COUNT", "20000"))
        self.box.env["LEAFCTL_CODES_KEY_FILE"] = self.box.write("key", "00112233445566778899aabbccddeeff" * 2 + "\n")
        self.box.ok("tag", "add", "order", "--step", "1000")
        ids = "\n".join(str(each) for each in range(1, count + 1))
        for length, shape in ((6, "smallest"), (12, "default")):
            with self.subTest(shape):
                tag = "order%d" % length
                self.box.ok("tag", "add", tag, "--step", "1000")
                settings = ["--set", "codes.length=%d" % length, "--set", "codes.check=false", "--set", "codes.group=0"]
                codes = self.box.ok("code", "of", tag, *settings, stdin=ids).split()
                self.judge(length, codes)

    def judge(self, length, codes):
        count, numbers = len(codes), [int(code) for code in codes]
        self.assertEqual(len(set(codes)), count)
        digits = [chi_square([sum(code[at] == str(d) for code in codes) for d in range(10)]) for at in range(length)]
        # Whether the last digit of the ID has to do with a digit of the code: 81 degrees of freedom.
        pairs = []
        for at in range(length):
            table = [[0] * 10 for _ in range(10)]
            for i, code in enumerate(codes):
                table[(i + 1) % 10][int(code[at])] += 1
            pairs.append(chi_square([cell for row in table for cell in row]))
        steps = [after - before for before, after in zip(numbers, numbers[1:])]
        neighbours = sum(abs(step) == 1 for step in steps)
        rising = sum(step > 0 for step in steps)
        longest, run, last = 1, 1, None
        for step in steps:
            run = run + 1 if (step > 0) == last else 2
            last = step > 0
            longest = max(longest, run)
        print(
            "codes: %d of length %d: digits: chi-square up to %.1f (9 degrees), with the ID's last digit up to %.1f (99); "
            "%d neighbours; %.4f rise; longest run %d"
            % (count, length, max(digits), max(pairs), neighbours, rising / len(steps), longest),
            file=sys.stderr,
        )
        # One in 10^6 of random draws is above.
        self.assertLess(max(digits), 45)
        self.assertLess(max(pairs), 180)
        # Of a domain of 10^6 each step is 1 or -1 with a chance of 2 in 10^6.
        self.assertLess(neighbours, 10 + 2 * 5 * count / 10**length)
        self.assertAlmostEqual(rising / len(steps), 0.5, delta=5 / count**0.5)
        self.assertLess(longest, 16)


class OnMariaDb(LeafTest):
    """The record in a database that nodes share."""

    @classmethod
    def setUpClass(cls):
        cls.server = MariaDb()

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def setUp(self):
        super().setUp()
        self.database = self.id().rsplit(".", 1)[1]
        self.server.sql("CREATE DATABASE %s CHARACTER SET utf8mb4" % self.database)
        self.addCleanup(self.server.sql, "DROP DATABASE %s" % self.database)
        self.password = self.box.write("password", PASSWORD + "\n")
        for name in ("one", "other"):
            self.box.ok("code", "keygen", self.box.path(name + ".key"))
        self.configure()
        self.box.ok("db", "init")
        self.box.ok("tag", "add", "order", "--step", "1000")

    def configure(self, key="one", length=12):
        self.box.env["LEAFCTL_CONFIG"] = self.box.write(
            "leafctl.toml",
            """[segment]
store = "mysql"
[snowflake]
enabled = false
[codes]
key_file = "%s"
length = %d
[mysql]
endpoints = ["127.0.0.1:%d"]
database = "%s"
user = "leaf"
password_file = "%s"
connect_timeout = "60s"
query_timeout = "60s"
"""
            % (self.box.path(key + ".key"), length, self.server.port, self.database, self.password),
        )

    def test_many_first_uses(self):
        processes = [self.box.popen(["code", "of", "order", "7"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for _ in range(8)]
        results = [process.communicate() for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 8, results)
        self.assertEqual(len({out for out, _ in results}), 1)

    def test_two_keys_at_once_one_wins(self):
        processes = []
        for name in ("one", "other") * 4:
            processes.append((name, self.box.popen(
                ["--set", "codes.key_file=" + self.box.path(name + ".key"), "code", "of", "order", "7"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
        results = [(name, process.communicate(), process.returncode) for name, process in processes]
        self.assertEqual(len({name for name, _, code in results if code == 0}), 1, results)
        self.assertEqual({code for _, _, code in results}, {0, 6}, results)

    def test_readers_take_no_place_of_a_caller_that_wants_codes(self):
        daemon = self.box.serve("--set", "server.threads=1", "--set", "server.request_timeout=60s")
        daemon.ids("order")
        self.server.freeze()
        self.addCleanup(self.server.thaw)

        def ask(target):
            connection = daemon.raw()
            self.addCleanup(connection.close)
            connection.send("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
            return connection

        # As many as may wait, and one more; each asks for a tag of its own.
        readers = {each.socket: each for each in [ask("/v1/codes/tag%d/1" % i) for i in range(1001)]}
        with selectors.DefaultSelector() as selector:
            for each in readers:
                selector.register(each, selectors.EVENT_READ)
            answered = selector.select(DEADLINE_S)
        refused = readers[answered[0][0].fileobj].response()
        self.assertIn("too many requests wait for the codes of their tags", refused.body)
        caller = ask("/v1/segment/order?form=code")
        # Answered by the same thread, after the caller's request came to it.
        self.assertEqual(daemon.get("/health/live").status, 200)
        self.server.thaw()
        self.assertIn("codes", json.loads(caller.response().body))

    def test_keys_lengths_and_a_missing_table(self):
        code = self.box.ok("code", "of", "order", "7").strip()
        self.configure("other")
        self.check(self.box.run(["code", "of", "order", "7"]), 6, "another key")
        self.configure(length=14)
        self.box.ok("code", "of", "order", "7")
        self.assertEqual(self.server.sql("SELECT lengths FROM leafctl_codes", self.database), [["12,14"]])
        self.configure()
        self.check(self.box.run(["code", "of", "order", "7"]), 6, "length 14")
        self.assertEqual(self.box.ok("code", "reveal", "order", code), "7\n")
        # Tags are told apart byte by byte, as in leaf_alloc.
        self.box.ok("tag", "add", "Order", "--step", "1000")
        self.box.ok("code", "of", "Order", "7")
        self.server.sql("DROP TABLE leafctl_codes", self.database)
        self.check(self.box.run(["code", "of", "order", "7"]), 6, "leafctl db init")
        found = self.box.run(["db", "check"])
        self.check(found, 10)
        self.assertIn("problem: table leafctl_codes is missing", found.out)
        self.assertIn("hint: leafctl db init", found.out)
        self.assertIn("leafctl_codes", self.box.run(["doctor"]).out)
        # Where there are no codes, none is missed.
        for args in (["db", "check"], ["doctor"]):
            self.assertNotIn("leafctl_codes", self.box.run(["--set", "codes.key_file=", *args]).out)
        daemon = self.box.serve()
        self.check_v1_error(daemon.get("/v1/segment/order?form=code"), 503, "config")
        daemon.ids("order")
        # The daemon makes them again once it is there.
        self.box.ok("db", "init")
        self.assertNotIn("leafctl_codes", self.box.run(["db", "check"]).out)
        poll(lambda: daemon.get("/v1/segment/order?form=code").status == 200, "codes again")


if __name__ == "__main__":
    main()
