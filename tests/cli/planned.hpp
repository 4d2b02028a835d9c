#pragma once
// What tests of `mgplan plan` ask about.

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::planned {

inline constexpr const char* kSmall = "--world 16 --model llama3-8b";

/// Runs a plan and reads its JSON; expects success.
inline nlohmann::ordered_json plan(const std::string& words) {
    const Said said = say(words + " --format json");
    EXPECT_EQ(said.code, kDone) << words << "\n" << said.err;
    return nlohmann::ordered_json::parse(said.out);
}

/// Layouts that a rule turned away.
inline std::int64_t rejected(const nlohmann::ordered_json& report, const char* rule) {
    const auto& all = report["search"]["rejected"];
    return all.contains(rule) ? all[rule].get<std::int64_t>() : 0;
}

}  // namespace mgplan::cli::testing::planned
