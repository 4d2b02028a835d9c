#!/usr/bin/env python3
"""What check_kinds.py takes for a question about a part's kind, and that it turns red."""
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_kinds


class Kinds(unittest.TestCase):
    def offences(self, files, allowed=None, ask=check_kinds.offences):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(check_kinds, "ALLOWED", allowed or {}):
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return ask(root)

    TABLE = {"plan/parts/layer_parts.cpp": 'PartKind{"mamba2", kSizes, tensors}, PartKind{"mlp", kMlp, mlp};\n'}

    def test_a_comparison_outside_of_the_tables_is_red(self):
        for text in ('if (part.kind == "mamba2") return 0;', 'return kind != "mlp";', 'return "mlp" == part.kind;', 'return kind() == "mlp";',
                     'if (has_part(model, "mamba2")) return 1;', 'if (has_mamba2(model)) return 1;', 'return mixer == "mamba2" ? 1 : 2;',
                     'return "mamba2" != name;', 'return kind == std::string_view("mamba2");'):
            with self.subTest(text):
                (offence,) = self.offences({**self.TABLE, "simulator/flops.cpp": "int f();\n" + text + "\n"})
                self.assertIn("simulator/flops.cpp asks 1 times for a part's kind, 0 are listed: line 2", offence)

    def test_other_words_and_the_files_of_the_kinds_are_green(self):
        self.assertEqual(self.offences({**self.TABLE, "simulator/flops.cpp": 'if (step.kind == "wait") f(); if (name == "mlp") g(); h("mamba2");\n',
                                        "plan/parts/layers_of_parts.cpp": 'if (part.kind == "mamba2") f();\n'}), [])

    def test_layers_that_hold_halves_are_no_kinds_own_file(self):
        (offence,) = self.offences({**self.TABLE, "model/layers/decoder_layer.cpp": 'return half.kind == "mlp";\n'})
        self.assertIn("model/layers/decoder_layer.cpp asks 1 times", offence)

    def test_the_list_only_shrinks(self):
        files = {**self.TABLE, "simulator/flops.cpp": 'return part.kind == "mlp";\n'}
        self.assertEqual(self.offences(files, {"simulator/flops.cpp": (1, "reason")}), [])
        (offence,) = self.offences(files, {"simulator/flops.cpp": (2, "reason")})
        self.assertIn("shorten the list", offence)
        (offence,) = self.offences(self.TABLE, {"simulator/gone.cpp": (1, "reason")})
        self.assertIn("is listed and not there", offence)

    def test_long_files_that_mixers_touch_get_an_advice(self):
        long = "int f();\n" * 401
        files = {**self.TABLE, "simulator/price/op_price.cpp": long, "model/layers/layer_half.hpp": long}
        self.assertEqual(self.offences(files), [])
        self.assertEqual(self.offences(files, ask=lambda root: list(check_kinds.advice(root))),
                         ["model/layers/layer_half.hpp, which mixers touch, has 401 lines; ask whether there are two meanings"])

    def test_without_kinds_it_is_red(self):
        self.assertEqual(len(self.offences({})), 1)


if __name__ == "__main__":
    unittest.main()
