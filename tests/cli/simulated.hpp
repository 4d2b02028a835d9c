#pragma once
// What `mgplan simulate` says in JSON.

#include <string>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing {

using Json = nlohmann::ordered_json;

constexpr int kAnyCode = -1;  // whether it fits is another question

inline Json simulate(const std::string& words, int code = kDone) {
    const Said said = say("simulate " + words + " --format json");
    EXPECT_EQ(said.code, code == kAnyCode ? said.code : code) << words << "\n" << said.err;
    return Json::parse(said.out);
}

}  // namespace mgplan::cli::testing
