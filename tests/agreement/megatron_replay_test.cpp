// An iteration's takes and returns: played over its schedule against a whole run on shapes, and as Megatron-LM has them.

#include "simulator/memory/megatron_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "plan/layout/stage_ranks.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/memory/rank_timeline.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::simulator::megatron_replay_test {
namespace {

namespace small = model::small;

std::int64_t peak_of(const std::vector<Allocation>& setup, const std::vector<Allocation>& list) {
    std::vector<std::pair<std::int64_t, std::int64_t>> changes;
    for (const Allocation& a : list) {
        changes.emplace_back(a.taken, a.bytes);
        if (a.returned >= 0) changes.emplace_back(a.returned, -a.bytes);
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t live = 0, peak = 0;
    for (const Allocation& a : setup) live += a.returned < 0 ? a.bytes : 0;
    for (const auto& [time, bytes] : changes) peak = std::max(peak, live += bytes);
    return peak;
}

/// What a rank takes before it trains, and in an iteration.
struct RankRecording {
    std::vector<Allocation> setup;
    IterationTrace iteration;
};

/// Runs the first rank of a stage on shapes, every chunk forward and backward once.
RankRecording record_rank(const model::TrainingTask& task, int pp_rank) {
    model::MetaDevice device({.keep_allocations = true, .keep_ops = false});
    const ParallelSizes& sizes = task.layout.sizes;
    const auto rank = static_cast<int>(first_rank_of_stage(sizes, pp_rank));
    model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(sizes.world)));
    const std::int64_t begin = device.clock();
    (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0, once_through(task.layout.vpp), 1);
    const std::int64_t end = device.clock();

    RankRecording recording;
    for (const model::AllocationRecord& record : device.allocations()) {
        const Allocation allocation{record.bytes, record.taken, record.returned >= end ? -1 : record.returned};
        (record.taken < begin ? recording.setup : recording.iteration.tensors).push_back(allocation);
    }
    for (const model::RangeRecord& range : device.ranges()) {
        if (range.depth != 0 || range.begin < begin) continue;
        const auto chunk = static_cast<int>(range.number) + 1;
        if (range.name == "chunk forward") recording.iteration.passes.push_back({chunk, range.begin, range.end});
        if (range.name == "chunk backward") recording.iteration.passes.push_back({-chunk, range.begin, range.end});
    }
    return recording;
}

TEST(PlayAllocations, OverTheScheduleHoldsAtItsPeakWhatTheRuntimeHolds) {
    for (const small::Sizes& sizes :
         {small::Sizes{}, small::Sizes{.pp = 2}, small::Sizes{.pp = 4, .dp = 2}, small::Sizes{.pp = 2, .vpp = 2}}) {
        const model::TrainingTask task = small::task(small::llama(), sizes);
        for (int stage = 0; stage < sizes.pp; ++stage) {
            model::MetaDevice device({.keep_allocations = false, .keep_ops = false});
            const auto rank = static_cast<int>(first_rank_of_stage(task.layout.sizes, stage));
            model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)));
            device.restart_high_water();
            (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0);
            const RankRecording recording = record_rank(task, stage);
            const auto depth = model::send_depth(sizes.pp, sizes.vpp, task.layout.group_size, stage);
            EXPECT_EQ(peak_of(recording.setup, play_allocations(recording.iteration, trainer.schedule(), depth)), device.memory().peak)
                << "pp " << sizes.pp << " vpp " << sizes.vpp << " stage " << stage;
        }
    }
}

Workload workload_of(const model::TrainingTask& task) {
    Workload work;
    work.model = task.model;
    work.batch = task.batch;
    work.training = task.training;
    work.training.precision = Precision::bf16;
    work.world = task.layout.sizes.world;
    return work;
}

