// Splits that follow the work of the layers.

#include "plan/layout/balanced_split.hpp"

#include <gtest/gtest.h>

namespace mgplan::balanced_split_test {
namespace {

/// The layout string that balances the automatic split of a model; "-" if that one stays.
std::string balanced(const StageLoads& loads, int pp, int vpp, std::int64_t mtp_layers = 0) {
    const auto automatic = automatic_stage_split(static_cast<std::int64_t>(loads.layers.size()), mtp_layers, pp, vpp);
    const auto split = balanced_stage_split(*automatic, loads);
    return split ? *split->request().pipeline_layout : "-";
}

TEST(BalancedSplit, TakesLayersFromTheRankWithTheLoss) {
    // Even: 16 and 16 + 2.4. One layer less there: 17 and 17.4; another would make 18 and 16.4.
    EXPECT_EQ(balanced({std::vector<double>(32, 1.0), 0, 2.4}, 2, 1), "Et*17|t*15L");
    // Chunks of 4: the last one holds the loss and gives.
    EXPECT_EQ(balanced({std::vector<double>(32, 1.0), 0, 2.4}, 2, 4), "Et*4|(t*4|)*5t*5|t*3L");
    EXPECT_EQ(balanced({std::vector<double>(32, 1.0), 0, 0.9}, 2, 1), "-") << "a layer moved gains nothing";
    EXPECT_EQ(balanced({std::vector<double>(32, 1.0), 0, 2.4}, 1, 1), "-");
}

TEST(BalancedSplit, KnowsLightLayersAndPredictionLayers) {
    // Layers of 0.5, 0.5, 1 …: even 4 + 4 hold 3 and 4 + 1.5; with one layer moved 4 and 4.5.
    EXPECT_EQ(balanced({{0.5, 0.5, 1, 1, 1, 1, 1, 1}, 0.5, 1}, 2, 1, 1), "Et*5|t*3mL");
}

}  // namespace
}  // namespace mgplan::balanced_split_test
