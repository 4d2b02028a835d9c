#!/usr/bin/env python3
"""Advises on functions of the rooms that are longer than 80 lines: check_functions.py [PROJECT_ROOT] [--longest N]

Lines from the one that names the function to the one that closes it, both included, as .clang-format breaks them. The advice fails
nothing: a long function with one meaning stays whole. --longest prints the N longest.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
from cpp_names import blanked  # noqa: E402

ROOMS = ("plan", "formats", "model", "planner", "simulator", "runtime", "reports", "jobs", "cli", "python")
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh"}
MOST_LINES = 80

NO_FUNCTION = re.compile(r"(namespace|struct|class|enum|union|extern|typedef|using)\b|template <.*> (struct|class)\b|#|//|[{}:)]|[\w:<>,\s*&]+\w+\{")
NAME = re.compile(r"([~\w:]+|operator\S+)\s*\(")


def functions(text):
    """Yields (name, first line, lines) of the functions that a formatted C++ text defines at namespace scope or in a class."""
    lines = blanked(text).split("\n")
    at, classes = 0, []
    while at < len(lines):
        line = lines[at]
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent % 4 or line.lstrip().startswith(("}", "#")):
            at += 1
            continue
        # A statement begins here: up to the line that opens a block, or ends it.
        first, head = at, line
        while at + 1 < len(lines) and not re.search(r"[;{}]\s*$", head) and not head.rstrip().endswith(":"):
            at += 1
            head += " " + lines[at].strip()
        at += 1
        stripped = head.strip()
        if not stripped.endswith("{") or stripped.endswith(("}", ";")):
            continue
        if re.match(r"(inline )?namespace\b|extern\b", stripped):
            continue
        if re.match(r"(template <.*> )?(struct|class|union)\b", stripped) and not re.search(r"\)\s*(const )?(noexcept )?\{$", stripped):
            continue  # its members are looked at
        closing = " " * indent + "}"
        end = at
        while end < len(lines) and not lines[end].startswith(closing):
            end += 1
        name = NAME.search(re.sub(r"^template <.*?> (?=\w)", "", stripped))
        if name and not re.match(r"enum\b", stripped):
            yield name[1].split("::")[-1] if not name[1].startswith("operator") else name[1], first + 1, end - first + 1
        at = end + 1


def all_functions(root):
    """Yields (file, function, line, lines) of the rooms, longest first."""
    found = []
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in SUFFIXES:
                found += [(path.relative_to(root).as_posix(), *each) for each in functions(path.read_text(encoding="utf-8"))]
    return sorted(found, key=lambda each: (-each[3], each[0]))


def advice(root):
    """A printable line for each long function under a project root."""
    return [f"{file}:{line}: {name} has {lines} lines; ask whether there are two meanings"
            for file, name, line, lines in all_functions(root) if lines > MOST_LINES]


def main():
    words = sys.argv[1:]
    longest = int(words.pop(words.index("--longest") + 1)) if "--longest" in words else 0
    words = [word for word in words if word != "--longest"]
    root = Path(words[0]) if words else Path(__file__).resolve().parents[2]
    if longest:
        for file, name, line, lines in all_functions(root)[:longest]:
            print(f"{lines:4} {file}:{line} {name}")
        return 0
    for line in advice(root):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
