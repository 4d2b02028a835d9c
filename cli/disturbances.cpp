#include "cli/disturbances.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/workload_options.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

constexpr double kMostSlowdown = 1000;
constexpr std::size_t kMostStragglers = 1024;

std::vector<simulator::Straggler> read_stragglers(const std::string& given, Problems& problems) {
    std::vector<simulator::Straggler> found;
    const auto words = split(given, ',');
    if (words.empty()) problems.add("--straggler is empty; write RANK=FACTOR, such as 3=1.5");
    if (words.size() > kMostStragglers) {
        problems.add("--straggler names {} ranks; use at most {}", words.size(), kMostStragglers);
        return {};
    }
    for (const std::string& word : words) {
        const auto sign = word.find('=');
        const auto rank = parse_integer(word.substr(0, sign));
        const auto factor = sign == std::string::npos ? std::nullopt : parse_real(word.substr(sign + 1));
        if (!rank || !factor) {
            problems.add(
                "--straggler: '{}' is not RANK=FACTOR; write the global rank and how many times as long it computes, such as 3=1.5",
                word.substr(0, 60));
        } else if (*rank < 0 || *rank >= kMostRanks) {
            problems.add("--straggler: rank = {} is out of range; use 0 to {}", *rank, kMostRanks - 1);
        } else if (!(*factor >= 1 && *factor <= kMostSlowdown)) {
            problems.add("--straggler: factor = {} of rank {} is out of range; use 1 (as fast as all) to {}", word.substr(sign + 1, 60),
                         *rank, kMostSlowdown);
        } else if (std::any_of(found.begin(), found.end(), [&](const auto& other) { return other.rank == *rank; })) {
            problems.add("--straggler names rank {} twice; name it once", *rank);
        } else {
            found.push_back({*rank, *factor});
        }
    }
    return found;
}

}  // namespace

void declare_disturbance_options(Options& options, DisturbanceOptions& values) {
    options.group("Disturbances");
    options.checked(
        "straggler", values.stragglers, "RANK=FACTOR[,...]",
        [](const std::string& given, Problems& problems) { (void)read_stragglers(given, problems); },
        "global ranks that compute FACTOR times as long; their stage waits for them in every layer (default: none)");
    options.real("jitter", values.jitter_percent, 0, 100,
                 "standard deviation of the time of every pass, in percent; prints mean and p95 of the iteration");
    options.integer("seed", values.seed, 0, (std::int64_t{1} << 53) - 1, "random seed of --jitter");
}

DisturbedIteration disturbed_iteration(const DisturbanceOptions& options, const Layout& layout,
                                       const std::function<simulator::LayoutTimeline(const std::vector<double>& slowdown)>& timeline_of) {
    Problems problems;
    std::vector<simulator::Straggler> stragglers;
    if (options.stragglers) stragglers = read_stragglers(*options.stragglers, problems);
    for (const simulator::Straggler& straggler : stragglers) {
        if (straggler.rank >= layout.sizes.world)
            problems.add("--straggler: rank = {} is no rank of the layout; use 0 to {}", straggler.rank, layout.sizes.world - 1);
    }
    problems.throw_if_any();

    simulator::LayoutTimeline slowest = timeline_of({});
    DisturbedIteration result;
    result.undisturbed_seconds = slowest.step.time.iteration_seconds;
    for (auto& slowdown : simulator::stage_slowdowns(layout.sizes, stragglers)) {
        simulator::LayoutTimeline slowed = timeline_of(slowdown);
        if (!result.slowdown.empty() && slowed.step.time.iteration_seconds <= slowest.step.time.iteration_seconds) continue;
        slowest = std::move(slowed);
        result.slowdown = std::move(slowdown);
    }
    result.time = slowest.step.time;
    if (options.jitter_percent > 0) {
        simulator::JitterRequest request;
        request.deviation = options.jitter_percent / 100;
        request.seed = static_cast<std::uint64_t>(options.seed);
        // Replicas without stragglers wait for the one with them.
        request.replicas = stragglers.empty() ? layout.dp() : 1;
        const double behind = slowest.step.time.iteration_seconds - slowest.step.run.end;
        result.jitter = simulator::run_with_jitter(*slowest.program, std::move(slowest.step.times), request);
        result.jitter->mean += behind;
        result.jitter->p95 += behind;
    }
    return result;
}

nlohmann::ordered_json disturbed_to_json(const DisturbanceOptions& options, const DisturbedIteration& iteration) {
    nlohmann::ordered_json json{{"undisturbed_seconds", iteration.undisturbed_seconds},
                                {"iteration_seconds", iteration.time.iteration_seconds},
                                {"slowdown_by_stage", iteration.slowdown}};
    if (const auto& jitter = iteration.jitter) {
        json["jitter"] = {{"percent", options.jitter_percent}, {"seed", options.seed},         {"runs", jitter->runs},
                          {"replicas", jitter->replicas},      {"mean_seconds", jitter->mean}, {"p95_seconds", jitter->p95}};
    }
    return json;
}

std::string disturbed_text(const DisturbanceOptions& options, const DisturbedIteration& iteration) {
    const auto more = [&](double seconds) {
        return fmt::format("{}, {:+.1f} %", human_seconds(seconds), 100 * (seconds / iteration.undisturbed_seconds - 1));
    };
    std::string text = fmt::format("\nundisturbed: {}\n", human_seconds(iteration.undisturbed_seconds));
    if (!iteration.slowdown.empty()) {
        const auto worst = std::max_element(iteration.slowdown.begin(), iteration.slowdown.end());
        const auto count = std::count_if(iteration.slowdown.begin(), iteration.slowdown.end(), [](double f) { return f > 1; });
        text += fmt::format("stragglers: {} slower, the most stage {} ({:g} times): {}\n", counted(count, "stage"),
                            worst - iteration.slowdown.begin(), *worst, more(iteration.time.iteration_seconds));
    }
    if (const auto& jitter = iteration.jitter) {
        text +=
            fmt::format("jitter of {:g} % in {} of {} (seed {}): mean {}; p95 {}\n", options.jitter_percent, counted(jitter->runs, "run"),
                        counted(jitter->replicas, "replica"), options.seed, more(jitter->mean), more(jitter->p95));
    }
    return text;
}

}  // namespace mgplan::cli
