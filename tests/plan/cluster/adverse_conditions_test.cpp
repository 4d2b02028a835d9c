// Conditions of the adverse time in words.

#include "plan/cluster/adverse_conditions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"

namespace mgplan::adverse_conditions_test {
namespace {

using ::testing::ElementsAre;

TEST(AdverseConditions, ArePublishedOnesUnlessStated) {
    const AdverseConditions published = published_adverse_conditions();
    EXPECT_LT(published.network, 1);
    EXPECT_GT(published.host, 1);
    EXPECT_GT(published.routing, 0);
    EXPECT_EQ(parse_adverse_conditions("host=2"), (AdverseConditions{published.network, 2, published.routing}));
    EXPECT_EQ(parse_adverse_conditions("network=0.5,host=1,routing=0"), (AdverseConditions{0.5, 1, 0}));
}

TEST(AdverseConditions, NameAllProblems) {
    try {
        (void)parse_adverse_conditions("net=1,host=x,network=0,routing");
        FAIL() << "no problem was found";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.problems(),
                    ElementsAre("--adverse: 'net=1' is no condition; write network=SHARE, host=FACTOR or routing=EXPONENT",
                                "--adverse: host = 'x' is no number from 0.1 to 10; write one, as in host=0.7",
                                "--adverse: network = '0' is no number from 0.01 to 10; write one, as in network=0.7",
                                "--adverse: 'routing' is no condition; write network=SHARE, host=FACTOR or routing=EXPONENT"));
    }
}

}  // namespace
}  // namespace mgplan::adverse_conditions_test
