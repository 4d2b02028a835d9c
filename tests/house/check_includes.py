#!/usr/bin/env python3
"""Fails when an #include runs against the arrows between the rooms (DESIGN: "Arrows").

    check_includes.py [PROJECT_ROOT]

The table below says what each room may include. Besides, everywhere: project headers are included by their path from
the root and exist; no circle between rooms, between headers, or between folders inside a room but for those of old; nlohmann/json.hpp stands in no header but
plan/text/json_reader.hpp; headers begin with #pragma once; X.cpp and X.cu include X.hpp before all else, so that they show it to compile
alone. Prints one line per offence and exits 1 when there is any.
"""

import re
import sys
from pathlib import Path

# room -> (rooms it may include, other headers it may include: a prefix ending in "/" or a whole name).
# The standard library is open to all, the operating system's headers only to those that list them.
ROOMS = {
    "plan": ((), ("fmt/", "nlohmann/", "fcntl.h", "poll.h", "sched.h", "unistd.h")),
    "formats": (("plan",), ("fmt/", "nlohmann/", "yaml-cpp/")),
    "model": (("plan",), ("fmt/",)),
    "simulator": (("plan", "model"), ("fmt/", "nlohmann/")),
    "planner": (("plan", "simulator"), ("fmt/", "nlohmann/", "oneapi/", "tbb/")),
    "runtime": (("plan", "model"), ("fmt/", "nlohmann/", "sanitizer/asan_interface.h", "sys/", "dirent.h", "fcntl.h", "dlfcn.h", "unistd.h", "poll.h", "netdb.h", "netinet/", "ifaddrs.h", "net/if.h", "cblas.h", "mpi.h", "nccl.h", "cuda", "cublas", "cudnn")),
    "reports": (("plan",), ("fmt/", "nlohmann/")),
    "jobs": (("plan", "runtime"), ("fmt/", "nlohmann/", "sys/", "fcntl.h", "unistd.h", "poll.h")),
    "cli": (
        ("plan", "formats", "model", "planner", "simulator", "runtime", "reports", "jobs"),
        ("fmt/", "nlohmann/", "boost/", "sys/", "fcntl.h", "malloc.h", "unistd.h"),
    ),
    "python": (("plan", "cli"), ("fmt/", "nanobind/", "unistd.h")),
}

# Headers of other rooms that hold nothing but values, which reports may read. To stay values they may themselves include
# plan/ and each other only.
VALUE_HEADERS = {
    "formats/input/flag_account.hpp",
    "formats/megatron/megatron_job.hpp",
    "formats/megatron/megatron_versions.hpp",
    "jobs/job.hpp",
    "model/device/memory_use.hpp",
    "planner/plan_reasons.hpp",
    "planner/planned_layout.hpp",
    "planner/rl/rl_plan.hpp",
    "planner/scaling.hpp",
    "planner/search_result.hpp",
    "planner/what_if.hpp",
    "runtime/measurement/run_values.hpp",
    "simulator/compute/module_work.hpp",
    "simulator/memory/allocator_history.hpp",
    "simulator/memory/timeline.hpp",
    "simulator/memory/memory_prediction.hpp",
    "simulator/prediction.hpp",
    "simulator/rollout/engine_values.hpp",
    "simulator/timeline/pipeline_picture.hpp",
    "simulator/timeline/timeline_trace.hpp",
}

# Folders at the root that hold C++ but are no rooms; rooms may not include them.
NOT_ROOMS = {"tests", "build", "cmake", "docs", "configs", "examples"}

JSON_HEADER = "nlohmann/json.hpp"
MAY_HOLD_JSON = {"plan/text/json_reader.hpp"}

C_HEADERS = {"assert.h", "errno.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"}
SUFFIXES = {".hpp", ".cpp", ".h", ".cu", ".cuh", ".inl"}

# Comments and string literals, so that an include inside one does not count and one behind a comment does.
TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|'(?:\\.|[^'\\\n])*'|(?P<keep>"(?:\\.|[^"\\\n])*")""", re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import)\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
TARGET = re.compile(r"""<([^>]+)>|"([^"]+)\"""")


def without_comments(text):
    """The text with comments and raw strings blanked, line numbers kept."""

    def blank(match):
        if match["keep"] is not None:
            return match["keep"]
        return " " + "\n" * match[0].count("\n")

    # 1'000 is a number, not the start of a character.
    return TOKENS.sub(blank, re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text))


def includes_of(path):
    """Yields (line, target, quoted) for each include of a file; the target is None where it cannot be read."""
    text = without_comments(path.read_text(encoding="utf-8").replace("\\\n", " "))
    for directive in DIRECTIVE.finditer(text):
        line = text.count("\n", 0, directive.start()) + 1
        target = TARGET.fullmatch(directive[1])
        if target is None:
            yield line, None, False
        else:
            yield line, target[1] or target[2], target[2] is not None


