#!/usr/bin/env python3
"""README.md shows what mgplan prints today: readme_test.py BINARY [--write]

Every block of README.md that begins with "    $ ./mgplan ..." is held against the output of that command. How long a search
took and on how many threads it ran is not compared. --write puts today's output in place instead.
"""
import pathlib
import re
import shlex
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"(?m)^    \$ \./mgplan (?P<words>.*)\n(?P<shown>(?:(?:    .*)?\n)*?)(?=\S)")
VARYING = re.compile(r"in [0-9.]+ s on [0-9]+ threads?")


def main() -> int:
    binary, write = sys.argv[1], sys.argv[2:] == ["--write"]
    text = README.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        print(f"{README} shows no command: a block that begins with '    $ ./mgplan'", file=sys.stderr)
        return 1
    stale = 0
    for block in reversed(blocks):
        done = subprocess.run([binary, *shlex.split(block["words"])], capture_output=True, text=True, timeout=120, check=True)
        printed = "".join(f"    {line}\n" if line else "\n" for line in done.stdout.rstrip("\n").split("\n")) + "\n"
        if VARYING.sub("", printed) == VARYING.sub("", block["shown"]):
            continue
        stale += 1
        print(f"README.md is out of date on 'mgplan {block['words']}', which prints\n{printed}", file=sys.stderr)
        text = text[: block.start("shown")] + printed + text[block.end("shown") :]
    if write:
        README.write_text(text, encoding="utf-8")
        return 0
    if stale:
        print("if that is right: tests/house/readme_test.py BINARY --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
