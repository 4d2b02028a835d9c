#!/usr/bin/env python3
"""recipes.py on runs made up so that the answers are known."""

import unittest

import recipes


def run(seconds, predicted, tp=1, job="a", **arguments):
    record = {"id": f"{job}-tp{tp}-{seconds}", "model": job, "moe": True, "gpu": "H100", "world": 8, "precision": "bf16", "release": "26.02", "seconds": seconds,
              "arguments": {"global-batch-size": 8, "seq-length": 4096, "tensor-model-parallel-size": tp, **arguments}}
    return recipes.Run(record, {"predicted": {"iteration_seconds": predicted, "memory": {"missing_bytes": 0}}, "not_computed": [], "unknown": []})


class Pairs(unittest.TestCase):
    def test_every_two_lists_of_a_job_are_ordered(self):
        runs = [run(1.0, 1.1), run(2.0, 1.9, tp=2), run(3.0, 1.5, tp=4), run(9.0, 1.0, job="alone")]
        counts, wrong = recipes.ordered_pairs(runs)
        self.assertEqual(counts, {("mixtures", "layouts", True): 2, ("mixtures", "layouts", False): 1})
        self.assertEqual(wrong, ["a-tp2-2.0 against a-tp4-3.0"])

    def test_releases_of_one_list_count_once_by_their_median(self):
        runs = [run(1.0, 1.0), run(1.2, 1.0), run(9.0, 1.0), run(1.5, 2.0, tp=2)]
        self.assertEqual(recipes.ordered_pairs(runs)[0], {("mixtures", "layouts", True): 1})

    def test_what_differs_by_five_percent_says_nothing(self):
        self.assertEqual(recipes.ordered_pairs([run(1.0, 1.0), run(1.05, 0.5, tp=2)])[0], {})

    def test_equal_predictions_are_no_order(self):
        runs = [run(1.0, 1.0), run(2.0, 1.0, **{"delay-wgrad-compute": True})]
        self.assertEqual(recipes.ordered_pairs(runs)[0], {("mixtures", "switches or precision alone", False): 1})
        self.assertIn("| switches or precision alone, mixtures | 1 | 0 |", recipes.order_of_pairs(runs))


if __name__ == "__main__":
    unittest.main()
