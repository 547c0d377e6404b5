"""What `--help`, the manual pages and completion say about commands and flags, in one form each, and how
they differ. Structured: of a page only macros count, never its prose; but for the sentences of a section that a test does
as they say."""

import collections
import re

# names: all spellings; value: whether it takes one; choices: what that may be, or ().
# Compared by names, so that a flag is one thing whatever it is called.


class Flag:
    def __init__(self, names, value=False, choices=(), required=False):
        self.names = frozenset(names)
        self.value = value
        self.choices = tuple(choices)
        self.required = required

    def key(self):
        return max(self.names, key=len)


class Command:
    def __init__(self, path):
        self.path = path
        self.flags = {}  # key → Flag
        self.arguments = []  # (name, required, choices)
        self.commands = []  # names of the commands below it

    def add(self, flag):
        self.flags[flag.key()] = flag


# ---- --help ------------------------------------------------------------------------------------------------------

# "  -o, --output FORMAT" or "      --json"; what follows two blanks is the meaning.
HELP_FLAG = re.compile(r"  (?:(-\w), |    )(--[\w-]+)(?: (\S+))?(?:  +(.*))?$")
HELP_NAME = re.compile(r"  ([A-Za-z]\S*)(?:  +(.*))?$")
# The values of a flag, at the end of its meaning: ": text, json or csv".
HELP_CHOICES = re.compile(r": ((?:[\w-]+, )*[\w-]+ or [\w-]+)(?= \[|$)")


def help_entries(lines):
    """(what stands left, its meaning on one line) of a section."""
    entries = []
    for line in lines:
        if HELP_FLAG.match(line) or HELP_NAME.match(line):
            entries.append([line, ""])
        else:
            entries[-1][1] += " " + line.strip()
    return [(first, more) for first, more in entries]


def help_sections(text):
    """(the text before the first one, heading → lines); a section ends with an empty line."""
    sections, heading, before = {}, None, []
    for line in text.split("\n"):
        if re.match(r"\S.*:$", line):
            heading = line[:-1]
            sections[heading] = []
        elif not line:
            heading = ""
        elif heading:
            sections[heading].append(line)
        elif heading is None or not sections:
            before.append(line)
    return "\n".join(before), sections


def parse_help(path, text):
    """(the Command, the global flags that this help lists)"""
    command, global_flags = Command(path), Command("")
    usage, sections = help_sections(text)
    flags_seen = False
    for section, lines in sections.items():
        # What follows the flags is the footer, whose examples look like commands.
        is_flags = section in ("Options", "Global flags")
        if flags_seen and not is_flags:
            break
        flags_seen = flags_seen or is_flags
        for first, more in help_entries(lines):
            flag = HELP_FLAG.match(first)
            entry = HELP_NAME.match(first)
            meaning = ((flag.group(4) if flag else entry.group(2)) or "") + more
            found = HELP_CHOICES.search(meaning)
            choices = tuple(re.split(", | or ", found.group(1))) if found else ()
            if flag:
                names = [name for name in flag.group(1, 2) if name]
                one = Flag(names, bool(flag.group(3)), choices, "[required]" in meaning)
                (global_flags if section == "Global flags" else command).add(one)
            elif section == "Arguments":
                name = entry.group(1)
                required = "[%s]" % name not in usage
                assert name in usage, (path, name, usage)
                command.arguments.append((name.removesuffix("..."), required, choices))
            else:
                command.commands.append(entry.group(1))
    return command, global_flags


def read_help(run):
    """`run(words)` is the help's text. Returns (path → Command, the global flags)."""
    commands, global_flags = {}, {}
    waiting = [""]
    while waiting:
        path = waiting.pop()
        command, listed = parse_help(path, run(path.split()))
        commands[path] = command
        global_flags.update(listed.flags)
        waiting += [(path + " " + name).strip() for name in command.commands]
    return commands, global_flags


# ---- mdoc --------------------------------------------------------------------------------------------------------


def tokens(line):
    words = re.findall(r'"[^"]*"|\S+', line.replace("\\(dq", "\x01"))
    return [word.strip('"') for word in words]


def section_of(text, name):
    """The lines of a section."""
    found = re.search(r"^\.Sh %s\n(.*?)(?=^\.Sh |\Z)" % re.escape(name), text, re.MULTILINE | re.DOTALL)
    return found.group(1).split("\n") if found else []


