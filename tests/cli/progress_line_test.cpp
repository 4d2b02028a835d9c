#include "cli/progress_line.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace mgplan::cli::progress_line_test {
namespace {

TEST(ProgressLine, IsReplacedAndGoesAway) {
    std::ostringstream out, err;
    Console console{out, err, false, true};
    {
        ProgressLine line(console);
        line.show("1 of 2");
        line.show("2 of 2");
        EXPECT_EQ(err.str(), "\r\x1b[K1 of 2\r\x1b[K2 of 2");
        line.clear();
        EXPECT_EQ(err.str(), "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K");
    }
    EXPECT_EQ(err.str(), "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K") << "cleared once";
    EXPECT_EQ(out.str(), "");
}

TEST(ProgressLine, SaysNothingWhereNobodyWatches) {
    std::ostringstream out, err;
    Console console{out, err};
    ProgressLine(console).show("1 of 2");
    EXPECT_EQ(err.str(), "");
}

}  // namespace
}  // namespace mgplan::cli::progress_line_test
