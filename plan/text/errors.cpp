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

void Problems::keep(std::string problem, bool is_missing_fact) {
    if (std::find(found_.begin(), found_.end(), problem) != found_.end()) return;
    found_.push_back(std::move(problem));
    missing_facts_.push_back(is_missing_fact);
}

void Problems::absorb(const ConfigError& error, std::string_view prefix) {
    const bool facts = dynamic_cast<const MissingFactError*>(&error) != nullptr;
    for (const auto& problem : error.problems()) keep(fmt::format("{}{}", prefix, problem), facts);
}

void Problems::throw_if_any() const {
    if (found_.empty()) return;
    std::vector<std::string> broken, missing;
    for (std::size_t i = 0; i < found_.size(); ++i) (missing_facts_[i] ? missing : broken).push_back(found_[i]);
    if (broken.empty()) throw MissingFactError(missing);
    broken.insert(broken.end(), missing.begin(), missing.end());
    throw ConfigError(broken);
}

void assertion_failed(const char* condition, const char* file, int line, std::string_view message) {
    throw std::logic_error(fmt::format("{}:{}: {} is false: {} (this is a bug in mgplan)", file, line, condition, message));
}

}  // namespace mgplan
