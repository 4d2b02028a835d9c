#!/usr/bin/env python3
"""recipes.py on runs made up so that the answers are known."""

import contextlib
import io
import unittest

import recipes


def run(seconds, predicted, tp=1, job="a", missing=0, features=(), left_out=(), **arguments):
    record = {"id": f"{job}-tp{tp}-{seconds}", "model": job, "moe": True, "gpu": "H100", "world": 8, "precision": "bf16", "release": "26.02", "seconds": seconds, "features": list(features),
              "counts_fit": True,
              "arguments": {"global-batch-size": 8, "seq-length": 4096, "tensor-model-parallel-size": tp, **arguments}}
    return recipes.Run(record, {"predicted": {"iteration_seconds": predicted, "memory": {"missing_bytes": missing, "peak_bytes": (80 << 30) + missing, "limit_bytes": 80 << 30}},
                                "not_computed": list(left_out), "unknown": []})


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


class Limits(unittest.TestCase):
    def beyond(self, runs, mixtures=None, fits=None):
        with contextlib.redirect_stdout(io.StringIO()):
            return recipes.beyond(runs, {"mixtures": mixtures}, fits)

    def test_the_mean_error_and_the_share_that_fits_are_held(self):
        runs = [run(1.0, 1.1), run(1.0, 0.9), run(1.0, 1.0, missing=1 << 30)]
        self.assertFalse(self.beyond(runs, mixtures=7))
        self.assertTrue(self.beyond(runs, mixtures=6))
        self.assertFalse(self.beyond(runs, fits=66))
        self.assertTrue(self.beyond(runs, fits=67))

    def test_what_asks_for_parts_that_are_not_computed_stands_beside_them(self):
        runs = [run(1.0, 1.0), run(1.0, 9.0, features=["fsdp"]), run(1.0, 9.0, features=["activation-offload"], missing=1)]
        self.assertFalse(self.beyond(runs, mixtures=1, fits=100))

    def test_no_run_at_all_is_wrong(self):
        self.assertTrue(self.beyond([], mixtures=10))
        self.assertTrue(self.beyond([], fits=10))

    def test_what_does_not_fit_is_named_with_what_is_not_computed(self):
        lines = recipes.without_room([run(1.0, 1.0), run(2.0, 2.0, missing=8 << 30, left_out=["a stash"])])
        self.assertEqual(lines, ["- a-tp1-2.0: 88.0 of 80.0 GiB; not computed: a stash"])


if __name__ == "__main__":
    unittest.main()
