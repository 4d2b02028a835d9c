// `mgplan plan --html`: the page holds what the command prints, and the answer beside it stays the same.

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::plan_page_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

Json data_in(const std::string& html) {
    const std::string begin = "id=\"search\">";
    const auto at = html.find(begin) + begin.size();
    return Json::parse(html.substr(at, html.find("</script>", at) - at));
}

TEST(PlanPage, HoldsTheFamiliesOfTheSearchAndLeavesTheAnswerAsItIs) {
    const std::string job = "plan --world 16 --model llama3-8b --top 3 --format json";
    TempFile page("page.html", "old"), other("other.html");
    const Said plain = say(job), drawn = say(job + " --threads 1 --html " + page.path());
    ASSERT_EQ(drawn.code, kDone) << drawn.err;
    EXPECT_EQ(drawn.err, plain.err);
    const Json answer = Json::parse(drawn.out);
    EXPECT_EQ(answer["plans"], Json::parse(plain.out)["plans"]);
    const std::string html = page.text();
    EXPECT_THAT(html, AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("<title>llama3-8b on 16 GPUs"), EndsWith("</html>\n")));
    EXPECT_LT(html.size(), 2'000'000U);
    const Json columns = data_in(html)["columns"];
    std::int64_t members = 0;
    for (const auto& each : columns["members"]) members += each.get<std::int64_t>();
    const Json& rejected = answer["search"]["rejected"];
    const std::int64_t replayed =
        rejected.contains("fits_in_memory_when_replayed") ? rejected["fits_in_memory_when_replayed"].get<std::int64_t>() : 0;
    EXPECT_GE(members, answer["search"]["feasible"].get<std::int64_t>() + replayed) << "the page also has what bounds keep off the list";
    const Json& best = answer["plans"][0];
    EXPECT_EQ(columns["tp"][0], best["layout"]["tp"]);
    EXPECT_EQ(columns["mbs"][0], best["layout"]["micro_batch"]);
    EXPECT_NEAR(columns["seconds"][0].get<double>(), best["predicted"]["iteration_seconds"].get<double>(), 1e-4);
    for (const char* part : {"Why the first stands first", "does not fit in memory", "id=\"whole-5\"", "id=\"page-5\""})
        EXPECT_THAT(html, HasSubstr(part));
    // The same whatever the threads and the form of the answer.
    ASSERT_EQ(say("plan --world 16 --model llama3-8b --threads 3 --html " + other.path()).code, kDone);
    EXPECT_EQ(data_in(other.text()), data_in(html));
}

TEST(PlanPage, OfAJobThatDoesNotFitNamesTheNearestMisses) {
    TempFile page("nothing.html");
    EXPECT_EQ(say("plan --world 2 --model llama3-70b --html " + page.path()).code, kNothingFits);
    EXPECT_THAT(page.text(), AllOf(HasSubstr("No layout fits"), HasSubstr("would fit with"), Not(HasSubstr("id=\"search\""))));
}

TEST(PlanPage, IsOfOneWorldAndOfAFileThatCanBeWritten) {
    TempFile page("page.html"), study("study.html");
    expect_refused("plan --world 8,16 --model llama3-8b --html " + page.path(), {"--html is for the plans of one world", "give one"});
    EXPECT_EQ(page.text(), "");
    expect_refused("plan --world 16 --model llama3-8b --html /no/such/folder/page.html",
                   {"--html = /no/such/folder/page.html cannot be written"});
    ASSERT_EQ(say("plan --world 8 --model tiny-llama --tokens 1T --html " + study.path()).code, kDone);
    EXPECT_GT(data_in(study.text())["columns"]["tp"].size(), 2U);
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_page_test
