#pragma once
// Figures of a predicted iteration, one row for each. Tables, CSV and JSON take name, value and text from here.

#include <span>
#include <string>
#include <string_view>

#include "simulator/prediction.hpp"

namespace mgplan::reports {

struct Figure {
    std::string_view name;     ///< in JSON and Python: "mfu"; of exposed communication the group alone: "tp"
    std::string_view heading;  ///< of a column of a table: "MFU"; empty: in no table
    double (*value)(const simulator::TimePrediction& time);
    std::string (*cell)(double value);  ///< text in a table
    int digits;                         ///< significant digits in CSV
};

/// Throughput and utilisation, then seconds by cause, in the order of JSON.
[[nodiscard]] std::span<const Figure> rate_figures();
[[nodiscard]] std::span<const Figure> seconds_figures();
/// Communication that nothing hides, by the group that communicates.
[[nodiscard]] std::span<const Figure> exposed_figures();

/// A row of one of the first two by name, which is there.
[[nodiscard]] const Figure& figure(std::string_view name);

/// Text of such a row in tables, and with its digits in CSV.
[[nodiscard]] std::string cell_text(std::string_view name, const simulator::TimePrediction& time);
[[nodiscard]] std::string csv_text(const Figure& figure, const simulator::TimePrediction& time);

/// "1,234" or, of small amounts, "12.34".
[[nodiscard]] std::string amount(double value);

}  // namespace mgplan::reports
