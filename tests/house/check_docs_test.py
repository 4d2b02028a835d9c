#!/usr/bin/env python3
"""Which links check_docs.py calls dead, and that it counts the words of user pages."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
from check_docs import anchor, dead_links, offences, user_pages  # noqa: E402


class CheckDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for file, text in (("README.md", "one two\n"), ("CONTRIBUTING.md", ""), ("docs/slow.md", "# Is it slow?\n"), ("docs/time.md", "# How it is\n")):
            self.write(file, text)

    def write(self, file, text):
        (self.root / file).parent.mkdir(exist_ok=True)
        (self.root / file).write_text(text, encoding="utf-8")

    def test_pages_of_formulas_are_not_counted(self):
        self.assertEqual([page.name for page in user_pages(self.root)], ["README.md", "slow.md"])
        self.assertEqual(offences(self.root, 6), ([], 6))
        lines, _ = offences(self.root, 5)
        self.assertEqual(len(lines), 1)
        self.assertIn("6 words, 5 are the most", lines[0])

    def test_links_to_files_and_headings(self):
        self.write("docs/decisions/a.md", "[good](../slow.md#is-it-slow) [out](https://a.b/c) [here](#top)\n# Top\n")
        self.assertEqual(dead_links(self.root), [])
        for link in ("[a](docs/none.md)", "[a](docs/slow.md#none)", "[a](#none)"):
            with self.subTest(link):
                self.write("README.md", link + "\n")
                self.assertEqual(len(dead_links(self.root)), 1)

    def test_code_holds_no_links_or_headings(self):
        self.write("README.md", "```\n# Top [a](none.md)\n```\n")
        self.assertEqual(dead_links(self.root), [])
        self.write("README.md", "```\n# Top\n```\n[a](#top)\n")
        self.assertEqual(len(dead_links(self.root)), 1)

    def test_anchors_are_those_of_github(self):
        self.assertEqual(anchor("Which `rules` reject a layout?"), "which-rules-reject-a-layout")
        self.assertEqual(anchor("From [a](b.md) to B/s, twice"), "from-a-to-bs-twice")


if __name__ == "__main__":
    unittest.main()
