#!/usr/bin/env python3
"""first_page.py on runs made up so that the answers are known."""

import unittest
from types import SimpleNamespace

import first_page


def run(source, seconds, predicted, peer=None, mfu=0.5, sixteen_bit=True):
    row = SimpleNamespace(source=source, sixteen_bit=sixteen_bit, measured={"time": seconds, "memory": None},
                          predicted={"time": predicted, "memory": None}, mfu=mfu, record={})
    row.error = lambda what: row.predicted[what] / row.measured[what] - 1
    row.peer_error = lambda what: peer / seconds - 1 if what == "time" and peer else None
    return row


class FirstPage(unittest.TestCase):
    def test_each_error_is_over_the_same_runs_as_ours(self):
        rows = [run("simumax-b200", 10, 11, peer=12), run("other", 10, 10), run("other", 10, 99, sixteen_bit=False)]
        unseen = SimpleNamespace(records=[{"id": "one", "seconds": 10, "counts_time": True}, {"id": "two", "seconds": 10, "counts_time": True}],
                                 frozen={"one": {"seconds": 8}, "two": {"refused": True}})
        text = first_page.comparison([*rows, self.weighed()], unseen)
        self.assertIn("runs predicted before anybody used them | **20.0 %** (1 runs, all precisions; bias -20.0 %)", text)
        self.assertIn("| **mgplan** | **5.0 %** (2 runs) | **25.0 %** (1 runs) |", text)
        self.assertIn("| SimuMax, as published | 20.0 % (mgplan on the same 1 runs: 10.0 %) | no prediction published |", text)

    def weighed(self):
        row = run("other", 1, 1)
        row.measured, row.predicted = {"time": None, "memory": 100}, {"time": 1, "memory": 125}
        row.error = lambda what: 0.25 if what == "memory" else None
        first_page.megatron_estimate = SimpleNamespace(run_bytes=lambda record: 150)
        return row

    def test_the_constant_is_the_best_utilisation(self):
        # 0.5, 0.4 and 0.25 of the peak were reached: the median is off by a quarter, nothing and three eighths.
        rows = [run("a", 10, 10), run("a", 10, 8), run("a", 10, 5)]
        utilisation, errors = first_page.constant(rows)
        self.assertAlmostEqual(utilisation, 0.4)
        self.assertEqual([round(each, 6) for each in errors], [0.25, 0, -0.375])

    def test_only_the_place_between_the_marks_is_written(self):
        page = f"front\n{first_page.BEGIN}old\n{first_page.END}behind\n"
        written = first_page.rewritten(page, [run("a", 10, 10), self.weighed()])
        self.assertTrue(written.startswith(f"front\n{first_page.BEGIN}| tool"))
        self.assertTrue(written.endswith(f"{first_page.END}behind\n"))
        self.assertNotIn("old", written)
        self.assertEqual(first_page.rewritten("no marks", []), "no marks")


if __name__ == "__main__":
    unittest.main()
