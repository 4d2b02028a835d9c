// The parts of the page beside memory, read back and held against what they draw.

#include "reports/iteration_page.hpp"

#include <algorithm>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "page_reader.hpp"
#include "reports/html_page.hpp"
#include "reports/prediction_json.hpp"

namespace mgplan::reports::iteration_page_test {
namespace {

using ::testing::AllOf;
using testing::between;
using testing::first_broken_element;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

/// A pipeline in which rank r runs its forwards of one second from the r-th second on, one behind the other, and then its
/// backwards of two; behind all of them an optimizer of half a second.
simulator::PipelinePicture picture_of(int ranks, int chunks, int microbatches) {
    simulator::PipelinePicture picture;
    picture.ranks = ranks;
    picture.chunks = chunks;
    for (int rank = 0; rank < ranks; ++rank) {
        double at = rank;
        for (const Pass pass : {Pass::forward, Pass::backward}) {
            for (int i = 0; i < microbatches * chunks; ++i) {
                const double end = at + (pass == Pass::forward ? 1 : 2);
                picture.passes.push_back(
                    {at, end, i / chunks, static_cast<std::uint16_t>(rank), static_cast<std::uint16_t>(i % chunks), pass});
                at = end;
            }
        }
        picture.optimizer_begin = std::max(picture.optimizer_begin, at);
    }
    picture.optimizer.assign(static_cast<std::size_t>(ranks), 0.5);
    picture.gather.assign(static_cast<std::size_t>(ranks), 0);
    return picture;
}

struct Box {
    double x, y, width;
};

std::vector<Box> boxes(const std::string& html, const std::string& style) {
    const std::string path = between(html, "<path style=\"fill: var(--" + style + ")\" d=\"", "\"");
    std::vector<Box> found;
    const std::regex box("M([0-9.]+) ([0-9.]+)h([0-9.]+)v");
    for (std::sregex_iterator at(path.begin(), path.end(), box), end; at != end; ++at)
        found.push_back({std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3])});
    return found;
}

TEST(PipelineSection, DrawsEveryPassWhereItRan) {
    // Two ranks, three microbatches: 1 + 3 + 6 seconds and half a one, on 932 units from 64.
    const std::string html = pipeline_section(picture_of(2, 1, 3), "1f1b");
    const double second = 932 / 10.5;
    const auto forwards = boxes(html, "forward"), backwards = boxes(html, "backward"), updates = boxes(html, "optimizer");
    ASSERT_EQ(forwards.size(), 6U);
    ASSERT_EQ(backwards.size(), 6U);
    ASSERT_EQ(updates.size(), 2U);
    for (const Box& box : forwards) EXPECT_NEAR(box.width, second - 0.5, 0.02);
    for (const Box& box : backwards) EXPECT_NEAR(box.width, 2 * second - 0.5, 0.02);
    for (const Box& box : updates) EXPECT_NEAR(box.x, 64 + 10 * second, 0.02);
    EXPECT_NEAR(forwards.front().x, 64, 0.02);
    // The second rank's first forward follows the first's.
    const auto below = std::find_if(forwards.begin(), forwards.end(), [&](const Box& box) { return box.y > forwards.front().y; });
    ASSERT_NE(below, forwards.end());
    EXPECT_NEAR(below->x, 64 + second, 0.02);
    const Json data = Json::parse(between(html, "id=\"passes\">", "</script>"));
    ASSERT_EQ(data.size(), 1U);
    ASSERT_EQ(data[0]["rows"].size(), 2U);
    EXPECT_EQ(data[0]["rows"][0].size(), 1U + 6);
    EXPECT_EQ(data[0]["rows"][0][1].dump(), "[0.0,1.0,0,0,0]");
    EXPECT_EQ(first_broken_element(html), "");
}

TEST(PipelineSection, DrawsPairsAboveEachOther) {
    simulator::PipelinePicture picture = picture_of(1, 1, 2);  // F 0-1, F 1-2, B 2-4, B 4-6
    EXPECT_THAT(pipeline_section(picture, "none"), Not(HasSubstr("above a backward")));
    for (const std::size_t joined : {1U, 2U}) {
        picture.passes[joined].begin = 1;
        picture.passes[joined].end = 4;
        picture.passes[joined].paired = true;
    }
    const std::string html = pipeline_section(picture, "none");
    const auto forwards = boxes(html, "forward"), backwards = boxes(html, "backward");
    ASSERT_EQ(forwards.size(), 2U);
    ASSERT_EQ(backwards.size(), 2U);
    EXPECT_DOUBLE_EQ(forwards[1].x, backwards[0].x);
    EXPECT_DOUBLE_EQ(forwards[1].width, backwards[0].width);
    EXPECT_LT(forwards[1].y, backwards[0].y);
    EXPECT_DOUBLE_EQ(forwards[1].y, forwards[0].y);
    EXPECT_DOUBLE_EQ(backwards[1].y, forwards[0].y) << "alone: the whole height";
    EXPECT_THAT(html, HasSubstr("above a backward"));
    const Json data = Json::parse(between(html, "id=\"passes\">", "</script>"));
    EXPECT_EQ(data[0]["rows"][0][2].dump(), "[1.0,4.0,0,1,0,1]");
    EXPECT_EQ(first_broken_element(html), "");
}

