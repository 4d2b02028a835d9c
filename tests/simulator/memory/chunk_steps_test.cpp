// Composed chunks of many kinds and depths against their steps one by one, for each kind of value.

#include "simulator/memory/chunk_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_trace.hpp"

namespace mgplan::simulator::chunk_steps_test {
namespace {

constexpr std::size_t kKinds = 2;

/// Made up: any bytes will do, for every composition is the same sum whatever the steps take.
class MadeUpShard {
public:
    explicit MadeUpShard(unsigned seed) : random_(seed), steps(64, kKinds), attention(pass()), mixture(pass()) {
        for (std::size_t slot = 0; slot < steps.values.size(); ++slot) steps.values[slot] = slot % 2 == 0 ? op(0, 1000) : op(-1000, 100);
        steps.set_layer(0, pass());
        steps.set_layer(1, nested(attention, mixture));
    }

private:
    /// Takes some, gives some of it back.
    OpProfile op(std::int64_t least, std::int64_t most) {
        const std::int64_t net = std::uniform_int_distribution<std::int64_t>(least, most)(random_);
        const std::int64_t more = std::uniform_int_distribution<std::int64_t>(0, 500)(random_);
        const auto taken = change_of(model::MemoryCategory::activations, std::max<std::int64_t>(net, 0) + more, "tensor");
        return then(taken, change_of(model::MemoryCategory::workspace, net - std::max<std::int64_t>(net, 0) - more));
    }
    PassProfile pass() { return {op(0, 1000), op(-1000, 100)}; }

