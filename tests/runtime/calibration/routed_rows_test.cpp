// Rows of experts as a calibration multiplies them.

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "runtime/calibration/traced_work.hpp"

namespace mgplan::runtime::routed_rows_test {
namespace {

TEST(RoutedRows, AddUpToTheSameAndStayNearTheirMean) {
    for (const std::int64_t groups : {1, 2, 7, 64}) {
        for (const std::int64_t mean : {0, 1, 5, 512}) {
            for (std::int64_t call = 0; call < 50; ++call) {
                const auto rows = routed_rows(groups, mean, call);
                ASSERT_EQ(std::ssize(rows), groups);
                EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), groups * mean);
                const auto [least, most] = std::ranges::minmax(rows);
                EXPECT_GE(least, mean - mean / 8 - 1);
                EXPECT_LE(most, mean + mean / 8 + 1);
            }
        }
    }
}

TEST(RoutedRows, AreOtherOnesAtEachCall) {
    std::set<std::vector<std::int64_t>> seen;
    for (std::int64_t call = 0; call < 50; ++call) seen.insert(routed_rows(64, 512, call));
    EXPECT_EQ(seen.size(), 50U);
}

}  // namespace
}  // namespace mgplan::runtime::routed_rows_test
