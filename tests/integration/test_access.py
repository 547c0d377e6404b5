#!/usr/bin/env python3
"""Tokens, roles and doors of a daemon, as callers over HTTP, the Redis port and the Unix sockets meet them."""

import base64
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from browser import Browser  # noqa: E402
from leafctl import DEADLINE_S, LeafTest, RawConnection, become_nobody, main, poll, scaled  # noqa: E402
from resp import ReplyError, Resp  # noqa: E402

PERMISSION = 4


def bearer(token):
    return {"Authorization": "Bearer " + token}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self.path)


def over_unix(path, method, target, headers=None):
    connection = UnixConnection(path)
    try:
        connection.request(method, target, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class AccessTest(LeafTest):
    """A daemon with tokens, and the tags `pay` and `order`."""

    def setUp(self):
        super().setUp()
        self.tokens_file = self.box.path("tokens")
        for tag in ("pay", "order"):
            self.box.ok("tag", "add", tag, "--step", "1000")

    def set(self):
        return ("--set", "auth.tokens_file=" + self.tokens_file)

    def token(self, name, *args):
        """A new token, alone on the last line."""
        return self.box.ok("token", "add", name, *args, *self.set()).splitlines()[-1]

    def serve(self, *args, **more):
        return self.box.serve(*self.set(), *args, **more)

    def reload(self, daemon):
        seen = len(re.findall(r"reloaded: ", daemon.log()))
        daemon.signal(signal.SIGHUP)
        poll(lambda: len(re.findall(r"reloaded: ", daemon.log())) > seen, "reloaded; the log:\n" + daemon.log())

    def status_of(self, daemon, path, token=None, method="GET", **headers):
        return daemon.request(method, path, headers=dict(headers, **(bearer(token) if token else {}))).status


class Tokens(AccessTest):
    """The commands."""

    def test_add_list_check_remove(self):
        token = self.box.ok("token", "add", "billing", "--role", "ids", "--tags", "order*,pay", *self.set()).strip()
        self.assertRegex(token, r"\Aleaf_[A-Za-z0-9_-]{43}\Z", "the token alone on stdout")
        self.assertEqual(stat.S_IMODE(os.stat(self.tokens_file).st_mode), 0o600)
        with open(self.tokens_file, encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\Abilling roles=ids tags=order\*,pay sha256=[0-9a-f]{64}\n\Z")
        added = json.loads(
            self.box.ok("token", "add", "ops", "--role", "admin", "--expires", "90d", "--json", *self.set())
        )
        self.assertEqual((added["name"], added["roles"], added["state"]), ("ops", ["admin"], "ok"))
        listed = self.box.ok("token", "list", *self.set())
        self.assertRegex(listed, r"billing +ids +order\*,pay +- +never +ok\nops +admin")
        self.assertNotIn(token, listed)
        rows = json.loads(self.box.ok("token", "list", "--json", *self.set()))["tokens"]
        self.assertEqual([row["name"] for row in rows], ["billing", "ops"])
        self.assertNotIn("sha256", rows[0])

        checked = self.box.run(["token", "check", *self.set()], stdin=token + "\n")
        self.assertEqual((checked.rc, checked.out), (0, "token billing: roles ids, tags order*,pay, does not expire\n"))
        self.check(self.box.run(["token", "check", *self.set()], stdin="leaf_x\n"), PERMISSION, "no such token")
        self.check(self.box.run(["token", "check", *self.set()], stdin=""), 2, "no token")
        path = self.box.write("t", added["token"] + "\n")
        self.assertIn("token ops:", self.box.ok("token", "check", path, *self.set()))
        self.assertIn("token ops:", self.box.ok("token", "check", *self.set(), env={
            "LEAFCTL_CLIENT_TOKEN_FILE": path}))  # fmt: skip

        self.check(self.box.run(["token", "remove", "biling", *self.set()]), 9, "no token 'biling'", "did you mean billing?")
        self.assertIn("would remove", self.box.ok("token", "remove", "billing", "--dry-run", *self.set()))
        self.box.ok("token", "rm", "billing", *self.set())
        self.assertNotIn("billing", self.box.ok("token", "list", *self.set()))

    def test_the_first_tokens_at_once(self):
        """One that fails does not take the file of another one away."""
        for round_ in range(scaled(10, 3)):
            self.tokens_file = self.box.path("tokens%d" % round_)
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                call = ["token", "add", "ops", "--role", "read", *self.set()]
                results = list(pool.map(lambda _, call=call: self.box.run(call), range(6)))
            self.assertEqual(sorted(result.rc for result in results), [0] + [9] * 5, results)
            token = next(result.out for result in results if result.rc == 0).splitlines()[-1]
            checked = self.box.run(["token", "check", *self.set()], stdin=token + "\n")
            self.assertEqual(checked.rc, 0, checked.err)

    def test_what_serve_refuses_config_check_refuses(self):
        for name, keys in (("tokens", "auth.tokens_file"), ("codes-key", "codes.key_file"), ("client-token", "client.token_file")):
            for text in (None, "not one\nbut two\n"):
                path = self.box.path("missing") if text is None else self.box.write(name, text, 0o600)
                with self.subTest(key=keys, text=text):
                    result = self.box.run(["config", "check", "--json", "--set", "%s=%s" % (keys, path)])
                    self.assertEqual(result.rc, 6, result.out)
                    finding = json.loads(result.out)["findings"][0]
                    self.assertEqual((finding["code"], finding["subject"]), (name, path))
                    self.assertIn(path, finding["cause"])

    def test_wrong_calls_change_nothing(self):
        self.token("a", "--role", "ids")
        with open(self.tokens_file, encoding="utf-8") as file:
            before = file.read()
        for args, rc, text in (
            (("a", "--role", "read"), 9, "token a exists"),
            (("b",), 2, "--role"),
            (("b", "--role", "root"), 2, "bad --role 'root': none of ids, read, admin"),
            (("b", "--role", "ids,"), 2, "bad --role ''"),
            (("b c", "--role", "ids"), 2, "bad token name 'b c'"),
            (("default", "--role", "ids"), 2, "bad token name 'default'"),
            (("-b", "--role", "ids"), 2, ""),
            (("b", "--role", "ids", "--tags", "x y"), 2, "bad tag pattern 'x y'"),
            (("b", "--role", "ids", "--tags", ""), 2, "--tags"),
            (("b", "--role", "read", "--tags", "pay"), 2, "are for tokens with --role ids"),
            (("b", "--role", "ids", "--expires", "2020-01-01"), 2, "that time has passed"),
            (("b", "--role", "ids", "--expires", "soon"), 2, "bad expiry 'soon'"),
            (("b", "--role", "ids", "--ids-per-second", "0"), 2, "--ids-per-second"),
        ):
            with self.subTest(args=args):
                result = self.box.run(["token", "add", *args, *self.set()])
                self.assertEqual(result.rc, rc, result.err)
                self.assertIn(text, result.err)
                self.assertEqual(result.out, "")
        self.check(self.box.run(["token", "add", "b", "--role", "ids"]), 6, "auth.tokens_file is not set")
        self.check(self.box.run(["token", "remove", "a", "nosuch", *self.set()]), 9, "no token 'nosuch'")
        self.box.ok("token", "add", "b", "--role", "ids", "--dry-run", *self.set())
        with open(self.tokens_file, encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        missing = ("--set", "auth.tokens_file=" + self.box.path("nowhere/tokens"))
        self.check(self.box.run(["token", "add", "b", "--role", "ids", *missing]), 6, "nowhere/tokens")
        self.assertIn("has no tokens", self.box.run(["token", "list", "--set", "auth.tokens_file=" + self.box.path("none")]).err)
        self.assertFalse(os.path.exists(self.box.path("none")))

    def test_comments_stay_and_a_link_stays_one(self):
        real = self.box.write("real", "# of the team\n\n# and of others")
        os.symlink(real, self.tokens_file)
        self.token("a", "--role", "ids")
        self.token("b", "--role", "read")
        self.box.ok("token", "remove", "a", *self.set())
        self.assertTrue(os.path.islink(self.tokens_file))
        with open(real, encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\A# of the team\n\n# and of others\nb roles=read sha256=[0-9a-f]{64}\n\Z")

    def test_many_at_once_all_stay(self):
        count = scaled(24, 8)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            tokens = list(pool.map(lambda i: self.token("t%d" % i, "--role", "ids"), range(count)))
        self.assertEqual(len(set(tokens)), count)
        rows = json.loads(self.box.ok("token", "list", "--json", *self.set()))["tokens"]
        self.assertEqual({row["name"] for row in rows}, {"t%d" % i for i in range(count)})
        self.assertEqual(os.listdir(os.path.dirname(self.tokens_file)).count("tokens"), 1)
        self.assertFalse([name for name in os.listdir(os.path.dirname(self.tokens_file)) if name.endswith(".new")])

    def test_a_draft_that_a_killed_command_left_is_replaced(self):
        drafts = []

        def leave_a_draft():
            drafts.append("%s.%d.new" % (self.tokens_file, os.getpid()))
            with open(drafts[0], "w", encoding="utf-8") as file:
                file.write("half a li")

        result = self.box.run(["token", "add", "a", "--role", "ids", *self.set()], preexec_fn=leave_a_draft)
        self.assertEqual(result.rc, 0, result.err)
        self.assertIn("a  ", self.box.ok("token", "list", *self.set()))
        self.assertEqual(os.listdir(self.box.dir).count("tokens"), 1)
        self.assertFalse([name for name in os.listdir(self.box.dir) if name.endswith(".new")])

    def test_thousands_of_tokens_and_no_more_than_are_read_again(self):
        line = "t%04d-" + "x" * 50 + " roles=ids tags=* sha256=%064x\n"
        text = "".join(line % (i, i) for i in range(7000))
        self.box.write("tokens", text)
        token = self.token("one-more", "--role", "ids", "--tags", "pay")
        daemon = self.serve()
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay", token), 200)
        self.box.write("tokens", text + "#" * (1048576 - len(text) - 10) + "\n")
        for dry in ([], ["--dry-run"]):
            result = self.box.run(["token", "add", "too-much", "--role", "ids", *dry, *self.set()])
            self.check(result, 11, "no room for token too-much", "1048576 bytes")
        self.assertNotIn("File too large", self.box.run(["doctor", *self.set()]).out)
        with open(self.tokens_file, encoding="utf-8") as file:
            self.assertNotIn("too-much", file.read())
        self.box.ok("token", "remove", "t0000-" + "x" * 50, *self.set())
        self.box.write("tokens", text + "#" * (1048577 - len(text)))
        self.check(self.box.run(["token", "list", *self.set()]), 6, "tokens", "File too large")

    def test_a_file_that_others_can_read_is_refused(self):
        self.token("a", "--role", "ids")
        os.chmod(self.tokens_file, 0o644)
        for args in (("serve", "--listen", "127.0.0.1:0"), ("token", "list"), ("token", "add", "b", "--role", "ids")):
            self.check(self.box.run([*args, *self.set()]), 6, "tokens", "its mode 0644 gives other users access")
        found = self.box.run(["doctor", *self.set()])
        self.assertIn("its mode 0644 gives other users access", found.out + found.err)

    def test_a_broken_file_is_named_with_its_line(self):
        self.box.write("tokens", "a roles=ids sha256=%s\nb roles=root sha256=%s\n" % ("a" * 64, "b" * 64))
        for args in (("serve", "--listen", "127.0.0.1:0"), ("token", "list")):
            self.check(self.box.run([*args, *self.set()]), 6, "tokens: line 2: bad role 'root'")


class Http(AccessTest):
    def test_who_may_do_what(self):
        ids = self.token("ids", "--role", "ids", "--tags", "order*")
        read = self.token("read", "--role", "read")
        admin = self.token("admin", "--role", "admin")
        daemon = self.serve()
        expected = {  # without a token, ids, read, admin
            ("GET", "/v1/segment/order"): (401, 200, 403, 200),
            ("GET", "/v1/segment/pay"): (401, 403, 403, 200),
            ("GET", "/api/segment/get/order"): (401, 200, 403, 200),
            ("GET", "/api/segment/get/pay"): (401, 403, 403, 200),
            ("GET", "/v1/snowflake"): (401, 403, 403, 200),
            ("GET", "/v1/status"): (401, 403, 200, 200),
            ("GET", "/metrics"): (401, 403, 200, 200),
            ("GET", "/v1/segment/order/mark"): (401, 403, 200, 200),
            ("GET", "/cache"): (401, 403, 200, 200),
            ("GET", "/v1/decode/1"): (401, 403, 200, 200),
            ("POST", "/v1/segment/pay/pause"): (401, 403, 403, 200),
            ("POST", "/v1/segment/pay/resume"): (401, 403, 403, 200),
            ("GET", "/health/live"): (200, 200, 200, 200),
            ("GET", "/health/ready"): (200, 200, 200, 200),
            ("GET", "/v1/clock"): (200, 200, 200, 200),
            ("GET", "/"): (200, 200, 200, 200),
            ("GET", "/v1/nosuch"): (404, 404, 404, 404),
        }
        for (method, path), statuses in expected.items():
            found = tuple(self.status_of(daemon, path, token, method) for token in (None, ids, read, admin))
            self.assertEqual(found, statuses, path)

        refused = daemon.get("/v1/segment/pay")
        self.assertEqual(refused.headers.get_all("WWW-Authenticate"),
                         ['Bearer realm="leafctl"', 'Basic realm="leafctl", charset="UTF-8"'])  # fmt: skip
        self.assertEqual(json.loads(refused.body)["code"], "permission")
        scripted = daemon.get("/v1/segment/pay", {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"})
        self.assertEqual(scripted.headers.get_all("WWW-Authenticate"), ['Bearer realm="leafctl"'])
        leaf = json.loads(daemon.get("/api/segment/get/pay").body)
        self.assertEqual((leaf["status"], leaf["error"], leaf["path"]), (401, "Unauthorized", "/api/segment/get/pay"))
        self.assertEqual(list(leaf)[:3], ["timestamp", "status", "error"])
        basic = base64.b64encode(("prometheus:" + read).encode()).decode()
        self.assertEqual(daemon.get("/metrics", {"Authorization": "Basic " + basic}).status, 200)

    def test_wrong_credentials(self):
        token = self.token("ids", "--role", "ids")
        daemon = self.serve()
        for value in ("Bearer", "Bearer ", "Bearer " + token[:-1], "Bearer " + token + "x", "Bearer x" * 500, "Basic",
                      "Basic !", "Basic " + base64.b64encode(token.encode()).decode(), "Digest " + token, token,
                      "Bearer " + "y" * 15_000, "Bearer \xe4", "Bearer %s %s" % (token, token)):  # fmt: skip
            response = daemon.get("/v1/segment/pay", {"Authorization": value.encode("latin-1")})
            self.assertEqual(response.status, 401, value[:50])
            self.assertEqual(daemon.get("/health/live", {"Authorization": value.encode("latin-1")}).status, 200)
        with daemon.raw() as raw:
            twice = "Authorization: Bearer " + token
            raw.send("GET /v1/segment/pay HTTP/1.1\r\nHost: x\r\n%s\r\n%s\r\n\r\n" % (twice, twice))
            self.assertEqual(raw.response().status, 400)
        # On one connection each request stands for itself.
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay", token), 200)
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay"), 401)
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay", token), 200)
        # Nothing was taken by all those that were refused.
        self.assertEqual(json.loads(daemon.get("/v1/segment/pay", bearer(token)).body)["ids"], ["3"])

    def test_the_same_request_is_checked_each_time(self):
        """A request that comes again is not read again. Its caller and the limits count each time."""
        config = self.box.write("known.toml", "")
        self.token("any", "--role", "ids")  # makes the file
        daemon = self.serve("--config", config)
        for path in ("/api/segment/get/pay", "/v1/segment/pay?count=3", "/v1/segment/pay?count=3&form=range"):
            with self.subTest(path=path):
                self.check_each_time(daemon, path)

    def check_each_time(self, daemon, path):
        token = self.token("billing", "--role", "ids", "--tags", "pay")
        self.reload(daemon)
        request = "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % (path, token)
        with daemon.raw() as raw:

            def ask(times):
                raw.send(request * times)
                return [raw.response().status for _ in range(times)]

            def configure(text):
                self.box.write("known.toml", text)
                self.reload(daemon)

            self.assertEqual(ask(5), [200] * 5)
            raw.send(request.replace(token, token[:-1] + ("B" if token.endswith("A") else "A")))
            self.assertEqual(raw.response().status, 401)
            raw.send(request.replace("/pay", "/order"))
            self.assertEqual(raw.response().status, 403)
            self.assertEqual(ask(3), [200] * 3)
            configure("[server]\nmax_tag_requests_per_second = 1\n")
            self.assertIn(429, ask(30))
            configure("[server]\nmax_count = 2\n")
            self.assertEqual(ask(3), [413 if "count=3" in path else 200] * 3)
            configure("")
            self.assertEqual(ask(30), [200] * 30)
            self.box.ok("token", "remove", "billing", "--yes", *self.set())
            limited = self.token("few", "--role", "ids", "--ids-per-second", "5")
            self.reload(daemon)
            self.assertEqual(ask(2), [401] * 2)
            request = request.replace(token, limited)
            self.assertIn(429, ask(30))
        self.box.ok("token", "remove", "few", "--yes", *self.set())

    def test_snowflake_ids_are_a_right_of_their_own(self):
        """Also on Leaf's route, whose name is no tag."""
        without = self.token("without", "--role", "ids", "--tags", "pay")
        more = self.token("more", "--role", "ids", "--tags", "pay", "--snowflake")
        daemon = self.serve()
        for path in ("/v1/snowflake", "/api/snowflake/get/pay", "/api/snowflake/get/x"):
            for _ in range(2):
                self.assertEqual(self.status_of(daemon, path, without), 403, path)
                self.assertEqual(self.status_of(daemon, path, more), 200, path)

    def test_a_limit_of_ids_a_second(self):
        token = self.token("few", "--role", "ids", "--ids-per-second", "50")
        daemon = self.serve()
        refused = daemon.get("/v1/segment/pay?count=51", bearer(token))
        self.assertEqual((refused.status, json.loads(refused.body)["max_count"]), (413, 50))
        began = time.monotonic()
        answers = [self.status_of(daemon, "/v1/segment/pay?count=50", token) for _ in range(scaled(400, 100))]
        seconds = time.monotonic() - began
        self.assertEqual(answers[0], 200)
        self.assertLessEqual(set(answers), {200, 429})
        self.assertLessEqual(50 * answers.count(200), 50 * (seconds + 1))

    def test_anonymous_callers(self):
        self.token("ids", "--role", "ids")
        daemon = self.serve("--set", "auth.anonymous=read")
        self.assertEqual(self.status_of(daemon, "/v1/status"), 200)
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay"), 401)
        self.assertEqual(self.status_of(daemon, "/v1/status", "leaf_wrong"), 401)
        for value, text in (("admin", "never admin"), ("ids,root", "neither ids nor read")):
            result = self.box.run(["config", "check", "--set", "auth.anonymous=" + value])
            self.assertNotEqual(result.rc, 0)
            self.assertIn(text, result.err)
        shown = self.box.ok("config", "show", *self.set())
        self.assertRegex(shown, r"anonymous = \[\]")

    def test_open_daemons_say_so(self):
        def warnings(*args):
            daemon = self.box.serve(*args, listen=("0.0.0.0:0",))
            daemon.terminate()
            return len(re.findall("without a token", daemon.log()))

        self.assertEqual(warnings(), 1)
        self.assertEqual(warnings("--set", "auth.anonymous=ids,read"), 0)
        self.token("a", "--role", "ids")
        self.assertEqual(warnings(*self.set()), 0)
        found = self.box.run(["doctor", "--set", "server.listen=0.0.0.0:18080"]).out
        self.assertIn("no token is asked for", found)

    def test_a_reload_that_opens_a_daemon_says_so(self):
        def configure(*lines):
            return self.box.write("leafctl.toml", "\n".join(["[auth]", *lines]) + "\n")

        daemon = self.box.serve("--config", configure('anonymous = ["ids", "read"]'), listen=("0.0.0.0:0",))
        is_open = lambda: daemon.status()["access"]["open"]  # noqa: E731
        self.assertFalse(is_open())
        self.assertNotIn("without a token", daemon.log())
        configure()
        self.reload(daemon)
        self.assertTrue(is_open())
        daemon.wait_log("other machines can take IDs and read the status of this daemon without a token")
        configure('anonymous = ["ids", "read"]')
        self.reload(daemon)
        self.assertFalse(is_open())

    def test_a_configuration_that_is_gone_for_a_moment_opens_nothing(self):
        """It was looked for, and found. A reload that looked for it again would find none, which means defaults."""
        self.token("a", "--role", "ids")
        folder = os.path.join(self.box.home, ".config", "leafctl")
        os.makedirs(folder)
        path = os.path.join(folder, "leafctl.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write('[auth]\ntokens_file = "%s"\n' % self.tokens_file)
        daemon = self.box.serve()
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay"), 401)
        os.rename(path, path + ".new")
        daemon.signal(signal.SIGHUP)
        daemon.wait_log("reload failed, the old settings stay in force: .*cannot read %s" % re.escape(path))
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay"), 401)
        self.assertEqual(self.status_of(daemon, "/v1/status"), 401)
        os.rename(path + ".new", path)
        self.reload(daemon)
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay"), 401)

    def test_a_reload_under_load_loses_no_request(self):
        stays = self.token("stays", "--role", "ids")
        goes = self.token("goes", "--role", "ids")
        daemon = self.serve()
        stop = threading.Event()
        statuses = []

        def load():
            while not stop.is_set():
                statuses.append(self.status_of(daemon, "/v1/segment/pay", stays))
            daemon.disconnect()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            loads = [pool.submit(load) for _ in range(4)]
            try:
                self.assertEqual(self.status_of(daemon, "/v1/segment/pay", goes), 200)
                for i in range(scaled(20, 5)):
                    self.token("t%d" % i, "--role", "read")
                    self.reload(daemon)
                self.box.ok("token", "remove", "goes", *self.set())
                self.reload(daemon)
                self.assertEqual(self.status_of(daemon, "/v1/segment/pay", goes), 401, "on its open connection")
                # A file that is broken leaves the tokens as they are.
                with open(self.tokens_file, "a", encoding="utf-8") as file:
                    file.write("broken\n")
                daemon.signal(signal.SIGHUP)
                daemon.wait_log("reload failed, the old settings stay in force: .*roles is missing")
                answered = len(statuses)
                poll(lambda: len(statuses) > answered + 50, "50 answers since")
            finally:
                stop.set()
            # A request that was cut off raised there.
            for each in loads:
                each.result()
        self.assertEqual(set(statuses), {200})

    def test_pages_of_other_sites(self):
        token = self.token("admin", "--role", "admin")
        daemon = self.serve()
        own = "http://127.0.0.1:%d" % daemon.port
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Sec-Fetch-Site": "none"}, 200),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": own}, 200),
            ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, 200),
            # A proxy may have changed the Host field; the browser knows better.
            ({"Origin": "https://ids.example", "Sec-Fetch-Site": "same-origin"}, 200),
        ):
            for method, path in (("GET", "/v1/segment/pay"), ("GET", "/api/segment/get/pay"), ("GET", "/v1/snowflake"),
                                 ("POST", "/v1/segment/order/pause"), ("POST", "/v1/segment/order/resume")):  # fmt: skip
                self.assertEqual(self.status_of(daemon, path, token, method, **headers), status, (headers, path))
            self.assertEqual(self.status_of(daemon, "/v1/status", token, **headers), 200, headers)
        named = self.serve("--set", "server.allowed_hosts=ids.example", "--set", "state_dir=" + self.box.path("s2"),
                           "--set", "sqlite.path=" + os.path.join(self.box.state, "leaf.db"))  # fmt: skip
        self.assertEqual(self.status_of(named, "/v1/segment/pay", token, Origin="https://ids.example"), 200)
        self.assertEqual(self.status_of(named, "/v1/segment/pay", token, Origin="https://ids.example.org"), 403)


class Doors(AccessTest):
    def test_admin_listen(self):
        token = self.token("admin", "--role", "admin")
        daemon = self.serve("--set", "server.admin_listen=127.0.0.1:0")
        ports = [int(port) for port in re.findall(r"listening on http://127\.0\.0\.1:(\d+)", daemon.log())]
        self.assertEqual(len(ports), 2)
        inside = dict(zip(("public", "admin"), ports))
        for path, public in (("/metrics", 404), ("/", 404), ("/v1/status", 404), ("/v1/workers", 404), ("/cache", 404),
                             ("/v1/segment/pay/advice", 404), ("/v1/segment/pay", 200), ("/health/ready", 200),
                             ("/v1/segment/pay/mark", 200), ("/v1/clock", 200)):  # fmt: skip
            for door, port in inside.items():
                daemon.disconnect()
                daemon.port = port
                status = self.status_of(daemon, path, token)
                self.assertEqual(status, public if door == "public" else 200, (door, path))
            self.assertEqual(over_unix(os.path.join(self.box.state, "leafctl.sock"), "GET", path)[0], 200, path)
        daemon.disconnect()
        daemon.port = inside["public"]
        self.assertEqual(self.status_of(daemon, "/v1/segment/pay/pause", token, "POST"), 404)
        self.check(self.box.run(["config", "check", "--set", "server.listen=127.0.0.1:8080",
                                 "--set", "server.admin_listen=127.0.0.1:8080"]), 6, "server.admin_listen")  # fmt: skip

    def test_half_sent_bodies_at_the_public_door_take_no_room_from_operators(self):
        token = self.token("admin", "--role", "admin")
        # One thread: it has read what clients sent before, once it answers a request that came later.
        daemon = self.serve("--set", "server.admin_listen=127.0.0.1:0", "--set", "server.threads=1")
        public, admin = re.findall(r"listening on http://127\.0\.0\.1:(\d+)", daemon.log())
        waiting = []
        try:
            for _ in range(80):
                connection = RawConnection(("127.0.0.1", int(public)))
                connection.send("POST /v1/tags HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n" + "x" * 5000)
                waiting.append(connection)
            daemon.disconnect()
            daemon.port = int(public)
            self.assertEqual(self.status_of(daemon, "/health/live"), 200)
            daemon.disconnect()
            daemon.port = int(admin)
            answer = daemon.request("POST", "/v1/tags", '{"tag":"mail"' + " " * 5000 + "}",
                                    {"Content-Type": "application/json", **bearer(token)})  # fmt: skip
            self.assertEqual(answer.status, 201, answer.body)
            # A body that arrives whole is for no route there, long or short.
            waiting[0].send("x" * 55000)
            self.assertEqual(waiting[0].response().status, 404)
        finally:
            for connection in waiting:
                connection.close()

    def test_the_unix_socket_knows_users(self):
        self.token("ids", "--role", "ids")
        path = self.box.path("users.sock")
        daemon = self.serve("--socket", path)
        self.assertEqual(over_unix(path, "GET", "/v1/segment/pay")[0], 200)
        self.assertEqual(over_unix(path, "POST", "/v1/segment/order/pause")[0], 200)
        self.assertEqual(over_unix(path, "POST", "/v1/segment/order/pause", {"Origin": "http://evil.example"})[0], 403)
        self.box.ok("tag", "resume", "order", "--server", "unix:" + path)
        if os.geteuid() != 0:
            return
        # Another user whom the file's mode lets in: takes IDs and reads, and changes nothing.
        self.box.open_to_others()
        os.chmod(path, 0o777)
        found = []
        for method, target in (("GET", "/v1/segment/pay"), ("GET", "/v1/status"), ("POST", "/v1/segment/pay/pause")):
            answer = subprocess.run(
                ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, "--unix-socket", path,
                 "http://localhost" + target], preexec_fn=become_nobody, check=True, capture_output=True, text=True,
                timeout=DEADLINE_S)  # fmt: skip
            found.append(answer.stdout)
        self.assertEqual(found, ["200", "200", "403"])
        daemon.terminate()

    def test_the_public_socket_has_the_rules_of_tcp(self):
        token = self.token("admin", "--role", "admin")
        path = self.box.path("public.sock")
        self.serve("--set", "server.socket_public=" + path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o666)
        self.assertEqual(over_unix(path, "GET", "/v1/segment/pay")[0], 401)
        self.assertEqual(over_unix(path, "GET", "/health/live")[0], 200)
        self.assertEqual(over_unix(path, "POST", "/v1/segment/pay/pause")[0], 401)
        self.assertEqual(over_unix(path, "POST", "/v1/segment/pay/pause", bearer(token))[0], 200)

    def test_a_public_socket_without_tokens_changes_nothing(self):
        path = self.box.path("public.sock")
        self.box.serve("--set", "server.socket_public=" + path)
        self.assertEqual(over_unix(path, "GET", "/v1/segment/pay")[0], 200)
        self.assertEqual(over_unix(path, "POST", "/v1/segment/pay/pause")[0], 403)


class Redis(AccessTest):
    def connect(self, daemon):
        connection = Resp(int(daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)").group(1)))
        self.addCleanup(connection.close)
        return connection

    def refused(self, redis, word, *command):
        reply = redis.ask(*command)
        self.assertIsInstance(reply, ReplyError, command)
        self.assertEqual(reply.word, word, reply)

    def test_auth_and_hello(self):
        ids = self.token("ids", "--role", "ids", "--tags", "order*")
        read = self.token("read", "--role", "read")
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        redis = self.connect(daemon)
        for command in (("PING",), ("INCR", "order"), ("INFO",), ("COMMAND", "COUNT"), ("MULTI",), ("HELLO", "3"),
                        ("CLIENT", "ID")):  # fmt: skip
            self.refused(redis, "NOAUTH", *command)
        for command in (("AUTH", "wrong"), ("AUTH", "read", ids), ("AUTH", "nosuch", ids), ("AUTH", "default", ""),
                        ("HELLO", "3", "AUTH", "default", "wrong")):  # fmt: skip
            self.refused(redis, "WRONGPASS", *command)
        self.refused(redis, "NOAUTH", "INCR", "order")
        self.assertEqual(redis.ask("AUTH", ids), "OK")
        self.assertEqual(redis.ask("INCR", "order"), 1)
        self.refused(redis, "NOPERM", "INCR", "pay")
        self.refused(redis, "NOPERM", "LEAF.SNOWFLAKE")
        self.refused(redis, "NOPERM", "GET", "order")
        self.assertIn("user=ids", redis.ask("CLIENT", "INFO"))
        self.refused(redis, "WRONGPASS", "AUTH", "wrong")
        self.assertEqual(redis.ask("INCR", "order"), 2, "a try that fails leaves what was")
        self.assertEqual(redis.ask("MULTI"), "OK")
        redis.ask("INCR", "order")
        redis.ask("INCR", "pay")
        replies = redis.ask("EXEC")
        self.assertEqual(replies[0], 3)
        self.assertTrue(str(replies[1]).startswith("NOPERM"), replies)
        self.assertEqual(redis.ask("AUTH", "read", read), "OK")
        self.assertEqual(redis.ask("GET", "order"), "3")
        self.refused(redis, "NOPERM", "INCR", "order")
        redis.ask("RESET")
        self.refused(redis, "NOAUTH", "PING")

        three = self.connect(daemon)
        self.assertTrue(three.ask("HELLO", "3", "AUTH", "default", ids))
        self.assertEqual(three.ask("INCR", "order"), 4)

    def test_exec_asks_again_what_the_token_may(self):
        """What was queued while it might is refused once it may not."""
        path = self.tokens_file
        token = self.token("some", "--role", "ids,read")
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        redis = self.connect(daemon)
        self.assertEqual(redis.ask("AUTH", token), "OK")
        for command in (("MULTI",), ("INCR", "pay"), ("LEAF.SNOWFLAKE", "3"), ("GET", "pay"), ("PING",)):
            redis.ask(*command)
        with open(path, encoding="utf-8") as file:
            lines = file.read()
        self.assertIn("roles=ids,read", lines)
        with open(path, "w", encoding="utf-8") as file:
            file.write(lines.replace("roles=ids,read", "roles=read"))
        self.reload(daemon)
        replies = redis.ask("EXEC")
        self.assertTrue(str(replies[0]).startswith("NOPERM"), replies)
        self.assertTrue(str(replies[1]).startswith("NOPERM"), replies)
        self.assertEqual(replies[2:], [None, "PONG"])
        redis.ask("MULTI")
        redis.ask("GET", "pay")
        with open(path, "w", encoding="utf-8") as file:
            file.write(lines.replace("roles=ids,read", "roles=ids"))
        self.reload(daemon)
        self.assertTrue(str(redis.ask("EXEC")[0]).startswith("NOPERM"))
        self.assertEqual(redis.ask("INCR", "pay"), 1)

    def test_a_transaction_ends_with_an_exec_that_is_refused(self):
        token, other = self.token("ids", "--role", "ids"), self.token("other", "--role", "ids")
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        redis = self.connect(daemon)
        redis.ask("AUTH", token)
        redis.ask("MULTI")
        redis.ask("INCR", "pay")
        self.box.ok("token", "remove", "ids", *self.set())
        self.reload(daemon)
        self.refused(redis, "NOAUTH", "EXEC")
        self.assertEqual(redis.ask("AUTH", other), "OK")
        self.assertEqual(redis.ask("EXEC"), "ERR EXEC without MULTI")
        self.assertEqual(redis.ask("INCR", "pay"), 1)
        redis.ask("MULTI")
        redis.ask("INCR", "pay")
        self.refused(redis, "ERR", "EXEC", "what")
        self.assertEqual(redis.ask("EXEC"), "ERR EXEC without MULTI")
        self.assertEqual(redis.ask("INCR", "pay"), 2)

    def test_a_token_that_goes_ends_on_an_open_connection(self):
        token = self.token("ids", "--role", "ids")
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        redis = self.connect(daemon)
        redis.ask("AUTH", token)
        self.assertEqual(redis.ask("INCR", "pay"), 1)
        self.token("other", "--role", "ids")
        self.reload(daemon)
        self.assertEqual(redis.ask("INCR", "pay"), 2)
        self.box.ok("token", "remove", "ids", *self.set())
        self.reload(daemon)
        self.refused(redis, "NOAUTH", "INCR", "pay")

    def test_clients(self):
        token = self.token("ids", "--role", "ids")
        daemon = self.serve("--redis-listen", "127.0.0.1:0")
        port = int(daemon.wait_log(r"listening on redis://127\.0\.0\.1:(\d+)").group(1))
        for args in (("-a", token), ("--user", "ids", "--pass", token), ("-3", "-a", token)):
            answer = subprocess.run(["redis-cli", "-p", str(port), "--no-auth-warning", *args, "INCR", "pay"], check=True,
                                    capture_output=True, text=True, timeout=DEADLINE_S)  # fmt: skip
            self.assertRegex(answer.stdout, r"\A(\(integer\) )?\d+\n\Z", answer)
        path = self.box.write("t", token + "\n")
        env = {"LEAFCTL_CLIENT_TOKEN_FILE": path}
        server = "redis://127.0.0.1:%d" % port
        self.assertEqual(self.box.ok("next", "pay", "--server", server, env=env), "4\n")
        self.check(self.box.run(["next", "pay", "--server", server]), PERMISSION, "Authentication required")


class OwnClients(AccessTest):
    """leafctl's own commands show client.token_file."""

    def test_each_command(self):
        admin = self.box.write("admin.token", self.token("admin", "--role", "admin"))
        ids = self.box.write("ids.token", self.token("ids", "--role", "ids"))
        daemon = self.serve()
        calls = {
            ("next", "pay"): "ids",
            ("status",): "read",
            ("tag", "pause", "order"): "admin",
            ("tag", "resume", "order"): "admin",
            ("bench", "--tag", "pay", "--duration", "200ms"): "ids",
        }
        for call, role in calls.items():
            where = (daemon.url,) if call[0] == "bench" else ("--server", daemon.url)
            allowed = self.box.run([*call, *where], env={"LEAFCTL_CLIENT_TOKEN_FILE": admin})
            self.assertEqual(allowed.rc, 0, (call, allowed.err))
            refused = self.box.run([*call, *where])
            self.assertEqual(refused.rc, PERMISSION, (call, refused.err))
            self.assertIn("a token with role %s is needed" % role if call[0] != "bench" else "token", refused.err)
            if role != "ids":
                lacking = self.box.run([*call, *where], env={"LEAFCTL_CLIENT_TOKEN_FILE": ids})
                self.check(lacking, PERMISSION, "token ids lacks role " + role)
        os.chmod(ids, 0o644)
        self.check(self.box.run(["next", "pay", "--server", daemon.url], env={"LEAFCTL_CLIENT_TOKEN_FILE": ids}), 6,
                   "its mode 0644 gives other users access")  # fmt: skip
        self.check(self.box.run(["next", "pay", "--server", daemon.url], env={
            "LEAFCTL_CLIENT_TOKEN_FILE": self.box.write("two", "a b\n")}), 6, "does not hold one token")  # fmt: skip


class Page(AccessTest):
    """The dashboard in a browser."""

    def setUp(self):
        super().setUp()
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def until(self, predicate, what):
        poll(predicate, what + "; the page says: %r" % self.browser.text("body"), 120, 0.1)

    def sign_in(self, token):
        self.browser.run("document.querySelector('#token').value = arguments[0];"
                         "document.querySelector('#sign-in').requestSubmit();", token)  # fmt: skip

    def test_signs_in_reads_pauses_and_signs_out(self):
        read = self.token("read", "--role", "read")
        admin = self.token("admin", "--role", "admin")
        daemon = self.serve()
        browser = self.browser
        browser.open(daemon.url + "/")
        self.until(lambda: "a token with role read is needed" in browser.text("#sign-in"), "asked to sign in")
        self.assertNotIn("pay", browser.text("body"))
        self.sign_in("leaf_wrong")
        self.until(lambda: "unknown token" in browser.text("#sign-in"), "refused")
        self.sign_in(read)
        self.until(lambda: browser.text("#live") == "live", "signed in")
        names = "return [...document.querySelectorAll('#rows td.name')].map(e => e.textContent).sort();"
        self.assertEqual(browser.run(names), ["order", "pay"])
        press = ("window.confirm = () => true;"
                 "document.querySelector('#rows button.change[data-tag=pay]').click();")  # fmt: skip
        browser.run(press)
        self.until(lambda: "token read lacks role admin" in browser.text("#changed"), "may not pause")
        browser.run("document.querySelector('#sign-out').click();")
        self.until(lambda: "a token with role read is needed" in browser.text("#sign-in"), "signed out")
        self.sign_in(admin)
        self.until(lambda: browser.text("#live") == "live", "signed in as admin")
        browser.run(press)
        self.until(lambda: browser.text("#changed") == "Tag pay is paused.", "paused")
        self.until(lambda: browser.run("return document.querySelector('#rows button.change[data-tag=pay]').textContent;")
                   == "Resume", "shown")  # fmt: skip
        browser.run(press)
        self.until(lambda: browser.text("#changed") == "Tag pay is served again.", "resumed")
        # Kept in memory only.
        kept = browser.run("return [localStorage.length, sessionStorage.length, document.cookie];")
        self.assertEqual(kept, [0, 0, ""])
        browser.open(daemon.url + "/")
        self.until(lambda: "a token with role read is needed" in browser.text("#sign-in"), "forgotten")

    def test_another_site_takes_nothing(self):
        """Without tokens, as on a developer's machine: a page elsewhere may not use up IDs, nor pause a tag."""
        daemon = self.box.serve()
        attack = (
            "<script>const url = 'http://127.0.0.1:%d';"
            "Promise.allSettled([fetch(url + '/v1/segment/pay', {mode: 'no-cors'}),"
            "fetch(url + '/api/segment/get/pay', {mode: 'no-cors'}),"
            "fetch(url + '/v1/segment/pay/pause', {mode: 'no-cors', method: 'POST'})]).then(() => {"
            "const image = new Image(); image.onerror = () => document.title = 'tried';"
            "image.src = url + '/v1/segment/pay?x=1'; });</script>" % daemon.port
        )
        page = self.box.write("evil.html", attack)
        self.browser.open("file://" + page)
        self.until(lambda: self.browser.run("return document.title;") == "tried", "the page has tried")
        self.assertEqual(daemon.ids("pay"), [1])
        self.assertEqual(daemon.status()["segment"]["paused"], [])


class Scraped(AccessTest):
    def test_prometheus_with_a_token(self):
        if shutil.which("prometheus") is None:
            self.fail("prometheus is not installed")
        token = self.box.write("scrape.token", self.token("prometheus", "--role", "read"))
        daemon = self.serve()
        config = self.box.write("prometheus.yml", json.dumps({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": "with", "authorization": {"credentials_file": token},
                 "static_configs": [{"targets": ["127.0.0.1:%d" % daemon.port]}]},
                {"job_name": "basic", "basic_auth": {"username": "x", "password_file": token},
                 "static_configs": [{"targets": ["127.0.0.1:%d" % daemon.port]}]},
                {"job_name": "without", "static_configs": [{"targets": ["127.0.0.1:%d" % daemon.port]}]},
            ]}))  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        prometheus = subprocess.Popen(
            ["prometheus", "--config.file", config, "--storage.tsdb.path", self.box.path("tsdb"),
             "--web.listen-address", "127.0.0.1:%d" % port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(prometheus.wait)
        self.addCleanup(prometheus.kill)

        def up():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
            try:
                connection.request("GET", "/api/v1/query?query=up")
                response = connection.getresponse()
                body = response.read()
            except OSError:
                return {}
            finally:
                connection.close()
            if response.status != 200:
                return {}  # it starts
            return {row["metric"]["job"]: row["value"][1] for row in json.loads(body)["data"]["result"]}

        poll(lambda: up() == {"with": "1", "basic": "1", "without": "0"}, "scraped with the token only")


if __name__ == "__main__":
    main()
