#!/usr/bin/env python3
"""The headers that a change concerns: itself, and where it took something away those that include it."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import headers_alone  # noqa: E402

HEADERS = {
    "plan/size.hpp": "#pragma once\n#include <vector>\nstruct Size { int bytes; };\n",
    "plan/layout.hpp": '#pragma once\n#include "plan/size.hpp"\nstruct Layout { Size size; };\n',
    "plan/names.hpp": "#pragma once\nint names();\n",
    "model/layer.hpp": '#pragma once\n#include "plan/layout.hpp"\nstruct Layer { Layout layout; };\n',
}


def concerned(**changes):
    """changes: texts now, by the name of a header's file without its ending."""
    now = {path: changes.get(Path(path).stem, text) for path, text in HEADERS.items()}
    changed = {path for path in HEADERS if now[path] != HEADERS[path]}
    return headers_alone.concerned({path: text for path, text in now.items() if text is not None}, HEADERS, changed)


class Concerned(unittest.TestCase):
    def test_what_is_added_concerns_itself_alone(self):
        self.assertEqual(concerned(size=HEADERS["plan/size.hpp"] + "#include <map>\nint more();\n"), {"plan/size.hpp"})
        self.assertEqual(concerned(size="// words\n" + HEADERS["plan/size.hpp"]), {"plan/size.hpp"})

    def test_a_lost_include_concerns_all_that_include_it(self):
        self.assertEqual(concerned(size="#pragma once\nstruct Size { int bytes; };\n"), {"plan/size.hpp", "plan/layout.hpp", "model/layer.hpp"})

    def test_a_definition_that_is_now_only_named_is_lost(self):
        self.assertEqual(concerned(layout='#pragma once\n#include "plan/size.hpp"\nstruct Layout;  // Size size\nusing Held = Size;\nint size;\n'),
                         {"plan/layout.hpp", "model/layer.hpp"})

    def test_a_header_that_is_gone_concerns_those_that_included_it(self):
        self.assertEqual(concerned(size=None), {"plan/layout.hpp", "model/layer.hpp"})

    def test_others_are_left_alone(self):
        self.assertEqual(concerned(names="#pragma once\nint other();\n"), {"plan/names.hpp"})
        self.assertEqual(concerned(), set())


class Tests(unittest.TestCase):
    NOW = ("add_custom_target(headers_alone)\n"
           "mgplan_house_test(names ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/check_names.py)\n"
           "  target_compile_options(${name} PRIVATE -O0 -g0)\n")

    def test_of_this_folder_are_no_change_to_how_headers_are_compiled(self):
        before = self.NOW.replace("mgplan_house_test(names ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/check_names.py)\n", "")
        self.assertNotEqual(before, self.NOW)
        self.assertEqual(headers_alone.but_tests(self.NOW), before)

    def test_what_compiles_headers_is_a_change(self):
        self.assertNotEqual(headers_alone.but_tests(self.NOW), headers_alone.but_tests(self.NOW.replace("-g0", "-g1")))


class Objects(unittest.TestCase):
    LISTED = ("build.ninja: RERUN_CMAKE\n"
              "tests/house/CMakeFiles/headers_alone_plan.dir/headers_alone/plan/size_alone.cpp.o: CXX_COMPILER__headers_alone_plan_\n"
              "tests/house/CMakeFiles/headers_alone_plan.dir/headers_alone/plan/fit/size_alone.cpp.o: CXX_COMPILER__headers_alone_plan_\n")

    def test_are_those_of_the_headers(self):
        self.assertEqual(headers_alone.objects(self.LISTED, {"plan/size.hpp", "tests/support/mine.hpp"}),
                         ["tests/house/CMakeFiles/headers_alone_plan.dir/headers_alone/plan/size_alone.cpp.o"])
        self.assertEqual(headers_alone.objects(self.LISTED, set()), [])

    def test_a_build_that_knows_none_is_no_success(self):
        self.assertIsNone(headers_alone.objects("build.ninja: RERUN_CMAKE\n", {"plan/size.hpp"}))


class Chosen(unittest.TestCase):
    """In a repository: what changed since a commit, committed or not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.git("init", "--quiet")
        for path, text in HEADERS.items():
            self.write(path, text)
        self.write("plan/CMakeLists.txt", "mgplan_room(plan\n  SOURCES\n    names.cpp\n  DEPENDS fmt::fmt)\n")
        self.commit = self.commit_all()

    def git(self, *words):
        settings = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        return subprocess.run(["git", "-C", str(self.root), *settings, *words], check=True, capture_output=True, text=True,
                              env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}).stdout.strip()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit_all(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a step")
        return self.git("rev-parse", "HEAD")

    def chosen(self):
        return headers_alone.chosen(self.root, self.commit)

    def test_changes_are_seen_whether_committed_or_not(self):
        self.write("plan/names.hpp", "#pragma once\nint other();\n")
        self.write("model/new.hpp", "#pragma once\n")
        self.assertEqual(self.chosen(), {"plan/names.hpp", "model/new.hpp"})
        self.commit_all()
        self.assertEqual(self.chosen(), {"plan/names.hpp", "model/new.hpp"})

    def test_a_room_that_is_compiled_otherwise_is_checked_whole(self):
        self.write("plan/CMakeLists.txt", "mgplan_room(plan\n  SOURCES\n    names.cpp\n    more.cpp\n  DEPENDS fmt::fmt)\n")
        self.assertEqual(self.chosen(), set())
        self.write("plan/CMakeLists.txt", "mgplan_room(plan\n  SOURCES\n    names.cpp\n  DEPENDS fmt::fmt-header-only)\n")
        self.assertEqual(self.chosen(), {"plan/size.hpp", "plan/layout.hpp", "plan/names.hpp"})

    def test_all_are_chosen_where_the_build_changed_or_no_commit_is_known(self):
        self.assertIsNone(headers_alone.chosen(self.root, ""))
        self.assertIsNone(headers_alone.chosen(self.root, "0123456789"))
        self.write("cmake/mgplan_target.cmake", "\n")
        self.commit_all()
        self.assertIsNone(self.chosen())


if __name__ == "__main__":
    unittest.main()
