#!/usr/bin/env python3
"""./test reports formatting, house checks and clang-tidy early. Runs the real script on a small stand-in repository whose build, tests
and tools are fakes that note when they were called."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CHECKS = ("includes", "names", "kinds", "functions", "words", "web", "docs")


class EarlyChecks(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mgplan early "))
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "project"
        self.calls = self.folder / "calls"
        self.fakes = self.folder / "fakes"
        self.fakes.mkdir()
        for name in ("test", "cmake/setup.sh", "tests/house/changes.sh"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, self.root / name)
        for name in CHECKS:
            self.check(name, 0)
        (self.root / "tests/fuzz").mkdir()
        (self.root / "tests/fuzz/run").write_text("#!/bin/sh\n")
        (self.root / "tests/fuzz/run").chmod(0o755)
        (self.root / "plan").mkdir()
        (self.root / "plan/old.cpp").write_text("int old;\n")
        (self.root / ".gitignore").write_text("build\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        (self.root / "plan/changed.cpp").write_text("int changed;\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "second")
        note = f'echo "{{}}" >> "{self.calls}"\n'
        # cmake writes what clang-tidy needs, and the build folder with it.
        self.fake("cmake", "#!/bin/sh\n" + note.format("cmake $2") + f'mkdir -p build/$2; touch build/$2/build.ninja\n'
                  f'for f in changed old; do echo "\\"file\\": \\"{self.root}/plan/$f.cpp\\""; done > build/$2/compile_commands.json\n')
        self.fake("ninja", "#!/bin/sh\n" + note.format("ninja $2"))
        self.fake("ctest", "#!/bin/sh\n" + note.format("ctest") +
                  'if [ -n "$CTEST_FAILS" ]; then printf "plan_test.cpp:7: Failure\\n  Which is: 3\\nThe following tests FAILED:\\n\\t 1 - sum_test (Failed)\\n"; exit 8; fi\n'
                  "echo '100% tests passed, 0 tests failed out of 1'\n"
                  'if [ -n "$MGPLAN_BEGIN_UNTIL" ]; then printf "The following tests did not run:\n\t 1 - late_test (Skipped)\n"; fi\n')
        self.fake("dpkg-query", '#!/bin/sh\nfor word; do printf "%s:installed " "$word"; done\n')
        self.fake("clang-format", "#!/bin/sh\n" + note.format("clang-format") + "exit ${FORMAT_STATUS:-0}\n")
        self.fake("clang-tidy-16", "#!/bin/sh\nfor last; do :; done\n" + note.format("clang-tidy $(basename \"$last\")") +
                  'if [ -n "$TIDY_FINDS" ]; then echo "$last:1:5: error: unused constant"; exit 1; fi\n')

    def check(self, name, status):
        (self.root / f"tests/house/check_{name}.py").write_text(
            f"import sys\nopen({str(self.calls)!r}, 'a').write('check_{name}\\n')\nsys.exit({status})\n")

    def fake(self, name, text):
        (self.fakes / name).write_text(text)
        (self.fakes / name).chmod(0o755)

    def git(self, *words):
        names = {f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | names
        subprocess.run(["git", "-C", self.root, "-c", "commit.gpgsign=false", *words], env=environment, check=True, capture_output=True)

    def run_test(self, *words, **variables):
        environment = {**os.environ, "PATH": f"{self.fakes}:{os.environ['PATH']}", **variables}
        environment.pop("CI", None)
        result = subprocess.run([self.root / "test", *words], env=environment, capture_output=True, text=True, check=False, timeout=120)
        return result, self.calls.read_text().split("\n")

    def test_the_layout_and_house_checks_come_before_the_build(self):
        result, calls = self.run_test("--quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        build = calls.index(f"ninja {self.root}/build/release")
        for early in ("clang-format", *(f"check_{name}" for name in CHECKS)):
            self.assertLess(calls.index(early), build, early)

    def test_clang_tidy_reads_the_changed_files_of_a_quick_run_alone(self):
        result, calls = self.run_test("--quick")
        self.assertIn("clang-tidy changed.cpp", calls)
        self.assertNotIn("clang-tidy old.cpp", calls)
        self.assertIn("clang-tidy (1 changed files)", result.stdout)
        self.calls.unlink()
        self.assertNotIn("clang-tidy changed.cpp", self.run_test()[1])

    def test_a_finding_fails_the_run_and_is_shown(self):
        result, calls = self.run_test("--quick", TIDY_FINDS="1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("plan/changed.cpp:1:5: error: unused constant", result.stderr)
        self.assertIn("FAILED", result.stdout)
        self.assertIn("plan/changed.cpp:1:5: error: unused constant", result.stdout.split("passed:")[1], "where a cut output still shows it")
        self.assertIn("ctest", calls, "the tests run all the same")

    def test_a_failed_test_is_named_again_at_the_end(self):
        end = self.run_test("--quick", CTEST_FAILS="1")[0].stdout.split("passed:")[1]
        for line in ("sum_test (Failed)", "plan_test.cpp:7: Failure", "  Which is: 3"):
            self.assertIn(line, end)

    def test_a_wrong_layout_or_house_check_fails_the_run(self):
        self.assertEqual(self.run_test("--quick", FORMAT_STATUS="1")[0].returncode, 1)
        self.check("names", 1)
        result, calls = self.run_test("--quick")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED", result.stdout)
        self.assertIn("house checks", result.stdout)
        self.assertIn("ctest", calls)

    def test_sanitized_programs_that_came_too_late_are_named(self):
        result, _ = self.run_test("--all")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("address and undefined sanitizer (1 tests, left out after 75 minutes: late_test)", result.stdout)
        self.assertIn("release tests (1 tests)", result.stdout)

    def test_a_program_begins_in_time_or_not_at_all(self):
        script = PROJECT / "cmake/begin_in_time.sh"
        for until, status, printed in (("", 0, "begun"), (str(int(time.time()) + 60), 0, "begun"), ("1", 75, "")):
            result = subprocess.run([script, "echo", "begun"], env={**os.environ, "MGPLAN_BEGIN_UNTIL": until}, capture_output=True,
                                    text=True, check=False)
            self.assertEqual((result.returncode, result.stdout.strip()), (status, printed))


if __name__ == "__main__":
    unittest.main()
