#include <algorithm>
#include <cctype>

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

/// An integer of Python's, whose digits underscores may group: "5_000_000".
std::optional<std::int64_t> grouped_integer(std::string text) {
    for (std::size_t at = 1; at + 1 < text.size(); ++at) {
        const auto digit = [&](std::size_t i) { return std::isdigit(static_cast<unsigned char>(text[i])) != 0; };
        if (text[at] == '_' && digit(at - 1) && digit(at + 1)) text.erase(at, 1);
    }
    return parse_integer(text);
}

/// --train-iters and --train-samples; 0 is as good as neither, and what only running the script would tell stays open.
void read_length(FlagReader& flags, Job& job) {
    const auto read = [&flags](const char* flag) -> std::optional<std::int64_t> {
        const std::string word = flags.raw(flag);
        // Without a value, as where a script's argument was not given, nothing is said of the length.
        const bool open = word.empty() || word.find_first_of("$`") != std::string::npos;
        const auto number = open ? std::nullopt : grouped_integer(word);
        if (!open && (!number || *number < 0 || *number > BatchSchedule::most_tokens))
            flags.problem("{} = '{}' is not a whole number from 0 to 2^62; write one such as 100000", flag, FlagReader::shown(word));
        if (number.value_or(0) > 0) return number;
        flags.idle(flag);
        return std::nullopt;
    };
    job.batches.train_iterations = read("--train-iters");
    job.batches.train_samples = read("--train-samples");
    if (job.batches.train_iterations && job.batches.train_samples) {
        job.batches.train_samples.reset();
        flags.idle("--train-samples");
        job.assumptions.emplace_back("--train-iters counts, not --train-samples (Megatron-LM takes one of them)");
    }
}

/// --rampup-batch-size START INCREMENT SAMPLES (RampupBatchsizeNumMicroBatchesCalculator of core 0.17 and before).
void read_ramp_up(FlagReader& flags, Job& job, std::optional<std::int64_t> last) {
    constexpr const char* kFlag = "--rampup-batch-size";
    std::vector<std::int64_t> values;
    for (const auto& word : flags.texts(kFlag)) {
        const auto number = grouped_integer(word);
        if (number && *number >= 1) values.push_back(*number);
    }
    if (values.size() != 3) {
        flags.problem("{} takes a first batch, an increment and samples, each at least 1; write it as in 16 16 1000000", kFlag);
        return;
    }
    if (!last) return;
    if (*last < values[0]) {
        flags.problem("{} begins with {}, more than --global-batch-size = {}; begin with at most that", kFlag, values[0], *last);
        return;
    }
    // Later releases run such commands with one batch.
    const bool met = *last > values[0] && (*last - values[0]) % values[1] == 0;
    if (!met || job.batches.train_iterations) {
        flags.idle(kFlag);
        job.assumptions.push_back(fmt::format("no ramp-up of the batch, {}",
                                              met ? "which goes by --train-samples alone, not by --train-iters"
                                                  : fmt::format("which does not come from {} by {} to {}", values[0], values[1], *last)));
        return;
    }
    job.batches.ramp_up = {.start = values[0], .increment = values[1], .samples = values[2]};
    job.assumptions.push_back(fmt::format("the batch behind its ramp-up, {} (releases from core 0.18 on have no ramp-up)", *last));
}

/// --step-batch-size-schedule "0:384 200B:768" (StepBatchsizeNumMicroBatchesCalculator); the batch of the last step.
std::optional<std::int64_t> read_batch_steps(FlagReader& flags, Job& job) {
    constexpr const char* kFlag = "--step-batch-size-schedule";
    std::vector<BatchSchedule::Step>& steps = job.batches.steps;
    for (const auto& entry : flags.texts(kFlag)) {
        const auto colon = entry.find(':');
        const auto from = scaled_number(entry.substr(0, colon));
        const auto size = colon == std::string::npos ? std::nullopt : scaled_number(entry.substr(colon + 1));
        if (!from || *from > static_cast<double>(BatchSchedule::most_tokens) || !size || *size < 1 ||
            *size > static_cast<double>(ModelLimits::positions)) {
            flags.problem("{}: '{}' is no step; write steps as in 0:384 200B:768", kFlag, FlagReader::shown(entry));
            return std::nullopt;
        }
        steps.push_back({.from_tokens = static_cast<std::int64_t>(*from), .batch = static_cast<std::int64_t>(*size)});
    }
    std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.from_tokens < b.from_tokens; });
    if (steps.empty()) {
        flags.problem("{} needs a value", kFlag);
        return std::nullopt;
    }
    if (steps.front().from_tokens != 0) {
        flags.problem("{} begins with {} tokens; let its first step begin with 0", kFlag, steps.front().from_tokens);
        return std::nullopt;
    }
    const auto equal =
        std::adjacent_find(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.from_tokens == b.from_tokens; });
    if (equal != steps.end()) {
        flags.problem("{}: two steps begin with {} tokens; let each begin later than the one before", kFlag, equal->from_tokens);
        return std::nullopt;
    }
    if (steps.size() > 1) job.assumptions.push_back(fmt::format("the batch of the schedule's last step, {}", steps.back().batch));
    return steps.back().batch;
}

}  // namespace

std::optional<std::int64_t> read_global_batch(FlagReader& flags, Job& job) {
    read_length(flags, job);
    job.batches.resumed = flags.has("--load") && !flags.has("--finetune");  // which begins with no samples consumed
    if (!flags.has("--rampup-batch-size") && !flags.has("--step-batch-size-schedule")) flags.idle("--load");
    const auto fixed = flags.integer("--global-batch-size", 1, ModelLimits::positions);
    if (!flags.has("--step-batch-size-schedule")) {
        if (flags.has("--rampup-batch-size")) read_ramp_up(flags, job, fixed);
        return fixed;
    }
    if (flags.has("--global-batch-size")) flags.problem("--step-batch-size-schedule and --global-batch-size exclude each other; keep one");
    flags.idle("--rampup-batch-size");
    return read_batch_steps(flags, job);
}

}  // namespace mgplan::formats
