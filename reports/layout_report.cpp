#include "reports/layout_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plan/parameters/adapters_of_model.hpp"
#include "plan/text/text.hpp"
#include "reports/layout_fields.hpp"
#include "reports/memory_terms.hpp"
#include "reports/table.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {
namespace {

struct Share {
    std::string_view name;
    double seconds;
};

std::vector<Share> losses(const simulator::TimePrediction& t) {
    return {{"idle", t.bubble_seconds + t.imbalance_seconds},
            {"tp", t.exposed.tp},
            {"cp", t.exposed.cp},
            {"ep", t.exposed.ep},
            {"dp", t.exposed.dp},
            {"pp", t.exposed.pp},
            {"recompute", t.recompute_seconds},
            {"host", t.host_seconds},
            {"optimizer", t.optimizer_seconds}};
}

/// "9 8 8 7" or, if all chunks are equal, "8 in each of 4 chunks".
std::string layers_text(const StageSplit& split) {
    bool equal = true;
    for (int r = 0; r < split.pp(); ++r) {
        for (int v = 0; v < split.vpp(); ++v) equal = equal && split.chunk(r, v).decoders == split.chunk(0, 0).decoders;
    }
    if (equal)
        return split.pp() * split.vpp() == 1 ? fmt::format("{} in one chunk", split.chunk(0, 0).decoders)
                                             : fmt::format("{} in each of {} chunks", split.chunk(0, 0).decoders, split.pp() * split.vpp());
    std::string text;
    for (int v = 0; v < split.vpp(); ++v) {
        for (int r = 0; r < split.pp(); ++r) text += fmt::format("{}{}", text.empty() ? "" : " ", split.chunk(r, v).decoders);
    }
    if (text.size() > 70) text = text.substr(0, text.rfind(' ', 67)) + " ...";
    return text;
}

}  // namespace

std::string largest_overhead(const simulator::TimePrediction& time) {
    const auto all = losses(time);
    const auto largest = std::max_element(all.begin(), all.end(), [](const Share& a, const Share& b) { return a.seconds < b.seconds; });
    if (largest->seconds < 0.005 * time.iteration_seconds) return "-";
    const std::string_view name = largest->name == "recompute" ? "recomp" : largest->name == "optimizer" ? "optim" : largest->name;
    return fmt::format("{} {:.0f}%", name, 100 * largest->seconds / time.iteration_seconds);
}

std::string fullest_term(const Layout& layout, const simulator::MemoryPrediction& memory) {
    const MemoryTerm largest = largest_term(memory.worst.breakdown);
    return layout.sizes.pp == 1 ? std::string(largest.heading) : fmt::format("s{} {}", memory.worst_stage, largest.heading);
}

std::string workload_text(const Workload& w) {
    const std::string assumed =
        w.model.assumed_architecture.empty() ? "" : fmt::format(" ({} read as {})", w.model.type, w.model.assumed_architecture);
    const std::string job = fmt::format("{}{} on {} ({}),", w.model.name, assumed, counted(w.world, "GPU"), w.cluster.name);
    const std::string batch =
        fmt::format("batch of {} x {}{}, {}", with_thousands(w.batch.global_batch), counted(w.batch.sequence, "token"),
                    w.batch.lengths.empty() ? "" : " of packed documents", precision_text(w.training));
    const std::string adapters = w.model.adapters ? adapters_text(w.model) + "\n" : "";
    return job + (job.size() + 1 + batch.size() > kTerminalColumns ? "\n    " : " ") + batch + "\n" + adapters;
}

std::string assumed_text(const std::vector<std::string>& assumed) {
    if (assumed.empty()) return {};
    std::string text = "assumed:";
    std::size_t width = text.size();
    for (std::size_t i = 0; i < assumed.size(); ++i) {
        const std::string item = assumed[i] + (i + 1 < assumed.size() ? "," : "");
        if (width + 1 + item.size() > kTerminalColumns) {
            text += "\n        ";
            width = 8;
        }
        text += " " + item;
        width += 1 + item.size();
    }
    return text + "\n";
}

namespace {

/// Advice for a layout of Megatron-LM that does not fit and has its peak in a loss on fp32 logits.
std::string advice_for_the_loss(const Workload& workload, const Layout& layout, const simulator::MemoryPrediction& memory) {
    if (layout.engine != Engine::megatron || workload.training.fused_cross_entropy || !memory.worst.peak_at) return "";
    const std::string_view tensor = memory.worst.peak_at->tensor;
    const bool in_loss =
        tensor == "token losses" || tensor == "fp32 logits" || tensor == "exponentials of logits" || tensor == "logit gradient";
    return in_loss ? "; the peak is in the loss: --loss-fusion te keeps no fp32 logits" : "";
}

}  // namespace

namespace {

/// Both parts of the idle time, and the changes that reduce them; empty where less than half a percent is idle.
std::string idle_text(const simulator::TimePrediction& time) {
    if (time.idle_fraction() < 0.005) return "";
    const auto part = [](double fraction, std::string_view cause, std::string_view lever) {
        return fmt::format("{:.1f} % {} ({})", 100 * fraction, cause, lever);
    };
    return "\n" +
           in_lines(fmt::format("  idle: {:.1f} % of all ranks' time: {}, {}\n", 100 * time.idle_fraction(),
                                part(time.bubble_fraction(), "pipeline bubble", "less with more microbatches, higher vpp or lower pp"),
                                part(time.imbalance_fraction(), "unequal stages", "less with --balance-stages")),
                    4);
}

}  // namespace

