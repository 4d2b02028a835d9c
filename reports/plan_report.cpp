#include "reports/plan_report.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/cluster_json.hpp"
#include "plan/model_json.hpp"
#include "plan/plan.hpp"
#include "plan/text.hpp"
#include "plan/training_json.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using simulator::MemoryBreakdown;

struct Term {
    std::string_view name;
    std::int64_t bytes;
};

std::vector<Term> memory_terms(const MemoryBreakdown& b) {
    return {{"parameters", b.parameters},
            {"gradients", b.gradients},
            {"optimizer", b.optimizer},
            {"activations", b.activations},
            {"graph static inputs", b.graph_static_inputs},
            {"graph boundary", b.graph_boundary},
            {"graph objects", b.graph_objects},
            {"communication", b.communication},
            {"workspace", b.workspace},
            {"context", b.context},
            {"fragmentation", b.fragmentation}};
}

struct Share {
    std::string_view name;
    double seconds;
};

std::vector<Share> losses(const simulator::TimePrediction& t) {
    return {{"bubble", t.bubble_seconds},
            {"tp", t.exposed.tp},
            {"cp", t.exposed.cp},
            {"ep", t.exposed.ep},
            {"dp", t.exposed.dp},
            {"pp", t.exposed.pp},
            {"recompute", t.recompute_seconds},
            {"optimizer", t.optimizer_seconds}};
}

std::string gib(std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(std::int64_t{1} << 30));
}

/// "4+sp": tensor parallel size, with sequence parallelism or without.
std::string tp_text(const Layout& l) {
    return fmt::format("{}{}", l.sizes.tp, l.sequence_parallel ? "+sp" : "");
}

/// "2", or with the way keys and values travel where it is not the ring: "2 a2a".
std::string cp_text(const Layout& l) {
    if (l.sizes.cp == 1 || l.cp_comm_type == CpCommType::p2p) return std::to_string(l.sizes.cp);
    return fmt::format("{}{}", l.sizes.cp, l.cp_comm_type == CpCommType::all_gather ? "ag" : to_string(l.cp_comm_type));
}

/// "[8 8 8 8]" or, when all chunks are equal, "8 each".
std::string layers_text(const StageSplit& split) {
    bool equal = true;
    for (int r = 0; r < split.pp(); ++r) {
        for (int v = 0; v < split.vpp(); ++v) equal = equal && split.chunk(r, v).decoders == split.chunk(0, 0).decoders;
    }
    if (equal) return fmt::format("{} in each of {} chunks", split.chunk(0, 0).decoders, split.pp() * split.vpp());
    std::string text;
    for (int v = 0; v < split.vpp(); ++v) {
        for (int r = 0; r < split.pp(); ++r) text += fmt::format("{}{}", text.empty() ? "" : " ", split.chunk(r, v).decoders);
    }
    if (text.size() > 70) text = text.substr(0, text.rfind(' ', 67)) + " ...";
    return text;
}

Json layout_and_prediction(std::size_t rank, const PlannedLayout& plan) {
    return Json{{"rank", rank}, {"layout", layout_to_json(plan.layout)}, {"predicted", prediction_to_json(plan.prediction)}};
}

Table plan_table(const PlanReport& report) {
    const bool moe = report.workload.model.moe.has_value();
    std::vector<Table::Column> columns{{"#"}, {"tp", Align::left}, {"cp"}};
    if (moe) columns.push_back({"ep/etp"});
    columns.insert(
        columns.end(),
        {{"dp"}, {"pp"}, {"vpp"}, {"mbs"}, {"rec", Align::left}, {"s/step"}, {"tok/s"}, {"MFU"}, {"GiB"}, {"loss"}, {"fullest"}});
    Table table(columns);
    for (std::size_t i = 0; i < report.plans.size(); ++i) {
        const Layout& l = report.plans[i].layout;
        const auto& t = report.plans[i].prediction.time;
        const auto& memory = report.plans[i].prediction.memory;
        std::vector<std::string> row{std::to_string(i + 1), tp_text(l), cp_text(l)};
        if (moe) row.push_back(fmt::format("{}/{}", l.sizes.ep, l.sizes.etp));
        row.insert(row.end(), {std::to_string(l.dp()), std::to_string(l.sizes.pp), std::to_string(l.vpp), std::to_string(l.micro_batch),
                               l.recompute == Recompute::selective ? "sel" : std::string(to_string(l.recompute)),
                               fmt::format("{:.{}f}", t.iteration_seconds, t.iteration_seconds < 100 ? 3 : 1),
                               fmt::format("{:.0f}", t.tokens_per_second_per_gpu), fmt::format("{:.1f}%", 100 * t.mfu),
                               gib(memory.worst.peak_bytes()), largest_loss(t), fullest_term(l, memory)});
        table.add_row(std::move(row));
    }
    return table;
}

