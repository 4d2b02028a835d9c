#!/usr/bin/env python3
"""The manual page holds each command and option, and troff reads it: manual_page_test.py MGPLAN"""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cmake"))
from manual_page import described, escaped, manual_page  # noqa: E402

PROGRAM = sys.argv.pop()


class ManualPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = list(described(PROGRAM))
        cls.page = manual_page("mgplan 1", cls.commands)

    def test_holds_every_option_of_every_command_and_no_date(self):
        self.assertGreater(len(self.commands), 15)
        for name, summary, command in self.commands:
            self.assertIn(f'.SS "mgplan {escaped(name)}"\n{escaped(summary)}.\n', self.page)
            for option in (option for group in command["groups"] for option in group["options"]):
                self.assertIn(f"\\fB\\-\\-{escaped(option['name'])}\\fR", self.page)
        self.assertTrue(self.page.startswith('.TH MGPLAN 1 "" "mgplan 1" '))

    def test_escapes_what_troff_would_take_for_its_own(self):
        option = {"name": "o-p", "value": "N", "help": 'µ … "q"', "preset": "-1"}
        page = manual_page("1", [("x", "it's", {"usage": ["x --a\\b"], "purpose": ".PP is no macro here\n'nor this", "positionals": [],
                                                "groups": [{"title": "G", "options": [option]}]})])
        for text in ("\n\\&.PP is no macro here\n", "\n\\&'nor this\n", "\\-\\-a\\eb", '\\[u00B5] \\[u2026] "q" (default: \\-1)'):
            self.assertIn(text, page)
        self.assertTrue(page.isascii())

    def test_is_read_by_mandoc_without_a_warning(self):
        if not shutil.which("mandoc"):
            self.skipTest("mandoc is not installed")
        with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
            file.write(self.page)
            file.flush()
            lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", file.name], capture_output=True, text=True, check=False)
            shown = subprocess.run(["mandoc", "-T", "utf8", file.name], capture_output=True, text=True, check=True).stdout
        self.assertEqual([line for line in (lint.stdout + lint.stderr).splitlines() if "missing date" not in line], [])
        shown = "".join(c for i, c in enumerate(shown) if c != "\b" and shown[i + 1:i + 2] != "\b")
        self.assertIn("--pipeline-layout STRING", shown)
        self.assertIn("mgplan --world 16 --model llama3-8b", shown)


if __name__ == "__main__":
    unittest.main()
