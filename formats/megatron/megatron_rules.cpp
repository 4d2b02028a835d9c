#include <algorithm>
#include <array>
#include <cctype>

#include "formats/megatron/flag_rows.hpp"

namespace mgplan::formats {

std::string without_grouping(std::string number) {
    const auto digit = [&](std::size_t i) { return std::isdigit(static_cast<unsigned char>(number[i])) != 0; };
    for (std::size_t at = 1; at + 1 < number.size(); ++at) {
        if (number[at] == '_' && digit(at - 1) && digit(at + 1)) number.erase(at, 1);
    }
    return number;
}

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
    const auto number = parse_real(without_grouping(text));
    return number && *number >= 0 && *number <= 1e18 ? std::optional(*number * factor) : std::nullopt;
}

/// --train-iters and --train-samples; 0 counts as absent, and values that only a run of the script would reveal stay open. Megatron-LM
/// stops at both together (arguments.py, validate_args) but where it trains nothing.
void read_length(FlagReader& flags, Job& job) {
    const auto read = [&flags](const char* flag) -> std::optional<std::int64_t> {
        const std::string word = flags.raw(flag);
        // Without a value, as where a script's argument was not given, nothing is said of the length.
        const bool open = word.empty() || word.find_first_of("$`") != std::string::npos;
        const auto number = open ? std::nullopt : parse_integer(without_grouping(word));
        if (!open && (!number || *number < 0 || *number > BatchSchedule::most_tokens))
            flags.problem("{} = '{}' is not a whole number from 0 to 2^62; write one such as 100000", flag, FlagReader::shown(word));
        if (number.value_or(0) > 0) return number;
        flags.idle(flag);
        return std::nullopt;
    };
    job.batches.train_iterations = read("--train-iters");
    job.batches.train_samples = read("--train-samples");
    if (!job.batches.train_iterations || !job.batches.train_samples) return;
    job.batches.train_samples.reset();
    std::string counts = "--train-iters counts, not --train-samples";
    if (flags.has("--skip-train")) {
        flags.idle("--train-samples");
    } else {
        // Published commands have both, whose scripts may take one away: left open rather than refused.
        flags.not_computed("--train-samples", "with --train-iters, where Megatron-LM stops at both", Decides::legal);
        counts += "; Megatron-LM stops where both are given, up to the newest release";
    }
    job.assumptions.push_back(std::move(counts));
}

/// --rampup-batch-size START INCREMENT SAMPLES (RampupBatchsizeNumMicroBatchesCalculator of core 0.17 and before).
void read_ramp_up(FlagReader& flags, Job& job, std::optional<std::int64_t> last) {
    constexpr const char* kFlag = "--rampup-batch-size";
    std::vector<std::int64_t> values;
    for (const auto& word : flags.texts(kFlag)) {
        const auto number = parse_integer(without_grouping(word));
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
    // At these releases up to core 0.17 stop (num_microbatches_calculator.py; arguments.py, validate_args); later ones run them with one
    // batch.
    const bool met = *last > values[0] && (*last - values[0]) % values[1] == 0;
    if (!met || job.batches.train_iterations) {
        flags.idle(kFlag);
        job.assumptions.push_back(fmt::format("no ramp-up of the batch, as from core 0.18 on; releases up to core 0.17 stop, for it {}",
                                              met ? "goes by --train-samples alone, not by --train-iters"
                                                  : fmt::format("does not come from {} by {} to {}", values[0], values[1], *last)));
        return;
    }
    job.batches.ramp_up = {.start = values[0], .increment = values[1], .samples = values[2]};
    job.assumptions.push_back(fmt::format("the batch after its ramp-up, {} (releases from core 0.18 on have no ramp-up)", *last));
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
    // In whole sequences, by which it goes; of a command without their length batch_stages() says it.
    const std::int64_t sequence = job.model.default_sequence.value_or(BatchSchedule::most_tokens);
    if (steps.front().from_tokens >= sequence) {
        flags.problem("{} begins with {}, after the first sequence; let its first step begin with 0", kFlag,
                      counted(steps.front().from_tokens, "token"));
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

/// Sequences per step: --global-batch-size, or the last step of --step-batch-size-schedule; nothing where neither is given.
std::optional<std::int64_t> global_batch(FlagReader& flags, Job& job) {
    read_length(flags, job);
    job.batches.resumed = flags.has("--load") && !flags.has("--finetune");  // which begins with no samples consumed
    if (!flags.has("--rampup-batch-size") && !flags.has("--step-batch-size-schedule")) flags.idle("--load");
    const auto fixed = flags.integer("--global-batch-size", 1, ModelLimits::positions);
    constexpr const char* kDecrease = "--decrease-batch-size-if-needed";
    job.batches.decreases = flags.has(kDecrease) && flags.has("--global-batch-size");
    if (!flags.has("--step-batch-size-schedule")) {
        if (!job.batches.decreases) flags.idle(kDecrease);  // a microbatch for each dp rank divides
        if (flags.has("--rampup-batch-size")) read_ramp_up(flags, job, fixed);
        return fixed;
    }
    if (flags.has("--global-batch-size")) flags.problem("--step-batch-size-schedule and --global-batch-size exclude each other; keep one");
    if (flags.has(kDecrease)) flags.problem("--step-batch-size-schedule and {} exclude each other; keep one", kDecrease);
    flags.idle("--rampup-batch-size");
    return read_batch_steps(flags, job);
}

void read_global_batch(FlagReader& flags, Job& job) {
    job.model.default_global_batch = global_batch(flags, job);
}

void write_global_batch(FlagWriter& out, const Job& job) {
    out.integer("global-batch-size", *job.model.default_global_batch);
}

constexpr std::array kBatchFlags{FlagRow{"global-batch-size=", Both{read_global_batch, write_global_batch}}};

}  // namespace

constinit const FlagTopic kBatchTopic{kBatchFlags};

}  // namespace mgplan::formats