/// Reasons why layouts do not fit that occurred.
std::vector<std::pair<std::string_view, std::int64_t>> too_large(const planner::SearchResult& search) {
    std::vector<std::pair<std::string_view, std::int64_t>> reasons;
    if (search.too_large > search.too_large_uneven) reasons.emplace_back(planner::kTooLarge, search.too_large - search.too_large_uneven);
    if (search.too_large_uneven > 0) reasons.emplace_back(planner::kTooLargeUneven, search.too_large_uneven);
    return reasons;
}

std::string rejections_text(const PlanReport& report) {
    struct Line {
        std::string reason;
        std::int64_t count;
    };
    std::vector<Line> lines;
    for (const auto& [reason, count] : too_large(report.search)) lines.push_back({std::string(reason), count});
    for (const auto& [reason, found] : report.search.counts.rejected) lines.push_back({reason, found.count});
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.count > b.count; });
    Table table({{"rejected"}, {"reason", Align::left}});
    for (const auto& line : lines) table.add_row({with_thousands(line.count), line.reason});
    return table.to_text();
}

std::string nearest_text(const PlanReport& report) {
    std::string text = "No layout fits. Nearest misses:\n";
    for (const auto& miss : report.nearest) {
        text += fmt::format("\n  {}\n    needs {}{}, {} more than the limit of {}\n", summary(miss.layout), human_bytes(miss.peak_bytes),
                            miss.even_peak_bytes > 0 ? " at p99 of the routing skew" : "",
                            human_bytes(miss.peak_bytes - report.workload.memory_limit), human_bytes(report.workload.memory_limit));
        if (miss.even_peak_bytes > 0) text += fmt::format("    with even routing {}\n", human_bytes(miss.even_peak_bytes));
        for (const auto& remedy : miss.remedies)
            text += fmt::format("    would fit with {}: {}\n", remedy.change, human_bytes(remedy.peak_bytes));
        if (miss.remedies.empty()) text += "    no single change (recompute, micro-batch, pp, more GPUs) makes it fit\n";
    }
    return text;
}

}  // namespace

std::string largest_loss(const simulator::TimePrediction& time) {
    const auto all = losses(time);
    const auto largest = std::max_element(all.begin(), all.end(), [](const Share& a, const Share& b) { return a.seconds < b.seconds; });
    const std::string_view name = largest->name == "recompute" ? "recomp" : largest->name == "optimizer" ? "optim" : largest->name;
    return fmt::format("{} {:.0f}%", name, 100 * largest->seconds / time.iteration_seconds);
}

std::string fullest_term(const Layout& layout, const simulator::MemoryPrediction& memory) {
    // Context and such are on every GPU; what the layout can change is what the column is for.
    const MemoryBreakdown& b = memory.worst.breakdown;
    const std::array<Term, 4> terms{{{"params", b.parameters}, {"grads", b.gradients}, {"optim", b.optimizer}, {"activ", b.activations}}};
    const auto largest = std::max_element(terms.begin(), terms.end(), [](const Term& a, const Term& c) { return a.bytes < c.bytes; });
    return layout.sizes.pp == 1 ? std::string(largest->name) : fmt::format("s{} {}", memory.worst_stage, largest->name);
}

std::string workload_text(const Workload& w) {
    return fmt::format("{} on {} {} ({}), batch of {} x {} tokens, {}\n", w.model.name, with_thousands(w.world),
                       w.world == 1 ? "GPU" : "GPUs", w.cluster.name, with_thousands(w.batch.global_batch),
                       with_thousands(w.batch.sequence), to_string(w.training.precision));
}

std::string assumed_text(const std::vector<std::string>& assumed) {
    if (assumed.empty()) return {};
    std::string text = "assumed:";
    std::size_t width = text.size();
    for (std::size_t i = 0; i < assumed.size(); ++i) {
        const std::string item = assumed[i] + (i + 1 < assumed.size() ? "," : "");
        if (width + 1 + item.size() > 98) {
            text += "\n        ";
            width = 8;
        }
        text += " " + item;
        width += 1 + item.size();
    }
    return text + "\n";
}

