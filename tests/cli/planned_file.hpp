#pragma once
// A plan for what tests of `mgplan run` train.

#include <string>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::planned_file {

/// A plan file of tiny-llama with these options, of layouts without further switches unless the options say what to search.
class PlanFile {
public:
    PlanFile(const std::string& name, const std::string& options, const std::string& model = "tiny-llama") : file_(name) {
        const std::string search = options.find("--search") == std::string::npos ? " --search plain" : "";
        const Said said = say("--model " + model + " " + options + search + " --save-plan " + file_.path());
        EXPECT_EQ(said.code, kDone) << said.err;
    }
    [[nodiscard]] const std::string& path() const { return file_.path(); }

private:
    TempFile file_;
};

}  // namespace mgplan::cli::testing::planned_file
