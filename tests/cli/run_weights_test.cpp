// `mgplan run` beginning with published weights and writing them: what comes out is what went in where nothing is learned, under any
// layout, and other models' weights are refused.

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/folder_lock.hpp"
#include "tests/cli/say.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/support/transformers_vector.hpp"

namespace mgplan::cli::testing::run_weights_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

/// Tensors of a safetensors file as fp64, from F32 or BF16.
std::map<std::string, std::vector<double>> tensors_of(const std::string& path) {
    const runtime::FileBytes file(path, "weights");
    const std::string head = runtime::read_safetensors_head(file);
    const auto header = runtime::parse_safetensors(std::string_view(head).substr(8), file.size() - std::ssize(head), path);
    std::string values(static_cast<std::size_t>(file.size() - std::ssize(head)), '\0');
    file.read(std::ssize(head), std::as_writable_bytes(std::span(values)));
    std::map<std::string, std::vector<double>> tensors;
    for (const auto& tensor : header.tensors) {
        std::vector<double>& list = tensors[tensor.name];
        for (std::int64_t at = tensor.begin; at < tensor.end; at += bytes_of(tensor.dtype)) {
            std::uint32_t word = 0;
            std::memcpy(&word, values.data() + at, static_cast<std::size_t>(bytes_of(tensor.dtype)));
            if (tensor.dtype == Dtype::bf16) word <<= 16U;
            list.push_back(static_cast<double>(std::bit_cast<float>(word)));
        }
    }
    return tensors;
}

class RunWeights : public ::testing::Test {
protected:
    /// A plan for the model of a vector.
    std::string plan(const std::string& model, const std::string& options, const std::string& precision = "fp32") {
        const Said said =
            say("--model " + model + " --global-batch 4 --seq 8 --precision " + precision + " " + options + " --save-plan " + file_.path());
        EXPECT_EQ(said.code, kDone) << said.err;
        return file_.path();
    }
    [[nodiscard]] std::string folder(const std::string& name) const { return temporary_.path() + "/" + name; }

private:
    TempFile file_{"weights_plan.json"};
    tests::TemporaryFolder temporary_;
};

TEST_F(RunWeights, WhatIsReadIsWrittenUnderAnyLayout) {
    // Fused and separate projections, rotary neighbours, norms around 0, stacked experts, expert biases, a delta net.
    for (const auto* name : {"llama-tied-biased-llama3", "phi3", "cohere2", "cohere_compass_text", "gemma3_text", "gpt2", "opt",
                             "granitemoe", "deepseek_v3", "qwen3_next", "dbrx", "olmo_hybrid"}) {
        const tests::VectorRepository repository(tests::read_vector(name));
        const auto before = tensors_of(repository.path() + "/model.safetensors");
        for (const std::string layout : {"--world 1", "--world 4 --tp 2 --pp 2"}) {
            const std::string path = plan(repository.path(), layout),
                              out = folder(std::string(name) + (layout == "--world 1" ? "-1" : "-4"));
            // Nothing moves at this rate but biases of experts, which no rate moves.
            const Said said = say("run " + path + " --steps 1 --lr 1e-30 --weights " + repository.path() + " --export-weights " + out);
            ASSERT_EQ(said.code, kDone) << name << said.err;
            EXPECT_THAT(said.err, AllOf(HasSubstr("mgplan: weights written to"), Not(HasSubstr("differs from the prediction"))));
            const auto after = tensors_of(out + "/model.safetensors");
            ASSERT_EQ(after.size(), before.size());
            for (const auto& [tensor, values] : before) {
                ASSERT_TRUE(after.contains(tensor)) << name << " " << tensor;
                if (tensor.ends_with("e_score_correction_bias")) continue;
                EXPECT_EQ(after.at(tensor), values) << name << " " << layout << " " << tensor;
            }
            std::ifstream config(out + "/config.json");
            EXPECT_EQ(Json::parse(config)["model_type"], tests::read_vector(name).config["model_type"]);
            EXPECT_FALSE(fs::exists(out + "/shards.unfinished"));
        }
    }
}

