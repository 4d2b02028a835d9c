#!/usr/bin/env python3
"""Counts lines of production code: count_lines.py [PROJECT_ROOT] [--commit COMMIT] [--most N]

A line counts that holds more than blanks and comments once the files are as the project's .clang-format has them (`./test` holds
that). It reads the C++, CUDA, JavaScript, CSS and HTML files of the rooms, as git has them; tests, examples and generated files are
not production code. It prints one line for each room, then the sum. --commit counts that commit in place of the work tree; --most exits 1 above N.
"""
import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

NOT_ROOMS = {"tests", "examples", "docs", "configs", "cmake", "build"}
SUFFIXES = (".cpp", ".hpp", ".h", ".cu", ".cuh", ".inl", ".js", ".css", ".html")
# Comments go, literals stay: a // inside one begins no comment. Digits may be separated by an apostrophe.
TOKENS = re.compile(r"""//[^\n]*|/\*.*?\*/|(?P<keep>R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")""", re.DOTALL)


def count(text):
    """Lines that hold code. JavaScript, CSS and HTML share the comments and literals of C++ that matter here."""
    code = TOKENS.sub(lambda match: match["keep"] or "\n" * match[0].count("\n"), text)
    return sum(1 for line in code.splitlines() if line.strip())


def files(root, commit):
    """Yields (path, text) of each production file."""

    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=True).stdout.decode()

    names = git("ls-tree", "-r", "--name-only", commit) if commit else git("ls-files")
    for name in names.splitlines():
        if not name.endswith(SUFFIXES) or "/" not in name or name.split("/")[0] in NOT_ROOMS:
            continue
        if commit:
            yield name, git("show", f"{commit}:{name}")
        elif (root / name).is_file():
            yield name, (root / name).read_text(encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--commit")
    parser.add_argument("--most", type=int)
    given = parser.parse_args()
    rooms = Counter()
    for name, text in files(given.root, given.commit):
        rooms[name.split("/")[0]] += count(text)
    for room, lines in sorted(rooms.items()):
        print(f"{lines:7} {room}/")
    print(f"{rooms.total():7} in all")
    return 1 if given.most is not None and rooms.total() > given.most else 0


if __name__ == "__main__":
    sys.exit(main())
