#!/usr/bin/env python3
"""The check of names turns red for each kind of offence, and stays green for what is allowed."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_names  # noqa: E402
from cpp_names import Unreadable, names_in  # noqa: E402

GOOD = {
    "plan/CMakeLists.txt": "# libraries\nmgplan_room(plan\n  SOURCES\n    a.cpp\n    b.cpp\n  DEPENDS fmt::fmt)\n",
    "plan/a.hpp": "#pragma once\nnamespace mgplan {\nstruct Layout { int tp = 1; };\nint area(int);\n}\n",
    "plan/a.cpp": "namespace mgplan {\nnamespace {\nusing Json = other::json;\nint twice(int x) { return 2 * x; }\n}\nint area(int x) { return twice(x); }\n}\n",
    "plan/b.cpp": "namespace mgplan {\nnamespace {\nusing Json = other::json;\nint twice(double x) { return 2; }\n}\n}\n",
}


def wrapped(text, namespace="mgplan"):
    return f"namespace {namespace} {{\n{text}\n}}\n"


def hidden(text):
    return wrapped(f"namespace {{\n{text}\n}}")


class CheckNames(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, check_names, "NEVER_LINKED_TOGETHER", check_names.NEVER_LINKED_TOGETHER)
        check_names.NEVER_LINKED_TOGETHER = {}

    def offences(self, changes=None):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {**GOOD, **(changes or {})}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_names.check(root)

    def assert_one(self, changes, *words):
        offences = self.offences(changes)
        self.assertEqual(len(offences), 1, offences)
        for word in words:
            self.assertIn(word, offences[0])

    def test_names_of_their_own_pass(self):
        self.assertEqual(self.offences(), [])

    def test_a_type_is_defined_once_in_a_namespace(self):
        for second in ("struct Layout { int ep; };", "class Layout final : public Base<int> { };", "enum class Layout : int { a, b };", "using Layout = int;",
                       "template <class T>\nstruct Layout { T t; };", "template <class T> concept Layout = true;", "typedef int Layout;"):
            with self.subTest(second):
                self.assert_one({"simulator/x.hpp": wrapped(second)}, "simulator/x.hpp:", "mgplan::Layout", "plan/a.hpp:3")

    def test_tests_and_examples_count_too(self):
        self.assert_one({"tests/plan/x_test.cpp": wrapped("struct Layout { };")}, "tests/plan/x_test.cpp:2", "plan/a.hpp:3")
        self.assert_one({"examples/x/main.cpp": wrapped("struct Layout { };")}, "plan/a.hpp:3")

    def test_types_may_share_a_name_in_other_namespaces_and_where_nobody_else_sees_them(self):
        self.assertEqual(self.offences({"simulator/x.hpp": wrapped("struct Layout { };", "mgplan::simulator")}), [])
        self.assertEqual(self.offences({"tests/x.cpp": hidden("struct Layout { };"), "tests/y.cpp": hidden("struct Layout { };")}), [])

    def test_declarations_and_members_are_no_definitions(self):
        self.assertEqual(self.offences({"simulator/x.hpp": wrapped("struct Layout;\nstruct Other { struct Layout { }; };\nstruct Layout here();")}), [])

    def test_members_types_are_defined_once(self):
        both = {"tests/x.cpp": wrapped("struct Layout::State { };"), "tests/y.cpp": wrapped("struct Layout::State { int a; };")}
        self.assert_one(both, "tests/y.cpp:2", "mgplan::Layout::State")
        check_names.NEVER_LINKED_TOGETHER = {"mgplan::Layout::State": "one is a stand-in"}
        self.assertEqual(self.offences(both), [])

    def test_an_exception_that_nobody_needs_is_an_offence(self):
        check_names.NEVER_LINKED_TOGETHER = {"mgplan::Layout": "it was defined twice"}
        self.assert_one({}, "mgplan::Layout", "no longer defined twice")

    def test_hidden_names_of_a_library_differ(self):
        for text in ("int twice(int y) { return y; }", "int twice(const int = 3) { return 1; }", "int twice;", "struct twice { };", "constexpr int kA = 1, twice = 2;",
                     "template <class T>\nT twice(int) { return {}; }", "using twice = int;"):
            with self.subTest(text):
                self.assertTrue(self.offences({"plan/b.cpp": hidden(text)}), text)
        self.assert_one({"plan/b.cpp": hidden("int twice(int) { return 1; }")}, "plan/b.cpp:3", "plan/a.cpp:4", "twice", "unity")
        self.assert_one({"plan/b.cpp": wrapped("static int twice(int x) { return 3 * x; }")}, "plan/b.cpp:2", "plan/a.cpp:4")

    def test_an_alias_may_be_repeated_but_not_changed(self):
        self.assert_one({"plan/b.cpp": hidden("using Json = quite::another;")}, "plan/b.cpp:3", "Json")
        self.assert_one({"plan/b.cpp": hidden("using quite::another::Json;")}, "plan/b.cpp:3", "Json")

    def test_hidden_names_differ_from_those_of_headers(self):
        self.assert_one({"plan/b.cpp": hidden("struct Layout { };")}, "plan/b.cpp:3", "plan/a.hpp:3")
        self.assert_one({"plan/b.cpp": hidden("int area(int x) { return x; }")}, "plan/b.cpp:3")
        self.assertEqual(self.offences({"plan/b.cpp": hidden("int area(int x, int y) { return x * y; }")}), [])

    def test_other_libraries_may_use_the_name(self):
        self.assertEqual(self.offences({"jobs/CMakeLists.txt": "mgplan_room(jobs SOURCES c.cpp)", "jobs/c.cpp": hidden("int twice(int) { return 1; }")}), [])

    def test_sources_added_later_belong_to_the_library(self):
        files = {"plan/CMakeLists.txt": "add_library(plan MODULE a.cpp)\nif(X)\n  target_sources(plan PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/b.cpp)\nendif()\n"}
        self.assertEqual(self.offences(files), [])
        self.assert_one({**files, "plan/b.cpp": hidden("int twice(int) { return 1; }")}, "plan/a.cpp:4")

    def test_nothing_reaches_into_other_files(self):
        self.assert_one({"plan/b.cpp": wrapped("using namespace std;")}, "plan/b.cpp:2", "using namespace std")
        self.assertEqual(self.offences({"plan/b.cpp": wrapped("using namespace std::chrono_literals;")}), [])
        self.assert_one({"plan/b.cpp": "#define SIZE 3\n"}, "plan/b.cpp:1", "SIZE")
        self.assertEqual(self.offences({"plan/b.cpp": "#define SIZE 3\n#undef SIZE\n"}), [])
        self.assertEqual(self.offences({"tests/x.cpp": "#define SIZE 3\n"}), [])

    def test_nothing_is_passed_over_in_silence(self):
        self.assert_one({"plan/c.cpp": ""}, "plan/c.cpp", "no CMakeLists.txt")
        self.assert_one({"plan/b.cpp": wrapped("struct {")}, "plan/b.cpp:", "cannot read")
        self.assert_one({"plan/b.cpp": wrapped("DECLARE_SOMETHING(a, b)")}, "plan/b.cpp:2", "DECLARE_SOMETHING")


class NamesIn(unittest.TestCase):
    def read(self, text):
        return [(name.namespace, name.name, name.kind) for name in names_in(text)]

    def test_declarations_follow_each_other(self):
        text = """
            // struct Comment { };
            extern "C" { int from_c(int); }
            namespace a::b { inline namespace v1 { namespace { constexpr char kText[] = "struct Text {"; } } }
            namespace short_name = a::b;
            template <class T, std::size_t kN = (3 > 2)> requires Some<T> && (kN > 1) class Sized : public Base<T, (kN > 2)> { int x{3}; };
            template <> struct fmt::formatter<a::B> : fmt::formatter<int> { };
            a::C::C(int x) noexcept : x_{x}, y_(std::vector<int>{1, 2}) { run(); }
            std::map<int, std::pair<int, int>> table{{1, {2, 3}}}, other = {}, *third;
            auto made = [](int x) { return x < 3; };
            auto trailing(int x) -> std::vector<int> { return {}; }
            bool operator<(const A& a, const A& b);
            struct tm moment;
            struct Point { int x; } origin;
            enum { first = 1, second = (2, 3), third_and_last };
            int tries(int x) try { return run(x); } catch (const Error&) { return 2; } catch (...) { throw; }
            [[nodiscard]] __attribute__((noinline)) double (attribute)(int);
        """
        with self.assertRaises(Unreadable):  # a declarator in parentheses
            names_in(text)
        self.assertEqual(
            self.read(text.replace("(attribute)", "attribute")),
            [
                ("", "from_c", "function"), ("a::b::v1", "kText", "variable"), ("", "short_name", "using"), ("", "Sized", "type"),
                ("", "fmt::formatter<a::B>", "type"), ("", "table", "variable"), ("", "other", "variable"), ("", "third", "variable"),
                ("", "made", "variable"), ("", "trailing", "function"), ("", "operator<", "function"), ("", "moment", "variable"),
                ("", "Point", "type"), ("", "origin", "variable"), ("", "first", "variable"), ("", "second", "variable"),
                ("", "third_and_last", "variable"), ("", "tries", "function"), ("", "attribute", "function"),
            ],
        )

    def test_parameters_are_compared_without_their_names(self):
        types = lambda text: names_in(text)[0].parameters
        self.assertEqual(types("int f(const std::vector<int>& x, unsigned y = 3);"), types("int f(const std::vector<int>& values, unsigned)\n{ }"))
        self.assertNotEqual(types("int f(const A& x);"), types("int f(A& x);"))
        self.assertNotEqual(types("int f(std::int64_t x);"), types("int f(std::int32_t x);"))

    def test_what_cannot_be_read_is_told_with_its_line(self):
        for text, line in (("\nint x[3;\n", 2), ("namespace a {\nint x;\n", 2), ("}\n", 1), ("int x", 1)):
            with self.subTest(text), self.assertRaisesRegex(Unreadable, f"^{line}: "):
                names_in(text)


if __name__ == "__main__":
    unittest.main()
