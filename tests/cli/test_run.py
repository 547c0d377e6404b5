#!/usr/bin/env python3
"""What the runner of the golden tests takes for the same, in a terminal, and what it does not."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run  # noqa: E402
from leafctl import main  # noqa: E402


class Interleaving(unittest.TestCase):
    def test_lines_mix_in_any_way(self):
        out, err = "a\nb\n", "x\ny\n"
        for text in ("abxy", "axby", "axyb", "xaby", "xayb", "xyab"):
            with self.subTest(text):
                self.assertTrue(run.is_interleaving("".join(line + "\n" for line in text), out, err))

    def test_each_stream_keeps_its_order(self):
        for text in ("b\na\nx\n", "x\nb\na\n", "b\nx\na\n"):
            self.assertFalse(run.is_interleaving(text, "a\nb\n", "x\n"), text)

    def test_nothing_is_missing_and_nothing_is_added(self):
        for text in ("", "a\n", "x\n", "a\nx\nx\n", "a\nx\n\n", "a\nx"):
            self.assertFalse(run.is_interleaving(text, "a\n", "x\n"), text)
        self.assertTrue(run.is_interleaving("", "", ""))
        self.assertTrue(run.is_interleaving("a\n", "a\n", ""))
        self.assertTrue(run.is_interleaving("\nx\n\n", "\n\n", "x\n"))

    def test_a_line_stays_whole(self):
        self.assertFalse(run.is_interleaving("ax\nb\n", "ab\n", "x\n"))
        self.assertFalse(run.is_interleaving("xa\n\n", "a\n", "x\n"))

    def test_a_last_line_without_a_newline(self):
        # A question, and what comes on the other stream behind it.
        self.assertTrue(run.is_interleaving("sure? x\n", "sure? ", "x\n"))
        self.assertTrue(run.is_interleaving("x\nsure? ", "sure? ", "x\n"))
        self.assertTrue(run.is_interleaving("x\nsure? y\n", "sure? ", "x\ny\n"))
        self.assertFalse(run.is_interleaving("sure?\n x", "sure? ", "x\n"))

    def test_lines_that_the_streams_share(self):
        # Which stream a line is of shows only later.
        self.assertTrue(run.is_interleaving("a\nb\na\na\n", "a\na\n", "a\nb\n"))
        self.assertFalse(run.is_interleaving("b\na\na\na\n", "a\na\n", "a\nb\n"))
        many = "a\n" * 300
        self.assertTrue(run.is_interleaving(many + many, many, many))
        self.assertFalse(run.is_interleaving(many + many[:-2] + "b\n", many, many))


class Case(unittest.TestCase):
    """A case file as a whole. The shell ends a line before it begins the next: what comes out is always the same."""

    MIXED = "$ echo a; echo x >&2; echo b\na\nb\n! x\n? 0\n"

    def differences(self, text, accept=False):
        with tempfile.NamedTemporaryFile("w", suffix=".case") as file:
            file.write(text)
            file.flush()
            difference = run.run_case(file.name, accept)
            with open(file.name, encoding="utf-8") as after:
                return difference, after.read()

    def test_the_streams_mix(self):
        self.assertEqual(self.differences(self.MIXED)[0], "")

    def test_two_processes_mix(self):
        # The second one says something before the first one has ended.
        text = "$ mkfifo go; (echo x >&2; echo a; cat go >/dev/null; echo y >&2; echo b) | (read one; echo $one; : >go; cat)\n"
        self.assertEqual(self.differences(text + "a\nb\n! x\n! y\n? 0\n")[0], "")

    def test_a_wrong_line_is_told(self):
        difference, _ = self.differences(self.MIXED.replace("! x", "! z"))
        self.assertIn("-! z\n", difference)
        self.assertIn("+! x\n", difference)
        self.assertNotIn("@ terminal", difference)  # one fault, one difference

    def test_the_order_of_a_stream_is_told(self):
        self.assertNotEqual(self.differences(self.MIXED.replace("a\nb\n! x", "b\na\n! x"))[0], "")

    def test_a_terminal_section_is_taken_literally(self):
        section = "@ terminal\na\nx\nb\n? 0\n"
        self.assertEqual(self.differences(self.MIXED + section)[0], "")
        for other in ("a\nb\nx\n", "x\na\nb\n"):
            difference, _ = self.differences(self.MIXED + section.replace("a\nx\nb\n", other))
            self.assertIn("@ terminal", difference)

    def test_accepting(self):
        # Nothing is added where any mixture will do, and an order that was asked for stays.
        self.assertEqual(self.differences(self.MIXED, accept=True)[1], self.MIXED)
        section = "@ terminal\na\nx\nb\n? 0\n"
        self.assertEqual(self.differences(self.MIXED + section, accept=True)[1], self.MIXED + section)


if __name__ == "__main__":
    main()
