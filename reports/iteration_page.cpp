#include "reports/iteration_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/layout/stage_ranks.hpp"
#include "plan/text/text.hpp"
#include "reports/html_page.hpp"
#include "reports/memory_terms.hpp"
#include "reports/prediction_json.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using simulator::DrawnPass;
using simulator::PipelinePicture;

constexpr double kWidth = 1000;

std::string legend(const std::vector<std::pair<std::string_view, std::string_view>>& names) {
    std::string html = "<p class=\"legend\">";
    for (const auto& [style, name] : names) html += fmt::format("<span><i style=\"background: var(--{})\"></i>{}</span>", style, name);
    return html + "</p>\n";
}

// --- The pipeline --------------------------------------------------------------------------------------------------

constexpr double kLeft = 64, kPlot = kWidth - kLeft - 4, kAxis = 24;

/// Number of passes of one rank that are distinguishable at the width of a page; with more, the begin is also drawn larger.
constexpr double kMostPassesInRow = 160;

/// An interval of the iteration shown by one panel.
struct Panel {
    double begin = 0, end = 0;
    std::string title;
};

/// Pipeline ranks that have a row.
std::vector<int> drawn_ranks(int pp) {
    std::vector<int> ranks;
    for (int r = 0; r < pp; ++r) {
        if (pp <= kMostDrawnRanks || r < kMostDrawnRanks / 2 || r >= pp - kMostDrawnRanks / 2) ranks.push_back(r);
    }
    return ranks;
}

/// Ticks of time at round numbers.
std::vector<double> time_ticks(double begin, double end) {
    double step = std::pow(10.0, std::floor(std::log10((end - begin) / 4)));
    for (const double factor : {2.0, 2.5, 2.0}) {
        if ((end - begin) / step > 8) step *= factor;
    }
    std::vector<double> ticks;
    for (auto i = static_cast<std::int64_t>(std::ceil(begin / step)); static_cast<double>(i) * step <= end; ++i)
        ticks.push_back(static_cast<double>(i) * step);
    return ticks;
}

std::string_view style_of(const DrawnPass& op) {
    const bool other = op.chunk % 2 == 1;
    switch (op.pass) {
        case Pass::forward:
            return other ? "forward2" : "forward";
        case Pass::backward:
        case Pass::input_gradient:
            return other ? "backward2" : "backward";
        case Pass::weight_gradient:
            return "weight";
    }
    return "other";
}

constexpr std::array<std::string_view, 8> kStyles{"forward", "forward2", "backward", "backward2", "weight", "dp", "optimizer", "pp"};

class PipelineDrawing {
public:
    explicit PipelineDrawing(const PipelinePicture& picture)
        : picture_(picture), rows_(drawn_ranks(picture.ranks)), row_of_(static_cast<std::size_t>(picture.ranks), -1) {
        for (std::size_t i = 0; i < rows_.size(); ++i) row_of_[static_cast<std::size_t>(rows_[i])] = static_cast<int>(i);
        height_ = rows_.size() <= 8 ? 30 : rows_.size() <= 16 ? 22 : 13;
        end_ = picture_.optimizer_begin;
        for (std::size_t r = 0; r < picture_.optimizer.size(); ++r)
            end_ = std::max(end_, picture_.optimizer_begin + picture_.optimizer[r] + picture_.gather[r]);
    }

    [[nodiscard]] double end() const { return end_; }
    [[nodiscard]] std::vector<Panel> panels() const {
        std::size_t passes = 0;
        for (const DrawnPass& op : picture_.passes) passes += row_of_[op.rank] >= 0 ? 1 : 0;
        const double in_row = static_cast<double>(passes) / static_cast<double>(rows_.size());
        if (passes <= kMostDrawnPasses && in_row <= kMostPassesInRow) return {{0, end_, ""}};
        if (passes <= kMostDrawnPasses) return {{0, end_, "The whole"}, {0, end_ * kMostPassesInRow / 2 / in_row, "The begin"}};
        // Each panel shows its share of the passes, but no more than are distinguishable.
        const double share = std::min(static_cast<double>(kMostDrawnPasses) / static_cast<double>(passes), 0.5) / 2;
        const double span = std::max(share * end_, 1e-9);
        return {{0, span, "The begin"}, {end_ - span, end_, "The end"}};
    }

