#include "reports/search_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/blind_accuracy.hpp"
#include "reports/html_page.hpp"
#include "reports/iteration_page.hpp"
#include "reports/layout_report.hpp"
#include "reports/memory_terms.hpp"
#include "reports/rejections.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using planner::SearchPoint;

constexpr double kMiB = 1 << 20;

/// "selective: core_attn mlp", "full: uniform 1".
std::string recompute_words(const Layout& l) {
    std::string text(to_string(l.recompute));
    if (l.recompute == Recompute::selective) text += fmt::format(": {}", fmt::join(names_in(l.recompute_modules), " "));
    if (l.recompute == Recompute::full && l.recompute_method)
        text += fmt::format(": {} {}", to_string(*l.recompute_method), l.recompute_num_layers);
    return text;
}

std::string recompute_flags(const Layout& l) {
    std::string text = fmt::format("--recompute {}", to_string(l.recompute));
    if (l.recompute == Recompute::selective) text += fmt::format(" --recompute-modules {}", fmt::join(names_in(l.recompute_modules), ","));
    if (l.recompute == Recompute::full && l.recompute_method)
        text += fmt::format(" --recompute-method {} --recompute-num-layers {}", to_string(*l.recompute_method), l.recompute_num_layers);
    return text;
}

std::string stages_flags(const Layout& l) {
    const auto& string = l.split->request().pipeline_layout;
    return string ? fmt::format(" --pipeline-layout '{}'", *string) : "";
}

/// Texts shared by many rows, each stored once.
class TextList {
public:
    int number(const std::string& text) {
        const auto [at, is_new] = numbers_.try_emplace(text, static_cast<int>(numbers_.size()));
        if (is_new) texts_.push_back(text);
        return at->second;
    }
    [[nodiscard]] const Json& texts() const { return texts_; }

private:
    std::map<std::string, int> numbers_;
    Json texts_ = Json::array();
};

/// Readers compare six digits; more would only enlarge the page.
double six_digits(double value) {
    if (value <= 0) return value;
    const double scale = std::pow(10.0, 5 - std::floor(std::log10(value)));
    return std::round(value * scale) / scale;
}

/// By index: true if no other fitting point is both as fast and as small.
std::vector<bool> on_pareto_line(const std::vector<SearchPoint>& points) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (points[i].plan.prediction.memory.fits()) order.push_back(i);
    }
    const auto key = [&](std::size_t i) {
        const simulator::Prediction& p = points[i].plan.prediction;
        return std::tuple(p.time.iteration_seconds, p.memory.deciding_bytes(), i);
    };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    std::vector<bool> on_line(points.size(), false);
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    for (const std::size_t i : order) {
        const std::int64_t bytes = points[i].plan.prediction.memory.deciding_bytes();
        if (bytes >= smallest) continue;
        smallest = bytes;
        on_line[i] = true;
    }
    return on_line;
}

