// `mgplan plan --headroom`: it narrows the search of plan alone.

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::plan_headroom_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = "plan --world 16 --model llama3-8b --global-batch 128 --search plain --exhaustive ";

Json plan(const std::string& options) {
    const Said said = say(kJob + "--format json " + options);
    EXPECT_EQ(said.code, kDone) << said.err;
    return Json::parse(said.out);
}

std::int64_t peak(const Json& plan) {
    return plan["predicted"]["memory"]["peak_bytes"];
}

TEST(PlanHeadroom, LeavesThatMuchFreeOfACardThatStaysWhole) {
    const Json all = plan("--headroom 0"), narrow = plan("--headroom 50%");
    const std::int64_t card = all["search"]["limit_bytes"];
    EXPECT_EQ(all["plans"][0]["predicted"]["memory"]["limit_bytes"], card);
    ASSERT_GT(peak(all["plans"][0]), card / 2);
    EXPECT_EQ(narrow["search"]["limit_bytes"], card - std::llround(0.5 * static_cast<double>(card)));
    EXPECT_EQ(narrow["search"]["headroom_missed"], false);
    EXPECT_LT(narrow["search"]["feasible"], all["search"]["feasible"]);
    for (const Json& each : narrow["plans"]) {
        EXPECT_LE(peak(each), card / 2);
        EXPECT_EQ(each["predicted"]["memory"]["limit_bytes"], card);
    }
    // What may be used exactly is the same search.
    const Json exact = plan(fmt::format("--max-memory {}B", narrow["search"]["limit_bytes"].get<std::int64_t>()));
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(exact["plans"][i]["layout"], narrow["plans"][i]["layout"]);
    EXPECT_EQ(plan("--headroom 0.5")["search"]["limit_bytes"], narrow["search"]["limit_bytes"]);
    EXPECT_EQ(plan("--headroom 4GiB")["search"]["limit_bytes"], card - (std::int64_t{4} << 30));
}

TEST(PlanHeadroom, IsFivePercentOfTheCardWhereNothingIsSaid) {
    const Json usual = plan("--top 10");
    const std::int64_t card = usual["cluster"]["memory_bytes"], limit = usual["search"]["limit_bytes"];
    EXPECT_EQ(limit, card - std::llround(0.05 * static_cast<double>(card)));
    EXPECT_THAT(usual["assumed"].dump(), HasSubstr("headroom of 5%"));
    for (const Json& each : usual["plans"]) {
        const Json& memory = each["predicted"]["memory"];
        EXPECT_EQ(memory["free_bytes"].get<std::int64_t>(), card - peak(each));
        EXPECT_GE(memory["free_bytes"].get<std::int64_t>(), card - limit);
    }
    EXPECT_THAT(plan("--headroom 5%")["assumed"].dump(), Not(HasSubstr("headroom")));
    const Json exact = plan("--max-memory 79GiB");
    EXPECT_EQ(exact["search"]["limit_bytes"], std::int64_t{79} << 30);
    EXPECT_THAT(exact["assumed"].dump(), Not(HasSubstr("headroom")));
    // Only the search of plan is narrowed: the whole card decides elsewhere.
    const Said full = say("simulate --world 16 --model llama3-8b --global-batch 128 --format json");
    EXPECT_EQ(full.code, kDone);
    const Json memory = Json::parse(full.out)["predicted"]["memory"];
    EXPECT_GT(memory["peak_bytes"].get<std::int64_t>(), limit);
    EXPECT_EQ(memory["free_bytes"].get<std::int64_t>(), card - memory["peak_bytes"].get<std::int64_t>());
}

TEST(PlanHeadroom, WhereNothingLeavesItThePlansOfTheWholeCardAreShown) {
    const Json all = plan("--headroom 0"), missed = plan("--headroom 78GiB");
    EXPECT_EQ(missed["search"]["headroom_missed"], true);
    EXPECT_EQ(missed["search"]["limit_bytes"], all["search"]["limit_bytes"]);
    EXPECT_EQ(missed["plans"], all["plans"]);
    const Said table = say(kJob + "--headroom 78GiB");
    EXPECT_EQ(table.code, kDone);
    EXPECT_THAT(table.out, HasSubstr("Nothing leaves the headroom free; these plans fit the whole GPU."));
    const Said narrow = say(kJob + "--headroom 4GiB");
    EXPECT_THAT(narrow.out, HasSubstr("fit in 75.2 GiB per GPU, headroom 4.0 GiB\n"));
    EXPECT_THAT(narrow.out, Not(HasSubstr("Nothing leaves")));
    EXPECT_EQ(say("plan --world 2 --model llama3-70b --headroom 4GiB").code, kNothingFits);
}

TEST(PlanHeadroom, IsTheReasonWhyAComparedLayoutHasNoPlace) {
    TempFile fullest("fullest.json");
    ASSERT_EQ(say(kJob + "--save-plan " + fullest.path()).code, kDone);
    const Said said = say(kJob + "--headroom 50% --compare " + fullest.path());
    EXPECT_THAT(said.out, HasSubstr("it fits, but does not leave the headroom of the search"));
    const Json compared = plan("--headroom 50% --compare " + fullest.path())["compared"];
    EXPECT_TRUE(compared["rank"].is_null());
    EXPECT_TRUE(compared["fits"].get<bool>());
}

TEST(PlanHeadroom, IsDrawnOnThePageAndKeptInAStudy) {
    TempFile page("headroom.html");
    ASSERT_EQ(say(kJob + "--headroom 4GiB --html " + page.path()).code, kDone);
    EXPECT_THAT(page.text(), HasSubstr("headroom: 4.0 GiB of each GPU stay free"));
    EXPECT_THAT(page.text(), HasSubstr("\"searched\":"));
    const Json study = plan("--tokens 1T --headroom 50%");
    EXPECT_LE(peak(study["plans"][0]), study["search"]["limit_bytes"].get<std::int64_t>());
}

TEST(PlanHeadroom, RefusesWhatIsNoShareOfACard) {
    for (const char* bad : {"5", "100%", "-1%", "much", "1.5", "%"})
        expect_refused(kJob + "--headroom=" + bad, {fmt::format("--headroom = '{}' is neither", bad), "write 4GiB, 5% or 0.05"});
    expect_refused(kJob + "--headroom 80GiB", {"--headroom = 80GiB leaves nothing of the 79.2 GiB", "give less"});
    expect_refused(kJob + "--headroom 4GiB --max-memory 60GiB", {"--headroom = 4GiB", "drop one of them"});
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_headroom_test
