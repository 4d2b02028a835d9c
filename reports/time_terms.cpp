#include "reports/time_terms.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/memory_terms.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

TimeTerms terms_of(double compute, double recompute, double host, double bubble, const simulator::ExposedCommunication& exposed,
                   double optimizer, double rest) {
    return {{{"compute", "compute", "compute", compute - recompute - host, "forward"},
             {"recompute", "recompute", "recomp", recompute, "forward2"},
             {"host", "waiting for kernel launches", "host", host, "workspace"},
             {"bubble", "pipeline bubble", "bubble", bubble, "bubble"},
             {"exposed tp", "exposed tp", "tp", exposed.tp, "tp"},
             {"exposed cp", "exposed cp", "cp", exposed.cp, "cp"},
             {"exposed ep", "exposed ep", "ep", exposed.ep, "ep"},
             {"exposed dp", "exposed dp", "dp", exposed.dp, "dp"},
             {"exposed pp", "exposed pp", "pp", exposed.pp, "pp"},
             {"optimizer", "optimizer", "optim", optimizer, "optimizer"},
             {"fixed", "data, scheduler, logging", "fixed", rest, "other"}}};
}

/// Unit of times: milliseconds for short iterations.
struct TimeUnit {
    std::string_view name;
    double seconds;
    [[nodiscard]] std::string text(double value) const { return fmt::format("{:.3f}", value / seconds); }
    /// "+0.120", "-0.120"; values that round to zero have no sign.
    [[nodiscard]] std::string difference(double value) const {
        const double shown = value / seconds;
        return std::abs(shown) < 0.0005 ? "0.000" : fmt::format("{:+.3f}", shown);
    }
};

TimeUnit unit_for_seconds(double longest) {
    return longest < 1 ? TimeUnit{"ms", 1e-3} : TimeUnit{"s", 1};
}

/// "0.12 s less recompute"
std::string amount_text(const TimeUnit& unit, std::string_view name, double difference) {
    return fmt::format("{} {} {} {}", unit.text(std::abs(difference)), unit.name, difference > 0 ? "less" : "more", name);
}

/// The terms that explain a difference: those in the direction of the whole, the largest first, then those in the other direction. Terms
/// below a tenth of the whole are only in the table; empty if the whole rounds to zero.
std::string deciding_text(const TimeTerms& mine, const TimeTerms& other, const TimeUnit& unit) {
    std::vector<std::pair<std::string_view, double>> with, against;
    double whole = 0;
    for (std::size_t i = 0; i < kTimeTerms; ++i) whole += other[i].seconds - mine[i].seconds;
    if (unit.difference(whole) == "0.000") return "";
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        const double difference = other[i].seconds - mine[i].seconds;
        if (unit.difference(difference) == "0.000" || std::abs(difference) < std::abs(whole) / 10) continue;
        ((difference > 0) == (whole >= 0) ? with : against).emplace_back(mine[i].name, difference);
    }
    std::string text;
    for (auto* terms : {&with, &against}) {
        std::stable_sort(terms->begin(), terms->end(),
                         [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
        constexpr std::size_t kMostNamed = 3;
        if (terms->size() > kMostNamed) terms->resize(kMostNamed);
        if (terms->empty()) continue;
        std::vector<std::string> amounts;
        for (const auto& [name, difference] : *terms) amounts.push_back(amount_text(unit, name, difference));
        text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", terms == &with ? "most of it" : "against it", fmt::join(amounts, ", "));
    }
    return text.empty() ? "" : text + "\n";
}

std::string short_name(const ComparedPlan& plan) {
    return plan.name.empty() ? std::to_string(plan.rank) : plan.name;
}

}  // namespace

TimeTerms time_terms(const simulator::TimePrediction& t) {
    const double rest = t.iteration_seconds - t.compute_seconds - t.bubble_seconds - t.exposed.total() - t.optimizer_seconds;
    return terms_of(t.compute_seconds, t.recompute_seconds, t.host_seconds, t.bubble_seconds, t.exposed, t.optimizer_seconds, rest);
}

