#!/usr/bin/env python3
"""check_web.py reports each kind of offence and passes files that keep the rules."""
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_web  # noqa: E402

GOOD = {
    "reports/web/page.css": ":root { --ink: #000; }\n@media (prefers-color-scheme: dark) { :root { --ink: #fff; } }\n"
                            "#plot { color: var(--ink); }\n.wide th { width: 2em; }\n",
    "reports/web/plot.html": '<div class="wide"><canvas id="plot"></canvas><br></div>\n',
    "reports/web/plot.js": 'document.getElementById("plot").textContent = "1 < 2";\n',
    "reports/page.cpp": 'html += "<script id=\\"steps\\">";\n',
    "cli/page.cpp": "",
}


class CheckWeb(unittest.TestCase):
    def offences(self, name="", old="", new=""):
        with tempfile.TemporaryDirectory() as folder:
            for each, text in GOOD.items():
                path = Path(folder) / each
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.replace(old, new, 1) if each == f"reports/web/{name}" else text, encoding="utf-8")
            return list(check_web.offences(Path(folder)))

    def test_passes_what_keeps_the_rules(self):
        self.assertEqual(self.offences(), [])

    def test_refuses_a_script_that_does_not_parse(self):
        if not shutil.which("node"):
            self.skipTest("node is not installed")
        self.assertIn("SyntaxError", self.offences("plot.js", ";", ";)")[0])

    def test_refuses_markup_from_a_script_and_what_is_loaded(self):
        self.assertIn("plot.js:1: innerHTML", self.offences("plot.js", "textContent", "innerHTML")[0])
        self.assertIn("page.css:3: url(", self.offences("page.css", "var(--ink)", "url(x.png)")[0])
        self.assertIn("</script", self.offences("plot.js", "1 < 2", "</script>")[0])

    def test_refuses_an_id_that_no_page_has(self):
        self.assertEqual(self.offences("plot.js", "plot", "Plot"), ["plot.js: looks up id Plot, which no page has"])
        self.assertEqual(self.offences("plot.js", "plot", "steps"), [])

    def test_refuses_rules_that_nothing_meets(self):
        self.assertEqual(self.offences("page.css", ".wide", ".wider"), ["page.css: no page has .wider"])
        self.assertEqual(self.offences("page.css", "2em; }", "2em;"), ["page.css: 5 braces open and 4 close"])

    def test_refuses_a_colour_without_its_dark_twin(self):
        self.assertEqual(self.offences("page.css", " --ink: #fff;", ""), ["page.css: var(--ink) has no dark colour"])
        self.assertEqual(self.offences("page.css", " --ink: #000;", ""), ["page.css: var(--ink) has no light colour"])

    def test_refuses_elements_that_stay_open(self):
        self.assertIn("plot.html: <div> is not closed", self.offences("plot.html", "</div>", ""))
        self.assertIn("plot.html: id plot occurs twice", self.offences("plot.html", "<br>", '<b id="plot"></b>'))


if __name__ == "__main__":
    unittest.main()