TEST_F(RunWeights, AreWhatTheRunBeginsWith) {
    const tests::VectorRepository repository(tests::read_vector("llama"));
    const std::string path = plan(repository.path(), "--world 2 --tp 2"), out = folder("trained");
    const auto first_loss = [&](const std::string& options) {
        const Said said = say("run " + path + " --steps 1 --lr 0.01 --format json" + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return Json::parse(said.out)["steps"][0]["loss"].get<double>();
    };
    const double drawn = first_loss(""), published = first_loss(" --weights " + repository.path() + " --export-weights " + out);
    const double trained = first_loss(" --weights " + out);
    EXPECT_NEAR(drawn, std::log(44), 0.1) << "a model that knows nothing of 44 tokens";
    EXPECT_GT(published, drawn + 0.2);
    EXPECT_LT(trained, published) << "the same sequences, one step on";
}

TEST_F(RunWeights, AreReadAndWrittenUnderDelayedScalingWithoutItsHistories) {
    // Sizes that fp8 multiplies in.
    Json config = tests::read_vector("llama").config;
    for (const auto* size : {"hidden_size", "intermediate_size"}) config[size] = 64;
    config["head_dim"] = 16;
    config["num_attention_heads"] = config["num_key_value_heads"] = 4;
    const std::string model = folder("model"), begun = folder("begun");
    fs::create_directories(model);
    std::ofstream(model + "/config.json") << config.dump();
    const Said first = say("run " + plan(model, "--world 1", "bf16") + " --steps 1 --lr 0.01 --export-weights " + begun);
    ASSERT_EQ(first.code, kDone) << first.err;
    const auto before = tensors_of(begun + "/model.safetensors");
    for (const std::string layout : {"--world 1 --micro-batch 2", "--world 4 --tp 2 --pp 2 --micro-batch 2"}) {
        const std::string path = plan(model, layout, "fp8-delayed"), out = folder("fp8" + layout.substr(8, 1));
        const Said said = say("run " + path + " --steps 1 --lr 1e-30 --weights " + begun + " --export-weights " + out);
        ASSERT_EQ(said.code, kDone) << layout << said.err;
        EXPECT_EQ(tensors_of(out + "/model.safetensors"), before) << layout;
    }
}

TEST_F(RunWeights, HoldConstantsThatTransformersLeavesUndefinedElsewhere) {
    const tests::VectorRepository repository(tests::read_vector("apertus"));
    const std::string path = plan(repository.path(), "--world 2 --tp 2"), out = folder("constants");
    const Said said = say("run " + path + " --steps 1 --lr 1e-30 --weights " + repository.path() + " --export-weights " + out);
    ASSERT_EQ(said.code, kDone) << said.err;
    const auto before = tensors_of(repository.path() + "/model.safetensors"), after = tensors_of(out + "/model.safetensors");
    EXPECT_EQ(after.size(), before.size() + 4);
    for (const auto* layer : {"model.layers.0.", "model.layers.1."}) {
        EXPECT_THAT(after.at(std::string(layer) + "mlp.act_fn.beta"), ::testing::ElementsAre(0.5));
        EXPECT_THAT(after.at(std::string(layer) + "mlp.act_fn.eps"), ::testing::ElementsAre(static_cast<double>(-1e-6F)));
    }
    EXPECT_EQ(after.at("model.layers.1.mlp.act_fn.alpha_p"), before.at("model.layers.1.mlp.act_fn.alpha_p"));
    EXPECT_EQ(say("run " + path + " --steps 1 --lr 1e-30 --weights " + out).code, kDone) << "what is written is read";
}

TEST_F(RunWeights, MayLackACommonPrefixAndHoldWhatTheClassPassesOver) {
    // As the hub has GPT-2: "h.0.…" with masks beside them; DeepSeek-V3 with a layer that predicts further tokens.
    const auto rewritten = [&](const std::string& name, auto change) {
        const tests::VectorRepository repository(tests::read_vector(name));
        const std::string path = repository.path() + "/model.safetensors";
        const runtime::FileBytes file(path, "weights");
        const std::string head = runtime::read_safetensors_head(file);
        std::string values(static_cast<std::size_t>(file.size() - std::ssize(head)), '\0');
        file.read(std::ssize(head), std::as_writable_bytes(std::span(values)));
        auto header = runtime::parse_safetensors(std::string_view(head).substr(8), std::ssize(values), path);
        change(header, values);
        std::ofstream(path, std::ios::binary) << runtime::safetensors_head(header) << values;
        return say("run " + plan(repository.path(), "--world 1") + " --steps 1 --weights " + repository.path());
    };
    const auto add = [](auto& header, std::string& values, const std::string& name) {
        const std::int64_t begin = std::ssize(values);
        values += std::string(8, '\0');
        header.tensors.push_back({name, Dtype::fp32, {2}, begin, begin + 8});
    };
    const Said gpt2 = rewritten("gpt2", [&](auto& header, std::string& values) {
        for (auto& tensor : header.tensors) tensor.name = tensor.name.substr(std::string("transformer.").size());
        add(header, values, "h.0.attn.bias");
    });
    EXPECT_EQ(gpt2.code, kDone) << gpt2.err;
    const Said deepseek =
        rewritten("deepseek_v3", [&](auto& header, std::string& values) { add(header, values, "model.layers.2.eh_proj.weight"); });
    EXPECT_EQ(deepseek.code, kDone) << deepseek.err;
    const Said wrong = rewritten("llama", [&](auto& header, std::string& values) { add(header, values, "model.layers.2.eh_proj.weight"); });
    EXPECT_THAT(wrong.err, HasSubstr("tensors belong to no parameter of the model: model.layers.2.eh_proj.weight"));
}

TEST_F(RunWeights, AreWrittenByOneJobAtATime) {
    const tests::VectorRepository repository(tests::read_vector("llama"));
    const std::string out = folder("locked"), words = "run " + plan(repository.path(), "--world 1") + " --steps 1 --export-weights " + out;
    fs::create_directories(out);
    {
        const runtime::FolderLock other(out);
        expect_refused(words, {"weights folder " + out + " is in use by another job (process "});
    }
    fs::remove(out + "/lock");
    ASSERT_EQ(say(words).code, kDone);
    const auto listed = [&] {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(out)) names.push_back(entry.path().filename());
        return names;
    };
    EXPECT_THAT(listed(), ::testing::UnorderedElementsAre("model.safetensors", "config.json"));
    const Said both = say(words + " --checkpoint " + out + "/");
    EXPECT_EQ(both.code, kDone) << "checkpoints and weights in one folder: " << both.err;
}

