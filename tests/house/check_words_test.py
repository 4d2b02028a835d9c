#!/usr/bin/env python3
"""Which comments check_words.py counts, and that its counts only shrink."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_words  # noqa: E402
from check_words import COUNTS, comments, places  # noqa: E402


def run(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = check_words.main(list(arguments))
    return code, out.getvalue()


class CheckWords(unittest.TestCase):
    def found(self, text):
        return [(kind, word) for _, kind, word in places(text)]

    def test_lines_that_follow_each_other_are_one_comment(self):
        text = "// one\n// two\n\n/// three\nint x;  ///< four\n// five\n"
        self.assertEqual(list(comments(text)), [(1, "one two"), (4, "three"), (5, "four"), (6, "five")])

    def test_strings_hold_no_comments(self):
        for text in ('auto u = "https://a";', 'auto q = "\\"// What";', 'auto r = R"js(\n// What is told\n)js";', "char c = '\"'; int x = 1'000;", "/* What */"):
            with self.subTest(text):
                self.assertEqual(self.found(text), [])
        self.assertEqual(self.found("char c = '\"';  // What\nint x = 1'000;  // whether\n"), [("opener", "What"), ("opener", "whether")])

    def test_openers_are_first_words(self):
        for word in ("What", "Whether", "Whose", "Of", "How many", "what", "how many"):
            with self.subTest(word):
                self.assertEqual(self.found(f"int x;  ///< {word} it is.\n"), [("opener", word)])
        for text in ("// Returns what it is.", "// Ranks.\n// What they are.", "int x;  ///< of all ranks", "// Offsets.", "// Whatever it is."):
            with self.subTest(text):
                self.assertEqual(self.found(text), [])

    def test_private_words(self):
        for word in ("so many", "as many", "anew", "at hand", "beside", "behind", "told", "tells", "knows", "asked", "stands", "Mixtures"):
            with self.subTest(word):
                self.assertEqual(self.found(f"// It is {word}.\n"), [("word", word)])
        for text in ("besides", "unknown", "hidden behind compute", "stands for the rank", "a stand-in", "a mixture of experts", "a mixture-of-experts layer", "all of `mixture`", "as many as there are",
                     "as many ranks as nodes", "mixture.hpp", "asks_of"):
            with self.subTest(text):
                self.assertEqual(self.found(f"// It is {text}.\n"), [])

    def test_counts_only_shrink(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "plan").mkdir()
            (root / "tests/house").mkdir(parents=True)
            source, table = root / "plan/a.hpp", root / COUNTS
            source.write_text("// What is told.\n")
            table.write_text("# room openers words\nplan 1 1\n")
            self.assertEqual(run(folder), (0, ""))

            source.write_text("// What is told.\nint x;  // is told\n")
            for options in ((), ("--write",)):
                code, text = run(*options, folder)
                self.assertEqual(code, 1)
                self.assertIn("plan: 2 words", text)
                self.assertIn("plan 1 1", table.read_text())
            self.assertEqual(run("--list", "plan", folder), (0, 'plan/a.hpp:1: opener "What"\nplan/a.hpp:1: word "told"\nplan/a.hpp:2: word "told"\n'))

            source.write_text("// The answer.\n")
            code, text = run(folder)
            self.assertEqual(code, 0)
            self.assertIn("--write", text)
            self.assertIn("plan 1 1", table.read_text())
            run("--write", folder)
            self.assertIn("plan 0 0", table.read_text())
            self.assertEqual(run(folder), (0, ""))


if __name__ == "__main__":
    unittest.main()
