// Fields of another kind than their type's own, for every field of every type that class_counts.json holds: refused in one sentence that
// names the field, or listed as not used.

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/hugging_face/class_configs.hpp"

namespace mgplan::formats::wrong_kinds_test {
namespace {

using class_configs::class_config;
using class_configs::class_counts;
using class_configs::Json;
using class_configs::model_of;
using class_configs::refusal_of;
using testing::HasSubstr;

/// Values of other kinds than `right`, and numbers that no field takes.
std::vector<Json> wrong_values(const Json& right) {
    const Json text = "no such word", list = {1, 2}, object = {{"no_such_field", 1}};
    if (right.is_object()) return {text, list, 7, true};
    if (right.is_array()) return {text, object, 7, true};
    if (right.is_string()) return {list, object, 7, true};
    if (right.is_boolean()) return {text, list, object};
    if (right.is_number()) return {text, list, object, true, -1e300, 1e300};
    return {text};  // null, which stands for whatever the class takes
}

bool names_field(const std::string& problem, const std::string& field) {
    return problem.find(": " + field + " ") != std::string::npos || problem.find(": " + field + ":") != std::string::npos ||
           problem.find("'" + field + "'") != std::string::npos;
}

/// What is wrong with how a file is read in which `field` is `value`; "" where nothing is.
std::string complaint(const Json& file, const std::string& field) {
    try {
        const Job job = read_hugging_face(file, "test", "config.json");
        const auto& unused = job.unused_fields;
        return std::find(unused.begin(), unused.end(), field) != unused.end() ? "" : "read in silence";
    } catch (const ConfigError& error) {
        std::ptrdiff_t naming = 0;
        for (const std::string& problem : error.problems()) naming += names_field(problem, field) ? 1 : 0;
        if (naming == 0) return "refused without its name: " + std::string(error.what());
        return naming == 1 ? "" : "refused more than once: " + std::string(error.what());
    }
}

TEST(WrongKinds, AreRefusedOrListedAsNotUsed) {
    std::size_t tried = 0;
    const Json types = class_counts();
    for (const auto& [type, entry] : types.items()) {
        Json file = entry.at("config");
        const bool nested = file.contains("text_config");
        Json& fields = nested ? file.at("text_config") : file;
        const Json right = fields;
        for (const auto& [field, value] : right.items()) {
            if (field.starts_with('_')) continue;
            for (const Json& wrong : wrong_values(value)) {
                fields[field] = wrong;
                EXPECT_EQ(complaint(file, field), "") << type << ": " << field << " = " << wrong;
                ++tried;
            }
            fields[field] = value;
        }
    }
    EXPECT_GT(tried, 10'000U);
}

}  // namespace
}  // namespace mgplan::formats::wrong_kinds_test
