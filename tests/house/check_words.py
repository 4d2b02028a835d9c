#!/usr/bin/env python3
"""Fails where comments of a room gain private words or openers that make a riddle of them: check_words.py [--write | --list ROOM] [PROJECT_ROOT]

A comment states a fact about the code: subject, verb, object. Two things are counted in the // and /// comments of each room:
openers, comments whose first word makes them an indirect question or a fragment ("What …", "Whether …", "Of …"), and words, those that
only this project uses so ("told", "behind" a point in time, "beside" for besides). word_counts.txt has the counts that a room may have.
They only shrink: a larger count is an offence; a smaller one is reported, and --write enters it. --list prints each place of a room.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

ROOMS = ("plan", "formats", "model", "simulator", "planner", "runtime", "reports", "jobs", "cli", "python")
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh"}
COUNTS = "tests/house/word_counts.txt"

# "of" opens a harmless fragment where it is lower case: `int ranks;  ///< of the group`.
OPENER = re.compile(r"(?:[Ww]hat|[Ww]hether|[Ww]hose|Of|[Hh]ow many|[Ss]o many)\b")
WORDS = re.compile(
    r"\b(?:so many|as many(?! as\b)(?! \w+ as\b)|anew|at hand|beside|"  # N, the same number; again; available; besides, next to
    r"(?<!hidden )(?<!hide )(?<!hides )(?<!hiding )behind|"  # after
    r"tells?|told|telling|knows?|knew|asks?|asked|asking|"  # reports, passed; has; calls, requests
    r"stands?(?! for\b)(?!-)|"  # is
    r"mixtures?(?![ -]of\b)(?![(_]|\.\w))\b", re.IGNORECASE)  # MoE models, MoE layers

# A string, a character or a comment, each from its begin; a quote between digits separates them.
TOKEN = re.compile(r'R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\\n]|\\.)*\'|/\*.*?\*/|(?P<comment>//[^\n]*)', re.DOTALL)


def comments(text):
    """Yields (line number, text without slashes) of each comment. Lines of comments alone that follow each other are one comment."""
    last = None
    for found in TOKEN.finditer(text):
        if not found["comment"]:
            continue
        begin = text.rfind("\n", 0, found.start()) + 1
        alone = not text[begin:found.start()].strip()
        words = found["comment"].lstrip("/").lstrip("<").strip()
        if last and alone and last["alone"] and not text[last["end"]:found.start()].strip() and text.count("\n", last["end"], found.start()) == 1:
            last["words"] += " " + words
        else:
            if last:
                yield last["line"], last["words"]
            last = {"line": None, "words": words, "alone": alone}
            last["line"] = text.count("\n", 0, found.start()) + 1
        last["end"] = found.end()
    if last:
        yield last["line"], last["words"]


def places(text):
    """Yields (line number of the comment, "opener" or "word", the word) of each place of a C++ text."""
    for line, words in comments(text):
        opener = OPENER.match(words)
        if opener:
            yield line, "opener", opener[0]
        for word in WORDS.finditer(re.sub(r"`[^`]*`", "", words)):  # names of code are no words
            yield line, "word", word[0]


def files_of(root, room):
    return [file for file in sorted((root / room).rglob("*")) if file.suffix in SUFFIXES and file.is_file()]


def counted(root):
    """{room: (openers, words)} of the tree."""
    counts = {}
    for room in ROOMS:
        kinds = [kind for file in files_of(root, room) for _, kind, _ in places(file.read_text(encoding="utf-8"))]
        counts[room] = kinds.count("opener"), kinds.count("word")
    return counts


def allowed(root):
    """{room: (openers, words)} of the table."""
    rows = [line.split() for line in (root / COUNTS).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {room: (int(openers), int(words)) for room, openers, words in rows}


def write(root, counts):
    table = ["# room openers words: tests/house/check_words.py --write lowers them"]
    table += [f"{room} {openers} {words}" for room, (openers, words) in counts.items()]
    (root / COUNTS).write_text("\n".join(table) + "\n", encoding="utf-8")


def compared(counts, table):
    """(offences, notes) of counts beside those of the table, as printable lines."""
    offences, notes = [], []
    for room, found in counts.items():
        for kind, now, most in zip(("openers", "words"), found, table.get(room, (0, 0))):
            if now > most:
                offences.append(f"{room}: {now} {kind} in comments, {COUNTS} allows {most}; state a fact in plain words "
                                f"(check_words.py --list {room} shows each place)")
            elif now < most:
                notes.append(f"{room}: {now} {kind} in comments, {COUNTS} allows {most}; lower it with tests/house/check_words.py --write")
    return offences, notes


def main(arguments):
    options = [word for word in arguments if word.startswith("--")]
    rest = [word for word in arguments if not word.startswith("--")]
    if options == ["--list"]:
        room = rest.pop(0)
    root = Path(rest[0] if rest else ".").resolve()
    if options == ["--list"]:
        for file in files_of(root, room):
            for line, kind, word in places(file.read_text(encoding="utf-8")):
                print(f"{file.relative_to(root).as_posix()}:{line}: {kind} \"{word}\"")
        return 0
    counts = counted(root)
    offences, notes = compared(counts, allowed(root))
    for line in offences + notes:
        print(line)
    if options == ["--write"] and not offences:
        write(root, counts)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
