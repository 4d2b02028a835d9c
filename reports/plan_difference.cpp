#include "reports/plan_difference.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/layout_report.hpp"
#include "reports/memory_terms.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

/// Compares both values recursively: objects member by member, other values as a whole.
void add_differing(const Json* a, const Json* b, const std::string& path, std::vector<DifferingField>& found) {
    if (a != nullptr && b != nullptr && a->is_object() && b->is_object()) {
        const auto inner = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
        const auto member = [](const Json& json, const std::string& key) { return json.contains(key) ? &json.at(key) : nullptr; };
        for (const auto& item : a->items()) {
            if (item.key() != "sources") add_differing(&item.value(), member(*b, item.key()), inner(item.key()), found);
        }
        for (const auto& item : b->items()) {
            if (item.key() != "sources" && !a->contains(item.key())) add_differing(nullptr, &item.value(), inner(item.key()), found);
        }
        return;
    }
    const auto text = [](const Json* json) {
        return json == nullptr ? std::string() : json->dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    if (text(a) != text(b)) found.push_back({path, text(a), text(b)});
}

Json side_to_json(const ComparedPlan& plan) {
    return Json{{"name", plan.called()}, {"layout", layout_to_json(plan.layout)}, {"predicted", prediction_to_json(plan.prediction)}};
}

}  // namespace

std::vector<DifferingField> differing_fields(const Plan& a, const Plan& b) {
    const Json left = plan_to_json(a), right = plan_to_json(b);
    std::vector<DifferingField> found;
    add_differing(&left, &right, "", found);
    return found;
}

namespace {

Json difference_to_json(const PlanDifference& difference) {
    Json json{{"fields", Json::array()}, {"a", side_to_json(difference.predicted.plan)}, {"b", side_to_json(difference.predicted.against)}};
    for (const auto& [field, a, b] : difference.fields) {
        const auto value = [](const std::string& text) { return text.empty() ? Json() : Json::parse(text); };
        json["fields"].push_back({{"field", field}, {"a", value(a)}, {"b", value(b)}});
    }
    add_terms(json, difference.predicted);
    return json;
}

}  // namespace

std::string plan_difference_json(const PlanDifference& difference) {
    return difference_to_json(difference).dump(1) + "\n";
}

Json compared_layout_to_json(const ComparedLayout& compared) {
    const auto& memory = compared.difference.predicted.against.prediction.memory;
    const std::int64_t missing = memory.deciding_bytes() - memory.limit_bytes;
    Json json{{"rank", compared.rank.rank > 0 ? Json(compared.rank.rank) : Json()},
              {"rank_is_exact", compared.rank.exact},
              {"rank_is_at_least", compared.rank.least},
              {"fits", memory.fits()},
              {"missing_bytes", std::max<std::int64_t>(0, missing)}};
    json.update(difference_to_json(compared.difference));
    return json;
}

std::string compared_layout_text(const ComparedLayout& compared, std::int64_t feasible) {
    const auto& [plan, against] = compared.difference.predicted;
    std::string text = fmt::format("\n{} compared with {}: ", against.called(), plan.called());
    if (compared.rank.rank > 0)
        text += fmt::format("place {}{} among the {} that fit{}", compared.rank.least ? "at least " : "",
                            with_thousands(static_cast<std::int64_t>(compared.rank.rank)), with_thousands(feasible),
                            compared.rank.exact ? "" : ", by the search's estimate");
    else if (against.prediction.memory.fits())
        text += "it fits, but does not leave the headroom of the search";
    else
        text += fmt::format("it does not fit, {}", missing_text(against.prediction.memory));
    const double more = against.prediction.time.iteration_seconds / plan.prediction.time.iteration_seconds - 1;
    if (against.prediction.memory.fits()) text += fmt::format("; {:.2f} % {}", 100 * std::abs(more), more < 0 ? "faster" : "slower");
    text += "\n";
    if (compared.sizes_left_out) text += "Sizes that its words leave out count as 1; to search them pin the others, as in --tp 8.\n";
    text += "\n";
    return text + plan_difference_text(compared.difference);
}

std::string plan_difference_text(const PlanDifference& difference) {
    const auto& [a, b] = difference.predicted;
    if (difference.fields.empty()) return fmt::format("{} and {} are the same plan\n", a.called(), b.called());
    Table table({{"differs", Align::left}, {a.called(), Align::left}, {b.called(), Align::left}});
    const auto cell = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
    for (const auto& [field, here, there] : difference.fields) table.add_row({field, cell(here), cell(there)});
    return table.to_text() + comparison_text(difference.predicted);
}

std::string plan_difference_csv(const PlanDifference& difference) {
    Table table({{"term"}, {"unit"}, {"a"}, {"b"}, {"difference"}});
    Json json;
    add_terms(json, difference.predicted);
    for (const auto& term : json["terms"]) {
        const auto seconds = [&](const char* key) { return fmt::format("{:.9g}", term[key].get<double>()); };
        table.add_row({term["term"], "seconds", seconds("seconds"), seconds("against_seconds"), seconds("difference_seconds")});
    }
    for (const auto& term : json["memory"])
        table.add_row({term["term"], "bytes", term["bytes"].dump(), term["against_bytes"].dump(), term["difference_bytes"].dump()});
    return table.to_csv();
}

}  // namespace mgplan::reports
