#include "formats/hugging_face/config_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"

namespace mgplan::formats::config_text_test {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
    try {
        (void)parse_config(text, "c.json");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(ConfigText, ReadsAByteOrderMark) {
    EXPECT_EQ(parse_config("\xEF\xBB\xBF{\"a\": 1}", "c").at("a"), 1);
}

TEST(ConfigText, ReadsTheNumbersThatPythonWrites) {
    // time_step_limit of NVIDIA's Nemotron-H files is [0.0, Infinity].
    const auto json = parse_config(R"({"time_step_limit": [0.0, Infinity, -Infinity], "a": NaN, "b": "NaN and \" Infinity"})", "c");
    EXPECT_EQ(json.at("time_step_limit")[1], "Infinity");
    EXPECT_EQ(json.at("time_step_limit")[2], "-Infinity");
    EXPECT_EQ(json.at("a"), "NaN") << "a text, so that no number is made of it";
    EXPECT_EQ(json.at("b"), "NaN and \" Infinity") << "texts stay as they are";
    EXPECT_THAT(refusal(R"({"a": Infinities})"), HasSubstr("not valid JSON"));
}

TEST(ConfigText, RefusesCommentsWithTheirLine) {
    EXPECT_THAT(refusal("{\n  // widths\n  \"a\": 1}"), HasSubstr("c.json:2: a comment, which JSON has none of; remove it"));
    EXPECT_THAT(refusal("{\"a\": 1 /* one */}"), HasSubstr("a comment"));
    EXPECT_EQ(refusal(R"({"a": "https://mgplan.example"})"), "accepted");
}

TEST(ConfigText, RefusesFieldsThatStandTwiceWithDifferentValues) {
    EXPECT_THAT(refusal(R"({"hidden_size": 4096, "b": {"hidden_size": 1}, "hidden_size": 2048})"),
                HasSubstr("field \"hidden_size\" stands twice, as 4096 and as 2048; keep one of them"));
    EXPECT_THAT(refusal(R"({"a": [{"b": [1]}, {"b": [1], "b": [2]}]})"), HasSubstr("\"b\" stands twice"));
    EXPECT_EQ(refusal(R"({"a": {"b": [1, {"c": 2}]}, "d": [3, 4], "a": {"b": [1, {"c": 2}]}})"), "accepted");
}

TEST(ConfigText, RefusesWhatIsNoUtf8Json) {
    EXPECT_THAT(refusal("\xFF\xFE{"), HasSubstr("UTF-16"));
    EXPECT_THAT(refusal("{\"a\": 1e400}"), testing::AllOf(HasSubstr("1e400"), testing::Not(HasSubstr("json.exception"))));
}

}  // namespace
}  // namespace mgplan::formats::config_text_test
