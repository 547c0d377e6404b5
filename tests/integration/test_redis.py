#!/usr/bin/env python3
"""The Redis port as clients see it: byte by byte, and through the clients that people use."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.path.join(HERE, "..", "support", "redis_clients")
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from leafctl import DEADLINE_S, LeafTest, Sandbox, main, poll, scaled  # noqa: E402
from resp import ReplyError, Resp, redis_port  # noqa: E402
from servers import suspend  # noqa: E402

PASS_SOCKETS = os.path.join(HERE, "..", "support", "pass_sockets.py")


def snippets(port, names):
    """Those of leafctl-redis(7) with these names, with their port replaced."""
    with open(os.path.join(HERE, "..", "..", "man", "leafctl-redis.7"), encoding="utf-8") as file:
        source = file.read()
    found = re.findall(r'^\.\\" snippet: (\S+)\n\.Bd -literal -offset indent\n(.*?)^\.Ed$', source, re.M | re.S)
    texts = {name: text.replace("\\e", "\\").replace("6380", str(port)) for name, text in found}
    if len(texts) != 5 or not all("order" in text and str(port) in text for text in texts.values()):
        raise AssertionError("snippets of leafctl-redis(7): %r" % texts)
    return {name: texts[name] for name in names}


class RedisTest(LeafTest):
    """A daemon with a Redis port, and a tag `pay`."""

    def setUp(self):
        super().setUp()
        self.box.ok("tag", "add", "pay", "--step", "1000")

    def serve(self, *args, **more):
        daemon = self.box.serve("--redis-listen", "127.0.0.1:0", *args, **more)
        daemon.redis = redis_port(daemon)
        return daemon

    def connect(self, daemon):
        connection = Resp(daemon.redis)
        self.addCleanup(connection.close)
        return connection

    def lock_store(self):
        """Grants wait until the returned connection says ROLLBACK."""
        lock = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        return lock


class Ids(RedisTest):
    def test_incr_and_get(self):
        redis = self.connect(self.serve())
        self.assertIsNone(redis.ask("GET", "pay"), "nothing was issued since the start")
        self.assertEqual([redis.ask("INCR", "pay") for _ in range(3)], [1, 2, 3])
        self.assertEqual(redis.ask("GET", "pay"), "3")
        self.assertEqual(redis.ask("GET", "pay"), "3", "GET takes nothing")
        self.assertEqual(redis.ask("incr", "pay"), 4)
        self.assertIsNone(redis.ask("GET", "missing"))

    def test_incrby_owns_the_numbers_up_to_its_answer(self):
        daemon = self.serve()
        redis = self.connect(daemon)
        taken = set()
        before = 0
        for round_number in range(12):
            count = 300 + 57 * round_number
            last = redis.ask("INCRBY", "pay", count)
            own = set(range(last - count + 1, last + 1))
            self.assertFalse(own & taken, "an ID twice")
            self.assertGreater(min(own), before)
            before = last
            taken |= own
            # Another process takes from the same row: ranges of this node do not continue each other.
            other = [int(line) for line in self.box.ok("next", "pay", "--direct", "-n", "5").split()]
            self.assertFalse(set(other) & taken)
            taken |= set(other)
        status = daemon.tag_status("pay")
        self.assertEqual(status["granted"], status["issued"] + status["wasted"] + status["reserve"])

    def test_incrby_waits_for_its_grant_and_others_do_not(self):
        daemon = self.serve()
        redis, other = self.connect(daemon), self.connect(daemon)
        self.assertEqual(redis.ask("INCR", "pay"), 1)
        poll(lambda: daemon.tag_status("pay")["reserve"] == 999, "the first grant is in reserve")
        self.box.ok("next", "pay", "--direct")  # the next grant does not continue it
        lock = self.lock_store()
        redis.send(Resp.encode("INCRBY", "pay", 5000))
        poll(lambda: daemon.tag_status("pay")["waiting"] == 1, "the batch waits")
        self.assertEqual([other.ask("INCR", "pay") for _ in range(3)], [2, 3, 4])
        lock.execute("ROLLBACK")
        last = redis.reply()
        self.assertGreaterEqual(last - 4999, 1002)
        self.assertEqual(other.ask("INCR", "pay"), last + 1, "IDs of a tag rise")
        self.assertEqual(daemon.tag_status("pay")["wasted"], 996)

    def test_leafs_own_commands(self):
        redis = self.connect(self.serve())
        self.assertEqual(redis.ask("LEAF.NEXT", "pay"), ["1"])
        self.assertEqual(redis.ask("LEAF.NEXT", "pay", 3), ["2", "3", "4"])
        self.assertEqual(redis.ask("LEAF.RANGE", "pay", 10), [["5", "15"]])
        ids = redis.ask("LEAF.SNOWFLAKE", 3)
        self.assertEqual(len(set(ids)), 3)
        self.assertEqual(len(redis.ask("LEAF.SNOWFLAKE")), 1)
        decoded = redis.ask("LEAF.DECODE", ids[0])
        fields = dict(zip(decoded[::2], decoded[1::2]))
        told = json.loads(self.box.ok("decode", ids[0], "--json"))["ids"][0]
        self.assertEqual((fields["id"], fields["worker"], fields["time"]), (ids[0], told["worker"], told["time"]))
        self.assertIsInstance(redis.ask("HELLO", 3), dict)
        self.assertEqual(redis.ask("LEAF.DECODE", ids[0])["sequence"], told["sequence"])

    def test_large_batches_and_ids_that_javascript_cannot_count(self):
        self.box.ok("tag", "add", "big", "--start", str(2**53 - 50000), "--step", "100000")
        redis = self.connect(self.serve())
        ids = redis.ask("LEAF.NEXT", "big", 100000)
        self.assertEqual(ids[:2], [str(2**53 - 50000), str(2**53 - 49999)])
        self.assertEqual(len(set(ids)), 100000)
        self.assertTrue(all(isinstance(one, str) for one in ids))
        self.assertEqual(redis.ask("INCR", "big"), int(ids[-1]) + 1)

    def test_the_same_tags_and_the_same_reserve_as_over_http(self):
        daemon = self.serve()
        redis = self.connect(daemon)
        got = [redis.ask("INCR", "pay"), int(daemon.leaf("pay").body), redis.ask("INCR", "pay")]
        self.assertEqual(got, [1, 2, 3])
        name = "订单 a'b"
        self.box.ok("tag", "add", "--", name)
        self.assertEqual(redis.ask("INCR", name), 1)
        path = "/v1/segment/%s?contiguous=1&count=5&form=range" % urllib.parse.quote(name)
        self.assertEqual(json.loads(daemon.get(path).body)["ranges"], [{"begin": "2", "end": "7"}])

    def test_contiguous_over_http_and_in_the_shell(self):
        daemon = self.serve()
        ranges = []
        for _ in range(10):
            answer = daemon.get("/v1/segment/pay?count=700&contiguous=1&form=range")
            ranges += json.loads(answer.body)["ranges"]
            out = self.box.ok("next", "pay", "-n", "700", "--contiguous", "--range", "--server", daemon.url)
            begin, end = out.split()
            ranges.append({"begin": begin, "end": end})
            self.box.ok("next", "pay", "--direct", "-n", "3")
        self.assertEqual(len(ranges), 20)
        for before, after in zip(ranges, ranges[1:]):
            self.assertEqual(int(before["end"]) - int(before["begin"]), 700)
            self.assertLessEqual(int(before["end"]), int(after["begin"]))
        self.check_v1_error(daemon.get("/v1/segment/pay?contiguous=yes"), 400, "invalid_argument")
        self.check_v1_error(daemon.get("/v1/snowflake?contiguous=1"), 400, "invalid_argument")
        self.check(
            self.box.run(["next", "pay", "-n", "100001", "--contiguous", "--server", daemon.url]), 2, "100001", "100000"
        )
        self.check(self.box.run(["next", "--mode", "snowflake", "--contiguous"]), 2, "--contiguous")


    def test_leafctl_itself_is_a_client(self):
        path = self.box.path("redis.sock")
        daemon = self.serve("--redis-listen", "unix:" + path)
        url = "redis://127.0.0.1:%d" % daemon.redis
        self.assertEqual(self.box.next("pay", "-n", "3", "--server", url), [1, 2, 3])
        self.assertEqual(self.box.next("pay", "--server", "redis+unix:" + path), [4])
        self.assertEqual(self.box.ok("next", "pay", "-n", "50", "--contiguous", "--range", "--server", url), "5 55\n")
        many = self.box.next("pay", "-n", "250000", "--server", url)
        self.assertEqual(many, list(range(55, 250055)))
        self.check_distinct(self.box.next("--mode", "snowflake", "-n", "5000", "--server", url))
        # In as many requests as the daemon's own limit needs.
        other = Sandbox()
        self.addCleanup(other.close)
        other.ok("tag", "add", "pay")
        small = other.serve("--redis-listen", "127.0.0.1:0", "--set", "server.max_count=1000")
        there = "redis://127.0.0.1:%d" % redis_port(small)
        self.assertEqual(len(set(self.box.next("pay", "-n", "2500", "--server", there))), 2500)
        self.check_distinct(self.box.next("--mode", "snowflake", "-n", "2500", "--server", there))
        self.check(self.box.run(["next", "pay", "-n", "2500", "--contiguous", "--server", there]), 2, "limit of 1000")
        self.check(self.box.run(["next", "missing", "--server", url]), 9, "unknown tag 'missing'")
        self.check(self.box.run(["status", "--server", url]), 2, url, "http://HOST:PORT")
        result = self.box.run(["next", "pay", "--server", url.replace("redis:", "rediss:")])
        self.check(result, 6, "does not speak TLS", "redis://")
        # The next server is asked where one is not there.
        both = ["--server", "redis://127.0.0.1:1", "--server", daemon.url]
        self.assertEqual(self.box.next("pay", *both), [250055])

    def test_another_server_is_not_taken_for_a_daemon(self):
        if shutil.which("redis-server") is None:
            raise AssertionError("redis-server is missing: apt-get install redis-server")
        path = self.box.path("real.sock")
        server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", self.box.dir],
            stdout=subprocess.DEVNULL,
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

        def answers():
            try:
                with Resp(path) as redis:
                    return redis.ask("PING") == "PONG"
            except OSError:
                return False  # its file is there before it listens

        poll(answers, "Redis answers")
        for more in ((), ("--contiguous",)):
            done = self.box.run(["next", "pay", "-n", "5", "--server", "redis+unix:" + path, *more])
            self.check(done, 1, "did not answer like a daemon of leafctl")
        with Resp(path) as redis:
            self.assertIsNone(redis.ask("GET", "pay"), "no counter was made")


class Connection(RedisTest):
    def test_what_clients_say_at_their_start(self):
        redis = self.connect(self.serve())
        self.assertEqual(redis.ask("PING"), "PONG")
        self.assertEqual(redis.ask("PING", "a b"), "a b")
        self.assertEqual(redis.ask("ECHO", "x"), "x")
        self.assertEqual(redis.ask("SELECT", 0), "OK")
        self.assertEqual(redis.ask("SELECT", 1), "ERR DB index is out of range")
        self.assertEqual(redis.ask("CLIENT", "SETINFO", "LIB-NAME", "redis-py"), "OK")
        self.assertEqual(redis.ask("CLIENT", "SETINFO", "lib-ver", "5.0.1"), "OK")
        self.assertEqual(redis.ask("CLIENT", "SETNAME", "me"), "OK")
        self.assertEqual(redis.ask("CLIENT", "GETNAME"), "me")
        self.assertIn("name=me", redis.ask("CLIENT", "INFO"))
        self.assertIn("lib-name=redis-py lib-ver=5.0.1", redis.ask("CLIENT", "INFO"))
        self.assertEqual(redis.ask("CLIENT", "SETNAME", "a b").word, "ERR")
        self.assertEqual(redis.ask("CLIENT", "NO-EVICT", "ON"), "OK")
        self.assertEqual(redis.ask("CLIENT", "REPLY", "OFF").word, "ERR")
        self.assertEqual(redis.ask("ROLE"), ["master", 0, []])
        seconds, micros = redis.ask("TIME")
        self.assertLess(abs(int(seconds) - time.time()), DEADLINE_S)
        self.assertLess(int(micros), 1_000_000)
        self.assertIn("loading:0\r\n", redis.ask("INFO"))
        self.assertIn("role:master", redis.ask("INFO", "replication"))
        self.assertNotIn("redis_version", redis.ask("INFO", "replication"))
        self.assertEqual(redis.ask("CONFIG", "GET", "save"), ["save", ""])
        self.assertEqual(redis.ask("CONFIG", "GET", "nothing"), [])
        self.assertEqual(redis.ask("CONFIG", "SET", "save", "").word, "ERR")

    def test_versions_of_the_protocol(self):
        redis = self.connect(self.serve())
        hello = redis.ask("HELLO", 3, "SETNAME", "three")
        self.assertEqual((hello["proto"], hello["server"], hello["role"]), (3, "leafctl", "master"))
        self.assertIsNone(redis.ask("GET", "pay"))
        self.assertEqual(redis.ask("HELLO", 4).word, "NOPROTO")
        self.assertEqual(redis.ask("HELLO", "x").word, "ERR")
        self.assertEqual(redis.ask("HELLO", 2, "NONSENSE").word, "ERR")
        self.assertIsInstance(redis.ask("CONFIG", "GET", "*"), dict, "a HELLO that failed changed nothing")
        self.assertEqual(redis.ask("CLIENT", "GETNAME"), "three")
        self.assertEqual(redis.ask("HELLO", 2)[:2], ["server", "leafctl"])
        self.assertIsInstance(redis.ask("CONFIG", "GET", "*"), list)
        redis.ask("HELLO", 3)
        self.assertEqual(redis.ask("RESET"), "RESET")
        self.assertIsNone(redis.ask("CLIENT", "GETNAME"))
        self.assertIsInstance(redis.ask("CONFIG", "GET", "*"), list)
        self.assertEqual(redis.ask("QUIT"), "OK")
        self.assertTrue(redis.at_end())

    def test_passwords_where_there_is_none(self):
        redis = self.connect(self.serve())
        self.assertIn("without any password configured", redis.ask("AUTH", "secret"))
        self.assertEqual(redis.ask("AUTH", "default", "secret"), "OK")
        self.assertEqual(redis.ask("AUTH", "somebody", "secret").word, "WRONGPASS")
        self.assertEqual(redis.ask("HELLO", 3, "AUTH", "somebody", "x").word, "WRONGPASS")
        self.assertIsInstance(redis.ask("HELLO", 3, "AUTH", "default", "x"), dict)

    def test_commands_are_described(self):
        redis = self.connect(self.serve())
        count = redis.ask("COMMAND", "COUNT")
        table = {row[0]: row for row in redis.ask("COMMAND")}
        self.assertEqual(len(table), count)
        self.assertEqual(sorted(table), sorted(redis.ask("COMMAND", "LIST")))
        self.assertEqual(table["incrby"][1:6], [3, ["write", "fast"], 1, 1, 1])
        self.assertEqual(table["ping"][3:6], [0, 0, 0])
        self.assertEqual(redis.ask("COMMAND", "INFO", "incr", "nonsense"), [table["incr"], None])
        docs = redis.ask("COMMAND", "DOCS", "leaf.next")
        self.assertEqual(docs[0], "leaf.next")
        for name, row in table.items():
            # What the table says of words is what the command is held to.
            if row[1] > 1:
                error = redis.ask(name)
                self.assertEqual(error, "ERR wrong number of arguments for '%s' command" % name)

    def test_unknown_commands_harm_nothing(self):
        redis = self.connect(self.serve())
        self.assertEqual(
            redis.ask("SET", "pay", "1000"), "ERR unknown command 'SET', with args beginning with: 'pay' '1000' "
        )
        self.assertEqual(redis.ask("FLUSHALL").word, "ERR")
        self.assertEqual(redis.ask("DECR", "pay").word, "ERR")
        self.assertEqual(redis.ask("INCR", "pay"), 1)

    def test_a_transaction(self):
        daemon = self.serve()
        redis = self.connect(daemon)
        self.assertEqual(redis.ask("EXEC"), "ERR EXEC without MULTI")
        self.assertEqual(redis.ask("DISCARD"), "ERR DISCARD without MULTI")
        self.assertEqual(redis.ask("MULTI"), "OK")
        self.assertEqual(redis.ask("MULTI"), "ERR MULTI calls can not be nested")
        for words in (("INCR", "pay"), ("LEAF.NEXT", "pay", 2), ("INCR", "missing"), ("PING",), ("GET", "pay")):
            self.assertEqual(redis.ask(*words), "QUEUED")
        replies = redis.ask("EXEC")
        self.assertEqual(replies[:2] + replies[3:], [1, ["2", "3"], "PONG", "3"])
        self.assertEqual(replies[2].word, "NOTFOUND")
        # What cannot be queued spoils all of it; nothing is taken.
        redis.ask("MULTI")
        self.assertEqual(redis.ask("INCR", "pay"), "QUEUED")
        self.assertEqual(redis.ask("NONSENSE").word, "ERR")
        self.assertEqual(redis.ask("EXEC").word, "EXECABORT")
        redis.ask("MULTI")
        self.assertEqual(redis.ask("INCR", "pay"), "QUEUED")
        self.assertEqual(redis.ask("DISCARD"), "OK")
        self.assertEqual(redis.ask("INCR", "pay"), 4)

    def test_a_transaction_waits_as_a_request_does(self):
        daemon = self.serve()
        redis, other = self.connect(daemon), self.connect(daemon)
        lock = self.lock_store()
        redis.send(b"".join(Resp.encode(*words) for words in (["MULTI"], ["INCR", "pay"], ["PING"], ["EXEC"], ["PING"])))
        self.assertEqual([redis.reply() for _ in range(3)], ["OK", "QUEUED", "QUEUED"])
        poll(lambda: daemon.tag_status("pay")["waiting"] == 1, "the request waits")
        self.assertEqual(other.ask("PING"), "PONG")
        lock.execute("ROLLBACK")
        self.assertEqual([redis.reply(), redis.reply()], [[1, "PONG"], "PONG"])

    def test_answers_keep_their_order(self):
        daemon = self.serve()
        redis, other = self.connect(daemon), self.connect(daemon)
        lock = self.lock_store()
        redis.send(Resp.encode("PING") + Resp.encode("INCR", "pay") + Resp.encode("PING", "behind") * 3)
        self.assertEqual(redis.reply(), "PONG")
        self.assertEqual(other.ask("ECHO", "meanwhile"), "meanwhile")
        lock.execute("ROLLBACK")
        self.assertEqual([redis.reply() for _ in range(4)], [1, "behind", "behind", "behind"])

    def test_a_burst_does_not_keep_others_waiting(self):
        self.box.ok("tag", "set", "pay", "--step", "1000000", "--yes")
        # What is sent over it is there at once.
        path = self.box.path("redis.sock")
        daemon = self.box.serve("--redis-listen", "unix:" + path, "--set", "server.threads=1")
        first, second = Resp(path), Resp(path)
        self.addCleanup(first.close)
        self.addCleanup(second.close)
        for redis in (first, second):
            redis.ask("INCR", "pay")
        # Both are there when the daemon looks; the burst is the first.
        burst = 40
        suspend(daemon.process.pid)
        try:
            first.send(Resp.encode("LEAF.NEXT", "pay", "150") * burst)
            second.send(Resp.encode("INCR", "pay"))
        finally:
            daemon.signal(signal.SIGCONT)
        between = second.reply()
        answers = [first.reply() for _ in range(burst)]
        self.assertEqual([len(ids) for ids in answers], [150] * burst)
        self.assertLess(between, int(answers[-1][-1]))

    def test_deep_pipelines(self):
        count = scaled(100_000, 10_000)
        self.box.ok("tag", "set", "pay", "--step", "1000000", "--yes")
        redis = self.connect(self.serve())
        sender = threading.Thread(target=lambda: redis.send(Resp.encode("INCR", "pay") * count))
        sender.start()
        ids = [redis.reply() for _ in range(count)]
        sender.join()
        self.assertEqual(ids, list(range(1, count + 1)))

    def test_the_same_command_again_and_others_in_between(self):
        """A command that comes twice is not read twice. Each gets its own answer, whatever comes in between."""
        self.box.ok("tag", "add", "order", "--step", "1000")
        daemon = self.serve()
        redis, other = self.connect(daemon), self.connect(daemon)
        pay, order, missing = (Resp.encode("INCR", tag) for tag in ("pay", "order", "missing"))
        commands = [
            (pay * 3, [1, 2, 3]), (order * 2, [1, 2]), (pay, [4]), (b"INCR pay\r\n" * 2, [5, 6]), (pay, [7]),
            (Resp.encode("incr", "pay"), [8]), (Resp.encode("INCRBY", "pay", 1) * 2, [9, 10]),
            (Resp.encode("INCRBY", "pay", 5), [15]), (pay * 2, [16, 17]), (missing * 2, ["NOTFOUND", "NOTFOUND"]),
            (pay, [18]), (Resp.encode("MULTI"), ["OK"]), (pay * 2, ["QUEUED", "QUEUED"]),
            (Resp.encode("EXEC"), [[19, 20]]), (pay, [21]), (Resp.encode("LEAF.NEXT", "pay"), [["22"]]), (pay, [23]),
            (Resp.encode("PING"), ["PONG"]), (Resp.encode("RESET"), ["RESET"]), (pay * 40, list(range(24, 64))),
        ]  # fmt: skip
        redis.send(b"".join(data for data, _ in commands))
        for data, replies in commands:
            for expected in replies:
                reply = redis.reply()
                self.assertEqual(reply.word if isinstance(reply, ReplyError) else reply, expected, data)
        # The same in pieces, wherever they are cut.
        last = 63
        for cut in (1, 5, len(pay) - 1, len(pay), len(pay) + 1, len(pay) + 5, 3 * len(pay) - 2):
            data = pay * 4
            redis.send(data[:cut])
            self.assertEqual(other.ask("PING"), "PONG")
            redis.send(data[cut:])
            self.assertEqual([redis.reply() for _ in range(4)], [last + 1, last + 2, last + 3, last + 4])
            last += 4
        # The rest waits behind the first, which waits for its grant.
        self.box.ok("tag", "add", "late", "--step", "1000")
        lock = self.lock_store()
        late = Resp.encode("INCR", "late")
        redis.send(late * 4 + pay)
        poll(lambda: daemon.tag_status("late") and daemon.tag_status("late")["waiting"] == 1, "the first waits")
        lock.execute("ROLLBACK")
        self.assertEqual([redis.reply() for _ in range(5)], [1, 2, 3, 4, last + 1])

    def test_a_unix_socket(self):
        path = self.box.path("redis.sock")
        daemon = self.box.serve("--redis-listen", "unix:" + path)
        with Resp(path) as redis:
            self.assertEqual(redis.ask("INCR", "pay"), 1)
        self.assertEqual(daemon.terminate(), 0)
        self.assertFalse(os.path.exists(path))

    def test_no_request_for_a_long_while_is_fine(self):
        daemon = self.serve("--set", "server.header_timeout=300ms")
        silent = self.connect(daemon)
        slow = self.connect(daemon)
        slow.send(b"*2\r\n$4\r\nINCR\r\n")
        self.assertIn("took too long to arrive", slow.reply())
        self.assertTrue(slow.at_end())
        self.assertEqual(silent.ask("INCR", "pay"), 1)


    def test_what_is_behind_a_command_that_waits_has_its_own_time(self):
        daemon = self.serve("--set", "server.request_timeout=60s", "--set", "server.header_timeout=6s")
        redis = self.connect(daemon)
        lock = self.lock_store()
        redis.send(Resp.encode("INCR", "pay") + b"PI")
        poll(lambda: daemon.tag_status("pay")["waiting"] == 1, "the command waits")
        time.sleep(6.5)
        lock.execute("ROLLBACK")
        self.assertEqual(redis.reply(), 1)
        time.sleep(1)  # deadlines are looked at a few times a second
        redis.send(b"NG\r\n")
        self.assertEqual(redis.reply(), "PONG")

    def test_an_empty_line_is_no_command_that_is_slow(self):
        daemon = self.serve("--set", "server.header_timeout=300ms")
        redis = self.connect(daemon)
        for nothing in (b"\r\n", b"*0\r\n", b"PING\r\n\r\n"):
            redis.send(nothing)
            if nothing.startswith(b"PING"):
                self.assertEqual(redis.reply(), "PONG")
            time.sleep(0.8)
            self.assertEqual(redis.ask("INCR", "pay") > 0, True, nothing)

    def test_a_short_question_has_no_endless_answer(self):
        redis = self.connect(self.serve())
        names = ["get"] * 1000
        for verb in ("DOCS", "INFO"):
            self.assertEqual(redis.ask("COMMAND", verb, *names), "ERR too many names")
            self.assertEqual(len(redis.ask("COMMAND", verb, "get", "incr")) > 0, True)

    def test_a_large_transaction_is_answered_whole(self):
        redis = self.connect(self.serve())
        redis.ask("MULTI")
        for _ in range(200):
            redis.ask("LEAF.NEXT", "pay", "100")
        redis.send(Resp.encode("EXEC") + Resp.encode("PING"))
        replies = redis.reply()
        self.assertEqual(len(replies), 200)
        self.assertEqual(len({value for ids in replies for value in ids}), 20000)
        self.assertEqual(redis.reply(), "PONG")


class Errors(RedisTest):
    def test_each_says_the_same_as_over_http(self):
        self.box.ok("tag", "add", "cut")
        daemon = self.serve()
        redis = self.connect(daemon)
        self.box.ok("tag", "pause", "cut", "--yes", "--server", "unix:%s/leafctl.sock" % self.box.state)
        for tag, word, query in (
            ("missing", "NOTFOUND", ""),
            ("cut", "PAUSED", ""),
            ("pay", "ERR", "?count=100001"),
            ("x" * 129, "ERR", ""),
        ):
            over_http = json.loads(daemon.get("/v1/segment/%s%s" % (tag, query)).body)
            words = ("LEAF.NEXT", tag, "100001") if query else ("INCR", tag)
            error = redis.ask(*words)
            self.assertIsInstance(error, ReplyError)
            self.assertEqual(error.word, word)
            self.assertIn(over_http["message"], error)
        self.assertEqual(redis.ask("INCRBY", "pay", 0).word, "ERR")
        self.assertEqual(redis.ask("INCRBY", "pay", -5).word, "ERR")
        self.assertEqual(redis.ask("INCR", "pay"), 1, "none of them took anything")

    def test_a_table_that_cannot_be_used(self):
        daemon = self.serve()
        redis = self.connect(daemon)
        store = sqlite3.connect(os.path.join(self.box.state, "leaf.db"), isolation_level=None)
        self.addCleanup(store.close)
        # One that is missing would be made again, without the tag.
        store.execute("ALTER TABLE leaf_alloc RENAME COLUMN max_id TO elsewhere")
        over_http = json.loads(daemon.get("/v1/segment/pay").body)
        self.assertEqual(over_http["code"], "config", over_http)
        error = redis.ask("INCR", "pay")
        self.assertEqual(error.word, "CONFIG")
        self.assertIn(over_http["message"], error)
        for server in (daemon.url, "redis://127.0.0.1:%d" % daemon.redis):
            self.check(self.box.run(["next", "pay", "--server", server]), 6, over_http["message"])

    def test_drained(self):
        daemon = self.serve("--set", "server.request_timeout=200ms")
        redis = self.connect(daemon)
        lock = self.lock_store()
        error = redis.ask("INCR", "pay")
        self.assertEqual(error.word, "TRYAGAIN")
        self.assertIn("retry in 1 s", error)
        lock.execute("ROLLBACK")
        poll(lambda: not isinstance(redis.ask("INCR", "pay"), ReplyError), "IDs again")

    def test_limits(self):
        daemon = self.serve("--set", "server.max_tag_requests_per_second=5")
        redis = self.connect(daemon)
        replies = [redis.ask("INCR", "pay") for _ in range(50)]
        limited = [one for one in replies if isinstance(one, ReplyError)]
        self.assertTrue(limited)
        self.assertTrue(all(one.word == "LIMITED" and "retry in 1 s" in one for one in limited))

    def test_too_many_connections(self):
        daemon = self.serve("--set", "server.max_connections=3")
        daemon.disconnect()
        kept = []

        def connected():
            kept.append(self.connect(daemon))
            if kept[-1].ask("PING") != "PONG":
                kept.pop()
            return len(kept) == 3

        poll(connected, "the place of the connection before is free")
        surplus = self.connect(daemon)
        error = surplus.ask("PING")
        self.assertIn("ERR max number of clients reached", error)
        self.assertTrue(surplus.at_end())
        kept[0].close()
        poll(lambda: self.connect(daemon).ask("PING") == "PONG", "a place is free")


class BadInput(RedisTest):
    BAD = [
        (b"*-1\r\n", "invalid multibulk length"),
        (b"*9999999999999999999999\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nINCR\r\n$536870912\r\n", "too long"),
        (b"*2\r\n$4\r\nINCR\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$'"),
        (b"*1\r\n:5\r\n", "expected '$'"),
        (b"*1\r\n$4\r\nPINGPONG\r\n", "longer than it says"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not HTTP"),
        (b"POST /v1/segment/pay HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nINCR pay\r\n", "not HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "without TLS"),
        (b"INCR \"pay\r\n", "unbalanced quotes"),
        (b"A" * 40000, "too long"),
        (b"*1000\r\n" + b"$30\r\n" + b"a" * 30 + b"\r\n" + (b"$50\r\n" + b"a" * 50 + b"\r\n") * 998, "too long"),
        (b"*5000\r\n" + b"$1\r\na\r\n" * 4999, "more than 1024 words"),
        (b"PING" + b" ''" * 5000 + b"\r\n", "more than 1024 words"),
    ]

    def test_each_is_refused_and_nothing_else_is_harmed(self):
        daemon = self.serve()
        neighbour = self.connect(daemon)
        for number, (data, why) in enumerate(self.BAD):
            redis = self.connect(daemon)
            redis.send(Resp.encode("PING"))
            self.assertEqual(redis.reply(), "PONG")
            try:
                redis.send(data)
            except ConnectionError:
                pass  # it was refused before all of it was sent
            error = redis.reply()
            self.assertIsInstance(error, ReplyError, data[:60])
            self.assertTrue(error.startswith("ERR Protocol error: "), error)
            self.assertIn(why, error, data[:60])
            self.assertTrue(redis.at_end(), data[:60])
            self.assertEqual(neighbour.ask("INCR", "pay"), number + 1, "nothing was taken by %r" % data[:60])

    def test_halves_of_commands_take_up_little(self):
        daemon = self.serve()
        halves = [self.connect(daemon) for _ in range(200)]
        for one in halves:
            one.send(b"*2\r\n$4\r\nINCR\r\n$30000\r\n" + b"a" * 20000)
        neighbour = self.connect(daemon)
        self.assertEqual(neighbour.ask("INCR", "pay"), 1)
        for one in halves:
            one.close()
        self.assertEqual(neighbour.ask("INCR", "pay"), 2)

    def test_a_client_that_does_not_read_holds_little(self):
        self.box.ok("tag", "set", "pay", "--step", "100000000", "--yes")
        daemon = self.serve()
        before = self.memory(daemon)
        lazy = [self.connect(daemon) for _ in range(20)]
        for one in lazy:
            one.send(Resp.encode("LEAF.NEXT", "pay", 100000) * 50)
        neighbour = self.connect(daemon)
        self.assertIsInstance(neighbour.ask("INCR", "pay"), int)
        # 20 clients asked for 2.7 GB.
        self.assertLess(self.memory(daemon) - before, 200_000_000)

    @staticmethod
    def memory(daemon):
        with open("/proc/%d/statm" % daemon.process.pid, encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Life(RedisTest):
    def test_a_drain_finishes_what_waits(self):
        daemon = self.serve("--set", "server.request_timeout=30s")
        redis = self.connect(daemon)
        lock = self.lock_store()
        redis.send(Resp.encode("INCR", "pay"))
        poll(lambda: daemon.tag_status("pay")["waiting"] == 1, "the request waits")
        daemon.signal(signal.SIGTERM)
        daemon.wait_log("draining")
        lock.execute("ROLLBACK")
        self.assertEqual(redis.reply(), 1)
        self.assertTrue(redis.at_end())
        self.assertEqual(daemon.wait(), 0)
        self.assertEqual(self.box.next("pay", "--direct"), [1001], "its grant was of 1000")

    def test_a_drain_answers_what_has_come(self):
        """No answer of this protocol says that it is the last one: a client waits for all that it has sent."""
        daemon = self.serve("--set", "server.request_timeout=30s")
        redis = self.connect(daemon)
        lock = self.lock_store()
        # More than is read at once, and some of it ends where a command does.
        filler = b"*2\r\n$4\r\nECHO\r\n$8\r\nabcdefgh\r\n"
        redis.send(Resp.encode("INCR", "pay") * 50 + filler * 4000 + Resp.encode("MULTI") + Resp.encode("PING") + Resp.encode("EXEC"))
        poll(lambda: daemon.tag_status("pay")["waiting"] == 1, "the first one waits")
        daemon.signal(signal.SIGTERM)
        daemon.wait_log("draining")
        lock.execute("ROLLBACK")
        self.assertEqual([redis.reply() for _ in range(50)], list(range(1, 51)))
        self.assertEqual([redis.reply() for _ in range(4000)], ["abcdefgh"] * 4000)
        self.assertEqual([redis.reply() for _ in range(3)], ["OK", "QUEUED", ["PONG"]])
        self.assertTrue(redis.at_end())
        self.assertEqual(daemon.wait(), 0)

    def test_metrics_count_commands(self):
        daemon = self.serve()
        redis = self.connect(daemon)
        for _ in range(3):
            redis.ask("INCR", "pay")
        redis.ask("INCR", "missing")
        redis.ask("INCRBY", "pay", 5)
        text = daemon.get("/metrics").body
        self.assertIn('leaf_redis_commands_total{command="incr",code="200"} 3\n', text)
        self.assertIn('leaf_redis_commands_total{command="incr",code="404"} 1\n', text)
        self.assertIn('leaf_redis_commands_total{command="incrby",code="200"} 1\n', text)
        self.assertIn('leaf_redis_command_duration_seconds_count{command="incr"} 4\n', text)
        # Of a transaction each command counts once, as what it became.
        for words in (["MULTI"], ["INCR", "pay"], ["INCR", "missing"], ["PING"], ["EXEC"], ["MULTI"], ["INCR", "pay"], ["DISCARD"]):
            redis.ask(*words)
        text = daemon.get("/metrics").body
        self.assertIn('leaf_redis_commands_total{command="incr",code="200"} 4\n', text)
        self.assertIn('leaf_redis_commands_total{command="incr",code="404"} 2\n', text)
        self.assertIn('leaf_redis_commands_total{command="exec",code="200"} 1\n', text)

    def test_a_socket_of_the_service_manager(self):
        with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as redis_socket:
            box = self.box
            process = subprocess.Popen(
                [
                    sys.executable, PASS_SOCKETS, "%d,%d" % (redis_socket.fileno(), http.fileno()), "redis:http",
                    box.binary, "serve", "--redis-listen", "127.0.0.1:1", "--set", "server.request_timeout=60s",
                ],
                env=box.env, pass_fds=(http.fileno(), redis_socket.fileno()), stderr=subprocess.PIPE, text=True,
            )
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            with Resp(redis_socket.getsockname()[1]) as redis:
                self.assertEqual(redis.ask("INCR", "pay"), 1)
            process.terminate()
            log = process.stderr.read()
            self.assertEqual(process.wait(DEADLINE_S), 0)
            self.assertIn("server.redis_listen is not used", log)
            self.assertIn("listening on http://127.0.0.1:%d" % http.getsockname()[1], log)

    def test_an_address_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            daemon = self.box.serve("--redis-listen", address, listening=False)
            self.assertNotEqual(daemon.wait(), 0)
            self.assertIn("cannot listen on %s: the address is in use" % address, daemon.log())
        self.check(self.box.run(["serve", "--redis-listen", "nonsense"]), 2, "nonsense", "HOST:PORT")


class ClientRuns(RedisTest):
    """Each takes IDs alone, pipelined and from a pool, sees errors as its own, and comes back after a restart; no ID
    twice over all of them together."""

    COUNT = scaled(400, 80)

    def commands(self):
        """By the name of the client: what runs it, up to the port."""
        raise NotImplementedError

    def start(self, command, daemon, tag, mode):
        process = subprocess.Popen(
            [*command, str(daemon.redis), tag, str(self.COUNT), mode],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def finish(self, name, process):
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, "%s: %s" % (name, err))
        return out

    def check_clients(self, commands, daemon, *, restart):
        """`restart`: ends the daemon and starts it again, on the same ports."""
        taken = []
        for mode in ("alone", "pipelined", "pool"):
            started = {name: self.start(command, daemon, "pay", mode) for name, command in commands.items()}
            for name, process in started.items():
                ids = [int(line) for line in self.finish(name, process).split()]
                self.assertEqual(len(ids), self.COUNT, "%s %s" % (name, mode))
                taken += ids
        for name, command in commands.items():
            out = self.finish(name, self.start(command, daemon, "missing", "error"))
            self.assertIn("NOTFOUND unknown tag 'missing'", out, name)
        steady = {name: self.start(command, daemon, "pay", "steady") for name, command in commands.items()}
        poll(lambda: daemon.tag_status("pay")["issued"] > len(taken) + len(commands), "they take IDs")
        daemon = restart(daemon)
        for name, process in steady.items():
            ids = [int(line) for line in self.finish(name, process).split()]
            self.assertEqual(len(ids), self.COUNT, name)
            taken += ids
        self.check_distinct(taken)

    def run_clients(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        daemon = self.box.serve("--redis-listen", "127.0.0.1:%d" % port)
        daemon.redis = port

        def restart(old):
            self.assertEqual(old.terminate(), 0)
            new = self.box.serve("--redis-listen", "127.0.0.1:%d" % port)
            new.redis = port
            return new

        self.check_clients(self.commands(), daemon, restart=restart)


class Clients(ClientRuns):
    def commands(self):
        python = "/usr/bin/python3"
        probe = subprocess.run([python, "-c", "import redis"], check=False, capture_output=True, text=True)
        if probe.returncode != 0:
            raise AssertionError("redis-py is missing (apt-get install python3-redis): " + probe.stderr)
        program = self.box.path("hiredis_client")
        built = subprocess.run(
            ["cc", "-Wall", "-Wextra", "-Werror", "-o", program, os.path.join(CLIENTS, "hiredis_client.c"), "-lhiredis"],
            check=False, capture_output=True, text=True,
        )
        if built.returncode != 0:
            raise AssertionError("hiredis is missing (apt-get install libhiredis-dev): " + built.stderr)
        return {"hiredis": [program], "redis-py": [python, os.path.join(CLIENTS, "redis_py_client.py")]}

    def test_hiredis_and_redis_py(self):
        self.run_clients()

    def test_the_manuals_snippets(self):
        """Each of leafctl-redis(7) takes one ID."""
        self.box.ok("tag", "add", "order")
        daemon = self.serve()
        commands = self.snippet_commands()
        for number, (name, text) in enumerate(snippets(daemon.redis, commands).items()):
            done = subprocess.run(commands[name](text), check=False, capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "%d\n" % (number + 1), ""), name)

    def snippet_commands(self):
        """By the name of the snippet: what runs its text."""

        def compiled(text):
            program = self.box.path("snippet")
            source = self.box.write("snippet.c", text)
            subprocess.run(["cc", "-Wall", "-o", program, source, "-lhiredis"], check=True)
            return [program]

        return {
            "redis-cli": lambda text: ["sh", "-c", text],
            "hiredis": compiled,
            "redis-py": lambda text: ["/usr/bin/python3", "-c", text],
        }

    def test_redis_cli(self):
        daemon = self.serve()
        cli = ["redis-cli", "-p", str(daemon.redis)]

        def run(*words, **more):
            done = subprocess.run([*cli, *words], check=False, capture_output=True, text=True, **more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        self.assertEqual(run("INCR", "pay"), "1\n")
        self.assertEqual(run("INCRBY", "pay", "10"), "11\n")
        self.assertEqual(run("-3", "LEAF.NEXT", "pay", "2"), "12\n13\n")
        self.assertEqual(run("LEAF.RANGE", "pay", "5"), "14\n19\n")
        self.assertIn("NOTFOUND unknown tag 'x'", run("INCR", "x"))
        self.assertEqual(run(input="MULTI\nINCR pay\nINCR pay\nEXEC\n").split(), ["OK", "QUEUED", "QUEUED", "19", "20"])
        # A pipe of protocol, as for mass insertion.
        sent = Resp.encode("INCR", "pay").decode() * 1000
        self.assertIn("errors: 0, replies: 1000", run("--pipe", input=sent))
        self.assertEqual(run("INCR", "pay"), "1021\n")

    def test_redis_benchmark(self):
        if shutil.which("redis-benchmark") is None:
            raise AssertionError("redis-benchmark is missing: apt-get install redis-tools")
        self.box.ok("tag", "add", "counter:__rand_int__", "--step", "100000")
        daemon = self.serve()
        requests = scaled(20_000, 2_000)
        for depth in ("1", "16"):
            done = subprocess.run(
                [
                    "redis-benchmark", "-p", str(daemon.redis), "-c", "20", "-n", str(requests), "-P", depth, "--csv",
                    "INCR", "counter:__rand_int__",
                ],
                check=False, capture_output=True, text=True, timeout=DEADLINE_S,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("rror", done.stdout)
        with Resp(daemon.redis) as redis:
            self.assertGreaterEqual(redis.ask("INCR", "counter:__rand_int__"), 2 * requests + 1)


if __name__ == "__main__":
    main()
