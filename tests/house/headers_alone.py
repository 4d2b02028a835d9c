#!/usr/bin/env python3
"""Compiles headers alone: builds the target headers_alone, or of it those headers that changes since a commit concern.

    headers_alone.py BUILD_FOLDER PROJECT_ROOT

The commit is MGPLAN_CHECKED_COMMIT, which ./test --all sets to the newest one of which all headers are known to compile alone; without
it, without git or after changes to how everything is built (but for tests of this folder) all are. A changed header concerns itself, and where it lost an include, a
definition or a name also those that include it, directly or not: what it still says they still get from it. A room whose CMakeLists.txt
changed otherwise than in its files has all its headers compiled.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
DEFINITION = re.compile(r"\b(?:struct|class|enum(?:\s+class)?|union)\s+(\w+)[^;{}()]*\{")
BUILDING = ("cmake/", "CMakeLists.txt", "CMakePresets.json", "tests/house/headers_alone.py")
HERE = "tests/house/CMakeLists.txt"  # which makes the target, and tests beside it


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def promises(text):
    """What a header gives to those that include it: what it includes, defines and names."""
    text = without_comments(text)
    included = {"#" + (mine or other) for mine, other in INCLUDE.findall(text)}
    return included | {"{" + name for name in DEFINITION.findall(text)} | set(re.findall(r"\w+", text))


def concerned(headers, before, changed):
    """headers: {path: text} now. before: {path: text} of changed ones at the commit. changed: paths that changed, gone ones too."""
    lost = {path for path in changed if path in before and not promises(before[path]) <= promises(headers.get(path, ""))}
    includers = {}
    for path, text in headers.items():
        for mine, _ in INCLUDE.findall(without_comments(text)):
            includers.setdefault(mine, set()).add(path)
    found, open_ = changed & set(headers), list(lost)
    while open_:
        for path in includers.get(open_.pop(), set()) - lost:
            lost.add(path)
            open_.append(path)
    return found | lost & set(headers)


def git(root, *words):
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def but_sources(text):
    """A CMakeLists.txt without the lines that only list a file."""
    return re.sub(r"^\s*[\w/.]+\.\w+\n", "", text or "", flags=re.MULTILINE)


def but_tests(text):
    """The CMakeLists.txt of this folder without the lines that only make a test."""
    return re.sub(r"^(?:mgplan_house_test|set_tests_properties)\([^()]*\).*\n", "", text or "", flags=re.MULTILINE)


def chosen(root, commit):
    """The headers to compile; None for all."""
    names = git(root, "diff", "--name-only", "--no-renames", commit) if commit else None
    if names is None or any(name.startswith(BUILDING) for name in names.splitlines()):
        return None
    if HERE in names.splitlines() and but_tests(git(root, "show", f"{commit}:{HERE}")) != but_tests((root / HERE).read_text()):
        return None
    changed = [name for name in names.splitlines() if name.endswith(".hpp")]
    rooms = tuple(name.removesuffix("CMakeLists.txt") for name in names.splitlines() if name.endswith("/CMakeLists.txt") and
                  but_sources(git(root, "show", f"{commit}:{name}")) != but_sources((root / name).read_text() if (root / name).is_file() else None))
    untracked = (git(root, "ls-files", "--others", "--exclude-standard", "*.hpp") or "").splitlines()
    headers = {path: (root / path).read_text() for path in (git(root, "ls-files", "*.hpp") or "").splitlines() + untracked if (root / path).is_file()}
    before = {path: text for path in changed if (text := git(root, "show", f"{commit}:{path}")) is not None}
    return concerned(headers, before, set(changed) | set(untracked)) | {path for path in headers if path.startswith(rooms)}


def objects(listed, headers):
    """Of what `ninja -t targets all` lists ("OUTPUT: RULE", a line each) the objects of these headers; None where it lists no header's."""
    known = re.findall(r"^(\S*/headers_alone/(\S+)_alone\.cpp\.o): ", listed, re.MULTILINE)
    return [output for output, stem in known if stem + ".hpp" in headers] if known else None


def main():
    build, root = (Path(word).resolve() for word in sys.argv[1:3])
    headers = chosen(root, os.environ.get("MGPLAN_CHECKED_COMMIT", ""))
    targets = ["headers_alone"]
    if headers is not None:
        listed = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], capture_output=True, text=True, check=False).stdout
        targets = objects(listed, headers)
        if targets is None:
            sys.exit(f"ninja lists no header that is compiled alone in {build}")
        print(f"{len(targets)} headers that a change concerns")
    if not targets:
        return 0
    return subprocess.run(["cmake", "--build", str(build), "--target", *targets], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
