#!/usr/bin/env python3
"""Holds the manual pages, `--help`, completion, the configuration's keys and the program's lists of codes to
each other, in both directions; and that the pages are well-formed. Each check is also run on a copy with a mistake."""

import fcntl
import json
import os
import pty
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
import tomllib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import BINARY, ROOT, LeafTest, Sandbox, clean_environment, main  # noqa: E402
from manuals import (  # noqa: E402
    Flag,
    compare,
    completion_differences,
    manual_differences,
    read_help,
    read_completion,
    section_of,
    tokens,
)

MAN = os.path.join(ROOT, "man")


def source(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def read_pages():
    return {name: source(os.path.join("man", name)) for name in os.listdir(MAN)}


# ---- configuration -----------------------------------------------------------------------------------------------


def toml_text(value):
    """A value, so that equal ones are written in one way."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A time is the same in whatever unit.
        time = re.fullmatch(r"(\d+)(ms|s|m|h|d)", value)
        return "%d ms" % (int(time.group(1)) * UNITS_MS[time.group(2)]) if time else '"%s"' % value
    if isinstance(value, list):
        return "[%s]" % ", ".join(toml_text(item) for item in value)
    if isinstance(value, dict):
        return "{}" if not value else "{ %s }" % ", ".join('"%s" = %d' % item for item in value.items())
    return str(value)


UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def type_of(value):
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, list):
        return "list"
    if isinstance(value, dict):
        return "map"
    return "duration" if re.fullmatch(r"\d+(ms|s|m|h|d)", value) else "string"


def known_keys(box):
    """key → (type, default or "derived", reloadable), as the program has them."""
    shown = []
    # What changes with the environment has no default of its own.
    for name in ("one", "other"):
        path = box.path(name)
        text = box.ok("config", "show", "--json", env={"STATE_DIRECTORY": path, "LEAFCTL_STATE_DIR": None})
        shown.append(json.loads(text)["values"])
    reloadable = set(re.findall(r'^    "([a-z_.]+)",$', source("lib/leaf/config/reload.cc"), re.MULTILINE))
    assert reloadable, "no table of reloadable keys in lib/leaf/config/reload.cc"
    keys = {}
    for key, item in shown[0].items():
        derived = item["value"] != shown[1][key]["value"]
        keys[key] = (
            type_of(item["value"]),
            "derived" if derived else toml_text(item["value"]),
            key in reloadable,
        )
    assert reloadable <= set(keys), "reloadable, and no key: %s" % (reloadable - set(keys))
    return keys


def keys_of_page(page):
    """The same from the entries of leafctl.toml.5: .It Cm KEY Pq Em TYPE , Li DEFAULT [, Em reloadable]"""
    keys = {}
    for line in page.split("\n"):
        words = tokens(line) if line.startswith(".It Cm ") else []
        if "Pq" not in words:
            continue
        parts = " ".join(words[words.index("Pq") + 1 :]).replace("\x01", '"').split(" , ")
        is_reloadable = parts[-1] == "Em reloadable"
        default = " , ".join(parts[1 : len(parts) - is_reloadable])
        keys[words[2]] = (
            parts[0].removeprefix("Em "),
            "derived" if default == "Em derived" else toml_text(tomllib.loads("x = " + default.removeprefix("Li "))["x"]),
            is_reloadable,
        )
    return keys


def keys_of_example(text):
    """The same from config/leafctl.toml, whose keys are comments."""
    keys, section, reloadable = {}, "", False
    for line in text.split("\n"):
        table = re.fullmatch(r"\[(\w+)\]", line)
        key = re.match(r"#(\w+) = ", line)
        if table:
            section = table.group(1) + "."
        elif key:
            value = tomllib.loads(line[1:])[key.group(1)]
            keys[section + key.group(1)] = (type_of(value), toml_text(value), reloadable)
        if line.startswith("# "):
            reloadable = reloadable or bool(re.search(r"(^# |\. )Reloadable\.", line))
        else:
            reloadable = False
    return keys


def key_differences(what, known, found):
    lines = compare(what, ("the program", what), known, found)
    for key in sorted(set(known) & set(found)):
        mine, theirs = known[key], found[key]
        if what != "leafctl.toml.5" and mine[1] == "derived":
            # The example shows one of the values it can have.
            theirs = (theirs[0], "derived", theirs[2])
        if mine != theirs:
            lines.append("%s: %s: %s in the program, %s here" % (what, key, mine, theirs))
    return lines


# ---- codes -------------------------------------------------------------------------------------------------------


def known_codes():
    """Every code that an error, a reason for not being ready, or a problem can have."""
    names = source("lib/leaf/base/error.cc")
    names = names[names.index("ErrorCodeName(ErrorCode code)") : names.index("ErrorCodeFromName")]
    errors = set(re.findall(r'return "([a-z_]+)";', names))
    enumerators = set(
        re.findall(r"^  k(\w+),", source("lib/leaf/base/error.h").split("enum class ErrorCode {")[1].split("};")[0], re.M)
    )
    assert errors == {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in enumerators}, (errors, enumerators)
    own = set(re.findall(r'\{\s*"([a-z_]+)",', source("lib/leaf/service/id_service.cc")))
    own |= set(re.findall(r'push_back\(\s*\{"([a-z_]+)",', source("lib/leaf/service/causes.cc")))
    assert {"draining", "near_exhaustion", "reload_failed"} <= own, own
    return errors | own


def codes_of_page(page):
    return [line.split()[2] for line in section_of(page, "FAILURES") if line.startswith(".It Li ")]


def exit_codes():
    text = source("cmd/leafctl/report.h").split("enum class ExitCode {")[1].split("};")[0]
    return set(re.findall(r"= (\d+)", text)) | {"130", "143"}


def exit_codes_of_page(page):
    items = [tokens(line) for line in section_of(page, "EXIT STATUS") if line.startswith(".It ")]
    return [word for words in items for word in words[1:] if word != ","]


# ---- a terminal --------------------------------------------------------------------------------------------------


def run_in_terminal(command, columns):
    """What it writes to a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=clean_environment())
    os.close(slave)
    shown = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not more:
            break
        shown += more
    os.close(master)
    assert process.wait() == 0, shown
    return shown.decode().replace("\r\n", "\n")


