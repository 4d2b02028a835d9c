#!/usr/bin/env python3
"""Fails when a type name is defined twice in one namespace, or when files of one library could not be compiled as one.

    check_names.py [PROJECT_ROOT]

1. One definition: no two files define a type (struct, class, union, enum, alias or concept) of one name in one named
   namespace. Where implicit members are not inlined, the linker keeps one of the two without a word. The rooms, tests/ and
   examples/ are read.
2. Unity: a unity build compiles the .cpp files of one library (a call of mgplan_room, add_library or add_executable in a
   CMakeLists.txt) as one file, so names of anonymous namespaces and of static functions must differ between them, and from
   those that headers and other files declare in the same namespace. Overloads may share a name; the same alias or
   using-declaration may be repeated. A `using namespace` reaches into the other files, as does a macro that is not undefined
   at the end; namespaces of literals are harmless.

A file that this reader does not understand, a .cpp file that no library lists, a macro whose declarations it cannot see and an
exception below that is no longer needed are offences too. Prints one line per offence and exits 1 when there is any.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
from cpp_names import Unreadable, blanked, names_in  # noqa: E402

ROOMS = ("plan", "formats", "model", "planner", "simulator", "runtime", "reports", "jobs", "cli")
OTHERS = ("tests", "examples")
SUFFIXES = {".hpp", ".h", ".cuh", ".inl", ".cpp", ".cu"}
SOURCES = {".cpp"}  # .cu files are not compiled as one
TYPES = {"type", "alias", "concept"}

# Types that are defined twice, and why no program holds both.
NEVER_LINKED_TOGETHER = {
    "mgplan::runtime::MpiWorld::State": "mpi_absent.cpp is compiled where there is no MPI, the others where there is",
    "mgplan::runtime::cuda::CublasLt::State": "tests/runtime/comm/nccl/fake_device.cpp stands for the module in a test that cannot load it",
}
# Macros that declare things at namespace scope, and what they declare.
KNOWN_MACROS = {
    "NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE": "to_json and from_json, overloaded by the type",
    "NLOHMANN_JSON_SERIALIZE_ENUM": "to_json and from_json, overloaded by the type",
    "MGPLAN_LIBRARY_FUNCTIONS": "a struct named by its first argument",
}
LIBRARY = re.compile(r"\b(mgplan_room|add_library|add_executable|target_sources)\s*\(([^()]*)\)")


def files_of(root, folders, suffixes):
    """Paths of the C++ files below some folders of the root, sorted."""
    return [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.suffix in suffixes and path.is_file()]


def libraries(root):
    """Yields (name, files) of each library of the rooms, as their CMakeLists.txt list them. target_sources() adds to the library
    of the same name and file."""
    for room in ROOMS:
        for cmake in sorted((root / room).rglob("CMakeLists.txt")):
            text = re.sub(r"#[^\n]*", "", cmake.read_text(encoding="utf-8"))
            found = []
            for command, arguments in LIBRARY.findall(text):
                words = arguments.split()
                files = []
                for word in words[1:]:
                    if Path(word).suffix in SUFFIXES:
                        word = word.replace("${PROJECT_SOURCE_DIR}", str(root)).replace("${CMAKE_CURRENT_SOURCE_DIR}", str(cmake.parent))
                        files.append((cmake.parent / word).resolve())
                same = [library for library in found if library[0] == words[0]]
                if command == "target_sources" and same:
                    same[-1][1].extend(files)
                else:
                    found.append((words[0], files))
            yield from found


def types_defined_twice(names):
    """names: {path: names of that file}."""
    places = defaultdict(list)
    for path, found in names.items():
        for name in found:
            if name.kind in TYPES and name.defined and not name.internal:
                places[f"{name.namespace}::{name.name}".removeprefix("::")].append(f"{path}:{name.line}")
    for name, where in sorted(places.items()):
        if len(where) > 1 and name not in NEVER_LINKED_TOGETHER:
            yield f"{where[1]}: {name} is defined at {where[0]} too; two types of one name break the one-definition rule"
    for name in sorted(NEVER_LINKED_TOGETHER):
        if len(places.get(name, ())) < 2:
            yield f"{name}: is excused in tests/house/check_names.py but no longer defined twice; remove it there"


def clash(one, other):
    """Whether two names of one namespace cannot stand in one file. Overloads can, and so can the same alias or using."""
    if one.kind == other.kind == "function":
        return one.parameters == other.parameters
    if one.kind == other.kind and one.kind in ("alias", "using"):
        return one.parameters != other.parameters
    return True


def unity_clashes(library, files, names, shared):
    """files: of one library; names: {path: names}; shared: {(namespace, name): [(path, name)]} of what headers declare."""
    seen = defaultdict(list)
    for path in files:
        for name in names[path]:
            if name.kind not in ("using namespace", "macro"):
                seen[name.namespace, name.name].append((path, name))
    for key, found in sorted(seen.items()):
        for at, (path, name) in enumerate(found):
            others = [entry for entry in found[:at] if entry[0] != path] + shared.get(key, [])
            for elsewhere, other in others:
                if (name.internal or other.internal) and clash(name, other):
                    yield f"{path}:{name.line}: {name.name} clashes with {elsewhere}:{other.line} in a unity build of {library}; give it a name of its own"
                    break


def leaks(path, found, text):
    """What a file of a unity build leaves behind for the next one."""
    for name in found:
        if name.kind == "using namespace" and not name.parameters.endswith("_literals"):
            yield f"{path}:{name.line}: using namespace {name.parameters} would reach into other files of a unity build"
    defined = {}
    for number, line in enumerate(blanked_directives(text), 1):
        match = re.match(r"\s*#\s*(define|undef)\s+(\w+)", line)
        if match and match[1] == "define":
            defined[match[2]] = number
        elif match:
            defined.pop(match[2], None)
    for macro, number in defined.items():
        yield f"{path}:{number}: macro {macro} is not undefined at the end, and would reach into other files of a unity build"


def blanked_directives(text):
    """Lines of a file with its comments blanked and its directives kept."""
    return re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL).split("\n")


def check(root):
    """All offences under a project root, as printable lines."""
    root = Path(root).resolve()
    offences = []
    names = {}
    for path in files_of(root, ROOMS + OTHERS, SUFFIXES):
        name = path.relative_to(root).as_posix()
        try:
            names[name] = names_in(path.read_text(encoding="utf-8"))
        except Unreadable as error:
            offences.append(f"{name}:{error}; tests/house/cpp_names.py cannot read this declaration")
    in_rooms = {path: found for path, found in names.items() if path.split("/")[0] in ROOMS}
    for path, found in in_rooms.items():
        for name in found:
            if name.kind == "macro" and name.name not in KNOWN_MACROS:
                offences.append(f"{path}:{name.line}: what {name.name} declares cannot be seen; say so in KNOWN_MACROS of tests/house/check_names.py")
    offences += types_defined_twice(names)

    shared = defaultdict(list)
    for path, found in in_rooms.items():
        if Path(path).suffix not in {".cpp", ".cu"}:
            for name in found:
                if name.kind not in ("using namespace", "macro"):
                    shared[name.namespace, name.name].append((path, name))
    listed = set()
    for library, files in libraries(root):
        sources = sorted({path.relative_to(root).as_posix() for path in files if path.suffix in SOURCES and path.is_file()} & set(names))
        listed.update(sources)
        offences += unity_clashes(library, sources, names, shared)
        if len(sources) > 1:
            for source in sources:
                offences += leaks(source, names[source], (root / source).read_text(encoding="utf-8"))
    for path in in_rooms:
        if Path(path).suffix in SOURCES and path not in listed:
            offences.append(f"{path}: no CMakeLists.txt of the rooms lists it by name, so that its unity build cannot be checked")
    return list(dict.fromkeys(offences))


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = check(root)
    for offence in offences:
        print(offence)
    print(f"check_names: {len(offences)} offences" if offences else "check_names: every name is defined once")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
