#pragma once
// Time of an iteration, term by term: output of plan and simulate.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/layout/layout.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

struct TimeTerm {
    std::string_view name;     ///< in JSON and comparisons
    std::string_view text;     ///< for a whole line
    std::string_view heading;  ///< for a narrow column
    double seconds = 0;
    std::string_view style;  ///< its colour on pages (html_page.cpp)
};
inline constexpr std::size_t kTimeTerms = 11;
/// Terms below this share of the iteration are rounding.
inline constexpr double kRoundingOfTerms = 1e-9;
using TimeTerms = std::array<TimeTerm, kTimeTerms>;

/// compute (without the next two), recompute, host (waits for kernel launches), bubble, exposed tp, cp, ep, dp and pp, optimizer, and the
/// rest: data loading, scheduler, logging. They add up to the iteration, for a prediction up to one bit of rounding because the rest is
/// computed as the difference.
[[nodiscard]] TimeTerms time_terms(const simulator::TimePrediction& time);
[[nodiscard]] TimeTerms time_terms(const simulator::StageUse& use);

/// One module's compute on the slowest stage.
struct ModuleUse {
    simulator::ModuleName name;
    double seconds = 0;
    double share = 0;                                          ///< of the compute time
    std::optional<double> flops_per_second, bytes_per_second;  ///< of one GPU; of a module without them nothing
};
/// By ComputeModule; the seconds add up to compute_seconds. Empty if the prediction does not count them.
[[nodiscard]] std::vector<ModuleUse> module_uses(const simulator::TimePrediction& time);
/// module_uses() that are 0.1 % after rounding, the longest first.
[[nodiscard]] std::vector<ModuleUse> longest_modules(const simulator::TimePrediction& time);
/// A rate of ModuleUse in `unit` without decimals; "-" if there is none.
[[nodiscard]] std::string rate_text(const std::optional<double>& rate, double unit);
/// predicted.compute_by_module: {"qkv_projection": {"seconds", "share", "flops_per_second", "bytes_per_second"}, …}; null if not counted.
[[nodiscard]] nlohmann::ordered_json modules_to_json(const simulator::TimePrediction& time);
/// longest_modules() as a table after an empty line; empty if not counted.
[[nodiscard]] std::string modules_text(const simulator::TimePrediction& time);

/// A layout with its prediction and its rank among the plans, or the name of its file.
struct ComparedPlan {
    std::size_t rank = 1;
    Layout layout;
    simulator::Prediction prediction;
    std::string name = {};  ///< "" for "plan RANK"

    [[nodiscard]] std::string called() const;
};

/// Comparison of two plans: the difference of their iterations and of their memory, term by term.
struct PlanComparison {
    ComparedPlan plan, against;
};

/// {"rank", "against", "difference_seconds", "terms": [{"term", "seconds", "against_seconds", "difference_seconds"}],
/// "peak_bytes", "against_peak_bytes", "memory": [{"term", "bytes", "against_bytes", "difference_bytes"}]}. Differences are values of
/// `against` minus those of the plan: above zero, the plan is better. Seconds of the terms add up to difference_seconds; bytes, those at
/// the peaks with even routing, to the difference of the two breakdowns.
[[nodiscard]] nlohmann::ordered_json comparison_to_json(const PlanComparison& comparison);

/// Adds the fields "difference_seconds" to "memory" of comparison_to_json().
void add_terms(nlohmann::ordered_json& json, const PlanComparison& comparison);

/// "An iteration takes 0.21 s less than plan 2's; most of it: 0.12 s less recompute, 0.03 s more exposed tp", one line.
[[nodiscard]] std::string ahead_text(const PlanComparison& comparison);

/// ahead_text(), followed by the terms as two tables.
[[nodiscard]] std::string comparison_text(const PlanComparison& comparison);

/// Use of the GPUs of every pipeline stage (StageUse), as in simulate --per-rank.
/// {"compute_seconds", "recompute_seconds", "host_seconds", "exposed_communication_seconds": {...}, "bubble_seconds",
/// "optimizer_seconds", "fixed_seconds", "utilisation"}; compute_seconds includes the next two, the others add up with it.
[[nodiscard]] nlohmann::ordered_json stage_use_to_json(const simulator::StageUse& use);
/// The same fields as one CSV row, and the names of the columns.
[[nodiscard]] std::vector<std::string> stage_use_csv_columns();
[[nodiscard]] std::vector<std::string> stage_use_csv_row(const simulator::StageUse& use);
/// A table with one row for each stage; terms that no stage has get no column.
[[nodiscard]] std::string stage_use_text(const std::vector<simulator::StageUse>& stages);

}  // namespace mgplan::reports