# One sentence of a page: the kind of the list that it is an item of ("enum", "bullet", …; "" outside of lists), its text,
# and the commands that are displayed below it.
Sentence = collections.namedtuple("Sentence", "list text commands")


def sentences_of(page, subsection):
    """Those of a subsection, in order. As the pages are written: one that ends, ends its line."""
    found = re.search(r"^\.Ss %s\n(.*?)(?=^\.S[sh] |\Z)" % re.escape(subsection), page, re.MULTILINE | re.DOTALL)
    sentences, text, lists = [], "", [""]

    def end():
        nonlocal text
        if text:
            sentences.append(Sentence(lists[-1], text, []))
        text = ""

    for line in found.group(1).splitlines() if found else []:
        words = line.split()
        if words[0] == ".Dl":
            end()
            sentences[-1].commands.append(" ".join(words[1:]))
        elif words[0] in (".Bl", ".El", ".It", ".Pp"):
            end()
            if words[0] == ".Bl":
                lists.append(words[1].lstrip("-"))
            elif words[0] == ".El":
                lists.pop()
        else:
            more = _plain(words)
            text += (" " if text else "") + more
            if more.endswith("."):
                end()
    end()
    return sentences


def _plain(words):
    """A line as it reads: without its macro, flags with their dash, and marks where they belong."""
    if words[0] == ".Fl":
        words = [words[0], "-" + words[1], *words[2:]]
    if words[0].startswith("."):
        words = words[1:]
    return re.sub(r" ([.,:;])(?= |$)", r"\1", " ".join(words))


def flags_of_tokens(words):
    """The one flag that a line names, or None: Fl n , Fl -count Ar COUNT"""
    names, choices, value, i = [], [], False, 0
    while i < len(words):
        if words[i] == "Fl":
            i += 1
            names.append("-" + words[i])
        elif words[i] == "Ar":
            value = True
        elif words[i] == "Cm":
            value = True
            choices = [word for word in words[i + 1 :] if word != "|"]
            break
        i += 1
    return Flag(names, value, choices) if names else None


def parse_synopsis(page):
    """path → Command, of a page's SYNOPSIS. Flags by the names that are used there."""
    commands = {}
    command = None
    for line in section_of(page, "SYNOPSIS"):
        words = tokens(line)
        if not words:
            continue
        macro = words[0]
        if macro == ".Nm":
            command = None
        elif macro == ".Cm" and command is None:
            command = commands[" ".join(words[1:])] = Command(" ".join(words[1:]))
        elif command is not None:
            required = macro != ".Op"
            rest = [macro[1:]] + words[1:] if required else words[1:]
            flag = flags_of_tokens(rest)
            if flag is not None:
                flag.required = required
                command.add(flag)
            elif rest[0] == "Ar":
                command.arguments.append((rest[1], required, ()))
            elif rest[0] == "Cm":
                command.arguments.append(("", required, tuple(word for word in rest[1:] if word != "|")))
    return commands


def parse_items(lines):
    """The flags, and the commands, that have an entry of their own."""
    flags, commands = {}, []
    for line in lines:
        words = tokens(line)
        if words[:1] != [".It"]:
            continue
        flag = flags_of_tokens(words[1:])
        if flag is not None:
            flags[flag.key()] = flag
        elif words[1:2] == ["Cm"] and "|" not in words:
            commands.append(" ".join(words[2:]))
    return flags, commands


# ---- differences -------------------------------------------------------------------------------------------------


def compare(what, names, expected, found):
    """Lines about what is on one side only."""
    lines = ["%s: %s: only in %s" % (what, name, names[0]) for name in sorted(set(expected) - set(found))]
    return lines + ["%s: %s: only in %s" % (what, name, names[1]) for name in sorted(set(found) - set(expected))]


def compare_flags(what, names, expected, found, required=False):
    lines = compare(what, names, expected, found)
    for key in sorted(set(expected) & set(found)):
        one, other = expected[key], found[key]
        facts = [("value", one.value, other.value), ("choices", one.choices, other.choices)]
        facts += [("required", one.required, other.required)] if required else [("names", one.names, other.names)]
        lines += [
            "%s: %s: %s: %s in %s, %s in %s" % (what, key, fact, mine, names[0], theirs, names[1])
            for fact, mine, theirs in facts
            if mine != theirs
        ]
    return lines