std::string layout_text(const Layout& l, const simulator::Prediction& prediction) {
    const auto& t = prediction.time;
    const auto& m = prediction.memory;
    std::string text;
    text += fmt::format("  layout      tp {} cp {} ep {} etp {} dp {} edp {} pp {} vpp {}  order {}\n", l.sizes.tp, l.sizes.cp, l.sizes.ep,
                        l.sizes.etp, l.dp(), l.edp(), l.sizes.pp, l.vpp, l.sizes.order.text());
    text += fmt::format("  schedule    {} microbatches of {} sequences, sequence parallel {}, recompute {}\n", l.num_microbatches,
                        l.micro_batch, l.sequence_parallel ? "on" : "off", to_string(l.recompute));
    text += fmt::format("  layers      {}\n", layers_text(*l.split));
    text += fmt::format("  iteration   {} ({} to {}), {:.0f} tokens/s/GPU, {:.1f} TFLOP/s/GPU, MFU {:.1f} %, HFU {:.1f} %\n",
                        human_seconds(t.iteration_seconds), human_seconds(t.interval_low), human_seconds(t.interval_high),
                        t.tokens_per_second_per_gpu, t.model_tflops_per_gpu, 100 * t.mfu, 100 * t.hfu);
    Table time({{"time", Align::left}, {"seconds"}, {"share"}});
    const auto share = [&](std::string_view name, double seconds) {
        if (seconds > 0)
            time.add_row({std::string(name), fmt::format("{:.4f}", seconds), fmt::format("{:.1f}%", 100 * seconds / t.iteration_seconds)});
    };
    share(fmt::format("compute of stage {}", t.slowest_stage), t.compute_seconds - t.recompute_seconds);
    share("recompute", t.recompute_seconds);
    share("pipeline bubble", t.bubble_seconds);
    share("exposed tp", t.exposed.tp);
    share("exposed cp", t.exposed.cp);
    share("exposed ep", t.exposed.ep);
    share("exposed dp", t.exposed.dp);
    share("exposed pp", t.exposed.pp);
    share("optimizer", t.optimizer_seconds);
    text += "\n" + time.to_text();
    Table memory({{fmt::format("memory of rank {}", m.worst_rank), Align::left}, {"bytes"}, {"GiB"}});
    for (const auto& term : memory_terms(m.worst.breakdown)) {
        if (term.bytes > 0)
            memory.add_row({std::string(term.name), with_thousands(term.bytes),
                            fmt::format("{:.2f}", static_cast<double>(term.bytes) / 1073741824.0)});
    }
    memory.add_row(
        {"peak", with_thousands(m.worst.peak_bytes()), fmt::format("{:.2f}", static_cast<double>(m.worst.peak_bytes()) / 1073741824.0)});
    text += "\n" + memory.to_text();
    std::string at;
    if (const auto& routing = m.worst.routing) {
        text += fmt::format("\n  routing {}: peak {} at p50, {} at p99, {} at worst (the table: even routing)\n", routing->skew,
                            human_bytes(routing->p50), human_bytes(routing->p99), human_bytes(routing->worst));
        at = " at p99";
    }
    text += m.fits() ? fmt::format("\n  fits{}: {} of {} stay free\n", at, human_bytes(m.limit_bytes - m.deciding_bytes()),
                                   human_bytes(m.limit_bytes))
                     : fmt::format("\n  does not fit{}: {} over the limit of {}\n", at, human_bytes(m.deciding_bytes() - m.limit_bytes),
                                   human_bytes(m.limit_bytes));
    return text;
}

