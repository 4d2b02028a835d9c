#include "formats/model_source.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hub_names.hpp"
#include "plan/json/model_json.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text_file.hpp"

namespace mgplan::formats::model_source_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A folder of its own for each test.
class ModelSource : public testing::Test {
protected:
    ModelSource() : folder_(fs::temp_directory_path() / ("mgplan_model_source_" + std::to_string(getpid()))) {
        fs::create_directory(folder_);
    }
    ~ModelSource() override { fs::remove_all(folder_); }

    std::string file(const std::string& name, const std::string& text) {
        const fs::path path = folder_ / name;
        fs::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << text;
        return path.string();
    }

    static std::string refusal(const std::string& cfg) {
        try {
            (void)load_model(cfg);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "accepted";
    }

    static constexpr const char* kConfig =
        R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
            "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64})";
    fs::path folder_;
};

TEST_F(ModelSource, NamesThePresetThatARepositorysNameHolds) {
    EXPECT_THAT(refusal("meta-llama/Llama-4-Scout-17B-16E-Instruct"), HasSubstr("no preset of its own (llama4-scout stands in its name: "));
    EXPECT_THAT(refusal("Qwen/Qwen3-235B-A22B-Instruct-2507"),
                HasSubstr("or take --model qwen3-235b-a22b (Qwen/Qwen3-235B-A22B-Instruct-2507 with the layers of qwen3-235b-a22b)"));
    EXPECT_THAT(refusal("some-one/My-Own-7B"), HasSubstr("as a Hugging Face repository it has no preset; download"));
    EXPECT_THAT(refusal("some-one/Qwen3-2350B-A22B"), testing::Not(HasSubstr("nearest"))) << "a number is one whole";
}

TEST_F(ModelSource, FindsOutWhatAFileIs) {
    EXPECT_EQ(load_model(file("small.json", kConfig)).model.name, "small");
    EXPECT_EQ(load_model(file("my-llama/config.json", kConfig)).model.name, "my-llama");
    EXPECT_EQ(load_model((folder_ / "my-llama").string()).model.layers, 2);
    const ModelSpec preset = load_model("tiny-moe").model;
    EXPECT_EQ(load_model(file("own.json", model_to_json(preset).dump())).model, preset);
    const nlohmann::ordered_json plan = {{"mgplan_plan", 1}, {"model", model_to_json(preset)}, {"layout", 3}};
    EXPECT_EQ(load_model(file("plan.json", plan.dump(2))).model, preset) << "the model of a plan";
    const Job flags = load_model(file("job.args", "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 100"));
    EXPECT_EQ(flags.model.name, "job");
    EXPECT_TRUE(flags.layout.has_value());
}

TEST_F(ModelSource, FindsThePresetsOfRepositoriesOnTheHub) {
    EXPECT_EQ(load_model("meta-llama/Llama-3.1-70B").model, load_model("llama3.1-70b").model);
    EXPECT_EQ(load_model("qwen/qwen3-30b-a3b-base").model.name, "qwen3-30b-a3b") << "whatever the case";
    EXPECT_EQ(load_model("Qwen/Qwen2.5-7B-Instruct").model.name, "qwen2.5-7b");
    EXPECT_THAT(refusal("Qwen/Qwen3-Next-80B-A3B"), HasSubstr("download its config.json"));
    EXPECT_THAT(refusal("configs/llama.json"), HasSubstr("is not there")) << "a file";
    EXPECT_THAT(refusal("./llama/7b"), HasSubstr("is not there"));
    for (const auto& [repository, preset] : hub_repositories()) EXPECT_EQ(load_model(std::string(repository)).model.name, preset);
}

/// A prediction takes the layers of the model that a training program names; rotary embedding and weights may differ.
TEST_F(ModelSource, FindsThePresetsWithTheLayersOfOtherRepositories) {
    for (const auto& [repository, preset] : {std::pair("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
                                             {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"},
                                             {"Qwen/Qwen3-14B-FP8", "qwen3-14b"},
                                             {"Qwen/Qwen2-7B-Instruct", "qwen2.5-7b"},
                                             {"Qwen/Qwen2.5-Math-1.5B-Instruct", "qwen2.5-1.5b"},
                                             {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3.1-8b"},
                                             {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"},
                                             {"Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-7b"},
                                             {"Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3-30b-a3b"},
                                             {"Qwen/Qwen3-VL-2B-Instruct", "qwen3-1.7b"},
                                             {"unsloth/Qwen3.5-4B", "qwen3.5-4b"},
                                             {"ZhipuAI/GLM-4.5-Air", "glm-4.5-air"},
                                             {"openai-mirror/gpt-oss-20b", "gpt-oss-20b"},
                                             {"unsloth/Kimi-K2-Thinking", "kimi-k2-thinking"},
                                             {"mixtral_8x22B_v0.1", "mixtral-8x22b"},
                                             {"Qwen/Qwen3-8B", "qwen3-8b"}})
        EXPECT_EQ(preset_with_layers_of(repository), preset) << repository;
    for (const char* other : {"Qwen/Qwen3-VL-Embedding-8B", "Qwen/Qwen3-Embedding-8B", "Qwen/Qwen2.5-Omni-7B",
                              "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "-it", "/", ""})
        EXPECT_EQ(preset_with_layers_of(other), "") << other;
    EXPECT_EQ(named_with_layers("Qwen/Qwen2-7B"), "Qwen/Qwen2-7B with the layers of qwen2.5-7b");
    EXPECT_EQ(named_with_layers("Qwen/Qwen3-8B"), "Qwen/Qwen3-8B");
    EXPECT_EQ(named_with_layers("Qwen/Qwen3-VL-8B-Instruct"),
              "Qwen/Qwen3-VL-8B-Instruct with the layers of qwen3-8b (the language model alone, without its vision encoder)");
    EXPECT_THAT(refusal("Qwen/Qwen3-30B-A3B-Instruct-2507"), HasSubstr("download its config.json"))
        << "a model to train has its own config";
}

TEST_F(ModelSource, GivesUpOnAPipeThatNobodyWritesTo) {
    const std::string pipe = (folder_ / "pipe.json").string();
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(pipe) << kConfig; });
    EXPECT_EQ(load_model(pipe).model.layers, 2);
    writer.join();
    EXPECT_THAT(refusal(pipe), HasSubstr("is a pipe into which nobody writes for 5 seconds"));
}

TEST_F(ModelSource, ReadsAsJsonWhatIsCalledSo) {
    EXPECT_THAT(refusal(file("text.json", "\"llama\"")), HasSubstr("holds no JSON object"));
    EXPECT_THAT(refusal(file("comment.json", "// a model\n{}")), HasSubstr("a comment"));
    EXPECT_EQ(load_model(file("mark.json", std::string("\xEF\xBB\xBF") + kConfig)).model.layers, 2);
    EXPECT_THAT(refusal(file("wide.json", std::string("\xFF\xFE{\0", 4))), HasSubstr("UTF-16"));
    fs::create_symlink(folder_ / "loop.json", folder_ / "loop.json");
    EXPECT_THAT(refusal((folder_ / "loop.json").string()), HasSubstr("too many links"));
}

TEST_F(ModelSource, OffersTheNearestPresets) {
    EXPECT_THAT(refusal("mixtral-8x7"), HasSubstr("unknown model 'mixtral-8x7'; did you mean mixtral-8x7b"));
    EXPECT_THAT(refusal("completely different thing"), HasSubstr("see mgplan models"));
    EXPECT_THAT(refusal(""), HasSubstr("model is empty"));
    EXPECT_THAT(refusal(std::string("a\0b", 3)), HasSubstr("zero byte"));
    EXPECT_LT(refusal(std::string(100000, 'x')).size(), 400U);
}

TEST_F(ModelSource, SaysWhatIsWrongWithAFile) {
    EXPECT_THAT(refusal((folder_ / "absent.json").string()), HasSubstr("is not there"));
    EXPECT_THAT(refusal("absent.yaml"), HasSubstr("is not there"));
    EXPECT_THAT(refusal(folder_.string()), HasSubstr("holds no config.json"));
    EXPECT_THAT(refusal(file("empty.json", "  \n")), HasSubstr("is empty"));
    EXPECT_THAT(refusal(file("binary.json", std::string("\x7f"
                                                        "ELF\0\1",
                                                        6))),
                HasSubstr("is binary"));
    EXPECT_THAT(refusal(file("broken.json", "{\n  \"hidden_size\": 64,\n  oops\n}")), HasSubstr("broken.json:3:3: not valid JSON"));
    EXPECT_THAT(refusal(file("nan.json", "{\"model_type\": \"llama\", \"hidden_size\": NaN}")),
                HasSubstr("hidden_size = \"NaN\" is not a whole number"));
    EXPECT_THAT(refusal(file("deep.json", std::string(100000, '['))), HasSubstr("nested deeper"));
    std::string many = "{\"hidden_size\": 64";
    for (int i = 0; i < 5000; ++i) many += ",\"k" + std::to_string(i) + "\":[{\"a\":\"b:c\"}]";
    EXPECT_THAT(refusal(file("many.json", many + "}")), HasSubstr("an object of more than 4096 members"));
    EXPECT_THAT(refusal(file("list.json", "[1, 2]")), HasSubstr("holds no JSON object"));
    EXPECT_THAT(refusal(file("other.json", "{\"colour\": \"red\"}")), HasSubstr("neither a Hugging Face config"));
    EXPECT_THAT(refusal(file("prose.txt", "Dear planner,\nplease plan.\n")), HasSubstr("holds no Megatron-LM flags"));
    EXPECT_THAT(refusal(file("own.json", R"({"layers": 2, "hidden": 64, "hiden": 3})")),
                testing::AllOf(HasSubstr("unknown field 'hiden'"), HasSubstr("field 'heads' is missing")));
}

TEST_F(ModelSource, StopsReadingEndlessFiles) {
    EXPECT_THAT(refusal("/dev/zero"), HasSubstr("is larger than 16.0 MiB"));
    EXPECT_THROW((void)read_text_file(file("long.txt", std::string(1000, 'x')), "demo", 999), ConfigError);
    EXPECT_EQ(read_text_file(file("fits.txt", std::string(1000, 'x')), "demo", 1000).size(), 1000U);
}

}  // namespace
}  // namespace mgplan::formats::model_source_test
