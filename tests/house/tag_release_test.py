"""tag_release tags a tree whose parts agree on the version, and says what does not agree."""

import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "tag_release"


class TagRelease(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        self.git("init", "-q")
        self.write("0.2.0", "## 0.2.0 (2026-01-31)\n\n- One change.\n\n## 0.1.0 (2025-01-01)\n\n- Another.\n")

    def git(self, *words):
        name = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        return subprocess.run(["git", *name, *words], cwd=self.tree, check=True, capture_output=True, text=True).stdout

    def write(self, version, changes):
        (self.tree / "CMakeLists.txt").write_text(f"project(mgplan VERSION {version} LANGUAGES CXX)\n")
        (self.tree / "CHANGELOG.md").write_text("# Changelog\n\n" + changes)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "state")

    def tag(self, *words):
        environment = {"PATH": "/usr/bin:/bin", "GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@example.org"}
        environment |= {"GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@example.org"}
        return subprocess.run([SCRIPT, *words], cwd=self.tree, capture_output=True, text=True, env=environment)

    def test_tags_a_tree_that_agrees_and_only_once(self):
        done = self.tag("0.2.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.git("tag").strip(), "v0.2.0")
        again = self.tag("0.2.0")
        self.assertEqual(again.returncode, 2)
        self.assertIn("v0.2.0 is there already", again.stderr)

    def test_names_everything_that_does_not_agree(self):
        self.write("0.1.0", "## Unreleased\n\n- One change.\n")
        (self.tree / "new.txt").write_text("not committed")
        refused = self.tag("0.2.0")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("CMakeLists.txt says version 0.1.0, not 0.2.0", refused.stderr)
        self.assertIn("begins with '## Unreleased'", refused.stderr)
        self.assertIn("not committed", refused.stderr)
        self.assertEqual(self.git("tag"), "")

    def test_wants_a_short_list_of_changes(self):
        self.write("0.2.0", "## 0.2.0 (2026-01-31)\n\n" + "- A change.\n" * 31)
        self.assertIn("31 lines", self.tag("0.2.0").stderr)

    def test_wants_three_numbers(self):
        for words in ([], ["v0.2.0"], ["0.2"]):
            refused = self.tag(*words)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("is not of the form 1.2.3", refused.stderr)


if __name__ == "__main__":
    unittest.main()
