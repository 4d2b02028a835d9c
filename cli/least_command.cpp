#include <algorithm>
#include <functional>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/plan_details.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_search.hpp"
#include "cli/plan_space.hpp"
#include "cli/workload_options.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"
#include "plan/training/offload.hpp"
#include "planner/host_optimizer.hpp"
#include "planner/least_world.hpp"
#include "reports/least_report.hpp"

namespace mgplan::cli {
namespace {

/// Default of --up-to.
constexpr std::int64_t kUpTo = 4096;

/// Without a choice of the search the job may never fit; it is tried on up to this many times the GPUs that it needs with the choice.
constexpr std::int64_t kMostTimesWithout = 8;

/// A job on a number of GPUs that is not known yet, with the restrictions of its search.
struct Case {
    WorkloadOptions job;
    PlanOptions values;
};

/// One call of `least`. Its members hold the results of its steps, in the order of the steps.
class LeastRun {
public:
    explicit LeastRun(Console& console)
        : console_(console),
          options_("least --model CFG [--cluster NAME] [options]",
                   "Finds the least number of GPUs on which a layout of the model fits, how fast it is there, and how recompute, FSDP, the "
                   "optimizer in host memory and the headroom change the number. The batch is the same on every number of GPUs.") {
        declare_workload_options(options_, given_.job, false, GpuOptions::cluster_alone);
        options_.integer("up-to", up_to_, 1, kMostRanks, "largest number of GPUs to try: powers of two inside a node, then whole nodes");
        declare_search_options(options_, given_.values);
        options_.use_texts(console);
    }

    /// Returns the exit code. Throws ConfigError for wrong options, and if no layout is legal on any number of GPUs.
    int run(const std::vector<std::string>& args) {
        if (!options_.parse(args, console_.out)) return kDone;
        settle();
        find_answer();
        if (least_.given.plan) find_without();
        find_offloaded();
        find_adapted();
        write();
        return least_.given.plan ? kDone : kNothingFits;
    }

private:
    void settle();
    void find_answer();
    void find_without();
    void find_offloaded();
    void find_adapted();
    void explain_miss();
    void write();

    /// Searches one case on one number of GPUs, without notes. Throws ConfigError if the options do not suit that number.
    template <class Function>
    auto search_on(std::int64_t world, Case one, Function function) {
        std::ostringstream out, err;
        Console quiet{out, err};
        one.job.world = world;
        PlanSearch search(options_, one.job, one.values, console_);
        search.settle_job();
        search.settle_space(quiet);
        search.settle_ranking(false);
        return function(search);
    }

    /// The least number of GPUs from `first` to `last`; nothing if no layout fits.
    std::optional<std::int64_t> least_world(const Case& one, std::int64_t first, std::int64_t last);
    /// A fast layout of a case on a number of GPUs on which a layout fits.
    reports::LeastGpus fast_on(const std::optional<std::int64_t>& world, const Case& one, std::string change, std::int64_t up_to);

