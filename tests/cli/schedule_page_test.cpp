// The page of `simulate --html` under schedules with divided backwards: the memory that it draws is that of the schedule that it names.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::schedule_page_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// What the page's script `id` holds.
Json script_of(const std::string& html, const std::string& id) {
    const std::string begin = "id=\"" + id + "\">";
    const auto at = html.find(begin) + begin.size();
    return Json::parse(html.substr(at, html.find("</script>", at) - at));
}

/// The passes under the memory curve, as `mgplan schedule` writes them: F0.3, B1.0, W1.0.
std::vector<std::string> drawn_passes(const Json& steps) {
    const std::map<std::string, std::string> letters{{"forward", "F"}, {"input gradient", "B"}, {"weight gradient", "W"}};
    std::vector<std::string> passes;
    for (const Json& step : steps["steps"]) {
        const std::string text = steps["texts"][step[1].get<std::size_t>()];
        const auto of_chunk = text.find(" of chunk ");
        if (of_chunk == std::string::npos) continue;  // begin and end of the step
        const auto letter = letters.find(text.substr(0, of_chunk));
        const std::string chunk = text.substr(of_chunk + 10, 1);
        passes.push_back((letter == letters.end() ? text : letter->second) + chunk + "." + step[3].dump());
    }
    return passes;
}

std::vector<std::string> scheduled_passes(const std::string& kind, int pp, int microbatches, std::size_t rank) {
    const std::string words = "schedule --pp " + std::to_string(pp) + " --microbatches " + std::to_string(microbatches);
    const Json schedule = Json::parse(say(words + " --kind " + kind + " --format json").out);
    std::vector<std::string> passes;
    for (const Json& op : schedule["ranks"][rank]["ops"])
        passes.push_back(op["op"].get<std::string>() + op["chunk"].dump() + "." + op["microbatch"].dump());
    return passes;
}

TEST(SchedulePage, DrawsTheMemoryOfTheScheduleThatItNames) {
    for (const auto& [kind, pp] : std::vector<std::pair<std::string, int>>{{"zb-h1", 4}, {"zb-h2", 4}, {"zb-v", 2}, {"v-min", 2}}) {
        const TempFile page("schedule_page.html");
        const std::string words = "simulate --model tiny-llama --world " + std::to_string(pp) + " --pp " + std::to_string(pp) +
                                  " --global-batch 8 --micro-batch 1 --per-rank --format json --schedule " + kind;
        const Said said = say(words + " --html " + page.path());
        ASSERT_EQ(said.code, kDone) << said.err;
        const std::string html = page.text();
        EXPECT_THAT(html, HasSubstr("<h2>The pipeline, schedule " + kind + "</h2>"));

        // The curve is the fullest rank's, pass by pass, up to the peak that --per-rank has.
        const Json ranks = Json::parse(said.out)["ranks"], steps = script_of(html, "steps");
        const auto peak = [](const Json& rank) { return rank["memory"]["peak_bytes"].get<std::int64_t>(); };
        std::size_t fullest = 0;
        for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
            if (peak(ranks[rank]) > peak(ranks[fullest])) fullest = rank;
        }
        EXPECT_EQ(drawn_passes(steps), scheduled_passes(kind, pp, 8, fullest)) << kind;
        std::int64_t highest = 0;
        for (const Json& step : steps["steps"]) {
            std::int64_t bytes = 0;
            for (std::size_t area = 4; area < step.size(); ++area) bytes += step[area].get<std::int64_t>();
            highest = std::max(highest, bytes);
        }
        EXPECT_EQ(highest, peak(ranks[fullest])) << kind;
    }
}

TEST(SchedulePage, SaysWhoseMemoryItDrawsBesideAScheduleThatOnlyTimeIsReplayedOf) {
    const TempFile page("replayed_page.html");
    const std::string words = "simulate --engine mgplan --model tiny-llama --world 4 --pp 4 --global-batch 8 --micro-batch 1 --kind zb-h1";
    ASSERT_EQ(say(words + " --html " + page.path()).code, kDone);
    const std::string html = page.text();
    EXPECT_THAT(html, HasSubstr("<h2>The pipeline, schedule zb-h1</h2>"));
    EXPECT_THAT(html, HasSubstr("the memory of schedule 1f1b (of zb-h1, the activations follow peak_live)"));
    EXPECT_THAT(script_of(html, "steps")["texts"].dump(), Not(HasSubstr("weight gradient")));
}

}  // namespace
}  // namespace mgplan::cli::testing::schedule_page_test
