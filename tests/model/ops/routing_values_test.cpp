// Routers, permutations and grouped products in small values that can be checked by hand.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/grouped_matmul.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/router.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::model::routing_values_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class RoutingValues : public ::testing::Test {
protected:
    runtime::CpuDevice device;
    Maker maker{device, Dtype::fp64};

    Tensor fp64(const Shape& shape, const std::vector<double>& list) { return make(device, shape, Dtype::fp64, list); }
};

TEST_F(RoutingValues, OfRoutersChooseTheLargestAndTheLowerOfEqual) {
    const Tensor logits = fp64({2, 4}, {1, 3, 2, 3, 0, 0, 0, 0});
    const Routing soft = route(logits, 2, RouterScore::softmax);
    EXPECT_THAT(read(soft.experts), ElementsAre(1, 3, 0, 1));
    EXPECT_THAT(read(soft.probabilities), Each(0.5));
    const Routing three = route(logits, 3, RouterScore::softmax);
    const double e = std::exp(-1.0);
    EXPECT_NEAR(read(three.probabilities)[2], e / (2 + e), 1e-15);
    const Routing sigmoid = route(fp64({1, 3}, {0, std::log(3.0), -9}), 2, RouterScore::sigmoid);
    EXPECT_THAT(read(sigmoid.experts), ElementsAre(1, 0));
    expect_close(read(sigmoid.probabilities), {0.6, 0.4}, 1e-15, "0.75 and 0.5, normalised");
    const auto odd = read(route(fp64({1, 3}, {kNan, kNan, 1}), 3, RouterScore::softmax).experts);
    EXPECT_THAT(odd, ElementsAre(2, 0, 1)) << "ids stay in range and differ";
}

// Two groups of three: the sums of their two largest are 7 and 8, although the largest of all is in the first.
TEST_F(RoutingValues, OfRoutersStayWithinTheGroupsTaken) {
    const Tensor logits = fp64({1, 6}, {6, 1, 0, 4, 4, 3.5});
    EXPECT_THAT(read(route(logits, 2, RouterScore::softmax).experts), ElementsAre(0, 3));
    EXPECT_THAT(read(route(logits, 2, RouterScore::softmax, false, {.groups = 2, .group_top_k = 1}).experts), ElementsAre(3, 4));
    // By its largest score alone a group of 5, -9, -9 comes before one of 4, 4, 4.
    const Tensor uneven = fp64({1, 6}, {5, -9, -9, 4, 4, 4});
    EXPECT_THAT(read(route(uneven, 2, RouterScore::softmax, false, {.groups = 2, .group_top_k = 1}).experts), ElementsAre(3, 4));
    EXPECT_THAT(read(route(uneven, 2, RouterScore::softmax, false, {.groups = 2, .group_top_k = 1, .group_scores = 1}).experts),
                ElementsAre(0, 1));
    // Each group counts its two largest of four experts; two of three groups are taken.
    const Tensor three = fp64({1, 9}, {5, 0, 0, 3, 3, 0, 4, 1.5, 0});
    EXPECT_THAT(read(route(three, 4, RouterScore::softmax, false, {.groups = 3, .group_top_k = 2}).experts), ElementsAre(6, 3, 4, 7))
        << "5, 6 and 5.5";
}

TEST_F(RoutingValues, OfExpertBiasDecideTheChoiceAndNotTheProbability) {
    const Tensor logits = fp64({1, 3}, {0, std::log(3.0), -std::log(3.0)}), bias = fp64({3}, {0, -0.6, 0});
    const Routing routing = route(logits, 2, RouterScore::sigmoid, false, {.bias = bias});
    EXPECT_THAT(read(routing.experts), ElementsAre(0, 2));
    expect_close(read(routing.probabilities), {2.0 / 3, 1.0 / 3}, 1e-15, "0.5 and 0.25, normalised");
    expect_close(read(routing.scores), {0.5, 0.75, 0.25}, 1e-15, "without the bias");
}