TEST(MegatronReplay, HoldsTheModelStateThatIsCounted) {
    const model::TrainingTask task = small::task(small::llama(), {.pp = 2, .dp = 2});
    Workload work = workload_of(task);
    Layout layout = task.layout;
    layout.engine = Engine::megatron;
    for (const bool distributed : {true, false}) {
        work.training.distributed_optimizer = distributed;
        ModelStates states(work);
        for (int stage = 0; stage < 2; ++stage) {
            std::int64_t held = 0;
            for (const Allocation& a : megatron_setup(work, layout, stage)) held += a.returned < 0 ? a.bytes : 0;
            for (const Allocation& a : megatron_moments(work, layout, stage, 0)) held += a.bytes;
            const ModelStateBytes& state = states.of(layout, stage);
            const std::int64_t counted = state.parameters + state.gradients + state.optimizer;
            EXPECT_LE(held, counted);
            // Padding and holes of the optimizer's shards are counted, not held: below 64 elements a parameter.
            EXPECT_GE(held, counted - 12 * 64 * 64);
            if (!distributed) {
                EXPECT_EQ(held, counted);
            }
        }
    }
}

TEST(MegatronReplay, ReservesAtLeastWhatIsAllocated) {
    const model::TrainingTask task = small::task(small::llama(), {.pp = 2});
    const Workload work = workload_of(task);
    Layout layout = task.layout;
    layout.engine = Engine::megatron;
    const auto memory = CostModel(work).replay_allocator(layout, 1);
    ASSERT_TRUE(memory.has_value());
    EXPECT_GE(memory->fragmentation(), 0);
    EXPECT_GE(memory->steady, memory->first);
    EXPECT_EQ(memory->steady % (2 << 20), 0);
}

/// Layer numbers of a rank's activations in a pass of a chunk.
std::set<std::int64_t> layers_of(const std::vector<AllocationLabel>& labels, Pass pass, int chunk) {
    std::set<std::int64_t> layers;
    for (const AllocationLabel& label : labels) {
        if (label.pass && label.pass->pass == pass && label.pass->chunk == chunk && label.layer >= 0) layers.insert(label.layer);
    }
    return layers;
}

TEST(MegatronReplay, LabelsAllocationsWithLayersAndParameters) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const model::TrainingTask task = small::task(small::llama(), {.pp = 2, .vpp = 2});
        const Workload work = workload_of(task);
        Layout layout = task.layout;
        layout.engine = Engine::megatron;
        layout.recompute = recompute;
        CostModel model(work);
        for (int stage = 0; stage < 2; ++stage) {
            const AllocatorHistory history = model.record_allocator(layout, stage);
            const RankAllocations& allocations = history.allocations;
            ASSERT_EQ(allocations.iteration_labels.size(), allocations.iteration.size());
            ASSERT_EQ(allocations.setup_labels.size(), allocations.setup.size());
            for (int chunk = 0; chunk < 2; ++chunk) {
                const StageChunk& held = layout.split->chunk(stage, chunk);
                std::set<std::int64_t> layers;
                for (std::int64_t i = 0; i < held.decoders; ++i) layers.insert(held.first_decoder + i);
                EXPECT_EQ(layers_of(allocations.iteration_labels, Pass::forward, chunk), layers) << stage << " " << chunk;
                EXPECT_EQ(layers_of(allocations.iteration_labels, Pass::backward, chunk), layers) << stage << " " << chunk;
            }
            for (const std::vector<AllocationLabel>* labels : {&allocations.setup_labels, &allocations.iteration_labels}) {
                for (const AllocationLabel& label : *labels) EXPECT_TRUE(!label.tensor.empty() && !label.part.empty());
            }
            // The labels of "parameters" are the rank's parameters, in order.
            std::vector<std::string> named, held;
            for (std::size_t i = 0; i < allocations.setup.size(); ++i) {
                if (allocations.setup_labels[i].part == "parameters") named.push_back(allocations.setup_labels[i].tensor);
            }
            for (const auto& chunk : stage_parameters(work.model, layout, stage, Engine::megatron)) {
                for (const Parameter& parameter : chunk) held.push_back(parameter.name);
            }
            EXPECT_EQ(named, held);
            const auto replayed = model.replay_allocator(layout, stage);
            EXPECT_EQ(history.memory.allocated, replayed->allocated);
            EXPECT_EQ(history.memory.steady, replayed->steady);
        }
    }
}

TEST(MegatronReplay, IsOfEngineMegatronAlone) {
    const model::TrainingTask task = small::task(small::llama(), {});
    const Workload work = workload_of(task);
    EXPECT_FALSE(CostModel(work).replay_allocator(task.layout, 0).has_value());
}

}  // namespace
}  // namespace mgplan::simulator::megatron_replay_test
