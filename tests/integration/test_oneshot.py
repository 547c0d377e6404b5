#!/usr/bin/env python3
"""What starting the binary loads: nothing that the call does not need, and MySQL's client library only for MySQL.

Environment:
  LEAFCTL_TEST_STATIC  1 if the binary was linked as releases are (LEAF_STATIC)
"""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from certificates import Authority  # noqa: E402
from leafctl import BINARY, LeafTest, main, poll  # noqa: E402

STATIC = os.environ.get("LEAFCTL_TEST_STATIC") == "1"
# Part of every process.
C_LIBRARY = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MYSQL_LIBRARY = "libmariadb.so.3"
TLS_LIBRARY = "libssl.so.3"
# No server listens on port 1.
MYSQL = ("--set", "segment.store=mysql", "--set", "mysql.endpoints=127.0.0.1:1")


def needed():
    """What the binary itself asks the loader for."""
    text = subprocess.run(
        ["readelf", "--dynamic", "--wide", BINARY], check=True, capture_output=True, text=True
    ).stdout
    return text, set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))


# scripts/weather.sh
PRELOADED = {os.path.basename(path) for path in os.environ.get("LD_PRELOAD", "").split()}


class Start(LeafTest):
    def loaded(self, *args):
        """The result of a call, and the names of all libraries that it loaded, sooner or later."""
        folder = self.box.path("loader")
        os.makedirs(folder)
        result = self.box.run(
            list(args), env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": os.path.join(folder, "files")}
        )
        names = set()
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                names.update(
                    os.path.basename(path) for path in re.findall(r"calling init: (\S+)$", file.read(), re.MULTILINE)
                )
        shutil.rmtree(folder)
        self.assertIn("libc.so.6", names)
        return result, names

    def assert_no_database(self, names):
        found = [name for name in names if re.search(r"mariadb|mysql|libssl|libcrypto", name)]
        self.assertEqual(found, [])
        if STATIC:
            self.assertEqual(names - C_LIBRARY - PRELOADED, set())

    def test_what_the_binary_needs(self):
        text, names = needed()
        self.assertIn("libc.so.6", names)
        self.assertNotIn(MYSQL_LIBRARY, names)
        # It can be copied anywhere, alone.
        self.assertNotRegex(text, r"\((RPATH|RUNPATH)\)")
        if STATIC:
            self.assertEqual(names - C_LIBRARY - PRELOADED, set())

    def test_a_call_that_a_daemon_answers_loads_no_database(self):
        self.box.ok("tag", "add", "pay")
        self.box.serve()
        result, names = self.loaded("next", "pay", "-v")
        self.check(result, 0, "answered by unix:")
        self.assert_no_database(names)

    def test_nor_does_one_on_sqlite(self):
        self.box.ok("tag", "add", "pay")
        result, names = self.loaded("next", "pay", "--direct")
        self.check(result, 0)
        self.assertEqual(result.out, "1\n")
        self.assert_no_database(names)

    def test_mysql_loads_its_library(self):
        result, names = self.loaded("next", "pay", "--direct", *MYSQL)
        self.check(result, 8, "127.0.0.1:1")
        self.assertIn(MYSQL_LIBRARY, names)

    def test_a_daemon_without_tls_does_not_load_it(self):
        daemon = self.box.serve()
        with open("/proc/%d/maps" % daemon.process.pid, encoding="utf-8") as maps:
            self.assertNotRegex(maps.read(), "libssl|libcrypto")

    def test_tls_loads_its_library(self):
        cert, key = Authority(self.box.path("pki")).issue("server")
        files = ("--set", "server.tls_cert=" + cert, "--set", "server.tls_key=" + key)
        daemon = self.box.serve(*files, listening=False)
        daemon.wait_log("listening on https://")
        with open("/proc/%d/maps" % daemon.process.pid, encoding="utf-8") as maps:
            self.assertIn(TLS_LIBRARY, maps.read())
        # And without it the package is named.
        folder = self.box.path("libraries")
        os.makedirs(folder)
        self.box.write(os.path.join("libraries", TLS_LIBRARY), "")
        result = self.box.run(["config", "check", *files], env={"LD_LIBRARY_PATH": folder})
        self.check(result, 6, TLS_LIBRARY)
        self.assertIn("libssl3", result.err)

    def without_mysql(self):
        """The environment of a machine where MySQL's client library is of no use."""
        folder = self.box.path("libraries")
        os.makedirs(folder, exist_ok=True)
        self.box.write(os.path.join("libraries", MYSQL_LIBRARY), "")
        return {"LD_LIBRARY_PATH": folder}

    def test_without_the_library_the_package_is_named(self):
        env = self.without_mysql()
        result = self.box.run(["next", "pay", "--direct", *MYSQL], env=env)
        self.check(result, 6, MYSQL_LIBRARY)
        self.assertIn("libmariadb3", result.err)
        # Everything else works.
        self.box.ok("tag", "add", "pay", env=env)
        self.assertEqual(self.box.ok("next", "pay", "--direct", env=env), "1\n")

    def test_without_the_library_a_daemon_waits_for_it(self):
        env = self.without_mysql()
        daemon = self.box.serve(*MYSQL, "--set", "snowflake.enabled=false", ready=False, env=env)
        poll(lambda: MYSQL_LIBRARY in daemon.get("/health/ready").body, "the reason")
        self.assertEqual(daemon.get("/health/ready").status, 503)
        # It was installed.
        os.unlink(os.path.join(env["LD_LIBRARY_PATH"], MYSQL_LIBRARY))
        poll(lambda: "127.0.0.1:1" in daemon.get("/health/ready").body, "another reason")
        self.assertEqual(daemon.terminate(), 0)


if __name__ == "__main__":
    main()