    /// One panel with its passes; adds the data for the script.
    std::string draw(const Panel& panel, int number, Json& data) const {
        std::array<std::string, kStyles.size()> paths;
        std::string numbers;
        Json rows = Json::array();
        for (const int rank : rows_) rows.push_back(Json::array({rank}));
        const double seconds = panel.end - panel.begin;
        const auto x_of = [&](double at) { return kLeft + kPlot * (at - panel.begin) / seconds; };
        const auto box = [&](std::string_view style, int row, double begin, double end, double top, double height) {
            const double left = std::max(kLeft, x_of(begin)), right = std::min(kLeft + kPlot, x_of(end));
            if (right <= left) return 0.0;
            // A thin gap between passes, if there is room for one.
            const double width = right - left > 2 ? right - left - 0.5 : right - left;
            const auto at = static_cast<std::size_t>(std::find(kStyles.begin(), kStyles.end(), style) - kStyles.begin());
            paths[at] += fmt::format("M{:.2f} {:.1f}h{:.2f}v{:g}h-{:.2f}z", left, row * height_ + top, width, height, width);
            return width;
        };
        for (const DrawnPass& op : picture_.passes) {
            const int row = row_of_[op.rank];
            const double begin = op.begin, end = op.end;
            if (row < 0 || end <= panel.begin || begin >= panel.end) continue;
            // The forward of a pair has the upper half of the row.
            const double height = op.paired ? (height_ - 7) / 2 : height_ - 7, top = op.paired && op.pass != Pass::forward ? 2 + height : 2;
            const double width = box(style_of(op), row, begin, end, top, height);
            if (width >= 16 && height_ > 13 && height >= 9) {
                numbers += svg_text(std::max(kLeft, x_of(begin)) + width / 2, row * height_ + top + height / 2 + 3.5, "middle",
                                    std::to_string(op.microbatch), "number");
            }
            Json pass = Json::array({rounded(begin), rounded(end), static_cast<int>(op.pass), op.microbatch, op.chunk});
            if (op.paired) pass.push_back(1);
            rows[static_cast<std::size_t>(row)].push_back(std::move(pass));
        }
        for (const simulator::DrawnTraffic& event : picture_.data_parallel) {
            if (row_of_[event.rank] >= 0) box("dp", row_of_[event.rank], event.begin, event.end, height_ - 4.5, 2.5);
        }
        for (std::size_t r = 0; r < picture_.optimizer.size(); ++r) {
            if (row_of_[r] < 0) continue;
            const double updated = picture_.optimizer_begin + picture_.optimizer[r];
            box("optimizer", row_of_[r], picture_.optimizer_begin, updated, 2, height_ - 7);
            box("dp", row_of_[r], updated, updated + picture_.gather[r], height_ - 4.5, 2.5);
        }
        const double bottom = static_cast<double>(rows_.size()) * height_;
        std::string svg;
        if (!panel.title.empty())
            svg += fmt::format("<p>{}: {} to {}</p>\n", panel.title, panel.begin > 0 ? human_seconds(panel.begin) : "0 s",
                               human_seconds(panel.end));
        svg += fmt::format(
            "<div class=\"picture\">\n<svg class=\"pipeline\" id=\"pipeline-{}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
            "aria-label=\"Passes of every pipeline rank over time\">\n",
            number, kWidth, bottom + kAxis);
        svg += frame(bottom);
        for (const double tick : time_ticks(panel.begin, panel.end)) {
            svg += fmt::format("<line class=\"rule\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/>\n", x_of(tick), bottom + 4);
            svg += svg_text(std::clamp(x_of(tick), kLeft + 12, kWidth - 16), bottom + 18, "middle", tick_text(tick, seconds), "label");
        }
        for (std::size_t s = 0; s < kStyles.size(); ++s) {
            if (!paths[s].empty()) svg += fmt::format("<path style=\"fill: var(--{})\" d=\"{}\"/>\n", kStyles[s], paths[s]);
        }
        data.push_back(Json{{"begin", panel.begin},
                            {"end", panel.end},
                            {"left", kLeft},
                            {"plot", kPlot},
                            {"width", kWidth},
                            {"row", height_},
                            {"rows", std::move(rows)}});
        return svg + numbers + "</svg>\n<div class=\"bubble\"></div>\n</div>\n";
    }

