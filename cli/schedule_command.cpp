#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_schedule(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan schedule is being built");
}

}  // namespace mgplan::cli