/// Data of the script: a list for each column, and for each point shares of its time (in 1/10,000) and MiB of its fullest rank by term.
Json data_of(const PlanReport& report, const std::vector<SearchPoint>& points) {
    TextList recompute, recompute_given, order, cp_comm, stages;
    const auto on_line = on_pareto_line(points);
    Json c = Json::object();
    for (const char* name : {"tp",    "cp",    "ep",     "etp",     "dp",  "pp",      "vpp",  "mbs",      "sp",     "comm", "recompute",
                             "flags", "order", "stages", "seconds", "mib", "members", "rank", "replayed", "pareto", "time", "memory"})
        c[name] = Json::array();
    for (std::size_t i = 0; i < points.size(); ++i) {
        const auto& [plan, members, replayed] = points[i];
        const Layout& l = plan.layout;
        const simulator::Prediction& p = plan.prediction;
        for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
                 {"tp", l.sizes.tp},
                 {"cp", l.sizes.cp},
                 {"ep", l.sizes.ep},
                 {"etp", l.sizes.etp},
                 {"dp", l.dp()},
                 {"pp", l.sizes.pp},
                 {"vpp", l.vpp},
                 {"mbs", l.micro_batch},
                 {"sp", l.sequence_parallel ? 1 : 0},
                 {"comm", cp_comm.number(std::string(to_string(l.cp_comm_type)))},
                 {"recompute", recompute.number(recompute_words(l))},
                 {"flags", recompute_given.number(recompute_flags(l))},
                 {"order", order.number(l.sizes.order.text())},
                 {"stages", stages.number(stages_flags(l))},
                 {"members", members},
                 {"rank", static_cast<std::int64_t>(plan.rank)},
                 {"replayed", replayed ? 1 : 0},
                 {"pareto", on_line[i] ? 1 : 0},
                 {"mib", std::llround(static_cast<double>(p.memory.deciding_bytes()) / kMiB)}})
            c[name].push_back(value);
        c["seconds"].push_back(six_digits(p.time.iteration_seconds));
        Json time = Json::array(), memory = Json::array();
        for (const TimeTerm& term : time_terms(p.time)) time.push_back(std::llround(1e4 * term.seconds / p.time.iteration_seconds));
        for (const MemoryTerm& term : memory_terms(p.memory.worst.breakdown))
            memory.push_back(std::llround(static_cast<double>(term.bytes) / kMiB));
        c["time"].push_back(std::move(time));
        c["memory"].push_back(std::move(memory));
    }
    const auto named = [](const auto& terms) {
        Json list = Json::array();
        for (const auto& term : terms) list.push_back(Json::array({term.name, term.style}));
        return list;
    };
    const auto& batch = report.workload.batch;
    Json data{{"limit", static_cast<double>(report.workload.memory_limit) / kMiB},
              {"searched", static_cast<double>(report.search.limit_bytes) / kMiB},
              {"tokens",
               static_cast<double>(batch.global_batch) * static_cast<double>(batch.sequence) / static_cast<double>(report.workload.world)},
              {"moe", report.workload.model.moe.has_value()},
              {"timeTerms", named(time_terms(simulator::TimePrediction{}))},
              {"memoryTerms", named(memory_terms({}))},
              {"texts", Json{{"recompute", recompute.texts()},
                             {"flags", recompute_given.texts()},
                             {"order", order.texts()},
                             {"comm", cp_comm.texts()},
                             {"stages", stages.texts()}}}};
    data["columns"] = std::move(c);
    return data;
}

ComparedPlan compared(const SearchPoint& point, std::size_t place) {
    return {place, point.plan.layout, point.plan.prediction, fmt::format("#{}", place)};
}