    /// Busy shares of the whole iteration.
    [[nodiscard]] std::string overview() const {
        constexpr std::size_t kBins = 480;
        std::vector<std::array<std::array<double, kBins>, 2>> busy(rows_.size());
        for (auto& row : busy) row = {};
        const double width = end_ / kBins;
        for (const DrawnPass& op : picture_.passes) {
            const int row = row_of_[op.rank];
            if (row < 0) continue;
            auto& bins = busy[static_cast<std::size_t>(row)][op.pass == Pass::forward ? 0 : 1];
            const double begin = op.begin, end = op.end;
            for (auto bin = static_cast<std::size_t>(begin / width); bin < kBins && static_cast<double>(bin) * width < end; ++bin) {
                const double from = std::max(begin, static_cast<double>(bin) * width),
                             to = std::min(end, static_cast<double>(bin + 1) * width);
                bins[bin] += std::max(0.0, to - from) / width * (op.paired ? 0.5 : 1);
            }
        }
        const double bottom = static_cast<double>(rows_.size()) * height_, column = kPlot / kBins;
        std::array<std::string, 2> paths;
        for (std::size_t row = 0; row < busy.size(); ++row) {
            for (std::size_t bin = 0; bin < kBins; ++bin) {
                double base = static_cast<double>(row + 1) * height_ - 2;
                for (std::size_t kind = 0; kind < 2; ++kind) {
                    const double tall = std::min(1.0, busy[row][kind][bin]) * (height_ - 4);
                    if (tall < 0.05) continue;
                    base -= tall;
                    paths[kind] += fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h-{:.1f}z", kLeft + static_cast<double>(bin) * column, base,
                                               column, tall, column);
                }
            }
        }
        std::string svg = fmt::format(
            "<p>The whole: share of the time that each rank is busy, forwards below backwards</p>\n<svg class=\"pipeline\" "
            "id=\"pipeline-whole\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Busy share of every pipeline rank\">\n",
            kWidth, bottom + kAxis);
        svg += frame(bottom);
        for (const double tick : time_ticks(0, end_))
            svg += svg_text(std::clamp(kLeft + kPlot * tick / end_, kLeft + 12, kWidth - 16), bottom + 18, "middle", tick_text(tick, end_),
                            "label");
        return svg +
               fmt::format("<path style=\"fill: var(--forward)\" d=\"{}\"/>\n<path style=\"fill: var(--backward)\" d=\"{}\"/>\n</svg>\n",
                           paths[0], paths[1]);
    }

private:
    static double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }
    static std::string tick_text(double at, double span) {
        if (span < 2e-3) return fmt::format("{:.6g} µs", at * 1e6);
        return span < 2 ? fmt::format("{:.6g} ms", at * 1e3) : fmt::format("{:.6g} s", at);
    }
    /// Background and names of the rows.
    [[nodiscard]] std::string frame(double bottom) const {
        std::string svg =
            fmt::format("<rect class=\"idle\" x=\"{:.0f}\" y=\"0\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", kLeft, kPlot, bottom);
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            svg += svg_text(kLeft - 6, static_cast<double>(i) * height_ + height_ / 2 + 3, "end",
                            fmt::format("{}{}", height_ > 13 ? "stage " : "", rows_[i]), "label");
        }
        return svg;
    }

    const PipelinePicture& picture_;
    std::vector<int> rows_, row_of_;
    double height_ = 0, end_ = 0;
};

// --- Rank groups ---------------------------------------------------------------------------------------------------

std::string_view name_of(Axis axis, bool expert) {
    switch (axis) {
        case Axis::tp:
            return expert ? "etp" : "tp";
        case Axis::cp:
            return "cp";
        case Axis::ep:
            return "ep";
        case Axis::dp:
            return expert ? "edp" : "dp";
        case Axis::pp:
            return "pp";
    }
    return "?";
}

}  // namespace

