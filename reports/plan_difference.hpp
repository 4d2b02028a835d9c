#pragma once
// Output of `mgplan diff`: fields in which two plans differ, and the effect on time and memory, term by term.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/plan.hpp"
#include "planner/planned_layout.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {

/// A field of a plan file whose value differs, such as "layout.tp"; values as in JSON, "" if a plan does not have it.
struct DifferingField {
    std::string field, a, b;
    bool operator==(const DifferingField&) const = default;
};

/// In the order of the file; if all fields of an object differ, they are still listed one by one. Sources of figures are left out.
[[nodiscard]] std::vector<DifferingField> differing_fields(const Plan& a, const Plan& b);

struct PlanDifference {
    std::vector<DifferingField> fields;
    PlanComparison predicted;  ///< a and b, named by their files
};

/// A given layout compared with the first plan of a search (`plan --compare`).
struct ComparedLayout {
    PlanDifference difference;  ///< between the first plan and the layout
    planner::ComparedRank rank;
    bool sizes_left_out = false;  ///< the layout was given as text without all sizes
};

/// {"rank" (null if it does not fit), "rank_is_exact", "rank_is_at_least", "fits", "missing_bytes", and the fields of
/// plan_difference_json()}.
[[nodiscard]] nlohmann::ordered_json compared_layout_to_json(const ComparedLayout& compared);
/// A sentence with its rank among `feasible` layouts, then plan_difference_text().
[[nodiscard]] std::string compared_layout_text(const ComparedLayout& compared, std::int64_t feasible);

/// {"fields": [{"field", "a", "b"}], "a": {"name", "layout", "predicted"}, "b": …, and the fields of add_terms(), of a against b}.
[[nodiscard]] std::string plan_difference_json(const PlanDifference& difference);
/// The fields as a table, then terms in the form of --explain.
[[nodiscard]] std::string plan_difference_text(const PlanDifference& difference);
/// A row for each term: term, unit, a, b, difference.
[[nodiscard]] std::string plan_difference_csv(const PlanDifference& difference);

}  // namespace mgplan::reports
