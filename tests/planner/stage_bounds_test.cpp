// Bounds on seconds from the slowest stage, held against the layout's own timeline, event by event.

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/layout/layout_request.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "planner/search_axes.hpp"
#include "planner/simulator_cost.hpp"
#include "runtime/sanitizers.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/least_costs.hpp"
#include "simulator/piece/stage_census.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::stage_bounds_test {
namespace {

#ifdef MGPLAN_ADDRESS_SANITIZER  // minutes there
constexpr int kJobs = 12;
#else
constexpr int kJobs = 240;
#endif

/// A job, its search space, and one of its legal layouts.
struct Job {
    Workload work;
    SearchSpace space;
    Layout layout;
};

template <class Values>
auto any_of(std::mt19937& random, const Values& values) {
    return values[random() % std::size(values)];
}

Workload random_workload(std::mt19937& random, Engine engine) {
    const char* const models[]{"llama3-8b",     "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b",
                               "qwen3-30b-a3b", "gemma2-9b",    "mimo-7b",          "moonlight-16b-a3b"};
    const char* const clusters[]{"dgx-h100", "gb200-nvl72", "dgx-b200", "dgx-a100-80g"};
    const std::int64_t worlds[]{8, 16, 32, 64}, batches[]{64, 128, 256};
    Workload work = workload_of(any_of(random, models), any_of(random, worlds), any_of(random, clusters), any_of(random, batches), 4096);
    if (random() % 4 == 0 && work.cluster.peak(Precision::fp8) > 0) {
        work.training.precision = Precision::fp8;
        work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    }
    work.training.overlap_grad_reduce = random() % 3 != 0;
    work.training.overlap_param_gather = work.training.overlap_grad_reduce && random() % 2 == 0;
    work.training.overlap_p2p = random() % 4 != 0;
    if (engine == Engine::mgplan && random() % 3 == 0) work.training.offload.optimizer = 0.5;
    if (random() % 4 == 0) work.batch.lengths = {.tokens = {512, 3000}, .counts = {900, 35}};
    return work;
}

/// Nothing where the rules refuse the sizes that came up.
std::optional<Layout> random_layout(std::mt19937& random, const Workload& work, const SearchSpace& space) {
    const std::int64_t powers[]{1, 2, 4, 8}, chunks[]{1, 1, 2, 3, 4};
    LayoutRequest request;
    request.tp = any_of(random, powers);
    request.cp = random() % 4 == 0 ? 2 : 1;
    request.pp = any_of(random, powers);
    request.vpp = request.pp > 1 ? any_of(random, chunks) : 1;
    if (work.model.moe) {
        request.ep = any_of(random, powers);
        request.etp = 1;
    }
    request.micro_batch = 1 + static_cast<std::int64_t>(random() % 2);
    request.sequence_parallel = work.model.moe || random() % 2 == 0;
    request.recompute = any_of(random, space.recompute);
    request.recompute_modules =
        space.more_recompute_modules.empty() ? space.recompute_modules : any_of(random, space.more_recompute_modules);
    request.recompute_method = random() % 2 == 0 ? RecomputeMethod::uniform : RecomputeMethod::block;
    request.recompute_num_layers =
        request.recompute_method == RecomputeMethod::block ? 1 + static_cast<std::int64_t>(random() % 4) : std::int64_t{1};
    if (!space.more_cuda_graphs.empty() && random() % 2 == 0) request.cuda_graphs = any_of(random, space.more_cuda_graphs);
    request.engine = space.engine;
    request.switches = any_of(random, space.switches);
    try {
        return make_layout(request, work);
    } catch (const ConfigError&) {
        return std::nullopt;
    }
}

/// Of any engine, with everything that a wide search varies.
Job random_job(std::mt19937& random) {
    for (;;) {
        SearchSpace space;
        space.engine = random() % 3 == 0 ? Engine::mgplan : Engine::megatron;
        Job job{random_workload(random, space.engine), std::move(space), {}};
        Problems problems;
        widen(job.space, read_search_axes("wide", problems), job.work);
        for (int tries = 0; tries < 20; ++tries) {
            if (std::optional<Layout> layout = random_layout(random, job.work, job.space)) {
                job.layout = *std::move(layout);
                return job;
            }
        }
    }
}

/// How many jobs had what makes a bound interesting.
struct Met {
    int pipelined = 0, interleaved = 0, full = 0, block = 0, graphed = 0, switched = 0, close = 0;

