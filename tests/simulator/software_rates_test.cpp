#include "simulator/software_rates.hpp"

#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "simulator/cluster_parameters.hpp"

namespace mgplan::simulator {
namespace {

TEST(SoftwareRates, OlderReleasesLookForLargestValuesApart) {
    const ClusterSpec h100 = load_cluster("dgx-h100");
    EXPECT_FALSE(calibration_of(h100, Software::v25_04).producers_find_amax);
    EXPECT_TRUE(calibration_of(h100, Software::v25_09).producers_find_amax);
    EXPECT_TRUE(calibration_of(h100).producers_find_amax);
}

TEST(SoftwareRates, OlderReleasesCastToNvfp4Twice) {
    const ClusterSpec gb200 = load_cluster("gb200-nvl72");
    EXPECT_EQ(calibration_of(gb200, Software::v26_02_01).nvfp4_casts, 2);
    EXPECT_EQ(calibration_of(gb200, Software::v26_04).nvfp4_casts, 1);
    EXPECT_EQ(calibration_of(gb200).nvfp4_casts, 1);
    EXPECT_EQ(calibration_of(load_cluster("dgx-h100"), Software::v26_02).nvfp4_casts, 1) << "no nvfp4 there";
}

}  // namespace
}  // namespace mgplan::simulator
