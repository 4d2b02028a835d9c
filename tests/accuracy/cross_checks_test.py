#!/usr/bin/env python3
"""cross_checks.py on runs made up so that the answers are round."""

import copy
import unittest
from types import SimpleNamespace

import cross_checks


class Run(SimpleNamespace):
    """A row as score has them, measured in `seconds`, predicted to take `predicted`."""

    def error(self, what):
        return self.predicted[what] / self.measured[what] - 1


def run(name, seconds, predicted, world=1, source="runs", moe=False, **arguments):
    given = {"num-layers": 4, "hidden-size": 8, "micro-batch-size": 1, "global-batch-size": 8} | arguments
    record = {"id": name, "cluster": "dgx-a100-80g", "world": world, "arguments": given, "moe": moe}
    return Run(id=name, source=source, record=record, sixteen_bit=True, measured={"time": seconds}, predicted={"time": predicted},
               kernels=predicted / 2, mfu=0.25, hfu=0.5, job="a job", layout_name="tp2 mbs4")


def simulated(times):
    """What score's simulate_all would give where every prediction is the time that `times` has for the arguments' text."""
    def simulate_all(records):
        rows = [run(record["id"], 1, times(record), record["world"], **record["arguments"]) for record in records]
        for row, record in zip(rows, records):
            row.record = record
        return rows, []
    return simulate_all


class Layers(unittest.TestCase):
    few = run("few", 10.0, 12.0, **{"num-layers": 4, "recompute-granularity": "full"})
    many = run("many", 18.0, 24.0, **{"num-layers": 6, "recompute-granularity": "full"})

    def test_a_layer_is_what_runs_with_more_of_them_take_longer(self):
        (pair,) = cross_checks.layer_pairs([self.many, self.few])
        # Two layers more in eight microbatches.
        self.assertAlmostEqual(cross_checks.per_layer(pair, lambda row: row.measured["time"]), 0.5)
        self.assertAlmostEqual(cross_checks.per_layer(pair, cross_checks.executed), 0.375)

    def test_runs_that_differ_in_more_are_no_pair(self):
        for name, value in (("hidden-size", 16), ("micro-batch-size", 2), ("global-batch-size", 16)):
            other = copy.deepcopy(self.many)
            other.record["arguments"][name] = value
            self.assertEqual(cross_checks.layer_pairs([self.few, other]), [], name)
        for row in (a := copy.deepcopy(self.few), b := copy.deepcopy(self.many)):
            row.record["arguments"]["pipeline-model-parallel-size"] = 2
            row.record["world"] = 2
        self.assertEqual(cross_checks.layer_pairs([a, b]), [])

    def test_a_batch_that_grows_with_the_replicas_is_the_same_to_each(self):
        other = copy.deepcopy(self.many)
        other.record["world"], other.record["arguments"]["global-batch-size"] = 2, 16
        self.assertEqual(len(cross_checks.layer_pairs([self.few, other])), 1)

    def test_the_table_says_which_reading_is_nearer(self):
        def times(record):
            self.assertNotIn("recompute-granularity", record["arguments"])
            return {"few": 9.0, "many": 17.0}[record["id"]]
        text = "\n".join(cross_checks.layer_section([self.few, self.many], simulated(times), lambda rows: {}))
        self.assertIn("| runs | 4, 6 | 8 | 1 | 500.00 | 75 % | 750.00 | 500.00 |", text)
        self.assertIn("1 of these 1 layers took nearer to the time predicted without recompute", text)