    void count(const Layout& layout, double bound, double seconds) {
        pipelined += layout.sizes.pp > 1 ? 1 : 0;
        interleaved += layout.vpp > 1 ? 1 : 0;
        full += layout.recompute == Recompute::full ? 1 : 0;
        block += layout.recompute_method == RecomputeMethod::block ? 1 : 0;
        graphed += layout.cuda_graphs.empty() ? 0 : 1;
        switched += layout.switches ? 1 : 0;
        close += bound > 0.8 * seconds ? 1 : 0;
    }
    void expect_all() const {
        for (const int one : {pipelined, interleaved, full, block, graphed, switched}) EXPECT_GT(one, kJobs / 40);
        EXPECT_GT(close, kJobs / 10) << "bounds that are far away cut nothing";
    }
};

TEST(StageBounds, SecondsOfStagesAreNoMoreThanTheTimelineOfTheSameCosts) {
    std::mt19937 random(20261126);
    Met met;
    for (int i = 0; i < kJobs; ++i) {
        const Job job = random_job(random);
        const Workload& work = job.work;
        const Layout& layout = job.layout;
        SCOPED_TRACE(fmt::format("{}, {}", work.model.name, fingerprint(layout)));
        simulator::CostModel model(work);
        const double seconds = model.exact_seconds(layout);
        const simulator::PieceSeconds pieces = simulator::seconds_of_pieces(model.costs(layout));
        const simulator::SplitCensus split = simulator::take_census(layer_kinds(work.model, work.training.megatron), layout.split);
        const auto bound = [&](bool repeats) {
            return simulator::seconds_of_stages(layout, repeats, split, pieces, work.model.mtp_layers,
                                                work.training.megatron.fully_sharded.active());
        };
        for (const bool repeats : {false, true}) {
            ASSERT_LE(bound(repeats), seconds);
            ASSERT_LE(bound(repeats), model.estimate_time(layout).iteration_seconds);
            ASSERT_LE(bound(repeats), model.estimate_time(layout).at_least_seconds * (1 + 1e-9));
        }
        met.count(layout, bound(true), seconds);
    }
    met.expect_all();
}

TEST(StageBounds, LeastSecondsRepeatedAreNoMoreThanTheTimelineOfAnyChoice) {
    std::mt19937 random(20261127);
    Met met;
    int repeated_more = 0;
    for (int i = 0; i < kJobs; ++i) {
        const Job job = random_job(random);
        const Workload& work = job.work;
        const Layout& layout = job.layout;
        SCOPED_TRACE(fmt::format("{}, {}", work.model.name, fingerprint(layout)));
        const LayoutCost cost = simulator_cost_model()(work);
        simulator::CostModel model(work);
        const double bound = cost.least_seconds_repeated(layout, job.space);
        met.count(layout, bound, model.exact_seconds(layout));
        // It holds for all that differ in switches, whichever it was asked for.
        Layout chosen = layout;
        for (int choice = 0; choice < 4; ++choice) {
            if (broken_messages(work, chosen).empty()) {
                ASSERT_LE(bound, model.exact_seconds(chosen)) << fingerprint(chosen);
            }
            chosen.switches = any_of(random, job.space.switches);
        }
        if (layout.recompute != Recompute::full) continue;
        Layout plain = layout;
        plain.recompute = Recompute::none;
        plain.recompute_method.reset();
        plain.recompute_num_layers = 0;
        repeated_more += bound > 1.1 * cost.least_seconds_repeated(plain, job.space) ? 1 : 0;
    }
    met.expect_all();
    EXPECT_GT(repeated_more, kJobs / 40);
}

}  // namespace
}  // namespace mgplan::planner::testing::stage_bounds_test
