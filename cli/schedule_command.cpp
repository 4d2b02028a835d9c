#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/list_writer.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "cli/split_schedule_writer.hpp"
#include "plan/layout/layout_schedule.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

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

/// "F3" or, with chunks, "F3b": one entry of a list with undivided backwards.
std::string operation_text(const PipelineOp& op, bool chunks) {
    std::string text = fmt::format("{}{}", op.pass == Pass::forward ? 'F' : 'B', op.microbatch);
    if (chunks) text += op.chunk < 26 ? std::string(1, static_cast<char>('a' + op.chunk)) : fmt::format("c{}", op.chunk);
    return text;
}

/// Runs the order lists against their dependencies up to `horizon` steps; what each of the first ranks does, and whether
/// anything was left undone.
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

/// The picture with a forward of one chunk as one step and a backward as two, as drawn in the literature (Narayanan et
/// al. 2021, arXiv 2104.04473, figure 4), without communication. At most `columns` wide: long schedules wrap into a few
/// bands and are then cut, with a note; so are many ranks. Work is bounded by what is drawn.
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

constexpr std::size_t kScheduleColumns = 100;
constexpr std::size_t kLinesPerRank = 4;
constexpr int kMostScheduleRows = 32;
/// Entries of all ranks together: about 2 GB of JSON.
constexpr std::int64_t kMostScheduleEntries = std::int64_t{1} << 28;

struct ScheduleOptions {
    std::optional<std::int64_t> microbatches;
    std::int64_t pp = 1;
    std::int64_t vpp = 1;
    std::optional<std::int64_t> group_size;
    std::string kind = "auto";
    bool forward_only = false;
};

/// Sets the sizes and the kind to those of the plan's schedule.
void take_plan(const Options& options, const std::string& file, ScheduleOptions& given) {
    constexpr std::array kOfPlan{"pp", "vpp", "microbatches", "group-size", "kind"};
    const Layout layout = load_asked_plan(options, file, kOfPlan).layout;
    given.pp = layout.sizes.pp;
    given.vpp = layout.vpp;
    given.microbatches = layout.num_microbatches;
    given.kind = schedule_name(layout);
    if (layout.vpp > 1 && !layout.schedule) given.group_size = layout.group_size;
}

ScheduleRequest request_of(const ScheduleOptions& given) {
    if (!given.microbatches) throw ConfigError("--microbatches is missing; give the number of microbatches of one iteration");
    ScheduleRequest request;
    request.pp = static_cast<int>(given.pp);
    request.vpp = static_cast<int>(given.vpp);
    request.microbatches = *given.microbatches;
    request.group_size = given.group_size;
    request.forward_only = given.forward_only;
    if (given.kind == "none") request.kind = ScheduleKind::none;
    if (given.kind == "1f1b") request.kind = ScheduleKind::one_f_one_b;
    if (given.kind == "interleaved") request.kind = ScheduleKind::interleaved;
    return request;
}

/// Returns the order of a split schedule; nothing if given.kind is another.
std::optional<PipelineOrder> split_order_of(const ScheduleOptions& given, bool vpp_given) {
    const auto kind = parse_split_schedule(given.kind);
    if (!kind) return std::nullopt;
    Problems problems;
    if (!given.microbatches) problems.add("--microbatches is missing; give the number of microbatches of one iteration");
    if (vpp_given && given.vpp != chunks_of(*kind))
        problems.add("--kind {} has vpp = {}, but --vpp {} is given; leave it out", given.kind, chunks_of(*kind), given.vpp);
    if (given.forward_only)
        problems.add("schedule {} orders backwards, so --forward-only cannot be combined with it; leave it out", given.kind);
    if (given.group_size) problems.add("--kind {} has no microbatch groups; leave --group-size out", given.kind);
    SplitScheduleRequest request;
    request.kind = *kind;
    request.pp = static_cast<int>(given.pp);
    request.microbatches = given.microbatches.value_or(4 * given.pp);
    try {
        PipelineOrder order = split_order(request);
        problems.throw_if_any();
        return order;
    } catch (const ConfigError& error) {
        if (problems.empty()) throw;
        if (given.microbatches) problems.absorb(error);
    }
    problems.throw_if_any();
    return std::nullopt;
}