# ---- the tests ---------------------------------------------------------------------------------------------------


class Manuals(LeafTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        box = Sandbox()
        try:
            cls.commands, cls.global_flags = read_help(lambda words: box.ok(*words, "--help"))
        finally:
            box.close()
        cls.pages = read_pages()

    def assert_none(self, lines):
        self.assertEqual(lines, [], "\n".join(lines))

    def mutated(self, name, before, after):
        """The pages, with a change in one of them."""
        self.assertIn(before, self.pages[name])
        return {**self.pages, name: self.pages[name].replace(before, after, 1)}

    def test_help_is_read(self):
        self.assertIn("tag advance", self.commands)
        self.assertTrue(self.commands["tag advance"].flags["--to"].required)
        self.assertEqual(
            self.commands["next"].flags["--format"].choices, ("dec", "hex", "base62", "uuidv7", "ulid", "code")
        )
        self.assertFalse(self.commands["next"].flags["--direct"].value)
        self.assertEqual(self.global_flags["--output"].names, {"-o", "--output"})

    def test_help_fits_the_terminal(self):
        """No line is longer than the terminal, but for an example, and a wide terminal has lines of 100 at most."""
        for columns, limit in ((50, 50), (90, 90), (300, 100)):
            for path in ("", "next", "config import", "worker list"):
                with self.subTest(columns=columns, path=path):
                    shown = run_in_terminal([BINARY, *path.split(), "--help"], columns)
                    lines = [line for line in shown.split("\n") if not re.match(r"  +(leafctl|--)", line)]
                    self.assertLessEqual(max(map(len, lines)), limit, shown)
                    self.assertGreater(max(map(len, lines)), limit - 20, shown)

    def test_help_and_manual(self):
        self.assert_none(manual_differences(self.commands, self.global_flags, self.pages))

    def test_mistakes_in_a_page_are_found(self):
        for name, before, after in (
            ("leafctl-tag.1", ".It Fl -if-absent\n", ".It Em if-absent\n"),
            ("leafctl-tag.1", ".Op Fl -if-absent\n", ""),
            ("leafctl-tag.1", ".It Fl -if-absent\n", ".It Fl -if-absent\n.It Fl -if-late\n"),
            ("leafctl-tag.1", ".Op Fl -if-absent\n", ".Op Fl -if-absent\n.Op Fl -if-late\n"),
            ("leafctl-tag.1", ".Fl -to Ar N\n", ".Op Fl -to Ar N\n"),
            ("leafctl-tag.1", ".Cm tag list\n", ".Cm tag lists\n"),
            ("leafctl-tag.1", ".It Cm list\n", ""),
            ("leafctl-tag.1", ".Ar TAG\n", ".Ar NAME\n"),
            ("leafctl-next.1", ".It Fl n , Fl -count Ar N\n", ".It Fl -count Ar COUNT\n"),
            ("leafctl-next.1", "dec | hex | base62", "dec | hex"),
            ("leafctl-completion.1", "bash | zsh | fish", "bash | zsh"),
            ("leafctl.1", ".It Fl -no-input\n", ".It Em no-input\n"),
            ("leafctl.1", ".It Cm serve\n", ".It Cm server\n"),
        ):
            with self.subTest(name=name, before=before, after=after):
                pages = self.mutated(name, before, after)
                self.assertNotEqual(manual_differences(self.commands, self.global_flags, pages), [])
        missing = {name: text for name, text in self.pages.items() if name != "leafctl-db.1"}
        self.assertNotEqual(manual_differences(self.commands, self.global_flags, missing), [])
        surplus = {**self.pages, "leafctl-old.1": ""}
        self.assertNotEqual(manual_differences(self.commands, self.global_flags, surplus), [])

    def test_a_flag_more_in_the_program_is_found(self):
        flags = self.commands["tag set"].flags
        flags["--unheard-of"] = Flag(["--unheard-of"])
        try:
            lines = manual_differences(self.commands, self.global_flags, self.pages)
            self.assertIn("leafctl-tag.1: tag set: --unheard-of: only in --help", lines)
            lines = completion_differences(self.commands, self.global_flags, self.completions())
            self.assertIn("flags of 'tag set': --unheard-of: only in --help", lines)
        finally:
            del flags["--unheard-of"]

    def completions(self):
        def ask(words):
            kind, *lines = self.box.ok("__complete", "--line", "fish", "--", "leafctl", *words).splitlines()
            return kind, [line.split("\t")[0] for line in lines]

        return read_completion(ask, self.commands, self.global_flags)

    def test_help_and_completion(self):
        table = self.completions()
        self.assert_none(completion_differences(self.commands, self.global_flags, table))
        commands, flags = table["tag"]
        for change in (
            {"tag": (commands[:-1], flags)},
            {"tag": ([*commands, "more"], flags)},
            {"tag": (commands, {**flags, "--more": None})},
            {"tag": (commands, {**flags, "--json": ""})},
            {"tag": (commands, {name: value for name, value in flags.items() if name != "--json"})},
        ):
            lines = completion_differences(self.commands, self.global_flags, {**table, **change})
            self.assertEqual(len(lines), 1, lines)

    def test_help_and_completion_of_fish(self):
        # All in one process: fish takes its time to start.
        script = self.box.write("completion.fish", self.box.ok("completion", "fish"))
        ask = 'source $argv[1]\nfor path in $argv[2..]; for end in " " " -"; printf "%s\\t%s\\n" "=$path" "$end"\n'
        ask += '  complete -C (string trim -- "leafctl $path")"$end"; end; end\n'
        env = {**self.box.env, "PATH": os.path.dirname(self.box.binary) + ":" + os.environ["PATH"]}
        text = subprocess.run(
            ["fish", "--no-config", "-c", ask, script, *self.commands],
            check=True, capture_output=True, text=True, env=env,
        ).stdout  # fmt: skip
        offered = {}
        for line in text.splitlines():
            word = line.split("\t")[0]
            if line.startswith("="):
                words = offered.setdefault((word[1:], line.split("\t")[1]), [])
            else:
                words.append(word)
        for path, command in self.commands.items():
            with self.subTest(path=path):
                flags = {name for flag in {**self.global_flags, **command.flags}.values() for name in flag.names}
                self.assertEqual({word for word in offered[path, " -"]}, flags)
                if command.commands:
                    self.assertEqual(sorted(offered[path, " "]), sorted(command.commands))

    def test_json_of_every_command(self):
        """One document on stdout, or one object with the error on stderr: no command passes over --json."""
        properties = self.box.write("leaf.properties", "leaf.segment.enable=false\nleaf.snowflake.enable=false\n")
        tags = self.box.write("tags.toml", '[[tags]]\ntag = "two"\n')
        calls = {
            "": [[], ["--version"], ["--help"]],
            "bench": [["-d", "x"], ["http://127.0.0.1:1"]],
            "cluster": [[]],
            "cluster recover": [["--dry-run"], ["--beyond", "x"], []],
            "code": [[]],
            "code check": [["one"]],
            "code keygen": [[], [self.box.path("made.key")]],
            "code of": [["one", "1"]],
            "code reveal": [["one", "1"], ["one", "1", "--server", "unix:/nowhere"]],
            "completion": [["bash"], ["zsh"], ["fish"]],
            "config": [[]],
            "config check": [[]],
            "config get": [["server.listen"], ["snowflake.workers"], ["no.such"]],
            "config import": [[properties], [properties, "--to", self.box.path("made.toml")], ["no-such-file"]],
            "config init": [[], ["--mysql", "db1", "--to", self.box.path("init.toml")], ["--zookeeper", "x"]],
            "config show": [[], ["--origin"]],
            "db": [[]],
            "db check": [[]],
            "db init": [["--dry-run"], ["--print-sql"], []],
            "decode": [["1"], ["x"]],
            "doctor": [[]],
            "encode": [["--time", "2026-01-01"], ["--time", "x"]],
            "help": [[], ["tag", "add"], ["no-such"]],
            "next": [["one", "-n", "2"], ["one", "--range"], ["no-such"]],
            "range": [["--from", "2026-01-01", "--to", "2026-01-02"]],
            "serve": [["--listen", "nowhere"]],
            "status": [[]],
            "tag": [[]],
            "tag add": [["one", "--dry-run"], ["one"], ["one", "--if-absent"], ["one"]],
            "tag advance": [["one", "--to", "1000", "--dry-run"], ["one", "--to", "1000"], ["one", "--to", "1"]],
            "tag advise": [["one"]],
            "tag apply": [["-f", tags, "--dry-run"], ["-f", tags, "--yes"], ["-f", tags], ["-f", "no-such"]],
            "tag export": [[], ["one", "--no-max-id"]],
            "tag history": [["one"], ["one", "--limit", "1"], ["no-such"]],
            "tag list": [[], ["o*", "--limit", "1"], ["--columns", "tag"]],
            "tag pause": [["one"], ["one", "--dry-run"]],
            "tag remove": [
                ["one"], ["one", "--dry-run"], ["one", "--yes"], ["one", "--if-present"], ["one"],
            ],
            "tag repair": [
                ["one", "--dry-run"], ["one", "--confirm", "one"], ["one", "--to", "9000"],
                ["one", "--to", "9000", "--confirm", "one"], ["--all", "--dry-run"], ["--all"],
            ],
            "tag resume": [["one"]],
            "tag set": [["one", "--step", "7", "--dry-run"], ["one", "--step", "7"], ["one"]],
            "tag show": [["one"], ["one", "two"], ["no-such"]],
            "token": [[]],
            "token add": [["one", "--role", "ids", "--dry-run"], ["one", "--role", "ids"], ["one", "--role", "read"]],
            "token check": [["no-such"]],
            "token list": [[]],
            "token remove": [["one", "--dry-run"], ["no-such"]],
            "version": [[]],
            "worker": [[]],
            "worker accept-clock": [["--dry-run"], ["--confirm", "x"]],
            "worker adopt": [["1", "--dry-run"]],
            "worker check": [[]],
            "worker export": [[]],
            "worker list": [[], ["--newest-report"], ["--server", "unix:/nowhere"]],
            "worker release": [["1", "--dry-run"]],
            "worker repair": [["--dry-run"], ["--yes"]],
            "worker show": [["1"]],
        }  # fmt: skip
        self.assertEqual(set(calls), set(self.commands))
        # What others need comes first, and what takes it away last.
        for path in sorted(calls, key=lambda path: ({"tag add": 0, "tag remove": 2}.get(path, 1), path)):
            for args in calls[path]:
                with self.subTest(command=path, args=args):
                    result = self.box.run([*path.split(), *args, "--json"])
                    if result.rc in (0, 10):
                        self.assertIsInstance(json.loads(result.out), dict, result)
                    else:
                        self.assertEqual(result.out, "", result)
                        error = json.loads(result.err.strip().split("\n")[-1])
                        self.assertEqual(list(error), ["code", "message", "hint"], result)

    def test_keys(self):
        known = known_keys(self.box)
        self.assertEqual(known["segment.refresh_interval"], ("duration", "60000 ms", True))
        self.assertEqual(known["state_dir"], ("string", "derived", False))
        page, example = self.pages["leafctl.toml.5"], source("config/leafctl.toml")
        self.assert_none(key_differences("leafctl.toml.5", known, keys_of_page(page)))
        self.assert_none(key_differences("config/leafctl.toml", known, keys_of_example(example)))
        for before, after in (
            (".It Cm server.max_count Pq", ".It Cm server.most_count Pq"),
            ("Li 100000 , Em reloadable", "Li 100000"),
            ("Em integer , Li 100000 ,", "Em integer , Li 10000 ,"),
            ("Em integer , Li 100000 ,", "Em string , Li 100000 ,"),
            (".It Cm sqlite.path Pq Em string , Em derived", ".It Cm sqlite.path Pq Em string , Li \\(dq\\(dq"),
        ):
            with self.subTest(before=before):
                self.assertIn(before, page)
                lines = key_differences("leafctl.toml.5", known, keys_of_page(page.replace(before, after, 1)))
                self.assertNotEqual(lines, [])
        for before, after in (
            ("#max_count = 100000\n", ""),
            ("#max_count = 100000\n", "#max_count = 10000\n"),
            ("#max_count = 100000\n", "#max_count = 100000\n#more = 1\n"),
            ("answered with 413. Reloadable.", "answered with 413."),
        ):
            with self.subTest(before=before):
                self.assertIn(before, example)
                lines = key_differences("config/leafctl.toml", known, keys_of_example(example.replace(before, after)))
                self.assertNotEqual(lines, [])

    def test_codes(self):
        page = self.pages["leafctl.7"]
        known = known_codes()
        self.assert_none(compare("leafctl.7 FAILURES", ("the program", "the manual"), known, codes_of_page(page)))
        self.assertEqual(len(codes_of_page(page)), len(known))
        self.assertNotIn("frozen", codes_of_page(page.replace(".It Li frozen\n", "")))
        self.assertEqual(sorted(exit_codes_of_page(self.pages["leafctl.1"])), sorted(exit_codes()))

    def test_readiness_reasons(self):
        # What a daemon really says has an entry, without the mode in front of it.
        codes = codes_of_page(self.pages["leafctl.7"])
        # No server listens on port 1.
        daemon = self.box.serve(
            "--set", "segment.store=mysql", "--set", "mysql.endpoints=127.0.0.1:1", ready=False
        )  # fmt: skip
        reasons = json.loads(daemon.get("/health/ready").body)["reasons"]
        self.assertTrue(reasons)
        for reason in reasons:
            self.assertIn(re.sub(r"^(segment|snowflake)_", "", reason["code"]), codes)

    def findings(self, args, severities, codes, **more):
        """Those of a command, each with the keys of the manual, in its order and with no others."""
        keys = re.findall(r"^\.It Li (\S+)$", "\n".join(section_of(self.pages["leafctl.1"], "FINDINGS")), re.MULTILINE)
        self.assertEqual(len(keys), 8)
        result = self.box.run([*args, "--json"], **more)
        found = json.loads(result.out)["findings"]
        for finding in found:
            self.assertEqual(list(finding), keys, args)
            for key in ("code", "cause"):
                self.assertNotEqual(finding[key], "", finding)
            self.assertIsInstance(finding["repairable"], bool)
        self.assertLessEqual({finding["severity"] for finding in found}, {"problem", "warning"})
        self.assertLessEqual(severities, {finding["severity"] for finding in found}, found)
        self.assertLessEqual(codes, {(finding["code"], finding["subject"]) for finding in found}, found)
        return found

    def test_findings_have_one_form(self):
        self.box.ok("tag", "add", "pay")
        self.assertEqual(self.findings(["config", "check"], set(), set()), [])
        self.assertEqual(self.findings(["worker", "check"], set(), set()), [])
        with sqlite3.connect(os.path.join(self.box.state, "leaf.db")) as database:
            database.execute("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('none', 1, 0)")
        database.close()
        twice = ("--set", "snowflake.workers=127.0.9.1:1=7,127.0.9.2:1=7", "--set", "snowflake.address=127.0.9.1:1")
        self.findings(["worker", "check", *twice], {"problem"}, {("duplicate-number", "7")})
        self.findings(["doctor"], {"problem"}, {("tag-step", "none")})
        odd = {"LEAFCTL_NOTHING": "1"}
        self.findings(["config", "check"], {"warning"}, {("config", "")}, env=odd)
        self.findings(["doctor"], {"warning"}, {("config", "")}, env=odd)
        bad = self.box.write("bad.toml", "[segment]\nstor = 1\nfence = 'moat'\n")
        found = self.findings(["--config", bad, "config", "check"], {"problem"}, {("config", bad)})
        self.assertEqual(len(found), 2, "each problem for itself")
        open_to_all = self.box.write("password", "secret\n", 0o644)
        secret = ("--set", "segment.store=mysql", "--set", "mysql.password_file=" + open_to_all)
        self.findings(["config", "check", *secret], {"problem"}, {("mysql-password", open_to_all)})

        daemon = self.box.serve()
        self.assertEqual(daemon.v1("pay").status, 200)
        self.assertEqual(self.findings(["status"], set(), set()), [])
        self.box.ok("tag", "pause", "pay")
        self.findings(["status"], {"warning"}, {("paused", "pay")})
        # No server listens on port 1.
        away = self.box.serve("--set", "segment.store=mysql", "--set", "mysql.endpoints=127.0.0.1:1",
                              "--state-dir", self.box.path("away"), ready=False)  # fmt: skip
        found = self.findings(["status", "--server", away.url], {"problem"}, set())
        for finding in found:
            self.assertNotEqual(finding["consequence"], "", finding)

    def test_references(self):
        names = set(self.pages)
        for name, page in self.pages.items():
            with self.subTest(page=name):
                for target, section in re.findall(r"^\.Xr (leafctl\S*) (\d)", page, re.MULTILINE):
                    self.assertIn("%s.%s" % (target, section), names)
        see_also = "\n".join(section_of(self.pages["leafctl.1"], "SEE ALSO"))
        for name in names - {"leafctl.1"}:
            self.assertIn(".Xr %s %s" % tuple(name.rsplit(".", 1)), see_also)

    def test_sections(self):
        for name, page in self.pages.items():
            wanted = ["NAME", "DESCRIPTION", "SEE ALSO"]
            if name.endswith(".1"):
                wanted += ["SYNOPSIS", "ENVIRONMENT", "EXIT STATUS"]
            found = re.findall(r"^\.Sh (.*)$", page, re.MULTILINE)
            self.assertEqual([section for section in wanted if section not in found], [], name)

    def test_examples_come_first(self):
        # Within the description, as mandoc wants a section of that name at the end.
        for name in sorted(self.pages):
            if name.endswith(".1"):
                with self.subTest(page=name):
                    self.assertEqual(self.late_examples(self.pages[name]), "")
        page = self.pages["leafctl-tag.1"]
        examples = page[page.index(".Ss Examples") : page.index(".Ss Commands")]
        without = page.replace(examples, "")
        self.assertEqual(self.late_examples(without), "no examples")
        late = without.replace(".Sh ENVIRONMENT", examples + ".Sh ENVIRONMENT")
        self.assertIn(".It Cm add", self.late_examples(late))

    def late_examples(self, page):
        """What is wrong with the place of a page's examples: each command and flag has to come after them."""
        before, found, after = "\n".join(section_of(page, "DESCRIPTION")).partition("\n.Ss Examples\n")
        if not found:
            return "no examples"
        examples = after.partition("\n.Ss ")[0]
        if not re.search(r"^(\$ |\.Dl |leafctl |source <)", examples, re.MULTILINE):
            return "no command in the examples"
        return " ".join(re.findall(r"^\.It (?:Cm|Fl|Ar) \S+", before, re.MULTILINE))

    def test_mandoc(self):
        for name in self.pages:
            with self.subTest(page=name):
                path = os.path.join(MAN, name)
                lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", path], capture_output=True, text=True)
                self.assertEqual((lint.returncode, lint.stdout), (0, ""))
                shown = subprocess.run(
                    ["mandoc", "-Wwarning", "-Tutf8", "-Owidth=80", path], check=True, capture_output=True, text=True
                )
                plain = re.sub(".\b", "", shown.stdout)
                self.assertEqual([line for line in plain.split("\n") if len(line) > 80], [])

    def test_man_finds_them(self):
        # In folders as a package installs them.
        root = self.box.path("man")
        for name in self.pages:
            folder = os.path.join(root, "man" + name[-1])
            os.makedirs(folder, exist_ok=True)
            shutil.copy(os.path.join(MAN, name), folder)
        env = {**self.box.env, "MANWIDTH": "80", "MANPAGER": "cat", "MAN_KEEP_FORMATTING": ""}
        for name in self.pages:
            title, section = name.rsplit(".", 1)
            shown = subprocess.run(
                ["man", "-M", root, "--warnings", section, title], capture_output=True, text=True, env=env
            )
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), name)
            self.assertIn("SEE ALSO", shown.stdout)


if __name__ == "__main__":
    main()
