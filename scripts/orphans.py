#!/usr/bin/env python3
"""Finds files that nothing runs or uses, and citations of things that are not there.

    orphans.py    says what; exit 1 if there is anything

Orphans: a source below tests that no CMakeLists.txt compiles, a test script that neither CMake nor scripts/soak.sh
runs, a helper that no other file uses, a header that none includes, a scenario that the museum's README does not list,
a fuzz target without a corpus, a corpus without a target, and a file among cases and mutations that is none. Dead
citations: a file that a comment, a docstring or a document names, and that the repository does not have under this name
or path. In doc/*.md also a folder, a glob, a class, a function, a test, a scenario, a planted bug; and a label of
doc/leaf-compat.md that is cited anywhere. Expects to run in the root of the checkout.
"""

import ast
import collections
import glob
import io
import os
import re
import sys
import tokenize

TOP = ("cmd", "config", "doc", "lib", "man", "scripts", "tests")
# Not read: bytes for parsers, transcripts, and patches of code as it once was.
UNREAD = ("tests/fuzz/corpus/",)
UNREAD_KINDS = (".patch", ".case")

# Tests that are too much for every run.
SOAKED = (
    "tests/integration/test_booted.py",
    "tests/integration/test_mixed_versions.py",
    "tests/integration/test_redis_clients.py",
    "tests/integration/test_suites.py",
)

# Files that comments name and that are not ours: the name, where it is named, and what it is.
FOREIGN = {
    "mysql.h": ("lib/leaf/sql/", "a header of MariaDB's client"),
    "zookeeper.h": ("lib/leaf/zookeeper/", "the header of ZooKeeper's C client"),
    "tags.toml": ("man/leafctl-tag.1", "a user's file, in an example"),
    "new.toml": ("man/leafctl-doctor.1", "a user's file, in an example"),
    "hiredis/hiredis.h": ("man/leafctl-redis.7", "a header of hiredis, in an example"),
    "stdio.h": ("man/leafctl-redis.7", "a header of C, in an example"),
    "tests/sim/museum/NAME.toml": ("tests/sim/museum/README.md", "any of them"),
}

# name.extension, with folders before it or not; no glob, no URL, no part of a longer name.
CITED = re.compile(r"(?<![\w/.~$*}:-])((?:[\w.-]+/)*[\w.-]*[\w-]\.(?:cc|h|py|sh|toml|md|case))(?![\w/*-]|\.\w)")

problems = []


def problem(where, what):
    problems.append("%s: %s" % (where, what))


def find_files():
    found = []
    for top in (".", *TOP, ".ci"):
        for folder, folders, names in os.walk(top):
            folders[:] = [] if top == "." else [name for name in folders if name != "__pycache__"]
            found += [os.path.normpath(os.path.join(folder, name)) for name in names]
    return sorted(found)


def read_all(paths):
    texts = {}
    for path in paths:
        if path.startswith(UNREAD) or path.endswith(UNREAD_KINDS):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read()
        except UnicodeDecodeError:
            pass
    return texts


# ---- comments -------------------------------------------------------------------------------------------------------


