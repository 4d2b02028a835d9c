// The sums that the search asks for against the whole profile, for chunks of many kinds and depths.

#include "simulator/memory/chunk_weights.hpp"

#include <gtest/gtest.h>

#include <random>

namespace mgplan::simulator::chunk_weights_test {
namespace {

/// Made up: any bytes will do, for weights and profiles are the same sums whatever the pieces take.
class MadeUpShard {
public:
    explicit MadeUpShard(unsigned seed) : random_(seed) {
        for (PassProfile* piece : {&shard.embedding, &shard.norm, &shard.loss, &attention, &mixture}) *piece = pass();
        shard.layers = {pass(), {then(attention.forward, mixture.forward), then(mixture.backward, attention.backward)}};
        shard.stream = 64;
        shard.streams_of_layer = {130, 260};
        shard.ids = 3;
        for (PredictionProfiles* prediction : {&shard.prediction, &shard.recomputed_prediction}) {
            prediction->norm = pass();
            for (std::int64_t depth = 0; depth < kMostDepths; ++depth) prediction->depths.push_back({pass(), pass(), pass()});
        }
    }

    ShardProfiles shard;
    PassProfile attention, mixture;

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
};

ChunkContents contents_of(bool embedding, bool loss, const std::vector<bool>& mixtures, std::int64_t mtp) {
    const std::vector<std::uint16_t> layers(mixtures.begin(), mixtures.end());
    return {embedding, loss, layers, mtp, layers.empty() ? std::uint16_t{0} : layers.back(), mtp};
}

TEST(ChunkWeights, AreTheSumsOfTheChunksProfile) {
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
    for (unsigned seed = 0; seed < 3; ++seed) {
        const MadeUpShard made_up(seed);
        for (const auto& mode : modes) {
            const ChunkRecompute* full = mode ? &*mode : nullptr;
            const StepDeltas steps(made_up.shard, recomputes_prediction(full));
            for (std::size_t i = 0; i < chunks.size(); ++i) {
                const PassProfile profile = chunk_profile(made_up.shard, chunks[i], full);
                EXPECT_EQ(ChunkRecipe(chunks[i], full).weigh(steps),
                          (ChunkWeight{profile.forward.net_total(), profile.forward.peak, profile.backward.peak}))
                    << "chunk " << i << " seed " << seed;
            }
        }
    }
}

TEST(ChunkWeights, TakeMixturesInLater) {
    const MadeUpShard made_up(1), other(2);
    const ChunkContents chunk = contents_of(true, true, {false, true, true}, 1);
    const ChunkRecompute full{RecomputeMethod::uniform, 2};
    StepDeltas steps(other.shard, false);
    // The other shard's dense pieces, this one's mixture.
    steps.set_mixture(1, deltas_of(other.attention), deltas_of(made_up.mixture));
    ShardProfiles mixed = other.shard;
    mixed.layers[1] = {then(other.attention.forward, made_up.mixture.forward), then(made_up.mixture.backward, other.attention.backward)};
    const ChunkRecipe eager(chunk, nullptr), recomputed(chunk, &full);
    EXPECT_EQ(eager.weigh(steps), eager.weigh(StepDeltas(mixed, false)));
    EXPECT_EQ(recomputed.weigh(steps), recomputed.weigh(StepDeltas(mixed, false)));
    EXPECT_NE(eager.weigh(steps), eager.weigh(StepDeltas(other.shard, false)));
}

}  // namespace
}  // namespace mgplan::simulator::chunk_weights_test
