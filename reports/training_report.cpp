#include "reports/training_report.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

/// "25.2 billion", in the largest unit that is at least `least`; nothing if the number is below that unit.
std::optional<std::string> large_number(double number, double least) {
    for (const auto& [unit, name] : {std::pair(1e18, "quintillion"), std::pair(1e15, "quadrillion"), std::pair(1e12, "trillion"),
                                     std::pair(1e9, "billion"), std::pair(1e6, "million")}) {
        if (unit < least) break;
        if (number >= unit) return fmt::format("{:.1f} {}", number / unit, name);
    }
    return std::nullopt;
}

/// "25.2 billion tokens".
std::string tokens_text(std::int64_t tokens) {
    const auto large = large_number(static_cast<double>(tokens), 1e6);
    return large ? *large + " tokens" : counted(tokens, "token");
}

/// "1,234,567 steps"; "25.2 billion steps".
std::string steps_text(std::int64_t steps) {
    const auto large = large_number(static_cast<double>(steps), 1e9);
    return large ? *large + " steps" : counted(steps, "step");
}

/// "8.1 million years", "12.3 years", "3.2 days", "5.1 hours", "12.0 minutes", "45.6 s".
std::string long_time(double seconds) {
    constexpr double kMinute = 60, kHour = 3600, kDay = 86'400, kYear = 365.25 * kDay;
    constexpr double kMostDays = 1000, kWholeYears = 1000;
    if (seconds >= kMostDays * kDay) {
        const double years = seconds / kYear;
        if (const auto large = large_number(years, 1e6)) return *large + " years";
        if (years >= kWholeYears) return counted(std::llround(years), "year");
        return fmt::format("{:.1f} years", years);
    }
    if (seconds >= kDay) return fmt::format("{:.1f} days", seconds / kDay);
    if (seconds >= kHour) return fmt::format("{:.1f} hours", seconds / kHour);
    if (seconds >= kMinute) return fmt::format("{:.1f} minutes", seconds / kMinute);
    return human_seconds(seconds);
}

std::string iteration_text(double seconds) {
    constexpr double kLong = 3600;
    return seconds < kLong ? human_seconds(seconds) : long_time(seconds);
}

std::string stage_text(const TimedStage& timed) {
    const std::string batch = counted(timed.stage.batch, "sequence"), each = iteration_text(timed.iteration_seconds);
    if (timed.num_microbatches == 0)
        return fmt::format("{} of {}, run before on other GPUs", steps_text(timed.stage.steps.value_or(0)), batch);
    if (!timed.stage.steps) return fmt::format("steps of {}, {} each", batch, each);
    return fmt::format("{} of {}, {} each: {}", steps_text(*timed.stage.steps), batch, each,
                       long_time(static_cast<double>(*timed.stage.steps) * timed.iteration_seconds));
}

}  // namespace

std::string training_text(const TrainingCourse& course) {
    constexpr std::size_t kWhole = 8, kFirst = 3, kLast = 2;
    std::string text = "no end is stated";
    if (const auto steps = course.steps())
        text =
            fmt::format("{}, {}, {}", steps_text(*steps), tokens_text(*course.samples() * course.sequence), long_time(*course.seconds()));
    const std::size_t count = course.stages.size();
    if (count == 0) return "no step: fewer samples than a batch\n";
    if (course.stages.front().num_microbatches == 0) text += " for what was not run before";
    if (count < 2) return text + "\n";
    text += ":\n";
    for (std::size_t i = 0; i < count; ++i) {
        if (count <= kWhole || i < kFirst || i + kLast >= count)
            text += fmt::format("        {}\n", stage_text(course.stages[i]));
        else if (i == kFirst)
            text += fmt::format("        ... {} more stages ...\n", with_thousands(static_cast<std::int64_t>(count - kFirst - kLast)));
    }
    return text;
}

Json training_to_json(const TrainingCourse& course) {
    Json json{{"steps", nullptr}, {"samples", nullptr}, {"tokens", nullptr}, {"seconds", nullptr}, {"stages", Json::array()}};
    if (const auto steps = course.steps()) {
        json["steps"] = *steps;
        json["samples"] = *course.samples();
        json["tokens"] = *course.samples() * course.sequence;
        json["seconds"] = *course.seconds();
    }
    for (const TimedStage& timed : course.stages) {
        Json stage{{"from_samples", timed.stage.from_samples},
                   {"global_batch", timed.stage.batch},
                   {"num_microbatches", nullptr},
                   {"steps", nullptr},
                   {"samples", nullptr},
                   {"tokens", nullptr},
                   {"iteration_seconds", nullptr},
                   {"seconds", nullptr}};
        if (timed.num_microbatches > 0) {
            stage["num_microbatches"] = timed.num_microbatches;
            stage["iteration_seconds"] = timed.iteration_seconds;
        }
        if (const auto& steps = timed.stage.steps) {
            stage["steps"] = *steps;
            stage["samples"] = *steps * timed.stage.batch;
            stage["tokens"] = *steps * timed.stage.batch * course.sequence;
            if (timed.num_microbatches > 0) stage["seconds"] = static_cast<double>(*steps) * timed.iteration_seconds;
        }
        json["stages"].push_back(std::move(stage));
    }
    return json;
}

}  // namespace mgplan::reports