TimeTerms time_terms(const simulator::StageUse& use) {
    return terms_of(use.compute_seconds, use.recompute_seconds, use.host_seconds, use.bubble_seconds, use.exposed, use.optimizer_seconds,
                    use.fixed_seconds);
}

std::vector<ModuleUse> module_uses(const simulator::TimePrediction& time) {
    std::vector<ModuleUse> uses;
    for (std::size_t i = 0; i < time.modules.works.size(); ++i) {
        const simulator::ModuleWork& work = time.modules.works[i];
        const auto rate = [&work](double amount) { return amount > 0 ? std::optional<double>(amount / work.seconds) : std::nullopt; };
        const double share = time.compute_seconds > 0 ? work.seconds / time.compute_seconds : 0;
        uses.push_back({simulator::kComputeModules[i], work.seconds, share, rate(work.flops), rate(work.bytes)});
    }
    return uses;
}

std::vector<ModuleUse> longest_modules(const simulator::TimePrediction& time) {
    std::vector<ModuleUse> uses = module_uses(time);
    std::erase_if(uses, [](const ModuleUse& use) { return use.share < 0.0005; });
    std::stable_sort(uses.begin(), uses.end(), [](const ModuleUse& a, const ModuleUse& b) { return a.seconds > b.seconds; });
    return uses;
}

Json modules_to_json(const simulator::TimePrediction& time) {
    Json json;
    const auto or_null = [](const std::optional<double>& rate) { return rate ? Json(*rate) : Json(nullptr); };
    for (const ModuleUse& use : module_uses(time)) {
        json[std::string(use.name.json)] = Json{{"seconds", use.seconds},
                                                {"share", use.share},
                                                {"flops_per_second", or_null(use.flops_per_second)},
                                                {"bytes_per_second", or_null(use.bytes_per_second)}};
    }
    return json;
}

std::string rate_text(const std::optional<double>& rate, double unit) {
    return rate ? fmt::format("{:.0f}", *rate / unit) : "-";
}

std::string modules_text(const simulator::TimePrediction& time) {
    Table table({{"compute by module", Align::left}, {"seconds"}, {"share"}, {"TFLOP/s"}, {"GB/s"}});
    for (const ModuleUse& use : longest_modules(time)) {
        table.add_row({std::string(use.name.text), fmt::format("{:.4f}", use.seconds), fmt::format("{:.1f}%", 100 * use.share),
                       rate_text(use.flops_per_second, 1e12), rate_text(use.bytes_per_second, 1e9)});
    }
    return table.rows() > 0 ? "\n" + table.to_text() : "";
}

std::string ComparedPlan::called() const {
    return name.empty() ? fmt::format("plan {}", rank) : name;
}

void add_terms(Json& json, const PlanComparison& comparison) {
    const auto& [plan, against] = comparison;
    const TimeTerms mine = time_terms(plan.prediction.time), other = time_terms(against.prediction.time);
    Json terms = Json::array(), memory = Json::array();
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        terms.push_back(Json{{"term", mine[i].name},
                             {"seconds", mine[i].seconds},
                             {"against_seconds", other[i].seconds},
                             {"difference_seconds", other[i].seconds - mine[i].seconds}});
    }
    const auto held = memory_terms(plan.prediction.memory.worst.breakdown),
               held_there = memory_terms(against.prediction.memory.worst.breakdown);
    for (std::size_t i = 0; i < held.size(); ++i) {
        memory.push_back(Json{{"term", held[i].name},
                              {"bytes", held[i].bytes},
                              {"against_bytes", held_there[i].bytes},
                              {"difference_bytes", held_there[i].bytes - held[i].bytes}});
    }
    json["difference_seconds"] = against.prediction.time.iteration_seconds - plan.prediction.time.iteration_seconds;
    json["terms"] = terms;
    json["peak_bytes"] = plan.prediction.memory.deciding_bytes();
    json["against_peak_bytes"] = against.prediction.memory.deciding_bytes();
    json["memory"] = memory;
}

