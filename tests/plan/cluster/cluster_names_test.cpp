// Which cluster a GPU's name means.

#include "plan/cluster/cluster_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"

namespace mgplan::cluster_names_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> of_card(const char* card) {
    return clusters_of_card(card, cluster_presets());
}

TEST(ClusterNames, OfADriverMeanTheWholeNameOfAGpu) {
    EXPECT_THAT(of_card("NVIDIA H100 80GB HBM3"), ElementsAre("dgx-h100"));
    EXPECT_THAT(of_card("NVIDIA H200"), ElementsAre("dgx-h200")) << "no H20";
    EXPECT_THAT(of_card("NVIDIA H20"), ElementsAre("hgx-h20"));
    EXPECT_THAT(of_card("NVIDIA B200"), ElementsAre("dgx-b200"));
    EXPECT_THAT(of_card("NVIDIA GB200"), ElementsAre("gb200-nvl72")) << "no B200";
    EXPECT_THAT(of_card("NVIDIA GB300"), ElementsAre("gb300-nvl72"));
    EXPECT_THAT(of_card("NVIDIA H800"), ElementsAre("dgx-h800"));
    EXPECT_THAT(of_card("NVIDIA L40S"), ElementsAre("l40s"));
}

TEST(ClusterNames, OfOtherBoardsAndMemoriesAreOthers) {
    EXPECT_THAT(of_card("NVIDIA A100-SXM4-80GB"), ElementsAre("dgx-a100-80g"));
    EXPECT_THAT(of_card("NVIDIA A100-SXM4-40GB"), ElementsAre("dgx-a100-40g"));
    EXPECT_THAT(of_card("NVIDIA A100-PCIE-80GB"), ElementsAre("a100-pcie-80g"));
    for (const char* card :
         {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB", "NVIDIA GH200 480GB", "NVIDIA GeForce RTX 4090", ""})
        EXPECT_THAT(of_card(card), IsEmpty()) << card;
}

// What the card measured lies beside its preset, and neither name is in doubt then.
TEST(ClusterNames, AreNotThoseOfCalibratedClusters) {
    std::vector<ClusterSpec> clusters = cluster_presets();
    ClusterSpec measured = load_cluster("dgx-h100");
    measured.name = "h100-80gb-hbm3-measured";
    clusters.push_back(measured);
    EXPECT_THAT(clusters_of_gpu("h100", clusters), Contains("h100-80gb-hbm3-measured")) << "as a preset";
    EXPECT_THAT(clusters_of_card("NVIDIA H100 80GB HBM3", clusters), SizeIs(2));
    clusters.back().calibration.emplace();
    EXPECT_THAT(clusters_of_gpu("h100", clusters), ElementsAre("dgx-h100"));
    EXPECT_THAT(clusters_of_card("NVIDIA H100 80GB HBM3", clusters), ElementsAre("dgx-h100"));
}

}  // namespace
}  // namespace mgplan::cluster_names_test