    std::mt19937 random_;

public:
    StepTable<OpProfile> steps;
    PassProfile attention, mixture;
};

/// The first tensors of every step are left to later steps, which free them by their bytes.
StepTable<TensorTrace> made_up_tensors() {
    StepTable<TensorTrace> steps(64, kKinds);
    for (std::size_t slot = 0; slot < steps.values.size(); ++slot) {
        TensorTrace& step = steps.values[slot];
        if (slot % 3 == 1) step.free(64, TensorTrace::kHandedOn, static_cast<std::int64_t>(slot % 2));
        step.take(slot % 2 == 0 ? 64 : 32);
        step.take(7, static_cast<std::int64_t>(slot) + 1);
        if (slot % 3 == 2) step.free(32);
        if (slot % 5 == 3) step.free(7, static_cast<std::int64_t>(slot));
    }
    return steps;
}

template <class Value>
Value one_by_one(const std::vector<Value>& values, const std::vector<ChunkStep>& steps) {
    Value all{};
    for (const ChunkStep& step : steps) {
        for (std::int64_t i = 0; i < step.count; ++i) append(all, values[step.slot]);
    }
    return all;
}

ChunkContents contents_of(bool embedding, bool loss, const std::vector<bool>& mixtures, std::int64_t mtp) {
    const std::vector<std::uint16_t> layers(mixtures.begin(), mixtures.end());
    return {embedding, loss, layers, mtp, layers.empty() ? std::uint16_t{0} : layers.back(), mtp};
}

struct Chunk {
    ChunkContents contents;
    std::optional<ChunkRecompute> recompute;
};

std::vector<Chunk> all_chunks() {
    std::vector<ChunkContents> chunks;
    for (const bool embedding : {true, false}) {
        for (const bool loss : {true, false}) {
            for (const std::size_t layers : {0, 1, 2, 5, 12}) {
                for (const std::int64_t mtp : {0, 1, 5}) {
                    if (mtp > 0 && !loss) continue;
                    std::vector<bool> every(layers, true), alternating, late;
                    for (std::size_t i = 0; i < layers; ++i) alternating.push_back(i % 2 == 1);
                    for (std::size_t i = 0; i < layers; ++i) late.push_back(i >= 3);
                    chunks.push_back(contents_of(embedding, loss, every, mtp));
                    chunks.push_back(contents_of(embedding, loss, alternating, mtp));
                    chunks.push_back(contents_of(embedding, loss, late, mtp));
                }
            }
        }
    }
    std::vector<std::optional<ChunkRecompute>> modes{std::nullopt};
    for (const RecomputeMethod method : {RecomputeMethod::uniform, RecomputeMethod::block}) {
        for (const std::int64_t layers : {0, 1, 2, 3, 4, 12}) modes.push_back(ChunkRecompute{method, layers});
    }
    for (const std::int64_t layers : {0, 1, 2, 5}) modes.push_back(ChunkRecompute{.layers = layers, .streams = true});
    std::vector<Chunk> all;
    for (const ChunkContents& contents : chunks) {
        for (const auto& mode : modes) all.push_back({contents, mode});
    }
    return all;
}

/// Each decoder layer runs once in each pass, in order, as a layer of its kind; recomputed ones also forward in the backward pass.
TEST(ChunkSteps, NameTheLayerOfEveryStep) {
    using slots::LayerStep;
    for (const Chunk& chunk : all_chunks()) {
        const ChunkSteps steps = chunk_steps(chunk.contents, chunk.recompute ? &*chunk.recompute : nullptr);
        const auto layers = static_cast<std::int32_t>(chunk.contents.layers.size());
        for (const bool backward : {false, true}) {
            const std::vector<std::int32_t>& numbers = backward ? steps.backward_layers : steps.forward_layers;
            std::vector<std::int32_t> run, streams;
            std::size_t at = 0;
            for (const auto& [slot, count] : backward ? steps.backward : steps.forward) {
                for (std::int64_t i = 0; i < count; ++i, ++at) {
                    ASSERT_LT(at, numbers.size());
                    const std::int32_t layer = numbers[at];
                    if (layer < 0) continue;
                    ASSERT_LT(layer, layers);
                    const std::size_t kind = chunk.contents.layers[static_cast<std::size_t>(layer)];
                    const std::size_t first = slots::of_layer(kind, LayerStep::forward);
                    ASSERT_TRUE(slot >= first && slot < first + slots::kStepsOfLayer) << "a step of another kind of layer";
                    if (!slots::runs_layer(slot))
                        streams.push_back(layer);
                    else if (!backward || slot == slots::of_layer(kind, LayerStep::backward))
                        run.push_back(layer);
                }
            }
            EXPECT_EQ(at, numbers.size());
            std::vector<std::int32_t> each(static_cast<std::size_t>(layers));
            std::iota(each.begin(), each.end(), 0);
            if (backward) std::reverse(each.begin(), each.end());
            EXPECT_EQ(run, each);
            // One step frees or takes the streams of a layer, another its inputs.
            const bool of_streams = chunk.recompute && chunk.recompute->streams;
            EXPECT_EQ(std::ssize(streams), of_streams ? 2 * layers : 0);
            for (const std::int32_t layer : each) EXPECT_EQ(std::count(streams.begin(), streams.end(), layer), of_streams ? 2 : 0);
        }
    }
}

TEST(ChunkSteps, ComposeInRepeatedSequencesAsOneByOne) {
    const MadeUpShard made_up(0), other(1);
    const StepTable<TensorTrace> tensors = made_up_tensors();
    for (const Chunk& chunk : all_chunks()) {
        const ChunkRecompute* full = chunk.recompute ? &*chunk.recompute : nullptr;
        const ChunkSteps steps = chunk_steps(chunk.contents, full);
        const ChunkRecipe recipe(chunk.contents, full);
        for (const MadeUpShard* shard : {&made_up, &other}) {
            const PassProfile profile = chunk_profile(shard->steps, recipe);
            const OpProfile forward = one_by_one(shard->steps.values, steps.forward);
            EXPECT_EQ(profile.forward.at_peak, forward.at_peak);
            EXPECT_EQ(profile.forward.high_water, forward.high_water);
            EXPECT_EQ(profile.forward.net, forward.net);
            EXPECT_EQ(profile.backward.peak, one_by_one(shard->steps.values, steps.backward).peak);
            EXPECT_EQ(profile.backward.net_total(), -forward.net_total());
            const PassDeltas deltas = recipe.compose(deltas_of(shard->steps).values);
            EXPECT_EQ(deltas.forward, delta_of(forward));
            EXPECT_EQ(deltas.backward.peak, profile.backward.peak);
        }
        TensorTrace whole = one_by_one(tensors.values, steps.forward);
        append(whole, one_by_one(tensors.values, steps.backward));
        const BothPasses<TensorTrace> passes = recipe.compose(tensors.values);
        TensorTrace composed = passes.forward;
        append(composed, passes.backward);
        EXPECT_EQ(composed.tensors, whole.tensors);
        EXPECT_EQ(composed.live.size(), whole.live.size());
        EXPECT_EQ(composed.frees.size(), whole.frees.size());
    }
}

TEST(ChunkSteps, TakeMixturesInLater) {
    const MadeUpShard made_up(1), other(2);
    const ChunkContents chunk = contents_of(true, true, {false, true, true}, 1);
    const ChunkRecompute full{RecomputeMethod::uniform, 2};
    // The other shard's dense pieces, this one's mixture.
    StepTable<MemoryDelta> steps = deltas_of(other.steps);
    steps.set_layer(1, nested(deltas_of(other.attention), deltas_of(made_up.mixture)));
    StepTable<OpProfile> mixed = other.steps;
    mixed.set_layer(1, nested(other.attention, made_up.mixture));
    const ChunkRecipe eager(chunk, nullptr), recomputed(chunk, &full);
    EXPECT_EQ(eager.compose(steps.values), eager.compose(deltas_of(mixed).values));
    EXPECT_EQ(recomputed.compose(steps.values), recomputed.compose(deltas_of(mixed).values));
    EXPECT_NE(eager.compose(steps.values), eager.compose(deltas_of(other.steps).values));
}

TEST(TensorTraces, KeepOnlyAForwardsOutputAndItsInputIfWanted) {
    TensorTrace layer;
    layer.take(10, 5);
    layer.take(64);
    layer.take(64);
    layer.take(20, 6);
    for (const bool input : {true, false}) {
        TensorTrace work;
        work.take(64);
        append(work, keeping(layer, 64, input));
        ASSERT_EQ(work.live.size(), input ? 2U : 1U);
        EXPECT_EQ(work.live.back().at, 3);  // the second of the layer's handed on tensors
        EXPECT_EQ(work.tensors.front().returned < 0, input);
        EXPECT_TRUE(work.frees.empty());
    }
}

TEST(TensorTraces, FreeTheLatestMatchAndPassOver) {
    TensorTrace work, later;
    for (int i = 0; i < 3; ++i) work.take(64);
    work.take(64, 5);
    later.take(32);
    later.free(64, TensorTrace::kHandedOn, 1);
    later.free(64);
    later.free(128);
    append(work, later);
    EXPECT_GE(work.tensors[1].returned, 0);
    EXPECT_GT(work.tensors[2].returned, work.tensors[1].returned);
    EXPECT_EQ(work.live.size(), 3U);  // the first, the owned one and the one of 32 bytes
    ASSERT_EQ(work.frees.size(), 1U);
    EXPECT_EQ(work.frees.front().bytes, 128);
}

}  // namespace
}  // namespace mgplan::simulator::chunk_steps_test