void check_size(const Schedule& schedule) {
    const std::int64_t per_rank = schedule.microbatches() * schedule.vpp() * (schedule.forward_only() ? 1 : 2);
    if (per_rank > kMostScheduleEntries / schedule.pp()) {
        throw ConfigError(
            fmt::format("pp = {} with {} forwards and backwards a rank make more than {} entries; use fewer microbatches, chunks or ranks",
                        schedule.pp(), with_thousands(per_rank), with_thousands(kMostScheduleEntries)));
    }
}

/// One number of each entry of the list, as a JSON list.
void write_column(ListWriter& writer, const RankSchedule& rank, const auto& number) {
    writer.text("[");
    for (std::size_t i = 0; i < rank.ops.size(); ++i) {
        if (i > 0) writer.text(",");
        writer.number(number(rank.ops[i]));
    }
    writer.text("]");
}

void write_json(std::ostream& out, const Schedule& schedule) {
    ListWriter writer(out);
    writer.text(fmt::format(R"({{"pp":{},"vpp":{},"microbatches":{},"group_size":{},"kind":"{}","forward_only":{},"table":[)",
                            schedule.pp(), schedule.vpp(), schedule.microbatches(), schedule.group_size(), to_string(schedule.kind()),
                            schedule.forward_only()));
    bool first = true;
    for (const auto& [microbatch, chunk] : schedule.table()) {
        writer.text(first ? "[" : ",[");
        first = false;
        writer.number(microbatch);
        writer.text(",");
        writer.number(chunk);
        writer.text("]");
    }
    writer.text("],\"ranks\":[");
    for (int r = 0; r < schedule.pp(); ++r) {
        const RankSchedule rank = schedule.rank(r);
        writer.text(fmt::format(R"({}{{"rank":{},"warmup":{},"order":)", r > 0 ? "," : "", r, rank.warmup));
        write_column(writer, rank, [](const PipelineOp& op) { return signed_chunk(op); });
        writer.text(",\"microbatch\":");
        write_column(writer, rank, [](const PipelineOp& op) { return op.microbatch; });
        writer.text(fmt::format(",\"peak_live\":{},\"live_per_chunk\":", rank.peak_live));
        writer.list(std::span<const std::int64_t>(rank.live_per_chunk));
        writer.text("}");
    }
    writer.text("]}\n");
}

void write_csv(std::ostream& out, const Schedule& schedule) {
    ListWriter writer(out);
    writer.text("rank,step,op,chunk,microbatch\n");
    for (int r = 0; r < schedule.pp(); ++r) {
        const RankSchedule rank = schedule.rank(r);
        for (std::size_t i = 0; i < rank.ops.size(); ++i) {
            const PipelineOp& op = rank.ops[i];
            writer.number(r);
            writer.text(",");
            writer.number(i);
            writer.text(op.pass == Pass::forward ? ",F," : ",B,");
            writer.number(op.chunk);
            writer.text(",");
            writer.number(op.microbatch);
            writer.text("\n");
        }
    }
}

/// The rank's list as "F0 F1 B0 …", with chunk letters where there are chunks, wrapped and cut.
void write_rank(std::ostream& out, const RankSchedule& rank, bool chunks) {
    out << fmt::format("rank {}: warm-up {}, peak live {}", rank.rank, rank.warmup, rank.peak_live);
    if (chunks)
        out << fmt::format(
            " (chunks: {})",
            fmt::join(rank.live_per_chunk.begin(),
                      rank.live_per_chunk.begin() + std::min<std::ptrdiff_t>(16, static_cast<std::ptrdiff_t>(rank.live_per_chunk.size())),
                      " "));
    out << "\n";
    std::string line = " ";
    std::size_t lines = 0;
    for (std::size_t i = 0; i < rank.ops.size(); ++i) {
        const std::string text = operation_text(rank.ops[i], chunks);
        if (line.size() + 1 + text.size() > kScheduleColumns) {
            out << line << "\n";
            line = " ";
            if (++lines == kLinesPerRank) {
                out << fmt::format("  ... {} more (--format json or csv lists all)\n",
                                   with_thousands(static_cast<std::int64_t>(rank.ops.size() - i)));
                return;
            }
        }
        line += " " + text;
    }
    out << line << "\n";
}

