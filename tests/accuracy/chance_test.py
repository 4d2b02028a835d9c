#!/usr/bin/env python3
"""chance.py on runs made up so that the answers are known."""

import statistics
import unittest
from pathlib import Path
from types import SimpleNamespace

import chance


FITS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "2026-11-23-vtrain-fits.md"


def run(layout, seconds, predicted=None, job="a", source="runs", stages=1):
    row = SimpleNamespace(id=f"{job}{layout}", source=source, comparison=job, layout=layout, measured={"time": seconds},
                          predicted={"time": predicted or seconds}, record={"arguments": {"pipeline-model-parallel-size": stages}})
    row.error = lambda what: row.predicted[what] / row.measured[what] - 1
    return row


def regrets(rows):
    """As score's, of groups by `comparison`."""
    groups = {}
    for row in rows:
        groups.setdefault(row.comparison, []).append(row)
    return {"runs": [(min(some, key=lambda row: row.predicted["time"]).measured["time"] / min(row.measured["time"] for row in some) - 1,)
                     for some in groups.values()]}


class Chance(unittest.TestCase):
    def test_errors_have_the_mean_size_asked_for_and_follow_the_draw(self):
        rows = [run(layout, 1.0 + layout) for layout in range(5000)]
        drawn = chance.off_by_chance(rows, 0.04, 3)
        self.assertAlmostEqual(statistics.fmean(abs(new.predicted["time"] / old.measured["time"] - 1) for new, old in zip(drawn, rows)), 0.04, 2)
        self.assertEqual([row.predicted for row in drawn], [row.predicted for row in chance.off_by_chance(rows, 0.04, 3)])
        self.assertNotEqual(drawn[0].predicted, chance.off_by_chance(rows, 0.04, 4)[0].predicted)
        self.assertEqual(rows[0].predicted["time"], rows[0].measured["time"])  # left as they were

    def test_only_runs_with_others_to_compare_count(self):
        rows = [run(1, 1.0), run(2, 2.0), run(1, 5.0, job="alone"), run(3, None)]
        self.assertEqual([row.id for row in chance.compared(rows)], ["a1", "a2"])
        self.assertEqual(chance.section(rows[2:], regrets), [])

    def test_far_apart_costs_nothing_and_near_ones_half_of_the_draws(self):
        far = "\n".join(chance.section([run(1, 1.0), run(2, 3.0, 1.5)], regrets))
        self.assertIn("| 4.0 | 0.00 | 0.00 to 0.00 | 0.00 | 0.00 to 0.00 |", far)
        self.assertIn("off by 25.0 % on average; their regret is 0.00 % on average and 0.00 % at most", far)
        near = [run(layout, seconds, job=job) for job in "abcdefgh" for layout, seconds in ((1, 1.0), (2, 1.001))]
        (line,) = [line for line in chance.section(near, regrets) if line.startswith("| 6.0 ")]
        self.assertIn("| 0.05 |", line)  # half of the groups pick the second one, which costs 0.1 %

    def test_beside_the_fits_stand_the_same_runs(self):
        runs = [run(1, 1.0, 1.3, source=chance.FITTED), run(2, 1.25, 1.25, source=chance.FITTED), run(1, 1.0, 1.3, "alone", chance.FITTED),
                run(3, 0.5, 2.0, source=chance.FITTED, stages=2)]
        text = " ".join(chance.beside_fits([*runs, run(1, 1.0, 9.0), run(2, 2.0, 2.0)], regrets))
        self.assertIn("of 3 of the 4 runs of vtrain-single,", text)
        self.assertIn("over the 1 groups", text)
        self.assertIn("off by 20.0 % on average; their regret over the same groups is 25.0 % on average and 25.0 % at most.", text)
        self.assertEqual(chance.beside_fits(runs[2:], regrets), [])

    def test_the_fits_figures_are_those_of_their_page(self):
        lines = [line for line in FITS_PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("| yes ", "| no "))]
        error, _, mean, largest = ([float(cell.strip().removesuffix(" %")) for cell in column]
                                   for column in list(zip(*(line.split("|") for line in lines)))[3:7])
        self.assertEqual(chance.FITS, f"mean errors of {min(error)} to {max(error)} %; their regret is {min(mean)} to {max(mean)} % on average "
                                      f"and {min(largest)} to {max(largest)} % at most")


if __name__ == "__main__":
    unittest.main()
