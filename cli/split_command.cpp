#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_split(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan split is being built");
}

}  // namespace mgplan::cli
