// Fields of another kind than their type's own, for every field of every type that class_counts.json holds: refused in one sentence that
// names the field, or listed as not used.

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/parameters.hpp"
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

TEST(WrongKinds, MixturesCannotChooseMoreExpertsThanTheyHave) {
    const Json types = class_counts();
    std::size_t tried = 0;
    for (const auto& [type, entry] : types.items()) {
        Json file = entry.at("config");
        if (!model_of(file).moe && active_parameters(model_of(file)) == total_parameters(model_of(file))) continue;
        Json& fields = file.contains("text_config") ? file.at("text_config") : file;
        for (const auto* chosen : {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", "moe_top_k"}) {
            if (!fields.contains(chosen) || fields.at(chosen).is_null()) continue;
            const auto unused = read_hugging_face(file, "test", "config.json").unused_fields;
            if (std::find(unused.begin(), unused.end(), chosen) != unused.end()) continue;
            fields[chosen] = 4000;
            EXPECT_THAT(refusal_of(file), HasSubstr("= 4000 is more than")) << type << ": " << chosen;
            ++tried;
            break;
        }
    }
    EXPECT_GT(tried, 30U);
}

TEST(WrongKinds, WordsOfLayersAreThoseThatTheTypeHas) {
    Json config = class_config("recurrent_gemma");
    config["block_types"] = {"recurrent", "atention"};
    EXPECT_THAT(refusal_of(config), HasSubstr("block_types holds 'atention', which no layer of this type is; write recurrent, attention"));
    config = class_config("gemma4");
    config["text_config"]["per_layer_config"] = {{"700", {{"head_dim", 64}}}};
    EXPECT_THAT(refusal_of(config), HasSubstr("per_layer_config has an entry '700', which is no layer; give numbers from 0 to"));
    config["text_config"]["per_layer_config"] = {{"1", 64}};
    EXPECT_THAT(refusal_of(config), HasSubstr("per_layer_config: 1 = 64 is not an object"));
}

TEST(WrongKinds, PartsOfLargerModelsAreObjects) {
    EXPECT_THAT(refusal_of({{"model_type", "gemma3"}, {"text_config", "x"}}), HasSubstr("text_config = \"x\" is not an object"));
    Json config = class_config("gemma4");
    config["tie_word_embeddings"] = 1;
    EXPECT_THAT(refusal_of(config), HasSubstr("config.json: tie_word_embeddings = 1 is not true or false"));
}

}  // namespace
}  // namespace mgplan::formats::wrong_kinds_test
