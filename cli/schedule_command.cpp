#include <algorithm>
#include <optional>
#include <ostream>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/list_writer.hpp"
#include "cli/options.hpp"
#include "cli/schedule_picture.hpp"
#include "cli/split_schedule_writer.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

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
    if (given.forward_only) problems.add("--kind {} orders backwards, so --forward-only has no place beside it; leave it out", given.kind);
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
    Options options("schedule --pp P --microbatches M [options]",
                    "Shows the pipeline schedule: which forwards and backwards each pipeline rank runs, in order, "
                    "how many microbatches wait for their backward, and a picture over time.");
    options.group("Pipeline");
    options.integer("pp", given.pp, 1, 65'536, "pipeline parallel size");
    options.integer("vpp", given.vpp, 1, 32'767, "model chunks per pipeline rank; more than 1 interleaves");
    options.integer("microbatches", given.microbatches, 1, kMaxRankOps, "microbatches of one iteration");
    options.integer("group-size", given.group_size, 1, kMaxRankOps, "microbatch group of the interleaved schedule (default: pp)");
    options.choice("kind", given.kind, kinds,
                   "auto: none for pp 1, interleaved for vpp > 1, else 1f1b; from zb-h1 on backwards are split: engine mgplan simulates "
                   "and trains these, Megatron-LM has none");
    options.flag("forward-only", given.forward_only, "forwards alone, as in evaluation");
    if (!options.parse(args, console.out)) return kDone;

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