namespace {

/// A part of a bar: its share of the bar's length in [0, 1], its name with its value, and its colour (html_page.cpp).
struct BarPart {
    double share = 0;
    std::string text;
    std::string_view style;
};

/// A bar below a line, with a legend.
std::string bar(std::string_view id, const std::string& line, const std::vector<BarPart>& parts) {
    std::string drawn, legend;
    for (const BarPart& part : parts) {
        drawn += fmt::format("<i style=\"background: var(--{}); width: {:.3f}%\" title=\"{}\"></i>", part.style, 100 * part.share,
                             html_escaped(part.text));
        legend += fmt::format("<span><i style=\"background: var(--{})\"></i>{}</span> ", part.style, html_escaped(part.text));
    }
    return fmt::format(
        "<div id=\"{}\"><p class=\"faint\">{}</p><div class=\"stacked\" aria-hidden=\"true\">{}</div><p class=\"legend\">{}</p></div>\n",
        id, html_escaped(line), drawn, legend);
}

/// Memory by category and compute by module. Parts below 0.5 % of a bar have no entry.
std::string bars_section(const simulator::Prediction& prediction) {
    constexpr double kSmallest = 0.005;
    const simulator::MemoryPrediction& memory = prediction.memory;
    const auto bytes = static_cast<double>(std::max(memory.limit_bytes, memory.worst.peak_bytes()));
    std::vector<BarPart> parts;
    for (const MemoryTerm& term : memory_terms(memory.worst.breakdown)) {
        const double share = static_cast<double>(term.bytes) / bytes;
        if (share >= kSmallest) parts.push_back({share, fmt::format("{} {}", term.name, human_bytes(term.bytes)), term.style});
    }
    std::string html = "<div class=\"split\">\n" +
                       bar("memory-bar",
                           fmt::format("memory of rank {}: {} of {}{}", memory.worst_rank, human_bytes(memory.worst.peak_bytes()),
                                       human_bytes(memory.limit_bytes), memory.worst.routing ? ", with even routing" : ""),
                           parts);
    parts.clear();
    using simulator::kComputeModules;
    constexpr std::array<std::string_view, kComputeModules.size()> kColours{
        "parameters", "activations", "gradients", "optimizer", "communication", "workspace", "ep", "dp", "weight", "other"};
    for (const ModuleUse& use : longest_modules(prediction.time)) {
        if (use.share < kSmallest) continue;
        const auto module = std::ranges::find(kComputeModules, use.name.json, &simulator::ModuleName::json) - kComputeModules.begin();
        parts.push_back(
            {use.share, fmt::format("{} {}", use.name.text, human_seconds(use.seconds)), kColours[static_cast<std::size_t>(module)]});
    }
    if (!parts.empty())
        html += bar("module-bar",
                    fmt::format("compute of stage {}: {}", prediction.time.slowest_stage, human_seconds(prediction.time.compute_seconds)),
                    parts);
    return html + "</div>\n";
}

}  // namespace

std::string figures_section(const simulator::Prediction& prediction) {
    const auto& t = prediction.time;
    const auto& m = prediction.memory;
    std::string html = "<div class=\"cards\">\n";
    const auto card = [&](std::string_view name, const std::string& value, const std::string& more) {
        html += fmt::format("<div><span>{}</span><b>{}</b><span>{}</span></div>\n", name, html_escaped(value), html_escaped(more));
    };
    card("iteration", human_seconds(t.iteration_seconds),
         fmt::format("{} to {}", human_seconds(t.interval_low), human_seconds(t.interval_high)));
    card("tokens/s per GPU", with_thousands(std::llround(t.tokens_per_second_per_gpu)),
         fmt::format("{:.1f} TFLOP/s", t.model_tflops_per_gpu));
    card("MFU", fmt::format("{:.1f} %", 100 * t.mfu), fmt::format("HFU {:.1f} %", 100 * t.hfu));
    card("idle", fmt::format("{:.1f} %", 100 * t.idle_fraction()), "of all ranks' time");
    card("exposed communication", fmt::format("{:.1f} %", 100 * t.exposed.total() / t.iteration_seconds), human_seconds(t.exposed.total()));
    card("peak memory", human_bytes(m.deciding_bytes()),
         fmt::format("of {}{}", human_bytes(m.limit_bytes), m.fits() ? "" : ": does not fit"));
    return html + "</div>\n" + bars_section(prediction);
}

namespace {

/// A table of longest_modules().
std::string modules_section(const simulator::TimePrediction& time) {
    const auto uses = longest_modules(time);
    if (uses.empty()) return "";
    std::string html =
        fmt::format("<h2>Where the compute goes ({}, slowest stage: {})</h2>\n", human_seconds(time.compute_seconds), time.slowest_stage);
    html +=
        "<div class=\"scroll\"><table class=\"bars\" id=\"modules\">\n<thead><tr><th>module</th><th>seconds</th><th></th>"
        "<th>share</th><th>TFLOP/s</th><th>GB/s</th></tr></thead>\n<tbody>\n";
    for (const ModuleUse& use : uses) {
        html += fmt::format(
            "<tr><td>{}</td><td>{:.4f}</td><td><i style=\"background: var(--forward); width: calc({:.4f} * min(24em, max(0px, "
            "40vw - 12.5rem)))\"></i></td><td>{:.1f} %</td><td>{}</td><td>{}</td></tr>\n",
            use.name.text, use.seconds, std::max(0.006, use.share), 100 * use.share, rate_text(use.flops_per_second, 1e12),
            rate_text(use.bytes_per_second, 1e9));
    }
    return html + "</tbody>\n</table></div>\n<p class=\"faint\">Recompute is included; rates are those of one GPU.</p>\n";
}

}  // namespace

