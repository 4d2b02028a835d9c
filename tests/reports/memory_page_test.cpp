// The page is text: its shapes are read back and held against the timeline.

#include "reports/memory_page.hpp"

#include <cmath>
#include <cstdlib>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "page_reader.hpp"
#include "reports/html_page.hpp"
#include "small_timeline.hpp"

namespace mgplan::reports::memory_page_test {
namespace {

using testing::between;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SmallTimeline;
using Json = nlohmann::json;

std::string memory_page(const MemoryPage& page, const std::optional<MemoryCurve>& curve) {
    return html_page("a <model> & more", {"tp1 \"quoted\""}, memory_section(page, curve));
}

MemoryPage page_of(const SmallTimeline& small, std::int64_t limit) {
    MemoryPage page;
    page.stages = {small.stage};
    page.limit_bytes = limit;
    return page;
}

Json steps_in(const std::string& html) {
    return Json::parse(between(html, "id=\"steps\">", "</script>"));
}

/// y of every point of an area, in the order drawn.
std::vector<double> heights_in(const std::string& html, const std::string& area) {
    const std::string path = between(html, "id=\"area-" + area + "\" style=\"fill: var(--" + area + ")\" d=\"", "\"");
    std::vector<double> found;
    const std::regex point("[ML][0-9.]+ ([0-9.]+)");
    for (std::sregex_iterator at(path.begin(), path.end(), point), end; at != end; ++at) found.push_back(std::stod((*at)[1]));
    return found;
}

constexpr double kTop = 34, kGround = 396;  // of the plot

double y_of(std::int64_t bytes, std::int64_t top) {
    return kTop + (kGround - kTop) * (1 - static_cast<double>(bytes) / static_cast<double>(top));
}

TEST(MemoryPageText, StacksTheCategoriesOfEveryOp) {
    const SmallTimeline small;
    constexpr std::int64_t kLimit = 1400;
    const std::string html = memory_page(page_of(small, kLimit), small.curve(kLimit));
    // From below: context 30, parameters 600, optimizer 400, activations, with scratch below them.
    const auto all = heights_in(html, "activations"), workspace = heights_in(html, "workspace"),
               parameters = heights_in(html, "parameters");
    ASSERT_EQ(all.size(), 2U + 2 * 10);  // where it starts, two points a step, where it ends
    std::size_t i = 1;
    const auto expect = [&](const simulator::TimelineOp& op) {
        EXPECT_NEAR(all[i], y_of(op.live + 30, kLimit), 0.06);
        EXPECT_NEAR(all[i + 1], y_of(op.peak + 30, kLimit), 0.06);
        const std::int64_t activations = op.at_peak[static_cast<std::size_t>(model::MemoryCategory::activations)];
        EXPECT_NEAR(workspace[i + 1], y_of(op.peak + 30 - activations, kLimit), 0.06);
        EXPECT_NEAR(parameters[i], y_of(630, kLimit), 0.06);
        i += 2;
    };
    expect(small.timeline.memory.begin);
    for (const auto& op : small.timeline.memory.ops) expect(op);
    expect(small.timeline.memory.end);
    EXPECT_NEAR(all.front(), kGround, 0.06);
    // The whole is painted first, then what lies below it.
    EXPECT_LT(html.find("id=\"area-activations\""), html.find("id=\"area-workspace\""));
    EXPECT_LT(html.find("id=\"area-workspace\""), html.find("id=\"area-other\""));
}

TEST(MemoryPageText, MarksThePeakAndTheLimit) {
    const SmallTimeline small;
    const std::string html = memory_page(page_of(small, 1400), small.curve(1400));
    const std::string circle = between(html, "<circle class=\"peak\"", "/>");
    EXPECT_NEAR(std::stod(between(circle, "cy=\"", "\"")), y_of(1280, 1400), 0.06);
    EXPECT_NEAR(std::stod(between(circle, "cx=\"", "\"")), 84 + 900 * 3.5 / 10, 0.06);
    EXPECT_THAT(html, HasSubstr("peak 1.2 KiB, op 3: backward of chunk 0, microbatch 0: scratch"));
    EXPECT_THAT(html, HasSubstr("class=\"limit\" x1=\"84.0\" x2=\"984.0\" y1=\"34.0\""));
    EXPECT_THAT(html, HasSubstr("limit 1.4 KiB"));
    const std::string far = memory_page(page_of(small, 1 << 20), small.curve(1 << 20));
    EXPECT_THAT(far, Not(HasSubstr("class=\"limit\"")));
    EXPECT_THAT(far, HasSubstr("limit of 1.0 MiB lies far above"));
}

TEST(MemoryPageText, TellsTheScriptEveryStep) {
    const SmallTimeline small;
    const Json data = steps_in(memory_page(page_of(small, 1400), small.curve(1400)));
    ASSERT_EQ(data["steps"].size(), 10U);
    const auto& row = data["steps"][4];  // F2 behind B0
    EXPECT_EQ(row[0], 4);
    EXPECT_EQ(data["texts"][row[1].get<std::size_t>()], "forward of chunk 0, microbatch #");
    EXPECT_EQ(data["tensors"][row[2].get<std::size_t>()], "output <of> & \"layer\"");
    EXPECT_EQ(row[3], 2);
    ASSERT_EQ(row.size(), 4 + data["areas"].size());
    EXPECT_EQ(row[4], 30);
    std::int64_t sum = 0;
    for (std::size_t i = 4; i < row.size(); ++i) sum += row[i].get<std::int64_t>();
    EXPECT_EQ(sum, small.timeline.memory.ops[3].peak + 30);
}

TEST(MemoryPageText, LetsNoTextBecomeMarkup) {
    const SmallTimeline small;
    const std::string html = memory_page(page_of(small, 1400), small.curve(1400));
    EXPECT_THAT(html, HasSubstr("<h1>a &lt;model&gt; &amp; more</h1>"));
    EXPECT_THAT(html, HasSubstr("tp1 &quot;quoted&quot;"));
    EXPECT_THAT(html, HasSubstr("\\u003cof>"));
    EXPECT_THAT(html, Not(HasSubstr("<of>")));
}

TEST(MemoryPageText, LoadsNothingAndFollowsLightAndDark) {
    const SmallTimeline small;
    const std::string html = memory_page(page_of(small, 1400), small.curve(1400));
    for (const char* outside : {"http:", "https:", "//cdn", "src=", "href=", "@import", "url("}) EXPECT_THAT(html, Not(HasSubstr(outside)));
    EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(html, HasSubstr("color-scheme: light dark"));
}

TEST(MemoryPageText, StaysSmallAndDrawsEverySlopeOfALongSchedule) {
    const SmallTimeline small(8192, 142);
    const std::string html = memory_page(page_of(small, 1400), small.curve(20000));
    EXPECT_LT(html.size(), 2'000'000U);
    const Json data = steps_in(html);
    EXPECT_LE(data["steps"].size(), 1200U);
    EXPECT_THAT(html, HasSubstr("16,384 forwards and backwards are drawn as"));
    // Step by step from the first forward on.
    for (std::int64_t i = 0; i < 280; ++i) EXPECT_EQ(data["steps"][static_cast<std::size_t>(i)][0], i);
    EXPECT_THAT(html, HasSubstr("class=\"cut\""));
}

TEST(MemoryPageText, SaysWhyThereIsNoPictureAndShowsTheStagesAllTheSame) {
    const SmallTimeline small;
    MemoryPage page = page_of(small, 1400);
    page.why_no_curve = "engine <x> has none";
    page.stages.front().peak_op.reset();
    const std::string html = memory_page(page, std::nullopt);
    EXPECT_THAT(html, HasSubstr("<p>engine &lt;x&gt; has none</p>"));
    EXPECT_THAT(html, Not(HasSubstr("<svg")));
    EXPECT_THAT(html, HasSubstr("<th>parameters</th>"));
    EXPECT_THAT(html, HasSubstr("not known"));
}

}  // namespace
}  // namespace mgplan::reports::memory_page_test
