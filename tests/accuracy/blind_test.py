#!/usr/bin/env python3
"""blind.py on records made up so that the answers are known."""

import json
import tempfile
import unittest
from pathlib import Path

import blind


def record(name, seconds=10.0, gpu="H100", **arguments):
    return {"id": name, "gpu": gpu, "family": "dense", "precision": "bf16", "software": "26.08", "seconds": seconds, "counts_time": True, "counts_fit": True,
            "arguments": arguments}


def frozen(name, seconds=9.0, commit="aaaa"):
    return {"id": name, "commit": commit, "seconds": seconds, "interval_seconds": [8, 12], "fits": True}


def records_of(records, predictions, tuned=(), pairs=()):
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("records", records), ("frozen", predictions), ("tuned", tuned), ("pairs", pairs)):
            (Path(folder) / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return blind.Records(Path(folder))


class Groups(unittest.TestCase):
    def test_a_family_has_figures_from_ten_runs_on(self):
        records = [record(f"r{i}", gpu="H100" if i < 10 else "B200") for i in range(12)]
        found = blind.groups(records_of(records, [frozen(one["id"], seconds=8.0 if i % 2 else 11.0) for i, one in enumerate(records)]))
        self.assertEqual(found, [{"family": "dense", "gpu": "", "runs": 12, "mean_error": 0.15, "bias": -0.05},
                                 {"family": "dense", "gpu": "H100", "runs": 10, "mean_error": 0.15, "bias": -0.05}])
        self.assertEqual(blind.groups(records_of(records[:9], [frozen(one["id"]) for one in records[:9]])), [])


class Problems(unittest.TestCase):
    def test_a_record_without_a_prediction_names_the_command(self):
        found = blind.problems(records_of([record("one")], []))
        self.assertEqual(len(found), 1)
        self.assertIn("one: no frozen prediction", found[0])
        self.assertIn("blind.py freeze", found[0])

    def test_a_prediction_is_older_than_the_commit_that_adds_the_record(self):
        all_of = records_of([record("one"), record("two")], [frozen("one"), frozen("two")])
        older = {("aaaa", "b" * 40)}
        found = blind.problems(all_of, ["b" * 40, "c" * 40], lambda *pair: pair in older)
        self.assertEqual([line.split(":")[0] for line in found], ["two"])

    def test_lists_name_records_that_exist(self):
        all_of = records_of([record("one")], [frozen("one"), frozen("gone")], [{"id": "lost", "constant": "x"}], [{"name": "p", "a": "one", "b": "missing"}])
        self.assertEqual(len(blind.problems(all_of)), 3)


class Tables(unittest.TestCase):
    def test_few_runs_have_no_figure(self):
        some = [record(str(i)) for i in range(9)]
        self.assertIn("no blind runs", blind.row("few", some, {r["id"]: frozen(r["id"]) for r in some}))

    def test_errors_and_bias_are_those_of_the_frozen_predictions(self):
        some = [record(str(i)) for i in range(10)]
        cells = blind.row("ten", some, {r["id"]: frozen(r["id"]) for r in some}).split("|")
        self.assertEqual([cell.strip() for cell in cells[2:8]], ["10", "10.0", "-10.0", "100", "100 of 10", ""])

    def test_a_tuned_run_leaves_todays_table_and_stays_in_the_frozen_one(self):
        some = [record(str(i)) for i in range(11)]
        all_of = records_of(some, [frozen(r["id"]) for r in some], [{"id": "3", "constant": "rate of a kernel"}])
        tables = [line for line in blind.section(all_of, all_of.frozen) if line.startswith("| all |")]
        self.assertEqual([line.split("|")[2].strip() for line in tables[:3]], ["11", "10", "1"])

    def test_refused_runs_are_counted_apart(self):
        some = [record(str(i)) for i in range(11)]
        predictions = {r["id"]: frozen(r["id"]) for r in some}
        predictions["0"] = {"refused": True}
        self.assertEqual(blind.row("some", some, predictions).split("|")[7].strip(), "1")


class Pairs(unittest.TestCase):
    def test_the_kind_is_that_of_the_switches_that_differ(self):
        self.assertEqual(blind.kind_of_change(record("a", **{"micro-batch-size": 1}), record("b", **{"micro-batch-size": 2})), "micro-batch")
        self.assertEqual(blind.kind_of_change(record("a"), record("b", gpu="B200")), "GPU")
        self.assertEqual(blind.kind_of_change(record("a"), record("b", **{"micro-batch-size": 2, "expert-model-parallel-size": 2})), "several kinds")
        self.assertEqual(blind.kind_of_change(record("a"), record("b")), "nothing")

    def test_a_change_is_right_by_its_sign_or_by_being_none(self):
        self.assertTrue(blind.Change("x", 0.1, 0.01).right)
        self.assertFalse(blind.Change("x", 0.1, -0.01).right)
        self.assertTrue(blind.Change("x", 0.01, -0.01).right)
        self.assertAlmostEqual(blind.Change("x", 0.1, 0.01).gap, 0.09)


if __name__ == "__main__":
    unittest.main()