// Perfectly balanced: copies = rows · top_k / experts each and even probabilities give the coefficient itself.
TEST_F(RoutingValues, OfTheAuxiliaryLossAreTheCoefficientWhenBalanced) {
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const Tensor even = route(maker.zeros({6, 3}), 2, score).scores;
        EXPECT_NEAR(auxiliary_loss_of(even, score, maker.ids({4, 4, 4}, {3}), 6, 2, 0.01), 0.01, 1e-17);
    }
    const Tensor first = maker.ids({1, 0}, {2});
    EXPECT_NEAR(auxiliary_loss_of(fp64({1, 2}, {0.25, 0.75}), RouterScore::softmax, first, 1, 1, 1), 2 * 0.25, 1e-15);
    EXPECT_NEAR(auxiliary_loss_of(fp64({1, 2}, {0.1, 0.3}), RouterScore::sigmoid, first, 1, 1, 1), 2 * 0.25, 1e-15);
    const Tensor sum = fp64({1}, {10});
    auxiliary_loss(fp64({1, 2}, {0.25, 0.75}), RouterScore::softmax, first, 1, 1, 1, sum);
    EXPECT_NEAR(read(sum)[0], 10.5, 1e-14) << "it is added";
}

TEST_F(RoutingValues, OfGroupedProductsAreThoseOfEachGroup) {
    const std::vector<std::int64_t> rows{2, 0, 3};
    const Tensor a = maker.random({5, 4}), b = maker.random({5, 6});
    const std::vector<Tensor> matrices{maker.random({6, 4}), maker.random({6, 4}), maker.random({6, 4})};
    const std::vector<Tensor> sums{maker.random({4, 6}), maker.random({4, 6}), maker.random({4, 6})};
    const auto untouched = read(sums[1]);
    const Tensor y = grouped_matmul(a, matrices, rows, true, "products");
    std::vector<Tensor> expected;
    for (const Tensor& sum : sums) expected.push_back(make(device, {4, 6}, Dtype::fp64, read(sum)));
    std::int64_t begin = 0;
    for (std::size_t group = 0; group < rows.size(); ++group) {
        const std::int64_t end = begin + rows[group];
        if (end > begin) {
            expect_close(read(y.slice(begin, end)), read(matmul(a.slice(begin, end), matrices[group], {.b = true}, "product")), 1e-15, "y");
            matmul_accumulate(a.slice(begin, end), b.slice(begin, end), {.a = true}, expected[group]);
        }
        begin = end;
    }
    grouped_matmul_accumulate(a, b, rows, sums);
    for (std::size_t group = 0; group < rows.size(); ++group) expect_close(read(sums[group]), read(expected[group]), 1e-15, "sums");
    EXPECT_EQ(read(sums[1]), untouched) << "an empty group";
}

TEST_F(RoutingValues, OfASingleSigmoidAreNotNormalised) {
    const Routing routing = route(fp64({1, 2}, {0, std::log(3.0)}), 1, RouterScore::sigmoid);
    EXPECT_NEAR(read(routing.probabilities)[0], 0.75, 1e-15);
}

TEST_F(RoutingValues, OfBalancedRoutingsGoRound) {
    const Routing routing = route(fp64({3, 3}, {9, 0, 0, 9, 0, 0, 9, 0, 0}), 2, RouterScore::softmax, true);
    EXPECT_THAT(read(routing.experts), ElementsAre(0, 1, 2, 0, 1, 2));
    EXPECT_NEAR(read(routing.probabilities)[4], 0.5, 1e-15);
    EXPECT_NEAR(read(routing.probabilities)[0], 1 / (1 + std::exp(-9.0)), 1e-15);
    const Tensor counts = count_by_expert(routing.experts, 4);
    EXPECT_THAT(read(counts), ElementsAre(2, 2, 2, 0));
    add_counts_by_expert(maker.ids({3, -1, 0}, {3, 1}), counts);
    EXPECT_THAT(read(counts), ElementsAre(3, 2, 2, 1)) << "a dropped choice is nobody's";
    EXPECT_THROW((void)count_by_expert(routing.experts, 2), std::logic_error) << "expert 2 of 2";
}

