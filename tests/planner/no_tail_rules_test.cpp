// Rule::no_tail: what a search asks of such a rule once for each choice of switches holds for every recompute and CUDA graph.

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/layout/layout_switches.hpp"
#include "plan/text/text.hpp"
#include "planner/search_axes.hpp"
#include "planner/switch_rules.hpp"
#include "runtime/sanitizers.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::no_tail_rules_test {
namespace {

class Dice {
public:
    explicit Dice(unsigned seed) : random_(seed) {}

    [[nodiscard]] bool once_in(unsigned n) { return random_() % n == 0; }
    template <class Values>
    [[nodiscard]] auto any(const Values& values) {
        return values[random_() % std::size(values)];
    }

private:
    std::mt19937 random_;
};

/// A job that asks for one or another thing that some rule of switches forbids.
Workload random_job(Dice& dice) {
    static const std::vector<Workload> kWorks = [] {
        std::vector<Workload> works;
        for (const char* const model :
             {"llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v4-flash", "nemotron-3-nano-30b-a3b"}) {
            for (const char* const cluster : {"dgx-h100", "gb200-nvl72", "mi300x"}) works.push_back(workload_of(model, 64, cluster));
        }
        return works;
    }();
    Workload work = dice.any(kWorks);
    if (work.model.moe) {
        MoeSpec& moe = *work.model.moe;
        moe.dispatcher = dice.any(
            std::vector{TokenDispatcher::all_gather, TokenDispatcher::all_to_all, TokenDispatcher::deep_ep, TokenDispatcher::hybrid_ep});
        moe.pad_to_capacity = dice.once_in(4);
        if (moe.pad_to_capacity) moe.capacity_factor = 1;
    }
    if (dice.once_in(6) && work.model.kinds.empty()) work.model.hyper_connections.emplace();
    TrainingSpec& training = work.training;
    training.precision = dice.any(std::vector{Precision::bf16, Precision::bf16, Precision::fp16, Precision::fp32, Precision::fp8});
    training.distributed_optimizer = !dice.once_in(4);
    training.overlap_moe = dice.once_in(4);
    if (dice.once_in(4)) training.attention = AttentionBackend::unfused;
    if (dice.once_in(6)) work.batch.lengths = {{1024, 3072}, {1, 1}};
    OffloadSpec& offload = training.offload;
    if (dice.once_in(8)) offload.optimizer = 0.5;
    if (dice.once_in(8)) offload.states = 0.5;
    if (dice.once_in(4)) offload.modules.add(dice.any(kOffloadModules));
    MegatronSwitches& switches = training.megatron;
    switches.transformer_engine = !dice.once_in(6);
    switches.moe_shared_expert_overlap = dice.once_in(4);
    if (dice.once_in(4)) switches.expert_buffers.capacity = 1.5;
    if (dice.once_in(3)) switches.optimizer = dice.any(kOptimizerKinds);
    if (dice.once_in(6))
        switches.fully_sharded.kind = dice.any(std::vector{FullyShardedKind::megatron_fsdp, FullyShardedKind::torch_fsdp2});
    if (dice.once_in(2)) switches.fully_sharded.strategy = ShardingStrategy::optim_grads_params;
    if (dice.once_in(6)) switches.weight_shards.dense = 2;
    if (dice.once_in(6)) switches.bf16_layers_at_start = 1;
    if (dice.once_in(8)) switches.offloaded_layers = 2;
    if (dice.once_in(4)) {
        work.cluster.network_kind = NetworkKind::efa;
        work.cluster.gpus_per_node = work.cluster.nvlink_domain = 4;
    }
    return work;
}

std::shared_ptr<const LayoutSwitches> random_switches(Dice& dice) {
    LayoutSwitches switches;
    if (dice.once_in(2))
        switches.dispatcher = dice.any(std::vector{TokenDispatcher::all_to_all, TokenDispatcher::deep_ep, TokenDispatcher::hybrid_ep});
    switches.overlap_tp = dice.once_in(3);
    switches.overlap_moe = dice.once_in(3);
    switches.bf16_gradients = dice.once_in(3);
    switches.bf16_moments = dice.once_in(3);
    return switches == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(switches);
}

/// All but recompute, CUDA graphs and switches.
Layout random_front(Dice& dice, const Workload& work) {
    Layout layout;
    layout.engine = dice.once_in(3) ? Engine::mgplan : Engine::megatron;
    layout.sizes.world = work.world;
    layout.sizes.tp = dice.any(std::vector{1, 1, 2});
    layout.sizes.pp = dice.any(std::vector{1, 2, 4});
    layout.sizes.ep = work.model.moe ? dice.any(std::vector{1, 2, 8}) : 1;
    layout.sizes.etp = work.model.moe ? 1 : layout.sizes.tp;
    layout.vpp = layout.sizes.pp > 1 ? dice.any(std::vector{1, 2}) : 1;
    layout.group_size = layout.sizes.pp;
    layout.micro_batch = dice.any(std::vector{1, 2});
    layout.num_microbatches = work.batch.global_batch / (layout.dp() * layout.micro_batch);
    layout.sequence_parallel = layout.sizes.tp > 1 && dice.once_in(2);
    if (auto split = automatic_stage_split(work.model.layers, work.model.mtp_layers, static_cast<int>(layout.sizes.pp), layout.vpp))
        layout.split = std::make_shared<const StageSplit>(std::move(*split));
    return layout;
}

/// The layout with every kind of recompute and every set of graphs that a search takes, and more; half of them with larger micro-batches
/// and more chunks, where there are several.
std::vector<Layout> with_tails(const Workload& work, const Layout& front) {
    std::vector<EnumSet<CudaGraphScope>> graphs = graph_sets(work, front.engine);
    graphs.insert(graphs.begin(), EnumSet<CudaGraphScope>{});
    for (const CudaGraphScope scope : {CudaGraphScope::attn, CudaGraphScope::mlp, CudaGraphScope::moe, CudaGraphScope::layer,
                                       CudaGraphScope::full_iteration, CudaGraphScope::moe_router})
        graphs.push_back({scope});
    std::vector<Layout> recomputing{front};
    std::vector<EnumSet<RecomputeModule>> sets = useful_module_sets(work, false);
    for (const std::string& name : recompute_module_names()) sets.push_back({*parse_recompute_module(name)});
    for (const auto& modules : sets) {
        Layout& layout = recomputing.emplace_back(front);
        layout.recompute = Recompute::selective;
        layout.recompute_modules = modules;
    }
    for (const RecomputeMethod method : {RecomputeMethod::uniform, RecomputeMethod::block}) {
        Layout& layout = recomputing.emplace_back(front);
        layout.recompute = Recompute::full;
        layout.recompute_method = method;
        layout.recompute_num_layers = 2;
    }
    std::vector<Layout> all;
    for (const Layout& layout : recomputing) {
        for (const auto& scopes : graphs) {
            Layout& tail = all.emplace_back(layout);
            tail.cuda_graphs = scopes;
            if (all.size() % 2 == 0) continue;
            tail.micro_batch *= 2;
            tail.num_microbatches /= 2;
            if (tail.vpp > 1) ++tail.vpp;
        }
    }
    return all;
}

/// How often a rule was broken, was not, and said both of one layout with several tails.
struct Answers {
    int broken = 0, kept = 0, both = 0;
};

TEST(NoTailRules, SayTheSameWhateverIsRecomputedOrInGraphs) {
    Dice dice(20261126);
    std::map<std::string_view, Answers> answers;
#ifdef MGPLAN_ADDRESS_SANITIZER
    constexpr int kJobs = 300;
#else
    constexpr int kJobs = 3000;
#endif
    for (int i = 0; i < kJobs; ++i) {
        const Workload work = random_job(dice);
        Layout front = random_front(dice, work);
        front.switches = random_switches(dice);
        const std::vector<Layout> tails = with_tails(work, front);
        for (const Rule& rule : switch_rules()) {
            const auto broken = std::count_if(tails.begin(), tails.end(), [&](const Layout& layout) { return rule.broken(work, layout); });
            Answers& of_rule = answers[rule.name];
            const bool all = broken == static_cast<std::ptrdiff_t>(tails.size());
            of_rule.broken += broken > 0 ? 1 : 0;
            of_rule.kept += all ? 0 : 1;
            of_rule.both += broken > 0 && !all ? 1 : 0;
            ASSERT_TRUE(!rule.no_tail || broken == 0 || all)
                << rule.name << " reads the tail of " << summary(front) << " of " << work.model.name;
        }
    }
    // These jobs and tails would have shown it of every rule: each is broken by some, and each without the mark by some of a layout's
    // tails.
    for (const Rule& rule : switch_rules()) {
        EXPECT_GT(answers[rule.name].broken, 0) << rule.name;
        EXPECT_GT(answers[rule.name].kept, 0) << rule.name;
        EXPECT_TRUE(rule.no_tail || answers[rule.name].both > 0) << rule.name << " reads no tail: mark it";
    }
}

TEST(NoTailRules, AreOfTheLastLevelAlone) {
    for (const Rule& rule : rules()) EXPECT_TRUE(!rule.no_tail || rule.level == Level::switches) << rule.name;
}

}  // namespace
}  // namespace mgplan::planner::testing::no_tail_rules_test
