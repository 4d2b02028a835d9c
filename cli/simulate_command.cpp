#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_simulate(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan simulate is being built");
}

}  // namespace mgplan::cli
