#include "plan/layout/pipeline_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "plan/text/errors.hpp"

namespace mgplan::pipeline_layout_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const std::string& layout) {
    try {
        (void)parse_pipeline_layout(layout);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(PipelineLayout, UnrollsGroupsThenLetters) {
    EXPECT_THAT(parse_pipeline_layout("Et*3|(tt|)*2m,|L"), ElementsAre("Ettt", "tt", "tt", "m", "L"));
    EXPECT_THAT(parse_pipeline_layout("(t*2|)*3L"), ElementsAre("tt", "tt", "tt", "L"));
    EXPECT_THAT(parse_pipeline_layout("E|*3L"), ElementsAre("E", "", "", "L"));
    EXPECT_THAT(parse_pipeline_layout("t*0(t|)*0L"), ElementsAre("L"));
    EXPECT_THAT(parse_pipeline_layout("t*1,2"), ElementsAre(std::string(12, 't')));
    EXPECT_THAT(parse_pipeline_layout(""), ElementsAre(""));
}

TEST(PipelineLayout, PointsAtTheSpotThatDoesNotParse) {
    EXPECT_EQ(message_of("Et|tl"), "pipeline layout: 'l' is no layer; write L for the loss\n    Et|tl\n        ^");
    EXPECT_THAT(message_of("E t|L"), HasSubstr("white space is not allowed; remove it\n    E t|L\n     ^"));
    EXPECT_THAT(message_of("E|t*2*2|L"), HasSubstr("    E|t*2*2|L\n         ^"));
    EXPECT_THAT(message_of("E((t|)*2|)*2L"), HasSubstr("does not hold another group\n    E((t|)*2|)*2L\n      ^"));
    EXPECT_THAT(message_of("E(t|)L"), HasSubstr("a group is written (…)*n"));
    EXPECT_THAT(message_of("*3"), HasSubstr("* stands between"));
    EXPECT_THAT(message_of("E3t|L"), HasSubstr("a number needs a *"));
    EXPECT_THAT(message_of(std::string("E\0L", 3)), HasSubstr("this character is no layer"));
}

TEST(PipelineLayout, RefusesLongExpansionsBeforeMakingThem) {
    EXPECT_THAT(message_of("Et*99999999999999999999999|L"), HasSubstr("expands to more than 65536 layers"));
    EXPECT_THAT(message_of("E(t*60000|)*60000L"), HasSubstr("expands to more than"));
    EXPECT_THAT(message_of("t*65537"), HasSubstr("more than 65536 layers"));
    EXPECT_THAT(message_of("|*65536"), HasSubstr("more than 65536 stages"));
    EXPECT_THAT(message_of(std::string(1'000'000, '(')), HasSubstr("1000000 characters are too many"));
    EXPECT_THAT(message_of(std::string(200'000, '(')), HasSubstr("a group is written"));
    EXPECT_EQ(parse_pipeline_layout("t*65536").front().size(), 65'536U);
}

TEST(PipelineLayout, CompactTextExpandsToTheSameStages) {
    EXPECT_EQ(compact_pipeline_layout({"Ettt", "tt", "tt", "tt", "m", "L"}), "Et*3|(tt|)*3m|L");
    EXPECT_EQ(compact_pipeline_layout({"E", "", "", "", "L"}), "E||*3L");
    EXPECT_EQ(compact_pipeline_layout({"t", "t"}), "t|t");
    rc::check([] {
        const auto stages = *rc::gen::container<std::vector<std::string>>(
            rc::gen::element<std::string>("", "", "t", "tt", "tttt", "Et", "ttm", "L", "tttmmmL"));
        if (stages.empty()) return;
        RC_ASSERT(parse_pipeline_layout(compact_pipeline_layout(stages)) == stages);
    });
}

}  // namespace
}  // namespace mgplan::pipeline_layout_test
