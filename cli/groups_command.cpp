#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_groups(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan groups is being built");
}

}  // namespace mgplan::cli