std::string time_section(const simulator::Prediction& prediction) {
    const auto& t = prediction.time;
    std::vector<TimeTerm> parts;
    for (const TimeTerm& term : time_terms(t)) {
        if (term.seconds > kRoundingOfTerms * t.iteration_seconds) parts.push_back(term);
    }
    std::string html = fmt::format("<h2>Where the {} go (slowest stage: {})</h2>\n", human_seconds(t.iteration_seconds), t.slowest_stage);
    html += fmt::format("<svg id=\"parts\" viewBox=\"0 0 {:.0f} 30\" role=\"img\" aria-label=\"Parts of the iteration\">\n", kWidth);
    double x = 0;
    for (const TimeTerm& part : parts) {
        const double width = kWidth * part.seconds / t.iteration_seconds;
        html +=
            fmt::format("<rect x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"26\" style=\"fill: var(--{})\"><title>{} {}</title></rect>\n",
                        x, width, part.style, part.text, human_seconds(part.seconds));
        x += width;
    }
    html +=
        "</svg>\n<div class=\"scroll\"><table class=\"bars\" "
        "id=\"times\">\n<thead><tr><th>part</th><th>seconds</th><th></th><th>share</th></tr></thead>\n<tbody>\n";
    for (const TimeTerm& part : parts) {
        const double share = part.seconds / t.iteration_seconds;
        html += fmt::format(
            "<tr><td>{}</td><td>{:.6f}</td><td><i style=\"background: var(--{}); width: calc({:.4f} * min(24em, "
            "26vw))\"></i></td><td>{:.1f} %</td></tr>\n",
            part.text, part.seconds, part.style, std::max(0.006, share), 100 * share);
    }
    html += "</tbody>\n</table></div>\n<p class=\"faint\">Exposed: what no computation hides, by the group that communicates.</p>\n";
    return html + modules_section(t) + "<script type=\"application/json\" id=\"prediction\">" +
           json_inside_script(prediction_to_json(prediction)) + "</script>\n";
}

std::string pipeline_section(const PipelinePicture& picture, const std::string& schedule) {
    const PipelineDrawing drawing(picture);
    std::string html = fmt::format("<h2>The pipeline, schedule {}</h2>\n", html_escaped(schedule));
    std::vector<std::pair<std::string_view, std::string_view>> names{{"forward", "forward"}, {"backward", "backward"}};
    if (picture.chunks > 1) names.insert(names.end(), {{"forward2", "forward, odd chunks"}, {"backward2", "backward, odd chunks"}});
    const bool split =
        std::any_of(picture.passes.begin(), picture.passes.end(), [](const DrawnPass& op) { return op.pass == Pass::weight_gradient; });
    if (split) names.emplace_back("weight", "weight gradients");
    names.insert(names.end(), {{"dp", "gradient reduction and parameter gather (thin)"}, {"optimizer", "optimizer"}, {"idle", "idle"}});
    html += legend(names);
    if (std::ranges::any_of(picture.passes, &DrawnPass::paired))
        html +=
            "<p class=\"faint\">A forward above a backward: both run at the same time and hide each other's exchanges of experts.</p>\n";
    const auto panels = drawing.panels();
    if (picture.ranks > kMostDrawnRanks)
        html += fmt::format("<p class=\"faint\">Of {} pipeline ranks the first and last {} are drawn.</p>\n", picture.ranks,
                            kMostDrawnRanks / 2);
    if (panels.front().end < drawing.end()) {
        html +=
            fmt::format("<p class=\"faint\">{} passes are too many to draw one by one.</p>\n", with_thousands(std::ssize(picture.passes)));
        html += drawing.overview();
    }
    Json data = Json::array();
    for (std::size_t i = 0; i < panels.size(); ++i) html += drawing.draw(panels[i], static_cast<int>(i), data);
    html += "<script type=\"application/json\" id=\"passes\">" + json_inside_script(data) + "</script>\n";
    return html + page_script("pipeline.js");
}

