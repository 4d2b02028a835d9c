#!/usr/bin/env python3
"""Fails where a link of the documentation leads nowhere, or user pages grow beyond their words: check_docs.py [PROJECT_ROOT]

User pages are README.md and docs/*.md, except the pages of formulas and those that a command writes. MOST_WORDS is their bound, as `wc -w`
counts: lower it after a cut, never raise it. Links are checked in README.md, CONTRIBUTING.md and all of docs/: the file exists, and it has
the heading of the anchor.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

MOST_WORDS = 30000
FORMULAS = ("memory", "memory-experts", "memory-graphs", "memory-megatron", "memory-optimizers", "memory-precision", "time", "search", "layers", "buffers",
            "model-families")
WRITTEN = ("accuracy", "kernels")  # by tests/accuracy/score and write_kernels_page

FENCED = re.compile(r"(?ms)^```.*?^```$")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"(?m)^#+ (.*)$")


def user_pages(root):
    pages = [page for page in sorted((root / "docs").glob("*.md")) if page.stem not in FORMULAS + WRITTEN]
    return [root / "README.md", *pages]


def words_of(page):
    return len(page.read_text(encoding="utf-8").split())


def anchor(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\]\([^)]*\)", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    return {anchor(found[1]) for found in HEADING.finditer(FENCED.sub("", page.read_text(encoding="utf-8")))}


def dead_links(root):
    """A line for each link that leads nowhere."""
    lines = []
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        for found in LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8"))):
            file, place = found.groups()
            target = (page.parent / file).resolve() if file else page
            if not target.exists():
                lines.append(f"{page.relative_to(root).as_posix()}: {file} does not exist; mend the link")
            elif place and target.suffix == ".md" and place not in anchors(target):
                lines.append(f"{page.relative_to(root).as_posix()}: {target.name} has no heading #{place}; mend the link")
    return lines


def offences(root, most):
    """(lines of what is wrong, words of the user pages)."""
    words = sum(words_of(page) for page in user_pages(root))
    lines = dead_links(root)
    if words > most:
        lines.append(f"user pages have {words:,} words, {most:,} are the most; cut some, or move measurements to docs/measurements")
    return lines, words


def main(arguments):
    root = Path(arguments[0] if arguments else ".").resolve()
    lines, words = offences(root, MOST_WORDS)
    print("\n".join([*lines, f"user pages: {words:,} words, at most {MOST_WORDS:,}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
