#include "plan/text/errors.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mgplan {
namespace {

std::string join(const std::vector<std::string>& problems) {
    return fmt::format("{}", fmt::join(problems, "\n"));
}

}  // namespace

ConfigError::ConfigError(std::string problem) : ConfigError(std::vector<std::string>{std::move(problem)}) {}

ConfigError::ConfigError(std::vector<std::string> problems) : std::runtime_error(join(problems)), problems_(std::move(problems)) {}

bool Problems::keep(std::string problem) {
    if (std::find(found_.begin(), found_.end(), problem) != found_.end()) return false;
    found_.push_back(std::move(problem));
    return true;
}

void Problems::absorb(const ConfigError& error, std::string_view prefix) {
    const bool facts = dynamic_cast<const MissingFactError*>(&error) != nullptr;
    for (const auto& problem : error.problems()) {
        if (keep(fmt::format("{}{}", prefix, problem)) && facts) ++missing_facts_;
    }
}

void Problems::throw_if_any() const {
    if (found_.empty()) return;
    if (missing_facts_ == found_.size()) throw MissingFactError(found_);
    throw ConfigError(found_);
}

void assertion_failed(const char* condition, const char* file, int line, std::string_view message) {
    throw std::logic_error(fmt::format("{}:{}: {} is false: {} (this is a bug in mgplan)", file, line, condition, message));
}

}  // namespace mgplan
