// Where shards lie in the wholes that all layouts share: every element once, and back again.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "plan/parameters/whole_parameter.hpp"

namespace mgplan::whole_parameter_test {
namespace {

/// The shards of a matrix of so many rows and columns, `padding` rows behind the last.
std::vector<ShardOfWhole> shards_of(std::int64_t rows, std::int64_t columns, std::optional<int> axis, std::int64_t stride,
                                    std::int64_t count, std::int64_t padding = 0) {
    std::vector<ShardOfWhole> shards;
    for (std::int64_t index = 0; index < (axis ? count : 1); ++index) {
        ShardOfWhole shard;
        shard.rows = axis == 0 ? (rows + padding) / count : rows;
        shard.columns = axis == 1 ? columns / count : columns;
        shard.axis = axis;
        shard.stride = axis == 0 ? stride : 1;
        shard.index = index;
        shard.count = axis ? count : 1;
        shard.whole_rows = rows;
        shards.push_back(shard);
    }
    return shards;
}

struct Piece {
    ShardOfWhole shard;
    std::int64_t begin, end;
};

/// Every shard cut at places of chance.
std::vector<Piece> cut(const std::vector<ShardOfWhole>& shards, std::mt19937& random) {
    std::vector<Piece> pieces;
    for (const ShardOfWhole& shard : shards) {
        const std::int64_t all = shard.rows * shard.columns;
        for (std::int64_t begin = 0; begin < all;) {
            const std::int64_t end = std::min(all, begin + std::uniform_int_distribution<std::int64_t>(1, all)(random));
            pieces.push_back({shard, begin, end});
            begin = end;
        }
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    return pieces;
}

using Values = std::vector<std::vector<std::int64_t>>;  // by piece

/// What load_state() does with files, on values in memory.
Values reshard(const std::vector<Piece>& from, const Values& values, const std::vector<Piece>& to) {
    Values result;
    for (const Piece& target : to) {
        auto& own = result.emplace_back(static_cast<std::size_t>(target.end - target.begin), -1);
        const auto runs = runs_in_whole(target.shard, target.begin, target.end);
        for (std::size_t i = 0; i < from.size(); ++i) {
            for (const CommonRun& run : common_runs(runs_in_whole(from[i].shard, from[i].begin, from[i].end), runs)) {
                for (std::int64_t k = 0; k < run.size; ++k) {
                    auto& value = own[static_cast<std::size_t>(run.in_second + k - target.begin)];
                    EXPECT_EQ(value, -1) << "an element came twice";
                    value = values[i][static_cast<std::size_t>(run.in_first + k - from[i].begin)];
                }
            }
        }
    }
    return result;
}

/// Each element's number in the whole; -1 in padding.
Values numbers(const std::vector<Piece>& pieces) {
    Values values;
    for (const Piece& piece : pieces) {
        auto& own = values.emplace_back();
        for (std::int64_t i = piece.begin; i < piece.end; ++i) {
            const std::int64_t row = piece.shard.whole_row(i / piece.shard.columns);
            const std::int64_t column = i % piece.shard.columns + (piece.shard.axis == 1 ? piece.shard.index * piece.shard.columns : 0);
            own.push_back(row < piece.shard.whole_rows ? row * piece.shard.whole_columns() + column : -1);
        }
    }
    return values;
}

TEST(WholeParameter, OfAnyShardsHasEveryElementOnce) {
    std::mt19937 random(7);
    for (int i = 0; i < 200; ++i) {
        const std::int64_t stride = 1 + static_cast<std::int64_t>(random() % 2), count = std::int64_t{1} << (random() % 4);
        const std::int64_t rows = stride * count * (1 + static_cast<std::int64_t>(random() % 5)),
                           columns = count * (1 + static_cast<std::int64_t>(random() % 4));
        const auto axis = random() % 3 == 0 ? std::optional<int>() : std::optional<int>(static_cast<int>(random() % 2));
        std::vector<int> seen(static_cast<std::size_t>(rows * columns));
        for (const Piece& piece : cut(shards_of(rows, columns, axis, stride, count), random)) {
            std::int64_t in_shard = piece.begin, in_whole = -1;
            for (const WholeRun& run : runs_in_whole(piece.shard, piece.begin, piece.end)) {
                EXPECT_EQ(run.in_shard, in_shard);
                EXPECT_GT(run.in_whole, in_whole);
                in_shard = run.in_shard + run.size;
                in_whole = run.in_whole + run.size;
                for (std::int64_t k = 0; k < run.size; ++k) ++seen[static_cast<std::size_t>(run.in_whole + k)];
            }
            EXPECT_EQ(in_shard, piece.end);
        }
        EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
}

TEST(WholeParameter, ComesBackFromAnyOtherShardsAsItWas) {
    std::mt19937 random(11);
    for (int i = 0; i < 200; ++i) {
        // A vocabulary is padded differently for each count; what is not divided by blocks has stride 1.
        const bool vocabulary = random() % 3 == 0;
        const std::int64_t stride = vocabulary ? 1 : 1 + static_cast<std::int64_t>(random() % 2);
        const std::int64_t rows =
            vocabulary ? 5 + static_cast<std::int64_t>(random() % 20) : stride * 8 * (1 + static_cast<std::int64_t>(random() % 3));
        const auto any = [&] {
            const std::int64_t count = std::int64_t{1} << (random() % 4);
            const std::int64_t padding = vocabulary ? (4 * count - rows % (4 * count)) % (4 * count) : 0;
            const auto axis = vocabulary          ? std::optional<int>(0)
                              : random() % 3 == 0 ? std::optional<int>()
                                                  : std::optional<int>(static_cast<int>(random() % 2));
            return cut(shards_of(rows, 8, axis, stride, count, padding), random);
        };
        const auto a = any(), b = any();
        EXPECT_EQ(reshard(a, numbers(a), b), numbers(b));
        EXPECT_EQ(reshard(b, reshard(a, numbers(a), b), a), numbers(a));
    }
}

TEST(WholeParameter, PutsGateAndValueOfAGatedMlpApart) {
    // Four rows of gate, four of value: rank 1 of 2 holds the last two of each.
    ShardOfWhole shard = shards_of(8, 3, 0, 2, 2)[1];
    EXPECT_EQ(runs_in_whole(shard, 0, 12), (std::vector<WholeRun>{{0, 6, 6}, {6, 18, 6}}));
    EXPECT_EQ(runs_in_whole(shard, 4, 8), (std::vector<WholeRun>{{4, 10, 2}, {6, 18, 2}}));
}

TEST(WholeParameter, HasNoPaddingOfTheVocabulary) {
    ShardOfWhole shard = shards_of(5, 2, 0, 1, 2, 3)[1];
    EXPECT_EQ(runs_in_whole(shard, 0, 8), (std::vector<WholeRun>{{0, 8, 2}}));
    EXPECT_TRUE(runs_in_whole(shard, 2, 8).empty());
}

TEST(WholeParameter, NumbersExpertsThroughAndNamesTheTiedTableOnce) {
    ModelSpec model;
    model.moe.emplace().experts = 8;
    Parameter expert;
    expert.expert = true;
    expert.local_expert = 1;
    expert.name = "decoder.layers.0.mlp.experts.linear_fc1.weight1";
    EXPECT_EQ(whole_name(model, expert, {.ep_rank = 3, .ep = 4}), "decoder.layers.0.mlp.experts.linear_fc1.weight7");
    Parameter output;
    output.name = "output_layer.weight";
    output.shared_embedding = true;
    EXPECT_EQ(whole_name(model, output, {}), "embedding.word_embeddings.weight");
}

TEST(WholeParameter, IsSavedOnceByThoseThatHoldTheSame) {
    for (const std::int64_t elements : {0, 1, 100, 65'536, 1'000'003}) {
        for (const std::int64_t copies : {1, 2, 7}) {
            std::int64_t at = 0;
            for (std::int64_t copy = 0; copy < copies; ++copy) {
                const ElementShare share = share_of_copies(elements, copy, copies);
                if (share.begin == share.end) continue;
                EXPECT_EQ(share.begin, at);
                at = share.end;
            }
            EXPECT_EQ(at, elements);
        }
    }
}

TEST(WholeParameter, BlocksOfUnequalSizeLieBesideThoseOfTheOtherRanks) {
    // Two ranks hold 3 + 1 + 2 rows each of blocks of 6, 2 and 4 rows; rows of two columns.
    const ShardOfWhole shard{6, 2, 0, 1, 1, 2, 12, {3, 1, 2}};
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < 6; ++row) rows.push_back(shard.whole_row(row));
    EXPECT_EQ(rows, (std::vector<std::int64_t>{3, 4, 5, 7, 10, 11}));
    EXPECT_EQ(runs_in_whole(shard, 0, 12), (std::vector<WholeRun>{{0, 6, 6}, {6, 14, 2}, {8, 20, 4}}));
    EXPECT_EQ(runs_in_whole(shard, 5, 9), (std::vector<WholeRun>{{5, 11, 1}, {6, 14, 2}, {8, 20, 1}}));
}

}  // namespace
}  // namespace mgplan::whole_parameter_test