class MicroBatches(unittest.TestCase):
    @staticmethod
    def runs(seconds, predicted=(1.0, 1.0, 1.0)):
        return [run(f"{size}", taken, said, **{"micro-batch-size": size}) for size, taken, said in zip((1, 2, 4), seconds, predicted)]

    def test_the_spread_is_without_the_bubble(self):
        rows = self.runs((1.375, 1.75, 2.5), (1.375, 1.75, 2.5))
        for row in rows:  # 8, 4 and 2 microbatches of four stages: 11, 7 and 5 slots
            row.record["arguments"]["pipeline-model-parallel-size"] = row.record["world"] = 4
        ((_, measured, predicted),) = cross_checks.micro_batch_groups(rows)
        self.assertAlmostEqual(measured, 0)
        self.assertAlmostEqual(predicted, 0)

    def test_where_much_is_predicted_nothing_is_said(self):
        self.assertEqual(cross_checks.micro_batch_groups(self.runs((1, 1, 2), (1, 1, 1.2))), [])
        self.assertEqual(cross_checks.micro_batch_groups(self.runs((1, 1, 2))[:2]), [], "two micro batches alone")

    def test_errors_without_the_contradicting_runs(self):
        calm = run("calm", 1.0, 1.02, **{"hidden-size": 16})
        text = "\n".join(cross_checks.micro_batch_section([*self.runs((1, 1, 2)), calm]))
        self.assertIn("| 1, 2, 4 | 100 % | 0 % |", text)
        self.assertIn("Without the latter's 3 runs the mean error of runs is 2.00 %, its bias +2.00 % (n 1).", text)


class TwiceTheTokens(unittest.TestCase):
    @staticmethod
    def runs(*both):
        return [run(f"{size}", seconds, predicted, **{"micro-batch-size": size}) for size, seconds, predicted in both]

    def test_a_microbatch_counts_without_the_bubble(self):
        rows = self.runs((1, 11.0, 11.0), (2, 10.5, 14.0), (8, 1.0, 1.0))
        for row in rows:  # 8 and 4 microbatches of four stages: 11 and 7 slots
            row.record["arguments"]["pipeline-model-parallel-size"] = row.record["world"] = 4
        (pair,) = cross_checks.doubled(rows)
        self.assertEqual([row.id for row in pair], ["1", "2"])
        self.assertAlmostEqual(cross_checks.saved(pair, lambda row: row.measured["time"]), -0.5)
        self.assertAlmostEqual(cross_checks.saved(pair, lambda row: row.predicted["time"]), -1)

    def test_runs_that_contradict_the_prediction_are_left_out_of_the_regret(self):
        rows = self.runs((1, 8.0, 8.0), (2, 3.0, 6.0), (4, 1.2, 2.0))  # eight, four and two microbatches
        kept = []

        def regrets(some):
            kept.extend(row.id for row in some)
            return {"runs": [(0.02,), (0.04,)]}
        text = "\n".join(cross_checks.doubled_section(rows, regrets))
        self.assertIn("| runs | 2 | 2 | 25 % | 1 | 33 % |", text)
        self.assertIn("Without the 1 runs that took less against the prediction the mean regret of runs is 3.00 %, the largest 4.00 %.", text)
        self.assertEqual(kept, ["1", "4"])

    def test_where_all_took_more_nothing_is_said(self):
        self.assertEqual(cross_checks.doubled_section(self.runs((1, 8.0, 8.0), (2, 6.0, 3.0)), lambda rows: {}), [])


class OlderSoftware(unittest.TestCase):
    def test_only_hidden_input_gradients_are_exposed(self):
        tp = {"tensor-model-parallel-size": 2}
        rows = [run("tp", 1.0, 0.9, 2, "sc21-table1", **tp), run("dp", 1.0, 0.9, 2, "sc21-table1"),
                run("sp", 1.0, 0.9, 2, "sc21-table1", **tp, **{"sequence-parallel": True})]
        asked = []

        def times(record):
            asked.append(record["id"])
            self.assertTrue(record["arguments"]["no-async-tensor-model-parallel-allreduce"])
            return 1.0
        text = "\n".join(cross_checks.older_software_section(rows, simulated(times)))
        self.assertEqual(asked, ["tp"])
        self.assertIn("| sc21-table1 | Megatron-LM of 2021 | 3 | 10.00 | -10.00 | 6.67 | -6.67 |", text)


class Mixtures(unittest.TestCase):
    def test_missed_mixtures_stand_beside_dense_models(self):
        missed, met = run("missed", 1.0, 1.2, moe=True), run("met", 1.0, 1.05, moe=True)
        text = "\n".join(cross_checks.mixture_section([missed, met, run("dense", 1.0, 1.0)]))
        self.assertIn("| missed | dgx-a100-80g | 1.00 | 1.20 | 0.60 | 30.0 % | 25.0 % | 25.0 to 25.0 % (n 1) |", text)
        self.assertNotIn("| met |", text)


if __name__ == "__main__":
    unittest.main()
