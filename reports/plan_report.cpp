#include "reports/plan_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plan/text.hpp"
#include "reports/flag_account.hpp"
#include "reports/layout_cells.hpp"
#include "reports/layout_report.hpp"
#include "reports/memory_terms.hpp"
#include "reports/table.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {
namespace {

/// "4+sp": tensor parallel size, with sequence parallelism or without.
std::string tp_text(const Layout& l) {
    return fmt::format("{}{}", l.sizes.tp, l.sequence_parallel ? "+sp" : "");
}

/// "2", or with the way keys and values travel where it is not the ring: "2 a2a".
std::string cp_text(const Layout& l) {
    if (l.sizes.cp == 1 || l.cp_comm_type == CpCommType::p2p) return std::to_string(l.sizes.cp);
    return fmt::format("{}{}", l.sizes.cp, l.cp_comm_type == CpCommType::all_gather ? "ag" : to_string(l.cp_comm_type));
}

/// "tp-dp-pp": the order of the axes that have more than one rank, which decides all groups.
std::string order_text(const ParallelSizes& sizes, bool moe) {
    std::vector<std::string> axes;
    for (const auto& word : split(sizes.order.text(), '-')) {
        const bool one = (word == "tp" && sizes.tp == 1 && (!moe || sizes.etp == 1)) || (word == "cp" && sizes.cp == 1) ||
                         (word == "ep" && sizes.ep == 1) || (word == "dp" && sizes.dp() == 1 && (!moe || sizes.edp() == 1)) ||
                         (word == "pp" && sizes.pp == 1);
        if (!one) axes.push_back(word);
    }
    return fmt::format("{}", fmt::join(axes, "-"));
}

Table plan_table(const PlanReport& report) {
    const bool moe = report.workload.model.moe.has_value();
    std::vector<Table::Column> columns{{"#"}, {"tp", Align::left}, {"cp"}};
    if (moe) columns.push_back({"ep/etp"});
    columns.insert(
        columns.end(),
        {{"dp"}, {"pp"}, {"vpp"}, {"mbs"}, {"rec", Align::left}, {"s/step"}, {"tok/s"}, {"MFU"}, {"GiB"}, {"loss"}, {"fullest"}});
    if (report.orders > 1) columns.push_back({"order", Align::left});
    Table table(columns);
    for (const PlannedLayout& plan : report.plans) {
        const Layout& l = plan.layout;
        const auto& t = plan.prediction.time;
        const auto& memory = plan.prediction.memory;
        std::vector<std::string> row{std::to_string(plan.rank), tp_text(l), cp_text(l)};
        if (moe) row.push_back(fmt::format("{}/{}", l.sizes.ep, l.sizes.etp));
        row.insert(row.end(), {std::to_string(l.dp()), std::to_string(l.sizes.pp), std::to_string(l.vpp), std::to_string(l.micro_batch),
                               l.recompute == Recompute::selective ? "sel" : std::string(to_string(l.recompute)),
                               fmt::format("{:.{}f}", t.iteration_seconds, t.iteration_seconds < 100 ? 3 : 1),
                               fmt::format("{:.0f}", t.tokens_per_second_per_gpu), fmt::format("{:.1f}%", 100 * t.mfu),
                               gib(memory.deciding_bytes()), largest_loss(t), fullest_term(l, memory)});
        if (report.orders > 1) row.push_back(order_text(l.sizes, moe));
        table.add_row(std::move(row));
    }
    return table;
}

/// Where the time of each plan's step goes, in percent of it; what is below a thousandth of all of them has no column.
Table time_table(const PlanReport& report) {
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        if (std::any_of(report.plans.begin(), report.plans.end(), [i](const PlannedLayout& plan) {
                const auto& time = plan.prediction.time;
                return time_terms(time)[i].seconds >= 0.001 * time.iteration_seconds;
            }))
            shown.push_back(i);
    }
    std::vector<Table::Column> columns{{"#"}};
    for (const auto i : shown) columns.push_back({std::string(time_terms(simulator::TimePrediction{})[i].heading)});
    Table table(columns);
    for (const PlannedLayout& plan : report.plans) {
        const auto terms = time_terms(plan.prediction.time);
        std::vector<std::string> row{std::to_string(plan.rank)};
        for (const auto i : shown) row.push_back(fmt::format("{:.1f}%", 100 * terms[i].seconds / plan.prediction.time.iteration_seconds));
        table.add_row(std::move(row));
    }
    return table;
}

