// The stage balancer against every split there is, on problems small enough to list them.

#include "planner/stage_balance.hpp"

#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout/pipeline_layout.hpp"

namespace mgplan::planner::stage_balance_test {
namespace {

/// A model in whole numbers, so that sums have no rounding.
struct Toy {
    std::vector<int> decoders, bytes;  ///< of each layer
    int embedding = 1, mtp = 0, loss = 1, mtp_layers = 0;
    int pp = 2, vpp = 1;
    std::vector<int> limits;  ///< by rank; empty: none

    [[nodiscard]] double seconds(const StageChunk& chunk) const {
        int sum = (chunk.embedding ? embedding : 0) + (chunk.loss ? loss : 0) + static_cast<int>(chunk.mtp) * mtp;
        for (std::int64_t i = 0; i < chunk.decoders; ++i) sum += decoders[static_cast<std::size_t>(chunk.first_decoder + i)];
        return sum;
    }
    /// Earlier ranks hold more microbatches.
    [[nodiscard]] bool fits(int rank, const std::vector<StageChunk>& chunks) const {
        if (limits.empty()) return true;
        int sum = 0;
        for (const StageChunk& chunk : chunks) {
            for (std::int64_t i = 0; i < chunk.decoders; ++i)
                sum += bytes[static_cast<std::size_t>(chunk.first_decoder + i)] * (pp - rank + 1);
        }
        return sum <= limits[static_cast<std::size_t>(rank)];
    }
    [[nodiscard]] int alike_from() const {
        auto from = decoders.size();
        while (from > 0 && decoders[from - 1] == decoders.back() && bytes[from - 1] == bytes.back()) --from;
        return static_cast<int>(from);
    }
    [[nodiscard]] StageBalanceProblem problem() const {
        StageBalanceProblem problem;
        problem.layers = static_cast<std::int64_t>(decoders.size());
        problem.mtp_layers = mtp_layers;
        problem.pp = pp;
        problem.vpp = vpp;
        problem.alike_from = alike_from();
        problem.seconds = [this](int, const StageChunk& chunk) { return seconds(chunk); };
        problem.fits = [this](int rank, const std::vector<StageChunk>& chunks) { return fits(rank, chunks); };
        return problem;
    }
    [[nodiscard]] double slowest(const StageSplit& split) const {
        double most = 0;
        for (int rank = 0; rank < pp; ++rank) {
            double sum = 0;
            for (int v = 0; v < vpp; ++v) sum += seconds(split.chunk(rank, v));
            most = std::max(most, sum);
        }
        return most;
    }
};

/// The fastest slowest rank of every split: all ways to cut the layers, all places for the MTP layers.
double brute_force(const Toy& toy) {
    const int stages = toy.pp * toy.vpp, layers = static_cast<int>(toy.decoders.size());
    double best = std::numeric_limits<double>::infinity();
    std::vector<StageChunk> chunks(static_cast<std::size_t>(stages));
    chunks.front().embedding = true;
    chunks.back().loss = true;
    int mtp_stage = stages;  // none
    const std::function<void(int, int)> place = [&](int stage, int first) {
        if (stage == stages) {
            if (first != layers) return;
            double slowest = 0;
            for (int rank = 0; rank < toy.pp; ++rank) {
                std::vector<StageChunk> own;
                double sum = 0;
                for (int v = 0; v < toy.vpp; ++v) {
                    own.push_back(chunks.at(std::size_t(v) * std::size_t(toy.pp) + std::size_t(rank)));
                    sum += toy.seconds(own.back());
                }
                if (!toy.fits(rank, own)) return;
                slowest = std::max(slowest, sum);
            }
            best = std::min(best, slowest);
            return;
        }
        // Interleaved, only layers of one kind may stand behind the first chunks.
        if (toy.vpp > 1 && stage == toy.pp && first < toy.alike_from()) return;
        StageChunk& chunk = chunks[static_cast<std::size_t>(stage)];
        const int most = stage > mtp_stage ? 0 : layers - first;  // no decoder behind an MTP layer
        for (int count = 0; count <= most; ++count) {
            chunk.first_decoder = first;
            chunk.decoders = count;
            if (count == 0 && !chunk.embedding && !chunk.loss && chunk.mtp == 0) continue;
            place(stage + 1, first + count);
        }
    };
    if (toy.mtp_layers == 0) {
        place(0, 0);
        return best;
    }
    for (mtp_stage = stages - toy.pp; mtp_stage < stages; ++mtp_stage) {
        StageChunk& holder = chunks[static_cast<std::size_t>(mtp_stage)];
        holder.mtp = toy.mtp_layers;
        place(0, 0);
        holder.mtp = 0;
    }
    return best;
}

void expect_best(const Toy& toy, const std::string& what) {
    const double best = brute_force(toy);
    const auto found = balance_stages(toy.problem());
    if (best == std::numeric_limits<double>::infinity()) {
        EXPECT_FALSE(found.has_value()) << what;
        return;
    }
    ASSERT_TRUE(found.has_value()) << what << ", " << best;
    EXPECT_NEAR(found->slowest, best, 1e-6) << what << " " << *found->split.request().pipeline_layout;
    EXPECT_NEAR(toy.slowest(found->split), best, 1e-6) << what << " " << *found->split.request().pipeline_layout;
    for (int rank = 0; rank < toy.pp; ++rank) {
        std::vector<StageChunk> own;
        for (int v = 0; v < toy.vpp; ++v) own.push_back(found->split.chunk(rank, v));
        EXPECT_TRUE(toy.fits(rank, own)) << what;
    }
}

int draw(std::mt19937& random, int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

TEST(StageBalance, OfLayersOfAnyCostIsThatOfBruteForce) {
    std::mt19937 random(1);
    int limited = 0, impossible = 0;
    for (int round = 0; round < 300; ++round) {
        Toy toy;
        toy.pp = draw(random, 2, 5);
        const int layers = draw(random, 1, 10);
        for (int i = 0; i < layers; ++i) {
            toy.decoders.push_back(draw(random, 1, 9));
            toy.bytes.push_back(draw(random, 1, 4));
        }
        toy.embedding = draw(random, 0, 6);
        toy.loss = draw(random, 0, 12);
        toy.mtp_layers = draw(random, 0, 2);
        toy.mtp = draw(random, 1, 9);
        const auto free = balance_stages(toy.problem());
        if (round % 2 == 1) {
            for (int rank = 0; rank < toy.pp; ++rank) toy.limits.push_back(draw(random, 4, 60));
            const auto tight = balance_stages(toy.problem());
            impossible += free && !tight ? 1 : 0;
            limited += tight && tight->slowest > free->slowest ? 1 : 0;
        }
        expect_best(toy, "round " + std::to_string(round));
    }
    EXPECT_GT(limited, 10);
    EXPECT_GT(impossible, 10);
}

TEST(StageBalance, OfChunksOfADenseThenMixtureModelIsThatOfBruteForce) {
    std::mt19937 random(2);
    int dense_in_front = 0;
    for (int round = 0; round < 120; ++round) {
        Toy toy;
        toy.pp = draw(random, 2, 3);
        toy.vpp = draw(random, 2, 3);
        const int layers = draw(random, toy.pp * toy.vpp - 1, 10), dense = draw(random, 0, 2);
        dense_in_front += dense > 0 ? 1 : 0;
        const int mixture_seconds = draw(random, 2, 6);
        for (int i = 0; i < layers; ++i) {
            toy.decoders.push_back(i < dense ? 1 : mixture_seconds);
            toy.bytes.push_back(1);
        }
        toy.embedding = draw(random, 0, 4);
        toy.loss = draw(random, 0, 8);
        toy.mtp_layers = draw(random, 0, 1);
        toy.mtp = draw(random, 1, 7);
        // Bytes by the number of layers alone, so that how a rank spreads them does not matter.
        if (round % 3 == 1) {
            for (int rank = 0; rank < toy.pp; ++rank) toy.limits.push_back(draw(random, 6, 20));
        }
        expect_best(toy, "round " + std::to_string(round));
    }
    EXPECT_GT(dense_in_front, 20);
}

TEST(StageBalance, GivesTheSlowEndFewerLayersAndWritesMegatronsString) {
    Toy toy;
    toy.decoders.assign(14, 2);
    toy.bytes.assign(14, 1);
    toy.embedding = 2;
    toy.loss = 2;
    toy.pp = 4;
    const auto found = balance_stages(toy.problem());
    ASSERT_TRUE(found);
    EXPECT_EQ(*found->split.request().pipeline_layout, "Et*3|(t*4|)*2t*3L");
    EXPECT_EQ(found->slowest, 8);
}

TEST(StageBalance, AmongEqualsIsTheMostEven) {
    // One layer takes longer than all others together: the rest is spread all the same.
    Toy toy;
    toy.decoders = {100, 1, 1, 1, 1, 1, 1, 1, 1};
    toy.bytes.assign(9, 1);
    toy.embedding = toy.loss = 0;
    toy.pp = 5;
    const auto found = balance_stages(toy.problem());
    ASSERT_TRUE(found);
    EXPECT_EQ(*found->split.request().pipeline_layout, "Et|(tt|)*3ttL");
}

TEST(StageBalance, OfManyLayersAndStagesIsFastAndExact) {
    Toy toy;
    toy.decoders.assign(126, 3);
    toy.bytes.assign(126, 1);
    toy.embedding = 0;
    toy.loss = 6;
    toy.pp = 16;
    toy.vpp = 4;
    const auto found = balance_stages(toy.problem());
    ASSERT_TRUE(found);
    // 126·3 + 6 over 16 ranks: 24 each.
    EXPECT_EQ(found->slowest, 24);
    EXPECT_EQ(toy.slowest(found->split), 24);
}

TEST(StageBalance, RefusesWhatItCannotBalance) {
    Toy toy;
    toy.decoders.assign(3, 1);
    toy.bytes.assign(3, 1);
    toy.pp = 8;
    EXPECT_FALSE(balance_stages(toy.problem()));  // stages would be empty
    toy.pp = 2;
    toy.limits = {2, 2};
    EXPECT_FALSE(balance_stages(toy.problem()));  // nothing fits
    toy.limits.clear();
    StageBalanceProblem long_one = toy.problem();
    long_one.layers = kMostBalancedLayers + 1;
    EXPECT_FALSE(balance_stages(long_one));
}

}  // namespace
}  // namespace mgplan::planner::stage_balance_test