TEST_F(RunWeights, ReplaceNoOtherModelUnlessTheyAreForced) {
    const tests::VectorRepository llama(tests::read_vector("llama")), qwen(tests::read_vector("qwen3"));
    const std::string path = plan(llama.path(), "--world 2 --tp 2"), out = folder("held");
    const auto words = [&](const std::string& options) { return "run " + path + " --steps 1 --export-weights " + out + options; };
    ASSERT_EQ(say(words(" --seed 7")).code, kDone);
    const auto first = tensors_of(out + "/model.safetensors");
    EXPECT_EQ(say(words(" --seed 7")).code, kDone) << "the same training once more";
    expect_refused(words(""), {out + " holds another model (model.safetensors), which would be replaced", "or add --force"});
    EXPECT_EQ(tensors_of(out + "/model.safetensors"), first);
    const Said forced = say(words(" --force"));
    EXPECT_EQ(forced.code, kDone) << forced.err;
    EXPECT_NE(tensors_of(out + "/model.safetensors"), first);
    // A config.json alone, and weights in several files.
    fs::remove(out + "/model.safetensors");
    fs::copy(qwen.path() + "/config.json", out + "/config.json", fs::copy_options::overwrite_existing);
    expect_refused(words(""), {out + " holds the config.json of another model"});
    fs::remove(out + "/config.json");
    std::ofstream(out + "/model.safetensors.index.json") << "{}";
    expect_refused(words(""), {out + " holds another model (model.safetensors.index.json)"});
    EXPECT_THAT(say("run " + path + " --steps 1 --force").err, HasSubstr("--force"));
}

