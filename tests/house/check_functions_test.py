#!/usr/bin/env python3
"""check_functions.py finds functions and their lines, and advises on long ones."""
import tempfile
import unittest
from pathlib import Path

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

    def test_longer_than_80_lines_get_an_advice(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "plan").mkdir()
            (Path(folder) / "plan/a.cpp").write_text("".join(f"int f{n}() {{\n" + "    g();\n" * (n - 2) + "}\n" for n in (80, 81)))
            self.assertEqual(check_functions.advice(Path(folder)), ["plan/a.cpp:81: f81 has 81 lines; ask whether there are two meanings"])


if __name__ == "__main__":
    unittest.main()
