#include "reports/memory_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/byte_units.hpp"
#include "reports/html_page.hpp"
#include "reports/memory_terms.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using model::MemoryCategory;

// The picture, in units of its view box.
constexpr double kPageWidth = 1000, kHeight = 440, kPageLeft = 84, kRight = 16, kTop = 34, kBottom = 44;
constexpr double kPlotWidth = kPageWidth - kPageLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
/// Maximum number of drawn steps: more than a screen can resolve.
constexpr std::size_t kMostSteps = 1200;

/// The areas from below: constant memory at the bottom, varying memory on top.
struct Area {
    std::string_view name, style;
    int category;  ///< -1: memory outside tensors
};
constexpr std::array<Area, 7> kAreas{{{"context and others", "other", -1},
                                      {"parameters", "parameters", static_cast<int>(MemoryCategory::parameters)},
                                      {"gradients", "gradients", static_cast<int>(MemoryCategory::gradients)},
                                      {"optimizer", "optimizer", static_cast<int>(MemoryCategory::optimizer)},
                                      {"communication", "communication", static_cast<int>(MemoryCategory::communication)},
                                      {"workspace", "workspace", static_cast<int>(MemoryCategory::workspace)},
                                      {"activations", "activations", static_cast<int>(MemoryCategory::activations)}}};

/// One step of the drawing: bytes of each area at its begin (where every op is drawn) and at its fullest.
struct Heights {
    std::array<std::int64_t, kAreas.size()> begin{}, peak{};
};

Heights heights_of(const simulator::TimelineOp& op, std::int64_t outside) {
    Heights heights;
    for (std::size_t a = 0; a < kAreas.size(); ++a) {
        const auto category = static_cast<std::size_t>(kAreas[a].category);
        heights.begin[a] = kAreas[a].category < 0 ? outside : op.at_begin[category];
        heights.peak[a] = kAreas[a].category < 0 ? outside : op.at_peak[category];
    }
    return heights;
}

/// Converts bytes and steps to positions in the picture.
class Scale {
public:
    Scale(std::int64_t top, std::size_t steps) : top_(static_cast<double>(top)), steps_(static_cast<double>(steps)) {}
    [[nodiscard]] double x(double step) const { return kPageLeft + kPlotWidth * step / steps_; }
    [[nodiscard]] double y(std::int64_t bytes) const { return kTop + kPlotHeight * (1 - static_cast<double>(bytes) / top_); }

private:
    double top_, steps_;
};

/// One area as a path from the ground up to the sum of the areas below it and its own; the next one is painted over it.
std::string area_path(const std::vector<Heights>& heights, std::size_t area, bool every_op, const Scale& scale) {
    const auto sum = [&](const std::array<std::int64_t, kAreas.size()>& bytes) {
        std::int64_t total = 0;
        for (std::size_t a = 0; a <= area; ++a) total += bytes[a];
        return scale.y(total);
    };
    const double ground = scale.y(0);
    std::string path = fmt::format("M{:.1f} {:.1f}", scale.x(0), ground);
    for (std::size_t i = 0; i < heights.size(); ++i) {
        const auto at = static_cast<double>(i);
        if (every_op) {
            path +=
                fmt::format("L{:.1f} {:.1f}L{:.1f} {:.1f}", scale.x(at), sum(heights[i].begin), scale.x(at + 0.5), sum(heights[i].peak));
        } else {
            path += fmt::format("L{:.1f} {:.1f}H{:.1f}", scale.x(at), sum(heights[i].peak), scale.x(at + 1));
        }
    }
    return path + fmt::format("{}V{:.1f}Z",
                              every_op
                                  ? fmt::format("L{:.1f} {:.1f}", scale.x(static_cast<double>(heights.size())), sum(heights.back().begin))
                                  : std::string(),
                              ground);
}

/// Round numbers of the unit, at most six, up to the top.
std::vector<std::int64_t> ticks(std::int64_t top, const ByteUnit& unit) {
    const double most = static_cast<double>(top) / unit.bytes;
    double step = std::pow(10.0, std::floor(std::log10(most / 5)));
    for (const double factor : {2.0, 2.5, 2.0}) {
        if (most / step > 6) step *= factor;
    }
    std::vector<std::int64_t> found;
    for (int i = 0; i * step <= most; ++i) found.push_back(static_cast<std::int64_t>(i * step * unit.bytes));
    return found;
}

