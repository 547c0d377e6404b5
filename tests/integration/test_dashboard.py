#!/usr/bin/env python3
"""The dashboard in a headless Chromium. Screenshots go to `screenshots` beside the binary; nothing is asserted on
pixels."""

import os
import re
import signal
import socket
import sqlite3
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from browser import Browser
from leafctl import BINARY, ROOT, LeafTest, main, poll
from own_namespace import in_own_host_name
from servers import PASSWORD, MariaDb

SCREENSHOTS = os.path.join(os.path.dirname(BINARY), "screenshots")
TIMEOUT_S = 120.0
EVIL = "<script>window.leaked=1</script><img src=x onerror='window.leaked=2'>\"&amp;"
MANY_TAGS = 10_000
PAGE = 50

CSS = os.path.join(ROOT, "lib", "leaf", "server", "http", "dashboard", "dashboard.css")

browser = None


def channels(colour):
    """Red, green, blue and the share that covers what is below, of #rrggbb or #rrggbbaa."""
    values = [int(colour[i : i + 2], 16) for i in range(1, len(colour), 2)]
    return values[:3], values[3] / 255 if len(values) == 4 else 1


def painted(colour, below):
    top, share = channels(colour)
    return [share * a + (1 - share) * b for a, b in zip(top, below)]


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """As WCAG reckons it: 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def setUpModule():
    global browser
    os.makedirs(SCREENSHOTS, exist_ok=True)
    browser = Browser()


def tearDownModule():
    browser.close()


class Dashboard(LeafTest):
    def setUp(self):
        super().setUp()
        browser.resize(1280, 900)
        browser.prefer("light")
        # Whatever the test before it left open stops asking.
        self.addCleanup(browser.open, "about:blank")

    def table(self, statement, rows):
        connection = sqlite3.connect(os.path.join(self.box.state, "leaf.db"))
        connection.executemany(statement, rows)
        connection.commit()
        connection.close()

    def start(self, *args):
        return self.box.serve("--set", "segment.refresh_interval=200ms", *args)

    def open(self, daemon, path="/"):
        browser.open(daemon.url + path)
        self.until(lambda: browser.text("#live") == "live", "the first answer is shown")

    def until(self, predicate, what):
        return poll(predicate, what + "; the page says: %r" % browser.text("body"), TIMEOUT_S, 0.1)

    def names(self):
        return browser.run("return [...document.querySelectorAll('#rows td.name')].map(e => e.textContent);")

    def cells(self, tag):
        """The texts of a tag's row; None without one."""
        return browser.run(
            "const row = [...document.querySelectorAll('#rows tr')].find(r => r.cells[0].textContent === arguments[0]);"
            "return row ? [...row.cells].map(c => c.textContent) : null;", tag)  # fmt: skip

    def type(self, selector, text):
        browser.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change'));",
            selector, text)  # fmt: skip

    def click(self, selector):
        browser.run("document.querySelector(arguments[0]).click();", selector)

    def check_fits(self):
        """Nothing reaches beyond the right edge."""
        width, room = browser.run("return [document.documentElement.scrollWidth, window.innerWidth];")
        self.assertLessEqual(width, room, "the page scrolls sideways")

    def test_shows_the_node_and_follows_it(self):
        self.box.ok("tag", "add", "pay", "--step", "1000")
        self.box.ok("tag", "add", "order", "--step", "50")
        daemon = self.start()
        daemon.ids("pay", 10)
        browser.requests()
        browser.messages()
        self.open(daemon)
        self.assertEqual(browser.text("#ready"), "ready")
        self.assertIn("leafctl 0.", browser.text("#node"))
        worker = daemon.status()["snowflake"]["worker"]
        self.assertEqual(browser.text("#worker"), "worker %d · issuing" % worker)
        self.assertIn("unique in this state directory only", browser.text("#snowflake-facts"))
        self.assertIn("sqlite", browser.text("#dependencies"))
        self.assertIn("up", browser.text("#dependencies"))
        self.assertFalse(browser.run("return document.querySelector('#problems').checkVisibility();"))
        self.assertEqual(sorted(self.names()), ["order", "pay"])
        self.assertEqual(self.cells("pay")[7], "10")
        # It updates by itself, and draws.
        daemon.ids("pay", 7)
        daemon.ids("order", 3)
        self.until(lambda: self.cells("pay")[7] == "17" and self.cells("order")[7] == "3", "the new counts")
        self.until(
            lambda: browser.run("return document.querySelector('#lead-chart .line').getAttribute('d').split('L').length;")
            >= 3,
            "the chart grows",
        )
        # No other server is asked, and the policy forbids nothing that the page needs.
        urls = browser.requests()
        self.assertTrue(any("/v1/status?" in url for url in urls), urls)
        outside = [url for url in urls if not url.startswith((daemon.url + "/", "data:", "about:", "chrome:"))]
        self.assertEqual(outside, [])
        self.assertEqual([m for m in browser.messages() if m["level"] in ("SEVERE", "WARNING")], [])
        browser.screenshot(os.path.join(SCREENSHOTS, "light.png"))
        browser.prefer("dark")
        dark = browser.run("return getComputedStyle(document.body).backgroundColor;")
        browser.screenshot(os.path.join(SCREENSHOTS, "dark.png"))
        browser.prefer("light")
        light = browser.run("return getComputedStyle(document.body).backgroundColor;")
        self.assertNotEqual(dark, light)

    @in_own_host_name()
    def test_says_where_an_ordinal_is_from(self):
        socket.sethostname("leafctl-3")
        daemon = self.start("--set", "snowflake.cluster=pay", "--set", "snowflake.worker_id=ordinal")
        self.open(daemon)
        self.assertIn("3 (host name 'leafctl-3')", browser.text("#snowflake-facts"))

    def test_a_frozen_tag_stands_on_top_until_it_is_repaired(self):
        for tag in ("alpha", "beta", "gamma"):
            self.box.ok("tag", "add", tag, "--step", "100")
        daemon = self.start()
        for tag in ("alpha", "beta", "gamma"):
            daemon.ids(tag, 5)
        self.open(daemon)
        self.table("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = ?", [("gamma",)])
        self.until(lambda: "gamma" in (browser.text("#problem-list") or ""), "the frozen tag is a problem")
        self.assertIn("frozen", browser.text("#problem-list .code"))
        self.assertIn("tag repair", browser.text("#problem-list .hint"))
        self.until(lambda: self.names()[0] == "gamma", "trouble comes first")
        self.assertEqual(self.cells("gamma")[1], "frozen")
        self.assertTrue(browser.run("return document.title;").startswith("!"))
        # The others go on.
        self.assertEqual(browser.text("#ready"), "ready")
        browser.screenshot(os.path.join(SCREENSHOTS, "frozen.png"))
        self.box.ok("tag", "repair", "gamma", "--confirm", "gamma")
        self.until(lambda: not browser.run("return document.querySelector('#problems').checkVisibility();"), "all is well")
        self.assertEqual(self.cells("gamma")[1], "active")

    def problems(self):
        """The list's entries: cause → the texts of their parts."""
        return browser.run(
            "return Object.fromEntries([...document.querySelectorAll('#problem-list > li')].map(item => [item.dataset.cause,"
            "Object.fromEntries([...item.querySelectorAll('[class]')].map(e => [e.className, e.textContent]))]));")  # fmt: skip

    def test_one_problem_for_each_cause(self):
        database = MariaDb()
        self.addCleanup(database.close)
        database.sql("CREATE DATABASE leaf_dashboard CHARACTER SET utf8mb4")
        self.box.env.update(
            LEAFCTL_SEGMENT_STORE="mysql",
            LEAFCTL_MYSQL_ENDPOINTS="127.0.0.1:%d" % database.port,
            LEAFCTL_MYSQL_DATABASE="leaf_dashboard",
            LEAFCTL_MYSQL_PASSWORD_FILE=self.box.write("password", PASSWORD + "\n"),
            LEAFCTL_MYSQL_CONNECT_TIMEOUT="1s",
            LEAFCTL_MYSQL_QUERY_TIMEOUT="1s",
        )
        self.box.ok("db", "init")
        tags = ["tag-%d" % i for i in range(8)]
        for tag in (*tags, "off"):
            self.box.ok("tag", "add", tag, "--step", "1000")
        daemon = self.start("--set", "segment.step_policy=fixed")
        for tag in tags:
            daemon.ids(tag, 500)
        self.open(daemon)
        self.box.ok("tag", "pause", "off")
        self.until(lambda: list(self.problems()) == ["paused"], "the pause")
        self.assertEqual(self.problems()["paused"]["code"], "tag 'off' is paused")
        database.kill()

        def all_fail():
            for tag in daemon.status()["segment"]["tags"]:
                # Until a grant is wanted; and a few, so that they have a rate.
                if tag["reserve"] > 50:
                    daemon.v1(tag["tag"], 300 if tag["reserve"] >= 400 else 1)
            found = self.problems()
            return "database" in found and "shortest reserve" in found["database"]["extra"] \
                and "tags: tag-0, tag-1, tag-2, tag-3, tag-4 and 3 more" in found["database"]["extra"]  # fmt: skip

        self.until(all_fail, "the database is away, for all tags")
        found = self.problems()
        self.assertEqual(list(found), ["database", "paused"], "the gravest first, and one for each cause")
        self.assertEqual(found["database"]["code"], "database unreachable")
        for cause in found.values():
            self.assertRegex(cause["since"], r"^since (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$")
        self.assertRegex(found["database"]["extra"], r"^shortest reserve \S+ \S+ \(tag-\d\)")
        self.assertIn("IDs", found["database"]["effect"])
        self.assertIn("cannot", found["database"]["message quiet"])
        self.assertEqual(browser.text("#problem-count"), "2")
        self.check_fits()
        browser.screenshot(os.path.join(SCREENSHOTS, "problems.png"))
        since = found["database"]["since"].split()[-1]  # without the date, which comes with midnight
        # It goes on beginning when it began.
        browser.run("document.querySelector('[data-cause=database]').dataset.same = '1';")
        rate = browser.run("return document.querySelector('#lead-chart .line').getAttribute('d');")
        self.until(
            lambda: browser.run("return document.querySelector('#lead-chart .line').getAttribute('d');") != rate,
            "a later answer",
        )
        self.assertEqual(self.problems()["database"]["since"].split()[-1], since)
        self.assertEqual(browser.run("return document.querySelector('[data-cause=database]').dataset.same;"), "1")
        database.start()
        self.until(lambda: list(self.problems()) == ["paused"], "the database is back")
        self.assertEqual(self.cells("off")[1], "paused")

    def test_selected_text_stays_and_hints_can_be_copied(self):
        for tag in ("alpha", "beta"):
            self.box.ok("tag", "add", tag)
        daemon = self.start()
        self.open(daemon)
        self.box.ok("tag", "pause", "alpha")
        self.until(lambda: browser.text("#problem-list .hint") == "leafctl tag resume alpha", "the hint")
        self.assertFalse(browser.run("return document.querySelector('#problem-held').checkVisibility();"))
        browser.run("getSelection().selectAllChildren(document.querySelector('#problem-list .code'));")
        self.box.ok("tag", "pause", "beta")
        self.until(lambda: self.cells("beta")[1] == "paused", "the page knows of the other one")
        self.assertEqual(browser.text("#problem-list .code"), "tag 'alpha' is paused")
        self.assertEqual(browser.run("return getSelection().toString();"), "tag 'alpha' is paused")
        self.assertTrue(browser.run("return document.querySelector('#problem-held').checkVisibility();"))
        browser.run("getSelection().removeAllRanges();")
        self.until(lambda: browser.text("#problem-list .code") == "2 tags are paused", "it goes on")
        self.assertFalse(browser.run("return document.querySelector('#problem-held').checkVisibility();"))
        # What is copied is what the browser was asked to copy.
        browser.run(
            "document.addEventListener('copy', () => { window.copied = getSelection().toString(); }); window.labels = [];"
            "const button = document.querySelector('#problem-list .copy');"
            "new MutationObserver(() => window.labels.push(button.textContent)).observe(button, {childList: true});")  # fmt: skip
        browser.click("#problem-list .copy")
        self.until(lambda: browser.run("return window.copied;") == "leafctl tag resume alpha", "the hint is copied")
        self.assertEqual(browser.run("return getSelection().toString();"), "", "nothing stays selected")
        self.until(lambda: browser.run("return window.labels;") == ["copied", "copy"], "the button says so for a moment")

    def test_what_is_written_about_problems_can_be_read(self):
        with open(CSS, encoding="utf-8") as file:
            schemes = re.findall(r":root \{(.*?)\}", file.read(), re.DOTALL)
        self.assertEqual(len(schemes), 2, "light and dark")
        for number, scheme in enumerate(schemes):
            colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", scheme))
            ground, _ = channels(colours["ground"])
            list_ground = painted(colours["bad-soft"], ground)
            for name in ("text", "quiet", "bad", "warn"):
                for below in (list_ground, ground, channels(colours["panel"])[0]):
                    with self.subTest(scheme=("light", "dark")[number], colour=name, below=below):
                        self.assertGreaterEqual(contrast(channels(colours[name])[0], below), 4.5)
        # The browser paints the list in those colours.
        self.box.ok("tag", "add", "pay")
        daemon = self.start()
        self.box.ok("tag", "pause", "pay")
        self.open(daemon)
        self.until(lambda: "paused" in self.problems(), "a problem")
        used = browser.run(
            "const list = document.querySelector('#problem-list'); "
            "const probe = document.createElement('i'); document.body.append(probe);"
            "const named = ['text', 'quiet', 'bad', 'warn'].map(name => { probe.style.color = `var(--${name})`;"
            "return getComputedStyle(probe).color; });"
            "return [[...list.querySelectorAll('*')].map(e => getComputedStyle(e).color).filter(c => !named.includes(c)),"
            "[...list.querySelectorAll('*')].filter(e => getComputedStyle(e).opacity !== '1').length];")  # fmt: skip
        self.assertEqual(used, [[], 0])

    def test_a_daemon_that_goes_away_and_comes_back(self):
        self.box.ok("tag", "add", "pay")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        address = ("127.0.0.1:%d" % port,)
        daemon = self.box.serve(listen=address)
        self.open(daemon)
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        self.until(lambda: browser.text("#ready") == "no answer", "the loss is seen")
        (problem,) = self.problems().values()
        self.assertEqual(problem["code"], "no answer from the daemon")
        at = re.fullmatch(r"since ((?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d)", problem["since"]).group(1)
        self.assertIn("as it was at " + at, problem["effect"])
        self.assertIn("systemctl status leafctl", problem["hint"])
        self.assertEqual(browser.text("#live"), "as of " + at)
        self.assertEqual(self.names(), ["pay"], "what was known stays to be read")
        opacity = "return ['#tags', '.tiles', '#problems'].map(s => +getComputedStyle(document.querySelector(s)).opacity);"
        tags, tiles, problems = browser.run(opacity)
        self.assertLess(max(tags, tiles), 0.7, "it is dimmed")
        self.assertEqual(problems, 1)
        browser.screenshot(os.path.join(SCREENSHOTS, "stale.png"))
        again = self.box.serve(listen=address)
        self.until(lambda: browser.text("#ready") == "ready" and browser.text("#live") == "live", "it is seen again")
        self.assertFalse(browser.run("return document.querySelector('#problems').checkVisibility();"))
        self.assertEqual(browser.run(opacity), [1, 1, 1])
        again.terminate()

    def test_no_text_becomes_markup(self):
        self.box.ok("tag", "add", "pay")
        # No command of leafctl adds such a name, but another tool can.
        self.table("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 1, 100)", [(EVIL,)])
        daemon = self.start()
        self.assertEqual(daemon.get("/v1/segment/" + urllib.parse.quote(EVIL, safe="") + "?count=1").status, 200)
        browser.messages()
        for path in ("/", "/cache", "/db"):
            with self.subTest(path):
                if path == "/":
                    self.open(daemon)
                    self.assertEqual(self.cells(EVIL)[0], EVIL)
                    # As a problem, too.
                    self.table("UPDATE leaf_alloc SET max_id = 0 WHERE biz_tag = ?", [(EVIL,)])
                    self.until(lambda: "frozen" in (browser.text("#problem-list") or ""), "it is frozen")
                    self.assertIn(EVIL[:20], browser.text("#problem-list"))
                    self.type("#search", EVIL)
                    self.until(lambda: self.names() == [EVIL], "it is found")
                else:
                    browser.open(daemon.url + path)
                    texts = browser.run("return [...document.querySelectorAll('td')].map(e => e.textContent);")
                    self.assertIn(EVIL, texts)
                self.assertIsNone(browser.run("return window.leaked || null;"))
                self.assertEqual(browser.run("return document.querySelectorAll('td script, td img, li img').length;"), 0)
                self.assertEqual([m for m in browser.messages() if m["level"] == "SEVERE"], [])

    def test_ten_thousand_tags(self):
        self.box.ok("tag", "add", "needle-00", "--step", "100")
        names = [("tag-%05d" % i,) for i in range(1, MANY_TAGS)]
        self.table("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 1, 100)", names)
        daemon = self.start("--set", "segment.refresh_interval=60s")
        daemon.ids("needle-00", 3)
        self.open(daemon)
        self.assertEqual(browser.text("#tag-count"), "10,000")
        self.assertEqual(len(self.names()), PAGE)
        self.assertEqual(browser.text("#page"), "1–50 of 10,000")
        self.assertTrue(browser.run("return document.querySelector('#previous').disabled;"))
        self.type("#sort", "tag")
        self.until(lambda: self.names()[0] == "needle-00", "by name")
        self.click("#next")
        self.until(lambda: browser.text("#page") == "51–100 of 10,000", "the next page")
        self.assertEqual(self.names()[0], "tag-%05d" % PAGE)
        self.assertEqual(self.names()[-1], "tag-%05d" % (2 * PAGE - 1))
        self.click("#previous")
        self.until(lambda: browser.text("#page") == "1–50 of 10,000", "back")
        self.type("#search", "NEEDLE")
        self.until(lambda: self.names() == ["needle-00"], "one is found")
        self.assertEqual(browser.text("#tag-count"), "1 of 10,000")
        self.assertTrue(browser.run("return document.querySelector('#next').disabled;"))
        self.type("#search", "nothing is called so")
        self.until(lambda: browser.text("#no-tags") == "No tag matches.", "none is found")
        self.type("#search", "")
        self.until(lambda: len(self.names()) == PAGE, "all again")
        browser.screenshot(os.path.join(SCREENSHOTS, "many.png"))

    def test_on_a_phone(self):
        self.box.ok("tag", "add", "pay", "--step", "1000000")
        self.table(
            "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, ?, 1000000)",
            [("w" * 120, 1), ("a rather long name with spaces in it, as people have them", 9_000_000_000_000_000_000)],
        )
        daemon = self.start()
        daemon.ids("pay", 90000)
        daemon.ids("w" * 120, 12345)
        browser.resize(320, 700)
        self.open(daemon)
        self.assertEqual(len(self.names()), 3)
        self.check_fits()
        browser.screenshot(os.path.join(SCREENSHOTS, "phone-light.png"))
        browser.prefer("dark")
        self.table("UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = ?", [("w" * 120,)])
        self.until(lambda: "frozen" in (browser.text("#problem-list") or ""), "a long problem")
        self.check_fits()
        browser.screenshot(os.path.join(SCREENSHOTS, "phone-dark.png"))
        browser.run("document.querySelector('#tags').scrollIntoView();")
        browser.screenshot(os.path.join(SCREENSHOTS, "phone-tags.png"))
        browser.resize(760, 900)
        self.check_fits()
        browser.resize(1000, 900)
        self.check_fits()


if __name__ == "__main__":
    main()
