#!/usr/bin/env python3
"""What count_lines.py takes for a line of code."""
import unittest

from count_lines import count


class Count(unittest.TestCase):
    def test_leaves_blanks_and_comments_out(self):
        self.assertEqual(count("#pragma once\n// Why.\n\nint a;  // b\n/* c\n   d */\nint e; /* f\n*/ int g;\n"), 4)

    def test_takes_comments_in_literals_for_text(self):
        self.assertEqual(count('auto a = "// no comment";\nauto b = R"(\n// nor\n/* this\n)";\nchar c = \'"\';\n// comment\n'), 6)

    def test_reads_separated_digits(self):
        self.assertEqual(count("int a = 1'000; // 'x\nint b = 2'000;\n"), 2)


if __name__ == "__main__":
    unittest.main()