TEST_F(RoutingValues, OfCapacitiesKeepTheMostProbable) {
    Routing routing{maker.ids({0, 1, 0, 1, 1, 0}, {3, 2}), fp64({3, 2}, {0.7, 0.3, 0.6, 0.4, 0.7, 0.3}), maker.zeros({3, 2})};
    EXPECT_THAT(read(keep_within_capacity(routing, 2)), ElementsAre(0, -1, 0, 1, 1, -1));
    EXPECT_THAT(read(keep_within_capacity(routing, 1)), ElementsAre(0, -1, -1, -1, 1, -1));
    EXPECT_THAT(read(keep_within_capacity(routing, 3)), ElementsAre(0, 1, 0, 1, 1, 0));
    routing.probabilities = fp64({3, 2}, {0.5, 0.5, 0.5, 0.5, 0.5, 0.5});
    EXPECT_THAT(read(keep_within_capacity(routing, 1)), ElementsAre(0, 1, -1, -1, -1, -1)) << "the upper of equal rows";
}

TEST_F(RoutingValues, OfPaddedPermutationsAreFilledWithZeros) {
    const Permutation padded = sort_and_pad(maker.ids({0, -1, 1, 0}, {2, 2}), 3, 2);
    EXPECT_THAT(read(padded.source), ElementsAre(0, 3, 2, -1, -1, -1));
    EXPECT_THAT(read(permute_rows(fp64({2, 1}, {10, 20}), padded, 2)), ElementsAre(10, 20, 20, 0, 0, 0));
    EXPECT_THAT(read(unpermute_rows(fp64({6, 1}, {1, 2, 3, 9, 9, 9}), padded, 2, 2)), ElementsAre(1, 5));
    EXPECT_THAT(read(permute_probabilities(fp64({2, 2}, {1, 2, 3, 4}), padded)), ElementsAre(1, 4, 3, 0, 0, 0));
    EXPECT_THAT(read(unpermute_probabilities(fp64({6}, {1, 2, 3, 9, 9, 9}), padded, 2, 2)), ElementsAre(1, 0, 3, 2));
}

TEST_F(RoutingValues, OfPermutationsRunByExpertThenRow) {
    const Tensor experts = maker.ids({2, 0, 0, 1, 2, 1}, {3, 2});
    const Permutation permutation = sort_by_expert(experts, count_by_expert(experts, 4), 6);
    EXPECT_THAT(read(permutation.source), ElementsAre(1, 2, 3, 5, 0, 4));
    const Tensor x = fp64({3, 1}, {10, 20, 30});
    EXPECT_THAT(read(permute_rows(x, permutation, 2)), ElementsAre(10, 20, 20, 30, 10, 30));
    EXPECT_THAT(read(unpermute_rows(fp64({6, 1}, {1, 2, 3, 4, 5, 6}), permutation, 3, 2)), ElementsAre(1 + 5, 2 + 3, 4 + 6));
    EXPECT_THAT(read(permute_probabilities(fp64({3, 2}, {0, 1, 2, 3, 4, 5}), permutation)), ElementsAre(1, 2, 3, 5, 0, 4));
    const Tensor one = maker.ids({-1, 0, -1, -1}, {2, 2});
    const Permutation dropped = sort_by_expert(one, count_by_expert(one, 2), 1);
    EXPECT_THAT(read(dropped.source), ElementsAre(1));
    EXPECT_THAT(read(unpermute_rows(fp64({1, 1}, {7}), dropped, 2, 2)), ElementsAre(7, 0));
    EXPECT_THAT(read(unpermute_probabilities(fp64({1}, {7}), dropped, 2, 2)), ElementsAre(0, 7, 0, 0));
}

TEST_F(RoutingValues, OfReorderedBlocksMoveAsBlocks) {
    const Tensor x = fp64({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_THAT(read(reorder_blocks(x, {1, 0, 2, 1}, {2, 3, 1, 0})), ElementsAre(2, 3, 4, 5, 6, 7, 0, 1));
    EXPECT_EQ(reorder_blocks(maker.zeros({0, 2}), {0, 0}, {1, 0}).shape(), (Shape{0, 2}));
    EXPECT_THROW((void)reorder_blocks(x, {1, 0, 2, 1}, {2, 2, 1, 0}), std::logic_error) << "a block comes once";
}
}  // namespace
}  // namespace mgplan::model::routing_values_test
