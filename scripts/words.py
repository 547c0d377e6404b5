#!/usr/bin/env python3
"""Finds stiff phrases in what users read: each has a plain word that says the same to more people.

    words.py                 looks at everything; says file:line, the phrase and a plain one; exit 1 if there is any
    words.py FILE...         looks at these files alone, as far as they are among what users read

Looked at are the string literals of cmd and lib/leaf (no comments, no preprocessor lines), the dashboard's files, man,
config, and README.md, CHANGELOG.md and doc/*.md without the blocks between ```, which have commands and their output.
A phrase is found across a line break, too. The list is short on purpose, and this is its only place: the test of the
pages (tests/integration/test_readme.py) takes it from here. Expects to run in the root of the checkout.
"""

import glob
import os
import re
import sys

# A regular expression, whose blanks match any white space, and what to write instead. Case does not matter.
PHRASES = [
    (r"somebody|someone|nobody|everybody|whoever", "name who it is: the user, the caller, a node"),
    (r"mend(?:s|ed|ing)?", "repair, correct"),
    (r"looks? after", "check; manage"),
    (r"stands? (?:in|for)", "is in; replaces; means"),
    (r"went back", "lost data; lost committed grants; of a clock: was set back"),
    (r"(?:is|are|was|were) away", "is unreachable; was cut off"),
    (r"burnt", "lost; used up"),
    (r"in earnest", "leave it out"),
    (r"anew", "again"),
    (r"sees? to it", "make sure"),
    (r"lets? others", "gives other users access"),
    (r"needs your confirmation", "refusing without confirmation"),
]
STIFF = [
    # A comment continues after the # of the next line.
    (re.compile(r"(?<![\w-])(?:%s)(?![\w-])" % phrase.replace(" ", r"(?:\s+#?\s*)"), re.IGNORECASE), plain)
    for phrase, plain in PHRASES
]

TEXTS = ["man/*", "README.md", "doc/*.md", "CHANGELOG.md", "config/**/*", "lib/leaf/server/http/dashboard/*.*"]
SOURCES = ["cmd/**/*.cc", "cmd/**/*.h", "lib/leaf/**/*.cc", "lib/leaf/**/*.h"]

# Comments and preprocessor lines, which are passed over; literals; single characters.
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*"
    r'|R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"|' + r"'(?:\\.|[^'\\\n])+'",
    re.S | re.M,
)


def in_text(text):
    """Each stiff phrase: where it begins, itself, and what to write instead."""
    for pattern, plain in STIFF:
        for match in pattern.finditer(text):
            yield match.start(), match.group(), plain


def without_blocks(text):
    """A page of Markdown, with other characters in the place of what is between ```."""
    inside = False
    lines = []
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        inside ^= fence
        lines.append("|" * len(line) if inside or fence else line)
    return "\n".join(lines)


def literals(source):
    """The string literals of a C++ source, adjacent ones as one: the place of each character, and the text."""
    places, text, end = [], "", None
    for match in TOKEN.finditer(source):
        kind = "raw" if match["raw"] is not None else "text"
        if match[kind] is None:
            continue
        if end is not None and source[end : match.start()].strip():
            yield places, text
            places, text = [], ""
        # \n between two words is white space to the reader, too.
        places += range(match.start(kind), match.end(kind))
        text += match[kind] if kind == "raw" else re.sub(r"\\.", "  ", match[kind])
        end = match.end()
    if text:
        yield places, text


def in_file(path):
    """Each stiff phrase of a file: its line, itself, and what to write instead."""
    with open(path, encoding="utf-8") as file:
        content = file.read()
    if path.endswith((".cc", ".h")):
        found = [(places[at], *rest) for places, text in literals(content) for at, *rest in in_text(text)]
    else:
        found = in_text(without_blocks(content) if path.endswith(".md") else content)
    # A phrase without what is between its words.
    return sorted((content.count("\n", 0, at) + 1, " ".join(re.findall(r"[^\s#]+", said)), plain) for at, said, plain in found)


def all_files():
    """What users read, and what prints it."""
    found = {path for pattern in TEXTS + SOURCES for path in glob.glob(pattern, recursive=True)}
    return sorted(path for path in found if os.path.isfile(path))


def main():
    paths = all_files()
    assert {"man", "cmd", "lib", "doc", "config"} <= {path.split("/")[0] for path in paths}, "not the root of the checkout"
    if len(sys.argv) > 1:
        paths = [path for path in paths if path in sys.argv[1:]]
    failed = False
    for path in paths:
        for line, phrase, plain in in_file(path):
            print('%s:%d: "%s" is stiff; plainer: %s' % (path, line, phrase, plain))
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
