#include "reports/memory_timeline.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using model::MemoryCategory;
using simulator::TimelineOp;

/// Parameters, gradients and optimizer state; includes the update's temporaries.
std::int64_t held_bytes(const TimelineOp& op) {
    std::int64_t sum = 0;
    for (const auto category : {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer})
        sum += op.at_peak[static_cast<std::size_t>(category)];
    return sum;
}

/// The characters of a drawing.
struct Glyphs {
    std::string_view held, full, line, axis, tick, corner, floor, cut, mark;
    std::vector<std::string_view> parts;  ///< partly filled cells, from low to high, without empty and full
};

Glyphs glyphs(bool unicode) {
    if (!unicode) return {":", "#", "-", "|", "+", "+", "-", "+", "^", {}};
    return {"▒", "█", "─", "│", "┤", "└", "─", "┬", "▲", {"▁", "▂", "▃", "▄", "▅", "▆", "▇"}};
}

/// One column's height in parts of a cell.
struct Bar {
    std::int64_t held = 0;
    std::int64_t total = 0;
};

/// The row that contains this height, from below; a height on an edge belongs to the row below it.
std::int64_t row_of(std::int64_t height, std::int64_t parts) {
    return std::max<std::int64_t>(0, (height + parts - 1) / parts - 1);
}

/// Columns of the scale at the left.
constexpr std::size_t kScale = 18;

/// Numbers of ops under the ends and the cuts of the axis: each begins below its position, or ends there if the next would not have room; a
/// number without room is left out.
std::string places_text(const CurveSteps& drawn, std::size_t width, std::int64_t end) {
    const std::size_t columns = drawn.steps.size() * width;
    std::string line(kScale + columns, ' ');
    const std::string last = with_thousands(end);
    line.replace(line.size() - last.size(), last.size(), last);
    std::size_t free = 0;
    std::vector<std::size_t> places{0};
    places.insert(places.end(), drawn.cuts.begin(), drawn.cuts.end());
    for (const std::size_t place : places) {
        const std::string text = with_thousands(drawn.steps[place].first);
        std::size_t at = place * width;
        if (at + text.size() + 1 > columns - last.size() && at + 1 >= text.size()) at = at + 1 - text.size();
        if (at < free || at + text.size() + 1 > columns - last.size()) continue;
        line.replace(kScale + at, text.size(), text);
        free = at + text.size() + 1;
    }
    return line + "\n";
}

}  // namespace

std::int64_t MemoryCurve::top() const {
    const std::int64_t peak = stage.memory.peak_bytes();
    return limit_bytes / 2 <= peak ? std::max(limit_bytes, peak) : peak;
}

CurveSteps fullest_steps(const simulator::StageTimeline& timeline, std::size_t most) {
    MGPLAN_ASSERT(most >= 8, "a drawing has room for begin, middle and end");
    const auto& memory = timeline.memory;
    std::vector<CurveStep> all{{&memory.begin, 0, 0}};
    for (const TimelineOp& op : memory.ops) all.push_back({&op, op.index + 1, op.index + 1});
    const std::int64_t end = std::ssize(timeline.schedule.ops) + 1;
    all.push_back({&memory.end, end, end});
    CurveSteps drawn;
    drawn.every_op = std::ssize(all) == end + 1;
    if (all.size() <= most) {
        drawn.steps = std::move(all);
        return drawn;
    }
    drawn.every_op = false;
    // After the warm-up forwards the same number of ops follows until backwards and forwards alternate; the end mirrors that.
    const std::int64_t slope = std::min(2 * timeline.schedule.warmup + 2, end / 3);
    const auto place_before = [](const CurveStep& step, std::int64_t place) { return step.place < place; };
    const auto rise = std::lower_bound(all.begin(), all.end(), slope, place_before);
    const auto fall = std::lower_bound(all.begin(), all.end(), end - slope, place_before);
    const auto side = [&](auto length) { return std::min(static_cast<std::size_t>(length), most * 3 / 8); };
    const std::size_t left = side(rise - all.begin()), right = side(all.end() - fall);
    const auto thin = [&](auto begin, auto end_of, std::size_t steps) {
        const auto length = static_cast<std::size_t>(end_of - begin);
        steps = std::min(steps, length);
        for (std::size_t i = 0; i < steps; ++i) {
            const auto first = begin + static_cast<std::ptrdiff_t>(i * length / steps);
            const auto last = begin + static_cast<std::ptrdiff_t>((i + 1) * length / steps);
            drawn.steps.push_back(
                *std::max_element(first, last, [](const CurveStep& a, const CurveStep& b) { return a.op->peak < b.op->peak; }));
            drawn.steps.back().first = first->first;
        }
    };
    thin(all.begin(), rise, left);
    drawn.cuts.push_back(drawn.steps.size());
    thin(rise, fall, most - left - right);
    drawn.cuts.push_back(drawn.steps.size());
    thin(fall, all.end(), right);
    return drawn;
}

