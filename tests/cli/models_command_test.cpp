#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "formats/model_source.hpp"
#include "reports/table.hpp"

namespace mgplan::cli::models_command_test {
namespace {

using ::testing::HasSubstr;

struct Result {
    int code;
    std::string out;
    std::string err;
};

Result run(const std::vector<std::string>& args) {
    std::ostringstream out, err;
    Console console{out, err};
    const int code = run_mgplan(args, console);
    return {code, out.str(), err.str()};
}

void expect_at_most_100_columns(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(reports::display_width(line), 100U) << line;
}

TEST(ModelsCommand, ListsEveryPresetWithin100Columns) {
    const Result result = run({"models"});
    EXPECT_EQ(result.code, kDone) << result.err;
    for (const auto& name : formats::preset_names()) EXPECT_THAT(result.out, HasSubstr("\n" + name + " "));
    EXPECT_THAT(result.out, HasSubstr("8.030 B"));
    expect_at_most_100_columns(result.out);
}

TEST(ModelsCommand, ListsExactCountsAndSourcesAsJson) {
    const Result result = run({"models", "--format", "json"});
    EXPECT_EQ(result.code, kDone) << result.err;
    bool found = false;
    const auto json = nlohmann::json::parse(result.out);
    for (const auto& model : json.at("models")) {
        EXPECT_FALSE(model.at("source").get<std::string>().empty());
        if (model.at("name") != "llama3-8b") continue;
        found = true;
        EXPECT_EQ(model.at("total_parameters"), 8'030'261'248);
        EXPECT_TRUE(model.at("total_parameters").is_number_integer());
    }
    EXPECT_TRUE(found);
}

TEST(ModelsCommand, ShowsFactsAndWhatIsNotComputed) {
    for (const auto& name : formats::preset_names()) {
        const Result result = run({"models", "show", name});
        EXPECT_EQ(result.code, kDone) << result.err;
        expect_at_most_100_columns(result.out);
    }
    EXPECT_THAT(run({"models", "show", "gpt-oss-20b"}).out,
                AllOf(HasSubstr("8 for keys and values, sliding window of 128 (none in one layer"), HasSubstr("sinks")));
    EXPECT_THAT(run({"models", "show", "deepseek-v3"}).out, AllOf(HasSubstr("[0]*3+[1]*58"), HasSubstr("groups of experts")));
}

TEST(ModelsCommand, JsonReadsBackAsTheSameModel) {
    const auto folder = std::filesystem::temp_directory_path() / ("mgplan_models_command_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
    for (const auto& name : formats::preset_names()) {
        const std::string file = (folder / "model.json").string();
        EXPECT_EQ(run({"models", "show", name, "--format", "json", "--output", file}).code, kDone);
        EXPECT_EQ(formats::load_model(file).model, formats::load_model(name).model) << name;
    }
    std::filesystem::remove_all(folder);
}

TEST(ModelsCommand, CountsLayersByKindAndMultiTokenPrediction) {
    const auto json = nlohmann::json::parse(run({"models", "show", "deepseek-v3", "--format", "json"}).out);
    EXPECT_EQ(json.at("_total_parameters"), 671'026'404'352);
    // README_WEIGHTS.md beside DeepSeek-V3's weights: 11.5 B of its own, 2.4 B active with 0.9 B each of embedding and output head.
    EXPECT_NEAR(json.at("mtp_parameters").get<double>() / 1e9, 11.5, 0.15);
    EXPECT_EQ(json.at("parameters"), json.at("_total_parameters").get<std::int64_t>() + json.at("mtp_parameters").get<std::int64_t>());
    EXPECT_NEAR((json.at("active_parameters").get<double>() - json.at("_active_parameters").get<double>()) / 1e9, 2.4 - 2 * 0.9, 0.15)
        << "three rounded figures";
    EXPECT_EQ(json.at("layers"),
              nlohmann::json::parse(R"([{"kind": "latent_attention+mlp", "count": 3}, {"kind": "latent_attention+moe", "count": 58}])"));
    const auto file = std::filesystem::temp_directory_path() / ("mgplan_repeated_" + std::to_string(getpid()) + ".args");
    std::ofstream(file) << "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 64 --vocab-size 1000 "
                           "--position-embedding-type rope --mtp-num-layers 8 --mtp-use-repeated-layer\n";
    const auto once = nlohmann::json::parse(run({"models", "show", file.string(), "--format", "json"}).out);
    std::filesystem::remove(file);
    EXPECT_EQ(once.at("active_parameters"), once.at("parameters")) << "one layer of prediction, used eight times";
    const auto windows = nlohmann::json::parse(run({"models", "show", "gpt-oss-20b", "--format", "json"}).out);
    EXPECT_EQ(windows.at("layers"),
              nlohmann::json::parse(R"([{"kind": "window_attention+moe", "count": 12}, {"kind": "attention+moe", "count": 12}])"));
    const std::string table = run({"models", "show", "deepseek-v3"}).out;
    EXPECT_THAT(table,
                AllOf(HasSubstr("61: 3 of latent attention and MLP, 58 of latent attention"), HasSubstr("with multi-token prediction")));
}

TEST(ModelsCommand, FindsHuggingFaceIdsAndListsUnusedFields) {
    EXPECT_THAT(run({"models", "show", "meta-llama/Llama-3.1-8B"}).out, HasSubstr("8,030,261,248"));
    EXPECT_EQ(run({"models", "show", "meta-llama/Llama-9"}).code, kBadInput);
}

TEST(ModelsCommand, HeadsOfLabelsAreNoTablesOfWords) {
    const auto file = std::filesystem::temp_directory_path() / ("mgplan_models_command_head_" + std::to_string(getpid()) + ".json");
    const auto show = [&](const std::string& class_name, const std::string& format) {
        std::ofstream(file) << R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
            "num_attention_heads": 4, "vocab_size": 1000, "num_labels": 3, "architectures": [")"
                            << class_name << R"("]})";
        return run({"models", "show", file.string(), "--format", format}).out;
    };
    EXPECT_EQ(nlohmann::json::parse(show("LlamaForSequenceClassification", "json")).at("_embedding_parameters"), 64'000);
    EXPECT_THAT(show("LlamaForTokenClassification", "csv"),
                AllOf(HasSubstr("in tables of words,64000"), HasSubstr("in the head of labels,195")));
    EXPECT_THAT(show("LlamaModel", "table"),
                AllOf(HasSubstr("1,000, and no output layer"), HasSubstr("without an output layer nothing is trained")));
    std::filesystem::remove(file);
}

TEST(ModelsCommand, RefusesUnknownNamesWithTheNearest) {
    const Result unknown = run({"models", "show", "lama3-8b"});
    EXPECT_EQ(unknown.code, kBadInput);
    EXPECT_TRUE(unknown.out.empty());
    EXPECT_THAT(unknown.err, HasSubstr("unknown model 'lama3-8b'; did you mean llama3-8b"));
    EXPECT_EQ(run({"models", "show"}).code, kBadInput);
    EXPECT_EQ(run({"models", "list"}).code, kBadInput);
}

}  // namespace
}  // namespace mgplan::cli::models_command_test
