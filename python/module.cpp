// Python's module `_mgplan`: the commands that plan and predict, called with words and texts instead of a command line. What they mean to
// Python (pins, results, errors) is python/mgplan's to say.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cli/command.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace nb = nanobind;

namespace mgplan::python {
namespace {

/// Result of a command.
struct Answer {
    int code = 0;                       ///< exit code
    std::string out;                    ///< its result
    std::string err;                    ///< lines about the input
    std::vector<std::string> plans;     ///< plan files of the layouts that it answers with
    std::vector<std::string> problems;  ///< why the input was refused; nothing else is set then
};

/// Ends a search on Ctrl-C. The search waits without the interpreter's lock.
void raise_where_interrupted() {
    const nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Runs a command without the interpreter's lock. Texts replace files, by option or positional: name and contents. Throws
/// RunError (RuntimeError in Python) where the command cannot finish.
Answer answer(const std::string& name, const std::vector<std::string>& words,
              const std::map<std::string, std::pair<std::string, std::string>>& texts) {
    const auto all = cli::commands();
    const auto command = std::find_if(all.begin(), all.end(), [&](const cli::Command& each) { return each.name == name; });
    if (command == all.end()) throw nb::value_error("no such command");
    Answer said;
    std::ostringstream out, err;
    cli::Console console{out, err};
    for (const auto& [option, text] : texts) console.texts[option] = {text.first, text.second};
    console.plans = [&said](const Plan& plan) { said.plans.push_back(plan_to_json(plan).dump(1) + "\n"); };
    console.waiting = raise_where_interrupted;
    try {
        const nb::gil_scoped_release unlocked;
        said.code = command->run(words, console);
    } catch (const ConfigError& error) {
        return {cli::kBadInput, {}, {}, {}, error.problems()};
    }
    said.out = std::move(out).str();
    said.err = std::move(err).str();
    return said;
}

/// Runs the command line; `given`: the arguments after the program's name. Returns the exit code.
int run_program(const std::vector<nb::bytes>& given) {
    std::vector<std::string> words;
    for (const auto& word : given) words.emplace_back(word.c_str(), word.size());
    const nb::gil_scoped_release unlocked;
    cli::Console console{std::cout, std::cerr, ::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1};
    const int code = cli::run_mgplan(words, console);
    std::cout.flush();
    return code;
}

}  // namespace
}  // namespace mgplan::python

NB_MODULE(_mgplan, module) {
    using mgplan::python::Answer;
    module.doc() = "The commands of mgplan that plan and predict; import mgplan instead.";
    module.attr("version") = MGPLAN_VERSION;
    nb::class_<Answer>(module, "Answer")
        .def_ro("code", &Answer::code)
        .def_ro("out", &Answer::out)
        .def_ro("err", &Answer::err)
        .def_ro("plans", &Answer::plans)
        .def_ro("problems", &Answer::problems);
    module.def("answer", &mgplan::python::answer, nb::arg("command"), nb::arg("words"), nb::arg("texts"));
    module.def("run_program", &mgplan::python::run_program, nb::arg("words"));
}
