#!/usr/bin/env python3
"""README.md and docs/ show what mgplan prints today: readme_test.py BINARY [--write]

Every block of them that begins with "    $ ./mgplan ..." is held against the output of that command. How long a search
took and on how many threads it ran is not compared. --write puts today's output in place instead.
"""
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?m)^    \$ \./mgplan (?P<words>.*)\n(?P<shown>(?:(?:    .*)?\n)*?)(?=\S)")
VARYING = re.compile(r"in [0-9.]+ s on [0-9]+ threads?")


def update(page: pathlib.Path, binary: str) -> tuple[int, str, list[str]]:
    """How many commands the page shows, the page as it should be, and a complaint for each block that is out of date."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    complaints = []
    for block in reversed(blocks):
        done = subprocess.run([binary, *shlex.split(block["words"])], capture_output=True, text=True, timeout=120, check=True)
        printed = "".join(f"    {line}\n" if line else "\n" for line in done.stdout.rstrip("\n").split("\n")) + "\n"
        if VARYING.sub("", printed) == VARYING.sub("", block["shown"]):
            continue
        complaints.append(f"{page.name} is out of date on 'mgplan {block['words']}', which prints\n{printed}")
        text = text[: block.start("shown")] + printed + text[block.end("shown") :]
    return len(blocks), text, complaints


def main() -> int:
    binary, write = sys.argv[1], sys.argv[2:] == ["--write"]
    stale = False
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
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