std::string axes(const MemoryCurve& curve, const CurveSteps& drawn, const Scale& scale) {
    const std::int64_t top = curve.top();
    const ByteUnit unit = unit_for(top);
    std::string svg;
    for (const std::int64_t tick : ticks(top, unit)) {
        svg += fmt::format("<line class=\"rule\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>\n", kPageLeft,
                           kPageWidth - kRight, scale.y(tick));
        svg += svg_text(kPageLeft - 8, scale.y(tick) + 4, "end", fmt::format("{:g} {}", static_cast<double>(tick) / unit.bytes, unit.name));
    }
    const std::size_t count = drawn.steps.size();
    const auto number = [&](std::size_t step, std::string_view anchor) {
        svg += svg_text(scale.x(static_cast<double>(step)), kHeight - kBottom + 18, anchor, with_thousands(drawn.steps[step].first));
    };
    number(0, "start");
    for (const std::size_t cut : drawn.cuts) {
        // Numbers of cuts near the ends would overlap the ends' numbers.
        if (cut < count / 16 || cut > count - count / 16) continue;
        number(cut, "middle");
    }
    if (drawn.cuts.empty() && count >= 8) number(count / 2, "middle");
    svg += svg_text(scale.x(static_cast<double>(count)), kHeight - kBottom + 18, "end",
                    with_thousands(std::ssize(curve.timeline.schedule.ops) + 1));
    svg += svg_text(kPageLeft + kPlotWidth / 2, kHeight - 8, "middle", "forwards and backwards of the iteration, in order");
    return svg;
}

std::string marks(const MemoryCurve& curve, const CurveSteps& drawn, const Scale& scale) {
    std::string svg;
    if (curve.limit_bytes <= curve.top()) {
        svg += fmt::format("<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>\n", kPageLeft,
                           kPageWidth - kRight, scale.y(curve.limit_bytes));
        svg += svg_text(kPageWidth - kRight - 4, scale.y(curve.limit_bytes) - 5, "end", "limit " + human_bytes(curve.limit_bytes),
                        "limit-text");
    }
    for (const std::size_t cut : drawn.cuts) {
        svg += fmt::format("<line class=\"cut\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                           scale.x(static_cast<double>(cut)), kTop, kHeight - kBottom);
    }
    const std::size_t at = fullest_of(drawn);
    const CurveStep* const peak = &drawn.steps[at];
    const double x = scale.x(static_cast<double>(at) + 0.5);
    const double y = scale.y(peak->op->peak + curve.outside());
    svg += fmt::format("<circle class=\"peak\" id=\"peak\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/>\n", x, y);
    const std::string text = fmt::format("peak {}, op {}: {}", human_bytes(curve.stage.memory.peak_bytes()), with_thousands(peak->place),
                                         curve.stage.peak_op ? curve.stage.peak_op->text() : step_text(curve.timeline, *peak));
    svg += svg_text(std::min(x, kPageWidth / 2), kTop - 14, x < kPageWidth / 2 ? "start" : "middle", text);
    svg += fmt::format("<line class=\"rule\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", x, kTop - 10, y - 5);
    return svg;
}

/// Data of the script: positions and bytes of every step, texts by number.
Json steps_json(const MemoryCurve& curve, const std::vector<CurveStep>& steps, const std::vector<Heights>& heights) {
    Json data{{"width", kPageWidth}, {"left", kPageLeft}, {"plot", kPlotWidth}, {"areas", Json::array()}};
    for (const Area& area : kAreas) data["areas"].push_back(area.name);
    std::map<std::string, std::size_t> texts, tensors;
    const auto number = [](std::map<std::string, std::size_t>& known, const std::string& text) {
        return known.try_emplace(text, known.size()).first->second;
    };
    Json rows = Json::array();
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const simulator::TimelineOp& op = *steps[i].op;
        // Microbatches are many; the rest of each text is stored once.
        std::string text = step_text(curve.timeline, steps[i]);
        if (op.op) text = text.substr(0, text.rfind(' ') + 1) + "#";
        Json row{steps[i].place, number(texts, text), number(tensors, std::string(op.tensor)), op.op ? op.op->microbatch : 0};
        for (const std::int64_t bytes : heights[i].peak) row.push_back(bytes);
        rows.push_back(std::move(row));
    }
    const auto listed = [](const std::map<std::string, std::size_t>& known) {
        std::vector<std::string> list(known.size());
        for (const auto& [text, at] : known) list[at] = text;
        return list;
    };
    data["texts"] = listed(texts);
    data["tensors"] = listed(tensors);
    data["steps"] = std::move(rows);
    return data;
}

