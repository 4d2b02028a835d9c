#!/usr/bin/env python3
"""What find_unreached.py makes of a linker's words."""
import unittest

from find_unreached import complaints, qualified_name, unreached

LLD = "removing unused section libmgplan_plan.a(unity_0_cxx.cxx.o):(.text.{})\n"
BFD = "/usr/bin/ld: removing unused section '.text.{}' in file 'libmgplan_plan.a(unity_0_cxx.cxx.o)'\n"
DEAD = "_ZN6mgplan4deadEi"        # mgplan::dead(int)
FAR = "_ZN6mgplan3cli3farEv"       # mgplan::cli::far()
OTHERS = "_ZN3fmt6formatEv"        # fmt::format()


class Unreached(unittest.TestCase):
    def test_is_what_every_program_does_without(self):
        outputs = [LLD.format(DEAD) + LLD.format(FAR) + LLD.format(OTHERS), BFD.format(DEAD)]
        self.assertEqual(unreached(outputs, set()), ["mgplan::dead"])
        self.assertEqual(unreached(outputs[:1], set()), ["mgplan::cli::far", "mgplan::dead"])
        self.assertEqual(unreached(outputs, {"dead"}), [])

    def test_is_named_as_its_source_names_it(self):
        for demangled, name in {
            "mgplan::dead(int)": "mgplan::dead",
            "std::vector<int, std::allocator<int> > mgplan::plan::each<int>(int) const": "mgplan::plan::each",
            "mgplan::(anonymous namespace)::helper[abi:cxx11](std::function<void (int)>)": "mgplan::helper",
            "mgplan::Layout::words() const": "mgplan::Layout::words",
        }.items():
            self.assertEqual(qualified_name(demangled), name)
        for demangled in ("mgplan::A::A(int)", "mgplan::A::~A()", "mgplan::operator==(mgplan::A const&, mgplan::A const&)", "main",
                          "mgplan::f(int)::{lambda(int)#1}::operator()(int) const", "std::sort<mgplan::A>(mgplan::A*)"):
            self.assertIsNone(qualified_name(demangled), demangled)

    def test_needs_a_reason_and_reasons_a_need(self):
        self.assertEqual(complaints(["mgplan::dead"], {"mgplan::dead": "why"}), [])
        self.assertIn("mgplan::dead: no program", complaints(["mgplan::dead"], {})[0])
        self.assertIn("mgplan::gone: is reached now", complaints([], {"mgplan::gone": "why"})[0])


if __name__ == "__main__":
    unittest.main()
