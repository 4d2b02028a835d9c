#pragma once
// Errors that leave the library. Library code neither prints nor exits; run_mgplan() in cli/command.cpp turns these into exit codes.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace mgplan {

/// Input that cannot be used. Holds every problem found, one sentence each; what() joins them with newlines.
/// Each problem names field, value, rule and way out: "tp = 6 does not divide attention heads = 64; use 1, 2, 4 or 8".
class ConfigError : public std::runtime_error {
public:
    explicit ConfigError(std::string problem);
    explicit ConfigError(std::vector<std::string> problems);

    [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

private:
    std::vector<std::string> problems_;
};

/// Input that breaks no rule: all of its problems are facts that the user has to add, or requests that no plan describes.
class MissingFactError : public ConfigError {
public:
    using ConfigError::ConfigError;
};

/// A command that could not finish its work (a file that cannot be written, a rank that died): exit code 4.
class RunError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Collects the problems of one input so that they are reported together, each once however often it is found.
class Problems {
public:
    template <class... Args>
    void add(fmt::format_string<Args...> format, Args&&... args) {
        keep(fmt::format(format, std::forward<Args>(args)...), false);
    }
    /// The same for a fact that the input does not hold, or a kind of job that no plan describes.
    template <class... Args>
    void add_missing_fact(fmt::format_string<Args...> format, Args&&... args) {
        keep(fmt::format(format, std::forward<Args>(args)...), true);
    }
    /// Takes over the problems of an error thrown by a part.
    void absorb(const ConfigError& error, std::string_view prefix = "");
    [[nodiscard]] bool empty() const { return found_.empty(); }
    [[nodiscard]] const std::vector<std::string>& list() const { return found_; }
    /// Throws ConfigError with all problems if there is any, missing facts after the others; MissingFactError where each was added by
    /// add_missing_fact().
    void throw_if_any() const;

private:
    void keep(std::string problem, bool is_missing_fact);  ///< once

    std::vector<std::string> found_;
    std::vector<bool> missing_facts_;  ///< of each of those found, whether it is one
};

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, std::string_view message);

/// A broken promise of our own code, checked in release builds too. User input never reaches it.
#define MGPLAN_ASSERT(condition, message)                                                      \
    do {                                                                                       \
        if (!(condition)) ::mgplan::assertion_failed(#condition, __FILE__, __LINE__, message); \
    } while (false)

}  // namespace mgplan