std::string picture(const MemoryCurve& curve) {
    const CurveSteps drawn = fullest_steps(curve.timeline, kMostSteps);
    const auto& steps = drawn.steps;
    const Scale scale(std::max<std::int64_t>(1, curve.top()), steps.size());
    std::vector<Heights> heights;
    for (const CurveStep& step : steps) heights.push_back(heights_of(*step.op, curve.outside()));

    std::string html = fmt::format("<h2>Rank {} (stage {}), the fullest, over one iteration</h2>\n<p class=\"legend\">",
                                   curve.stage.first_rank, curve.stage.stage);
    for (std::size_t a = kAreas.size(); a-- > 0;)
        html += fmt::format("<span><i style=\"background: var(--{})\"></i>{}</span>", kAreas[a].style, kAreas[a].name);
    html += "</p>\n";
    if (curve.limit_bytes > curve.top())
        html += fmt::format("<p class=\"faint\">The limit of {} lies far above the picture.</p>\n", human_bytes(curve.limit_bytes));
    if (!drawn.every_op)
        html += fmt::format(
            "<p class=\"faint\">{} forwards and backwards are drawn as {} steps, each the fullest of its neighbours; "
            "warm-up and cool-down, left and right of the dotted lines, on a wider scale.</p>\n",
            with_thousands(std::ssize(curve.timeline.schedule.ops)), with_thousands(std::ssize(steps)));
    html += fmt::format(
        "<div class=\"picture\">\n<svg id=\"curve\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Live bytes of rank {} by "
        "category "
        "over one iteration\">\n",
        kPageWidth, kHeight, curve.stage.first_rank);
    html += axes(curve, drawn, scale);
    // The whole first, then the areas below it, painted over it.
    for (std::size_t a = kAreas.size(); a-- > 0;) {
        html += fmt::format("<path class=\"area\" id=\"area-{0}\" style=\"fill: var(--{0})\" d=\"{1}\"/>\n", kAreas[a].style,
                            area_path(heights, a, drawn.every_op, scale));
    }
    html += marks(curve, drawn, scale);
    html += fmt::format("<line id=\"pointer\" y1=\"{:.1f}\" y2=\"{:.1f}\" x1=\"0\" x2=\"0\"/>\n</svg>\n<div id=\"tip\"></div>\n</div>\n",
                        kTop, kHeight - kBottom);
    html += "<script type=\"application/json\" id=\"steps\">" + json_inside_script(steps_json(curve, steps, heights)) + "</script>\n";
    html += page_script("memory.js");
    return html;
}

std::string stage_table(const MemoryPage& page) {
    const StageMemory& worst = fullest(page.stages);
    const ByteUnit unit = unit_for(worst.memory.peak_bytes());
    // On a narrow screen every row is a list of its own: each cell contains its column's name.
    std::vector<std::string> columns{"stage", "rank"};
    const auto names = memory_terms({});
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const bool any = std::any_of(page.stages.begin(), page.stages.end(),
                                     [&](const StageMemory& s) { return memory_terms(s.memory.breakdown)[i].bytes > 0; });
        if (!any) continue;
        shown.push_back(i);
        columns.emplace_back(names[i].name);
    }
    const bool routed = worst.memory.routing.has_value();
    columns.emplace_back("peak");
    if (routed) columns.emplace_back("p99");
    for (const char* name : {"framework", "reserved", "estimate", "op at the peak"}) columns.emplace_back(name);
    std::string html = fmt::format(
        "<h2>Every stage at its peak ({})</h2>\n<div class=\"scroll\"><table class=\"stack\" id=\"stages\">\n<thead><tr>", unit.name);
    for (const auto& name : columns) html += fmt::format("<th>{}</th>", name);
    html += "</tr></thead>\n<tbody>\n";
    for (const StageMemory& stage : page.stages) {
        std::vector<std::string> cells{std::to_string(stage.stage), std::to_string(stage.first_rank)};
        const auto terms = memory_terms(stage.memory.breakdown);
        for (const auto i : shown) cells.push_back(unit.text(terms[i].bytes));
        cells.push_back(unit.text(stage.memory.peak_bytes()));
        if (routed) cells.push_back(unit.text(stage.memory.deciding_bytes()));
        for (const std::int64_t bytes : {stage.memory.framework_bytes, stage.memory.reserved_bytes, stage.estimated_peak})
            cells.push_back(unit.text(bytes));
        cells.push_back(html_escaped(stage.peak_op ? stage.peak_op->text() : "not known"));
        html += fmt::format("<tr{}>", &stage == &worst ? " class=\"fullest\"" : "");
        for (std::size_t i = 0; i < cells.size(); ++i) html += fmt::format("<td data-label=\"{}\">{}</td>", columns[i], cells[i]);
        html += "</tr>\n";
    }
    html += "</tbody>\n</table></div>\n";
    html += fmt::format("<p class=\"faint\">Limit {}. {}</p>\n", human_bytes(page.limit_bytes), estimate_text(page.stages));
    return html;
}

}  // namespace

std::string memory_section(const MemoryPage& page, const std::optional<MemoryCurve>& curve) {
    return (curve ? picture(*curve) : fmt::format("<p>{}</p>\n", html_escaped(page.why_no_curve))) + stage_table(page);
}

}  // namespace mgplan::reports