std::string groups_section(const Layout& layout, int gpus_per_node) {
    const ParallelSizes& sizes = layout.sizes;
    const std::int64_t drawn = std::min(sizes.world, kMostDrawnGroupRanks), node = std::max(1, gpus_per_node);
    // Nodes side by side, each a block of its ranks in rows of eight, so that the picture is wider than tall.
    const std::int64_t in_row = std::min<std::int64_t>(node, 8), rows_of_node = (node + in_row - 1) / in_row;
    const std::int64_t nodes = (drawn + node - 1) / node;
    const double cell = 13, gap = 8;
    const double block_width = static_cast<double>(in_row) * cell + gap, block_height = static_cast<double>(rows_of_node) * cell + gap;
    const auto columns = std::max<std::int64_t>(1, std::min(nodes, static_cast<std::int64_t>(kWidth / block_width)));
    const std::int64_t lines = (nodes + columns - 1) / columns;
    const double height = static_cast<double>(lines) * block_height;
    Json axes = Json::array();
    std::string table, choice;
    const auto add = [&](const GridAxis& axis, bool expert) {
        if (axis.size <= 1) return;
        const auto name = name_of(axis.axis, expert);
        choice += fmt::format("<label><input type=\"radio\" name=\"axis\"{}> {}</label>\n", axes.empty() ? " checked" : "", name);
        axes.push_back(Json::array({name, axis.size, axis.stride}));
        std::string members;
        for (std::int64_t i = 0; i < axis.size; ++i) {
            if (i >= 8 && i + 1 < axis.size) continue;
            if (i >= 8 && axis.size > 9) members += " …";
            members += fmt::format("{}{}", members.empty() ? "" : " ", i * axis.stride);
        }
        table += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", name, axis.size,
                             with_thousands(axis.stride), with_thousands(sizes.world / axis.size), members);
    };
    for (const GridAxis& axis : dense_grid(sizes)) add(axis, false);
    for (const GridAxis& axis : expert_grid(sizes)) {
        // The pipeline is the same in both grids; so is everything else without experts.
        if (axis.axis != Axis::pp && sizes.ep > 1) add(axis, true);
    }
    std::string html = "<h2>Rank groups</h2>\n";
    if (axes.empty()) return html + "<p>One rank, no groups.</p>\n";
    html += fmt::format(
        "<p class=\"faint\">Each block is a node of {}, each square a rank in the colour of its stage.{}</p>\n",
        counted(gpus_per_node, "GPU"),
        drawn < sizes.world ? fmt::format(" Of {} ranks the first {} are drawn.", with_thousands(sizes.world), with_thousands(drawn)) : "");
    html += "<p class=\"choice\">Show the group of the rank under the pointer along:\n" + choice + "</p>\n";
    html += fmt::format(
        "<svg id=\"ranks\" viewBox=\"0 0 {:.0f} {:.0f}\" style=\"max-width: {:.0f}px\" role=\"img\" aria-label=\"Ranks by node and "
        "stage\">\n",
        static_cast<double>(columns) * block_width, height, static_cast<double>(columns) * block_width * 1.6);
    for (std::int64_t rank = 0; rank < drawn; ++rank) {
        const std::int64_t block = rank / node, inside = rank % node;
        const std::int64_t line = block / columns, line_inside = inside / in_row;
        const double x = static_cast<double>(block % columns) * block_width + static_cast<double>(inside % in_row) * cell;
        const double y = static_cast<double>(line) * block_height + static_cast<double>(line_inside) * cell;
        const std::int64_t stage = stage_of_rank(sizes, rank);
        html += fmt::format(
            "<rect class=\"rank\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"hsl({:.0f} 45% 52%)\"/>\n", x + 1,
            y + 1, 210 + 330.0 * static_cast<double>(stage) / static_cast<double>(sizes.pp));
    }
    html += "</svg>\n<p class=\"faint\" id=\"rank-text\">Point at a rank to see its groups.</p>\n";
    html +=
        "<div class=\"scroll\"><table class=\"members\">\n<thead><tr><th>axis</th><th>size</th><th>stride</th><th>groups</th><th>the group "
        "of rank "
        "0</th></tr></thead>\n<tbody>\n" +
        table + "</tbody>\n</table></div>\n";
    html += "<script type=\"application/json\" id=\"groups\">" + json_inside_script(axes) + "</script>\n";
    return html + page_script("groups.js");
}

}  // namespace mgplan::reports
