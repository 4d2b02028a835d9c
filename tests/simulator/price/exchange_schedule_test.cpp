#include "simulator/price/exchange_schedule.hpp"

#include <gtest/gtest.h>

#include "tests/simulator/price/written_steps.hpp"

namespace mgplan::simulator::exchange_schedule_test {
namespace {

PieceStep product(std::int64_t seconds, StepPass pass = StepPass::forward) {
    PieceStep step = op(seconds, pass);
    step.op.grouped.groups = 2;
    return step;
}

const StepPrice kFree = [](const PieceStep&) { return 0.0; };

TEST(ExchangeNodes, AreCutWhereExchangesBeginAndEnd) {
    constexpr LayerGroup kEp = LayerGroup::ep;
    const ExchangeNodes nodes = cut_at_exchanges({op(1), op(2), start(0, 10, kEp), wait(0, kEp), op(3), product(20), op(4), product(21),
                                                  op(5), start(1, 11, kEp), wait(1, kEp), op(6)},
                                                 written, kFree);
    EXPECT_DOUBLE_EQ(nodes.outside, 1 + 2 + 6);
    EXPECT_DOUBLE_EQ(nodes.first, 10);
    EXPECT_DOUBLE_EQ(nodes.experts, 3 + 20 + 4 + 21 + 5);
    EXPECT_DOUBLE_EQ(nodes.second, 11);
    EXPECT_DOUBLE_EQ(nodes.expert_weights + nodes.outside_weights, 0);
}

TEST(ExchangeNodes, KeepGradientsOfWeightsApartAndWhatRunsAgainInItsPlace) {
    constexpr LayerGroup kEp = LayerGroup::ep;
    PieceStep again = start(1, 7, kEp);
    again.pass = StepPass::recompute;
    PieceStep until = wait(1, kEp);
    until.pass = StepPass::recompute;
    const ExchangeNodes nodes =
        cut_at_exchanges({op(1, StepPass::input_gradient), start(0, 10, kEp), wait(0, kEp), again, until, product(20, StepPass::recompute),
                          product(21, StepPass::input_gradient), product(22, StepPass::weight_gradient), start(2, 11, kEp), wait(2, kEp),
                          op(2, StepPass::input_gradient), op(3, StepPass::weight_gradient)},
                         written, kFree);
    EXPECT_DOUBLE_EQ(nodes.outside, 1 + 2);
    EXPECT_DOUBLE_EQ(nodes.outside_weights, 3);
    EXPECT_DOUBLE_EQ(nodes.first, 10);
    EXPECT_DOUBLE_EQ(nodes.experts, 7 + 20 + 21);
    EXPECT_DOUBLE_EQ(nodes.expert_weights, 22);
    EXPECT_DOUBLE_EQ(nodes.second, 11);
}

TEST(ExchangeNodes, OfALayerWithoutExchangesAreOutside) {
    const ExchangeNodes nodes = cut_at_exchanges({op(1), product(20), op(2)}, written, kFree);
    EXPECT_DOUBLE_EQ(nodes.outside, 23);
    EXPECT_DOUBLE_EQ(nodes.first + nodes.second + nodes.experts, 0);
}

constexpr ExchangeNodes kForward{.outside = 10, .first = 4, .second = 4, .experts = 20};
constexpr ExchangeNodes kBackward{.outside = 15, .first = 4, .second = 4, .experts = 20, .expert_weights = 20, .outside_weights = 5};

TEST(ShownExchanges, CostWhatTheyTakeFromTheOpsThatHideThem) {
    EXPECT_NEAR(shown_exchanges(kForward, kBackward, false, 0), 0, 1e-9);
    // Four exchanges of 4 s, each beside ops that are longer.
    EXPECT_NEAR(shown_exchanges(kForward, kBackward, false, 0.25), 4 * 4 * 0.25, 1e-9);
    EXPECT_NEAR(shown_exchanges(kForward, kBackward, false, 1), 4 * 4, 1e-9) << "as if nothing hid them";
}

TEST(ShownExchanges, StickOutBehindTheOpsBesideThem) {
    // The backward's combine shows all but the forward's attention; the other three are hidden as before.
    ExchangeNodes backward = kBackward;
    backward.first = 13;
    EXPECT_NEAR(shown_exchanges(kForward, backward, false, 0), 13 - 10, 1e-9);
    // The forward's dispatch stands behind it on their stream and beside the experts' backward.
    ExchangeNodes forward = kForward;
    forward.first = 45;
    EXPECT_NEAR(shown_exchanges(forward, kBackward, false, 0), 45 - 40, 1e-9);
    // The forward's combine beside the attention's backward.
    forward = kForward;
    forward.second = 21;
    EXPECT_NEAR(shown_exchanges(forward, kBackward, false, 0), 21 - 20, 1e-9);
}

TEST(ShownExchanges, OfTheBackwardsDispatchAreHiddenBehindWeightsThatArePutOff) {
    ExchangeNodes backward = kBackward;
    backward.second = 30;
    EXPECT_NEAR(shown_exchanges(kForward, backward, false, 0), 30 - 20, 1e-9) << "the forward's experts alone";
    EXPECT_NEAR(shown_exchanges(kForward, backward, true, 0), 0, 1e-9) << "the weights' gradients too";
}

TEST(UnpairedShare, IsThatOfWarmUpAndCoolDown) {
    EXPECT_DOUBLE_EQ(unpaired_share(1, 1, 8, 1), 1.0 / 8) << "the first forward, the last backward";
    // Rank r of 4 with 3 chunks in groups of 4: 2 (3 - r) + 2 · 4 + 1 forwards, 12 in the mean.
    EXPECT_DOUBLE_EQ(unpaired_share(4, 3, 16, 4), 12.0 / 48);
    EXPECT_DOUBLE_EQ(unpaired_share(4, 3, 4, 4), 1) << "at most all";
}

}  // namespace
}  // namespace mgplan::simulator::exchange_schedule_test