/// The winner's time next to that of the next families, as bars of one scale, sentences and a table.
std::string why_section(const std::vector<SearchPoint>& points) {
    std::vector<ComparedPlan> plans;
    for (std::size_t i = 0; i < points.size() && plans.size() < kComparedFamilies; ++i) {
        if (points[i].members > 0) plans.push_back(compared(points[i], i + 1));
    }
    std::string html = "<h2>Why the first stands first</h2>\n";
    if (plans.size() < 2) return html + "<p>Its family is the only one that fits.</p>\n";
    double longest = 0;
    for (const auto& plan : plans) longest = std::max(longest, plan.prediction.time.iteration_seconds);
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        if (std::any_of(plans.begin(), plans.end(), [&](const auto& plan) {
                return time_terms(plan.prediction.time)[i].seconds > 0.0005 * plan.prediction.time.iteration_seconds;
            }))
            shown.push_back(i);
    }
    html += "<p class=\"legend\">";
    const TimeTerms names = time_terms(simulator::TimePrediction{});
    for (const auto i : shown) html += fmt::format("<span><i style=\"background: var(--{})\"></i>{}</span>", names[i].style, names[i].name);
    html += "</p>\n<ol class=\"why\">\n";
    for (const ComparedPlan& plan : plans) {
        const double seconds = plan.prediction.time.iteration_seconds;
        html += fmt::format("<li><p><b>{}</b> {} <b>{}</b></p>\n<div class=\"bar\" style=\"width: {:.2f}%\" aria-hidden=\"true\">",
                            plan.name, html_escaped(summary(plan.layout)), human_seconds(seconds), 100 * seconds / longest);
        const TimeTerms terms = time_terms(plan.prediction.time);
        for (const auto i : shown) {
            if (terms[i].seconds > 0)
                html += fmt::format("<i style=\"background: var(--{}); width: {:.3f}%\" title=\"{} {}\"></i>", terms[i].style,
                                    100 * terms[i].seconds / seconds, terms[i].name, human_seconds(terms[i].seconds));
        }
        html += "</div>\n";
        if (plan.rank != plans.front().rank) {
            const double more = seconds / plans.front().prediction.time.iteration_seconds - 1;
            html += fmt::format("<p class=\"faint\">{:+.2f} % against #1. An iteration of #1{}</p>\n", 100 * more,
                                html_escaped(ahead_text({plans.front(), plan}).substr(std::string_view("An iteration").size())));
        }
        html += "</li>\n";
    }
    html += "</ol>\n<div class=\"scroll\"><table class=\"narrow-cells\" id=\"why-terms\">\n<thead><tr><th>seconds</th>";
    for (const auto& plan : plans) html += fmt::format("<th>{}</th>", plan.name);
    html += "</tr></thead>\n<tbody>\n";
    const auto row = [&](std::string_view name, auto value_of) {
        html += fmt::format("<tr><th scope=\"row\">{}</th>", name);
        for (const auto& plan : plans) html += fmt::format("<td>{:.{}f}</td>", value_of(plan), longest < 10 ? 4 : longest < 100 ? 3 : 2);
        html += "</tr>\n";
    };
    for (const auto i : shown) row(names[i].name, [i](const auto& plan) { return time_terms(plan.prediction.time)[i].seconds; });
    row("iteration", [](const auto& plan) { return plan.prediction.time.iteration_seconds; });
    return html + "</tbody>\n</table></div>\n";
}

/// Two columns: the count, and the reason with an example below.
std::string counted_table(std::string_view id, std::string_view head, const std::vector<std::array<std::string, 3>>& rows) {
    std::string html =
        fmt::format("<table class=\"reasons\" id=\"{}\">\n<thead><tr><th>{}</th><th>why</th></tr></thead>\n<tbody>\n", id, head);
    for (const auto& [count, why, example] : rows)
        html += fmt::format("<tr><td>{}</td><td>{}{}</td></tr>\n", count, html_escaped(why),
                            example.empty() ? "" : fmt::format("<br><span class=\"faint\">{}</span>", html_escaped(example)));
    return html + "</tbody>\n</table>\n";
}

std::string rejections_section(const PlanReport& report) {
    auto rejected = rejected_candidates(report);
    std::stable_sort(rejected.begin(), rejected.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
    std::vector<std::array<std::string, 3>> rows;
    for (const auto& each : rejected)
        rows.push_back({with_thousands(each.count), std::string(each.reason), each.example.empty() ? "" : "such as: " + each.example});
    std::string html = "<h2>What was rejected, and by which rule</h2>\n";
    html += rows.empty() ? "<p>Nothing: every candidate is legal and fits.</p>\n" : counted_table("rejected", "candidates", rows);
    if (report.too_large.empty()) return html;
    rows.clear();
    for (const auto& kind : report.too_large)
        rows.push_back({with_thousands(kind.count),
                        kind.rule() == planner::kFitsInHost ? std::string(planner::reason_of(kind.rule()))
                                                            : fmt::format("most of it is {}", most_of(kind)),
                        fmt::format("nearest: {}, {}", summary(kind.nearest), missing_text(kind.memory))});
    return html + "<h2>What fills the layouts that do not fit</h2>\n" + counted_table("too-large", "layouts", rows);
}

std::string nearest_section(const PlanReport& report) {
    std::string html = fmt::format("<h2>No layout fits{}{}</h2>\n", report.schedules_alone ? " with what --schedule names" : "",
                                   report.nearest.empty() ? "" : ". The nearest misses");
    for (const std::string& line : schedule_lines(report)) html += fmt::format("<p>{}</p>\n", html_escaped(line));
    for (const NearestMiss& miss : report.nearest) {
        html += fmt::format("<p><b>{}</b><br>{}</p>\n<ul>\n", html_escaped(summary(miss.layout)), html_escaped(missing_text(miss.memory)));
        for (const auto& remedy : miss.remedies)
            html += fmt::format("<li>would fit with {}: {}</li>\n", html_escaped(remedy.change), human_bytes(remedy.peak_bytes));
        if (miss.remedies.empty())
            html += "<li>no single change (bf16 gradients, recompute, micro-batch, pp, precision, offload, more GPUs) makes it fit</li>\n";
        html += "</ul>\n";
    }
    return html;
}

}  // namespace