std::string layout_text(const Workload& workload, const Layout& l, const simulator::Prediction& prediction) {
    const auto& t = prediction.time;
    const auto& m = prediction.memory;
    std::string text;
    text += fmt::format("  layout      tp {} cp {} ep {} etp {} dp {} edp {} pp {} vpp {}  order {}\n", l.sizes.tp, l.sizes.cp, l.sizes.ep,
                        l.sizes.etp, l.dp(), l.edp(), l.sizes.pp, l.vpp, l.sizes.order.text());
    text += fmt::format("  schedule    {}{} of {}\n              sequence parallel {}, recompute {}\n  on          {}\n",
                        l.schedule ? fmt::format("{}, ", to_string(*l.schedule)) : "", counted(l.num_microbatches, "microbatch", "es"),
                        counted(l.micro_batch, "sequence"), l.sequence_parallel ? "on" : "off", recompute_text(l),
                        all_switches_text(workload, l));
    if (const auto others = other_choices(workload, l); !others.empty())
        text += in_lines(fmt::format("  besides     {}\n", fmt::join(others, ", ")), 14);
    text += fmt::format("  layers      {}\n", layers_text(*l.split));
    if (const auto& string = l.split->request().pipeline_layout) text += fmt::format("  stages      {}\n", *string);
    text += fmt::format(
        "  iteration   {} ({} to {}, 4 times in 5; worst {})\n              {:.0f} tokens/s/GPU, {:.1f} TFLOP/s/GPU, MFU "
        "{:.1f} %, HFU {:.1f} %\n",
        human_seconds(t.iteration_seconds), human_seconds(t.interval_low), human_seconds(t.interval_high), human_seconds(t.adverse_seconds),
        t.tokens_per_second_per_gpu, t.model_tflops_per_gpu, 100 * t.mfu, 100 * t.hfu);
    Table time({{"time", Align::left}, {"seconds"}, {"share"}});
    for (const TimeTerm& term : time_terms(t)) {
        if (term.seconds <= kRoundingOfTerms * t.iteration_seconds) continue;
        const std::string name = term.name == "compute" ? fmt::format("compute of stage {}", t.slowest_stage) : std::string(term.text);
        time.add_row({name, fmt::format("{:.4f}", term.seconds), fmt::format("{:.1f}%", 100 * term.seconds / t.iteration_seconds)});
    }
    text += "\n" + time.to_text() + modules_text(t);
    text += idle_text(t);
    Table memory({{fmt::format("memory of rank {}", m.worst_rank), Align::left}, {"bytes"}, {"GiB"}});
    for (const auto& term : memory_terms(m.worst.breakdown)) {
        if (term.bytes > 0)
            memory.add_row({std::string(term.name), with_thousands(term.bytes),
                            fmt::format("{:.2f}", static_cast<double>(term.bytes) / 1073741824.0)});
    }
    memory.add_row(
        {"peak", with_thousands(m.worst.peak_bytes()), fmt::format("{:.2f}", static_cast<double>(m.worst.peak_bytes()) / 1073741824.0)});
    text += "\n" + memory.to_text();
    if (m.worst.host_bytes > 0) text += fmt::format("\n  on the host: {} of rank {}\n", human_bytes(m.worst.host_bytes), m.worst_rank);
    if (m.node_host_bytes > 0 && m.host_limit_bytes > 0)
        text += fmt::format("  of a node's ranks: {} of its {}\n", human_bytes(m.node_host_bytes), human_bytes(m.host_limit_bytes));
    std::string at;
    if (const auto& routing = m.worst.routing) {
        text +=
            "\n" + in_lines(fmt::format("  routing {}: peak {} at p50, {} at p99, {} at worst (the table: even routing)\n", routing->skew,
                                        human_bytes(routing->p50), human_bytes(routing->p99), human_bytes(routing->worst)),
                            4);
        at = " at p99";
    }
    text += m.fits()
                ? fmt::format("\n  fits{}: {} of {} stay free\n", at, human_bytes(m.limit_bytes - m.deciding_bytes()),
                              human_bytes(m.limit_bytes))
                : "\n" + in_lines(fmt::format("  does not fit{}: {}{}\n", at, missing_text(m), advice_for_the_loss(workload, l, m)), 4);
    return text;
}

std::string missing_text(const simulator::MemoryPrediction& memory) {
    if (!memory.host_fits())
        return fmt::format(
            "fits_in_host_memory: a node's ranks leave {} in the host's memory, which is {}; offload less, or use more nodes",
            human_bytes(memory.node_host_bytes), human_bytes(memory.host_limit_bytes));
    const MemoryTerm most = largest_term(memory.worst.breakdown);
    return fmt::format("{} over the limit of {} on rank {} (stage {}), of which most is {}, {}",
                       human_bytes(memory.deciding_bytes() - memory.limit_bytes), human_bytes(memory.limit_bytes), memory.worst_rank,
                       memory.worst_stage, most.name, human_bytes(most.bytes));
}

}  // namespace mgplan::reports
