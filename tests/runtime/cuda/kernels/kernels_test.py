"""The check of kernels turns red: kernels_test.py"""

import unittest

import kernels
import ptx

# A loop that adds up floats as nvcc writes it, with the words that the first and the second load of a pass are.
ENTRY = """.visible .entry _ZN6mgplan7runtime4cuda8run_eachINS1_3SumEEEvT_l(
	.param .u64 p
)
{
$L__BB0_2:
	shl.b64 	%rd1, %rd9, 4;
	add.s64 	%rd2, %rd7, %rd1;
	LOAD_ONE
	mov.b64 	{%r1, %r2}, %rd3;
	add.s64 	%rd5, %rd8, %rd1;
	EARLY_USE
	LOAD_TWO
	mov.b32 	%f1, %r1;
	add.f32 	%f9, %f9, %f1;
	mov.b64 	{%r3, %r4}, %rd6;
	mov.b32 	%f2, %r3;
	add.f32 	%f9, %f9, %f2;
	setp.lt.s64 	%p1, %rd9, %rd10;
	@%p1 bra 	$L__BB0_2;
	ret;
}
"""
ONE, TWO = "ld.global.v2.u64 	{%rd3, %rd4}, [%rd2];", "ld.global.v2.u64 	{%rd6, %rd11}, [%rd5];"
KERNEL, CAST, ROUTE = "run_each<Sum>", "run_packs<16, Cast>", "run_teams<Route>"


def loops_of(one=ONE, two=TWO, early="add.s64 	%rd9, %rd9, %rd12;"):
    text = ENTRY.replace("LOAD_ONE", one).replace("LOAD_TWO", two).replace("EARLY_USE", early)
    (body,) = ptx.kernels_of(text).values()
    return [ptx.under_way(loop) for loop in ptx.innermost_loops(body)]


def steps(seconds=1.0):
    shapes = {"model": "m", "layers": 1, "sequence": 1, "micro_batch": 1,
              "ops": [{"op": "sum", "range": "optimizer", "flops": 0, "read": seconds * 1e12, "written": 0, "product": False, "kernels": [KERNEL]},
                      {"op": "product", "range": "optimizer", "flops": 1e15, "read": 0, "written": 0, "product": True, "kernels": ["cuBLASLt"]}]}
    in_fp8 = {"recipe": "fp8-current", "ops": [
        {"op": "cast", "range": "layer forward 1", "flops": 0, "read": seconds * 1e12, "written": 0, "product": False, "kernels": [CAST]},
        {"op": "product", "range": "optimizer", "flops": 1e15, "read": 0, "written": 0, "product": True, "fp8": True, "kernels": ["cuBLASLt"]}]}
    other = {"model": "a mixture", "layers": 2, "ops": [
        {"op": "route", "range": "layer forward 0", "flops": 0, "read": seconds * 1e12, "written": 0, "product": False, "kernels": [ROUTE]},
        {"op": "products", "range": "layer forward 0", "flops": 3e15, "read": 1, "written": 0, "product": False, "kernels": ["cuBLASLt", "cuBLASLt"]},
        {"op": "sum", "range": "optimizer", "flops": 0, "read": 9e12, "written": 0, "product": False, "kernels": [KERNEL]}]}
    card = {"memory_bandwidth": 1e12, "peak_flops": {"bf16": 1e15, "fp8": 2e15}}
    return [kernels.Step(shapes, card), kernels.Step(shapes, card, in_fp8), kernels.Step(shapes, card, other)]


ALIKE_FACTS, ALIKE_LIMIT = {"loops": [(2, 32)], "stores": 1, "registers": 16, "spilled": 0}, {"loads": 2, "loops": 1, "stores": 1, "registers": 16}


def said(loops, limit, registers=32, spilled=0, seconds=1.0, stores=1):
    facts = {KERNEL: {"loops": loops, "stores": stores, "registers": registers, "spilled": spilled}, CAST: ALIKE_FACTS, ROUTE: ALIKE_FACTS}
    return kernels.differences(steps(seconds), facts, {CAST: ALIKE_LIMIT, ROUTE: ALIKE_LIMIT, **({KERNEL: limit} if limit else {})})


class Loads(unittest.TestCase):
    def test_two_that_stand_before_the_first_use_count(self):
        self.assertEqual(loops_of(), [(2, 32)])

    def test_one_behind_a_use_does_not(self):
        self.assertEqual(loops_of(early="add.s32 	%r9, %r1, %r9;"), [(1, 16)])

    def test_one_whose_address_was_loaded_does_not(self):
        self.assertEqual(loops_of(two=TWO.replace("[%rd5]", "[%rd4]")), [(1, 16)])

    def test_narrow_ones_do_not(self):
        self.assertEqual(loops_of(one="ld.global.u16 	%rd3, [%rd2];", two="ld.global.nc.v2.u16 	{%rd6, %rd11}, [%rd5];"), [(0, 6)])

    def test_names_are_those_of_the_code(self):
        mangled = "_ZN6mgplan7runtime4cuda9run_packsILi8ENS1_7AddIntoINS0_4Bf16EfEEEEvT0_l"
        self.assertEqual(ptx.plain_names([mangled]), {mangled: "run_packs<8, AddInto<Bf16, float>>"})


