#include "cli/schedule_picture.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace mgplan::cli {
namespace {

constexpr std::int64_t kBands = 3;
constexpr std::int64_t kMostPictureRows = 32;
constexpr std::int64_t kBackwardSteps = 2;
constexpr std::string_view kLabel = "rank 12345  ";

struct Block {
    std::int64_t start;
    std::int64_t steps;
    std::string text;
};

/// Result of running the order lists against their dependencies up to `horizon` steps: the work of the first ranks;
/// `complete` if nothing was left undone.
struct Run {
    std::vector<std::vector<Block>> rows;
    bool complete = true;
    std::int64_t end = 0;
};

Run run_until(const Schedule& schedule, std::int64_t horizon) {
    // Stage s cannot begin before step s, so later ranks have nothing to draw.
    const auto ranks = static_cast<std::size_t>(std::min<std::int64_t>(schedule.pp(), horizon));
    const std::int64_t last_stage = std::int64_t{schedule.pp()} * schedule.vpp() - 1;
    Run run;
    run.rows.resize(ranks);
    run.complete = std::cmp_equal(ranks, schedule.pp());
    std::vector<RankSchedule> lists;
    for (std::size_t r = 0; r < ranks; ++r) {
        lists.push_back(schedule.rank(static_cast<int>(r)));
        // No list gets farther than one entry a step.
        auto& ops = lists.back().ops;
        ops = {ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(std::min(ops.size(), static_cast<std::size_t>(horizon) + 1))};
    }
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> forward_end;
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> backward_end;
    const auto find = [](const auto& ends, std::int64_t stage, std::int64_t microbatch) -> std::optional<std::int64_t> {
        const auto found = ends.find({stage, microbatch});
        return found == ends.end() ? std::nullopt : std::optional(found->second);
    };
    std::vector<std::size_t> next(ranks, 0);
    std::vector<std::int64_t> free_at(ranks, 0);
    for (bool progress = true; progress;) {
        progress = false;
        for (std::size_t r = 0; r < ranks; ++r) {
            for (; next[r] < lists[r].ops.size(); ++next[r]) {
                const PipelineOp& op = lists[r].ops[next[r]];
                const std::int64_t microbatch = op.microbatch;
                const bool is_forward = op.pass == Pass::forward;
                const std::int64_t stage = std::int64_t{op.chunk} * schedule.pp() + static_cast<std::int64_t>(r);
                std::optional<std::int64_t> ready = 0;
                if (is_forward && stage > 0) ready = find(forward_end, stage - 1, microbatch);
                if (!is_forward)
                    ready = stage == last_stage ? find(forward_end, stage, microbatch) : find(backward_end, stage + 1, microbatch);
                if (!ready) break;
                const std::int64_t start = std::max(*ready, free_at[r]);
                if (start >= horizon) break;
                const std::int64_t steps = is_forward ? 1 : kBackwardSteps;
                (is_forward ? forward_end : backward_end)[{stage, microbatch}] = start + steps;
                free_at[r] = start + steps;
                run.end = std::max(run.end, start + steps);
                run.rows[r].push_back({start, steps, operation_text(op, schedule.vpp() > 1)});
                progress = true;
            }
        }
    }
    for (std::size_t r = 0; r < ranks; ++r) {
        if (next[r] < lists[r].ops.size()) run.complete = false;
    }
    return run;
}

/// One line of cells: "F0 F1 ", a backward "B0----" over its steps, idle time as dots.
std::string line_of(const std::vector<Block>& blocks, std::int64_t from, std::int64_t to, std::size_t width) {
    std::string line(static_cast<std::size_t>(to - from) * width, ' ');
    for (std::int64_t step = from; step < to; ++step) line[static_cast<std::size_t>(step - from) * width] = '.';
    for (const auto& block : blocks) {
        std::string drawn = block.text;
        drawn.append(static_cast<std::size_t>(block.steps) * width - 1 - drawn.size(), block.steps > 1 ? '-' : ' ');
        drawn += ' ';
        for (std::int64_t step = std::max(block.start, from); step < std::min(block.start + block.steps, to); ++step) {
            line.replace(static_cast<std::size_t>(step - from) * width, width, drawn, static_cast<std::size_t>(step - block.start) * width,
                         width);
        }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

}  // namespace

std::string operation_text(const PipelineOp& op, bool chunks) {
    std::string text = fmt::format("{}{}", op.pass == Pass::forward ? 'F' : 'B', op.microbatch);
    if (chunks) text += op.chunk < 26 ? std::string(1, static_cast<char>('a' + op.chunk)) : fmt::format("c{}", op.chunk);
    return text;
}

std::string schedule_picture(const Schedule& schedule, std::size_t columns) {
    const std::size_t room = columns - kLabel.size();
    // The narrowest cell ("F0 ") bounds how many steps can be drawn.
    const auto horizon = static_cast<std::int64_t>(room / 3) * kBands;
    const Run run = run_until(schedule, horizon);
    std::size_t width = 3;
    for (const auto& row : run.rows) {
        for (const auto& block : row) width = std::max(width, block.text.size() + 1);
    }
    const auto per_band = static_cast<std::int64_t>(room / width);
    const std::int64_t drawn = std::min(run.end, per_band * kBands);
    const std::int64_t rows = std::min<std::int64_t>(kMostPictureRows, static_cast<std::int64_t>(run.rows.size()));

    std::string out = "time across, one column a forward; a backward takes two\n";
    for (std::int64_t from = 0; from < drawn; from += per_band) {
        const std::int64_t to = std::min(from + per_band, drawn);
        if (from > 0) out += fmt::format("\nfrom step {}\n", from);
        for (std::int64_t r = 0; r < rows; ++r) {
            out +=
                fmt::format("rank {:<{}}", r, kLabel.size() - 5) + line_of(run.rows[static_cast<std::size_t>(r)], from, to, width) + "\n";
        }
    }
    if (!run.complete || drawn < run.end) out += fmt::format("... cut after {} steps\n", drawn);
    if (rows < schedule.pp()) out += fmt::format("... {} more ranks\n", schedule.pp() - rows);
    return out;
}

}  // namespace mgplan::cli
