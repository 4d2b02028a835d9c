#!/usr/bin/env python3
"""README.md, docs/ and docs/measurements show what mgplan prints today: readme_test.py BINARY [--write]

Every block of them that begins with "    $ mgplan ..." or "    $ ./mgplan ..." is held against the output of that command. A line
that is "…" alone stands for any lines, of which a block has at most one. How long a search took and on how many threads it ran is not
compared. Commands run in a folder of their own that holds the files which the page shows: "`NAME`...:" and a fenced block.
--write puts today's output in place instead.
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?m)^    \$ (?:\./)?mgplan (?P<words>.*)\n(?P<shown>(?:(?:    .*)?\n)*?)(?=\S|\Z)")
FILE = re.compile(r"(?m)^`(?P<name>[\w.-]+)`.*:\n\n```\w*\n(?P<text>(?:.*\n)*?)```$")
VARYING = re.compile(r"in [0-9.]+ s on [0-9]+ threads?")
LEFT_OUT = "    …\n"


def abridged(printed: str, shown: str) -> str:
    """`printed` without what `shown` leaves out: as many lines as that has in front of its "…" and behind it."""
    if LEFT_OUT not in shown:
        return printed
    front, behind = (part.count("\n") for part in shown.split(LEFT_OUT, 1))
    lines = printed.splitlines(keepends=True)
    if front + behind >= len(lines):
        return printed
    return "".join([*lines[:front], LEFT_OUT, *lines[len(lines) - behind :]])


def update(page: pathlib.Path, binary: str) -> tuple[int, str, list[str]]:
    """How many commands the page shows, the page as it should be, and a complaint for each block that is out of date."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        for file in FILE.finditer(text):
            (pathlib.Path(folder) / file["name"]).write_text(file["text"], encoding="utf-8")
        for block in reversed(blocks):
            done = subprocess.run([binary, *shlex.split(block["words"])], capture_output=True, text=True, timeout=120, check=True, cwd=folder)
            printed = "".join(f"    {line}\n" if line else "\n" for line in done.stdout.rstrip("\n").split("\n")) + "\n"
            printed = abridged(printed, block["shown"])
            if VARYING.sub("", printed) == VARYING.sub("", block["shown"]):
                continue
            complaints.append(f"{page.name} is out of date on 'mgplan {block['words']}', which prints\n{printed}")
            text = text[: block.start("shown")] + printed + text[block.end("shown") :]
    return len(blocks), text, complaints


def main() -> int:
    binary, write = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:] == ["--write"]
    stale = False
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/measurements").glob("*.md"))]:
        shown, text, complaints = update(page, binary)
        if shown == 0 and page in (ROOT / "README.md", ROOT / "docs/choosing-a-layout.md"):
            print(f"{page} shows no command: a block that begins with '    $ ./mgplan'", file=sys.stderr)
            return 1
        if write:
            page.write_text(text, encoding="utf-8")
        elif complaints:
            stale = True
            print("\n".join(complaints), file=sys.stderr)
    if stale:
        print("if that is right: tests/house/readme_test.py BINARY --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