    Console& console_;
    Options options_;
    Case given_;
    std::int64_t up_to_ = kUpTo;
    ResolvedWorkload resolved_;        ///< the job on one node
    bool tries_fsdp_ = false;          ///< its search tries FSDP
    std::int64_t headroom_ = 0;        ///< bytes
    std::vector<std::int64_t> tried_;  ///< numbers of GPUs with legal layouts, or too small for any
    Problems illegal_;                 ///< of the last number of GPUs that no layout suited
    reports::LeastReport least_;
};

/// Resolves the job on one node, whose batch all numbers of GPUs get. Prints notes and warnings.
void LeastRun::settle() {
    Problems problems;
    WorkloadOptions& job = given_.job;
    if (job.global_batch && job.global_batch_tokens)
        problems.add("--global-batch and --global-batch-tokens both give the batch; give one of them");
    read_search_options(job, given_.values, problems);
    job.world = 1;
    Case on_node = given_;
    PlanSearch search(options_, on_node.job, on_node.values, console_);
    try {
        search.settle_job();
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    problems.throw_if_any();
    on_node.job.world = search.resolved().workload.cluster.gpus_per_node;
    search.settle_job();
    search.settle_space(console_);
    resolved_ = search.resolved();
    tries_fsdp_ = !on_node.values.space.shardings.empty();
    headroom_ = search.headroom(resolved_.workload);
    job.global_batch = resolved_.workload.batch.global_batch;
    job.global_batch_tokens.reset();
    least_.workload = resolved_.workload;
    least_.batch_source = resolved_.batch_source;
    least_.assumed = without_what_is_searched(resolved_.assumed, resolved_.workload, on_node.values.space);
    least_.headroom_bytes = headroom_;
    least_.by_memory = given_.values.objective == "memory";
}

std::optional<std::int64_t> LeastRun::least_world(const Case& one, std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> worlds = planner::worlds_of(resolved_.workload.cluster, last);
    std::erase_if(worlds, [first](std::int64_t world) { return world < first; });
    return planner::least_world(worlds, [&](std::int64_t world) {
        try {
            const bool fits = search_on(world, one, [](PlanSearch& search) { return search.fits(); });
            tried_.push_back(world);
            return fits ? planner::WorldFit::fits : planner::WorldFit::too_large;
        } catch (const ConfigError& error) {
            illegal_ = Problems{};
            illegal_.absorb(error, fmt::format("on {}: ", counted(world, "GPU")));
            return planner::WorldFit::illegal;
        }
    });
}

reports::LeastGpus LeastRun::fast_on(const std::optional<std::int64_t>& world, const Case& one, std::string change, std::int64_t up_to) {
    reports::LeastGpus found{std::move(change), up_to, resolved_.workload, {}};
    if (!world) return found;
    search_on(*world, one, [&](PlanSearch& search) {
        found.plan = search.fast_layout();
        found.workload = search.resolved().workload;
    });
    return found;
}

/// Where nothing fits without headroom, nothing fits with it: the numbers that the first search excludes are not searched again.
void LeastRun::find_answer() {
    Case narrow = given_;
    narrow.values.headroom = "0";
    const bool has_headroom = headroom_ > 0;
    const auto without = has_headroom ? least_world(narrow, 1, up_to_) : std::nullopt;
    const auto least = has_headroom && !without ? std::nullopt : least_world(given_, without.value_or(1), up_to_);
    if (!least) explain_miss();
    least_.given = fast_on(least, given_, "", up_to_);
    if (without && without != least) least_.fixes.push_back(fast_on(without, narrow, "--headroom 0", up_to_));
}

/// Names the nearest miss of the largest number of GPUs on which a layout is legal. Throws ConfigError if there is none.
void LeastRun::explain_miss() {
    std::ranges::sort(tried_, std::greater<>());
    for (const std::int64_t world : tried_) {
        try {
            search_on(world, given_, [&](PlanSearch& search) {
                reports::PlanReport report = search.search();
                const NearestMiss miss = nearest_miss(report);
                least_.why_not = fmt::format("on {}: {}", counted(world, "GPU"), miss.why_not);
                least_.would_fit_with = miss.remedy;
            });
            return;
        } catch (const ConfigError& error) {  // a number of GPUs that was too small for any layout
            if (illegal_.empty()) illegal_.absorb(error, fmt::format("on {}: ", counted(world, "GPU")));
        }
    }
    illegal_.throw_if_any();
}

/// Switches off what the search uses by itself, one after the other. Where the plan of the answer does not use it, the answer is the same.
void LeastRun::find_without() {
    const reports::LeastGpus& answer = least_.given;
    const Layout& layout = answer.plan->layout;
    const std::int64_t world = answer.workload.world, most = std::min(up_to_, kMostTimesWithout * world);
    const auto add = [&](const Case& one, std::string change, bool used) {
        if (used) {
            least_.without.push_back(fast_on(least_world(one, world, most), one, std::move(change), most));
        } else {
            least_.without.push_back(answer);
            least_.without.back().change = std::move(change);
        }
    };
    const auto& kinds = given_.values.space.recompute;
    if (kinds.size() > 1 && std::ranges::find(kinds, Recompute::none) != kinds.end()) {
        Case one = given_;
        one.values.space.recompute = {Recompute::none};
        add(one, "--recompute none", layout.recompute != Recompute::none);
    }
    if (tries_fsdp_ && !answer.workload.model.adapters) {
        Case one = given_;
        one.job.sharding = "optimizer";
        add(one, "--sharding optimizer", layout.switches && layout.switches->sharding);
    }
}

/// The optimizer in host memory, if the job then needs no more GPUs than the answer; it goes with no FSDP.
void LeastRun::find_offloaded() {
    if (!planner::with_optimizer_on_host(resolved_.workload.training, resolved_.engine)) return;
    Case one = given_;
    one.job.offload = "optimizer";
    const std::int64_t most = least_.given.plan ? least_.given.workload.world : up_to_;
    if (const auto least = least_world(one, 1, most))
        least_.fixes.insert(least_.fixes.begin(), fast_on(least, one, "--offload optimizer", most));
}

/// The number with adapters in place of all weights, which trains another thing: the last row.
void LeastRun::find_adapted() {
    constexpr std::string_view kDefault = "default";
    ModelSpec model = resolved_.workload.model;
    if (model.adapters) return;
    try {
        model.adapters = parse_adapters(std::string(kDefault), model, "--lora");
    } catch (const ConfigError&) {
        return;  // of a model whose adapters are not predicted
    }
    if (!adapter_obstacles(model, resolved_.workload.training, resolved_.engine == Engine::mgplan).empty()) return;
    Case one = given_;
    one.job.lora = kDefault;
    const std::int64_t most = least_.given.plan ? least_.given.workload.world : up_to_;
    if (const auto least = least_world(one, 1, most)) least_.fixes.push_back(fast_on(least, one, "--lora default", most));
}

void LeastRun::write() {
    const BatchSpec& batch = resolved_.workload.batch;
    least_.options = fmt::format("--cluster {}{} --seq {} --global-batch {}", shell_word(given_.job.cluster),
                                 given_.job.precision ? " --precision " + *given_.job.precision : "", batch.sequence, batch.global_batch);
    switch (options_.format()) {
        case Format::json:
            options_.write(console_, reports::least_json(least_));
            break;
        case Format::csv:
            options_.write(console_, reports::least_csv(least_));
            break;
        case Format::table:
            options_.write(console_, reports::least_text(least_));
            break;
    }
}

}  // namespace

int run_least(const std::vector<std::string>& args, Console& console) {
    return LeastRun(console).run(args);
}

}  // namespace mgplan::cli