/// Which plans the table does without, and why; empty where it has all.
std::string left_out_text(const PlanReport& report) {
    std::vector<std::string> ranks;
    for (const PlannedLayout& plan : report.plans) {
        for (const std::size_t rank : plan.left_out) ranks.push_back(fmt::format("{} (as {})", rank, plan.rank));
    }
    if (ranks.empty()) return {};
    constexpr std::size_t kShown = 6;
    const std::size_t more = ranks.size() - std::min(ranks.size(), kShown);
    ranks.resize(ranks.size() - more);
    return fmt::format("\nLeft out, as they differ by at most 1 %, and only in vpp or how context-parallel ranks exchange:\n{}{}.\n",
                       fmt::join(ranks, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Where the event-by-event ranking may have missed the fastest layout.
std::string unproven_text(const planner::SearchResult& search) {
    if (search.fastest_is_proven.value_or(true)) return {};
    return fmt::format("\n{} {} ranked event by event; by their lower bounds others might be as fast as the first.\n",
                       counted(static_cast<std::int64_t>(search.replayed), "layout"), search.replayed == 1 ? "was" : "were");
}

/// What balancing gained; empty where it was not asked for.
std::string balanced_text(const PlanReport& report) {
    if (!report.balanced) return {};
    std::string text = fmt::format("\nBalanced stages: {} with pp > 1 tried, {} became faster{}\n",
                                   counted(static_cast<std::int64_t>(report.balanced->tried), "layout"), report.balanced->faster,
                                   report.balanced->faster > 0 ? "; of those in the table:" : ".");
    for (const PlannedLayout& plan : report.plans) {
        if (const auto before = report.seconds_before(plan))
            text +=
                fmt::format("{:2} {:.2f} % faster with --pipeline-layout '{}'\n", plan.rank,
                            100 * (*before / plan.prediction.time.iteration_seconds - 1), *plan.layout.split->request().pipeline_layout);
    }
    return text;
}

std::string rejections_text(const PlanReport& report) {
    struct Line {
        std::string_view reason;
        std::int64_t count;
    };
    std::vector<Line> lines;
    for (const auto& [rule, count] : report.too_large_rules()) lines.push_back({planner::reason_of(rule), count});
    for (const auto& [rule, found] : report.search.counts.rejected) lines.push_back({planner::reason_of(rule), found.count});
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.count > b.count; });
    Table table({{"rejected"}, {"reason", Align::left}});
    for (const auto& line : lines) table.add_row({with_thousands(line.count), std::string(line.reason)});
    return table.to_text();
}

/// What does not fit, by what fills it; and of each kind the layout that misses by the fewest bytes.
std::string too_large_text(const PlanReport& report) {
    if (report.too_large.empty()) return {};
    Table table({{"too large"}, {"most is"}, {"missing at least"}, {"on rank"}, {"with the layout", Align::left}});
    for (const auto& kind : report.too_large) {
        const auto& m = kind.memory;
        table.add_row({with_thousands(kind.count),
                       kind.replayed ? "fragmentation"
                       : kind.term   ? std::string(planner::to_string(*kind.term))
                                     : "routing skew",
                       human_bytes(m.deciding_bytes() - m.limit_bytes), fmt::format("{} (stage {})", m.worst_rank, m.worst_stage),
                       summary(kind.nearest)});
    }
    return "\n" + table.to_text();
}

std::string nearest_text(const PlanReport& report) {
    std::string text = "No layout fits. Nearest misses:\n";
    for (const auto& miss : report.nearest) {
        const auto& m = miss.memory;
        text += fmt::format("\n  {}\n    needs {}{}, {} more than the limit of {}, on rank {} (stage {}):\n", summary(miss.layout),
                            human_bytes(m.deciding_bytes()), m.worst.routing ? " at p99 of the routing skew" : "",
                            human_bytes(m.deciding_bytes() - m.limit_bytes), human_bytes(m.limit_bytes), m.worst_rank, m.worst_stage);
        if (m.worst.routing) text += fmt::format("    with even routing {}\n", human_bytes(m.worst.peak_bytes()));
        auto terms = memory_terms(m.worst.breakdown);
        std::stable_sort(terms.begin(), terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
        std::vector<std::string> largest;
        for (std::size_t i = 0; i < 4 && terms[i].bytes > 0; ++i)
            largest.push_back(fmt::format("{} {}", terms[i].name, human_bytes(terms[i].bytes)));
        text += fmt::format("    {}\n", fmt::join(largest, ", "));
        for (const auto& remedy : miss.remedies)
            text += fmt::format("    would fit with {}: {}\n", remedy.change, human_bytes(remedy.peak_bytes));
        if (miss.remedies.empty()) text += "    no single change (recompute, micro-batch, pp, more GPUs) makes it fit\n";
    }
    return text;
}

}  // namespace

std::optional<double> PlanReport::seconds_before(const PlannedLayout& plan) const {
    if (!balanced) return std::nullopt;
    const auto found = balanced->seconds_before.find(plan.layout.split.get());
    if (found == balanced->seconds_before.end()) return std::nullopt;
    return found->second;
}

std::vector<std::pair<std::string_view, std::int64_t>> PlanReport::too_large_rules() const {
    std::vector<std::pair<std::string_view, std::int64_t>> rules;
    const std::int64_t uneven = search.too_large_uneven.count;
    if (search.too_large > uneven) rules.emplace_back(planner::kFits, search.too_large - uneven);
    if (uneven > 0) rules.emplace_back(planner::kFitsAtP99, uneven);
    if (search.too_large_replayed.count > 0) rules.emplace_back(planner::kFitsReplayed, search.too_large_replayed.count);
    return rules;
}

std::string plan_report_text(const PlanReport& report) {
    const Workload& w = report.workload;
    const auto& s = report.search;
    std::string text = workload_text(w);
    text += assumed_text(report.assumed);
    if (report.flags) text += flag_account_text(*report.flags);
    text += fmt::format("searched {} in {:.2f} s on {}:\n{} legal, {} fit in {} per GPU\n\n", counted(s.counts.candidates(), "candidate"),
                        s.seconds, counted(s.threads, "thread"), with_thousands(s.counts.legal), with_thousands(s.feasible),
                        human_bytes(w.memory_limit));
    if (report.plans.empty())
        text += nearest_text(report);
    else
        text += plan_table(report).to_text() + left_out_text(report) + unproven_text(s) + balanced_text(report) +
                "\ntok/s: tokens per second and GPU. rec: recompute (sel: selective). loss: the largest share of the\n"
                "step that is no useful compute. fullest: what fills the fullest GPU most, sN its pipeline stage.\n" +
                (w.model.moe ? "GiB: at p99 of the routing skew, which is what has to fit.\n" : "") +
                "+sp: sequence parallel. ag, a2a: all-gather, all-to-all context parallel.\n"
                "\nWhere the time of a step goes:\n" +
                time_table(report).to_text() +
                "\nhost: waiting for kernel launches. tp to pp: communication that nothing hides. fixed: data, logging.\n"
                "Every term of one plan, and why it beats the next: --explain 1. To keep it: --save-plan FILE.\n";
    text += "\n" + rejections_text(report) + too_large_text(report);
    if (const auto& plan = report.explained)
        text += fmt::format("\nplan {} in detail\n", plan->rank) + layout_text(plan->layout, plan->prediction);
    if (report.comparison) text += comparison_text(*report.comparison);
    return text;
}

std::string plan_report_csv(const PlanReport& report) {
    std::vector<Table::Column> columns{{"rank"}};
    // A column of its own where there is something to say: programs find columns by name.
    const std::string& assumed = report.workload.model.assumed_architecture;
    if (!assumed.empty()) columns.push_back({"assumed_architecture"});
    for (const auto& name : layout_csv_columns()) columns.push_back({name});
    for (const char* name : {"iteration_seconds",
                             "tokens_per_second_per_gpu",
                             "mfu",
                             "peak_bytes",
                             "bubble_fraction",
                             "p99_bytes",
                             "limit_bytes",
                             "fits",
                             "order",
                             "compute_seconds",
                             "recompute_seconds",
                             "host_seconds",
                             "bubble_seconds",
                             "exposed_tp_seconds",
                             "exposed_cp_seconds",
                             "exposed_ep_seconds",
                             "exposed_dp_seconds",
                             "exposed_pp_seconds",
                             "optimizer_seconds",
                             "fixed_seconds"})
        columns.push_back({name});
    Table table(columns);
    for (const PlannedLayout& plan : report.plans) {
        const auto& p = plan.prediction;
        std::vector<std::string> row{std::to_string(plan.rank)};
        if (!assumed.empty()) row.push_back(assumed);
        for (auto& cell : layout_csv_row(plan.layout)) row.push_back(std::move(cell));
        for (std::string cell :
             {fmt::format("{:.9g}", p.time.iteration_seconds), fmt::format("{:.9g}", p.time.tokens_per_second_per_gpu),
              fmt::format("{:.6g}", p.time.mfu), std::to_string(p.memory.worst.peak_bytes()),
              fmt::format("{:.6g}", p.time.bubble_fraction()),
              p.memory.worst.routing ? std::to_string(p.memory.worst.routing->p99) : std::string(), std::to_string(p.memory.limit_bytes),
              std::string(p.memory.fits() ? "true" : "false"), plan.layout.sizes.order.text()})
            row.push_back(std::move(cell));
        const auto& t = p.time;
        for (const double seconds : {t.compute_seconds, t.recompute_seconds, t.host_seconds, t.bubble_seconds, t.exposed.tp, t.exposed.cp,
                                     t.exposed.ep, t.exposed.dp, t.exposed.pp, t.optimizer_seconds, t.fixed_seconds()})
            row.push_back(fmt::format("{:.9g}", seconds));
        table.add_row(std::move(row));
    }
    return table.to_csv();
}

}  // namespace mgplan::reports