def is_standard(target):
    return target in C_HEADERS or re.fullmatch(r"[a-z0-9_]+", target) is not None


def allowed_outside(target, room):
    for entry in ROOMS[room][1]:
        if target == entry or entry.endswith("/") and target.startswith(entry):
            return True
        if not entry.endswith(("/", ".h")) and target.startswith(entry):
            return True
    return is_standard(target)


def find_circle(graph):
    """A circle of a graph {node: nodes} as a list that ends where it starts, or None."""
    state = {}
    for start in sorted(graph):
        if start in state:
            continue
        path, walkers = [start], [iter(sorted(graph[start]))]
        state[start] = "open"
        while walkers:
            following = next(walkers[-1], None)
            if following is None:
                state[path.pop()] = "done"
                walkers.pop()
            elif state.get(following) == "open":
                return path[path.index(following) :] + [following]
            elif following not in state and following in graph:
                state[following] = "open"
                path.append(following)
                walkers.append(iter(sorted(graph[following])))
    return None


def reachable(graph, start):
    """The nodes that arrows lead to from a node; the node itself only if they lead back."""
    seen, waiting = set(), [start]
    while waiting:
        for node in graph.get(waiting.pop(), ()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen


def folder_circles(graph):
    """Offences of a graph {folder: {folder: the include that makes the arrow}} of the folders inside rooms."""
    reach = {folder: reachable(graph, folder) for folder in graph}
    for folder in sorted(graph):
        for other, where in sorted(graph[folder].items()):
            if folder in reach.get(other, ()):
                yield f"{where}: {folder}/ may not include {other}/, which includes {folder}/: a circle of folders; split a header, or move what both need below them"


def check(root):
    """All offences under a project root, as printable lines."""
    offences = []
    room_graph = {room: set() for room in ROOMS}
    header_graph = {}
    folder_graph = {}
    files = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        sources = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        if folder.name in ROOMS:
            files += sources
        elif sources and folder.name not in NOT_ROOMS:
            offences.append(f"{folder.name}/: is no known room; give it its arrows in tests/house/check_includes.py")

    for path in files:
        name = path.relative_to(root).as_posix()
        room = name.split("/")[0]
        is_header = path.suffix in {".hpp", ".h", ".cuh", ".inl"}
        header_graph.setdefault(name, set())
        if path.suffix == ".hpp" and not PRAGMA_ONCE.search(without_comments(path.read_text(encoding="utf-8"))):
            offences.append(f"{name}:1: lacks #pragma once")
        own_header = Path(name).with_suffix(".hpp").as_posix()
        if path.suffix in {".cpp", ".cu"} and (root / own_header).is_file():
            line, first, _ = next(includes_of(path), (1, None, False))
            if first != own_header:
                offences.append(f"{name}:{line}: must include {own_header} before all else, which shows that it compiles alone")
        for line, target, quoted in includes_of(path):
            where = f"{name}:{line}"
            if target is None:
                offences.append(f"{where}: an include whose target is a macro cannot be checked; write it out")
                continue
            if target == JSON_HEADER and is_header and name not in MAY_HOLD_JSON:
                offences.append(f"{where}: {JSON_HEADER} in a header; include nlohmann/json_fwd.hpp and keep the rest in the .cpp")
            other = target.split("/")[0]
            if not quoted and not (other in ROOMS and (root / target).exists()):
                if not allowed_outside(target, room):
                    offences.append(f"{where}: {room}/ may not include <{target}>")
                continue
            if not (root / target).is_file() or ".." in target.split("/"):
                offences.append(f'{where}: "{target}" is no path from the root of the project')
                continue
            header_graph[name].add(target)
            if name in VALUE_HEADERS and not (other == "plan" or target in VALUE_HEADERS):
                offences.append(f"{where}: a value header may include plan/ and value headers only, not {target}")
            if other == room:
                folder, included = str(Path(name).parent), str(Path(target).parent)
                if folder != included:
                    folder_graph.setdefault(folder, {}).setdefault(included, where)
                continue
            if other in ROOMS[room][0] or room == "reports" and target in VALUE_HEADERS:
                room_graph[room].add(other)
                continue
            reason = "reports may read value headers only (VALUE_HEADERS lists them)" if room == "reports" and other in {"planner", "simulator"} else f"{other}/ is not below it"
            offences.append(f"{where}: {room}/ may not include {target}: {reason}")

    for listed in sorted(VALUE_HEADERS):
        if not (root / listed).is_file():
            offences.append(f"{listed}: is listed as a value header but does not exist")
    offences += folder_circles(folder_graph)
    for graph, kind in ((room_graph, "rooms"), (header_graph, "headers")):
        circle = find_circle(graph)
        if circle:
            offences.append(f"circle of {kind}: {' -> '.join(circle)}")
    return offences


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = check(root)
    for offence in offences:
        print(offence)
    print(f"check_includes: {len(offences)} offences" if offences else "check_includes: every include follows the arrows")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