TEST_F(RunWeights, NeverReplaceThoseThatTheRunReads) {
    const tests::VectorRepository llama(tests::read_vector("llama"));
    const std::string path = plan(llama.path(), "--world 1"), link = folder("link"), file = llama.path() + "/model.safetensors";
    fs::create_directory_symlink(llama.path(), link);
    const auto before = tensors_of(file);
    for (const std::string& weights : {llama.path(), file, link, link + "/model.safetensors"}) {
        for (const std::string& out : {llama.path(), link, llama.path() + "/."})
            expect_refused("run " + path + " --steps 1 --force --weights " + weights + " --export-weights " + out,
                           {"--export-weights " + out + " is the folder of --weights " + weights});
    }
    EXPECT_EQ(tensors_of(file), before);
}

TEST_F(RunWeights, FollowNoLinkOutOfTheirFolder) {
    const tests::VectorRepository llama(tests::read_vector("llama"));
    const std::string path = plan(llama.path(), "--world 1"), out = folder("linked"), other = folder("other");
    ASSERT_EQ(say("run " + path + " --steps 1 --checkpoint " + other).code, kDone);
    for (const std::string name : {"shards.unfinished", "model.safetensors", "model.safetensors.unfinished", "config.json"}) {
        fs::create_directories(out);
        fs::create_symlink(other, out + "/" + name);
        expect_refused("run " + path + " --steps 1 --seed 7 --force --export-weights " + out, {out + "/" + name});
        fs::remove_all(out);
    }
    EXPECT_EQ(say("run " + path + " --steps 2 --resume --checkpoint " + other).code, kDone) << "as it was";
    fs::create_directories(out + "/config.json");
    expect_refused("run " + path + " --steps 1 --export-weights " + out, {"config.json there is no regular file"});
}

TEST_F(RunWeights, OfAnIndexWithOddNamesAreRefused) {
    const tests::VectorRepository llama(tests::read_vector("llama"));
    const std::string path = plan(llama.path(), "--world 1"), index = llama.path() + "/model.safetensors.index.json";
    fs::rename(llama.path() + "/model.safetensors", llama.path() + "/model-1.safetensors");
    const auto with_index = [&](const std::string& text) {
        std::ofstream(index) << text;
        return say("run " + path + " --steps 1 --weights " + llama.path());
    };
    EXPECT_EQ(with_index(R"({"weight_map": {"a": "model-1.safetensors"}})").code, kDone);
    for (const char* name : {"model-1.safetensors\\u0000.x", "../x", "model-1.safetensors\\u001b"}) {
        const Said said = with_index(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name));
        EXPECT_EQ(said.code, kBadInput) << name;
        EXPECT_THAT(said.err, HasSubstr("the file of tensor 'a' is no name of a file next to it"));
    }
    const Said broken = with_index("{");
    EXPECT_THAT(broken.err, AllOf(HasSubstr("index.json:1:2: not valid JSON"), Not(HasSubstr("json.exception"))));
}

TEST_F(RunWeights, OfAnotherModelOrAnUnknownTypeAreRefused) {
    const tests::VectorRepository llama(tests::read_vector("llama")), qwen(tests::read_vector("qwen3")), moe(tests::read_vector("mixtral"));
    const std::string path = plan(llama.path(), "--world 1");
    expect_refused("run " + path + " --weights " + qwen.path(), {"tensors belong to no parameter of the model", "q_norm.weight"});
    expect_refused("run " + path + " --weights " + moe.path(), {"tensors of the model are missing: ", "and 3 more"});
    expect_refused("run " + path + " --weights /nowhere", "/nowhere");
    expect_refused("run " + path + " --weights " + llama.path() + " --rank 0", "--weights and --rank exclude each other");
    const std::string own = plan("sc21-gpt-1.7b", "--world 1");
    expect_refused("run " + own + " --export-weights " + folder("x"), "how checkpoints of model_type 'megatron_gpt' name their weights");
}

}  // namespace
}  // namespace mgplan::cli::testing::run_weights_test
