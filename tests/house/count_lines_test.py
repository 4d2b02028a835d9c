#!/usr/bin/env python3
"""What count_lines.py takes for a line of code."""
import unittest
from pathlib import Path

from count_lines import count, files


class Count(unittest.TestCase):
    def test_leaves_blanks_and_comments_out(self):
        self.assertEqual(count("#pragma once\n// Why.\n\nint a;  // b\n/* c\n   d */\nint e; /* f\n*/ int g;\n"), 4)

    def test_takes_comments_in_literals_for_text(self):
        self.assertEqual(count('auto a = "// no comment";\nauto b = R"(\n// nor\n/* this\n)";\nchar c = \'"\';\n// comment\n'), 6)

    def test_reads_separated_digits(self):
        self.assertEqual(count("int a = 1'000; // 'x\nint b = 2'000;\n"), 2)


class Files(unittest.TestCase):
    def test_include_the_web_files_and_no_tests(self):
        names = {name for name, _ in files(Path(__file__).resolve().parents[2], None)}
        self.assertLessEqual({"reports/web/page.css", "reports/web/search.html", "reports/web/search.js", "reports/html_page.cpp"}, names)
        self.assertFalse([name for name in names if name.startswith("tests/")])


if __name__ == "__main__":
    unittest.main()
