// The page of a search, read back and held against the report that it draws.

#include "reports/search_page.hpp"

#include <algorithm>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "made_up_search.hpp"
#include "page_reader.hpp"

namespace mgplan::reports::search_page_test {
namespace {

using testing::between;
using testing::first_broken_element;
using ::testing::HasSubstr;
using testing::made_up_points;
using testing::made_up_report;
using ::testing::Not;
using Json = nlohmann::json;

Json data_in(const std::string& html) {
    return Json::parse(between(html, "id=\"search\">", "</script>"));
}

TEST(SearchPage, HoldsEveryPointWithItsTerms) {
    const PlanReport report = made_up_report();
    const auto points = made_up_points(7);
    const std::string html = search_page(report, {points, {}});
    EXPECT_EQ(first_broken_element(html), "");
    const Json data = data_in(html);
    const Json& columns = data["columns"];
    for (const auto& [name, values] : columns.items()) EXPECT_EQ(values.size(), 7U) << name;
    EXPECT_EQ(data["limit"], 80 * 1024.0);
    for (std::size_t i = 0; i < points.size(); ++i) {
        const auto& plan = points[i].plan;
        EXPECT_EQ(columns["tp"][i], plan.layout.sizes.tp);
        EXPECT_EQ(columns["pp"][i], plan.layout.sizes.pp);
        EXPECT_EQ(columns["mbs"][i], plan.layout.micro_batch);
        EXPECT_EQ(columns["members"][i], points[i].members);
        EXPECT_EQ(columns["rank"][i], plan.rank);
        EXPECT_NEAR(columns["seconds"][i].get<double>(), plan.prediction.time.iteration_seconds,
                    1e-5 * plan.prediction.time.iteration_seconds);
        EXPECT_EQ(columns["mib"][i].get<std::int64_t>() << 20, plan.prediction.memory.deciding_bytes());
        int shares = 0;
        std::int64_t mib = 0;
        for (const auto& share : columns["time"][i]) shares += share.get<int>();
        for (const auto& term : columns["memory"][i]) mib += term.get<std::int64_t>();
        EXPECT_NEAR(shares, 10000, 6) << "the terms are the whole iteration";
        EXPECT_EQ(mib << 20, plan.prediction.memory.worst.peak_bytes());
    }
}

TEST(SearchPage, ParetoLineIsWhatNothingBeatsInBothAndFits) {
    auto points = made_up_points(5);
    const auto set = [&](std::size_t i, double seconds, std::int64_t gib) {
        points[i].plan.prediction.time.iteration_seconds = seconds;
        points[i].plan.prediction.memory.worst.breakdown = {};
        points[i].plan.prediction.memory.worst.breakdown.parameters = gib << 30;
    };
    set(0, 1.0, 60);
    set(1, 1.5, 70);  // slower and larger than 0
    set(2, 2.0, 30);
    set(3, 2.0, 30);  // equal: one of them is enough
    set(4, 0.5, 90);  // does not fit
    EXPECT_EQ(data_in(search_page(made_up_report(), {points, {}}))["columns"]["pareto"].dump(), "[1,0,1,0,0]");
}

TEST(SearchPage, NamesTermsThatDecideHoweverLargeTheOthersAre) {
    auto points = made_up_points(2);
    points[1].plan.prediction = points[0].plan.prediction;
    auto& time = points[1].plan.prediction.time;
    time.compute_seconds += 0.376;
    time.bubble_seconds -= 0.369;
    time.iteration_seconds += 0.007;
    const auto html = [&] {  // wherever its lines end
        return std::regex_replace(search_page(made_up_report(), {points, {}}), std::regex("\\s+"), " ");
    };
    EXPECT_THAT(html(), HasSubstr("most of it: 0.376 s less compute; against it: 0.369 s more bubble"));
    time.bubble_seconds -= 0.030;
    time.optimizer_seconds += 0.030;
    EXPECT_THAT(html(), HasSubstr("most of it: 0.376 s less compute, 0.030 s less optimizer; against it: 0.399 s more bubble"));
    time.bubble_seconds -= 0.007;
    time.iteration_seconds -= 0.007;
    EXPECT_THAT(html(), Not(HasSubstr("most of it: "))) << "they take as long as each other";
}

TEST(SearchPage, SaysWhyTheFirstWinsAndWhatWasRejected) {
    PlanReport report = made_up_report();
    auto points = made_up_points(9);
    // The second computes as long and waits half a second more in its pipeline.
    points[1].plan.prediction = points[0].plan.prediction;
    points[1].plan.prediction.time.iteration_seconds += 0.5;
    points[1].plan.prediction.time.bubble_seconds += 0.5;
    const std::string html = search_page(report, {points, {}});
    EXPECT_THAT(html, HasSubstr("An iteration of #1 takes 0.500 s less than #2&#39;s; most of it: 0.500 s less bubble"));
    EXPECT_THAT(html, HasSubstr("<b>#6</b>"));
    EXPECT_THAT(html, Not(HasSubstr("<b>#7</b>"))) << "six are compared";
    const std::string table = between(html, "id=\"why-terms\">", "</table>");
    EXPECT_THAT(table, HasSubstr("<th scope=\"row\">bubble</th>"));
    EXPECT_THAT(table, Not(HasSubstr("exposed cp"))) << "no plan has any";
    const std::string rejected = between(html, "id=\"rejected\">", "</table>");
    const auto first = rejected.find("<td>1,200</td>"), second = rejected.find("<td>30</td>");
    ASSERT_NE(first, std::string::npos);
    ASSERT_NE(second, std::string::npos);
    EXPECT_LT(first, second) << "most candidates first";
    EXPECT_THAT(rejected, HasSubstr("does not fit in memory"));
    EXPECT_THAT(rejected, HasSubstr("such as: tp = 3 does not divide"));
    EXPECT_THAT(html, HasSubstr("most of it is activations"));
}

TEST(SearchPage, EscapesEveryTextFromOutsideAndLoadsNothing) {
    PlanReport report = made_up_report();
    report.workload.model.name = "</script><script>alert(1)</script>";
    report.workload.cluster.name = "\"><img onerror=x>";
    report.assumed = {"a <b>bold</b> guess"};
    report.search.counts.rejected["tp_divides_world"].example = "model '<i>' & more";
    const std::string html = search_page(report, {made_up_points(3), {"<p>inner</p></script><script>alert(2)</script>"}});
    EXPECT_EQ(first_broken_element(html), "");
    EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
    EXPECT_THAT(html, Not(HasSubstr("<img")));
    EXPECT_THAT(html, Not(HasSubstr("<b>bold")));
    EXPECT_THAT(html, HasSubstr("model &#39;&lt;i&gt;&#39; &amp; more"));
    for (const char* loads : {"http://", "https://", " src=", "@import", "url("}) EXPECT_THAT(html, Not(HasSubstr(loads))) << loads;
    EXPECT_EQ(Json::parse(between(html, "id=\"page-1\">", "</script>")), "<p>inner</p></script><script>alert(2)</script>");
}

TEST(SearchPage, OfTenThousandPointsStaysBelowTwoMegabytes) {
    const auto points = made_up_points(10'000);
    const std::string simulation(300'000, 'x');
    const std::string html = search_page(made_up_report(), {points, std::vector<std::string>(5, simulation)});
    EXPECT_LT(html.size(), kMostPageBytes);
    EXPECT_EQ(data_in(html)["columns"]["tp"].size(), 10'000U);
    // As many simulations as there is room for, the first of them first.
    EXPECT_THAT(html, HasSubstr("id=\"whole-1\""));
    EXPECT_THAT(html, Not(HasSubstr("id=\"whole-5\"")));
    EXPECT_THAT(search_page(made_up_report(), {made_up_points(50), std::vector<std::string>(5, simulation)}), HasSubstr("id=\"whole-5\""));
}

TEST(SearchPage, WhereNothingFitsNamesTheNearest) {
    PlanReport report = made_up_report();
    NearestMiss miss;
    miss.layout = made_up_points(1).front().plan.layout;
    miss.memory.limit_bytes = std::int64_t{80} << 30;
    miss.memory.worst.breakdown.activations = std::int64_t{90} << 30;
    miss.remedies.push_back({"full recompute", std::int64_t{70} << 30, {}, 8});
    report.nearest.push_back(miss);
    const std::string html = search_page(report, {});
    EXPECT_EQ(first_broken_element(html), "");
    EXPECT_THAT(html, HasSubstr("No layout fits"));
    EXPECT_THAT(html, HasSubstr("10.0 GiB over the limit of 80.0 GiB"));
    EXPECT_THAT(html, HasSubstr("would fit with full recompute: 70.0 GiB"));
    EXPECT_THAT(html, HasSubstr("id=\"rejected\""));
    EXPECT_THAT(html, Not(HasSubstr("id=\"search\"")));
}

}  // namespace
}  // namespace mgplan::reports::search_page_test