std::string search_page(const PlanReport& report, const SearchPage& page) {
    std::string title = workload_text(report.workload);
    title.pop_back();  // its newline
    const auto& s = report.search;
    std::vector<std::string> details;
    if (!report.assumed.empty()) details.push_back(fmt::format("assumed: {}", fmt::join(report.assumed, ", ")));
    details.push_back(fmt::format("searched {} in {:.2f} s: {} legal, {} fit in {} per GPU", counted(s.counts.candidates(), "candidate"),
                                  s.seconds, with_thousands(s.counts.legal), with_thousands(s.feasible), human_bytes(s.limit_bytes)));
    if (report.headroom_bytes() > 0)
        details.push_back(fmt::format("headroom: {} of each GPU stay free", human_bytes(report.headroom_bytes())));
    if (s.headroom_missed) details.emplace_back("Nothing leaves the headroom free; these plans fit the whole GPU.");
    details.push_back(accuracy_text(report.workload, report.plans.empty() ? Engine::megatron : report.plans.front().layout.engine));
    const std::string rejections = rejections_section(report);
    const auto whole = [&](const std::string& body) { return html_page(title, details, body, web_file("search.css")); };
    // Rejected layouts have Megatron-LM's schedules: they say nothing about a search over other schedules alone.
    if (page.points.empty()) return whole(nearest_section(report) + (report.schedules_alone ? "" : rejections));

    const planner::PlannedLayout& winner = page.points.front().plan;
    std::string head = fmt::format("<h2>First: {}</h2>\n", html_escaped(summary(winner.layout))) + figures_section(winner.prediction);
    head += web_file("search.html");
    head += why_section(page.points);
    std::string frames, sources;
    std::size_t used = head.size() + rejections.size() + 40'000;
    const std::string data = json_inside_script(data_of(report, page.points));
    used += data.size();
    std::size_t shown = 0;
    for (; shown < page.simulations.size(); ++shown) {
        const std::string source = json_inside_script(Json(page.simulations[shown]));
        if (used + source.size() > kMostPageBytes) break;
        used += source.size();
        frames += fmt::format("<details class=\"whole\" id=\"whole-{0}\"><summary>#{0} {1}</summary></details>\n", shown + 1,
                              html_escaped(summary(page.points[shown].plan.layout)));
        sources += fmt::format("<script type=\"application/json\" id=\"page-{}\">{}</script>\n", shown + 1, source);
    }
    if (shown > 0)
        head +=
            "<h2>Whole simulations of the first</h2>\n<p class=\"faint\">As simulate --html draws them: the pipeline, memory over the "
            "iteration, rank groups.</p>\n" +
            frames;
    return whole(head + rejections + "<script type=\"application/json\" id=\"search\">" + data + "</script>\n" + sources +
                 page_script("search.js"));
}

}  // namespace mgplan::reports