void write_table(std::ostream& out, const Schedule& schedule) {
    const bool chunks = schedule.vpp() > 1;
    out << fmt::format("schedule {}: pp {}, vpp {}, {} microbatch{}", to_string(schedule.kind()), schedule.pp(), schedule.vpp(),
                       schedule.microbatches(), schedule.microbatches() == 1 ? "" : "es");
    if (schedule.kind() == ScheduleKind::interleaved) out << fmt::format(" in groups of {}", schedule.group_size());
    out << (schedule.forward_only() ? ", forward only\n" : "\n");
    out << fmt::format("F3{0} forward of microbatch 3{1}, B3{0} its backward\n\n", chunks ? "a" : "",
                       chunks ? " on chunk 0 (b: chunk 1, ...)" : "");
    const int shown = schedule.pp() > kMostScheduleRows ? kMostScheduleRows / 2 : schedule.pp();
    for (int r = 0; r < schedule.pp(); ++r) {
        if (r == shown && schedule.pp() > kMostScheduleRows) {
            out << fmt::format("... {} more ranks (--format json or csv lists all)\n", schedule.pp() - 2 * shown);
            r = schedule.pp() - shown;
        }
        write_rank(out, schedule.rank(r), chunks);
    }
    out << "\n" << schedule_picture(schedule, kScheduleColumns);
}

}  // namespace

int run_schedule(const std::vector<std::string>& args, Console& console) {
    ScheduleOptions given;
    std::vector<std::string> kinds{"auto", "none", "1f1b", "interleaved"};
    for (const auto& name : split_schedule_names()) kinds.push_back(name);
    std::vector<std::string> plan_file;
    Options options("schedule (PLAN | --pp P --microbatches M) [options]",
                    "Shows the pipeline schedule: which forwards and backwards each pipeline rank runs, in order, "
                    "how many microbatches wait for their backward, and a picture over time.");
    options.positional("PLAN", plan_file, 1, "a plan written by --save-plan");
    options.group("Pipeline");
    options.integer("pp", given.pp, 1, 65'536, "pipeline parallel size");
    options.integer("vpp", given.vpp, 1, 32'767, "model chunks per pipeline rank; more than 1 interleaves");
    options.integer("microbatches", given.microbatches, 1, kMaxRankOps, "microbatches of one iteration");
    options.integer("group-size", given.group_size, 1, kMaxRankOps, "microbatch group of the interleaved schedule (default: pp)");
    options.choice("kind", given.kind, kinds,
                   "auto: none for pp 1, interleaved for vpp > 1, else 1f1b. zb-h1 and later ones split the backward pass; mgplan runs "
                   "them, Megatron-LM does not");
    options.flag("forward-only", given.forward_only, "forward passes only, as in evaluation");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;

    if (!plan_file.empty()) take_plan(options, plan_file.front(), given);
    if (const auto order = split_order_of(given, options.given("vpp"))) {
        options.write(console, [&](std::ostream& out) {
            switch (options.format()) {
                case Format::json:
                    return write_split_json(out, *order, given.kind);
                case Format::csv:
                    return write_split_csv(out, *order);
                case Format::table:
                    return write_split_table(out, *order, given.kind, kScheduleColumns);
            }
        });
        return kDone;
    }
    const Schedule schedule(request_of(given));
    check_size(schedule);
    options.note_idle(console, "group-size", schedule.kind() != ScheduleKind::interleaved, "only the interleaved schedule has groups");
    options.write(console, [&](std::ostream& out) {
        switch (options.format()) {
            case Format::json:
                return write_json(out, schedule);
            case Format::csv:
                return write_csv(out, schedule);
            case Format::table:
                return write_table(out, schedule);
        }
    });
    return kDone;
}

}  // namespace mgplan::cli
