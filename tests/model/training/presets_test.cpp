// Every preset can be traced on shapes: each stage of it, with and without tensor parallelism, in 16-bit types.

#include <algorithm>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/model/layers_of_model.hpp"

namespace mgplan::model::presets_test {
namespace {

constexpr int kMicrobatches = 2;
constexpr std::int64_t kSequence = 256;

TrainingTask task_of(const std::string& preset, int tp, int pp) {
    TrainingTask task;
    task.model = formats::load_model(preset).model;
    task.training.precision = tp == 1 ? Precision::bf16 : Precision::fp16;
    Layout& layout = task.layout;
    layout.sizes.world = tp * pp;
    layout.sizes.tp = tp;
    layout.sizes.etp = 1;
    layout.sizes.ep = task.model.moe ? tp : 1;
    if (!task.model.moe) layout.sizes.etp = tp;
    layout.sizes.pp = pp;
    layout.group_size = pp;
    layout.num_microbatches = kMicrobatches;
    layout.sequence_parallel = tp > 1;
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(task.model.layers, task.model.mtp_layers, pp, 1).value());
    task.batch = {kMicrobatches, std::min(kSequence, task.model.max_positions)};
    return task;
}

class Presets : public testing::TestWithParam<std::string> {};

TEST_P(Presets, AreTracedOnShapesInEveryStage) {
    for (const int tp : {1, 2}) {
        const int pp = 4;
        const TrainingTask task = task_of(GetParam(), tp, pp);
        if (tp > 1 && has_mixer_with(task.model, &MixerTraits::keeps_core)) continue;  // whole on every rank
        ASSERT_THAT(features_not_executed(task, false), testing::IsEmpty());
        const ModelSpec& model = task.model;
        for (int stage = 0; stage < pp; ++stage) {
            SCOPED_TRACE("tp " + std::to_string(tp) + ", stage " + std::to_string(stage));
            MetaDevice device({.keep_allocations = true, .keep_ops = false});
            RankTrainer trainer(task, device, recording_world(stage * tp, tp * pp));
            (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 1e-4);
            const auto bytes = [&](MemoryCategory category) { return device.memory().current[static_cast<std::size_t>(category)]; };
            EXPECT_EQ(bytes(MemoryCategory::activations), 0) << "everything kept was consumed";
            // Buffers pad to at most 64 elements a parameter and 128 a bucket, of which each has at least 40 million.
            const std::int64_t count = stage_parameter_count(model, task.layout, stage).total();
            const auto parameters = stage_parameters(model, task.layout, stage);
            std::int64_t padding = 0;
            for (const Parameter& parameter : parameters.front()) padding += parameter.count() % 64 == 0 ? 0 : 64;
            EXPECT_GE(bytes(MemoryCategory::parameters), 2 * count);
            // Biases that are no parameters, and the counts that move them: 4 bytes each for each expert of each mixture.
            std::int64_t biases = 0;
            for (const AllocationRecord& record : device.allocations()) {
                if (record.category == MemoryCategory::parameters &&
                    (record.name == "expert bias" || record.name == "choices of each expert"))
                    biases += record.bytes;
            }
            EXPECT_EQ(biases > 0, model.moe && model.moe->expert_bias);
            EXPECT_LE(bytes(MemoryCategory::parameters) - biases, 2 * (count + padding + 1024 + 128 * (count / 40'000'000)));
            // The last stage has logits for the next token and for each depth of multi-token prediction.
            const auto made = [&](std::string_view name, std::int64_t size) {
                return std::count_if(device.allocations().begin(), device.allocations().end(),
                                     [&](const AllocationRecord& record) { return record.name == name && record.bytes == size; });
            };
            const std::int64_t losses = stage + 1 == pp ? kMicrobatches * (1 + model.mtp_layers) : 0;
            EXPECT_EQ(made("logit maximum", task.batch.sequence * 4), losses);
            EXPECT_GE(made("column-parallel output", task.batch.sequence * model.padded_vocab(tp) / tp * 2), losses);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Presets, testing::ValuesIn(formats::preset_names()), [](const auto& preset) {
    std::string name = preset.param;
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return name;
});

}  // namespace
}  // namespace mgplan::model::presets_test