Json comparison_to_json(const PlanComparison& comparison) {
    Json json{{"rank", comparison.plan.rank}, {"against", comparison.against.rank}};
    add_terms(json, comparison);
    return json;
}

std::string ahead_text(const PlanComparison& comparison) {
    const auto& [plan, against] = comparison;
    const double mine = plan.prediction.time.iteration_seconds, other = against.prediction.time.iteration_seconds;
    const TimeUnit unit = unit_for_seconds(std::max(mine, other));
    std::string text = fmt::format("An iteration takes {} {} {} than {}'s; {}", unit.text(std::abs(other - mine)), unit.name,
                                   other < mine ? "more" : "less", against.called(),
                                   deciding_text(time_terms(plan.prediction.time), time_terms(against.prediction.time), unit));
    if (text.back() != '\n') text += "no term differs.\n";
    return in_lines(text, 0);
}

std::string comparison_text(const PlanComparison& comparison) {
    const auto& [plan, against] = comparison;
    const auto& time = plan.prediction.time;
    const auto& time_there = against.prediction.time;
    const TimeTerms mine = time_terms(time), other = time_terms(time_there);
    const TimeUnit unit = unit_for_seconds(std::max(time.iteration_seconds, time_there.iteration_seconds));
    const double ahead = time_there.iteration_seconds - time.iteration_seconds;
    std::string text = fmt::format("\n{} against {}\n  {}: {}\n  {}: {}\n", plan.called(), against.called(), short_name(plan),
                                   summary(plan.layout), short_name(against), summary(against.layout));
    text += ahead_text(comparison);
    const auto column = [](const ComparedPlan& p) { return Table::Column{p.called()}; };
    Table times({{fmt::format("time ({})", unit.name), Align::left}, column(plan), column(against), {"difference"}});
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        if (unit.text(mine[i].seconds) == "0.000" && unit.text(other[i].seconds) == "0.000") continue;
        times.add_row({std::string(mine[i].name), unit.text(mine[i].seconds), unit.text(other[i].seconds),
                       unit.difference(other[i].seconds - mine[i].seconds)});
    }
    times.add_row({"iteration", unit.text(time.iteration_seconds), unit.text(time_there.iteration_seconds), unit.difference(ahead)});
    const auto gib = [](std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / 1073741824.0); };
    const auto gib_more = [](std::int64_t bytes) { return fmt::format("{:+.2f}", static_cast<double>(bytes) / 1073741824.0); };
    Table memory({{"memory (GiB)", Align::left}, column(plan), column(against), {"difference"}});
    const auto& held = plan.prediction.memory.worst;
    const auto& held_there = against.prediction.memory.worst;
    const auto terms = memory_terms(held.breakdown), terms_there = memory_terms(held_there.breakdown);
    const auto add = [&](std::string_view name, std::int64_t here, std::int64_t there) {
        if (here > 0 || there > 0) memory.add_row({std::string(name), gib(here), gib(there), gib_more(there - here)});
    };
    for (std::size_t i = 0; i < terms.size(); ++i) add(terms[i].name, terms[i].bytes, terms_there[i].bytes);
    add("peak", held.peak_bytes(), held_there.peak_bytes());
    if (held.routing && held_there.routing) add("peak at p99 of the routing", held.routing->p99, held_there.routing->p99);
    return text + "\n" + times.to_text() + "\n" + memory.to_text();
}

