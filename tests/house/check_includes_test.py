#!/usr/bin/env python3
"""The include check turns red for each kind of offence, and stays green for what is allowed."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_includes  # noqa: E402

GOOD = {
    "plan/layout.hpp": "#pragma once\n#include <vector>\n#include <fmt/core.h>\n",
    "plan/text/json_reader.hpp": "#pragma once\n#include <nlohmann/json.hpp>\n",
    "plan/layout.cpp": '#include "plan/layout.hpp"\n#include <nlohmann/json.hpp>\n',
    "formats/yaml.cpp": '#include "plan/layout.hpp"\n#include <yaml-cpp/yaml.h>\n',
    "simulator/memory.hpp": '#pragma once\n#include "plan/layout.hpp"\n',
    "planner/search.hpp": '#pragma once\n#include "plan/layout.hpp"\n#include <thread>\n',
    "runtime/rank.hpp": '#pragma once\n#include "plan/layout.hpp"\n#include <nccl.h>\n',
    "reports/table.hpp": '#pragma once\n#include "plan/layout.hpp"\n',
    "cli/main.cpp": '#include "planner/search.hpp"\n#include "simulator/memory.hpp"\n#include <boost/program_options.hpp>\n',
    "tests/plan/layout_test.cpp": '#include "cli/main.hpp"\n#include <gtest/gtest.h>\n',
}


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, check_includes, "VALUE_HEADERS", check_includes.VALUE_HEADERS)
        check_includes.VALUE_HEADERS = set()

    def offences(self, changes=None):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {**GOOD, **(changes or {})}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_includes.check(root)

    def assert_one(self, changes, *words):
        offences = self.offences(changes)
        self.assertEqual(len(offences), 1, offences)
        for word in words:
            self.assertIn(word, offences[0])

    def test_allowed_includes_pass(self):
        self.assertEqual(self.offences(), [])

    def test_folders_of_a_room_include_in_one_direction(self):
        header = "#pragma once\n"
        files = {"model/a/x.hpp": header, "model/b/y.hpp": header + '#include "model/a/x.hpp"\n', "model/b/z.hpp": header}
        self.assertEqual(self.offences(files), [])
        back = {**files, "model/a/x.cpp": '#include "model/a/x.hpp"\n#include "model/b/z.hpp"\n'}
        self.assertEqual([line.split(":")[0] for line in self.offences(back)], ["model/a/x.cpp", "model/b/y.hpp"])

    def test_circles_of_folders_may_go_over_others_and_over_the_room_itself(self):
        header = "#pragma once\n"
        files = {"model/a/x.hpp": header + '#include "model/y.hpp"\n', "model/y.hpp": header + '#include "model/b/z.hpp"\n', "model/b/z.hpp": header}
        self.assertEqual(self.offences(files), [])
        offences = self.offences({**files, "model/b/w.cpp": '#include "model/a/x.hpp"\n'})
        self.assertEqual(len(offences), 3, offences)
        self.assertIn("model/b/ may not include model/a/", "".join(offences))

    def test_headers_may_be_included_twice(self):
        self.assert_one({"plan/bad.hpp": "// #pragma once\n#include <vector>\n"}, "plan/bad.hpp:1", "#pragma once")

    def test_source_files_begin_with_their_header(self):
        self.assert_one({"plan/layout.cpp": '// Why.\n#include <vector>\n#include "plan/layout.hpp"\n'}, "plan/layout.cpp:2", "plan/layout.hpp before all else")
        self.assert_one({"plan/layout.cu": "int layout;\n"}, "plan/layout.cu:1", "plan/layout.hpp before all else")

    def test_plan_stands_on_nothing(self):
        self.assert_one({"plan/bad.hpp": '#pragma once\n\n#include "formats/job.hpp"\n', "formats/job.hpp": "#pragma once\n"}, "plan/bad.hpp:3", "formats/")

    def test_plan_takes_no_yaml(self):
        self.assert_one({"plan/bad.cpp": "#include <yaml-cpp/yaml.h>\n"}, "plan/bad.cpp:1", "<yaml-cpp/yaml.h>")

    def test_plan_takes_system_headers_that_read_a_file_alone(self):
        self.assert_one({"plan/bad.cpp": "#include <sys/socket.h>\n"}, "<sys/socket.h>")

    def test_simulator_and_runtime_do_not_meet(self):
        self.assert_one({"simulator/bad.cpp": '#include "runtime/rank.hpp"\n'}, "simulator/", "runtime/rank.hpp")
        self.assert_one({"runtime/bad.cpp": '#include "simulator/memory.hpp"\n'}, "runtime/", "simulator/memory.hpp")

    def test_planner_stands_on_the_simulator_and_not_the_other_way_round(self):
        self.assertEqual(self.offences({"planner/rank.cpp": '#include "simulator/memory.hpp"\n'}), [])
        self.assert_one({"simulator/bad.cpp": '#include "planner/search.hpp"\n'}, "simulator/", "planner/search.hpp")

    def test_angle_brackets_hide_no_room(self):
        self.assert_one({"simulator/bad.cpp": "#include <planner/search.hpp>\n"}, "simulator/", "planner/search.hpp")

    def test_only_cli_parses_options(self):
        self.assert_one({"reports/bad.cpp": "#include <boost/program_options.hpp>\n"}, "reports/", "boost/")

    def test_full_json_stays_out_of_headers(self):
        self.assert_one({"plan/bad.hpp": "#pragma once\n#include <nlohmann/json.hpp>\n"}, "json_fwd")
        self.assertEqual(self.offences({"plan/good.hpp": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n"}), [])

    def test_reports_read_listed_value_headers_only(self):
        bad = {"reports/bad.cpp": '#include "planner/search.hpp"\n'}
        self.assert_one(bad, "value headers")
        check_includes.VALUE_HEADERS = {"planner/search.hpp"}
        self.assertEqual(self.offences(bad), [])
        not_a_value = {"planner/search.hpp": '#pragma once\n#include "planner/engine.hpp"\n', "planner/engine.hpp": "#pragma once\n"}
        self.assert_one({**bad, **not_a_value}, "planner/search.hpp:2", "planner/engine.hpp")
        check_includes.VALUE_HEADERS = {"planner/search.hpp", "planner/gone.hpp"}
        self.assert_one({}, "planner/gone.hpp", "does not exist")

    def test_rooms_form_no_circle(self):
        self.addCleanup(check_includes.ROOMS.__setitem__, "plan", check_includes.ROOMS["plan"])
        check_includes.ROOMS["plan"] = (("reports",), check_includes.ROOMS["plan"][1])
        offences = self.offences({"plan/bad.cpp": '#include "reports/table.hpp"\n'})
        self.assertEqual(offences, ["circle of rooms: plan -> reports -> plan"])

    def test_headers_form_no_circle(self):
        self.assert_one({"plan/a.hpp": '#pragma once\n#include "plan/b.hpp"\n', "plan/b.hpp": '#pragma once\n#include "plan/a.hpp"\n'}, "circle of headers: plan/a.hpp -> plan/b.hpp")

    def test_project_headers_are_named_from_the_root(self):
        self.assert_one({"plan/bad.cpp": '#include "layout.hpp"\n'}, '"layout.hpp"', "root")
        self.assert_one({"plan/bad.cpp": '#include "plan/../plan/layout.hpp"\n'}, "root")

    def test_comments_and_strings_are_not_includes(self):
        text = '// #include "cli/x.hpp"\n/*\n#include "cli/x.hpp"\n*/\nconst char* s = R"x(\n#include "cli/x.hpp"\n)x";\nint n = 1\'000;\n'
        self.assertEqual(self.offences({"plan/fine.cpp": text}), [])
        self.assert_one({"plan/bad.cpp": text + '/* "*/ #  include "cli/x.hpp" // why\n', "cli/x.hpp": "#pragma once\n"}, "plan/bad.cpp:9", "cli/x.hpp")

    def test_macros_as_targets_are_refused(self):
        self.assert_one({"plan/bad.cpp": "#include HEADER\n"}, "macro")

    def test_a_new_room_needs_its_arrows(self):
        self.assert_one({"extras/new.cpp": ""}, "extras/", "no known room")

    def test_the_program_exits_with_one(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "plan").mkdir()
            (Path(folder) / "plan/bad.cpp").write_text("#include <boost/any.hpp>\n")
            result = subprocess.run([sys.executable, check_includes.__file__, folder], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("plan/bad.cpp:1", result.stdout)


if __name__ == "__main__":
    unittest.main()