TEST(PipelineSection, OfALongIterationDrawsBothEndsAndTheWhole) {
    const std::string html = pipeline_section(picture_of(16, 8, 512), "<interleaved>");
    EXPECT_LT(html.size(), 2'500'000U);
    EXPECT_GT(boxes(html, "forward").size(), 1000U);
    EXPECT_THAT(html, HasSubstr("131,072 passes are too many"));
    EXPECT_THAT(html, HasSubstr("id=\"pipeline-whole\""));
    EXPECT_THAT(html, HasSubstr("The begin: "));
    EXPECT_THAT(html, HasSubstr("The end: "));
    EXPECT_THAT(html, HasSubstr("&lt;interleaved&gt;"));
    const Json data = Json::parse(between(html, "id=\"passes\">", "</script>"));
    ASSERT_EQ(data.size(), 2U);
    std::size_t passes = 0;
    for (const Json& panel : data) {
        for (const Json& row : panel["rows"]) passes += row.size() - 1;
    }
    EXPECT_GT(passes, kMostDrawnPasses / 2);
    EXPECT_LT(passes, kMostDrawnPasses * 2);
    EXPECT_EQ(first_broken_element(html), "");
}

TEST(PipelineSection, OfManyRanksDrawsTheFirstAndLast) {
    const std::string html = pipeline_section(picture_of(100, 1, 4), "1f1b");
    EXPECT_THAT(html, HasSubstr("Of 100 pipeline ranks the first and last 32 are drawn."));
    const Json data = Json::parse(between(html, "id=\"passes\">", "</script>"));
    ASSERT_EQ(data[0]["rows"].size(), 64U);
    EXPECT_EQ(data[0]["rows"][31][0], 31);
    EXPECT_EQ(data[0]["rows"][32][0], 68);
}

simulator::Prediction prediction() {
    simulator::Prediction made;
    made.time.iteration_seconds = 10;
    made.time.compute_seconds = 7;
    made.time.recompute_seconds = 1;
    made.time.host_seconds = 2;
    made.time.bubble_seconds = 1.5;
    made.time.exposed.tp = 0.5;
    made.time.exposed.dp = 0.25;
    made.time.optimizer_seconds = 0.25;
    made.time.mfu = 0.5;
    made.memory.limit_bytes = 1 << 30;
    made.memory.worst.breakdown.parameters = 1 << 29;
    return made;
}

TEST(TimeSection, SharesSumToTheIterationAndTheFiguresAreThoseOfTheJson) {
    const std::string html = time_section(prediction());
    const std::string bar = between(html, "id=\"parts\"", "</svg>");
    const std::regex width("width=\"([0-9.]+)\" height=\"26\"");
    double sum = 0;
    std::size_t count = 0;
    for (std::sregex_iterator at(bar.begin(), bar.end(), width), end; at != end; ++at, ++count) sum += std::stod((*at)[1]);
    EXPECT_EQ(count, 8U);  // one is data, scheduler, logging
    EXPECT_NEAR(sum, 1000, 0.1);
    EXPECT_THAT(html, HasSubstr("<td>exposed tp</td><td>0.500000</td>"));
    EXPECT_THAT(html, HasSubstr("<td>compute</td><td>4.000000</td>"));
    EXPECT_THAT(html, HasSubstr("<td>waiting for kernel launches</td><td>2.000000</td>"));
    EXPECT_THAT(html, Not(HasSubstr("exposed cp")));
    EXPECT_EQ(Json::parse(between(html, "id=\"prediction\">", "</script>")), prediction_to_json(prediction()));
    EXPECT_EQ(first_broken_element(html), "");
    EXPECT_EQ(first_broken_element(figures_section(prediction())), "");
    EXPECT_THAT(figures_section(prediction()), HasSubstr("<b>50.0 %</b>"));
}

TEST(TimeSection, ListsModulesTheLongestFirstWithTheirRates) {
    simulator::Prediction made = prediction();
    EXPECT_THAT(time_section(made), Not(HasSubstr("id=\"modules\"")));
    made.time.modules[simulator::ComputeModule::attention_core] = {.seconds = 1, .flops = 4e14, .bytes = 2e11};
    made.time.modules[simulator::ComputeModule::dense_mlp] = {.seconds = 4, .flops = 2e15};
    made.time.modules[simulator::ComputeModule::host] = {.seconds = 2};
    const std::string html = time_section(made), table = between(html, "id=\"modules\"", "</table>");
    const auto mlp = table.find("<tr><td>dense MLP</td><td>4.0000</td>"), core = table.find("<tr><td>attention core</td><td>1.0000</td>"),
               host = table.find("<tr><td>host</td><td>2.0000</td>");
    EXPECT_LT(mlp, host);
    EXPECT_LT(host, core);
    EXPECT_LT(core, table.size());
    EXPECT_THAT(table, HasSubstr("<td>57.1 %</td><td>500</td><td>-</td>"));
    EXPECT_THAT(table, HasSubstr("<td>14.3 %</td><td>400</td><td>200</td>"));
    EXPECT_THAT(table, HasSubstr("<td>28.6 %</td><td>-</td><td>-</td>"));
    EXPECT_THAT(table, Not(HasSubstr("experts")));
    EXPECT_EQ(first_broken_element(html), "");
}