Json stage_use_to_json(const simulator::StageUse& use) {
    const auto& e = use.exposed;
    return Json{{"compute_seconds", use.compute_seconds},
                {"recompute_seconds", use.recompute_seconds},
                {"host_seconds", use.host_seconds},
                {"exposed_communication_seconds", Json{{"tp", e.tp}, {"cp", e.cp}, {"ep", e.ep}, {"dp", e.dp}, {"pp", e.pp}}},
                {"bubble_seconds", use.bubble_seconds},
                {"optimizer_seconds", use.optimizer_seconds},
                {"fixed_seconds", use.fixed_seconds},
                {"utilisation", use.utilisation}};
}

std::vector<std::string> stage_use_csv_columns() {
    return {"compute_seconds",    "recompute_seconds",  "host_seconds",   "exposed_tp_seconds", "exposed_cp_seconds", "exposed_ep_seconds",
            "exposed_dp_seconds", "exposed_pp_seconds", "bubble_seconds", "optimizer_seconds",  "fixed_seconds",      "utilisation"};
}

std::vector<std::string> stage_use_csv_row(const simulator::StageUse& use) {
    std::vector<std::string> row;
    for (const double value :
         {use.compute_seconds, use.recompute_seconds, use.host_seconds, use.exposed.tp, use.exposed.cp, use.exposed.ep, use.exposed.dp,
          use.exposed.pp, use.bubble_seconds, use.optimizer_seconds, use.fixed_seconds, use.utilisation})
        row.push_back(fmt::format("{:.9g}", value));
    return row;
}

namespace {

/// True for terms that are equal for all stages.
bool is_alike(std::string_view heading) {
    return heading == "dp" || heading == "pp" || heading == "fixed";
}

/// `narrow`: terms that are equal for all stages are printed below, not in columns.
std::string stage_use_table(const std::vector<simulator::StageUse>& stages, const TimeUnit& unit, bool narrow) {
    std::vector<std::size_t> shown;
    std::string alike;
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        const auto text_of = [&](const simulator::StageUse& use) { return unit.text(time_terms(use)[i].seconds); };
        if (std::all_of(stages.begin(), stages.end(), [&](const auto& use) { return text_of(use) == "0.000"; })) continue;
        const std::string_view heading = time_terms(simulator::StageUse{})[i].heading;
        if (narrow && is_alike(heading))
            alike += fmt::format("{} {}, ", heading, text_of(stages.front()));
        else
            shown.push_back(i);
    }
    std::vector<Table::Column> columns{{"stage"}};
    for (const auto i : shown) columns.push_back({std::string(time_terms(simulator::StageUse{})[i].heading)});
    if (!narrow) columns.push_back({"all"});
    columns.push_back({"used"});
    Table table(columns);
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        const auto terms = time_terms(stages[stage]);
        std::vector<std::string> row{std::to_string(stage)};
        for (const auto i : shown) row.push_back(unit.text(terms[i].seconds));
        if (!narrow) row.push_back(unit.text(stages[stage].total()));
        row.push_back(fmt::format("{:.1f}%", 100 * stages[stage].utilisation));
        table.add_row(std::move(row));
    }
    std::string text = table.to_text(kTerminalColumns);
    if (narrow) text += fmt::format("the same for all stages: {}all {}\n", alike, unit.text(stages.front().total()));
    return text;
}

}  // namespace

std::string stage_use_text(const std::vector<simulator::StageUse>& stages) {
    double longest = 0;
    for (const auto& use : stages) longest = std::max(longest, use.total());
    const TimeUnit unit = unit_for_seconds(longest);
    std::string table = stage_use_table(stages, unit, false);
    if (display_width(table.substr(0, table.find('\n'))) > kTerminalColumns) table = stage_use_table(stages, unit, true);
    return fmt::format("\ntime of each stage's ranks in an iteration ({})\n", unit.name) + table +
           "used: computing, recompute and waiting for launches included. tp to pp:\n"
           "communication that nothing hides; of dp and pp what the iteration would be\n"
           "shorter without, the same for all stages.\n";
}

}  // namespace mgplan::reports
