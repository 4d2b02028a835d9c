// A model of an unknown type read with --assume llama: every output says so, and nothing of it is exported.

#include "tests/cli/say.hpp"

#include <nlohmann/json.hpp>

namespace mgplan::cli::assumed_architecture_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::say;
using testing::TempFile;
using Json = nlohmann::json;

constexpr const char* kConfig =
    R"({"model_type": "llamoid", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "vocab_size": 100, "max_position_embeddings": 64, "torch_dtype": "bfloat16", "sparkle": 3})";

class AssumedArchitecture : public ::testing::Test {
protected:
    AssumedArchitecture() : config_("llamoid.json", kConfig), plan_("assumed_plan.json") {}
    TempFile config_, plan_;
};

TEST_F(AssumedArchitecture, AnUnknownTypeIsRefusedWithoutIt) {
    const auto refused = say({"--world", "2", "--model", config_.path()});
    EXPECT_EQ(refused.code, kBadInput);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("model_type 'llamoid' is not known"), HasSubstr("explains sparkle"), HasSubstr("--assume llama")));
}

TEST_F(AssumedArchitecture, StandsInWhatModelsShowPrints) {
    const auto shown = say({"models", "show", config_.path(), "--assume", "llama", "--format", "json"});
    EXPECT_THAT(shown.err, HasSubstr("model_type llamoid is not known and read as llama"));
    const Json json = Json::parse(shown.out);
    EXPECT_EQ(json.at("assumed_architecture"), "llama");
    EXPECT_EQ(json.at("type"), "llamoid");
    EXPECT_EQ(json.at("unused_fields"), Json({"torch_dtype", "sparkle"}));
    EXPECT_EQ(json.at("layers"), Json::parse(R"([{"kind": "attention+mlp", "count": 2}])"));
    EXPECT_EQ(json.at("_total_parameters"), json.at("parameters"));
    EXPECT_THAT(say({"models", "show", config_.path(), "--assume", "llama"}).out, HasSubstr("llamoid, read as llama"));
    EXPECT_THAT(say({"models", "show", "tiny-llama", "--assume", "llama"}).err, HasSubstr("--assume"));
}

TEST_F(AssumedArchitecture, StandsInPlansAndWhatComesOfThem) {
    const std::vector<std::string> plan{"--world", "2",     "--model", config_.path(), "--assume", "llama", "--global-batch",
                                        "4",       "--top", "1",       "--tp",         "1",        "--pp",  "1"};
    const auto with = [&](std::vector<std::string> words, std::initializer_list<std::string> more) {
        words.insert(words.end(), more);
        return say(words);
    };
    EXPECT_THAT(with(plan, {"--save-plan", plan_.path()}).out, HasSubstr("llamoid read as llama"));
    const auto json = with(plan, {"--format", "json"});
    EXPECT_THAT(json.err, HasSubstr("read as llama"));
    EXPECT_EQ(Json::parse(json.out).at("assumed_architecture"), "llama");
    EXPECT_EQ(Json::parse(json.out).at("model").at("layers").at(0).at("count"), 2);
    EXPECT_THAT(with(plan, {"--format", "csv"}).out, HasSubstr("rank,assumed_architecture,"));

    const auto simulated = say({"simulate", plan_.path(), "--format", "json"});
    EXPECT_THAT(simulated.err, HasSubstr("model_type llamoid was read as llama"));
    EXPECT_EQ(Json::parse(simulated.out).at("assumed_architecture"), "llama");
    EXPECT_EQ(Json::parse(simulated.out).at("model").at("type"), "llamoid");
    EXPECT_THAT(say({"simulate", plan_.path(), "--format", "csv"}).out, HasSubstr("assumed_architecture"));

    const auto exported = say({"export", plan_.path(), "--to", "megatron-args"});
    EXPECT_EQ(exported.code, kBadInput);
    EXPECT_THAT(exported.err, HasSubstr("another network than its file describes is not exported"));
    EXPECT_EQ(Json::parse(say({"export", plan_.path(), "--to", "mgplan"}).out).at("model").at("assumed_architecture"), "llama");
}

TEST_F(AssumedArchitecture, StandsInTheSmallerCommands) {
    const auto buffers = say({"buffers", "--model", config_.path(), "--assume", "llama", "--dp", "2", "--format", "json"});
    EXPECT_EQ(Json::parse(buffers.out).at("assumed_architecture"), "llama");
    EXPECT_THAT(buffers.err, HasSubstr("read as llama"));
    const auto split = say({"split", "--model", config_.path(), "--assume", "llama", "--pp", "2", "--format", "json"});
    EXPECT_EQ(Json::parse(split.out).at("assumed_architecture"), "llama");
    EXPECT_FALSE(Json::parse(say("split --model tiny-llama --pp 2 --format json").out).contains("assumed_architecture"));
}

TEST_F(AssumedArchitecture, IsNullWhereTheTypeIsKnown) {
    const auto json = Json::parse(say("--world 2 --model tiny-moe --top 1 --format json").out);
    EXPECT_TRUE(json.at("assumed_architecture").is_null());
    EXPECT_EQ(json.at("model").at("type"), "mixtral");
    EXPECT_EQ(json.at("model").at("layers"), Json::parse(R"([{"kind": "attention+moe", "count": 4}])"));
    EXPECT_THAT(say("--world 2 --model tiny-moe --top 1 --format csv").out, Not(HasSubstr("assumed_architecture")));
}

}  // namespace
}  // namespace mgplan::cli::assumed_architecture_test