def comments_of_python(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for offset, line in enumerate(node.value.value.split("\n")):
                yield node.lineno + offset, line


def comments(path, text):
    """(line, text) of all that is written for people."""
    kind = os.path.splitext(path)[1]
    if kind == ".py":
        yield from comments_of_python(text)
        return
    lines = enumerate(text.split("\n"), 1)
    if kind == ".md" or path.startswith("man/"):
        yield from lines
        return
    mark = re.compile(r"//(.*)|^\s*/?\*(.*)" if kind in (".cc", ".h", ".c", ".js", ".css") else r"(?:^|\s)#(.*)|^\s*--(.*)")
    for number, line in lines:
        match = mark.search(line)
        if match:
            yield number, match.group(1) or match.group(2) or ""


def code(path, text):
    """The text without its comments, by lines. What is in docstrings stays out, too."""
    lines = text.split("\n")
    kind = os.path.splitext(path)[1]
    if kind == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                for number in range(node.lineno - 1, node.end_lineno):
                    lines[number] = ""
    mark = r"//.*" if kind in (".cc", ".h", ".c") else r"(^|\s)#.*"
    if kind in (".cc", ".h", ".c", ".py", ".sh", ".txt"):
        lines = [re.sub(mark, "", line) if not line.lstrip().startswith("#include") else line for line in lines]
    return "\n".join(lines)


# ---- orphans --------------------------------------------------------------------------------------------------------


def named_by_cmake(texts):
    """Paths that the CMakeLists.txt below tests name, with the variables of a foreach put in."""
    named = set()
    for path, text in texts.items():
        if not (path.startswith("tests/") and path.endswith("CMakeLists.txt")):
            continue
        folder = os.path.dirname(path)
        text = code(path, text)
        values = dict(re.findall(r"foreach\((\w+) ([\w ]+)\)", text))
        for word in re.findall(r"[\w./{}$-]+\.(?:cc|py|sh|yml|supp)\b", text):
            word = word.replace("${CMAKE_CURRENT_SOURCE_DIR}/", "").replace("${PROJECT_SOURCE_DIR}/", "/")
            variable = re.search(r"\$\{(\w+)\}", word)
            for value in values.get(variable.group(1), "").split() if variable else [""]:
                one = re.sub(r"\$\{\w+\}", value, word)
                named.add(one[1:] if one.startswith("/") else os.path.normpath(os.path.join(folder, one)))
        for name in re.findall(r"leaf_black_box_test\((\w+)", text):
            named.add("%s/integration/test_%s.py" % (folder, name))
    return named


def names_in(text):
    """The names of files that a text may mean: with their extension, or as Python's modules."""
    names = set(re.findall(r"[\w-]+(?:\.[\w-]+)+", text))
    for line in re.findall(r"^\s*(?:from (\w+) import|import ([\w, ]+))", text, re.M):
        names.update(module.strip() + ".py" for part in line for module in part.split(","))
    return names


def used_by_another(path, names):
    return any(other != path and os.path.basename(path) in found for other, found in names.items())


def check_tests(files, texts):
    named = named_by_cmake(texts)
    names = {path: names_in(code(path, text)) for path, text in texts.items() if not path.endswith(".md")}
    for path in files:
        kind = os.path.splitext(path)[1]
        name = os.path.basename(path)
        if not path.startswith("tests/") or path.startswith(UNREAD):
            continue
        if kind == ".cc":
            if path not in named:
                problem(path, "no CMakeLists.txt compiles it")
        elif kind == ".py" and name.startswith("test_"):
            if path not in named and not (path in SOAKED and name in names["scripts/soak.sh"]):
                problem(path, "no CMakeLists.txt registers it as a test, nor does scripts/soak.sh run it")
        elif kind == ".patch":
            if os.path.dirname(path) != "tests/mutations":
                problem(path, "scripts/mutations.sh looks into tests/mutations only")
        elif kind == ".case":
            if os.path.dirname(path) != "tests/cli/cases":
                problem(path, "tests/cli/run.py looks into tests/cli/cases only")
        elif kind == ".toml" and path.startswith("tests/sim/museum/"):
            pass  # check_museum
        elif kind not in (".md",) and name != "CMakeLists.txt":
            if not used_by_another(path, names):
                problem(path, "no other file uses it")
    for folder, extension in (("tests/mutations", ".patch"), ("tests/cli/cases", ".case")):
        for path in files:
            if path.startswith(folder + "/") and not path.endswith((extension, "CMakeLists.txt")):
                if path == "tests/mutations/explained.txt":
                    continue  # scripts/mutants.py
                problem(path, "is no %s file: nothing reads it" % extension)


def check_scripts(files, texts):
    names = {path: names_in(text) for path, text in texts.items()}
    for path in files:
        if path.startswith("scripts/") and not used_by_another(path, names):
            problem(path, "no other file names it")


def check_museum(files, texts):
    readme = "tests/sim/museum/README.md"
    listed = collections.Counter(re.findall(r"^\| ([\w-]+) \|(?:[^|\n]*\|){4}$", texts[readme], re.M))
    listed.pop("scenario", None)
    there = {os.path.basename(path)[:-5] for path in files if re.fullmatch(r"tests/sim/museum/[^/]+\.toml", path)}
    for name in sorted(there - set(listed)):
        problem("tests/sim/museum/%s.toml" % name, "%s does not list it" % readme)
    for name, times in sorted(listed.items()):
        if name not in there:
            problem(readme, "lists %s, of which there is no scenario" % name)
        elif times > 1:
            problem(readme, "lists %s twice" % name)
    patches = {os.path.basename(path).split("-")[0] for path in files if path.endswith(".patch")}
    for row in re.findall(r"^\| [\w-]+ \|.*\| *([\d, ]*)\|$", texts[readme], re.M):
        for number in re.findall(r"\d+", row):
            if number not in patches:
                problem(readme, "names mutation %s, of which there is no patch" % number)


def check_fuzz(files, texts):
    targets = set(re.findall(r'^ *Target\{"(\w+)"', texts["tests/fuzz/targets.cc"], re.M))
    corpora = {path.split("/")[3] for path in files if path.startswith("tests/fuzz/corpus/") and path.count("/") > 3}
    for name in sorted(targets - corpora):
        problem("tests/fuzz/targets.cc", "target %s has no corpus" % name)
    for name in sorted(corpora - targets):
        problem("tests/fuzz/corpus/" + name, "is of no target in tests/fuzz/targets.cc")


# ---- citations ------------------------------------------------------------------------------------------------------


def check_citations(files, texts):
    known = set()
    for path in files:
        parts = path.split("/")
        known.update("/".join(parts[first:]) for first in range(len(parts)))
    used = set()
    for path, text in sorted(texts.items()):
        for number, comment in comments(path, text):
            for cited in CITED.findall(comment):
                if re.sub(r"^(\.{1,2}/)+", "", cited) in known:
                    continue
                if cited in FOREIGN and path.startswith(FOREIGN[cited][0]):
                    used.add(cited)
                    continue
                problem("%s:%d" % (path, number), "there is no %s (if it is not ours: FOREIGN in scripts/orphans.py)" % cited)
    for cited in sorted(set(FOREIGN) - used):
        problem("scripts/orphans.py", "nothing cites %s any more" % cited)


# ---- documents ------------------------------------------------------------------------------------------------------

LEAF_COMPAT = "doc/leaf-compat.md"
# A path from the root: of a file, a folder, or all that a glob stands for.
DOC_PATH = re.compile(r"(?<![\w/.:-])((?:%s)/[\w./*-]*[\w/*])" % "|".join(TOP))
# Class::Function; a class, function or constant alone; Suite.Case of a test, Class.test_case of a black-box test.
DOC_MEMBER = re.compile(r"\b(?:\w+::)*(\w+)::(\w+)")
DOC_NAME = re.compile(r"`(k?[A-Z]\w+)`")
DOC_TEST = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+|test_\w+)`")


def numbered(text):
    """(line, text) of each paragraph, bullet or row, with its lines joined."""
    parts = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or re.match(r"\s*[*#|]", line) or not parts or not parts[-1][1]:
            parts.append([number, line.strip()])
        else:
            parts[-1][1] += " " + line.strip()
    return [part for part in parts if part[1]]


def check_paths(files, path, text):
    known = set(files)
    for name in files:
        while "/" in name:
            name = os.path.dirname(name)
            known.add(name)
    for number, line in enumerate(text.split("\n"), 1):
        for cited in DOC_PATH.findall(line):
            if CITED.fullmatch(cited):
                continue  # check_citations
            if not (glob.glob(cited) if "*" in cited else cited.rstrip("/") in known):
                problem("%s:%d" % (path, number), "there is no %s" % cited)


class Source:
    """What a document may name of one source."""

    def __init__(self, text):
        self.words = set(re.findall(r"\w+", text))
        self.members = set(re.findall(r"\b(\w+)::~?(\w+)", text))
        self.classes = set(re.findall(r"\b(?:class|struct) (\w+)", text))

    def has(self, outer, member):
        """A member that is defined here, or is named beside the class; of a namespace, any word."""
        if (outer, member) in self.members:
            return True
        return member in self.words and (outer in self.classes or outer[0].islower())


def check_names(path, text, sources, cases):
    for number, part in numbered(text):
        where = "%s:%d" % (path, number)
        for outer, member in DOC_MEMBER.findall(part):
            if not any(source.has(outer, member) for source in sources):
                problem(where, "there is no %s::%s" % (outer, member))
        # Java's have names as well.
        for name in DOC_NAME.findall(part) if path != LEAF_COMPAT else ():
            if not any(name in source.words for source in sources):
                problem(where, "there is no %s" % name)
        for suite, case in DOC_TEST.findall(part):
            if (suite, case) not in cases:
                problem(where, "there is no test %s.%s" % (suite, case))


def check_invariants(files, texts):
    """Scenarios behind "Museum:", planted bugs behind "Planted:", which have to be of the promise in the heading."""
    path = "doc/invariants.md"
    promises = {}
    for name in files:
        if name.endswith(".patch"):
            with open(name, encoding="utf-8") as patch:
                promise = re.search(r"^promise: (.*)$", patch.read(), re.M)
            promises[os.path.basename(name).split("-")[0]] = promise.group(1).split(", ") if promise else []
    promise = ""
    for number, part in numbered(texts[path]):
        where = "%s:%d" % (path, number)
        heading = re.match(r"## (P\d|Access)", part)
        promise = heading.group(1).replace("Access", "access") if heading else promise
        if not part.startswith("* Museum: "):
            continue
        museum, _, planted = part.partition("Planted: ")
        for name in re.findall(r"`([\w-]+)`", museum):
            if "tests/sim/museum/%s.toml" % name not in files:
                problem(where, "there is no scenario %s" % name)
        for bug in re.findall(r"\d+", planted):
            if promise not in promises.get(bug, []):
                problem(where, "there is no planted bug %s of %s" % (bug, promise))


def check_labels(texts):
    """Labels of doc/leaf-compat.md: its headings, and the first cells of its tables. "M1", "§6.3", "S4 to S8"."""
    document = texts[LEAF_COMPAT]
    labels = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", document, re.M)) | set(re.findall(r"^\| ([SM]\d+) \|", document, re.M))
    for path, text in sorted(texts.items()):
        for number, line in enumerate(text.split("\n"), 1):
            for cited in re.findall(r"\bleaf-compat((?:,? (?:and |to )?§?(?:[SM]\d+|\d+(?:\.\d+)?)\b)+)", line):
                for label in re.findall(r"[SM]\d+|\d+(?:\.\d+)?", cited):
                    if label not in labels:
                        problem("%s:%d" % (path, number), "%s has no %s" % (LEAF_COMPAT, label))


def check_documents(files, texts):
    code = {path: text for path, text in texts.items() if path.endswith((".cc", ".h"))}
    sources = [Source(text) for text in code.values()]
    cases = {case for text in code.values() for case in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text, re.M)}
    for path, text in texts.items():
        if path.startswith("tests/integration/test_"):
            for body in re.split(r"^class ", text, flags=re.M)[1:]:
                suite = re.match(r"\w+", body).group()
                cases.update((suite, case) for case in re.findall(r"^ +def (test_\w+)\(", body, re.M))
    for path, text in sorted(texts.items()):
        if path.startswith("doc/"):
            check_paths(files, path, text)
            check_names(path, text, sources, cases)
    check_invariants(files, texts)
    check_labels(texts)


def main():
    files = find_files()
    texts = read_all(files)
    check_tests(files, texts)
    check_scripts(files, texts)
    check_museum(files, texts)
    check_fuzz(files, texts)
    check_citations(files, texts)
    check_documents(files, texts)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