/// Widths of a bar's parts in percent.
std::vector<double> widths_in(const std::string& html, const std::string& id) {
    const std::string bar = between(between(html, "id=\"" + id + "\"", "</p></div>"), "class=\"stacked\"", "</div>");
    const std::regex width("width: ([0-9.]+)%");
    std::vector<double> widths;
    for (std::sregex_iterator at(bar.begin(), bar.end(), width), end; at != end; ++at) widths.push_back(std::stod((*at)[1]));
    return widths;
}

TEST(FiguresSection, DrawsMemoryByCategoryAndComputeByModule) {
    simulator::Prediction made = prediction();
    EXPECT_THAT(figures_section(made), Not(HasSubstr("module-bar"))) << "modules that are not counted";
    made.memory.worst.breakdown = {.parameters = 512 << 20, .activations = 256 << 20, .context = 1 << 20};
    made.time.compute_seconds = 4;
    made.time.modules[simulator::ComputeModule::attention_core] = {.seconds = 1};
    made.time.modules[simulator::ComputeModule::dense_mlp] = {.seconds = 3};
    std::string html = figures_section(made);
    EXPECT_EQ(widths_in(html, "memory-bar"), (std::vector<double>{50, 25})) << "of the GPU's 1 GiB; the context is too small to be seen";
    EXPECT_EQ(widths_in(html, "module-bar"), (std::vector<double>{75, 25}));
    EXPECT_THAT(html,
                AllOf(HasSubstr("parameters 512.0 MiB"), HasSubstr("memory of rank 0: 769.0 MiB of 1.0 GiB"), HasSubstr("dense MLP 3.0")));
    EXPECT_EQ(first_broken_element(html), "");
    made.memory.worst.breakdown.activations = 1536 << 20;
    made.memory.worst.breakdown.context = 0;
    EXPECT_EQ(widths_in(figures_section(made), "memory-bar"), (std::vector<double>{25, 75})) << "beyond the GPU's memory: of the peak";
}

Layout layout_of(std::int64_t world, std::int64_t tp, std::int64_t ep, std::int64_t pp) {
    Layout layout;
    layout.sizes.world = world;
    layout.sizes.tp = tp;
    layout.sizes.ep = ep;
    layout.sizes.pp = pp;
    return layout;
}

std::size_t ranks_in(const std::string& html) {
    std::size_t count = 0;
    for (auto at = html.find("class=\"rank\""); at != std::string::npos; at = html.find("class=\"rank\"", at + 1)) ++count;
    return count;
}

TEST(GroupsSection, DrawsEveryRankAndListsItsAxes) {
    const std::string html = groups_section(layout_of(16, 2, 1, 2), 8);
    EXPECT_EQ(ranks_in(html), 16U);
    EXPECT_THAT(html, HasSubstr("<tr><td>tp</td><td>2</td><td>1</td><td>8</td><td>0 1</td></tr>"));
    EXPECT_THAT(html, HasSubstr("<tr><td>dp</td><td>4</td><td>2</td><td>4</td><td>0 2 4 6</td></tr>"));
    EXPECT_THAT(html, HasSubstr("<tr><td>pp</td><td>2</td><td>8</td><td>8</td><td>0 8</td></tr>"));
    EXPECT_EQ(Json::parse(between(html, "id=\"groups\">", "</script>")).dump(), R"([["tp",2,1],["dp",4,2],["pp",2,8]])");
    EXPECT_EQ(first_broken_element(html), "");
    // The first rank's stage has another colour than the last's.
    EXPECT_THAT(html, HasSubstr("hsl(210 "));
    EXPECT_THAT(html, HasSubstr("hsl(375 "));
}

TEST(GroupsSection, ListsTheExpertGridAndCutsLargeWorlds) {
    const std::string html = groups_section(layout_of(4096, 1, 8, 4), 8);
    EXPECT_EQ(ranks_in(html), 1024U);
    EXPECT_THAT(html, HasSubstr("Of 4,096 ranks the first 1,024 are drawn."));
    EXPECT_THAT(html, HasSubstr("<td>ep</td><td>8</td><td>1</td><td>512</td><td>0 1 2 3 4 5 6 7</td>"));
    EXPECT_THAT(html, HasSubstr("<td>edp</td><td>128</td><td>8</td><td>32</td><td>0 8 16 24 32 40 48 56 … 1016</td>"));
    EXPECT_EQ(groups_section(layout_of(1, 1, 1, 1), 8), "<h2>Rank groups</h2>\n<p>One rank, no groups.</p>\n");
}

}  // namespace
}  // namespace mgplan::reports::iteration_page_test
