#!/usr/bin/env python3
"""What ./test takes for changed: since the newest commit that passed, and the sanitized programs that this concerns."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

CHANGES = Path(__file__).resolve().parent / "changes.sh"
PROGRAMS = "plan_test plan tests/plan\nsimulator_test plan model simulator tests/simulator\ncli_test plan model simulator cli tests/cli\n"


class Repository(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.git("init", "-q", "-b", "main")
        (self.root / "build/asan").mkdir(parents=True)
        (self.root / "build/asan/sanitized_tests").write_text(PROGRAMS)
        self.first = self.commit("plan/layout.cpp", ".gitignore")

    def tearDown(self):
        self.folder.cleanup()

    def git(self, *words):
        names = {f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | names
        return subprocess.run(["git", "-C", self.root, "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", *words], env=environment,
                              capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, *paths, named=None):
        for path in paths:
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text((file.read_text() if file.exists() else "") + "more\n")
        if (self.root / ".gitignore").exists():
            (self.root / ".gitignore").write_text("build\n")
        if named:
            (self.root / ".ci").mkdir(exist_ok=True)
            (self.root / ".ci/checked").write_text(named + "\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def ask(self, words, everything=0):
        return subprocess.run(["bash", "-c", f'set -u; root={self.root} everything={everything}; source "{CHANGES}"; {words}'],
                              capture_output=True, text=True, check=False).stdout.split()

    def checked(self, everything=0):
        return self.ask("checked_commit", everything)

    def concerned(self, everything=0):
        return self.ask("concerned asan", everything)

    def test_without_a_checked_commit_all_programs_run(self):
        self.assertEqual(self.checked(), [])
        self.assertEqual(self.concerned(), [], "nothing: all of them")

    def test_a_tag_counts(self):
        self.git("tag", "-a", "-m", "0.1.0", "v0.1.0")
        self.commit("cli/run.cpp")
        self.assertEqual(self.checked(), [self.first])
        self.assertEqual(self.concerned(), ["cli_test"])

    def test_the_newer_of_tag_and_named_commit_counts(self):
        second = self.commit("plan/layout.cpp")
        self.commit("README.md", named=second)
        self.assertEqual(self.checked(), [second])
        self.git("tag", "-a", "-m", "0.1.0", "v0.1.0", self.first)
        self.assertEqual(self.checked(), [second])
        third = self.commit("cli/run.cpp")
        self.git("tag", "-a", "-m", "0.1.1", "v0.1.1")
        self.commit("simulator/time.cpp")
        self.assertEqual(self.checked(), [third])
        self.assertEqual(self.concerned(), ["simulator_test", "cli_test"])

    def test_a_named_commit_that_is_no_ancestor_does_not_count(self):
        self.git("checkout", "-q", "-b", "other")
        other = self.commit("plan/other.cpp")
        self.git("checkout", "-q", "main")
        self.commit("cli/run.cpp", named=other)
        self.assertEqual(self.checked(), [])
        self.commit(named="no commit at all")
        self.assertEqual(self.checked(), [])
        self.assertEqual(self.concerned(), [], "nothing: all of them")

    def test_everything_leaves_no_program_out(self):
        self.commit("cli/run.cpp", named=self.first)
        self.assertEqual(self.concerned(), ["cli_test"])
        self.assertEqual(self.checked(everything=1), [])
        self.assertEqual(self.concerned(everything=1), [])

    def test_words_concern_no_program(self):
        self.commit("docs/search.md", "configs/clusters/mine.json", "tests/cli/export_rules.py", named=self.first)
        self.assertEqual(self.concerned(), ["none"])

    def test_what_all_are_built_with_concerns_all(self):
        for path in ("cmake/mgplan_test.cmake", "tests/support/model_builder.hpp", "CMakeLists.txt", "tests/CMakeLists.txt"):
            with self.subTest(path):
                before = self.git("rev-parse", "HEAD")
                self.commit("cli/run.cpp", path, named=before)
                self.assertEqual(self.concerned(), [], "nothing: all of them")

    def test_a_folder_with_a_longer_name_is_another(self):
        self.commit("planner/search.cpp", named=self.first)
        self.assertEqual(self.concerned(), ["none"])

    def test_changed_files_are_those_since_the_branch(self):
        self.git("checkout", "-q", "-b", "work")
        self.commit("cli/run.cpp", "docs/search.md")
        self.commit("plan/layout.cpp")
        self.assertEqual(sorted(self.ask("changed_files")), ["cli/run.cpp", "plan/layout.cpp"])

    def test_on_the_main_branch_they_are_those_since_the_checked_commit(self):
        self.commit("cli/run.cpp")
        self.commit("plan/layout.cpp")
        self.assertEqual(self.ask("changed_files"), ["plan/layout.cpp"], "without one, since the commit before")
        self.commit("docs/search.md", named=self.first)
        self.assertEqual(sorted(self.ask("changed_files")), ["cli/run.cpp", "plan/layout.cpp"])


if __name__ == "__main__":
    unittest.main()
