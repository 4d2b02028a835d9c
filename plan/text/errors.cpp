#include "plan/text/errors.hpp"

#include <fmt/format.h>

namespace mgplan {
namespace {

std::string join(const std::vector<std::string>& problems) {
    return fmt::format("{}", fmt::join(problems, "\n"));
}

}  // namespace

ConfigError::ConfigError(std::string problem) : ConfigError(std::vector<std::string>{std::move(problem)}) {}

ConfigError::ConfigError(std::vector<std::string> problems) : std::runtime_error(join(problems)), problems_(std::move(problems)) {}

void Problems::absorb(const ConfigError& error, std::string_view prefix) {
    for (const auto& problem : error.problems()) found_.push_back(fmt::format("{}{}", prefix, problem));
    if (dynamic_cast<const MissingFactError*>(&error) != nullptr) missing_facts_ += error.problems().size();
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
