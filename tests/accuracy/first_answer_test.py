#!/usr/bin/env python3
"""first_answer.py reads tables for people and finds rows that should not be there."""

import unittest

import first_answer

TABLE = """llama3-8b on 16 GPUs (dgx-h100), batch of 1,024 x 4,096 tokens, bf16

all rows: cp 1
 #  tp    features    s/step   worst   GiB  why
--  ----  ----------  ------  ------  ----  ---------------------
 1  2+sp  ov:tp       10.002  10.016  72.4  recommended, fastest,
                                            steadiest
 9  2+sp  fsdp ov:tp  10.166  10.175  71.4  most-free-memory
 -  1     fsdp        10.563  10.574  74.1  like-nvidia-recipe

rec: recompute
"""


class Tables(unittest.TestCase):
    def test_cells_with_blanks_and_wrapped_reasons_are_read(self):
        rows = first_answer.rows_of(TABLE)
        self.assertEqual([row["#"] for row in rows], ["1", "9"], "a recipe's row has no rank")
        self.assertEqual(rows[1]["features"], "fsdp ov:tp")
        self.assertEqual(rows[0]["why"], "recommended, fastest, steadiest")
        self.assertEqual(first_answer.table_faults(rows), [])
        self.assertEqual(first_answer.rows_of("nothing fits\n"), [])

    def test_a_dominated_row_without_a_reason_is_a_fault(self):
        slower = TABLE.replace("71.4  most-free-memory", "73.0  ")
        self.assertEqual(first_answer.table_faults(first_answer.rows_of(slower)), ["row 9 is dominated and has no reason"])
        self.assertEqual(first_answer.table_faults(first_answer.rows_of(TABLE.replace("71.4", "73.0"))), [], "it has one")

    def test_a_faster_row_below_the_first_is_a_fault(self):
        rows = first_answer.rows_of(TABLE.replace("10.166", " 9.990"))
        self.assertEqual(first_answer.table_faults(rows), ["row 1 is not the fastest shown"])

    def test_plans_of_other_types_and_offload_are_passed_over(self):
        def plan(gradients, offload):
            return {"layout": {"optimizer_dtypes": {"gradients": gradients}, "offload": offload}}

        plans = [plan("bf16", {}), plan("fp32", {"optimizer": 1}), plan("fp32", {})]
        self.assertIs(first_answer.first_of(plans, {"gradients": "fp32"}), plans[2])
        self.assertIsNone(first_answer.first_of(plans[:2], {"gradients": "fp32"}))


if __name__ == "__main__":
    unittest.main()
