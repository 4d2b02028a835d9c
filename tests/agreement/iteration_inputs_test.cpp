// The list of what an iteration's graph reads against the tensors that the model's passes are given.

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/meta/meta_device.hpp"
#include "model/training/microbatch_source.hpp"
#include "simulator/memory/iteration_inputs.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::simulator::iteration_inputs_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kMicrobatches = 8;

/// By name: tensors, and bytes of all of them.
using Inputs = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;

Inputs of_the_model(const ModelSpec& model, bool first, bool last) {
    const model::TrainingTask task = tests::task_for(model, {.name = "", .cp = 2}, Precision::bf16);
    model::MetaDevice device({.keep_allocations = true});
    const model::MicrobatchSource source(task, device,
                                         {.cp_size = 2, .embedding = first, .loss = last, .mtp_depths = last ? model.mtp_layers : 0});
    const auto all = source.make_all(1, kMicrobatches, [](std::int64_t, std::span<std::int32_t>) {});
    Inputs inputs;
    for (const model::AllocationRecord& each : device.allocations()) {
        auto& [tensors, bytes] = inputs[std::string(each.name)];
        ++tensors;
        bytes += each.bytes;
    }
    // None is made that the graph does not read.
    EXPECT_EQ(model::inputs_of(all).size(), device.allocations().size());
    return inputs;
}

Inputs of_the_list(const ModelSpec& model, bool first, bool last) {
    const std::int64_t rows = tests::task_for(model, {.name = ""}, Precision::bf16).batch.sequence / 2;
    Inputs inputs;
    for (const IterationInput& each : iteration_inputs({GraphPolicy::slots, kMicrobatches, first, last, &model, rows}))
        inputs[std::string(each.name)] = {each.tensors, each.bytes};
    return inputs;
}

TEST(IterationInputs, AreTheTensorsOfTheModelByName) {
    ModelSpec plain = tests::small_llama(), further = plain, learned = tests::small_gpt();
    further.mtp_layers = 2;
    learned.hidden_dropout = 0.1;
    for (const ModelSpec& model : {plain, further, learned}) {
        for (const auto& [first, last] : {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
            SCOPED_TRACE(testing::Message() << model.name << " mtp " << model.mtp_layers << " first " << first << " last " << last);
            EXPECT_EQ(of_the_list(model, first, last), of_the_model(model, first, last));
        }
    }
    EXPECT_EQ(of_the_list(learned, true, true).size(), 4U);
    EXPECT_EQ(of_the_list(further, false, true).size(), 2U);
}

TEST(IterationInputs, OfAnUnknownModelAreIdsAndTargets) {
    EXPECT_THAT(iteration_inputs({GraphPolicy::slots, 3, true, true}),
                ElementsAre(IterationInput{"token ids", 3, 0}, IterationInput{"target ids", 3, 0}));
}

TEST(IterationInputs, OfMegatronAreWholeMicrobatchesOnTheFirstStageAndTheLast) {
    const ModelSpec model = tests::small_gpt();
    // int64 ids, positions and targets, fp32 loss mask.
    const IterationInput all{"microbatches", 3, 3 * 16 * (8 + 8 + 8 + 4) + 100};
    for (const auto& [first, last] : {std::pair{true, true}, {true, false}, {false, true}})
        EXPECT_THAT(iteration_inputs({GraphPolicy::megatron, 3, first, last, &model, 16, 100}), ElementsAre(all));
    EXPECT_THAT(iteration_inputs({GraphPolicy::megatron, 3, false, false, &model, 16, 100}), IsEmpty());
}

}  // namespace
}  // namespace mgplan::simulator::iteration_inputs_test
