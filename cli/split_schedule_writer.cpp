#include "cli/split_schedule_writer.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "cli/list_writer.hpp"
#include "plan/text/text.hpp"
#include "simulator/timeline/pipeline_run.hpp"

namespace mgplan::cli {
namespace {

constexpr int kMostWriterRows = 32;

char letter(Pass pass) {
    return pass == Pass::forward ? 'F' : pass == Pass::weight_gradient ? 'W' : 'B';
}

std::string text_of(const PipelineOp& op, bool chunks) {
    return fmt::format("{}{}{}", letter(op.pass), op.microbatch, !chunks ? "" : op.chunk == 0 ? "a" : "b");
}

/// Ranks that are shown, with a gap where there are more.
std::vector<int> shown_ranks(int pp) {
    std::vector<int> ranks;
    for (int r = 0; r < pp; ++r) {
        if (pp <= kMostWriterRows || r < kMostWriterRows / 2 || r >= pp - kMostWriterRows / 2) ranks.push_back(r);
    }
    return ranks;
}

/// Time runs across, ranks down; every pass takes one step.
void write_picture(std::ostream& out, const PipelineOrder& order, std::size_t columns) {
    const simulator::PipelineProgram program = simulator::make_program(order);
    simulator::PipelineTimes times;
    times.passes.assign(program.slots(), 1);
    const simulator::PipelineRun run = simulator::run_pipeline(program, times, true);
    const std::size_t width = std::to_string(order.microbatches - 1).size() + (order.chunks > 1 ? 3 : 2);
    const std::size_t margin = std::to_string(order.pp - 1).size() + 1;
    const std::size_t steps = std::max<std::size_t>(1, (columns - margin) / width);
    const auto ranks = shown_ranks(order.pp);
    std::vector<std::string> rows(static_cast<std::size_t>(order.pp), std::string(steps * width, ' '));
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const auto at = static_cast<std::size_t>(run.begins[i]);
        if (at >= steps) continue;
        const simulator::ProgramOp& op = program.ops[i];
        const std::string text = text_of({op.pass, static_cast<std::int16_t>(op.chunk), op.microbatch}, order.chunks > 1);
        rows[op.rank].replace(at * width, text.size(), text);
    }
    int before = -1;
    for (const int r : ranks) {
        if (r != before + 1) out << "...\n";
        before = r;
        std::string row = rows[static_cast<std::size_t>(r)];
        row.erase(row.find_last_not_of(' ') + 1);
        out << fmt::format("{:>{}} {}\n", r, margin - 1, row);
    }
    if (run.end > static_cast<double>(steps))
        out << fmt::format("the first {} of {} steps; each pass takes one\n", steps, static_cast<std::int64_t>(run.end));
    else
        out << "each pass takes one step\n";
}

}  // namespace

void write_split_json(std::ostream& out, const PipelineOrder& order, std::string_view kind) {
    ListWriter writer(out);
    writer.text(fmt::format(R"({{"pp":{},"vpp":{},"microbatches":{},"kind":"{}","forward_only":false,"ranks":[)", order.pp, order.chunks,
                            order.microbatches, kind));
    for (int r = 0; r < order.pp; ++r) {
        writer.text(fmt::format(R"({}{{"rank":{},"peak_live":{},"ops":[)", r > 0 ? "," : "", r, peak_live(order, r)));
        bool first = true;
        for (const PipelineOp& op : order.ranks[static_cast<std::size_t>(r)]) {
            writer.text(
                fmt::format(R"({}{{"op":"{}","chunk":{},"microbatch":{}}})", first ? "" : ",", letter(op.pass), op.chunk, op.microbatch));
            first = false;
        }
        writer.text("]}");
    }
    writer.text("]}\n");
}

void write_split_csv(std::ostream& out, const PipelineOrder& order) {
    ListWriter writer(out);
    writer.text("rank,step,op,chunk,microbatch\n");
    for (int r = 0; r < order.pp; ++r) {
        std::size_t step = 0;
        for (const PipelineOp& op : order.ranks[static_cast<std::size_t>(r)])
            writer.text(fmt::format("{},{},{},{},{}\n", r, step++, letter(op.pass), op.chunk, op.microbatch));
    }
}

void write_split_table(std::ostream& out, const PipelineOrder& order, std::string_view kind, std::size_t columns) {
    const bool chunks = order.chunks > 1;
    out << fmt::format("schedule {}: pp {}, vpp {}, {} microbatch{}\n", kind, order.pp, order.chunks, order.microbatches,
                       order.microbatches == 1 ? "" : "es");
    out << fmt::format("F3{0} forward of microbatch 3{1}, B3{0} gradient of its input, W3{0} gradient of its weights\n\n",
                       chunks ? "a" : "", chunks ? " on chunk 0 (b: chunk 1, the way back up)" : "");
    int before = -1;
    for (const int r : shown_ranks(order.pp)) {
        if (r != before + 1) out << fmt::format("... {} more ranks (--format json or csv lists all)\n", r - before - 1);
        before = r;
        const auto& ops = order.ranks[static_cast<std::size_t>(r)];
        out << fmt::format("rank {}: peak live {}\n", r, peak_live(order, r));
        std::string line = " ";
        for (std::size_t i = 0; i < ops.size(); ++i) {
            const std::string text = text_of(ops[i], chunks);
            if (line.size() + 1 + text.size() + 24 > 2 * columns) {
                line += fmt::format(" ... {} more", with_thousands(static_cast<std::int64_t>(ops.size() - i)));
                break;
            }
            line += " " + text;
        }
        out << line << "\n";
    }
    out << "\n";
    write_picture(out, order, columns);
}

}  // namespace mgplan::cli