std::size_t fullest_of(const CurveSteps& steps) {
    const auto fullest = std::max_element(steps.steps.begin(), steps.steps.end(),
                                          [](const CurveStep& a, const CurveStep& b) { return a.op->peak < b.op->peak; });
    return static_cast<std::size_t>(fullest - steps.steps.begin());
}

std::string step_text(const simulator::StageTimeline& timeline, const CurveStep& step) {
    if (!step.op->op) return step.op == &timeline.memory.begin ? "begin of the step" : "end of the step";
    const PipelineOp& op = *step.op->op;
    return fmt::format("{} of chunk {}, microbatch {}", to_string(op.pass), op.chunk, op.microbatch);
}

std::string memory_timeline_text(const MemoryCurve& curve, const TextDrawing& drawing) {
    MGPLAN_ASSERT(drawing.columns >= 16 && drawing.rows >= 2, "a drawing needs room");
    const Glyphs glyph = glyphs(drawing.unicode);
    const auto parts = static_cast<std::int64_t>(glyph.parts.size()) + 1;
    const auto rows = static_cast<std::int64_t>(drawing.rows);
    const std::int64_t top = std::max<std::int64_t>(1, curve.top());
    const bool shows_limit = curve.limit_bytes <= top;
    const auto height = [&](std::int64_t bytes) {
        return static_cast<std::int64_t>(static_cast<double>(bytes) / static_cast<double>(top) * static_cast<double>(rows * parts) + 0.5);
    };

    const CurveSteps drawn = fullest_steps(curve.timeline, drawing.columns);
    const auto& steps = drawn.steps;
    const std::size_t width = drawing.columns / steps.size();  // of one step, at least 1
    std::vector<Bar> bars;
    for (const CurveStep& step : steps) {
        const Bar bar{(height(held_bytes(*step.op) + curve.outside()) + parts / 2) / parts * parts,
                      height(step.op->peak + curve.outside())};
        bars.insert(bars.end(), width, bar);
    }
    const std::int64_t limit_row = shows_limit ? row_of(height(curve.limit_bytes), parts) : -1;

    std::string text = fmt::format("memory of rank {} (stage {}) over one iteration: {} forwards and backwards", curve.stage.first_rank,
                                   curve.stage.stage, with_thousands(std::ssize(curve.timeline.schedule.ops)));
    if (!drawn.every_op) text += ", the fullest of neighbours";
    text = "\n" + in_lines(text, 0) + "\n";
    for (std::int64_t row = rows - 1; row >= 0; --row) {
        std::string label;
        if (row == limit_row)
            label = "limit " + human_bytes(curve.limit_bytes);
        else if (row == rows - 1 || row == (rows - 1) / 2)
            label =
                human_bytes(static_cast<std::int64_t>(static_cast<double>(top) / static_cast<double>(rows) * static_cast<double>(row + 1)));
        // A wide limit does not shift the line: the scale is as wide as the widest label ("limit 1023.9 GiB").
        text += fmt::format("{:>16} {}", label, label.empty() ? glyph.axis : glyph.tick);
        std::string line;
        for (const Bar& bar : bars) {
            const std::int64_t low = row * parts;
            if (bar.total >= low + parts)
                line += bar.held >= low + parts ? glyph.held : glyph.full;
            else if (bar.total > low)
                line += glyph.parts[static_cast<std::size_t>(bar.total - low - 1)];
            else
                line += row == limit_row ? glyph.line : std::string_view(" ");
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    text += fmt::format("{:>16} {}", "0", glyph.corner);
    for (std::size_t i = 0; i < bars.size(); ++i) {
        const bool cut = i % width == 0 && std::find(drawn.cuts.begin(), drawn.cuts.end(), i / width) != drawn.cuts.end();
        text += cut ? glyph.cut : glyph.floor;
    }
    text += "\n" + places_text(drawn, width, std::ssize(curve.timeline.schedule.ops) + 1);

    const std::size_t peak = fullest_of(drawn);
    text += fmt::format("{:>{}}\n", glyph.mark, kScale + peak * width + width / 2 + 1);
    text += fmt::format("{:>16}  {}\n", "peak " + human_bytes(curve.stage.memory.peak_bytes()),
                        curve.stage.peak_op ? curve.stage.peak_op->text() : step_text(curve.timeline, steps[peak]));
    text += fmt::format("{:>16}  {} comes and goes\n{:>16}  {} held all the time: parameters, gradients, optimizer, context\n", "",
                        glyph.full, "", glyph.held);
    if (!shows_limit) text += fmt::format("{:>16}  limit {}, far above\n", "", human_bytes(curve.limit_bytes));
    return text;
}

}  // namespace mgplan::reports
