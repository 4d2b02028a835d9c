#!/usr/bin/env python3
"""Fails when a file of reports/web/ breaks a rule for the HTML pages: check_web.py [PROJECT_ROOT]

1. Scripts parse (`node --check`, where node is installed). They set text and never markup, and no file loads from elsewhere.
2. Styles: braces match, and every #id and .class of a rule occurs in the C++, HTML or JavaScript that makes the pages.
3. Colours: page.css declares each var(--NAME), in the light and in the dark colours alike.
4. Fragments of HTML: every element is closed, no id occurs twice.
5. Every id that a script looks up is an id in the C++ or HTML.

Prints one line per offence and exits 1 when there is any.
"""
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

FORBIDDEN = {
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b": "sets markup or runs text; use textContent or createElement",
    r"https?://|@import\b|url\(": "loads from elsewhere; a page holds all it needs",
    r"</(?:script|style)": "ends the element that holds it",
    r"\)file~\"": "ends the C++ literal of cmake/write_embedded.cmake",
}
EMPTY_ELEMENTS = {"meta", "input", "br", "hr", "img"}
IDS = re.compile(r"""\bid=\\?["']([^"'\\]+)""")
LOOKED_UP = re.compile(r"""(?:byId|getElementById)\("([\w-]+)"\)""")


class Fragment(HTMLParser):
    """Problems of a piece of HTML."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.problems = [], set(), []
        self.feed(text)
        self.problems += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value in self.ids:
                self.problems.append(f"id {value} occurs twice")
            elif name == "id":
                self.ids.add(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes no element")


def rules(css):
    """Selectors of a style sheet, media queries left out."""
    return [text for text in re.findall(r"([^{};]+)\{", css) if not text.strip().startswith("@")]


def declared(css):
    """Names of the colours that a piece of a style sheet declares."""
    return set(re.findall(r"--([\w-]+)\s*:", css))


def colour_problems(css, used):
    light, found, dark = css.partition("@media (prefers-color-scheme: dark)")
    dark = dark[: dark.find("} }")] if found else ""
    for kind, names in (("light", declared(light)), ("dark", declared(dark))):
        for name in sorted(used - names):
            yield f"page.css: var(--{name}) has no {kind} colour"


def script_problems(path, ids):
    node = shutil.which("node")
    if node:
        parsed = subprocess.run([node, "--check", str(path)], capture_output=True, text=True)
        if parsed.returncode != 0:
            yield f"{path.name}: " + next((line for line in parsed.stderr.splitlines() if "Error" in line), "does not parse")
    for name in LOOKED_UP.findall(path.read_text(encoding="utf-8")):
        if name not in ids:
            yield f"{path.name}: looks up id {name}, which no page has"


def style_problems(name, css, makers):
    if css.count("{") != css.count("}"):
        yield f"{name}: {css.count('{')} braces open and {css.count('}')} close"
    for rule in rules(css):
        for kind, word in re.findall(r"([#.])([A-Za-z][\w-]*)", rule):
            if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", makers):
                yield f"{name}: no page has {kind}{word}"


def offences(root):
    folder = root / "reports" / "web"
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}
    cpp = "".join(path.read_text(encoding="utf-8") for room in ("reports", "cli") for path in sorted((root / room).glob("*.cpp")))
    made = cpp + "".join(text for name, text in texts.items() if name.endswith(".html"))
    makers = made + "".join(text for name, text in texts.items() if name.endswith(".js"))
    ids = set(IDS.findall(made))
    for name, text in texts.items():
        for pattern, why in FORBIDDEN.items():
            for match in re.finditer(pattern, text):
                yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]} {why}"
        if name.endswith(".js"):
            yield from script_problems(folder / name, ids)
        elif name.endswith(".css"):
            yield from style_problems(name, text, makers)
        else:
            yield from (f"{name}: {problem}" for problem in Fragment(text).problems)
    yield from colour_problems(texts["page.css"], set(re.findall(r"var\(--([\w-]+)\)", cpp + "".join(texts.values()))))


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found = list(offences(root))
    print("\n".join(found) if found else "the files of reports/web keep the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
