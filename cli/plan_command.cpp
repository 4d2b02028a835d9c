#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_plan(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan plan is being built");
}

}  // namespace mgplan::cli
