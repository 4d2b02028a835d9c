#include "model/layers/expert_bias.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/layers/support.hpp"

namespace mgplan::model {
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
        biases.count(3, rank == 0 ? std::vector<std::int64_t>{4, 1, 0, 5} : std::vector<std::int64_t>{0, 5, 5, 0});
        biases.count(7, {1, 0, 0, 0});
        biases.update(*ranks, 0.5);
        EXPECT_THAT(read(biases.of(3)), ElementsAre(0.5, -0.5, 0, 0));
        EXPECT_THAT(read(biases.of(7)), ElementsAre(-0.5, 0.5, 0.5, 0.5));
        biases.update(*ranks, 0.5);
        EXPECT_THAT(read(biases.of(3)), ElementsAre(0.5, -0.5, 0, 0)) << "counts begin anew";
    });
}

}  // namespace
}  // namespace mgplan::model