def without_help(flags):
    return {key: flag for key, flag in flags.items() if key != "--help"}


def by_help_names(flags, known):
    """With each flag under the name it has in the help: a synopsis uses one of its spellings."""
    renamed = {}
    for key, flag in flags.items():
        for known_key, known_flag in known.items():
            if key in known_flag.names:
                key = known_key
        renamed[key] = flag
    return renamed


def manual_differences(commands, global_flags, pages):
    """What --help and the pages (name → text) do not agree about."""
    names = ("--help", "the manual")
    root = commands[""]
    flags, _ = parse_items(section_of(pages.get("leafctl.1", ""), "OPTIONS"))
    lines = compare_flags("leafctl.1", names, {**global_flags, **root.flags}, flags)
    _, listed = parse_items(section_of(pages.get("leafctl.1", ""), "COMMANDS"))
    lines += compare("leafctl.1 COMMANDS", names, root.commands, listed)

    described = {"version", "help"}  # in leafctl.1 itself
    for name in root.commands:
        if name in described:
            continue
        file = "leafctl-%s.1" % name
        if file not in pages:
            lines.append("%s: there is no such page" % file)
            continue
        page = pages[file]
        below = {path: command for path, command in commands.items() if (path + " ").startswith(name + " ")}
        leaves = {path: command for path, command in below.items() if not command.commands}
        synopses = parse_synopsis(page)
        lines += compare(file + " SYNOPSIS", names, leaves, synopses)
        union = {}
        for path in sorted(set(leaves) & set(synopses)):
            what = "%s: %s" % (file, path)
            expected = without_help(leaves[path].flags)
            union.update(expected)
            lines += compare_flags(what, names, expected, by_help_names(synopses[path].flags, expected), required=True)
            for kind, mine, theirs in (
                ("arguments", [a[1:] for a in leaves[path].arguments], [a[1:] for a in synopses[path].arguments]),
                (
                    "names of arguments",
                    [a[0] for a in leaves[path].arguments if not a[2]],
                    [a[0] for a in synopses[path].arguments if not a[2]],
                ),
            ):
                if mine != theirs:
                    lines.append("%s: %s: %s in --help, %s in the manual" % (what, kind, mine, theirs))
        flags, listed = parse_items(section_of(page, "DESCRIPTION"))
        lines += compare_flags(file + " DESCRIPTION", names, union, flags)
        if commands[name].commands:
            lines += compare(file + " DESCRIPTION", names, commands[name].commands, listed)
    wanted = {"leafctl-%s.1" % name for name in root.commands if name not in described} | {"leafctl.1"}
    lines += compare("pages", names, wanted, [file for file in pages if file.endswith(".1")])
    return lines


def completion_differences(commands, global_flags, completions):
    """The same for what completion offers: path → (commands, flag → choices, "" for any value, None for no value)."""
    names = ("--help", "the completion")
    lines = compare("commands", names, commands, completions)
    for path in sorted(set(commands) & set(completions)):
        offered, flags = completions[path]
        lines += compare("commands of '%s'" % path, names, commands[path].commands, offered)
        expected = {}
        for flag in {**global_flags, **commands[path].flags}.values():
            for name in flag.names:
                expected[name] = " ".join(flag.choices) if flag.value else None
        lines += compare("flags of '%s'" % path, names, expected, flags)
        for name in sorted(set(expected) & set(flags)):
            mine, theirs = expected[name], flags[name]
            if mine != theirs:
                lines.append("'%s' %s: %r in --help, %r in the completion" % (path, name, mine, theirs))
    return lines


def read_completion(ask, commands, global_flags):
    """The same of what `ask` tells: the words of a line → kind and candidates."""
    table = {}
    global_names = {name for flag in global_flags.values() for name in flag.names}
    known = {}
    for path in commands:
        words = path.split()
        kind, offered = ask([*words, ""])
        # `help` completes the commands that it explains, and has none of its own.
        below = offered if kind == "commands" and path != "help" else []
        flags = {}
        for name in ask([*words, "-"])[1]:
            if name not in known or name not in global_names:
                if ask([*words, name, "-"])[0] == "flags":
                    known[name] = None
                else:
                    kind, values = ask([*words, name, ""])
                    known[name] = " ".join(values) if kind == "words" else ""
            flags[name] = known[name]
        table[path] = (below, flags)
    return table
