#include "formats/megatron/flag_reader.hpp"

namespace mgplan::formats {
namespace {

/// "250B" as 2.5e11 by the letters K, M, B and T in either case (num_microbatches_calculator.py, _parse_numeric_value).
std::optional<double> scaled_number(std::string text) {
    double factor = 1;
    if (!text.empty()) {
        constexpr std::string_view kLetters = "KMBT";
        const auto letter = kLetters.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
        if (letter != std::string_view::npos) {
            for (std::size_t i = 0; i <= letter; ++i) factor *= 1000;
            text.pop_back();
        }
    }
    const auto number = parse_real(text);
    return number && *number >= 0 && *number <= 1e18 ? std::optional(*number * factor) : std::nullopt;
}

/// --rampup-batch-size START INCREMENT SAMPLES (num_microbatches_calculator.py before September 2026).
void check_batch_rampup(FlagReader& flags, std::optional<std::int64_t> last) {
    std::vector<std::int64_t> values;
    for (const auto& word : flags.texts("--rampup-batch-size")) {
        const auto number = parse_integer(word);
        if (number && *number >= 0) values.push_back(*number);
    }
    if (values.size() != 3 || values[0] < 1 || values[1] < 1)
        flags.problem("--rampup-batch-size takes a first batch and an increment of at least 1, and samples; write it as in 16 16 1000000");
    else if (last && *last < values[0])
        flags.problem("--rampup-batch-size begins with {}, more than --global-batch-size = {}; begin with at most that", values[0], *last);
}

}  // namespace

std::optional<std::int64_t> read_global_batch(FlagReader& flags, std::vector<std::string>& assumptions) {
    const auto fixed = flags.integer("--global-batch-size", 1, ModelLimits::positions);
    if (flags.has("--rampup-batch-size")) {
        check_batch_rampup(flags, fixed);
        if (fixed) assumptions.push_back(fmt::format("the batch behind its ramp-up, {}", *fixed));
    }
    if (!flags.has("--step-batch-size-schedule")) return fixed;
    if (flags.has("--global-batch-size")) flags.problem("--step-batch-size-schedule and --global-batch-size exclude each other; keep one");
    std::optional<double> reached;
    std::optional<std::int64_t> batch;
    std::size_t steps = 0;
    for (const auto& entry : flags.texts("--step-batch-size-schedule")) {
        const auto colon = entry.find(':');
        const auto from = scaled_number(entry.substr(0, colon));
        const auto size = colon == std::string::npos ? std::nullopt : scaled_number(entry.substr(colon + 1));
        if (!from || !size || *size < 1 || *size > static_cast<double>(ModelLimits::positions)) {
            flags.problem("--step-batch-size-schedule: '{}' is no step; write steps as in 0:384 200B:768", FlagReader::shown(entry));
            return std::nullopt;
        }
        if (reached ? *from <= *reached : *from != 0) {
            flags.problem("--step-batch-size-schedule: '{}' does not follow; let steps start at 0 and rise", FlagReader::shown(entry));
            return std::nullopt;
        }
        reached = from;
        batch = static_cast<std::int64_t>(*size);
        ++steps;
    }
    if (!batch) {
        flags.problem("--step-batch-size-schedule needs a value");
        return std::nullopt;
    }
    if (steps > 1) assumptions.push_back(fmt::format("the batch of the schedule's last step, {}", *batch));
    return batch;
}

}  // namespace mgplan::formats
