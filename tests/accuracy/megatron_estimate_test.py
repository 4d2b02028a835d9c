#!/usr/bin/env python3
"""The estimate is Megatron-LM's own: recorded answers of its functions are met to twelve digits."""

import json
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import megatron_estimate  # noqa: E402

RECORDED = HERE.parent / "golden" / "data" / "memory.dev.json"


class MegatronEstimate(unittest.TestCase):
    def assert_equal(self, ours, theirs, what):
        self.assertLessEqual(abs(ours - theirs), 1e-12 * abs(theirs), f"{what}: {ours} instead of {theirs}")

    def test_it_is_megatrons_number_for_number(self):
        agreed = refused = 0
        for case in json.loads(RECORDED.read_text(encoding="utf-8"))["cases"]:
            with self.subTest(case["id"]):
                if "expect_error" in case:
                    refused += 1
                    with self.assertRaises(ValueError):
                        megatron_estimate.estimate(case["args"], case.get("num_microbatches"))
                    continue
                agreed += 1
                found = megatron_estimate.estimate(case["args"], case.get("num_microbatches"))
                for what in ("weight_and_optimizer_bytes", "activation_bytes_sp", "activation_bytes_without_sp"):
                    self.assert_equal(found[what], case[what], what)
                self.assert_equal(found["weight_and_optimizer_bytes"] / 1048576, case["report_mb"][0], "reported weights")
                self.assert_equal(found["activation_bytes"] / 1048576, case["report_mb"][1], "reported activations")
                for what in ("num_total_parameters", "num_active_parameters", "num_parameters_on_most_loaded_model_shard"):
                    self.assert_equal(found[what], case["intermediate"][what], what)
        self.assertEqual((agreed, refused), (32, 1))

    def test_sizes_start_at_one(self):
        case = next(case for case in json.loads(RECORDED.read_text(encoding="utf-8"))["cases"] if "expect_error" not in case)
        for name in ("num_layers", "tensor_model_parallel_size", "world_size"):
            with self.assertRaisesRegex(ValueError, name):
                megatron_estimate.estimate({**case["args"], name: 0})

    def test_flags_left_out_have_megatrons_defaults(self):
        flags = {"num-layers": 4, "hidden-size": 1024, "num-attention-heads": 16, "seq-length": 2048, "vocab-size": 50000, "global-batch-size": 64,
                 "micro-batch-size": 2, "tensor-model-parallel-size": 2, "swiglu": True}
        arguments, microbatches = megatron_estimate.arguments_of_run(flags, 16)
        self.assertEqual(microbatches, 4)
        self.assertEqual(arguments["data_parallel_size"], 8)
        self.assertEqual(arguments["ffn_hidden_size"], 2688, "int(4 · 1024 · 2 / 3 / 64) · 64")
        self.assertEqual(arguments["kv_channels"], 64)
        self.assertEqual(arguments["padded_vocab_size"], 50176, "a multiple of 128 · tp")
        self.assertEqual(arguments["expert_tensor_parallel_size"], 2)

    def test_mixture_layers_are_read_as_megatron_reads_them(self):
        self.assertEqual(megatron_estimate.layer_list("([0]*1+[1]*3)"), [0, 1, 1, 1])
        self.assertEqual(megatron_estimate.layer_list(2), 2)
        with self.assertRaises(ValueError):
            megatron_estimate.layer_list("__import__('os')")


if __name__ == "__main__":
    unittest.main()
