#include "plan/training/software.hpp"

#include <gtest/gtest.h>

namespace mgplan {
namespace {

TEST(Software, NamesItsReleasesInOrder) {
    for (int i = 0; i <= static_cast<int>(kNewestSoftware); ++i) {
        const auto release = static_cast<Software>(i);
        EXPECT_EQ(parse_software(to_string(release)), release);
        EXPECT_NE(known_software().find(to_string(release)), std::string::npos);
    }
    EXPECT_EQ(to_string(kNewestSoftware), "26.08");
    EXPECT_EQ(parse_software("26.4"), std::nullopt);
    EXPECT_EQ(parse_software(""), std::nullopt);
}

TEST(Software, KnowsTheReleaseNearestInTime) {
    EXPECT_EQ(nearest_software("25.08"), Software::v25_09);
    EXPECT_EQ(nearest_software("26.01"), Software::v26_02);
    EXPECT_EQ(nearest_software("26.02.02"), Software::v26_02_01);
    EXPECT_EQ(nearest_software("24.01"), Software::v25_04);
    EXPECT_EQ(nearest_software("27.03"), Software::v26_08);
    EXPECT_EQ(nearest_software("yesterday"), kNewestSoftware);
    EXPECT_EQ(nearest_software("26.x"), kNewestSoftware);
    EXPECT_EQ(nearest_software("99999999999999999999.1"), kNewestSoftware);
}

}  // namespace
}  // namespace mgplan
