#include "cli/command.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

int run_models(const std::vector<std::string>&, Console&) {
    throw ConfigError("mgplan models is being built");
}

}  // namespace mgplan::cli
