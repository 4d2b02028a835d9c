#include "model/layers/expert_bias.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/layers/support.hpp"

namespace mgplan::model::expert_bias_test {
namespace {

using testing::ElementsAre;

TEST(ExpertBiases, MoveAgainstTheLoadOfAllRanksAndLayersApart) {
    runtime::InProcessWorld world(2);
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        const auto ranks = world.view(rank).join("tp-dp-cp", std::vector<std::int32_t>{0, 1});
        ExpertBiases biases(device, {3, 7}, 4, Dtype::fp64);
        EXPECT_THAT(read(biases.of(3)), ElementsAre(0, 0, 0, 0));
        // Together 4, 6, 5, 5: the mean is 5.
        Maker maker(device, Dtype::fp64);
        if (rank == 0) {
            biases.count(3, maker.ids({0, 3, 0, 3, 0, 3}, {3, 2}));
            biases.count(3, maker.ids({1, 3, 0, 3}, {2, 2}));
        } else {
            biases.count(3, maker.ids({1, 2, 2, 1, 1, 2, 1, 2, 2, 1}, {5, 2}));
        }
        biases.count(7, maker.ids({0}, {1, 1}));
        biases.update(*ranks, 0.5);
        EXPECT_THAT(read(biases.of(3)), ElementsAre(0.5, -0.5, 0, 0));
        EXPECT_THAT(read(biases.of(7)), ElementsAre(-0.5, 0.5, 0.5, 0.5));
        biases.update(*ranks, 0.5);
        EXPECT_THAT(read(biases.of(3)), ElementsAre(0.5, -0.5, 0, 0)) << "counts begin anew";
    });
}

}  // namespace
}  // namespace mgplan::model::expert_bias_test