class Page(unittest.TestCase):
    facts = {KERNEL: {"loops": [(2, 32)], "stores": 0, "registers": 32, "spilled": 0}, CAST: ALIKE_FACTS, ROUTE: ALIKE_FACTS}

    def test_says_bytes_floor_and_what_is_under_way(self):
        text = kernels.page.written(steps(), self.facts, "1.2.3")
        self.assertIn("no step of it is shorter than **2000.0 ms**, of which kernels that memory limits have 1000.0 ms", text)
        self.assertIn("| sum | 1 | 1000000.0 | 1000000.0 | `each<Sum>` |", text)
        self.assertIn("| `each<Sum>` | 50.00% | 2 | 64 | none | 32 |", text)  # 2,048 threads of 32 bytes
        self.assertIn("`fp8-current`: no step is shorter than **1500.0 ms**; a layer's casts have 1000.00 ms of it.", text)
        self.assertIn("| cast | 1 | 1000000.0 | 1000000.0 | `packs<16, Cast>` |", text)
        self.assertIn("| `packs<16, Cast>` | 66.67% | 2 | 64 | 1 | 16 |", text)

    def test_of_another_model_its_layers_alone_count(self):
        text = kernels.page.written(steps(), self.facts, "1.2.3")
        self.assertIn("a mixture, 2 layers: **4000.0 ms**, of which kernels that memory limits have 1000.0 ms.", text)
        self.assertIn("| route | 1 | 1000000.0 | 1000000.0 | `teams<Route>` |", text)
        self.assertIn("| `teams<Route>` | 25.00% | 2 | 64 | 1 | 16 |", text)
        self.assertNotIn("| products |", text)

    def test_of_the_tree_is_not_that_of_another_step(self):
        self.assertFalse(kernels.page.is_current(kernels.page.written(steps(), self.facts, "1.2.3")))


class Limits(unittest.TestCase):
    limit = {"loads": 2, "loops": 1, "stores": 1, "registers": 32}

    def test_are_kept(self):
        self.assertEqual(said([(2, 32)], self.limit), [])

    def test_a_kernel_without_its_vector_loads_is_named(self):
        (line,) = said([(0, 4)], self.limit)
        self.assertIn(f"{KERNEL} has 0 loops with 2 independent loads", line)

    def test_registers_and_spills_are_named(self):
        lines = said([(2, 32)], self.limit, registers=33, spilled=8)
        self.assertIn("33 registers, and may take 32", lines[0])
        self.assertIn("spills 8 bytes", lines[1])

    def test_from_one_percent_on_the_table_cannot_ask_for_less(self):
        lax = {"loads": 0, "loops": 0, "stores": 1, "registers": 32}
        self.assertIn("is 50.0% of the step and may not do with fewer than 2 loads", said([(0, 4)], lax)[0])
        self.assertEqual(said([(0, 4)], lax, seconds=0.009), [])
        self.assertEqual(said([(0, 4)], {**lax, "small": "a sum for each piece"}), [])

    def test_stores_are_counted_and_from_one_percent_on_asked_for(self):
        (line,) = said([(2, 32)], self.limit, stores=0)
        self.assertIn("has 0 stores of 16 bytes, and should have 1", line)
        lax = {"loads": 2, "loops": 1, "registers": 32}
        (line,) = said([(2, 32)], lax)
        self.assertIn("may not do without stores of 16 bytes", line)
        self.assertEqual(said([(2, 32)], {**lax, "writes little": "a sum"}), [])
        self.assertEqual(ptx.wide_stores(["st.global.v2.u64 	[%rd1], {%rd2, %rd3};", "st.global.u16 	[%rd1], %rs1;",
                                          "st.global.v4.u32 	[%rd1], {%r1, %r2, %r3, %r4};", "st.shared.v2.u64 	[%rd1], {%rd2, %rd3};"]), 2)

    def test_kernels_and_table_name_the_same(self):
        self.assertIn("not in limits.json", said([(2, 32)], None)[0])
        self.assertIn("not compiled", kernels.differences(steps(), {CAST: ALIKE_FACTS, ROUTE: ALIKE_FACTS}, {KERNEL: self.limit, CAST: ALIKE_LIMIT, ROUTE: ALIKE_LIMIT})[0])
        self.assertIn("not in the step", kernels.differences(
            steps(), {KERNEL: {**ALIKE_FACTS, "registers": 1}, CAST: ALIKE_FACTS, ROUTE: ALIKE_FACTS},
            {KERNEL: self.limit, CAST: ALIKE_LIMIT, ROUTE: ALIKE_LIMIT, "run_each<Gone>": self.limit})[0])


if __name__ == "__main__":
    unittest.main()
