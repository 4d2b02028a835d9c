#include "reports/timeline_trace.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mgplan::reports {
namespace {

using simulator::ProgramOp;

enum Thread : std::uint8_t { compute, tp, cp, ep, dp, p2p };
constexpr std::array<std::string_view, 6> kThreads{"compute", "tp", "cp", "ep", "dp", "p2p"};

std::string quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
public:
    explicit Writer(std::ostream& out) : out_(out) { text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["; }
    ~Writer() {
        text_ += "\n]}\n";
        flush();
    }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    void name(std::string_view what, int process, int thread, std::string_view name) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process,
                       thread, quoted(name));
    }
    void order(std::string_view what, int process, int thread, int index) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", what, process,
                       thread, index);
    }
    /// `name` holds no character that JSON escapes.
    void slice(int process, Thread thread, std::string_view name, double from, double to) {
        if (to <= from) return;
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})", name,
                       kThreads[thread], process, static_cast<int>(thread), from * 1e6, (to - from) * 1e6);
    }
    void counter(int process, double at, std::int64_t bytes) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"C","name":"memory","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})", process,
                       at * 1e6, bytes);
    }

private:
    void begin() {
        text_ += first_ ? "\n" : ",\n";
        first_ = false;
        if (text_.size() > (1U << 18U)) flush();
    }
    void flush() {
        out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
        text_.clear();
    }
    std::ostream& out_;
    std::string text_;
    bool first_ = true;
};

std::string_view letter(Pass pass) {
    switch (pass) {
        case Pass::forward:
            return "F";
        case Pass::backward:
        case Pass::input_gradient:
            return "B";
        case Pass::weight_gradient:
            return "W";
    }
    return "?";
}

/// "F3", with chunks "F3 chunk 1".
std::string pass_name(const ProgramOp& op, int chunks) {
    return chunks > 1 ? fmt::format("{}{} chunk {}", letter(op.pass), op.microbatch, op.chunk)
                      : fmt::format("{}{}", letter(op.pass), op.microbatch);
}

/// Microbatches at either end of the iteration that are drawn.
std::int64_t drawn_at_either_end(const simulator::PipelineProgram& program, std::int64_t microbatches) {
    // A pass may come with three exposed parts, a transfer and two counters.
    const std::size_t most = kMostTraceEvents / 7;
    if (program.ops.size() <= most) return microbatches;
    const double share = static_cast<double>(most) / static_cast<double>(program.ops.size());
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(microbatches) * share / 2));
}

}  // namespace

void write_timeline_trace(std::ostream& out, const TimelineTrace& trace) {
    const simulator::PipelineProgram& program = *trace.timeline.program;
    const simulator::StepTimeline& step = trace.timeline.step;
    const simulator::PipelineRun& run = step.run;
    std::int64_t microbatches = 0;
    for (const ProgramOp& op : program.ops) microbatches = std::max<std::int64_t>(microbatches, op.microbatch + 1);
    const std::int64_t ends = drawn_at_either_end(program, microbatches);
    const bool all = 2 * ends >= microbatches;
    Writer writer(out);
    for (int r = 0; r < program.pp; ++r) {
        std::string name = fmt::format("pipeline rank {}", r);
        if (r == 0) name += ": " + trace.title;
        if (r == 0 && !all) name += fmt::format(" (microbatches {} to {} are left out)", ends, microbatches - ends - 1);
        writer.name("process_name", r, 0, name);
        writer.order("process_sort_index", r, 0, r);
        for (std::size_t t = 0; t < kThreads.size(); ++t) {
            writer.name("thread_name", r, static_cast<int>(t), kThreads[t]);
            writer.order("thread_sort_index", r, static_cast<int>(t), static_cast<int>(t));
        }
    }
    // Memory: entries of the timeline by their place in the rank's list.
    std::vector<std::size_t> memory_at(static_cast<std::size_t>(program.pp), 0);
    std::vector<std::int64_t> place(memory_at.size(), 0);
    const auto memory_of = [&](std::size_t rank) -> const simulator::RankTimeline* {
        return rank < trace.memory.size() && trace.memory[rank] ? &trace.memory[rank]->memory : nullptr;
    };
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const ProgramOp& op = program.ops[i];
        const std::int64_t own_place = place[op.rank]++;
        const auto* memory = memory_of(op.rank);
        const simulator::TimelineOp* held = nullptr;
        if (memory != nullptr) {
            std::size_t& at = memory_at[op.rank];
            while (at < memory->ops.size() && memory->ops[at].index < own_place) ++at;
            if (at < memory->ops.size() && memory->ops[at].index == own_place) held = &memory->ops[at];
        }
        if (!all && op.microbatch >= ends && op.microbatch < microbatches - ends) continue;
        const std::string name = pass_name(op, program.chunks);
        const double begin = run.begins[i], end = run.ends[i];
        writer.slice(op.rank, compute, name, begin, end);
        if (held != nullptr) {
            writer.counter(op.rank, begin, held->live);
            writer.counter(op.rank, (begin + end) / 2, held->peak);
        }
        const simulator::StageTime& time =
            step.chunks[static_cast<std::size_t>(op.rank) * static_cast<std::size_t>(program.chunks) + op.chunk].time;
        simulator::GroupSeconds exposed;
        if (op.pass == Pass::forward) exposed = time.exposed_forward;
        if (op.pass == Pass::backward || op.pass == Pass::input_gradient) {
            exposed = {time.exposed.tp - time.exposed_forward.tp, time.exposed.cp - time.exposed_forward.cp,
                       time.exposed.ep - time.exposed_forward.ep};
        }
        double at = std::max(begin, end - exposed.total());
        for (const auto& [thread, seconds] : {std::pair(tp, exposed.tp), std::pair(cp, exposed.cp), std::pair(ep, exposed.ep)}) {
            writer.slice(op.rank, thread, name + " exposed", at, std::min(end, at + seconds));
            at += seconds;
        }
        if (op.sends) writer.slice(op.rank, p2p, "send " + name, run.arrivals[i] - trace.transfer_seconds, run.arrivals[i]);
    }
    for (const simulator::DataParallelEvent& event : run.data_parallel)
        writer.slice(event.rank, dp, fmt::format("{} chunk {}", event.gather ? "gather parameters" : "reduce gradients", event.chunk),
                     event.begin, event.end);
    for (int r = 0; r < program.pp; ++r) {
        const auto rank = static_cast<std::size_t>(r);
        if (step.tied_embedding > 0 && (r == 0 || r == program.pp - 1))
            writer.slice(r, p2p, "all-reduce tied embedding", step.optimizer_begin - step.tied_embedding, step.optimizer_begin);
        const double updated = step.optimizer_begin + step.optimizer[rank];
        writer.slice(r, compute, "optimizer", step.optimizer_begin, updated);
        writer.slice(r, dp, "gather parameters", updated, updated + step.gather[rank]);
    }
}

}  // namespace mgplan::reports
