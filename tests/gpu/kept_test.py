#!/usr/bin/env python3
"""What tests/gpu/run and take keep of a card: kept_test.py MGPLAN"""

import lzma

import faked
import said


class Kept(faked.Scripts):
    def test_output_that_was_cut_off_loses_its_end_alone(self):
        code, text, _ = self.run_script("correctness", "--parts", "fp32,bf16", out="cut")
        self.assertEqual(code, 0, text)
        file = self.folder / "cut" / said.OUTPUT
        whole = file.read_bytes()
        self.assertEqual(len(whole.split(said.MAGIC)), 3, "a stream for each part")
        for kept in (0, 3, 20, len(whole) - 5):
            file.write_bytes(whole[:kept])
            self.assertIn("2 of 2 parts passed", self.take("cut"))
        self.assertEqual(self.kept_text().count("==== fp32, "), 1)
        self.assertEqual(self.kept_text().count("[       OK ] One.Test"), 2)
        # The next command in that folder begins with a file that xz reads.
        file.write_bytes(whole[:-5])
        self.run_script("correctness", "--parts", "fp64", out="cut")
        text = lzma.decompress(file.read_bytes()).decode()
        self.assertEqual([line[:10] for line in text.splitlines() if line.startswith("==== ")], ["==== fp32,", "==== bf16,", "==== fp64,"])
        self.take("cut")

    def kept_text(self):
        return lzma.decompress((self.tree / "build" / "gpu-results" / "h100-80gb-hbm3" / said.OUTPUT).read_bytes()).decode()

    def test_what_is_taken_twice_is_kept_once(self):
        self.run_script("correctness", "--parts", "fp32,bf16", out="twice")
        for _ in range(2):
            self.take("twice")
        self.assertEqual(self.kept_text().count("[       OK ] One.Test"), 2)
        self.run_script("correctness", "--parts", "fp64", out="twice-more")
        self.take("twice-more")
        self.take("twice")
        self.assertEqual([line.split(",")[0] for line in self.kept_text().splitlines() if line.startswith("====")],
                         ["==== fp32", "==== bf16", "==== fp64"])


if __name__ == "__main__":
    faked.main()
