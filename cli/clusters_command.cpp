#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_clusters(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan clusters is being built");
}

}  // namespace mgplan::cli
