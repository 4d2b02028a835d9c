#!/usr/bin/env python3
"""What check_functions.py takes for a function, and that it turns red."""
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_functions
from check_functions import functions

TEXT = """#pragma once
namespace mgplan {
namespace {

constexpr int kTable[] = {
    1,
    2,
};

struct Pair {
    int a = 0;

    int sum(int b) const {
        return a + b;
    }
    int one() { return 1; }
};

enum class Kind {
    a,
};

template <class T>
std::vector<T> of(const std::vector<T>& all,
                  int b) {
    const auto f = [&](int c) {
        return b + c;
    };
    // }
    return {f(1), "}"};
}

}  // namespace

Pair::Pair(int b)
    : a(b) {
    a += 1;
}

}  // namespace mgplan
"""


class Functions(unittest.TestCase):
    def test_are_found_with_their_lines(self):
        self.assertEqual(list(functions(TEXT)), [("sum", 13, 3), ("of", 23, 9), ("Pair", 35, 4)])

    def check(self, body_lines, longer):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(check_functions, "LONGER", longer):
            (Path(folder) / "plan").mkdir()
            (Path(folder) / "plan/a.cpp").write_text("int f() {\n" + "    g();\n" * body_lines + "}\n")
            return check_functions.check(Path(folder))

    def test_turns_red_above_the_limit_and_above_what_is_known(self):
        self.assertEqual(self.check(78, {}), [])
        self.assertIn("f has 81 lines, and 80 is the most", self.check(79, {})[0])
        self.assertEqual(self.check(79, {"plan/a.cpp": {"f": 81}}), [])
        self.assertIn("f has 82 lines, and 81", self.check(80, {"plan/a.cpp": {"f": 81}})[0])

    def test_turns_red_where_the_list_is_too_long(self):
        self.assertIn("f has 81 lines by now", self.check(79, {"plan/a.cpp": {"f": 90}})[0])
        self.assertIn("remove it", self.check(3, {"plan/a.cpp": {"f": 90}})[0])


if __name__ == "__main__":
    unittest.main()
