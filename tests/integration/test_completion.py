#!/usr/bin/env python3
"""Completion in the real shells, typed at a terminal as people do: commands, flags, values, keys, files, names of tags."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from leafctl import DEADLINE_S, LeafTest, main  # noqa: E402

TAB, ALL, SHOW = "\t", "\x14", "\x0f"

# Each binds ^O to printing the line, and to emptying it; ^T to putting in all that the word could be.
BASH_RC = r"""
PS1='$ '
set +o history
bind 'set bell-style none' 'set enable-bracketed-paste off'
show_line() { printf '\002%s\003\n' "$READLINE_LINE"; READLINE_LINE=; }
bind -x '"\C-o": show_line'
bind '"\C-t": insert-completions'
source <(leafctl completion bash)
"""
ZSH_RC = r"""
PS1='$ '
unsetopt beep zle_bracketed_paste prompt_sp 2>/dev/null
unset zle_bracketed_paste
bindkey -e
autoload -U compinit
compinit -u -D
LISTMAX=10000
show_line() { printf '\002%s\003\n' "$BUFFER"; BUFFER=; zle redisplay }
zle -N show_line
bindkey '^O' show_line
all_matches() { _main_complete; compstate[insert]=all; compstate[list]= }
zle -C all_matches complete-word all_matches
bindkey '^T' all_matches
source <(leafctl completion zsh)
"""


class Shell:
    """An interactive shell in a terminal, in a folder of its own."""

    def __init__(self, test, name, env=None):
        self.name = name
        home = test.box.path("shell-" + name)
        os.makedirs(home, exist_ok=True)
        bin_dir = test.box.path("bin")
        os.makedirs(bin_dir, exist_ok=True)
        if not os.path.exists(os.path.join(bin_dir, "leafctl")):
            os.symlink(test.box.binary, os.path.join(bin_dir, "leafctl"))
        self.cwd = test.box.path("work")
        os.makedirs(self.cwd, exist_ok=True)
        self.env = {**test.box.env, "PATH": bin_dir + ":/usr/bin:/bin", "ZDOTDIR": home, "COLUMNS": "4000"}
        self.env.update(env or {})
        self.env = {key: value for key, value in self.env.items() if value is not None}
        if name == "bash":
            rc = os.path.join(home, "rc")
            with open(rc, "w", encoding="utf-8") as file:
                file.write(BASH_RC)
            command = ["bash", "--noprofile", "--rcfile", rc, "-i"]
        else:
            with open(os.path.join(home, ".zshrc"), "w", encoding="utf-8") as file:
                file.write(ZSH_RC)
            command = ["zsh", "-o", "no_global_rcs", "-i"]
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command, cwd=self.cwd, env=self.env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.output = ""
        self.line("")

    def line(self, keys):
        """What the line is after `keys` were typed."""
        seen = len(self.output)
        os.write(self.master, (keys + SHOW).encode())
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = re.search("\x02(.*?)\x03", self.output[seen:], re.DOTALL)
            if found:
                return found.group(1)
            readable, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not readable:
                raise AssertionError("%s shows no line after %r: %r" % (self.name, keys, self.output[seen:]))
            self.output += os.read(self.master, 65536).decode("utf-8", "replace")

    def words_of(self, line):
        """What the shell makes of a line: its words, if the command were one that prints them."""
        options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}[self.name]
        text = subprocess.run(
            [self.name, *options, "-c", "leafctl() { printf '%s\\0' \"$@\"; }\n" + line],
            cwd=self.cwd, env=self.env, check=True, capture_output=True,
        ).stdout  # fmt: skip
        return text.decode().split("\0")[:-1]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


# name → what is typed of it. Whatever a name says, it is a name.
AWKWARD = (
    ("plain", "pl"),
    ("two words", "two\\ w"),
    ("two  blanks there", "two\\ \\ bl"),
    ("$(touch x)", "\\$\\("),
    ("$HOME/x-$USER", "\\$H"),
    ("`touch y`", "\\`"),
    ("semi;touch z", "sem"),
    ("and&pipe|redirect>w", "and"),
    ("quo'te", "quo"),
    ('dou"ble', "dou"),
    ("back\\slash", "bac"),
    ("ünï-码", "ün"),
    ("col:on=equal", "col:"),
    ("colon:colon", "colon:c"),
    ("equal=sign=s", "equal=si"),
    ("!bang", "\\!"),
    ("*star?[a]", "\\*"),
    ("~tilde", "\\~"),
    ("#hash", "\\#"),
    ("{a,b}", "\\{"),
    ("%s%n", "%"),
)
# The same in quotes that are still open, for both kinds of them.
QUOTED = (
    ("two words", "'two w", '"two w'),
    ("$(touch x)", "'$(", '"\\$('),
    ("`touch y`", "'`", '"\\`'),
    ("quo'te", "'quo", '"quo'),
    ('dou"ble', "'dou", '"dou'),
    ("back\\slash", "'bac", '"bac'),
    ("colon:colon", "'colon:c", '"colon:c'),
)


class Completion(LeafTest):
    def shell(self, name, **env):
        shell = Shell(self, name, env)
        self.addCleanup(shell.close)
        return shell

    def each_shell(self, **env):
        return [self.shell(name, **env) for name in ("bash", "zsh")]

    def candidates(self, shell, line):
        """All words that the last word of the line could be."""
        return sorted(shell.words_of(shell.line(line + ALL))[len(shlex.split(line + "x")) - 2 :])

    def test_commands(self):
        for shell in self.each_shell():
            self.assertEqual(shell.line("leafctl ta" + TAB), "leafctl tag ")
            self.assertEqual(shell.line("leafctl tag rem" + TAB), "leafctl tag remove ")
            self.assertEqual(self.candidates(shell, "leafctl tag a"), ["add", "advance", "advise", "apply"])
            self.assertEqual(self.candidates(shell, "leafctl db "), ["check", "init"])
            self.assertEqual(self.candidates(shell, "leafctl e"), ["encode"])
            # Flags with and without values before it.
            self.assertEqual(shell.line("leafctl --json --config some.toml tag li" + TAB).split()[-1], "list")
            self.assertEqual(shell.line("leafctl -o json --timeout=3s worker acc" + TAB).split()[-1], "accept-clock")
            self.assertEqual(shell.line("leafctl help tag rep" + TAB), "leafctl help tag repair ")
            # Other commands on the line, and quoted words.
            self.assertEqual(shell.line("true; leafctl tag rem" + TAB), "true; leafctl tag remove ")
            self.assertEqual(shell.line("echo 'a b' | leafctl tag rem" + TAB), "echo 'a b' | leafctl tag remove ")
            for file in ("'two words.toml'", '"two \\" words"', "two\\ words.toml"):
                line = "leafctl --config %s tag li" % file
                self.assertEqual(shell.line(line + TAB), line + "st ")
            # Hidden ones, and what is none.
            self.assertEqual(shell.line("leafctl __" + TAB), "leafctl __")
            self.assertEqual(shell.line("leafctl frob" + TAB), "leafctl frob")

    def test_flags(self):
        for shell in self.each_shell():
            self.assertEqual(shell.line("leafctl next --di" + TAB), "leafctl next --direct ")
            self.assertEqual(shell.line("leafctl next pay --di" + TAB), "leafctl next pay --direct ")
            self.assertEqual(self.candidates(shell, "leafctl tag add --st"), ["--start", "--state-dir", "--step"])
            self.assertEqual(shell.line("leafctl --vers" + TAB), "leafctl --version ")
            self.assertEqual(shell.line("leafctl help --js" + TAB), "leafctl help --json ")
            # A flag's value is no flag.
            line = "leafctl next --config --json -o js"
            self.assertEqual(shell.line(line + TAB), line + "on ")
            # After -- there are none.
            self.assertEqual(shell.line("leafctl next -- --di" + TAB), "leafctl next -- --di")

    def test_values(self):
        for shell in self.each_shell():
            self.assertEqual(self.candidates(shell, "leafctl next --format "), ["base62", "code", "dec", "hex", "ulid", "uuidv7"])
            self.assertEqual(shell.line("leafctl next --format=ba" + TAB).strip(), "leafctl next --format=base62")
            self.assertEqual(shell.line("leafctl -o j" + TAB), "leafctl -o json ")
            self.assertEqual(shell.line("leafctl next --mode sno" + TAB), "leafctl next --mode snowflake ")
            self.assertEqual(self.candidates(shell, "leafctl completion "), ["bash", "fish", "zsh"])
            # Nothing is offered where anything may stand.
            self.assertEqual(shell.line("leafctl next -n " + TAB), "leafctl next -n ")
            self.assertEqual(shell.line("leafctl tag add " + TAB), "leafctl tag add ")

    def test_keys(self):
        for shell in self.each_shell():
            self.assertEqual(shell.line("leafctl --set segment.sto" + TAB), "leafctl --set segment.store=")
            self.assertEqual(shell.line("leafctl --set=segment.sto" + TAB), "leafctl --set=segment.store=")
            self.assertEqual(
                self.candidates(shell, "leafctl next pay --set sqlite."), ["sqlite.path="]
            )  # fmt: skip

    def test_files(self):
        for shell in self.each_shell():
            os.makedirs(os.path.join(shell.cwd, "folder"), exist_ok=True)
            for name in ("some.toml", "with blank.toml"):
                with open(os.path.join(shell.cwd, name), "w", encoding="utf-8"):
                    pass
            self.assertEqual(shell.line("leafctl --config som" + TAB), "leafctl --config some.toml ")
            line = shell.line("leafctl --config with" + TAB)
            self.assertEqual(shell.words_of(line), ["--config", "with blank.toml"])
            self.assertEqual(shell.line("leafctl --config=som" + TAB).strip(), "leafctl --config=some.toml")
            self.assertEqual(shell.line("leafctl --state-dir f" + TAB), "leafctl --state-dir folder/")
            self.assertEqual(shell.line("leafctl --state-dir som" + TAB), "leafctl --state-dir som")

    def add_awkward(self):
        for name, _ in AWKWARD:
            # One has a '/', which leafctl does not add, and which Java Leaf's users may have.
            if "/" in name:
                self.insert(name)
            else:
                self.box.ok("tag", "add", "--", name)
        self.box.ok("tag", "add", "--", "-dash")

    def insert(self, name):
        self.box.ok("tag", "add", "placeholder")
        import sqlite3

        connection = sqlite3.connect(self.box.state + "/leaf.db")
        connection.execute("update leaf_alloc set biz_tag = ? where biz_tag = 'placeholder'", (name,))
        connection.commit()
        connection.close()

    def test_tags(self):
        self.add_awkward()
        for shell in self.each_shell():
            for name, typed in AWKWARD:
                line = shell.line("leafctl tag show " + typed + TAB)
                self.assertEqual(shell.words_of(line), ["tag", "show", name], line)
            line = shell.line("leafctl tag show -- -d" + TAB)
            self.assertEqual(shell.words_of(line), ["tag", "show", "--", "-dash"], line)
            # All at once; after a command that takes one, and where it is the first argument only.
            self.assertEqual(self.candidates(shell, "leafctl next "), sorted(["-dash", *(name for name, _ in AWKWARD)]))
            self.assertEqual(shell.line("leafctl next plain pl" + TAB), "leafctl next plain pl")
            self.assertEqual(shell.line("leafctl next --json -n 3 pl" + TAB), "leafctl next --json -n 3 plain ")
            # Nothing that a name says was done.
            self.assertEqual(os.listdir(shell.cwd), [])

    def test_tags_in_quotes(self):
        self.add_awkward()
        for shell in self.each_shell():
            for name, *typed in QUOTED:
                for start in typed:
                    line = shell.line("leafctl tag show " + start + TAB)
                    self.assertEqual(shell.words_of(line), ["tag", "show", name], line)
            self.assertEqual(os.listdir(shell.cwd), [])

    def test_whose_tags(self):
        self.box.ok("tag", "add", "here-only")
        elsewhere = self.box.path("elsewhere")
        self.box.ok("tag", "add", "there-only", "--state-dir", elsewhere)
        config = self.box.write("other.toml", 'state_dir = "%s"\n' % elsewhere)
        daemon = self.box.serve(env={"LEAFCTL_STATE_DIR": elsewhere})
        daemon.ids("there-only")
        for shell in self.each_shell():
            self.assertEqual(self.candidates(shell, "leafctl tag show "), ["here-only"])
            line = "leafctl tag show --state-dir %s " % elsewhere
            self.assertEqual(self.candidates(shell, line), ["there-only"])
            line = "leafctl tag show --set=sqlite.path=%s/leaf.db " % elsewhere
            self.assertEqual(self.candidates(shell, line), ["there-only"])
            line = "leafctl next --server http://127.0.0.1:%d " % daemon.port
            self.assertEqual(self.candidates(shell, line), ["there-only"])
        for shell in self.each_shell(LEAFCTL_STATE_DIR=None, LEAFCTL_CONFIG=config):
            self.assertEqual(self.candidates(shell, "leafctl tag show "), ["there-only"])

    def test_a_daemon_tells_what_the_store_does_not(self):
        self.box.ok("tag", "add", "pay")
        daemon = self.box.serve()
        daemon.ids("pay")
        elsewhere = {"LEAFCTL_STATE_DIR": self.box.path("none"), "LEAFCTL_CLIENT_SERVERS": daemon.url}
        for shell in self.each_shell(**elsewhere):
            self.assertEqual(shell.line("leafctl next p" + TAB), "leafctl next pay ")
        self.assertFalse(os.path.exists(self.box.path("none")))

    def test_nothing_is_said_and_nothing_is_made(self):
        # No server listens on port 1.
        away = {"LEAFCTL_SEGMENT_STORE": "mysql", "LEAFCTL_MYSQL_ENDPOINTS": "127.0.0.1:1"}
        broken = self.box.write("broken.toml", "what is this")
        for env in ({}, away, {"LEAFCTL_CONFIG": broken}, {"LEAFCTL_NOT_A_KEY": "1"}):
            words = ("leafctl", "tag", "show", "")
            for call, out in (
                (("--line", "bash", "--", " ".join(words)), "tags\n"),
                (("--line", "zsh", "--", *words), "tags\n"),
                # As scripts of the first versions call it.
                (("--", *words), ""),
                (("--form", "bash", "--", *words), ""),
            ):
                result = self.box.run(["__complete", *call], env=env)
                self.assertEqual((result.rc, result.out, result.err), (0, out, ""))
        self.assertFalse(os.path.exists(self.box.state))
        for shell in self.each_shell(**away):
            self.assertEqual(shell.line("leafctl tag show x" + TAB), "leafctl tag show x")
            self.assertNotIn("mysql", shell.output.lower())

    def test_what_is_no_tag_is_left_out(self):
        # A row that was written by hand must not become two candidates, or reach the terminal.
        self.box.ok("tag", "add", "fine")
        self.insert("two\nlines")
        self.assertEqual(self.box.ok("__complete", "--", "leafctl", "tag", "show", ""), "fine\n")

    def test_zsh_shows_what_words_mean(self):
        shell = self.shell("zsh")
        shell.line("leafctl tag " + TAB)
        self.assertRegex(shell.output, "list +-- List tags")
        shell.line("leafctl tag list -" + TAB)
        self.assertRegex(shell.output, "--json +-- Same as --output json")

    def test_fish(self):
        self.add_awkward()
        work = self.box.path("work")
        os.makedirs(work)
        with open(os.path.join(work, "some.toml"), "w", encoding="utf-8"):
            pass
        script = self.box.write("leafctl.fish", self.box.ok("completion", "fish"))
        env = {**self.box.env, "PATH": os.path.dirname(self.box.binary) + ":/usr/bin:/bin"}

        def ask(*lines):
            """What fish offers for each of the lines, in one process."""
            code = "source $argv[1]; for line in $argv[2..]; echo @@; complete -C $line; end"
            text = subprocess.run(
                ["fish", "--no-config", "-c", code, script, *lines],
                cwd=work, env=env, check=True, capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(text.stderr, "")
            parts = text.stdout.split("@@\n")[1:]
            return [sorted(line.split("\t")[0] for line in part.splitlines()) for part in parts]

        expected = {
            "leafctl ta": ["tag"],
            "leafctl tag a": ["add", "advance", "advise", "apply"],
            "leafctl --json --config x.toml tag li": ["list"],
            "leafctl help tag rep": ["repair"],
            "leafctl next --di": ["--direct"],
            "leafctl tag add --st": ["--start", "--state-dir", "--step"],
            "leafctl next --format ": ["base62", "code", "dec", "hex", "ulid", "uuidv7"],
            "leafctl next --format=ba": ["--format=base62"],
            "leafctl completion ": ["bash", "fish", "zsh"],
            "leafctl --set segment.sto": ["segment.store="],
            "leafctl --config som": ["some.toml"],
            "leafctl --config=som": ["--config=some.toml"],
            "leafctl --config ./som": ["./some.toml"],
            "leafctl --config 'som": ["some.toml"],
            "leafctl tag add ": [],
            "leafctl tag show pl": ["plain"],
            "leafctl next ": sorted(["-dash", *(name for name, _ in AWKWARD)]),
            "leafctl next --json -n 3 pl": ["plain"],
            "leafctl next plain pl": [],
            "leafctl __": [],
        }
        self.assertEqual(dict(zip(expected, ask(*expected))), expected)
        self.assertEqual(os.listdir(work), ["some.toml"])

    def test_the_build_leaves_the_scripts(self):
        folder = os.path.join(os.path.dirname(self.box.binary), "completions")
        for shell, name in (("bash", "leafctl"), ("zsh", "_leafctl"), ("fish", "leafctl.fish")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                self.assertEqual(file.read(), self.box.ok("completion", shell))

    def test_shellcheck(self):
        script = self.box.write("leafctl.bash", self.box.ok("completion", "bash"))
        found = subprocess.run(["shellcheck", script], capture_output=True, text=True)
        self.assertEqual((found.returncode, found.stdout), (0, ""))

    def test_zsh_loads_it_as_a_function(self):
        # As a package installs it: in a folder of $fpath, found by compinit.
        folder = self.box.path("functions")
        os.makedirs(folder)
        shutil.copy(os.path.join(os.path.dirname(self.box.binary), "completions", "_leafctl"), folder)
        global ZSH_RC
        before = ZSH_RC
        ZSH_RC = "fpath=(%s $fpath)\n" % folder + before.replace("source <(leafctl completion zsh)\n", "")
        try:
            shell = self.shell("zsh")
        finally:
            ZSH_RC = before
        self.assertEqual(shell.line("leafctl tag rem" + TAB), "leafctl tag remove ")
        self.assertEqual(shell.line("leafctl tag list --js" + TAB), "leafctl tag list --json ")

    def test_bash_without_its_usual_word_breaks(self):
        self.box.ok("tag", "add", "colon:colon")
        shell = self.shell("bash")
        shell.line("")
        os.write(shell.master, b"COMP_WORDBREAKS=${COMP_WORDBREAKS//[:=]}\n")
        self.assertEqual(shell.line("leafctl next --format=ba" + TAB).strip(), "leafctl next --format=base62")
        self.assertEqual(shell.words_of(shell.line("leafctl next colon:c" + TAB)), ["next", "colon:colon"])


if __name__ == "__main__":
    main()