std::string plan_report_json(const PlanReport& report) {
    const auto& s = report.search;
    Json rejected = Json::object();
    for (const auto& [reason, count] : too_large(s)) rejected[std::string(reason)] = count;
    for (const auto& [reason, found] : s.counts.rejected) rejected[reason] = found.count;
    Json json{{"model", model_to_json(report.workload.model)},
              {"cluster", cluster_to_json(report.workload.cluster)},
              {"batch", batch_to_json(report.workload.batch)},
              {"training", training_to_json(report.workload.training)},
              {"world", report.workload.world},
              {"assumed", report.assumed},
              {"search", Json{{"candidates", s.counts.candidates()},
                              {"legal", s.counts.legal},
                              {"evaluated", s.evaluated},
                              {"feasible", s.feasible},
                              {"seconds", s.seconds},
                              {"evaluate_seconds", s.evaluate_seconds},
                              {"threads", s.threads},
                              {"rejected", rejected}}},
              {"plans", Json::array()}};
    for (std::size_t i = 0; i < report.plans.size(); ++i) json["plans"].push_back(layout_and_prediction(i + 1, report.plans[i]));
    if (report.plans.empty()) {
        json["nearest"] = Json::array();
        for (const auto& miss : report.nearest) {
            Json remedies = Json::array();
            for (const auto& remedy : miss.remedies)
                remedies.push_back(Json{{"change", remedy.change},
                                        {"peak_bytes", remedy.peak_bytes},
                                        {"world", remedy.layout.sizes.world},
                                        {"global_batch", remedy.global_batch},
                                        {"layout", layout_to_json(remedy.layout)}});
            json["nearest"].push_back(Json{{"layout", layout_to_json(miss.layout)},
                                           {"peak_bytes", miss.peak_bytes},
                                           {"missing_bytes", miss.peak_bytes - report.workload.memory_limit},
                                           {"would_fit_with", remedies}});
            if (miss.even_peak_bytes > 0) json["nearest"].back()["even_peak_bytes"] = miss.even_peak_bytes;
        }
    }
    return json.dump(1) + "\n";
}

std::string plan_report_text(const PlanReport& report, std::optional<std::size_t> explain) {
    const Workload& w = report.workload;
    const auto& s = report.search;
    std::string text = workload_text(w);
    text += assumed_text(report.assumed);
    text += fmt::format("searched {} candidates in {:.2f} s on {} threads:\n{} legal, {} fit in {} per GPU\n\n",
                        with_thousands(s.counts.candidates()), s.seconds, s.threads, with_thousands(s.counts.legal),
                        with_thousands(s.feasible), human_bytes(w.memory_limit));
    if (report.plans.empty())
        text += nearest_text(report);
    else
        text += plan_table(report).to_text() +
                "\ntok/s: tokens per second and GPU. rec: recompute (sel: selective). loss: the largest share of the\n"
                "step that is no useful compute. fullest: what fills the fullest GPU most, sN its pipeline stage.\n"
                "+sp: sequence parallel. ag, a2a: all-gather, all-to-all context parallel.\n"
                "Every term of one plan: --explain 1. As a file to keep: --save-plan FILE.\n";
    text += "\n" + rejections_text(report);
    if (explain && *explain >= 1 && *explain <= report.plans.size()) {
        const auto& plan = report.plans[*explain - 1];
        text += fmt::format("\nplan {} in detail\n", *explain) + layout_text(plan.layout, plan.prediction);
    }
    return text;
}

std::string plan_report_csv(const PlanReport& report) {
    Table table({{"rank"},
                 {"tp"},
                 {"cp"},
                 {"ep"},
                 {"etp"},
                 {"dp"},
                 {"edp"},
                 {"pp"},
                 {"vpp"},
                 {"micro_batch"},
                 {"num_microbatches"},
                 {"sequence_parallel"},
                 {"cp_comm_type"},
                 {"recompute"},
                 {"iteration_seconds"},
                 {"tokens_per_second_per_gpu"},
                 {"mfu"},
                 {"peak_bytes"},
                 {"bubble_fraction"}});
    for (std::size_t i = 0; i < report.plans.size(); ++i) {
        const Layout& l = report.plans[i].layout;
        const auto& p = report.plans[i].prediction;
        table.add_row({std::to_string(i + 1), std::to_string(l.sizes.tp), std::to_string(l.sizes.cp), std::to_string(l.sizes.ep),
                       std::to_string(l.sizes.etp), std::to_string(l.dp()), std::to_string(l.edp()), std::to_string(l.sizes.pp),
                       std::to_string(l.vpp), std::to_string(l.micro_batch), std::to_string(l.num_microbatches),
                       l.sequence_parallel ? "true" : "false", std::string(to_string(l.cp_comm_type)), std::string(to_string(l.recompute)),
                       fmt::format("{:.9g}", p.time.iteration_seconds), fmt::format("{:.9g}", p.time.tokens_per_second_per_gpu),
                       fmt::format("{:.6g}", p.time.mfu), std::to_string(p.memory.worst.peak_bytes()),
                       fmt::format("{:.6g}", p.time.bubble_fraction())});
    }
    return table.to_csv();
}

}  // namespace mgplan::reports
