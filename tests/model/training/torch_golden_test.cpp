// Five training steps on one rank against PyTorch's (tests/golden/make_torch_golden.py): losses, gradient norms, and what
// became of every parameter.

#include <cmath>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/training/rank_trainer.hpp"
#include "plan/parameters/parameters.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/support/data_folder.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model::torch_golden_test {
namespace {

using Json = nlohmann::json;

Json golden(const std::string& name) {
    std::ifstream file(tests::data_folder() + "/golden/data/torch_" + name + ".json");
    EXPECT_TRUE(file.good()) << name;
    return Json::parse(file);
}

ModelSpec spec_of(const std::string& name, const Json& shape) {
    const bool gpt = shape["kind"] == "gpt";
    const tests::ModelSizes sizes{.layers = shape["layers"],
                                  .hidden = shape["hidden"],
                                  .ffn = shape["ffn"],
                                  .heads = shape["heads"],
                                  .kv_heads = shape["kv_heads"],
                                  .head_dim = shape["head_dim"],
                                  .vocab = shape["vocab"],
                                  .vocab_divisor = 8,
                                  .max_positions = shape["max_positions"]};
    ModelSpec model = gpt ? tests::gpt_of(name, sizes) : tests::llama_of(name, sizes);
    model.tied_embeddings = gpt;
    if (shape.contains("experts")) {
        MoeSpec moe;
        moe.experts = shape["experts"];
        moe.top_k = shape["top_k"];
        moe.expert_ffn = shape["expert_ffn"];
        moe.shared_ffn = shape["shared_ffn"];
        moe.score = shape["score"] == "softmax" ? RouterScore::softmax : RouterScore::sigmoid;
        model.moe = moe;
        model.moe_layers = shape["moe_layers"].get<std::vector<bool>>();
    }
    return model;
}

TrainingTask task_of(const std::string& name, const Json& file, Precision precision) {
    const Json& run = file["run"];
    TrainingTask task;
    task.model = spec_of(name, file["model"]);
    task.batch = {run["global_batch"], run["sequence"]};
    task.training.precision = precision;
    task.layout.micro_batch = 2;
    task.layout.num_microbatches = task.batch.global_batch / task.layout.micro_batch;
    task.layout.split = std::make_shared<const StageSplit>(automatic_stage_split(task.model.layers, 0, 1, 1).value());
    task.initialization.seed = run["seed"];
    task.initialization.deviation = run["deviation"];
    task.optimizer.clip_norm = run["clip_norm"];
    task.optimizer.adam.beta1 = run["beta1"];
    task.optimizer.adam.beta2 = run["beta2"];
    task.optimizer.adam.epsilon = run["epsilon"];
    task.optimizer.adam.weight_decay = run["weight_decay"];
    return task;
}

/// The script's token stream: every step sees the same sequences.
SequenceSource source_of(const TrainingTask& task) {
    return [batch = task.batch.global_batch, vocab = task.model.vocab](std::int64_t sequence, std::span<std::int32_t> tokens) {
        std::uint64_t state = static_cast<std::uint64_t>(sequence % batch) * 7919 + 17;
        for (auto& token : tokens) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            token = static_cast<std::int32_t>((state >> 33U) % static_cast<std::uint64_t>(vocab));
        }
    };
}

std::vector<double> values_of(Device& device, const Tensor& tensor) {
    if (tensor.dtype() == Dtype::fp64) {
        std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
        device.read(tensor, values.data());
        return values;
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    device.read(tensor, values.data());
    return {values.begin(), values.end()};
}

void expect_parameter(const std::string& name, const std::vector<double>& values, const Json& expected, double tolerance) {
    double sum = 0, squares = 0;
    for (const double value : values) {
        sum += value;
        squares += value * value;
    }
    EXPECT_NEAR(squares, expected["sum_of_squares"], tolerance * squares) << name;
    // A sum may cancel: what it can be off by goes with the values' size.
    EXPECT_NEAR(sum, expected["sum"], tolerance * std::sqrt(squares * static_cast<double>(values.size()))) << name;
}

/// Trains and compares; `tolerance` is relative.
void expect_same_training(const std::string& name, Precision precision, double tolerance) {
    const Json file = golden(name);
    const Json& expected = file[precision == Precision::fp64 ? "fp64" : "fp32"];
    const TrainingTask task = task_of(name, file, precision);
    runtime::InProcessWorld world(1);
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        RankTrainer trainer(task, device, world.view(rank));
        ASSERT_EQ(expected["losses"].size(), 5U);
        for (std::size_t i = 0; i < expected["losses"].size(); ++i) {
            const StepReport step = trainer.step(source_of(task), file["run"]["learning_rate"]);
            EXPECT_NEAR(step.loss / expected["losses"][i].get<double>(), 1, tolerance) << "step " << i;
            EXPECT_NEAR(step.result.grad_norm / expected["gradient_norms"][i].get<double>(), 1, tolerance) << "step " << i;
        }
        std::size_t compared = 0;
        for (const Parameter& parameter : trainer.buffers(0).parameters()) {
            const Json& sums = expected["parameters"].at(parameter.name);
            // Keys' biases cancel in the softmax: their gradient is rounding alone, and so is what Adam makes of it.
            if (parameter.name.ends_with("linear_qkv.bias")) continue;
            // Rows that pad the vocabulary are zero and stay zero.
            expect_parameter(parameter.name, values_of(device, trainer.buffers(0).weights().at(parameter.name).value), sums, tolerance);
            ++compared;
        }
        EXPECT_GT(compared, 20U);
    });
}

TEST(TorchGolden, AGptTrainsAsInPyTorch) {
    expect_same_training("gpt", Precision::fp64, 1e-11);
    expect_same_training("gpt", Precision::fp32, 1e-5);
}

TEST(TorchGolden, ALlamaTrainsAsInPyTorch) {
    expect_same_training("llama", Precision::fp64, 1e-11);
    expect_same_training("llama", Precision::fp32, 1e-5);
}

// The mixtures are dropless and without auxiliary loss; no routing of theirs is near a tie, so that fp32 chooses alike.
TEST(TorchGolden, AMixtureWithSoftmaxScoresTrainsAsInPyTorch) {
    EXPECT_GT(golden("moe_softmax")["fp64"]["smallest_routing_margin"], 5e-5);
    expect_same_training("moe_softmax", Precision::fp64, 1e-11);
    expect_same_training("moe_softmax", Precision::fp32, 1e-5);
}

TEST(TorchGolden, AMixtureWithSigmoidScoresAndASharedExpertTrainsAsInPyTorch) {
    EXPECT_GT(golden("moe_sigmoid")["fp64"]["smallest_routing_margin"], 5e-5);
    expect_same_training("moe_sigmoid", Precision::fp64, 1e-11);
    expect_same_training("moe_sigmoid", Precision::fp32, 1e-5);
}

}  // namespace
}  // namespace mgplan::model::torch_golden_test
