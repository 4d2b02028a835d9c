#include "reports/figures.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::reports {
namespace {

using Time = const simulator::TimePrediction&;

std::string seconds_cell(double value) {
    return fmt::format("{:.{}f}", value, value < 100 ? 3 : 1);
}

std::string whole_cell(double value) {
    return fmt::format("{:.0f}", value);
}

std::string percent_cell(double value) {
    return fmt::format("{:.1f}%", 100 * value);
}

constexpr std::array kRates{
    Figure{"tokens_per_second_per_gpu", "tok/s", [](Time t) { return t.tokens_per_second_per_gpu; }, whole_cell, 9},
    Figure{"model_tflops_per_gpu", "TFLOP/s", [](Time t) { return t.model_tflops_per_gpu; }, whole_cell, 9},
    Figure{"mfu", "MFU", [](Time t) { return t.mfu; }, percent_cell, 6},
    Figure{"hfu", "", [](Time t) { return t.hfu; }, percent_cell, 6},
    Figure{"bubble_fraction", "", [](Time t) { return t.bubble_fraction(); }, percent_cell, 6},
    Figure{"imbalance_fraction", "", [](Time t) { return t.imbalance_fraction(); }, percent_cell, 6},
    Figure{"idle_fraction", "", [](Time t) { return t.idle_fraction(); }, percent_cell, 6},
};

constexpr std::array kSeconds{
    Figure{"iteration_seconds", "s/step", [](Time t) { return t.iteration_seconds; }, seconds_cell, 9},
    Figure{"adverse_seconds", "worst", [](Time t) { return t.adverse_seconds; }, seconds_cell, 9},
    Figure{"compute_seconds", "", [](Time t) { return t.compute_seconds; }, seconds_cell, 9},
    Figure{"recompute_seconds", "", [](Time t) { return t.recompute_seconds; }, seconds_cell, 9},
    Figure{"host_seconds", "", [](Time t) { return t.host_seconds; }, seconds_cell, 9},
    Figure{"bubble_seconds", "", [](Time t) { return t.bubble_seconds; }, seconds_cell, 9},
    Figure{"optimizer_seconds", "", [](Time t) { return t.optimizer_seconds; }, seconds_cell, 9},
    Figure{"fixed_seconds", "", [](Time t) { return t.fixed_seconds(); }, seconds_cell, 9},
};

constexpr std::array kExposed{
    Figure{"tp", "", [](Time t) { return t.exposed.tp; }, seconds_cell, 9},
    Figure{"cp", "", [](Time t) { return t.exposed.cp; }, seconds_cell, 9},
    Figure{"ep", "", [](Time t) { return t.exposed.ep; }, seconds_cell, 9},
    Figure{"dp", "", [](Time t) { return t.exposed.dp; }, seconds_cell, 9},
    Figure{"pp", "", [](Time t) { return t.exposed.pp; }, seconds_cell, 9},
};

}  // namespace

std::span<const Figure> rate_figures() {
    return kRates;
}

std::span<const Figure> seconds_figures() {
    return kSeconds;
}

std::span<const Figure> exposed_figures() {
    return kExposed;
}

const Figure& figure(std::string_view name) {
    for (const auto figures : {rate_figures(), seconds_figures()}) {
        const auto found = std::find_if(figures.begin(), figures.end(), [&](const Figure& each) { return each.name == name; });
        if (found != figures.end()) return *found;
    }
    assertion_failed("figure(name)", __FILE__, __LINE__, fmt::format("there is no figure {}", name));
}

std::string cell_text(std::string_view name, const simulator::TimePrediction& time) {
    const Figure& row = figure(name);
    return row.cell(row.value(time));
}

std::string csv_text(const Figure& figure, const simulator::TimePrediction& time) {
    return fmt::format("{:.{}g}", figure.value(time), figure.digits);
}

std::string amount(double value) {
    if (std::abs(value) < 100) return fmt::format("{:.2f}", value);
    // Above 64 bits exact digits do not matter.
    return std::abs(value) < 9e15 ? with_thousands(static_cast<std::int64_t>(std::llround(value))) : fmt::format("{:.3g}", value);
}

}  // namespace mgplan::reports
